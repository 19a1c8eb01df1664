"""The rows of the curves, the same for every system: a key, a partition, an ordering value and columns beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import pyarrow as pa

PARTITIONS = 7
PART_ROWS = 500_000


def batch(numbers: range | Sequence[int], stamp: int, *, partitions: int = PARTITIONS, columns: int = 8) -> pa.Table:
    """Rows with some numbers.  Neighbours are in one partition where there are few, so that a range of them touches one.

    partitions: how many there are, of numbers in turn; columns: of numbers, beside key, partition and ordering value.
    """
    values = pa.array(numbers, pa.int64())
    made = {
        "id": pa.array([f"key-{number:010}" for number in numbers]),
        "part": pa.array([f"p{number % partitions:05}" for number in numbers]),
        "ts": pa.array([stamp] * len(numbers), pa.int64()),
    }
    return pa.table({**made, **{f"n{number}": values for number in range(columns)}})


def pieces(count: int, *, partitions: int = PARTITIONS, columns: int = 8) -> Iterator[pa.Table]:
    """All rows of a table, some at a time."""
    for start in range(0, count, PART_ROWS):
        yield batch(range(start, min(start + PART_ROWS, count)), 0, partitions=partitions, columns=columns)


def all_rows(count: int, *, partitions: int = PARTITIONS, columns: int = 8) -> pa.RecordBatchReader:
    """The same as a stream."""
    parts = pieces(count, partitions=partitions, columns=columns)
    first = next(parts)
    batches = (one for part in chain([first], parts) for one in part.to_batches())
    return pa.RecordBatchReader.from_batches(first.schema, batches)


def neighbours(count: int, table_rows: int, *, partitions: int = PARTITIONS) -> list[int]:
    """So many numbers of one partition, from the middle of a table."""
    start = table_rows // 2 // partitions * partitions
    found = range(start, min(table_rows, start + count * partitions), partitions)
    return list(found)
