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
from pyhudi.options import index_options
from pyhudi.options.declaration import Options, read_settings
from pyhudi.options.index_options import METADATA_TABLE, PARTITIONED_SWITCH, RECORD_INDEX_SWITCH
from pyhudi.options.write_options import INDEX_TYPE

_SWITCHES = {
    COLUMN_STATS: index_options.METADATA_INDEX_COLUMN_STATS_ENABLE,
    PARTITION_STATS: index_options.METADATA_INDEX_PARTITION_STATS_ENABLE,
    BLOOM_FILTERS: index_options.METADATA_INDEX_BLOOM_FILTER_ENABLE,
    RECORD_INDEX: RECORD_INDEX_SWITCH,
}
_GROUP_COUNTS = {
    COLUMN_STATS: index_options.METADATA_INDEX_COLUMN_STATS_FILE_GROUP_COUNT,
    PARTITION_STATS: index_options.METADATA_INDEX_PARTITION_STATS_FILE_GROUP_COUNT,
    BLOOM_FILTERS: index_options.METADATA_INDEX_BLOOM_FILTER_FILE_GROUP_COUNT,
    EXPRESSION_INDEX_PREFIX: index_options.METADATA_INDEX_EXPRESSION_FILE_GROUP_COUNT,
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
        compact_trigger: What makes a compaction of the metadata table due.
        compact_after_seconds: Seconds between compactions, for triggers by time.
    """

    enabled: Annotated[bool, METADATA_TABLE]
    enabled_partitions: Annotated[frozenset[str], *_SWITCHES.values(), PARTITIONED_SWITCH, INDEX_TYPE]
    disabled_partitions: Annotated[frozenset[str], *_SWITCHES.values(), PARTITIONED_SWITCH]
    by_partition: Annotated[bool | None, RECORD_INDEX_SWITCH, PARTITIONED_SWITCH, INDEX_TYPE]
    refused: Annotated[tuple[bool, ...], RECORD_INDEX_SWITCH, PARTITIONED_SWITCH]
    columns: Annotated[tuple[str, ...], index_options.METADATA_INDEX_COLUMN_STATS_COLUMN_LIST]
    max_columns: Annotated[int, index_options.METADATA_INDEX_COLUMN_STATS_MAX_COLUMNS_TO_INDEX]
    group_counts: Annotated[tuple[tuple[str, int], ...], *_GROUP_COUNTS.values()]
    min_index_groups: Annotated[int, index_options.METADATA_RECORD_INDEX_MIN_FILEGROUP_COUNT]
    max_index_groups: Annotated[int, index_options.METADATA_RECORD_INDEX_MAX_FILEGROUP_COUNT]
    index_growth: Annotated[float, index_options.METADATA_RECORD_INDEX_GROWTH_FACTOR]
    max_index_group_bytes: Annotated[int, index_options.METADATA_RECORD_INDEX_MAX_FILEGROUP_SIZE]
    compact_after: Annotated[int, index_options.METADATA_COMPACT_MAX_DELTA_COMMITS]
    compact_trigger: Annotated[str, index_options.METADATA_COMPACT_TRIGGER] = "NUM_COMMITS"
    compact_after_seconds: Annotated[int, index_options.METADATA_COMPACT_MAX_DELTA_SECONDS] = 7200

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
    """The record index to build (True: partitioned; None: unchanged) and the disabled types; rejects both types at once."""
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
