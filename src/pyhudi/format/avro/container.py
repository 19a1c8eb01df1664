"""Avro container files of the Hudi timeline: one record, written without compression.

    container = "Obj" 1  header map  sync(16)  (count  size  records  sync(16))*
    header map: `avro.schema`, and `avro.codec` when it is not null
    sealed:      sync = "pyhudi", CRC-32 of all but the markers (big-endian), six bytes of the writer's

A sync marker may be any bytes. Every reader accepts a sealed container, and PyHudi verifies its checksum.

Not supported: codecs except deflate. Columns of rows are the task of the log blocks.

Specification: docs/formats/timeline.md; Avro 1.11, "Object Container Files".
"""

from __future__ import annotations

import struct
import zlib
from functools import lru_cache
from typing import Any, Final, TypeVar

from pyhudi.errors import CorruptData, InvalidRequest, Unsupported
from pyhudi.format.avro.readers import Read, node_reader, run_reader
from pyhudi.format.avro.schema import Schema, parse_schema
from pyhudi.format.avro.writers import encode_bytes
from pyhudi.format.byte_cursor import ByteCursor, encode_zigzag
from pyhudi.format.expansion import expansion_limit

# Single Avro values, without a header.
#
# The compiled form of a schema, and of a pair of schemas, is cached.


def encode_datum(schema: Schema, value: Any) -> bytes:
    """Encode one value without a header. Raises InvalidRequest if the value does not fit the schema."""
    out = bytearray()
    try:
        schema.writer(out, value)
    except (TypeError, ValueError, AttributeError, KeyError, OverflowError, struct.error) as error:
        raise InvalidRequest(f"A value does not fit its Avro schema: {error}") from error
    return bytes(out)


def decode_datum(schema: Schema, data: bytes | bytearray | memoryview, target: Schema | None = None) -> Any:
    """Decode the value that fills `data`.

    Args:
        schema: The writer's schema.
        data: The encoded value.
        target: The reader's schema; None for the writer's.

    Raises:
        CorruptData: Invalid bytes, or incompatible schemas.
    """
    read = compiled_reader(schema, target)
    content = bytes(data)
    value, end = run_reader(read, content, 0)
    if end != len(content):
        raise CorruptData("trailing bytes after an Avro value", offset=end, expected=end, found=len(content))
    return value


@lru_cache(maxsize=256)
def compiled_reader(schema: Schema, target: Schema | None) -> Read:
    """Return the reader of values of `schema` in the shape of `target` (None: of `schema`).

    Raises:
        CorruptData: Incompatible schemas.
    """
    return node_reader(schema.root, schema.root if target is None else target.root, {})


MAGIC: Final = b"Obj\x01"
SYNC_BYTES: Final = 16
DEFAULT_SYNC: Final = bytes(SYNC_BYTES)
_SEAL: Final = b"pyhudi"

DocumentT = TypeVar("DocumentT")


def encode_container(schema: Schema, value: Any, sync: bytes = DEFAULT_SYNC) -> bytes:
    """Encode a container file of one record, with codec null and only `avro.schema` in its header.

    Args:
        value: The record.
        sync: 16 bytes, random in files that are meant to be split.

    Raises:
        InvalidRequest: As `encode_datum`.
    """
    if len(sync) != SYNC_BYTES:
        raise InvalidRequest(f"A sync marker has {SYNC_BYTES} bytes, not {len(sync)}.")
    datum = encode_datum(schema, value)
    text = schema.text.encode()
    header = b"\x02" + encode_bytes(b"avro.schema") + encode_bytes(text) + b"\x00"
    return b"".join((MAGIC, header, sync, b"\x02", encode_zigzag(len(datum)), datum, sync))


def add_checksum_marker(data: bytes) -> bytes:
    """Return a container of one block with its checksum in the sync marker; other bytes are returned unchanged."""
    if not data.startswith(MAGIC):
        return data
    cursor = ByteCursor(data)
    cursor.expect(MAGIC, "the magic of an Avro container")
    _read_header(cursor)
    start = cursor.offset
    sync = bytes(cursor.read(SYNC_BYTES))
    if sync.startswith(_SEAL) or data.count(sync) != 2 or not data.endswith(sync):
        return data
    head, body = data[:start], data[start + SYNC_BYTES : -SYNC_BYTES]
    sealed = _SEAL + zlib.crc32(body, zlib.crc32(head)).to_bytes(4, "big") + sync[: SYNC_BYTES - len(_SEAL) - 4]
    return b"".join((head, sealed, body, sealed))


def is_sealed(data: bytes) -> bool:
    """Return True for a container with a checksum in its sync marker: PyHudi has written it.

    Raises:
        CorruptData: The header is damaged.
    """
    cursor = ByteCursor(data)
    cursor.expect(MAGIC, "the magic of an Avro container")
    _read_header(cursor)
    return bytes(cursor.read(SYNC_BYTES)).startswith(_SEAL)


def _check_seal(data: bytes | bytearray | memoryview, start: int, sync: bytes) -> None:
    """Raise CorruptData if a sealed container does not match its checksum. start: offset of the first marker."""
    if not sync.startswith(_SEAL):
        return
    view = memoryview(data)
    expected = int.from_bytes(sync[len(_SEAL) :][:4], "big")
    checksum = zlib.crc32(view[start + SYNC_BYTES : -SYNC_BYTES], zlib.crc32(view[:start]))
    if checksum != expected:
        raise CorruptData("checksum mismatch in an Avro container", offset=start, expected=expected, found=checksum)


def decode_container(data: bytes | bytearray | memoryview, target: Schema | None = None) -> tuple[Schema, tuple[Any, ...]]:
    """Return the schema in a container file, and its records in the shape of `target` (None: of that schema).

    Raises:
        CorruptData: Invalid bytes, or a schema that is incompatible with `target`.
        Unsupported: A codec other than deflate.
    """
    cursor = ByteCursor(data)
    cursor.expect(MAGIC, "the magic of an Avro container")
    header = _read_header(cursor)
    start = cursor.offset
    sync = bytes(cursor.read(SYNC_BYTES))
    _check_seal(data, start, sync)
    if b"avro.schema" not in header:
        raise cursor.corrupt("an Avro container has no schema")
    codec = header.get(b"avro.codec", b"null").decode("latin-1")
    if codec not in ("null", "deflate"):
        raise Unsupported(f"Avro containers with the codec {codec[:40]!r} are not supported.")
    try:
        schema = parse_schema(header[b"avro.schema"].decode("utf-8"))
    except UnicodeDecodeError as error:
        raise cursor.corrupt("the schema of an Avro container is not UTF-8") from error
    read = compiled_reader(schema, target)
    records: list[Any] = []
    while cursor.remaining:
        count, size_bytes = cursor.zigzag(), cursor.zigzag()
        start = cursor.offset
        block = bytes(cursor.read(size_bytes))
        if codec == "deflate":
            block = _inflate(block, start)
        if not 0 <= count <= len(block):
            raise cursor.corrupt("an Avro block has more records than bytes", expected=len(block), found=count)
        at = 0
        base = start if codec == "null" else None
        for _ in range(count):
            value, at = run_reader(read, block, at, base)
            records.append(value)
        if at != len(block):
            raise CorruptData("trailing bytes after the records of an Avro block", offset=start, expected=at, found=len(block))
        cursor.expect(sync, "the sync marker of an Avro block")
    return schema, tuple(records)


def decode_document(target: Schema, data: bytes | bytearray | memoryview, value_class: type[DocumentT]) -> DocumentT:
    """Return the one record of a container file, in the shape of `target`, whose root is bound to the class `value_class`.

    Raises as `decode_container`.
    """
    records = decode_container(data, target)[1]
    if len(records) != 1:
        raise CorruptData("a document must hold one record", expected=1, found=len(records))
    return check_type(records[0], value_class)


def check_type(value: Any, value_class: type[DocumentT]) -> DocumentT:
    """Return `value` if it is a `value_class`; otherwise the schema is bound to another class, which raises CorruptData."""
    if not isinstance(value, value_class):
        raise CorruptData("an Avro document has another type", expected=value_class.__name__, found=type(value).__name__)
    return value


def _read_header(cursor: ByteCursor) -> dict[bytes, bytes]:
    header: dict[bytes, bytes] = {}
    while True:
        count = cursor.zigzag()
        if count == 0:
            return header
        if count < 0:
            count = -count
            cursor.zigzag()
        if count > cursor.remaining:
            raise cursor.corrupt("the header of an Avro container has more entries than bytes", found=count)
        for _ in range(count):
            key = bytes(cursor.read(cursor.zigzag()))
            header[key] = bytes(cursor.read(cursor.zigzag()))


def _inflate(block: bytes, offset: int) -> bytes:
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    limit = expansion_limit(len(block))
    try:
        plain = inflater.decompress(block, limit)
    except zlib.error as error:
        raise CorruptData(f"invalid deflate data of an Avro block: {error}", offset=offset) from error
    if inflater.unconsumed_tail:
        raise Unsupported(f"an Avro block of {len(block)} bytes inflates to more than the limit of {limit}")
    if not inflater.eof:
        raise CorruptData("a deflated Avro block is truncated", offset=offset)
    return plain
