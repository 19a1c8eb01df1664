"""Convert instants and archive between timeline layout 1 and layout 2.

    instant file            layout 1                          layout 2
    name when completed     `t.commit`, time: the file's      `t_c.commit`
    commit metadata         JSON                              Avro
    pending clustering      `t.replacecommit.requested`       `t.clustering.requested`
    archive                 log files                         a history of Parquet files

Completion times in layout 2 are the modification times of the layout 1 files, at least one millisecond apart. Files of
layout 1 get the completion times as modification times, if the store supports that.

Source: docs/formats/timeline.md, "Version 6".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC
from functools import partial

from pyhudi.errors import CorruptData
from pyhudi.format.actions.archived_instants import ArchivedEntry
from pyhudi.format.actions.commit_metadata import CommitMetadata
from pyhudi.format.actions.requested_replace import RequestedReplaceMetadata
from pyhudi.format.archive_v1 import decode_archive_block, encode_archive_block, entries_from_row, rows_from_entries
from pyhudi.format.instants import (
    Action,
    Instant,
    State,
    parse_action,
    parse_instant_file,
    parse_instant_time,
    shift_instant_time,
)
from pyhudi.format.log.framing import LogBlock, scan_blocks
from pyhudi.format.lsm_timeline import HistoryRow
from pyhudi.format.names import ArchiveFileName, parse_archive_file
from pyhudi.format.paths import ARCHIVE_FOLDER, META_FOLDER
from pyhudi.format.table_versions import TimelineLayout
from pyhudi.storage.base import Storage
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.archived_timeline import HistoryStore

_ROWS_A_FILE = 1000
_V1, _V2 = TimelineLayout.V1, TimelineLayout.V2


def store_layout_2(context: TableContext, folder: str, files: Sequence[Instant]) -> int:
    """Write the layout 2 files for instants of layout 1; return the number of instants."""
    times = _completion_times(files, context)
    for instant in files:
        data = context.storage.read(f"{META_FOLDER}/{instant.file_name(_V1)}") or b""
        moved = replace(instant, completion_time=times[instant.step]) if instant.is_completed else instant
        if instant.action is Action.REPLACECOMMIT and not instant.is_completed and _plans_clustering(context, instant, files):
            moved = replace(moved, action=Action.CLUSTERING)
        if data and instant.action.is_write and (instant.is_completed or instant.state is State.INFLIGHT):
            data = _commit(context, instant, data).encode(context.env.token_bytes(16))
        context.storage.put(f"{folder}/{moved.file_name(_V2)}", data)
    return len({instant.step for instant in files})


def store_layout_1(context: TableContext, files: Sequence[Instant]) -> int:
    """Write the layout 1 files for instants of layout 2, completed ones last, in the order of completion."""
    storage, zone = context.storage, context.config.zone
    ordered = sorted(files, key=lambda i: (i.is_completed, i.completion_time or i.request_time, i.state))
    for instant in ordered:
        data = storage.read(context.timeline.path(instant)) or b""
        moved = replace(instant, completion_time=None, is_legacy=False) if instant.is_completed else instant
        if moved.action is Action.CLUSTERING:
            moved = replace(moved, action=Action.REPLACECOMMIT)
        if instant.action.is_write:
            if instant.is_completed or (data and instant.state is State.INFLIGHT):
                data = _commit(context, instant, data).encode_json()
            elif instant.action is not Action.REPLACECOMMIT:
                # An upgrade by Hudi leaves content in requested files that are empty in version 6.
                data = b""
        path = f"{META_FOLDER}/{moved.file_name(_V1)}"
        storage.put(path, data)
        if instant.completion_time is not None:
            storage.set_modified(path, parse_instant_time(instant.completion_time, zone))
    return len({instant.step for instant in files})


def _commit(context: TableContext, instant: Instant, data: bytes) -> CommitMetadata:
    try:
        metadata = CommitMetadata.decode(data)
    except CorruptData as error:
        raise error.with_path(f"{context.storage.uri}, instant {instant}") from error
    if instant.action is Action.REPLACECOMMIT and instant.is_completed and metadata.partition_to_replace_file_ids is None:
        return replace(metadata, partition_to_replace_file_ids={})
    return metadata


def _completion_times(files: Iterable[Instant], context: TableContext) -> dict[tuple[str, Action], str]:
    """Return layout 2 completion times by step: the files' times, later than the request, and strictly increasing."""
    completed = sorted((i for i in files if i.is_completed), key=lambda i: (i.completion_time or "", i.request_time))
    times: dict[tuple[str, Action], str] = {}
    last = ""
    for instant in completed:
        time = max(instant.completion_time or "", shift_instant_time(instant.request_time, 1, UTC))
        if time <= last:
            time = shift_instant_time(last, 1, UTC)
        times[instant.step] = last = time
    return times


def _plans_clustering(context: TableContext, instant: Instant, files: Iterable[Instant]) -> bool:
    """Return True if a replacecommit of layout 1 is a clustering."""
    requested = Instant(instant.request_time, Action.REPLACECOMMIT, State.REQUESTED)
    if requested not in set(files):
        return False
    data = context.storage.read(f"{META_FOLDER}/{requested.file_name(_V1)}")
    return bool(data) and RequestedReplaceMetadata.decode(data or b"").clustering_plan is not None


def is_pending(instant: Instant, files: Iterable[Instant]) -> bool:
    """Return True if the instant has no completed file."""
    return not any(other.is_completed for other in files if other.step == instant.step)


def remove_instants(storage: Storage, folder: str, layout: TimelineLayout) -> None:
    """Delete the instant files of a layout from a folder."""
    names = [info.path for info in storage.list(folder).files if parse_instant_file(info.name, layout) is not None]
    if names:
        storage.delete(names)


def archive_to_history(context: TableContext, history: HistoryStore, files: Iterable[Instant], compression: str) -> int:
    """Convert the archive to a history, without active instants; return the number of instants."""
    active = {instant.step for instant in files}
    rows: dict[tuple[str, str], HistoryRow] = {}
    for row in rows_from_entries(_archived_entries(context)):
        if (row.instant_time, parse_action(row.action)) not in active:
            done = row.completion_time or shift_instant_time(row.instant_time, 1, UTC)
            rows[row.instant_time, row.action] = replace(row, completion_time=done)
    ordered = [rows[key] for key in sorted(rows)]
    for start in range(0, len(ordered), _ROWS_A_FILE):
        history.append(ordered[start : start + _ROWS_A_FILE], compression)
    return len(ordered)


def _archived_entries(context: TableContext) -> Iterator[ArchivedEntry]:
    folder = context.config.history_path
    archive_files = [
        (name.version, info) for info in context.storage.list(folder).files if (name := parse_archive_file(info.name))
    ]
    for _, info in sorted(archive_files, key=lambda entry: (entry[0], entry[1].path)):
        read = partial(context.storage.read_range, info.path)
        try:
            for block in scan_blocks(read, info.size_bytes):
                # A writer that died while archiving wrote its instants again later, since they were still active.
                if isinstance(block, LogBlock):
                    yield from decode_archive_block(block, block.read_content(read))
        except CorruptData as error:
            raise error.with_path(context.storage.absolute(info.path)) from error


def history_to_archive(context: TableContext) -> int:
    """Convert the history to an archive, without active instants; return the number of instants."""
    store, count = context.timeline, 0
    active = {i.step for i in store.load().completed()}
    rows = sorted(store.history.rows(documents=True), key=lambda row: (row.instant_time, row.action))
    for number, start in enumerate(range(0, len(rows), _ROWS_A_FILE), 1):
        chunk = [row for row in rows[start : start + _ROWS_A_FILE] if (row.instant_time, parse_action(row.action)) not in active]
        entries = [entry for row in chunk for entry in entries_from_row(row)]
        count += len(chunk)
        if entries:
            context.storage.put(f"{ARCHIVE_FOLDER}/{ArchiveFileName(number, '1-0-1').text}", encode_archive_block(entries))
    return count
