"""Documents of archived instants.

    layout 2   a row of the LSM timeline holds the bytes of the completed file, and of the plan (see `lsm_timeline.py`). They
               are containers; rows that an upgrade from layout 1 wrote hold the value without a container
    layout 1   the archive is log files whose Avro records are `ArchivedEntry`: one for each state of an instant, with the
               document in the field of its type

Not done here: reading the Parquet files of the LSM timeline, or the blocks of the archive's log files.
Specification: docs/formats/timeline.md, "Version 6"; docs/formats/timeline.md, "History".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from pyhudi.errors import CorruptData
from pyhudi.format.actions.avro_document import Document
from pyhudi.format.actions.clean_metadata import CLEAN_METADATA, CLEANER_PLAN, CleanerPlan, CleanMetadata
from pyhudi.format.actions.commit_metadata import COMMIT_METADATA, REPLACE_COMMIT_METADATA, WRITE_STAT, CommitMetadata, WriteStat
from pyhudi.format.actions.compaction_plan import COMPACTION_PLAN, CompactionPlan
from pyhudi.format.actions.index_plan import INDEX_COMMIT_METADATA, IndexCommitMetadata
from pyhudi.format.actions.requested_replace import REQUESTED_REPLACE_METADATA, RequestedReplaceMetadata
from pyhudi.format.actions.restore_metadata import RestoreMetadata
from pyhudi.format.actions.rollback_metadata import ROLLBACK_METADATA, RollbackMetadata
from pyhudi.format.actions.savepoint_metadata import SAVEPOINT_METADATA, SavepointMetadata
from pyhudi.format.avro.container import MAGIC, decode_container
from pyhudi.format.avro.nodes import LONG, STRING, array_node, map_node, nullable, optional, record, version_field
from pyhudi.format.avro.schema import schema_from_record
from pyhudi.format.instants import Action, completed_action

ServiceDocument: TypeAlias = CleanMetadata | RollbackMetadata | RestoreMetadata | SavepointMetadata | IndexCommitMetadata
CompletedDocument: TypeAlias = CommitMetadata | ServiceDocument
PlanDocument: TypeAlias = CompactionPlan | CleanerPlan | RequestedReplaceMetadata | CommitMetadata

COMMIT_LIKE = frozenset(action for action in Action if action.is_write)
"""Completed actions whose file contains commit metadata."""
SERVICE_DOCUMENTS: Mapping[Action, type[ServiceDocument]] = {
    Action.CLEAN: CleanMetadata,
    Action.ROLLBACK: RollbackMetadata,
    Action.RESTORE: RestoreMetadata,
    Action.SAVEPOINT: SavepointMetadata,
    Action.INDEXING: IndexCommitMetadata,
}
"""Document class of the completed file of the other actions; that of a schemacommit is not Avro."""


@dataclass(frozen=True, slots=True)
class CompactionWriteStat:
    """One file that a compaction of a very old release wrote."""

    partition_path: str | None = None
    total_log_records: int | None = None
    total_log_files: int | None = None
    total_updated_records_compacted: int | None = None
    hoodie_write_stat: WriteStat | None = None


@dataclass(frozen=True, slots=True)
class CompactionMetadata:
    """Result of a compaction of a very old release."""

    partition_to_compaction_write_stats: Mapping[str, tuple[CompactionWriteStat, ...]] | None = None


@dataclass(frozen=True, slots=True)
class ArchivedEntry(Document):
    """One state of one instant in the archive of layout 1.

    Attributes:
        commit_time: Request time.
        action_type: Name of the action.
        action_state: Name of the state.
        state_transition_time: Time of the transition into that state; None from old writers.

    At most a few of the documents are set: that of the action, and the plan.
    """

    hoodie_commit_metadata: CommitMetadata | None = None
    hoodie_clean_metadata: CleanMetadata | None = None
    hoodie_compaction_metadata: CompactionMetadata | None = None
    hoodie_rollback_metadata: RollbackMetadata | None = None
    hoodie_save_point_metadata: SavepointMetadata | None = None
    commit_time: str | None = None
    action_type: str | None = None
    version: int | None = 1
    hoodie_compaction_plan: CompactionPlan | None = None
    hoodie_cleaner_plan: CleanerPlan | None = None
    action_state: str | None = None
    hoodie_replace_commit_metadata: CommitMetadata | None = None
    hoodie_requested_replace_metadata: RequestedReplaceMetadata | None = None
    hoodie_inflight_replace_metadata: CommitMetadata | None = None
    hoodie_index_commit_metadata: IndexCommitMetadata | None = None
    state_transition_time: str | None = None


def decode_completed(action: Action, data: bytes) -> CompletedDocument:
    """Decode the document of a completed instant: its timeline file, or the `metadata` of its row in the LSM timeline.

    Accepts containers, values without one, and the JSON of layout 1.

    Raises:
        CorruptData: Invalid bytes, or an action without a document.
    """
    completed = completed_action(action)
    if completed in COMMIT_LIKE:
        if data[:1] == b"{" or data[:4] == MAGIC or not data:
            return CommitMetadata.decode(data)
        return CommitMetadata.decode_bare(data, is_replace=completed is Action.REPLACECOMMIT)
    kind = SERVICE_DOCUMENTS.get(completed)
    if kind is None:
        raise CorruptData(f"a {action.value} has no Avro document")
    return kind.decode(data) if data[:4] == MAGIC else kind.decode_bare(data)


def decode_plan(action: Action, data: bytes) -> PlanDocument:
    """Decode the plan of a row of the LSM timeline, by its completed action.

    A commit has the plan of a compaction, a deltacommit that of a log compaction. A replacecommit has its requested
    document, or commit metadata if the writer stored its inflight file instead.

    Raises:
        CorruptData: Invalid bytes, or an action without plans.
    """
    completed = completed_action(action)
    kind: type[CompactionPlan | CleanerPlan | RequestedReplaceMetadata]
    if completed in (Action.COMMIT, Action.DELTACOMMIT):
        kind = CompactionPlan
    elif completed is Action.CLEAN:
        kind = CleanerPlan
    elif completed is Action.REPLACECOMMIT:
        if data[:1] == b"{" or _root_name(data) in ("HoodieCommitMetadata", "HoodieReplaceCommitMetadata"):
            return CommitMetadata.decode(data)
        kind = RequestedReplaceMetadata
    else:
        raise CorruptData(f"a {action.value} has no plan")
    return kind.decode(data) if data[:4] == MAGIC else kind.decode_bare(data)


def _root_name(data: bytes) -> str:
    if data[:4] != MAGIC:
        return ""
    return str(getattr(decode_container(data)[0].root, "name", ""))


_COMPACTION_WRITE_STAT = record(
    "HoodieCompactionWriteStat",
    CompactionWriteStat,
    partitionPath=optional(STRING),
    totalLogRecords=optional(LONG),
    totalLogFiles=optional(LONG),
    totalUpdatedRecordsCompacted=optional(LONG),
    hoodieWriteStat=optional(WRITE_STAT),
)
_COMPACTION_METADATA = record(
    "HoodieCompactionMetadata",
    CompactionMetadata,
    partitionToCompactionWriteStats=nullable(map_node(array_node(_COMPACTION_WRITE_STAT))),
)
ARCHIVED_ENTRY = record(
    "HoodieArchivedMetaEntry",
    ArchivedEntry,
    hoodieCommitMetadata=optional(COMMIT_METADATA),
    hoodieCleanMetadata=optional(CLEAN_METADATA),
    hoodieCompactionMetadata=optional(_COMPACTION_METADATA),
    hoodieRollbackMetadata=optional(ROLLBACK_METADATA),
    hoodieSavePointMetadata=optional(SAVEPOINT_METADATA),
    commitTime=optional(STRING),
    actionType=optional(STRING),
    version=version_field(1),
    hoodieCompactionPlan=optional(COMPACTION_PLAN),
    hoodieCleanerPlan=optional(CLEANER_PLAN),
    actionState=optional(STRING),
    hoodieReplaceCommitMetadata=optional(REPLACE_COMMIT_METADATA),
    hoodieRequestedReplaceMetadata=optional(REQUESTED_REPLACE_METADATA),
    HoodieInflightReplaceMetadata=optional(COMMIT_METADATA),
    hoodieIndexCommitMetadata=optional(INDEX_COMMIT_METADATA),
    stateTransitionTime=optional(STRING),
)
ArchivedEntry.SCHEMA = schema_from_record(ARCHIVED_ENTRY)
