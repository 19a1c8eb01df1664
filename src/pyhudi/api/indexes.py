"""The indexes of a table: `Table.index`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyhudi.api.table_handle import TableHandle
from pyhudi.errors import InvalidRequest
from pyhudi.format.instants import Instant
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.services.async_indexing import IndexRequest, IndexSettings, abort_index
from pyhudi.operations.services.index_admin import (
    IndexInfo,
    create_index,
    drop_index,
    index_request,
    list_indexes,
    rebuild_index,
    run_index,
    schedule_index,
)
from pyhudi.options.scope import VERBS
from pyhudi.table.table_context import TableContext
from pyhudi.tasks.engine_protocol import Engine

if TYPE_CHECKING:
    from pyhudi.engines.spark.type_conversion import SparkSession


class Indexes:
    """The indexes of a table, as `Table.index` gives them.

    t.index.create("record_index")
    t.index.create("secondary_index", "city")
    t.index.create("column_stats", "ts", function="to_date", name="day")         # an expression index

    Writers may go on while an index is built.  Every method raises InvalidRequest for what the table has not or cannot have.
    """

    def __init__(self, table: TableHandle) -> None:
        self._open = table

    def create(
        self,
        kind: str,
        columns: str | Sequence[str] | None = None,
        *,
        name: str | None = None,
        function: str | None = None,
        function_options: Mapping[str, str] | None = None,
        spark: SparkSession | None = None,
        options: Mapping[str, object] | None = None,
    ) -> IndexInfo:
        """Build an index; one whose building died is built anew.

        Args:
            kind: `record_index`, `column_stats`, `partition_stats`, `bloom_filters` or `secondary_index`.
            columns: Of `column_stats`, those with statistics (the table's first when left out); of `secondary_index` and with
                `function`, the one column.
            name: Of a secondary or expression index.
            function: Makes `column_stats` or `bloom_filters` an expression index over one column.
            function_options: Of the function, such as `format`.
            spark: Read the table and write the index on the cluster.
            options: `hoodie.*` options of this call.

        Returns:
            What the index is then.
        """
        request = self._request(kind, columns, name, function, function_options)
        create_index(*self._call("create", options, spark), request)
        return next(info for info in self.list() if info.name == request.partition)

    def schedule(
        self,
        kind: str | Sequence[str],
        columns: str | Sequence[str] | None = None,
        *,
        name: str | None = None,
        function: str | None = None,
        function_options: Mapping[str, str] | None = None,
        spark: SparkSession | None = None,
        options: Mapping[str, object] | None = None,
    ) -> str:
        """Plan an index, as `create` does, for `run` to build; the instant of the plan.

        Args:
            kind: As of `create`; several kinds, such as `["record_index", "column_stats"]`, are built at once, from one state of
                the table.  What follows is for one.
            columns: As of `create`, and so are those that follow.
            name: Of a secondary or expression index.
            function: Of an expression index.
            function_options: Of the function.
            spark: Make a metadata table that is not there yet on the cluster.
            options: `hoodie.*` options of this call.
        """
        kinds = (kind,) if isinstance(kind, str) else tuple(dict.fromkeys(kind))
        if len(kinds) != 1 and (not kinds or columns is not None or name or function or function_options):
            raise InvalidRequest("several indexes in one plan are given by their kinds alone, and one plan has one at least")
        requests = (self._request(one, columns, name, function, function_options) for one in kinds)
        return schedule_index(*self._call("schedule", options, spark), *requests)

    def run(self, instant: str, *, spark: SparkSession | None = None, options: Mapping[str, object] | None = None) -> Instant:
        """Build what is planned, also where its building died.

        Args:
            instant: The request time of the plan.
            spark: As of `create`.
            options: `hoodie.*` options of this call.

        Returns:
            The completed instant.

        Raises:
            InstantNotFound: There is no such plan.
            TableState: Another process builds it.
        """
        return run_index(*self._call("run", options, spark), instant)

    def abort(self, instant: str, *, options: Mapping[str, object] | None = None) -> None:
        """Take back a planned index, or one whose building has not ended."""
        context, _, settings = self._call("abort", options)
        abort_index(context, settings, instant)

    def drop(self, name: str, *, options: Mapping[str, object] | None = None) -> None:
        """Remove one index, such as `record_index` or `secondary_index_by_city`."""
        parsed = self._open.parse(VERBS["index.drop"], options)
        drop_index(self._open.load_context(parsed), name, CommitSettings.of(parsed).lock_wait_ms)

    def rebuild(
        self, name: str | None = None, *, spark: SparkSession | None = None, options: Mapping[str, object] | None = None
    ) -> tuple[str, ...]:
        """Build an index anew from the table's files, or the whole metadata table; what was built.  Repairs what is damaged.

        Args:
            name: The index; None for all.
            spark: As of `create`.
            options: `hoodie.*` options of this call.
        """
        return rebuild_index(*self._call("rebuild", options, spark), name)

    def list(self) -> tuple[IndexInfo, ...]:
        """The indexes: ready, being built, planned."""
        return list_indexes(self._open.context.reloaded())

    def _call(
        self, method: str, options: Mapping[str, object] | None, spark: SparkSession | None = None
    ) -> tuple[TableContext, Engine, IndexSettings]:
        parsed = self._open.parse(VERBS[f"index.{method}"], options)
        return self._open.load_context(parsed), self._open.engine(spark, parsed), IndexSettings.of(parsed)

    def _request(
        self,
        kind: str,
        columns: str | Sequence[str] | None,
        name: str | None,
        function: str | None,
        function_options: Mapping[str, str] | None,
    ) -> IndexRequest:
        named = () if columns is None else (columns,) if isinstance(columns, str) else tuple(columns)
        return index_request(kind, named, name=name, function=function, function_options=function_options)
