"""Reading a table: snapshots, lookups, incremental queries and change data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyhudi.api.key_arguments import parse_keys_argument
from pyhudi.api.scan import Scan
from pyhudi.api.table_handle import is_spark_value
from pyhudi.engines.arrow.input_rows import arrow_reader
from pyhudi.errors import InvalidRequest
from pyhudi.operations.commit.commit_settings import THREADS
from pyhudi.operations.read.change_queries import plan_change_query
from pyhudi.operations.read.file_pruning import ReadSettings
from pyhudi.operations.read.key_lookup import plan_read_lookup
from pyhudi.operations.read.query import (
    AS_OF,
    FALL_BACK,
    INCREMENTAL_FORMAT,
    VALUES_FROM_PATH,
    completion_range,
    incremental_range,
    plan_incremental_query,
    plan_snapshot_query,
)
from pyhudi.operations.read.semi_join import MAX_JOIN_KEYS, anti_join, key_columns, semi_join_filter
from pyhudi.options.scope import VERBS
from pyhudi.options.supported import Options
from pyhudi.planning.incremental_query import EARLIEST, CompletionRange, RequestRange
from pyhudi.planning.instant_arguments import InstantArgument, check_not_request_time, format_as_of, range_text
from pyhudi.records.filters.filter_parser import Filter

if TYPE_CHECKING:
    pass

from pyhudi.api.opened_table import OpenedTable


class TableReads(OpenedTable):
    """The reads of `Table`."""

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: Filter | None = None,
        as_of: InstantArgument | None = None,
        *,
        limit: int | None = None,
        keys: Any = None,
        options: Mapping[str, object] | None = None,
    ) -> Scan:
        """The table's rows as of now.

        Nothing is read until one of the scan's `to_...` methods is called.

        Args:
            columns: Data columns by default; meta columns (`_hoodie_...`) may be named too, and "*" is all of both.
            filter: SQL text such as `"fare > 10 and city = 'sf'"`, tuples such as `[("city", "=", "sf")]`, or an expression of
                pyarrow (`pc.field("fare") > 10`) or Polars (`pl.col("fare") > 10`).
            as_of: An instant, a datetime, a date, ISO text, or `tag:NAME` of a savepoint.  Without a zone it is a time in the
                zone in which the table writes its times.
            limit: Give at most so many rows, whichever are read first; None for all.
            keys: Rows with some of the table's columns: only rows are given that equal one of them in all of these, as a semi
                join gives them, and the indexes are asked for its values before files are read.
            options: `hoodie.*` options of this call.

        Raises:
            Unsupported: `keys` are very many and of several columns other than the record key fields.
        """
        parsed = self._open.parse(VERBS["scan"], options)
        query = plan_snapshot_query(
            self._open.load_context(parsed),
            columns,
            filter,
            as_of=_as_of(None if as_of is None else format_as_of(as_of, self._open.context.config.zone), parsed),
            values_from_path=parsed.flag(VALUES_FROM_PATH),
            settings=ReadSettings.of(parsed),
            cached=self._open.snapshot_cache,
        )
        if keys is not None:
            query = semi_join_filter(query, arrow_reader(keys).read_all(), exactly=True)
        return Scan(query, parsed.integer(THREADS), limit)

    def read_optimized(
        self,
        columns: Sequence[str] | None = None,
        filter: Filter | None = None,
        *,
        limit: int | None = None,
        options: Mapping[str, object] | None = None,
    ) -> Scan:
        """The rows of base files alone; on a copy-on-write table the same as `scan`.

        Args:
            columns: As of `scan`.
            filter: As of `scan`.
            limit: As of `scan`.
            options: `hoodie.*` options of this call.
        """
        parsed = self._open.parse(VERBS["read_optimized"], options)
        settings = ReadSettings.of(parsed)
        query = plan_snapshot_query(
            self._open.load_context(parsed),
            columns,
            filter,
            as_of=parsed.text(AS_OF),
            base_files_only=True,
            values_from_path=parsed.flag(VALUES_FROM_PATH),
            settings=settings,
            cached=self._open.snapshot_cache,
        )
        return Scan(query, parsed.integer(THREADS), limit)

    def lookup(self, keys: Any, columns: Sequence[str] | None = None, *, options: Mapping[str, object] | None = None) -> Scan:
        """The rows of some keys, in no order; keys that the table does not have give none.

        The record index finds the files where the table has one.

        Args:
            keys: Values of the record key field (`[1, 2]`), tuples of values where it has several fields, record keys as strings,
                or rows with the record key fields: with the partition fields too, a key is only looked for in its partition.
                A Spark DataFrame of them is collected; `pyhudi.spark.read(..., keys=)` joins with one of any size.
            columns: As of `scan`.
            options: `hoodie.*` options of this call.
        """
        parsed = self._open.parse(VERBS["lookup"], options)
        query = plan_read_lookup(
            self._open.load_context(parsed),
            parse_keys_argument(_collected(keys), self._open.context.config.keys),
            columns,
            ReadSettings.of(parsed),
            as_of=parsed.text(AS_OF),
            values_from_path=parsed.flag(VALUES_FROM_PATH),
            cached=self._open.snapshot_cache,
        )
        return Scan(query, parsed.integer(THREADS))

    def filter_exists(self, data: Any, *, options: Mapping[str, object] | None = None) -> Any:
        """The rows of `data` whose record keys the table does not have, in their order: what an insert would add.

        The indexes are asked for the keys as `lookup` asks them.  Nothing is written, and another writer may add a key meanwhile.

        Args:
            data: Rows with the record key fields: with the partition fields too, a key is only looked for in its partition.  A
                Spark DataFrame is filtered on Spark, in no order.
            options: `hoodie.*` options of this call.

        Returns:
            A DataFrame for a DataFrame, else an Arrow table.

        Raises:
            InvalidRequest: The rows lack a key field, or the table generates its keys.
        """
        parsed = self._open.parse(VERBS["filter_exists"], options)
        context, spec = self._open.load_context(parsed), self._open.context.config.keys
        if is_spark_value(data):
            from pyhudi.engines.spark.dataframe_semi_join import anti_join_table

            return anti_join_table(context, parsed, data, key_columns(spec, data.columns))
        rows = arrow_reader(data).read_all()
        names = key_columns(spec, rows.column_names)
        query = plan_snapshot_query(context, names, settings=ReadSettings.of(parsed), cached=self._open.snapshot_cache)
        found = Scan(semi_join_filter(query, rows.select(names)), parsed.integer(THREADS)).to_arrow()
        return anti_join(rows, found)

    def incremental(
        self,
        start: InstantArgument | None = None,
        end: InstantArgument | None = None,
        columns: Sequence[str] | None = None,
        filter: Filter | None = None,
        *,
        after: InstantArgument | None = None,
        options: Mapping[str, object] | None = None,
    ) -> Scan:
        """The records changed by instants that completed from `start` to `end`, both included, in their state as of `end`.

        Deletes do not appear.  In a table of version 9 `start` is left out, as its real Hudi does.  Tables of version 6 store no
        completion times: there `start` (left out) and `end` are request times.

        With the option `hoodie.datasource.query.incremental.format=cdc` it is Hudi's query of change data: the columns of
        `changes`, and `start` (left out) and `end` are request times.

        Args:
            start: A completion time (a result's `completion_time`), a datetime, a date, ISO text, or "earliest".
            end: As `start`; None for now.
            columns: As of `scan`.
            filter: As of `scan`.
            after: In place of `start`, which it leaves out in tables of every version: the completion time up to which all was
                read before.  No commit is read twice by who goes on from there.
            options: `hoodie.*` options of this call.

        Raises:
            InvalidRequest: Both or neither of `start` and `after` are given, or the instant of a write stands for its completion
                time.
        """
        parsed = self._open.parse(VERBS["incremental"], options)
        first, last = self._range_ends(start, end, after)
        if parsed.value_or_default(INCREMENTAL_FORMAT) == "cdc":
            changes = plan_change_query(
                self._open.load_context(parsed),
                RequestRange.parse(first, last),
                columns,
                filter,
                settings=ReadSettings.of(parsed),
            )
            return Scan(changes, parsed.integer(THREADS))
        range_ = _opened(incremental_range(parsed, self._open.context.config.version, first, last), after)
        query = plan_incremental_query(
            self._open.load_context(parsed),
            range_,
            columns,
            filter,
            fall_back=parsed.flag(FALL_BACK),
            values_from_path=parsed.flag(VALUES_FROM_PATH),
            settings=ReadSettings.of(parsed),
        )
        check_not_request_time(range_, (start, end, after), query.snapshot.timeline)
        return Scan(query, parsed.integer(THREADS))

    def changes(
        self,
        start: InstantArgument | None = None,
        end: InstantArgument | None = None,
        columns: Sequence[str] | None = None,
        filter: Filter | None = None,
        *,
        after: InstantArgument | None = None,
        typed: bool = False,
        options: Mapping[str, object] | None = None,
    ) -> Scan:
        """Every change by instants that completed from `start` to `end`: also deletes, and each of several changes of a record.

        Both ends are included; in a table of version 9 the start is left out, as its real Hudi does.  The table needs
        `hoodie.table.cdc.enabled=true` from its creation on.

        Rows come in the order of the changes: instants by completion time, and within an instant deletes before inserts and
        updates.  Applied one by one to the rows as of the start, they give the rows as of the end.  What does not keep their
        order (a shuffle on Spark, a parallel reader) restores it by sorting by `completion_time` and `op`.

        Args:
            start: A completion time (a result's `completion_time`), a datetime, a date, ISO text, or "earliest", which is the
                default.
            end: As `start`; None for now.
            columns: Some of the columns below; op, ts_ms, before and after by default.
            filter: As of `scan`, over the columns below.
            after: As of `incremental`.
            typed: Give the images as structs instead of JSON.
            options: `hoodie.*` options of this call.

        Returns:
            Columns op (`i`, `u`, `d`), ts_ms (request time of the instant), before and after: the record without meta columns as
            JSON text, or as a struct; null where there is none.  And completion_time (of the instant), where `columns` names it.

        Raises:
            TableState: Files that tell the changes were cleaned.
        """
        parsed = self._open.parse(VERBS["changes"], options)
        settings = ReadSettings.of(parsed)
        first, last = self._range_ends(EARLIEST if start is None and after is None else start, end, after)
        range_ = _opened(completion_range(self.context.config.version, first, last), after)
        query = plan_change_query(self._open.load_context(parsed), range_, columns, filter, typed=typed, settings=settings)
        check_not_request_time(range_, (start, end, after), query.snapshot.timeline)
        return Scan(query, parsed.integer(THREADS))

    def _range_ends(
        self, start: InstantArgument | None, end: InstantArgument | None, after: InstantArgument | None
    ) -> tuple[str, str | None]:
        """The ends of a range of times, as text.  Raises InvalidRequest unless one of start and after is given."""
        zone, given = self._open.context.config.zone, start if after is None else after
        if given is None or (start is not None and after is not None):
            raise InvalidRequest(
                "a range begins with either start=, which is included, or after=, which is not: give one of them; "
                'start="earliest" begins with the first commit'
            )
        # A second begins with its first millisecond, and what comes after it with the next second.
        first = range_text(given, zone, end=after is not None)
        return first, None if end is None else range_text(end, zone, end=True)


def _collected(keys: Any) -> Any:
    """Keys as this process has them: few enough rows of a DataFrame are brought here.  Raises InvalidRequest for more."""
    if not is_spark_value(keys):
        return keys
    rows = keys.limit(MAX_JOIN_KEYS + 1).toArrow()
    if rows.num_rows > MAX_JOIN_KEYS:
        raise InvalidRequest(
            f"more than {MAX_JOIN_KEYS} keys to look up: pyhudi.spark.read(spark, path, keys=...) joins with them"
        )
    return rows


def _opened(range_: CompletionRange | RequestRange, after: InstantArgument | None) -> CompletionRange | RequestRange:
    """The range without its start, where it comes after that."""
    return replace(range_, open_start=True) if after is not None and isinstance(range_, CompletionRange) else range_


def _as_of(argument: str | None, options: Options) -> str | None:
    """The time of a snapshot, from the argument or from the option.  Raises InvalidRequest when they differ."""
    option = options.text(AS_OF)
    if argument is not None and option is not None and argument != option:
        raise InvalidRequest(f"as_of={argument} and option {AS_OF}={option} disagree")
    return option if argument is None else argument
