"""Input data of writes as a stream of Arrow batches.

    Arrow                  tables, batches, readers, datasets, scanners, anything with the Arrow PyCapsule interface
                           (Polars, pandas, DuckDB, ...)
    Polars LazyFrame       collected
    columns                a mapping of names to values; a two-dimensional numpy array has a list in each row
    rows                   a list of mappings: missing names are null
    a generator            of mappings, which are collected before anything is written; or of tables and frames, one at
                           a time
    a list of frames       tables, batches and frames with equal columns, concatenated

Arrow infers one type for all Python values of a column. It infers no maps: dictionaries of rows, columns and pandas
frames take the place of maps in the table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from itertools import accumulate, chain
from typing import Any

import numpy as np
import pyarrow as pa

from pyhudi.errors import InvalidRequest

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_COLUMN_OF_PANDAS = re.compile(r"Conversion failed for column (.+) with type")


def arrow_reader(data: Any) -> pa.RecordBatchReader:
    """Open the input data as a stream.

    Raises:
        InvalidRequest: The data is not tabular, contains values that Arrow lacks, or has two columns of one name.
    """
    try:
        reader = _opened(data)
    except (UnicodeEncodeError, OverflowError, pa.ArrowException) as error:
        # Column names that are not text, arrays that are not rows, numbers of more than 64 bits.
        raise InvalidRequest(f"the data cannot be read as Arrow rows: {error}") from error
    _refuse_equal_names(reader.schema.names)
    return reader


def _refuse_equal_names(names: Sequence[Any]) -> None:
    if len(set(names)) < len(names):
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise InvalidRequest(f"the data has two columns named {twice!r}: rename one of them")


def _opened(data: Any) -> pa.RecordBatchReader:
    if isinstance(data, pa.RecordBatchReader):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(data.schema, [data])
    if isinstance(data, pa.Table):
        return data.to_reader()
    package, _, rest = type(data).__module__.partition(".")
    if package == "polars":
        if type(data).__name__ == "LazyFrame":
            data = data.collect()
        _refuse_types_of_polars(data)
    if package == "pandas" and hasattr(data, "columns"):
        _refuse_equal_names(list(data.columns))
    if hasattr(data, "__arrow_c_stream__"):
        try:
            return _without_index(pa.RecordBatchReader.from_stream(data))
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise InvalidRequest(_unreadable(error)) from error
    if hasattr(data, "__arrow_c_array__"):
        batch = pa.record_batch(data)
        return pa.RecordBatchReader.from_batches(batch.schema, [batch])
    if package == "pyarrow" and rest in ("dataset", "_dataset") and hasattr(data, "scanner"):
        data = data.scanner()
    if package == "pyarrow" and hasattr(data, "to_reader"):
        reader: pa.RecordBatchReader = data.to_reader()
        return reader
    if isinstance(data, Mapping):
        return _of_columns(data)
    if isinstance(data, (list, tuple)):
        return _of_rows(data)
    if isinstance(data, Iterator):
        return _generated(data)
    raise InvalidRequest(
        f"data of type {type(data).__module__}.{type(data).__name__} cannot be read as Arrow; pass a PyArrow table, "
        "batch, reader or dataset, a Polars or pandas frame, any object with the Arrow PyCapsule interface, a dictionary of "
        "columns, or a list or generator of dictionaries"
    )


def with_maps(data: Any, columns: Callable[[], pa.Schema | None]) -> Any:
    """Return rows or columns of Python values whose dictionaries and lists of pairs are maps where the table has maps.

    Args:
        data: The data of a write. Rows of a generator are collected; object columns of a pandas frame are read; other data
            is unchanged.
        columns: Returns the table's columns, None if there are none yet; called for nested values only.
    """
    if isinstance(data, Iterator) and not is_frame(data):
        first = next(data, None)
        if not isinstance(first, Mapping):
            return [] if first is None else chain([first], data)
        data = [first, *data]
    if isinstance(data, (list, tuple)) and data and all(isinstance(row, Mapping) for row in data):
        data = _columns_of_rows(data)
    if type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "columns"):
        return _pandas_with_maps(data, columns)
    if not isinstance(data, Mapping):
        return data
    nested = [name for name, values in data.items() if isinstance(values, (list, tuple)) and any(map(_is_nested, values))]
    types = _types_with_maps(nested, columns)
    return {**data, **{name: _array(name, data[name], kind) for name, kind in types.items()}}


def _types_with_maps(nested: Collection[Any], columns: Callable[[], pa.Schema | None]) -> dict[str, pa.DataType]:
    schema = columns() if nested else None
    return {field.name: field.type for field in schema or () if field.name in nested and _has_map(field.type)}


def _pandas_with_maps(frame: Any, columns: Callable[[], pa.Schema | None]) -> Any:
    """A pandas frame; as a table if one of its object columns has Python values for a column with maps."""
    names = list(frame.columns)
    _refuse_equal_names(names)
    objects = [name for name in names if frame[name].dtype == object]
    first_values = {name: frame[name].dropna().iloc[:1].tolist() for name in objects}
    nested = [name for name, values in first_values.items() if any(map(_is_nested, values))]
    types = _types_with_maps(nested, columns)
    if not types:
        return frame
    remaining = arrow_reader(frame.drop(columns=list(types))).read_all()
    converted = {
        name: _array(name, series.where(series.notna(), None).tolist(), kind)
        for name, kind in types.items()
        for series in [frame[name]]
    }
    return pa.table({name: converted[name] if name in converted else remaining[name] for name in names})


def _is_nested(value: Any) -> bool:
    return isinstance(value, (Mapping, list, tuple))


def _has_map(kind: pa.DataType | None) -> bool:
    if kind is None or not pa.types.is_nested(kind):
        return False
    return pa.types.is_map(kind) or any(_has_map(kind.field(place).type) for place in range(kind.num_fields))


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
            _array(f"{name}.{child}", [None if value is None else value.get(child) for value in values], types.get(child))
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
        return pa.ListArray.from_arrays(offsets, _array(f"{name}[]", items, kind.value_type))
    keys, entries = zip(*items, strict=True) if items else ((), ())
    return pa.MapArray.from_arrays(
        offsets,
        _array(f"{name}.key", keys) if items else pa.array([], kind.key_type),
        _array(f"{name}.value", entries, kind.item_type) if items else pa.array([], kind.item_type),
    )


def _unreadable(error: pa.ArrowException) -> str:
    """Error message for a pandas column that Arrow cannot convert, without the memory addresses of values."""
    reason = _ADDRESS.sub("", str(error.args[0] if error.args else error))
    column = next((matched[1] for matched in map(_COLUMN_OF_PANDAS.search, map(str, error.args)) if matched), None)
    if column is None:
        return f"the data cannot be read as Arrow: {reason}"
    return (
        f"column {column!r} cannot be read as Arrow: {reason}. Its values have several types, or one that Arrow lacks: "
        "convert them to one type first, for instance with astype"
    )


def _of_columns(columns: Mapping[Any, Any]) -> pa.RecordBatchReader:
    """Columns by name."""
    arrays: dict[str, pa.Array | pa.ChunkedArray] = {}
    for name, values in columns.items():
        if not isinstance(name, str):
            raise InvalidRequest(f"the data is a dictionary, whose keys must be column names, but {name!r} is not a string")
        arrays[name] = _array(name, values)
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise InvalidRequest(f"the columns differ in length: {', '.join(f'{name} {length}' for name, length in lengths.items())}")
    return pa.table(arrays).to_reader()


def _of_rows(rows: Sequence[Any]) -> pa.RecordBatchReader:
    """Rows as mappings of names to values, or tables and frames to concatenate."""
    if rows and is_frame(rows[0]):
        return _concatenated(rows[0], iter(rows[1:]))
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise InvalidRequest(
                f"row {number} (counted from 0) of the data is not a dictionary of columns but {type(row).__module__}."
                f"{type(row).__name__}"
            )
    if not rows:
        raise InvalidRequest("the data is empty, so its columns are unknown; pass an empty Arrow table to write no rows")
    return _of_columns(_columns_of_rows(rows))


def _columns_of_rows(rows: Sequence[Mapping[Any, Any]]) -> dict[Any, list[Any]]:
    return {name: [row.get(name) for row in rows] for name in dict.fromkeys(name for row in rows for name in row)}


def _generated(items: Iterator[Any]) -> pa.RecordBatchReader:
    """A generator of rows, or of tables and frames."""
    first = next(items, None)
    if is_frame(first):
        return _concatenated(first, items)
    return _of_rows([] if first is None else [first, *items])


def is_empty(data: Any) -> bool:
    """Return True if the data has neither rows nor columns, such as an empty list or a frame created from one."""
    if known_length(data) != 0:
        return False
    return isinstance(data, (list, tuple)) or (is_frame(data) and not arrow_reader(data).schema.names)


def known_length(data: Any) -> int | None:
    """Return the number of rows, columns or items that the data has by itself; None for streams, scans and lazy frames."""
    try:
        return len(data)
    except TypeError:
        return None


def required_without_nulls(data: Any, required: Collection[str]) -> Any:
    """Return data in memory in which those of the required columns that contain no null may not be null, so that a write
    lifts no other one; a stream, and rows of Spark, are unchanged.

    Args:
        data: The rows.
        required: Columns of the table that may not be null.
    """
    is_stream = isinstance(data, (pa.RecordBatchReader, Iterator)) or hasattr(data, "scanner")
    if not required or is_stream or not (isinstance(data, (list, tuple, Mapping)) or is_frame(data)):
        return data
    rows = arrow_reader(data).read_all()
    fields = [
        field.with_nullable(False) if field.name in required and not column.null_count else field
        for field, column in zip(rows.schema, rows.columns, strict=True)
    ]
    return rows.cast(pa.schema(fields, metadata=rows.schema.metadata))


def is_frame(item: Any) -> bool:
    """Return True if an item is tabular itself: a table, batch, dataset, or a Polars or pandas frame."""
    lazy = type(item).__module__.partition(".")[0] == "polars" and type(item).__name__ == "LazyFrame"
    return lazy or any(hasattr(item, name) for name in ("__arrow_c_stream__", "__arrow_c_array__", "scanner"))


def _concatenated(first: Any, others: Iterator[Any]) -> pa.RecordBatchReader:
    """Tables and frames, each read after the previous ones are written."""
    opened = arrow_reader(first)
    return pa.RecordBatchReader.from_batches(opened.schema, _batches(opened, others))


def _batches(first: pa.RecordBatchReader, remaining: Iterator[Any]) -> Iterator[pa.RecordBatch]:
    yield from first
    for number, part in enumerate(remaining, 1):
        if not is_frame(part):
            raise InvalidRequest(
                f"item {number} (counted from 0) of the data is not a table or frame, but the first one is: {type(part)}"
            )
        opened = arrow_reader(part)
        if not opened.schema.equals(first.schema):
            raise InvalidRequest(
                f"item {number} (counted from 0) of the data has other columns than the first one: {opened.schema}"
            )
        yield from opened


def _array(name: str, values: Any, kind: pa.DataType | None = None) -> pa.Array | pa.ChunkedArray:
    """The values of a column of the given type in the table.  Raises InvalidRequest with its name."""
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise InvalidRequest(f"column {name!r} is {values!r:.80} and not a list of values; write a row as [{{...}}]")
    try:
        if isinstance(values, np.ndarray) and values.ndim == 2:
            return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
        array = _with_map(name, list(values), kind) if kind is not None and _has_map(kind) else pa.array(values)
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


def _refuse_types_of_polars(data: Any) -> None:
    """Raise InvalidRequest for Polars columns that other libraries cannot read."""
    # Columns of Python objects are exported as bytes with their addresses, 128-bit numbers in a format of their own.
    column_types = data.schema.items() if hasattr(data, "columns") else [(data.name, data.dtype)]
    for name, kind in column_types:
        inner = set(_parts(kind))
        if "Object" in inner:
            raise InvalidRequest(f"column {name!r} has Python objects (Polars {kind}): cast it to another Polars type first")
        wide = inner & {"Int128", "UInt128"}
        if wide:
            raise InvalidRequest(
                f"column {name!r} has 128-bit numbers (Polars {kind}), which neither Arrow nor Hudi supports: cast it to Int64 "
                "if the values fit, else to Decimal(38, 0)"
            )


def _parts(kind: Any) -> Iterator[str]:
    """The names of a Polars type and of the types nested in it."""
    yield str(kind)
    for field in getattr(kind, "fields", ()):
        yield from _parts(field.dtype)
    if getattr(kind, "inner", None):
        yield from _parts(kind.inner)


def _without_index(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Drop the index columns that pandas adds under generated names."""
    names = [name for name in reader.schema.names if not re.fullmatch(r"__index_level_\d+__", name)]
    if len(names) == len(reader.schema.names) or b"pandas" not in (reader.schema.metadata or {}):
        return reader
    schema = pa.schema([reader.schema.field(name) for name in names])
    return pa.RecordBatchReader.from_batches(schema, (batch.select(names) for batch in reader))
