"""The Arrow rows of one write: buffered, combined and looked up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi import features
from pyhudi.engines.arrow.tagged import LocalTagged, TaggedRows, Workers
from pyhudi.format.meta_columns import PARTITION_PATH, RECORD_KEY
from pyhudi.format.names import WriteToken
from pyhudi.metadata_table.reader.file_group_reader import PartitionReader
from pyhudi.records.keys.partition_paths import PLACEHOLDER_PARTITION
from pyhudi.records.record_merge import combine_duplicates, row_codes
from pyhudi.records.row_grouping import group_rows, run_starts, runs
from pyhudi.table.file_slices import BaseFile
from pyhudi.tasks.bucket_assignment import BucketCandidates
from pyhudi.tasks.engine_protocol import BulkPlan, PrepareRequest, TagRequest
from pyhudi.tasks.hbase_lookup import LookupInHbaseIndex
from pyhudi.tasks.incoming_rows import StoredRows, check_refits, incoming_schema, refitted_rows, resolve_moves, run_stored
from pyhudi.tasks.resolve_duplicates import LiveKeysTask, filter_live, run_live_keys
from pyhudi.tasks.spill import RowBuffer
from pyhudi.tasks.tag_location import (
    CandidateIds,
    FileGroupCandidate,
    LookupByBuckets,
    LookupByKeyColumns,
    LookupByRecordIndex,
    TagHits,
    TagTask,
    distinct_pairs,
    find_in_record_index,
    run_tag,
)
from pyhudi.tasks.write_file_group import CHUNK_BYTES, create_files
from pyhudi.tasks.write_tasks import CreateTask, WriteStatus

Ints = npt.NDArray[np.int64]

_FEWEST_ROWS_A_RUN = 1000
"""Minimum average length of runs of one partition: rows with longer runs are sliced as they are, others are sorted first."""

KEYS_SHARE = 4
"""A base file is about this many times larger than its keys."""

FILE_BYTES = 1 << 20
"""Cost of opening a file and reading its footer, in equivalent bytes."""

_LookUp = Callable[[Sequence[pa.Table]], list[tuple[Ints, Ints]]]
"""Maps tables of rows to the pairs (row, candidate number) of each."""


class LocalIncoming:
    """The rows of one write, keyed and combined; one table per bucket of the row buffer."""

    def __init__(self, workers: Workers, input_schema: pa.Schema, prepared: Iterable[pa.Table], request: PrepareRequest) -> None:
        """input_schema: columns of the caller's data.  prepared: rows in the incoming layout of the request.

        on_lookup: called after a lookup with pairs of rows and the numbers of those whose keys were found.
        """
        self._workers = workers
        self._request = request
        self._given = input_schema
        self._last_lookup = _FileLookup((), ())
        self.on_lookup: Callable[[list[tuple[pa.Table, Ints]]], None] | None = None
        self._buffer = RowBuffer(incoming_schema(request), RECORD_KEY, request.memory_budget_bytes)
        try:
            given = 0
            for rows in prepared:
                self._buffer.append(rows)
                given += rows.num_rows
            self.buckets = [self._combined(rows) for rows in self._buffer.finish()]
            self._row_counts = given, given - sum(rows.num_rows for rows in self.buckets)
        except BaseException:
            self._buffer.release()
            raise

    @property
    def spilled(self) -> bool:
        """Whether rows were spilled to disk."""
        return self._buffer.spilled

    def partitions(self) -> dict[str, int]:
        """Row counts by partition path."""
        counts: Counter[str] = Counter()
        for rows in self.buckets:
            for entry in pc.value_counts(rows.column(PARTITION_PATH)).to_pylist():
                counts[entry["values"]] += entry["counts"]
        return dict(counts)

    def row_counts(self) -> tuple[int, int]:
        """Return the numbers of rows given, and of rows dropped for another one of their key."""
        return self._row_counts

    def tag(self, request: TagRequest) -> LocalTagged:
        """Look up the keys; with a global index also resolve records whose partition changed."""
        tagged = []
        found: list[tuple[pa.Table, Ints]] = []
        look_up, places = self._lookup_of(request)
        for buckets in self._affordable():
            hits = look_up(buckets)
            for rows, (pairs_row, pairs_place) in zip(buckets, hits, strict=True):
                if self.on_lookup is not None:
                    found.append((rows, pairs_row))
                if request.global_keys:
                    rows, pairs_row, pairs_place = self._resolve_partitions(rows, pairs_row, pairs_place, request)
                is_found = np.zeros(rows.num_rows, dtype=np.bool_)
                is_found[pairs_row] = True
                tagged.append(TaggedRows(rows, pairs_row, pairs_place, np.flatnonzero(~is_found)))
        if self.on_lookup is not None:
            self.on_lookup(found)
        return LocalTagged(self._workers, tagged, tuple(places), spilled=self.spilled)

    def untagged(self) -> LocalTagged:
        """All rows as inserts."""
        nothing = np.zeros(0, dtype=np.int64)
        parts = [TaggedRows(rows, nothing, nothing, np.arange(rows.num_rows, dtype=np.int64)) for rows in self.buckets]
        return LocalTagged(self._workers, parts, (), spilled=self.spilled)

    def write_bulk(self, plan: BulkPlan) -> list[WriteStatus]:
        """Write all rows to new file groups, one partition path at a time, sorted as planned."""
        jobs: list[tuple[CreateTask, Iterable[pa.Table]]] = []

        def add(partition: str, rows: Iterable[pa.Table]) -> None:
            jobs.append((CreateTask(partition, plan.new_file_id(), WriteToken(len(jobs), 0, len(jobs))), rows))

        pieces = self._partition_pieces()
        spread = max(1, self._workers.threads // max(1, len(pieces)))
        for partition, rows in pieces:
            if plan.sort != "NONE":
                in_order = self._buffer.sorted_by_key(rows)
                if self.spilled:
                    # Sorted while being written with bounded memory, so the parts cannot be distributed over threads.
                    add(partition, in_order)
                    continue
                (rows,) = in_order
            # Do not split a partition into small files only to use more threads.
            parts = min(spread, max(1, rows.nbytes // CHUNK_BYTES))
            step = -(-rows.num_rows // parts)
            for start in range(0, rows.num_rows, step):
                add(partition, [rows.slice(start, step)])
        written = self._workers.map(lambda job: create_files(plan.spec, *job), jobs)
        return [status for statuses in written for status in statuses]

    def refit(self, request: PrepareRequest) -> None:
        """Convert the buffered rows to the columns of another request, because many streams can be read only once."""
        check_refits(self._given, self._request, request)
        self._request = request
        self._last_lookup = _FileLookup((), ())
        self.buckets = [self._buffer.store(refitted_rows(request, rows)) for rows in self.buckets]

    def release(self) -> None:
        """Drop the rows and spilled files."""
        self.buckets = []
        self._buffer.release()

    def _combined(self, rows: pa.Table) -> pa.Table:
        if not self._request.combine:
            return rows
        identity = [RECORD_KEY] if self._request.global_keys else [RECORD_KEY, PARTITION_PATH]
        combined = combine_duplicates(rows, identity, self._request.rule)
        return rows if combined is rows else self._buffer.store(combined)

    def _affordable(self) -> Iterator[list[pa.Table]]:
        """Group buckets whose keys fit in memory together."""
        group: list[pa.Table] = []
        size_bytes = 0
        for rows in self.buckets:
            size_bytes += rows.column(RECORD_KEY).nbytes
            if group and self.spilled and size_bytes > self._request.memory_budget_bytes // 4:
                yield group
                group, size_bytes = [], rows.column(RECORD_KEY).nbytes
            group.append(rows)
        yield group

    def _partition_pieces(self) -> list[tuple[str, pa.Table]]:
        """The rows of each partition path, in order of path."""
        pieces: dict[str, list[pa.Table]] = {}
        for rows in self.buckets:
            codes = row_codes(rows, [PARTITION_PATH])
            if len(run_starts(codes)) * _FEWEST_ROWS_A_RUN > len(codes):
                order = np.argsort(codes, kind="stable")
                codes = codes[order]
                rows = self._buffer.store(rows.take(pa.array(order)))
            for start, end in runs(codes):
                piece = rows.slice(start, end - start)
                pieces.setdefault(piece.column(PARTITION_PATH)[0].as_py(), []).append(piece)
        return [(partition, pa.concat_tables(pieces[partition])) for partition in sorted(pieces)]

    def _tag_bucket_setup(self, rows: pa.Table, *, global_keys: bool) -> _KeysByPartition:
        keys = rows.column(RECORD_KEY).combine_chunks()
        if global_keys:
            return _KeysByPartition(keys, {None: np.arange(len(keys), dtype=np.int64)})
        encoded = pc.dictionary_encode(rows.column(PARTITION_PATH).combine_chunks())
        names = encoded.dictionary.to_pylist()
        order, bounds = group_rows(np.asarray(encoded.indices, dtype=np.int64), len(names))
        return _KeysByPartition(keys, {name: order[bounds[i] : bounds[i + 1]] for i, name in enumerate(names)})

    def _lookup_of(self, request: TagRequest) -> tuple[_LookUp, Sequence[FileGroupCandidate]]:
        """The lookup function of a request and its candidates, to which it may add."""
        lookup = request.lookup
        if isinstance(lookup, LookupByBuckets):
            return self._by_buckets(request, places := BucketCandidates(request.candidates, lookup)), places.candidates
        if isinstance(lookup, LookupByRecordIndex):
            return self._by_record_index(request, lookup), request.candidates
        if isinstance(lookup, LookupInHbaseIndex):
            return partial(self._by_hbase, request, lookup), request.candidates
        return partial(self._in_files, request, keeps_pairs=not self.spilled), request.candidates

    def _by_buckets(self, request: TagRequest, candidates: BucketCandidates) -> _LookUp:
        def look_up(buckets: Sequence[pa.Table]) -> list[tuple[Ints, Ints]]:
            return [
                candidates.route(
                    request.spec.keys,
                    rows.column(RECORD_KEY).combine_chunks(),
                    rows.column(PARTITION_PATH).combine_chunks(),
                )
                for rows in buckets
            ]

        return look_up

    def _by_record_index(self, request: TagRequest, lookup: LookupByRecordIndex) -> _LookUp:
        numbers = CandidateIds(request.candidates)

        def reader_of(path: str | None) -> PartitionReader:
            return PartitionReader(lookup.index if path is None else lookup.index.section(path))

        readers = cache(reader_of)

        def look_up(buckets: Sequence[pa.Table]) -> list[tuple[Ints, Ints]]:
            answers = []
            for rows in buckets:
                setup = self._tag_bucket_setup(rows, global_keys=request.global_keys)
                pairs = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
                for path in setup.rows:
                    key_set = _key_set(setup, path)
                    hit_rows, codes, groups = find_in_record_index(readers(path), key_set.keys)
                    pairs.append(key_set.expand(hit_rows, numbers.of(groups)[codes]))
                answers.append((np.concatenate([row for row, _ in pairs]), np.concatenate([place for _, place in pairs])))
            return answers

        return look_up

    def _by_hbase(self, request: TagRequest, lookup: LookupInHbaseIndex, tables: Sequence[pa.Table]) -> list[tuple[Ints, Ints]]:
        groups = {(place.partition, place.file_id): number for number, place in enumerate(request.candidates)}
        find = features.load("hbase_index", "index HBASE").find_in_hbase
        answers = []
        for rows in tables:
            key_set = _key_set(self._tag_bucket_setup(rows, global_keys=True), None)
            hit_rows, numbers, unsure = find(lookup, key_set.keys, groups)
            row, place = key_set.expand(hit_rows, numbers)
            if len(unsure):
                unsure_rows, _ = key_set.expand(unsure, np.zeros(len(unsure), dtype=np.int64))
                by_columns = replace(request, lookup=LookupByKeyColumns())
                ((matched, places),) = self._in_files(by_columns, [rows.take(pa.array(unsure_rows))])
                row, place = np.concatenate([row, unsure_rows[matched]]), np.concatenate([place, places])
            answers.append((row, place))
        return answers

    def _in_files(self, request: TagRequest, tables: Sequence[pa.Table], *, keeps_pairs: bool = False) -> list[tuple[Ints, Ints]]:
        """Pairs (row, candidate number) of each table; with ``keeps_pairs``, a retry reads only base files new to it."""
        found = self._pairs_in_changed_files(request, tables) if keeps_pairs else self._pairs_in_files(request, tables)
        return filter_live(request, [rows.column(RECORD_KEY).combine_chunks() for rows in tables], found, self._read_live)

    def _pairs_in_changed_files(self, request: TagRequest, tables: Sequence[pa.Table]) -> list[tuple[Ints, Ints]]:
        """As `_pairs_in_files`, with those pairs of the last lookup whose base files are candidates again."""
        bases = tuple(place.base if place.has_base and not place.logs else None for place in request.candidates)
        numbers = {base: number for number, base in enumerate(bases) if base is not None}
        last = self._last_lookup
        kept = np.array([-1 if base is None else numbers.get(base, -1) for base in last.bases], dtype=np.int64)
        found = self._pairs_in_files(request, tables, frozenset(kept.tolist()))
        if (kept >= 0).any():
            found = [
                (np.concatenate([row, last_row[still]]), np.concatenate([place, kept[last_place[still]]]))
                for (row, place), (last_row, last_place) in zip(found, last.pairs, strict=True)
                for still in [kept[last_place] >= 0]
            ]
        self._last_lookup = _FileLookup(bases, found)
        return found

    def _pairs_in_files(
        self, request: TagRequest, tables: Sequence[pa.Table], skipped: frozenset[int] = frozenset()
    ) -> list[tuple[Ints, Ints]]:
        """For each table the pairs (row, candidate number) of the files, except those of skipped candidates."""
        buckets = [self._tag_bucket_setup(rows, global_keys=request.global_keys) for rows in tables]
        by_partition = request.candidates_by_partition().items()
        lookup_partitions = [
            (path, [number for number in numbers if number not in skipped])
            for path, numbers in by_partition
            if any(path in bucket.rows for bucket in buckets)
        ]
        parallelism = self._workers.parallelism(
            sum(_lookup_bytes(request.candidates[number]) for _, numbers in lookup_partitions for number in numbers)
        )
        lookups: list[tuple[Ints, list[_KeySet]]] = []
        for path, numbers in lookup_partitions:
            sets = [_key_set(bucket, path) for bucket in buckets]
            step = max(1, -(-len(numbers) // parallelism))
            lookups += [(np.array(numbers[i : i + step], dtype=np.int64), sets) for i in range(0, len(numbers), step)]
        tasks = [LookupTask(request.task(numbers.tolist()), tuple(s.keys for s in sets)) for numbers, sets in lookups]
        if isinstance(request.lookup, LookupByKeyColumns) and request.lookup.use_cache:
            # The cache exists only in this process.
            answers = self._workers.map(lookup_keys, tasks)
        else:
            answers = self._workers.run_tasks(lookup_keys, tasks, [task.size_bytes for task in tasks])
        hits = [
            [keys.expand(hit.row, numbers[hit.candidate]) for keys, hit in zip(sets, answer, strict=True)]
            for (numbers, sets), answer in zip(lookups, answers, strict=True)
        ]
        combined = []
        for number in range(len(buckets)):
            rows = [hit[number][0] for hit in hits]
            groups = [hit[number][1] for hit in hits]
            combined.append(
                (
                    np.concatenate(rows) if rows else np.zeros(0, np.int64),
                    np.concatenate(groups) if groups else np.zeros(0, np.int64),
                )
            )
        return combined

    def _read_live(self, tasks: Sequence[LiveKeysTask]) -> list[pa.Array]:
        return self._workers.run_tasks(run_live_keys, tasks, [task.slice.size_bytes for task in tasks])

    def _resolve_partitions(
        self, rows: pa.Table, pairs_row: Ints, pairs_candidate: Ints, request: TagRequest
    ) -> tuple[pa.Table, Ints, Ints]:
        """Global index: rows that are stored in another partition stay there or move, according to the request."""
        candidate_partitions = pa.array([place.partition for place in request.candidates], pa.string())
        if not len(pairs_row):
            return rows, pairs_row, pairs_candidate
        stored = candidate_partitions.take(pa.array(pairs_candidate))
        incoming_partitions = rows.column(PARTITION_PATH).take(pa.array(pairs_row)).combine_chunks()
        moved = np.asarray(pc.not_equal(stored, incoming_partitions), dtype=np.bool_)
        has_no_partition = np.asarray(pc.equal(incoming_partitions, PLACEHOLDER_PARTITION), dtype=np.bool_)
        stays = moved & has_no_partition if request.update_partition_path else moved
        rows = _with_partition(rows, pairs_row[stays], stored.filter(pa.array(stays)))
        goes = moved & ~stays
        if not goes.any():
            return rows, pairs_row, pairs_candidate
        rows, pairs_row, pairs_candidate = resolve_moves(request, rows, pairs_row, pairs_candidate, goes, self._read_stored)
        return self._buffer.store(rows), pairs_row, pairs_candidate

    def _read_stored(self, tasks: Sequence[StoredRows]) -> list[pa.Table]:
        return self._workers.run_tasks(run_stored, tasks, [task.slice.size_bytes for task in tasks])


@dataclass(frozen=True, slots=True)
class _FileLookup:
    """The last lookup in files: the base files of its candidates, except those with logs to read, and the pairs of each table."""

    bases: tuple[BaseFile | None, ...]
    pairs: Sequence[tuple[Ints, Ints]]


@dataclass(frozen=True, slots=True)
class LookupTask:
    """Keys to look up in some candidates.  key_sets: one for the rows of each bucket of the row buffer."""

    task: TagTask
    key_sets: tuple[pa.Array, ...]

    @property
    def size_bytes(self) -> int:
        """Approximate bytes to read."""
        return sum(map(_lookup_bytes, self.task.candidates))


def _lookup_bytes(candidate: FileGroupCandidate) -> int:
    """Approximate cost in bytes: the keys are a part of the file, and opening it has a fixed cost."""
    return max(FILE_BYTES, candidate.slice.size_bytes // KEYS_SHARE) if candidate.slice is not None else 0


def lookup_keys(lookup: LookupTask) -> list[TagHits]:
    """The hits of each set of keys."""
    return run_tag(lookup.task, lookup.key_sets)


@dataclass(frozen=True, slots=True)
class _KeysByPartition:
    keys: pa.Array
    rows: dict[str | None, Ints]


@dataclass(frozen=True, slots=True)
class _KeySet:
    """Distinct keys, and the rows that have each of them."""

    keys: pa.Array
    rows: Ints
    codes: Ints | None

    def expand(self, key_index: Ints, groups: Ints) -> tuple[Ints, Ints]:
        """Pairs (distinct row, group) from hits of distinct keys, without duplicates even if a file contains a key twice."""
        if not len(key_index):
            return key_index, groups
        key_index, groups = distinct_pairs(key_index, groups)
        if self.codes is None:
            return self.rows[key_index], groups
        order = np.argsort(self.codes, kind="stable")
        starts = np.searchsorted(self.codes[order], key_index, side="left")
        counts = np.searchsorted(self.codes[order], key_index, side="right") - starts
        offsets = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        return self.rows[order[np.repeat(starts, counts) + offsets]], np.repeat(groups, counts)


def _key_set(bucket: _KeysByPartition, partition: str | None) -> _KeySet:
    rows = bucket.rows.get(partition, np.zeros(0, dtype=np.int64))
    keys = bucket.keys if len(rows) == len(bucket.keys) and _is_identity(rows) else bucket.keys.take(pa.array(rows))
    encoded = pc.dictionary_encode(keys)
    if len(encoded.dictionary) == len(keys):
        return _KeySet(keys, rows, None)
    return _KeySet(encoded.dictionary, rows, np.asarray(encoded.indices, dtype=np.int64))


def _is_identity(rows: Ints) -> bool:
    return bool(len(rows) == 0 or (rows[0] == 0 and np.all(np.diff(rows) == 1)))


def by_partition(rows: pa.Table) -> pa.Table:
    """Rows sorted by partition path, stable in order of arrival."""
    codes = row_codes(rows, [PARTITION_PATH])
    # numpy sorts 16 bits in linear time.
    order = np.argsort(codes.astype(np.uint16) if len(codes) and codes.max() < 1 << 16 else codes, kind="stable")
    return rows if _is_identity(order) else rows.take(pa.array(order))


def _with_partition(rows: pa.Table, at: Ints, values: pa.Array) -> pa.Table:
    if len(at):
        mask = np.zeros(rows.num_rows, dtype=np.bool_)
        mask[at] = True
        order = np.argsort(at, kind="stable")
        first_positions = order[np.r_[True, np.diff(at[order]) != 0]]
        position = rows.schema.get_field_index(PARTITION_PATH)
        column = pc.replace_with_mask(
            rows.column(position).combine_chunks(), pa.array(mask), values.take(pa.array(first_positions))
        )
        rows = rows.set_column(position, rows.schema.field(position), column)
    return rows
