"""Which partitions of the metadata table a writer wants, parsed once from options."""

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
    "hoodie.metadata.enable", bool, "true", "reads use the metadata table, and writes keep one; a write without it removes it"
)
RECORD_INDEX_SWITCH = Option(
    "hoodie.metadata.record.index.enable",
    bool,
    None,
    "whether there is a record index; unset: as it is, or as the index type asks",
    aliases=("hoodie.metadata.global.record.level.index.enable",),
)
PARTITIONED_SWITCH = Option(
    "hoodie.metadata.record.level.index.enable",
    bool,
    None,
    "whether there is a partitioned record index, in which keys are unique within a partition; unset: as it is, or as the index "
    "type asks",
)

_SWITCHES = {
    COLUMN_STATS: Option(
        "hoodie.metadata.index.column.stats.enable", bool, None, "whether there are column statistics; unset: there are"
    ),
    PARTITION_STATS: Option(
        "hoodie.metadata.index.partition.stats.enable",
        bool,
        None,
        "whether there are partition statistics; unset: where there are column statistics",
    ),
    BLOOM_FILTERS: Option(
        "hoodie.metadata.index.bloom.filter.enable", bool, None, "whether there is an index of Bloom filters; unset: as it is"
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
    """What a writer wants.

    enabled: True builds what is wanted, False drops the metadata table.  wanted, unwanted: partitions to
    build where they are missing, and to drop where they are; one that is in neither stays as it is.  by_partition: whether the
    record index is to be partitioned, None: as it is; refused: the kinds of it that `disabled_partitions` means.  columns: of the
    column statistics, () for the first `max_columns`.  group_counts: kind of index -> file groups of a new one.
    """

    enabled: Annotated[bool, METADATA_TABLE]
    enabled_partitions: Annotated[frozenset[str], *_SWITCHES.values(), PARTITIONED_SWITCH, INDEX_TYPE]
    disabled_partitions: Annotated[frozenset[str], *_SWITCHES.values(), PARTITIONED_SWITCH]
    by_partition: Annotated[bool | None, RECORD_INDEX_SWITCH, PARTITIONED_SWITCH, INDEX_TYPE]
    refused: Annotated[tuple[bool, ...], RECORD_INDEX_SWITCH, PARTITIONED_SWITCH]
    columns: Annotated[
        tuple[str, ...],
        Option(
            "hoodie.metadata.index.column.stats.column.list", str, None, "columns with statistics; unset: the table's first ones"
        ),
    ]
    max_columns: Annotated[
        int,
        Option(
            "hoodie.metadata.index.column.stats.max.columns.to.index",
            int,
            "32",
            "how many of the table's first columns have statistics, where none are named",
        ),
    ]
    group_counts: Annotated[tuple[tuple[str, int], ...], *_GROUP_COUNTS.values()]
    min_index_groups: Annotated[
        int,
        Option("hoodie.metadata.record.index.min.filegroup.count", int, "10", "file groups of a new record index, at least"),
    ]
    max_index_groups: Annotated[
        int,
        Option("hoodie.metadata.record.index.max.filegroup.count", int, "10000", "file groups of a new record index, at most"),
    ]
    index_growth: Annotated[
        float,
        Option("hoodie.metadata.record.index.growth.factor", float, "2.0", "growth that a new record index is sized for"),
    ]
    max_index_group_bytes: Annotated[
        int,
        Option("hoodie.metadata.record.index.max.filegroup.size", int, "1073741824", "bytes of a file group of a record index"),
    ]
    compact_after: Annotated[
        int,
        Option(
            "hoodie.metadata.compact.max.delta.commits", int, "10", "delta commits after which the metadata table is compacted"
        ),
    ]

    @classmethod
    def of(cls, options: Options) -> MetadataSettings:
        """From checked options.

        Column and partition statistics are wanted unless the options say no, as in real Hudi on Spark.  Other indexes are dropped
        when the options say no, and only then: a writer that says nothing of them keeps them.  A writer whose index the record
        index is wants it.
        """
        wanted, unwanted = {FILES}, set()
        by_partition, refused = _record_index(options)
        for partition, switch in _SWITCHES.items():
            given = options.explicit(switch)
            if given is None and partition == PARTITION_STATS:
                given = options.explicit(_SWITCHES[COLUMN_STATS])
            if partition == RECORD_INDEX:
                given = "true" if by_partition is not None else "false" if refused else None
            if given == "true" or (given is None and partition in (COLUMN_STATS, PARTITION_STATS)):
                wanted.add(partition)
            elif given == "false":
                unwanted.add(partition)
        if PARTITION_STATS in wanted and COLUMN_STATS not in wanted:
            raise InvalidRequest(f"{_SWITCHES[PARTITION_STATS]}=true needs {_SWITCHES[COLUMN_STATS]}=true")
        counts = ((partition, options.integer(option)) for partition, option in _GROUP_COUNTS.items())
        return read_settings(
            cls,
            options,
            enabled_partitions=frozenset(wanted),
            disabled_partitions=frozenset(unwanted),
            by_partition=by_partition,
            refused=refused,
            group_counts=((FILES, 1), *counts),
        )

    def group_count(self, kind: str) -> int:
        """How many file groups a new index of a kind gets whose number does not follow from the table's records."""
        return max(1, dict(self.group_counts)[kind])

    def key_group_count(self, record_count: int) -> int:
        """How many file groups a new index of the table's records gets."""
        return estimate_file_group_count(
            record_count,
            min_count=self.min_index_groups,
            max_count=self.max_index_groups,
            growth_factor=self.index_growth,
            max_file_group_bytes=self.max_index_group_bytes,
        )


def _record_index(options: Options) -> tuple[bool | None, tuple[bool, ...]]:
    """Of which kind a record index is to be (True: partitioned; None: as it is), and the kinds that are not to be there.

    Raises InvalidRequest where both kinds are asked for, of which a table has one.
    """
    by_index = {"RECORD_INDEX": False, "GLOBAL_RECORD_LEVEL_INDEX": False, "RECORD_LEVEL_INDEX": True}.get(
        options.value_or_default(INDEX_TYPE)
    )
    given = {False: options.explicit(RECORD_INDEX_SWITCH), True: options.explicit(PARTITIONED_SWITCH)}
    asked = [kind for kind, text in given.items() if text == "true" or (text is None and kind is by_index)]
    if len(asked) > 1:
        raise InvalidRequest(
            f"a record index of the whole table and a partitioned one are asked for ({RECORD_INDEX_SWITCH}, "
            f"{PARTITIONED_SWITCH}, {INDEX_TYPE}={options.value_or_default(INDEX_TYPE)}); a table has one of them"
        )
    return (asked[0] if asked else None), tuple(kind for kind, text in given.items() if text == "false")
