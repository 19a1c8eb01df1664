"""Store assignment: cast values of a statement to the types of table columns, as in Spark (ANSI store assignment policy).

numbers          to numbers: fractions are truncated for integers and rounded for decimals; overflow is an error
dates and times  to one another
primitive types  to strings, except floats, timestamps and binary, whose text form is specific to Spark: cast them in
                 the statement
lists of numbers to vectors of as many elements
strings          in UPDATE and MERGE, as in Hudi, to numbers, booleans, dates and timestamps; other text is an error.
                 In INSERT they are refused
other types      unchanged
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest
from pyhudi.format.hudi_types import is_vector
from pyhudi.records.java_strings import is_string_like
from pyhudi.records.schema_cast import NULL_REMEDY, relabel_array
from pyhudi.records.type_normalization import is_list_like
from pyhudi.records.vectors import to_vectors

_types = pa.types


def check_storable(input_schema: pa.Schema, target_schema: pa.Schema, *, casts_text: bool = False) -> None:
    """Raise InvalidRequest for the first column whose type cannot be cast to the table's. Columns are matched by position."""
    for input_field, target_field in zip(input_schema, target_schema, strict=True):
        if casts_text and is_string_like(input_field.type) and _is_cast_from_text(target_field.type):
            continue
        if not _may_become(input_field.type, target_field.type):
            raise InvalidRequest(
                f"column {target_field.name} is of type {target_field.type}, and values of type {input_field.type} are not "
                "stored in it: cast them in the statement"
            )


def stored(batch: pa.RecordBatch, target_schema: pa.Schema) -> pa.RecordBatch:
    """Cast the columns to the table's, by position. Raises InvalidRequest for a value that does not fit its column."""
    arrays = [_become(array, field) for array, field in zip(batch.columns, target_schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=target_schema)


def _is_cast_from_text(type_: pa.DataType) -> bool:
    return _is_number(type_) or _is_timestamp(type_) or bool(_types.is_boolean(type_))


def _is_number(type_: pa.DataType) -> bool:
    return bool(_types.is_integer(type_) or _types.is_floating(type_) or _types.is_decimal(type_))


def _is_timestamp(type_: pa.DataType) -> bool:
    return bool(_types.is_date(type_) or _types.is_timestamp(type_))


def _may_become(input_type: pa.DataType, target_type: pa.DataType) -> bool:
    if input_type == target_type or _types.is_null(input_type):
        return True
    if _is_number(target_type):
        return _is_number(input_type)
    if _is_timestamp(target_type):
        return _is_timestamp(input_type)
    if is_string_like(target_type):
        plain = (
            _types.is_integer(input_type)
            or _types.is_boolean(input_type)
            or _types.is_decimal(input_type)
            or _types.is_date(input_type)
        )
        return is_string_like(input_type) or bool(plain)
    if _types.is_binary(target_type) or _types.is_fixed_size_binary(target_type):
        return bool(_types.is_binary(input_type) or _types.is_large_binary(input_type))
    if is_vector(target_type):
        return is_list_like(input_type) and (_is_number(input_type.value_type) or _types.is_null(input_type.value_type))
    if _types.is_list(target_type):
        return bool(_types.is_list(input_type)) and _may_become(input_type.value_type, target_type.value_type)
    if _types.is_map(target_type):
        is_same = _types.is_map(input_type)
        return (
            bool(is_same)
            and _may_become(input_type.key_type, target_type.key_type)
            and _may_become(input_type.item_type, target_type.item_type)
        )
    if _types.is_struct(target_type):
        is_same = _types.is_struct(input_type) and input_type.num_fields == target_type.num_fields
        pairs = zip(input_type, target_type, strict=True) if is_same else ()
        return bool(is_same) and all(
            input_child.name == target_child.name and _may_become(input_child.type, target_child.type)
            for input_child, target_child in pairs
        )
    return False


def _become(array: pa.Array, field: pa.Field) -> pa.Array:
    type_ = field.type
    try:
        if not field.nullable and array.null_count:
            row = pc.index(array.is_null(), True).as_py()
            raise InvalidRequest(f"column {field.name!r} may not be null: row {row} (counted from 0) is null. {NULL_REMEDY}")
        if array.type == type_:
            return array
        if is_vector(type_) and is_list_like(array.type):
            if _types.is_decimal(array.type.value_type) or _types.is_null(array.type.value_type):
                array = pc.cast(array, pa.list_(pa.float64()))
            return to_vectors(array, type_, field.name)
        if _types.is_struct(type_) and _types.is_struct(array.type):
            children = [_become(pc.struct_field(array, child.name), child.with_nullable(True)) for child in type_]
            nullable = [child.with_nullable(True) for child in type_]
            return relabel_array(pa.StructArray.from_arrays(children, fields=nullable, mask=array.is_null()), field)
        if is_string_like(array.type) and _is_cast_from_text(type_):
            return _parsed(pc.utf8_trim_whitespace(array), type_)
        if _types.is_integer(type_) and not _types.is_integer(array.type) and _is_number(array.type):
            array = pc.trunc(array)
        elif _types.is_decimal(type_) and _is_number(array.type):
            return _as_decimal(array, type_)
        elif (_types.is_floating(type_) and _is_number(array.type)) or _types.is_date(type_) or _types.is_timestamp(type_):
            return pc.cast(array, type_, safe=False)
        return pc.cast(array, type_)
    except pa.ArrowException as error:
        raise InvalidRequest(f"column {field.name} of type {type_} cannot hold a value of the statement: {error}") from error


def _parsed(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    """Cast text as Spark's ANSI mode does; text that is no value of the type is an error."""
    if _types.is_boolean(type_):
        lower = pc.utf8_lower(texts)
        for words, word in ((("t", "y", "yes", "1"), "true"), (("f", "n", "no", "0"), "false")):
            lower = pc.if_else(pc.is_in(lower, pa.array(words)), word, lower)
        return pc.cast(lower, type_)
    if _types.is_decimal(type_):
        return _as_decimal(pc.cast(texts, pa.decimal256(76, 38)), type_)
    if _types.is_timestamp(type_):
        zoned = pc.match_substring_regex(texts, r"(Z|[+-]\d\d:?\d\d)$")
        in_utc = pc.cast(pc.if_else(zoned, texts, None), pa.timestamp("us", "UTC"))
        plain = pc.assume_timezone(pc.cast(pc.if_else(zoned, None, texts), pa.timestamp("us")), "UTC")
        return pc.cast(pc.coalesce(in_utc, plain), type_, safe=False)
    return pc.cast(texts, type_)


def _as_decimal(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Round half up to the scale; Arrow raises an error for too many digits before the point."""
    if _types.is_integer(array.type):
        array = pc.cast(array, pa.decimal256(38, 0))
    elif _types.is_floating(array.type):
        array = pc.cast(array, pa.decimal256(76, 30 if type_.scale <= 30 else type_.scale))
    array = pc.cast(array, pa.decimal256(76, array.type.scale)) if not _types.is_decimal256(array.type) else array
    if array.type.scale > type_.scale:
        array = pc.round(array, type_.scale, "half_towards_infinity")
    return pc.cast(array, type_)
