"""Clustering: rewrite file groups in a better order and size.  Planning and execution are two steps that two processes may take.

    schedule   lock: choose partitions, slices and groups; `<t>.clustering.requested` holds the plan
    execute    `<t>.clustering.inflight` (one executor); one task a group; lock: did anybody write to the groups meanwhile? then
               `<t>_<c>.replacecommit` with the new file groups and those that they replace

While a plan is pending, PyHudi's writers refuse to update its file groups; inserts go elsewhere.  An executor that died leaves
the inflight file; the next one
removes what it wrote and starts again.

Source: writing and services, "Clustering"; clustering design.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Annotated, Any

from pyhudi.errors import CorruptData, InstantNotFound, InvalidRequest, TableState, Unsupported, WriteConflict
from pyhudi.execute.base_file import FileSettings
from pyhudi.execute.cluster import ClusterTask, RangeTask, run_cluster, run_range
from pyhudi.execute.engine import Engine
from pyhudi.execute.log_scan import InstantValidity
from pyhudi.execute.write_base import WriterSpec, WriteStatus
from pyhudi.format.actions.clustering import (
    SORT_AND_SIZE_STRATEGY,
    SORT_COLUMNS_KEY,
    ClusteringGroup,
    ClusteringPlan,
    ClusteringStrategy,
    SliceInfo,
)
from pyhudi.format.actions.commit import Operation
from pyhudi.format.actions.replace import RequestedReplaceMetadata
from pyhudi.format.arrow_to_avro import arrow_to_avro
from pyhudi.format.instants import Action, Instant, State
from pyhudi.format.meta_columns import with_meta_fields
from pyhudi.format.names import WriteToken, parse_base_file, parse_log_file
from pyhudi.operations.action.attempt import Phases, taken_back_on_error
from pyhudi.operations.action.claim import PlanTaken, claim, drop_plan, plan_and_claim, settle_plan
from pyhudi.operations.action.gate import check_writable
from pyhudi.operations.action.observe import observed
from pyhudi.operations.action.rollback import finish_pending_rollbacks, rollback_failed_attempt
from pyhudi.operations.action.settings import INDEX_TYPE, MEMORY_BUDGET, CommitSettings
from pyhudi.operations.action.transaction import Transaction, commit_metadata, new_instant_time, touched_groups
from pyhudi.operations.metadata.mirror import CommitMirror, indexing_of
from pyhudi.operations.metadata.settings import MetadataSettings
from pyhudi.plan.clustering import (
    FILTER_MODE,
    GROUPING,
    LAYOUT,
    PLAN_STRATEGY,
    SORT_COLUMNS,
    TARGET_FILE_BYTES,
    ClusterGroup,
    ClusteringDue,
    ClusteringSettings,
    SliceRange,
    choose_partitions,
    clustering_due,
    eligible_slices,
    group_metrics,
    plan_groups,
)
from pyhudi.plan.conflicts import WriteStart, describe_conflicts, find_conflicts, instants_to_check
from pyhudi.records.columns import field_at
from pyhudi.records.mergers import merge_rule
from pyhudi.records.meta_fields import RECORD_KEY
from pyhudi.settings import Option, Options, read_settings
from pyhudi.table.context import TableContext
from pyhudi.table.plans import planned_path
from pyhudi.table.slices import BaseFile, FileSlice, LogFile
from pyhudi.table.snapshot import Snapshot, load_snapshot, read_commit
from pyhudi.table.written import check_size, load_written_sizes
from pyhudi.timeline.timeline import Timeline

_EXECUTION_STRATEGY = Option(
    "hoodie.clustering.execution.strategy.class",
    str,
    "SparkSortAndSizeExecutionStrategy",
    "class that says whether a group becomes files of the target size or one file",
)
INLINE = Option(
    "hoodie.clustering.inline",
    bool,
    "false",
    "a write plans and runs a clustering when one is due",
    aliases=("hoodie.datasource.clustering.inline.enable",),
)
_INLINE_COMMITS = Option(
    "hoodie.clustering.inline.max.commits", int, "4", "commits that make an inline clustering due", at_least=1
)
_ASYNC_COMMITS = Option(
    "hoodie.clustering.async.max.commits", int, "4", "commits that make a clustering of others due", at_least=1
)


@dataclass(frozen=True, slots=True)
class ClusteringOptions:
    """What a clustering needs beside its plan."""

    plan: ClusteringSettings
    files: Annotated[FileSettings, _EXECUTION_STRATEGY, TARGET_FILE_BYTES]
    commit: CommitSettings
    memory_budget_bytes: Annotated[int, MEMORY_BUDGET]
    metadata: MetadataSettings
    max_commits: Annotated[int, INLINE, _INLINE_COMMITS, _ASYNC_COMMITS]
    bucketed: Annotated[bool, INDEX_TYPE] = False

    @classmethod
    def of(cls, options: Options, order_by: tuple[str, ...] | None = None, layout: str | None = None) -> ClusteringOptions:
        """From checked options; arguments of the call come first."""
        given = options.names(SORT_COLUMNS)
        if order_by is not None and given and tuple(order_by) != given:
            raise InvalidRequest(f"order_by={','.join(order_by)} and {SORT_COLUMNS}={','.join(given)} disagree")
        sort_columns = tuple(order_by) if order_by is not None else given
        strategy, filter_mode = _plan_strategy(options)
        grouping = options.text(GROUPING) or ("prefer_overlap" if sort_columns and strategy == "size" else strategy)
        plan = read_settings(
            ClusteringSettings,
            options,
            sort_columns=sort_columns,
            layout=(layout or options.word(LAYOUT)).upper(),
            grouping=grouping,
            filter_mode=filter_mode,
        )
        return read_settings(
            cls,
            options,
            plan=plan,
            files=replace(FileSettings.of(options), max_file_size_bytes=_file_limit(options, plan.target_file_bytes)),
            max_commits=options.integer(_INLINE_COMMITS if options.flag(INLINE) else _ASYNC_COMMITS),
            bucketed=options.word(INDEX_TYPE) == "BUCKET",
        )


@dataclass(frozen=True, slots=True)
class ClusteringResult:
    """What a clustering did.  instant: its request time, None when nothing was worth it.  seconds: by phase, of one that ran."""

    instant: str | None
    completion_time: str | None
    groups: int = 0
    file_groups_read: int = 0
    file_groups_written: int = 0
    rows: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    order: tuple[str, ...] = field(default=())
    seconds: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        if self.instant is None:
            return "clustering (nothing to cluster)"
        by = f", ordered by {', '.join(self.order)}" if self.order else ""
        state = "" if self.completion_time else " (planned, not run)"
        spent = ", ".join(f"{name} {value:.2f}" for name, value in self.seconds.items())
        return (
            f"clustering {self.instant}{state}\n"
            f"  groups        {self.groups:,}{by}\n"
            f"  file groups   {self.file_groups_read:,} read, {self.file_groups_written:,} written\n"
            f"  rows          {self.rows:,}\n"
            f"  bytes         {self.bytes_read:,} read, {self.bytes_written:,} written"
            + (f"\n  seconds       {spent}" if spent else "")
        )


@dataclass(frozen=True, slots=True)
class ClusteringRuns:
    """What running all that is pending, and what is due, came to.

    runs: what was carried out.  left: plan -> why it was not.  planned: the new plan, None when there is none, and then `reason`
    says why.
    """

    runs: tuple[ClusteringResult, ...]
    left: Mapping[str, str]
    planned: str | None
    reason: str


def schedule_clustering(
    context: TableContext, engine: Engine, options: ClusteringOptions, *, if_due: bool = False
) -> ClusteringResult:
    """Plan a clustering and put it on the timeline.  The result's instant is None when there is nothing to cluster.

    Clusterings that nobody will carry out are dropped before.
    if_due: only when enough writes completed since the last one was planned.
    Raises Unsupported when the options say that the table is bucketed: its records would leave the groups that their keys name.
    """
    return _schedule(context, engine, options, if_due, claims=False)[0]


def plan_and_run_clustering(
    context: TableContext, engine: Engine, options: ClusteringOptions, *, if_due: bool = False
) -> ClusteringResult:
    """Plan a clustering and carry it out; it is this process's own from the start, and nobody else's in between.

    Raises as `schedule_clustering` and `execute_clustering`.
    """
    planned, transaction = _schedule(context, engine, options, if_due, claims=True)
    return planned if transaction is None else _execute(context, engine, transaction, options)


def _schedule(
    context: TableContext, engine: Engine, options: ClusteringOptions, if_due: bool, *, claims: bool
) -> tuple[ClusteringResult, Transaction | None]:
    check_writable(context)
    if options.bucketed:
        raise Unsupported(f"clustering takes records out of the file groups of their buckets ({INDEX_TYPE}=BUCKET)")
    settle_clusterings(context, options.commit)
    with context.locked(options.commit.lock_wait_ms) as held:
        snapshot = load_snapshot(held)
        if snapshot.timeline.pending(Action.RESTORE):
            raise TableState(f"a restore of {context.storage.uri} did not finish; run it again before clustering")
        if if_due and not due_now(context, snapshot.timeline, options).due:
            return ClusteringResult(None, None), None
        groups = _plan(held, engine, snapshot, options.plan)
        if not groups:
            return ClusteringResult(None, None), None
        time = new_instant_time(context, snapshot.timeline, options.commit)
        document = RequestedReplaceMetadata.of_clustering(_document(context, groups, options.plan))
        content = document.encode(context.env.token_bytes(16))
        transaction = None
        if claims:
            transaction = plan_and_claim(context, held, time, Action.CLUSTERING, content, options.commit)
        else:
            held.timeline.request(time, Action.CLUSTERING, content)
    return _result(time, None, groups, (), options.plan.sort_columns), transaction


def execute_clustering(context: TableContext, engine: Engine, instant_time: str, options: ClusteringOptions) -> ClusteringResult:
    """Carry out a plan that is on the timeline.

    Raises InstantNotFound, TableState when another executor has it, WriteConflict when one of its file groups was written to
    since it was planned; such a plan can never be carried out, and the next writer or plan drops it.
    """
    check_writable(context)
    timeline = context.timeline.load()
    if finish_pending_rollbacks(context, options.commit, timeline):
        timeline = context.timeline.load()
    instant = timeline.find(instant_time, Action.CLUSTERING)
    if instant.state is State.INFLIGHT:
        rollback_failed_attempt(context, instant_time, Action.CLUSTERING, options.commit)
    return _execute(context, engine, claim(context, instant_time, Action.CLUSTERING, options.commit), options)


@observed("cluster")
def _execute(context: TableContext, engine: Engine, transaction: Transaction, options: ClusteringOptions) -> ClusteringResult:
    instant_time = transaction.instant_time
    phases = Phases(context.env)
    with taken_back_on_error(transaction):
        snapshot = load_snapshot(context)
        plan = _load_plan(context, instant_time)
        groups, sort_columns, layout = _groups_of(context, plan, snapshot.timeline)
        start = _since_plan(snapshot.timeline, instant_time)
        _check_not_overtaken(context, snapshot.timeline, instant_time, start, groups)
        tasks = _tasks(context, snapshot, instant_time, groups, sort_columns, layout, options)
        phases.end("load")
        statuses = [status for part in engine.map(run_cluster, tasks) for status in part]
        phases.end("write")
        replaced: dict[str, list[str]] = {}
        for group in groups:
            replaced.setdefault(group.partition, []).extend(s.file_id for s in group.slices)
        schema_text = snapshot.schema.avro if snapshot.schema else ""
        metadata = commit_metadata(Operation.CLUSTER, statuses, schema_text, {}, replaced)
        schema = snapshot.schema.arrow if snapshot.schema else None
        mirror = CommitMirror(engine, tasks[0].spec.indexing if tasks else None, schema, statuses, replaced=replaced)
        mirror = mirror.prepare(context, snapshot, instant_time, Operation.CLUSTER)
        done = transaction.commit(metadata, start, [(p, f) for p, ids in replaced.items() for f in ids], mirror)
    phases.end("commit")
    return replace(_result(instant_time, done.completion_time, groups, statuses, sort_columns), seconds=phases.seconds)


def _always() -> bool:
    return True


def run_clusterings(
    context: TableContext,
    engine: Engine,
    options: ClusteringOptions,
    *,
    schedule: bool = True,
    go_on: Callable[[], bool] = _always,
) -> ClusteringRuns:
    """Carry out what is pending and nobody else carries out; then plan what is due and carry it out.

    A plan of which a file group was written to since is dropped.  schedule: False carries out what is pending alone.  go_on:
    asked before each plan; False leaves the rest as it is.
    """
    runs: list[ClusteringResult] = []
    left: dict[str, str] = {}

    def attempt(instant: str, run: Callable[[], ClusteringResult]) -> None:
        try:
            runs.append(run())
        except InstantNotFound:
            left[instant] = "another process completed or dropped it"
        except ClusteringOvertaken as error:
            left[instant] = f"dropped: {error}" if drop_clustering(context, options.commit, instant) else str(error)
        except (WriteConflict, PlanTaken) as error:
            left[instant] = str(error)

    for pending in context.timeline.load().pending(Action.CLUSTERING):
        if go_on():
            attempt(pending.request_time, partial(execute_clustering, context, engine, pending.request_time, options))
    if not schedule or not go_on():
        return ClusteringRuns(tuple(runs), left, None, "no plan is made")
    timeline = context.timeline.load()
    due = due_now(context, timeline, options)
    if not due.due:
        return ClusteringRuns(tuple(runs), left, None, due.reason)
    planned, transaction = _schedule(context, engine, options, if_due=True, claims=True)
    if planned.instant is not None and transaction is not None:
        attempt(planned.instant, partial(_execute, context, engine, transaction, options))
    return ClusteringRuns(tuple(runs), left, planned.instant, "" if planned.instant else "nothing to cluster")


def due_now(context: TableContext, timeline: Timeline, options: ClusteringOptions) -> ClusteringDue:
    """Whether enough writes completed since a clustering was planned or carried out."""
    waiting = timeline.pending(Action.CLUSTERING)
    last = waiting[-1].request_time if waiting else ""
    for instant in reversed(timeline.completed(Action.REPLACECOMMIT)):
        if instant.request_time <= last:
            break
        if read_commit(context.timeline, instant).operation is Operation.CLUSTER:
            last = instant.request_time
            break
    return clustering_due(timeline, last, options.max_commits)


def drop_clustering(context: TableContext, settings: CommitSettings, instant: str) -> bool:
    """Drop a pending clustering: what a dead executor left of it is removed, and its plan.  False when it is gone already.

    Raises PlanTaken when a living process carries it out.
    """
    return drop_plan(context, settings, instant, Action.CLUSTERING)


def settle_clustering(context: TableContext, settings: CommitSettings, instant: Instant) -> bool:
    """Drop a pending clustering that nobody will carry out; False when somebody may, and it stays.

    The rule: a clustering whose process died after it had begun goes, and one that can never run.  One that was planned and not
    begun waits, however long.
    """
    never = why_never(context, context.timeline.load(), instant) is not None
    return settle_plan(context, settings, instant, never=never)


def settle_clusterings(context: TableContext, settings: CommitSettings) -> None:
    """As `settle_clustering`, for all that are pending."""
    for instant in context.timeline.load().pending(Action.CLUSTERING):
        settle_clustering(context, settings, instant)


def why_never(context: TableContext, timeline: Timeline, instant: Instant) -> str | None:
    """Why a pending clustering can never run: files that it reads are gone, or were superseded since; None when it can."""
    try:
        groups, _, _ = _groups_of(context, _load_plan(context, instant.request_time), timeline)
        _check_not_overtaken(context, timeline, instant.request_time, _since_plan(timeline, instant.request_time), groups)
    except (TableState, ClusteringOvertaken) as error:
        return str(error)
    except CorruptData:
        # Whoever runs it is told; damage may be mended.
        return None
    return None


class ClusteringOvertaken(WriteConflict):
    """A file group of the plan was written to since; the plan can never be carried out."""


def _plan(context: TableContext, engine: Engine, snapshot: Snapshot, settings: ClusteringSettings) -> tuple[ClusterGroup, ...]:
    if snapshot.schema is None:
        return ()
    schema = with_meta_fields(snapshot.schema.arrow)
    for name in settings.sort_columns:
        field_at(schema, name)
    hour = datetime.fromtimestamp(context.env.now_ms() / 1000, context.config.zone).hour
    partitions = choose_partitions(snapshot.listing.partitions(), settings, hour)
    busy = snapshot.pending_clusterings.union(snapshot.slicing.pending_compactions)
    candidates = {p: eligible_slices(found, busy, settings) for p, found in snapshot.slices(partitions).items()}
    ranges: dict[tuple[str, str], SliceRange] = {}
    if settings.needs_ranges:
        slices = [s for found in candidates.values() for s in found]
        columns = settings.sort_columns or (RECORD_KEY,)
        tasks = [RangeTask(context.storage.spec(), s, schema, columns) for s in slices]
        found_ranges = engine.map(run_range, tasks)
        ranges = {(s.partition, s.file_id): r for s, r in zip(slices, found_ranges, strict=True)}
    return plan_groups(candidates, ranges, settings)


def _document(context: TableContext, groups: Iterable[ClusterGroup], settings: ClusteringSettings) -> ClusteringPlan:
    absolute = context.storage.absolute
    documents = tuple(
        ClusteringGroup(
            slices=tuple(
                SliceInfo(
                    data_file_path=absolute(s.base.path) if s.base else "",
                    delta_file_paths=tuple(absolute(log.path) for log in reversed(s.logs)),
                    file_id=s.file_id,
                    partition_path=s.partition,
                )
                for s in group.slices
            ),
            metrics=group_metrics(group, settings),
            num_output_file_groups=group.output_count,
            extra_metadata={},
        )
        for group in groups
    )
    parameters: dict[str, str] = {}
    if settings.sort_columns:
        parameters[SORT_COLUMNS_KEY] = ",".join(settings.sort_columns)
        if settings.layout != "LINEAR":
            parameters[LAYOUT.key] = settings.layout
    return ClusteringPlan(input_groups=documents, strategy=ClusteringStrategy(SORT_AND_SIZE_STRATEGY, parameters))


def _load_plan(context: TableContext, request_time: str) -> ClusteringPlan:
    data = context.timeline.read_state(request_time, Action.CLUSTERING, State.REQUESTED)
    plan = RequestedReplaceMetadata.decode(data).clustering_plan if data else None
    if plan is None:
        raise TableState(f"clustering {request_time} of {context.storage.uri} has no plan; roll it back")
    return plan


def _groups_of(
    context: TableContext, plan: ClusteringPlan, timeline: Timeline
) -> tuple[tuple[ClusterGroup, ...], tuple[str, ...], str]:
    """The plan as values: groups with their files, sort columns, layout.  Other writers' plans are read the same way.

    Raises CorruptData for a log that is not as long as its commit says.
    """
    parameters: Mapping[str, str] = (plan.strategy.strategy_params if plan.strategy else None) or {}
    columns = tuple(name.strip() for name in parameters.get(SORT_COLUMNS_KEY, "").split(",") if name.strip())
    groups = []
    pieces = [piece for document in plan.input_groups or () for piece in document.slices or ()]
    logs = [_below(context, piece, file) for piece in pieces for file in piece.delta_file_paths or ()]
    written = load_written_sizes(context.timeline, timeline, logs)
    for document in plan.input_groups or ():
        slices = tuple(_slice_of(context, piece, written) for piece in document.slices or ())
        if slices:
            groups.append(ClusterGroup(slices[0].partition, slices, document.num_output_file_groups or 1))
    return tuple(groups), columns, parameters.get(LAYOUT.key, "LINEAR").upper()


def _slice_of(context: TableContext, piece: SliceInfo, written: Mapping[str, int]) -> FileSlice:
    base = None
    if piece.data_file_path:
        path = _below(context, piece, piece.data_file_path)
        name = parse_base_file(path.rsplit("/", 1)[-1])
        if name is None:
            raise TableState(f"the clustering plan names {piece.data_file_path}, which is no base file")
        base = BaseFile(path, name, _size(context, path))
    logs = []
    for file in reversed(piece.delta_file_paths or ()):
        path = _below(context, piece, file)
        log_name = parse_log_file(path.rsplit("/", 1)[-1])
        if log_name is None:
            raise TableState(f"the clustering plan names {file}, which is no log file")
        logs.append(LogFile(path, log_name, check_size(context.storage, path, _size(context, path), written)))
    instant = base.name.instant_time if base else logs[0].name.instant_time if logs else ""
    return FileSlice(piece.partition_path or "", piece.file_id or "", instant, base, tuple(logs))


def _below(context: TableContext, piece: SliceInfo, uri: str) -> str:
    path = planned_path(piece.partition_path or "", uri)
    if path is None:
        raise TableState(
            f"the clustering plan names {uri}, which is no file of partition {piece.partition_path!r} of {context.storage.uri}"
        )
    return path


def _size(context: TableContext, path: str) -> int:
    found = context.storage.stat(path)
    if found is None:
        raise TableState(f"{context.storage.absolute(path)}, which the clustering plan reads, is gone; roll the clustering back")
    return found.size_bytes


def _since_plan(timeline: Timeline, planned: str) -> WriteStart:
    """What to compare the replaced groups with: every write that completed after the plan was made, or is still to complete."""
    after = {i.request_time for i in timeline.completed_writes() if (i.completion_time or i.request_time) > planned}
    last = timeline.last_completed_write()
    pending = {i.request_time for i in timeline.pending_writes()}
    return WriteStart(last.request_time if last else "", frozenset(after | pending), latest=planned)


def _check_not_overtaken(
    context: TableContext, timeline: Timeline, planned: str, start: WriteStart, groups: Iterable[ClusterGroup]
) -> None:
    """Raises WriteConflict when a write has changed one of the groups, before any work is done; the commit looks again."""
    mine = {(group.partition, slice_.file_id) for group in groups for slice_ in group.slices}
    others = {
        instant: touched_groups(context, instant)
        for instant in instants_to_check(planned, start, timeline)
        if instant.state is State.COMPLETED
    }
    conflicts = find_conflicts(planned, mine, others, frozenset())
    if conflicts:
        raise ClusteringOvertaken(
            f"file groups of clustering {planned} of {context.storage.uri} were changed since it was planned, by "
            f"{describe_conflicts(conflicts)}",
            instants=tuple(c.instant.request_time for c in conflicts),
        )


def _tasks(
    context: TableContext,
    snapshot: Snapshot,
    instant_time: str,
    groups: Iterable[ClusterGroup],
    sort_columns: tuple[str, ...],
    layout: str,
    options: ClusteringOptions,
) -> list[ClusterTask]:
    config = context.config
    if snapshot.schema is None:
        raise TableState(f"the table at {context.storage.uri} has no schema")
    stored = with_meta_fields(snapshot.schema.arrow)
    spec = WriterSpec(
        storage=context.storage.spec(),
        instant_time=instant_time,
        data_schema=snapshot.schema.arrow,
        avro_schema=arrow_to_avro(stored, config.name),
        files=options.files,
        keys=config.keys,
        populate_meta_fields=config.populate_meta_fields,
        rule=merge_rule(config.merge),
        indexing=indexing_of(context, options.metadata, snapshot.schema.arrow, snapshot.schema.arrow),
    )
    validity = InstantValidity.of(snapshot.timeline)
    return [
        ClusterTask(
            spec=spec,
            partition=group.partition,
            slices=group.slices,
            output_prefixes=tuple(context.env.uuid4() for _ in range(group.output_count)),
            sort_columns=sort_columns,
            layout=layout,
            validity=validity,
            token=WriteToken(number, 0, number),
            memory_budget_bytes=options.memory_budget_bytes,
        )
        for number, group in enumerate(groups)
    ]


def _result(
    instant: str,
    completion_time: str | None,
    groups: Iterable[ClusterGroup],
    statuses: Iterable[WriteStatus],
    order: tuple[str, ...],
) -> ClusteringResult:
    every, stats = tuple(groups), [status.stat for status in statuses]
    return ClusteringResult(
        instant=instant,
        completion_time=completion_time,
        groups=len(every),
        file_groups_read=sum(len(group.slices) for group in every),
        file_groups_written=len(stats),
        rows=sum(stat.num_writes for stat in stats),
        bytes_read=sum(group.size_bytes for group in every),
        bytes_written=sum(stat.total_write_bytes for stat in stats),
        order=order,
    )


_PLAN_STRATEGIES: Mapping[str, tuple[str, str | None]] = {
    "SparkSizeBasedClusteringPlanStrategy": ("size", None),
    "SparkRecentDaysClusteringPlanStrategy": ("size", "RECENT_DAYS"),
    "SparkSelectedPartitionsClusteringPlanStrategy": ("size", "SELECTED_PARTITIONS"),
    "SparkSingleFileSortPlanStrategy": ("single", None),
}
"""The last part of a plan strategy's class name -> grouping, and the partition filter that its name stands for."""

_UNLIMITED_BYTES = 1 << 62


def _plan_strategy(options: Options) -> tuple[str, str]:
    """Grouping and partition filter mode that the options name."""
    name = options.word(PLAN_STRATEGY)
    found = _PLAN_STRATEGIES.get(name.rsplit(".", 1)[-1])
    if found is None:
        raise Unsupported(f"option {PLAN_STRATEGY}={name} is refused: PyHudi has {', '.join(_PLAN_STRATEGIES)}")
    return found[0], found[1] or options.word(FILTER_MODE)


def _file_limit(options: Options, target: int) -> int:
    """How large a file may become, by the execution strategy that the options name."""
    name = options.word(_EXECUTION_STRATEGY)
    limits = {"SparkSortAndSizeExecutionStrategy": target, "SparkSingleFileSortExecutionStrategy": _UNLIMITED_BYTES}
    limit = limits.get(name.rsplit(".", 1)[-1])
    if limit is None:
        raise Unsupported(f"option {_EXECUTION_STRATEGY}={name} is refused: PyHudi has {', '.join(limits)}")
    return limit
