"""Code that runs on Spark workers: streams of rows become file groups.

    WriteGroups             rows sorted by group number; each group is merged into its file, appended to its log, or new
    WritePartitions         rows of any number of partition paths; each path becomes new files
    CombineKeys             rows sorted by key; one row per key
    ResolveMoves            rows whose key is stored in another partition; a delete there and an insert in the new one
    LookupInRecordIndex     keys sorted by the record index's file group; each with its location, if it has one
    AttemptGuard            wraps one of the first two; an attempt deletes its files if the write has ended

Each is a callable for `mapInArrow`. The incoming rows of one file group are in memory up to a budget; beyond it they
are spilled to a memory-mapped Arrow file in the worker's temporary folder.

A retried or speculative attempt writes separate files, because the write token contains the attempt's number. The
commit deletes the files of attempts that Spark did not accept.
"""

from __future__ import annotations

import itertools
import os
import pickle
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from pyhudi.engines.spark.worker_errors import with_error_fields
from pyhudi.format.meta_columns import PARTITION_PATH, RECORD_KEY
from pyhudi.format.names import WriteToken
from pyhudi.metadata_table.reader.file_group_reader import MetadataPartition, PartitionReader
from pyhudi.metadata_table.reader.index_lookups import find_records
from pyhudi.records.record_merge import OneRowPerRecord, RecordMergeRule, combine_duplicates
from pyhudi.records.row_grouping import group_rows, runs
from pyhudi.records.schema_cast import conform_table
from pyhudi.storage import open_storage
from pyhudi.tasks.engine_protocol import PrepareRequest, TagRequest
from pyhudi.tasks.incoming_layout import DELETE_COLUMN
from pyhudi.tasks.incoming_rows import incoming_rows, resolve_moves
from pyhudi.tasks.spill import store_rows
from pyhudi.tasks.task_attempts import remove_if_write_ended
from pyhudi.tasks.write_file_group import GroupTarget, GroupWriter, create_files
from pyhudi.tasks.write_tasks import CreateTask, WriterSpec, WriteStatus

GROUP = "#group"
"""Number of the row's target file group."""

FILES = "#files"
"""Numbers of the files that contain the row's key."""

FILE = "#file"
"""Number of the file that the row is written to; null for an insert."""

ORDER = "#order"
"""Position of the row in the input: of two equal records the later one is newer."""

KEY_PARTITION = "#home"
"""Partition path of a file group that contains a key."""

FILE_ID = "#file_id"
"""Id of a file group that contains a key."""

STATUS_SCHEMA = "`status` binary, `group` int, `rows` long, `combined` long"
"""Output of writing tasks: pickled tuples of WriteStatus; the group that they are for, null in a bulk write; how many rows
the task received for it, and how many of them it dropped for another one of their key.
"""

_CHUNK_BYTES = 64 << 20
_KEYS_PER_LOOKUP = 250_000


@dataclass(frozen=True, slots=True)
class WriteGroups:
    """Writes rows with `schema` and GROUP, sorted by GROUP (and key and order when combining); returns statuses.

    combine: merge rule between rows of one key, if a group may have several.  budget_bytes: memory for the rows of a
    group.
    """

    writer: GroupWriter
    schema: pa.Schema
    groups: Mapping[int, GroupTarget]
    combine: RecordMergeRule | None
    budget_bytes: int

    @with_error_fields
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        token = task_token()
        for number, pieces in itertools.groupby(_runs(batches, GROUP, self.schema), key=lambda piece: piece[0]):
            rows = _CountedRows((piece[1] for piece in pieces), self.combine)
            statuses = self._write(self.groups[int(number)], token, rows)
            yield _status_batch(statuses, int(number), rows.received, rows.received - rows.remaining)

    def _write(self, target: GroupTarget, token: WriteToken, rows: Iterator[pa.Table]) -> tuple[WriteStatus, ...]:
        if target.slice is None:
            return self.writer.create(target, token, rows)
        with tempfile.TemporaryDirectory(prefix="pyhudi-group-") as folder:
            return self.writer.change(target, token, _gathered(rows, self.schema, self.budget_bytes, folder))


class _CountedRows:
    """Iterator of tables that combines rows of one key if a rule is given, and counts rows before and after that.

    received: rows before.  remaining: rows after.
    """

    def __init__(self, tables: Iterator[pa.Table], combine: RecordMergeRule | None) -> None:
        received = self._counted(tables)
        self._tables = received if combine is None else combined(received, combine)
        self.received = 0
        self.remaining = 0

    def __iter__(self) -> Iterator[pa.Table]:
        return self

    def __next__(self) -> pa.Table:
        table = next(self._tables)
        self.remaining += table.num_rows
        return table

    def _counted(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for table in tables:
            self.received += table.num_rows
            yield table


@dataclass(frozen=True, slots=True)
class WritePartitions:
    """Writes rows with `schema` to new files, separately for each partition path.

    ordered: equal paths are adjacent in each task, so that only one file is open and no rows are buffered. id_seed:
    file ids are derived from it and the task's number. raw: the rows are unprepared; prepare them by this request.
    """

    spec: WriterSpec
    schema: pa.Schema
    id_seed: str
    ordered: bool
    combine: bool
    rule: RecordMergeRule
    budget_bytes: int
    raw: PrepareRequest | None = None

    @with_error_fields
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        token = task_token()
        if self.raw is not None:
            batches = prepared(self.raw, batches, token.partition)
        if self.ordered:
            runs = _runs(batches, PARTITION_PATH, self.schema)
            for written, (path, pieces) in enumerate(itertools.groupby(runs, key=lambda piece: piece[0])):
                rows = _CountedRows((piece[1] for piece in pieces), self.rule if self.combine else None)
                statuses = create_files(self.spec, CreateTask(str(path), self._prefix(token, written), token), rows)
                yield _status_batch(statuses, None, rows.received, rows.received - rows.remaining)
            return
        with tempfile.TemporaryDirectory(prefix="pyhudi-bulk-") as folder:
            by_path = _spread(batches, self.schema, self.budget_bytes, folder)
            for written, path in enumerate(sorted(by_path)):
                task = CreateTask(path, self._prefix(token, written), token)
                tables = by_path.pop(path)
                received = sum(table.num_rows for table in tables)
                yield _status_batch(create_files(self.spec, task, tables), None, received, 0)

    def _prefix(self, token: WriteToken, written: int) -> str:
        return str(uuid.uuid5(uuid.UUID(self.id_seed), f"{token.partition}-{written}"))


@dataclass(frozen=True, slots=True)
class AttemptGuard:
    """A job that writes files; an attempt deletes its files if the write has ended."""

    job: WriteGroups | WritePartitions
    spec: WriterSpec

    @with_error_fields
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with remove_if_write_ended(open_storage(self.spec.storage), self.spec.instant_time, task_token()):
            yield from self.job(batches)


@dataclass(frozen=True, slots=True)
class CombineKeys:
    """Combines rows with `schema`, sorted by key and order, to one row per key."""

    schema: pa.Schema
    rule: RecordMergeRule

    @with_error_fields
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tables = (conform_table(pa.Table.from_batches([batch]).select(self.schema.names), self.schema) for batch in batches)
        for table in combined(tables, self.rule):
            yield from table.combine_chunks().to_batches()


@dataclass(frozen=True, slots=True)
class ResolveMoves:
    """Resolves partition changes: rows with `schema` and FILES (at least one in another partition) to rows with
    DELETE_COLUMN and FILE.

    All rows with the same first file are in one task, sorted by it, so that each file is read once.
    """

    request: TagRequest
    schema: pa.Schema

    @with_error_fields
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        candidate_partitions = np.array([place.partition for place in self.request.candidates], dtype=object)
        for batch in batches:
            table = pa.Table.from_batches([batch])
            files = table.column(FILES).combine_chunks()
            rows = conform_table(table.select(self.schema.names), self.schema)
            pairs_place = np.asarray(files.flatten(), dtype=np.int64)
            pairs_row = np.asarray(pc.list_parent_indices(files), dtype=np.int64)
            incoming_partitions = np.array(rows.column(PARTITION_PATH).to_pylist(), dtype=object)
            goes = candidate_partitions[pairs_place] != incoming_partitions[pairs_row]
            settled, at, numbers = resolve_moves(self.request, rows, pairs_row, pairs_place, goes)
            is_found = np.zeros(settled.num_rows, dtype=np.bool_)
            is_found[at] = True
            new = np.flatnonzero(~is_found)
            selected = settled.take(pa.array(np.concatenate([at, new])))
            number = pa.concat_arrays([pa.array(numbers, pa.int32()), pa.nulls(len(new), pa.int32())])
            yield from selected.append_column(FILE, number).combine_chunks().to_batches()


@dataclass(frozen=True, slots=True)
class LookupInRecordIndex:
    """Looks up distinct keys (column RECORD_KEY) in the record index: RECORD_KEY, KEY_PARTITION and FILE_ID of known ones.

    Rows are sorted by the file group of the index for their keys, so that each query reads few of them.
    within: look up each key in the section of its partition (column PARTITION_PATH, the first sort column).
    """

    index: MetadataPartition
    within: bool = False

    @with_error_fields
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if self.within:
            yield from self._lookup_within(batches)
            return
        reader = PartitionReader(self.index)
        pending: list[pa.Array] = []
        for batch in batches:
            pending.append(batch.column(batch.schema.get_field_index(RECORD_KEY)).cast(pa.string()))
            if sum(map(len, pending)) >= _KEYS_PER_LOOKUP:
                yield from self._lookup(reader, pending)
                pending = []
        if pending:
            yield from self._lookup(reader, pending)

    def _lookup_within(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader_of = cache(lambda path: PartitionReader(self.index.section(path)))
        for batch in batches:
            paths = batch.column(batch.schema.get_field_index(PARTITION_PATH)).cast(pa.string())
            keys = batch.column(batch.schema.get_field_index(RECORD_KEY)).cast(pa.string())
            for path in pc.unique(paths).to_pylist():
                yield from self._lookup(reader_of(path), [keys.filter(pc.equal(paths, path))])

    def _lookup(self, reader: PartitionReader, key_arrays: list[pa.Array]) -> Iterator[pa.RecordBatch]:
        records = find_records(reader, pa.concat_arrays(key_arrays)).select(["key", "partition", "file_id"])
        yield from records.rename_columns([RECORD_KEY, KEY_PARTITION, FILE_ID]).combine_chunks().to_batches()


def task_token() -> WriteToken:
    """The write token of this attempt of this Spark task."""
    context = TaskContext.get()
    assert context is not None, "writing tasks run inside a Spark task"
    return WriteToken(context.partitionId(), context.stageId(), context.taskAttemptId())


def combined(rows: Iterator[pa.Table], rule: RecordMergeRule) -> Iterator[pa.Table]:
    """One row per key, from tables whose rows are sorted by key; of equal keys the later row counts as newer."""
    carry: pa.Table | None = None
    for table in rows:
        if not table.num_rows:
            continue
        current = table if carry is None else pa.concat_tables([carry, table])
        keys = current.column(RECORD_KEY)
        open_rows = pc.sum(pc.equal(keys, keys[-1])).as_py()
        cut = current.num_rows - open_rows
        if cut:
            yield combine_duplicates(current.slice(0, cut), [RECORD_KEY], rule)
        # The last key may continue in the next table.
        last = current.slice(cut)
        carry = last if open_rows == 1 or isinstance(rule, OneRowPerRecord) else combine_duplicates(last, [RECORD_KEY], rule)
    if carry is not None:
        yield combine_duplicates(carry, [RECORD_KEY], rule)


def prepared(request: PrepareRequest, batches: Iterator[pa.RecordBatch], task_partition: int) -> Iterator[pa.RecordBatch]:
    """Convert the caller's rows to the incoming layout."""
    first_row = 0
    for batch in batches:
        rows = incoming_rows(request, batch, first_row=first_row, task_partition=task_partition)
        first_row += batch.num_rows
        yield from rows.combine_chunks().to_batches()


def decode_statuses(rows: pa.Table) -> list[WriteStatus]:
    """The statuses in the collected output of a writing job."""
    return [status for blob in rows.column("status").to_pylist() for status in pickle.loads(blob)]


def wire_schema(schema: pa.Schema) -> pa.Schema:
    """The layout with every column nullable, as required by deletes without a row."""
    return pa.schema([field.with_nullable(True) for field in schema]) if DELETE_COLUMN in schema.names else schema


def _runs(batches: Iterator[pa.RecordBatch], column: str, schema: pa.Schema) -> Iterator[tuple[object, pa.Table]]:
    """Split each batch where the value of a column changes: (value, rows in the schema)."""
    for batch in batches:
        if not batch.num_rows:
            continue
        rows = conform_table(pa.Table.from_batches([batch]).select(schema.names), schema)
        encoded = batch.column(batch.schema.get_field_index(column)).dictionary_encode()
        codes = np.asarray(encoded.indices, dtype=np.int64)
        names = encoded.dictionary.to_pylist()
        for start, end in runs(codes):
            yield names[codes[start]], rows.slice(start, end - start)


def _gathered(rows: Iterator[pa.Table], schema: pa.Schema, budget_bytes: int, folder: str) -> pa.Table:
    """All rows as one table, in memory up to the budget, else memory-mapped from a file."""
    buffered: list[pa.Table] = []
    size = 0
    for table in rows:
        buffered.append(table)
        size += table.nbytes
        if size > budget_bytes:
            return store_rows(os.path.join(folder, "rows.arrow"), schema, itertools.chain(buffered, rows))
    return pa.concat_tables(buffered) if buffered else schema.empty_table()


def _spread(batches: Iterator[pa.RecordBatch], schema: pa.Schema, budget_bytes: int, folder: str) -> dict[str, list[pa.Table]]:
    """All rows by partition path; rows beyond the budget are memory-mapped from files."""
    by_path: dict[str, list[pa.Table]] = {}
    in_memory = 0
    for number, chunk in enumerate(_chunks(batches, schema)):
        encoded = pc.dictionary_encode(chunk.column(PARTITION_PATH).combine_chunks())
        order, bounds = group_rows(np.asarray(encoded.indices, dtype=np.int64), len(encoded.dictionary))
        rows = chunk if len(encoded.dictionary) == 1 else chunk.take(pa.array(order))
        in_memory += rows.nbytes
        if in_memory > budget_bytes:
            in_memory -= rows.nbytes
            rows = store_rows(os.path.join(folder, f"{number}.arrow"), schema, [rows])
        for code, path in enumerate(encoded.dictionary.to_pylist()):
            by_path.setdefault(path, []).append(rows.slice(int(bounds[code]), int(bounds[code + 1] - bounds[code])))
    return by_path


def _chunks(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    buffered: list[pa.Table] = []
    size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        buffered.append(conform_table(pa.Table.from_batches([batch]).select(schema.names), schema))
        size += buffered[-1].nbytes
        if size >= _CHUNK_BYTES:
            yield pa.concat_tables(buffered)
            buffered, size = [], 0
    if buffered:
        yield pa.concat_tables(buffered)


def _status_batch(statuses: tuple[WriteStatus, ...], group: int | None, rows: int, dropped: int) -> pa.RecordBatch:
    blob = pickle.dumps(statuses, protocol=5)
    counts = [pa.array([rows], pa.int64()), pa.array([dropped], pa.int64())]
    values = [pa.array([blob], pa.binary()), pa.array([group], pa.int32()), *counts]
    return pa.RecordBatch.from_arrays(values, names=["status", "group", "rows", "combined"])
