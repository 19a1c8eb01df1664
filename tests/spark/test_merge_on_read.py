"""Merge on read on Spark: writes, payload classes, a registered merger, partial updates, services."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi import spark as hs
from pyhudi.engines.spark.engine import SparkEngine
from pyhudi.format.log.framing import BlockType, HeaderKey, LogBlock
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.table.snapshot import load_snapshot
from pyhudi.tasks.log_scan import read_headers
from tests.support.log_file_cases import created as log_files_table
from tests.support.log_file_cases import run_log_files
from tests.support.non_blocking import ActingStorage
from tests.support.payload_cases import CASES, OLD, PAYLOADS, SCHEMA, KeepHighest, record, scores
from tests.support.rows import assert_same_rows
from tests.support.small_inserts import created, run_small_inserts
from tests.support.summing_merger import Sums

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL: dict[str, Any] = {
    "hoodie.index.bloom.num_entries": 100,
    "hoodie.parquet.small.file.limit": 0,
    "hoodie.compact.inline": False,
    "hoodie.log.compaction.blocks.threshold": 2,
}
KEYS = range(40)


def made(path: Path, **options: object) -> hp.Table:
    table = hp.Table.create(
        path, name="t", record_key="id", partition_by="part", ordering="ts", table_type="mor", options={**SMALL, **options}
    )
    table.insert(rows(KEYS, 5))
    return table


def rows(numbers: range, ts: int) -> pa.Table:
    return pa.table(
        {
            "id": [f"k{n:02}" for n in numbers],
            "part": ["xy"[n % 2] for n in numbers],
            "ts": pa.array([ts] * len(numbers), pa.int64()),
            "a": [f"a{ts}-{n}" for n in numbers],
            "b": pa.array([n + ts for n in numbers], pa.int64()),
        }
    )


def on_spark(spark: SparkSession, table: hp.Table) -> pa.Table:
    """What Spark reads; the embedded reader gives the same."""
    found = hs.read(spark, str(table.uri)).select("id", "part", "ts", "a", "b").toArrow()
    assert_same_rows(found, table.scan().to_arrow(), ignoring=())
    return found


def blocks(table: hp.Table) -> list[LogBlock]:
    snapshot = load_snapshot(table.context)
    logs = [log for found in snapshot.slices(None).values() for slice_ in found for log in slice_.logs]
    return [b for log in logs for b in read_headers(table.context.storage, log) if isinstance(b, LogBlock)]


@pytest.mark.parametrize("log_format", ["avro", "hfile"])
def test_logs_of_spark_are_those_of_the_embedded_engine(spark: SparkSession, tmp_path: Path, log_format: str) -> None:
    spark_table, embedded = (
        made(tmp_path / name, **{"hoodie.logfile.data.block.format": log_format}) for name in ("spark", "embedded")
    )
    news, gone = rows(range(0, 20), 7), rows(range(16, 24), 0).select(["id", "part"])
    spark_table.upsert(spark.createDataFrame(news.to_pandas()))
    spark_table.delete(spark.createDataFrame(gone.to_pandas()))
    embedded.upsert(news)
    embedded.delete(gone)
    assert_same_rows(on_spark(spark, spark_table), embedded.scan().to_arrow(), ignoring=())
    assert spark_table.scan().to_arrow().num_rows == 32
    for table in (spark_table, embedded):
        assert {block.kind for block in blocks(table)} == {BlockType[log_format.upper()], BlockType.DELETE}
        with_rows = [b for b in blocks(table) if b.header(HeaderKey.RECORD_POSITIONS) is not None]
        assert len(with_rows) == (4 if log_format == "avro" else 0)


def test_replacing_writes(spark: SparkSession, tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.upsert(rows(range(0, 20), 7))
    hs.write(
        spark.createDataFrame(rows(range(0, 4, 2), 9).to_pandas()),
        str(tmp_path / "t"),
        options={"hoodie.datasource.write.operation": "insert_overwrite", **SMALL},
    )
    assert sorted(set(on_spark(spark, table).column("ts").to_pylist())) == [5, 7, 9]
    assert sum(part == "x" for part in on_spark(spark, table).column("part").to_pylist()) == 2
    table.delete_partitions("x", spark=spark)
    assert set(on_spark(spark, table).column("part").to_pylist()) == {"y"}


# Each payload class once, and the one with partial rows on both types.
@pytest.mark.parametrize(
    ("payload", "table_type"),
    [
        *((name, "mor") for name in PAYLOADS if name not in {"EvT", "My"}),
        *((name, "cow") for name in ("EvT", "PU", "My")),
        *(pytest.param(name, "mor", marks=pytest.mark.wide) for name in ("EvT", "My")),
    ],
)
def test_payload_classes(spark: SparkSession, tmp_path: Path, payload: str, table_type: str) -> None:
    table = hp.Table.create(
        tmp_path / "t",
        name="p",
        record_key="id",
        ordering="ts",
        table_type=table_type,
        options={"hoodie.datasource.write.payload.class": PAYLOADS[payload], **SMALL},
    )
    stored = [record(case, *OLD) for case in CASES if not case.startswith("new key")]
    table.insert(pa.Table.from_pylist(stored, schema=SCHEMA))
    incoming = [record(case, *row) for case, (cases, _) in CASES.items() for row in cases]
    # One partition: between rows with equal ordering values their order decides.
    table.upsert(spark.createDataFrame(pa.Table.from_pylist(incoming, schema=SCHEMA)).coalesce(1))
    read = hs.read(spark, str(tmp_path / "t")).select("id", "ts", "a", "b").collect()
    found = {row["id"]: (row["ts"], row["a"], row["b"]) for row in read}
    for case, (_, expected) in CASES.items():
        wanted = expected[payload]
        if wanted is not None and len(wanted) == 2:
            wanted = wanted[table_type == "mor"]
        assert found.get(case) == wanted, case


@pytest.mark.wide
@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("payload", ["OND", "PU", "Pg"])
def test_payload_classes_of_records_that_move(spark: SparkSession, tmp_path: Path, payload: str, table_type: str) -> None:
    """Every record of the batch names another partition, and meets its stored one before it goes there."""
    moving = {**SMALL, "hoodie.index.type": "GLOBAL_SIMPLE", "hoodie.simple.index.update.partition.path": True}
    table = hp.Table.create(
        tmp_path / "t",
        name="p",
        record_key="id",
        partition_by="city",
        ordering="ts",
        table_type=table_type,
        options={"hoodie.datasource.write.payload.class": PAYLOADS[payload], **SMALL},
    )
    stored = pa.Table.from_pylist([record(case, *OLD) for case in CASES if not case.startswith("new key")], schema=SCHEMA)
    table.insert(stored.append_column("city", pa.repeat("old", stored.num_rows)))
    incoming = pa.Table.from_pylist([record(case, *row) for case, (cases, _) in CASES.items() for row in cases], schema=SCHEMA)
    frame = spark.createDataFrame(incoming.append_column("city", pa.repeat("new", incoming.num_rows))).coalesce(1)
    table.upsert(frame, options=moving)
    read = hs.read(spark, str(tmp_path / "t")).select("id", "ts", "a", "b", "city", "_hoodie_partition_path").collect()
    assert all(row["city"] == row["_hoodie_partition_path"] for row in read)
    found = {row["id"]: (row["ts"], row["a"], row["b"]) for row in read}
    assert len(found) == len(read)
    for case, (_, expected) in CASES.items():
        wanted = expected[payload]
        if wanted is not None and len(wanted) == 2:
            wanted = wanted[table_type == "mor"]
        assert found.get(case) == wanted, case


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_registered_merger(spark: SparkSession, tmp_path: Path, table_type: str) -> None:
    hp.register_merger(KeepHighest())
    options = {**SMALL, "hoodie.write.record.merge.strategy.id": KeepHighest.strategy_id}
    table = hp.Table.create(tmp_path / "t", name="t", record_key="id", table_type=table_type, options=options)
    table.insert(scores(a=5, b=5, c=1))
    table.upsert(spark.createDataFrame(scores(a=3, b=8)))
    table.upsert(spark.createDataFrame(scores(a=9, b=2, d=4)))
    expected = {"a": 9, "b": 8, "c": 1, "d": 4}
    assert {row["id"]: row["score"] for row in hs.read(spark, str(tmp_path / "t")).collect()} == expected
    if table_type == "mor":
        assert table.compact(spark=spark).instant is not None
        assert {row["id"]: row["score"] for row in table.scan().to_arrow().to_pylist()} == expected


@pytest.mark.parametrize("mode", ["EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING"])
def test_partial_updates(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    table = made(tmp_path / "t", **{"hoodie.write.record.merge.mode": mode})
    some = rows(range(30, 50), 7).select(["id", "part", "ts", "a"])
    table.upsert(spark.createDataFrame(some.to_pandas()), partial=True)
    found = {row["id"]: (row["ts"], row["a"], row["b"]) for row in on_spark(spark, table).to_pylist()}
    assert len(found) == 40
    assert found["k30"] == (7, "a7-30", 35)
    assert found["k29"] == (5, "a5-29", 34)
    assert all(block.is_partial is (mode == "EVENT_TIME_ORDERING") for block in blocks(table))
    options = {**SMALL, "pyhudi.partial.update": True, "hoodie.datasource.write.operation": "upsert"}
    hs.write(
        spark.createDataFrame(rows(range(30, 31), 9).select(["id", "part", "ts", "b"])), str(tmp_path / "t"), options=options
    )
    assert table.compact(spark=spark).instant is not None
    found = {row["id"]: (row["ts"], row["a"], row["b"]) for row in on_spark(spark, table).to_pylist()}
    assert found["k30"] == (9, "a7-30", 39)


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_merger_merges_partial_updates(spark: SparkSession, tmp_path: Path, table_type: str) -> None:
    hp.register_merger(Sums())
    options = {**SMALL, "hoodie.write.record.merge.strategy.id": Sums.strategy_id}
    table = hp.Table.create(
        tmp_path / "t", name="t", record_key="id", partition_by="part", ordering="ts", table_type=table_type, options=options
    )
    table.insert(rows(range(0, 8), 5))
    for ts, column in ((6, "b"), (7, "b"), (8, "a")):
        some = rows(range(0, 4), ts).select(["id", "part", "ts", column])
        table.upsert(spark.createDataFrame(some.to_pandas()), partial=True)
    table.upsert(spark.createDataFrame(rows(range(0, 1), 60).select(["id", "part", "ts", "b"]).to_pandas()), partial=True)
    table.upsert(spark.createDataFrame(rows(range(1, 2), 90).select(["id", "part", "ts", "b"]).to_pandas()), partial=True)
    found = {row["id"]: (row["ts"], row["a"], row["b"]) for row in on_spark(spark, table).to_pylist()}
    # b: 1 + 5, 1 + 6, 1 + 7 and 1 + 90 are more than a record may have.
    assert (len(found), "k01" in found) == (7, False)
    assert (found["k00"], found["k02"], found["k07"]) == ((60, "a8-0", 78), (8, "a8-2", 24), (5, "a5-7", 12))
    if table_type == "mor":
        assert any(block.is_partial for block in blocks(table))
        assert table.compact(spark=spark).instant is not None
        assert {row["id"]: row["b"] for row in on_spark(spark, table).to_pylist()} == {key: row[2] for key, row in found.items()}


def test_partial_updates_by_bucket(spark: SparkSession, tmp_path: Path) -> None:
    table = made(tmp_path / "t", **{"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 2})
    some = rows(range(30, 50), 7).select(["id", "part", "ts", "a"])
    table.upsert(spark.createDataFrame(some.to_pandas()), partial=True)
    found = {row["id"]: (row["ts"], row["a"], row["b"]) for row in on_spark(spark, table).to_pylist()}
    assert len(found) == 40
    assert (found["k30"], found["k29"]) == ((7, "a7-30", 35), (5, "a5-29", 34))
    assert any(block.is_partial for block in blocks(table))


def test_services_run_their_tasks_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    for ts in (7, 8):
        table.upsert(rows(range(0, 20), ts))
    table.delete(rows(range(18, 22), 0).select(["id", "part"]))
    before = table.scan().to_arrow()
    planned = table.schedule_log_compaction(spark=spark).planned
    assert planned is not None
    assert table.log_compact(planned, spark=spark).instant is not None
    assert any(block.compacted_block_times for block in blocks(table))
    assert_same_rows(on_spark(spark, table), before, ignoring=())
    assert table.compact(spark=spark).instant is not None
    assert not blocks(table)
    assert_same_rows(on_spark(spark, table), before, ignoring=())
    planned_clustering = table.schedule_clustering(order_by="b", spark=spark)
    assert planned_clustering.instant is not None
    assert table.cluster(planned_clustering.instant, spark=spark).instant == planned_clustering.instant
    assert_same_rows(on_spark(spark, table), before, ignoring=())
    retain = {"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": 1}
    cleaned = table.clean(dry_run=False, spark=spark, options=retain)
    assert cleaned.instant is not None
    assert sum(len(names) for names in cleaned.files.values()) >= 4
    assert_same_rows(on_spark(spark, table), before, ignoring=())


def test_both_engines_append_to_the_buckets_of_new_partitions_at_once(spark: SparkSession, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        **SMALL,
        "hoodie.index.type": "BUCKET",
        "hoodie.bucket.index.num.buckets": 2,
        "hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL",
    }
    path = tmp_path / "t"
    table = hp.Table.create(
        path, name="t", record_key="id", partition_by="part", ordering="ts", table_type="mor", options=options
    )
    storage = ActingStorage(table.context.storage, lambda: hp.Table(path, options=options).upsert(rows(range(0, 40, 3), 6)))
    settings = WriteSettings.of(parse_options(options), WriteOperation.UPSERT)
    context = replace(table.context, storage=storage)
    done = run_write(context, SparkEngine(spark), spark.createDataFrame(rows(KEYS, 5).to_pandas()), settings)
    assert done.conflict_retries == 0
    assert len(table.timeline().completed_writes()) == 2
    files = {file.name for file in path.glob("[xy]/*") if not file.name.endswith((".crc", "partition_metadata"))}
    assert {name[:38] for name in files} == {f".{bucket:08}-0000-0000-0000-000000000000-" for bucket in range(2)}
    expected = {f"k{n:02}": 6 if n % 3 == 0 else 5 for n in KEYS}
    assert dict(zip(*(on_spark(spark, table).column(name).to_pylist() for name in ("id", "ts")), strict=True)) == expected
    table.compact(spark=spark)
    assert dict(zip(*(on_spark(spark, table).column(name).to_pylist() for name in ("id", "ts")), strict=True)) == expected


def test_few_inserts_do_not_rewrite_a_large_file(spark: SparkSession, tmp_path: Path) -> None:
    run_small_inserts(created(tmp_path / "t"), spark.createDataFrame)


def test_a_write_of_several_log_files(spark: SparkSession, tmp_path: Path) -> None:
    run_log_files(log_files_table(tmp_path / "t"), spark.createDataFrame)
