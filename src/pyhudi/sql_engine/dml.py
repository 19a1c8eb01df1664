"""UPDATE, DELETE and MERGE in this process: DuckDB computes rows from one state of a table, and they are written as one commit.

    UPDATE   the rows for which the condition is true, with the assigned values in place of the old ones
    DELETE   the keys of these rows
    MERGE    for each clause the rows of a join of the table with the source of which it is the first one that speaks

The commit is based on the state that the rows were computed from: where another writer came between, they are computed anew.
A record keeps its key and its partition.  The changed rows are held in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
from pyhudi.operations.commit.commit_settings import THREADS
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.read.query import SnapshotQuery, plan_snapshot_query
from pyhudi.operations.read.semi_join import MAX_JOIN_KEYS, semi_join_filter
from pyhudi.operations.write.delete_where import key_names, run_delete_where
from pyhudi.operations.write.update_merge import check_identity, columns_to_read, load_table_columns, run_merge_changes
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.scope import VERBS
from pyhudi.records.filters.binding import bind
from pyhudi.records.filters.filter_ast import Expr
from pyhudi.records.filters.pushdown import compares_identically
from pyhudi.records.keys.key_spec import partition_columns
from pyhudi.records.schema_cast import same_type
from pyhudi.sql_engine import sql_ast as S
from pyhudi.sql_engine.duckdb_engine import Database, RowSource, quote_identifier, read_spark
from pyhudi.sql_engine.sql_pushdown import equality_columns, is_exact_in_duckdb, row_predicate
from pyhudi.sql_engine.store_assignment import check_storable, stored
from pyhudi.table.table_config import TableConfig
from pyhudi.tasks.incoming_layout import DELETE_COLUMN

__all__ = ["delete_rows", "merge_rows", "update_rows"]

_TARGET, _SOURCE, _MARK, _KEPT = "pyhudi_target", "pyhudi_source", "pyhudi_is_there", "pyhudi_keeps_its_place"


class Prepare(Protocol):
    """Gives a query, or an expression, in DuckDB's dialect, and puts what it reads into the database."""

    def __call__(self, database: Database, query: S.SelectQuery, *, expression: bool = False) -> str: ...


def update_rows(table: TableHandle, statement: S.Update, prepare: Prepare) -> WriteResult:
    """Carry UPDATE out.  Raises InvalidRequest for columns that there are not, or that say which record a row is."""

    def change(query: SnapshotQuery) -> pa.Table:
        columns = load_table_columns(query.schema)
        with _opened(query, statement.alias or statement.table.parts[-1], statement.where) as (database, target):
            given = _assigned(database, columns, statement.assignments, prepare)
            _check_identity_stays(table.context.config, given)
            where = "" if statement.where is None else f" WHERE ({prepare(database, statement.where, expression=True)})"
            values = [given.get(name, f"{target}.{quote_identifier(name)}") for name in columns.names]
            text = _select(values, _identity(query), target) + f" FROM {_TARGET} AS {target}{where}"
            found = _rows(database, text, columns, _identity(query))
        check_identity(table.context.config, found)
        return _marked(found.select(columns.names), deletes=False)

    return _changed(table, "update", change, "the table holds two rows of record {key!r} for which the condition is true")


def delete_rows(table: TableHandle, statement: S.Delete, prepare: Prepare) -> WriteResult:
    """Carry DELETE out."""
    parsed = table.parse(VERBS["delete"], None)
    names = key_names(table.context.config)

    def keys_of(query: SnapshotQuery) -> pa.Table:
        with _opened(query, statement.alias or statement.table.parts[-1], statement.where) as (database, target):
            where = "" if statement.where is None else f" WHERE ({prepare(database, statement.where, expression=True)})"
            keys = ", ".join(f"{target}.{quote_identifier(name)}" for name in names)
            found = database.table(f"SELECT {keys} FROM {_TARGET} AS {target}{where}")
        return found.cast(pa.schema([query.schema.field(name).with_nullable(True) for name in names]))

    engine = LocalEngine(parsed.integer(THREADS))
    return table.write(
        lambda settings: run_delete_where(table.load_context(parsed), engine, None, settings, keys_of, all_columns=True),
        WriteSettings.of(parsed, WriteOperation.DELETE),
    )


def merge_rows(table: TableHandle, statement: S.MergeInto, prepare: Prepare) -> WriteResult:
    """Carry MERGE out.  Raises InvalidRequest where two rows would be of one record, or one that is there would be inserted."""
    _refuse_queries(statement)
    parsed = table.parse(VERBS["merge"], None)
    has_one_place = WriteSettings.of(parsed, WriteOperation.UPSERT).index.index_type.is_global

    def change(query: SnapshotQuery) -> pa.Table:
        alias = statement.alias or (statement.table.parts[-1] if statement.table.path is None else "target")
        with closing(Database()) as database:
            merge = _StatementMerge.of(table.context.config, statement, query, database, alias, prepare)
            database.add(_TARGET, RowSource(Scan(merge.candidate_rows(statement, alias)).to_reader))
            parts = [merge.changed(number, clause) for number, clause in enumerate(statement.clauses)]
            for part, clause in zip(parts, statement.clauses, strict=True):
                if clause.action is S.MergeAction.INSERT:
                    merge.check_no_existing_keys(part, anywhere=has_one_place)
        return pa.concat_tables(parts)

    said = "several rows of the source would change or insert record {key!r}: leave one of them in the source"
    return _changed(table, "merge", change, said)


@dataclass(frozen=True, slots=True)
class _StatementMerge:
    """A merge with one state of the table.  query: all its rows; target, source: the aliases, in quotes; source_columns: the
    source's columns.
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
        cls, config: TableConfig, statement: S.MergeInto, query: SnapshotQuery, database: Database, alias: str, prepare: Prepare
    ) -> _StatementMerge:
        text = prepare(database, statement.source)
        given = tuple(name for name in database.schema(text).names if name not in META_COLUMNS)
        # Computed once: each clause joins with the same rows.
        database.materialize(_SOURCE, f"SELECT {', '.join(map(quote_identifier, given))}, TRUE AS {_MARK} FROM ({text})")
        target, source = quote_identifier(alias), quote_identifier(statement.source_alias or "source")
        rows = {
            S.MergeRows.MATCHED: f"{target}.{_MARK} AND {source}.{_MARK}",
            S.MergeRows.OF_SOURCE: f"{target}.{_MARK} IS NULL",
            S.MergeRows.OF_TARGET: f"{source}.{_MARK} IS NULL",
        }
        conditions = []
        for clause in statement.clauses:
            also = "" if clause.where is None else f" AND ({prepare(database, clause.where, expression=True)})"
            conditions.append(rows[clause.rows] + also)
        on = prepare(database, statement.on, expression=True)
        return cls(config, query, database, target, source, given, on, tuple(conditions), prepare)

    def candidate_rows(self, statement: S.MergeInto, alias: str) -> SnapshotQuery:
        """The rows of the table that those of the source may match; all of them where a clause speaks of the others."""
        if any(clause.rows is S.MergeRows.OF_TARGET for clause in statement.clauses):
            return self.query
        tree, schema = read_spark(statement.on.body.text, expression=True), self.query.schema
        asked = row_predicate(tree, alias, schema, has_single_table=False, is_plain=is_exact_in_duckdb)
        found = _narrowed(self.query, asked)
        equated = equality_columns(tree, alias, statement.source_alias or "source")
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
            return found
        columns = ", ".join(f"{quote_identifier(theirs)} AS {quote_identifier(ours)}" for ours, theirs in pairs.items())
        keys = self.database.table(f"SELECT DISTINCT {columns} FROM {_SOURCE} LIMIT {MAX_JOIN_KEYS + 1}")
        return found if keys.num_rows > MAX_JOIN_KEYS else semi_join_filter(found, keys)

    def changed(self, number: int, clause: S.MergeClause) -> pa.Table:
        """The rows of a clause as they are written, marked."""
        columns = load_table_columns(self.query.schema)
        identity = _identity(self.query) if clause.action is not S.MergeAction.INSERT else ()
        values, keeps = self._values(clause, columns)
        earlier = "".join(f" AND NOT coalesce({condition}, FALSE)" for condition in self.conditions[:number])
        join = {
            S.MergeRows.MATCHED: "JOIN",
            S.MergeRows.OF_SOURCE: "RIGHT JOIN",
            S.MergeRows.OF_TARGET: "LEFT JOIN",
        }[clause.rows]
        text = (
            f"{_select(values, identity, self.target)}, ({keeps}) AS {_KEPT} "
            f"FROM (SELECT *, TRUE AS {_MARK} FROM {_TARGET}) AS {self.target} {join} {_SOURCE} AS {self.source} ON ({self.on}) "
            f"WHERE ({self.conditions[number]}){earlier}"
        )
        found = _rows(self.database, text, columns, identity, more=(_KEPT,))
        if not pc.all(found.column(_KEPT), min_count=0).as_py():
            raise InvalidRequest(
                "a row of the source has another key or partition than the row of the table that it would become: a record keeps "
                "both; assign the other columns by name"
            )
        if identity:
            check_identity(self.config, found.drop_columns([_KEPT]))
        return _marked(found.select(columns.names), deletes=clause.action is S.MergeAction.DELETE)

    def _values(self, clause: S.MergeClause, columns: pa.Schema) -> tuple[list[str], str]:
        """What each column of the table gets, and whether a row of the source keeps the place of the row that it changes."""
        inserts = clause.action is S.MergeAction.INSERT
        if clause.assignments is None:
            given, keeps = self._all_of_source(columns, inserts=inserts)
        else:
            given, keeps = _assigned(self.database, columns, clause.assignments, self.prepare), "TRUE"
            if not inserts:
                _check_identity_stays(self.config, given)
        return [
            given.get(name, "NULL" if inserts else f"{self.target}.{quote_identifier(name)}") for name in columns.names
        ], keeps

    def _all_of_source(self, columns: pa.Schema, *, inserts: bool) -> tuple[dict[str, str], str]:
        by_name = {name.lower(): name for name in columns.names}
        unknown = [name for name in self.source_columns if name.lower() not in by_name]
        if unknown:
            raise Unsupported(
                f"`*` in a clause of MERGE, where the source has columns that the table lacks ({', '.join(unknown)}): name the "
                "columns, or ALTER TABLE first"
            )
        every = {by_name[name.lower()]: f"{self.source}.{quote_identifier(name)}" for name in self.source_columns}
        if inserts:
            return every, "TRUE"
        placing = {*self.config.keys.record_fields, *partition_columns(self.config.keys)}
        same = [
            f"{self.target}.{quote_identifier(name)} IS NOT DISTINCT FROM {text}"
            for name, text in every.items()
            if name in placing
        ]
        return {name: text for name, text in every.items() if name not in placing}, " AND ".join(same) or "TRUE"

    def check_no_existing_keys(self, inserted: pa.Table, *, anywhere: bool) -> None:
        """Raises InvalidRequest for rows to be inserted whose record the table holds: ON did not find it."""
        if not inserted.num_rows:
            return
        keys = self.config.keys
        names = keys.record_fields if anywhere else (*keys.record_fields, *partition_columns(keys))
        name, there = self.database.new_name(), self.database.new_name()
        self.database.add(name, inserted)
        self.database.add(there, RowSource(Scan(self._with_keys_of(inserted)).to_reader))
        same = " AND ".join(f"t.{quote_identifier(one)} IS NOT DISTINCT FROM i.{quote_identifier(one)}" for one in names)
        shown = ", ".join(f"i.{quote_identifier(one)}" for one in names)
        found = self.database.table(f"SELECT {shown} FROM {name} AS i SEMI JOIN {there} AS t ON {same} LIMIT 1").to_pylist()
        if found:
            raise InvalidRequest(
                f"MERGE would insert a record that the table holds, and that ON does not match: {found[0]}; compare the record "
                "key in ON"
            )

    def _with_keys_of(self, inserted: pa.Table) -> SnapshotQuery:
        """The rows of the table that may be of the same records as some rows."""
        fields = self.config.keys.record_fields
        if not set(fields) <= set(inserted.column_names) or inserted.num_rows > MAX_JOIN_KEYS:
            return self.query
        keys = inserted.select(fields)
        # Null matches nothing, and is a part of some keys.
        return self.query if any(column.null_count for column in keys.columns) else semi_join_filter(self.query, keys)


# ---------------------------------------------------------------------------------------------------------------------
# Rows


@contextmanager
def _opened(query: SnapshotQuery, alias: str, where: S.SelectQuery | None) -> Iterator[tuple[Database, str]]:
    """A database with the rows of the table for which a condition may be true, and the table's alias in quotes."""
    asked = None
    if where is not None:
        tree = read_spark(where.body.text, expression=True)
        asked = row_predicate(tree, alias, query.schema, is_plain=is_exact_in_duckdb)
    with closing(Database()) as database:
        database.add(_TARGET, RowSource(Scan(_narrowed(query, asked)).to_reader))
        yield database, quote_identifier(alias)


def _narrowed(query: SnapshotQuery, predicate: Expr | None) -> SnapshotQuery:
    return query if predicate is None else query.narrowed(None, bind(predicate, query.schema))


def _changed(table: TableHandle, verb: str, change: Callable[[SnapshotQuery], Any], repeated: str) -> WriteResult:
    parsed = table.parse(VERBS[verb], None)
    engine = LocalEngine(parsed.integer(THREADS))
    return table.write(
        lambda settings: run_merge_changes(
            table.load_context(parsed),
            engine,
            lambda context: plan_snapshot_query(context, columns_to_read(context.config)),
            change,
            settings,
            description=f"the statement {verb.upper()}",
            repeated=repeated,
        ),
        WriteSettings.of(parsed, WriteOperation.UPSERT),
    )


def _assigned(database: Database, columns: pa.Schema, assignments: Sequence[S.SetClause], prepare: Prepare) -> dict[str, str]:
    """The values that columns get, in DuckDB's dialect."""
    by_name = {name.lower(): name for name in columns.names}
    found: dict[str, str] = {}
    for one in assignments:
        name = by_name.get(one.column.lower())
        if name is None:
            what = "a field inside of a struct" if one.column.partition(".")[0].lower() in by_name else ""
            if what:
                raise Unsupported(f"{what} is assigned: {one.column}; assign the whole struct")
            raise InvalidRequest(f"column {one.column} is assigned, and the table has {', '.join(columns.names)}")
        if name in found:
            raise InvalidRequest(f"column {name} is assigned twice")
        found[name] = "NULL" if one.value is None else prepare(database, one.value, expression=True)
    return found


def _check_identity_stays(config: TableConfig, assigned: dict[str, str]) -> None:
    placing = [name for name in (*config.keys.record_fields, *partition_columns(config.keys)) if name in assigned]
    if placing:
        raise InvalidRequest(
            f"column {placing[0]!r} is of the key or the partition, which a record keeps: delete it and insert it under another"
        )


def _identity(query: SnapshotQuery) -> tuple[str, ...]:
    """The columns that say as which record a row is stored, where the table has them."""
    return tuple(name for name in (RECORD_KEY, PARTITION_PATH) if name in query.schema.names)


def _select(values: Sequence[str], identity: Sequence[str], target: str) -> str:
    return (
        f"SELECT {', '.join([*(f'({value})' for value in values), *(f'{target}.{quote_identifier(name)}' for name in identity)])}"
    )


def _rows(database: Database, text: str, columns: pa.Schema, identity: Sequence[str], more: Sequence[str] = ()) -> pa.Table:
    """The rows of a query: the table's columns as it stores them, and others behind."""
    behind = [*(pa.field(name, pa.string()) for name in identity), *(pa.field(name, pa.bool_()) for name in more)]
    wanted = pa.schema([*columns, *behind])
    check_storable(database.schema(text), wanted)
    return pa.Table.from_batches((stored(batch, wanted) for batch in database.batches(text)), wanted)


def _marked(rows: pa.Table, *, deletes: bool) -> pa.Table:
    return rows.append_column(DELETE_COLUMN, pa.repeat(pa.scalar(deletes), rows.num_rows))


def _refuse_queries(statement: S.MergeInto) -> None:
    """Raises Unsupported for queries within the conditions and values of a merge."""
    found = [statement.on, *(clause.where for clause in statement.clauses)]
    found += [one.value for clause in statement.clauses for one in clause.assignments or ()]
    for one in found:
        if one is not None and one.references:
            raise Unsupported(f"a query within a condition or a value of MERGE ({one.body.text}); join it behind USING")
