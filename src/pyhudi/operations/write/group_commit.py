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
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import pyarrow as pa

from pyhudi.errors import HudiError, StorageUnavailable
from pyhudi.operations.commit.hudi_writers import wait_for_foreign_writers
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.write.group_leader import Leader
from pyhudi.operations.write.group_members import Group, GroupingEngine, Member, MemberState, unknown_outcome
from pyhudi.operations.write.group_tickets import (
    Claim,
    Ticket,
    claim,
    find_outcomes,
    read_claim,
    stage_batch,
)
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.storage.environment import SystemEnvironment
from pyhudi.storage.process_identity import Process
from pyhudi.table.table_config import TableConfig
from pyhudi.table.table_context import TableContext

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

_LATEST = "9" * 17


def reason_against_group(settings: WriteSettings, config: TableConfig, rows: pa.Table) -> str | None:
    """Return why a write cannot be part of a group commit, None if it can."""
    operation = settings.operation
    if operation not in (WriteOperation.UPSERT, WriteOperation.INSERT, WriteOperation.BULK_INSERT, WriteOperation.DELETE):
        return f"operation {operation} replaces file groups"
    reasons = {
        "the write has once=, which its own commit has to contain": settings.once is not None,
        "a partial update reads the stored records": settings.partial,
        "a delete marker is set": settings.marker is not None,
        "the write cleans the table, or rolls back failed writes, before": settings.prewrite != "NONE",
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


class _ProcessQueue:
    """Writes of one process that may share a commit; one of their threads acts for all."""

    def __init__(self) -> None:
        self.mutex = threading.Lock()
        self.leading = threading.Lock()
        self.members: list[Member] = []

    def take(self) -> list[Member]:
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
        engine: The engine of a commit that this thread leads.
        rows: The batch.
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
    member = Member(rows, begun_ms, begun_ms + settings.commit.lock_wait_ms)
    queue = _queue_of(context, options)
    with queue.mutex:
        queue.members.append(member)
    with queue.leading:
        if member.state is MemberState.WAITING:
            WaitingGroup(context, engine, settings, options, queue.take()).run()
    if member.state is MemberState.ALONE:
        return write_alone()
    if member.error is not None:
        raise member.error
    assert member.result is not None, "the state is DONE"
    return member.result


@dataclass(slots=True)
class WaitingGroup(Group):
    """The writes of one process, until each is committed, failed or left to its thread."""

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
                member.fail(unknown_outcome(self.context, None))
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

    def _poll_one(self, member: Member, ticket: Ticket) -> None:
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
            member.fail(unknown_outcome(self.context, ticket))

    def _acknowledge(self, member: Member, ticket: Ticket) -> bool:
        """Return True if the batch is committed."""
        context = self.context.reloaded()
        outcome = find_outcomes(context, context.timeline.load(), self.search, [ticket]).get(ticket.name)
        if outcome is None:
            return False
        member.succeed(self.committed_result(member, outcome))
        return True

    def _check_time(self, member: Member) -> None:
        """Withdraw a batch at its time limit. If a leader has claimed it, wait as long again for the outcome."""
        now_ms, ticket = self.context.env.monotonic_ms(), member.ticket
        if member.state is not MemberState.WAITING or ticket is None or now_ms < member.withdraw_at_ms:
            return
        if member.taken:
            if now_ms >= member.withdraw_at_ms + self.settings.commit.lock_wait_ms:
                member.fail(unknown_outcome(self.context, ticket))
            return
        with suppress(StorageUnavailable):
            if claim(self.context.storage, ticket.claim_path, Claim.WITHDRAWN) is not Claim.WITHDRAWN:
                member.taken = True
            elif not self._acknowledge(member, ticket):
                self.remove(self.context.storage, [ticket])
                member.fail(self._timeout())
            return
        member.taken = True

    def _abandon(self, member: Member, error: BaseException) -> None:
        """End the wait of a write because of an error that is not its own."""
        ticket = member.ticket
        if ticket is None:
            member.fail(error)
            return
        try:
            decision = claim(self.context.storage, ticket.claim_path, Claim.WITHDRAWN)
            if decision is Claim.WITHDRAWN and not self._acknowledge(member, ticket):
                self.remove(self.context.storage, [ticket])
                member.fail(error)
        except HudiError:
            decision = None
        if member.state is MemberState.WAITING:
            unknown = unknown_outcome(self.context, ticket)
            unknown.__cause__ = error
            member.fail(unknown)

    def _timeout(self) -> StorageUnavailable:
        return StorageUnavailable(
            f"{self.context.storage.uri}: the table's lock was not free within {self.settings.commit.lock_wait_ms} ms, and no "
            "group commit took the batch, which was withdrawn; write it again"
        )

    # Leading

    def _try_to_lead(self, wait_ms: int) -> bool:
        """Lead one commit if the lock is free. Returns True if it was."""
        with ExitStack() as stack:
            try:
                held = stack.enter_context(self.context.exclusive(wait_ms, _LEAD_MS))
            except StorageUnavailable:
                return False
            Leader(self, held).lead()
        return True
