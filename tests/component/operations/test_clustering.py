"""Clustering end to end: rows are unchanged, pending plans protect their file groups, one executor runs a plan."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import InstantNotFound, InvalidRequest, TableState, Unsupported, WriteConflict
from pyhudi.format.actions.requested_replace import RequestedReplaceMetadata
from pyhudi.format.instants import Action, Instant, State
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.plan_ownership import PlanTaken, claim
from pyhudi.operations.commit.results import ClusteringResult
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.storage.environment import Environment, ReplayEnvironment
from tests.support.rows import assert_same_rows

OPTIONS = {"hoodie.index.bloom.num_entries": "100", "hoodie.metadata.enable": "false"}
AT_ONCE = {"pyhudi.service.expiry.ms": "0"}


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


def table_with_small_files(uri: str, table_type: str, environment: Environment | None = None) -> hp.Table:
    table = hp.Table.create(
        uri, record_key="id", partition_by="city", ordering="ts", table_type=table_type, options=OPTIONS, environment=environment
    )
    for batch in range(4):
        table.bulk_insert(rows(batch), options=OPTIONS)
    return table


@pytest.mark.sample(3)
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


def test_columns_stay_known_when_no_write_that_names_them_is_active() -> None:
    table = table_with_small_files("memory://cluster-archived", "cow")
    before = table.scan(["*"]).to_arrow()
    few = {"hoodie.clean.commits.retained": 1, "hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3}
    for _ in range(2):
        table.cluster(options=OPTIONS | {"hoodie.table.services.incremental.enabled": False})
    table.archive(options=few)
    assert {i.action for i in table.timeline().completed_writes()} == {Action.REPLACECOMMIT}
    assert_same_rows(table.scan(["*"]).to_arrow(), before, ignoring=("_hoodie_file_name",))


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


def test_failed_attempt_is_rolled_back_and_run_again() -> None:
    table = table_with_small_files("memory://cluster-died", "cow")
    before = table.scan().to_arrow()
    planned = table.schedule_clustering(order_by="x", options=OPTIONS)
    assert planned.instant is not None
    table.context.timeline.start(Instant(planned.instant, Action.CLUSTERING, State.REQUESTED))
    with pytest.raises(PlanTaken, match="a process of Hudi started it"):
        table.cluster(planned.instant, options=OPTIONS)
    result = table.cluster(planned.instant, options=OPTIONS | AT_ONCE)
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


def cluster_inline(uri: str, **options: object) -> hp.Table:
    every = {**OPTIONS, "hoodie.clustering.plan.strategy.sort.columns": "x", **options}
    return hp.Table.create(uri, record_key="id", partition_by="city", ordering="ts", options=every)


def test_inline_clustering_follows_every_so_many_commits() -> None:
    options = {"hoodie.clustering.inline": True, "hoodie.clustering.inline.max.commits": 2}
    table = cluster_inline("memory://cluster-inline", **options)
    outcomes = [table.bulk_insert(rows(batch)).services["cluster"] for batch in range(4)]
    assert outcomes[0] == outcomes[2] == "not due: 1 of 2 commits since the last clustering"
    assert outcomes[1].startswith("run: ") and outcomes[3].startswith("run: ")
    assert not table.timeline().pending()
    found = table.scan(["x"], filter="city = 'sf'").to_arrow()["x"].to_pylist()
    assert found == sorted(found) and table.scan().count() == 160


def test_inline_clustering_executes_the_pending_plan_first() -> None:
    table = cluster_inline("memory://cluster-inline-pending")
    table.bulk_insert(rows(0))
    planned = table.schedule_clustering().instant
    outcome = table.bulk_insert(rows(1), options={"hoodie.clustering.inline": True}).services["cluster"]
    assert planned is not None and outcome.startswith(f"run: {planned}, 2 file groups")


@pytest.mark.parametrize("key", ["hoodie.clustering.schedule.inline", "hoodie.clustering.async.enabled"])
def test_a_writer_plans_for_others(key: str) -> None:
    table = cluster_inline(f"memory://cluster-{key}", **{key: True, "hoodie.clustering.async.max.commits": 2})
    table.bulk_insert(rows(0))
    planned = table.bulk_insert(rows(1)).services["cluster"]
    pending = table.timeline().pending(Action.CLUSTERING)
    assert planned == f"planned: {pending[0].request_time}"
    assert table.bulk_insert(rows(2)).services["cluster"] == f"not due: clustering {pending[0].request_time} is already planned"
    done = table.run_services(["cluster"])["cluster"]
    assert done.startswith(f"run: {pending[0].request_time}")
    assert not table.timeline().pending() and table.scan().count() == 120


def test_inline_and_planning_for_others_do_not_go_together() -> None:
    for other in ("hoodie.clustering.schedule.inline", "hoodie.clustering.async.enabled"):
        table = cluster_inline(f"memory://cluster-both-{other}", **{"hoodie.clustering.inline": True, other: True})
        with pytest.raises(InvalidRequest, match="is incompatible with"):
            table.bulk_insert(rows(0))
    with pytest.raises(InvalidRequest, match="is incompatible with"):
        cluster_inline("memory://compact-both").bulk_insert(
            rows(0), options={"hoodie.compact.inline": True, "hoodie.compact.schedule.inline": True}
        )


ALLOW = {"hoodie.clustering.updates.strategy": "org.apache.hudi.client.clustering.update.strategy.SparkAllowUpdateStrategy"}
PREFER = {"hoodie.write.lock.conflict.resolution.strategy": "PreferWriterConflictResolutionStrategy"}


def test_conflicting_clustering_is_dropped_when_writes_have_priority() -> None:
    table = table_with_small_files("memory://cluster-allow", "cow")
    planned = table.schedule_clustering(order_by="x", options=OPTIONS).instant
    assert planned is not None
    changed = rows(0).slice(0, 1).set_column(2, "ts", pa.array([500]))
    table.upsert(changed, options=OPTIONS | ALLOW | PREFER)
    assert [i.request_time for i in table.timeline().pending(Action.CLUSTERING)] == [planned]
    files = {info.path for info in table.context.storage.walk("")}
    with pytest.raises(WriteConflict, match="were changed since it was planned"):
        table.cluster(planned, options=OPTIONS)
    # Nothing was written for a plan that cannot complete.
    assert {p for p in files if p.endswith(".parquet")} == {
        info.path for info in table.context.storage.walk("") if info.path.endswith(".parquet")
    }
    assert "dropped" in table.run_services(["cluster"], plan=False)["cluster"]
    assert not table.timeline().pending()
    assert table.scan(["ts"], filter="id = '0-0'").to_arrow()["ts"].to_pylist() == [500]


def test_write_into_file_groups_that_another_engine_clusters_is_refused() -> None:
    table = table_with_small_files("memory://cluster-foreign", "cow")
    planned = table.schedule_clustering(order_by="x", options=OPTIONS).instant
    assert planned is not None
    table.context.timeline.start(Instant(planned, Action.CLUSTERING, State.REQUESTED))
    changed = rows(0).slice(0, 1).set_column(2, "ts", pa.array([500]))
    with pytest.raises(TableState, match="PreferWriterConflictResolutionStrategy"):
        table.upsert(changed, options=OPTIONS | ALLOW)
    table.upsert(changed, options=OPTIONS | ALLOW | PREFER)
    assert table.scan(["ts"], filter="id = '0-0'").to_arrow()["ts"].to_pylist() == [500]


def test_write_with_priority_drops_a_conflicting_clustering_plan() -> None:
    table = table_with_small_files("memory://cluster-allow-drop", "cow")
    table.schedule_clustering(order_by="x", options=OPTIONS)
    drop = {"hoodie.clustering.rollback.pending.replacecommit.on.conflict": "true"}
    changed = rows(0).slice(0, 1).set_column(2, "ts", pa.array([500]))
    with pytest.raises(TableState, match="pending clustering"):
        table.upsert(changed, options=OPTIONS | drop)
    table.upsert(changed, options=OPTIONS | ALLOW | drop)
    assert not table.timeline().pending()
    assert table.cluster(order_by="x", options=OPTIONS).completion_time is not None
    assert table.scan(["ts"], filter="id = '0-0'").to_arrow()["ts"].to_pylist() == [500]


def test_concurrent_clustering_and_write_when_writes_have_priority() -> None:
    """The clustering completes while the write is under way: the write plans again, on the new file groups."""
    table = table_with_small_files("memory://cluster-allow-race", "cow")
    planned = table.schedule_clustering(order_by="x", options=OPTIONS).instant
    ran: list[str] = []

    class InterferingEngine(LocalEngine):
        def map(self, function, tasks):  # type: ignore[no-untyped-def]
            done = super().map(function, tasks)
            if not ran:
                ran.append("")
                table.cluster(planned, options=OPTIONS)
            return done

    changed = rows(0).slice(0, 1).set_column(2, "ts", pa.array([500]))
    settings = WriteSettings.of(parse_options({**OPTIONS, **ALLOW}), WriteOperation.UPSERT)
    result = run_write(table.context, InterferingEngine(1), changed, settings)
    assert result.conflict_retries == 1
    assert table.scan(["ts"], filter="id = '0-0'").to_arrow()["ts"].to_pylist() == [500]
    assert table.scan().count() == 160


def test_a_pending_plan_is_dropped_on_request() -> None:
    table = table_with_small_files("memory://cluster-drop", "cow")
    planned = table.schedule_clustering(order_by="x", options=OPTIONS).instant
    assert planned is not None
    table.context.timeline.start(Instant(planned, Action.CLUSTERING, State.REQUESTED))
    with pytest.raises(PlanTaken, match="a process of Hudi started it"):
        table.unschedule_clustering(planned)
    table.unschedule_clustering(planned, options=AT_ONCE)
    assert not table.timeline().pending()
    with pytest.raises(InstantNotFound):
        table.unschedule_clustering(planned)
    table.upsert(rows(0).slice(0, 1), options=OPTIONS)


@pytest.mark.parametrize(
    "options",
    [
        {"hoodie.clustering.plan.strategy.class": "FlinkSizeBasedClusteringPlanStrategy"},
        {"hoodie.clustering.execution.strategy.class": "JavaSortAndSizeExecutionStrategy"},
    ],
)
def test_strategies_that_are_not_built_are_refused(options: dict[str, str]) -> None:
    table = cluster_inline(f"memory://cluster-{next(iter(options))}")
    with pytest.raises(Unsupported, match="use one of"):
        table.cluster(options=options)
    with pytest.raises(Unsupported, match="SparkAllowUpdateStrategy"):
        table.upsert(rows(0), options={"hoodie.clustering.updates.strategy": "SparkOtherStrategy"})


def test_single_file_strategies_sort_each_file_by_itself() -> None:
    table = table_with_small_files("memory://cluster-single", "cow")
    options = {
        "hoodie.clustering.plan.strategy.class": "org.apache.hudi.clustering.plan.strategy.SparkSingleFileSortPlanStrategy",
        "hoodie.clustering.execution.strategy.class": "SparkSingleFileSortExecutionStrategy",
    }
    result = table.cluster(order_by="x", options=OPTIONS | options)
    assert (result.groups, result.file_groups_read, result.file_groups_written) == (8, 8, 8)
    assert table.scan().count() == 160


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_clustering_plan_without_a_record_holds_nothing(tmp_path: Path, table_type: str) -> None:
    """Release 1.2.0 leaves such a file where its commit-based planner fails."""
    table = hp.Table.create(str(tmp_path / "t"), record_key="id", table_type=table_type)
    table.upsert(pa.table({"id": ["a", "b"], "v": [1, 1]}))
    sync = b"0123456789abcdef"
    document = RequestedReplaceMetadata().encode(sync)
    request_time = str(int(table.timeline().completed_writes()[-1].completion_time or "0") + 1)
    path = tmp_path / "t" / ".hoodie" / "timeline" / f"{request_time}.clustering.requested"

    def leave_plan() -> None:
        path.write_bytes(document[: document.index(sync) + len(sync)])

    leave_plan()
    assert table.scan(filter="id = 'a'").count() == 1
    table.upsert(pa.table({"id": ["a"], "v": [2]}))
    assert table.validate().ok
    table.clean(dry_run=False)
    table.archive()
    if table_type == "mor":
        assert table.compact().runs
    table.insert_overwrite(pa.table({"id": ["c"], "v": [3]}))
    assert path.exists()
    table.unschedule_clustering(request_time)
    assert not path.exists()
    leave_plan()
    assert table.rollback(request_time).rolled_back == request_time
    assert not path.exists() and table.validate().ok
    with pytest.raises(InstantNotFound):
        table.rollback(request_time)
    leave_plan()
    assert table.cluster().instant != request_time
    leave_plan()
    assert table.repair(dry_run=False).steps
    assert not path.exists()
    assert table.scan().to_arrow().to_pylist() == [{"id": "c", "v": 3}]


def plan_metadata(table: hp.Table, planned: ClusteringResult) -> Mapping[str, str]:
    """Extra metadata of a plan."""
    data = table.context.timeline.read_state(str(planned.instant), Action.CLUSTERING, State.REQUESTED)
    assert data is not None
    plan = RequestedReplaceMetadata.decode(data).clustering_plan
    assert plan is not None
    return plan.extra_metadata or {}


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_commits_after_one_are_clustered_and_the_plan_has_the_checkpoint(table_type: str) -> None:
    table = table_with_small_files(f"memory://cluster-commits-{table_type}", table_type)
    strategy = "org.apache.hudi.table.action.cluster.strategy.CommitBasedClusteringPlanStrategy"
    small = {"hoodie.clustering.plan.strategy.small.file.limit": 1}
    by_commits = {**OPTIONS, **small, "hoodie.clustering.plan.strategy.class": strategy}
    earliest = "hoodie.clustering.plan.strategy.earliest.commit.to.cluster"
    for wrong in (by_commits, {**OPTIONS, earliest: "20260101000000000"}):
        with pytest.raises(InvalidRequest, match="require each other"):
            table.cluster(options=wrong)
    times = [instant.request_time for instant in table.timeline().completed_writes()]
    before = table.scan(["*"]).to_arrow()
    planned = table.schedule_clustering(options={**by_commits, earliest: times[1]})
    assert plan_metadata(table, planned) == {"clustering.commit.checkpoint": times[3]}
    result = table.cluster(planned.instant, options=OPTIONS)
    assert (result.file_groups_read, result.file_groups_written) == (4, 2)
    assert_same_rows(table.scan(["*"]).to_arrow(), before, ignoring=("_hoodie_file_name",))
    # Files that a clustering wrote are no files of commits; commits beyond the limit of groups wait for the next plan.
    assert table.schedule_clustering(options={**by_commits, earliest: times[1]}).instant is None
    limited = {**by_commits, earliest: "0", "hoodie.clustering.plan.strategy.max.num.groups": 1}
    planned = table.schedule_clustering(options=limited)
    assert plan_metadata(table, planned) == {"clustering.commit.checkpoint": "0"}


EXPIRING = {
    "hoodie.clustering.enable.expirations": "true",
    "hoodie.clustering.expiration.threshold.mins": "60",
    "hoodie.clean.failed.writes.policy": "LAZY",
}
HOUR_MS = 3_601_000


def table_with_a_plan(name: str) -> tuple[hp.Table, ReplayEnvironment, str]:
    environment = ReplayEnvironment(3)
    table = table_with_small_files(f"memory://cluster-{name}", "cow", environment)
    planned = table.schedule_clustering(order_by="x", options=OPTIONS).instant
    assert planned is not None
    return table, environment, planned


def pending_clusterings(table: hp.Table) -> list[str]:
    return [i.request_time for i in table.timeline().pending(Action.CLUSTERING)]


def test_a_clean_drops_a_clustering_that_no_process_started_within_its_expiry() -> None:
    table, environment, planned = table_with_a_plan("expired")
    assert table.clean(options=EXPIRING).rolled_back == ()
    environment.step_ms(HOUR_MS)
    table.clean(options={"hoodie.clean.failed.writes.policy": "LAZY"})
    assert pending_clusterings(table) == [planned]
    assert table.clean(options=EXPIRING).rolled_back == (planned,)
    assert pending_clusterings(table) == []
    assert table.cluster(order_by="x", options=OPTIONS | EXPIRING).rows == 160


def test_a_clustering_with_a_live_process_does_not_expire() -> None:
    table, environment, planned = table_with_a_plan("expired-alive")
    environment.step_ms(HOUR_MS)
    settings = CommitSettings.of(parse_options(EXPIRING))
    transaction = claim(table.context, planned, Action.CLUSTERING, settings)
    table.clean(options=EXPIRING)
    assert pending_clusterings(table) == [planned]
    transaction.heartbeat.stop(delete=False)
    environment.step_ms(HOUR_MS)
    assert table.clean(options=EXPIRING).rolled_back == (planned,)
    assert pending_clusterings(table) == []


def test_a_write_drops_the_expired_clustering_of_its_files() -> None:
    table, environment, planned = table_with_a_plan("expired-write")
    changed = rows(0).slice(0, 1).set_column(2, "ts", pa.array([500]))
    environment.step_ms(HOUR_MS - 60_000)
    with pytest.raises(TableState, match=f"pending clustering {planned}"):
        table.upsert(changed, options=OPTIONS | EXPIRING)
    environment.step_ms(60_000)
    table.upsert(changed, options=OPTIONS | EXPIRING)
    assert pending_clusterings(table) == []
    assert table.scan(["ts"], filter="id = '0-0'").to_arrow()["ts"].to_pylist() == [500]


def test_expirations_require_the_lazy_policy() -> None:
    table, _, _ = table_with_a_plan("expired-eager")
    with pytest.raises(InvalidRequest, match=r"enable\.expirations requires .*LAZY, not EAGER"):
        table.clean(options={**EXPIRING, "hoodie.clean.failed.writes.policy": "EAGER"})
