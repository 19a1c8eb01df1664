"""What is done to tables day by day, on tables of version 9 beside the real Hudi 1.1.1: each does it to what the other wrote.

Savepoints, restores, rollbacks of completed and of dead writes, log compaction, repairs, new columns, every index by which writes
find keys, every key generator, updates and merges, partial updates.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.format.instants import Action
from tests.interop.oracle import HudiFailure, RealHudi
from tests.interop.test_rollbacks import DYING
from tests.support.rows import assert_same_rows

SCHEMA = pa.schema({"id": pa.string(), "city": pa.string(), "ts": pa.int64(), "v": pa.string(), "qty": pa.int32()})
TYPES = {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}
FEW_GROUPS: dict[str, Any] = {
    "hoodie.metadata.index.column.stats.file.group.count": 1,
    "hoodie.metadata.index.bloom.filter.file.group.count": 1,
    "hoodie.metadata.record.index.min.filegroup.count": 1,
    "hoodie.metadata.record.index.max.filegroup.count": 1,
}
BY_METADATA: dict[str, Any] = {"hoodie.metadata.enable": True}
Given = tuple[str, int, str | None, int | None]


def rows(*given: Given) -> pa.Table:
    """(key, ordering value, text, number); the partition by the key."""
    made = [{"id": key, "city": "x" if key < "c" else "y", "ts": ts, "v": v, "qty": qty} for key, ts, v, qty in given]
    return pa.Table.from_pylist(made, SCHEMA)


@dataclass
class Day:
    """One table, and two who work on it."""

    hudi: RealHudi
    path: Path
    kind: str
    more: dict[str, Any] = field(default_factory=dict)
    without: tuple[str, ...] = ()

    @property
    def options(self) -> dict[str, Any]:
        given = {
            "hoodie.table.name": "t",
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "city",
            "hoodie.datasource.write.precombine.field": "ts",
            "hoodie.datasource.write.table.type": TYPES[self.kind],
            "hoodie.write.table.version": 9,
            "hoodie.metadata.enable": True,
            "hoodie.compact.inline": False,
            "hoodie.index.bloom.num_entries": 100,
            **FEW_GROUPS,
            **self.more,
        }
        return {key: value for key, value in given.items() if not any(f".{name}." in key for name in self.without)}

    @property
    def table(self) -> Table:
        return Table(self.path, options=self.options)

    @property
    def name(self) -> str:
        return f"{self.path.name}_{self.path.parent.name}".replace("-", "_")

    def create(self) -> None:
        Table.create(self.path, options=self.options)

    def ours(self, data: pa.Table, operation: str = "upsert", **more: Any) -> str:
        instant = getattr(self.table, operation)(data, options=more or None).instant
        assert instant is not None
        return str(instant)

    def theirs(self, data: pa.Table, operation: str = "upsert", **more: Any) -> str:
        given = {"hoodie.datasource.write.operation": operation, "hoodie.embed.timeline.server": False}
        self.hudi.write(data, self.path, **{**self.options, **given, **more})
        return self.last()

    def last(self) -> str:
        instant = self.table.timeline().last_completed_write()
        assert instant is not None
        return instant.request_time

    def call(self, procedure: str, **arguments: object) -> pa.Table:
        self.hudi.register(self.path, self.name)
        return self.hudi.call(procedure, table=self.name, **arguments)

    def same(self, left_out: tuple[str, ...] = ()) -> dict[str, Any]:
        """Both read the same rows: key -> value.  left_out: columns that are not compared."""
        table = self.table
        found = table.scan(["*"] if table.config.populate_meta_fields else None).to_arrow()
        real = self.hudi.read(self.path, **BY_METADATA)
        assert_same_rows(
            found.drop_columns(left_out), real.drop_columns(left_out).select(found.drop_columns(left_out).column_names)
        )
        return dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))

    def checked(self) -> None:
        report = self.table.validate()
        assert report.ok, str(report)
        assert not self.table.timeline().pending()


BLOOMS: dict[str, Any] = {"hoodie.metadata.index.bloom.filter.enable": True, "hoodie.metadata.index.column.stats.enable": True}


def test_savepoints_restores_and_rollbacks(newer_hudi: RealHudi, tmp_path: Path) -> None:
    day = Day(newer_hudi, tmp_path / "t", "mor", {**BLOOMS, "hoodie.log.compaction.blocks.threshold": 2})
    day.theirs(rows(("a", 1, "a1", 1), ("b", 1, "b1", 2), ("c", 1, "c1", 3)))
    day.ours(rows(("a", 2, "a2", 1), ("d", 1, "d1", 4)))
    ours = day.table.savepoint()
    undone = day.theirs(rows(("a", 3, "a3", 1), ("b", 3, "b3", 1)))
    assert day.table.rollback(undone).rolled_back == undone
    assert day.same() == {"a": "a2", "b": "b1", "c": "c1", "d": "d1"}
    day.theirs(rows(("b", 4, "b4", 1)))
    undone = day.ours(rows(("a", 5, "a5", 1), ("b", 5, "b5", 1)))
    assert day.call("rollback_to_instant", instant_time=undone).to_pylist() == [{"rollback_result": True}]
    assert day.same()["b"] == "b4"
    day.ours(rows(("b", 6, "b6", 1)))
    assert day.table.log_compact().runs
    assert day.same()["b"] == "b6"
    day.theirs(rows(("b", 7, "b7", 1), ("e", 7, "e7", 1)))
    assert day.same()["b"] == "b7"
    day.table.restore(ours.instant)
    assert day.same() == {"a": "a2", "b": "b1", "c": "c1", "d": "d1"}
    kept = day.theirs(rows(("a", 8, "a8", 1)))
    assert day.call("create_savepoint", commit_time=kept).num_rows == 1
    day.ours(rows(("a", 9, "a9", 1), ("c", 9, "c9", 1)))
    assert day.call("rollback_to_savepoint", instant_time=kept).num_rows == 1
    assert day.same() == {"a": "a8", "b": "b1", "c": "c1", "d": "d1"}
    day.ours(rows(("c", 10, "c10", 1)))
    day.table.compact()
    assert day.same()["c"] == "c10"
    day.checked()


@pytest.mark.parametrize("kind", ["mor", pytest.param("cow", marks=pytest.mark.wide)])
def test_dead_writes(newer_hudi: RealHudi, tmp_path: Path, kind: str) -> None:
    day = Day(newer_hudi, tmp_path / "t", kind, BLOOMS)
    day.create()
    day.ours(rows(("a", 1, "a1", 1), ("c", 1, "c1", 3)))
    day.theirs(rows(("a", 2, "a2", 1)))
    with pytest.raises(HudiFailure, match=r"no\.such\.Validator"):
        day.theirs(rows(("a", 3, "dead", 1), ("d", 3, "dead", 1)), **DYING)
    (dead,) = day.table.timeline().pending_writes()
    assert day.same() == {"a": "a2", "c": "c1"}
    day.ours(rows(("c", 4, "c4", 1)))
    assert dead.request_time not in {i.request_time for i in day.table.timeline().instants if i.action is not Action.ROLLBACK}
    assert day.same() == {"a": "a2", "c": "c4"}
    day.checked()


@pytest.mark.wide
def test_every_index_that_finds_keys(newer_hudi: RealHudi, tmp_path: Path) -> None:
    day = Day(newer_hudi, tmp_path / "t", "cow", {**BLOOMS, "hoodie.metadata.record.index.enable": True})
    day.theirs(rows(("a", 1, "a1", 1), ("b", 1, "b1", 2), ("c", 1, "c1", 3)), **{"hoodie.index.type": "BLOOM"})
    expected = {"a": "a1", "b": "b1", "c": "c1"}
    turns: list[tuple[str, str, dict[str, Any]]] = [
        ("ours", "INMEMORY", {}),
        ("theirs", "GLOBAL_SIMPLE", {}),
        ("ours", "INMEMORY", {}),
        ("ours", "BLOOM", {"hoodie.bloom.index.use.metadata": True}),
        ("theirs", "RECORD_INDEX", {}),
        ("ours", "GLOBAL_BLOOM", {"hoodie.bloom.index.use.metadata": True}),
        ("ours", "GLOBAL_SIMPLE", {}),
        ("theirs", "GLOBAL_BLOOM", {}),
        ("ours", "RECORD_INDEX", {}),
    ]
    for ts, (who, index, more) in enumerate(turns, 2):
        new = f"{'abcd'[ts % 4]}{ts}"
        data = rows(("a", ts, f"a{ts}", ts), ("c", ts, f"c{ts}", ts), (new, ts, new, ts))
        expected |= {"a": f"a{ts}", "c": f"c{ts}", new: new}
        (day.ours if who == "ours" else day.theirs)(data, **{"hoodie.index.type": index, **more})
        found = day.table.scan().to_arrow()
        assert dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True)) == expected, index
        assert found.num_rows == len(expected), index
    assert day.same() == expected
    day.checked()


GENERATORS: dict[str, dict[str, Any]] = {
    "complex": {"hoodie.datasource.write.recordkey.field": "id,qty", "hoodie.datasource.write.partitionpath.field": "city,v"},
    "timestamp": {
        "hoodie.datasource.write.partitionpath.field": "ts",
        "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.TimestampBasedKeyGenerator",
        "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
        "hoodie.keygen.timebased.output.dateformat": "yyyy-MM-dd",
    },
    "custom": {
        "hoodie.datasource.write.partitionpath.field": "city:SIMPLE,ts:TIMESTAMP",
        "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.CustomKeyGenerator",
        "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
        "hoodie.keygen.timebased.output.dateformat": "yyyy/MM",
        "hoodie.datasource.write.hive_style_partitioning": True,
    },
    "none": {
        "hoodie.datasource.write.partitionpath.field": "",
        "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
    },
    "no_meta": {"hoodie.populate.meta.fields": False},
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ("custom", "no_meta") else pytest.mark.wide) for name in GENERATORS]
)
def test_key_generators(newer_hudi: RealHudi, tmp_path: Path, name: str) -> None:
    """Ours makes the table, and each finds the keys of the other."""
    day = Day(newer_hudi, tmp_path / "t", "cow", GENERATORS[name])
    day.create()
    day.ours(rows(("a", 1, "x", 1), ("b", 1, "x", 2), ("c", 1, "x", 3)))
    day.theirs(rows(("a", 2, "x", 1), ("d", 2, "x", 4)))
    day.ours(rows(("d", 3, "x", 4), ("b", 3, "x", 2)))
    found = day.table.scan().to_arrow()
    assert dict(zip(found["id"].to_pylist(), found["ts"].to_pylist(), strict=True)) == {"a": 2, "b": 3, "c": 1, "d": 3}
    # The real one reads a column by which time partitions are named as their names, text where no column says otherwise.
    assert day.same(left_out=("ts",) if name == "timestamp" else ()).keys() == {"a", "b", "c", "d"}
    day.checked()


@pytest.mark.wide
def test_generated_keys(newer_hudi: RealHudi, tmp_path: Path) -> None:
    day = Day(newer_hudi, tmp_path / "t", "cow", without=("recordkey", "precombine"))
    day.theirs(rows(("a", 1, "x", 1), ("b", 1, "x", 2)), "insert")
    day.ours(rows(("a", 2, "x", 1)), "insert")
    day.theirs(rows(("c", 3, "x", 1)), "bulk_insert")
    found = day.table.scan(["*"]).to_arrow()
    assert sorted(found["id"].to_pylist()) == ["a", "a", "b", "c"]
    assert len(set(found["_hoodie_record_key"].to_pylist())) == 4
    assert_same_rows(found, newer_hudi.read(day.path), key=["_hoodie_record_key"])
    day.checked()


@pytest.mark.parametrize("kind", ["mor", pytest.param("cow", marks=pytest.mark.wide)])
def test_columns_that_come_and_widen(newer_hudi: RealHudi, tmp_path: Path, kind: str) -> None:
    day = Day(newer_hudi, tmp_path / "t", kind, {"hoodie.write.set.null.for.missing.columns": True})
    day.theirs(rows(("a", 1, "a1", 1), ("c", 1, "c1", 3)))
    wider = rows(("a", 2, "a2", 2)).append_column("more", pa.array(["m2"]))
    day.ours(wider.set_column(4, "qty", pa.array([1 << 40], pa.int64())))
    day.same()
    third = rows(("c", 3, "c3", 3)).append_column("more", pa.array(["m3"])).append_column("last", pa.array([0.5]))
    day.theirs(third.set_column(4, "qty", pa.array([1 << 41], pa.int64())))
    day.same()
    day.ours(rows(("a", 4, "a4", 4), ("b", 4, "b4", 4)))
    day.same()
    found = {row["id"]: row for row in day.table.scan(["id", "qty", "more", "last"]).to_arrow().to_pylist()}
    assert found["c"] == {"id": "c", "qty": 1 << 41, "more": "m3", "last": 0.5}
    assert found["a"] == {"id": "a", "qty": 4, "more": None, "last": None}
    if kind == "mor":
        day.table.compact()
        day.same()
    day.checked()


@pytest.mark.parametrize("kind", ["mor", pytest.param("cow", marks=pytest.mark.wide)])
def test_updates_merges_and_partial_updates(newer_hudi: RealHudi, tmp_path: Path, kind: str) -> None:
    day = Day(newer_hudi, tmp_path / "t", kind)
    day.theirs(rows(*((key, 1, f"{key}1", 1) for key in "abcdef")))
    day.table.update({"v": "'updated'"}, where="qty = 1 AND id < 'c'")
    assert day.same()["b"] == "updated"
    merge = day.table.merge(rows(("b", 2, "merged", 2), ("g", 2, "merged", 2)), on=["id", "city"])
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert (day.same()["b"], day.same()["g"]) == ("merged", "merged")
    if kind == "mor":
        day.hudi.register(day.path, day.name)
        day.hudi.sql("SET hoodie.compact.inline.max.delta.commits=100")
        day.hudi.view("daily_news", rows(("d", 5, "by them", 9)).select(["id", "city", "ts", "v"]))
        day.hudi.sql(
            f"MERGE INTO {day.name} t USING daily_news s ON t.id = s.id AND t.city = s.city "
            "WHEN MATCHED THEN UPDATE SET t.ts = s.ts, t.v = s.v"
        )
        day.table.upsert(rows(("d", 6, "by us", 7), ("e", 6, "by us", 7)).select(["id", "city", "ts", "v"]), partial=True)
        assert (day.same()["d"], day.same()["e"]) == ("by us", "by us")
        assert set(day.table.scan(["qty"], filter="id IN ('d', 'e')").to_arrow()["qty"].to_pylist()) == {1}
        day.table.compact()
        day.same()
    day.theirs(rows(("b", 9, "b9", 9)))
    assert day.same()["b"] == "b9"
    day.checked()


@pytest.mark.wide
def test_repairs(newer_hudi: RealHudi, tmp_path: Path) -> None:
    """A metadata table that does not list a file is mended, and the real Hudi writes on."""
    day = Day(newer_hudi, tmp_path / "t", "mor", BLOOMS)
    day.theirs(rows(("a", 1, "a1", 1), ("c", 1, "c1", 3)))
    day.theirs(rows(("a", 2, "a2", 1)))
    base = next((day.path / "x").glob("*.parquet"))
    shutil.copy(base, base.with_name("stray-0_0-0-0_20200101000000000.parquet"))
    (day.path / "x" / ".hoodie_partition_metadata").unlink()
    assert not day.table.validate().ok
    day.table.repair(dry_run=False)
    day.checked()
    day.theirs(rows(("a", 3, "a3", 1), ("b", 3, "b3", 1)))
    assert day.same() == {"a": "a3", "b": "b3", "c": "c1"}
    day.checked()


@pytest.mark.parametrize("payload", ["PartialUpdate", pytest.param("OverwriteNonDefaultsWithLatest", marks=pytest.mark.wide)])
def test_partial_updates_and_moves_under_update_modes(newer_hudi: RealHudi, tmp_path: Path, payload: str) -> None:
    """The same statements to one table each, as MERGE INTO and as ours: the rows are the same, and each reads the other's."""
    more = {
        "hoodie.datasource.write.payload.class": f"org.apache.hudi.common.model.{payload}AvroPayload",
        "hoodie.index.type": "RECORD_INDEX",
        "hoodie.metadata.record.index.enable": True,
        "hoodie.record.index.update.partition.path": True,
    }
    mine, other = (Day(newer_hudi, tmp_path / name, "mor", more) for name in ("mine", "other"))
    mine.create()
    first = rows(("a", 5, "a5", 1), ("b", 5, "b5", 2), ("c", 5, None, 3), ("d", 5, "d5", None))
    moved = rows(("a", 6, None, 9), ("b", 4, "late", None), ("c", 5, None, None), ("d", 4, "late", 7))
    moved = moved.set_column(1, "city", pa.array(["y", "y", "x", "x"]))
    news = rows(("c", 8, "c8", 0), ("a", 3, "late", 0), ("d", 8, None, 0))
    for day in (mine, other):
        (day.ours if day is mine else day.theirs)(first)
        (day.ours if day is mine else day.theirs)(moved)
    assert_same_rows(mine.table.scan().to_arrow(), other.table.scan().to_arrow(), key=["id"])
    assert mine.same() == other.same()
    news = news.set_column(
        1, "city", pa.array([{r["id"]: r["city"] for r in mine.table.scan().to_arrow().to_pylist()}[k] for k in "cad"])
    )
    mine.table.upsert(news.select(["id", "city", "ts", "v"]), partial=True)
    newer_hudi.register(other.path, other.name)
    newer_hudi.sql("SET hoodie.compact.inline.max.delta.commits=100")
    newer_hudi.view("news_of_modes", news)
    newer_hudi.sql(
        f"MERGE INTO {other.name} t USING news_of_modes s ON t.id = s.id AND t.city = s.city "
        "WHEN MATCHED THEN UPDATE SET t.id = s.id, t.ts = s.ts, t.v = s.v"
    )
    assert_same_rows(mine.table.scan().to_arrow(), other.table.scan().to_arrow(), key=["id"])
    mine.theirs(rows(("a", 9, None, 10)))
    other.ours(rows(("a", 9, None, 10)))
    for day in (mine, other):
        day.same()
        day.checked()
    assert_same_rows(mine.table.scan().to_arrow(), other.table.scan().to_arrow(), key=["id"])


def placed(*given: tuple[str, str, int, str]) -> pa.Table:
    """(key, partition, ordering value, text)."""
    data = rows(*((key, ts, v, ts) for key, _, ts, v in given))
    return data.set_column(1, "city", pa.array([city for _, city, _, _ in given], pa.string()))


@pytest.mark.parametrize("kind", ["mor", pytest.param("cow", marks=pytest.mark.wide)])
def test_a_partitioned_record_index_in_turn(newer_hudi: RealHudi, tmp_path: Path, kind: str) -> None:
    """Each finds the keys of the other by it, in the partitions that either began."""
    more = {"hoodie.index.type": "RECORD_LEVEL_INDEX", "hoodie.metadata.record.level.index.enable": True}
    day = Day(newer_hudi, tmp_path / "t", kind, more)
    day.theirs(placed(("a", "x", 1, "xa"), ("b", "x", 1, "xb"), ("a", "y-_z", 1, "ya")))
    result = day.table.upsert(placed(("a", "x", 2, "xa2"), ("b", "w a", 2, "wb"), ("c", "y-_z", 2, "yc"), ("d", "w a", 2, "wd")))
    assert result.index_source == "record_index"
    day.theirs(placed(("b", "w a", 3, "wb3"), ("c", "y-_z", 3, "yc3"), ("a", "v", 3, "va"), ("g", "v", 3, "vg")))
    day.theirs(placed(("b", "x", 4, "")), "delete")
    day.ours(placed(("a", "v", 5, "va5"), ("b", "x", 5, "back"), ("e", "u", 5, "ue"), ("f", "u", 5, "uf")))
    day.table.delete(pa.table({"id": ["g"], "city": ["v"]}))
    day.ours(placed(("z", "y-_z", 5, "yz")), "insert_overwrite")
    if kind == "mor":
        day.table.compact()
    else:
        day.table.cluster()
    day.theirs(placed(("a", "v", 6, "va6"), ("g", "v", 6, "vg6"), ("z", "y-_z", 6, "yz6"), ("e", "u", 6, "u")))
    day.same()
    found = {(row["city"], row["id"]): row["v"] for row in day.table.scan().to_arrow().to_pylist()}
    assert found == {
        **{("x", "a"): "xa2", ("x", "b"): "back", ("w a", "b"): "wb3", ("w a", "d"): "wd", ("v", "a"): "va6", ("v", "g"): "vg6"},
        **{("y-_z", "z"): "yz6", ("u", "e"): "u", ("u", "f"): "uf"},
    }
    assert "record_index" in day.table.config.metadata_partitions
    day.checked()


def test_the_real_hudi_loses_a_key_of_two_partitions(newer_hudi: RealHudi, tmp_path: Path) -> None:
    """It stands in one of them, and comes with both in one batch: both rows go to the one, where the last stays."""
    more = {"hoodie.index.type": "RECORD_LEVEL_INDEX", "hoodie.metadata.record.level.index.enable": True}
    mine, other = (Day(newer_hudi, tmp_path / name, "cow", more) for name in ("mine", "other"))
    mine.create()
    for data in (placed(("a", "x", 1, "xa")), placed(("a", "x", 2, "xa2"), ("a", "y", 2, "ya2"))):
        mine.ours(data)
        other.theirs(data)
    assert sorted(mine.table.scan().to_arrow()["v"].to_pylist()) == ["xa2", "ya2"]
    assert other.table.scan().to_arrow()["v"].to_pylist() == ["ya2"]
    assert newer_hudi.read(mine.path).num_rows == 2
