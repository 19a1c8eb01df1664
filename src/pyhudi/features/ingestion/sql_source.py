"""Rows of a SQL database, by a column that increases with each insert or update, through an ADBC driver.

The checkpoint is the largest value of that column as text, as that of Hudi's JdbcSource. All rows with one value are in
one batch, so that a limit separates no rows with equal values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

import pyarrow as pa

from pyhudi.errors import InvalidRequest, StorageUnavailable, Unsupported
from pyhudi.features.ingestion.source_protocol import Batch, Limit, ReadContext
from pyhudi.records.sql_quoting import quote_identifier, text_literal
from pyhudi.storage.uris import sqlite_path, without_secrets

_DRIVERS = {
    "sqlite": "adbc_driver_sqlite",
    "postgresql": "adbc_driver_postgresql",
    "postgres": "adbc_driver_postgresql",
}
_NULLS = ("refuse", "skip")
_TIME = re.compile(r"\d{4}-\d\d-\d\d($|[ T]\d\d:)")


@dataclass(frozen=True, slots=True)
class SqlSource:
    """Rows of a table or query whose incremental column is larger than the checkpoint.

    Attributes:
        uri: URI of the database, such as `postgresql://host/db` or `sqlite:///data/shop.db`.
        table: Table, optionally with its schema; or
        query: a query.
        column: The incremental column: whole numbers, times or texts.
        start: Value after which a job without a checkpoint begins; None reads all rows.
        nulls: refuse stops at rows that have no value in the incremental column; skip ignores them.
        driver: Module of the ADBC driver; None decides by the scheme of the URI.
        user: User name, if not part of the URI; for drivers with the option `username`.
        password: Password.
    """

    uri: str = field(repr=False)
    column: str
    table: str | None = None
    query: str | None = None
    start: str | None = None
    nulls: str = "refuse"
    driver: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if (self.table is None) == (self.query is None):
            raise InvalidRequest("source sql takes either table or query: set exactly one of them")
        if self.nulls not in _NULLS:
            raise InvalidRequest(f"source sql has nulls={self.nulls!r}: choose from {', '.join(_NULLS)}")
        if self.driver is None and self._scheme not in _DRIVERS:
            raise Unsupported(f"source sql has no driver for {self._scheme}://: set driver to the module of an ADBC driver")

    @property
    def _scheme(self) -> str:
        return self.uri.partition(":")[0]

    @property
    def _from(self) -> str:
        if self.query is not None:
            return f"({self.query}) AS pyhudi_source"
        assert self.table is not None, "the constructor has checked it"
        return ".".join(quote_identifier(part) for part in self.table.split("."))

    def read(self, checkpoint: str | None, limit: Limit) -> Batch | None:
        """Return the rows after a checkpoint; None if there are none."""
        if limit.size_bytes is not None:
            raise Unsupported("source sql limits a batch by rows: set max_rows, not max_bytes")
        column = quote_identifier(self.column)
        after = self.start if checkpoint is None else checkpoint
        where = f"{column} > {self._literal(after)}" if after is not None else f"{column} IS NOT NULL"
        with self._connected() as cursor:
            if self.nulls == "refuse" and len(_rows(cursor, f"SELECT 1 AS n FROM {self._from} WHERE {column} IS NULL LIMIT 1")):
                raise InvalidRequest(
                    f"rows of the source have no value in the incremental column {self.column} and would never be read: "
                    "correct them, or set nulls to skip"
                )
            part = "" if limit.rows is None else f" ORDER BY {column} LIMIT {int(limit.rows)}"
            newest = _rows(
                cursor,
                f"SELECT CAST(MAX(pyhudi_value) AS VARCHAR(4000)) AS last, MAX(pyhudi_value) AS typed FROM "
                f"(SELECT {column} AS pyhudi_value FROM {self._from} WHERE {where}{part}) AS pyhudi_part",
            )
            last = newest.column(0)[0].as_py()
            if last is None:
                return None
            if pa.types.is_floating(type_ := newest.schema.field(1).type):
                raise Unsupported(
                    f"incremental column {self.column} is {type_}, whose values have no exact text: use another column"
                )
            rest = _rows(cursor, f"SELECT COUNT(*) AS n FROM {self._from} WHERE {column} > {self._literal(last)}")
        condition = f"{where} AND {column} <= {self._literal(last)}"
        return Batch(
            _Query(self, f"SELECT * FROM {self._from} WHERE {condition}"), last, {"rows": int(rest.column(0)[0].as_py())}
        )

    def _literal(self, value: str) -> str:
        """Write a value of the incremental column, which the table or the source stores, as a literal."""
        if self.driver is not None and "\\" in value:
            raise Unsupported(
                f"value {value[:100]!r} of the incremental column {self.column} contains a backslash, which databases escape "
                "differently: use another column, or set checkpoint in the job to begin elsewhere"
            )
        return text_literal(value)

    def lag_seconds(self, checkpoint: str, now_ms: int) -> float | None:
        """Return the age of the newest value that was read; None if it is not a time. Times without zone are UTC."""
        if _TIME.match(checkpoint) is None:
            return None
        try:
            time = datetime.fromisoformat(checkpoint)
        except ValueError:
            return None
        zoned = time.replace(tzinfo=UTC) if time.tzinfo is None else time
        return max(now_ms / 1000 - zoned.timestamp(), 0.0)

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """A cursor. Errors of the driver are translated, without the URI and the password."""
        name = self.driver or _DRIVERS[self._scheme]
        try:
            driver = import_module(f"{name}.dbapi")
        except ImportError:
            raise InvalidRequest(f'source sql needs {name}: pip install "pyhudi[adbc]"') from None
        options = {"username": self.user, "password": self.password}
        given = {key: value for key, value in options.items() if value is not None}
        try:
            arguments = {"db_kwargs": given} if given else {}
            with driver.connect(self._address(), **arguments) as connection, connection.cursor() as cursor:
                yield cursor
        except driver.Error as error:
            error_class = StorageUnavailable if isinstance(error, driver.OperationalError) else InvalidRequest
            raise error_class(f"source sql cannot read from the database: {self._redacted(str(error))}") from None

    def _address(self) -> str:
        """The URI as drivers take it: that of SQLite is a path."""
        return sqlite_path(self.uri) if self._scheme == "sqlite" else self.uri

    def _redacted(self, text: str) -> str:
        for secret in (self.password, self.uri):
            text = text.replace(secret, "***") if secret else text
        return without_secrets(text)


@dataclass(frozen=True, slots=True)
class _Query:
    """Opens the rows of a query as a stream."""

    source: SqlSource
    sql: str

    def __call__(self, context: ReadContext) -> pa.RecordBatchReader:
        with ExitStack() as stack:
            cursor = stack.enter_context(self.source._connected())
            cursor.execute(self.sql)
            reader: pa.RecordBatchReader = cursor.fetch_record_batch()
            return pa.RecordBatchReader.from_batches(reader.schema, _batches(stack.pop_all(), reader))


def _batches(opened: ExitStack, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    with opened:
        yield from reader


def _rows(cursor: Any, sql: str) -> pa.Table:
    cursor.execute(sql)
    rows: pa.Table = cursor.fetch_arrow_table()
    return rows
