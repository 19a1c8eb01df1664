"""Log compaction tasks: one file group each.

    run_log_headers   the blocks of a log file, for planning
    run_log_compact   the logs of a slice become one log file, whose blocks name the instants that they replace

It writes, in this order (see `records.log_merge.rewrite`):

    delete block   keys whose base row is obsolete although a record or a delete with an ordering value follows; if a
                   payload class or a merger decides, possibly empty, as the mark of a log compaction by the table's
                   rule
    data blocks    records, and rows that are soft deletes; partial updates without a whole record, grouped by their
                   columns, in blocks marked as partial; records that are stored with another ordering value than their
                   own, once more with that value
    delete block   other deleted keys, with their ordering values

so that readers get the same result as before it. If there were partial updates, one data block is marked as partial
even when no record is, because a reader resolves deletes differently then; if necessary, an empty one.

Source: docs/formats/writing.md, "Compaction"; docs/formats/log-file.md; docs/decisions/0005-log-compactions.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from pyhudi.errors import Unsupported
from pyhudi.format.arrow_to_avro import arrow_to_avro
from pyhudi.format.avro_wrappers import Wrapper, mixed_values, wrap_ordering
from pyhudi.format.log.delete_blocks import deletes_batch, encode_deletes
from pyhudi.format.log.framing import BlockType, CorruptBlock, HeaderKey, LogBlock
from pyhudi.format.meta_columns import FILE_NAME, RECORD_KEY, constant
from pyhudi.format.names import LogFileName
from pyhudi.records.log_merge.log_records import LogRecords
from pyhudi.records.log_merge.rewrite import LogEntries
from pyhudi.records.schema_cast import relabel
from pyhudi.storage import open_storage
from pyhudi.storage.base import StorageSpec
from pyhudi.table.file_slices import LogFile
from pyhudi.tasks.append_log import LOG_FILE_VERSION, block_rows, encode_rows
from pyhudi.tasks.compaction_tasks import (
    CompactionSpec,
    CompactionTask,
    slice_from_task,
    with_log_figures,
    without_keys,
)
from pyhudi.tasks.incoming_layout import as_batch, with_column
from pyhudi.tasks.log_file_writer import BlockRows, LogWriteSpec, write_log_files
from pyhudi.tasks.log_scan import InstantValidity, find_blocks, read_log, scan_logs
from pyhudi.tasks.read_slice import merge_columns
from pyhudi.tasks.write_tasks import WriteStatus

_PARTIAL = {HeaderKey.IS_PARTIAL: "true"}


@dataclass(frozen=True, slots=True)
class LogHeaders:
    """The blocks of one log file, without contents."""

    path: str
    blocks: tuple[LogBlock | CorruptBlock, ...]


def run_log_headers(storage: StorageSpec, validity: InstantValidity, log: LogFile) -> LogHeaders:
    """Read the block headers of one log file, for planning.  Raises CorruptData for a damaged file."""
    return LogHeaders(log.path, read_log(open_storage(storage), log, validity))


def run_log_compact(spec: CompactionSpec, task: CompactionTask) -> WriteStatus | None:
    """Merge the logs of a slice into one log file.  None when none of their blocks is valid: nothing is written.

    Raises Unsupported if a merger's records cannot be written as they are (see `records.log_merge.rewrite`);
    TableState when a file of the plan is missing.
    """
    storage = open_storage(spec.reader.storage)
    slice_ = slice_from_task(storage, task)
    blocks, _, _ = find_blocks(storage, slice_.logs, spec.reader.validity, only_marked=spec.reader.rule.custom_merge)
    if not blocks:
        return None
    reader = spec.reader
    begun_ms = spec.clock_ms()
    scan = scan_logs(storage, slice_.logs, reader.of_logs(merge_columns(reader)))
    read_ms = spec.clock_ms() - begun_ms
    # A log compaction replaces earlier ones, and with them the blocks that those merged.
    instants = ",".join(sorted({valid_block.block.instant_time for valid_block in blocks}, reverse=True))
    name = LogFileName(task.file_id, spec.instant_time, LOG_FILE_VERSION, str(task.token))
    merged = _merged_blocks(spec, task, scan.records, instants)
    # Of any size: the blocks of a slice are replaced by one file, so that a reader finds all of it or nothing.
    how = LogWriteSpec(spec.indexing, marker_lists=spec.files.marker_lists)
    (status,) = write_log_files(storage, task.partition, name, merged, None, how)
    deleted = int(np.count_nonzero(scan.records.deleted))
    live = len(scan.records.keys) - deleted
    stat = replace(status.stat, num_writes=live, num_update_writes=live, num_deletes=deleted)
    return replace(status, stat=with_log_figures(stat, scan, slice_, read_ms))


def _merged_blocks(spec: CompactionSpec, task: CompactionTask, records: LogRecords, instants: str) -> Iterator[BlockRows]:
    own = {HeaderKey.INSTANT_TIME: spec.instant_time, HeaderKey.COMPACTED_BLOCK_TIMES: instants}
    try:
        entries = LogEntries.of(records)
    except Unsupported as error:
        raise Unsupported(f"{error} [file group {task.file_id} in {task.partition or 'the table'}]") from error
    if entries.behind_barrier.any() or records.rule.custom_merge:
        keys = records.keys.filter(pa.array(entries.behind_barrier))
        yield BlockRows((BlockType.DELETE, dict(own), encode_deletes([deletes_batch(keys, task.partition)])))
    marked = records.present is None
    for names, chosen in entries.grouped(entries.rows):
        schema = pa.schema([field for field in spec.reader.table_schema if field.name in names])
        whole = records.present is None or len(schema) == len(spec.reader.table_schema)
        marked = marked or not whole
        yield from _data_blocks(
            spec, task, records.rows.filter(pa.array(chosen)).select(schema.names), schema, own, is_complete=whole
        )
        again = chosen & entries.rewritten
        if again.any():
            yield from _data_blocks(spec, task, entries.restatement(again).select(schema.names), schema, own, is_complete=whole)
    if not marked:
        # An HFile without entries is none.
        files = spec.files if spec.files.log_format != "hfile" else replace(spec.files, log_format="avro")
        block_type, content = encode_rows(
            files, spec.avro_schema, spec.reader.table_schema.empty_table(), pa.array([], pa.string())
        )
        yield BlockRows((block_type, {**own, HeaderKey.SCHEMA: spec.avro_schema, **_PARTIAL}, content))
    deletes = [batch for batch in _deletes(entries, task.partition) if batch.num_rows]
    if deletes or not (entries.rows.any() or (entries.behind_barrier.any() and not records.rule.custom_merge)):
        yield BlockRows((BlockType.DELETE, dict(own), encode_deletes(deletes)))


def _data_blocks(
    spec: CompactionSpec,
    task: CompactionTask,
    rows: pa.Table,
    schema: pa.Schema,
    own_headers: dict[HeaderKey, str],
    *,
    is_complete: bool,
) -> Iterator[BlockRows]:
    avro = spec.avro_schema if is_complete else arrow_to_avro(schema, spec.table_name, spec.avro_schema)
    headers = {**own_headers, HeaderKey.SCHEMA: avro, **({} if is_complete else _PARTIAL)}
    for part in block_rows(relabel(rows, schema), spec.files.log_block_size_bytes):
        stored = _as_log_rows(spec, task, part)
        block_type, content = encode_rows(spec.files, avro, stored, part.column(RECORD_KEY).combine_chunks())
        yield BlockRows((block_type, headers, content), as_batch(stored))


def _deletes(entries: LogEntries, partition: str) -> Iterator[pa.RecordBatch]:
    records = entries.records
    yield deletes_batch(records.keys.filter(pa.array(entries.deletes & ~entries.valued)), partition)
    with_value = entries.deletes & entries.valued
    if with_value.any() and records.ordering is not None:
        keys = records.keys.filter(pa.array(with_value))
        values = pa.concat_arrays(records.ordering.filter(pa.array(with_value)).chunks)
        if pa.types.is_decimal(values.type):
            branch = np.full(len(values), Wrapper.DECIMAL, dtype=np.int8)
            yield deletes_batch(keys, partition, mixed_values(branch, values.to_pylist()))
        else:
            yield deletes_batch(keys, partition, wrap_ordering(values))


def _as_log_rows(spec: CompactionSpec, task: CompactionTask, rows: pa.Table) -> pa.Table:
    """Rows with the meta columns as log files hold them: the file id for a file name, no key where keys are not stored."""
    if spec.reader.populate_meta_fields:
        return with_column(rows, FILE_NAME, constant(task.file_id, rows.num_rows))
    return with_column(without_keys(rows), FILE_NAME, pa.nulls(rows.num_rows, pa.string()))
