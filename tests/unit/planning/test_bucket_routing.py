"""The simple bucket index: bucket numbers in file ids, and layouts that do not match a table."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pyhudi.errors import InvalidRequest, TableState, Unsupported
from pyhudi.format.names import format_bucket_prefix, parse_bucket
from pyhudi.format.partition_bucket_config import BucketCounts
from pyhudi.planning.bucket_routing import BucketLayout, bucket_groups, in_buckets
from pyhudi.planning.conflicts import new_bucket
from pyhudi.records.hashing import bucket_ids
from pyhudi.records.keys.key_spec import KeySpec
from pyhudi.records.keys.partition_paths import PLACEHOLDER_PARTITION
from pyhudi.table.file_slices import FileSlice

UUID = "a8db4385-9dc7-4e49-8409-f9651a8db438"
KEYS = KeySpec.from_properties({"hoodie.table.recordkey.fields": "a,b"})


def group(file_id: str, partition: str = "p") -> FileSlice:
    return FileSlice(partition, file_id, "1", None)


def test_file_ids() -> None:
    assert format_bucket_prefix(3, UUID) == "00000003-9dc7-4e49-8409-f9651a8db438"
    assert parse_bucket("00000003-a8db-4385-9dc7-3e49540f9651-0") == 3
    assert parse_bucket("00000003-a8db-4385-9dc7-3e49540f9651") == 3
    assert parse_bucket(UUID) is parse_bucket("0000003-a8db") is parse_bucket("000000030-a8db") is None
    for wrong in (-1, 100_000_000):
        with pytest.raises(InvalidRequest):
            format_bucket_prefix(wrong, UUID)


@pytest.mark.parametrize(("fields", "bucket"), [((), 2), (("a", "b"), 2), (("b",), 1), (("a",), 0)])
def test_buckets_of_composite_keys(fields: tuple[str, ...], bucket: int) -> None:
    assert BucketLayout(16, fields).cells_for_keys(KEYS, pa.array(["a:1,b:2"]), pa.array(["p"])).tolist() == [bucket]


def test_layouts_that_cannot_be() -> None:
    for count in (0, -1, 100_000_000):
        with pytest.raises(InvalidRequest, match=r"num\.buckets"):
            BucketLayout(count)
    with pytest.raises(InvalidRequest, match="cannot hash c"):
        BucketLayout(2, ("c",)).validated_fields(KEYS)


def test_groups_of_buckets() -> None:
    slices = [group("00000000-a"), group("00000001-a"), group("00000001-b", "q")]
    assert bucket_groups(slices, BucketLayout(2)) == {("p", 0): slices[0], ("p", 1): slices[1], ("q", 1): slices[2]}


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([UUID + "-0"], "names no bucket"),
        (["00000002-a"], "has no such bucket"),
        (["00000001-a", "00000001-b"], "two file groups"),
    ],
)
def test_groups_that_the_layout_does_not_make(ids: list[str], message: str) -> None:
    with pytest.raises(TableState, match=message):
        bucket_groups([group(file_id) for file_id in ids], BucketLayout(2))


def test_in_buckets() -> None:
    assert in_buckets("00000001-a", {1})
    assert not in_buckets("00000001-a", {0, 2})
    assert in_buckets(UUID, {0}), "a group that tells no bucket may hold anything"


def test_two_new_file_groups_of_one_bucket_conflict() -> None:
    assert new_bucket("p", "00000001-a") == new_bucket("p", "00000001-b") != new_bucket("q", "00000001-b")
    assert new_bucket("p", "00000001-a") != new_bucket("p", "00000002-a")
    assert new_bucket("p", UUID) == ()


def test_counts_of_partitions() -> None:
    layout = BucketLayout(2, rules=r"^2026-(05|06)-\d{2}$, 8 ;a/b,3,;a,5;")
    counts = {"2026-05-01": 8, "x2026-05-01": 2, "2026-05-1": 2, "a/b": 3, "ba": 5, "": 2}
    assert {partition: layout.bucket_count(partition) for partition in counts} == counts


def test_key_maps_to_one_bucket_with_and_without_partition() -> None:
    keys = KeySpec.from_properties({"hoodie.table.recordkey.fields": "a"})
    layout = BucketLayout(4, rules="p,6;q,10")
    texts = pa.array([f"k{number}" for number in range(200)])
    nowhere = layout.cells_for_keys(keys, texts, pa.array([PLACEHOLDER_PARTITION] * 200))
    assert nowhere.max() < layout.cell_count == 60
    for partition, count in (("p", 6), ("q", 10), ("r", 4)):
        buckets = bucket_ids(texts, count, ["a"]).tolist()
        assert layout.cells_for_keys(keys, texts, pa.array([partition] * 200)).tolist() == buckets
        assert [layout.bucket_at(partition, cell) for cell in nowhere.tolist()] == buckets
    # Counts without a common multiple among the hashes: then a cell is a hash.
    assert BucketLayout(99_999_989, rules="p,99_999_971".replace("_", "")).cell_count == 1 << 31


@pytest.mark.parametrize("rules", ["p", "p,0", "p,x", "p,1,2", "p,1;;q,2", ";p,1", ",", "p,-1", "p,100000000"])
def test_rules_that_are_none(rules: str) -> None:
    with pytest.raises(InvalidRequest, match="regular expression, a comma and a count"):
        BucketLayout(2, rules=rules)


@pytest.mark.parametrize("pattern", ["(?<n>p)", r"\R", "[a&&b]", "p++", r"(a)\1", "(p"])
def test_patterns_that_java_may_read_in_another_way(pattern: str) -> None:
    with pytest.raises(Unsupported, match="regular expression"):
        BucketLayout(2, rules=f"{pattern},3")


def test_stored_bucket_counts_take_precedence_over_options() -> None:
    stored = BucketCounts("p,3", 2)
    for said in (BucketLayout(2), BucketLayout(2, rules="p,3;"), BucketLayout(256, is_explicit=False)):
        assert said.from_table_counts(stored).bucket_count("p") == 3
        assert said.from_table_counts(stored).bucket_count("q") == 2
    for wrong in (BucketLayout(3), BucketLayout(2, rules="p,4")):
        with pytest.raises(InvalidRequest, match="the table stores"):
            wrong.from_table_counts(stored)
