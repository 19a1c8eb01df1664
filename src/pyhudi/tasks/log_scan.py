"""Scan the log files of one slice: which blocks are valid, and the merged records of each key.

    1. block headers of all files, in merge order; a block is valid when its instant is complete and not newer than the
       query's
    2. a rollback block removes the earlier blocks of its target; a torn block is an error if a completed instant wrote
       it (`format.log.log_corruption`); of a retried task one attempt is used; blocks that a log compaction merged are
       replaced by its own
    3. the remaining blocks are decoded to the requested columns and passed to `LogMerger` in that order; when every one
       of them stores positions in the slice's own base file, records are merged by position instead of by key

Contents are read one block at a time.

Source: docs/formats/reading.md, "One slice"; docs/formats/log-file.md, "Which blocks count" and "Positions".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptData, Internal, Unsupported
from pyhudi.format.avro_to_arrow import avro_to_arrow
from pyhudi.format.avro_wrappers import unwrap_ordering, unwrap_tuples
from pyhudi.format.hfile.hfile_reader import open_hfile_bytes
from pyhudi.format.log.command_blocks import decode_command, deduplicate_attempts, without_compacted
from pyhudi.format.log.data_blocks import decode_content
from pyhudi.format.log.delete_blocks import decode_deletes
from pyhudi.format.log.framing import BlockType, CorruptBlock, HeaderKey, LogBlock, scan_blocks
from pyhudi.format.log.log_corruption import check_log_complete
from pyhudi.format.log.record_positions import Positions, decode_positions
from pyhudi.format.meta_columns import RECORD_KEY
from pyhudi.records.dotted_columns import field_at
from pyhudi.records.keys.key_spec import KeySpec
from pyhudi.records.keys.record_keys import record_keys
from pyhudi.records.log_merge.log_records import LogRecords
from pyhudi.records.log_merge.merge_log_blocks import LogMerger
from pyhudi.records.record_merge import RecordMergeRule
from pyhudi.records.schema_on_read.column_ids import ColumnIds, names_in_file
from pyhudi.records.stored_rows import in_table_columns
from pyhudi.storage.base import Storage
from pyhudi.storage.uris import has_atomic_uploads
from pyhudi.table.file_slices import LogFile
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.tasks.base_file_reader import open_ranges
from pyhudi.tasks.incoming_layout import as_batch

Entries = TypeVar("Entries", pa.Table, pa.RecordBatch)

_DATA = (BlockType.AVRO, BlockType.PARQUET, BlockType.HFILE)


@dataclass(frozen=True, slots=True)
class InstantValidity:
    """Which instants' blocks are valid.

    Attributes:
        completed: Request times of completed writes of the active timeline.
        pending: Request times of pending writes.
        start: The first write of the active timeline, before which everything counts as complete.
        limit: The newest request time that the query sees.
        shared_logs: Log files hold blocks of several commits, as before table version 8.
    """

    completed: frozenset[str]
    pending: frozenset[str]
    start: str | None
    limit: str
    shared_logs: bool = False

    @classmethod
    def of(cls, timeline: Timeline, as_of: str | None = None, *, shared_logs: bool = False) -> InstantValidity:
        """As a snapshot query at `as_of` (a request time, None for now) sees the timeline."""
        completed = timeline.completed_writes()
        pending = frozenset(i.request_time for i in timeline.pending())
        newest = completed[-1].request_time if completed else ""
        return cls(
            frozenset(i.request_time for i in completed),
            pending - frozenset(i.request_time for i in completed),
            timeline.start,
            newest if as_of is None else as_of,
            shared_logs,
        )

    def including(self, instant_time: str) -> InstantValidity:
        """The same with one more instant, valid regardless of its state."""
        return replace(
            self,
            completed=self.completed | {instant_time},
            pending=self.pending - {instant_time},
            limit=max(self.limit, instant_time),
        )

    def counts(self, instant_time: str) -> bool:
        """Whether a block of that instant is part of the table."""
        if instant_time > self.limit or instant_time in self.pending:
            return False
        return instant_time in self.completed or (self.start is not None and instant_time < self.start)

    def covers_whole_file(self, log: LogFile) -> bool:
        """Whether a completed instant wrote the whole file."""
        return not self.shared_logs and self.counts(log.name.instant_time)


@dataclass(frozen=True, slots=True)
class ValidBlock:
    """A block that belongs to the state that the query reads.  path: the log file that holds it."""

    path: str
    block: LogBlock


@dataclass(frozen=True, slots=True)
class LogScan:
    """Result of a scan, with counts for compaction statistics."""

    records: LogRecords
    block_count: int
    corrupt_count: int
    rollback_count: int
    record_count: int


@dataclass(frozen=True, slots=True)
class LogScanRequest:
    """Parameters of a log scan.

    Attributes:
        schema: The requested columns, including `_hoodie_record_key`, the ordering field and `_hoodie_is_deleted` (if
            the table has it); key fields too when meta fields are not populated.
        rule: How records are merged.
        validity: Which blocks are valid.
        ids: Column ids; None if blocks are read by column names.
        only: The requested record keys, None for all.
    """

    schema: pa.Schema
    keys: KeySpec
    rule: RecordMergeRule
    validity: InstantValidity
    populate_meta_fields: bool
    ids: ColumnIds | None
    only: pa.StringArray | None = None

    def chosen(self, entries: Entries, name: str) -> Entries:
        """Return the entries whose key, in the column `name`, is requested."""
        if self.only is None:
            return entries
        return entries.filter(pc.is_in(entries.column(name).cast(pa.string()), value_set=self.only))


def scan_logs(storage: Storage, logs: Sequence[LogFile], request: LogScanRequest, *, base_instant: str | None = None) -> LogScan:
    """Return the merged records of a slice's logs.

    base_instant: that of the slice's base file, to merge by record positions if all blocks store positions in that
    file; None to merge by key, which is required to filter by key. Raises CorruptData naming file and offset,
    Unsupported for blocks that are not read.
    """
    blocks, corrupt, rollbacks = find_blocks(storage, logs, request.validity, only_marked=request.rule.custom_merge)
    positions = None if base_instant is None else _positions(storage, blocks, base_instant)
    for places in [positions, None] if positions is not None else [None]:
        merger = LogMerger(request.schema, request.rule)
        count = 0
        for number, valid_block in enumerate(blocks):
            block_places = None if places is None else places[number]
            try:
                read = _add_block(storage, valid_block, merger, request, block_places)
            except CorruptData as error:
                if error.offset is not None and error.path is None:
                    error.offset += valid_block.block.content_offset
                raise error.with_path(storage.absolute(valid_block.path)) from error
            except Unsupported as error:
                raise Unsupported(f"{error} [{storage.absolute(valid_block.path)}, byte {valid_block.block.offset}]") from error
            if read is None:
                break
            count += read
        else:
            return LogScan(merger.finish(), len(blocks), corrupt, rollbacks, count)
    raise Internal("a log scan by key did not terminate")


def _positions(storage: Storage, blocks: Sequence[ValidBlock], base_instant: str) -> list[Positions] | None:
    """The base row of each record of each block; None unless every block names rows of this base file."""
    texts = []
    for valid_block in blocks:
        text = valid_block.block.header(HeaderKey.RECORD_POSITIONS)
        of = valid_block.block.header(HeaderKey.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS)
        if not text or of != base_instant:
            return None
        texts.append(text)
    places = []
    for valid_block, text in zip(blocks, texts, strict=True):
        try:
            places.append(decode_positions(text, content_bytes=valid_block.block.content_size_bytes))
        except CorruptData as error:
            raise CorruptData(f"the record positions of a block: {error}", offset=valid_block.block.offset).with_path(
                storage.absolute(valid_block.path)
            ) from error
    return places if all(map(len, places)) else None


def find_blocks(
    storage: Storage,
    logs: Iterable[LogFile],
    validity: InstantValidity,
    *,
    skip_compacted: bool = True,
    only_marked: bool = False,
) -> tuple[list[ValidBlock], int, int]:
    """Return the valid blocks in merge order, the number of skipped torn blocks and the number of rollback blocks.

    Raises CorruptData naming a damaged file that a completed instant wrote (see `format.log.log_corruption`).
    skip_compacted: exclude blocks that a log compaction merged into another one (see `choose_blocks`). only_marked: as
    in `without_compacted`.
    """
    ordered = sorted(logs, key=lambda file: file.name.sort_key)
    files = [(log, read_log(storage, log, validity)) for log in ordered]
    if not validity.shared_logs:
        # Several writes concurrent with one resize name their logs by its time: they are ordered by their own.
        files.sort(key=lambda file: (file[0].name.instant_time, _first_instant(file[1])))
    named = [(log.path, blocks) for log, blocks in files]
    return choose_blocks(named, validity, skip_compacted=skip_compacted, only_marked=only_marked)


def _first_instant(blocks: Iterable[LogBlock | CorruptBlock]) -> str:
    return next((block.instant_time for block in blocks if isinstance(block, LogBlock)), "")


def read_log(storage: Storage, log: LogFile, validity: InstantValidity) -> tuple[LogBlock | CorruptBlock, ...]:
    """Return all blocks of a log file of a slice, without their contents.  Raises as `find_blocks` and `read_headers`."""
    blocks = read_headers(storage, log)
    if validity.covers_whole_file(log):
        try:
            check_log_complete(blocks, log.name.instant_time)
        except CorruptData as error:
            raise error.with_path(storage.absolute(log.path)) from error
    return blocks


def read_headers(storage: Storage, log: LogFile) -> tuple[LogBlock | CorruptBlock, ...]:
    """Return all blocks of a log file including torn ones, regardless of the writer, without their contents.

    Raises CorruptData, and Unsupported for a later log format, naming the file.
    """
    trusted = has_atomic_uploads(storage.uri)
    try:
        return tuple(scan_blocks(open_ranges(storage, log.path), log.size_bytes, skip_checks=trusted))
    except CorruptData as error:
        raise error.with_path(storage.absolute(log.path)) from error
    except Unsupported as error:
        raise Unsupported(f"{error} [{storage.absolute(log.path)}]") from error


def choose_blocks(
    files: Iterable[tuple[str, Iterable[LogBlock | CorruptBlock]]],
    validity: InstantValidity,
    *,
    skip_compacted: bool = True,
    only_marked: bool = False,
) -> tuple[list[ValidBlock], int, int]:
    """As `find_blocks`, for block headers already read.  files: path and blocks of each log file, in merge order.

    skip_compacted: the blocks that a log compaction merged are excluded, and its own blocks take the position of the
    newest of those. So a write that was requested before the log compaction and completed after it still follows the
    merged blocks; without such a write, the result equals that of reading all blocks. only_marked: as in
    `without_compacted`.
    """
    chosen: list[ValidBlock] = []
    corrupt = rollbacks = 0
    for path, blocks in files:
        for block in blocks:
            if isinstance(block, CorruptBlock):
                corrupt += 1
            elif block.kind is BlockType.COMMAND:
                rollbacks += 1
                target = decode_command(block).target_instant_time
                chosen = [valid_block for valid_block in chosen if valid_block.block.instant_time != target]
            elif block.kind is BlockType.CDC:
                raise Unsupported(f"a change data block is stored in a data log at byte {block.offset}")
            elif validity.counts(block.instant_time):
                chosen.append(ValidBlock(path, block))
    chosen = deduplicate_attempts(chosen, lambda valid_block: valid_block.block)
    if skip_compacted:
        chosen = without_compacted(chosen, lambda valid_block: valid_block.block, only_marked=only_marked)
    return chosen, corrupt, rollbacks


def _add_block(
    storage: Storage, valid_block: ValidBlock, merger: LogMerger, request: LogScanRequest, positions: Positions | None
) -> int | None:
    """Merge a block; return its number of records, None if it differs from that of the positions (the scan restarts)."""
    block = valid_block.block
    content = block.read_content(open_ranges(storage, valid_block.path))
    count = 0
    if block.kind is BlockType.DELETE:
        for deletes in decode_deletes(content):
            places = None if positions is None else positions[count : count + deletes.num_rows]
            count += deletes.num_rows
            if places is not None and len(places) != deletes.num_rows:
                return None
            _add_deletes(merger, request.chosen(deletes, "record_key"), request.schema, request.rule, places)
        return count if positions is None or len(positions) == count else None
    if block.kind not in _DATA:
        raise Unsupported(f"a log block of type {block.kind.name} is not read")
    if block.is_partial:
        merger.start_partial_block()
    text = block.required(HeaderKey.SCHEMA)
    stored = set(avro_to_arrow(text).names)
    origins = None if request.ids is None else request.ids.origins(block.instant_time)
    held = {name: source for name in request.schema.names for source in names_in_file(origins, [name]) if source in stored}
    loose = pa.schema([field.with_nullable(True) for field in request.schema])
    for batch in decode_content(block.kind, text, content, list(held.values()), hfile_entries, RECORD_KEY):
        places = None if positions is None else positions[count : count + batch.num_rows]
        count += batch.num_rows
        if places is not None and len(places) != batch.num_rows:
            return None
        rows = in_table_columns(pa.Table.from_batches([batch]), origins, loose)
        if not request.populate_meta_fields:
            position = rows.schema.get_field_index(RECORD_KEY)
            rows = rows.set_column(position, rows.schema.field(position), record_keys(request.keys, as_batch(rows)))
        merger.add_rows(request.chosen(rows, RECORD_KEY), list(held) if block.is_partial else None, positions=places)
    return count if positions is None or len(positions) == count else None


def _add_deletes(
    merger: LogMerger, deletes: pa.RecordBatch, schema: pa.Schema, rule: RecordMergeRule, positions: Positions | None
) -> None:
    column = deletes.column("ordering")
    if not rule.ordering:
        merger.add_deletes(deletes.column("record_key"), None, _all_rows(deletes.num_rows), positions)
        return
    kinds = [field_at(schema, field).type for field in rule.ordering.fields]
    values, absent = unwrap_ordering(column, kinds[0]) if len(kinds) == 1 else unwrap_tuples(column, kinds)
    merger.add_deletes(deletes.column("record_key"), values, absent.to_numpy(zero_copy_only=False), positions)


def hfile_entries(content: bytes) -> Iterator[pa.RecordBatch]:
    """Return the entries of an HFile block's content, as `decode_content` expects them."""
    return open_hfile_bytes(content).scan()


def _all_rows(count: int) -> npt.NDArray[np.bool_]:
    return np.ones(count, dtype=np.bool_)
