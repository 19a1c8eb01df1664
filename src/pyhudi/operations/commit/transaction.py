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
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from pyhudi.errors import CommitUnknown, HudiError, Internal, StorageUnavailable, TableState, WriteConflict
from pyhudi.format.actions.commit_metadata import CommitMetadata
from pyhudi.format.avro.container import add_checksum_marker
from pyhudi.format.instants import Action, Instant, State, completed_action
from pyhudi.format.schema_history import VersionedSchema
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.conflict_check import ConflictCheck
from pyhudi.operations.commit.hudi_writers import reject_late_foreign_writers, wait_for_foreign_writers
from pyhudi.operations.commit.instant_times import new_instant_time, time_after
from pyhudi.operations.commit.orphan_cleanup import delete_unreported_files
from pyhudi.operations.commit.planned_commit import CommitCache, LockedCommit, PlannedCommit, rolled_metadata
from pyhudi.operations.commit.recorded_columns import record_columns
from pyhudi.planning.conflicts import FileGroupId, WriteStart
from pyhudi.storage.base import put_if_absent_confirmed
from pyhudi.storage.liveness import WriterHeartbeat
from pyhudi.storage.markers import Markers
from pyhudi.table.schema_on_read_history import WrittenColumns, drop_older_histories, store_history
from pyhudi.table.snapshot import Snapshot, load_rollback_targets
from pyhudi.table.table_config import TableConfig
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline

_LOG = logging.getLogger("pyhudi.operations.commit.transaction")


_UNLOCKED_VALIDATIONS = 3
"""Validations without the lock while other writes keep completing; the next one keeps them waiting."""


def stored_ms(context: TableContext, request_time: str, action: Action) -> int | None:
    """Return the modification time of an action's inflight file, by the store's clock, or None if there is none."""
    inflight = context.storage.stat(context.timeline.path(Instant(request_time, action, State.INFLIGHT)))
    return None if inflight is None else inflight.modified_ms


def check_may_begin(context: TableContext, timeline: Timeline, doing: str) -> TableConfig:
    """Check under the lock that an action may begin on the table as it was opened.

    Once the action is on the timeline, a version change waits for it or is refused. A version change before that
    invalidates the open table: its merge rules and its timeline path may differ. The table may also have been removed
    by its creator (see `discard_new_table`).

    Args:
        context: The table as it was opened.
        timeline: Its current timeline.
        doing: Completes "run it again before ...", see `check_no_pending_restore`.

    Returns:
        The current configuration of the table.

    Raises:
        TableNotFound: The table was removed.
        TableState: The version changed, or a restore is pending.
    """
    config = check_same_version(context)
    check_no_pending_restore(context, timeline, doing)
    return config


def check_same_version(context: TableContext) -> TableConfig:
    """Check under the lock that the table still has the version that it was opened with, and return its configuration.

    Every change of the timeline needs this check, even without an action that a version change would wait for.

    Raises:
        TableState: The version changed.
        TableNotFound: The table was removed.
    """
    config = context.reloaded().config
    version = config.version
    if version is not context.config.version:
        raise TableState(
            f"table {context.storage.uri} was upgraded or downgraded to version {int(version)} by another process "
            "since it was opened; reopen it with Table(...)"
        )
    return config


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
        config: Configuration of the table when the write began, under the lock; None for a plan.
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
    config: TableConfig | None = field(default=None, repr=False)
    _commits: CommitCache = field(default_factory=CommitCache, repr=False)
    _planned_on: Timeline | None = field(default=None, repr=False)

    @classmethod
    def begin(
        cls, context: TableContext, action: Action, settings: CommitSettings, requested: bytes = b"", *, at: str | None = None
    ) -> Transaction:
        """Take an instant time and write the requested file.

        Args:
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
                config = check_may_begin(context, timeline, "writing")
                if any(instant.request_time == at for instant in timeline.instants):
                    raise TableState(f"instant {at} of {context.storage.uri} exists already; another process has started it")
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
        return cls(context, settings, time, action, heartbeat, timeline, started=False, config=config)

    def planned_on(self, snapshot: Snapshot) -> None:
        """Record the snapshot this transaction was planned on: its column-id mode and the commit metadata already loaded."""
        self._commits.add(snapshot.commits)
        self._planned_on = snapshot.timeline
        self.without_ids = snapshot.timeline if snapshot.history is None else None

    def start(self, content: bytes = b"") -> None:
        """Write the inflight file; data files may follow."""
        self.started = True
        self.context.timeline.start(Instant(self.instant_time, self.action, State.REQUESTED), content)

    def commit(self, planned: PlannedCommit) -> Instant:
        """Publish the action.

        Returns:
            The completed instant.

        Raises:
            WriteConflict: Another instant won, or this one was rolled back concurrently. The caller then calls
                `rollback_own_attempt`.
            ValidationFailed: A validator rejects the commit.
            CommitUnknown: The store did not confirm whether the completed file was written.
        """
        groups = planned.groups
        check = None if planned.start is None else self._conflict_check(planned.start, planned)
        base_timeline = None if check is None or planned.shares_groups else self.requested_on
        # A concurrent writer of another kind writes the previous columns, whichever file groups it changes.
        waited_for = None if self.columns is not None and self.columns.changes else groups
        if base_timeline is not None and not self.context.holds_lock:
            wait_for_foreign_writers(self.context, self.settings, base_timeline, self.instant_time, waited_for)
        if check is not None and not planned.shares_groups:
            check.check_unlocked(None, groups)
        # Another process may run the same plan, with the same instant time; only the lock shows whose files these are.
        is_shared = self.may_have_late_attempts or self.action.is_service
        if not is_shared:
            delete_unreported_files(self.context.storage, self.instant_time, planned.metadata)
        validated = self._validated(planned)
        with ExitStack() as stack:
            end_prefetch = None if check is None else stack.enter_context(check.prefetching())
            locked = stack.enter_context(self.context.locked(self.settings.lock_wait_ms))
            if end_prefetch is not None:
                end_prefetch()
            self.heartbeat.check()
            now = self._owned_timeline(locked)
            metadata = planned.metadata
            if planned.verify is not None:
                metadata = replace(metadata, extra_metadata={**metadata.extra_metadata, **(planned.verify(now) or {})})
            if planned.validate is not None and now.completed_writes() != validated:
                planned.validate(now)
            metadata = self._with_rolling_metadata(metadata, now)
            if base_timeline is not None:
                reject_late_foreign_writers(self.context, self.settings, base_timeline, now, self.instant_time, waited_for)
            if check is not None:
                check.check(now, groups)
                if now.last_completed_write() is None:
                    self._check_create_schema(locked)
            recorded = record_columns(
                LockedCommit(locked, self.instant_time, self.action, metadata, now, self._commits),
                planned.start,
                self.columns,
                self.without_ids,
            )
            commit = recorded.commit
            if is_shared:
                delete_unreported_files(locked.storage, self.instant_time, commit.metadata)
            if planned.metadata_commit is not None:
                self.metadata_timeline = planned.metadata_commit(commit)
            elif self.context.config.metadata_partitions:
                raise Internal(
                    f"{self.action} {self.instant_time} would leave the metadata table of {self.context.storage.uri} out of date"
                )
            done = self._complete(commit, recorded.history)
        self._tidy_up(commit.metadata, now if recorded.history else None)
        return done

    def _validated(self, planned: PlannedCommit) -> tuple[Instant, ...] | None:
        """Validate without the lock, and again after other writes have completed, up to a limit.

        Returns:
            The completed writes of the timeline on which the commit is valid, None without validators.
        """
        if planned.validate is None:
            return None
        now = self.context.timeline.load()
        for _ in range(_UNLOCKED_VALIDATIONS):
            planned.validate(now)
            self.heartbeat.check()
            validated, now = now.completed_writes(), self.context.timeline.load()
            if now.completed_writes() == validated or self.context.holds_lock:
                break
        return validated

    def _with_rolling_metadata(self, metadata: CommitMetadata, now: Timeline) -> CommitMetadata:
        """Return the commit metadata with the rolling entries that it lacks."""
        missing = [key for key in self.settings.rolling_keys if not metadata.extra_metadata.get(key)]
        if not missing:
            return metadata
        rolled = rolled_metadata(self._commits, self.context.timeline, now, missing, self.settings.rolling_lookback)
        return replace(metadata, extra_metadata={**metadata.extra_metadata, **rolled})

    def _check_create_schema(self, locked: TableContext) -> None:
        """Raise WriteConflict if the columns of a table without commits changed since this first write began."""
        if locked.reloaded().config.create_schema != self.context.config.create_schema:
            raise WriteConflict(f"the columns of {self.context.storage.uri} changed while {self.instant_time} was written")

    def _owned_timeline(self, locked: TableContext) -> Timeline:
        """Load the timeline under the lock. Raises WriteConflict as `check_ownership`."""
        files = locked.timeline.load_files()
        now = locked.timeline.build_timeline(files, self._planned_on)
        self.check_ownership(files, State.INFLIGHT, now)
        return now

    def _complete(self, commit: LockedCommit, history: tuple[VersionedSchema, ...] | None) -> Instant:
        """Take the completion time, and write the completed file after the schema history, if there is one."""
        completion_time = new_instant_time(self.context, commit.timeline, self.settings)
        if history:
            store_history(commit.context, self.instant_time, completion_time, history)
            completion_time = time_after(self.context, completion_time, self.settings)
        done = Instant(self.instant_time, completed_action(self.action), State.COMPLETED, completion_time)
        self.context.lock.check()
        self._publish(done, commit.metadata.encode(self.context.env.token_bytes(16)))
        self.completed = done
        return done

    def check_conflicts(self, start: WriteStart, groups: Collection[FileGroupId]) -> None:
        """Raise WriteConflict if `commit` would, by the current timeline. It needs no lock, and success proves nothing."""
        self._conflict_check(start).check(self.context.timeline.load(), groups)

    def check_requested_on_state(self, start: WriteStart, groups: Collection[FileGroupId]) -> None:
        """Raise WriteConflict if `commit` would, by the timeline at the time of the request, which is loaded already.

        A write that is planned on an older snapshot detects the conflict this way before it writes any file.
        """
        requested_on, planned_on = self.requested_on, self._planned_on
        if requested_on is not None and (planned_on is None or requested_on.instants != planned_on.instants):
            self._conflict_check(start).check_unlocked(requested_on, groups)

    def _conflict_check(self, start: WriteStart, planned: PlannedCommit | None = None) -> ConflictCheck:
        check = ConflictCheck(self.context, self.instant_time, self.action, start, self._commits, self.settings)
        if planned is None:
            return check
        return replace(
            check,
            shares_groups=planned.shares_groups,
            ignored_instants=planned.ignored_instants,
        )

    def check_ownership(self, files: Collection[Instant], state: State, now: Timeline | None = None) -> None:
        """Raise WriteConflict if another process has rolled the action back, or is about to.

        Args:
            files: All instant files of the timeline.
            state: The state that this action has reached. A file that a writer stored after its instant was rolled back
                exists without the files of the earlier states.
            now: The timeline of the files, if it is built already.
        """
        own_files = {Instant(self.instant_time, self.action, step) for step in State if step <= state}
        now = self.context.timeline.build_timeline(files) if now is None else now
        if not own_files.issubset(files) or self.instant_time in load_rollback_targets(self.context.timeline, now):
            raise WriteConflict(
                f"{self.action} {self.instant_time} of {self.context.storage.uri} was rolled back by another writer "
                "while it was running",
                instants=(self.instant_time,),
            )
        if self.was_reclaimed():
            raise WriteConflict(
                f"{self.action} {self.instant_time} of {self.context.storage.uri} was taken over by another process, "
                "which considered this writer failed; leave the action to that process",
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
                delete_unreported_files(self.context.storage, self.instant_time, metadata)
            Markers(self.context.storage, self.instant_time).delete()
        except HudiError as error:
            self.heartbeat.stop(delete=False)
            _LOG.warning("%s %s is committed; its markers could not be removed: %s", self.action, self.instant_time, error)

    def _publish(self, completed_instant: Instant, content: bytes) -> None:
        path = self.context.timeline.path(completed_instant)
        self.publishing = True
        try:
            landed = put_if_absent_confirmed(self.context.storage, path, add_checksum_marker(content), self.context.env)
        except StorageUnavailable as error:
            raise CommitUnknown(
                f"the store did not confirm whether {self.context.storage.absolute(path)} was written; load the table "
                f"and look for instant {self.instant_time} before writing again, and delete nothing",
                instant=self.instant_time,
            ) from error
        if not landed:
            raise TableState(f"{self.context.storage.absolute(path)} exists already; another process completed this instant")
