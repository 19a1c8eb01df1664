"""Compaction: each executes the other's plans, and the same logs give the same rows and statistics."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Callable
from decimal import Decimal
from functools import cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pyhudi import Table
from pyhudi.format.actions.commit_metadata import WriteStat
from pyhudi.format.actions.compaction_plan import CompactionOperation, CompactionPlan
from pyhudi.format.instants import Action, Instant, State
from pyhudi.operations.read.query import read_spec
from pyhudi.table.pending_plans import load_compaction_plan
from pyhudi.table.snapshot import load_snapshot, read_commit
from pyhudi.tasks.read_slice import merge_columns, merge_slice
from tests.interop.oracle import ApacheHudi, HudiFailure
from tests.interop.pair import Pair, make
from tests.support.hudi_dead_writes import SERVICES_ARE_DEAD
from tests.support.hudi_log_compaction import MANUAL, commit_of, real_log_compaction, real_options
from tests.support.rows import assert_same_rows

NOW = datetime.datetime(2026, 11, 21, 10, 20, 30, 123456, tzinfo=datetime.UTC)
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("part", pa.string()),
        ("number", pa.float64()),
        ("price", pa.decimal128(12, 3)),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us", "UTC")),
        ("words", pa.list_(pa.string())),
        ("place", pa.struct([("lat", pa.float64()), ("name", pa.string())])),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)
# A merge mode with a log format.  The defaults are those of the tests that take no parameters, which leaves to the others each
# mode and each format once.
DEFAULT = ("EVENT_TIME_ORDERING", "avro")
COMMIT_TIME, PARQUET = ("COMMIT_TIME_ORDERING", "avro"), ("EVENT_TIME_ORDERING", "parquet")
MODES = [pytest.param(*DEFAULT, marks=pytest.mark.wide), COMMIT_TIME, PARQUET]


def one_of(mode: tuple[str, str]) -> list[object]:
    """Every mode, of which an ordinary run takes one: all of them meet in the module."""
    return [mode if mode == each else pytest.param(*each, marks=pytest.mark.wide) for each in (DEFAULT, COMMIT_TIME, PARQUET)]


# The file name has the form of its writer.
OWN = ("_hoodie_file_name",)


def rows(numbers: range, ts: int, deleted: frozenset[int] = frozenset()) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "id": f"k{number:03}",
                "ts": ts,
                "part": "ab"[number % 2],
                "number": number / 3 + ts,
                "price": Decimal(number * 7 + ts) / 1000 if number % 5 else None,
                "day": datetime.date(2020, 1, 1) + datetime.timedelta(days=number),
                "moment": NOW + datetime.timedelta(seconds=ts) if number % 4 else None,
                "words": ["a", f"w{ts}"] if number % 3 else [],
                "place": {"lat": number / 4, "name": f"ü{ts}"} if number % 7 else None,
                "_hoodie_is_deleted": number in deleted,
            }
            for number in numbers
        ],
        SCHEMA,
    )


def keys(numbers: range) -> pa.Table:
    return rows(numbers, 0).select(["id", "part"])


def our_table(path: Path, mode: str, log_format: str) -> Table:
    return Table.create(
        str(path),
        name="t",
        record_key="id",
        partition_by="part",
        ordering="ts",
        table_type="mor",
        options={"hoodie.write.record.merge.mode": mode, "hoodie.logfile.data.block.format": log_format, **MANUAL},
    )


Fill = Callable[[Path, str, str], Table]


@pytest.fixture(scope="module")
def filled_by_us(tmp_path_factory: pytest.TempPathFactory) -> Fill:
    """Makes a table with base files and logs of ours; each mode is written once and then copied."""
    return _copies_of(_written_by_us, tmp_path_factory)


@pytest.fixture(scope="module")
def filled_by_hudi(apache_hudi: ApacheHudi, tmp_path_factory: pytest.TempPathFactory) -> Fill:
    """As `filled_by_us`, of Apache Hudi."""
    return _copies_of(partial(_written_by_hudi, apache_hudi), tmp_path_factory)


def _copies_of(write: Callable[[Path, str, str], object], factory: pytest.TempPathFactory) -> Fill:
    @cache
    def first(mode: str, log_format: str) -> Path:
        path = factory.mktemp("filled") / "t"
        write(path, mode, log_format)
        return path

    def fill(path: Path, mode: str, log_format: str) -> Table:
        shutil.copytree(first(mode, log_format), path)
        return Table(str(path), options=MANUAL)

    return fill


def _written_by_us(path: Path, mode: str, log_format: str) -> None:
    table = our_table(path, mode, log_format)
    table.insert(rows(range(0, 30), 10))
    table.upsert(rows(range(0, 20, 2), 12))
    table.upsert(rows(range(0, 30, 3), 11, frozenset({3, 6, 27})))
    table.delete(keys(range(8, 12)))
    table.upsert(rows(range(9, 14), 20))


def _written_by_hudi(hudi: ApacheHudi, path: Path, mode: str, log_format: str) -> None:
    def write(data: pa.Table, operation: str) -> None:
        hudi.write(data, path, **real_options(mode, log_format, **{"hoodie.datasource.write.operation": operation}))

    write(rows(range(0, 30), 10), "insert")
    write(rows(range(0, 20, 2), 12), "upsert")
    write(rows(range(0, 30, 3), 11, frozenset({3, 6, 27})), "upsert")
    # No row may follow a key that Apache Hudi deleted: by event time it cannot read that itself.
    write(rows(range(8, 12), 15), "delete")


def twin(path: Path) -> Path:
    copy = path.with_name(f"{path.name}-twin")
    shutil.copytree(path, copy)
    return copy


def ours(path: Path) -> pa.Table:
    return Table(str(path)).scan("*").to_arrow()


def theirs(hudi: ApacheHudi, path: Path) -> pa.Table:
    options: dict[str, Any] = {"hoodie.metadata.enable": False}
    return hudi.read(path, **options)


def plan_of(path: Path, instant: str) -> CompactionPlan:
    store = Table(str(path)).context.timeline
    return load_compaction_plan(store, Instant(instant, Action.COMPACTION, State.REQUESTED))


def by_group(plan: CompactionPlan) -> list[CompactionOperation]:
    return sorted(plan.operations or (), key=lambda operation: str(operation.file_id))


def table_mode(path: Path) -> str:
    return Table(str(path)).config.property("hoodie.record.merge.mode")


def figures(stat: WriteStat) -> dict[str, object]:
    return {
        name: getattr(stat, name)
        for name in (
            "file_id",
            "partition_path",
            "prev_commit",
            "prev_base_file",
            "num_writes",
            "num_inserts",
            "num_update_writes",
            "total_log_records",
            "total_log_files_compacted",
            "total_log_size_compacted",
            "total_log_blocks",
            "total_updated_records_compacted",
        )
    }


def same_outcome(hudi: ApacheHudi, mine: Path, real: Path, instant: str, before: pa.Table) -> None:
    for path in (mine, real):
        assert_same_rows(ours(path), before, ignoring=OWN)
        assert_same_rows(theirs(hudi, path), before, ignoring=OWN)
    us, them = commit_of(mine, instant), commit_of(real, instant)
    assert (us.operation_type, us.compacted) == (them.operation_type, them.compacted) == ("COMPACT", True)
    assert us.extra_metadata["schema"] == them.extra_metadata["schema"]
    by_file = [{stat.file_id: figures(stat) for stat in commit.write_stats} for commit in (us, them)]
    assert by_file[0].keys() == by_file[1].keys()
    unlike = {
        (name, by_file[0][file_id][name], by_file[1][file_id][name])
        for file_id in by_file[0]
        for name in by_file[0][file_id]
        if by_file[0][file_id][name] != by_file[1][file_id][name]
    }
    if table_mode(mine) == "COMMIT_TIME_ORDERING":
        # By commit time Apache Hudi leaves deletes out of this count, by event time it has them in.
        unlike = {difference for difference in unlike if difference[0] != "total_log_records"}
    assert not unlike, unlike
    for path in (mine, real):
        entries = {(e.action, e.state) for e in hudi.timeline(path) if e.request_time == instant}
        assert entries == {("commit", "COMPLETED")}


def merged_by_position(path: Path) -> list[bool]:
    """For each file group with logs, whether all of them record the positions of their rows in the base file."""
    table = Table(str(path))
    snapshot = load_snapshot(table.context)
    reader = read_spec(snapshot, ["*"])
    slices = [found for part in snapshot.slices(snapshot.listing.partitions()).values() for found in part if found.logs]
    scans = [merge_slice(table.context.storage, reader, found, merge_columns(reader))[0] for found in slices]
    return [scan.records.positions is not None for scan in scans]


@pytest.mark.parametrize(("mode", "log_format"), MODES)
def test_logs_of_each_library_are_merged_by_position_in_both(
    hudi: ApacheHudi, filled_by_us: Fill, filled_by_hudi: Fill, tmp_path: Path, mode: str, log_format: str
) -> None:
    by_key: dict[str, Any] = {"hoodie.merge.use.record.positions": False}
    mine, its = tmp_path / "mine", tmp_path / "its"
    filled_by_us(mine, mode, log_format)
    filled_by_hudi(its, mode, log_format)
    for path in (mine, its):
        assert merged_by_position(path) == [True, True]
        expected = Table(str(path)).scan("*", options=by_key).to_arrow()
        assert_same_rows(ours(path), expected)
        assert_same_rows(theirs(hudi, path), expected)
        assert_same_rows(hudi.read(path, **{"hoodie.metadata.enable": False, **by_key}), expected)


@pytest.mark.parametrize(("mode", "log_format"), one_of(COMMIT_TIME))
def test_compaction_plan_of_pyhudi_gives_equal_results_in_both(
    hudi: ApacheHudi, filled_by_us: Fill, tmp_path: Path, mode: str, log_format: str
) -> None:
    path = tmp_path / "t"
    table = filled_by_us(path, mode, log_format)
    before = ours(path)
    instant = table.schedule_compaction().planned
    assert instant is not None
    assert_same_rows(theirs(hudi, path), before)
    copy = twin(path)
    hudi.compact(copy, "run", instant)
    table.compact(instant)
    same_outcome(hudi, path, copy, instant, before)
    assert plan_of(path, instant) == plan_of(copy, instant)


@pytest.mark.parametrize(("mode", "log_format"), one_of(PARQUET))
def test_compaction_plan_of_hudi_gives_equal_results_in_both(
    hudi: ApacheHudi, filled_by_hudi: Fill, tmp_path: Path, mode: str, log_format: str
) -> None:
    path = tmp_path / "t"
    table = filled_by_hudi(path, mode, log_format)
    before = ours(path)
    copy_for_planning = twin(path)
    hudi.compact(path, "schedule")
    pending = table.timeline().pending(Action.COMPACTION)
    assert len(pending) == 1
    instant = pending[0].request_time
    # Both plan the same from the same state, up to the order of operations of one size.
    planned = Table(str(copy_for_planning), options=MANUAL).schedule_compaction().planned
    assert planned is not None
    mine, real = plan_of(copy_for_planning, planned), plan_of(path, instant)
    assert by_group(mine) == by_group(real)
    assert (mine.version, mine.strategy, mine.preserve_hoodie_metadata, mine.missing_schedule_partitions) == (
        real.version,
        real.strategy,
        real.preserve_hoodie_metadata,
        real.missing_schedule_partitions,
    )
    copy = path.with_name("t-copy")
    shutil.copytree(path, copy)
    hudi.compact(copy, "run", instant)
    table.compact(instant)
    same_outcome(hudi, path, copy, instant, before)


def test_both_write_before_and_after_compactions_of_each(hudi: ApacheHudi, filled_by_us: Fill, tmp_path: Path) -> None:
    mode, log_format = DEFAULT
    path = tmp_path / "t"
    table = filled_by_us(path, mode, log_format)
    first = table.schedule_compaction().planned
    assert first is not None
    hudi.write(rows(range(5, 15), 30), path, **real_options(mode, log_format, **{"hoodie.datasource.write.operation": "upsert"}))
    before = theirs(hudi, path)
    assert_same_rows(ours(path), before)
    table.compact(first)
    assert_same_rows(theirs(hudi, path), before, ignoring=OWN)
    assert_same_rows(ours(path), before, ignoring=OWN)
    table.upsert(rows(range(12, 18), 40))
    hudi.compact(path, "schedule")
    second = table.timeline().pending(Action.COMPACTION)[0].request_time
    table.delete(keys(range(16, 20)))
    before = ours(path)
    assert_same_rows(theirs(hudi, path), before)
    hudi.compact(path, "run", second)
    assert_same_rows(theirs(hudi, path), before, ignoring=OWN)
    assert_same_rows(ours(path), before, ignoring=OWN)
    table.compact()
    assert_same_rows(theirs(hudi, path), before, ignoring=OWN)
    assert_same_rows(ours(path), before, ignoring=OWN)


@pytest.mark.parametrize(("mode", "log_format"), one_of(COMMIT_TIME))
def test_hudi_reads_log_compactions_of_pyhudi(
    hudi: ApacheHudi, filled_by_us: Fill, tmp_path: Path, mode: str, log_format: str
) -> None:
    path = tmp_path / "t"
    table = filled_by_us(path, mode, log_format)
    before = ours(path)
    done = table.log_compact()
    assert done.instant is not None
    assert commit_of(path, done.instant).operation_type == "LOG_COMPACT"
    assert_same_rows(ours(path), before)
    assert_same_rows(theirs(hudi, path), before)
    table.upsert(rows(range(2, 9), 50))
    before = ours(path)
    assert_same_rows(theirs(hudi, path), before)
    copy = twin(path)
    instant = Table(str(copy), options=MANUAL).schedule_compaction().planned
    assert instant is not None
    hudi.compact(copy, "run", instant)
    assert_same_rows(theirs(hudi, copy), before, ignoring=OWN)
    assert_same_rows(ours(copy), before, ignoring=OWN)


def test_failed_compaction_of_hudi_is_rolled_back_and_its_plan_executed(
    hudi: ApacheHudi, filled_by_hudi: Fill, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    table = filled_by_hudi(path, *DEFAULT)
    before = ours(path)
    hudi.compact(path, "schedule")
    instant = table.timeline().pending(Action.COMPACTION)[0].request_time
    done = path.with_name("t-done")
    shutil.copytree(path, done)
    hudi.compact(done, "run", instant)
    # What it wrote before it died: markers, one base file, no completed instant.
    table.context.timeline.start(Instant(instant, Action.COMPACTION, State.REQUESTED))
    stat = commit_of(done, instant).write_stats[0]
    assert stat.path is not None
    shutil.copy(done / stat.path, path / stat.path)
    marker = path / ".hoodie" / ".temp" / instant / f"{stat.path}.marker.MERGE"
    marker.parent.mkdir(parents=True)
    marker.touch()
    assert_same_rows(ours(path), before)
    assert_same_rows(theirs(hudi, path), before)
    table.compact(instant, options=SERVICES_ARE_DEAD)
    assert not (path / stat.path).exists()
    assert_same_rows(ours(path), before, ignoring=OWN)
    assert_same_rows(theirs(hudi, path), before, ignoring=OWN)
    assert ("rollback", "COMPLETED") in {(e.action, e.state) for e in hudi.timeline(path)}


@pytest.mark.parametrize(("mode", "log_format"), [DEFAULT, pytest.param(*COMMIT_TIME, marks=pytest.mark.wide)])
def test_pyhudi_reads_and_compacts_log_compactions_of_hudi(
    hudi: ApacheHudi, filled_by_hudi: Fill, tmp_path: Path, mode: str, log_format: str
) -> None:
    path = tmp_path / "t"
    table = filled_by_hudi(path, mode, log_format)
    more = {"hoodie.log.compaction.inline": True, "hoodie.log.compaction.enable": True}
    options = real_options(mode, log_format, **{"hoodie.datasource.write.operation": "upsert", **more})
    for ts in (40, 41, 42):
        hudi.write(rows(range(12, 20), ts), path, **options)
    operations = [read_commit(table.context.timeline, i).operation_type for i in table.timeline().completed(Action.DELTACOMMIT)]
    assert "LOG_COMPACT" in operations
    before = theirs(hudi, path)
    assert_same_rows(ours(path), before)
    table.log_compact()
    assert_same_rows(ours(path), before)
    assert_same_rows(theirs(hudi, path), before)
    table.compact()
    assert_same_rows(ours(path), before, ignoring=OWN)
    assert_same_rows(theirs(hudi, path), before, ignoring=OWN)


@pytest.mark.parametrize(
    ("planner", "mode", "log_format"),
    [
        ("ours", *PARQUET),
        ("theirs", *COMMIT_TIME),
        *(
            pytest.param(*other, marks=pytest.mark.wide)
            for other in (("ours", *COMMIT_TIME), ("theirs", *PARQUET), ("ours", *DEFAULT), ("theirs", *DEFAULT))
        ),
    ],
)
def test_log_compaction_plans_of_each_library_are_executed_by_both(
    hudi: ApacheHudi, filled_by_us: Fill, filled_by_hudi: Fill, tmp_path: Path, planner: str, mode: str, log_format: str
) -> None:
    path = tmp_path / "t"
    table = (filled_by_us if planner == "ours" else filled_by_hudi)(path, mode, log_format)
    before = ours(path)
    if planner == "ours":
        instant = table.schedule_log_compaction().planned
        assert instant is not None
    else:
        instant = real_log_compaction(hudi, path, mode, log_format)
    # A pending plan hides nothing.
    assert_same_rows(theirs(hudi, path), before)
    assert_same_rows(ours(path), before)
    copy = twin(path)
    assert table.log_compact(instant).instant == instant
    real_log_compaction(hudi, copy, mode, log_format, instant)
    # By commit time Apache Hudi's log compaction loses deletes whose ordering value is the smaller one: an older row is back.
    lost = ["k006"] if planner == "theirs" and mode == "COMMIT_TIME_ORDERING" else []
    for done, back in ((path, []), (copy, lost)):
        assert commit_of(done, instant).operation_type == "LOG_COMPACT"
        found = ours(done)
        assert_same_rows(theirs(hudi, done), found)
        surplus = pc.is_in(found.column("id"), value_set=pa.array(back, pa.string()))
        assert found.filter(surplus).column("id").to_pylist() == back
        assert_same_rows(found.filter(pc.invert(surplus)), before)
    by_file = [{stat.file_id: stat.num_writes for stat in commit_of(done, instant).write_stats} for done in (path, copy)]
    assert by_file[0].keys() == by_file[1].keys()


@pytest.mark.parametrize("dead", ["ours", "theirs"])
def test_failed_log_compaction_is_rolled_back_by_the_other_library(
    hudi: ApacheHudi, filled_by_us: Fill, tmp_path: Path, dead: str
) -> None:
    """Apache Hudi rolls the attempt back and reports an error; PyHudi continues with its own log compaction."""
    mode, log_format = DEFAULT
    path = tmp_path / "t"
    table = filled_by_us(path, mode, log_format)
    before = ours(path)
    instant = table.schedule_log_compaction().planned
    assert instant is not None
    done = twin(path)
    if dead == "ours":
        Table(str(done), options=MANUAL).log_compact(instant)
    else:
        real_log_compaction(hudi, done, mode, log_format, instant)
    # What was written before the process died: a marker and a log file of each group, no completed instant.
    table.context.timeline.start(Instant(instant, Action.LOGCOMPACTION, State.REQUESTED))
    left = [str(stat.path) for stat in commit_of(done, instant).write_stats]
    for name in left:
        shutil.copy(done / name, path / name)
        marker = path / ".hoodie" / ".temp" / instant / f"{name}.marker.CREATE"
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()
    assert left
    assert_same_rows(ours(path), before)
    assert_same_rows(theirs(hudi, path), before)
    if dead == "ours":
        with pytest.raises(HudiFailure, match="nflight"):
            real_log_compaction(hudi, path, mode, log_format, instant)
    else:
        assert table.log_compact(options=SERVICES_ARE_DEAD).instant not in (None, instant)
    assert not any((path / name).exists() for name in left)
    assert instant not in [i.request_time for i in table.timeline().instants]
    assert ("rollback", "COMPLETED") in {(e.action, e.state) for e in hudi.timeline(path)}
    hudi.write(rows(range(5, 15), 60), path, **real_options(mode, log_format, **{"hoodie.datasource.write.operation": "upsert"}))
    table.log_compact()
    found = ours(path)
    assert_same_rows(theirs(hudi, path), found)
    table.compact()
    assert_same_rows(theirs(hudi, path), found, ignoring=OWN)


def test_small_files_of_few_inserts(hudi: ApacheHudi, tmp_path: Path) -> None:
    """Apache Hudi reads, updates by its own index, inserts into and compacts a table whose few inserts went to small files, and
    whose writes have several log files each.
    """
    more = {
        "hoodie.logfile.data.block.max.size": 1000,
        "hoodie.logfile.max.size": 1,
        "pyhudi.small.file.growth": 0.5,
        "pyhudi.small.file.always.rewritten": 0,
        "hoodie.compact.inline": False,
        "hoodie.compact.inline.max.delta.commits": 2,
    }
    pair = Pair(hudi, tmp_path / "t", "mor", more)
    pair.create()
    pair.ours("insert", make(range(300), 0), check=False)
    for turn in range(4):
        pair.ours("upsert", make([turn, *range(300 + 12 * turn, 312 + 12 * turn)], turn + 1), check=False)
    files = load_snapshot(pair.table.context).slices(None)
    assert min(map(len, files.values())) >= 3, "of each partition a large file and small ones"
    pair.ours("upsert", make(range(0, 60, 3), 8), check=False)
    assert list(pair.path.glob("*/.*.log.2_*"))
    # Keys of large and of small files, and a new one.
    pair.theirs("upsert", make([5, 301, 302, 303, 340, 400], 9), check=False, **{"hoodie.compact.inline": True})
    assert pair.table.timeline().completed(Action.COMMIT), "they compacted"
    pair.ours("upsert", make([301, 340, 341, 342, 343, 401], 10), check=False)
    pair.check(0)
    assert pair.table.validate().ok
