"""SQL on Hudi tables in this process: `pyhudi.sql`, with Spark SQL syntax and Hudi's statements.

    hp.sql("CREATE TABLE trips (id BIGINT, fare DOUBLE, ts BIGINT) USING hudi LOCATION '/data/trips' "
           "TBLPROPERTIES (primaryKey = 'id', preCombineField = 'ts')")
    hp.sql("INSERT INTO trips VALUES (1, 9.5, 1)")
    hp.sql("SELECT * FROM trips WHERE fare > 9")

DuckDB executes queries and expressions (`pip install "pyhudi[sql]"`). On Spark: `pyhudi.spark.sql`.
"""

from __future__ import annotations

import sys
from collections import ChainMap
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any

import pyarrow as pa

from pyhudi.api.argument_types import checked
from pyhudi.operations.commit.commit_settings import with_commit_metadata
from pyhudi.sql_engine.read_statement import read_statement
from pyhudi.sql_engine.sql_catalog import SessionCatalog

__all__ = ["CATALOG", "SessionCatalog", "register", "sql"]

CATALOG = SessionCatalog()
"""The default catalog of this process."""


@checked
def sql(
    statement: str,
    params: Sequence[Any] | Mapping[str, Any] | None = None,
    *,
    tables: Mapping[str, Any] | None = None,
    catalog: SessionCatalog | None = None,
    storage_options: Mapping[str, str] | None = None,
    commit_metadata: Mapping[str, str] | None = None,
    options: Mapping[str, object] | None = None,
) -> pa.Table:
    """Execute a SQL statement in this process.

    A table name is looked up in `tables`, then in the catalog, then among the variables of the calling code.

    Args:
        statement: One statement in Spark SQL syntax: CREATE TABLE, INSERT, SELECT, UPDATE, DELETE, MERGE INTO, CALL,
            ALTER TABLE and other statements of Hudi.
        params: Values of the parameters of the statement: a list for `?`, a dictionary for `:name` or `$name`.
        tables: Tables and rows of this statement by name, as in `SessionCatalog.register`.
        catalog: A `pyhudi.Catalog` that resolves table names; the one of the process by default. A table of a configured
            catalog has three parts, `lake.sales.trips`. A path needs no catalog: hudi.`/data/trips`.
        storage_options: Credentials and settings of the object store, for tables by path, and in addition to those of a
            stored catalog, see `docs/object-stores.md`. A `Table` has its own.
        commit_metadata: Entries stored in the commit of a write, as in `Table.upsert`.
        options: `hoodie.*` options of writes.

    Returns:
        The rows of a query, or of a SHOW, DESCRIBE or CALL statement; for a write, one row with its statistics;
        otherwise a table without columns.

    Raises:
        InvalidRequest: Syntax error (with line, column and what was expected), or the statement does not fit its
            tables.
        Unsupported: The statement, or a function in it, is not supported.
        TableExists: CREATE TABLE of an existing table.

    Example:
        >>> rows = hp.sql("SELECT city, sum(fare) AS total FROM hudi.`/data/trips` GROUP BY city")
        >>> trips = hp.Table("/data/trips")
        >>> some = hp.sql("SELECT * FROM trips WHERE city = :city", {"city": "sf"})
        >>> dear = hp.sql("SELECT * FROM trips JOIN names USING (city)", tables={"names": frame})
    """
    parsed = read_statement(statement, params, embedded=True)
    from pyhudi.sql_engine.duckdb_session import EmbeddedStatementSession, run

    own = SessionCatalog()
    for name, table in (tables or {}).items():
        own.register(name, table)
    chosen = CATALOG if catalog is None else catalog
    variables = _variables(sys._getframe(1))
    options = with_commit_metadata(options, commit_metadata)
    return run(EmbeddedStatementSession(chosen, storage_options, options, tables=own, variables=variables), parsed)


def _variables(frame: FrameType | None) -> Mapping[str, Any]:
    """Variables that the code that called PyHudi sees: of its function, and of its module."""
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("pyhudi."):
        frame = frame.f_back
    if frame is None:
        return {}
    scopes = [frame.f_locals]
    # Before Python 3.12 a comprehension has a frame of its own.
    while frame.f_code.co_name in ("<listcomp>", "<setcomp>", "<dictcomp>") and frame.f_back is not None:
        frame = frame.f_back
        scopes.append(frame.f_locals)
    return ChainMap(*scopes, frame.f_globals)


@checked
def register(name: str, table: Any) -> None:
    """Register a table or rows under a name, in the catalog of this process.

    Args:
        name: Table name.
        table: As in `SessionCatalog.register`.
    """
    CATALOG.register(name, table)
