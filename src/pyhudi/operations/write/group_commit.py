"""Group commit: one writer commits the small batches of all that wait for the table lock.

    leader       holds the lock from planning to commit. It takes the waiting batches of its process and the staged
                 batches of others, if their operation and options equal its own, and makes one commit
    followers    find the lock taken and stage their batches. Each waits until its ticket is committed, leads itself
                 once the lock is free, or withdraws its batch at its time limit

A batch that does not fit the table, changes its columns, or shares keys that the merge rule cannot combine, is left to
its writer. A leader that fails or dies leaves tickets to the next. Before a claimed ticket is applied again, the
pending writes that were requested since it was staged are rolled back or have ended.

Source: docs/decisions/0025-group-commit.md.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Protocol

import pyarrow as pa

from pyhudi.errors import CommitUnknown, CorruptData, HudiError, InvalidRequest, StorageUnavailable, TableState, WriteConflict
from pyhudi.operations.commit.events import observed
from pyhudi.operations.commit.hudi_writers import wait_for_foreign_writers
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.commit.rollback import rollback_failed_writes
from pyhudi.operations.write.group_tickets import (
    Claim,
    GroupOutcome,
    Ticket,
    claim,
    encode_outcomes,
    find_outcomes,
    list_tickets,
    read_batch,
    read_claim,
    stage_batch,
    ticket_name,
)
from pyhudi.operations.write.write_once import AlreadyCommitted, CommitSearch
from pyhudi.operations.write.write_rows import Write, planned_write, run_followups
from pyhudi.operations.write.write_schemas import WriteSchemas
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.planning.group_batches import GroupTraits, RowCounts, choose_batches, count_rows, row_identities
from pyhudi.storage.base import Storage
from pyhudi.storage.environment import SystemEnvironment
from pyhudi.storage.fenced import FencedStorage
from pyhudi.storage.locks import HOLD_NOTICE_PATH
from pyhudi.storage.process_identity import Process
from pyhudi.table.snapshot import Snapshot
from pyhudi.table.table_config import TableConfig
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.tasks.engine_protocol import Engine, PrepareRequest

MAX_BATCH_BYTES = 8 << 20
"""Larger batches are written alone."""

_LEAD_MS = 60_000
"""Expected maximum duration of a group commit, for other writers."""

_FIRST_PAUSE_MS = 10
_LAST_PAUSE_MS = 100
_BLOCKED_PAUSE_MS = 1_000
_QUEUE_AFTER_MS = 3_000
_QUEUE_MS = 1_000
"""A follower tries the lock without a place in its queue; after the first duration it queues for the second one. One
that holds the lock and cannot commit, because an outcome is open, pauses longer.
"""

_EXPIRY_MARGIN_MS = 10_000
_ORPHANED_CLAIM_MS = 24 * 3_600_000
_LATEST = "9" * 17


class GroupingEngine(Engine, Protocol):
    """An engine for the batches of several writers."""

    def prepared_rows(self, rows: pa.Table, request: PrepareRequest) -> pa.Table:
        """Return rows in the incoming layout, with one row for each key if the request combines them."""
        ...

    def existing_keys(self) -> pa.Table:
        """Record keys and partition paths of rows whose records the last lookup found."""
        ...


def reason_against_group(settings: WriteSettings, config: TableConfig, rows: pa.Table) -> str | None:
    """Return why a write cannot be part of a group commit, None if it can."""
    operation = settings.operation
    if operation not in (WriteOperation.UPSERT, WriteOperation.INSERT, WriteOperation.BULK_INSERT, WriteOperation.DELETE):
        return f"operation {operation} replaces file groups"
    reasons = {
        "the write has once=, which its own commit has to contain": settings.once is not None,
        "a partial update reads the stored records": settings.partial,
        "a delete marker is set": settings.marker is not None,
        "the write replaces the table's columns": settings.replaces_schema,
        f"index {settings.index.index_type} assigns records without a lookup": settings.index.index_type in ("BUCKET", "HBASE"),
        "writers do not conflict under non-blocking concurrency control": settings.commit.is_non_blocking,
        "an insert that skips or merges existing keys depends on the order of writes": operation is WriteOperation.INSERT
        and (settings.duplicate_policy != "none" or not settings.allow_duplicates),
        "an insert that combines duplicates does so in its own rows only": operation
        in (WriteOperation.INSERT, WriteOperation.BULK_INSERT)
        and settings.combine,
        "the table's files omit partition columns": bool(config.omitted_columns),
        "the table generates its record keys": config.keys.generates_keys,
        "the batch is empty": rows.num_rows == 0,
        f"the batch has more than {MAX_BATCH_BYTES >> 20} MiB": rows.nbytes > MAX_BATCH_BYTES,
    }
    return next((text for text, applies in reasons.items() if applies), None)


class _State(Enum):
    WAITING = auto()
    ALONE = auto()
    DONE = auto()


@dataclass(slots=True, eq=False)
class _Member:
    """A write of this process.

    Attributes:
        rows: Its batch.
        begun_ms: When it began to wait.
        state: WAITING; ALONE if its thread has to write the batch by itself; DONE with a result or an error.
        ticket: Set while the batch is staged.
        withdraw_at_ms: When the wait for the lock ends.
        taken: The time limit is over, and a leader has claimed the batch.
    """

    rows: pa.Table
    begun_ms: int
    withdraw_at_ms: int
    state: _State = _State.WAITING
    result: WriteResult | None = None
    error: BaseException | None = None
    ticket: Ticket | None = None
    taken: bool = False

    def succeed(self, result: WriteResult) -> None:
        self.state, self.result, self.ticket = _State.DONE, result, None

    def fail(self, error: BaseException) -> None:
        self.state, self.error, self.ticket = _State.DONE, error, None

    def leave(self) -> None:
        self.state, self.ticket = _State.ALONE, None


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    """A batch that a leader may take: of a thread of its process, or a staged one."""

    rows: pa.Table
    member: _Member | None = None
    ticket: Ticket | None = None


class _ProcessQueue:
    """Writes of one process that may share a commit; one of their threads acts for all."""

    def __init__(self) -> None:
        self.mutex = threading.Lock()
        self.leading = threading.Lock()
        self.members: list[_Member] = []

    def take(self) -> list[_Member]:
        """Remove and return the waiting writes."""
        with self.mutex:
            members, self.members = self.members, []
        return members


_queues: weakref.WeakValueDictionary[tuple[str, str], _ProcessQueue] = weakref.WeakValueDictionary()
_queues_mutex = threading.Lock()


def _after_fork() -> None:
    """Forget queues whose threads do not exist in the child."""
    global _queues, _queues_mutex
    _queues, _queues_mutex = weakref.WeakValueDictionary(), threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def _queue_of(context: TableContext, options: str) -> _ProcessQueue:
    if not isinstance(context.env, SystemEnvironment):
        # Simulated processes share this one.
        return _ProcessQueue()
    with _queues_mutex:
        return _queues.setdefault((context.storage.uri, options), _ProcessQueue())


def write_in_group(
    context: TableContext,
    engine: GroupingEngine,
    rows: pa.Table,
    settings: WriteSettings,
    options: str,
    write_alone: Callable[[], WriteResult],
) -> WriteResult:
    """Write a small batch, in one commit with those of other writers that wait for the lock.

    Args:
        context: The table.
        engine: The engine of a commit that this thread leads.
        rows: The batch.
        settings: Settings of the write.
        options: Digest of all options that the write depends on; only equal ones share a commit.
        write_alone: Writes the batch in a commit of its own.

    Returns:
        The result of this write: its own row counts, and `WriteResult.grouped`.

    Raises:
        StorageUnavailable: The lock was not free in time. The batch was withdrawn.
        CommitUnknown: A leader took the batch, and its outcome was not known in time.
        HudiError: The errors of the write alone, if it was not combined.
    """
    begun_ms = context.env.monotonic_ms()
    member = _Member(rows, begun_ms, begun_ms + settings.commit.lock_wait_ms)
    queue = _queue_of(context, options)
    with queue.mutex:
        queue.members.append(member)
    with queue.leading:
        if member.state is _State.WAITING:
            _Group(context, engine, settings, options, queue.take()).run()
    if member.state is _State.ALONE:
        return write_alone()
    if member.error is not None:
        raise member.error
    assert member.result is not None, "the state is DONE"
    return member.result


@dataclass(slots=True)
class _Group:
    """The writes of one process, until each is committed, failed or left to its thread.

    Attributes:
        context: The table.
        engine: The engine.
        settings: Settings of the writes.
        options: Digest of their options.
        members: The writes.
        search: The commits that were read.
    """

    context: TableContext
    engine: GroupingEngine
    settings: WriteSettings
    options: str
    members: list[_Member]
    search: CommitSearch = field(default_factory=CommitSearch)

    @property
    def waiting(self) -> list[_Member]:
        """The writes without an outcome."""
        return [member for member in self.members if member.state is _State.WAITING]

    def run(self) -> None:
        """Lead or wait until no write is waiting."""
        env = self.context.env
        wait_for_foreign_writers(self.context, self.settings.commit, self.context.timeline.load(), _LATEST, None)
        pause_ms, queued_ms = _FIRST_PAUSE_MS, env.monotonic_ms()
        try:
            while self.waiting:
                queues = env.monotonic_ms() - queued_ms >= _QUEUE_AFTER_MS
                if queues:
                    queued_ms = env.monotonic_ms()
                before = len(self.waiting)
                led = self._try_to_lead(_QUEUE_MS if queues else 0)
                if len(self.waiting) < before:
                    pause_ms = _FIRST_PAUSE_MS
                    continue
                self._stage()
                self._poll()
                if self.waiting:
                    env.sleep_ms(_BLOCKED_PAUSE_MS if led else pause_ms)
                    pause_ms = min(2 * pause_ms, _LAST_PAUSE_MS)
        except Exception as error:
            for member in self.waiting:
                self._abandon(member, error)
        except BaseException:
            for member in self.waiting:
                # Of other threads, which were not interrupted.
                member.fail(_unknown(self.context, None))
            raise

    # Waiting

    def _stage(self) -> None:
        """Stage the batches that are not staged yet."""
        unstaged = [member for member in self.waiting if member.ticket is None]
        if not unstaged:
            return
        env, after = self.context.env, self.context.timeline.load().latest_time()
        owner = Process.current().text
        for member in unstaged:
            name = f"{env.now_ms():013d}-{env.uuid4()}"
            member.ticket = Ticket(name, self.options, after, owner, self.settings.commit.lock_wait_ms)
            stage_batch(self.context.storage, member.ticket, member.rows)

    def _poll(self) -> None:
        """Look what became of staged batches, and withdraw those whose time is over."""
        for member in self.waiting:
            if member.ticket is not None:
                with suppress(StorageUnavailable):
                    self._poll_one(member, member.ticket)
                self._check_time(member)

    def _poll_one(self, member: _Member, ticket: Ticket) -> None:
        storage = self.context.storage
        if storage.stat(ticket.batch_path) is not None:
            return
        decision = read_claim(storage, ticket.claim_path)
        if decision is Claim.REFUSED:
            storage.delete([ticket.claim_path])
            member.leave()
            return
        if self._acknowledge(member, ticket):
            return
        if decision is Claim.WITHDRAWN:
            storage.delete([ticket.claim_path])
            member.fail(self._timeout())
        else:
            member.fail(_unknown(self.context, ticket))

    def _acknowledge(self, member: _Member, ticket: Ticket) -> bool:
        """Return True if the batch is committed."""
        context = self.context.reloaded()
        outcome = find_outcomes(context, context.timeline.load(), self.search, [ticket]).get(ticket.name)
        if outcome is None:
            return False
        member.succeed(self._result(member, outcome))
        return True

    def _check_time(self, member: _Member) -> None:
        """Withdraw a batch at its time limit. If a leader has claimed it, wait as long again for the outcome."""
        now_ms, ticket = self.context.env.monotonic_ms(), member.ticket
        if member.state is not _State.WAITING or ticket is None or now_ms < member.withdraw_at_ms:
            return
        if member.taken:
            if now_ms >= member.withdraw_at_ms + self.settings.commit.lock_wait_ms:
                member.fail(_unknown(self.context, ticket))
            return
        with suppress(StorageUnavailable):
            if claim(self.context.storage, ticket.claim_path, Claim.WITHDRAWN) is not Claim.WITHDRAWN:
                member.taken = True
            elif not self._acknowledge(member, ticket):
                self._remove(self.context.storage, [ticket])
                member.fail(self._timeout())
            return
        member.taken = True

    def _abandon(self, member: _Member, error: BaseException) -> None:
        """End the wait of a write because of an error that is not its own."""
        ticket = member.ticket
        if ticket is None:
            member.fail(error)
            return
        try:
            decision = claim(self.context.storage, ticket.claim_path, Claim.WITHDRAWN)
            if decision is Claim.WITHDRAWN and not self._acknowledge(member, ticket):
                self._remove(self.context.storage, [ticket])
                member.fail(error)
        except HudiError:
            decision = None
        if member.state is _State.WAITING:
            unknown = _unknown(self.context, ticket)
            unknown.__cause__ = error
            member.fail(unknown)

    def _timeout(self) -> StorageUnavailable:
        return StorageUnavailable(
            f"{self.context.storage.uri}: the table's lock was not free within {self.settings.commit.lock_wait_ms} ms, and no "
            "group commit took the batch, which was withdrawn; write it again"
        )

    def _result(self, member: _Member, outcome: GroupOutcome) -> WriteResult:
        instant = outcome.instant
        return self._own_result(
            WriteResult(str(self.settings.operation), instant.request_time, instant.completion_time),
            outcome.writes,
            outcome.counts,
            member,
        )

    def _own_result(self, result: WriteResult, writes: int, counts: RowCounts, member: _Member) -> WriteResult:
        waited_ms = self.context.env.monotonic_ms() - member.begun_ms
        return replace(
            result,
            rows_in=counts.rows,
            rows_inserted=counts.inserted,
            rows_updated=counts.updated,
            rows_deleted=counts.deleted,
            grouped=writes,
            seconds={**result.seconds, "wait": waited_ms / 1000},
        )

    # Leading

    def _try_to_lead(self, wait_ms: int) -> bool:
        """Lead one commit if the lock is free. Returns True if it was."""
        with ExitStack() as stack:
            try:
                held = stack.enter_context(self.context.exclusive(wait_ms, _LEAD_MS))
            except StorageUnavailable:
                return False
            _Leader(self, held).lead()
        return True

    def _remove(self, storage: Storage, tickets: Iterable[Ticket]) -> None:
        """Delete batches, then their claims. What remains is removed by a later leader."""
        tickets = list(tickets)
        if not tickets:
            return
        with suppress(HudiError):
            storage.delete([ticket.batch_path for ticket in tickets])
            storage.delete([ticket.claim_path for ticket in tickets])


@dataclass(slots=True)
class _Leader:
    """One commit under the lock.

    Attributes:
        group: The writes of this process.
        context: The table, with the held lock.
        storage: Verifies the lock before each change.
    """

    group: _Group
    context: TableContext
    storage: Storage = field(init=False)

    def __post_init__(self) -> None:
        self.context = self.context.reloaded()
        self.storage = FencedStorage(self.context.storage, self.context.lock)

    def lead(self) -> None:
        """Take batches and commit them. Batches stay as they are while only time decides their outcome."""
        staged = self._staged_batches()
        own = {member.ticket.name: member for member in self.group.waiting if member.ticket is not None}
        for batch in [batch for batch in staged if batch.ticket is not None and batch.ticket.name in own]:
            # The batch is committed from memory, so that its errors are those of an ordinary write.
            assert batch.ticket is not None
            self.storage.delete([batch.ticket.batch_path])
            self.storage.delete([batch.ticket.claim_path])
            own[batch.ticket.name].ticket = None
            staged.remove(batch)
        members = [_Batch(member.rows, member=member) for member in self.group.waiting if member.ticket is None]
        if not members:
            return
        if len(members) == 1 and not staged:
            self._commit_alone(members[0])
            return
        self._commit_group([*members, *staged])

    def _staged_batches(self) -> list[_Batch]:
        """Return staged batches that may be applied, in the order of their tickets."""
        files, claims = list_tickets(self.storage)
        now_ms = self._store_clock_ms() if files or claims else None
        if claims and now_ms is not None:
            known = {ticket_name(info.path) for info in files}
            orphaned = [c.path for name, c in claims.items() if name not in known and c.modified_ms < now_ms - _ORPHANED_CLAIM_MS]
            if orphaned:
                self.storage.delete(orphaned)
        batches = []
        modified = {}
        for info in files:
            try:
                found = read_batch(self.storage, info.path)
            except CorruptData:
                # Its writer keeps the rows in memory.
                self._decide(Ticket(ticket_name(info.path), "", "", "", 0), Claim.REFUSED)
                continue
            if found is not None:
                batches.append(_Batch(found[1], ticket=found[0]))
                modified[found[0].name] = info.modified_ms
        if not batches:
            return []
        timeline = self.context.timeline.load()
        tickets = [batch.ticket for batch in batches if batch.ticket is not None]
        committed = find_outcomes(self.context, timeline, self.group.search, tickets)
        own = {member.ticket.name: member for member in self.group.waiting if member.ticket is not None}
        for ticket in tickets:
            outcome = committed.get(ticket.name)
            if outcome is not None and ticket.name in own:
                own[ticket.name].succeed(self.group._result(own[ticket.name], outcome))
        if committed:
            self.group._remove(self.storage, [ticket for ticket in tickets if ticket.name in committed])
        open_tickets = [ticket for ticket in tickets if ticket.name not in committed]
        alive = []
        for ticket in open_tickets:
            if ticket.name not in own and self._expired(ticket, modified[ticket.name], now_ms):
                self._decide(ticket, Claim.WITHDRAWN)
            elif ticket.options == self.group.options or ticket.name in own:
                alive.append(ticket)
        settled = self._settled([t for t in alive if t.name in claims], timeline)
        usable = {t.name for t in alive if t.name not in claims or t.name in settled}
        return [batch for batch in batches if batch.ticket is not None and batch.ticket.name in usable]

    def _settled(self, claimed: Sequence[Ticket], timeline: Timeline) -> set[str]:
        """Return those of the tickets that another leader claimed and can no longer commit.

        Its write is pending until it is rolled back; it was requested after the tickets were staged.
        """
        if not claimed:
            return set()
        first = min(ticket.after for ticket in claimed)
        if any(instant.request_time > first for instant in timeline.pending_writes()):
            settings = replace(self.group.settings.commit, failed_writes="EAGER")
            rollback_failed_writes(self.context, settings, timeline)
            timeline = self.context.timeline.load()
        pending = max((instant.request_time for instant in timeline.pending_writes()), default="")
        return {ticket.name for ticket in claimed if ticket.after >= pending}

    def _expired(self, ticket: Ticket, modified_ms: int, now_ms: int | None) -> bool:
        """True if the writer of a batch no longer waits for it: its rows must not appear long after its end."""
        if ticket.owner_is_dead():
            return True
        return now_ms is not None and now_ms - modified_ms > ticket.wait_ms + _EXPIRY_MARGIN_MS

    def _store_clock_ms(self) -> int | None:
        """Return the present time by the clock of the store, which has just stored the notice of the hold."""
        notice = self.storage.stat(HOLD_NOTICE_PATH)
        return None if notice is None else notice.modified_ms

    def _decide(self, ticket: Ticket, decision: Claim) -> None:
        """Record a decision against a batch, and delete the batch. The claim is left for its writer."""
        if ticket.owner and ticket.owner_is_dead():
            self.group._remove(self.storage, [ticket])
            return
        self.storage.put(ticket.claim_path, decision.value.encode())
        self.storage.delete([ticket.batch_path])

    def _commit_alone(self, batch: _Batch) -> None:
        """Commit a single batch, as an ordinary write that holds the lock."""
        member = batch.member
        assert member is not None
        try:
            write, snapshot = planned_write(self.context, self.group.engine, batch.rows, self.group.settings)
            result = _commit(self.context, write, snapshot, batch.rows, lambda: None)
        except Exception as error:
            member.fail(error)
            return
        waited_ms = self.context.env.monotonic_ms() - member.begun_ms
        member.succeed(replace(result, grouped=1, seconds={**result.seconds, "wait": waited_ms / 1000}))

    def _commit_group(self, batches: list[_Batch]) -> None:
        """Validate batches one by one, combine those that fit, and commit them."""
        planned = self._plan(batches)
        if planned is None:
            for batch in batches:
                self._leave(batch)
            return
        write, snapshot = planned
        fitting: list[_Batch] = []
        prepared: list[pa.Table] = []
        for batch in batches:
            rows = self._validated(write, snapshot, batch)
            if rows is None:
                self._leave(batch)
            else:
                fitting.append(batch)
                prepared.append(rows)
        if not fitting:
            return
        traits = _traits(write)
        if traits.deletes:
            # Rows to delete are combined as they are, and may have other columns.
            same = [n for n, batch in enumerate(fitting) if batch.rows.schema.equals(fitting[0].rows.schema)]
            fitting, prepared = [fitting[n] for n in same], [prepared[n] for n in same]
        chosen = choose_batches(prepared, traits)
        fitting, prepared = self._claimed([(fitting[n], prepared[n]) for n in chosen])
        if not fitting:
            return
        if traits.deletes:
            rows = pa.concat_tables([batch.rows for batch in fitting])
        else:
            assert snapshot.schema is not None
            rows = pa.concat_tables([part.select(snapshot.schema.arrow.names) for part in prepared])
        self._run(_GroupMark(self.group, fitting, prepared, traits), replace(write, columns=rows.schema), snapshot, rows)

    def _plan(self, batches: Sequence[_Batch]) -> tuple[Write, Snapshot] | None:
        """Plan the commit with the columns of the first batch that fits; None if none does."""
        for batch in batches:
            with suppress(InvalidRequest):
                write, snapshot = planned_write(
                    self.context, self.group.engine, batch.rows.schema.empty_table(), self.group.settings
                )
                return None if snapshot.schema is None else (write, snapshot)
        return None

    def _validated(self, write: Write, snapshot: Snapshot, batch: _Batch) -> pa.Table | None:
        """Return the prepared rows of a batch; None if its writer has to write it alone."""
        try:
            schemas = WriteSchemas.of(write.context, snapshot, batch.rows.schema, write.settings)
            if not schemas.keys_only and (snapshot.schema is None or schemas.data_schema != snapshot.schema.arrow):
                return None
            trial = replace(write, columns=batch.rows.schema, schemas=schemas)
            rows = self.group.engine.prepared_rows(batch.rows, trial.prepare_request())
        except HudiError:
            return None
        if not schemas.keys_only and schemas.rule.deletes(rows) is not None:
            return None
        return rows

    def _leave(self, batch: _Batch) -> None:
        """Leave a batch to its writer."""
        if batch.member is not None:
            batch.member.leave()
        elif batch.ticket is not None:
            self._decide(batch.ticket, Claim.REFUSED)

    def _claimed(self, batches: Sequence[tuple[_Batch, pa.Table]]) -> tuple[list[_Batch], list[pa.Table]]:
        """Claim staged batches. Returns those that are still there, and not withdrawn."""
        names: set[str] = set()
        for batch, _ in batches:
            if batch.ticket is not None and claim(self.storage, batch.ticket.claim_path, Claim.TAKEN) is Claim.TAKEN:
                names.add(batch.ticket.name)
        if names:
            files, _ = list_tickets(self.storage)
            names &= {ticket_name(info.path) for info in files}
        kept = [(b, rows) for b, rows in batches if b.ticket is None or b.ticket.name in names]
        return [batch for batch, _ in kept], [rows for _, rows in kept]

    def _run(self, mark: _GroupMark, write: Write, snapshot: Snapshot, rows: pa.Table) -> None:
        """Commit the combined rows."""
        tickets = [batch.ticket for batch in mark.batches if batch.ticket is not None]
        members = [batch.member for batch in mark.batches if batch.member is not None]
        try:
            schemas = WriteSchemas.of(write.context, snapshot, write.columns, write.settings)
            write = replace(write, schemas=schemas, settings=replace(write.settings, once=mark))
            result = _commit(self.context, write, snapshot, rows, lambda: self.group._remove(self.storage, tickets))
        except AlreadyCommitted:
            # A leader that lost the lock was committing; the tickets are looked up again.
            return
        except (InvalidRequest, TableState, CorruptData, WriteConflict):
            # Nothing was committed, and the cause may be one of the batches.
            for batch in mark.batches:
                self._leave(batch)
            return
        except Exception as error:
            for member in members:
                member.fail(error)
            return
        for batch, counts in zip(mark.batches, mark.counts(), strict=True):
            if batch.member is not None:
                batch.member.succeed(self.group._own_result(result, len(mark.batches), counts, batch.member))


@dataclass(slots=True)
class _GroupMark:
    """Adds the tickets of a group to its commit, once."""

    group: _Group
    batches: Sequence[_Batch]
    prepared: Sequence[pa.Table]
    traits: GroupTraits

    def counts(self) -> list[RowCounts]:
        """What each write did."""
        existing = row_identities(self.group.engine.existing_keys(), global_keys=self.traits.global_keys)
        return count_rows(self.prepared, existing, self.traits)

    def check(self, context: TableContext, timeline: Timeline) -> Mapping[str, str]:
        """Return the entry of the commit. Raises AlreadyCommitted if a ticket is committed."""
        tickets = [batch.ticket for batch in self.batches if batch.ticket is not None]
        committed = find_outcomes(context, timeline, self.group.search, tickets)
        if committed:
            raise AlreadyCommitted(f"a batch of this group commit of {context.storage.uri} was committed concurrently")
        counts = zip(self.batches, self.counts(), strict=True)
        return encode_outcomes(len(self.batches), {b.ticket.name: c for b, c in counts if b.ticket is not None})


@observed("write")
def _commit(
    context: TableContext, write: Write, snapshot: Snapshot, rows: pa.Table, committed: Callable[[], None]
) -> WriteResult:
    """Run a planned write. ``committed`` is called after the commit, before the lock is released."""
    result = write.run(rows, snapshot)
    committed()
    context.release_lock()
    return run_followups(write, result, snapshot.timeline)


def _traits(write: Write) -> GroupTraits:
    """Return what the operation and the merge rule of a write allow in a group."""
    shape, schemas = write.shape, write.schemas
    rule = schemas.rule
    selects = rule.selects_one_side and not rule.custom_merge and rule.filling is None and rule.marker is None
    return GroupTraits(
        adds=shape.adds,
        deletes=shape.deletes,
        combines=selects and write.settings.combine,
        global_keys=shape.global_keys,
    )


def _unknown(context: TableContext, ticket: Ticket | None) -> CommitUnknown:
    name = "" if ticket is None else f" {ticket.name}"
    return CommitUnknown(
        f"a group commit of {context.storage.uri} took the batch{name}, and its outcome is not known; read the table before "
        "writing the batch again"
    )
