"""Archival: move the oldest instants from the active timeline to the archived timeline (LSM history).

All under the table lock:

    1. plan on a freshly loaded timeline
    2. remove orphaned files of task attempts and failed writes whose instants would precede the active timeline, where
       their files would count as committed
    3. history: write one Parquet file with the instants, then the manifest, then the version file
    4. delete from the active timeline: first their requested and inflight files, then the completed ones, oldest first
    5. merge small history files; delete old manifests and the files that only those reference

A crash between 3 and 4 leaves instants in both places; the active timeline wins, and the next archival removes them. A
crash within 4 leaves the newer instants, with their states unchanged.

Source: docs/formats/timeline.md, "History" and "Which instants are archived".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from pyhudi.errors import TableState
from pyhudi.format.actions.archived_instants import COMMIT_LIKE
from pyhudi.format.actions.commit_metadata import CommitMetadata
from pyhudi.format.instants import Action, Instant, State, completed_action
from pyhudi.format.lsm_timeline import HistoryRow
from pyhudi.format.paths import METADATA_FOLDER
from pyhudi.operations.commit.begin_checks import check_same_version
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.events import observed
from pyhudi.operations.commit.orphan_cleanup import remove_marked, sweep_side_files, sweep_unfinished_documents
from pyhudi.operations.commit.results import ArchiveResult
from pyhudi.operations.services.clean_state import load_last_clean
from pyhudi.options.declaration import Options, read_settings
from pyhudi.options.file_options import PARQUET_COMPRESSION_CODEC
from pyhudi.planning.archival import (
    ArchivalBounds,
    ArchivalRules,
    merged_manifest,
    plan_archival,
    plan_history_merge,
    reason_not_to_archive,
)
from pyhudi.storage.markers import marked_instants
from pyhudi.table.schema_on_read_history import load_column_history
from pyhudi.table.snapshot import read_commit
from pyhudi.table.table_config import load_table_config
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.table.timeline.timeline_store import TimelineStore

_PLANNED_ACTIONS = (Action.COMPACTION, Action.LOGCOMPACTION, Action.CLEAN, Action.CLUSTERING, Action.REPLACECOMMIT)
_ARROW_CODECS = {"uncompressed": "none", "lz4_raw": "lz4"}


@dataclass(frozen=True, slots=True)
class ArchiveSettings:
    """Settings of one archival.

    Attributes:
        archival: Which instants are archived.
        commit: Commit settings.
        compression: Compression codec of history files, by its Arrow name.
    """

    archival: ArchivalRules
    commit: CommitSettings
    compression: Annotated[str, PARQUET_COMPRESSION_CODEC]

    @classmethod
    def of(cls, options: Options) -> ArchiveSettings:
        """Build the settings from checked options."""
        codec = options.value_or_default(PARQUET_COMPRESSION_CODEC)
        return read_settings(cls, options, compression=_ARROW_CODECS.get(codec, codec))


@observed("archive")
def run_archive(
    context: TableContext,
    settings: ArchiveSettings,
    *,
    timeline: Timeline | None = None,
    data_table: TimelineStore | None = None,
) -> ArchiveResult:
    """Archive the instants that are due.

    Args:
        settings: Settings of the archival.
        timeline: A freshly loaded timeline; if it shows that nothing is due, nothing is read.
        data_table: The timeline of the data table, if ``context`` is a metadata table.

    Raises:
        TableState: The table's version changed since it was opened.
    """
    reason = None if timeline is None else reason_not_to_archive(timeline, settings.archival)
    if reason is not None:
        return ArchiveResult(reason=reason)
    with context.locked(settings.commit.lock_wait_ms) as locked:
        store = locked.timeline
        files = store.load_files()
        now = store.build_timeline(files)
        if now.pending(Action.RESTORE):
            return ArchiveResult(reason="a restore is pending")
        reason = reason_not_to_archive(now, settings.archival)
        if reason is not None:
            return ArchiveResult(reason=reason)
        check_same_version(locked)
        bounds = _load_bounds(locked.reloaded(), now, data_table)
        plan = plan_archival(now, settings.archival, bounds, is_cow=context.config.is_cow, zone=context.config.zone)
        if not plan.instants:
            return ArchiveResult(reason=plan.reason)
        _check_version_file(locked, now)
        leftovers = _remove_leftovers(locked, plan.start) if data_table is None else sweep_side_files(locked, data_table)
        leaving: dict[tuple[str, Action], list[Instant]] = {instant.step: [] for instant in plan.instants}
        for file in files:
            if file.step in leaving:
                leaving[file.step].append(file)
        rows = [_to_row(locked, instant, leaving[instant.step]) for instant in plan.instants]
        store.history.append(rows, settings.compression)
        _remove_instants(locked, list(leaving.values()))
        merges = _merge_history(locked, settings)
        if data_table is None:
            sweep_unfinished_documents(locked, settings.commit)
    return ArchiveResult(
        instants=tuple(i.request_time for i in plan.instants),
        start=plan.start,
        leftover_files=leftovers,
        history_merges=merges,
    )


@observed("compact_history")
def compact_history(context: TableContext, settings: ArchiveSettings) -> int:
    """Merge files of the archived timeline while merges are due, and return the number of merges.

    Raises:
        TableState: The table's version changed since it was opened.
    """
    with context.locked(settings.commit.lock_wait_ms) as locked:
        check_same_version(locked)
        _check_version_file(locked, locked.timeline.load())
        return _merge_history(locked, settings)


def _check_version_file(context: TableContext, timeline: Timeline) -> None:
    """Raise TableState if the version file of the history is outdated: archiving on its manifest would lose instants."""
    history = context.timeline.history
    newer = history.unknown_newer({i.step for i in timeline.completed()})
    if newer is not None:
        number, lost = newer
        raise TableState(
            f"the version file of {context.storage.absolute(history.folder)} names manifest "
            f"{history.load_manifest().number}, but manifest {number} contains instants that are stored nowhere "
            f"else, such as {lost}; write {number} into the version file"
        )


def _load_bounds(context: TableContext, timeline: Timeline, data_table: TimelineStore | None) -> ArchivalBounds:
    # Cleans bound the archival of replaced file groups only.
    replaces = any(i.action in (Action.REPLACECOMMIT, Action.CLUSTERING) for i in timeline.instants)
    last_clean = load_last_clean(context.timeline, timeline) if replaces else None
    history = load_column_history(context, timeline, read_commit) if data_table is None else None
    without_ids = None if history is None else history.first_unrecorded
    if not context.config.has_metadata_table:
        return ArchivalBounds(last_clean, data_table=None if data_table is None else data_table.load(), without_ids=without_ids)
    child = context.storage.child(METADATA_FOLDER)
    metadata_table = TableContext(child, context.env, load_table_config(child), context.lock)
    compactions = metadata_table.timeline.load().completed(Action.COMMIT)
    compacted = compactions[-1].request_time if compactions else None
    return ArchivalBounds(last_clean, has_metadata_table=True, metadata_compaction=compacted, without_ids=without_ids)


def _to_row(context: TableContext, instant: Instant, files: Iterable[Instant]) -> HistoryRow:
    """Return the history row of an instant: its completed file, unchanged, and its plan. ``files`` are those of its states."""
    store = context.timeline
    completed: bytes | None = store.read(instant) or None
    action = completed_action(instant.action)
    if completed is not None and completed[:1] == b"{" and action in COMMIT_LIKE:
        # Commit metadata of timeline layout 1 under a layout 2 name; a history row is always Avro.
        completed = CommitMetadata.decode(completed).encode()
    plan: bytes | None = None
    for pending in _pending_files(files):
        if pending.action not in _PLANNED_ACTIONS:
            continue
        data = context.storage.read(store.path(pending))
        if data and (pending.state is State.REQUESTED or plan is None or pending.action is not Action.CLEAN):
            plan = data
    return HistoryRow(instant.request_time, instant.completion_time, action.value, completed, plan)


def _pending_files(files: Iterable[Instant]) -> list[Instant]:
    """Return the requested and inflight files of a completed instant, in that order."""
    return sorted((i for i in files if i.is_pending), key=lambda i: (i.state, i.action.value))


def _remove_instants(context: TableContext, leaving: Sequence[Sequence[Instant]]) -> None:
    """Delete the files of instants, given for each one."""
    store = context.timeline
    context.storage.delete([store.path(pending) for files in leaving for pending in _pending_files(files)])
    for files in leaving:
        # One call per instant, so that a crash leaves no gap.
        context.storage.delete([store.path(i) for i in files if i.is_completed])


def _remove_leftovers(context: TableContext, start: str) -> int:
    """Delete marked files that no commit reports, of instants before ``start``; return the number of paths."""
    # Markers outlive a write that was rolled back or committed while one of its tasks was still running.
    listed = [request_time for request_time in marked_instants(context.storage) if request_time < start]
    if not listed:
        return 0
    timeline = context.timeline.load()
    pending = {i.request_time for i in timeline.pending()}
    dead = (request_time for request_time in listed if request_time not in pending)
    return sum(remove_marked(context, timeline, request_time, strict=True) for request_time in dead)


def _merge_history(context: TableContext, settings: ArchiveSettings) -> int:
    """Merge history files level by level while merges are due; return the number of merges."""
    history = context.timeline.history
    level = merges = 0
    while True:
        loaded = history.load_manifest()
        merge = plan_history_merge(loaded.manifest, level, settings.archival.merge_batch)
        if merge is None:
            break
        output = history.merge(merge.inputs, merge.output.text, settings.compression)
        history.store_manifest(merged_manifest(loaded.manifest, merge.inputs, output), loaded.number)
        merges += 1
        level += 1
    history.clean(extra_manifests=merges)
    return merges
