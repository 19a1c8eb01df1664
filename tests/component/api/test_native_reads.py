"""Reads by the Parquet reader of an engine return the rows and types of reads by PyHudi's reader.

Each query runs twice: unchanged, and with every file slice left to PyHudi's reader.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pyhudi as hp
from pyhudi import Table
from pyhudi.api import duckdb_scan, polars_scan
from pyhudi.api.scan import Scan
from pyhudi.errors import HudiError, InvalidRequest, TableState, Unsupported
from pyhudi.operations.read import native_scan
from pyhudi.operations.read.native_scan import DividedQuery, divide_query
from pyhudi.operations.read.query import SnapshotQuery
from pyhudi.planning.native_scan import MAX_SCANS
from pyhudi.records.filters.engine_expressions import to_engine
from pyhudi.records.filters.filter_ast import Constant
from pyhudi.sql_engine import duckdb_engine
from pyhudi.table.file_slices import FileSlice
from pyhudi.tasks import read_slice
from tests.support.golden_tables import golden_cases, open_golden
from tests.support.needs import WIDE
from tests.support.old_columns import table_with_commits
from tests.support.rows import assert_same_rows
from tests.support.shares import EACH_SHARE, Share

_ZONE = datetime(2026, 7, 1, 12, tzinfo=UTC)
_YEARS = [_ZONE, datetime(1, 1, 1, tzinfo=UTC), None, datetime(9999, 12, 31, tzinfo=UTC), _ZONE, _ZONE]
_DAYS = [date(2026, 7, 1), date(1, 1, 1), date(9999, 12, 31), None, date(1582, 10, 5), date(1970, 1, 1)]
_SMALL = [Decimal("1.25"), Decimal("-99999.99"), None, Decimal(0), Decimal("0.01"), Decimal(5)]
_LARGE = [Decimal(10) ** 27, -(Decimal(10) ** 27), None, Decimal(0), Decimal("1e-10"), Decimal(1)]
_STRUCT = pa.struct([("x", pa.int64()), ("y", pa.struct([("z", pa.string())]))])
_DEEP = pa.list_(pa.struct([("a", pa.list_(pa.float64()))]))
_PLAIN: dict[str, pa.Array] = {
    "flag": pa.array([True, False, None, True, False, None]),
    "i": pa.array([1, -(2**31), 2**31 - 1, None, 0, 7], pa.int32()),
    "l": pa.array([1, -(2**63), 2**63 - 1, None, 2**53 + 1, 7]),
    "f": pa.array([0.1, -0.0, 0.0, None, math.nan, math.inf], pa.float32()),
    "d": pa.array([0.1, -0.0, 0.0, None, math.nan, -math.inf]),
    "t": pa.array(["a", "", None, "Zoë \U0001f600", "quote ' \" \\", "a%_b"]),
    "b": pa.array([b"", b"\x00\xff", None, b"a", b"b", b"\x80"]),
    "day": pa.array(_DAYS),
    "at": pa.array(_YEARS, pa.timestamp("us", "UTC")),
    "seconds": pa.array([_ZONE] * 5 + [None], pa.timestamp("s", "UTC")),
    "millis": pa.array([_ZONE] * 5 + [None], pa.timestamp("ms", "Asia/Tokyo")),
    "small": pa.array(_SMALL, pa.decimal128(7, 2)),
    "large": pa.array(_LARGE, pa.decimal128(38, 10)),
    "list": pa.array([[1, None], [], None, [3], [4], [5]], pa.list_(pa.int64())),
    "texts": pa.array([["a", None], [], None, ["b"], ["c"], [""]], pa.list_(pa.string())),
    "map": pa.array([[("k", 1)], [], None, [("a", None), ("b", 2)], [], []], pa.map_(pa.string(), pa.int64())),
    "struct": pa.array(
        [{"x": 1, "y": {"z": "a"}}, {"x": None, "y": None}, None, {"x": 2, "y": {"z": None}}, None, None], _STRUCT
    ),
    "deep": pa.array([[{"a": [1.5]}], [], None, [None], [{"a": None}], [{"a": []}]], _DEEP),
}


def _rows(count: int = 6, first: int = 0) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "id": [f"k{number}" for number in numbers],
            "part": [f"p{number % 2}" for number in numbers],
            "ts": pa.array(numbers, pa.int64()),
            **{name: values.slice(0, count) for name, values in _PLAIN.items()},
        }
    )


def _create(folder: Path, options: dict[str, object] | None = None, **arguments: Any) -> Table:
    settings = {"hoodie.index.bloom.num_entries": 100, "hoodie.compact.inline": False, **(options or {})}
    return Table.create(
        folder / "t", **{"record_key": "id", "partition_by": "part", "ordering": "ts", "options": settings, **arguments}
    )


def typed(folder: Path) -> Table:
    table = _create(folder)
    table.insert(_rows())
    table.upsert(_rows(3))
    return table


def empty(folder: Path) -> Table:
    return _create(folder, schema=_rows().schema)


def emptied(folder: Path) -> Table:
    table = typed(folder)
    table.delete([f"k{number}" for number in range(6)])
    return table


def local_times(folder: Path) -> Table:
    table = _create(folder, {"pyhudi.timestamps.without.zone": "local", "hoodie.write.table.version": 9})
    table.insert(_rows().append_column("wall", pa.array([datetime(2026, 7, 1, 12, 30)] * 5 + [None], pa.timestamp("us"))))
    return table


def evolved(folder: Path) -> Table:
    """Files of the first write lack columns and have narrower types, one of which only PyHudi widens."""
    table = _create(folder, {"hoodie.parquet.small.file.limit": 0})
    first = (
        _rows().drop_columns(["t", "struct", "l", "d", "millis"]).append_column("l", pa.array([1, 2, None, 4, 5, 6], pa.int32()))
    )
    table.insert(first.append_column("d", pa.array([1, 2, None, 4, 5, 6], pa.int32())))
    table.insert(_rows(6, 6), options={"pyhudi.schema.mode": "evolve"})
    return table


def widened_floats(folder: Path) -> Table:
    table = _create(folder, {"hoodie.parquet.small.file.limit": 0})
    narrow = pa.array([0.1, None, 1e-30, 2.5, -0.0, math.nan], pa.float32())
    table.insert(_rows().drop_columns(["d"]).append_column("d", narrow))
    table.insert(_rows(6, 6), options={"pyhudi.schema.mode": "evolve"})
    return table


def by_ids(folder: Path) -> Table:
    """Two columns have swapped their names; another one was dropped and created again."""
    table = _create(folder, {"hoodie.parquet.small.file.limit": 0})
    table.insert(_rows())
    table.alter.rename("l", "l2")
    table.alter.rename("d", "l")
    table.alter.rename("l2", "d")
    table.alter.drop("t")
    table.alter.add("t", pa.int64())
    changed = _rows(6, 6).drop_columns(["l", "d", "t"])
    table.insert(changed.append_column("l", _PLAIN["d"]).append_column("d", _PLAIN["l"]).append_column("t", _PLAIN["l"]))
    return table


def path_columns(folder: Path) -> Table:
    table = _create(folder, {"hoodie.datasource.write.drop.partition.columns": True})
    table.insert(_rows())
    return table


def defaults(folder: Path) -> Table:
    return table_with_commits(folder / "t", "cow")


def without_meta(folder: Path) -> Table:
    table = _create(folder, {"hoodie.populate.meta.fields": False})
    table.insert(_rows())
    return table


def odd_paths(folder: Path) -> Table:
    """Partitions whose names mean something to engines."""
    table = _create(folder, {"hoodie.datasource.write.hive_style_partitioning": True})
    names = ["a b%20c=é'", "x*", "[y]", "q?", "part=1", '"']
    table.insert(_rows().set_column(1, "part", pa.array(names)))
    return table


def merged(folder: Path) -> Table:
    """Some slices have logs."""
    table = _create(folder, table_type="mor")
    table.insert(_rows())
    table.upsert(_rows(1))
    return table


def deleted(folder: Path) -> Table:
    """Logs with updates, late updates that lose, deletes, and inserts, matched by position."""
    table = _create(folder, {"hoodie.parquet.small.file.limit": 0, "hoodie.index.type": "BUCKET"}, table_type="mor")
    table.insert(_rows())
    table.upsert(_rows(3).set_column(2, "ts", pa.array([9, -1, 9])))
    table.delete(["k3", "k4"])
    table.upsert(_rows(4, 5))
    return table


def by_keys(folder: Path) -> Table:
    """The same without record positions."""
    return _logs_by(folder, {"hoodie.write.record.positions": False})


def by_commit_time(folder: Path) -> Table:
    return _logs_by(folder, {"hoodie.record.merge.mode": "COMMIT_TIME_ORDERING"})


def _logs_by(folder: Path, options: dict[str, object]) -> Table:
    table = _create(folder, options, table_type="mor")
    table.insert(_rows())
    table.upsert(_rows(3).set_column(2, "ts", pa.array([9, -1, 9])))
    table.delete(["k4"])
    return table


BUILDERS: dict[str, Callable[[Path], Table]] = {
    function.__name__: function
    for function in (
        typed, empty, emptied, local_times, evolved, widened_floats, by_ids, path_columns, defaults, without_meta, odd_paths,
        merged, deleted, by_keys, by_commit_time,
    )
}  # fmt: skip


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Table]:
    return {name: build(tmp_path_factory.mktemp(name)) for name, build in BUILDERS.items()}


class Divisions(list[DividedQuery]):
    """How queries were divided."""

    @property
    def engine_files(self) -> int:
        return sum(len(divided.plain) for divided in self)


@contextmanager
def watched(*, native: bool) -> Iterator[Divisions]:
    """Record divisions; without `native` engines read no file."""
    divisions = Divisions()

    def dividing(query: Any, *rule: Any, **options: Any) -> DividedQuery:
        divisions.append(divide_query(query, *rule, **options) if native else DividedQuery((), None, (), tuple(query.tasks)))
        return divisions[-1]

    with pytest.MonkeyPatch.context() as patch:
        for module in (polars_scan, duckdb_scan):
            patch.setattr(module, "divide_query", dividing)
        yield divisions


def assert_same_answer(run_query: Callable[[], Any]) -> Divisions:
    """Query natively and through PyHudi's reader: equal columns, types and rows, or equal errors."""
    with watched(native=False):
        expected = _answer(run_query)
    with watched(native=True) as divisions:
        found = _answer(run_query)
    if isinstance(expected, HudiError):
        assert type(found) is type(expected) and str(found) == str(expected)
        return divisions
    assert found.schema.equals(expected.schema), f"{found.schema}\n{expected.schema}"
    assert_same_rows(found, expected)
    return divisions


def _answer(run_query: Callable[[], Any]) -> Any:
    try:
        answer = run_query()
    except HudiError as error:
        return error
    return answer.to_arrow() if isinstance(answer, pl.DataFrame) else answer


def scans(table: Table, share: Share) -> dict[str, Callable[[], Scan]]:
    filtered = {condition: _scan_with(table, condition) for condition in conditions(table, share)}
    if share is Share.OTHERS:
        return filtered
    found: dict[str, Callable[[], Scan]] = {
        "all": table.scan,
        "meta": lambda: table.scan(["*"]),
        "one": lambda: table.scan(["part", "id"]),
        "flat": lambda: table.scan([field.name for field in table.schema() if not pa.types.is_nested(field.type)]),
        "nothing": lambda: table.scan([]),
        "read optimized": table.read_optimized,
        "from path": lambda: table.scan(options={"hoodie.datasource.read.extract.partition.values.from.path": True}),
        **filtered,
    }
    times = [instant.request_time for instant in table.timeline().completed_writes()]
    if times:
        found["then"] = lambda: table.scan(as_of=times[0])
        if table.config.populate_meta_fields:
            completed = table.timeline().completed_writes()[0].completion_time
            found["newest"] = lambda: table.incremental(after=completed)
            found["changed"] = lambda: table.incremental(after="earliest", filter="ts > 1")
    return found


CONDITIONS = (
    "id = 'k1'", "part <> 'p0'", "ts in (1, 2, 9)", "not ts in (1, 2)", "t is null", "not t is null", "t >= 'a'", "t like 'a%'",
    "not t like 'Z%'", "t like '%b'", "i > 0 and not (l < 7)", "i is null or l = 9223372036854775807", "f > 1", "f = 0.0",
    "not f <= 1", "d >= 0", "d <> 0.1", "d < 1", "d = cast('nan' as double)", "d in (0.1, 0.0)", "flag", "not flag",
    "day > date '1582-10-05'", "at = timestamp '2026-07-01 12:00:00'", "at < timestamp '1970-01-01 00:00:00'",
    "small >= 1.25", "small in (1.25, 5)", "large < 0", "list is null", "struct.x = 1", "length(t) > 2", "b is null",
)  # fmt: skip


def _scan_with(table: Table, condition: str) -> Callable[[], Scan]:
    return lambda: table.scan(filter=condition)


def conditions(table: Table, share: Share) -> list[str]:
    """The conditions of a share that suit the columns of a table."""
    found = []
    for number, condition in enumerate(CONDITIONS):
        if (number % 4 == 0) is not (share is Share.SMOKE):
            continue
        try:
            table.scan(filter=condition)
        except HudiError:
            continue
        found.append(condition)
    return found


@pytest.fixture(autouse=True)
def small_scans_use_polars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polars_scan, "_SMALL_BYTES", 0)


def test_only_plain_slices_are_read_by_engines(tables: dict[str, Table]) -> None:
    divided = {kind: divide_query(table.scan().query) for kind, table in tables.items()}
    assert {kind for kind, found in divided.items() if found.rest} == {"widened_floats"}
    assert {kind for kind, found in divided.items() if not found.plain} == {"empty"}
    # Of a float that became a double only PyHudi gives the value that Hudi does.
    assert [len(divided["widened_floats"].plain), len(divided["widened_floats"].rest)] == [2, 2]
    for kind in ("merged", "deleted", "by_keys", "by_commit_time"):
        assert any(scan.has_hidden_rows for scan in divided[kind].scans) and divided[kind].merged, kind


@pytest.mark.parametrize(
    ("type_", "log_values", "reads_ordering"),
    [
        (pa.int64(), [3, 5, 4], False),
        (pa.int64(), [3, 5, 2], True),
        (pa.int32(), [3, 3, 3], False),
        (pa.timestamp("us", "UTC"), [3, 5, 4], False),
        (pa.timestamp("us", "UTC"), [3, 5, 2], True),
        (pa.timestamp("ms", "UTC"), [3, 5, 4], False),
        (pa.date32(), [3, 5, 4], False),
        (pa.float64(), [3, 5, 4], True),
    ],
)
def test_ordering_values_are_read_only_if_statistics_do_not_decide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, type_: pa.DataType, log_values: list[int], reads_ordering: bool
) -> None:
    def rows(values: list[int]) -> pa.Table:
        table = _rows(len(values)).set_column(1, "part", pa.array(["p"] * len(values)))
        numbers = pa.array(values, pa.int32() if pa.types.is_date(type_) else pa.int64())
        return table.set_column(2, "ts", numbers.cast(type_)).set_column(
            3, "flag", pa.array([values == log_values] * len(values))
        )

    table = _create(tmp_path, table_type="mor")
    table.insert(rows([1, 2, 3, 3]))
    table.upsert(rows(log_values))
    in_layout, read = read_slice._in_layout, list[str]()

    def recording(file: Any, rows: pa.Table, needed: pa.Schema) -> pa.Table:
        read.extend(needed.names)
        return in_layout(file, rows, needed)

    monkeypatch.setattr(read_slice, "_in_layout", recording)
    table.scan(["flag"]).to_polars()
    assert ("ts" in read) == reads_ordering
    monkeypatch.undo()
    for columns in (["id", "flag", "ts"], ["flag"], []):
        answer = partial(_polars_rows, table, columns)
        assert assert_same_answer(answer).engine_files == bool(columns)


def _polars_rows(table: Table, columns: list[str]) -> pa.Table:
    return table.scan(columns).to_polars().to_arrow()


@EACH_SHARE
@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", BUILDERS)
def test_polars_frames(tables: dict[str, Table], kind: str, share: Share) -> None:
    """Of the further conditions the full tier reads each in one way; a table of every kind has each way."""
    ways: tuple[Callable[[Scan], Any], ...] = (
        lambda scan: scan.to_polars(),
        lambda scan: hp.scan_polars(scan).collect(),
        lambda scan: scan.to_arrow(),
    )
    for number, (name, scan) in enumerate(scans(tables[kind], share).items(), list(BUILDERS).index(kind)):
        is_divided = share is Share.OTHERS and not WIDE
        divisions = [
            assert_same_answer(lambda way=way, scan=scan: way(scan()))  # type: ignore[misc]
            for way in (ways[number % 3 : number % 3 + 1] if is_divided else ways)
        ]
        if name in ("all", "meta"):
            assert all((found.engine_files > 0) == (kind != "empty") for found in divisions[:2])
            with watched(native=True):
                frame = scan().to_polars()
            with watched(native=False):
                assert_same_rows(frame.to_arrow().cast(scan().schema), scan().to_arrow())


PREDICATES = (
    pl.col("id") == "k1",
    pl.col("part") == "p1",
    pl.col("ts") > 2,
    (pl.col("ts") > 2) | pl.col("id").str.ends_with("0"),
)


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", BUILDERS)
def test_polars_pushdown(tables: dict[str, Table], kind: str) -> None:
    """Predicates, projections and limits reach the engine's own scan."""
    frame = hp.scan_polars(tables[kind])
    for predicate in PREDICATES:
        assert_same_answer(lambda predicate=predicate: frame.filter(predicate).collect())  # type: ignore[misc]
        assert_same_answer(lambda predicate=predicate: frame.filter(predicate).select("part").collect())  # type: ignore[misc]
        assert_same_answer(lambda predicate=predicate: frame.filter(predicate).select(pl.len()).collect())  # type: ignore[misc]
    count = tables[kind].scan().count()
    for engine in ("in-memory", "streaming"):
        assert_same_answer(lambda engine=engine: frame.select(pl.len()).collect(engine=engine))  # type: ignore[misc]
        sums = frame.group_by("part").agg(pl.col("ts").sum()).sort("part")
        assert_same_answer(lambda sums=sums, engine=engine: sums.collect(engine=engine))  # type: ignore[misc]
        assert frame.head(2).collect(engine=engine).height == min(2, count)
        assert frame.head(100).collect(engine=engine).height == count
        assert frame.filter(pl.col("ts") >= 1).head(1).collect(engine=engine).height == min(1, max(0, count - 1))
    assert_same_answer(lambda: frame.head(4).filter(pl.col("ts") >= 0).select(pl.len()).collect())


@pytest.mark.parametrize("name", ["f", "d"])
def test_polars_compares_floats_as_in_memory(tables: dict[str, Table], name: str) -> None:
    """The statistics of a file ignore NaN."""
    frame = hp.scan_polars(tables["typed"])
    column = pl.col(name)
    tests = (column > 1, column >= 0, column < 0.5, column == 0, column != 0, column == math.nan, ~(column <= 1), column.is_nan())
    for test in tests:
        assert assert_same_answer(lambda test=test: frame.filter(test).collect()).engine_files  # type: ignore[misc]


SELECTS = (
    "SELECT * FROM t",
    "SELECT count(*) FROM t",
    "SELECT part, count(*) AS n, sum(ts) AS s, max(id) AS m FROM t GROUP BY part ORDER BY part",
    "SELECT id FROM t WHERE ts > 2 ORDER BY id LIMIT 2",
    "SELECT DISTINCT part FROM t",
    "SELECT id, _hoodie_record_key, _hoodie_commit_time FROM t WHERE part = 'p1'",
    "SELECT a.id, b.ts FROM t a JOIN t b ON a.id = b.id WHERE a.part = 'p0'",
    "SELECT * FROM hudi_query('t', 'read_optimized')",
    "SELECT id, ts FROM hudi_table_changes('t', 'latest_state', 'earliest') WHERE ts > 1",
    "SELECT id FROM t WHERE nope = 1",
    "SELECT CAST(id AS INT) FROM t WHERE id = 'k1'",
)


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", BUILDERS)
def test_sql(tables: dict[str, Table], kind: str) -> None:
    table = tables[kind]
    catalog = hp.Catalog()
    catalog.register("t", table.uri)
    for number, select in enumerate(SELECTS):
        divisions = assert_same_answer(lambda select=select: hp.sql(select, catalog=catalog))  # type: ignore[misc]
        if number == 0:
            assert (divisions.engine_files > 0) == (kind != "empty")
    # Each column in a third of the tables; the wide tier reads every column of every table.
    names = table.scan().schema.names
    for name in names if WIDE else names[list(BUILDERS).index(kind) % 3 :: 3]:
        assert_same_answer(lambda name=name: hp.sql(f"SELECT `{name}` FROM t WHERE `{name}` IS NOT NULL", catalog=catalog))  # type: ignore[misc]


@EACH_SHARE
@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["typed", "evolved", "path_columns"])
def test_conditions_of_sql(tables: dict[str, Table], kind: str, share: Share) -> None:
    table = tables[kind]
    catalog = hp.Catalog()
    catalog.register("t", table.uri)
    for condition in conditions(table, share):
        if "cast" not in condition and "struct" not in condition:
            assert_same_answer(lambda condition=condition: hp.sql(f"SELECT * FROM t WHERE {condition}", catalog=catalog))  # type: ignore[misc]


def test_sql_finds_nan_by_statistics(tables: dict[str, Table]) -> None:
    catalog = hp.Catalog()
    catalog.register("t", tables["typed"].uri)
    for condition in ("d > 1e300", "d = 'NaN'", "NOT d <= 1", "f > 1000", "d <> 0"):
        select = f"SELECT id FROM t WHERE {condition} ORDER BY id"
        assert assert_same_answer(lambda select=select: hp.sql(select, catalog=catalog)).engine_files  # type: ignore[misc]
    assert hp.sql("SELECT id FROM t WHERE d > 5", catalog=catalog).to_pylist() == [{"id": "k4"}]


def test_minima_and_maxima_are_those_of_the_rows(tmp_path: Path) -> None:
    """DuckDB's statistics of a column that may have NaN end with NaN."""
    table = Table.create(str(tmp_path / "m"), record_key="id", ordering="ts")
    table.upsert(pa.table({"id": [1, 2], "ts": [1, 1], "d": [1.5, 2.5], "s": [{"f": 1.0}, {"f": 2.0}]}))
    for query, expected in (("max(d)", 2.5), ("min(d)", 1.5), ("max(s.f)", 2.0), ("max(d) - min(d)", 1.0)):
        select = f"SELECT {query} AS v FROM t"
        answer = assert_same_answer(lambda select=select: hp.sql(select, tables={"t": table}))  # type: ignore[misc]
        assert answer.engine_files
        assert hp.sql(select, tables={"t": table}).to_pylist() == [{"v": expected}]


def test_a_file_with_int96_times_is_left_to_our_reader(tmp_path: Path) -> None:
    table = _create(tmp_path)
    table.insert(_rows())
    for path in (tmp_path / "t").glob("p*/*.parquet"):
        file = pq.ParquetFile(path)
        rows, metadata = file.read(), dict(file.metadata.metadata or {})
        file.close()
        metadata = {key: value for key, value in metadata.items() if not key.startswith((b"pyhudi", b"ARROW"))}
        pq.write_table(rows.replace_schema_metadata(metadata), path, use_deprecated_int96_timestamps=True, store_schema=False)
    plain = [name for name in table.scan().schema.names if name not in ("at", "seconds", "millis")]
    for columns, engine_reads in ((["id", "at"], False), (["ts", "millis"], False), (plain, True)):
        scan = table.scan(columns)
        divisions = assert_same_answer(scan.to_polars)
        assert (divisions.engine_files > 0) == engine_reads, columns
        assert_same_rows(scan.to_polars().to_arrow().cast(scan.schema), scan.to_arrow())


@pytest.mark.parametrize("name", golden_cases())
@pytest.mark.sample(6)
def test_tables_of_hudi(name: str, tmp_path: Path) -> None:
    path = open_golden(name, tmp_path).path
    table = Table(path)
    for scan in (table.scan(), table.read_optimized(["*"])):
        assert_same_answer(scan.to_polars)
        assert_same_answer(lambda scan=scan: hp.scan_polars(scan).collect())  # type: ignore[misc]
    catalog = hp.Catalog()
    catalog.register("t", str(path))
    assert_same_answer(lambda: hp.sql("SELECT * FROM t", catalog=catalog))


def _readers(table: Table, catalog: Any) -> dict[str, Callable[[], Any]]:
    frame = hp.scan_polars(table)
    return {
        "to_polars": table.scan().to_polars,
        "to_arrow": table.scan().to_arrow,
        "lazy": frame.collect,
        "lazy count": frame.select(pl.len()).collect,
        "sql": lambda: hp.sql("SELECT * FROM t", catalog=catalog),
    }


@pytest.mark.parametrize("damage", ["missing", "truncated", "footer", "column", "bit"])
def test_a_file_that_cannot_be_read_is_reported_by_our_reader(tmp_path: Path, damage: str) -> None:
    table = _create(tmp_path)
    table.insert(_rows())
    catalog = hp.Catalog()
    catalog.register("t", table.uri)
    readers = _readers(table, catalog)
    for read in readers.values():
        read()
    path = next((tmp_path / "t" / "p1").glob("*.parquet"))
    content = bytearray(path.read_bytes())
    if damage == "missing":
        path.unlink()
    elif damage == "truncated":
        path.write_bytes(content[:-1])
    elif damage == "footer":
        content[-20] ^= 255
        path.write_bytes(content)
    else:
        group = pq.read_metadata(path).row_group(0)
        [chunk] = [c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == "id"]
        start = chunk.dictionary_page_offset or chunk.data_page_offset
        if damage == "bit":
            content[start + chunk.total_compressed_size - 1] ^= 1
        else:
            content[start : start + chunk.total_compressed_size] = bytes(chunk.total_compressed_size)
        path.write_bytes(content)
    error = {"missing": "is missing", "column": "cannot be read|Parquet", "bit": "cannot be read|checksum"}.get(
        damage, "Parquet|parquet"
    )
    for name, read in readers.items():
        if damage in ("column", "bit") and name == "lazy count":
            continue
        with pytest.raises((HudiError, pl.exceptions.ComputeError), match=error):
            read()


def test_checksums_of_pages_follow_the_option(tmp_path: Path) -> None:
    table = _create(tmp_path)
    table.insert(_rows())
    modes = {mode: table.scan(options={"pyhudi.read.checksums": mode}).query for mode in ("always", "once", "never")}
    assert {mode: len(divide_query(query).plain) for mode, query in modes.items()} == {"always": 0, "once": 2, "never": 2}
    path = next((tmp_path / "t" / "p1").glob("*.parquet"))
    content = bytearray(path.read_bytes())
    chunk = pq.read_metadata(path).row_group(0).column(5)
    content[chunk.data_page_offset + chunk.total_compressed_size // 2] ^= 1
    path.write_bytes(content)
    assert {mode: len(divide_query(query).plain) for mode, query in modes.items()} == {"always": 0, "once": 1, "never": 2}


def test_a_clean_between_plan_and_read_is_an_error(tmp_path: Path) -> None:
    table = _create(tmp_path)
    table.insert(_rows())
    scan, frame = table.scan(), hp.scan_polars(table)
    for number in range(3):
        table.upsert(_rows(6), options={"hoodie.clean.automatic": False} if number else None)
    cleaned = {"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": 1}
    table.clean(dry_run=False, options=cleaned)
    with pytest.raises(TableState, match="if a clean removed it"):
        scan.to_polars()
    with pytest.raises((TableState, pl.exceptions.ComputeError), match="if a clean removed it"):
        frame.collect()
    catalog = hp.Catalog()
    catalog.register("t", table.uri)
    assert hp.sql("SELECT count(*) AS n FROM t", catalog=catalog).to_pylist() == [{"n": 6}]


def test_engines_do_not_read_other_stores() -> None:
    table = Table.create("memory://native/t", record_key="id")
    table.insert(_rows())
    query = table.scan().query
    divided = divide_query(query)
    assert (divided.scans, divided.rest) == ((), tuple(query.tasks))


def test_names_that_differ_in_case_are_left_to_our_reader(tables: dict[str, Table]) -> None:
    """DuckDB does not distinguish them; such a file has another writer."""
    assert divide_query(tables["typed"].scan().query, lambda path, schema: "T" in schema.names).plain == ()
    assert duckdb_scan._can_read("/a/b.parquet", pa.schema([("t", pa.int64()), ("u", pa.int64())]))
    assert not duckdb_scan._can_read("/a/b.parquet", pa.schema([("t", pa.int64()), ("T", pa.int64())]))
    assert not duckdb_scan._can_read("/a/[b]/c.parquet", pa.schema([]))


def test_many_layouts_are_left_to_our_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each partition has another constant."""
    table = path_columns(tmp_path)
    query = table.scan().query
    assert MAX_SCANS > 1 and len(divide_query(query).scans) == 2
    monkeypatch.setattr(native_scan, "MAX_SCANS", 1)
    divided = divide_query(query)
    assert (len(divided.scans), len(divided.plain), len(divided.rest)) == (1, 1, 1)
    assert assert_same_answer(table.scan().to_polars).engine_files == 1


def test_a_query_cannot_read_other_files(tmp_path: Path) -> None:
    table = _create(tmp_path)
    table.insert(_rows())
    other = tmp_path / "other.parquet"
    shutil.copy(next((tmp_path / "t" / "p0").glob("*.parquet")), other)
    catalog = hp.Catalog()
    catalog.register("t", table.uri)
    with pytest.raises(HudiError):
        hp.sql(f"SELECT * FROM t, read_parquet('{other}') AS o", catalog=catalog)


def test_databases_of_statements_are_limited(tmp_path: Path) -> None:
    """Statements on one table share a database, and see no rows of each other."""
    shared = duckdb_engine._DATABASES._by_access
    for number in range(duckdb_engine._MAX_DATABASES + 2):
        table = Table.create(tmp_path / f"t{number}", record_key="id")
        table.insert(pa.table({"id": [number]}))
        for _ in range(2):
            assert hp.sql("SELECT id FROM t", tables={"t": table}).to_pylist() == [{"id": number}]
            assert list(shared)[-1].folders == {str(tmp_path / f"t{number}")}
    assert len(shared) == duckdb_engine._MAX_DATABASES
    first, second = (duckdb_engine._DATABASES.connect(duckdb_engine._Access(frozenset())) for _ in range(2))
    first.register("rows", pa.table({"a": [1]}))
    assert first.sql("FROM rows").fetchall() == [(1,)]
    with pytest.raises(duckdb.CatalogException):
        second.sql("FROM rows")
    other = next((tmp_path / "t0").glob("*.parquet"))
    with pytest.raises(duckdb.PermissionException):
        first.sql(f"FROM read_parquet('{other}')")


def test_a_condition_that_engines_lack_is_left_to_our_reader(tables: dict[str, Table]) -> None:
    query = tables["typed"].scan(filter="length(t) > 1").query
    assert isinstance(query, SnapshotQuery)
    assert duckdb_scan.native_rows(query, query.spec.condition, lambda: "t") is None
    assert duckdb_scan.native_rows(query, None, lambda: "t") is not None
    with pytest.raises(Unsupported, match="an engine's own scan"):
        to_engine(query.spec.condition or Constant(True), polars_scan._PolarsExpressions())


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_text_as_views_equals_text_as_strings(tmp_path: Path, kind: str, nested: bool) -> None:
    table = Table.create(str(tmp_path / "t"), record_key="id", ordering="ts", table_type=kind)
    columns: dict[str, Any] = {"id": ["a", "b", "c"], "ts": [1, 1, 1], "text": ["x", None, "long text" * 9]}
    columns |= {"bytes": [b"1", None, b"\x00"], "day": pa.array([1, None, 3], pa.date32())}
    table.insert(pa.table(columns | ({"words": [["p"], [], None]} if nested else {})))
    table.upsert(pa.table({**columns, "ts": [2, 0, 2]} | ({"words": [["q"], [], None]} if nested else {})).slice(0, 2))
    for scan in (table.scan(), table.scan(filter="id > 'a'"), table.scan(limit=2)):
        views, strings = scan.to_arrow(text="views"), scan.to_arrow()
        expected = [
            pa.string_view() if field.type == pa.string() else pa.binary_view() if field.type == pa.binary() else field.type
            for field in strings.schema
        ]
        assert views.schema.types == expected and views.num_rows == strings.num_rows
        back = pa.Table.from_arrays([views[f.name].cast(f.type) for f in strings.schema], schema=strings.schema)
        assert sorted(back.to_pylist(), key=repr) == sorted(strings.to_pylist(), key=repr)
    assert table.scan([]).to_arrow(text="views").num_rows == 3
    with pytest.raises(InvalidRequest, match="'strings' or 'views'"):
        table.scan().to_arrow(text="large")


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", BUILDERS)
def test_duckdb_relations(tables: dict[str, Table], kind: str) -> None:
    for scan in scans(tables[kind], Share.SMOKE).values():
        if scan().schema.names:
            assert_same_answer(lambda scan=scan: scan().to_duckdb(duckdb.connect()).to_arrow_table())  # type: ignore[misc]
    connection = duckdb.connect()
    relation = tables[kind].scan().to_duckdb(connection)
    counts = relation.filter("ts >= 0").aggregate("count(*)").fetchall()
    assert counts == [(tables[kind].scan(filter="ts >= 0").count(),)]
    assert len(tables[kind].scan(limit=1).to_duckdb(connection).fetchall()) == min(1, tables[kind].scan().count())


def test_duckdb_relation_of_files_with_a_narrower_type_has_the_type_of_the_table(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", record_key="id", partition_by="part")
    table.insert(pa.table({"id": ["a", "b"], "part": ["p0", "p0"], "n": pa.array([1, None], pa.int32())}))
    new = pa.table({"id": ["c"], "part": ["p1"], "n": pa.array([2**40], pa.int64())})
    table.insert(new, options={"pyhudi.schema.mode": "evolve"})
    relation = table.scan(["id", "n"], filter="part = 'p0'").to_duckdb(duckdb.connect())
    assert relation.types == ["VARCHAR", "BIGINT"]
    assert relation.order("id").fetchall() == [("a", 1), ("b", None)]


def test_a_relation_needs_a_connection(tables: dict[str, Table]) -> None:
    with pytest.raises(InvalidRequest, match="takes a DuckDB connection"):
        tables["typed"].scan().to_duckdb("file.db")


def test_a_duckdb_connection_without_files_reads_rows_of_our_reader(tables: dict[str, Table]) -> None:
    connection = duckdb.connect(config={"enable_external_access": False})
    rows = tables["typed"].scan(["id"]).to_duckdb(connection).order("id").fetchall()
    assert rows == [(f"k{number}",) for number in range(6)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
def test_a_fork_does_not_use_polars_of_its_parent(tables: dict[str, Table]) -> None:
    """The threads of Polars do not exist in a fork, so a read with it would not end."""
    scan = tables["typed"].scan(["id", "ts"])
    with watched(native=True) as divisions:
        scan.to_arrow()
    assert divisions.engine_files
    process = os.fork()
    if not process:
        signal.alarm(60)
        with watched(native=True) as divisions:
            count = scan.to_arrow().num_rows
        os._exit(0 if (count, len(divisions)) == (6, 0) else 1)
    assert os.waitpid(process, 0)[1] == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
def test_a_fork_opens_databases_of_its_own(tables: dict[str, Table]) -> None:
    def count() -> int:
        return len(hp.sql("SELECT id FROM t", tables={"t": tables["typed"]}))

    assert count() == 6
    process = os.fork()
    if not process:
        signal.alarm(60)
        is_empty = not duckdb_engine._DATABASES._by_access
        os._exit(0 if is_empty and count() == 6 else 1)
    assert os.waitpid(process, 0)[1] == 0
    assert count() == 6


def test_large_reads_load_polars(tables: dict[str, Table], monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = tables["typed"].scan().query.tasks
    assert polars_scan.is_worth_loading(tasks)
    monkeypatch.delitem(sys.modules, "polars")
    monkeypatch.setattr(polars_scan._Process, "read_bytes", 0)
    size = sum(task.base.size_bytes for task in tasks if isinstance(task, FileSlice) and task.base is not None)
    monkeypatch.setattr(polars_scan, "_UNLOADED_BYTES", 0)
    monkeypatch.setattr(polars_scan, "_LARGE_BYTES", 2 * size)
    assert not polars_scan.is_worth_loading(tasks)
    assert polars_scan.is_worth_loading(tasks)
