"""Records of the metadata table: codecs return the encoded values."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.errors import Internal, InvalidRequest
from pyhudi.format.avro_wrappers import Wrapper
from pyhudi.metadata_table.codecs.bloom_filter_codec import decode_bloom_filters
from pyhudi.metadata_table.codecs.column_stats_codec import decode_column_stats
from pyhudi.metadata_table.codecs.files_codec import decode_files
from pyhudi.metadata_table.codecs.metadata_schema import COMMIT_SCHEMA, RECORD_SCHEMA, MetadataRecordType, has_standard_layout
from pyhudi.metadata_table.codecs.value_wrappers import unwrap
from pyhudi.metadata_table.metadata_records import (
    FileFilter,
    FileRanges,
    bloom_deletes,
    bloom_records,
    build_records,
    by_shard,
    column_stats_deletes,
    column_stats_records,
    files_records,
    partition_stats_records,
)
from pyhudi.records.column_statistics import ColumnRange
from pyhudi.records.hashing import file_hash, key_shards, name_hash

SCHEMA = pa.schema([("id", pa.string()), ("fare", pa.float64()), ("moment", pa.timestamp("us", "UTC"))])


def file_entries(records: object) -> list[tuple[str, str, int, bool]]:
    rows = decode_files(records.keys.cast(pa.binary()), records.values, RECORD_SCHEMA)  # type: ignore[attr-defined]
    return list(zip(*(rows.column(i).to_pylist() for i in range(4)), strict=True))


def test_a_commit_names_its_files_and_its_partitions() -> None:
    records = files_records({"a": {"f1": 10, ".l1": 20}, "b": {}})
    assert file_entries(records) == [
        ("__all_partitions__", "a", 0, False),
        ("__all_partitions__", "b", 0, False),
        ("a", ".l1", 20, False),
        ("a", "f1", 10, False),
    ]
    assert not len(records.deletes)


def test_commit_without_files_has_a_partition_list_record() -> None:
    records = files_records({})
    assert records.keys.to_pylist() == ["__all_partitions__"] and file_entries(records) == []


def test_a_table_without_partitions_is_named_by_a_dot() -> None:
    assert file_entries(files_records({"": {"f": 1}})) == [(".", "f", 1, False), ("__all_partitions__", ".", 0, False)]


def test_clean_records_contain_only_deleted_files() -> None:
    records = files_records({}, {"a": ["f1", ".l1"]}, ["b"])
    assert file_entries(records) == [("__all_partitions__", "b", 0, True), ("a", ".l1", 0, True), ("a", "f1", 0, True)]
    assert files_records({}, {"a": ["f1"]}).keys.to_pylist() == ["a"]


def test_files_without_a_size_are_refused() -> None:
    with pytest.raises(InvalidRequest):
        files_records({"a": {"f": 0}})


def test_column_stats_of_files() -> None:
    ranges = (
        ("id", ColumnRange("a", "z", 1, 5, 30, 40)),
        ("fare", ColumnRange(-0.0, math.nan, 0, 5)),
        ("moment", ColumnRange(None, None, 5, 5)),
    )
    records = column_stats_records([FileRanges("p", "f1", ranges), FileRanges("q", ".l1", ranges)], SCHEMA)
    stats, types = decode_column_stats(records.values, RECORD_SCHEMA)
    assert set(types.to_pylist()) == {MetadataRecordType.COLUMN_STATS}
    by_key = dict(zip(records.keys.to_pylist(), stats.to_pylist(), strict=True))
    one = by_key[name_hash("id") + name_hash("q") + file_hash(".l1")]
    assert (one["file_name"], one["column_name"], one["value_count"], one["null_count"]) == (".l1", "id", 5, 1)
    assert (one["total_size_bytes"], one["total_uncompressed_size_bytes"], one["is_tight"]) == (30, 40, False)
    assert records.keys.to_pylist() == sorted(by_key)
    fares = stats.filter(pa.compute.equal(stats.column("column_name"), "fare"))
    low, known = unwrap(fares.column("min"), pa.float64())
    high, _ = unwrap(fares.column("max"), pa.float64())
    assert known.all() and math.copysign(1, low[0].as_py()) < 0 and high[0].as_py() == math.inf


def test_a_range_that_is_not_known_is_never_written() -> None:
    """A reader would take the file for one without values."""
    with pytest.raises(Internal):
        column_stats_records([FileRanges("p", "f", (("id", ColumnRange(None, None, 0, 5)),))], SCHEMA)


def test_statistics_of_partitions_are_tight_and_go_with_their_files() -> None:
    full = {"id": ColumnRange("a", "b", 0, 2), "fare": ColumnRange(1.0, 2.0, 0, 2)}
    records = partition_stats_records({"p": full, "gone": None}, ("id", "fare"), SCHEMA)
    stats, types = decode_column_stats(records.values, RECORD_SCHEMA)
    assert set(types.to_pylist()) == {MetadataRecordType.PARTITION_STATS}
    assert {(row["file_name"], row["column_name"], row["is_tight"]) for row in stats.to_pylist()} == {
        ("p", "id", True),
        ("p", "fare", True),
    }
    assert set(records.deletes.to_pylist()) == {name_hash(c) + name_hash("gone") for c in ("id", "fare")}


def test_statistics_of_partitions_that_are_not_tight_remove_nothing() -> None:
    full = {"id": ColumnRange("a", "b", 0, 2)}
    records = partition_stats_records({"p": full, "gone": None}, ("id",), SCHEMA, is_tight=False)
    stats, _ = decode_column_stats(records.values, RECORD_SCHEMA)
    file_entries = {row["file_name"]: (row["is_tight"], row["value_count"], row["min"]["kind"]) for row in stats.to_pylist()}
    assert file_entries == {"p": (False, 2, int(Wrapper.STRING)), "gone": (False, 0, int(Wrapper.NULL))}
    assert not len(records.deletes)


def test_filters_and_deletions() -> None:
    records = bloom_records([FileFilter("p", "f1", "DYNAMIC_V0", "text")], "20260101000000000")
    assert decode_bloom_filters(records.values, RECORD_SCHEMA).to_pylist() == [
        {"type_code": "DYNAMIC_V0", "instant_time": "20260101000000000", "bloom_filter": b"text", "is_deleted": False}
    ]
    assert bloom_deletes({"p": ["f1"]}).deletes.to_pylist() == records.keys.to_pylist()
    assert len(column_stats_deletes({"p": ["f1", "f2"], "q": ["f3"]}, ["id", "fare"]).deletes) == 6
    assert column_stats_deletes({}, ["id"]).is_empty


@given(
    st.dictionaries(st.text(max_size=6), st.binary(max_size=4), max_size=40),
    st.lists(st.text(max_size=6), max_size=20),
    st.integers(1, 5),
)
def test_records_are_ordered_distinct_and_dealt_out(written: dict[str, bytes], gone: list[str], shards: int) -> None:
    records = build_records(
        pa.array(list(written), pa.string()), pa.array(list(written.values()), pa.binary()), pa.array(gone, pa.string())
    )
    keys = records.keys.to_pylist()
    assert keys == sorted(written, key=str.encode)
    assert records.deletes.to_pylist() == sorted(set(gone) - set(written), key=str.encode)
    assert dict(zip(keys, records.values.to_pylist(), strict=True)) == written
    pieces = by_shard(records, shards)
    assert sorted(key for piece in pieces.values() for key in piece.keys.to_pylist()) == sorted(written)
    assert sorted(key for piece in pieces.values() for key in piece.deletes.to_pylist()) == sorted(set(gone) - set(written))
    for shard, piece in pieces.items():
        assert not piece.is_empty
        for part in (piece.keys, piece.deletes):
            assert set(key_shards(part, shards).tolist()) <= {shard}


def test_a_key_is_written_once() -> None:
    with pytest.raises(Internal):
        build_records(pa.array(["a", "a"]), pa.array([b"1", b"2"]))


def test_layouts() -> None:
    assert has_standard_layout(RECORD_SCHEMA)
    assert has_standard_layout(RECORD_SCHEMA.replace('"name":"HoodieMetadataRecord"', '"doc":"x","name":"HoodieMetadataRecord"'))
    assert not has_standard_layout(COMMIT_SCHEMA)
    assert not has_standard_layout(
        RECORD_SCHEMA.replace('"name":"isTightBound","type":"boolean"', '"name":"isTightBound","type":"int"')
    )
    assert not has_standard_layout("no schema")
