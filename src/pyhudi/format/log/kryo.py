"""DELETE blocks of tables before version 8: Java objects serialized by the Kryo library, version 4. Read only.

    array         class, reference mark, varint length + 1, elements
    object        class, reference mark, fields by name, or the value
    class         0 null | 1 and a name (first time: its number and its text; later its number alone) | 2 + registered number
    mark          0 null | 1 new | 2 + number of an earlier object; wrappers of numbers have none
    DeleteRecord  hoodieKey (an object), orderingVal (an object)
    HoodieKey     partitionPath, recordKey (marks and strings, no classes)
    text          ASCII whose last byte has its top bit set | length + 1, then the UTF-16 units in one to three bytes each

Values follow each other without length prefixes, so decoding is sequential; such blocks are small, old, and read once.
Objects of other classes are Unsupported.

Specification: docs/formats/log-file.md, DELETE block. The serialization is derived from bytes that Hudi wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from pyhudi.errors import Unsupported
from pyhudi.format.avro_wrappers import Wrapper, mixed_values
from pyhudi.format.byte_cursor import ByteCursor
from pyhudi.format.expansion import expansion_limit

Ordering: TypeAlias = tuple[Wrapper, Any]


def decode_kryo_deletes(payload: memoryview, version: int, base: int = 0) -> pa.RecordBatch:
    """Decode the deletes of a version 1 (keys only) or version 2 payload.

    Args:
        payload: The payload of the block.
        version: 1 or 2. Deletes of version 1 have no ordering value, IntWrapper(0).
        base: Added to offsets in errors.

    Returns:
        A batch of record_key, partition_path and ordering.

    Raises:
        CorruptData: Invalid bytes.
        Unsupported: Objects of other classes.
    """
    reader = _Reader(ByteCursor(payload, base=base))
    element = _DELETE if version == 2 else _KEY
    reader.expect_class(f"[L{element};")
    reader.expect_new()
    cursor = reader.cursor
    count = cursor.varint() - 1
    if not 0 <= count <= cursor.remaining:
        raise cursor.corrupt("invalid number of deletes", found=count)
    keys: list[str | None] = []
    paths: list[str | None] = []
    orderings: list[Ordering] = []
    for _ in range(count):
        reader.expect_class(element)
        reader.expect_new()
        if version == 2:
            reader.expect_class(_KEY)
            reader.expect_new()
        paths.append(reader.marked_text())
        keys.append(reader.marked_text())
        orderings.append(reader.ordering() if version == 2 else (Wrapper.INT, 0))
    cursor.expect_end("a list of deletes")
    branches = np.array([wrapper for wrapper, _ in orderings], np.int8)
    ordering = mixed_values(branches, [value for _, value in orderings])
    return pa.RecordBatch.from_arrays(
        [pa.array(keys, pa.string()), pa.array(paths, pa.string()), ordering], names=["record_key", "partition_path", "ordering"]
    )


_DELETE: Final = "org.apache.hudi.common.model.DeleteRecord"
_KEY: Final = "org.apache.hudi.common.model.HoodieKey"
_DECIMAL: Final = "java.math.BigDecimal"
_MAX_NAME: Final = 1024

# DecimalWrapper has scale 15 and at most 30 digits.
_PLACES: Final = 15
_DIGITS: Final = 30


class _Reader:
    """State of one stream: names of classes and objects, by their numbers."""

    __slots__ = ("cursor", "names", "objects", "remaining_bytes")

    def __init__(self, cursor: ByteCursor) -> None:
        self.cursor = cursor
        self.names: list[str] = []
        self.objects: list[str | None] = []
        # A reference of one byte repeats a text of any size.
        self.remaining_bytes = expansion_limit(cursor.remaining)

    def read_class(self) -> str | int | None:
        """Read the next class: its name, its registered number, or None for a null."""
        code = self.cursor.varint()
        if code == 0:
            return None
        if code >= 2:
            return code - 2
        number = self.cursor.varint()
        if number == len(self.names):
            name = self._text()
            if name is None or len(name) > _MAX_NAME:
                raise self.cursor.corrupt("a class has no name")
            self.names.append(name)
        elif number > len(self.names):
            raise self.cursor.corrupt("reference to an undefined class", found=number)
        return self.names[number]

    def expect_class(self, name: str) -> None:
        class_name = self.read_class()
        if class_name != name:
            raise Unsupported(f"a delete block of an old table contains {class_name!r}, but only {name} is supported")

    def expect_new(self) -> None:
        """Read the mark of a new object."""
        mark = self.cursor.varint()
        if mark != 1:
            raise self.cursor.corrupt("expected a new object", expected=1, found=mark)
        self.objects.append(None)

    def marked_text(self) -> str | None:
        """Read a text after its mark: a new one, an earlier one, or null."""
        mark = self.cursor.varint()
        if mark == 0:
            return None
        if mark == 1:
            number = len(self.objects)
            self.objects.append(None)
            text = self._text()
            self.objects[number] = text
            return text
        if mark - 2 >= len(self.objects) or self.objects[mark - 2] is None:
            raise self.cursor.corrupt("reference to an undefined text", found=mark - 2)
        repeated = self.objects[mark - 2] or ""
        self.remaining_bytes -= len(repeated)
        if self.remaining_bytes < 0:
            raise self.cursor.corrupt("the texts of a delete block expand too much", found=len(repeated))
        return repeated

    def ordering(self) -> Ordering:
        """Read an ordering value, with the wrapper branch that newer blocks use for it."""
        kind = self.read_class()
        if kind is None:
            return Wrapper.NULL, None
        if kind == _STRING:
            return Wrapper.STRING, self.marked_text()
        if kind == _DECIMAL:
            self.expect_new()
            return Wrapper.DECIMAL, self._decimal()
        known = _SCALARS.get(kind) if isinstance(kind, int) else None
        if known is None:
            raise Unsupported(f"the ordering value of a delete of an old table is of class {kind!r}, which is not supported")
        wrapper, read = known
        value = read(self.cursor)
        if wrapper is Wrapper.INT and not -(2**31) <= value < 2**31:
            raise self.cursor.corrupt("an int exceeds 32 bits", found=value)
        return wrapper, value

    def _decimal(self) -> Decimal:
        cursor = self.cursor
        size = cursor.varint() - 1
        if not 1 <= size <= 64:
            raise cursor.corrupt("invalid size of a decimal", found=size)
        unscaled = int.from_bytes(cursor.read(size), "big", signed=True)
        scale = cursor.zigzag()
        if not 0 <= scale <= _PLACES or abs(unscaled) >= 10 ** (_DIGITS - _PLACES + scale):
            raise Unsupported(
                f"the ordering value of a delete of an old table is a decimal of scale {scale} and {size} bytes: not supported"
            )
        return Decimal(unscaled * 10 ** (_PLACES - scale)).scaleb(-_PLACES, Context(prec=_DIGITS))

    def _text(self) -> str | None:
        cursor = self.cursor
        first = cursor.u8()
        if first < 0x80:
            octets = bytearray([first])
            while octets[-1] < 0x80:
                octets.append(cursor.u8())
            octets[-1] &= 0x7F
            return octets.decode("ascii")
        length = first & 0x3F
        if first & 0x40:
            shift = 6
            while True:
                more = cursor.u8()
                length |= (more & 0x7F) << shift
                if more < 0x80:
                    break
                shift += 7
                if shift > 27:
                    raise cursor.corrupt("a text has no length")
        if length == 0:
            return None
        if length - 1 > cursor.remaining:
            raise cursor.corrupt("a text extends past the end of its block", expected=cursor.remaining, found=length - 1)
        units = bytearray()
        for _ in range(length - 1):
            units += self._unit().to_bytes(2, "little")
        try:
            return units.decode("utf-16-le")
        except UnicodeDecodeError as error:
            raise cursor.corrupt("a text is not Unicode") from error

    def _unit(self) -> int:
        cursor = self.cursor
        first = cursor.u8()
        if first < 0x80:
            return first
        if first >> 5 == 0b110:
            return (first & 0x1F) << 6 | cursor.u8() & 0x3F
        if first >> 4 == 0b1110:
            return (first & 0x0F) << 12 | (cursor.u8() & 0x3F) << 6 | cursor.u8() & 0x3F
        raise cursor.corrupt("a text is not Unicode", found=first)


_STRING: Final = 1
_SCALARS: Final[dict[int, tuple[Wrapper, Callable[[ByteCursor], Any]]]] = {
    0: (Wrapper.INT, ByteCursor.zigzag),
    2: (Wrapper.FLOAT, ByteCursor.f32),
    3: (Wrapper.BOOLEAN, lambda cursor: cursor.u8() == 1),
    6: (Wrapper.INT, ByteCursor.i16),
    7: (Wrapper.LONG, ByteCursor.zigzag),
    8: (Wrapper.DOUBLE, ByteCursor.f64),
}
