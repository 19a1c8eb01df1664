"""hoodie.properties: Java's text format in both directions, and the checksum."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.errors import CorruptData, InvalidRequest
from pyhudi.format.partition_metadata import PartitionMetadata, partition_depth
from pyhudi.format.properties import (
    check_checksum,
    format_checksummed_properties,
    format_java_date,
    format_properties,
    format_saved_comments,
    format_updated_comments,
    parse_properties,
    table_checksum,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.mark.parametrize(
    ("data", "pairs"),
    [
        (b"a=1\nb=2\n", {"a": "1", "b": "2"}),
        (b"a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        (b"# note\n  ! note\n\n  a = 1 \n", {"a": "1 "}),
        (b"a:1\nb 2\nc\t=\t3\nd  :  = 4\n", {"a": "1", "b": "2", "c": "3", "d": "= 4"}),
        (b"a\\=b=c=d\n", {"a=b": "c=d"}),
        (b"a\\:b\\ c=\\ d\n", {"a:b c": " d"}),
        (b"a=1,\\\n    2,\\\n\\\n  3\n", {"a": "1,2,3"}),
        (b"a=1\\\\\nb=2\n", {"a": "1\\", "b": "2"}),
        (b"a=b\\\n# no note\n", {"a": "b# no note"}),
        (b"a=\\u00e9\\uD83D\\ude00\\t\\q\n", {"a": "é\U0001f600\tq"}),
        (b"a=\xe9\n", {"a": "é"}),
        (b"a\nb=\n", {"a": "", "b": ""}),
        (b"a=1\na=2\n", {"a": "2"}),
        (b"a=1\x0bb\n", {"a": "1\x0bb"}),
        (b"=x\n", {"": "x"}),
        (b"a=1\\", {"a": "1"}),
        (b"", {}),
    ],
)
def test_properties_are_parsed_as_by_java(data: bytes, pairs: dict[str, str]) -> None:
    assert parse_properties(data) == pairs


@pytest.mark.parametrize("data", [b"a=\\u12\n", b"a=\\u12g4\n", b"a=\\ud83d\n", b"a\\ude00\\ud83d=1\n", b"a=\\u+123\n"])
def test_broken_escapes(data: bytes) -> None:
    with pytest.raises(CorruptData):
        parse_properties(data)


def test_properties_are_formatted_as_by_java() -> None:
    values = {
        "hoodie.table.create.schema": '{"type":"record","name":"t"}',
        "a b": " two  words ",
        "x": "#!\t\n\r\f\\é\U0001f600",
    }
    assert format_properties(values, ("Properties saved on 2025-07-13T01:05:35.624677Z",)) == (
        b"#Properties saved on 2025-07-13T01:05:35.624677Z\n"
        b'hoodie.table.create.schema={"type"\\:"record","name"\\:"t"}\n'
        b"a\\ b=\\ two  words \n"
        b"x=\\#\\!\\t\\n\\r\\f\\\\\\u00E9\\uD83D\\uDE00\n"
    )


@given(st.dictionaries(TEXT, TEXT))
def test_round_trip(values: dict[str, str]) -> None:
    data = format_properties(values, ("a comment é \u4e2d",))
    assert data.isascii() or data.startswith(b"#a comment \xe9")
    assert parse_properties(data) == values


@given(st.binary(max_size=200))
def test_any_bytes_are_pairs_or_corrupt(data: bytes) -> None:
    try:
        parse_properties(data)
    except CorruptData:
        return


def test_a_comment_is_one_line() -> None:
    with pytest.raises(InvalidRequest):
        format_properties({}, ("a\nb=c",))


@pytest.mark.parametrize(
    ("database", "name", "checksum"),
    [("", "mor1", 2126765813), ("", "mor1_metadata", 1660910120), ("default", "tl_cow1", 2314815437)],
)
def test_checksum(database: str, name: str, checksum: int) -> None:
    assert table_checksum(database, name) == checksum


def test_comments_of_real_files() -> None:
    at = 1_795_236_412_000
    assert format_java_date(at) == "Sat Nov 21 04:46:52 UTC 2026"
    assert format_saved_comments(at + 7) == ("Properties saved on 2026-11-21T04:46:52.007Z", "Sat Nov 21 04:46:52 UTC 2026")
    assert format_updated_comments(at)[0] == "Updated at 2026-11-21T04:46:52.000Z"


def test_partition_metadata() -> None:
    data = PartitionMetadata("20261121044645518", 1).encode(1_795_236_412_000)
    assert data == (b"#partition metadata\n#Sat Nov 21 04:46:52 UTC 2026\ncommitTime=20261121044645518\npartitionDepth=1\n")
    assert PartitionMetadata.decode(data) == PartitionMetadata("20261121044645518", 1)


@pytest.mark.parametrize(
    "data",
    [b"", b"commitTime=1\n", b"partitionDepth=1\n", b"commitTime=1\npartitionDepth=x\n", b"commitTime=\npartitionDepth=1\n"],
)
def test_partition_metadata_that_lacks_a_value(data: bytes) -> None:
    with pytest.raises(CorruptData):
        PartitionMetadata.decode(data)


def test_depth() -> None:
    assert [partition_depth(path) for path in ("", "a", "a=1/b=2")] == [0, 1, 2]


def sealed() -> bytes:
    return format_checksummed_properties({"a": "1", "b": "text", "hoodie.table.base.file.format": "PARQUET", "c": ""}, ("saved",))


def test_checksum_detects_every_changed_byte() -> None:
    data, passed = sealed(), 0
    check_checksum(data)
    for at in range(len(data)):
        for bit in range(8):
            damaged = data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
            with suppress(CorruptData):
                check_checksum(damaged)
                assert {key: parse_properties(damaged).get(key) for key in "abc"} == {"a": "1", "b": "text", "c": ""}
                passed += 1
    assert 0 < passed < 8 * len("#savedPARQUET"), "of a comment, and of a format that no reader takes"
    for text in (data + b"a=2\n", b"a=2\n" + data, data.replace(b"b=text\n", b""), data[: data.rindex(b"#")]):
        with pytest.raises(CorruptData, match="by hand"):
            check_checksum(text)


def test_other_writers_drop_the_seal_and_change_what_they_like() -> None:
    check_checksum(b"".join(line for line in sealed().splitlines(keepends=True) if not line.startswith(b"#")) + b"d=4\n")
    check_checksum(sealed().replace(b"=PARQUET", b"=ORC"))
