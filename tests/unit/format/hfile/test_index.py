"""Index blocks: bytes of Apache Hudi, shortened keys, and damage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.errors import CorruptData
from pyhudi.format.hfile.index import (
    BlockIndex,
    IndexEntry,
    decode_index,
    decode_meta_index,
    decode_root_index,
    encode_index,
    encode_meta_index,
    encode_root_index,
    index_entry_bytes,
)

LIMIT = 1 << 40
ENTRIES = [IndexEntry(0, 125, b"a"), IndexEntry(125, 40, b"b" * 200), IndexEntry(1 << 33, 1 << 20, b"c\x00")]


def entries_of(index: BlockIndex) -> list[IndexEntry]:
    return [index.entry(position) for position in range(len(index))]


def test_a_real_root_index() -> None:
    data = (
        bytes.fromhex("0000000000000000" + "0000007d" + "1e" + "0012")
        + b"__all_partitions__"
        + bytes.fromhex("007fffffffffffffff04")
    )
    index = decode_root_index(memoryview(data), 1, limit=786)
    assert entries_of(index) == [IndexEntry(0, 125, b"__all_partitions__")]
    assert encode_root_index(entries_of(index)) == data


def test_a_real_meta_index() -> None:
    data = bytes.fromhex("000000000000007d" + "00000295" + "0b") + b"bloomFilter"
    index = decode_meta_index(memoryview(data), 1, limit=786)
    assert index == {"bloomFilter": IndexEntry(125, 661, b"bloomFilter")}
    assert encode_meta_index(list(index.values())) == data


def test_long_keys_use_a_longer_length() -> None:
    assert encode_root_index([IndexEntry(0, 33, b"x" * 188)])[12:14].hex() == "8fc8"
    assert entries_of(decode_root_index(memoryview(encode_root_index(ENTRIES)), 3, limit=LIMIT)) == ENTRIES


def test_leaf_round_trip() -> None:
    data = encode_index(ENTRIES)
    assert data[:4] == b"\x00\x00\x00\x03"
    assert entries_of(decode_index(memoryview(data), limit=LIMIT)) == ENTRIES


def test_bytes_after_the_root_entries_are_ignored() -> None:
    data = encode_root_index(ENTRIES) + bytes(16)
    assert len(decode_root_index(memoryview(data), 3, limit=LIMIT)) == 3


def test_entry_size_is_never_underestimated() -> None:
    assert len(encode_index(ENTRIES)) - 8 <= sum(index_entry_bytes(entry.row) for entry in ENTRIES)
    assert len(encode_root_index(ENTRIES)) <= sum(index_entry_bytes(entry.row) for entry in ENTRIES)


@pytest.mark.parametrize(
    "entry",
    [
        IndexEntry(0, 32, b"a"),
        IndexEntry(LIMIT - 10, 33, b"a"),
        IndexEntry((1 << 63) - 1, 1 << 30, b"a"),
        IndexEntry(LIMIT + 1, 33, b"a"),
    ],
)
def test_pointers_outside_the_file(entry: IndexEntry) -> None:
    with pytest.raises(CorruptData):
        decode_root_index(memoryview(encode_root_index([entry])), 1, limit=LIMIT)
    with pytest.raises(CorruptData):
        decode_index(memoryview(encode_index([entry])), limit=LIMIT)
    with pytest.raises(CorruptData):
        decode_meta_index(memoryview(encode_meta_index([entry])), 1, limit=LIMIT)


def test_rows_out_of_order() -> None:
    with pytest.raises(CorruptData):
        decode_index(memoryview(encode_index(ENTRIES[::-1])), limit=LIMIT)


@given(st.booleans(), st.data())
def test_truncated_or_flipped(is_leaf: bool, draw: st.DataObject) -> None:
    data = bytearray(encode_index(ENTRIES) if is_leaf else encode_root_index(ENTRIES))
    if draw.draw(st.booleans()):
        data = data[: draw.draw(st.integers(0, len(data) - 1))]
    else:
        data[draw.draw(st.integers(0, len(data) - 1))] ^= 1 << draw.draw(st.integers(0, 7))
    try:
        if is_leaf:
            decode_index(memoryview(data), limit=LIMIT)
        else:
            decode_root_index(memoryview(data), 3, limit=LIMIT)
            decode_meta_index(memoryview(data), 3, limit=LIMIT)
    except CorruptData:
        pass


@pytest.mark.parametrize("count", [-1, 1 << 31, 4])
def test_counts_that_do_not_fit(count: int) -> None:
    with pytest.raises(CorruptData):
        decode_root_index(memoryview(encode_root_index(ENTRIES)), count, limit=LIMIT)


@pytest.mark.parametrize(("length", "prefix"), [(124, "7e"), (126, "8001"), (135, "8901"), (135, "8f89"), (300, "ae02")])
def test_lengths_of_release_1_1_are_protobuf_varints(length: int, prefix: str) -> None:
    """Rows without a tail; Hadoop's reading of such a length fits nothing, and its own length is read as before."""
    row = b"k" * length
    entry = (40).to_bytes(8, "big") + (50).to_bytes(4, "big") + bytes.fromhex(prefix) + length.to_bytes(2, "big") + row
    index = decode_root_index(memoryview(entry * 2), 2, limit=1000)
    assert list(index.rows) == [row] * 2
