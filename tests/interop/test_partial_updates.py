"""Partial updates of one merge-on-read table: by `upsert(partial=True)` of PyHudi and by MERGE INTO of Apache Hudi."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.format.log.framing import LogBlock
from pyhudi.table.snapshot import load_snapshot
from pyhudi.tasks.log_scan import read_headers
from tests.interop.alternation import OPERATION, READ
from tests.interop.oracle import ApacheHudi
from tests.support.hudi_log_compaction import real_log_compaction
from tests.support.hudi_shared_table import SharedTable, keyed_rows
from tests.support.rows import assert_same_rows

OPTIONS: dict[str, Any] = {
    "hoodie.table.name": "partial",
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.partitionpath.field": "part",
    "hoodie.write.record.merge.mode": "EVENT_TIME_ORDERING",
    "hoodie.metadata.enable": False,
    "hoodie.compact.inline": False,
    "hoodie.parquet.small.file.limit": 0,
    "hoodie.index.bloom.num_entries": 100,
}
KEYS = [f"k{number:02}" for number in range(24)]


def full_rows(numbers: range, ts: int) -> pa.Table:
    return pa.table(
        {
            "id": [KEYS[n] for n in numbers],
            "ts": pa.array([ts] * len(numbers), pa.int64()),
            "a": [f"a{ts}-{n}" for n in numbers],
            "b": pa.array([n * 100 + ts for n in numbers], pa.int32()),
            "words": pa.array([[f"w{ts}"] for _ in numbers], pa.list_(pa.string())),
            "part": ["xy"[n % 2] for n in numbers],
        }
    )


def update_by_pyhudi(path: Path, numbers: range, ts: int, column: str) -> None:
    Table(path, options=OPTIONS).upsert(full_rows(numbers, ts).select(["id", "part", "ts", column]), partial=True)


def update_by_hudi(hudi: ApacheHudi, name: str, numbers: range, ts: int, column: str) -> None:
    # Statements compact inline after a few commits, regardless of the options of the table's writers.
    hudi.sql("SET hoodie.compact.inline.max.delta.commits=100")
    hudi.view("partial_news", full_rows(numbers, ts).select(["id", "part", "ts", column]))
    hudi.sql(
        f"MERGE INTO {name} t USING partial_news s ON t.id = s.id AND t.part = s.part "
        f"WHEN MATCHED THEN UPDATE SET t.ts = s.ts, t.{column} = s.{column}"
    )
    hudi.sql("RESET hoodie.compact.inline.max.delta.commits")


def partial_blocks(path: Path) -> int:
    table = Table(path)
    logs = [log for found in load_snapshot(table.context).slices(None).values() for slice_ in found for log in slice_.logs]
    blocks = [block for log in logs for block in read_headers(table.context.storage, log)]
    return sum(isinstance(block, LogBlock) and block.is_partial for block in blocks)


def both_read(hudi: ApacheHudi, path: Path) -> pa.Table:
    rows = Table(path).scan("*").to_arrow()
    assert_same_rows(hudi.read(path, **READ), rows)
    return rows


@pytest.mark.parametrize("first", [pytest.param("ours", marks=pytest.mark.wide), "theirs"])
def test_partial_updates_of_alternating_writers(hudi: ApacheHudi, tmp_path: Path, first: str) -> None:
    path, name = tmp_path / "t", f"partial_{first}"
    if first == "ours":
        Table.create(path, options=OPTIONS).insert(full_rows(range(24), 10))
    else:
        hudi.write(full_rows(range(24), 10), path, **(OPTIONS | {OPERATION: "insert"}))
    hudi.register(path, name)
    # Newer, older and equal ordering values; the last ones lose against the base file in all columns that they hold.
    update_by_pyhudi(path, range(0, 12), 20, "a")
    update_by_hudi(hudi, name, range(6, 18), 30, "b")
    both_read(hudi, path)
    update_by_pyhudi(path, range(3, 15), 25, "words")
    update_by_hudi(hudi, name, range(10, 20), 5, "a")
    assert partial_blocks(path) == 8
    both_read(hudi, path)
    # Whole rows between partial ones.
    Table(path, options=OPTIONS).upsert(full_rows(range(8, 10), 40))
    hudi.write(full_rows(range(12, 14), 40), path, **(OPTIONS | {OPERATION: "upsert"}))
    update_by_pyhudi(path, range(8, 14), 41, "a")
    rows = both_read(hudi, path).to_pylist()
    found = {row["id"]: (row["ts"], row["a"], row["b"], row["words"]) for row in rows}
    assert found["k01"] == (20, "a20-1", 110, ["w10"])
    assert found["k04"] == (25, "a20-4", 410, ["w25"])
    assert found["k07"] == (30, "a20-7", 730, ["w25"])
    assert found["k09"] == (41, "a41-9", 940, ["w40"])
    assert found["k13"] == (41, "a41-13", 1340, ["w40"])
    assert found["k19"] == (10, "a10-19", 1910, ["w10"])
    # Either compacts what both wrote to the same rows.
    before = Table(path).scan("*").to_arrow()
    copy = tmp_path / "copy"
    shutil.copytree(path, copy)
    Table(path, options=OPTIONS).compact()
    hudi.register(copy, f"{name}_copy")
    options = "hoodie.metadata.enable=false,hoodie.compact.inline.max.delta.commits=1"
    hudi.call("run_compaction", op="scheduleAndExecute", table=f"{name}_copy", options=options)
    for compacted in (path, copy):
        assert partial_blocks(compacted) == 0
        assert_same_rows(both_read(hudi, compacted), before, ignoring=("_hoodie_file_name",))


BUCKET = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 2, "hoodie.bucket.index.hash.field": "id"}


def test_partial_updates_by_bucket(hudi: ApacheHudi, tmp_path: Path) -> None:
    path, options = tmp_path / "t", {**OPTIONS, **BUCKET}
    Table.create(path, options=options).insert(full_rows(range(24), 10))
    hudi.register(path, "partial_bucket")
    Table(path, options=options).upsert(full_rows(range(0, 12), 20).select(["id", "part", "ts", "a"]), partial=True)
    for key, value in BUCKET.items():
        hudi.sql(f"SET {key}={value}")
    update_by_hudi(hudi, "partial_bucket", range(6, 18), 30, "b")
    assert partial_blocks(path) == 8
    found = {row["id"]: (row["ts"], row["a"], row["b"]) for row in both_read(hudi, path).to_pylist()}
    assert (found["k03"], found["k07"], found["k17"]) == ((20, "a20-3", 310), (30, "a20-7", 730), (30, "a10-17", 1730))


def test_hudi_reads_complete_rows_when_a_column_marks_deletes(hudi: ApacheHudi, tmp_path: Path) -> None:
    """Of a block without that column it would read beyond the end of its rows."""
    path = tmp_path / "t"
    rows = full_rows(range(24), 10).append_column("_hoodie_is_deleted", pa.array([False] * 24))
    Table.create(path, options=OPTIONS).insert(rows)
    update_by_pyhudi(path, range(0, 12), 20, "a")
    assert partial_blocks(path) == 0
    found = {row["id"]: (row["ts"], row["a"], row["b"]) for row in both_read(hudi, path).to_pylist()}
    assert (found["k03"], found["k17"]) == ((20, "a20-3", 310), (10, "a10-17", 1710))


@pytest.mark.parametrize("who", ["ours", "theirs"])
def test_log_compactions_of_partial_updates(hudi: ApacheHudi, tmp_path: Path, who: str) -> None:
    """Log compactions of PyHudi contain partial blocks again. Those of Hudi skip partial updates and list them as merged; PyHudi
    reads them.
    """
    path, options = tmp_path / "t", {**OPTIONS, "hoodie.log.compaction.blocks.threshold": 2}
    Table.create(path, options=options).insert(full_rows(range(24), 10))
    update_by_pyhudi(path, range(0, 12), 20, "a")
    update_by_pyhudi(path, range(6, 18), 30, "b")
    Table(path, options=options).upsert(full_rows(range(16, 20), 40))
    Table(path, options=options).delete(full_rows(range(0, 3), 0).select(["id", "part"]))
    before = both_read(hudi, path)
    blocks = partial_blocks(path)
    if who == "ours":
        assert Table(path, options=options).log_compact().runs
        assert partial_blocks(path) > blocks
    else:
        instant = real_log_compaction(hudi, path, "EVENT_TIME_ORDERING", "avro")
        real_log_compaction(hudi, path, "EVENT_TIME_ORDERING", "avro", instant)
        assert partial_blocks(path) == blocks
    assert_same_rows(both_read(hudi, path), before)
    update_by_pyhudi(path, range(4, 8), 50, "words")
    again = both_read(hudi, path)
    assert again.num_rows == before.num_rows
    Table(path, options=options).compact()
    assert_same_rows(both_read(hudi, path), again, ignoring=("_hoodie_file_name",))


def test_a_partial_update_after_a_late_row(hudi: ApacheHudi, tmp_path: Path) -> None:
    """Apache Hudi's takes what it lacks from the late row, in both readers and in its compaction; ours is written whole."""
    path, copy = tmp_path / "late_news", tmp_path / "ours"
    options = {**OPTIONS, "hoodie.table.name": "late_news"}
    hudi.write(full_rows(range(2), 5), path, **(options | {OPERATION: "insert"}))
    hudi.sql(f"CREATE TABLE late_news USING hudi LOCATION '{path}'")
    hudi.write(full_rows(range(1), 3), path, **(options | {OPERATION: "upsert"}))
    shutil.copytree(path, copy)
    update_by_hudi(hudi, "late_news", range(1), 6, "a")
    Table(copy, options=options).upsert(full_rows(range(1), 6).select(["id", "part", "ts", "a"]), partial=True)

    def seen(table: pa.Table) -> list[tuple[Any, ...]]:
        return [(row["ts"], row["a"], row["b"]) for row in sorted(table.to_pylist(), key=lambda row: row["id"])]

    other = (5, "a5-1", 105)
    for where, row in ((path, (6, "a6-0", 3)), (copy, (6, "a6-0", 5))):
        assert seen(hudi.read(where, **READ)) == seen(Table(where).scan().to_arrow()) == [row, other]
    Table(copy, options=options).compact()
    assert seen(hudi.read(copy, **READ)) == [(6, "a6-0", 5), other]
    hudi.sql("DROP TABLE late_news")


@pytest.mark.parametrize("kind", ["mor", pytest.param("cow", marks=pytest.mark.wide)])
def test_updates_merges_and_partial_updates(newer_hudi: ApacheHudi, tmp_path: Path, kind: str) -> None:
    shared = SharedTable(newer_hudi, tmp_path / "t", kind)
    shared.theirs(keyed_rows(*((key, 1, f"{key}1", 1) for key in "abcdef")))
    shared.table.update({"v": "'updated'"}, where="qty = 1 AND id < 'c'")
    assert shared.same()["b"] == "updated"
    merge = shared.table.merge(keyed_rows(("b", 2, "merged", 2), ("g", 2, "merged", 2)), on=["id", "city"])
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert (shared.same()["b"], shared.same()["g"]) == ("merged", "merged")
    if kind == "mor":
        shared.hudi.register(shared.path, shared.name)
        shared.hudi.sql("SET hoodie.compact.inline.max.delta.commits=100")
        shared.hudi.view("daily_news", keyed_rows(("d", 5, "by them", 9)).select(["id", "city", "ts", "v"]))
        shared.hudi.sql(
            f"MERGE INTO {shared.name} t USING daily_news s ON t.id = s.id AND t.city = s.city "
            "WHEN MATCHED THEN UPDATE SET t.ts = s.ts, t.v = s.v"
        )
        shared.table.upsert(
            keyed_rows(("d", 6, "by us", 7), ("e", 6, "by us", 7)).select(["id", "city", "ts", "v"]), partial=True
        )
        assert (shared.same()["d"], shared.same()["e"]) == ("by us", "by us")
        assert set(shared.table.scan(["qty"], filter="id IN ('d', 'e')").to_arrow()["qty"].to_pylist()) == {1}
        shared.table.compact()
        shared.same()
    shared.theirs(keyed_rows(("b", 9, "b9", 9)))
    assert shared.same()["b"] == "b9"
    shared.checked()


@pytest.mark.parametrize("payload", ["PartialUpdate", pytest.param("OverwriteNonDefaultsWithLatest", marks=pytest.mark.wide)])
def test_partial_updates_and_moves_under_update_modes(newer_hudi: ApacheHudi, tmp_path: Path, payload: str) -> None:
    """The same statements to one table each, as MERGE INTO and as ours: the rows are the same, and each reads the other's."""
    more = {
        "hoodie.datasource.write.payload.class": f"org.apache.hudi.common.model.{payload}AvroPayload",
        "hoodie.index.type": "RECORD_INDEX",
        "hoodie.metadata.record.index.enable": True,
        "hoodie.record.index.update.partition.path": True,
    }
    mine, other = (SharedTable(newer_hudi, tmp_path / name, "mor", more) for name in ("mine", "other"))
    mine.create()
    first = keyed_rows(("a", 5, "a5", 1), ("b", 5, "b5", 2), ("c", 5, None, 3), ("d", 5, "d5", None))
    moved = keyed_rows(("a", 6, None, 9), ("b", 4, "late", None), ("c", 5, None, None), ("d", 4, "late", 7))
    moved = moved.set_column(1, "city", pa.array(["y", "y", "x", "x"]))
    news = keyed_rows(("c", 8, "c8", 0), ("a", 3, "late", 0), ("d", 8, None, 0))
    for shared in (mine, other):
        (shared.ours if shared is mine else shared.theirs)(first)
        (shared.ours if shared is mine else shared.theirs)(moved)
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
    mine.theirs(keyed_rows(("a", 9, None, 10)))
    other.ours(keyed_rows(("a", 9, None, 10)))
    for shared in (mine, other):
        shared.same()
        shared.checked()
    assert_same_rows(mine.table.scan().to_arrow(), other.table.scan().to_arrow(), key=["id"])
