"""`Catalog`: which table a name stands for, in one process."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

from pyhudi.errors import InvalidRequest, TableExists
from pyhudi.sql_engine.sql_ast import TableName

__all__ = ["Catalog"]


class Catalog:
    """Names of tables, and of rows in memory, as `pyhudi.sql` knows them.  It lives as long as the process, and stores nothing.

    c = Catalog(warehouse="/data")
    c.register("trips", "/data/trips")
    c.register("new_fares", frame)          # a pandas or Polars frame, an Arrow table
    hp.sql("SELECT * FROM trips JOIN new_fares USING (id)", catalog=c)

    Names are compared without regard to capitals, and may be several parts with dots between them.
    """

    def __init__(self, warehouse: str | os.PathLike[str] | None = None) -> None:
        """An empty catalog.

        Args:
            warehouse: The folder in which CREATE TABLE makes tables for which no LOCATION is given.
        """
        self._warehouse = None if warehouse is None else os.fspath(warehouse)
        self._known: dict[str, tuple[str, Any]] = {}
        self._guard = threading.Lock()

    def register(self, name: str, table: Any, *, replace: bool = True) -> None:
        """Let a name stand for a table or for rows.

        Args:
            name: The name.
            table: The path of a table; or rows, which statements read and do not change: anything with the Arrow PyCapsule
                interface that can be read more than once.
            replace: Whether the name may stand for something else already.

        Raises:
            TableExists: It does, and may not.
        """
        with self._guard:
            if not replace and name.lower() in self._known:
                raise TableExists(f"there is a table {name} in the catalog already")
            self._known[name.lower()] = name, os.fspath(table) if isinstance(table, (str, os.PathLike)) else table

    def unregister(self, name: str) -> bool:
        """Let a name stand for nothing.  Whether it stood for something.  The table stays where it is."""
        with self._guard:
            return self._known.pop(name.lower(), None) is not None

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._known

    def __iter__(self) -> Iterator[str]:
        with self._guard:
            return iter(sorted(name for name, _ in self._known.values()))

    def lookup(self, table: TableName) -> Any:
        """What a name stands for: the path of a table, or rows.  Raises InvalidRequest for one that nobody registered."""
        if table.path is not None:
            return table.path
        known = self._known.get(str(table).lower())
        if known is None:
            names = ", ".join(self) or "none"
            raise InvalidRequest(
                f"there is no table {table} in the catalog (it has {names}): register it, or write its path as hudi.`/path`"
            )
        return known[1]

    def location_for(self, table: TableName) -> str:
        """Where a new table of a name lies.  Raises InvalidRequest where nothing says it."""
        if self._warehouse is None:
            raise InvalidRequest(
                f"nothing says where table {table} is to lie: give LOCATION '/path', or a catalog with a warehouse"
            )
        return f"{self._warehouse.rstrip('/')}/{'/'.join(table.parts)}"
