"""Prepare incoming rows: cast to the table's columns, with record key and partition path in front.

    _hoodie_record_key       string, never null
    _hoodie_partition_path   string, never null; `PLACEHOLDER_PARTITION` while it is not known (deletes by key alone)
    <data columns>           as the table's schema; absent when the rows only delete
    #delete                  boolean, only if some rows delete their key without being a row of the table

Also here: records that a global index finds in another partition.

Source: docs/formats/record-keys.md; docs/formats/writing.md, "Indexes used for writing".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest, Unsupported, WriteConflict
from pyhudi.format.hudi_types import INLINE, OUT_OF_LINE, record_type, stated_hudi_type
from pyhudi.format.meta_columns import PARTITION_PATH, RECORD_KEY, without_meta_fields
from pyhudi.records.dotted_columns import column_at
from pyhudi.records.filters.arrow_expressions import RowFilter, row_filter
from pyhudi.records.filters.filter_parser import parse_filter
from pyhudi.records.filters.filter_visitor import columns as filter_columns
from pyhudi.records.keys.key_spec import KeySpec, partition_columns
from pyhudi.records.keys.partition_paths import PLACEHOLDER_PARTITION, partition_paths
from pyhudi.records.keys.record_keys import auto_record_keys, record_keys
from pyhudi.records.ordering import BoolMask
from pyhudi.records.record_merge import combine_to_array
from pyhudi.records.schema_cast import conform, conform_table, refuse_rounding, relabel, same_type
from pyhudi.records.schema_evolution import typed_nulls
from pyhudi.records.timestamp_coercion import check_no_truncated_nanoseconds
from pyhudi.records.type_normalization import normalize_types
from pyhudi.records.utf8_checks import check_utf8
from pyhudi.table.file_slices import FileSlice
from pyhudi.tasks.engine_protocol import PrepareRequest, TagRequest
from pyhudi.tasks.incoming_layout import DELETE_COLUMN, as_batch, with_column
from pyhudi.tasks.read_slice import ReadSpec, run_read
from pyhudi.tasks.row_selection import matching_rows

Ints = npt.NDArray[np.int64]

_KEY_FIELDS = [pa.field(RECORD_KEY, pa.string()), pa.field(PARTITION_PATH, pa.string())]
_DELETE_FIELD = pa.field(DELETE_COLUMN, pa.bool_())


def incoming_schema(request: PrepareRequest) -> pa.Schema:
    """Return the layout of the rows that `incoming_rows` returns for a request."""
    if request.keys_only:
        return pa.schema([*_KEY_FIELDS, _DELETE_FIELD])
    marked = [_DELETE_FIELD] if request.marks_deletes else []
    return pa.schema([*_KEY_FIELDS, *request.data_schema, *marked])


def incoming_rows(request: PrepareRequest, batch: pa.RecordBatch, *, first_row: int = 0, task_partition: int = 0) -> pa.Table:
    """Prepare one batch of the caller's rows.  first_row, task_partition: for auto-generated keys.

    Raises InvalidRequest for a null or empty key, for a null value in a required ordering field, for text that is not
    UTF-8, and for values that do not fit the table's columns.
    """
    if request.keys_only:
        return _key_rows(request, batch)
    given = without_meta_fields(batch)
    refuse_rounding(given, request.input_schema)
    if not request.truncate_nanoseconds:
        check_no_truncated_nanoseconds(given)
    rows = conform(given, request.input_schema)
    check_utf8(rows)
    _check_blobs(rows)
    paths = partition_paths(request.keys, rows)
    if request.keys.generates_keys:
        keys = auto_record_keys(request.instant_time, task_partition, first_row, rows.num_rows)
        if request.stored_keys:
            keys = _stored_keys(request, batch, paths, keys)
    else:
        keys = record_keys(request.keys, rows)
    marked = [batch.column(DELETE_COLUMN)] if request.marks_deletes else []
    for name in request.required_ordering:
        # A delete by key removes its record regardless of the ordering value.
        _refuse_unordered(column_at(rows, name), name, *marked)
    if request.constraints:
        _refuse_violations(request, rows, *marked)
    return pa.table([keys, paths, *rows.columns[: len(request.data_schema)], *marked], schema=incoming_schema(request))


def _refuse_violations(request: PrepareRequest, rows: pa.RecordBatch, marked: pa.BooleanArray | None = None) -> None:
    """Raise InvalidRequest for a row that is stored and for which a constraint is false."""
    table = pa.Table.from_batches([rows])
    deleted = request.rule.deletes(table)
    stored = np.ones(rows.num_rows, dtype=np.bool_) if deleted is None else ~deleted
    if marked is not None:
        stored &= ~pc.fill_null(marked, False).to_numpy(zero_copy_only=False)
    for name, condition in request.constraints:
        columns, violated = _violation_filter(condition, request.input_schema)
        bad = matching_rows(table.select(columns), violated)
        bad = bad[stored[bad]]
        if len(bad):
            values = table.select(columns).slice(int(bad[0]), 1).to_pylist()[0]
            raise InvalidRequest(
                f"constraint {name!r} ({condition}) is violated by row {bad[0]} (counted from 0), which has {values!r:.200}: "
                "correct the row, or drop the constraint with Table.alter.drop_constraint"
            )


@lru_cache(maxsize=64)
def _violation_filter(condition: str, schema: pa.Schema) -> tuple[list[str], RowFilter]:
    """The columns that a condition reads, and the filter of the rows for which it is false."""
    expression = parse_filter(condition)
    columns = list(dict.fromkeys(name.split(".")[0] for name in filter_columns(expression)))
    return columns, row_filter(~expression, schema)


def check_refits(input_schema: pa.Schema, before: PrepareRequest, after: PrepareRequest) -> None:
    """Raise WriteConflict if rows prepared by one request, cast to another, would differ from rows prepared by the latter alone.

    input_schema: the rows' columns as the caller had them.  For example, a float that became a double has another text than
    the float.
    """
    columns = normalize_types(typed_nulls(without_meta_fields(input_schema), before.input_schema))
    both = {*columns.names} & {*before.data_schema.names}
    for field in after.data_schema:
        if field.name not in both:
            continue
        raw, held = columns.field(field.name).type, before.data_schema.field(field.name).type
        numbers = all(pa.types.is_integer(type_) or pa.types.is_floating(type_) for type_ in (raw, held, field.type))
        if not (numbers or same_type(held, field.type) or same_type(held, raw)):
            raise WriteConflict(
                f"another writer made column {field.name!r} {field.type} while the rows, given as {raw}, were written as {held}; "
                "write the rows again"
            )


def refitted_rows(request: PrepareRequest, rows: pa.Table) -> pa.Table:
    """Return prepared rows with the columns of another request; see `check_refits`."""
    if request.keys_only:
        return rows
    for batch in rows.to_batches():
        refuse_rounding(batch, request.data_schema)
    return conform_table(rows, incoming_schema(request))


def _check_blobs(rows: pa.RecordBatch) -> None:
    """Raise InvalidRequest for a BLOB, in its canonical type, that is neither INLINE nor OUT_OF_LINE."""
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if record_type(field) == field.type and stated_hudi_type(field) == "BLOB":
            kinds = pc.struct_field(column, "type")
            row = pc.index(pc.is_in(kinds, pa.array([INLINE, OUT_OF_LINE, None])), value=False).as_py()
            if row >= 0:
                raise InvalidRequest(
                    f"column {field.name!r}: row {row} (counted from 0) has the type {kinds[row].as_py()!r}. "
                    f"Use {INLINE} or {OUT_OF_LINE}"
                )


def _refuse_unordered(values: pa.Array, name: str, deleted: pa.BooleanArray | None = None) -> None:
    absent = values.is_null() if deleted is None else pc.and_not(values.is_null(), pc.fill_null(deleted, False))
    row = pc.index(absent, True).as_py()
    if row >= 0:
        raise InvalidRequest(
            f"the ordering field {name!r} is null in row {row} (counted from 0): every record needs a value to be compared by"
        )


def key_columns(input_schema: pa.Schema, request: PrepareRequest) -> pa.Schema:
    """Return the columns of rows to delete.

    An all-null column has the table's type, or is text if no file has the column. A decimal has the table's type, which
    determines its text.
    """
    known = {field.name: field.type for field in request.data_schema if pa.types.is_decimal(field.type)}
    typed = typed_nulls(input_schema, request.data_schema)
    return pa.schema(
        [
            field.with_type(pa.string())
            if pa.types.is_null(field.type)
            else field.with_type(known[field.name])
            if pa.types.is_decimal(field.type) and field.name in known
            else field
            for field in typed
        ]
    )


def _stored_keys(
    request: PrepareRequest, batch: pa.RecordBatch, paths: pa.StringArray, new_keys: pa.StringArray
) -> pa.StringArray:
    """Return the keys that rows carry from the table, and new keys for new rows; rejects a row that changes partition."""
    keys, stored_paths = (pc.cast(batch.column(name), pa.string()) for name in (RECORD_KEY, PARTITION_PATH))
    if keys.null_count and not request.has_new_rows:
        row = pc.index(keys.is_null(), True).as_py()
        raise InvalidRequest(
            f"{RECORD_KEY} is null in row {row} (counted from 0): rows with the _hoodie_ columns update the stored rows that "
            "they name. Insert new rows without these columns"
        )
    row = pc.index(pc.and_(keys.is_valid(), pc.not_equal(stored_paths, paths)), True).as_py()
    if row >= 0:
        raise InvalidRequest(MOVED_STORED_ROW.format(stored_paths[row].as_py(), paths[row].as_py()))
    return pc.coalesce(keys, new_keys)


MOVED_STORED_ROW = (
    "a row is stored in partition {!r}, and its columns make {!r}: a row without a record key keeps its partition. Delete the "
    "row and insert it without the _hoodie_ columns"
)
"""Error of an update that would move a row of a table that generates its keys."""


def _key_rows(request: PrepareRequest, batch: pa.RecordBatch) -> pa.Table:
    if RECORD_KEY in batch.schema.names and PARTITION_PATH in batch.schema.names:
        keys, paths = batch.column(RECORD_KEY), batch.column(PARTITION_PATH)
        if keys.null_count:
            raise InvalidRequest(f"{RECORD_KEY} is null in {keys.null_count} of the rows to delete")
        paths = pc.fill_null(paths, "")
    else:
        named = {name.split(".")[0] for name in (*request.keys.record_fields, *partition_columns(request.keys))}
        batch = batch.select([name for name in batch.schema.names if name in named])
        if not request.truncate_nanoseconds:
            check_no_truncated_nanoseconds(batch)
        # The layouts that a caller may have them in have no text, or one of their own.
        batch = conform(batch, normalize_types(key_columns(batch.schema, request)))
        check_utf8(batch)
        keys = record_keys(request.keys, batch)
        if all(name.split(".")[0] in batch.schema.names for name in partition_columns(request.keys)):
            paths = partition_paths(request.keys, batch)
        else:
            paths = pa.repeat(pa.scalar(PLACEHOLDER_PARTITION, pa.string()), batch.num_rows)
    return pa.table(
        [keys.cast(pa.string()), paths.cast(pa.string()), pa.repeat(pa.scalar(True), batch.num_rows)],
        schema=incoming_schema(request),
    )


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Task that reads the current version of some keys in a file slice.

    computed: how keys of stored rows are computed if the table does not store them, else None.  schema: of the result.
    """

    reader: ReadSpec
    slice: FileSlice
    keys: pa.StringArray
    computed: KeySpec | None
    schema: pa.Schema


ReadStored = Callable[[Sequence[StoredRows]], list[pa.Table]]


def run_stored(task: StoredRows) -> pa.Table:
    """Return a row for each key, in order; nulls if the slice has no such record."""
    tables, stored_keys = [task.schema.empty_table()], [pa.array([], pa.string())]
    for stored in run_read(task.reader, task.slice):
        names = (
            combine_to_array(stored.column(RECORD_KEY)) if task.computed is None else record_keys(task.computed, as_batch(stored))
        )
        requested = pc.is_in(names, value_set=task.keys)
        tables.append(relabel(stored.filter(requested), task.schema))
        stored_keys.append(names.filter(requested).cast(pa.string()))
    at = pc.index_in(task.keys, value_set=pa.concat_arrays(stored_keys))
    return pa.concat_tables(tables).take(at)


def _run_sequentially(tasks: Sequence[StoredRows]) -> list[pa.Table]:
    return [run_stored(task) for task in tasks]


def resolve_moves(
    request: TagRequest,
    rows: pa.Table,
    pairs_row: Ints,
    pairs_candidate: Ints,
    moved_away: BoolMask,
    read: ReadStored = _run_sequentially,
) -> tuple[pa.Table, Ints, Ints]:
    """Move records to another partition: delete at the old location, insert at the new one.

    Raises Unsupported for partial updates, whose rows lack columns for an insert.

    moved_away: the pairs whose stored row is in another partition. A record whose stored version wins is unchanged and
    its incoming row is dropped; an incoming delete that wins deletes at the old location. Under an update mode, a
    payload class or a merger, the merged record moves to the partition that its columns determine; one that stays is
    updated in place. read: reads stored rows. Returns the rows to write and their pairs.
    """
    if request.spec.partial is not None:
        row = int(pairs_row[moved_away][0])
        raise Unsupported(
            f"a partial update of record {rows.column(RECORD_KEY)[row].as_py()!r} names partition "
            f"{rows.column(PARTITION_PATH)[row].as_py()!r}, and the record is in "
            f"{request.candidates[int(pairs_candidate[moved_away][0])].partition!r}: moving it requires a complete row; "
            "upsert one, or keep records in their partition by setting the index's update.partition.path to false"
        )
    if DELETE_COLUMN not in rows.column_names:
        rows = rows.append_column(_DELETE_FIELD, pa.repeat(pa.scalar(False), rows.num_rows))
    moving_rows, moving_files = pairs_row[moved_away], pairs_candidate[moved_away]
    newer = rows.take(pa.array(moving_rows))
    plain = np.asarray(newer.column(DELETE_COLUMN).combine_chunks(), dtype=np.bool_)
    data = [name for name in rows.column_names if name not in (RECORD_KEY, PARTITION_PATH, DELETE_COLUMN)]
    homes = pa.array([place.partition for place in request.candidates], pa.string()).take(pa.array(moving_files))
    settled = _MoveResolution(newer, plain, plain, np.zeros(len(plain), dtype=np.bool_))
    if data:
        older = _stored_rows(request, newer.column(RECORD_KEY).combine_chunks(), moving_files, read).select(data)
        settle = _picked if request.rule.selects_one_side else _merged if request.rule.filling is None else _filled
        settled = settle(request, older, newer, plain, homes)
    wins, dead, filled = settled.moved_away, settled.deleted, settled.unmoved
    if settled.rows is not newer:
        survives = wins & ~dead
        rows = _with_rows(rows, moving_rows[survives], settled.rows.filter(pa.array(survives)))
    deletions = newer.filter(pa.array(wins))
    deletions = with_column(deletions, PARTITION_PATH, homes.filter(pa.array(wins)))
    deletions = with_column(deletions, DELETE_COLUMN, pa.repeat(pa.scalar(True), deletions.num_rows))
    at_home = with_column(newer.filter(pa.array(filled)), PARTITION_PATH, homes.filter(pa.array(filled)))
    placed = pa.concat_tables([relabel(deletions, rows.schema), relabel(at_home, rows.schema)])
    keep = np.ones(rows.num_rows, dtype=np.bool_)
    keep[moving_rows[~wins | dead]] = False
    keep[pairs_row[~moved_away]] = True
    staying = np.flatnonzero(keep)
    renumbered = np.cumsum(keep) - 1
    stays_row = renumbered[pairs_row[~moved_away]]
    moved_row = len(staying) + np.arange(placed.num_rows, dtype=np.int64)
    return (
        pa.concat_tables([rows.filter(pa.array(keep)), placed]),
        np.concatenate([stays_row, moved_row]).astype(np.int64),
        np.concatenate([pairs_candidate[~moved_away], moving_files[wins], moving_files[filled]]),
    )


@dataclass(frozen=True, slots=True)
class _MoveResolution:
    """How incoming rows change stored records of other partitions; records without a flag are unchanged.

    Attributes:
        rows: Rows to write to the new partitions.
        moved_away: The record is removed from its partition.
        deleted: The record is not written to another partition.
        unmoved: The record is updated in its partition.
    """

    rows: pa.Table
    moved_away: BoolMask
    deleted: BoolMask
    unmoved: BoolMask


def _picked(
    request: TagRequest, older: pa.Table, newer: pa.Table, plain_deletes: BoolMask, stored_partitions: pa.Array
) -> _MoveResolution:
    """Resolve moves by a rule that selects the incoming row, with its partition, or the stored one."""
    wins = request.rule.newer_wins(older, newer.select(older.column_names), plain_deletes)
    return _MoveResolution(
        newer, wins, _either(plain_deletes, request.rule.deletes(newer)), np.zeros(len(plain_deletes), dtype=np.bool_)
    )


def _filled(
    request: TagRequest, older: pa.Table, newer: pa.Table, plain_deletes: BoolMask, stored_partitions: pa.Array
) -> _MoveResolution:
    """Resolve moves under an update mode: the columns of the merged record define its partition."""
    data = newer.select(older.column_names)
    wins = request.rule.newer_wins(older, data, plain_deletes)
    dead = _either(plain_deletes, request.rule.deletes(newer))
    combined = _with_columns(request, newer, request.rule.combine(older, data).rows)
    stays = np.asarray(pc.equal(combined.column(PARTITION_PATH), stored_partitions), dtype=np.bool_)
    return _MoveResolution(combined, np.where(dead, wins, ~stays), dead, stays & ~dead)


def _merged(
    request: TagRequest, older: pa.Table, newer: pa.Table, plain_deletes: BoolMask, stored_partitions: pa.Array
) -> _MoveResolution:
    """Resolve moves by a payload class or a merger, which may also delete the record, or leave it unchanged."""
    # A row without a stored record is not merged. A soft delete is merged with the stored row in its partition.
    stored = np.logical_or.reduce([np.asarray(column.is_valid().combine_chunks(), dtype=np.bool_) for column in older.columns])
    stays = _either(plain_deletes, request.rule.deletes(newer)) & ~plain_deletes
    leaves, dead = ~stays, plain_deletes.copy()
    pairs = np.flatnonzero(stored & leaves & ~plain_deletes)
    if not len(pairs):
        return _MoveResolution(newer, leaves, dead, stays)
    updates = newer.take(pa.array(pairs))
    merged = request.rule.merge(older.take(pa.array(pairs)), updates.select(older.column_names))
    updated = _with_columns(request, updates, merged.rows)
    at_home = np.asarray(pc.equal(updated.column(PARTITION_PATH), stored_partitions.take(pa.array(pairs))), dtype=np.bool_)
    dead[pairs] = ~merged.is_live
    stays[pairs] = merged.changed & merged.is_live & at_home
    leaves[pairs] = ~merged.is_live | (merged.changed & ~at_home)
    return _MoveResolution(_with_rows(newer, pairs, updated), leaves, dead, stays)


def _either(first: BoolMask, second: BoolMask | None) -> BoolMask:
    return first.copy() if second is None else first | second


def _with_columns(request: TagRequest, rows: pa.Table, created: pa.Table) -> pa.Table:
    """Replace the columns that a rule computed, and the partition path."""
    paths = partition_paths(request.spec.keys, as_batch(created)).cast(pa.string())
    for name in created.column_names:
        rows = with_column(rows, name, combine_to_array(created.column(name)))
    return with_column(rows, PARTITION_PATH, paths)


def _with_rows(rows: pa.Table, at: Ints, other_rows: pa.Table) -> pa.Table:
    """Replace the rows at some positions."""
    if not len(at):
        return rows
    order = np.arange(rows.num_rows, dtype=np.int64)
    order[at] = rows.num_rows + np.arange(len(at), dtype=np.int64)
    return pa.concat_tables([rows, relabel(other_rows, rows.schema)]).take(pa.array(order))


def _stored_rows(request: TagRequest, keys: pa.Array, files: Ints, read: ReadStored) -> pa.Table:
    """The stored version of each key in its file slice, in order; nulls if the slice has no such record."""
    reader = request.spec.reader(request.validity, rule=request.rule.with_marker(None))
    computed = None if request.spec.populate_meta_fields else request.spec.keys
    loose = pa.schema([field.with_nullable(True) for field in request.spec.stored_schema])
    tasks: list[StoredRows] = []
    order: list[Ints] = []
    for number in np.unique(files).tolist():
        wanted = np.flatnonzero(files == number)
        slice_ = request.candidates[number].slice
        assert slice_ is not None, "records are looked up in file groups that are there"
        tasks.append(StoredRows(reader, slice_, keys.take(pa.array(wanted)), computed, loose))
        order.append(wanted)
    positions = np.argsort(np.concatenate(order), kind="stable")
    return pa.concat_tables(read(tasks)).take(pa.array(positions))
