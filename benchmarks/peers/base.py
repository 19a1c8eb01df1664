"""Interface of a system under test: one subclass of `Peer` per system, executed by `benchmarks.worker`.

A step method does what is not measured and returns `Measured`. Opening the table and reading the input belong to the
operation. A step that a system does not offer is not overridden.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.fingerprint import Fingerprint
from benchmarks.queries import LAYOUTS, Layout


class NotOffered(Exception):
    """The system has no such step; shown as '-'."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table on the local disk, absent before the first write. kind: `cow` or `mor`; kept: reads reuse one opened table."""

    path: str
    kind: str
    layout_name: str = "lineitem"
    kept: bool = False
    name: str = "lineitem"

    @property
    def layout(self) -> Layout:
        return LAYOUTS[self.layout_name]


@dataclass(frozen=True, slots=True)
class Settings:
    """Equal for all systems but jars (class path of Spark) and options (of this system). scratch: folder for spills."""

    core_count: int = 2
    driver_memory: str = "2g"
    scratch: str = ""
    jars: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Measured:
    """Timed operation, and the JSON answer made of its result. share: how many equal things the operation does."""

    operation: Callable[[], Any]
    answer: Callable[[Any], Any] = lambda _: None
    share: int = 1


def _not_offered(self: Peer, *_: Any, **__: Any) -> Measured:
    raise NotOffered


class Peer:
    """A system under test. Files are Parquet, absolute paths."""

    kinds: tuple[str, ...] = ("cow", "mor")
    settings: Settings

    def start(self, settings: Settings) -> dict[str, str]:
        """Start what a user keeps running, such as a Spark session; returns the versions of everything involved."""
        raise NotImplementedError

    def settle(self) -> None:
        """Release memory of the last step before the next is measured."""

    def stop(self) -> None:
        """Stop what `start` started."""

    def state(self, table: Table) -> Fingerprint:
        """Fingerprint of the snapshot; never timed."""
        raise NotOffered

    def track_changes(self, table: Table) -> Measured:
        """Enable what the incremental read of the next batch needs; nothing for most."""
        return Measured(lambda: None)

    # bulk_insert, upsert, delete take files; filtered_read a condition; point_lookup keys.
    bulk_insert = upsert = delete = filtered_read = point_lookup = _not_offered
    # incremental, changes: rows that the newest commit inserted or updated. clean: remove files that only old versions need.
    aggregate = full_read = incremental = changes = compact = cluster = clean = _not_offered
    # Reads of the embedded engines by the library that a user calls.
    batches_read = sql_aggregate = sql_filter = polars_read = polars_aggregate = polars_filter = _not_offered
