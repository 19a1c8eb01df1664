"""What a system offers to a writer that counts.  One module of this package per system has a subclass of `Counters`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LEDGER = "row "
"""What the keys of rows that no other commit changes begin with."""


class Lost(Exception):
    """Another writer was first, and nothing was written: the commit is made again from the start."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit.  keys: the counters, all in the partition `part`.  row: the key of the row that tells of it, new.

    is_own: nobody else counts these, so that what the writer read before the commit is right in it.
    """

    part: str
    keys: tuple[str, ...]
    row: str
    is_own: bool = False


class Counters(ABC):
    """A table of columns id, part (the partition) and v.  path: where it lies; jars: of the system, where it runs on Spark."""

    def __init__(self, path: str, options: Mapping[str, object], jars: Sequence[str] = ()) -> None:
        self.path = path
        self.options = options

    def create(self, kind: str, rows: Sequence[tuple[str, str]]) -> None:
        """Make the table with these counters, (part, key), at 0.  For those whose table another system makes, there is no way."""
        raise NotImplementedError

    @abstractmethod
    def add(self, commit: Commit, lost: int = 0) -> Mapping[str, int] | None:
        """Add one to each counter and insert the row, in one commit.  lost: how many attempts at it others came before.

        Returns the new values; None where the system does not tell which it wrote.  Raises Lost.
        """

    @abstractmethod
    def rows(self) -> list[tuple[str, int]]:
        """All rows, (key, value)."""

    def wrong(self) -> list[str]:
        """What the system itself finds wrong with the table."""
        return []
