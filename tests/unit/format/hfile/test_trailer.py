"""The trailer and the file info."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.errors import CorruptData, Unsupported
from pyhudi.format.hfile.compression import Codec
from pyhudi.format.hfile.file_info import decode_file_info, encode_file_info
from pyhudi.format.hfile.trailer import TRAILER_BYTES, Trailer, decode_trailer, encode_trailer

SIZE = 6978
# The trailer of a real base file of 6978 bytes.
REAL = Trailer(
    file_info_offset=951,
    load_on_open_offset=786,
    data_index_size_bytes=43,
    total_uncompressed_bytes=440054 - 54,
    data_index_count=1,
    meta_index_count=1,
    entry_count=1,
    index_levels=1,
    first_data_block_offset=0,
    last_data_block_offset=0,
    codec=Codec.GZ,
)


def test_a_real_trailer() -> None:
    head = bytes.fromhex("5452 4142 4c4b 2224 4e 08b707 109206 182b 20f68c1b 2801 3001 3801 4001 4800 5000 5a32".replace(" ", ""))
    text = head + b"org.apache.hudi.io.storage.HoodieHBaseKVComparator" + bytes.fromhex("6001")
    data = text.ljust(TRAILER_BYTES - 4, b"\x00") + bytes.fromhex("03000003")
    trailer = decode_trailer(data, SIZE)
    assert trailer == replace(REAL, total_uncompressed_bytes=0x1B << 14 | 0x0C << 7 | 0x76)
    assert encode_trailer(trailer) == data


def test_an_empty_file_has_no_data_blocks() -> None:
    trailer = replace(REAL, first_data_block_offset=None, last_data_block_offset=None)
    assert decode_trailer(encode_trailer(trailer), SIZE) == trailer


def test_the_comparator_does_not_matter_and_a_missing_codec_is_none() -> None:
    data = encode_trailer(REAL).replace(b"HoodieHBaseKVComparator", b"SomeOtherKindComparator")
    assert decode_trailer(data, SIZE) == REAL
    # Field 12 becomes field 14, which does not exist.
    assert decode_trailer(data.replace(b"\x60\x01", b"\x70\x01"), SIZE).codec is Codec.NONE


@pytest.mark.parametrize("size", [0, 4095])
def test_files_that_are_too_short(size: int) -> None:
    with pytest.raises(CorruptData):
        decode_trailer(bytes(size), size)


def test_versions_codecs_and_encryption_that_are_not_read() -> None:
    data = encode_trailer(REAL)
    with pytest.raises(Unsupported):
        decode_trailer(data[:-4] + bytes.fromhex("03000002"), SIZE)
    with pytest.raises(Unsupported):
        decode_trailer(data.replace(b"\x60\x01", b"\x60\x09"), SIZE)
    encrypted = data.replace(b'TRABLK"$\x4e', b'TRABLK"$\x51').replace(b"\x60\x01\x00\x00\x00", b"\x60\x01\x6a\x01x")
    with pytest.raises(Unsupported):
        decode_trailer(encrypted, SIZE)


def test_an_empty_encryption_key_is_no_encryption() -> None:
    """Snapshots of release 1.1.0 wrote one."""
    data = encode_trailer(REAL)
    unencrypted = data.replace(b'TRABLK"$\x4e', b'TRABLK"$\x50').replace(b"\x60\x01\x00\x00", b"\x60\x01\x6a\x00")
    assert unencrypted != data and decode_trailer(unencrypted, SIZE) == REAL


@pytest.mark.parametrize("field", [{"load_on_open_offset": SIZE}, {"index_levels": 0}, {"index_levels": 1000}])
def test_impossible_numbers(field: dict[str, int]) -> None:
    with pytest.raises(CorruptData):
        decode_trailer(encode_trailer(replace(REAL, **field)), SIZE)  # type: ignore[arg-type]


@given(st.integers(0, 100), st.integers(0, 7))
def test_a_flipped_bit_gives_a_value_or_a_known_error(position: int, bit: int) -> None:
    data = bytearray(encode_trailer(REAL))
    data[position] ^= 1 << bit
    try:
        decode_trailer(bytes(data), SIZE)
    except (CorruptData, Unsupported):
        pass


def test_file_info_layout() -> None:
    data = encode_file_info({"b": b"\x00" * 200, "a": b""})
    assert data[:4] == b"PBUF"
    assert data[6:].startswith(b"\x0a\x05\x0a\x01a\x12\x00\x0a")
    assert decode_file_info(memoryview(data)) == {"a": b"", "b": b"\x00" * 200}


@given(st.data())
def test_damaged_file_info(draw: st.DataObject) -> None:
    data = bytearray(encode_file_info({"KEY_VALUE_VERSION": b"\x00\x00\x00\x01", "schema": b"{}"}))
    if draw.draw(st.booleans()):
        with pytest.raises(CorruptData):
            decode_file_info(memoryview(data)[: draw.draw(st.integers(0, len(data) - 1))])
    data[draw.draw(st.integers(0, len(data) - 1))] ^= 1 << draw.draw(st.integers(0, 7))
    try:
        decode_file_info(memoryview(data))
    except CorruptData:
        pass
