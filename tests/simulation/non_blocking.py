"""Batches of non-blocking writers, and the rows of their merge."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from tests.simulation.tables import partition_of

OPTIONS: dict[str, object] = {
    "hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL",
    "hoodie.index.type": "BUCKET",
    "hoodie.bucket.index.num.buckets": 2,
    "hoodie.log.compaction.blocks.threshold": 2,
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.compact.inline": False,
    "hoodie.clean.commits.retained": 1,
    "hoodie.keep.min.commits": 2,
    "hoodie.keep.max.commits": 3,
    "hoodie.table.cdc.enabled": True,
    "hoodie.write.lock.wait_time_ms": 90_000,
    "pyhudi.threads": 1,
}
Batch = list[tuple[str, int]]
"""Keys and event times, which are the values too."""
FIRST: Batch = [("k0", 0), ("k1", 0)]


def rows(batch: Batch) -> pa.Table:
    keys, times = [key for key, _ in batch], pa.array([time for _, time in batch], pa.int64())
    return pa.table({"id": keys, "part": [partition_of(key) for key in keys], "ts": times, "value": times})


def merged(batches: Iterable[Batch]) -> dict[str, int]:
    """What one writer would make of them."""
    held: dict[str, int] = {}
    for batch in batches:
        for key, time in batch:
            held[key] = max(held.get(key, 0), time)
    return held
