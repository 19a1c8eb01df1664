"""Transactions: the only path on which a write or table service commits.

    begin       lock: a new instant time, the requested file; unlock; a heartbeat shows that the writer is alive
    start       the inflight file, before any data file
    (tasks)     marker, then data file, for every file
    commit      lock: reload the timeline; check ownership of the instant; detect conflicts with concurrent instants;
                delete files of failed task attempts; update the metadata table; take the completion time; write the
                completed file by put-if-absent; unlock, which proves that the lock was held until then; without the
                proof, look (`late_commit`)
    tidy up     remove markers and heartbeat

A crash at any point leaves the table unchanged for every reader: data files become visible only with the completed file
of their instant. The next writer rolls the rest back. Outcomes: committed; `WriteConflict` (this write was rolled
back); `CommitUnknown` (the store did not confirm the result).

Source: docs/formats/timeline.md, "Writing a state"; docs/formats/writing.md, "Completing a commit".
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from pyhudi.errors import CommitUnknown, HudiError, Internal, StorageUnavailable, TableState, WriteConflict, get_logger
from pyhudi.format.actions.commit_metadata import CommitMetadata
from pyhudi.format.avro.container import add_checksum_marker
from pyhudi.format.instants import Action, Instant, State, completed_action
from pyhudi.format.schema_history import VersionedSchema
from pyhudi.operations.admin.restore import after_dead_restore
from pyhudi.operations.commit.begin_checks import check_may_begin
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.conflict_check import ConflictCheck
from pyhudi.operations.commit.foreign_index_builds import check_index_builds_recorded, wait_for_index_builds
from pyhudi.operations.commit.hudi_writers import (
    drop_overtaken_clusterings,
    reject_late_foreign_writers,
    wait_for_foreign_writers,
)
from pyhudi.operations.commit.instant_times import new_instant_time, time_after
from pyhudi.operations.commit.late_commit import (
    Publication,
    check_read_commits_remain,
    confirm_late_commit,
    warn_of_late_commits,
)
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

_LOG = get_logger("pyhudi.operations.commit.transaction")


_LONGEST_CONFIRMATION_MS = 60_000
"""How long a writer waits for the lock to look whether its commit, which is in doubt, was stored."""

_LAST_TIMELINE = "timeline after the last commit"

_UNLOCKED_VALIDATIONS = 3
"""Validations without the lock while other writes keep completing; the next one keeps them waiting."""


def inflight_modified_ms(context: TableContext, request_time: str, action: Action) -> int | None:
    """Return the modification time of an action's inflight file, by the store's clock, or None if there is none."""
    inflight = context.storage.stat(context.timeline.path(Instant(request_time, action, State.INFLIGHT)))
    return None if inflight is None else inflight.modified_ms


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
    inflight_ms: int | None = field(default=None)
    columns: WrittenColumns | None = field(default=None)
    without_ids: Timeline | None = field(default=None)
    metadata_timeline: Timeline | None = field(default=None)
    may_have_late_attempts: bool = field(default=False)
    config: TableConfig | None = field(default=None, repr=False)
    _publication: Publication | None = field(default=None, repr=False)
    _commits: CommitCache = field(default_factory=CommitCache, repr=False)
    _planned_on: Timeline | None = field(default=None, repr=False)

    @classmethod
    def begin(
        cls, context: TableContext, action: Action, settings: CommitSettings, requested: bytes = b"", *, at: str | None = None
    ) -> Transaction:
        """Take an instant time and write the requested file, after completing the restore of a dead process.

        Args:
            requested: Content of the requested file.
            at: Fixed instant time to use instead of the clock.

        Raises:
            TableState: A restore is pending, the table's version changed, or an instant with this time exists.
            TableNotFound: The table was removed before anything was written.
        """
        return after_dead_restore(context, settings, lambda: cls._begin(context, action, settings, requested, at))

    @classmethod
    def _begin(
        cls, context: TableContext, action: Action, settings: CommitSettings, requested: bytes, at: str | None
    ) -> Transaction:
        heartbeat: WriterHeartbeat | None = None
        try:
            with context.locked(settings.lock_wait_ms) as locked:
                # The writer plans on this timeline after the lock is released.
                timeline = context.timeline.load()
                config = check_may_begin(context, timeline, "writing")
                warn_of_late_commits(context, context.operation_cache.get(_LAST_TIMELINE), timeline)
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
        return cls(context, settings, time, action, heartbeat, timeline, config=config)

    def planned_on(self, snapshot: Snapshot) -> None:
        """Record the snapshot this transaction was planned on: its column-id mode and the commit metadata already loaded."""
        self._commits.add(snapshot.commits)
        self._planned_on = snapshot.timeline
        self.without_ids = snapshot.timeline if snapshot.history is None else None

    def start(self, content: bytes = b"") -> None:
        """Write the inflight file; data files may follow."""
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
        if planned.changes_files and self.requested_on is not None and self.requested_on.pending(Action.INDEXING):
            wait_for_index_builds(self.context, self.settings)
        # Another process may run the same plan, with the same instant time; only the lock shows whose files these are.
        is_shared = self.may_have_late_attempts or self.action.is_service
        if not is_shared:
            delete_unreported_files(self.context.storage, self.instant_time, planned.metadata)
        validated = self._validated(planned)
        try:
            with ExitStack() as stack:
                end_prefetch = None if check is None else stack.enter_context(check.prefetching())
                locked = stack.enter_context(self.context.locked(self.settings.lock_wait_ms))
                if end_prefetch is not None:
                    end_prefetch()
                self.heartbeat.check()
                files, current_timeline = self._owned_timeline(locked)
                warn_of_late_commits(self.context, self.requested_on, current_timeline)
                check_read_commits_remain(self.context, self._description, self._planned_on, current_timeline)
                metadata = self._verified_metadata(planned, validated, current_timeline)
                if base_timeline is not None:
                    reject_late_foreign_writers(
                        self.context, self.settings, base_timeline, current_timeline, self.instant_time, waited_for
                    )
                if planned.changes_files:
                    check_index_builds_recorded(locked, self.settings, current_timeline)
                if check is not None:
                    self._check_conflicts_under_lock(check, locked, current_timeline, groups)
                recorded = record_columns(
                    LockedCommit(locked, self.instant_time, self.action, metadata, current_timeline, self._commits),
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
                        f"{self._description} would leave the metadata table of {self.context.storage.uri} out of date"
                    )
                self._complete(commit, recorded.history, files)
        except StorageUnavailable as failure:
            publication = self._publication
            if publication is None:
                raise
            confirm_late_commit(self.context, self.settings, publication, failure, self._confirmation_ms())
            # What it wrote to the metadata table may not be the last there.
            self.metadata_timeline = None
        assert self._publication is not None, "it was published"
        self.completed = self._publication.instant
        with_own = Timeline.of((*current_timeline.instants, self.completed), current_timeline.archived_completions)
        self.context.operation_cache.put(_LAST_TIMELINE, with_own)
        self._tidy_up(commit.metadata, current_timeline if recorded.history else None)
        return self.completed

    @property
    def _description(self) -> str:
        return f"{self.action} {self.instant_time}"

    def _confirmation_ms(self) -> int:
        """How long to wait for the lock when the commit is in doubt."""
        return min(self.settings.lock_wait_ms, _LONGEST_CONFIRMATION_MS)

    def _verified_metadata(
        self, planned: PlannedCommit, validated: tuple[Instant, ...] | None, current_timeline: Timeline
    ) -> CommitMetadata:
        """Return the commit metadata after the planned checks of the timeline under the lock."""
        verified = (planned.verify(current_timeline) or {}) if planned.verify is not None else {}
        extra = {**planned.metadata.extra_metadata, **dict(self.settings.extra_metadata), **verified}
        metadata = replace(planned.metadata, extra_metadata=extra)
        if planned.validate is not None and current_timeline.completed_writes() != validated:
            planned.validate(current_timeline)
        return self._with_rolling_metadata(metadata, current_timeline)

    def _validated(self, planned: PlannedCommit) -> tuple[Instant, ...] | None:
        """Validate without the lock, and again after other writes have completed, up to a limit.

        Returns:
            The completed writes of the timeline on which the commit is valid, None without validators.
        """
        if planned.validate is None:
            return None
        current_timeline = self.context.timeline.load()
        for _ in range(_UNLOCKED_VALIDATIONS):
            planned.validate(current_timeline)
            self.heartbeat.check()
            validated, current_timeline = current_timeline.completed_writes(), self.context.timeline.load()
            if current_timeline.completed_writes() == validated or self.context.holds_lock:
                break
        return validated

    def _with_rolling_metadata(self, metadata: CommitMetadata, current_timeline: Timeline) -> CommitMetadata:
        """Return the commit metadata with the rolling entries that it lacks."""
        missing = [key for key in self.settings.rolling_keys if not metadata.extra_metadata.get(key)]
        if not missing:
            return metadata
        rolled = rolled_metadata(self._commits, self.context.timeline, current_timeline, missing, self.settings.rolling_lookback)
        return replace(metadata, extra_metadata={**metadata.extra_metadata, **rolled})

    def _check_conflicts_under_lock(
        self, check: ConflictCheck, locked: TableContext, current_timeline: Timeline, groups: set[FileGroupId]
    ) -> None:
        """Raise WriteConflict if another instant won; drop plans that would undo the write if another engine ran them."""
        check.check(current_timeline, groups)
        if current_timeline.last_completed_write() is None:
            self._check_create_schema(locked)
        if not self.action.is_service:
            drop_overtaken_clusterings(locked, self.settings, check.earlier_clusterings(current_timeline), groups)

    def _check_create_schema(self, locked: TableContext) -> None:
        """Raise WriteConflict if the columns of a table without commits changed since this first write began."""
        if locked.reloaded().config.create_schema != self.context.config.create_schema:
            raise WriteConflict(f"the columns of {self.context.storage.uri} changed while {self.instant_time} was written")

    def _owned_timeline(self, locked: TableContext) -> tuple[tuple[Instant, ...], Timeline]:
        """Load all instant files and the timeline under the lock.

        Raises:
            WriteConflict: As `check_ownership`; or a restore has begun, which removes this action or what it builds on.
        """
        files = locked.timeline.load_files()
        current_timeline = locked.timeline.build_timeline(files, self._planned_on)
        self.check_ownership(files, State.INFLIGHT, current_timeline)
        restoring = current_timeline.pending(Action.RESTORE)
        if restoring:
            raise WriteConflict(
                f"restore {restoring[0].request_time} of {self.context.storage.uri} began while {self._description} was running; "
                "plan it again after the restore",
                instants=(restoring[0].request_time,),
            )
        return files, current_timeline

    def _complete(
        self,
        commit: LockedCommit,
        history: tuple[VersionedSchema, ...] | None,
        files: Collection[Instant],
    ) -> None:
        """Take the completion time, and write the completed file after the schema history, if there is one."""
        completion_time = new_instant_time(self.context, commit.timeline, self.settings)
        if history:
            store_history(commit.context, self.instant_time, completion_time, history)
            completion_time = time_after(self.context, completion_time, self.settings)
        completed_instant = Instant(self.instant_time, completed_action(self.action), State.COMPLETED, completion_time)
        content = add_checksum_marker(commit.metadata.encode(self.context.env.token_bytes(16)))
        self.context.lock.check()
        self.publishing = True
        self._publication = Publication(completed_instant, self.action, content, frozenset(files), commit.metadata)
        storage, path = commit.context.storage, self.context.timeline.path(completed_instant)
        if not put_if_absent_confirmed(storage, path, content, self.context.env):
            raise TableState(f"{storage.absolute(path)} exists already; another process completed this instant")

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

    def check_ownership(self, files: Collection[Instant], state: State, current_timeline: Timeline | None = None) -> None:
        """Raise WriteConflict if another process has rolled the action back, or is about to.

        Args:
            files: All instant files of the timeline.
            state: The state that this action has reached. A file that a writer stored after its instant was rolled back
                exists without the files of the earlier states.
            current_timeline: The timeline of the files, if it is built already.
        """
        own_files = {Instant(self.instant_time, self.action, step) for step in State if step <= state}
        current_timeline = self.context.timeline.build_timeline(files) if current_timeline is None else current_timeline
        if not own_files.issubset(files) or self.instant_time in load_rollback_targets(self.context.timeline, current_timeline):
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
        return inflight_modified_ms(self.context, self.instant_time, self.action) not in (None, self.inflight_ms)

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
