"""Table services: both delete, archive and restore the same, and each continues where the other stopped."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import InvalidRequest, Table, TableState
from pyhudi.format.instants import Action
from pyhudi.storage.environment import ReplayEnvironment, SystemEnvironment
from pyhudi.table.pending_plans import load_planned_files
from pyhudi.table.timeline.archived_timeline import Bounds
from tests.interop.oracle import ApacheHudi, HudiFailure
from tests.support.hudi_shared_table import BLOOMS, SharedTable, keyed_rows
from tests.support.needs import WIDE

KINDS = ("cow", "mor")
MANUAL = {"hoodie.clean.automatic": False, "hoodie.archive.automatic": False, "hoodie.parquet.small.file.limit": 0}
CLEAN = {"hoodie.clean.commits.retained": 2}
KEEP = {**CLEAN, "hoodie.keep.min.commits": 4, "hoodie.keep.max.commits": 5}
Rows = dict[str, int]


def rows(numbers: range, value: int) -> pa.Table:
    return pa.table(
        {
            "id": [f"k{number}" for number in numbers],
            "ts": pa.array([value] * len(numbers), pa.int64()),
            "value": pa.array([value * 100 + number for number in numbers], pa.int64()),
            "part": ["ab"[number % 2] for number in numbers],
        }
    )


def ours(path: Path, kind: str, writes: int, **options: object) -> Table:
    """A table of ours with that many upserts."""
    table = Table.create(
        str(path), name="t", record_key="id", partition_by="part", ordering="ts", table_type=kind, options={**MANUAL, **options}
    )
    for number in range(writes):
        table.upsert(rows(range(number % 3, 8), number))
    return table


def real_options(kind: str, **more: object) -> dict[str, Any]:
    return {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.table.type": {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}[kind],
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.partitionpath.field": "part",
        "hoodie.metadata.enable": False,
        "hoodie.compact.inline": False,
        **more,
    }


def seen(table: pa.Table) -> Rows:
    return dict(zip(table["id"].to_pylist(), table["value"].to_pylist(), strict=True))


def our_rows(path: Path, as_of: str | None = None) -> Rows:
    return seen(Table(str(path)).scan(as_of=as_of).to_arrow())


def real_rows(hudi: ApacheHudi, path: Path, **options: Any) -> Rows:
    return seen(hudi.read(path, **{"hoodie.metadata.enable": False, **options}))


def data_files(path: Path) -> set[str]:
    return (
        {str(file.relative_to(path)) for part in "ab" for file in (path / part).glob("*") if "hoodie" not in file.name}
        | {str(file.relative_to(path)) for part in "ab" for file in (path / part).glob(".k*.log*")}
        | {
            str(file.relative_to(path))
            for part in "ab"
            for file in (path / part).glob(".*")
            if ".log." in file.name and not file.name.endswith(".crc")
        }
    )


def twin(hudi: ApacheHudi, path: Path, name: str) -> Path:
    """A copy of the table for Apache Hudi, known to its SQL."""
    copy = path.with_name(f"{path.name}-{name}")
    shutil.copytree(path, copy)
    hudi.register(copy, name)
    return copy


CLEANINGS: list[tuple[dict[str, object], dict[str, object]]] = [
    ({"hoodie.clean.commits.retained": 2}, {"clean_policy": "KEEP_LATEST_COMMITS", "retain_commits": 2}),
    ({"hoodie.clean.fileversions.retained": 2}, {"clean_policy": "KEEP_LATEST_FILE_VERSIONS", "file_versions_retained": 2}),
]


# Each pair of values; in the wide run all of the product.
CLEANED = [("cow", 0, "savepoint"), ("cow", 1, "partition"), ("mor", 0, "partition"), ("mor", 1, "savepoint")]


@pytest.mark.parametrize(
    ("kind", "policy", "what"),
    [
        case if case in CLEANED else pytest.param(*case, marks=pytest.mark.wide)
        for case in itertools.product(KINDS, range(len(CLEANINGS)), ("savepoint", "partition"))
    ],
)
def test_both_clean_the_same_files(hudi: ApacheHudi, tmp_path: Path, kind: str, policy: int, what: str) -> None:
    """A savepoint and a deleted partition apart: Hudi 1.0.2 deletes the folder of an emptied partition with all that is in
    it, also files that a savepoint keeps; ours keeps them.
    """
    mine, theirs = CLEANINGS[policy]
    path = tmp_path / "t"
    table = ours(path, kind, 4)
    if what == "savepoint":
        table.savepoint(comments="keep")
    table.upsert(rows(range(8), 50))
    if what == "partition":
        table.delete_partitions("b")
    for number in range(3):
        table.upsert(rows(range(0, 8, 2), 60 + number))
    copy = twin(hudi, path, f"clean_{kind}_{policy}_{what}")
    before = data_files(path)
    assert before == data_files(copy)
    hudi.call("run_clean", table=f"clean_{kind}_{policy}_{what}", options="hoodie.metadata.enable=false", **theirs)
    result = table.clean(dry_run=False, options=mine)
    assert data_files(path) == data_files(copy)
    if kind == "cow" or what == "partition":
        assert result.file_count > 0
    assert (path / "b").exists() == (copy / "b").exists() == (what == "savepoint")
    assert result.file_count == len(before) - len(data_files(path))
    assert real_rows(hudi, path) == our_rows(path) == our_rows(copy)

    if kind == "mor" and not WIDE:
        return
    # Each goes on after the other's clean.
    again = Table(str(copy), options={**MANUAL, **mine})
    for number in range(3):
        again.upsert(rows(range(0, 8, 2), 70 + number))
        table.upsert(rows(range(0, 8, 2), 70 + number))
    again.clean(dry_run=False)
    hudi.register(path, f"after_{kind}_{policy}_{what}")
    hudi.call("run_clean", table=f"after_{kind}_{policy}_{what}", options="hoodie.metadata.enable=false", **theirs)
    assert len(data_files(path)) == len(data_files(copy))
    assert real_rows(hudi, path) == our_rows(path) == real_rows(hudi, copy)


@pytest.mark.parametrize(("fixture", "version"), [("hudi", 8), ("newer_hudi", 9)])
def test_files_that_a_plan_reads_of_replaced_groups(
    request: pytest.FixtureRequest, tmp_path: Path, fixture: str, version: int
) -> None:
    """Apache Hudi (1.0.2, 1.1.1) deletes them in a clean by versions, and the plan can never run; ours keeps them."""
    hudi: ApacheHudi = request.getfixturevalue(fixture)
    path, name = tmp_path / "t", f"planned_{version}"
    kept = {"hoodie.metadata.enable": False, "hoodie.compact.inline": False, "hoodie.log.compaction.blocks.threshold": 2}
    table = ours(path, "mor", 3, **kept, **{"hoodie.write.table.version": version})
    assert table.schedule_log_compaction().planned
    read = load_planned_files(table.context.timeline, table.timeline().pending())
    assert read <= data_files(path)
    table.cluster()
    copy = twin(hudi, path, name)
    theirs = {"clean_policy": "KEEP_LATEST_FILE_VERSIONS", "file_versions_retained": 1}
    hudi.call("run_clean", table=name, options="hoodie.metadata.enable=false", **theirs)
    assert not read & data_files(copy)
    table.clean(dry_run=False, options={"hoodie.clean.fileversions.retained": 1})
    assert read <= data_files(path)
    assert table.validate().ok
    assert real_rows(hudi, path) == our_rows(path) == our_rows(copy)


@pytest.mark.parametrize("kind", [pytest.param("cow", marks=pytest.mark.wide), "mor"])
def test_both_archive_the_same_instants(hudi: ApacheHudi, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "t"
    # With a metadata table PyHudi waits for its compaction; Apache Hudi gets the option to disable it here.
    table = ours(path, kind, 9, **{"hoodie.metadata.enable": False})
    table.clean(dry_run=False, options=CLEAN)
    table.delete_partitions("b")
    for number in range(3):
        table.upsert(rows(range(0, 8, 2), 60 + number))
    table.clean(dry_run=False, options=CLEAN)
    name = f"archive_{kind}"
    copy = twin(hudi, path, name)
    hudi.call("archive_commits", table=name, min_commits=4, max_commits=5, retain_commits=2, enable_metadata=False)
    result = table.archive(options=KEEP)
    left = {(i.request_time, i.action) for i in table.timeline().instants}
    assert left == {(i.request_time, i.action) for i in Table(str(copy)).timeline().instants}
    assert result.instants

    history = {row.instant_time: row for row in table.context.timeline.history.rows(documents=True)}
    real = {row.instant_time: row for row in Table(str(copy)).context.timeline.history.rows(documents=True)}
    assert {t: (r.completion_time, r.action, r.plan, r.metadata) for t, r in history.items()} == {
        t: (r.completion_time, r.action, r.plan, r.metadata) for t, r in real.items()
    }
    archived = hudi.run(
        """
conf = jvm.org.apache.hudi.hadoop.fs.HadoopFSUtils.getStorageConf(spark._jsc.hadoopConfiguration())
client = jvm.org.apache.hudi.common.table.HoodieTableMetaClient.builder().setConf(conf).setBasePath(path).build()
result = [[i.requestedTime(), i.getAction(), i.getCompletionTime()] for i in client.getArchivedTimeline().getInstants()]
""",
        path=str(path),
    )
    assert {tuple(one) for one in archived} == {(t, r.action, r.completion_time) for t, r in history.items()}
    assert real_rows(hudi, path) == our_rows(path)


@pytest.mark.parametrize("kind", ["cow", pytest.param("mor", marks=pytest.mark.wide)])
def test_hudi_writes_after_services_of_pyhudi(hudi: ApacheHudi, tmp_path: Path, kind: str) -> None:
    """Both write in turn, with cleaning and archival after each commit."""
    path = tmp_path / "t"
    options = {
        **KEEP,
        "hoodie.timeline.compaction.batch.size": 3,
        "hoodie.clean.automatic": True,
        "hoodie.archive.automatic": True,
    }
    table = ours(path, kind, 8, **options)
    expected = our_rows(path)
    for turn in range(3):
        more = rows(range(turn, 9), 100 + turn * 10)
        hudi.write(more, path, **real_options(kind, **KEEP, **{"hoodie.timeline.compaction.batch.size": 3}))
        expected |= seen(more)
        assert our_rows(path) == expected
        for number in range(3):
            more = rows(range(turn, 10), 101 + turn * 10 + number)
            table.upsert(more)
            expected |= seen(more)
        assert real_rows(hudi, path) == our_rows(path) == expected
    timeline = table.timeline()
    assert timeline.start is not None
    archived = table.context.timeline.history.instants(Bounds(None, timeline.start))
    assert len([i for i in archived if i.action is not Action.CLEAN]) >= 10


@pytest.mark.parametrize("kind", [pytest.param("cow", marks=pytest.mark.wide), "mor"])
def test_savepoints_and_restores_of_each_other(hudi: ApacheHudi, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "t"
    table = ours(path, kind, 3)
    expected = our_rows(path)
    saved = table.savepoint(user="we", comments="ours").instant
    table.upsert(rows(range(8), 50))
    table.delete_partitions("a")
    name = f"restore_{kind}"
    copy = twin(hudi, path, name)

    hudi.call("rollback_to_savepoint", table=name, instant_time=saved)
    assert our_rows(copy) == real_rows(hudi, copy) == expected
    table.restore(saved)
    assert our_rows(path) == real_rows(hudi, path) == expected
    assert data_files(path) == data_files(copy)
    shown = hudi.call("show_savepoints", table=name)
    assert shown.num_rows == 1

    # Apache Hudi writes on after PyHudi's restore, creates a savepoint, and PyHudi restores it.
    hudi.write(rows(range(8), 70), path, **real_options(kind))
    newest = max(i.request_time for i in table.timeline().completed_writes())
    expected = our_rows(path)
    hudi.register(path, f"{name}_again")
    hudi.call("create_savepoint", table=f"{name}_again", commit_time=newest, user="they", comments="theirs")
    hudi.write(rows(range(4, 12), 80), path, **real_options(kind))
    assert our_rows(path) != expected
    table.restore(newest)
    assert our_rows(path) == real_rows(hudi, path) == expected
    # And writes on again.
    hudi.write(rows(range(12), 90), path, **real_options(kind))
    assert our_rows(path) == real_rows(hudi, path) == seen(rows(range(12), 90))


def test_both_clean_the_same_files_by_hours(hudi: ApacheHudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    hour_ms = 3_600_000
    clock = ReplayEnvironment(5, SystemEnvironment().now_ms() - 40 * hour_ms)
    Table.create(str(path), name="t", record_key="id", partition_by="part", ordering="ts", environment=clock, options=MANUAL)
    table = Table(str(path), environment=clock, options=MANUAL)
    for number, hours in enumerate((10, 5, 3, 12, 5)):
        table.upsert(rows(range(number % 2, 8), number))
        clock.advance_ms(hours * hour_ms)
    copy = twin(hudi, path, "clean_hours")
    theirs = {"clean_policy": "KEEP_LATEST_BY_HOURS", "hours_retained": 24}
    hudi.call("run_clean", table="clean_hours", options="hoodie.metadata.enable=false", **theirs)
    result = Table(str(path), options=MANUAL).clean(dry_run=False, options={"hoodie.clean.hours.retained": 24})
    assert result.file_count > 0
    assert data_files(copy) == data_files(path)
    assert real_rows(hudi, path) == our_rows(path) == our_rows(copy)


@pytest.mark.parametrize("kind", KINDS)
def test_both_time_travel_to_the_same_instants(hudi: ApacheHudi, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "t"
    table = ours(path, kind, 5)
    times = [i.request_time for i in table.timeline().completed_writes()]
    middle = times[2]
    dashed = f"{middle[:4]}-{middle[4:6]}-{middle[6:8]}"
    clocked = f"{dashed} {middle[8:10]}:{middle[10:12]}:{middle[12:14]}"
    forms = [middle, middle[:14], f"{clocked}.{middle[14:]}", clocked, dashed, "20200101000000000", "29990101000000"]
    # The meaning of a text does not depend on the table type; a time excludes later logs.
    for form in forms if kind == "cow" or WIDE else forms[:1]:
        theirs = real_rows(hudi, path, **{"as.of.instant": form})
        if not theirs:
            # Before the first commit Apache Hudi gives no rows, and we say so; 14 digits are before their second.
            assert form in (dashed, "20200101000000000", middle[:14])
            with pytest.raises(InvalidRequest, match=f"its first commit is {times[0]}"):
                our_rows(path, form)
            continue
        assert our_rows(path, form) == theirs, form
    for form in ("2026-11-21T05:45:07", "2026-11-21 05:45", "nonsense"):
        # The option has Hudi's forms; `as_of=` takes ISO text besides.
        with pytest.raises(InvalidRequest):
            Table(path, options={"as.of.instant": form}).scan()
        with pytest.raises(HudiFailure):
            real_rows(hudi, path, **{"as.of.instant": form})
    for number in range(3):
        table.upsert(rows(range(8), 50 + number))
        table.delete_partitions("b")
    table.clean(dry_run=False, options={"hoodie.clean.commits.retained": 2})
    with pytest.raises(TableState, match="kept what is needed"):
        our_rows(path, middle)
    with pytest.raises(HudiFailure, match="Cleaner cleaned up"):
        real_rows(hudi, path, **{"as.of.instant": middle})


def test_restore_through_services_of_apache_hudi(hudi: ApacheHudi, tmp_path: Path) -> None:
    """Back through a completed compaction, a completed clustering and a pending one; nothing of them is left."""
    path = tmp_path / "t"
    for number in range(2):
        hudi.write(rows(range(number, 8), number), path, **real_options("mor"))
    table = Table(str(path), options=MANUAL)
    target = max(i.request_time for i in table.timeline().completed_writes())
    expected = our_rows(path)
    files = data_files(path)
    hudi.register(path, "services_back")
    metadata_off = "hoodie.metadata.enable=false"
    hudi.call(
        "run_compaction",
        table="services_back",
        op="scheduleandexecute",
        options=f"{metadata_off},hoodie.compact.inline.max.delta.commits=1",
    )
    hudi.write(rows(range(10), 40), path, **real_options("mor"))
    hudi.call("run_clustering", table="services_back", options=metadata_off)
    hudi.write(rows(range(10), 41), path, **real_options("mor"))
    hudi.call("run_clustering", table="services_back", op="schedule", options=metadata_off)
    assert table.timeline().completed(Action.REPLACECOMMIT) and table.timeline().pending(Action.CLUSTERING)
    assert table.timeline().completed(Action.COMMIT)

    table.restore(target)
    assert our_rows(path) == real_rows(hudi, path) == expected
    assert data_files(path) == files
    assert not [name for name in (path / ".hoodie" / "timeline").iterdir() if "cluster" in name.name or "compact" in name.name]
    hudi.write(rows(range(10), 50), path, **real_options("mor"))
    table.upsert(rows(range(10), 51))
    assert our_rows(path) == real_rows(hudi, path) == seen(rows(range(10), 51))


@pytest.mark.parametrize("kind", [pytest.param("cow", marks=pytest.mark.wide), "mor"])
def test_both_let_the_same_partitions_expire(hudi: ApacheHudi, tmp_path: Path, kind: str) -> None:
    path, name = tmp_path / "t", f"ttl_{kind}"
    # Written ten days ago, but for one partition that was written to again today.
    past = ReplayEnvironment(3, SystemEnvironment().now_ms() - 10 * 86_400_000)
    table = Table.create(
        str(path),
        name="t",
        record_key="id",
        partition_by="part",
        ordering="ts",
        table_type=kind,
        options=MANUAL,
        environment=past,
    )
    table.upsert(rows(range(8), 1))
    Table(str(path), options=MANUAL).upsert(rows(range(0, 8, 2), 2))
    if kind == "mor":
        # Hudi inspects only base files, and would delete partitions whose newest changes are in logs.
        Table(str(path), options=MANUAL).compact()
    copy = tmp_path / "copy"
    shutil.copytree(path, copy)
    days = {"hoodie.partition.ttl.strategy.days.retain": 5}
    assert Table(str(copy)).expired_partitions(options=days) == ("b",)
    Table(str(copy), options=MANUAL).run_ttl(options=days)
    hudi.sql(f"CREATE TABLE IF NOT EXISTS {name} USING hudi LOCATION 'file:{path}'")
    hudi.call("run_ttl", table=name, retain_days=5)
    kept = {f"k{number}": 200 + number for number in range(0, 8, 2)}
    assert our_rows(path) == our_rows(copy) == kept
    assert real_rows(hudi, path) == real_rows(hudi, copy) == kept
    assert Table(str(path)).expired_partitions(options=days) == ()


def test_savepoints_restores_and_rollbacks_of_version_9(newer_hudi: ApacheHudi, tmp_path: Path) -> None:
    shared = SharedTable(newer_hudi, tmp_path / "t", "mor", {**BLOOMS, "hoodie.log.compaction.blocks.threshold": 2})
    shared.theirs(keyed_rows(("a", 1, "a1", 1), ("b", 1, "b1", 2), ("c", 1, "c1", 3)))
    shared.ours(keyed_rows(("a", 2, "a2", 1), ("d", 1, "d1", 4)))
    ours = shared.table.savepoint()
    undone = shared.theirs(keyed_rows(("a", 3, "a3", 1), ("b", 3, "b3", 1)))
    assert shared.table.rollback(undone).rolled_back == undone
    assert shared.same() == {"a": "a2", "b": "b1", "c": "c1", "d": "d1"}
    shared.theirs(keyed_rows(("b", 4, "b4", 1)))
    undone = shared.ours(keyed_rows(("a", 5, "a5", 1), ("b", 5, "b5", 1)))
    assert shared.call("rollback_to_instant", instant_time=undone).to_pylist() == [{"rollback_result": True}]
    assert shared.same()["b"] == "b4"
    shared.ours(keyed_rows(("b", 6, "b6", 1)))
    assert shared.table.log_compact().runs
    assert shared.same()["b"] == "b6"
    shared.theirs(keyed_rows(("b", 7, "b7", 1), ("e", 7, "e7", 1)))
    assert shared.same()["b"] == "b7"
    shared.table.restore(ours.instant)
    assert shared.same() == {"a": "a2", "b": "b1", "c": "c1", "d": "d1"}
    kept = shared.theirs(keyed_rows(("a", 8, "a8", 1)))
    assert shared.call("create_savepoint", commit_time=kept).num_rows == 1
    shared.ours(keyed_rows(("a", 9, "a9", 1), ("c", 9, "c9", 1)))
    assert shared.call("rollback_to_savepoint", instant_time=kept).num_rows == 1
    assert shared.same() == {"a": "a8", "b": "b1", "c": "c1", "d": "d1"}
    shared.ours(keyed_rows(("c", 10, "c10", 1)))
    shared.table.compact()
    assert shared.same()["c"] == "c10"
    shared.checked()
