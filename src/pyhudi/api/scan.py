"""What a read gives: `Scan`, and the rows in the form that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from pyhudi.api.optional_imports import imported, imported_polars
from pyhudi.api.splits import Split, build_splits, first_rows, read_batches
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import InvalidRequest
from pyhudi.operations.read.change_queries import ChangeQuery
from pyhudi.operations.read.query import SnapshotQuery
from pyhudi.planning.partition_pruning import ReadPlan
from pyhudi.records.html_repr import escaped, facts_as_html
from pyhudi.tasks.incoming_layout import rows_without_columns

if TYPE_CHECKING:
    import pandas
    import polars

    from pyhudi.api.dataset import HudiDataset
    from pyhudi.engines.spark.type_conversion import DataFrame, SparkSession


class Scan:
    """A read that is described and planned, and not yet carried out."""

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
        """The plan of the read, as operations take it."""
        return self._query

    @property
    def limit(self) -> int | None:
        """How many rows it gives at most; None for all."""
        return self._limit

    @property
    def schema(self) -> pa.Schema:
        """The columns that the scan gives."""
        return self._query.schema

    def explain(self) -> ReadPlan:
        """Which file slices are read, and what passed the others over; prints as text."""
        return self._query.plan

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, batch by batch; one file slice after the other, so memory holds one row group.

        Change data comes in the order of the changes (see `Table.changes`), other rows in no promised order.
        """
        batches = read_batches(self._query.reader, self._query.tasks)
        return batches if self._limit is None else first_rows(batches, self._limit)

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as an Arrow stream, read while it is consumed; memory as of `to_batches`."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        """All rows as one table."""
        if self._limit is not None:
            return pa.Table.from_batches(self.to_batches(), self.schema)
        read: Callable[[Any], Iterator[pa.Table]] = self._query.reader
        engine = LocalEngine(self._threads)
        parts = engine.map(lambda task: list(read(task)), self._query.tasks)
        tables = [table for part in parts for table in part]
        if not self.schema.names:
            return rows_without_columns(sum(table.num_rows for table in tables))
        return pa.concat_tables([self.schema.empty_table(), *tables])

    def head(self, limit: int = 10) -> pa.Table:
        """Some of the rows, at most `limit` of them; no more is read than they take.

        Args:
            limit: How many rows.
        """
        if limit < 0:
            raise InvalidRequest(f"head takes a number of rows of 0 or more, not {limit}")
        return pa.Table.from_batches(first_rows(self.to_batches(), limit), self.schema)

    def splits(self, size_bytes: int = 0) -> list[Split]:
        """The scan in parts that can be pickled and read by other processes and machines; together they give its rows, each once.

        Change data is in the order of the changes where the splits are read in the order of the list.

        Args:
            size_bytes: Slices are put together while a split has no more bytes than that.  0 makes each slice a split.

        Raises:
            InvalidRequest: The scan has a limit, which no part knows how to keep.
        """
        if self._limit is not None:
            raise InvalidRequest("a scan with a limit has no splits: make it without limit=, or take its head()")
        if size_bytes < 0:
            raise InvalidRequest(f"size_bytes is 0 or more, not {size_bytes}")
        return build_splits(self._query, size_bytes)

    def to_pandas(
        self,
        types_mapper: Callable[[pa.DataType], Any] | None = None,
        dtype_backend: Literal["numpy_nullable", "pyarrow"] | None = None,
    ) -> pandas.DataFrame:
        """All rows as a pandas frame.

        Args:
            types_mapper: Gives the pandas type of an Arrow type, or None for the usual one.
            dtype_backend: "pyarrow" keeps the Arrow types; "numpy_nullable" takes pandas' own types that know missing values.  By
                default whole numbers with missing values become floating point.

        Raises:
            InvalidRequest: Both are given, there is no such backend, or pandas is not installed.
        """
        imported("pandas", "a pandas frame")
        rows = self.to_arrow()
        if dtype_backend is None:
            return rows.to_pandas(types_mapper=types_mapper)
        if types_mapper is not None:
            raise InvalidRequest("types_mapper and dtype_backend both say which types a frame has; give one of them")
        return rows.to_pandas(types_mapper=_mapper_of(dtype_backend))

    def to_polars(self) -> polars.DataFrame:
        """All rows as a Polars frame; `pyhudi.scan_polars` gives a lazy one."""
        frame: polars.DataFrame = imported_polars().from_arrow(self.to_arrow())
        return frame

    def to_dataset(self) -> HudiDataset:
        """The rows as a dataset of pyarrow, which DuckDB, DataFusion, Polars and others take.

        Nothing is read yet; the columns and filters that they hand down decide what is.

        Raises:
            InvalidRequest: The scan has a limit.
        """
        from pyhudi.api.dataset import HudiDataset

        if self._limit is not None:
            raise InvalidRequest("a dataset has no limit: make the scan without limit=, and take the dataset's head()")
        return HudiDataset(self._query, self._threads)

    def to_spark(self, spark: SparkSession) -> DataFrame:
        """The rows as a Spark DataFrame; base files without logs go through Spark's own Parquet scan.

        The partitions of the DataFrame, and the rows in each of them, have the order of `to_batches`.
        """
        from pyhudi.engines.spark.read_dataframe import query_dataframe

        frame = query_dataframe(spark, self._query)
        return frame if self._limit is None else frame.limit(self._limit)

    def count(self) -> int:
        """How many rows the scan gives."""
        without = self._query.without_columns()
        batches = read_batches(without.reader, without.tasks)
        return sum(batch.num_rows for batch in (batches if self._limit is None else first_rows(batches, self._limit)))


def _mapper_of(backend: str) -> Callable[[pa.DataType], Any]:
    """The pandas types of a backend, as `pandas.read_parquet` takes them."""
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
