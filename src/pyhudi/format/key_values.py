"""Where the texts of a Parquet footer's key-values stand, found without making anything of the rest.

    FileMetaData   5 key-values: list of KeyValue
    KeyValue       1 key    2 value: both texts

Source: parquet-format, parquet.thrift; Thrift, "Compact protocol encoding".
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pyhudi.format.thrift import BINARY, BYTE, DEPTH_LIMIT, DOUBLE, FALSE, I16, I64, LIST, SET, STRUCT, TRUE

_KEY_VALUES = 5
_KEY, _VALUE = 1, 2


@dataclass(frozen=True, slots=True)
class Place:
    """Where a text stands in a footer.  head: its length before it."""

    head: int
    start: int
    end: int


class _Unlike(Exception):
    """What stands there is none of what is walked here."""


def places_of_texts(footer: bytes, keys: Collection[bytes]) -> dict[bytes, Place]:
    """Of some keys the places of their texts, in the order of the footer; none of a footer that is not of the form above.

    footer: begins with the struct, and may have anything behind it.  A key that stands twice is left out.
    """
    found: dict[bytes, Place] = {}
    twice = set()
    try:
        at = _key_values(footer)
        if at is None:
            return {}
        count, kind, at = _list_head(footer, at)
        for _ in range(count if kind == STRUCT else 0):
            key, place, at = _key_value(footer, at)
            if key in keys and place is not None:
                twice |= {key} & found.keys()
                found[key] = place
    except (IndexError, _Unlike):
        return {}
    return {key: place for key, place in found.items() if key not in twice and place.end <= len(footer)}


def _key_values(footer: bytes) -> int | None:
    """Where the list of key-values begins."""
    at = number = 0
    while head := footer[at]:
        if head < 16:
            raise _Unlike
        number, at = number + (head >> 4), at + 1
        if number == _KEY_VALUES and head & 15 == LIST:
            return at
        at = _after(footer, at, head & 15, 0)
    return None


def _key_value(footer: bytes, at: int) -> tuple[bytes, Place | None, int]:
    key, place = b"", None
    number = 0
    while head := footer[at]:
        if head < 16:
            raise _Unlike
        number, at = number + (head >> 4), at + 1
        if number in (_KEY, _VALUE) and head & 15 == BINARY:
            size, start = _varint(footer, at)
            if number == _KEY:
                key = footer[start : start + size]
            else:
                place = Place(at, start, start + size)
            at = start + size
        else:
            at = _after(footer, at, head & 15, 0)
    return key, place, at + 1


def _after(data: bytes, at: int, kind: int, depth: int, *, in_list: bool = False) -> int:
    """Where a value ends.  Raises IndexError where the data ends before."""
    if I16 <= kind <= I64:
        while data[at] >= 128:
            at += 1
        return at + 1
    if kind == BINARY:
        size, at = _varint(data, at)
        return at + size
    if kind == STRUCT and depth < DEPTH_LIMIT:
        while head := data[at]:
            at += 1
            if head < 16:
                raise _Unlike
            kind = head & 15
            if I16 <= kind <= I64:
                while data[at] >= 128:
                    at += 1
                at += 1
            else:
                at = _after(data, at, kind, depth + 1)
        return at + 1
    if kind in (LIST, SET) and depth < DEPTH_LIMIT:
        count, kind, at = _list_head(data, at)
        for _ in range(count):
            at = _after(data, at, kind, depth + 1, in_list=True)
        return at
    if kind in (TRUE, FALSE):
        return at + in_list
    if kind == BYTE:
        return at + 1
    if kind == DOUBLE:
        return at + 8
    raise _Unlike


def _list_head(data: bytes, at: int) -> tuple[int, int, int]:
    """How many items a list has, their kind, and where the first begins."""
    head = data[at]
    if head >> 4 < 15:
        return head >> 4, head & 15, at + 1
    count, at = _varint(data, at + 1)
    return count, head & 15, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while (byte := data[at]) >= 128:
        value |= (byte & 127) << shift
        shift += 7
        at += 1
    return value | byte << shift, at + 1
