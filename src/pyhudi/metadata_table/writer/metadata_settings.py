"""Metadata table partitions that a writer enables, parsed once from options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pyhudi.errors import InvalidRequest
from pyhudi.metadata_table.codecs.metadata_partitions import (
    BLOOM_FILTERS,
    COLUMN_STATS,
    EXPRESSION_INDEX_PREFIX,
    FILES,
    PARTITION_STATS,
    RECORD_INDEX,
    estimate_file_group_count,
)
from pyhudi.operations.commit.commit_settings import INDEX_TYPE
from pyhudi.options.declaration import Option, Options, read_settings

METADATA_TABLE = Option(
    "hoodie.metadata.enable", bool, "true", "reads use the metadata table, and writes maintain it; a write with false drops it"
)
RECORD_INDEX_SWITCH = Option(
    "hoodie.metadata.record.index.enable",
    bool,
    None,
    "build or drop a record index; unset: unchanged, or as the index type requires",
    aliases=("hoodie.metadata.global.record.level.index.enable",),
)
PARTITIONED_SWITCH = Option(
    "hoodie.metadata.record.level.index.enable",
    bool,
    None,
    "build or drop a partitioned record index, in which keys are unique within a partition; unset: unchanged, or as the "
    "index type requires",
)

_SWITCHES = {
    COLUMN_STATS: Option(
        "hoodie.metadata.index.column.stats.enable", bool, None, "build or drop column statistics; unset: build"
    ),
    PARTITION_STATS: Option(
        "hoodie.metadata.index.partition.stats.enable",
        bool,
        None,
        "build or drop partition statistics; unset: as column statistics",
    ),
    BLOOM_FILTERS: Option(
        "hoodie.metadata.index.bloom.filter.enable", bool, None, "build or drop an index of Bloom filters; unset: unchanged"
    ),
    RECORD_INDEX: RECORD_INDEX_SWITCH,
}
_GROUP_COUNTS = {
    COLUMN_STATS: Option("hoodie.metadata.index.column.stats.file.group.count", int, "2", "file groups of new column statistics"),
    PARTITION_STATS: Option(
        "hoodie.metadata.index.partition.stats.file.group.count", int, "1", "file groups of new partition statistics"
    ),
    BLOOM_FILTERS: Option(
        "hoodie.metadata.index.bloom.filter.file.group.count", int, "4", "file groups of a new index of Bloom filters"
    ),
    EXPRESSION_INDEX_PREFIX: Option(
        "hoodie.metadata.index.expression.file.group.count", int, "2", "file groups of a new expression index"
    ),
}


@dataclass(frozen=True, slots=True)
class MetadataSettings:
    """Metadata table settings of a writer.

    Attributes:
        enabled: True builds enabled partitions, False drops the metadata table.
        enabled_partitions: Partitions to build if missing. Partitions in neither list stay unchanged.
        disabled_partitions: Partitions to drop if they exist.
        by_partition: Build a partitioned record index; None leaves it unchanged.
        refused: The types of record index that `disabled_partitions` refers to (True: partitioned).
        columns: Columns of the column statistics, () for the first `max_columns`.
        max_columns: Limit of the number of columns without a list.
        group_counts: File groups of a new index, by index type.
        min_index_groups: Minimum number of file groups of a new record index.
        max_index_groups: Maximum number of file groups of a new record index.
        index_growth: Expected growth factor of the table for the size of a new record index.
        max_index_group_bytes: Maximum size of a file group of a record index.
        compact_after: Delta commits between compactions of the metadata table.
    """

    enabled: Annotated[bool, METADATA_TABLE]
    enabled_partitions: Annotated[frozenset[str], *_SWITCHES.values(), PARTITIONED_SWITCH, INDEX_TYPE]
    disabled_partitions: Annotated[frozenset[str], *_SWITCHES.values(), PARTITIONED_SWITCH]
    by_partition: Annotated[bool | None, RECORD_INDEX_SWITCH, PARTITIONED_SWITCH, INDEX_TYPE]
    refused: Annotated[tuple[bool, ...], RECORD_INDEX_SWITCH, PARTITIONED_SWITCH]
    columns: Annotated[
        tuple[str, ...],
        Option(
            "hoodie.metadata.index.column.stats.column.list",
            str,
            None,
            "columns with statistics; unset: the first columns of the table",
        ),
    ]
    max_columns: Annotated[
        int,
        Option(
            "hoodie.metadata.index.column.stats.max.columns.to.index",
            int,
            "32",
            "number of first columns of the table with statistics, if none are listed",
        ),
    ]
    group_counts: Annotated[tuple[tuple[str, int], ...], *_GROUP_COUNTS.values()]
    min_index_groups: Annotated[
        int,
        Option(
            "hoodie.metadata.record.index.min.filegroup.count", int, "10", "minimum number of file groups of a new record index"
        ),
    ]
    max_index_groups: Annotated[
        int,
        Option(
            "hoodie.metadata.record.index.max.filegroup.count",
            int,
            "10000",
            "maximum number of file groups of a new record index",
        ),
    ]
    index_growth: Annotated[
        float,
        Option(
            "hoodie.metadata.record.index.growth.factor",
            float,
            "2.0",
            "expected growth factor for the size of a new record index",
        ),
    ]
    max_index_group_bytes: Annotated[
        int,
        Option(
            "hoodie.metadata.record.index.max.filegroup.size",
            int,
            "1073741824",
            "maximum bytes of a file group of a record index",
        ),
    ]
    compact_after: Annotated[
        int,
        Option(
            "hoodie.metadata.compact.max.delta.commits", int, "10", "delta commits after which the metadata table is compacted"
        ),
    ]

    @classmethod
    def of(cls, options: Options) -> MetadataSettings:
        """Parse settings from checked options.

        Column and partition statistics are enabled unless an option disables them, as in Hudi on Spark. Other indexes
        are dropped only if an option disables them; without an option they stay unchanged. The index type RECORD_INDEX
        enables the record index.
        """
        enabled, disabled = {FILES}, set()
        by_partition, refused = _record_index(options)
        for partition, switch in _SWITCHES.items():
            value = options.explicit(switch)
            if value is None and partition == PARTITION_STATS:
                value = options.explicit(_SWITCHES[COLUMN_STATS])
            if partition == RECORD_INDEX:
                value = "true" if by_partition is not None else "false" if refused else None
            if value == "true" or (value is None and partition in (COLUMN_STATS, PARTITION_STATS)):
                enabled.add(partition)
            elif value == "false":
                disabled.add(partition)
        if PARTITION_STATS in enabled and COLUMN_STATS not in enabled:
            raise InvalidRequest(f"{_SWITCHES[PARTITION_STATS]}=true requires {_SWITCHES[COLUMN_STATS]}=true")
        counts = ((partition, options.integer(option)) for partition, option in _GROUP_COUNTS.items())
        return read_settings(
            cls,
            options,
            enabled_partitions=frozenset(enabled),
            disabled_partitions=frozenset(disabled),
            by_partition=by_partition,
            refused=refused,
            group_counts=((FILES, 1), *counts),
        )

    def group_count(self, kind: str) -> int:
        """Return the number of file groups of a new index whose size does not depend on the number of records."""
        return max(1, dict(self.group_counts)[kind])

    def key_group_count(self, record_count: int) -> int:
        """Return the number of file groups of a new index of record keys."""
        return estimate_file_group_count(
            record_count,
            min_count=self.min_index_groups,
            max_count=self.max_index_groups,
            growth_factor=self.index_growth,
            max_file_group_bytes=self.max_index_group_bytes,
        )


def _record_index(options: Options) -> tuple[bool | None, tuple[bool, ...]]:
    """The type of record index to build (True: partitioned; None: unchanged), and the disabled types.

    Raises InvalidRequest if both types are enabled: a table has at most one.
    """
    by_index = {"RECORD_INDEX": False, "GLOBAL_RECORD_LEVEL_INDEX": False, "RECORD_LEVEL_INDEX": True}.get(
        options.value_or_default(INDEX_TYPE)
    )
    values = {False: options.explicit(RECORD_INDEX_SWITCH), True: options.explicit(PARTITIONED_SWITCH)}
    enabled = [kind for kind, text in values.items() if text == "true" or (text is None and kind is by_index)]
    if len(enabled) > 1:
        raise InvalidRequest(
            f"both a global and a partitioned record index are enabled ({RECORD_INDEX_SWITCH}, "
            f"{PARTITIONED_SWITCH}, {INDEX_TYPE}={options.value_or_default(INDEX_TYPE)}); a table has one of them"
        )
    return (enabled[0] if enabled else None), tuple(kind for kind, text in values.items() if text == "false")
