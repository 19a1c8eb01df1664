"""Casts between decimals and floating point numbers, correctly rounded as in Java.

Arrow's own cast of decimals computes in floating point and can miss the nearest number: 12.1 becomes
12.100000000000001. These casts convert through decimal text, which both sides represent exactly.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.records.java_strings import is_string_like, value_text


def decimals_to_floats(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Cast decimals to the nearest numbers of a floating point type, as `BigDecimal.doubleValue` does; nulls remain null."""
    return pc.cast(pc.cast(array, pa.string()), type_)


def cast_number(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Cast numbers to a numeric type without checks; decimals become the nearest floating point numbers."""
    if pa.types.is_floating(type_) and pa.types.is_decimal(array.type):
        return decimals_to_floats(array, type_)
    return pc.cast(array, type_, safe=False)


def decimal_text(array: pa.Array) -> pa.StringArray:
    """Convert decimals to text without exponent, as Spark's ANSI casts and `BigDecimal.toPlainString` do; nulls remain null."""
    texts: pa.StringArray = pc.cast(array, pa.string())
    has_exponent = pc.match_substring(texts, "E")
    if not pc.any(has_exponent, min_count=0).as_py():
        return texts
    # Only numbers near 0 have an exponent. The number 1 above has none, and the same digits after the point.
    scale, zero = array.type.scale, pa.scalar(0, array.type)
    near_zero = pc.cast(pc.abs(pc.if_else(has_exponent, array, zero)), pa.decimal256(scale + 1, scale))
    above_one = pc.cast(pc.add(near_zero, pa.scalar(1, pa.decimal256(1, 0))), pa.string())
    plain = pc.utf8_replace_slice(above_one, 0, 1, "0")
    signed = pc.if_else(pc.less(array, zero), pc.binary_join_element_wise("-", plain, ""), plain)
    return pc.if_else(has_exponent, signed, texts)


def text_to_decimals(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Cast numeric strings, or the Java text of floating point numbers, to decimals, rounded half up; nulls remain null.

    Raises:
        pa.ArrowInvalid: A value is no number, or has too many digits before the point.
    """
    # The text of a double has at most 17 digits, so no digit that affects the last decimal place is lost.
    texts = array if is_string_like(array.type) else value_text(array)
    scale = type_.scale
    if pa.types.is_floating(array.type):
        tiny = pc.less(pc.abs(array), 10.0 ** -(scale + 2))
        texts = pc.if_else(tiny, "0", texts)
    exact = pc.cast(texts, pa.decimal256(76, min(scale + 20, 76)))
    return round_decimals(exact, type_)


def round_decimals(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Cast decimals to a decimal type, rounded half up; nulls remain null.

    Raises:
        pa.ArrowInvalid: A value has too many digits before the point.
    """
    if not pa.types.is_decimal256(array.type):
        array = pc.cast(array, pa.decimal256(76, array.type.scale))
    if array.type.scale > type_.scale:
        array = pc.round(array, type_.scale, "half_towards_infinity")
    return pc.cast(array, type_)
