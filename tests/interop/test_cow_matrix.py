"""Copy-on-write tables written in turn, over types, key generators, partition styles and indexes."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.errors import Unsupported
from scripts.golden.cases import rows_of_every_type
from tests.interop.alternation import COMMON, OPERATION, READ, Alternation
from tests.interop.oracle import ApacheHudi
from tests.support.hudi_shared_table import SharedTable, keyed_rows
from tests.support.needs import WIDE
from tests.support.rows import assert_same_rows, without_meta

KEY, ORDERING = "hoodie.datasource.write.recordkey.field", "hoodie.datasource.write.precombine.field"
PARTITION, GENERATOR = "hoodie.datasource.write.partitionpath.field", "hoodie.datasource.write.keygenerator.class"
HIVE, ENCODE = "hoodie.datasource.write.hive_style_partitioning", "hoodie.datasource.write.partitionpath.urlencode"
MODE, INDEX = "hoodie.write.record.merge.mode", "hoodie.index.type"
METADATA = "hoodie.metadata.enable"
TIME = "hoodie.keygen.timebased."
SMALL_FILES = "hoodie.parquet.small.file.limit"

NOON = datetime.datetime(2026, 11, 21, 12, 30, 15, 123456, tzinfo=datetime.UTC)
CITIES = ("oslo", "são paulo", "rome")
# What an encoded path must bring back, null included.
REGIONS = ("north/east", "a=b c:d", "ümlaut%?", None)
# Apache Hudi cannot read what its own bulk insert makes of them; see test_hudi_defects.py.
UNREADABLE = ["tiny", "small"]
PLAIN = pa.schema(
    [
        ("id", pa.string()),
        ("code", pa.int32()),
        ("ts", pa.int64()),
        ("note", pa.string()),
        ("city", pa.string()),
        ("region", pa.string()),
        ("level", pa.int32()),
        ("day", pa.string()),
        ("seconds", pa.int64()),
        ("millis", pa.int64()),
        ("date", pa.date32()),
    ]
)


def rows(numbers: Iterable[int], ts: int, *, types: bool = False, extra: bool = False, move: int = 0) -> pa.Table:
    """Rows k000, k001, ...  move: by how much their partitions are shifted."""
    chosen, made = list(numbers), []
    for n in chosen:
        place = n + move
        at = NOON + datetime.timedelta(hours=20 * (place % 4))
        made.append(
            {
                "id": f"k{n:03d}",
                "code": n // 2,
                "ts": ts,
                "note": f"note {n} of {ts}",
                "city": CITIES[place % 3],
                "region": REGIONS[place % 4],
                "level": place % 2,
                "day": at.strftime("%Y-%m-%d %H:%M:%S"),
                "seconds": int(at.timestamp()),
                "millis": int(at.timestamp() * 1000),
                "date": at.date(),
            }
        )
    table = pa.Table.from_pylist(made, PLAIN)
    if types:
        every = rows_of_every_type(chosen, ts).drop_columns(UNREADABLE)
        for name in every.column_names:
            table = table.append_column(f"a_{name}", every.column(name))
    return table.append_column("extra", pa.array([f"extra {n}" for n in chosen])) if extra else table


def millis_as_numbers(table: pa.Table) -> pa.Table:
    """Apache Hudi shows the column of a timestamp key generator as text."""
    position = table.schema.get_field_index("millis")
    return table.set_column(position, "millis", table.column(position).cast(pa.int64()))


@dataclass(frozen=True)
class Shape:
    """A kind of table.  partition: the columns that decide a row's partition; first: who creates it."""

    options: dict[str, Any]
    partition: tuple[str, ...] = ()
    first: str = "ours"
    types: bool = False
    event_time: bool = True
    meta: bool = True
    fix: Callable[[pa.Table], pa.Table] = field(default=lambda table: table)


SHAPES = {
    "simple-every-type": Shape({KEY: "id", ORDERING: "ts", PARTITION: "city"}, ("city",), types=True),
    "unpartitioned-every-type-created-by-hudi": Shape({KEY: "id", METADATA: True}, first="theirs", types=True, event_time=False),
    "complex-hive-encoded-commit-time": Shape(
        {KEY: "id,code", ORDERING: "ts", PARTITION: "region,level", HIVE: True, ENCODE: True, MODE: "COMMIT_TIME_ORDERING"},
        ("region", "level"),
        event_time=False,
    ),
    "complex-plain-created-by-hudi": Shape(
        {KEY: "id,code", ORDERING: "ts", PARTITION: "city,level", SMALL_FILES: 0}, ("city", "level"), first="theirs"
    ),
    "custom-of-two-fields": Shape(
        {
            KEY: "id",
            ORDERING: "ts",
            PARTITION: "city:SIMPLE,day:TIMESTAMP",
            GENERATOR: "org.apache.hudi.keygen.CustomKeyGenerator",
            HIVE: True,
            f"{TIME}timestamp.type": "DATE_STRING",
            f"{TIME}input.dateformat": "yyyy-MM-dd HH:mm:ss",
            f"{TIME}output.dateformat": "yyyy-MM-dd",
            f"{TIME}input.timezone": "UTC",
            f"{TIME}output.timezone": "UTC",
        },
        ("city", "date"),
    ),
    "timestamp-millis": Shape(
        {
            KEY: "id",
            ORDERING: "ts",
            PARTITION: "millis",
            GENERATOR: "org.apache.hudi.keygen.TimestampBasedKeyGenerator",
            f"{TIME}timestamp.type": "EPOCHMILLISECONDS",
            f"{TIME}output.dateformat": "yyyy/MM/dd",
            f"{TIME}input.timezone": "UTC",
            f"{TIME}output.timezone": "UTC",
        },
        ("date",),
        fix=millis_as_numbers,
    ),
    "no-meta-fields": Shape(
        {KEY: "id", ORDERING: "ts", PARTITION: "city", "hoodie.populate.meta.fields": False}, ("city",), meta=False
    ),
    "bloom": Shape({KEY: "id", ORDERING: "ts", PARTITION: "city", INDEX: "BLOOM", SMALL_FILES: 0}, ("city",)),
    "bloom-simple-filter-created-by-hudi": Shape(
        {KEY: "id", ORDERING: "ts", INDEX: "BLOOM", "hoodie.bloom.index.filter.type": "SIMPLE", SMALL_FILES: 0}, first="theirs"
    ),
}


# Their parts meet in others too: keys of two fields and tables that Apache Hudi creates in the shapes above; milliseconds among
# the times as partitions; filters of our default type where rows change their partition.
MADE_OF_KNOWN_PARTS = {"complex-plain-created-by-hudi", "timestamp-millis", "bloom"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.wide) if name in MADE_OF_KNOWN_PARTS else name for name in SHAPES]
)
def test_both_write_alternately(hudi: ApacheHudi, tmp_path: Path, name: str) -> None:
    shape = SHAPES[name]
    both = Alternation(
        hudi,
        tmp_path / "t",
        shape.options,
        partition=lambda row: tuple(row[column] for column in shape.partition),
        ordering="ts" if shape.event_time else None,
        meta=shape.meta,
        fix=shape.fix,
    )

    def made(numbers: Iterable[int], ts: int, extra: bool = False) -> pa.Table:
        return rows(numbers, ts, types=shape.types, extra=extra)

    # Apache Hudi reads before the overwriting and at the end: until then nothing hides what is wrong.
    read = both.read_by_both if WIDE else both.read_by_us
    if shape.first == "ours":
        both.create()
        both.ours("bulk_insert", made(range(12), 10))
    else:
        # What its bulk insert makes of some types its upsert cannot copy; see test_hudi_defects.py.
        both.theirs("insert" if shape.types else "bulk_insert", made(range(12), 10))
    read()

    both.theirs("upsert", made((0, 3, 4, 5, 12, 13), 20))
    both.theirs("delete", made((1, 2), 21))
    read()

    # k003 comes late: by event time it loses against the row that Apache Hudi wrote.
    both.ours("upsert", pa.concat_tables([made((0, 5, 14), 30, extra=True), made((3,), 15, extra=True)]))
    both.ours_where("id IN ('k006', 'k012')", lambda row: row["id"] in {"k006", "k012"})
    read()

    # Late rows the other way round; k001 was deleted and comes back.
    both.theirs("upsert", pa.concat_tables([made((1, 4, 15), 40, extra=True), made((0,), 25, extra=True)]))
    both.read_by_both()
    both.ours("insert_overwrite", made((7, 19), 41, extra=True))
    read()

    # What an insert does about small files hangs on no shape.
    (both.theirs if WIDE or name == "simple-every-type" else both.ours)("insert", made(range(20, 24), 50, extra=True))
    both.read_by_us()
    both.ours("insert", made(range(24, 28), 51, extra=True))
    both.ours("delete", made((20, 24), 52, extra=True).select(delete_columns(shape)))
    both.theirs("upsert", made((20, 21, 25), 60, extra=True))
    both.read_by_both()


def delete_columns(shape: Shape) -> list[str]:
    """The columns by which rows are deleted: keys, and where the partition is."""
    named = f"{shape.options[KEY]},{shape.options.get(PARTITION, '')}".split(",")
    return [column.split(":")[0] for column in named if column]


TIME_TYPES: dict[str, dict[str, str]] = {
    "millis": {"timestamp.type": "EPOCHMILLISECONDS", "output.dateformat": "yyyy/MM/dd"},
    "seconds": {"timestamp.type": "UNIX_TIMESTAMP", "output.dateformat": "yyyy-MM-dd"},
    "date": {"timestamp.type": "SCALAR", "timestamp.scalar.time.unit": "DAYS", "output.dateformat": "yyyyMM/dd"},
    "day": {
        "timestamp.type": "DATE_STRING",
        "input.dateformat": "yyyy-MM-dd'T'HH:mm:ssZ,yyyy-MM-dd HH:mm:ss",
        "output.dateformat": "yyyy/MM/dd",
        "input.timezone": "UTC",
        "output.timezone": "Asia/Tokyo",
    },
}


@pytest.mark.parametrize(
    ("column", "hive", "first"),
    [("millis", False, "ours"), ("seconds", True, "ours"), ("date", False, "theirs"), ("day", True, "ours")],
)
def test_times_as_partitions(hudi: ApacheHudi, tmp_path: Path, column: str, hive: bool, first: str) -> None:
    """Each finds the rows of the other below the same folders."""

    def as_stored(table: pa.Table) -> pa.Table:
        position = table.schema.get_field_index(column)
        wanted = PLAIN.field(column).type
        return table.set_column(position, column, table.column(position).cast(wanted))

    options = {
        KEY: "id",
        ORDERING: "ts",
        PARTITION: column,
        GENERATOR: "org.apache.hudi.keygen.TimestampBasedKeyGenerator",
        HIVE: hive,
        f"{TIME}input.timezone": "UTC",
        f"{TIME}output.timezone": "UTC",
        **{TIME + key: value for key, value in TIME_TYPES[column].items()},
    }
    both = Alternation(hudi, tmp_path / "t", options, partition=lambda row: row[column], ordering="ts", fix=as_stored)
    if first == "ours":
        both.create()
        both.ours("insert", rows(range(8), 10))
    else:
        both.theirs("insert", rows(range(8), 10))
    both.theirs("upsert", rows((0, 1, 8), 20))
    both.ours("upsert", rows((1, 2, 9), 30))
    both.theirs("upsert", rows((3, 9), 40))
    both.read_by_both()


@pytest.mark.parametrize("index", [pytest.param("GLOBAL_SIMPLE", marks=pytest.mark.wide), "GLOBAL_BLOOM"])
def test_rows_that_change_their_partition(hudi: ApacheHudi, tmp_path: Path, index: str) -> None:
    options: dict[str, Any] = {KEY: "id", ORDERING: "ts", PARTITION: "city", INDEX: index}
    both = Alternation(hudi, tmp_path / "t", options, partition=lambda row: row["city"], ordering="ts")
    both.create()
    both.ours("insert", rows(range(9), 10))
    both.theirs("upsert", rows((0, 1, 9), 20, move=1))
    both.read_by_us()
    both.ours("upsert", rows((1, 2, 3, 9), 30, move=2))
    both.read_by_both()
    # Back home, and a late row, which neither moves nor changes anything.
    both.theirs("upsert", pa.concat_tables([rows((1, 4), 40), rows((2,), 5, move=1)]))
    # Apache Hudi writes the row that won again where it was, as if the commit had changed it.
    both.times["k002"] = both.times["k001"]
    both.ours("upsert", pa.concat_tables([rows((4,), 50, move=1), rows((3,), 5, move=1)]))
    both.read_by_both()


@pytest.mark.parametrize("consistent", [True, False])
def test_timestamps_as_keys(hudi: ApacheHudi, tmp_path: Path, consistent: bool) -> None:
    """Microseconds or the text that Java prints: each finds the rows of the other."""
    path = tmp_path / "t"
    name = "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled"
    options: dict[str, Any] = {**COMMON, KEY: "at", ORDERING: "ts", name: consistent}

    def made(numbers: Iterable[int], ts: int) -> pa.Table:
        steps = (0, 877, 600_000, 76_544, 1_876_544)
        times = [NOON + datetime.timedelta(microseconds=steps[n]) for n in numbers]
        return pa.table({"at": pa.array(times, pa.timestamp("us", "UTC")), "ts": pa.array([ts] * len(times), pa.int64())})

    Table.create(path, options=options)
    Table(path, options=options).bulk_insert(made((0, 1, 2), 1))
    hudi.write(made((1, 3, 4), 2), path, **(options | {OPERATION: "upsert"}))
    Table(path, options=options).upsert(made((2, 4), 3))
    hudi.write(made((0,), 4), path, **(options | {OPERATION: "upsert"}))
    found = Table(path).scan(["*"]).to_arrow()
    if consistent:
        # Milliseconds, with trailing zeros cut.
        wanted = {f"2026-11-21 12:30:{text}" for text in ("15.123", "15.124", "15.723", "15.2", "17.0")}
        assert set(found["_hoodie_record_key"].to_pylist()) == wanted
    assert_same_rows(hudi.read(path, **READ), found)
    assert sorted(found["ts"].to_pylist()) == [2, 2, 3, 3, 4]


def test_timestamp_partitions_of_sql(hudi: ApacheHudi, tmp_path: Path) -> None:
    """SQL formats the times of paths to seconds, DataFrames do not: rows are found, and a write beside them is refused."""
    path, name = tmp_path / "t", "matrix_sql_times"
    encoded = "'hoodie.datasource.write.partitionpath.urlencode' = 'true'"
    hudi.sql(f"DROP TABLE IF EXISTS {name}")
    hudi.sql(
        f"CREATE TABLE {name} (id INT, at TIMESTAMP) USING hudi PARTITIONED BY (at) TBLPROPERTIES (primaryKey = 'id', {encoded}) "
        f"LOCATION '{path}'"
    )
    hudi.sql(f"INSERT INTO {name} VALUES (1, TIMESTAMP '2024-10-27 02:30:00'), (2, TIMESTAMP '2024-10-27 02:30:00.123456')")
    table = Table(path)
    assert table.scan(["id"], filter="at > TIMESTAMP '2024-10-27 02:30:00'").to_arrow()["id"].to_pylist() == [2]
    with pytest.raises(Unsupported, match="at=2024-10-27 02%3A30%3A00"):
        table.upsert(table.scan().to_arrow())
    assert table.delete(where="id = 2").rows_deleted == 1
    assert hudi.sql(f"SELECT id FROM {name}")["id"].to_pylist() == [1]


@pytest.mark.parametrize(("fixture", "version"), [("hudi", 8), pytest.param("newer_hudi", 9, marks=pytest.mark.wide)])
def test_generated_keys(request: pytest.FixtureRequest, tmp_path: Path, fixture: str, version: int) -> None:
    hudi: ApacheHudi = request.getfixturevalue(fixture)
    path = tmp_path / "t"
    options: dict[str, Any] = {**COMMON, PARTITION: "city", "hoodie.write.table.version": version}
    batches = [rows(range(4 * n, 4 * n + 4), n) for n in range(4)]
    Table.create(path, options=options)
    Table(path, options=options).bulk_insert(batches[0])
    hudi.write(batches[1], path, **(options | {OPERATION: "insert"}))
    Table(path, options=options).insert(batches[2])
    hudi.write(batches[3], path, **(options | {OPERATION: "bulk_insert"}))
    found = Table(path).scan(["*"]).to_arrow()
    assert_same_rows(without_meta(found), pa.concat_tables(batches))
    assert len(set(found["_hoodie_record_key"].to_pylist())) == 16
    assert_same_rows(hudi.read(path, **READ), found)

    assert Table(path).delete(where="ts = 1 OR id = 'k000'").rows_deleted == 5
    left = [batches[0].slice(1), batches[2], batches[3]]
    assert_same_rows(without_meta(hudi.read(path, **READ)), pa.concat_tables(left))


@pytest.mark.parametrize("partitioned", [True, pytest.param(False, marks=pytest.mark.wide)])
def test_tables_created_by_sql(hudi: ApacheHudi, tmp_path: Path, partitioned: bool) -> None:
    """CREATE TABLE sets other properties than the DataFrame writer, hive style among them."""
    name, path = f"matrix_sql_{partitioned}".lower(), tmp_path / "t"
    hudi.sql(f"DROP TABLE IF EXISTS {name}")
    hudi.sql("SET hoodie.metadata.enable=false")
    hudi.sql(
        f"CREATE TABLE {name} (id STRING, ts BIGINT, price DECIMAL(9,2), at TIMESTAMP, tags ARRAY<STRING>, city STRING) "
        f"USING hudi {'PARTITIONED BY (city)' if partitioned else ''} "
        f"TBLPROPERTIES (type = 'cow', primaryKey = 'id', preCombineField = 'ts') LOCATION '{path}'"
    )

    schema = pa.schema(
        [
            ("id", pa.string()),
            ("ts", pa.int64()),
            ("price", pa.decimal128(9, 2)),
            ("at", pa.timestamp("us", "UTC")),
            ("tags", pa.list_(pa.string())),
            ("city", pa.string()),
        ]
    )

    def made(numbers: Iterable[int], ts: int) -> pa.Table:
        made = [(f"k{n}", ts, Decimal(n * 25) / 100, NOON, ["a", f"b{n}"], CITIES[n % 3]) for n in numbers]
        return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in made], schema)

    def shown() -> pa.Table:
        return hudi.sql(f"SELECT * FROM {name}")

    # Ours is the first commit of the table.
    table = Table(path, options=COMMON | {"hoodie.table.name": name})
    assert table.schema().names == ["id", "ts", "price", "at", "tags", "city"]
    table.insert(made(range(6), 1))
    assert_same_rows(shown(), table.scan(["*"]).to_arrow())
    hudi.view("matrix_news", made((2, 6), 2))
    hudi.sql(
        f"MERGE INTO {name} t USING matrix_news s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    hudi.sql(f"UPDATE {name} SET price = 7.25 WHERE id = 'k1'")
    table.upsert(made((2, 7), 3))
    hudi.sql(f"DELETE FROM {name} WHERE id IN ('k0', 'k7')")
    table.upsert(made((0,), 4))

    found = table.scan(["*"]).to_arrow()
    expected = {
        row["id"]: row
        for row in pa.concat_tables([made(range(1, 7), 1), made((6,), 2), made((2,), 3), made((0,), 4)]).to_pylist()
    }
    expected["k1"]["price"] = Decimal("7.25")
    assert_same_rows(without_meta(found), pa.Table.from_pylist(list(expected.values()), without_meta(found).schema), key=["id"])
    assert_same_rows(shown(), found)
    folders = {entry.name for entry in path.iterdir() if entry.is_dir()} - {".hoodie"}
    assert folders == ({f"city={city}" for city in CITIES} if partitioned else set())
    hudi.sql(f"DROP TABLE {name}")


GENERATORS_OF_VERSION_9: dict[str, dict[str, Any]] = {
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
    "name",
    [pytest.param(name, marks=() if name in ("custom", "no_meta") else pytest.mark.wide) for name in GENERATORS_OF_VERSION_9],
)
def test_key_generators_of_version_9(newer_hudi: ApacheHudi, tmp_path: Path, name: str) -> None:
    """Ours makes the table, and each finds the keys of the other."""
    shared = SharedTable(newer_hudi, tmp_path / "t", "cow", GENERATORS_OF_VERSION_9[name])
    shared.create()
    shared.ours(keyed_rows(("a", 1, "x", 1), ("b", 1, "x", 2), ("c", 1, "x", 3)))
    shared.theirs(keyed_rows(("a", 2, "x", 1), ("d", 2, "x", 4)))
    shared.ours(keyed_rows(("d", 3, "x", 4), ("b", 3, "x", 2)))
    found = shared.table.scan().to_arrow()
    assert dict(zip(found["id"].to_pylist(), found["ts"].to_pylist(), strict=True)) == {"a": 2, "b": 3, "c": 1, "d": 3}
    # Hudi reads a column from which time partitions are named as the names, as text unless a column differs.
    assert shared.same(left_out=("ts",) if name == "timestamp" else ()).keys() == {"a", "b", "c", "d"}
    shared.checked()
