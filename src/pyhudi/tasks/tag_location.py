"""Index lookup (tagging): find the file groups of incoming keys.

    LookupByKeyColumns    reads the key column of every base file (index SIMPLE); cached from one write to the next
                          (INMEMORY)
    LookupByKeyFilters    checks key ranges and key filters first, those of footers or of the metadata table (BLOOM); a
                          file that they exclude is not read for a key, and a file without candidates is not read at all
    LookupByRecordIndex   reads the record index of the metadata table, file group by file group (RECORD_INDEX); of a
                          partitioned one the section of the partition that a row names (RECORD_LEVEL_INDEX)
    LookupByBuckets       computes the bucket from the key and reads nothing (BUCKET)
    LookupInHbaseIndex    reads a table of HBase, and key columns for keys without a valid entry (HBASE;
                          `features.hbase_index.hbase_tasks`)

The first two also read the keys of log files that may hold keys which the base file lacks (see
`logs_with_uncovered_keys`), and of no others. Ranges and filters of base files do not cover these keys. A key whose
last log entry is a delete does not exist.

Results are pairs, because several files may hold a key (inserts may duplicate keys), and each copy is updated.

Source: docs/formats/writing.md, "Indexes used for writing".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from threading import Lock

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import Internal, TableState
from pyhudi.format.bloom_filter import BloomFilter
from pyhudi.format.meta_columns import RECORD_KEY
from pyhudi.format.paths import parent_folder
from pyhudi.metadata_table.metadata_keys import bloom_filter_keys, file_hashes
from pyhudi.metadata_table.reader.file_group_reader import KeyedCells, MetadataPartition, PartitionReader
from pyhudi.metadata_table.reader.index_lookups import find_bloom_filters, find_records
from pyhudi.planning.bucket_routing import Placement
from pyhudi.records.java_strings import java_order
from pyhudi.records.keys.key_spec import KeySpec
from pyhudi.records.keys.record_keys import record_keys
from pyhudi.records.record_merge import combine_to_array
from pyhudi.storage import open_storage
from pyhudi.storage.base import Storage, StorageSpec
from pyhudi.table.file_slices import BaseFile, FileSlice, LogFile
from pyhudi.tasks.base_file_reader import MAX_KEY, MIN_KEY, OpenFile, footer_filter, footer_text, open_base_file, open_base_rows
from pyhudi.tasks.hbase_lookup import LookupInHbaseIndex
from pyhudi.tasks.incoming_layout import as_batch
from pyhudi.tasks.read_slice import ReadSpec, read_live_keys

# Cached key columns of base files in this process: the index INMEMORY.
#
# Base files are immutable, so cached keys stay valid; files that a table no longer has are evicted at the next lookup.
# A new process begins with an empty cache and reads the columns once: results equal those of the index SIMPLE.
#
# The cache holds all keys of the tables that this process writes with this index, without a limit: it is meant for
# tests.

_CACHED_KEYS: dict[str, dict[tuple[str, int], pa.Array]] = {}
_LOCK = Lock()


def cached_keys(storage: Storage, file: BaseFile, read: Callable[[], pa.Array]) -> pa.Array:
    """Return the keys of a base file of a table, cached.  storage: the table's."""
    name = file.path, file.size_bytes
    with _LOCK:
        keys = _CACHED_KEYS.setdefault(storage.uri, {}).get(name)
    if keys is None:
        keys = read()
        with _LOCK:
            _CACHED_KEYS.setdefault(storage.uri, {})[name] = keys
    return keys


def evict_keys(storage: Storage, partitions: Iterable[str], files: Iterable[BaseFile]) -> None:
    """Evict the cached keys of a table's partitions, except for these files."""
    current = {(file.path, file.size_bytes) for file in files}
    folders = frozenset(partitions)
    with _LOCK:
        held = _CACHED_KEYS.get(storage.uri, {})
        for name in [n for n in held if n not in current and parent_folder(n[0]) in folders]:
            del held[name]


Ints = npt.NDArray[np.int64]

KEYS_PER_LOOKUP = 4_000_000
"""Maximum number of stored keys that one lookup holds in memory."""

KEYS_PER_REQUEST = 1_000_000
"""Maximum number of keys in one request to the record index."""

_FILTERS_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class FileGroupCandidate:
    """A file group that rows may go to.

    Attributes:
        slice: Its current slice, None when the write creates the group.
        key_range: The smallest and the largest key of its base file, if the metadata table provides them.
        logs: Logs of the slice that may hold keys which its base file lacks.
    """

    partition: str
    file_id: str
    slice: FileSlice | None
    key_range: tuple[str, str] | None = None
    logs: tuple[LogFile, ...] = ()

    @property
    def log_slice(self) -> FileSlice:
        """The slice with `logs` alone."""
        if self.slice is None:
            raise Internal(f"file group {self.file_id} is new and has no logs in which keys could be looked up")
        return replace(self.slice, base=None, logs=self.logs)

    @property
    def has_base(self) -> bool:
        """Whether there is a base file in which keys are looked up; else its logs have all of them."""
        return self.slice is not None and self.slice.base is not None

    @property
    def base(self) -> BaseFile:
        """The base file in which keys are looked up."""
        if self.slice is None or self.slice.base is None:
            raise Internal(f"file group {self.file_id} has no base file in which keys could be looked up")
        return self.slice.base


@dataclass(frozen=True, slots=True)
class LookupByKeyColumns:
    """Read key columns.  use_cache: cache them in this process, for the next write."""

    use_cache: bool = False


@dataclass(frozen=True, slots=True)
class LookupByKeyFilters:
    """Check key filters first, and key ranges too with `prune_by_ranges`.

    from_metadata: ranges come from the candidates, not from footers. filters: the Bloom filters of the metadata table;
    None for those of footers.
    """

    prune_by_ranges: bool = True
    from_metadata: bool = False
    filters: MetadataPartition | None = None


@dataclass(frozen=True, slots=True)
class LookupByRecordIndex:
    """Read the record index.  by_partition: it is partitioned, and keys are looked up within their partition."""

    index: MetadataPartition
    by_partition: bool = False


@dataclass(frozen=True, slots=True)
class LookupByBuckets:
    """Compute buckets.

    new_file_id: the file id of a new file group of a partition's bucket; None if no group may be created (deletes).
    """

    layout: Placement
    new_file_id: Callable[[str, int], str] | None


FileLookup = LookupByKeyColumns | LookupByKeyFilters
Lookup = FileLookup | LookupByRecordIndex | LookupByBuckets | LookupInHbaseIndex


@dataclass(frozen=True, slots=True)
class TagTask:
    """Look up keys in the base files of some candidates, and in the logs that the candidates name.

    log_reader: reads the keys of logs; not None when a candidate names some.
    """

    storage: StorageSpec
    candidates: tuple[FileGroupCandidate, ...]
    keys: KeySpec
    populate_meta_fields: bool
    lookup: FileLookup = LookupByKeyColumns()
    log_reader: ReadSpec | None = None


@dataclass(frozen=True, slots=True)
class TagHits:
    """Pairs of incoming rows and stored rows, as three arrays of one length.

    Attributes:
        row: Index into the requested keys.
        candidate: Index into the task's candidates.
        position: Row number in that candidate's base file, -1 for a record of its logs.
    """

    row: Ints
    candidate: Ints
    position: Ints

    @classmethod
    def concatenate(cls, parts: Sequence[TagHits]) -> TagHits:
        """Concatenate the pairs of several lookups."""
        if not parts:
            empty = np.zeros(0, dtype=np.int64)
            return cls(empty, empty, empty)
        return cls(
            np.concatenate([p.row for p in parts]),
            np.concatenate([p.candidate for p in parts]),
            np.concatenate([p.position for p in parts]),
        )


def run_tag(task: TagTask, key_sets: Sequence[pa.Array]) -> list[TagHits]:
    """Look up sets of keys (strings, distinct within a set, no nulls) in the task's candidates; one result for each set.

    Every file is read once for all sets.
    """
    storage = open_storage(task.storage)
    if isinstance(task.lookup, LookupByKeyFilters):
        in_base = _by_filters(storage, task, task.lookup, key_sets)
    else:
        in_base = _by_columns(storage, task, key_sets)
    return [TagHits.concatenate(parts) for parts in zip(in_base, _in_logs(task, key_sets), strict=True)]


def _in_logs(task: TagTask, key_sets: Sequence[pa.Array]) -> list[TagHits]:
    hits: list[list[TagHits]] = [[] for _ in key_sets]
    for number, place in enumerate(task.candidates):
        if not place.logs:
            continue
        if task.log_reader is None:
            raise Internal(f"file group {place.file_id} has logs to look up keys in, but the task has no log reader")
        for stored in read_live_keys(task.log_reader, place.log_slice):
            for found, keys in zip(hits, key_sets, strict=True):
                if len(keys) and len(stored):
                    hit = _match(keys, [stored], [number])
                    found.append(TagHits(hit.row, hit.candidate, np.full(len(hit.row), -1, dtype=np.int64)))
    return [TagHits.concatenate(found) for found in hits]


def _by_columns(storage: Storage, task: TagTask, key_sets: Sequence[pa.Array]) -> list[TagHits]:
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

    for number, place in enumerate(task.candidates):
        if not place.has_base:
            continue
        column = _stored_keys(storage, task, place)
        stored.append(column)
        numbers.append(number)
        held += len(column)
        if held >= KEYS_PER_LOOKUP:
            look_up()
    look_up()
    return [TagHits.concatenate(found) for found in hits]


def distinct_pairs(rows: Ints, files: Ints) -> tuple[Ints, Ints]:
    """Each pair of a row and a file once, in order of the rows, then of the files. Both are numbers from 0, below 2**31."""
    pairs = np.unique((rows << 32) | files)
    return pairs >> 32, pairs & 0xFFFFFFFF


def read_keys(storage: Storage, path: str, spec: KeySpec, *, populate_meta_fields: bool) -> pa.Array:
    """The record keys of a base file in row order: the stored ones, or computed from the key fields if meta columns are empty."""
    with open_base_rows(storage, path) as file:
        assert file is not None, "no key filter was applied"
        return _keys_in(file, spec, populate_meta_fields=populate_meta_fields)


class CandidateIds:
    """Numbers of candidates by partition path and file id."""

    def __init__(self, candidates: Sequence[FileGroupCandidate]) -> None:
        self._numbers = {(place.partition, place.file_id): number for number, place in enumerate(candidates)}

    def of(self, groups: Sequence[tuple[str, str]]) -> Ints:
        """Return the number of each group.  Raises TableState for a group that is not a candidate."""
        numbers = [self._numbers.get(group) for group in groups]
        for group, number in zip(groups, numbers, strict=True):
            if number is None:
                raise unknown_group(*group)
        return np.array(numbers, dtype=np.int64)


def unknown_group(partition: str, file_id: str) -> TableState:
    """Return the error of a record index that names a file group which the table does not have."""
    return TableState(
        f"the record index locates keys in file group {file_id} in {partition or 'the table'}, which the table does not "
        "have; drop the record index and rebuild it"
    )


def find_in_record_index(reader: KeyedCells, keys: pa.StringArray) -> tuple[Ints, Ints, tuple[tuple[str, str], ...]]:
    """Locate keys: pairs of a key (its index) and a group (its index), and the groups (partition path, file id).

    keys: distinct, no nulls.  Raises as `GroupReader`.
    """
    rows, codes = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    groups: dict[tuple[str, str], int] = {}
    for start in range(0, len(keys), KEYS_PER_REQUEST):
        asked = keys.slice(start, KEYS_PER_REQUEST)
        found = find_records(reader, asked).combine_chunks()
        if found.num_rows:
            rows.append(np.asarray(pc.index_in(found.column("key"), value_set=asked), dtype=np.int64) + start)
            codes.append(group_codes(found, groups))
    return np.concatenate(rows), np.concatenate(codes), tuple(groups)


def group_codes(found: pa.Table, groups: dict[tuple[str, str], int]) -> Ints:
    """Return a number for the group of each row. found: partition, file_id; groups: those known so far, new ones are added."""
    distinct = found.select(["partition", "file_id"]).group_by(["partition", "file_id"], use_threads=False).aggregate([])
    for group in zip(distinct.column("partition").to_pylist(), distinct.column("file_id").to_pylist(), strict=True):
        groups.setdefault(group, len(groups))
    # A partition path may hold any character but this one.
    joined = pc.binary_join_element_wise(found.column("partition"), found.column("file_id"), "\x00")
    known = pa.array(["\x00".join(group) for group in groups], pa.string())
    return np.asarray(pc.index_in(joined, value_set=known), dtype=np.int64)


def _stored_keys(storage: Storage, task: TagTask, candidate: FileGroupCandidate) -> pa.Array:
    base = candidate.base
    read = partial(read_keys, storage, base.path, task.keys, populate_meta_fields=task.populate_meta_fields)
    if isinstance(task.lookup, LookupByKeyColumns) and task.lookup.use_cache:
        return cached_keys(storage, base, read)
    return read()


def _keys_in(file: OpenFile, spec: KeySpec, *, populate_meta_fields: bool) -> pa.Array:
    if populate_meta_fields:
        return combine_to_array(file.read(columns=[RECORD_KEY], use_threads=False).column(0))
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
    """Whether a key is within bounds that a writer computed in UTF-8 order or in Java's order."""
    inside = pc.and_(pc.greater_equal(keys, least), pc.less_equal(keys, greatest))
    low, high = java_order(pa.array([least, greatest], pa.string()))
    ordered = java_order(keys)
    by_java = pc.and_(pc.greater_equal(ordered, low), pc.less_equal(ordered, high))
    return np.asarray(pc.or_(inside, by_java), dtype=np.bool_)


@dataclass(frozen=True, slots=True)
class _FileCandidates:
    """Keys of a set that a file may hold.  rows: their indices in the set."""

    rows: Ints
    keys: pa.StringArray

    def within(self, key_range: tuple[str, str] | None) -> _FileCandidates:
        return self if key_range is None or not len(self.keys) else self._where(_within(self.keys, *key_range))

    def in_filter(self, key_filter: BloomFilter | None) -> _FileCandidates:
        if key_filter is None or not len(self.keys):
            return self
        return self._where(np.asarray(key_filter.might_contain(self.keys), dtype=np.bool_))

    def _where(self, mask: npt.NDArray[np.bool_]) -> _FileCandidates:
        return self if mask.all() else _FileCandidates(self.rows[mask], self.keys.filter(pa.array(mask)))


def _by_filters(storage: Storage, task: TagTask, lookup: LookupByKeyFilters, key_sets: Sequence[pa.Array]) -> list[TagHits]:
    hits: list[list[TagHits]] = [[] for _ in key_sets]
    everything = [_FileCandidates(np.arange(len(keys), dtype=np.int64), keys) for keys in key_sets]
    for number, place, key_filter in _filters_of_metadata(lookup, task.candidates, everything):
        candidates = everything
        if lookup.from_metadata and lookup.prune_by_ranges:
            candidates = [c.within(place.key_range) for c in candidates]
        candidates = [c.in_filter(key_filter) for c in candidates]
        if not any(len(c.keys) for c in candidates):
            continue
        with open_base_file(storage, place.base.path) as file:
            if not (lookup.from_metadata and place.key_range) and lookup.prune_by_ranges:
                least, greatest = footer_text(file.metadata, MIN_KEY), footer_text(file.metadata, MAX_KEY)
                if least is not None and greatest is not None:
                    candidates = [c.within((least, greatest)) for c in candidates]
            if key_filter is None:
                in_footer = footer_filter(file.metadata)
                candidates = [c.in_filter(in_footer) for c in candidates]
            if not any(len(c.keys) for c in candidates):
                continue
            stored = _keys_in(file, task.keys, populate_meta_fields=task.populate_meta_fields)
        for found, asked in zip(hits, candidates, strict=True):
            if len(asked.keys):
                hit = _match(asked.keys, [stored], [number])
                found.append(TagHits(asked.rows[hit.row], hit.candidate, hit.position))
    return [TagHits.concatenate(found) for found in hits]


def _filters_of_metadata(
    lookup: LookupByKeyFilters, requested: Sequence[FileGroupCandidate], candidates: Sequence[_FileCandidates]
) -> Iterator[tuple[int, FileGroupCandidate, BloomFilter | None]]:
    """Return places with their filters in the metadata table; those whose range excludes all keys are omitted."""
    if lookup.filters is None:
        yield from ((number, place, None) for number, place in enumerate(requested))
        return
    reader = PartitionReader(lookup.filters)
    pruned = lookup.from_metadata and lookup.prune_by_ranges
    left = (
        (number, place)
        for number, place in enumerate(requested)
        if not pruned or any(len(c.within(place.key_range).keys) for c in candidates)
    )
    while chunk := list(islice(left, _FILTERS_AT_ONCE)):
        names: dict[str, list[str]] = {}
        for _, place in chunk:
            names.setdefault(place.partition, []).append(place.base.name.text)
        found = find_bloom_filters(reader, names, lookup.filters.name)
        stored = {
            key: BloomFilter.from_text(text.decode("ascii", "replace"), code)
            for key, code, text in zip(
                found["key"].to_pylist(), found["type_code"].to_pylist(), found["bloom_filter"].to_pylist(), strict=True
            )
        }
        for number, place in chunk:
            key = bloom_filter_keys(place.partition, file_hashes([place.base.name.text]))[0].as_py()
            yield number, place, stored.get(key)
