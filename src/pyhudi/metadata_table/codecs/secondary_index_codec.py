r"""Codec of secondary index partitions: the record keys of each value of a column.

Format: docs/formats/metadata-table.md, secondary index.

The key holds all information: the value, `$`, the record key. `\` and `$` inside the parts are escaped as `\\` and
`\$`. Type 7; the payload is one flag. A newer record replaces an older one.

                    layout 1                      layout 2
    null            no record                     the character NUL, unescaped; inside of text NUL is escaped as `\` NUL
    dates           yyyy-MM-dd                    days since 1970-01-01
    file group      hash of the whole key         hash of the escaped value and its `$`
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptData
from pyhudi.metadata_table.codecs.metadata_schema import MetadataRecordType, Payload
from pyhudi.metadata_table.codecs.payload_codec import decode_payload, encode_payload, payload_field, payload_type

_NULL = "\0"
_SPLIT = r"^(?P<value>(?s:[^$\\]|\\.)*)\$(?P<key>(?s:[^$\\]|\\.)*)$"


def encode_secondary_values(count: int) -> pa.BinaryArray:
    """Encode the values of `count` live records."""
    payload = payload_type(Payload.SECONDARY_INDEX)
    payloads = pa.StructArray.from_arrays([pa.array([False])], fields=list(payload))
    return pa.repeat(encode_payload(MetadataRecordType.SECONDARY_INDEX, payloads)[0], count)


def decode_secondary_values(values: pa.BinaryArray, schema: str) -> pa.BooleanArray:
    """Return for each record whether it is a deletion. Raises CorruptData and Unsupported as `decode_payload`."""
    _, payloads = decode_payload(values, schema, Payload.SECONDARY_INDEX)
    if payloads.null_count:
        raise CorruptData("a secondary index record of the metadata table has no payload")
    return payload_field(payloads, "isDeleted", pa.bool_(), False)


def format_secondary_keys(texts: pa.StringArray, record_keys: pa.StringArray, layout: int = 1) -> pa.StringArray:
    """Return the key of each record.

    Args:
        texts: The column's values as text; null if the record key is null, in layout 1 also if the value is.
        record_keys: The record key of each row.
        layout: Layout of the index records, 1 or 2.
    """
    keys: pa.StringArray = pc.binary_join_element_wise(_values(texts, layout), _escape(record_keys, layout), "$")
    return keys


def format_secondary_prefixes(texts: pa.StringArray, layout: int = 1) -> pa.StringArray:
    """Return the common key prefix of all records with each value. It ends with `$`, so no longer value shares it."""
    return pc.binary_join_element_wise(_values(texts, layout), "", "$")


def routing_prefixes(keys: pa.StringArray) -> pa.StringArray:
    """Return the part of each layout 2 key that determines its file group: the prefix of `format_secondary_prefixes`."""
    return pc.binary_join_element_wise(pc.extract_regex(keys, _SPLIT).field("value"), "", "$")


def parse_secondary_keys(keys: pa.StringArray) -> tuple[pa.StringArray, pa.StringArray]:
    """Parse the column values as text (NUL for null in layout 2) and the record keys.

    Raises:
        CorruptData: A key without the separator, or with an invalid escape.
    """
    parts = pc.extract_regex(keys, _SPLIT)
    if parts.null_count > keys.null_count:
        raise CorruptData("invalid key of a secondary index", found=keys.filter(pc.is_null(parts))[0].as_py())
    return _unescape(parts.field("value")), _unescape(parts.field("key"))


def _values(texts: pa.StringArray, layout: int) -> pa.StringArray:
    escaped = _escape(texts, layout)
    return escaped if layout == 1 else pc.fill_null(escaped, _NULL)


def _escape(texts: pa.StringArray, layout: int) -> pa.StringArray:
    escaped = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), "$", "\\$")
    return escaped if layout == 1 else pc.replace_substring(escaped, _NULL, "\\" + _NULL)


def _unescape(texts: pa.StringArray) -> pa.StringArray:
    return pc.replace_substring_regex(texts, r"(?s)\\(.)", r"\1")
