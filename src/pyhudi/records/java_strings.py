"""Convert values to the strings that Java's `toString` prints, vectorized over columns.

Hudi builds record keys, partition paths and string-widened columns from `toString()` of the Avro value. If two systems
print one value differently, one row gets two keys. So this module reproduces the formats exactly:

    boolean    true, false
    int, long  decimal
    float      the shortest digits that read back; plain between 1e-3 (inclusive) and 1e7, else 1.0E20, 1.0E-5; NaN,
               Infinity
    date       2024-05-06
    timestamp  microseconds since the epoch, as decimal
    decimal    BigDecimal.toString: with its scale (1.50), scientific if the adjusted exponent is below -6 (1E-8, 0E-8)
    string     unchanged
    binary     lower-case hexadecimal

Java 19 and later print the shortest digits, and so does this module. Older releases print one more digit for some large
whole numbers (above 2^53 for doubles, 2^24 for floats: 5.9028721132322368E16 for 5.902872113232237E16) and print 1E23
as 9.999999999999999E22. Avoid such numbers as keys.

Everything runs on Arrow kernels and numpy, except for subnormal numbers of one digit, of which few distinct values exist.

`java.sql.Timestamp` strings are formatted in `records.keys.key_values`. Nested values are not supported.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest

_FIRST_MOVED = 0xEE
_FROM_JAVA = np.arange(256, dtype=np.uint8)
_FROM_JAVA[_FIRST_MOVED:0xF5] = [0xF0, 0xF1, 0xF2, 0xF3, 0xF4, 0xEE, 0xEF]
_TO_JAVA = np.argsort(_FROM_JAVA).astype(np.uint8)
_HEX = np.frombuffer(b"".join(b"%02x" % value for value in range(256)), dtype=np.uint8).reshape(256, 2)


def has_text(type_: pa.DataType) -> bool:
    """Return True if `value_text` supports values of this Arrow type."""
    return bool(
        pa.types.is_boolean(type_)
        or pa.types.is_integer(type_)
        or pa.types.is_float32(type_)
        or pa.types.is_float64(type_)
        or pa.types.is_date32(type_)
        or pa.types.is_timestamp(type_)
        or pa.types.is_decimal(type_)
        or is_string_like(type_)
        or is_binary_like(type_)
    )


def is_string_like(type_: pa.DataType) -> bool:
    """Return True if the Arrow type is a UTF-8 string in plain, large or view layout."""
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_))


def is_binary_like(type_: pa.DataType) -> bool:
    """Return True if the Arrow type is binary in plain, large, view or fixed-size layout."""
    return bool(
        pa.types.is_binary(type_)
        or pa.types.is_large_binary(type_)
        or pa.types.is_binary_view(type_)
        or pa.types.is_fixed_size_binary(type_)
    )


def value_text(array: pa.Array) -> pa.StringArray:
    """Convert each value to the string that Java's `toString` returns for Hudi's Avro value; nulls remain null.

    Source: docs/formats/record-keys.md, "Values as text".

    Args:
        array: Values of a type for which `has_text` is True. A timestamp is converted to microseconds since the epoch.

    Raises:
        InvalidRequest: Another type.
    """
    type_ = array.type
    if pa.types.is_string(type_):
        return array
    if pa.types.is_floating(type_) and not pa.types.is_float16(type_):
        return float_text(array)
    if pa.types.is_timestamp(type_):
        return pc.cast(timestamp_micros(array), pa.string())
    if is_binary_like(type_):
        return _hex_text(pc.cast(array, pa.binary()))
    if not has_text(type_):
        raise InvalidRequest(
            f"values of type {type_} cannot be converted to strings: use a string, number, boolean, date or timestamp column"
        )
    return pc.cast(array, pa.string())


def java_order(texts: pa.StringArray) -> pa.BinaryArray:
    """Encode strings as bytes that sort in Java's string order, by UTF-16 units; nulls remain null.
    `text_in_java_order` decodes.

    The order differs from that of UTF-8, used by Arrow and Python, only for characters above U+FFFF: UTF-16 encodes
    them as surrogate pairs, which sort before U+E000. So the lead bytes of these characters are swapped with those of
    the last three-byte characters.
    """
    return _replace_bytes(texts, _TO_JAVA)


def text_in_java_order(ordered: bytes) -> str:
    """Decode one value of `java_order`."""
    return ordered.translate(_FROM_JAVA.tobytes()).decode()


def _replace_bytes(texts: pa.StringArray, table: np.ndarray[Any, np.dtype[np.uint8]]) -> pa.BinaryArray:
    validity, offsets, data = texts.buffers()
    if data is not None and data.size:
        plain = np.frombuffer(data, dtype=np.uint8)
        if plain.max() >= _FIRST_MOVED:
            data = pa.py_buffer(table[plain])
    return pa.BinaryArray.from_buffers(pa.binary(), len(texts), [validity, offsets, data], texts.null_count, texts.offset)


def timestamp_micros(array: pa.Array, where: str = "") -> pa.Int64Array:
    """Convert timestamps to microseconds since the epoch, rounding finer units down; nulls remain null.

    Args:
        array: Timestamps; without a time zone they count as UTC.
        where: Prefix of the error message, such as the column name.

    Raises:
        InvalidRequest: An instant does not fit into 64 bits of microseconds.
    """
    if array.type.unit == "ns":
        array = pc.floor_temporal(array, unit="microsecond")
    try:
        return pc.cast(pc.cast(array, pa.timestamp("us", array.type.tz)), pa.int64())
    except pa.ArrowInvalid as error:
        raise InvalidRequest(f"{where}a timestamp does not fit into microseconds since the epoch: {error}") from error


def float_text(array: pa.Array) -> pa.StringArray:
    """Convert each value with `Float.toString` or `Double.toString`; nulls remain null.

    Args:
        array: float32 or float64 values.
    """
    shortest = pc.cast(array, pa.string())
    magnitude = pc.abs(pc.cast(array, pa.float64()))
    plain = pc.or_(pc.and_(pc.greater_equal(magnitude, 1e-3), pc.less(magnitude, 1e7)), pc.equal(magnitude, 0.0))
    with_point = pc.if_else(
        pc.match_substring(shortest, "."), shortest, pc.binary_join_element_wise(shortest, "0", pa.scalar("."))
    )
    if pc.all(pc.fill_null(plain, True)).as_py():
        return with_point
    finite = pc.is_finite(magnitude)
    scientific = pc.and_(pc.invert(plain), finite)
    result = pc.if_else(plain, with_point, _special_text(array))
    scientific_mask = pc.fill_null(scientific, False)
    if pc.any(scientific_mask).as_py():
        result = pc.replace_with_mask(
            result, scientific_mask, _scientific_text(array.filter(scientific_mask), shortest.filter(scientific_mask))
        )
    return result


def widen_floats_as_text(array: pa.FloatArray) -> pa.DoubleArray:
    """Cast float32 to float64 through the shortest decimal string, as Hudi does: 0.1f becomes 0.1, not 0.10000000149011612."""
    return pc.cast(pc.cast(array, pa.string()), pa.float64())


def _special_text(array: pa.Array) -> pa.Array:
    infinite = pc.if_else(pc.greater(array, 0.0), "Infinity", "-Infinity")
    return pc.if_else(pc.is_nan(array), "NaN", infinite)


def _scientific_text(values: pa.Array, shortest: pa.Array) -> pa.Array:
    parts = pc.extract_regex(shortest, r"^(?P<sign>-?)(?P<whole>[0-9]+)(?:\.(?P<fraction>[0-9]+))?(?:e(?P<power>[+-]?[0-9]+))?$")
    integer_part, power = parts.field("whole"), parts.field("power")
    digits = pc.binary_join_element_wise(integer_part, parts.field("fraction"), "")
    significant = pc.utf8_ltrim(digits, characters="0")
    leading_zeros = pc.subtract(pc.utf8_length(digits), pc.utf8_length(significant))
    significant = pc.utf8_rtrim(significant, characters="0")
    # A number without an exponent has an empty group, which means power 0. Arrow does not parse a plus sign.
    power = pc.utf8_ltrim(pc.if_else(pc.equal(power, ""), "0", power), characters="+")
    exponent = pc.subtract(pc.add(pc.cast(power, pa.int32()), pc.subtract(pc.utf8_length(integer_part), 1)), leading_zeros)
    tail = pc.utf8_slice_codeunits(significant, 1)
    mantissa = pc.binary_join_element_wise(
        pc.utf8_slice_codeunits(significant, 0, 1), pc.if_else(pc.equal(tail, ""), "0", tail), "."
    )
    text = pc.binary_join_element_wise(parts.field("sign"), mantissa, "E", pc.cast(exponent, pa.string()), "")
    # Java prints at least two digits and selects the nearest two. They differ from one digit and a zero only where
    # neighbours are further apart than a tenth of the value, among the smallest subnormals (4.9E-324, not 5.0E-324).
    threshold = 1e-320 if pa.types.is_float64(values.type) else 1e-42
    is_short = pc.and_(pc.less(pc.abs(pc.cast(values, pa.float64())), threshold), pc.equal(tail, ""))
    if pc.any(is_short).as_py():
        encoded = pc.dictionary_encode(pc.cast(values.filter(is_short), pa.float64()))
        texts = pa.array([_two_digits(value) for value in encoded.dictionary.to_pylist()], pa.string())
        text = pc.replace_with_mask(text, is_short, texts.take(encoded.indices))
    return text


def _two_digits(value: float) -> str:
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}E{int(exponent)}"


def _hex_text(array: pa.BinaryArray) -> pa.StringArray:
    buffers: list[Any] = array.buffers()
    offsets = np.frombuffer(buffers[1], dtype=np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    data = np.frombuffer(buffers[2] or b"", dtype=np.uint8)[offsets[0] : offsets[-1]]
    doubled = (offsets - offsets[0]) * 2
    if doubled[-1] > np.iinfo(np.int32).max:
        raise InvalidRequest("binary values of one batch are too large to be printed as hexadecimal text: use smaller batches")
    validity = None
    if array.null_count:
        validity = pc.is_valid(array).buffers()[1]
    return pa.StringArray.from_buffers(
        len(array), pa.py_buffer(doubled.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(_HEX[data])), validity
    )
