"""Columns of other types than those that a run counts with.

A run goes by small whole numbers for what orders, and by words for keys and partitions. A code defines the values of a table for
them, in the same order, and what a batch may have for that: another width, unit, zone or encoding, which means the same.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

_DAY = datetime.date(2024, 1, 1)
_TIME = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
_LETTERS = "abc"


@dataclass(frozen=True)
class Code:
    """kind: of the table's column.  to, back: a value of the run and one of the table.  text: the value in a filter."""

    name: str
    kind: pa.DataType
    to: Callable[[Any], Any]
    back: Callable[[Any], Any]
    text: Callable[[Any], str] = repr

    def literal(self, value: Any) -> str:
        return self.text(self.to(value))


def _number(name: str, kind: pa.DataType, to: Callable[[int], Any], back: Callable[[Any], int], text: Any = repr) -> Code:
    return Code(name, kind, to, back, text)


def _time_text(value: datetime.datetime) -> str:
    return f"TIMESTAMP '{value.isoformat(sep=' ')}'"


def _steps(value: datetime.datetime) -> int:
    aware = value if value.tzinfo else value.replace(tzinfo=datetime.UTC)
    return round((aware - _TIME).total_seconds() * 4)


# What orders: the model counts 0, 1, 2 and on.
ORDERS = {
    code.name: code
    for code in (
        _number("int32", pa.int32(), int, int),
        _number("float64", pa.float64(), lambda n: n / 2, lambda v: round(v * 2)),
        _number("float32", pa.float32(), lambda n: n / 4, lambda v: round(v * 4)),
        _number("string", pa.string(), lambda n: f"{n + 100:04d}", lambda v: int(v) - 100),
        _number("date", pa.date32(), lambda n: _DAY + datetime.timedelta(n), lambda v: (v - _DAY).days, "DATE '{}'".format),
        _number("time", pa.timestamp("us", "UTC"), lambda n: _TIME + datetime.timedelta(seconds=n / 4), _steps, _time_text),
        _number(
            "no zone",
            pa.timestamp("us"),
            lambda n: (_TIME + datetime.timedelta(seconds=n / 4)).replace(tzinfo=None),
            _steps,
            _time_text,
        ),
        _number("decimal", pa.decimal128(12, 2), lambda n: Decimal(n * 25 - 100).scaleb(-2), lambda v: int(v * 4) + 4, str),
        _number("long decimal", pa.decimal128(30, 3), lambda n: Decimal(n * 125).scaleb(-3), lambda v: int(v * 8), str),
    )
}
_ODD = {"a": "north/east", "b": "a=b c%2F", "c": "ü"}
_FROM_ODD = {text: letter for letter, text in _ODD.items()}
# Partitions: the run has a, b and c.
PARTS = {
    code.name: code
    for code in (
        # Paths hold it encoded.
        Code("odd text", pa.string(), _ODD.__getitem__, _FROM_ODD.__getitem__),
        Code("int32", pa.int32(), lambda p: _LETTERS.index(p) + 1, lambda v: _LETTERS[v - 1], str),
        Code("int64", pa.int64(), lambda p: _LETTERS.index(p) - 1, lambda v: _LETTERS[v + 1], str),
        Code(
            "date",
            pa.date32(),
            lambda p: _DAY + datetime.timedelta(_LETTERS.index(p)),
            lambda v: _LETTERS[(v - _DAY).days],
            "DATE '{}'".format,
        ),
    )
}
# Keys: the run has k0 to k7.
KEYED = {
    code.name: code
    for code in (
        Code("int32", pa.int32(), lambda k: int(k[1:]) - 2, lambda v: f"k{v + 2}", str),
        Code("int64", pa.int64(), lambda k: int(k[1:]) * 1_000_000_007, lambda v: f"k{v // 1_000_000_007}", str),
        Code(
            "date",
            pa.date32(),
            lambda k: _DAY - datetime.timedelta(int(k[1:])),
            lambda v: f"k{(_DAY - v).days}",
            "DATE '{}'".format,
        ),
        Code("decimal", pa.decimal128(9, 2), lambda k: Decimal(int(k[1:])) / 2, lambda v: f"k{int(v * 2)}", str),
    )
}
# Columns of a table in addition to those that every table has.
MORE = {
    "u": pa.binary(),
    "o": pa.bool_(),
    "t": pa.timestamp("us", "UTC"),
    "tm": pa.timestamp("ms", "UTC"),
    "tl": pa.timestamp("us"),
    "c": pa.decimal128(12, 3),
    "cl": pa.decimal128(25, 2),
    "e": pa.float32(),
    "l": pa.list_(pa.int32()),
    "ls": pa.list_(pa.struct([("a", pa.string()), ("b", pa.int64())])),
    "m": pa.map_(pa.string(), pa.int32()),
    "w": pa.struct([("a", pa.decimal128(8, 2)), ("b", pa.list_(pa.date32()))]),
}


def restyled(column: pa.Array, rng: random.Random) -> pa.Array:
    """The same values in another type that means the same, or the column as it is."""
    kind = column.type
    others: list[pa.DataType] = [kind]
    if pa.types.is_string(kind):
        others += [pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.string_view()]
    elif pa.types.is_binary(kind):
        others += [pa.large_binary(), pa.binary_view()]
    elif pa.types.is_int64(kind):
        others += [pa.int32(), pa.int16(), pa.int8(), pa.uint8(), pa.uint32()]
    elif pa.types.is_int32(kind):
        others += [pa.int16(), pa.int8(), pa.uint8(), pa.uint16()]
    elif pa.types.is_float64(kind):
        others += [pa.float32()]
    elif pa.types.is_date32(kind):
        others += [pa.date64()]
    elif pa.types.is_timestamp(kind):
        zones = [kind.tz] if kind.tz is None else ["UTC", "Europe/Berlin", "+02:00"]
        others += [pa.timestamp(unit, rng.choice(zones)) for unit in ("ms", "us", "ns")]
    elif pa.types.is_decimal128(kind):
        others += [pa.decimal128(kind.precision - 1, kind.scale)]
    elif pa.types.is_list(kind):
        others += [pa.large_list(kind.value_type)]
    chosen = rng.choice(others)
    try:
        return column.cast(chosen)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return column


def decoded(rows: list[dict[str, Any]], codes: Mapping[str, Code]) -> list[dict[str, Any]]:
    """Rows of the table as the run has them."""
    if not codes:
        return rows
    return [
        {name: codes[name].back(value) if name in codes and value is not None else value for name, value in row.items()}
        for row in rows
    ]
