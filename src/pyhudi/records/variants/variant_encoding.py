"""Encode JSON text as variant values.

The parser is Python's, so the conversion runs row by row. Only explicit calls use it, no data path.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from pyhudi.errors import InvalidRequest
from pyhudi.format.hudi_types import VARIANT_TYPE

_INTEGERS: Final = ((3, 1), (4, 2), (5, 4), (6, 8))
"""Primitive types of integers and their bytes."""

_MOST_DIGITS: Final = 38
_MOST_SHORT: Final = 63


def variants_from_json(texts: pa.Array) -> pa.StructArray:
    """Convert JSON to canonical VARIANT values, as `parse_json` of Spark does.

    Whole numbers become the narrowest integer, numbers with a fraction decimals of at most 38 digits, others double. A
    null row stays null; the text `null` becomes the variant null.

    Raises:
        InvalidRequest: A text is not JSON, or an object has a name twice; names the row.
    """
    encoded: list[tuple[bytes, bytes] | None] = []
    for row, text in enumerate(texts.to_pylist()):
        try:
            encoded.append(None if text is None else _encoded(text))
        except (ValueError, RecursionError) as error:
            raise InvalidRequest(f"row {row} (counted from 0) is not JSON that a variant can hold: {error}") from error
    mask = pa.array([pair is None for pair in encoded], pa.bool_())
    columns = [pa.array([(pair and pair[part]) or b"" for pair in encoded], pa.binary()) for part in (0, 1)]
    return pa.StructArray.from_arrays(columns, fields=list(VARIANT_TYPE.fields), mask=mask)


def _encoded(text: str) -> tuple[bytes, bytes]:
    names: set[str] = set()
    value = json.loads(
        text, parse_float=_number, parse_constant=_no_number, object_pairs_hook=lambda pairs: _object(pairs, names)
    )
    ordered = sorted(name.encode() for name in names)
    ids = {name.decode(): number for number, name in enumerate(ordered)}
    return encoded_names(ordered), _value(value, ids)


class _Fields(dict[str, Any]):
    """An object's fields."""


def _object(pairs: list[tuple[str, Any]], names: set[str]) -> _Fields:
    fields = _Fields(pairs)
    if len(fields) < len(pairs):
        twice = next(name for name, _ in pairs if sum(other == name for other, _ in pairs) > 1)
        raise ValueError(f"the name {twice!r} occurs twice in an object")
    names.update(fields)
    return fields


def _number(text: str) -> Decimal | float:
    exact = Decimal(text)
    digits, exponent = exact.as_tuple().digits, exact.as_tuple().exponent
    assert isinstance(exponent, int), "JSON numbers are finite"
    is_plain = "e" not in text and "E" not in text
    if is_plain and len(digits) <= _MOST_DIGITS and -exponent <= _MOST_DIGITS:
        return exact
    return float(text)


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no JSON number")


def encoded_names(ordered: list[bytes]) -> bytes:
    """Return the metadata of sorted names."""
    total = sum(map(len, ordered))
    width = _width(max(total, len(ordered)))
    offsets = list(_ends(map(len, ordered)))
    header = 1 | (0x10 if ordered else 0) | (width - 1) << 6
    numbers = b"".join(number.to_bytes(width, "little") for number in (len(ordered), *offsets))
    return bytes([header]) + numbers + b"".join(ordered)


def _ends(sizes: Iterable[int]) -> Iterator[int]:
    end = 0
    yield end
    for size in sizes:
        end += size
        yield end


def _width(number: int) -> int:
    return max(1, (number.bit_length() + 7) // 8)


def _value(value: Any, ids: dict[str, int]) -> bytes:
    if value is None or isinstance(value, bool):
        return bytes([(0 if value is None else 1 if value else 2) << 2])
    if isinstance(value, str):
        data = value.encode()
        return (
            bytes([len(data) << 2 | 1]) + data if len(data) <= _MOST_SHORT else b"\x40" + len(data).to_bytes(4, "little") + data
        )
    if isinstance(value, int):
        return _integer(value)
    if isinstance(value, Decimal):
        return _decimal(value)
    if isinstance(value, float):
        return _double(value)
    if isinstance(value, _Fields):
        fields = sorted((name.encode(), name) for name in value)
        numbers = [ids[name] for _, name in fields]
        return _container(numbers, [_value(value[name], ids) for _, name in fields], is_object=True)
    return _container([], [_value(item, ids) for item in value], is_object=False)


def _integer(value: int) -> bytes:
    for kind, width in _INTEGERS:
        if -(1 << 8 * width - 1) <= value < 1 << 8 * width - 1:
            return bytes([kind << 2]) + value.to_bytes(width, "little", signed=True)
    return _decimal(Decimal(value)) if abs(value) < 10**_MOST_DIGITS else _double(float(value))


def _double(value: float) -> bytes:
    return b"\x1c" + struct.pack("<d", value)


def _decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int), "JSON numbers are finite"
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    scale = max(0, -exponent)
    precision = max(len(digits), scale)
    kind, width = (8, 4) if precision <= 9 else (9, 8) if precision <= 18 else (10, 16)
    return bytes([kind << 2, scale]) + unscaled.to_bytes(width, "little", signed=True)


def _container(ids: list[int], values: list[bytes], *, is_object: bool) -> bytes:
    ends = list(_ends(map(len, values)))
    width = _width(ends[-1])
    large = len(values) > 255
    count = len(values).to_bytes(4 if large else 1, "little")
    offsets = b"".join(end.to_bytes(width, "little") for end in ends)
    if is_object:
        id_width = _width(max(ids, default=0))
        header = (width - 1 | (id_width - 1) << 2 | large << 4) << 2 | 2
        numbers = b"".join(number.to_bytes(id_width, "little") for number in ids)
    else:
        header, numbers = (width - 1 | large << 2) << 2 | 3, b""
    return bytes([header]) + count + numbers + offsets + b"".join(values)
