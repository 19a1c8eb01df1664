"""`Catalog`: table names of SQL statements, in memory."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

from pyhudi.api.argument_kinds import checked_class
from pyhudi.errors import InvalidRequest, TableExists
from pyhudi.sql_engine.session_state import SessionState
from pyhudi.sql_engine.sql_ast import TableName

__all__ = ["Catalog"]


@checked_class
class Catalog:
    """Maps names to tables and to rows in memory, for `pyhudi.sql`, with the views, databases and options of SET.

    It lives as long as the process, and stores nothing.

    Names are case-insensitive, and can have several parts separated by dots.

    Example:
        >>> c = Catalog(warehouse="/data")
        >>> c.register("trips", "/data/trips")
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
            table: Path of a table; or rows, which statements can read but not change: anything with the Arrow PyCapsule
                interface that can be read more than once.
            replace: Replace an existing registration of the name.

        Raises:
            TableExists: The name is registered, and `replace` is False.
        """
        with self._guard:
            if not replace and name.lower() in self._known:
                raise TableExists(f"table {name} exists in the catalog already")
            self._known[name.lower()] = name, os.fspath(table) if isinstance(table, (str, os.PathLike)) else table

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
        """Resolve a name to the path of a table or to rows. Raises InvalidRequest if it is not registered."""
        if table.path is not None:
            return table.path
        entry = self._known.get(str(table).lower())
        if entry is None:
            names = ", ".join(self) or "none"
            raise InvalidRequest(
                f"table {table} is not in the catalog (it has {names}): register it, or write its path as hudi.`/path`"
            )
        return entry[1]

    def location_for(self, table: TableName) -> str:
        """Location of a new table. Raises InvalidRequest if the catalog has no warehouse."""
        if self._warehouse is None:
            raise InvalidRequest(
                f"table {table} has no location: add LOCATION '/path' to the statement, or use a catalog with a warehouse"
            )
        return f"{self._warehouse.rstrip('/')}/{'/'.join(table.parts)}"
