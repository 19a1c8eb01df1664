"""Indexing: the metadata-table partitions to build (requested file) and those built (completed file).

Specification: docs/formats/timeline.md, "Paths in documents".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyhudi.format.actions.avro_document import Document
from pyhudi.format.avro.nodes import STRING, array_node, map_node, optional, record, version_field
from pyhudi.format.avro.schema import schema_from_record


@dataclass(frozen=True, slots=True)
class IndexPartitionInfo:
    """One partition of the metadata table.

    Attributes:
        metadata_partition_path: Such as `record_index`.
        index_upto_instant: Request time of the last instant that the index covers.
    """

    version: int | None = 1
    metadata_partition_path: str | None = None
    index_upto_instant: str | None = None
    extra_metadata: Mapping[str, str] | None = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class IndexPlan(Document):
    """Partitions to build."""

    version: int | None = 1
    index_partition_infos: tuple[IndexPartitionInfo, ...] | None = ()


@dataclass(frozen=True, slots=True)
class IndexCommitMetadata(Document):
    """Partitions built; operation_type is None in Hudi's own files."""

    version: int | None = 1
    operation_type: str | None = None
    index_partition_infos: tuple[IndexPartitionInfo, ...] | None = ()


_PARTITION = record(
    "HoodieIndexPartitionInfo",
    IndexPartitionInfo,
    version=version_field(1),
    metadataPartitionPath=optional(STRING),
    indexUptoInstant=optional(STRING),
    extraMetadata=optional(map_node(STRING)),
)
INDEX_PLAN = record("HoodieIndexPlan", IndexPlan, version=version_field(1), indexPartitionInfos=optional(array_node(_PARTITION)))
INDEX_COMMIT_METADATA = record(
    "HoodieIndexCommitMetadata",
    IndexCommitMetadata,
    version=version_field(1),
    operationType=optional(STRING),
    indexPartitionInfos=optional(array_node(_PARTITION)),
)
IndexPlan.SCHEMA = schema_from_record(INDEX_PLAN)
IndexCommitMetadata.SCHEMA = schema_from_record(INDEX_COMMIT_METADATA)
