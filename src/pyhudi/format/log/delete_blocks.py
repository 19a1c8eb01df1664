"""DELETE blocks <-> Arrow batches.

    content     int version | int size | payload of that size
    version 3   Avro HoodieDeleteRecordList: the array of HoodieDeleteRecord {recordKey, partitionPath, orderingVal}
    version 1   Kryo, HoodieKey[]       (kryo.py)
    version 2   Kryo, DeleteRecord[]    (kryo.py)

Only version 3 is written. Batches are DELETES: record_key string, partition_path string, ordering WRAPPED (see
`format.avro_wrappers`), in the order of the block, to which the RECORD_POSITIONS header refers.

Records in the list have no length prefix, so the start of a record depends on the record before it. Most lists are
regular: keys of one length in one partition. The decoder parses a few records sequentially. If they have the same size,
it compares the bytes that determine their shape (branches, lengths, continuation bits) in all following records at
once, and decodes as many as match. Where the shape changes, sequential parsing resumes.

Specification: docs/formats/log-file.md, DELETE block.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyhudi.errors import CorruptData, InvalidRequest, Unsupported
from pyhudi.format.avro_columns import PAD_BYTES, BinaryNode, Longs, Node, NullableNode, RecordNode, RowCursors, Source, join
from pyhudi.format.avro_wrappers import DELETE_BRANCHES, WRAPPED, WrappedNode, Wrapper, no_ordering
from pyhudi.format.byte_cursor import ByteCursor, encode_zigzag
from pyhudi.format.log.framing import MAX_BLOCK_BYTES
from pyhudi.format.log.kryo import decode_kryo_deletes

DELETES: Final = pa.schema([("record_key", pa.string()), ("partition_path", pa.string()), ("ordering", WRAPPED)])
DELETE_VERSION: Final = 3


def deletes_batch(keys: pa.Array, partition_path: str | pa.Array, ordering: pa.UnionArray | None = None) -> pa.RecordBatch:
    """Return a DELETES batch.

    Args:
        keys: Strings.
        partition_path: One for all, or a string array.
        ordering: WRAPPED (see `wrap_ordering`); None for deletes without an ordering value, which apply
            unconditionally.
    """
    paths = pa.repeat(pa.scalar(partition_path, pa.string()), len(keys)) if isinstance(partition_path, str) else partition_path
    return pa.RecordBatch.from_arrays([keys, paths, no_ordering(len(keys)) if ordering is None else ordering], schema=DELETES)


def encode_deletes(batches: Iterable[pa.RecordBatch]) -> bytes:
    """Encode the content of a DELETE block, version 3.

    Args:
        batches: DELETES.

    Raises:
        InvalidRequest: A delete without a key or an ordering value, on which Hudi's readers fail, or more than the 2
            GiB that a block can hold.
    """
    pieces: list[pa.Buffer | bytes] = []
    count = size = 0
    for batch in batches:
        if batch.column("record_key").null_count:
            raise InvalidRequest("a delete without a record key")
        if bool((np.asarray(batch.column("ordering").type_codes) == Wrapper.NULL).any()):
            raise InvalidRequest("a delete without an ordering value: use IntWrapper(0) for none")
        for start in range(0, batch.num_rows, _CHUNK_ROWS):
            part = batch.slice(start, _CHUNK_ROWS)
            buffer = join(_RECORD.encode_columns(part.columns, part.num_rows), part.num_rows).buffers()[2]
            pieces.append(buffer)
            count += part.num_rows
            size += buffer.size
            if size > MAX_BLOCK_BYTES:
                raise InvalidRequest(f"more than {MAX_BLOCK_BYTES} bytes of deletes for one log block")
    payload = [encode_zigzag(count), *pieces, b"\0"] if count else [b"\0"]
    size = sum(map(len, payload))
    return b"".join([_HEAD.pack(DELETE_VERSION, size), *payload])


def decode_deletes(content: bytes | memoryview) -> Iterator[pa.RecordBatch]:
    """Yield the deletes of a block's content as DELETES batches, decoded lazily.

    Keys and paths are null only in corrupt blocks or blocks of other writers; an ordering value may be on branch NULL.

    Raises:
        CorruptData: Invalid bytes.
        Unsupported: An unknown version, or Kryo objects of other classes.
    """
    view = memoryview(content).cast("B")
    cursor = ByteCursor(view)
    version, size = cursor.i32(), cursor.i32()
    if version < 0:
        raise CorruptData("invalid version of a delete block", offset=0, expected=DELETE_VERSION, found=version)
    if size != cursor.remaining:
        raise CorruptData(
            "the payload size of a delete block does not match the block", offset=4, expected=cursor.remaining, found=size
        )
    if version in (1, 2):
        yield decode_kryo_deletes(view[_HEAD.size :], version, _HEAD.size)
        return
    if version != DELETE_VERSION:
        raise Unsupported(f"version {version} of a delete block is not supported: versions 1 to {DELETE_VERSION} are")
    for starts, ends in _record_ranges(cursor, view):
        yield _decode_records(view, starts, ends)
    cursor.expect_end("a list of deletes")


_HEAD: Final = struct.Struct(">ii")
_CHUNK_ROWS: Final = 16_384

_TEXT: Final = NullableNode(BinaryNode(pa.string()), 1)
_ORDERING: Final = WrappedNode(DELETE_BRANCHES)
_FIELDS: Final[tuple[Node, ...]] = (_TEXT, _TEXT, _ORDERING)
_RECORD: Final = RecordNode(pa.struct(list(DELETES)), _FIELDS)

_TUPLE: Final = DELETE_BRANCHES.index(Wrapper.ARRAY)

# After so many consecutive records of one size, compare the following ones with the last.
_SIMILAR: Final = 16

# Bytes to parse sequentially before comparing shapes again; they are copied each time.
_WALK_BYTES: Final = 8192

# Branch bytes of the values that are variable-length integers.
_NUMBERS: Final = frozenset(
    2 * wrapper for wrapper in (Wrapper.INT, Wrapper.LONG, Wrapper.DATE, Wrapper.TIME_MICROS, Wrapper.TIMESTAMP_MICROS)
)


def _record_ranges(cursor: ByteCursor, view: memoryview) -> Iterator[tuple[Longs, Longs]]:
    """Yield the bounds of the records, in chunks; at the end the cursor is after the closing block."""
    octets = np.frombuffer(view, np.uint8)
    while count := _block_count(cursor):
        while count:
            edges = [np.array([cursor.offset], np.int64)]
            chunk_rows = min(count, _CHUNK_ROWS)
            row_count = 0
            while row_count < chunk_rows:
                walked, alike = _walk(cursor, octets, chunk_rows - row_count)
                edges.append(np.array(walked, np.int64))
                row_count += len(walked)
                if alike:
                    similar_records = _skip_similar(cursor, octets, walked[-2], chunk_rows - row_count)
                    edges.append(similar_records)
                    row_count += len(similar_records)
            count -= row_count
            flat = np.concatenate(edges)
            yield flat[:-1], flat[1:]


def _block_count(cursor: ByteCursor) -> int:
    count = cursor.zigzag()
    if count < 0:
        count = -count
        cursor.zigzag()
    if count * _RECORD.min_bytes > cursor.remaining:
        raise cursor.corrupt("the number of deletes exceeds their block", found=count)
    return count


def _walk(cursor: ByteCursor, octets: npt.NDArray[np.uint8], most: int) -> tuple[list[int], bool]:
    """Parse up to `most` records, fewer if the last ones are equal in size; return their ends and whether they are
    equal.
    """
    # Indexing plain bytes is several times faster than the bounds-checked cursor. Records inside the window are parsed
    # here, the others through the cursor. Zeros after the end are never interpreted as valid data.
    base = cursor.offset
    data = octets[base : base + _WALK_BYTES].tobytes() + bytes(64)
    size_bytes = len(data) - 64
    ends: list[int] = []
    at = last = similar = 0
    for _ in range(most):
        start = at
        if data[at] == 2 and data[at + 1] < 128:
            at += 2 + (data[at + 1] >> 1)
            if at < size_bytes and data[at] == 2 and data[at + 1] < 128:
                at += 2 + (data[at + 1] >> 1)
                if at < size_bytes and data[at] in _NUMBERS:
                    at += 1
                    while data[at] >= 128:
                        at += 1
                    at += 1
                else:
                    at = start
            else:
                at = start
        if not start < at <= size_bytes:
            cursor.offset = base + start
            for node in _FIELDS:
                node.walk(cursor)
            at = cursor.offset - base
        ends.append(base + at)
        similar = similar + 1 if at - start == last else 0
        last = at - start
        if similar >= _SIMILAR or at >= size_bytes:
            break
    cursor.skip(at - (cursor.offset - base))
    return ends, similar >= _SIMILAR


def _skip_similar(cursor: ByteCursor, octets: npt.NDArray[np.uint8], model: int, most: int) -> Longs:
    """Skip the following records, at most `most`, that have the shape of the record at `model`; return their ends."""
    size = cursor.offset - model
    shape = _shape(octets, model, size)
    ends: list[Longs] = []
    step = 4 * _SIMILAR
    while True:
        count = min(step, most, cursor.remaining // size)
        start = cursor.offset
        table = octets[start : start + count * size].reshape(count, size)
        same = np.ones(count, np.bool_)
        for place, mask in shape:
            same &= table[:, place] & mask == octets[model + place] & mask
        good = count if bool(same.all()) else int(np.argmin(same))
        ends.append(start + size * np.arange(1, good + 1, dtype=np.int64))
        cursor.skip(size * good)
        most -= good
        if good < step:
            return np.concatenate(ends)
        step *= 4


def _shape(octets: npt.NDArray[np.uint8], model: int, size: int) -> list[tuple[int, np.uint8]]:
    """Return the bytes of a record that determine where its fields end: (position in the record, bit mask)."""
    cursor = ByteCursor(octets.data, model, model + size)
    shape: list[tuple[int, np.uint8]] = []

    def exact(start: int) -> None:
        shape.extend((place - model, np.uint8(0xFF)) for place in range(start, cursor.offset))

    def text() -> None:
        start = cursor.offset
        length = cursor.zigzag()
        exact(start)
        cursor.skip(length)

    for _ in range(2):
        start = cursor.offset
        branch = cursor.zigzag()
        exact(start)
        if branch:
            text()
    start = cursor.offset
    branch = cursor.zigzag()
    exact(start)
    if branch in (Wrapper.STRING, Wrapper.BYTES, Wrapper.DECIMAL):
        text()
    elif branch == _TUPLE:
        # Tuple items have their own shapes: only records that are equal after the key match.
        cursor.skip(model + size - cursor.offset)
        exact(start)
    elif branch not in (Wrapper.NULL, Wrapper.BOOLEAN, Wrapper.FLOAT, Wrapper.DOUBLE):
        # The integer may differ; its length is the same if the continuation bits are equal.
        shape.extend((place - model, np.uint8(0x80)) for place in range(cursor.offset, model + size))
    return shape


def _decode_records(view: memoryview, starts: Longs, ends: Longs) -> pa.RecordBatch:
    first = int(starts[0])
    rows = RowCursors(Source(view[first : int(ends[-1])], first), starts - first + PAD_BYTES, ends - first + PAD_BYTES)
    batch = pa.RecordBatch.from_arrays(_RECORD.decode_columns(rows, None), schema=DELETES)
    rows.expect_ends()
    return batch
