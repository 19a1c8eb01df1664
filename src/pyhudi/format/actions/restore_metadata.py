"""Restore: the instants to roll back (requested file) and those rolled back (completed file).

Instants are ordered newest first, pending clusterings before the others. The rollbacks inside a restore have no files
on the timeline.

Specification: docs/formats/timeline.md, "Paths in documents".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyhudi.format.actions.avro_document import Document
from pyhudi.format.actions.rollback_metadata import INSTANT_INFO, ROLLBACK_METADATA, InstantInfo, RollbackMetadata
from pyhudi.format.avro.nodes import LONG, NULL, STRING, Union, array_node, map_node, optional, record, required, version_field
from pyhudi.format.avro.schema import schema_from_record
from pyhudi.format.instants import parse_action


@dataclass(frozen=True, slots=True)
class RestorePlan(Document):
    """Restore plan.

    Attributes:
        savepoint_to_restore_timestamp: Request time of the savepoint to restore.
    """

    instants_to_rollback: tuple[InstantInfo, ...] = ()
    version: int | None = 2
    savepoint_to_restore_timestamp: str | None = None

    def __post_init__(self) -> None:
        """Raise CorruptData for an unknown action, because a plan is executed."""
        for info in self.instants_to_rollback:
            parse_action(info.action)


@dataclass(frozen=True, slots=True)
class RestoreMetadata(Document):
    """Result of a restore; hoodie_restore_metadata maps the request time of each instant to the result of its rollback."""

    start_restore_time: str
    time_taken_in_millis: int
    instants_to_rollback: tuple[str, ...]
    hoodie_restore_metadata: Mapping[str, tuple[RollbackMetadata | None, ...]]
    version: int | None = 1
    restore_instant_info: tuple[InstantInfo, ...] = ()


RESTORE_PLAN = record(
    "HoodieRestorePlan",
    RestorePlan,
    instantsToRollback=required(array_node(INSTANT_INFO, default=None), []),
    version=version_field(2),
    savepointToRestoreTimestamp=optional(STRING),
)
RESTORE_METADATA = record(
    "HoodieRestoreMetadata",
    RestoreMetadata,
    startRestoreTime=required(STRING),
    timeTakenInMillis=required(LONG),
    instantsToRollback=required(array_node(STRING)),
    hoodieRestoreMetadata=required(map_node(array_node(Union((NULL, ROLLBACK_METADATA)), default=None))),
    version=version_field(1),
    restoreInstantInfo=required(array_node(INSTANT_INFO, default=None), []),
)
RestorePlan.SCHEMA = schema_from_record(RESTORE_PLAN)
RestoreMetadata.SCHEMA = schema_from_record(RESTORE_METADATA)
