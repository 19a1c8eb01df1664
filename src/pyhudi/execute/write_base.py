"""Tasks that write base files: new file groups from incoming rows, and new versions of file groups by merging incoming rows into
the old one.

Incoming rows have the layout `_hoodie_record_key`, `_hoodie_partition_path`, the table's data columns in order, and last, when
there are deletes without a row, `#delete` (boolean, true for such a delete, whose data columns are null).

A merge streams the old file by row group.  In memory are one row group, and the incoming rows of this one file group; rows that
were spilled stay on disk, memory-mapped, and only their keys are held.

Source: docs/formats/writing.md, "Files of a write"; docs/formats/timeline.md, "Commit metadata".
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptData, InvalidRequest
from pyhudi.execute.base_file import BaseFileWriter, FileSettings, WrittenFile
from pyhudi.execute.cdc import ChangeLog, ChangeLogSpec
from pyhudi.execute.coded import CODED, coded_schema, plain_rows, replace_coded
from pyhudi.execute.early_conflicts import EarlyConflicts
from pyhudi.execute.indexing import FileIndexing, IndexedFile, KeyChanges
from pyhudi.execute.joined import JoinedColumns, joined_rows
from pyhudi.execute.key_filter import inherited_filter
from pyhudi.execute.layout import DELETE_COLUMN, as_batch
from pyhudi.execute.log_scan import InstantValidity
from pyhudi.execute.open_base import OpenFile, open_base_file
from pyhudi.execute.read_slice import ReadSpec
from pyhudi.format.actions.commit import WriteStat
from pyhudi.format.bootstrap import SourceFile
from pyhudi.format.instants import stamp_of_instant
from pyhudi.format.meta_columns import with_meta_fields
from pyhudi.format.names import (
    PARQUET_EXTENSION,
    BaseFileName,
    LogFileName,
    MarkerType,
    WriteToken,
    format_file_id,
    parse_base_file,
)
from pyhudi.format.partition_metadata import PartitionMetadata, partition_depth
from pyhudi.format.paths import PARTITION_METADATA_FILE, file_name_of, join_path
from pyhudi.records.column_ids import ColumnIds, Origin, by_ids, names_in_file
from pyhudi.records.conform import conform_table, same_values
from pyhudi.records.keys.record_keys import record_keys
from pyhudi.records.keys.spec import KeySpec
from pyhudi.records.merge import Merged, MergeRule, row_codes, whole
from pyhudi.records.mergers import partial_merge
from pyhudi.records.meta_fields import (
    COMMIT_SEQNO,
    COMMIT_TIME,
    FILE_NAME,
    PARTITION_PATH,
    RECORD_KEY,
    constant,
    sequence_numbers,
)
from pyhudi.records.ordering import BoolMask
from pyhudi.storage import open_storage
from pyhudi.storage.base import Storage, StorageSpec
from pyhudi.storage.markers import Markers
from pyhudi.table.listing import check_own_folders

CHANGE_LOG_VERSION = 1


@dataclass(frozen=True, slots=True)
class PartialUpdate:
    """Incoming rows that hold some columns; the others keep their values, and keys that are not there bring nothing.

    data_schema: the columns that they hold, in the table's order; avro_schema: with meta columns, for log blocks.
    """

    data_schema: pa.Schema
    avro_schema: str


@dataclass(frozen=True, slots=True)
class WriterSpec:
    """What every writing task of one commit shares.

    data_schema: the table's columns without meta columns; avro_schema: with them.  indexing: what to find out about each file for
    the metadata table, None without one.  changes: how change logs are kept, None for a table that keeps none.  partial: None for
    whole rows.  early: what stops the write before its end, None where nothing does.  ids: of the columns, see `ReadSpec`.
    extension: of the base files, by which they are of their format.  event_time: the column that tells when events happened,
    None where nobody asks.
    """

    storage: StorageSpec
    instant_time: str
    data_schema: pa.Schema
    avro_schema: str
    files: FileSettings
    keys: KeySpec
    populate_meta_fields: bool
    rule: MergeRule
    indexing: FileIndexing | None = None
    changes: ChangeLogSpec | None = None
    partial: PartialUpdate | None = None
    early: EarlyConflicts | None = None
    ids: ColumnIds | None = None
    extension: str = PARQUET_EXTENSION
    event_time: str | None = None

    @property
    def stored_schema(self) -> pa.Schema:
        """The stored layout: meta columns, then data columns."""
        return with_meta_fields(self.data_schema)

    def reader(
        self,
        validity: InstantValidity,
        *,
        columns: Iterable[str] | None = None,
        rule: MergeRule | None = None,
    ) -> ReadSpec:
        """How the tasks read what is stored.

        columns: of the stored layout, in order; None for all.  rule: how logs are merged, that of the commit when left out.
        """
        rule = self.rule if rule is None else rule
        return ReadSpec.of(
            self.storage,
            self,
            self.stored_schema,
            validity,
            rule=rule,
            ids=self.ids,
            columns=columns,
            use_positions=self.files.use_positions,
        )

    def origins(self, instant_time: str) -> Mapping[str, Origin] | None:
        """Where columns stand in files of an instant, see `ColumnIds.origins`."""
        return None if self.ids is None else self.ids.origins(instant_time)

    @property
    def key_shards(self) -> int:
        """How many file groups the record index has, 0 without one."""
        return self.indexing.key_shards if self.indexing else 0


@dataclass(frozen=True, slots=True)
class MergeTask:
    """Rewrite one file group.  base_path: relative to the table.

    match_keys: False appends the incoming rows without looking for their keys (inserts where duplicates are allowed).
    source: the file outside of the table that has the rows of the base file, where that has meta columns alone.
    """

    partition: str
    file_id: str
    base_path: str
    token: WriteToken
    match_keys: bool = True
    source: SourceFile | None = None


@dataclass(frozen=True, slots=True)
class CreateTask:
    """Write new file groups of one partition.  file_id_prefix: their ids are `<prefix>-0`, `<prefix>-1`, ... as files fill up."""

    partition: str
    file_id_prefix: str
    token: WriteToken


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """What a writing task reports for one file.  indexed: for the metadata table, None without one."""

    stat: WriteStat
    indexed: IndexedFile | None = None


def run_create(spec: WriterSpec, task: CreateTask, rows: Iterable[pa.Table]) -> tuple[WriteStatus, ...]:
    """Write incoming rows of one partition to new file groups, opening the next file when one is full.

    Soft deletes among the rows are dropped: there is nothing that they could delete.  Returns nothing when no row is left.
    """
    storage = open_storage(spec.storage)
    statuses: list[WriteStatus] = []
    pending = _only_live(rows, spec.rule)
    first = next(pending, None)
    sequence = 0
    while first is not None:
        file = NewFile.begin(storage, spec, task.partition, format_file_id(task.file_id_prefix, len(statuses)), task.token)
        with file.writer as writer:
            while first is not None:
                writer.write(stored_rows(spec, first, task.token.partition, sequence))
                file.changes.add(first.column(RECORD_KEY))
                sequence += first.num_rows
                full = writer.estimated_size_bytes >= spec.files.max_file_size_bytes
                first = next(pending, None)
                if full:
                    break
        statuses.append(file.status(storage))
    return tuple(statuses)


@dataclass(frozen=True, slots=True)
class NewFile:
    """The base file of a new file group, from its marker to its statistics.

    writer: the block that writes it.  changes: takes the record keys that it receives, where the spec has `key_shards`.
    """

    spec: WriterSpec
    partition: str
    name: BaseFileName
    writer: BaseFileWriter
    changes: KeyChanges

    @classmethod
    def begin(cls, storage: Storage, spec: WriterSpec, partition: str, file_id: str, token: WriteToken) -> NewFile:
        """Mark the file.  Raises as `ensure_partition` and as early conflict detection does."""
        name = BaseFileName(file_id, str(token), spec.instant_time, spec.extension)
        path = join_path(partition, name.text)
        ensure_partition(storage, partition, spec.instant_time)
        Markers(storage, spec.instant_time, in_lists=spec.files.marker_lists).create(path, MarkerType.CREATE)
        if spec.early is not None:
            spec.early.check_new(storage, partition, name.file_id)
        writer = BaseFileWriter(
            storage,
            path,
            spec.stored_schema,
            spec.avro_schema,
            spec.files,
            populate_meta_fields=spec.populate_meta_fields,
            indexing=spec.indexing,
            event_time=spec.event_time,
        )
        return cls(spec, partition, name, writer, KeyChanges(spec.key_shards))

    def status(self, storage: Storage) -> WriteStatus:
        """Once the writer's block has ended."""
        written = _finished(self.writer)
        indexed = with_keys(written.indexed, self.changes.store(storage, self.spec.instant_time, self.name.text))
        return WriteStatus(create_stat(self.partition, self.name, written), indexed)


def run_merge(spec: WriterSpec, task: MergeTask, incoming: pa.Table, rule: MergeRule) -> WriteStatus:
    """Write the next version of a file group: its rows, each merged with the incoming row of its key; then the incoming rows that
    met none.

    incoming: the incoming layout.  Of several rows of one key the last one counts, unless `match_keys` is False.
    """
    storage = open_storage(spec.storage)
    old_name = parse_base_file(file_name_of(task.base_path))
    if old_name is None:
        raise CorruptData(f"{task.base_path} is not a base file name")
    name = BaseFileName(task.file_id, str(task.token), spec.instant_time, spec.extension)
    path = join_path(task.partition, name.text)
    Markers(storage, spec.instant_time, in_lists=spec.files.marker_lists).create(path, MarkerType.MERGE)
    if spec.early is not None:
        spec.early.check(storage, [(task.partition, task.file_id)])
    counts = _MergeCounts()
    if task.match_keys:
        incoming = _last_of_each_key(incoming)
    matched = np.zeros(incoming.num_rows, dtype=np.bool_)
    with _change_log(storage, spec, task) as log:
        to_code = _columns_to_code(spec, old_name.instant_time) if task.source is None else []
        with open_base_file(storage, task.base_path, to_code) as old:
            schema = _read_schema(old, spec)
            keyed = spec.populate_meta_fields and spec.files.bloom_enabled
            inherited = inherited_filter(old.metadata, spec.files) if keyed else None
            with BaseFileWriter(
                storage,
                path,
                spec.stored_schema,
                spec.avro_schema,
                spec.files,
                populate_meta_fields=spec.populate_meta_fields,
                inherited=inherited,
                indexing=spec.indexing,
                coded=[field.name for field in schema if field.type == CODED],
                event_time=spec.event_time,
            ) as writer:
                changes = KeyChanges(spec.key_shards)
                merger = _RowMerger(spec, task, incoming, rule, counts=counts, matched=matched, changes=changes, log=log)
                for batch in _old_rows(storage, spec, task, old, schema, old_name.instant_time):
                    writer.write(merger.merge(batch), keys_known=inherited is not None)
                fresh = incoming.filter(pa.array(~matched)) if matched.any() else incoming
                fresh = live_rows(fresh, spec.rule)
                if fresh.num_rows and spec.partial is None:
                    counts.inserts += fresh.num_rows
                    changes.add(fresh.column(RECORD_KEY))
                    if log is not None:
                        log.insert(fresh.column(RECORD_KEY), fresh)
                    writer.write(stored_rows(spec, fresh, task.token.partition, counts.updates))
        written = _finished(writer)
        logged = log.finish(written.row_count, counts.inserts, counts.deletes) if log is not None else None
    stat = WriteStat(
        file_id=task.file_id,
        path=path,
        partition_path=task.partition,
        prev_commit=old_name.instant_time,
        prev_base_file=old_name.text,
        num_writes=written.row_count,
        num_inserts=counts.inserts,
        num_update_writes=counts.updates,
        num_deletes=counts.deletes,
        total_write_bytes=written.size_bytes,
        file_size_in_bytes=written.size_bytes,
        min_event_time=written.event_times[0],
        max_event_time=written.event_times[1],
        cdc_stats=logged,
    )
    return WriteStatus(stat, with_keys(written.indexed, changes.store(storage, spec.instant_time, name.text)))


def _change_log(storage: Storage, spec: WriterSpec, task: MergeTask) -> AbstractContextManager[ChangeLog | None]:
    """The change log of a file group's next version; nothing for a table that keeps none."""
    if spec.changes is None:
        return nullcontext()
    name = LogFileName(task.file_id, spec.instant_time, CHANGE_LOG_VERSION, str(task.token), is_cdc=True)
    return ChangeLog(storage, spec.changes, name, join_path(task.partition, name.text))


@dataclass(slots=True)
class _MergeCounts:
    inserts: int = 0
    updates: int = 0
    deletes: int = 0


class _RowMerger:
    """Merges incoming rows into the batches of one old file, one batch at a time."""

    def __init__(
        self,
        spec: WriterSpec,
        task: MergeTask,
        incoming: pa.Table,
        rule: MergeRule,
        *,
        counts: _MergeCounts,
        matched: BoolMask,
        changes: KeyChanges,
        log: ChangeLog | None,
    ) -> None:
        self._spec = spec
        self._log = log
        self._changes = changes
        self._task = task
        self._rule = rule
        self._counts = counts
        self._matched = matched
        self._incoming = incoming
        self._keys = incoming.column(RECORD_KEY).combine_chunks() if task.match_keys else pa.array([], pa.string())
        self._plain = plain_deletes(incoming)

    def merge(self, rows: pa.Table) -> pa.Table:
        """The batch as it goes into the new file."""
        if not len(self._keys):
            return rows
        found = whole(pc.index_in(stored_keys(self._spec, rows), value_set=self._keys))
        hits = np.asarray(found.is_valid(), dtype=np.bool_)
        if not hits.any():
            return rows
        positions = np.flatnonzero(hits)
        sources = np.asarray(found.drop_null(), dtype=np.int64)
        self._matched[sources] = True
        older = plain_rows(rows.take(pa.array(positions)))
        newer = self._incoming.take(pa.array(sources))
        plain = None if self._plain is None else self._plain[sources]
        replaced, removed, values = self._decide(older, newer, plain)
        stamped = self._counts.updates
        self._counts.updates += int(replaced.sum())
        self._counts.deletes += int(removed.sum())
        merged = rows
        if self._log is not None:
            self._log.update(self._keys.take(pa.array(sources[replaced])), older.filter(pa.array(replaced)), values)
            self._log.delete(self._keys.take(pa.array(sources[removed])), older.filter(pa.array(removed)))
        if replaced.any():
            mask = np.zeros(rows.num_rows, dtype=np.bool_)
            mask[positions[replaced]] = True
            stored = stored_rows(self._spec, values, self._task.token.partition, stamped)
            merged = _overlay(rows, stored, mask)
        if removed.any():
            self._changes.add(self._keys.take(pa.array(sources[removed])), deleted=True)
            keep = np.ones(rows.num_rows, dtype=np.bool_)
            keep[positions[removed]] = False
            merged = merged.filter(pa.array(keep))
        return merged

    def _decide(self, older: pa.Table, newer: pa.Table, plain: BoolMask | None) -> tuple[BoolMask, BoolMask, pa.Table]:
        if plain is not None and plain.all():
            return ~plain, plain, newer.slice(0, 0)
        partial = self._spec.partial
        data = self._spec.data_schema.names if partial is None else partial.data_schema.names
        if self._rule.picks:
            wins = self._rule.pick_newer(older.select(data), newer.select(data), plain)
            soft = self._rule.deletes(newer)
            gone = np.zeros(len(wins), dtype=np.bool_)
            if soft is not None:
                gone |= soft
            if plain is not None:
                gone |= plain
            replaced = wins & ~gone
            values = newer.filter(pa.array(replaced))
            if partial is not None and replaced.any():
                values = completed_rows(self._spec, values, older.filter(pa.array(replaced)))
            return replaced, wins & gone, values
        live = np.ones(newer.num_rows, dtype=np.bool_) if plain is None else ~plain
        every = self._spec.data_schema.names
        if partial is not None and self._rule.filling is not None:
            newer, data = completed_rows(self._spec, newer, older), every
        merge = self._rule.merge if len(data) == len(every) else functools.partial(partial_merge, self._rule)
        # A rule that decides sees whose row is whose, as where it merges logs, and what it leaves as it was is no change.
        times = [COMMIT_TIME] if self._rule.decides and self._spec.populate_meta_fields else []
        held = older.select([*every, *times]).filter(pa.array(live))
        come = newer.select(data).filter(pa.array(live))
        if times:
            come = come.append_column(held.schema.field(COMMIT_TIME), constant(self._spec.instant_time, come.num_rows))
        outcome: Merged = merge(held, come)
        if times:
            outcome = _unchanged_where_kept(outcome, held, self._spec.instant_time)
        removed = np.ones(newer.num_rows, dtype=np.bool_)
        removed[live] = ~outcome.alive
        replaced = np.zeros(newer.num_rows, dtype=np.bool_)
        replaced[live] = outcome.alive & outcome.changed
        values = outcome.rows.filter(pa.array(outcome.alive & outcome.changed))
        keyed = newer.select([RECORD_KEY, PARTITION_PATH]).filter(pa.array(replaced))
        for field in values.schema:
            keyed = keyed.append_column(field, values.column(field.name))
        return replaced, removed, keyed


def _unchanged_where_kept(outcome: Merged, held: pa.Table, instant_time: str) -> Merged:
    """The outcome without the commit times by which it shows which rows are the stored ones, as they were, whole.

    Where a rule gave other values to a row that bears the stored one's commit time, all such rows of the batch count as changed.
    """
    times = outcome.rows.column(COMMIT_TIME)
    rows = outcome.rows.drop_columns([COMMIT_TIME])
    kept = pa.chunked_array(pc.fill_null(pc.not_equal(times, instant_time), False))
    is_whole = all(
        same_values(rows.column(name).filter(kept), held.column(name).filter(kept))
        for name in rows.column_names
        if name in held.column_names
    )
    changed = outcome.changed & ~np.asarray(kept, dtype=np.bool_) if is_whole else outcome.changed
    return replace(outcome, rows=rows, changed=changed)


def _overlay(rows: pa.Table, values: pa.Table, mask: BoolMask) -> pa.Table:
    """The rows with those under the mask replaced, in order, by the rows of `values`, which are plain."""
    flags = pa.array(mask)
    gather: pa.Array | None = None
    columns = []
    for position, field in enumerate(rows.schema):
        column = whole(rows.column(position))
        fresh = whole(values.column(position))
        if field.type == CODED:
            columns.append(replace_coded(column, mask, fresh))
        elif pa.types.is_nested(field.type):
            if gather is None:
                index = np.arange(len(mask), dtype=np.int64)
                index[mask] = len(mask) + np.arange(int(mask.sum()))
                gather = pa.array(index)
            columns.append(whole(pa.chunked_array([column, fresh]).take(gather)))
        else:
            columns.append(pc.replace_with_mask(column, flags, fresh))
    return pa.table(columns, schema=rows.schema)


def stored_rows(
    spec: WriterSpec,
    incoming: pa.Table,
    task_partition: int,
    first_row: int,
) -> pa.Table:
    """Incoming rows in the stored layout, stamped with this commit.  first_row: how many rows the task has stamped before."""
    count = incoming.num_rows
    schema = spec.stored_schema
    if spec.populate_meta_fields:
        meta: dict[str, pa.Array | pa.ChunkedArray] = {
            COMMIT_TIME: constant(spec.instant_time, count),
            COMMIT_SEQNO: sequence_numbers(spec.instant_time, task_partition, first_row, count),
            RECORD_KEY: incoming.column(RECORD_KEY),
            PARTITION_PATH: incoming.column(PARTITION_PATH),
            FILE_NAME: pa.nulls(count, pa.string()),
        }
    else:
        meta = {name: pa.nulls(count, pa.string()) for name in (COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY, PARTITION_PATH, FILE_NAME)}
    return pa.table([meta[field.name] if field.name in meta else incoming.column(field.name) for field in schema], schema=schema)


def _columns_to_code(spec: WriterSpec, instant_time: str) -> list[str]:
    """The columns that a merge may carry as dictionaries: keys are compared as text, and file names are filled in anew.

    instant_time: of the old file; what has another name or type there is none of them.
    """
    if not spec.files.dictionary:
        return []
    moved = () if spec.ids is None else spec.ids.moved(instant_time)
    plain = {*moved, RECORD_KEY, FILE_NAME, *(name.split(".")[0] for name in spec.keys.record_fields)}
    return [name for name in spec.stored_schema.names if name not in plain]


def _read_schema(old: OpenFile, spec: WriterSpec) -> pa.Schema:
    """Today's stored layout, with those columns coded that come so from the old file."""
    stored = old.schema_arrow
    coded = {field.name for field in stored if pa.types.is_dictionary(field.type)}
    return coded_schema(spec.stored_schema, {name for name in coded if pa.types.is_string(spec.stored_schema.field(name).type)})


def _old_rows(
    storage: Storage, spec: WriterSpec, task: MergeTask, old: OpenFile, schema: pa.Schema, instant_time: str
) -> Iterator[pa.Table]:
    """The rows of the old file in the layout that `_read_schema` gives, those outside of the table beside their meta columns."""
    if task.source is None:
        return _stored_batches(old, schema, spec.origins(instant_time))
    columns = JoinedColumns(spec.storage, spec.keys, task.partition)
    return joined_rows(storage, task.base_path, task.source, schema, columns)


def _stored_batches(old: OpenFile, schema: pa.Schema, origins: Mapping[str, Origin] | None) -> Iterator[pa.Table]:
    """The rows of an old file by row group, in the layout that `_read_schema` gives.  origins: where its columns stand."""
    present = set(old.schema_arrow.names)
    wanted = names_in_file(origins, [name for name in schema.names if name != FILE_NAME])
    columns = [name for name in wanted if name in present]
    for group in range(old.metadata.num_row_groups):
        rows = old.read_row_group(group, columns=columns, use_threads=False)
        yield conform_table(by_ids(rows, origins, schema), schema)


def _last_of_each_key(rows: pa.Table) -> pa.Table:
    codes = row_codes(rows, [RECORD_KEY])
    if not len(codes) or int(codes.max()) + 1 == len(codes):
        return rows
    last = np.zeros(int(codes.max()) + 1, dtype=np.int64)
    # Of several values for one place numpy keeps the last.
    last[codes] = np.arange(len(codes))
    return rows.take(pa.array(np.sort(last)))


def stored_keys(spec: WriterSpec, rows: pa.Table) -> pa.ChunkedArray:
    """The record keys of rows in the stored layout."""
    if spec.populate_meta_fields:
        return rows.column(RECORD_KEY)
    return pa.chunked_array([record_keys(spec.keys, as_batch(rows))])


def _only_live(rows: Iterable[pa.Table], rule: MergeRule) -> Iterator[pa.Table]:
    for table in rows:
        live = live_rows(table, rule)
        if live.num_rows:
            yield live


def live_rows(rows: pa.Table, rule: MergeRule) -> pa.Table:
    """Incoming rows without deletes of either kind, and without the column that marks them."""
    soft = rule.deletes(rows)
    plain = plain_deletes(rows)
    flags = [mask for mask in (soft, plain) if mask is not None]
    return rows.filter(pa.array(~np.logical_or.reduce(flags))) if flags else rows


def completed_rows(spec: WriterSpec, partial: pa.Table, stored: pa.Table) -> pa.Table:
    """Partial incoming rows as whole ones: the columns that they lack come from the stored rows beside them."""
    names = [RECORD_KEY, PARTITION_PATH, *spec.data_schema.names]
    return pa.table({name: (partial if name in partial.column_names else stored).column(name) for name in names})


def plain_deletes(rows: pa.Table) -> BoolMask | None:
    """True where an incoming row only deletes its key; None when no row does."""
    if DELETE_COLUMN not in rows.column_names:
        return None
    flags = np.asarray(pc.fill_null(rows.column(DELETE_COLUMN), False).combine_chunks(), dtype=np.bool_)
    return flags if flags.any() else None


def create_stat(partition: str, name: BaseFileName, written: WrittenFile) -> WriteStat:
    """The statistics of a new file group's first file."""
    return WriteStat(
        file_id=name.file_id,
        path=written.path,
        partition_path=partition,
        num_writes=written.row_count,
        num_inserts=written.row_count,
        total_write_bytes=written.size_bytes,
        file_size_in_bytes=written.size_bytes,
        min_event_time=written.event_times[0],
        max_event_time=written.event_times[1],
    )


def with_keys(indexed: IndexedFile | None, path: str | None) -> IndexedFile | None:
    """What was found out about a file, with its side file of keys."""
    return None if indexed is None else replace(indexed, keys=path)


def _finished(writer: BaseFileWriter) -> WrittenFile:
    assert writer.result is not None, "the writer's block ended without an error, so there is a file"
    return writer.result


def ensure_partition(storage: Storage, partition: str, instant_time: str) -> None:
    """Write the partition's metadata file unless it is there: without it listing readers do not see the partition.

    Raises InvalidRequest for a new partition in the folder of another table.
    """
    document = PartitionMetadata(instant_time, partition_depth(partition)).encode(stamp_of_instant(instant_time, UTC))
    path = join_path(partition, PARTITION_METADATA_FILE)
    if storage.put_if_absent(path, document):
        try:
            check_own_folders(storage, [partition])
        except InvalidRequest:
            # In the root of a table with partitions it would hide them from readers that go no further down.
            storage.delete([path])
            raise
