"""Table services of the metadata table: compaction, cleaning and archival, run after a commit of the table when due.
Format: docs/formats/metadata-table.md; docs/formats/timeline.md, "History".

    compaction   under the table's lock, from plan to commit, by default after
                 `hoodie.metadata.compact.max.delta.commits` delta commits. It merges what is committed on both tables:
                 it is skipped while an instant is pending on the table's timeline but completed on the metadata
                 table's. A compaction that died is executed again from its plan.
    cleaning     of slices that a compaction replaced, after a compaction; at least 20 commits are retained
    archival     of its timeline, before the earliest instant of the table's active timeline and those that cleaning
                 counts

The table's own archival waits for the compaction of its metadata table, as in Hudi.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from pyhudi.errors import TableState, Unsupported
from pyhudi.format.actions.compaction_plan import CompactionOperation, CompactionPlan
from pyhudi.format.instants import INIT_INSTANT_TIME, Action, Instant, State, format_instant_time
from pyhudi.format.names import WriteToken, parse_base_file, parse_log_file
from pyhudi.format.paths import file_name, join_path
from pyhudi.metadata_table.codecs.metadata_partitions import COLUMN_STATS, parse_file_group
from pyhudi.metadata_table.file_group_merge import CellMergeRule
from pyhudi.metadata_table.file_tasks import MergeGroupTask, MetadataFile, run_metadata_merge
from pyhudi.metadata_table.indexes import index_for_partition
from pyhudi.metadata_table.indexes.metadata_index import Index
from pyhudi.metadata_table.reader.metadata_reader import MetadataCache, MetadataTable
from pyhudi.metadata_table.reader.stored_index_definitions import load_index_definitions
from pyhudi.metadata_table.writer.metadata_settings import MetadataSettings
from pyhudi.metadata_table.writer.metadata_store import MetadataStore, build_commit_metadata
from pyhudi.operations.commit.action_liveness import is_run_by_hudi
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.orphan_cleanup import sweep_side_files
from pyhudi.operations.commit.service_result import Disabled, Executed, NotDue, Outcome
from pyhudi.operations.services.archive import ArchiveSettings, run_archive
from pyhudi.operations.services.clean import CleanSettings, run_clean
from pyhudi.options.lock_options import LOCK_WAIT
from pyhudi.planning.archival import ArchivalBounds, plan_archival
from pyhudi.planning.cleaning import CleaningPolicy
from pyhudi.planning.compaction import CompactionRules, CompactionTrigger, compaction_due
from pyhudi.storage.thread_pool import in_threads
from pyhudi.table.file_slices import BaseFile, FileSlice, LogFile
from pyhudi.table.log_file_sizes import check_size, load_written_sizes
from pyhudi.table.pending_plans import load_compaction_plan
from pyhudi.table.snapshot import retry_on_stale_files
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.tasks.engine_protocol import Engine

_MERGES_AT_ONCE = 8
_MIN_RETAINED = 20
_UNLIMITED = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class MetadataServiceSettings:
    """Settings of the metadata table's services.

    Attributes:
        metadata: The writer's metadata settings.
        clean: Clean settings of the table, from which those of the metadata table are derived.
        archive: Archival settings of the table, used likewise; None disables archival.
        lock_wait_ms: Maximum wait for the table's lock.
    """

    metadata: MetadataSettings
    clean: CleanSettings
    archive: ArchiveSettings | None
    lock_wait_ms: Annotated[int, LOCK_WAIT]


def run_metadata_services(
    context: TableContext,
    engine: Engine | None,
    settings: MetadataServiceSettings,
    loaded: tuple[Timeline, Timeline] | None = None,
) -> Outcome:
    """Run the services that are due.

    Args:
        engine: Runs tasks; None for threads of this process.
        loaded: The timelines of the metadata table right after a commit of this process, and of the table at that
            commit. If nothing is due in them, nothing is read. Later committers run the services after their own
            commit.
    """
    if loaded is not None:
        reason = _reason_not_to_compact(context, loaded[0], settings.metadata)
        if reason is not None and _archives_nothing(context, *loaded, settings):
            return NotDue(reason)
    return _run_services(context.reloaded(), engine, settings)


@retry_on_stale_files
def _run_services(context: TableContext, engine: Engine | None, settings: MetadataServiceSettings) -> Outcome:
    """Run due services on the metadata table in the properties; again on the next one if it is dropped or rebuilt."""
    if not context.config.has_metadata_table:
        return Disabled("the table has no metadata table")
    store = MetadataStore.open(context)
    timeline = store.load()
    try:
        return _run_services_of(store, timeline, engine, settings)
    except TableState:
        current, opened = context.timeline.load(), MetadataCache(store.context, timeline, lambda partition: ())
        MetadataTable(context, current, opened).check_not_stale()
        raise


def _run_services_of(
    store: MetadataStore, timeline: Timeline, engine: Engine | None, settings: MetadataServiceSettings
) -> Outcome:
    context = store.table
    results: list[str] = []
    reason = _reason_not_to_compact(context, timeline, settings.metadata)
    if reason is None:
        with context.locked(settings.lock_wait_ms) as locked:
            reason, compacted = _compact(MetadataStore.open(locked.reloaded()), engine, settings.metadata, settings.clean.commit)
            results.extend(f"compaction {instant}" for instant in compacted)
    if results:
        cleaned = run_clean(store.context, _clean_settings(settings.clean))
        if cleaned.instant is not None:
            results.append(f"{cleaned.file_count} files cleaned")
    if settings.archive is not None:
        archived = run_archive(store.context, _archive_settings(settings), timeline=store.load(), data_table=context.timeline)
        if archived.instants:
            results.append(f"{len(archived.instants)} instants archived")
    return Executed(", ".join(results)) if results else NotDue(reason or "")


def compact_metadata_table(
    context: TableContext, engine: Engine | None, settings: MetadataSettings, commit: CommitSettings, *, if_due: bool
) -> tuple[str | None, tuple[str, ...]]:
    """Compact the metadata table; return the reason not to, and the instants of the executed compactions."""
    with context.locked(commit.lock_wait_ms) as locked:
        store = MetadataStore.open(locked.reloaded())
        at_once = replace(settings, compact_after=1, compact_trigger=CompactionTrigger.NUM_COMMITS)
        return _compact(store, engine, settings if if_due else at_once, commit)


def _archives_nothing(context: TableContext, timeline: Timeline, data_table: Timeline, settings: MetadataServiceSettings) -> bool:
    if settings.archive is None:
        return True
    bounds = ArchivalBounds(last_clean=None, data_table=data_table)
    archival = _archive_settings(settings).archival
    return not plan_archival(timeline, archival, bounds, is_cow=False, zone=context.config.zone).instants


def _reason_not_to_compact(context: TableContext, timeline: Timeline, settings: MetadataSettings) -> str | None:
    """Return why no compaction is due. context: the table; timeline: that of its metadata table."""
    if timeline.pending(Action.COMPACTION):
        return None
    if settings.compact_trigger != CompactionTrigger.NUM_COMMITS:
        rules = CompactionRules(
            CompactionTrigger(settings.compact_trigger), max(1, settings.compact_after), settings.compact_after_seconds
        )
        zone = context.config.zone
        # The times of commits that built an index are no dates.
        dated = tuple(i for i in timeline.instants if not i.request_time.startswith(INIT_INSTANT_TIME))
        state = compaction_due(replace(timeline, instants=dated), rules, format_instant_time(context.env.now_ms(), zone), zone)
        return None if state.is_due else f"{state.reason} of the metadata table"
    last = max((i.completion_time or "" for i in timeline.completed(Action.COMMIT)), default="")
    count = sum(1 for i in timeline.completed(Action.DELTACOMMIT) if (i.completion_time or "") > last)
    if count >= settings.compact_after:
        return None
    return f"{count} of {settings.compact_after} delta commits since the last compaction of the metadata table"


def _compact(
    store: MetadataStore, engine: Engine | None, settings: MetadataSettings, commit: CommitSettings
) -> tuple[str | None, tuple[str, ...]]:
    """The caller holds the lock."""
    store.roll_back_pending()
    timeline = store.load()
    done: list[str] = []
    for pending in timeline.pending(Action.COMPACTION):
        if is_run_by_hudi(store.context, pending, commit):
            return f"compaction {pending.request_time} of the metadata table is run by another process", tuple(done)
        _execute(store, engine, pending.request_time)
        done.append(pending.request_time)
    timeline = store.load()
    open_commits = timeline.pending(Action.DELTACOMMIT)
    if open_commits:
        return f"delta commit {open_commits[0].request_time} of the metadata table is pending", tuple(done)
    reason = _reason_not_to_compact(store.table, timeline, settings)
    if reason is not None:
        return reason, tuple(done)
    current = store.table.timeline.load()
    incomplete = {i.request_time for i in current.pending()}.intersection(
        i.request_time for i in timeline.completed(Action.DELTACOMMIT)
    )
    if incomplete:
        return f"instant {min(incomplete)} is pending on the table but completed in the metadata table", tuple(done)
    operations = _plan(store, current)
    if not operations:
        return "no log files to compact", tuple(done)
    time = store.next_time(current, timeline)
    plan = CompactionPlan(operations=tuple(operations))
    store.context.timeline.request(time, Action.COMPACTION, plan.encode(store.table.env.token_bytes(16)))
    _execute(store, engine, time)
    sweep_side_files(store.context, store.table.timeline)
    return None, (*done, time)


def _plan(store: MetadataStore, current_timeline: Timeline) -> list[CompactionOperation]:
    reader = MetadataTable(store.table, current_timeline)
    config = store.table.config
    operations = []
    # The base files of a partition in progress are written after its first logs, but have an earlier instant.
    for partition in config.metadata_partitions:
        for slice_ in reader.slices(partition):
            if any(not log.name.instant_time.startswith(INIT_INSTANT_TIME) for log in slice_.logs):
                operations.append(_operation(slice_))
    return operations


def _operation(slice_: FileSlice) -> CompactionOperation:
    size_bytes = float(sum(log.size_bytes for log in slice_.logs))
    return CompactionOperation(
        base_instant_time=slice_.base_instant,
        delta_file_paths=tuple(log.name.text for log in slice_.logs),
        data_file_path=slice_.base.name.text if slice_.base else None,
        file_id=slice_.file_id,
        partition_path=slice_.partition,
        metrics={"TOTAL_LOG_FILES": float(len(slice_.logs)), "TOTAL_LOG_FILES_SIZE": size_bytes},
    )


def _execute(store: MetadataStore, engine: Engine | None, time: str) -> None:
    """Execute a plan from the beginning, after deleting the files of failed attempts."""
    timeline = store.context.timeline
    store.storage.delete(store.files_of_instant(time))
    requested = Instant(time, Action.COMPACTION, State.REQUESTED)
    plan = load_compaction_plan(timeline, requested)
    timeline.start_or_join(requested)
    sizes = {p: store.sizes(p) for p in {operation.partition_path or "" for operation in plan.operations or ()}}
    logs = [
        join_path(operation.partition_path or "", file_name(path))
        for operation in plan.operations or ()
        for path in operation.delta_file_paths or ()
    ]
    expected = load_written_sizes(store.context.timeline, store.load(), logs)
    tasks = [_task(store, time, operation, sizes, expected) for operation in plan.operations or ()]
    if engine is None:
        written = in_threads(run_metadata_merge, tasks, _MERGES_AT_ONCE)
    else:
        written = engine.run_tasks(run_metadata_merge, tasks, [task.slice.size_bytes for task in tasks])
    statistics = [stat for stat in written if stat is not None]
    inflight = Instant(time, Action.COMPACTION, State.INFLIGHT)
    store.complete(inflight, build_commit_metadata(statistics, "COMPACT", compacted=True), store.table.timeline.load())


def _task(
    store: MetadataStore,
    time: str,
    operation: CompactionOperation,
    sizes: Mapping[str, Mapping[str, int]],
    written: Mapping[str, int],
) -> MergeGroupTask:
    """Raises TableState if a file of the plan is missing, CorruptData if a log is shorter than in its commit metadata."""
    partition, file_id = operation.partition_path or "", operation.file_id or ""

    def size_of(name: str) -> int:
        size_bytes = sizes[partition].get(name)
        if size_bytes is None:
            raise TableState(
                f"{store.storage.absolute(join_path(partition, name))} is missing, but compaction {time} of the metadata table "
                "reads it; Table.drop_metadata_table() makes the table writable again"
            )
        return size_bytes

    base = None
    if operation.data_file_path:
        name_text = file_name(operation.data_file_path)
        name = parse_base_file(name_text)
        assert name is not None, "plans contain base file names"
        base = BaseFile(join_path(partition, name_text), name, size_of(name_text))
    logs = []
    for path in operation.delta_file_paths or ():
        name_text = file_name(path)
        log_name = parse_log_file(name_text)
        assert log_name is not None, "plans contain log file names"
        log_path = join_path(partition, name_text)
        logs.append(LogFile(log_path, log_name, check_size(store.storage, log_path, size_of(name_text), written)))
    logs.sort(key=lambda log: log.name.sort_key)
    slice_ = FileSlice(partition, file_id, operation.base_instant_time or "", base, tuple(logs))
    token = str(WriteToken(parse_file_group(file_id)[1], 0, 0))
    kind = index_for_partition(partition)
    if kind is None:
        raise Unsupported(f"cannot compact partition {partition} of the metadata table: unknown index type")
    return MergeGroupTask(
        MetadataFile(store.storage.spec(), partition, file_id, time, token), slice_, _merge_rule(store, kind, partition)
    )


def _merge_rule(store: MetadataStore, kind: type[Index], partition: str) -> CellMergeRule:
    """The merge rule for the record layout in the definition; partition statistics have no definition of their own."""
    if kind.typed_merge is None:
        return kind.merge
    definition = load_index_definitions(store.table).get(partition if kind.is_defined else COLUMN_STATS)
    return kind.typed_merge if definition is not None and definition.layout > 1 else kind.merge


def _clean_settings(table: CleanSettings) -> CleanSettings:
    retained = max(_MIN_RETAINED, -(-table.cleaning.commits_retained * 12 // 10))
    cleaning = replace(
        table.cleaning,
        policy=CleaningPolicy.KEEP_LATEST_COMMITS,
        commits_retained=retained,
        trigger_commits=1,
        # These are about partitions and commits of the table.
        selected_partitions=(),
        partition_pattern=None,
        max_commits=_UNLIMITED,
        empty_interval_hours=-1,
    )
    # A pending delta commit of the metadata table has no heartbeat of its own, and its writer may be alive.
    return CleanSettings(cleaning, replace(table.commit, failed_writes="NEVER"))


def _archive_settings(settings: MetadataServiceSettings) -> ArchiveSettings:
    table = settings.archive
    assert table is not None, "the caller has checked this"
    cleaning = _clean_settings(settings.clean).cleaning
    # Cleaning counts commits on the active timeline. With fewer commits than it retains, it never deletes anything.
    min_commits = max(table.archival.min_commits, cleaning.commits_retained) + 1
    archival = replace(
        table.archival,
        min_commits=min_commits,
        max_commits=min_commits + table.archival.max_commits - table.archival.min_commits,
        delta_commits_counted=settings.metadata.compact_after,
        cleaning=cleaning,
    )
    return replace(table, archival=archival)
