"""Procedures on files: file sizes, contents of the metadata table, and contents of log files."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pyhudi.errors import TableState, Unsupported
from pyhudi.features.procedures.procedure import ProcedureCall, Rows, procedure
from pyhudi.format.log.data_blocks import decode_content
from pyhudi.format.log.delete_blocks import decode_deletes
from pyhudi.format.log.framing import BlockType, CorruptBlock, HeaderKey, LogBlock
from pyhudi.format.names import parse_base_file, parse_log_file
from pyhudi.format.paths import parent_folder
from pyhudi.metadata_table.reader.index_lookups import find_partitions, scan_files
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.storage.base import FileInfo, Storage
from pyhudi.table.file_slices import LogFile
from pyhudi.table.listing import DirectoryListing, table_folders
from pyhudi.tasks.log_scan import read_headers

_LIMIT = "limit int = 10"
_LOG_FILES = "log_file_path_pattern string required"
_DATA = (BlockType.AVRO, BlockType.PARQUET, BlockType.CDC)
_BLOCK_TYPES = {
    BlockType.COMMAND: "COMMAND_BLOCK",
    BlockType.DELETE: "DELETE_BLOCK",
    BlockType.CORRUPT: "CORRUPT_BLOCK",
    BlockType.AVRO: "AVRO_DATA_BLOCK",
    BlockType.HFILE: "HFILE_DATA_BLOCK",
    BlockType.PARQUET: "PARQUET_DATA_BLOCK",
    BlockType.CDC: "CDC_DATA_BLOCK",
}


@procedure(
    f"partition_path string =, {_LIMIT}",
    "commit_time string, min bigint, 10th double, 50th double, avg double, 95th double, max bigint, num_files int, "
    "std_dev double",
)
def stats_file_sizes(call: ProcedureCall) -> Rows:
    """File size statistics per instant, oldest first, and in total: interpolated quantiles, sample standard deviation.

    partition_path: a glob of partitions; all by default.
    """
    context = call.table.context
    listing = DirectoryListing(context.storage)
    pattern = call.text("partition_path").strip("/")
    chosen = path_glob(pattern) if pattern else None
    partitions = [partition for partition in listing.partitions() if chosen is None or chosen.fullmatch(partition)]
    sizes: dict[str, list[int]] = defaultdict(list)
    for files in listing.files(partitions).values():
        for info in files:
            named = parse_base_file(info.name) or parse_log_file(info.name)
            if named is not None:
                sizes[named.instant_time].append(info.size_bytes)
    for instant_time in sorted(sizes):
        yield _distribution(instant_time, sizes[instant_time])
    yield _distribution("ALL", [size for group in sizes.values() for size in group])


@procedure(
    "path, is_sub boolean = false, sort boolean = true, limit int = 100",
    "path_num bigint, file_num bigint, storage_size bigint, storage_size(unit) string, storage_path string, "
    "space_consumed bigint, quota bigint, space_quota bigint",
)
def show_fs_path_detail(call: ProcedureCall) -> Rows:
    """Folders, files and bytes of the table's folder, or of each entry in it with `is_sub`, largest first.

    sort: by bytes, otherwise by the number of files. As in Hudi, `space_consumed` is the quota of the folder and `quota`
    the space it consumes; without quotas, -1.
    """
    storage = call.table.context.storage
    top = storage.list("")
    entries: list[tuple[str, list[FileInfo]]] = [("", [*storage.walk("")])]
    if call.flag("is_sub"):
        entries = [(folder, [*storage.walk(folder)]) for folder in top.folders]
        entries += [(file.path, [file]) for file in top.files]
    rows = []
    for path, files in entries:
        is_file = [file.path for file in files] == [path]
        folders = {*(parent_folder(file.path) for file in files)}
        folders |= {parent_folder(path) for folder in list(folders) for path in _above(folder)}
        inside = sum(1 for folder in folders if folder == path or folder.startswith(f"{path}/" if path else ""))
        size = sum(file.size_bytes for file in files)
        rows.append((0 if is_file else max(inside, 1), len(files), size, _size_text(size), storage.absolute(path), -1, size, -1))
    return sorted(rows, key=lambda row: row[2] if call.flag("sort") else row[1], reverse=True)


def _above(folder: str) -> Iterator[str]:
    while folder:
        yield folder
        folder = parent_folder(folder)


def _size_text(size: int) -> str:
    for unit, bytes_ in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if size >= bytes_:
            return f"{size / bytes_:.2f}{unit}"
    return f"{size}B"


@procedure("partition string =, limit int = 100", "file_path string")
def show_metadata_table_files(call: ProcedureCall) -> Rows:
    """Files of one partition in the metadata table, by name; without a partition, those of the table's root."""
    files = _listed(call).get(call.text("partition"), {})
    return ((name,) for name in sorted(files))


@procedure("", "partition string")
def show_metadata_table_partitions(call: ProcedureCall) -> Rows:
    """Partitions in the metadata table."""
    return ((partition,) for partition in find_partitions(open_metadata_table(call)))


@procedure(
    "verbose boolean = false",
    "partition string, file_name string, is_present_in_fs boolean, is_present_in_metadata boolean, fs_size bigint, "
    "metadata_size bigint",
)
def validate_metadata_table_files(call: ProcedureCall) -> Rows:
    """Differences between the metadata table and the directories in files or sizes; all files with `verbose`."""
    context = call.table.context
    listed = _listed(call)
    directories = DirectoryListing(context.storage)
    there = {p: _sizes(files) for p, files in directories.files(directories.partitions()).items()}
    for partition in sorted({*listed, *there}):
        ours, theirs = listed.get(partition, {}), there.get(partition, {})
        for name in sorted({*ours, *theirs}):
            if call.flag("verbose") or ours.get(name) != theirs.get(name):
                yield partition, name, name in theirs, name in ours, theirs.get(name, 0), ours.get(name, 0)


@procedure(f"{_LOG_FILES}, merge boolean = false, {_LIMIT}", "records string")
def show_logfile_records(call: ProcedureCall) -> Rows:
    """Records of log files as JSON, in file order, without deletes."""
    if call.flag("merge"):
        raise Unsupported("merge=true of show_logfile_records is not built; Table.scan reads the merged rows")
    storage = call.table.context.storage
    for log in _log_files(call):
        for block in read_headers(storage, log):
            if isinstance(block, CorruptBlock) or block.kind not in _DATA:
                continue
            for batch in decode_content(block.kind, block.required(HeaderKey.SCHEMA), _content(storage, log, block)):
                for record in batch.to_pylist():
                    yield (json.dumps(record, ensure_ascii=False, default=_plain),)


@procedure(
    f"{_LOG_FILES}, {_LIMIT}",
    "instant_time string, record_count int, block_type string, header_metadata string, footer_metadata string",
)
def show_logfile_metadata(call: ProcedureCall) -> Rows:
    """Blocks of log files with their headers."""
    storage = call.table.context.storage
    for log in _log_files(call):
        for block in read_headers(storage, log):
            if isinstance(block, CorruptBlock):
                yield None, 0, _BLOCK_TYPES[BlockType.CORRUPT], "{}", "{}"
                continue
            headers = {key.name: text for key in HeaderKey if (text := block.header(key)) is not None}
            header_text = json.dumps(headers, separators=(",", ":"))
            count = _count(storage, log, block)
            yield block.header(HeaderKey.INSTANT_TIME), count, _BLOCK_TYPES[block.kind], header_text, "{}"


def open_metadata_table(call: ProcedureCall) -> MetadataTable:
    """Open the metadata table. Raises TableState if the table has none."""
    context = call.table.context.reloaded()
    if not context.config.has_metadata_table:
        raise TableState(f"the table at {context.storage.uri} has no metadata table; the next write that wants one builds it")
    return MetadataTable(context, context.timeline.load())


def _listed(call: ProcedureCall) -> dict[str, dict[str, int]]:
    """Partition -> name -> size of every file in the metadata table, without falling back to directory listings."""
    rows = scan_files(open_metadata_table(call))
    sizes: dict[str, dict[str, int]] = defaultdict(dict)
    columns = (rows.column(name).to_pylist() for name in ("partition", "name", "size_bytes"))
    for partition, name, size_bytes in zip(*columns, strict=True):
        sizes[partition][name] = size_bytes
    return sizes


def _sizes(files: Sequence[FileInfo]) -> dict[str, int]:
    named = (info for info in files if parse_base_file(info.name) or parse_log_file(info.name))
    return {info.name: info.size_bytes for info in named}


def _distribution(label: str, sizes: Sequence[int]) -> tuple[str | float, ...]:
    values = np.sort(np.array(sizes, np.float64))
    count = len(values)
    if not count:
        return label, 0, 0.0, 0.0, 0.0, 0.0, 0, 0, 0.0
    low, median, high = (_quantile(values, share) for share in (0.1, 0.5, 0.95))
    deviation = float(values.std(ddof=1)) if count > 1 else 0.0
    return label, int(values[0]), low, median, float(values.mean()), high, int(values[-1]), count, deviation


def _quantile(values: np.ndarray[Any, np.dtype[np.float64]], share: float) -> float:
    """Interpolate between the values around position share * (count + 1), counted from 1, as Hudi's statistics library."""
    count = len(values)
    position = share * (count + 1)
    below = math.floor(position)
    if below < 1:
        return float(values[0])
    if below >= count:
        return float(values[-1])
    low, high = float(values[below - 1]), float(values[below])
    return low + (position - below) * (high - low)


def _log_files(call: ProcedureCall) -> list[LogFile]:
    """Log files whose path matches the pattern: relative to the table, or prefixed with the table's path or URI."""
    storage = call.table.context.storage
    pattern = call.text("log_file_path_pattern")
    for root in (storage.uri, storage.absolute("")):
        for prefix in (root, re.sub(r"^\w+:/*(?=/)", "", root)):
            if pattern.startswith(prefix.rstrip("/") + "/"):
                pattern = pattern[len(prefix.rstrip("/")) + 1 :]
    chosen = path_glob(pattern)
    logs = []
    for info in (info for _, listing in table_folders(storage) for info in listing.files):
        name = parse_log_file(info.name)
        if name is not None and chosen.fullmatch(info.path):
            logs.append(LogFile(info.path, name, info.size_bytes))
    if not logs:
        raise TableState(f"no log file of {storage.uri} fits {call.text('log_file_path_pattern')!r}")
    return sorted(logs, key=lambda log: log.path)


def _count(storage: Storage, log: LogFile, block: LogBlock) -> int:
    if block.kind is BlockType.DELETE:
        return sum(deletes.num_rows for deletes in decode_deletes(_content(storage, log, block)))
    if block.kind not in _DATA:
        return 0
    batches = decode_content(block.kind, block.required(HeaderKey.SCHEMA), _content(storage, log, block))
    return sum(batch.num_rows for batch in batches)


def _content(storage: Storage, log: LogFile, block: LogBlock) -> bytes | memoryview:
    return block.read_content(lambda offset, size: storage.read_range(log.path, offset, size))


def _plain(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def path_glob(pattern: str) -> re.Pattern[str]:
    """Hadoop's glob syntax: `*` and `?` within a name, `[...]`, `{a,b}`. Slashes at both ends have no meaning."""
    return re.compile("".join(_glob_parts(pattern.strip("/"))))


def _glob_parts(pattern: str) -> Iterator[str]:
    depth = at = 0
    while at < len(pattern):
        letter = pattern[at]
        at += 1
        if letter == "*":
            yield "[^/]*"
        elif letter == "?":
            yield "[^/]"
        elif letter == "[" and "]" in pattern[at:]:
            end = pattern.index("]", at)
            inside = pattern[at:end].replace("\\", r"\\")
            yield f"[{'^' + inside[1:] if inside[:1] in '!^' else inside}]"
            at = end + 1
        elif letter == "{":
            depth += 1
            yield "(?:"
        elif letter == "}" and depth:
            depth -= 1
            yield ")"
        elif letter == "," and depth:
            yield "|"
        else:
            yield re.escape(letter)
    yield ")" * depth
