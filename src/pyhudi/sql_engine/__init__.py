"""SQL over Hudi tables in this process: `pyhudi.sql`, with Spark's words and Hudi's statements.

    hp.sql("CREATE TABLE trips (id BIGINT, fare DOUBLE, ts BIGINT) USING hudi LOCATION '/data/trips' "
           "TBLPROPERTIES (primaryKey = 'id', preCombineField = 'ts')")
    hp.sql("INSERT INTO trips VALUES (1, 9.5, 1)")
    hp.sql("SELECT * FROM trips WHERE fare > 9")

DuckDB carries queries and expressions out (`pip install "pyhudi[sql]"`).  On Spark: `pyhudi.spark.sql`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from pyhudi.sql_engine.read_statement import read_statement
from pyhudi.sql_engine.sql_catalog import Catalog

__all__ = ["CATALOG", "Catalog", "register", "sql"]

CATALOG = Catalog()
"""The catalog of this process, for statements that are given no other."""


def sql(
    statement: str,
    *,
    catalog: Catalog | None = None,
    storage_options: Mapping[str, str] | None = None,
    options: Mapping[str, object] | None = None,
) -> pa.Table:
    """Carry a SQL statement out in this process.

    Args:
        statement: One statement, in Spark's words: CREATE TABLE, INSERT, SELECT, CALL, ALTER TABLE and others of Hudi's.
        catalog: What names of tables stand for; `pyhudi.sql_engine.CATALOG` by default.  Paths need none: hudi.`/data/trips`.
        storage_options: Credentials and settings of the store, by the names that `docs/object-stores.md` lists.
        options: `hoodie.*` options of writes.

    Returns:
        The rows of a query, or of what is shown; of a write one row that says what it changed; else a table without columns.

    Raises:
        InvalidRequest: The statement is not well formed (with its line, its column, and what was expected), or does not fit its
            tables.
        Unsupported: The statement, or a function in it, is not carried out.
        TableExists: CREATE TABLE of one that is there.
    """
    parsed = read_statement(statement, embedded=True)
    from pyhudi.sql_engine.duckdb_session import EmbeddedStatementSession, run

    return run(EmbeddedStatementSession(CATALOG if catalog is None else catalog, storage_options, options), parsed)


def register(name: str, table: Any) -> None:
    """Let a name stand for a table, by its path, or for rows, in the catalog of this process.

    Args:
        name: The name.
        table: As of `Catalog.register`.
    """
    CATALOG.register(name, table)
