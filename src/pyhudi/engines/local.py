"""The embedded engine: Arrow tables and threads of one process.

Incoming batches are conformed and keyed as they arrive and held in a `RowBuffer`; beyond the memory budget they lie on local
disk.  Lookups and writing tasks run on a thread pool; Arrow releases the interpreter lock in all of them.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.engines.arrow_rows import arrow_reader
from pyhudi.errors import InvalidRequest
from pyhudi.execute.bucket_places import BucketPlaces
from pyhudi.execute.engine import BulkPlan, PrepareRequest, TagRequest, WritePlan
from pyhudi.execute.hbase_index import ByHbase, find_in_hbase
from pyhudi.execute.incoming import check_refits, incoming_rows, incoming_schema, refitted_rows, resolve_moves
from pyhudi.execute.progress import stage, stage_name
from pyhudi.execute.spill import RowBuffer, store_rows
from pyhudi.execute.tag import (
    ByBuckets,
    ByKeyColumns,
    ByKeyFilters,
    ByRecordIndex,
    Place,
    PlaceNumbers,
    distinct_pairs,
    find_in_record_index,
    run_tag,
)
from pyhudi.execute.write_base import CreateTask, WriteStatus
from pyhudi.execute.write_group import PIECE_BYTES, create_files
from pyhudi.format.names import WriteToken
from pyhudi.plan.write import WorkloadProfile, deal_inserts
from pyhudi.records.keys.partition_paths import PLACEHOLDER_PARTITION
from pyhudi.records.merge import combine_duplicates, row_codes
from pyhudi.records.meta_fields import PARTITION_PATH, RECORD_KEY
from pyhudi.records.runs import by_code, run_starts, runs
from pyhudi.table.metadata.groups import PartitionReader

T = TypeVar("T")
R = TypeVar("R")
Ints = npt.NDArray[np.int64]

_FEWEST_ROWS_A_RUN = 1000
"""Rows that stand together by partition in runs of so many, on average, are cut as they are; others are sorted first."""


_LookUp = Callable[[Sequence[pa.Table]], list[tuple[Ints, Ints]]]
"""From tables of rows to the pairs (row, number of a place) of each."""


class LocalEngine:
    """Runs tasks in threads.  threads: 0 for one a processor."""

    name = "embedded"

    def __init__(self, threads: int = 0) -> None:
        if threads < 0:
            raise InvalidRequest(f"option pyhudi.threads={threads} has to be 0 or more")
        self.threads = threads or os.cpu_count() or 1
        self._opened: tuple[Any, pa.RecordBatchReader] | None = None

    def input_schema(self, data: Any) -> pa.Schema:
        """The schema of the caller's data."""
        self._opened = data, arrow_reader(data)
        return self._opened[1].schema

    def prepare(self, data: Any, request: PrepareRequest) -> LocalIncoming:
        """Read the data, conform and key it, combine duplicates."""
        # Some streams can be had only once: the one whose schema was asked for is the one that is read.
        opened, self._opened = self._opened, None
        return LocalIncoming(self, opened[1] if opened and opened[0] is data else arrow_reader(data), request)

    def map(self, function: Callable[[T], R], tasks: Iterable[T]) -> list[R]:
        """Run tasks on the pool; results in order.  The first error cancels what has not begun and is raised."""
        todo = list(tasks)
        with stage(stage_name(getattr(function, "func", function)), len(todo)) as advance:
            return self._run_all(function, todo, advance)

    def pipelined(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Results in order while items still arrive; the pool works a few items ahead of the result that was taken last."""
        if self.threads == 1:
            yield from map(function, items)
            return
        ahead: deque[Future[R]] = deque()
        with ThreadPoolExecutor(self.threads, thread_name_prefix="pyhudi") as pool:
            for item in items:
                ahead.append(pool.submit(function, item))
                if len(ahead) > self.threads:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()

    def _run_all(self, function: Callable[[T], R], todo: list[T], advance: Callable[[], None]) -> list[R]:
        def run(task: T) -> R:
            result = function(task)
            advance()
            return result

        if len(todo) <= 1 or self.threads == 1:
            return [run(task) for task in todo]
        with ThreadPoolExecutor(min(self.threads, len(todo)), thread_name_prefix="pyhudi") as pool:
            futures: list[Future[R]] = [pool.submit(run, task) for task in todo]
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            failed = next((f for f in done if f.exception() is not None), None)
            if failed is not None:
                for future in futures:
                    future.cancel()
                failed.result()
            return [future.result() for future in futures]


class LocalIncoming:
    """The rows of one write, keyed and combined; one table for each bucket of the row buffer."""

    def __init__(self, engine: LocalEngine, data: pa.RecordBatchReader, request: PrepareRequest) -> None:
        self._engine = engine
        self._request = request
        self._given = data.schema
        self._buffer = RowBuffer(incoming_schema(request), RECORD_KEY, request.memory_budget_bytes)
        try:
            for rows in engine.pipelined(self._prepared, _numbered(data)):
                self._buffer.append(rows)
            self.buckets = [self._combined(rows) for rows in self._buffer.finish()]
        except BaseException:
            self._buffer.release()
            raise

    @property
    def spilled(self) -> bool:
        """True when the rows lie on disk."""
        return self._buffer.spilled

    def partitions(self) -> dict[str, int]:
        """Rows by partition path."""
        counts: Counter[str] = Counter()
        for rows in self.buckets:
            for entry in pc.value_counts(rows.column(PARTITION_PATH)).to_pylist():
                counts[entry["values"]] += entry["counts"]
        return dict(counts)

    def tag(self, request: TagRequest) -> LocalTagged:
        """Look the keys up; under a global index also decide what becomes of records whose partition changed."""
        tagged = []
        look_up, places = self._lookup_of(request)
        for buckets in self._affordable():
            hits = look_up(buckets)
            for rows, (pairs_row, pairs_place) in zip(buckets, hits, strict=True):
                if request.global_keys:
                    rows, pairs_row, pairs_place = self._settle_partitions(rows, pairs_row, pairs_place, request)
                found = np.zeros(rows.num_rows, dtype=np.bool_)
                found[pairs_row] = True
                tagged.append(_TaggedRows(rows, pairs_row, pairs_place, np.flatnonzero(~found)))
        return LocalTagged(self._engine, tagged, tuple(places), spilled=self.spilled)

    def untagged(self) -> LocalTagged:
        """All rows as inserts."""
        nothing = np.zeros(0, dtype=np.int64)
        parts = [_TaggedRows(rows, nothing, nothing, np.arange(rows.num_rows, dtype=np.int64)) for rows in self.buckets]
        return LocalTagged(self._engine, parts, (), spilled=self.spilled)

    def write_bulk(self, plan: BulkPlan) -> list[WriteStatus]:
        """Write all rows to new file groups: each partition path by itself, sorted as the plan says."""
        jobs: list[tuple[CreateTask, Iterable[pa.Table]]] = []

        def add(partition: str, rows: Iterable[pa.Table]) -> None:
            jobs.append((CreateTask(partition, plan.new_file_id(), WriteToken(len(jobs), 0, len(jobs))), rows))

        pieces = self._partition_pieces()
        spread = max(1, self._engine.threads // max(1, len(pieces)))
        for partition, rows in pieces:
            if plan.sort != "NONE":
                in_order = self._buffer.sorted_by_key(rows)
                if self.spilled:
                    # Sorted while it is written: what is sorted at one time is bounded, so the parts cannot be dealt out.
                    add(partition, in_order)
                    continue
                (rows,) = in_order
            # A partition's rows are not spread over several small files only to use more threads.
            parts = min(spread, max(1, rows.nbytes // PIECE_BYTES))
            step = -(-rows.num_rows // parts)
            for start in range(0, rows.num_rows, step):
                add(partition, [rows.slice(start, step)])
        written = self._engine.map(lambda job: create_files(plan.spec, *job), jobs)
        return [status for statuses in written for status in statuses]

    def refit(self, request: PrepareRequest) -> None:
        """Give the held rows the columns of another request: many a stream can be read only once."""
        check_refits(self._given, self._request, request)
        self._request = request
        self.buckets = [self._buffer.store(refitted_rows(request, rows)) for rows in self.buckets]

    def release(self) -> None:
        """Drop rows and spilled files."""
        self.buckets = []
        self._buffer.release()

    def _prepared(self, numbered: tuple[int, pa.RecordBatch]) -> pa.Table:
        first_row, batch = numbered
        rows = incoming_rows(self._request, batch, first_row=first_row)
        return _by_partition(rows) if self._request.by_partition else rows

    def _combined(self, rows: pa.Table) -> pa.Table:
        if not self._request.combine:
            return rows
        identity = [RECORD_KEY] if self._request.global_keys else [RECORD_KEY, PARTITION_PATH]
        combined = combine_duplicates(rows, identity, self._request.rule)
        return rows if combined is rows else self._buffer.store(combined)

    def _affordable(self) -> Iterator[list[pa.Table]]:
        """The buckets in groups whose keys may be in memory together."""
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
        order, bounds = by_code(np.asarray(encoded.indices, dtype=np.int64), len(names))
        return _KeysByPartition(keys, {name: order[bounds[i] : bounds[i + 1]] for i, name in enumerate(names)})

    def _lookup_of(self, request: TagRequest) -> tuple[_LookUp, Sequence[Place]]:
        """How rows are looked up, and the places that the answers number; some may be added while it is used."""
        lookup = request.lookup
        if isinstance(lookup, ByBuckets):
            return self._by_buckets(request, places := BucketPlaces(request.places, lookup)), places.places
        if isinstance(lookup, ByRecordIndex):
            return self._by_record_index(request, lookup), request.places
        if isinstance(lookup, ByHbase):
            return partial(self._by_hbase, request, lookup), request.places
        return partial(self._in_files, request, lookup), request.places

    def _by_buckets(self, request: TagRequest, places: BucketPlaces) -> _LookUp:
        def look_up(buckets: Sequence[pa.Table]) -> list[tuple[Ints, Ints]]:
            return [
                places.route(
                    request.spec.keys,
                    rows.column(RECORD_KEY).combine_chunks(),
                    rows.column(PARTITION_PATH).combine_chunks(),
                )
                for rows in buckets
            ]

        return look_up

    def _by_record_index(self, request: TagRequest, lookup: ByRecordIndex) -> _LookUp:
        numbers = PlaceNumbers(request.places)

        def reader_of(path: str | None) -> PartitionReader:
            return PartitionReader(lookup.index if path is None else lookup.index.section(path))

        readers = cache(reader_of)

        def look_up(buckets: Sequence[pa.Table]) -> list[tuple[Ints, Ints]]:
            answers = []
            for rows in buckets:
                setup = self._tag_bucket_setup(rows, global_keys=request.global_keys)
                pairs = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
                for path in setup.rows:
                    asked = _key_set(setup, path)
                    found, codes, groups = find_in_record_index(readers(path), asked.keys)
                    pairs.append(asked.expand(found, numbers.of(groups)[codes]))
                answers.append((np.concatenate([row for row, _ in pairs]), np.concatenate([place for _, place in pairs])))
            return answers

        return look_up

    def _by_hbase(self, request: TagRequest, lookup: ByHbase, tables: Sequence[pa.Table]) -> list[tuple[Ints, Ints]]:
        groups = {(place.partition, place.file_id): number for number, place in enumerate(request.places)}
        answers = []
        for rows in tables:
            asked = _key_set(self._tag_bucket_setup(rows, global_keys=True), None)
            found, numbers, unsure = find_in_hbase(lookup, asked.keys, groups)
            row, place = asked.expand(found, numbers)
            if len(unsure):
                here, _ = asked.expand(unsure, np.zeros(len(unsure), dtype=np.int64))
                by_columns = replace(request, lookup=ByKeyColumns())
                ((more, places),) = self._in_files(by_columns, ByKeyColumns(), [rows.take(pa.array(here))])
                row, place = np.concatenate([row, here[more]]), np.concatenate([place, places])
            answers.append((row, place))
        return answers

    def _in_files(
        self, request: TagRequest, lookup: ByKeyColumns | ByKeyFilters, tables: Sequence[pa.Table]
    ) -> list[tuple[Ints, Ints]]:
        """For each table the pairs (row, number of a place)."""
        buckets = [self._tag_bucket_setup(rows, global_keys=request.global_keys) for rows in tables]
        jobs: list[tuple[str | None, list[int]]] = []
        for partition, numbers in request.places_by_partition().items():
            if any(partition in bucket.rows for bucket in buckets):
                step = max(1, -(-len(numbers) // self._engine.threads))
                jobs.extend((partition, numbers[i : i + step]) for i in range(0, len(numbers), step))

        def look_up(job: tuple[str | None, list[int]]) -> list[tuple[Ints, Ints]]:
            partition, numbers = job
            task = request.task(numbers)
            sets: list[_KeySet] = [_key_set(bucket, partition) for bucket in buckets]
            found = run_tag(task, [s.keys for s in sets])
            index = np.array(numbers, dtype=np.int64)
            return [s.expand(hit.row, index[hit.place]) for s, hit in zip(sets, found, strict=True)]

        answers = self._engine.map(look_up, jobs)
        combined = []
        for number in range(len(buckets)):
            rows = [answer[number][0] for answer in answers]
            groups = [answer[number][1] for answer in answers]
            combined.append(
                (
                    np.concatenate(rows) if rows else np.zeros(0, np.int64),
                    np.concatenate(groups) if groups else np.zeros(0, np.int64),
                )
            )
        return combined

    def _settle_partitions(
        self, rows: pa.Table, pairs_row: Ints, pairs_place: Ints, request: TagRequest
    ) -> tuple[pa.Table, Ints, Ints]:
        """Global index: rows found in another partition stay there, or move, as the request says."""
        homes = pa.array([place.partition for place in request.places], pa.string())
        if not len(pairs_row):
            return rows, pairs_row, pairs_place
        stored = homes.take(pa.array(pairs_place))
        own = rows.column(PARTITION_PATH).take(pa.array(pairs_row)).combine_chunks()
        moved = np.asarray(pc.not_equal(stored, own), dtype=np.bool_)
        placeless = np.asarray(pc.equal(own, PLACEHOLDER_PARTITION), dtype=np.bool_)
        stays = moved & placeless if request.update_partition_path else moved
        rows = _with_partition(rows, pairs_row[stays], stored.filter(pa.array(stays)))
        goes = moved & ~stays
        if not goes.any():
            return rows, pairs_row, pairs_place
        rows, pairs_row, pairs_place = resolve_moves(request, rows, pairs_row, pairs_place, goes)
        return self._buffer.store(rows), pairs_row, pairs_place


@dataclass(frozen=True, slots=True)
class _KeysByPartition:
    keys: pa.Array
    rows: dict[str | None, Ints]


@dataclass(frozen=True, slots=True)
class _KeySet:
    """Distinct keys, and for each of them the rows that carry it."""

    keys: pa.Array
    rows: Ints
    codes: Ints | None

    def expand(self, key_index: Ints, groups: Ints) -> tuple[Ints, Ints]:
        """Pairs (distinct row, group) from hits of distinct keys; each pair once, also when a file holds a key twice."""
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


@dataclass(frozen=True, slots=True)
class _TaggedRows:
    """Rows of one bucket; pairs of a row and the number of the file that holds its key; rows that stand nowhere."""

    rows: pa.Table
    pairs_row: Ints
    pairs_place: Ints
    inserts: Ints


class LocalTagged:
    """Incoming rows that know their file group."""

    def __init__(self, engine: LocalEngine, parts: list[_TaggedRows], places: tuple[Place, ...], *, spilled: bool) -> None:
        self._engine = engine
        self._parts = parts
        self._places = places
        self._spilled = spilled

    def profile(self) -> WorkloadProfile:
        """Exact counts."""
        updates: Counter[int] = Counter()
        inserts: Counter[str] = Counter()
        for part in self._parts:
            numbers, counts = np.unique(part.pairs_place, return_counts=True)
            for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
                updates[number] += count
            paths = part.rows.column(PARTITION_PATH).take(pa.array(part.inserts))
            for entry in pc.value_counts(paths).to_pylist():
                inserts[entry["values"]] += entry["counts"]
        return WorkloadProfile(
            {(self._places[n].partition, self._places[n].file_id): c for n, c in updates.items()}, dict(inserts)
        )

    def without_existing(self) -> LocalTagged:
        """Only rows that stand nowhere."""
        nothing = np.zeros(0, dtype=np.int64)
        parts = [_TaggedRows(p.rows, nothing, nothing, p.inserts) for p in self._parts]
        return LocalTagged(self._engine, parts, self._places, spilled=self._spilled)

    def write(self, plan: WritePlan) -> list[WriteStatus]:
        """One task for each file group that is updated or takes inserts."""
        with tempfile.TemporaryDirectory(prefix="pyhudi-route-") as folder:
            routed = _Routed(plan, self._places, self._parts, folder if self._spilled else None)

            def write(task: tuple[int, tuple[str, str]]) -> tuple[WriteStatus, ...]:
                number, group = task
                target, token, rows = plan.target(*group), WriteToken(number, 0, number), routed.rows(group)
                if target.slice is None:
                    return plan.writer.create(target, token, [rows])
                return plan.writer.change(target, token, rows)

            written = self._engine.map(write, enumerate(sorted(routed.groups)))
            routed.close()
        return [status for statuses in written for status in statuses]


class _Routed:
    """Rows sorted by the file group that takes them."""

    def __init__(self, plan: WritePlan, places: tuple[Place, ...], parts: Sequence[_TaggedRows], folder: str | None) -> None:
        self.groups: dict[tuple[str, str], list[pa.Table]] = {}
        fill = _InsertFill(plan)
        for number, part in enumerate(parts):
            names: dict[tuple[str, str], int] = {}
            rows = [part.pairs_row]
            codes = [_codes_of_places(part.pairs_place, places, names)]
            placed_rows, placed_codes = fill.place(part, names)
            rows.append(placed_rows)
            codes.append(placed_codes)
            all_rows = np.concatenate(rows)
            order, bounds = by_code(np.concatenate(codes), len(names))
            table = part.rows.take(pa.array(all_rows[order]))
            if folder is not None:
                table = store_rows(os.path.join(folder, f"{number}.arrow"), table.schema, [table])
            for name, code in names.items():
                piece = table.slice(int(bounds[code]), int(bounds[code + 1] - bounds[code]))
                if piece.num_rows:
                    self.groups.setdefault(name, []).append(piece)

    def rows(self, group: tuple[str, str]) -> pa.Table:
        """All rows of one group."""
        # Some have the column that marks deletes, others need none.
        return pa.concat_tables(self.groups[group], promote_options="default")

    def close(self) -> None:
        """Forget the rows, so that mapped files can be removed."""
        self.groups.clear()


class _InsertFill:
    """Deals inserts of each partition out to its targets, in order of arrival."""

    def __init__(self, plan: WritePlan) -> None:
        self._targets = plan.inserts
        self._placed: Counter[str] = Counter()

    def place(self, part: _TaggedRows, names: dict[tuple[str, str], int]) -> tuple[Ints, Ints]:
        """Rows that have a target, and the code of the group that takes each; new groups are added to `names`."""
        rows: list[Ints] = []
        codes: list[Ints] = []
        if not len(part.inserts):
            return part.inserts, part.inserts
        encoded = pc.dictionary_encode(part.rows.column(PARTITION_PATH).take(pa.array(part.inserts)).combine_chunks())
        partition_codes = np.asarray(encoded.indices, dtype=np.int64)
        for number, partition in enumerate(encoded.dictionary.to_pylist()):
            targets = self._targets.get(partition, ())
            mine = part.inserts[partition_codes == number]
            if not targets or not len(mine):
                continue
            which = deal_inserts([target.row_count for target in targets], self._placed[partition], len(mine))
            self._placed[partition] += len(mine)
            lookup = np.array([names.setdefault((partition, t.file_id), len(names)) for t in targets], dtype=np.int64)
            rows.append(mine)
            codes.append(lookup[which])
        if not rows:
            nothing = np.zeros(0, dtype=np.int64)
            return nothing, nothing
        return np.concatenate(rows), np.concatenate(codes)


def _codes_of_places(pairs_place: Ints, places: tuple[Place, ...], names: dict[tuple[str, str], int]) -> Ints:
    if not len(pairs_place):
        return pairs_place
    used = np.unique(pairs_place)
    lookup = np.zeros(int(used[-1]) + 1, dtype=np.int64)
    for number in used.tolist():
        lookup[number] = names.setdefault((places[number].partition, places[number].file_id), len(names))
    return lookup[pairs_place]


def _numbered(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Each batch that has rows, with the number of its first row in the stream."""
    first_row = 0
    for batch in batches:
        if batch.num_rows:
            yield first_row, batch
            first_row += batch.num_rows


def _by_partition(rows: pa.Table) -> pa.Table:
    """The rows in order of partition path, those of one path in order of arrival."""
    codes = row_codes(rows, [PARTITION_PATH])
    order = np.argsort(codes, kind="stable")
    return rows if _is_identity(order) else rows.take(pa.array(order))


def _with_partition(rows: pa.Table, at: Ints, values: pa.Array) -> pa.Table:
    if len(at):
        mask = np.zeros(rows.num_rows, dtype=np.bool_)
        mask[at] = True
        order = np.argsort(at, kind="stable")
        kept = order[np.r_[True, np.diff(at[order]) != 0]]
        position = rows.schema.get_field_index(PARTITION_PATH)
        column = pc.replace_with_mask(rows.column(position).combine_chunks(), pa.array(mask), values.take(pa.array(kept)))
        rows = rows.set_column(position, rows.schema.field(position), column)
    return rows
