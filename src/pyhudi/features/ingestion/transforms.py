"""Transforms: SQL text and Python functions, applied one after the other.

SQL is a query over `<SRC>`, as of Hudi's SqlQueryBasedTransformer, in Spark's dialect. A function takes the rows as a
stream of Arrow batches and returns rows: anything that `Table.upsert` accepts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import pyarrow as pa

from pyhudi.engines.arrow.input_rows import arrow_reader
from pyhudi.errors import HudiError, InvalidRequest

SOURCE_NAME = "<SRC>"
_TABLE = "pyhudi_source_rows"


@dataclass(frozen=True, slots=True)
class SqlTransform:
    """A query over `<SRC>`, executed by DuckDB.

    Attributes:
        sql: The query.
    """

    sql: str

    def __post_init__(self) -> None:
        if SOURCE_NAME not in self.sql:
            raise InvalidRequest(
                f"the SQL of a transform does not contain {SOURCE_NAME}, the name of the incoming rows: {self.sql[:100]}"
            )

    @property
    def query(self) -> str:
        """The query with a table name instead of `<SRC>`."""
        return self.sql.replace(SOURCE_NAME, _TABLE).strip().rstrip(";")

    def __call__(self, rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
        try:
            from pyhudi.sql_engine.duckdb_engine import Database, RowSource, read_spark, to_duck
        except ImportError:
            raise InvalidRequest('SQL transforms need DuckDB: pip install "pyhudi[sql]"') from None
        query = to_duck(read_spark(self.query))
        empty = Database()
        try:
            empty.known_columns.update(rows.schema.names)
            empty.add(_TABLE, rows.schema.empty_table())
            schema = empty.schema(query)
        finally:
            empty.close()

        def batches() -> Iterator[pa.RecordBatch]:
            database = Database()
            try:
                stream = RowSource(lambda: rows)
                if self.sql.count(SOURCE_NAME) == 1:
                    database.add(_TABLE, stream)
                else:
                    # A stream is read once.
                    database.add(f"{_TABLE}_stream", stream)
                    database.materialize(_TABLE, f"SELECT * FROM {_TABLE}_stream")
                for batch in database.batches(query):
                    yield batch if batch.schema == schema else batch.cast(schema)
            finally:
                database.close()

        return pa.RecordBatchReader.from_batches(schema, batches())


@dataclass(frozen=True, slots=True)
class FunctionTransform:
    """A Python function.

    Attributes:
        function: Takes rows and returns rows.
        name: Its name, for messages.
    """

    function: Callable[[Any], Any]
    name: str

    def __call__(self, rows: pa.RecordBatchReader) -> pa.RecordBatchReader:
        return arrow_reader(self.call(rows))

    def call(self, rows: Any) -> Any:
        """Call the function. Raises InvalidRequest with its name for its own errors."""
        try:
            return self.function(rows)
        except HudiError:
            raise
        except Exception as error:
            raise InvalidRequest(f"transform {self.name} failed: {type(error).__name__}: {error}") from error


def load_function(name: str) -> Callable[[Any], Any]:
    """Import `module:function`. Raises InvalidRequest if there is none."""
    module_name, colon, function_name = name.partition(":")
    if not colon:
        raise InvalidRequest(f"transform function {name!r}: pass module:function")
    try:
        module = import_module(module_name)
    except ImportError as error:
        raise InvalidRequest(f"transform function {name}: module {module_name} cannot be imported: {error}") from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise InvalidRequest(f"transform function {name}: module {module_name} has no function {function_name}")
    return function  # type: ignore[no-any-return]
