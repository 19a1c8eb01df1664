"""Integers as bytes: known encodings, every length, and bounds."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.errors import CorruptData
from pyhudi.format.byte_cursor import ByteCursor, encode_varint, encode_vlong, encode_zigzag

I64 = st.integers(-(1 << 63), (1 << 63) - 1)
U64 = st.integers(0, (1 << 64) - 1)


@pytest.mark.parametrize(
    ("value", "data"),
    [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (8289, "e140"), ((1 << 64) - 1, "ffffffffffffffffff01")],
)
def test_varint(value: int, data: str) -> None:
    assert encode_varint(value).hex() == data
    assert ByteCursor(bytes.fromhex(data)).varint() == value


@pytest.mark.parametrize(
    ("value", "data"),
    [(0, "00"), (-1, "01"), (1, "02"), (-64, "7f"), (64, "8001"), (1795237158628, "c8fbc8c7bf68"), (180, "e802")],
)
def test_zigzag(value: int, data: str) -> None:
    assert encode_zigzag(value).hex() == data
    assert ByteCursor(bytes.fromhex(data)).zigzag() == value


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (0, "00"),
        (127, "7f"),
        (-112, "90"),
        (128, "8f80"),
        (-113, "8770"),
        (255, "8fff"),
        (256, "8e0100"),
        (-256, "87ff"),
        (-257, "860100"),
        ((1 << 63) - 1, "887fffffffffffffff"),
        (-(1 << 63), "807fffffffffffffff"),
    ],
)
def test_vlong(value: int, data: str) -> None:
    assert encode_vlong(value).hex() == data
    assert ByteCursor(bytes.fromhex(data)).vlong() == value


@given(I64)
def test_signed_round_trip_and_no_prefix_is_a_value(value: int) -> None:
    for encode, read in ((encode_zigzag, ByteCursor.zigzag), (encode_vlong, ByteCursor.vlong)):
        data = encode(value)
        cursor = ByteCursor(data + b"\xff")
        assert read(cursor) == value
        assert cursor.offset == len(data)
        for end in range(len(data)):
            with pytest.raises(CorruptData):
                read(ByteCursor(data[:end]))


@given(U64)
def test_unsigned_round_trip(value: int) -> None:
    data = encode_varint(value)
    assert ByteCursor(data).varint() == value
    assert len(data) == max(1, -(-value.bit_length() // 7))


@pytest.mark.parametrize("data", ["ffffffffffffffffff02", "8080808080808080808000", "ff"])
def test_varints_that_are_too_long(data: str) -> None:
    cursor = ByteCursor(bytes.fromhex(data))
    with pytest.raises(CorruptData):
        cursor.varint()
    assert cursor.offset == 0


def test_vlong_of_more_than_64_bits() -> None:
    with pytest.raises(CorruptData):
        ByteCursor(bytes.fromhex("88ffffffffffffffff")).vlong()


@pytest.mark.parametrize("value", [1 << 63, -(1 << 63) - 1])
def test_values_that_do_not_fit(value: int) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        encode_vlong(value)
    with pytest.raises(ValueError, match="does not fit"):
        encode_zigzag(value)


def test_fixed_numbers_are_big_endian_and_advance() -> None:
    data = struct.pack(">bBhiIqfd", -1, 200, -2, -3, 4294967295, -4, 1.5, -2.5)
    cursor = ByteCursor(data, 1)
    values = (cursor.u8(), cursor.i16(), cursor.i32(), cursor.u32(), cursor.i64())
    assert values == (200, -2, -3, 4294967295, -4)
    assert (cursor.f32(), cursor.f64()) == (1.5, -2.5)
    cursor.expect_end("the numbers")


@pytest.mark.parametrize("name", ["u8", "i16", "i32", "u32", "i64", "f32", "f64", "varint", "zigzag", "vlong"])
def test_reading_past_the_end_does_not_advance(name: str) -> None:
    cursor = ByteCursor(b"\x88" * 16, 3, 3, base=100)
    with pytest.raises(CorruptData) as caught:
        getattr(cursor, name)()
    assert caught.value.offset == 103
    assert cursor.offset == 3


def test_take_is_a_view_of_exactly_what_is_left() -> None:
    cursor = ByteCursor(b"abcdef", 1, 5)
    assert bytes(cursor.read(4)) == b"bcde"
    assert cursor.remaining == 0
    for size in (1, -1, 1 << 62):
        with pytest.raises(CorruptData):
            cursor.read(size)


def test_text_must_be_utf8() -> None:
    assert ByteCursor("é".encode()).text(2) == "é"
    cursor = ByteCursor(b"\xff\xfe")
    with pytest.raises(CorruptData):
        cursor.text(2)
    assert cursor.offset == 0


def test_expect_names_what_is_missing() -> None:
    cursor = ByteCursor(b"#HUD")
    with pytest.raises(CorruptData, match="the magic"):
        cursor.expect(b"#HUDI#", "the magic")
    cursor.expect(b"#HU", "the start")
    with pytest.raises(CorruptData, match="the block"):
        cursor.expect_end("the block")


@pytest.mark.parametrize(("offset", "end"), [(-1, 2), (2, 1), (0, 4), (4, None)])
def test_a_range_outside_the_data(offset: int, end: int | None) -> None:
    with pytest.raises(CorruptData):
        ByteCursor(b"abc", offset, end)
