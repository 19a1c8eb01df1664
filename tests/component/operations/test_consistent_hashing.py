"""Consistent hashing end to end: current metadata version, writes that create it, and metadata that does not match the
table.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import InvalidRequest, TableState
from pyhudi.features.consistent_hashing.hashing_metadata import hashing_path, initial_hashing_metadata, mark_path
from pyhudi.features.consistent_hashing.hashing_store import load_hashing_metadata, renewed, store_hashing_metadata
from pyhudi.format.actions.clustering_plan import ClusteringGroup, ClusteringPlan, ClusteringStrategy, SliceInfo
from pyhudi.format.actions.commit_metadata import CommitMetadata
from pyhudi.format.actions.requested_replace import RequestedReplaceMetadata
from pyhudi.format.instants import Action, State
from pyhudi.operations.write.delete_partitions import run_delete_partitions
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.storage.memory import forget_memory
from pyhudi.table.table_context import TableContext
from tests.support.consistent_hashing_tables import NODES, RINGS, create, hashing_files, hashing_of, rows
from tests.support.golden_tables import open_golden

_names = itertools.count()


@pytest.fixture
def uri() -> Iterator[str]:
    name = f"rings-{next(_names)}"
    yield f"memory://{name}"
    forget_memory(name)


def values(table: hp.Table) -> list[tuple[str, str, int]]:
    found = table.scan(["id", "part", "ts"]).to_arrow().to_pylist()
    return sorted((row["id"], row["part"], row["ts"]) for row in found)


def groups(table: hp.Table, part: str = "p") -> set[str]:
    return {row["file_id"] for row in table.inspect.file_slices().to_pylist() if row["partition"] == part}


def test_first_write_of_a_partition_creates_hashing_metadata_and_log_files(uri: str) -> None:
    table = create(uri)
    table.upsert(pa.concat_tables([rows(*range(8)), rows(1, part="q")]))
    assert hashing_files(table) == ["p/00000000000000.hashing_meta", "q/00000000000000.hashing_meta"]
    assert hashing_of(table) == initial_hashing_metadata("p", NODES)
    slices = table.inspect.file_slices().to_pylist()
    assert groups(table) == set(initial_hashing_metadata("p", NODES).file_ids)
    assert [row["base_path"] for row in slices] == [None] * len(slices)
    store = table.context.timeline
    instant = store.load().completed(Action.DELTACOMMIT)[0]
    told = CommitMetadata.decode(store.read_state(instant.request_time, Action.DELTACOMMIT, State.INFLIGHT) or b"")
    stats = [stat for found in told.partition_to_write_stats.values() for stat in found]
    assert all(stat.file_id and stat.num_update_writes and not stat.num_inserts for stat in stats)
    assert sum(stat.num_update_writes for stat in stats) == 9


@pytest.mark.parametrize("metadata", [True, False])
def test_inserts_in_bulk_make_base_files_of_nodes(uri: str, metadata: bool) -> None:
    table = create(uri, **{"hoodie.metadata.enable": metadata})
    table.bulk_insert(rows(*range(8)))
    assert groups(table) == set(initial_hashing_metadata("p", NODES).file_ids)
    assert all(row["base_path"] for row in table.inspect.file_slices().to_pylist())
    table.upsert(rows(*range(4, 12), ts=2))
    table.delete(pa.table({"id": ["k0", "k11", "nobody"]}))
    assert values(table) == [(f"k{n}", "p", 2 if n > 3 else 1) for n in sorted(range(1, 11), key=str)]
    assert table.compact().instant is not None
    table.upsert(rows(1, ts=3))
    assert table.validate(keys=True).ok
    assert dict((key, ts) for key, _, ts in values(table))["k1"] == 3


def test_table_created_by_hudi_is_written(tmp_path: Path) -> None:
    """Its keys are found where its own hashes put them."""
    golden = open_golden("mor_consistent_bucket", tmp_path)
    table = hp.Table(str(golden.path), options=RINGS)
    before = table.scan(["*"]).to_arrow()
    data = before.select([name for name in before.column_names if not name.startswith("_hoodie_")])
    files = hashing_files(table)
    table.upsert(data)
    assert table.scan().to_arrow().num_rows == before.num_rows
    assert hashing_files(table) == files
    assert table.validate(keys=True).ok


def test_deletes_create_no_hashing_metadata(uri: str) -> None:
    table = create(uri)
    table.upsert(rows(1))
    table.delete(rows(1, part="q").select(["id", "part"]))
    table.delete(pa.table({"id": ["k1"]}))
    assert hashing_files(table) == ["p/00000000000000.hashing_meta"]
    assert values(table) == []


@pytest.mark.parametrize("metadata", [True, False])
def test_replacing_file_groups_creates_new_hashing_metadata(uri: str, metadata: bool) -> None:
    """A file group that was replaced shows nothing any more, so no row may go there again."""
    table = create(uri, **{"hoodie.metadata.enable": metadata})
    table.upsert(rows(*range(8)))
    first = hashing_of(table)
    overwritten = table.insert_overwrite(rows(1, 2, 3, ts=2)).instant
    second = hashing_of(table)
    assert [node.value for node in second.nodes] == [node.value for node in first.nodes]
    assert not set(second.file_ids) & set(first.file_ids)
    assert (second.sequence, second.instant) == (1, overwritten)
    table.upsert(rows(3, 4, ts=3))
    # The write that found the instant completed reported it.
    assert f"p/{overwritten}.commit" in hashing_files(table)
    assert values(table) == [("k1", "p", 2), ("k2", "p", 2), ("k3", "p", 3), ("k4", "p", 3)]
    table.delete_partitions(["p"])
    assert values(table) == []
    table.upsert(rows(4, 5, ts=4))
    assert values(table) == [("k4", "p", 4), ("k5", "p", 4)]
    table.upsert(rows(6, part="q"))
    table.insert_overwrite_table(rows(7, part="r"))
    table.upsert(pa.concat_tables([rows(7, ts=2, part="r"), rows(6, ts=2, part="q"), rows(4, ts=5)]))
    assert values(table) == [("k4", "p", 5), ("k6", "q", 2), ("k7", "r", 2)]
    assert table.validate(keys=True).ok


def test_rollback_removes_hashing_metadata(uri: str) -> None:
    table = create(uri)
    table.upsert(rows(*range(8)))
    before, files = values(table), hashing_files(table)
    undone = table.insert_overwrite(rows(1, ts=2)).instant
    assert undone is not None
    # Another process has checked and marked it.
    load_hashing_metadata(table.context, table.context.timeline.load(), "p", (), marks=True)
    assert {f"p/{undone}.hashing_meta", f"p/{undone}.commit"} < set(hashing_files(table))
    table.rollback(undone)
    assert hashing_files(table) == ["p/00000000000000.commit", *files]
    assert values(table) == before
    table.upsert(rows(1, ts=3))
    assert len(values(table)) == 8


def test_hashing_metadata_is_valid_once_its_instant_completed(uri: str) -> None:
    table = create(uri)
    table.upsert(rows(*range(4)))
    context, first = table.context, hashing_of(table)
    timeline = context.timeline.load()
    later = renewed(first, "20990101000000000", context.env.uuid4)
    store_hashing_metadata(context, later)
    # No timeline has the instant, and no base file is of its nodes.
    assert load_hashing_metadata(context, timeline, "p", ()) == first
    assert load_hashing_metadata(context, timeline, "p", {later.nodes[0].prefix or ""}) == later
    context.storage.put(mark_path("p", later.instant), b"")
    assert load_hashing_metadata(context, timeline, "p", ()) == later
    pending = "20990102000000000"
    store_hashing_metadata(context, renewed(later, pending, context.env.uuid4))
    context.timeline.request(pending, Action.CLUSTERING, b"")
    assert load_hashing_metadata(context, context.timeline.load(), "p", ()) == later
    assert load_hashing_metadata(context, timeline, "q", ()) is None


@pytest.mark.parametrize("strategy", ["SparkRejectUpdateStrategy", "SparkAllowUpdateStrategy"])
def test_a_write_to_nodes_that_a_pending_resize_moves_is_refused(uri: str, strategy: str) -> None:
    table = create(uri)
    table.upsert(rows(*range(8)))
    slices = tuple(SliceInfo(file_id=file_id, partition_path="p") for file_id in hashing_of(table).file_ids)
    plan = ClusteringPlan(input_groups=(ClusteringGroup(slices=slices),), strategy=ClusteringStrategy())
    requested = RequestedReplaceMetadata.of_clustering(plan)
    table.context.timeline.request("20990102000000000", Action.CLUSTERING, requested.encode())
    before = values(table)
    allowed = hp.Table(uri, options={**RINGS, "hoodie.clustering.updates.strategy": strategy})
    with pytest.raises(TableState, match="20990102000000000"):
        allowed.upsert(rows(1, ts=3))
    assert values(table) == before


def test_damaged_hashing_metadata_is_reported(uri: str) -> None:
    table = create(uri)
    table.upsert(rows(*range(8)))
    storage, first = table.context.storage, initial_hashing_metadata("p", NODES)
    path = hashing_path("p", first.instant)
    data = storage.read(path)
    assert data is not None
    for damaged, found in (
        (data[:-20], "not JSON"),
        (data.replace(b"1073741824", b"2147483647"), "must be ascending"),
        (
            data.replace(first.nodes[0].prefix.encode() if first.nodes[0].prefix else b"", b"x"),
            "belongs to no consistent hashing",
        ),
    ):
        storage.put(path, damaged)
        report = table.validate()
        assert not report.ok
        assert found in str(report)
        with pytest.raises((TableState, hp.errors.CorruptData)):
            table.upsert(rows(1))
    storage.put(mark_path("p", "20260101000000000"), b"")
    assert "its file is missing" in str(table.validate())
    storage.delete([mark_path("p", "20260101000000000")])
    storage.put(path, data)
    assert table.validate().ok


def test_hashing_metadata_whose_file_groups_hudi_replaced(uri: str) -> None:
    """Apache Hudi deletes a partition and does not change its hashing metadata."""
    table = create(uri)
    table.upsert(rows(*range(8)))
    table.delete_partitions(["p"])
    context, ring = table.context, hashing_of(table)
    context.storage.delete([hashing_path("p", ring.instant), mark_path("p", ring.instant)])
    with pytest.raises(TableState, match="without updating its consistent hashing metadata"):
        table.upsert(rows(1))
    assert "rows written there are invisible" in str(table.validate())
    table.insert_overwrite(rows(1))
    table.upsert(rows(1, 2, ts=2))
    assert values(table) == [("k1", "p", 2), ("k2", "p", 2)]
    assert table.validate().ok


def test_changed_hash_fields_are_refused(uri: str) -> None:
    options = {**RINGS, "hoodie.bucket.index.hash.field": "part"}
    table = hp.Table.create(uri, record_key=["id", "part"], partition_by="part", ordering="ts", table_type="mor", options=options)
    table.bulk_insert(rows(*range(8)))
    assert len(groups(table)) == 1
    with pytest.raises(TableState, match=r"hash\.field"):
        table.upsert(rows(*range(8)), options={"hoodie.bucket.index.hash.field": "id"})
    for wrong in (0, -1):
        with pytest.raises(InvalidRequest, match=r"num\.buckets"):
            table.upsert(rows(1), options={"hoodie.bucket.index.num.buckets": wrong})


def test_callers_without_bucketing_do_not_change_hashing_metadata(uri: str) -> None:
    """A caller that does not use the bucketing that the table stores, and one that requests another clustering."""
    table = create(uri)
    table.bulk_insert(rows(*range(8)))
    other = hp.Table(uri, stored_options=False)
    for asked in (other.cluster, other.schedule_clustering):
        with pytest.raises(InvalidRequest, match=r"engine=CONSISTENT_HASHING"):
            asked()
    for key, name in (("plan", "SparkSizeBasedClusteringPlanStrategy"), ("execution", "SparkSortAndSizeExecutionStrategy")):
        option = "hoodie.clustering.plan.strategy.class" if key == "plan" else "hoodie.clustering.execution.strategy.class"
        with pytest.raises(InvalidRequest, match="resizes buckets"):
            table.cluster(options={option: name})
    assert groups(table) == set(hashing_of(table).file_ids)
    assert not table.timeline().pending()


def test_non_blocking_writers_refuse_consistent_hashing(uri: str) -> None:
    table = create(uri)
    mode = {"hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL", "hoodie.clean.failed.writes.policy": "LAZY"}
    with pytest.raises(InvalidRequest, match="is incompatible with"):
        table.upsert(rows(1), options=mode)
    assert hashing_files(table) == []


def overwrite(context: TableContext) -> None:
    settings = WriteSettings.of(parse_options(RINGS), WriteOperation.INSERT_OVERWRITE)
    run_write(context, LocalEngine(1), rows(50, ts=5), settings)


def delete_partition(context: TableContext) -> None:
    run_delete_partitions(context, ["p"], WriteSettings.of(parse_options(RINGS), WriteOperation.DELETE_PARTITION))


@pytest.mark.sample(2)
@pytest.mark.parametrize("other", [overwrite, delete_partition])
@pytest.mark.parametrize("operation", [WriteOperation.UPSERT, WriteOperation.INSERT_OVERWRITE])
def test_new_hashing_metadata_concurrent_with_a_write(
    uri: str, operation: WriteOperation, other: Callable[[TableContext], None]
) -> None:
    """The write begins a group for a node without one, so the two share no file group; still it must use the new hashing
    metadata.
    """
    table = create(uri, **{"hoodie.bucket.index.num.buckets": 64})
    table.upsert(rows(1))
    raced: list[bool] = []

    class Overtaken(LocalEngine):
        def map(self, function: Callable[[Any], Any], tasks: Any) -> list[Any]:
            # The rows have their places by now, and their files are about to be written.
            if not raced:
                raced.append(True)
                other(table.context)
            return super().map(function, tasks)

    settings = WriteSettings.of(parse_options({**RINGS, "hoodie.bucket.index.num.buckets": 64}), operation)
    result = run_write(table.context, Overtaken(1), rows(2, 3), settings)
    assert raced
    assert result.conflict_retries == 1
    kept = [] if operation.replaces or other is delete_partition else [("k50", "p", 5)]
    assert values(table) == [("k2", "p", 1), ("k3", "p", 1), *kept]
    table.upsert(rows(2, 3, 50, ts=9))
    assert values(table) == [("k2", "p", 9), ("k3", "p", 9), ("k50", "p", 9)]
    assert table.validate(keys=True).ok
