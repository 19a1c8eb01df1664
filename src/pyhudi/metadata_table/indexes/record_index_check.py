"""Compare the record index with the keys of the rows, a part of `validate`.

    1. Each file group of the index is divided into ranges of about RANGE_CELLS keys.
    2. The key column of each file slice is read once. The keys are stored in temporary local files, divided by the
       ranges. Small slices share a file.
    3. Each file group of the index is read once, range by range, and joined with the stored keys of the range.

Memory: for each of _TASKS_AT_ONCE tasks, CHUNK_ROWS keys, or the keys and locations of one range. Disk: all keys,
compressed.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptData
from pyhudi.format.meta_columns import RECORD_KEY
from pyhudi.metadata_table.codecs.metadata_partitions import RECORD_INDEX, format_section, parse_file_group
from pyhudi.metadata_table.codecs.record_index_codec import LOCATION_SCHEMA, decode_distinct_locations
from pyhudi.metadata_table.indexes.index_validation import MAX_EXAMPLES, CheckedTable, IndexFindings, some_keys
from pyhudi.metadata_table.reader.cell_merge import Deletes, GroupCells
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.records.hashing import key_shards
from pyhudi.table.cached_property import cached_property
from pyhudi.table.file_slices import FileSlice
from pyhudi.tasks.engine_protocol import Engine
from pyhudi.tasks.read_slice import ReadSpec, read_live_keys
from pyhudi.tasks.spill import load_part, store_parts

RANGE_CELLS = 1 << 17
"""Cells of the index that are compared at a time."""

CHUNK_ROWS = 1 << 19
"""Keys that are divided by ranges at a time."""

_FILE_BYTES = 64 << 20
"""Size of the slices whose keys share a local file."""

_TASKS_AT_ONCE = 2

_STORED_SCHEMA = pa.schema([("key", pa.string()), ("slice", pa.int32()), ("row", pa.int64())])
"""A key, the number of its slice, and that of its row in the slice."""

_NO_LOCATION = -1

T = TypeVar("T")
R = TypeVar("R")
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Group:
    """A file group of the index. first_part: number of its first range among those of all groups."""

    slice: FileSlice
    bounds: tuple[bytes, ...]
    first_part: int


@dataclass(frozen=True, slots=True)
class _Layout:
    """The ranges of all groups. sections: the groups of each section, by number; None is the section of a global index."""

    sections: dict[str | None, tuple[_Group, ...]]
    by_partition: bool
    part_count: int

    @classmethod
    def of(cls, metadata: MetadataTable) -> _Layout:
        sections: dict[str | None, list[_Group]] = {}
        part = 0
        for slice_ in metadata.partition(RECORD_INDEX).slices:
            group = _Group(slice_, tuple(metadata.open_group(slice_).bounds(RANGE_CELLS)), part)
            sections.setdefault(parse_file_group(slice_.file_id)[0], []).append(group)
            part += len(group.bounds) + 1
        by_partition = metadata.is_sectioned(RECORD_INDEX)
        # Keys of a partition without a section are stored in one more part, which no group reads.
        return cls({name: tuple(groups) for name, groups in sections.items()}, by_partition, part + 1)

    @property
    def groups(self) -> list[_Group]:
        return [group for groups in self.sections.values() for group in groups]

    def section(self, partition: str) -> str | None:
        """The section of the index with the keys of a partition."""
        return format_section(partition) if self.by_partition else None

    def divided(self, section: str | None, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Ints]:
        """Return rows (_STORED_SCHEMA) of a section, sorted by file group, and the part of each."""
        groups = self.sections.get(section, ())
        if not groups:
            return rows, np.full(rows.num_rows, self.part_count - 1, dtype=np.int64)
        shards = key_shards(rows.column("key"), len(groups)).astype(np.uint16)
        order = np.argsort(shards, kind="stable")
        ordered = rows.take(pa.array(order))
        ends = np.searchsorted(shards[order], np.arange(len(groups) + 1)).tolist()
        parts = np.empty(rows.num_rows, dtype=np.int64)
        for group, (start, end) in zip(groups, itertools.pairwise(ends), strict=True):
            group_keys = ordered.column("key").slice(start, end - start).view(pa.binary())
            bounds_below = np.zeros(end - start, dtype=np.uint32)
            for bound in group.bounds:
                bounds_below += pc.greater_equal(group_keys, pa.scalar(bound, pa.binary())).cast(pa.uint8()).to_numpy()
            parts[start:end] = bounds_below + group.first_part
        return ordered, parts


@dataclass(slots=True)
class _Mismatches:
    """Keys of one slice that differ from the index: their number, and the first ones.

    examples: row, key, partition and file id in the index ('' for a missing key), the first by row number.
    """

    count: int = 0
    examples: list[tuple[int, str, str, str]] = field(default_factory=list)

    def add(self, count: int, examples: Sequence[tuple[int, str, str, str]]) -> None:
        self.count += count
        # One more than is shown: then the message says that there are others.
        self.examples = sorted([*self.examples, *examples])[: MAX_EXAMPLES + 1]

    @property
    def keys(self) -> str:
        return some_keys(pa.array([key for _, key, _, _ in self.examples], pa.string()))


@dataclass(slots=True)
class _Comparison:
    """What the comparison of some ranges found. indexed, row_count: distinct keys. The others: by number of the slice."""

    indexed: int = 0
    row_count: int = 0
    duplicates: dict[int, int] = field(default_factory=dict)
    missing: dict[int, _Mismatches] = field(default_factory=dict)
    misplaced: dict[int, _Mismatches] = field(default_factory=dict)

    def merge(self, other: _Comparison) -> None:
        self.indexed += other.indexed
        self.row_count += other.row_count
        for number, count in other.duplicates.items():
            self.duplicates[number] = self.duplicates.get(number, 0) + count
        for mine, others in ((self.missing, other.missing), (self.misplaced, other.misplaced)):
            for number, mismatches in others.items():
                mine.setdefault(number, _Mismatches()).add(mismatches.count, mismatches.examples)


def check_record_index(table: CheckedTable) -> IndexFindings:
    """Compare the location of every key with the index, and detect additional keys."""
    layout = _Layout.of(table.metadata)
    with tempfile.TemporaryDirectory(prefix="pyhudi-validate-") as folder:
        store = partial(_store_keys, table.key_reader(), layout)
        tasks = [
            (os.path.join(folder, f"{number}.arrow"), numbered) for number, numbered in enumerate(_slices_by_file(table.slices))
        ]
        stored = tuple(_run_some(table.engine, store, tasks))
        compare = partial(_compare_group, table.metadata, layout, _Slices(table.slices, stored))
        result = _Comparison()
        for comparison in _run_some(table.engine, compare, [*layout.groups, None]):
            result.merge(comparison)
    return _findings(table.slices, result)


def _run_some(engine: Engine, function: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
    """Run tasks, a few at a time, which bounds memory regardless of the number of threads."""
    parts = (tasks[start : start + _TASKS_AT_ONCE] for start in range(0, len(tasks), _TASKS_AT_ONCE))
    return [result for part in parts for result in engine.map(function, part)]


@dataclass(frozen=True, slots=True)
class _StoredKeys:
    """A local file of keys, divided by the ranges of the index. part_of_batch: the range of each batch."""

    path: str
    part_of_batch: npt.NDArray[np.integer]


def _slices_by_file(slices: Sequence[FileSlice]) -> list[list[tuple[int, FileSlice]]]:
    """Divide slices, with their numbers, into runs of about _FILE_BYTES."""
    before = np.cumsum([0, *(slice_.size_bytes for slice_ in slices)]) // _FILE_BYTES
    numbered = zip(before.tolist(), enumerate(slices), strict=False)
    return [[slice_ for _, slice_ in run] for _, run in itertools.groupby(numbered, key=itemgetter(0))]


def _store_keys(reader: ReadSpec, layout: _Layout, task: tuple[str, list[tuple[int, FileSlice]]]) -> _StoredKeys:
    """Store the keys of some slices in a local file."""
    path, numbered = task
    pieces = (
        layout.divided(section, piece)
        for section, run in itertools.groupby(numbered, key=lambda entry: layout.section(entry[1].partition))
        for piece in _keys_of(reader, run)
    )
    return _StoredKeys(path, store_parts(path, _STORED_SCHEMA, pieces))


def _keys_of(reader: ReadSpec, numbered: Iterable[tuple[int, FileSlice]]) -> Iterator[pa.RecordBatch]:
    """Yield the keys of slices (_STORED_SCHEMA), about CHUNK_ROWS at a time."""
    held: list[pa.RecordBatch] = []
    held_rows = 0
    for number, slice_ in numbered:
        first_row = 0
        for keys in read_live_keys(reader, slice_):
            if keys.null_count:
                where = f"file group {slice_.file_id} in partition {slice_.partition!r}"
                raise CorruptData(f"{keys.null_count} rows of {where} have no {RECORD_KEY}")
            slices = pa.array(np.full(len(keys), number, dtype=np.int32))
            rows = pa.array(np.arange(first_row, first_row + len(keys)))
            held.append(pa.RecordBatch.from_arrays([keys, slices, rows], schema=_STORED_SCHEMA))
            first_row += len(keys)
            held_rows += len(keys)
            if held_rows >= CHUNK_ROWS:
                yield pa.concat_batches(held)
                held.clear()
                held_rows = 0
    if held_rows:
        yield pa.concat_batches(held)


@dataclass(frozen=True)
class _Slices:
    """The slices of the table, and the local files of their keys."""

    slices: Sequence[FileSlice]
    stored: Sequence[_StoredKeys]

    @cached_property
    def names(self) -> pa.StringArray:
        """Partition path and file id of each slice."""
        return _location_names(
            pa.array([slice_.partition for slice_ in self.slices], pa.string()),
            pa.array([slice_.file_id for slice_ in self.slices], pa.string()),
        )

    @cached_property
    def partitions(self) -> pa.StringArray:
        """Distinct partition paths."""
        return pa.array(sorted({slice_.partition for slice_ in self.slices}), pa.string())

    @cached_property
    def partition_of_slice(self) -> Ints:
        """The partition of each slice, as index into `partitions`."""
        paths = pa.array([slice_.partition for slice_ in self.slices], pa.string())
        return _indices(pc.index_in(paths, value_set=self.partitions))

    def load(self, part: int) -> tuple[pa.StringArray, Ints, Ints]:
        """Return the keys of a range, sorted by slice and row: keys, numbers of their slices, numbers of their rows."""
        batches = [batch for stored in self.stored for batch in load_part(stored.path, stored.part_of_batch, part)]
        keys, slices, row_numbers = pa.concat_batches([pa.RecordBatch.from_pylist([], _STORED_SCHEMA), *batches]).columns
        return keys, slices.to_numpy().astype(np.int64), row_numbers.to_numpy()


def _compare_group(metadata: MetadataTable, layout: _Layout, slices: _Slices, group: _Group | None) -> _Comparison:
    """Compare a file group of the index with the stored keys; None for the keys without a file group."""
    if group is None:
        return _compare_range(slices, layout, layout.part_count - 1, GroupCells(()))
    result = _Comparison()
    opened = metadata.open_group(group.slice)
    for number, (start, stop) in enumerate(itertools.pairwise([None, *group.bounds, None])):
        result.merge(_compare_range(slices, layout, group.first_part + number, opened.read(start, stop)))
    return result


def _compare_range(slices: _Slices, layout: _Layout, part: int, cells: GroupCells) -> _Comparison:
    index_keys, location_of_entry, locations = _entries(cells)
    keys, slice_of_row, row_numbers = slices.load(part)
    # One dictionary serves to find the newest cell of a key, the key of a row, and repeated keys.
    encoded = pa.concat_arrays([*index_keys, keys]).dictionary_encode()
    codes = encoded.indices.to_numpy()
    code_of_row = codes[len(location_of_entry) :]
    location_of_key = np.full(len(encoded.dictionary), _NO_LOCATION, dtype=np.int64)
    # The last of several assignments to one index wins.
    location_of_key[codes[: len(location_of_entry)]] = location_of_entry
    del encoded, index_keys
    is_repeated = _repeated(code_of_row, slice_of_row, len(slices.slices))
    result = _Comparison(
        indexed=int(np.count_nonzero(location_of_key != _NO_LOCATION)),
        row_count=len(keys) - int(np.count_nonzero(is_repeated)),
        duplicates=_counts(slice_of_row[is_repeated]),
    )
    location = location_of_key[code_of_row]
    is_found = location != _NO_LOCATION
    partitions, file_ids = locations.column("partition"), locations.column("file_id")
    if layout.by_partition:
        # Another partition may have the same key.
        partition = _indices(pc.index_in(partitions, value_set=slices.partitions))
        is_found[is_found] = partition[location[is_found]] == slices.partition_of_slice[slice_of_row[is_found]]
    stored_slice = _indices(pc.index_in(_location_names(partitions, file_ids), value_set=slices.names))
    is_misplaced = is_found & ~is_repeated
    is_misplaced[is_misplaced] = stored_slice[location[is_misplaced]] != slice_of_row[is_misplaced]
    for found, positions in (
        (result.missing, np.flatnonzero(~is_found & ~is_repeated)),
        (result.misplaced, np.flatnonzero(is_misplaced)),
    ):
        # Rows are sorted by slice: the positions of a slice are adjacent.
        numbers, starts, counts = np.unique(slice_of_row[positions], return_index=True, return_counts=True)
        for number, start, count in zip(numbers.tolist(), starts.tolist(), counts.tolist(), strict=True):
            first = positions[start : start + min(count, MAX_EXAMPLES + 1)]
            examples = [
                (
                    int(row_numbers[position]),
                    keys[position].as_py(),
                    partitions[location[position]].as_py() if is_found[position] else "",
                    file_ids[location[position]].as_py() if is_found[position] else "",
                )
                for position in first.tolist()
            ]
            found[number] = _Mismatches(count, examples)
    return result


def _entries(cells: GroupCells) -> tuple[list[pa.StringArray], Ints, pa.Table]:
    """Decode the cells of a range.

    Returns:
        The keys, oldest layer first; the location of each as index into the last result, _NO_LOCATION for a removed key;
        distinct locations (LOCATION_SCHEMA).
    """
    keys: list[pa.StringArray] = [pa.array([], pa.string())]
    indices: list[Ints] = [np.zeros(0, dtype=np.int64)]
    locations: list[pa.RecordBatch] = []
    count = 0
    for layer in itertools.chain(cells.base, cells.newer):
        try:
            keys.append(layer.keys.cast(pa.string()))
        except pa.ArrowInvalid as error:
            raise CorruptData("a key of the metadata table is not UTF-8") from error
        if isinstance(layer, Deletes):
            indices.append(np.full(len(layer.keys), _NO_LOCATION, dtype=np.int64))
        elif len(layer.keys):
            distinct, index = decode_distinct_locations(layer.values, layer.schema)
            indices.append(count + (np.arange(len(layer.keys)) if index is None else index.to_numpy().astype(np.int64)))
            locations.append(distinct)
            count += distinct.num_rows
    return keys, np.concatenate(indices), pa.Table.from_batches(locations, LOCATION_SCHEMA).combine_chunks()


def _repeated(code_of_row: Ints, slice_of_row: Ints, slice_count: int) -> npt.NDArray[np.bool_]:
    """Return for each row whether an earlier row of its slice has the same key."""
    is_repeated = np.zeros(len(code_of_row), dtype=np.bool_)
    candidates = np.flatnonzero(np.bincount(code_of_row)[code_of_row] > 1) if len(code_of_row) else code_of_row
    if len(candidates):
        pairs = code_of_row[candidates].astype(np.int64) * slice_count + slice_of_row[candidates]
        _, first = np.unique(pairs, return_index=True)
        is_repeated[np.delete(candidates, first)] = True
    return is_repeated


def _counts(numbers: Ints) -> dict[int, int]:
    values, counts = np.unique(numbers, return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


def _indices(indices: pa.Array | pa.ChunkedArray) -> Ints:
    """Indices as integers, -1 for null."""
    return np.asarray(pc.fill_null(indices, -1), dtype=np.int64)


def _location_names(partitions: pa.Array | pa.ChunkedArray, file_ids: pa.Array | pa.ChunkedArray) -> pa.Array:
    return pc.binary_join_element_wise(partitions, file_ids, "\0")


def _findings(slices: Sequence[FileSlice], result: _Comparison) -> IndexFindings:
    findings = IndexFindings()
    for number, slice_ in enumerate(slices):
        if number in result.duplicates:
            findings.add_error(slice_.partition, f"{slice_.file_id}: {result.duplicates[number]} duplicate keys")
        if number in result.missing:
            missing = result.missing[number]
            findings.add_error(slice_.partition, f"{slice_.file_id}: {missing.count} keys are missing: {missing.keys}")
        if number in result.misplaced:
            misplaced = result.misplaced[number]
            _, _, partition, file_id = misplaced.examples[0]
            findings.add_error(
                slice_.partition,
                f"{slice_.file_id}: {misplaced.count} keys have another location in the index: {misplaced.keys}; the first in "
                f"{partition!r}, {file_id}",
            )
    if result.indexed > result.row_count:
        findings.add_error(
            "", f"has {result.indexed} keys, but the table has {result.row_count}: writers would treat new records as updates"
        )
    findings.checked = f"{result.indexed:,} keys, {result.row_count:,} rows"
    return findings
