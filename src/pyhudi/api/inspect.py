"""Contents of a table as Arrow tables: `Table.inspect`.

    timeline        instants in their latest state
    commits         statistics of each completed write
    files           every data file of the table's partitions
    file_slices     file slices that a snapshot query reads
    partitions      partitions with their files and bytes
    sizes           distribution of base file sizes, by partition
    column_stats    column ranges, from the metadata table or Parquet footers
    record_index    locations of record keys, from the record index
    log_blocks      blocks of one log file
    markers         files that unfinished writes have started
    locks           the table lock and its owner

Each result is that of the time of the call, computed by the code that queries use. Paths are relative to the table. The
schemas are documented with the methods; times are instant times, sizes are bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.api.argument_types import checked_class
from pyhudi.errors import InvalidRequest, TableState
from pyhudi.format.actions.commit_metadata import LATEST_SCHEMA_KEY, SCHEMA_KEY, CommitMetadata, Operation
from pyhudi.format.instants import Instant
from pyhudi.format.log.framing import BlockType, CorruptBlock, HeaderKey, LogBlock
from pyhudi.format.meta_columns import with_meta_fields
from pyhudi.format.names import parse_base_file, parse_log_file
from pyhudi.format.paths import META_FOLDER, file_name, join_path
from pyhudi.metadata_table.codecs.metadata_partitions import COLUMN_STATS, RECORD_INDEX
from pyhudi.metadata_table.codecs.value_wrappers import unwrap
from pyhudi.metadata_table.reader.index_lookups import (
    KEYED_LOCATION_SCHEMA,
    find_records,
    hashes_by_partition,
    partition_hashes,
    scan_column_stats,
)
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.records.column_statistics import ColumnRange, footer_ranges
from pyhudi.records.dotted_columns import field_at
from pyhudi.records.filters.arrow_expressions import arrow_scalar
from pyhudi.storage.base import FileInfo
from pyhudi.storage.locks import FILE_LOCK_NAME, LEASE_PATH
from pyhudi.storage.markers import Markers, marked_instants
from pyhudi.table.file_slices import LogFile
from pyhudi.table.snapshot import Snapshot, directory_listing, load_snapshot, read_commit, retry_on_stale_files
from pyhudi.table.table_context import TableContext
from pyhudi.tasks.base_file_reader import open_base_file
from pyhudi.tasks.log_scan import read_headers

_SCHEMAS = (SCHEMA_KEY, LATEST_SCHEMA_KEY)

TIMELINE_SCHEMA = pa.schema(
    [
        pa.field("request_time", pa.string(), nullable=False),
        pa.field("completion_time", pa.string()),
        pa.field("action", pa.string(), nullable=False),
        pa.field("state", pa.string(), nullable=False),
    ]
)
"""Newest request time first. state: REQUESTED, INFLIGHT or COMPLETED."""

COMMITS_SCHEMA = pa.schema(
    [
        pa.field("request_time", pa.string(), nullable=False),
        pa.field("completion_time", pa.string()),
        pa.field("action", pa.string(), nullable=False),
        pa.field("operation", pa.string(), nullable=False),
        pa.field("is_service", pa.bool_(), nullable=False),
        pa.field("partitions", pa.int64(), nullable=False),
        pa.field("files_written", pa.int64(), nullable=False),
        pa.field("file_groups_replaced", pa.int64(), nullable=False),
        pa.field("rows_inserted", pa.int64(), nullable=False),
        pa.field("rows_updated", pa.int64(), nullable=False),
        pa.field("rows_deleted", pa.int64(), nullable=False),
        pa.field("rows_written", pa.int64(), nullable=False),
        pa.field("bytes_written", pa.int64(), nullable=False),
        pa.field("metadata", pa.map_(pa.string(), pa.string()), nullable=False),
    ]
)
"""Newest request time first. operation: UPSERT, COMPACT and so on. is_service: a compaction or clustering, which changes no row.
rows_written: including copied rows; bytes_written: of data files. metadata: entries of the commit besides the schema.
"""

FILES_SCHEMA = pa.schema(
    [
        pa.field("partition", pa.string(), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("file_id", pa.string(), nullable=False),
        pa.field("instant_time", pa.string(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("is_committed", pa.bool_(), nullable=False),
        pa.field("is_current", pa.bool_(), nullable=False),
    ]
)
"""Sorted by path. kind: base, log or cdc. is_current: a snapshot query reads the file."""

FILE_SLICES_SCHEMA = pa.schema(
    [
        pa.field("partition", pa.string(), nullable=False),
        pa.field("file_id", pa.string(), nullable=False),
        pa.field("base_instant", pa.string(), nullable=False),
        pa.field("base_path", pa.string()),
        pa.field("base_size_bytes", pa.int64(), nullable=False),
        pa.field("log_paths", pa.list_(pa.string()), nullable=False),
        pa.field("log_size_bytes", pa.int64(), nullable=False),
    ]
)
"""Sorted by partition and file id; log files in merge order."""

PARTITIONS_SCHEMA = pa.schema(
    [
        pa.field("partition", pa.string(), nullable=False),
        pa.field("file_slices", pa.int64(), nullable=False),
        pa.field("current_files", pa.int64(), nullable=False),
        pa.field("current_bytes", pa.int64(), nullable=False),
        pa.field("all_files", pa.int64(), nullable=False),
        pa.field("all_bytes", pa.int64(), nullable=False),
    ]
)
"""Sorted by partition. all_files, all_bytes: including older versions, and uncommitted files if directories were listed."""

SIZES_SCHEMA = pa.schema(
    [
        pa.field("partition", pa.string(), nullable=False),
        pa.field("base_files", pa.int64(), nullable=False),
        pa.field("min_bytes", pa.int64(), nullable=False),
        pa.field("median_bytes", pa.int64(), nullable=False),
        pa.field("p90_bytes", pa.int64(), nullable=False),
        pa.field("max_bytes", pa.int64(), nullable=False),
        pa.field("total_bytes", pa.int64(), nullable=False),
    ]
)
"""Sizes of the base files that queries read, by partition; partitions without base files are omitted."""

COLUMN_STATS_SCHEMA = pa.schema(
    [
        pa.field("partition", pa.string(), nullable=False),
        pa.field("file_name", pa.string(), nullable=False),
        pa.field("column", pa.string(), nullable=False),
        pa.field("min", pa.string()),
        pa.field("max", pa.string()),
        pa.field("value_count", pa.int64()),
        pa.field("null_count", pa.int64()),
        pa.field("total_size_bytes", pa.int64()),
        pa.field("source", pa.string(), nullable=False),
    ]
)
"""Sorted by partition, file and column. min, max: as text; null if no non-null value is known. source: metadata or footer."""

LOG_BLOCKS_SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("instant_time", pa.string()),
        pa.field("content_size_bytes", pa.int64()),
        pa.field("target_instant_time", pa.string()),
        pa.field("is_partial", pa.bool_()),
        pa.field("has_positions", pa.bool_()),
        pa.field("compacted_block_times", pa.string()),
        pa.field("damage", pa.string()),
    ]
)
"""In file order. kind: AVRO, PARQUET, HFILE, DELETE, COMMAND, CDC, or CORRUPT for a torn block, explained in `damage`."""

MARKERS_SCHEMA = pa.schema(
    [
        pa.field("instant_time", pa.string(), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
    ]
)
"""Sorted by instant and path. kind: CREATE, MERGE or APPEND."""

LOCKS_SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("owner", pa.string()),
        pa.field("valid_until_ms", pa.int64()),
        pa.field("is_held", pa.bool_(), nullable=False),
    ]
)
"""One row per lock object. valid_until_ms: epoch milliseconds, null for a lock without expiry."""


_P = ParamSpec("_P")
_R = TypeVar("_R")


def _of_present_state(method: Callable[Concatenate[Inspection, _P], _R]) -> Callable[Concatenate[Inspection, _P], _R]:
    """Apply `retry_on_stale_files` to a method of `Inspection`."""

    @wraps(method)
    def wrapped(self: Inspection, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        return retry_on_stale_files(lambda context: method(Inspection(context), *args, **kwargs))(self._context)

    return wrapped


@checked_class
class Inspection:
    """Contents of one table. Every method loads what it needs when it is called."""

    def __init__(self, context: TableContext) -> None:
        self._context = context

    def timeline(self) -> pa.Table:
        """Return the active timeline, newest first (TIMELINE_SCHEMA)."""
        rows = [
            {
                "request_time": instant.request_time,
                "completion_time": instant.completion_time,
                "action": str(instant.action),
                "state": instant.state.name,
            }
            for instant in reversed(self._context.timeline.load().instants)
        ]
        return pa.Table.from_pylist(rows, schema=TIMELINE_SCHEMA)

    @_of_present_state
    def commits(self, limit: int | None = None) -> pa.Table:
        """Return the completed writes of the active timeline, newest first (COMMITS_SCHEMA). One timeline file is read per write.

        Args:
            limit: Return only the latest writes, at most this many; None for all.

        Raises:
            CorruptData: A timeline file is damaged; the error names it.
        """
        store = self._context.timeline
        writes = store.load().completed_writes()
        latest = writes if limit is None else writes[max(0, len(writes) - limit) :]
        return pa.Table.from_pylist(
            [_commit_row(write, read_commit(store, write)) for write in reversed(latest)], schema=COMMITS_SCHEMA
        )

    @_of_present_state
    def files(self, *, on_storage: bool = False) -> pa.Table:
        """Return the data files (FILES_SCHEMA) listed in the metadata table, or in the directories if there is none.

        Args:
            on_storage: Always list directories, which also finds files of active or dead writes.
        """
        snapshot = self._listed(on_storage=on_storage)
        current = {path for path, _ in _current_files(snapshot)}
        rows = []
        for partition, infos in snapshot.listing.files(snapshot.listing.partitions()).items():
            for info in infos:
                named = _named(info)
                if named is None:
                    continue
                file_kind, file_id, instant_time = named
                rows.append(
                    {
                        "partition": partition,
                        "path": info.path,
                        "kind": file_kind,
                        "file_id": file_id,
                        "instant_time": instant_time,
                        "size_bytes": info.size_bytes,
                        "is_committed": snapshot.timeline.is_completed(instant_time),
                        "is_current": info.path in current,
                    }
                )
        return pa.Table.from_pylist(sorted(rows, key=lambda row: str(row["path"])), schema=FILES_SCHEMA)

    @_of_present_state
    def file_slices(self, as_of: str | None = None) -> pa.Table:
        """Return the file slices that a snapshot query reads (FILE_SLICES_SCHEMA).

        Args:
            as_of: Request time for time travel; None for the latest state.
        """
        rows = [
            {
                "partition": partition,
                "file_id": slice_.file_id,
                "base_instant": slice_.base_instant,
                "base_path": slice_.base.path if slice_.base else None,
                "base_size_bytes": slice_.base.size_bytes if slice_.base else 0,
                "log_paths": [log.path for log in slice_.logs],
                "log_size_bytes": sum(log.size_bytes for log in slice_.logs),
            }
            for partition, slices in sorted(load_snapshot(self._context).slices(as_of=as_of).items())
            for slice_ in slices
        ]
        return pa.Table.from_pylist(rows, schema=FILE_SLICES_SCHEMA)

    @_of_present_state
    def partitions(self, *, on_storage: bool = False) -> pa.Table:
        """Return the partitions with their files and bytes (PARTITIONS_SCHEMA).

        Args:
            on_storage: As in `files`.
        """
        snapshot = self._listed(on_storage=on_storage)
        slices = snapshot.slices()
        files = snapshot.listing.files(slices)
        rows = []
        for partition in sorted(slices):
            data = [info for info in files[partition] if _named(info) is not None]
            rows.append(
                {
                    "partition": partition,
                    "file_slices": len(slices[partition]),
                    "current_files": sum((s.base is not None) + len(s.logs) for s in slices[partition]),
                    "current_bytes": sum(s.size_bytes for s in slices[partition]),
                    "all_files": len(data),
                    "all_bytes": sum(info.size_bytes for info in data),
                }
            )
        return pa.Table.from_pylist(rows, schema=PARTITIONS_SCHEMA)

    @_of_present_state
    def sizes(self) -> pa.Table:
        """Return the distribution of base file sizes (SIZES_SCHEMA)."""
        rows = []
        for partition, slices in sorted(load_snapshot(self._context).slices().items()):
            sizes = np.array([slice_.base.size_bytes for slice_ in slices if slice_.base is not None], dtype=np.int64)
            if not len(sizes):
                continue
            rows.append(
                {
                    "partition": partition,
                    "base_files": len(sizes),
                    "min_bytes": int(sizes.min()),
                    "median_bytes": int(np.percentile(sizes, 50, method="higher")),
                    "p90_bytes": int(np.percentile(sizes, 90, method="higher")),
                    "max_bytes": int(sizes.max()),
                    "total_bytes": int(sizes.sum()),
                }
            )
        return pa.Table.from_pylist(rows, schema=SIZES_SCHEMA)

    @_of_present_state
    def column_stats(self) -> pa.Table:
        """Return column statistics (COLUMN_STATS_SCHEMA).

        They cover all files in the index of the metadata table; without an index, the current base files by their footers.
        """
        snapshot = load_snapshot(self._context)
        if snapshot.schema is None:
            return COLUMN_STATS_SCHEMA.empty_table()
        schema = with_meta_fields(snapshot.schema.arrow)
        if COLUMN_STATS in self._context.config.metadata_partitions:
            stats = self._indexed_stats(snapshot, schema)
        else:
            stats = self._footer_stats(snapshot, schema)
        return stats.sort_by([("partition", "ascending"), ("file_name", "ascending"), ("column", "ascending")])

    @_of_present_state
    def record_index(self, keys: Sequence[str] | pa.StringArray) -> pa.Table:
        """Look up record keys in the record index. Keys that do not exist return no row.

        Args:
            keys: Record keys as strings.

        Returns:
            KEYED_LOCATION_SCHEMA: key, partition, file_id, instant_ms.

        Raises:
            TableState: The table has no record index.
            InvalidRequest: A key is null.
        """
        if RECORD_INDEX not in self._context.config.metadata_partitions:
            raise TableState(f"the table at {self._context.storage.uri} has no record index")
        metadata = MetadataTable(self._context, self._context.timeline.load())
        key_array = keys if isinstance(keys, pa.Array) else pa.array(list(keys), pa.string())
        if key_array.null_count:
            raise InvalidRequest("a record key is null")
        return find_records(metadata, key_array).cast(KEYED_LOCATION_SCHEMA).sort_by("key")

    def log_blocks(self, path: str) -> pa.Table:
        """Return the blocks of a log file (LOG_BLOCKS_SCHEMA), without reading their contents.

        Args:
            path: Path relative to the table, also of log files of the metadata table (`.hoodie/metadata/...`).

        Raises:
            InvalidRequest: The path is not that of a log file.
            TableState: The file does not exist.
            CorruptData: The file is damaged.
        """
        name = parse_log_file(file_name(path))
        if name is None:
            raise InvalidRequest(f"{path!r} is not the path of a log file")
        info = self._context.storage.stat(path)
        if info is None:
            raise TableState(f"log file {self._context.storage.absolute(path)} does not exist")
        blocks = read_headers(self._context.storage, LogFile(path, name, info.size_bytes))
        return pa.Table.from_pylist([_block_row(block) for block in blocks], schema=LOG_BLOCKS_SCHEMA)

    def markers(self) -> pa.Table:
        """The markers (MARKERS_SCHEMA): files started by active writes, and by dead writes that are not rolled back yet."""
        storage = self._context.storage
        rows = [
            {"instant_time": instant, "path": path, "kind": str(marker_type)}
            for instant in marked_instants(storage)
            for path, marker_type in Markers(storage, instant).list()
        ]
        return pa.Table.from_pylist(rows, schema=MARKERS_SCHEMA)

    def locks(self) -> pa.Table:
        """Return the lock objects stored with the table (LOCKS_SCHEMA). Locks of external lock providers are not included."""
        storage, now_ms = self._context.storage, self._context.env.now_ms()
        rows: list[dict[str, Any]] = []
        lease = storage.read(LEASE_PATH)
        if lease is not None:
            rows.append(_lease_row(lease, now_ms))
        file_lock = join_path(META_FOLDER, FILE_LOCK_NAME)
        if storage.stat(file_lock) is not None:
            rows.append({"path": file_lock, "owner": _text(storage.read(file_lock)), "valid_until_ms": None, "is_held": True})
        return pa.Table.from_pylist(rows, schema=LOCKS_SCHEMA)

    def _listed(self, *, on_storage: bool) -> Snapshot:
        """Latest snapshot by the default listing, or by a directory listing that includes uncommitted files."""
        return load_snapshot(self._context, directory_listing) if on_storage else load_snapshot(self._context)

    def _indexed_stats(self, snapshot: Snapshot, schema: pa.Schema) -> pa.Table:
        metadata = MetadataTable(self._context, snapshot.timeline)
        paths = {hashed: path for path, hashed in hashes_by_partition(snapshot.listing.partitions()).items()}
        parts = [COLUMN_STATS_SCHEMA.empty_table()]
        for batch in scan_column_stats(metadata):
            rows = pa.Table.from_batches([batch])
            rows = rows.append_column("hash", partition_hashes(rows))
            for name in rows["column_name"].unique().to_pylist():
                part = rows.filter(pc.equal(rows["column_name"], name)).combine_chunks()
                partitions = [paths.get(hashed, "?") for hashed in part["hash"].to_pylist()]
                parts.append(_stats_rows(part, partitions, _type_of(schema, name)))
        return pa.concat_tables(parts)

    def _footer_stats(self, snapshot: Snapshot, schema: pa.Schema) -> pa.Table:
        rows: list[dict[str, Any]] = []
        for partition, slices in snapshot.slices().items():
            for slice_ in slices:
                if slice_.base is None:
                    continue
                moved = frozenset() if snapshot.ids is None else snapshot.ids.moved(slice_.base.name.instant_time)
                with open_base_file(self._context.storage, slice_.base.path) as file:
                    ranges = footer_ranges(file.metadata, schema, [name for name in schema.names if name not in moved])
                rows += [_range_row(partition, slice_.base.name.text, name, range_, schema) for name, range_ in ranges.items()]
        return pa.Table.from_pylist(rows, schema=COLUMN_STATS_SCHEMA)


def _commit_row(instant: Instant, metadata: CommitMetadata) -> dict[str, Any]:
    stats = metadata.write_stats
    is_service = metadata.operation.is_service or metadata.compacted
    replaced = metadata.partition_to_replace_file_ids or {}
    return {
        "request_time": instant.request_time,
        "completion_time": instant.completion_time,
        "action": str(instant.action),
        "operation": metadata.operation_type or Operation.UNKNOWN,
        "is_service": is_service,
        "partitions": len({*metadata.partition_to_write_stats, *replaced}),
        "files_written": len(stats),
        "file_groups_replaced": sum(len(ids) for ids in replaced.values()),
        # A service counts rewritten rows as inserts or updates, although the table's rows are the same.
        "rows_inserted": 0 if is_service else sum(stat.num_inserts for stat in stats),
        "rows_updated": 0 if is_service else sum(stat.num_update_writes for stat in stats),
        "rows_deleted": 0 if is_service else sum(stat.num_deletes for stat in stats),
        "rows_written": sum(stat.num_writes for stat in stats),
        "bytes_written": sum(stat.total_write_bytes for stat in stats),
        "metadata": [(key, value) for key, value in metadata.extra_metadata.items() if key not in _SCHEMAS],
    }


def _current_files(snapshot: Snapshot) -> Iterable[tuple[str, int]]:
    for slices in snapshot.slices().values():
        for slice_ in slices:
            if slice_.base is not None:
                yield slice_.base.path, slice_.base.size_bytes
            for log in slice_.logs:
                yield log.path, log.size_bytes


def _named(info: FileInfo) -> tuple[str, str, str] | None:
    """Type, file id and instant of a data file, from its name; None for other files."""
    log = parse_log_file(info.name)
    if log is not None:
        return "cdc" if log.is_cdc else "log", log.file_id, log.instant_time
    base = parse_base_file(info.name)
    return None if base is None else ("base", base.file_id, base.instant_time)


def _block_row(block: LogBlock | CorruptBlock) -> dict[str, Any]:
    if isinstance(block, CorruptBlock):
        return {"offset": block.offset, "size_bytes": block.size_bytes, "kind": BlockType.CORRUPT.name, "damage": block.reason}
    return {
        "offset": block.offset,
        "size_bytes": block.size_bytes,
        "kind": block.kind.name,
        "instant_time": block.header(HeaderKey.INSTANT_TIME),
        "content_size_bytes": block.content_size_bytes,
        "target_instant_time": block.header(HeaderKey.TARGET_INSTANT_TIME),
        "is_partial": block.is_partial,
        "has_positions": block.header(HeaderKey.RECORD_POSITIONS) is not None,
        "compacted_block_times": ",".join(block.compacted_block_times) or None,
    }


def _lease_row(data: bytes, now_ms: int) -> dict[str, Any]:
    try:
        lease = json.loads(data)
    except ValueError:
        lease = None
    if not isinstance(lease, Mapping):
        return {"path": LEASE_PATH, "owner": None, "valid_until_ms": None, "is_held": False}
    until = lease.get("validUntil")
    valid_until = until if isinstance(until, int) else None
    held = not lease.get("expired", False) and valid_until is not None and valid_until > now_ms
    return {"path": LEASE_PATH, "owner": str(lease.get("owner")), "valid_until_ms": valid_until, "is_held": held}


def _text(data: bytes | None) -> str | None:
    return data.decode("utf-8", "replace") or None if data is not None else None


def _type_of(schema: pa.Schema, name: str) -> pa.DataType | None:
    try:
        return field_at(schema, name).type
    except InvalidRequest:
        return None


def _stats_rows(part: pa.Table, partitions: Sequence[str], type_: pa.DataType | None) -> pa.Table:
    """Statistics of one column. kind: type of the column; None if the column was dropped, then bounds are null."""
    count = part.num_rows
    bounds = []
    for name in ("min", "max"):
        values = pa.nulls(count, pa.string()) if type_ is None else unwrap(part.column(name).chunk(0), type_)[0]
        bounds.append(_texts(values))
    return pa.table(
        [
            pa.array(partitions, pa.string()),
            part["file_name"],
            part["column_name"],
            *bounds,
            part["value_count"],
            part["null_count"],
            part["total_size_bytes"],
            pa.repeat("metadata", count),
        ],
        schema=COLUMN_STATS_SCHEMA,
    )


def _range_row(partition: str, file_name: str, name: str, range_: ColumnRange, schema: pa.Schema) -> dict[str, Any]:
    type_ = field_at(schema, name).type

    def text(value: Any) -> str | None:
        return None if value is None else _texts(pa.array([arrow_scalar(value, type_)], type_))[0].as_py()

    return {
        "partition": partition,
        "file_name": file_name,
        "column": name,
        "min": text(range_.min),
        "max": text(range_.max),
        "value_count": range_.value_count,
        "null_count": range_.null_count,
        "total_size_bytes": range_.total_size_bytes,
        "source": "footer",
    }


def _texts(values: pa.Array) -> pa.StringArray:
    """Values as text; bytes as hexadecimal."""
    if pa.types.is_binary(values.type) or pa.types.is_fixed_size_binary(values.type):
        return pa.array([None if value is None else value.hex() for value in values.to_pylist()], pa.string())
    return values.cast(pa.string())
