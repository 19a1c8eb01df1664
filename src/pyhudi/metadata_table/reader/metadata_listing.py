"""The table's listing from its metadata table: no directory is listed, and many partitions are answered at once.

A metadata table that is missing or damaged does not make the table unreadable: the listing warns, naming the file, and from then
on asks the directories.  An answer that was given already stays as it is: both say the same of committed files.

Source: docs/formats/metadata-table.md, read-time use.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import pairwise
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptData, TableState, Unsupported
from pyhudi.format.paths import join_path
from pyhudi.metadata_table.reader.index_lookups import find_files, find_partitions
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.storage.base import FileInfo
from pyhudi.table.listing import DirectoryListing, FileListing
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline

_LOG = logging.getLogger(__name__)

DAMAGE = (CorruptData, TableState, Unsupported)
"""What a metadata table that is missing, damaged or newer than this reader raises.  A store without an answer is not damage."""

T = TypeVar("T")


class MetadataListing:
    """Answers from the `files` partition, and from directories once that has failed.  What was found is kept."""

    def __init__(self, metadata: MetadataTable) -> None:
        self._metadata: MetadataTable | None = metadata
        self._directories = DirectoryListing(metadata.data_context.storage)
        self._partitions: tuple[str, ...] | None = None
        self._files: dict[str, pa.RecordBatch] = {}
        self._together: tuple[list[str], pa.Table] | None = None

    @property
    def metadata(self) -> MetadataTable | None:
        """The metadata table that answers; None once it has failed."""
        return self._metadata

    @property
    def memory_bytes(self) -> int:
        """About what the answers so far take."""
        together = self._together
        return sum(part.nbytes for part in tuple(self._files.values())) + (0 if together is None else together[1].nbytes)

    def partitions(self) -> tuple[str, ...]:
        """All partition paths, sorted."""
        if self._partitions is None:
            self._partitions = self._asked(find_partitions, self._directories.partitions)
        return self._partitions

    def files(self, partitions: Iterable[str]) -> dict[str, tuple[FileInfo, ...]]:
        """The files of each partition; one lookup for all that were not looked up before.  modified_ms is 0: nobody wrote it
        down.
        """
        wanted = list(dict.fromkeys(partitions))
        if self._look_up(wanted):
            return {partition: _infos(partition, self._files[partition]) for partition in wanted}
        return self._directories.files(wanted)

    def group_files(self, groups: Mapping[str, Collection[str]]) -> dict[str, tuple[FileInfo, ...]]:
        """The files of some file groups: partition -> file ids."""
        if self._look_up(list(groups)):
            return {partition: _infos(partition, _of_groups(self._files[partition], ids)) for partition, ids in groups.items()}
        return self._directories.group_files(groups)

    def cached_groups(self, partitions: Iterable[str]) -> frozenset[str] | None:
        """The file ids in partitions, as far as was asked before; None where one of these was not looked up by now."""
        wanted = list(dict.fromkeys(partitions))
        if self._metadata is None or not all(partition in self._files for partition in wanted):
            return None
        return frozenset(self._rows_of(wanted).column("file_id").unique().to_pylist())

    def names(self, partitions: Iterable[str]) -> pa.Table | None:
        """partition, name, file_id (strings) of all files of the partitions, whatever their kind; None once directories answer.

        file_id: what the name begins with, empty for names of another form.
        """
        wanted = list(dict.fromkeys(partitions))
        if not self._look_up(wanted):
            return None
        if not wanted:
            return pa.schema([("partition", pa.string()), ("name", pa.string()), ("file_id", pa.string())]).empty_table()
        rows = self._rows_of(wanted)
        return rows.select(["partition", "name", "file_id"])

    def rows(self, partitions: Iterable[str], groups: Mapping[str, Collection[str]] | None = None) -> pa.Table | None:
        """partition, name, file_id, size_bytes of all files, as `names`; groups: of each partition only these file ids."""
        wanted = list(dict.fromkeys(partitions))
        if not self._look_up(wanted):
            return None
        rows = self._rows_of(wanted)
        if groups is None:
            return rows
        chosen = pa.array([f"{partition}/{file_id}" for partition, ids in groups.items() for file_id in ids], pa.string())
        keys = pc.binary_join_element_wise(rows.column("partition"), rows.column("file_id"), "/")
        return rows.filter(pc.is_in(keys, value_set=chosen))

    def _rows_of(self, partitions: list[str]) -> pa.Table:
        known = self._together
        if known is None or known[0] != partitions:
            parts = [self._files[partition] for partition in partitions]
            counts = [part.num_rows for part in parts]
            names = pa.concat_arrays([pa.array([], pa.string()), *(part.column("name") for part in parts)])
            sizes = pa.concat_arrays([pa.array([], pa.int64()), *(part.column("size_bytes") for part in parts)])
            of = pa.array(partitions, pa.string()).take(pa.array(np.repeat(np.arange(len(partitions)), counts), pa.int64()))
            rows = pa.table({"partition": of, "name": names, "file_id": file_ids(names), "size_bytes": sizes})
            known = self._together = (partitions, rows)
        return known[1]

    def _look_up(self, partitions: list[str]) -> bool:
        missing = [partition for partition in partitions if partition not in self._files]
        if missing and self._metadata is not None:
            found = self._asked(lambda metadata: find_files(metadata, missing), lambda: None)
            if found is not None:
                self._files.update(_by_partition(found, missing))
        return self._metadata is not None

    def _asked(self, lookup: Callable[[MetadataTable], T], otherwise: Callable[[], T]) -> T:
        metadata = self._metadata
        if metadata is not None:
            try:
                return lookup(metadata)
            except DAMAGE as error:
                uri = metadata.storage.uri
                self._metadata = None
                warn_metadata_unusable(f"the metadata table at {uri} cannot be used, so directories are listed instead: {error}")
        return otherwise()


def choose_listing(context: TableContext, timeline: Timeline) -> FileListing:
    """The listing for a loaded timeline: the metadata table's if the table has one that readers may use, else directories'.

    Tables before version 8 list directories.
    """
    if context.config.has_metadata_table and context.config.version.has_one_log_file_per_commit:
        return MetadataListing(MetadataTable(context, timeline))
    return DirectoryListing(context.storage)


def warn_metadata_unusable(message: str) -> None:
    """Say what cannot be used, in the log and as a Python warning."""
    _LOG.warning(message)
    warnings.warn(message, RuntimeWarning, stacklevel=2)


def file_ids(names: pa.StringArray) -> pa.StringArray:
    """What data file names begin with: the file id, without the leading dot of log files; empty where there is no `_`."""
    found = pc.extract_regex(names, r"^\.?(?P<file_id>[^_]+)_").field("file_id")
    return pc.fill_null(found, "")


def _of_groups(files: pa.RecordBatch, ids: Collection[str]) -> pa.RecordBatch:
    return files.filter(pc.is_in(file_ids(files.column("name")), value_set=pa.array(sorted(ids), pa.string())))


def _infos(partition: str, files: pa.RecordBatch) -> tuple[FileInfo, ...]:
    names, sizes = files.column("name").to_pylist(), files.column("size_bytes").to_pylist()
    return tuple(FileInfo(join_path(partition, name), size, 0) for name, size in zip(names, sizes, strict=True))


def _by_partition(files: pa.RecordBatch, partitions: Iterable[str]) -> dict[str, pa.RecordBatch]:
    """Rows that are sorted by partition, cut apart; a partition without rows has none."""
    result = {partition: files.slice(0, 0) for partition in partitions}
    if not files.num_rows:
        return result
    column = files.column("partition")
    changes = pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    starts = [0, *(np.flatnonzero(changes) + 1).tolist(), files.num_rows]
    for start, end in pairwise(starts):
        result[column[start].as_py()] = files.slice(start, end - start)
    return result
