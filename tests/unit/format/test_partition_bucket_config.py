"""Bucket counts of partitions as bytes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pyhudi.errors import CorruptData, Unsupported
from pyhudi.format.partition_bucket_config import BucketCounts, counts_path, parse_counts_file

# As Apache Hudi 1.1.1 wrote it.
WRITTEN = b"""{
  "expressions" : "d2,1;e,4",
  "defaultBucketNumber" : 2,
  "rule" : "regex",
  "version" : 1,
  "instant" : "20261122234512345"
}"""


def test_partition_bucket_config_of_hudi() -> None:
    found = BucketCounts.decode(WRITTEN)
    assert found == BucketCounts("d2,1;e,4", 2, "20261122234512345")
    assert found.encode() == WRITTEN
    assert parse_counts_file(counts_path(found.instant)) == found.instant
    assert parse_counts_file("x/1.hashing_config") is parse_counts_file("x/00000000000000.hashing_meta") is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: b"[]",
        lambda data: data.replace(b'"rule"', b'"role"'),
        lambda data: data.replace(b": 2,", b": 0,"),
        lambda data: data.replace(b": 2,", b": true,"),
        lambda data: data.replace(b'"d2,1;e,4"', b"null"),
        lambda data: data.replace(b'"d2,1;e,4"', b'" "'),
    ],
)
def test_damaged_bucket_counts_are_rejected(damage: Callable[[bytes], bytes]) -> None:
    with pytest.raises(CorruptData, match="bucket counts by partition"):
        BucketCounts.decode(damage(WRITTEN))


def test_rules_of_another_kind() -> None:
    with pytest.raises(Unsupported, match="rules of type range"):
        BucketCounts.decode(WRITTEN.replace(b"regex", b"range"))
