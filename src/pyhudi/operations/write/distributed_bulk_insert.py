"""A bulk insert that one process begins and another one completes, with tasks in between that neither of them sends out.

    begin        everything that a write does before its rows: what died is settled, the state loaded, the instant taken, the
                 inflight file written.  The heartbeat that is left belongs to no process
    (tasks)      prepare and write their rows by `request` and `spec`, each within an `attempt`, and beat meanwhile
    complete     the commit, the services and the sync that follow it, with what the tasks answered
    roll_back    where there will be no commit

Only what places no row goes this way: nobody counts the rows, or looks their keys up, before they are written.  What loses to
another writer is not planned anew, for its rows are gone.  They go to new file groups, which no other write touches, so it loses
where the columns were changed meanwhile, or what it builds on was rolled back.

Between the processes nobody beats: where nothing of the write runs for as long as a heartbeat lasts, it counts as dead.

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

_PATIENCE_MS = 15_000
"""How long attempts are waited for: Spark ends a Python worker two seconds after its task was killed."""

_PAUSE_MS = 100


def supports_detached(settings: WriteSettings) -> bool:
    """Whether a write can go this way: a bulk insert whose rows are written as they come."""
    shape = OperationTraits.of(settings)
    as_it_comes = settings.sort_mode == "NONE" and not settings.combine and settings.bulk_parallelism <= 0
    return shape.in_bulk and shape.is_bulk and as_it_comes


@dataclass(frozen=True, slots=True)
class DetachedWrite:
    """A bulk insert that is begun.  Travels to tasks and to the process that completes it.

    columns: of the rows as they are given.  requested_on, planned_on, before: timelines, as of `Transaction.requested_on`, of the
    state that the attempt is planned on, and of the one by which the write was planned.  request, spec: what tasks go by.
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
        """Begin a write of rows with these columns.  Raises what `run_write` raises before it takes rows in."""
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
        """One attempt at a task, in which it writes files with this token; the write lives meanwhile.

        Raises WriteConflict where the write is over, before the attempt or when it ends; then nothing of its files is left.
        """
        context = self.context
        sign = join_path(self._attempts, str(token))
        # Whoever takes the write back removes the heartbeat before looking for signs, so one of the two sees the other.
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
        """Commit what the tasks have written; without rows nothing is committed, unless the settings ask for it.

        What else tasks wrote, attempts that were repeated or overtaken, is deleted.
        Raises WriteConflict where others took the write for dead, or changed what it builds on: its files are deleted then.
        """
        try:
            return _complete(self.started_from, self, engine, statuses)
        finally:
            self.context.storage.delete_folder(self._attempts)

    def roll_back(self, engine: Engine) -> None:
        """Undo what was begun and what tasks have written.

        Without a heartbeat no attempt begins any more.  Those under way are waited for, a while, so that all their files are
        there to be deleted; one that ends later deletes its own.
        """
        transaction = self._resumed(engine)[1]
        transaction.stop_heartbeat()
        remove_heartbeat(self.context.storage, self.instant_time)
        env, attempts = self.context.env, self._attempts
        deadline_ms = env.monotonic_ms() + _PATIENCE_MS
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
