"""Divide a query between an engine's own Parquet reader and PyHudi's reader.

The engine reads base files of the local file system; `planning.native_scan` decides which of them. It cannot read other
stores, because their credentials and clients are PyHudi's. PyHudi merges the logs of these slices: the engine skips the
base rows that they replace, and the rows of the logs are added (merge on read as a lazy plan). The footers are read
here, with their checksums, from the cache of the table's footers if they have been read before. Engines do not verify
page checksums, so those of the needed columns are verified here, once in this process for a file of one size and time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pyhudi.errors import HudiError
from pyhudi.format.names import is_orc
from pyhudi.format.parquet.page_checks import ChecksumMode
from pyhudi.format.parquet.plain_columns import plain_columns
from pyhudi.format.parquet.verify_pages import verify_pages
from pyhudi.metadata_table.reader.metadata_file_cache import LruCache
from pyhudi.operations.read.change_queries import ChangeQuery
from pyhudi.operations.read.query import SnapshotQuery
from pyhudi.planning.native_scan import (
    MAX_LOG_BYTES,
    MAX_SCANS,
    NativeColumn,
    NativeFile,
    NativeScan,
    StoredColumns,
    grouped_scans,
    native_columns,
)
from pyhudi.records.column_statistics import footer_ranges, stored_value
from pyhudi.records.filters.filter_visitor import columns as filter_columns
from pyhudi.storage import open_storage
from pyhudi.storage.base import FileInfo
from pyhudi.storage.local import LocalStorage
from pyhudi.storage.thread_pool import in_threads
from pyhudi.table.file_slices import FileSlice
from pyhudi.tasks.base_file_reader import missing_file_error, open_base_input, open_base_rows
from pyhudi.tasks.incoming_layout import rows_without_columns
from pyhudi.tasks.read_slice import ReadSpec, SliceOverlay, is_joined, overlay_slice, path_values, values_of_folder

_VERIFIED: LruCache[tuple[str, int, int], frozenset[str]] = LruCache(1 << 14)
"""Columns whose pages were verified, by path, size and modification time of a file."""

CanRead = Callable[[str, pa.Schema], bool]
"""An engine's rule: whether it can read a file, given its path and Arrow schema."""


@dataclass(frozen=True, slots=True, eq=False)
class DividedQuery:
    """The tasks of a query by their reader.

    Attributes:
        scans: What the engine reads: columns of the output, then those that only the condition of the query needs. Files
            appear once.
        merged: Rows of the logs of plain slices, which replace hidden rows of `scans`, in the columns of the output; None
            if there are none.
        plain: The slices of these files.
        rest: Tasks of PyHudi's reader.
    """

    scans: tuple[NativeScan, ...]
    merged: pa.Table | None
    plain: tuple[FileSlice, ...]
    rest: tuple[Any, ...]


def divide_query(
    query: SnapshotQuery | ChangeQuery, can_read: CanRead | None = None, *, merges_logs: bool = True
) -> DividedQuery:
    """Divide the tasks of a query. Files that cannot be opened are left to PyHudi's reader, which reports the error, and
    all files if page checksums are to be verified at each read.

    Args:
        can_read: Rule of the engine, in addition to the common ones.
        merges_logs: False leaves all slices with logs to PyHudi's reader.
    """
    storage = open_storage(query.spec.storage) if isinstance(query, SnapshotQuery) else None
    if (
        not isinstance(query, SnapshotQuery)
        or not isinstance(storage, LocalStorage)
        or query.spec.checksums is ChecksumMode.ALWAYS
    ):
        return DividedQuery((), None, (), tuple(query.tasks))
    layouts = _Layouts(storage, query.spec, _needed_columns(query.spec))
    candidates: list[FileSlice] = []
    log_bytes = 0
    for slice_ in query.tasks:
        log_bytes += sum(log.size_bytes for log in slice_.logs)
        is_mergeable = not slice_.logs or (merges_logs and log_bytes <= MAX_LOG_BYTES)
        if is_mergeable and _has_plain_base(slice_):
            candidates.append(slice_)
    files: dict[FileSlice, tuple[NativeFile, tuple[NativeColumn, ...]]] = {}
    threads = os.cpu_count() or 1
    for slice_, native in zip(candidates, in_threads(layouts.native_file, candidates, threads), strict=True):
        if native is not None and (can_read is None or can_read(native[0].path, native[0].schema)):
            files[slice_] = native
    overlays: dict[str, SliceOverlay] = {}
    with_logs = [slice_ for slice_ in files if slice_.logs]
    for slice_, overlay in zip(with_logs, in_threads(partial(_overlay, query.spec), with_logs, threads), strict=True):
        if overlay is None:
            del files[slice_]
        else:
            file, columns = files[slice_]
            files[slice_] = replace(file, hidden=overlay.hidden), columns
            overlays[file.path] = overlay
    scans = grouped_scans(files.values())[:MAX_SCANS]
    scanned = {path for scan in scans for path in scan.paths}
    plain = tuple(slice_ for slice_, (file, _) in files.items() if file.path in scanned)
    merged = [overlay.rows for path, overlay in overlays.items() if path in scanned and overlay.rows.num_rows]
    plain_slices = frozenset(plain)
    rest = tuple(task for task in query.tasks if task not in plain_slices)
    return DividedQuery(tuple(scans), _joined(merged, query.schema), plain, rest)


def _joined(tables: list[pa.Table], schema: pa.Schema) -> pa.Table | None:
    if not tables:
        return None
    # Arrow loses the number of rows of tables without columns.
    return pa.concat_tables(tables) if schema.names else rows_without_columns(sum(rows.num_rows for rows in tables))


def _overlay(spec: ReadSpec, slice_: FileSlice) -> SliceOverlay | None:
    try:
        return overlay_slice(spec, slice_)
    except (HudiError, pa.ArrowException, OSError):
        return None


def _needed_columns(spec: ReadSpec) -> pa.Schema:
    names = list(spec.output.names)
    if spec.condition is not None:
        names += sorted({name.split(".")[0] for name in filter_columns(spec.condition)})
    return pa.schema([spec.table_schema.field(name) for name in dict.fromkeys(names)])


def _has_plain_base(slice_: FileSlice) -> bool:
    base = slice_.base
    return base is not None and slice_.full_slice is None and not is_joined(slice_) and not is_orc(base.path)


class _Layouts:
    """Columns of base files. Files of one writer have equal schemas, whose columns are determined once, or by two threads at
    the same time.
    """

    def __init__(self, storage: LocalStorage, spec: ReadSpec, needed: pa.Schema) -> None:
        self._storage = storage
        self._spec = spec
        self._needed = needed
        self._known: list[tuple[pq.ParquetSchema, StoredColumns]] = []

    def native_file(self, slice_: FileSlice) -> tuple[NativeFile, tuple[NativeColumn, ...]] | None:
        """The base file of a slice, and the columns of the query in it; None if only PyHudi's reader has them."""
        assert slice_.base is not None, "the slice has a base file"
        spec, path = self._spec, slice_.base.path
        try:
            info = self._storage.stat(path)
            if info is None:
                raise missing_file_error(self._storage, path)
            metadata = self._metadata(info)
            stored = self._stored(metadata)
            of_path = path_values(spec, slice_.partition, self._needed, frozenset(stored.schema.names))
            constants = self._without_equal(slice_.partition, of_path, metadata)
            if constants is None:
                return None
            origins = None if spec.ids is None else spec.ids.origins(slice_.base.name.instant_time)
            columns = native_columns(self._needed, stored, constants, origins)
            if columns is None:
                return None
            if spec.checksums is ChecksumMode.ONCE:
                self._verify(info, metadata, {column.stored_name for column in columns if column.stored_name is not None})
            return NativeFile(self._storage.full_path(path), stored.schema, metadata.num_rows), columns
        except (HudiError, pa.ArrowException, UnicodeDecodeError, OSError):
            return None

    def _without_equal(
        self, partition: str, constants: dict[str, pa.Scalar], metadata: pq.FileMetaData
    ) -> dict[str, pa.Scalar] | None:
        """The constants without those that the file stores in every row: fewer files differ then. None if the file may
        store values that only PyHudi's reader replaces.
        """
        of_folder = values_of_folder(self._spec, partition, self._needed)
        ranges = footer_ranges(metadata, self._needed, tuple(of_folder)) if of_folder else {}
        remaining = dict(constants)
        for name, values in of_folder.items():
            stored = [stored_value(value) for value in values]
            known = ranges.get(name)
            is_equal = known is not None and (
                (known.is_all_null and None in stored)
                or (known.min is not None and known.null_count == 0 and known.min == known.max and known.min in stored)
            )
            if is_equal:
                remaining.pop(name, None)
            elif name not in constants and known is not None:
                return None
        return remaining

    def _metadata(self, info: FileInfo) -> pq.FileMetaData:
        """The footer of a file. A cached one costs no access to the file."""
        cached = None if self._spec.footers is None else self._spec.footers.get(info)
        if cached is not None:
            return cached.metadata
        with open_base_rows(self._storage, info.path, footers=self._spec.footers) as file:
            assert isinstance(file, pq.ParquetFile), "the file is a Parquet file, and no key excludes it"
            return file.metadata

    def _verify(self, info: FileInfo, metadata: pq.FileMetaData, names: Collection[str]) -> None:
        """Verify page checksums of columns, once in this process for a file of one size and modification time."""
        key = (self._storage.full_path(info.path), info.size_bytes, info.modified_ms)
        verified = _VERIFIED.get(key) or frozenset()
        unverified = frozenset(names) - verified
        if unverified:
            with open_base_input(self._storage, info.path) as source:
                for group in range(metadata.num_row_groups):
                    verify_pages(source, metadata, group, unverified)
            _VERIFIED.put(key, verified | unverified)

    def _stored(self, metadata: pq.FileMetaData) -> StoredColumns:
        for known, stored in reversed(self._known):
            if metadata.schema.equals(known):
                return stored
        schema = metadata.schema.to_arrow_schema().remove_metadata()
        stored = StoredColumns(schema, plain_columns(metadata, schema))
        self._known.append((metadata.schema, stored))
        return stored
