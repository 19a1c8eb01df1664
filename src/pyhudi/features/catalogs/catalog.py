"""`Catalog`: names of tables in memory, in a database, or in a metastore."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyhudi.api.argument_types import checked_class
from pyhudi.api.table import Table
from pyhudi.errors import InvalidRequest, TableExists, TableNotFound
from pyhudi.features.catalogs.catalog_settings import (
    CatalogSettings,
    check_references,
    configured_names,
    configured_settings,
    parse_settings,
    resolved_storage_options,
)
from pyhudi.features.catalogs.catalog_store import CatalogStore, Reference, TableEntry, check_name
from pyhudi.operations.admin.alter_properties import NAME_PROPERTY
from pyhudi.sql_engine.sql_ast import TableName
from pyhudi.sql_engine.sql_catalog import SessionCatalog
from pyhudi.storage.uris import parse_uri

Identifier = str | Sequence[str]


@checked_class
class Catalog(SessionCatalog):
    """Maps names to tables, and stores namespaces and tables if it has a URI.

    Without a URI it holds names of one process, for `pyhudi.sql`. With one, several processes share its tables, whose
    names are `namespace.table`. SQLite and PostgreSQL store them; a Hive metastore and AWS Glue are read only. Names are
    compared without regard to case.

    Example:
        >>> lake = hp.Catalog("lake", uri="sqlite:////data/catalog.db", warehouse="/data/lake")
        >>> lake.create_namespace("sales")
        >>> trips = lake.create_table("sales.trips", record_key="id", ordering="ts")
        >>> lake.load_table("sales.trips").count()
        0
        >>> rows = hp.sql("SELECT * FROM lake.sales.trips", catalog=lake)
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        uri: str | os.PathLike[str] | None = None,
        warehouse: str | os.PathLike[str] | None = None,
        profile: str | None = None,
        user: str | None = None,
        password: object = None,
        options: Mapping[str, object] | None = None,
    ) -> None:
        """Open a catalog; nothing is read or written yet.

        Args:
            name: Name of the catalog, the first part of `lake.sales.trips`. Without `uri`, the catalog of this name in
                the configuration file or the environment.
            uri: `sqlite:////folder/catalog.db` or the path of this file as an object (`Path`), `postgresql://host/database`,
                `thrift://host:port` or `glue:`.
            warehouse: Folder for tables without location.
            profile: Profile of the configuration with storage options of tables that name no other.
            user: User of the database.
            password: Reference to the password, `{"env": "NAME"}` or `{"file": "path"}`.
            options: `hoodie.*` options of catalog sync, for Hive metastore and Glue.

        Raises:
            InvalidRequest: The configuration has no such catalog, the URI is of an unknown kind, a package is not
                installed, or a secret is not a reference.
        """
        uri = f"sqlite:///{os.fspath(uri)}" if isinstance(uri, os.PathLike) else uri
        keys = {"uri": uri, "warehouse": warehouse, "profile": profile, "user": user, "password": password, "options": options}
        given = {key: os.fspath(value) if isinstance(value, os.PathLike) else value for key, value in keys.items()}
        given = {key: value for key, value in given.items() if value is not None}
        self._settings = None if name is None and uri is None else _settings(name, given)
        self._store = None if self._settings is None else self._settings.open_store()
        super().__init__(warehouse if self._settings is None else self._settings.warehouse)

    @classmethod
    def _of(cls, settings: CatalogSettings) -> Catalog:
        """The catalog of settings of the configuration."""
        catalog = cls(warehouse=settings.warehouse)
        catalog._settings, catalog._store = settings, settings.open_store()
        return catalog

    @property
    def name(self) -> str | None:
        """Name of the catalog; None without a URI."""
        return None if self._settings is None else self._settings.name

    def __repr__(self) -> str:
        return "Catalog()" if self._settings is None else f"Catalog({self._settings.name!r}, uri={self._settings.uri!r})"

    def create_namespace(self, namespace: str, properties: Mapping[str, str] | None = None) -> None:
        """Create a namespace.

        Args:
            namespace: Its name, of one part.
            properties: Texts of your own.

        Raises:
            TableExists: The namespace exists.
        """
        check_references(properties or {}, f"properties of namespace {namespace}", ())
        self._stored.create_namespace(check_name("namespace", namespace), properties or {})

    def list_namespaces(self) -> list[str]:
        """Return the names of all namespaces, sorted."""
        return self._stored.namespaces()

    def load_namespace_properties(self, namespace: str) -> Mapping[str, str]:
        """Return the properties of a namespace. Raises InvalidRequest if it does not exist."""
        properties = self._stored.namespace_properties(namespace)
        if properties is None:
            raise InvalidRequest(f"{self!r} has no namespace {namespace}; it has {_listed(self._stored.namespaces())}")
        return properties

    def drop_namespace(self, namespace: str) -> bool:
        """Remove an empty namespace, and return whether it existed. Raises InvalidRequest if it has tables."""
        return self._stored.drop_namespace(namespace)

    def list_tables(self, namespace: str) -> list[str]:
        """Return the tables of a namespace as `namespace.table`, sorted. Raises InvalidRequest if it does not exist."""
        self.load_namespace_properties(namespace)
        return [f"{namespace}.{name}" for name in self._stored.tables(namespace)]

    def table_exists(self, identifier: str | Sequence[str]) -> bool:
        """Return True if the catalog has a table of this name."""
        return self._stored.entry(*self._split(identifier)) is not None

    def create_table(
        self,
        identifier: str | Sequence[str],
        location: str | os.PathLike[str] | None = None,
        *,
        storage_options: Mapping[str, object] | None = None,
        profile: str | None = None,
        properties: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> Table:
        """Create a table at a location, and add it to the catalog; both or neither.

        Args:
            identifier: `namespace.table`.
            location: Path or URI of the new table; below the warehouse by default.
            storage_options: Options of the object store, which the catalog stores. A secret is a reference to an
                environment variable, `{"env": "NAME"}`.
            profile: Profile of the configuration with further storage options.
            properties: Texts of your own.
            settings: Further arguments of `Table.create`, such as `record_key` and `schema`.

        Raises:
            TableExists: The name exists, or there is a table at the location; `register_table` adds it.
            InvalidRequest: The namespace does not exist, or a secret is in clear.
        """
        entry = self._new_entry(identifier, location, storage_options, profile, properties)
        options = self._storage_options(entry)

        def create() -> Table:
            try:
                return Table.create(entry.location, storage_options=options, **{"name": entry.name, **settings})
            except TableExists as error:
                raise TableExists(f"{error}. register_table adds the table to catalog {self.name}") from error

        return self._stored.add(entry, create)

    def register_table(
        self,
        identifier: str | Sequence[str],
        location: str | os.PathLike[str],
        *,
        storage_options: Mapping[str, object] | None = None,
        profile: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Table:
        """Add an existing table to the catalog. The arguments are those of `create_table`.

        Raises:
            TableExists: The name exists.
            TableNotFound: There is no table at the location.
            InvalidRequest: The namespace does not exist, or a secret is in clear.
        """
        entry = self._new_entry(identifier, location, storage_options, profile, properties)
        options = self._storage_options(entry)
        return self._stored.add(entry, lambda: Table(entry.location, options))

    def load_table(
        self,
        identifier: str | Sequence[str],
        *,
        storage_options: Mapping[str, str] | None = None,
        options: Mapping[str, object] | None = None,
    ) -> Table:
        """Open a table.

        Args:
            identifier: `namespace.table`.
            storage_options: Storage options in addition to those of the catalog, which they replace.
            options: `hoodie.*` options that apply to every method of the table.

        Raises:
            TableNotFound: The catalog has no such table, or its files are deleted.
        """
        entry = self.load_entry(identifier)
        try:
            return Table(entry.location, {**self._storage_options(entry), **(storage_options or {})} or None, options)
        except TableNotFound as error:
            raise TableNotFound(
                f"table {entry} of catalog {self.name} has the location {entry.location}, where no table exists; drop_table "
                "removes the name"
            ) from error

    def load_entry(self, identifier: str | Sequence[str]) -> TableEntry:
        """Return what the catalog stores for a table. Raises TableNotFound if there is none."""
        namespace, name = self._split(identifier)
        entry = self._stored.entry(namespace, name)
        if entry is None:
            tables = self._stored.tables(namespace)
            raise TableNotFound(f"catalog {self.name} has no table {namespace}.{name}; the namespace has {_listed(tables)}")
        return entry

    def rename_table(self, identifier: str | Sequence[str], to: str | Sequence[str]) -> Table:
        """Rename a table in the catalog and in its properties (`hoodie.table.name`). Its files are not moved.

        Args:
            identifier: `namespace.table`.
            to: The new name, also of another namespace.

        Raises:
            TableExists: The new name exists.
            TableNotFound: The catalog has no such table.
        """
        entry, (namespace, name) = self.load_entry(identifier), self._new_name(to)
        table = self.load_table(identifier)
        self._stored.rename(entry, namespace, name)
        try:
            table.set_properties({NAME_PROPERTY: name})
        except BaseException:
            renamed = self._stored.entry(namespace, name)
            if renamed is not None:
                self._stored.rename(renamed, entry.namespace, entry.name)
            raise
        return table

    def drop_table(self, identifier: str | Sequence[str], *, purge: bool = False) -> None:
        """Remove a table from the catalog.

        Args:
            identifier: `namespace.table`.
            purge: Also delete the files of the table, before its name. It cannot be undone.

        Raises:
            TableNotFound: The catalog has no such table.
            TableState: A write or a table service of the table is in progress, with `purge`.
        """
        entry = self.load_entry(identifier)
        if purge:
            try:
                Table(entry.location, self._storage_options(entry)).drop()
            except TableNotFound:
                pass  # An earlier call deleted the files, and did not remove the name.
        self._stored.remove(entry)

    def _new_location(self, identifier: str | Sequence[str]) -> str:
        """Return the location of a new table below the warehouse. Raises InvalidRequest without a warehouse."""
        namespace, name = self._split(identifier)
        if self._warehouse is None:
            raise InvalidRequest(f"catalog {self.name} has no warehouse: pass the location of table {namespace}.{name}")
        return f"{self._warehouse.rstrip('/')}/{namespace}/{name}"

    def _add(self, identifier: Identifier, location: str) -> None:
        self._stored.add(self._new_entry(identifier, location, None, None, None), lambda: None)

    def _profile_options(self) -> dict[str, str]:
        return resolved_storage_options({}, None if self._settings is None else self._settings.profile)

    def _names(self, database: str | None) -> list[str]:
        names = super()._names(database)
        if database is None and self._store is not None:
            names += [table for namespace in self.list_namespaces() for table in self.list_tables(namespace)]
        return names

    def _databases(self, catalog: str | None) -> list[str]:
        return [*super()._databases(catalog), *(self.list_namespaces() if catalog is None and self._store is not None else ())]

    def _check_new(self, table: TableName) -> None:
        if self._store is not None and len(table.parts) == 1:
            raise InvalidRequest(
                f"table {table} has no namespace: write namespace.{table}, or USE a namespace of catalog {self.name}"
            )
        super()._check_new(table)

    @property
    def _stored(self) -> CatalogStore:
        if self._store is None:
            raise InvalidRequest("this catalog holds names in memory; hp.Catalog(name, uri=...) stores namespaces and tables")
        return self._store

    def _split(self, identifier: Identifier) -> tuple[str, str]:
        """The namespace and the name; the name of the catalog may come first."""
        parts = tuple(identifier.split(".") if isinstance(identifier, str) else identifier)
        if len(parts) == 3 and parts[0].lower() == str(self.name).lower():
            parts = parts[1:]
        if len(parts) != 2:
            raise InvalidRequest(f"{'.'.join(parts)!r} is not the name of a table of catalog {self.name}: write namespace.table")
        return parts[0], parts[1]

    def _new_name(self, identifier: Identifier) -> tuple[str, str]:
        namespace, name = self._split(identifier)
        return check_name("namespace", namespace), check_name("table", name)

    def _new_entry(
        self,
        identifier: Identifier,
        location: str | os.PathLike[str] | None,
        storage_options: Mapping[str, object] | None,
        profile: str | None,
        properties: Mapping[str, str] | None,
    ) -> TableEntry:
        namespace, name = self._new_name(identifier)
        check_references(storage_options or {}, f"storage option of table {namespace}.{name}")
        check_references(properties or {}, f"property of table {namespace}.{name}", ())
        options: dict[str, Reference] = dict(storage_options or {})  # type: ignore[arg-type]
        place = self._new_location((namespace, name)) if location is None else os.fspath(location)
        return TableEntry(namespace, name, parse_uri(place).uri, options, profile, properties or {})

    def _storage_options(self, entry: TableEntry) -> dict[str, str]:
        assert self._settings is not None, "a stored entry has a catalog with settings"
        return self._settings.storage_options(entry.location, entry.storage_options, entry.profile)


def _settings(name: str | None, given: Mapping[str, object]) -> CatalogSettings:
    if name is None:
        raise InvalidRequest("a stored catalog needs a name: hp.Catalog('lake', uri=...)")
    if "uri" in given:
        return parse_settings(name, given)
    settings = configured_settings(name)
    if settings is None:
        raise InvalidRequest(
            f"there is no catalog {name} in the configuration, which has {_listed(configured_names())}: add [catalog.{name}] to "
            f"~/.pyhudi.toml, set PYHUDI_CATALOG__{name.upper()}__URI, or pass uri="
        )
    if given:
        raise InvalidRequest(f"catalog {name} is configured: pass uri= too, or remove {', '.join(given)}")
    return settings


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
