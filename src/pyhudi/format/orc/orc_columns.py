"""A table's columns as ORC holds them.

    timestamp-millis, timestamp-micros      TIMESTAMP: wall clock in the zone of the writer, which is UTC of PyHudi
    local-timestamp-*, time-*               BIGINT or INT of their unit
    fixed                                   BINARY
    the others                              as Arrow has them

The real Hudi maps them so.  ORC itself has times up to the year 9999; Arrow reads those that fit nanoseconds, 1677 to 2262.

Source: docs/formats/base-file.md, "ORC".
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest

_MICROS = pa.timestamp("us", "UTC")


def orc_schema(schema: pa.Schema) -> pa.Schema:
    """The columns as ORC holds them.  schema: as a file of the table has them, see `parquet_columns.file_schema`."""
    return pa.schema([pa.field(field.name, _orc_type(field.type)) for field in schema])


def to_orc(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows in an `orc_schema`.  Raises InvalidRequest, with the column's name, for a time that could not be read back."""
    columns = []
    for field, column in zip(schema, rows.columns, strict=True):
        try:
            typed = column if column.type == field.type else pc.cast(column, field.type)
        except pa.ArrowInvalid as error:
            raise InvalidRequest(
                f"column {field.name!r}: {error}; base files in ORC hold times from 1677 to 2262, write the table in Parquet"
            ) from error
        columns.append(_standing_alone(typed) if pa.types.is_nested(field.type) else typed)
    return pa.table(columns, schema=schema)


def _standing_alone(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column without parts of larger arrays: of these Arrow writes other rows' values of what is nested in structs."""
    return pa.chunked_array([chunk.take(pa.array(np.arange(len(chunk)))) for chunk in column.chunks], column.type)


def schema_from_file(file_schema: pa.Schema, declared_schema: pa.Schema | None) -> pa.Schema:
    """The columns of a file as Arrow types of a table.  declared_schema: those that its writer states; it may state none."""
    known = {} if declared_schema is None else {field.name: field.type for field in declared_schema}
    return pa.schema([pa.field(field.name, known.get(field.name) or _table_type(field.type)) for field in file_schema])


def from_orc(rows: pa.Table, schema: pa.Schema, zone: str) -> pa.Table:
    """Rows that were read from a file, in the types of `schema`.  zone: of its writer.

    Raises pa.ArrowInvalid where the file's types are no form of these.
    """
    columns = []
    for field, column in zip(schema, rows.columns, strict=True):
        if column.type == field.type:
            columns.append(column)
        else:
            chunks = [_typed(chunk, field.type, zone) for chunk in column.chunks]
            columns.append(pa.chunked_array(chunks, field.type))
    return pa.table(columns, schema=schema)


def has_timestamps(schema: pa.Schema) -> bool:
    """Whether ORC has a TIMESTAMP for a column, at any depth."""
    return any(_holds_times(field.type) for field in schema)


def _orc_type(type_: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_timestamp(type_):
        return pa.int64() if type_.tz is None else pa.timestamp("ns")
    if types.is_time32(type_):
        return pa.int32()
    if types.is_time64(type_):
        return pa.int64()
    if types.is_fixed_size_binary(type_):
        return pa.binary()
    if types.is_struct(type_):
        return pa.struct([pa.field(field.name, _orc_type(field.type)) for field in type_.fields])
    if types.is_list(type_):
        return pa.list_(_orc_type(type_.value_type))
    if types.is_map(type_):
        return pa.map_(_orc_type(type_.key_type), _orc_type(type_.item_type))
    return type_


def _table_type(type_: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_timestamp(type_):
        return _MICROS
    if types.is_struct(type_):
        return pa.struct([field.with_type(_table_type(field.type)) for field in type_.fields])
    if types.is_list(type_):
        return pa.list_(pa.field("element", _table_type(type_.value_type)))
    if types.is_map(type_):
        return pa.map_(type_.key_type, _table_type(type_.item_type))
    return {pa.int8(): pa.int32(), pa.int16(): pa.int32()}.get(type_, type_)


def _holds_times(type_: pa.DataType) -> bool:
    if pa.types.is_timestamp(type_):
        return True
    return any(_holds_times(type_.field(index).type) for index in range(type_.num_fields))


def _typed(array: pa.Array, type_: pa.DataType, zone: str) -> pa.Array:
    """An array as it was read, in the type of the table."""
    types = pa.types
    if array.type == type_:
        return array
    if types.is_timestamp(array.type) and types.is_timestamp(type_):
        return _moments(array, type_, zone)
    if types.is_struct(type_):
        below = [_typed(array.field(field.name), field.type, zone) for field in type_.fields]
        return pa.StructArray.from_arrays(below, fields=type_.fields, mask=array.is_null())
    if types.is_map(type_):
        items = _typed(array.items, type_.item_type, zone)
        return pa.MapArray.from_arrays(
            array.offsets, _typed(array.keys, type_.key_type, zone), items, type_, mask=array.is_null()
        )
    if types.is_list(type_):
        return pa.ListArray.from_arrays(array.offsets, _typed(array.values, type_.value_type, zone), type_, mask=array.is_null())
    return pc.cast(array, type_)


def _moments(array: pa.Array, type_: pa.DataType, zone: str) -> pa.Array:
    if array.type.tz is None and zone not in ("UTC", "GMT"):
        array = pc.assume_timezone(array, zone, ambiguous="earliest", nonexistent="earliest")
    return pc.cast(array, type_, safe=False)
