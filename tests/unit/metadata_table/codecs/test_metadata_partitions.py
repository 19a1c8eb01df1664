"""Names of partitions and file groups, their number, and their first log file."""

from __future__ import annotations

import pytest

from pyhudi.errors import CorruptData, InvalidRequest
from pyhudi.metadata_table.codecs.metadata_partitions import (
    MetadataPartitionType,
    encode_first_log,
    estimate_file_group_count,
    format_index_file_id,
    parse_file_group,
    parse_partition,
)


@pytest.mark.parametrize(
    ("partition", "kind", "file_id"),
    [
        ("files", MetadataPartitionType.FILES, "files-0001-0"),
        ("column_stats", MetadataPartitionType.COLUMN_STATS, "col-stats-0001-0"),
        ("partition_stats", MetadataPartitionType.PARTITION_STATS, "partition-stats-0001-0"),
        ("bloom_filters", MetadataPartitionType.BLOOM_FILTERS, "bloom-filters-0001-0"),
        ("record_index", MetadataPartitionType.RECORD_INDEX, "record-index-0001-0"),
        ("secondary_index_idx_city", MetadataPartitionType.SECONDARY_INDEX, "secondary-index-idx-city-0001-0"),
        ("expr_index_idx_day", MetadataPartitionType.EXPRESSION_INDEX, "expr-index-idx-day-0001-0"),
    ],
)
def test_names(partition: str, kind: MetadataPartitionType, file_id: str) -> None:
    assert parse_partition(partition) is kind
    assert format_index_file_id(partition, 1) == file_id
    assert parse_file_group(file_id) == (None, 1)
    assert parse_file_group(file_id[:-2]) == (None, 1)


@pytest.mark.parametrize("name", ["", "file", "secondary_index", "secondary_index_", "expr_index_", "expr_index", "Files"])
def test_names_that_are_no_partitions(name: str) -> None:
    assert parse_partition(name) is None
    with pytest.raises(InvalidRequest):
        format_index_file_id(name, 0)


def test_file_ids_that_are_none() -> None:
    for file_id in ("files", "files-1-0", "-0001-0", "files-0001-1", "0001"):
        with pytest.raises(CorruptData):
            parse_file_group(file_id)
    for index in (-1, 10_000):
        with pytest.raises(InvalidRequest):
            format_index_file_id("files", index)


@pytest.mark.parametrize(
    ("records", "bounds", "expected"),
    [
        (0, (10, 10_000), 10),
        (10_000_000, (1, 10_000), 1),
        (22_369_621, (1, 10_000), 2),
        (1_000_000_000, (1, 10_000), 89),
        (1_000_000_000, (1, 50), 50),
        (1_000_000_000, (7, 7), 7),
        (0, (0, 5), 1),
    ],
)
def test_estimate(records: int, bounds: tuple[int, int], expected: int) -> None:
    assert estimate_file_group_count(records, min_count=bounds[0], max_count=bounds[1]) == expected


@pytest.mark.parametrize("bounds", [(0, 0), (5, 4), (-1, 4)])
def test_estimates_with_invalid_bounds_are_refused(bounds: tuple[int, int]) -> None:
    with pytest.raises(InvalidRequest):
        estimate_file_group_count(1, min_count=bounds[0], max_count=bounds[1])


def test_the_first_log_of_a_file_group() -> None:
    # An empty delete block of instant 0...0, and in addition to its instant the check that other readers ignore.
    check = b"pyhudi crc32 212584a0 79865741 0 last"
    assert encode_first_log("00000000000000000").hex() == (
        "234855444923" + "000000000000006f" + "00000001" + "00000001" + "00000002" + "00000000" + "00000011" + "30" * 17
    ) + ("00000003" + "00000025" + check.hex()) + (
        "0000000000000009" + "00000003" + "00000001" + "00" + "00000000" + "0000000000000075"
    )
