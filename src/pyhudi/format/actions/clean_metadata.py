"""Clean: cleaner plan (requested and inflight file) and clean metadata (completed file).

Versions are 2 and never null; `is_partition_deleted` is never null. The plan names files by full URI, the result by
file name. The metadata table uses `delete_path_patterns` as the list of deleted files. A clean that finds nothing has
no instant.

Specification: docs/formats/timeline.md, "Paths in documents".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyhudi.format.actions.avro_document import Document
from pyhudi.format.avro.nodes import BOOLEAN, INT, LONG, STRING, array_node, map_node, optional, record, required, version_field
from pyhudi.format.avro.schema import schema_from_record

SAVEPOINTED_TIMESTAMPS_KEY = "savepointed_timestamps"
PARTITIONS_KEY = "pyhudi.clean.partitions"
"""Entry of the extra metadata of a clean of selected partitions: how they were selected."""
"""Extra metadata of plan and result: the savepoints that existed, joined by commas."""


@dataclass(frozen=True, slots=True)
class ActionInstant:
    """An instant by its names.

    Attributes:
        timestamp: A request time.
        action: Name of the action.
        state: Name of the state, such as "COMPLETED".
    """

    timestamp: str
    action: str
    state: str


@dataclass(frozen=True, slots=True)
class CleanFileInfo:
    """A file to delete; file_path is a full URI."""

    file_path: str | None
    is_bootstrap_base_file: bool | None = False


@dataclass(frozen=True, slots=True)
class CleanerPlan(Document):
    """Files to delete.

    Attributes:
        earliest_instant_to_retain: None under KEEP_LATEST_FILE_VERSIONS.
        policy: KEEP_LATEST_COMMITS, KEEP_LATEST_FILE_VERSIONS or KEEP_LATEST_BY_HOURS.
        files_to_be_deleted_per_partition: Empty since version 2.
    """

    earliest_instant_to_retain: ActionInstant | None
    last_completed_commit_timestamp: str
    policy: str
    files_to_be_deleted_per_partition: Mapping[str, tuple[str, ...]] | None = field(default_factory=dict)
    version: int | None = 2
    file_paths_to_be_deleted_per_partition: Mapping[str, tuple[CleanFileInfo, ...]] | None = field(default_factory=dict)
    partitions_to_be_deleted: tuple[str, ...] | None = ()
    extra_metadata: Mapping[str, str] | None = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CleanPartitionMetadata:
    """Result in one partition; delete_path_patterns, success_delete_files and failed_delete_files are file names."""

    partition_path: str
    policy: str
    delete_path_patterns: tuple[str, ...] = ()
    success_delete_files: tuple[str, ...] = ()
    failed_delete_files: tuple[str, ...] = ()
    is_partition_deleted: bool | None = False


@dataclass(frozen=True, slots=True)
class CleanMetadata(Document):
    """Result of a clean.

    Attributes:
        start_clean_time: The clean's request time.
        earliest_commit_to_retain: "" if there is none; the next clean examines the changes since this commit.
    """

    start_clean_time: str
    time_taken_in_millis: int
    total_files_deleted: int
    earliest_commit_to_retain: str
    last_completed_commit_timestamp: str
    partition_metadata: Mapping[str, CleanPartitionMetadata]
    version: int | None = 2
    bootstrap_partition_metadata: Mapping[str, CleanPartitionMetadata] | None = field(default_factory=dict)
    extra_metadata: Mapping[str, str] | None = field(default_factory=dict)


_ACTION_INSTANT = record(
    "HoodieActionInstant", ActionInstant, timestamp=required(STRING), action=required(STRING), state=required(STRING)
)
_FILE_INFO = record("HoodieCleanFileInfo", CleanFileInfo, filePath=optional(STRING), isBootstrapBaseFile=optional(BOOLEAN))
CLEANER_PLAN = record(
    "HoodieCleanerPlan",
    CleanerPlan,
    earliestInstantToRetain=optional(_ACTION_INSTANT),
    lastCompletedCommitTimestamp=required(STRING, ""),
    policy=required(STRING),
    filesToBeDeletedPerPartition=optional(map_node(array_node(STRING))),
    version=version_field(1),
    filePathsToBeDeletedPerPartition=optional(map_node(array_node(_FILE_INFO))),
    partitionsToBeDeleted=optional(array_node(STRING)),
    extraMetadata=optional(map_node(STRING, default=None)),
)
_PARTITION = record(
    "HoodieCleanPartitionMetadata",
    CleanPartitionMetadata,
    partitionPath=required(STRING),
    policy=required(STRING),
    deletePathPatterns=required(array_node(STRING)),
    successDeleteFiles=required(array_node(STRING)),
    failedDeleteFiles=required(array_node(STRING)),
    isPartitionDeleted=optional(BOOLEAN),
)
CLEAN_METADATA = record(
    "HoodieCleanMetadata",
    CleanMetadata,
    startCleanTime=required(STRING),
    timeTakenInMillis=required(LONG),
    totalFilesDeleted=required(INT),
    earliestCommitToRetain=required(STRING),
    lastCompletedCommitTimestamp=required(STRING, ""),
    partitionMetadata=required(map_node(_PARTITION)),
    version=version_field(1),
    bootstrapPartitionMetadata=optional(map_node(_PARTITION, default=None)),
    extraMetadata=optional(map_node(STRING, default=None)),
)
CleanerPlan.SCHEMA = schema_from_record(CLEANER_PLAN)
CleanMetadata.SCHEMA = schema_from_record(CLEAN_METADATA)
