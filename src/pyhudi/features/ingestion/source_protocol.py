"""What a source returns. Any object with the method `read` is a source.

    class Numbers:
        def read(self, checkpoint, limit):
            start = int(checkpoint or 0)
            return (pa.table({"id": [start]}), str(start + 1)) if start < 10 else None

`read` returns the rows after a checkpoint and the checkpoint after them, or None if there is nothing new. The job
commits both together, so a source stores nothing. After a failure `read` is called with the last committed checkpoint
again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from pyhudi.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Limit:
    """Maximum size of one batch (back pressure); None means no limit.

    Attributes:
        rows: Number of rows.
        size_bytes: Size of the data in the source.
    """

    rows: int | None = None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class TextRules:
    """How texts and numbers of a source without types become values.

    Attributes:
        text_columns: Columns whose types are not inferred: the table stores texts of that name.
        without_zone_is_utc: Times without a zone are in UTC; otherwise a column with zone does not accept them.
        fixed_columns: Integer columns that do not become wider: record key, partition and ordering fields.
        widens_fractions: The job has a schema mode, so fractions may make an integer column floating point.
    """

    text_columns: frozenset[str] = frozenset()
    without_zone_is_utc: bool = False
    fixed_columns: frozenset[str] = frozenset()
    widens_fractions: bool = False


@dataclass(frozen=True, slots=True)
class ReadContext:
    """How the rows of a batch are read.

    Attributes:
        schema: Types of known columns; None if no column is known.
        is_complete: The schema has all columns, so that others are ignored.
        reject: Reports records that cannot be parsed: texts, reasons and the file or partition that contains them.
        texts: How texts become values.
    """

    schema: pa.Schema | None
    is_complete: bool
    reject: Callable[[list[str], list[str], str], None]
    texts: TextRules = TextRules()


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of a source, and the checkpoint after them.

    Attributes:
        rows: Anything that `Table.upsert` accepts, or a function that opens a stream of Arrow batches.
        checkpoint: Text from which the next read continues.
        remaining: What the source still has after this batch (the lag), by unit: files, bytes, rows, commits.
        size: What the batch contains of the source, by unit, as far as it is known before it is read.
    """

    rows: Any | Callable[[ReadContext], pa.RecordBatchReader]
    checkpoint: str
    remaining: Mapping[str, int] = field(default_factory=dict)
    size: Mapping[str, int] = field(default_factory=dict)


@runtime_checkable
class Source(Protocol):
    """Rows that arrive over time."""

    def read(self, checkpoint: str | None, limit: Limit) -> Batch | tuple[Any, str] | None:
        """Return the rows after a checkpoint, and the checkpoint after them; None if there are none.

        Args:
            checkpoint: What an earlier read returned, or another job's Hudi Streamer; None at the first read.
            limit: Maximum size of the batch. A single unit of the source (a file, a commit) can exceed it.
        """
        ...


def as_batch(returned: Any, source: str) -> Batch | None:
    """Return what a source has returned as a batch. Raises InvalidRequest for anything else."""
    if returned is None or isinstance(returned, Batch):
        batch = returned
    elif isinstance(returned, tuple) and len(returned) == 2:
        batch = Batch(returned[0], returned[1])
    else:
        raise InvalidRequest(
            f"source {source} returned {type(returned).__name__}: read returns rows and the next checkpoint, or None for no new "
            "rows"
        )
    checkpoint: Any = None if batch is None else batch.checkpoint
    if batch is not None and not (isinstance(checkpoint, str) and checkpoint):
        raise InvalidRequest(f"source {source} returned the checkpoint {checkpoint!r}: it must be a text that is not empty")
    return batch
