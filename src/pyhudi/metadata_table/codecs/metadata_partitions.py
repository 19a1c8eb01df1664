"""Partitions of the metadata table and their file groups: names, numbers, the first log file.
Format: docs/formats/metadata-table.md, partitions.

    partition               file id of group i        file groups
    files                   files-0000-0              1
    column_stats            col-stats-%04d-0          2 unless configured
    partition_stats         partition-stats-%04d-0    1 unless configured
    bloom_filters           bloom-filters-%04d-0      4 unless configured
    record_index            record-index-%04d-0       estimated from the number of records
    secondary_index_<name>  secondary-index-<name>-%04d-0, `_` as `-`      estimated
    expr_index_<name>       expr-index-<name>-%04d-0, `_` as `-`           2 unless configured

    record_index, partitioned   record-index-<partition of the table, escaped>-%04d-0      1 to 10 for each of these

The number of file groups of a partition is fixed at its creation: each group gets a first log file that holds an empty
delete block. A key belongs to the group `records.hashing.key_shards` of the whole key and the number of existing
groups. A partitioned record index has a *section* for each partition of the table. A section has its own file groups,
which the first commit to that table partition creates. Keys are unique, and looked up, within one section.
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
"""Planned size of a file group of a record or secondary index, unless configured."""

AVERAGE_RECORD_BYTES = 48
"""Record size that the estimate for a record or secondary index assumes."""

# Characters that a section name escapes: those invalid in a path, and the separators of a file id.
_ESCAPED = frozenset(map(chr, range(32))) | frozenset("\"#%'*/:=?\\{[]^\x7f_-")
_FILE_ID = re.compile(r"(?P<prefix>.+)-(?P<index>[0-9]{4,9})(?:-0)?")
# Delete block version 3 with an empty Avro array.
_NO_DELETES = bytes.fromhex("000000030000000100")


class MetadataPartitionType(StrEnum):
    """Type of a partition of the metadata table."""

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
    """Return the type of the metadata table partition with this name; None for an unknown name."""
    for prefix, kind in (
        (SECONDARY_INDEX_PREFIX, MetadataPartitionType.SECONDARY_INDEX),
        (EXPRESSION_INDEX_PREFIX, MetadataPartitionType.EXPRESSION_INDEX),
    ):
        if name.startswith(prefix):
            return kind if len(name) > len(prefix) else None
    return MetadataPartitionType(name) if name in _FILE_ID_PREFIXES else None


def format_index_file_id(partition: str, index: int) -> str:
    """Return the file id of file group `index` of a partition.

    Raises:
        InvalidRequest: Unknown partition, or `index` outside of 0 to 9999.
    """
    if parse_partition(partition) is None or not 0 <= index <= 9999:
        raise InvalidRequest(f"the metadata table has no file group {index} of {partition!r}")
    return f"{_FILE_ID_PREFIXES.get(partition, partition.replace('_', '-'))}-{index:04d}-0"


@dataclass(frozen=True, slots=True)
class IndexGroup:
    """A file group of an index: it owns the keys of its section whose shard among `count` equals `number`.

    Attributes:
        section: A table partition, in the form of `format_section`, if the index is partitioned; None for the whole
            table.
    """

    file_id: str
    section: str | None
    number: int
    count: int


def format_section(partition_path: str) -> str:
    """Return the name of a table partition in the file ids of a partitioned record index."""
    return "".join(f"%{ord(character):02X}" if character in _ESCAPED else character for character in partition_path)


def index_groups(partition: str, count: int, section: str | None = None) -> tuple[IndexGroup, ...]:
    """Return the file groups of a new index, or of a new section of one. Raises as `format_index_file_id`."""
    ids = (format_index_file_id(partition, number) for number in range(count))
    if section is not None:
        prefix = _FILE_ID_PREFIXES[partition]
        ids = (f"{prefix}-{section}{file_id.removeprefix(prefix)}" for file_id in ids)
    return tuple(IndexGroup(file_id, section, number, count) for number, file_id in enumerate(ids))


def grouped(file_ids: Iterable[str]) -> tuple[IndexGroup, ...]:
    """Return the file groups of an index, sorted by section and number.

    Args:
        file_ids: All file ids of the index, each once.

    Raises:
        CorruptData: A name is not a file id of the metadata table, or a group number is missing (its keys would not be
            found).
    """
    ids_by_section: dict[str | None, dict[int, str]] = {}
    for file_id in file_ids:
        section, number = parse_file_group(file_id)
        ids_by_section.setdefault(section, {})[number] = file_id
    for section_ids in ids_by_section.values():
        if sorted(section_ids) != list(range(len(section_ids))):
            raise CorruptData(
                "file groups of the metadata table are missing",
                expected=f"0 to {len(section_ids) - 1}",
                found=", ".join(section_ids[number] for number in sorted(section_ids)),
            )
    return tuple(
        IndexGroup(ids_by_section[section][number], section, number, len(ids_by_section[section]))
        for section in sorted(ids_by_section, key=lambda name: name or "")
        for number in range(len(ids_by_section[section]))
    )


def parse_file_group(file_id: str) -> tuple[str | None, int]:
    """Parse the section and number of a file group from its file id. Older tables omit the last `-0`.

    Raises:
        CorruptData: Not a file id of the metadata table.
    """
    match = _FILE_ID.fullmatch(file_id)
    if match is None:
        raise CorruptData("not a file id of the metadata table", found=file_id)
    record_index_prefix = f"{_FILE_ID_PREFIXES[RECORD_INDEX]}-"
    return match["prefix"].removeprefix(record_index_prefix) if match["prefix"].startswith(record_index_prefix) else None, int(
        match["index"]
    )


def estimate_file_group_count(
    record_count: int,
    *,
    min_count: int,
    max_count: int,
    growth_factor: float = 2.0,
    max_file_group_bytes: int = MAX_FILE_GROUP_BYTES,
) -> int:
    """Estimate the number of file groups of a new record or secondary index for a table of `record_count` records.

    Raises:
        InvalidRequest: Inconsistent bounds.
    """
    if not 0 <= min_count <= max_count or max_count < 1 or max_file_group_bytes < AVERAGE_RECORD_BYTES:
        raise InvalidRequest(
            f"invalid file group bounds of an index: {min_count} to {max_count} groups of at most {max_file_group_bytes} bytes"
        )
    if min_count == max_count:
        return min_count
    required_count = math.ceil(record_count * growth_factor) // (max_file_group_bytes // AVERAGE_RECORD_BYTES)
    return max(1, min(max(required_count, min_count), max_count))


def encode_first_log(instant_time: str) -> bytes:
    """Encode the log file that creates a file group: one empty delete block.

    Args:
        instant_time: Instant of the initialization.
    """
    return b"".join(encode_blocks([(BlockType.DELETE, {HeaderKey.INSTANT_TIME: instant_time}, _NO_DELETES)]))
