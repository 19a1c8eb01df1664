"""Records of the files partition and their merge."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.errors import InvalidRequest
from pyhudi.metadata_table.codecs.files_codec import (
    ALL_PARTITIONS,
    FILES_SCHEMA,
    decode_files,
    encode_files,
    live_files,
)
from pyhudi.metadata_table.codecs.metadata_schema import RECORD_SCHEMA
from tests.support.merged_metadata import FileEntry, merge_file_lists

Row = tuple[str, str, int, bool]


def batch(rows: list[Row]) -> pa.RecordBatch:
    names = FILES_SCHEMA.names
    return pa.RecordBatch.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema=FILES_SCHEMA)


def rows_of(files: pa.RecordBatch) -> list[Row]:
    return [tuple(row.values()) for row in files.to_pylist()]


def test_round_trip_sorts_by_bytes() -> None:
    rows = [
        ("b", "x.parquet", 10, False),
        ("ä", ".x.log.1_0-0-0", 1 << 40, False),
        (ALL_PARTITIONS, "b", 0, False),
        (ALL_PARTITIONS, "ä", 0, True),
        (".", "gone.parquet", 0, True),
        ("b", "a.parquet", 5, False),
    ]
    keys, values = encode_files(batch(rows))
    assert keys.to_pylist() == [".", ALL_PARTITIONS, "b", "ä"]
    assert [value[6] for value in values.to_pylist()] == [4, 2, 4, 4]
    assert rows_of(decode_files(keys.cast(pa.binary()), values, RECORD_SCHEMA)) == sorted(rows, key=lambda row: (row[0], row[1]))


def test_a_table_without_partitions_so_far() -> None:
    keys, values = encode_files(batch([]), [ALL_PARTITIONS])
    assert keys.to_pylist() == [ALL_PARTITIONS]
    # The value of a real base file behind its five meta fields.
    assert values.to_pylist()[0][5:].hex() == "0002020000000000"
    assert decode_files(keys.cast(pa.binary()), values, RECORD_SCHEMA).num_rows == 0
    assert encode_files(batch([]))[0].to_pylist() == []


@pytest.mark.parametrize(
    "rows",
    [
        [("p", "a", 1, False), ("p", "a", 1, False)],
        [("p", "a", 0, False)],
        [("p", "a", -1, False)],
    ],
)
def test_records_that_hudi_readers_reject_are_refused(rows: list[Row]) -> None:
    with pytest.raises(InvalidRequest):
        encode_files(batch(rows))


def test_the_same_name_in_two_partitions() -> None:
    assert encode_files(batch([("p", "a", 1, False), ("q", "a", 1, False)]))[0].to_pylist() == ["p", "q"]


def test_merge_of_two_lists() -> None:
    alive, dead = FileEntry(10), FileEntry(0, True)
    cases = [
        (None, alive, alive),
        (None, dead, dead),
        (alive, FileEntry(7), alive),
        (alive, FileEntry(12), FileEntry(12)),
        (alive, dead, None),
        (dead, alive, alive),
        (dead, dead, dead),
    ]
    for older, newer, expected in cases:
        found = merge_file_lists({"f": older} if older else {}, {"f": newer})
        assert found.get("f") == expected, (older, newer)
    assert merge_file_lists({"f": alive}, {"g": dead}) == {"f": alive, "g": dead}


entries = st.builds(lambda size: FileEntry(size) if size else FileEntry(0, True), st.integers(0, 3))
lists = st.dictionaries(st.sampled_from("abc"), entries, max_size=3)


@given(st.lists(st.dictionaries(st.sampled_from(["p", "q"]), lists, max_size=2), max_size=7))
def test_live_files_are_what_merging_leaves(commits: list[dict[str, dict[str, FileEntry]]]) -> None:
    merged: dict[str, dict[str, FileEntry]] = {}
    rows: list[Row] = []
    order: list[int] = []
    for number, commit in enumerate(commits):
        for partition, files in commit.items():
            merged[partition] = merge_file_lists(merged.get(partition, {}), files)
            rows += [(partition, name, entry.size_bytes, entry.is_deleted) for name, entry in files.items()]
            order += [number] * len(files)
    expected = [
        (partition, name, entry.size_bytes, False)
        for partition in sorted(merged)
        for name, entry in sorted(merged[partition].items())
        if not entry.is_deleted
    ]
    # Rows come in any order: their ranks say what is newer.
    backwards = batch(rows[::-1])
    assert rows_of(live_files(backwards, pa.array(order[::-1], pa.int64()))) == expected
