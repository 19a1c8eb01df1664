"""Single Avro values, without any header: encode and decode.

The compiled form of a schema, and of a pair of schemas, is kept.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any

from pyhudi.errors import CorruptData, InvalidRequest
from pyhudi.format.avro.readers import Read, reader_of, run_reader
from pyhudi.format.avro.schema import Schema


def encode_datum(schema: Schema, value: Any) -> bytes:
    """One value without any header.  Raises InvalidRequest when the value does not fit the schema."""
    out = bytearray()
    try:
        schema.writer(out, value)
    except (TypeError, ValueError, AttributeError, KeyError, OverflowError, struct.error) as error:
        raise InvalidRequest(f"A value does not fit its Avro schema: {error}") from error
    return bytes(out)


def decode_datum(schema: Schema, data: bytes | bytearray | memoryview, target: Schema | None = None) -> Any:
    """The one value that fills `data`, written with `schema`, in the shape of `target` (None: of `schema`).

    Raises CorruptData for bytes that are not such a value, or for schemas that do not fit together.
    """
    read = compiled_reader(schema, target)
    whole = bytes(data)
    value, end = run_reader(read, whole, 0)
    if end != len(whole):
        raise CorruptData("bytes follow an Avro value", offset=end, expected=end, found=len(whole))
    return value


@lru_cache(maxsize=256)
def compiled_reader(schema: Schema, target: Schema | None) -> Read:
    """What reads values of `schema` in the shape of `target` (None: of `schema`).  Raises CorruptData when the two do not fit."""
    return reader_of(schema.root, schema.root if target is None else target.root, {})
