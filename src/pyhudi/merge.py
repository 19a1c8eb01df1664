"""`Merge`: what `Table.merge` gives, to which clauses are added until it is carried out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from pyhudi.engines.arrow_rows import arrow_reader
from pyhudi.engines.local import LocalEngine
from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.opened import OpenTable
from pyhudi.operations.action.results import WriteResult
from pyhudi.operations.action.settings import THREADS
from pyhudi.operations.write.change import Clause, Outcome, run_merge
from pyhudi.operations.write.settings import WriteOperation, WriteSettings
from pyhudi.options import Options
from pyhudi.records.filters.parse import Filter

__all__ = ["Merge"]


class Merge:
    """A merge of a source with a table: clauses, and `execute`.

    Of the clauses for a row the first one counts whose condition is true; a row of which no clause speaks stays as it is.
    Conditions are filters as of `Table.scan`, over `source.x` and, where a row of the table matches, `target.x`.  Values are
    literals (`"'done'"`, `1.5`) and columns (`"source.x"`, `"target.x"`), as of `Table.update`.

    A record keeps its key and its partition.  The rows are upserted, so the table's merge mode decides between the row that a
    clause makes and the stored one: one with an earlier ordering value loses.  A delete removes the record
    whatever its ordering value.
    """

    def __init__(self, table: OpenTable, options: Options, source: Any, on: str | Sequence[str]) -> None:
        """As `Table.merge`, which makes it."""
        if type(source).__module__.startswith("pyspark.sql."):
            raise Unsupported("a merge of a Spark DataFrame; give rows of Arrow, such as its toArrow()")
        self._open = table
        self._options = options
        self._source: pa.Table = arrow_reader(source).read_all()
        self._on = (on,) if isinstance(on, str) else tuple(on)
        if not self._on:
            raise InvalidRequest("on= names the columns by which rows match, and it is empty")
        self._clauses: tuple[Clause, ...] = ()

    def when_matched_update(self, set: Mapping[str, Any], where: Filter | None = None) -> Merge:
        """A row of the table that matches gets other values in some columns.

        Args:
            set: Values by column of the table.
            where: Of which pairs of rows the clause speaks; all when left out.
        """
        return self._with(Clause(Outcome.UPDATE, set, where))

    def when_matched_update_all(self, where: Filter | None = None) -> Merge:
        """A row of the table that matches gets the values of all columns of the source; columns that it lacks keep theirs.

        Record key and partition fields of the source that `on` does not name have to hold what the row holds.

        Args:
            where: Of which pairs of rows the clause speaks; all when left out.
        """
        return self._with(Clause(Outcome.UPDATE, None, where))

    def when_matched_delete(self, where: Filter | None = None) -> Merge:
        """A row of the table that matches is deleted.

        Args:
            where: Of which pairs of rows the clause speaks; all when left out.
        """
        return self._with(Clause(Outcome.DELETE, None, where))

    def when_not_matched_insert(self, values: Mapping[str, Any], where: Filter | None = None) -> Merge:
        """A row of the source that matches none is inserted with some values; the other columns are null.

        Args:
            values: Values by column of the table; those that `on` names are copied from the source.
            where: Of which rows of the source the clause speaks; all when left out.
        """
        return self._with(Clause(Outcome.INSERT, values, where))

    def when_not_matched_insert_all(self, where: Filter | None = None) -> Merge:
        """A row of the source that matches none is inserted; columns that the source lacks are null.

        Args:
            where: Of which rows of the source the clause speaks; all when left out.
        """
        return self._with(Clause(Outcome.INSERT, None, where))

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
        engine = LocalEngine(self._options.integer(THREADS))
        return self._open.write(
            lambda settings: run_merge(self._open.now(self._options), engine, self._source, self._on, self._clauses, settings),
            WriteSettings.of(self._options, WriteOperation.UPSERT),
        )

    def _with(self, clause: Clause) -> Merge:
        self._clauses = (*self._clauses, clause)
        return self
