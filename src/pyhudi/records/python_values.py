"""Values without declared types: columns that Arrow infers from Python, pandas, JSON or CSV.

An inferred type is not one that the caller declared. So values that the table's column represents never change its type;
see "Values" in docs/data-types.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date, datetime
from enum import Enum
from itertools import accumulate, chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest
from pyhudi.records.plain_values import is_uuid, plain_value
from pyhudi.records.record_merge import combine_to_array
from pyhudi.records.schema_cast import cannot_store, unshared_items

DECIMAL = pa.decimal128(38, 18)
"""Type of a new column of Python decimals, as in Spark, DuckDB and Polars."""


def has_declared_type(values: Any) -> bool:
    """Return True for a column of values whose type the caller has chosen, not Arrow, NumPy or pandas by default."""
    if isinstance(values, (list, tuple, range)):
        return False
    kind = getattr(values, "dtype", None)
    return kind is None or kind not in (np.dtype("int64"), np.dtype("float64"), np.dtype("object"))


def _has_nanoseconds(kind: type) -> bool:
    return kind.__module__.startswith("pandas.") and kind.__name__ == "Timestamp"


def _plain_column(values: Any, name: str) -> Any:
    """Return values of a column, those in lists by `plain_value`. Raises InvalidRequest for members of an Enum."""
    if not isinstance(values, (list, tuple)):
        return values
    kinds = set(map(type, values))
    finer = [value for value in values if getattr(value, "nanosecond", 0)] if any(map(_has_nanoseconds, kinds)) else []
    if finer:
        # Arrow infers microseconds for pandas' timestamps; the write decides about nanoseconds.
        return pa.array(values, pa.timestamp("ns", None if finer[0].tzinfo is None else "UTC"))
    converts = any(
        issubclass(kind, (Enum, pa.Scalar, np.generic)) or is_uuid(kind) or kind.__module__.startswith("pandas.")
        for kind in kinds
    )
    return [plain_value(value, f"column {name!r}") for value in values] if converts else values


def python_array(name: str, values: Any, kind: pa.DataType | None = None) -> pa.Array | pa.ChunkedArray:
    """Convert values of a column to Arrow, with maps where the type `kind` of the table's column has maps.

    Raises:
        InvalidRequest: The values have no common Arrow type, or members of an Enum.
    """
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise InvalidRequest(f"column {name!r} is {values!r:.80} and not a list of values; write a row as [{{...}}]")
    try:
        values = _plain_column(values, name)
        if isinstance(values, np.ndarray) and values.ndim == 2:
            return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
        array = _with_map(name, list(values), kind) if kind is not None and has_map(kind) else pa.array(values)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise InvalidRequest(f"column {name!r} cannot be read as Arrow: {error}; {_remedy(values, error)}") from error
    if isinstance(values, (list, tuple)):
        _check_times(name, values, array.type)
    return array


def _remedy(values: Iterable[Any], error: Exception) -> str:
    """What to do about Python values that Arrow cannot read."""
    if isinstance(error, OverflowError) or "too large to fit" in str(error):
        return "write integers of more than 64 bits as decimal.Decimal, or as text"
    # Python has no type for pairs of a map.
    map_hint = ", which a map always needs" if any(map(_is_map, values)) else ""
    return f"make its values of one type, or pass a pyarrow array of the column's type{map_hint}"


def _is_map(value: Any) -> bool:
    return isinstance(value, Mapping) or (isinstance(value, list) and any(isinstance(item, tuple) for item in value))


def _check_times(path: str, values: Iterable[Any], kind: pa.DataType) -> None:
    """Refuse mixed time types: Arrow uses the first one, and silently truncates or shifts later values."""
    if pa.types.is_list(kind):
        _check_times(path + "[]", chain.from_iterable(value for value in values if value is not None), kind.value_type)
    elif pa.types.is_struct(kind):
        structs = [value for value in values if isinstance(value, Mapping)]
        for child in kind.fields:
            _check_times(f"{path}.{child.name}", [value.get(child.name) for value in structs], child.type)
    elif pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        time_types = sorted({_time_kind(value) for value in values if isinstance(value, date)})
        if len(time_types) > 1:
            raise InvalidRequest(f"column {path!r} mixes {' and '.join(time_types)}: use one type of time values")


def _time_kind(value: date) -> str:
    if not isinstance(value, datetime):
        return "dates"
    return "times without a zone" if value.tzinfo is None else "times with a zone"


def has_map(kind: pa.DataType | None) -> bool:
    """Return True if a type is a map, or has maps inside."""
    if kind is None or not pa.types.is_nested(kind):
        return False
    return pa.types.is_map(kind) or any(has_map(kind.field(place).type) for place in range(kind.num_fields))


def _with_map(name: str, values: Sequence[Any], kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """The values of a column whose type has maps. Other parts of the type are inferred."""
    values = [value.as_py() if isinstance(value, pa.Scalar) else value for value in values]
    if all(value is None for value in values):
        return pa.nulls(len(values))
    if pa.types.is_struct(kind):
        present = [value for value in values if value is not None]
        if not all(isinstance(value, Mapping) for value in present):
            raise TypeError("expected a dictionary in each row")
        children = dict.fromkeys(child for value in present for child in value)
        types = {child.name: child.type for child in kind.fields}
        arrays = [
            python_array(f"{name}.{child}", [None if value is None else value.get(child) for value in values], types.get(child))
            for child in children
        ]
        if not children:
            return pa.array(values, kind)
        return pa.StructArray.from_arrays(arrays, list(children), mask=pa.array([value is None for value in values], pa.bool_()))
    is_map = pa.types.is_map(kind)
    lists = [list(value.items()) if is_map and isinstance(value, Mapping) else value for value in values]
    if any(not isinstance(entries, (list, tuple)) for entries in lists if entries is not None):
        raise TypeError(f"expected {'a dictionary or ' if is_map else ''}a list in each row")
    items = [item for entries in lists if entries is not None for item in entries]
    if is_map and any(not isinstance(item, (list, tuple)) or len(item) != 2 for item in items):
        raise TypeError("a list in the place of a map holds pairs of a key and a value")
    ends = accumulate(len(entries or ()) for entries in lists)
    starts = [None if entries is None else end - len(entries) for entries, end in zip(lists, ends, strict=True)]
    offsets = pa.array([*starts, len(items)], pa.int32())
    if not is_map:
        return pa.ListArray.from_arrays(offsets, python_array(f"{name}[]", items, kind.value_type))
    keys, entries = zip(*items, strict=True) if items else ((), ())
    return pa.MapArray.from_arrays(
        offsets,
        python_array(f"{name}.key", keys) if items else pa.array([], kind.key_type),
        python_array(f"{name}.value", entries, kind.item_type) if items else pa.array([], kind.item_type),
    )


def fit(array: pa.Array, column: pa.DataType | None, path: str, *, may_widen: bool = False) -> pa.Array:
    """Return inferred values in the type of their column if it represents each of them.

    Integers are narrowed if all of them fit; if one does not, the array keeps its type, by which the write may widen the
    column. Floating point numbers are rounded to a float column. Whole floating point numbers and decimals become
    integers. Decimals of a new column become DECIMAL. Other values keep their type.

    Args:
        array: Values whose type Arrow has inferred.
        column: Type of the table's column; None for a new column.
        path: Dotted name of the column, for errors.
        may_widen: The caller has set a schema mode, so the type of other values may change the column.

    Raises:
        InvalidRequest: A fraction or NaN for an integer column, or a decimal of a new column with more digits than DECIMAL.
    """
    types = pa.types
    source = array.type
    if source == column or types.is_null(source):
        return array
    if types.is_struct(source) and (column is None or types.is_struct(column)):
        known = {} if column is None else {child.name: child.type for child in column.fields}
        parts = [
            fit(array.field(at), known.get(child.name), f"{path}.{child.name}", may_widen=may_widen)
            for at, child in enumerate(source.fields)
        ]
        return pa.StructArray.from_arrays(parts, names=[child.name for child in source.fields], mask=array.is_null())
    if types.is_list(source) and (column is None or types.is_list(column)):
        array = unshared_items(array)
        items = fit(array.values, None if column is None else column.value_type, path + "[]", may_widen=may_widen)
        if items.type == array.values.type:
            return array
        return pa.ListArray.from_arrays(array.offsets, items, mask=array.is_null() if array.null_count else None)
    if types.is_decimal(source) and (column is None or types.is_integer(column)):
        target = DECIMAL if column is None else column
        return _cast(array, target, path)
    if column is None:
        return array
    if types.is_integer(source) and types.is_integer(column):
        return _narrowed(array, column)
    if types.is_floating(source) and types.is_floating(column):
        rounded = pc.cast(array, column, safe=False)
        overflows = pc.any(pc.and_(pc.is_inf(rounded), pc.invert(pc.is_inf(array))), min_count=0).as_py()
        return array if overflows else rounded
    if types.is_floating(source) and types.is_integer(column):
        whole = pc.and_(pc.equal(array, pc.round(array)), pc.less(pc.abs(array), 2.0**63))
        if may_widen and not pc.all(whole, min_count=0).as_py():
            return array
        return _narrowed(_cast(array, pa.int64(), path, column), column)
    return array


def fit_columns(rows: pa.Table, table: pa.Schema | None, inferred: Collection[str], *, may_widen: bool = False) -> pa.Table:
    """Apply `fit` to columns of rows.

    Args:
        rows: The rows.
        table: Columns of the table; None for a new table.
        inferred: Columns whose types are inferred.
        may_widen: As in `fit`.
    """
    known = {} if table is None else {field.name: field.type for field in table}
    columns = {
        name: fit(combine_to_array(column), known.get(name), name, may_widen=may_widen) if name in inferred else column
        for name, column in zip(rows.column_names, rows.columns, strict=True)
    }
    return pa.table(columns)


def _narrowed(array: pa.Array, column: pa.DataType) -> pa.Array:
    try:
        return pc.cast(array, column)
    except pa.ArrowInvalid:
        return array


def _cast(array: pa.Array, type_: pa.DataType, path: str, column: pa.DataType | None = None) -> pa.Array:
    try:
        return pc.cast(array, type_)
    except pa.ArrowInvalid as error:
        raise InvalidRequest(cannot_store(array, column or type_, path, lambda part: pc.cast(part, type_))) from error
