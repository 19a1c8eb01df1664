"""Rows of tables in clouds: `id`, `ts`, and `city`, the partition column with two values."""

from __future__ import annotations

import pyarrow as pa


def batch(ids: range, ts: int) -> pa.Table:
    count = len(ids)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "ts": pa.array([ts] * count, pa.int64()),
            "city": [f"city {number % 2}" for number in ids],
        }
    )


def rows_of(rows: pa.Table) -> dict[int, int]:
    """Id -> ts."""
    return dict(zip(rows["id"].to_pylist(), rows["ts"].to_pylist(), strict=True))
