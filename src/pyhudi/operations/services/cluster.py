"""Clustering: rewrite file groups in another order and size, or into other hash nodes (bucket resizing).

Planning and execution are two steps, possibly by two processes. Rows in a bucket of the simple bucket index stay in it:
each such file group is rewritten by itself, into one whose file id names the same bucket, whichever writer planned it.

    schedule   lock: choose partitions, file slices and groups; `<t>.clustering.requested` holds the plan
    execute    `<t>.clustering.inflight` (one executor); one task a group; lock: check that no write changed the groups
               concurrently; then `<t>_<c>.replacecommit` with the new file groups and those that they replace

While a plan is pending, PyHudi writers refuse to update its file groups; inserts go elsewhere. An executor that died
leaves the inflight file; the next one removes its files and starts again.

Source: docs/formats/writing.md, "Clustering".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Annotated, Any

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.features.consistent_hashing.hashing_store import partitions_with_consistent_hashing, store_hashing_metadata
from pyhudi.features.consistent_hashing.plan_resizes import ResizeRules
from pyhudi.features.consistent_hashing.resize_service import (
    check_is_resize,
    choose_resizes,
    reason_not_to_resize,
    resized_hashing_metadata,
)
from pyhudi.format.actions.clustering_plan import COPY_STRATEGIES
from pyhudi.format.actions.commit_metadata import Operation
from pyhudi.format.actions.requested_replace import RequestedReplaceMetadata
from pyhudi.format.instants import Action, Instant, State, parse_instant_time
from pyhudi.format.meta_columns import RECORD_KEY, with_meta_fields
from pyhudi.format.names import WriteToken, format_bucket_prefix, parse_bucket
from pyhudi.metadata_table.writer.metadata_commit import indexing_requirements
from pyhudi.metadata_table.writer.metadata_settings import MetadataSettings
from pyhudi.operations.commit.check_writable import check_writable
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.events import observed
from pyhudi.operations.commit.hbase_hooks import check_hbase
from pyhudi.operations.commit.orphan_cleanup import delete_files_of_attempts
from pyhudi.operations.commit.plan_ownership import drop_orphaned_plan, drop_plan
from pyhudi.operations.commit.precommit_checks import ValidatorSettings
from pyhudi.operations.commit.results import ClusteringResult
from pyhudi.operations.commit.rollback import rollback_failed_writes
from pyhudi.operations.commit.scheduled_action import Rewrite, RewriteAction, plan_and_run, run_all, run_planned, schedule
from pyhudi.operations.commit.service_result import NotDue, RunSummary
from pyhudi.operations.commit.transaction import Transaction
from pyhudi.operations.services.clustering_plans import (
    ClusteringWork,
    WrittenGroups,
    candidate_partitions,
    check_not_superseded,
    clustering_document,
    commit_checkpoint,
    commits_after,
    last_clustering,
    load_clustering,
    never_runnable_reason,
    since_plan,
)
from pyhudi.options import service_options
from pyhudi.options.declaration import Option, Options, read_settings
from pyhudi.options.index_options import BUCKET_COUNT, BUCKET_ENGINE, BUCKET_INDEX_HASH_FIELD
from pyhudi.options.service_options import (
    CLUSTERING_GROUPING,
    CLUSTERING_PLAN_CLASS,
    CLUSTERING_PLAN_PARTITION_FILTER_MODE,
    CLUSTERING_SORT_COLUMNS,
    CLUSTERING_TARGET_FILE_MAX_BYTES,
    LAYOUT_OPTIMIZE_STRATEGY,
    TABLE_SERVICES_INCREMENTAL_ENABLED,
)
from pyhudi.options.write_options import INDEX_TYPE, MEMORY_BUDGET
from pyhudi.planning.clustering import (
    ClusterGroup,
    ClusteringDue,
    ClusteringRules,
    SliceRange,
    bucket_by_bucket,
    choose_partitions,
    clustering_due,
    eligible_slices,
    is_registered_strategy,
    plan_groups,
    requires_bucket_preservation,
)
from pyhudi.records.dotted_columns import field_at
from pyhudi.records.mergers import merge_rule
from pyhudi.table.snapshot import Snapshot
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.tasks.base_file_writer import FileSettings
from pyhudi.tasks.clustering_tasks import ClusterTask, RangeTask, ResizeTask, run_cluster, run_range, run_resize
from pyhudi.tasks.copy_row_groups import DEFAULT_COPY_RULES, CopyRules
from pyhudi.tasks.engine_protocol import Engine
from pyhudi.tasks.hbase_lookup import with_keys
from pyhudi.tasks.log_scan import InstantValidity
from pyhudi.tasks.write_tasks import WriterSpec, WriteStatus


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Settings of clustering.

    Attributes:
        plan: How plans are made.
        files: How files are written.
        commit: Commit settings.
        memory_budget_bytes: Bytes of rows in memory before they spill to local disk.
        metadata: Metadata table settings.
        max_commits: Number of commits after which an inline or asynchronous clustering is due.
        bucketed: The options declare the simple bucket index; without them the file ids of the table decide.
        copy: When row groups are copied instead of decoded.
        resize: How consistent hashing metadata is resized, for CONSISTENT_HASHING.
        hash_fields: Fields that assign rows to hash nodes, see `ConsistentHashingSettings`.
        validators: Pre-commit validators, None for none.
    """

    plan: ClusteringRules
    files: Annotated[FileSettings, service_options.CLUSTERING_EXECUTION_STRATEGY_CLASS, CLUSTERING_TARGET_FILE_MAX_BYTES]
    commit: CommitSettings
    memory_budget_bytes: Annotated[int, MEMORY_BUDGET]
    metadata: MetadataSettings
    max_commits: Annotated[
        int,
        service_options.CLUSTERING_INLINE,
        service_options.CLUSTERING_INLINE_MAX_COMMITS,
        service_options.CLUSTERING_ASYNC_MAX_COMMITS,
    ]
    bucketed: Annotated[bool, INDEX_TYPE, BUCKET_ENGINE] = False
    copy: CopyRules = DEFAULT_COPY_RULES
    resize: Annotated[ResizeRules | None, INDEX_TYPE, BUCKET_ENGINE] = None
    hash_fields: Annotated[tuple[str, ...], BUCKET_INDEX_HASH_FIELD] = ()
    validators: ValidatorSettings | None = None

    @classmethod
    def of(cls, options: Options, order_by: tuple[str, ...] | None = None, layout: str | None = None) -> ClusterSettings:
        """Build the settings from checked options; arguments of the call take precedence."""
        given = options.names(CLUSTERING_SORT_COLUMNS)
        if order_by is not None and given and tuple(order_by) != given:
            raise InvalidRequest(f"order_by={','.join(order_by)} contradicts {CLUSTERING_SORT_COLUMNS}={','.join(given)}")
        sort_columns = tuple(order_by) if order_by is not None else given
        resizes = (
            options.value_or_default(INDEX_TYPE) == "BUCKET" and options.value_or_default(BUCKET_ENGINE) == "CONSISTENT_HASHING"
        )
        strategy, filter_mode = _plan_strategy(options, resizes=resizes)
        grouping = options.text(CLUSTERING_GROUPING) or ("prefer_overlap" if sort_columns and strategy == "size" else strategy)
        plan = read_settings(
            ClusteringRules,
            options,
            sort_columns=sort_columns,
            layout=(layout or options.value_or_default(LAYOUT_OPTIMIZE_STRATEGY)).upper(),
            grouping=grouping,
            filter_mode=filter_mode,
            after_commit=_earliest_commit(options),
        )
        return read_settings(
            cls,
            options,
            plan=plan,
            files=replace(
                FileSettings.of(options), max_file_size_bytes=_file_limit(options, plan.target_file_bytes, resizes=resizes)
            ),
            max_commits=options.integer(
                service_options.CLUSTERING_INLINE_MAX_COMMITS
                if options.flag(service_options.CLUSTERING_INLINE)
                else service_options.CLUSTERING_ASYNC_MAX_COMMITS
            ),
            bucketed=options.value_or_default(INDEX_TYPE) == "BUCKET" and not resizes,
            copy=read_settings(CopyRules, options, mode=_copy_mode(options)),
            resize=ResizeRules.of(options) if resizes else None,
            validators=ValidatorSettings.of(options),
        )


def schedule_clustering(
    context: TableContext, engine: Engine, options: ClusterSettings, *, if_due: bool = False
) -> ClusteringResult:
    """Schedule a clustering, after dropping clusterings that no process will run.

    Args:
        options: Settings of the clustering.
        if_due: Schedule only if enough writes completed since the last plan.

    Returns:
        The plan; its instant is None if there is nothing to cluster.

    Raises:
        InvalidRequest: The table has consistent hashing metadata, and the options do not declare it.
        TableState: The options declare the bucket index, and the file ids of the table name no buckets.
    """
    action = Clustering(context, engine, options)
    planned = schedule(action, if_due=if_due)
    if isinstance(planned, NotDue):
        return ClusteringResult(None, None, reason=planned.reason)
    return _of_groups(planned.instant, action.planned, options.plan.sort_columns)


def plan_and_run_clustering(context: TableContext, engine: Engine, options: ClusterSettings) -> ClusteringResult:
    """Schedule a clustering, claim it at once, and run it. Raises the errors of `schedule_clustering` and
    `execute_clustering`.
    """
    done = plan_and_run(Clustering(context, engine, options), if_due=False)
    return ClusteringResult(None, None, reason=done.reason) if isinstance(done, NotDue) else done


def execute_clustering(context: TableContext, engine: Engine, instant_time: str, options: ClusterSettings) -> ClusteringResult:
    """Run a plan that is on the timeline.

    Raises:
        InstantNotFound: The plan is not on the timeline.
        TableState: Another process is running it.
        WriteConflict: One of its file groups was written to since it was planned. The plan can never run, and the next
            writer or clustering drops it.
    """
    return run_planned(Clustering(context, engine, options), instant_time)


def run_clusterings(
    context: TableContext,
    engine: Engine,
    options: ClusterSettings,
    *,
    schedule: bool = True,
    should_continue: Callable[[], bool] = lambda: True,
    inline: bool = False,
) -> RunSummary[ClusteringResult]:
    """Run all pending plans without a live owner; then schedule a clustering if due, and run it.

    A plan is dropped if one of its file groups was written to since.

    Args:
        options: Settings of the clustering.
        schedule: False runs pending plans only.
        should_continue: Called before each plan; if it returns False, the remaining plans stay pending.
        inline: It follows a write, see `ScheduledAction`.
    """
    return run_all(
        Clustering(context, engine, options, inline=inline), if_due=True, schedule=schedule, should_continue=should_continue
    )


@dataclass(frozen=True, slots=True)
class Clustering(RewriteAction[ClusteringResult, ClusteringWork]):
    """The scheduled action that rewrites file groups in another order and size; ``planned`` are the groups of its new plan."""

    options: ClusterSettings
    planned: list[ClusterGroup] = field(default_factory=list)

    action = Action.CLUSTERING
    operation = Operation.CLUSTER
    description = "clustering"

    @property
    def commit(self) -> CommitSettings:
        return self.options.commit

    @property
    def validators(self) -> ValidatorSettings | None:
        return self.options.validators

    def check(self) -> None:
        check_writable(self.context)
        has_metadata = bool(self.context.config.metadata_partitions)
        check_hbase(self.context, self.commit.hbase, has_metadata=has_metadata)

    def prepare(self, *, if_due: bool) -> NotDue | None:
        if self.options.resize is None:
            self._refuse_consistent_hashing()
        if if_due:
            due = is_clustering_due(self.context, self.context.timeline.load(), self.options)
            if not due.is_due:
                return NotDue(due.reason)
        drop_orphaned_clusterings(self.context, self.commit)
        if self.options.resize is not None and self.commit.failed_writes == "EAGER":
            # A failed write blocks a resize like a pending one.
            rollback_failed_writes(self.context, self.commit)
        return None

    def _refuse_consistent_hashing(self) -> None:
        """Raise an error for a clustering that is no resize, if the table has consistent hashing metadata."""
        if partitions_with_consistent_hashing(self.context):
            raise InvalidRequest(
                f"{self.context.storage.uri} has consistent hashing metadata, which clustering resizes: set "
                f"{INDEX_TYPE}=BUCKET, {BUCKET_ENGINE}=CONSISTENT_HASHING and {BUCKET_COUNT}"
            )

    def plan(self, snapshot: Snapshot, time: str, *, if_due: bool) -> bytes | NotDue:
        if if_due:
            due = is_clustering_due(snapshot.context, snapshot.timeline, self.options)
            if not due.is_due:
                return NotDue(due.reason)
        if self.options.resize is not None:
            busy = reason_not_to_resize(snapshot)
            if busy is not None:
                return busy
        commits = commits_after(snapshot, self.options.plan.after_commit)
        candidates = candidate_partitions(snapshot, self.options.plan)
        groups, missing = _choose_groups(self.workers, snapshot, candidates, self.options, commits)
        if not groups:
            partitions = len(snapshot.listing.partitions())
            if len(candidates) == partitions:
                return NotDue("nothing to cluster")
            return NotDue(
                f"nothing to cluster: only {len(candidates)} of {partitions} partitions changed since the last clustering; "
                f"{TABLE_SERVICES_INCREMENTAL_ENABLED}=false inspects all"
            )
        self.planned[:] = groups
        checkpoint = commit_checkpoint(snapshot, self.options.plan, commits, groups)
        is_copy = self.options.copy.mode == "always"
        plan = clustering_document(snapshot.context, groups, self.options.plan, missing, is_copy=is_copy, checkpoint=checkpoint)
        plan = replace(plan, extra_metadata={**(plan.extra_metadata or {}), **dict(self.commit.extra_metadata)})
        return RequestedReplaceMetadata.of_clustering(plan).encode(self.context.env.token_bytes(16))

    def load(self, snapshot: Snapshot, request_time: str) -> Rewrite[ClusteringWork]:
        context, timeline = self.context, snapshot.timeline
        work = load_clustering(context, timeline, request_time)
        start = since_plan(timeline, request_time)
        check_not_superseded(context, timeline, request_time, start, work.groups)
        if work.is_copy:
            delete_files_of_attempts(context, request_time, sorted({group.partition for group in work.groups}))
        check_is_resize(context, partitions_with_consistent_hashing(context), work, request_time)
        rings = resized_hashing_metadata(snapshot, work, request_time)
        for ring in rings.values():
            store_hashing_metadata(context, ring)
        by_bucket = not rings and requires_bucket_preservation(work.groups, is_bucketed=self.options.bucketed)
        # A node or a bucket is one file of any size.
        spec = _writer_spec(context, snapshot, request_time, self.options, all_columns=bool(rings) or by_bucket)
        tasks = _tasks(context, spec, timeline, work, self.options, by_bucket=by_bucket)
        replaced: dict[str, list[str]] = {}
        for group in work.groups:
            replaced.setdefault(group.partition, []).extend(s.file_id for s in group.slices)
        task: Callable[[Any], tuple[WriteStatus, ...]] = run_cluster
        pieces: Sequence[object] = tasks
        if rings:
            task, hashed = run_resize, self.options.hash_fields
            pieces = [ResizeTask(rewrite, rings[rewrite.partition], hashed) for rewrite in tasks]
        indexing = spec.indexing if tasks else None
        if not rings:
            return Rewrite(work, task, pieces, indexing, replaced=replaced, start=start)

        def verify(now: Timeline) -> None:
            check_not_superseded(context, now, request_time, start, work.groups)

        return Rewrite(work, task, pieces, indexing, replaced=replaced, verify=verify)

    def run(self, transaction: Transaction) -> ClusteringResult:
        return _observed_run(self.context, self, transaction)

    def result(
        self,
        rewrite: Rewrite[ClusteringWork],
        completed_instant: Instant,
        statuses: Sequence[WriteStatus],
        seconds: Mapping[str, float],
    ) -> ClusteringResult:
        stats = [status.stat for status in statuses]
        return replace(
            _of_groups(completed_instant.request_time, rewrite.plan.groups, rewrite.plan.order),
            completion_time=completed_instant.completion_time,
            file_groups_written=len(stats),
            file_groups_copied=sum(status.is_copied for status in statuses),
            decoded_reasons=tuple(dict.fromkeys(status.decoded_reason for status in statuses if status.decoded_reason)),
            rows=sum(stat.num_writes for stat in stats),
            bytes_written=sum(stat.total_write_bytes for stat in stats),
            seconds=seconds,
        )


@observed("cluster")
def _observed_run(context: TableContext, action: Clustering, transaction: Transaction) -> ClusteringResult:
    return RewriteAction.run(action, transaction)


def is_clustering_due(context: TableContext, timeline: Timeline, options: ClusterSettings) -> ClusteringDue:
    """Return whether enough writes completed since a clustering was planned or run."""
    waiting = timeline.pending(Action.CLUSTERING)
    last = waiting[-1].request_time if waiting else ""
    completed = last_clustering(context, timeline, after=last)
    last = last if completed is None else completed.request_time
    return clustering_due(timeline, last, options.max_commits)


def drop_clustering(context: TableContext, settings: CommitSettings, instant: str) -> bool:
    """Drop a pending clustering, with all files of a dead executor.

    Returns:
        False if it does not exist.

    Raises:
        PlanTaken: A live process is running it.
    """
    return drop_plan(context, settings, instant, Action.CLUSTERING)


def drop_orphaned_clustering(context: TableContext, settings: CommitSettings, instant: Instant) -> bool:
    """Drop a pending clustering that no process will run.

    That is one whose process died after starting it, or one that can never run. A plan that was not started waits
    without limit, or until it expires (`CommitSettings.clustering_expiry_ms`).

    Returns:
        False if a process may still run it; the plan then stays.
    """
    never = (
        _is_expired(context, settings, instant) or never_runnable_reason(context, context.timeline.load(), instant) is not None
    )
    return drop_orphaned_plan(context, settings, instant, never=never)


def _is_expired(context: TableContext, settings: CommitSettings, instant: Instant) -> bool:
    """Return True if no process has started the plan within the expiry."""
    if settings.clustering_expiry_ms is None or instant.state is not State.REQUESTED:
        return False
    age_ms = context.env.now_ms() - parse_instant_time(instant.request_time, context.config.zone)
    return age_ms >= settings.clustering_expiry_ms


def drop_orphaned_clusterings(context: TableContext, settings: CommitSettings) -> tuple[str, ...]:
    """Call `drop_orphaned_clustering` for all pending clusterings. Returns the request times of those that were dropped."""
    pending = context.timeline.load().pending(Action.CLUSTERING)
    return tuple(i.request_time for i in pending if drop_orphaned_clustering(context, settings, i))


def _choose_groups(
    engine: Engine,
    snapshot: Snapshot,
    changed: Sequence[str],
    options: ClusterSettings,
    commits: Sequence[WrittenGroups],
) -> tuple[tuple[ClusterGroup, ...], set[str]]:
    """Return the groups to rewrite, and the candidate partitions with slices that remain for later plans."""
    if snapshot.schema is None:
        return (), set()
    context, settings = snapshot.context, options.plan
    schema = with_meta_fields(snapshot.schema.arrow)
    for name in settings.sort_columns:
        field_at(schema, name)
    hour = datetime.fromtimestamp(context.env.now_ms() / 1000, context.config.zone).hour
    if options.resize is not None:
        partitions = choose_partitions(snapshot.listing.partitions(), settings, hour)
        return choose_resizes(snapshot, partitions, options.resize), set()
    named = snapshot.listing.partitions() if settings.selected_partitions else changed
    partitions = choose_partitions(named, settings, hour)
    busy = snapshot.pending_clusterings.union(snapshot.slicing.pending_compactions)
    inspected = snapshot.slices(partitions)
    candidates = {p: eligible_slices(slices, busy, settings) for p, slices in inspected.items()}
    if settings.after_commit is not None:
        written = {group for _, groups in commits for group in groups}
        candidates = {p: tuple(s for s in slices if (p, s.file_id) in written) for p, slices in candidates.items()}
    ranges: dict[tuple[str, str], SliceRange] = {}
    if settings.needs_ranges:
        slices = [s for partition_slices in candidates.values() for s in partition_slices]
        columns = settings.sort_columns or (RECORD_KEY,)
        spec = context.storage.spec()
        known = [snapshot.columns_under_current_names(s.base.path, columns) if s.base is not None else () for s in slices]
        tasks = [RangeTask(spec, s, schema, columns, known_ranges) for s, known_ranges in zip(slices, known, strict=True)]
        found_ranges = engine.map(run_range, tasks)
        ranges = {(s.partition, s.file_id): r for s, r in zip(slices, found_ranges, strict=True)}
    groups = plan_groups(candidates, ranges, settings)
    planned = {(group.partition, slice_.file_id) for group in groups for slice_ in group.slices}
    missing = set(changed).difference(partitions)
    for partition, partition_slices in inspected.items():
        if any((partition, s.file_id) not in planned for s in eligible_slices(partition_slices, frozenset(), settings)):
            missing.add(partition)
    if requires_bucket_preservation(groups, is_bucketed=options.bucketed):
        groups = tuple(replace(group, output_count=len(group.slices)) for group in groups)
    return groups, missing


def _writer_spec(
    context: TableContext, snapshot: Snapshot, request_time: str, options: ClusterSettings, *, all_columns: bool
) -> WriterSpec:
    config = context.config
    files = replace(options.files, max_file_size_bytes=_UNLIMITED_BYTES) if all_columns else options.files
    assert snapshot.schema is not None, "an executed plan has been loaded"
    schema = snapshot.schema.arrow
    return WriterSpec(
        storage=context.storage.spec(),
        instant_time=request_time,
        data_schema=schema,
        avro_schema=snapshot.schema.stored_avro(config.name),
        files=files,
        keys=config.keys,
        populate_meta_fields=config.populate_meta_fields,
        rule=merge_rule(config.merge, snapshot.defaults),
        indexing=with_keys(indexing_requirements(context, options.metadata, schema, schema), options.commit.hbase),
        ids=snapshot.ids,
        extension=config.base_extension(files.base_format),
    )


def _tasks(
    context: TableContext,
    spec: WriterSpec,
    timeline: Timeline,
    work: ClusteringWork,
    options: ClusterSettings,
    *,
    by_bucket: bool,
) -> list[ClusterTask]:
    validity = InstantValidity.of(timeline)
    # The file ids of a resize are those of its plan: attempts differ only by their write tokens.
    attempt = int.from_bytes(context.env.token_bytes(4), "big") >> 1
    return [
        ClusterTask(
            spec=spec,
            partition=group.partition,
            slices=group.slices,
            output_prefixes=_output_prefixes(context, group, by_bucket=by_bucket),
            sort_columns=work.order,
            layout=work.layout,
            validity=validity,
            token=WriteToken(number, 0 if group.change is None else attempt, number),
            memory_budget_bytes=options.memory_budget_bytes,
            copy=replace(options.copy, mode="always") if work.is_copy else options.copy,
        )
        for number, group in enumerate(bucket_by_bucket(work.groups) if by_bucket else work.groups)
    ]


def _output_prefixes(context: TableContext, group: ClusterGroup, *, by_bucket: bool) -> tuple[str, ...]:
    if by_bucket:
        numbers = (parse_bucket(slice_.file_id) for slice_ in group.slices)
        return tuple(format_bucket_prefix(number, context.env.uuid4()) for number in numbers if number is not None)
    if group.change is None:
        return tuple(context.env.uuid4() for _ in range(group.output_count))
    return tuple(node.prefix for node in group.change.new_nodes if node.prefix is not None)


def _of_groups(request_time: str, groups: Sequence[ClusterGroup], order: tuple[str, ...]) -> ClusteringResult:
    """Build the result of a plan that has not been run."""
    return ClusteringResult(
        instant=request_time,
        completion_time=None,
        groups=len(groups),
        file_groups_read=sum(len(group.slices) for group in groups),
        bytes_read=sum(group.size_bytes for group in groups),
        order=order,
    )


_COPY_PLAN_STRATEGY = "SparkStreamCopyClusteringPlanStrategy"
_COMMIT_PLAN_STRATEGY = "CommitBasedClusteringPlanStrategy"
_PLAN_STRATEGIES: Mapping[str, tuple[str, str | None]] = {
    "SparkSizeBasedClusteringPlanStrategy": ("size", None),
    "SparkRecentDaysClusteringPlanStrategy": ("size", "RECENT_DAYS"),
    "SparkSelectedPartitionsClusteringPlanStrategy": ("size", "SELECTED_PARTITIONS"),
    "SparkSingleFileSortPlanStrategy": ("single", None),
    _COPY_PLAN_STRATEGY: ("size", None),
    _COMMIT_PLAN_STRATEGY: ("commit_time", None),
}
"""Last part of a plan strategy's class name -> grouping, and the partition filter that the name implies."""

_RESIZE_PLAN_STRATEGIES = ("SparkConsistentBucketClusteringPlanStrategy",)
_RESIZE_EXECUTION_STRATEGIES = (
    "SparkConsistentBucketClusteringExecutionStrategy",
    "SingleSparkJobConsistentHashingExecutionStrategy",
)

_UNLIMITED_BYTES = 1 << 62


def _plan_strategy(options: Options, *, resizes: bool) -> tuple[str, str]:
    """Return the grouping and partition filter mode that the options name."""
    _check_resize_strategy(options, CLUSTERING_PLAN_CLASS, _RESIZE_PLAN_STRATEGIES, resizes=resizes)
    if resizes:
        return "size", options.value_or_default(CLUSTERING_PLAN_PARTITION_FILTER_MODE)
    name = options.value_or_default(CLUSTERING_PLAN_CLASS)
    strategy = _PLAN_STRATEGIES.get(name.rsplit(".", 1)[-1])
    if strategy is None and is_registered_strategy(name):
        return name, options.value_or_default(CLUSTERING_PLAN_PARTITION_FILTER_MODE)
    if strategy is None:
        raise Unsupported(
            f"option {CLUSTERING_PLAN_CLASS}={name} is not supported; use one of {', '.join(_PLAN_STRATEGIES)}, or one "
            "registered with pyhudi.register_clustering_strategy"
        )
    return strategy[0], strategy[1] or options.value_or_default(CLUSTERING_PLAN_PARTITION_FILTER_MODE)


def _earliest_commit(options: Options) -> str | None:
    """Return the instant after which commits are clustered, for the strategy that chooses file groups by commits."""
    earliest = options.text(service_options.CLUSTERING_EARLIEST_COMMIT)
    by_commits = options.value_or_default(CLUSTERING_PLAN_CLASS).rsplit(".", 1)[-1] == _COMMIT_PLAN_STRATEGY
    if by_commits != (earliest is not None):
        raise InvalidRequest(
            f"{service_options.CLUSTERING_EARLIEST_COMMIT} and {CLUSTERING_PLAN_CLASS}={_COMMIT_PLAN_STRATEGY} require each other"
        )
    return earliest


def _check_resize_strategy(options: Options, option: Option, names: tuple[str, ...], *, resizes: bool) -> None:
    """Raise InvalidRequest for a resize strategy without consistent hashing, or another strategy with it."""
    value = options.explicit(option)
    if value is not None and (value.rsplit(".", 1)[-1] in names) != resizes:
        engine = f"{INDEX_TYPE}=BUCKET and {BUCKET_ENGINE}=CONSISTENT_HASHING"
        raise InvalidRequest(
            f"option {option}={value} is incompatible with {engine}, where clustering resizes buckets: use {' or '.join(names)}"
            if resizes
            else f"option {option}={value} resizes hash nodes, and requires {engine}"
        )


def _copy_mode(options: Options) -> str:
    """Return when row groups are copied, by the strategies that the options name."""
    mode = options.value_or_default(service_options.CLUSTERING_COPY)
    execution = options.value_or_default(service_options.CLUSTERING_EXECUTION_STRATEGY_CLASS)
    plan = options.value_or_default(CLUSTERING_PLAN_CLASS)
    named = [name for name in (execution, plan) if name.rsplit(".", 1)[-1] in (*COPY_STRATEGIES, _COPY_PLAN_STRATEGY)]
    if named and options.explicit(service_options.CLUSTERING_COPY) not in (None, "always"):
        raise InvalidRequest(
            f"{service_options.CLUSTERING_COPY}={mode} contradicts the strategy {named[0]}, which copies row groups"
        )
    return "always" if named else mode


def _file_limit(options: Options, target: int, *, resizes: bool) -> int:
    """Return the maximum file size, by the execution strategy that the options name."""
    _check_resize_strategy(
        options, service_options.CLUSTERING_EXECUTION_STRATEGY_CLASS, _RESIZE_EXECUTION_STRATEGIES, resizes=resizes
    )
    if resizes:
        return _UNLIMITED_BYTES
    name = options.value_or_default(service_options.CLUSTERING_EXECUTION_STRATEGY_CLASS)
    limits = {"SparkSortAndSizeExecutionStrategy": target, "SparkSingleFileSortExecutionStrategy": _UNLIMITED_BYTES}
    limits |= dict.fromkeys(COPY_STRATEGIES, target)
    limit = limits.get(name.rsplit(".", 1)[-1])
    if limit is None:
        raise Unsupported(
            f"option {service_options.CLUSTERING_EXECUTION_STRATEGY_CLASS}={name} is not supported; use one of "
            f"{', '.join(limits)}"
        )
    return limit
