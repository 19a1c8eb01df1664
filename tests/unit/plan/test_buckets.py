"""The simple bucket index: numbers in file ids, and layouts that do not fit a table."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pyhudi.errors import InvalidRequest, TableState
from pyhudi.format.names import format_bucket_prefix, parse_bucket
from pyhudi.plan.buckets import BucketLayout, bucket_groups, in_buckets
from pyhudi.plan.conflicts import new_bucket
from pyhudi.records.keys.spec import KeySpec
from pyhudi.table.slices import FileSlice

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
    assert BucketLayout(16, fields).buckets_of(KEYS, pa.array(["a:1,b:2"])).tolist() == [bucket]


def test_layouts_that_cannot_be() -> None:
    for count in (0, -1, 100_000_000):
        with pytest.raises(InvalidRequest, match=r"num\.buckets"):
            BucketLayout(count)
    with pytest.raises(InvalidRequest, match="cannot hash c"):
        BucketLayout(2, ("c",)).fields_of(KEYS)


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


def test_two_new_groups_of_one_bucket_meet() -> None:
    assert new_bucket("p", "00000001-a") == new_bucket("p", "00000001-b") != new_bucket("q", "00000001-b")
    assert new_bucket("p", "00000001-a") != new_bucket("p", "00000002-a")
    assert new_bucket("p", UUID) == ()
