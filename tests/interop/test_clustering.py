"""Clustering: each writer reads the other's result and executes the other's plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi.format.instants import Action
from pyhudi.table.snapshot import read_commit
from tests.interop.oracle import ApacheHudi, HudiFailure
from tests.support.hudi_dead_writes import SERVICES_ARE_DEAD
from tests.support.rows import assert_same_rows

OPTIONS: dict[str, Any] = {"hoodie.index.bloom.num_entries": "100", "hoodie.metadata.enable": "false"}
WRITE: dict[str, Any] = OPTIONS | {
    "hoodie.table.name": "c",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.datasource.write.precombine.field": "ts",
}

COPY: dict[str, Any] = {"pyhudi.clustering.copy": "always"}
BINARY_COPY: dict[str, Any] = {
    "hoodie.clustering.inline": "true",
    "hoodie.clustering.inline.max.commits": "1",
    "hoodie.clustering.execution.strategy.class": "org.apache.hudi.client.clustering.run.strategy."
    "SparkBinaryCopyClusteringExecutionStrategy",
}


def rows(batch: int, ts: int = 0) -> pa.Table:
    count = 12
    return pa.table(
        {
            "id": [f"{batch}-{i}" for i in range(count)],
            "city": [("sf", "ny")[i % 2] for i in range(count)],
            "ts": pa.array([ts] * count, pa.int64()),
            "x": [(i * 7 + batch) % 11 for i in range(count)],
        }
    )


@pytest.fixture
def table(tmp_path: Path) -> hp.Table:
    made = hp.Table.create(tmp_path / "c", name="c", record_key="id", partition_by="city", ordering="ts", options=OPTIONS)
    for batch in range(3):
        made.bulk_insert(rows(batch), options=OPTIONS)
    return made


def test_hudi_reads_and_writes_after_a_clustering_of_pyhudi(hudi: ApacheHudi, table: hp.Table) -> None:
    table.cluster(order_by="x", layout="linear", options=OPTIONS)
    assert_same_rows(hudi.read(table.uri), table.scan(["*"]).to_arrow())
    hudi.write(rows(1, ts=5), table.uri, mode="append", **WRITE)
    assert_same_rows(hudi.read(table.uri), table.scan(["*"]).to_arrow())
    assert table.scan(filter="ts = 5").count() == 12


def test_hudi_executes_a_clustering_plan_of_pyhudi(hudi: ApacheHudi, table: hp.Table) -> None:
    before = table.scan(["*"]).to_arrow()
    planned = table.schedule_clustering(order_by="x", options=OPTIONS)
    assert_same_rows(hudi.read(table.uri), before)
    hudi.call("run_clustering", path=table.uri, op="execute", instants=planned.instant)
    assert table.timeline().pending(Action.CLUSTERING) == ()
    assert_same_rows(table.scan(["*"]).to_arrow(), before, ignoring=("_hoodie_file_name",))
    assert len(table.scan().explain().slices) == 2


def test_pyhudi_executes_a_clustering_plan_of_hudi(hudi: ApacheHudi, table: hp.Table) -> None:
    before = table.scan(["*"]).to_arrow()
    hudi.call("run_clustering", path=table.uri, op="schedule", order="x")
    (pending,) = table.timeline().pending(Action.CLUSTERING)
    result = table.cluster(pending.request_time, options=OPTIONS)
    assert result.order == ("x",)
    assert_same_rows(hudi.read(table.uri), table.scan(["*"]).to_arrow())
    assert_same_rows(table.scan(["*"]).to_arrow(), before, ignoring=("_hoodie_file_name",))


def test_each_library_continues_with_the_partitions_that_a_plan_of_the_other_left_out(hudi: ApacheHudi, table: hp.Table) -> None:
    one_group = {"hoodie.clustering.plan.strategy.max.num.groups": "1"}
    text = ",".join(f"{key}={value}" for key, value in one_group.items())
    assert table.cluster(options={**OPTIONS, **one_group}).groups == 1
    assert _partitions_of_last_clustering(table) == {"ny"}
    hudi.call("run_clustering", path=table.uri, op="scheduleAndExecute")
    assert _partitions_of_last_clustering(table) == {"sf"}
    assert table.cluster(options=OPTIONS).instant is None
    for batch in (3, 4):
        table.bulk_insert(rows(batch), options=OPTIONS)
    hudi.call("run_clustering", path=table.uri, op="scheduleAndExecute", options=text)
    theirs = _partitions_of_last_clustering(table)
    assert len(theirs) == 1
    assert table.cluster(options=OPTIONS).groups == 1
    assert _partitions_of_last_clustering(table) == {"ny", "sf"} - theirs
    done = len(table.timeline().completed(Action.REPLACECOMMIT))
    hudi.call("run_clustering", path=table.uri, op="scheduleAndExecute")
    assert len(table.timeline().completed(Action.REPLACECOMMIT)) == done
    assert_same_rows(hudi.read(table.uri), table.scan(["*"]).to_arrow())


def _partitions_of_last_clustering(table: hp.Table) -> set[str]:
    last = table.timeline().completed(Action.REPLACECOMMIT)[-1]
    return set(read_commit(table.context.timeline, last).partition_to_write_stats)


def test_hudi_writes_buckets_clustered_by_pyhudi(hudi: ApacheHudi, tmp_path: Path) -> None:
    """Although no option names the buckets for the clustering."""
    path = str(tmp_path / "c")
    buckets: dict[str, Any] = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"}
    hudi.write(rows(1), path, mode="overwrite", **WRITE, **buckets)
    table = hp.Table(path)
    done = table.cluster(order_by="x", options=OPTIONS)
    assert done.file_groups_read == done.file_groups_written == 4
    hudi.write(rows(1, ts=5), path, mode="append", **WRITE, **buckets)
    assert_same_rows(hudi.read(path), table.scan(["*"]).to_arrow())
    assert table.scan().count() == table.scan(filter="ts = 5").count() == 12


@pytest.mark.parametrize("release", ["hudi", pytest.param("newer_hudi", marks=pytest.mark.wide), "newest_hudi"])
def test_hudi_reads_and_writes_after_a_row_group_copy(request: pytest.FixtureRequest, tmp_path: Path, release: str) -> None:
    """Row groups of both writers, and then with the key filter, the key range and the statistics of the copied file."""
    hudi: ApacheHudi = request.getfixturevalue(release)
    path = str(tmp_path / "c")
    version: dict[str, Any] = {"hoodie.write.table.version": "8", "hoodie.write.auto.upgrade": "false"}
    options: dict[str, Any] = {**WRITE, "hoodie.metadata.enable": "true", **version}
    indexed: dict[str, Any] = {"hoodie.metadata.index.column.stats.enable": "true", "hoodie.metadata.record.index.enable": "true"}
    bulk: dict[str, Any] = {"hoodie.datasource.write.operation": "bulk_insert"}
    for batch in range(2):
        mode = "append" if batch else "overwrite"
        hudi.write(rows(batch), path, mode=mode, **options, **indexed, **bulk)
    table = hp.Table(path)
    table.bulk_insert(rows(2), options={"hoodie.parquet.compression.codec": "gzip"})
    before = table.scan(["*"]).to_arrow()
    result = table.cluster(options=COPY)
    assert (result.file_groups_copied, result.decoded_reasons) == (2, ())
    assert_same_rows(table.scan(["*"]).to_arrow(), before, ignoring=("_hoodie_file_name",))
    assert_same_rows(hudi.read(path), table.scan(["*"]).to_arrow())
    for index in ("BLOOM", "RECORD_INDEX"):
        by_index: dict[str, Any] = {"hoodie.index.type": index, "hoodie.bloom.index.use.metadata": "false"}
        hudi.write(rows(1, ts=5 if index == "BLOOM" else 6), path, mode="append", **options, **indexed, **by_index)
        every, filtered = hudi.read_each(path, ["true", "x = 3"])
        assert every.num_rows == 36
        assert_same_rows(every, table.scan(["*"]).to_arrow())
        assert_same_rows(filtered, table.scan(["*"], filter="x = 3").to_arrow())
    assert table.validate(keys=True).ok


def test_row_group_copy_plans_of_each_library_are_executed(newest_hudi: ApacheHudi, tmp_path: Path) -> None:
    """Hudi combines only key filters of one size, and of type DYNAMIC_V0."""
    path = str(tmp_path / "c")
    same_size: dict[str, Any] = {**OPTIONS, "hoodie.index.bloom.num_entries": "64"}
    insert: dict[str, Any] = {**WRITE, **same_size, "hoodie.datasource.write.operation": "bulk_insert"}
    texts = ",".join(f"{key}={value}" for key, value in same_size.items())
    for batch in range(2):
        newest_hudi.write(rows(batch), path, mode="append" if batch else "overwrite", **insert)
    table = hp.Table(path)
    planned = table.schedule_clustering(options={**same_size, **COPY})
    before = table.scan(["*"]).to_arrow()
    newest_hudi.call("run_clustering", path=path, op="execute", instants=planned.instant, options=texts)
    assert table.timeline().pending(Action.CLUSTERING) == ()
    assert_same_rows(table.scan(["*"]).to_arrow(), before, ignoring=("_hoodie_file_name",))
    newest_hudi.write(rows(2), path, mode="append", **insert)
    strategy = BINARY_COPY["hoodie.clustering.execution.strategy.class"]
    options = f"hoodie.clustering.execution.strategy.class={strategy}"
    newest_hudi.call("run_clustering", path=path, op="schedule", options=options)
    (pending,) = table.timeline().pending(Action.CLUSTERING)
    before = table.scan(["*"]).to_arrow()
    assert table.cluster(pending.request_time, options=same_size).file_groups_copied == 2
    assert_same_rows(table.scan(["*"]).to_arrow(), before, ignoring=("_hoodie_file_name",))
    assert_same_rows(newest_hudi.read(path), table.scan(["*"]).to_arrow())
    newest_hudi.write(rows(3), path, mode="append", **insert, **BINARY_COPY)
    before = table.scan(["*"]).to_arrow()
    assert (before.num_rows, len(table.scan().explain().slices)) == (48, 2)
    assert_same_rows(newest_hudi.read(path), before)
    assert table.cluster(options={**same_size, **COPY}).decoded_reasons == ()
    assert_same_rows(newest_hudi.read(path), table.scan(["*"]).to_arrow())


def test_hudi_copies_no_row_groups_of_files_whose_key_filters_have_other_sizes(newest_hudi: ApacheHudi, tmp_path: Path) -> None:
    """Its attempt stays pending and leaves files without markers. PyHudi executes the plan."""
    path = str(tmp_path / "c")
    insert: dict[str, Any] = {**WRITE, "hoodie.datasource.write.operation": "bulk_insert"}
    newest_hudi.write(rows(0), path, mode="overwrite", **insert)
    table = hp.Table(path)
    table.bulk_insert(rows(1), options={"hoodie.parquet.compression.codec": "gzip"})
    with pytest.raises(HudiFailure, match="filters cannot be or-ed"):
        newest_hudi.write(rows(2), path, mode="append", **insert, **BINARY_COPY)
    (pending,) = table.timeline().pending(Action.CLUSTERING)
    before = table.scan(["*"]).to_arrow()
    assert table.cluster(pending.request_time, options=OPTIONS | SERVICES_ARE_DEAD).file_groups_copied == 2
    assert_same_rows(newest_hudi.read(path), table.scan(["*"]).to_arrow())
    assert_same_rows(table.scan(["*"]).to_arrow(), before, ignoring=("_hoodie_file_name",))
