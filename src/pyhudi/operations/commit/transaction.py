"""Transactions: the only path on which a write or table service commits.

    begin       lock: a new instant time, the requested file; unlock; a heartbeat shows that the writer is alive
    start       the inflight file, before any data file
    (tasks)     marker, then data file, for every file
    commit      lock: reload the timeline; check ownership of the instant; detect conflicts with concurrent instants;
                delete files of failed task attempts; update the metadata table; take the completion time; write the
                completed file by put-if-absent; unlock
    tidy up     remove markers and heartbeat

A crash at any point leaves the table unchanged for every reader: data files become visible only with the completed file
of their instant. The next writer rolls the rest back. Outcomes: committed; `WriteConflict` (this write was rolled
back); `CommitUnknown` (the store did not confirm the result).

Source: docs/formats/timeline.md, "Writing a state"; docs/formats/writing.md, "Completing a commit".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from pyhudi.errors import CommitUnknown, HudiError, Internal, StorageUnavailable, TableState, WriteConflict
from pyhudi.format.actions.commit_metadata import LATEST_SCHEMA_KEY, SCHEMA_KEY, CommitMetadata, Operation, WriteStat
from pyhudi.format.avro.container import add_checksum_marker
from pyhudi.format.avro_to_arrow import avro_to_arrow
from pyhudi.format.instants import Action, Instant, State, completed_action, format_instant_time
from pyhudi.format.meta_columns import with_meta_fields
from pyhudi.format.schema_history import VersionedSchema, encode_schema
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.conflict_prefetch import prefetch_concurrent_commits
from pyhudi.operations.commit.hudi_writers import reject_late_foreign_writers, wait_for_foreign_writers
from pyhudi.operations.commit.touched_file_groups import (
    file_groups_of_commit,
    load_replaced_groups,
    touched_file_groups,
    written_groups,
)
from pyhudi.planning.conflicts import (
    FileGroupId,
    WriteStart,
    describe_conflicts,
    find_conflicts,
    instants_to_check,
    keys_looked_up_during_compaction,
    replaced_under_us,
    schema_to_commit,
)
from pyhudi.records.schema_on_read.column_ids import reconciled, same_columns
from pyhudi.storage.base import Storage, put_if_absent_confirmed
from pyhudi.storage.liveness import WriterHeartbeat
from pyhudi.storage.markers import Markers
from pyhudi.storage.time_generators import find_time_generator
from pyhudi.table.schema_on_read_history import (
    ColumnHistory,
    WrittenColumns,
    drop_older_histories,
    load_column_history,
    store_history,
)
from pyhudi.table.snapshot import Snapshot, load_archived_commits, load_rollback_targets, load_schema, read_commit
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.table.timeline.archived_timeline import Bounds
from pyhudi.table.timeline.timeline_store import TimelineStore, next_instant_time
from pyhudi.tasks.write_tasks import WriteStatus

_LOG = logging.getLogger("pyhudi.operations.commit.transaction")

MetadataHook = Callable[["Transaction", CommitMetadata, Timeline], Timeline | None]
"""Writes a commit to the metadata table, under the lock, before the commit is published. Returns the timeline of the
metadata table
with that delta commit, or None if the timeline has to be loaded.
"""


def new_instant_time(context: TableContext, timeline: Timeline, settings: CommitSettings) -> str:
    """Return a new instant time, larger than every time on the timeline.

    The caller holds the table lock and has just loaded the timeline.

    Raises:
        TableState: The time generator is behind the timeline.
    """
    time = _time_after(context, timeline.latest_time(), settings)
    if settings.clock_skew_ms:
        context.env.sleep_ms(settings.clock_skew_ms)
    return time


def _time_after(context: TableContext, after: str, settings: CommitSettings) -> str:
    """Return the time of the clock or the configured time generator, larger than ``after`` ('' for no lower bound)."""
    zone, generator = context.config.zone, find_time_generator(settings.time_generator)
    if generator is None:
        return next_instant_time(context.env, zone, after)
    time = format_instant_time(generator.now_ms(context.storage.uri), zone)
    if time <= after[:17]:
        # Incrementing ``after`` could yield a time that the generator assigns to another writer.
        raise TableState(
            f"time generator {settings.time_generator} returned {time} for {context.storage.uri}, which is not "
            f"after {after} on its "
            "timeline: other writers use another time source, or the generator went backwards. Configure the "
            "same one for all writers."
        )
    return time


def stored_ms(context: TableContext, request_time: str, action: Action) -> int | None:
    """Return the modification time of an action's inflight file, by the store's clock, or None if there is none."""
    inflight = context.storage.stat(context.timeline.path(Instant(request_time, action, State.INFLIGHT)))
    return None if inflight is None else inflight.modified_ms


def check_may_begin(context: TableContext, timeline: Timeline, doing: str) -> None:
    """Check under the lock that an action may begin on the table as it was opened.

    Once the action is on the timeline, a version change waits for it or is refused. A version change before that
    invalidates the open table: its merge rules and its timeline path may differ. The table may also have been removed
    by its creator (see `discard_new_table`).

    Args:
        context: The table as it was opened.
        timeline: Its current timeline.
        doing: Completes "run it again before ...", see `check_no_pending_restore`.

    Raises:
        TableNotFound: The table was removed.
        TableState: The version changed, or a restore is pending.
    """
    check_same_version(context)
    check_no_pending_restore(context, timeline, doing)


def check_same_version(context: TableContext) -> None:
    """Check under the lock that the table still has the version that it was opened with.

    Every change of the timeline needs this check, even without an action that a version change would wait for.

    Raises:
        TableState: The version changed.
        TableNotFound: The table was removed.
    """
    version = context.reloaded().config.version
    if version is not context.config.version:
        raise TableState(
            f"table {context.storage.uri} was upgraded or downgraded to version {int(version)} by another process "
            "since it was opened; "
            "reopen it with Table(...)"
        )


def check_no_pending_restore(context: TableContext, timeline: Timeline, doing: str) -> None:
    """Raise TableState while a restore is pending. ``doing`` completes "run it again before ..."."""
    restoring = timeline.pending(Action.RESTORE)
    if restoring:
        raise TableState(
            f"restore {restoring[0].request_time} of {context.storage.uri} did not finish; run it again before {doing}"
        )


@dataclass(slots=True)
class Transaction:
    """One action of this process, from its requested file to its completed file.

    Attributes:
        context: The table.
        settings: Commit settings.
        instant_time: Request time.
        action: The action of the requested file.
        heartbeat: Heartbeat of this writer.
        requested_on: The timeline before `begin` wrote the requested file.
        completed: The completed instant, None before.
        publishing: True once the completed file may have been written.
        started: True if the inflight file may exist, for example for a plan that another process began.
        inflight_ms: Modification time of the inflight file with which this process claimed a plan; None for a write.
        columns: Columns of a planned write, if the table resolves columns by id.
        without_ids: A timeline on which the table was found to have no column history; None if unknown.
        metadata_timeline: Timeline of the metadata table right after the commit, see `MetadataHook`.
        may_have_late_attempts: True if task attempts may still write while it commits.
    """

    context: TableContext
    settings: CommitSettings
    instant_time: str
    action: Action
    heartbeat: WriterHeartbeat
    requested_on: Timeline | None = field(default=None)
    completed: Instant | None = field(default=None)
    publishing: bool = field(default=False)
    started: bool = field(default=True)
    inflight_ms: int | None = field(default=None)
    columns: WrittenColumns | None = field(default=None)
    without_ids: Timeline | None = field(default=None)
    metadata_timeline: Timeline | None = field(default=None)
    may_have_late_attempts: bool = field(default=False)
    _read: dict[Instant, CommitMetadata] = field(default_factory=dict, repr=False)
    _planned_on: Timeline | None = field(default=None, repr=False)

    @classmethod
    def begin(
        cls, context: TableContext, action: Action, settings: CommitSettings, requested: bytes = b"", *, at: str | None = None
    ) -> Transaction:
        """Take an instant time and write the requested file.

        Args:
            context: The table.
            action: The action.
            settings: Commit settings.
            requested: Content of the requested file.
            at: Fixed instant time to use instead of the clock.

        Raises:
            TableState: A restore is pending, the table's version changed, or an instant with this time exists.
            TableNotFound: The table was removed before anything was written.
        """
        heartbeat: WriterHeartbeat | None = None
        try:
            with context.locked(settings.lock_wait_ms) as locked:
                # The writer plans on this timeline after the lock is released.
                timeline = context.timeline.load()
                check_may_begin(context, timeline, "writing")
                if any(instant.request_time == at for instant in timeline.instants):
                    raise TableState(f"instant {at} of {context.storage.uri} exists already; another process has begun it")
                time = new_instant_time(context, timeline, settings) if at is None else at
                heartbeat = WriterHeartbeat(context.storage, context.env, time, settings.heartbeats)
                heartbeat.start()
                locked.timeline.request(time, action, requested)
                Markers(context.storage, time, in_lists=settings.marker_lists).begin()
        except BaseException as error:
            if heartbeat is not None:
                # If the store did not respond, the requested file may exist; its rollback then removes the heartbeat
                # too.
                heartbeat.stop(delete=isinstance(error, TableState))
            raise
        return cls(context, settings, time, action, heartbeat, timeline, started=False)

    def planned_on(self, snapshot: Snapshot) -> None:
        """Record the snapshot this transaction was planned on: its column-id mode and the commit metadata already
        loaded.
        """
        self._read.update(snapshot.commits)
        self._planned_on = snapshot.timeline
        self.without_ids = snapshot.timeline if snapshot.history is None else None

    def start(self, content: bytes = b"") -> None:
        """Write the inflight file; data files may follow."""
        self.started = True
        self.context.timeline.start(Instant(self.instant_time, self.action, State.REQUESTED), content)

    def commit(
        self,
        metadata: CommitMetadata,
        start: WriteStart | None,
        read_set: Iterable[FileGroupId] = (),
        metadata_commit: MetadataHook | None = None,
        verify: Callable[[Timeline], None] | None = None,
        *,
        shares_groups: bool = False,
        ignored_instants: frozenset[str] = frozenset(),
    ) -> Instant:
        """Publish the action.

        Args:
            metadata: The commit metadata.
            start: The state that the write was planned on; None skips conflict detection (for table services, whose
                plan protects their file groups).
            read_set: What the commit depends on besides the file groups that it writes: file groups that it replaces,
                and `new_keys` of partitions in which it looked up keys without finding them.
            metadata_commit: Writes to the metadata table; required if the table has one.
            verify: Checks the timeline under the lock, and raises if the action must not complete.
            shares_groups: All data was appended to file groups that other writers append to as well. Only an instant
                that replaces such a group is then a conflict.
            ignored_instants: Resizes that are no conflict, because this write double-wrote its changes for them.

        Returns:
            The completed instant.

        Raises:
            WriteConflict: Another instant won, or this one was rolled back concurrently. The caller then calls
                `rollback_own_attempt`.
            CommitUnknown: The store did not confirm whether the completed file was written.
        """
        groups = written_groups(metadata).union(read_set)
        base_timeline = None if shares_groups else self.requested_on
        # A concurrent writer of another kind writes the previous columns, whichever file groups it changes.
        waited_for = None if self.columns is not None and self.columns.changes else groups
        if start is not None and base_timeline is not None and not self.context.holds_lock:
            wait_for_foreign_writers(self.context, self.settings, base_timeline, self.instant_time, waited_for)
        if start is not None and not shares_groups:
            self._fail_fast_on_conflict(start, groups, ignored_instants)
        ahead = prefetch_concurrent_commits(self.context, self.instant_time, start, self._commit_of)
        with ahead as end_reading, self.context.locked(self.settings.lock_wait_ms) as locked:
            end_reading()
            self.heartbeat.check()
            files = locked.timeline.load_files()
            self.check_ownership(files, State.INFLIGHT)
            now = locked.timeline.build_timeline(files, self._planned_on)
            if verify is not None:
                verify(now)
            if start is not None:
                if base_timeline is not None:
                    reject_late_foreign_writers(self.context, self.settings, base_timeline, now, self.instant_time, waited_for)
                self._check_conflicts(now, start, groups, shares_groups=shares_groups, ignored_instants=ignored_instants)
                if now.last_completed_write() is None:
                    self._check_create_schema(locked)
            metadata, history = self._with_ids(metadata, now)
            if history is None and start is not None and start.schema is not None:
                metadata = self._with_schema(metadata, start.schema, now)
            self._delete_unreported_files(locked.storage, metadata)
            if metadata_commit is not None:
                self.metadata_timeline = metadata_commit(replace(self, context=locked), metadata, now)
            elif self.context.config.metadata_partitions:
                raise Internal(
                    f"{self.action} {self.instant_time} would leave the metadata table of {self.context.storage.uri} out of date"
                )
            completion_time = new_instant_time(self.context, now, self.settings)
            if history:
                store_history(locked, self.instant_time, completion_time, history)
                completion_time = _time_after(self.context, completion_time, self.settings)
            done = Instant(self.instant_time, completed_action(self.action), State.COMPLETED, completion_time)
            self.context.lock.check()
            self._publish(done, metadata.encode(self.context.env.token_bytes(16)))
            self.completed = done
        self._tidy_up(metadata, now if history else None)
        return done

    def _check_create_schema(self, locked: TableContext) -> None:
        """Raise WriteConflict if the columns of a table without commits changed since this first write began."""
        if locked.reloaded().config.create_schema != self.context.config.create_schema:
            raise WriteConflict(f"the columns of {self.context.storage.uri} changed while {self.instant_time} was written")

    def check_conflicts(
        self, start: WriteStart, read_set: Iterable[FileGroupId], ignored_instants: frozenset[str] = frozenset()
    ) -> None:
        """Raise WriteConflict if `commit` would, by the current timeline. It needs no lock, and success proves nothing."""
        self._check_conflicts(
            self.context.timeline.load(), start, set(read_set), shares_groups=False, ignored_instants=ignored_instants
        )

    def check_requested_on_state(self, start: WriteStart, read_set: Iterable[FileGroupId]) -> None:
        """Raise WriteConflict if `commit` would, by the timeline at the time of the request, which is loaded already.

        A write that is planned on an older snapshot detects the conflict this way before it writes any file.
        """
        requested_on, planned_on = self.requested_on, self._planned_on
        if requested_on is None or (planned_on is not None and requested_on.instants == planned_on.instants):
            return
        try:
            self._check_conflicts(requested_on, start, set(read_set), shares_groups=False)
        except WriteConflict:
            raise
        except HudiError:
            # See `_fail_fast_on_conflict`.
            return

    def _fail_fast_on_conflict(
        self, start: WriteStart, groups: Collection[FileGroupId], ignored_instants: frozenset[str]
    ) -> None:
        """Fail before waiting for the lock if the write has lost already, so that a writer that can win gets the lock
        earlier.

        The commit metadata read here is cached, which shortens the time under the lock: each commit costs one request.
        """
        try:
            self.check_conflicts(start, groups, ignored_instants)
        except WriteConflict:
            raise
        except HudiError:
            # Without the lock, a commit may be archived between two reads. The decisive check follows under the lock.
            return

    def check_ownership(self, files: Collection[Instant], state: State) -> None:
        """Raise WriteConflict if another process has rolled the action back, or is about to.

        Args:
            files: All instant files of the timeline.
            state: The state that this action has reached. A file that a writer stored after its instant was rolled back
                exists without the files of the earlier states.
        """
        own_files = {Instant(self.instant_time, self.action, step) for step in State if step <= state}
        now = self.context.timeline.build_timeline(files)
        if not own_files.issubset(files) or self.instant_time in load_rollback_targets(self.context.timeline, now):
            raise WriteConflict(
                f"{self.action} {self.instant_time} of {self.context.storage.uri} was rolled back by another writer "
                "while "
                "it was running",
                instants=(self.instant_time,),
            )
        if self.was_reclaimed():
            raise WriteConflict(
                f"{self.action} {self.instant_time} of {self.context.storage.uri} was taken over by another process, "
                "which considered "
                "this one dead; leave the action to that process",
                instants=(self.instant_time,),
            )

    def was_reclaimed(self) -> bool:
        """Return True if another process has claimed the plan that this process had claimed.

        That process rolled the attempt back first. Its inflight file has the same name and another modification time.
        """
        if self.inflight_ms is None:
            return False
        return stored_ms(self.context, self.instant_time, self.action) not in (None, self.inflight_ms)

    def can_roll_back(self, error: BaseException) -> bool:
        """Return True if the error proves that the commit did not land, so that this process may delete its files."""
        if self.completed is not None or isinstance(error, CommitUnknown):
            return False
        return isinstance(error, Exception) or (isinstance(error, KeyboardInterrupt) and not self.publishing)

    def stop_heartbeat(self, error: BaseException | None = None) -> None:
        """Stop the heartbeat of a transaction that will not commit; its instant remains for a rollback.

        Args:
            error: What ended the transaction. If the store may still apply an unconfirmed request, the heartbeat is
                left to expire, so that no process considers the writer dead earlier.
        """
        if isinstance(error, CommitUnknown) or (self.publishing and isinstance(error, KeyboardInterrupt)):
            self.heartbeat.suspend()
        else:
            self.heartbeat.stop(delete=False)

    def _tidy_up(self, metadata: CommitMetadata, current_timeline: Timeline | None) -> None:
        """Remove markers and heartbeat after the commit; ``current_timeline`` is None unless it wrote a column history."""
        # The action is committed. Files that cannot be removed here are orphans, which the next writer removes.
        try:
            if current_timeline is not None:
                drop_older_histories(self.context, current_timeline)
            self.heartbeat.stop(delete=True)
            if self.may_have_late_attempts:
                # An attempt that ends later removes its files itself (`tasks.task_attempts`).
                self._delete_unreported_files(self.context.storage, metadata)
            Markers(self.context.storage, self.instant_time).delete()
        except HudiError as error:
            self.heartbeat.stop(delete=False)
            _LOG.warning("%s %s is committed; its markers could not be removed: %s", self.action, self.instant_time, error)

    def _with_ids(
        self, metadata: CommitMetadata, current_timeline: Timeline
    ) -> tuple[CommitMetadata, tuple[VersionedSchema, ...] | None]:
        """Return the metadata with the ids of the table's columns, and the history to write with it.

        The history is None if columns have no ids, and () if it does not change. Readers resolve the files of an
        instant with the columns at its request time, so these must be the columns that it was planned with. The newest
        request time defines the current columns, so no later-requested write may precede a commit that changes them.
        """
        columns, history = self.columns, self._column_history(current_timeline)
        if history is None and columns is not None and columns.assigns_ids:
            history = self._first_history(current_timeline)
        current = None if history is None else history.at(self.instant_time)
        if history is None or current is None:
            if columns is not None:
                raise self._columns_conflict(
                    current_timeline,
                    "were planned with column ids, and the change that assigned the ids was rolled back concurrently",
                )
            return metadata, None
        extra = dict(metadata.extra_metadata)
        if not metadata.operation.sets_schema:
            return replace(metadata, extra_metadata={**extra, LATEST_SCHEMA_KEY: encode_schema(current)}), ()
        if columns is None and current.version_id == 0:
            # The write began before the first change and uses the column names of version 0.
            if not _has_columns(metadata, current):
                raise self._columns_conflict(current_timeline, "were changed concurrently, and assigned ids")
            return metadata, ()
        if columns is None or columns.basis != current:
            raise self._columns_conflict(current_timeline, "were changed concurrently")
        if columns.changes and any(i.request_time > self.instant_time for i in self._setting_columns(current_timeline)):
            raise self._columns_conflict(current_timeline, "would be changed by a write older than one that has already set them")
        extra[LATEST_SCHEMA_KEY] = encode_schema(columns.schema)
        entries = history.history_with(columns.schema)
        return replace(metadata, extra_metadata=extra), (columns.schema, *entries) if columns.changes else entries

    def _column_history(self, current_timeline: Timeline) -> ColumnHistory | None:
        """Return the table's column history, or None. The lookup is skipped if no commit since the last check can have
        added one.
        """
        seen = self.without_ids
        if seen is not None and seen.start == current_timeline.start:
            known = set(seen.completed_writes())
            since = (self._commit_of(instant) for instant in current_timeline.completed_writes() if instant not in known)
            if not any(LATEST_SCHEMA_KEY in metadata.extra_metadata for metadata in since):
                return None
        return load_column_history(self.context, current_timeline, lambda _, instant: self._commit_of(instant))

    def _first_history(self, current_timeline: Timeline) -> ColumnHistory | None:
        """Return the table's columns before the first change by id, or None if there are none."""
        schema = load_schema(self.context.timeline, current_timeline, self.context.config, read=self.read)
        return None if schema is None else ColumnHistory.first(schema.arrow)

    def _setting_columns(self, current_timeline: Timeline) -> Iterator[Instant]:
        for instant in reversed(current_timeline.completed_writes()):
            if instant.request_time > self.instant_time and self._commit_of(instant).operation.sets_schema:
                yield instant

    def _columns_conflict(self, current_timeline: Timeline, description: str) -> WriteConflict:
        last = current_timeline.last_completed_write()
        return WriteConflict(
            f"{self.action} {self.instant_time} of {self.context.storage.uri}: the table's columns {description}; write the data "
            "again",
            instants=(last.request_time,) if last else (),
        )

    def _with_schema(self, metadata: CommitMetadata, start: str, current_timeline: Timeline) -> CommitMetadata:
        """Return the metadata with the table's current schema, if another write changed it and this one did not."""
        extra = dict(metadata.extra_metadata)
        current = load_schema(self.context.timeline, current_timeline, self.context.config, read=self.read)
        schema = schema_to_commit(extra.get(SCHEMA_KEY, ""), start, current.avro if current else "")
        if schema is None:
            last = current_timeline.last_completed_write()
            raise WriteConflict(
                f"{self.action} {self.instant_time} of {self.context.storage.uri} changes the table's columns, and "
                "another "
                "write changed them concurrently; write the data again",
                instants=(last.request_time,) if last else (),
            )
        return replace(metadata, extra_metadata={**extra, SCHEMA_KEY: schema})

    def _check_conflicts(
        self,
        current_timeline: Timeline,
        start: WriteStart,
        read_set: set[FileGroupId],
        *,
        shares_groups: bool,
        ignored_instants: frozenset[str] = frozenset(),
    ) -> None:
        if start.last_completed and not self._is_still_completed(current_timeline, start.last_completed):
            raise WriteConflict(
                f"{self.action} {self.instant_time} of {self.context.storage.uri} builds on {start.last_completed}, "
                "which was rolled back concurrently; plan the write again",
                instants=(start.last_completed,),
            )
        others: dict[Instant, Collection[FileGroupId]] = {}
        compactions: set[str] = set()
        compacted: set[FileGroupId] = set()
        concurrent_instants = [
            i for i in instants_to_check(self.instant_time, start, current_timeline) if i.request_time not in ignored_instants
        ]
        for instant in concurrent_instants:
            if instant.action is Action.COMPACTION and instant.is_pending:
                compactions.add(instant.request_time)
                if shares_groups:
                    continue
            if instant.is_pending:
                others[instant] = touched_file_groups(self.context, instant)
        commits = [(i, self._commit_of(i)) for i in concurrent_instants if i.is_completed]
        for instant, metadata in (*commits, *self._archived_since(current_timeline, start)):
            if shares_groups:
                others[instant] = replaced_under_us(read_set, written_groups(metadata), load_replaced_groups(metadata))
                continue
            others[instant] = file_groups_of_commit(metadata, appends_insert=instant.request_time < start.compacted)
            if metadata.operation is Operation.COMPACT:
                compactions.add(instant.request_time)
                compacted.update(others[instant])
        read_set |= keys_looked_up_during_compaction(read_set, compacted)
        conflicts = find_conflicts(self.instant_time, read_set, others, frozenset(compactions))
        if conflicts:
            raise WriteConflict(
                f"{self.action} {self.instant_time} of {self.context.storage.uri} changes file groups that other "
                f"instants changed concurrently: {describe_conflicts(conflicts)}; plan the write again",
                instants=tuple(c.instant.request_time for c in conflicts),
            )

    def read(self, store: TimelineStore, instant: Instant) -> CommitMetadata:
        """Return the metadata of a commit on the table's timeline, from the cache if it was read before."""
        return self._commit_of(instant)

    def _commit_of(self, instant: Instant) -> CommitMetadata:
        """Return the metadata of another commit, cached: it never changes, so nothing is read twice under the lock."""
        if instant not in self._read:
            self._read[instant] = read_commit(self.context.timeline, instant)
        return self._read[instant]

    def _is_still_completed(self, current_timeline: Timeline, request_time: str) -> bool:
        """Return True if a completed write is still completed, on the active or archived timeline."""
        return current_timeline.is_completed(request_time) and current_timeline.completion_time(request_time) is not None

    def _archived_since(self, current_timeline: Timeline, start: WriteStart) -> Iterator[tuple[Instant, CommitMetadata]]:
        """Return the writes and services that completed and were archived since the start."""
        if start.is_archived(current_timeline):
            active = {i.step for i in current_timeline.instants}
            for instant, metadata in load_archived_commits(self.context.timeline, Bounds(start.latest)):
                if (instant.completion_time or "") > start.latest and instant.step not in active:
                    yield instant, metadata

    def _delete_unreported_files(self, storage: Storage, metadata: CommitMetadata) -> None:
        """Delete files of repeated task attempts: they have a marker but no write statistic, and must not become
        visible.
        """
        reported = set()
        for stats in metadata.partition_to_write_stats.values():
            for stat in stats:
                reported.add(stat.path)
                reported.update(stat.cdc_stats or {})
        lost = [path for path, _ in Markers(storage, self.instant_time).list() if path not in reported]
        if lost:
            storage.delete(lost)

    def _publish(self, completed_instant: Instant, content: bytes) -> None:
        path = self.context.timeline.path(completed_instant)
        self.publishing = True
        try:
            landed = put_if_absent_confirmed(self.context.storage, path, add_checksum_marker(content), self.context.env)
        except StorageUnavailable as error:
            raise CommitUnknown(
                f"the store did not confirm whether {self.context.storage.absolute(path)} was written; load the table "
                "and look for "
                f"instant {self.instant_time} before writing again, and delete nothing",
                instant=self.instant_time,
            ) from error
        if not landed:
            raise TableState(f"{self.context.storage.absolute(path)} exists already; another process completed this instant")


def _has_columns(metadata: CommitMetadata, is_present: VersionedSchema) -> bool:
    """Return True if a commit that resolves columns by name leaves the columns unchanged."""
    text = metadata.extra_metadata.get(SCHEMA_KEY)
    return not text or same_columns(is_present, reconciled(is_present, with_meta_fields(avro_to_arrow(text)), 0))


def commit_metadata(
    operation: Operation,
    statuses: Iterable[WriteStatus],
    schema_text: str,
    extra: Mapping[str, str],
    replaced: Mapping[str, Iterable[str]] | None = None,
    *,
    compacted: bool = False,
) -> CommitMetadata:
    """Build the commit metadata of a write: statistics by partition, the table's schema and the caller's extra
    metadata.
    """
    by_partition: dict[str, list[WriteStat]] = {}
    for status in statuses:
        by_partition.setdefault(status.stat.partition_path or "", []).append(status.stat)
    return CommitMetadata(
        partition_to_write_stats={p: tuple(sorted(s, key=lambda stat: stat.path or "")) for p, s in sorted(by_partition.items())},
        compacted=compacted,
        extra_metadata={SCHEMA_KEY: schema_text, **extra},
        operation_type=operation.value,
        partition_to_replace_file_ids=None if replaced is None else {p: tuple(ids) for p, ids in sorted(replaced.items())},
    )
