"""Writing an HFile from entries in ascending order.  Source: docs/formats/hfile.md, writer's rules.

An encoder takes arrays of keys and values and hands out the file's bytes as they come to be; where they go is the caller's
business.  Layout, in file order:

    data blocks            cut before the entry that would take them above the block size; an entry larger than that has a block
                           of its own.  When the index of the blocks so far grows above 128 KiB, a leaf index block follows.
    meta blocks            as given to `finish`
    intermediate blocks    only while the root index would be above 128 KiB
    root index, meta index, file info, trailer

Rules that real readers need: no duplicate keys, ascending unsigned bytes; keys of at most 32767 bytes; the last entry of a block
longer than 4 bytes for each checksum of the block (see blocks.py); GZ or NONE; a file below 2 GiB; the class name in the
trailer; the file info keys about versions and average lengths.  Entries are assembled by Arrow, blocks at a time.
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

# Arrays are encoded in pieces of about this size: it bounds memory, and Arrow's 2 GiB limit is far away.
_PIECE_BYTES = 16 << 20
# Hudi's native reader keeps offsets in a signed 32-bit number.
_MAX_FILE_BYTES = (1 << 31) - 1 - TRAILER_BYTES


@dataclass(frozen=True, slots=True)
class HFileOptions:
    """How to lay out a file.

    codec: GZ or NONE.  level: gzip, 1 to 9.  block_bytes: uncompressed size that a data block keeps to, at most
    1 MiB.
    index_block_bytes: above this an index gets another level.
    """

    codec: Codec = Codec.GZ
    level: int = 1
    block_bytes: int = 64 << 10
    index_block_bytes: int = 128 << 10

    def __post_init__(self) -> None:
        if self.codec not in (Codec.GZ, Codec.NONE):
            raise InvalidRequest(f"HFiles are written with GZ or NONE, not {self.codec.name}")
        if not 1 <= self.level <= 9:
            raise InvalidRequest(f"gzip level {self.level}: 1 to 9 exist")
        if not 1 <= self.block_bytes <= 1 << 20 or not 1 <= self.index_block_bytes <= 1 << 20:
            raise InvalidRequest("HFile block sizes are 1 byte to 1 MiB")


class HFileEncoder:
    """One file in the making: `add` entries in order, then `finish` once.  The bytes of the calls, joined, are the file."""

    def __init__(self, options: HFileOptions | None = None) -> None:
        self._options = options if options is not None else HFileOptions()
        self._is_finished = False
        self._offset = 0
        self._previous: dict[BlockKind, int] = {}
        self._uncompressed_bytes = 0
        # What the file info says about the entries.
        self._entry_count = 0
        self._row_bytes = 0
        self._value_bytes = 0
        self._first_key: bytes | None = None
        self._last_key: bytes | None = None
        # The data block that is being filled.
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
        """Entries added so far."""
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
        """Add entries; returns the bytes of the blocks that became full.

        keys: binary or string, ascending by bytes, above every key added before; values: binary, as many; neither has nulls.
        Raises InvalidRequest when they are not so, before anything of them is added.
        """
        if self._is_finished:
            raise InvalidRequest("the HFile is finished")
        if len(keys) != len(values) or values.null_count or not pa.types.is_binary(values.type):
            raise InvalidRequest(
                f"{len(keys)} HFile keys with {len(values)} values of type {values.type}, {values.null_count} null"
            )
        rows = ascending_keys(keys)
        if len(rows) == 0:
            return b""
        check_sizes(rows, values)
        first = rows[0].as_py()
        if self._last_key is not None and first <= self._last_key:
            what = "comes twice" if first == self._last_key else f"comes after {self._last_key!r}"
            raise InvalidRequest(f"HFile keys must ascend by their bytes: the key {first!r} {what}")
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
        """The rest of the file.

        file_info: added to what every file has; meta_blocks: data by block name, such as a Bloom filter.
        """
        if self._is_finished:
            raise InvalidRequest("the HFile is finished")
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
        """Write what stands between the data blocks and the root; returns the root's entries and the number of levels."""
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
            raise InvalidRequest("an HFile above 2 GiB: Hudi's default reader opens none, spread the keys over more file groups")
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
    meta_blocks: Mapping[str, bytes] | None = None,
) -> bytes:
    """A whole file in memory, such as a log block's content.  batches: (keys, values) as `HFileEncoder.add` takes them."""
    encoder = HFileEncoder(options)
    parts = [encoder.add(keys, values) for keys, values in batches]
    parts.append(encoder.finish(file_info=file_info, meta_blocks=meta_blocks))
    return b"".join(parts)


def _grouped(entries: Sequence[IndexEntry], limit_bytes: int) -> list[list[IndexEntry]]:
    """The entries in order, in groups of at most `limit_bytes`, but of two entries at the least while there are two."""
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
