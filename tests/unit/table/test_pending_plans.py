from __future__ import annotations

import pytest

from pyhudi.table.pending_plans import planned_path


@pytest.mark.parametrize(
    ("partition", "uri", "path"),
    [
        ("p", "file:/data/t/p/f", "p/f"),
        ("p/q=1", "s3a://bucket/t/p/q=1/f", "p/q=1/f"),
        ("", "file:///data/t/f", "f"),
        ("p", "/elsewhere/before/p/f", "p/f"),
        # The table was in the folder above its current one, or the reverse.
        ("p", "file:/data/t/p/p/f", "p/f"),
        ("p", "file:/data/t/q/f", None),
        ("p", "file:/data/t/xp/f", None),
        ("p", "file:/data/t/p", None),
        ("a/p", "file:/data/t/p/f", None),
    ],
)
def test_files_of_plans(partition: str, uri: str, path: str | None) -> None:
    assert planned_path(partition, uri) == path
