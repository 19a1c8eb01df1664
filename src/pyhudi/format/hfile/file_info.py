"""File info block of an HFile: named byte strings about the whole file.

    "PBUF" | varint length | InfoProto { repeated BytesBytesPair map_entry = 1 { bytes first = 1; bytes second = 2 } }

    KEY_VALUE_VERSION      i32 1: entries carry a version number        MAX_MEMSTORE_TS_KEY  i64 0: all of which are 0
    hfile.AVG_KEY_LEN      i32                                          hfile.AVG_VALUE_LEN  i32
    hfile.LASTKEY          full key of the last entry                   hfile.CREATE_TIME_TS i64 0
    schema                 Avro schema of the values, JSON
    minRecordKey, maxRecordKey, bloomFilterTypeCode: base files only

The Java readers need the first four; newer files may have none of them.

Specification: docs/formats/hfile.md, file info.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyhudi.errors import CorruptData
from pyhudi.format.byte_cursor import ByteCursor, encode_varint
from pyhudi.format.protobuf import decode_fields, encode_bytes

KEY_VALUE_VERSION = "KEY_VALUE_VERSION"
MAX_VERSION_NUMBER = "MAX_MEMSTORE_TS_KEY"
AVERAGE_KEY_BYTES = "hfile.AVG_KEY_LEN"
AVERAGE_VALUE_BYTES = "hfile.AVG_VALUE_LEN"
LAST_KEY = "hfile.LASTKEY"
CREATE_TIME = "hfile.CREATE_TIME_TS"
SCHEMA = "schema"
MIN_RECORD_KEY = "minRecordKey"
MAX_RECORD_KEY = "maxRecordKey"
BLOOM_FILTER_TYPE = "bloomFilterTypeCode"

_MAGIC = b"PBUF"


def decode_file_info(data: memoryview, *, offset: int = 0) -> dict[str, bytes]:
    """Decode names and values. Raises CorruptData if the data is not file info.

    Args:
        data: The block's data.
        offset: Offset of the block, for error messages.
    """
    cursor = ByteCursor(data, base=offset)
    cursor.expect(_MAGIC, "the magic of an HFile's file info")
    message = cursor.read(cursor.varint())
    values: dict[str, bytes] = {}
    for number, entry in decode_fields(ByteCursor(message, base=offset)):
        if number != 1 or isinstance(entry, int):
            continue
        pair = {field: bytes(text) for field, text in decode_fields(ByteCursor(entry, base=offset)) if not isinstance(text, int)}
        try:
            name = pair.get(1, b"").decode()
        except UnicodeDecodeError as error:
            raise CorruptData("a name in an HFile's file info is not UTF-8", offset=offset) from error
        values[name] = pair.get(2, b"")
    return values


def encode_file_info(values: Mapping[str, bytes]) -> bytes:
    """Encode the block's data; names ascend by their bytes, as Java writes them."""
    pairs = sorted((name.encode(), value) for name, value in values.items())
    message = b"".join(encode_bytes(1, encode_bytes(1, name) + encode_bytes(2, value)) for name, value in pairs)
    return _MAGIC + encode_varint(len(message)) + message
