"""The 33-byte block header and its surroundings."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.errors import CorruptData, InvalidRequest, Unsupported
from pyhudi.format.hfile.blocks import HEADER_BYTES, BlockKind, decode_block, encode_block, expect_block
from pyhudi.format.hfile.compression import Codec

DATA = b"some data of a block " * 5


def test_layout_of_an_encoded_block() -> None:
    block = encode_block(BlockKind.META, DATA, Codec.NONE, previous_offset=-1, level=1)
    assert block[:8] == b"METABLKc"
    assert int.from_bytes(block[8:12], "big") == len(DATA) + 4 == len(block) - HEADER_BYTES
    assert int.from_bytes(block[12:16], "big") == len(DATA)
    assert block[16:24] == b"\xff" * 8
    assert block[24] == 1
    assert int.from_bytes(block[25:29], "big") >= len(block)
    assert int.from_bytes(block[29:33], "big") == 33 + len(DATA)
    assert block[-4:] == zlib.crc32(block[:-4]).to_bytes(4, "big")


@pytest.mark.parametrize("codec", [Codec.GZ, Codec.NONE])
@pytest.mark.parametrize("data", [b"", DATA])
def test_round_trip_inside_a_window(codec: Codec, data: bytes) -> None:
    encoded = encode_block(BlockKind.DATA, data, codec, previous_offset=77, level=9)
    block = decode_block(memoryview(b"before" + encoded + b"after"), 6, codec)
    assert (block.kind, bytes(block.data), block.size_bytes) == (BlockKind.DATA, data, len(encoded))


@pytest.mark.parametrize("codec", [Codec.GZ, Codec.NONE])
def test_truncated_at_each_byte(codec: Codec) -> None:
    encoded = encode_block(BlockKind.DATA, DATA, codec, previous_offset=-1, level=1)
    for length in range(len(encoded)):
        with pytest.raises(CorruptData):
            decode_block(memoryview(encoded)[:length], 0, codec)


@given(st.data())
def test_a_flipped_bit_is_found(draw: st.DataObject) -> None:
    encoded = bytearray(encode_block(BlockKind.DATA, DATA, Codec.GZ, previous_offset=-1, level=1))
    encoded[draw.draw(st.integers(0, len(encoded) - 1))] ^= 1 << draw.draw(st.integers(0, 7))
    # A checksum type that became "none" leaves nothing to check but the lengths, which then leave 4 bytes over.
    try:
        block = decode_block(memoryview(encoded), 0, Codec.GZ)
    except (CorruptData, Unsupported):
        return
    assert encoded[24] == 0
    assert bytes(block.data) == DATA


def test_the_kind_is_checked() -> None:
    encoded = memoryview(encode_block(BlockKind.META, DATA, Codec.GZ, previous_offset=-1, level=1))
    assert bytes(expect_block(encoded, 0, BlockKind.META, Codec.GZ).data) == DATA
    with pytest.raises(CorruptData) as caught:
        expect_block(encoded, 0, BlockKind.DATA, Codec.GZ, window_offset=1000)
    assert caught.value.offset == 1000


def test_positions_outside_the_window() -> None:
    encoded = memoryview(encode_block(BlockKind.META, DATA, Codec.GZ, previous_offset=-1, level=1))
    for position in (-1, len(encoded), 1 << 40):
        with pytest.raises(CorruptData):
            decode_block(encoded, position, Codec.GZ)


def test_gzip_level_and_codec_are_the_callers() -> None:
    with pytest.raises(InvalidRequest):
        encode_block(BlockKind.META, DATA, Codec.ZSTD, previous_offset=-1, level=1)
