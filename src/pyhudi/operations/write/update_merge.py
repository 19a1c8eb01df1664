"""UPDATE and MERGE: rows are read, changed, and written as one upsert based on the snapshot that they were read from.

    update    rows that match a filter get new values in some columns
    merge     source rows are joined with the table; clauses define what happens to matched and unmatched rows

A record retains its key and its partition. The result is written as an upsert, so the table's merge mode decides
between the changed row and the stored one: a row whose ordering value is set to an older one loses. A merge deletes a
record unless the source row has a smaller ordering value. If another writer
changed a file group of the write set, or inserted a key that was not found, the whole operation is repeated or raises
WriteConflict.

Source: docs/updates-and-merges.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest, TableState, Unsupported
from pyhudi.format.meta_columns import META_COLUMNS, PARTITION_PATH, RECORD_KEY
from pyhudi.operations.admin.table_settings import zone_mode
from pyhudi.operations.commit.check_writable import check_writable
from pyhudi.operations.commit.events import observed
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.read.file_pruning import ReadSettings
from pyhudi.operations.read.key_lookup import plan_read_lookup
from pyhudi.operations.read.query import SnapshotQuery, plan_snapshot_query
from pyhudi.operations.write.clauses import Clause, ClauseAction, ClauseRows
from pyhudi.operations.write.write_attempt import raise_stale_on_missing_file, retry_on_conflict
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_schemas import fixed_columns
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.records.assignments import Assignment, assign, assigned_columns, parse_assignments
from pyhudi.records.filters.arrow_expressions import row_filter
from pyhudi.records.filters.filter_ast import ColumnRef
from pyhudi.records.filters.filter_parser import Filter, parse_filter
from pyhudi.records.keys.key_spec import KeySpec, partition_columns
from pyhudi.records.keys.partition_paths import partition_paths
from pyhudi.records.keys.record_keys import record_keys
from pyhudi.records.merge_mode import MergeMode
from pyhudi.records.ordering import Ordering, delete_applies
from pyhudi.records.record_merge import row_codes
from pyhudi.records.schema_cast import conform_table
from pyhudi.records.schema_evolution import SchemaMode, evolve, typed_nulls
from pyhudi.records.timestamp_coercion import check_no_truncated_nanoseconds, with_zones
from pyhudi.records.type_normalization import normalize_types
from pyhudi.records.utf8_checks import check_utf8
from pyhudi.table.file_slices import FileSlice
from pyhudi.table.table_config import TableConfig
from pyhudi.table.table_context import TableContext
from pyhudi.tasks.engine_protocol import Engine
from pyhudi.tasks.incoming_layout import DELETE_COLUMN, as_batch
from pyhudi.tasks.read_slice import ReadSpec, run_read

Ints = npt.NDArray[np.int64]

_MAX_KEYS_LOOKED_UP = 10_000
"""Maximum number of source rows for which a merge by key looks up keys; with more rows every file is read."""

_SOURCE_ROW, _TARGET_ROW = "\x00source", "\x00target"
"""Reserved column names."""


@observed("update")
def run_update(
    context: TableContext, engine: Engine, values: Mapping[str, Any], where: Filter | None, settings: WriteSettings
) -> WriteResult:
    """Update the rows that match a filter.

    Raises:
        InvalidRequest: Assignments are invalid for the table.
        Unsupported: The table does not support updates.
        WriteConflict: See `run_write`.
    """
    _check_can_change(context, settings, "an update")

    def attempt(context: TableContext) -> WriteResult:
        query = plan_snapshot_query(context.reloaded(), columns_to_read(context.config), where)
        table, fixed = data_columns(query.schema), fixed_columns(context.config)
        assignments = parse_assignments(values, table, table, fixed, truncate_nanoseconds=settings.truncates_nanoseconds)
        _check_assigned(context.config, assignments)
        after = evolved_schema(table, assigned_columns(assignments, table, table), settings)
        with raise_stale_on_missing_file(query.snapshot):
            stored_rows = _read(engine, query, _all_rows)
            check_identity(context.config, stored_rows)
            _check_one_row_per_record(
                context.config.keys, stored_rows, "the table has two rows of record {key!r} that match the filter"
            )
            rows = stored_rows.select(table.names)
            changed = pa.Table.from_batches([assign(assignments, rows, rows, after, fixed)], after)
            for name in stored_key_columns(context.config):
                changed = changed.append_column(name, stored_rows.column(name))
            return run_write(context, engine, changed, settings, base_snapshot=query.snapshot)

    return retry_on_conflict(context, settings.commit, attempt)


@observed("merge")
def run_merge_statement(
    context: TableContext,
    engine: Engine,
    source: pa.Table,
    on: Sequence[str],
    clauses: Sequence[Clause],
    settings: WriteSettings,
) -> WriteResult:
    """Merge source rows into the table. For each matched pair or unmatched row, the first clause whose condition is true applies.

    Raises:
        InvalidRequest: Clauses are invalid for the table, two source rows match one row of the table, or two insert one
            key.
        Unsupported: The table does not support updates.
        WriteConflict: See `run_write`.
    """
    _check_can_change(context, settings, "a merge")
    _check_on(context.config, on, source.schema, clauses, settings)

    def attempt(context: TableContext) -> WriteResult:
        whole = any(clause.rows is ClauseRows.OF_TARGET for clause in clauses)
        query = _query_for(context.reloaded(), source, on, all_columns=whole)
        table = data_columns(query.schema)
        canonical = _canonical(source, table, context.config, settings)
        keys = _join_keys(canonical, table, on)
        merge = _MergeRun.of(context.config, table, canonical, on, clauses, settings)
        with raise_stale_on_missing_file(query.snapshot):
            target = _read(engine, query, _all_rows if whole else partial(_matching, keys=keys, on=tuple(on)))
            check_identity(context.config, target)
            changed, marked = merge.changed(target, keys)
            return run_write(context, engine, changed, settings, base_snapshot=query.snapshot, marks_deletes=marked)

    return retry_on_conflict(context, settings.commit, attempt)


@observed("change")
def run_merge_changes(
    context: TableContext,
    engine: Engine,
    plan: Callable[[TableContext], SnapshotQuery],
    change: Callable[[SnapshotQuery], Any],
    settings: WriteSettings,
    *,
    description: str,
    repeated: str,
) -> WriteResult:
    """Upsert the rows that an engine computes from the rows of a query.

    Args:
        plan: Returns the query for the current table.
        change: Returns the changed rows of a query as input of the engine, with DELETE_COLUMN.
        description: Name of the operation, for messages.
        repeated: Message for two changed rows of one record.

    Raises:
        InvalidRequest, Unsupported, WriteConflict: See `run_update`.
    """
    _check_can_change(context, settings, description)

    def attempt(context: TableContext) -> WriteResult:
        query = plan(context.reloaded())
        with raise_stale_on_missing_file(query.snapshot):
            return run_write(
                context, engine, change(query), settings, base_snapshot=query.snapshot, marks_deletes=True, repeated=repeated
            )

    return retry_on_conflict(context, settings.commit, attempt)


@dataclass(frozen=True, slots=True)
class _BoundClause:
    """A clause whose assignments are bound to columns.

    Attributes:
        clause: The clause.
        assignments: The bound assignments.
        unchanged_columns: Columns whose source value must equal the table's value.
    """

    clause: Clause
    assignments: tuple[Assignment, ...]
    unchanged_columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _MergeRun:
    """A merge of one source with one snapshot of the table; ``after`` are the table's columns after the merge."""

    config: TableConfig
    table: pa.Schema
    source: pa.Table
    on: tuple[str, ...]
    clauses: tuple[_BoundClause, ...]
    after: pa.Schema

    @classmethod
    def of(
        cls,
        config: TableConfig,
        table: pa.Schema,
        source: pa.Table,
        on: Sequence[str],
        clauses: Sequence[Clause],
        settings: WriteSettings,
    ) -> _MergeRun:
        bound: list[_BoundClause] = []
        after = table
        for clause in clauses:
            bound_clause = _bound(config, table, source.schema, on, clause, settings)
            sides = _clause_columns(clause, source.schema, table)
            after = evolved_schema(after, assigned_columns(bound_clause.assignments, sides, after), settings)
            if clause.where is not None:
                row_filter(parse_filter(clause.where), sides)
            bound.append(bound_clause)
        return cls(config, table, source, tuple(on), tuple(bound), after)

    def changed(self, target: pa.Table, keys: pa.Table) -> tuple[pa.Table, bool]:
        """Return the rows to upsert, and whether a column marks some of them as deletes. ``target`` includes all matched rows."""
        pairs = _pairs(target, keys, self.on)
        sources: Ints = pairs.column(_SOURCE_ROW).to_numpy()
        targets: Ints = pairs.column(_TARGET_ROW).to_numpy()
        unmatched_sources = np.setdiff1d(np.arange(self.source.num_rows, dtype=np.int64), sources)
        unmatched_targets = np.setdiff1d(np.arange(target.num_rows, dtype=np.int64), targets)
        rows = target.select(self.table.names)
        parts: list[pa.RecordBatch] = []
        flags: list[pa.Array] = []
        identities: list[pa.Table] = []
        stored_names = list(stored_key_columns(self.config))
        changed_targets: list[Ints] = []
        inserted: list[pa.RecordBatch] = []
        fixed = fixed_columns(self.config)
        for bound_clause in self.clauses:
            outcome = bound_clause.clause.outcome
            if outcome is ClauseAction.INSERT:
                sides = _joined_rows(self.source.take(pa.array(unmatched_sources)), None)
                chosen = _rows_where(sides, bound_clause.clause.where)
                _refuse_nulls(self.source.select(self.on).take(pa.array(unmatched_sources[chosen])))
                part = assign(bound_clause.assignments, sides.take(pa.array(chosen)), None, self.after, fixed)
                unmatched_sources = np.delete(unmatched_sources, chosen)
                inserted.append(part)
                identities.append(target.select(stored_names).take(pa.nulls(part.num_rows, pa.int64())))
            elif bound_clause.clause.rows is ClauseRows.OF_TARGET:
                target_rows = rows.take(pa.array(unmatched_targets))
                sides = _joined_rows(None, target_rows)
                chosen = _rows_where(sides, bound_clause.clause.where)
                part = assign(
                    bound_clause.assignments, sides.take(pa.array(chosen)), target_rows.take(pa.array(chosen)), self.after, fixed
                )
                changed_targets.append(unmatched_targets[chosen])
                identities.append(target.select(stored_names).take(pa.array(unmatched_targets[chosen])))
                unmatched_targets = np.delete(unmatched_targets, chosen)
            else:
                source_rows, target_rows = self.source.take(pa.array(sources)), rows.take(pa.array(targets))
                sides = _joined_rows(source_rows, target_rows)
                chosen = _rows_where(sides, bound_clause.clause.where)
                applied = chosen
                if outcome is ClauseAction.DELETE:
                    applied = chosen[self._delete_applies(source_rows.take(chosen), target_rows.take(chosen))]
                positions = pa.array(applied)
                _check_unchanged(bound_clause.unchanged_columns, source_rows.take(positions), target_rows.take(positions))
                part = assign(bound_clause.assignments, sides.take(positions), target_rows.take(positions), self.after, fixed)
                changed_targets.append(targets[applied])
                identities.append(target.select(stored_names).take(pa.array(targets[applied])))
                sources, targets = np.delete(sources, chosen), np.delete(targets, chosen)
            parts.append(part)
            flags.append(pa.repeat(pa.scalar(outcome is ClauseAction.DELETE), part.num_rows))
        _refuse_two_sources(self.config, rows, changed_targets, target)
        _check_one_row_per_record(
            self.config.keys,
            pa.Table.from_batches(inserted, self.after),
            "two rows of the source would insert record {key!r}",
            assigns_location=bool(set(partition_columns(self.config.keys)) & set(self.on)),
        )
        changed = pa.Table.from_batches(parts, self.after)
        marks = bool(stored_names) or any(clause.clause.outcome is ClauseAction.DELETE for clause in self.clauses)
        for name in stored_names:
            changed = changed.append_column(name, pa.concat_tables(identities).column(name))
        return (changed.append_column(DELETE_COLUMN, pa.chunked_array(flags, pa.bool_())), True) if marks else (changed, False)

    def _delete_applies(self, source_rows: pa.Table, target_rows: pa.Table) -> npt.NDArray[np.bool_]:
        ordering = delete_ordering(self.config, source_rows.column_names)
        if ordering is None:
            return np.ones(source_rows.num_rows, dtype=np.bool_)
        columns = pa.schema([self.table.field(name).with_nullable(True) for name in ordering.heads])
        return delete_applies(ordering, target_rows, conform_table(source_rows.select(ordering.heads), columns))


def delete_ordering(config: TableConfig, source_names: Collection[str]) -> Ordering | None:
    """Return the ordering that decides between a stored row and a source row that deletes it; None if it is deleted always.

    Args:
        config: Configuration of the table.
        source_names: Columns of the source.
    """
    ordering = config.merge.ordering
    decides = config.merge.mode is MergeMode.EVENT_TIME_ORDERING and ordering and set(ordering.heads) <= set(source_names)
    return ordering if decides else None


# ---------------------------------------------------------------------------------------------------------------------
# Checks and query


def _check_can_change(context: TableContext, settings: WriteSettings, description: str) -> None:
    """Raise Unsupported or InvalidRequest if rows of the table cannot be read, changed and written back."""
    check_writable(context)
    uri, keys = context.storage.uri, context.config.keys
    if settings.operation is not WriteOperation.UPSERT:
        raise InvalidRequest(
            f"{description} of {uri} runs as an upsert, but the options select the operation "
            f"{settings.operation}; remove that option"
        )
    if keys.generates_keys and not context.config.populate_meta_fields:
        raise Unsupported(f"{description} of {uri} is not supported: its rows have neither record key fields nor meta columns")
    if settings.commit.is_non_blocking:
        raise Unsupported(
            f"{description} of {uri} is not supported under non-blocking concurrency control: writes between "
            "reading and writing would not be detected; use OPTIMISTIC_CONCURRENCY_CONTROL"
        )
    nested = [name for name in (*keys.record_fields, *partition_columns(keys)) if "." in name]
    if nested:
        raise Unsupported(
            f"{description} of {uri} is not supported: its key or partition is a nested field ({', '.join(nested)})"
        )


def _check_on(
    config: TableConfig, on: Sequence[str], source: pa.Schema, clauses: Sequence[Clause], settings: WriteSettings
) -> None:
    """Check the join columns of a merge, and that inserts cannot hit an existing record with their key."""
    keys, places = set(config.keys.record_fields), set(partition_columns(config.keys))
    if not clauses:
        raise InvalidRequest("a merge without clauses has no effect; add one, for example with when_matched_update()")
    missing = [name for name in on if name not in source.names]
    if missing:
        raise InvalidRequest(f"on= names {', '.join(missing)}, which the source lacks; its columns are {', '.join(source.names)}")
    if not keys or not any(clause.outcome is ClauseAction.INSERT for clause in clauses):
        return
    if not keys <= set(on) <= keys | places:
        raise Unsupported(
            f"a merge that inserts has to match on the record key ({', '.join(config.keys.record_fields)}), "
            f"optionally with the partition fields, and on= names {', '.join(on)}: an unmatched row could have "
            "the key of another record"
        )
    if set(on) & places and settings.index.index_type.is_global:
        raise Unsupported(
            "a merge that inserts has to match on the record key alone if the index is global: a key that is "
            "missing in one partition may exist in another one"
        )


def _query_for(context: TableContext, source: pa.Table, on: Sequence[str], *, all_columns: bool) -> SnapshotQuery:
    """Return the query for rows that source rows may match: by their keys if ``on`` names the key fields, else all rows."""
    columns = columns_to_read(context.config)
    keys = context.config.keys.record_fields
    if not all_columns and keys and source.num_rows <= _MAX_KEYS_LOOKED_UP and set(keys) <= set(on):
        # Other columns in `on` are compared after the rows have been read.
        return plan_read_lookup(context, source.select(list(on)).drop_null(), columns, ReadSettings())
    return plan_snapshot_query(context, columns)


def columns_to_read(config: TableConfig) -> list[str] | None:
    """Return None for all columns, or all columns with the meta columns that identify a record."""
    return ["*"] if config.populate_meta_fields else None


def stored_key_columns(config: TableConfig) -> tuple[str, ...]:
    """Return the meta columns by which changed rows name their records, in a table that generates its keys."""
    return (RECORD_KEY, PARTITION_PATH) if config.keys.generates_keys else ()


def data_columns(schema: pa.Schema) -> pa.Schema:
    """Return the columns without the meta columns."""
    return pa.schema([field for field in schema if field.name not in META_COLUMNS])


def evolved_schema(table: pa.Schema, input_schema: pa.Schema, settings: WriteSettings) -> pa.Schema:
    """Return the table's columns after values with ``input_schema`` have been written."""
    known = set(table.names)
    fields = [input_schema.field(f.name) if f.name in input_schema.names else f for f in table]
    new = [field for field in input_schema if field.name not in known]
    return evolve(table, pa.schema([*fields, *new]), settings.schema_mode)


def _check_assigned(config: TableConfig, assignments: Sequence[Assignment]) -> None:
    """Raise InvalidRequest for an assignment to a column that identifies a record."""
    keys = config.keys
    for role, names in (("a record key field", keys.record_fields), ("a partition field", partition_columns(keys))):
        for assignment in assignments:
            if assignment.column in names:
                raise InvalidRequest(
                    f"column {assignment.column!r} is {role}, which cannot be changed: delete the record and upsert it "
                    "with the new value"
                )


def _bound(
    config: TableConfig, table: pa.Schema, source: pa.Schema, on: Sequence[str], clause: Clause, settings: WriteSettings
) -> _BoundClause:
    """Bind the assignments of a clause to columns. Raises the errors of `parse_assignments`."""
    identity = (*config.keys.record_fields, *partition_columns(config.keys))
    if clause.outcome is ClauseAction.DELETE:
        return _BoundClause(clause, ())
    inserts = clause.outcome is ClauseAction.INSERT
    if clause.values is None:
        assigned_names = [name for name in source.names if inserts or name not in identity]
        keeps = () if inserts else tuple(name for name in identity if name in source.names and name not in on)
        return _BoundClause(clause, tuple(Assignment(name, ColumnRef(f"source.{name}")) for name in assigned_names), keeps)
    other_schema = _clause_columns(clause, source, table)
    assignments = parse_assignments(
        clause.values, table, other_schema, fixed_columns(config), truncate_nanoseconds=settings.truncates_nanoseconds
    )
    if not inserts:
        _check_assigned(config, assignments)
        return _BoundClause(clause, assignments)
    assigned = {assignment.column: assignment.value for assignment in assignments}
    for name in on:
        if assigned.get(name) != ColumnRef(f"source.{name}"):
            raise InvalidRequest(f"an inserted row must have the {name!r} that was not matched: assign it 'source.{name}'")
    return _BoundClause(clause, assignments)


def _clause_columns(clause: Clause, source: pa.Schema, table: pa.Schema) -> pa.Schema:
    """Return the columns that a clause may refer to."""
    return _prefixed_columns(
        None if clause.rows is ClauseRows.OF_TARGET else source,
        None if clause.rows is ClauseRows.OF_SOURCE else table,
    )


def _prefixed_columns(source: pa.Schema | None, table: pa.Schema | None) -> pa.Schema:
    """Return columns `source.x` and `target.x` of the sides that exist."""
    sides = {"source": source, "target": table}
    return pa.schema([pa.field(name, pa.struct(list(side)), False) for name, side in sides.items() if side is not None])


# ---------------------------------------------------------------------------------------------------------------------
# Rows


def _read(engine: Engine, query: SnapshotQuery, of: Callable[[pa.Table], pa.Table]) -> pa.Table:
    """Read the rows of a query into memory, filtered by ``of``."""
    tables = engine.map(partial(_read_slice, query.spec, of), query.plan.slices)
    return pa.concat_tables([query.schema.empty_table(), *tables]).combine_chunks()


def _read_slice(spec: ReadSpec, of: Callable[[pa.Table], pa.Table], slice_: FileSlice) -> pa.Table:
    return pa.concat_tables([spec.output.empty_table(), *(of(rows) for rows in run_read(spec, slice_))])


def _all_rows(rows: pa.Table) -> pa.Table:
    return rows


def _matching(rows: pa.Table, *, keys: pa.Table, on: tuple[str, ...]) -> pa.Table:
    """Return the rows that match a source row."""
    return rows.take(pc.unique(_pairs(rows, keys, on).column(_TARGET_ROW)))


def _pairs(rows: pa.Table, keys: pa.Table, on: tuple[str, ...]) -> pa.Table:
    """Return the row numbers of matching source and table rows, in order. A null matches nothing."""
    numbered = rows.select(on).append_column(_TARGET_ROW, pa.array(np.arange(rows.num_rows, dtype=np.int64)))
    matches = keys.join(numbered, list(on), join_type="inner", use_threads=False).select([_SOURCE_ROW, _TARGET_ROW])
    return matches.sort_by([(_SOURCE_ROW, "ascending"), (_TARGET_ROW, "ascending")]).combine_chunks()


def _canonical(source: pa.Table, table: pa.Schema, config: TableConfig, settings: WriteSettings) -> pa.Table:
    """Convert the source to the types of the table. Raises InvalidRequest for types that no table supports."""
    if not settings.truncates_nanoseconds:
        check_no_truncated_nanoseconds(source)
    typed = typed_nulls(with_zones(source.schema, table, zone_mode(settings.without_zone, config.version)), table)
    canonical = conform_table(source, normalize_types(typed)).combine_chunks()
    for batch in canonical.to_batches():
        check_utf8(batch)
    return canonical


def _join_keys(source: pa.Table, table: pa.Schema, on: Sequence[str]) -> pa.Table:
    """The join keys of source rows in the table's types, with row numbers. Rows with a null match nothing and are omitted."""
    missing = [name for name in on if name not in table.names]
    if missing:
        raise InvalidRequest(f"on= names {', '.join(missing)}, which the table lacks; its columns are {', '.join(table.names)}")
    key_schema = pa.schema([table.field(name).with_nullable(True) for name in on])
    evolve(key_schema, pa.schema([source.schema.field(name).with_nullable(True) for name in on]), SchemaMode.STRICT)
    keys = conform_table(source.select(list(on)), key_schema)
    return keys.append_column(_SOURCE_ROW, pa.array(np.arange(source.num_rows, dtype=np.int64))).drop_null()


def _joined_rows(source: pa.Table | None, target: pa.Table | None) -> pa.Table:
    """Return pairs of rows, or rows of one side, with the columns that clauses refer to."""
    schema = _prefixed_columns(None if source is None else source.schema, None if target is None else target.schema)
    return pa.table([_as_struct(side) for side in (source, target) if side is not None], schema=schema)


def _as_struct(rows: pa.Table) -> pa.Array:
    return pa.StructArray.from_arrays(as_batch(rows).columns, fields=list(rows.schema))


def _rows_where(other_rows: pa.Table, where: Filter | None) -> Ints:
    """Return the row numbers for which a condition is true."""
    every = np.arange(other_rows.num_rows, dtype=np.int64)
    if where is None:
        return every
    numbered = other_rows.append_column(_SOURCE_ROW, pa.array(every))
    matching: Ints = row_filter(parse_filter(where), other_rows.schema).select(numbered).column(_SOURCE_ROW).to_numpy()
    return matching


def check_identity(config: TableConfig, rows: pa.Table) -> None:
    """Raise TableState if the columns of a row produce another key or partition than the one it is stored with."""
    if not config.populate_meta_fields or not rows.num_rows:
        return
    batch = as_batch(rows.drop_columns([RECORD_KEY, PARTITION_PATH]))
    expected = {PARTITION_PATH: partition_paths(config.keys, batch)}
    if not config.keys.generates_keys:
        expected[RECORD_KEY] = record_keys(config.keys, batch)
    for name, computed in expected.items():
        stored = pc.cast(rows.column(name), pa.string()).combine_chunks()
        wrong = pc.index(pc.equal(stored, computed), False).as_py()
        if wrong >= 0:
            raise TableState(
                f"a row is stored with {name} {stored[wrong].as_py()!r}, and its columns produce "
                f"{computed[wrong].as_py()!r}: it cannot be written back"
            )


def _check_unchanged(names: Sequence[str], source: pa.Table, target: pa.Table) -> None:
    """Raise InvalidRequest if a source row has another key or partition than the row that it would update."""
    for name in names:
        source_values, target_values = source.column(name), target.column(name)
        if source_values.type != target_values.type:
            source_values = conform_table(
                pa.table({name: source_values}), pa.schema([target.schema.field(name).with_nullable(True)])
            ).column(0)
        differs = pc.or_(
            pc.fill_null(pc.not_equal(source_values, target_values), False),
            pc.xor(pc.is_null(source_values), pc.is_null(target_values)),
        )
        wrong = pc.index(differs, True).as_py()
        if wrong >= 0:
            raise InvalidRequest(
                f"a row of the source has {name}={source_values[wrong].as_py()!r}, and its matching row "
                f"{target_values[wrong].as_py()!r}: key and partition of a record cannot change; add {name!r} to on=, or "
                "upsert the row to move its record"
            )


def _refuse_nulls(inserted: pa.Table) -> None:
    """Raise InvalidRequest for a row to insert with a null in its join columns, which was compared with no record."""
    if any(column.null_count for column in inserted.columns):
        names = ", ".join(inserted.column_names)
        raise InvalidRequest(
            f"a row of the source that would be inserted has a null in {names}, which matches nothing: a record "
            "with that null may exist; upsert such rows"
        )


def _refuse_two_sources(config: TableConfig, rows: pa.Table, matched_rows: Sequence[Ints], target: pa.Table) -> None:
    """Raise InvalidRequest if several source rows match one row of the table: the result would be ambiguous."""
    numbers = np.concatenate([np.zeros(0, dtype=np.int64), *matched_rows])
    seen, counts = np.unique(numbers, return_counts=True)
    if (counts > 1).any():
        row = int(seen[counts > 1][0])
        stored = config.keys.generates_keys
        key = target.column(RECORD_KEY)[row] if stored else record_keys(config.keys, as_batch(rows.slice(row, 1)))[0]
        raise InvalidRequest(
            f"several rows of the source match record {key.as_py()!r}, and each "
            "would change it; remove all but one of them from the source"
        )
    _check_one_row_per_record(
        config.keys, rows.take(pa.array(seen)), "the table has two rows of record {key!r} that would be changed"
    )


def _check_one_row_per_record(keys: KeySpec, rows: pa.Table, text: str, *, assigns_location: bool = True) -> None:
    """Raise InvalidRequest for two rows of one record. ``assigns_location``: the partition is part of its identity."""
    if rows.num_rows < 2 or keys.generates_keys:
        return
    batch = as_batch(rows)
    names = {"key": record_keys(keys, batch)} | ({"place": partition_paths(keys, batch)} if assigns_location else {})
    codes = row_codes(pa.table(names), list(names))
    counts = np.bincount(codes)[codes]
    if (counts > 1).any():
        key = names["key"][int(np.flatnonzero(counts > 1)[0])].as_py()
        raise InvalidRequest(f"{text.format(key=key)}, and an upsert has one row per record")
