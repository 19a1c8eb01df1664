"""Names of data files and markers: valid and invalid ones."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.errors import CorruptData, InvalidRequest, Unsupported
from pyhudi.format.names import (
    ArchiveFileName,
    BaseFileName,
    LogFileName,
    MarkerType,
    WriteToken,
    decode_marker_list,
    format_file_id,
    format_marker,
    parse_archive_file,
    parse_base_file,
    parse_external_file,
    parse_log_file,
    parse_marker,
    split_base_files,
)
from pyhudi.table.file_slices import construct_many

UUID = "b18a400d-c906-4878-9cc3-6bd42279d131"

BASE_FILES = {
    f"{UUID}-0_2-31-36_20261121044645518.parquet": BaseFileName(f"{UUID}-0", "2-31-36", "20261121044645518", ".parquet"),
    f"{UUID}_1-0-1_00000000000001.parquet": BaseFileName(UUID, "1-0-1", "00000000000001", ".parquet"),
    "00000001-859b-4085-b820-f18a8ea8fabe-0_0-1-2_1.orc": BaseFileName(
        "00000001-859b-4085-b820-f18a8ea8fabe-0", "0-1-2", "1", ".orc"
    ),
    "files-0000-0_0-5-4_00000000000000000.hfile": BaseFileName("files-0000-0", "0-5-4", "00000000000000000", ".hfile"),
}
LOG_FILES = {
    f".{UUID}-0_20261121044654361.log.1_2-60-105": LogFileName(f"{UUID}-0", "20261121044654361", 1, "2-60-105"),
    f".{UUID}-0_20261121051904428.log.12_0-915-1129.cdc": LogFileName(
        f"{UUID}-0", "20261121051904428", 12, "0-915-1129", is_cdc=True
    ),
    ".record-index-0000-0_00000000000000000.log.1_0-0-0": LogFileName("record-index-0000-0", "00000000000000000", 1, "0-0-0"),
    f".{UUID}-0_20190101000000.log.3": LogFileName(f"{UUID}-0", "20190101000000", 3, ""),
}
NEITHER = [
    "",
    ".hoodie_partition_metadata",
    ".hoodie",
    "_SUCCESS",
    "part-00000.parquet",
    f"{UUID}-0_2-31-36_20261121044645518",
    f"{UUID}-0_2-31-36_2026x.parquet",
    f"{UUID}-0_20261121044645518.parquet",
    f".{UUID}-0_2-31-36_20261121044645518.parquet.crc",
    f"..{UUID}-0_20261121044654361.log.1_2-60-105.crc",
    f".{UUID}-0_20261121044654361.log.1_2-60",
    f".{UUID}-0_20261121044654361.log.1_2-60-105.cdc.crc",
    f".{UUID}-0_20261121044654361.log.01_2-60-105",
    f".{UUID}-0_20261121044654361.log._2-60-105",
    f".{UUID}-0_20261121044654361.log.1.cdc",
    f".{UUID}-0_20261121044654361.log.1_2-60-105\n",
    ".a_b_20261121044654361.log.1_2-60-105",
    ".commits_.archive.1_1-0-1",
]


@pytest.mark.parametrize("name", BASE_FILES)
def test_base_files(name: str) -> None:
    assert parse_base_file(name) == BASE_FILES[name]
    assert str(BASE_FILES[name]) == name
    assert parse_log_file(name) is None


@pytest.mark.parametrize("name", LOG_FILES)
def test_log_files(name: str) -> None:
    assert parse_log_file(name) == LOG_FILES[name]
    assert str(LOG_FILES[name]) == name
    assert parse_base_file(name) is None


@pytest.mark.parametrize("name", NEITHER)
def test_names_that_are_neither_base_nor_log_files(name: str) -> None:
    assert parse_base_file(name) is None
    assert parse_log_file(name) is None


@given(st.text())
def test_parsed_names_round_trip(name: str) -> None:
    for parsed in (parse_log_file(name), parse_archive_file(name)):
        assert parsed is None or str(parsed) == name


def test_very_many_names_are_taken_apart_alike() -> None:
    names = [*BASE_FILES, *LOG_FILES, *NEITHER]
    for name, parts in zip(names, split_base_files(pa.array(names)).to_pylist(), strict=True):
        made = construct_many(BaseFileName, 1, {part: [text] for part, text in parts.items()})[0] if parts is not None else None
        assert made == parse_base_file(name)


def test_external_files_are_refused_not_skipped() -> None:
    with pytest.raises(Unsupported):
        parse_base_file("anything_20261121044645518_hudiext")


@pytest.mark.parametrize(
    "file", ["part-0.snappy.parquet", "a_b_20261121044645518.parquet", "x_20261121044645518_hudiext", "plain"]
)
def test_external_files(file: str) -> None:
    name = f"{file}_20261121044645518_hudiext"
    parsed = parse_external_file(name)
    assert parsed is not None and (parsed.file_id, parsed.instant_time, parsed.text) == (file, "20261121044645518", name)
    assert pickle.loads(pickle.dumps(parsed)) == parsed


@pytest.mark.parametrize(
    "name", ["part-0.parquet", "_20261121044645518_hudiext", "a_hudiext", "a/b_1_hudiext", "a_fg%3Db_1_hudiext"]
)
def test_names_that_are_not_those_of_external_files(name: str) -> None:
    assert parse_external_file(name) is None


def test_log_files_sort_by_instant_then_version_as_number_then_token_then_cdc() -> None:
    names = [
        ".f_20261121000000000.log.2_0-1-1",
        ".f_20261121000000000.log.10_0-1-1",
        ".f_20261121000000000.log.10_0-1-1.cdc",
        ".f_20261121000000000.log.10_0-10-1",
        ".f_20261121000000000.log.10_0-2-1",
        ".f_20261121000000001.log.1_0-1-1",
    ]
    parsed = [parsed for name in reversed(names) if (parsed := parse_log_file(name))]
    assert [str(name) for name in sorted(parsed, key=lambda name: name.sort_key)] == names


def test_names_that_cannot_be() -> None:
    with pytest.raises(InvalidRequest):
        BaseFileName("a_b", "1-0-1", "1", ".parquet")
    with pytest.raises(InvalidRequest):
        BaseFileName("a", "1-0-1", "1", "parquet")
    with pytest.raises(InvalidRequest):
        LogFileName("a.b", "1", 1, "1-0-1")
    with pytest.raises(InvalidRequest):
        LogFileName("a", "1", 1, "", is_cdc=True)
    with pytest.raises(InvalidRequest):
        WriteToken(0, -1, 0)


def test_archive_files() -> None:
    assert parse_archive_file(".commits_.archive.7_1-0-1") == ArchiveFileName(7, "1-0-1")
    assert str(ArchiveFileName(7, "1-0-1")) == ".commits_.archive.7_1-0-1"
    assert parse_archive_file(".commits_.archive.1_1-0-1.crc") is None
    assert parse_archive_file("archived") is None


def test_write_tokens_and_file_ids() -> None:
    assert str(WriteToken(2, 60, 105)) == "2-60-105"
    assert format_file_id(UUID, 3) == f"{UUID}-3"
    with pytest.raises(InvalidRequest):
        format_file_id("a_b", 0)
    with pytest.raises(InvalidRequest):
        format_file_id(UUID, -1)


@pytest.mark.parametrize("kind", MarkerType)
@pytest.mark.parametrize("path", ["0/a-0_0-1-2_1.parquet", "a-0_0-1-2_1.parquet", "p=x.marker.CREATE/q/.a_1.log.1_0-1-2"])
def test_markers(path: str, kind: MarkerType) -> None:
    assert parse_marker(format_marker(path, kind)) == (path, kind)


@pytest.mark.parametrize(
    "path", ["", "MARKERS.type", "MARKERS0", ".marker.CREATE", "0/.marker.CREATE", "a.marker.create", "a.marker.CREATE.crc"]
)
def test_paths_that_are_no_markers(path: str) -> None:
    assert parse_marker(path) is None


def test_marker_list_of_the_timeline_server() -> None:
    data = (
        b"0/.d873ac38-c17a-46ca-8504-95ddd6e745ce-0_20261121050614768.log.1_0-130-176.marker.CREATE\n"
        b"1/a-0_0-1-2_1.parquet.marker.MERGE\n"
    )
    assert decode_marker_list(data) == (
        ("0/.d873ac38-c17a-46ca-8504-95ddd6e745ce-0_20261121050614768.log.1_0-130-176", MarkerType.CREATE),
        ("1/a-0_0-1-2_1.parquet", MarkerType.MERGE),
    )
    assert decode_marker_list(b"") == ()


@pytest.mark.parametrize("data", [b"0/a.parquet.marker.CREATE", b"nonsense\n", b"\xff\n"])
def test_marker_lists_that_are_cut_or_damaged(data: bytes) -> None:
    with pytest.raises(CorruptData):
        decode_marker_list(data)
