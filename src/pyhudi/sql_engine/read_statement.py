"""Reading a statement with the packages that it takes, which not every installation has."""

from __future__ import annotations

from pyhudi.errors import InvalidRequest
from pyhudi.sql_engine.sql_ast import Statement


def read_statement(text: str, *, embedded: bool) -> Statement:
    """A statement, as `pyhudi.sql_engine.parser.parse` reads it.

    embedded: whether DuckDB carries it out.  Raises InvalidRequest that names the extra where a package is missing.
    """
    try:
        from pyhudi.sql_engine.parser import parse

        if embedded:
            import duckdb  # noqa: F401 - told of here, before anything is done
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in {"sqlglot", "duckdb"}:
            raise
        raise InvalidRequest(f'SQL needs {error.name}, which is not installed: pip install "pyhudi[sql]"') from error
    return parse(text)
