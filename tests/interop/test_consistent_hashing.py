"""Tables with CONSISTENT_HASHING buckets that PyHudi and Apache Hudi write and resize in turn."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pyhudi.features.consistent_hashing.hashing_metadata import decode_nodes, encode_nodes
from pyhudi.features.consistent_hashing.hashing_routing import ConsistentHashingLayout
from pyhudi.features.consistent_hashing.hashing_store import load_hashing_metadata
from pyhudi.format.actions.clustering_plan import ClusteringPlan
from pyhudi.format.actions.requested_replace import RequestedReplaceMetadata
from pyhudi.format.instants import Action, State
from pyhudi.records.hashing import bucket_ids, consistent_hashes
from tests.interop.alternation import OPERATION, Alternation, Row
from tests.interop.oracle import ApacheHudi

SCHEMA = pa.schema([("id", pa.string()), ("code", pa.int32()), ("ts", pa.int64()), ("city", pa.string())])
CITIES = ("oslo", "rome")
STRATEGIES = "org.apache.hudi.client.clustering"
OPTIONS: dict[str, Any] = {
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.write.record.merge.mode": "EVENT_TIME_ORDERING",
    "hoodie.index.type": "BUCKET",
    "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
    "hoodie.bucket.index.num.buckets": 2,
    "hoodie.compact.inline": False,
    "hoodie.embed.timeline.server": False,
}
RESIZE: dict[str, Any] = {
    "hoodie.clustering.plan.strategy.class": f"{STRATEGIES}.plan.strategy.SparkConsistentBucketClusteringPlanStrategy",
    "hoodie.clustering.execution.strategy.class": f"{STRATEGIES}.run.strategy.SparkConsistentBucketClusteringExecutionStrategy",
    "hoodie.bucket.index.min.num.buckets": 1,
    "hoodie.bucket.index.max.num.buckets": 8,
}
# Of files of some kilobytes.
SPLIT = {**RESIZE, "hoodie.parquet.max.file.size": 2000, "hoodie.bucket.index.merge.threshold": 0.0}
MERGE = {**RESIZE, "hoodie.parquet.max.file.size": 100_000_000, "hoodie.bucket.index.merge.threshold": 1.0}
BESIDE = {"hoodie.clustering.updates.strategy": f"{STRATEGIES}.update.strategy.SparkConsistentBucketDuplicateUpdateStrategy"}
_HASHES = """
fields = jvm.java.util.ArrayList()
fields.add("a")
fields.add("b")
result = []
for key in keys:
    values = jvm.java.util.ArrayList()
    for part in jvm.org.apache.hudi.keygen.KeyGenUtils.extractRecordKeysByFields(key, fields):
        values.add(part)
    place = jvm.org.apache.hudi.common.util.hash.HashID.getXXHash32(jvm.java.lang.String.join("", values), 0)
    result.append([place & 0x7FFFFFFF, (values.hashCode() & 0x7FFFFFFF) % 64])
"""


def as_text(options: dict[str, Any]) -> str:
    """Options as procedures take them."""
    given = {**OPTIONS, **options, "hoodie.metadata.enable": False}
    return ",".join(f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in given.items())


def rows(numbers: Iterable[int], ts: int) -> pa.Table:
    made = [{"id": f"k{n:03d}", "code": n * 7, "ts": ts, "city": CITIES[n % 2]} for n in numbers]
    return pa.Table.from_pylist(made, SCHEMA)


class Ringed(Alternation):
    """Rows of log files name their file group, not a file."""

    def theirs(self, operation: str, data: pa.Table, **options: Any) -> None:
        self.hudi.write(data, self.path, **{**self.options, OPERATION: operation, **options})
        self._apply(operation, data, self.table.timeline().completed(Action.DELTACOMMIT)[-1].request_time)

    def _check_meta(self, row: Row) -> None:
        assert row["_hoodie_commit_time"] == self.times[row["id"]], row["id"]

    def check(self, nodes: dict[str, int] | None = None) -> None:
        """Both read the same, the table is valid, and every row is in the node of its key."""
        self.read_by_both()
        report = self.table.validate(keys=True)
        assert report.ok, str(report)
        context = self.table.context
        rings = {city: load_hashing_metadata(context, context.timeline.load(), city, ()) for city in CITIES}
        layout = ConsistentHashingLayout({city: ring for city, ring in rings.items() if ring is not None})
        found = self.table.scan(["id", "_hoodie_partition_path", "_hoodie_file_name"]).to_arrow().to_pylist()
        cells = layout.cells_for_keys(context.config.keys, pa.array([row["id"] for row in found], pa.string())).tolist()
        for row, cell in zip(found, cells, strict=True):
            city = row["_hoodie_partition_path"]
            bucket = layout.bucket_at(city, cell)
            assert bucket is not None
            assert row["_hoodie_file_name"].lstrip(".").startswith(layout.node_file_id(city, bucket)), row
        if nodes is not None:
            assert {city: len(ring.nodes) for city, ring in layout.rings.items()} == nodes

    def moved(self) -> None:
        """Rows of a resize keep their commit time and key; their file is another one."""
        self.places.clear()

    def plan(self, instant: str) -> ClusteringPlan:
        """A clustering plan as it is stored on the timeline."""
        data = self.table.context.timeline.read_state(instant, Action.CLUSTERING, State.REQUESTED)
        plan = RequestedReplaceMetadata.decode(data or b"").clustering_plan
        assert plan is not None
        return plan

    def theirs_resizes(self, options: dict[str, Any], data: pa.Table) -> None:
        """A write of Apache Hudi with a resize after it."""
        inline = {"hoodie.clustering.inline": True, "hoodie.clustering.inline.max.commits": 1}
        self.theirs("upsert", data, **options, **inline)
        newest = self.table.timeline().completed(Action.REPLACECOMMIT)[-1].request_time
        assert newest > self.table.timeline().completed(Action.DELTACOMMIT)[-1].request_time


def begun(hudi: ApacheHudi, path: Path) -> Ringed:
    return Ringed(hudi, path / "t", OPTIONS, partition=lambda row: row["city"], ordering="ts")


def test_written_by_both_and_resized_by_hudi(hudi: ApacheHudi, tmp_path: Path) -> None:
    both = begun(hudi, tmp_path)
    both.create()
    both.ours("upsert", rows(range(40), 1))
    both.theirs("upsert", rows((*range(20), *range(40, 50)), 2))
    both.ours("delete", rows((0, 45), 3))
    both.check(dict.fromkeys(CITIES, 2))
    both.theirs_resizes(SPLIT, rows(range(50, 300), 4))
    both.ours("upsert", rows((*range(1, 60, 5), *range(300, 320)), 5))
    both.check()
    both.theirs("upsert", rows((2, 3, 301, 330), 6))
    both.ours("insert_overwrite", rows(range(0, 120, 2), 7))
    both.theirs("upsert", rows((2, 4, 3, 400), 8))
    both.check()
    both.theirs_resizes(MERGE, rows((5, 6), 9))
    both.ours("upsert", rows((5, 8, 401, 402), 10))
    both.check(dict.fromkeys(CITIES, 1))


def test_resized_by_both_alternately(hudi: ApacheHudi, tmp_path: Path) -> None:
    both = begun(hudi, tmp_path)
    both.create()
    both.theirs("upsert", rows(range(200), 1))
    both.table.cluster(options=SPLIT)
    both.moved()
    both.check(dict.fromkeys(CITIES, 4))
    both.theirs("upsert", rows((*range(0, 50, 3), *range(200, 220)), 2))
    both.ours("upsert", rows((*range(1, 60, 5), *range(220, 301)), 4))
    both.check()
    both.table.cluster(options=MERGE)
    both.moved()
    both.check(dict.fromkeys(CITIES, 1))
    both.theirs("upsert", rows((7, 8, 301, 302), 5))
    both.check()


def test_resize_plans_are_executed_by_the_other_library_while_both_write(hudi: ApacheHudi, tmp_path: Path) -> None:
    both = begun(hudi, tmp_path)
    both.create()
    both.ours("upsert", rows(range(200), 1))
    ours = both.table.schedule_clustering(options=SPLIT).instant
    assert ours is not None
    both.ours("upsert", rows(range(150, 220), 2), **BESIDE)
    both.theirs("upsert", rows((*range(0, 50, 3), *range(220, 240)), 3), **BESIDE)
    both.ours("delete", rows((5, 6, 151, 222), 4), **BESIDE)
    both.read_by_both()
    hudi.call("run_clustering", path=str(both.path), op="execute", instants=ours, options=as_text(SPLIT))
    assert not both.table.timeline().pending()
    both.moved()
    both.check(dict.fromkeys(CITIES, 4))
    hudi.call("run_clustering", path=str(both.path), op="schedule", options=as_text(SPLIT))
    (pending,) = both.table.timeline().pending(Action.CLUSTERING)
    their_plan = both.plan(pending.request_time)
    assert both.plan(ours).strategy == their_plan.strategy
    assert set(their_plan.missing_schedule_partitions or ()) == set(CITIES)
    for group in their_plan.input_groups or ():
        nodes = (group.extra_metadata or {})["clustering.group.child.node"]
        assert encode_nodes(decode_nodes(nodes)) == nodes
    both.theirs("upsert", rows((*range(0, 60, 7), *range(240, 250)), 5), **BESIDE)
    both.ours("upsert", rows((*range(0, 40, 3), *range(245, 260)), 6), **BESIDE)
    both.read_by_both()
    both.table.cluster(pending.request_time)
    both.moved()
    both.check(dict.fromkeys(CITIES, 8))
    both.theirs("upsert", rows((1, 2, 3, 261), 7))
    both.check()


@pytest.mark.wide
def test_resizes_of_version_9_tables_by_both(newer_hudi: ApacheHudi, tmp_path: Path) -> None:
    """Written, resized and written by both in turn; the other library is release 1.1.1."""
    both = Ringed(
        newer_hudi,
        tmp_path / "t",
        {**OPTIONS, "hoodie.write.table.version": 9},
        partition=lambda row: row["city"],
        ordering="ts",
    )
    both.create()
    both.ours("upsert", rows(range(120), 1))
    both.theirs("upsert", rows((*range(20), *range(120, 200)), 2))
    both.ours("delete", rows((0, 125), 3))
    both.check(dict.fromkeys(CITIES, 2))
    both.theirs_resizes(SPLIT, rows(range(150, 220), 4))
    both.ours("upsert", rows((*range(1, 60, 5), *range(220, 230)), 5))
    both.check()
    both.table.cluster(options=MERGE)
    both.moved()
    both.check(dict.fromkeys(CITIES, 1))
    both.theirs("upsert", rows((7, 8, 231, 232), 6))
    planned = both.table.schedule_clustering(options=SPLIT).instant
    assert planned is not None
    both.theirs("upsert", rows((*range(1, 50, 3), *range(232, 240)), 7), **BESIDE)
    both.ours("upsert", rows(range(235, 250), 8), **BESIDE)
    both.read_by_both()
    newer_hudi.call("run_clustering", path=str(both.path), op="execute", instants=planned, options=as_text(SPLIT))
    assert not both.table.timeline().pending()
    both.moved()
    both.check(dict.fromkeys(CITIES, 2))
    both.theirs("upsert", rows((1, 2, 251), 9))
    both.check()


def test_hashes_of_keys_with_null_parts(hudi: ApacheHudi) -> None:
    """Values of a key as Apache Hudi takes them from it, and hashes them."""
    keys = ["a:1,b:2", "a:__null__,b:2", "a:1,b:__null__", "a:__empty__,b:x", "a:__null__,b:__empty__", "a:x,y,b:z:w"]
    expected = hudi.run(_HASHES, keys=keys)
    texts = pa.array(keys, pa.string())
    ours = np.stack([consistent_hashes(texts, ["a", "b"]), bucket_ids(texts, 64, ["a", "b"]).astype(np.int64)], axis=1)
    assert ours.tolist() == expected
