"""One group commit under the table lock: take the batches that fit, combine them and commit them. See `group_commit`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pyarrow as pa

from pyhudi.errors import CorruptData, HudiError, InvalidRequest, TableState, WriteConflict
from pyhudi.operations.commit.events import observed
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.commit.rollback import rollback_failed_writes
from pyhudi.operations.write.group_members import Batch, Group
from pyhudi.operations.write.group_tickets import (
    Claim,
    Ticket,
    claim,
    encode_outcomes,
    find_outcomes,
    list_tickets,
    read_batch,
    ticket_name,
)
from pyhudi.operations.write.write_once import AlreadyCommitted
from pyhudi.operations.write.write_rows import Write, planned_write, run_followups
from pyhudi.operations.write.write_schemas import WriteSchemas
from pyhudi.planning.group_batches import GroupTraits, RowCounts, choose_batches, count_rows, row_identities
from pyhudi.storage.base import FileInfo, Storage
from pyhudi.storage.fenced_storage import FencedStorage
from pyhudi.storage.locks import HOLD_NOTICE_PATH
from pyhudi.storage.thread_pool import in_threads
from pyhudi.table.snapshot import Snapshot
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline

_EXPIRY_MARGIN_MS = 10_000
_ORPHANED_CLAIM_MS = 24 * 3_600_000


@dataclass(slots=True)
class Leader:
    """One commit under the lock.

    Attributes:
        group: The writes of this process.
        context: The table, with the held lock.
        storage: Verifies the lock before each change.
    """

    group: Group
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
        members = [Batch(member.rows, member=member) for member in self.group.waiting if member.ticket is None]
        if not members:
            return
        if len(members) == 1 and not staged:
            self._commit_alone(members[0])
            return
        self._commit_group([*members, *staged])

    def _staged_batches(self) -> list[Batch]:
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
        for info, found in zip(files, in_threads(self._read_staged, files), strict=True):
            if found is not None:
                batches.append(Batch(found[1], ticket=found[0]))
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
                own[ticket.name].succeed(self.group.committed_result(own[ticket.name], outcome))
        if committed:
            self.group.remove(self.storage, [ticket for ticket in tickets if ticket.name in committed])
        open_tickets = [ticket for ticket in tickets if ticket.name not in committed]
        alive = []
        for ticket in open_tickets:
            if ticket.name not in own and self._expired(ticket, modified[ticket.name], now_ms):
                self._decide(ticket, Claim.WITHDRAWN)
            elif ticket.options == self.group.options or ticket.name in own:
                alive.append(ticket)
        settled = self._expired_claims([t for t in alive if t.name in claims], timeline)
        usable = {t.name for t in alive if t.name not in claims or t.name in settled}
        return [batch for batch in batches if batch.ticket is not None and batch.ticket.name in usable]

    def _read_staged(self, info: FileInfo) -> tuple[Ticket, pa.Table] | None:
        """Return a staged batch; None if it was removed, or is unreadable and refused: its writer has the rows."""
        try:
            return read_batch(self.storage, info.path)
        except CorruptData:
            self._decide(Ticket(ticket_name(info.path), "", "", "", 0), Claim.REFUSED)
            return None

    def _expired_claims(self, claimed: Sequence[Ticket], timeline: Timeline) -> set[str]:
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
            self.group.remove(self.storage, [ticket])
            return
        self.storage.put(ticket.claim_path, decision.value.encode())
        self.storage.delete([ticket.batch_path])

    def _commit_alone(self, batch: Batch) -> None:
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

    def _commit_group(self, batches: list[Batch]) -> None:
        """Validate batches one by one, combine those that fit, and commit them."""
        planned = self._plan(batches)
        if planned is None:
            for batch in batches:
                self._leave(batch)
            return
        write, snapshot = planned
        fitting: list[Batch] = []
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
        self._run(GroupMark(self.group, fitting, prepared, traits), replace(write, columns=rows.schema), snapshot, rows)

    def _plan(self, batches: Sequence[Batch]) -> tuple[Write, Snapshot] | None:
        """Plan the commit with the columns of the first batch that fits; None if none does."""
        for batch in batches:
            with suppress(InvalidRequest):
                write, snapshot = planned_write(
                    self.context, self.group.engine, batch.rows.schema.empty_table(), self.group.settings
                )
                return None if snapshot.schema is None else (write, snapshot)
        return None

    def _validated(self, write: Write, snapshot: Snapshot, batch: Batch) -> pa.Table | None:
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

    def _leave(self, batch: Batch) -> None:
        """Leave a batch to its writer."""
        if batch.member is not None:
            batch.member.leave()
        elif batch.ticket is not None:
            self._decide(batch.ticket, Claim.REFUSED)

    def _claimed(self, batches: Sequence[tuple[Batch, pa.Table]]) -> tuple[list[Batch], list[pa.Table]]:
        """Claim staged batches. Returns those that are still there, and not withdrawn."""
        tickets = [batch.ticket for batch, _ in batches if batch.ticket is not None]
        decisions = in_threads(lambda ticket: claim(self.storage, ticket.claim_path, Claim.TAKEN), tickets)
        names = {ticket.name for ticket, decision in zip(tickets, decisions, strict=True) if decision is Claim.TAKEN}
        if names:
            files, _ = list_tickets(self.storage)
            names &= {ticket_name(info.path) for info in files}
        kept = [(b, rows) for b, rows in batches if b.ticket is None or b.ticket.name in names]
        return [batch for batch, _ in kept], [rows for _, rows in kept]

    def _run(self, mark: GroupMark, write: Write, snapshot: Snapshot, rows: pa.Table) -> None:
        """Commit the combined rows."""
        tickets = [batch.ticket for batch in mark.batches if batch.ticket is not None]
        members = [batch.member for batch in mark.batches if batch.member is not None]
        try:
            schemas = WriteSchemas.of(write.context, snapshot, write.columns, write.settings)
            write = replace(write, schemas=schemas, settings=replace(write.settings, once=mark))
            result = _commit(self.context, write, snapshot, rows, lambda: self.group.remove(self.storage, tickets))
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
                batch.member.succeed(self.group.own_result(result, len(mark.batches), counts, batch.member))


@dataclass(slots=True)
class GroupMark:
    """Adds the tickets of a group to its commit, once."""

    group: Group
    batches: Sequence[Batch]
    prepared: Sequence[pa.Table]
    traits: GroupTraits

    def counts(self) -> list[RowCounts]:
        """What each write did."""
        existing = row_identities(self.group.engine.existing_keys(), global_keys=self.traits.global_keys)
        return count_rows(self.prepared, existing, self.traits)

    def check(self, context: TableContext, timeline: Timeline) -> Mapping[str, str]:
        """Return the entry of the commit.

        Raises:
            AlreadyCommitted: A ticket is committed, or its batch was removed while this writer had lost the lock. Then
                its own writer may have committed it from memory, without its ticket.
        """
        tickets = [batch.ticket for batch in self.batches if batch.ticket is not None]
        committed = find_outcomes(context, timeline, self.group.search, tickets)
        staged = {ticket_name(info.path) for info in list_tickets(context.storage)[0]} if tickets else set()
        if committed or not staged.issuperset(ticket.name for ticket in tickets):
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
