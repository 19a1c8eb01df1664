"""Rollback: the files to delete (requested file) and those deleted (completed file).

A plan based on markers has full URIs and every file id. A plan based on a listing has paths without a scheme, and "" as
file id and instant. Since table version 8 whole log files are deleted, so the three maps of log blocks are empty.

Specification: docs/formats/timeline.md, "Paths in documents".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyhudi.format.actions.avro_document import Document
from pyhudi.format.avro.nodes import INT, LONG, STRING, array_node, map_node, optional, record, required, version_field
from pyhudi.format.avro.schema import schema_from_record
from pyhudi.format.instants import parse_action


@dataclass(frozen=True, slots=True)
class InstantInfo:
    """An instant.

    Attributes:
        commit_time: Request time.
        action: The action in the instant's file name.
    """

    commit_time: str
    action: str


@dataclass(frozen=True, slots=True)
class RollbackRequest:
    """Files to delete of one file group or partition; latest_base_instant is the instant to roll back."""

    partition_path: str
    file_id: str | None = ""
    latest_base_instant: str | None = ""
    files_to_be_deleted: tuple[str, ...] = ()
    log_blocks_to_be_deleted: Mapping[str, int] | None = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RollbackPlan(Document):
    """Rollback plan; rollback_requests has the files to delete, by file group or partition."""

    instant_to_rollback: InstantInfo | None
    rollback_requests: tuple[RollbackRequest, ...] | None = ()
    version: int | None = 1

    def __post_init__(self) -> None:
        """Raise CorruptData for an unknown action, because a plan is executed."""
        if self.instant_to_rollback is not None:
            parse_action(self.instant_to_rollback.action)


@dataclass(frozen=True, slots=True)
class RollbackPartitionMetadata:
    """Result in one partition; files have the same form as in the plan."""

    partition_path: str
    success_delete_files: tuple[str, ...] = ()
    failed_delete_files: tuple[str, ...] = ()
    rollback_log_files: Mapping[str, int] | None = field(default_factory=dict)
    log_files_from_failed_commit: Mapping[str, int] | None = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RollbackMetadata(Document):
    """Result of a rollback.

    Attributes:
        start_rollback_time: The rollback's request time.
        commits_rollback: Request times of the instants rolled back.
    """

    start_rollback_time: str
    time_taken_in_millis: int
    total_files_deleted: int
    commits_rollback: tuple[str, ...]
    partition_metadata: Mapping[str, RollbackPartitionMetadata]
    version: int | None = 1
    instants_rollback: tuple[InstantInfo, ...] = ()


INSTANT_INFO = record("HoodieInstantInfo", InstantInfo, commitTime=required(STRING), action=required(STRING))
_REQUEST = record(
    "HoodieRollbackRequest",
    RollbackRequest,
    partitionPath=required(STRING),
    fileId=optional(STRING),
    latestBaseInstant=optional(STRING),
    filesToBeDeleted=required(array_node(STRING, default=[]), []),
    logBlocksToBeDeleted=optional(map_node(LONG)),
)
ROLLBACK_PLAN = record(
    "HoodieRollbackPlan",
    RollbackPlan,
    instantToRollback=optional(INSTANT_INFO),
    RollbackRequests=optional(array_node(_REQUEST)),
    version=version_field(1),
)
_PARTITION = record(
    "HoodieRollbackPartitionMetadata",
    RollbackPartitionMetadata,
    partitionPath=required(STRING),
    successDeleteFiles=required(array_node(STRING)),
    failedDeleteFiles=required(array_node(STRING)),
    rollbackLogFiles=optional(map_node(LONG)),
    logFilesFromFailedCommit=optional(map_node(LONG)),
)
ROLLBACK_METADATA = record(
    "HoodieRollbackMetadata",
    RollbackMetadata,
    startRollbackTime=required(STRING),
    timeTakenInMillis=required(LONG),
    totalFilesDeleted=required(INT),
    commitsRollback=required(array_node(STRING)),
    partitionMetadata=required(map_node(_PARTITION)),
    version=version_field(1),
    instantsRollback=required(array_node(INSTANT_INFO, default=[]), []),
)
RollbackPlan.SCHEMA = schema_from_record(ROLLBACK_PLAN)
RollbackMetadata.SCHEMA = schema_from_record(ROLLBACK_METADATA)
