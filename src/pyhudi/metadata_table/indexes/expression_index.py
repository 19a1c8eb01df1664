"""Expression index: the range of a function's results per file and partition, or a Bloom filter of them per file.
Format: docs/formats/metadata-table.md.

Results can only be computed from values, so the files of a commit are read before it acquires the lock. The ranges of
touched partitions are computed under the lock, as partition statistics are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Self

import pyarrow as pa

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.format.bloom_filter import BloomKind
from pyhudi.format.index_definitions import IndexDefinition
from pyhudi.format.meta_columns import with_meta_fields
from pyhudi.metadata_table.codecs.metadata_partitions import BLOOM_FILTERS, COLUMN_STATS, EXPRESSION_INDEX_PREFIX
from pyhudi.metadata_table.codecs.value_wrappers import has_statistics
from pyhudi.metadata_table.file_group_merge import RESULTS, TYPED_RESULTS, CellMergeRule
from pyhudi.metadata_table.index_tasks import ExpressionIndex, ExpressionStats, ExpressionTask, FilterSettings, run_expressions
from pyhudi.metadata_table.indexes.index_events import FILES_PER_TASK, CommitPrepared, CommitPublishing, FilesCleaned, IndexBuild
from pyhudi.metadata_table.indexes.index_pruning import BaseFilePruner, Filter, PrunedFiles, without_texts
from pyhudi.metadata_table.indexes.index_validation import (
    CheckedTable,
    IndexFindings,
    compare_filters,
    compare_partition,
    filter_covers,
)
from pyhudi.metadata_table.indexes.metadata_index import (
    HasPartitionRanges,
    Index,
    IndexUpdate,
    PartitionStatsUpdate,
    single_column_definition,
)
from pyhudi.metadata_table.indexes.stored_ranges import (
    files_pruned_by_ranges,
    has_bounds,
    statistics_units,
    stored_ranges,
    with_nulls_counted,
)
from pyhudi.metadata_table.metadata_records import (
    FileFilter,
    MetadataRecords,
    bloom_deletes,
    bloom_records,
    column_stats_deletes,
    expression_records,
)
from pyhudi.metadata_table.reader.index_lookups import find_column_stats, find_expression_partition_stats, find_partition_ranges
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.planning.data_skipping import excluded_by_results, result_texts
from pyhudi.records.column_statistics import ColumnRange, covers, merge_ranges
from pyhudi.records.dotted_columns import field_at
from pyhudi.records.filters.filter_ast import FunctionCall
from pyhudi.records.sql_functions import OPTION_NAMES, IndexExpression, filter_texts
from pyhudi.storage.thread_pool import in_threads
from pyhudi.table.bootstrap_sources import load_bootstrap_sources
from pyhudi.table.table_config import local_zone_name
from pyhudi.table.table_context import TableContext
from pyhudi.tasks.engine_protocol import Engine
from pyhudi.tasks.log_scan import InstantValidity

_IDENTITY = "identity"
_FILTER_KIND, _FILTER_ENTRIES, _FILTER_FPP, _FILTER_MAX_ENTRIES = "filtertype", "numentries", "fpp", "maxentries"
FILTER_OPTIONS = (_FILTER_KIND, _FILTER_ENTRIES, _FILTER_FPP, _FILTER_MAX_ENTRIES)
"""Index options that size its Bloom filters."""

_Files = Sequence[tuple[str, str, int]]
"""(partition path, path, bytes) of files."""


@dataclass(frozen=True, slots=True)
class ExpressionStatsIndex(Index, HasPartitionRanges):
    """A partition `expr_index_<name>`."""

    index: ExpressionIndex
    layout: int = 1

    layouts: ClassVar[tuple[int, ...]] = (1, 2)
    typed_merge: ClassVar[CellMergeRule | None] = TYPED_RESULTS
    partition_type: ClassVar[str] = EXPRESSION_INDEX_PREFIX
    is_defined: ClassVar[bool] = True
    merge: ClassVar[CellMergeRule] = RESULTS

    @classmethod
    def open(cls, partition: str, definition: IndexDefinition | None) -> Self:
        definition, column = single_column_definition(definition, "an expression index")
        options = dict(definition.options)
        function = options.pop("expr", None) or definition.function
        filters = None
        if definition.kind == BLOOM_FILTERS:
            filters = _filter_settings({name: options.pop(name) for name in FILTER_OPTIONS if name in options})
        elif definition.kind != COLUMN_STATS:
            raise Unsupported(f"an expression index of type {definition.kind} is not supported")
        unknown = sorted(set(options) - OPTION_NAMES)
        if unknown:
            raise Unsupported(f"unknown options of an expression index: {', '.join(unknown)}")
        zone = local_zone_name()
        if zone is None:
            raise Unsupported("the system time zone has no name; set the environment variable TZ")
        expression = IndexExpression(function, tuple(sorted(options.items())), zone)
        expression.check_indexable()
        return cls(partition, ExpressionIndex(partition, column, expression, filters), definition.layout)

    @property
    def _typed(self) -> bool:
        return self.layout > 1

    def check_columns(self, schema: pa.Schema) -> None:
        self.result_type(schema)

    def result_type(self, schema: pa.Schema) -> pa.DataType:
        """Return the type of its results. Raises InvalidRequest and Unsupported if they cannot be computed or indexed."""
        type_ = self.index.expression.result_type(field_at(schema, self.index.column).type)
        if self.index.filters is not None:
            filter_texts(pa.array([], type_))
        elif not has_statistics(type_, typed=self._typed):
            raise InvalidRequest(f"values of type {type_} have no ranges in the metadata table")
        return type_

    @classmethod
    def prepare(cls, indexes: Sequence[Self], write: CommitPrepared) -> Mapping[str, tuple[ExpressionStats, ...]]:
        results: tuple[ExpressionStats, ...] = ()
        if write.schema is not None and write.files:
            stored, validity = with_meta_fields(write.schema), write.validity.including(write.time)
            results = _evaluate(write.context, write.engine, indexes, write.files, stored, validity)
        return {index.partition: tuple(result for result in results if result.index == index.partition) for index in indexes}

    def updates_for_commit(self, commit: CommitPublishing) -> IndexUpdate:
        results: tuple[ExpressionStats, ...] = commit.prepared[self.partition]
        if self.index.filters is not None:
            return IndexUpdate(bloom_records(_filters(results), commit.time))
        column = self.index.column
        if commit.data_schema is None:
            return IndexUpdate(expression_records(column, pa.null(), (), {}))
        files = _ranges(results)
        type_ = self.result_type(commit.schema)
        partitions = None
        if commit.context.config.keys.partition_fields:
            merged, missing = self._partition_ranges(commit, {(f.partition, f.name): f.range for f in results}, type_)
            files += missing
            ranges = {p: None if range_ is None else {column: range_} for p, range_ in merged.items()}
            partitions = PartitionStatsUpdate(self, ranges, {column: type_}, self.layout)
        return IndexUpdate(expression_records(column, type_, files, {}, typed=self._typed), partitions=partitions)

    def _partition_ranges(
        self, commit: CommitPublishing, current: Mapping[tuple[str, str], ColumnRange | None], type_: pa.DataType
    ) -> tuple[dict[str, ColumnRange | None], list[tuple[str, str, ColumnRange]]]:
        """Compute the ranges of touched partitions (None for one without files), and ranges of files that are missing
        in the index.

        Args:
            current: Ranges of files that the index does not have yet.
            type_: Type of the results.
        """
        files = commit.latest_files(tuple(commit.file_groups()))
        older_files = {p: [info for info in infos if (p, info.name) not in current] for p, infos in files.items()}
        stored = self._stored_ranges(commit.reader, [p for p, infos in older_files.items() if infos], type_)
        ranges_by_file: dict[tuple[str, str], ColumnRange | None] = dict(current)
        for file_key, range_ in stored.items():
            if has_bounds(range_):
                ranges_by_file.setdefault(file_key, range_)
        unread = [
            (p, info.path, info.size_bytes)
            for p, infos in older_files.items()
            for info in infos
            if (p, info.name) not in ranges_by_file
        ]
        missing = []
        validity = InstantValidity.of(commit.timeline)
        for result_stats in _evaluate(commit.context, None, (self,), unread, commit.schema, validity) if unread else ():
            ranges_by_file[result_stats.partition, result_stats.name] = result_stats.range
            is_new = self.partition in commit.reader.partitions and (result_stats.partition, result_stats.name) not in stored
            if result_stats.range is not None and is_new:
                missing.append((result_stats.partition, result_stats.name, result_stats.range))
        result: dict[str, ColumnRange | None] = {}
        for partition, infos in files.items():
            file_ranges = [file_range for info in infos if (file_range := ranges_by_file[partition, info.name]) is not None]
            result[partition] = merge_ranges(file_ranges) if file_ranges else None
        return result, missing

    def _stored_ranges(
        self, reader: MetadataTable, partitions: Sequence[str], type_: pa.DataType
    ) -> dict[tuple[str, str], ColumnRange]:
        column = self.index.column
        ranges_by_file = stored_ranges(reader, partitions, {column: type_}, self.partition, counts_nulls=False)
        return {file_key: ranges[column] for file_key, ranges in ranges_by_file.items()}

    def updates_for_clean(self, clean: FilesCleaned) -> MetadataRecords:
        if self.index.filters is not None:
            return bloom_deletes(clean.deleted)
        return column_stats_deletes(clean.deleted, (self.index.column,))

    def build(self, state: IndexBuild, time: str, shards: int) -> IndexUpdate:
        results = _evaluate(state.table, state.engine, (self,), state.files(), state.schema, state.validity)
        if self.index.filters is not None:
            return IndexUpdate(bloom_records(_filters(results), time))
        ranges = _ranges(results)
        by_partition: dict[str, list[ColumnRange]] = {}
        for path, _, range_ in ranges if state.table.config.keys.partition_fields else ():
            by_partition.setdefault(path, []).append(range_)
        merged = {path: merge_ranges(parts) for path, parts in by_partition.items()}
        type_ = self.result_type(state.schema)
        return IndexUpdate(expression_records(self.index.column, type_, ranges, merged, typed=self._typed))

    def partition_records(self, update: PartitionStatsUpdate, schema: pa.Schema, *, is_tight: bool) -> MetadataRecords:
        ((column, type_),) = update.types.items()
        of_partitions = {p: None if ranges is None else ranges[column] for p, ranges in update.ranges.items()}
        return expression_records(column, type_, (), of_partitions, is_tight=is_tight, typed=self._typed)

    def partition_rows(self, reader: MetadataTable, columns: Sequence[str]) -> pa.Table:
        return find_expression_partition_stats(reader, self.partition, columns[0])

    def partition_ranges(self, reader: MetadataTable, column: str, type_: pa.DataType) -> dict[str, ColumnRange]:
        return find_partition_ranges(reader, column, type_, self.partition)

    @classmethod
    def pruned_partitions(cls, partition: str, metadata: MetadataTable, row_filter: Filter) -> frozenset[str] | None:
        column_and_call = _find_call(metadata, partition, COLUMN_STATS, row_filter)
        # Floating-point bounds may omit NaN.
        if column_and_call is None or pa.types.is_floating(column_and_call[1].result_type):
            return None
        column, call = column_and_call
        stats = find_expression_partition_stats(metadata, partition, column)
        pruned = excluded_by_results(row_filter.condition, call, column, stats, stats.column("file_name"), of_partitions=True)
        return frozenset(pruned.to_pylist())

    @classmethod
    def pruned_files(
        cls,
        partition: str,
        metadata: MetadataTable,
        row_filter: Filter,
        partitions: Sequence[str],
        indexed_files: Collection[str],
    ) -> PrunedFiles | None:
        results = _find_call(metadata, partition, COLUMN_STATS, row_filter)
        if results is not None:
            column, call = results
            stats = with_nulls_counted(find_column_stats(metadata, [column], partitions, index=partition))
            return PrunedFiles((), excluded_by_results(row_filter.condition, call, column, stats, statistics_units(stats)))
        identity_column = _identity_column(metadata, partition, COLUMN_STATS)
        if (
            identity_column is None
            or identity_column in indexed_files
            or not row_filter.columns_in(metadata.definitions[partition])
        ):
            return None
        stats = find_column_stats(metadata, [identity_column], partitions, index=partition)
        return files_pruned_by_ranges(row_filter, [identity_column], with_nulls_counted(stats))

    @classmethod
    def step(cls, partition: str) -> str:
        return f"index {partition}"

    @classmethod
    def prune_base_files(cls, partition: str, metadata: MetadataTable, row_filter: Filter) -> BaseFilePruner | None:
        results = _find_call(metadata, partition, BLOOM_FILTERS, row_filter)
        column = _identity_column(metadata, partition, BLOOM_FILTERS)
        texts = None
        if results is not None:
            texts = result_texts(row_filter.condition, results[1])
        elif (
            column is not None and column in row_filter.schema.names and pa.types.is_string(row_filter.schema.field(column).type)
        ):
            texts = row_filter.matching_texts(column)
        return None if texts is None else partial(without_texts, metadata, partition, texts)

    def check(self, table: CheckedTable) -> IndexFindings:
        """Compare the index with recomputed results, and the partition ranges with those of their files."""
        result = IndexFindings()
        files = table.files
        computed = _evaluate(table.context, table.engine, (self,), files, table.schema, table.validity)
        result.checked = f"{len(files):,} files"
        if self.index.filters is not None:
            expected_filters = [
                (path, partition, file_result.bloom) for (partition, path, _), file_result in zip(files, computed, strict=True)
            ]
            # Either writer may have created filters of expressions.
            compare_filters(result, table.metadata, self.partition, expected_filters, filter_covers)
            return result
        if not table.comparable([self.index.column]):
            return result
        type_ = self.result_type(table.schema)
        stored = self._stored_ranges(table.metadata, sorted({file_result.partition for file_result in computed}), type_)
        without_range = 0
        by_partition: dict[str, list[ColumnRange]] = {}
        for (_, path, _), file_result in zip(files, computed, strict=True):
            if file_result.range is None:
                continue
            by_partition.setdefault(file_result.partition, []).append(file_result.range)
            stored_range = stored.get((file_result.partition, file_result.name))
            if stored_range is None:
                without_range += 1
            elif not covers(stored_range, file_result.range):
                result.add_error(path, self._describe_mismatch(file_result.range, stored_range))
        if without_range:
            result.add_warning("", f"{self.partition} has no ranges of {without_range} files, which are never pruned")
        if table.context.config.keys.partition_fields:
            stored_partitions = self.partition_ranges(table.metadata, self.index.column, type_)
            for partition, parts in sorted(by_partition.items()):
                compare_partition(result, partition, self.partition, stored_partitions.get(partition), parts)
        return result

    def _describe_mismatch(self, computed: ColumnRange, stored_range: ColumnRange) -> str:
        return (
            f"{self.index.expression.function}({self.index.column}) is {computed.min!r} to {computed.max!r}, "
            f"but {stored_range.min!r} to {stored_range.max!r} in {self.partition}"
        )


def _find_call(metadata: MetadataTable, partition: str, form: str, row_filter: Filter) -> tuple[str, FunctionCall] | None:
    """The column of an index of a type and the filter's call of its function; None for another type and without a call."""
    definition = metadata.definitions.get(partition)
    if definition is None or definition.kind != form or len(definition.source_fields) != 1:
        return None
    try:
        index = ExpressionStatsIndex.open(partition, definition).index
    except (InvalidRequest, Unsupported):
        # Ignore an index of another writer that PyHudi does not understand.
        return None
    call = row_filter.for_expression(index.column, index.expression)
    return None if call is None else (index.column, call)


def _identity_column(metadata: MetadataTable, partition: str, form: str) -> str | None:
    """The column whose own values an index of a type holds; None for another type and for functions other than `identity`."""
    definition = metadata.definitions.get(partition)
    if definition is None or definition.kind != form or len(definition.source_fields) != 1:
        return None
    return definition.source_fields[0] if (definition.option("expr") or definition.function) == _IDENTITY else None


def _evaluate(
    context: TableContext,
    engine: Engine | None,
    indexes: Sequence[ExpressionStatsIndex],
    files: _Files,
    stored: pa.Schema,
    validity: InstantValidity,
) -> tuple[ExpressionStats, ...]:
    """Compute expression index entries of files. stored: the columns with meta columns."""
    spec, expressions, bootstrap_sources = (
        context.storage.spec(),
        tuple(index.index for index in indexes),
        load_bootstrap_sources(context, files),
    )
    tasks = [
        ExpressionTask(spec, tuple(files[start : start + FILES_PER_TASK]), stored, expressions, validity, bootstrap_sources)
        for start in range(0, len(files), FILES_PER_TASK)
    ]
    results = engine.map(run_expressions, tasks) if engine is not None else in_threads(run_expressions, tasks)
    return tuple(index for part in results for index in part)


def _filters(found: Sequence[ExpressionStats]) -> list[FileFilter]:
    return [FileFilter(f.partition, f.name, *f.bloom) for f in found if f.bloom is not None]


def _ranges(found: Sequence[ExpressionStats]) -> list[tuple[str, str, ColumnRange]]:
    return [(f.partition, f.name, f.range) for f in found if f.range is not None]


def _filter_settings(options: dict[str, str]) -> FilterSettings:
    try:
        return FilterSettings(
            BloomKind(options.get(_FILTER_KIND, BloomKind.DYNAMIC_V0.value)),
            int(options.get(_FILTER_ENTRIES, "60000")),
            float(options.get(_FILTER_FPP, "0.000000001")),
            int(options.get(_FILTER_MAX_ENTRIES, "100000")),
        )
    except ValueError as error:
        raise InvalidRequest(f"invalid Bloom filter sizes of an expression index: {error}") from error
