"""Partition statistics index: the merged column ranges of the files of each partition's newest slices.

A commit recomputes the touched partitions for the state after it. Ranges of its own files come from its tasks, those of
other files from the column statistics. `metadata_table.writer.overlapping_commits` reconciles commits with overlapping
times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from pyhudi.format.paths import file_name
from pyhudi.metadata_table.codecs.metadata_partitions import COLUMN_STATS, PARTITION_STATS
from pyhudi.metadata_table.file_group_merge import PARTITION_STATISTICS, TYPED_PARTITION_STATISTICS, CellMergeRule
from pyhudi.metadata_table.file_tasks import IndexFilesTask, run_index_files
from pyhudi.metadata_table.indexes.column_stats_index import (
    ColumnStatsBase,
    CommitStatistics,
    existing_columns,
    load_file_ranges,
    statistics_layout,
)
from pyhudi.metadata_table.indexes.index_events import CommitPublishing, IndexBuild
from pyhudi.metadata_table.indexes.index_pruning import Filter
from pyhudi.metadata_table.indexes.index_validation import CheckedTable, IndexFindings, compare_partition
from pyhudi.metadata_table.indexes.metadata_index import Dependency, HasPartitionRanges, IndexUpdate, PartitionStatsUpdate
from pyhudi.metadata_table.indexes.stored_ranges import stored_ranges
from pyhudi.metadata_table.metadata_records import FileRanges, MetadataRecords, partition_stats_records
from pyhudi.metadata_table.reader.index_lookups import (
    find_partition_ranges,
    find_partition_stats,
    find_partitions,
    partition_ranges,
)
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.planning.data_skipping import UnitRanges, has_reliable_partition_bounds, unit_ranges
from pyhudi.records.column_statistics import ColumnRange, merge_ranges
from pyhudi.records.dotted_columns import field_at
from pyhudi.table.bootstrap_sources import load_bootstrap_sources
from pyhudi.table.table_config import TableConfig
from pyhudi.tasks.file_stats import FileIndexing


@dataclass(frozen=True, slots=True)
class PartitionStatsIndex(ColumnStatsBase, HasPartitionRanges):
    """The partition `partition_stats`."""

    partition_type: ClassVar[str] = PARTITION_STATS
    needs: ClassVar[Dependency | None] = Dependency(COLUMN_STATS, "statistics of partitions need those of columns", COLUMN_STATS)
    merge: ClassVar[CellMergeRule] = PARTITION_STATISTICS
    typed_merge: ClassVar[CellMergeRule | None] = TYPED_PARTITION_STATISTICS

    @classmethod
    def refusal(cls, config: TableConfig) -> str | None:
        return None if config.keys.partition_fields else "the table is not partitioned"

    def updates_for_commit(self, commit: CommitPublishing) -> IndexUpdate:
        statistics = commit.shared(CommitStatistics)
        ranges, _ = statistics.of_partitions
        types = {column: field_at(statistics.schema, column).type for column in statistics.columns} if ranges else {}
        deletes = None
        if statistics.removed_columns:
            # No writer updates these columns any further, and they may be added again.
            deletes = partition_stats_records(
                dict.fromkeys(find_partitions(commit.reader)), statistics.removed_columns, statistics.schema
            )
        layout = statistics_layout(commit.context)
        return IndexUpdate(deletes, partitions=PartitionStatsUpdate(self, ranges, types, layout))

    def build(self, state: IndexBuild, time: str, shards: int) -> IndexUpdate:
        by_partition: dict[str, list[FileRanges]] = {}
        for file in load_file_ranges(state):
            by_partition.setdefault(file.partition, []).append(file)
        merged = {
            p: {c: merge_ranges(dict(file.ranges)[c] for file in of_files) for c in state.columns}
            for p, of_files in by_partition.items()
        }
        typed = statistics_layout(state.table) > 1
        return IndexUpdate(partition_stats_records(merged, state.columns, state.schema, typed=typed))

    @classmethod
    def step(cls, partition: str) -> str:
        return "partition statistics"

    @classmethod
    def pruned_partitions(cls, partition: str, metadata: MetadataTable, row_filter: Filter) -> frozenset[str] | None:
        columns = row_filter.columns_in(metadata.definitions.get(COLUMN_STATS))
        names = [name for name in columns if has_reliable_partition_bounds(field_at(row_filter.schema, name).type)]
        if not names:
            return None

        def ranges() -> UnitRanges:
            stats = find_partition_stats(metadata, names)
            return unit_ranges(row_filter.schema, names, stats, stats.column("file_name"), of_partitions=True)

        pruned = metadata.cached(("ranges", partition, row_filter.column_types(names)), ranges).excluded(row_filter.condition)
        return frozenset(pruned.to_pylist())

    def partition_records(self, update: PartitionStatsUpdate, schema: pa.Schema, *, is_tight: bool) -> MetadataRecords:
        typed = update.layout > 1
        return partition_stats_records(update.ranges, tuple(update.types), schema, is_tight=is_tight, typed=typed)

    def partition_rows(self, reader: MetadataTable, columns: Sequence[str]) -> pa.Table:
        return find_partition_stats(reader, columns)

    def partition_ranges(self, reader: MetadataTable, column: str, type_: pa.DataType) -> dict[str, ColumnRange]:
        return find_partition_ranges(reader, column, type_)

    def check(self, table: CheckedTable) -> IndexFindings:
        """Compare with the file statistics, and with the chosen base files and all log files."""
        findings = IndexFindings()
        columns = table.comparable(existing_columns(table.definition(COLUMN_STATS), table.schema))
        types = {name: field_at(table.schema, name).type for name in columns}
        partitions = sorted({slice_.partition for slice_ in table.slices})
        of_files = _ranges_of_files(table, types)
        read_ranges = _ranges_inside(table, [name for name, type_ in types.items() if has_reliable_partition_bounds(type_)])
        stats = self.partition_rows(table.metadata, columns)
        for name, type_ in types.items():
            stored = partition_ranges(stats, name, type_)
            for partition in partitions:
                for file_ranges in (of_files, read_ranges):
                    parts = [ranges[name] for ranges in file_ranges.get(partition, ()) if name in ranges]
                    if parts and not compare_partition(findings, partition, name, stored.get(partition), parts):
                        break
        findings.checked = f"{len(columns)} columns of {len(partitions):,} partitions"
        return findings


def _ranges_of_files(table: CheckedTable, types: Mapping[str, pa.DataType]) -> dict[str, list[Mapping[str, ColumnRange]]]:
    """The stored ranges of the latest files, by partition."""
    stored = stored_ranges(table.metadata, sorted({slice_.partition for slice_ in table.slices}), types)
    result: dict[str, list[Mapping[str, ColumnRange]]] = {}
    for slice_ in table.slices:
        for file in (*((slice_.base,) if slice_.base is not None else ()), *slice_.logs):
            ranges = stored.get((slice_.partition, file_name(file.path)))
            if ranges:
                result.setdefault(slice_.partition, []).append(ranges)
    return result


def _ranges_inside(table: CheckedTable, columns: Sequence[str]) -> dict[str, list[Mapping[str, ColumnRange]]]:
    """The bounds of columns read from the files, by partition. Null counts are omitted: Hudi's statistics exclude the
    nulls of files older than the column.
    """
    indexing = FileIndexing(tuple(columns))
    ids = table.snapshot.ids
    files, bootstrap_sources = tuple(table.files), load_bootstrap_sources(table.context, table.files)
    task = IndexFilesTask(table.context.storage.spec(), files, table.schema, indexing, table.validity, ids, bootstrap_sources)
    result: dict[str, list[Mapping[str, ColumnRange]]] = {}
    for file in run_index_files(task) if columns else ():
        bounds = {name: ColumnRange(range_.min, range_.max) for name, range_ in file.indexed.ranges if range_.min is not None}
        result.setdefault(file.partition, []).append(bounds)
    return result
