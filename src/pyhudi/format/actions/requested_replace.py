"""Requested metadata of a clustering or a replacecommit.

That of a clustering contains its plan. That of an overwrite or a partition delete has every field null, but is not
empty. The commit metadata lists the replaced file groups (`commit_metadata.py`).

Specification: docs/formats/timeline.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from pyhudi.format.actions.avro_document import Document
from pyhudi.format.actions.clustering_plan import CLUSTERING_PLAN, ClusteringPlan
from pyhudi.format.avro.container import decode_container
from pyhudi.format.avro.nodes import STRING, map_node, optional, record, version_field
from pyhudi.format.avro.schema import schema_from_record


@dataclass(frozen=True, slots=True)
class RequestedReplaceMetadata(Document):
    """Requested metadata.

    Attributes:
        operation_type: "CLUSTER" with a plan; without a plan every field is None, as in Hudi's own files.
    """

    operation_type: str | None = None
    clustering_plan: ClusteringPlan | None = None
    extra_metadata: Mapping[str, str] | None = None
    version: int | None = None

    @classmethod
    def decode(cls, data: bytes | memoryview) -> Self:
        """Decode as `Document.decode`; a container without a record is a document without a plan.

        Hudi 1.2.0 leaves such a `.clustering.requested` when its commit-based planner fails.
        """
        _, records = decode_container(data)
        return cls() if not records else super(RequestedReplaceMetadata, cls).decode(data)

    @classmethod
    def of_clustering(cls, plan: ClusteringPlan) -> RequestedReplaceMetadata:
        """Return the requested metadata of a clustering."""
        return cls("CLUSTER", plan, {}, 1)


REQUESTED_REPLACE_METADATA = record(
    "HoodieRequestedReplaceMetadata",
    RequestedReplaceMetadata,
    operationType=optional(STRING),
    clusteringPlan=optional(CLUSTERING_PLAN),
    extraMetadata=optional(map_node(STRING)),
    version=version_field(1),
)
RequestedReplaceMetadata.SCHEMA = schema_from_record(REQUESTED_REPLACE_METADATA)
