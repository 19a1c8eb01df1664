"""Reads a file group of the metadata table in ascending ranges of keys, so that memory does not grow with the group.

    1. `open_group` opens the base file and the valid log blocks of a group.
    2. `RangedGroup.bounds` divides its keys into ranges by the first keys of HFile blocks.
    3. `RangedGroup.read` returns the cells of one range. The ranges must be read in ascending order up to None: after
       the last one, the number of entries of each file is compared with its trailer.

Memory: the cells of the log blocks in one range, one batch of the base file, and all removed keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptData, Unsupported
from pyhudi.format.hfile import HFile
from pyhudi.format.hfile.file_info import SCHEMA
from pyhudi.format.log.command_blocks import surviving_blocks, without_compacted
from pyhudi.format.log.delete_blocks import decode_deletes
from pyhudi.format.log.framing import BlockType, HeaderKey
from pyhudi.metadata_table.reader.cell_merge import Cells, Deletes, GroupCells
from pyhudi.metadata_table.reader.metadata_file_cache import MetadataFiles
from pyhudi.table.file_slices import FileSlice


@dataclass(slots=True)
class RangedFile:
    """An HFile that is scanned in ascending ranges of keys up to None. path: for errors."""

    file: HFile
    path: str
    row_count: int = 0

    def lookup(self, keys: pa.BinaryArray) -> Iterator[pa.RecordBatch]:
        try:
            yield from self.file.lookup(keys)
        except CorruptData as error:
            raise error.with_path(self.path) from error

    def scan(self, start: bytes | None, stop: bytes | None) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self.file.scan(start, stop):
                self.row_count += batch.num_rows
                yield batch
            if stop is None:
                self.file.check_entry_count(self.row_count)
        except CorruptData as error:
            raise error.with_path(self.path) from error


@dataclass(frozen=True, slots=True)
class StoredLayer:
    """One log block. content: an HFile, or the keys that the block removes."""

    content: RangedFile | pa.BinaryArray
    schema: str = ""

    def read(self, start: bytes | None, stop: bytes | None) -> Cells | Deletes | None:
        """Return the cells or removals with start <= key < stop (None: no bound); None without any."""
        if not isinstance(self.content, RangedFile):
            keys = self.content
            if start is not None:
                keys = keys.filter(pc.greater_equal(keys, pa.scalar(start, pa.binary())))
            if stop is not None:
                keys = keys.filter(pc.less(keys, pa.scalar(stop, pa.binary())))
            return Deletes(keys) if len(keys) else None
        batches = list(self.content.scan(start, stop))
        if not batches:
            return None
        keys, values = (pa.concat_arrays([batch.column(name) for batch in batches]) for name in ("key", "value"))
        return Cells(keys, values, self.schema)


@dataclass(frozen=True, slots=True)
class RangedGroup:
    """An opened file group. base_schema: of the base file's values, '' without one. layers: log blocks, oldest first."""

    base: RangedFile | None
    base_schema: str
    layers: tuple[StoredLayer, ...]

    def bounds(self, range_cells: int) -> list[bytes]:
        """Return the keys, ascending, that divide the group into ranges of about this many cells."""
        files = [layer.content.file for layer in self.layers if isinstance(layer.content, RangedFile)]
        files += [self.base.file] if self.base is not None else []
        rows: list[bytes] = []
        weights: list[float] = []
        for file in files if sum(file.entry_count for file in files) > range_cells else ():
            block_rows = file.block_rows()
            rows += block_rows
            weights += [file.entry_count / max(1, len(block_rows))] * len(block_rows)
        if not rows:
            return []
        order = sorted(range(len(rows)), key=rows.__getitem__)
        # The cells before each block; a range begins where their number passes a multiple of `range_cells`.
        before = np.concatenate([[0.0], np.cumsum([weights[number] for number in order])[:-1]])
        begins = np.flatnonzero(np.diff(before // range_cells)) + 1
        return sorted({rows[order[position]] for position in begins.tolist()} - {rows[order[0]]})

    def read(self, start: bytes | None, stop: bytes | None) -> GroupCells:
        """Return the cells with start <= key < stop (None: no bound); those of the base file are read lazily."""
        layers = (layer.read(start, stop) for layer in self.layers)
        newer = tuple(layer for layer in layers if layer is not None)
        return GroupCells(self._base_cells(start, stop), newer)

    def _base_cells(self, start: bytes | None, stop: bytes | None) -> Iterator[Cells]:
        for batch in () if self.base is None else self.base.scan(start, stop):
            yield Cells(batch.column("key"), batch.column("value"), self.base_schema)


def open_group(files: MetadataFiles, slice_: FileSlice, counts: Callable[[str], bool]) -> RangedGroup:
    """Open the files of a group.

    Args:
        files: Opens the files.
        slice_: The slice of the group.
        counts: Returns True if the log blocks of an instant are valid.

    Raises:
        CorruptData: A file is damaged; the error contains its path.
        Unsupported: A log block of another type.
    """
    files.fetch(slice_.logs)
    layers = _stored_layers(files, slice_, counts)
    base = None if slice_.base is None else RangedFile(files.base(slice_.base), files.absolute(slice_.base))
    return RangedGroup(base, _schema_of(base), tuple(layers))


def _stored_layers(files: MetadataFiles, slice_: FileSlice, counts: Callable[[str], bool]) -> list[StoredLayer]:
    blocks = ((log, block) for log in slice_.logs for block in files.blocks(log, verified=counts(log.name.instant_time)))
    layers = []
    for log, block in without_compacted(surviving_blocks(blocks, counts), lambda entry: entry[1]):
        path = files.absolute(log)
        try:
            if block.kind is BlockType.DELETE:
                keys = [batch.column("record_key").view(pa.binary()) for batch in decode_deletes(files.content(log, block))]
                layers.append(StoredLayer(pa.concat_arrays([pa.array([], pa.binary()), *keys])))
            elif block.kind is BlockType.HFILE:
                file = RangedFile(files.inner(log, block), path)
                layers.append(StoredLayer(file, files.schema(block.required(HeaderKey.SCHEMA))))
            else:
                raise Unsupported(f"cannot read a log block of type {block.kind.name} in the metadata table")
        except CorruptData as error:
            raise error.with_path(path) from error
    return layers


def _schema_of(base: RangedFile | None) -> str:
    if base is None:
        return ""
    text = base.file.file_info.get(SCHEMA)
    if text is None:
        raise CorruptData("an HFile of the metadata table has no value schema in its file info", path=base.path)
    return text.decode("utf-8", "replace")
