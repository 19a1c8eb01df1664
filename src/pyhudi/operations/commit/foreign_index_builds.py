"""Commits while Hudi builds an index of the metadata table.

Hudi puts `<t>.indexing.inflight` on the timeline, then records the new partitions as inflight in the properties, builds
them from the timeline that it loaded before, and finally catches up: it lists the instants after its snapshot, and

- takes an instant for indexed if the metadata table has a delta commit of its time, with or without the new partitions;
- waits for each instant that is pending until it is completed. The rollback of an instant does not end the wait.

So a commit is planned again if a build has begun since its request, and waits until the new partitions are recorded: then
it writes its part of them itself. And a write that will not commit is completed without rows (see `action_attempt`).

Builds of PyHudi need neither: they load their snapshot and record the partitions under the table's lock.
"""

from __future__ import annotations

from pyhudi.errors import CorruptData, IndexStarted, TableState
from pyhudi.format.actions.index_plan import IndexPlan
from pyhudi.format.avro.container import is_sealed
from pyhudi.format.instants import Action, Instant, State
from pyhudi.operations.commit.action_liveness import is_action_dead, is_foreign
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.options.write_options import SERVICE_EXPIRY_MS
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline

_LONGEST_WAIT_MS = 60_000
_PAUSE_MS = 100

_STARTING_MS = 10_000
"""How long a plan counts as about to be started: Hudi loads the timeline that it builds from before its inflight file."""


def foreign_index_builds(context: TableContext, settings: CommitSettings, timeline: Timeline) -> list[Instant]:
    """Return pending index builds that a process of Hudi runs or may start."""
    return [i for i in timeline.pending(Action.INDEXING) if _is_of_hudi(context, i) and not is_action_dead(context, i, settings)]


def wait_for_index_builds(context: TableContext, settings: CommitSettings) -> None:
    """Wait until the properties record all partitions that Hudi builds, so that this commit can update them.

    Raises:
        TableState: They were not recorded in time.
    """
    deadline_ms = context.env.monotonic_ms() + _LONGEST_WAIT_MS
    while unrecorded := _unrecorded_build(context, settings, context.timeline.load()):
        if context.env.monotonic_ms() >= deadline_ms:
            raise TableState(
                f"cannot commit to {context.storage.uri}: Hudi began to build an index ({unrecorded}) and has not recorded it in "
                f"the table's properties for {_LONGEST_WAIT_MS // 1000} s. Repeat the write later, or if no process runs the "
                f"build, abort it with Table.index.abort({unrecorded.request_time!r}) or set {SERVICE_EXPIRY_MS}=0"
            )
        context.env.sleep_ms(_PAUSE_MS)


def check_index_builds_recorded(locked_context: TableContext, settings: CommitSettings, current_timeline: Timeline) -> None:
    """Raise IndexStarted if Hudi builds partitions that the properties do not record. The caller holds the lock."""
    unrecorded = _unrecorded_build(locked_context, settings, current_timeline)
    if unrecorded is not None:
        raise IndexStarted(
            f"Hudi began to build an index of {locked_context.storage.uri} ({unrecorded}) during this write; "
            "plan the write again",
            instants=(unrecorded.request_time,),
        )


def _unrecorded_build(context: TableContext, settings: CommitSettings, timeline: Timeline) -> Instant | None:
    pending = foreign_index_builds(context, settings, timeline)
    if not pending:
        return None
    config = context.reloaded().config
    if not config.has_metadata_table:
        # The commit is not in a metadata table, so Hudi does not take it for indexed.
        return None
    recorded = {*config.metadata_partitions, *config.metadata_partitions_inflight}
    return next((i for i in pending if _is_starting(context, i) and not _planned(context, i) <= recorded), None)


def _is_of_hudi(context: TableContext, instant: Instant) -> bool:
    """Return True for a started build without a heartbeat, and for a plan that Hudi wrote."""
    if not is_foreign(context, instant):
        return False
    if instant.state is State.INFLIGHT:
        return True
    plan = context.timeline.read_state(instant.request_time, Action.INDEXING, State.REQUESTED)
    try:
        return plan is not None and not is_sealed(plan)
    except CorruptData:
        # The plan is being written.
        return True


def _is_starting(context: TableContext, instant: Instant) -> bool:
    """Return True for a build that was started, or whose plan is so new that it may be started now."""
    if instant.state is State.INFLIGHT:
        return True
    requested = context.storage.stat(context.timeline.path(instant))
    return requested is not None and context.env.now_ms() - requested.modified_ms < _STARTING_MS


def _planned(context: TableContext, instant: Instant) -> set[str]:
    plan = context.timeline.read_state(instant.request_time, Action.INDEXING, State.REQUESTED)
    try:
        infos = () if plan is None else IndexPlan.decode(plan).index_partition_infos or ()
    except CorruptData:
        # The plan is being written: its partitions are unknown.
        return {""}
    return {info.metadata_partition_path or "" for info in infos}
