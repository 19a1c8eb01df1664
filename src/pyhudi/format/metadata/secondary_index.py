r"""Partitions of secondary indexes: which record keys a value of a column has.
Source: storage format, "Metadata table", secondary index.

The key says it all: the value, `$`, the record key, where `\` and `$` inside the parts are written `\\` and `\$`.  Type 7; the
payload is one flag.  A null value has no record.  Newer records replace older ones.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptData
from pyhudi.format.metadata.codec import decode_payload, encode_payload, payload_field, payload_type
from pyhudi.format.metadata.schema import Payload, RecordType

_SPLIT = r"^(?P<value>(?s:[^$\\]|\\.)*)\$(?P<key>(?s:[^$\\]|\\.)*)$"


def encode_secondary_values(count: int) -> pa.BinaryArray:
    """The values of `count` records that are there."""
    payload = payload_type(Payload.SECONDARY_INDEX)
    one = pa.StructArray.from_arrays([pa.array([False])], fields=list(payload))
    return pa.repeat(encode_payload(RecordType.SECONDARY_INDEX, one)[0], count)


def decode_secondary_values(values: pa.BinaryArray, schema: str) -> pa.BooleanArray:
    """Whether each record is a deletion.  Raises CorruptData and Unsupported as `decode_payload` does."""
    _, payloads = decode_payload(values, schema, Payload.SECONDARY_INDEX)
    if payloads.null_count:
        raise CorruptData("a record of a secondary index says nothing")
    return payload_field(payloads, "isDeleted", pa.bool_(), False)


def format_secondary_keys(texts: pa.StringArray, record_keys: pa.StringArray) -> pa.StringArray:
    """The key of each record.  texts: the column's values as text; null where either is null."""
    keys: pa.StringArray = pc.binary_join_element_wise(_escape(texts), _escape(record_keys), "$")
    return keys


def format_secondary_prefixes(texts: pa.StringArray) -> pa.StringArray:
    """What the keys of all records with these values begin with: it ends with the `$`, so no longer value has it too."""
    return pc.binary_join_element_wise(_escape(texts), "", "$")


def parse_secondary_keys(keys: pa.StringArray) -> tuple[pa.StringArray, pa.StringArray]:
    """The column values as text, and the record keys.  Raises CorruptData for a key of another form."""
    parts = pc.extract_regex(keys, _SPLIT)
    if parts.null_count > keys.null_count:
        raise CorruptData("a key of a secondary index has another form", found=keys.filter(pc.is_null(parts))[0].as_py())
    return _unescape(parts.field("value")), _unescape(parts.field("key"))


def _escape(texts: pa.StringArray) -> pa.StringArray:
    return pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), "$", "\\$")


def _unescape(texts: pa.StringArray) -> pa.StringArray:
    return pc.replace_substring_regex(texts, r"(?s)\\(.)", r"\1")
