"""Savepoint metadata: the base and log files of the latest file slices at its instant, which cleaning retains.

Specification: docs/formats/timeline.md, "Paths in documents".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyhudi.format.actions.avro_document import Document
from pyhudi.format.avro.nodes import LONG, STRING, array_node, map_node, record, required, version_field
from pyhudi.format.avro.schema import schema_from_record


@dataclass(frozen=True, slots=True)
class SavepointPartitionMetadata:
    """Files of one partition; savepoint_data_file has names of base and log files, without folders."""

    partition_path: str
    savepoint_data_file: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SavepointMetadata(Document):
    """Savepoint metadata.

    Attributes:
        savepointed_by: User name, may be "".
        savepointed_at: Milliseconds since 1970 UTC.
        comments: Free text.
    """

    savepointed_by: str
    savepointed_at: int
    comments: str
    partition_metadata: Mapping[str, SavepointPartitionMetadata]
    version: int | None = 1


_PARTITION = record(
    "HoodieSavepointPartitionMetadata",
    SavepointPartitionMetadata,
    partitionPath=required(STRING),
    savepointDataFile=required(array_node(STRING)),
)
SAVEPOINT_METADATA = record(
    "HoodieSavepointMetadata",
    SavepointMetadata,
    savepointedBy=required(STRING),
    savepointedAt=required(LONG),
    comments=required(STRING),
    partitionMetadata=required(map_node(_PARTITION)),
    version=version_field(1),
)
SavepointMetadata.SCHEMA = schema_from_record(SAVEPOINT_METADATA)
