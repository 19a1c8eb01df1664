"""HFile reader: full scans, ranges, prefixes and key lookups.

A file is opened from its size and a function that reads a range of it:

    1. The tail (64 KiB, or the whole file) contains the trailer and usually the load-on-open section: root index, meta
       index and file info, adjacent and in this order. A longer section costs a second read.
    2. A request becomes ranges of rows, ascending and disjoint. The root index selects the blocks that can overlap them.
       With more levels, the overlapping leaf blocks are read and searched in the same way.
    3. Data blocks that are adjacent, or nearly, are read at once, and decoded together up to a few MiB.
    4. Entries outside the ranges are dropped.

Batches are CELL_SCHEMA: key binary (the row), value binary, no nulls, in file order, which is ascending by unsigned
bytes. Memory is bounded by one read (8 MiB, or one larger block) and one batch. Data blocks are read to their true end,
which includes entries that Java's native reader misses. There is no cache: for frequent lookups, retain the HFile
value, which holds the root index.

Specification: docs/formats/hfile.md.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptData, InvalidRequest, Unsupported
from pyhudi.format.expansion import expansion_limit
from pyhudi.format.hfile.blocks import BlockKind, decode_block, expect_block
from pyhudi.format.hfile.cells import decode_cells
from pyhudi.format.hfile.file_info import MAX_VERSION_NUMBER, decode_file_info
from pyhudi.format.hfile.index import (
    BlockIndex,
    IndexEntry,
    Objects,
    decode_index,
    decode_meta_index,
    decode_root_index,
    object_array,
)
from pyhudi.format.hfile.trailer import TRAILER_BYTES, Trailer, decode_trailer

ReadRange = Callable[[int, int], "bytes | memoryview"]

_TAIL_BYTES = 64 << 10
_MAX_READ_BYTES = 8 << 20
# Reading across a gap of this size costs less than another request, also on object stores.
_MAX_GAP_BYTES = 64 << 10
_BATCH_BYTES = 4 << 20
# Uncompressed size of a file that is decoded at once.
_MAX_SMALL_FILE_BYTES = 1 << 28


@dataclass(frozen=True, slots=True)
class HFile:
    """An open file. Data is read on demand.

    Attributes:
        read_range: Reads a range of the file.
        trailer: Its trailer.
        file_info: Its file info.
        root: Its root index.
        meta: Its meta blocks by name.
    """

    read_range: ReadRange
    trailer: Trailer
    file_info: Mapping[str, bytes]
    root: BlockIndex
    meta: Mapping[str, IndexEntry]

    @property
    def entry_count(self) -> int:
        """Number of entries recorded in the trailer."""
        return self.trailer.entry_count

    def scan(self, start: bytes | None = None, stop: bytes | None = None) -> Iterator[pa.RecordBatch]:
        """Yield entries with start <= row < stop; None is no bound.

        Raises:
            CorruptData: Invalid bytes, or a full scan returns another number of entries than the trailer records.
        """
        if start is None and stop is None:
            return self._scan_all()
        is_empty = stop is not None and stop <= (start or b"")
        return self._scan_ranges([] if is_empty else [(start or b"", stop)])

    def scan_prefixes(self, prefixes: Sequence[bytes]) -> Iterator[pa.RecordBatch]:
        """Yield entries whose row starts with one of the prefixes, each entry once.

        Prefixes may be unordered and may overlap.
        """
        ranges: list[tuple[bytes, bytes | None]] = []
        for prefix in sorted(set(prefixes)):
            if not ranges or not (ranges[-1][1] is None or prefix < ranges[-1][1]):
                ranges.append((prefix, _after_prefix(prefix)))
        return self._scan_ranges(ranges)

    def lookup(self, keys: pa.BinaryArray | pa.StringArray) -> Iterator[pa.RecordBatch]:
        """Yield the entries of these keys; keys that do not exist in the file are omitted.

        Args:
            keys: Binary or string, strictly ascending by bytes, no nulls.

        Raises:
            InvalidRequest: Other keys.
        """
        lookup_keys = ascending_keys(keys)
        objects: Objects = lookup_keys.to_numpy(zero_copy_only=False)
        for batch in self._batches(self._touched(_Ranges.of_points(objects))):
            rows = batch.column("key")
            first = int(np.searchsorted(objects, rows[0].as_py(), side="left"))
            last = int(np.searchsorted(objects, rows[-1].as_py(), side="right"))
            matches = pc.index_in(lookup_keys.slice(first, last - first), value_set=rows).drop_null()
            if len(matches):
                yield batch.take(matches)

    def block_rows(self) -> list[bytes]:
        """Return for each data block a row up to its first one, after all rows of the blocks before it."""
        return [entry.row for entry in self._touched(None)]

    def meta_block(self, name: str) -> bytes | None:
        """Return the data of a meta block; None if the file has no block of that name."""
        entry = self.meta.get(name)
        if entry is None:
            return None
        window = self._read(entry.offset, entry.size_bytes)
        return bytes(expect_block(window, 0, BlockKind.META, self.trailer.codec, window_offset=entry.offset).data)

    def _scan_all(self) -> Iterator[pa.RecordBatch]:
        row_count = 0
        for batch in self._batches(self._touched(None)):
            row_count += batch.num_rows
            yield batch
        self.check_entry_count(row_count)

    def check_entry_count(self, row_count: int) -> None:
        """Raise CorruptData if a scan of all entries, perhaps in ranges, had another number than the trailer records."""
        if row_count != self.entry_count:
            raise CorruptData(
                "an HFile scan and its trailer disagree on the number of entries", expected=self.entry_count, found=row_count
            )

    def _scan_ranges(self, ranges: Sequence[tuple[bytes, bytes | None]]) -> Iterator[pa.RecordBatch]:
        row_ranges = _Ranges.of(ranges)
        for batch in self._batches(self._touched(row_ranges)):
            filtered = row_ranges.filter(batch)
            if filtered.num_rows:
                yield filtered

    def _touched(self, ranges: _Ranges | None) -> Iterator[IndexEntry]:
        """Yield the data blocks that overlap the ranges (None: all), in file order, reading index blocks lazily."""
        return self._descend(self.root, ranges, self.trailer.index_levels, [0] * (self.trailer.index_levels + 1))

    def _descend(self, index: BlockIndex, ranges: _Ranges | None, level: int, ends: list[int]) -> Iterator[IndexEntry]:
        """Yield the data blocks below an index. ends: the end of the last visited block of each level, which is changed."""
        chosen = range(len(index)) if ranges is None else np.flatnonzero(ranges.intersects(index.rows)).tolist()
        kind = BlockKind.LEAF_INDEX if level == 2 else BlockKind.INTERMEDIATE_INDEX
        for position in chosen:
            entry = index.entry(position)
            # Blocks of a level ascend, so that the file's size bounds how many are visited.
            if entry.offset < ends[level]:
                raise CorruptData(
                    "blocks of an HFile index level overlap", offset=entry.offset, expected=ends[level], found=entry.offset
                )
            ends[level] = entry.offset + entry.size_bytes
            if level == 1:
                yield entry
                continue
            window = self._read(entry.offset, entry.size_bytes)
            block = expect_block(window, 0, kind, self.trailer.codec, window_offset=entry.offset)
            below = decode_index(block.data, limit=self.trailer.load_on_open_offset, offset=entry.offset)
            here = ranges
            if ranges is not None:
                stop = index.rows[position + 1] if position + 1 < len(index) else None
                here = ranges.within(entry.row if position else None, stop)
            yield from self._descend(below, here, level - 1, ends)

    def _batches(self, entries: Iterator[IndexEntry]) -> Iterator[pa.RecordBatch]:
        """Yield the entries of the blocks, several blocks to a batch; no empty batches."""
        block_data: list[memoryview] = []
        held_bytes = 0
        first_offset = 0
        for offset, data in self._data_blocks(entries):
            if block_data and held_bytes + len(data) > _BATCH_BYTES:
                yield from _decode_batch(block_data, first_offset)
                block_data, held_bytes = [], 0
            if not block_data:
                first_offset = offset
            block_data.append(data)
            held_bytes += len(data)
        yield from _decode_batch(block_data, first_offset)

    def _data_blocks(self, entries: Iterator[IndexEntry]) -> Iterator[tuple[int, memoryview]]:
        """Yield offset and uncompressed data of each block."""
        codec = self.trailer.codec
        for run in _adjacent(entries):
            start, end = run[0].offset, run[-1].offset + run[-1].size_bytes
            window = self._read(start, end - start)
            for entry in run:
                block = expect_block(window, entry.offset - start, BlockKind.DATA, codec, window_offset=start)
                if block.size_bytes != entry.size_bytes:
                    raise CorruptData(
                        "an HFile index and its block disagree on the block's size",
                        offset=entry.offset,
                        expected=entry.size_bytes,
                        found=block.size_bytes,
                    )
                yield entry.offset, block.data

    def _read(self, offset: int, size_bytes: int) -> memoryview:
        return _read_exactly(self.read_range, offset, size_bytes)


def open_hfile(read_range: ReadRange, size_bytes: int) -> HFile:
    """Open a file with one read, or two if trailer and load-on-open section exceed 64 KiB.

    Args:
        read_range: `read_range(offset, length)` returns bytes [offset, offset + length).
        size_bytes: Size of the file.

    Raises:
        CorruptData: The bytes are not an HFile.
        Unsupported: A version, codec or encoding that is not supported.
    """
    tail_offset = max(0, size_bytes - _TAIL_BYTES)
    tail = _read_exactly(read_range, tail_offset, size_bytes - tail_offset)
    trailer = decode_trailer(tail[-TRAILER_BYTES:], size_bytes)
    start, end = trailer.load_on_open_offset, size_bytes - TRAILER_BYTES
    if start >= tail_offset:
        section = tail[start - tail_offset : end - tail_offset]
    else:
        section = _read_exactly(read_range, start, end - start)
    root_block = expect_block(section, 0, BlockKind.ROOT_INDEX, trailer.codec, window_offset=start)
    root = decode_root_index(root_block.data, trailer.data_index_count, limit=start, offset=start)
    position = root_block.size_bytes
    meta_block = expect_block(section, position, BlockKind.ROOT_INDEX, trailer.codec, window_offset=start)
    meta = decode_meta_index(meta_block.data, trailer.meta_index_count, limit=start, offset=start + position)
    position += meta_block.size_bytes
    info_block = expect_block(section, position, BlockKind.FILE_INFO, trailer.codec, window_offset=start)
    file_info = decode_file_info(info_block.data, offset=start + position)
    if int.from_bytes(file_info.get(MAX_VERSION_NUMBER, b""), "big") != 0:
        raise Unsupported("an HFile whose entries have version numbers is not supported; Hudi does not write such files")
    return HFile(read_range=read_range, trailer=trailer, file_info=file_info, root=root, meta=meta)


def open_hfile_bytes(data: bytes | memoryview) -> HFile:
    """Open a file in memory, such as the content of a log block."""
    view = memoryview(data)
    return open_hfile(lambda offset, length: view[offset : offset + length], len(view))


def read_data_blocks(data: bytes | memoryview) -> tuple[list[memoryview], int]:
    """Return the uncompressed data blocks of a small file in memory, and its number of entries.

    Indexes and file info are not decoded, which most of the time of opening such a file is spent on.

    Raises:
        CorruptData: The bytes are not an HFile.
        Unsupported: A version, codec or encoding that is not supported.
    """
    view = memoryview(data)
    trailer = decode_trailer(view[-TRAILER_BYTES:], len(view))
    position, last = trailer.first_data_block_offset, trailer.last_data_block_offset
    body = view[: trailer.load_on_open_offset]
    blocks: list[memoryview] = []
    limit = remaining_bytes = max(_MAX_SMALL_FILE_BYTES, expansion_limit(len(view)))
    while position is not None and last is not None and position <= last:
        # With several index levels, leaf index blocks are between data blocks.
        block = decode_block(body, position, trailer.codec)
        if block.kind is BlockKind.DATA:
            blocks.append(block.data)
            remaining_bytes -= len(block.data)
            if remaining_bytes < 0:
                raise CorruptData("the blocks of an HFile expand too much", offset=position, expected=limit)
        position += block.size_bytes
    return blocks, trailer.entry_count


def ascending_keys(keys: pa.BinaryArray | pa.StringArray) -> pa.BinaryArray:
    """Return the keys as binary. Raises InvalidRequest for nulls, and unless they strictly ascend by unsigned bytes."""
    if not (pa.types.is_binary(keys.type) or pa.types.is_string(keys.type)):
        raise InvalidRequest(f"HFile keys must be binary or string, not {keys.type}")
    if keys.null_count:
        raise InvalidRequest("an HFile key is null")
    binary: pa.BinaryArray = keys.view(pa.binary())
    if len(binary) > 1:
        rises = pc.less(binary[:-1], binary[1:])
        if not pc.all(rises).as_py():
            at = pc.index(rises, False).as_py()
            before, after = binary[at].as_py(), binary[at + 1].as_py()
            problem = f"the key {after!r} is repeated" if before == after else f"the key {after!r} follows {before!r}"
            raise InvalidRequest(f"HFile keys must ascend by their bytes: {problem}")
    return binary


@dataclass(frozen=True, slots=True, eq=False)
class _Ranges:
    """Ranges of rows [start, stop), ascending and disjoint; `has_end` False means that the last one is unbounded."""

    starts: Objects
    stops: Objects
    has_end: bool

    @classmethod
    def of(cls, ranges: Sequence[tuple[bytes, bytes | None]]) -> _Ranges:
        has_end = not ranges or ranges[-1][1] is not None
        return cls(object_array([start for start, _ in ranges]), object_array([stop or b"" for _, stop in ranges]), has_end)

    @classmethod
    def of_points(cls, rows: Objects) -> _Ranges:
        return cls(rows, object_array([row + b"\x00" for row in rows]), True)

    def intersects(self, rows: Objects) -> npt.NDArray[np.bool_]:
        """Return which blocks, given by their first rows, can contain a row of a range."""
        first = np.maximum(np.searchsorted(rows, self.starts, side="right") - 1, 0)
        end = np.searchsorted(rows, self.stops, side="left")
        if not self.has_end:
            end[-1] = len(rows)
        changes = np.zeros(len(rows) + 1, dtype=np.int64)
        overlaps = first < end
        np.add.at(changes, first[overlaps], 1)
        np.add.at(changes, end[overlaps], -1)
        touched: npt.NDArray[np.bool_] = np.cumsum(changes[:-1]) > 0
        return touched

    def within(self, start: bytes | None, stop: bytes | None) -> _Ranges:
        """Return the ranges that overlap [start, stop)."""
        last = len(self.starts)
        bounded = self.stops if self.has_end else self.stops[:-1]
        low = 0 if start is None else int(np.searchsorted(bounded, start, side="right"))
        high = last if stop is None else int(np.searchsorted(self.starts, stop, side="left"))
        return _Ranges(self.starts[low:high], self.stops[low:high], self.has_end or high < last)

    def filter(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the entries of a batch, which is ascending, that are in a range."""
        rows = batch.column("key")
        here = self.within(rows[0].as_py(), rows[-1].as_py() + b"\x00")
        if not len(here.starts):
            return batch.slice(0, 0)
        lows, highs = _lower_bounds(rows, here.starts), _lower_bounds(rows, here.stops)
        if not here.has_end:
            highs[-1] = len(rows)
        if len(lows) == 1:
            return batch.slice(int(lows[0]), int(highs[0] - lows[0]))
        # Rows between the bounds of a range are inside; ranges are disjoint and may be adjacent.
        changes = np.zeros(len(rows) + 1, dtype=np.int64)
        np.add.at(changes, lows, 1)
        np.add.at(changes, highs, -1)
        return batch.filter(pa.array(np.cumsum(changes[:-1]) > 0))


def _decode_batch(blocks: list[memoryview], offset: int) -> Iterator[pa.RecordBatch]:
    data = blocks[0] if len(blocks) == 1 else b"".join(blocks)
    batch = decode_cells(data, offset=offset)
    if batch.num_rows:
        yield batch


def _adjacent(entries: Iterator[IndexEntry]) -> Iterator[list[IndexEntry]]:
    """Yield groups of blocks for one read each: close to each other, and within the maximum size of a read."""
    run: list[IndexEntry] = []
    for entry in entries:
        if run:
            gap = entry.offset - (run[-1].offset + run[-1].size_bytes)
            if not 0 <= gap <= _MAX_GAP_BYTES or entry.offset + entry.size_bytes - run[0].offset > _MAX_READ_BYTES:
                yield run
                run = []
        run.append(entry)
    if run:
        yield run


def _read_exactly(read_range: ReadRange, offset: int, size_bytes: int) -> memoryview:
    data = memoryview(read_range(offset, size_bytes))
    if len(data) != size_bytes:
        raise CorruptData("an HFile is truncated", offset=offset, expected=size_bytes, found=len(data))
    return data


def _lower_bounds(rows: pa.BinaryArray, lookup_keys: Objects) -> npt.NDArray[np.int64]:
    """Return for each lookup key the number of smaller rows; the rows ascend."""
    if len(lookup_keys) * len(rows).bit_length() < len(rows):
        # Converting every row to an object costs more than converting those that a binary search reads.
        bounds = [bisect_left(range(len(rows)), row, key=lambda index: rows[index].as_py()) for row in lookup_keys]
        return np.array(bounds, dtype=np.int64)
    return np.searchsorted(rows.to_numpy(zero_copy_only=False), lookup_keys).astype(np.int64, copy=False)


def _after_prefix(prefix: bytes) -> bytes | None:
    """Return the least row above every row with this prefix; None if there is none."""
    head = prefix.rstrip(b"\xff")
    return head[:-1] + bytes([head[-1] + 1]) if head else None
