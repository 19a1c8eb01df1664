"""Staged batches of writers that wait for a group commit, and how a writer learns what became of its batch.

    .hoodie/.group/<time>-<uuid>.arrow     a batch: an Arrow stream; its schema metadata describes the write
    .hoodie/.group/<time>-<uuid>.claim     put-if-absent, once: taken (by the leader of a commit), refused (its writer
                                           writes it alone) or withdrawn (no writer applies it)

A leader holds the table lock. It reads batches, looks their tickets up in the commits that were requested after they
were staged, claims the others, makes one commit, and deletes their files. The extra metadata of the commit names the
tickets with their counts:

    pyhudi.write.group = {"writes":3,"tickets":{"<ticket>":[rows,inserted,updated,deleted]}}

Hudi ignores the folder. A ticket is found in commits for as long as its writer waits, in the archived timeline too.

Source: docs/decisions/0025-group-commit.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from pyhudi.errors import CorruptData
from pyhudi.format.instants import Instant
from pyhudi.format.paths import GROUP_FOLDER, file_name, join_path
from pyhudi.operations.write.write_once import CommitSearch
from pyhudi.planning.group_batches import RowCounts
from pyhudi.storage.base import FileInfo, Storage
from pyhudi.storage.process_identity import Process
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline

GROUP_KEY = "pyhudi.write.group"
"""Key in the extra metadata of commits, and in the schema metadata of staged batches."""

_BATCH, _CLAIM = ".arrow", ".claim"


class Claim(StrEnum):
    """What becomes of a batch, decided once."""

    TAKEN = "taken"
    REFUSED = "refused"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True, slots=True)
class Ticket:
    """One staged batch, without its rows.

    Attributes:
        name: Unique name; names are ordered by the time of staging.
        options: Digest of operation and options: batches with equal digests may share a commit.
        after: The last instant time on the timeline when the batch was staged.
        owner: Identity of the writer's process.
        wait_ms: How long the writer waits before it withdraws the batch.
    """

    name: str
    options: str
    after: str
    owner: str
    wait_ms: int

    @property
    def batch_path(self) -> str:
        """File of the staged rows, relative to the table."""
        return join_path(GROUP_FOLDER, self.name + _BATCH)

    @property
    def claim_path(self) -> str:
        """File that a leader creates to claim the ticket, relative to the table."""
        return join_path(GROUP_FOLDER, self.name + _CLAIM)

    def owner_is_dead(self) -> bool:
        """True if the writer's process is known to have ended."""
        process = Process.parse(self.owner)
        return process is not None and process.is_running() is False


def stage_batch(storage: Storage, ticket: Ticket, rows: pa.Table) -> None:
    """Write a batch. After StorageUnavailable it may exist."""
    values = {"options": ticket.options, "after": ticket.after, "owner": ticket.owner, "wait_ms": ticket.wait_ms}
    schema = rows.schema.with_metadata({**(rows.schema.metadata or {}), GROUP_KEY.encode(): json.dumps(values).encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(rows.replace_schema_metadata(schema.metadata))
    storage.put(ticket.batch_path, sink.getvalue().to_pybytes())


def read_batch(storage: Storage, path: str) -> tuple[Ticket, pa.Table] | None:
    """Return a staged batch; None if it was removed concurrently.

    Raises:
        CorruptData: The file is unreadable.
    """
    data = storage.read(path)
    if data is None:
        return None
    try:
        with pa.ipc.open_stream(data) as reader:
            rows = reader.read_all()
        metadata = dict(rows.schema.metadata or {})
        values = json.loads(metadata.pop(GROUP_KEY.encode()))
        name = file_name(path).removesuffix(_BATCH)
        ticket = Ticket(name, str(values["options"]), str(values["after"]), str(values["owner"]), int(values["wait_ms"]))
        return ticket, rows.replace_schema_metadata(metadata or None)
    except (pa.ArrowException, ValueError, KeyError, TypeError) as error:
        raise CorruptData(f"a staged batch is unreadable: {error}").with_path(storage.absolute(path)) from error


def list_tickets(storage: Storage) -> tuple[list[FileInfo], dict[str, FileInfo]]:
    """Return the files of batches in the order of their tickets, and of claims by ticket."""
    files = storage.list(GROUP_FOLDER).files
    claims = {info.name.removesuffix(_CLAIM): info for info in files if info.name.endswith(_CLAIM)}
    return [info for info in files if info.name.endswith(_BATCH)], claims


def ticket_name(path: str) -> str:
    """Return the ticket of the file of a batch."""
    return file_name(path).removesuffix(_BATCH)


def claim(storage: Storage, path: str, wanted: Claim) -> Claim | None:
    """Decide what becomes of a batch, unless it was decided before.

    A claim is deleted after its batch, once the decision was executed. So a leader that wins a claim looks whether
    the batch still exists, and a writer that wins one looks whether the batch is committed.

    Returns:
        The decision; None if one was made and executed.

    Raises:
        StorageUnavailable: The decision is unknown.
    """
    return wanted if storage.put_if_absent(path, wanted.value.encode()) else read_claim(storage, path)


def read_claim(storage: Storage, path: str) -> Claim | None:
    """Return what was decided for a batch, None if nothing."""
    data = storage.read(path)
    if data is None:
        return None
    try:
        return Claim(data.decode())
    except ValueError as error:
        raise CorruptData(f"a claim of a staged batch is unreadable: {data[:50]!r}").with_path(storage.absolute(path)) from error


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """What a commit did for one ticket.

    Attributes:
        instant: The commit.
        writes: Number of writes in it.
        counts: What the write did.
    """

    instant: Instant
    writes: int
    counts: RowCounts


def encode_outcomes(writes: int, outcomes: Mapping[str, RowCounts]) -> Mapping[str, str]:
    """Return the entry of a commit for its tickets."""
    tickets = {name: [c.rows, c.inserted, c.updated, c.deleted] for name, c in outcomes.items()}
    return {GROUP_KEY: json.dumps({"writes": writes, "tickets": tickets}, separators=(",", ":"))}


def find_outcomes(
    context: TableContext, timeline: Timeline, search: CommitSearch, tickets: Iterable[Ticket]
) -> dict[str, GroupOutcome]:
    """Return the outcomes of those tickets that a commit of the timeline, active or archived, contains."""
    after = {ticket.name: ticket.after for ticket in tickets}
    if not after:
        return {}
    outcomes: dict[str, GroupOutcome] = {}
    for instant, extra in search.newest_first(context.timeline, timeline, min(after.values())):
        text = extra.get(GROUP_KEY)
        if not text:
            continue
        try:
            document = json.loads(text)
            for name, numbers in document["tickets"].items():
                if name in after:
                    outcomes[name] = GroupOutcome(instant, int(document["writes"]), RowCounts(*(int(n) for n in numbers)))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptData(f"the tickets of {instant.request_time} are unreadable: {text[:200]!r}") from error
        if len(outcomes) == len(after):
            break
    return outcomes
