"""The RECORD_POSITIONS header: text of Apache Hudi, the Roaring library, damaged bytes."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from pyhudi.errors import CorruptData, InvalidRequest
from pyhudi.format.log.record_positions import decode_positions, encode_positions
from tests.support.vectors import vector_body


@pytest.mark.parametrize(
    ("text", "positions"),
    [
        ("AQAAAAAAAAAAAAAAOjAAAAEAAAAAAAMAEAAAABgAMQDqAO8A", [24, 49, 234, 239]),
        ("AQAAAAAAAAAAAAAAOzAAAAEAAGMAAQAKAGMA", list(range(10, 110))),
    ],
)
def test_headers_of_the_reference(text: str, positions: list[int]) -> None:
    assert decode_positions(text).tolist() == positions
    assert decode_positions(text, len(positions)).tolist() == positions
    assert encode_positions(np.array(positions)) == text
    with pytest.raises(CorruptData, match="number of positions differs"):
        decode_positions(text, len(positions) + 1)


def test_header_of_apache_hudi() -> None:
    text = vector_body("log/record_positions_header_v3.data").decode().strip()
    expected = [int(n) for n in vector_body("log/expected_record_positions.data").decode().strip().split(",")]
    assert decode_positions(text).tolist() == sorted(expected)
    assert encode_positions(np.array(sorted(expected))) == text


RANGES = st.lists(st.tuples(st.integers(0, 2**34), st.integers(1, 9000), st.integers(1, 3)), max_size=5)


@given(RANGES)
def test_record_positions_round_trip_with_pyroaring(ranges: list[tuple[int, int, int]]) -> None:
    # Long ranges with steps make arrays, bitmaps and runs.
    positions = np.unique(np.concatenate([np.arange(a, a + n * step, step) for a, n, step in ranges] or [np.zeros(0, np.int64)]))
    text = encode_positions(positions)
    assert decode_positions(text).tolist() == positions.tolist()
    assert BitMap64.deserialize(base64.b64decode(text)) == BitMap64(positions.tolist())


def test_positions_must_rise() -> None:
    for positions in ([1, 1], [2, 1], [-1, 2]):
        with pytest.raises(InvalidRequest):
            encode_positions(np.array(positions))


def test_few_bytes_that_claim_many_positions() -> None:
    def word(value: int, size: int = 2) -> bytes:
        return value.to_bytes(size, "little")

    run = word(1) + word(0) + word(0xFFFF)
    out = io.BytesIO()
    out.write(word(1, 8) + word(0, 4) + word(0x303B) + word(4095) + b"\xff" * 512)
    out.write(b"".join(word(key) + word(0xFFFF) for key in range(4096)) + bytes(4 * 4096) + run * 4096)
    with pytest.raises(CorruptData, match="more positions"):
        decode_positions(base64.b64encode(out.getvalue()).decode())


SAMPLES = [
    encode_positions(np.array([0, 5, 9, 70_000, 2**33])),
    encode_positions(np.arange(100, 5000)),
    encode_positions(np.concatenate([np.arange(start, start + 20) for start in range(0, 500_000, 70_000)])),
]


@pytest.mark.parametrize("text", SAMPLES)
def test_every_truncation_is_an_error(text: str) -> None:
    data = base64.b64decode(text)
    for end in range(len(data)):
        with pytest.raises(CorruptData):
            decode_positions(base64.b64encode(data[:end]).decode())
    with pytest.raises(CorruptData):
        decode_positions(base64.b64encode(data + b"\0").decode())
    with pytest.raises(CorruptData):
        decode_positions(text[:-1] + "é")


@pytest.mark.parametrize("text", SAMPLES)
def test_flipped_bits_give_rising_positions_or_an_error(text: str) -> None:
    data = base64.b64decode(text)
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit >> 3] ^= 1 << (bit & 7)
        try:
            found = decode_positions(base64.b64encode(damaged).decode())
        except CorruptData:
            continue
        assert (found[1:] > found[:-1]).all()
        assert not len(found) or found[0] >= 0


def test_bitmap_containers() -> None:
    positions = np.unique(np.random.default_rng(3).integers(0, 200_000, 60_000))
    assert (decode_positions(encode_positions(positions), len(positions)) == positions).all()
