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

    record_index, partitioned   record-index-<partition of the table, escaped>-%04d-0      1 to 10 for each of these

How many groups a partition has is fixed when it is made, by a first log file in each, which holds an empty block of deletions.
Which group has a key: `records.hashing.key_shards` of the whole key and the number of groups that exist.  A partitioned record
index has a *section* for each partition of the table, with file groups of its own, which come with the first commit that writes
to that partition; keys are unique, and looked up, within one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from pyhudi.errors import CorruptData, InvalidRequest
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

# What a path may not hold unescaped, and what parts the names of a file id.
_ESCAPED = frozenset(map(chr, range(32))) | frozenset("\"#%'*/:=?\\{[]^\x7f_-")
_FILE_ID = re.compile(r"(?P<prefix>.+)-(?P<index>[0-9]{4,9})(?:-0)?")
# Version 3, one Avro array that ends at once.
_NO_DELETES = bytes.fromhex("000000030000000100")


class MetadataPartitionType(StrEnum):
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


def parse_partition(name: str) -> MetadataPartitionType | None:
    """What the partition of this name indexes; None for a name that is not a partition known to us."""
    for prefix, kind in (
        (SECONDARY_INDEX_PREFIX, MetadataPartitionType.SECONDARY_INDEX),
        (EXPRESSION_INDEX_PREFIX, MetadataPartitionType.EXPRESSION_INDEX),
    ):
        if name.startswith(prefix):
            return kind if len(name) > len(prefix) else None
    return MetadataPartitionType(name) if name in _FILE_ID_PREFIXES else None


def format_index_file_id(partition: str, index: int) -> str:
    """The file id of file group `index` of a partition.  Raises InvalidRequest for a partition that does not exist."""
    if parse_partition(partition) is None or not 0 <= index <= 9999:
        raise InvalidRequest(f"the metadata table has no file group {index} of {partition!r}")
    return f"{_FILE_ID_PREFIXES.get(partition, partition.replace('_', '-'))}-{index:04d}-0"


@dataclass(frozen=True, slots=True)
class IndexGroup:
    """A file group of an index and the keys that are its own: of those of its section the ones whose shard among `count` is
    `number`.

    section: a partition of the table, as `format_section` writes it, where the index is partitioned; None: the whole table.
    """

    file_id: str
    section: str | None
    number: int
    count: int


def format_section(partition_path: str) -> str:
    """How a partition of the table is named in file ids of a partitioned record index."""
    return "".join(f"%{ord(character):02X}" if character in _ESCAPED else character for character in partition_path)


def index_groups(partition: str, count: int, section: str | None = None) -> tuple[IndexGroup, ...]:
    """The file groups of a new index, or of a new section of one.  Raises as `format_index_file_id`."""
    ids = (format_index_file_id(partition, number) for number in range(count))
    if section is not None:
        own = _FILE_ID_PREFIXES[partition]
        ids = (f"{own}-{section}{file_id.removeprefix(own)}" for file_id in ids)
    return tuple(IndexGroup(file_id, section, number, count) for number, file_id in enumerate(ids))


def grouped(file_ids: Iterable[str]) -> tuple[IndexGroup, ...]:
    """The file groups of an index in order: by section, then by number.  file_ids: all of them, each once.

    Raises CorruptData for a name that is not a file id of the metadata table, and where numbers are missing: keys could not be
    found then.
    """
    named: dict[str | None, dict[int, str]] = {}
    for file_id in file_ids:
        section, number = parse_file_group(file_id)
        named.setdefault(section, {})[number] = file_id
    for numbered in named.values():
        if sorted(numbered) != list(range(len(numbered))):
            raise CorruptData(
                "file groups of the metadata table are missing",
                expected=f"0 to {len(numbered) - 1}",
                found=", ".join(numbered[number] for number in sorted(numbered)),
            )
    return tuple(
        IndexGroup(named[section][number], section, number, len(named[section]))
        for section in sorted(named, key=lambda name: name or "")
        for number in range(len(named[section]))
    )


def parse_file_group(file_id: str) -> tuple[str | None, int]:
    """The section and the number of a file group, from its file id; older tables leave the last `-0` away.

    Raises CorruptData for a name that is not a file id of the metadata table.
    """
    match = _FILE_ID.fullmatch(file_id)
    if match is None:
        raise CorruptData("no file id of the metadata table", found=file_id)
    own = f"{_FILE_ID_PREFIXES[RECORD_INDEX]}-"
    return match["prefix"].removeprefix(own) if match["prefix"].startswith(own) else None, int(match["index"])


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
