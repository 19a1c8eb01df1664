"""Statistics of columns in files: the smallest and largest value of each, and counts.

Which columns have statistics stands in the index definitions, in an entry that holds for the statistics of partitions too.  A
commit brings it to the columns that the writer asks for.  Where columns join that the table has had without statistics, the
records of older files lack them, and the real Hudi passes over what lacks them; where a column changes its type, they have bounds
of its former type, at which the real Hudi's queries end.  In both cases both indexes are dropped and built anew.

Source: docs/formats/metadata-table.md.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import ClassVar

import pyarrow as pa

from pyhudi.errors import InvalidRequest
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
from pyhudi.metadata_table.indexes.stored_ranges import have_all, statistics_units, stored_ranges
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

# Which columns the metadata table keeps statistics of.  Source: docs/formats/metadata-table.md, column_stats.
#
#     1. Three meta columns, if the table has them: commit time, partition path, record key.
#     2. The columns of a list, nested ones by dotted name; without a list the first N top-level columns in schema order.
#        N does not count the meta columns, nor columns whose type has no statistics.
#
# No statistics: structs, lists, maps, and in the first layout decimals that 30 digits, 15 of them decimals, cannot hold.  Tables
# that Spark's record merger writes have none of binary and decimal columns either.  (Avro enums have none in Hudi; here they are
# strings, and have.)

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
    """The columns with statistics, in the order in which the index definition lists them.

    schema: the table's, with or without meta columns.  names: the list; empty for none.  Names that the table does not have, or
    whose columns have no statistics, are left out.  with_meta_columns: whether the table populates its meta columns.
    with_binary: false for Spark's record merger.  typed: statistics of the second layout.
    """
    if names:
        chosen = [
            name
            for name in dict.fromkeys(names)
            if name not in META_COLUMNS and _has_statistics(schema, name, with_binary=with_binary, typed=typed)
        ]
    else:
        columns = [field.name for field in schema if field.name not in META_COLUMNS]
        with_statistics = (name for name in columns if _has_statistics(schema, name, with_binary=with_binary, typed=typed))
        chosen = list(islice(with_statistics, max_columns))
    return (*(_META_COLUMNS if with_meta_columns else ()), *chosen)


def _has_statistics(schema: pa.Schema, name: str, *, with_binary: bool, typed: bool) -> bool:
    try:
        column = field_at(schema, name).type
    except InvalidRequest:
        return False
    if not with_binary and (pa.types.is_binary(column) or pa.types.is_fixed_size_binary(column) or pa.types.is_decimal(column)):
        return False
    return has_statistics(column, typed=typed)


_LOG = logging.getLogger("pyhudi.metadata_table.writer")


@dataclass(frozen=True, slots=True)
class ColumnStatsBase(Index):
    """What the statistics of files and those of partitions have in common: the columns, and where these are said."""

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
        said = commit.shared(CommitStatistics)
        ranges = said.of_files
        # While the index is being built, whoever builds it sees to the files that are there: counts of two records add up.
        if PARTITION_STATS in commit.partitions and COLUMN_STATS in commit.context.config.metadata_partitions:
            ranges = [*ranges, *said.of_partitions[1]]
        return IndexUpdate(column_stats_records(ranges, said.schema, typed=statistics_layout(commit.context) > 1))

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

        # Of a state that is kept, filters of the same columns ask for the same.
        question = ("ranges", partition, row_filter.column_types(names), tuple(partitions))
        return PrunedFiles(tuple(names), metadata.cached(question, ranges).excluded(row_filter.condition))

    @classmethod
    def key_ranges(
        cls, partition: str, metadata: MetadataTable, partitions: Sequence[str]
    ) -> Mapping[tuple[str, str], tuple[str, str]] | None:
        definition = metadata.definitions.get(partition)
        if definition is None or RECORD_KEY not in definition.source_fields:
            return None
        stats = find_column_stats(metadata, [RECORD_KEY], partitions)
        paths = {of_path: path for path, of_path in hashes_by_partition(partitions).items()}
        least, known = unwrap(stats.column("min").combine_chunks(), pa.string())
        greatest, known_too = unwrap(stats.column("max").combine_chunks(), pa.string())
        hashed = partition_hashes(stats).to_pylist()
        found: dict[tuple[str, str], tuple[str, str]] = {}
        columns = zip(hashed, stats.column("file_name").to_pylist(), least.to_pylist(), greatest.to_pylist(), strict=True)
        for usable, (of_path, name, low, high) in zip((known & known_too).tolist(), columns, strict=True):
            if usable and low is not None and high is not None and of_path in paths:
                found[paths[of_path], name] = (low, high)
        return found

    def check(self, table: CheckedTable) -> IndexFindings:
        """Ranges of columns in base files against their footers."""
        found = IndexFindings()
        definition = table.definition(COLUMN_STATS)
        if definition is None:
            found.add_error("", "the index definitions have no entry column_stats, so the real Hudi fails on filters")
            return found
        columns = existing_columns(definition, table.schema)
        slices = {slice_.base.path: slice_ for slice_ in table.slices if slice_.base is not None}
        types = {name: field_at(table.schema, name).type for name in columns}
        stored = stored_ranges(table.metadata, table.partitions, types)
        spec = table.context.storage.spec()
        tasks = [FooterTask(spec, path, table.schema, table.columns_under_current_names(path, columns)) for path in table.chosen]
        bare = 0
        for path, inside in zip(table.chosen, table.engine.map(run_footer, tasks), strict=True):
            if isinstance(inside, str):
                continue
            said = stored.get((slices[path].partition, file_name(path)), {})
            bare += not said
            for name, range_ in inside.items():
                if name in said:
                    _compare(found, path, name, said[name], range_)
                elif said:
                    found.add_error(path, f"has statistics, but not of {name}: the real Hudi passes it over")
        if bare:
            found.add_warning("", f"{bare} of {len(table.chosen)} base files have no statistics, and are never passed over")
        found.checked = f"{len(columns)} columns of {len(table.chosen):,} files"
        return found


class CommitStatistics:
    """What the statistics of files and those of partitions have in common, in one commit."""

    def __init__(self, commit: CommitPublishing) -> None:
        self._commit = commit
        self._has_begun = False
        self.removed_columns: tuple[str, ...] = ()
        """The columns that had statistics until now, and have none from this commit on."""
        self._joining: tuple[str, ...] = ()

    def begin(self) -> None:
        """Bring the definition to the columns that were asked for.

        Both indexes are dropped where older files lack some of them, or have bounds of another type than the column is to have.
        """
        commit = self._commit
        if self._has_begun or commit.requirements is None or not commit.requirements.columns or commit.data_schema is None:
            return
        self._has_begun = True
        asked = commit.requirements.columns
        if self._columns_join(asked) or self._types_change() or self._columns_leave():
            commit.drop({COLUMN_STATS, PARTITION_STATS}.intersection(commit.partitions))
        defined = defined_columns(commit.context)
        self.removed_columns = tuple(name for name in defined if name not in asked)
        self._joining = tuple(name for name in asked if name not in defined)
        store_definition(commit.context, asked)

    def _columns_join(self, requested_columns: Sequence[str]) -> bool:
        context = self._commit.context
        defined = load_index_definitions(context).get(COLUMN_STATS)
        if defined is None or set(requested_columns) <= set(defined.source_fields):
            return False
        there = set(self._before.names)
        late = [name for name in requested_columns if name not in defined.source_fields and name.split(".")[0] in there]
        if late:
            _LOG.warning(
                "%s of %s are to have statistics, and older files have none of them; dropped column_stats and partition_stats, "
                "to be built anew by the next write",
                ", ".join(late),
                context.storage.uri,
            )
        return bool(late)

    def _types_change(self) -> bool:
        """Whether a column with statistics is to have bounds of another type than it has had.

        The real Hudi's queries that filter by a column end where they find bounds of its former type, also of a narrower number,
        and it cannot merge these with others.
        """
        context, before = self._commit.context, self._before
        changed = [
            name
            for name in existing_columns(load_index_definitions(context).get(COLUMN_STATS), before)
            if _has_column(self.schema, name)
            and wrapper_for_type(field_at(before, name).type) is not wrapper_for_type(field_at(self.schema, name).type)
        ]
        if changed:
            _LOG.warning(
                "%s of %s changed to another type than the statistics of older files have; dropped column_stats and "
                "partition_stats, to be built anew by the next write",
                ", ".join(changed),
                context.storage.uri,
            )
        return bool(changed)

    def _columns_leave(self) -> bool:
        """Whether a column with statistics is dropped or renamed by its id; they would be those of another that gets its name."""
        context = self._commit.context
        names = existing_columns(load_index_definitions(context).get(COLUMN_STATS), self._before)
        gone = [name for name in names if not _has_column(self.schema, name)]
        if self._commit.operation is not Operation.ALTER_SCHEMA or not gone:
            return False
        _LOG.warning(
            "%s of %s: its statistics stand under its name; dropped column_stats and partition_stats, to be built anew by the "
            "next write",
            ", ".join(gone),
            context.storage.uri,
        )
        return True

    @cached_property
    def _before(self) -> pa.Schema:
        """The table's columns before the commit, with meta columns; none where it had none."""
        context = self._commit.context
        found = load_schema(context.timeline, self._commit.timeline, context.config, by_ids=True, read=self._commit.read)
        return with_meta_fields(found.arrow) if found is not None else pa.schema([])

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns with statistics."""
        return (
            self._commit.requirements.columns if self._commit.requirements is not None else defined_columns(self._commit.context)
        )

    @cached_property
    def schema(self) -> pa.Schema:
        """The table's columns with meta columns; none where the commit has none."""
        return self._commit.schema if self._commit.data_schema is not None else pa.schema([])

    @cached_property
    def of_files(self) -> list[FileRanges]:
        """The ranges of the files that were written."""
        return [
            FileRanges(partition, name, status.indexed.ranges)
            for partition, name, status in self._commit.reported
            if status.indexed is not None and status.indexed.ranges
        ]

    @cached_property
    def of_partitions(self) -> tuple[dict[str, Mapping[str, ColumnRange] | None], list[FileRanges]]:
        """The ranges of the partitions that are touched, and of those where columns come back, None for one without files; and
        those of older files that the statistics of files should have had.
        """
        commit = self._commit
        back = self._partitions_to_join()
        touched = tuple(commit.file_groups())
        if not (touched or back) or not self.columns or commit.data_schema is None:
            return {}, []
        known = {(p, name): dict(status.indexed.ranges) for p, name, status in commit.reported if status.indexed is not None}
        types = {column: field_at(self.schema, column).type for column in self.columns}
        alone = [partition for partition in touched if partition not in back]
        result: dict[str, Mapping[str, ColumnRange] | None] = {**incremental_ranges(commit, alone, types, known)}
        files = commit.latest_files([p for p in dict.fromkeys((*back, *touched)) if p not in result])
        old = {p: [info for info in infos if (p, info.name) not in known] for p, infos in files.items()}
        stored = stored_ranges(commit.reader, [p for p, infos in old.items() if infos], types)
        every: dict[tuple[str, str], Mapping[str, ColumnRange]] = {**stored, **known}
        unread = tuple(
            (p, info.path, info.size_bytes)
            for p, infos in old.items()
            for info in infos
            if not have_all(stored.get((p, info.name)), self.columns)
        )
        added = self._read(unread, stored, every) if unread else []
        for partition, infos in files.items():
            # A log file with nothing but deletes has no ranges, and adds nothing.
            there = [ranges for info in infos if (ranges := every[partition, info.name])]
            result[partition] = {c: merge_ranges(r[c] for r in there) for c in self.columns} if there else None
        return result, added

    def _partitions_to_join(self) -> tuple[str, ...]:
        """The partitions whose files have statistics of columns that join.

        These had statistics before, which a write without the column has ended: statistics of files stay, those of partitions are
        deleted.  A column that is new has none; nor do partitions that nobody has written since, as with the real Hudi.
        """
        commit = self._commit
        if not self._joining or not {COLUMN_STATS, PARTITION_STATS} <= set(commit.partitions):
            return ()
        hashed = set(partition_hashes(find_column_stats(commit.reader, self._joining)).to_pylist())
        paths = hashes_by_partition(find_partitions(commit.reader)) if hashed else {}
        return tuple(path for path, of_path in paths.items() if of_path in hashed)

    def _read(
        self,
        files: tuple[tuple[str, str, int], ...],
        stored: Mapping[tuple[str, str], Mapping[str, ColumnRange]],
        every: dict[tuple[str, str], Mapping[str, ColumnRange]],
    ) -> list[FileRanges]:
        """Put the ranges of files among `every`; those that are not stored.

        Their columns were not asked for when they were written: the columns with statistics have changed.
        """
        commit = self._commit
        asked, validity = FileIndexing(self.columns), InstantValidity.of(commit.timeline)
        added: list[FileRanges] = []
        history = load_column_history(commit.context, commit.timeline, read_commit)
        ids = None if history is None else history.ids
        outside = load_bootstrap_sources(commit.context, files)
        task = IndexFilesTask(commit.context.storage.spec(), files, self.schema, asked, validity, ids, outside)
        for file in run_index_files(task):
            there = stored.get((file.partition, file.name), {})
            every[file.partition, file.name] = dict(file.indexed.ranges)
            fresh = tuple((column, range_) for column, range_ in file.indexed.ranges if column not in there)
            if fresh:
                added.append(FileRanges(file.partition, file.name, fresh))
        return added


def load_file_ranges(state: IndexBuild) -> list[FileRanges]:
    """The ranges of all columns with statistics in the files of a state."""
    found = state.read_files(FileIndexing(state.columns), logs=True)
    return [FileRanges(f.partition, f.name, f.indexed.ranges) for f in found if f.indexed.ranges]


def columns_to_index(
    context: TableContext, settings: MetadataSettings, data_schema: pa.Schema, before: pa.Schema | None
) -> tuple[str, ...]:
    """The columns with statistics, in the order of their definition.

    Those of the options; else those of the table's definition, when somebody chose them: when they are not the first columns that
    the table had until now; else the first columns of the table as it will be.
    """
    first = first_columns(context, settings, data_schema, settings.columns)
    defined = load_index_definitions(context).get(COLUMN_STATS)
    if settings.columns or defined is None or before is None:
        return first
    if set(defined.source_fields) == set(first_columns(context, settings, before)):
        return first
    chosen = [name for name in defined.source_fields if name not in META_COLUMNS]
    return first_columns(context, settings, data_schema, chosen) if chosen else first


def first_columns(
    context: TableContext, settings: MetadataSettings, schema: pa.Schema, names: Sequence[str] = ()
) -> tuple[str, ...]:
    """The columns of a schema that have statistics where nobody chose others; of those in `names`, where there are any."""
    return indexed_columns(
        with_meta_fields(schema),
        max_columns=settings.max_columns,
        names=names,
        with_meta_columns=context.config.populate_meta_fields,
        typed=statistics_layout(context) > 1,
    )


def statistics_layout(context: TableContext) -> int:
    """The layout of the statistics of columns, in files and in partitions: that of their definition, or of a new one."""
    defined = load_index_definitions(context).get(COLUMN_STATS)
    if defined is not None:
        return defined.layout
    return 2 if context.config.version.has_index_versions else 1


def defined_columns(context: TableContext) -> tuple[str, ...]:
    """The columns with statistics, as the index definitions say."""
    defined = load_index_definitions(context).get(COLUMN_STATS)
    return defined.source_fields if defined is not None else ()


def existing_columns(definition: IndexDefinition | None, schema: pa.Schema) -> tuple[str, ...]:
    """The columns of a definition that a table has."""
    return tuple(name for name in definition.source_fields if _has_column(schema, name)) if definition is not None else ()


def store_definition(context: TableContext, columns: Sequence[str]) -> TableContext:
    """Say in the index definitions which columns have statistics, and in the properties where these stand.

    Readers fail on filters of tables that have statistics and no definition.  The caller holds the lock.
    """
    definitions = load_index_definitions(context)
    defined = definitions.get(COLUMN_STATS)
    if defined is None or defined.source_fields != tuple(columns):
        layout = statistics_layout(context) if context.config.version.has_index_versions else None
        made = column_stats_definition(columns, layout)
        definitions[COLUMN_STATS] = made if defined is None else replace(made, options=defined.options, other=defined.other)
        put_index_definitions(context, definitions.values())
    return with_definitions_property(context)


def _has_column(schema: pa.Schema, name: str) -> bool:
    try:
        field_at(schema, name)
    except InvalidRequest:
        return False
    return True


def _compare(found: IndexFindings, path: str, name: str, stored: ColumnRange, inside: ColumnRange) -> None:
    """A range as the index has it against that of the file's footer."""
    if inside.null_count and stored.null_count == 0:
        found.add_error(path, f"{name} has {inside.null_count} nulls, and the statistics say none")
    if inside.min is None or inside.max is None:
        return
    if stored.min is None or stored.max is None:
        found.add_error(path, f"{name} has values, and no bounds in the statistics: real readers lose the file")
    elif stored.min > inside.min or stored.max < inside.max:  # type: ignore[operator]
        what = f"{name} is {inside.min!r} to {inside.max!r}, and the statistics say {stored.min!r} to {stored.max!r}"
        found.add_error(path, what)
