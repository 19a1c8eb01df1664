"""DuckDB as the engine of expressions and queries: Arrow in, Arrow out, one connection per statement.

sqlglot translates a statement from Spark's dialect to DuckDB's. Expressions with other values in DuckDB are rewritten
to return Spark's values (casts to integers truncate) or rejected (hashes). A statement can read only the rows that are
registered and files in the folders of the tables whose base files it reads: no other files, no network, no Python
variables. Creating an in-memory database takes longer than many queries, so statements on the same folders share one.
"""

from __future__ import annotations

import difflib
import math
import os
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from types import MappingProxyType
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
from sqlglot import TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel, SqlglotError
from sqlglot.parsers.spark import SparkParser

from pyhudi.errors import HudiError, Internal, InvalidRequest, Unsupported
from pyhudi.format.hudi_types import without_extension
from pyhudi.records.sql_quoting import text_literal
from pyhudi.records.timestamp_coercion import check_no_truncated_nanoseconds
from pyhudi.sql_engine.column_aliases import check_column_aliases
from pyhudi.sql_engine.literals import describe_position, parse_spark
from pyhudi.storage.uris import check_working_directory

_BATCH_ROWS = 65_536

_MAX_DATABASES = 4
"""Databases that stay open for further statements."""

_SETTINGS = (
    "SET TimeZone = 'UTC'",
    "SET python_enable_replacements = false",
    "SET enable_external_file_cache = false",
    "SET enable_external_access = false",
    "SET ieee_floating_point_ops = false",
    "SET lock_configuration = true",
)
_TRUNCATE_MACRO, _TRY_TRUNCATE_MACRO = "pyhudi_whole", "pyhudi_whole_or_null"
_MACROS = tuple(
    f"""
    CREATE MACRO {name}
        (x VARCHAR) AS CASE WHEN regexp_full_match(trim(x), '[+-]?[0-9]+') THEN x ELSE {otherwise} END,
        (x BOOLEAN) AS x,
        (x) AS trunc(x)
    """
    for name, otherwise in ((_TRUNCATE_MACRO, "error('no whole number: ' || x)"), (_TRY_TRUNCATE_MACRO, "NULL"))
)
"""Macros wrapped around the operand of a cast to an integer."""

_TEXT_MACRO = "pyhudi_text_operand"
_TEXT_OPERAND = f"CREATE MACRO {_TEXT_MACRO} (x TIMESTAMPTZ) AS CAST(x AS TIMESTAMP), (x TIMESTAMP) AS x, (x DATE) AS x, (x) AS x"
"""Macro wrapped around the operand of a cast to text."""

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


_ERRORS_NOT_CAUSED_BY_FILES = (duckdb.CatalogException, duckdb.ParserException, duckdb.OutOfMemoryException)
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


class _Access(NamedTuple):
    """Configuration of a database.

    Attributes:
        folders: The folders whose files its queries can read.
        ignores_statistics: Minima and maxima are computed from rows.
    """

    folders: frozenset[str]
    ignores_statistics: bool = False


class _SharedDatabases:
    """In-memory databases of this process, by their configuration; the most recently used ones."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._by_access: OrderedDict[_Access, Any] = OrderedDict()
        if hasattr(os, "register_at_fork"):
            # The threads of a database do not exist in a fork, and its end would crash there.
            os.register_at_fork(
                before=self._close_before_fork, after_in_parent=self._lock.release, after_in_child=self._lock.release
            )

    def connect(self, access: _Access) -> Any:
        """Return a new connection. Its tables, views and registered rows are its own."""
        with self._lock:
            database = self._by_access.pop(access, None)
            self._by_access[access] = database = _open_database(access) if database is None else database
            while len(self._by_access) > _MAX_DATABASES:
                # Connections that are still open keep it.
                self._by_access.popitem(last=False)
            return database.cursor()

    def _close_before_fork(self) -> None:
        self._lock.acquire()
        self._by_access.clear()


def _open_database(
    access: _Access,
    functions: Mapping[str, tuple[RowFunction, str, str]] = MappingProxyType({}),
    macros: Mapping[str, str] = MappingProxyType({}),
) -> Any:
    database: Any = duckdb.connect()
    for name, (compute, argument, result) in functions.items():
        types = [duckdb.sqltype(argument)], duckdb.sqltype(result)
        database.create_function(name, compute, *types, type="arrow", null_handling="special", side_effects=True)
    settings = [*_MACROS, _TEXT_OPERAND, *macros.values()]
    if access.folders:
        settings.append(f"SET allowed_directories = [{', '.join(map(text_literal, sorted(access.folders)))}]")
    if access.ignores_statistics:
        settings.append("SET disabled_optimizers = 'statistics_propagation'")
    try:
        for statement in (*settings, *_SETTINGS):
            database.execute(statement)
    except duckdb.IOException:
        # DuckDB resolves the folders that it may access against the working directory.
        check_working_directory("SQL on DuckDB")
        raise
    return database


_DATABASES = _SharedDatabases()


class Database:
    """The rows of one statement in DuckDB. Close it after reading the result.

    The first query connects: base files can be added before, rows at any time.
    """

    def __init__(self, *, truncates_nanoseconds: bool = True) -> None:
        """Create a database without rows.

        Args:
            truncates_nanoseconds: False rejects registered rows with timestamps that would lose nanoseconds.
        """
        self._truncates_nanoseconds = truncates_nanoseconds
        self._connected: Any = None
        self._rows: list[RowSource | RowFunction] = []
        self._functions: dict[str, tuple[RowFunction, str, str]] = {}
        self._macros: dict[str, str] = {}
        self._ignores_statistics = False
        self._named = 0
        self.known_columns: set[str] = set()
        self.sources: list[pa.Schema] = []
        self._folders: set[str] = set()
        self._registered: dict[str, RowSource | pa.Table] = {}
        self._by_files: dict[str, tuple[str, RowSource]] = {}

    def close(self) -> None:
        """Release all resources."""
        if self._connected is not None:
            self._connected.close()

    def new_name(self) -> str:
        """Return an unused table name."""
        self._named += 1
        return f"pyhudi_{self._named}"

    def add(self, name: str, rows: RowSource | pa.Table) -> None:
        """Register rows under a name.

        Raises:
            InvalidRequest: DuckDB would truncate nanoseconds of the rows, and the database rejects that.
        """
        if isinstance(rows, RowSource):
            self._rows.append(rows)
        else:
            if not self._truncates_nanoseconds:
                check_no_truncated_nanoseconds(rows)
            # DuckDB would make its own type of variants, and change their bytes.
            rows = without_extension(rows)
        if self._connected is None:
            self._registered[name] = rows
        else:
            with self._translated_errors():
                self._connected.register(name, rows)

    def add_function(self, name: str, compute: RowFunction, argument: str, result: str) -> None:
        """Define a function of one column. argument, result: types of DuckDB."""
        if self._connected is not None:
            raise Internal("a function is added to a database that already executes queries")
        if name not in self._functions:
            self._functions[name] = (compute, argument, result)
            self._rows.append(compute)

    def add_macro(self, name: str, statement: str) -> None:
        """Define a macro by its statement."""
        self._macros[name] = statement

    def add_files(self, name: str, sql: str, folder: str, rows: RowSource) -> None:
        """Define a name as a query of base files. Only `table` reads it.

        Args:
            name: An unused name.
            sql: The query.
            folder: The folder of the table, which contains the files.
            rows: The same rows, which replace it if DuckDB cannot read the files.
        """
        if self._connected is not None:
            raise Internal("base files are added to a database that already executes queries")
        self._folders.add(folder)
        self._by_files[name] = (sql, rows)

    def ignore_statistics_in_results(self) -> None:
        """Compute minima and maxima from rows: DuckDB takes them from statistics, and returns NaN under `can_have_nan`."""
        self._ignores_statistics = True

    def _connection(self) -> Any:
        """The connection, which accesses only the folders of base files."""
        if self._connected is None:
            access = _Access(frozenset(self._folders), self._ignores_statistics)
            # A function is visible in the whole database, and has the options of its statement.
            is_own = self._functions or self._macros
            self._connected = _open_database(access, self._functions, self._macros) if is_own else _DATABASES.connect(access)
            with self._translated_errors():
                for name, rows in self._registered.items():
                    self._connected.register(name, rows)
        return self._connected

    def materialize(self, name: str, query: str) -> None:
        """Compute a query in DuckDB's dialect once, and store its rows under a name."""
        with self._translated_errors():
            self._connection().execute(f'CREATE TEMP TABLE "{name}" AS {query}')

    def table(self, query: str) -> pa.Table:
        """Return the rows of a query in DuckDB's dialect."""
        connection = self._connection()
        rows: pa.Table
        if self._by_files:
            try:
                rows = connection.sql(self._with_files(query)).to_arrow_table()
                return rows
            except (duckdb.Error, pa.ArrowException, OSError) as error:
                if isinstance(error, _ERRORS_NOT_CAUSED_BY_FILES):
                    raise _translate_error(error, self.known_columns) from error
            # PyHudi's reader supplies the rows instead, and reports errors of a file.
            replaced, self._by_files = self._by_files, {}
            for name, (_, source) in replaced.items():
                self.add(name, source)
        with self._translated_errors():
            rows = connection.sql(query).to_arrow_table()
            return rows

    def _with_files(self, query: str) -> str:
        """Define the names of base files in the query, which costs less than views."""
        files = ", ".join(f"{name} AS NOT MATERIALIZED ({sql})" for name, (sql, _) in self._by_files.items())
        for start in ("WITH RECURSIVE ", "WITH "):
            if query.startswith(start):
                return f"{start}{files}, {query.removeprefix(start)}"
        return f"WITH {files} {query}"

    def schema(self, query: str) -> pa.Schema:
        """Return the schema of a query in DuckDB's dialect."""
        with self._translated_errors():
            schema: pa.Schema = self._connection().sql(f"SELECT * FROM ({query}) LIMIT 0").to_arrow_table().schema
            return schema

    def batches(self, query: str) -> Iterator[pa.RecordBatch]:
        """Stream the rows of a query in DuckDB's dialect."""
        with self._translated_errors():
            yield from self._connection().sql(query).to_arrow_reader(_BATCH_ROWS)

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


_NO_LIST = re.compile(r"UNNEST.* (requires a single list|can only be applied to lists)|array_length\(MAP\(")
"""Errors of DuckDB for a generator whose argument is no list."""

_UNKNOWN_COLUMN = re.compile(r'Referenced column "(.+?)" not found|does not have a column named "(.+?)"')


def _translate_error(error: Exception, columns: Iterable[str]) -> HudiError:
    unknown = _UNKNOWN_COLUMN.search(str(error)) if isinstance(error, duckdb.BinderException) else None
    if unknown is not None and columns:
        name = unknown[1] or unknown[2]
        near = difflib.get_close_matches(name.lower(), [column.lower() for column in columns], n=3, cutoff=0.5)
        spelled = [column for similar in near for column in columns if column.lower() == similar]
        hint = f"did you mean {' or '.join(dict.fromkeys(spelled))}?" if spelled else f"there are {', '.join(sorted(columns))}"
        return InvalidRequest(f"column {name} does not exist; {hint}")
    message = str(error).split("\n\nLINE", 1)[0].split("\nCandidate", 1)[0].strip()
    if isinstance(error, duckdb.BinderException) and _NO_LIST.search(message):
        return Unsupported(
            "explode in the embedded engine of a value that is no array. Of a map m, write explode(map_entries(m)) AS e, "
            "and read e.key and e.value"
        )
    if isinstance(error, duckdb.CatalogException) and "Function" in message:
        return Unsupported(f"the embedded engine does not support the function: {message}")
    return InvalidRequest(f"the embedded engine cannot execute the SQL: {message}")


def read_spark(text: str, *, expression: bool = False) -> exp.Expr:
    """Parse a query or an expression of Spark's dialect, rewritten so that DuckDB returns Spark's values."""
    tree = parse_spark(text, _ANSI, expression=expression, check=_check_literals)
    _refuse(tree)
    check_column_aliases(tree, {})
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
        return _as_text(node) if node.to.this in exp.DataType.TEXT_TYPES else _cutting(node)
    if isinstance(node, (exp.Concat, exp.DPipe, exp.ConcatWs)):
        return _joined_texts(node)
    if isinstance(node, exp.Alias) and isinstance(node.parent, exp.Tuple) and isinstance(node.parent.parent, exp.Values):
        # Spark accepts names in the rows of VALUES, and ignores them.
        value: exp.Expr = node.this
        return value
    if isinstance(node, (exp.ParseJSON, exp.JSONFormat)):
        # Spark's functions, which `column_functions` and `_MACROS` define; DuckDB's differ.
        return exp.Anonymous(this=PARSE_JSON if isinstance(node, exp.ParseJSON) else _TO_JSON, expressions=[node.this])
    if isinstance(node, (exp.Like, exp.ILike)) and not isinstance(node.parent, exp.Escape):
        return _with_escape(node)
    if isinstance(node, exp.Literal) and not node.is_string:
        return _exact_decimal(node)
    if isinstance(node, exp.TableSample):
        return _by_row(node)
    if isinstance(node, exp.Alias) and isinstance(node.parent, exp.Tuple) and isinstance(node.parent.parent, exp.Values):
        # Names in a row of VALUES have no effect.
        return node.unalias()
    if isinstance(node, exp.Count) and isinstance(node.this, exp.Star) and node.arg_key == "expressions":
        return exp.alias_(node.copy(), "count(1)", quoted=True) if isinstance(node.parent, exp.Select) else node
    return node


def _by_row(node: exp.TableSample) -> exp.TableSample:
    """Choose each row by itself, as Spark does; DuckDB chooses blocks of 2,048 rows."""
    numerator, denominator = node.args.get("bucket_numerator"), node.args.get("bucket_denominator")
    if numerator is not None and denominator is not None:
        if not 0 < int(numerator.name) <= int(denominator.name):
            raise InvalidRequest(f"TABLESAMPLE: BUCKET {numerator} OUT OF {denominator} is not between 0 and 100 percent")
        node.set("percent", exp.Literal.number(100 * int(numerator.name) / int(denominator.name)))
        node.set("bucket_numerator", None)
        node.set("bucket_denominator", None)
    if node.args.get("percent") is not None:
        node.set("method", exp.var("BERNOULLI"))
    return node


def _as_text(node: exp.Cast) -> exp.Expr:
    """Cast to text; a timestamp has no zone in its text, as in Spark."""
    node.set("this", _text_operand(node.this))
    return node


def _joined_texts(node: exp.Concat | exp.DPipe | exp.ConcatWs) -> exp.Expr:
    """Concatenate the texts of timestamps without their zone, as Spark does."""
    if isinstance(node, exp.DPipe):
        node.set("this", _text_operand(node.this))
        node.set("expression", _text_operand(node.expression))
    else:
        node.set("expressions", [_text_operand(operand) for operand in node.expressions])
    return node


def _text_operand(node: exp.Expr) -> exp.Expr:
    is_text = isinstance(node, exp.Literal) or (isinstance(node, exp.Anonymous) and node.name == _TEXT_MACRO)
    return node if is_text else exp.Anonymous(this=_TEXT_MACRO, expressions=[node])


def _cutting(node: exp.Cast) -> exp.Expr:
    """Truncate in a cast to an integer, as Spark does; DuckDB rounds."""
    if node.to.this in exp.DataType.INTEGER_TYPES:
        inner, macro = node.this, _TRY_TRUNCATE_MACRO if isinstance(node, exp.TryCast) else _TRUNCATE_MACRO
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
    suffix = after[1].text.upper() if has_letter else ""
    if not _NUMBER.fullmatch(number):
        raise InvalidRequest(f"{describe_position(text, token.start)}: {token.text} is no number")
    if "e" in number and suffix in ("L", "S", "Y"):
        raise InvalidRequest(
            f"{describe_position(text, token.start)}: {token.text}{suffix} has an exponent, and is no whole number"
        )
    if "e" not in number and len(number.replace(".", "").lstrip("0")) > _DIGITS:
        raise InvalidRequest(f"{describe_position(text, token.start)}: the number {token.text} has more than {_DIGITS} digits")
    if "e" not in number and len(number.partition(".")[2]) > _DIGITS:
        raise InvalidRequest(
            f"{describe_position(text, token.start)}: the number {token.text} has more than {_DIGITS} decimal places"
        )
    if "e" in number and math.isinf(float(number)):
        raise InvalidRequest(f"{describe_position(text, token.start)}: the number {token.text} exceeds the largest double")


def _check_interval(text: str, start: int, value: str, unit: str) -> None:
    seconds = unit.upper() in ("SECOND", "SECONDS")
    if _INTEGER_PATTERN.fullmatch(value) or (seconds and _SECONDS.fullmatch(value)) or _INTERVAL.fullmatch(value):
        return
    raise InvalidRequest(
        f"{describe_position(text, start)}: INTERVAL {value!r} in the embedded engine. Write INTERVAL '1' DAY, or add several "
        "intervals; only seconds have a fraction"
    )


def _refuse(tree: exp.Expr) -> None:
    for node in tree.find_all(exp.Func):
        name = (node.name if isinstance(node, exp.Anonymous) else node.sql_name()).lower()
        if name in _OTHER_VALUES:
            raise Unsupported(f"function {name} in the embedded engine, whose values are not Spark's")
