"""File groups of the metadata table, read: the cells of some keys or prefixes, or all of them.

    GroupReader          reads groups of one opened metadata table
    MetadataPartition    one partition as a snapshot sees it, as a plain value that travels to workers
    PartitionReader      the same, opened again on a worker

A key belongs to the file group that its hash names.  The base file and the log blocks of a group come back as layers of cells;
`merge` and `indexes` say what they mean.

Source: docs/formats/metadata-table.md, key to file group.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Protocol, TypeVar

import numpy as np
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
from pyhudi.metadata_table.reader.metadata_file_cache import MetadataFiles
from pyhudi.records.hashing import key_shards
from pyhudi.storage import open_storage
from pyhudi.storage.base import StorageSpec
from pyhudi.table.file_slices import BaseFile, FileSlice, LogFile

_GROUP_THREADS = 8

T = TypeVar("T")


class KeyedCells(Protocol):
    """What looks keys of a partition up."""

    def lookup(self, partition: str, keys: pa.StringArray) -> list[GroupCells]:
        """The cells of some keys.  keys: string, no nulls, in any order; a key is looked up once.  One result for each group
        read.
        """
        ...


@dataclass(frozen=True, slots=True)
class KeyRequest:
    """What is asked of a file group: keys (binary, ascending, distinct), prefixes, or everything when both are None."""

    keys: pa.BinaryArray | None = None
    prefixes: tuple[bytes, ...] | None = None

    def read(self, file: HFile) -> Iterator[pa.RecordBatch]:
        """Batches of `key` and `value`."""
        if self.keys is not None:
            return file.lookup(self.keys)
        if self.prefixes is not None:
            return file.scan_prefixes(self.prefixes)
        return file.scan()


def by_section(slices: Iterable[FileSlice]) -> tuple[tuple[FileSlice, ...], ...]:
    """The slices of each section of an index in turn, by number.  Raises as `grouped`."""
    named = {slice_.file_id: slice_ for slice_ in slices}
    groups = grouped(named)
    return tuple(tuple(named[group.file_id] for group in found) for _, found in groupby(groups, key=lambda group: group.section))


def lookup_tasks(
    slices: Sequence[FileSlice], keys: pa.StringArray, routes: pa.StringArray | None = None
) -> list[tuple[FileSlice, KeyRequest]]:
    """Which keys are asked of which group.  slices: of all groups of a partition, by number; routes: what tells the group of each
    key, the keys being distinct; None: the key does.
    """
    distinct = pc.unique(keys) if routes is None else keys
    shards = key_shards(distinct if routes is None else routes, len(slices))
    tasks: list[tuple[FileSlice, KeyRequest]] = []
    for number in np.unique(shards).tolist():
        mine = distinct.filter(pa.array(shards == number)).cast(pa.binary())
        tasks.append((slices[number], KeyRequest(keys=mine.take(pc.sort_indices(mine)))))
    return tasks


class GroupReader:
    """Reads file groups.  counts: whether the log blocks of an instant are seen.

    Its methods raise TableState when a file is missing, CorruptData naming the file when one is damaged, Unsupported when it
    holds what is not read.
    """

    def __init__(self, files: MetadataFiles, counts: Callable[[str], bool]) -> None:
        self._files = files
        self._counts = counts

    def read_all(self, tasks: Sequence[tuple[FileSlice, KeyRequest]]) -> list[GroupCells]:
        """The cells of several groups, read at once and held."""
        self._files.fetch(file for slice_, _ in tasks for file in _files_of(slice_))
        if len(tasks) < 2:
            return [self._read_now(*task) for task in tasks]
        with ThreadPoolExecutor(min(_GROUP_THREADS, len(tasks))) as pool:
            return list(pool.map(lambda task: self._read_now(*task), tasks))

    def read(self, slice_: FileSlice, request: KeyRequest) -> GroupCells:
        """The cells of one group; its base file is read while its cells are asked for."""
        base = self._base_cells(slice_.base, request) if slice_.base is not None else ()
        files = ((log, self._files.blocks(log, verified=self._counts(log.name.instant_time))) for log in slice_.logs)
        blocks = ((log, block) for log, found in files for block in found)
        kept = without_compacted(surviving_blocks(blocks, self._counts), lambda found: found[1])
        newer = [self._named(log, partial(self._block_cells, log, block, request)) for log, block in kept]
        return GroupCells(base, tuple(layer for layer in newer if layer is not None))

    def _read_now(self, slice_: FileSlice, request: KeyRequest) -> GroupCells:
        found = self.read(slice_, request)
        return GroupCells(tuple(found.base), found.newer)

    def _base_cells(self, file: BaseFile, request: KeyRequest) -> Iterator[Cells]:
        try:
            opened = self._files.base(file)
            text = opened.file_info.get(SCHEMA)
            if text is None:
                raise CorruptData("an HFile of the metadata table does not name the schema of its values")
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
            keys = [batch.column("record_key").cast(pa.binary()) for batch in batches]
            return Deletes(pa.concat_arrays(keys)) if keys else None
        if block.kind is not BlockType.HFILE:
            raise Unsupported(f"a log block of type {block.kind.name} in the metadata table")
        schema = self._files.schema(block.required(HeaderKey.SCHEMA))
        found = list(request.read(self._files.inner(log, block)))
        if not found:
            return None
        return Cells(
            pa.concat_arrays([batch.column("key") for batch in found]),
            pa.concat_arrays([batch.column("value") for batch in found]),
            schema,
        )

    def _named(self, log: LogFile, read: Callable[[], T]) -> T:
        try:
            return read()
        except CorruptData as error:
            raise error.with_path(self._files.absolute(log)) from error


@dataclass(frozen=True, slots=True)
class MetadataPartition:
    """One partition of the metadata table as a snapshot sees it.

    storage: of the metadata table; slices: of all its file groups, by section and number; counted: the instants whose log blocks
    count.
    """

    storage: StorageSpec
    name: str
    slices: tuple[FileSlice, ...]
    counted: frozenset[str]

    def narrowed(self, shards: Collection[int]) -> MetadataPartition:
        """The same for keys of some file groups only: the others are still counted, and look empty."""
        slices = tuple(s if n in shards else replace(s, base=None, logs=()) for n, s in enumerate(self.slices))
        return replace(self, slices=slices)

    def section(self, partition_path: str) -> MetadataPartition:
        """Of a partitioned index what it has of one partition of the table, which may be nothing."""
        name = format_section(partition_path)
        return replace(self, slices=tuple(s for s in self.slices if parse_file_group(s.file_id)[0] == name))


class PartitionReader:
    """Looks keys up in a partition.  Errors are those of `GroupReader`."""

    def __init__(self, partition: MetadataPartition) -> None:
        self._partition = partition
        self._reader = GroupReader(MetadataFiles(open_storage(partition.storage)), partition.counted.__contains__)

    def lookup(self, partition: str, keys: pa.StringArray) -> list[GroupCells]:
        """As `MetadataTable.lookup`.  Raises InvalidRequest for another partition than its own."""
        if partition != self._partition.name:
            raise InvalidRequest(f"this is {self._partition.name} of the metadata table, not {partition}")
        sections = by_section(self._partition.slices)
        return self._reader.read_all([task for section in sections for task in lookup_tasks(section, keys)])

    def lookup_all_groups(self, keys: pa.StringArray) -> list[GroupCells]:
        """As `lookup`, in each file group, whatever tells the group of a key.  keys: distinct."""
        wanted = keys.cast(pa.binary())
        asked = KeyRequest(keys=wanted.take(pc.sort_indices(wanted)))
        return self._reader.read_all([(slice_, asked) for slice_ in self._partition.slices])


def _files_of(slice_: FileSlice) -> tuple[BaseFile | LogFile, ...]:
    return (*((slice_.base,) if slice_.base is not None else ()), *slice_.logs)
