"""Clean: delete old file slices, and record the deleted files on the timeline.

    1. under the LAZY policy roll failed writes back, and drop expired clusterings; complete unfinished cleans
    2. plan on a loaded timeline, without the lock: `planning.cleaning` explains why that is safe
    3. lock: write `<t>.clean.requested` with the plan, and `<t>.clean.inflight` with the plan again; unlock
    4. delete the files
    5. lock: delete the folders of empty partitions, unless a write is pending; update the metadata table; publish
       `<t>_<c>.clean`

A clean of few files holds the lock from 3 to 5. To delete them takes less time than to acquire the lock again and to load
the timeline again, and other writers wait once instead of twice.

A heartbeat shows from before 3 on that the clean is alive. A crash leaves a pending clean, whose plan the next clean
completes: at once if PyHudi created it and its process is dead; otherwise when its newest file is old (see
`is_action_dead`). Missing files count as failed deletions, as in Hudi, and are not an error.

Source: docs/formats/writing.md, "Cleaning".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial

from pyhudi.errors import InvalidRequest, SnapshotOutdated, TableState
from pyhudi.format.actions.clean_metadata import (
    PARTITIONS_KEY,
    SAVEPOINTED_TIMESTAMPS_KEY,
    ActionInstant,
    CleanerPlan,
    CleanFileInfo,
    CleanMetadata,
    CleanPartitionMetadata,
)
from pyhudi.format.instants import Action, Instant, State
from pyhudi.format.paths import PARTITION_METADATA_FILE, file_name, parent_folder
from pyhudi.metadata_table.writer.metadata_commit import apply_clean_to_metadata
from pyhudi.operations.admin.restore import after_dead_restore
from pyhudi.operations.commit.action_liveness import is_action_dead
from pyhudi.operations.commit.begin_checks import check_may_begin, check_no_pending_restore
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.events import observed
from pyhudi.operations.commit.instant_times import new_instant_time
from pyhudi.operations.commit.plan_ownership import PlanTaken, claim, plan_and_claim
from pyhudi.operations.commit.results import CleanResult
from pyhudi.operations.commit.rollback import rollback_failed_writes
from pyhudi.operations.commit.transaction import Transaction
from pyhudi.operations.services.clean_state import load_last_clean, load_pending_plan, load_savepointed_files
from pyhudi.operations.services.cluster import drop_orphaned_clusterings
from pyhudi.options.declaration import OptionSettings
from pyhudi.planning.cleaning import (
    CleaningRules,
    LastClean,
    PartitionClean,
    commits_to_inspect,
    earliest_instant_to_retain,
    empty_clean_instant,
    limit_commits,
    partitions_with_garbage,
    plan_partition,
    reason_not_to_clean,
    savepointed_times,
)
from pyhudi.storage import open_storage
from pyhudi.storage.base import FileInfo, Storage, StorageSpec
from pyhudi.storage.liveness import WriterHeartbeat
from pyhudi.storage.thread_pool import in_threads
from pyhudi.table.file_slices import BaseFile, FileGroup, LogFile, SlicingState, build_file_groups, visible_slices
from pyhudi.table.listing import DirectoryListing
from pyhudi.table.pending_plans import load_compaction_plan, load_pending_compactions, load_planned_files, planned_path
from pyhudi.table.snapshot import load_replaced_groups, read_commit
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import WRITE_ACTIONS, Timeline
from pyhudi.tasks.engine_protocol import Engine

_DELETE_BYTES = 256 << 10
"""Cost of deleting one file, as an equivalent number of bytes read and written."""

_FILES_UNDER_LOCK = 32
"""Most files that a clean deletes while it holds the lock."""

_RELOADS = 4

_INSPECTED_CACHE_KEY = "commits that a clean without files inspected"

MetadataListener = Callable[[Timeline | None], None]
"""Receives the timeline of the metadata table after a commit to it; None if there is no metadata table."""


@dataclass(frozen=True, slots=True)
class CleanSettings(OptionSettings):
    """Settings of one clean."""

    cleaning: CleaningRules
    commit: CommitSettings


@dataclass(frozen=True, slots=True)
class PlannedClean:
    """The files that a clean would delete.

    Attributes:
        plan: The plan, None if there is nothing to delete.
        reason: Why there is nothing to delete.
        earliest: Earliest instant to retain.
        files: Paths by partition.
        sizes: Bytes by path.
        partitions: Partitions to delete.
    """

    plan: CleanerPlan | None
    reason: str
    earliest: Instant | None
    files: Mapping[str, tuple[str, ...]]
    sizes: Mapping[str, int]
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Cleaned:
    """What a clean did.

    Attributes:
        instant: The completed instant; None if another process has completed the same clean.
        missing: Number of missing files.
        partitions: The deleted partitions.
    """

    instant: Instant | None = None
    missing: int = 0
    partitions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Requested:
    """A clean that this process has put on the timeline.

    Attributes:
        transaction: The clean.
        locked: The table under the lock, with its current properties.
        timeline: The timeline with the clean.
    """

    transaction: Transaction
    locked: TableContext
    timeline: Timeline


@dataclass(frozen=True, slots=True)
class _Inspected:
    """A plan without files: every commit before its earliest instant to retain left nothing to delete.

    It holds for the same last clean and settings, if neither a savepoint nor a pending instant retained files.
    """

    last: LastClean | None
    settings: CleaningRules
    earliest: str


def preview_clean(context: TableContext, settings: CleanSettings) -> CleanResult:
    """Return what a clean would delete now, without changing anything."""
    _, planned = _plan_on(context, context.timeline.load(), settings.cleaning)
    return CleanResult(
        dry_run=True,
        instant=None,
        completion_time=None,
        policy=str(settings.cleaning.policy),
        reason=planned.reason,
        earliest_retained=planned.earliest.request_time if planned.earliest else None,
        files=planned.files,
        size_bytes=sum(planned.sizes.values()),
        partitions_deleted=planned.partitions,
    )


@observed("clean")
def run_clean(
    context: TableContext,
    settings: CleanSettings,
    *,
    timeline: Timeline | None = None,
    engine: Engine | None = None,
    on_metadata_commit: MetadataListener = lambda timeline: None,
) -> CleanResult:
    """Complete unfinished cleans, then clean.

    Args:
        timeline: A freshly loaded timeline, so that it need not be loaded again.
        engine: Deletes the files; None uses threads.
        on_metadata_commit: Called with the timeline of the metadata table after the clean has committed to it, or None
            if there is none.

    Raises:
        TableState: A restore is pending.
        CorruptData: The plan of a pending clean is unreadable.
    """
    rolled_back: tuple[str, ...] = ()
    if settings.commit.failed_writes == "LAZY":
        rolled_back = tuple(result.rolled_back for result in rollback_failed_writes(context, settings.commit))
        if settings.commit.clustering_expiry_ms is not None:
            rolled_back += drop_orphaned_clusterings(context, settings.commit)
        timeline = timeline if not rolled_back else None
    store = context.timeline
    now = timeline if timeline is not None else store.load()
    if now.pending(Action.RESTORE):
        after_dead_restore(context, settings.commit, lambda: check_no_pending_restore(context, store.load(), "cleaning"))
        now = store.load()
    pending = now.pending(Action.CLEAN)
    finished = tuple(i.request_time for i in pending if finish_clean(context, settings.commit, i, engine))
    if pending:
        now = store.load()
    now, planned = _plan_on(context, now, settings.cleaning)
    cleaned = _Cleaned()
    if planned.plan is not None:
        request = partial(_request, context, settings, planned.plan, now)
        published = _clean(context, settings.commit, planned.plan, request, engine, on_metadata_commit)
        if published is None:
            why = "another process concurrently cleaned, created a savepoint, planned a service or rolled a write back"
            planned = PlannedClean(None, why, planned.earliest, {}, {}, ())
        else:
            cleaned = published
            if cleaned.instant is None:
                planned = replace(planned, reason="another process completed it")
    done = cleaned.instant
    return CleanResult(
        dry_run=False,
        instant=done.request_time if done else None,
        completion_time=done.completion_time if done else None,
        policy=str(settings.cleaning.policy),
        reason=planned.reason,
        earliest_retained=planned.earliest.request_time if planned.earliest else None,
        files=planned.files,
        missing=cleaned.missing,
        size_bytes=sum(planned.sizes.values()),
        partitions_deleted=cleaned.partitions,
        finished=finished,
        rolled_back=rolled_back,
    )


def plan_clean(context: TableContext, timeline: Timeline, settings: CleaningRules) -> PlannedClean:
    """Decide which files to delete. Lists only partitions that may have any; lists nothing if no clean is due."""
    store = context.timeline
    last = load_last_clean(store, timeline)
    reason = reason_not_to_clean(timeline, settings, last)
    earliest: Instant | None = None
    if reason is None and settings.policy.has_earliest_instant:
        earliest = earliest_instant_to_retain(timeline, settings, context.env.now_ms(), context.config.zone)
        if earliest is None:
            reason = "every commit is retained"
        else:
            earliest = limit_commits(timeline, settings, last, earliest)
    if reason is not None:
        return PlannedClean(None, reason, None, {}, {}, ())
    listing = DirectoryListing(context.storage)
    savepoints = savepointed_times(timeline)
    cached: _Inspected | None = context.operation_cache.get(_INSPECTED_CACHE_KEY)
    since = last
    if cached is not None and (cached.last, cached.settings) == (last, settings) and not savepoints:
        since = LastClean("", cached.earliest, "", ())
    inspected = commits_to_inspect(
        timeline, settings, since, earliest, history_is_empty=since is None and _history_is_empty(context)
    )
    partitions: Iterable[str]
    if inspected is None:
        partitions = settings.partitions_to_clean(listing.partitions())
    else:
        partitions = sorted(set().union(*(partitions_with_garbage(read_commit(store, i)) for i in inspected)))
    sizes: dict[str, int] = {}
    partition_cleans: dict[str, PartitionClean] = {}
    if partitions:
        state, needed_from = _load_slicing(context, timeline)
        planned = load_planned_files(store, timeline.pending())
        saved = load_savepointed_files(store, timeline)
        for partition, infos in listing.files(partitions).items():
            groups = build_file_groups(partition, infos, state, change_logs=True)
            # A write that was pending when a savepoint was created counts at its time now: a restore needs both states.
            seen = {file_name(file.path) for time in savepoints for file in _files_as_of(groups, state, time)}
            choice = plan_partition(
                partition,
                groups,
                state,
                settings,
                earliest=earliest,
                savepointed=saved | seen,
                planned=planned,
                needed_from=needed_from,
            )
            partition_cleans[partition] = choice
            wanted = set(choice.files)
            sizes.update((info.path, info.size_bytes) for info in infos if info.path in wanted)
    files = {partition: choice.files for partition, choice in partition_cleans.items() if choice.files}
    if not files:
        earliest_if_empty = empty_clean_instant(timeline, settings, last, earliest, context.env.now_ms(), context.config.zone)
        if earliest_if_empty is None:
            if inspected is not None and earliest is not None and not savepoints and not timeline.pending():
                context.operation_cache.put(_INSPECTED_CACHE_KEY, _Inspected(last, settings, earliest.request_time))
            return PlannedClean(None, "nothing to delete", earliest, {}, {}, ())
        earliest = earliest_if_empty
    emptied = tuple(partition for partition, choice in partition_cleans.items() if choice.delete_partition)
    completed = timeline.completed_writes()
    plan = CleanerPlan(
        earliest_instant_to_retain=None
        if earliest is None
        else ActionInstant(earliest.request_time, earliest.action.value, State.COMPLETED.name),
        last_completed_commit_timestamp=completed[-1].request_time if completed else "",
        policy=str(settings.policy),
        file_paths_to_be_deleted_per_partition={
            partition: tuple(CleanFileInfo(context.storage.absolute(path), False) for path in paths)
            for partition, paths in files.items()
        },
        partitions_to_be_deleted=emptied,
        extra_metadata={
            **({SAVEPOINTED_TIMESTAMPS_KEY: ",".join(savepoints)} if savepoints else {}),
            **({PARTITIONS_KEY: settings.partition_filter} if settings.partition_filter else {}),
        },
    )
    return PlannedClean(plan, "", earliest, files, sizes, emptied)


def _files_as_of(groups: Sequence[FileGroup], state: SlicingState, time: str) -> Iterator[BaseFile | LogFile]:
    for slice_ in visible_slices(groups, state, time):
        yield from (*([slice_.base] if slice_.base else ()), *slice_.logs)


def _plan_on(context: TableContext, timeline: Timeline, settings: CleaningRules) -> tuple[Timeline, PlannedClean]:
    """Return the plan, and the timeline that it is based on: a newer one if plans or savepoints were dropped since."""
    for _ in range(_RELOADS):
        try:
            return timeline, plan_clean(context, timeline, settings)
        except SnapshotOutdated:
            timeline = context.timeline.load()
    return timeline, plan_clean(context, timeline, settings)


def _load_slicing(context: TableContext, timeline: Timeline) -> tuple[SlicingState, dict[tuple[str, str], str]]:
    store = context.timeline
    state = SlicingState(
        timeline,
        load_replaced_groups(store, timeline),
        load_pending_compactions(store, timeline),
        context.config.version.has_one_log_file_per_commit,
    )
    needed: dict[tuple[str, str], str] = {}
    for instant in timeline.pending(Action.COMPACTION, Action.LOGCOMPACTION):
        for operation in load_compaction_plan(store, instant).operations or ():
            group = operation.partition_path or "", operation.file_id or ""
            base = operation.base_instant_time or ""
            needed[group] = min(base, needed.get(group, base))
    return state, needed


def _history_is_empty(context: TableContext) -> bool:
    return not context.storage.list(context.config.history_path).files


def finish_clean(context: TableContext, settings: CommitSettings, pending: Instant, engine: Engine | None = None) -> bool:
    """Complete a clean whose process died.

    Returns:
        False if the process may be alive, or there was nothing to complete.
    """
    dead = is_action_dead(context, pending, settings)
    if not dead and pending.state is State.REQUESTED:
        # Its plan may be incomplete.
        return False
    plan = load_pending_plan(context, pending)
    if not dead:
        return False
    if plan is None:
        _drop_unreadable(context, settings, pending)
        return False
    content = plan.encode(context.env.token_bytes(16))
    try:
        claimed = claim(context, pending.request_time, Action.CLEAN, settings, resumes=True, content=content)
    except PlanTaken:
        return False
    with _beating(claimed.heartbeat):
        _execute(context, settings, pending.request_time, plan, engine)
    return True


def _drop_unreadable(context: TableContext, settings: CommitSettings, pending: Instant) -> None:
    """Drop a requested clean whose plan is unreadable: it has deleted nothing."""
    with context.locked(settings.lock_wait_ms) as locked:
        if pending in locked.timeline.load().instants and load_pending_plan(locked, pending) is None:
            locked.timeline.remove_pending(pending.request_time, Action.CLEAN, State.REQUESTED)


@contextmanager
def _beating(heartbeat: WriterHeartbeat) -> Iterator[None]:
    """Stop the heartbeat of a clean when the block ends; after an error its file remains, and the clean counts as dead."""
    try:
        yield
    except BaseException:
        heartbeat.stop(delete=False)
        raise
    heartbeat.stop(delete=True)


def _clean(
    context: TableContext,
    settings: CommitSettings,
    plan: CleanerPlan,
    request: Callable[[TableContext], _Requested | None],
    engine: Engine | None,
    on_metadata_commit: MetadataListener,
) -> _Cleaned | None:
    """Claim the plan with ``request`` under the lock, and execute it; return None if another action came first."""
    paths = _paths_by_partition(context, plan)
    with ExitStack() as running:
        with context.locked(settings.lock_wait_ms) as locked:
            requested = request(locked)
            if requested is None:
                return None
            clean = requested.transaction
            running.enter_context(_beating(clean.heartbeat))
            if sum(map(len, paths.values())) <= _FILES_UNDER_LOCK:
                begun_ms = context.env.now_ms()
                deleted = _delete_files(context.storage, paths, None)
                return _publish(
                    requested.locked,
                    settings,
                    clean.instant_time,
                    plan,
                    deleted,
                    requested.timeline,
                    begun_ms=begun_ms,
                    on_metadata_commit=on_metadata_commit,
                )
        return _execute(context, settings, clean.instant_time, plan, engine, on_metadata_commit)


def _request(
    context: TableContext, settings: CleanSettings, plan: CleanerPlan, planned_on: Timeline, locked: TableContext
) -> _Requested | None:
    """Claim the plan on the timeline; return None if a clean, a savepoint or another plan came first."""
    timeline = locked.timeline.load()
    config = check_may_begin(context, timeline, "cleaning")
    if timeline.pending(Action.CLEAN) and not settings.cleaning.several_pending:
        return None
    if not all(timeline.is_completed(write.request_time) for write in planned_on.completed_writes()):
        # After a rollback, a file slice that was superseded may be the newest one.
        return None
    if set(savepointed_times(timeline)) - set((plan.extra_metadata or {}).get(SAVEPOINTED_TIMESTAMPS_KEY, "").split(",")):
        # A savepoint created after planning may retain files that the plan deletes.
        return None
    known = {instant.step for instant in planned_on.pending()}
    needed = load_planned_files(locked.timeline, (i for i in timeline.pending() if i.step not in known))
    if any(needed.intersection(paths) for paths in _paths_by_partition(context, plan).values()):
        # A service planned since may read them too; a service planned later sees this clean.
        return None
    time = new_instant_time(context, timeline, settings.commit)
    content = plan.encode(context.env.token_bytes(16))
    try:
        claimed = plan_and_claim(context, locked, time, Action.CLEAN, content, settings.commit, content=content)
    except TableState:
        if all(i.state is State.REQUESTED for i in locked.timeline.load_files() if i.request_time == time):
            raise
        # A clean of Hudi executes the plans of others without the lock.
        return None
    inflight = Instant(time, Action.CLEAN, State.INFLIGHT)
    with_clean = Timeline.of((*timeline.instants, inflight), timeline.archived_completions)
    return _Requested(claimed, replace(locked, config=config), with_clean)


def _execute(
    context: TableContext,
    settings: CommitSettings,
    request_time: str,
    plan: CleanerPlan,
    engine: Engine | None,
    on_metadata_commit: MetadataListener = lambda timeline: None,
) -> _Cleaned:
    """Delete the files of a plan that is on the timeline, and publish the clean under the lock."""
    begun_ms = context.env.now_ms()
    # If another process runs the same plan, repeated deletions are harmless, and one of the two completes it.
    deleted = _delete_files(context.storage, _paths_by_partition(context, plan), engine)
    with context.locked(settings.lock_wait_ms) as locked:
        timeline = locked.timeline.load()
        return _publish(
            locked.reloaded(),
            settings,
            request_time,
            plan,
            deleted,
            timeline,
            begun_ms=begun_ms,
            on_metadata_commit=on_metadata_commit,
        )


def _publish(
    locked: TableContext,
    settings: CommitSettings,
    request_time: str,
    plan: CleanerPlan,
    deleted: Mapping[str, CleanPartitionMetadata],
    timeline: Timeline,
    *,
    begun_ms: int,
    on_metadata_commit: MetadataListener,
) -> _Cleaned:
    """Publish a clean whose files are deleted, unless another process has.

    The caller holds the lock, and has loaded the properties and the timeline under it.
    """
    env, missing = locked.env, sum(len(metadata.failed_delete_files) for metadata in deleted.values())
    inflight = Instant(request_time, Action.CLEAN, State.INFLIGHT)
    if inflight.step not in {instant.step for instant in timeline.pending(Action.CLEAN)}:
        return _Cleaned(missing=missing)
    deleted_partitions = _delete_partitions(locked, timeline, plan.partitions_to_be_deleted or ())
    # Without this value the next clean would search from the time of the first clean.
    earliest = plan.earliest_instant_to_retain
    metadata = CleanMetadata(
        start_clean_time=request_time,
        time_taken_in_millis=max(0, env.now_ms() - begun_ms),
        total_files_deleted=sum(len(entry.success_delete_files) for entry in deleted.values()),
        earliest_commit_to_retain=earliest.timestamp if earliest else "",
        last_completed_commit_timestamp=plan.last_completed_commit_timestamp,
        partition_metadata={
            partition: CleanPartitionMetadata(
                partition,
                plan.policy,
                entry.delete_path_patterns,
                entry.success_delete_files,
                entry.failed_delete_files,
                partition in deleted_partitions,
            )
            for partition, entry in {
                **{p: CleanPartitionMetadata(p, plan.policy) for p in deleted_partitions},
                **deleted,
            }.items()
        },
        extra_metadata=dict(plan.extra_metadata or {}),
    )
    on_metadata_commit(apply_clean_to_metadata(locked, request_time, metadata, timeline))
    time = new_instant_time(locked, timeline, settings)
    done = locked.timeline.complete(inflight, Action.CLEAN, time, metadata.encode(env.token_bytes(16)))
    return _Cleaned(done, missing, deleted_partitions)


def _paths_by_partition(context: TableContext, plan: CleanerPlan) -> dict[str, tuple[str, ...]]:
    named = {
        partition: [info.file_path or "" for info in infos]
        for partition, infos in (plan.file_paths_to_be_deleted_per_partition or {}).items()
    }
    for partition, files in (plan.files_to_be_deleted_per_partition or {}).items():
        # Plans before version 2 contain names, or paths of files.
        prefix = context.storage.absolute(partition)
        named.setdefault(partition, []).extend(name if "/" in name else f"{prefix}/{name}" for name in files)
    paths = {}
    for partition, uris in named.items():
        planned_paths = []
        for uri in uris:
            path = planned_path(partition, uri)
            if path is None:
                raise InvalidRequest(
                    f"the clean plan names {uri}, which is not a file of partition {partition!r} of "
                    f"{context.storage.uri}; no file of the plan was deleted"
                )
            planned_paths.append(path)
        paths[partition] = tuple(planned_paths)
    return paths


def _delete_files(
    storage: Storage, paths: Mapping[str, tuple[str, ...]], engine: Engine | None
) -> dict[str, CleanPartitionMetadata]:
    """Delete the files, several partitions concurrently. The lists of the result contain names."""
    if not paths:
        return {}
    if engine is not None:
        worth = [len(partition_paths) * _DELETE_BYTES for partition_paths in paths.values()]
        done = engine.run_tasks(partial(_delete_on_worker, storage.spec()), list(paths.items()), worth)
        return {metadata.partition_path: metadata for metadata in done}
    deleted = in_threads(partial(_delete_in_partition, storage), paths.items())
    return {metadata.partition_path: metadata for metadata in deleted}


def _delete_on_worker(spec: StorageSpec, entry: tuple[str, tuple[str, ...]]) -> CleanPartitionMetadata:
    return _delete_in_partition(open_storage(spec), entry)


def _delete_in_partition(storage: Storage, entry: tuple[str, tuple[str, ...]]) -> CleanPartitionMetadata:
    partition, planned = entry
    existing = {info.path for folder in {parent_folder(path) for path in planned} for info in storage.list(folder).files}
    present_paths = [path for path in planned if path in existing]
    storage.delete(present_paths)
    return CleanPartitionMetadata(
        partition_path=partition,
        policy="",
        delete_path_patterns=_names(planned),
        success_delete_files=_names(present_paths),
        failed_delete_files=_names(path for path in planned if path not in existing),
    )


def _delete_partitions(context: TableContext, timeline: Timeline, partitions: Iterable[str]) -> tuple[str, ...]:
    """Delete the folders of partitions without data files. The caller holds the lock."""
    # Under the lock no write can begin. A pending write may be about to add files, so in that case every folder stays.
    candidates = [partition for partition in partitions if partition]
    if not candidates or timeline.pending(*WRITE_ACTIONS, Action.COMPACTION, Action.LOGCOMPACTION, Action.CLUSTERING):
        return ()
    deleted = []
    for partition in candidates:
        if all(_is_partition_metadata(info) for info in context.storage.walk(partition)):
            context.storage.delete_folder(partition)
            deleted.append(partition)
    return tuple(deleted)


def _is_partition_metadata(info: FileInfo) -> bool:
    return info.name.startswith(PARTITION_METADATA_FILE)


def _names(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(file_name(path) for path in paths)
