"""Extraction of parts of variant values by path, vectorized over rows: `variant_get` of Spark.

    $              the value itself
    .name          a field of an object; also ['name'] and ["name"]
    [2]            an element of an array, counted from 0

A path that a value lacks gives null. The part is cast to the requested type as Spark's `try_cast` does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.format.avro_columns.buffers import Longs
from pyhudi.records.casts import try_cast
from pyhudi.records.decimal_casts import decimals_to_floats
from pyhudi.records.variants.variant_json import json_of_values, scalar_text, spread
from pyhudi.records.variants.variant_scalars import scalar_values
from pyhudi.records.variants.variant_values import ARRAY, OBJECT, VariantValues

_STEP: Final = re.compile(r"""\.([^.\[\]'"]+)|\['([^']*)'\]|\["([^"]*)"\]|\[(\d{1,9})\]""")

TARGETS: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
}
"""Types that `variant_get` returns, by their names in Spark."""


def parse_path(text: str) -> tuple[str | int, ...]:
    """Parse a path. Raises InvalidRequest for other text."""
    steps: list[str | int] = []
    at = 1
    while text.startswith("$") and at < len(text):
        matched = _STEP.match(text, at)
        if matched is None:
            break
        plain, single, double, number = matched.groups()
        steps.append(int(number) if number is not None else next(name for name in (plain, single, double) if name is not None))
        at = matched.end()
    if not text.startswith("$") or at < len(text):
        raise InvalidRequest(f"the path {text!r} of a variant is invalid: write it as $.name[0]['other name']")
    return tuple(steps)


def target_type(name: str) -> pa.DataType:
    """Return the type that a name of a type means for `variant_get`. Raises Unsupported for other types."""
    known = TARGETS.get(name.strip().lower())
    if known is None:
        raise Unsupported(f"variant_get to the type {name!r} is not supported. Use {', '.join(TARGETS)}")
    return known


def variant_get(variants: pa.Array, path: tuple[str | int, ...], type_: pa.DataType, *, strict: bool = False) -> pa.Array:
    """Extract parts of canonical VARIANT values.

    Args:
        variants: The values.
        path: Result of `parse_path`.
        type_: One of TARGETS.
        strict: Refuse a part that cannot be cast, instead of null.

    Raises:
        InvalidRequest: With `strict`, a part cannot be cast; names its row.
        CorruptData: A value is invalid.
    """
    values = VariantValues.decode(variants)
    for step in path:
        values = _field(values, step) if isinstance(step, str) else _element(values, step)
    found = spread(_cast(values, type_, strict=strict), values.rows, len(variants))
    return found


def _field(values: VariantValues, name: str) -> VariantValues:
    objects = values.take(values.basic_types == OBJECT)
    wanted = pc.index_in(values.names.texts, pa.array([name])).is_valid()
    parts = objects.parts()
    return parts.values.take(np.asarray(wanted, dtype=np.bool_)[parts.names])


def _element(values: VariantValues, number: int) -> VariantValues:
    parts = values.take(values.basic_types == ARRAY).parts()
    return parts.values.take(parts.numbers == number)


def _cast(values: VariantValues, type_: pa.DataType, *, strict: bool) -> pa.Array:
    kinds = values.basic_types
    nested = np.flatnonzero((kinds == OBJECT) | (kinds == ARRAY))
    scalars = np.flatnonzero((kinds != OBJECT) & (kinds != ARRAY))
    rows: list[Longs] = [np.zeros(0, np.int64)]
    results: list[pa.Array] = [pa.nulls(0, type_)]
    for positions, array in scalar_values(values.take(scalars)):
        rows.append(scalars[positions])
        results.append(_cast_scalars(array, type_))
        if strict and not pa.types.is_null(array.type):
            _refuse(values, rows[-1], results[-1], type_)
    if len(nested):
        rows.append(nested)
        is_text = pa.types.is_string(type_)
        results.append(json_of_values(values.take(nested)) if is_text else pa.nulls(len(nested), type_))
        if strict:
            _refuse(values, nested, results[-1], type_)
    places = np.empty(len(values), np.int64)
    places[np.concatenate(rows)] = np.arange(len(values))
    return pa.concat_arrays(results).take(pa.array(places))


def _refuse(values: VariantValues, positions: Longs, results: pa.Array, type_: pa.DataType) -> None:
    wrong = pc.index(results.is_null(), True).as_py()
    if wrong >= 0:
        position = positions[[wrong]]
        text = json_of_values(values.take(position))[0].as_py()
        raise InvalidRequest(
            f"row {int(values.rows[position[0]])}: variant_get: {text:.100} is no {type_}. try_variant_get returns null"
        )


def _cast_scalars(array: pa.Array, type_: pa.DataType) -> pa.Array:
    types, source = pa.types, array.type
    if types.is_null(source):
        return pa.nulls(len(array), type_)
    if types.is_string(type_):
        return scalar_text(array)
    if types.is_decimal(source):
        return _cast_decimals(array, type_)
    if types.is_timestamp(source) and source.tz == "UTC":
        array = array.cast(pa.timestamp("us", "UTC"), safe=False)
    convert = _OTHER.get((str(source), str(type_))) or try_cast(array.type, type_)
    return pa.nulls(len(array), type_) if convert is None else convert(array)


def _cast_decimals(array: pa.Array, type_: pa.DataType) -> pa.Array:
    if pa.types.is_floating(type_):
        return decimals_to_floats(array, type_)
    if pa.types.is_boolean(type_):
        return pc.not_equal(decimals_to_floats(array, pa.float64()), 0.0)
    if not pa.types.is_integer(type_):
        return pa.nulls(len(array), type_)
    whole = pc.trunc(array).cast(pa.decimal128(38, 0), safe=False)
    limit = 1 << 63
    low, high = (pa.scalar(bound, pa.int64()).cast(whole.type) for bound in (-limit, limit - 1))
    fits = pc.and_(pc.greater_equal(whole, low), pc.less_equal(whole, high))
    numbers = pc.if_else(fits, whole, pa.scalar(None, whole.type)).cast(pa.int64())
    narrowed = try_cast(pa.int64(), type_)
    assert narrowed is not None, "integers are cast to integers"
    return narrowed(numbers)


def _numbers_from_text(type_: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    def convert(texts: pa.Array) -> pa.Array:
        trimmed = pc.utf8_trim_whitespace(texts)
        valid = pc.match_substring_regex(trimmed, r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$")
        plain = pc.utf8_ltrim(trimmed, "+")
        return pc.if_else(valid, plain, pa.scalar(None, pa.string())).cast(pa.float64()).cast(type_, safe=False)

    return convert


def _booleans_from_text(texts: pa.Array) -> pa.Array:
    lower = pc.utf8_lower(pc.utf8_trim_whitespace(texts))
    true, false = (pc.is_in(lower, pa.array(words)) for words in (("t", "true", "y", "yes", "1"), ("f", "false", "n", "no", "0")))
    return pc.if_else(pc.or_(true, false), true, pa.scalar(None, pa.bool_()))


def _is_not_zero(array: pa.Array) -> pa.Array:
    return pc.not_equal(array, pa.scalar(0, array.type))


def _from_boolean(type_: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    return lambda array: array.cast(pa.int8()).cast(type_)


_OTHER: Final[Mapping[tuple[str, str], Callable[[pa.Array], pa.Array]]] = {
    ("string", "float"): _numbers_from_text(pa.float32()),
    ("string", "double"): _numbers_from_text(pa.float64()),
    ("string", "bool"): _booleans_from_text,
    **{("bool", str(type_)): _from_boolean(type_) for type_ in (pa.int32(), pa.int64(), pa.float32(), pa.float64())},
    **{
        (str(type_), "bool"): _is_not_zero
        for type_ in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64())
    },
}
"""Casts of Spark that filters do not have, by the names of both types."""
