"""Each copy-on-write operation on Spark matches a dictionary, with the keys of the embedded engine."""

from __future__ import annotations

import datetime
import decimal
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi import Table
from pyhudi import spark as hs
from pyhudi.engines.spark import distributed_lookup
from pyhudi.engines.spark import engine as spark_engine
from pyhudi.engines.spark import incoming as spark_incoming
from pyhudi.engines.spark.engine import SparkEngine
from pyhudi.errors import InvalidRequest, StorageUnavailable, TableExists, Unsupported, WriteConflict
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.table.snapshot import read_commit
from tests.support.needs import WIDE
from tests.support.paused_write import PausedWrite
from tests.support.rows import assert_same_rows, without_meta
from tests.support.spark_key_lookup import go
from tests.support.spark_trips import FIRST, OPTIONS, SCHEMA, frame_of, rows_of, stored, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_commits_record_event_times(spark: SparkSession, tmp_path: Path) -> None:
    rows = [("a", "sf", 1_700_000_009, 1.0), ("b", "sf", 1_700_000_001, 1.0)]
    told = {"hoodie.payload.event.time.field": "ts"}
    written(spark, tmp_path, rows, "bulk_insert", **told)
    table = Table(str(tmp_path))
    stats = read_commit(table.context.timeline, table.timeline().completed_writes()[-1]).write_stats
    assert {stat.min_event_time for stat in stats} | {stat.max_event_time for stat in stats} == {
        1_700_000_001_000,
        1_700_000_009_000,
    }


def test_duplicates_of_a_batch_become_the_newest(spark: SparkSession, tmp_path: Path, lookups: str) -> None:
    stored(tmp_path / "t", FIRST[:10])
    many = [("id1", "sf", ts, float(ts)) for ts in (7, 900, 8)] + [("x", "sf", ts, float(ts)) for ts in (3, 1, 2)]
    result = written(spark, tmp_path / "t", many)
    assert (result.rows_in, result.rows_combined, result.rows_inserted, result.rows_updated) == (6, 4, 1, 1)
    found = {row[0]: row for row in rows_of(spark, tmp_path / "t")}
    assert found["id1"] == ("id1", "sf", 900, 900.0)
    assert found["x"] == ("x", "sf", 3, 3.0)
    assert len(found) == 11


def test_nested_nulls_take_the_type_of_the_table(spark: SparkSession, tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), record_key="id")
    table.insert(
        pa.table(
            {
                "id": pa.array([1]),
                "s": pa.array([None], pa.struct([("a", pa.int64()), ("b", pa.string())])),
                "l": pa.array([None], pa.list_(pa.int64())),
                "m": pa.array([None], pa.map_(pa.string(), pa.float64())),
            }
        )
    )
    before = table.schema()
    untyped = spark.sql("SELECT 2L AS id, named_struct('a', 1L, 'b', NULL) AS s, array() AS l, map('k', NULL) AS m")
    assert "void" in untyped.schema.simpleString()
    table.upsert(untyped)
    table.upsert(spark.sql("SELECT 3L AS id, named_struct('b', NULL, 'a', NULL) AS s, array(NULL) AS l, NULL AS m"))
    assert table.schema() == before
    assert table.scan(filter="id > 1").to_arrow().sort_by("id").to_pylist() == [
        {"id": 2, "s": {"a": 1, "b": None}, "l": [], "m": [("k", None)]},
        {"id": 3, "s": {"a": None, "b": None}, "l": [None], "m": None},
    ]
    with pytest.raises(InvalidRequest, match=r"'m' has the Spark type map<void,void>.*cast it first"):
        table.upsert(spark.sql("SELECT 3L AS id, map() AS m"))
    nothing = spark.sql("SELECT NULL AS id WHERE false")
    assert table.delete(nothing).rows_deleted == 0


def test_keys_to_delete_may_come_twice(spark: SparkSession, tmp_path: Path, lookups: str) -> None:
    stored(tmp_path / "t", FIRST[:10])
    twice = spark.createDataFrame([("id1", "sf"), ("id1", "sf"), ("id2", "ny")], "id string, city string")
    assert hp.Table(str(tmp_path / "t")).delete(keys=twice).rows_deleted == 2
    assert len(rows_of(spark, tmp_path / "t")) == 8


# Each pair of values once.
@pytest.mark.parametrize(
    ("lookups", "table_type", "meta"),
    [
        ("few keys", "COPY_ON_WRITE", True),
        ("few keys", "MERGE_ON_READ", False),
        ("many keys", "COPY_ON_WRITE", False),
        ("many keys", "MERGE_ON_READ", True),
        pytest.param("few keys", "COPY_ON_WRITE", False, marks=pytest.mark.wide),
        pytest.param("few keys", "MERGE_ON_READ", True, marks=pytest.mark.wide),
        pytest.param("many keys", "COPY_ON_WRITE", True, marks=pytest.mark.wide),
        pytest.param("many keys", "MERGE_ON_READ", False, marks=pytest.mark.wide),
    ],
    indirect=["lookups"],
)
def test_delete_by_filter_runs_on_the_session(
    spark: SparkSession, tmp_path: Path, lookups: str, monkeypatch: pytest.MonkeyPatch, table_type: str, meta: bool
) -> None:
    options = {
        "hoodie.datasource.write.table.type": table_type,
        "hoodie.parquet.small.file.limit": "0",
        "hoodie.populate.meta.fields": str(meta).lower(),
    }
    stored(tmp_path / "t", FIRST, **options)
    newer = [(f"id{n}", "sf" if n % 2 else "ny", n + 1000, -1.0) for n in range(10)]
    stored(tmp_path / "t", newer, **options)
    shutil.copytree(tmp_path / "t", tmp_path / "twin")
    embedded = hp.Table(str(tmp_path / "twin")).delete(where="fare < 0 OR ts IN (20, 21)")

    def refused(*_: object) -> None:
        raise AssertionError("the rows were read by threads of the driver")

    # With the many keys of a large table not even the keys come to the driver.
    monkeypatch.setattr("pyhudi.engines.arrow.engine.LocalEngine.map", refused)
    result = hp.Table(str(tmp_path / "t")).delete(where="fare < 0 OR ts IN (20, 21)", spark=spark)
    monkeypatch.undo()
    assert result.rows_deleted == embedded.rows_deleted == 12
    assert (result.log_files, result.file_groups_rewritten) == (embedded.log_files, embedded.file_groups_rewritten)
    assert rows_of(spark, tmp_path / "t") == rows_of(spark, tmp_path / "twin")
    assert rows_of(spark, tmp_path / "t") == sorted(row for row in FIRST if row[2] >= 10 and row[2] not in (20, 21))
    nothing = hp.Table(str(tmp_path / "t")).delete(where="ts > 5000", spark=spark)
    assert nothing.rows_deleted == 0
    with pytest.raises(InvalidRequest, match="takes no spark="):
        hp.Table(str(tmp_path / "t")).delete(keys=pa.table({"id": ["id50"]}), spark=spark)


def test_soft_deletes(spark: SparkSession, tmp_path: Path, lookups: str) -> None:
    schema = SCHEMA + ", _hoodie_is_deleted boolean"
    first = frame_of(spark, [(*row, False) for row in FIRST[:6]], schema)
    hp.Table.create(str(tmp_path / "t"), options=OPTIONS).upsert(first.toArrow())
    gone = [("id1", "sf", 500, 0.0, True), ("id2", "ny", -1, 0.0, True), ("id3", "sf", 500, 9.0, False)]
    result = hs.write(frame_of(spark, gone, schema), str(tmp_path / "t"), options=OPTIONS)
    assert (result.rows_deleted, result.rows_updated) == (1, 1)
    assert {row[0]: row[3] for row in rows_of(spark, tmp_path / "t")} == {
        "id0": 0.0,
        "id2": 1.0,
        "id3": 9.0,
        "id4": 2.0,
        "id5": 2.5,
    }


def test_insert_keeps_duplicates_by_default(spark: SparkSession, tmp_path: Path) -> None:
    stored(tmp_path / "t", FIRST[:4], "insert")
    written(spark, tmp_path / "t", FIRST[:4], "insert")
    assert len(rows_of(spark, tmp_path / "t")) == 8
    dropped = written(spark, tmp_path / "t", FIRST[:6], "insert", **{"hoodie.datasource.insert.dup.policy": "drop"})
    assert dropped.rows_inserted == 2
    with pytest.raises(InvalidRequest, match="exist in the table"):
        written(spark, tmp_path / "t", FIRST[:1], "insert", **{"hoodie.datasource.insert.dup.policy": "fail"})
    assert len(rows_of(spark, tmp_path / "t")) == 10


def test_insert_fills_small_files_and_splits_new_ones(spark: SparkSession, tmp_path: Path) -> None:
    sizing = {"hoodie.parquet.max.file.size": "2000000", "hoodie.copyonwrite.record.size.estimate": "100000"}
    first = written(spark, tmp_path / "t", [(f"a{n}", "sf", n, 0.0) for n in range(50)], "insert", **sizing)
    assert first.file_groups_new == 3
    again = written(spark, tmp_path / "t", [("b", "sf", 1, 0.0)], "insert", **sizing)
    assert (again.file_groups_new, again.file_groups_rewritten, again.rows_inserted) == (0, 1, 1)
    assert len(rows_of(spark, tmp_path / "t")) == 51


@pytest.mark.parametrize(
    "mode", ["NONE", "GLOBAL_SORT", "PARTITION_SORT", "PARTITION_PATH_REPARTITION", "PARTITION_PATH_REPARTITION_AND_SORT"]
)
def test_bulk_insert_sort_modes(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    result = written(spark, tmp_path / "t", FIRST, "bulk_insert", **{"hoodie.bulkinsert.sort.mode": mode})
    assert result.rows_inserted == 100
    if "PATH" in mode:
        assert result.file_groups_new == 2
    assert rows_of(spark, tmp_path / "t") == sorted(FIRST)
    if "SORT" in mode and "PATH" not in mode:
        for row in (
            hs.read(spark, str(tmp_path / "t")).groupBy("_hoodie_file_name").agg({"_hoodie_record_key": "collect_list"}).collect()
        ):
            assert row[1] == sorted(row[1])


def test_a_task_that_ends_when_its_write_is_over_removes_its_files(spark: SparkSession, tmp_path: Path) -> None:
    stored(tmp_path / "t", FIRST)
    before = sorted(tmp_path.glob("t/*/*.parquet"))
    beats = tmp_path / "t" / ".hoodie" / ".heartbeat"

    def over(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for beat in beats.iterdir():
            beat.unlink(missing_ok=True)
        yield from batches

    frame = frame_of(spark, FIRST)
    options = {
        **OPTIONS,
        "hoodie.datasource.write.operation": "bulk_insert",
        "hoodie.write.num.retries.on.conflict.failures": "0",
    }
    with pytest.raises(WriteConflict, match="while one of its tasks was writing"):
        hs.write(frame.mapInArrow(over, frame.schema), str(tmp_path / "t"), mode="append", options=options)
    assert sorted(tmp_path.glob("t/*/*.parquet")) == before


def test_delete_partitions_by_option_and_by_rows(spark: SparkSession, tmp_path: Path) -> None:
    stored(tmp_path / "t", [*FIRST, ("z", "la", 1, 1.0)])
    written(spark, tmp_path / "t", [], "delete_partition", **{"hoodie.datasource.write.partitions.to.delete": "s*"})
    assert {row[1] for row in rows_of(spark, tmp_path / "t")} == {"ny", "la"}
    written(spark, tmp_path / "t", [("any", "la", 0, 0.0)], "delete_partition")
    assert {row[1] for row in rows_of(spark, tmp_path / "t")} == {"ny"}


@pytest.mark.parametrize(
    ("lookups", "index"),
    [
        ("many keys", "GLOBAL_SIMPLE"),
        ("driver", "GLOBAL_BLOOM"),
        pytest.param("few keys", "GLOBAL_SIMPLE", marks=pytest.mark.wide),
        pytest.param("many keys", "GLOBAL_BLOOM", marks=pytest.mark.wide),
    ],
    indirect=["lookups"],
)
def test_global_index_moves_records(spark: SparkSession, tmp_path: Path, lookups: str, index: str) -> None:
    options = {"hoodie.index.type": index}
    stored(tmp_path / "t", FIRST, **options)
    moving = [
        ("id1", "la", 500, 1.0),  # wins and moves
        ("id2", "la", -1, 2.0),  # loses against the stored record
        ("id3", "sf", 500, 3.0),  # stays
        ("id5", "ny", 400, 4.0),  # moves into a partition that is there
        ("id5", "la", 300, 4.5),  # loses against the row before
        ("new", "la", 1, 5.0),
    ]
    written(spark, tmp_path / "t", moving, **options)
    expected = {row[0]: row for row in FIRST} | {row[0]: row for row in (moving[0], moving[2], moving[3], moving[5])}
    assert rows_of(spark, tmp_path / "t") == sorted(expected.values())


def test_user_columns_are_not_confused_with_internal_columns(spark: SparkSession, tmp_path: Path, lookups: str) -> None:
    names = ["delete", "file", "FILES", "group", "order", "home", "path", "stored_key"]
    schema = SCHEMA + "".join(f", _pyhudi_{name} boolean" for name in names)
    own = (True,) * len(names)
    rows = [("a", "sf", 1, 1.0, *own), ("b", "ny", 2, 2.0, *own), ("c", "sf", 3, 3.0, *own)]
    write = {**OPTIONS, "hoodie.index.type": "GLOBAL_SIMPLE"}
    hs.write(frame_of(spark, rows, schema), str(tmp_path / "t"), options=write)
    newer = [("a", "ny", 4, 4.0, *own), ("b", "ny", 5, 5.0, *own), ("d", "ny", 6, 6.0, *own)]
    hs.write(frame_of(spark, newer, schema), str(tmp_path / "t"), options=write)
    found = rows_of(spark, tmp_path / "t", "id, city, ts, fare, " + ", ".join(f"_pyhudi_{name}" for name in names))
    assert found == sorted([*newer, rows[2]])


def test_global_index_may_keep_records_in_place(spark: SparkSession, tmp_path: Path, lookups: str) -> None:
    options = {"hoodie.index.type": "GLOBAL_SIMPLE", "hoodie.simple.index.update.partition.path": "false"}
    stored(tmp_path / "t", FIRST, **options)
    written(spark, tmp_path / "t", [("id1", "la", 500, 1.0), ("new", "la", 1, 5.0)], **options)
    found = hs.read(spark, str(tmp_path / "t"))
    kept = found.where("id = 'id1'").collect()
    # The column has the value of the folder, whatever the file holds.
    assert [(row["_hoodie_partition_path"], row["city"], row["fare"]) for row in kept] == [("sf", "sf", 1.0)]
    assert found.count() == 101


def test_bloom_index_finds_what_simple_finds(spark: SparkSession, tmp_path: Path, lookups: str) -> None:
    sizing = {"hoodie.index.type": "BLOOM", "hoodie.parquet.small.file.limit": "0"}
    for start in range(0, 300, 100):
        stored(tmp_path / "t", [(f"k{n:04}", "sf", n, 0.0) for n in range(start, start + 100)], **sizing)
    result = written(spark, tmp_path / "t", [("k0005", "sf", 9000, 1.0), ("k0150", "sf", 9000, 1.0)], **sizing)
    assert (result.file_groups_rewritten, result.rows_updated, result.rows_inserted) == (2, 2, 0)
    assert sum(row[3] for row in rows_of(spark, tmp_path / "t")) == 2.0


def test_save_modes(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    frame = frame_of(spark, FIRST[:3])
    hs.write(frame, path, mode="errorifexists", options=OPTIONS)
    with pytest.raises(TableExists):
        hs.write(frame, path, mode="error", options=OPTIONS)
    assert hs.write(frame, path, mode="ignore", options=OPTIONS).instant is None
    hs.write(frame_of(spark, FIRST[5:6]), path, mode="overwrite", options=OPTIONS)
    assert rows_of(spark, path) == FIRST[5:6]
    with pytest.raises(InvalidRequest, match="mode 'sometimes' is unknown"):
        hs.write(frame, path, mode="sometimes", options=OPTIONS)
    with pytest.raises(InvalidRequest, match="requires mode append"):
        hs.write(frame, path, mode="overwrite", options={**OPTIONS, "hoodie.datasource.write.operation": "delete"})


def test_without_keys_rows_are_bulk_inserted_with_keys_of_their_own(spark: SparkSession, tmp_path: Path) -> None:
    result = hs.write(frame_of(spark, FIRST), str(tmp_path / "t"), options={"hoodie.table.name": "keyless"})
    assert result.operation == "bulk_insert"
    hs.write(frame_of(spark, FIRST), str(tmp_path / "t"))
    found = hs.read(spark, str(tmp_path / "t"))
    assert found.count() == 200
    assert found.select("_hoodie_record_key").distinct().count() == 200


@pytest.mark.parametrize(("bad", "named"), [(None, "null"), ("", "empty")])
def test_a_row_without_a_key_stops_the_write(spark: SparkSession, tmp_path: Path, bad: str | None, named: str) -> None:
    stored(tmp_path / "t", FIRST[:2])
    with pytest.raises(InvalidRequest, match="record key field 'id' is null or empty"):
        written(spark, tmp_path / "t", [("ok", "sf", 1, 1.0), (bad, "sf", 1, 1.0)])
    with pytest.raises(InvalidRequest, match=f"record key field 'id' is {named} in row 0"):
        written(spark, tmp_path / "t", [(bad, "sf", 1, 1.0)], "bulk_insert")
    assert rows_of(spark, tmp_path / "t") == FIRST[:2]
    written(spark, tmp_path / "t", [("ok", "sf", 1, 1.0)])
    assert len(rows_of(spark, tmp_path / "t")) == 3


@pytest.mark.parametrize("operation", ["upsert", "bulk_insert"])
def test_a_first_write_that_fails_on_its_rows_leaves_no_table(spark: SparkSession, tmp_path: Path, operation: str) -> None:
    with pytest.raises(InvalidRequest, match="record key field 'id' is null"):
        written(spark, tmp_path / "t", [("ok", "sf", 1, 1.0), (None, "sf", 1, 1.0)], operation)
    assert not Table.exists(tmp_path / "t")
    written(spark, tmp_path / "t", FIRST[:2])
    assert rows_of(spark, tmp_path / "t") == FIRST[:2]


# tests/unit/records/test_keys.py has every path that is refused.
@pytest.mark.parametrize("city", ["a/../b", "x:y"])
def test_a_path_that_no_store_holds_stops_the_write(spark: SparkSession, tmp_path: Path, city: str) -> None:
    with pytest.raises(InvalidRequest, match="partition path"):
        written(spark, tmp_path / "t", [("ok", city, 1, 1.0)])


def test_memory_tables_are_refused(spark: SparkSession) -> None:
    with pytest.raises(Unsupported, match="cannot access"):
        hs.write(frame_of(spark, FIRST[:1]), "memory://spark-tests/t", options=OPTIONS)


def test_rows_beyond_the_memory_budget(spark: SparkSession, tmp_path: Path) -> None:
    # The smallest share of a task is a mebibyte, so a few of these rows exceed it.
    rows = [(f"id{n}", "sf", n, "x" * 100_000) for n in range(60)]
    options = {**OPTIONS, "pyhudi.memory.budget.bytes": "1024"}
    schema = "id string, city string, ts long, note string"
    hs.write(
        frame_of(spark, rows, schema),
        str(tmp_path / "t"),
        options={**options, "hoodie.datasource.write.operation": "bulk_insert"},
    )
    hs.write(
        frame_of(spark, [(*row[:2], row[2] + 1, "y" * 100_000) for row in rows], schema), str(tmp_path / "t"), options=options
    )
    found = hs.read(spark, str(tmp_path / "t"))
    assert [
        tuple(row) for row in found.selectExpr("count(*)", "count(distinct id)", "min(note) = max(note)", "sum(ts)").collect()
    ] == [(60, 60, True, sum(range(1, 61)))]


def test_conflicting_column_types_name_the_columns(spark: SparkSession, tmp_path: Path) -> None:
    stored(tmp_path / "t", FIRST[:2])
    with pytest.raises(InvalidRequest, match="fare"):
        hs.write(
            spark.createDataFrame([("a", "sf", 1, True)], "id string, city string, ts long, fare boolean"),
            str(tmp_path / "t"),
            options=OPTIONS,
        )


def test_schema_evolves_and_old_files_are_cast(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    options = {**OPTIONS, "hoodie.parquet.small.file.limit": "0"}
    hs.write(
        spark.createDataFrame([("a", "sf", 1, 7, 0.1)], "id string, city string, ts long, n int, f float"), path, options=options
    )
    wide = "id string, city string, ts long, n long, f double, extra array<struct<x:int>>"
    hs.write(spark.createDataFrame([("b", "sf", 1, 1 << 40, 0.5, [(3,)])], wide), path, options=options)
    # An int for a long column, a missing column allowed.
    narrow = {**options, "hoodie.write.set.null.for.missing.columns": "true"}
    hs.write(
        spark.createDataFrame([("c", "ny", 1, 5, 2.5)], "id string, city string, ts long, n int, f float"), path, options=narrow
    )
    found = {row["id"]: (row["n"], row["f"], row["extra"]) for row in hs.read(spark, path).collect()}
    # A float becomes the double with the same shortest digits, as in Hudi.
    assert found["a"] == (7, 0.1, None)
    assert found["b"][:2] == (1 << 40, 0.5)
    assert found["b"][2][0]["x"] == 3
    assert found["c"] == (5, 2.5, None)
    assert_same_rows(hs.read(spark, path).toArrow(), hp.Table(path).scan(["*"]).to_arrow())
    assert hs.read(spark, path, filter="n > 6").count() == 2


def test_no_batch_changes_what_records_are_found_and_compared_by(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    options = {key: value for key, value in OPTIONS.items() if not key.endswith("partitionpath.field")}
    first = spark.createDataFrame([(1, 10, (1 << 53) + 1, 1.5)], "id long, ts long, n long, x double")
    hs.write(first, path, options=options)

    def written(select: list[str], **more: str) -> hp.WriteResult:
        frame = spark.createDataFrame([(1,)], "one int").selectExpr(*select)
        return hs.write(frame, path, options={**options, **more})

    for select in (["1D as id", "11L as ts"], ["1L as id", "'9' as ts"], ["1L as id", "11D as ts"]):
        with pytest.raises(InvalidRequest, match="cannot change"):
            written([*select, "5L as n", "1D as x"], **{"pyhudi.schema.mode": "evolve"})
    with pytest.raises(InvalidRequest, match=r"pyhudi\.schema\.mode=evolve"):
        written(["1L as id", "11L as ts", "1.5D as n", "1D as x"])
    with pytest.raises(InvalidRequest, match="9007199254740993 cannot be stored as double"):
        written(["1L as id", "11L as ts", "5L as n", "9007199254740993L as x"])
    result = written(["1L as id", "12 as ts", "null as n", "7L as x", "'a' as new"])
    assert result.schema_changes == ("new string is new",)
    assert hs.read(spark, path).select("id", "ts", "n", "x", "new").collect() == [(1, 12, None, 7.0, "a")]


TYPES_SCHEMA = (
    "i int, l long, s string, d date, b boolean, m decimal(10,2), fine decimal(20,8), t timestamp, x double, raw binary, "
    "byte tinyint, nest struct<`in`:string,n:int>, tags map<string,int>, ts long"
)
WHEN = datetime.datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=datetime.UTC)
TYPES_ROWS = [
    (
        1,
        1 << 40,
        "a b",
        datetime.date(2024, 5, 6),
        True,
        decimal.Decimal("1.50"),
        decimal.Decimal("0.00000001"),
        WHEN,
        1e20,
        b"\x00\xff",
        7,
        ("q", 1),
        {"k": 1},
        1,
    ),
    (
        -2,
        -3,
        "ü/%=:",
        datetime.date(1969, 12, 31),
        False,
        decimal.Decimal("-0.05"),
        decimal.Decimal("12.5"),
        WHEN.replace(year=1960),
        -0.5,
        b"z",
        -7,
        ("", None),
        {},
        1,
    ),
    (3, 4, None, None, None, None, None, None, None, None, None, None, None, 1),
]


# Those whose keys the ordinary run has looked up by Spark too: encoded text, what goes through Arrow, several columns.
LOOKED_UP = {"i,fine", "l,m", "s,i,b"}


@pytest.mark.parametrize(
    ("keys", "partitions", "extra"),
    [
        ("i", "s", {"hoodie.datasource.write.partitionpath.urlencode": "true"}),
        ("i,s", "d", {"hoodie.datasource.write.hive_style_partitioning": "true"}),
        ("l,m", "b,m", {}),
        ("i,fine", "fine", {}),
        ("i,t,raw", "t", {}),
        ("i,x", "x", {}),
        ("i,nest.in", "nest.in", {"hoodie.datasource.write.partitionpath.urlencode": "true"}),
        ("i,byte", "", {}),
        (
            "i",
            "t",
            {
                "hoodie.datasource.write.keygenerator.type": "TIMESTAMP",
                "hoodie.keygen.timebased.timestamp.type": "EPOCHMICROSECONDS",
                "hoodie.keygen.timebased.output.dateformat": "yyyy/MM/dd",
            },
        ),
        (
            "s,i,b",
            "b,s",
            {
                "hoodie.datasource.write.hive_style_partitioning": "true",
                "hoodie.datasource.write.partitionpath.urlencode": "true",
            },
        ),
    ],
)
def test_keys_and_paths_are_those_of_the_embedded_engine(
    spark: SparkSession, tmp_path: Path, keys: str, partitions: str, extra: dict[str, str]
) -> None:
    frame = spark.createDataFrame(TYPES_ROWS, TYPES_SCHEMA)
    options = {
        "hoodie.datasource.write.recordkey.field": keys,
        "hoodie.datasource.write.partitionpath.field": partitions,
        "hoodie.datasource.write.precombine.field": "ts",
        **extra,
    }
    hs.write(frame, str(tmp_path / "spark"), options={"hoodie.table.name": "t", **options})
    embedded = hp.Table.create(str(tmp_path / "embedded"), name="t", options=options)
    embedded.upsert(frame.toArrow())
    ignoring = ("_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_file_name")
    assert_same_rows(hp.Table(str(tmp_path / "spark")).scan(["*"]).to_arrow(), embedded.scan(["*"]).to_arrow(), ignoring=ignoring)
    assert hp.Table(str(tmp_path / "spark")).partitions() == embedded.partitions()
    # Reading through Spark's own scan gives the same, and every key is found again, by either engine.
    assert_same_rows(hs.read(spark, str(tmp_path / "spark")).toArrow(), embedded.scan(["*"]).to_arrow(), ignoring=ignoring)
    again = hp.Table(str(tmp_path / "spark")).upsert(frame.toArrow())
    assert (again.rows_updated, again.rows_inserted) == (3, 0)
    if WIDE or keys in LOOKED_UP:
        again = hs.write(frame, str(tmp_path / "spark"), options={"hoodie.table.name": "t", **options})
        assert (again.rows_updated, again.rows_inserted) == (3, 0)


def test_a_table_without_meta_columns(spark: SparkSession, tmp_path: Path, lookups: str) -> None:
    options = {"hoodie.populate.meta.fields": "false"}
    stored(tmp_path / "t", FIRST[:10], **options)
    result = written(spark, tmp_path / "t", [("id1", "sf", 900, -1.0), ("n", "sf", 1, 1.0)], **options)
    assert (result.rows_updated, result.rows_inserted) == (1, 1)
    assert len(rows_of(spark, tmp_path / "t")) == 11


def test_incoming_meta_columns_are_dropped(spark: SparkSession, tmp_path: Path) -> None:
    stored(tmp_path / "a", FIRST[:10])
    hs.write(hs.read(spark, str(tmp_path / "a")), str(tmp_path / "b"), options=OPTIONS)
    assert without_meta(hp.Table(str(tmp_path / "b")).scan(["*"]).to_arrow()).column_names == ["id", "city", "ts", "fare"]
    assert rows_of(spark, tmp_path / "b") == sorted(FIRST[:10])


def test_key_table_detects_duplicates() -> None:
    table = distributed_lookup.KeyTable(pa.array(["a", "b"]), ("p",), pa.array([0, 0]).to_numpy(), np.array([1, 2]))
    assert table.has_duplicates
    assert table.keys_are_unique


@pytest.mark.parametrize(
    ("longest", "limits", "way"),
    [
        pytest.param(4, {}, "few", marks=pytest.mark.wide),  # as every other test does
        (256, {}, "few"),
        (257, {}, "many"),
        (4, {"FEW_KEYS": 3}, "few"),
        (4, {"FEW_KEYS": 2}, "many"),
        (4, {"FEW_KEY_BYTES": 10}, "many"),
    ],
)
def test_few_and_many_keys_are_decided_by_number_and_size(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, longest: int, limits: dict[str, int], way: str
) -> None:
    keys = ["a" * longest, "b", "c"]
    stored(tmp_path / "t", [(key, "sf", 1, 1.0) for key in keys])
    go(monkeypatch, "few keys")
    for name, value in limits.items():
        monkeypatch.setattr(spark_incoming, name, value)
    ways: list[str] = []
    for taken, name in (("few", "lookup_on_driver"), ("many", "lookup_distributed")):
        look_up = getattr(spark_incoming, name)

        def noted(*given: Any, taken: str = taken, look_up: Any = look_up) -> Any:
            ways.append(taken)
            return look_up(*given)

        monkeypatch.setattr(spark_incoming, name, noted)
    result = written(spark, tmp_path / "t", [(key, "sf", 2, 2.0) for key in keys])
    assert ways == [way]
    assert (result.rows_in, result.rows_updated) == (3, 3)


@pytest.mark.parametrize("way", ["few keys", "many keys"])
def test_rows_given_and_combined(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """Tasks that write rows count those that they receive, and those that they drop for another row of their key."""
    go(monkeypatch, way)
    rows = [("a", "sf", 1, 1.0), ("a", "sf", 2, 2.0), ("b", "sf", 1, 3.0), ("a", "la", 3, 4.0)]
    combine = {"hoodie.combine.before.insert": "true"}
    cases: list[tuple[str, dict[str, str], int]] = [
        ("upsert", {"hoodie.index.type": "BUCKET"}, 1),
        ("upsert", {"hoodie.index.type": "GLOBAL_SIMPLE"}, 2),
        ("insert", {"hoodie.datasource.write.insert.drop.duplicates": "true"}, 1),
        ("insert", {}, 0),
        ("bulk_insert", combine, 1),
        ("bulk_insert", {**combine, "hoodie.index.type": "GLOBAL_SIMPLE"}, 2),
        ("bulk_insert", {}, 0),
        ("insert_overwrite_table", combine, 1),
    ]
    for number, (operation, options, combined) in enumerate(cases):
        result = written(spark, tmp_path / str(number), rows, operation, **options)
        assert (result.rows_in, result.rows_combined, operation) == (4, combined, operation)
        assert Table(tmp_path / str(number)).count() == 4 - combined
    deleted = written(spark, tmp_path / "3", rows, "delete")
    assert (deleted.rows_in, deleted.rows_combined, deleted.rows_deleted) == (4, 1, 4)
    unknown = written(spark, tmp_path / "0", [("x", "sf", 1, 1.0), ("x", "sf", 2, 1.0), *rows], "delete")
    # Rows of unknown keys are no task's.
    assert (unknown.rows_in, unknown.rows_combined) == (6, 2)


REFUSED: list[dict[str, object]] = [
    {"hoodie.write.lock.provider": "com.example.NoSuchLock"},
    {"as.of.instant": "2020"},
    {"pyhudi.filter": "ts > 1"},
    {"hoodie.datasource.write.partitions.to.delete": "sf"},
    {"hoodie.index.type": "HBASE"},
    {"hoodie.index.type": "RECORD_INDEX", "hoodie.metadata.enable": "false"},
    {"hoodie.datasource.write.operation": "bulk_insert", "hoodie.datasource.write.insert.drop.duplicates": True},
    {"hoodie.datasource.write.operation": "insert", "pyhudi.partial.update": True},
    {"pyhudi.partial.update": True},
    {"hoodie.datasource.write.recordkey.field": "nothing"},
    {"hoodie.datasource.write.precombine.field": None, "hoodie.write.record.merge.mode": "EVENT_TIME_ORDERING"},
    {"payload.class": "com.example.Payload"},
    {"archive.max_commits": "30"},
]


@pytest.mark.parametrize("options", REFUSED, ids=str)
def test_a_write_that_is_refused_leaves_no_table(spark: SparkSession, tmp_path: Path, options: dict[str, object]) -> None:
    path, frame = tmp_path / "t", spark.createDataFrame(FIRST, SCHEMA)
    with pytest.raises(InvalidRequest):
        hs.write(frame, path, options={**OPTIONS, **options})
    with pytest.raises(InvalidRequest):
        hs.StreamSink(path, {**OPTIONS, **options, "hoodie.datasource.write.streaming.checkpoint.identifier": "s"})(frame, 0)
    assert not path.exists()


def test_read_options_that_select_other_rows_are_rejected(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    hp.Table.create(path, options=OPTIONS).upsert(pa.table({"id": ["a"], "city": ["sf"], "ts": [1]}))
    begin, kind = "hoodie.datasource.read.begin.instanttime", "hoodie.datasource.query.type"
    for options in (
        {begin: "earliest"},
        {kind: "incremental", begin: "earliest", "as.of.instant": "2020"},
        {"hoodie.datasource.streaming.startOffset": "latest"},
        {"hoodie.datasource.query.incremental.format": "cdc"},
    ):
        with pytest.raises(InvalidRequest):
            hs.read(spark, path, options=options)
        with pytest.raises(Exception, match="InvalidRequest"):
            spark.read.format("pyhudi").options(**options).load(str(path)).collect()
    with pytest.raises(InvalidRequest, match=r"pyhudi\.filter"):
        hs.read(spark, path, filter="ts > 0", options={"pyhudi.filter": "ts > 1"})
    job = {**OPTIONS, "hoodie.datasource.write.operation": "insert", "hoodie.datasource.write.streaming.retry.count": "1"}
    assert hs.read(spark, path, options=job).count() == 1


@pytest.mark.parametrize("operation", ["upsert", "delete"])
def test_others_commit_clean_and_archive_while_rows_are_fetched(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    stored(tmp_path / "t", [("old", "sf", 1, 1.0)])
    forgetful = {"hoodie.clean.commits.retained": 1, "hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3}
    fetched = spark_engine.SparkIncoming.partitions
    left = [5]

    def partitions(self: spark_engine.SparkIncoming) -> dict[str, int]:
        counts = fetched(self)
        while left[0]:
            left[0] -= 1
            rows = {"id": ["old", "new"], "city": ["sf", "sf"], "ts": [2, 2], "fare": [float(left[0])] * 2}
            hp.Table(str(tmp_path / "t"), options=forgetful).upsert(pa.table(rows))
        return counts

    monkeypatch.setattr(spark_engine.SparkIncoming, "partitions", partitions)
    result = written(spark, tmp_path / "t", [("old", "sf", 3, 9.0), ("new", "sf", 3, 9.0)], operation)
    assert (left, result.conflict_retries) == ([0], 0)
    expected = [("new", "sf", 3, 9.0), ("old", "sf", 3, 9.0)] if operation == "upsert" else []
    assert rows_of(spark, tmp_path / "t") == expected


def test_repeatedly_conflicting_job_retries_exclusively(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(tmp_path / "t", [("old", "sf", 1, 1.0)])
    tag = spark_engine.SparkIncoming.tag
    landed: list[bool] = []

    def tagged(self: spark_engine.SparkIncoming, request: Any) -> Any:
        found = tag(self, request)
        try:
            rows = {"id": ["old"], "city": ["sf"], "ts": [2], "fare": [float(len(landed))]}
            hp.Table(str(tmp_path / "t"), options={"hoodie.write.lock.wait_time_ms": 0}).upsert(pa.table(rows))
            landed.append(True)
        except StorageUnavailable:
            landed.append(False)
        return found

    monkeypatch.setattr(spark_engine.SparkIncoming, "tag", tagged)
    options = {"pyhudi.write.exclusive.after.conflicts": "1"}
    result = written(spark, tmp_path / "t", [("old", "sf", 3, 9.0)], "upsert", **options)
    assert (landed, result.conflict_retries) == ([True, False], 1)
    assert rows_of(spark, tmp_path / "t") == [("old", "sf", 3, 9.0)]


def test_another_writer_changes_columns_of_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    """The rows are prepared once more, for the columns that the other writer left."""
    changes = {"pyhudi.schema.mode": "evolve", "hoodie.write.set.null.for.missing.columns": "true"}
    table = Table.create(tmp_path / "t", record_key="id", ordering="ts")
    table.insert(pa.table({"id": ["a", "b"], "ts": [1, 1], "n": pa.array([1, 1], pa.int32())}))
    ours = spark.createDataFrame([("a", 3, 7)], "id string, ts long, n int")
    settings = WriteSettings.of(parse_options(changes), WriteOperation.UPSERT)
    first = PausedWrite(table.context, lambda context: run_write(context, SparkEngine(spark), ours, settings))
    table.upsert(pa.table({"id": ["a"], "ts": [2], "n": ["x"], "more": [5]}), options=changes)
    first.finish()
    found = {row["id"]: row for row in Table(tmp_path / "t").scan().to_arrow().to_pylist()}
    assert found["a"] == {"id": "a", "ts": 3, "n": "7", "more": None} and found["b"]["n"] == "1"


def test_python_dictionaries_are_maps_where_the_table_has_maps(spark: SparkSession, tmp_path: Path) -> None:
    maps = pa.schema([("id", pa.int64()), ("m", pa.map_(pa.string(), pa.int64()))])
    path = Table.create(tmp_path / "t", record_key="id", schema=maps).uri
    hs.write([{"id": 1, "m": {"a": 1}}, {"id": 2, "m": None}], path, mode="append")
    merge = hs.merge(spark, path, [{"id": 2, "m": {"z": 2}}, {"id": 3, "m": {}}], on="id")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    hs.write(pd.DataFrame({"id": [4], "m": [{"p": 4}]}), path, mode="append")
    hs.write(({"id": number, "m": {"g": number}} for number in (5,)), path, mode="append")
    found = hs.read(spark, path).select("id", "m").collect()
    assert sorted(map(tuple, found)) == [(1, {"a": 1}), (2, {"z": 2}), (3, {}), (4, {"p": 4}), (5, {"g": 5})]


def test_text_that_is_not_utf8_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    table, distributed = Table.create(tmp_path / "t", record_key="id"), {"pyhudi.spark.driver.batch.bytes": 0}
    text = "CAST(X'FFFE' AS STRING)"
    for query in (
        f"SELECT 'a' AS id, {text} AS v",
        f"SELECT {text} AS id, 'x' AS v",
        f"SELECT 'a' AS id, map('k', array(named_struct('x', {text}))) AS v",
    ):
        with pytest.raises(InvalidRequest, match=r"column '(v|id)'.* not UTF-8"):
            hs.write(spark.sql(query), table.uri, "append", distributed)
    hs.write(spark.sql("SELECT 'a' AS id, map('k', array(named_struct('x', 'ä'))) AS v"), table.uri, "append", distributed)
    with pytest.raises(InvalidRequest, match="not UTF-8"):
        table.delete(spark.sql(f"SELECT {text} AS id"), options=distributed)
    assert table.scan().count() == 1
