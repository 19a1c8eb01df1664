"""Hudi's three SQL validators as queries of the state before and the state after.

    equality        every query returns the same rows in both states
    inequality      no query returns the same rows in both states
    single result   every query returns one row with one column, equal to the value behind `#`

Rows are compared as in SQL, with duplicates and without order. The engine of the write computes the difference, and at most
`MAX_ROWS` rows of it reach this process.

Source: docs/decisions/0031-validators-callbacks-metrics.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import uuid4

from pyhudi.api.scan import Scan
from pyhudi.errors import HudiError, InvalidRequest, ValidationFailed
from pyhudi.options.declaration import Option
from pyhudi.options.validator_options import EQUALITY_QUERIES, INEQUALITY_QUERIES, SINGLE_VALUE_QUERIES
from pyhudi.tasks.engine_protocol import Engine

Rows = list[dict[str, Any]]
Select = Callable[[str], Rows]
"""Runs a statement in Spark's SQL dialect, and returns its rows."""

MAX_ROWS = 10
"""Maximum number of rows that an error shows."""

_TABLE = "<TABLE_NAME>"
_PLACEHOLDER = re.compile(re.escape(_TABLE), re.IGNORECASE)
_PACKAGE = "org.apache.hudi.client.validator."


@dataclass(frozen=True, slots=True)
class SqlQuery:
    """One query of a validator.

    Attributes:
        text: The query, with the placeholder for its table.
        expected: The value that a single result validator compares with.
    """

    text: str
    expected: str = ""

    def on(self, table: str) -> str:
        """The query as a subquery of a table."""
        return f"SELECT * FROM ({_PLACEHOLDER.sub(table, self.text)})"


@dataclass(frozen=True, slots=True)
class SqlValidator:
    """One of Hudi's validators.

    Attributes:
        option: The option with its queries.
        check: Runs one query. Arguments: the query, the function that runs statements, and the names of both states.
        has_value: Each query ends with `#` and a value.
    """

    option: Option
    check: Callable[[SqlQuery, Select, str, str], None]
    has_value: bool = False

    def parse(self, text: str | None, name: str) -> tuple[SqlQuery, ...]:
        """Parse the value of the option.

        Raises:
            InvalidRequest: There is no query, one lacks the placeholder, or one lacks its value.
        """
        queries = []
        for part in (text or "").split(";"):
            if not part.strip():
                continue
            query, mark, expected = part.strip().partition("#")
            if self.has_value and (not mark or "#" in expected or not expected.strip()):
                raise InvalidRequest(f"{self.option}: query {part.strip()!r} does not end with # and one value")
            if not self.has_value:
                query = part.strip()
            if not _PLACEHOLDER.search(query):
                raise InvalidRequest(f"{self.option}: query {query!r} does not read {_TABLE}, the placeholder of the rows")
            queries.append(SqlQuery(query.strip(), expected.strip()))
        if not queries:
            raise InvalidRequest(f"validator {name} has no query: set option {self.option}")
        return tuple(queries)


def find_sql_validator(name: str) -> SqlValidator | None:
    """Return Hudi's validator of a class name, None for another name."""
    return _VALIDATORS.get(name.removeprefix(_PACKAGE))


def sql_validator_names() -> tuple[str, ...]:
    """Class names of Hudi's validators."""
    return tuple(_PACKAGE + name for name in _VALIDATORS)


@contextmanager
def opened_states(engine: Engine | None, before: Scan, after: Scan) -> Iterator[tuple[Select, str, str]]:
    """Name both states for SQL; yields the function that runs statements, and the names of the state before and after."""
    suffix = uuid4().hex
    names = f"pyhudi_before_{suffix}", f"pyhudi_after_{suffix}"
    states = dict(zip(names, (before, after), strict=True))
    session = getattr(engine, "session", None)
    if session is None:
        yield lambda statement: _embedded_rows(statement, states), *names
        return
    from pyhudi.engines.spark.jobs import translated_errors

    with translated_errors():
        for name, scan in states.items():
            scan.to_spark(session).createOrReplaceTempView(name)
    try:
        yield lambda statement: _spark_rows(session, statement), *names
    finally:
        with translated_errors():
            for name in names:
                session.catalog.dropTempView(name)


def _embedded_rows(statement: str, states: Mapping[str, Scan]) -> Rows:
    from pyhudi.sql_engine import SessionCatalog, sql

    rows: Rows = sql(statement, tables=states, catalog=SessionCatalog()).to_pylist()
    return rows


def _spark_rows(session: Any, statement: str) -> Rows:
    from pyhudi.engines.spark.jobs import translated_errors

    try:
        with translated_errors():
            return [row.asDict(recursive=True) for row in session.sql(statement).collect()]
    except HudiError:
        raise
    except Exception as error:
        reason = str(error).split(";", 1)[0].split("\n", 1)[0]
        raise InvalidRequest(f"Spark cannot execute the SQL: {reason}") from error


def _check_equality(query: SqlQuery, select: Select, before: str, after: str) -> None:
    lost = select(_difference(query.on(before), query.on(after)))
    added = select(_difference(query.on(after), query.on(before)))
    if lost or added:
        raise ValidationFailed(
            f"query {query.text!r} does not return the same rows before and after the write",
            query=query.text,
            before=_first_rows(select, query, before),
            after=_first_rows(select, query, after),
            rows=(*lost, *added)[:MAX_ROWS],
        )


def _check_inequality(query: SqlQuery, select: Select, before: str, after: str) -> None:
    statements = _difference(query.on(before), query.on(after)), _difference(query.on(after), query.on(before))
    if not any(select(statement) for statement in statements):
        rows = _first_rows(select, query, after)
        raise ValidationFailed(
            f"query {query.text!r} returns the same rows before and after the write",
            query=query.text,
            before=_first_rows(select, query, before),
            after=rows,
            rows=rows,
        )


def _check_single_result(query: SqlQuery, select: Select, before: str, after: str) -> None:
    rows = _first_rows(select, query, after)
    if len(rows) == 1 and len(rows[0]) == 1:
        value = next(iter(rows[0].values()))
        if _is_expected(value, query.expected):
            return
        problem = f"returns {value!r} after the write, and {query.expected} is expected"
    else:
        problem = f"returns {_counted(rows)} after the write, and one row with one column is expected"
    raise ValidationFailed(
        f"query {query.text!r} {problem}",
        query=query.text,
        before=_first_rows(select, query, before),
        after=rows,
        rows=rows,
    )


def _difference(left: str, right: str) -> str:
    return f"SELECT * FROM ({left} EXCEPT ALL {right}) LIMIT {MAX_ROWS}"


def _first_rows(select: Select, query: SqlQuery, table: str) -> tuple[dict[str, Any], ...]:
    return tuple(select(f"{query.on(table)} LIMIT {MAX_ROWS}"))


def _counted(rows: tuple[dict[str, Any], ...]) -> str:
    count = f"{MAX_ROWS} or more rows" if len(rows) == MAX_ROWS else f"{len(rows)} rows"
    return f"{count} with {len(rows[0])} columns" if rows else count


def _is_expected(value: object, expected: str) -> bool:
    """Compare a value with text: numbers by value, everything else as text. A null equals nothing, as in Hudi."""
    if value is None:
        return False
    if isinstance(value, bool):
        return str(value).lower() == expected.lower()
    if isinstance(value, (int, float, Decimal)):
        try:
            return Decimal(str(value)) == Decimal(expected)
        except InvalidOperation:
            return False
    return str(value) == expected


_VALIDATORS = {
    "SqlQueryEqualityPreCommitValidator": SqlValidator(EQUALITY_QUERIES, _check_equality),
    "SqlQueryInequalityPreCommitValidator": SqlValidator(INEQUALITY_QUERIES, _check_inequality),
    "SqlQuerySingleResultPreCommitValidator": SqlValidator(SINGLE_VALUE_QUERIES, _check_single_result, has_value=True),
}
