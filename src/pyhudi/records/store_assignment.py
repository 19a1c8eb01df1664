"""Store assignment: cast values of a statement to the types of table columns, as in Spark (ANSI store assignment policy).

numbers          to numbers: fractions are truncated for integers and rounded for decimals and floating point numbers;
                 overflow is an error
dates and times  to one another
primitive types  to strings, except timestamps and binary, whose text form is specific to Spark: cast them in the
                 statement
structs          field by field: by position, or by name in an INSERT whose columns have the table's names
lists of numbers to vectors of as many elements
strings          in UPDATE and MERGE, as in Hudi, to numbers, booleans, dates and timestamps; other text is an error.
                 In INSERT they are refused
booleans         in UPDATE and MERGE, as in Hudi, to the numbers 1 and 0. In INSERT they are refused
other types      unchanged
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest
from pyhudi.format.hudi_types import is_vector
from pyhudi.records.decimal_casts import cast_number, decimal_text, round_decimals, text_to_decimals
from pyhudi.records.java_strings import float_text, is_string_like, timestamp_micros
from pyhudi.records.schema_cast import NULL_REMEDY, cannot_store, relabel_array, unshared_items
from pyhudi.records.type_normalization import is_list_like
from pyhudi.records.vectors import to_vectors

_types = pa.types


def names_in_order_of(input_schema: pa.Schema, target_schema: pa.Schema) -> tuple[str, ...] | None:
    """Match the columns of a query to those of a table by name.

    Names match without regard to case. Hudi assigns by name, also in an INSERT without BY NAME, if both have the same
    columns, in any order, and their structs the same fields.

    Returns:
        The table's names in the order of the query's columns; None if some do not match.
    """
    targets = {field.name.casefold(): field for field in target_schema}
    matched = [targets.get(name.casefold()) for name in input_schema.names]
    names = tuple(target.name for target in matched if target is not None)
    if not len(set(names)) == len(matched) == len(target_schema):
        return None
    fits = (_has_fields_of(given.type, target.type) for given, target in zip(input_schema, matched, strict=True) if target)
    return names if all(fits) else None


def check_storable(input_schema: pa.Schema, target_schema: pa.Schema, *, casts_text: bool = False, by_name: bool = False) -> None:
    """Raise InvalidRequest for the first column whose type cannot be cast to the table's. Columns are matched by position.

    Args:
        casts_text: Strings are parsed, as in UPDATE and MERGE.
        by_name: Fields of structs are matched by name.
    """
    for input_field, target_field in zip(input_schema, target_schema, strict=True):
        if not _may_become(input_field.type, target_field.type, casts_text=casts_text, by_name=by_name):
            raise InvalidRequest(
                f"column {target_field.name!r} of type {target_field.type} cannot hold values of type {input_field.type}: cast "
                "them in the statement"
            )


def store_column(array: pa.Array, field: pa.Field, *, exact: bool = False, by_name: bool = True) -> pa.Array:
    """Cast values of an UPDATE or MERGE to the type of their column. Raises InvalidRequest for values that do not fit it.

    Args:
        array: The values.
        field: The column.
        exact: Values must not be rounded or truncated.
        by_name: Fields of structs are matched by name, not by position.
    """
    check_storable(pa.schema([(field.name, array.type)]), pa.schema([field]), casts_text=True, by_name=by_name)
    batch = pa.RecordBatch.from_arrays([array], [field.name])
    return stored(batch, pa.schema([field]), (field.name,) if exact else (), by_name=by_name).column(0)


def _check_exact(array: pa.Array, result: pa.Array, name: str) -> None:
    """Raise InvalidRequest for the first value that a cast has rounded or truncated."""
    back = _become_primitive(result, pa.field(name, array.type))
    row = pc.index(pc.not_equal(back, array), True).as_py()
    if row >= 0:
        raise InvalidRequest(
            f"column {name!r} of type {result.type} identifies or orders records, and cannot hold {array[row].as_py()!r} in row "
            f"{row} (counted from 0) exactly: cast it in the statement"
        )


def stored(
    batch: pa.RecordBatch, target_schema: pa.Schema, exact: Collection[str] = (), *, by_name: bool = False
) -> pa.RecordBatch:
    """Cast the columns to the table's, by position. Raises InvalidRequest for a value that does not fit its column.

    Args:
        exact: Columns whose values must not be rounded or truncated: record key, partition and ordering fields.
        by_name: Fields of structs are matched by name.
    """
    arrays = [_become(array, field, by_name=by_name) for array, field in zip(batch.columns, target_schema, strict=True)]
    for array, result, field in zip(batch.columns, arrays, target_schema, strict=True):
        if field.name in exact and array.type != result.type and not _types.is_nested(field.type):
            _check_exact(array, result, field.name)
    return pa.RecordBatch.from_arrays(arrays, schema=target_schema)


def struct_positions(names: Iterable[str], target_names: Iterable[str], *, by_name: bool) -> list[int] | None:
    """Return the position of the input's field for each field of a struct; None if the fields do not correspond.

    Args:
        names: Fields of the input.
        target_names: Fields of the column.
        by_name: Match fields by name, in any case, instead of position.
    """
    names, target_names = list(names), list(target_names)
    if len(names) != len(target_names):
        return None
    if not by_name:
        return list(range(len(names)))
    exact = {name: position for position, name in enumerate(names)}
    folded = {name.casefold(): position for position, name in enumerate(names)}
    positions = [exact.get(name, folded.get(name.casefold())) for name in target_names]
    known = [position for position in positions if position is not None]
    return known if len(set(known)) == len(names) else None


def _has_fields_of(input_type: pa.DataType, target_type: pa.DataType) -> bool:
    is_nested = _types.is_struct(target_type) or _types.is_list(target_type) or _types.is_map(target_type)
    if not is_nested or _types.is_null(input_type):
        return True
    parts = _nested_parts(input_type, target_type, by_name=True)
    return parts is not None and all(_has_fields_of(input_part, part) for input_part, part in parts)


def _is_cast_from_text(type_: pa.DataType) -> bool:
    return _is_number(type_) or _is_timestamp(type_) or bool(_types.is_boolean(type_))


def _is_number(type_: pa.DataType) -> bool:
    return bool(_types.is_integer(type_) or _types.is_floating(type_) or _types.is_decimal(type_))


def _is_timestamp(type_: pa.DataType) -> bool:
    return bool(_types.is_date(type_) or _types.is_timestamp(type_))


def _may_become(input_type: pa.DataType, target_type: pa.DataType, *, casts_text: bool, by_name: bool) -> bool:
    if input_type == target_type or _types.is_null(input_type):
        return True
    if casts_text and is_string_like(input_type) and _is_cast_from_text(target_type):
        return True
    if _is_number(target_type):
        return _is_number(input_type) or (casts_text and bool(_types.is_boolean(input_type)))
    if _is_timestamp(target_type):
        return _is_timestamp(input_type)
    if is_string_like(target_type):
        plain = _is_number(input_type) or _types.is_boolean(input_type) or _types.is_date(input_type)
        return is_string_like(input_type) or bool(plain)
    if _types.is_binary(target_type) or _types.is_fixed_size_binary(target_type):
        return bool(_types.is_binary(input_type) or _types.is_large_binary(input_type))
    if is_vector(target_type):
        return is_list_like(input_type) and (_is_number(input_type.value_type) or _types.is_null(input_type.value_type))
    parts = _nested_parts(input_type, target_type, by_name=by_name)
    return parts is not None and all(
        _may_become(input_part, part, casts_text=casts_text, by_name=by_name) for input_part, part in parts
    )


def _nested_parts(
    input_type: pa.DataType, target_type: pa.DataType, *, by_name: bool
) -> list[tuple[pa.DataType, pa.DataType]] | None:
    """The types within two nested types that correspond; None if they do not correspond."""
    if _types.is_list(target_type) and _types.is_list(input_type):
        return [(input_type.value_type, target_type.value_type)]
    if _types.is_map(target_type) and _types.is_map(input_type):
        return [(input_type.key_type, target_type.key_type), (input_type.item_type, target_type.item_type)]
    if _types.is_struct(target_type) and _types.is_struct(input_type):
        matched = _matched_children(input_type, target_type, by_name=by_name)
        return None if matched is None else [(input_type.field(position).type, child.type) for position, child in matched]
    return None


def _matched_children(
    input_type: pa.StructType, target_type: pa.StructType, *, by_name: bool
) -> list[tuple[int, pa.Field]] | None:
    """The fields of a struct with the position of the input's field that each one gets; None if they do not correspond."""
    targets = list(target_type)
    positions = struct_positions((child.name for child in input_type), (child.name for child in targets), by_name=by_name)
    return None if positions is None else list(zip(positions, targets, strict=True))


def _become(array: pa.Array, field: pa.Field, *, by_name: bool) -> pa.Array:
    type_ = field.type
    if not field.nullable and array.null_count:
        row = pc.index(array.is_null(), True).as_py()
        raise InvalidRequest(f"column {field.name!r} may not be null: row {row} (counted from 0) is null. {NULL_REMEDY}")
    if array.type == type_:
        return array
    if _types.is_nested(type_):
        return _become_nested(array, field, by_name=by_name)
    try:
        return _become_primitive(array, field)
    except pa.ArrowException as error:
        message = cannot_store(array, type_, field.name, lambda part: _become_primitive(part, field))
        raise InvalidRequest(message) from error


def _become_primitive(array: pa.Array, field: pa.Field) -> pa.Array:
    type_ = field.type
    if _types.is_boolean(array.type) and _is_number(type_):
        array = pc.cast(array, pa.int32())
    if is_string_like(array.type) and _is_cast_from_text(type_):
        return _parsed(pc.utf8_trim_whitespace(array), type_)
    if _types.is_timestamp(type_) and _types.is_timestamp(array.type):
        return pc.cast(timestamp_micros(array, f"column {field.name!r}: "), type_)
    if is_string_like(type_) and _types.is_floating(array.type):
        return pc.cast(float_text(array), type_)
    if is_string_like(type_) and _types.is_decimal(array.type):
        return pc.cast(decimal_text(array), type_)
    if _types.is_decimal(type_) and _is_number(array.type):
        return _as_decimal(array, type_)
    if (_types.is_floating(type_) and _is_number(array.type)) or _types.is_date(type_) or _types.is_timestamp(type_):
        return cast_number(array, type_)
    if _types.is_integer(type_) and not _types.is_integer(array.type) and _is_number(array.type):
        array = pc.trunc(array)
    return pc.cast(array, type_)


def _become_nested(array: pa.Array, field: pa.Field, *, by_name: bool) -> pa.Array:
    """Cast a struct, list, map or vector part by part."""
    type_ = field.type
    if is_vector(type_) and is_list_like(array.type):
        if _types.is_decimal(array.type.value_type) or _types.is_null(array.type.value_type):
            numbers = type_.value_type if _types.is_floating(type_.value_type) else pa.float64()
            array = _become(array, pa.field(field.name, pa.list_(numbers)), by_name=by_name)
        return to_vectors(array, type_, field.name)
    if _types.is_struct(type_) and _types.is_struct(array.type):
        matched = _matched_children(array.type, type_, by_name=by_name) or ()
        nullable = [child.with_nullable(True) for _, child in matched]
        children = [
            _become(pc.struct_field(array, [position]), child, by_name=by_name)
            for (position, _), child in zip(matched, nullable, strict=True)
        ]
        return relabel_array(pa.StructArray.from_arrays(children, fields=nullable, mask=array.is_null()), field)
    if _types.is_list(type_) and _types.is_list(array.type):
        array = unshared_items(array)
        items = [_become(_own(array.values, array), type_.value_field.with_nullable(True), by_name=by_name)]
        loose = pa.list_(type_.value_field.with_nullable(True))
    elif _types.is_map(type_) and _types.is_map(array.type):
        array = unshared_items(array)
        loose = pa.map_(type_.key_field, type_.item_field.with_nullable(True))
        keys = _become(_own(array.keys, array), loose.key_field, by_name=by_name)
        values = _become(_own(array.items, array), loose.item_field, by_name=by_name)
        items = [pa.StructArray.from_arrays([keys, values], fields=[loose.key_field, loose.item_field])]
    else:
        return pc.cast(array, type_)
    array = pa.Array.from_buffers(loose, len(array), array.buffers()[:2], array.null_count, array.offset, children=items)
    return relabel_array(array, field)


def _own(items: pa.Array, array: pa.ListArray | pa.MapArray) -> pa.Array:
    return items.slice(0, array.offsets[-1].as_py() if len(array) else 0)


def _parsed(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    """Cast text as Spark's ANSI mode does; text that is no value of the type is an error."""
    if _types.is_boolean(type_):
        lower = pc.utf8_lower(texts)
        for words, word in ((("t", "y", "yes", "1"), "true"), (("f", "n", "no", "0"), "false")):
            lower = pc.if_else(pc.is_in(lower, pa.array(words)), word, lower)
        return pc.cast(lower, type_)
    if _types.is_decimal(type_):
        return round_decimals(pc.cast(texts, pa.decimal256(76, 38)), type_)
    if _types.is_timestamp(type_):
        zoned = pc.match_substring_regex(texts, r"(Z|[+-]\d\d:?\d\d)$")
        in_utc = pc.cast(pc.if_else(zoned, texts, None), pa.timestamp("us", "UTC"))
        plain = pc.assume_timezone(pc.cast(pc.if_else(zoned, None, texts), pa.timestamp("us")), "UTC")
        return pc.cast(pc.coalesce(in_utc, plain), type_, safe=False)
    return pc.cast(texts, type_)


def _as_decimal(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Round half up to the scale; Arrow raises an error for too many digits before the point."""
    if _types.is_floating(array.type):
        # As in Spark: the text of the double, 101.01000213623047 for the float 101.01.
        return text_to_decimals(pc.cast(array, pa.float64()), type_)
    return round_decimals(pc.cast(array, pa.decimal256(38, 0)) if _types.is_integer(array.type) else array, type_)
