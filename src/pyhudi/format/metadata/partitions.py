"""Partitions of the metadata table and their file groups: names, numbers, the first log file.
Source: docs/formats/metadata-table.md, partitions.

    partition               file id of group i        file groups
    files                   files-0000-0              1
    column_stats            col-stats-%04d-0          2 unless configured
    partition_stats         partition-stats-%04d-0    1 unless configured
    bloom_filters           bloom-filters-%04d-0      4 unless configured
    record_index            record-index-%04d-0       estimated from the number of records
    secondary_index_<name>  secondary-index-<name>-%04d-0, `_` as `-`      estimated
    expr_index_<name>       expr-index-<name>-%04d-0, `_` as `-`           2 unless configured

How many groups a partition has is fixed when it is made, by a first log file in each, which holds an empty block of deletions.
Which group has a key: `records.hashing.shard_of_keys` of the whole key and the number of groups that exist.
"""

from __future__ import annotations

import math
import re
from enum import StrEnum

from pyhudi.errors import CorruptData, InvalidRequest, Unsupported
from pyhudi.format.log.framing import BlockType, HeaderKey, encode_blocks

FILES = "files"
COLUMN_STATS = "column_stats"
PARTITION_STATS = "partition_stats"
BLOOM_FILTERS = "bloom_filters"
RECORD_INDEX = "record_index"
SECONDARY_INDEX_PREFIX = "secondary_index_"
EXPRESSION_INDEX_PREFIX = "expr_index_"


MAX_FILE_GROUP_BYTES = 1 << 30
"""Size that a file group of a record or secondary index is planned for unless configured."""

AVERAGE_RECORD_BYTES = 48
"""What the estimate takes a record of a record or secondary index for."""

_FILE_ID = re.compile(r"(?P<prefix>.+)-(?P<index>[0-9]{4,9})(?:-0)?")
# Version 3, one Avro array that ends at once.
_NO_DELETES = bytes.fromhex("000000030000000100")


class PartitionKind(StrEnum):
    """What a partition of the metadata table indexes."""

    FILES = FILES
    COLUMN_STATS = COLUMN_STATS
    PARTITION_STATS = PARTITION_STATS
    BLOOM_FILTERS = BLOOM_FILTERS
    RECORD_INDEX = RECORD_INDEX
    SECONDARY_INDEX = "secondary_index"
    EXPRESSION_INDEX = "expr_index"


_FILE_ID_PREFIXES = {
    FILES: "files",
    COLUMN_STATS: "col-stats",
    PARTITION_STATS: "partition-stats",
    BLOOM_FILTERS: "bloom-filters",
    RECORD_INDEX: "record-index",
}


def parse_partition(name: str) -> PartitionKind | None:
    """What the partition of this name indexes; None for a name that is not a partition known to us."""
    for prefix, kind in (
        (SECONDARY_INDEX_PREFIX, PartitionKind.SECONDARY_INDEX),
        (EXPRESSION_INDEX_PREFIX, PartitionKind.EXPRESSION_INDEX),
    ):
        if name.startswith(prefix):
            return kind if len(name) > len(prefix) else None
    return PartitionKind(name) if name in _FILE_ID_PREFIXES else None


def format_file_id(partition: str, index: int) -> str:
    """The file id of file group `index` of a partition.  Raises InvalidRequest for a partition that does not exist."""
    if parse_partition(partition) is None or not 0 <= index <= 9999:
        raise InvalidRequest(f"the metadata table has no file group {index} of {partition!r}")
    return f"{_FILE_ID_PREFIXES.get(partition, partition.replace('_', '-'))}-{index:04d}-0"


def parse_file_group_index(file_id: str) -> int:
    """The number of a file group from its file id; older tables leave the last `-0` away.

    Raises CorruptData for a name that is not a file id of the metadata table, Unsupported for one of a record index that has file
    groups of its own for each partition of the table: keys are unique within a partition only, and numbers repeat.
    """
    section, index = parse_file_group(file_id)
    if section:
        raise Unsupported(
            f"the record index is partitioned ({file_id}), which PyHudi does not keep up to date; drop it before writing: "
            "Table.index.drop('record_index')"
        )
    return index


def parse_file_group(file_id: str) -> tuple[str, int]:
    """The section and the number of a file group.  Of a partitioned record index each partition of the table has a section, named
    by its escaped path; everything else has the section '' alone.  Raises CorruptData as `parse_file_group_index`.
    """
    match = _FILE_ID.fullmatch(file_id)
    if match is None:
        raise CorruptData("no file id of the metadata table", found=file_id)
    own = f"{_FILE_ID_PREFIXES[RECORD_INDEX]}-"
    return match["prefix"].removeprefix(own) if match["prefix"].startswith(own) else "", int(match["index"])


def estimate_file_group_count(
    record_count: int,
    *,
    min_count: int,
    max_count: int,
    growth_factor: float = 2.0,
    max_file_group_bytes: int = MAX_FILE_GROUP_BYTES,
    record_bytes: int = AVERAGE_RECORD_BYTES,
) -> int:
    """How many file groups a record or secondary index gets when it is made for a table of `record_count` records.

    Raises InvalidRequest for bounds that no number satisfies.
    """
    if not 0 <= min_count <= max_count or max_count < 1 or max_file_group_bytes < record_bytes:
        raise InvalidRequest(f"file groups of an index: {min_count} to {max_count}, of at most {max_file_group_bytes} bytes")
    if min_count == max_count:
        return min_count
    wanted = math.ceil(record_count * growth_factor) // (max_file_group_bytes // record_bytes)
    return max(1, min(max(wanted, min_count), max_count))


def encode_first_log(instant_time: str) -> bytes:
    """The whole log file that makes a file group exist: one block of no deletions.  instant_time: that of the initialisation."""
    return b"".join(encode_blocks([(BlockType.DELETE, {HeaderKey.INSTANT_TIME: instant_time}, _NO_DELETES)]))
