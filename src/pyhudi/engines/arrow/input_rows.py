"""Input data of writes as a stream of Arrow batches.

    Arrow                  tables, batches, readers, datasets, scanners, anything with the Arrow PyCapsule interface
                           (Polars, pandas, DuckDB, ...)
    Polars LazyFrame       collected
    columns                a mapping of names to values; a two-dimensional numpy array has a list in each row
    rows                   a list of mappings: missing names are null
    a generator            of mappings, which are collected before anything is written; or of tables and frames, one at
                           a time
    a list of frames       tables, batches and frames with equal columns, concatenated

Arrow infers one type for all Python values of a column. `typed_rows` gives them the types of the table's columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa

from pyhudi.errors import InvalidRequest
from pyhudi.records.python_values import fit_columns, has_declared_type, has_map, python_array

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


def typed_rows(data: Any, columns: Callable[[], pa.Schema | None], *, may_widen: bool = False) -> Any:
    """Return rows without declared types in the types of the table's columns that represent them.

    Dictionaries and lists of pairs become maps where the table has maps.

    Args:
        data: The data of a write. Rows of a generator are collected; other data than Python values and pandas frames is
            unchanged.
        columns: Returns the table's columns, None if there are none yet; called if a type is inferred.
        may_widen: The caller has set a schema mode; see `records.python_values.fit`.

    Raises:
        InvalidRequest: A value does not fit its column, or has no Arrow type.
    """
    if isinstance(data, Iterator) and not is_frame(data):
        first = next(data, None)
        if not isinstance(first, Mapping):
            return [] if first is None else chain([first], data)
        data = [first, *data]
    if isinstance(data, (list, tuple)) and data and all(isinstance(row, Mapping) for row in data):
        data = _columns_of_rows(data)
    if type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "columns"):
        return _typed_frame(data, columns, may_widen=may_widen)
    if not isinstance(data, Mapping) or not all(isinstance(name, str) for name in data):
        return data
    inferred = {name for name, values in data.items() if not has_declared_type(values)}
    schema = columns() if inferred else None
    types = {} if schema is None else {field.name: field.type for field in schema}
    rows = _of_columns({name: python_array(name, values, types.get(name)) for name, values in data.items()}).read_all()
    return fit_columns(rows, schema, inferred, may_widen=may_widen)


def _typed_frame(frame: Any, columns: Callable[[], pa.Schema | None], *, may_widen: bool) -> Any:
    """A pandas frame; as a table if columns have the dtypes that pandas chooses by itself."""
    names = list(frame.columns)
    _refuse_equal_names(names)
    inferred = {name for name in names if not has_declared_type(frame[name])}
    if not inferred:
        return frame
    schema = columns()
    maps = {field.name: field.type for field in schema or () if field.name in inferred and has_map(field.type)}
    objects = {name for name in maps if frame[name].dtype == object}
    remaining = arrow_reader(frame.drop(columns=list(objects))).read_all() if objects else arrow_reader(frame).read_all()
    converted = {name: python_array(name, frame[name].where(frame[name].notna(), None).tolist(), maps[name]) for name in objects}
    # The named index of the frame is a column of the rows.
    order = [*names, *(name for name in remaining.column_names if name not in names)]
    rows = pa.table({name: converted[name] if name in converted else remaining[name] for name in order})
    return fit_columns(rows, schema, inferred, may_widen=may_widen)


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
        arrays[name] = python_array(name, values)
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
