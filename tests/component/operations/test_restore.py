"""Restore across completed and pending compactions and clusterings, and at the end of the history."""

from __future__ import annotations

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi.errors import InstantNotFound, TableState
from pyhudi.format.instants import Action
from tests.support.rows import assert_same_rows

OPTIONS = {
    "hoodie.index.bloom.num_entries": "100",
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.compact.inline": "false",
}


def rows(batch: int, first: int = 0, count: int = 12) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "id": [str(i) for i in numbers],
            "part": [f"p{i % 2}" for i in numbers],
            "ts": pa.array([batch] * count, pa.int64()),
        }
    )


@pytest.mark.sample(2)
@pytest.mark.parametrize("metadata", ["true", "false"])
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_through_compactions_and_clusterings(table_type: str, metadata: str) -> None:
    table = hp.Table.create(
        f"memory://restore-through-{table_type}-{metadata}",
        record_key="id",
        partition_by="part",
        ordering="ts",
        table_type=table_type,
        options={**OPTIONS, "hoodie.metadata.enable": metadata},
    )
    for batch in range(2):
        table.upsert(rows(batch))
    target = table.timeline().completed_writes()[-1].request_time
    before = table.scan().to_arrow()
    table.upsert(rows(2, 0, 6))
    if table_type == "mor":
        assert table.compact().runs
    table.upsert(rows(3, 20))
    assert table.cluster(order_by="id").completion_time is not None
    table.upsert(rows(4, 0, 24))
    table.delete_partitions("p1")
    if table_type == "mor":
        table.upsert(rows(5, 0, 6))
        assert table.schedule_compaction().planned
    table.insert(rows(6, 50))
    assert table.schedule_clustering(order_by="id").instant is not None
    result = table.restore(target)
    assert len(result.rolled_back) >= 6
    assert_same_rows(table.scan().to_arrow(), before, ignoring=("_hoodie_file_name",))
    timeline = table.timeline()
    assert [i.request_time for i in timeline.completed_writes()][-1] == target
    assert not timeline.pending()
    # No data file of what was undone is left.
    names = [info.path.rsplit("/", 1)[-1] for info in table.context.storage.walk("") if info.path.startswith("p")]
    undone = {time for time in result.rolled_back}
    assert not [name for name in names if any(time in name for time in undone)]
    table.upsert(rows(9))
    assert set(table.scan(["ts"]).to_arrow()["ts"].to_pylist()) == {9}
    assert table.cluster(order_by="id").completion_time is not None
    assert table.validate().ok


def test_restore_to_an_archived_instant_is_rejected() -> None:
    few = {
        "hoodie.keep.min.commits": "3",
        "hoodie.keep.max.commits": "4",
        "hoodie.clean.commits.retained": "1",
        "hoodie.clean.automatic": "true",
        "hoodie.archive.automatic": "true",
        "hoodie.metadata.enable": "false",
    }
    table = hp.Table.create(
        "memory://restore-archived",
        record_key="id",
        partition_by="part",
        ordering="ts",
        options={**OPTIONS, **few},
    )
    first = table.upsert(rows(0)).instant
    assert first is not None
    for batch in range(1, 9):
        table.upsert(rows(batch))
    assert first not in {i.request_time for i in table.timeline().instants}
    files = {info.path for info in table.context.storage.walk("")}
    with pytest.raises((InstantNotFound, TableState), match=first):
        table.restore(first)
    oldest = table.timeline().completed_writes()[0].request_time
    with pytest.raises(TableState, match="may be missing"):
        table.restore(oldest)
    assert {info.path for info in table.context.storage.walk("")} == files
    newest = table.timeline().completed_writes()[-1].request_time
    table.upsert(rows(20), options={"hoodie.clean.automatic": "false"})
    table.restore(newest)
    assert set(table.scan(["ts"]).to_arrow()["ts"].to_pylist()) == {8}
    assert not table.timeline().pending(Action.RESTORE)


@pytest.mark.parametrize("operation", ["upsert", "insert_overwrite", "cluster"])
def test_a_write_whose_predecessor_was_cleaned_is_not_rolled_back(operation: str) -> None:
    """One version of a file is kept, so a clean takes what the newest write put another one in place of."""
    options = {**OPTIONS, "hoodie.metadata.enable": "false"}
    table = hp.Table.create(f"memory://restore-cleaned-{operation}", record_key="id", options=options)
    first = pa.table({"id": ["a", "b"], "v": [1, 1]})
    table.upsert(first)
    if operation == "cluster":
        table.upsert(pa.table({"id": ["c"], "v": [1]}))
        instant = table.cluster().instant
    else:
        instant = getattr(table, operation)(pa.table({"id": ["a"], "v": [2]})).instant
    before = table.scan().to_arrow()
    table.clean(
        dry_run=False,
        options={"hoodie.cleaner.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": 1},
    )
    with pytest.raises(TableState, match="cannot be rolled back: files that it replaced were cleaned"):
        table.rollback(str(instant))
    assert_same_rows(table.scan().to_arrow(), before)
    assert table.validate().ok


def test_dropped_indexes_are_named_and_those_that_no_write_builds_again() -> None:
    table = hp.Table.create("memory://restore-indexes", record_key="id", ordering="ts", options=OPTIONS)
    table.upsert(rows(0))
    table.index.create("bloom_filters")
    table.index.create("record_index")
    table.index.create("secondary_index", ["part"])
    target = table.savepoint().instant
    table.upsert(rows(1, 20))
    before = {index.name for index in table.index.list()}
    result = table.restore(target)
    assert set(result.dropped_indexes) == before >= {"bloom_filters", "record_index", "secondary_index_part", "column_stats"}
    assert result.indexes_to_create == ("bloom_filters",)
    assert "create again  bloom_filters: dropped" in str(result) and "secondary_index_part dropped until" in str(result)
    assert not table.index.list()
    table.upsert(rows(2))
    assert {index.name for index in table.index.list()} == before - {"bloom_filters"}
    table.index.create("bloom_filters")
    assert table.restore(target).dropped_indexes == tuple(sorted(before))
    assert table.restore(target).dropped_indexes == ()


@pytest.mark.parametrize("version", [8, 9])
def test_record_index_that_no_write_builds_again_is_named(version: int) -> None:
    table = hp.Table.create(
        f"memory://restore-record-{version}", record_key="id", options={**OPTIONS, "hoodie.write.table.version": version}
    )
    target = table.upsert(rows(0)).instant or ""
    table.index.create("record_index")
    lost = table.restore(target).indexes_to_create
    table.upsert(rows(1))
    assert ("record_index" in lost) == ("record_index" not in {index.name for index in table.index.list()})
