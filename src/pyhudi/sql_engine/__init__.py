"""SQL on Hudi tables in this process: `pyhudi.sql`, with Spark SQL syntax and Hudi's statements.

    hp.sql("CREATE TABLE trips (id BIGINT, fare DOUBLE, ts BIGINT) USING hudi LOCATION '/data/trips' "
           "TBLPROPERTIES (primaryKey = 'id', preCombineField = 'ts')")
    hp.sql("INSERT INTO trips VALUES (1, 9.5, 1)")
    hp.sql("SELECT * FROM trips WHERE fare > 9")

DuckDB executes queries and expressions (`pip install "pyhudi[sql]"`). On Spark: `pyhudi.spark.sql`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from pyhudi.sql_engine.read_statement import read_statement
from pyhudi.sql_engine.sql_catalog import Catalog

__all__ = ["CATALOG", "Catalog", "register", "sql"]

CATALOG = Catalog()
"""The default catalog of this process."""


def sql(
    statement: str,
    *,
    catalog: Catalog | None = None,
    storage_options: Mapping[str, str] | None = None,
    options: Mapping[str, object] | None = None,
) -> pa.Table:
    """Execute a SQL statement in this process.

    Args:
        statement: One statement in Spark SQL syntax: CREATE TABLE, INSERT, SELECT, UPDATE, DELETE, MERGE INTO, CALL,
            ALTER TABLE
            and other statements of Hudi.
        catalog: Catalog that resolves table names; `pyhudi.sql_engine.CATALOG` by default. A path needs none:
            hudi.`/data/trips`.
        storage_options: Credentials and settings of the object store, see `docs/object-stores.md`.
        options: `hoodie.*` options of writes.

    Returns:
        The rows of a query, or of a SHOW, DESCRIBE or CALL statement; for a write, one row with its statistics;
        otherwise a table
        without columns.

    Raises:
        InvalidRequest: Syntax error (with line, column and what was expected), or the statement does not fit its
            tables.
        Unsupported: The statement, or a function in it, is not supported.
        TableExists: CREATE TABLE of an existing table.

    Example:
        >>> rows = hp.sql("SELECT city, sum(fare) AS total FROM hudi.`/data/trips` GROUP BY city")
    """
    parsed = read_statement(statement, embedded=True)
    from pyhudi.sql_engine.duckdb_session import EmbeddedStatementSession, run

    return run(EmbeddedStatementSession(CATALOG if catalog is None else catalog, storage_options, options), parsed)


def register(name: str, table: Any) -> None:
    """Register a table or rows under a name, in the catalog of this process.

    Args:
        name: Table name.
        table: As in `Catalog.register`.
    """
    CATALOG.register(name, table)
