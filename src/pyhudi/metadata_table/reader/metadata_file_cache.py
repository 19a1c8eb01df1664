"""Cache of metadata table files: HFiles and log blocks, opened once per snapshot.

A log file of the metadata table usually has a few KiB, and reading it takes several small requests: headers, the
HFile's tail, its blocks. A file of up to 1 MiB is therefore fetched whole, and an LRU cache holds up to 64 MiB of such
files. Of larger files only the requested ranges are read. Headers of log blocks and open HFiles (trailer and root
index) are cached too, up to a fixed number of each.

One `MetadataFiles` is safe for several threads; a file that two threads request at once is fetched twice.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from threading import Lock
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyhudi.errors import CorruptData, TableState, Unsupported
from pyhudi.format.hfile import HFile, decode_joined, open_hfile, read_data_blocks
from pyhudi.format.log.framing import CorruptBlock, LogBlock, ReadRange, scan_blocks
from pyhudi.format.log.log_corruption import check_log_complete
from pyhudi.format.names import parse_data_file_instant
from pyhudi.format.paths import file_name
from pyhudi.storage.base import Storage
from pyhudi.storage.thread_pool import in_threads
from pyhudi.storage.uris import has_atomic_uploads
from pyhudi.table.file_slices import BaseFile, LogFile

FULL_READ_BYTES = 1 << 20
"""Files up to this size are fetched whole."""

_CACHE_BYTES = 64 << 20
_CELL_BYTES = 16 << 20
_CACHED_HFILES = 256
_CACHED_LOGS = 4096
_FETCHES_AT_ONCE = 16

V = TypeVar("V")


def _no_check() -> None:
    """For a task, which does not know the timelines."""


class MetadataFiles:
    """Opens and caches the files of one metadata table.

    Args:
        storage: Its root, `.hoodie/metadata` of the table.
        check_not_stale: Called when a file is missing. Raises SnapshotOutdated if the file was removed since the table
            was opened.
    """

    def __init__(self, storage: Storage, check_not_stale: Callable[[], None] = _no_check) -> None:
        self._storage = storage
        self._check_not_stale = check_not_stale
        self._trusted = has_atomic_uploads(storage.uri)
        self._is_local = storage.uri.startswith("file:")
        self._contents: LruCache[str, bytes] = LruCache(_CACHE_BYTES)
        self._hfiles: LruCache[tuple[str, int], HFile] = LruCache(_CACHED_HFILES)
        self._headers: LruCache[str, tuple[LogBlock | CorruptBlock, ...]] = LruCache(_CACHED_LOGS)
        self._cells: LruCache[tuple[tuple[str, int], ...], tuple[pa.RecordBatch, npt.NDArray[np.int64]]] = LruCache(_CELL_BYTES)
        self._schemas: dict[str, str] = {}

    def of_instants(
        self, instants: Container[str | None], storage: Storage, check_not_stale: Callable[[], None]
    ) -> MetadataFiles:
        """Return a cache for a reload of the same metadata table, filled with the files of unchanged instants."""
        retained = MetadataFiles(storage, check_not_stale)
        self._contents.copy_to(retained._contents, lambda path: _instant_of(path) in instants)
        # An open HFile reads through the storage that it was opened with, unless its file is held in memory.
        self._hfiles.copy_to(retained._hfiles, lambda key: key[0] in retained._contents)
        self._headers.copy_to(retained._headers, lambda path: _instant_of(path) in instants)
        retained._schemas = self._schemas
        return retained

    def fetch(self, files: Iterable[BaseFile | LogFile]) -> None:
        """Fetch the small ones of some files in parallel, before they are read one by one."""
        uncached = [file for file in files if file.size_bytes <= FULL_READ_BYTES and self._contents.get(file.path) is None]
        # A file of the local disk is read faster than a thread starts.
        in_threads(self._content, uncached, 1 if self._is_local else _FETCHES_AT_ONCE)

    def blocks(self, log: LogFile, *, verified: bool) -> tuple[LogBlock | CorruptBlock, ...]:
        """Return all blocks of a log file, without their contents.

        Args:
            verified: A completed instant wrote the file.

        Raises:
            CorruptData: The file is damaged, or `verified` and incomplete (see `format.log.log_corruption`); the error
                contains its path.
        """
        log_blocks = self._headers.get(log.path)
        if log_blocks is None:
            try:
                log_blocks = tuple(scan_blocks(self._read_range(log), log.size_bytes, skip_checks=self._trusted))
            except CorruptData as error:
                raise error.with_path(self.absolute(log)) from error
            except Unsupported as error:
                raise Unsupported(f"{error} [{self.absolute(log)}]") from error
            self._headers.put(log.path, log_blocks)
        if verified:
            try:
                check_log_complete(log_blocks, log.name.instant_time)
            except CorruptData as error:
                raise error.with_path(self.absolute(log)) from error
        return log_blocks

    def content(self, log: LogFile, block: LogBlock) -> bytes:
        """Return the content of a block."""
        return block.read_content(self._read_range(log))

    def base(self, file: BaseFile) -> HFile:
        """Open a base file as HFile."""
        return self._opened(file, 0, file.size_bytes)

    def inner(self, log: LogFile, block: LogBlock) -> HFile:
        """Open the HFile inside a block."""
        if log.size_bytes <= FULL_READ_BYTES and (log.path, block.content_offset) not in self._hfiles:
            # In larger files the HFile's own checksums cover the ranges read.
            self.content(log, block)
        return self._opened(log, block.content_offset, block.content_size_bytes)

    def cells(self, blocks: Sequence[tuple[LogFile, LogBlock]]) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
        """Decode the HFiles inside some small blocks: their entries, and the end of each block among these.

        Raises:
            CorruptData: One of them is damaged.
            Unsupported: One of them contains something this reader does not support.
        """
        key = tuple((log.path, block.content_offset) for log, block in blocks)
        cells = self._cells.get(key)
        if cells is None:
            cells = decode_joined([read_data_blocks(self.content(log, block)) for log, block in blocks])
            self._cells.put(key, cells, cells[0].nbytes)
        return cells

    def schema(self, text: str) -> str:
        """Intern a schema text: every block repeats its schema of some KiB."""
        return self._schemas.setdefault(text, text)

    def absolute(self, file: BaseFile | LogFile) -> str:
        """Return the file's URI, for messages."""
        return self._storage.absolute(file.path)

    def _opened(self, file: BaseFile | LogFile, offset: int, size_bytes: int) -> HFile:
        key = (file.path, offset)
        hfile = self._hfiles.get(key)
        if hfile is None:
            read_range = self._read_range(file)
            hfile = open_hfile(lambda at, length: read_range(offset + at, length), size_bytes)
            self._hfiles.put(key, hfile)
        return hfile

    def _read_range(self, file: BaseFile | LogFile) -> ReadRange:
        if file.size_bytes <= FULL_READ_BYTES:
            return lambda offset, length: self._content(file)[offset : offset + length]
        return partial(self._read, file)

    def _content(self, file: BaseFile | LogFile) -> bytes:
        content = self._contents.get(file.path)
        if content is None:
            content = self._read(file, 0, file.size_bytes)
            self._contents.put(file.path, content, len(content))
        return content

    def _read(self, file: BaseFile | LogFile, offset: int, length: int) -> bytes:
        try:
            return self._storage.read_range(file.path, offset, length)
        except TableState:
            self._check_not_stale()
            raise


def _instant_of(path: str) -> str | None:
    return parse_data_file_instant(file_name(path))


K = TypeVar("K")


class LruCache(Generic[K, V]):
    """Least-recently-used cache bounded by total weight. Pickling drops its entries."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._weight = 0
        self._lock = Lock()

    def __reduce__(self) -> tuple[type[LruCache[K, V]], tuple[int]]:
        return LruCache, (self._limit,)

    def get(self, key: K) -> V | None:
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def copy_to(self, other: LruCache[K, V], predicate: Callable[[K], bool]) -> None:
        with self._lock:
            entries = tuple(self._entries.items())
        for key, (value, weight) in entries:
            if predicate(key):
                other.put(key, value, weight)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def put(self, key: K, value: V, weight: int = 1) -> None:
        with self._lock:
            replaced = self._entries.pop(key, None)
            self._weight += weight - (replaced[1] if replaced else 0)
            self._entries[key] = (value, weight)
            while self._weight > self._limit and len(self._entries) > 1:
                self._weight -= self._entries.popitem(last=False)[1][1]
