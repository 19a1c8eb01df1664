"""Run UPDATE and MERGE: rows are read, changed, and upserted, based on the snapshot that they were read from.

The merge mode of the table decides between the changed row and the stored one: a row whose ordering value is set to an
older one loses. A merge deletes a record unless the source row has a smaller ordering value. If another writer changed a
file group of the write set, or inserted a key that was not found, the whole operation is repeated or raises
WriteConflict.

Source: docs/updates-and-merges.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from pyhudi.errors import InvalidRequest, TableState, Unsupported
from pyhudi.format.arrow_to_avro import arrow_to_avro
from pyhudi.format.meta_columns import PARTITION_PATH, RECORD_KEY
from pyhudi.operations.admin.table_settings import zone_mode
from pyhudi.operations.changes.bound_clauses import SOURCE, TARGET, BoundClause, bind_clauses
from pyhudi.operations.changes.changed_rows import JoinedRows, RowChanges, data_columns, stored_places
from pyhudi.operations.changes.statement import Clause
from pyhudi.operations.commit.check_writable import check_writable
from pyhudi.operations.commit.events import observed
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.read.query import SnapshotQuery, plan_snapshot_query
from pyhudi.operations.read.semi_join import MAX_JOIN_KEYS, semi_join_filter
from pyhudi.operations.write.write_attempt import raise_stale_on_missing_file, retry_on_conflict
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.records.keys.key_spec import partition_columns
from pyhudi.records.merge_mode import MergeMode
from pyhudi.records.ordering import NO_ORDERING
from pyhudi.records.record_merge import OneRowPerRecord
from pyhudi.records.schema_cast import conform_table
from pyhudi.records.schema_evolution import typed_nulls
from pyhudi.records.timestamp_coercion import check_no_truncated_nanoseconds, with_zones
from pyhudi.records.type_normalization import normalize_types
from pyhudi.records.utf8_checks import check_utf8
from pyhudi.table.file_slices import FileSlice
from pyhudi.table.snapshot import load_snapshot
from pyhudi.table.table_config import TableConfig
from pyhudi.table.table_context import TableContext
from pyhudi.tasks.engine_protocol import Engine
from pyhudi.tasks.read_slice import ReadSpec, run_read

_Planned = TypeVar("_Planned")

_SEVERAL_SOURCES = (
    "several rows of the source would change or insert record {key!r}, or the table holds it twice, and none has the largest "
    "ordering value: {rows}. Leave one of them in the source"
)
_SEVERAL_ROWS = "the table holds several rows of record {key!r} that would be changed: {rows}; an upsert has one row per record"


class Evaluator(Protocol):
    """The statement, on one engine: its source rows, and their joins with rows of the table."""

    def load(self, config: TableConfig, table: pa.Schema) -> tuple[pa.Table | None, Sequence[Clause]]:
        """Return the source rows, None for an update, and the clauses, for a table; called again after a conflict."""
        ...

    def equated(self, table: pa.Schema, source: pa.Schema) -> Mapping[str, str] | None:
        """Return the columns of the source by the column of the table that they equal in matching rows.

        None if rows match by another condition.
        """
        ...

    def plan(self, context: TableContext) -> SnapshotQuery:
        """Plan the query of the rows of the table that the statement can change."""
        ...

    def join(self, query: SnapshotQuery, source: pa.Table | None, clauses: Sequence[BoundClause]) -> Sequence[JoinedRows]:
        """Return the rows of each clause: those for which it is the first clause whose condition is true."""
        ...


def run_embedded_changes(
    context: TableContext,
    engine: Engine,
    evaluator: Evaluator,
    settings: WriteSettings,
    *,
    first_columns: pa.Schema | None = None,
    aliases: tuple[str, str] = (TARGET, SOURCE),
    by_name: bool = True,
) -> WriteResult:
    """Run an update, or a merge with source rows, in this process.

    Args:
        context: The table.
        engine: Reads and writes the rows.
        evaluator: The statement.
        settings: Settings of the write.
        first_columns: Columns of a table without columns; None for an update.
        aliases: Qualifiers of the columns of table and source.
        by_name: Fields of structs are matched by name; False matches them by position, as in SQL.

    Raises:
        InvalidRequest: Clauses are invalid for the table, a value does not fit its column, or two rows change one record.
        Unsupported: The table does not support updates.
        WriteConflict: See `run_write`.
    """

    def change(query: SnapshotQuery) -> pa.Table:
        config, table = query.snapshot.config, data_columns(query.schema)
        source, clauses = evaluator.load(config, table)
        rows = None if source is None else table_typed(source, table, config, settings)
        bound = bind_clauses(clauses, table, None if rows is None else rows.schema, config, settings, aliases)
        rule = one_row_per_record(config, has_source=source is not None)
        equated = None if rows is None else evaluator.equated(table, rows.schema)
        changes = RowChanges(config, settings, table, rows, bound, equated, by_name, rule)
        joined = evaluator.join(query, rows, bound)
        return changes.rows(joined, partial(_read_places, query.snapshot.context, engine))

    # The changed rows are compared before they reach the write.
    one_row = OneRowPerRecord(_SEVERAL_ROWS)
    return run_changes(
        context, engine, evaluator.plan, change, settings, description="a change", one_row=one_row, first_columns=first_columns
    )


@observed("change")
def run_changes(
    context: TableContext,
    engine: Engine,
    plan: Callable[[TableContext], SnapshotQuery],
    change: Callable[[SnapshotQuery], Any],
    settings: WriteSettings,
    *,
    description: str,
    one_row: OneRowPerRecord,
    first_columns: pa.Schema | None = None,
) -> WriteResult:
    """Upsert the rows that an engine computes from the rows of a query.

    Args:
        context: The table.
        engine: Writes the rows.
        plan: Returns the query for the current table.
        change: Returns the changed rows of a query as input of the engine, with DELETE_COLUMN.
        settings: Settings of the write.
        description: Name of the operation, for messages.
        one_row: Rule between changed rows of one record.
        first_columns: Columns that a table without columns takes; None raises TableState for it.

    Raises:
        InvalidRequest, Unsupported, WriteConflict: See `run_embedded_changes`.
    """
    _check_can_change(context, settings, description)

    def attempt(context: TableContext) -> WriteResult:
        current = context.reloaded()
        query = on_columns(current, first_columns, plan)
        with raise_stale_on_missing_file(query.snapshot):
            is_new = current.config.create_schema != query.snapshot.config.create_schema
            base = replace(query.snapshot, context=current, schema=None) if is_new else query.snapshot
            return run_write(context, engine, change(query), settings, base_snapshot=base, marks_deletes=True, repeated=one_row)

    return retry_on_conflict(context, settings.commit, attempt)


def on_columns(context: TableContext, columns: pa.Schema | None, plan: Callable[[TableContext], _Planned]) -> _Planned:
    """Plan on a table. One without commits that was created without a schema is planned on with other columns.

    Raises:
        TableState: The table has no columns, and ``columns`` is None.
    """
    try:
        return plan(context)
    except TableState:
        if columns is None or load_snapshot(context).schema is not None:
            raise
        text = arrow_to_avro(normalize_types(columns), context.config.name)
        return plan(replace(context, config=replace(context.config, create_schema=text)))


def one_row_per_record(config: TableConfig, *, has_source: bool) -> OneRowPerRecord:
    """Return the rule between changed rows of one record: their ordering values decide if they come from source rows."""
    if not has_source:
        return OneRowPerRecord(_SEVERAL_ROWS)
    decides = config.merge.mode is MergeMode.EVENT_TIME_ORDERING
    return OneRowPerRecord(_SEVERAL_SOURCES, config.merge.ordering if decides else NO_ORDERING)


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


def table_typed(source: pa.Table, table: pa.Schema, config: TableConfig, settings: WriteSettings) -> pa.Table:
    """Convert the source to types that a table can store. Raises InvalidRequest for types and values that none stores."""
    if not settings.truncates_nanoseconds:
        check_no_truncated_nanoseconds(source)
    typed = typed_nulls(with_zones(source.schema, table, zone_mode(settings.without_zone, config.version)), table)
    converted = conform_table(source, normalize_types(typed)).combine_chunks()
    for batch in converted.to_batches():
        check_utf8(batch)
    return converted


# ---------------------------------------------------------------------------------------------------------------------
# Reads


def read_rows(engine: Engine, query: SnapshotQuery, chosen: Callable[[pa.Table], pa.Table] = lambda rows: rows) -> pa.Table:
    """Read the rows of a query into memory, those that a function of rows returns."""
    tables = engine.map(partial(_read_slice, query.spec, chosen), query.plan.slices)
    return pa.concat_tables([query.schema.empty_table(), *tables]).combine_chunks()


def _read_slice(spec: ReadSpec, chosen: Callable[[pa.Table], pa.Table], slice_: FileSlice) -> pa.Table:
    return pa.concat_tables([spec.output.empty_table(), *(chosen(rows) for rows in run_read(spec, slice_))])


def _read_places(context: TableContext, engine: Engine, keys: pa.Table) -> pa.Table:
    """Record keys and partition paths of the stored rows that may have the record keys of rows."""
    config = context.config
    fields = (*config.keys.record_fields, *partition_columns(config.keys))
    columns = [RECORD_KEY, PARTITION_PATH] if config.populate_meta_fields else list(dict.fromkeys(fields))
    query = plan_snapshot_query(context, columns)
    # Null matches nothing in a join, but can be part of a key.
    if keys.num_rows <= MAX_JOIN_KEYS and not any(column.null_count for column in keys.columns):
        query = semi_join_filter(query, keys)
    return pa.table(list(stored_places(config, read_rows(engine, query))), names=[RECORD_KEY, PARTITION_PATH])
