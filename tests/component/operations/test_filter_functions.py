"""Filters with functions open only matching files and return the rows of an unpruned read."""

from __future__ import annotations

import random
import warnings
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.records.filters.arrow_expressions import row_filter
from pyhudi.records.filters.filter_parser import parse_filter
from tests.support.needs import WIDE
from tests.support.opened_files import recorded
from tests.support.rows import assert_same_rows

OPTIONS: dict[str, Any] = {
    "hoodie.metadata.enable": True,
    "hoodie.metadata.index.column.stats.enable": True,
    "hoodie.metadata.index.partition.stats.enable": True,
    "hoodie.metadata.index.column.stats.column.list": "id,ts",
    "hoodie.parquet.small.file.limit": 0,
    "hoodie.compact.inline": False,
    "hoodie.clean.automatic": False,
}
IN_UTC = {"pyhudi.expression.index.utc": True}
SMALL_FILTER = {"numentries": "100", "fpp": "0.0001"}
START = datetime(2024, 5, 1, tzinfo=UTC)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return recorded(monkeypatch)


def rows(days: range, note: str = "Note") -> pa.Table:
    """Four rows of each day, whose hours are those of the day's number."""
    made = []
    for day in days:
        for number in range(4):
            at = START + timedelta(days=day, hours=day % 24, minutes=number)
            seconds = int(at.timestamp())
            text = None if number == 3 else f"{note} {'ABC'[day % 3]}{day}"
            made.append({"id": f"k{day:02d}{number}", "part": "ab"[day % 2], "ts": day, "at": at, "l": seconds, "note": text})
    schema = pa.schema([(n, pa.string()) for n in ("id", "part")])
    for name, kind in (("ts", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("l", pa.int64()), ("note", pa.string())):
        schema = schema.append(pa.field(name, kind))
    return pa.Table.from_pylist(made, schema)


def create(path: Path, kind: str, **options: Any) -> Table:
    merged = {**OPTIONS, **options}
    return Table.create(path, record_key="id", partition_by="part", ordering="ts", table_type=kind, options=merged)


@pytest.fixture(scope="module", params=["cow", "mor"])
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Six base files of one day each, two partitions, indexes over functions; merge on read: one file has a log."""
    table = create(tmp_path_factory.mktemp("functions") / "t", request.param)
    for day in range(6):
        table.bulk_insert(rows(range(day, day + 1)))
    table.index.create("bloom_filters", "note", function="lower", function_options=SMALL_FILTER)
    table.index.create("column_stats", "l", function="from_unixtime", function_options={"format": "yyyy-MM-dd"}, name="day")
    table.index.create("column_stats", "at", function="hour")
    table.index.create("column_stats", "note", function="length")
    if request.param == "mor":
        table.upsert(rows(range(5, 6), note="Longer"))
    return table


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("text", "step", "count", "options"),
    [
        ("lower(note) = 'note a3'", "Bloom|index expr_index_lower_note", 1, {}),
        ("lower(note) in ('note a0', 'note b1', 'nobody')", "index expr_index_lower_note", 2, {}),
        ("from_unixtime(l, 'yyyy-MM-dd') = '2024-05-03'", "index expr_index_day", 1, IN_UTC),
        ("from_unixtime(l, 'yyyy-MM-dd') >= '2024-05-05'", "index expr_index_day", 2, IN_UTC),
        ("hour(at) < 2 and lower(note) is not null", "index expr_index_hour_at", 2, IN_UTC),
        ("length(note) > 7", "index expr_index_length_note", 1, {}),
    ],
)
def test_an_expression_index_serves_the_same_function(
    table: Table, opened: list[str], text: str, step: str, count: int, options: dict[str, Any]
) -> None:
    is_mor = table.config.table_type.name.lower().startswith("m")
    found = table.scan(filter=text, options=options).to_arrow()
    assert_same_rows(found, table.scan(filter=text, options={"hoodie.enable.data.skipping": False}).to_arrow())
    if text.startswith("length"):
        assert (len(opened), found.num_rows) == ((7, 3) if is_mor else (6, 0))
    else:
        # A file with a log is not pruned by its own Bloom filter.
        extra = 1 if is_mor and text.startswith("lower") else 0
        assert len(opened) == count + extra + 6
    told = str(table.scan(filter=text, options=options).explain())
    assert step.split("|")[-1] in told


@pytest.mark.parametrize(
    "text",
    [
        "upper(note) = 'NOTE A3'",
        "note = 'note a3'",
        "lower(id) = 'note a3'",
        "from_unixtime(l, 'yyyy-MM') = '2024-05'",
        "from_unixtime(l, 'yyyy-MM-dd') = '2024-05-03'",
        "hour(at) = 3",
    ],
)
def test_another_function_other_options_and_an_unknown_zone_do_not_use_it(table: Table, text: str) -> None:
    explained = str(table.scan(filter=text).explain())
    assert "expr_index" not in explained
    kept = table.scan(filter=text).to_arrow()
    assert_same_rows(kept, row_filter(parse_filter(text), table.schema()).select(table.scan().to_arrow()))


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("from_unixtime(ts + 1714521600, 'yyyy-MM-dd HH:mm:ss') = '2024-05-01 00:00:02'", 1),
        ("ts + 1 = 3", 1),
        ("ts - 1 < 1", 2),
        ("substring(id, 1, 3) = 'k04'", 1),
        ("ts % 2 = 0", 6),
    ],
)
def test_statistics_of_a_column_serve_functions_that_grow(table: Table, opened: list[str], text: str, count: int) -> None:
    found = table.scan(filter=text).to_arrow()
    assert (len(opened), found.num_rows) == (count, 12 if count == 6 else 4 * count)


def test_partitions_are_pruned_by_results_and_by_functions_of_their_columns(tmp_path: Path) -> None:
    table = create(tmp_path / "t", "cow")
    data = rows(range(4))
    table.upsert(data.set_column(1, "part", pa.array([text[:3] for text in data["id"].to_pylist()])))
    table.index.create("column_stats", "at", function="to_date", name="d")
    plan = table.scan(filter="to_date(at) = date '2024-05-02'", options=IN_UTC).explain()
    assert [slice_.partition for slice_ in plan.slices] == ["k01"]
    assert {step.step: (step.remaining, step.total) for step in plan.prunings}["index expr_index_d"] == (1, 4)
    for text in ("upper(part) = 'K02'", "part = substring(upper(part), 1, 0) or substring(part, 2) = '02'"):
        assert [slice_.partition for slice_ in table.scan(filter=text).explain().slices] == ["k02"]
    by_day = Table.create(tmp_path / "d", record_key="id", partition_by="d", ordering="ts", options=OPTIONS)
    days = [date(2023, 12, 31), date(2024, 1, 1), date(2024, 2, 1)]
    by_day.upsert(pa.table({"id": ["a", "b", "c"], "ts": [1, 2, 3], "d": days}))
    assert [s.partition for s in by_day.scan(filter="year(d) = 2024 and month(d) = 2").explain().slices] == ["2024-02-01"]


@pytest.mark.parametrize("kind", [pytest.param("cow", marks=pytest.mark.wide), "mor"])
def test_no_filter_loses_a_row_of_a_table_that_changed(tmp_path: Path, kind: str) -> None:
    """Columns that came later and became wider, nulls, logs, deletes: with every index, and functions of everything."""
    chance = random.Random(3)
    options = {**OPTIONS, "hoodie.metadata.index.column.stats.column.list": "id,ts,n,x,note,at,l,late"}
    table = create(tmp_path / "t", kind, **options)
    first = rows(range(3)).append_column("n", pa.array([None, 1, 2, -(1 << 31)] * 3, pa.int32()))
    table.bulk_insert(first.append_column("x", pa.array([0.5, float("nan"), None, -0.0] * 3)))
    for function, column in (("lower", "note"), ("length", "note"), ("hour", "at"), ("to_date", "at")):
        table.index.create("column_stats", column, function=function)
    table.index.create("bloom_filters", "note", function="upper", function_options=SMALL_FILTER)
    second = rows(range(2, 5), note="Other").append_column("n", pa.array([None, 1 << 40, 2, -7] * 3, pa.int64()))
    second = second.append_column("x", pa.array([float("inf"), 1.5, None, 0.0] * 3))
    table.upsert(second.append_column("late", pa.array([START, None, START + timedelta(days=400), START] * 3)))
    table.delete(keys=["k011", "k020"])
    everything = table.scan(["*"]).to_arrow()
    conditions = [
        *("lower(note) = 'other a3'", "upper(note) in ('NOTE B1', 'OTHER C2')", "length(note) = 8", "length(note) is null"),
        *("hour(at) = 2", "to_date(at) > date '2024-05-03'", "not (to_date(at) <= date '2024-05-03')", "year(late) = 2025"),
        *("n + 1 > 2", "n + 1 is null", "n - 2147483647 < 0", "abs(n) = 7", "n < ts", "x >= n", "x = x", "x * 2 > 1"),
        *("to_date(late) = to_date(at)", "late > at", "date_format(late, 'yyyy-MM') = '2024-05'", "cast(x as int) = 1"),
        *("lower(note) = 'note a0' or year(late) = 2025", "month(at) = 5 and day(at) = 3", "substring(note, 1, 2) <> 'No'"),
    ]
    opposites = [f"not ({one})" for one in (conditions if WIDE else chance.sample(conditions, 4))]
    for text in [*conditions, *opposites, *(" and ".join(chance.sample(conditions, 2)) for _ in "ab")]:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = table.scan(["*"], text, options=IN_UTC).to_arrow()
        assert_same_rows(found, row_filter(parse_filter(text), everything.schema).select(everything))
    assert table.validate().ok, str(table.validate())


def test_deletes_and_updates_take_functions(tmp_path: Path) -> None:
    table = create(tmp_path / "t", "cow")
    table.upsert(rows(range(3)))
    table.update({"note": "'x'"}, where="lower(note) = 'note b1'")
    assert table.scan(filter="note = 'x'").count() == 3
    table.delete(where="hour(at) = 2 or length(note) = 1")
    assert sorted(table.scan(["id"]).to_arrow()["id"].to_pylist()) == ["k000", "k001", "k002", "k003", "k013"]
