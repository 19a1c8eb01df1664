"""Hive metastore and AWS Glue as catalogs: their Hudi tables are listed and loaded; `Table.sync` registers them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import NoReturn, TypeVar

from pyhudi.errors import Unsupported
from pyhudi.features.catalogs.catalog_store import TableEntry
from pyhudi.operations.catalog_sync.catalog_entries import is_hudi_entry
from pyhudi.operations.catalog_sync.sync_settings import SyncSettings
from pyhudi.operations.catalog_sync.sync_table import open_catalog
from pyhudi.options.scope import TABLE_OPERATIONS, check_call_options
from pyhudi.options.supported import parse_options
from pyhudi.options.sync_options import HIVE_METASTORE_URIS, HIVE_MODE, READ_OPTIMIZED_PROPERTY
from pyhudi.storage.catalogs import CatalogTable, MetastoreCatalog

T = TypeVar("T")


class MetastoreStore:
    """A Hive metastore (thrift://host:port, ...) or AWS Glue (glue:).

    options: `hoodie.*` options of catalog sync, such as `hoodie.aws.glue.region`.
    """

    def __init__(self, uri: str, options: Mapping[str, str]) -> None:
        way = {HIVE_MODE.key: "glue"} if uri.startswith("glue:") else {HIVE_METASTORE_URIS.key: uri}
        parsed = parse_options({**options, **way})
        check_call_options(TABLE_OPERATIONS["sync"], parsed)
        self._settings = SyncSettings.of(parsed)
        self._opened().close()

    def _opened(self) -> MetastoreCatalog:
        return open_catalog(self._settings.kinds[0], self._settings)

    @contextmanager
    def _catalog(self) -> Iterator[MetastoreCatalog]:
        with closing(self._opened()) as catalog:
            yield catalog

    def namespaces(self) -> list[str]:
        with self._catalog() as catalog:
            return sorted(catalog.databases())

    def namespace_properties(self, namespace: str) -> Mapping[str, str] | None:
        with self._catalog() as catalog:
            return {} if catalog.has_database(namespace.lower()) else None

    def tables(self, namespace: str) -> list[str]:
        with self._catalog() as catalog:
            return sorted(table.name for table in catalog.tables(namespace.lower()) if _is_snapshot(table))

    def entry(self, namespace: str, name: str) -> TableEntry | None:
        with self._catalog() as catalog:
            table = catalog.table(namespace.lower(), name.lower())
        if table is None or not is_hudi_entry(table):
            return None
        if not _is_snapshot(table):
            raise Unsupported(
                f"{table.full_name} is the read-optimized view of a table: call read_optimized() of Table({table.location!r})"
            )
        return TableEntry(table.database, table.name, table.location, properties=dict(table.parameters))

    def create_namespace(self, namespace: str, properties: Mapping[str, str]) -> None:
        self._refuse("create_namespace")

    def drop_namespace(self, namespace: str) -> bool:
        self._refuse("drop_namespace")

    def add(self, entry: TableEntry, create: Callable[[], T]) -> T:
        self._refuse("create_table and register_table")

    def remove(self, entry: TableEntry) -> bool:
        self._refuse("drop_table")

    def rename(self, entry: TableEntry, namespace: str, name: str) -> None:
        self._refuse("rename_table")

    def _refuse(self, call: str) -> NoReturn:
        raise Unsupported(f"{call} in a Hive metastore or AWS Glue, which are read only here: Table.sync registers tables there")


def _is_snapshot(table: CatalogTable) -> bool:
    """Whether an entry is a Hudi table with all rows, not the base files of a merge-on-read table."""
    return is_hudi_entry(table) and table.serde_parameters.get(READ_OPTIMIZED_PROPERTY, "false").lower() != "true"
