"""Codecs of HFile blocks: exact lengths, regardless of the length in the bytes."""

from __future__ import annotations

import gzip

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.errors import CorruptData, InvalidRequest, Unsupported
from pyhudi.format.hfile.compression import Codec, compress, decompress

READ = [Codec.NONE, Codec.GZ, Codec.SNAPPY, Codec.ZSTD]
TEXT = b"a text that repeats itself, " * 20


def snappy_stream(*groups: tuple[bytes, ...]) -> bytes:
    out = b""
    for group in groups:
        out += sum(map(len, group)).to_bytes(4, "big")
        for chunk in group:
            packed = pa.Codec("snappy").compress(chunk, asbytes=True)
            out += len(packed).to_bytes(4, "big") + packed
    return out


def packed(codec: Codec, data: bytes) -> bytes:
    if codec is Codec.SNAPPY:
        return snappy_stream((data[:100], data[100:])) if len(data) > 100 else snappy_stream((data,)) if data else b""
    if codec is Codec.ZSTD:
        return bytes(pa.Codec("zstd").compress(data, asbytes=True))
    return compress(data, codec, 6)


@pytest.mark.parametrize("codec", READ)
def test_round_trip(codec: Codec) -> None:
    for data in (b"", b"x", TEXT):
        assert bytes(decompress(memoryview(packed(codec, data)), codec, len(data))) == data


@pytest.mark.parametrize("codec", READ)
@pytest.mark.parametrize("difference", [-1, 1, 1000])
def test_another_length_than_promised_is_corrupt(codec: Codec, difference: int) -> None:
    with pytest.raises(CorruptData):
        decompress(memoryview(packed(codec, TEXT)), codec, len(TEXT) + difference)


@pytest.mark.parametrize("codec", READ)
def test_truncated_at_each_byte(codec: Codec) -> None:
    data = packed(codec, TEXT)
    for length in range(len(data)):
        with pytest.raises(CorruptData):
            decompress(memoryview(data)[:length], codec, len(TEXT))


@given(st.sampled_from(READ), st.data())
def test_a_flipped_bit_gives_a_value_or_corrupt_data(codec: Codec, draw: st.DataObject) -> None:
    data = bytearray(packed(codec, TEXT))
    data[draw.draw(st.integers(0, len(data) - 1))] ^= 1 << draw.draw(st.integers(0, 7))
    try:
        assert len(decompress(memoryview(data), codec, len(TEXT))) == len(TEXT)
    except CorruptData:
        pass


def test_small_stream_cannot_allocate_a_huge_buffer() -> None:
    bomb = gzip.compress(bytes(100_000_000), 9)
    with pytest.raises(CorruptData):
        decompress(memoryview(bomb), Codec.GZ, 1000)
    with pytest.raises(CorruptData):
        decompress(memoryview(packed(Codec.SNAPPY, b"x")), Codec.SNAPPY, 1 << 30)
    with pytest.raises(Unsupported):
        decompress(memoryview(packed(Codec.ZSTD, b"x")), Codec.ZSTD, 1 << 30)


@pytest.mark.parametrize("codec", [Codec.LZO, Codec.LZ4, Codec.BZIP2])
def test_codecs_that_are_not_read(codec: Codec) -> None:
    with pytest.raises(Unsupported):
        decompress(memoryview(b"abc"), codec, 3)


@pytest.mark.parametrize("codec", [Codec.SNAPPY, Codec.ZSTD, Codec.LZ4])
def test_codecs_that_hudi_does_not_open_are_not_written(codec: Codec) -> None:
    with pytest.raises(InvalidRequest):
        compress(b"abc", codec, 1)


def test_an_empty_block_is_a_gzip_member_of_20_bytes() -> None:
    assert len(compress(b"", Codec.GZ, 6)) == 20
