"""What a system offers to a writer: one subclass of `Counters` per system."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

LEDGER = "row "
"""Prefix of keys of rows that no other commit changes."""


class Lost(Exception):
    """Another writer was first and nothing was written: the commit starts again."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit to partition `part`. keys: its counters; row: key of its new row; is_own: nobody else counts these."""

    part: str
    keys: tuple[str, ...]
    row: str
    is_own: bool = False


class Counters(ABC):
    """A table with columns id, part (the partition) and v at a path. jars: of a system on Spark."""

    def __init__(self, path: str, options: Mapping[str, object], jars: Sequence[str] = ()) -> None:
        self.path = path
        self.options = options

    def create(self, kind: str, rows: Sequence[tuple[str, str]]) -> None:
        """Create the table with these counters, (part, key), at 0."""
        raise NotImplementedError

    @abstractmethod
    def add(self, commit: Commit, lost: int = 0) -> Mapping[str, int] | None:
        """Add one to each counter and insert the row, in one commit. Raises Lost.

        Args:
            commit: The commit.
            lost: Attempts at it that lost.

        Returns:
            The new values; None if the system does not return them.
        """

    def write(self, commit: Commit) -> int:
        """Upsert the keys and the row without reading; returns how many writes shared the commit. Raises Lost."""
        raise NotImplementedError

    @abstractmethod
    def rows(self) -> list[tuple[str, int]]:
        """All rows, (key, value)."""

    def wrong(self) -> list[str]:
        """Defects that the system itself finds in the table."""
        return []


def to_rows(rows: Sequence[tuple[str, str, int]]) -> pa.Table:
    """Rows (part, key, value) as Arrow."""
    parts, keys, values = zip(*rows, strict=True)
    return pa.table({"id": pa.array(keys, pa.string()), "part": pa.array(parts, pa.string()), "v": pa.array(values, pa.int64())})


def added(found: pa.Table) -> dict[str, int]:
    """Counters read from a table, each plus one."""
    return {key: value + 1 for key, value in zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True)}


def to_pairs(found: pa.Table) -> list[tuple[str, int]]:
    """Keys and values of a table."""
    return list(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


def condition(commit: Commit) -> str:
    """SQL condition of the commit's counters."""
    listed = ", ".join(f"'{key}'" for key in commit.keys)
    return f"part = '{commit.part}' and id in ({listed})"
