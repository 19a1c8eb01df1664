"""Base class of the timeline's documents: one Avro container with one record."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Self

from pyhudi.errors import CorruptData
from pyhudi.format.avro.container import DEFAULT_SYNC, check_type, decode_datum, decode_document, encode_container
from pyhudi.format.avro.schema import Schema, parse_schema


class Document:
    """A frozen dataclass that is bound to an Avro schema: the root of SCHEMA is bound to the class."""

    __slots__ = ()
    SCHEMA: ClassVar[Schema]

    def encode(self, sync: bytes = DEFAULT_SYNC) -> bytes:
        """Return the Avro container.

        Args:
            sync: Its 16-byte marker.

        Raises:
            InvalidRequest: A value does not fit the schema.
        """
        return encode_container(self.SCHEMA, self, sync)

    @classmethod
    def decode(cls, data: bytes | memoryview) -> Self:
        """Decode an Avro container.

        Raises:
            CorruptData: Invalid or no bytes.
            Unsupported: An unsupported codec.
        """
        return decode_document(cls.SCHEMA, data, cls)

    @classmethod
    def decode_bare(cls, data: bytes | memoryview) -> Self:
        """Decode a value without a container, written with exactly this schema. Raises CorruptData."""
        return check_type(decode_datum(parse_schema(cls.SCHEMA.text), data, cls.SCHEMA), cls)


def check_distinct_groups(description: str, groups: Iterable[tuple[str | None, str | None]]) -> None:
    """Raise CorruptData if a plan has a file group (partition path, file id) twice, which would rewrite it each time."""
    known: set[tuple[str, str]] = set()
    for partition, file_id in groups:
        group = (partition or "", file_id or "")
        if group in known:
            raise CorruptData(f"{description} has a file group twice", found="/".join(group))
        known.add(group)
