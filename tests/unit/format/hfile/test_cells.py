"""Cells of a data block: bytes of Apache Hudi, and blocks that mislead the search for cell starts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.errors import CorruptData, InvalidRequest, Unsupported
from pyhudi.format.hfile.cells import (
    CELL_SCHEMA,
    KEY_TAIL,
    check_sizes,
    copy_ranges,
    decode_cells,
    decode_joined,
    encode_cells,
    full_key,
    row_from_key,
    split_ranges,
)

# The only entry of a real base file of the `files` partition.
REAL_ROW = b"__all_partitions__"
REAL_VALUE = bytes.fromhex("000000000254") + b"files-0000-0_0-5-4_00000000000000000.hfile" + bytes.fromhex("0002020000000000")
REAL_ENTRY = (
    bytes.fromhex("0000001e00000038") + b"\x00\x12" + REAL_ROW + bytes.fromhex("007fffffffffffffff04") + REAL_VALUE + b"\x00"
)


def binary(*values: bytes) -> pa.BinaryArray:
    return pa.array(values, pa.binary())


def entry(row: bytes, value: bytes) -> bytes:
    return (
        (len(row) + 12).to_bytes(4, "big")
        + len(value).to_bytes(4, "big")
        + len(row).to_bytes(2, "big")
        + row
        + KEY_TAIL
        + value
        + b"\0"
    )


def data_of(cells: pa.BinaryArray) -> bytes:
    return b"".join(cells.to_pylist())


# Rows and values out of few byte values, so that false entry starts come up by chance, and whole entries inside values.
short = st.binary(max_size=12) | st.lists(st.sampled_from(b"\x00\x01\x0c\x0d\x04\x7f\xff"), max_size=40).map(bytes)
nested = st.builds(entry, short, short).flatmap(
    lambda inner: st.sampled_from([inner, inner + inner, b"\x00" + inner, inner[:-1]])
)
row_and_value = st.tuples(short, short | nested)


def test_a_real_entry() -> None:
    assert data_of(encode_cells(binary(REAL_ROW), binary(REAL_VALUE))) == REAL_ENTRY
    batch = decode_cells(REAL_ENTRY)
    assert batch.schema == CELL_SCHEMA
    assert batch.to_pydict() == {"key": [REAL_ROW], "value": [REAL_VALUE]}


@given(st.lists(row_and_value, max_size=30))
def test_round_trip(entries: list[tuple[bytes, bytes]]) -> None:
    rows, values = binary(*(row for row, _ in entries)), binary(*(value for _, value in entries))
    data = b"".join(entry(row, value) for row, value in entries)
    assert data_of(encode_cells(rows, values)) == data
    batch = decode_cells(memoryview(data))
    assert batch.column("key").equals(rows)
    assert batch.column("value").equals(values)


def test_a_value_full_of_entries_is_one_value() -> None:
    inner = b"".join(entry(b"inner%d" % number, b"v") for number in range(50))
    data = entry(b"a", inner) + entry(b"b", b"") + entry(b"c", inner * 3)
    assert decode_cells(data).to_pydict() == {"key": [b"a", b"b", b"c"], "value": [inner, b"", inner * 3]}


def test_slices_are_encoded_as_what_they_show() -> None:
    rows, values = binary(b"skip", b"a", b"b", b"skip")[1:3], binary(b"1", b"2", b"3", b"4")[1:3]
    assert data_of(encode_cells(rows, values)) == entry(b"a", b"2") + entry(b"b", b"3")


@given(st.lists(row_and_value, min_size=1, max_size=5), st.data())
def test_truncated_or_flipped(entries: list[tuple[bytes, bytes]], draw: st.DataObject) -> None:
    data = bytearray(b"".join(entry(row, value) for row, value in entries))
    if draw.draw(st.booleans()):
        data = data[: draw.draw(st.integers(0, len(data)))]
    else:
        data[draw.draw(st.integers(0, len(data) - 1))] ^= 1 << draw.draw(st.integers(0, 7))
    try:
        batch = decode_cells(bytes(data))
    except (CorruptData, Unsupported):
        return
    assert batch.num_rows <= len(data) // 21


def test_truncated_at_each_byte() -> None:
    data = entry(b"one", b"first") + entry(b"two", b"second")
    whole = {0: 0, len(entry(b"one", b"first")): 1, len(data): 2}
    for length in range(len(data) + 1):
        if length in whole:
            assert decode_cells(data[:length]).num_rows == whole[length]
        else:
            with pytest.raises(CorruptData):
                decode_cells(data[:length])


def test_entries_that_hudi_does_not_write() -> None:
    good = entry(b"a", b"1")
    deletion = good.replace(KEY_TAIL, KEY_TAIL[:-1] + b"\x08")
    versioned = good[:-1] + b"\x05"
    family = b"\x00\x00\x00\x0e" + good[4:11] + b"\x01f" + good[12:]
    for data in (deletion, versioned, family, good + deletion):
        with pytest.raises(Unsupported):
            decode_cells(data)


def test_sizes_that_fit_no_entry() -> None:
    check_sizes(binary(b"k" * 32767), binary(b""))
    with pytest.raises(InvalidRequest):
        check_sizes(binary(b"k" * 32768), binary(b""))


def test_full_key() -> None:
    assert full_key(b"ab").hex() == "00026162" + "007fffffffffffffff04"
    assert row_from_key(memoryview(full_key(b"ab")[:-1] + b"\xff")) == b"ab"
    for bad in (b"", b"\x00", b"\x00\x03ab"):
        with pytest.raises(CorruptData):
            row_from_key(memoryview(bad))


def test_pieces_cover_everything() -> None:
    rows, values = binary(*(b"%03d" % number for number in range(10))), binary(*(b"v" * number * 10 for number in range(10)))
    found = list(split_ranges(rows, values, 120))
    assert [start for start, _ in found][1:] == [end for _, end in found][:-1]
    assert (found[0][0], found[-1][1]) == (0, 10)
    for start, end in found:
        size = len(data_of(encode_cells(rows[start:end], values[start:end])))
        assert size <= 120 or end == start + 1


def test_cut_pieces() -> None:
    assert copy_ranges(b"abcdef", np.array([0, 1, 4]), np.array([1, 1, 6])).to_pylist() == [b"a", b"", b"ef"]


def test_short_keys_of_release_1_1_snapshots() -> None:
    """Keys are the row and its length; a file with them and one without are decoded together."""
    short = b"".join(entry(row, b"v" + row).replace(KEY_TAIL, b"") for row in (b"a", b"bc"))
    short = short.replace(b"\x00\x00\x00\x0d", b"\x00\x00\x00\x03").replace(b"\x00\x00\x00\x0e", b"\x00\x00\x00\x04")
    usual = entry(b"x", b"y")
    assert decode_cells(short).to_pylist() == [{"key": b"a", "value": b"va"}, {"key": b"bc", "value": b"vbc"}]
    rows, ends = decode_joined([([memoryview(short)], 2), ([memoryview(usual)], 1)])
    assert rows.column("key").to_pylist() == [b"a", b"bc", b"x"] and ends.tolist() == [2, 3]
    with pytest.raises(CorruptData):
        decode_cells(short[:-1])
