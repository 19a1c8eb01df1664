"""Input and findings of index checks, and comparisons that several index types share. Part of `validate`."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pyhudi.errors import CorruptData, TableState
from pyhudi.format.index_definitions import IndexDefinition
from pyhudi.format.paths import file_name
from pyhudi.metadata_table.metadata_keys import bloom_filter_keys, file_hashes
from pyhudi.metadata_table.reader.index_lookups import find_bloom_filters
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.records.column_statistics import ColumnRange, covers, footer_ranges, merge_ranges, with_short_bounds
from pyhudi.storage import open_storage
from pyhudi.storage.base import FileInfo, StorageSpec
from pyhudi.table.cached_property import cached_property
from pyhudi.table.file_slices import FileSlice
from pyhudi.table.snapshot import Snapshot
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.tasks.base_file_reader import open_base_file
from pyhudi.tasks.engine_protocol import Engine
from pyhudi.tasks.log_scan import InstantValidity
from pyhudi.tasks.read_slice import ReadSpec

MISSING_ROWS = (
    "data files: restore the same files from a copy; otherwise undo the write whose instant ends the file's name, and all later "
    "writes: rollback, or restore to a savepoint; or accept the loss: Table.repair(accept_loss=True)"
)
"""Remedy for missing data."""

WRONG_PRUNING = "metadata table: Table.index.rebuild() (or a repair, if the file listing is wrong) rebuilds it from the files"
"""Remedy for a wrong index."""

_FILTERS_AT_ONCE = 32
_FILTER_HEAD_BYTES = 25
"""Sizes and counts at the beginning of a filter."""

MAX_EXAMPLES = 5
"""Maximum number of keys that a finding lists."""


class Mismatch(NamedTuple):
    """An error that a check found. remedy: None for the default remedy of the check."""

    path: str
    message: str
    remedy: str | None = None


@dataclass(slots=True)
class IndexFindings:
    """Findings of one check.

    Attributes:
        errors: The errors.
        warnings: (path, message).
        checked: Extent of the check for the report; '' if it was skipped.
    """

    errors: list[Mismatch] = field(default_factory=list)
    warnings: list[tuple[str, str]] = field(default_factory=list)
    checked: str = ""

    def add_error(self, path: str, message: str, remedy: str | None = None) -> None:
        """Add an error."""
        self.errors.append(Mismatch(path, message, remedy))

    def add_warning(self, path: str, message: str) -> None:
        """Add a warning."""
        self.warnings.append((path, message))


Check = Callable[[], IndexFindings]
"""A check that is ready to run."""


@dataclass(frozen=True, slots=True)
class FooterTask:
    """A base file to open, and the columns whose ranges are required."""

    storage: StorageSpec
    path: str
    schema: pa.Schema
    columns: tuple[str, ...]


def run_footer(task: FooterTask) -> dict[str, ColumnRange] | str:
    """Return the ranges in the footer of a base file, or the error message if it cannot be opened."""
    try:
        with open_base_file(open_storage(task.storage), task.path) as file:
            return footer_ranges(file.metadata, task.schema, task.columns)
    except (CorruptData, TableState) as error:
        return str(error)


class DirectoryFile(NamedTuple):
    """A data file in a directory. instant_time: from its name, or of the pending write that creates it."""

    info: FileInfo
    instant_time: str


@dataclass(frozen=True)
class CheckedTable:
    """Input of index checks.

    Attributes:
        context: The table.
        engine: Runs tasks.
        snapshot: The table's latest snapshot.
        metadata: The opened metadata table.
        table_schema: With meta columns; None for a table without columns.
        slices: File slices of the latest snapshot.
        chosen: Paths of the base files to open.
        partitions: Partitions found in the directories.
        data_files: Data files found in the directories.
        pending_clean_files: Name of a file that a pending clean deletes -> the clean.
        key_reader: Reads the record keys of slices, or the fields that form them.
    """

    context: TableContext
    engine: Engine
    snapshot: Snapshot
    metadata: MetadataTable
    table_schema: pa.Schema | None
    slices: Sequence[FileSlice]
    chosen: Sequence[str]
    partitions: Sequence[str]
    data_files: Sequence[DirectoryFile]
    pending_clean_files: Callable[[], Mapping[str, str]]
    key_reader: Callable[[], ReadSpec]

    @property
    def schema(self) -> pa.Schema:
        """The table's columns with meta columns; only for tables with columns."""
        assert self.table_schema is not None, "indexes of columns are checked where there are columns"
        return self.table_schema

    def comparable(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return the columns (dotted names) whose statistics have a known unit."""
        ambiguous = self.context.config.columns_of_unknown_unit(self.schema)
        return tuple(name for name in columns if name.split(".")[0] not in ambiguous)

    @property
    def timeline(self) -> Timeline:
        """The table's timeline."""
        return self.snapshot.timeline

    def columns_under_current_names(self, path: str, columns: Sequence[str]) -> tuple[str, ...]:
        """As `Snapshot.columns_under_current_names`."""
        return self.snapshot.columns_under_current_names(path, columns)

    @cached_property
    def validity(self) -> InstantValidity:
        """Valid log blocks."""
        return InstantValidity.of(self.timeline)

    def definition(self, name: str) -> IndexDefinition | None:
        """Return an entry of the index definitions."""
        return self.metadata.definitions.get(name)

    @property
    def files(self) -> list[tuple[str, str, int]]:
        """(partition path, path, bytes) of the chosen base files and of all log files."""
        chosen = set(self.chosen)
        return [
            (s.partition, file.path, file.size_bytes)
            for s in self.slices
            for file in (*((s.base,) if s.base is not None and s.base.path in chosen else ()), *s.logs)
        ]


def compare_partition(
    found: IndexFindings, partition: str, message: str, stored_range: ColumnRange | None, parts: Sequence[ColumnRange]
) -> bool:
    """Return True if the range of a partition covers those of its files; otherwise add an error."""
    if stored_range is None:
        found.add_error(partition, f"no range of {message}: Hudi skips this partition")
        return False
    # Hudi stores long bounds whole, PyHudi shorter ones.
    file_range = with_short_bounds(merge_ranges(parts))
    if covers(with_short_bounds(stored_range), file_range):
        return True
    detail = (
        f"{message} is {file_range.min!r} to {file_range.max!r} in its files, but {stored_range.min!r} to "
        f"{stored_range.max!r} in the index"
    )
    found.add_error(partition, detail)
    return False


def compare_filters(
    found: IndexFindings,
    metadata: MetadataTable,
    index: str,
    files: Sequence[tuple[str, str, tuple[str, str] | None]],
    is_equal: Callable[[str, str], bool],
) -> None:
    """Compare the stored Bloom filters of files with the expected ones.

    Args:
        found: Receives the findings.
        metadata: The opened metadata table.
        index: The partition of the metadata table.
        files: (path, partition, type code and text of the filter) of each file.
        is_equal: Returns True if a stored text (first argument) is acceptable for an expected one.
    """
    without_filter = 0
    for start in range(0, len(files), _FILTERS_AT_ONCE):
        part = files[start : start + _FILTERS_AT_ONCE]
        names: dict[str, list[str]] = {}
        for path, partition, _ in part:
            names.setdefault(partition, []).append(file_name(path))
        rows = find_bloom_filters(metadata, names, index)
        stored = dict(zip(rows["key"].to_pylist(), rows["bloom_filter"].to_pylist(), strict=True))
        for path, partition, bloom in part:
            key = bloom_filter_keys(partition, file_hashes([file_name(path)]))[0].as_py()
            if bloom is None:
                continue
            if key not in stored:
                without_filter += 1
            elif not is_equal(stored[key].decode("ascii", "replace"), bloom[1]):
                found.add_error(path, f"its Bloom filter in {index} differs from that of the file")
    if without_filter:
        found.add_warning("", f"{without_filter} of {len(files)} files have no Bloom filter in {index} and are never pruned")


def filter_covers(stored: str, filter_type: str) -> bool:
    """Return True if a stored Bloom filter contains all bits of another one of the same size.

    Hudi counts repeated values, so filters of the same values differ in their counts. Filters of different sizes are
    not comparable and count as covering.
    """
    if stored == filter_type:
        return True
    try:
        first, second = (np.frombuffer(base64.b64decode(text, validate=True), dtype=np.uint8) for text in (stored, filter_type))
    except ValueError:
        return False
    if len(first) != len(second):
        return len(first) > _FILTER_HEAD_BYTES
    return not bool((second[_FILTER_HEAD_BYTES:] & ~first[_FILTER_HEAD_BYTES:]).any())


def some_keys(keys: pa.Array | pa.ChunkedArray) -> str:
    """Format a few keys for a message."""
    return ", ".join(repr(key) for key in keys.slice(0, MAX_EXAMPLES).to_pylist()) + (", ..." if len(keys) > MAX_EXAMPLES else "")
