"""Names and values of the metrics of one operation, as Hudi reports them.

<prefix>.commit.totalBytesWritten          of writes: commit, deltacommit or replacecommit
<prefix>.compaction.totalLogFilesSize      of services: compaction, logcompaction, clustering
<prefix>.deltastreamer.kafkaDelayCount     of ingestions, as those of Hudi Streamer
<prefix>.commit.pyhudi.<phase>.duration    PyHudi's own, with `pyhudi` in the name
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyhudi.format.actions.commit_metadata import CommitMetadata, WriteStat
from pyhudi.format.instants import Action, Instant, parse_instant_time
from pyhudi.operations.commit.events import OperationEvent
from pyhudi.operations.commit.results import (
    ArchiveResult,
    CleanResult,
    ClusteringResult,
    CompactionResult,
    IngestedBatch,
    WriteResult,
)
from pyhudi.operations.commit.rollback import RollbackResult
from pyhudi.table.snapshot import read_commit
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline

_PENDING = {
    "clean.pendingCleanInstantCount": (Action.CLEAN,),
    "clustering.pendingClusteringInstantCount": (Action.CLUSTERING,),
    "compaction.pendingCompactionInstantCount": (Action.COMPACTION,),
    "rollback.pendingRollbackInstantCount": (Action.ROLLBACK,),
}
_METADATA_PARTITIONS = {
    "metadata.isEnabled": "files",
    "metadata.isColSatsEnabled": "column_stats",
    "metadata.isBloomFilterEnabled": "bloom_filters",
    "metadata.isRliEnabled": "record_index",
}


@dataclass(frozen=True, slots=True)
class Metric:
    """One value.

    Attributes:
        name: Name without the prefix.
        value: Value of a gauge, or the increment of a counter.
        is_counter: True for a counter.
    """

    name: str
    value: float
    is_counter: bool = False


def metric_prefix(prefix: str | None, table_name: str) -> str:
    """Return the first part of all names."""
    return (prefix or table_name).replace(".", "_")


def operation_metrics(event: OperationEvent, context: TableContext) -> tuple[Metric, ...]:
    """Return the metrics of an operation that ended.

    Raises:
        HudiError: The timeline could not be read.
    """
    if event.error is not None:
        return (Metric(f"pyhudi.{event.operation}.failure.counter", 1, is_counter=True),)
    return tuple(_metrics(event, context))


def operation_instants(result: object) -> tuple[str, ...]:
    """Return the request times that an operation completed, which identify its metrics."""
    if isinstance(result, CompactionResult):
        return tuple(run.instant for run in result.runs)
    instant = getattr(result, "instant", None)
    return (instant,) if isinstance(instant, str) else ()


def _metrics(event: OperationEvent, context: TableContext) -> Iterator[Metric]:
    result, duration_ms = event.result, round(event.seconds * 1000)
    if isinstance(result, ArchiveResult):
        yield Metric("archive.duration", duration_ms)
        yield Metric("archive.numInstantsArchived", len(result.instants))
        return
    if isinstance(result, IngestedBatch):
        yield from _ingestion_metrics(result, duration_ms, context)
        return
    if not operation_instants(result):
        return
    timeline = context.timeline.load()
    yield from _state(context, timeline)
    if isinstance(result, WriteResult):
        yield from _write_metrics(result, duration_ms, context, timeline)
    elif isinstance(result, ClusteringResult) and result.completion_time is not None:
        yield from _commit_metrics("clustering", result.instant or "", duration_ms, context, timeline)
    elif isinstance(result, CompactionResult):
        name = "compaction" if result.operation == "compact" else "logcompaction"
        for run in result.runs:
            yield from _commit_metrics(name, run.instant, round(run.seconds * 1000), context, timeline)
        yield Metric(f"{name}.{name}.completed.counter", len(result.runs), is_counter=True)
        if result.planned is not None:
            yield Metric(f"{name}.{name}.requested.counter", 1, is_counter=True)
    elif isinstance(result, CleanResult):
        yield Metric("clean.duration", duration_ms)
        yield Metric("clean.numFilesDeleted", result.file_count)
    elif isinstance(result, RollbackResult):
        yield Metric("rollback.duration", duration_ms)
        yield Metric("rollback.numFilesDeleted", len(result.deleted))


def _ingestion_metrics(batch: IngestedBatch, duration_ms: int, context: TableContext) -> Iterator[Metric]:
    yield Metric("deltastreamer.lastSync", context.env.now_ms())
    if batch.batches:
        yield Metric("deltastreamer.duration", duration_ms)
    if batch.source == "kafka":
        rows = batch.size.get("rows", 0)
        # As in Hudi: the lag before the batch.
        yield Metric("deltastreamer.kafkaDelayCount", rows + batch.remaining.get("rows", 0))
        yield Metric("deltastreamer.kafkaMessageInCount", rows)
    if "bytes" in batch.size:
        yield Metric("deltastreamer.sourceBytesToBeIngestedInSyncRound", batch.size["bytes"])
    counts = {"batches": batch.batches, "rows": batch.rows, "error_rows": batch.error_rows}
    counts |= {f"source_{unit}": count for unit, count in batch.size.items()}
    for name, count in counts.items():
        yield Metric(f"deltastreamer.pyhudi.{name}.counter", count, is_counter=True)
    for unit, count in batch.remaining.items():
        yield Metric(f"deltastreamer.pyhudi.remaining.{unit}", count)
    if batch.lag_seconds is not None:
        yield Metric("deltastreamer.pyhudi.lag.seconds", round(batch.lag_seconds, 3))


def _state(context: TableContext, timeline: Timeline) -> Iterator[Metric]:
    for name, actions in _PENDING.items():
        yield Metric(name, len(timeline.pending(*actions)))
    for name, partition in _METADATA_PARTITIONS.items():
        yield Metric(name, int(partition in context.config.metadata_partitions))


def _write_metrics(result: WriteResult, duration_ms: int, context: TableContext, timeline: Timeline) -> Iterator[Metric]:
    instant = _completed(timeline, result.instant or "")
    if instant is None:
        return
    action = str(instant.action)
    yield from _commit_metrics(action, instant.request_time, duration_ms, context, timeline)
    yield from _phases(action, result.seconds)
    looked_up_ms = sum(result.seconds.get(phase, 0.0) for phase in ("prepare", "lookup")) * 1000
    yield Metric("source_read_and_index.duration.duration", round(looked_up_ms))
    yield Metric("conflict_resolution.success.counter", 1, is_counter=True)
    yield Metric("conflict_resolution.failure.counter", result.conflict_retries, is_counter=True)


def _phases(action: str, seconds: Mapping[str, float]) -> Iterator[Metric]:
    for phase, value in seconds.items():
        yield Metric(f"{action}.pyhudi.{re.sub(r'[^A-Za-z0-9_]', '_', phase)}.duration", round(value * 1000))


def _commit_metrics(
    action: str, instant_time: str, duration_ms: int, context: TableContext, timeline: Timeline
) -> Iterator[Metric]:
    instant = _completed(timeline, instant_time)
    if instant is None:
        return
    totals = _totals(read_commit(context.timeline, instant))
    values = {"commitTime": parse_instant_time(instant_time, context.config.zone), "duration": duration_ms, **totals}
    for name, value in values.items():
        yield Metric(f"{action}.{name}", value)


def _completed(timeline: Timeline, instant_time: str) -> Instant | None:
    return next((i for i in timeline.completed_writes() if i.request_time == instant_time), None)


def _totals(metadata: CommitMetadata) -> dict[str, int]:
    stats = [stat for partition in metadata.partition_to_write_stats.values() for stat in partition]
    times = [stat.runtime_stats for stat in stats if stat.runtime_stats is not None]
    return {
        "totalPartitionsWritten": len(metadata.partition_to_write_stats),
        "totalFilesInsert": sum(_is_new(stat) for stat in stats),
        "totalFilesUpdate": sum(not _is_new(stat) for stat in stats),
        "totalRecordsWritten": sum(stat.num_writes for stat in stats),
        "totalUpdateRecordsWritten": sum(stat.num_update_writes for stat in stats),
        "totalInsertRecordsWritten": sum(stat.num_inserts for stat in stats),
        "totalBytesWritten": sum(stat.total_write_bytes for stat in stats),
        "totalScanTime": sum(time.total_scan_time for time in times),
        "totalCreateTime": sum(time.total_create_time for time in times),
        "totalUpsertTime": sum(time.total_upsert_time for time in times),
        "totalCompactedRecordsUpdated": sum(stat.total_updated_records_compacted for stat in stats),
        "totalLogFilesCompacted": sum(stat.total_log_files_compacted for stat in stats),
        "totalLogFilesSize": sum(stat.total_log_size_compacted for stat in stats),
        "totalRecordsDeleted": sum(stat.num_deletes for stat in stats),
    }


def _is_new(stat: WriteStat) -> bool:
    return stat.prev_commit in (None, "null")
