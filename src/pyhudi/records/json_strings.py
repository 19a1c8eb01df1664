r"""Serialize Arrow values as JSON, vectorized over columns.

    struct               {"a": 1, "b": null}     all fields in order, including nulls; a space after each colon and
                         comma
    list                 [1, 2]
    map                  {"key": 1}              keys as strings, in their order
    string               "text"                  quotes, backslashes and control characters escaped, everything else
                         unchanged
    boolean, integer     true, 1
    float                1.5, 1.0E10             as Java prints it; NaN and the infinities as strings: "NaN"
    decimal              12.50                   a number
    date                 days since the epoch    a number; times and timestamps are milliseconds or microseconds, as the
                         type
    binary               "\u0000é"               one character per byte, with the byte's code point

This is the string form of Avro's generic records, which Hudi returns in change data, except for decimals, which are
lists of bytes there. A null value gives null, not the string.

Source: docs/formats/reading.md, "Change data".
"""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import Unsupported
from pyhudi.format.hudi_types import is_vector
from pyhudi.records.java_strings import float_text, is_binary_like, is_string_like, timestamp_micros

_CONTROLS = [chr(code) for code in range(0x20)]


def json_text(values: pa.Array) -> pa.StringArray:
    """Serialize each value as JSON; nulls remain null, order is kept.

    Raises:
        Unsupported: A type that tables do not have.
    """
    types = pa.types
    type_ = values.type
    if types.is_null(type_):
        return values.cast(pa.string())
    if types.is_struct(type_):
        return _struct(values)
    if types.is_map(type_):
        return _enclose(values, "{", _joined(values, _entries(values)), "}")
    if is_vector(type_):
        return json_text(values.cast(pa.list_(type_.value_type)))
    if types.is_list(type_) or types.is_large_list(type_):
        return _enclose(values, "[", _joined(values, _texts(_items(values))), "]")
    if is_string_like(type_):
        return _quoted(values.cast(pa.string()))
    if is_binary_like(type_):
        return _quoted(_decode_latin1(values.cast(pa.binary())))
    if types.is_float32(type_) or types.is_float64(type_):
        text = float_text(values)
        return pc.if_else(pc.is_finite(values), text, _joined_texts(['"', text, '"']))
    if types.is_timestamp(type_):
        return timestamp_micros(values).cast(pa.string())
    if types.is_date32(type_) or types.is_time32(type_):
        return values.cast(pa.int32()).cast(pa.string())
    if types.is_time64(type_):
        return values.cast(pa.int64()).cast(pa.string())
    if types.is_boolean(type_) or types.is_integer(type_) or types.is_decimal(type_):
        return values.cast(pa.string())
    raise Unsupported(f"values of type {type_} have no JSON form")


def _struct(values: pa.StructArray) -> pa.StringArray:
    pieces: list[pa.Array | str] = []
    for number, field in enumerate(values.type):
        name = json.dumps(field.name, ensure_ascii=False)
        pieces += [f"{', ' if number else ''}{name}: ", _texts(values.field(number))]
    if not pieces:
        return pc.if_else(values.is_valid(), "{}", pa.scalar(None, pa.string()))
    return _enclose(values, "{", _joined_texts(pieces), "}")


def _texts(values: pa.Array) -> pa.StringArray:
    """Serialize nested values; a null becomes the string `null`."""
    texts = json_text(values)
    return pc.fill_null(texts, "null") if texts.null_count else texts


def _enclose(values: pa.Array, first: str, texts: pa.Array, last: str) -> pa.StringArray:
    joined = _joined_texts([first, texts, last])
    return pc.if_else(values.is_valid(), joined, pa.scalar(None, pa.string())) if values.null_count else joined


def _joined_texts(chunks: list[pa.Array | str]) -> pa.StringArray:
    scalars = [pa.scalar(piece, pa.string()) if isinstance(piece, str) else piece for piece in chunks]
    return pc.binary_join_element_wise(*scalars, pa.scalar("", pa.string()))


def _items(values: pa.Array) -> pa.Array:
    """Return the items of lists or maps of this array's rows only."""
    first, last = _bounds(values)
    return values.values.slice(first, last - first)


def _bounds(values: pa.Array) -> tuple[int, int]:
    offsets = values.offsets
    return (offsets[0].as_py(), offsets[-1].as_py()) if len(values) else (0, 0)


def _entries(values: pa.MapArray) -> pa.StringArray:
    first, last = _bounds(values)
    keys = _texts(values.keys.slice(first, last - first))
    return _joined_texts([keys, ": ", _texts(values.items.slice(first, last - first))])


def _joined(values: pa.Array, texts: pa.StringArray) -> pa.StringArray:
    """Join the serialized items of each row with commas."""
    if not len(values):
        return pa.array([], pa.string())
    offsets: np.ndarray[tuple[int], np.dtype[np.int64]] = np.asarray(values.offsets, dtype=np.int64)
    shifted = pa.array(offsets - offsets[0], pa.int32())
    return pc.binary_join(pa.ListArray.from_arrays(shifted, texts), ", ")


def _quoted(texts: pa.StringArray) -> pa.StringArray:
    if pc.any(pc.match_substring_regex(texts, r'["\\\x00-\x1f]')).as_py():
        # The backslash must be first: the other replacements insert backslashes.
        texts = pc.replace_substring(texts, "\\", "\\\\")
        texts = pc.replace_substring(texts, '"', '\\"')
        if pc.any(pc.match_substring_regex(texts, r"[\x00-\x1f]")).as_py():
            for control in _CONTROLS:
                texts = pc.replace_substring(texts, control, json.dumps(control)[1:-1])
    return _joined_texts(['"', texts, '"'])


def _decode_latin1(values: pa.BinaryArray) -> pa.StringArray:
    """Decode bytes as Latin-1: one character per byte."""
    if not len(values):
        return pa.array([], pa.string())
    values = pa.concat_arrays([values])
    _, raw_offsets, raw = values.buffers()
    offsets = np.frombuffer(raw_offsets, dtype=np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    data = np.frombuffer(raw if raw is not None else b"", dtype=np.uint8)[offsets[0] : offsets[-1]]
    # A byte of 128 or more takes two bytes in UTF-8.
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(data >= 0x80)])
    moved = offsets - offsets[0] + before[offsets - offsets[0]]
    if moved[-1] > np.iinfo(np.int32).max:
        raise Unsupported("binary values of one batch are too large to be converted to JSON: use smaller batches")
    text = data.tobytes().decode("latin-1").encode("utf-8")
    validity = values.is_valid().buffers()[1] if values.null_count else None
    return pa.StringArray.from_buffers(len(values), pa.py_buffer(moved.astype(np.int32)), pa.py_buffer(text), validity)
