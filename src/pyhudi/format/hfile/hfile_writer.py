"""HFile writer: encodes entries in ascending order.

An encoder takes arrays of keys and values and returns the file's bytes incrementally; the caller stores them. Layout,
in file order:

    data blocks            cut before the entry that would exceed the block size; a larger entry gets its own block. When the
                           index of the blocks so far exceeds 128 KiB, a leaf index block follows.
    meta blocks            as passed to `finish`
    intermediate blocks    only while the root index would exceed 128 KiB
    root index, meta index, file info, trailer

Requirements of Hudi's readers: no duplicate keys, ascending unsigned bytes; keys of at most 32767 bytes; the last entry
of a block longer than 4 bytes for each checksum of the block (see blocks.py); GZ or NONE; a file below 2 GiB; the class
name in the trailer; the file info keys about versions and average lengths. Arrow assembles the entries of many blocks
at a time.

Specification: docs/formats/hfile.md, writer's rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pyhudi.errors import InvalidRequest
from pyhudi.format.hfile.blocks import HEADER_BYTES, BlockKind, encode_block
from pyhudi.format.hfile.cells import check_sizes, data_size_bytes, encode_cells, full_key, split_ranges
from pyhudi.format.hfile.compression import Codec
from pyhudi.format.hfile.file_info import (
    AVERAGE_KEY_BYTES,
    AVERAGE_VALUE_BYTES,
    CREATE_TIME,
    KEY_VALUE_VERSION,
    LAST_KEY,
    MAX_VERSION_NUMBER,
    encode_file_info,
)
from pyhudi.format.hfile.hfile_reader import ascending_keys
from pyhudi.format.hfile.index import IndexEntry, encode_index, encode_meta_index, encode_root_index, index_entry_bytes
from pyhudi.format.hfile.trailer import TRAILER_BYTES, Trailer, encode_trailer

# Arrays are encoded in pieces of about this size, which bounds memory and stays far below Arrow's 2 GiB limit.
_PIECE_BYTES = 16 << 20
# Hudi's native reader stores offsets in a signed 32-bit number.
_MAX_FILE_BYTES = (1 << 31) - 1 - TRAILER_BYTES


@dataclass(frozen=True, slots=True)
class HFileOptions:
    """Layout of a file.

    Attributes:
        codec: GZ or NONE.
        level: Gzip level, 1 to 9.
        block_bytes: Maximum uncompressed size of a data block, at most 1 MiB.
        index_block_bytes: A larger index gets another level.
    """

    codec: Codec = Codec.GZ
    level: int = 1
    block_bytes: int = 64 << 10
    index_block_bytes: int = 128 << 10

    def __post_init__(self) -> None:
        if self.codec not in (Codec.GZ, Codec.NONE):
            raise InvalidRequest(f"HFile codec {self.codec.name} cannot be written: use GZ or NONE")
        if not 1 <= self.level <= 9:
            raise InvalidRequest(f"invalid gzip level {self.level}: use 1 to 9")
        if not 1 <= self.block_bytes <= 1 << 20 or not 1 <= self.index_block_bytes <= 1 << 20:
            raise InvalidRequest("HFile block sizes must be 1 byte to 1 MiB")


class HFileEncoder:
    """Encoder of one file: `add` entries in order, then `finish` once. The concatenated results are the file."""

    def __init__(self, options: HFileOptions | None = None) -> None:
        self._options = options if options is not None else HFileOptions()
        self._is_finished = False
        self._offset = 0
        self._previous: dict[BlockKind, int] = {}
        self._uncompressed_bytes = 0
        # Statistics of the entries for the file info.
        self._entry_count = 0
        self._row_bytes = 0
        self._value_bytes = 0
        self._first_key: bytes | None = None
        self._last_key: bytes | None = None
        # The data block being filled.
        self._open: list[bytes] = []
        self._open_bytes = 0
        self._open_row = b""
        # The data blocks since the last leaf index block, and the leaf index blocks.
        self._data_index: list[IndexEntry] = []
        self._data_index_bytes = 0
        self._leaf_index: list[IndexEntry] = []
        self._index_bytes = 0

    @property
    def entry_count(self) -> int:
        """Number of entries added so far."""
        return self._entry_count

    @property
    def first_key(self) -> bytes | None:
        """The least key added so far."""
        return self._first_key

    @property
    def last_key(self) -> bytes | None:
        """The greatest key added so far."""
        return self._last_key

    def add(self, keys: pa.BinaryArray | pa.StringArray, values: pa.BinaryArray) -> bytes:
        """Add entries, and return the bytes of the completed blocks.

        Args:
            keys: Binary or string, no nulls, strictly ascending by bytes, greater than every key added before.
            values: Binary, no nulls, as many as keys.

        Raises:
            InvalidRequest: Other keys or values; nothing is added.
        """
        if self._is_finished:
            raise InvalidRequest("the HFile is already finished")
        if len(keys) != len(values) or values.null_count or not pa.types.is_binary(values.type):
            raise InvalidRequest(
                f"{len(keys)} HFile keys do not match {len(values)} values of type {values.type}, {values.null_count} null"
            )
        rows = ascending_keys(keys)
        if len(rows) == 0:
            return b""
        check_sizes(rows, values)
        first = rows[0].as_py()
        if self._last_key is not None and first <= self._last_key:
            problem = "is repeated" if first == self._last_key else f"follows {self._last_key!r}"
            raise InvalidRequest(f"HFile keys must ascend by their bytes: the key {first!r} {problem}")
        if self._first_key is None:
            self._first_key = first
        self._last_key = rows[-1].as_py()
        self._entry_count += len(rows)
        self._row_bytes += data_size_bytes(rows)
        self._value_bytes += data_size_bytes(values)
        parts: list[bytes] = []
        for start, end in split_ranges(rows, values, _PIECE_BYTES):
            self._add_piece(rows.slice(start, end - start), values.slice(start, end - start), parts)
        return b"".join(parts)

    def finish(self, *, file_info: Mapping[str, bytes] | None = None, meta_blocks: Mapping[str, bytes] | None = None) -> bytes:
        """Return the rest of the file.

        Args:
            file_info: Added to the standard entries of the file info.
            meta_blocks: Data by block name, such as a Bloom filter.
        """
        if self._is_finished:
            raise InvalidRequest("the HFile is already finished")
        self._is_finished = True
        parts: list[bytes] = []
        self._close_data_block(parts)
        meta_index = [
            self._write_block(BlockKind.META, data, name.encode(), parts) for name, data in sorted((meta_blocks or {}).items())
        ]
        root, levels = self._write_upper_levels(parts)
        root_data = encode_root_index(root)
        root_entry = self._write_block(BlockKind.ROOT_INDEX, root_data, b"", parts)
        self._write_block(BlockKind.ROOT_INDEX, encode_meta_index(meta_index), b"", parts)
        info_data = encode_file_info(self._standard_file_info() | dict(file_info or {}))
        info_entry = self._write_block(BlockKind.FILE_INFO, info_data, b"", parts)
        trailer = Trailer(
            file_info_offset=info_entry.offset,
            load_on_open_offset=root_entry.offset,
            data_index_size_bytes=self._index_bytes + len(root_data),
            total_uncompressed_bytes=self._uncompressed_bytes,
            data_index_count=len(root),
            meta_index_count=len(meta_index),
            entry_count=self._entry_count,
            index_levels=levels,
            first_data_block_offset=0 if self._entry_count else None,
            last_data_block_offset=self._previous.get(BlockKind.DATA),
            codec=self._options.codec,
        )
        parts.append(encode_trailer(trailer))
        return b"".join(parts)

    def _add_piece(self, rows: pa.BinaryArray, values: pa.BinaryArray, parts: list[bytes]) -> None:
        cells = encode_cells(rows, values)
        offsets = np.frombuffer(cells.buffers()[1], dtype=np.int32, count=len(cells) + 1)
        data = memoryview(cells.buffers()[2])
        start = 0
        while start < len(cells):
            room = self._options.block_bytes - self._open_bytes
            end = int(np.searchsorted(offsets, int(offsets[start]) + room, side="right")) - 1
            if end <= start and self._open:
                self._close_data_block(parts)
                continue
            end = max(end, start + 1)
            if not self._open:
                self._open_row = rows[start].as_py()
            self._open.append(bytes(data[offsets[start] : offsets[end]]))
            self._open_bytes += int(offsets[end]) - int(offsets[start])
            start = end

    def _close_data_block(self, parts: list[bytes]) -> None:
        if not self._open:
            return
        entry = self._write_block(BlockKind.DATA, b"".join(self._open), self._open_row, parts)
        self._open, self._open_bytes = [], 0
        self._data_index.append(entry)
        self._data_index_bytes += index_entry_bytes(entry.row)
        if self._data_index_bytes > self._options.index_block_bytes:
            self._write_leaf_index(parts)

    def _write_leaf_index(self, parts: list[bytes]) -> None:
        data = encode_index(self._data_index)
        self._index_bytes += len(data)
        self._leaf_index.append(self._write_block(BlockKind.LEAF_INDEX, data, self._data_index[0].row, parts))
        self._data_index, self._data_index_bytes = [], 0

    def _write_upper_levels(self, parts: list[bytes]) -> tuple[Sequence[IndexEntry], int]:
        """Write the intermediate blocks; return the root's entries and the number of levels."""
        if not self._leaf_index:
            return self._data_index, 1
        if self._data_index:
            self._write_leaf_index(parts)
        level: Sequence[IndexEntry] = self._leaf_index
        levels = 2
        while sum(index_entry_bytes(entry.row) for entry in level) > self._options.index_block_bytes:
            groups = _grouped(level, self._options.index_block_bytes)
            if len(groups) == len(level):
                break
            above = []
            for group in groups:
                data = encode_index(group)
                self._index_bytes += len(data)
                above.append(self._write_block(BlockKind.INTERMEDIATE_INDEX, data, group[0].row, parts))
            level, levels = above, levels + 1
        return level, levels

    def _write_block(self, kind: BlockKind, data: bytes, row: bytes, parts: list[bytes]) -> IndexEntry:
        offset = self._offset
        options = self._options
        block = encode_block(kind, data, options.codec, previous_offset=self._previous.get(kind, -1), level=options.level)
        parts.append(block)
        self._previous[kind] = offset
        self._offset += len(block)
        if self._offset > _MAX_FILE_BYTES:
            raise InvalidRequest(
                "an HFile exceeds 2 GiB, the limit of Hudi's default reader: distribute the keys over more file groups"
            )
        self._uncompressed_bytes += HEADER_BYTES + len(data)
        return IndexEntry(offset, len(block), row)

    def _standard_file_info(self) -> dict[str, bytes]:
        count = max(self._entry_count, 1)
        average_key_bytes = (self._row_bytes + len(full_key(b"")) * self._entry_count) // count
        values = {
            KEY_VALUE_VERSION: (1).to_bytes(4, "big"),
            MAX_VERSION_NUMBER: bytes(8),
            AVERAGE_KEY_BYTES: average_key_bytes.to_bytes(4, "big"),
            AVERAGE_VALUE_BYTES: (self._value_bytes // count).to_bytes(4, "big"),
            CREATE_TIME: bytes(8),
        }
        if self._last_key is not None:
            values[LAST_KEY] = full_key(self._last_key)
        return values


def encode_hfile(
    batches: Iterable[tuple[pa.BinaryArray | pa.StringArray, pa.BinaryArray]],
    options: HFileOptions | None = None,
    *,
    file_info: Mapping[str, bytes] | None = None,
) -> bytes:
    """Encode a file in memory, such as a log block's content. batches: (keys, values) as for `HFileEncoder.add`."""
    encoder = HFileEncoder(options)
    parts = [encoder.add(keys, values) for keys, values in batches]
    parts.append(encoder.finish(file_info=file_info))
    return b"".join(parts)


def _grouped(entries: Sequence[IndexEntry], limit_bytes: int) -> list[list[IndexEntry]]:
    """Return the entries in order, in groups of at most `limit_bytes`, with at least two entries each if possible."""
    groups: list[list[IndexEntry]] = []
    size = 0
    for entry in entries:
        entry_bytes = index_entry_bytes(entry.row)
        if not groups or (size + entry_bytes > limit_bytes and len(groups[-1]) > 1):
            groups.append([])
            size = 0
        groups[-1].append(entry)
        size += entry_bytes
    return groups
