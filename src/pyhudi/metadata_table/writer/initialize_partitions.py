"""Initialization of metadata table partitions: of the whole metadata table, or of missing partitions.
Format: docs/formats/metadata-table.md.

    1. Compare the enabled partitions with the existing ones. Disabled partitions are dropped first.
    2. For each partition, in order, under the table's lock: empty its folder; write a first log file for each file
    group, which fixes their number; write a base file for each group with records; complete the delta commit
    `00000000000000000` + n; for column statistics store the index definition; add the partition to the table's
    properties.

`files` contains what a listing finds of completed instants. The other partitions are built from the files of the newest
slices: footers, log blocks, and for the record index their keys. A crash leaves a partition that no property lists; the
next write deletes and rebuilds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pyarrow as pa

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.format.actions.commit_metadata import WriteStat
from pyhudi.format.actions.index_plan import IndexPlan
from pyhudi.format.index_definitions import record_index_definition
from pyhudi.format.instants import INIT_INSTANT_TIME, Action, State
from pyhudi.format.meta_columns import with_meta_fields
from pyhudi.format.names import WriteToken, parse_data_file_instant
from pyhudi.format.paths import SIDE_FOLDER, join_path
from pyhudi.metadata_table.codecs.metadata_partitions import COLUMN_STATS, FILES, PARTITION_STATS, RECORD_INDEX, grouped
from pyhudi.metadata_table.file_tasks import BaseTask, KeyTask, MetadataFile, run_key_base, run_metadata_base
from pyhudi.metadata_table.indexes import (
    INDEX_TYPES,
    check_computable,
    dependent_partitions,
    in_build_order,
    index_for_partition,
    is_defined,
    open_indexes,
)
from pyhudi.metadata_table.indexes.column_stats_index import columns_to_index, first_columns
from pyhudi.metadata_table.indexes.index_events import IndexBuild
from pyhudi.metadata_table.indexes.metadata_index import Index
from pyhudi.metadata_table.lost_files import check_listing_may_be_dropped, check_no_lost_files
from pyhudi.metadata_table.metadata_records import by_shard
from pyhudi.metadata_table.reader.stored_index_definitions import add_definition, load_index_definitions, put_index_definitions
from pyhudi.metadata_table.writer.metadata_settings import MetadataSettings
from pyhudi.metadata_table.writer.metadata_store import (
    MetadataStore,
    SpilledKeys,
    build_commit_metadata,
    create_store,
    drop_partitions,
    drop_store,
    set_partitions,
    store_partition_marker,
)
from pyhudi.options.index_options import PARTITIONED_SWITCH, RECORD_INDEX_SWITCH
from pyhudi.options.write_options import INDEX_TYPE
from pyhudi.storage.thread_pool import in_threads
from pyhudi.table.snapshot import directory_listing, load_snapshot
from pyhudi.table.table_context import TableContext
from pyhudi.tasks.engine_protocol import Engine


def ensure_metadata_table(
    context: TableContext,
    engine: Engine,
    settings: MetadataSettings,
    lock_wait_ms: int,
    data_schema: pa.Schema,
    before: pa.Schema | None,
) -> TableContext:
    """Create and drop metadata table partitions according to the settings, and return the table with its new
    properties.

    Args:
        engine: Runs tasks.
        settings: The writer's metadata settings.
        lock_wait_ms: Maximum wait for the table's lock.
        data_schema: The table's columns after the write that follows.
        before: The table's columns before that write.
    """
    _check_record_index(context, settings)
    if not _missing(context, settings) and not _unwanted(context, settings):
        return context
    with context.locked(lock_wait_ms) as locked:
        locked = locked.reloaded()
        disabled = _unwanted(locked, settings)
        if disabled:
            if FILES in disabled:
                check_listing_may_be_dropped(locked)
            locked = drop_partitions(locked, disabled)
        missing = _missing(locked, settings)
        if missing:
            if RECORD_INDEX in missing and settings.by_partition is not None and locked.config.version.has_index_versions:
                definition = record_index_definition(by_partition=settings.by_partition)
                locked = add_definition(locked, definition)
            locked = build_partitions(locked, engine, settings, missing, data_schema, before)
        return replace(context, config=locked.config)


def drop_for_new_columns(context: TableContext, settings: MetadataSettings, lock_wait_ms: int, before: pa.Schema) -> TableContext:
    """Drop the metadata table before the types of columns change; the next write rebuilds it.

    Args:
        settings: The writer's metadata settings.
        lock_wait_ms: Maximum wait for the table's lock.
        before: The columns before the change. The list of columns with statistics is dropped too, unless it was
            customized.
    """
    with context.locked(lock_wait_ms) as locked:
        locked = locked.reloaded()
        if locked.config.metadata_partitions or locked.config.metadata_partitions_inflight:
            check_listing_may_be_dropped(locked)
            locked = drop_store(locked)
        definitions = load_index_definitions(locked)
        defined = definitions.get(COLUMN_STATS)
        if defined is not None and set(defined.source_fields) == set(first_columns(locked, settings, before)):
            del definitions[COLUMN_STATS]
            put_index_definitions(locked, definitions.values())
        return replace(context, config=locked.config)


def build_partitions(
    context: TableContext,
    engine: Engine,
    settings: MetadataSettings,
    partitions: Sequence[str],
    data_schema: pa.Schema,
    before: pa.Schema | None,
) -> TableContext:
    """Build partitions of the metadata table; all of it if `files` is among them. The caller holds the lock.

    Columns keep their types before the write: a write that changes them may still be refused, and drops the statistics
    if it is not.

    Raises:
        CorruptData: Committed files are missing or damaged, see `check_no_lost_files`; nothing was changed.
    """
    snapshot = load_snapshot(context, directory_listing)
    check_no_lost_files(snapshot)
    if FILES in partitions:
        store = create_store(drop_store(context) if context.config.metadata_partitions else context)
    else:
        store = MetadataStore.open(context)
        store.roll_back_pending()
    snapshot = replace(snapshot, context=store.table)
    columns = columns_to_index(context, settings, data_schema, before)
    fields_before = {field.name: field for field in before or ()}
    current = pa.schema([fields_before.get(field.name, field) for field in data_schema], data_schema.metadata)
    state = IndexBuild(store.table, engine, snapshot, columns, with_meta_fields(current))
    builder = PartitionBuilder(store, settings, state)
    for partition in in_build_order(partitions):
        builder.build(partition)
    return builder.table


def _missing(context: TableContext, settings: MetadataSettings) -> tuple[str, ...]:
    if not settings.enabled:
        return ()
    config = context.config
    existing = set(config.metadata_partitions) if config.has_metadata_table else set()
    building = set(config.metadata_partitions_inflight)
    enabled = {
        kind.partition_type
        for kind in INDEX_TYPES
        if kind.partition_type in settings.enabled_partitions and kind.refusal(config) is None
    }
    # A definition without its partition is an index to build, as after the metadata table was dropped.
    defined = [name for name in load_index_definitions(context) if is_defined(name)]
    missing = list(in_build_order(enabled - existing - building))
    for name in defined:
        kind = index_for_partition(name)
        required = kind.needs.partition if kind is not None and kind.needs is not None else None
        if required is not None and required not in {*existing, *building, *missing}:
            missing.append(required)
    planned = planned_partitions(context) if defined else frozenset()
    return (*missing, *(name for name in defined if name not in existing | building | planned))


def unrestored_indexes(context: TableContext, dropped: Iterable[str]) -> tuple[str, ...]:
    """Return the dropped partitions that a write with default options does not build again: no definition names them."""
    defined = [name for name in load_index_definitions(context) if is_defined(name)]
    needed = {kind.needs.partition for kind in map(index_for_partition, defined) if kind is not None and kind.needs is not None}
    return tuple(name for name in dropped if name not in {FILES, COLUMN_STATS, PARTITION_STATS, *defined, *needed})


def _unwanted(context: TableContext, settings: MetadataSettings) -> tuple[str, ...]:
    existing = context.config.metadata_partitions
    if not settings.enabled:
        return (FILES,) if existing or context.config.metadata_partitions_inflight else ()
    unwanted = tuple(
        p
        for p in existing
        if p in settings.disabled_partitions and (p != RECORD_INDEX or _by_partition(context) in settings.refused)
    )
    dependent = dependent_partitions(RECORD_INDEX, existing)
    if RECORD_INDEX in unwanted and dependent:
        raise InvalidRequest(
            f"cannot drop the record index ({RECORD_INDEX_SWITCH}=false): {', '.join(dependent)} requires it; "
            "drop that index first"
        )
    return unwanted


def _by_partition(context: TableContext) -> bool:
    """Whether the record index is partitioned."""
    definition = load_index_definitions(context).get(RECORD_INDEX) if context.config.version.has_index_versions else None
    return definition is not None and definition.by_partition


def _check_record_index(context: TableContext, settings: MetadataSettings) -> None:
    """Raise InvalidRequest or Unsupported if the options require a type of record index that the table cannot have."""
    config, uri = context.config, context.storage.uri
    if not settings.enabled or settings.by_partition is None:
        return
    if not config.version.has_index_versions:
        if settings.by_partition:
            raise Unsupported(
                f"a partitioned record index ({PARTITIONED_SWITCH}) is not supported in the table at {uri} of version "
                f"{int(config.version)}; upgrade the table first"
            )
        return
    existing = (*config.metadata_partitions, *config.metadata_partitions_inflight)
    if RECORD_INDEX in existing and _by_partition(context) is not settings.by_partition:
        actual, required = ("partitioned", "global") if not settings.by_partition else ("global", "partitioned")
        raise InvalidRequest(
            f"the record index of the table at {uri} is {actual}, but the options require a {required} one "
            f"({RECORD_INDEX_SWITCH}, {PARTITIONED_SWITCH}, {INDEX_TYPE}); drop it first: Table.index.drop({RECORD_INDEX!r})"
        )


def planned_partitions(context: TableContext) -> frozenset[str]:
    """Return the partitions that a pending indexing action is going to build."""
    store = context.timeline
    names: set[str] = set()
    for instant in store.load().pending(Action.INDEXING):
        data = store.read_state(instant.request_time, Action.INDEXING, State.REQUESTED)
        for info in (IndexPlan.decode(data).index_partition_infos or ()) if data else ():
            names.add(info.metadata_partition_path or "")
    return frozenset(names)


class PartitionBuilder:
    """Builds indexes of one metadata table."""

    def __init__(self, store: MetadataStore, settings: MetadataSettings, state: IndexBuild) -> None:
        self.table = store.table
        self._store = store
        self._settings = settings
        self._state = state
        self._indexes: dict[str, Index] = {}

    def unlocked(self, table: TableContext) -> PartitionBuilder:
        """Return a builder for use without the lock: `fill` writes files that no reader uses yet.

        `table` is the table as the caller opened it.
        """
        table = replace(table, config=self.table.config)
        return PartitionBuilder(MetadataStore.open(table), self._settings, self._state.of(table))

    def build(self, partition: str) -> None:
        """Build one index and add it to the table's properties."""
        store, storage = self._store, self._store.storage
        storage.delete_folder(partition)
        time = self.free_instant()
        requested = store.context.timeline.request(time, Action.DELTACOMMIT)
        store.context.timeline.start(requested)
        stats = self.fill(partition, self.seed(partition, time), time)
        store.complete(requested, build_commit_metadata(stats, "BULK_INSERT"), self._state.snapshot.timeline)
        self.table = self._opened(partition).describe(self.table, self._state.columns)
        self.table = set_partitions(self.table, (*self.table.config.metadata_partitions, partition))

    def seed(self, partition: str, time: str) -> list[MetadataFile]:
        """Create the file groups of an index, and return the base files to write."""
        storage, index = self._store.storage, self._opened(partition)
        groups = index.groups(self._settings, self._state)
        storage.make_folder(partition)
        store_partition_marker(storage, partition, time, self.table.env.now_ms())
        self._store.found(partition, groups, time)
        tokens = (str(WriteToken(number, 0, 0)) for number in range(len(groups)))
        return [
            MetadataFile(storage.spec(), partition, group.file_id, time, token)
            for group, token in zip(groups, tokens, strict=True)
        ]

    def fill(self, partition: str, files: Sequence[MetadataFile], time: str) -> list[WriteStat]:
        """Write the base files of an index for the snapshot."""
        index = self._opened(partition)
        check_computable((index,), self._state.schema)
        update = index.build(self._state, time, len(files))
        written: list[WriteStat | None] = []
        if update.records is not None:
            pieces = by_shard(update.records, len(files))
            written += in_threads(run_metadata_base, [BaseTask(files[shard], piece) for shard, piece in pieces.items()])
        make_records = type(index).key_records
        if make_records is not None:
            keys = SpilledKeys(partition, update.keys, make_records)
            files_by_id = {file.file_id: file for file in files}
            shares = ((files_by_id[group.file_id], *keys.share(group)) for group in grouped(files_by_id))
            spec = self.table.storage.spec()
            tasks = [KeyTask(file, spec, share, sources, make_records) for file, share, sources in shares if sources]
            written += self._state.engine.map(run_key_base, tasks)
            self.table.storage.delete_folder(join_path(SIDE_FOLDER, time))
        return [stat for stat in written if stat is not None]

    def free_instant(self) -> str:
        """Return the first unused initialization instant."""
        timeline = self._store.load()
        used = {i.request_time for i in timeline.instants}
        used.update(time for time in timeline.archived_completions if time.startswith(INIT_INSTANT_TIME))
        for partition in self.table.config.metadata_partitions_inflight:
            # An indexing action in progress adds its instant to the timeline after it has built its files.
            used.update(parse_data_file_instant(name) or "" for name in self._store.sizes(partition))
        number = 0
        while f"{INIT_INSTANT_TIME}{number:03d}" in used:
            number += 1
        return f"{INIT_INSTANT_TIME}{number:03d}"

    def _opened(self, partition: str) -> Index:
        index = self._indexes.get(partition)
        if index is None:
            index = self._indexes[partition] = open_indexes(self.table, (partition,))[0]
        return index
