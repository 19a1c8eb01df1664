"""Indexes of a table: `Table.index`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyhudi.api.argument_types import checked_class
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
from pyhudi.options.scope import TABLE_OPERATIONS
from pyhudi.table.table_context import TableContext
from pyhudi.tasks.engine_protocol import Engine

if TYPE_CHECKING:
    from pyhudi.engines.spark.type_conversion import SparkSession


@checked_class
class Indexes:
    """The indexes of a table, as returned by `Table.index`.

    Writers can continue while an index is built. Every method raises InvalidRequest for an index that does not exist or
    that the table cannot have.

    Example:
        >>> info = table.index.create("record_index")
        >>> info = table.index.create("secondary_index", "city")
        >>> info = table.index.create("column_stats", "ts", function="to_date", name="day")  # an expression index
    """

    def __init__(self, table: TableHandle) -> None:
        self._open = table

    def create(
        self,
        index_type: str,
        columns: str | Sequence[str] | None = None,
        *,
        name: str | None = None,
        function: str | None = None,
        function_options: Mapping[str, str] | None = None,
        spark: SparkSession | None = None,
        options: Mapping[str, object] | None = None,
    ) -> IndexInfo:
        """Build an index. An index whose build failed is rebuilt.

        Args:
            index_type: Index type: `record_index`, `column_stats`, `partition_stats`, `bloom_filters` or `secondary_index`.
            columns: For `column_stats`, the columns to index (by default the first ones of the table). For
                `secondary_index`, and with `function`, the one column.
            name: Name of a secondary or expression index.
            function: Makes `column_stats` or `bloom_filters` an expression index over one column.
            function_options: Options of the function, such as `format`.
            spark: Session that reads the table and writes the index on the cluster.
            options: `hoodie.*` options of this call.

        Returns:
            Description of the index.
        """
        request = self._request(index_type, columns, name, function, function_options)
        create_index(*self._call("create", options, spark), request)
        return next(info for info in self.list() if info.name == request.partition)

    def schedule(
        self,
        index_type: str | Sequence[str],
        columns: str | Sequence[str] | None = None,
        *,
        name: str | None = None,
        function: str | None = None,
        function_options: Mapping[str, str] | None = None,
        spark: SparkSession | None = None,
        options: Mapping[str, object] | None = None,
    ) -> str:
        """Schedule an index build, to be executed by `run` (asynchronous indexing).

        Args:
            index_type: As in `create`. Several types, such as `["record_index", "column_stats"]`, are built together from one
                snapshot; the arguments below then do not apply.
            columns: As in `create`.
            name: Name of a secondary or expression index.
            function: Function of an expression index.
            function_options: Options of the function.
            spark: Session that initializes a missing metadata table on the cluster.
            options: `hoodie.*` options of this call.

        Returns:
            Request time of the plan.
        """
        index_types = (index_type,) if isinstance(index_type, str) else tuple(dict.fromkeys(index_type))
        if len(index_types) != 1 and (not index_types or columns is not None or name or function or function_options):
            raise InvalidRequest(
                "several indexes in one plan are named by type alone: pass one type or more, and none of columns=, name=, "
                "function=, function_options="
            )
        requests = (self._request(one_type, columns, name, function, function_options) for one_type in index_types)
        return schedule_index(*self._call("schedule", options, spark), *requests)

    def run(self, instant: str, *, spark: SparkSession | None = None, options: Mapping[str, object] | None = None) -> Instant:
        """Execute a scheduled index build, also one whose executor died.

        Args:
            instant: Request time of the plan.
            spark: As in `create`.
            options: `hoodie.*` options of this call.

        Returns:
            The completed instant.

        Raises:
            InstantNotFound: No such plan exists.
            TableState: Another process builds the index.
        """
        return run_index(*self._call("run", options, spark), instant)

    def abort(self, instant: str, *, options: Mapping[str, object] | None = None) -> None:
        """Abort a scheduled or unfinished index build.

        Args:
            instant: Request time of the plan.
            options: `hoodie.*` options of this call.
        """
        context, _, settings = self._call("abort", options)
        abort_index(context, settings, instant)

    def drop(self, name: str, *, options: Mapping[str, object] | None = None) -> None:
        """Drop one index.

        Args:
            name: Name of the index, such as `record_index` or `secondary_index_by_city`.
            options: `hoodie.*` options of this call.
        """
        parsed = self._open.parse(TABLE_OPERATIONS["index.drop"], options)
        drop_index(self._open.load_context(parsed), name, CommitSettings.of(parsed).lock_wait_ms)

    def rebuild(
        self, name: str | None = None, *, spark: SparkSession | None = None, options: Mapping[str, object] | None = None
    ) -> tuple[str, ...]:
        """Rebuild an index, or the whole metadata table, from the table's files. Repairs a damaged index.

        Args:
            name: Name of the index; None for all.
            spark: As in `create`.
            options: `hoodie.*` options of this call.

        Returns:
            Names of the rebuilt indexes.
        """
        return rebuild_index(*self._call("rebuild", options, spark), name)

    def list(self) -> tuple[IndexInfo, ...]:
        """List the indexes: ready, being built and scheduled."""
        return list_indexes(self._open.context.reloaded())

    def _call(
        self, method: str, options: Mapping[str, object] | None, spark: SparkSession | None = None
    ) -> tuple[TableContext, Engine, IndexSettings]:
        parsed = self._open.parse(TABLE_OPERATIONS[f"index.{method}"], options)
        return self._open.load_context(parsed), self._open.engine(spark, parsed), IndexSettings.of(parsed)

    def _request(
        self,
        index_type: str,
        columns: str | Sequence[str] | None,
        name: str | None,
        function: str | None,
        function_options: Mapping[str, str] | None,
    ) -> IndexRequest:
        named = () if columns is None else (columns,) if isinstance(columns, str) else tuple(columns)
        return index_request(index_type, named, name=name, function=function, function_options=function_options)
