"""`SessionCatalog`: names of SQL statements: those in memory, and those of stored catalogs (`features.catalogs`)."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

from pyhudi import features
from pyhudi.api.argument_types import checked_class
from pyhudi.api.scan import Scan
from pyhudi.api.table import Table
from pyhudi.engines.arrow.input_rows import is_frame
from pyhudi.errors import InvalidRequest, TableExists
from pyhudi.sql_engine.session_state import DEFAULT_DATABASE, SessionState
from pyhudi.sql_engine.sql_ast import TableName
from pyhudi.storage.uris import parse_uri

__all__ = ["SessionCatalog", "is_queryable", "stored_namespace", "stored_table"]


@checked_class
class SessionCatalog:
    """Maps names to tables and to rows in memory, for `pyhudi.sql`, with the views, databases and options of SET.

    It lives as long as the process. Names are case-insensitive, and can have several parts separated by dots. A name
    that is not in memory can be that of a table in a stored catalog.

    Example:
        >>> c = hp.Catalog(warehouse="/data")
        >>> c.register("trips", "/data/trips")
        >>> c.register("yesterday", hp.Table("/data/trips").scan(as_of="2024-05-06"))
        >>> c.register("new_fares", frame)  # a pandas or Polars frame, an Arrow table
        >>> rows = hp.sql("SELECT * FROM trips JOIN new_fares USING (id)", catalog=c)
    """

    def __init__(self, warehouse: str | os.PathLike[str] | None = None) -> None:
        """Create an empty catalog.

        Args:
            warehouse: Folder for tables created without LOCATION.
        """
        self._warehouse = None if warehouse is None else os.fspath(warehouse)
        self._known: dict[str, tuple[str, Any]] = {}
        self._guard = threading.Lock()
        self._session = SessionState()

    def register(self, name: str, table: Any, *, replace: bool = True) -> None:
        """Register a table or rows under a name.

        Args:
            name: Table name.
            table: A `Table`, or its path; or rows, which statements can read but not change: a `Scan`, an Arrow table,
                batch or dataset, a pandas or Polars frame, anything with the Arrow PyCapsule interface, a dictionary of
                columns, or a list of dictionaries.
            replace: Replace an existing registration of the name.

        Raises:
            TableExists: The name is registered, and `replace` is False.
            InvalidRequest: `table` is none of these, or a stream, which can be read only once.
        """
        if isinstance(table, (str, os.PathLike)):
            table = os.fspath(table)
        elif isinstance(table, Iterator):
            raise InvalidRequest(f"a stream cannot be registered as {name}: it can be read only once; read it into a table first")
        elif not (is_queryable(table) or isinstance(table, (Mapping, list, tuple))):
            raise InvalidRequest(
                f"an object of type {type(table).__module__}.{type(table).__name__} cannot be registered as {name}: pass a "
                "Table, its path, a Scan, an Arrow object, or a pandas or Polars frame"
            )
        with self._guard:
            if not replace and name.lower() in self._known:
                raise TableExists(f"table {name} exists in the catalog already")
            self._known[name.lower()] = name, table
            for names in (self._session.read_optimized, self._session.managed):
                names.discard(name.lower())

    def unregister(self, name: str) -> bool:
        """Remove a name from the catalog, and return whether it existed. The table itself is not deleted.

        Args:
            name: Table name.
        """
        with self._guard:
            return self._known.pop(name.lower(), None) is not None

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._known

    def __iter__(self) -> Iterator[str]:
        with self._guard:
            return iter(sorted(name for name, _ in self._known.values()))

    @property
    def session(self) -> SessionState:
        """Views, databases and options of SET."""
        return self._session

    def lookup(self, table: TableName) -> Any:
        """Look up a registered name.

        Returns:
            Table, path of a table, or registered rows; None if the name is not registered.
        """
        entry = self._known.get(str(table).lower())
        return None if entry is None else entry[1]

    def _has(self, table: TableName) -> bool:
        """Return True if the name is in memory, or that of a table of a stored catalog."""
        if str(table) in self:
            return True
        stored = stored_table(table, self)
        return stored is not None and bool(stored.exists())

    def _check_new(self, table: TableName) -> None:
        """Raise InvalidRequest if no table of the name can be created: its namespace does not exist."""
        stored = stored_table(table, self)
        if stored is not None:
            stored.check_namespace()

    def _record(self, table: TableName, path: str, *, read_optimized: bool = False, managed: bool = False) -> None:
        """Add the name of a table: to a stored catalog if it is a name of one, otherwise to memory."""
        stored = stored_table(table, self)
        if stored is None:
            self.register(str(table), path)
            for applies, names in ((read_optimized, self._session.read_optimized), (managed, self._session.managed)):
                if applies:
                    names.add(str(table).lower())
        else:
            stored.register(path)

    def _forget(self, table: TableName) -> bool:
        """Remove a name, and return whether it existed."""
        stored = None if str(table) in self else stored_table(table, self)
        return self.unregister(str(table)) if stored is None else bool(stored.forget())

    def _names_of_location(self, table: TableName) -> list[TableName]:
        """Return the names in memory that have the location of this one."""
        path = self.lookup(table)
        with self._guard:
            known = [(name, entry) for name, entry in self._known.values() if isinstance(entry, str)]
        same = [name for name, entry in known if isinstance(path, str) and is_same_location(entry, path)]
        return [table, *(TableName(tuple(name.split("."))) for name in same if name.lower() != str(table).lower())]

    def _names(self, database: str | None) -> list[str]:
        """Return the names in a database, without it; None is the default one."""
        stored = None if database is None else stored_namespace(database, self)
        return [*names_in(self, database), *(stored.tables() if stored is not None else ())]

    def _databases(self, catalog: str | None) -> list[str]:
        """Return the names of databases. catalog: a stored catalog, whose namespaces are its databases; None for memory."""
        return list(self._session.databases.values()) if catalog is None else stored_catalog(catalog, self).list_namespaces()

    def location_for(self, table: TableName) -> str:
        """Return the location of a new table.

        Raises:
            InvalidRequest: The catalog has no warehouse.
        """
        stored = stored_table(table, self)
        if stored is not None:
            location: str = stored.location()
            return location
        if self._warehouse is None:
            raise InvalidRequest(
                f"table {table} has no location: pass one (LOCATION '/path' in SQL), or use a catalog with a warehouse"
            )
        return f"{self._warehouse.rstrip('/')}/{'/'.join(table.parts)}"


def stored_table(table: TableName, own: SessionCatalog | None = None) -> Any:
    """The table of a stored catalog that a name denotes, which may not exist; None for other names.

    own: catalog of the call. `features.catalogs.resolver` has the rule.
    """
    catalogs = features.find("catalogs")
    return None if catalogs is None or table.path is not None else catalogs.resolve(table.parts, own)


def stored_namespace(database: str, own: SessionCatalog | None = None) -> Any:
    """The namespace of a stored catalog that the name of a database denotes; None for other names."""
    catalogs = features.find("catalogs")
    return None if catalogs is None or database.lower() == DEFAULT_DATABASE else catalogs.resolve_namespace(database, own)


def stored_catalog(name: str, own: SessionCatalog | None = None) -> Any:
    """The stored catalog of a name. Raises InvalidRequest if there is none."""
    return features.load("catalogs", f"catalog {name}").find_catalog(name, own)


def is_same_location(path: str, other: str) -> bool:
    """Return True if two paths of tables are the same location."""
    return parse_uri(path) == parse_uri(other)


def names_in(names: Iterable[str], database: str | None) -> list[str]:
    """Names in a database, without its prefix; for the default database (None), names without a database."""
    if database is None:
        return [name for name in names if "." not in name]
    parts = [name.partition(".") for name in names]
    return [rest for first, dot, rest in parts if dot and first.lower() == database.lower()]


def is_queryable(value: object) -> bool:
    """Return True for a table, a scan and tabular objects that can be read more than once."""
    if isinstance(value, (type, ModuleType, Iterator)):
        return False
    return isinstance(value, (Table, Scan)) or is_frame(value)
