"""Which names denote a table of a catalog. Every entry point that takes a path or a name follows this rule:

    catalog.namespace.table   the catalog of that name: the one of the call, else one of the configuration
    namespace.table           the catalog of the call, if it has one

A text is a name only if it has this form; every other text is a path. Names of the session (`hp.register`, `hs.register`)
come first.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyhudi.api.argument_types import checked
from pyhudi.api.table import Table
from pyhudi.errors import InvalidRequest, TableExists, TableNotFound
from pyhudi.features.catalogs.catalog import Catalog
from pyhudi.features.catalogs.catalog_settings import configured_names, configured_settings
from pyhudi.features.catalogs.catalog_store import is_name
from pyhudi.storage.config_file import nearest


@dataclass(frozen=True, slots=True)
class StoredNamespace:
    """A namespace of a catalog, which may not exist."""

    catalog: Catalog
    name: str

    def check(self) -> None:
        """Raise InvalidRequest if the namespace does not exist."""
        self.catalog.load_namespace_properties(self.name)

    def create(self, *, if_not_exists: bool) -> None:
        """Create the namespace. Raises TableExists if it exists, unless `if_not_exists`."""
        try:
            self.catalog.create_namespace(self.name)
        except TableExists:
            if not if_not_exists:
                raise

    def drop(self, *, if_exists: bool, cascade: bool) -> None:
        """Remove the namespace, with `cascade` also the names of its tables. Their files stay."""
        if if_exists and self.name.lower() not in map(str.lower, self.catalog.list_namespaces()):
            return
        self.check()
        for name in self.tables() if cascade else ():
            self.catalog.drop_table((self.name, name))
        self.catalog.drop_namespace(self.name)

    def tables(self) -> list[str]:
        """Names of the tables, without the namespace."""
        return [table.rpartition(".")[2] for table in self.catalog.list_tables(self.name)]


@dataclass(frozen=True, slots=True)
class StoredTable:
    """A table of a catalog, which may not exist."""

    catalog: Catalog
    identifier: tuple[str, str]

    def exists(self) -> bool:
        """Return True if the catalog has the table."""
        return self.catalog.table_exists(self.identifier)

    def open(self, storage_options: Mapping[str, str] | None = None, options: Mapping[str, object] | None = None) -> Table:
        """Open the table. Raises TableNotFound if it does not exist."""
        return self.catalog.load_table(self.identifier, storage_options=storage_options, options=options)

    def locate(self, storage_options: Mapping[str, str] | None = None) -> tuple[str, Mapping[str, str] | None]:
        """Return location and storage options of the table. Raises TableNotFound if it does not exist."""
        try:
            entry = self.catalog.load_entry(self.identifier)
        except TableNotFound as error:
            raise TableNotFound(
                f"{error}. Create it with CREATE TABLE, or with create_table of the catalog; for a folder of that name write "
                f"./{self.catalog.name}.{'.'.join(self.identifier)}"
            ) from error
        return entry.location, {**self.catalog._storage_options(entry), **(storage_options or {})} or None

    def check_namespace(self) -> None:
        """Raise InvalidRequest if the namespace does not exist."""
        self.catalog.load_namespace_properties(self.identifier[0])

    def create(self, **settings: Any) -> Table:
        """Create the table. settings: arguments of `Table.create`."""
        return self.catalog.create_table(self.identifier, **settings)

    def location(self) -> str:
        """Location of a new table. Raises InvalidRequest if the catalog has no warehouse."""
        return self.catalog._new_location(self.identifier)

    def register(self, path: str) -> None:
        """Add the table that exists at a path to the catalog."""
        self.catalog._add(self.identifier, path)

    def storage_options(self, given: Mapping[str, str] | None) -> dict[str, str] | None:
        """Storage options of a new table: those of the catalog's profile, replaced by those of the call."""
        return {**self.catalog._profile_options(), **(given or {})} or None

    def forget(self) -> bool:
        """Remove the table from the catalog, and return whether it existed. Its files stay."""
        if not self.exists():
            return False
        self.catalog.drop_table(self.identifier)
        return True

    def rename(self, to: StoredTable | None) -> None:
        """Rename the table. Raises InvalidRequest if the new name is not one of the same catalog."""
        if to is None or to.catalog.name != self.catalog.name:
            raise InvalidRequest(f"{'.'.join(self.identifier)} of catalog {self.catalog.name} cannot move to another catalog")
        self.catalog.rename_table(self.identifier, to.identifier)


def resolve(name: str | Sequence[str], own: object = None) -> StoredTable | None:
    """Return the table of a catalog that a name denotes; None if it denotes none.

    Args:
        name: The name, or its parts.
        own: Catalog of the call.
    """
    resolved = _resolved(name, own, 2)
    return None if resolved is None else StoredTable(resolved[0], (resolved[1][0], resolved[1][1]))


def locate(uri: str, storage_options: Mapping[str, str] | None) -> tuple[str | os.PathLike[str], Mapping[str, str] | None]:
    """Return location and storage options of the table that a text denotes: of a catalog if it is a name, else the path."""
    stored = resolve(uri)
    return (uri, storage_options) if stored is None else stored.locate(storage_options)


def resolve_namespace(name: str | Sequence[str], own: object = None) -> StoredNamespace | None:
    """Return the namespace of a catalog that a name denotes, `catalog.namespace`; None if it denotes none."""
    resolved = _resolved(name, own, 1)
    return None if resolved is None else StoredNamespace(resolved[0], resolved[1][0])


def find_catalog(name: str, own: object = None) -> Catalog:
    """Return the catalog of a name: that of the call, else one of the configuration. Raises InvalidRequest if there is none."""
    return own if isinstance(own, Catalog) and str(own.name).lower() == name.lower() else Catalog(name)


def _resolved(name: str | Sequence[str], own: object, length: int) -> tuple[Catalog, Sequence[str]] | None:
    """The catalog, and as many parts of the name as follow it."""
    parts = name.split(".") if isinstance(name, str) else name
    stored = own if isinstance(own, Catalog) and own.name is not None else None
    if len(parts) == length:
        return None if stored is None else (stored, parts)
    if len(parts) != length + 1 or not all(map(is_name, parts)):
        return None
    if stored is not None and str(stored.name).lower() == parts[0].lower():
        return stored, parts[1:]
    settings = configured_settings(parts[0])
    return None if settings is None else (Catalog._of(settings), parts[1:])


@checked
def open(
    name: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, str] | None = None,
    options: Mapping[str, object] | None = None,
) -> Table:
    """Open a table by its name in a configured catalog, or by its path.

    Args:
        name: `catalog.namespace.table`, such as `lake.sales.trips`; or path or URI of the table.
        storage_options: Credentials and settings of the object store, in addition to those of the catalog.
        options: `hoodie.*` options that apply to every method of the table.

    Raises:
        TableNotFound: No table has the name or path.

    Example:
        >>> trips = hp.open("lake.sales.trips")
    """
    stored = resolve(name) if isinstance(name, str) else None
    if stored is not None:
        return stored.open(storage_options, options)
    try:
        return Table(name, storage_options, options)
    except TableNotFound as error:
        parts = os.fspath(name).split(".")
        if len(parts) != 3 or not all(map(is_name, parts)):
            raise
        raise TableNotFound(
            f"there is no catalog {parts[0]} in the configuration, and no table at the path {name}"
            f"{nearest(parts[0], configured_names())}"
        ) from error
