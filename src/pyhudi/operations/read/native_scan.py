"""Divide a query between an engine's own Parquet reader and PyHudi's reader.

The engine reads base files of the local file system; `planning.native_scan` decides which of them. It cannot read other
stores, because their credentials and clients are PyHudi's. The footers are read here, with their checksums, from the
cache of the table's footers if they have been read before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pyhudi.errors import HudiError
from pyhudi.format.names import is_orc
from pyhudi.format.parquet.page_checks import ChecksumMode
from pyhudi.format.parquet.plain_columns import plain_columns
from pyhudi.operations.read.change_queries import ChangeQuery
from pyhudi.operations.read.query import SnapshotQuery
from pyhudi.planning.native_scan import MAX_SCANS, NativeColumn, NativeScan, StoredColumns, grouped_scans, native_columns
from pyhudi.records.filters.filter_visitor import columns as filter_columns
from pyhudi.storage import open_storage
from pyhudi.storage.local import LocalStorage
from pyhudi.table.file_slices import FileSlice
from pyhudi.tasks.base_file_reader import open_base_rows
from pyhudi.tasks.read_slice import ReadSpec, is_joined, path_values

CanRead = Callable[[str, pa.Schema], bool]
"""An engine's rule: whether it can read a file, given its path and Arrow schema."""


@dataclass(frozen=True, slots=True)
class DividedQuery:
    """The tasks of a query by their reader.

    Attributes:
        scans: What the engine reads: columns of the output, then those that only the condition of the query needs. Files
            appear once.
        plain: The slices of these files.
        rest: Tasks of PyHudi's reader.
    """

    scans: tuple[NativeScan, ...]
    plain: tuple[FileSlice, ...]
    rest: tuple[Any, ...]


def divide_query(query: SnapshotQuery | ChangeQuery, can_read: CanRead | None = None) -> DividedQuery:
    """Divide the tasks of a query. Files that cannot be opened are left to PyHudi's reader, which reports the error, and
    all files if page checksums are to be verified at each read: engines do not verify them.
    """
    storage = open_storage(query.spec.storage) if isinstance(query, SnapshotQuery) else None
    if (
        not isinstance(query, SnapshotQuery)
        or not isinstance(storage, LocalStorage)
        or query.spec.checksums is ChecksumMode.ALWAYS
    ):
        return DividedQuery((), (), tuple(query.tasks))
    needed = _needed_columns(query.spec)
    layouts = _Layouts(storage, query.spec, needed)
    files: list[tuple[str, tuple[NativeColumn, ...], pa.Schema]] = []
    slices: dict[str, FileSlice] = {}
    rest: list[FileSlice] = []
    for slice_ in query.tasks:
        found = layouts.columns(slice_) if _is_single_file(slice_) else None
        path = "" if found is None or slice_.base is None else storage.full_path(slice_.base.path)
        if found is None or (can_read is not None and not can_read(path, found[1])):
            rest.append(slice_)
            continue
        files.append((path, *found))
        slices[path] = slice_
    scans = grouped_scans(files)
    for scan in scans[MAX_SCANS:]:
        rest.extend(slices.pop(path) for path in scan.paths)
    return DividedQuery(tuple(scans[:MAX_SCANS]), tuple(slices.values()), tuple(rest))


def _needed_columns(spec: ReadSpec) -> pa.Schema:
    names = list(spec.output.names)
    if spec.condition is not None:
        names += sorted({name.split(".")[0] for name in filter_columns(spec.condition)})
    return pa.schema([spec.table_schema.field(name) for name in dict.fromkeys(names)])


def _is_single_file(slice_: FileSlice) -> bool:
    is_alone = slice_.base is not None and not slice_.logs and slice_.full_slice is None
    return is_alone and not is_joined(slice_) and slice_.base is not None and not is_orc(slice_.base.path)


class _Layouts:
    """Columns of base files. Files of one writer have equal schemas, whose columns are determined once."""

    def __init__(self, storage: LocalStorage, spec: ReadSpec, needed: pa.Schema) -> None:
        self._storage = storage
        self._spec = spec
        self._needed = needed
        self._known: list[tuple[pq.ParquetSchema, StoredColumns]] = []

    def columns(self, slice_: FileSlice) -> tuple[tuple[NativeColumn, ...], pa.Schema] | None:
        """Columns of the query in the base file of a slice, and its Arrow schema; None if only PyHudi's reader has
        them.
        """
        assert slice_.base is not None, "the slice is a single file"
        spec = self._spec
        try:
            stored = self._stored(slice_.base.path)
            constants = path_values(spec, slice_.partition, self._needed, frozenset(stored.schema.names))
        except (HudiError, pa.ArrowException, UnicodeDecodeError, OSError):
            return None
        origins = None if spec.ids is None else spec.ids.origins(slice_.base.name.instant_time)
        columns = native_columns(self._needed, stored, constants, origins)
        return None if columns is None else (columns, stored.schema)

    def _stored(self, path: str) -> StoredColumns:
        with open_base_rows(self._storage, path, footers=self._spec.footers) as file:
            assert isinstance(file, pq.ParquetFile), "the file is a Parquet file, and no key excludes it"
            metadata = file.metadata
            for known, stored in reversed(self._known):
                if metadata.schema.equals(known):
                    return stored
            schema = file.schema_arrow.remove_metadata()
            stored = StoredColumns(schema, plain_columns(metadata, schema))
        self._known.append((metadata.schema, stored))
        return stored
