"""What a commit, a clean or a rollback of the table makes its metadata table say, written just before the table says so itself.

    commit     records of its files, of the columns and partitions that it touched, of the keys that came and left, of the values
               that changed
    clean      the deleted files leave `files`, `column_stats`, `bloom_filters` and expression indexes
    rollback   the metadata table's own rollback of the same instant: its log files are deleted

All of it under the table's lock.  What a writing task found out about its files comes with its status (`execute.indexing`); when
the metadata table has changed since the tasks were planned, so that something was not asked for, the commit is a conflict.

The statistics of a partition are those of the files of its newest slices, as they will stand when the commit is there: the files
come from the metadata table, their ranges too, those of the new files from the tasks.  `overlap` says how they stand beside those
of commits whose times overlap.

Source: storage format, "Metadata table", sections partitions, and protocol for a foreign writer.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import Internal, WriteConflict
from pyhudi.execute.engine import Engine
from pyhudi.execute.index_values import ExpressionIndex, FoundExpression
from pyhudi.execute.indexing import FileIndexing
from pyhudi.execute.log_scan import InstantValidity
from pyhudi.execute.metadata_records import FilesToIndex, KeySource, run_index_files
from pyhudi.execute.write_base import WriteStatus
from pyhudi.format.actions.clean import CleanMetadata
from pyhudi.format.actions.commit import CommitMetadata, Operation
from pyhudi.format.actions.rollback import InstantInfo, RollbackMetadata, RollbackPartitionMetadata, RollbackPlan, RollbackRequest
from pyhudi.format.index_definitions import column_stats_definition, format_index_definitions
from pyhudi.format.instants import INIT_INSTANT_TIME, Action, Instant, State, completed_action, parse_instant_time
from pyhudi.format.meta_columns import with_meta_fields
from pyhudi.format.metadata.partitions import BLOOM_FILTERS, COLUMN_STATS, FILES, PARTITION_STATS, RECORD_INDEX
from pyhudi.format.metadata.wrapped import unwrap
from pyhudi.format.names import parse_data_file_instant
from pyhudi.format.paths import INDEX_DEFINITIONS_FILE, SIDE_FOLDER, file_name_of, folder_of, join_path
from pyhudi.operations.action.transaction import Transaction
from pyhudi.operations.metadata.defined import DefinedIndexes, load_defined_indexes, result_type
from pyhudi.operations.metadata.overlap import Overlap, SaidOfPartitions
from pyhudi.operations.metadata.prepare import (
    PreparedIndexes,
    find_expressions,
    prepare_indexes,
    with_shards,
)
from pyhudi.operations.metadata.settings import MetadataSettings
from pyhudi.operations.metadata.store import MetadataStore, drop_partitions, drop_store, maintained_partitions
from pyhudi.plan.metadata import (
    FileFilter,
    FileRanges,
    MetadataRecords,
    bloom_deletes,
    bloom_records,
    column_stats_deletes,
    column_stats_records,
    expression_records,
    files_records,
    joined,
    partition_stats_records,
)
from pyhudi.records.columns import field_at
from pyhudi.records.hashing import name_hash
from pyhudi.records.indexed_columns import indexed_columns
from pyhudi.records.meta_fields import META_COLUMNS
from pyhudi.records.stats import ColumnRange, merge_ranges
from pyhudi.storage.base import FileInfo
from pyhudi.table.config import store_table_config
from pyhudi.table.context import TableContext
from pyhudi.table.metadata.indexes import find_column_stats, find_files, find_partitions, partition_hashes
from pyhudi.table.metadata.records import MetadataTable, load_index_definitions
from pyhudi.table.plans import load_pending_compactions
from pyhudi.table.slices import SlicingState, build_file_groups, visible_slices
from pyhudi.table.snapshot import Snapshot, load_replaced_groups, load_schema, load_snapshot
from pyhudi.timeline.timeline import Timeline

_LOG = logging.getLogger("pyhudi.operations.metadata")


def indexing_of(
    context: TableContext,
    settings: MetadataSettings,
    data_schema: pa.Schema,
    before: pa.Schema | None,
    *,
    keys: bool = True,
) -> FileIndexing | None:
    """What writing tasks are to find out for the table's metadata table; None when it has none.

    data_schema, before: the table's columns after the write and before it.  keys: whether the write can move keys.
    """
    partitions = maintained_partitions(context.config)
    if FILES not in partitions:
        return None
    columns: tuple[str, ...] = ()
    if COLUMN_STATS in partitions or PARTITION_STATS in partitions:
        columns = columns_to_index(context, settings, data_schema, before)
    shards = 0
    if keys and RECORD_INDEX in partitions:
        shards = MetadataStore.open(context).groups.count(RECORD_INDEX)
    return FileIndexing(columns, BLOOM_FILTERS in partitions and context.config.populate_meta_fields, shards)


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
    )


@dataclass(frozen=True, slots=True)
class CommitMirror:
    """The hook of one commit; see `Transaction.commit`.

    indexing: what the tasks were asked for; statuses: what they answered.  data_schema: the table's columns after the commit.
    left_keys: side files of keys that leave the table with the file groups that are replaced.  prepared: what was found out for
    secondary and expression indexes; replaced: partition -> file groups that the commit replaces.
    """

    engine: Engine | None
    indexing: FileIndexing | None
    data_schema: pa.Schema | None
    statuses: Sequence[WriteStatus]
    left_keys: Sequence[KeySource] = ()
    prepared: PreparedIndexes = field(default_factory=PreparedIndexes)
    replaced: Mapping[str, Sequence[str]] | None = None

    def prepare(self, context: TableContext, snapshot: Snapshot, time: str, operation: Operation) -> CommitMirror:
        """The same, having found out what secondary and expression indexes have to be told.  snapshot: before the commit."""
        indexes = load_defined_indexes(context, maintained_partitions(context.config))
        return replace(self, prepared=self._found(context, snapshot, time, operation, indexes))

    def _found(
        self, context: TableContext, snapshot: Snapshot, time: str, operation: Operation, indexes: DefinedIndexes
    ) -> PreparedIndexes:
        return prepare_indexes(
            context, self.engine, indexes, snapshot, self.data_schema, self.statuses, time, operation, self.replaced
        )

    def __call__(self, transaction: Transaction, metadata: CommitMetadata, now: Timeline) -> None:
        """Write the delta commit of the metadata table.  Raises WriteConflict when the tasks were asked for something else."""
        context = transaction.context.reloaded()
        partitions = maintained_partitions(context.config)
        if FILES not in partitions:
            return
        store = MetadataStore.open(context)
        self._check_asked(context, store, partitions, metadata)
        time = transaction.instant_time
        # What a dead attempt of this instant left must not be taken for the state before it.
        store.undo_pending()
        store.undo(time)
        indexes = load_defined_indexes(context, partitions)
        prepared = self._caught_up(context, indexes, time, metadata.operation)
        records: dict[str, MetadataRecords] = {FILES: files_records(_added_files(metadata))}
        stale: tuple[str, ...] = ()
        if self.indexing is not None and self.data_schema is not None and self.indexing.columns:
            if self._columns_join(context, now):
                context = drop_partitions(context, {COLUMN_STATS, PARTITION_STATS}.intersection(partitions))
                partitions, store = maintained_partitions(context.config), MetadataStore.open(context)
            stale = tuple(name for name in _defined_columns(context) if name not in self.indexing.columns)
            store_definition(context, self.indexing.columns)
        if COLUMN_STATS in partitions:
            records[COLUMN_STATS] = column_stats_records(self._ranges(), self._stored())
        metadata_now = store.load()
        done = Instant(time, completed_action(transaction.action), State.COMPLETED, store.next_time(now, metadata_now))
        touched = _Touched(context, metadata, now, done)
        said: list[SaidOfPartitions] = []
        if PARTITION_STATS in partitions:
            of_partitions, found = self._partition_stats(context, touched)
            said.append(of_partitions)
            # While the index is being built, whoever builds it sees to the files that are there: counts of two records add up.
            if found and COLUMN_STATS in context.config.metadata_partitions:
                records[COLUMN_STATS] = column_stats_records([*self._ranges(), *found], self._stored())
        if BLOOM_FILTERS in partitions:
            records[BLOOM_FILTERS] = bloom_records(self._filters(), time)
        for index in indexes.expressions:
            found_here = [one for one in prepared.expressions if one.index == index.partition]
            records[index.partition], more = self._expression_records(context, touched, index, found_here, time)
            said += more
        overlap = Overlap.of(time, now, metadata_now)
        keys = {RECORD_INDEX: self._key_sources(context, time), **prepared.secondary}
        if metadata.operation.changes_rows:
            overlap.check_keys(self.engine, context, touched.reader, done, keys)
        dropped = overlap.drop_clashes(context, touched.reader, said)
        if dropped:
            context = context.reloaded()
            said = [one for one in said if one.index not in dropped]
        schema = self._stored() if self.data_schema is not None else pa.schema([])
        if stale and PARTITION_STATS in partitions:
            # Nobody keeps them true from now on, and the columns may come back.
            records[PARTITION_STATS] = partition_stats_records(dict.fromkeys(find_partitions(touched.reader)), stale, schema)
        for one in said:
            ranges = one.records(schema, is_tight=not overlap.is_awaited)
            records[one.index] = joined(records[one.index], ranges) if one.index in records else ranges
        store.commit(self.engine, time, now, {p: r for p, r in records.items() if p not in dropped}, keys)
        context.storage.delete_folder(join_path(SIDE_FOLDER, time))
        overlap.say_again(context, store, now, done, said, schema)

    def _columns_join(self, context: TableContext, now: Timeline) -> bool:
        """Whether columns get statistics that the table has had without them: those of older files and of other partitions lack
        them, and the real Hudi passes over what lacks them.
        """
        defined = load_index_definitions(context).get(COLUMN_STATS)
        if self.indexing is None or defined is None or set(self.indexing.columns) <= set(defined.source_fields):
            return False
        before = load_schema(context.timeline, now, context.config)
        there = set(with_meta_fields(before.arrow).names) if before is not None else set()
        late = [name for name in self.indexing.columns if name not in defined.source_fields and name.split(".")[0] in there]
        if late:
            _LOG.warning(
                "%s of %s are to have statistics, and older files have none of them; dropped column_stats and partition_stats, "
                "to be built anew by the next write",
                ", ".join(late),
                context.storage.uri,
            )
        return bool(late)

    def _caught_up(self, context: TableContext, indexes: DefinedIndexes, time: str, operation: Operation) -> PreparedIndexes:
        """What is known of the indexes that there are now: some may have come since the commit was prepared, or gone."""
        shards = {index.partition: index.shards for index in with_shards(MetadataStore.open(context), indexes.secondary)}
        known = {name for name in self.prepared.names if self.prepared.shards.get(name) == shards.get(name)}
        late = indexes.only(indexes.names - known)
        if not late.names:
            return self.prepared
        found = self._found(context, load_snapshot(context), time, operation, late)
        return self.prepared.joined(found)

    def _expression_records(
        self, context: TableContext, touched: _Touched, index: ExpressionIndex, found: Sequence[FoundExpression], time: str
    ) -> tuple[MetadataRecords, tuple[SaidOfPartitions, ...]]:
        """The records of files, and what is to be said of partitions."""
        if index.filters is not None:
            filters = [FileFilter(f.partition, f.name, *f.bloom) for f in found if f.bloom is not None]
            return bloom_records(filters, time), ()
        files = [(f.partition, f.name, f.range) for f in found if f.range is not None]
        if self.data_schema is None:
            return expression_records(index.column, pa.null(), (), {}), ()
        kind = result_type(index, self._stored())
        said: tuple[SaidOfPartitions, ...] = ()
        if context.config.keys.partition_fields:
            known = {(f.partition, f.name): f.range for f in found}
            partitions, more = expression_partition_ranges(
                context, touched.reader, touched.files(), known, index, kind, self._stored(), touched.now
            )
            files += more
            ranges = {p: None if range_ is None else {index.column: range_} for p, range_ in partitions.items()}
            said = (SaidOfPartitions(index.partition, ranges, {index.column: kind}),)
        return expression_records(index.column, kind, files, {}), said

    def _check_asked(
        self, context: TableContext, store: MetadataStore, partitions: Sequence[str], metadata: CommitMetadata
    ) -> None:
        asked = self.indexing
        missing = []
        if metadata.partition_to_write_stats:
            if {COLUMN_STATS, PARTITION_STATS}.intersection(partitions) and not (asked and asked.columns):
                missing.append(COLUMN_STATS)
            if BLOOM_FILTERS in partitions and context.config.populate_meta_fields and not (asked and asked.bloom_filters):
                missing.append(BLOOM_FILTERS)
        if RECORD_INDEX in partitions and metadata.operation.moves_keys:
            shards = store.groups.count(RECORD_INDEX)
            if asked is None or asked.key_shards != shards:
                missing.append(RECORD_INDEX)
        if missing:
            raise WriteConflict(
                f"the metadata table of {context.storage.uri} got {', '.join(missing)} while this write was under way; "
                "plan the write again"
            )

    def _stored(self) -> pa.Schema:
        if self.data_schema is None:
            raise Internal("statistics of columns without the columns")
        return with_meta_fields(self.data_schema)

    def _ranges(self) -> list[FileRanges]:
        return [
            FileRanges(status.stat.partition_path or "", _name(status.stat.path), status.indexed.ranges)
            for status in self.statuses
            if status.indexed is not None and status.indexed.ranges
        ]

    def _filters(self) -> list[FileFilter]:
        return [
            FileFilter(status.stat.partition_path or "", _name(status.stat.path), *status.indexed.bloom)
            for status in self.statuses
            if status.indexed is not None and status.indexed.bloom is not None
        ]

    def _key_sources(self, context: TableContext, time: str) -> tuple[KeySource, ...]:
        if self.indexing is None or not self.indexing.key_shards:
            return ()
        instant_ms = parse_instant_time(time, context.config.zone)
        came = [
            KeySource(status.indexed.keys, status.stat.partition_path or "", status.stat.file_id or "", instant_ms)
            for status in self.statuses
            if status.indexed is not None and status.indexed.keys is not None
        ]
        return (*sorted(came, key=lambda source: source.path), *self.left_keys)

    def _partition_stats(self, context: TableContext, touched: _Touched) -> tuple[SaidOfPartitions, list[FileRanges]]:
        """What is to be said of the partitions that are touched, and ranges of old files that column_stats turned out not to
        have.
        """
        columns = self.indexing.columns if self.indexing is not None else _defined_columns(context)
        files = touched.files()
        if not files or not columns or self.data_schema is None:
            return SaidOfPartitions(PARTITION_STATS, {}, {}), []
        known = {
            (status.stat.partition_path or "", _name(status.stat.path)): dict(status.indexed.ranges)
            for status in self.statuses
            if status.indexed is not None
        }
        ranges, found = _ranges_of_partitions(context, touched.reader, files, known, columns, self._stored(), touched.now)
        kinds = {column: field_at(self._stored(), column).type for column in columns}
        return SaidOfPartitions(PARTITION_STATS, ranges, kinds), found


def mirror_clean(context: TableContext, request_time: str, clean: CleanMetadata, now: Timeline) -> None:
    """Take what a clean deleted out of the metadata table.  The caller holds the lock."""
    context = context.reloaded()
    partitions = maintained_partitions(context.config)
    if FILES not in partitions:
        return
    store = MetadataStore.open(context)
    deleted = {partition: entry.delete_path_patterns for partition, entry in clean.partition_metadata.items()}
    gone = [partition for partition, entry in clean.partition_metadata.items() if entry.is_partition_deleted]
    records = {FILES: files_records({}, deleted, gone)}
    if COLUMN_STATS in partitions:
        records[COLUMN_STATS] = column_stats_deletes(deleted, _defined_columns(context))
    for index in load_defined_indexes(context, partitions).expressions:
        if index.filters is None:
            records[index.partition] = column_stats_deletes(deleted, (index.column,))
        else:
            records[index.partition] = bloom_deletes(deleted)
    if BLOOM_FILTERS in partitions:
        bases = {partition: [name for name in names if not name.startswith(".")] for partition, names in deleted.items()}
        records[BLOOM_FILTERS] = bloom_deletes(bases)
    store.commit(None, request_time, now, records)


def mirror_rollback(context: TableContext, request_time: str, target: str, partitions: Iterable[str], now: Timeline) -> None:
    """Roll the delta commit of an instant back, as part of the table's own rollback.  The caller holds the lock.

    request_time: of the rollback; target: of what is rolled back; partitions: those in which it wrote files.  Where the metadata
    table has taken the target up for good, in a base file, it is dropped, and the next write builds it anew; so is a partition
    that was built when the target was there already.
    """
    context = context.reloaded()
    if FILES not in (*context.config.metadata_partitions, *context.config.metadata_partitions_inflight):
        return
    store = MetadataStore.open(context)
    timeline = store.load()
    context.storage.delete_folder(join_path(SIDE_FOLDER, target))
    own = [i for i in timeline.instants if i.step == (target, Action.DELTACOMMIT)]
    if not own:
        if _lists_files_of(MetadataTable(context, now), target, partitions):
            drop_store(context)
        return
    completed = own[0].completion_time
    if completed is not None and any(i.request_time > completed for i in timeline.completed(Action.COMMIT)):
        drop_store(context)
        return
    late = _built_after(store, timeline, completed) if completed is not None else frozenset()
    if late:
        _LOG.warning("rollback of %s drops %s of the metadata table, built with it", target, ", ".join(sorted(late)))
        drop_partitions(context, late)
        if FILES in late:
            return
    _drop_plans(store, timeline)
    _roll_back(store, request_time, target, now)


def store_definition(context: TableContext, columns: Sequence[str]) -> TableContext:
    """Say in the index definitions which columns have statistics, and in the properties where these stand.

    Readers fail on filters of tables that have statistics and no definition.  The caller holds the lock.
    """
    definitions = load_index_definitions(context)
    defined = definitions.get(COLUMN_STATS)
    if defined is None or defined.source_fields != tuple(columns):
        definitions[COLUMN_STATS] = column_stats_definition(columns)
        context.storage.put(INDEX_DEFINITIONS_FILE, format_index_definitions(definitions.values()))
    if context.config.index_definitions_path is None:
        changes = {"hoodie.table.index.defs.path": INDEX_DEFINITIONS_FILE}
        context = replace(context, config=store_table_config(context.storage, changes, context.env))
    return context


def _built_after(store: MetadataStore, timeline: Timeline, completed: str) -> frozenset[str]:
    """The partitions that were built after a time: their first files say what the table was like then."""
    late = {
        i.request_time
        for i in timeline.completed(Action.DELTACOMMIT)
        if i.request_time.startswith(INIT_INSTANT_TIME) and (i.completion_time or "") > completed
    }
    return frozenset(folder_of(path) for time in late for path in store.files_of(time))


def _drop_plans(store: MetadataStore, timeline: Timeline) -> None:
    """Drop compactions of the metadata table that died: they may read log files that are about to go, and are planned anew."""
    for instant in timeline.pending(Action.COMPACTION):
        store.storage.delete(store.files_of(instant.request_time))
        store.context.timeline.remove_pending(instant.request_time, Action.COMPACTION)


def _lists_files_of(reader: MetadataTable, target: str, partitions: Iterable[str]) -> bool:
    names = find_files(reader, partitions).column("name").to_pylist()
    return any(parse_data_file_instant(name) == target for name in names)


def _roll_back(store: MetadataStore, request_time: str, target: str, now: Timeline) -> None:
    timeline = store.context.timeline
    files = store.files_of(target)
    by_partition: dict[str, list[str]] = {}
    for path in files:
        by_partition.setdefault(folder_of(path), []).append(store.storage.absolute(path))
    info = InstantInfo(target, Action.DELTACOMMIT.value)
    plan = RollbackPlan(
        info,
        tuple(RollbackRequest(partition, "", target, tuple(paths)) for partition, paths in sorted(by_partition.items())),
    )
    token = store.table.env.token_bytes
    pending = [i for i in timeline.load_files() if i.request_time == request_time and i.action is Action.ROLLBACK]
    requested = Instant(request_time, Action.ROLLBACK, State.REQUESTED)
    if not pending:
        timeline.request(request_time, Action.ROLLBACK, plan.encode(token(16)))
    timeline.start_or_join(requested)
    begun_ms = store.table.env.now_ms()
    store.undo(target)
    metadata = RollbackMetadata(
        start_rollback_time=request_time,
        time_taken_in_millis=max(0, store.table.env.now_ms() - begun_ms),
        total_files_deleted=len(files),
        commits_rollback=(target,),
        partition_metadata={
            partition: RollbackPartitionMetadata(partition, tuple(paths)) for partition, paths in sorted(by_partition.items())
        },
        instants_rollback=(info,),
    )
    inflight = Instant(request_time, Action.ROLLBACK, State.INFLIGHT)
    if not any(i.is_completed for i in pending):
        timeline.complete(inflight, Action.ROLLBACK, store.next_time(now, store.load()), metadata.encode(token(16)))


def _added_files(metadata: CommitMetadata) -> dict[str, dict[str, int]]:
    """The files of a commit: partition -> bare name -> size in bytes."""
    added: dict[str, dict[str, int]] = {}
    for partition, stats in metadata.partition_to_write_stats.items():
        files = added.setdefault(partition, {})
        for stat in stats:
            files[_name(stat.path)] = stat.file_size_in_bytes
            for path, size_bytes in (stat.cdc_stats or {}).items():
                files[_name(path)] = size_bytes
    return added


def expression_partition_ranges(
    context: TableContext,
    reader: MetadataTable,
    files: Mapping[str, Sequence[FileInfo]],
    known: Mapping[tuple[str, str], ColumnRange | None],
    index: ExpressionIndex,
    kind: pa.DataType,
    schema: pa.Schema,
    now: Timeline,
) -> tuple[dict[str, ColumnRange | None], list[tuple[str, str, ColumnRange]]]:
    """The ranges of an expression index in partitions, None for one without files; and those of files that it should have had.

    files: of the partitions' newest slices; known: ranges of files that the index does not have yet; kind: of the results.
    """
    old = {p: [info for info in infos if (p, info.name) not in known] for p, infos in files.items()}
    of_column = stored_ranges(reader, [p for p, infos in old.items() if infos], {index.column: kind}, index.partition)
    every: dict[tuple[str, str], ColumnRange | None] = dict(known)
    for place, by_column in of_column.items():
        stored = by_column[index.column]
        if stored.min is not None or stored.is_all_null:
            every.setdefault(place, stored)
    unread = tuple((p, info.path, info.size_bytes) for p, infos in old.items() for info in infos if (p, info.name) not in every)
    added = []
    if unread:
        validity = InstantValidity.of(now)
        for one in find_expressions(context, None, DefinedIndexes(expressions=(index,)), unread, schema, validity):
            every[one.partition, one.name] = one.range
            is_new = index.partition in reader.partitions and (one.partition, one.name) not in of_column
            if one.range is not None and is_new:
                added.append((one.partition, one.name, one.range))
    result: dict[str, ColumnRange | None] = {}
    for partition, infos in files.items():
        there = [found for info in infos if (found := every[partition, info.name]) is not None]
        result[partition] = merge_ranges(there) if there else None
    return result, added


class _Touched:
    """The partitions that a commit touches, as they will be once it is there."""

    def __init__(self, context: TableContext, metadata: CommitMetadata, now: Timeline, done: Instant) -> None:
        self.now = now
        self.reader = MetadataTable(context, now)
        self._context = context
        self._metadata = metadata
        self._done = done
        self._files: dict[str, list[FileInfo]] | None = None

    def files(self) -> dict[str, list[FileInfo]]:
        """The files of the newest slices, by partition."""
        if self._files is None:
            replaced = self._metadata.partition_to_replace_file_ids or {}
            names = tuple(dict.fromkeys((*self._metadata.partition_to_write_stats, *replaced)))
            self._files = {}
            if names:
                self._files = _live_files(self._context, self.reader, self._metadata, self.now, self._done, names)
        return self._files


def _live_files(
    context: TableContext,
    reader: MetadataTable,
    metadata: CommitMetadata,
    now: Timeline,
    done: Instant,
    touched: Sequence[str],
) -> dict[str, list[FileInfo]]:
    """The files of the newest slices of some partitions as they will be once `done` stands on the timeline."""
    after = Timeline.of((*now.instants, done), now.archived_completions)
    replaced = load_replaced_groups(context.timeline, now)
    for partition, file_ids in (metadata.partition_to_replace_file_ids or {}).items():
        replaced.update({(partition, file_id): done.request_time for file_id in file_ids})
    state = SlicingState(after, replaced, load_pending_compactions(context.timeline, after))
    listed: dict[str, dict[str, int]] = {partition: {} for partition in touched}
    rows = find_files(reader, touched)
    for partition, name, size_bytes in zip(*(rows.column(i).to_pylist() for i in range(3)), strict=True):
        listed[partition][name] = size_bytes
    for partition, files in _added_files(metadata).items():
        listed[partition].update(files)
    found: dict[str, list[FileInfo]] = {}
    for partition, sizes in listed.items():
        infos = [FileInfo(join_path(partition, name), size, 0) for name, size in sizes.items()]
        slices = visible_slices(build_file_groups(partition, infos, state), state)
        live = {file.path for s in slices for file in (*((s.base,) if s.base else ()), *s.logs)}
        found[partition] = [info for info in infos if info.path in live]
    return found


def _ranges_of_partitions(
    context: TableContext,
    reader: MetadataTable,
    files: Mapping[str, Sequence[FileInfo]],
    known: Mapping[tuple[str, str], Mapping[str, ColumnRange]],
    columns: Sequence[str],
    schema: pa.Schema,
    now: Timeline,
) -> tuple[dict[str, Mapping[str, ColumnRange] | None], list[FileRanges]]:
    """The ranges of partitions, None for one without files; and those of files that the metadata table should have had.

    known: of files that the metadata table does not have yet.
    """
    old = {p: [info for info in infos if (p, info.name) not in known] for p, infos in files.items()}
    kinds = {column: field_at(schema, column).type for column in columns}
    stored = stored_ranges(reader, [p for p, infos in old.items() if infos], kinds)
    every: dict[tuple[str, str], Mapping[str, ColumnRange]] = {**stored, **known}
    unread = tuple(
        (p, info.path, info.size_bytes)
        for p, infos in old.items()
        for info in infos
        if not _is_complete(stored.get((p, info.name)), columns)
    )
    added: list[FileRanges] = []
    if unread:
        # Their columns were not asked for when they were written: the columns with statistics have changed.
        task = FilesToIndex(context.storage.spec(), unread, schema, FileIndexing(tuple(columns)), InstantValidity.of(now))
        for file in run_index_files(task):
            there = stored.get((file.partition, file.name), {})
            every[file.partition, file.name] = dict(file.indexed.ranges)
            fresh = tuple((column, range_) for column, range_ in file.indexed.ranges if column not in there)
            if fresh:
                added.append(FileRanges(file.partition, file.name, fresh))
    result: dict[str, Mapping[str, ColumnRange] | None] = {}
    for partition, infos in files.items():
        # A log file with nothing but deletes has no ranges, and adds nothing.
        of_files = [ranges for info in infos if (ranges := every[partition, info.name])]
        result[partition] = {c: merge_ranges(r[c] for r in of_files) for c in columns} if of_files else None
    return result, added


def _is_complete(ranges: Mapping[str, ColumnRange] | None, columns: Iterable[str]) -> bool:
    return ranges is not None and all(
        column in ranges and (ranges[column].min is not None or ranges[column].is_all_null) for column in columns
    )


def stored_ranges(
    reader: MetadataTable, partitions: Sequence[str], kinds: Mapping[str, pa.DataType], index: str = COLUMN_STATS
) -> dict[tuple[str, str], dict[str, ColumnRange]]:
    """What an index of ranges has of the files of some partitions: (partition, name) -> column -> range.

    kinds: the columns, with the type of their values or, in an expression index, of the results.
    """
    found: dict[tuple[str, str], dict[str, ColumnRange]] = {}
    if not partitions or index not in reader.partitions:
        return found
    rows = find_column_stats(reader, list(kinds), partitions, index=index)
    rows = rows.append_column("partition_hash", partition_hashes(rows))
    partition_of = {name_hash(partition): partition for partition in partitions}
    for column, kind in kinds.items():
        part = rows.filter(pc.equal(rows.column("column_name"), column)).combine_chunks()
        if not part.num_rows:
            continue
        if index != COLUMN_STATS:
            # Expression indexes count values without nulls.
            at = part.schema.get_field_index("value_count")
            part = part.set_column(at, part.schema.field(at), pc.add(part["value_count"], part["null_count"]))
        low, low_known = unwrap(part.column("min").combine_chunks(), kind)
        high, high_known = unwrap(part.column("max").combine_chunks(), kind)
        usable = low_known & high_known
        figures = zip(
            part.column("partition_hash").to_pylist(),
            part.column("file_name").to_pylist(),
            _stored_values(low),
            _stored_values(high),
            *(part.column(name).to_pylist() for name in _FIGURES),
            usable.tolist(),
            strict=True,
        )
        for hashed, name, least, greatest, values, nulls, size, unpacked, is_usable in figures:
            partition = partition_of.get(hashed)
            if partition is None:
                continue
            if not is_usable or (least is None) != (greatest is None):
                # It is there and says nothing of use: the file will be read, and the record left alone.
                least = greatest = nulls = None
            range_ = ColumnRange(least, greatest, nulls, values, size or 0, unpacked or 0)
            found.setdefault((partition, name), {})[column] = range_
    return found


_FIGURES = ("value_count", "null_count", "total_size_bytes", "total_uncompressed_size_bytes")


def _stored_values(bounds: pa.Array) -> list[object]:
    """Bounds in stored form, see `records.stats`."""
    if pa.types.is_timestamp(bounds.type) or pa.types.is_time64(bounds.type):
        bounds = bounds.view(pa.int64())
    elif pa.types.is_date32(bounds.type):
        bounds = bounds.view(pa.int32())
    values: list[object] = bounds.to_pylist()
    return values


def _defined_columns(context: TableContext) -> tuple[str, ...]:
    defined = load_index_definitions(context).get(COLUMN_STATS)
    return defined.source_fields if defined is not None else ()


def _name(path: str | None) -> str:
    return file_name_of(path or "")
