"""`Merge`: builder of a MERGE INTO statement, as returned by `Table.merge`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyhudi.api.argument_types import checked_class
from pyhudi.api.table_handle import TableHandle, is_spark_value
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.engines.arrow.input_rows import arrow_reader
from pyhudi.errors import InvalidRequest
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.write.clauses import Clause, ClauseAction, ClauseRows, MergeStatement, UpdateStatement
from pyhudi.operations.write.update_merge import run_merge_statement
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.declaration import Options
from pyhudi.options.write_options import THREADS
from pyhudi.records.filters.filter_parser import Filter, is_computed, is_filter

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
    `target.x`. Values are literals (`"'done'"`, `1.5`), columns (`"source.x"`, `"target.x"`) and SQL expressions
    (`"target.fare + source.fare"`), as in `Table.update`. Expressions require `pip install "pyhudi[sql]"`, and a source
    with the columns of the table.

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

        Record key and partition fields of the source that `on` does not name must equal those of the table row; on
        Spark, another partition moves the record.

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
            InvalidRequest: Several source rows change one table row, or insert one key; a column does not exist; a key
                or partition field is assigned, or a column cannot hold its value.
            WriteConflict: Conflicts with other writers exhausted the retries.
            Unsupported: An expression contains a query or a function that DuckDB lacks; a merge with inserts matches by
                names of other columns than the record key.
        """
        if not is_spark_value(self._source) and self._needs_sql():
            on = (self._on,) if isinstance(self._on, str) and _NAME.fullmatch(self._on) else self._on
            statement = MergeStatement(self._source, on, self._clauses, *self._aliases)
            result: WriteResult = _sql_statements().merge_by_sql(self._open, self._options, statement)
            return result
        return self._open.write(self._run, WriteSettings.of(self._options, WriteOperation.UPSERT))

    def _run(self, settings: WriteSettings) -> WriteResult:
        context = self._open.load_context(self._options)
        if is_spark_value(self._source):
            from pyhudi.engines.spark.merge_join import run_spark_merge

            return run_spark_merge(context, MergeStatement(self._source, self._on, self._clauses, *self._aliases), settings)
        engine = LocalEngine(self._options.integer(THREADS))
        names = (self._on,) if isinstance(self._on, str) else self._on
        return run_merge_statement(context, engine, self._source, names, self._clauses, settings)

    def _needs_sql(self) -> bool:
        """True if the embedded merge has more than names, filters and literals: conditions in on=, aliases, expressions."""
        if self._aliases != ("target", "source") or (isinstance(self._on, str) and not _NAME.fullmatch(self._on)):
            return True
        return any(needs_sql(clause.values, clause.where) for clause in self._clauses)

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


def needs_sql(values: Mapping[str, Any] | None, where: Any) -> bool:
    """Return True if a value or a condition is SQL that is neither a literal, a column nor a filter."""
    if isinstance(values, Mapping) and any(map(is_computed, values.values())):
        return True
    return isinstance(where, str) and not is_filter(where)


def update_by_sql(table: TableHandle, options: Options, set: Mapping[str, Any], where: Any) -> WriteResult:
    """Run an update with SQL expressions in this process. Arguments and errors as in `Table.update`."""
    result: WriteResult = _sql_statements().update_by_sql(table, options, UpdateStatement(set, where))
    return result


def _sql_statements() -> Any:
    """The module that evaluates SQL expressions. Raises InvalidRequest if its packages are not installed."""
    from pyhudi.sql_engine.read_statement import require_packages

    require_packages(embedded=True)
    from pyhudi.sql_engine import python_statements

    return python_statements


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
