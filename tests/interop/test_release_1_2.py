"""Tables of versions 8 and 9 that PyHudi and Apache Hudi 1.2.0 write and service in turn, with metadata table and
record index. Defects of 1.2.0 are shown here too, so that a fixed release is noticed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import InvalidRequest, Table
from pyhudi.format.instants import Action
from tests.interop.oracle import ApacheHudi, HudiFailure
from tests.interop.pair import make
from tests.support.hudi_pair_of_version import KINDS_AND_VERSIONS, PairOfVersion
from tests.support.properties import edit_properties
from tests.support.rows import assert_same_rows, without_meta

BY_RECORD_INDEX: dict[str, Any] = {"hoodie.index.type": "RECORD_INDEX"}
COMPACT: dict[str, Any] = {"hoodie.compact.inline": True, "hoodie.compact.inline.max.delta.commits": 1}
CLUSTER: dict[str, Any] = {"hoodie.clustering.inline": True, "hoodie.clustering.inline.max.commits": 1}
RETAINED: dict[str, Any] = {"hoodie.clean.commits.retained": 1}
KEPT: dict[str, Any] = {**RETAINED, "hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3}
TIDY: dict[str, Any] = {"hoodie.clean.automatic": True, "hoodie.archive.automatic": True, **KEPT}
LAZY_CLEAN: dict[str, Any] = {
    "hoodie.clean.automatic": True,
    "hoodie.clean.failed.writes.policy": "LAZY",
    **RETAINED,
}
EXPIRING: dict[str, Any] = {
    "hoodie.clustering.enable.expirations": True,
    "hoodie.clustering.expiration.threshold.mins": 0,
}
CLUSTER_EACH: dict[str, Any] = {"hoodie.clustering.async.max.commits": 1, "hoodie.clustering.inline.max.commits": 1}
SLASH_DATES = "hoodie.datasource.write.slash.separated.date.partitioning"
WITHOUT_STATISTICS: dict[str, Any] = {"hoodie.metadata.index.column.stats.enable": False}


@pytest.mark.parametrize(("kind", "version"), KINDS_AND_VERSIONS)
def test_alternating_writes_and_services(newest_hudi: ApacheHudi, tmp_path: Path, kind: str, version: int) -> None:
    pair = PairOfVersion(newest_hudi, tmp_path / "t", kind, version=version)
    if kind == "cow":
        pair.theirs("insert", make(range(24), 1))
    else:
        pair.create()
        pair.ours("insert", make(range(24), 1))
    pair.ours("upsert", make(range(18, 30), 2, note="ours"), check=False)
    pair.theirs("upsert", make(range(20, 36), 3, note="theirs"), **BY_RECORD_INDEX, filters=2)
    pair.ours("delete", make(range(4), 4), **BY_RECORD_INDEX, check=False)
    pair.theirs("delete", make(range(4, 8), 4), **BY_RECORD_INDEX)
    if kind == "mor":
        pair.theirs("upsert", make(range(8, 12), 5), **COMPACT)
        pair.ours("upsert", make(range(10, 14), 6), check=False)
        assert pair.table.compact().runs
    else:
        pair.theirs("upsert", make(range(8, 12), 5), **CLUSTER)
        pair.ours("upsert", make(range(10, 14), 6), check=False)
    assert pair.table.cluster(order_by="id").instant is not None
    pair.check(filters=1)
    for number in range(2):
        pair.theirs("upsert", make(range(30, 34), 7 + number), **TIDY, check=False)
        pair.ours("upsert", make(range(32, 36), 7 + number), check=False)
        pair.table.clean(dry_run=False, options=RETAINED)
        pair.table.archive(options=KEPT)
    pair.check(filters=2)
    pair.checked()
    actions = {entry.action for entry in newest_hudi.timeline(pair.path)}
    assert "clean" in actions


def test_both_drop_clusterings_that_expired(newest_hudi: ApacheHudi, tmp_path: Path) -> None:
    """Plans that no process has started, at the next clean under the LAZY policy; without the option they wait."""
    pair = PairOfVersion(newest_hudi, tmp_path / "t", "cow", version=9)

    def pending() -> list[str]:
        return [instant.request_time for instant in pair.table.timeline().pending(Action.CLUSTERING)]

    pair.theirs("insert", make(range(12), 1))
    planned = pair.table.schedule_clustering(order_by="id").instant
    pair.theirs("bulk_insert", make(range(20, 24), 2), **LAZY_CLEAN)
    assert pending() == [planned]
    pair.theirs("bulk_insert", make(range(24, 28), 3), **LAZY_CLEAN, **EXPIRING)
    assert pending() == []
    pair.theirs("bulk_insert", make(range(28, 32), 4), **{"hoodie.clustering.schedule.inline": True, **CLUSTER_EACH})
    (planned,) = pending()
    lazy = {"hoodie.clean.failed.writes.policy": "LAZY"}
    pair.table.clean(options=lazy)
    assert pending() == [planned]
    assert pair.table.clean(options={**lazy, **EXPIRING}).rolled_back == (planned,)
    assert pending() == []
    pair.theirs("upsert", make(range(28, 30), 5))
    pair.checked()


@pytest.mark.parametrize("version", [9, pytest.param(8, marks=pytest.mark.wide)])
@pytest.mark.parametrize("statistics", [True, False])
def test_release_1_2_overwrites_no_table_with_a_record_index_and_statistics(
    newest_hudi: ApacheHudi, tmp_path: Path, version: int, statistics: bool
) -> None:
    """Nor does it write to a table that it alone made; without statistics of columns it does.  PyHudi overwrites either."""
    more = {} if statistics else WITHOUT_STATISTICS
    pair = PairOfVersion(newest_hudi, tmp_path / "t", "cow", more, version=version)
    pair.theirs("insert", make(range(12), 1), check=False)
    pair.theirs("upsert", make(range(6), 2), check=False)
    if statistics:
        with pytest.raises(HudiFailure, match="Failed to retrieve files in partition"):
            pair.theirs("insert_overwrite", make(range(3, 12, 3), 3), check=False)
    else:
        pair.theirs("insert_overwrite", make(range(3, 12, 3), 3))
    pair.ours("insert_overwrite", make(range(6, 12, 3), 4))
    pair.theirs("upsert", make(range(6), 5), **BY_RECORD_INDEX)
    pair.checked()


def test_release_1_2_cannot_write_after_a_secondary_index_of_pyhudi(newest_hudi: ApacheHudi, tmp_path: Path) -> None:
    """With column statistics; PyHudi writes on, and Hudi's filter that uses the index finds the rows."""
    pair = PairOfVersion(newest_hudi, tmp_path / "t", "cow")
    pair.create()
    pair.ours("upsert", make(range(12), 1), check=False)
    pair.table.index.create("secondary_index", "note", name="by_note")
    with pytest.raises(HudiFailure, match="Failed to retrieve files in partition"):
        pair.theirs("upsert", make(range(6), 2), check=False, **BY_RECORD_INDEX)
    pair.ours("upsert", make(range(6), 3, note="x"))
    pair.check_filters([("note = 'x'", lambda row: row["note"] == "x")])
    pair.checked()


def test_release_1_2_writes_no_dates_into_orc_files(newest_hudi: ApacheHudi, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.table.base.file.format": "ORC",
        "hoodie.base.file.format": "ORC",
        "hoodie.metadata.enable": False,
    }
    rows = make(range(3), 1).select(["id", "ts", "day"])
    with pytest.raises(HudiFailure, match="Failed to write to Hudi"):
        newest_hudi.write(rows, tmp_path / "theirs", **options)
    newest_hudi.write(rows.drop_columns(["day"]), tmp_path / "other", **options)
    Table.create(tmp_path / "t", options=options).upsert(rows)
    newest_hudi.sql("SET spark.sql.orc.enableVectorizedReader=false")
    assert_same_rows(without_meta(newest_hudi.read(tmp_path / "t")), rows)


def test_release_1_2_cannot_write_after_a_partitioned_record_index_of_pyhudi(newest_hudi: ApacheHudi, tmp_path: Path) -> None:
    """Its second write fails, also in a table that it alone made.  PyHudi writes on, and Hudi reads that."""
    more = {
        "hoodie.index.type": "RECORD_LEVEL_INDEX",
        "hoodie.metadata.record.level.index.enable": True,
        "hoodie.metadata.record.index.enable": False,
    }
    pair = PairOfVersion(newest_hudi, tmp_path / "t", "cow", more)
    pair.theirs("insert", make(range(12), 1), check=False)
    with pytest.raises(HudiFailure, match="Failed to retrieve files in partition"):
        pair.theirs("upsert", make(range(6), 2), check=False)
    pair.ours("upsert", make(range(6), 3), check=False)
    found = Table(pair.path).scan(["id"]).to_arrow()["id"].to_pylist()
    assert sorted(found) == sorted(newest_hudi.read(pair.path, columns=["id"])["id"].to_pylist()) == sorted(pair.rows)


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", pytest.param("MERGE_ON_READ", marks=pytest.mark.wide)])
def test_slash_dates_of_the_dataframe_writer(newest_hudi: ApacheHudi, tmp_path: Path, kind: str) -> None:
    """Its table names no option, only the class that reads the paths; it finds no rows by the date itself."""
    options: dict[str, Any] = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.partitionpath.field": "day",
        "hoodie.datasource.write.table.type": kind,
        "hoodie.embed.timeline.server": False,
    }
    rows = pa.table({"id": ["a", "b"], "ts": [1, 1], "day": ["2024-03-15", "2024-03-16"]})
    newest_hudi.write(rows, tmp_path / "t", **{**options, SLASH_DATES: True})
    assert newest_hudi.read(tmp_path / "t", where="day = '2024-03-16'").num_rows == 0
    table = Table(str(tmp_path / "t"))
    assert table.scan(filter="day = '2024-03-16'").to_arrow()["id"].to_pylist() == ["b"]
    later = pa.table({"id": ["b", "c"], "ts": [2, 2], "day": ["2024-03-16", "2024-04-01"]})
    table.upsert(later)
    # The property that the upsert stored makes Hudi keep the mapping.
    newest_hudi.write(pa.table({"id": ["c"], "ts": [3], "day": ["2024-04-01"]}), tmp_path / "t", **options)
    expected = [("a", 1, "2024-03-15"), ("b", 2, "2024-03-16"), ("c", 3, "2024-04-01")]
    for found in (table.scan(), newest_hudi.read(tmp_path / "t", columns=["id", "ts", "day"])):
        read = found if isinstance(found, pa.Table) else found.to_arrow()
        assert sorted((row["id"], row["ts"]) for row in read.to_pylist()) == [pair[:2] for pair in expected]
    assert sorted(tuple(row.values()) for row in table.scan(["id", "ts", "day"]).to_arrow().to_pylist()) == expected
    assert table.validate().ok


def test_the_plan_that_a_failed_planner_leaves(newest_hudi: ApacheHudi, tmp_path: Path) -> None:
    """Its commit-based planner fails and leaves a plan without a record; from then on it can neither read nor write."""
    pair = PairOfVersion(newest_hudi, tmp_path / "t", "cow")
    pair.theirs("insert", make(range(6), 1), check=False)
    pair.theirs("upsert", make(range(3), 2), check=False)
    package = "org.apache.hudi.table.action.cluster.strategy."
    planner: dict[str, Any] = {"hoodie.clustering.plan.strategy.class": package + "CommitBasedClusteringPlanStrategy"}
    with pytest.raises(HudiFailure):
        pair.theirs("upsert", make(range(3), 3), check=False, **CLUSTER, **planner)
    (left,) = pair.table.timeline().pending(Action.CLUSTERING)
    with pytest.raises(HudiFailure, match="pending clustering"):
        newest_hudi.read(pair.path)
    assert pair.table.scan().count() == 6
    pair.ours("upsert", make(range(6, 8), 4), check=False)
    pair.table.rollback(left.request_time)
    # The write landed before its planner failed.
    ours, theirs = (
        sorted(zip(found["id"].to_pylist(), found["ts"].to_pylist(), strict=True))
        for found in (pair.table.scan(["id", "ts"]).to_arrow(), newest_hudi.read(pair.path, columns=["id", "ts"]))
    )
    assert ours == theirs
    assert [ts for _, ts in ours] == [3, 3, 3, 1, 1, 1, 4, 4]
    pair.checked()


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_release_1_2_runs_a_plan_from_commits_that_its_own_planner_cannot_make(
    newest_hudi: ApacheHudi, tmp_path: Path, kind: str
) -> None:
    pair = PairOfVersion(newest_hudi, tmp_path / "t", kind, version=9)
    pair.create()
    for number in range(4):
        pair.ours("bulk_insert", make(range(number * 6, number * 6 + 6), 1), check=False)
    times = [instant.request_time for instant in pair.table.timeline().completed_writes()]
    by_commits = {
        "hoodie.clustering.plan.strategy.class": "CommitBasedClusteringPlanStrategy",
        "hoodie.clustering.plan.strategy.earliest.commit.to.cluster": times[1],
    }
    planned = pair.table.schedule_clustering(options=by_commits)
    newest_hudi.register(pair.path, f"by_commits_{kind}")
    done = newest_hudi.call("run_clustering", table=f"by_commits_{kind}", op="execute").to_pylist()
    assert [(row["timestamp"], row["state"]) for row in done] == [(planned.instant, "COMPLETED")]
    pair.ours("upsert", make(range(3), 2), check=False, **{**RETAINED, "hoodie.prewrite.cleaner.policy": "CLEAN"})
    pair.theirs("upsert", make(range(2, 20), 3))
    pair.checked()


def test_sql_uses_the_lock_that_the_properties_configure(newest_hudi: ApacheHudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    newest_hudi.sql(f"CREATE TABLE locked (id INT) USING hudi LOCATION '{path}' TBLPROPERTIES (primaryKey = 'id')")
    newest_hudi.sql("INSERT INTO locked VALUES (1)")
    lock = {"hoodie.write.lock.provider": "com.example.Lock", "hoodie.write.concurrency.mode": "optimistic_concurrency_control"}
    edit_properties(path, lock)
    newest_hudi.sql(f"CREATE TABLE opened USING hudi LOCATION '{path}'")
    with pytest.raises(HudiFailure, match=r"ClassNotFoundException: com\.example\.Lock"):
        newest_hudi.sql("INSERT INTO opened VALUES (2)")
    with pytest.raises(InvalidRequest, match=r"stores the lock of its writers .*com\.example\.Lock"):
        Table(path).insert({"id": [2]})
    assert Table(path).count() == 1
