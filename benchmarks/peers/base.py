"""What a system under test offers to the benchmark.  One subclass of `Peer` per system; `worker.py` holds one object of it.

A step method does everything that is not to be measured, and returns `Measured`: the operation, which the worker times, and a
function that turns its result into an answer, which the worker calls afterwards. Opening the table and reading the input belong
to the operation, for every system alike. A step that a system does not have is simply not overridden.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.fingerprint import Fingerprint


class NotOffered(Exception):
    """The system has no such step; the report shows '-'."""


class NotBuilt(Exception):
    """PyHudi will have this step and has it not yet; the report shows 'not built'."""


@dataclass(frozen=True, slots=True)
class Table:
    """One table of one round. path: an absolute folder on the local disk, absent before the first write. kind: `cow` or `mor`."""

    path: str
    kind: str
    name: str = "lineitem"


@dataclass(frozen=True, slots=True)
class Settings:
    """What is the same for all systems. scratch: a folder for spills and warehouses; jars: for the class path of Spark."""

    core_count: int
    driver_memory: str
    scratch: str
    jars: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Measured:
    """operation: timed, called once. answer: from the operation's result to the JSON value to compare, or None when it has none.

    share: how many alike things the operation does; the time reported is that of one.
    """

    operation: Callable[[], Any]
    answer: Callable[[Any], Any] = lambda _: None
    share: int = 1


class Peer:
    """A system under test. Files are Parquet, absolute paths; keys are (l_orderkey, l_linenumber)."""

    # Whether updates of a Merge-on-Read table are one thing, and of a Copy-on-Write table another, in this system.
    kinds: tuple[str, ...] = ("cow", "mor")

    def start(self, settings: Settings) -> dict[str, str]:
        """Bring up what a user would keep running (a Spark session); returns the versions of everything involved."""
        raise NotImplementedError

    def settle(self) -> None:
        """Give back memory that the last step left, before the next is measured."""

    def stop(self) -> None:
        """Bring down what `start` brought up."""

    def state(self, table: Table) -> Fingerprint:
        """The fingerprint of the snapshot; never timed."""
        raise NotOffered

    def bulk_insert(self, table: Table, files: Sequence[str]) -> Measured:
        raise NotOffered

    def upsert(self, table: Table, files: Sequence[str]) -> Measured:
        raise NotOffered

    def delete(self, table: Table, files: Sequence[str]) -> Measured:
        raise NotOffered

    def aggregate(self, table: Table) -> Measured:
        raise NotOffered

    def full_read(self, table: Table) -> Measured:
        raise NotOffered

    def filtered_read(self, table: Table) -> Measured:
        raise NotOffered

    def point_lookup(self, table: Table, keys: Sequence[Sequence[int]]) -> Measured:
        raise NotOffered

    def track_changes(self, table: Table) -> Measured:
        """Switch on, before the last batch, what the incremental read of that batch needs; nothing to do for most."""
        return Measured(lambda: None)

    def incremental(self, table: Table) -> Measured:
        """The rows that the newest commit inserted or updated."""
        raise NotOffered

    def compact(self, table: Table) -> Measured:
        raise NotOffered

    def cluster(self, table: Table) -> Measured:
        raise NotOffered

    def clean(self, table: Table) -> Measured:
        """Remove every file that only older versions of the table need."""
        raise NotOffered
