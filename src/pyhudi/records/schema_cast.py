"""Cast batches to a schema: columns matched by name, lossless casts, nested types field by field.

Source: docs/formats/writing.md, "Writer schema"; docs/formats/reading.md, "Schema".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import Internal, InvalidRequest
from pyhudi.format.avro_to_arrow import column_default
from pyhudi.format.hudi_types import VARIANT_TYPE, is_vector, vectors_to_bytes
from pyhudi.records.decimal_casts import decimals_to_floats
from pyhudi.records.java_strings import is_binary_like, is_string_like, timestamp_micros, value_text, widen_floats_as_text
from pyhudi.records.type_normalization import is_list_like
from pyhudi.records.variants.variant_shredding import is_shredded, unshredded
from pyhudi.records.vectors import to_vectors


def conform(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """Cast a batch to the columns, order and types of a target schema; rows keep their order.

    Columns are matched by exact name. A column that the target lacks is dropped. A column that the batch lacks is null,
    or its default if it is not nullable. Numbers cast to strings use Java's format, float is cast to double through its
    text (0.1f becomes 0.1), strings are parsed for date and decimal columns, finer timestamps are rounded down. Nested
    types are cast field by field. A batch that already matches is not copied.

    Source: docs/formats/writing.md, "Writer schema"; docs/formats/reading.md, "Schema".

    Args:
        batch: Batch from the caller (any layout that `normalize_types` accepts) or from a file with an older schema.
        target: Canonical schema, or one with millisecond timestamps, as files may have them.

    Raises:
        InvalidRequest: A value cannot be cast without loss, or a target column that is not nullable is missing or
            contains a null.
    """
    if batch.schema.equals(target) and not any(has_required_part(field) for field in target):
        return batch
    positions = {name: index for index, name in enumerate(batch.schema.names)}
    columns: list[pa.Array] = []
    for field in target:
        position = positions.get(field.name)
        if position is None:
            columns.append(missing_column(field, batch.num_rows, field.name))
            continue
        columns.append(_conform_array(batch.column(position), field, field.name, None))
    if not columns:
        # A batch without columns still has rows.
        return batch.select([])
    return pa.RecordBatch.from_arrays(columns, schema=target)


def missing_column(field: pa.Field, count: int, path: str) -> pa.Array:
    """Return the values of a column that rows were written without: its default if it is not nullable, else nulls.

    Args:
        field: Field of the column.
        count: Number of rows.
        path: Dotted name of the column, for the error.

    Raises:
        InvalidRequest: The column is not nullable and has no default.
    """
    default = column_default(field)
    if default is not None:
        return pa.repeat(default, count)
    if not field.nullable:
        raise InvalidRequest(f"column {path!r} is missing and may not be null. {NULL_REMEDY}")
    return pa.nulls(count, field.type)


def refuse_rounding(batch: pa.RecordBatch, target: pa.Schema) -> None:
    """Reject whole numbers that the target's floating point columns, at any depth, cannot represent exactly.

    Old files are read with rounding, as Java widens numbers; input of the caller must never change.

    Raises:
        InvalidRequest: A value would be rounded.
    """
    names = set(batch.schema.names)
    for field in target:
        if field.name in names:
            _refuse_rounding(batch.column(field.name), field.type, field.name)


def _refuse_rounding(array: pa.Array, type_: pa.DataType, path: str) -> None:
    types = pa.types
    source = array.type
    if types.is_dictionary(source):
        _refuse_rounding(array.dictionary, type_, path)
    elif types.is_struct(type_) and types.is_struct(source):
        for child in type_.fields:
            if source.get_field_index(child.name) >= 0:
                _refuse_rounding(pc.struct_field(array, child.name), child.type, f"{path}.{child.name}")
    elif types.is_list(type_) and is_list_like(source):
        _refuse_rounding(array.flatten(), type_.value_type, path + "[]")
    elif types.is_map(type_) and types.is_map(source):
        _refuse_rounding(array.items, type_.item_type, path + "{}")
    elif types.is_floating(type_) and types.is_integer(source) and source.bit_width > _WHOLE_BITS[type_.bit_width]:
        rounded = pc.cast(pc.cast(array, type_, safe=False), source, safe=False)
        position = pc.index(pc.not_equal(rounded, array), True).as_py()
        if position >= 0:
            raise InvalidRequest(
                f"column {path!r}: {array[position].as_py()} cannot be stored as {type_} without rounding; "
                "cast the column before writing"
            )


NULL_REMEDY = "Pass a value, or set pyhudi.schema.mode=widen to make the column nullable (record key fields excepted)"
"""Remedy of errors about nulls in columns that may not be null."""

_WHOLE_BITS = {32: 24, 64: 53}
"""Bit width of a floating point type to the bits of the whole numbers that it represents exactly."""


def conform_table(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Apply `conform` to each batch of a table."""
    if rows.schema.equals(schema):
        return rows
    if not rows.num_rows:
        return schema.empty_table()
    return pa.Table.from_batches([conform(batch, schema) for batch in rows.to_batches()], schema)


def relabel(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows under a schema that differs only in nullability, at any depth, without copying values.

    Nulls of required fields inside a null struct are removed, because Arrow's casts and its Parquet writer reject them.

    Args:
        schema: Schema with the columns of `rows` in their order.

    Raises:
        Internal: The schemas differ in more than nullability.
        InvalidRequest: A required field is null inside a parent that is not null.
    """
    if rows.schema.equals(schema) and not any(has_required_part(field) for field in schema):
        return rows
    if rows.column_names != schema.names:
        raise Internal(f"columns {', '.join(rows.column_names)} cannot be relabeled as {', '.join(schema.names)}")
    columns = [relabel_column(column, field) for column, field in zip(rows.columns, schema, strict=True)]
    return pa.table(columns, schema=schema)


def relabel_column(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """Apply `relabel` to one column."""
    return pa.chunked_array([relabel_array(chunk, field) for chunk in column.chunks], field.type)


def relabel_array(array: pa.Array, field: pa.Field) -> pa.Array:
    """Apply `relabel` to an array."""
    if not same_type(array.type, field.type):
        raise Internal(f"column {field.name!r} of type {array.type} cannot be relabeled as {field.type}")
    return _conform_array(array, field, field.name, None)


def same_values(first: pa.ChunkedArray, second: pa.ChunkedArray) -> bool:
    """Return True if two columns contain the same values; NaN equals NaN.

    May return False for columns with NaN whose memory differs in unused bytes.
    """
    second = second.cast(first.type)
    return bool(first.equals(second)) or _bytes(first) == _bytes(second)


def _bytes(column: pa.ChunkedArray) -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table({"column": column}).combine_chunks()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def same_type(left: pa.DataType, right: pa.DataType) -> bool:
    """Return True if two types have the same values and layout; nullability and the names of list and map entries may differ."""
    types = pa.types
    if types.is_struct(left) and types.is_struct(right):
        return left.num_fields == right.num_fields and all(
            a.name == b.name and same_type(a.type, b.type) for a, b in zip(left.fields, right.fields, strict=True)
        )
    if types.is_list(left) and types.is_list(right):
        return same_type(left.value_type, right.value_type)
    if types.is_map(left) and types.is_map(right):
        return same_type(left.key_type, right.key_type) and same_type(left.item_type, right.item_type)
    return bool(left == right)


def has_required_part(field: pa.Field) -> bool:
    """Return True if a part of the field is not nullable, so that data of equal type must still be checked."""
    if not field.nullable:
        return True
    type_ = field.type
    if is_vector(type_):
        return True
    if pa.types.is_struct(type_):
        return any(has_required_part(child) for child in type_.fields)
    if pa.types.is_list(type_):
        return has_required_part(type_.value_field)
    return pa.types.is_map(type_) and has_required_part(type_.item_field)


def _conform_array(array: pa.Array, field: pa.Field, path: str, parent_valid: pa.Array | None) -> pa.Array:
    if not field.nullable and array.null_count:
        missing = array.is_null() if parent_valid is None else pc.and_(array.is_null(), parent_valid)
        row = pc.index(missing, True).as_py()
        if row >= 0:
            raise InvalidRequest(f"column {path!r} may not be null: row {row} (counted from 0) is null. {NULL_REMEDY}")
    type_ = field.type
    matches = array.type == type_ and not _has_required_child(type_)
    result = array if matches else _cast(array, type_, path, parent_valid)
    return result if field.nullable or not result.null_count or is_vector(type_) else _without_validity(result)


def _without_validity(array: pa.Array) -> pa.Array:
    """Return the array without its validity bitmap; each of its nulls is inside a null parent."""
    # Parquet's writer and Arrow's casts check these nulls without regard to the parent.
    type_ = array.type
    if pa.types.is_struct(type_):
        return pa.StructArray.from_arrays([array.field(i) for i in range(type_.num_fields)], fields=list(type_.fields))
    children = [array.values] if pa.types.is_list(type_) or pa.types.is_map(type_) else []
    _, *buffers = array.buffers()[: type_.num_buffers]
    return pa.Array.from_buffers(type_, len(array), [None, *buffers], 0, array.offset, children=children)


def _has_required_child(type_: pa.DataType) -> bool:
    return bool(pa.types.is_nested(type_)) and has_required_part(pa.field("", type_))


def _cast(array: pa.Array, type_: pa.DataType, path: str, parent_valid: pa.Array | None) -> pa.Array:
    types = pa.types
    source = array.type
    if types.is_dictionary(source):
        if types.is_string_view(source.value_type):
            # Arrow has no take for string views.
            array = pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(pa.string()))
        return _cast(array.dictionary_decode(), type_, path, parent_valid)
    if types.is_run_end_encoded(source):
        return _cast(pc.run_end_decode(array), type_, path, parent_valid)
    if isinstance(source, pa.BaseExtensionType):
        return _cast(array.storage, type_, path, parent_valid)
    if is_vector(type_) and (is_list_like(source) or types.is_fixed_size_binary(source)):
        return to_vectors(
            _list_from_view(array) if types.is_list_view(source) or types.is_large_list_view(source) else array, type_, path
        )
    if is_vector(source) and types.is_fixed_size_binary(type_):
        return vectors_to_bytes(array)
    if type_ == VARIANT_TYPE and is_shredded(source):
        return unshredded(array)
    if types.is_struct(type_) and types.is_struct(source):
        return _cast_struct(array, type_, path, parent_valid)
    if types.is_list(type_) and is_list_like(source):
        return _cast_list(array, type_, path)
    if types.is_map(type_) and types.is_map(source):
        return _cast_map(array, type_, path)
    if source == type_:
        return array
    if types.is_null(source):
        return pa.nulls(len(array), type_)
    try:
        return _cast_scalar(array, type_, path)
    except pa.ArrowInvalid as error:
        raise InvalidRequest(cannot_store(array, type_, path, lambda part: _cast_scalar(part, type_, path))) from error
    except pa.ArrowNotImplementedError as error:
        raise _not_castable(path, source, type_) from error


def cannot_store(array: pa.Array, type_: pa.DataType, path: str, cast: Callable[[pa.Array], pa.Array]) -> str:
    """Return the error message for the first value of an array that cannot be cast.

    Args:
        array: The values.
        type_: Type of the column.
        path: Dotted name of the column.
        cast: The cast, which raises ArrowException for at least one of the values.
    """
    start, count = 0, len(array)
    while count > 1:
        half = count // 2
        try:
            cast(array.slice(start, half))
            start, count = start + half, count - half
        except pa.ArrowException:
            count = half
    value = array[start]
    shown = value.as_py() if not pa.types.is_decimal(value.type) else value
    row = f"row {start} (counted from 0)"
    return f"column {path!r} of type {type_} cannot hold {str(shown)!r:.80} ({value.type}) in {row}: cast it before writing"


def _cast_scalar(array: pa.Array, type_: pa.DataType, path: str) -> pa.Array:
    types = pa.types
    source = array.type
    if types.is_string(type_):
        if is_string_like(source):
            return pc.cast(array, type_)
        if types.is_integer(source) or types.is_floating(source) or types.is_date32(source) or types.is_decimal(source):
            return value_text(pc.cast(array, pa.float32()) if types.is_float16(source) else array)
        raise _not_castable(path, source, type_)
    if is_string_like(source):
        if types.is_date32(type_) or types.is_decimal128(type_):
            return pc.cast(array, type_)
        raise _not_castable(path, source, type_)
    if types.is_timestamp(type_) and types.is_timestamp(source):
        if type_.unit == "ms":
            return pc.cast(array, type_)
        return pc.cast(timestamp_micros(array, f"column {path!r}: "), type_)
    if types.is_float64(type_) and types.is_float32(source):
        return widen_floats_as_text(array)
    if types.is_floating(type_) and types.is_integer(source):
        # Java's widening of long to float or double rounds to nearest and never fails.
        return pc.cast(array, type_, safe=False)
    if types.is_decimal(type_) and types.is_floating(source):
        return pc.cast(value_text(pc.cast(array, pa.float32()) if types.is_float16(source) else array), type_)
    if types.is_floating(type_) and types.is_decimal(source):
        return decimals_to_floats(array, type_)
    families = (types.is_integer, types.is_floating, types.is_decimal, is_binary_like, types.is_date, types.is_time)
    if any(family(source) and family(type_) for family in families) or (types.is_integer(source) and types.is_decimal(type_)):
        return pc.cast(_decimal_ready(array, type_), type_)
    raise _not_castable(path, source, type_)


def _decimal_ready(array: pa.Array, type_: pa.DataType) -> pa.Array:
    # Arrow requires the decimal to have room for every value of the integer type; here only the actual values must fit.
    if pa.types.is_integer(array.type) and pa.types.is_decimal(type_):
        return pc.cast(array, pa.decimal128(38, type_.scale)) if type_.scale <= 19 else pc.cast(array, pa.string())
    return array


def _not_castable(path: str, source: pa.DataType, type_: pa.DataType) -> InvalidRequest:
    return InvalidRequest(f"column {path!r} of type {source} cannot become {type_}: cast it before writing")


def _cast_struct(array: pa.StructArray, type_: pa.StructType, path: str, parent_valid: pa.Array | None) -> pa.Array:
    positions = {array.type.field(index).name: index for index in range(array.type.num_fields)}
    valid = array.is_valid() if array.null_count else None
    # A required field may be null where a parent is null.
    parents_valid = valid if parent_valid is None else parent_valid if valid is None else pc.and_(valid, parent_valid)
    children: list[pa.Array] = []
    for child in type_.fields:
        child_path = f"{path}.{child.name}"
        position = positions.get(child.name)
        if position is None:
            required = (valid is None or pc.any(valid).as_py()) and len(array)
            children.append(missing_column(child if required else child.with_nullable(True), len(array), child_path))
            continue
        children.append(_conform_array(array.field(position), child, child_path, parents_valid))
    mask = pc.invert(valid) if valid is not None else None
    return pa.StructArray.from_arrays(children, fields=list(type_.fields), mask=mask)


def _cast_list(array: pa.Array, type_: pa.ListType, path: str) -> pa.Array:
    if pa.types.is_list_view(array.type) or pa.types.is_large_list_view(array.type):
        array = _list_from_view(array)
    if not pa.types.is_list(array.type):
        array = pc.cast(array, pa.list_(array.type.value_field))
    array = unshared_items(array)
    values = array.values.slice(0, array.offsets[-1].as_py() if len(array) else 0)
    values = _conform_array(values, type_.value_field, path + "[]", None)
    buffers = array.buffers()[:2]
    return pa.Array.from_buffers(type_, len(array), buffers, array.null_count, array.offset, children=[values])


def _list_from_view(array: pa.Array) -> pa.ListArray:
    """Convert a list view to a list. Arrow's own cast allocates too few bytes of offsets, so it reads undefined memory."""
    lengths = pc.fill_null(pc.list_value_length(array), 0)
    offsets = np.concatenate([[0], np.cumsum(np.asarray(lengths, dtype=np.int64))])
    if offsets[-1] > np.iinfo(np.int32).max:
        raise InvalidRequest(f"a batch has {offsets[-1]} list items, more than 2147483647: write smaller batches")
    list_type = pa.list_(array.type.value_field)
    mask = array.is_null() if array.null_count else None
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pc.list_flatten(array), type=list_type, mask=mask)


def unshared_items(array: pa.ListArray | pa.MapArray) -> pa.ListArray | pa.MapArray:
    """Return the lists or maps with an item array that contains only their own items.

    Other items need no cast and may contain values that cannot be cast.
    """
    if array.offset or (len(array.offsets) and array.offsets[0].as_py()):
        array = pa.concat_arrays([array, array.slice(0, 0)])
    if not array.null_count:
        return array
    lengths, is_null = np.diff(np.asarray(array.offsets)), np.asarray(array.is_null(), dtype=np.bool_)
    if not lengths[is_null].any():
        return array
    # Arrow allows items in a null list. It cannot take rows with string views, so the items are flattened.
    validity, _ = array.buffers()[:2]
    offsets = pa.array(np.concatenate([[0], np.cumsum(np.where(is_null, 0, lengths))]), pa.int32())
    items = pc.list_flatten(pa.ListArray.from_arrays(array.offsets, array.values, mask=array.is_null()))
    if pa.types.is_map(array.type):
        # A map does not regard the offset of its entries.
        items = pa.StructArray.from_arrays([items.field(0), items.field(1)], fields=list(items.type))
    buffers = [validity, offsets.buffers()[1]]
    return pa.Array.from_buffers(array.type, len(array), buffers, array.null_count, children=[items])


def _cast_map(array: pa.MapArray, type_: pa.MapType, path: str) -> pa.Array:
    array = unshared_items(array)
    end = array.offsets[-1].as_py() if len(array) else 0
    keys = _conform_array(array.keys.slice(0, end), type_.key_field, path + "{key}", None)
    items = _conform_array(array.items.slice(0, end), type_.item_field, path + "{}", None)
    entries = pa.StructArray.from_arrays([keys, items], fields=[type_.key_field, type_.item_field])
    buffers = array.buffers()[:2]
    return pa.Array.from_buffers(type_, len(array), buffers, array.null_count, array.offset, children=[entries])
