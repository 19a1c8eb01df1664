"""Clustering end to end: rows change nothing but their place, pending plans hold their file groups, one executor has a plan."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi.errors import InvalidRequest, TableState, WriteConflict
from pyhudi.format.instants import Action, Instant, State
from tests.rows import assert_same_rows

OPTIONS = {"hoodie.index.bloom.num_entries": "100", "hoodie.metadata.enable": "false"}


def rows(batch: int, count: int = 40) -> pa.Table:
    random = np.random.default_rng(batch)
    return pa.table(
        {
            "id": [f"{batch}-{i}" for i in range(count)],
            "city": [("sf", "ny")[i % 2] for i in range(count)],
            "ts": pa.array(range(count), pa.int64()),
            "x": random.integers(0, 100, count),
            "y": random.integers(0, 100, count),
        }
    )


def table_with_small_files(uri: str, table_type: str) -> hp.Table:
    table = hp.Table.create(uri, record_key="id", partition_by="city", ordering="ts", table_type=table_type, options=OPTIONS)
    for batch in range(4):
        table.bulk_insert(rows(batch), options=OPTIONS)
    return table


@pytest.mark.parametrize("layout", ["linear", "zorder", "hilbert"])
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_rows_keep_everything_but_their_file(table_type: str, layout: str) -> None:
    table = table_with_small_files(f"memory://cluster-{table_type}-{layout}", table_type)
    table.upsert(rows(0).slice(0, 3).set_column(2, "ts", pa.array([100] * 3)), options=OPTIONS)
    before = table.scan(["*"]).to_arrow()
    result = table.cluster(order_by=["x", "y"], layout=layout, options=OPTIONS)
    assert (result.groups, result.file_groups_read, result.file_groups_written, result.rows) == (2, 8, 2, 160)
    after = table.scan(["*"]).to_arrow()
    assert_same_rows(after, before, ignoring=("_hoodie_file_name",))
    assert len(table.scan().explain().slices) == 2


def test_linear_order_is_the_order_in_the_file() -> None:
    table = table_with_small_files("memory://cluster-order", "cow")
    table.cluster(order_by=["x", "id"], options=OPTIONS)
    found = table.scan(["x", "id"], filter="city = 'sf'").to_arrow()
    pairs = list(zip(found["x"].to_pylist(), found["id"].to_pylist(), strict=True))
    assert pairs == sorted(pairs)


def test_several_output_files_split_the_order_between_them() -> None:
    table = table_with_small_files("memory://cluster-split", "cow")
    options = OPTIONS | {"hoodie.clustering.plan.strategy.target.file.max.bytes": "6000"}
    table.cluster(order_by="x", options=options)
    files = [table.scan(["x"]).to_arrow()]
    slices = [s for s in table.scan().explain().slices if s.partition == "sf"]
    assert len(slices) > 1
    assert files[0].num_rows == 160


def test_a_pending_plan_holds_its_file_groups() -> None:
    table = table_with_small_files("memory://cluster-pending", "cow")
    before = table.scan().to_arrow()
    planned = table.schedule_clustering(order_by="x", options=OPTIONS)
    assert planned.instant is not None and planned.completion_time is None
    assert_same_rows(table.scan().to_arrow(), before)
    with pytest.raises(TableState, match="pending clustering"):
        table.upsert(rows(0).slice(0, 1), options=OPTIONS)
    table.insert(rows(9, 2), options=OPTIONS)
    assert table.schedule_clustering(order_by="x", options=OPTIONS).groups <= 2
    table.cluster(planned.instant, options=OPTIONS)
    assert table.scan().count() == 162


def test_a_write_to_a_group_since_the_plan_is_a_conflict_and_the_plan_stays() -> None:
    table = table_with_small_files("memory://cluster-conflict", "cow")
    planned = table.schedule_clustering(order_by="x", options=OPTIONS)
    assert planned.instant is not None
    store = table.context.timeline
    requested = store.read_state(planned.instant, Action.CLUSTERING, State.REQUESTED)
    assert requested is not None
    # A foreign writer that does not look at plans: seen from here, the plan appears only after its write.
    store.remove_pending(planned.instant, Action.CLUSTERING, State.REQUESTED)
    table.upsert(rows(0).slice(0, 1).set_column(2, "ts", pa.array([500])), options=OPTIONS)
    store.request(planned.instant, Action.CLUSTERING, requested)
    with pytest.raises(WriteConflict):
        table.cluster(planned.instant, options=OPTIONS)
    assert [i.state for i in table.timeline().pending(Action.CLUSTERING)] == [State.REQUESTED]
    assert table.scan(["ts"], filter="id = '0-0'").to_arrow()["ts"].to_pylist() == [500]


def test_an_attempt_that_died_is_undone_and_run_again() -> None:
    table = table_with_small_files("memory://cluster-died", "cow")
    before = table.scan().to_arrow()
    planned = table.schedule_clustering(order_by="x", options=OPTIONS)
    assert planned.instant is not None
    table.context.timeline.start(Instant(planned.instant, Action.CLUSTERING, State.REQUESTED))
    result = table.cluster(planned.instant, options=OPTIONS)
    assert result.completion_time is not None
    assert_same_rows(table.scan().to_arrow(), before)


def test_beyond_the_memory_budget_the_result_is_the_same() -> None:
    small = table_with_small_files("memory://cluster-spill", "cow")
    small.cluster(order_by=["x", "id"], options=OPTIONS | {"pyhudi.memory.budget.bytes": "1000"})
    large = table_with_small_files("memory://cluster-memory", "cow")
    large.cluster(order_by=["x", "id"], options=OPTIONS)
    assert small.scan(["x", "id"]).to_arrow() == large.scan(["x", "id"]).to_arrow()


def test_nothing_to_cluster_writes_nothing() -> None:
    table = hp.Table.create("memory://cluster-nothing", record_key="id", options=OPTIONS)
    assert table.cluster(options=OPTIONS).instant is None
    assert str(table.cluster(options=OPTIONS)) == "clustering (nothing to cluster)"


def test_a_missing_sort_column_is_refused_before_anything_is_planned() -> None:
    table = table_with_small_files("memory://cluster-missing", "cow")
    with pytest.raises(InvalidRequest, match="nope"):
        table.cluster(order_by="nope", options=OPTIONS)
    assert table.timeline().pending(Action.CLUSTERING) == ()
