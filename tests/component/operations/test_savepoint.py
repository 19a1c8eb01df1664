"""Operations on tables with savepoints on one commit, the newest commit, or all commits."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi.table.table_config import TableType
from tests.support.rows import assert_same_rows

OPTIONS = {
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.clean.commits.retained": "2",
    "hoodie.keep.min.commits": "4",
    "hoodie.keep.max.commits": "5",
    "hoodie.archive.beyond.savepoint": "true",
    "hoodie.compact.inline.max.delta.commits": "1",
}
OPERATIONS: dict[str, Callable[[hp.Table], object]] = {
    "upsert": lambda table: table.upsert(rows(9, 2, 5)),
    "insert": lambda table: table.insert(rows(9, 20, 5)),
    "bulk_insert": lambda table: table.bulk_insert(rows(9, 20, 5)),
    "delete by key": lambda table: table.delete(rows(9, 2, 5).select(["id", "part"])),
    "delete by filter": lambda table: table.delete(where="id == 'k3'"),
    "insert_overwrite": lambda table: table.insert_overwrite(rows(9, 2, 5)),
    "delete_partitions": lambda table: table.delete_partitions(["p1"]),
    "compact": lambda table: table.compact() if table.config.table_type is TableType.MERGE_ON_READ else None,
    "cluster": lambda table: table.cluster(),
    "clean": lambda table: table.clean(dry_run=True),
    "archive": lambda table: table.archive(),
}


def rows(batch: int, first: int = 0, count: int = 12) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "id": [f"k{i}" for i in numbers],
            "part": [f"p{i % 2}" for i in numbers],
            "ts": pa.array([batch] * count, pa.int64()),
        }
    )


def create(uri: str, table_type: str, metadata: str) -> hp.Table:
    return hp.Table.create(
        uri,
        record_key="id",
        partition_by="part",
        ordering="ts",
        table_type=table_type,
        options={**OPTIONS, "hoodie.metadata.enable": metadata},
    )


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("commits", "metadata", "table_type"),
    [
        (1, "true", "mor"),
        (3, "false", "cow"),
        pytest.param(1, "true", "cow", marks=pytest.mark.wide),
        pytest.param(3, "false", "mor", marks=pytest.mark.wide),
    ],
)
@pytest.mark.parametrize("operation", list(OPERATIONS))
def test_operations_when_every_commit_is_savepointed(operation: str, commits: int, table_type: str, metadata: str) -> None:
    """No later write on the timeline shows where it starts."""
    saved, plain = (
        create(f"memory://{name}-{operation}-{commits}-{table_type}-{metadata}", table_type, metadata) for name in "ab"
    )
    for batch in range(commits):
        saved.upsert(rows(batch))
        plain.upsert(rows(batch))
    for instant in saved.timeline().completed_writes():
        saved.savepoint(instant.request_time)
    OPERATIONS[operation](saved)
    OPERATIONS[operation](plain)
    assert_same_rows(saved.scan().to_arrow(), plain.scan().to_arrow(), key=["id"])


@pytest.mark.sample(1)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_writes_long_after_a_savepoint(table_type: str) -> None:
    """What came after the savepoint is archived, while the saved commit stays on the timeline."""
    table = create(f"memory://long-after-{table_type}", table_type, "true")
    table.upsert(rows(0))
    point = table.savepoint().instant
    for batch in range(1, 14):
        table.upsert(rows(batch, batch % 3, 6))
    assert table.timeline().completed_writes()[0].request_time == point
    assert len(table.timeline().completed_writes()) < 13, "nothing was archived"
    assert table.scan(as_of=point).to_arrow().column("ts").unique().to_pylist() == [0]
    table.delete_savepoint(point)
    table.upsert(rows(20))
    assert table.scan().to_arrow().num_rows == 12
