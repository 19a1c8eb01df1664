"""Mapping of a table's columns to ORC types.

    timestamp-millis, timestamp-micros      TIMESTAMP: wall clock in the writer's time zone, which is UTC for PyHudi
    local-timestamp-*, time-*               BIGINT or INT of their unit
    fixed                                   BINARY
    others                                  as in Arrow

The mapping is Hudi's. ORC supports timestamps up to the year 9999; Arrow reads those that fit nanoseconds, 1677 to 2262.

Specification: docs/formats/base-file.md, "ORC".
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest

_MICROS = pa.timestamp("us", "UTC")


def orc_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema in ORC types. schema: the columns of a data file of the table, see `avro_hints.file_schema`."""
    return pa.schema([pa.field(field.name, _orc_type(field.type)) for field in schema])


def to_orc(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Convert rows to an `orc_schema`.

    Raises:
        InvalidRequest: A timestamp that could not be read back; the message names the column.
    """
    columns = []
    for field, column in zip(schema, rows.columns, strict=True):
        try:
            typed = column if column.type == field.type else pc.cast(column, field.type)
        except pa.ArrowInvalid as error:
            raise InvalidRequest(
                f"column {field.name!r}: {error}; ORC base files support timestamps from 1677 to 2262, write the table in Parquet"
            ) from error
        columns.append(_without_slices(typed) if pa.types.is_nested(field.type) else typed)
    return pa.table(columns, schema=schema)


def _without_slices(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Copy the column if it is a slice: for slices, Arrow writes wrong rows of values nested in structs."""
    return pa.chunked_array([chunk.take(pa.array(np.arange(len(chunk)))) for chunk in column.chunks], column.type)


def schema_from_file(file_schema: pa.Schema, declared_schema: pa.Schema | None) -> pa.Schema:
    """Return the columns of a file as Arrow types of a table.

    Args:
        file_schema: The types that Arrow reads.
        declared_schema: The schema that the file's writer recorded, if any.
    """
    known = {} if declared_schema is None else {field.name: field.type for field in declared_schema}
    return pa.schema([pa.field(field.name, known.get(field.name) or _table_type(field.type)) for field in file_schema])


def from_orc(rows: pa.Table, schema: pa.Schema, zone: str) -> pa.Table:
    """Convert rows of a file to the types of `schema`. zone: the writer's time zone.

    Raises:
        pa.ArrowInvalid: The file's types cannot be converted.
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
    """Return whether a column is an ORC TIMESTAMP, at any depth."""
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
    """Convert an array of the file to the type of the table."""
    types = pa.types
    if array.type == type_:
        return array
    if types.is_timestamp(array.type) and types.is_timestamp(type_):
        return _to_instants(array, type_, zone)
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


def _to_instants(array: pa.Array, type_: pa.DataType, zone: str) -> pa.Array:
    if array.type.tz is None and zone not in ("UTC", "GMT"):
        array = pc.assume_timezone(array, zone, ambiguous="earliest", nonexistent="earliest")
    return pc.cast(array, type_, safe=False)
