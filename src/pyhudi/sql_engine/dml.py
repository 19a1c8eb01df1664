"""DML on the embedded engine: UPDATE, DELETE and MERGE, of SQL and of `Table.update` and `Table.merge` with SQL expressions.

DuckDB joins the rows of one snapshot, chooses the clause of each, and computes expressions; `operations.changes` makes the
rows to write from that. The changed rows are held in memory.

Values and conditions of the Python methods that filters and literals express keep their meaning (docs/filters.md); other
text is an expression of Spark SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from pyhudi.api.scan import Scan
from pyhudi.api.table_handle import TableHandle
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import Unsupported
from pyhudi.format.meta_columns import META_COLUMNS
from pyhudi.operations.changes.bound_clauses import SOURCE, TARGET, BoundClause, explicit_values, resolve_name
from pyhudi.operations.changes.changed_rows import JoinedRows, columns_to_read, identifying_columns
from pyhudi.operations.changes.run_changes import Evaluator, run_embedded_changes
from pyhudi.operations.changes.statement import (
    Clause,
    ClauseAction,
    ClauseRows,
    Computed,
    DeleteStatement,
    MergeStatement,
    UpdateStatement,
)
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.read.query import SnapshotQuery, plan_snapshot_query
from pyhudi.operations.read.semi_join import MAX_JOIN_KEYS, semi_join_filter
from pyhudi.operations.write.delete_where import key_names, run_delete_where
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.declaration import Options
from pyhudi.options.write_options import THREADS, TIMESTAMPS_NANOSECONDS
from pyhudi.records.filters.binding import bind
from pyhudi.records.filters.filter_ast import Expr
from pyhudi.records.filters.filter_parser import Filter, is_filter
from pyhudi.records.filters.pushdown import compares_identically
from pyhudi.records.record_merge import combine_to_array
from pyhudi.records.schema_cast import same_type
from pyhudi.records.sql_quoting import quote_identifier, quote_name
from pyhudi.records.store_assignment import stored
from pyhudi.sql_engine import sql_ast as S
from pyhudi.sql_engine.column_aliases import check_alias
from pyhudi.sql_engine.duckdb_engine import Database, RowSource, read_spark, to_duck
from pyhudi.sql_engine.sql_pushdown import conjuncts, equality_columns, is_exact_in_duckdb, row_predicate
from pyhudi.sql_engine.table_references import parse_expression_text
from pyhudi.table.table_config import TableConfig
from pyhudi.table.table_context import TableContext

__all__ = ["delete_rows", "merge_by_sql", "merge_rows", "update_by_sql", "update_rows"]

_TARGET, _SOURCE, _MARK = "pyhudi_target", "pyhudi_source", "pyhudi_is_there"
_ROW, _CLAUSE, _VALUE = "pyhudi_source_row", "pyhudi_clause", "pyhudi_value_"


class Prepare(Protocol):
    """Translates a query or an expression to DuckDB's dialect, and registers the tables that it reads in the database."""

    def __call__(self, database: Database, query: S.SelectQuery, *, expression: bool = False) -> str: ...


# ---------------------------------------------------------------------------------------------------------------------
# Statements


def update_rows(table: TableHandle, parsed: Options, change: UpdateStatement, prepare: Prepare) -> WriteResult:
    """Execute UPDATE.

    Args:
        table: The table.
        parsed: Options of the write.
        change: The update; values and conditions are parsed SQL.
        prepare: Translation of expressions.

    Raises:
        InvalidRequest: Unknown columns, and other values for key fields.
    """
    clause = Clause(ClauseAction.UPDATE, change.values, rows=ClauseRows.OF_TARGET)
    return _run(
        table, parsed, _UpdateRows(prepare, parsed, change.where, change.alias or TARGET, clause, is_sql=True), by_name=False
    )


def update_by_sql(table: TableHandle, options: Options, statement: UpdateStatement) -> WriteResult:
    """Run `Table.update`. Raises InvalidRequest for expressions that do not fit the table, Unsupported for subqueries."""
    filters = statement.where is not None and is_filter(statement.where)
    where = None if filters or statement.where is None else _condition(statement.where)
    clause = Clause(ClauseAction.UPDATE, statement.values, rows=ClauseRows.OF_TARGET)
    among = statement.where if filters else None
    return _run(table, options, _UpdateRows(_prepare, options, where, TARGET, clause, among, is_sql=False))


def merge_rows(table: TableHandle, parsed: Options, change: MergeStatement, prepare: Prepare) -> WriteResult:
    """Execute MERGE. The source is a parsed query; other arguments as in `update_rows`.

    Raises:
        InvalidRequest: Two rows change one record, or an existing record would be inserted.
    """
    _refuse_queries(change)
    return _run(table, parsed, _MergeRows(prepare, parsed, change, is_sql=True), by_name=False)


def merge_by_sql(table: TableHandle, options: Options, statement: MergeStatement) -> WriteResult:
    """Run `Table.merge`. Errors as in `update_by_sql`."""
    target, source = statement.target_alias, statement.source_alias
    names = statement.on if isinstance(statement.on, tuple) else ()
    equated = [f"{_quoted(target, name)} = {_quoted(source, name)}" for name in names]
    on = _expression(" AND ".join(equated)) if names else _condition(statement.on)
    conditions = [None if clause.where is None else _condition(clause.where) for clause in statement.clauses]
    clauses = tuple(replace(clause, where=where) for clause, where in zip(statement.clauses, conditions, strict=True))
    evaluator = _MergeRows(_prepare, options, replace(statement, on=on, clauses=clauses), is_sql=False)
    return _run(table, options, evaluator, first_columns=statement.source.schema, aliases=(target, source))


def delete_rows(table: TableHandle, parsed: Options, change: DeleteStatement, prepare: Prepare) -> WriteResult:
    """Execute DELETE. Arguments as in `update_rows`."""
    names = key_names(table.context.config)

    def keys_of(query: SnapshotQuery) -> pa.Table:
        with _opened(query, change.alias or TARGET, change.where, None) as (database, target):
            where = "" if change.where is None else f" WHERE ({prepare(database, change.where, expression=True)})"
            keys = ", ".join(f"{target}.{quote_identifier(name)}" for name in names)
            matches = database.table(f"SELECT {keys} FROM {_TARGET} AS {target}{where}")
        return matches.cast(pa.schema([query.schema.field(name).with_nullable(True) for name in names]))

    engine = LocalEngine(parsed.integer(THREADS))
    return table.write(
        lambda settings: run_delete_where(table.load_context(parsed), engine, None, settings, keys_of, all_columns=True),
        WriteSettings.of(parsed, WriteOperation.DELETE),
    )


def _run(table: TableHandle, parsed: Options, evaluator: Evaluator, **how: Any) -> WriteResult:
    engine = LocalEngine(parsed.integer(THREADS))
    return table.write(
        lambda settings: run_embedded_changes(table.load_context(parsed), engine, evaluator, settings, **how),
        WriteSettings.of(parsed, WriteOperation.UPSERT),
    )


# ---------------------------------------------------------------------------------------------------------------------
# Expressions of Python methods


def _condition(condition: Any) -> S.SelectQuery:
    if not isinstance(condition, str):
        raise Unsupported("a statement with computed values or a condition in on= takes its conditions as SQL text")
    if "\\" in condition and is_filter(condition):
        raise Unsupported(f"condition {condition!r}: a backslash is an escape in SQL, and not in filters")
    return _expression(condition)


def _expression(text: str) -> S.SelectQuery:
    expression = parse_expression_text(text, S.Fragment(text))
    if expression.references:
        raise Unsupported(f"a query within {text!r}: Table.update and Table.merge evaluate expressions only. Use hp.sql")
    return expression


def _quoted(*parts: str) -> str:
    return ".".join(map(quote_name, parts))


def _prepare(database: Database, query: S.SelectQuery, *, expression: bool = False) -> str:
    return to_duck(read_spark(query.body.text, expression=expression))


def _computed(value: Computed) -> S.SelectQuery:
    return _expression(value.expression) if isinstance(value.expression, str) else value.expression


# ---------------------------------------------------------------------------------------------------------------------
# Evaluators


@dataclass(frozen=True, slots=True)
class _UpdateRows:
    """The rows of an update.

    Attributes:
        prepare: Translation of expressions.
        options: Options of the statement.
        where: The condition.
        alias: Qualifier of the table's columns.
        clause: The only clause.
        among: Filter on the rows, in addition to the condition.
        is_sql: Values are parsed SQL and DEFAULT.
    """

    prepare: Prepare
    options: Options
    where: S.SelectQuery | None
    alias: str
    clause: Clause
    among: Filter | None = None
    is_sql: bool = field(kw_only=True)

    def load(self, config: TableConfig, table: pa.Schema) -> tuple[None, Sequence[Clause]]:
        """Return the only clause."""
        return None, (_explicit(config, table, self.clause, ()) if self.is_sql else self.clause,)

    def equated(self, table: pa.Schema, source: pa.Schema) -> None:
        """Return None: there is no source."""

    def plan(self, context: TableContext) -> SnapshotQuery:
        """Plan the query of the rows."""
        return plan_snapshot_query(context, columns_to_read(context.config), self.among)

    def join(self, query: SnapshotQuery, source: pa.Table | None, clauses: Sequence[BoundClause]) -> Sequence[JoinedRows]:
        """Return the rows of the only clause."""
        (clause,) = clauses
        with _opened(query, self.alias, self.where, self.options) as (database, target):
            columns = _Columns.of(query, clauses, lambda value: self.prepare(database, _computed(value), expression=True))
            where = "" if self.where is None else f" WHERE ({self.prepare(database, self.where, expression=True)})"
            rows = database.table(f"SELECT {columns.text(target)} FROM {_TARGET} AS {target}{where}")
        return [columns.joined(rows, 0, clause)]


@dataclass(frozen=True, slots=True)
class _MergeRows:
    """The rows of a merge.

    Attributes:
        prepare: Translation of expressions.
        options: Options of the statement.
        statement: The merge; its conditions are parsed SQL. Its source is a parsed query or an Arrow table.
        is_sql: Values are parsed SQL and DEFAULT.
    """

    prepare: Prepare
    options: Options
    statement: MergeStatement
    is_sql: bool

    @property
    def _on(self) -> exp.Expr:
        return read_spark(self.statement.on.body.text, expression=True)

    def load(self, config: TableConfig, table: pa.Schema) -> tuple[pa.Table, Sequence[Clause]]:
        """Return the source rows and the clauses."""
        source, clauses = self.statement.source, self.statement.clauses
        if not self.is_sql:
            return source, clauses
        with closing(Database(truncates_nanoseconds=_truncates_nanoseconds(self.options))) as database:
            text = self.prepare(database, source)
            names = database.schema(text).names
            if source.column_names:
                check_alias(self.statement.source_alias, len(source.column_names), len(names))
            given = [name for name in names if name not in META_COLUMNS]
            rows = database.table(f"SELECT {', '.join(map(quote_identifier, given))} FROM ({text})")
        return rows, tuple(_explicit(config, table, clause, given, self.statement.source_alias) for clause in clauses)

    def equated(self, table: pa.Schema, source: pa.Schema) -> Mapping[str, str] | None:
        """Return the columns that ON equates; None if it has other conditions."""
        columns = equality_columns(self._on, self.statement.target_alias, self.statement.source_alias)
        names = {resolve_name(ours, table.names): resolve_name(theirs, source.names) for ours, theirs in columns.items()}
        pairs = {ours: theirs for ours, theirs in names.items() if ours and theirs}
        same = all(same_type(table.field(ours).type, source.field(theirs).type) for ours, theirs in pairs.items())
        return pairs if same and len(pairs) == len(list(conjuncts(self._on))) else None

    def plan(self, context: TableContext) -> SnapshotQuery:
        """Plan the query of all rows; `join` narrows it."""
        return plan_snapshot_query(context, columns_to_read(context.config))

    def join(self, query: SnapshotQuery, source: pa.Table | None, clauses: Sequence[BoundClause]) -> Sequence[JoinedRows]:
        """Return the rows of each clause."""
        assert source is not None, "a merge has a source"
        rows = {clause.rows for clause in clauses}
        join = _JOINS[ClauseRows.OF_SOURCE in rows, ClauseRows.OF_TARGET in rows]
        with closing(Database()) as database:
            database.known_columns.update((*query.schema.names, *source.column_names))
            numbers = pa.array(np.arange(source.num_rows, dtype=np.int64))
            database.add(_SOURCE, source.append_column(_ROW, numbers))
            database.add(_TARGET, RowSource(Scan(self._candidates(query, source)).to_reader))
            target, alias = map(quote_identifier, (self.statement.target_alias, self.statement.source_alias))
            conditions = {
                ClauseRows.MATCHED: f"{target}.{_MARK} AND {alias}.{_ROW} IS NOT NULL",
                ClauseRows.OF_SOURCE: f"{target}.{_MARK} IS NULL",
                ClauseRows.OF_TARGET: f"{alias}.{_ROW} IS NULL",
            }
            cases: list[str] = []
            for number, clause in enumerate(clauses):
                where = "" if clause.where is None else f" AND ({self.prepare(database, clause.where, expression=True)})"
                cases.append(f"WHEN {conditions[clause.rows]}{where} THEN {number}")
            chosen = f"CASE {' '.join(cases)} END"
            columns = _Columns.of(query, clauses, lambda value: self.prepare(database, _computed(value), expression=True), chosen)
            joined = database.table(
                f"SELECT {columns.text(target)}, {alias}.{_ROW} AS {_ROW}, {chosen} AS {_CLAUSE} "
                f"FROM (SELECT *, TRUE AS {_MARK} FROM {_TARGET}) AS {target} {join} {_SOURCE} AS {alias} "
                f"ON ({self.prepare(database, self.statement.on, expression=True)}) WHERE ({chosen}) IS NOT NULL"
            ).sort_by(_ROW)
        return [columns.joined(joined, number, clause) for number, clause in enumerate(clauses)]

    def _candidates(self, query: SnapshotQuery, source: pa.Table) -> SnapshotQuery:
        """Table rows that source rows can match; all rows if a clause applies to rows that are not matched by the source."""
        statement = self.statement
        if any(clause.rows is ClauseRows.OF_TARGET for clause in statement.clauses):
            return query
        tree, alias = self._on, statement.target_alias
        predicate = row_predicate(tree, alias, query.schema, has_single_table=False, is_plain=is_exact_in_duckdb)
        candidates = _narrowed(query, predicate)
        equated = equality_columns(tree, alias, statement.source_alias)
        pairs = {}
        for column in query.schema:
            theirs = resolve_name(equated.get(column.name.casefold(), ""), source.column_names)
            if theirs and compares_identically(column.type) and same_type(column.type, source.schema.field(theirs).type):
                pairs[column.name] = source.column(theirs)
        if not pairs:
            return candidates
        keys = pa.table(pairs).group_by(list(pairs), use_threads=False).aggregate([])
        return candidates if keys.num_rows > MAX_JOIN_KEYS else semi_join_filter(candidates, keys)


_JOINS = {(False, False): "JOIN", (True, False): "RIGHT JOIN", (False, True): "LEFT JOIN", (True, True): "FULL JOIN"}
"""Join type, by whether clauses apply to unmatched rows of the source and of the table."""


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of a query that joins rows: those of the table row, and the computed values of each clause.

    Attributes:
        schema: Columns of the table row.
        values: The computed values: number of the clause, column and expression.
    """

    schema: pa.Schema
    values: Sequence[tuple[int, str, str]]

    @classmethod
    def of(
        cls, query: SnapshotQuery, clauses: Sequence[BoundClause], translate: Callable[[Computed], str], chosen: str = ""
    ) -> _Columns:
        """chosen: expression of the number of the row's clause; "" for a single one."""
        values = []
        for number, clause in enumerate(clauses):
            for name, value in clause.values.items():
                if isinstance(value, Computed):
                    text = translate(value)
                    # A value is computed only for rows of its clause, as it may be an error for others.
                    values.append((number, name, f"CASE WHEN ({chosen}) = {number} THEN ({text}) END" if chosen else text))
        return cls(identifying_columns(query.schema), values)

    def text(self, target: str) -> str:
        """The SELECT list."""
        table = [f"{target}.{quote_identifier(name)}" for name in self.schema.names]
        return ", ".join([*table, *(f"({text}) AS {_VALUE}{at}" for at, (_, _, text) in enumerate(self.values))])

    def joined(self, rows: pa.Table, number: int, clause: BoundClause) -> JoinedRows:
        """The rows of a clause from the result of the query."""
        if _CLAUSE in rows.column_names:
            rows = rows.filter(pc.equal(rows.column(_CLAUSE), number))
        rows = rows.combine_chunks()
        names = {name: f"{_VALUE}{at}" for at, (of, name, _) in enumerate(self.values) if of == number}
        computed = {name: combine_to_array(rows.column(column)) for name, column in names.items()}
        target = None
        if clause.rows is not ClauseRows.OF_SOURCE:
            held = rows.select(list(range(len(self.schema))))
            target = pa.Table.from_batches([stored(batch, self.schema) for batch in held.to_batches()], self.schema)
        return JoinedRows(None if clause.rows is ClauseRows.OF_TARGET else combine_to_array(rows.column(_ROW)), target, computed)


def _explicit(config: TableConfig, table: pa.Schema, clause: Clause, source: Sequence[str], alias: str = SOURCE) -> Clause:
    """The clause of a SQL statement with a value for each column that it assigns."""
    if clause.action is ClauseAction.DELETE:
        return clause
    values = explicit_values(config, table, clause, source, lambda name: _expression(_quoted(alias, name)))
    computed = {name: value if isinstance(value, pa.Scalar) else Computed(value) for name, value in values.items()}
    return replace(clause, values=computed)


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


def _refuse_queries(statement: MergeStatement) -> None:
    """Raise Unsupported for subqueries in the conditions and values of a merge."""
    expressions = [statement.on, *(clause.where for clause in statement.clauses)]
    expressions += [value for clause in statement.clauses for value in (clause.values or {}).values()]
    for expression in expressions:
        if isinstance(expression, S.SelectQuery) and expression.references:
            raise Unsupported(f"a query within a condition or a value of MERGE ({expression.body.text}); join it behind USING")
