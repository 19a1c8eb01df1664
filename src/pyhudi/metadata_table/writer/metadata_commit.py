"""Effect of a commit, clean, rollback or restore of the table on its metadata table, applied just before the table's
own instant completes. Format: docs/formats/metadata-table.md.

    commit     each index adds its updates
    clean      each index with file entries removes the deleted files
    rollback   the metadata table's own rollback of the same instant: its log files are deleted
    restore    partitions that may be incorrect afterwards are dropped: all of them

All of it happens under the table's lock. Write tasks return indexing data of their files with their status
(`tasks.file_stats`). If the metadata table has changed since the tasks were planned, so that required data is missing,
the commit is a conflict. The index types in `metadata_table.indexes` compute the updates; `overlapping_commits`
reconciles them with commits whose times overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from pyhudi.errors import HudiError, IndexStarted, get_logger
from pyhudi.format.actions.clean_metadata import CleanMetadata
from pyhudi.format.actions.commit_metadata import Operation
from pyhudi.format.actions.rollback_metadata import (
    InstantInfo,
    RollbackMetadata,
    RollbackPartitionMetadata,
    RollbackPlan,
    RollbackRequest,
)
from pyhudi.format.instants import INIT_INSTANT_TIME, Action, Instant, State, completed_action
from pyhudi.format.meta_columns import with_meta_fields
from pyhudi.format.names import is_log_file, parse_data_file_instant
from pyhudi.format.paths import SIDE_FOLDER, file_name, join_path, parent_folder
from pyhudi.metadata_table.codecs.metadata_partitions import COLUMN_STATS, FILES, PARTITION_STATS
from pyhudi.metadata_table.indexes import index_for_partition, maintained_partitions, open_indexes, prepare_all
from pyhudi.metadata_table.indexes.index_events import CommitPrepared, CommitPublishing, FilesCleaned, WriteStarted
from pyhudi.metadata_table.indexes.metadata_index import Index, IndexUpdate
from pyhudi.metadata_table.indexes.stored_ranges import retains_partitions
from pyhudi.metadata_table.metadata_records import MetadataRecords, merge_records
from pyhudi.metadata_table.reader.index_lookups import find_files
from pyhudi.metadata_table.reader.metadata_listing import DAMAGE, MetadataListing, retained_metadata_table
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.metadata_table.writer.metadata_settings import MetadataSettings
from pyhudi.metadata_table.writer.metadata_store import DeltaCommit, MetadataStore, SpilledKeys, drop_partitions, drop_store
from pyhudi.metadata_table.writer.overlapping_commits import ConcurrentCommits
from pyhudi.metadata_table.writer.sole_writer import SoleWriter, load_sole_writer
from pyhudi.operations.commit.planned_commit import LockedCommit
from pyhudi.table.snapshot import Snapshot, load_snapshot
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.tasks.engine_protocol import Engine
from pyhudi.tasks.file_stats import FileIndexing
from pyhudi.tasks.write_tasks import WriteStatus

_LOG = get_logger("pyhudi.metadata_table.writer")


def indexing_requirements(
    context: TableContext,
    settings: MetadataSettings,
    data_schema: pa.Schema,
    before: pa.Schema | None,
    *,
    keys: bool = True,
) -> FileIndexing | None:
    """Return what write tasks must collect for the table's metadata table; None if it has none.

    Args:
        settings: The writer's metadata settings.
        data_schema: The table's columns after the write.
        before: The table's columns before the write.
        keys: The write may change the location of record keys.
    """
    if FILES not in maintained_partitions(context.config):
        return None
    write = WriteStarted(context, settings, data_schema, before, keys)
    requirements = FileIndexing()
    for index in open_indexes(context):
        requirements = index.requirements(requirements, write)
    return requirements


def prepare_metadata_commit(
    context: TableContext,
    engine: Engine | None,
    indexing: FileIndexing | None,
    data_schema: pa.Schema | None,
    statuses: Sequence[WriteStatus],
    snapshot: Snapshot,
    *,
    time: str,
    operation: Operation,
    replaced: Mapping[str, Sequence[str]] | None = None,
    retains_keys: bool = False,
) -> MetadataCommit:
    """Return the metadata commit of a commit whose files are written, after loading what the indexes need before the
    lock.

    Args:
        engine: Runs tasks; None for threads of this process.
        indexing: What the write tasks had to collect.
        data_schema: The table's columns after the commit.
        statuses: Results of the write tasks.
        snapshot: The snapshot that the commit was planned on.
        time: Instant of the commit.
        operation: Operation in the commit metadata.
        replaced: Replaced file groups by partition.
        retains_keys: The caller removes the side files.
    """
    earlier = _prefetch_planned(snapshot, statuses)
    sole_writer = None if earlier is None else _load_sole_writer(earlier, snapshot.timeline)
    metadata_commit = MetadataCommit(
        engine,
        indexing,
        data_schema,
        statuses,
        replaced or {},
        retains_keys=retains_keys,
        earlier=earlier,
        sole_writer=sole_writer,
    )
    return replace(
        metadata_commit,
        prepared=prepare_all(open_indexes(context), metadata_commit.planned(context, lambda: snapshot, time, operation)),
    )


def _prefetch_planned(snapshot: Snapshot, statuses: Sequence[WriteStatus]) -> MetadataTable | None:
    """The metadata table that a write was planned with, after prefetching what its commit reads under the lock."""
    listing = snapshot.listing
    earlier = listing.metadata if isinstance(listing, MetadataListing) else None
    if not isinstance(listing, MetadataListing) or earlier is None:
        return None
    if {COLUMN_STATS, PARTITION_STATS} <= set(earlier.partitions):
        # Partition statistics are updated incrementally, or computed from those of the remaining files.
        paths = {status.stat.partition_path or "" for status in statuses}
        cached = listing.cached_groups(paths)
        has_others = cached is not None and not cached <= {status.stat.file_id for status in statuses}
        needs_older = cached and not cached <= {status.stat.file_id for status in statuses if not status.stat.log_files}
        if needs_older and (has_others or not retains_partitions(earlier.data_context, paths)):
            earlier.warm(COLUMN_STATS)
        if has_others:
            earlier.warm(PARTITION_STATS)
    return earlier


def _load_sole_writer(earlier: MetadataTable, timeline: Timeline) -> SoleWriter | None:
    """The sole-writer state in a metadata table, if readable without the lock: archival may remove files between two reads."""
    with suppress(HudiError):
        if PARTITION_STATS in earlier.partitions:
            return load_sole_writer(earlier.context.timeline, earlier.timeline, timeline)
    return None


@dataclass(frozen=True, slots=True)
class MetadataCommit:
    """Metadata table part of one commit; the hook of `PlannedCommit.metadata_commit`.

    Attributes:
        engine: Runs tasks; None for threads of this process.
        indexing: What the write tasks had to collect.
        data_schema: The table's columns after the commit.
        statuses: Results of the write tasks.
        replaced: Replaced file groups by partition.
        prepared: Data loaded before the lock, by index.
        retains_keys: The caller removes the side files.
        earlier: The metadata table as read before the lock.
        sole_writer: The sole-writer state read before the lock.
    """

    engine: Engine | None
    indexing: FileIndexing | None
    data_schema: pa.Schema | None
    statuses: Sequence[WriteStatus]
    replaced: Mapping[str, Sequence[str]] = field(default_factory=dict)
    prepared: Mapping[str, Any] = field(default_factory=dict)
    retains_keys: bool = False
    earlier: MetadataTable | None = None
    sole_writer: SoleWriter | None = None

    def planned(self, context: TableContext, load: Callable[[], Snapshot], time: str, operation: Operation) -> CommitPrepared:
        """Return the commit as input of `Index.prepare`. `load` loads the table before it."""
        return CommitPrepared(
            context, self.engine, load, self.data_schema, self.indexing, self.statuses, time, operation, self.replaced
        )

    def __call__(self, locked: LockedCommit) -> Timeline | None:
        """Write the delta commit of the metadata table; see `MetadataHook`.

        Raises:
            IndexStarted: The tasks did not collect what an index needs.
        """
        context, time, current_timeline = locked.context.reloaded(), locked.instant_time, locked.timeline
        partitions = maintained_partitions(context.config)
        if FILES not in partitions:
            return None
        commit = CommitPublishing(
            MetadataStore.open(context, self.earlier),
            partitions,
            locked.metadata,
            current_timeline,
            time,
            requirements=self.indexing,
            data_schema=self.data_schema,
            statuses=self.statuses,
        )
        commit.read, commit.earlier = locked.commits.read, self.earlier
        indexes = open_indexes(context)
        _check_requirements(indexes, commit)
        attempt = commit.store.begin(time)
        commit.store = attempt.store
        commit.begins_on(attempt.timeline)
        if PARTITION_STATS in partitions:
            commit.sole_writer = load_sole_writer(
                commit.store.context.timeline, attempt.timeline, current_timeline, self.sole_writer
            )
        planned = self.planned(context, partial(load_snapshot, context), time, commit.operation)
        commit.prepared = prepare_all(indexes, planned, commit.store, self.prepared)
        for index in indexes:
            index.begin(commit)
        store = commit.store
        commit.completes_as(
            Instant(time, completed_action(locked.action), State.COMPLETED, store.next_time(current_timeline, attempt.timeline))
        )
        updates = {index: index.updates_for_commit(commit) for index in indexes if index.partition in commit.partitions}
        return self._write(commit, replace(attempt, store=store), updates)

    def _write(self, commit: CommitPublishing, attempt: DeltaCommit, updates: Mapping[Index, IndexUpdate]) -> Timeline | None:
        """Write the index updates, reconciled with overlapping commits."""
        overlap = ConcurrentCommits.of(commit.time, commit.timeline, attempt.timeline)
        keys = [
            SpilledKeys(index.partition, update.keys, make, update.sections)
            for index, update in updates.items()
            if (make := type(index).key_records) is not None
        ]
        if commit.operation.changes_rows:
            overlap.check_keys(self.engine, commit.context, commit.reader, commit.completed_instant, keys)
        ranges = [update.partitions for update in updates.values() if update.partitions is not None]
        dropped = overlap.drop_clashes(commit.context, commit.reader, ranges)
        if dropped:
            commit.context = commit.context.reloaded()
        schema = pa.schema([]) if self.data_schema is None else with_meta_fields(self.data_schema)
        records: dict[str, MetadataRecords] = {}
        for index, update in updates.items():
            if index.partition not in dropped:
                parts = [] if update.records is None else [update.records]
                if update.partitions is not None:
                    parts.append(update.partitions.records(schema, is_tight=not overlap.has_older_pending))
                if parts:
                    records[index.partition] = parts[0] if len(parts) == 1 else merge_records(*parts)
        is_sole_writer = not dropped and not overlap.has_newer_completed and _covers_touched_partitions(commit, updates)
        since = (commit.sole_writer.since or commit.completed_instant.completion_time) if is_sole_writer else None
        timeline = attempt.write(self.engine, commit.timeline, records, keys, since)
        if not self.retains_keys and (keys or (self.indexing is not None and self.indexing.key_shards)):
            # Side files of an index that was dropped concurrently are removed by the next compaction of the metadata
            # table.
            commit.context.storage.delete_folder(join_path(SIDE_FOLDER, commit.time))
        remaining = [update for update in ranges if update.index.partition not in dropped]
        overlap.rewrite_overwritten_stats(
            commit.context, attempt.store, commit.timeline, commit.completed_instant, remaining, schema
        )
        return None if overlap.has_newer_completed else timeline


def _covers_touched_partitions(commit: CommitPublishing, updates: Mapping[Index, IndexUpdate]) -> bool:
    """Whether the partition statistics cover all partitions that the commit touches."""
    ranges = [
        update.partitions.ranges for index, update in updates.items() if index.partition == PARTITION_STATS and update.partitions
    ]
    return bool(ranges) and set(commit.file_groups()) <= set(ranges[0])


def _check_requirements(indexes: Iterable[Index], commit: CommitPublishing) -> None:
    missing = [index.partition for index in indexes if not index.requirements_met(commit)]
    if missing:
        raise IndexStarted(
            f"index {', '.join(missing)} was created in the metadata table of {commit.context.storage.uri} during this write; "
            "plan the write again"
        )


def apply_clean_to_metadata(
    context: TableContext, request_time: str, clean: CleanMetadata, current_timeline: Timeline
) -> Timeline | None:
    """Remove the files that a clean deleted from the metadata table.

    The caller holds the lock, and has loaded the properties in ``context`` under it.

    Returns:
        The metadata table's timeline with the clean; None if there is no metadata table.
    """
    if FILES not in maintained_partitions(context.config):
        return None
    store = MetadataStore.open(context, retained_metadata_table(context))
    cleaned = FilesCleaned(
        context,
        {partition: entry.delete_path_patterns for partition, entry in clean.partition_metadata.items()},
        [partition for partition, entry in clean.partition_metadata.items() if entry.is_partition_deleted],
    )
    deletes = {index.partition: index.updates_for_clean(cleaned) for index in open_indexes(context)}
    records = {partition: records_ for partition, records_ in deletes.items() if records_ is not None}
    return store.begin(request_time).write(None, current_timeline, records)


def apply_rollback_to_metadata(
    context: TableContext,
    request_time: str,
    target: str,
    deleted: Mapping[str, Iterable[str]],
    current_timeline: Timeline,
    *,
    logs: bool = True,
) -> None:
    """Roll back the delta commit of an instant, as part of the table's own rollback. The caller holds the lock.

    The metadata table is dropped, and rebuilt by the next write, if a compaction has merged the target into a base
    file. A partition is dropped if it was built while the target, or one of its files, existed.

    Args:
        request_time: Instant of the rollback.
        target: Instant that is rolled back.
        deleted: Partition -> paths of its deleted files.
        current_timeline: The table's timeline.
        logs: False if log files with the target's time in their name belong to other instants.
    """
    context = context.reloaded()
    if FILES not in (*context.config.metadata_partitions, *context.config.metadata_partitions_inflight):
        return
    store = MetadataStore.open(context)
    timeline = store.load()
    context.storage.delete_folder(join_path(SIDE_FOLDER, target))
    target_instants = [i for i in timeline.instants if i.step == (target, Action.DELTACOMMIT)]
    if not target_instants:
        _drop_if_listed(context, target, deleted, current_timeline, logs=logs)
        return
    completed = target_instants[0].completion_time
    if completed is not None and any(i.request_time > completed for i in timeline.completed(Action.COMMIT)):
        drop_store(context)
        return
    built_later = _built_after(store, timeline, completed) if completed is not None else frozenset()
    remaining = (*context.config.metadata_partitions, *context.config.metadata_partitions_inflight, *built_later)
    dropped = {partition for partition in remaining if not _survives_rollback(partition, built_since=partition in built_later)}
    if dropped:
        _LOG.warning(
            "rollback of %s drops %s of the metadata table: they were built while it existed", target, ", ".join(sorted(dropped))
        )
        drop_partitions(context, dropped)
        if FILES in dropped:
            return
    _drop_plans(store, timeline)
    _roll_back(store, request_time, target, current_timeline)


def remove_uncommitted_from_metadata(
    context: TableContext, target: str, deleted: Mapping[str, Iterable[str]], current_timeline: Timeline
) -> bool:
    """Remove what the metadata table may have of an instant without a delta commit. Arguments as `apply_rollback_to_metadata`.

    Returns:
        False, with no effect, if it has a delta commit of the instant, which only a rollback removes.
    """
    context = context.reloaded()
    if FILES not in (*context.config.metadata_partitions, *context.config.metadata_partitions_inflight):
        return True
    if any(i.step == (target, Action.DELTACOMMIT) for i in MetadataStore.open(context).load().instants):
        return False
    context.storage.delete_folder(join_path(SIDE_FOLDER, target))
    _drop_if_listed(context, target, deleted, current_timeline)
    return True


def apply_restore_to_metadata(context: TableContext) -> tuple[str, ...]:
    """Drop the metadata table before a restore; the next write rebuilds it. The caller holds the lock.

    Returns:
        The dropped partitions.
    """
    context = context.reloaded()
    existing = (*context.config.metadata_partitions, *context.config.metadata_partitions_inflight)
    dropped = [
        partition for partition in existing if (kind := index_for_partition(partition)) is None or not kind.survives_restore()
    ]
    if dropped:
        drop_partitions(context, dropped)
    return tuple(sorted(dropped))


def _built_after(store: MetadataStore, timeline: Timeline, completed: str) -> frozenset[str]:
    """The partitions that were built after a time: their first files reflect the table at that time."""
    init_instants = {
        i.request_time
        for i in timeline.completed(Action.DELTACOMMIT)
        if i.request_time.startswith(INIT_INSTANT_TIME) and (i.completion_time or "") > completed
    }
    return frozenset(parent_folder(path) for time in init_instants for path in store.files_of_instant(time))


def _survives_rollback(partition: str, *, built_since: bool) -> bool:
    """Whether an index is still correct after a rollback; an unknown index is correct if it is older."""
    kind = index_for_partition(partition)
    return not built_since if kind is None else kind.survives_rollback(built_since=built_since)


def _drop_plans(store: MetadataStore, timeline: Timeline) -> None:
    """Drop interrupted compactions of the metadata table: they may read log files that are about to be deleted."""
    for instant in timeline.pending(Action.COMPACTION):
        store.storage.delete(store.files_of_instant(instant.request_time))
        store.context.timeline.remove_pending(instant.request_time, Action.COMPACTION)


def _drop_if_listed(
    context: TableContext,
    target: str,
    deleted: Mapping[str, Iterable[str]],
    current_timeline: Timeline,
    *,
    logs: bool = True,
) -> None:
    """Drop a metadata table that was built from a listing with files of an instant that is rolled back."""
    try:
        is_listed = _lists_files_of(MetadataTable(context, current_timeline), target, deleted, logs=logs)
    except DAMAGE as error:
        # It stays as it is: no reader uses such a listing, and a rebuild needs the list of its indexes.
        _LOG.warning("rollback of %s leaves the metadata table, which cannot be read: %s", target, error)
        return
    if is_listed:
        drop_store(context)


def _lists_files_of(reader: MetadataTable, target: str, deleted: Mapping[str, Iterable[str]], *, logs: bool) -> bool:
    # Files that a write copied for a resize carry the resize's instant.
    deleted_names = {partition: frozenset(map(file_name, paths)) for partition, paths in deleted.items()}
    files = find_files(reader, deleted)
    return any(
        name in deleted_names[partition] or (parse_data_file_instant(name) == target and (logs or not is_log_file(name)))
        for partition, name in zip(files.column("partition").to_pylist(), files.column("name").to_pylist(), strict=True)
    )


def _roll_back(store: MetadataStore, request_time: str, target: str, current_timeline: Timeline) -> None:
    timeline = store.context.timeline
    files = store.files_of_instant(target)
    by_partition: dict[str, list[str]] = {}
    for path in files:
        by_partition.setdefault(parent_folder(path), []).append(store.storage.absolute(path))
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
    store.roll_back(target)
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
        timeline.complete(inflight, Action.ROLLBACK, store.next_time(current_timeline, store.load()), metadata.encode(token(16)))
