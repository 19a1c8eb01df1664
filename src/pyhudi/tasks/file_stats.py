"""Statistics of data files for the metadata table, collected by the task that writes a file, so that it is not read again.

    column ranges    of a base file from its footer, of a log file from the rows that are written
    Bloom filter     of a base file: the text stored in its footer
    record keys      which keys were added to a file group and which were removed: a side file, partitioned by the file
                     groups of the record index

Footers do not record NaN, so floating point columns are tracked during the write; footers omit bounds that are too
long, and such a column is read back. Ranges are recorded for all columns or for none: readers assume that a file with
statistics of some columns holds nothing in the others.

The side file is an Arrow IPC file with one record batch for each file group of the record index, KEY_CHANGES, so that
the task that writes one file group reads one batch of each. For a partitioned record index it is one batch: its groups
depend on the partition of the table. It is stored in the metadata table's folder for temporary files.

Source: docs/formats/metadata-table.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import Internal, TableState, WriteConflict
from pyhudi.format.instants import METADATA_BOOTSTRAP_INSTANT_TIME
from pyhudi.format.names import parse_base_file
from pyhudi.format.paths import SIDE_FOLDER, file_name, join_path, parent_folder
from pyhudi.records.column_statistics import (
    NAN_HAS_NO_BOUNDS,
    NAN_KEY,
    ColumnRange,
    RangeCollector,
    footer_ranges,
    widen_zeros,
    with_short_bounds,
)
from pyhudi.records.dotted_columns import field_at
from pyhudi.records.hashing import key_shards
from pyhudi.records.schema_on_read.column_ids import ColumnIds, ColumnOrigin, names_in_file
from pyhudi.records.stored_rows import in_table_columns
from pyhudi.storage.base import Storage
from pyhudi.tasks.base_file_reader import Footer, open_base_file
from pyhudi.tasks.incoming_layout import as_batch

KEY_CHANGES = pa.schema([pa.field("key", pa.string(), nullable=False), pa.field("is_deleted", pa.bool_(), nullable=False)])

Ranges = tuple[tuple[str, ColumnRange], ...]


@dataclass(frozen=True, slots=True)
class FileIndexing:
    """Which statistics to collect.

    Attributes:
        columns: With statistics, by dotted name; () for none.
        bloom_filters: Whether base files' filters are collected.
        key_shards: How many file groups the record index has, 0 without one, 1 for a partitioned one.
    """

    columns: tuple[str, ...] = ()
    bloom_filters: bool = False
    key_shards: int = 0


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """Collected statistics.

    Attributes:
        ranges: Of every requested column; () if the file has no rows that provide them.
        bloom: Type code and text of the filter, None without one.
        keys: Path of the side file, None when no key was added or removed.
    """

    ranges: Ranges = ()
    bloom: tuple[str, str] | None = None
    keys: str | None = None


class FloatTracker:
    """Tracks which floating point columns of a base file hold NaN, and which a zero: by dotted name, also inside structs.

    footer: the file's footer entry about them, to be written before the rows are known (see
    `records.column_statistics.may_omit_nan`).
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._names = [name for field in schema for name in _floating_leaves(field, field.name)]
        self.footer = {NAN_KEY: NAN_HAS_NO_BOUNDS} if self._names else {}
        self.columns: set[str] = set()
        self.zeros: set[str] = set()

    def add(self, rows: pa.Table) -> None:
        """Add rows in the schema."""
        for name in self._names:
            head, *rest = name.split(".")
            column = rows.column(head)
            for chunk in (pc.struct_field(column, rest) if rest else column).chunks:
                if name not in self.columns and pc.any(pc.is_nan(chunk)).as_py():
                    self.columns.add(name)
                if name not in self.zeros and pc.any(pc.equal(chunk, 0.0)).as_py():
                    self.zeros.add(name)


def _floating_leaves(field: pa.Field, path: str) -> list[str]:
    if pa.types.is_struct(field.type):
        return [leaf for child in field.type.fields for leaf in _floating_leaves(child, f"{path}.{child.name}")]
    return [path] if pa.types.is_floating(field.type) else []


class KeyChanges:
    """Collects the keys added to a file group and those removed, in memory."""

    def __init__(self, shard_count: int, routes: Callable[[pa.StringArray], pa.StringArray] | None = None) -> None:
        """routes: keys -> the texts that determine their file groups; None: the keys themselves."""
        self._shards = shard_count
        self._routes = routes
        self._keys: tuple[list[pa.Array], list[pa.Array]] = ([], [])

    def add(self, keys: pa.Array | pa.ChunkedArray, *, deleted: bool = False) -> None:
        """Record added keys, or with `deleted` removed ones; string, no nulls."""
        if self._shards and len(keys):
            self._keys[deleted].extend(keys.chunks if isinstance(keys, pa.ChunkedArray) else [keys])

    def store(self, storage: Storage, instant_time: str, name: str) -> str | None:
        """Write the side file that belongs to the data file `name`; return its path, None when there are no changes."""
        came, left = (pa.concat_arrays([pa.array([], pa.string()), *parts]) for parts in self._keys)
        if not len(came) and not len(left):
            return None
        keys = pa.concat_arrays([came, left])
        flags = np.zeros(len(keys), dtype=np.bool_)
        flags[len(came) :] = True
        shards = key_shards(keys if self._routes is None else self._routes(keys), self._shards)
        order = np.argsort(shards, kind="stable")
        bounds = np.searchsorted(shards[order], np.arange(self._shards + 1))
        rows = pa.record_batch([keys.take(pa.array(order)), pa.array(flags[order])], schema=KEY_CHANGES)
        path = join_path(SIDE_FOLDER, instant_time, f"{name.lstrip('.')}.keys.arrow")
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with storage.open_output(path) as sink, pa.ipc.new_file(sink, KEY_CHANGES, options=options) as writer:
            for shard in range(self._shards):
                writer.write_batch(rows.slice(int(bounds[shard]), int(bounds[shard + 1] - bounds[shard])))
        return path


def open_side_file(storage: Storage, path: str) -> pa.NativeFile:
    """Open a side file in the folder of its instant.

    Raises:
        WriteConflict: The file is missing: a rollback deletes the side files of the instant that it rolls back.
    """
    try:
        return storage.open_input(path)
    except TableState as error:
        instant_time = file_name(parent_folder(path))
        raise WriteConflict(
            f"instant {instant_time} was rolled back while it was pending: its side file {storage.absolute(path)} is missing; "
            "write again",
            instants=(instant_time,),
        ) from error


@dataclass(frozen=True, slots=True)
class KeyShard:
    """The keys of side files that belong to one file group of an index.

    number: of the file group. count: None if side files are partitioned by the index's file groups; otherwise they hold
    their keys in one batch, which is partitioned among that many groups.
    """

    number: int
    count: int | None = None

    def changes(self, storage: Storage, path: str) -> pa.RecordBatch:
        """Return KEY_CHANGES of the file group, from a side file.  Raises as `open_side_file`."""
        with open_side_file(storage, path) as source:
            batch = pa.ipc.open_file(source).get_batch(self.number if self.count is None else 0)
        if self.count is None or self.count == 1:
            return batch
        return batch.filter(pa.array(key_shards(batch.column("key"), self.count) == self.number))


def base_file_ranges(
    storage: Storage,
    path: str,
    metadata: Footer,
    schema: pa.Schema,
    columns: Sequence[str],
    *,
    nan_columns: Iterable[str] | None = None,
    ids: ColumnIds | None = None,
) -> Ranges:
    """Return the range of every column in a base file.

    schema: the table's, canonical. nan_columns: which of them hold NaN; None when unknown, then floating point columns
    are read. ids: column ids, to find the columns in an existing file. Columns that the file lacks are null throughout.
    Raises as `open_base_file` if the file is read.
    """
    name_of_file = parse_base_file(file_name(path))
    instant_time = name_of_file.instant_time if name_of_file is not None else ""
    if instant_time == METADATA_BOOTSTRAP_INSTANT_TIME:
        raise Internal(f"the bootstrap source file was not looked up for {storage.absolute(path)}")
    heads = {name.split(".")[0] for name in columns}
    elsewhere = frozenset[str]() if ids is None else ids.relocated(instant_time, heads)
    places = None if ids is None or not elsewhere else ids.positions(instant_time)
    ranges = footer_ranges(metadata, schema, [name for name in columns if name.split(".")[0] not in elsewhere])
    count = metadata.num_rows
    present = {metadata.schema.column(index).path for index in range(metadata.num_columns)}
    nan = set(nan_columns or ())
    unknown = []
    for name in columns:
        if places is not None and name.split(".")[0] in elsewhere:
            ranges[name] = ColumnRange(null_count=count, value_count=count)
            if name.split(".")[0] in places:
                unknown.append(name)
            continue
        if name not in present:
            ranges[name] = ColumnRange(null_count=count, value_count=count)
            continue
        may_hide_nan = nan_columns is None and pa.types.is_floating(field_at(schema, name).type)
        if may_hide_nan or (ranges[name].min is None and not ranges[name].is_all_null):
            unknown.append(name)
    if unknown:
        for name, exact in _read_ranges(storage, path, schema, unknown, places).items():
            before = ranges[name]
            sizes = before.total_size_bytes, before.total_uncompressed_size_bytes
            ranges[name] = widen_zeros(ColumnRange(exact.min, exact.max, exact.null_count, exact.value_count, *sizes))
    return tuple((name, ranges[name].with_nan() if name in nan else with_short_bounds(ranges[name])) for name in columns)


def compute_row_ranges(rows: Iterable[pa.Table], columns: Sequence[str]) -> Ranges:
    """Compute the range of every column from rows, without a base file footer."""
    collector = RangeCollector(columns)
    for table in rows:
        collector.add(as_batch(table))
    ranges = collector.ranges()
    return tuple((name, with_short_bounds(ranges[name])) for name in columns)


def log_ranges(collector: RangeCollector | None, row_count: int) -> Ranges:
    """Return the ranges of the rows written to a log file; () when there are none, or none are requested."""
    ranges = collector.ranges() if collector is not None and row_count else {}
    return tuple((name, with_short_bounds(range_)) for name, range_ in ranges.items())


def _read_ranges(
    storage: Storage, path: str, schema: pa.Schema, columns: Sequence[str], origins: Mapping[str, ColumnOrigin] | None
) -> Mapping[str, ColumnRange]:
    heads = list(dict.fromkeys(name.split(".")[0] for name in columns))
    wanted = pa.schema([schema.field(name) for name in heads])
    collector = RangeCollector(columns)
    with open_base_file(storage, path) as file:
        for group in range(file.metadata.num_row_groups):
            stored = file.read_row_group(group, columns=names_in_file(origins, heads), use_threads=False)
            rows = in_table_columns(stored, origins, wanted)
            collector.add(as_batch(rows))
    return collector.ranges()
