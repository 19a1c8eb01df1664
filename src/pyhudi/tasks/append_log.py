"""Tasks that append to a file group of a merge-on-read table: one log file for each file group and delta commit,
or several versions of it if it reaches the maximum size (`log_files`).

    data block     updated rows in the stored layout; `_hoodie_file_name` holds the file id
    delete block   soft deletes with their ordering value; deletes by key with the ordering value of the record that
                   they delete, so that ties delete, later upserts re-insert the key, and every reader can compare the
                   values

If each of those records exists in exactly one row of the base file, the blocks are sorted by row and store the row
numbers (record positions), so that readers need not look up keys; otherwise no block has positions. HFile blocks are
sorted by key and never have them.

A partial update becomes a data block of its columns only, marked as partial, for keys that the slice currently has. If
Hudi's reader cannot read such blocks, rows are completed from the slice and written whole: in tables with commit-time
ordering, and in those with a column `_hoodie_is_deleted`, for which that reader reads beyond the end of a row that
lacks columns.

A delete without an ordering value is written only in a table with commit-time ordering, or if no value exists: readers
fail on mixed types.

Source: docs/formats/log-file.md; docs/formats/reading.md, "Deletes"; docs/formats/writing.md, "Files of a write".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.features.consistent_hashing.hashing_metadata import HashRing
from pyhudi.features.consistent_hashing.hashing_routing import ConsistentHashingLayout
from pyhudi.format.actions.commit_metadata import WriteStat
from pyhudi.format.avro_columns import avro_records
from pyhudi.format.avro_wrappers import wrap_ordering
from pyhudi.format.hfile.hfile_writer import encode_hfile
from pyhudi.format.log.data_blocks import encode_avro, encode_parquet
from pyhudi.format.log.delete_blocks import deletes_batch, encode_deletes
from pyhudi.format.log.framing import BlockType, HeaderKey
from pyhudi.format.log.record_positions import Positions, encode_positions
from pyhudi.format.meta_columns import FILE_NAME, RECORD_KEY, constant
from pyhudi.format.names import LogFileName, WriteToken, parse_log_file
from pyhudi.format.parquet.avro_hints import check_values
from pyhudi.format.paths import file_name
from pyhudi.records.keys.record_keys import record_keys
from pyhudi.records.ordering import BoolMask, Ordering, newer_or_equal
from pyhudi.records.record_merge import IS_DELETED, EventTimeRule, RecordMergeRule
from pyhudi.storage import open_storage
from pyhudi.storage.base import Storage
from pyhudi.table.file_slices import FileSlice, LogFile
from pyhudi.tasks.base_file_writer import FileSettings
from pyhudi.tasks.file_stats import KeyChanges
from pyhudi.tasks.incoming_layout import as_batch
from pyhudi.tasks.log_file_writer import BlockRows, LogWriteSpec, write_log_files
from pyhudi.tasks.log_scan import InstantValidity
from pyhudi.tasks.read_slice import (
    ReadSpec,
    merge_columns,
    merge_slice,
    partition_path_values,
    read_live_keys,
    run_read,
    with_constants,
)
from pyhudi.tasks.row_layouts import completed_rows, key_only_deletes, live_rows, stored_rows
from pyhudi.tasks.tag_location import read_keys
from pyhudi.tasks.write_base_files import ensure_partition
from pyhudi.tasks.write_tasks import WriterSpec, WriteStatus

LOG_FILE_VERSION = 1
_TIME_UNIT = 10**9


@dataclass(frozen=True, slots=True)
class DoubleWriteTargets:
    """File groups of the new nodes of a pending resize, which have no files except logs of its instant.

    They are routed by the partition's consistent hashing metadata after the resize.

    Attributes:
        instant_time: Of the resize.
        hash_fields: As in `ConsistentHashingSettings`.
        versions: file id -> the next version of such a log, if it is not the first, so that logs merge in write order.
    """

    instant_time: str
    ring: HashRing
    hash_fields: tuple[str, ...]
    versions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class AppendTask:
    """Append to one file group.

    Attributes:
        slice: Its current slice, in which deleted records are looked up; one without files for a group that the log
            file creates.
        new_keys: Some rows may have keys that the group lacks.
        copies: Where all appended records are written a second time.
    """

    slice: FileSlice
    token: WriteToken
    validity: InstantValidity
    new_keys: bool = False
    copies: DoubleWriteTargets | None = None


def run_append(spec: WriterSpec, task: AppendTask, incoming: pa.Table, rule: RecordMergeRule) -> tuple[WriteStatus, ...]:
    """Write incoming rows of one file group to a log file, and to those of its copies. incoming: the incoming layout,
    one row for each key.

    Returns nothing when nothing has to be written, because all keys to delete are already deleted.
    """
    storage = open_storage(spec.storage)
    partition, file_id = task.slice.partition, task.slice.file_id
    if spec.partial is not None:
        spec, incoming = _of_partial_update(spec, task, incoming, rule)
    rows, deletes = _split(spec, task, incoming, rule)
    if not rows.num_rows and not deletes:
        return ()
    if task.slice.base is None and not task.slice.logs:
        ensure_partition(storage, partition, spec.instant_time)
    first = LogFileName(file_id, spec.instant_time, LOG_FILE_VERSION, str(task.token))
    copies = tuple(_write_copies(storage, spec, task, rows, deletes))
    rows, deletes, positions = _in_row_order(storage, spec, task, rows, deletes)
    blocks = _blocks(spec, file_id, task.token, rows, deletes, positions=positions)
    limit_bytes = spec.files.log_file_size_bytes
    how = LogWriteSpec(spec.indexing, spec.early, None, spec.event_time, spec.files.marker_lists)
    written = write_log_files(storage, partition, first, blocks, limit_bytes, how)
    logs = tuple(_log_of(status.stat) for status in written)
    if spec.changes is not None:
        ends = [replace(task.slice, logs=(*task.slice.logs, *logs[: number + 1])) for number in range(len(logs))]
        written = tuple(replace(s, stat=_with_slice(s.stat, slice_)) for s, slice_ in zip(written, ends, strict=True))
    if spec.indexing is None:
        return (*written, *copies)
    changes = _key_changes(storage, spec, task, logs, rows, deletes)
    keys = changes.store(storage, spec.instant_time, first.text)
    # The keys belong to the group: they are reported once.
    return (_with_keys(written[0], keys), *written[1:], *copies)


def _with_keys(status: WriteStatus, keys: str | None) -> WriteStatus:
    return replace(status, indexed=None if status.indexed is None else replace(status.indexed, keys=keys))


def _log_of(stat: WriteStat) -> LogFile:
    """A log file that was just written."""
    path = str(stat.path)
    name = parse_log_file(file_name(path))
    assert name is not None, "the name was made here"
    return LogFile(path, name, int(stat.file_size_in_bytes or 0))


def _write_copies(
    storage: Storage, spec: WriterSpec, task: AppendTask, rows: pa.Table, deletes: list[pa.RecordBatch]
) -> Iterator[WriteStatus]:
    """Write the same rows and deletes to the logs of the new nodes of a pending resize, one each."""
    copies, partition = task.copies, task.slice.partition
    if copies is None:
        return
    layout = ConsistentHashingLayout({partition: copies.ring}, copies.hash_fields)

    def nodes_of(keys: pa.Array) -> npt.NDArray[np.int64]:
        return layout.buckets_at(partition, layout.cells_for_keys(spec.keys, keys.cast(pa.string())))

    nodes = nodes_of(rows.column(RECORD_KEY).combine_chunks())
    delete_nodes = [nodes_of(batch.column("record_key")) for batch in deletes]
    for node in np.unique(np.concatenate([nodes, *delete_nodes])).tolist():
        file_id = layout.node_file_id(partition, node)
        own = rows.filter(pa.array(nodes == node))
        gone = [batch.filter(pa.array(of == node)) for batch, of in zip(deletes, delete_nodes, strict=True)]
        gone = [batch for batch in gone if batch.num_rows]
        token = double_write_token(spec.instant_time, task.token)
        name = LogFileName(file_id, copies.instant_time, copies.versions.get(file_id, LOG_FILE_VERSION), str(token))
        blocks = _blocks(spec, file_id, task.token, own, gone, positions=None)
        yield from write_log_files(
            storage,
            partition,
            name,
            blocks,
            spec.files.log_file_size_bytes,
            LogWriteSpec(spec.indexing, spec.early, spec.instant_time, spec.event_time, spec.files.marker_lists),
        )


def double_write_token(instant_time: str, token: WriteToken) -> WriteToken:
    """A token that no other write gives to a log of the same name: it holds the write's time, in numbers that fit 31 bits."""
    moment = int(instant_time)
    return WriteToken(token.partition, moment // _TIME_UNIT, moment % _TIME_UNIT)


def _with_slice(stat: WriteStat, slice_: FileSlice) -> WriteStat:
    """Add the slice that ends with the log to the statistics: readers of changes read the former rows from it."""
    return replace(
        stat,
        prev_commit=slice_.base_instant,
        base_file="" if slice_.base is None else slice_.base.name.text,
        log_files=tuple(log.name.text for log in slice_.logs),
    )


def block_rows(rows: pa.Table, limit_bytes: int) -> Iterator[pa.Table]:
    """Split rows into pieces of about so many bytes, one for each data block."""
    if not rows.num_rows:
        return
    pieces = max(1, -(-rows.nbytes // limit_bytes))
    step = -(-rows.num_rows // pieces)
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)


def encode_rows(spec: FileSettings, avro_schema: str, rows: pa.Table, keys: pa.Array) -> tuple[BlockType, bytes]:
    """Encode a data block in the configured format.  rows: the stored layout; keys: their record keys,
    which HFiles store even if the table does not.
    """
    check_values(rows, avro_schema)
    if spec.log_format == "hfile":
        return BlockType.HFILE, _encode_hfile(avro_schema, rows, keys)
    batches = rows.combine_chunks().to_batches()
    if spec.log_format == "avro":
        return BlockType.AVRO, encode_avro(avro_schema, batches)
    return BlockType.PARQUET, encode_parquet(avro_schema, batches, spec.codec)


def _encode_hfile(avro_schema: str, rows: pa.Table, keys: pa.Array) -> bytes:
    """Rows as an HFile, by key.  Raises InvalidRequest for a duplicate key, of which an HFile holds one."""
    order = pc.sort_indices(keys.cast(pa.binary()))
    # The record keeps its key column too, so that no reader has to put it back.
    values = avro_records(avro_schema).encode(as_batch(rows.take(order)))
    return encode_hfile([(keys.take(order), values)])


def _key_changes(
    storage: Storage, spec: WriterSpec, task: AppendTask, logs: tuple[LogFile, ...], rows: pa.Table, deletes: list[pa.RecordBatch]
) -> KeyChanges:
    """Find the keys that the log files add to their group, and those that they remove, by lookups with and without the logs."""
    changes = KeyChanges(spec.key_shards)
    slice_ = task.slice
    only_updates = (
        slice_.base is not None and not slice_.logs and not deletes and spec.rule.deletes(rows) is None and not task.new_keys
    )
    if not spec.key_shards or only_updates:
        return changes
    keys = pc.unique(pa.concat_arrays([*rows.column(RECORD_KEY).chunks, *(b.column("record_key") for b in deletes)]))
    longer = replace(slice_, logs=(*slice_.logs, *logs))
    before = _live_keys(log_key_reader(spec, task.validity), slice_, keys)
    after = _live_keys(log_key_reader(spec, task.validity.including(spec.instant_time)), longer, keys)
    changes.add(after.filter(pc.invert(pc.is_in(after, value_set=before))))
    changes.add(before.filter(pc.invert(pc.is_in(before, value_set=after))), deleted=True)
    return changes


def _live_keys(reader: ReadSpec, slice_: FileSlice, keys: pa.Array) -> pa.Array:
    """Return the keys that have a record in a slice."""
    live = []
    if slice_.base is None and not slice_.logs:
        return keys.slice(0, 0)
    for stored in read_live_keys(reader, slice_):
        live.append(stored.filter(pc.is_in(stored, value_set=keys)))
    return pc.unique(pa.concat_arrays([keys.slice(0, 0), *live]))


def _live_and_superseded_keys(spec: WriterSpec, task: AppendTask, keys: pa.Array) -> tuple[pa.Array, bool]:
    """Return the keys that have a record in a slice, and whether its logs contain a record that lost to the base row.

    Readers merge logs first: a partial update takes missing columns from such a record, and then beats the base row.
    """
    slice_, reader = task.slice, log_key_reader(spec, task.validity)
    if slice_.base is None and not slice_.logs:
        return keys.slice(0, 0), False
    wanted = merge_columns(reader)
    constants = partition_path_values(reader, slice_.partition, wanted)
    needed = pa.schema([field for field in wanted if field.name not in constants])
    scan, parts = merge_slice(open_storage(spec.storage), reader, slice_, needed)
    records, ordering = scan.records, reader.rule.ordering
    live_arrays, lost = [keys.slice(0, 0)], False
    for part in parts:
        rows = with_constants(part.rows, constants, wanted)
        rows = rows.filter(pc.is_in(_record_keys(spec, rows), value_set=keys))
        live = _record_keys(spec, rows)
        live_arrays.append(live)
        at = pc.index_in(live, value_set=records.keys)
        if part.from_base and ordering and records.ordering is not None and at.null_count < len(at):
            stands = ordering.values(rows.filter(at.is_valid()))
            lost = lost or not newer_or_equal(stands, records.ordering.take(at.drop_null())).all()
    return pc.unique(pa.concat_arrays(live_arrays)), lost


def log_key_reader(spec: WriterSpec, validity: InstantValidity) -> ReadSpec:
    """Return a reader for the keys of the records of a slice, and the columns that merging them needs."""
    return spec.reader(validity, columns=(RECORD_KEY, *_key_fields(spec)), rule=spec.rule.with_marker(None))


def _blocks(
    spec: WriterSpec,
    file_id: str,
    token: WriteToken,
    rows: pa.Table,
    deletes: list[pa.RecordBatch],
    *,
    positions: _BaseRowPositions | None,
) -> Iterator[BlockRows]:
    headers = {HeaderKey.INSTANT_TIME: spec.instant_time, HeaderKey.SCHEMA: spec.avro_schema}
    if spec.partial is not None:
        headers = {**headers, HeaderKey.SCHEMA: spec.partial.avro_schema, HeaderKey.IS_PARTIAL: "true"}
        spec = replace(spec, data_schema=spec.partial.data_schema, avro_schema=spec.partial.avro_schema)
    sequence = 0
    for part in block_rows(rows, spec.files.log_block_size_bytes):
        stored = stored_rows(spec, part, token.partition, sequence)
        places = {} if positions is None else positions.headers(positions.rows[sequence : sequence + part.num_rows])
        sequence += part.num_rows
        batch = as_batch(stored)
        if spec.populate_meta_fields:
            position = stored.schema.get_field_index(FILE_NAME)
            stored = stored.set_column(position, stored.schema.field(position), constant(file_id, part.num_rows))
        block_type, content = encode_rows(spec.files, spec.avro_schema, stored, part.column(RECORD_KEY).combine_chunks())
        yield BlockRows((block_type, {**headers, **places}, content), batch)
    if deletes:
        places = {} if positions is None else positions.headers(positions.deletes)
        block = BlockType.DELETE, {HeaderKey.INSTANT_TIME: spec.instant_time, **places}, encode_deletes(deletes)
        yield BlockRows(block, delete_count=sum(batch.num_rows for batch in deletes))


@dataclass(frozen=True, slots=True)
class _BaseRowPositions:
    """Base file rows that the rows and deletes replace, both ascending. instant_time: of the base file."""

    instant_time: str
    rows: Positions
    deletes: Positions

    def headers(self, positions: Positions) -> dict[HeaderKey, str]:
        return {
            HeaderKey.RECORD_POSITIONS: encode_positions(positions),
            HeaderKey.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS: self.instant_time,
        }


def _in_row_order(
    storage: Storage, spec: WriterSpec, task: AppendTask, rows: pa.Table, deletes: list[pa.RecordBatch]
) -> tuple[pa.Table, list[pa.RecordBatch], _BaseRowPositions | None]:
    """Rows and deletes sorted by the base row that they replace; unsorted with None if one of them has no base row."""
    base = task.slice.base
    if base is None or task.slice.source is not None or not spec.files.record_positions or spec.files.log_format == "hfile":
        return rows, deletes, None
    keys = pa.concat_arrays([*rows.column(RECORD_KEY).chunks, *(batch.column("record_key") for batch in deletes)])
    stored = read_keys(storage, base.path, spec.keys, populate_meta_fields=spec.populate_meta_fields)
    matches = pc.index_in(stored, value_set=keys)
    at = np.flatnonzero(np.asarray(matches.is_valid(), dtype=np.bool_))
    positions = np.full(len(keys), -1, dtype=np.int64)
    positions[np.asarray(matches.drop_null(), dtype=np.int64)] = at
    # A key that the base file holds twice, or that comes twice, leaves another count or another record without a row.
    if len(at) != len(keys) or (positions < 0).any():
        return rows, deletes, None
    row_places, delete_places = positions[: rows.num_rows], positions[rows.num_rows :]
    order = np.argsort(row_places, kind="stable")
    rows = rows.take(pa.array(order))
    if deletes:
        delete_order = np.argsort(delete_places, kind="stable")
        deletes = [as_batch(pa.Table.from_batches(deletes)).take(pa.array(delete_order))]
        delete_places = delete_places[delete_order]
    return rows, deletes, _BaseRowPositions(base.name.instant_time, row_places[order], delete_places)


def _of_partial_update(
    spec: WriterSpec, task: AppendTask, incoming: pa.Table, rule: RecordMergeRule
) -> tuple[WriterSpec, pa.Table]:
    """Return the rows of a partial update whose keys the slice has, completed if they must be written whole."""
    slice_ = task.slice
    keys = incoming.column(RECORD_KEY).combine_chunks()
    assert spec.partial is not None
    every = len(spec.partial.data_schema) == len(spec.data_schema)
    if not (every or rule.by_commit_time or rule.filling is not None or IS_DELETED in spec.data_schema.names):
        if slice_.base is not None and not slice_.logs and not task.new_keys:
            return spec, incoming
        live, lost = _live_and_superseded_keys(spec, task, keys)
        if not lost:
            return spec, incoming.filter(pc.is_in(incoming.column(RECORD_KEY), value_set=live))
    reader = replace(log_key_reader(spec, task.validity), output=spec.stored_schema)
    stored = [rows.filter(pc.is_in(_record_keys(spec, rows), value_set=keys)) for rows in run_read(reader, slice_)]
    present = pa.concat_tables([spec.stored_schema.empty_table(), *stored])
    at = pc.index_in(keys, value_set=_record_keys(spec, present))
    rows = incoming.filter(at.is_valid())
    whole = completed_rows(spec, rows, present.take(at.drop_null()))
    return replace(spec, partial=None), whole


def _split(
    spec: WriterSpec, task: AppendTask, incoming: pa.Table, rule: RecordMergeRule
) -> tuple[pa.Table, list[pa.RecordBatch]]:
    """Rows for the data block and deletes for the delete block."""
    partition = task.slice.partition
    by_event_time = bool(rule.ordering)
    deletes: list[pa.RecordBatch] = []
    plain = key_only_deletes(incoming)
    if plain is not None:
        keys = incoming.column(RECORD_KEY).filter(pa.array(plain)).combine_chunks()
        deletes.append(_plain_deletes(spec, task, keys, rule) if by_event_time else deletes_batch(keys, partition))
        incoming = incoming.filter(pa.array(~plain))
        if not incoming.num_rows:
            # Such rows have their keys alone, not the columns that mark a soft delete.
            return incoming, [batch for batch in deletes if batch.num_rows]
    soft = rule.deletes(incoming)
    if soft is None:
        return incoming, [batch for batch in deletes if batch.num_rows]
    gone = incoming.filter(pa.array(soft))
    if by_event_time and not rule.delete_is_barrier and not rule.custom_merge:
        gone = _without_outdated_deletes(spec, task, gone, rule)
    keys = gone.column(RECORD_KEY).combine_chunks()
    if not by_event_time:
        deletes.append(deletes_batch(keys, partition))
    elif pa.types.is_decimal(rule.ordering.values(gone).type) and not rule.delete_is_barrier:
        # Readers cannot compare a decimal in a delete block, but they honour the flag of a row.
        return _with_flags(incoming, soft, rule), [batch for batch in deletes if batch.num_rows]
    else:
        values = rule.ordering.values(gone).combine_chunks()
        deletes.append(deletes_batch(keys, partition, wrap_ordering(values, decimals=rule.delete_is_barrier)))
    return live_rows(incoming, rule), [batch for batch in deletes if batch.num_rows]


def _without_outdated_deletes(spec: WriterSpec, task: AppendTask, deletes: pa.Table, rule: RecordMergeRule) -> pa.Table:
    """Drop soft deletes whose ordering value a delete block cannot hold and whose record has a larger one."""
    # A delete block stores "no ordering value" as the int 0, and every reader deletes the record then, for any ordering value.
    # The slice is read only if such deletes are in the batch.
    values = rule.ordering.values(deletes)
    unvalued = rule.ordering.are_zero(deletes)
    if pa.types.is_date32(values.type):
        unvalued |= np.asarray(pc.equal(values.cast(pa.int32()).fill_null(0), 0), dtype=np.bool_)
    if not unvalued.any():
        return deletes
    keys = deletes.column(RECORD_KEY).combine_chunks()
    columns = (RECORD_KEY, *rule.ordering.heads, *_key_fields(spec))
    reader = spec.reader(task.validity, columns=columns, rule=rule.with_marker(None))
    unvalued_keys = keys.filter(pa.array(unvalued))
    stored_keys, stored_values = _ordering_now(spec, reader, task.slice, unvalued_keys, rule.ordering)
    if not len(stored_keys):
        return deletes
    delete_values = values.take(pc.index_in(stored_keys, value_set=keys))
    wins = newer_or_equal(pa.chunked_array([stored_values]), delete_values)
    outdated = stored_keys.filter(pa.array(~wins))
    losing = pc.and_(pa.array(unvalued), pc.is_in(keys, value_set=outdated))
    return deletes.filter(pc.invert(losing))


def _with_flags(rows: pa.Table, deleted: BoolMask, rule: RecordMergeRule) -> pa.Table:
    """Mark deletes in `_hoodie_is_deleted`, since other readers do not know a caller's marker."""
    if rule.custom_delete_marker is None:
        return rows
    position = rows.schema.get_field_index(IS_DELETED)
    assert position >= 0, "a write with a marker checks that decimals have the flag's column beside them"
    flags = pc.or_kleene(rows.column(position), pa.array(deleted))
    return rows.set_column(position, rows.schema.field(position), flags)


def _plain_deletes(spec: WriterSpec, task: AppendTask, keys: pa.Array, rule: RecordMergeRule) -> pa.RecordBatch:
    """Return deletes by key with the current ordering value of the record; keys without a record are omitted."""
    # A merged record may have a smaller ordering value than one of its rows, and that row would survive the delete. So the
    # delete gets the largest value of all rows.
    columns = (RECORD_KEY, *rule.ordering.heads, *_key_fields(spec))
    reader = spec.reader(task.validity, columns=columns, rule=rule.with_marker(None))
    stored_keys, values = _ordering_now(spec, reader, task.slice, keys, rule.ordering)
    if rule.custom_merge and task.slice.logs and len(stored_keys):
        # Rows that exist by the merge rule exist by event time too.
        by_event_time = replace(reader, rule=EventTimeRule(rule.ordering, rule.marker))
        stored_keys, values = _ordering_now(spec, by_event_time, task.slice, stored_keys, rule.ordering)
    if not len(stored_keys) or (pa.types.is_decimal(values.type) and not rule.delete_is_barrier):
        return deletes_batch(stored_keys, task.slice.partition)
    return deletes_batch(stored_keys, task.slice.partition, wrap_ordering(values, decimals=rule.delete_is_barrier))


def _ordering_now(
    spec: WriterSpec, reader: ReadSpec, slice_: FileSlice, keys: pa.Array, ordering: Ordering
) -> tuple[pa.Array, pa.Array]:
    """Return which keys have rows in the slice, and their ordering values."""
    found_keys: list[pa.Array] = []
    found_values: list[pa.Array] = []
    for rows in run_read(reader, slice_):
        stored = _record_keys(spec, rows)
        wanted: BoolMask = np.asarray(pc.is_in(stored, value_set=keys), dtype=np.bool_)
        if wanted.any():
            chosen = rows.filter(pa.array(wanted))
            found_keys.append(_record_keys(spec, chosen))
            found_values.append(ordering.values(chosen).combine_chunks())
    if not found_keys:
        return pa.array([], pa.string()), pa.array([], pa.null())
    return pa.concat_arrays(found_keys), pa.concat_arrays(found_values)


def _key_fields(spec: WriterSpec) -> list[str]:
    return [] if spec.populate_meta_fields else [name.split(".")[0] for name in spec.keys.record_fields]


def _record_keys(spec: WriterSpec, rows: pa.Table) -> pa.Array:
    if spec.populate_meta_fields:
        return rows.column(RECORD_KEY).combine_chunks()
    return record_keys(spec.keys, as_batch(rows))
