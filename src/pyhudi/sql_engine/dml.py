"""DML on the embedded engine: UPDATE, DELETE and MERGE. DuckDB computes rows from one snapshot, written as one commit.

    UPDATE   the rows that match the condition, with the assigned values
    DELETE   the keys of the rows that match the condition
    MERGE    for each clause, the joined rows of table and source for which it is the first matching clause

The commit is based on the snapshot from which the rows were computed; after a conflict with another writer they are
computed again. A record keeps its key and its partition. The changed rows are held in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.api.scan import Scan
from pyhudi.api.table_handle import TableHandle
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.format.meta_columns import META_COLUMNS, PARTITION_PATH, RECORD_KEY
from pyhudi.operations.admin.stored_settings import column_default
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.read.query import SnapshotQuery, plan_snapshot_query
from pyhudi.operations.read.semi_join import MAX_JOIN_KEYS, semi_join_filter
from pyhudi.operations.write.clauses import Clause, ClauseAction, ClauseRows, DeleteStatement, MergeStatement, UpdateStatement
from pyhudi.operations.write.delete_where import key_names, run_delete_where
from pyhudi.operations.write.update_merge import (
    check_identity,
    columns_to_read,
    data_columns,
    delete_ordering,
    run_merge_changes,
    stored_key_columns,
)
from pyhudi.operations.write.write_schemas import fixed_columns
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.declaration import Options
from pyhudi.options.write_options import THREADS, TIMESTAMPS_NANOSECONDS
from pyhudi.records.filters.binding import bind
from pyhudi.records.filters.filter_ast import Expr
from pyhudi.records.filters.filter_parser import Filter
from pyhudi.records.filters.pushdown import compares_identically
from pyhudi.records.keys.key_spec import partition_columns
from pyhudi.records.ordering import Ordering, delete_applies
from pyhudi.records.schema_cast import same_type
from pyhudi.records.sql_quoting import quote_identifier
from pyhudi.records.store_assignment import check_storable, stored
from pyhudi.sql_engine import sql_ast as S
from pyhudi.sql_engine.column_aliases import check_alias
from pyhudi.sql_engine.duckdb_engine import Database, RowSource, read_spark
from pyhudi.sql_engine.sql_pushdown import equality_columns, is_exact_in_duckdb, row_predicate
from pyhudi.table.table_config import TableConfig
from pyhudi.tasks.incoming_layout import DELETE_COLUMN

__all__ = ["delete_rows", "merge_rows", "update_rows"]

_TARGET, _SOURCE, _MARK, _KEPT = "pyhudi_target", "pyhudi_source", "pyhudi_is_there", "pyhudi_keeps_its_place"
_ORDERING = "pyhudi_ordering_"


class Prepare(Protocol):
    """Translates a query or an expression to DuckDB's dialect, and registers the tables that it reads in the database."""

    def __call__(self, database: Database, query: S.SelectQuery, *, expression: bool = False) -> str: ...


def update_rows(
    table: TableHandle, parsed: Options, change: UpdateStatement, prepare: Prepare, among: Filter | None = None
) -> WriteResult:
    """Execute UPDATE.

    Args:
        parsed: Options of the write.
        change: The update; values and conditions are parsed SQL, values can be scalars.
        prepare: Translation of expressions.
        among: Filter on the rows, in addition to the condition.

    Raises:
        InvalidRequest: Unknown columns, and key and partition fields.
    """

    def changed(query: SnapshotQuery) -> pa.Table:
        columns, config = data_columns(query.schema), table.context.config
        with _opened(query, change.alias or "target", change.where, parsed) as (database, target):
            assigned = _assigned(config, database, columns, change.values, prepare)
            _check_identity_stays(config, assigned)
            where = "" if change.where is None else f" WHERE ({prepare(database, change.where, expression=True)})"
            values = [assigned.get(name, f"{target}.{quote_identifier(name)}") for name in columns.names]
            text = _select(values, _identity(query), target) + f" FROM {_TARGET} AS {target}{where}"
            rows = _rows(config, database, text, columns, _identity(query))
        check_identity(config, rows)
        return _marked(rows.select([*columns.names, *stored_key_columns(config)]), deletes=False)

    return _changed(table, parsed, "update", changed, "the table has two rows of record {key!r} that match the condition", among)


def delete_rows(table: TableHandle, parsed: Options, change: DeleteStatement, prepare: Prepare) -> WriteResult:
    """Execute DELETE. Arguments as in `update_rows`."""
    names = key_names(table.context.config)

    def keys_of(query: SnapshotQuery) -> pa.Table:
        with _opened(query, change.alias or "target", change.where, None) as (database, target):
            where = "" if change.where is None else f" WHERE ({prepare(database, change.where, expression=True)})"
            keys = ", ".join(f"{target}.{quote_identifier(name)}" for name in names)
            matches = database.table(f"SELECT {keys} FROM {_TARGET} AS {target}{where}")
        return matches.cast(pa.schema([query.schema.field(name).with_nullable(True) for name in names]))

    engine = LocalEngine(parsed.integer(THREADS))
    return table.write(
        lambda settings: run_delete_where(table.load_context(parsed), engine, None, settings, keys_of, all_columns=True),
        WriteSettings.of(parsed, WriteOperation.DELETE),
    )


def merge_rows(table: TableHandle, parsed: Options, change: MergeStatement, prepare: Prepare) -> WriteResult:
    """Execute MERGE. The source is a parsed query, or an Arrow table; other arguments as in `update_rows`.

    Raises:
        InvalidRequest: Two rows change one record, or an existing record would be inserted.
    """
    _refuse_queries(change)
    has_one_place = WriteSettings.of(parsed, WriteOperation.UPSERT).index.index_type.is_global

    def changed(query: SnapshotQuery) -> pa.Table:
        with closing(Database(truncates_nanoseconds=_truncates_nanoseconds(parsed))) as database:
            merge = _StatementMerge.of(table.context.config, change, query, database, prepare)
            database.add(_TARGET, RowSource(Scan(merge.candidate_rows(change)).to_reader))
            parts = [merge.changed(number, clause) for number, clause in enumerate(change.clauses)]
            for part, clause in zip(parts, change.clauses, strict=True):
                if clause.outcome is ClauseAction.INSERT and not merge.config.keys.generates_keys:
                    merge.check_no_existing_keys(part, in_any_partition=has_one_place)
        return pa.concat_tables(parts)

    message = "several rows of the source would change or insert record {key!r}: leave one of them in the source"
    return _changed(table, parsed, "merge", changed, message)


@dataclass(frozen=True, slots=True)
class _StatementMerge:
    """A merge with one snapshot of the table.

    Attributes:
        config: Configuration of the table.
        query: Query of all rows of the table.
        database: Database with the source rows.
        target: Quoted alias of the table.
        source: Quoted alias of the source.
        source_columns: Columns of the source.
        on: The ON condition, in DuckDB's dialect.
        conditions: Condition of each clause, in DuckDB's dialect.
        prepare: Translation of expressions.
    """

    config: TableConfig
    query: SnapshotQuery
    database: Database
    target: str
    source: str
    source_columns: tuple[str, ...]
    on: str
    conditions: tuple[str, ...]
    prepare: Prepare

    @classmethod
    def of(
        cls, config: TableConfig, statement: MergeStatement, query: SnapshotQuery, database: Database, prepare: Prepare
    ) -> _StatementMerge:
        aliases: tuple[str, ...] = ()
        if isinstance(statement.source, pa.Table):
            name = database.new_name()
            database.add(name, statement.source)
            text = f"SELECT * FROM {name}"
        else:
            text, aliases = prepare(database, statement.source), statement.source.column_names
        columns = database.schema(text).names
        if aliases:
            check_alias(statement.source_alias, len(aliases), len(columns))
        given = tuple(name for name in columns if name not in META_COLUMNS)
        database.known_columns.update((*query.schema.names, *given))
        # Computed once: each clause joins with the same rows.
        database.materialize(_SOURCE, f"SELECT {', '.join(map(quote_identifier, given))}, TRUE AS {_MARK} FROM ({text})")
        target, source = quote_identifier(statement.target_alias), quote_identifier(statement.source_alias)
        rows = {
            ClauseRows.MATCHED: f"{target}.{_MARK} AND {source}.{_MARK}",
            ClauseRows.OF_SOURCE: f"{target}.{_MARK} IS NULL",
            ClauseRows.OF_TARGET: f"{source}.{_MARK} IS NULL",
        }
        conditions = []
        for clause in statement.clauses:
            also = "" if clause.where is None else f" AND ({prepare(database, clause.where, expression=True)})"
            conditions.append(rows[clause.rows] + also)
        on = prepare(database, statement.on, expression=True)
        return cls(config, query, database, target, source, given, on, tuple(conditions), prepare)

    def candidate_rows(self, statement: MergeStatement) -> SnapshotQuery:
        """Table rows that source rows can match; all rows if a clause applies to rows that are not matched by the source."""
        if any(clause.rows is ClauseRows.OF_TARGET for clause in statement.clauses):
            return self.query
        tree, schema, alias = read_spark(statement.on.body.text, expression=True), self.query.schema, statement.target_alias
        predicate = row_predicate(tree, alias, schema, has_single_table=False, is_plain=is_exact_in_duckdb)
        candidates = _narrowed(self.query, predicate)
        equated = equality_columns(tree, alias, statement.source_alias)
        named = {name.casefold(): name for name in self.source_columns}
        held = self.database.schema(f"SELECT * FROM {_SOURCE}")
        pairs = {
            field.name: named[theirs]
            for field in schema
            if (theirs := equated.get(field.name.casefold())) in named
            and compares_identically(field.type)
            and same_type(field.type, held.field(named[theirs]).type)
        }
        if not pairs:
            return candidates
        columns = ", ".join(f"{quote_identifier(theirs)} AS {quote_identifier(ours)}" for ours, theirs in pairs.items())
        keys = self.database.table(f"SELECT DISTINCT {columns} FROM {_SOURCE} LIMIT {MAX_JOIN_KEYS + 1}")
        return candidates if keys.num_rows > MAX_JOIN_KEYS else semi_join_filter(candidates, keys)

    def changed(self, number: int, clause: Clause) -> pa.Table:
        """The rows of a clause in the form in which they are written, with a delete marker."""
        columns = data_columns(self.query.schema)
        stored_names = stored_key_columns(self.config)
        inserts = clause.outcome is ClauseAction.INSERT
        identity = stored_names if inserts else _identity(self.query)
        values, keeps = self._values(clause, columns)
        earlier = "".join(f" AND NOT coalesce({condition}, FALSE)" for condition in self.conditions[:number])
        join = {
            ClauseRows.MATCHED: "JOIN",
            ClauseRows.OF_SOURCE: "RIGHT JOIN",
            ClauseRows.OF_TARGET: "LEFT JOIN",
        }[clause.rows]
        ordering, ordered = self._delete_ordering(clause)
        source_values = "".join(f", {self.source}.{quote_identifier(name)} AS {_ORDERING}{at}" for at, name in enumerate(ordered))
        text = (
            f"{_select(values, identity, self.target)}, ({keeps}) AS {_KEPT}{source_values} "
            f"FROM (SELECT *, TRUE AS {_MARK} FROM {_TARGET}) AS {self.target} {join} {_SOURCE} AS {self.source} ON ({self.on}) "
            f"WHERE ({self.conditions[number]}){earlier}"
        )
        heads = () if ordering is None else ordering.heads
        more = [columns.field(head).with_name(f"{_ORDERING}{at}").with_nullable(True) for at, head in enumerate(heads)]
        rows = _rows(self.config, self.database, text, columns, identity, more=(pa.field(_KEPT, pa.bool_()), *more))
        if ordering is not None:
            deleting = rows.select([field.name for field in more]).rename_columns(list(heads))
            rows = rows.filter(pa.array(delete_applies(ordering, rows, deleting)))
        if not pc.all(rows.column(_KEPT), min_count=0).as_py():
            raise InvalidRequest(
                "a MERGE would change the key or partition of a record, which keeps both: delete the record and insert it under "
                "another key, or assign the other columns only"
            )
        if identity and not inserts:
            check_identity(self.config, rows.drop_columns([_KEPT, *(field.name for field in more)]))
        return _marked(rows.select([*columns.names, *stored_names]), deletes=clause.outcome is ClauseAction.DELETE)

    def _delete_ordering(self, clause: Clause) -> tuple[Ordering | None, Sequence[str]]:
        """The ordering that decides whether a clause deletes a row, and the columns of the source that have its values."""
        if clause.outcome is not ClauseAction.DELETE or clause.rows is not ClauseRows.MATCHED:
            return None, ()
        named = {name.casefold(): name for name in self.source_columns}
        heads = [head for head in self.config.merge.ordering.heads if head.casefold() in named]
        ordering = delete_ordering(self.config, heads)
        return ordering, () if ordering is None else [named[head.casefold()] for head in ordering.heads]

    def _values(self, clause: Clause, columns: pa.Schema) -> tuple[list[str], str]:
        """Value of each table column, and the condition that a source row has the key and partition of the changed row."""
        inserts = clause.outcome is ClauseAction.INSERT
        if clause.outcome is ClauseAction.DELETE:
            return [f"{self.target}.{quote_identifier(name)}" for name in columns.names], "TRUE"
        if clause.values is None:
            values, keeps = self._all_of_source(columns, inserts=inserts)
        else:
            values, keeps = _assigned(self.config, self.database, columns, clause.values, self.prepare), "TRUE"
            if not inserts:
                values, keeps = self._without_identity(values)
        if inserts:
            omitted: dict[str, Any] = {name: None for name in columns.names if name not in values}
            values |= _assigned(self.config, self.database, columns, omitted, self.prepare)
        return [values.get(name, f"{self.target}.{quote_identifier(name)}") for name in columns.names], keeps

    def _all_of_source(self, columns: pa.Schema, *, inserts: bool) -> tuple[dict[str, str], str]:
        by_name = {name.lower(): name for name in columns.names}
        unknown = [name for name in self.source_columns if name.lower() not in by_name]
        if unknown:
            raise Unsupported(
                f"`*` in a clause of MERGE, but the source has columns that the table lacks ({', '.join(unknown)}): name the "
                "columns, or ALTER TABLE first"
            )
        every = {by_name[name.lower()]: f"{self.source}.{quote_identifier(name)}" for name in self.source_columns}
        return (every, "TRUE") if inserts else self._without_identity(every)

    def _without_identity(self, values: dict[str, str]) -> tuple[dict[str, str], str]:
        """The values without key and partition fields, and the condition that these are those of the table row."""
        placing = {*self.config.keys.record_fields, *partition_columns(self.config.keys)}
        same = [
            f"{self.target}.{quote_identifier(name)} IS NOT DISTINCT FROM ({text})"
            for name, text in values.items()
            if name in placing
        ]
        return {name: text for name, text in values.items() if name not in placing}, " AND ".join(same) or "TRUE"

    def check_no_existing_keys(self, inserted: pa.Table, *, in_any_partition: bool) -> None:
        """Raise InvalidRequest if a row to be inserted has the key of a stored record that ON did not match."""
        if not inserted.num_rows:
            return
        keys = self.config.keys
        names = keys.record_fields if in_any_partition else (*keys.record_fields, *partition_columns(keys))
        name, existing = self.database.new_name(), self.database.new_name()
        self.database.add(name, inserted)
        self.database.add(existing, RowSource(Scan(self._with_keys_of(inserted)).to_reader))
        same = " AND ".join(f"t.{quote_identifier(column)} IS NOT DISTINCT FROM i.{quote_identifier(column)}" for column in names)
        key_list = ", ".join(f"i.{quote_identifier(column)}" for column in names)
        rows = self.database.table(f"SELECT {key_list} FROM {name} AS i SEMI JOIN {existing} AS t ON {same} LIMIT 1").to_pylist()
        if rows:
            raise InvalidRequest(
                f"MERGE would insert a record that the table has, and that ON does not match: {rows[0]}; compare the record "
                "key in ON"
            )

    def _with_keys_of(self, inserted: pa.Table) -> SnapshotQuery:
        """Table rows that can have the same record keys as the given rows."""
        fields = self.config.keys.record_fields
        if not set(fields) <= set(inserted.column_names) or inserted.num_rows > MAX_JOIN_KEYS:
            return self.query
        keys = inserted.select(fields)
        # Null matches nothing, but can be part of a key.
        return self.query if any(column.null_count for column in keys.columns) else semi_join_filter(self.query, keys)


# ---------------------------------------------------------------------------------------------------------------------
# Rows


@contextmanager
def _opened(
    query: SnapshotQuery, alias: str, where: S.SelectQuery | None, stores: Options | None
) -> Iterator[tuple[Database, str]]:
    """A database with the table rows for which a condition can be true, and the quoted alias of the table.

    stores: options of a statement that stores values; None if it stores none.
    """
    predicate = None
    if where is not None:
        tree = read_spark(where.body.text, expression=True)
        predicate = row_predicate(tree, alias, query.schema, is_plain=is_exact_in_duckdb)
    with closing(Database(truncates_nanoseconds=stores is None or _truncates_nanoseconds(stores))) as database:
        database.known_columns.update(query.schema.names)
        database.add(_TARGET, RowSource(Scan(_narrowed(query, predicate)).to_reader))
        yield database, quote_identifier(alias)


def _truncates_nanoseconds(options: Options) -> bool:
    return bool(options.value_or_default(TIMESTAMPS_NANOSECONDS) == "cut")


def _narrowed(query: SnapshotQuery, predicate: Expr | None) -> SnapshotQuery:
    return query if predicate is None else query.narrowed(None, bind(predicate, query.schema))


def _changed(
    table: TableHandle,
    parsed: Options,
    operation: str,
    change: Callable[[SnapshotQuery], Any],
    repeated: str,
    among: Filter | None = None,
) -> WriteResult:
    engine = LocalEngine(parsed.integer(THREADS))
    return table.write(
        lambda settings: run_merge_changes(
            table.load_context(parsed),
            engine,
            lambda context: plan_snapshot_query(context, columns_to_read(context.config), among),
            change,
            settings,
            description=f"the statement {operation.upper()}",
            repeated=repeated,
        ),
        WriteSettings.of(parsed, WriteOperation.UPSERT),
    )


def _assigned(
    config: TableConfig, database: Database, columns: pa.Schema, assignments: Mapping[str, Any], prepare: Prepare
) -> dict[str, str]:
    """The assigned values by column, in DuckDB's dialect."""
    by_name = {name.lower(): name for name in columns.names}
    values: dict[str, str] = {}
    for column, value in assignments.items():
        name = by_name.get(column.lower())
        if name is None:
            if column.partition(".")[0].lower() in by_name:
                raise Unsupported(f"a field inside of a struct is assigned: {column}; assign the whole struct")
            raise InvalidRequest(f"column {column} cannot be assigned: the table has {', '.join(columns.names)}")
        if name in values:
            raise InvalidRequest(f"column {name} is assigned twice")
        if value is None:
            default = column_default(config, columns.field(name))
            value = default if default.is_valid else S.SelectQuery(S.Fragment("NULL"), ())
        if isinstance(value, pa.Scalar):
            literal = database.new_name()
            database.add(literal, pa.table({"value": pa.repeat(value, 1)}))
            values[name] = f"SELECT value FROM {literal}"
            continue
        values[name] = prepare(database, value, expression=True)
    return values


def _check_identity_stays(config: TableConfig, assigned: dict[str, str]) -> None:
    placing = [name for name in (*config.keys.record_fields, *partition_columns(config.keys)) if name in assigned]
    if placing:
        raise InvalidRequest(
            f"column {placing[0]!r} is a key or partition field and cannot be assigned: delete the record and "
            "insert it under another key"
        )


def _identity(query: SnapshotQuery) -> tuple[str, ...]:
    """Meta columns that identify the record of a row, if the table has them."""
    return tuple(name for name in (RECORD_KEY, PARTITION_PATH) if name in query.schema.names)


def _select(values: Sequence[str], identity: Sequence[str], target: str) -> str:
    return (
        f"SELECT {', '.join([*(f'({value})' for value in values), *(f'{target}.{quote_identifier(name)}' for name in identity)])}"
    )


def _rows(
    config: TableConfig,
    database: Database,
    text: str,
    columns: pa.Schema,
    identity: Sequence[str],
    more: Sequence[pa.Field] = (),
) -> pa.Table:
    """Rows of a query: the table's columns in their stored types, followed by further columns."""
    row_schema = pa.schema([*columns, *(pa.field(name, pa.string()) for name in identity), *more])
    check_storable(database.schema(text), row_schema, casts_text=True)
    return pa.Table.from_batches(
        (stored(batch, row_schema, fixed_columns(config)) for batch in database.batches(text)), row_schema
    )


def _marked(rows: pa.Table, *, deletes: bool) -> pa.Table:
    return rows.append_column(DELETE_COLUMN, pa.repeat(pa.scalar(deletes), rows.num_rows))


def _refuse_queries(statement: MergeStatement) -> None:
    """Raise Unsupported for subqueries in the conditions and values of a merge."""
    expressions = [statement.on, *(clause.where for clause in statement.clauses)]
    expressions += [value for clause in statement.clauses for value in (clause.values or {}).values()]
    for expression in expressions:
        if isinstance(expression, S.SelectQuery) and expression.references:
            raise Unsupported(f"a query within a condition or a value of MERGE ({expression.body.text}); join it behind USING")
