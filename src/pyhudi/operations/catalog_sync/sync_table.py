"""Synchronize a catalog with a table: `Table.sync`, and the sync that follows a write if its options request it.

For each entry of the table (`catalog_entries.catalog_views`):

    1. if it is missing, create it, with all partitions; if it has another location, create it again
    2. otherwise change columns, formats and parameters that differ, in one request
    3. compare partitions, those of writes since the last sync or all: add, move or drop them
    4. record the synced state in last_commit_time_sync and last_commit_completion_time_sync

A crash between the steps leaves a catalog that the next sync brings up to date: step 4 comes last. Several processes
may synchronize concurrently; if another process did so, the older of both states is recorded, and the next sync
compares everything since. The table itself is only read. An entry that is not a Hudi table is never changed.

Source: docs/catalog-sync.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyhudi.errors import ServiceFailed, TableState, get_logger
from pyhudi.format.paths import join_path
from pyhudi.operations.catalog_sync.catalog_entries import (
    View,
    catalog_database,
    catalog_table,
    catalog_views,
    is_hudi_entry,
    synced_partition_columns,
)
from pyhudi.operations.catalog_sync.changed_partitions import SyncedInstant, partitions_since
from pyhudi.operations.catalog_sync.sync_settings import CatalogKind, SyncSettings
from pyhudi.operations.commit.events import observed
from pyhudi.operations.commit.results import OperationResult, WriteResult
from pyhudi.operations.commit.service_result import Executed, Failed
from pyhudi.options.sync_options import HIVE_METASTORE_URIS, HIVE_RECREATE_TABLE_ON_ERROR
from pyhudi.planning.catalog_partitions import (
    PartitionChanges,
    Values,
    check_width,
    compare_partitions,
    extractor_class,
    find_extractor,
    without_scheme,
)
from pyhudi.storage.catalogs import CatalogPartition, CatalogTable, ChangeRefused, MetastoreCatalog
from pyhudi.storage.catalogs.glue_catalog import GlueCatalog
from pyhudi.storage.catalogs.hive_catalog import HiveCatalog
from pyhudi.table.snapshot import Snapshot, load_snapshot, retry_on_stale_files
from pyhudi.table.table_context import TableContext

_LOG = get_logger("pyhudi.operations.catalog_sync")
SERVICE = "sync"
_DESCRIPTION = "automatically created by hoodie"


@dataclass(frozen=True, slots=True)
class SyncedTable:
    """The outcome for one catalog entry.

    Attributes:
        catalog: The catalog.
        name: `database.table`.
        action: "created", "recreated", "changed" or "unchanged".
        added: Number of added partitions.
        moved: Number of moved partitions.
        dropped: Number of dropped partitions.
        instant: Request time of the last synced write; None for a table without writes.
    """

    catalog: str
    name: str
    action: str
    added: int = 0
    moved: int = 0
    dropped: int = 0
    instant: str | None = None

    def __str__(self) -> str:
        parts = ((self.added, "added"), (self.moved, "moved"), (self.dropped, "dropped"))
        changes = ", ".join(f"{count:,} {change}" for count, change in parts if count)
        return f"{self.name} {self.action}" + (f", partitions {changes}" if changes else "")


@dataclass(frozen=True, slots=True)
class SyncResult(OperationResult):
    """The outcome of a sync; ``tables`` are the entries in the order of registration."""

    tables: tuple[SyncedTable, ...] = ()

    def __str__(self) -> str:
        return "\n".join(["sync", *(f"  {table}, in {table.catalog}" for table in self.tables)])


@observed(SERVICE)
def run_sync(context: TableContext, settings: SyncSettings) -> SyncResult:
    """Register the current state of the table. Entries synced before an error remain.

    Raises:
        TableState: The table has no columns, an entry is not a Hudi table, or the catalog refuses a change.
        StorageUnavailable: The catalog does not respond.
        InvalidRequest: The catalog does not accept the request.
    """
    tables = []
    for kind in settings.kinds:
        catalog = open_catalog(kind, settings)
        try:
            tables += _sync_with(catalog, context, settings)
        finally:
            catalog.close()
    return SyncResult(tuple(tables))


def with_sync(context: TableContext, settings: SyncSettings | None, result: WriteResult) -> WriteResult:
    """Run the sync that the options of a write request, and return its result. No sync follows a write that committed nothing.

    Raises:
        ServiceFailed: The sync failed, and its errors are not ignored. The commit is valid.
    """
    if settings is None or result.instant is None:
        return result
    try:
        synced = run_sync(context.reloaded(), settings)
        outcome = str(Executed("; ".join(map(str, synced.tables))))
    except Exception as error:
        # In any case, the caller has to learn that the commit is valid.
        if not settings.ignore_errors:
            raise ServiceFailed(
                f"{result.operation} {result.instant} of {context.storage.uri} is committed; the catalog sync that "
                f"followed it failed, and the next one catches up: {error}",
                instant=result.instant,
                service=SERVICE,
            ) from error
        _LOG.warning("the sync after %s of %s failed: %s", result.instant, context.storage.uri, error)
        outcome = str(Failed(str(error)))
    return replace(result, services={**result.services, SERVICE: outcome})


def check_sync(settings: SyncSettings | None) -> None:
    """Raise InvalidRequest before anything is written if the settings cannot reach a catalog. Sends no request."""
    if settings is not None:
        for kind in settings.kinds:
            open_catalog(kind, settings).close()


def open_catalog(kind: CatalogKind, settings: SyncSettings) -> MetastoreCatalog:
    """Open a catalog. Raises InvalidRequest if a dependency is not installed or a setting is missing."""
    if kind is CatalogKind.HIVE:
        return HiveCatalog(settings.uris, HIVE_METASTORE_URIS.key)
    glue = settings.glue
    return GlueCatalog(
        region=glue.region,
        endpoint=glue.endpoint,
        catalog_id=glue.catalog_id,
        credentials=(glue.access_key, glue.secret_key, glue.session_token),
        skip_archive=glue.skip_archive,
        lists_by_metadata=glue.lists_by_metadata,
    )


@retry_on_stale_files
def _sync_with(catalog: MetastoreCatalog, context: TableContext, settings: SyncSettings) -> list[SyncedTable]:
    snapshot = load_snapshot(context)
    database = catalog_database(snapshot.config, settings)
    if not catalog.has_database(database):
        if not settings.creates_database:
            raise TableState(f"{catalog.name} has no database {database}; create it, or let the sync create it")
        catalog.create_database(database, _DESCRIPTION)
    return [_Sync(catalog, snapshot, settings, view).run() for view in catalog_views(snapshot.config, settings)]


@dataclass(frozen=True, slots=True)
class _Sync:
    """The sync of one entry."""

    catalog: MetastoreCatalog
    snapshot: Snapshot
    settings: SyncSettings
    view: View

    def run(self) -> SyncedTable:
        target = self._target_table()
        known = self.catalog.table(target.database, target.name)
        if known is None:
            return self._make(target, "created")
        if not is_hudi_entry(known):
            raise TableState(
                f"{self.catalog.name}: {known.full_name} is not a Hudi table, so it was not changed; drop it there, "
                "or register this table under another name"
            )
        if without_scheme(known.location) != without_scheme(target.location):
            return self._recreate(target)
        try:
            return self._bring_up_to_date(known, target)
        except ChangeRefused:
            if not self.settings.recreate:
                raise
            return self._recreate(target)

    def _target_table(self) -> CatalogTable:
        # Hudi writes local files into catalogs by their path alone.
        location = self.catalog.format_location(self.snapshot.context.storage.uri.removeprefix("file:"))
        table = catalog_table(self.snapshot, self.settings, self.view, location)
        return replace(table, parameters={**table.parameters, **self.catalog.table_parameters})

    def _recreate(self, target: CatalogTable) -> SyncedTable:
        self.catalog.drop_table(target.database, target.name)
        return self._make(target, "recreated")

    def _make(self, target: CatalogTable, action: str) -> SyncedTable:
        self.catalog.create_table(target)
        changes = self._catalog_partitions(target, SyncedInstant())
        return self._finish(target, action, changes, SyncedInstant(), forced=True)

    def _bring_up_to_date(self, catalog_table: CatalogTable, target: CatalogTable) -> SyncedTable:
        synced = SyncedInstant.by(catalog_table.parameters) if self.settings.incremental else SyncedInstant()
        keys, existing_keys = ([column.name for column in table.partition_columns] for table in (target, catalog_table))
        if keys != existing_keys:
            raise ChangeRefused(
                f"{self.catalog.name}: {catalog_table.full_name} is partitioned there by "
                f"{', '.join(existing_keys) or 'nothing'}, and the table by {', '.join(keys) or 'nothing'}, which a catalog "
                f"cannot change; drop it there, or set {HIVE_RECREATE_TABLE_ON_ERROR}"
            )
        changed = _merged(catalog_table, target)
        differs = changed != catalog_table
        if differs:
            self.catalog.change_table(changed)
        changes = self._catalog_partitions(target, synced)
        done = "changed" if differs else "unchanged"
        return self._finish(
            target, done, changes, SyncedInstant.by(catalog_table.parameters), forced=not self.settings.conditional or differs
        )

    def _catalog_partitions(self, table: CatalogTable, synced: SyncedInstant) -> PartitionChanges:
        settings, columns = self.settings, synced_partition_columns(self.snapshot.config, self.settings)
        if not columns or settings.without_partitions:
            return PartitionChanges({}, {}, ())
        since = partitions_since(self.snapshot, synced)
        if since.written is not None and not since.written and not since.dropped:
            return PartitionChanges({}, {}, ())
        every = since.written is None
        paths = self._with_files() - since.dropped if since.written is None else since.written
        keys = self.snapshot.config.keys
        inferred = extractor_class(len(columns), hive_style=keys.hive_style, slash_dates=keys.slash_dates)
        extract = find_extractor(settings.extractor or inferred)

        def values(path: str) -> Values:
            values_of_path = extract(path)
            check_width(columns, path, values_of_path)
            return values_of_path

        stored = {values(path): join_path(table.location, path) for path in sorted(paths)}
        known = {partition.values: partition.location for partition in self.catalog.partitions(table)}
        changes = compare_partitions(stored, known, map(values, since.dropped), all_stored=every)
        catalog, at_once = self.catalog, settings.batch
        catalog.drop_partitions(table, changes.dropped, batch_size=at_once)
        catalog.add_partitions(table, _partitions(changes.added), batch_size=at_once)
        catalog.move_partitions(table, _partitions(changes.moved), batch_size=at_once)
        return changes

    def _with_files(self) -> frozenset[str]:
        """Return the partitions in which a query finds files; an empty folder may remain after a restore or deletion."""
        return frozenset(path for path, slices in self.snapshot.slices().items() if slices)

    def _finish(
        self, target: CatalogTable, action: str, changes: PartitionChanges, before: SyncedInstant, *, forced: bool
    ) -> SyncedTable:
        now = before
        if forced or changes:
            known = self.catalog.table(target.database, target.name)
            if known is None:
                raise TableState(f"{self.catalog.name}: {target.full_name} was dropped concurrently; synchronize again")
            now = _older_sync_state(SyncedInstant.of(self.snapshot.timeline), SyncedInstant.by(known.parameters), before)
            parameters = {**known.parameters, **now.parameters()}
            if parameters != known.parameters:
                self.catalog.change_table(replace(known, parameters=parameters))
        return SyncedTable(
            self.catalog.name,
            target.full_name,
            action,
            len(changes.added),
            len(changes.moved),
            len(changes.dropped),
            now.commit,
        )


def _merged(catalog_table: CatalogTable, target: CatalogTable) -> CatalogTable:
    """Merge the requested entry into the existing one; parameters of others and the form of the location are retained."""
    # Comments are retained if the table has none.
    parts = [
        key for key in catalog_table.parameters if key.startswith("spark.sql.sources.schema.") and key not in target.parameters
    ]
    own = {key: value for key, value in catalog_table.parameters.items() if key not in parts}
    comments = {column.name: column.comment for column in catalog_table.columns}
    return replace(
        catalog_table,
        columns=tuple(replace(c, comment=c.comment or comments.get(c.name, "")) for c in target.columns),
        input_format=target.input_format,
        output_format=target.output_format,
        serde=target.serde,
        serde_parameters={**catalog_table.serde_parameters, **target.serde_parameters},
        parameters={**own, **target.parameters},
    )


def _older_sync_state(current: SyncedInstant, existing: SyncedInstant, before: SyncedInstant) -> SyncedInstant:
    """Return the state to record: that of this sync, unless a concurrent sync recorded an older one."""
    if existing in (before, SyncedInstant()) or existing.commit is None or current.commit is None:
        return current
    return min((current, existing), key=lambda state: (state.commit or "", state.completion or ""))


def _partitions(locations: Mapping[Values, str]) -> list[CatalogPartition]:
    return [CatalogPartition(values, location) for values, location in locations.items()]
