"""What a stream that reads a table asks it: what completed after a position, and the query of one batch.

Source: docs/formats/reading.md, "Streaming source".
"""

from __future__ import annotations

from collections.abc import Sequence

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.format.actions.commit_metadata import CommitMetadata
from pyhudi.operations.read.change_queries import ChangeQuery, plan_change_query
from pyhudi.operations.read.checkpoints import check_checkpoint_not_restored
from pyhudi.operations.read.file_pruning import ReadSettings
from pyhudi.operations.read.query import (
    AS_OF,
    BEGIN,
    END,
    FALL_BACK,
    INCREMENTAL_FORMAT,
    QUERY_TYPE,
    VALUES_FROM_PATH,
    SnapshotQuery,
    archived_instants,
    plan_incremental_query,
)
from pyhudi.options.declaration import Option, Options
from pyhudi.planning.change_data import changes_records
from pyhudi.planning.incremental_query import CompletionRange, select_instants
from pyhudi.planning.stream_batches import BEGINNING, BatchLimits, StreamStep, batch_end, parse_start
from pyhudi.records.filters.filter_parser import Filter
from pyhudi.table.snapshot import load_snapshot, read_commit, retry_on_stale_files
from pyhudi.table.table_context import TableContext

START_OFFSET = Option(
    "hoodie.datasource.streaming.startOffset",
    str,
    "earliest",
    "where a stream begins: earliest, latest, or after a completion time",
    chooses="read",
)


def check_stream_options(options: Options) -> None:
    """Raises InvalidRequest or Unsupported for options of queries that no stream carries out."""
    if options.value_or_default(QUERY_TYPE) == "read_optimized":
        raise Unsupported("a stream reads what was committed, base files and logs; read_optimized is a batch query")
    for option in (AS_OF, BEGIN, END):
        if options.text(option) is not None:
            raise InvalidRequest(f"option {option} is for batch queries; a stream begins at {START_OFFSET}")
    BatchLimits.of(options)
    parse_start(options.value_or_default(START_OFFSET))


def reads_changes(options: Options) -> bool:
    """Whether the options ask for change data.  Raises InvalidRequest when they do so halfway."""
    wanted = options.value_or_default(INCREMENTAL_FORMAT) == "cdc"
    if wanted and options.value_or_default(QUERY_TYPE) != "incremental":
        raise InvalidRequest(f"{INCREMENTAL_FORMAT}=cdc goes with {QUERY_TYPE}=incremental alone")
    return wanted


def initial_position(context: TableContext, options: Options) -> str:
    """The position before the first batch of a new stream."""
    start = parse_start(options.value_or_default(START_OFFSET))
    return latest_position(context) if start is None else start


def latest_position(context: TableContext) -> str:
    """The completion time of the newest write that changed records; the beginning without one."""
    store = context.timeline
    writes = store.load().completed_writes()
    for instant in sorted(writes, key=lambda i: i.completion_time or i.request_time, reverse=True):
        if changes_records(read_commit(store, instant)):
            return instant.completion_time or instant.request_time
    return BEGINNING


@retry_on_stale_files
def next_position(context: TableContext, start: str, limits: BatchLimits, until: str | None = None) -> str:
    """Where the batch that begins at `start` ends; `start` itself when nothing completed.

    until: what completes after it does not count.  Raises TableState where what the stream has read was taken back since.
    """
    range_ = CompletionRange(start, until, open_start=True)
    snapshot = load_snapshot(context)
    check_checkpoint_not_restored(snapshot, range_, by_stream=True)
    steps = []
    for instant in select_instants(snapshot.timeline, range_):
        metadata = read_commit(context.timeline, instant)
        if changes_records(metadata):
            steps.append(_step(instant.completion_time or instant.request_time, metadata))
    for instant in archived_instants(snapshot, range_):
        steps.append(StreamStep(instant.completion_time or instant.request_time, 0, 0, is_archived=True))
    return batch_end(steps, limits) or start


def plan_batch(
    context: TableContext, options: Options, start: str, end: str, columns: Sequence[str] | None, condition: Filter | None
) -> SnapshotQuery | ChangeQuery:
    """The rows of a batch: what completed after `start` and up to `end`.

    Raises TableState where files of the batch were cleaned: of change data always, of records when the fallback to the latest
    state is off.
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
        fall_back=options.flag(FALL_BACK),
        values_from_path=options.flag(VALUES_FROM_PATH),
        historical_columns=False,
        settings=settings,
    )


def _step(completion_time: str, metadata: CommitMetadata) -> StreamStep:
    stats = metadata.write_stats
    size_bytes = sum(max(stat.file_size_in_bytes, stat.total_write_bytes) for stat in stats)
    return StreamStep(completion_time, sum(1 for stat in stats if stat.path), size_bytes)
