"""Variant values as JSON text, level by level: the values of one type of a level are converted together.

object, array             {"a":1,"b":[true,null]}, without spaces; fields in the order of their names
string                    "text"
numbers                   1, 1.5, 1.0E10 as Java prints it; NaN and the infinities as strings
decimal                   12.5, without zeros at the end
date, time, timestamp     "2024-05-06", "07:08:09", "2024-05-06 07:08:09.5+00:00"; without +00:00 if it has no time zone
binary                    "3q0=", Base64
UUID                      "f24f9b64-81fa-49d1-b74e-8c09a6e31c56"
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptData
from pyhudi.format.avro_columns.buffers import Longs
from pyhudi.records.java_strings import float_text
from pyhudi.records.json_strings import json_text
from pyhudi.records.variants.variant_scalars import scalar_values
from pyhudi.records.variants.variant_values import ARRAY, OBJECT, VariantValues

_MOST_LEVELS: Final = 500


def variants_to_json(variants: pa.Array) -> pa.StringArray:
    """Convert canonical VARIANT values to JSON; a null row stays null, the variant null is the text `null`.

    Raises:
        CorruptData: A value is invalid; names its row.
    """
    values = VariantValues.decode(variants)
    return spread(json_of_values(values), values.rows, len(variants))


def spread(array: pa.Array, rows: Longs, count: int) -> pa.Array:
    """Return `count` values: those of the array at its rows, null elsewhere."""
    if len(array) == count:
        return array
    places = np.zeros(count, np.int64)
    places[rows] = np.arange(len(rows))
    absent = np.ones(count, np.bool_)
    absent[rows] = False
    return array.take(pa.array(places, mask=absent))


def json_of_values(values: VariantValues, level: int = 0) -> pa.StringArray:
    """Return the JSON of each value."""
    if level > _MOST_LEVELS:
        raise CorruptData(f"row {int(values.rows[0])}: a variant has more than {_MOST_LEVELS} levels")
    rows: list[Longs] = []
    texts: list[pa.Array] = []
    kinds = values.basic_types
    for kind in (OBJECT, ARRAY):
        chosen = np.flatnonzero(kinds == kind)
        if len(chosen):
            rows.append(chosen)
            texts.append(_nested(values.take(chosen), is_object=kind == OBJECT, level=level))
    chosen = np.flatnonzero((kinds != OBJECT) & (kinds != ARRAY))
    for positions, array in scalar_values(values.take(chosen)):
        rows.append(chosen[positions])
        texts.append(_scalars(array))
    if not rows:
        return pa.array([], pa.string())
    places = np.empty(len(values), np.int64)
    places[np.concatenate(rows)] = np.arange(len(values))
    return pa.concat_arrays(texts).take(pa.array(places))


def _nested(values: VariantValues, *, is_object: bool, level: int) -> pa.StringArray:
    parts = values.parts()
    texts = json_of_values(parts.values, level + 1)
    if is_object:
        names = json_text(values.names.texts).take(pa.array(parts.names))
        texts = pc.binary_join_element_wise(names, texts, ":")
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(parts.counts)])
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), texts), ",")
    first, last = "{}" if is_object else "[]"
    return pc.binary_join_element_wise(first, joined, last, "")


def _scalars(array: pa.Array) -> pa.StringArray:
    types, type_ = pa.types, array.type
    if types.is_null(type_):
        return pa.repeat(pa.scalar("null"), len(array))
    if types.is_floating(type_):
        return pc.if_else(pc.is_finite(array), float_text(array), _in_quotes(float_text(array)))
    text = scalar_text(array)
    if types.is_string(type_):
        return json_text(text)
    is_plain = types.is_boolean(type_) or types.is_integer(type_) or types.is_decimal(type_)
    return text if is_plain else _in_quotes(text)


def _in_quotes(text: pa.StringArray) -> pa.StringArray:
    return pc.binary_join_element_wise('"', text, '"', "")


def scalar_text(array: pa.Array) -> pa.StringArray:
    """Return the text of scalar values, as in JSON without quotes."""
    types, type_ = pa.types, array.type
    if types.is_floating(type_):
        return float_text(array)
    if types.is_decimal(type_):
        return _decimal_text(array)
    if types.is_timestamp(type_):
        text = _trimmed(pc.strftime(array.cast(pa.timestamp(type_.unit)), "%Y-%m-%d %H:%M:%S"))
        return text if type_.tz is None else pc.binary_join_element_wise(text, "+00:00", "")
    if types.is_time(type_):
        return _trimmed(array.cast(pa.string()))
    if types.is_binary(type_):
        return _converted(array, lambda value: base64.b64encode(value).decode())
    if types.is_fixed_size_binary(type_):
        return _converted(array, _uuid_text)
    return array.cast(pa.string())


def _uuid_text(value: bytes) -> str:
    text = value.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def _converted(array: pa.Array, convert: Callable[[bytes], str]) -> pa.StringArray:
    """Convert value by value: neither Arrow nor NumPy has these conversions, and such values are rare."""
    return pa.array([convert(value) for value in array.to_pylist()], pa.string())


def _trimmed(text: pa.StringArray) -> pa.StringArray:
    """Remove zeros at the end of a fraction, and the point if nothing else is behind it."""
    has_point = pc.match_substring(text, ".")
    return pc.if_else(has_point, pc.utf8_rtrim(pc.utf8_rtrim(text, "0"), "."), text)


def _decimal_text(array: pa.Array) -> pa.StringArray:
    """Return decimals without an exponent and without zeros at the end."""
    scale = array.type.scale
    digits = array.view(pa.decimal128(38, 0)) if scale else array
    text = digits.cast(pa.string())
    if not scale:
        return text
    negative = pc.starts_with(text, "-")
    whole = pc.utf8_lpad(pc.utf8_ltrim(text, "-"), scale + 1, "0")
    point = pc.binary_join_element_wise(pc.utf8_slice_codeunits(whole, 0, -scale), pc.utf8_slice_codeunits(whole, -scale), ".")
    plain = _trimmed(point)
    return pc.if_else(pc.and_(negative, pc.not_equal(plain, "0")), pc.binary_join_element_wise("-", plain, ""), plain)
