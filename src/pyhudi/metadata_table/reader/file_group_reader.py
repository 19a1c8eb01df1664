"""Reader of metadata table file groups: cells of some keys or prefixes, or all cells. Format:
docs/formats/metadata-table.md, key to file group.

    GroupReader          reads groups of one opened metadata table
    MetadataPartition    one partition in a snapshot, as a plain value that can be sent to workers
    PartitionReader      opens and reads a MetadataPartition on a worker

The hash of a key determines its file group. The base file and the log blocks of a group become layers of cells;
`cell_merge` and `index_lookups` interpret them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptData, InvalidRequest, Unsupported
from pyhudi.format.hfile import HFile
from pyhudi.format.hfile.file_info import SCHEMA
from pyhudi.format.log.command_blocks import surviving_blocks, without_compacted
from pyhudi.format.log.delete_blocks import decode_deletes
from pyhudi.format.log.framing import BlockType, HeaderKey, LogBlock
from pyhudi.metadata_table.codecs.metadata_partitions import format_section, grouped, parse_file_group
from pyhudi.metadata_table.reader.cell_merge import Cells, Deletes, GroupCells
from pyhudi.metadata_table.reader.metadata_file_cache import FULL_READ_BYTES, MetadataFiles
from pyhudi.records.hashing import key_shards
from pyhudi.storage import open_storage
from pyhudi.storage.base import StorageSpec
from pyhudi.storage.thread_pool import in_threads
from pyhudi.table.file_slices import BaseFile, FileSlice, LogFile

_GROUPS_AT_ONCE = 8

_SMALL_BYTES = 128 << 10
"""Size of an HFile up to which decoding all of it costs less than reading its indexes."""

T = TypeVar("T")


class KeyedCells(Protocol):
    """Lookup of keys in a partition."""

    def lookup(self, partition: str, keys: pa.StringArray) -> list[GroupCells]:
        """Return the cells of some keys, one result for each group read.

        Args:
            partition: Name of the metadata table partition.
            keys: String, no nulls, in any order; duplicates are looked up once.
        """
        ...


@dataclass(frozen=True, slots=True)
class KeyRequest:
    """Request to a file group: keys (binary, ascending, distinct), prefixes, or all cells if both are None."""

    keys: pa.BinaryArray | None = None
    prefixes: tuple[bytes, ...] | None = None

    def read(self, file: HFile) -> Iterator[pa.RecordBatch]:
        """Yield batches of `key` and `value`."""
        if self.keys is not None:
            return file.lookup(self.keys)
        if self.prefixes is not None:
            return file.scan_prefixes(self.prefixes)
        return file.scan()

    def matches(self, keys: pa.BinaryArray) -> npt.NDArray[np.int64]:
        """Return the positions of the requested keys, ascending."""
        if self.keys is not None:
            return np.flatnonzero(pc.is_in(keys, value_set=self.keys))
        if self.prefixes is None:
            return np.arange(len(keys))
        found = np.zeros(len(keys), dtype=np.bool_)
        for length in {len(prefix) for prefix in self.prefixes}:
            prefixes = pa.array([prefix for prefix in self.prefixes if len(prefix) == length], pa.binary())
            found |= pc.is_in(pc.binary_slice(keys, 0, length), value_set=prefixes).to_numpy(zero_copy_only=False)
        return np.flatnonzero(found)


def by_section(slices: Iterable[FileSlice]) -> tuple[tuple[FileSlice, ...], ...]:
    """Return the slices of each section of an index, sorted by number. Raises as `grouped`."""
    slices_by_id = {slice_.file_id: slice_ for slice_ in slices}
    groups = grouped(slices_by_id)
    return tuple(
        tuple(slices_by_id[group.file_id] for group in section_groups)
        for _, section_groups in groupby(groups, key=lambda group: group.section)
    )


def lookup_tasks(
    slices: Sequence[FileSlice], keys: pa.StringArray, routes: pa.StringArray | None = None
) -> list[tuple[FileSlice, KeyRequest]]:
    """Assign keys to file groups.

    Args:
        slices: The slices of all groups of a partition, by number.
        keys: The keys to look up.
        routes: For each key the text whose hash determines its group, with distinct keys; None: the key itself.
    """
    distinct = pc.unique(keys) if routes is None else keys
    if len(slices) == 1 and len(distinct):
        binary_keys = distinct.view(pa.binary())
        return [(slices[0], KeyRequest(keys=binary_keys.take(pc.sort_indices(binary_keys))))]
    shards = key_shards(distinct if routes is None else routes, len(slices))
    tasks: list[tuple[FileSlice, KeyRequest]] = []
    for number in np.unique(shards).tolist():
        shard_keys = distinct.filter(pa.array(shards == number)).view(pa.binary())
        tasks.append((slices[number], KeyRequest(keys=shard_keys.take(pc.sort_indices(shard_keys)))))
    return tasks


class GroupReader:
    """Reads file groups.

    Args:
        counts: Returns True if the log blocks of an instant are valid.

    Raises:
        TableState: A file is missing.
        CorruptData: A file is damaged; the error contains its path.
        Unsupported: A file contains something this reader does not support.
    """

    def __init__(self, files: MetadataFiles, counts: Callable[[str], bool]) -> None:
        self._files = files
        self._counts = counts

    def read_all(self, tasks: Sequence[tuple[FileSlice, KeyRequest]]) -> list[GroupCells]:
        """Read the cells of several groups into memory, in parallel."""
        every = [file for slice_, _ in tasks for file in _files_of(slice_)]
        self._files.fetch(every)
        # Threads only decode what was fetched: they help with files of which ranges are read.
        reads_ranges = any(file.size_bytes > FULL_READ_BYTES for file in every)
        return in_threads(lambda task: self._read_now(*task), tasks, _GROUPS_AT_ONCE if reads_ranges else 1)

    def read(self, slice_: FileSlice, request: KeyRequest) -> GroupCells:
        """Return the cells of one group; its base file is read lazily."""
        base = self._base_cells(slice_.base, request) if slice_.base is not None else ()
        files = ((log, self._files.blocks(log, verified=self._counts(log.name.instant_time))) for log in slice_.logs)
        blocks = ((log, block) for log, entry in files for block in entry)
        valid = without_compacted(surviving_blocks(blocks, self._counts), lambda entry: entry[1])
        return GroupCells(base, tuple(layer for layer in self._layers(valid, request) if layer is not None))

    def has_only_data(self, slice_: FileSlice) -> bool:
        """Return True if the log files of a slice have only blocks of data and deletes: none changes older blocks."""
        self._files.fetch(slice_.logs)
        blocks = (block for log in slice_.logs for block in self._files.blocks(log, verified=True))
        return all(
            isinstance(block, LogBlock)
            and block.kind in (BlockType.HFILE, BlockType.DELETE)
            and not any(key is HeaderKey.COMPACTED_BLOCK_TIMES for key, _ in block.headers)
            for block in blocks
        )

    def _read_now(self, slice_: FileSlice, request: KeyRequest) -> GroupCells:
        cells = self.read(slice_, request)
        return GroupCells(tuple(cells.base), cells.newer)

    def _layers(self, blocks: Sequence[tuple[LogFile, LogBlock]], request: KeyRequest) -> Iterator[Cells | Deletes | None]:
        """Yield the layer of each block. Small HFiles are decoded together: each costs more than its cells."""
        small = [entry for entry in blocks if _is_small(*entry)]
        together: Iterator[Cells | None] | None = None
        if small and sum(block.content_size_bytes for _, block in small) <= FULL_READ_BYTES:
            # If this fails, reading block by block reports the error with its path.
            with suppress(CorruptData, Unsupported):
                together = iter(self._small_cells(small, request))
        for log, block in blocks:
            if together is not None and _is_small(log, block):
                yield next(together)
            else:
                yield self._with_path(log, partial(self._block_cells, log, block, request))

    def _small_cells(self, blocks: Sequence[tuple[LogFile, LogBlock]], request: KeyRequest) -> list[Cells | None]:
        cells, ends = self._files.cells(blocks)
        places = request.matches(cells.column("key"))
        chosen = pa.array(places)
        keys, values = cells.column("key").take(chosen), cells.column("value").take(chosen)
        bounds = [0, *np.searchsorted(places, ends).tolist()]
        layers: list[Cells | None] = []
        for (_, block), start, end in zip(blocks, bounds, bounds[1:], strict=False):
            schema = self._files.schema(block.required(HeaderKey.SCHEMA)) if start < end else ""
            layers.append(Cells(keys[start:end], values[start:end], schema) if start < end else None)
        return layers

    def _base_cells(self, file: BaseFile, request: KeyRequest) -> Iterator[Cells]:
        try:
            opened = self._files.base(file)
            text = opened.file_info.get(SCHEMA)
            if text is None:
                raise CorruptData("an HFile of the metadata table has no value schema in its file info")
            schema = self._files.schema(text.decode("utf-8"))
            for batch in request.read(opened):
                yield Cells(batch.column("key"), batch.column("value"), schema)
        except UnicodeDecodeError as error:
            raise CorruptData("the schema in an HFile is not UTF-8", path=self._files.absolute(file)) from error
        except CorruptData as error:
            raise error.with_path(self._files.absolute(file)) from error

    def _block_cells(self, log: LogFile, block: LogBlock, request: KeyRequest) -> Cells | Deletes | None:
        if block.kind is BlockType.DELETE:
            batches = list(decode_deletes(self._files.content(log, block)))
            keys = [batch.column("record_key").view(pa.binary()) for batch in batches]
            return Deletes(pa.concat_arrays(keys)) if keys else None
        if block.kind is not BlockType.HFILE:
            raise Unsupported(f"cannot read a log block of type {block.kind.name} in the metadata table")
        schema = self._files.schema(block.required(HeaderKey.SCHEMA))
        read_batches = list(request.read(self._files.inner(log, block)))
        if not read_batches:
            return None
        return Cells(
            pa.concat_arrays([batch.column("key") for batch in read_batches]),
            pa.concat_arrays([batch.column("value") for batch in read_batches]),
            schema,
        )

    def _with_path(self, log: LogFile, read: Callable[[], T]) -> T:
        try:
            return read()
        except CorruptData as error:
            raise error.with_path(self._files.absolute(log)) from error


@dataclass(frozen=True, slots=True)
class MetadataPartition:
    """One partition of the metadata table in a snapshot.

    Attributes:
        storage: Storage of the metadata table.
        slices: The slices of all its file groups, by section and number.
        counted: Instants with valid log blocks.
    """

    storage: StorageSpec
    name: str
    slices: tuple[FileSlice, ...]
    counted: frozenset[str]

    def narrowed(self, shards: Collection[int]) -> MetadataPartition:
        """Return this partition with only some file groups filled. The others keep their number, but are empty."""
        slices = tuple(s if n in shards else replace(s, base=None, logs=()) for n, s in enumerate(self.slices))
        return replace(self, slices=slices)

    def section(self, partition_path: str) -> MetadataPartition:
        """Return the section of a partitioned index for one table partition, which may be empty."""
        name = format_section(partition_path)
        return replace(self, slices=tuple(s for s in self.slices if parse_file_group(s.file_id)[0] == name))


class PartitionReader:
    """Looks up keys in a partition. Errors are those of `GroupReader`."""

    def __init__(self, partition: MetadataPartition) -> None:
        self._partition = partition
        self._reader = GroupReader(MetadataFiles(open_storage(partition.storage)), partition.counted.__contains__)

    def lookup(self, partition: str, keys: pa.StringArray) -> list[GroupCells]:
        """As `MetadataTable.lookup`. Raises InvalidRequest for another partition than its own."""
        if partition != self._partition.name:
            raise InvalidRequest(
                f"cannot look up keys in the metadata table partition {partition}: this reader is open on {self._partition.name}"
            )
        sections = by_section(self._partition.slices)
        return self._reader.read_all([task for section in sections for task in lookup_tasks(section, keys)])

    def lookup_all_groups(self, keys: pa.StringArray) -> list[GroupCells]:
        """Look up keys in every file group, independent of their routing.

        Args:
            keys: Distinct.
        """
        binary_keys = keys.view(pa.binary())
        request = KeyRequest(keys=binary_keys.take(pc.sort_indices(binary_keys)))
        return self._reader.read_all([(slice_, request) for slice_ in self._partition.slices])


def _is_small(log: LogFile, block: LogBlock) -> bool:
    return block.kind is BlockType.HFILE and log.size_bytes <= FULL_READ_BYTES and block.content_size_bytes <= _SMALL_BYTES


def _files_of(slice_: FileSlice) -> tuple[BaseFile | LogFile, ...]:
    return (*((slice_.base,) if slice_.base is not None else ()), *slice_.logs)
