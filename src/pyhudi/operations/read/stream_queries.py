"""Streaming source: offsets of a stream, and the query of one micro-batch.

Source: docs/formats/reading.md, "Streaming source".
"""

from __future__ import annotations

from collections.abc import Sequence

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.format.actions.commit_metadata import CommitMetadata
from pyhudi.format.instants import Instant
from pyhudi.operations.read.change_queries import ChangeQuery, plan_change_query
from pyhudi.operations.read.checkpoints import check_checkpoint_not_restored
from pyhudi.operations.read.file_pruning import ReadSettings
from pyhudi.operations.read.query import SnapshotQuery, archived_instants, plan_incremental_query
from pyhudi.options.declaration import Options
from pyhudi.options.read_options import (
    AS_OF,
    INCREMENTAL_FORMAT,
    QUERY_TYPE,
    READ_BEGIN_INSTANTTIME,
    READ_END_INSTANTTIME,
    READ_INCR_FALLBACK_FULLTABLESCAN_ENABLE,
    START_OFFSET,
    VALUES_FROM_PATH,
)
from pyhudi.planning.change_data import changes_records
from pyhudi.planning.incremental_query import CompletionRange, select_instants
from pyhudi.planning.stream_batches import BEGINNING, BatchLimits, StreamStep, batch_end, parse_start
from pyhudi.records.filters.filter_parser import Filter
from pyhudi.table.snapshot import load_snapshot, read_commit, retry_on_stale_files
from pyhudi.table.table_context import TableContext


def check_stream_options(options: Options) -> None:
    """Raise InvalidRequest or Unsupported for query options that streams do not support."""
    if options.value_or_default(QUERY_TYPE) == "read_optimized":
        raise Unsupported(
            "a stream reads base files and log files of commits; read_optimized is available for batch queries only"
        )
    for option in (AS_OF, READ_BEGIN_INSTANTTIME, READ_END_INSTANTTIME):
        if options.text(option) is not None:
            raise InvalidRequest(f"option {option} applies to batch queries only; set {START_OFFSET} for a stream")
    BatchLimits.of(options)
    parse_start(options.value_or_default(START_OFFSET))


def reads_changes(options: Options) -> bool:
    """Return True if the options select change data. Raises InvalidRequest for an incomplete selection."""
    is_cdc = options.value_or_default(INCREMENTAL_FORMAT) == "cdc"
    if is_cdc and options.value_or_default(QUERY_TYPE) != "incremental":
        raise InvalidRequest(f"{INCREMENTAL_FORMAT}=cdc requires {QUERY_TYPE}=incremental")
    return is_cdc


def initial_position(context: TableContext, options: Options) -> str:
    """Return the offset before the first micro-batch of a new stream."""
    start = parse_start(options.value_or_default(START_OFFSET))
    return latest_position(context) if start is None else start


@retry_on_stale_files
def latest_position(context: TableContext) -> str:
    """Return the completion time of the newest write that changed records; the beginning if there is none.

    Archived writes count too: the active timeline may consist of table services only.
    """
    for instant in sorted(context.timeline.load().completed_writes(), key=_position, reverse=True):
        if changes_records(read_commit(context.timeline, instant)):
            return _position(instant)
    archived = archived_instants(load_snapshot(context), CompletionRange(BEGINNING, open_start=True))
    return max(map(_position, archived), default=BEGINNING)


@retry_on_stale_files
def next_position(context: TableContext, start: str, limits: BatchLimits, until: str | None = None) -> str:
    """Return the end offset of the micro-batch that begins at ``start``; ``start`` itself if nothing completed.

    Args:
        start: Offset of the stream.
        limits: Limits of a micro-batch.
        until: Ignore what completes after this time.

    Raises:
        TableState: What the stream has read was rolled back since.
    """
    range_ = CompletionRange(start, until, open_start=True)
    snapshot = load_snapshot(context)
    check_checkpoint_not_restored(snapshot, range_, by_stream=True)
    steps = []
    for instant in select_instants(snapshot.timeline, range_):
        metadata = read_commit(context.timeline, instant, needs_content=True)
        if changes_records(metadata):
            steps.append(_step(_position(instant), metadata))
    for instant in archived_instants(snapshot, range_):
        steps.append(StreamStep(_position(instant), 0, 0, is_archived=True))
    return batch_end(steps, limits) or start


def plan_batch(
    context: TableContext, options: Options, start: str, end: str, columns: Sequence[str] | None, condition: Filter | None
) -> SnapshotQuery | ChangeQuery:
    """Plan the query of a micro-batch: what completed after ``start`` and up to ``end``.

    Raises:
        TableState: Files of the batch were cleaned: always for change data, and for records if the fallback to the
            latest state is disabled.
    """
    range_ = CompletionRange(start, end, open_start=True)
    settings = ReadSettings.of(options)
    if reads_changes(options):
        return plan_change_query(context, range_, columns, condition, settings=settings)
    return plan_incremental_query(
        context,
        range_,
        columns,
        condition,
        fall_back=options.flag(READ_INCR_FALLBACK_FULLTABLESCAN_ENABLE),
        values_from_path=options.flag(VALUES_FROM_PATH),
        historical_columns=False,
        settings=settings,
    )


def _position(instant: Instant) -> str:
    """Return the offset of a stream after it has read a completed instant."""
    return instant.completion_time or instant.request_time


def _step(completion_time: str, metadata: CommitMetadata) -> StreamStep:
    stats = metadata.write_stats
    size_bytes = sum(max(stat.file_size_in_bytes, stat.total_write_bytes) for stat in stats)
    return StreamStep(completion_time, sum(1 for stat in stats if stat.path), size_bytes)
