"""The one path on which anything is committed.

    begin       lock: a fresh instant time, the requested file; unlock; a heartbeat says that the writer lives
    start       the inflight file, before any data file
    (tasks)     marker, then data file, for every file
    commit      lock: reload the timeline; is this instant still ours?  do other instants touch the same file groups?
                delete files of lost task attempts; the metadata table; completion time; completed file by put-if-absent; unlock
    tidy up     markers and heartbeat

A crash at any point leaves a table that every reader reads as before: data files count only when their instant has its
completed file.  The next writer rolls the rest back.  Outcomes: committed; `WriteConflict` (this write was taken back);
`CommitUnknown` (the store did not say).

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
"""Mirrors a commit into the metadata table, under the lock, before the commit is published.  Gives the timeline of the metadata
table with what it wrote there; None where that is to be loaded."""


def new_instant_time(context: TableContext, timeline: Timeline, settings: CommitSettings) -> str:
    """A fresh instant time, larger than every time on the timeline.  The caller holds the table lock and has just loaded the
    timeline.

    Raises TableState where it comes from a time generator that is behind the timeline.
    """
    time = _time_after(context, timeline.latest_time(), settings)
    if settings.clock_skew_ms:
        context.env.sleep_ms(settings.clock_skew_ms)
    return time


def _time_after(context: TableContext, after: str, settings: CommitSettings) -> str:
    """The time of the clock, or of the settings' generator.  after: what it has to be larger than, '' for nothing."""
    zone, generator = context.config.zone, find_time_generator(settings.time_generator)
    if generator is None:
        return next_instant_time(context.env, zone, after)
    time = format_instant_time(generator.now_ms(context.storage.uri), zone)
    if time <= after[:17]:
        # Counted on from there it would be a time that the generator may give to somebody else.
        raise TableState(
            f"time generator {settings.time_generator} says {time} for {context.storage.uri}, and its timeline has {after}: "
            "other writers take their times from elsewhere, or it went back; let all of them use one"
        )
    return time


def stored_ms(context: TableContext, request_time: str, action: Action) -> int | None:
    """When the inflight file of an action was stored, by the store's clock; None when there is none."""
    found = context.storage.stat(context.timeline.path(Instant(request_time, action, State.INFLIGHT)))
    return None if found is None else found.modified_ms


def check_may_begin(context: TableContext, timeline: Timeline, doing: str) -> None:
    """Whether an action may begin on the table as it was opened.  The lock is held.

    From there on a change of version sees the action on the timeline, and waits for it or is refused; one that came before has
    made it another table, whose records merge by other rules and whose timeline may lie elsewhere.  Nor is a table still there
    that its creator has removed again (see `discard_new_table`).  timeline: as it is now; doing: as of
    `check_no_pending_restore`. Raises TableNotFound, TableState.
    """
    check_same_version(context)
    check_no_pending_restore(context, timeline, doing)


def check_same_version(context: TableContext) -> None:
    """Whether a table has the version that it was opened with.  The lock is held.

    Whoever changes the timeline asks, also where nothing is begun that a change of version waits for.  Raises TableState,
    TableNotFound.
    """
    version = context.reloaded().config.version
    if version is not context.config.version:
        raise TableState(
            f"another process has made the table at {context.storage.uri} one of version {int(version)} meanwhile; open it again"
        )


def check_no_pending_restore(context: TableContext, timeline: Timeline, doing: str) -> None:
    """Raises TableState while a restore is pending.  doing: what has to wait for it; completes "run it again before ..."."""
    restoring = timeline.pending(Action.RESTORE)
    if restoring:
        raise TableState(
            f"restore {restoring[0].request_time} of {context.storage.uri} did not finish; run it again before {doing}"
        )


@dataclass(slots=True)
class Transaction:
    """One action of this process, from its requested file to its completed file.

    instant_time: its request time.  action: as requested.  requested_on: the timeline before `begin` requested it.
    inflight_ms: when the inflight file was stored by which this process claimed a plan, by the store's clock; None for a write.
    started: whether its inflight file may stand there, as for one that another process has begun.
    columns: what a write says of its columns when it has been planned, where these have ids.  without_ids: a timeline that was
    loaded before the table was found to have no history of columns; None where nobody has looked.
    metadata_timeline: that of the metadata table right after the commit, as of `MetadataHook`.
    may_have_late_attempts: attempts at its tasks may still write when it commits.
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

        at: the time, where it is not that of the clock but the one that says what the instant is.
        Raises TableState while a restore is pending, for a table that has another version by now and where an instant of the
        given time is there; TableNotFound for a table that is gone before anything was written to it.
        """
        heartbeat: WriterHeartbeat | None = None
        try:
            with context.locked(settings.lock_wait_ms) as held:
                # The writer plans on it when the lock is long given back.
                timeline = context.timeline.load()
                check_may_begin(context, timeline, "writing")
                if any(instant.request_time == at for instant in timeline.instants):
                    raise TableState(f"instant {at} of {context.storage.uri} is there already; another process has begun it")
                time = new_instant_time(context, timeline, settings) if at is None else at
                heartbeat = WriterHeartbeat(context.storage, context.env, time, settings.heartbeats)
                heartbeat.start()
                held.timeline.request(time, action, requested)
                Markers(context.storage, time, in_lists=settings.marker_lists).begin()
        except BaseException as error:
            if heartbeat is not None:
                # Where the store did not answer, the requested file may stand there; its rollback removes the heartbeat too.
                heartbeat.stop(delete=isinstance(error, TableState))
            raise
        return cls(context, settings, time, action, heartbeat, timeline, started=False)

    def planned_on(self, snapshot: Snapshot) -> None:
        """Remember, of the state on which this was planned, whether columns had ids there, and what it has read of commits."""
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

        start: what the write saw when it was planned; None skips the conflict check (table services, which hold their file groups
        by plan).
        read_set: what this commit touches beside the file groups that it writes: those that it replaces, and `new_keys` of
        partitions in which it looked keys up and did not find them.
        verify: looks at the timeline under the lock and raises when the action may not complete any more.
        metadata_commit: writes the metadata table; a table that has one is not committed to without.
        shares_groups: everything was appended to file groups to which others append too; only what takes one away is a conflict.
        ignored_instants: resizes that are none, since what the write changed of their file groups is in those that they make,
            too.
        Raises WriteConflict when another instant won or this one was rolled back meanwhile; the caller then calls `abandon`.
        Raises CommitUnknown when the store did not say whether the completed file was written.
        """
        groups = written_groups(metadata).union(read_set)
        met = None if shares_groups else self.requested_on
        # What another kind of writer writes meanwhile has the columns of before, whichever its file groups are.
        waited_for = None if self.columns is not None and self.columns.changes else groups
        if start is not None and met is not None and not self.context.holds_lock:
            wait_for_foreign_writers(self.context, self.settings, met, self.instant_time, waited_for)
        if start is not None and not shares_groups:
            self._fail_fast_on_conflict(start, groups, ignored_instants)
        ahead = prefetch_concurrent_commits(self.context, self.instant_time, start, self._commit_of)
        with ahead as end_reading, self.context.locked(self.settings.lock_wait_ms) as held:
            end_reading()
            self.heartbeat.check()
            files = held.timeline.load_files()
            self.check_ownership(files, State.INFLIGHT)
            now = held.timeline.build_timeline(files, self._planned_on)
            if verify is not None:
                verify(now)
            if start is not None:
                if met is not None:
                    reject_late_foreign_writers(self.context, self.settings, met, now, self.instant_time, waited_for)
                self._check_conflicts(now, start, groups, shares_groups=shares_groups, ignored_instants=ignored_instants)
            metadata, history = self._with_ids(metadata, now)
            if history is None and start is not None and start.schema is not None:
                metadata = self._with_schema(metadata, start.schema, now)
            self._delete_unreported_files(held.storage, metadata)
            if metadata_commit is not None:
                self.metadata_timeline = metadata_commit(replace(self, context=held), metadata, now)
            elif self.context.config.metadata_partitions:
                raise Internal(f"{self.action} would leave the metadata table of {self.context.storage.uri} behind")
            completion_time = new_instant_time(self.context, now, self.settings)
            if history:
                store_history(held, self.instant_time, completion_time, history)
                completion_time = _time_after(self.context, completion_time, self.settings)
            done = Instant(self.instant_time, completed_action(self.action), State.COMPLETED, completion_time)
            self.context.lock.check()
            self._publish(done, metadata.encode(self.context.env.token_bytes(16)))
            self.completed = done
        self._tidy_up(metadata, now if history else None)
        return done

    def check_conflicts(
        self, start: WriteStart, read_set: Iterable[FileGroupId], ignored_instants: frozenset[str] = frozenset()
    ) -> None:
        """Raises WriteConflict where `commit` would, as far as the timeline tells by now.  Needs no lock, and proves nothing."""
        self._check_conflicts(
            self.context.timeline.load(), start, set(read_set), shares_groups=False, ignored_instants=ignored_instants
        )

    def check_requested_on_state(self, start: WriteStart, read_set: Iterable[FileGroupId]) -> None:
        """Raises WriteConflict where `commit` would, by what stood on the timeline when the instant was requested, which is read
        already.  For a write that is planned on an earlier state: it has lost before it has written a file.
        """
        found, planned_on = self.requested_on, self._planned_on
        if found is None or (planned_on is not None and found.instants == planned_on.instants):
            return
        try:
            self._check_conflicts(found, start, set(read_set), shares_groups=False)
        except WriteConflict:
            raise
        except HudiError:
            # As of `_fail_fast_on_conflict`.
            return

    def _fail_fast_on_conflict(
        self, start: WriteStart, groups: Collection[FileGroupId], ignored_instants: frozenset[str]
    ) -> None:
        """Whoever has lost by now need not stand in the queue for the lock to hear it, and take the turn of one who may win.

        And the others need not wait while what is known by now is read under the lock, a request for each commit.
        """
        try:
            self.check_conflicts(start, groups, ignored_instants)
        except WriteConflict:
            raise
        except HudiError:
            # Without the lock, what is being archived may be gone between two reads.  The check that counts comes under it.
            return

    def check_ownership(self, files: Collection[Instant], state: State) -> None:
        """Raises WriteConflict when another process has rolled the action back, or is about to.

        files: every instant file of the timeline.  state: how far the action is; a file of it that a writer stored after its
        instant was rolled back stands without those before it.
        """
        mine = {Instant(self.instant_time, self.action, step) for step in State if step <= state}
        now = self.context.timeline.build_timeline(files)
        if not mine.issubset(files) or self.instant_time in load_rollback_targets(self.context.timeline, now):
            raise WriteConflict(
                f"{self.action} {self.instant_time} of {self.context.storage.uri} was rolled back by another writer while "
                f"it was under way",
                instants=(self.instant_time,),
            )
        if self.was_reclaimed():
            raise WriteConflict(
                f"{self.action} {self.instant_time} of {self.context.storage.uri} was taken over by another process, which took "
                "this one for dead; leave it to that one",
                instants=(self.instant_time,),
            )

    def was_reclaimed(self) -> bool:
        """Whether a plan that this process claimed has been claimed anew by another one.

        That one undid the attempt first, and its inflight file has the name of ours and another time.
        """
        if self.inflight_ms is None:
            return False
        return stored_ms(self.context, self.instant_time, self.action) not in (None, self.inflight_ms)

    def can_roll_back(self, error: BaseException) -> bool:
        """Whether a failure proves that the commit did not land, so that its files may be removed by this process."""
        if self.completed is not None or isinstance(error, CommitUnknown):
            return False
        return isinstance(error, Exception) or (isinstance(error, KeyboardInterrupt) and not self.publishing)

    def stop_heartbeat(self, error: BaseException | None = None) -> None:
        """Stop the heartbeat of a transaction that will not commit; its instant is left for a rollback.

        error: what ended it.  Where the store may still carry out what it did not answer, nobody takes the writer for dead before
        its heartbeat expires.
        """
        if isinstance(error, CommitUnknown) or (self.publishing and isinstance(error, KeyboardInterrupt)):
            self.heartbeat.suspend()
        else:
            self.heartbeat.stop(delete=False)

    def _tidy_up(self, metadata: CommitMetadata, current_timeline: Timeline | None) -> None:
        """metadata: as it was published.  current_timeline: the timeline before it completed, where it wrote a history of
        columns.
        """
        # The commit stands.  What cannot be removed now, the next writer finds beside a completed instant and removes.
        try:
            if current_timeline is not None:
                drop_older_histories(self.context, current_timeline)
            self.heartbeat.stop(delete=True)
            if self.may_have_late_attempts:
                # One that ends from now on removes its files itself (`tasks.task_attempts`).
                self._delete_unreported_files(self.context.storage, metadata)
            Markers(self.context.storage, self.instant_time).delete()
        except HudiError as error:
            self.heartbeat.stop(delete=False)
            _LOG.warning("%s %s is committed; its markers could not be removed: %s", self.action, self.instant_time, error)

    def _with_ids(
        self, metadata: CommitMetadata, current_timeline: Timeline
    ) -> tuple[CommitMetadata, tuple[VersionedSchema, ...] | None]:
        """The metadata with the ids of the table's columns, and the history to write beside it; None for columns without ids,
        () where the history stays as it is.

        What an instant wrote is read by the columns that held at its request time, so these have to be what it was planned with;
        and the newest request time says what the columns are, so nothing may stand behind one that changes them.
        """
        columns, history = self.columns, self._column_history(current_timeline)
        if history is None and columns is not None and columns.assigns_ids:
            history = self._first_history(current_timeline)
        present = None if history is None else history.at(self.instant_time)
        if history is None or present is None:
            if columns is not None:
                raise self._columns_conflict(
                    current_timeline, "were planned by ids, and the change that gave them was rolled back meanwhile"
                )
            return metadata, None
        extra = dict(metadata.extra_metadata)
        if not metadata.operation.sets_schema:
            return replace(metadata, extra_metadata={**extra, LATEST_SCHEMA_KEY: encode_schema(present)}), ()
        if columns is None and present.version_id == 0:
            # It began before the first change, and goes by the names of then, which are those of version 0.
            if not _has_columns(metadata, present):
                raise self._columns_conflict(current_timeline, "were changed meanwhile, and given ids")
            return metadata, ()
        if columns is None or columns.basis != present:
            raise self._columns_conflict(current_timeline, "were changed meanwhile")
        if columns.changes and any(i.request_time > self.instant_time for i in self._setting_columns(current_timeline)):
            raise self._columns_conflict(current_timeline, "would be changed behind a write that was requested later")
        extra[LATEST_SCHEMA_KEY] = encode_schema(columns.schema)
        entries = history.history_with(columns.schema)
        return replace(metadata, extra_metadata=extra), (columns.schema, *entries) if columns.changes else entries

    def _column_history(self, current_timeline: Timeline) -> ColumnHistory | None:
        """The table's; None where it has none, as is known without a look where nothing has landed since that brought one."""
        seen = self.without_ids
        if seen is not None and seen.start == current_timeline.start:
            known = set(seen.completed_writes())
            since = (self._commit_of(instant) for instant in current_timeline.completed_writes() if instant not in known)
            if not any(LATEST_SCHEMA_KEY in metadata.extra_metadata for metadata in since):
                return None
        return load_column_history(self.context, current_timeline, lambda _, instant: self._commit_of(instant))

    def _first_history(self, current_timeline: Timeline) -> ColumnHistory | None:
        """What the table's columns are before the first change by ids; None where none are left."""
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
        """The metadata with the table's present schema, where another write changed it and this one did not."""
        extra = dict(metadata.extra_metadata)
        present = load_schema(self.context.timeline, current_timeline, self.context.config, read=self.read)
        schema = schema_to_commit(extra.get(SCHEMA_KEY, ""), start, present.avro if present else "")
        if schema is None:
            last = current_timeline.last_completed_write()
            raise WriteConflict(
                f"{self.action} {self.instant_time} of {self.context.storage.uri} changes the table's columns, and another "
                "write changed them meanwhile; write the data again",
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
                "which was rolled back meanwhile; plan the write again",
                instants=(start.last_completed,),
            )
        others: dict[Instant, Collection[FileGroupId]] = {}
        compactions: set[str] = set()
        compacted: set[FileGroupId] = set()
        met = [i for i in instants_to_check(self.instant_time, start, current_timeline) if i.request_time not in ignored_instants]
        for instant in met:
            if instant.action is Action.COMPACTION and instant.is_pending:
                compactions.add(instant.request_time)
                if shares_groups:
                    continue
            if instant.is_pending:
                others[instant] = touched_file_groups(self.context, instant)
        commits = [(i, self._commit_of(i)) for i in met if i.is_completed]
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
                f"instants changed meanwhile: {describe_conflicts(conflicts)}; plan the write again",
                instants=tuple(c.instant.request_time for c in conflicts),
            )

    def read(self, store: TimelineStore, instant: Instant) -> CommitMetadata:
        """What a commit on the timeline of the table says, read once."""
        return self._commit_of(instant)

    def _commit_of(self, instant: Instant) -> CommitMetadata:
        """What another commit says.  It never changes, so what was read before the lock is not read again while others wait."""
        if instant not in self._read:
            self._read[instant] = read_commit(self.context.timeline, instant)
        return self._read[instant]

    def _is_still_completed(self, current_timeline: Timeline, request_time: str) -> bool:
        """Whether a write that had completed still has: on the active timeline, or in the history."""
        return current_timeline.is_completed(request_time) and current_timeline.completion_time(request_time) is not None

    def _archived_since(self, current_timeline: Timeline, start: WriteStart) -> Iterator[tuple[Instant, CommitMetadata]]:
        """The writes and services that completed since the start and left the timeline since."""
        if start.is_archived(current_timeline):
            active = {i.step for i in current_timeline.instants}
            for instant, metadata in load_archived_commits(self.context.timeline, Bounds(start.latest)):
                if (instant.completion_time or "") > start.latest and instant.step not in active:
                    yield instant, metadata

    def _delete_unreported_files(self, storage: Storage, metadata: CommitMetadata) -> None:
        """Files of task attempts that were repeated have a marker and stand in no statistic; they must not become data."""
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
                f"the store did not say whether {self.context.storage.absolute(path)} was written; load the table and look for "
                f"instant {self.instant_time} before writing again, and delete nothing",
                instant=self.instant_time,
            ) from error
        if not landed:
            raise TableState(f"{self.context.storage.absolute(path)} exists already; another process completed this instant")


def _has_columns(metadata: CommitMetadata, is_present: VersionedSchema) -> bool:
    """Whether a commit that goes by names leaves the columns as they are."""
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
    """What a completed write says: its statistics by partition, the table's schema, the caller's extra metadata."""
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
