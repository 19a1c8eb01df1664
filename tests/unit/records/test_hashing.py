from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.errors import InvalidRequest
from pyhudi.records.hashing import (
    bucket_ids,
    consistent_hashes,
    file_hash,
    java_string_hash,
    key_shards,
    name_hash,
)

TEXTS = st.lists(st.text() | st.none())


def java_hash(text: str | None) -> int:
    units = np.frombuffer((text or "").encode("utf-16-le"), dtype="<u2")
    value = 0
    for unit in units:
        value = (31 * value + int(unit)) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def test_java_hashes_of_real_keys() -> None:
    keys = pa.array(["5", "13", "city0$5", "+WGrmgkN3io=BrgLMXCAgW4=0zRLm+zgneL6JeRfdnmPnQ==", "😀x"])
    assert java_string_hash(keys).tolist() == [53, 1570, 785392502, 1655332094, 54959989]
    assert key_shards(keys, 10).tolist() == [3, 0, 2, 4, 9]
    assert key_shards(keys.slice(3, 1), 2).tolist() == [0]


@given(TEXTS)
def test_java_hash_is_the_polynomial_over_utf16(texts: list[str | None]) -> None:
    assert java_string_hash(pa.array(texts, pa.string())).tolist() == [java_hash(text) for text in texts]


def test_java_hash_of_slices_and_many_rows() -> None:
    keys = pa.array([f"k{row}é" if row % 3 else None for row in range(70_000)])
    assert java_string_hash(keys)[-1] == java_hash(keys[-1].as_py())
    assert java_string_hash(keys.slice(65_530, 20)).tolist() == [java_hash(text) for text in keys.slice(65_530, 20).to_pylist()]


def test_the_smallest_hash_has_a_shard() -> None:
    assert java_string_hash(pa.array(["polygenelubricants"])).tolist() == [-(2**31)]
    assert key_shards(pa.array(["polygenelubricants"]), 10).tolist() == [8]


@pytest.mark.parametrize(
    ("key", "fields", "hashed", "count", "bucket"),
    [
        ("1", ["id"], [], 4, 0),
        ("0", ["id"], [], 4, 3),
        ("id0", ["id"], ["id"], 8, 4),
        ("user_42", ["uuid"], [], 256, 145),
        ("a:1,b:2", ["a", "b"], [], 16, 2),
        ("a:1,b:2", ["a", "b"], ["b"], 16, 1),
        ("a:1,b:2", ["a", "b"], ["a"], 16, 0),
        ("é中", ["id"], [], 64, 3),
        ("", ["id"], [], 7, 3),
    ],
)
def test_buckets_of_real_keys(key: str, fields: list[str], hashed: list[str], count: int, bucket: int) -> None:
    assert bucket_ids(pa.array(["other", key]).slice(1), count, fields, hashed).tolist() == [bucket]


def test_a_null_part_counts_zero_and_an_empty_part_is_empty() -> None:
    # Both hash to 0, and so to the bucket of (1, 0): h = 31 * (31 * 1 + hash("1")) + 0.
    expected = (31 * (31 + 49)) % 16
    assert bucket_ids(pa.array(["a:1,b:__null__", "a:1,b:__empty__"]), 16, ["a", "b"]).tolist() == [expected, expected]


def test_null_key_part_is_hashed_as_the_text_null() -> None:
    hashes = consistent_hashes(
        pa.array(["a:1,b:__null__", "a:1,b:null", "a:1,b:__empty__", "a:1null,b:__empty__"]), ["a", "b"]
    ).tolist()
    assert hashes[0] == hashes[1] == hashes[3] == xxhash.xxh32(b"1null").intdigest() & 0x7FFFFFFF
    assert hashes[2] == xxhash.xxh32(b"1").intdigest() & 0x7FFFFFFF


def test_key_with_composite_syntax_is_hashed_as_one_part() -> None:
    # A single key `x,y:z` is read as field `x,y`, which is not hashed: the hash of an empty list is 1.
    assert bucket_ids(pa.array(["x,y:z"]), 16, ["id"]).tolist() == [1]


def test_hash_fields_must_be_key_fields() -> None:
    with pytest.raises(InvalidRequest, match="city"):
        bucket_ids(pa.array(["1"]), 4, ["id"], ["city"])
    with pytest.raises(InvalidRequest):
        bucket_ids(pa.array(["1"]), 0, ["id"])


def test_xxh32_of_real_keys() -> None:
    keys = pa.array(["1", "id0", "user_42", "a:1", "é中", ""])
    signed = [-1225996110, 1051352340, 1329920409, -1230855892, -1326651813, 46947589]
    assert consistent_hashes(keys, ["id"]).tolist() == [value & 0x7FFFFFFF for value in signed]


@given(TEXTS)
def test_xxh32_is_that_of_the_library(texts: list[str | None]) -> None:
    keys = [text or "" for text in texts]
    hashed = [xxhash.xxh32(key.encode()).intdigest() & 0x7FFFFFFF for key in keys]
    assert consistent_hashes(pa.array(keys, pa.string()), ["id"]).tolist() == hashed


def test_consistent_hash_uses_the_joined_values() -> None:
    joined = xxhash.xxh32(b"12").intdigest() & 0x7FFFFFFF
    assert consistent_hashes(pa.array(["a:1,b:2", None]), ["a", "b"]).tolist()[0] == joined


def test_index_key_parts() -> None:
    assert name_hash("part") == "+WGrmgkN3io="
    assert name_hash("_hoodie_record_key") == "uSJGdDiVr/k="
    assert name_hash("part=é ü") == "WG35Q1Xm3YQ="
    assert name_hash(".") == name_hash("") == "FXThHwelITM="
    assert name_hash("__partition_stat__") == "2CMHrhWVE9w="
    assert file_hash("2622d700-2c44-4e95-a091-8424bcaeb9e6-0_0-31-34_20261121044645518.parquet") == "CAGx/Ue/0sZfF9Xx0Sr7kw=="
    assert file_hash("x") == "ndTkYSaMgDT1yFZOFVxnpg=="
