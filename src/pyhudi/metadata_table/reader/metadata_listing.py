"""File listing from the metadata table: one lookup serves many partitions, without listing directories.

The table stays readable when its metadata table is missing or damaged: the listing warns with the file's path and falls
back to directories. Earlier results remain valid, because both sources agree on committed files.

Format: docs/formats/metadata-table.md, read-time use.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import pairwise
from threading import Lock
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptData, TableState, Unsupported, get_logger
from pyhudi.format.instants import INIT_INSTANT_TIME, Action
from pyhudi.format.paths import join_path
from pyhudi.metadata_table.codecs.files_codec import FILES_SCHEMA, ROOT
from pyhudi.metadata_table.codecs.metadata_partitions import FILES
from pyhudi.metadata_table.reader.cell_merge import Cells, GroupCells
from pyhudi.metadata_table.reader.index_lookups import (
    find_all_files,
    find_files,
    find_files_since,
    find_partitions,
    merge_newer_files,
)
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.storage.base import FileInfo
from pyhudi.table.file_slices import LogFile
from pyhudi.table.listing import DirectoryListing, FileListing
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline

_LOG = get_logger(__name__)

DAMAGE = (CorruptData, TableState, Unsupported)
"""Errors of a metadata table that is missing, damaged or newer than this reader. An unavailable store is not damage."""

T = TypeVar("T")

MAX_LISTING_BYTES = 32 << 20
"""A listing that takes more is neither cached nor offered to the next operation."""

_READ_WHOLE_BYTES = 256 << 10
"""Size of a `files` partition that is decoded as a whole, which takes less time than two lookups in it."""

MAX_UNMERGED = 16
"""Delta commits of this process that are merged into a retained listing only once it is used."""

_CACHE_KEY = "metadata listing"


class MetadataListing:
    """Lists files from the `files` partition, and from directories once that has failed. Results are cached."""

    def __init__(self, metadata: MetadataTable, earlier: MetadataListing | None = None) -> None:
        """earlier: the listing of an earlier state, whose results are updated by what was added since."""
        self._metadata: MetadataTable | None = metadata
        self._earlier = None if earlier is None or earlier.metadata is None else (earlier.metadata, earlier)
        self._directories = DirectoryListing(metadata.data_context.storage)
        self._partitions: tuple[str, ...] | None = None
        self._files_by_partition: dict[str, pa.RecordBatch] = {}
        self._unmerged: tuple[Cells, ...] = ()
        self._merge_lock = Lock()
        self._concatenated: tuple[list[str], pa.Table] | None = None

    def __getstate__(self) -> dict[str, object]:
        with self._merge_lock:
            return {name: value for name, value in self.__dict__.items() if name != "_merge_lock"}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._merge_lock = Lock()

    @property
    def metadata(self) -> MetadataTable | None:
        """The metadata table in use; None once it has failed."""
        return self._metadata

    @property
    def memory_bytes(self) -> int:
        """Approximate memory of the cached results."""
        concatenated = self._concatenated
        files, unmerged = tuple(self._files_by_partition.values()), self._unmerged
        size_bytes = sum(part.nbytes for part in files) + sum(cells.values.nbytes for cells in unmerged)
        return size_bytes + (0 if concatenated is None else concatenated[1].nbytes)

    @property
    def _files(self) -> dict[str, pa.RecordBatch]:
        """Files of the partitions that were looked up."""
        with self._merge_lock:
            if self._unmerged:
                self._merge()
            return self._files_by_partition

    def _merge(self) -> None:
        """Merge the records of later delta commits into the files of their partitions."""
        layers: list[Cells] = []
        changed: set[str] = set()
        for cells in self._unmerged:
            paths = ["" if key == ROOT else key for key in cells.keys.cast(pa.string()).to_pylist()]
            rows = pa.array([row for row, path in enumerate(paths) if path in self._files_by_partition], pa.int64())
            layers.append(Cells(cells.keys.take(rows), cells.values.take(rows), cells.schema))
            changed.update(path for path in paths if path in self._files_by_partition)
        known = {path: self._files_by_partition[path] for path in sorted(changed)}
        self._files_by_partition.update(_by_partition(merge_newer_files(known, [GroupCells((), tuple(layers))]), known))
        self._unmerged = ()

    def is_state_of(self, timeline: Timeline) -> bool:
        """Whether the metadata table holds what the writes of a timeline of the table added, and nothing that instants
        outside the timeline removed.
        """
        if self._metadata is None:
            return False
        own, known = self._metadata.timeline, {instant.request_time for instant in timeline.instants}
        applied = {instant.request_time for instant in own.completed(Action.DELTACOMMIT)}
        return all(
            time in known or timeline.is_before_start(time) or time.startswith(INIT_INSTANT_TIME) for time in applied
        ) and all(i.request_time in applied or own.is_before_start(i.request_time) for i in timeline.completed_writes())

    def partitions(self) -> tuple[str, ...]:
        """Return all partition paths, sorted."""
        if self._partitions is None:
            self._partitions = self._lookup_or_fall_back(self._find_partitions, self._directories.partitions)
        return self._partitions

    def _find_partitions(self, metadata: MetadataTable) -> tuple[str, ...]:
        """Look up the partitions, and with them their files if these are few."""
        stored = (file for slice_ in metadata.slices(FILES) for file in (*((slice_.base,) if slice_.base else ()), *slice_.logs))
        if self._files or self._earlier is not None or sum(file.size_bytes for file in stored) > _READ_WHOLE_BYTES:
            return find_partitions(metadata)
        partitions, files = find_all_files(metadata)
        self._files.update(_by_partition(files, partitions))
        self._store_for_next_operation()
        return partitions

    def files(self, partitions: Iterable[str]) -> dict[str, tuple[FileInfo, ...]]:
        """Return the files of each partition, with one lookup for all uncached ones. modified_ms is 0: it is not recorded."""
        distinct = list(dict.fromkeys(partitions))
        if self._look_up(distinct):
            found = self._files
            return {partition: _file_infos(partition, found[partition]) for partition in distinct}
        return self._directories.files(distinct)

    def group_files(self, groups: Mapping[str, Collection[str]]) -> dict[str, tuple[FileInfo, ...]]:
        """Return the files of some file groups.

        Args:
            groups: File ids by partition.
        """
        if self._look_up(list(groups)):
            found = self._files
            return {
                partition: _file_infos(partition, _select_file_groups(found[partition], ids)) for partition, ids in groups.items()
            }
        return self._directories.group_files(groups)

    def cached_groups(self, partitions: Iterable[str]) -> frozenset[str] | None:
        """Return the file ids in partitions from the cache alone; None if one of the partitions is not cached."""
        distinct = list(dict.fromkeys(partitions))
        if self._metadata is None or not self._files.keys() >= set(distinct):
            return None
        return frozenset(self._rows_of(distinct).column("file_id").unique().to_pylist())

    def names(self, partitions: Iterable[str]) -> pa.Table | None:
        """Return partition, name, file_id (strings) of all files of the partitions; None once the listing uses directories.

        file_id is the first part of a data file name; empty for names of another form.
        """
        distinct = list(dict.fromkeys(partitions))
        if not self._look_up(distinct):
            return None
        if not distinct:
            return pa.schema([("partition", pa.string()), ("name", pa.string()), ("file_id", pa.string())]).empty_table()
        rows = self._rows_of(distinct)
        return rows.select(["partition", "name", "file_id"])

    def rows(self, partitions: Iterable[str], groups: Mapping[str, Collection[str]] | None = None) -> pa.Table | None:
        """Return partition, name, file_id, size_bytes of all files, as `names`.

        Args:
            partitions: Partition paths of the table.
            groups: Restricts the files of each partition to these file ids.
        """
        distinct = list(dict.fromkeys(partitions))
        if not self._look_up(distinct):
            return None
        rows = self._rows_of(distinct)
        if groups is None:
            return rows
        group_keys = pa.array([f"{partition}/{file_id}" for partition, ids in groups.items() for file_id in ids], pa.string())
        keys = pc.binary_join_element_wise(rows.column("partition"), rows.column("file_id"), "/")
        return rows.filter(pc.is_in(keys, value_set=group_keys))

    def _rows_of(self, partitions: list[str]) -> pa.Table:
        cached_rows = self._concatenated
        if cached_rows is None or cached_rows[0] != partitions:
            found = self._files
            parts = [found[partition] for partition in partitions]
            counts = [part.num_rows for part in parts]
            names = pa.concat_arrays([pa.array([], pa.string()), *(part.column("name") for part in parts)])
            sizes = pa.concat_arrays([pa.array([], pa.int64()), *(part.column("size_bytes") for part in parts)])
            partition_column = pa.array(partitions, pa.string()).take(
                pa.array(np.repeat(np.arange(len(partitions)), counts), pa.int64())
            )
            rows = pa.table({"partition": partition_column, "name": names, "file_id": file_ids(names), "size_bytes": sizes})
            cached_rows = self._concatenated = (partitions, rows)
        return cached_rows[1]

    def _look_up(self, partitions: list[str]) -> bool:
        found = self._files
        missing = [partition for partition in partitions if partition not in found]
        if missing and self._metadata is not None:
            listed = self._lookup_or_fall_back(lambda metadata: self.find(metadata, missing), lambda: None)
            if listed is not None:
                found.update(listed)
                self._store_for_next_operation()
        return self._metadata is not None

    def _store_for_next_operation(self) -> None:
        """Offer these results to the next operation of the open table."""
        self._earlier = None
        if self._metadata is not None and self.memory_bytes <= MAX_LISTING_BYTES:
            self._metadata.data_context.operation_cache.put(_CACHE_KEY, self)

    def after_commit(self, metadata: MetadataTable, added: Cells | None) -> MetadataListing:
        """Return the listing after a delta commit. added: its records of the files partition."""
        later = MetadataListing(metadata)
        with self._merge_lock:
            later._files_by_partition, later._unmerged = dict(self._files_by_partition), self._unmerged
        if added is not None:
            later._unmerged += (added,)
        if len(later._unmerged) > MAX_UNMERGED or later.memory_bytes > MAX_LISTING_BYTES:
            later._merge()
        return later

    def find(self, metadata: MetadataTable, partitions: list[str]) -> dict[str, pa.RecordBatch]:
        """Look up the files of partitions in a metadata table, from the earlier listing and what was added since."""
        if self._earlier is not None:
            earlier, listing = self._earlier
            files = listing._files
            known = {partition: files[partition] for partition in partitions if partition in files}
            if len(known) == len(partitions):
                if metadata.is_same_state(earlier):
                    return known
                found = find_files_since(metadata, earlier, known)
                if found is not None:
                    return _by_partition(found, partitions)
        return _by_partition(find_files(metadata, partitions), partitions)

    def _lookup_or_fall_back(self, lookup: Callable[[MetadataTable], T], otherwise: Callable[[], T]) -> T:
        metadata = self._metadata
        if metadata is not None:
            try:
                return lookup(metadata)
            except DAMAGE as error:
                uri = metadata.storage.uri
                self._metadata = None
                warn_metadata_unusable(f"the metadata table at {uri} cannot be used, listing directories instead: {error}")
        return otherwise()


def advance_listing(
    context: TableContext, before: Timeline, after: Timeline, files: Cells | None, logs: Mapping[str, LogFile]
) -> None:
    """Update the retained listing by a delta commit of this process, so that the next operation need not read it.

    Nothing is retained if the listing is not of the state that the delta commit was made on.

    Args:
        before: Timeline of the metadata table, without the delta commit.
        after: The timeline with it.
        files: Its records of the files partition.
        logs: As in `MetadataTable.after_commit`.
    """
    listing: MetadataListing | None = context.operation_cache.get(_CACHE_KEY)
    if listing is None or listing.metadata is None:
        return
    metadata = listing.metadata
    if metadata.describes_same(context) and metadata.timeline.instants == before.instants:
        context.operation_cache.put(_CACHE_KEY, listing.after_commit(metadata.after_commit(after, logs), files))


def find_files_since_retained(metadata: MetadataTable, partitions: Iterable[str]) -> pa.RecordBatch:
    """As `find_files`, from the listing that the last operation of the open table retained, if any."""
    found = MetadataListing(metadata, metadata.data_context.operation_cache.get(_CACHE_KEY)).find(
        metadata, list(dict.fromkeys(partitions))
    )
    return pa.concat_batches(
        [pa.RecordBatch.from_pylist([], schema=FILES_SCHEMA), *(found[partition] for partition in sorted(found))]
    )


def choose_listing(context: TableContext, timeline: Timeline) -> FileListing:
    """Return the listing for a loaded timeline: from the metadata table if readers may use it, else from directories.

    Tables before version 8 list directories.
    """
    if context.config.has_metadata_table and context.config.version.has_one_log_file_per_commit:
        metadata = MetadataTable(context, timeline, earlier=retained_metadata_table(context))
        return MetadataListing(metadata, context.operation_cache.get(_CACHE_KEY))
    return DirectoryListing(context.storage)


def retained_metadata_table(context: TableContext) -> MetadataTable | None:
    """Return the metadata table that an earlier operation of the open table has read, possibly outdated; None if there
    is none.
    """
    earlier: MetadataListing | None = context.operation_cache.get(_CACHE_KEY)
    return None if earlier is None else earlier.metadata


def warn_metadata_unusable(message: str) -> None:
    """Report an unusable metadata table or index in the log and as a Python warning."""
    _LOG.warning(message)
    warnings.warn(message, RuntimeWarning, stacklevel=2)


def file_ids(names: pa.StringArray) -> pa.StringArray:
    """Return the file id of each data file name, without the leading dot of log files; empty for names without `_`."""
    prefixes = pc.extract_regex(names, r"^\.?(?P<file_id>[^_]+)_").field("file_id")
    return pc.fill_null(prefixes, "")


def _select_file_groups(files: pa.RecordBatch, ids: Collection[str]) -> pa.RecordBatch:
    return files.filter(pc.is_in(file_ids(files.column("name")), value_set=pa.array(sorted(ids), pa.string())))


def _file_infos(partition: str, files: pa.RecordBatch) -> tuple[FileInfo, ...]:
    names, sizes = files.column("name").to_pylist(), files.column("size_bytes").to_pylist()
    return tuple(FileInfo(join_path(partition, name), size, 0) for name, size in zip(names, sizes, strict=True))


def _by_partition(files: pa.RecordBatch, partitions: Iterable[str]) -> dict[str, pa.RecordBatch]:
    """Split rows sorted by partition; a partition without rows gets an empty batch."""
    result = {partition: files.slice(0, 0) for partition in partitions}
    if not files.num_rows:
        return result
    column = files.column("partition")
    changes = pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    starts = [0, *(np.flatnonzero(changes) + 1).tolist(), files.num_rows]
    for start, end in pairwise(starts):
        result[column[start].as_py()] = files.slice(start, end - start)
    return result
