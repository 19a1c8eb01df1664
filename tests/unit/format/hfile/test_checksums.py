"""CRC-32C by folding against a bytewise implementation, and errors that block checksums detect."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.errors import CorruptData, Unsupported
from pyhudi.format.hfile.checksums import crc32c, encode_checksums, verify_checksums


def crc32c_by_bits(data: bytes) -> int:
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = (register >> 1) ^ (0x82F63B78 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
    ],
)
def test_crc32c_of_published_examples(data: bytes, expected: int) -> None:
    assert crc32c(data) == expected


@given(st.binary(max_size=300))
def test_crc32c_agrees_with_the_definition(data: bytes) -> None:
    assert crc32c(data) == crc32c_by_bits(data)


@given(st.binary(min_size=1, max_size=200), st.integers(1, 64), st.data())
def test_a_flipped_bit_is_found(data: bytes, chunk: int, draw: st.DataObject) -> None:
    stored = memoryview(encode_checksums(data, chunk))
    verify_checksums(1, memoryview(data), chunk, stored)
    damaged = bytearray(data)
    damaged[draw.draw(st.integers(0, len(data) - 1))] ^= 1 << draw.draw(st.integers(0, 7))
    with pytest.raises(CorruptData):
        verify_checksums(1, memoryview(damaged), chunk, stored)


def test_each_type_is_checked_as_its_own() -> None:
    data = memoryview(b"123456789")
    verify_checksums(0, data, 0, memoryview(b""))
    # As Hudi 1.1 writes them: room for the sum of each chunk, and no sums.
    verify_checksums(0, data, 16384, memoryview(bytes(8)))
    verify_checksums(1, data, 16384, memoryview(bytes.fromhex("cbf43926")))
    verify_checksums(2, data, 16384, memoryview(bytes.fromhex("e3069283")))
    with pytest.raises(CorruptData):
        verify_checksums(2, data, 16384, memoryview(bytes.fromhex("cbf43926")))
    with pytest.raises(CorruptData):
        verify_checksums(1, data, 4, memoryview(bytes.fromhex("cbf43926")))
    with pytest.raises(CorruptData):
        verify_checksums(1, data, 0, memoryview(bytes.fromhex("cbf43926")))
    with pytest.raises(Unsupported):
        verify_checksums(3, data, 16384, memoryview(bytes(4)))
    with pytest.raises(CorruptData, match="type 0 has checksums"):
        verify_checksums(0, data, 16384, memoryview(bytes.fromhex("cbf43926")))
