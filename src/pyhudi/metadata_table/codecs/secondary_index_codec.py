r"""Partitions of secondary indexes: which record keys a value of a column has.
Source: docs/formats/metadata-table.md, secondary index.

The key says it all: the value, `$`, the record key, where `\` and `$` inside the parts are written `\\` and `\$`.  Type 7; the
payload is one flag.  Newer records replace older ones.

                    layout 1                      layout 2
    null            no record                     the character NUL as it stands; inside of text it is written `\` NUL
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
    """The values of `count` records that are there."""
    payload = payload_type(Payload.SECONDARY_INDEX)
    one = pa.StructArray.from_arrays([pa.array([False])], fields=list(payload))
    return pa.repeat(encode_payload(MetadataRecordType.SECONDARY_INDEX, one)[0], count)


def decode_secondary_values(values: pa.BinaryArray, schema: str) -> pa.BooleanArray:
    """Whether each record is a deletion.  Raises CorruptData and Unsupported as `decode_payload` does."""
    _, payloads = decode_payload(values, schema, Payload.SECONDARY_INDEX)
    if payloads.null_count:
        raise CorruptData("a record of a secondary index says nothing")
    return payload_field(payloads, "isDeleted", pa.bool_(), False)


def format_secondary_keys(texts: pa.StringArray, record_keys: pa.StringArray, layout: int = 1) -> pa.StringArray:
    """The key of each record.  texts: the column's values as text; null where the record key is null, in layout 1 also where the
    value is.
    """
    keys: pa.StringArray = pc.binary_join_element_wise(_values(texts, layout), _escape(record_keys, layout), "$")
    return keys


def format_secondary_prefixes(texts: pa.StringArray, layout: int = 1) -> pa.StringArray:
    """What the keys of all records with these values begin with: it ends with the `$`, so no longer value has it too."""
    return pc.binary_join_element_wise(_values(texts, layout), "", "$")


def routing_prefixes(keys: pa.StringArray) -> pa.StringArray:
    """What the file group of a key of layout 2 is told by: the prefix that `format_secondary_prefixes` gives."""
    return pc.binary_join_element_wise(pc.extract_regex(keys, _SPLIT).field("value"), "", "$")


def parse_secondary_keys(keys: pa.StringArray) -> tuple[pa.StringArray, pa.StringArray]:
    """The column values as text (in layout 2 NUL for null), and the record keys.  Raises CorruptData for another form."""
    parts = pc.extract_regex(keys, _SPLIT)
    if parts.null_count > keys.null_count:
        raise CorruptData("a key of a secondary index has another form", found=keys.filter(pc.is_null(parts))[0].as_py())
    return _unescape(parts.field("value")), _unescape(parts.field("key"))


def _values(texts: pa.StringArray, layout: int) -> pa.StringArray:
    escaped = _escape(texts, layout)
    return escaped if layout == 1 else pc.fill_null(escaped, _NULL)


def _escape(texts: pa.StringArray, layout: int) -> pa.StringArray:
    escaped = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), "$", "\\$")
    return escaped if layout == 1 else pc.replace_substring(escaped, _NULL, "\\" + _NULL)


def _unescape(texts: pa.StringArray) -> pa.StringArray:
    return pc.replace_substring_regex(texts, r"(?s)\\(.)", r"\1")
