"""Batches fitted to a schema: columns by name, values cast without loss, nested types field by field.

Source: docs/formats/writing.md, "Writer schema"; docs/formats/reading.md, "Schema".
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import Internal, InvalidRequest
from pyhudi.format.avro_to_arrow import column_default
from pyhudi.records.java_strings import is_binary_like, is_string_like, timestamp_micros, value_text, widen_floats_as_text
from pyhudi.records.type_normalization import is_list_like


def conform(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """The batch in the target's columns, order and types; rows keep their order.

    batch: from a user (any layout that `normalise` takes) or from a file that was written under an older schema; target:
    canonical, or with timestamps of milliseconds, as files may have them.  Columns are found by exact name; a column that the
    target lacks is left out; one that the batch lacks is null, or its default where it may not be null.  Numbers that become text
    take Java's forms, float becomes double by way of its text (0.1f becomes 0.1), text for a date or decimal column is parsed,
    finer timestamps are rounded down.  Nested types are conformed field by field.  A batch that fits already is not copied.
    Raises InvalidRequest when a value cannot be cast without loss, and when a target column that is not nullable is missing
    or holds a null.  Source: docs/formats/writing.md, "Writer schema"; docs/formats/reading.md, "Schema".
    """
    if batch.schema.equals(target) and not any(_has_required_part(field) for field in target):
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
    """What rows hold of a column that they were written without: its default where it may not be null, else nulls.

    Raises InvalidRequest, naming `path`, for a column that may not be null and has no default.
    """
    default = column_default(field)
    if default is not None:
        return pa.repeat(default, count)
    if not field.nullable:
        raise InvalidRequest(f"column {path!r} is missing and may not be null")
    return pa.nulls(count, field.type)


def refuse_rounding(batch: pa.RecordBatch, target: pa.Schema) -> None:
    """Refuse whole numbers that the target's floating point columns, at any depth, cannot hold as they are.

    Old files are read with rounding, as Java widens; what a caller brings is never changed.  Raises InvalidRequest.
    """
    held = set(batch.schema.names)
    for field in target:
        if field.name in held:
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
        wrong = pc.index(pc.not_equal(rounded, array), True).as_py()
        if wrong >= 0:
            raise InvalidRequest(
                f"column {path!r}: {array[wrong].as_py()} cannot be held by {type_}, which would round it; "
                "cast the column before writing"
            )


_WHOLE_BITS = {32: 24, 64: 53}
"""Bits of the whole numbers that a floating point type of so many bits holds, without gaps."""


def conform_table(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """`conform` for a table; chunks stay as they are."""
    if rows.schema.equals(schema):
        return rows
    if not rows.num_rows:
        return schema.empty_table()
    return pa.Table.from_batches([conform(batch, schema) for batch in rows.to_batches()], schema)


def relabel(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The same rows under a schema that differs from theirs in nullability alone, at any depth; values are not copied.

    schema: the columns of `rows` in their order.  In a struct that is null its required fields are not marked as null, which
    Arrow's own casts and its Parquet writer would refuse.
    Raises Internal for other differences, InvalidRequest where a part that may not be null is null and what is around it is
    there.
    """
    if rows.schema.equals(schema) and not any(_has_required_part(field) for field in schema):
        return rows
    if rows.column_names != schema.names:
        raise Internal(f"columns {', '.join(rows.column_names)} cannot be seen as {', '.join(schema.names)}")
    columns = [relabel_column(column, field) for column, field in zip(rows.columns, schema, strict=True)]
    return pa.table(columns, schema=schema)


def relabel_column(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """One column as `relabel` sees it."""
    return pa.chunked_array([relabel_array(chunk, field) for chunk in column.chunks], field.type)


def relabel_array(array: pa.Array, field: pa.Field) -> pa.Array:
    """Values as `relabel` sees them."""
    if not same_type(array.type, field.type):
        raise Internal(f"column {field.name!r} of type {array.type} cannot be seen as {field.type}")
    return _conform_array(array, field, field.name, None)


def same_values(first: pa.ChunkedArray, second: pa.ChunkedArray) -> bool:
    """Whether two columns hold the same values, each a NaN like any other.

    False may be said of columns with a NaN whose bytes in memory differ where no value lies.
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
    """Whether two types hold the same values in the same layout; nullability and the names of list and map entries may differ."""
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


def _has_required_part(field: pa.Field) -> bool:
    """Whether a part of the field may not be null, so that data of the same types must still be looked at."""
    if not field.nullable:
        return True
    type_ = field.type
    if pa.types.is_struct(type_):
        return any(_has_required_part(child) for child in type_.fields)
    if pa.types.is_list(type_):
        return _has_required_part(type_.value_field)
    return pa.types.is_map(type_) and _has_required_part(type_.item_field)


def _conform_array(array: pa.Array, field: pa.Field, path: str, parent_valid: pa.Array | None) -> pa.Array:
    if not field.nullable and array.null_count:
        missing = array.is_null() if parent_valid is None else pc.and_(array.is_null(), parent_valid)
        row = pc.index(missing, True).as_py()
        if row >= 0:
            raise InvalidRequest(f"column {path!r} may not be null, and is at row {row} (counted from 0)")
    type_ = field.type
    fitting = array.type == type_ and not _has_required_child(type_)
    result = array if fitting else _cast(array, type_, path, parent_valid)
    return result if field.nullable or not result.null_count else _unmarked(result)


def _unmarked(array: pa.Array) -> pa.Array:
    """The array without its marks of nulls, each of which stands where something around it is null.

    Parquet's writer and Arrow's casts look at such marks without looking at what is around them.
    """
    type_ = array.type
    if pa.types.is_struct(type_):
        return pa.StructArray.from_arrays([array.field(i) for i in range(type_.num_fields)], fields=list(type_.fields))
    below = [array.values] if pa.types.is_list(type_) or pa.types.is_map(type_) else []
    _, *buffers = array.buffers()[: type_.num_buffers]
    return pa.Array.from_buffers(type_, len(array), [None, *buffers], 0, array.offset, children=below)


def _has_required_child(type_: pa.DataType) -> bool:
    return bool(pa.types.is_nested(type_)) and _has_required_part(pa.field("", type_))


def _cast(array: pa.Array, type_: pa.DataType, path: str, parent_valid: pa.Array | None) -> pa.Array:
    types = pa.types
    source = array.type
    if types.is_dictionary(source):
        if types.is_string_view(source.value_type):
            # Arrow does not take views by index.
            array = pa.DictionaryArray.from_arrays(array.indices, array.dictionary.cast(pa.string()))
        return _cast(array.dictionary_decode(), type_, path, parent_valid)
    if types.is_run_end_encoded(source):
        return _cast(pc.run_end_decode(array), type_, path, parent_valid)
    if isinstance(source, pa.BaseExtensionType):
        return _cast(array.storage, type_, path, parent_valid)
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
        raise InvalidRequest(f"column {path!r} cannot become {type_}: {error}") from error
    except pa.ArrowNotImplementedError as error:
        raise _not_castable(path, source, type_) from error


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
        # Java's widening of long to float or double rounds to the nearest; it never fails.
        return pc.cast(array, type_, safe=False)
    families = (types.is_integer, types.is_floating, types.is_decimal, is_binary_like, types.is_date, types.is_time)
    if any(family(source) and family(type_) for family in families) or (types.is_integer(source) and types.is_decimal(type_)):
        return pc.cast(_decimal_ready(array, type_), type_)
    raise _not_castable(path, source, type_)


def _decimal_ready(array: pa.Array, type_: pa.DataType) -> pa.Array:
    # Arrow wants room for every value of the integer type in the decimal; the values themselves are what has to fit.
    if pa.types.is_integer(array.type) and pa.types.is_decimal(type_):
        return pc.cast(array, pa.decimal128(38, type_.scale)) if type_.scale <= 19 else pc.cast(array, pa.string())
    return array


def _not_castable(path: str, source: pa.DataType, type_: pa.DataType) -> InvalidRequest:
    return InvalidRequest(f"column {path!r} of type {source} cannot become {type_}: cast it before writing")


def _cast_struct(array: pa.StructArray, type_: pa.StructType, path: str, parent_valid: pa.Array | None) -> pa.Array:
    positions = {array.type.field(index).name: index for index in range(array.type.num_fields)}
    valid = array.is_valid() if array.null_count else None
    # A field may not be null only where everything around it is there.
    inside = valid if parent_valid is None else parent_valid if valid is None else pc.and_(valid, parent_valid)
    children: list[pa.Array] = []
    for child in type_.fields:
        here = f"{path}.{child.name}"
        position = positions.get(child.name)
        if position is None:
            needed = (valid is None or pc.any(valid).as_py()) and len(array)
            children.append(missing_column(child if needed else child.with_nullable(True), len(array), here))
            continue
        children.append(_conform_array(array.field(position), child, here, inside))
    mask = pc.invert(valid) if valid is not None else None
    return pa.StructArray.from_arrays(children, fields=list(type_.fields), mask=mask)


def _cast_list(array: pa.Array, type_: pa.ListType, path: str) -> pa.Array:
    if pa.types.is_list_view(array.type) or pa.types.is_large_list_view(array.type):
        array = _viewed_list(array)
    if not pa.types.is_list(array.type):
        array = pc.cast(array, pa.list_(array.type.value_field))
    array = unshared_items(array)
    values = array.values.slice(0, array.offsets[-1].as_py() if len(array) else 0)
    values = _conform_array(values, type_.value_field, path + "[]", None)
    buffers = array.buffers()[:2]
    return pa.Array.from_buffers(type_, len(array), buffers, array.null_count, array.offset, children=[values])


def _viewed_list(array: pa.Array) -> pa.ListArray:
    """A list view as a list.  Arrow's own cast makes offsets of too few bytes, behind which anything may stand."""
    lengths = pc.fill_null(pc.list_value_length(array), 0)
    offsets = np.concatenate([[0], np.cumsum(np.asarray(lengths, dtype=np.int64))])
    if offsets[-1] > np.iinfo(np.int32).max:
        raise InvalidRequest(f"a batch with {offsets[-1]} list items: give smaller ones")
    kind = pa.list_(array.type.value_field)
    mask = array.is_null() if array.null_count else None
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pc.list_flatten(array), type=kind, mask=mask)


def unshared_items(array: pa.ListArray | pa.MapArray) -> pa.ListArray | pa.MapArray:
    """The lists or maps with no items but their own: others need no casting, and may hold what these do not."""
    if array.offset or (len(array.offsets) and array.offsets[0].as_py()):
        array = pa.concat_arrays([array, array.slice(0, 0)])
    if array.null_count and np.diff(np.asarray(array.offsets))[np.asarray(array.is_null(), dtype=np.bool_)].any():
        # Arrow allows items in a list that is null.
        array = array.take(pa.array(np.arange(len(array))))
    return array


def _cast_map(array: pa.MapArray, type_: pa.MapType, path: str) -> pa.Array:
    array = unshared_items(array)
    end = array.offsets[-1].as_py() if len(array) else 0
    keys = _conform_array(array.keys.slice(0, end), type_.key_field, path + "{key}", None)
    items = _conform_array(array.items.slice(0, end), type_.item_field, path + "{}", None)
    entries = pa.StructArray.from_arrays([keys, items], fields=[type_.key_field, type_.item_field])
    buffers = array.buffers()[:2]
    return pa.Array.from_buffers(type_, len(array), buffers, array.null_count, array.offset, children=[entries])
