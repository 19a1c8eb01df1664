"""Key lookup in base files: which incoming keys stand in which file, and at which row.

    SIMPLE   reads the key column of every file
    BLOOM    reads footers first; a file whose key range or key filter excludes a key is not asked for it, and a file with no
    candidate is not read

Answers are pairs, because a key may stand in several files (inserts may duplicate keys), and each copy is updated.

Source: writing and services, "Indexes used for writing".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyhudi.execute.base_file import MAX_KEY, MIN_KEY, footer_filter, footer_text, open_base_file
from pyhudi.execute.layout import as_batch
from pyhudi.records.keys import KeySpec, record_keys
from pyhudi.records.meta_fields import RECORD_KEY
from pyhudi.records.text import java_order
from pyhudi.storage import open_storage
from pyhudi.storage.base import Storage, StorageSpec
from pyhudi.table.slices import FileSlice

Ints = npt.NDArray[np.int64]

KEYS_PER_LOOKUP = 4_000_000
"""Stored keys that one lookup holds in memory."""


@dataclass(frozen=True, slots=True)
class TagFile:
    """A file slice to look into.  path: its base file, relative to the table, where keys are looked up."""

    partition: str
    file_id: str
    path: str
    slice: FileSlice


@dataclass(frozen=True, slots=True)
class TagTask:
    """Look keys up in some files.  bloom: prune by footers; prune_by_ranges: key ranges too."""

    storage: StorageSpec
    files: tuple[TagFile, ...]
    keys: KeySpec
    populate_meta_fields: bool
    bloom: bool = False
    prune_by_ranges: bool = True


@dataclass(frozen=True, slots=True)
class TagHits:
    """Pairs of incoming rows and stored rows.  row: index into the keys that were asked for; file: index into the task's files;
    position:
    row number in that file.  Three arrays of one length.
    """

    row: npt.NDArray[np.int64]
    file: npt.NDArray[np.int64]
    position: npt.NDArray[np.int64]

    @classmethod
    def together(cls, parts: Sequence[TagHits]) -> TagHits:
        """All pairs of several lookups."""
        if not parts:
            empty = np.zeros(0, dtype=np.int64)
            return cls(empty, empty, empty)
        return cls(
            np.concatenate([p.row for p in parts]),
            np.concatenate([p.file for p in parts]),
            np.concatenate([p.position for p in parts]),
        )


def run_tag(task: TagTask, key_sets: Sequence[pa.Array]) -> list[TagHits]:
    """Look up sets of keys (strings, distinct within a set, no nulls) in the task's files; one answer for each set.

    Every file is read once, however many sets there are.
    """
    storage = open_storage(task.storage)
    hits: list[list[TagHits]] = [[] for _ in key_sets]
    stored: list[pa.Array] = []
    numbers: list[int] = []
    held = 0

    def look_up() -> None:
        nonlocal held
        if stored:
            for found, keys in zip(hits, key_sets, strict=True):
                if len(keys):
                    found.append(_match(keys, stored, numbers))
        stored.clear()
        numbers.clear()
        held = 0

    for number, file in enumerate(task.files):
        if task.bloom:
            for found, hit in zip(hits, _bloom_hits(storage, task, file, number, key_sets), strict=True):
                if hit is not None:
                    found.append(hit)
            continue
        column = read_keys(storage, file.path, task.keys, task.populate_meta_fields)
        stored.append(column)
        numbers.append(number)
        held += len(column)
        if held >= KEYS_PER_LOOKUP:
            look_up()
    look_up()
    return [TagHits.together(found) for found in hits]


def distinct_pairs(rows: Ints, files: Ints) -> tuple[Ints, Ints]:
    """Each pair of a row and a file once, in order of the rows, then of the files.  Both are numbers from 0, below 2**31."""
    pairs = np.unique((rows << 32) | files)
    return pairs >> 32, pairs & 0xFFFFFFFF


def read_keys(storage: Storage, path: str, spec: KeySpec, populate_meta_fields: bool) -> pa.Array:
    """The record keys of a base file in row order: the stored ones, or computed from the key fields where meta columns are
    empty.
    """
    with open_base_file(storage, path) as file:
        return _keys_in(file, spec, populate_meta_fields)


def _keys_in(file: pq.ParquetFile, spec: KeySpec, populate_meta_fields: bool) -> pa.Array:
    if populate_meta_fields:
        return file.read(columns=[RECORD_KEY], use_threads=False).column(0).combine_chunks()
    fields = sorted({name.split(".")[0] for name in spec.record_fields})
    return record_keys(spec, as_batch(file.read(columns=fields, use_threads=False)))


def _match(keys: pa.Array, stored: list[pa.Array], numbers: list[int]) -> TagHits:
    column = pa.chunked_array(stored, pa.string())
    found = pc.index_in(column, value_set=keys).combine_chunks()
    at = np.flatnonzero(np.asarray(found.is_valid(), dtype=np.bool_))
    lengths = np.array([len(part) for part in stored], dtype=np.int64)
    starts = np.r_[0, np.cumsum(lengths)[:-1]]
    which = np.searchsorted(starts, at, side="right") - 1
    # Empty files share their start with the next one; the last of equal starts is the one that holds the row.
    return TagHits(
        np.asarray(found.drop_null(), dtype=np.int64),
        np.array(numbers, dtype=np.int64)[which],
        at.astype(np.int64) - starts[which],
    )


def _within(keys: pa.StringArray, least: str, greatest: str) -> npt.NDArray[np.bool_]:
    """Where a key lies within bounds that a writer took by one of two orders: that of UTF-8, or Java's."""
    inside = pc.and_(pc.greater_equal(keys, least), pc.less_equal(keys, greatest))
    low, high = java_order(pa.array([least, greatest], pa.string()))
    ordered = java_order(keys)
    by_java = pc.and_(pc.greater_equal(ordered, low), pc.less_equal(ordered, high))
    return np.asarray(pc.or_(inside, by_java), dtype=np.bool_)


def _bloom_hits(
    storage: Storage, task: TagTask, file: TagFile, number: int, key_sets: Sequence[pa.Array]
) -> list[TagHits | None]:
    """The hits of each set in one file; None where its footer excludes all keys of the set."""
    answers: list[TagHits | None] = []
    with open_base_file(storage, file.path) as parquet:
        least, greatest = footer_text(parquet.metadata, MIN_KEY), footer_text(parquet.metadata, MAX_KEY)
        key_filter = footer_filter(parquet.metadata)
        stored: pa.Array | None = None
        for keys in key_sets:
            chosen = np.arange(len(keys), dtype=np.int64)
            if task.prune_by_ranges and least is not None and greatest is not None:
                chosen = np.flatnonzero(_within(keys, least, greatest)).astype(np.int64)
            candidates = keys if len(chosen) == len(keys) else keys.take(pa.array(chosen))
            if key_filter is not None and len(candidates):
                possible = np.flatnonzero(key_filter.might_contain(candidates)).astype(np.int64)
                chosen, candidates = chosen[possible], candidates.take(pa.array(possible))
            if not len(candidates):
                answers.append(None)
                continue
            if stored is None:
                stored = _keys_in(parquet, task.keys, task.populate_meta_fields)
            found = _match(candidates, [stored], [number])
            answers.append(TagHits(chosen[found.row], found.file, found.position))
    return answers
