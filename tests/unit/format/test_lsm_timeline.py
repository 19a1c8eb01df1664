"""The LSM timeline: names, version, manifest and rows."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyhudi.errors import CorruptData, InvalidRequest
from pyhudi.format.lsm_timeline import (
    HISTORY_SCHEMA,
    HistoryFileName,
    HistoryRow,
    Manifest,
    ManifestEntry,
    encode_history,
    encode_version,
    format_manifest_name,
    history_rows,
    history_table,
    parse_history_file,
    parse_manifest_name,
    parse_version,
)

NAME = "20261121070813488_20261121070819872_0.parquet"
ROWS = (
    HistoryRow("20261121070819872", "20261121070820762", "commit", b"Obj\x01metadata", b"Obj\x01plan"),
    HistoryRow("20261121070813488", None, "deltacommit"),
)


def test_file_names() -> None:
    assert parse_history_file(NAME) == HistoryFileName("20261121070813488", "20261121070819872", 0)
    assert str(HistoryFileName("2", "1", 9)) == "2_1_9.parquet"
    for name in (
        "",
        "1_2.parquet",
        "1_2_10.parquet",
        "1_2_0.parquet.tmp",
        f".{NAME}.crc",
        "_version_",
        "manifest_1",
        "a_b_0.parquet",
    ):
        assert parse_history_file(name) is None, name
    with pytest.raises(InvalidRequest):
        HistoryFileName("1", "2", 10)


def test_which_files_may_hold_a_range() -> None:
    for name in (HistoryFileName("20", "40", 0), HistoryFileName("40", "20", 0)):
        inside = [("10", "20"), ("40", "50"), ("25", "30"), ("10", "50"), (None, "20"), ("40", None), (None, None)]
        assert all(name.may_contain(first, last) for first, last in inside)
        assert not any(name.may_contain(first, last) for first, last in [("10", "19"), ("41", "50"), (None, "1"), ("5", None)])


def test_manifest_names_and_version() -> None:
    assert parse_manifest_name(format_manifest_name(12)) == 12
    for name in ("manifest_", "manifest_0", "manifest_01", "manifest_1.tmp", "manifest_x", ".manifest_1.crc"):
        assert parse_manifest_name(name) is None, name
    assert parse_version(encode_version(7)) == 7
    assert parse_version(b"7\n") == 7
    for data in (b"", b"x", b"-1", b"\xff", b"1.0", b"9" * 1000):
        assert parse_version(data) is None, data


def test_manifest_bytes() -> None:
    manifest = Manifest((ManifestEntry(NAME, 4663), ManifestEntry("1_2_1.parquet", 0)))
    data = (
        b'{\n  "files" : [ {\n    "fileName" : "20261121070813488_20261121070819872_0.parquet",\n    "fileLen" : 4663\n  }, '
        b'{\n    "fileName" : "1_2_1.parquet",\n    "fileLen" : 0\n  } ]\n}'
    )
    assert manifest.encode() == data
    assert Manifest.decode(data) == manifest
    assert Manifest.decode(Manifest().encode()) == Manifest()
    compact = b'{"x":1,"files":[{"fileName":"1_2_1.parquet","fileLen":0,"more":null}]}'
    assert Manifest.decode(compact) == Manifest((ManifestEntry("1_2_1.parquet", 0),))
    for end in range(len(data)):
        with pytest.raises(CorruptData):
            Manifest.decode(data[:end])


@pytest.mark.parametrize(
    "data",
    [
        b"{}",
        b"[]",
        b'{"files":{}}',
        b'{"files":[1]}',
        b'{"files":[{"fileName":"../x","fileLen":1}]}',
        b'{"files":[{"fileName":"1_2_0.parquet"}]}',
        b'{"files":[{"fileName":"1_2_0.parquet","fileLen":-1}]}',
        b'{"files":[{"fileName":"1_2_0.parquet","fileLen":true}]}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_manifests_that_are_none(data: bytes) -> None:
    with pytest.raises(CorruptData):
        Manifest.decode(data)


@pytest.mark.parametrize("compression", ["gzip", "zstd", "none"])
def test_rows(compression: str) -> None:
    file = pq.ParquetFile(io.BytesIO(encode_history(ROWS, compression)))
    assert file.schema_arrow.remove_metadata() == HISTORY_SCHEMA
    assert set(file.metadata.metadata or {}) == {b"parquet.avro.schema", b"writer.model.name", b"pyhudi.footer.crc32"}
    assert tuple(history_rows(file.read())) == ROWS
    times = file.read(columns=["instantTime", "completionTime", "action"])
    assert [(row.instant_time, row.completion_time, row.metadata) for row in history_rows(times)] == [
        ("20261121070819872", "20261121070820762", None),
        ("20261121070813488", None, None),
    ]


def test_rows_that_are_none() -> None:
    with pytest.raises(CorruptData):
        list(history_rows(history_table(ROWS).drop_columns(["action"])))
    with pytest.raises(CorruptData):
        list(history_rows(pa.table({"instantTime": [None], "action": ["commit"]})))
    with pytest.raises(CorruptData):
        list(history_rows(pa.table({"instantTime": [1], "action": ["commit"]})))
