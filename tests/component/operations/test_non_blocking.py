"""Non-blocking writers that append to the same file groups: results, restrictions, remaining conflicts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.errors import InvalidRequest, TableState, Unsupported
from pyhudi.format.actions.commit_metadata import CommitMetadata
from pyhudi.format.instants import Action, Instant, State
from pyhudi.format.names import format_shared_file_id, is_shared_file_id, parse_bucket
from pyhudi.operations.services.compact import CompactSettings, schedule_compaction
from pyhudi.options.supported import parse_options
from pyhudi.planning.bucket_routing import shared_file_id
from pyhudi.planning.conflicts import concurrently_replaced_groups
from pyhudi.storage import open_storage
from pyhudi.table.pending_plans import load_compaction_plan
from pyhudi.table.snapshot import read_commit
from tests.simulation.tables import World
from tests.support.non_blocking import MODE, NON_BLOCKING, OPTIONS, rows, write_during

METADATA = "hoodie.metadata.enable"
FIRST, SECOND = "00000000-0000-0000-0000-000000000000-0", "00000000-0000-0000-0000-000000000000-1"


@pytest.fixture
def world() -> World:
    return World("mor", OPTIONS)


def plan_compaction(world: World) -> str:
    planned = schedule_compaction(world.table.context, CompactSettings.of(parse_options(world.options))).planned
    assert planned is not None
    return planned


def data_files(world: World) -> Iterator[str]:
    return (path.rsplit("/", 1)[-1] for path in sorted(world.files()) if "partition_metadata" not in path)


# Names


def test_all_writers_make_the_same_file_id_of_a_bucket() -> None:
    assert format_shared_file_id(17, 0) == "00000017-0000-0000-0000-000000000000-0"
    assert is_shared_file_id(FIRST) and is_shared_file_id(SECOND) and parse_bucket(format_shared_file_id(17, 1)) == 17
    assert not is_shared_file_id("00000017-a8db-4385-9dc7-3e49540f9651-0")
    assert not is_shared_file_id("abcdef01-0000-0000-0000-000000000000-0")


def test_a_file_id_that_was_replaced_is_not_made_again() -> None:
    assert shared_file_id("a", 0, {("b", FIRST)}) == FIRST
    assert shared_file_id("a", 0, {("a", FIRST)}) == SECOND


def test_file_groups_replaced_during_a_write() -> None:
    mine = [("a", FIRST), ("b", FIRST)]
    assert concurrently_replaced_groups(mine, [("a", FIRST), ("c", SECOND)], []) == frozenset()
    assert concurrently_replaced_groups(mine, [("a", SECOND)], []) == {("a", FIRST)}
    assert concurrently_replaced_groups(mine, [], [("b", FIRST), ("c", FIRST)]) == {("b", FIRST)}


# What is written


def test_the_first_writes_of_a_bucket_are_log_files(world: World) -> None:
    first = write_during(world, rows(1, k0=1), lambda: world.table.upsert(rows(2, k0=2, k2=2)))
    assert first.conflict_retries == 0
    names = list(data_files(world))
    assert len(names) == 2 and all(name.startswith(f".{FIRST}_") for name in names)
    assert world.scanned() == {"k0": 2, "k2": 2}
    timeline = world.table.timeline()
    later, earlier = timeline.completed_writes()[::-1]
    assert earlier.request_time == first.instant and str(earlier.completion_time) > str(later.completion_time)
    for instant in (earlier, later):
        ((stat,),) = read_commit(world.table.context.timeline, instant).partition_to_write_stats.values()
        assert (stat.prev_commit, stat.base_file) == (instant.request_time, "")
        assert stat.log_files == ((stat.path or "").rsplit("/", 1)[-1],)
        # A bucket without a file group is reported as inserts, in no group.
        profile = world.table.context.timeline.read_state(instant.request_time, Action.DELTACOMMIT, State.INFLIGHT)
        ((planned,),) = CommitMetadata.decode(profile or b"").partition_to_write_stats.values()
        assert (planned.file_id, planned.num_update_writes) == ("", 0) and planned.num_inserts == stat.num_writes
    assert world.table.validate().ok


@pytest.mark.parametrize("method", ["insert", "bulk_insert", "upsert"])
def test_writes_create_no_base_files(world: World, method: str) -> None:
    for stamp in (1, 2):
        getattr(world.table, method)(rows(stamp, k0=stamp, k2=stamp))
    assert all(name.startswith(f".{FIRST}_") for name in data_files(world))
    assert world.scanned() == {"k0": 2, "k2": 2}


def test_a_compaction_takes_what_completed_before_it_was_planned(world: World) -> None:
    early = world.table.upsert(rows(5, k0=5, k2=5)).instant
    planned: list[str] = []
    late = write_during(world, rows(3, k0=3, k4=3), lambda: planned.append(plan_compaction(world))).instant
    assert early is not None and late is not None and late < planned[0]
    plan = load_compaction_plan(world.table.context.timeline, Instant(planned[0], Action.COMPACTION, State.REQUESTED))
    (operation,) = plan.operations or ()
    assert (operation.base_instant_time, operation.data_file_path) == (early, None)
    assert [name.split("_")[1].split(".")[0] for name in operation.delta_file_paths or ()] == [early]
    there = {"k0": 5, "k2": 5, "k4": 3}
    for step in (lambda: None, world.table.compact, lambda: world.table.clean(dry_run=False), world.table.compact):
        step()
        assert world.scanned() == there
        assert world.scanned(as_of=late) == there
    assert world.table.validate().ok


def test_event_time_decides_regardless_of_completion_order(world: World) -> None:
    write_during(world, rows(9, k0=9, k2=9), lambda: world.table.upsert(rows(5, k0=5, k2=5)))
    write_during(world, rows(1, k0=1), lambda: world.table.upsert(rows(10, True, k2=0)))
    write_during(world, rows(8, k2=8), lambda: None)
    assert world.scanned() == {"k0": 9}


def test_rollback_of_one_writer_keeps_the_others_complete(world: World) -> None:
    def die_after_another_write() -> None:
        world.table.upsert(rows(5, k0=5, k4=5))
        raise KeyboardInterrupt

    world.table.upsert(rows(1, k0=1))
    with pytest.raises(KeyboardInterrupt):
        write_during(world, rows(7, k0=7, k2=7), die_after_another_write)
    world.environment.advance_ms(3_600_000)
    world.table.upsert(rows(6, k4=6))
    world.table.clean(dry_run=False)
    assert not world.table.timeline().pending_writes()
    assert world.scanned() == {"k0": 5, "k4": 6}
    assert world.table.validate().ok


# Readers


@pytest.fixture
def overlapping() -> World:
    """A wrote k0 at 7 and began first; B wrote k0 at 5 and completed first; a compaction was planned in between."""
    world = World("mor", {**OPTIONS, "hoodie.table.cdc.enabled": True})
    world.table.upsert(rows(1, k0=1, k2=1))
    write_during(world, rows(7, k0=7, k4=7), lambda: (world.table.upsert(rows(5, k0=5, k2=5)), plan_compaction(world)))
    return world


@pytest.mark.parametrize("compacted", [True, False])
def test_changes_are_in_completion_order(overlapping: World, compacted: bool) -> None:
    if compacted:
        overlapping.table.compact()
    held: dict[str, Any] = {}
    for change in overlapping.table.changes("earliest", typed=True).to_arrow().to_pylist():
        image = change["after"] or change["before"]
        assert held.get(image["id"]) == change["before"], change
        held[image["id"]] = change["after"]
    assert {key: row["value"] for key, row in held.items()} == {"k0": 7, "k2": 5, "k4": 7} == overlapping.scanned()


@pytest.mark.parametrize("compacted", [True, False])
def test_incremental_reader_by_completion_time_misses_nothing(overlapping: World, compacted: bool) -> None:
    if compacted:
        overlapping.table.compact()
    held: dict[str, tuple[int, int]] = {}
    completed = sorted(str(i.completion_time) for i in overlapping.table.timeline().completed(Action.DELTACOMMIT))
    for time in completed:
        found = overlapping.table.incremental(time, time, columns=["id", "ts", "value"]).to_arrow()
        for row in found.to_pylist():
            held[row["id"]] = max(held.get(row["id"], (0, 0)), (row["ts"], row["value"]))
    assert {key: value for key, (_, value) in held.items()} == overlapping.scanned()


def test_a_read_optimized_query_gives_what_was_compacted(overlapping: World) -> None:
    def optimized() -> dict[str, int]:
        found = overlapping.table.read_optimized(["id", "value"]).to_arrow()
        return dict(zip(found["id"].to_pylist(), found["value"].to_pylist(), strict=True))

    assert optimized() == {}
    overlapping.table.compact(next(i.request_time for i in overlapping.table.timeline().pending(Action.COMPACTION)))
    assert optimized() == {"k0": 5, "k2": 5}
    assert overlapping.scanned() == {"k0": 7, "k2": 5, "k4": 7}


# What still is a conflict


def test_partition_deleted_during_the_write(world: World) -> None:
    world.table.upsert(rows(1, k0=1, k2=1))
    done = write_during(world, rows(2, k0=2), lambda: world.table.delete_partitions("a"))
    assert done.conflict_retries == 1
    assert world.scanned() == {"k0": 2}
    world.table.upsert(rows(3, k4=3))
    assert world.scanned() == {"k0": 2, "k4": 3}
    assert {name.split("_")[0] for name in data_files(world)} == {f".{FIRST}", f".{SECOND}"}


@pytest.mark.parametrize("modes", [("SINGLE_WRITER", NON_BLOCKING), (NON_BLOCKING, "SINGLE_WRITER")])
def test_a_writer_of_another_mode_that_makes_a_group_for_the_bucket(world: World, modes: tuple[str, str]) -> None:
    first, second = modes
    other = Table(world.uri, options={**world.options, MODE: second}, environment=world.environment)
    done = write_during(world, rows(2, k0=2), lambda: other.upsert(rows(1, k0=1, k2=1)), **{MODE: first})
    assert done.conflict_retries == 1
    assert world.scanned() == {"k0": 2, "k2": 1}
    assert len({name.lstrip(".").split("_")[0] for name in data_files(world)}) == 1


def test_write_concurrent_with_a_restore_is_retried(world: World) -> None:
    first = world.table.upsert(rows(1, k0=1)).instant
    world.table.upsert(rows(2, k0=2))
    assert first is not None
    done = write_during(world, rows(3, k2=3), lambda: world.table.restore(first))
    assert done.conflict_retries == 1
    assert world.scanned() == {"k0": 1, "k2": 3}


# What is refused


@pytest.mark.parametrize(
    ("operation", "options", "error", "message"),
    [
        ("upsert", {"hoodie.index.type": "SIMPLE"}, InvalidRequest, "requires hoodie.index.type=BUCKET, not SIMPLE"),
        ("insert", {"hoodie.index.type": "BLOOM"}, InvalidRequest, "requires hoodie.index.type=BUCKET, not BLOOM"),
        ("insert_overwrite", {}, InvalidRequest, "insert_overwrite is incompatible with"),
        ("insert_overwrite_table", {}, InvalidRequest, "insert_overwrite_table is incompatible with"),
        ("upsert", {"pyhudi.partial.update": True}, Unsupported, "partial updates are incompatible with"),
        ("upsert", {"hoodie.clean.failed.writes.policy": "EAGER"}, InvalidRequest, "LAZY, not EAGER"),
        ("upsert", {"hoodie.clean.failed.writes.policy": "NEVER"}, InvalidRequest, "LAZY, not NEVER"),
    ],
)
def test_options_that_do_not_go_together(
    world: World, operation: str, options: dict[str, object], error: type[Exception], message: str
) -> None:
    before = {info.path for info in open_storage(world.uri).walk("")}
    with pytest.raises(error, match=message):
        getattr(world.table, operation)(rows(1, k0=1), options=options)
    assert {info.path for info in open_storage(world.uri).walk("")} == before


@pytest.mark.parametrize(
    ("kind", "made_with", "error", "message"),
    [
        ("cow", {}, InvalidRequest, "is copy-on-write: it has no log files"),
        ("mor", {"hoodie.write.record.merge.mode": "COMMIT_TIME_ORDERING"}, InvalidRequest, "merge mode EVENT_TIME_ORDERING"),
        ("mor", {"hoodie.metadata.enable": True, "hoodie.metadata.record.index.enable": True}, Unsupported, "record_index"),
    ],
)
def test_tables_that_are_refused(kind: str, made_with: dict[str, object], error: type[Exception], message: str) -> None:
    world = World(kind, {**OPTIONS, **made_with, MODE: "SINGLE_WRITER"})
    world.upsert({"k0": 0})
    with pytest.raises(error, match=message):
        world.table.upsert(rows(1, k0=1).drop_columns("_hoodie_is_deleted"), options={MODE: NON_BLOCKING})
    assert world.scanned() == {"k0": 0}
    assert len(world.table.timeline().instants) == 1


def test_clustering_keeps_buckets_and_later_writes_succeed(world: World) -> None:
    world.table.upsert(rows(1, **{f"k{number}": number for number in range(6)}))
    planned = world.table.cluster()
    assert planned.rows == 6 and planned.file_groups_read == planned.file_groups_written
    world.table.upsert(rows(2, k0=7, k9=9))
    assert world.scanned() == {"k0": 7, "k1": 1, "k2": 2, "k3": 3, "k4": 4, "k5": 5, "k9": 9}
    assert world.table.validate().ok


def test_log_of_another_bucket_count_is_rejected(world: World) -> None:
    world.table.upsert(rows(1, **{f"k{number}": number for number in range(0, 20, 2)}))
    with pytest.raises(TableState, match="use the bucket count"):
        world.table.upsert(rows(2, k0=2), options={"hoodie.bucket.index.num.buckets": 3})


@pytest.mark.parametrize("compacts", [False, True])
def test_concurrent_partial_updates_conflict(tmp_path: Path, compacts: bool) -> None:
    """What the older one of two leaves in the record hangs on a compaction between them, so no order of the two is as good as
    the other; under this mode they are refused.
    """
    options = {"hoodie.compact.inline": False, "hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 1}
    table = Table.create(tmp_path / "t", record_key="id", ordering="ts", table_type="mor", options=options)
    table.upsert(pa.table({"id": ["a"], "ts": [5], "x": [1], "y": [1]}))
    table.upsert(pa.table({"id": ["a"], "ts": [7], "x": [2]}), partial=True)
    if compacts:
        table.compact()
    table.upsert(pa.table({"id": ["a"], "ts": [6], "y": [3]}), partial=True)
    assert table.scan(["ts", "x", "y"]).to_arrow().to_pylist() == [{"ts": 7, "x": 2, "y": 1 if compacts else 3}]


def test_rows_that_are_based_on_a_scan_are_refused(tmp_path: Path) -> None:
    """No write is a conflict, so nothing would report the changes since the scan."""
    table = Table.create(tmp_path / "t", record_key="id", ordering="ts", table_type="mor", options=OPTIONS)
    table.upsert({"id": ["a"], "ts": [1]})
    with pytest.raises(Unsupported, match="based on a scan"):
        table.upsert({"id": ["a"], "ts": [2]}, based_on=table.scan())
    assert table.scan().to_arrow()["ts"].to_pylist() == [1]
    table.delete(where="ts = 1")
    assert table.scan().count() == 0


def test_a_record_index_over_file_groups_of_one_id_in_several_partitions(tmp_path: Path) -> None:
    """The keys of a bucket are those of each partition, where an index is built over them and where partitions go."""
    table = Table.create(
        tmp_path / "t", record_key="id", partition_by="p", ordering="ts", table_type="mor", options={**OPTIONS, METADATA: True}
    )
    rows = [{"id": f"{part}{number}", "p": part, "ts": 1} for part in "abc" for number in range(3)]
    table.upsert(pa.Table.from_pylist(rows))
    table.index.create("record_index")
    table.index.create("secondary_index", "ts", name="by_ts")
    assert {row["id"] for row in rows} == set(table.lookup({"id": [row["id"] for row in rows]}).to_arrow()["id"].to_pylist())
    assert table.scan(filter="ts = 1").count() == 9
    report = table.validate(keys=True)
    assert report.ok, report
    alone = Table(tmp_path / "t", options={**OPTIONS, METADATA: True, MODE: "SINGLE_WRITER"})
    alone.delete_partitions(["a", "b"])
    report = alone.validate(keys=True)
    assert report.ok, report
    assert sorted(alone.scan().to_arrow()["id"].to_pylist()) == ["c0", "c1", "c2"]
    alone.upsert(pa.Table.from_pylist(rows))
    assert alone.scan().count() == 9
    report = alone.validate(keys=True)
    assert report.ok, report
