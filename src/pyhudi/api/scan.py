"""`Scan`: a planned read and its conversions to Arrow, pandas, Polars, pyarrow datasets and Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from pyhudi.api.argument_types import checked_class
from pyhudi.api.attribute_hints import ForeignNames
from pyhudi.api.duckdb_scan import to_relation
from pyhudi.api.optional_imports import imported, imported_polars
from pyhudi.api.polars_scan import from_frame, is_worth_loading, native_rows, suppress_polars_errors, to_frame, with_types
from pyhudi.api.splits import Split, build_splits, first_rows, read_batches
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import InvalidRequest
from pyhudi.format.hudi_types import with_extension
from pyhudi.operations.read.change_queries import ChangeQuery
from pyhudi.operations.read.query import SnapshotQuery
from pyhudi.planning.partition_pruning import ReadPlan
from pyhudi.records.html_repr import escaped, facts_as_html
from pyhudi.table.file_slices import FileSlice
from pyhudi.tasks.incoming_layout import rows_without_columns

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars

    from pyhudi.api.dataset import HudiDataset
    from pyhudi.engines.spark.type_conversion import DataFrame, SparkSession

_TEXT_FORMS = ("strings", "views")
_VIEWS = {pa.string(): pa.string_view(), pa.binary(): pa.binary_view()}


@checked_class
class Scan(ForeignNames):
    """A planned read that runs when one of its `to_...` methods is called."""

    def __init__(self, query: SnapshotQuery | ChangeQuery, threads: int = 0, limit: int | None = None) -> None:
        if limit is not None and limit < 0:
            raise InvalidRequest(f"limit takes a number of rows of 0 or more, not {limit}")
        self._query = query
        self._threads = threads
        self._limit = limit

    def __repr__(self) -> str:
        return f"Scan({self._query.snapshot.context.storage.uri!r}, {len(self._query.tasks)} file slices)"

    def _repr_html_(self) -> str:
        columns = facts_as_html({field.name: field.type for field in self.schema})
        return f"<pre>{escaped(repr(self))}</pre>{columns}"

    @property
    def query(self) -> SnapshotQuery | ChangeQuery:
        """Query plan, as operations take it."""
        return self._query

    @property
    def threads(self) -> int:
        """Number of threads that read file slices."""
        return self._threads

    @property
    def limit(self) -> int | None:
        """Maximum number of rows; None for all."""
        return self._limit

    @property
    def schema(self) -> pa.Schema:
        """Schema of the result."""
        return self._query.schema

    def explain(self) -> ReadPlan:
        """Return the read plan: the file slices to read and what pruned the others. It prints as text."""
        return self._query.plan

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Read the rows as record batches.

        File slices are read one after another, so memory holds one batch of rows and the log records of one slice;
        with a filter, one row group. Change data comes in the order of the changes (see `Table.changes`); other rows
        have no defined order.
        """
        batches = read_batches(self._query.reader, self._query.tasks)
        return batches if self._limit is None else first_rows(batches, self._limit)

    def to_reader(self) -> pa.RecordBatchReader:
        """Read the rows as an Arrow stream, lazily. Memory use is that of `to_batches`."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        raise TypeError(
            "a Scan is not iterable: use to_batches() for record batches, to_arrow().to_pylist() for rows, or to_pandas(), "
            "to_polars() and to_arrow() for a frame"
        )

    def __len__(self) -> int:
        raise TypeError("a Scan has no len(), and no truth value: use count(), which reads the table")

    def to_arrow(self, *, text: str = "strings") -> pa.Table:
        """Read all rows into one Arrow table. With Polars installed, it may read plain base files.

        Args:
            text: "strings" returns text and binary columns as `pa.string()` and `pa.binary()`. "views" returns them as
                `pa.string_view()` and `pa.binary_view()`; with Polars installed, it reads plain base files, and text is
                not copied.

        Raises:
            InvalidRequest: `text` is neither.
        """
        if text not in _TEXT_FORMS:
            raise InvalidRequest(f"to_arrow: text={text!r} is not supported: pass {' or '.join(map(repr, _TEXT_FORMS))}")
        if text == "views":
            return self._with_views()
        if self._limit is not None:
            return with_extension(pa.Table.from_batches(self.to_batches(), self.schema))
        tasks: Sequence[Any] = self._query.tasks
        tables = []
        if all(not pa.types.is_nested(type_) for type_ in self.schema.types) and is_worth_loading(tasks):
            native = self._polars_rows()
            if native is not None:
                frame, tasks = native
                tables.append(from_frame(frame, self.schema))
                del frame, native
        query = self._query
        if isinstance(query, SnapshotQuery):
            query = replace(query, spec=replace(query.spec, keeps_rows=True))
        read: Callable[[Any], Iterator[pa.Table]] = query.reader
        parts = LocalEngine(self._threads).map(lambda task: list(read(task)), tasks)
        tables += [table for part in parts for table in part]
        if not self.schema.names:
            return rows_without_columns(sum(table.num_rows for table in tables))
        return with_extension(pa.concat_tables([self.schema.empty_table(), *tables]))

    def _with_views(self) -> pa.Table:
        schema = pa.schema([field.with_type(_VIEWS.get(field.type, field.type)) for field in self.schema])
        is_flat = all(not pa.types.is_nested(type_) for type_ in schema.types)
        native = self._polars_rows() if is_flat and find_spec("polars") is not None else None
        if native is None:
            rows = self.to_arrow()
            return with_types(rows, schema) if schema.names else rows
        frame, rest = native
        tables = [from_frame(frame, schema)]
        if rest:
            tables.append(with_types(self.of_slices(rest).to_arrow(), schema))
        return pa.concat_tables(tables)

    def head(self, limit: int = 10) -> pa.Table:
        """Read at most `limit` rows, and no further data than these need.

        Args:
            limit: Maximum number of rows.
        """
        if limit < 0:
            raise InvalidRequest(f"head takes a number of rows of 0 or more, not {limit}")
        return pa.Table.from_batches(first_rows(self.to_batches(), limit), self.schema)

    def splits(self, size_bytes: int = 0) -> list[Split]:
        """Split the scan into parts that can be pickled and read by other processes and machines.

        Together the splits return each row once. Change data keeps the order of the changes if the splits are read in
        the order of the list.

        Args:
            size_bytes: Combine file slices while a split has at most that many bytes. 0 makes each slice its own split.

        Returns:
            The splits, in the order of the scan.

        Raises:
            InvalidRequest: The scan has a limit, which cannot be applied across splits.
        """
        if self._limit is not None:
            raise InvalidRequest("a scan with a limit has no splits: scan without limit=, or use head()")
        if size_bytes < 0:
            raise InvalidRequest(f"size_bytes is 0 or more, not {size_bytes}")
        return build_splits(self._query, size_bytes)

    def to_pandas(
        self,
        types_mapper: Callable[[pa.DataType], Any] | None = None,
        dtype_backend: Literal["numpy_nullable", "pyarrow"] | None = None,
    ) -> pandas.DataFrame:
        """Read all rows into a pandas DataFrame.

        Args:
            types_mapper: Function from an Arrow type to a pandas type, or None for the default type.
            dtype_backend: "pyarrow" keeps the Arrow types; "numpy_nullable" uses the nullable pandas types. By default
                integers with missing values become floating point.

        Raises:
            InvalidRequest: Both arguments are passed, the backend is unknown, or pandas is not installed.
        """
        imported("pandas", "a pandas frame")
        rows = self.to_arrow()
        if dtype_backend is None:
            return rows.to_pandas(types_mapper=types_mapper)
        if types_mapper is not None:
            raise InvalidRequest("types_mapper and dtype_backend both determine the types of the frame: pass one of them")
        return rows.to_pandas(types_mapper=_mapper_of(dtype_backend))

    def to_polars(self) -> polars.DataFrame:
        """Read all rows into a Polars DataFrame; `pyhudi.scan_polars` returns a LazyFrame."""
        native = self._polars_rows()
        if native is None:
            return to_frame(self.to_arrow())
        frame, rest = native
        if not rest:
            return frame
        whole: polars.DataFrame = imported_polars().concat([frame, to_frame(self.of_slices(rest).to_arrow())])
        return whole

    def _polars_rows(self) -> tuple[polars.DataFrame, tuple[FileSlice, ...]] | None:
        """Read plain base files with Polars: their rows, and the other slices; None if Polars reads none of them."""
        query = self._query
        if self._limit is not None or not isinstance(query, SnapshotQuery) or not query.schema.names:
            return None
        if query.spec.matching_keys() is not None:
            # PyHudi's reader looks up keys in filters and single pages.
            return None
        native = native_rows(query, query.spec.condition)
        if native is not None:
            with suppress_polars_errors():
                return native.rows.collect(), native.rest
        return None

    def of_slices(self, slices: Sequence[FileSlice]) -> Scan:
        """Return the scan of some of its file slices.

        Args:
            slices: File slices of this scan.

        Returns:
            A scan of these file slices.

        Raises:
            InvalidRequest: The scan reads change data, or the argument is not a list of its file slices.
        """
        if not isinstance(self._query, SnapshotQuery):
            raise InvalidRequest("a scan of change data has no file slices: use the scan of Table.scan")
        try:
            chosen = tuple(slices)
        except TypeError:
            raise InvalidRequest(f"Scan.of_slices takes a list of FileSlice, not {type(slices).__name__}") from None
        return Scan(replace(self._query, plan=replace(self._query.plan, slices=chosen)), self._threads, self._limit)

    def to_dataset(self) -> HudiDataset:
        """Return the rows as a pyarrow dataset, for DuckDB, DataFusion, Polars and others.

        The dataset is lazy: the engine pushes columns and filters down, and only the data they need is read.

        Raises:
            InvalidRequest: The scan has a limit.
        """
        from pyhudi.api.dataset import HudiDataset

        if self._limit is not None:
            raise InvalidRequest("a dataset has no limit: scan without limit=, and use the dataset's head()")
        return HudiDataset(self._query, self._threads)

    def to_duckdb(self, connection: Any) -> duckdb.DuckDBPyRelation:
        """Return the rows as a relation of a DuckDB connection. DuckDB reads plain base files itself.

        Logs of other slices are merged by this call, and the connection keeps them until it is closed. Errors of files
        at the execution of the relation are DuckDB's.

        Args:
            connection: A `duckdb.DuckDBPyConnection`, such as the result of `duckdb.connect()`.

        Raises:
            InvalidRequest: The argument is something else.

        Example:
            >>> table.scan(filter="city = 'sf'").to_duckdb(duckdb.connect()).aggregate("max(fare)").fetchall()
        """
        relation: duckdb.DuckDBPyRelation = to_relation(self, connection)
        return relation

    def to_spark(self, spark: SparkSession) -> DataFrame:
        """Return the rows as a Spark DataFrame. Base files without log files are read by Spark's own Parquet scan.

        The partitions of the DataFrame, and the rows in each partition, have the order of `to_batches`.

        Args:
            spark: Session that runs the read.
        """
        from pyhudi.engines.spark.read_dataframe import query_dataframe

        frame = query_dataframe(spark, self._query)
        return frame if self._limit is None else frame.limit(self._limit)

    def count(self) -> int:
        """Count the rows."""
        without = self._query.without_columns()
        batches = read_batches(without.reader, without.tasks)
        return sum(batch.num_rows for batch in (batches if self._limit is None else first_rows(batches, self._limit)))


def _mapper_of(backend: str) -> Callable[[pa.DataType], Any]:
    """Types mapper of a pandas backend, as in `pandas.read_parquet`."""
    import pandas

    chosen: Callable[[pa.DataType], Any] = pandas.ArrowDtype
    if backend == "pyarrow":
        return chosen
    if backend != "numpy_nullable":
        raise InvalidRequest(f"dtype_backend={backend!r} is neither numpy_nullable nor pyarrow")
    return {
        pa.bool_(): pandas.BooleanDtype(),
        pa.int32(): pandas.Int32Dtype(),
        pa.int64(): pandas.Int64Dtype(),
        pa.float32(): pandas.Float32Dtype(),
        pa.float64(): pandas.Float64Dtype(),
        pa.string(): pandas.StringDtype(),
    }.get
