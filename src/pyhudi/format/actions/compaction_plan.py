"""Compaction plan of a compaction or log compaction: which log files are merged into which file groups.

Version 2: paths are file names, without folders; version 1, of old writers: full paths. Log files are ordered oldest
first. A compaction has no strategy; a log compaction names one and preserves the meta columns.

Specification: docs/formats/timeline.md, "Paths in documents".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyhudi.format.actions.avro_document import Document, check_distinct_groups
from pyhudi.format.avro.nodes import (
    BOOLEAN,
    DOUBLE,
    NULL,
    STRING,
    AvroField,
    Union,
    array_node,
    map_node,
    nullable,
    optional,
    record,
    version_field,
)
from pyhudi.format.avro.schema import schema_from_record

LOG_COMPACTION_STRATEGY = "org.apache.hudi.table.action.compact.LogCompactionExecutionHelper"


@dataclass(frozen=True, slots=True)
class CompactionOperation:
    """One file slice.

    Attributes:
        base_instant_time: Base instant of the slice.
        data_file_path: None if it has no base file.
        metrics: TOTAL_LOG_FILES, TOTAL_LOG_FILES_SIZE (bytes), TOTAL_IO_READ_MB, TOTAL_IO_WRITE_MB, TOTAL_IO_MB.
    """

    base_instant_time: str | None = None
    delta_file_paths: tuple[str, ...] | None = ()
    data_file_path: str | None = None
    file_id: str | None = None
    partition_path: str | None = None
    metrics: Mapping[str, float] | None = None
    bootstrap_file_path: str | None = None


@dataclass(frozen=True, slots=True)
class CompactionStrategy:
    """Strategy of a log compaction: LOG_COMPACTION_STRATEGY and no parameters."""

    compactor_class_name: str | None = LOG_COMPACTION_STRATEGY
    strategy_params: Mapping[str, str] | None = field(default_factory=dict)
    version: int | None = 1


@dataclass(frozen=True, slots=True)
class CompactionPlan(Document):
    """Compaction plan.

    Attributes:
        version: 2, never null.
        preserve_hoodie_metadata: True for a log compaction.

    Raises:
        CorruptData: Two operations have the same file group.
    """

    operations: tuple[CompactionOperation, ...] | None = ()
    extra_metadata: Mapping[str, str] | None = field(default_factory=dict)
    version: int | None = 2
    strategy: CompactionStrategy | None = None
    preserve_hoodie_metadata: bool | None = False
    missing_schedule_partitions: tuple[str, ...] | None = ()

    def __post_init__(self) -> None:
        check_distinct_groups(
            "a compaction plan", ((operation.partition_path, operation.file_id) for operation in self.operations or ())
        )


_OPERATION = record(
    "HoodieCompactionOperation",
    CompactionOperation,
    baseInstantTime=nullable(STRING),
    deltaFilePaths=optional(array_node(STRING)),
    dataFilePath=optional(STRING),
    fileId=nullable(STRING),
    partitionPath=optional(STRING),
    metrics=optional(map_node(DOUBLE)),
    bootstrapFilePath=optional(STRING),
)
_STRATEGY = record(
    "HoodieCompactionStrategy",
    CompactionStrategy,
    compactorClassName=optional(STRING),
    strategyParams=optional(map_node(STRING)),
    version=version_field(1),
)
COMPACTION_PLAN = record(
    "HoodieCompactionPlan",
    CompactionPlan,
    operations=optional(array_node(_OPERATION)),
    extraMetadata=optional(map_node(STRING)),
    version=version_field(1),
    strategy=optional(_STRATEGY),
    preserveHoodieMetadata=AvroField("", Union((BOOLEAN, NULL)), False),
    missingSchedulePartitions=optional(array_node(STRING)),
)
CompactionPlan.SCHEMA = schema_from_record(COMPACTION_PLAN)
