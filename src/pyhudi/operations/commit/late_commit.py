"""Commits whose completed file may have reached the store after the table lock was lost.

A commit is acknowledged only with the proof that the lock was held until its completed file was stored. Without it, or
without an answer of the store, the writer takes the lock again and looks (`confirm_late_commit`):

    completed file missing, timeline unchanged      publish it again
    stored before any change of another writer      the commit is right
    stored after a change that did not see it       roll it back: WriteConflict, and the write is planned again
    anything else                                   CommitUnknown

The order is that of the store's modification times. A commit that is stored still later, after its writer ended with
CommitUnknown, is found by the next commits of other writers (`warn_of_late_commits`).

Source: docs/failure-model.md, "Slow stores".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pyhudi.errors import CommitUnknown, HudiError, StorageUnavailable, WriteConflict, get_logger
from pyhudi.format.actions.commit_metadata import CommitMetadata
from pyhudi.format.actions.rollback_metadata import RollbackPlan
from pyhudi.format.instants import Action, Instant, State
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.rollback import execute_planned_rollback, plan_rollback_of_unseen
from pyhudi.operations.commit.touched_file_groups import written_groups
from pyhudi.storage.deadlines import within_lease
from pyhudi.storage.locks import LockLost
from pyhudi.table.pending_plans import load_plan_files
from pyhudi.table.snapshot import load_rollback_targets, read_commit
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import WRITE_ACTIONS, Timeline

_LOG = get_logger("pyhudi.operations.commit.late_commit")

_ATTEMPTS = 3
"""How often the lock is taken to look, if it is lost each time."""

_LONGEST_REPETITION_MS = 15_000
"""How long to publish a commit again whose first publication used up its deadline."""

_PLANNED = (Action.COMPACTION, Action.LOGCOMPACTION, Action.CLUSTERING)

_HARMLESS = frozenset({Action.CLEAN, Action.SAVEPOINT, Action.ROLLBACK})
"""Actions that depend on no write that completes at the same time."""


@dataclass(frozen=True, slots=True)
class Publication:
    """A commit that is being published.

    Attributes:
        instant: The completed instant.
        action: The action of its pending files.
        content: Content of the completed file.
        known: All instant files when conflicts were checked.
        metadata: Its commit metadata.
    """

    instant: Instant
    action: Action
    content: bytes
    known: frozenset[Instant]
    metadata: CommitMetadata


class _Unproven(Exception):
    """The outcome cannot be determined; the text completes the message of CommitUnknown."""


def confirm_late_commit(
    context: TableContext, settings: CommitSettings, publication: Publication, failure: StorageUnavailable, wait_ms: int
) -> None:
    """Return if the commit is right, after taking the lock again.

    Args:
        context: The table.
        settings: Commit settings.
        publication: The commit.
        failure: Why it is in doubt.
        wait_ms: Maximum time to wait for the lock, in milliseconds.

    Raises:
        WriteConflict: Other writers changed the table before the commit was stored. It was rolled back.
        CommitUnknown: The outcome cannot be determined.
    """
    reason = str(failure)
    for _ in range(_ATTEMPTS):
        planned = None
        try:
            with context.locked(wait_ms) as locked:
                planned = _examine(locked, settings, publication)
        except LockLost as lost:
            reason = str(lost)
            continue
        except (StorageUnavailable, _Unproven) as error:
            raise unknown_commit(context, publication, str(error)) from failure
        if planned is None:
            return
        requested, plan = planned
        execute_planned_rollback(context, requested, settings, plan)
        raise WriteConflict(
            f"{publication.action} {publication.instant.request_time} of {context.storage.uri} reached the store after its lock "
            "had expired and other writers had changed the table; it was rolled back. Plan the write again",
            instants=(publication.instant.request_time,),
        ) from failure
    raise unknown_commit(context, publication, reason) from failure


def unknown_commit(context: TableContext, publication: Publication, reason: str) -> CommitUnknown:
    """The error for a commit whose outcome is not known."""
    path = context.storage.absolute(context.timeline.path(publication.instant))
    return CommitUnknown(
        f"the store did not confirm whether {path} was written; load the table and look for instant "
        f"{publication.instant.request_time} before writing again, and delete nothing: {reason}",
        instant=publication.instant.request_time,
    )


def _examine(
    locked_context: TableContext, settings: CommitSettings, publication: Publication
) -> tuple[Instant, RollbackPlan] | None:
    """Publish a missing completed file again, or begin the rollback of a late one: its instant and plan.

    Raises:
        _Unproven: The outcome cannot be determined.
        WriteConflict: Another writer has rolled the instant back.
    """
    store, own = locked_context.timeline, publication.instant
    stored_ms = {i: info.modified_ms for info in store.listed() for i in store.parse_instants((info,))}
    others = {i: ms for i, ms in stored_ms.items() if i not in publication.known and i.request_time != own.request_time}
    timeline = store.build_timeline(stored_ms)
    pending = {Instant(own.request_time, publication.action, state) for state in (State.REQUESTED, State.INFLIGHT)}
    if not pending.issubset(stored_ms) or own.request_time in load_rollback_targets(store, timeline):
        if own not in stored_ms:
            raise _Unproven("another writer has rolled the instant back")
        store.remove_completed(own)
        raise WriteConflict(
            f"{publication.action} {own.request_time} of {locked_context.storage.uri} reached the store after another writer had "
            "rolled it back; plan the write again",
            instants=(own.request_time,),
        )
    if own not in stored_ms:
        if others:
            raise _Unproven("it is not there yet, and other writers have changed the table since")
        env = locked_context.env
        end_ms = env.monotonic_ms() + _LONGEST_REPETITION_MS
        with within_lease(lambda: end_ms - env.monotonic_ms()):
            # False means that an earlier request has just arrived, and no other writer was between.
            locked_context.storage.put_if_absent(store.path(own), publication.content)
        return None
    early = [i for i, ms in others.items() if ms <= stored_ms[own] and _changes_table(i)]
    if not early:
        return None
    later = [i for i, ms in others.items() if ms >= stored_ms[own] and i.is_completed and i.action in WRITE_ACTIONS]
    dependent = next((i for i in later if _may_build_on(locked_context, i, stored_ms, publication)), None)
    if dependent is not None:
        raise _Unproven(
            f"it reached the store after {early[0].action} {early[0].request_time} of another writer, and {dependent.action} "
            f"{dependent.request_time} may build on it"
        )
    try:
        return plan_rollback_of_unseen(locked_context, own, settings)
    except StorageUnavailable:
        raise
    except HudiError as error:
        raise _Unproven(
            f"it reached the store after {early[0].action} {early[0].request_time} of another writer, and cannot be rolled back: "
            f"{error}"
        ) from error


def _may_build_on(locked_context: TableContext, later: Instant, files: Collection[Instant], publication: Publication) -> bool:
    """Return False if a commit that completed at the same time or later has not read the files of the publication."""
    store, own = locked_context.timeline, publication.metadata
    plans = (Instant(later.request_time, action, State.REQUESTED) for action in _PLANNED)
    plan = next((plan for plan in plans if plan in files), None)
    if plan is not None:
        written = {stat.path for stats in own.partition_to_write_stats.values() for stat in stats}
        return not written.isdisjoint(load_plan_files(store, plan))
    groups, metadata = written_groups(own), read_commit(store, later)
    for partition, stats in metadata.partition_to_write_stats.items():
        for stat in stats:
            is_shared = (partition, stat.file_id or "") in groups
            # A log file does not record which other files of its file group its writer has read.
            if is_shared and (stat.log_version is not None or stat.prev_commit == publication.instant.request_time):
                return True
    return False


def _changes_table(instant: Instant) -> bool:
    """Return True unless an instant file of another writer has no meaning for a commit that it did not see.

    A pending write will see the commit when it checks for conflicts itself.
    """
    return instant.action not in _HARMLESS and (instant.is_completed or instant.action not in WRITE_ACTIONS)


def check_read_commits_remain(context: TableContext, what: str, earlier: Timeline | None, current: Timeline) -> None:
    """Raise WriteConflict if a write that was completed when a write was planned has been rolled back since.

    Args:
        context: The table.
        what: Describes the write that was planned, for the message.
        earlier: The timeline on which it was planned, None if unknown.
        current: The current timeline.
    """
    if earlier is None:
        return
    remaining = {i.request_time for i in current.completed_writes()}
    for instant in earlier.completed_writes():
        if instant.request_time not in remaining and not current.is_completed(instant.request_time):
            raise WriteConflict(
                f"{what} of {context.storage.uri} builds on {instant.request_time}, which was rolled back concurrently; "
                "plan the write again",
                instants=(instant.request_time,),
            )


def warn_of_late_commits(context: TableContext, earlier: Timeline | None, current: Timeline) -> tuple[Instant, ...]:
    """Report commits that were stored after others with a later completion time, which therefore did not see them.

    Args:
        context: The table.
        earlier: A timeline that this process loaded under the lock before, None if there is none.
        current: The timeline, loaded under the lock.

    Returns:
        The late commits.
    """
    if earlier is None:
        return ()
    completions: Mapping[str, str] = {i.request_time: i.completion_time or "" for i in earlier.completed_writes()}
    latest = max(completions.values(), default="")
    late = tuple(
        i for i in current.completed_writes() if i.request_time not in completions and (i.completion_time or "") < latest
    )
    if late:
        _LOG.warning(
            "%s: %s reached the store after later commits, so their writers had lost the table lock; rows of one may hide rows "
            "of the other. Compare the commits of the same file groups, and write lost rows again",
            context.storage.uri,
            _described(late),
        )
    return late


def _described(instants: Collection[Instant]) -> str:
    return ", ".join(f"{i.action} {i.request_time}" for i in instants)
