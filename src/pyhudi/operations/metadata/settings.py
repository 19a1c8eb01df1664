"""Which partitions of the metadata table a writer wants, parsed once from options."""

from __future__ import annotations

from dataclasses import dataclass

from pyhudi.errors import InvalidRequest
from pyhudi.format.metadata.partitions import (
    BLOOM_FILTERS,
    COLUMN_STATS,
    EXPRESSION_INDEX_PREFIX,
    FILES,
    PARTITION_STATS,
    RECORD_INDEX,
    PartitionKind,
    estimate_file_group_count,
    parse_partition,
)
from pyhudi.options import Options

BUILD_ORDER = (FILES, COLUMN_STATS, BLOOM_FILTERS, RECORD_INDEX, PARTITION_STATS)
"""The partitions that writers' options ask for, in the order in which they are built; defined indexes come after them."""

_SWITCHES = {
    COLUMN_STATS: "hoodie.metadata.index.column.stats.enable",
    PARTITION_STATS: "hoodie.metadata.index.partition.stats.enable",
    BLOOM_FILTERS: "hoodie.metadata.index.bloom.filter.enable",
    RECORD_INDEX: "hoodie.metadata.record.index.enable",
}


@dataclass(frozen=True, slots=True)
class MetadataSettings:
    """What a writer wants.

    enabled: True builds what is wanted, False drops the metadata table.  wanted, unwanted: partitions to
    build where they are missing, and to drop where they are; one that is in neither stays as it is.  columns: of the column
    statistics, () for the first `max_columns`.  group_counts: partition -> file groups of a new partition.
    """

    enabled: bool
    wanted: frozenset[str]
    unwanted: frozenset[str]
    columns: tuple[str, ...]
    max_columns: int
    group_counts: tuple[tuple[str, int], ...]
    min_index_groups: int
    max_index_groups: int
    index_growth: float
    max_index_group_bytes: int
    compact_after: int

    @classmethod
    def of(cls, options: Options) -> MetadataSettings:
        """From checked options.

        Column and partition statistics are wanted unless the options say no, as in real Hudi on Spark.  Other indexes are dropped
        when the options say no, and only then: a writer that says nothing of them keeps them.  A writer whose index the record
        index is wants it.
        """
        wanted, unwanted = {FILES}, set()
        for partition, switch in _SWITCHES.items():
            given = options.given(switch)
            if given is None and partition == PARTITION_STATS:
                given = options.given(_SWITCHES[COLUMN_STATS])
            if given is None and partition == RECORD_INDEX and options.word("hoodie.index.type") == "RECORD_INDEX":
                given = "true"
            if given == "true" or (given is None and partition in (COLUMN_STATS, PARTITION_STATS)):
                wanted.add(partition)
            elif given == "false":
                unwanted.add(partition)
        if PARTITION_STATS in wanted and COLUMN_STATS not in wanted:
            raise InvalidRequest(f"{_SWITCHES[PARTITION_STATS]}=true needs {_SWITCHES[COLUMN_STATS]}=true")
        return cls(
            enabled=options.flag("hoodie.metadata.enable"),
            wanted=frozenset(wanted),
            unwanted=frozenset(unwanted),
            columns=options.names("hoodie.metadata.index.column.stats.column.list"),
            max_columns=options.integer("hoodie.metadata.index.column.stats.max.columns.to.index"),
            group_counts=(
                (FILES, 1),
                (COLUMN_STATS, options.integer("hoodie.metadata.index.column.stats.file.group.count")),
                (PARTITION_STATS, options.integer("hoodie.metadata.index.partition.stats.file.group.count")),
                (BLOOM_FILTERS, options.integer("hoodie.metadata.index.bloom.filter.file.group.count")),
                (EXPRESSION_INDEX_PREFIX, options.integer("hoodie.metadata.index.expression.file.group.count")),
            ),
            min_index_groups=options.integer("hoodie.metadata.record.index.min.filegroup.count"),
            max_index_groups=options.integer("hoodie.metadata.record.index.max.filegroup.count"),
            index_growth=options.number("hoodie.metadata.record.index.growth.factor"),
            max_index_group_bytes=options.integer("hoodie.metadata.record.index.max.filegroup.size"),
            compact_after=options.integer("hoodie.metadata.compact.max.delta.commits"),
        )

    def group_count(self, partition: str, record_count: int) -> int:
        """How many file groups a new partition gets.

        record_count: records of the table, for the record index and secondary indexes.
        """
        kind = parse_partition(partition)
        if kind is PartitionKind.EXPRESSION_INDEX:
            partition = EXPRESSION_INDEX_PREFIX
        if kind in (PartitionKind.RECORD_INDEX, PartitionKind.SECONDARY_INDEX):
            return estimate_file_group_count(
                record_count,
                min_count=self.min_index_groups,
                max_count=self.max_index_groups,
                growth_factor=self.index_growth,
                max_file_group_bytes=self.max_index_group_bytes,
            )
        return max(1, dict(self.group_counts)[partition])
