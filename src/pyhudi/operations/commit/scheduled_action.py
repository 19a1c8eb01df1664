"""Scheduled actions: plans that one process schedules and the same or another process runs, at once or later.

    schedule    lock: check that no restore is pending; write the plan to `<t>.<action>.requested`
    claim       roll back a dead attempt; lock: check that the plan is pending and has no live owner; start a heartbeat;
                write `<t>.<action>.inflight`. The scheduling process may claim its plan under the same lock, before any
                other process
    run         tasks on the engine, one for each piece of the plan; every attempt writes files of its own
    publish     the commit of `transaction`: check ownership and conflicts, update the metadata table, write the
                completed file
    roll back   a failed attempt is rolled back; the plan is retained or removed, as `Action.retains_plan` defines

Each action is an instance of `ScheduledAction`, which defines how it plans and runs; this module implements everything
else once. Actions that rewrite file groups are instances of `RewriteAction`, which define only their tasks and the
final check.

Source: docs/formats/timeline.md; docs/formats/writing.md, "Compaction" and "Clustering".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from pyhudi.errors import CorruptData, TableState, WriteConflict
from pyhudi.format.actions.commit_metadata import Operation
from pyhudi.format.avro_to_arrow import check_supported
from pyhudi.format.instants import Action, Instant, State
from pyhudi.format.paths import join_path
from pyhudi.metadata_table.writer.metadata_commit import prepare_metadata_commit
from pyhudi.operations.admin.restore import after_dead_restore
from pyhudi.operations.commit.action_attempt import Phases, rollback_on_error
from pyhudi.operations.commit.action_liveness import is_foreign
from pyhudi.operations.commit.begin_checks import check_may_begin
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.hbase_hooks import update_hbase_index
from pyhudi.operations.commit.instant_times import new_instant_time
from pyhudi.operations.commit.plan_ownership import PlanSuperseded, PlanTaken, claim, drop_plan, plan_and_claim
from pyhudi.operations.commit.planned_commit import PlannedCommit, commit_metadata
from pyhudi.operations.commit.precommit_checks import ValidatorSettings, precommit_check
from pyhudi.operations.commit.rollback import finish_pending_rollbacks, rollback_failed_attempt
from pyhudi.operations.commit.service_result import NotDue, Run, RunSummary, Scheduled
from pyhudi.operations.commit.transaction import Transaction
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
"""The decoded plan, from which tasks and result are built."""


@dataclass(frozen=True, slots=True)
class ScheduledAction(ABC, Generic[Run]):
    """One kind of scheduled action on one table. The type parameter is the result of running one plan.

    Attributes:
        context: The table.
        action: The action on the timeline.
        inline: The service follows a write: it leaves plans alone that Hudi has started, even if that process is dead.
        description: Completes the message "run it again before ...".
        resumes: True if the work of a dead attempt is continued; False if it is rolled back.
    """

    context: TableContext
    inline: bool = field(default=False, kw_only=True)

    action: ClassVar[Action]
    description: ClassVar[str]
    resumes: ClassVar[bool] = False

    @property
    @abstractmethod
    def commit(self) -> CommitSettings:
        """The settings of its commits."""

    @abstractmethod
    def check(self) -> None:
        """Raise an error if the table does not allow the action. Called before planning and before running."""

    def prepare(self, *, if_due: bool) -> NotDue | None:
        """Prepare planning before the lock is taken; return NotDue if there is nothing to plan."""
        return None

    def load_context(self, locked_context: TableContext) -> Snapshot:
        """Load the snapshot to plan on. ``locked_context`` is the table while the caller holds its lock."""
        return load_snapshot(locked_context)

    @abstractmethod
    def plan(self, snapshot: Snapshot, time: str, *, if_due: bool) -> bytes | NotDue:
        """Create the plan, as the content of its requested file. Called under the lock.

        Args:
            snapshot: The snapshot to plan on.
            time: Request time of the plan.
            if_due: Plan only if the action's trigger fires.
        """

    @abstractmethod
    def run(self, transaction: Transaction) -> Run:
        """Run the plan that ``transaction`` has claimed, and publish it; a failed attempt is rolled back."""


def schedule(service: ScheduledAction[Any], *, if_due: bool = False) -> Scheduled | NotDue:
    """Schedule a plan without running it.

    Args:
        if_due: Plan only if the trigger fires.

    Raises:
        TableState: A restore is pending. Errors of the action's `check` are raised too.
    """
    service.check()
    finish_pending_rollbacks(service.context, service.commit, service.context.timeline.load())
    planned = _plan(service, if_due=if_due, claims=False)
    return planned if isinstance(planned, NotDue) else Scheduled(planned[0])


def plan_and_run(service: ScheduledAction[Run], *, if_due: bool = False) -> Run | NotDue:
    """Schedule a plan, claim it at once, and run it. Raises the errors of `schedule` and `run_planned`."""
    service.check()
    finish_pending_rollbacks(service.context, service.commit, service.context.timeline.load())
    planned = _plan(service, if_due=if_due, claims=True)
    if isinstance(planned, NotDue):
        return planned
    _, transaction = planned
    assert transaction is not None, "a claimed plan has a transaction"
    return service.run(transaction)


def run_planned(service: ScheduledAction[Run], request_time: str) -> Run:
    """Run one plan that is on the timeline.

    Raises:
        InstantNotFound: The plan is not on the timeline.
        PlanTaken: Another process is running it.
        WriteConflict: A concurrent commit changed the files that it reads.
    """
    service.check()
    timeline = service.context.timeline.load()
    if finish_pending_rollbacks(service.context, service.commit, timeline):
        timeline = service.context.timeline.load()
    timeline.find(request_time, service.action)
    return service.run(_claim_pending(service, request_time))


def run_all(
    service: ScheduledAction[Run],
    *,
    if_due: bool,
    schedule: bool = True,
    should_continue: Callable[[], bool] = lambda: True,
) -> RunSummary[Run]:
    """Run all pending plans without a live owner; then schedule a new plan and run it.

    A plan that lost against a concurrent commit does not damage the table: it stays pending or is dropped, and the next
    plan covers the remaining work.

    Args:
        if_due: Schedule only if the trigger fires.
        schedule: False schedules no new plan.
        should_continue: Called before each plan; if it returns False, the remaining plans stay pending.
    """
    service.check()
    context, phases = service.context, Phases(service.context.env)
    timeline = context.timeline.load()
    if finish_pending_rollbacks(context, service.commit, timeline):
        timeline = context.timeline.load()
    runs: list[Run] = []
    remaining: dict[str, str] = {}

    def attempt(request_time: str, own: Transaction | None) -> None:
        try:
            runs.append(service.run(own or _claim_pending(service, request_time)))
        except PlanTaken as taken:
            remaining[request_time] = taken.reason
        except PlanSuperseded as overtaken:
            remaining[request_time] = f"dropped: {overtaken}" if _try_drop(service, request_time) else str(overtaken)
        except WriteConflict as conflict:
            remaining[request_time] = str(conflict)

    for pending in timeline.pending(service.action):
        if service.inline and pending.state is State.INFLIGHT and is_foreign(context, pending):
            remaining[pending.request_time] = "a process of Hudi has started it; if that process died, run the service by itself"
        elif should_continue():
            attempt(pending.request_time, None)
    phases.end("pending plans")
    if not schedule or not should_continue():
        return RunSummary(tuple(runs), remaining, None, "no plan was scheduled", phases.seconds)
    planned = _plan(service, if_due=if_due, claims=True)
    phases.end("plan")
    if isinstance(planned, NotDue):
        return RunSummary(tuple(runs), remaining, None, planned.reason, phases.seconds)
    attempt(*planned)
    phases.end("run")
    return RunSummary(tuple(runs), remaining, planned[0], "", phases.seconds)


def _plan(service: ScheduledAction[Any], *, if_due: bool, claims: bool) -> tuple[str, Transaction | None] | NotDue:
    """Schedule a plan: return its request time, and its transaction if ``claims`` is True."""
    context, commit = service.context, service.commit
    not_due = retry_on_stale_files(service.prepare)(if_due=if_due)
    if not_due is not None:
        return not_due
    return after_dead_restore(context, commit, lambda: _plan_under_lock(service, if_due=if_due, claims=claims))


def _plan_under_lock(service: ScheduledAction[Any], *, if_due: bool, claims: bool) -> tuple[str, Transaction | None] | NotDue:
    context, commit = service.context, service.commit
    with context.locked(commit.lock_wait_ms) as locked:
        snapshot = service.load_context(locked)
        check_may_begin(context, snapshot.timeline, service.description)
        time = new_instant_time(context, snapshot.timeline, commit)
        content = service.plan(snapshot, time, if_due=if_due)
        if isinstance(content, NotDue):
            return content
        blocked = _blocked_by_clean(locked, snapshot.timeline, plan_files(service.action, content))
        if blocked is not None:
            return blocked
        if claims:
            return time, plan_and_claim(context, locked, time, service.action, content, commit)
        locked.timeline.request(time, service.action, content)
    return time, None


def _blocked_by_clean(locked_context: TableContext, timeline: Timeline, files: frozenset[str]) -> NotDue | None:
    """Return NotDue if a pending clean is about to delete one of ``files``. A clean that is planned later sees the plan."""
    for clean in timeline.pending(Action.CLEAN):
        try:
            files_to_delete = load_deleted_files(locked_context, clean).items()
        except CorruptData:
            # No process can continue a clean without its plan, so it deletes nothing more.  The clean service reports the damage.
            continue
        lost = files.intersection(join_path(partition, name) for partition, names in files_to_delete for name in names)
        if lost:
            return NotDue(f"clean {clean.request_time} is about to delete {min(lost)}, which the plan would read")
    return None


def _claim_pending(service: ScheduledAction[Any], request_time: str) -> Transaction:
    """Claim a pending plan, after rolling back a dead attempt. Raises PlanTaken."""
    context, action = service.context, service.action
    if not service.resumes:
        inflight = Instant(request_time, action, State.INFLIGHT)
        begun = inflight in context.timeline.load().pending(action)
        if begun and rollback_failed_attempt(context, request_time, action, service.commit) and not action.retains_plan:
            raise PlanTaken.of(context, action, request_time, "its last attempt failed, so it was dropped")
    return claim(context, request_time, action, service.commit, resumes=service.resumes)


def _try_drop(service: ScheduledAction[Any], request_time: str) -> bool:
    try:
        return drop_plan(service.context, service.commit, request_time, service.action)
    except PlanTaken:
        return False


@dataclass(frozen=True, slots=True)
class Rewrite(Generic[GroupT]):
    """One plan of a `RewriteAction`, ready to run.

    Attributes:
        plan: The decoded plan, for the result.
        task: Function that writes the new files of one piece of the plan.
        tasks: The pieces of the plan.
        indexing: What the tasks collect for index updates.
        replaced: File groups that the new ones replace, by partition; None if the file groups stay the same.
        start: The state that conflicts are detected against; None if the plan itself protects its file groups.
        verify: Checks the timeline under the lock, and raises if the action must not complete.
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
    """A scheduled action that rewrites file groups: compaction, log compaction or clustering.

    Attributes:
        engine: Runs its tasks; None if it only plans, from the timeline and listings.
        operation: Operation type in its commit metadata.
    """

    engine: Engine | None

    operation: ClassVar[Operation]

    @property
    def validators(self) -> ValidatorSettings | None:
        """Pre-commit validators; Hudi runs them for clusterings only, since merges of logs keep all rows as they are read."""
        return None

    @property
    def workers(self) -> Engine:
        """The engine, for actions that run tasks."""
        assert self.engine is not None, "an action that runs tasks has an engine"
        return self.engine

    def load_context(self, locked_context: TableContext) -> Snapshot:
        snapshot = load_snapshot(locked_context)
        if snapshot.schema is not None:
            check_supported(snapshot.schema.arrow, f"the table at {locked_context.storage.uri} cannot be written")
        return snapshot

    @abstractmethod
    def load(self, snapshot: Snapshot, request_time: str) -> Rewrite[GroupT]:
        """Load the plan of an instant, and its tasks. Raises PlanSuperseded if the plan can never run."""

    @abstractmethod
    def result(
        self, rewrite: Rewrite[GroupT], completed_instant: Instant, statuses: Sequence[WriteStatus], seconds: Mapping[str, float]
    ) -> Run:
        """Build the result of an executed plan."""

    def run(self, transaction: Transaction) -> Run:
        context, time, phases = self.context, transaction.instant_time, Phases(self.context.env)
        with rollback_on_error(transaction):
            snapshot = load_snapshot(context).with_columns_as_of(time)
            if snapshot.schema is None:
                raise TableState(f"the table at {context.storage.uri} has no schema")
            rewrite = self.load(snapshot, time)
            phases.end("load")
            # A process that others consider dead must not write files with the instant time of a plan that another
            # process completed.
            transaction.heartbeat.check()
            statuses: list[WriteStatus] = []
            for part in self.workers.map(rewrite.task, rewrite.tasks):
                transaction.heartbeat.check()
                statuses.extend(_statuses(part))
            phases.end("write")
            replaced = rewrite.replaced
            merges = self.operation is not Operation.CLUSTER
            metadata = commit_metadata(self.operation, statuses, snapshot.schema.avro, {}, replaced, compacted=merges)
            indexing, schema = rewrite.indexing, snapshot.schema.arrow
            # Records that stay in their file group keep their entry in the HBase index.
            hbase = self.commit.hbase if self.operation.moves_keys else None
            mirror = prepare_metadata_commit(
                context,
                self.engine,
                indexing,
                schema,
                statuses,
                snapshot,
                time=time,
                operation=self.operation,
                replaced=replaced,
                retains_keys=hbase is not None,
            )
            touched = tuple((partition, file_id) for partition, ids in (replaced or {}).items() for file_id in ids)
            with update_hbase_index(context, self.workers, hbase, statuses, time):
                validate = precommit_check(self.validators, self.engine, transaction, metadata)
                done = transaction.commit(
                    PlannedCommit(metadata, rewrite.start, touched, mirror, rewrite.verify, validate=validate)
                )
        phases.end("commit")
        return self.result(rewrite, done, statuses, phases.seconds)


def _statuses(part: Iterable[WriteStatus] | WriteStatus | None) -> Iterable[WriteStatus]:
    """Return the files that one task wrote: several, one, or none if no row remained."""
    if part is None:
        return ()
    return (part,) if isinstance(part, WriteStatus) else part
