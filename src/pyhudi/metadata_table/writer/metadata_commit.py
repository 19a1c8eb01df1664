"""What a commit, a clean, a rollback or a restore of the table makes its metadata table say, just before the table says so.

    commit     what each index says of it
    clean      each index that speaks of files removes what was deleted
    rollback   the metadata table's own rollback of the same instant: its log files are deleted
    restore    what cannot be right any more is dropped: all of it

All of it under the table's lock.  What a writing task found out about its files comes with its status (`tasks.file_stats`); when
the metadata table has changed since the tasks were planned, so that something was not asked for, the commit is a conflict.
What the kinds of indexes have to say stands in `kinds`; `overlap` says how that stands beside what commits say whose times
overlap.

Source: docs/formats/metadata-table.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from pyhudi.errors import HudiError, IndexStarted
from pyhudi.format.actions.clean_metadata import CleanMetadata
from pyhudi.format.actions.commit_metadata import CommitMetadata, Operation
from pyhudi.format.actions.rollback_metadata import (
    InstantInfo,
    RollbackMetadata,
    RollbackPartitionMetadata,
    RollbackPlan,
    RollbackRequest,
)
from pyhudi.format.instants import INIT_INSTANT_TIME, Action, Instant, State, completed_action
from pyhudi.format.meta_columns import with_meta_fields
from pyhudi.format.names import parse_data_file_instant
from pyhudi.format.paths import SIDE_FOLDER, file_name, join_path, parent_folder
from pyhudi.metadata_table.codecs.metadata_partitions import COLUMN_STATS, FILES, PARTITION_STATS
from pyhudi.metadata_table.indexes import index_for_partition, maintained_partitions, open_indexes, prepare_all
from pyhudi.metadata_table.indexes.index_events import CommitPrepared, CommitPublishing, FilesCleaned, WriteStarted
from pyhudi.metadata_table.indexes.metadata_index import Index, IndexUpdate
from pyhudi.metadata_table.metadata_records import MetadataRecords, join_tables
from pyhudi.metadata_table.reader.index_lookups import find_files
from pyhudi.metadata_table.reader.metadata_listing import MetadataListing
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.metadata_table.writer.metadata_settings import MetadataSettings
from pyhudi.metadata_table.writer.metadata_store import DeltaCommit, MetadataStore, SpilledKeys, drop_partitions, drop_store
from pyhudi.metadata_table.writer.overlapping_commits import ConcurrentCommits
from pyhudi.metadata_table.writer.sole_writer import SoleWriter, load_sole_writer
from pyhudi.operations.commit.transaction import Transaction
from pyhudi.table.snapshot import Snapshot, load_snapshot
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.tasks.engine_protocol import Engine
from pyhudi.tasks.file_stats import FileIndexing
from pyhudi.tasks.write_tasks import WriteStatus

_LOG = logging.getLogger("pyhudi.metadata_table.writer")


def indexing_requirements(
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
    if FILES not in maintained_partitions(context.config):
        return None
    write = WriteStarted(context, settings, data_schema, before, keys)
    asked = FileIndexing()
    for index in open_indexes(context):
        asked = index.requirements(asked, write)
    return asked


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
    """The mirror of a commit whose files are written, with what indexes have to know of it found out.

    snapshot: on which it was planned; time: its instant; operation: as its metadata says; replaced: partition -> file groups that
    it replaces.  retains_keys: the caller removes the side files.
    """
    earlier = _earlier(snapshot, statuses)
    trust = None if earlier is None else _trust_of(earlier, snapshot.timeline)
    mirror = MetadataCommit(
        engine, indexing, data_schema, statuses, replaced or {}, retains_keys=retains_keys, earlier=earlier, sole_writer=trust
    )
    return replace(
        mirror, prepared=prepare_all(open_indexes(context), mirror.planned(context, lambda: snapshot, time, operation))
    )


def _earlier(snapshot: Snapshot, statuses: Sequence[WriteStatus]) -> MetadataTable | None:
    """The metadata table that a write was planned with, having fetched what its commit will ask under the lock."""
    listing = snapshot.listing
    earlier = listing.metadata if isinstance(listing, MetadataListing) else None
    if not isinstance(listing, MetadataListing) or earlier is None:
        return None
    if {COLUMN_STATS, PARTITION_STATS} <= set(earlier.partitions):
        # The statistics of partitions are carried on, or made of those of the files that stay.
        known = listing.cached_groups({status.stat.partition_path or "" for status in statuses})
        if known and not known <= {status.stat.file_id for status in statuses if not status.stat.log_files}:
            earlier.warm(COLUMN_STATS)
        if known and not known <= {status.stat.file_id for status in statuses}:
            earlier.warm(PARTITION_STATS)
    return earlier


def _trust_of(earlier: MetadataTable, timeline: Timeline) -> SoleWriter | None:
    """What a metadata table says, as far as it can be read without the lock: what is being archived may go between two reads."""
    with suppress(HudiError):
        if PARTITION_STATS in earlier.partitions:
            return load_sole_writer(earlier.context.timeline, earlier.timeline, timeline)
    return None


@dataclass(frozen=True, slots=True)
class MetadataCommit:
    """The hook of one commit; see `Transaction.commit`.

    indexing: what the tasks were asked for; statuses: what they answered.  data_schema: the table's columns after the commit.
    replaced: partition -> file groups that the commit replaces; prepared: what was found out before the lock, by index;
    retains_keys: as of `prepare_metadata_commit`; earlier: the metadata table as it was read before the lock; sole_writer: what
    it said then.
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
        """The commit as kinds of index are told of it before the lock.  load: the table before it."""
        return CommitPrepared(
            context, self.engine, load, self.data_schema, self.indexing, self.statuses, time, operation, self.replaced
        )

    def __call__(self, transaction: Transaction, metadata: CommitMetadata, current_timeline: Timeline) -> Timeline | None:
        """Write the delta commit of the metadata table; see `MetadataHook`.

        Raises IndexStarted when the tasks were asked for something else.
        """
        context, time = transaction.context.reloaded(), transaction.instant_time
        partitions = maintained_partitions(context.config)
        if FILES not in partitions:
            return None
        commit = self._told(context, partitions, metadata, current_timeline, time)
        commit.read, commit.earlier = transaction.read, self.earlier
        indexes = open_indexes(context)
        _check_asked(indexes, commit)
        attempt = commit.store.begin(time)
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
            Instant(
                time, completed_action(transaction.action), State.COMPLETED, store.next_time(current_timeline, attempt.timeline)
            )
        )
        said = {index: index.updates_for_commit(commit) for index in indexes if index.partition in commit.partitions}
        return self._write(commit, replace(attempt, store=store), said)

    def _told(
        self, context: TableContext, partitions: Sequence[str], metadata: CommitMetadata, current_timeline: Timeline, time: str
    ) -> CommitPublishing:
        return CommitPublishing(
            context,
            partitions,
            metadata,
            current_timeline,
            time,
            requirements=self.indexing,
            data_schema=self.data_schema,
            statuses=self.statuses,
        )

    def _write(self, commit: CommitPublishing, attempt: DeltaCommit, updates: Mapping[Index, IndexUpdate]) -> Timeline | None:
        """Write what the indexes say, as it stands beside commits whose times overlap with this one's."""
        overlap = ConcurrentCommits.of(commit.time, commit.timeline, attempt.timeline)
        keys = [
            SpilledKeys(index.partition, one.keys, make, one.sections)
            for index, one in updates.items()
            if (make := type(index).key_records) is not None
        ]
        if commit.operation.changes_rows:
            overlap.check_keys(self.engine, commit.context, commit.reader, commit.completed_instant, keys)
        ranges = [one.partitions for one in updates.values() if one.partitions is not None]
        dropped = overlap.drop_clashes(commit.context, commit.reader, ranges)
        if dropped:
            commit.context = commit.context.reloaded()
        schema = pa.schema([]) if self.data_schema is None else with_meta_fields(self.data_schema)
        records: dict[str, MetadataRecords] = {}
        for index, one in updates.items():
            if index.partition not in dropped:
                parts = [] if one.records is None else [one.records]
                if one.partitions is not None:
                    parts.append(one.partitions.records(schema, is_tight=not overlap.has_older_pending))
                if parts:
                    records[index.partition] = parts[0] if len(parts) == 1 else join_tables(*parts)
        kept = not dropped and not overlap.has_newer_completed and _says_all_ranges(commit, updates)
        since = (commit.sole_writer.since or commit.completed_instant.completion_time) if kept else None
        timeline = attempt.write(self.engine, commit.timeline, records, keys, since)
        if not self.retains_keys and (keys or (self.indexing is not None and self.indexing.key_shards)):
            # Side files of an index that was dropped meanwhile go with the next compaction of the metadata table.
            commit.context.storage.delete_folder(join_path(SIDE_FOLDER, commit.time))
        left = [one for one in ranges if one.index.partition not in dropped]
        overlap.rewrite_overtaken_stats(commit.context, attempt.store, commit.timeline, commit.completed_instant, left, schema)
        return None if overlap.has_newer_completed else timeline


def _says_all_ranges(commit: CommitPublishing, updates: Mapping[Index, IndexUpdate]) -> bool:
    """Whether the statistics of partitions hold what the commit makes of all partitions that it touches."""
    ranges = [one.partitions.ranges for index, one in updates.items() if index.partition == PARTITION_STATS and one.partitions]
    return bool(ranges) and set(commit.file_groups()) <= set(ranges[0])


def _check_asked(indexes: Iterable[Index], commit: CommitPublishing) -> None:
    missing = [index.partition for index in indexes if not index.requirements_met(commit)]
    if missing:
        raise IndexStarted(
            f"the metadata table of {commit.context.storage.uri} got {', '.join(missing)} while this write was under way; "
            "plan the write again"
        )


def apply_clean_to_metadata(context: TableContext, request_time: str, clean: CleanMetadata, current_timeline: Timeline) -> None:
    """Take what a clean deleted out of the metadata table.  The caller holds the lock."""
    context = context.reloaded()
    if FILES not in maintained_partitions(context.config):
        return
    store = MetadataStore.open(context)
    told = FilesCleaned(
        context,
        {partition: entry.delete_path_patterns for partition, entry in clean.partition_metadata.items()},
        [partition for partition, entry in clean.partition_metadata.items() if entry.is_partition_deleted],
    )
    said = {index.partition: index.updates_for_clean(told) for index in open_indexes(context)}
    records = {partition: found for partition, found in said.items() if found is not None}
    store.begin(request_time).write(None, current_timeline, records)


def apply_rollback_to_metadata(
    context: TableContext,
    request_time: str,
    target: str,
    deleted: Mapping[str, Iterable[str]],
    current_timeline: Timeline,
    *,
    logs: bool = True,
) -> None:
    """Roll the delta commit of an instant back, as part of the table's own rollback.  The caller holds the lock.

    request_time: of the rollback; target: of what is rolled back; deleted: partition -> paths of its files, which are gone.
    Where the metadata table has taken the target up for good, in a base file, it is dropped, and the next write builds it anew;
    so is a partition that was built when the target, or a file of it, was there already.  logs: False, and log files that bear
    the target's time are not its own.
    """
    context = context.reloaded()
    if FILES not in (*context.config.metadata_partitions, *context.config.metadata_partitions_inflight):
        return
    store = MetadataStore.open(context)
    timeline = store.load()
    context.storage.delete_folder(join_path(SIDE_FOLDER, target))
    own = [i for i in timeline.instants if i.step == (target, Action.DELTACOMMIT)]
    if not own:
        if _lists_files_of(MetadataTable(context, current_timeline), target, deleted, logs=logs):
            drop_store(context)
        return
    completed = own[0].completion_time
    if completed is not None and any(i.request_time > completed for i in timeline.completed(Action.COMMIT)):
        drop_store(context)
        return
    late = _built_after(store, timeline, completed) if completed is not None else frozenset()
    kept = (*context.config.metadata_partitions, *context.config.metadata_partitions_inflight, *late)
    gone = {partition for partition in kept if not _stays(partition, built_since=partition in late)}
    if gone:
        _LOG.warning("rollback of %s drops %s of the metadata table, built with it", target, ", ".join(sorted(gone)))
        drop_partitions(context, gone)
        if FILES in gone:
            return
    _drop_plans(store, timeline)
    _roll_back(store, request_time, target, current_timeline)


def apply_restore_to_metadata(context: TableContext) -> None:
    """Drop what the metadata table says of a table whose past is about to change; the next write builds it anew.

    The caller holds the lock.
    """
    context = context.reloaded()
    there = (*context.config.metadata_partitions, *context.config.metadata_partitions_inflight)
    gone = [partition for partition in there if (kind := index_for_partition(partition)) is None or not kind.survives_restore()]
    if gone:
        drop_partitions(context, gone)


def _built_after(store: MetadataStore, timeline: Timeline, completed: str) -> frozenset[str]:
    """The partitions that were built after a time: their first files say what the table was like then."""
    late = {
        i.request_time
        for i in timeline.completed(Action.DELTACOMMIT)
        if i.request_time.startswith(INIT_INSTANT_TIME) and (i.completion_time or "") > completed
    }
    return frozenset(parent_folder(path) for time in late for path in store.files_of_instant(time))


def _stays(partition: str, *, built_since: bool) -> bool:
    """Whether an index is still right after a rollback; of one that nobody knows that is so when it is older."""
    kind = index_for_partition(partition)
    return not built_since if kind is None else kind.survives_rollback(built_since=built_since)


def _drop_plans(store: MetadataStore, timeline: Timeline) -> None:
    """Drop compactions of the metadata table that died: they may read log files that are about to go, and are planned anew."""
    for instant in timeline.pending(Action.COMPACTION):
        store.storage.delete(store.files_of_instant(instant.request_time))
        store.context.timeline.remove_pending(instant.request_time, Action.COMPACTION)


def _lists_files_of(reader: MetadataTable, target: str, deleted: Mapping[str, Iterable[str]], *, logs: bool) -> bool:
    # What a write copied for a resize bears the time of that one.
    gone = {partition: frozenset(map(file_name, paths)) for partition, paths in deleted.items()}
    files = find_files(reader, deleted)
    return any(
        name in gone[partition] or (parse_data_file_instant(name) == target and (logs or not name.startswith(".")))
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
