"""Timestamps of data files and log blocks in the unit that the table declares.

Hudi 0.x and 1.0 wrote columns of the Avro types timestamp-millis and local-timestamp-* with a wrong Parquet type or
Avro schema:

    table declares             file has                              values are
    timestamp-millis           timestamps in microseconds, UTC       milliseconds
    local-timestamp-millis     64-bit integers without annotation    milliseconds
    local-timestamp-micros     64-bit integers without annotation    microseconds

Like Hudi 1.1 and 1.2, these values are read by the table's schema, not converted. Files that really hold microseconds
exist as well, in tables whose declaration changed to milliseconds. Only values distinguish them: a value that would be a
time before the year -6000 or after 9999 in milliseconds is microseconds (Hudi shows such a time).

Specification: docs/formats/base-file.md, "Types".
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.format.avro_to_arrow import MILLIS, UNIT

_MAX_MILLIS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999."""


def in_declared_units(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows of a file with the timestamps of a wrong type as microseconds; other columns are not copied."""
    for index, stored in enumerate(rows.schema):
        position = schema.get_field_index(stored.name)
        if position >= 0 and has_wrong_unit(stored, schema.field(position)):
            field = schema.field(position)
            chunks = [_converted(chunk, stored, field) for chunk in rows.column(index).chunks]
            type_ = chunks[0].type if chunks else field.type
            rows = rows.set_column(index, pa.field(stored.name, type_), pa.chunked_array(chunks, type_))
    return rows


def has_wrong_unit(stored: pa.Field, field: pa.Field) -> bool:
    """Return whether a column, or a part of it, is stored in a type that differs in its unit from the declared one.

    Args:
        stored: The column in a file or log block.
        field: The column of the table.
    """
    types = pa.types
    inner, type_ = stored.type, field.type
    if types.is_timestamp(type_):
        if types.is_int64(inner):
            return type_.tz is None
        is_micros = types.is_timestamp(inner) and inner.unit == "us" and inner.tz is not None
        return is_micros and type_.tz is not None and _is_in_millis(field) and not _is_in_millis(stored)
    if types.is_struct(type_) and types.is_struct(inner):
        return any(
            has_wrong_unit(inner.field(place), child)
            for child in type_.fields
            if (place := inner.get_field_index(child.name)) >= 0
        )
    if types.is_list(type_) and types.is_list(inner):
        return has_wrong_unit(inner.value_field, type_.value_field)
    return types.is_map(type_) and types.is_map(inner) and has_wrong_unit(inner.item_field, type_.item_field)


def may_have_wrong_unit(field: pa.Field) -> bool:
    """Return whether files of older releases may store a column of the table, or a part of it, in a wrong type."""
    type_ = field.type
    if pa.types.is_timestamp(type_):
        return type_.tz is None or _is_in_millis(field)
    return any(may_have_wrong_unit(type_.field(index)) for index in range(type_.num_fields))


def in_millis(field: pa.Field) -> bool:
    """Return whether a column, or a part of it, is declared in milliseconds."""
    return _is_in_millis(field) or any(in_millis(field.type.field(index)) for index in range(field.type.num_fields))


def declared_bounds(low: int, high: int, field: pa.Field) -> tuple[int, int] | None:
    """Return bounds of values that are stored in a wrong type in microseconds; None if the values may have both units."""
    if not _is_in_millis(field):
        return low, high
    if low >= -_MAX_MILLIS and high <= _MAX_MILLIS:
        return low * 1000, high * 1000
    return (low, high) if low > _MAX_MILLIS or high < -_MAX_MILLIS else None


def _is_in_millis(field: pa.Field) -> bool:
    return (field.metadata or {}).get(UNIT) == MILLIS


def _converted(array: pa.Array, stored: pa.Field, field: pa.Field) -> pa.Array:
    """Return values of a column for which `has_wrong_unit`."""
    types = pa.types
    type_ = field.type
    if types.is_timestamp(type_):
        values = array.cast(pa.int64())
        if _is_in_millis(field):
            # Products of other values may overflow, and are not used.
            is_millis = pc.less_equal(pc.abs(values), _MAX_MILLIS)
            values = pc.if_else(is_millis, pc.multiply(values, 1000), values)
        return values.cast(type_)
    if types.is_struct(type_):
        children, fields = [], []
        for place, child in enumerate(array.type.fields):
            wanted = type_.get_field_index(child.name)
            wrong = wanted >= 0 and has_wrong_unit(child, type_.field(wanted))
            values = array.field(place)
            children.append(_converted(values, child, type_.field(wanted)) if wrong else values)
            fields.append(child.with_type(children[-1].type))
        return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null() if array.null_count else None)
    result_type: pa.DataType
    if types.is_list(type_):
        items = _converted(array.values, stored.type.value_field, type_.value_field)
        result_type = pa.list_(array.type.value_field.with_type(items.type))
    else:
        values = _converted(array.items, stored.type.item_field, type_.item_field)
        result_type = pa.map_(array.type.key_field, array.type.item_field.with_type(values.type))
        entries = [result_type.key_field, result_type.item_field]
        items = pa.StructArray.from_arrays([array.keys, values], fields=entries)
    return pa.Array.from_buffers(result_type, len(array), array.buffers()[:2], array.null_count, array.offset, children=[items])
