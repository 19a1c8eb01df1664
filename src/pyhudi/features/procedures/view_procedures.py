"""Procedures that show file slices, the state of one file, unreadable files, and the content of the metadata table."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptData, InvalidRequest, TableState, Unsupported
from pyhudi.features.procedures.file_procedures import path_glob
from pyhudi.features.procedures.procedure import ProcedureCall, Rows, procedure
from pyhudi.features.procedures.timeline_procedures import archived_metadata
from pyhudi.format.actions.archived_instants import decode_completed
from pyhudi.format.actions.clean_metadata import CleanMetadata
from pyhudi.format.actions.restore_metadata import RestoreMetadata
from pyhudi.format.actions.rollback_metadata import RollbackMetadata
from pyhudi.format.instants import Action, Instant
from pyhudi.format.names import parse_base_file, parse_log_file
from pyhudi.format.paths import METADATA_FOLDER, file_name
from pyhudi.storage.base import Storage
from pyhudi.storage.thread_pool import in_threads
from pyhudi.table.file_slices import FileSlice, LogFile
from pyhudi.table.listing import DirectoryListing
from pyhudi.table.snapshot import Snapshot, load_snapshot
from pyhudi.tasks.base_file_reader import open_base_rows

_ALL = "ALL_PARTITIONS"
_FILE_COUNTS = ("totalBaseFileSizeInBytes", "totalLogFileSizeInBytes", "baseFileCount", "logFileCount")
_VIEW = (
    "max_instant string =, include_max boolean = false, include_in_flight boolean = false, exclude_compaction boolean = false, "
    f"limit int = 10, path_regex string = {_ALL}"
)
_SLICE = (
    "partition string, file_id string, base_instant string, data_file string, data_file_size bigint, num_delta_files bigint, "
    "total_delta_file_size bigint"
)
_REMOVING = (Action.CLEAN, Action.ROLLBACK, Action.RESTORE)


@procedure(f"{_VIEW}, partition_path string = {_ALL}", f"{_SLICE}, delta_files string")
def show_fsview_all(call: ProcedureCall) -> Rows:
    """File slices of all versions, by partition and file id, newest first, those of replaced file groups included."""
    snapshot, limit = _snapshot(call)
    partitions = _partitions(call, snapshot)
    for _, groups in sorted(snapshot.groups(partitions).items()):
        for group in groups:
            for slice_ in group.slices:
                shown = _committed(slice_, snapshot)
                if shown is not None and (limit is None or shown.base_instant <= limit):
                    yield *_slice_row(snapshot.context.storage, shown), _log_text(snapshot.context.storage, shown.logs)


@procedure(
    f"{_VIEW}, partition_path string = {_ALL}, merge boolean = true",
    f"{_SLICE}, delta_size_compaction_scheduled bigint, delta_size_compaction_unscheduled bigint, "
    "delta_to_base_radio_compaction_scheduled double, delta_to_base_radio_compaction_unscheduled double, "
    "delta_files_compaction_scheduled string, delta_files_compaction_unscheduled string",
)
def show_fsview_latest(call: ProcedureCall) -> Rows:
    """File slices that a snapshot query reads, by partition and file id."""
    if not call.flag("merge"):
        raise Unsupported("merge=false of show_fsview_latest is not supported: slices are those that a query merges")
    snapshot, limit = _snapshot(call)
    storage = snapshot.context.storage
    partitions = _partitions(call, snapshot)
    for partition, slices in sorted(snapshot.slices(partitions, as_of=limit).items()):
        for slice_ in slices:
            planned = snapshot.slicing.pending_compactions.get((partition, slice_.file_id))
            scheduled = [log for log in slice_.logs if planned is not None and log.name.instant_time < planned]
            unscheduled = [log for log in slice_.logs if log not in scheduled]
            base_bytes = slice_.base.size_bytes if slice_.base else 0
            sizes = [sum(log.size_bytes for log in logs) for logs in (scheduled, unscheduled)]
            ratios = [size / base_bytes if base_bytes else -1.0 for size in sizes]
            yield *_slice_row(storage, slice_), *sizes, *ratios, _log_text(storage, scheduled), _log_text(storage, unscheduled)


@procedure(
    "partition string, file string required", "status string, action string, instant string, timeline string, full_path string"
)
def show_file_status(call: ProcedureCall) -> Rows:
    """Whether a data file exists, which action deleted it, or `unknown`. Local paths have no scheme."""
    context = call.table.context

    def full_path(path: str) -> str:
        return context.storage.absolute(path).removeprefix("file:")

    partition, name = call.text("partition"), call.text("file")
    if not partition and context.config.keys.partition_fields:
        raise InvalidRequest(f"show_file_status: the table at {context.storage.uri} is partitioned; pass partition=")
    path = f"{partition}/{name}" if partition else name
    if context.storage.stat(path) is not None:
        yield "exist", "", "", "active", full_path(path)
        return
    for instant, timeline, files in _deletions(call, partition):
        if name in files:
            yield "deleted", str(instant.action), instant.request_time, timeline, full_path(path)
            return
    yield "unknown", "", "", "", ""


@procedure(
    "path, limit int = 100, needDelete boolean = false, partitions string =, instants string =, parallelism int = 100",
    "path string",
)
def show_invalid_parquet(call: ProcedureCall) -> Rows:
    """Base files whose Parquet footer cannot be read."""
    if call.flag("needDelete"):
        raise Unsupported("needDelete=true of show_invalid_parquet is not supported: restore the files or roll back")
    storage = call.table.context.storage
    listing = DirectoryListing(storage)
    partitions, instants = call.names("partitions"), call.names("instants")
    chosen = [partition for partition in listing.partitions() if not partitions or partition in partitions]
    paths = []
    for files in listing.files(chosen).values():
        for info in files:
            base = parse_base_file(info.name)
            if base is not None and base.extension == ".parquet" and (not instants or base.instant_time in instants):
                paths.append(info.path)
    invalid = in_threads(lambda path: not _has_footer(storage, path), paths)
    return ((storage.absolute(path),) for path, is_invalid in zip(paths, invalid, strict=True) if is_invalid)


@procedure(
    "partition string, targetColumns string",
    "file_name string, column_name string, min_value string, max_value string, null_number bigint",
)
def show_metadata_table_column_stats(call: ProcedureCall) -> Rows:
    """Column statistics of the files that a snapshot query reads, as text; of all columns unless `targetColumns` names some.

    partition: beginnings of partition paths, separated by commas.
    """
    stats = _current_stats(call)
    shown = (stats[name].to_pylist() for name in ("file_name", "column", "min", "max", "null_count"))
    return zip(*shown, strict=True)


@procedure(
    "partition string, targetColumns string",
    "Partition path string, Field name string, Average overlap double, Maximum file overlap int, Total file number int, "
    "50% overlap int, 75% overlap int, 95% overlap int, 99% overlap int, Total value number int",
)
def show_metadata_column_stats_overlap(call: ProcedureCall) -> Rows:
    """How many files of a partition have a value within their bounds of a column: the average over all bounds, and quantiles.

    partition: beginnings of partition paths, separated by commas.
    """
    snapshot, schema = load_snapshot(call.table.context), call.table.schema()
    files = {partition: len(slices) for partition, slices in snapshot.slices().items()}
    stats = _current_stats(call)
    bounds: dict[tuple[str, str], list[tuple[Any, Any]]] = defaultdict(list)
    columns = (stats[name].to_pylist() for name in ("partition", "column", "min", "max"))
    for partition, column, low, high in zip(*columns, strict=True):
        if low is not None and high is not None and schema.get_field_index(column) >= 0:
            type_ = schema.field(column).type
            bounds[partition, column].append((_comparable(low, type_), _comparable(high, type_)))
    rows = []
    for (partition, column), ranges in bounds.items():
        counts = _overlaps(ranges)
        quantiles = (counts[int(percent / 100 * (len(counts) - 1))] for percent in (50, 75, 95, 99))
        average = sum(counts) / len(counts)
        rows.append((partition, column, average, counts[-1], files[partition], *quantiles, len(counts)))
    return sorted(rows, key=lambda row: (row[1], row[2], row[0]))


def _comparable(text: str, type_: pa.DataType) -> Any:
    """A bound as a number if its column has numbers, otherwise as text."""
    try:
        return float(text) if pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_) else text
    except ValueError:
        return text


def _overlaps(ranges: list[tuple[Any, Any]]) -> list[int]:
    """The number of ranges that contain each distinct bound, in ascending order."""
    lows, highs = sorted(low for low, _ in ranges), sorted(high for _, high in ranges)
    distinct = sorted({*lows, *highs})
    return sorted(bisect_right(lows, value) - bisect_left(highs, value) for value in distinct)


def _current_stats(call: ProcedureCall) -> pa.Table:
    """Column statistics of the files that a snapshot query reads, of the partitions and columns that the call names."""
    columns, prefixes = call.names("targetColumns"), call.names("partition")
    names = [
        file_name(file.path)
        for partition, slices in load_snapshot(call.table.context).slices().items()
        if not prefixes or partition.startswith(prefixes)
        for slice_ in slices
        for file in (*((slice_.base,) if slice_.base else ()), *slice_.logs)
    ]
    stats = call.table.inspect.column_stats()
    stats = stats.filter(pc.is_in(stats["file_name"], value_set=pa.array(names, pa.string())))
    return stats.filter(pc.is_in(stats["column"], value_set=pa.array(columns))) if columns else stats


@procedure("", "stat_key string, stat_value string")
def show_metadata_table_stats(call: ProcedureCall) -> Rows:
    """Number and bytes of base and log files in each partition of the metadata table."""
    context = call.table.context.reloaded()
    if not context.config.has_metadata_table:
        return
    metadata = context.storage.child(METADATA_FOLDER)
    counts: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(_FILE_COUNTS, 0))
    for folder, files in DirectoryListing(metadata).files(DirectoryListing(metadata).partitions()).items():
        for info in files:
            is_log = parse_log_file(info.name) is not None
            if is_log or parse_base_file(info.name) is not None:
                counts[folder]["logFileCount" if is_log else "baseFileCount"] += 1
                counts[folder]["totalLogFileSizeInBytes" if is_log else "totalBaseFileSizeInBytes"] += info.size_bytes
    for folder in sorted(counts):
        for name, value in counts[folder].items():
            yield f"{folder}.{name}", str(value)


def _snapshot(call: ProcedureCall) -> tuple[Snapshot, str | None]:
    """The snapshot, and the last request time to show; None shows everything."""
    for name in ("include_in_flight", "exclude_compaction"):
        if call.flag(name):
            raise Unsupported(f"{name}=true is not supported: only committed file slices are shown; omit it")
    limit = call.text("max_instant") or None
    if limit is not None and not limit.isdigit():
        raise InvalidRequest(f"max_instant={limit!r} is not an instant time: pass digits, as in show_commits")
    if limit is not None and not call.flag("include_max"):
        limit = str(int(limit) - 1).zfill(len(limit))
    return load_snapshot(call.table.context), limit


def _partitions(call: ProcedureCall, snapshot: Snapshot) -> list[str]:
    pattern, path = call.text("path_regex"), call.text("partition_path")
    chosen = path_glob(pattern) if pattern != _ALL else None
    known = [partition for partition in sorted(snapshot.listing.partitions()) if path in (_ALL, partition)]
    return [partition for partition in known if chosen is None or chosen.fullmatch(partition)]


def _committed(slice_: FileSlice, snapshot: Snapshot) -> FileSlice | None:
    """The committed files of a slice; None if there are none."""
    timeline = snapshot.timeline
    base = slice_.base if slice_.base and timeline.is_completed(slice_.base.name.instant_time) else None
    logs = tuple(log for log in slice_.logs if timeline.is_completed(log.name.instant_time))
    return FileSlice(slice_.partition, slice_.file_id, slice_.base_instant, base, logs) if base or logs else None


def _slice_row(storage: Storage, slice_: FileSlice) -> tuple[str | int, ...]:
    base = (storage.absolute(slice_.base.path), slice_.base.size_bytes) if slice_.base else ("", -1)
    log_bytes = sum(log.size_bytes for log in slice_.logs)
    return slice_.partition, slice_.file_id, slice_.base_instant, *base, len(slice_.logs), log_bytes


def _log_text(storage: Storage, logs: tuple[LogFile, ...] | list[LogFile]) -> str:
    """Log files in the text form of Hudi, newest first."""
    texts = (f"HoodieLogFile{{pathStr='{storage.absolute(log.path)}', fileLen={log.size_bytes}}}" for log in reversed(logs))
    return f"[{', '.join(texts)}]"


def _deletions(call: ProcedureCall, partition: str) -> Iterator[tuple[Instant, str, set[str]]]:
    """Actions that deleted files of a partition, newest first, with their timeline and the names of the files."""
    store = call.table.context.timeline
    for instant in reversed(store.load().completed(*_REMOVING)):
        yield instant, "active", _deleted_files(decode_completed(instant.action, store.read(instant)), partition)
    for instant in reversed(store.history.instants()):
        if instant.action in _REMOVING:
            yield instant, "archived", _deleted_files(archived_metadata(store.history, instant), partition)


def _deleted_files(document: object, partition: str) -> set[str]:
    if isinstance(document, RestoreMetadata):
        rollbacks = [one for group in (document.hoodie_restore_metadata or {}).values() for one in group]
        return set().union(*(_deleted_files(one, partition) for one in rollbacks))
    if isinstance(document, (CleanMetadata, RollbackMetadata)):
        deleted = document.partition_metadata.get(partition)
        return {file_name(path) for path in deleted.success_delete_files} if deleted else set()
    return set()


def _has_footer(storage: Storage, path: str) -> bool:
    """Whether a footer can be read; True for a file that a clean removed since it was listed."""
    try:
        with open_base_rows(storage, path):
            return True
    except CorruptData:
        return False
    except TableState:
        return True
