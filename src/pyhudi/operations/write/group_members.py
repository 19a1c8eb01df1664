"""The writes that wait for one group commit: batches, their states and their results. See `group_commit`."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Protocol

import pyarrow as pa

from pyhudi.errors import CommitUnknown, HudiError
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.write.group_tickets import GroupOutcome, Ticket
from pyhudi.operations.write.write_once import CommitSearch
from pyhudi.operations.write.write_settings import WriteSettings
from pyhudi.planning.group_batches import RowCounts
from pyhudi.storage.base import Storage
from pyhudi.table.table_context import TableContext
from pyhudi.tasks.engine_protocol import Engine, PrepareRequest


class GroupingEngine(Engine, Protocol):
    """An engine for the batches of several writers."""

    def prepared_rows(self, rows: pa.Table, request: PrepareRequest) -> pa.Table:
        """Return rows in the incoming layout, with one row for each key if the request combines them."""
        ...

    def existing_keys(self) -> pa.Table:
        """Record keys and partition paths of rows whose records the last lookup found."""
        ...


class MemberState(Enum):
    """State of a write: without outcome, left to its own thread, or with a result or an error."""

    WAITING = auto()
    ALONE = auto()
    DONE = auto()


@dataclass(slots=True, eq=False)
class Member:
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
    state: MemberState = MemberState.WAITING
    result: WriteResult | None = None
    error: BaseException | None = None
    ticket: Ticket | None = None
    taken: bool = False

    def succeed(self, result: WriteResult) -> None:
        self.state, self.result, self.ticket = MemberState.DONE, result, None

    def fail(self, error: BaseException) -> None:
        self.state, self.error, self.ticket = MemberState.DONE, error, None

    def leave(self) -> None:
        self.state, self.ticket = MemberState.ALONE, None


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """A batch that a leader may take: of a thread of its process, or a staged one."""

    rows: pa.Table
    member: Member | None = None
    ticket: Ticket | None = None


@dataclass(slots=True)
class Group:
    """Writes of one process that share operation and options.

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
    members: list[Member]
    search: CommitSearch = field(default_factory=CommitSearch)

    @property
    def waiting(self) -> list[Member]:
        """The writes without an outcome."""
        return [member for member in self.members if member.state is MemberState.WAITING]

    def committed_result(self, member: Member, outcome: GroupOutcome) -> WriteResult:
        instant = outcome.instant
        return self.own_result(
            WriteResult(str(self.settings.operation), instant.request_time, instant.completion_time),
            outcome.writes,
            outcome.counts,
            member,
        )

    def own_result(self, result: WriteResult, writes: int, counts: RowCounts, member: Member) -> WriteResult:
        waited_ms = self.context.env.monotonic_ms() - member.begun_ms
        return replace(
            result,
            rows_in=member.rows.num_rows,
            rows_combined=member.rows.num_rows - counts.rows,
            rows_inserted=counts.inserted,
            rows_updated=counts.updated,
            rows_unchanged=max(counts.rows - counts.inserted - counts.updated - counts.deleted, 0),
            rows_deleted=counts.deleted,
            grouped=writes,
            seconds={**result.seconds, "wait": waited_ms / 1000},
        )

    def remove(self, storage: Storage, tickets: Iterable[Ticket]) -> None:
        """Delete batches, then their claims. What remains is removed by a later leader."""
        tickets = list(tickets)
        if not tickets:
            return
        with suppress(HudiError):
            storage.delete([ticket.batch_path for ticket in tickets])
            storage.delete([ticket.claim_path for ticket in tickets])


def unknown_outcome(context: TableContext, ticket: Ticket | None) -> CommitUnknown:
    """Return the error of a write whose batch a leader has claimed, and whose commit is not known."""
    name = "" if ticket is None else f" {ticket.name}"
    return CommitUnknown(
        f"a group commit of {context.storage.uri} took the batch{name}, and its outcome is not known; read the table before "
        "writing the batch again"
    )
