"""Do logs hold what their commits say, can pending plans run, does every key stand there once?  A part of `validate`.

    logs     every block of the present log files is read; it holds as many records and deletes as its commit says
    plans    the files that pending compactions read are there
    keys     no key stands twice in a partition; asked for, as it reads the keys of every row

Source: docs/formats/log-file.md; docs/formats/writing.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptData
from pyhudi.format.actions.commit_metadata import CommitMetadata, Operation, WriteStat
from pyhudi.format.avro_to_arrow import avro_to_arrow
from pyhudi.format.instants import Action
from pyhudi.format.log.data_blocks import decode_content
from pyhudi.format.log.delete_blocks import decode_deletes
from pyhudi.format.log.framing import BlockType, HeaderKey
from pyhudi.metadata_table.indexes.index_validation import IndexFindings
from pyhudi.planning.compaction import without_groups
from pyhudi.records.meta_fields import RECORD_KEY
from pyhudi.storage import open_storage
from pyhudi.storage.base import StorageSpec
from pyhudi.table.file_slices import FileSlice, LogFile
from pyhudi.table.pending_plans import files_of_compaction, load_compaction_plan
from pyhudi.table.snapshot import Snapshot
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.tasks.engine_protocol import Engine
from pyhudi.tasks.log_scan import InstantValidity, find_blocks, hfile_entries
from pyhudi.tasks.read_slice import ReadSpec, read_live_keys

_NAMED_KEYS = 5


@dataclass(frozen=True, slots=True)
class LogContents:
    """What a log file holds in blocks that count.  instants: of those blocks."""

    record_count: int
    delete_count: int
    instants: frozenset[str]


@dataclass(frozen=True, slots=True)
class LogCount:
    """Count what a log file holds."""

    storage: StorageSpec
    log: LogFile
    validity: InstantValidity


def count_log(task: LogCount) -> LogContents:
    """What a log file holds, all of its rows decoded.

    Raises CorruptData naming the file for one that is not whole or cannot be decoded, Unsupported for blocks that are not read.
    """
    storage, log = open_storage(task.storage), task.log
    records = deletes = 0
    instants: set[str] = set()
    for found in find_blocks(storage, [log], task.validity, skip_compacted=False)[0]:
        instants.add(found.block.instant_time)
        try:
            content = found.block.read_content(partial(storage.read_range, log.path))
            if found.block.kind is BlockType.DELETE:
                deletes += sum(batch.num_rows for batch in decode_deletes(content))
            else:
                text = found.block.required(HeaderKey.SCHEMA)
                batches = decode_content(found.block.kind, text, content, avro_to_arrow(text).names, hfile_entries, RECORD_KEY)
                records += sum(batch.num_rows for batch in batches)
        except CorruptData as error:
            raise error.with_path(storage.absolute(log.path)) from error
    return LogContents(records, deletes, frozenset(instants))


def run_log_count(task: LogCount) -> LogContents | str:
    """As `count_log`; why the file cannot be read, where that is so."""
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
    """The log files of the present state against their commits.  commits: of the active timeline, by request time."""
    found = IndexFindings()
    validity, spec = InstantValidity.of(timeline), context.storage.spec()
    logs = [log for slice_ in slices for log in slice_.logs]
    counted = engine.map(run_log_count, [LogCount(spec, log, validity) for log in logs])
    said: dict[str, WriteStat] = {}
    # Logs of older versions have blocks of several commits.
    for metadata in commits.values() if context.config.version.has_one_log_file_per_commit else ():
        if metadata.operation is not Operation.LOG_COMPACT:
            said.update((stat.path or "", stat) for stats in metadata.partition_to_write_stats.values() for stat in stats)
    for log, count in zip(logs, counted, strict=True):
        stat = said.get(log.path)
        if isinstance(count, str):
            found.wrong(log.path, count)
        elif stat is not None and (count.record_count < stat.num_writes or count.delete_count < stat.num_deletes):
            inside = f"{count.record_count} records and {count.delete_count} deletes"
            expected = f"{stat.num_writes} records and {stat.num_deletes} deletes"
            found.wrong(log.path, f"holds {inside}, and its commit says {expected}")
    found.looked_at = f"{len(logs):,} read"
    return found


def check_plans(snapshot: Snapshot, present: frozenset[str]) -> IndexFindings:
    """Pending compactions.  Of replaced file groups they rewrite nothing.  present: paths of all data files."""
    context, found = snapshot.context, IndexFindings()
    pending = snapshot.timeline.pending(Action.COMPACTION, Action.LOGCOMPACTION)
    for instant in pending:
        plan = without_groups(load_compaction_plan(context.timeline, instant), snapshot.slicing.replaced)
        gone = files_of_compaction(plan) - present
        if gone:
            what = f"can never run, as {min(gone)} is gone: put the file back, or drop the plan with unschedule_compaction"
            found.wrong(context.timeline.path(instant), what)
    found.looked_at = f"{len(pending):,} pending"
    return found


def check_keys(engine: Engine, spec: ReadSpec, slices: Sequence[FileSlice]) -> IndexFindings:
    """Keys that stand twice in a partition.  spec: as for all columns of keys.  Memory: the keys of one partition."""
    found = IndexFindings()
    by_partition: dict[str, list[FileSlice]] = {}
    for slice_ in slices:
        by_partition.setdefault(slice_.partition, []).append(slice_)
    total = 0
    for partition, there in sorted(by_partition.items()):
        parts = engine.map(_KeysOf(spec), there)
        keys = pa.concat_arrays([pa.array([], pa.string()), *parts])
        total += len(keys)
        if len(keys) == pc.count_distinct(keys).as_py():
            continue
        counted = keys.value_counts()
        twice = counted.field("values").filter(pc.greater(counted.field("counts"), 1))
        named = ", ".join(map(repr, twice.take(pc.array_sort_indices(twice))[:_NAMED_KEYS].to_pylist()))
        found.wrong(partition, f"{len(twice)} keys stand there more than once, such as {named}")
    found.looked_at = f"{total:,} keys"
    return found


@dataclass(frozen=True, slots=True)
class _KeysOf:
    spec: ReadSpec

    def __call__(self, slice_: FileSlice) -> pa.StringArray:
        parts = (part.cast(pa.string()) for part in read_live_keys(self.spec, slice_))
        return pa.concat_arrays([pa.array([], pa.string()), *parts])
