"""DuckDB as the engine of expressions and queries: Arrow in, Arrow out, one database in memory for each statement.

A statement of Spark's dialect is written anew in DuckDB's by sqlglot.  What would give other values there is made to give Spark's
(casts to whole numbers cut fractions) or is refused (hashes).  The database sees the rows that it is handed and nothing else: no
files, no network, no variables of Python.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import duckdb
import pyarrow as pa
from sqlglot import TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel, SqlglotError
from sqlglot.parsers.spark import SparkParser

from pyhudi.errors import HudiError, InvalidRequest, Unsupported
from pyhudi.sql_engine.literals import parse_spark, place

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


_DIGITS = 38
"""A number without an exponent has at most as many digits."""

_PATTERN = re.compile(r"(?:[^\\]|\\[%_\\])*", re.DOTALL)
"""Patterns of LIKE that Spark takes."""

_DAY = r"\s*\d{4}-\d{1,2}-\d{1,2}"
_HOUR = r"(?:[01]?\d|2[0-3]):[0-5]?\d(?::[0-5]?\d(?:\.\d{0,6})?)?"
_WHEN = re.compile(rf"{_DAY}(?:[ T]{_HOUR}\s*(?:Z|UTC|[+-]\d\d:?\d\d|[A-Z][a-z]+(?:/[A-Z]\w+)+)?)?\s*|epoch", re.ASCII)
_TYPED = {
    "DATE": _WHEN,
    "TIMESTAMP": _WHEN,
    "TIMESTAMP_NTZ": _WHEN,
    "TIMESTAMP_LTZ": _WHEN,
}
"""Literals of days and times that mean one thing; Spark's special words, years alone and the like are not among them."""

_NUMBER = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?", re.ASCII)
_WHOLE_NUMBER = re.compile(r"\s*[+-]?\d+\s*", re.ASCII)
_SECONDS = re.compile(r"\s*[+-]?\d*\.?\d{0,6}\s*", re.ASCII)
_INTERVAL = re.compile(
    r"\s*(?:[+-]?\d+\s+(?:year|month|week|day|hour|minute|second|millisecond|microsecond)s?\s*)+", re.ASCII | re.IGNORECASE
)

_ANSI: Any = type("_Ansi", (Spark,), {"Parser": type("_AnsiParser", (SparkParser,), {"STRICT_CAST": True})})
"""Spark's dialect in which a cast that fails is an error, and none but TRY_CAST gives null."""


class RowSource:
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
        self._rows: list[RowSource] = []
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

    def add(self, name: str, rows: RowSource | pa.Table) -> None:
        """Give rows a name."""
        if isinstance(rows, RowSource):
            self._rows.append(rows)
        with self._told():
            self._connection.register(name, rows)

    def materialize(self, name: str, query: str) -> None:
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
    tree = parse_spark(text, _ANSI, expression=expression, check=_check_literals)
    _refuse(tree)
    return tree.transform(_as_spark)


def to_duck(tree: exp.Expr) -> str:
    """The text of a tree in DuckDB's dialect.  Raises Unsupported for what it has no words for."""
    try:
        text: str = tree.sql(dialect="duckdb", unsupported_level=ErrorLevel.RAISE)
        return text
    except SqlglotError as error:
        raise Unsupported(f"the embedded engine: {error}") from error


def quote_identifier(name: str) -> str:
    """A name as DuckDB takes it."""
    return '"' + name.replace('"', '""') + '"'


def _as_spark(node: exp.Expr) -> exp.Expr:
    """What DuckDB would give another value for, in words for which it gives Spark's."""
    if isinstance(node, exp.Cast):
        return _cutting(node)
    if isinstance(node, (exp.Like, exp.ILike)) and not isinstance(node.parent, exp.Escape):
        return _with_escape(node)
    if isinstance(node, exp.Literal) and not node.is_string:
        return _exact_decimal(node)
    return node


def _cutting(node: exp.Cast) -> exp.Expr:
    """A cast to a whole number cuts the fraction, as Spark's does; DuckDB's rounds."""
    if node.to.this in exp.DataType.INTEGER_TYPES:
        inner, macro = node.this, _WHOLE_OR_NULL if isinstance(node, exp.TryCast) else _WHOLE
        if not (isinstance(inner, exp.Anonymous) and inner.name == macro):
            node.set("this", exp.Anonymous(this=macro, expressions=[inner]))
    return node


def _with_escape(node: exp.Like | exp.ILike) -> exp.Expr:
    """A backslash in a pattern is an escape in Spark, and an ordinary character in DuckDB unless ESCAPE names it."""
    pattern = node.expression.unnest()
    if isinstance(pattern, (exp.Any, exp.All)):
        if any("\\" in literal.name for literal in pattern.find_all(exp.Literal)):
            raise Unsupported("a backslash in a pattern of LIKE ANY or LIKE ALL in the embedded engine. Write several LIKE")
        return node
    if isinstance(pattern, exp.Literal) and not _PATTERN.fullmatch(pattern.name):
        raise InvalidRequest(
            f"the pattern {pattern.name!r} of LIKE: a backslash stands before %, _ or another backslash only. Write two "
            "backslashes in the pattern for one in the text"
        )
    return exp.Escape(this=node.copy(), expression=exp.Literal.string("\\"))


def _exact_decimal(node: exp.Literal) -> exp.Expr:
    """A decimal of so many digits that DuckDB would make it floating point."""
    whole, _, fraction = node.name.partition(".")
    if not (whole + fraction).isdecimal() or len(whole) + len(fraction) < _DIGITS:
        return node
    scale = len(fraction)
    precision = max(len((whole + fraction).lstrip("0")), scale, 1)
    return exp.cast(exp.Literal.string(node.name), exp.DataType.build(f"DECIMAL({precision}, {scale})"))


# What Spark refuses, and DuckDB would give a value of its own


def _check_literals(text: str, tokens: list[Any]) -> None:
    for number, token in enumerate(tokens):
        behind = tokens[number + 1] if number + 1 < len(tokens) else None
        if token.token_type is TokenType.NUMBER:
            _check_number(text, token, tokens[number + 1 : number + 3])
        if behind is None or behind.token_type is not TokenType.STRING:
            continue
        keyword = token.text.upper()
        pattern = _TYPED.get(keyword)
        if pattern is not None and text[token.start] not in "'`" and not pattern.fullmatch(behind.text):
            raise InvalidRequest(
                f"{place(text, token.start)}: {keyword} {behind.text!r} in the embedded engine. Write DATE '2024-05-06', "
                "TIMESTAMP '2024-05-06 07:08:09.123456', with +02:00 or Z for a zone"
            )
        if token.token_type is TokenType.INTERVAL:
            unit = tokens[number + 2].text if number + 2 < len(tokens) else ""
            _check_interval(text, token.start, behind.text, unit)
    for token, behind, unit in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if token.token_type is TokenType.INTERVAL and behind.token_type is TokenType.NUMBER:
            _check_interval(text, token.start, behind.text, unit.text)


def _check_number(text: str, token: Any, after: list[Any]) -> None:
    number = token.text.lower()
    # The letter behind a number is a cast of the tokenizer's, at the same place.
    has_letter = len(after) == 2 and after[0].token_type is TokenType.DCOLON and after[0].start == token.start
    kind = after[1].text.upper() if has_letter else ""
    if not _NUMBER.fullmatch(number):
        raise InvalidRequest(f"{place(text, token.start)}: {token.text} is no number")
    if "e" in number and kind in ("L", "S", "Y"):
        raise InvalidRequest(f"{place(text, token.start)}: {token.text}{kind} has an exponent, and is no whole number")
    if "e" not in number and len(number.replace(".", "").lstrip("0")) > _DIGITS:
        raise InvalidRequest(f"{place(text, token.start)}: the number {token.text} has more than {_DIGITS} digits")
    if "e" not in number and len(number.partition(".")[2]) > _DIGITS:
        raise InvalidRequest(f"{place(text, token.start)}: the number {token.text} has more than {_DIGITS} decimal places")
    if "e" in number and math.isinf(float(number)):
        raise InvalidRequest(f"{place(text, token.start)}: the number {token.text} is beyond the largest double")


def _check_interval(text: str, start: int, value: str, unit: str) -> None:
    seconds = unit.upper() in ("SECOND", "SECONDS")
    if _WHOLE_NUMBER.fullmatch(value) or (seconds and _SECONDS.fullmatch(value)) or _INTERVAL.fullmatch(value):
        return
    raise InvalidRequest(
        f"{place(text, start)}: INTERVAL {value!r} in the embedded engine. Write INTERVAL '1' DAY, or add several intervals; "
        "only seconds have a fraction"
    )


def _refuse(tree: exp.Expr) -> None:
    for node in tree.find_all(exp.Func):
        name = (node.name if isinstance(node, exp.Anonymous) else node.sql_name()).lower()
        if name in _OTHER_VALUES:
            raise Unsupported(f"function {name} in the embedded engine, whose values are not Spark's")
