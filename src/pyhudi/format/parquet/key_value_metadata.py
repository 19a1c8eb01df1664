"""Positions of key-value texts in a Parquet footer, found without parsing the other fields.

    FileMetaData   5 key-values: list of KeyValue
    KeyValue       1 key    2 value: both texts

Specification: parquet-format, parquet.thrift; Thrift, "Compact protocol encoding".
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pyhudi.errors import CorruptData
from pyhudi.format.byte_cursor import ByteCursor
from pyhudi.format.parquet.thrift_compact import BINARY, LIST, STRUCT, each_field, list_head, skip

_KEY_VALUES = 5
_KEY, _VALUE = 1, 2


@dataclass(frozen=True, slots=True)
class TextSpan:
    """Position of a text in a footer; `head` is the position of its length prefix."""

    head: int
    start: int
    end: int


def text_spans(footer: bytes, keys: Collection[bytes]) -> dict[bytes, TextSpan]:
    """Return the positions of the texts of some keys, in the order of the footer.

    Args:
        footer: Starts with the struct; bytes after it are ignored.
        keys: The keys. A repeated key is omitted.

    Returns:
        Empty for a footer that does not have the form above.
    """
    spans: dict[bytes, TextSpan] = {}
    twice = set()
    cursor = ByteCursor(footer)
    try:
        for number, kind in each_field(cursor):
            if number != _KEY_VALUES or kind != LIST:
                skip(cursor, kind, 0)
                continue
            count, kind = list_head(cursor)
            for _ in range(count if kind == STRUCT else 0):
                key, place = _key_value(cursor)
                if key in keys and place is not None:
                    twice |= {key} & spans.keys()
                    spans[key] = place
            break
    except CorruptData:
        return {}
    return {key: place for key, place in spans.items() if key not in twice}


def _key_value(cursor: ByteCursor) -> tuple[bytes, TextSpan | None]:
    key, place = b"", None
    for number, kind in each_field(cursor):
        if number not in (_KEY, _VALUE) or kind != BINARY:
            skip(cursor, kind, 0)
            continue
        head, size = cursor.offset, cursor.varint()
        text = cursor.read(size)
        if number == _KEY:
            key = bytes(text)
        else:
            place = TextSpan(head, cursor.offset - size, cursor.offset)
    return key, place
