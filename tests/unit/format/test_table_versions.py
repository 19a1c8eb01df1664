"""Table versions and their features."""

from __future__ import annotations

import pytest

from pyhudi.errors import CorruptData, Unsupported
from pyhudi.format.table_versions import TableVersion, parse_table_version, parse_timeline_layout


def test_absent_is_current() -> None:
    assert parse_table_version(None) is TableVersion.EIGHT is TableVersion.current()


def test_layouts() -> None:
    assert [version.layout.value for version in TableVersion] == [0, 1, 1, 1, 1, 1, 1, 1, 2, 2]


def test_readable_and_writable_table_versions() -> None:
    assert [version.value for version in TableVersion if version.is_readable] == [6, 8, 9]
    assert [version.value for version in TableVersion if version.is_writable] == [8, 9]


def test_eight_differs_from_six() -> None:
    six, eight = TableVersion.SIX, TableVersion.EIGHT
    for name in ("has_one_log_file_per_commit", "has_merge_mode"):
        assert (getattr(six, name), getattr(eight, name)) == (False, True), name
    assert not eight.has_ordering_fields
    assert not eight.merges_by_modes


def test_nine_differs_from_eight() -> None:
    eight, nine = TableVersion.EIGHT, TableVersion.NINE
    for name in (
        "has_ordering_fields",
        "merges_by_modes",
        "has_index_versions",
        "has_bucket_rescale",
        "has_open_ranges",
        "names_format",
    ):
        assert (getattr(eight, name), getattr(nine, name)) == (False, True), name


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("10", Unsupported),
        ("99999999999", Unsupported),
        ("", CorruptData),
        ("8.0", CorruptData),
        ("-1", CorruptData),
        ("٨", CorruptData),
        ("9" * 5000, CorruptData),
    ],
)
def test_versions_that_are_none(text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        parse_table_version(text)
    with pytest.raises(error):
        parse_timeline_layout(text)
