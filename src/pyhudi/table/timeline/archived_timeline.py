"""The archived timeline (history, LSM layout): archived instants, read lazily, and appended to.

    load     the version file names a manifest (else the highest that exists); the manifest names Parquet files
    look up  only files whose range of request times may hold the instant are opened, and of those only matching row
             groups; documents are read on demand
    add      Parquet file -> manifest n+1 -> version file; each step leaves the history before or after it, never
             between
    clean    manifests older than the newest few, then every Parquet file that no retained manifest names

Of an instant in several files, the first file is used.  `ArchivedCompletions` provides the completion
times of archived instants to a timeline, and reads nothing before the first lookup.

Not here: what is archived or merged (planning/archival.py), and the archive of layout 1 (log files).

Source: docs/formats/timeline.md, "History".
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from pyhudi.errors import CorruptData, TableState
from pyhudi.format.instants import Action, Instant, State, parse_action
from pyhudi.format.lsm_timeline import (
    HISTORY_SCHEMA,
    MAX_LEVEL,
    VERSION_FILE,
    HistoryFileName,
    HistoryRow,
    Manifest,
    ManifestEntry,
    encode_history,
    encode_version,
    format_manifest_name,
    history_footer,
    history_rows,
    parse_history_file,
    parse_manifest_name,
    parse_version,
)
from pyhudi.format.parquet.parquet_file import ParquetWriter, open_parquet
from pyhudi.format.paths import join_path
from pyhudi.storage.base import Storage

_DOCUMENT_COLUMNS = ("metadata", "plan")
_ROWS_PER_BATCH = 64
_RETAINED_MANIFESTS = 3
_ATTEMPTS = 3

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Bounds:
    """first <= time <= last; None means no bound."""

    first: str | None = None
    last: str | None = None

    def overlaps(self, low: str | None, high: str | None) -> bool:
        """Whether a range may hold a time within the bounds; None is an unknown end."""
        return (self.last is None or low is None or low <= self.last) and (
            self.first is None or high is None or high >= self.first
        )

    def contains(self, time: str | None) -> bool:
        """Whether the time, which may be unknown, is within the bounds."""
        if time is None:
            return self.first is None and self.last is None
        return (self.last is None or time <= self.last) and (self.first is None or time >= self.first)


@dataclass(frozen=True, slots=True)
class LoadedManifest:
    """A manifest and its number; 0 for a history that is empty."""

    number: int
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class HistoryStore:
    """Read and append to the archived timeline of one table. folder: relative to the table; '' for a layout that has none."""

    storage: Storage
    folder: str

    def load_manifest(self) -> LoadedManifest:
        """Load the current manifest.

        Raises:
            CorruptData: The manifest is damaged; the error names the file.
            TableState: Manifests were deleted repeatedly during the read.
        """
        if not self.folder:
            return LoadedManifest(0, Manifest())
        for _ in range(_ATTEMPTS):
            data = self.storage.read(self._path(VERSION_FILE))
            number = parse_version(data) if data is not None else None
            found = None if number is None else self.storage.read(self._path(format_manifest_name(number)))
            if found is None:
                number = max(self._manifest_numbers(), default=None)
                if number is None:
                    return LoadedManifest(0, Manifest())
                found = self.storage.read(self._path(format_manifest_name(number)))
            if number is not None and found is not None:
                return self._decode(number, found)
        raise TableState(
            f"the manifests of the history at {self.storage.absolute(self.folder)} were deleted repeatedly while they "
            "were read; try again"
        )

    def rows(
        self, requested: Bounds = Bounds(), completed: Bounds = Bounds(), *, documents: bool = False
    ) -> Iterator[HistoryRow]:
        """Yield the archived instants whose request and completion times are within the bounds, each once, in any order.

        documents: with the bytes of the completed file and the plan; otherwise both are None.
        Raises CorruptData for a file that cannot be read.
        """
        seen: set[tuple[str, str]] = set()
        for entry in self._files(requested):
            for row in self._rows_of(entry, requested, completed, documents=documents):
                key = (row.instant_time, row.action)
                if key not in seen:
                    seen.add(key)
                    yield row

    def find(self, request_time: str, *actions: Action) -> HistoryRow | None:
        """Return the archived instant of a request time, with its documents; of the given completed actions, or of any."""
        words = {action.value for action in actions}
        bounds = Bounds(request_time, request_time)
        found = self.all_rows(bounds, documents=True)
        return next((row for row in found if not words or row.action in words), None)

    def all_rows(
        self, requested: Bounds = Bounds(), completed: Bounds = Bounds(), *, documents: bool = False
    ) -> tuple[HistoryRow, ...]:
        """As `rows`, as a list; restarted when a file was merged and deleted concurrently."""
        for _ in range(_ATTEMPTS - 1):
            with suppress(TableState):
                return tuple(self.rows(requested, completed, documents=documents))
        return tuple(self.rows(requested, completed, documents=documents))

    def instants(self, requested: Bounds = Bounds(), completed: Bounds = Bounds()) -> tuple[Instant, ...]:
        """Return the archived instants within the bounds, completed, by request time."""
        found = []
        for row in self.all_rows(requested, completed):
            found.append(Instant(row.instant_time, self._action_of(row), State.COMPLETED, row.completion_time))
        return tuple(sorted(found, key=lambda i: i.sort_key))

    def _action_of(self, row: HistoryRow) -> Action:
        try:
            return parse_action(row.action)
        except CorruptData as error:
            raise error.with_path(self.storage.absolute(self.folder)) from error

    def completion_times(self, entry: ManifestEntry) -> dict[str, str]:
        """Map request time to completion time of the data-writing instants in one file."""
        found: dict[str, str] = {}
        for row in self._rows_of(entry, Bounds(), Bounds(), documents=False):
            if row.action in _WRITE_WORDS and row.completion_time is not None:
                found.setdefault(row.instant_time, row.completion_time)
        return found

    def unknown_newer(self, active: Collection[tuple[str, Action]]) -> tuple[int, str] | None:
        """Return a manifest above the current one that names an instant stored nowhere else: its number, and that instant's time.

        A writer that failed before it updated the version
        file leaves such a manifest, but all its instants are active or in the current manifest.  Otherwise the version
        file is outdated, and continuing from it would lose instants.

        active: request time and completed action of the instants on the active timeline.
        """
        current = self.load_manifest()
        held = {entry.file_name for entry in current.manifest.files}
        for number in sorted(n for n in self._manifest_numbers() if n > current.number):
            data = self.storage.read(self._path(format_manifest_name(number)))
            if data is None:
                continue
            try:
                newer = Manifest.decode(data)
            except CorruptData:
                # It was being written when its writer failed.
                continue
            for entry in newer.files:
                if entry.file_name in held or self.storage.stat(self._path(entry.file_name)) is None:
                    continue
                for row in self._rows_of(entry, Bounds(), Bounds(), documents=False):
                    action = self._action_of(row)
                    if (row.instant_time, action) not in active and self.find(row.instant_time, action) is None:
                        return number, row.instant_time
        return None

    def append(self, rows: Sequence[HistoryRow], compression: str) -> None:
        """Append instants, in order of request time, as one file of level 0.  The caller holds the table lock.

        Idempotent: if a failed writer has added these very instants already, nothing is written.
        """
        loaded = self.load_manifest()
        names = {entry.file_name: entry for entry in loaded.manifest.files}
        may_match = {(row.instant_time, row.action) for row in rows}
        for level in range(MAX_LEVEL + 1):
            name = HistoryFileName(rows[0].instant_time, rows[-1].instant_time, level).text
            held = names.get(name)
            if held is None:
                break
            if may_match <= {(row.instant_time, row.action) for row in self._rows_of(held, Bounds(), Bounds(), documents=False)}:
                return
        else:
            raise TableState(f"the history at {self.storage.absolute(self.folder)} has a file {name} on every level")
        data = encode_history(rows, compression)
        self.storage.put(self._path(name), data)
        self.store_manifest(Manifest((*loaded.manifest.files, ManifestEntry(name, len(data)))), loaded.number)

    def merge(self, inputs: Sequence[ManifestEntry], output: str, compression: str) -> ManifestEntry:
        """Write the rows of the inputs, in their order, to a new file.  No manifest names it yet."""
        path = self._path(output)
        with self.storage.open_output(path) as sink, ParquetWriter(sink, HISTORY_SCHEMA, compression=compression) as writer:
            for entry in inputs:
                for batch in self._batches(entry, None):
                    writer.write_batch(_to_history_schema(batch))
            writer.close(history_footer())
        written = self.storage.stat(path)
        if written is None:
            raise TableState(
                f"{self.storage.absolute(path)} is missing after it was written; check whether another process cleans the history"
            )
        return ManifestEntry(output, written.size_bytes)

    def store_manifest(self, manifest: Manifest, after: int) -> None:
        """Publish a manifest.  after: the number of the current one.  The caller holds the table lock."""
        # A writer that failed before it updated the version file leaves a manifest above the current one.
        number = max((after, *self._manifest_numbers())) + 1
        self.storage.put(self._path(format_manifest_name(number)), manifest.encode())
        self.storage.put(self._path(VERSION_FILE), encode_version(number))

    def clean(self, extra_manifests: int = 0) -> None:
        """Delete manifests except the newest 3 and `extra_manifests` more, and the files that none of those names.

        The caller holds the table lock, so that no other process adds a file.
        """
        current = self.load_manifest().number
        listing = self.storage.list(self.folder)
        numbers = sorted((n for info in listing.files if (n := parse_manifest_name(info.name)) is not None), reverse=True)
        kept = [n for n in numbers if n <= current][: _RETAINED_MANIFESTS + extra_manifests]
        named: set[str] = set()
        for number in kept:
            data = self.storage.read(self._path(format_manifest_name(number)))
            if data is not None:
                named.update(entry.file_name for entry in self._decode(number, data).manifest.files)
        self.storage.delete([self._path(format_manifest_name(n)) for n in numbers if n not in kept])
        self.storage.delete(
            [info.path for info in listing.files if parse_history_file(info.name) is not None and info.name not in named]
        )

    def is_empty(self) -> bool:
        """True when no instant was ever archived."""
        return not self.load_manifest().manifest.files

    def _path(self, name: str) -> str:
        return join_path(self.folder, name)

    def _manifest_numbers(self) -> list[int]:
        found = (parse_manifest_name(info.name) for info in self.storage.list(self.folder).files)
        return [number for number in found if number is not None]

    def _decode(self, number: int, data: bytes) -> LoadedManifest:
        try:
            return LoadedManifest(number, Manifest.decode(data))
        except CorruptData as error:
            raise error.with_path(self.storage.absolute(self._path(format_manifest_name(number)))) from error

    def _files(self, requested: Bounds) -> list[ManifestEntry]:
        manifest = self.load_manifest().manifest
        return [
            entry
            for entry in manifest.files
            if (name := parse_history_file(entry.file_name)) is not None and name.may_contain(requested.first, requested.last)
        ]

    def _rows_of(self, entry: ManifestEntry, requested: Bounds, completed: Bounds, *, documents: bool) -> Iterator[HistoryRow]:
        columns = [name for name in HISTORY_SCHEMA.names if documents or name not in _DOCUMENT_COLUMNS]

        def may_match(group: pq.RowGroupMetaData) -> bool:
            return requested.overlaps(*_range(group, "instantTime")) and completed.overlaps(*_range(group, "completionTime"))

        for batch in self._batches(entry, columns, may_match):
            for row in history_rows(batch):
                if requested.contains(row.instant_time) and completed.contains(row.completion_time):
                    yield row

    def _batches(
        self,
        entry: ManifestEntry,
        columns: Sequence[str] | None,
        predicate: Callable[[pq.RowGroupMetaData], bool] = lambda group: True,
    ) -> Iterator[pa.RecordBatch]:
        path = self._path(entry.file_name)
        try:
            with self.storage.open_input(path) as source, open_parquet(source) as file:
                groups = [n for n in range(file.num_row_groups) if predicate(file.metadata.row_group(n))]
                there = [name for name in columns or HISTORY_SCHEMA.names if name in file.schema_arrow.names]
                # PyArrow 18 fails on a request for no row group.
                if groups:
                    yield from file.iter_batches(batch_size=_ROWS_PER_BATCH, row_groups=groups, columns=there)
        except (pa.ArrowInvalid, UnicodeDecodeError, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                # The operating system failed, not the Parquet reader.
                raise
            raise CorruptData(f"a file of the history is damaged: {error}").with_path(self.storage.absolute(path)) from error
        except CorruptData as error:
            raise error.with_path(self.storage.absolute(path)) from error


class ArchivedCompletions(Mapping[str, str]):
    """Map request time to completion time of archived writes; files are read on demand.

    The manifest is read once, at the first lookup.  Compared by identity.  Thread-safe.  Pickled, it has read nothing
    yet.
    """

    def __init__(self, store: HistoryStore, earlier: object = None) -> None:
        """earlier: completion times of a previously loaded timeline, if of this type; the immutable files that these
        have read are not read again.
        """
        self._store = store
        self._mutex = threading.Lock()
        self._entries: tuple[ManifestEntry, ...] | None = None
        self._loaded: dict[str, dict[str, str]] = dict(earlier._loaded) if isinstance(earlier, ArchivedCompletions) else {}

    def __reduce__(self) -> tuple[type[ArchivedCompletions], tuple[HistoryStore]]:
        return ArchivedCompletions, (self._store,)

    def __getitem__(self, request_time: str) -> str:
        found = self._read(lambda: self._look_up(request_time))
        if found is None:
            raise KeyError(request_time)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._read(lambda: dict.fromkeys(time for entry in self._files() for time in self._completions(entry))))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def _read(self, find: Callable[[], R]) -> R:
        """Read files of the manifest; read the manifest again if one was merged into another and deleted since."""
        with self._mutex:
            for _ in range(_ATTEMPTS - 1):
                try:
                    return find()
                except TableState:
                    self._entries = None
            return find()

    def _look_up(self, request_time: str) -> str | None:
        for entry in self._files():
            name = parse_history_file(entry.file_name)
            if name is not None and name.may_contain(request_time, request_time):
                found = self._completions(entry).get(request_time)
                if found is not None:
                    return found
        return None

    def _files(self) -> Iterable[ManifestEntry]:
        if self._entries is None:
            self._entries = self._store.load_manifest().manifest.files
        return self._entries

    def _completions(self, entry: ManifestEntry) -> dict[str, str]:
        if entry.file_name not in self._loaded:
            self._loaded[entry.file_name] = self._store.completion_times(entry)
        return self._loaded[entry.file_name]


_WRITE_WORDS = frozenset(action.value for action in Action if action.is_write)


def _range(group: pq.RowGroupMetaData, column: str) -> tuple[str | None, str | None]:
    """Smallest and largest text of a column in a row group, None if the file has no statistics."""
    for position in range(group.num_columns):
        chunk = group.column(position)
        if chunk.path_in_schema == column:
            statistics = chunk.statistics
            if statistics is None or not statistics.has_min_max:
                return None, None
            return _text(statistics.min), _text(statistics.max)
    return None, None


def _text(value: object) -> str | None:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else None


def _to_history_schema(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of another writer's file: missing columns null, versions 1."""
    columns = []
    for field in HISTORY_SCHEMA:
        position = batch.schema.get_field_index(field.name)
        if position >= 0:
            column = batch.column(position)
            columns.append(column if column.type == field.type else column.cast(field.type))
        elif field.nullable:
            columns.append(pa.nulls(batch.num_rows, field.type))
        else:
            columns.append(pa.array([1] * batch.num_rows, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=HISTORY_SCHEMA)
