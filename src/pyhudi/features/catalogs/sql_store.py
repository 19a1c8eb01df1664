"""Catalogs in a database: SQLite through the standard library, PostgreSQL through psycopg.

    pyhudi_namespaces   one row for each namespace
    pyhudi_tables       one row for each table; a foreign key keeps its namespace

Several catalogs share a database. Primary keys contain the names in lower case, so of two processes that create a name
one gets TableExists. Every method is one transaction on a connection of its own, so that a store can be used by several
threads and processes.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from enum import Enum
from typing import Any, Protocol, TypeVar

from pyhudi.errors import CorruptData, InvalidRequest, StorageUnavailable, TableExists, TableNotFound
from pyhudi.features.catalogs.catalog_store import TableEntry
from pyhudi.storage.uris import absolute_path, sqlite_path, without_secrets

T = TypeVar("T")
Execute = Callable[..., list[tuple[Any, ...]]]

_TIMEOUT_S = 60
# With keepalives, the system closes a connection to a server that no longer responds.
_CONNECTION: dict[str, Any] = {
    "connect_timeout": _TIMEOUT_S,
    "tcp_user_timeout": _TIMEOUT_S * 1000,
    "keepalives_idle": _TIMEOUT_S // 2,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS pyhudi_namespaces (catalog_name VARCHAR(255) NOT NULL, namespace_key VARCHAR(255) NOT NULL, "
    "namespace VARCHAR(255) NOT NULL, properties TEXT NOT NULL, PRIMARY KEY (catalog_name, namespace_key))",
    "CREATE TABLE IF NOT EXISTS pyhudi_tables (catalog_name VARCHAR(255) NOT NULL, namespace_key VARCHAR(255) NOT NULL, "
    "table_key VARCHAR(255) NOT NULL, table_name VARCHAR(255) NOT NULL, location TEXT NOT NULL, storage_options TEXT NOT NULL, "
    "profile VARCHAR(255), properties TEXT NOT NULL, PRIMARY KEY (catalog_name, namespace_key, table_key), "
    "FOREIGN KEY (catalog_name, namespace_key) REFERENCES pyhudi_namespaces (catalog_name, namespace_key))",
)
_SCHEMA_LOCK = int.from_bytes(hashlib.sha256(b"pyhudi catalog schema").digest()[:4], "big")


class Violation(Enum):
    """What a statement violates: a primary key, or a foreign key; or the tables are missing."""

    DUPLICATE = "duplicate"
    REFERENCE = "reference"
    NO_TABLES = "no tables"


class _Database(Protocol):
    """A database.  name: for messages."""

    name: str

    def transaction(self, *, writes: bool) -> Any:
        """Context manager of a transaction; yields a function that executes a statement with `?` for values."""

    def violation(self, error: BaseException) -> Violation | None:
        """What the database refused; None for another error."""

    def lock_schema(self, execute: Execute) -> None:
        """Wait for other processes that create the tables."""


class SqlStore:
    """The catalog of a name in a database.

    Raises:
        InvalidRequest: The URI is of no supported database, or psycopg is not installed.
    """

    def __init__(self, catalog: str, uri: str, user: str | None, password: str | None) -> None:
        self._catalog = catalog.lower()
        scheme = uri.partition(":")[0]
        self._database: _Database = _Sqlite(uri) if scheme == "sqlite" else _Postgres(uri, user, password)
        self._has_tables = False

    def namespaces(self) -> list[str]:
        rows = self._run("SELECT namespace FROM pyhudi_namespaces WHERE catalog_name = ? ORDER BY namespace_key", self._catalog)
        return [str(row[0]) for row in rows]

    def namespace_properties(self, namespace: str) -> Mapping[str, str] | None:
        rows = self._run(
            "SELECT properties FROM pyhudi_namespaces WHERE catalog_name = ? AND namespace_key = ?",
            *(self._catalog, namespace.lower()),
        )
        return self._document(rows[0][0]) if rows else None

    def create_namespace(self, namespace: str, properties: Mapping[str, str]) -> None:
        values = (self._catalog, namespace.lower(), namespace, json.dumps(dict(properties)))
        with self._changing(f"namespace {namespace}") as execute:
            execute("INSERT INTO pyhudi_namespaces VALUES (?, ?, ?, ?)", *values)

    def drop_namespace(self, namespace: str) -> bool:
        key = (self._catalog, namespace.lower())
        with self._changing(
            f"namespace {namespace}", reference=f"namespace {namespace} has tables: drop or move them"
        ) as execute:
            existed = bool(execute("SELECT 1 FROM pyhudi_namespaces WHERE catalog_name = ? AND namespace_key = ?", *key))
            execute("DELETE FROM pyhudi_namespaces WHERE catalog_name = ? AND namespace_key = ?", *key)
        return existed

    def tables(self, namespace: str) -> list[str]:
        rows = self._run(
            "SELECT table_name FROM pyhudi_tables WHERE catalog_name = ? AND namespace_key = ? ORDER BY table_key",
            *(self._catalog, namespace.lower()),
        )
        return [str(row[0]) for row in rows]

    def entry(self, namespace: str, name: str) -> TableEntry | None:
        rows = self._run(
            "SELECT n.namespace, table_name, location, storage_options, profile, t.properties FROM pyhudi_tables t "
            "JOIN pyhudi_namespaces n ON t.catalog_name = n.catalog_name AND t.namespace_key = n.namespace_key "
            "WHERE t.catalog_name = ? AND t.namespace_key = ? AND table_key = ?",
            *(self._catalog, namespace.lower(), name.lower()),
        )
        if not rows:
            return None
        namespace, name, location, storage_options, profile, properties = rows[0]
        return TableEntry(namespace, name, location, self._document(storage_options), profile, self._document(properties))

    def add(self, entry: TableEntry, create: Callable[[], T]) -> T:
        values = (
            *(self._catalog, entry.namespace.lower(), entry.name.lower(), entry.name, entry.location),
            *(json.dumps(dict(entry.storage_options)), entry.profile, json.dumps(dict(entry.properties))),
        )
        with self._changing(f"table {entry}", reference=_no_namespace(entry.namespace)) as execute:
            execute("INSERT INTO pyhudi_tables VALUES (?, ?, ?, ?, ?, ?, ?, ?)", *values)
            return create()

    def remove(self, entry: TableEntry) -> bool:
        where = "WHERE catalog_name = ? AND namespace_key = ? AND table_key = ? AND location = ?"
        key = (self._catalog, entry.namespace.lower(), entry.name.lower(), entry.location)
        with self._changing(f"table {entry}") as execute:
            existed = bool(execute(f"SELECT 1 FROM pyhudi_tables {where}", *key))
            execute(f"DELETE FROM pyhudi_tables {where}", *key)
        return existed

    def rename(self, entry: TableEntry, namespace: str, name: str) -> None:
        key = (self._catalog, entry.namespace.lower(), entry.name.lower(), entry.location)
        with self._changing(f"table {namespace}.{name}", reference=_no_namespace(namespace)) as execute:
            renamed = execute(
                "UPDATE pyhudi_tables SET namespace_key = ?, table_key = ?, table_name = ? WHERE catalog_name = ? AND "
                "namespace_key = ? AND table_key = ? AND location = ? RETURNING 1",
                *(namespace.lower(), name.lower(), name, *key),
            )
        if not renamed:
            raise TableNotFound(f"{self._database.name}: table {entry} was dropped or renamed by another process")

    def _document(self, text: str) -> dict[str, Any]:
        try:
            document = json.loads(text)
        except (TypeError, ValueError):
            document = None
        if not isinstance(document, dict):
            raise CorruptData(f"{self._database.name}: a row has invalid JSON. Drop its table or namespace, and add it again")
        return document

    def _run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        self._create_tables()
        with self._database.transaction(writes=False) as execute:
            rows: list[tuple[Any, ...]] = execute(statement, *values)
            return rows

    @contextmanager
    def _changing(self, subject: str, *, reference: str = "") -> Iterator[Execute]:
        """A transaction. subject: what exists after a violated primary key. reference: message of a violated foreign key."""
        self._create_tables()
        try:
            with self._database.transaction(writes=True) as execute:
                yield execute
        except _Refused as refused:
            if refused.violation is Violation.DUPLICATE:
                raise TableExists(f"{self._database.name}: {subject} exists in the catalog already") from refused
            raise InvalidRequest(f"{self._database.name}: {reference or refused}") from refused

    def _create_tables(self) -> None:
        if self._has_tables:
            return
        try:
            with self._database.transaction(writes=False) as execute:
                execute("SELECT 1 FROM pyhudi_tables LIMIT 1")
        except _Refused as refused:
            if refused.violation is not Violation.NO_TABLES:
                raise InvalidRequest(f"{self._database.name}: {refused}") from refused
            with self._database.transaction(writes=True) as execute:
                self._database.lock_schema(execute)
                for statement in _SCHEMA:
                    execute(statement)
        self._has_tables = True


def _no_namespace(namespace: str) -> str:
    return f"there is no namespace {namespace}: create it with create_namespace"


class _Refused(Exception):
    """A statement that violates a key, or has no tables."""

    def __init__(self, violation: Violation, text: str) -> None:
        super().__init__(text)
        self.violation = violation


def _create_private(path: str) -> None:
    """Create a database that only its owner can read, since storage options may be secrets. An existing one keeps its mode."""
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


class _Sqlite:
    """A file.  A change waits for that of another process; a read does not."""

    def __init__(self, uri: str) -> None:
        path = sqlite_path(uri)
        if path in ("", ":memory:"):
            raise InvalidRequest("the catalog needs a file: sqlite:////folder/catalog.db; names in memory are hp.Catalog()")
        self._path = absolute_path(path)
        self.name = f"catalog {self._path}"

    @contextmanager
    def transaction(self, *, writes: bool) -> Iterator[Execute]:
        with _translated(self, sqlite3.OperationalError, sqlite3.Error):
            _create_private(self._path)
            connection = sqlite3.connect(self._path, timeout=_TIMEOUT_S, isolation_level=None)
            with closing(connection):
                connection.execute("PRAGMA foreign_keys = ON")
                connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
                # Closing the connection without COMMIT rolls back.
                yield lambda statement, *values: connection.execute(statement, values).fetchall()
                connection.execute("COMMIT")

    def violation(self, error: BaseException) -> Violation | None:
        name = getattr(error, "sqlite_errorname", "")
        if isinstance(error, sqlite3.OperationalError) and "no such table" in str(error):
            return Violation.NO_TABLES
        return {
            "SQLITE_CONSTRAINT_PRIMARYKEY": Violation.DUPLICATE,
            "SQLITE_CONSTRAINT_FOREIGNKEY": Violation.REFERENCE,
        }.get(name)

    def lock_schema(self, execute: Execute) -> None:
        """The transaction has locked the file."""


class _Postgres:
    """A PostgreSQL server."""

    def __init__(self, uri: str, user: str | None, password: str | None) -> None:
        try:
            import psycopg
        except ImportError:
            raise InvalidRequest('a catalog in PostgreSQL needs psycopg: pip install "pyhudi[postgres]"') from None
        self._psycopg = psycopg
        self._uri = uri
        self._login: dict[str, Any] = {key: value for key, value in (("user", user), ("password", password)) if value is not None}
        self.name = f"catalog {uri}"

    @contextmanager
    def transaction(self, *, writes: bool) -> Iterator[Execute]:
        with (
            _translated(self, self._psycopg.OperationalError, self._psycopg.Error),
            self._psycopg.connect(self._uri, **_CONNECTION, **self._login) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(f"SET LOCAL statement_timeout = '{_TIMEOUT_S}s'")
            if writes:
                cursor.execute(f"SET LOCAL lock_timeout = '{_TIMEOUT_S}s'")

            def execute(statement: str, *values: Any) -> list[tuple[Any, ...]]:
                cursor.execute(statement.replace("?", "%s").encode(), values)
                return cursor.fetchall() if cursor.description else []

            yield execute

    def violation(self, error: BaseException) -> Violation | None:
        errors = self._psycopg.errors
        by_error = {
            errors.UniqueViolation: Violation.DUPLICATE,
            errors.ForeignKeyViolation: Violation.REFERENCE,
            errors.UndefinedTable: Violation.NO_TABLES,
        }
        return next((violation for error_class, violation in by_error.items() if isinstance(error, error_class)), None)

    def lock_schema(self, execute: Execute) -> None:
        execute("SELECT pg_advisory_xact_lock(?)", _SCHEMA_LOCK)


@contextmanager
def _translated(database: _Database, unavailable: type[Exception], other: type[Exception]) -> Iterator[None]:
    try:
        yield
    except other as error:
        violation = database.violation(error)
        text = without_secrets(str(error)).strip().partition("\n")[0]
        if violation is not None:
            raise _Refused(violation, text) from error
        if isinstance(error, unavailable) and "authentication failed" not in text:
            raise StorageUnavailable(f"{database.name} did not confirm the request: {text}") from error
        raise InvalidRequest(f"{database.name} refuses the request: {text}") from error
