"""DuckDB as the engine of expressions and queries: Arrow in, Arrow out, one in-memory database per statement.

sqlglot translates a statement from Spark's dialect to DuckDB's. Expressions with other values in DuckDB are rewritten
to return Spark's values (casts to integers truncate) or rejected (hashes). The database can read only the rows that are
registered and the base files of these: no other files, no network, no Python variables.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import duckdb
import pyarrow as pa
from sqlglot import TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel, SqlglotError
from sqlglot.parsers.spark import SparkParser

from pyhudi.api.duckdb_scan import quote_identifier, text_literal
from pyhudi.errors import HudiError, Internal, InvalidRequest, Unsupported
from pyhudi.format.hudi_types import without_extension
from pyhudi.sql_engine.literals import describe_position, parse_spark

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
"""Macros wrapped around the operand of a cast to an integer."""

PARSE_JSON, VARIANT_JSON, _TO_JSON = "parse_json", "pyhudi_variant_json", "pyhudi_to_json"
TO_JSON_MACRO = f"""
    CREATE TEMP MACRO {_TO_JSON}
        (x STRUCT(metadata BLOB, "value" BLOB)) AS {VARIANT_JSON}(x),
        (x) AS CAST(to_json(x) AS VARCHAR)
    """
"""Spark's to_json: of variants, and of other values."""

_OTHER_VALUES = frozenset({"hash", "xxhash64", "crc32", "rand", "randn", "random", "uuid", "monotonically_increasing_id"})
"""Functions that DuckDB has by the same name with other values, or whose values differ at every call."""


_DIGITS = 38
"""Maximum number of digits of a number without an exponent."""

_PATTERN = re.compile(r"(?:[^\\]|\\[%_\\])*", re.DOTALL)
"""LIKE patterns that Spark accepts."""

_DAY = r"\s*\d{4}-\d{1,2}-\d{1,2}"
_HOUR = r"(?:[01]?\d|2[0-3]):[0-5]?\d(?::[0-5]?\d(?:\.\d{0,6})?)?"
_WHEN = re.compile(rf"{_DAY}(?:[ T]{_HOUR}\s*(?:Z|UTC|[+-]\d\d:?\d\d|[A-Z][a-z]+(?:/[A-Z]\w+)+)?)?\s*|epoch", re.ASCII)
_TYPED = {
    "DATE": _WHEN,
    "TIMESTAMP": _WHEN,
    "TIMESTAMP_NTZ": _WHEN,
    "TIMESTAMP_LTZ": _WHEN,
}
"""Unambiguous date and time literals; Spark's special words, years alone and the like are excluded."""

_NUMBER = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?", re.ASCII)
_INTEGER_PATTERN = re.compile(r"\s*[+-]?\d+\s*", re.ASCII)
_SECONDS = re.compile(r"\s*[+-]?\d*\.?\d{0,6}\s*", re.ASCII)
_INTERVAL = re.compile(
    r"\s*(?:[+-]?\d+\s+(?:year|month|week|day|hour|minute|second|millisecond|microsecond)s?\s*)+", re.ASCII | re.IGNORECASE
)

_ANSI: Any = type("_Ansi", (Spark,), {"Parser": type("_AnsiParser", (SparkParser,), {"STRICT_CAST": True})})
"""Spark's dialect where a failed cast is an error; only TRY_CAST returns null."""


_NOT_BY_FILES = (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException, duckdb.OutOfMemoryException)
"""Errors of a statement or of the machine, which do not depend on the files."""


class RowSource:
    """Rows that a query can read several times: each time `read` opens a new stream."""

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
            # DuckDB passes on only the text of an error.
            self.failure = error
            raise


class RowFunction:
    """A function of one column, computed in Arrow. Its errors reach the caller as they were raised."""

    def __init__(self, compute: Callable[[pa.ChunkedArray], pa.ChunkedArray]) -> None:
        self._compute = compute
        self.failure: HudiError | None = None

    def __call__(self, values: pa.ChunkedArray) -> pa.ChunkedArray:
        """Compute the function."""
        try:
            return self._compute(values)
        except HudiError as error:
            # DuckDB passes on only the text of an error.
            self.failure = error
            raise


class Database:
    """In-memory database with the rows of one statement. Close it after reading the result.

    The first query seals it: base files can be added before, rows at any time.
    """

    def __init__(self) -> None:
        self._connection = duckdb.connect()
        self._rows: list[RowSource | RowFunction] = []
        self._functions: set[str] = set()
        self._named = 0
        self.known_columns: set[str] = set()
        self._is_sealed = False
        self._paths: list[str] = []
        self._by_files: dict[str, RowSource] = {}
        for statement in _MACROS:
            self._connection.execute(statement)

    def close(self) -> None:
        """Release all resources."""
        self._connection.close()

    def new_name(self) -> str:
        """Return an unused table name."""
        self._named += 1
        return f"pyhudi_{self._named}"

    def add(self, name: str, rows: RowSource | pa.Table) -> None:
        """Register rows under a name."""
        if isinstance(rows, RowSource):
            self._rows.append(rows)
        else:
            # DuckDB would make its own type of variants, and change their bytes.
            rows = without_extension(rows)
        with self._translated_errors():
            self._connection.register(name, rows)

    def add_function(self, name: str, compute: RowFunction, argument: str, result: str) -> None:
        """Define a function of one column. argument, result: types of DuckDB."""
        if name in self._functions:
            return
        self._functions.add(name)
        self._rows.append(compute)
        types = [duckdb.sqltype(argument)], duckdb.sqltype(result)
        connection: Any = self._connection
        connection.create_function(name, compute, *types, type="arrow", null_handling="special", side_effects=True)

    def add_macro(self, name: str, statement: str) -> None:
        """Create a macro."""
        if name not in self._functions:
            self._functions.add(name)
            self._connection.execute(statement)

    def add_files(self, name: str, sql: str, paths: Sequence[str], rows: RowSource) -> None:
        """Define a name as a query of base files. rows: the same rows, which replace it if DuckDB cannot read the files."""
        if self._is_sealed:
            raise Internal("base files are added to a database that already executes queries")
        self._paths += paths
        self._by_files[name] = rows
        try:
            self._connection.execute(f"CREATE TEMP VIEW {quote_identifier(name)} AS {sql}")
        except duckdb.Error:
            self._replace_files()

    def _replace_files(self) -> None:
        """Replace the queries of base files by rows of PyHudi's reader, which reports errors of a file."""
        replaced, self._by_files = self._by_files, {}
        for name, rows in replaced.items():
            self._connection.execute(f"DROP VIEW IF EXISTS {quote_identifier(name)}")
            self.add(name, rows)

    def _sealed(self) -> Any:
        """The connection, which accesses only the base files."""
        if not self._is_sealed:
            allowed = ", ".join(map(text_literal, self._paths))
            for statement in (*([f"SET allowed_paths = [{allowed}]"] if allowed else []), *_SETTINGS):
                self._connection.execute(statement)
            self._is_sealed = True
        return self._connection

    def materialize(self, name: str, query: str) -> None:
        """Compute a query in DuckDB's dialect once, and store its rows under a name."""
        with self._translated_errors():
            self._sealed().execute(f'CREATE TEMP TABLE "{name}" AS {query}')

    def table(self, query: str) -> pa.Table:
        """Return the rows of a query in DuckDB's dialect."""
        connection = self._sealed()
        rows: pa.Table
        if self._by_files:
            try:
                rows = connection.sql(query).to_arrow_table()
                return rows
            except (duckdb.Error, pa.ArrowException, OSError) as error:
                if isinstance(error, _NOT_BY_FILES):
                    raise _translate_error(error, self.known_columns) from error
                self._replace_files()
        with self._translated_errors():
            rows = connection.sql(query).to_arrow_table()
            return rows

    def schema(self, query: str) -> pa.Schema:
        """Return the schema of a query in DuckDB's dialect."""
        with self._translated_errors():
            schema: pa.Schema = self._sealed().sql(f"SELECT * FROM ({query}) LIMIT 0").to_arrow_table().schema
            return schema

    def batches(self, query: str) -> Iterator[pa.RecordBatch]:
        """Stream the rows of a query in DuckDB's dialect."""
        with self._translated_errors():
            yield from self._sealed().sql(query).to_arrow_reader(_BATCH_ROWS)

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Translate DuckDB's errors; an error raised by a PyHudi stream is re-raised as it was."""
        try:
            yield
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            failure = next((rows.failure for rows in self._rows if rows.failure is not None), None)
            if failure is not None:
                raise failure from error
            raise _translate_error(error, self.known_columns) from error


_UNKNOWN_COLUMN = re.compile(r'Referenced column "(.+?)" not found|does not have a column named "(.+?)"')


def _translate_error(error: Exception, columns: Iterable[str]) -> HudiError:
    unknown = _UNKNOWN_COLUMN.search(str(error)) if isinstance(error, duckdb.BinderException) else None
    if unknown is not None and columns:
        name = unknown[1] or unknown[2]
        near = difflib.get_close_matches(name.lower(), [column.lower() for column in columns], n=3, cutoff=0.5)
        spelled = [column for found in near for column in columns if column.lower() == found]
        hint = f"did you mean {' or '.join(dict.fromkeys(spelled))}?" if spelled else f"there are {', '.join(sorted(columns))}"
        return InvalidRequest(f"column {name} does not exist; {hint}")
    message = str(error).split("\n\nLINE", 1)[0].split("\nCandidate", 1)[0].strip()
    if isinstance(error, duckdb.CatalogException) and "Function" in message:
        return Unsupported(f"the embedded engine does not support the function: {message}")
    return InvalidRequest(f"the embedded engine cannot execute the SQL: {message}")


def read_spark(text: str, *, expression: bool = False) -> exp.Expr:
    """Parse a query or an expression of Spark's dialect, rewritten so that DuckDB returns Spark's values."""
    tree = parse_spark(text, _ANSI, expression=expression, check=_check_literals)
    _refuse(tree)
    return tree.transform(_as_spark)


def to_duck(tree: exp.Expr) -> str:
    """Generate DuckDB SQL from a tree. Raises Unsupported for constructs without equivalent."""
    try:
        text: str = tree.sql(dialect="duckdb", unsupported_level=ErrorLevel.RAISE)
        return text
    except SqlglotError as error:
        raise Unsupported(f"the embedded engine: {error}") from error


def _as_spark(node: exp.Expr) -> exp.Expr:
    """Rewrite a node for which DuckDB would return another value than Spark."""
    if isinstance(node, exp.Cast):
        return _cutting(node)
    if isinstance(node, (exp.ParseJSON, exp.JSONFormat)):
        # Spark's functions, which `column_functions` and `_MACROS` define; DuckDB's differ.
        return exp.Anonymous(this=PARSE_JSON if isinstance(node, exp.ParseJSON) else _TO_JSON, expressions=[node.this])
    if isinstance(node, (exp.Like, exp.ILike)) and not isinstance(node.parent, exp.Escape):
        return _with_escape(node)
    if isinstance(node, exp.Literal) and not node.is_string:
        return _exact_decimal(node)
    if isinstance(node, exp.Count) and isinstance(node.this, exp.Star) and node.arg_key == "expressions":
        return exp.alias_(node.copy(), "count(1)", quoted=True) if isinstance(node.parent, exp.Select) else node
    return node


def _cutting(node: exp.Cast) -> exp.Expr:
    """Truncate in a cast to an integer, as Spark does; DuckDB rounds."""
    if node.to.this in exp.DataType.INTEGER_TYPES:
        inner, macro = node.this, _WHOLE_OR_NULL if isinstance(node, exp.TryCast) else _WHOLE
        if not (isinstance(inner, exp.Anonymous) and inner.name == macro):
            node.set("this", exp.Anonymous(this=macro, expressions=[inner]))
    return node


def _with_escape(node: exp.Like | exp.ILike) -> exp.Expr:
    """Add ESCAPE: a backslash in a pattern is an escape in Spark, but an ordinary character in DuckDB without ESCAPE."""
    pattern = node.expression.unnest()
    if isinstance(pattern, (exp.Any, exp.All)):
        if any("\\" in literal.name for literal in pattern.find_all(exp.Literal)):
            raise Unsupported("a backslash in a pattern of LIKE ANY or LIKE ALL in the embedded engine. Write several LIKE")
        return node
    if isinstance(pattern, exp.Literal) and not _PATTERN.fullmatch(pattern.name):
        raise InvalidRequest(
            f"the pattern {pattern.name!r} of LIKE: a backslash must precede %, _ or another backslash. Write two "
            "backslashes in the pattern for one in the text"
        )
    return exp.Escape(this=node.copy(), expression=exp.Literal.string("\\"))


def _exact_decimal(node: exp.Literal) -> exp.Expr:
    """Keep a decimal literal with so many digits that DuckDB would make it floating point."""
    whole, _, fraction = node.name.partition(".")
    if not (whole + fraction).isdecimal() or len(whole) + len(fraction) < _DIGITS:
        return node
    scale = len(fraction)
    precision = max(len((whole + fraction).lstrip("0")), scale, 1)
    return exp.cast(exp.Literal.string(node.name), exp.DataType.build(f"DECIMAL({precision}, {scale})"))


# Literals that Spark rejects, but DuckDB evaluates


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
                f"{describe_position(text, token.start)}: {keyword} {behind.text!r} in the embedded engine. Write DATE "
                "'2024-05-06', "
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
    # The tokenizer represents the suffix of a number as a cast at the same position.
    has_letter = len(after) == 2 and after[0].token_type is TokenType.DCOLON and after[0].start == token.start
    kind = after[1].text.upper() if has_letter else ""
    if not _NUMBER.fullmatch(number):
        raise InvalidRequest(f"{describe_position(text, token.start)}: {token.text} is no number")
    if "e" in number and kind in ("L", "S", "Y"):
        raise InvalidRequest(
            f"{describe_position(text, token.start)}: {token.text}{kind} has an exponent, and is no whole number"
        )
    if "e" not in number and len(number.replace(".", "").lstrip("0")) > _DIGITS:
        raise InvalidRequest(f"{describe_position(text, token.start)}: the number {token.text} has more than {_DIGITS} digits")
    if "e" not in number and len(number.partition(".")[2]) > _DIGITS:
        raise InvalidRequest(
            f"{describe_position(text, token.start)}: the number {token.text} has more than {_DIGITS} decimal places"
        )
    if "e" in number and math.isinf(float(number)):
        raise InvalidRequest(f"{describe_position(text, token.start)}: the number {token.text} is beyond the largest double")


def _check_interval(text: str, start: int, value: str, unit: str) -> None:
    seconds = unit.upper() in ("SECOND", "SECONDS")
    if _INTEGER_PATTERN.fullmatch(value) or (seconds and _SECONDS.fullmatch(value)) or _INTERVAL.fullmatch(value):
        return
    raise InvalidRequest(
        f"{describe_position(text, start)}: INTERVAL {value!r} in the embedded engine. Write INTERVAL '1' DAY, or add several "
        "intervals; "
        "only seconds have a fraction"
    )


def _refuse(tree: exp.Expr) -> None:
    for node in tree.find_all(exp.Func):
        name = (node.name if isinstance(node, exp.Anonymous) else node.sql_name()).lower()
        if name in _OTHER_VALUES:
            raise Unsupported(f"function {name} in the embedded engine, whose values are not Spark's")
