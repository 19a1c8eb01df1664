"""Snapshot cache: the last loaded snapshot of a table, reused by the next operations of an open table.

An operation reads `hoodie.properties` and lists the timeline in any case; everything else is reused if all of the
following is unchanged:

    process                      a forked child loads its own snapshot: locks inside it may have been held at the fork
    properties                   a created, dropped or rebuilt metadata table or index, a change of version
    timeline files               name, size and time of each: commits of any writer, pending ones too, services,
                                 savepoints, rollbacks, restores, archival; a table that was dropped and re-created
    metadata table timeline      its compaction, cleaning and archival, which delete files, and rebuilt partitions
    index definitions            the one document that is replaced in place
    schema history               of a table with column ids: name, size and time of its files

The table's timeline is listed before the metadata table's, as when a snapshot is loaded. Instant files and data files
are immutable; so one listing determines one snapshot. Data that a snapshot reads later (statistics of further columns)
comes from files that the same listing names.

One object caches one snapshot, up to a size: see `MAX_LISTING_BYTES`, in addition to at most 64 MiB of files and 16 MiB
of lookup results of its metadata table. A snapshot whose metadata table has failed is not cached, so each operation
warns. Neither is one of listed directories, whose content changes without an instant, e.g. when a partition metadata
file is restored.

Footers of base files are cached separately: see `table.footer_cache`.

Limits: writers, time travel and incremental queries load their own snapshots.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from pyhudi.format.index_definitions import IndexDefinition
from pyhudi.format.paths import SCHEMA_FOLDER
from pyhudi.metadata_table.reader.metadata_listing import DAMAGE, MAX_LISTING_BYTES, MetadataListing, choose_listing
from pyhudi.metadata_table.reader.metadata_reader import MetadataCache, MetadataTable, metadata_context
from pyhudi.metadata_table.reader.stored_index_definitions import load_index_definitions
from pyhudi.storage.base import FileInfo, Storage
from pyhudi.table.footer_cache import FooterCache
from pyhudi.table.snapshot import Snapshot, load_snapshot, retry_on_stale_files
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline

MAX_REPLACED = 50_000
"""Nor is one with more replaced file groups on its timeline."""


class SnapshotCache:
    """Return the current snapshot of one table, and reload it when it is stale.

    footers: of the table's base files.  Thread-safe.  Pickled, it is empty.
    """

    def __init__(self) -> None:
        self._cached: _CachedSnapshot | None = None
        self.footers = FooterCache()

    def __reduce__(self) -> tuple[type[SnapshotCache], tuple[()]]:
        return SnapshotCache, ()

    def snapshot(self, context: TableContext) -> Snapshot:
        """Return the current snapshot.  context: with properties that were just read.  Raises as `load_snapshot`."""
        cached = self._cached
        if cached is not None and cached.is_current(context):
            return replace(cached.snapshot, context=context)
        self._cached = None
        return self._load(context)

    @retry_on_stale_files
    def _load(self, context: TableContext) -> Snapshot:
        store = context.timeline
        files = store.listed()
        timeline = store.build_timeline(store.parse_instants(files))
        column_files = _column_files(context)
        metadata_files: tuple[FileInfo, ...] = ()

        def listing(context: TableContext, timeline: Timeline) -> MetadataListing:
            nonlocal metadata_files
            own = metadata_context(context)
            metadata_files = own.timeline.listed()
            opened = MetadataCache(
                own,
                own.timeline.build_timeline(own.timeline.parse_instants(metadata_files)),
                partial(_files_of, own.storage),
            )
            return MetadataListing(MetadataTable(context, timeline, opened))

        ordinary = choose_listing(context, timeline)
        if not isinstance(ordinary, MetadataListing):
            return load_snapshot(context, lambda *_: ordinary, timeline=timeline, external_files=True)
        try:
            definitions = load_index_definitions(context)
            snapshot = load_snapshot(context, listing, timeline=timeline)
        except DAMAGE:
            # The reader of the damaged part reports the error.
            return load_snapshot(context, timeline=timeline)
        if len(snapshot.slicing.replaced) <= MAX_REPLACED:
            stamps = (os.getpid(), files, metadata_files, definitions, column_files)
            self._cached = _CachedSnapshot(*stamps, replace(snapshot, commits={}))
        return snapshot


@dataclass(frozen=True, slots=True)
class _CachedSnapshot:
    """A snapshot, with everything that decides whether it is current."""

    process: int
    files: tuple[FileInfo, ...]
    metadata_files: tuple[FileInfo, ...]
    definitions: Mapping[str, IndexDefinition]
    column_files: tuple[FileInfo, ...]
    snapshot: Snapshot

    def is_current(self, context: TableContext) -> bool:
        """Whether loading now would produce this snapshot.  Raises TableState if the table's timeline is missing."""
        if self.process != os.getpid() or self.snapshot.config != context.config:
            return False
        if context.timeline.listed() != self.files:
            return False
        if self.snapshot.history is not None and _column_files(context) != self.column_files:
            return False
        listing = self.snapshot.listing
        if not isinstance(listing, MetadataListing) or listing.metadata is None or listing.memory_bytes > MAX_LISTING_BYTES:
            return False
        try:
            if listing.metadata.context.timeline.listed() != self.metadata_files:
                return False
            return load_index_definitions(context) == self.definitions
        except DAMAGE:
            return False


def _column_files(context: TableContext) -> tuple[FileInfo, ...]:
    return context.storage.list(SCHEMA_FOLDER).files


def _files_of(storage: Storage, partition: str) -> tuple[FileInfo, ...]:
    return storage.list(partition).files
