"""Values on their way into columns: which type becomes which, as Spark's store assignment (ANSI) has it.

numbers          become numbers: fractions are cut for whole numbers and rounded for decimals, what does not fit is refused
dates and times  become one another
plain values     become text; but floats, times and binary values, whose text is Spark's own, are to be cast in the statement
anything else    stays what it is; above all text becomes no number and no date
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest

_types = pa.types


def check_storable(given: pa.Schema, wanted: pa.Schema) -> None:
    """Raises InvalidRequest for the first column whose values cannot become those of the table.  Columns go by order."""
    for one, other in zip(given, wanted, strict=True):
        if not _may_become(one.type, other.type):
            raise InvalidRequest(
                f"column {other.name} is of type {other.type}, and values of type {one.type} are not stored in it: cast them in "
                "the statement"
            )


def stored(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """The columns as the table's, by position.  Raises InvalidRequest for a value that does not fit its column."""
    arrays = [_become(array, field) for array, field in zip(batch.columns, wanted, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _is_number(kind: pa.DataType) -> bool:
    return bool(_types.is_integer(kind) or _types.is_floating(kind) or _types.is_decimal(kind))


def _is_moment(kind: pa.DataType) -> bool:
    return bool(_types.is_date(kind) or _types.is_timestamp(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(_types.is_string(kind) or _types.is_large_string(kind) or _types.is_string_view(kind))


def _may_become(given: pa.DataType, wanted: pa.DataType) -> bool:
    if given == wanted or _types.is_null(given):
        return True
    if _is_number(wanted):
        return _is_number(given)
    if _is_moment(wanted):
        return _is_moment(given)
    if _is_text(wanted):
        plain = _types.is_integer(given) or _types.is_boolean(given) or _types.is_decimal(given) or _types.is_date(given)
        return _is_text(given) or bool(plain)
    if _types.is_binary(wanted) or _types.is_fixed_size_binary(wanted):
        return bool(_types.is_binary(given) or _types.is_large_binary(given))
    if _types.is_list(wanted):
        return bool(_types.is_list(given)) and _may_become(given.value_type, wanted.value_type)
    if _types.is_map(wanted):
        same = _types.is_map(given)
        return bool(same) and _may_become(given.key_type, wanted.key_type) and _may_become(given.item_type, wanted.item_type)
    if _types.is_struct(wanted):
        same = _types.is_struct(given) and given.num_fields == wanted.num_fields
        pairs = zip(given, wanted, strict=True) if same else ()
        return bool(same) and all(one.name == other.name and _may_become(one.type, other.type) for one, other in pairs)
    return False


def _become(array: pa.Array, field: pa.Field) -> pa.Array:
    kind = field.type
    try:
        if not field.nullable and array.null_count:
            raise InvalidRequest(f"column {field.name} is NOT NULL, and a row has no value for it")
        if array.type == kind:
            return array
        if _types.is_integer(kind) and not _types.is_integer(array.type) and _is_number(array.type):
            array = pc.trunc(array)
        elif _types.is_decimal(kind) and _is_number(array.type):
            return _as_decimal(array, kind)
        elif (_types.is_floating(kind) and _is_number(array.type)) or _types.is_date(kind) or _types.is_timestamp(kind):
            return pc.cast(array, kind, safe=False)
        return pc.cast(array, kind)
    except pa.ArrowException as error:
        raise InvalidRequest(f"column {field.name} of type {kind} cannot hold a value of the statement: {error}") from error


def _as_decimal(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Digits behind the scale are rounded half up; what has more digits before the point than fit is an error of Arrow's."""
    if _types.is_integer(array.type):
        array = pc.cast(array, pa.decimal256(38, 0))
    elif _types.is_floating(array.type):
        array = pc.cast(array, pa.decimal256(76, 30 if kind.scale <= 30 else kind.scale))
    array = pc.cast(array, pa.decimal256(76, array.type.scale)) if not _types.is_decimal256(array.type) else array
    if array.type.scale > kind.scale:
        array = pc.round(array, kind.scale, "half_towards_infinity")
    return pc.cast(array, kind)
