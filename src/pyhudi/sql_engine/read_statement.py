"""Parse a statement, after checking that the optional SQL packages are installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyhudi.errors import InvalidRequest
from pyhudi.sql_engine.sql_ast import Statement


def read_statement(text: str, params: Sequence[Any] | Mapping[str, Any] | None = None, *, embedded: bool) -> Statement:
    """Parse a statement with `pyhudi.sql_engine.parser.parse`.

    Args:
        text: The statement.
        params: Values of its parameters, see `pyhudi.sql_engine.parameters.bind`.
        embedded: True if DuckDB executes it, which must then be installed.

    Raises:
        InvalidRequest: A package is missing; the message names the extra.
    """
    require_packages(embedded=embedded)
    from pyhudi.sql_engine.parameters import bind
    from pyhudi.sql_engine.parser import parse

    return parse(bind(text, params))


def require_packages(*, embedded: bool) -> None:
    """Raise InvalidRequest, which names the extra, if a package for SQL is missing. Arguments as in `read_statement`."""
    try:
        import sqlglot  # noqa: F401 - imported to check that it is installed

        if embedded:
            import duckdb  # noqa: F401 - as above
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in {"sqlglot", "duckdb"}:
            raise
        raise InvalidRequest(f'SQL needs {error.name}, which is not installed: pip install "pyhudi[sql]"') from error
