"""HFile trailer: the last 4096 bytes, with the offsets of all other sections.

    TRABLK"$ | varint length | TrailerProto | zeros up to byte 4092 | 03 00 00 03 (minor version, then major in three bytes)

    TrailerProto: 1 file info offset, 2 load-on-open offset, 3 uncompressed index size, 4 total uncompressed size,
    5 entries of the root index, 6 entries of the meta index, 7 number of cells, 8 index levels, 9 and 10 offsets of the first
    and last data block (-1 in an empty file), 11 comparator class, 12 codec (absent: none), 13 encryption key

Reading needs only fields 2, 5, 6, 7, 8, 9 and 12. The comparator's name is ignored: newer writers store another one.

Specification: docs/formats/hfile.md, trailer.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyhudi.errors import CorruptData, Unsupported
from pyhudi.format.byte_cursor import ByteCursor, encode_varint
from pyhudi.format.hfile.compression import Codec
from pyhudi.format.protobuf import decode_fields, encode_bytes, encode_number

TRAILER_BYTES = 4096

_MAGIC = b'TRABLK"$'
_VERSION = b"\x03\x00\x00\x03"
_MAJOR_VERSION = 3
_MAX_INDEX_LEVELS = 8
# Hudi's fallback reader loads the class of this name and rejects files with another name.
_COMPARATOR = b"org.apache.hudi.io.storage.HoodieHBaseKVComparator"
_NO_BLOCK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Trailer:
    """Offsets and counts of a file. Offsets are bytes from its start; those of data blocks are None in an empty file."""

    file_info_offset: int
    load_on_open_offset: int
    data_index_size_bytes: int
    total_uncompressed_bytes: int
    data_index_count: int
    meta_index_count: int
    entry_count: int
    index_levels: int
    first_data_block_offset: int | None
    last_data_block_offset: int | None
    codec: Codec


def decode_trailer(data: memoryview | bytes, size_bytes: int) -> Trailer:
    """Decode the last TRAILER_BYTES of a file of `size_bytes`.

    Raises:
        CorruptData: The bytes are not a trailer, or point outside the file.
        Unsupported: Another major version, an encrypted file, or an unknown codec number.
    """
    start = size_bytes - TRAILER_BYTES
    if len(data) != TRAILER_BYTES or start < 0:
        raise CorruptData("a file is too short for an HFile trailer", expected=TRAILER_BYTES, found=min(len(data), size_bytes))
    cursor = ByteCursor(data, base=start)
    cursor.expect(_MAGIC, "the magic of an HFile trailer")
    major_version = int.from_bytes(data[-3:], "big")
    if major_version != _MAJOR_VERSION:
        raise Unsupported(f"HFile version {major_version} is not supported: only version {_MAJOR_VERSION} is")
    message = cursor.read(cursor.varint())
    numbers: dict[int, int] = {}
    for number, value in decode_fields(ByteCursor(message, base=start + cursor.offset - len(message))):
        if isinstance(value, int):
            numbers[number] = value
        elif number == 13 and len(value):
            # Snapshots of release 1.1.0 wrote an empty key: no encryption.
            raise Unsupported("encrypted HFiles are not supported")
    for number in (2, 5, 6, 7, 8):
        if number not in numbers:
            raise CorruptData("an HFile trailer is missing a field", offset=start, expected=number)
    codec_number = numbers.get(12, int(Codec.NONE))
    try:
        codec = Codec(codec_number)
    except ValueError as error:
        raise Unsupported(f"unknown HFile compression codec number {codec_number}") from error
    trailer = Trailer(
        file_info_offset=numbers.get(1, 0),
        load_on_open_offset=numbers[2],
        data_index_size_bytes=numbers.get(3, 0),
        total_uncompressed_bytes=numbers.get(4, 0),
        data_index_count=numbers[5],
        meta_index_count=numbers[6],
        entry_count=numbers[7],
        index_levels=numbers[8],
        first_data_block_offset=_block_offset(numbers.get(9, _NO_BLOCK)),
        last_data_block_offset=_block_offset(numbers.get(10, _NO_BLOCK)),
        codec=codec,
    )
    if trailer.load_on_open_offset > start:
        raise CorruptData(
            "invalid load-on-open offset of an HFile", offset=start, expected=start, found=trailer.load_on_open_offset
        )
    if not 1 <= trailer.index_levels <= _MAX_INDEX_LEVELS:
        raise CorruptData(
            "invalid number of index levels of an HFile", offset=start, expected=_MAX_INDEX_LEVELS, found=trailer.index_levels
        )
    return trailer


def encode_trailer(trailer: Trailer) -> bytes:
    """Return the last TRAILER_BYTES of a file."""
    message = b"".join(
        (
            encode_number(1, trailer.file_info_offset),
            encode_number(2, trailer.load_on_open_offset),
            encode_number(3, trailer.data_index_size_bytes),
            encode_number(4, trailer.total_uncompressed_bytes),
            encode_number(5, trailer.data_index_count),
            encode_number(6, trailer.meta_index_count),
            encode_number(7, trailer.entry_count),
            encode_number(8, trailer.index_levels),
            encode_number(9, -1 if trailer.first_data_block_offset is None else trailer.first_data_block_offset),
            encode_number(10, -1 if trailer.last_data_block_offset is None else trailer.last_data_block_offset),
            encode_bytes(11, _COMPARATOR),
            encode_number(12, trailer.codec),
        )
    )
    head = _MAGIC + encode_varint(len(message)) + message
    return head.ljust(TRAILER_BYTES - len(_VERSION), b"\x00") + _VERSION


def _block_offset(number: int) -> int | None:
    return None if number == _NO_BLOCK else number
