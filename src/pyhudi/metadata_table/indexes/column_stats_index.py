"""Column statistics index: minimum, maximum and counts of columns per file.
Format: docs/formats/metadata-table.md.

The index definitions list the columns with statistics, in one entry shared with the partition statistics. A commit
updates this entry to the columns that the writer requests. Both indexes are dropped and rebuilt in two cases, because
Hudi would skip files or fail: when an existing column is added to the list (older files lack its statistics), and when
an indexed column changes its type (older bounds have the former type).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import ClassVar

import pyarrow as pa

from pyhudi.errors import InvalidRequest, get_logger
from pyhudi.format.actions.commit_metadata import Operation
from pyhudi.format.index_definitions import IndexDefinition, column_stats_definition
from pyhudi.format.meta_columns import COMMIT_TIME, META_COLUMNS, PARTITION_PATH, RECORD_KEY, with_meta_fields
from pyhudi.format.paths import file_name
from pyhudi.metadata_table.codecs.metadata_partitions import COLUMN_STATS, PARTITION_STATS
from pyhudi.metadata_table.codecs.value_wrappers import has_statistics, unwrap, wrapper_for_type
from pyhudi.metadata_table.file_group_merge import FILE_STATISTICS, TYPED_FILE_STATISTICS, CellMergeRule
from pyhudi.metadata_table.file_tasks import IndexFilesTask, run_index_files
from pyhudi.metadata_table.indexes.index_events import CommitPublishing, FilesCleaned, IndexBuild, WriteStarted
from pyhudi.metadata_table.indexes.index_pruning import Filter, PrunedFiles
from pyhudi.metadata_table.indexes.index_validation import CheckedTable, FooterTask, IndexFindings, run_footer
from pyhudi.metadata_table.indexes.metadata_index import Index, IndexUpdate
from pyhudi.metadata_table.indexes.partition_stats_delta import incremental_ranges
from pyhudi.metadata_table.indexes.stored_ranges import (
    have_all,
    retain_ranges,
    retained_ranges,
    statistics_units,
    stored_ranges,
)
from pyhudi.metadata_table.metadata_records import FileRanges, MetadataRecords, column_stats_deletes, column_stats_records
from pyhudi.metadata_table.reader.index_lookups import find_column_stats, find_partitions, hashes_by_partition, partition_hashes
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.metadata_table.reader.stored_index_definitions import (
    load_index_definitions,
    put_index_definitions,
    with_definitions_property,
)
from pyhudi.metadata_table.writer.metadata_settings import MetadataSettings
from pyhudi.planning.data_skipping import UnitRanges, unit_ranges
from pyhudi.records.column_statistics import ColumnRange, merge_ranges
from pyhudi.records.dotted_columns import field_at
from pyhudi.table.bootstrap_sources import load_bootstrap_sources
from pyhudi.table.cached_property import cached_property
from pyhudi.table.schema_on_read_history import load_column_history
from pyhudi.table.snapshot import load_schema, read_commit
from pyhudi.table.table_context import TableContext
from pyhudi.tasks.file_stats import FileIndexing
from pyhudi.tasks.log_scan import InstantValidity

# Columns that have statistics in the metadata table. Format: docs/formats/metadata-table.md, column_stats.
#
#     1. Three meta columns, if the table has them: commit time, partition path, record key.
#     2. The columns of a list, nested ones by dotted name; without a list the first N top-level columns in schema
#     order.
#        N counts neither meta columns nor columns whose type has no statistics.
#
# Types without statistics: structs, lists, maps, and in layout 1 decimals that do not fit 30 digits with 15 decimals.
# Tables of Spark's record merger have none of binary and decimal columns either. (Hudi has none of Avro enums. PyHudi
# reads enums as strings, which have statistics.)

_META_COLUMNS = (COMMIT_TIME, PARTITION_PATH, RECORD_KEY)


def indexed_columns(
    schema: pa.Schema,
    *,
    max_columns: int = 32,
    names: Sequence[str] = (),
    with_meta_columns: bool = True,
    with_binary: bool = True,
    typed: bool = False,
) -> tuple[str, ...]:
    """Return the columns with statistics, in the order of the index definition.

    Args:
        schema: The table's, with or without meta columns.
        max_columns: Limit of the number of columns without a list.
        names: The list; empty for none. Unknown columns and those without statistics are omitted.
        with_meta_columns: The table populates its meta columns.
        with_binary: False for Spark's record merger.
        typed: Use layout 2.
    """
    if names:
        selected = [
            name
            for name in dict.fromkeys(names)
            if name not in META_COLUMNS and _has_statistics(schema, name, with_binary=with_binary, typed=typed)
        ]
    else:
        columns = [field.name for field in schema if field.name not in META_COLUMNS]
        with_statistics = (name for name in columns if _has_statistics(schema, name, with_binary=with_binary, typed=typed))
        selected = list(islice(with_statistics, max_columns))
    return (*(_META_COLUMNS if with_meta_columns else ()), *selected)


def _has_statistics(schema: pa.Schema, name: str, *, with_binary: bool, typed: bool) -> bool:
    try:
        column = field_at(schema, name).type
    except InvalidRequest:
        return False
    if not with_binary and (pa.types.is_binary(column) or pa.types.is_fixed_size_binary(column) or pa.types.is_decimal(column)):
        return False
    return has_statistics(column, typed=typed)


_LOG = get_logger("pyhudi.metadata_table.writer")


@dataclass(frozen=True, slots=True)
class ColumnStatsBase(Index):
    """Common part of column and partition statistics: the list of columns and its definition."""

    def requirements(self, requirements: FileIndexing, write: WriteStarted) -> FileIndexing:
        if requirements.columns:
            return requirements
        return replace(requirements, columns=columns_to_index(write.context, write.settings, write.data_schema, write.before))

    def requirements_met(self, commit: CommitPublishing) -> bool:
        return not commit.metadata.partition_to_write_stats or bool(
            commit.requirements is not None and commit.requirements.columns
        )

    def begin(self, commit: CommitPublishing) -> None:
        commit.shared(CommitStatistics).begin()

    def describe(self, table: TableContext, columns: Sequence[str]) -> TableContext:
        return store_definition(table, columns)


@dataclass(frozen=True, slots=True)
class ColumnStatsIndex(ColumnStatsBase):
    """The partition `column_stats`."""

    partition_type: ClassVar[str] = COLUMN_STATS
    layouts: ClassVar[tuple[int, ...]] = (1, 2)
    merge: ClassVar[CellMergeRule] = FILE_STATISTICS
    typed_merge: ClassVar[CellMergeRule | None] = TYPED_FILE_STATISTICS

    def updates_for_commit(self, commit: CommitPublishing) -> IndexUpdate:
        statistics = commit.shared(CommitStatistics)
        ranges = statistics.of_files
        # During a build, the builder adds statistics of existing files. Adding them here too would double the counts.
        if PARTITION_STATS in commit.partitions and COLUMN_STATS in commit.context.config.metadata_partitions:
            ranges = [*ranges, *statistics.of_partitions[1]]
        return IndexUpdate(column_stats_records(ranges, statistics.schema, typed=statistics_layout(commit.context) > 1))

    def updates_for_clean(self, clean: FilesCleaned) -> MetadataRecords:
        return column_stats_deletes(clean.deleted, defined_columns(clean.context))

    def build(self, state: IndexBuild, time: str, shards: int) -> IndexUpdate:
        typed = statistics_layout(state.table) > 1
        return IndexUpdate(column_stats_records(load_file_ranges(state), state.schema, typed=typed))

    @classmethod
    def pruned_files(
        cls,
        partition: str,
        metadata: MetadataTable,
        row_filter: Filter,
        partitions: Sequence[str],
        indexed_files: Collection[str],
    ) -> PrunedFiles | None:
        names = row_filter.columns_in(metadata.definitions.get(partition))
        if not names:
            return None

        def ranges() -> UnitRanges:
            stats = find_column_stats(metadata, names, partitions, index=partition)
            return unit_ranges(row_filter.schema, names, stats, statistics_units(stats))

        # In a cached snapshot, filters on the same columns share this request.
        request = ("ranges", partition, row_filter.column_types(names), tuple(partitions))
        return PrunedFiles(tuple(names), metadata.cached(request, ranges).excluded(row_filter.condition))

    @classmethod
    def key_ranges(
        cls, partition: str, metadata: MetadataTable, partitions: Sequence[str]
    ) -> Mapping[tuple[str, str], tuple[str, str]] | None:
        definition = metadata.definitions.get(partition)
        if definition is None or RECORD_KEY not in definition.source_fields:
            return None
        stats = find_column_stats(metadata, [RECORD_KEY], partitions)
        paths = {path_hash: path for path, path_hash in hashes_by_partition(partitions).items()}
        least, min_known = unwrap(stats.column("min").combine_chunks(), pa.string())
        greatest, max_known = unwrap(stats.column("max").combine_chunks(), pa.string())
        hashed = partition_hashes(stats).to_pylist()
        key_ranges: dict[tuple[str, str], tuple[str, str]] = {}
        columns = zip(hashed, stats.column("file_name").to_pylist(), least.to_pylist(), greatest.to_pylist(), strict=True)
        for usable, (path_hash, name, low, high) in zip((min_known & max_known).tolist(), columns, strict=True):
            if usable and low is not None and high is not None and path_hash in paths:
                key_ranges[paths[path_hash], name] = (low, high)
        return key_ranges

    def check(self, table: CheckedTable) -> IndexFindings:
        """Compare the column ranges of base files with their footers."""
        findings = IndexFindings()
        definition = table.definition(COLUMN_STATS)
        if definition is None:
            findings.add_error("", "the index definitions have no entry column_stats, so filters fail in Hudi")
            return findings
        columns = table.comparable(existing_columns(definition, table.schema))
        slices = {slice_.base.path: slice_ for slice_ in table.slices if slice_.base is not None}
        types = {name: field_at(table.schema, name).type for name in columns}
        stored = stored_ranges(table.metadata, table.partitions, types)
        spec = table.context.storage.spec()
        tasks = [FooterTask(spec, path, table.schema, table.columns_under_current_names(path, columns)) for path in table.chosen]
        without_stats = 0
        for path, footer in zip(table.chosen, table.engine.map(run_footer, tasks), strict=True):
            if isinstance(footer, str):
                continue
            stored_columns = stored.get((slices[path].partition, file_name(path)), {})
            without_stats += not stored_columns
            for name, range_ in footer.items():
                if name in stored_columns:
                    _compare(findings, path, name, stored_columns[name], range_)
                elif stored_columns:
                    findings.add_error(path, f"has statistics, but none for {name}: Hudi skips this file")
        if without_stats:
            findings.add_warning("", f"{without_stats} of {len(table.chosen)} base files have no statistics and are never pruned")
        findings.checked = f"{len(columns)} columns of {len(table.chosen):,} files"
        return findings


class CommitStatistics:
    """Statistics of one commit, shared by the column and the partition statistics index."""

    def __init__(self, commit: CommitPublishing) -> None:
        self._commit = commit
        self._has_begun = False
        self.removed_columns: tuple[str, ...] = ()
        """The columns whose statistics end with this commit."""
        self._joining: tuple[str, ...] = ()

    def begin(self) -> None:
        """Update the definition to the requested columns.

        Drops both indexes if older files lack some of the columns, or have bounds of another type.
        """
        commit = self._commit
        if self._has_begun or commit.requirements is None or not commit.requirements.columns or commit.data_schema is None:
            return
        self._has_begun = True
        requested = commit.requirements.columns
        if self._adds_existing_columns(requested) or self._changes_types() or self._removes_columns():
            commit.drop({COLUMN_STATS, PARTITION_STATS}.intersection(commit.partitions))
        defined = defined_columns(commit.context)
        self.removed_columns = tuple(name for name in defined if name not in requested)
        self._joining = tuple(name for name in requested if name not in defined)
        store_definition(commit.context, requested)

    def _adds_existing_columns(self, requested_columns: Sequence[str]) -> bool:
        context = self._commit.context
        defined = load_index_definitions(context).get(COLUMN_STATS)
        if defined is None or set(requested_columns) <= set(defined.source_fields):
            return False
        existing = set(self._before.names)
        added = [name for name in requested_columns if name not in defined.source_fields and name.split(".")[0] in existing]
        if added:
            _LOG.warning(
                "dropped column_stats and partition_stats of the metadata table: %s of %s are added to the statistics, but "
                "older files have none for them; the next write rebuilds both",
                ", ".join(added),
                context.storage.uri,
            )
        return bool(added)

    def _changes_types(self) -> bool:
        """Return True if a column with statistics gets bounds of another type."""
        # Hudi's queries that filter by a column fail on bounds of its former type, even of a narrower number, and it cannot merge
        # them.
        context, before = self._commit.context, self._before
        changed = [
            name
            for name in existing_columns(load_index_definitions(context).get(COLUMN_STATS), before)
            if _has_column(self.schema, name)
            and wrapper_for_type(field_at(before, name).type) is not wrapper_for_type(field_at(self.schema, name).type)
        ]
        if changed:
            _LOG.warning(
                "dropped column_stats and partition_stats of the metadata table: %s of %s changed to a type other than that "
                "of older statistics; the next write rebuilds both",
                ", ".join(changed),
                context.storage.uri,
            )
        return bool(changed)

    def _removes_columns(self) -> bool:
        """True if a column with statistics is dropped or renamed by id: a later one of that name would inherit them."""
        context = self._commit.context
        names = existing_columns(load_index_definitions(context).get(COLUMN_STATS), self._before)
        removed = [name for name in names if not _has_column(self.schema, name)]
        if self._commit.operation is not Operation.ALTER_SCHEMA or not removed:
            return False
        _LOG.warning(
            "dropped column_stats and partition_stats of the metadata table: %s of %s was dropped or renamed, and its "
            "statistics are stored under its old name; the next write rebuilds both",
            ", ".join(removed),
            context.storage.uri,
        )
        return True

    @cached_property
    def _before(self) -> pa.Schema:
        """The table's columns before the commit, with meta columns; empty if it had none."""
        context = self._commit.context
        schema = load_schema(context.timeline, self._commit.timeline, context.config, by_ids=True, read=self._commit.read)
        return with_meta_fields(schema.arrow) if schema is not None else pa.schema([])

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns with statistics."""
        return (
            self._commit.requirements.columns if self._commit.requirements is not None else defined_columns(self._commit.context)
        )

    @cached_property
    def schema(self) -> pa.Schema:
        """The table's columns with meta columns; empty if the commit has none."""
        return self._commit.schema if self._commit.data_schema is not None else pa.schema([])

    @cached_property
    def of_files(self) -> list[FileRanges]:
        """The ranges of the written files."""
        return [
            FileRanges(partition, name, status.indexed.ranges)
            for partition, name, status in self._commit.reported
            if status.indexed is not None and status.indexed.ranges
        ]

    @cached_property
    def of_partitions(self) -> tuple[dict[str, Mapping[str, ColumnRange] | None], list[FileRanges]]:
        """The ranges of touched partitions and of partitions with re-added columns (None for one without files), and
        ranges of older files that are missing in the file statistics.
        """
        commit = self._commit
        readded = self._partitions_with_readded_columns()
        touched = tuple(commit.file_groups())
        if not (touched or readded) or not self.columns or commit.data_schema is None:
            return {}, []
        own_ranges = {(p, name): dict(status.indexed.ranges) for p, name, status in commit.reported if status.indexed is not None}
        types = {column: field_at(self.schema, column).type for column in self.columns}
        remaining = [partition for partition in touched if partition not in readded]
        result: dict[str, Mapping[str, ColumnRange] | None] = {**incremental_ranges(commit, remaining, types, own_ranges)}
        files = commit.latest_files([p for p in dict.fromkeys((*readded, *touched)) if p not in result])
        older_files = {p: [info for info in infos if (p, info.name) not in own_ranges] for p, infos in files.items()}
        retained = retained_ranges(commit.context, older_files, types)
        to_load = [p for p, infos in older_files.items() if any((p, info.name) not in retained for info in infos)]
        stored = {**retained, **stored_ranges(commit.reader, to_load, types)}
        ranges_by_file: dict[tuple[str, str], Mapping[str, ColumnRange]] = {**stored, **own_ranges}
        unread = tuple(
            (p, info.path, info.size_bytes)
            for p, infos in older_files.items()
            for info in infos
            if not have_all(stored.get((p, info.name)), self.columns)
        )
        missing_ranges = self._read(unread, stored, ranges_by_file) if unread else []
        if not missing_ranges:
            newest = {p: {info.name: ranges_by_file[p, info.name] for info in infos} for p, infos in files.items()}
            retain_ranges(commit.context, types, newest)
        for partition, infos in files.items():
            # A log file that holds only deletes has no ranges, and adds nothing.
            file_ranges = [ranges for info in infos if (ranges := ranges_by_file[partition, info.name])]
            result[partition] = {c: merge_ranges(r[c] for r in file_ranges) for c in self.columns} if file_ranges else None
        return result, missing_ranges

    def _partitions_with_readded_columns(self) -> tuple[str, ...]:
        """The partitions whose files have statistics of re-added columns."""
        # A write without the column ended its statistics: file statistics stay, partition statistics are deleted. A new column
        # has none, nor do partitions that were not written since, as in Hudi.
        commit = self._commit
        if not self._joining or not {COLUMN_STATS, PARTITION_STATS} <= set(commit.partitions):
            return ()
        indexed_hashes = set(partition_hashes(find_column_stats(commit.reader, self._joining)).to_pylist())
        paths = hashes_by_partition(find_partitions(commit.reader)) if indexed_hashes else {}
        return tuple(path for path, path_hash in paths.items() if path_hash in indexed_hashes)

    def _read(
        self,
        files: tuple[tuple[str, str, int], ...],
        stored: Mapping[tuple[str, str], Mapping[str, ColumnRange]],
        every: dict[tuple[str, str], Mapping[str, ColumnRange]],
    ) -> list[FileRanges]:
        """Read the ranges of files into `every`, and return those missing in the index."""
        # The tasks that wrote these files did not collect them: the columns with statistics have changed.
        commit = self._commit
        requested, validity = FileIndexing(self.columns), InstantValidity.of(commit.timeline)
        added: list[FileRanges] = []
        history = load_column_history(commit.context, commit.timeline, read_commit)
        ids = None if history is None else history.ids
        bootstrap_sources = load_bootstrap_sources(commit.context, files)
        task = IndexFilesTask(commit.context.storage.spec(), files, self.schema, requested, validity, ids, bootstrap_sources)
        for file in run_index_files(task):
            stored_columns = stored.get((file.partition, file.name), {})
            every[file.partition, file.name] = dict(file.indexed.ranges)
            missing = tuple((column, range_) for column, range_ in file.indexed.ranges if column not in stored_columns)
            if missing:
                added.append(FileRanges(file.partition, file.name, missing))
        return added


def load_file_ranges(state: IndexBuild) -> list[FileRanges]:
    """Read the ranges of all columns with statistics in the files of a snapshot."""
    indexed_files = state.read_files(FileIndexing(state.columns), logs=True)
    return [FileRanges(f.partition, f.name, f.indexed.ranges) for f in indexed_files if f.indexed.ranges]


def columns_to_index(
    context: TableContext, settings: MetadataSettings, data_schema: pa.Schema, before: pa.Schema | None
) -> tuple[str, ...]:
    """Return the columns with statistics, in definition order.

    The options decide. Without them, the table's definition decides if it was customized, which means that it differs
    from the first columns of the table before the write. Otherwise the first columns of the table after the write are
    used.
    """
    default_columns = first_columns(context, settings, data_schema, settings.columns)
    defined = load_index_definitions(context).get(COLUMN_STATS)
    if settings.columns or defined is None or before is None:
        return default_columns
    if set(defined.source_fields) == set(first_columns(context, settings, before)):
        return default_columns
    customized = [name for name in defined.source_fields if name not in META_COLUMNS]
    return first_columns(context, settings, data_schema, customized) if customized else default_columns


def first_columns(
    context: TableContext, settings: MetadataSettings, schema: pa.Schema, names: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the default columns of a schema with statistics, restricted to `names` if not empty."""
    return indexed_columns(
        with_meta_fields(schema),
        max_columns=settings.max_columns,
        names=names,
        with_meta_columns=context.config.populate_meta_fields,
        typed=statistics_layout(context) > 1,
    )


def statistics_layout(context: TableContext) -> int:
    """Return the layout of file and partition statistics: that of their definition, or of a new one."""
    defined = load_index_definitions(context).get(COLUMN_STATS)
    if defined is not None:
        return defined.layout
    return 2 if context.config.version.has_index_versions else 1


def defined_columns(context: TableContext) -> tuple[str, ...]:
    """Return the columns with statistics in the index definitions."""
    defined = load_index_definitions(context).get(COLUMN_STATS)
    return defined.source_fields if defined is not None else ()


def existing_columns(definition: IndexDefinition | None, schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns of a definition that the table has."""
    return tuple(name for name in definition.source_fields if _has_column(schema, name)) if definition is not None else ()


def store_definition(context: TableContext, columns: Sequence[str]) -> TableContext:
    """Store the columns with statistics in the index definitions, and the path of the definitions in the properties.

    Readers fail on filters of tables that have statistics and no definition. The caller holds the lock.
    """
    definitions = load_index_definitions(context)
    defined = definitions.get(COLUMN_STATS)
    if defined is None or defined.source_fields != tuple(columns):
        layout = statistics_layout(context) if context.config.version.has_index_versions else None
        definition = column_stats_definition(columns, layout)
        definitions[COLUMN_STATS] = (
            definition if defined is None else replace(definition, options=defined.options, other=defined.other)
        )
        put_index_definitions(context, definitions.values())
    return with_definitions_property(context)


def _has_column(schema: pa.Schema, name: str) -> bool:
    try:
        field_at(schema, name)
    except InvalidRequest:
        return False
    return True


def _compare(found: IndexFindings, path: str, name: str, stored: ColumnRange, inside: ColumnRange) -> None:
    """Compare a range in the index with that in the file's footer."""
    if inside.null_count and stored.null_count == 0:
        found.add_error(path, f"{name} has {inside.null_count} nulls, but none in the statistics")
    if inside.min is None or inside.max is None:
        return
    if stored.min is None or stored.max is None:
        found.add_error(path, f"{name} has values, but no bounds in the statistics: Hudi skips this file")
    elif stored.min > inside.min or stored.max < inside.max:  # type: ignore[operator]
        message = f"{name} is {inside.min!r} to {inside.max!r}, but {stored.min!r} to {stored.max!r} in the statistics"
        found.add_error(path, message)
