"""Reads of `Table`: snapshot queries, time travel, key lookups, incremental queries and change data capture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyhudi import features
from pyhudi.api.argument_types import checked_class
from pyhudi.api.key_arguments import parse_keys_argument
from pyhudi.api.scan import Scan
from pyhudi.api.table_handle import is_spark_value
from pyhudi.engines.arrow.input_rows import arrow_reader
from pyhudi.errors import InvalidRequest
from pyhudi.operations.read.change_queries import plan_change_query
from pyhudi.operations.read.file_pruning import ReadSettings
from pyhudi.operations.read.key_lookup import plan_read_lookup
from pyhudi.operations.read.projection import column_list
from pyhudi.operations.read.query import completion_range, incremental_range, plan_incremental_query, plan_snapshot_query
from pyhudi.operations.read.semi_join import MAX_JOIN_KEYS, anti_join, key_columns, semi_join_filter
from pyhudi.options.read_options import (
    AS_OF,
    BLOB_ROOTS,
    INCREMENTAL_FORMAT,
    READ_INCR_FALLBACK_FULLTABLESCAN_ENABLE,
    VALUES_FROM_PATH,
)
from pyhudi.options.scope import TABLE_OPERATIONS
from pyhudi.options.write_options import THREADS
from pyhudi.planning.incremental_query import EARLIEST, CompletionRange, RequestRange
from pyhudi.planning.instant_arguments import InstantArgument, check_not_request_time, range_text
from pyhudi.records.filters.filter_parser import Filter

if TYPE_CHECKING:
    pass

from pyhudi.api.opened_table import OpenedTable, with_as_of


@checked_class
class TableReads(OpenedTable):
    """The read methods of `Table`."""

    def scan(
        self,
        columns: str | Sequence[str] | None = None,
        filter: Filter | None = None,
        as_of: InstantArgument | None = None,
        *,
        limit: int | None = None,
        keys: Any = None,
        options: Mapping[str, object] | None = None,
    ) -> Scan:
        """Plan a snapshot query, optionally as of an earlier instant (time travel).

        Nothing is read until one of the scan's `to_...` methods is called.

        Args:
            columns: Columns to read, or the name of one; all data columns by default. Meta columns (`_hoodie_...`) can be
                named; "*" selects both.
            filter: SQL text such as `"fare > 10 and city = 'sf'"`, tuples such as `[("city", "=", "sf")]`, or an
                expression of pyarrow (`pc.field("fare") > 10`) or Polars (`pl.col("fare") > 10`).
            as_of: An instant, the result of a write, a datetime, a date, ISO text, or `tag:NAME` of a savepoint. A time
                without a zone is in the table's time zone (`hoodie.table.timeline.timezone`).
            limit: Maximum number of rows, in any order; None for all.
            keys: Rows with some of the table's columns: a semi join. Only rows that equal one of them in all these
                columns are returned. Their values are looked up in the indexes to prune files.
            options: `hoodie.*` options of this call.

        Returns:
            The planned scan.

        Raises:
            InvalidRequest: The filter does not parse, or names a column that does not exist.
            Unsupported: `keys` has too many rows, over several columns other than the record key fields.

        Example:
            >>> rows = table.scan(["id", "fare"], filter="fare > 10").to_arrow()
            >>> yesterday = table.scan(as_of="2024-05-06").to_pandas()
        """
        parsed = self._open.parse(TABLE_OPERATIONS["scan"], options)
        query = plan_snapshot_query(
            self._open.load_context(parsed),
            column_list(columns),
            filter,
            as_of=with_as_of(parsed, as_of, self._open.context.config.zone).text(AS_OF),
            values_from_path=parsed.flag(VALUES_FROM_PATH),
            settings=ReadSettings.of(parsed),
            cached=self._open.snapshot_cache,
        )
        if keys is not None:
            query = semi_join_filter(query, arrow_reader(keys).read_all(), exactly=True)
        return Scan(query, parsed.integer(THREADS), limit)

    def search(
        self,
        column: str,
        vector: Any,
        k: int = 10,
        metric: str = "cosine",
        *,
        filter: Filter | None = None,
        columns: Sequence[str] | None = None,
        options: Mapping[str, object] | None = None,
    ) -> pa.Table:
        """Find the rows whose vectors are nearest to a query vector, exactly, by comparing all of them.

        The filter prunes partitions, files and row groups first. Memory holds one row group for each thread and the rows
        found. Null vectors are never found.

        Args:
            column: A column of type VECTOR.
            vector: The query, as a list or array of its dimension; or several queries, such as a two-dimensional NumPy
                array.
            k: Number of rows for each query.
            metric: "cosine" (1 - cosine, between 0 and 2; 1 for a vector of length 0), "l2" (Euclidean distance) or "dot"
                (the negative inner product).
            filter: As in `scan`: only rows that match are compared.
            columns: Columns to return, as in `scan`; all data columns except the vector by default.
            options: `hoodie.*` options of this call.

        Returns:
            The rows with the column `_hudi_distance` (float64) at the end, nearest first. For several queries also the
            column `query` at the front, the number of the query, whose rows are together.

        Raises:
            InvalidRequest: The column is not a vector, or query, k or metric are invalid.

        Example:
            >>> table.search("emb", [0.1, 0.2, 0.3], k=5, filter="city = 'sf'")
        """
        rows: pa.Table = features.load("vector_search", "Table.search").search(
            self, column, vector, k, metric, filter=filter, columns=columns, options=options
        )
        return rows

    def read_blobs(
        self,
        blobs: pa.Array | pa.ChunkedArray | Sequence[Mapping[str, Any] | None],
        *,
        offset: int = 0,
        length: int | None = None,
        options: Mapping[str, object] | None = None,
    ) -> pa.ChunkedArray:
        """Read the bytes of BLOB values: inline ones, and ranges of files outside of the table.

        Only files below the folders of the option `pyhudi.blob.roots` are read, with the storage options of the table.
        Ranges that are close to each other are read with one request. A scan never reads such files.

        Args:
            blobs: A column of type BLOB of this or another table, in parts of any size.
            offset: First byte of each value to return.
            length: Maximum number of bytes of each value to return; None for all. Large values are read range by range.
            options: `pyhudi.blob.roots`, folders separated by commas.

        Returns:
            The bytes, binary, in the order of the values; null for a null value and for one that is inline without data.

        Raises:
            Unsupported: A file is outside of the allowed folders, or a value has more than 2 GiB.
            TableState: A file does not exist, or is too short.
            InvalidRequest: The values are not BLOB values.

        Example:
            >>> rows = table.scan(["id", "picture"], filter="id = 7").to_arrow()
            >>> table.read_blobs(rows["picture"], options={"pyhudi.blob.roots": "s3://bucket/pictures"})
        """
        parsed = self._open.parse(TABLE_OPERATIONS["read_blobs"], options)
        reader = features.load("blob_reader", "Table.read_blobs")
        storage_options = dict(self._open.context.storage.spec().options)
        content: pa.ChunkedArray = reader.BlobReader(parsed.text(BLOB_ROOTS), storage_options).read(
            reader.blobs_of(blobs), offset, length
        )
        return content

    def count(
        self,
        filter: Filter | None = None,
        as_of: InstantArgument | None = None,
        *,
        options: Mapping[str, object] | None = None,
    ) -> int:
        """Count the rows.

        Args:
            filter: As in `scan`.
            as_of: As in `scan`.
            options: `hoodie.*` options of this call.
        """
        return self.scan(filter=filter, as_of=as_of, options=options).count()

    def read_optimized(
        self,
        columns: str | Sequence[str] | None = None,
        filter: Filter | None = None,
        *,
        limit: int | None = None,
        options: Mapping[str, object] | None = None,
    ) -> Scan:
        """Plan a read-optimized query: base files only, without merging log files.

        On a copy-on-write table the result equals that of `scan`.

        Args:
            columns: As in `scan`.
            filter: As in `scan`.
            limit: As in `scan`.
            options: `hoodie.*` options of this call.
        """
        parsed = self._open.parse(TABLE_OPERATIONS["read_optimized"], options)
        settings = ReadSettings.of(parsed)
        query = plan_snapshot_query(
            self._open.load_context(parsed),
            column_list(columns),
            filter,
            as_of=parsed.text(AS_OF),
            base_files_only=True,
            values_from_path=parsed.flag(VALUES_FROM_PATH),
            settings=settings,
            cached=self._open.snapshot_cache,
        )
        return Scan(query, parsed.integer(THREADS), limit)

    def lookup(
        self, keys: Any, columns: str | Sequence[str] | None = None, *, options: Mapping[str, object] | None = None
    ) -> Scan:
        """Look up rows by record key, in no defined order. Keys that do not exist return no row.

        The record index locates the files if the table has one.

        Args:
            keys: Values of the record key field (`[1, 2]`), tuples of values if the key has several fields, record keys
                as strings, or rows with the record key fields. With the partition fields too, a key is only looked up
                in its partition. A Spark DataFrame of keys is collected; `pyhudi.spark.read(..., keys=)` joins with one
                of any size.
            columns: As in `scan`.
            options: `hoodie.*` options of this call.
        """
        parsed = self._open.parse(TABLE_OPERATIONS["lookup"], options)
        query = plan_read_lookup(
            self._open.load_context(parsed),
            parse_keys_argument(_collected(keys), self._open.context.config.keys),
            column_list(columns),
            ReadSettings.of(parsed),
            as_of=parsed.text(AS_OF),
            values_from_path=parsed.flag(VALUES_FROM_PATH),
            cached=self._open.snapshot_cache,
        )
        return Scan(query, parsed.integer(THREADS))

    def filter_exists(self, data: Any, *, options: Mapping[str, object] | None = None) -> Any:
        """Return the rows of `data` whose record keys do not exist in the table, in their order (an anti join).

        The keys are looked up in the indexes, as in `lookup`. Nothing is written, and another writer can insert a key
        concurrently.

        Args:
            data: Rows with the record key fields. With the partition fields too, a key is only looked up in its
                partition. A Spark DataFrame is filtered on Spark, without a defined order.
            options: `hoodie.*` options of this call.

        Returns:
            A DataFrame for a DataFrame, otherwise an Arrow table.

        Raises:
            InvalidRequest: The rows lack a key field, or the table generates its keys.
        """
        parsed = self._open.parse(TABLE_OPERATIONS["filter_exists"], options)
        context, spec = self._open.load_context(parsed), self._open.context.config.keys
        if is_spark_value(data):
            from pyhudi.engines.spark.dataframe_semi_join import anti_join_table

            return anti_join_table(context, parsed, data, key_columns(spec, data.columns))
        rows = arrow_reader(data).read_all()
        names = key_columns(spec, rows.column_names)
        query = plan_snapshot_query(context, names, settings=ReadSettings.of(parsed), cached=self._open.snapshot_cache)
        existing_rows = Scan(semi_join_filter(query, rows.select(names)), parsed.integer(THREADS)).to_arrow()
        return anti_join(rows, existing_rows)

    def incremental(
        self,
        start: InstantArgument | None = None,
        end: InstantArgument | None = None,
        columns: str | Sequence[str] | None = None,
        filter: Filter | None = None,
        *,
        after: InstantArgument | None = None,
        options: Mapping[str, object] | None = None,
    ) -> Scan:
        """Plan an incremental query: records changed by instants that completed from `start` to `end`, in their state
        as of `end`.

        Both ends are included; in a table of version 9 `start` is excluded, as in Hudi. Deletes are not returned.
        Tables of version 6 store no completion times: there `start` (excluded) and `end` are request times.

        The option `hoodie.datasource.query.incremental.format=cdc` makes it a CDC query, as in Hudi: it returns the
        columns of `changes`, and `start` (excluded) and `end` are request times.

        Args:
            start: A completion time, the result of a write (its completion time), a datetime, a date, ISO text, or "earliest".
            end: As `start`; None for the latest commit.
            columns: As in `scan`.
            filter: As in `scan`.
            after: Exclusive start, in place of `start`, for tables of every version: the checkpoint up to which all
                commits have been read. A consumer that continues from its last checkpoint reads no commit twice.
            options: `hoodie.*` options of this call.

        Raises:
            InvalidRequest: Both or neither of `start` and `after` are passed, or a request time is passed as completion
                time.
        """
        parsed = self._open.parse(TABLE_OPERATIONS["incremental"], options)
        first, last = self._range_ends(start, end, after)
        if parsed.value_or_default(INCREMENTAL_FORMAT) == "cdc":
            changes = plan_change_query(
                self._open.load_context(parsed),
                RequestRange.parse(first, last),
                column_list(columns),
                filter,
                settings=ReadSettings.of(parsed),
            )
            return Scan(changes, parsed.integer(THREADS))
        range_ = _opened(incremental_range(parsed, self._open.context.config.version, first, last), after)
        query = plan_incremental_query(
            self._open.load_context(parsed),
            range_,
            column_list(columns),
            filter,
            fall_back=parsed.flag(READ_INCR_FALLBACK_FULLTABLESCAN_ENABLE),
            values_from_path=parsed.flag(VALUES_FROM_PATH),
            settings=ReadSettings.of(parsed),
        )
        check_not_request_time(range_, (start, end, after), query.snapshot.timeline)
        return Scan(query, parsed.integer(THREADS))

    def changes(
        self,
        start: InstantArgument | None = None,
        end: InstantArgument | None = None,
        columns: str | Sequence[str] | None = None,
        filter: Filter | None = None,
        *,
        after: InstantArgument | None = None,
        typed: bool = False,
        options: Mapping[str, object] | None = None,
    ) -> Scan:
        """Plan a CDC query: every change by instants that completed from `start` to `end`, including deletes.

        Several changes of one record are all returned. Both ends are included; in a table of version 9 the start is
        excluded, as in Hudi. The table must have been created with `hoodie.table.cdc.enabled=true`.

        Rows come in the order of the changes: instants by completion time, and within an instant deletes before inserts
        and updates. Applied one by one to the rows as of the start, they produce the rows as of the end. After an
        operation that loses the order (a shuffle on Spark, a parallel reader), sort by `completion_time` and `op` to
        restore it.

        Args:
            start: A completion time, the result of a write (its completion time), a datetime, a date, ISO text, or "earliest"
                (default).
            end: As `start`; None for the latest commit.
            columns: Some of the columns below; op, ts_ms, before and after by default.
            filter: As in `scan`, over the columns below.
            after: As in `incremental`.
            typed: Return the before and after images as structs instead of JSON.
            options: `hoodie.*` options of this call.

        Returns:
            Columns op (`i`, `u`, `d`), ts_ms (request time of the instant), before and after: the record without meta
            columns as JSON text or as a struct, null if there is none. Also completion_time (of the instant) if
            `columns` names it.

        Raises:
            TableState: Files that the query needs have been cleaned.
        """
        parsed = self._open.parse(TABLE_OPERATIONS["changes"], options)
        settings = ReadSettings.of(parsed)
        first, last = self._range_ends(EARLIEST if start is None and after is None else start, end, after)
        range_ = _opened(completion_range(self.context.config.version, first, last), after)
        query = plan_change_query(
            self._open.load_context(parsed), range_, column_list(columns), filter, typed=typed, settings=settings
        )
        check_not_request_time(range_, (start, end, after), query.snapshot.timeline)
        return Scan(query, parsed.integer(THREADS))

    def _range_ends(
        self, start: InstantArgument | None, end: InstantArgument | None, after: InstantArgument | None
    ) -> tuple[str, str | None]:
        """Ends of a time range as text. Raises InvalidRequest unless exactly one of start and after is passed."""
        zone, start_argument = self._open.context.config.zone, start if after is None else after
        if start_argument is None or (start is not None and after is not None):
            raise InvalidRequest(
                "pass either start= (inclusive) or after= (exclusive) to begin a range; "
                'start="earliest" begins with the first commit'
            )
        # An inclusive start in seconds means its first millisecond; an exclusive start in seconds means its last.
        first = range_text(start_argument, zone, end=after is not None)
        return first, None if end is None else range_text(end, zone, end=True)


def _collected(keys: Any) -> Any:
    """Keys in memory of this process; a DataFrame is collected. Raises InvalidRequest above MAX_JOIN_KEYS rows."""
    if not is_spark_value(keys):
        return keys
    rows = keys.limit(MAX_JOIN_KEYS + 1).toArrow()
    if rows.num_rows > MAX_JOIN_KEYS:
        raise InvalidRequest(
            f"more than {MAX_JOIN_KEYS} keys to look up: use pyhudi.spark.read(spark, path, keys=...), which joins with them"
        )
    return rows


def _opened(range_: CompletionRange | RequestRange, after: InstantArgument | None) -> CompletionRange | RequestRange:
    """The range with an exclusive start if `after` is set."""
    return replace(range_, open_start=True) if after is not None and isinstance(range_, CompletionRange) else range_
