"""What a read gives: `Scan`, and the rows in the form that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from pyhudi.engines.local import LocalEngine
from pyhudi.errors import InvalidRequest
from pyhudi.execute.read_slice import rows_without_columns
from pyhudi.notebook import escaped, facts_as_html
from pyhudi.operations.read.changes import ChangeQuery
from pyhudi.operations.read.query import (
    Query,
)
from pyhudi.plan.read import ReadPlan

if TYPE_CHECKING:
    import pandas
    import polars

    from pyhudi.engines.spark.convert import DataFrame, SparkSession


class Scan:
    """A read that is described and planned, and not yet carried out."""

    def __init__(self, query: Query | ChangeQuery, threads: int = 0) -> None:
        self._query = query
        self._threads = threads

    def __repr__(self) -> str:
        return f"Scan({self._query.snapshot.context.storage.uri!r}, {len(self._query.tasks)} file slices)"

    def _repr_html_(self) -> str:
        columns = facts_as_html({field.name: field.type for field in self.schema})
        return f"<pre>{escaped(repr(self))}</pre>{columns}"

    @property
    def query(self) -> Query | ChangeQuery:
        """The plan of the read, as operations take it."""
        return self._query

    @property
    def schema(self) -> pa.Schema:
        """The columns that the scan gives."""
        return self._query.schema

    def explain(self) -> ReadPlan:
        """Which file slices are read, and what passed the others over; prints as text."""
        return self._query.plan

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, batch by batch, in no promised order; one file slice after the other, so memory holds one row group."""
        return _batches(self._query)

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as an Arrow stream."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        """All rows as one table."""
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
        batches: list[pa.RecordBatch] = []
        left = limit
        for batch in self.to_batches() if limit else ():
            batches.append(batch.slice(0, left))
            left -= batch.num_rows
            if left <= 0:
                break
        return pa.Table.from_batches(batches, self.schema)

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
            InvalidRequest: Both are given, or there is no such backend.
        """
        rows = self.to_arrow()
        if dtype_backend is None:
            return rows.to_pandas(types_mapper=types_mapper)
        if types_mapper is not None:
            raise InvalidRequest("types_mapper and dtype_backend both say which types a frame has; give one of them")
        return rows.to_pandas(types_mapper=_mapper_of(dtype_backend))

    def to_polars(self) -> polars.DataFrame:
        """All rows as a Polars frame."""
        import polars

        frame = polars.from_arrow(self.to_arrow())
        assert isinstance(frame, polars.DataFrame)
        return frame

    def to_spark(self, spark: SparkSession) -> DataFrame:
        """The rows as a Spark DataFrame; base files without logs go through Spark's own Parquet scan."""
        from pyhudi.engines.spark.read import query_dataframe

        return query_dataframe(spark, self._query)

    def count(self) -> int:
        """How many rows the scan gives."""
        return sum(batch.num_rows for batch in _batches(self._query.without_columns()))


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


def _batches(query: Query | ChangeQuery) -> Iterator[pa.RecordBatch]:
    read: Callable[[Any], Iterator[pa.Table]] = query.reader
    for task in query.tasks:
        for table in read(task):
            if table.num_columns:
                yield from table.to_batches()
            elif table.num_rows:
                yield pa.RecordBatch.from_arrays([pa.nulls(table.num_rows)], names=[""]).select([])
