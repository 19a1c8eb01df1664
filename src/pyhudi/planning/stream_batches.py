"""Streaming reads: the range of the next micro-batch.

A stream's offset is a completion time: everything that completed up to it was read. A batch is what completed after its
start and up to its end, whole instants only, at least one. So only the first instant of a batch can exceed a limit.

Pure: completed instants are passed in.  Source: docs/formats/reading.md, "Streaming source".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from pyhudi.errors import InvalidRequest
from pyhudi.options import read_options
from pyhudi.options.declaration import OptionSettings

BEGINNING = "00000000000000"
"""The offset before everything, in the form of Hudi's source."""


@dataclass(frozen=True, slots=True)
class StreamStep:
    """A completed write, and what its reader reads.

    is_archived: it left the active timeline. Such steps are read in one batch: if their files are deleted, each batch
    of them would read the latest snapshot of the whole table.
    """

    completion_time: str
    file_count: int
    size_bytes: int
    is_archived: bool = False


@dataclass(frozen=True, slots=True)
class BatchLimits(OptionSettings):
    """Maximum size of one batch; None means no limit."""

    instants: Annotated[int | None, read_options.STREAM_MAX_INSTANTS] = None
    files: Annotated[int | None, read_options.STREAM_MAX_FILES] = None
    size_bytes: Annotated[int | None, read_options.STREAM_MAX_BYTES] = None

    @property
    def any(self) -> bool:
        """Whether there is a limit."""
        return self != BatchLimits()


def batch_end(steps: Iterable[StreamStep], limits: BatchLimits) -> str | None:
    """Return the completion time of the last step that the next batch reads; None when nothing completed."""
    end: str | None = None
    instants = files = size_bytes = 0
    for step in sorted(steps, key=lambda one: one.completion_time):
        instants, files, size_bytes = instants + 1, files + step.file_count, size_bytes + step.size_bytes
        if end is not None and not step.is_archived and _passed(limits, instants, files, size_bytes):
            break
        end = step.completion_time
    return end


def parse_start(text: str) -> str | None:
    """Parse `hoodie.datasource.streaming.startOffset` as the offset before the first batch; None for `latest`.

    A completion time is an offset: what completed then was read already.  Raises InvalidRequest for anything else.
    """
    given = text.strip().lower()
    if given == "latest":
        return None
    if given == "earliest":
        return BEGINNING
    if not (given.isascii() and given.isdigit()):
        raise InvalidRequest(f"a stream begins at earliest, latest or a completion time in digits, not at {text!r}")
    return given


def _passed(limits: BatchLimits, instants: int, files: int, size_bytes: int) -> bool:
    counted = ((limits.instants, instants), (limits.files, files), (limits.size_bytes, size_bytes))
    return any(limit is not None and count > limit for limit, count in counted)
