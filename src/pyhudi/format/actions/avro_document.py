"""What the documents of the timeline have in common: one Avro container with one record."""

from __future__ import annotations

from typing import ClassVar, Self

from pyhudi.format.avro.container import DEFAULT_SYNC, check_type, decode_datum, decode_document, encode_container
from pyhudi.format.avro.schema import Schema, parse_schema


class Document:
    """A frozen dataclass that is bound to a schema; SCHEMA: whose root is bound to the class."""

    __slots__ = ()
    SCHEMA: ClassVar[Schema]

    def encode(self, sync: bytes = DEFAULT_SYNC) -> bytes:
        """The Avro container.  sync: its 16-byte marker.  Raises InvalidRequest when a value does not fit the schema."""
        return encode_container(self.SCHEMA, self, sync)

    @classmethod
    def decode(cls, data: bytes | memoryview) -> Self:
        """From an Avro container.  Raises CorruptData, also for no bytes at all, and Unsupported for a codec."""
        return decode_document(cls.SCHEMA, data, cls)

    @classmethod
    def decode_bare(cls, data: bytes | memoryview) -> Self:
        """From a value without a container, written with this very schema.  Raises CorruptData."""
        return check_type(decode_datum(parse_schema(cls.SCHEMA.text), data, cls.SCHEMA), cls)
