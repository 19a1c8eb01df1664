"""Commit metadata: write statistics of a commit, delta commit, replace commit, compaction, log compaction or clustering.

    HoodieCommitMetadata          commit, deltacommit (also of compactions and log compactions), inflight profiles
    HoodieReplaceCommitMetadata   replacecommit (also of clusterings): the same, and the file groups that were replaced

Timelines of layout 1 store the same as JSON; `decode` distinguishes them. A file of no bytes is empty metadata. On
writing, the partitions and the extra metadata are maps, never null, and the operation is one of the format's names;
otherwise readers fail.

Not done here: comparison of the statistics with the files.
Specification: docs/formats/timeline.md, "Commit metadata".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pyhudi.errors import InvalidRequest
from pyhudi.format.avro.container import (
    DEFAULT_SYNC,
    check_type,
    decode_container,
    decode_datum,
    decode_document,
    encode_container,
)
from pyhudi.format.avro.json_values import from_json
from pyhudi.format.avro.nodes import BOOLEAN, INT, LONG, STRING, AvroField, array_node, map_node, optional, record, version_field
from pyhudi.format.avro.schema import parse_schema, schema_from_record
from pyhudi.format.json_document import parse_json

SCHEMA_KEY = "schema"
"""Extra metadata: Avro JSON of the table's schema without the meta columns."""
LATEST_SCHEMA_KEY = "latest_schema"
"""Extra metadata: JSON of the schema with column ids, of tables with schema on read."""
BOOTSTRAP_PARTS_KEY = "pyhudi.bootstrap.instants"
"""Extra metadata, written by PyHudi only: the comma-separated instants that together form one bootstrap, if there are two."""
LOST_FILES_KEY = "pyhudi.repair.lost.files"
"""Extra metadata, written by PyHudi only: JSON of the committed files whose loss a repair accepted."""
NO_PREVIOUS_COMMIT = "null"
"""Value of `prev_commit` for a new file group: a string of four letters, not null."""


class Operation(StrEnum):
    """Values of `operation_type`, and their properties.

    Readers reject a commit with any other value. BUCKET_RESCALE exists from version 9 on.
    """

    INSERT = "INSERT"
    INSERT_PREPPED = "INSERT_PREPPED"
    UPSERT = "UPSERT"
    UPSERT_PREPPED = "UPSERT_PREPPED"
    BULK_INSERT = "BULK_INSERT"
    BULK_INSERT_PREPPED = "BULK_INSERT_PREPPED"
    DELETE = "DELETE"
    DELETE_PREPPED = "DELETE_PREPPED"
    BOOTSTRAP = "BOOTSTRAP"
    INSERT_OVERWRITE = "INSERT_OVERWRITE"
    CLUSTER = "CLUSTER"
    DELETE_PARTITION = "DELETE_PARTITION"
    INSERT_OVERWRITE_TABLE = "INSERT_OVERWRITE_TABLE"
    COMPACT = "COMPACT"
    INDEX = "INDEX"
    ALTER_SCHEMA = "ALTER_SCHEMA"
    LOG_COMPACT = "LOG_COMPACT"
    BUCKET_RESCALE = "BUCKET_RESCALE"
    UNKNOWN = "UNKNOWN"

    @property
    def is_service(self) -> bool:
        """True for planned table services: they rewrite existing rows under their existing keys."""
        return self in (Operation.COMPACT, Operation.LOG_COMPACT, Operation.CLUSTER)

    @property
    def changes_rows(self) -> bool:
        """False if every row has the same values afterwards."""
        return not self.is_service and self not in (Operation.INDEX, Operation.ALTER_SCHEMA, Operation.BUCKET_RESCALE)

    @property
    def moves_keys(self) -> bool:
        """False if every existing record stays in its file group, and no record is added."""
        return self.changes_rows or self in (Operation.CLUSTER, Operation.BUCKET_RESCALE)

    @property
    def replaces(self) -> bool:
        """True if it replaces file groups and completes as a replacecommit."""
        return self in (
            Operation.INSERT_OVERWRITE,
            Operation.INSERT_OVERWRITE_TABLE,
            Operation.DELETE_PARTITION,
            Operation.CLUSTER,
            Operation.BUCKET_RESCALE,
        )

    @property
    def deletes(self) -> bool:
        """True if each of its rows is a record to delete."""
        return self in (Operation.DELETE, Operation.DELETE_PREPPED)

    @property
    def sets_schema(self) -> bool:
        """False if the schema in its commit must not become the table's schema."""
        return not self.is_service and self is not Operation.INDEX


@dataclass(frozen=True, slots=True)
class RuntimeStats:
    """Time spent by a task, in milliseconds."""

    total_scan_time: int = 0
    total_create_time: int = 0
    total_upsert_time: int = 0


@dataclass(frozen=True, slots=True)
class WriteStat:
    """One data file that the action wrote. Counters that are null in a file are read as 0.

    `total_log_records`, `total_log_blocks`, `total_updated_records_compacted`, `total_corrupt_log_block` and
    `total_rollback_blocks` are those of compactions; `total_log_files` and `temp_path` are always None.

    Attributes:
        file_id: File group, with its `-<n>`.
        path: Relative to the table, without a leading slash; readers find the file only through this field.
        prev_commit: Base file: request time of the base file that it replaces, "null" for a new file group. Log file:
            its own request time; with change data capture that of the base file.
        num_writes: Rows in the new base file, copied ones included, or in the log blocks.
        num_inserts: Inserts of this action; 0 for an update of a base file, and for a log file on tables with a record index.
        num_update_writes: Updates of this action.
        num_deletes: Deletes of this action.
        total_write_bytes: Base file: its size. Log file: appended bytes.
        file_size_in_bytes: The exact size of the file: readers rely on it.
        partition_path: Equal to its map key; "" for a non-partitioned table.
        prev_base_file: Name of the base file that it replaces; None means that every row is new.
        log_version: Log file: 1. Base file: None.
        log_offset: Log file: 0. Base file: None.
        base_file: Log file: "", with change data capture the base file of the slice. Base file: None.
        log_files: Log file: its own name, with change data capture the log files of the slice. Base file: None.
        cdc_stats: Path of each CDC log to its size; None without.
        min_event_time: None unless event time is tracked.
        max_event_time: None unless event time is tracked.
    """

    file_id: str | None = None
    path: str | None = None
    prev_commit: str | None = NO_PREVIOUS_COMMIT
    num_writes: int = 0
    num_deletes: int = 0
    num_update_writes: int = 0
    total_write_bytes: int = 0
    total_write_errors: int = 0
    partition_path: str | None = None
    total_log_records: int = 0
    total_log_files: int | None = None
    total_updated_records_compacted: int = 0
    num_inserts: int = 0
    total_log_blocks: int = 0
    total_corrupt_log_block: int = 0
    total_rollback_blocks: int = 0
    file_size_in_bytes: int = 0
    log_version: int | None = None
    log_offset: int | None = None
    base_file: str | None = None
    log_files: tuple[str, ...] | None = None
    cdc_stats: Mapping[str, int] | None = None
    prev_base_file: str | None = None
    min_event_time: int | None = None
    max_event_time: int | None = None
    runtime_stats: RuntimeStats | None = None
    total_log_files_compacted: int = 0
    total_log_read_time_ms: int = 0
    total_log_size_compacted: int = 0
    temp_path: str | None = None
    num_updates: int = 0


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """Commit metadata of one instant.

    Attributes:
        partition_to_write_stats: Partition path to its write statistics.
        compacted: The action was a compaction or log compaction.
        extra_metadata: See the keys above.
        operation_type: A name of `Operation`, or None.
        partition_to_replace_file_ids: Partition path to the replaced file groups; not None makes it the metadata of a
            replacecommit.
        version: Null in Hudi's own files.
    """

    partition_to_write_stats: Mapping[str, tuple[WriteStat, ...]] = field(default_factory=dict)
    compacted: bool = False
    extra_metadata: Mapping[str, str] = field(default_factory=dict)
    operation_type: str | None = None
    partition_to_replace_file_ids: Mapping[str, tuple[str, ...]] | None = None
    version: int | None = None

    @property
    def operation(self) -> Operation:
        """The operation; UNKNOWN for none, and for an unknown name."""
        return Operation.__members__.get(self.operation_type or "", Operation.UNKNOWN)

    @property
    def write_stats(self) -> tuple[WriteStat, ...]:
        """The write statistics of all partitions, in the order of the file."""
        return tuple(stat for stats in self.partition_to_write_stats.values() for stat in stats)

    def encode(self, sync: bytes = DEFAULT_SYNC) -> bytes:
        """Return the Avro container. Raises InvalidRequest for an operation that readers would reject."""
        known = Operation.__members__.get(self.operation_type or "")
        if self.operation_type is not None and known is None:
            raise InvalidRequest(f"invalid operation in commit metadata: {self.operation_type!r}")
        schema = COMMIT_SCHEMA if self.partition_to_replace_file_ids is None else REPLACE_COMMIT_SCHEMA
        return encode_container(schema, self, sync)

    def encode_json(self) -> bytes:
        """Return the JSON of layout 1. Raises as `encode`."""
        _, (document,) = decode_container(self.encode())
        return json.dumps({name: value for name, value in document.items() if name != "version"}, indent=2).encode()

    @classmethod
    def decode(cls, data: bytes | memoryview) -> CommitMetadata:
        """Decode Avro, the JSON of layout 1, or no bytes.

        If the file has no replaced file groups field, partition_to_replace_file_ids is None.

        Raises:
            CorruptData: Invalid bytes.
            Unsupported: An unsupported codec.
        """
        if not len(data):
            return cls(operation_type=Operation.UNKNOWN.value)
        if bytes(data[:1]) == b"{":
            return check_type(from_json(REPLACE_COMMIT_SCHEMA, _parse_json(bytes(data))), cls)
        return decode_document(REPLACE_COMMIT_SCHEMA, data, cls)

    @classmethod
    def decode_bare(cls, data: bytes | memoryview, *, is_replace: bool) -> CommitMetadata:
        """Decode a value without a container, written with exactly this schema. Raises CorruptData."""
        schema = REPLACE_COMMIT_SCHEMA if is_replace else COMMIT_SCHEMA
        return check_type(decode_datum(parse_schema(schema.text), data, REPLACE_COMMIT_SCHEMA), cls)


def _parse_json(data: bytes) -> Any:
    return parse_json(data, "commit metadata is")


def _count() -> AvroField:
    """Return an optional long whose null means 0."""
    return optional(LONG, null=0)


_RUNTIME_STATS = record(
    "HoodieRuntimeStats", RuntimeStats, totalScanTime=_count(), totalCreateTime=_count(), totalUpsertTime=_count()
)

WRITE_STAT = record(
    "HoodieWriteStat",
    WriteStat,
    fileId=optional(STRING),
    path=optional(STRING),
    prevCommit=optional(STRING),
    numWrites=_count(),
    numDeletes=_count(),
    numUpdateWrites=_count(),
    totalWriteBytes=_count(),
    totalWriteErrors=_count(),
    partitionPath=optional(STRING),
    totalLogRecords=_count(),
    totalLogFiles=optional(LONG),
    totalUpdatedRecordsCompacted=_count(),
    numInserts=_count(),
    totalLogBlocks=_count(),
    totalCorruptLogBlock=_count(),
    totalRollbackBlocks=_count(),
    fileSizeInBytes=_count(),
    logVersion=optional(INT),
    logOffset=optional(LONG),
    baseFile=optional(STRING),
    logFiles=optional(array_node(STRING, default=None)),
    cdcStats=optional(map_node(LONG, default=None)),
    prevBaseFile=optional(STRING),
    minEventTime=optional(LONG),
    maxEventTime=optional(LONG),
    runtimeStats=optional(_RUNTIME_STATS),
    totalLogFilesCompacted=_count(),
    totalLogReadTimeMs=_count(),
    totalLogSizeCompacted=_count(),
    tempPath=optional(STRING),
    numUpdates=_count(),
)


def _fields(extra_metadata: AvroField) -> dict[str, AvroField]:
    return {
        "partitionToWriteStats": optional(map_node(array_node(WRITE_STAT)), null=dict),
        "compacted": optional(BOOLEAN, null=False),
        "extraMetadata": extra_metadata,
        "version": version_field(1),
        "operationType": optional(STRING),
    }


COMMIT_METADATA = record("HoodieCommitMetadata", CommitMetadata, **_fields(optional(map_node(STRING, default=None), null=dict)))
REPLACE_COMMIT_METADATA = record(
    "HoodieReplaceCommitMetadata",
    CommitMetadata,
    **_fields(optional(map_node(STRING), null=dict)),
    partitionToReplaceFileIds=optional(map_node(array_node(STRING))),
)
COMMIT_SCHEMA = schema_from_record(COMMIT_METADATA)
REPLACE_COMMIT_SCHEMA = schema_from_record(REPLACE_COMMIT_METADATA)


def decode_lost_files(metadata: CommitMetadata) -> dict[str, int | None]:
    """Return the lost files that a commit records: path -> size, None if it was missing."""
    text = metadata.extra_metadata.get(LOST_FILES_KEY)
    if not text:
        return {}
    try:
        return {str(path): entry["bytes"] for path, entry in json.loads(text).items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}
