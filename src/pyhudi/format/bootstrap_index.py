"""Bootstrap index: maps each file group whose base file has meta columns only to the source file with its rows.

    .hoodie/.aux/.bootstrap/.fileids/<name>.hfile      `part=<partition>;fileid=<file id>` -> one source file
    .hoodie/.aux/.bootstrap/.partitions/<name>.hfile   `part=<partition>` -> all of a partition

Each value is a complete Avro container with one record, `HoodieBootstrapFilePartitionInfo` or
`HoodieBootstrapPartitionMetadata`. A source file is recorded with URI, length and modification time. The file info
entry INDEX_INFO is a third record, with the number of keys.

Specification: docs/formats/writing.md, "Bootstrap".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from pyhudi.errors import CorruptData
from pyhudi.format.avro.container import decode_container, encode_container
from pyhudi.format.avro.schema import Schema, parse_schema
from pyhudi.format.hfile.compression import Codec
from pyhudi.format.hfile.hfile_writer import HFileOptions, encode_hfile

INDEX_FILE_NAME: Final = "00000000-0000-0000-0000-000000000000-0_1-0-1_00000000000001.hfile"
_INDEX_INFO = "INDEX_INFO"
_BLOCK_BYTES = 32 << 20
"""Block size that the files record; no reader uses it."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file outside of the table, as it was when the table was bootstrapped.

    Attributes:
        uri: Full URI.
        size_bytes: Length.
        modified_ms: Modification time, milliseconds since 1970 UTC.
    """

    uri: str
    size_bytes: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class BootstrappedGroup:
    """A file group whose rows are stored outside of the table.

    Attributes:
        partition: Partition path in the table.
        source_partition: Folder of the source file, relative to the bootstrap base path.
        file_id: The file group.
        source: The source file.
    """

    partition: str
    source_partition: str
    file_id: str
    source: SourceFile


def group_key(partition: str, file_id: str) -> str:
    """Return the key of a file group in the index by file ids."""
    return f"part={partition};fileid={file_id}"


def encode_file_ids(groups: Sequence[BootstrappedGroup], base_path: str, created_ms: int) -> bytes:
    """Encode the index by file ids.

    Args:
        groups: The bootstrapped file groups.
        base_path: The bootstrap base path, as in the table's properties.
        created_ms: Milliseconds since 1970 UTC.
    """
    entries = {
        group_key(group.partition, group.file_id): encode_container(
            _FILE_SCHEMA,
            {
                "version": None,
                "bootstrapPartitionPath": group.source_partition,
                "bootstrapFileStatus": _status(group.source),
                "partitionPath": group.partition,
            },
        )
        for group in groups
    }
    return _encode_index(entries, base_path, created_ms)


def encode_partitions(groups: Sequence[BootstrappedGroup], base_path: str, created_ms: int) -> bytes:
    """Encode the index by partitions; arguments as for `encode_file_ids`."""
    groups_by_partition: dict[str, list[BootstrappedGroup]] = {}
    for group in groups:
        groups_by_partition.setdefault(group.partition, []).append(group)
    entries = {
        f"part={partition}": encode_container(
            _PARTITION_SCHEMA,
            {
                "version": None,
                "bootstrapPartitionPath": partition_groups[0].source_partition,
                "partitionPath": partition,
                "fileIdToBootstrapFile": {group.file_id: _status(group.source) for group in partition_groups},
            },
        )
        for partition, partition_groups in groups_by_partition.items()
    }
    return _encode_index(entries, base_path, created_ms)


def decode_source_file(value: bytes) -> SourceFile:
    """Decode the source file in a value of the index by file ids.

    Raises:
        CorruptData: Invalid bytes, or a missing field.
    """
    return _source_of(_part(_record(value), "bootstrapFileStatus", dict))


def decode_group(value: bytes, file_id: str) -> BootstrappedGroup:
    """Decode the file group in a value of the index by file ids. Raises as `decode_source_file`."""
    record = _record(value)
    partition, source_partition = _part(record, "partitionPath", str), _part(record, "bootstrapPartitionPath", str)
    return BootstrappedGroup(partition, source_partition, file_id, _source_of(_part(record, "bootstrapFileStatus", dict)))


def _record(value: bytes) -> Any:
    records = decode_container(value)[1]
    if len(records) != 1:
        raise CorruptData("an entry of the bootstrap index must hold one record", expected=1, found=len(records))
    return records[0]


def _source_of(status: Any) -> SourceFile:
    path = _part(status, "path", dict)
    return SourceFile(_part(path, "uri", str), _part(status, "length", int), _part(status, "modificationTime", int))


def _part(record: Any, name: str, kind: type) -> Any:
    value = record.get(name) if isinstance(record, dict) else None
    if not isinstance(value, kind):
        raise CorruptData(f"an entry of the bootstrap index has no {name}", expected=kind.__name__, found=type(value).__name__)
    return value


def _status(source: SourceFile) -> dict[str, Any]:
    fields = {
        "path": {"version": 1, "uri": source.uri},
        "length": source.size_bytes,
        "isDir": False,
        "blockReplication": 1,
        "blockSize": _BLOCK_BYTES,
        "modificationTime": source.modified_ms,
        "accessTime": source.modified_ms,
    }
    return {**dict.fromkeys(["version", *(name for name, _ in _STATUS_FIELDS)]), **fields}


def _encode_index(entries: Mapping[str, bytes], base_path: str, created_ms: int) -> bytes:
    ordered = sorted((key.encode(), value) for key, value in entries.items())
    info = {"version": 1, "bootstrapBasePath": base_path, "createdTimestamp": created_ms, "numKeys": len(ordered)}
    keys, values = pa.array([key for key, _ in ordered], pa.binary()), pa.array([value for _, value in ordered], pa.binary())
    file_info = {_INDEX_INFO: encode_container(_INFO_SCHEMA, info)}
    return encode_hfile([(keys, values)], HFileOptions(codec=Codec.NONE), file_info=file_info)


_NAMESPACE = {"namespace": "org.apache.hudi.avro.model"}
_TEXT = {"type": "string", "avro.java.string": "String"}


def _schema(name: str, *fields: tuple[str, Any], **more: Any) -> dict[str, Any]:
    """Return a record schema of Hudi's model: its version, then nullable fields."""
    version = {"name": "version", "type": ["int", "null"], "default": 1}
    others = [{"name": field, "type": ["null", kind], "default": None} for field, kind in fields]
    return {"type": "record", "name": name, **more, "fields": [version, *others]}


_STATUS_FIELDS: tuple[tuple[str, Any], ...] = (
    ("path", _schema("HoodiePath", ("uri", _TEXT))),
    ("length", "long"),
    ("isDir", "boolean"),
    ("blockReplication", "int"),
    ("blockSize", "long"),
    ("modificationTime", "long"),
    ("accessTime", "long"),
    (
        "permission",
        _schema(
            "HoodieFSPermission",
            ("userAction", _TEXT),
            ("groupAction", _TEXT),
            ("otherAction", _TEXT),
            ("stickyBit", "boolean"),
        ),
    ),
    ("owner", _TEXT),
    ("group", _TEXT),
    ("symlink", "HoodiePath"),
)
_STATUS = _schema("HoodieFileStatus", *_STATUS_FIELDS)


def _parsed(name: str, *fields: tuple[str, Any]) -> Schema:
    return parse_schema(json.dumps(_schema(name, *fields, **_NAMESPACE), separators=(",", ":")))


_FILE_SCHEMA = _parsed(
    "HoodieBootstrapFilePartitionInfo",
    ("bootstrapPartitionPath", _TEXT),
    ("bootstrapFileStatus", _STATUS),
    ("partitionPath", _TEXT),
)
_PARTITION_SCHEMA = _parsed(
    "HoodieBootstrapPartitionMetadata",
    ("bootstrapPartitionPath", _TEXT),
    ("partitionPath", _TEXT),
    ("fileIdToBootstrapFile", {"type": "map", "values": _STATUS, "avro.java.string": "String"}),
)
_INFO_SCHEMA = _parsed("HoodieBootstrapIndexInfo", ("bootstrapBasePath", _TEXT), ("createdTimestamp", "long"), ("numKeys", "int"))
