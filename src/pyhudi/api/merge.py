"""`Merge`: builder of a MERGE INTO statement, as returned by `Table.merge`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyhudi.api.argument_types import checked_class
from pyhudi.api.table_handle import TableHandle, is_spark_value
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.engines.arrow.input_rows import arrow_reader
from pyhudi.errors import InvalidRequest
from pyhudi.operations.changes.arrow_changes import run_merge, run_update
from pyhudi.operations.changes.statement import Clause, ClauseAction, ClauseRows, MergeStatement, UpdateStatement
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.declaration import Options
from pyhudi.options.write_options import THREADS
from pyhudi.records.filters.filter_parser import Filter, is_computed, is_filter
from pyhudi.records.plain_values import Literal
from pyhudi.records.sql_quoting import quote_name

if TYPE_CHECKING:
    from pyhudi.engines.spark.type_conversion import Column, SparkSession

__all__ = ["Merge"]


@checked_class
class Merge:
    """A merge of source rows into a table: add clauses, then call `execute`.

    For each row the first clause whose condition is true applies; a row without a matching clause is unchanged. The
    rows are upserted, so the table's merge mode decides between the new row and the stored one: a row with an earlier
    ordering value loses. Under event time ordering a delete removes the record unless the source row has a smaller
    ordering value.

    On the embedded engine, conditions are filters as in `Table.scan`, over `source.x` and, if a table row matches,
    `target.x`. Values are literals (`"'done'"`, `1.5`, `hp.lit("done")`), columns (`"source.x"`, `"target.x"`) and SQL
    expressions (`"target.fare + source.fare"`), as in `Table.update`. Expressions require `pip install "pyhudi[sql]"`.

    A Spark DataFrame as source makes it a merge on Spark: conditions and values are Spark SQL text or Columns, over the
    aliases of both sides, with Spark's semantics; other Python values are literals. Values are cast to the column type
    by Spark's store assignment (numbers to numbers, anything to strings), and text as in ANSI mode to other types.
    """

    def __init__(
        self,
        table: TableHandle,
        options: Options,
        source: Any,
        on: str | Sequence[str] | Column,
        *,
        target_alias: str = "target",
        source_alias: str = "source",
    ) -> None:
        """Arguments as in `Table.merge` and `pyhudi.spark.merge`, which construct it."""
        self._open = table
        self._options = options
        self._source: Any = source if is_spark_value(source) else arrow_reader(source).read_all()
        self._aliases = target_alias, source_alias
        self._on: Any = on if isinstance(on, str) or is_spark_value(on) else tuple(on)  # type: ignore[arg-type]  # narrowed by is_spark_value
        if isinstance(self._on, (str, tuple)) and not self._on:
            raise InvalidRequest("on= is empty: pass the columns by which rows match")
        self._clauses: tuple[Clause, ...] = ()

    def when_matched_update(self, set: Mapping[str, Any], where: Filter | Column | None = None) -> Merge:
        """Update some columns of the matching table row.

        Args:
            set: Values by table column.
            where: Condition on the pair of rows; None applies to all pairs.

        Returns:
            This merge, for further clauses.
        """
        return self.with_clause(Clause(ClauseAction.UPDATE, set, where))

    def when_matched_update_all(self, where: Filter | Column | None = None) -> Merge:
        """Update the matching table row with all columns of the source. Columns that the source lacks keep their values.

        A source row with another partition moves the record; one with another record key is refused.

        Args:
            where: Condition on the pair of rows; None applies to all pairs.

        Returns:
            This merge, for further clauses.
        """
        return self.with_clause(Clause(ClauseAction.UPDATE, None, where))

    def when_matched_delete(self, where: Filter | Column | None = None) -> Merge:
        """Delete the matching table row.

        Args:
            where: Condition on the pair of rows; None applies to all pairs.

        Returns:
            This merge, for further clauses.
        """
        return self.with_clause(Clause(ClauseAction.DELETE, None, where))

    def when_not_matched_insert(self, values: Mapping[str, Any], where: Filter | Column | None = None) -> Merge:
        """Insert a source row without match, with some columns. The other columns are null.

        Args:
            values: Values by table column; columns named in `on` are copied from the source.
            where: Condition on the source row; None applies to all rows.

        Returns:
            This merge, for further clauses.
        """
        return self.with_clause(Clause(ClauseAction.INSERT, values, where, ClauseRows.OF_SOURCE))

    def when_not_matched_insert_all(self, where: Filter | Column | None = None) -> Merge:
        """Insert a source row without match, with all columns. Columns that the source lacks are null.

        Args:
            where: Condition on the source row; None applies to all rows.

        Returns:
            This merge, for further clauses.
        """
        return self.with_clause(Clause(ClauseAction.INSERT, None, where, ClauseRows.OF_SOURCE))

    def when_not_matched_by_source_update(self, set: Mapping[str, Any], where: Filter | Column | None = None) -> Merge:
        """Update some columns of a table row that no source row matches.

        Args:
            set: Values by table column; only `target.x` can be referenced.
            where: Condition on the table row; None applies to all rows.

        Returns:
            This merge, for further clauses.
        """
        return self.with_clause(Clause(ClauseAction.UPDATE, set, where, ClauseRows.OF_TARGET))

    def when_not_matched_by_source_delete(self, where: Filter | Column | None = None) -> Merge:
        """Delete a table row that no source row matches.

        Args:
            where: Condition on the table row; None applies to all rows.

        Returns:
            This merge, for further clauses.
        """
        return self.with_clause(Clause(ClauseAction.DELETE, None, where, ClauseRows.OF_TARGET))

    def execute(self) -> WriteResult:
        """Run the merge as one commit.

        If another writer concurrently changes a file group that is written to, or inserts a key that did not match, the
        rows are matched again.

        Returns:
            The instant of the write, and its statistics.

        Raises:
            InvalidRequest: Several source rows with equal ordering values change one record; a column does not exist or
                cannot hold its value; a record would get another key, or meet another one of its key.
            WriteConflict: Conflicts with other writers exhausted the retries.
            Unsupported: An expression contains a query or a function that DuckDB lacks.
        """
        on = (self._on,) if isinstance(self._on, str) and _NAME.fullmatch(self._on) else self._on
        clauses = tuple(self._with_matched_columns(clause, on) for clause in self._clauses)
        if not clauses:
            raise InvalidRequest("a merge without clauses has no effect; add one, for example with when_matched_update()")
        statement = MergeStatement(self._source, on, clauses, *self._aliases)
        is_on_spark = is_spark_value(self._source)
        if not is_on_spark and (isinstance(on, str) or any(needs_sql(clause.values, clause.where) for clause in clauses)):
            result: WriteResult = _sql_statements().merge_by_sql(self._open, self._options, statement)
            return result
        settings = WriteSettings.of(self._options, WriteOperation.UPSERT)
        return self._open.write(lambda chosen: self._run(statement, chosen), settings)

    def _run(self, statement: MergeStatement, settings: WriteSettings) -> WriteResult:
        context = self._open.load_context(self._options)
        if is_spark_value(self._source):
            from pyhudi.engines.spark.merge_join import run_spark_merge

            return run_spark_merge(context, statement, settings)
        return run_merge(context, LocalEngine(self._options.integer(THREADS)), statement, settings)

    def _with_matched_columns(self, clause: Clause, on: Any) -> Clause:
        """An insert with values for the columns by which no row matched."""
        if clause.action is not ClauseAction.INSERT or not isinstance(clause.values, Mapping) or not isinstance(on, tuple):
            return clause
        given = {name.casefold() for name in clause.values}
        alias = quote_name(self._aliases[1])
        matched = {name: f"{alias}.{quote_name(name)}" for name in on if name.casefold() not in given}
        return replace(clause, values={**matched, **clause.values})

    def with_clause(self, clause: Clause) -> Merge:
        """Add a clause, as the methods above define it.

        Args:
            clause: The clause.

        Returns:
            This merge.
        """
        self._clauses = (*self._clauses, clause)
        return self


_NAME = re.compile(r"\w+(\.\w+)*")
"""The name of a column; anything else in on= is a condition."""


def assignments(set: Mapping[str, Any] | None, values: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the assignments of an update.

    Args:
        set: Values by column; text is SQL.
        values: Python values by column.

    Raises:
        InvalidRequest: No column is assigned, or one twice.
    """
    twice = {*(set or ())}.intersection(values or ())
    if twice:
        raise InvalidRequest(f"column {min(twice)!r} is assigned in set= and in values=: pass it in one of them")
    assigned = {**(set or {}), **{name: Literal(value) for name, value in (values or {}).items()}}
    if not assigned:
        raise InvalidRequest("an update assigns no column: pass set={column: SQL} or values={column: Python value}")
    return assigned


def needs_sql(values: Mapping[str, Any] | None, where: Any) -> bool:
    """Return True if a value or a condition is SQL that is neither a literal, a column nor a filter."""
    if isinstance(values, Mapping) and any(map(is_computed, values.values())):
        return True
    return isinstance(where, str) and not is_filter(where)


def update_embedded(table: TableHandle, options: Options, set: Mapping[str, Any], where: Filter | None) -> WriteResult:
    """Run an update in this process. Arguments and errors as in `Table.update`."""
    if needs_sql(set, where):
        result: WriteResult = _sql_statements().update_by_sql(table, options, UpdateStatement(set, where))
        return result
    engine = LocalEngine(options.integer(THREADS))
    return table.write(
        lambda settings: run_update(table.load_context(options), engine, set, where, settings),
        WriteSettings.of(options, WriteOperation.UPSERT),
    )


def _sql_statements() -> Any:
    """The module that evaluates SQL expressions. Raises InvalidRequest if its packages are not installed."""
    from pyhudi.sql_engine.read_statement import require_packages

    require_packages(embedded=True)
    from pyhudi.sql_engine import dml

    return dml


def update_on_spark(
    table: TableHandle,
    options: Options,
    session: SparkSession,
    set: Mapping[str, Any],
    where: Any,
    alias: str | None = None,
) -> WriteResult:
    """Run an update on the cluster of a session. Arguments and errors as in `pyhudi.spark.update`."""
    from pyhudi.engines.spark.update_delete import run_spark_update

    update = UpdateStatement(set, where, alias)
    return table.write(
        lambda settings: run_spark_update(table.load_context(options), session, update, settings),
        WriteSettings.of(options, WriteOperation.UPSERT),
    )
