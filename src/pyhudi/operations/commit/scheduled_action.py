"""Planned actions: what one process plans and one carries out, the same or another, now or later.

    schedule    lock: no restore is pending; `<t>.<action>.requested` holds the plan
    take up     what a dead attempt left is undone; lock: the plan is pending and nobody lives who carries it out; a heartbeat;
                `<t>.<action>.inflight`.  Whoever plans may take up in the same breath, and then nobody comes in between
    carry out   tasks on the engine, one for each piece of the plan; every attempt has files of its own
    publish     the commit of `transaction`: still ours, not overtaken, metadata table, completed file
    take back   an attempt that fails is rolled back; the plan stays or goes with it, as `Action.retains_plan` says

An action is an instance of `ScheduledAction`: what it plans and what carrying that out means.  All else is here, once.  Those
that write file groups anew are instances of `RewriteAction`, and say no more than which tasks do it and what must still hold at
the end.

Source: docs/formats/timeline.md; docs/formats/writing.md, "Compaction" and "Clustering".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from pyhudi.errors import CorruptData, TableState, WriteConflict
from pyhudi.format.actions.commit_metadata import Operation
from pyhudi.format.instants import Action, Instant, State
from pyhudi.format.paths import join_path
from pyhudi.metadata_table.writer.metadata_commit import prepare_metadata_commit
from pyhudi.operations.commit.action_attempt import Phases, rollback_on_error
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.hbase_hooks import told_to_hbase
from pyhudi.operations.commit.plan_ownership import PlanSuperseded, PlanTaken, claim, drop_plan, plan_and_claim
from pyhudi.operations.commit.rollback import finish_pending_rollbacks, rollback_failed_attempt
from pyhudi.operations.commit.service_result import NotDue, Run, RunSummary, Scheduled
from pyhudi.operations.commit.transaction import Transaction, check_may_begin, commit_metadata, new_instant_time
from pyhudi.operations.services.clean_state import load_deleted_files
from pyhudi.planning.conflicts import WriteStart
from pyhudi.table.pending_plans import plan_files
from pyhudi.table.snapshot import Snapshot, load_snapshot, retry_on_stale_files
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.tasks.engine_protocol import Engine
from pyhudi.tasks.file_stats import FileIndexing
from pyhudi.tasks.write_tasks import WriteStatus

GroupT = TypeVar("GroupT")
"""A plan as the value that its tasks and its result are made from."""


@dataclass(frozen=True, slots=True)
class ScheduledAction(ABC, Generic[Run]):
    """What one kind of planned action is, on one table.  Run: what carrying out one plan comes to.

    description: completes "run it again before ...".  resumes: an attempt that died is carried on, not undone.
    """

    context: TableContext

    action: ClassVar[Action]
    description: ClassVar[str]
    resumes: ClassVar[bool] = False

    @property
    @abstractmethod
    def commit(self) -> CommitSettings:
        """How it commits."""

    @abstractmethod
    def check(self) -> None:
        """Raises what forbids the action on this table.  Asked before anything is planned or carried out."""

    def prepare(self, *, if_due: bool) -> NotDue | None:
        """What planning does before the lock is taken; NotDue when it shows that there is nothing to plan."""
        return None

    def load_context(self, locked_context: TableContext) -> Snapshot:
        """The table to plan on.  locked_context: while the caller holds its lock."""
        return load_snapshot(locked_context)

    @abstractmethod
    def plan(self, snapshot: Snapshot, time: str, *, if_due: bool) -> bytes | NotDue:
        """The plan, as its requested file holds it.  Called under the lock.

        time: the instant that it will have.  if_due: only when the action's trigger asks for it.
        """

    @abstractmethod
    def run(self, transaction: Transaction) -> Run:
        """Carry out the plan that a transaction of this process has claimed, and publish it; a failure takes it back."""


def schedule(service: ScheduledAction[Any], *, if_due: bool = False) -> Scheduled | NotDue:
    """Plan, and leave the plan to be carried out.  if_due: only when the trigger asks for it.

    Raises TableState while a restore is pending, and what the action's `check` raises.
    """
    service.check()
    finish_pending_rollbacks(service.context, service.commit, service.context.timeline.load())
    planned = _plan(service, if_due=if_due, claims=False)
    return planned if isinstance(planned, NotDue) else Scheduled(planned[0])


def plan_and_run(service: ScheduledAction[Run], *, if_due: bool = False) -> Run | NotDue:
    """Plan, and carry the plan out; it is this process's own from the start.  Raises as `schedule` and `run_planned`."""
    service.check()
    finish_pending_rollbacks(service.context, service.commit, service.context.timeline.load())
    planned = _plan(service, if_due=if_due, claims=True)
    if isinstance(planned, NotDue):
        return planned
    _, transaction = planned
    assert transaction is not None, "a plan that is claimed has a transaction"
    return service.run(transaction)


def run_planned(service: ScheduledAction[Run], request_time: str) -> Run:
    """Carry out one plan that is on the timeline.

    Raises InstantNotFound when it is not, PlanTaken when another process carries it out, WriteConflict when it was overtaken.
    """
    service.check()
    timeline = service.context.timeline.load()
    if finish_pending_rollbacks(service.context, service.commit, timeline):
        timeline = service.context.timeline.load()
    timeline.find(request_time, service.action)
    return service.run(_take_up(service, request_time))


def run_all(
    service: ScheduledAction[Run], *, if_due: bool, schedule: bool = True, should_continue: Callable[[], bool] = lambda: True
) -> RunSummary[Run]:
    """Carry out what is pending and nobody else carries out; then plan anew and carry that out.

    What overtook a plan stands, and nothing is wrong with the table: such a plan is left or dropped, and the next one takes up
    what is left to do.  if_due: plan only when the trigger asks for it.  schedule: False makes no new plan.  should_continue:
    asked before each plan; False leaves the rest as it is.
    """
    service.check()
    context, phases = service.context, Phases(service.context.env)
    timeline = context.timeline.load()
    if finish_pending_rollbacks(context, service.commit, timeline):
        timeline = context.timeline.load()
    runs: list[Run] = []
    left: dict[str, str] = {}

    def attempt(request_time: str, own: Transaction | None) -> None:
        try:
            runs.append(service.run(own or _take_up(service, request_time)))
        except PlanTaken as taken:
            left[request_time] = taken.reason
        except PlanSuperseded as overtaken:
            left[request_time] = f"dropped: {overtaken}" if _dropped(service, request_time) else str(overtaken)
        except WriteConflict as conflict:
            left[request_time] = str(conflict)

    for pending in timeline.pending(service.action):
        if should_continue():
            attempt(pending.request_time, None)
    phases.end("pending plans")
    if not schedule or not should_continue():
        return RunSummary(tuple(runs), left, None, "no plan is made", phases.seconds)
    planned = _plan(service, if_due=if_due, claims=True)
    phases.end("plan")
    if isinstance(planned, NotDue):
        return RunSummary(tuple(runs), left, None, planned.reason, phases.seconds)
    attempt(*planned)
    phases.end("run")
    return RunSummary(tuple(runs), left, planned[0], "", phases.seconds)


def _plan(service: ScheduledAction[Any], *, if_due: bool, claims: bool) -> tuple[str, Transaction | None] | NotDue:
    """Put a plan on the timeline: its instant, and its transaction where it is claimed with it."""
    context, commit = service.context, service.commit
    early = retry_on_stale_files(service.prepare)(if_due=if_due)
    if early is not None:
        return early
    with context.locked(commit.lock_wait_ms) as held:
        snapshot = service.load_context(held)
        check_may_begin(context, snapshot.timeline, service.description)
        time = new_instant_time(context, snapshot.timeline, commit)
        content = service.plan(snapshot, time, if_due=if_due)
        if isinstance(content, NotDue):
            return content
        taken = _taken_by_clean(held, snapshot.timeline, plan_files(service.action, content))
        if taken is not None:
            return taken
        if claims:
            return time, plan_and_claim(context, held, time, service.action, content, commit)
        held.timeline.request(time, service.action, content)
    return time, None


def _taken_by_clean(locked_context: TableContext, timeline: Timeline, files: frozenset[str]) -> NotDue | None:
    """Why no plan can be made that reads some files: a pending clean is about to delete one.

    A clean that is planned later sees the plan.
    """
    for clean in timeline.pending(Action.CLEAN):
        try:
            going = load_deleted_files(locked_context, clean).items()
        except CorruptData:
            # No process can continue a clean without its plan, so it deletes nothing more.  The clean service reports the damage.
            continue
        lost = files.intersection(join_path(partition, name) for partition, names in going for name in names)
        if lost:
            return NotDue(f"clean {clean.request_time} is about to delete {min(lost)}, which the plan would read")
    return None


def _take_up(service: ScheduledAction[Any], request_time: str) -> Transaction:
    """Make a pending plan this process's own, after what a dead process did of it is undone.  Raises PlanTaken."""
    context, action = service.context, service.action
    if not service.resumes:
        inflight = Instant(request_time, action, State.INFLIGHT)
        begun = inflight in context.timeline.load().pending(action)
        if begun and rollback_failed_attempt(context, request_time, action, service.commit) and not action.retains_plan:
            raise PlanTaken.of(context, action, request_time, "its last attempt died, so it was dropped")
    return claim(context, request_time, action, service.commit, resumes=service.resumes)


def _dropped(service: ScheduledAction[Any], request_time: str) -> bool:
    try:
        return drop_plan(service.context, service.commit, request_time, service.action)
    except PlanTaken:
        return False


@dataclass(frozen=True, slots=True)
class Rewrite(Generic[GroupT]):
    """One plan of a `RewriteAction`, ready to be carried out.

    plan: as a value, for the result.  task, tasks: what writes the new files, and each piece of it.  schema_text: of the commit.
    indexing: what tasks tell indexes.  replaced: partition -> file groups that the new ones replace; None when they stay what
    they are.  start: what writes are compared with at the end; None where the plan alone holds its file groups.  verify: looks at
    the timeline at the end and raises when the action may not complete any more.
    """

    plan: GroupT
    task: Callable[[Any], Iterable[WriteStatus] | WriteStatus | None]
    tasks: Sequence[object]
    indexing: FileIndexing | None
    replaced: Mapping[str, Sequence[str]] | None = None
    start: WriteStart | None = None
    verify: Callable[[Timeline], None] | None = field(default=None)


@dataclass(frozen=True, slots=True)
class RewriteAction(ScheduledAction[Run], Generic[Run, GroupT]):
    """A planned action that writes rows of file groups anew: compaction, log compaction, clustering.

    engine: where its tasks run; None where it is planned alone, by what the timeline and listings tell.  operation: as its commit
    says it.
    """

    engine: Engine | None

    operation: ClassVar[Operation]

    @property
    def workers(self) -> Engine:
        """The engine, for whoever has tasks to run."""
        assert self.engine is not None, "what runs tasks is given an engine"
        return self.engine

    @abstractmethod
    def load(self, snapshot: Snapshot, request_time: str) -> Rewrite[GroupT]:
        """The plan of an instant, and the tasks that carry it out.  Raises PlanSuperseded when it can never be carried out."""

    @abstractmethod
    def result(
        self, rewrite: Rewrite[GroupT], completed_instant: Instant, statuses: Sequence[WriteStatus], seconds: Mapping[str, float]
    ) -> Run:
        """What a plan that was carried out came to."""

    def run(self, transaction: Transaction) -> Run:
        context, time, phases = self.context, transaction.instant_time, Phases(self.context.env)
        with rollback_on_error(transaction):
            snapshot = load_snapshot(context).with_columns_as_of(time)
            if snapshot.schema is None:
                raise TableState(f"the table at {context.storage.uri} has no schema")
            rewrite = self.load(snapshot, time)
            phases.end("load")
            # Whoever was taken for dead must not write files that bear the time of what another process has completed.
            transaction.heartbeat.check()
            statuses: list[WriteStatus] = []
            for part in self.workers.map(rewrite.task, rewrite.tasks):
                transaction.heartbeat.check()
                statuses.extend(_statuses(part))
            phases.end("write")
            replaced = rewrite.replaced
            merges = self.operation is not Operation.CLUSTER
            metadata = commit_metadata(self.operation, statuses, snapshot.schema.avro, {}, replaced, compacted=merges)
            asked, schema = rewrite.indexing, snapshot.schema.arrow
            # What stays in its file group is where it was.
            hbase = self.commit.hbase if self.operation.moves_keys else None
            mirror = prepare_metadata_commit(
                context,
                self.engine,
                asked,
                schema,
                statuses,
                snapshot,
                time=time,
                operation=self.operation,
                replaced=replaced,
                retains_keys=hbase is not None,
            )
            touched = [(partition, file_id) for partition, ids in (replaced or {}).items() for file_id in ids]
            with told_to_hbase(context, self.workers, hbase, statuses, time):
                done = transaction.commit(metadata, rewrite.start, touched, mirror, rewrite.verify)
        phases.end("commit")
        return self.result(rewrite, done, statuses, phases.seconds)


def _statuses(part: Iterable[WriteStatus] | WriteStatus | None) -> Iterable[WriteStatus]:
    """What one task wrote: several files, one, or none where no row was left."""
    if part is None:
        return ()
    return (part,) if isinstance(part, WriteStatus) else part
