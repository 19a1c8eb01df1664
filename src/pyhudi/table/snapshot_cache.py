"""The state of a table that was loaded last, kept by an open table for its next verbs.

A verb reads `hoodie.properties` and lists the timeline, as ever; what was read besides is used again where all of it would be
found as it was:

    the same process             a forked child loads for itself: locks of the state may have been held when it was forked
    the same properties          a metadata table or an index that was made, dropped or made anew, a change of version
    the same timeline files      name, size and time of each: commits of anybody, pending ones too, services, savepoints,
                                 rollbacks, restores, archival; a table that was dropped and made anew
    the same of the metadata     its compaction, cleaning and archival, whose files would be gone, and what was built anew
    the same index definitions   the one document that is replaced in its place
    the same column history      of a table whose columns have ids: name, size and time of its files

The table's timeline is listed before the metadata table's, as when a state is loaded.  An instant's files are created once and
never changed, and so are data files; so of one listing only one state can be loaded, whoever loads it and when.  What a state
asks for later (further columns' statistics) it reads of files that the same listing names.

A state is kept by one object, and only while it is small: see `MAX_LISTING_BYTES`, beside the 64 MiB of files and the 16 MiB of
answers that its metadata table holds at most.  A state whose metadata table has failed is not kept, so each verb warns.  Nor is
one of listed directories: what stands in them changes without an instant, as where a partition's metadata file is put back.

Footers of base files are kept beside it, whatever the state: see `table.footer_cache`.

What this does not do: serve writers, queries as of a time or of a range, which load their own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from pyhudi.format.index_definitions import IndexDefinition
from pyhudi.format.paths import SCHEMA_FOLDER
from pyhudi.metadata_table.reader.metadata_listing import DAMAGE, MetadataListing, choose_listing
from pyhudi.metadata_table.reader.metadata_reader import MetadataCache, MetadataTable, metadata_context
from pyhudi.metadata_table.reader.stored_index_definitions import load_index_definitions
from pyhudi.storage.base import FileInfo, Storage
from pyhudi.table.footer_cache import FooterCache
from pyhudi.table.snapshot import Snapshot, load_snapshot, retry_on_stale_files
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline

MAX_LISTING_BYTES = 32 << 20
"""A state whose lists of files take more is loaded anew by each verb."""

MAX_REPLACED = 50_000
"""So is one with more replaced file groups on its timeline."""


class SnapshotCache:
    """Gives the present state of one table, loaded when it is not the one that was given last.

    footers: of the table's base files.  Several threads may ask at once.  Pickled, it is empty.
    """

    def __init__(self) -> None:
        self._kept: _CachedSnapshot | None = None
        self.footers = FooterCache()

    def __reduce__(self) -> tuple[type[SnapshotCache], tuple[()]]:
        return SnapshotCache, ()

    def snapshot(self, context: TableContext) -> Snapshot:
        """The state as of now.  context: with properties that were just read.  Raises as `load_snapshot`."""
        kept = self._kept
        if kept is not None and kept.is_current(context):
            return replace(kept.snapshot, context=context)
        self._kept = None
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
            return load_snapshot(context, lambda *_: ordinary, timeline=timeline)
        try:
            definitions = load_index_definitions(context)
            snapshot = load_snapshot(context, listing, timeline=timeline)
        except DAMAGE:
            # Whoever asks the damaged part tells of it.
            return load_snapshot(context, timeline=timeline)
        if len(snapshot.slicing.replaced) <= MAX_REPLACED:
            stamps = (os.getpid(), files, metadata_files, definitions, column_files)
            self._kept = _CachedSnapshot(*stamps, replace(snapshot, commits={}))
        return snapshot


@dataclass(frozen=True, slots=True)
class _CachedSnapshot:
    """A state, with all by which it is told that it still is the present one."""

    process: int
    files: tuple[FileInfo, ...]
    metadata_files: tuple[FileInfo, ...]
    definitions: Mapping[str, IndexDefinition]
    column_files: tuple[FileInfo, ...]
    snapshot: Snapshot

    def is_current(self, context: TableContext) -> bool:
        """Whether a state that is loaded now would be this one.  Raises TableState where the table's timeline is gone."""
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
