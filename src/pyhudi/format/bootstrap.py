"""The bootstrap index: which source file holds the rows of a file group whose base file has meta columns alone.

    .hoodie/.aux/.bootstrap/.fileids/<name>.hfile      `part=<partition>;fileid=<file id>` -> one source file
    .hoodie/.aux/.bootstrap/.partitions/<name>.hfile   `part=<partition>` -> all of a partition; not read here

Each value is a whole Avro container with one record, `HoodieBootstrapFilePartitionInfo`; of the source file it has URI, length
and time.  What this does not do: write them.

Source: docs/formats/writing.md, "Bootstrap".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyhudi.errors import CorruptData
from pyhudi.format.avro.container import decode_container


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file outside of the table as it was when the table was made over it.  modified_ms: epoch milliseconds."""

    uri: str
    size_bytes: int
    modified_ms: int


def group_key(partition: str, file_id: str) -> str:
    """The key of a file group in the index by file ids."""
    return f"part={partition};fileid={file_id}"


def decode_source_file(value: bytes) -> SourceFile:
    """The source file that a value of the index by file ids names.  Raises CorruptData for other bytes, and for less."""
    records = decode_container(value)[1]
    if len(records) != 1:
        raise CorruptData("an entry of the bootstrap index holds one record", expected=1, found=len(records))
    status = _part(records[0], "bootstrapFileStatus", dict)
    path = _part(status, "path", dict)
    return SourceFile(_part(path, "uri", str), _part(status, "length", int), _part(status, "modificationTime", int))


def _part(record: Any, name: str, kind: type) -> Any:
    value = record.get(name) if isinstance(record, dict) else None
    if not isinstance(value, kind):
        raise CorruptData(f"an entry of the bootstrap index has no {name}", expected=kind.__name__, found=type(value).__name__)
    return value
