"""Resizing of consistent-hashing buckets: moved rows, concurrent writes, and rolled-back resizes."""

from __future__ import annotations

import bisect
import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
import xxhash

import pyhudi as hp
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import InvalidRequest, TableState, Unsupported
from pyhudi.features.consistent_hashing.hashing_metadata import NodeTag, decode_nodes
from pyhudi.features.consistent_hashing.hashing_store import load_hashing_metadata, store_hashing_metadata
from pyhudi.format.actions.clustering_plan import ClusteringPlan
from pyhudi.format.actions.commit_metadata import CommitMetadata
from pyhudi.format.actions.requested_replace import RequestedReplaceMetadata
from pyhudi.format.instants import Action, State
from pyhudi.format.log.delete_blocks import deletes_batch, encode_deletes
from pyhudi.format.log.framing import BlockType, HeaderKey, encode_blocks
from pyhudi.format.names import MarkerType, parse_log_file
from pyhudi.format.paths import HASHING_FOLDER, file_name
from pyhudi.metadata_table.writer.initialize_partitions import ensure_metadata_table
from pyhudi.metadata_table.writer.metadata_settings import MetadataSettings
from pyhudi.operations.commit.action_attempt import rollback_own_attempt
from pyhudi.operations.commit.rollback import rollback_instant
from pyhudi.operations.commit.transaction import Transaction
from pyhudi.operations.services.cluster import ClusterSettings, execute_clustering, plan_and_run_clustering
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.storage.markers import Markers
from pyhudi.storage.memory import MemoryStorage, forget_memory
from pyhudi.table.snapshot import directory_listing, load_snapshot
from tests.support.consistent_hashing_tables import create as create_ringed
from tests.support.consistent_hashing_tables import hashing_files, hashing_of, rows

RINGS = {
    "hoodie.index.type": "BUCKET",
    "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
    "hoodie.bucket.index.num.buckets": 2,
    "hoodie.bucket.index.min.num.buckets": 1,
    "hoodie.bucket.index.max.num.buckets": 8,
    "hoodie.compact.inline": False,
    "hoodie.parquet.bloom.filter.enabled": False,
    "pyhudi.threads": 1,
}
SPLIT = {"hoodie.parquet.max.file.size": 100, "hoodie.bucket.index.merge.threshold": 0.0}
MERGE = {"hoodie.bucket.index.merge.threshold": 1.0}
BESIDE = {"hoodie.clustering.updates.strategy": "SparkConsistentBucketDuplicateUpdateStrategy"}
_names = itertools.count()

Values = dict[str, tuple[str, int]]


@pytest.fixture
def uri() -> Iterator[str]:
    name = f"resizing-{next(_names)}"
    yield f"memory://{name}"
    forget_memory(name)


def create(uri: str, **options: Any) -> hp.Table:
    return create_ringed(uri, **{**RINGS, **options})


def values(table: hp.Table) -> Values:
    found = table.scan(["id", "part", "ts"]).to_arrow().to_pylist()
    assert len({row["id"] for row in found}) == len(found), "a key stands there twice"
    return {row["id"]: (row["part"], row["ts"]) for row in found}


def logs_of(table: hp.Table, instant: str) -> list[str]:
    """The names of the log files that bear an instant's time."""
    paths = [info.path for info in table.context.storage.walk("p")]
    return [path for path in paths if (name := parse_log_file(file_name(path))) and name.instant_time == instant]


def plan_of(table: hp.Table, instant: str) -> ClusteringPlan:
    data = table.context.timeline.read_state(instant, Action.CLUSTERING, State.REQUESTED)
    plan = RequestedReplaceMetadata.decode(data or b"").clustering_plan
    assert plan is not None
    return plan


def planned(table: hp.Table, **options: Any) -> str:
    instant = table.schedule_clustering(options={**SPLIT, **options}).instant
    assert instant is not None
    return instant


def in_order(table: hp.Table) -> None:
    report = table.validate(keys=True)
    assert not report.findings, str(report)


@pytest.mark.parametrize("metadata", [True, False])
def test_buckets_split_and_merge(uri: str, metadata: bool) -> None:
    table = create(uri, **{"hoodie.metadata.enable": metadata})
    table.upsert(pa.concat_tables([rows(*range(60)), rows(*range(100, 104), part="q")]))
    table.upsert(rows(*range(0, 60, 2), ts=2))
    table.delete(pa.table({"id": ["k1", "k2"]}))
    before = values(table)
    commits = table.scan(["id", "_hoodie_commit_time"]).to_arrow().sort_by("id")
    done = table.cluster(options=SPLIT)
    assert done.instant is not None
    assert (done.rows, done.groups, done.file_groups_written) == (len(before), 4, 7)
    assert [node.value for node in hashing_of(table).nodes] == [(1 << 29) - 1, 1 << 30, (3 << 29) - 1, (1 << 31) - 1]
    assert (hashing_of(table).sequence, hashing_of(table).first_count, hashing_of(table).instant) == (1, 2, done.instant)
    assert values(table) == before
    # Rows are moved, and not written.
    assert table.scan(["id", "_hoodie_commit_time"]).to_arrow().sort_by("id") == commits
    in_order(table)
    table.upsert(rows(*range(50, 80), ts=3))
    after = {**before, **{f"k{n}": ("p", 3) for n in range(50, 80)}}
    assert values(table) == after
    merged = table.cluster(options=MERGE)
    assert [len(hashing_of(table, part).nodes) for part in "pq"] == [1, 2]
    assert hashing_of(table).sequence == 2
    assert values(table) == after
    table.upsert(rows(5, 6, 200, ts=4))
    assert f"p/{merged.instant}.commit" in hashing_files(table)
    assert values(table) == {**after, **{f"k{n}": ("p", 4) for n in (5, 6, 200)}}
    in_order(table)


def test_every_key_is_in_the_bucket_of_its_hash(uri: str) -> None:
    """7,300 keys after a split, a merge at the end of the hash range and another split, by the library's hash and the metadata
    file alone.
    """
    table = create(uri, **{"hoodie.bucket.index.num.buckets": 4})
    table.upsert(rows(*range(7300)))
    counts: list[int] = []
    for options in (SPLIT, MERGE, SPLIT):
        instant = table.cluster(options=options).instant
        ring = json.loads(table.context.storage.read(f"{HASHING_FOLDER}/p/{instant}.hashing_meta") or b"")
        places = [node["value"] for node in ring["nodes"]]
        assert (ring["numBuckets"], ring["seqNo"], places) == (4, len(counts) + 1, sorted(places))
        found = table.scan(["id", "_hoodie_file_name"]).to_arrow().to_pylist()
        assert len({row["id"] for row in found}) == len(found) == 7300
        for row in found:
            hashed = xxhash.xxh32(row["id"].encode()).intdigest() & 0x7FFFFFFF
            node = ring["nodes"][bisect.bisect_left(places, hashed) % len(places)]
            assert row["_hoodie_file_name"].startswith(f"{node['fileIdPrefix']}-0_")
        counts.append(len(places))
    assert counts == [8, 1, 2]


def test_the_plan_is_written_as_apache_hudi_writes_it(uri: str) -> None:
    table = create(uri)
    table.upsert(rows(*range(40)))
    ring = hashing_of(table)
    instant = planned(table, **{"hoodie.bucket.index.max.num.buckets": 3})
    plan = plan_of(table, instant)
    assert plan.strategy is not None
    assert plan.strategy.strategy_class_name == (
        "org.apache.hudi.client.clustering.run.strategy.SparkConsistentBucketClusteringExecutionStrategy"
    )
    assert (plan.strategy.strategy_params, plan.missing_schedule_partitions) == ({}, ("p",))
    said = [dict(group.extra_metadata or {}) for group in plan.input_groups or ()]
    assert [(s["clustering.group.partition"], s["clustering.group.sequence.no"]) for s in said] == [("p", "0"), ("p", "0")]
    nodes = [decode_nodes(s["clustering.group.child.node"]) for s in said]
    assert [[node.value for node in group] for group in nodes] == [[(1 << 29) - 1, 1 << 30], [ring.nodes[1].value]]
    assert all(node.tag is NodeTag.REPLACE and str(node.prefix) not in str(ring) for group in nodes for node in group)
    assert [group.num_output_file_groups for group in plan.input_groups or ()] == [2, 1]
    assert hashing_files(table) == ["p/00000000000000.hashing_meta"]


def test_sorted_by_columns(uri: str) -> None:
    table = create(uri)
    table.upsert(pa.concat_tables([rows(n, ts=50 - n) for n in range(30)]))
    table.cluster(order_by="ts", options=SPLIT)
    for part in table.inspect.file_slices().to_pylist():
        found = table.scan(["ts", "_hoodie_file_name"]).to_arrow().to_pylist()
        own = [row["ts"] for row in found if row["_hoodie_file_name"].startswith(part["file_id"])]
        assert own == sorted(own)


def test_inline_after_a_write(uri: str) -> None:
    inline = {"hoodie.clustering.inline": True, "hoodie.clustering.inline.max.commits": 2}
    table = create(uri, **inline, **SPLIT)
    table.upsert(rows(*range(30)))
    assert len(hashing_of(table).nodes) == 2
    table.upsert(rows(*range(30, 60)))
    assert len(hashing_of(table).nodes) == 4
    assert len(values(table)) == 60
    in_order(table)


def test_nothing_is_planned_while_a_write_is_under_way(uri: str) -> None:
    table = create(uri)
    table.upsert(rows(*range(20)))
    seen: list[hp.ClusteringResult] = []

    class Planning(LocalEngine):
        def map(self, function: Callable[[Any], Any], tasks: Any) -> list[Any]:
            if not seen:
                seen.append(table.schedule_clustering(options=SPLIT))
            return super().map(function, tasks)

    run_write(table.context, Planning(1), rows(1, ts=2), WriteSettings.of(parse_options(RINGS), WriteOperation.UPSERT))
    assert [result.instant for result in seen] == [None]


def test_clustering_with_different_hash_field_is_refused(uri: str) -> None:
    options = {**RINGS, "hoodie.bucket.index.hash.field": "part"}
    table = hp.Table.create(uri, record_key=["id", "part"], partition_by="part", ordering="ts", table_type="mor", options=options)
    table.upsert(rows(*range(8)))
    before = values(table)
    with pytest.raises(TableState, match=r"bucket\.index\.hash\.field"):
        table.cluster(options={**SPLIT, "hoodie.bucket.index.hash.field": "id"})
    assert values(table) == before
    assert table.cluster(options=SPLIT).file_groups_written == 1
    assert values(table) == before


def test_groups_that_no_node_has_are_not_resized(uri: str) -> None:
    """As an overwrite by Apache Hudi leaves them: the hashing metadata remains, and its file groups are replaced."""
    table = create(uri)
    table.upsert(rows(*range(8)))
    overwritten = table.insert_overwrite(rows(1, 2, 3, ts=2)).instant
    assert overwritten is not None
    context, present = table.context, hashing_of(table)
    context.storage.delete([f"{HASHING_FOLDER}/p/{overwritten}.hashing_meta", f"{HASHING_FOLDER}/p/{overwritten}.commit"])
    for asked in (lambda: table.cluster(options=SPLIT), lambda: table.upsert(rows(1, ts=3))):
        with pytest.raises(TableState, match="without updating its consistent hashing metadata"):
            asked()
    assert values(table) == {f"k{n}": ("p", 2) for n in (1, 2, 3)}
    assert not table.timeline().pending()
    store_hashing_metadata(context, present)
    table.cluster(options=SPLIT)
    in_order(table)


@pytest.mark.parametrize("options", [BESIDE, {}], ids=["copies", "reject"])
def test_write_during_a_pending_resize(uri: str, options: dict[str, Any]) -> None:
    table = create(uri)
    table.upsert(rows(*range(20)))
    instant = planned(table)
    if not options:
        with pytest.raises(TableState, match="DuplicateUpdateStrategy"):
            table.upsert(rows(1, ts=2))
        return
    result = table.upsert(rows(*range(10, 30), ts=2), options=options)
    assert result.rows_in == result.rows_updated == 20
    children = {
        node.file_id
        for group in plan_of(table, instant).input_groups or ()
        for node in decode_nodes((group.extra_metadata or {})["clustering.group.child.node"])
    }
    copies = [parse_log_file(file_name(path)) for path in logs_of(table, instant)]
    assert {copy.file_id for copy in copies if copy} <= children
    store = table.context.timeline
    done = next(i for i in store.load().completed(Action.DELTACOMMIT) if i.request_time == result.instant)
    stats = CommitMetadata.decode(store.read(done)).partition_to_write_stats["p"]
    assert set(logs_of(table, instant)) < {stat.path for stat in stats}
    assert sum(stat.num_writes for stat in stats) == 40


@pytest.mark.sample(1)
@pytest.mark.parametrize("metadata", [True, False])
def test_writes_during_a_resize_are_read_once_at_every_instant(uri: str, metadata: bool) -> None:
    table = create(uri, **BESIDE, **{"hoodie.metadata.enable": metadata})
    table.upsert(rows(*range(20)))
    table.upsert(rows(1, part="q"))
    instant = planned(table)
    first = table.upsert(pa.concat_tables([rows(*range(10, 30), ts=2), rows(50, part="r"), rows(60, part="q")]))
    table.upsert(rows(12, 13, ts=3))
    table.delete(pa.table({"id": ["k14", "k3", "nobody"]}))
    table.upsert(rows(14, ts=4))
    expected = {f"k{n}": ("p", 1) for n in range(10) if n not in (1, 3)}
    expected |= {f"k{n}": ("p", 2) for n in range(10, 30) if n not in (12, 13, 14)}
    expected |= {"k12": ("p", 3), "k13": ("p", 3), "k14": ("p", 4), "k50": ("r", 1), "k60": ("q", 1)}
    found = table.scan(["id", "part", "ts"]).to_arrow().to_pylist()
    at = {(row["id"], row["part"]): row["ts"] for row in found}
    assert len(at) == len(found)
    assert {key: (part, ts) for (key, part), ts in at.items() if key != "k1"} == expected
    in_order(table)
    assert table.clean(dry_run=True).instant is None
    assert len(logs_of(table, instant)) >= 4
    meta = table.scan(["*"]).to_arrow().sort_by([("id", "ascending"), ("part", "ascending")])
    assert table.cluster(instant).rows == 21
    after = table.scan(["*"]).to_arrow().sort_by([("id", "ascending"), ("part", "ascending")])
    kept = [name for name in after.column_names if name not in ("_hoodie_file_name", "_hoodie_commit_seqno")]
    assert after.select(kept) == meta.select(kept)
    in_order(table)
    as_of = table.scan(["id"], as_of=first.instant).to_arrow()
    assert as_of.num_rows == 33
    table.upsert(rows(14, 15, 99, ts=5))
    table.compact()
    assert table.scan().to_arrow().num_rows == after.num_rows + 1
    in_order(table)


@pytest.mark.sample(1)
@pytest.mark.parametrize("mode", ["COMMIT_TIME_ORDERING", "EVENT_TIME_ORDERING"])
def test_double_written_logs_keep_the_order_of_their_writes(uri: str, mode: str) -> None:
    table = create(uri, **BESIDE, **{"hoodie.write.record.merge.mode": mode, "hoodie.metadata.enable": False})
    table.upsert(rows(*range(20)))
    instant = planned(table)
    for ts in range(5, 16):
        table.upsert(rows(*range(ts), ts=ts))
    before = values(table)
    assert before["k4"] == ("p", 15)
    table.cluster(instant)
    assert values(table) == before


def test_partial_updates_during_a_resize(uri: str) -> None:
    table = create(uri, **BESIDE, **{"hoodie.write.record.merge.mode": "COMMIT_TIME_ORDERING"})
    table.upsert(rows(*range(20)).append_column("note", pa.array([f"n{n}" for n in range(20)])))
    instant = planned(table)
    some = pa.table({"id": ["k3", "k4", "nobody"], "part": ["p"] * 3, "ts": [5, 6, 7], "note": ["x", "y", "z"]})
    table.upsert(some, options={"pyhudi.partial.update": True})
    before = table.scan(["id", "ts", "note"]).to_arrow().sort_by("id")
    assert dict(zip(before["id"].to_pylist(), before["note"].to_pylist(), strict=True))["k3"] == "x"
    table.cluster(instant)
    assert table.scan(["id", "ts", "note"]).to_arrow().sort_by("id") == before


@pytest.mark.sample(2)
@pytest.mark.parametrize("moment", ["pending", "resized"])
@pytest.mark.parametrize("metadata", [True, False])
def test_incremental_and_changes(uri: str, moment: str, metadata: bool) -> None:
    table = create(uri, **BESIDE, **{"hoodie.table.cdc.enabled": True, "hoodie.metadata.enable": metadata})
    zero = table.upsert(rows(*range(20)))
    instant = planned(table)
    first = table.upsert(rows(*range(15, 25), ts=2))
    second = table.delete(pa.table({"id": ["k2", "k16"]}))
    if moment == "resized":
        table.cluster(instant)
        table.upsert(rows(3, ts=7))
    assert zero.completion_time and first.completion_time and second.completion_time
    for start, written, count in (
        (first.completion_time, first, range(15, 25)),
        (zero.completion_time, first, range(25)),
        ("earliest", zero, range(20)),
    ):
        got = table.incremental(start, written.completion_time, ["id", "ts"]).to_arrow()
        assert sorted(got["id"].to_pylist()) == sorted(f"k{n}" for n in count)
    changes = table.changes(first.completion_time, second.completion_time).to_arrow().to_pylist()
    assert len(changes) == 12


def test_dropped_resize_removes_double_written_logs(uri: str) -> None:
    for metadata in (True, False):
        name = f"{uri}-{metadata}"
        table = create(name, **BESIDE, **{"hoodie.metadata.enable": metadata})
        table.upsert(rows(*range(20)))
        instant = planned(table)
        table.upsert(rows(*range(15, 25), ts=2))
        before = values(table)
        assert logs_of(table, instant)
        table.unschedule_clustering(instant)
        assert not logs_of(table, instant)
        assert not table.timeline().pending()
        assert values(table) == before
        table.upsert(rows(1, ts=3))
        in_order(table)
        assert len(hashing_of(table).nodes) == 2
        table.cluster(options=SPLIT)
        assert values(table) == {**before, "k1": ("p", 3)}
        in_order(table)
        forget_memory(name.removeprefix("memory://"))


@pytest.mark.parametrize("moment", ["pending", "resized"])
def test_rolled_back_write_removes_its_double_written_logs(uri: str, moment: str) -> None:
    table = create(uri, **BESIDE)
    table.upsert(rows(*range(20)))
    instant = planned(table)
    table.upsert(rows(*range(15, 20), ts=2))
    before, logs = values(table), logs_of(table, instant)
    undone = table.upsert(rows(*range(15, 30), ts=3)).instant
    assert undone is not None
    if moment == "resized":
        table.cluster(instant)
    table.rollback(undone)
    assert logs_of(table, instant) == logs
    assert values(table) == before
    if moment == "pending":
        table.cluster(instant)
    assert values(table) == before
    in_order(table)
    if moment == "resized":
        with pytest.raises(TableState, match="later writes build on it"):
            table.rollback(instant)


def test_restore_removes_double_written_logs(uri: str) -> None:
    table = create(uri, **BESIDE)
    table.upsert(rows(*range(20)))
    instant = planned(table)
    kept = table.upsert(rows(*range(15, 20), ts=2)).instant
    assert kept is not None
    before, logs = values(table), logs_of(table, instant)
    table.upsert(rows(*range(15, 30), ts=3))
    table.restore(kept)
    assert logs_of(table, instant) == logs
    assert values(table) == before
    table.cluster(instant)
    assert values(table) == before
    in_order(table)


def test_hashing_metadata_of_a_resize_under_rollback_is_ignored(uri: str) -> None:
    """It has been marked, and from its first step on the rollback has the file groups count again that the resize replaced."""
    table = create(uri)
    table.upsert(rows(*range(20)))
    before = hashing_of(table)
    done = table.cluster(options=SPLIT).instant
    assert done is not None
    context = table.context.reloaded()
    load_hashing_metadata(context, context.timeline.load(), "p", (), marks=True)
    assert f"p/{done}.commit" in hashing_files(table)
    completed = context.timeline.load().completed(Action.REPLACECOMMIT)[0]
    context.timeline.remove_completed(completed)
    assert hashing_of(table) == before


@pytest.mark.sample(2)
@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.parametrize("made_by", ["resize", "overwrite"])
def test_restore_removes_later_hashing_metadata(uri: str, made_by: str, marked: bool) -> None:
    """The next write marks hashing metadata, and marked metadata is valid regardless of the timeline."""
    table = create(uri)
    kept = table.upsert(rows(*range(20))).instant
    assert kept is not None
    before, files = values(table), hashing_files(table)
    if made_by == "resize":
        table.cluster(options=SPLIT)
    else:
        table.insert_overwrite(rows(*range(5)))
    if marked:
        table.upsert(rows(1, ts=5))
    table.restore(kept)
    assert [name for name in hashing_files(table) if not name.startswith("p/00000000000000.")] == []
    assert set(files) <= set(hashing_files(table))
    assert values(table) == before
    table.upsert(rows(1, 30, ts=7))
    assert values(table) == {**before, "k1": ("p", 7), "k30": ("p", 7)}
    in_order(table)
    table.cluster(options=SPLIT)
    assert values(table) == {**before, "k1": ("p", 7), "k30": ("p", 7)}
    in_order(table)


def test_a_resize_that_is_rolled_back(uri: str) -> None:
    table = create(uri)
    table.upsert(rows(*range(20)))
    before, files = values(table), hashing_files(table)
    done = table.cluster(options=SPLIT).instant
    assert done is not None
    table.rollback(done)
    assert hashing_files(table) == files
    assert values(table) == before
    table.upsert(rows(1, ts=2))
    in_order(table)


def settings(operation: WriteOperation = WriteOperation.UPSERT) -> WriteSettings:
    return WriteSettings.of(parse_options({**RINGS, **BESIDE}), operation)


class ActingEngine(LocalEngine):
    """Does something when the files of a write are written, and its commit is to come."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__(1)
        self._todo = [act]

    def map(self, function: Callable[[Any], Any], tasks: Any) -> list[Any]:
        done = super().map(function, tasks)
        while self._todo:
            self._todo.pop()()
        return done


@pytest.mark.parametrize("dropped", [False, True], ids=["completes", "dropped"])
def test_resize_that_ends_during_a_double_writing_write(uri: str, dropped: bool) -> None:
    table = create(uri, **BESIDE)
    table.upsert(rows(*range(20)))
    instant = planned(table)
    end = ActingEngine(lambda: table.unschedule_clustering(instant) if dropped else table.cluster(instant))
    result = run_write(table.context, end, rows(*range(15, 25), ts=2), settings())
    # Concurrently with a process that completes it, it has recorded everything in both places.
    assert result.conflict_retries == int(dropped)
    assert bool(logs_of(table, instant)) != dropped
    assert values(table) == {f"k{n}": ("p", 2 if n >= 15 else 1) for n in range(25)}
    in_order(table)


def test_write_without_double_writing_conflicts_with_a_resize(uri: str) -> None:
    """It was planned on a state before the resize, as one whose rows were chosen by what it read."""
    table = create(uri)
    table.upsert(rows(*range(20)))
    scan = table.scan(filter="id = 'k1'")
    scan.to_arrow()
    instant = planned(table)
    before = values(table)
    with pytest.raises(hp.errors.WriteConflict, match=f"clustering {instant}.*plan the write again"):
        table.upsert(rows(1, ts=9), based_on=scan)
    assert values(table) == before
    table.cluster(instant)
    table.upsert(rows(2, ts=3))
    assert not table.timeline().pending()
    in_order(table)


def test_overwrites_during_a_resize_are_refused(uri: str) -> None:
    table = create(uri, **BESIDE)
    table.upsert(rows(*range(20)))
    instant = planned(table)
    with pytest.raises(TableState, match=instant):
        table.insert_overwrite(rows(1))
    with pytest.raises(TableState, match=instant):
        table.delete_partitions("p")
    assert len(values(table)) == 20


def test_record_index_during_a_resize(uri: str) -> None:
    table = create(uri, **BESIDE, **{"hoodie.metadata.enable": True})
    table.upsert(rows(*range(20)))
    table.index.create("record_index")
    instant = planned(table)
    with pytest.raises(Unsupported, match="record index"):
        table.upsert(rows(1, ts=2))
    table.cluster(instant)
    table.upsert(rows(1, ts=2))
    in_order(table)


def test_metadata_table_built_during_a_resize_lists_double_written_logs(uri: str) -> None:
    table = create(uri, **BESIDE, **{"hoodie.metadata.enable": False})
    table.upsert(rows(*range(20)))
    instant = planned(table)
    table.upsert(rows(*range(15, 25), ts=2))
    before = values(table)
    listed = hp.Table(uri, options={**RINGS, **BESIDE, "hoodie.metadata.enable": True})
    listed.upsert(rows(1, part="z"))
    assert listed.context.reloaded().config.has_metadata_table
    listed.cluster(instant)
    found = listed.scan(["id"], filter="part = 'p'").to_arrow()
    assert found.num_rows == len(before)
    in_order(listed)


def test_metadata_table_lists_no_double_written_logs_of_a_pending_write(uri: str) -> None:
    """Its copies bear the time of a resize that has completed, and go when it fails."""
    table = create(uri, **BESIDE, **{"hoodie.metadata.enable": False})
    table.upsert(rows(*range(2, 20)))
    instant = planned(table)
    table.cluster(instant)
    before = values(table)
    write = Transaction.begin(table.context, Action.DELTACOMMIT, settings().commit)
    write.start()
    copy = f"p/.{hashing_of(table).file_ids[0]}_{instant}.log.1_9-9-9"
    Markers(table.context.storage, write.instant_time).create(copy, MarkerType.CREATE)
    deletes = encode_deletes([deletes_batch(pa.array(["k3"]), "p")])
    block = (BlockType.DELETE, {HeaderKey.INSTANT_TIME: write.instant_time}, deletes)
    table.context.storage.put(copy, b"".join(encode_blocks([block])))
    listed = hp.Table(uri, options={**RINGS, **BESIDE, "hoodie.metadata.enable": True})
    listed.upsert(rows(1, part="z"))
    assert listed.context.reloaded().config.has_metadata_table
    report = listed.validate(keys=True)
    assert [(found.path, found.detail) for found in report.findings] == [
        (copy, f"written by {write.instant_time}, which has not completed")
    ]
    assert report.ok
    assert not listed.repair(["orphans", "metadata-table"], dry_run=True).steps
    write.stop_heartbeat()
    rollback_own_attempt(write)
    assert table.context.storage.read(copy) is None
    assert values(listed) == {**before, "k1": ("z", 1)}
    in_order(listed)


class Deleting(MemoryStorage):
    """Does something before files of the partition `p` are deleted."""

    def __init__(self, uri: str, act: Callable[[], object]) -> None:
        super().__init__(uri)
        self._todo = [act]

    def delete(self, paths: Iterable[str]) -> None:
        gone = list(paths)
        while self._todo and any(path.startswith("p/") for path in gone):
            self._todo.pop()()
        super().delete(gone)


def test_rollback_of_a_double_writing_write_drops_a_metadata_table_that_lists_its_logs(uri: str) -> None:
    table = create(uri, **BESIDE, **{"hoodie.metadata.enable": False})
    table.upsert(rows(*range(20)))
    before = values(table)
    instant = planned(table)
    table.upsert(rows(*range(5), ts=2))
    table.cluster(instant)
    write = table.timeline().last_completed_write()
    assert write is not None and write.request_time > instant
    options = parse_options({**RINGS, "hoodie.metadata.enable": True})
    metadata = MetadataSettings.of(options)
    columns = load_snapshot(table.context, directory_listing).schema
    assert columns is not None

    def build() -> object:
        return ensure_metadata_table(table.context, LocalEngine(1), metadata, 1000, columns.arrow, columns.arrow)

    rollback_instant(replace(table.context, storage=Deleting(uri, build)), write, settings().commit)
    assert not logs_of(table, instant)
    assert not table.context.reloaded().config.has_metadata_table
    listed = hp.Table(uri, options={**RINGS, **BESIDE, "hoodie.metadata.enable": True})
    assert values(listed) == before
    listed.upsert(rows(1, part="z"))
    in_order(listed)


def test_double_write_strategy_requires_consistent_hashing(uri: str) -> None:
    table = hp.Table.create(uri, record_key="id", table_type="mor")
    with pytest.raises(InvalidRequest, match="CONSISTENT_HASHING"):
        table.upsert(rows(1), options=BESIDE)
    with pytest.raises(InvalidRequest, match="CONSISTENT_HASHING"):
        table.cluster(options={"hoodie.clustering.plan.strategy.class": "SparkConsistentBucketClusteringPlanStrategy"})


def test_a_second_attempt_writes_files_of_its_own(uri: str) -> None:
    """What a first one left, and deletes when it wakes up, is not what the second one published."""
    table = create(uri)
    table.upsert(rows(*range(20)))
    instant = planned(table)
    chosen = ClusterSettings.of(parse_options({**RINGS, **SPLIT}))
    names: list[set[str]] = []

    class CrashingEngine(LocalEngine):
        def map(self, function: Callable[[Any], Any], tasks: Any) -> list[Any]:
            done = super().map(function, tasks)
            names.append({file_name(status.stat.path or "") for part in done for status in part})
            raise RuntimeError("this attempt is over")

    with pytest.raises(RuntimeError):
        execute_clustering(table.context.reloaded(), CrashingEngine(1), instant, chosen)
    execute_clustering(table.context.reloaded(), LocalEngine(1), instant, chosen)
    present = {file_name(info.path) for info in table.context.storage.walk("p") if info.path.endswith(".parquet")}
    assert len(present) == len(names[0]) == 4
    assert not present & names[0]
    assert len(values(table)) == 20


def test_archived_resizes_still_count(uri: str) -> None:
    """Their hashing metadata is known by its files when their instants have left the timeline."""
    archive = {"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3, "hoodie.clean.commits.retained": 1}
    table = create(uri, **BESIDE, **archive)
    table.upsert(rows(*range(20)))
    instant = planned(table)
    table.upsert(rows(*range(15, 25), ts=2))
    table.cluster(instant)
    for number in range(6):
        table.upsert(rows(100 + number, part="q"))
    table.clean(dry_run=True)
    table.archive()
    assert not any(i.request_time == instant for i in table.timeline().instants)
    assert hashing_of(table).instant == instant
    found = values(table)
    assert {key: value for key, value in found.items() if value[0] == "p"} == {
        f"k{n}": ("p", 2 if n >= 15 else 1) for n in range(25)
    }
    table.upsert(rows(3, ts=9))
    assert plan_and_run_clustering(
        table.context.reloaded(), LocalEngine(1), ClusterSettings.of(parse_options({**RINGS, **SPLIT}))
    ).instant
    assert values(table) == {**found, "k3": ("p", 9)}
    in_order(table)
