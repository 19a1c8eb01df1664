"""Store assignment: what becomes of a value of one type in a column of another (docs/data-types.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain
from typing import Any

import pyarrow as pa

from tests.scenarios.scenario import Refused, Scenario, Sql, Step, TableSpec

_ROW: Mapping[str, Any] = {"id": 1, "n": 1, "price": Decimal("1.00"), "x": 1.0, "text": "a"}
_TABLE = TableSpec("id INT, n INT, price DECIMAL(10, 2), x DOUBLE, text STRING", rows="(1, 1, 1.00, 1.0, 'a')")
_SQL = {"id": "1", "n": "1", "price": "1.00", "x": "CAST(1 AS DOUBLE)", "text": "'a'"}

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
    _Cells("7 for STRING", "text", "7", pa.scalar(7, pa.int32()), "7", "7", "7", "7"),
)


def _table_row(cells: _Cells) -> Iterator[Scenario]:
    column, sql = cells.column, cells.sql
    selected = ", ".join(f"{text} AS {name}" for name, text in {**_SQL, "id": "2", column: sql}.items())
    steps: tuple[tuple[str, Step, Any], ...] = (
        ("INSERT", Sql(f"INSERT INTO {{table}} SELECT {selected}"), cells.insert),
        ("UPDATE", Sql(f"UPDATE {{table}} SET {column} = {sql}"), cells.change),
    )
    for name, step, outcome in steps:
        stored, types = (outcome.value, {column: outcome.type_}) if isinstance(outcome, _Widened) else (outcome, {})
        rows = ({**_ROW, column: stored},) if name != "INSERT" else (_ROW, {**_ROW, "id": 2, column: stored})
        expect = Refused(word=column) if outcome is _ERROR else rows
        yield Scenario(f"{cells.name}, {name}", _TABLE, (step,), expect, types)


SCENARIOS: tuple[Scenario, ...] = (*chain.from_iterable(map(_table_row, _TABLE_OF_CELLS)),)
