"""The cases: how each golden table is written, step by step.

Traits by which tests choose:
    cow, mor                      table type            v6                          table version 6 (else 8)
    event_time, commit_time, custom                     merge mode
    avro_log, parquet_log, log_only                     what the logs hold; file groups without a base file
    deletes, partial_update, cdc, no_meta_fields, evolved_schema, key_generator, sql
    compaction, pending_compaction, log_compaction, clustering, pending_clustering, replace, clean, archived
    savepoint, restore, rollback, failed_write          the timeline has one; files of a failed write lie around
    mdt, record_index             with a metadata table (else without)
    bucket, consistent_bucket     index
    schema_on_read, bootstrap, path_columns             columns by ids; rows in files elsewhere; partition columns in paths alone
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from scripts.golden.maker import SMALL_FILES, Case, Maker
from tests.interop.oracle import RELEASE

CASES: list[Case] = []

KEY = "hoodie.datasource.write.recordkey.field"
ORDERING = "hoodie.datasource.write.precombine.field"
PARTITION = "hoodie.datasource.write.partitionpath.field"
TYPE = "hoodie.datasource.write.table.type"
KEY_GENERATOR = "hoodie.datasource.write.keygenerator.class"
INLINE_COMPACTION = "hoodie.compact.inline"
COMPACTION_AFTER = "hoodie.compact.inline.max.delta.commits"
BY_ID = "hoodie.schema.on.read.enable"
SMALL_FILE_LIMIT = "hoodie.parquet.small.file.limit"
MOR = "MERGE_ON_READ"

NO_SERVICES = {"hoodie.clean.automatic": False, "hoodie.archive.automatic": False}

TRIP = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("rider", pa.string()),
        ("fare", pa.float64()),
        ("city", pa.string()),
    ]
)
CITIES = ("amsterdam", "berlin", "chicago")


def trips(numbers: Iterable[int], ts: int, fare: float = 10.0) -> pa.Table:
    """Rows t000, t001, ...; city by number modulo 3; the fare tells the write that a row came from."""
    made = [
        {"id": f"t{n:03d}", "ts": ts, "rider": f"rider-{n % 4}" if n % 5 else None, "fare": fare + n, "city": CITIES[n % 3]}
        for n in numbers
    ]
    return pa.Table.from_pylist(made, TRIP)


# Registers a case under the name of its function.
def case(shows: str, *traits: str, release: str = RELEASE) -> Callable[[Callable[[Maker], None]], Callable[[Maker], None]]:
    def add(make: Callable[[Maker], None]) -> Callable[[Maker], None]:
        CASES.append(Case(make.__name__, shows, traits, make, release))
        return make

    return add


# -- copy on write ------------------------------------------------------------------------------------------------------


NESTED = pa.struct([("lat", pa.float64()), ("tags", pa.list_(pa.string())), ("inner", pa.struct([("n", pa.int32())]))])
EVERY_TYPE = pa.schema(
    [
        ("id", pa.int64()),
        ("version", pa.int32()),
        ("flag", pa.bool_()),
        ("tiny", pa.int8()),
        ("small", pa.int16()),
        ("whole", pa.int32()),
        ("large", pa.int64()),
        ("single", pa.float32()),
        ("double", pa.float64()),
        ("price", pa.decimal128(9, 2)),
        ("amount", pa.decimal128(18, 6)),
        ("huge", pa.decimal128(38, 10)),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us", "UTC")),
        ("words", pa.list_(pa.string())),
        ("numbers", pa.list_(pa.int64())),
        ("counts", pa.map_(pa.string(), pa.int32())),
        ("places", pa.map_(pa.string(), NESTED)),
        ("place", NESTED),
        ("stops", pa.list_(NESTED)),
    ]
)


def rows_of_every_type(numbers: Iterable[int], version: int) -> pa.Table:
    """Row 0 has the extremes, row 1 only nulls beside its key, the others ordinary values."""
    start = datetime.datetime(2026, 11, 21, 12, 30, 15, 123456, tzinfo=datetime.UTC)
    made: list[dict[str, object]] = []
    for n in numbers:
        if n == 1:
            made.append({"id": n, "version": version})
            continue
        extreme = n == 0
        place = {"lat": n / 8, "tags": ["a", "", "é" * n], "inner": {"n": n}}
        made.append(
            {
                "id": n,
                "version": version,
                "flag": n % 2 == 0,
                "tiny": -128 if extreme else n,
                "small": -32768 if extreme else n * 100,
                "whole": -(2**31) if extreme else n * 100_000,
                "large": -(2**63) if extreme else n * 10**12,
                "single": float("-inf") if extreme else n / 4,
                "double": float("nan") if extreme else n / 3,
                "price": Decimal("-9999999.99") if extreme else Decimal(n) / 4,
                "amount": Decimal("999999999999.999999") if extreme else Decimal(n) / 64,
                "huge": Decimal("-9999999999999999999999999999.9999999999") if extreme else Decimal(n) * 10**20,
                "text": "" if extreme else f"text \U0001f600 {n}\n",
                "raw": b"" if extreme else bytes(range(n)),
                "day": datetime.date(1901, 1, 1) if extreme else datetime.date(2026, 11, n + 1),
                "moment": start.replace(year=1901) if extreme else start + datetime.timedelta(microseconds=n),
                "words": [] if extreme else ["x", "y" * n],
                "numbers": [2**63 - 1, -1] if extreme else list(range(n)),
                "counts": [] if extreme else [("one", 1), ("none", None)],
                "places": [] if extreme else [("home", place), ("nowhere", None)],
                "place": None if extreme else place,
                "stops": [] if extreme else [place, place],
            }
        )
    return pa.Table.from_pylist(made, EVERY_TYPE)


@case("every type, with extremes and nulls: insert, upsert, delete; .crc files kept", "cow", "event_time", "deletes", "types")
def cow_types(table: Maker) -> None:
    table.keep_sidecars = True
    table.options = {KEY: "id", ORDERING: "version"}
    table.write(rows_of_every_type(range(8), 1), "insert")
    table.expect()
    first = table.last()
    table.write(rows_of_every_type((1, 2, 0, 9), 2))
    table.write(rows_of_every_type((3,), 3), "delete")
    table.expect()
    table.expect_as_of("as_of_first", first.request_time)


@case("three partitions, plain paths, four writes; several file groups per partition", "cow", "event_time")
def cow_partitioned(table: Maker) -> None:
    table.options = {KEY: "id", ORDERING: "ts", PARTITION: "city", SMALL_FILE_LIMIT: 0, **NO_SERVICES}
    table.write(trips(range(12), 1), "bulk_insert")
    table.write(trips(range(12, 18), 1), "insert")
    table.write(trips((0, 5, 13), 2, fare=200.0))
    # The two late rows are older than what the table holds and change nothing.
    table.write(trips((0, 1, 20), 1, fare=300.0))
    instants = table.timeline()
    table.expect()
    table.expect_as_of("as_of_second", instants[1].request_time)
    assert instants[1].completion_time and instants[2].completion_time
    table.expect_incremental("incremental_from_second", instants[1].completion_time)
    table.expect_incremental("incremental_third", instants[2].completion_time, instants[2].completion_time)


@case("one file with the Bloom filter of the default options", "cow", "commit_time", "default_bloom")
def cow_default_bloom(table: Maker) -> None:
    table.options = {KEY: "id", "hoodie.index.bloom.num_entries": None, "hoodie.index.bloom.fpp": None}
    table.write(trips(range(9), 1), "insert", **{"hoodie.index.type": "BLOOM"})
    table.write(trips((2, 10), 2, fare=50.0), **{"hoodie.index.type": "BLOOM"})
    table.expect()


@case(
    "two partition fields as k=v, values with special characters and null; two key fields", "cow", "event_time", "key_generator"
)
def cow_hive_style(table: Maker) -> None:
    table.options = {
        KEY: "id,code",
        ORDERING: "ts",
        PARTITION: "region,day",
        KEY_GENERATOR: "org.apache.hudi.keygen.ComplexKeyGenerator",
        "hoodie.datasource.write.hive_style_partitioning": True,
        "hoodie.datasource.write.partitionpath.urlencode": True,
        "hoodie.bloom.index.filter.type": "SIMPLE",
    }
    regions = ("north/east", "a=b c", "ümlaut%", None)
    made = pa.table(
        {
            "id": [f"k{n}" for n in range(8)],
            "code": pa.array([n // 2 for n in range(8)], pa.int32()),
            "ts": pa.array([1] * 8, pa.int64()),
            "value": [f"first {n}" for n in range(8)],
            "region": [regions[n % 4] for n in range(8)],
            "day": ["2026-11-20", "2026-11-21"] * 4,
        }
    )
    table.write(made, "insert")
    again = made.slice(1, 3).set_column(3, "value", pa.array(["second"] * 3))
    table.write(again.set_column(2, "ts", pa.array([2] * 3, pa.int64())))
    table.expect()


@case("partition by day of a time in epoch milliseconds", "cow", "event_time", "key_generator")
def cow_timestamp_keys(table: Maker) -> None:
    table.options = {
        KEY: "id",
        ORDERING: "ts",
        PARTITION: "ts",
        KEY_GENERATOR: "org.apache.hudi.keygen.TimestampBasedKeyGenerator",
        "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
        "hoodie.keygen.timebased.output.dateformat": "yyyy/MM/dd",
        "hoodie.keygen.timebased.timezone": "UTC",
    }
    day = 86_400_000
    made = trips(range(6), 1).set_column(1, "ts", pa.array([1_795_000_000_000 + day * (n // 2) for n in range(6)], pa.int64()))
    table.write(made)
    table.write(made.slice(2, 2).set_column(3, "fare", pa.array([0.5, 0.25])))
    table.expect()


@case("insert_overwrite of one partition, delete_partition, then insert_overwrite_table", "cow", "event_time", "replace")
def cow_replaced(table: Maker) -> None:
    table.options = {KEY: "id", ORDERING: "ts", PARTITION: "city", **NO_SERVICES}
    table.write(trips(range(9), 1), "insert")
    table.write(trips((1, 4, 22), 2, fare=100.0), "insert_overwrite")
    table.expect_as_of("as_of_insert_overwrite", table.last().request_time)
    table.write(trips((0,), 3), "delete_partition", **{"hoodie.datasource.write.partitions.to.delete": "amsterdam"})
    table.expect_as_of("as_of_delete_partition", table.last().request_time)
    table.write(trips((30, 31), 4), "insert_overwrite_table")
    table.expect_as_of("as_of_insert_overwrite_table", table.last().request_time)
    table.write(trips((31, 33), 5, fare=500.0))
    table.expect()
    table.expect_as_of("as_of_first", table.timeline()[0].request_time)


@case("clustering completed with a sort, rows updated after it, another clustering pending", "cow", "event_time", "clustering",
      "pending_clustering", "replace")  # fmt: skip
def cow_clustered(table: Maker) -> None:
    table.options = {KEY: "id", ORDERING: "ts", PARTITION: "city", SMALL_FILE_LIMIT: 0, **NO_SERVICES}
    table.write(trips(range(6), 1), "insert")
    clustering = {
        "hoodie.clustering.inline.max.commits": 1,
        "hoodie.clustering.async.max.commits": 1,
        "hoodie.clustering.plan.strategy.sort.columns": "fare,rider",
    }
    table.write(trips(range(6, 12), 2), "insert", **{"hoodie.clustering.inline": True, **clustering})
    table.write(trips((0, 7, 14), 3, fare=300.0))
    table.write(trips(range(15, 18), 4), "insert", **{"hoodie.clustering.schedule.inline": True, **clustering})
    table.expect()
    table.expect_as_of("as_of_first", table.timeline()[0].request_time)


@case("old versions of files cleaned away; the clean instants stay", "cow", "event_time", "clean")
def cow_cleaned(table: Maker) -> None:
    table.options = {
        KEY: "id",
        ORDERING: "ts",
        PARTITION: "city",
        "hoodie.clean.commits.retained": 1,
        "hoodie.archive.automatic": False,
    }
    for ts in range(1, 6):
        table.write(trips((ts, ts + 1, ts + 2), ts, fare=100.0 * ts))
    table.expect()
    table.expect_incremental("incremental_last", table.last("commit").completion_time or "")


@case("a savepoint, writes after it, restored to it, one more write", "cow", "event_time", "savepoint", "restore")
def cow_restored(table: Maker) -> None:
    table.options = {KEY: "id", ORDERING: "ts", PARTITION: "city", **NO_SERVICES}
    table.write(trips(range(6), 1), "insert")
    table.write(trips((0, 1), 2, fare=100.0))
    point = table.last().request_time
    table.register()
    table.configure(**SMALL_FILES)
    table.sql(f"CALL create_savepoint(table => '{{table}}', commit_time => '{point}')")
    table.write(trips((2, 3, 40), 3, fare=200.0))
    table.write(trips((0,), 4), "delete")
    table.sql(f"CALL rollback_to_savepoint(table => '{{table}}', instant_time => '{point}')")
    table.expect_as_of("as_of_savepoint", point)
    table.write(trips((5, 41), 5, fare=300.0))
    table.expect()


@case("a write that failed after its files were written, rolled back by the next; a last one failed and left as it is", "cow",
      "event_time", "rollback", "failed_write")  # fmt: skip
def cow_rolled_back(table: Maker) -> None:
    table.options = {KEY: "id", ORDERING: "ts", PARTITION: "city", **NO_SERVICES}
    table.write(trips(range(6), 1), "insert")
    table.fail(trips((0, 1, 50), 2, fare=100.0))
    table.write(trips((2, 51), 3, fare=200.0))
    table.fail(trips((3, 52), 4, fare=300.0))
    table.expect()


@case("thirty commits, all but the newest few archived into a history of several files", "cow", "event_time", "archived", "clean")
def cow_archived(table: Maker) -> None:
    table.options = {
        KEY: "id",
        ORDERING: "ts",
        "hoodie.clean.commits.retained": 1,
        "hoodie.keep.min.commits": 2,
        "hoodie.keep.max.commits": 3,
        "hoodie.timeline.compaction.batch.size": 4,
    }
    for ts in range(1, 31):
        table.write(trips((ts % 5,), ts, fare=10.0 * ts))
    table.expect()
    table.expect_incremental("incremental_all", "20000101000000000")


def _evolve_on_read(table: Maker, **options: object) -> None:
    """A column renamed, another dropped and added again; old files know the old names."""
    table.options = {KEY: "id", ORDERING: "ts", PARTITION: "city", SMALL_FILE_LIMIT: 0, **NO_SERVICES, **options}
    table.write(trips(range(6), 1), "insert")
    table.register()
    table.configure(**{BY_ID: True, "hoodie.metadata.enable": False})
    table.sql("ALTER TABLE {table} RENAME COLUMN rider TO driver")
    table.sql("ALTER TABLE {table} DROP COLUMN fare")
    table.sql("ALTER TABLE {table} ADD COLUMNS (fare double)")


@case("schema on read: a column renamed, one dropped and added again, rows written after that by ids", "cow", "event_time",
      "schema_on_read")  # fmt: skip
def cow_schema_on_read(table: Maker) -> None:
    _evolve_on_read(table)
    later = trips((0, 7), 2).rename_columns(["id", "ts", "driver", "fare", "city"]).select(["id", "ts", "driver", "city", "fare"])
    table.write(later, **{BY_ID: True})
    table.expect(**{BY_ID: True})


@case("schema on read: a column renamed, one dropped and added again; nothing written since", "mor", "event_time",
      "schema_on_read")  # fmt: skip
def mor_schema_on_read(table: Maker) -> None:
    _evolve_on_read(table, **{TYPE: MOR})
    table.expect(**{BY_ID: True})


@case("bootstrapped from Parquet files, METADATA_ONLY: skeletons of meta columns, and an update that wrote one file whole", "cow",
      "event_time", "bootstrap")  # fmt: skip
def cow_bootstrapped(table: Maker) -> None:
    source = table.path.parent / f"{table.path.name}-source"
    for city in CITIES:
        rows = trips(range(9), 1)
        folder = source / f"city={city}"
        folder.mkdir(parents=True)
        pq.write_table(rows.filter(pc.equal(rows["city"], city)).drop_columns(["city"]), folder / "part-0.parquet")
    table.options = {KEY: "id", ORDERING: "ts", PARTITION: "city", **NO_SERVICES}
    table.options |= {"hoodie.datasource.write.hive_style_partitioning": True}
    table.write(
        trips((), 1),
        "bootstrap",
        mode="overwrite",
        **{"hoodie.bootstrap.base.path": str(source), "hoodie.metadata.index.column.stats.enable": False},
    )
    table.write(trips((0, 10), 2, fare=100.0))
    table.expect()


@case("partition columns left out of the files: paths alone tell them", "cow", "event_time", "path_columns")
def cow_path_columns(table: Maker) -> None:
    table.options = {KEY: "id", ORDERING: "ts", PARTITION: "city", **NO_SERVICES}
    table.options |= {"hoodie.datasource.write.drop.partition.columns": True}
    table.write(trips(range(6), 1), "insert")
    table.write(trips((0, 7), 2, fare=100.0))
    table.expect()


@case("columns added, widened and left out of a batch over five writes", "cow", "event_time", "evolved_schema")
def cow_evolved(table: Maker) -> None:
    table.options = {KEY: "id", ORDERING: "ts", PARTITION: "city", SMALL_FILE_LIMIT: 0, **NO_SERVICES}
    _evolve(table)


def _evolve(table: Maker) -> None:
    def batch(numbers: Iterable[int], ts: int, **columns: pa.Array) -> pa.Table:
        made = trips(numbers, ts).drop_columns(["fare"])
        for name, values in columns.items():
            made = made.append_column(name, values)
        return made

    table.write(batch(range(6), 1, count=pa.array(range(6), pa.int32()), ratio=pa.array([1.5] * 6, pa.float32())), "insert")
    # A new column, and wider types for two old ones.
    wider = {
        "count": pa.array([2**40, 1, 2], pa.int64()),
        "ratio": pa.array([0.1, 0.2, 0.3], pa.float64()),
        "note": pa.array(["new", None, "newer"]),
    }
    table.write(batch((0, 7, 8), 2, **wider))
    # Narrow types again, cast to the table's.
    narrow = {
        "count": pa.array([5, 6], pa.int32()),
        "ratio": pa.array([2.5, 3.5], pa.float32()),
        "note": pa.array(["back", "again"]),
    }
    table.write(batch((1, 9), 3, **narrow))
    # Columns that the batch lacks become null.
    table.write(batch((2, 10), 4, note=pa.array(["a", "b"])), **{"hoodie.write.set.null.for.missing.columns": True})
    # A struct that comes in, for new rows only.
    place = pa.array([{"lat": 1.0, "lon": 2.0}], pa.struct([("lat", pa.float64()), ("lon", pa.float64())]))
    table.write(
        batch((11,), 5, count=pa.array([1], pa.int64()), ratio=pa.array([1.0]), note=pa.array(["p"]), place=place), "insert"
    )
    table.expect()
    table.expect_as_of("as_of_first", table.timeline()[0].request_time)


@case("change log with images before and after: insert, update, delete", "cow", "event_time", "cdc", "deletes")
def cow_cdc(table: Maker) -> None:
    table.options = {KEY: "id", ORDERING: "ts", PARTITION: "city", "hoodie.table.cdc.enabled": True, **NO_SERVICES}
    _change(table)


def _change(table: Maker) -> None:
    table.write(trips(range(6), 1), "insert")
    table.write(trips((0, 1, 60), 2, fare=100.0))
    table.write(trips((2, 60), 3), "delete")
    instants = table.timeline()
    table.expect()
    table.expect_changes("changes_all", "000")
    table.expect_changes("changes_second", instants[0].request_time, instants[1].request_time)


@case("the metadata table of the default options: files, column_stats, partition_stats", "cow", "event_time", "mdt", "deletes")
def cow_mdt(table: Maker) -> None:
    table.options = {KEY: "id", ORDERING: "ts", PARTITION: "city", "hoodie.metadata.enable": True}
    table.write(trips(range(9), 1), "insert")
    table.write(trips((0, 1, 70), 2, fare=100.0))
    table.write(trips((2, 70), 3), "delete")
    table.expect()


@case("no meta columns: keys and partitions come from the rows", "cow", "event_time", "no_meta_fields")
def cow_no_meta_fields(table: Maker) -> None:
    table.options = {KEY: "id", ORDERING: "ts", PARTITION: "city", "hoodie.populate.meta.fields": False}
    table.write(trips(range(6), 1), "insert")
    table.write(trips((0, 1, 80), 2, fare=100.0))
    table.expect()


@case("no record key given: generated keys, inserts only", "cow", "commit_time", "key_generator")
def cow_generated_keys(table: Maker) -> None:
    table.options = {PARTITION: "city"}
    table.write(trips(range(4), 1), "insert")
    table.write(trips(range(2), 2), "bulk_insert")
    table.expect()


@case("created and changed by SQL: CREATE TABLE, INSERT, UPDATE, DELETE, MERGE INTO", "cow", "event_time", "sql", "deletes")
def cow_sql(table: Maker) -> None:
    _create_by_sql(table, "cow")
    table.sql("UPDATE {table} SET fare = 99.5 WHERE id = 't001'")
    table.sql("DELETE FROM {table} WHERE id = 't002'")
    table.hudi.view("news", trips((3, 90), 5, fare=500.0))
    table.sql("MERGE INTO {table} t USING news s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")
    table.expect()


def _create_by_sql(table: Maker, table_type: str) -> None:
    table.configure(**SMALL_FILES)
    table.sql(
        "CREATE TABLE {table} (id STRING, ts BIGINT, rider STRING, fare DOUBLE, city STRING) USING hudi PARTITIONED BY (city) "
        f"TBLPROPERTIES (type = '{table_type}', primaryKey = 'id', preCombineField = 'ts') LOCATION '{{path}}'"
    )
    table.hudi.view("rows_to_insert", trips(range(6), 1))
    table.sql("INSERT INTO {table} SELECT * FROM rows_to_insert")


@case("table version 6: upsert and clean, JSON commit metadata, no completion times in names", "cow", "event_time", "v6", "clean")
def cow_v6(table: Maker) -> None:
    table.options = {
        KEY: "id",
        ORDERING: "ts",
        PARTITION: "city",
        "hoodie.write.table.version": 6,
        "hoodie.clean.commits.retained": 1,
    }
    for ts in range(1, 4):
        table.write(trips((ts, ts + 1, ts + 2), ts, fare=100.0 * ts))
    table.expect()


@case(
    "table version 9: two writes and a delete; history of all three", "cow", "event_time", "v9", "mdt", "deletes", release="1.1.1"
)
def cow_v9(table: Maker) -> None:
    table.options = {KEY: "id", ORDERING: "ts", PARTITION: "city", "hoodie.metadata.enable": True}
    table.write(trips(range(9), 1), "insert")
    table.write(trips((0, 1, 70), 2, fare=100.0))
    table.write(trips((2, 70), 3), "delete")
    instants = table.timeline()
    table.expect()
    # No incremental query: release 1.1 leaves out the first bound, 1.0 takes it in, and PyHudi keeps to 1.0.
    table.expect_as_of("as_of_second", instants[1].request_time)


# -- merge on read ------------------------------------------------------------------------------------------------------


def _merge_on_read(table: Maker, **more: object) -> None:
    """Logs stay logs: no compaction unless the case asks."""
    table.options = {KEY: "id", ORDERING: "ts", PARTITION: "city", TYPE: MOR, INLINE_COMPACTION: False, **NO_SERVICES, **more}


@case("Avro logs over base files; updates, late rows that lose, equal ordering values", "mor", "event_time", "avro_log")
def mor_avro_logs(table: Maker) -> None:
    _merge_on_read(table)
    _update_through_logs(table)


def _update_through_logs(table: Maker) -> None:
    table.write(trips(range(9), 5), "insert")
    table.write(trips((0, 1, 2), 6, fare=100.0))
    # Row 0 is older than what the logs hold, row 3 older than the base file; row 1 ties.
    table.write(trips((0, 3), 1, fare=200.0))
    table.write(trips((1, 4), 6, fare=300.0))
    instants = table.timeline()
    table.expect()
    table.expect_read_optimized()
    table.expect_as_of("as_of_second", instants[1].request_time)
    table.expect_incremental("incremental_from_second", instants[1].completion_time or "")


@case("Parquet logs over base files; the same writes as mor_avro_logs", "mor", "event_time", "parquet_log")
def mor_parquet_logs(table: Maker) -> None:
    _merge_on_read(table, **{"hoodie.logfile.data.block.format": "parquet"})
    _update_through_logs(table)


@case("merge by commit time: the last write wins whatever its ordering value", "mor", "commit_time", "avro_log", "deletes")
def mor_commit_time(table: Maker) -> None:
    _merge_on_read(table, **{ORDERING: None})
    table.write(trips(range(9), 5), "insert")
    table.write(trips((0, 1, 2), 6, fare=100.0))
    table.write(trips((0, 3), 1, fare=200.0))
    table.write(trips((1, 4), 1), "delete")
    table.write(trips((4,), 0, fare=400.0))
    table.expect()
    table.expect_read_optimized()


@case("every type in Avro logs, with extremes and nulls", "mor", "event_time", "avro_log", "types", "deletes")
def mor_types(table: Maker) -> None:
    table.options = {KEY: "id", ORDERING: "version", TYPE: MOR, INLINE_COMPACTION: False, **NO_SERVICES}
    table.write(rows_of_every_type(range(8), 1), "insert")
    table.write(rows_of_every_type((0, 1, 2, 5), 2))
    table.write(rows_of_every_type((3,), 3), "delete")
    table.expect()


@case("every type in Parquet logs, with extremes and nulls", "mor", "event_time", "parquet_log", "types")
def mor_types_parquet(table: Maker) -> None:
    table.options = {
        KEY: "id",
        ORDERING: "version",
        TYPE: MOR,
        INLINE_COMPACTION: False,
        "hoodie.logfile.data.block.format": "parquet",
        **NO_SERVICES,
    }
    table.write(rows_of_every_type(range(8), 1), "insert")
    table.write(rows_of_every_type((0, 1, 2, 5), 2))
    table.expect()


@case("deletes: by the delete operation, by _hoodie_is_deleted with newer and older ordering values, and rows that come back",
      "mor", "event_time", "avro_log", "deletes")  # fmt: skip
def mor_deletes(table: Maker) -> None:
    _merge_on_read(table)

    def marked(rows: pa.Table, deleted: list[bool]) -> pa.Table:
        return rows.append_column("_hoodie_is_deleted", pa.array(deleted))

    table.write(marked(trips(range(12), 5), [False] * 12), "insert")
    table.write(marked(trips((0, 1, 2), 6), [False] * 3), "delete")
    # Newer: deletes 3. Older: 4 stays.
    table.write(marked(trips((3, 5), 7, fare=100.0), [True, False]))
    table.write(marked(trips((4,), 1), [True]))
    # 3 was deleted with ordering value 7: the older row stays deleted, the newer one comes back. No row follows the deletes by
    # operation: they carry the integer 0 as ordering value, and Apache Hudi cannot compare that with a later row's long.
    table.write(marked(trips((3,), 6, fare=200.0), [False]))
    table.write(marked(trips((3,), 9, fare=300.0), [False]))
    table.expect()
    table.expect_read_optimized()


@case("a completed compaction, logs, a pending compaction, logs after that", "mor", "event_time", "avro_log", "compaction",
      "pending_compaction", "deletes")  # fmt: skip
def mor_compacted(table: Maker) -> None:
    _merge_on_read(table)
    table.write(trips(range(9), 1), "insert")
    table.write(trips((0, 1, 2), 2, fare=100.0))
    table.write(trips((0, 3), 3, fare=200.0), **{INLINE_COMPACTION: True, COMPACTION_AFTER: 2})
    table.write(trips((1, 4, 5), 4, fare=300.0))
    table.write(trips((2,), 5), "delete", **{"hoodie.compact.schedule.inline": True, COMPACTION_AFTER: 2})
    table.write(trips((1, 5), 6, fare=400.0))
    table.expect()
    table.expect_read_optimized()
    table.expect_incremental("incremental_last", table.last("deltacommit").completion_time or "")


@case("log compaction: several blocks rewritten as one, the old ones skipped; logs after it", "mor", "event_time", "avro_log",
      "log_compaction")  # fmt: skip
def mor_log_compacted(table: Maker) -> None:
    _merge_on_read(table, **{COMPACTION_AFTER: 100})
    table.write(trips(range(3), 1), "insert")
    for ts in range(2, 6):
        table.write(trips(range(3), ts, fare=100.0 * ts))
    blocks = {"hoodie.log.compaction.inline": True, "hoodie.log.compaction.blocks.threshold": 3}
    table.write(trips(range(2), 6, fare=600.0), **blocks)
    table.write(trips((1,), 7, fare=700.0))
    table.expect()


@case("clustering over file groups with logs completed, another pending", "mor", "event_time", "avro_log", "clustering",
      "pending_clustering", "replace")  # fmt: skip
def mor_clustered(table: Maker) -> None:
    _merge_on_read(table, **{SMALL_FILE_LIMIT: 0})
    table.write(trips(range(6), 1), "insert")
    table.write(trips(range(6, 12), 2), "insert")
    clustering = {"hoodie.clustering.inline.max.commits": 1, "hoodie.clustering.async.max.commits": 1}
    table.write(trips((0, 1, 7), 3, fare=100.0), **{"hoodie.clustering.inline": True, **clustering})
    table.write(trips((0, 8), 4, fare=200.0), **{"hoodie.clustering.schedule.inline": True, **clustering})
    table.expect()
    table.expect_read_optimized()


@case("insert_overwrite and delete_partition over file groups with logs", "mor", "event_time", "avro_log", "replace")
def mor_replaced(table: Maker) -> None:
    _merge_on_read(table)
    table.write(trips(range(9), 1), "insert")
    table.write(trips((0, 1, 2), 2, fare=100.0))
    table.write(trips((1, 22), 3, fare=200.0), "insert_overwrite")
    table.write(trips((0,), 4), "delete_partition", **{"hoodie.datasource.write.partitions.to.delete": "chicago"})
    table.write(trips((0, 1), 5, fare=300.0))
    table.expect()
    table.expect_read_optimized()


@case("a failed deltacommit rolled back, the next left with its logs and markers", "mor", "event_time", "avro_log", "rollback",
      "failed_write")  # fmt: skip
def mor_rolled_back(table: Maker) -> None:
    _merge_on_read(table)
    table.write(trips(range(6), 1), "insert")
    table.fail(trips((0, 1, 50), 2, fare=100.0))
    table.write(trips((2, 3), 3, fare=200.0))
    table.fail(trips((2, 4), 4, fare=300.0))
    table.expect()


@case("a savepoint over logs, restored to after a compaction", "mor", "event_time", "avro_log", "savepoint", "restore")
def mor_restored(table: Maker) -> None:
    _merge_on_read(table)
    table.write(trips(range(6), 1), "insert")
    table.write(trips((0, 1), 2, fare=100.0))
    point = table.last().request_time
    table.register()
    table.configure(**SMALL_FILES)
    table.sql(f"CALL create_savepoint(table => '{{table}}', commit_time => '{point}')")
    table.write(trips((0, 2), 3, fare=200.0), **{INLINE_COMPACTION: True, COMPACTION_AFTER: 2})
    table.write(trips((0, 3), 4, fare=300.0))
    table.sql(f"CALL rollback_to_savepoint(table => '{{table}}', instant_time => '{point}')")
    table.expect()


@case(
    "a bucket index with four buckets: fixed file ids, logs and compaction",
    "mor",
    "event_time",
    "avro_log",
    "bucket",
    "compaction",
)
def mor_bucket(table: Maker) -> None:
    _merge_on_read(table, **{"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 4})
    table.write(trips(range(12), 1))
    table.write(trips((0, 1, 2, 100), 2, fare=100.0))
    table.write(trips((0, 3), 3, fare=200.0), **{INLINE_COMPACTION: True, COMPACTION_AFTER: 2})
    table.write(trips((1, 101), 4, fare=300.0))
    table.expect()
    table.expect_read_optimized()


@case("a consistent hashing bucket index: inserts go to logs without a base file", "mor", "event_time", "avro_log", "log_only",
      "consistent_bucket")  # fmt: skip
def mor_consistent_bucket(table: Maker) -> None:
    _merge_on_read(
        table,
        **{
            "hoodie.index.type": "BUCKET",
            "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
            "hoodie.bucket.index.num.buckets": 2,
            "hoodie.bucket.index.max.num.buckets": 4,
            "hoodie.bucket.index.min.num.buckets": 1,
        },
    )
    table.write(trips(range(12), 1))
    table.write(trips((0, 1, 2, 100), 2, fare=100.0))
    table.expect()
    table.expect_read_optimized()


@case("MERGE INTO that sets some columns: log blocks with partial rows", "mor", "event_time", "avro_log", "partial_update", "sql")
def mor_partial_update(table: Maker) -> None:
    table.configure(**{INLINE_COMPACTION: False})
    _create_by_sql(table, "mor")
    for ts, fare in ((5, 500.0), (7, 700.0), (6, 600.0)):
        table.hudi.view("news", trips((0, 1, 4), ts, fare=fare))
        table.sql("MERGE INTO {table} t USING news s ON t.id = s.id WHEN MATCHED THEN UPDATE SET t.fare = s.fare, t.ts = s.ts")
    table.expect()
    table.expect_read_optimized()


@case("change log of a table with logs", "mor", "event_time", "avro_log", "cdc", "deletes")
def mor_cdc(table: Maker) -> None:
    _merge_on_read(table, **{"hoodie.table.cdc.enabled": True})
    _change(table)


@case("columns added and widened in logs over older base files", "mor", "event_time", "avro_log", "evolved_schema")
def mor_evolved(table: Maker) -> None:
    _merge_on_read(table, **{SMALL_FILE_LIMIT: 0})
    _evolve(table)


@case("merge by the payload class PartialUpdateAvroPayload: null means unchanged", "mor", "custom", "avro_log")
def mor_payload(table: Maker) -> None:
    _merge_on_read(
        table,
        **{
            "hoodie.datasource.write.payload.class": "org.apache.hudi.common.model.PartialUpdateAvroPayload",
            "hoodie.write.record.merge.mode": "CUSTOM",
            "hoodie.write.record.merge.strategy.id": "00000000-0000-0000-0000-000000000000",
        },
    )
    table.write(trips(range(6), 5), "insert")
    sparse = trips((0, 1, 2), 6, fare=100.0)
    table.write(sparse.set_column(3, "fare", pa.array([None, 1.5, None], pa.float64())))
    table.write(trips((0, 1), 4, fare=200.0))
    table.expect()


@case("the metadata table with column statistics and a record index, logs, a compaction", "mor", "event_time", "avro_log", "mdt",
      "record_index", "compaction", "deletes")  # fmt: skip
def mor_record_index(table: Maker) -> None:
    _merge_on_read(
        table,
        **{
            "hoodie.metadata.enable": True,
            "hoodie.metadata.record.index.enable": True,
            "hoodie.metadata.record.index.min.filegroup.count": 2,
            "hoodie.metadata.record.index.max.filegroup.count": 2,
            "hoodie.index.type": "RECORD_INDEX",
        },
    )
    table.write(trips(range(9), 1), "insert")
    table.write(trips((0, 1, 70), 2, fare=100.0))
    table.write(trips((2, 3), 3), "delete", **{INLINE_COMPACTION: True, COMPACTION_AFTER: 2})
    table.write(trips((4, 71), 4, fare=200.0))
    table.expect()


@case("a metadata table that was compacted itself and has logs after it", "mor", "event_time", "avro_log", "mdt", "clean")
def mor_mdt_compacted(table: Maker) -> None:
    _merge_on_read(table, **{"hoodie.metadata.enable": True, "hoodie.metadata.compact.max.delta.commits": 3})
    table.options.update({"hoodie.clean.automatic": True, "hoodie.clean.commits.retained": 2})
    for ts in range(1, 7):
        table.write(trips((ts, ts + 1, ts + 2), ts, fare=100.0 * ts))
    table.expect()


@case("table version 6 with logs that carry the base instant in their names, rollback blocks, compaction", "mor", "event_time",
      "avro_log", "v6", "rollback", "compaction", "deletes")  # fmt: skip
def mor_v6(table: Maker) -> None:
    _merge_on_read(table, **{"hoodie.write.table.version": 6})
    table.write(trips(range(9), 1), "insert")
    table.write(trips((0, 1, 2), 2, fare=100.0))
    table.fail(trips((0, 3), 3, fare=200.0))
    table.write(trips((1, 4), 4, fare=300.0))
    table.write(trips((2,), 5), "delete", **{INLINE_COMPACTION: True, COMPACTION_AFTER: 2})
    table.write(trips((0, 5), 6, fare=400.0))
    table.expect()
    table.expect_read_optimized()
