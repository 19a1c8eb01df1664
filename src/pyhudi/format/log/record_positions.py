"""RECORD_POSITIONS header: the row positions in the base file of a block's records.

The value is the base64 text of a 64-bit Roaring bitmap in its portable form, little-endian:

    bitmap      u64 buckets, then per bucket: u32 high half of the positions, a 32-bit bitmap
    32-bit      u32 0x303A, u32 containers                               no runs
                u16 0x303B, u16 containers - 1, one flag bit each        some containers are runs
                per container: u16 key (the next 16 bits), u16 positions - 1
                per container: u32 offset                                not when there are runs and fewer than 4 containers
                the containers
    container   u16 positions (up to 4096) | 8192 bytes, one bit each | u16 runs, then per run: u16 first, u16 length - 1

A position is a row number in the base file, from 0. The i-th record of the block has the i-th smallest position.
Encoding uses the Roaring library, which optimises runs; decoding is implemented here because that library does not
validate its input.

Specification: docs/formats/log-file.md, record positions; RoaringFormatSpec of the Roaring bitmap project.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from pyhudi.errors import CorruptData, InvalidRequest
from pyhudi.format.byte_cursor import ByteCursor

Positions = npt.NDArray[np.int64]

MAX_POSITIONS: Final = 1 << 27
"""Exceeds the records of any block of 2 GiB; a few bytes of runs could encode more."""


def encode_positions(positions: Positions) -> str:
    """Return the header value.

    Args:
        positions: int64, ascending, not negative.

    Raises:
        InvalidRequest: Other positions.
    """
    if len(positions) and (int(positions[0]) < 0 or not bool((positions[1:] > positions[:-1]).all())):
        raise InvalidRequest("record positions must ascend")
    return base64.b64encode(BitMap64(positions.astype(np.uint64)).serialize()).decode("ascii")


def decode_positions(text: str, record_count: int | None = None, *, content_bytes: int = MAX_POSITIONS) -> Positions:
    """Return the positions in a header, ascending.

    Args:
        text: The header value.
        record_count: Number of records in the block, if known; another number of positions is corruption.
        content_bytes: Size of the block's content, which bounds how many records it can have.

    Raises:
        CorruptData: The text is not a valid bitmap.
    """
    try:
        data = base64.b64decode(text.encode("utf-8", "replace"), validate=True)
    except (binascii.Error, ValueError) as error:
        raise CorruptData(f"record positions are not base64: {error}") from error
    cursor = ByteCursor(data)
    capacity = min(MAX_POSITIONS, max(_ALWAYS_ALLOWED, _MOST_PER_BYTE * content_bytes))
    buckets = int.from_bytes(cursor.read(8), "little")
    if buckets > cursor.remaining // _MIN_BUCKET:
        raise cursor.corrupt("invalid number of buckets", found=buckets)
    parts: list[Positions] = []
    last_high = -1
    count = 0
    for _ in range(buckets):
        high = int.from_bytes(cursor.read(4), "little")
        if not last_high < high < 1 << 31:
            raise cursor.corrupt("buckets of positions do not ascend", found=high)
        last_high = high
        count += _decode_bucket(cursor, high << 32, parts, capacity - count)
    cursor.expect_end("a bitmap of record positions")
    if record_count is not None and count != record_count:
        raise CorruptData(
            "the number of positions differs from the number of records in the block", expected=record_count, found=count
        )
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


_MIN_BUCKET: Final = 4 + 4
_ALWAYS_ALLOWED: Final = 1 << 20
# A record of a Parquet block may take less than one bit of each column.
_MOST_PER_BYTE: Final = 64
_NO_RUNS: Final = 0x303A
_RUNS: Final = 0x303B
_NO_OFFSETS_BELOW: Final = 4
_MAX_ARRAY: Final = 4096
_BITMAP_BYTES: Final = 8192


def _decode_bucket(cursor: ByteCursor, high: int, parts: list[Positions], capacity: int) -> int:
    """Append the positions of one 32-bit bitmap, at most `capacity`, and return their number."""
    cookie = int.from_bytes(cursor.read(4), "little")
    if cookie == _NO_RUNS:
        containers = int.from_bytes(cursor.read(4), "little")
        flags = np.zeros(0, np.bool_)
    elif cookie & 0xFFFF == _RUNS:
        containers = (cookie >> 16) + 1
        flags = np.unpackbits(np.frombuffer(cursor.read((containers + 7) // 8), np.uint8), bitorder="little").view(np.bool_)
    else:
        raise cursor.corrupt("invalid cookie of a bitmap", expected=_NO_RUNS, found=cookie)
    if containers > 1 << 16:
        raise cursor.corrupt("invalid number of containers", found=containers)
    heads = np.frombuffer(cursor.read(4 * containers), "<u2").reshape(-1, 2).astype(np.int64)
    if bool((heads[1:, 0] <= heads[:-1, 0]).any()):
        raise cursor.corrupt("containers of positions do not ascend")
    total = int(heads[:, 1].sum()) + containers
    if total > capacity:
        raise cursor.corrupt("more positions than a block has records", expected=capacity, found=total)
    if not len(flags) or containers >= _NO_OFFSETS_BELOW:
        # Containers are contiguous, so their offsets are redundant.
        cursor.skip(4 * containers)
    for index, (key, cardinality) in enumerate(heads.tolist()):
        is_run = index < len(flags) and bool(flags[index])
        parts.append(_decode_container(cursor, cardinality + 1, is_run=is_run) + (high | key << 16))
    return total


def _decode_container(cursor: ByteCursor, cardinality: int, *, is_run: bool) -> Positions:
    if is_run:
        count = int.from_bytes(cursor.read(2), "little")
        runs = np.frombuffer(cursor.read(4 * count), "<u2").reshape(-1, 2).astype(np.int64)
        lengths = runs[:, 1] + 1
        if bool((runs[1:, 0] <= (runs[:, 0] + runs[:, 1])[:-1]).any()) or bool((runs.sum(axis=1) > 0xFFFF).any()):
            raise cursor.corrupt("runs of positions overlap")
        if int(lengths.sum()) != cardinality:
            raise cursor.corrupt("runs differ in length from their container", expected=cardinality, found=int(lengths.sum()))
        before = np.cumsum(lengths) - lengths
        return np.repeat(runs[:, 0] - before, lengths) + np.arange(cardinality, dtype=np.int64)
    if cardinality <= _MAX_ARRAY:
        values = np.frombuffer(cursor.read(2 * cardinality), "<u2").astype(np.int64)
        if bool((values[1:] <= values[:-1]).any()):
            raise cursor.corrupt("positions do not ascend")
        return values
    bits = np.unpackbits(np.frombuffer(cursor.read(_BITMAP_BYTES), np.uint8), bitorder="little")
    values = np.nonzero(bits)[0].astype(np.int64)
    if len(values) != cardinality:
        raise cursor.corrupt("the number of positions differs from their container", expected=cardinality, found=len(values))
    return values
