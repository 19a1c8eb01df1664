"""When the page checksums of a Parquet file are verified: at each read of a column chunk, at the first one, or never."""

from __future__ import annotations

from enum import StrEnum


class ChecksumMode(StrEnum):
    """Value of the option `pyhudi.read.checksums`."""

    ALWAYS = "always"
    ONCE = "once"
    NEVER = "never"


class PageChecks:
    """Which column chunks of one file have pages whose checksums are still to be verified.

    Threads that read one chunk at the same time both verify it.
    """

    def __init__(self, mode: ChecksumMode = ChecksumMode.ALWAYS) -> None:
        self._mode = mode
        self._verified: dict[int, int] = {}

    def is_due(self, group: int, columns: int) -> bool:
        """Return whether reading columns of a row group verifies checksums. columns: a bit for each column's position."""
        if self._mode is ChecksumMode.ONCE:
            return bool(columns & ~self._verified.get(group, 0))
        return self._mode is ChecksumMode.ALWAYS

    def passed(self, group: int, columns: int) -> None:
        """Record that all pages of some columns of a row group were verified."""
        if self._mode is ChecksumMode.ONCE:
            self._verified[group] = self._verified.get(group, 0) | columns
