"""`Merge`: what `Table.merge` gives, to which clauses are added until it is carried out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyhudi.api.table_handle import TableHandle, is_spark_value
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.engines.arrow.input_rows import arrow_reader
from pyhudi.errors import InvalidRequest
from pyhudi.operations.commit.commit_settings import THREADS
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.write.update_merge import Clause, ClauseAction, ClauseRows, run_merge_statement
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import Options
from pyhudi.records.filters.filter_parser import Filter

if TYPE_CHECKING:
    from pyhudi.engines.spark.type_conversion import Column, SparkSession

__all__ = ["Merge"]


class Merge:
    """A merge of a source with a table: clauses, and `execute`.

    Of the clauses for a row the first one counts whose condition is true; a row of which no clause speaks stays as it is.  The
    rows are upserted, so the table's merge mode decides between the row that a clause makes and the stored one: one with an
    earlier ordering value loses.  A delete removes the record whatever its ordering value.

    Embedded, conditions are filters as of `Table.scan`, over `source.x` and, where a row of the table matches, `target.x`; values
    are literals (`"'done'"`, `1.5`) and columns (`"source.x"`, `"target.x"`), as of `Table.update`.

    A source that is a Spark DataFrame makes it a merge on Spark: conditions and values are Spark SQL text or Columns, over the
    aliases of both sides, and mean what Spark means; other values of Python are literals.  A value becomes one of its column's
    type as in an INSERT of Spark's (numbers become numbers, anything becomes text; text becomes a number by a cast alone).
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
        """As `Table.merge` and `pyhudi.spark.merge`, which make it."""
        self._open = table
        self._options = options
        self._source: Any = source if is_spark_value(source) else arrow_reader(source).read_all()
        self._aliases = target_alias, source_alias
        self._on: Any = on if isinstance(on, str) or is_spark_value(on) else tuple(on)  # type: ignore[arg-type]  # so it is told
        if isinstance(self._on, (str, tuple)) and not self._on:
            raise InvalidRequest("on= names the columns by which rows match, and it is empty")
        self._clauses: tuple[Clause, ...] = ()

    def when_matched_update(self, set: Mapping[str, Any], where: Filter | Column | None = None) -> Merge:
        """A row of the table that matches gets other values in some columns.

        Args:
            set: Values by column of the table.
            where: Of which pairs of rows the clause speaks; all when left out.
        """
        return self._with(Clause(ClauseAction.UPDATE, set, where))

    def when_matched_update_all(self, where: Filter | Column | None = None) -> Merge:
        """A row of the table that matches gets the values of all columns of the source; columns that it lacks keep theirs.

        Record key and partition fields of the source that `on` does not name have to hold what the row holds; on Spark another
        partition moves the record.

        Args:
            where: Of which pairs of rows the clause speaks; all when left out.
        """
        return self._with(Clause(ClauseAction.UPDATE, None, where))

    def when_matched_delete(self, where: Filter | Column | None = None) -> Merge:
        """A row of the table that matches is deleted.

        Args:
            where: Of which pairs of rows the clause speaks; all when left out.
        """
        return self._with(Clause(ClauseAction.DELETE, None, where))

    def when_not_matched_insert(self, values: Mapping[str, Any], where: Filter | Column | None = None) -> Merge:
        """A row of the source that matches none is inserted with some values; the other columns are null.

        Args:
            values: Values by column of the table; those that `on` names are copied from the source.
            where: Of which rows of the source the clause speaks; all when left out.
        """
        return self._with(Clause(ClauseAction.INSERT, values, where, ClauseRows.OF_SOURCE))

    def when_not_matched_insert_all(self, where: Filter | Column | None = None) -> Merge:
        """A row of the source that matches none is inserted; columns that the source lacks are null.

        Args:
            where: Of which rows of the source the clause speaks; all when left out.
        """
        return self._with(Clause(ClauseAction.INSERT, None, where, ClauseRows.OF_SOURCE))

    def when_not_matched_by_source_update(self, set: Mapping[str, Any], where: Filter | Column | None = None) -> Merge:
        """A row of the table that no row of the source matches gets other values in some columns.

        Args:
            set: Values by column of the table; `target.x` alone is there to be copied.
            where: Of which of these rows the clause speaks; all when left out.
        """
        return self._with(Clause(ClauseAction.UPDATE, set, where, ClauseRows.OF_TARGET))

    def when_not_matched_by_source_delete(self, where: Filter | Column | None = None) -> Merge:
        """A row of the table that no row of the source matches is deleted.

        Args:
            where: Of which of these rows the clause speaks; all when left out.
        """
        return self._with(Clause(ClauseAction.DELETE, None, where, ClauseRows.OF_TARGET))

    def execute(self) -> WriteResult:
        """Carry the merge out, in one commit.

        When another writer changes a file group that is written to meanwhile, or inserts a key that was found nowhere, the rows
        meet anew.

        Returns:
            The instant of the write, and what it changed.

        Raises:
            InvalidRequest: Several rows of the source would change one row of the table, or insert one key; a column is not
                there; a key or partition field is assigned, or a column cannot hold its value.
            WriteConflict: Other writers won more often than retries are allowed.
            Unsupported: A value is another expression; a merge that inserts goes by other columns than the record key; the table
                generates its record keys.
        """
        return self._open.write(self._run, WriteSettings.of(self._options, WriteOperation.UPSERT))

    def _run(self, settings: WriteSettings) -> WriteResult:
        context = self._open.load_context(self._options)
        if is_spark_value(self._source):
            from pyhudi.engines.spark.merge_join import SparkMerge, run_spark_merge

            merge = SparkMerge(self._source, self._on, self._clauses, *self._aliases)
            return run_spark_merge(context, merge, settings)
        engine = LocalEngine(self._options.integer(THREADS))
        names = (self._on,) if isinstance(self._on, str) else self._on
        return run_merge_statement(context, engine, self._source, names, self._clauses, settings)

    def _with(self, clause: Clause) -> Merge:
        self._clauses = (*self._clauses, clause)
        return self


def update_on_spark(
    table: TableHandle,
    options: Options,
    session: SparkSession,
    set: Mapping[str, Any],
    where: Any,
    alias: str | None = None,
) -> WriteResult:
    """An update that the cluster of a session carries out; arguments and errors as of `pyhudi.spark.update`."""
    from pyhudi.engines.spark.update_delete import SparkUpdate, run_spark_update

    update = SparkUpdate(session, set, where, alias)
    return table.write(
        lambda settings: run_spark_update(table.load_context(options), update, settings),
        WriteSettings.of(options, WriteOperation.UPSERT),
    )
