"""DuckDB as the engine of expressions and queries: Arrow in, Arrow out, one database in memory for each statement.

A statement of Spark's dialect is written anew in DuckDB's by sqlglot.  What would give other values there is made to give Spark's
(casts to whole numbers cut fractions) or is refused (hashes).  The database sees the rows that it is handed and nothing else: no
files, no network, no variables of Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import duckdb
import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel, SqlglotError
from sqlglot.parsers.spark import SparkParser

from pyhudi.errors import HudiError, InvalidRequest, Unsupported

_BATCH_ROWS = 65_536

_SETTINGS = (
    "SET TimeZone = 'UTC'",
    "SET python_enable_replacements = false",
    "SET enable_external_access = false",
    "SET ieee_floating_point_ops = false",
    "SET lock_configuration = true",
)
_WHOLE, _WHOLE_OR_NULL = "pyhudi_whole", "pyhudi_whole_or_null"
_MACROS = tuple(
    f"""
    CREATE TEMP MACRO {name}
        (x VARCHAR) AS CASE WHEN regexp_full_match(trim(x), '[+-]?[0-9]+') THEN x ELSE {otherwise} END,
        (x BOOLEAN) AS x,
        (x) AS trunc(x)
    """
    for name, otherwise in ((_WHOLE, "error('no whole number: ' || x)"), (_WHOLE_OR_NULL, "NULL"))
)
"""What stands within a cast to a whole number."""

_OTHER_VALUES = frozenset({"hash", "xxhash64", "crc32", "rand", "randn", "random", "uuid", "monotonically_increasing_id"})
"""Functions that DuckDB has by the same name and with other values, or whose values are another each time that they are asked."""


_ANSI: Any = type("_Ansi", (Spark,), {"Parser": type("_AnsiParser", (SparkParser,), {"STRICT_CAST": True})})
"""Spark's dialect in which a cast that fails is an error, and none but TRY_CAST gives null."""


class Rows:
    """Rows that can be read as often as a query asks: each time `read` opens a stream of them anew."""

    def __init__(self, read: Callable[[], pa.RecordBatchReader]) -> None:
        self._read = read
        self.failure: HudiError | None = None

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        reader = self._read()
        return pa.RecordBatchReader.from_batches(reader.schema, self._watched(reader)).__arrow_c_stream__(requested_schema)

    def _watched(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        try:
            yield from reader
        except HudiError as error:
            # Through DuckDB comes its text alone.
            self.failure = error
            raise


class Database:
    """A database that holds the rows of one statement.  Close it when they are read."""

    def __init__(self) -> None:
        self._connection = duckdb.connect()
        self._rows: list[Rows] = []
        self._named = 0
        for statement in (*_MACROS, *_SETTINGS):
            self._connection.execute(statement)

    def close(self) -> None:
        """Let go of all that it holds."""
        self._connection.close()

    def new_name(self) -> str:
        """A name that nothing has here."""
        self._named += 1
        return f"pyhudi_{self._named}"

    def add(self, name: str, rows: Rows | pa.Table) -> None:
        """Give rows a name."""
        if isinstance(rows, Rows):
            self._rows.append(rows)
        with self._told():
            self._connection.register(name, rows)

    def keep(self, name: str, query: str) -> None:
        """Give the rows of a query, in DuckDB's dialect, a name: they are computed once."""
        with self._told():
            self._connection.execute(f'CREATE TEMP TABLE "{name}" AS {query}')

    def table(self, query: str) -> pa.Table:
        """The rows of a query in DuckDB's dialect."""
        with self._told():
            found: pa.Table = self._connection.sql(query).to_arrow_table()
            return found

    def schema(self, query: str) -> pa.Schema:
        """The columns of a query in DuckDB's dialect."""
        with self._told():
            found: pa.Schema = self._connection.sql(f"SELECT * FROM ({query}) LIMIT 0").to_arrow_table().schema
            return found

    def batches(self, query: str) -> Iterator[pa.RecordBatch]:
        """The rows of a query in DuckDB's dialect, as they are computed."""
        with self._told():
            yield from self._connection.sql(query).to_arrow_reader(_BATCH_ROWS)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """DuckDB's errors as ours; one that a stream of ours raised comes out as it was."""
        try:
            yield
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            failure = next((rows.failure for rows in self._rows if rows.failure is not None), None)
            if failure is not None:
                raise failure from error
            raise _as_ours(error) from error


def _as_ours(error: Exception) -> HudiError:
    said = str(error).split("\n\nLINE", 1)[0].split("\nCandidate", 1)[0].strip()
    if isinstance(error, duckdb.CatalogException) and "Function" in said:
        return Unsupported(f"a function that the embedded engine does not have: {said}")
    return InvalidRequest(f"the embedded engine cannot carry the SQL out: {said}")


def read_spark(text: str, *, expression: bool = False) -> exp.Expr:
    """A query, or an expression, of Spark's dialect, changed so that DuckDB's values are Spark's."""
    tree = sqlglot.parse_one(text, dialect=_ANSI, into=exp.Condition if expression else None)
    _refuse(tree)
    return tree.transform(_cutting)


def to_duck(tree: exp.Expr) -> str:
    """The text of a tree in DuckDB's dialect.  Raises Unsupported for what it has no words for."""
    try:
        text: str = tree.sql(dialect="duckdb", unsupported_level=ErrorLevel.RAISE)
        return text
    except SqlglotError as error:
        raise Unsupported(f"the embedded engine: {error}") from error


def quoted(name: str) -> str:
    """A name as DuckDB takes it."""
    return '"' + name.replace('"', '""') + '"'


def _cutting(node: exp.Expr) -> exp.Expr:
    """A cast to a whole number cuts the fraction, as Spark's does; DuckDB's rounds."""
    if isinstance(node, exp.Cast) and node.to.this in exp.DataType.INTEGER_TYPES:
        inner, macro = node.this, _WHOLE_OR_NULL if isinstance(node, exp.TryCast) else _WHOLE
        if not (isinstance(inner, exp.Anonymous) and inner.name == macro):
            node.set("this", exp.Anonymous(this=macro, expressions=[inner]))
    return node


def _refuse(tree: exp.Expr) -> None:
    for node in tree.find_all(exp.Func):
        name = (node.name if isinstance(node, exp.Anonymous) else node.sql_name()).lower()
        if name in _OTHER_VALUES:
            raise Unsupported(f"function {name} in the embedded engine, whose values are not Spark's")
