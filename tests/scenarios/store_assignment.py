"""Store assignment: what becomes of a value of one type in a column of another (docs/data-types.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import StrEnum
from itertools import chain
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

from tests.scenarios.scenario import Merge, Refused, Scenario, Sql, Step, TableSpec, Update, Write

_DAY = date(2026, 1, 2)
_ROW: Mapping[str, Any] = {"id": 1, "n": 1, "price": Decimal("1.00"), "x": 1.0, "text": "a", "day": date(2026, 1, 1)}
_TABLE = TableSpec(
    "id INT, n INT, price DECIMAL(10, 2), x DOUBLE, text STRING, day DATE", rows="(1, 1, 1.00, 1.0, 'a', DATE '2026-01-01')"
)
_TYPES = {
    "id": pa.int32(),
    "n": pa.int32(),
    "price": pa.decimal128(10, 2),
    "x": pa.float64(),
    "text": pa.string(),
    "day": pa.date32(),
}
_SQL = {"id": "1", "n": "1", "price": "1.00", "x": "CAST(1 AS DOUBLE)", "text": "'a'", "day": "DATE '2026-01-01'"}

_TEXT_EXPECTED = dict.fromkeys(("python", "spark python"), "SQL in a Python method is no text without quotes")
_ON_SPARK = {"spark python": "PySpark makes literals of Python values itself"}


class _Color(StrEnum):
    RED = "red"


_ERROR = object()
"""A cell whose value is refused."""


@dataclass(frozen=True, slots=True)
class _Widened:
    """The column takes the type of the value."""

    value: Any
    type_: pa.DataType


@dataclass(frozen=True, slots=True)
class _Cells:
    """A row of the table in docs/data-types.md.

    Attributes:
        name: The value and the column.
        column: Name of the column.
        sql: The value in SQL.
        value: The value with its type.
        insert: Outcome of INSERT.
        change: Outcome of UPDATE and MERGE.
        typed: Outcome of rows with declared types.
        untyped: Outcome of rows without declared types.
    """

    name: str
    column: str
    sql: str
    value: pa.Scalar
    insert: Any
    change: Any
    typed: Any
    untyped: Any


_TABLE_OF_CELLS = (
    _Cells("7 of 64 bits for INT", "n", "CAST(7 AS BIGINT)", pa.scalar(7), 7, 7, _Widened(7, pa.int64()), 7),
    _Cells(
        "2^40 for INT",
        "n",
        "1099511627776",
        pa.scalar(1 << 40),
        _ERROR,
        _ERROR,
        _Widened(1 << 40, pa.int64()),
        _Widened(1 << 40, pa.int64()),
    ),
    _Cells("7.9 for INT", "n", "CAST(7.9 AS DOUBLE)", pa.scalar(7.9), 7, 7, _Widened(7.9, pa.float64()), _ERROR),
    _Cells("'7' for INT", "n", "'7'", pa.scalar("7"), _ERROR, 7, _ERROR, _ERROR),
    _Cells("'x' for INT", "n", "'x'", pa.scalar("x"), _ERROR, _ERROR, _ERROR, _ERROR),
    _Cells(
        "2.345 for DECIMAL(10,2)",
        "price",
        "CAST(2.345 AS DECIMAL(10, 3))",
        pa.scalar(Decimal("2.345"), pa.decimal128(10, 3)),
        Decimal("2.35"),
        Decimal("2.35"),
        _ERROR,
        _ERROR,
    ),
    _Cells(
        "2.3 of a wider decimal for DECIMAL(10,2)",
        "price",
        "CAST(2.3 AS DECIMAL(38, 4))",
        pa.scalar(Decimal("2.3"), pa.decimal128(38, 4)),
        Decimal("2.30"),
        Decimal("2.30"),
        Decimal("2.30"),
        Decimal("2.30"),
    ),
    _Cells(
        "2.5 of floating point for DECIMAL(10,2)",
        "price",
        "CAST(2.5 AS DOUBLE)",
        pa.scalar(2.5),
        Decimal("2.50"),
        Decimal("2.50"),
        Decimal("2.50"),
        Decimal("2.50"),
    ),
    _Cells("decimal 12.1 for DOUBLE", "x", "12.1", pa.scalar(Decimal("12.1"), pa.decimal128(3, 1)), 12.1, 12.1, 12.1, 12.1),
    _Cells("true for INT", "n", "TRUE", pa.scalar(True), _ERROR, 1, _ERROR, _ERROR),
    _Cells("7 for DATE", "day", "7", pa.scalar(7), _ERROR, _ERROR, _ERROR, _ERROR),
    _Cells("'2026-01-02' for DATE", "day", "'2026-01-02'", pa.scalar("2026-01-02"), _ERROR, _DAY, _DAY, _DAY),
    _Cells("a date for STRING", "text", "DATE '2026-01-02'", pa.scalar(_DAY), *["2026-01-02"] * 4),
    _Cells("7 for STRING", "text", "7", pa.scalar(7, pa.int32()), "7", "7", "7", "7"),
)


def _table_row(cells: _Cells) -> Iterator[Scenario]:
    column, sql, value = cells.column, cells.sql, cells.value
    source = pa.table({"id": pa.array([1], pa.int32()), column: pa.array([value.as_py()], value.type)})
    written = {name: pa.array([_ROW[name]], type_) for name, type_ in _TYPES.items()}
    written[column] = pa.array([value.as_py()], value.type)
    selected = ", ".join(f"{text} AS {name}" for name, text in {**_SQL, "id": "2", column: sql}.items())
    steps: tuple[tuple[str, Step, Any], ...] = (
        ("INSERT", Sql(f"INSERT INTO {{table}} SELECT {selected}"), cells.insert),
        ("UPDATE", Update({column: sql}), cells.change),
        ("MERGE of a column", Merge(source, matched={column: f"source.{column}"}, clauses=("update",)), cells.change),
        ("MERGE of all columns", Merge(pa.table(written), clauses=("update",)), cells.change),
        ("typed rows", Write(pa.table(written)), cells.typed),
        ("untyped rows", Write([{**_ROW, column: value.as_py()}]), cells.untyped),
    )
    for name, step, outcome in steps:
        stored, types = (outcome.value, {column: outcome.type_}) if isinstance(outcome, _Widened) else (outcome, {})
        rows = ({**_ROW, column: stored},) if name != "INSERT" else (_ROW, {**_ROW, "id": 2, column: stored})
        expect = Refused(word=column) if outcome is _ERROR else rows
        refused = name == "UPDATE" and column == "text"
        yield Scenario(f"{cells.name}, {name}", _TABLE, (step,), expect, types, _TEXT_EXPECTED if refused else {})


_KEYED = TableSpec("id INT, ts INT, day STRING", ordering="ts", partition_by="day", rows="(1, 1, '7')")
_KEYED_ROW: Mapping[str, Any] = {"id": 1, "ts": 1, "day": "7"}
_TRUNCATES = {"hudi": "Apache Hudi truncates keys and ordering values, which makes the row another record"}


def _keyed(**types: pa.DataType) -> pa.Table:
    return pa.table({name: pa.array([2 if name == "id" else _KEYED_ROW[name]], type_) for name, type_ in types.items()})


_OF_KEYS = (
    Scenario(
        "wider integers for key and ordering columns are stored if they fit",
        _KEYED,
        (Write(_keyed(id=pa.int64(), ts=pa.int64(), day=pa.string())),),
        (_KEYED_ROW, {**_KEYED_ROW, "id": 2}),
    ),
    Scenario(
        "2^40 for an INT key is refused",
        _KEYED,
        (Write(pa.table({"id": [1 << 40], "ts": [1], "day": ["7"]})),),
        Refused(word="'id'"),
    ),
    Scenario(
        "untyped rows for key and ordering columns are stored if they fit",
        _KEYED,
        (Write([{"id": 2, "ts": 1, "day": "7"}]),),
        (_KEYED_ROW, {**_KEYED_ROW, "id": 2}),
    ),
    Scenario(
        "7.9 for an INT key is refused by INSERT",
        _KEYED,
        (Sql("INSERT INTO {table} SELECT CAST(7.9 AS DOUBLE) AS id, 1 AS ts, '7' AS day"),),
        Refused(word="id"),
        skip=_TRUNCATES,
    ),
    Scenario(
        "7.9 for an ordering column is refused by UPDATE", _KEYED, (Update({"ts": "7.9"}),), Refused(word="ts"), skip=_TRUNCATES
    ),
    Scenario("'7' for an ordering column is parsed by UPDATE", _KEYED, (Update({"ts": "'7'"}),), ({**_KEYED_ROW, "ts": 7},)),
)

_NARROW = TableSpec("id INT, f FLOAT, s STRUCT<x: INT>, a ARRAY<INT>, d DECIMAL(10, 2)")
_NARROW_ROW: Mapping[str, Any] = {"id": 1, "f": 1.5, "s": {"x": 7}, "a": [1, 2], "d": Decimal("9.99")}
_OF_UNTYPED_ROWS = (
    Scenario("untyped rows keep the types of narrow columns", _NARROW, (Write([_NARROW_ROW]),), (_NARROW_ROW,)),
    Scenario(
        "a fraction in untyped rows widens the column if the schema mode allows it",
        _TABLE,
        (Write([{**_ROW, "n": 7.9}], schema_mode="merge"),),
        ({**_ROW, "n": 7.9},),
        {"n": pa.float64()},
    ),
    Scenario(
        "NaN for an integer column of untyped rows is refused",
        _TABLE,
        (Write([{**_ROW, "n": float("nan")}]),),
        Refused(word="'n'"),
        skip={"command line": "JSON has no NaN"},
    ),
    Scenario(
        "strict refuses a wider type of typed rows",
        _TABLE,
        (
            Write(
                pa.table(
                    {"id": pa.array([1], pa.int32()), "n": [7], "price": [Decimal(1)], "x": [1.0], "text": ["a"], "day": [_DAY]}
                ),
                schema_mode="strict",
            ),
        ),
        Refused(word="strict"),
    ),
)


def _value(name: str, column: str, value: Any, stored: Any) -> Scenario:
    expect = ({**_ROW, column: stored},)
    return Scenario(f"{name} as a value", _TABLE, (Update(values={column: value}),), expect, skip=_ON_SPARK)


_OF_TIMES = (
    Scenario(
        "INSERT casts dates to timestamps and timestamps to dates, and numbers and booleans to text",
        TableSpec("id INT, d DECIMAL(5, 1), t TIMESTAMP, day DATE, s STRING"),
        (
            Sql("INSERT INTO {table} VALUES (1, 1.25, DATE '2024-05-06', TIMESTAMP '2024-05-06 07:08:09', TRUE)"),
            Sql("INSERT INTO {table} VALUES (2, -1.25, NULL, NULL, 5)"),
        ),
        (
            {
                "id": 1,
                "d": Decimal("1.3"),
                "t": datetime(2024, 5, 6, tzinfo=UTC),
                "day": date(2024, 5, 6),
                "s": "true",
            },
            {"id": 2, "d": Decimal("-1.3"), "t": None, "day": None, "s": "5"},
        ),
    ),
    Scenario(
        "INSERT refuses a decimal with too many digits",
        TableSpec("id INT, d DECIMAL(5, 1)"),
        (Sql("INSERT INTO {table} VALUES (1, 99999)"),),
        Refused(word="d"),
    ),
)

_OF_PYTHON_VALUES = (
    _value("a NumPy integer", "n", np.int64(7), 7),
    _value("a NumPy float", "x", np.float32(2.5), 2.5),
    _value("a PyArrow scalar", "n", pa.scalar(7, pa.int8()), 7),
    _value("a Decimal", "price", Decimal("2.5"), Decimal("2.50")),
    _value("a UUID", "text", UUID(int=1), str(UUID(int=1))),
    _value("a date", "text", date(2026, 1, 2), "2026-01-02"),
    Scenario("a member of an Enum", _TABLE, (Update(values={"text": _Color.RED}),), Refused(word=".value"), skip=_ON_SPARK),
)


SCENARIOS: tuple[Scenario, ...] = (
    *chain.from_iterable(map(_table_row, _TABLE_OF_CELLS)),
    *_OF_KEYS,
    *_OF_UNTYPED_ROWS,
    *_OF_TIMES,
    *_OF_PYTHON_VALUES,
)
