"""A bulk insert that one process begins and another one completes, with tasks in between that neither of them sends out.

    begin        everything that a write does before its rows: what died is settled, the state loaded, the instant taken, the
                 inflight file written.  The heartbeat that is left belongs to no process
    (tasks)      prepare and write their rows by `request` and `spec`, each within an `attempt`, and beat meanwhile
    complete     the commit, the services and the sync that follow it, with what the tasks answered
    take_back    where there will be no commit

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
from pyhudi.operations.commit.action_attempt import Phases, abandon, taken_back_on_error
from pyhudi.operations.commit.events import observed
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.commit.transaction import Transaction
from pyhudi.operations.write.operation_traits import WriteShape
from pyhudi.operations.write.write_attempt import Attempt, Written
from pyhudi.operations.write.write_rows import Write, followed_up, planned_write
from pyhudi.operations.write.write_schemas import WriteSchemas
from pyhudi.operations.write.write_settings import WriteSettings
from pyhudi.planning.conflicts import WriteStart
from pyhudi.storage.liveness import RunningWrite, TaskBeats, forget, leave_to_tasks
from pyhudi.table.snapshot import load_snapshot
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.tasks.engine_protocol import Engine, PrepareRequest
from pyhudi.tasks.task_attempts import removed_when_over
from pyhudi.tasks.write_tasks import WriterSpec, WriteStatus

_PATIENCE_MS = 15_000
"""How long attempts are waited for: Spark ends a Python worker two seconds after its task was killed."""

_PAUSE_MS = 100


def goes_detached(settings: WriteSettings) -> bool:
    """Whether a write can go this way: a bulk insert whose rows are written as they come."""
    shape = WriteShape.of(settings)
    as_it_comes = settings.sort_mode == "NONE" and not settings.combine and settings.bulk_parallelism <= 0
    return shape.in_bulk and shape.places_nothing and as_it_comes


@dataclass(frozen=True, slots=True)
class DetachedWrite:
    """A bulk insert that is begun.  Travels to tasks and to the process that completes it.

    columns: of the rows as they are given.  begun_on, planned_on, before: timelines, as of `Transaction.begun_on`, of the state
    that the attempt is planned on, and of the one by which the write was planned.  request, spec: what tasks go by.
    """

    context: TableContext = field(repr=False)
    began_with: TableContext = field(repr=False)
    settings: WriteSettings = field(repr=False)
    columns: pa.Schema
    schemas: WriteSchemas
    rolled_back: tuple[str, ...]
    instant_time: str
    action: Action
    begun_on: Timeline | None
    planned_on: Timeline
    before: Timeline
    start: WriteStart
    request: PrepareRequest
    spec: WriterSpec = field(repr=False)

    @classmethod
    def begin(cls, context: TableContext, engine: Engine, columns: pa.Schema, settings: WriteSettings) -> DetachedWrite:
        """Begin a write of rows with these columns.  Raises what `run_write` raises before it takes rows in."""
        write, snapshot = planned_write(context, engine, columns.empty_table(), settings)
        attempt = write.begun(snapshot)
        transaction = attempt.transaction
        with taken_back_on_error(transaction):
            leave_to_tasks(context.storage, transaction.instant_time, transaction.heartbeat)
        return cls(
            context=write.context,
            began_with=write.began_with,
            settings=settings,
            columns=columns,
            schemas=write.schemas,
            rolled_back=write.rolled_back,
            instant_time=transaction.instant_time,
            action=transaction.action,
            begun_on=transaction.begun_on,
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
                removed_when_over(context.storage, self.instant_time, token),
                TaskBeats(context.storage, context.env, self.instant_time, self.settings.commit.heartbeats),
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
            return _complete(self.began_with, self, engine, statuses)
        finally:
            self.context.storage.delete_folder(self._attempts)

    def take_back(self, engine: Engine) -> None:
        """Undo what was begun and what tasks have written.

        Without a heartbeat no attempt begins any more.  Those under way are waited for, a while, so that all their files are
        there to be deleted; one that ends later deletes its own.
        """
        transaction = self._resumed(engine)[1]
        transaction.let_go()
        forget(self.context.storage, self.instant_time)
        env, attempts = self.context.env, self._attempts
        deadline_ms = env.monotonic_ms() + _PATIENCE_MS
        while self.context.storage.list(attempts).files and env.monotonic_ms() < deadline_ms:
            env.sleep_ms(_PAUSE_MS)
        abandon(transaction)
        self.context.storage.delete_folder(attempts)

    def _resumed(self, engine: Engine) -> tuple[Write, Transaction]:
        settings, context = self.settings, self.context
        heartbeat = RunningWrite(context.storage, context.env, self.instant_time, settings.commit.heartbeats)
        heartbeat.start()
        transaction = Transaction(context, settings.commit, self.instant_time, self.action, heartbeat, self.begun_on)
        transaction.late_attempts = True
        write = Write(
            context=context,
            began_with=self.began_with,
            engine=engine,
            settings=settings,
            shape=WriteShape.of(settings),
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
def _complete(context: TableContext, begun: DetachedWrite, engine: Engine, statuses: Sequence[WriteStatus]) -> WriteResult:
    write, transaction = begun._resumed(engine)
    if not statuses and not begun.settings.allow_empty:
        transaction.let_go()
        abandon(transaction)
        return WriteResult(str(write.shape.operation), None, None, rolled_back=begun.rolled_back, seconds=write.phases.seconds)
    with taken_back_on_error(transaction):
        result = write.completed(begun._attempt(write, transaction), Written(list(statuses)), None)
    return followed_up(write, result, begun.before)
