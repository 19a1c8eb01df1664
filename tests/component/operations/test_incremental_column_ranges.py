"""Partition statistics are kept from commit to commit: reads per commit, and cases that recompute them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pyhudi import Table
from pyhudi.errors import Internal
from pyhudi.metadata_table.codecs.column_stats_codec import decode_column_stats
from pyhudi.metadata_table.indexes.stored_ranges import retained_ranges
from pyhudi.metadata_table.reader.index_lookups import find_partition_stats, find_stats
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.metadata_table.writer import metadata_store
from pyhudi.records.column_statistics import NO_VALUES, ColumnRange, exchanged_range, merge_ranges
from pyhudi.table.table_context import TableContext
from tests.support.metadata_truth import assert_metadata_is_true

OPTIONS = {"hoodie.parquet.small.file.limit": "0", "hoodie.compact.inline": "false"}


class StatisticsReads:
    """Statistics of files that commits looked at: one by one, and partitions of which all were."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.rows = 0
        self.partitions: list[str] = []

        def finding(metadata: Any, index: str, keys: pa.StringArray) -> pa.Table:
            found = find_stats(metadata, index, keys)
            self.rows += found.num_rows if index == "column_stats" else 0
            return found

        def evaluating(context: TableContext, files: Mapping[str, Any], types: Mapping[str, pa.DataType]) -> Any:
            self.partitions += [partition for partition, infos in files.items() if infos]
            return retained_ranges(context, files, types)

        patch.setattr("pyhudi.metadata_table.indexes.partition_stats_delta.find_stats", finding)
        patch.setattr("pyhudi.metadata_table.indexes.column_stats_index.retained_ranges", evaluating)


@pytest.fixture
def read_statistics(monkeypatch: pytest.MonkeyPatch) -> StatisticsReads:
    return StatisticsReads(monkeypatch)


def rows(numbers: range, stamp: int, part: str = "p") -> pa.Table:
    return pa.table(
        {
            "id": [f"k{n:04}" for n in numbers],
            "part": [part] * len(numbers),
            "ts": pa.array([stamp] * len(numbers), pa.int64()),
            "n": pa.array([None if n % 4 == 3 else n for n in numbers], pa.int64()),
            "x": pa.array([n / 8 for n in numbers], pa.float64()),
        }
    )


def made(path: Path, kind: str, files: int) -> Table:
    """One partition with so many files of ten rows; the last writer has read all of them."""
    table = Table.create(path, record_key="id", partition_by="part", ordering="ts", table_type=kind, options=OPTIONS)
    for number in range(files):
        table.insert(rows(range(10 * number, 10 * number + 10), 0))
    return table


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_commit_reads_no_statistics_of_unchanged_files(tmp_path: Path, kind: str, read_statistics: StatisticsReads) -> None:
    counts = []
    for files in (4, 7):
        table = made(tmp_path / str(files), kind, files)
        read_statistics.rows, read_statistics.partitions = 0, []
        table.upsert(rows(range(21, 24), 1))
        assert read_statistics.partitions == []
        counts.append(read_statistics.rows)
        assert_metadata_is_true(table)
    assert counts[0] == counts[1]
    # An update in a log ends no file; on copy on write one file ends, with a row for each column.
    assert (counts[0] > 0) is (kind == "cow")


def test_removed_bound_is_recomputed_from_all_files(tmp_path: Path, read_statistics: StatisticsReads) -> None:
    table = made(tmp_path, "cow", 3)
    read_statistics.partitions = []
    table.delete(keys=rows(range(3), 1))
    assert read_statistics.partitions == ["p"]
    table.upsert(rows(range(12, 13), 2))
    assert read_statistics.partitions == ["p"]
    assert_metadata_is_true(table)


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_ranges_are_not_maintained_incrementally_after_a_commit_of_hudi(
    tmp_path: Path, kind: str, read_statistics: StatisticsReads, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(tmp_path, kind, 3)
    with monkeypatch.context() as patch:
        # What only PyHudi records is missing, as in commits of Apache Hudi.
        patch.setattr(metadata_store, "SINCE_KEY", "of.another.writer")
        table.upsert(rows(range(21, 24), 1))
    read_statistics.partitions = []
    for stamp in (2, 3, 4):
        table.upsert(rows(range(21, 24), stamp))
        assert_metadata_is_true(table)
    # The first commit starts again, the second is the first one requested since; from then on ranges are kept.
    assert read_statistics.partitions == ["p", "p"]


def test_ranges_are_not_maintained_incrementally_after_rollback_and_restore(
    tmp_path: Path, read_statistics: StatisticsReads
) -> None:
    table = made(tmp_path, "cow", 3)
    newest = table.upsert(rows(range(21, 24), 1)).instant
    assert newest is not None
    table.rollback(newest)
    read_statistics.partitions = []
    table.upsert(rows(range(12, 14), 2))
    assert read_statistics.partitions == ["p"]
    assert_metadata_is_true(table)


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_ranges_stay_exact_with_table_services(tmp_path: Path, kind: str, read_statistics: StatisticsReads) -> None:
    table = made(tmp_path, kind, 3)
    table.upsert(rows(range(12, 18), 1))
    table.insert(rows(range(5), 1, "q"))
    if kind == "mor":
        table.upsert(rows(range(3, 9), 2))
        table.compact()
        assert_metadata_is_true(table)
    table.delete(keys=rows(range(14, 16), 3))
    table.cluster()
    assert_metadata_is_true(table)
    table.upsert(rows(range(7, 23), 4))
    table.insert_overwrite(rows(range(100, 104), 5, "q"))
    assert_metadata_is_true(table)
    table.delete_partitions(["q"])
    table.upsert(rows(range(2), 6, "q"))
    assert_metadata_is_true(table)


LOW, HIGH, MID = (ColumnRange(low, high, 1, 4, 10, 20) for low, high in ((0, 4), (5, 9), (3, 6)))
ALL = merge_ranges((LOW, HIGH, MID))
NULLS = ColumnRange(None, None, 4, 4)


@pytest.mark.parametrize(
    ("leaving", "arriving", "expected"),
    [
        ([MID], [MID], ALL),
        ([MID], [], merge_ranges((LOW, HIGH))),
        ([], [ColumnRange(-1, 20, 0, 2)], merge_ranges((ALL, ColumnRange(-1, 20, 0, 2)))),
        ([LOW], [ColumnRange(0, 1, 0, 2)], merge_ranges((HIGH, MID, ColumnRange(0, 1, 0, 2)))),
        ([LOW], [ColumnRange(-3, 1, 0, 2)], merge_ranges((HIGH, MID, ColumnRange(-3, 1, 0, 2)))),
        ([LOW], [ColumnRange(1, 1, 0, 2)], None),
        ([HIGH], [MID], None),
        ([LOW, MID, HIGH], [], None),
        ([MID], [NULLS], merge_ranges((LOW, HIGH, NULLS))),
        ([None], [MID], None),
        ([MID], [None], None),
        ([MID], [ColumnRange(3, 6)], None),
        ([MID], [ColumnRange(None, None, 1, 4)], None),
        ([ColumnRange(3, 6, 9, 9)], [], None),
    ],
)
def test_range_after_added_and_removed_files(
    leaving: list[ColumnRange | None], arriving: list[ColumnRange | None], expected: ColumnRange | None
) -> None:
    assert exchanged_range(ALL, leaving, arriving) == expected


def test_range_of_only_nulls_takes_the_bounds_of_added_files() -> None:
    assert exchanged_range(NULLS, [NULLS], [LOW]) == LOW
    assert exchanged_range(NO_VALUES, [], [NULLS]) == NULLS
    assert exchanged_range(NULLS, [LOW], [LOW]) is None


def test_zeros_and_nan_are_in_the_order_of_java() -> None:
    whole, nan = ColumnRange(-0.0, float("inf"), 0, 4).with_nan(), ColumnRange(1.0, 2.0, 0, 1).with_nan()
    assert exchanged_range(whole, [ColumnRange(0.0, 1.0, 0, 1)], []) is not None
    assert exchanged_range(whole, [ColumnRange(-0.0, 1.0, 0, 1)], [ColumnRange(0.0, 1.0, 0, 1)]) is None
    assert exchanged_range(whole, [nan], [ColumnRange(1.0, 9.0, 0, 1)]) is None
    with pytest.raises(Internal):
        ColumnRange(1.0, None)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of each decoding of column statistics."""
    counts: list[int] = []

    def decode(values: pa.BinaryArray, schema: str) -> Any:
        counts.append(len(values))
        return decode_column_stats(values, schema)

    monkeypatch.setattr("pyhudi.metadata_table.reader.cell_merge.decode_column_stats", decode)
    return counts


def odd_rows(stamp: int) -> pa.Table:
    """Values whose stored bounds differ from the values: NaN, signed zeros, decimals, times, only nulls."""
    return pa.table(
        {
            "id": [f"k{n}" for n in range(stamp, stamp + 4)],
            "part": ["p"] * 4,
            "ts": pa.array([stamp] * 4, pa.int64()),
            "x": pa.array([float("nan") if stamp == 3 else -0.0, 0.0, stamp, None], pa.float64()),
            "d": pa.array([Decimal(f"{stamp}.25"), None, Decimal("-3.50"), None], pa.decimal128(9, 2)),
            "t": pa.array([stamp, 7, None, 9], pa.timestamp("us", "UTC")),
            "s": pa.array(["", "\u00e4", "z" * 300, None]),
            "none": pa.nulls(4, pa.int32()),
        }
    )


def stored_partition_ranges(table: Table) -> list[Any]:
    context = table.context.reloaded()
    metadata = MetadataTable(context, context.timeline.load())
    found = find_partition_stats(metadata, metadata.definitions["column_stats"].source_fields)
    # The record keys, commit times and sizes of files are those of one table.
    compared = found.filter(pc.invert(pc.starts_with(found.column("column_name"), "_hoodie")))
    return (
        compared.sort_by("column_name").select(["column_name", "min", "max", "null_count", "value_count", "is_tight"]).to_pylist()
    )


def test_a_commit_decodes_no_statistics_that_the_open_table_retains(tmp_path: Path, decoded: list[int]) -> None:
    table = made(tmp_path, "mor", 1)
    table.upsert(rows(range(4), 1))
    decoded.clear()
    for stamp in (2, 3, 4):
        table.upsert(rows(range(stamp, stamp + 3), stamp))
    assert decoded == []
    assert_metadata_is_true(table)
    Table(table.uri, options=OPTIONS).upsert(rows(range(3), 5))
    decoded.clear()
    table.upsert(rows(range(3), 6))
    assert decoded
    assert_metadata_is_true(table)


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_retained_ranges_give_the_statistics_that_loaded_ones_give(tmp_path: Path, kind: str) -> None:
    found = []
    for is_kept in (True, False):
        path = tmp_path / str(is_kept)
        table = Table.create(path, record_key="id", partition_by="part", ordering="ts", table_type=kind, options=OPTIONS)
        for stamp in range(1, 6):
            table.upsert(odd_rows(stamp))
            table = table if is_kept else Table(table.uri, options=OPTIONS)
        found.append(stored_partition_ranges(table))
    assert found[0] == found[1] != []


def _another_writer(table: Table) -> None:
    Table(table.uri, options=OPTIONS).upsert(rows(range(2, 12), 20))


def _rollback(table: Table) -> None:
    instant = Table(table.uri, options=OPTIONS).upsert(rows(range(2, 12), 20)).instant
    assert instant is not None
    table.rollback(instant)


def _restore(table: Table) -> None:
    other = Table(table.uri, options=OPTIONS)
    instant = other.upsert(rows(range(2, 12), 20)).instant
    assert instant is not None
    other.savepoint(instant)
    other.upsert(rows(range(100), 21))
    other.restore(instant)


def _services(table: Table) -> None:
    other = Table(table.uri, options={**OPTIONS, "hoodie.metadata.compact.max.delta.commits": "1"})
    other.delete(keys=rows(range(1), 20))
    other.compact()
    other.upsert(rows(range(3), 21))
    other.clean(options={"hoodie.clean.commits.retained": 1})


def _rebuilt(table: Table) -> None:
    other = Table(table.uri, options=OPTIONS)
    other.drop_metadata_table()
    other.upsert(rows(range(3), 20))


def _delete_by_key(table: Table) -> None:
    table.delete(keys=rows(range(1), 20))


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "event", [_another_writer, _rollback, _restore, _services, _rebuilt, _delete_by_key], ids=lambda event: event.__name__
)
def test_retained_ranges_stay_exact_after_other_operations(tmp_path: Path, event: Callable[[Table], None]) -> None:
    table = made(tmp_path, "mor", 1)
    for stamp in (1, 2):
        table.upsert(rows(range(stamp, stamp + 4), stamp))
    event(table)
    for stamp in (30, 31):
        table.upsert(rows(range(stamp - 28, stamp - 20), stamp))
        assert_metadata_is_true(Table(table.uri))


def test_ranges_are_retained_within_a_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decoded: list[int]) -> None:
    monkeypatch.setattr("pyhudi.metadata_table.indexes.stored_ranges._MAX_CACHED_BYTES", 1 << 10)
    table = made(tmp_path, "mor", 1)
    table.upsert(rows(range(4), 1))
    decoded.clear()
    table.upsert(rows(range(4), 2))
    assert decoded
