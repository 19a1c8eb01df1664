"""Check under the lock that an action may begin on the table as it was opened."""

from __future__ import annotations

from contextlib import suppress

from pyhudi.errors import CorruptData, TableState
from pyhudi.format.actions.restore_metadata import RestorePlan
from pyhudi.format.instants import Action, State
from pyhudi.operations.commit.action_liveness import is_foreign
from pyhudi.table.table_config import TableConfig
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline


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
        TableState: The version changed.
        RestorePending: A restore is pending; see `operations.admin.restore.after_dead_restore`.
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


class RestorePending(TableState):
    """A restore has begun and not finished."""


def check_no_pending_restore(context: TableContext, timeline: Timeline, doing: str) -> None:
    """Raise RestorePending while a restore is pending. ``doing`` completes "run it again before ..."."""
    restoring = timeline.pending(Action.RESTORE)
    if restoring:
        raise RestorePending(
            f"restore {restoring[0].request_time} of {context.storage.uri} did not finish; run it again before {doing}"
        )


def is_removed_by_hudi(context: TableContext, timeline: Timeline, request_time: str) -> bool:
    """Return True if a pending restore of Hudi removes an instant itself: it fails if the instant is rolled back before."""
    for restoring in timeline.pending(Action.RESTORE):
        plan = context.timeline.read_state(restoring.request_time, Action.RESTORE, State.REQUESTED)
        if plan and is_foreign(context, restoring):
            with suppress(CorruptData):
                return any(info.commit_time == request_time for info in RestorePlan.decode(plan).instants_to_rollback)
    return False
