"""Distributed bulk insert: one process begins it, tasks that neither process schedules write the rows, another process commits.

    begin        everything that precedes the rows of a write: roll back failed writes, load the snapshot, take the
                 instant, write the inflight file. The heartbeat that remains belongs to no process
    (tasks)      prepare and write their rows with `request` and `spec`, each within an `attempt`, and renew the
                 heartbeat
    complete     the commit, and the services and catalog sync that follow it, from the results of the tasks
    roll_back    if the write will not be committed

Only writes without index lookup work this way: rows are not counted and keys are not looked up before they are written.
A write that loses a conflict is not planned again, since its rows are not available any more. The rows go to new file
groups, which no other write touches, so conflicts are limited to concurrent column changes and to rollbacks of the
state that it builds on.

Between the processes nothing renews the heartbeat. If no task or process of the write runs for one heartbeat expiry, it
counts as dead.

Source: docs/formats/writing.md, "Bulk inserts of a data source".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from pyhudi.format.instants import Action
from pyhudi.format.names import WriteToken
from pyhudi.format.paths import STAGED_FOLDER, join_path
from pyhudi.operations.commit.action_attempt import Phases, rollback_on_error, rollback_own_attempt
from pyhudi.operations.commit.events import observed
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.commit.transaction import Transaction
from pyhudi.operations.write.operation_traits import OperationTraits
from pyhudi.operations.write.write_attempt import Attempt, Written
from pyhudi.operations.write.write_rows import Write, planned_write, run_followups
from pyhudi.operations.write.write_schemas import WriteSchemas
from pyhudi.operations.write.write_settings import WriteSettings
from pyhudi.planning.conflicts import WriteStart
from pyhudi.storage.liveness import TaskHeartbeat, WriterHeartbeat, delegate_to_tasks, remove_heartbeat
from pyhudi.table.snapshot import load_snapshot
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.tasks.engine_protocol import Engine, PrepareRequest
from pyhudi.tasks.task_attempts import remove_if_write_ended
from pyhudi.tasks.write_tasks import WriterSpec, WriteStatus

_MAX_ATTEMPT_WAIT_MS = 15_000
"""How long running task attempts are awaited: Spark ends a Python worker two seconds after its task was killed."""

_PAUSE_MS = 100


def supports_detached(settings: WriteSettings) -> bool:
    """Return True for a bulk insert whose rows are written in input order, which can be distributed this way.

    A write that commits once may find that it is committed, and a distributed one has no such outcome.
    """
    shape = OperationTraits.of(settings)
    as_it_comes = settings.sort_mode == "NONE" and not settings.combine and settings.bulk_parallelism <= 0
    return shape.in_bulk and shape.is_bulk and as_it_comes and settings.once is None


@dataclass(frozen=True, slots=True)
class DetachedWrite:
    """A started bulk insert. It is pickled and sent to tasks and to the process that completes it.

    Attributes:
        context: The table.
        started_from: The table when the write began.
        settings: Settings of the write.
        columns: Columns of the input rows.
        schemas: Schemas of the write.
        rolled_back: Failed instants that this write rolled back.
        instant_time: Request time.
        action: The action.
        requested_on: See `Transaction.requested_on`.
        planned_on: Timeline of the snapshot that the attempt is planned on.
        before: Timeline with which the write was planned.
        start: The state that conflicts are detected against.
        request: How tasks prepare rows.
        spec: How tasks write files.
    """

    context: TableContext = field(repr=False)
    started_from: TableContext = field(repr=False)
    settings: WriteSettings = field(repr=False)
    columns: pa.Schema
    schemas: WriteSchemas
    rolled_back: tuple[str, ...]
    instant_time: str
    action: Action
    requested_on: Timeline | None
    planned_on: Timeline
    before: Timeline
    start: WriteStart
    request: PrepareRequest
    spec: WriterSpec = field(repr=False)

    @classmethod
    def begin(cls, context: TableContext, engine: Engine, columns: pa.Schema, settings: WriteSettings) -> DetachedWrite:
        """Begin a write of rows with these columns. Raises the errors that `run_write` raises before it reads rows."""
        write, snapshot = planned_write(context, engine, columns.empty_table(), settings)
        attempt = write.start_streaming_attempt(snapshot)
        transaction = attempt.transaction
        with rollback_on_error(transaction):
            delegate_to_tasks(context.storage, transaction.instant_time, transaction.heartbeat)
        return cls(
            context=write.context,
            started_from=write.started_from,
            settings=settings,
            columns=columns,
            schemas=write.schemas,
            rolled_back=write.rolled_back,
            instant_time=transaction.instant_time,
            action=transaction.action,
            requested_on=transaction.requested_on,
            planned_on=attempt.snapshot.timeline,
            before=snapshot.timeline,
            start=attempt.start,
            request=write.prepare_request(),
            spec=attempt.spec,
        )

    @contextmanager
    def attempt(self, token: WriteToken) -> Iterator[None]:
        """Run one task attempt, which writes files with this token and renews the heartbeat of the write.

        Raises:
            WriteConflict: The write has ended, before the attempt or when it ends. All files of the attempt are
                deleted.
        """
        context = self.context
        sign = join_path(self._attempts, str(token))
        # A rollback removes the heartbeat before it looks for these signs, so one of the two detects the other.
        context.storage.put(sign, b"")
        try:
            with (
                remove_if_write_ended(context.storage, self.instant_time, token),
                TaskHeartbeat(context.storage, context.env, self.instant_time, self.settings.commit.heartbeats),
            ):
                yield
        finally:
            context.storage.delete([sign])

    @property
    def _attempts(self) -> str:
        return join_path(STAGED_FOLDER, f"attempts-{self.instant_time}")

    def complete(self, engine: Engine, statuses: Sequence[WriteStatus]) -> WriteResult:
        """Commit what the tasks have written; an empty write is committed only if the settings request it.

        Files of repeated or superseded task attempts are deleted.

        Raises:
            WriteConflict: Another writer rolled the write back, or changed what it builds on. Its files are deleted.
        """
        try:
            return _complete(self.started_from, self, engine, statuses)
        finally:
            self.context.storage.delete_folder(self._attempts)

    def roll_back(self, engine: Engine) -> None:
        """Roll the write back, with all files that tasks have written.

        Without a heartbeat no attempt begins. Running attempts are awaited for a limited time, so that all their files
        exist and can be deleted; an attempt that ends later deletes its own files.
        """
        transaction = self._resumed(engine)[1]
        transaction.stop_heartbeat()
        remove_heartbeat(self.context.storage, self.instant_time)
        env, attempts = self.context.env, self._attempts
        deadline_ms = env.monotonic_ms() + _MAX_ATTEMPT_WAIT_MS
        while self.context.storage.list(attempts).files and env.monotonic_ms() < deadline_ms:
            env.sleep_ms(_PAUSE_MS)
        rollback_own_attempt(transaction)
        self.context.storage.delete_folder(attempts)

    def _resumed(self, engine: Engine) -> tuple[Write, Transaction]:
        settings, context = self.settings, self.context
        heartbeat = WriterHeartbeat(context.storage, context.env, self.instant_time, settings.commit.heartbeats)
        heartbeat.start()
        transaction = Transaction(context, settings.commit, self.instant_time, self.action, heartbeat, self.requested_on)
        transaction.may_have_late_attempts = True
        write = Write(
            context=context,
            started_from=self.started_from,
            engine=engine,
            settings=settings,
            shape=OperationTraits.of(settings),
            columns=self.columns,
            schemas=self.schemas,
            phases=Phases(context.env),
            rolled_back=self.rolled_back,
            chosen=False,
            marks_deletes=False,
            repeated=None,
        )
        return write, transaction

    def _attempt(self, write: Write, transaction: Transaction) -> Attempt:
        snapshot = load_snapshot(self.context, timeline=self.planned_on)
        transaction.columns = write.columns_after(snapshot, transaction)
        transaction.planned_on(snapshot)
        return Attempt(
            context=self.context,
            settings=self.settings,
            shape=write.shape,
            schemas=self.schemas,
            phases=write.phases,
            snapshot=snapshot,
            start=self.start,
            transaction=transaction,
            spec=self.spec,
        )


@observed("write")
def _complete(context: TableContext, started: DetachedWrite, engine: Engine, statuses: Sequence[WriteStatus]) -> WriteResult:
    write, transaction = started._resumed(engine)
    if not statuses and not started.settings.allow_empty:
        transaction.stop_heartbeat()
        rollback_own_attempt(transaction)
        return WriteResult(str(write.shape.operation), None, None, rolled_back=started.rolled_back, seconds=write.phases.seconds)
    with rollback_on_error(transaction):
        result = write.completed(started._attempt(write, transaction), Written(list(statuses)), None)
    return run_followups(write, result, started.before)
