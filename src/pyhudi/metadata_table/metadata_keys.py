"""Keys of the metadata table's records about files, columns and partitions.
Source: docs/formats/metadata-table.md, partitions and hash functions.

    column_stats                     H(column) + H(partition) + M(file)
    partition_stats                  H(column) + H(partition)
    bloom_filters                    H(partition) + M(file)
    expression index, of a file      as column_stats or bloom_filters
    expression index, of a partition H(column) + H("__partition_stat__") + H(partition)

H has 12 characters and M has 24, so the beginning of a key is a prefix of its own: H(column) finds a column in all files,
H(column) + H(partition) in those of one partition.  Partitions are relative paths, empty in a table without partitions; files are
bare names, those of log files with their leading dot.  Keys of record and secondary indexes are not hashes:
`metadata_table.codecs`.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.records.hashing import file_hash, name_hash

FILE_STATS_KEY_LENGTH = 48
"""Characters of the key of a column's statistics in a file; keys of other statistics are shorter."""

_PARTITION_STATISTICS = "__partition_stat__"


def file_hashes(file_names: Sequence[str]) -> pa.StringArray:
    """M of each bare file name."""
    return pa.array([file_hash(name) for name in file_names], pa.string())


def column_stats_keys(column: str, partition: str, hashes: pa.StringArray) -> pa.StringArray:
    """The keys of one column's statistics in files of one partition.  hashes: `file_hashes` of the files."""
    return _prefixed(partition_stats_key(column, partition), hashes)


def column_stats_prefix(column: str) -> str:
    """What the keys of a column's statistics begin with, in files and in partitions, also those of an expression index."""
    return name_hash(column)


def partition_stats_key(column: str, partition: str) -> str:
    """The key of a column's statistics in a partition; also what the keys in the partition's files begin with."""
    return name_hash(column) + name_hash(partition)


def bloom_filter_keys(partition: str, hashes: pa.StringArray) -> pa.StringArray:
    """The keys of the Bloom filters of files of one partition.  hashes: `file_hashes` of the files."""
    return _prefixed(name_hash(partition), hashes)


def expression_partition_key(column: str, partition: str) -> str:
    """The key of an expression index's statistics in a partition, for an index over `column`."""
    return expression_partition_prefix(column) + name_hash(partition)


def expression_partition_prefix(column: str) -> str:
    """What the keys of an expression index's statistics in all partitions begin with."""
    return name_hash(column) + name_hash(_PARTITION_STATISTICS)


def _prefixed(prefix: str, hashes: pa.StringArray) -> pa.StringArray:
    keys: pa.StringArray = pc.binary_join_element_wise(prefix, hashes, "")
    return keys
