"""Conversion of lists of numbers in any of Arrow's layouts to vectors."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest
from pyhudi.format.hudi_types import VARIANT_TYPE, bytes_to_vectors, hudi_type_name, is_vector


def to_vectors(array: pa.Array, type_: pa.DataType, path: str) -> pa.Array:
    """Convert lists, or the bytes of a file, to vectors.

    Fixed size lists of the element type are not copied. Floating point numbers are rounded to the element type; whole
    numbers must be exact. A null row stays null.

    Args:
        array: Lists of numbers, or fixed_size_binary.
        type_: The vector type.
        path: Name of the column, for errors.

    Raises:
        InvalidRequest: A row has another number of elements, a null element, or an element outside the type's range.
    """
    types = pa.types
    if types.is_fixed_size_binary(array.type):
        return bytes_to_vectors(array, type_)
    if not types.is_fixed_size_list(array.type) or array.type.list_size != type_.list_size:
        _check_lengths(array, type_, path)
    elif array.type.value_type == type_.value_type and not array.values.null_count:
        validity = array.is_valid().buffers()[1] if array.null_count else None
        size = type_.list_size
        elements = array.values.slice(array.offset * size, len(array) * size)
        return pa.Array.from_buffers(type_, len(array), [validity], array.null_count, children=[elements])
    elements = array.flatten()
    if elements.null_count:
        row = _row_of(array, pc.index(elements.is_null(), True).as_py(), type_)
        raise InvalidRequest(f"column {path!r}: row {row} (counted from 0) has a null element. Elements of a vector are not null")
    dense = pa.FixedSizeListArray.from_arrays(_cast_elements(array, elements, type_, path), type=type_)
    if not array.null_count:
        return dense
    valid = np.asarray(array.is_valid(), dtype=np.bool_)
    return dense.take(pa.array(np.cumsum(valid) - 1, pa.int64(), mask=~valid))


def in_spark_layout(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch in the layout of Spark: vectors as lists, and the value of a variant before its metadata.

    Elements and bytes are not copied.
    """
    schema = spark_layout(batch.schema)
    if schema.types == batch.schema.types:
        return batch
    arrays = [_in_spark_layout(array, field.type) for array, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _in_spark_layout(array: pa.Array, type_: pa.DataType) -> pa.Array:
    if array.type == type_:
        return array
    if array.type != VARIANT_TYPE:
        return array.cast(type_)
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays([array.field(1), array.field(0)], fields=list(type_.fields), mask=mask)


def spark_layout(schema: pa.Schema) -> pa.Schema:
    """Return the schema of `in_spark_layout`."""
    return pa.schema([field.with_type(_SPARK_VARIANT) if field.type == VARIANT_TYPE else field for field in list_layout(schema)])


def list_layout(schema: pa.Schema) -> pa.Schema:
    """Return a schema with vectors as lists."""
    return pa.schema([field.with_type(pa.list_(field.type.value_field)) if is_vector(field.type) else field for field in schema])


_SPARK_VARIANT = pa.struct(
    [
        VARIANT_TYPE.field("value"),
        VARIANT_TYPE.field("metadata").with_metadata({"variant": "true"}),
    ]
)
"""Layout of Spark's VariantType, by which Spark knows it."""


def _check_lengths(array: pa.Array, type_: pa.DataType, path: str) -> None:
    lengths = pc.list_value_length(array)
    row = pc.index(pc.not_equal(lengths, type_.list_size), True).as_py()
    if row >= 0:
        raise InvalidRequest(
            f"column {path!r}: row {row} (counted from 0) has {lengths[row].as_py()} elements, and the type is "
            f"{hudi_type_name(type_)}. Write vectors of {type_.list_size} elements"
        )


def _cast_elements(array: pa.Array, elements: pa.Array, type_: pa.DataType, path: str) -> pa.Array:
    source, target = elements.type, type_.value_type
    if source == target:
        return elements
    if not (pa.types.is_floating(source) or pa.types.is_integer(source)):
        raise InvalidRequest(
            f"column {path!r} of type {array.type} cannot become {hudi_type_name(type_)}: cast it before writing"
        )
    rounds = pa.types.is_floating(source) and pa.types.is_floating(target)
    try:
        result = pc.cast(elements, target, safe=not rounds)
    except pa.ArrowInvalid as error:
        raise InvalidRequest(f"column {path!r} cannot become {hudi_type_name(type_)}: {error}") from error
    if rounds and target.bit_width < source.bit_width:
        lost = pc.and_(pc.is_finite(elements), pc.invert(pc.is_finite(result)))
        position = pc.index(lost, True).as_py()
        if position >= 0:
            raise InvalidRequest(
                f"column {path!r}: row {_row_of(array, position, type_)} (counted from 0) has the element "
                f"{elements[position].as_py()}, outside the range of {hudi_type_name(type_)}"
            )
    return result


def _row_of(array: pa.Array, position: int, type_: pa.DataType) -> int:
    """Return the row of an element of the rows that are not null."""
    rows = np.flatnonzero(np.asarray(array.is_valid(), dtype=np.bool_))
    return int(rows[position // type_.list_size])
