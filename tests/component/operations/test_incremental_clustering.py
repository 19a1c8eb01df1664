"""Clustering plans inspect the partitions that changed since the last plan, and those that it left out."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.format.actions.requested_replace import RequestedReplaceMetadata
from pyhudi.format.instants import Action, State
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from tests.support.paused_write import PausedWrite

OPTIONS: dict[str, Any] = {"hoodie.parquet.small.file.limit": 0, "hoodie.compact.inline": False}
STRATEGY = "hoodie.clustering.plan.strategy"


def insert(table: hp.Table, *partitions: str) -> None:
    count = table.scan().count() if table.timeline().completed_writes() else 0
    ids = [f"k{count + number}" for number in range(len(partitions))]
    table.insert(pa.table({"id": ids, "p": partitions, "x": list(range(len(ids)))}), options=OPTIONS)


@pytest.fixture(params=["cow", "mor"])
def table(request: pytest.FixtureRequest) -> hp.Table:
    uri = f"memory://incremental-clustering-{request.node.name}"
    table = hp.Table.create(uri, record_key="id", partition_by="p", table_type=request.param)
    for _ in range(2):
        insert(table, "a", "b", "c")
    return table


def partitions_of_plan(table: hp.Table, **arguments: Any) -> list[str]:
    """The partitions of a new plan, which is executed."""
    instant = table.schedule_clustering(**arguments).instant
    if instant is None:
        return []
    data = table.context.timeline.read_state(instant, Action.CLUSTERING, State.REQUESTED)
    plan = RequestedReplaceMetadata.decode(data or b"").clustering_plan
    assert plan is not None
    table.cluster(instant)
    return sorted({piece.partition_path or "" for group in plan.input_groups or () for piece in group.slices or ()})


def test_clustering_without_changes_since_the_last_one_does_nothing(table: hp.Table) -> None:
    assert partitions_of_plan(table) == ["a", "b", "c"]
    repeated = table.cluster()
    assert repeated.instant is None
    assert "only 0 of 3 partitions changed since the last clustering" in repeated.reason
    assert "hoodie.table.services.incremental.enabled=false" in repeated.reason
    assert partitions_of_plan(table, options={"hoodie.table.services.incremental.enabled": False}) == ["a", "b", "c"]
    # That plan records no partitions that it left out.
    assert partitions_of_plan(table) == ["a", "b", "c"]
    assert partitions_of_plan(table) == []


def test_clustering_inspects_partitions_written_since_the_last_plan_was_made(table: hp.Table) -> None:
    planned = table.schedule_clustering().instant
    insert(table, "b")
    table.cluster(planned)
    assert partitions_of_plan(table) == ["b"]
    insert(table, "a")
    insert(table, "d")
    assert partitions_of_plan(table) == ["a", "d"]


def test_clustering_continues_with_partitions_beyond_the_limit_of_groups(table: hp.Table) -> None:
    few = {f"{STRATEGY}.max.num.groups": 2}
    assert partitions_of_plan(table, options=few) == ["a", "b"]
    assert partitions_of_plan(table, options=few) == ["c"]
    assert partitions_of_plan(table, options=few) == []


def test_clustering_continues_with_a_partition_of_which_it_left_groups_out(table: hp.Table) -> None:
    limits = {f"{STRATEGY}.max.num.groups": 1, f"{STRATEGY}.max.bytes.per.group": 1, f"{STRATEGY}.partition.selected": "a"}
    assert partitions_of_plan(table, options=limits) == ["a"]
    del limits[f"{STRATEGY}.partition.selected"]
    assert partitions_of_plan(table, options={**limits, f"{STRATEGY}.max.num.groups": 30}) == ["a", "b", "c"]


def test_clustering_of_named_partitions_leaves_the_others_for_later_plans(table: hp.Table) -> None:
    named = {f"{STRATEGY}.partition.selected": "b"}
    assert partitions_of_plan(table, options=named) == ["b"]
    assert partitions_of_plan(table, options=named) == ["b"]
    assert partitions_of_plan(table) == ["a", "c"]
    assert partitions_of_plan(table, options={f"{STRATEGY}.partition.regex.pattern": "a"}) == []


def test_clustering_by_pattern_leaves_the_others_for_later_plans(table: hp.Table) -> None:
    assert partitions_of_plan(table, options={f"{STRATEGY}.partition.regex.pattern": "[ac]"}) == ["a", "c"]
    assert partitions_of_plan(table) == ["b"]


def test_clustering_in_another_order_inspects_all_partitions(table: hp.Table) -> None:
    assert partitions_of_plan(table, order_by="x") == ["a", "b", "c"]
    assert partitions_of_plan(table, order_by="x") == []
    assert partitions_of_plan(table, order_by=["x", "id"], layout="zorder") == ["a", "b", "c"]
    assert partitions_of_plan(table) == ["a", "b", "c"]


def test_clustering_continues_with_partitions_of_a_pending_plan_that_was_dropped(table: hp.Table) -> None:
    pending = table.schedule_clustering(options={f"{STRATEGY}.partition.selected": "a"}).instant
    assert partitions_of_plan(table) == ["b", "c"]
    assert pending is not None
    table.unschedule_clustering(pending)
    assert partitions_of_plan(table) == ["a"]


def test_clustering_after_a_restore_to_before_the_last_one_inspects_all_partitions(table: hp.Table) -> None:
    before = table.timeline().completed_writes()[-1].request_time
    table.savepoint(before)
    table.cluster()
    table.restore(before)
    assert partitions_of_plan(table) == ["a", "b", "c"]


def test_clustering_after_a_compaction_inspects_no_partition_again() -> None:
    table = hp.Table.create("memory://incremental-clustering-compaction", record_key="id", partition_by="p", table_type="mor")
    insert(table, "a", "b")
    table.upsert(pa.table({"id": ["k0"], "p": ["a"], "x": [9]}), options=OPTIONS)
    table.cluster()
    table.upsert(pa.table({"id": ["k1"], "p": ["b"], "x": [9]}), options=OPTIONS)
    assert partitions_of_plan(table) == ["b"]
    table.compact(options={"hoodie.compact.inline.max.delta.commits": 1})
    assert partitions_of_plan(table) == []


def test_clustering_sees_an_archived_write_that_completed_after_the_last_one() -> None:
    keep = {"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3, "hoodie.clean.commits.retained": 1}
    options = {**OPTIONS, "hoodie.metadata.enable": False, "hoodie.clean.automatic": False}
    uri = "memory://incremental-clustering-archived"
    table = hp.Table.create(uri, record_key="id", partition_by="p", options=options)
    for _ in range(2):
        insert(table, "a", "b", "c")
    rows = pa.table({"id": ["late", "later"], "p": ["b", "b"], "x": [1, 2]})
    settings = WriteSettings.of(parse_options(options), WriteOperation.INSERT)
    late = PausedWrite(table.context, lambda context: run_write(context, LocalEngine(1), rows, settings))
    assert partitions_of_plan(table) == ["a", "b", "c"]
    late.finish()
    clustering = table.timeline().completed(Action.REPLACECOMMIT)[0]
    insert(table, "c")
    table.archive(options=keep)
    assert table.timeline().completed_writes()[0] == clustering
    assert partitions_of_plan(table) == ["b", "c"]
