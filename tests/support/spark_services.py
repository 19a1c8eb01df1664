"""A table of three partitions and three commits, on which the tests on Spark run table services."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import pyhudi as hp

OPTIONS = {
    "hoodie.index.bloom.num_entries": "100",
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.compact.inline": "false",
    "hoodie.log.compaction.blocks.threshold": "2",
}


def rows(batch: int, count: int = 30) -> pa.Table:
    return pa.table(
        {
            "id": [str(i) for i in range(count)],
            "part": [f"p{i % 3}" for i in range(count)],
            "ts": pa.array([batch] * count, pa.int64()),
            "x": pa.array([(i * 7 + batch) % 13 for i in range(count)], pa.int64()),
        }
    )


def table_with_commits(path: Path, table_type: str) -> hp.Table:
    table = hp.Table.create(path, record_key="id", partition_by="part", ordering="ts", table_type=table_type, options=OPTIONS)
    for batch in range(3):
        table.upsert(rows(batch))
    return table
