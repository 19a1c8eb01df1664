"""Checks of `validate` that read data: log files against their commits, pending plans, duplicate keys, buckets and indexes.

    logs     every block of the current log files is read; a file has as many records and deletes as its commit records
    plans    the files that pending compactions read exist
    pages    page checksums of base files: of a sample, or of all on request. Row groups of ORC files, and pages without a
             checksum, are decoded
    keys     no key occurs twice in a partition; only on request, since it reads the keys of every row

Source: docs/formats/log-file.md; docs/formats/writing.md.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyhudi.errors import CorruptData, InvalidRequest, TableState, Unsupported
from pyhudi.format.actions.commit_metadata import CommitMetadata, Operation, WriteStat
from pyhudi.format.avro_to_arrow import avro_to_arrow
from pyhudi.format.instants import Action
from pyhudi.format.log.data_blocks import decode_content
from pyhudi.format.log.delete_blocks import decode_deletes
from pyhudi.format.log.framing import BlockType, HeaderKey
from pyhudi.format.meta_columns import RECORD_KEY
from pyhudi.format.orc.orc_reader import OrcFile
from pyhudi.format.parquet.verify_pages import verify_row_group
from pyhudi.format.paths import BUCKET_COUNTS_FOLDER
from pyhudi.metadata_table.indexes import check_computable, in_build_order, index_for_partition, open_index
from pyhudi.metadata_table.indexes.files_index import FilesIndex
from pyhudi.metadata_table.indexes.index_validation import MISSING_ROWS, Check, CheckedTable, IndexFindings
from pyhudi.planning.bucket_routing import BucketLayout, bucket_groups
from pyhudi.planning.compaction import without_groups
from pyhudi.storage import open_storage
from pyhudi.storage.base import StorageSpec
from pyhudi.table.file_slices import BaseFile, FileSlice, LogFile
from pyhudi.table.partition_buckets import load_counts
from pyhudi.table.pending_plans import compaction_files, load_compaction_plan
from pyhudi.table.snapshot import Snapshot
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.tasks.base_file_reader import open_base_bytes, open_base_file, row_group_batches
from pyhudi.tasks.engine_protocol import Engine
from pyhudi.tasks.log_scan import InstantValidity, find_blocks, hfile_entries
from pyhudi.tasks.read_slice import ReadSpec, read_live_keys

_NAMED_KEYS = 5


@dataclass(frozen=True, slots=True)
class LogContents:
    """Contents of the valid blocks of a log file; ``instants`` are those of the blocks."""

    record_count: int
    delete_count: int
    instants: frozenset[str]


@dataclass(frozen=True, slots=True)
class LogCount:
    """Task: count the contents of a log file."""

    storage: StorageSpec
    log: LogFile
    validity: InstantValidity


def count_log(task: LogCount) -> LogContents:
    """Count the contents of a log file, with all rows decoded.

    Raises:
        CorruptData: The file is incomplete or cannot be decoded; the error names it.
        Unsupported: The file has unsupported blocks.
    """
    storage, log = open_storage(task.storage), task.log
    records = deletes = 0
    instants: set[str] = set()
    for located in find_blocks(storage, [log], task.validity, skip_compacted=False)[0]:
        instants.add(located.block.instant_time)
        try:
            content = located.block.read_content(partial(storage.read_range, log.path))
            if located.block.kind is BlockType.DELETE:
                deletes += sum(batch.num_rows for batch in decode_deletes(content))
            else:
                text = located.block.required(HeaderKey.SCHEMA)
                batches = decode_content(located.block.kind, text, content, avro_to_arrow(text).names, hfile_entries, RECORD_KEY)
                records += sum(batch.num_rows for batch in batches)
        except CorruptData as error:
            raise error.with_path(storage.absolute(log.path)) from error
    return LogContents(records, deletes, frozenset(instants))


def run_log_count(task: LogCount) -> LogContents | str:
    """Run `count_log`, and return the error text if the file cannot be read."""
    try:
        return count_log(task)
    except CorruptData as error:
        return str(error)


def check_logs(
    context: TableContext,
    engine: Engine,
    timeline: Timeline,
    slices: Sequence[FileSlice],
    commits: Mapping[str, CommitMetadata],
) -> IndexFindings:
    """Check the current log files against their commits.

    Args:
        slices: Current file slices.
        commits: Commits of the active timeline, by request time.
    """
    findings = IndexFindings()
    validity, spec = InstantValidity.of(timeline), context.storage.spec()
    logs = [log for slice_ in slices for log in slice_.logs]
    counted = engine.map(run_log_count, [LogCount(spec, log, validity) for log in logs])
    write_stats: dict[str, WriteStat] = {}
    # Log files of older versions have blocks of several commits.
    for metadata in commits.values() if context.config.version.has_one_log_file_per_commit else ():
        if metadata.operation is not Operation.LOG_COMPACT:
            write_stats.update((stat.path or "", stat) for stats in metadata.partition_to_write_stats.values() for stat in stats)
    for log, count in zip(logs, counted, strict=True):
        stat = write_stats.get(log.path)
        if isinstance(count, str):
            findings.add_error(log.path, count)
        elif stat is not None and (count.record_count < stat.num_writes or count.delete_count < stat.num_deletes):
            inside = f"{count.record_count} records and {count.delete_count} deletes"
            expected = f"{stat.num_writes} records and {stat.num_deletes} deletes"
            findings.add_error(log.path, f"contains {inside}, and its commit records {expected}")
    findings.checked = f"{len(logs):,} read"
    return findings


class ChecksumScope(StrEnum):
    """Which base files have their pages compared with the checksums: none, a sample of SAMPLE_BYTES, or all."""

    NONE = "none"
    SAMPLE = "sample"
    ALL = "all"


SAMPLE_BYTES = 128 << 20
_SAMPLE_SEED = 20


@dataclass(frozen=True, slots=True)
class PageTask:
    """A base file, and of how many bytes to compare the pages at least, in whole row groups; None for all."""

    storage: StorageSpec
    path: str
    limit_bytes: int | None


def run_pages(task: PageTask) -> tuple[bool, str]:
    """Return whether every row group of a file was compared, and the error of a damaged one, '' if there is none."""
    storage, compared_bytes = open_storage(task.storage), 0
    try:
        with open_base_file(storage, task.path) as file, open_base_bytes(storage, task.path) as source:
            groups = list(range(file.metadata.num_row_groups))
            if task.limit_bytes is not None:
                random.Random(_SAMPLE_SEED).shuffle(groups)
            for group in groups:
                if task.limit_bytes is not None and compared_bytes >= task.limit_bytes:
                    return False, ""
                if isinstance(file, OrcFile) or not verify_row_group(source, file.metadata, group):
                    for _ in row_group_batches(file, group, file.schema_arrow.names):
                        pass
                compared_bytes += 0 if isinstance(file, OrcFile) else _stored_bytes(file.metadata, group)
    except (CorruptData, TableState) as error:
        return True, str(error)
    return True, ""


def _stored_bytes(metadata: pq.FileMetaData, group: int) -> int:
    rows = metadata.row_group(group)
    return sum(rows.column(number).total_compressed_size for number in range(metadata.num_columns))


def check_pages(
    context: TableContext, engine: Engine, files: Sequence[BaseFile], scope: ChecksumScope
) -> tuple[IndexFindings, int]:
    """Compare the pages of base files with their checksums.

    Returns:
        The findings, and how many bytes of the files were not compared.
    """
    findings = IndexFindings()
    chosen, remaining = list(files), SAMPLE_BYTES
    limits: list[int | None] = [None] * len(chosen)
    if scope is ChecksumScope.SAMPLE:
        # A fixed seed selects the same files each time, so that findings are reproducible.
        random.Random(_SAMPLE_SEED).shuffle(chosen)
        limits = []
        for file in chosen:
            if remaining <= 0:
                break
            limits.append(None if file.size_bytes <= remaining else remaining)
            remaining -= file.size_bytes
        chosen = chosen[: len(limits)]
    spec = context.storage.spec()
    tasks = [PageTask(spec, file.path, limit) for file, limit in zip(chosen, limits, strict=True)]
    skipped_bytes = sum(file.size_bytes for file in files) - sum(file.size_bytes for file in chosen)
    for file, limit, (is_complete, error) in zip(chosen, limits, engine.map(run_pages, tasks), strict=True):
        if error:
            findings.add_error(file.path, error)
        if not is_complete and limit is not None:
            skipped_bytes += file.size_bytes - limit
    findings.checked = f"{len(chosen):,} of {len(files):,} base files compared"
    return findings, skipped_bytes


def check_plans(snapshot: Snapshot, is_present: frozenset[str]) -> IndexFindings:
    """Check the inputs of pending compactions, replaced file groups excepted. ``is_present`` are the paths of all data files."""
    context, findings = snapshot.context, IndexFindings()
    pending = snapshot.timeline.pending(Action.COMPACTION, Action.LOGCOMPACTION)
    for instant in pending:
        plan = without_groups(load_compaction_plan(context.timeline, instant), snapshot.slicing.replaced)
        missing = compaction_files(plan) - is_present
        if missing:
            detail = f"can never run, as {min(missing)} is missing: restore the file, or call unschedule_compaction"
            findings.add_error(context.timeline.path(instant), detail)
    findings.checked = f"{len(pending):,} pending"
    return findings


def check_keys(engine: Engine, spec: ReadSpec, slices: Sequence[FileSlice]) -> IndexFindings:
    """Check for duplicate keys in a partition. Memory: the keys of one partition.

    Args:
        spec: How all key columns are read.
        slices: Current file slices.
    """
    findings = IndexFindings()
    by_partition: dict[str, list[FileSlice]] = {}
    for slice_ in slices:
        by_partition.setdefault(slice_.partition, []).append(slice_)
    total = 0
    for partition, partition_slices in sorted(by_partition.items()):
        parts = engine.map(_SliceKeys(spec), partition_slices)
        keys = pa.concat_arrays([pa.array([], pa.string()), *parts])
        total += len(keys)
        if len(keys) == pc.count_distinct(keys).as_py():
            continue
        counted = keys.value_counts()
        twice = counted.field("values").filter(pc.greater(counted.field("counts"), 1))
        named = ", ".join(map(repr, twice.take(pc.array_sort_indices(twice))[:_NAMED_KEYS].to_pylist()))
        findings.add_error(partition, f"{len(twice)} keys occur more than once, such as {named}")
    findings.checked = f"{total:,} keys"
    return findings


@dataclass(frozen=True, slots=True)
class _SliceKeys:
    spec: ReadSpec

    def __call__(self, slice_: FileSlice) -> pa.StringArray:
        parts = (part.cast(pa.string()) for part in read_live_keys(self.spec, slice_))
        return pa.concat_arrays([pa.array([], pa.string()), *parts])


# Bucket counts of partitions against their file groups, a part of `validate`.
#
#     damage        counts that are unreadable, or stored without effect
#     lost groups   a file group whose id names no bucket of its partition: writes do not find its keys, and write them
#                   a second time
#     second ones   two file groups of one bucket, of which writes find one
#
# If a writer that does not know bucket counts (Hudi 1.0) has put records into buckets that the partition does have, the
# check of keys finds the duplicates.
#
# Source: docs/formats/writing.md, "Bucket index".


def check_bucket_counts(context: TableContext, snapshot: Snapshot, slices: Sequence[FileSlice]) -> IndexFindings:
    """Check bucket counts, in a table that stores any. ``slices`` are the current ones."""
    findings = IndexFindings()
    try:
        stored = load_counts(context, snapshot.timeline)
        if stored is None:
            return findings
        layout = BucketLayout(stored.default, rules=stored.expressions)
    except (CorruptData, TableState, InvalidRequest, Unsupported) as error:
        findings.add_error(BUCKET_COUNTS_FOLDER, str(error), MISSING_ROWS)
        return findings
    partitions = sorted({slice_.partition for slice_ in slices})
    for partition in partitions:
        try:
            bucket_groups((slice_ for slice_ in slices if slice_.partition == partition), layout)
        except TableState as error:
            findings.add_error(partition, str(error), MISSING_ROWS)
    findings.checked = f"{len(partitions):,} partitions"
    return findings


# Indexes of the metadata table, a part of `validate`: the checks of all index types, see `metadata_table.indexes`.
#
#     files              the file listing against the directories
#     column_stats       column ranges of base files against their footers
#     bloom_filters      the filters of base files against those in their footers
#     record_index       every key of a row is at its recorded location, and there are no other keys
#     partition_stats    a range of every column in every partition, which covers the column_stats of its files, and the
#                        files themselves where such ranges can be trusted
#     secondary index    every pair of value and record key of the rows is present, and no others
#     expression index   ranges and filters of files against the recomputed functions, those of partitions against their
#                        files
#
# Source: docs/formats/metadata-table.md.


def index_checks(table: CheckedTable, skip: Callable[[str, str], None]) -> Iterator[tuple[str, Check]]:
    """Return the checks that apply to the indexes of a table, by name.

    Args:
        skip: Called with the name of an index that cannot be checked, and the reason.
    """
    for name in in_build_order(table.metadata.partitions):
        index_class = index_for_partition(name)
        if table.table_schema is None and index_class is not FilesIndex:
            continue
        if index_class is None:
            skip(name, "PyHudi does not know this index")
            continue
        try:
            index = open_index(name, table.metadata.definitions if index_class.is_defined else {})
            if table.table_schema is not None:
                check_computable((index,), table.table_schema)
        except (Unsupported, CorruptData) as error:
            skip(name, str(error))
            continue
        doubt = index.skip_check_reason(table) if table.table_schema is not None else None
        if doubt is not None:
            skip(name, doubt)
            continue
        yield name, partial(index.check, table)
