"""Compares the rows of two tables, ignoring the order of rows and columns."""

from __future__ import annotations

import datetime
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa

META_COLUMNS = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)

# How much of a difference is shown.
_SHOWN = 5


def assert_same_rows(actual: pa.Table, expected: pa.Table, *, ignoring: Collection[str] = (), key: Sequence[str] = ()) -> None:
    """Fails with the differing rows.

    ignoring: columns left out of both sides, whether present or not. key: columns by which differing rows are paired, to name the
    columns that differ; `_hoodie_partition_path` and `_hoodie_record_key` where nothing is given and they are there.
    """
    names = _names(actual, ignoring)
    other = _names(expected, ignoring)
    assert names == other, f"columns: only actual has {sorted(names - other)}, only expected has {sorted(other - names)}"
    order = [name for name in expected.column_names if name in names]
    types = {name: (plain_type(actual.schema.field(name).type), plain_type(expected.schema.field(name).type)) for name in order}
    unlike = {name: pair for name, pair in types.items() if pair[0] != pair[1]}
    assert not unlike, "types: " + "; ".join(f"{name} is {pair[0]}, expected {pair[1]}" for name, pair in unlike.items())

    ours, theirs = canonical_rows(actual, order), canonical_rows(expected, order)
    surplus, lack = Counter(ours), Counter(theirs)
    surplus, lack = surplus - lack, lack - surplus
    if surplus or lack:
        raise AssertionError(_difference(order, surplus, lack, len(ours), len(theirs), key))


def without_meta(table: pa.Table) -> pa.Table:
    """The table without the five columns that Hudi adds."""
    return table.drop_columns([name for name in META_COLUMNS if name in table.column_names])


def canonical_rows(table: pa.Table, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Each row as a tuple of hashable values, such that equal rows give equal tuples."""
    values = [[_canonical(value) for value in table.column(name).to_pylist()] for name in columns]
    return list(zip(*values, strict=True)) if values else [()] * table.num_rows


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type without what the comparison does not look at."""
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("item", plain_type(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, plain_type(field.type)) for field in kind])
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, tz="UTC")
    return kind


def _names(table: pa.Table, ignoring: Collection[str]) -> set[str]:
    names = [name for name in table.column_names if name not in ignoring]
    assert len(names) == len(set(names)), f"a column appears twice: {names}"
    return set(names)


def _canonical(value: Any) -> Any:
    if isinstance(value, float):
        # Text distinguishes -0.0 and 0.0, which `==` does not, and makes a NaN equal itself.
        return ("float", "nan" if math.isnan(value) else repr(value))
    if isinstance(value, Mapping):
        return tuple((name, _canonical(inner)) for name, inner in sorted(value.items()))
    if isinstance(value, list):
        return _canonical_list(value)
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC)
    if isinstance(value, bool):
        return ("bool", value)
    return value


def _canonical_list(value: list[Any]) -> tuple[Any, ...]:
    if value and all(isinstance(entry, tuple) for entry in value):
        # Arrow gives a map as a list of pairs; a list never holds tuples otherwise.
        return ("map", *sorted(((_canonical(k), _canonical(v)) for k, v in value), key=repr))
    return ("list", *(_canonical(entry) for entry in value))


def _difference(
    order: Sequence[str],
    surplus: Counter[tuple[Any, ...]],
    lack: Counter[tuple[Any, ...]],
    actual_count: int,
    expected_count: int,
    key: Sequence[str],
) -> str:
    key = key or [name for name in ("_hoodie_partition_path", "_hoodie_record_key") if name in order]
    places = [order.index(name) for name in key]
    lines = [f"{actual_count} rows, expected {expected_count}; {surplus.total()} surplus, {lack.total()} missing"]
    waiting = {tuple(row[place] for place in places): row for row in lack} if places else {}
    alone = []
    for row in surplus:
        partner = waiting.pop(tuple(row[place] for place in places), None) if places else None
        if partner is None:
            alone.append(row)
            continue
        cells = [f"{name}: {a!r} expected {e!r}" for name, a, e in zip(order, row, partner, strict=True) if a != e]
        lines.append(f"row {dict(zip(key, (row[place] for place in places), strict=True))}: " + "; ".join(cells))
    lines += [f"surplus: {dict(zip(order, row, strict=True))}" for row in alone]
    lines += [f"missing: {dict(zip(order, row, strict=True))}" for row in (waiting.values() if places else lack)]
    return "\n  ".join([lines[0], *lines[1 : 1 + 2 * _SHOWN], *(["..."] if len(lines) > 1 + 2 * _SHOWN else [])])
