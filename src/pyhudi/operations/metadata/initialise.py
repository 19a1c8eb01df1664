"""Building partitions of the metadata table: all of it for a table that has none, or those that are missing.

    1. what a writer wants and the table has not; what it wants gone goes first
    2. for each partition, in order, under the table's lock: its folder emptied; a seed log for each file group, which fixes
       their number for good; a base file for each group that has records; the delta commit `00000000000000000` + n completed;
       for column statistics the index definition stored; then the table's properties name the partition

`files` says what a listing finds: files of completed instants.  The other partitions are made from the files of the newest
slices: footers, log blocks, and for the record index their keys.  A crash leaves a partition that no property names; it is wiped
and built again by the next write.

Source: storage format, "Metadata table", initialisation of a partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from pyhudi.errors import InvalidRequest
from pyhudi.execute.engine import Engine
from pyhudi.execute.index_values import SecondaryTask, run_secondary, secondary_reader
from pyhudi.execute.indexing import FileIndexing
from pyhudi.execute.log_scan import InstantValidity
from pyhudi.execute.metadata_records import (
    BaseTask,
    FilesToIndex,
    FoundFile,
    KeysOfSlice,
    KeySource,
    KeyTask,
    MetadataFile,
    run_index_files,
    run_key_base,
    run_metadata_base,
    run_slice_keys,
)
from pyhudi.execute.read_slice import ReadSpec
from pyhudi.execute.write_base import WriteStatus
from pyhudi.format.actions.commit import Operation, WriteStat
from pyhudi.format.actions.indexing import IndexPlan
from pyhudi.format.index_definitions import format_index_definitions
from pyhudi.format.instants import INIT_INSTANT_TIME, Action, State, parse_instant_time
from pyhudi.format.meta_columns import with_meta_fields
from pyhudi.format.metadata.partitions import (
    BLOOM_FILTERS,
    COLUMN_STATS,
    FILES,
    PARTITION_STATS,
    RECORD_INDEX,
    PartitionKind,
    encode_first_log,
    parse_partition,
)
from pyhudi.format.names import LogFileName, WriteToken, parse_data_file_instant
from pyhudi.format.paths import INDEX_DEFINITIONS_FILE, SIDE_FOLDER, join_path
from pyhudi.operations.metadata.defined import DefinedIndexes, is_defined, load_defined_indexes, result_type
from pyhudi.operations.metadata.mirror import CommitMirror, columns_to_index, first_columns, store_definition
from pyhudi.operations.metadata.prepare import find_expressions, index_reader, key_sources
from pyhudi.operations.metadata.settings import BUILD_ORDER, RECORD_INDEX_SWITCH, MetadataSettings
from pyhudi.operations.metadata.store import (
    MetadataStore,
    commit_of,
    create_store,
    drop_partitions,
    drop_store,
    group_file_ids,
    in_threads,
    set_partitions,
    store_partition_marker,
)
from pyhudi.plan.metadata import (
    FileFilter,
    FileRanges,
    MetadataRecords,
    bloom_records,
    by_shard,
    column_stats_records,
    expression_records,
    files_records,
    partition_stats_records,
)
from pyhudi.records.mergers import merge_rule
from pyhudi.records.meta_fields import RECORD_KEY
from pyhudi.records.stats import ColumnRange, merge_ranges
from pyhudi.table.context import TableContext
from pyhudi.table.metadata.records import load_index_definitions
from pyhudi.table.slices import FileSlice
from pyhudi.table.snapshot import Snapshot, directory_listing, load_snapshot

_FILES_PER_TASK = 16


def ensure_metadata_table(
    context: TableContext,
    engine: Engine,
    settings: MetadataSettings,
    lock_wait_ms: int,
    data_schema: pa.Schema,
    before: pa.Schema | None,
) -> TableContext:
    """Bring the metadata table to what a writer wants; the table with its properties as they are then.

    data_schema, before: the table's columns after the write that follows, and until now.
    """
    if not _missing(context, settings) and not _unwanted(context, settings):
        return context
    with context.locked(lock_wait_ms) as held:
        held = held.reloaded()
        gone = _unwanted(held, settings)
        if gone:
            held = drop_partitions(held, gone)
        missing = _missing(held, settings)
        if missing:
            held = build_partitions(held, engine, settings, missing, data_schema, before)
        return replace(context, config=held.config)


def drop_for_new_columns(context: TableContext, settings: MetadataSettings, lock_wait_ms: int, before: pa.Schema) -> TableContext:
    """Remove the metadata table of a table whose columns are about to get other types; the next write builds it anew.

    before: the columns until now.  The list of those with statistics goes too, unless somebody chose it.
    """
    with context.locked(lock_wait_ms) as held:
        held = held.reloaded()
        if held.config.metadata_partitions or held.config.metadata_partitions_inflight:
            held = drop_store(held)
        definitions = load_index_definitions(held)
        defined = definitions.get(COLUMN_STATS)
        if defined is not None and set(defined.source_fields) == set(first_columns(held, settings, before)):
            del definitions[COLUMN_STATS]
            held.storage.put(INDEX_DEFINITIONS_FILE, format_index_definitions(definitions.values()))
        return replace(context, config=held.config)


def build_partitions(
    context: TableContext,
    engine: Engine,
    settings: MetadataSettings,
    partitions: Sequence[str],
    data_schema: pa.Schema,
    before: pa.Schema | None,
) -> TableContext:
    """Build partitions of the metadata table, all of it when `files` is among them.  The caller holds the lock."""
    if FILES in partitions:
        store = create_store(drop_store(context) if context.config.metadata_partitions else context)
    else:
        store = MetadataStore.open(context)
        store.undo_pending()
    snapshot = load_snapshot(store.table, directory_listing)
    columns = columns_to_index(context, settings, data_schema, before)
    builder = PartitionBuilder(store, engine, settings, snapshot, columns, with_meta_fields(data_schema))
    for partition in (*(p for p in BUILD_ORDER if p in partitions), *(p for p in partitions if p not in BUILD_ORDER)):
        builder.build(partition)
    return builder.table


def _missing(context: TableContext, settings: MetadataSettings) -> tuple[str, ...]:
    if not settings.enabled:
        return ()
    config = context.config
    there = set(config.metadata_partitions) if config.has_metadata_table else set()
    wanted = set(settings.wanted)
    if not config.keys.partition_fields:
        wanted.discard(PARTITION_STATS)
    if not config.populate_meta_fields:
        wanted.discard(BLOOM_FILTERS)
    building = set(config.metadata_partitions_inflight)
    missing = [p for p in BUILD_ORDER if p in wanted - there - building]
    # A definition without its partition is an index that has to be built, as after the metadata table was dropped.
    defined = [name for name in load_index_definitions(context) if is_defined(name)]
    secondary_needs = RECORD_INDEX in there or RECORD_INDEX in missing
    for name in defined:
        needs_records = parse_partition(name) is PartitionKind.SECONDARY_INDEX
        if needs_records and not secondary_needs and RECORD_INDEX not in building:
            missing.append(RECORD_INDEX)
            secondary_needs = True
    planned = planned_partitions(context) if defined else frozenset()
    return (*missing, *(name for name in defined if name not in there | building | planned))


def _unwanted(context: TableContext, settings: MetadataSettings) -> tuple[str, ...]:
    there = context.config.metadata_partitions
    if not settings.enabled:
        return (FILES,) if there or context.config.metadata_partitions_inflight else ()
    unwanted = tuple(p for p in there if p in settings.unwanted)
    secondary = [name for name in there if parse_partition(name) is PartitionKind.SECONDARY_INDEX]
    if RECORD_INDEX in unwanted and secondary:
        raise InvalidRequest(
            f"{RECORD_INDEX_SWITCH}=false would drop the record index, which {', '.join(secondary)} needs; drop that index first"
        )
    return unwanted


def planned_partitions(context: TableContext) -> frozenset[str]:
    """The partitions that a pending indexing action is going to build."""
    store = context.timeline
    names: set[str] = set()
    for instant in store.load().pending(Action.INDEXING):
        data = store.read_state(instant.request_time, Action.INDEXING, State.REQUESTED)
        for info in (IndexPlan.decode(data).index_partition_infos or ()) if data else ():
            names.add(info.metadata_partition_path or "")
    return frozenset(names)


class PartitionBuilder:
    """Partitions of one metadata table in the making."""

    def __init__(
        self,
        store: MetadataStore,
        engine: Engine,
        settings: MetadataSettings,
        snapshot: Snapshot,
        columns: tuple[str, ...],
        schema: pa.Schema,
    ) -> None:
        self.table = store.table
        self._store = store
        self._engine = engine
        self._settings = settings
        self._snapshot = snapshot
        self._columns = columns
        self._schema = schema
        self._slices: tuple[FileSlice, ...] | None = None
        self._found: dict[FileIndexing, tuple[FoundFile, ...]] = {}

    def unlocked(self, table: TableContext) -> PartitionBuilder:
        """The same work without the lock: `fill` writes files that nobody reads yet.  table: as the caller opened it."""
        table = replace(table, config=self.table.config)
        snapshot = replace(self._snapshot, context=table)
        return PartitionBuilder(MetadataStore.open(table), self._engine, self._settings, snapshot, self._columns, self._schema)

    def build(self, partition: str) -> None:
        """Build one partition and name it in the table's properties."""
        store, storage = self._store, self._store.storage
        storage.delete_folder(partition)
        time = self.free_instant()
        requested = store.context.timeline.request(time, Action.DELTACOMMIT)
        store.context.timeline.start(requested)
        stats = self.fill(partition, self.seed(partition, time), time)
        store.complete(requested, commit_of(stats, "BULK_INSERT"), self._snapshot.timeline)
        if partition in (COLUMN_STATS, PARTITION_STATS):
            self.table = store_definition(self.table, self._columns)
        self.table = set_partitions(self.table, (*self.table.config.metadata_partitions, partition))

    def seed(self, partition: str, time: str) -> list[MetadataFile]:
        """Make the file groups of a partition; the base files that they are to get."""
        storage = self._store.storage
        counted = parse_partition(partition) in (PartitionKind.RECORD_INDEX, PartitionKind.SECONDARY_INDEX)
        count = self._settings.group_count(partition, self._record_count() if counted else 0)
        file_ids = group_file_ids(partition, count)
        storage.make_folder(partition)
        store_partition_marker(storage, partition, time, self.table.env.now_ms())
        for file_id in file_ids:
            first = LogFileName(file_id, time, 1, str(WriteToken(0, 0, 0)))
            storage.put(join_path(partition, first.text), encode_first_log(time))
        return [MetadataFile(storage.spec(), partition, f, time, str(WriteToken(n, 0, 0))) for n, f in enumerate(file_ids)]

    def fill(self, partition: str, files: Sequence[MetadataFile], time: str) -> list[WriteStat]:
        """Write the base files of what the partition says of the snapshot."""
        kind = parse_partition(partition)
        if kind is PartitionKind.RECORD_INDEX:
            return self._index_keys(files, time)
        if kind is PartitionKind.SECONDARY_INDEX:
            return self._index_values(partition, files, time)
        if kind is PartitionKind.EXPRESSION_INDEX:
            return self._write(files, self._expression_records(partition, time))
        return self._write(files, self._records(partition, time))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns with statistics."""
        return self._columns

    def free_instant(self) -> str:
        """The first instant of initialisation that is not taken."""
        timeline = self._store.load()
        taken = {i.request_time for i in timeline.instants}
        taken.update(time for time in timeline.archived_completions if time.startswith(INIT_INSTANT_TIME))
        for partition in self.table.config.metadata_partitions_inflight:
            # An indexing under way puts its instant on the timeline when it has built its files.
            taken.update(parse_data_file_instant(name) or "" for name in self._store.sizes(partition))
        number = 0
        while f"{INIT_INSTANT_TIME}{number:03d}" in taken:
            number += 1
        return f"{INIT_INSTANT_TIME}{number:03d}"

    def _write(self, files: Sequence[MetadataFile], records: MetadataRecords) -> list[WriteStat]:
        pieces = by_shard(records, len(files))
        written = in_threads(run_metadata_base, [BaseTask(files[shard], piece) for shard, piece in pieces.items()])
        return [stat for stat in written if stat is not None]

    def _records(self, partition: str, time: str) -> MetadataRecords:
        if partition == FILES:
            return files_records(self._listed())
        if partition == BLOOM_FILTERS:
            found = self._look(FileIndexing(bloom_filters=True), logs=False)
            filters = [FileFilter(f.partition, f.name, *f.indexed.bloom) for f in found if f.indexed.bloom is not None]
            return bloom_records(filters, time)
        found = self._look(FileIndexing(self._columns), logs=True)
        ranges = [FileRanges(f.partition, f.name, f.indexed.ranges) for f in found if f.indexed.ranges]
        if partition == COLUMN_STATS:
            return column_stats_records(ranges, self._schema)
        by_partition: dict[str, list[FileRanges]] = {}
        for file in ranges:
            by_partition.setdefault(file.partition, []).append(file)
        merged = {
            p: {c: merge_ranges(dict(file.ranges)[c] for file in of_files) for c in self._columns}
            for p, of_files in by_partition.items()
        }
        return partition_stats_records(merged, self._columns, self._schema)

    def _listed(self) -> dict[str, dict[str, int]]:
        """The files of completed instants, partition by partition."""
        timeline = self._snapshot.timeline
        listing = self._snapshot.listing
        listed: dict[str, dict[str, int]] = {}
        for partition, infos in listing.files(listing.partitions()).items():
            files = listed.setdefault(partition, {})
            for info in infos:
                instant = parse_data_file_instant(info.name)
                if instant is not None and info.size_bytes and timeline.is_completed(instant):
                    files[info.name] = info.size_bytes
        return listed

    def _live(self) -> tuple[FileSlice, ...]:
        if self._slices is None:
            self._slices = tuple(s for found in self._snapshot.slices().values() for s in found)
        return self._slices

    def _look(self, indexing: FileIndexing, *, logs: bool) -> tuple[FoundFile, ...]:
        if indexing not in self._found:
            files = [
                (s.partition, file.path, file.size_bytes)
                for s in self._live()
                for file in (*((s.base,) if s.base else ()), *(s.logs if logs else ()))
            ]
            spec, validity = self.table.storage.spec(), InstantValidity.of(self._snapshot.timeline)
            tasks = [
                FilesToIndex(spec, tuple(files[start : start + _FILES_PER_TASK]), self._schema, indexing, validity)
                for start in range(0, len(files), _FILES_PER_TASK)
            ]
            self._found[indexing] = tuple(f for part in self._engine.map(run_index_files, tasks) for f in part)
        return self._found[indexing]

    def _record_count(self) -> int:
        return sum(found.row_count for found in self._look(FileIndexing(), logs=False))

    def _index_keys(self, files: Sequence[MetadataFile], time: str) -> list[WriteStat]:
        sources = keys_of_slices(
            self.table, self._engine, self._snapshot, self._live(), self._schema, time, len(files), deleted=False
        )
        spec = self.table.storage.spec()
        tasks = [KeyTask(file, spec, shard, sources) for shard, file in enumerate(files)] if sources else []
        return self._write_keys(tasks, time)

    def _index_values(self, partition: str, files: Sequence[MetadataFile], time: str) -> list[WriteStat]:
        index = replace(load_defined_indexes(self.table, (partition,)).secondary[0], shards=len(files))
        self._check(DefinedIndexes(secondary=(index,)))
        validity = InstantValidity.of(self._snapshot.timeline)
        reader = secondary_reader(index_reader(self.table, self._schema, validity), (index,))
        tasks = [
            SecondaryTask(reader, validity, None, slice_, (index,), time, f"{slice_.file_id}_{number}")
            for number, slice_ in enumerate(self._live())
        ]
        found = key_sources(path for part in self._engine.map(run_secondary, tasks) for path in part)
        sources = found.get(partition, ())
        spec = self.table.storage.spec()
        return self._write_keys([KeyTask(file, spec, n, sources) for n, file in enumerate(files)] if sources else [], time)

    def _write_keys(self, tasks: Sequence[KeyTask], time: str) -> list[WriteStat]:
        stats = [stat for stat in self._engine.map(run_key_base, tasks) if stat is not None]
        self.table.storage.delete_folder(join_path(SIDE_FOLDER, time))
        return stats

    def _expression_records(self, partition: str, time: str) -> MetadataRecords:
        indexes = load_defined_indexes(self.table, (partition,))
        self._check(indexes)
        index = indexes.expressions[0]
        files = [
            (s.partition, file.path, file.size_bytes) for s in self._live() for file in (*((s.base,) if s.base else ()), *s.logs)
        ]
        validity = InstantValidity.of(self._snapshot.timeline)
        found = find_expressions(self.table, self._engine, indexes, files, self._schema, validity)
        if index.filters is not None:
            return bloom_records([FileFilter(f.partition, f.name, *f.bloom) for f in found if f.bloom is not None], time)
        ranges = [(f.partition, f.name, f.range) for f in found if f.range is not None]
        by_partition: dict[str, list[ColumnRange]] = {}
        for path, _, range_ in ranges if self.table.config.keys.partition_fields else ():
            by_partition.setdefault(path, []).append(range_)
        merged = {path: merge_ranges(parts) for path, parts in by_partition.items()}
        return expression_records(index.column, result_type(index, self._schema), ranges, merged)

    def _check(self, indexes: DefinedIndexes) -> None:
        indexes.check(self._schema)


def keys_of_slices(
    table: TableContext,
    engine: Engine | None,
    snapshot: Snapshot,
    slices: Iterable[FileSlice],
    schema: pa.Schema,
    time: str,
    shard_count: int,
    *,
    deleted: bool,
) -> tuple[KeySource, ...]:
    """Write the keys of slices to side files of an instant.  schema: the table's, with meta columns."""
    keys = table.config.keys
    stored = table.config.populate_meta_fields
    heads = [RECORD_KEY] if stored else [RECORD_KEY, *(name.split(".")[0] for name in keys.record_fields)]
    reader = ReadSpec(
        storage=table.storage.spec(),
        table_schema=schema,
        output=pa.schema([schema.field(name) for name in dict.fromkeys(heads)]),
        condition=None,
        keys=keys,
        rule=merge_rule(table.config.merge),
        validity=InstantValidity.of(snapshot.timeline),
        populate_meta_fields=stored,
    )
    tasks = [KeysOfSlice(reader, slice_, time, shard_count, deleted) for slice_ in slices]
    found = engine.map(run_slice_keys, tasks) if engine is not None else in_threads(run_slice_keys, tasks)
    zone = table.config.zone
    return tuple(
        replace(source, instant_ms=parse_instant_time(task.slice.base_instant, zone))
        for source, task in zip(found, tasks, strict=True)
        if source is not None
    )


def mirror_of(
    context: TableContext,
    engine: Engine | None,
    indexing: FileIndexing | None,
    data_schema: pa.Schema | None,
    statuses: Sequence[WriteStatus],
    snapshot: Snapshot,
    time: str,
    operation: Operation,
    replaced: Mapping[str, Sequence[str]] | None = None,
) -> CommitMirror:
    """The mirror of a write.

    snapshot: on which the write was planned; time: its instant; operation: as its metadata says; replaced: partition ->
    file groups that it replaces, whose keys leave the record index unless the write brings them back.
    """
    left: tuple[KeySource, ...] = ()
    if replaced and indexing is not None and indexing.key_shards and data_schema is not None:
        wanted = {(partition, file_id) for partition, ids in replaced.items() for file_id in ids}
        slices = [s for found in snapshot.slices(list(replaced)).values() for s in found if (s.partition, s.file_id) in wanted]
        left = keys_of_slices(
            context, engine, snapshot, slices, with_meta_fields(data_schema), time, indexing.key_shards, deleted=True
        )
    mirror = CommitMirror(engine, indexing, data_schema, statuses, left, replaced=replaced)
    return mirror.prepare(context, snapshot, time, operation)
