"""Keys of metadata table records for files, columns and partitions. Format: docs/formats/metadata-table.md, partitions
and hash functions.

    column_stats                     H(column) + H(partition) + M(file)
    partition_stats                  H(column) + H(partition)
    bloom_filters                    H(partition) + M(file)
    expression index, of a file      as column_stats or bloom_filters
    expression index, of a partition H(column) + H("__partition_stat__") + H(partition)

H has 12 characters and M has 24, so key prefixes are unambiguous: H(column) finds a column in all files, H(column) +
H(partition) in those of one partition. Partitions are relative paths, empty in a table without partitions. Files are
bare names; log file names include their leading dot. Keys of record and secondary indexes are not hashes: see
`metadata_table.codecs`.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.records.hashing import file_hash, name_hash

FILE_STATS_KEY_LENGTH = 48
"""Length in characters of the key of a column's statistics in a file; keys of other statistics are shorter."""

_PARTITION_STATISTICS = "__partition_stat__"


def file_hashes(file_names: Sequence[str]) -> pa.StringArray:
    """Return M of each bare file name."""
    return pa.array([file_hash(name) for name in file_names], pa.string())


def column_stats_keys(column: str, partition: str, hashes: pa.StringArray) -> pa.StringArray:
    """Return the keys of one column's statistics in files of one partition.

    Args:
        column: Name of the column.
        partition: Partition path of the files.
        hashes: `file_hashes` of the files.
    """
    return _prefixed(partition_stats_key(column, partition), hashes)


def column_stats_prefix(column: str) -> str:
    """Return the common prefix of the keys of a column's statistics, in files and partitions, including expression indexes."""
    return name_hash(column)


def partition_stats_key(column: str, partition: str) -> str:
    """Return the key of a column's statistics in a partition, which is also the key prefix for the partition's files."""
    return name_hash(column) + name_hash(partition)


def bloom_filter_keys(partition: str, hashes: pa.StringArray) -> pa.StringArray:
    """Return the keys of the Bloom filters of files of one partition.

    Args:
        partition: Partition path of the files.
        hashes: `file_hashes` of the files.
    """
    return _prefixed(name_hash(partition), hashes)


def expression_partition_key(column: str, partition: str) -> str:
    """Return the key of the partition statistics of an expression index over `column`."""
    return expression_partition_prefix(column) + name_hash(partition)


def expression_partition_prefix(column: str) -> str:
    """Return the common key prefix of the statistics of all partitions in an expression index over `column`."""
    return name_hash(column) + name_hash(_PARTITION_STATISTICS)


def _prefixed(prefix: str, hashes: pa.StringArray) -> pa.StringArray:
    keys: pa.StringArray = pc.binary_join_element_wise(prefix, hashes, "")
    return keys
