"""Changes of column types."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from pyhudi import Table

INT, LONG, FLOAT, DOUBLE, TEXT = pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string()
CHANGES = [
    (INT, TEXT),
    (LONG, TEXT),
    (DOUBLE, TEXT),
    (INT, LONG),
    (INT, DOUBLE),
    (FLOAT, DOUBLE),
    (LONG, DOUBLE),
]
PLAIN = {"hoodie.compact.inline": False, "hoodie.clean.automatic": False}


def rows(kind: pa.DataType, *numbers: int, ts: int) -> pa.Table:
    """A row for each number, odd ones and even ones in partitions of their own."""
    return pa.table(
        {
            "id": [f"k{n}" for n in numbers],
            "p": ["even" if n % 2 == 0 else "odd" for n in numbers],
            "ts": pa.array([ts] * len(numbers), LONG),
            "n": pa.array(numbers, INT).cast(kind),
        }
    )


def changed(path: Path, table_type: str, old: pa.DataType, new: pa.DataType) -> Table:
    """A table with a column that is of another type since its newest commit, which touches one partition."""
    table = Table.create(path, name="t", record_key="id", partition_by="p", ordering="ts", table_type=table_type, options=PLAIN)
    table.bulk_insert(rows(old, 0, 1, 2, 3, ts=1))
    table.upsert(rows(new, 1, 5, ts=2), schema_mode="evolve")
    return Table(path, options=PLAIN)
