"""What runs on workers: streams of rows become file groups.

    WriteGroups        rows sorted by group number; one group after the other is merged into its file, appended to its log, or new
    WritePartitions    rows of any number of partition paths; each path becomes new files
    CombineKeys        rows sorted by key; one row for each key
    ResolveMoves        rows whose key stands in another partition; they become a delete there and an insert here
    LookupInRecordIndex     keys, sorted by the record index's file group; each with its place, where it has one
    AttemptGuard             one of the first two, whose attempts remove what they wrote where they end when the write is over

Each is a callable for `mapInArrow`.  In memory are the incoming rows of one file group, up to a budget; beyond it they lie in
an Arrow file of the worker's temporary folder that is mapped into memory.

A repeated or speculative attempt writes files of its own, because the write token holds the attempt's number; what an attempt
wrote that Spark did not take is deleted at the commit.
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
from pyhudi.records.record_merge import RecordMergeRule, combine_duplicates
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
"""Number of the file group that takes the row."""

FILES = "#files"
"""Numbers of the files that hold the row's key."""

FILE = "#file"
"""Number of the one file that the row goes to; null for an insert."""

ORDER = "#order"
"""Position of the row in the input: of two equal records the later one is newer."""

KEY_PARTITION = "#home"
"""Partition path of a file group that holds a key."""

FILE_ID = "#file_id"
"""Id of a file group that holds a key."""

STATUS_SCHEMA = "`status` binary"
"""What writing tasks give: pickled tuples of WriteStatus."""

_CHUNK_BYTES = 64 << 20
_KEYS_PER_QUESTION = 250_000


@dataclass(frozen=True, slots=True)
class WriteGroups:
    """Rows in `schema` and GROUP, sorted by GROUP (and key and order when combining), to statuses.

    combine: the rule between rows of one key, where a group may get several.  budget_bytes: of the rows of a group in memory.
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
            rows: Iterator[pa.Table] = (piece[1] for piece in pieces)
            if self.combine is not None:
                rows = combined(rows, self.combine)
            yield _status_batch(self._write(self.groups[int(number)], token, rows))

    def _write(self, target: GroupTarget, token: WriteToken, rows: Iterator[pa.Table]) -> tuple[WriteStatus, ...]:
        if target.slice is None:
            return self.writer.create(target, token, rows)
        with tempfile.TemporaryDirectory(prefix="pyhudi-group-") as folder:
            return self.writer.change(target, token, _gathered(rows, self.schema, self.budget_bytes, folder))


@dataclass(frozen=True, slots=True)
class WritePartitions:
    """Rows in `schema` to new files, those of each partition path by themselves.

    ordered: equal paths stand together in each task, so that one file is open at a time and no row waits.  id_seed: file ids
    derive from it and the task's number.  raw: the rows come as the caller gave them, and are prepared here by this request.
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
                rows: Iterator[pa.Table] = (piece[1] for piece in pieces)
                if self.combine:
                    rows = combined(rows, self.rule)
                yield _status_batch(create_files(self.spec, CreateTask(str(path), self._prefix(token, written), token), rows))
            return
        with tempfile.TemporaryDirectory(prefix="pyhudi-bulk-") as folder:
            by_path = _spread(batches, self.schema, self.budget_bytes, folder)
            for written, path in enumerate(sorted(by_path)):
                task = CreateTask(path, self._prefix(token, written), token)
                yield _status_batch(create_files(self.spec, task, by_path.pop(path)))

    def _prefix(self, token: WriteToken, written: int) -> str:
        return str(uuid.uuid5(uuid.UUID(self.id_seed), f"{token.partition}-{written}"))


@dataclass(frozen=True, slots=True)
class AttemptGuard:
    """A job that writes files.  What an attempt writes that ends when the write is over is removed by the attempt."""

    job: WriteGroups | WritePartitions
    spec: WriterSpec

    @with_error_fields
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with remove_if_write_ended(open_storage(self.spec.storage), self.spec.instant_time, task_token()):
            yield from self.job(batches)


@dataclass(frozen=True, slots=True)
class CombineKeys:
    """Rows in `schema`, sorted by key and order, to one row for each key."""

    schema: pa.Schema
    rule: RecordMergeRule

    @with_error_fields
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tables = (conform_table(pa.Table.from_batches([batch]).select(self.schema.names), self.schema) for batch in batches)
        for table in combined(tables, self.rule):
            yield from table.combine_chunks().to_batches()


@dataclass(frozen=True, slots=True)
class ResolveMoves:
    """Rows in `schema` and FILES (which holds their key, at least one in another partition) to rows in `schema`, DELETE_COLUMN
    and FILE.

    All rows of one first file stand in one task, sorted by it, so that each file is read once.
    """

    request: TagRequest
    schema: pa.Schema

    @with_error_fields
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        homes = np.array([place.partition for place in self.request.candidates], dtype=object)
        for batch in batches:
            table = pa.Table.from_batches([batch])
            files = table.column(FILES).combine_chunks()
            rows = conform_table(table.select(self.schema.names), self.schema)
            pairs_place = np.asarray(files.flatten(), dtype=np.int64)
            pairs_row = np.asarray(pc.list_parent_indices(files), dtype=np.int64)
            own = np.array(rows.column(PARTITION_PATH).to_pylist(), dtype=object)
            goes = homes[pairs_place] != own[pairs_row]
            settled, at, numbers = resolve_moves(self.request, rows, pairs_row, pairs_place, goes)
            found = np.zeros(settled.num_rows, dtype=np.bool_)
            found[at] = True
            new = np.flatnonzero(~found)
            taken = settled.take(pa.array(np.concatenate([at, new])))
            number = pa.concat_arrays([pa.array(numbers, pa.int32()), pa.nulls(len(new), pa.int32())])
            yield from taken.append_column(FILE, number).combine_chunks().to_batches()


@dataclass(frozen=True, slots=True)
class LookupInRecordIndex:
    """Keys (column RECORD_KEY, distinct) to RECORD_KEY, HOME and FILE_ID of those that the record index knows.

    Rows are sorted by the file group of the index that would hold them, so that a question to the index concerns few of them.
    within: each key is asked in the section of its partition (column PARTITION_PATH, by which rows are sorted first).
    """

    index: MetadataPartition
    within: bool = False

    @with_error_fields
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if self.within:
            yield from self._ask_within(batches)
            return
        reader = PartitionReader(self.index)
        held: list[pa.Array] = []
        for batch in batches:
            held.append(batch.column(batch.schema.get_field_index(RECORD_KEY)).cast(pa.string()))
            if sum(map(len, held)) >= _KEYS_PER_QUESTION:
                yield from self._ask(reader, held)
                held = []
        if held:
            yield from self._ask(reader, held)

    def _ask_within(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader_of = cache(lambda path: PartitionReader(self.index.section(path)))
        for batch in batches:
            paths = batch.column(batch.schema.get_field_index(PARTITION_PATH)).cast(pa.string())
            keys = batch.column(batch.schema.get_field_index(RECORD_KEY)).cast(pa.string())
            for path in pc.unique(paths).to_pylist():
                yield from self._ask(reader_of(path), [keys.filter(pc.equal(paths, path))])

    def _ask(self, reader: PartitionReader, key_arrays: list[pa.Array]) -> Iterator[pa.RecordBatch]:
        found = find_records(reader, pa.concat_arrays(key_arrays)).select(["key", "partition", "file_id"])
        yield from found.rename_columns([RECORD_KEY, KEY_PARTITION, FILE_ID]).combine_chunks().to_batches()


def task_token() -> WriteToken:
    """The write token of this attempt of this Spark task."""
    context = TaskContext.get()
    assert context is not None, "writing tasks run inside a Spark task"
    return WriteToken(context.partitionId(), context.stageId(), context.taskAttemptId())


def combined(rows: Iterator[pa.Table], rule: RecordMergeRule) -> Iterator[pa.Table]:
    """One row for each key, from tables whose rows are sorted by key; of equal keys the later row counts as newer."""
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
        # The last key may go on in the next table.
        carry = current.slice(cut) if open_rows == 1 else combine_duplicates(current.slice(cut), [RECORD_KEY], rule)
    if carry is not None:
        yield carry


def prepared(request: PrepareRequest, batches: Iterator[pa.RecordBatch], task_partition: int) -> Iterator[pa.RecordBatch]:
    """The caller's rows in the incoming layout."""
    first_row = 0
    for batch in batches:
        rows = incoming_rows(request, batch, first_row=first_row, task_partition=task_partition)
        first_row += batch.num_rows
        yield from rows.combine_chunks().to_batches()


def decode_statuses(rows: pa.Table) -> list[WriteStatus]:
    """The statuses in the collected output of a writing job."""
    return [status for blob in rows.column("status").to_pylist() for status in pickle.loads(blob)]


def wire_schema(schema: pa.Schema) -> pa.Schema:
    """The layout with every column nullable, as deletes without a row need it."""
    return pa.schema([field.with_nullable(True) for field in schema]) if DELETE_COLUMN in schema.names else schema


def _runs(batches: Iterator[pa.RecordBatch], column: str, schema: pa.Schema) -> Iterator[tuple[object, pa.Table]]:
    """Each batch cut where the value of a column changes: (value, rows in the schema)."""
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
    """All rows as one table, in memory up to the budget, else mapped from a file."""
    held: list[pa.Table] = []
    size = 0
    for table in rows:
        held.append(table)
        size += table.nbytes
        if size > budget_bytes:
            return store_rows(os.path.join(folder, "rows.arrow"), schema, itertools.chain(held, rows))
    return pa.concat_tables(held) if held else schema.empty_table()


def _spread(batches: Iterator[pa.RecordBatch], schema: pa.Schema, budget_bytes: int, folder: str) -> dict[str, list[pa.Table]]:
    """All rows by partition path; what exceeds the budget is mapped from files."""
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
    held: list[pa.Table] = []
    size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        held.append(conform_table(pa.Table.from_batches([batch]).select(schema.names), schema))
        size += held[-1].nbytes
        if size >= _CHUNK_BYTES:
            yield pa.concat_tables(held)
            held, size = [], 0
    if held:
        yield pa.concat_tables(held)


def _status_batch(statuses: tuple[WriteStatus, ...]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([pickle.dumps(statuses, protocol=5)], pa.binary())], names=["status"])
