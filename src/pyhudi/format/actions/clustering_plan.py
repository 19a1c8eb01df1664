"""Clustering plan: which file slices are rewritten into which new file groups.

It is part of the requested metadata of a clustering (`requested_replace.py`). Paths are full URIs (`file:/...`), log
files newest first, `bootstrap_file_path` is "", lists and maps are empty rather than None. Not done here: execution of
the plan.

Specification: docs/formats/timeline.md, "Paths in documents".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyhudi.format.actions.avro_document import check_distinct_groups
from pyhudi.format.avro.nodes import BOOLEAN, DOUBLE, STRING, array_node, map_node, nullable, optional, record, version_field
from pyhudi.options import service_options

SORT_AND_SIZE_STRATEGY = "org.apache.hudi.client.clustering.run.strategy.SparkSortAndSizeExecutionStrategy"
COPY_STRATEGY = "org.apache.hudi.client.clustering.run.strategy.SparkBinaryCopyClusteringExecutionStrategy"
COPY_STRATEGIES = ("SparkBinaryCopyClusteringExecutionStrategy", "SparkStreamCopyClusteringExecutionStrategy")
"""Last parts of the class names of strategies that copy row groups."""
RESIZE_STRATEGY = "org.apache.hudi.client.clustering.run.strategy.SparkConsistentBucketClusteringExecutionStrategy"
SORT_COLUMNS_KEY = service_options.CLUSTERING_SORT_COLUMNS.key

COMMIT_CHECKPOINT_KEY = "clustering.commit.checkpoint"
"""Extra metadata of a plan that was made from commits: the last commit whose files it contains."""
GROUP_PARTITION_KEY = "clustering.group.partition"
GROUP_NODES_KEY = "clustering.group.child.node"
GROUP_SEQUENCE_KEY = "clustering.group.sequence.no"
"""Extra metadata of a group that resizes consistent hashing buckets: the partition, the changed nodes, the sequence
number of the hashing metadata.
"""


@dataclass(frozen=True, slots=True)
class SliceInfo:
    """One file slice to read; data_file_path is "" if it has no base file."""

    data_file_path: str | None = None
    delta_file_paths: tuple[str, ...] | None = ()
    file_id: str | None = None
    partition_path: str | None = None
    bootstrap_file_path: str | None = ""
    version: int | None = 1


@dataclass(frozen=True, slots=True)
class ClusteringGroup:
    """Slices that are rewritten together, into num_output_file_groups new file groups.

    Attributes:
        metrics: TOTAL_LOG_FILES, TOTAL_LOG_FILES_SIZE (bytes), TOTAL_IO_READ_MB, TOTAL_IO_WRITE_MB, TOTAL_IO_MB.
    """

    slices: tuple[SliceInfo, ...] | None = ()
    metrics: Mapping[str, float] | None = None
    num_output_file_groups: int | None = 1
    extra_metadata: Mapping[str, str] | None = None
    version: int | None = 1


@dataclass(frozen=True, slots=True)
class ClusteringStrategy:
    """Sort order of the rows; strategy_params has the sort columns under SORT_COLUMNS_KEY."""

    strategy_class_name: str | None = SORT_AND_SIZE_STRATEGY
    strategy_params: Mapping[str, str] | None = field(default_factory=dict)
    version: int | None = 1


@dataclass(frozen=True, slots=True)
class ClusteringPlan:
    """Clustering plan.

    Attributes:
        preserve_hoodie_metadata: Rows keep their commit times, as in every clustering.

    Raises:
        CorruptData: Two slices have the same file group.
    """

    input_groups: tuple[ClusteringGroup, ...] | None = ()
    strategy: ClusteringStrategy | None = None
    extra_metadata: Mapping[str, str] | None = field(default_factory=dict)
    version: int | None = 1
    preserve_hoodie_metadata: bool | None = True
    missing_schedule_partitions: tuple[str, ...] | None = ()

    def __post_init__(self) -> None:
        slices = (slice_ for group in self.input_groups or () for slice_ in group.slices or ())
        check_distinct_groups("a clustering plan", ((slice_.partition_path, slice_.file_id) for slice_ in slices))


_SLICE = record(
    "HoodieSliceInfo",
    SliceInfo,
    dataFilePath=optional(STRING),
    deltaFilePaths=optional(array_node(STRING)),
    fileId=nullable(STRING),
    partitionPath=optional(STRING),
    bootstrapFilePath=optional(STRING),
    version=version_field(1),
)
_GROUP = record(
    "HoodieClusteringGroup",
    ClusteringGroup,
    slices=optional(array_node(_SLICE)),
    metrics=optional(map_node(DOUBLE)),
    numOutputFileGroups=version_field(1),
    extraMetadata=optional(map_node(STRING)),
    version=version_field(1),
)
_STRATEGY = record(
    "HoodieClusteringStrategy",
    ClusteringStrategy,
    strategyClassName=optional(STRING),
    strategyParams=optional(map_node(STRING)),
    version=version_field(1),
)
CLUSTERING_PLAN = record(
    "HoodieClusteringPlan",
    ClusteringPlan,
    inputGroups=optional(array_node(_GROUP)),
    strategy=optional(_STRATEGY),
    extraMetadata=optional(map_node(STRING)),
    version=version_field(1),
    preserveHoodieMetadata=optional(BOOLEAN),
    missingSchedulePartitions=optional(array_node(STRING)),
)
