"""Procedures that run or show table services, savepoints and rollbacks."""

from __future__ import annotations

from pyhudi.errors import CorruptData, InstantNotFound, InvalidRequest, SnapshotOutdated, TableState, Unsupported
from pyhudi.features.procedures.procedure import ProcedureCall, Rows, procedure
from pyhudi.format.actions.clean_metadata import CleanMetadata
from pyhudi.format.instants import Action, Instant, State
from pyhudi.format.table_versions import TableVersion
from pyhudi.operations.admin.versions import versions
from pyhudi.options.service_options import (
    CLEAN_COMMITS_RETAINED,
    CLEAN_FILEVERSIONS_RETAINED,
    CLEAN_HOURS_RETAINED,
    CLEAN_POLICY,
    CLEAN_TRIGGER_MAX_COMMITS,
    CLEAN_TRIGGER_STRATEGY,
    CLUSTERING_PARTITION_REGEX_PATTERN,
    CLUSTERING_PARTITION_SELECTED,
    CLUSTERING_SORT_COLUMNS,
    KEEP_MAX_COMMITS,
    KEEP_MIN_COMMITS,
    LAYOUT_OPTIMIZE_STRATEGY,
    PARTITION_TTL_STRATEGY_DAYS_RETAIN,
)
from pyhudi.table.pending_plans import load_clustering_plan, load_compaction_plan
from pyhudi.table.snapshot import read_commit

_COMPACTION = "timestamp string, operation_size int, state string"
_CLUSTERING = "timestamp string, input_group_size int, state string, involved_partitions string"
_INVOLVED = "show_involved_partition boolean = false"
_CLEAN_ARGUMENTS = {
    "clean_policy": CLEAN_POLICY.key,
    "retain_commits": CLEAN_COMMITS_RETAINED.key,
    "hours_retained": CLEAN_HOURS_RETAINED.key,
    "file_versions_retained": CLEAN_FILEVERSIONS_RETAINED.key,
    "trigger_strategy": CLEAN_TRIGGER_STRATEGY.key,
    "trigger_max_commits": CLEAN_TRIGGER_MAX_COMMITS.key,
}


@procedure("table, path, limit int = 20", _COMPACTION)
def show_compaction(call: ProcedureCall) -> Rows:
    """Compactions, newest first: pending ones, and completed ones whose plan still exists."""
    _check_merge_on_read(call)
    return _compactions(call)


@procedure("op string required, table, path, timestamp int, options string, instants string, limit int", _COMPACTION)
def run_compaction(call: ProcedureCall) -> Rows:
    """Schedule a compaction (`schedule`), execute pending ones (`run`), or schedule and execute the new one, else pending
    ones (`scheduleandexecute`).
    """
    _check_merge_on_read(call)
    operation = call.text("op").strip().lower()
    options = call.options()
    wanted = call.names("instants")
    if call.arguments["timestamp"] is not None:
        wanted = (*wanted, call.text("timestamp"))
    if operation not in ("schedule", "run", "execute", "scheduleandexecute"):
        raise InvalidRequest(f"op={call.text('op')!r} of run_compaction is none of schedule, run, scheduleAndExecute")
    if wanted and operation != "run" and operation != "execute":
        raise InvalidRequest("instants of run_compaction name pending plans: they go with op=run")
    table = call.table
    if operation.startswith("schedule"):
        planned = table.schedule_compaction(if_due=True, options=options).planned
        if planned is None and operation == "schedule":
            return
        # As in Hudi, pending plans are executed if no new one was needed.
        wanted = () if planned is None else (planned,)
    for time in _pending(call, Action.COMPACTION, wanted):
        if operation != "schedule":
            table.compact(time, spark=call.spark, options=options)
        yield from (row for row in _compactions(call) if row[0] == time)


@procedure(f"table, path, limit int = 20, {_INVOLVED}", _CLUSTERING)
def show_clustering(call: ProcedureCall) -> Rows:
    """Clusterings, newest first. involved_partitions: `*` unless requested."""
    return _clusterings(call)


@procedure(
    f"table, path, predicate string, order string, {_INVOLVED}, op string, order_strategy string, options string, "
    "instants string, selected_partitions string, limit int, partition_regex_pattern string",
    _CLUSTERING,
)
def run_clustering(call: ProcedureCall) -> Rows:
    """Schedule a clustering (`schedule`), execute pending ones (`execute`), or schedule and execute the new one, else
    pending ones (`scheduleandexecute`, the default).
    """
    wanted = call.names("instants")
    operation = (call.text("op") or ("execute" if wanted else "scheduleandexecute")).strip().lower()
    if operation not in ("schedule", "execute", "scheduleandexecute"):
        raise InvalidRequest(f"op={call.text('op')!r} of run_clustering is none of schedule, execute, scheduleAndExecute")
    if call.text("predicate"):
        raise Unsupported("predicate= of run_clustering is not supported; name the partitions in selected_partitions=")
    options = call.options(
        order=CLUSTERING_SORT_COLUMNS.key,
        selected_partitions=CLUSTERING_PARTITION_SELECTED.key,
        partition_regex_pattern=CLUSTERING_PARTITION_REGEX_PATTERN.key,
    )
    if call.text("order_strategy"):
        # Hudi accepts z-order too.
        options[LAYOUT_OPTIMIZE_STRATEGY.key] = call.text("order_strategy").replace("-", "")
    if wanted and operation != "execute":
        raise InvalidRequest("instants of run_clustering name pending plans: they go with op=execute")
    table = call.table
    if operation.startswith("schedule"):
        planned = table.schedule_clustering(options=options).instant
        if planned is None and operation == "schedule":
            return
        wanted = () if planned is None else (planned,)
    done = _pending(call, Action.CLUSTERING, wanted)
    for time in done if operation != "schedule" else ():
        table.cluster(time, spark=call.spark, options=options)
    yield from (row for row in _clusterings(call) if row[0] in done)


@procedure(
    "skip_locking boolean = false, schedule_in_line boolean = true, clean_policy string, retain_commits int, hours_retained int, "
    "file_versions_retained int, trigger_strategy string, trigger_max_commits int, options string",
    "start_clean_time string, time_taken_in_millis bigint, total_files_deleted int, earliest_commit_to_retain string, "
    "bootstrap_part_metadata string, version int",
)
def run_clean(call: ProcedureCall) -> Rows:
    """Clean the table; returns no row if no clean was due."""
    if call.flag("skip_locking"):
        raise Unsupported("skip_locking=true of run_clean is refused: a clean without the table's lock may lose files of writers")
    if not call.flag("schedule_in_line"):
        raise Unsupported("schedule_in_line=false of run_clean is not supported: each clean is planned and run at once")
    result = call.table.clean(dry_run=False, options=call.options(**_CLEAN_ARGUMENTS))
    store = call.table.context.timeline
    for time in (*result.finished, *((result.instant,) if result.instant else ())):
        instant = store.load().find(time, Action.CLEAN)
        done = CleanMetadata.decode(store.read(instant))
        totals = done.time_taken_in_millis, done.total_files_deleted
        yield done.start_clean_time, *totals, done.earliest_commit_to_retain, "{}", done.version


@procedure("ttl_policy string, retain_days int, options string", "deleted_partitions string")
def run_ttl(call: ProcedureCall) -> Rows:
    """Delete expired partitions."""
    policy = call.text("ttl_policy")
    if policy and policy.upper() != "KEEP_BY_TIME":
        raise Unsupported(f"ttl_policy={policy!r} of run_ttl is not supported; there is KEEP_BY_TIME")
    options = call.options(retain_days=PARTITION_TTL_STRATEGY_DAYS_RETAIN.key)
    result = call.table.run_ttl(options=options)
    if result.instant is None:
        return
    store = call.table.context.timeline
    commit = read_commit(store, store.load().find(result.instant))
    for partition in commit.partition_to_replace_file_ids or {}:
        yield (partition,)


@procedure(
    "table, path, min_commits int = 20, max_commits int = 30, retain_commits int = 10, enable_metadata boolean = true, "
    "options string",
    "result int",
)
def archive_commits(call: ProcedureCall) -> Rows:
    """Archive old instants. The result is 0, the success code of Hudi's command line."""
    if not call.flag("enable_metadata"):
        raise Unsupported("enable_metadata=false of archive_commits is refused: the metadata table is updated with each archival")
    arguments = {
        KEEP_MIN_COMMITS.key: call.number("min_commits"),
        KEEP_MAX_COMMITS.key: call.number("max_commits"),
        CLEAN_COMMITS_RETAINED.key: call.number("retain_commits"),
    }
    # Options in the text replace the defaults of arguments.
    call.table.archive(options={**arguments, **call.options()})
    yield (0,)


@procedure(
    "table, commit_time string =, user string =, comments string =, path, comment string =", "create_savepoint_result boolean"
)
def create_savepoint(call: ProcedureCall) -> Rows:
    """Create a savepoint of the latest or the named write; returns false if it fails, for example because it exists."""
    comments = call.text("comments") or call.text("comment")
    try:
        call.table.savepoint(call.text("commit_time") or None, user=call.text("user"), comments=comments)
    except InstantNotFound:
        raise
    except TableState:
        yield (False,)
        return
    yield (True,)


@procedure("instant_time string =", "delete_savepoint_result boolean")
def delete_savepoint(call: ProcedureCall) -> Rows:
    """Delete savepoints, separated by commas; by default the latest."""
    for instant in _savepoints(call, call.names("instant_time")):
        call.table.delete_savepoint(instant)
    yield (True,)


@procedure("table, instant_time string =, path, force boolean = false", "rollback_savepoint_result boolean")
def rollback_to_savepoint(call: ProcedureCall) -> Rows:
    """Restore the table to a savepoint, by default the latest. force: although a process of Hudi writes to the table."""
    call.table.restore(_savepoints(call, (call.text("instant_time"),))[-1], force=call.flag("force"))
    yield (True,)


@procedure("instant_time string required", "rollback_result boolean")
def rollback_to_instant(call: ProcedureCall) -> Rows:
    """Roll back the write of that instant only, despite the name given by Hudi."""
    call.table.rollback(call.text("instant_time"))
    yield (True,)


@procedure("to_version string required", "result boolean")
def upgrade_table(call: ProcedureCall) -> Rows:
    """Upgrade the table version to EIGHT or NINE."""
    call.table.upgrade(_version(call), spark=call.spark)
    yield (True,)


@procedure("to_version string required", "result boolean")
def downgrade_table(call: ProcedureCall) -> Rows:
    """Downgrade the table version to EIGHT or SIX."""
    call.table.downgrade(_version(call), spark=call.spark)
    yield (True,)


def _pending(call: ProcedureCall, action: Action, named: tuple[str, ...]) -> list[str]:
    """Pending plans, or those with a name, up to the limit of the call. Raises InstantNotFound."""
    pending = [instant.request_time for instant in call.table.timeline().pending(action)]
    unknown = sorted(set(named) - set(pending))
    if unknown:
        raise InstantNotFound(f"{call.table.uri} has no pending {action} {', '.join(unknown)}")
    limit = None if call.arguments["limit"] is None else call.number("limit")
    if limit is not None and limit < 0:
        raise InvalidRequest(f"limit={limit} is negative: pass the number of plans to execute")
    return [time for time in pending if not named or time in named][:limit]


def _version(call: ProcedureCall) -> int:
    """`to_version`, a version name such as EIGHT."""
    name = call.text("to_version")
    if name not in TableVersion.__members__:
        raise InvalidRequest(f"to_version={name!r} is none of {', '.join(version.name for version in versions())}")
    return int(TableVersion[name])


def _savepoints(call: ProcedureCall, wanted: tuple[str, ...]) -> list[str]:
    """The named savepoints, or the latest. Raises InstantNotFound."""
    known = [instant.request_time for instant in call.table.timeline().completed(Action.SAVEPOINT)]
    named = [time for time in wanted if time]
    unknown = [time for time in named if time not in known]
    if unknown or not known:
        raise InstantNotFound(f"{call.table.uri} has no savepoint {', '.join(unknown)}".rstrip())
    return named or known[-1:]


def _check_merge_on_read(call: ProcedureCall) -> None:
    if call.table.config.is_cow:
        raise TableState(f"the table at {call.table.uri} is copy on write: it has nothing to compact")


def _compactions(call: ProcedureCall) -> Rows:
    store = call.table.context.timeline
    timeline = store.load()
    for instant in reversed(timeline.instants):
        if instant.action is Action.COMPACTION or (instant.action is Action.COMMIT and instant.state is State.COMPLETED):
            try:
                plan = load_compaction_plan(store, Instant(instant.request_time, Action.COMPACTION, State.REQUESTED))
            except (CorruptData, SnapshotOutdated):
                # A commit that is not a compaction has no plan; without a plan, its operations are unknown.
                continue
            yield instant.request_time, len(plan.operations or ()), instant.state.name


def _clusterings(call: ProcedureCall) -> Rows:
    store = call.table.context.timeline
    for instant in reversed(store.load().instants):
        if instant.action not in (Action.CLUSTERING, Action.REPLACECOMMIT):
            continue
        # A completed clustering is a replace commit, and its plan has the name of the pending clustering.
        plans = (
            load_clustering_plan(store, Instant(instant.request_time, action, State.REQUESTED))
            for action in (Action.CLUSTERING, Action.REPLACECOMMIT)
        )
        plan = next(filter(None, plans), None)
        if plan is not None:
            groups = plan.input_groups or ()
            # As in Hudi, a partition is repeated for each slice.
            partitions = [piece.partition_path or "" for group in groups for piece in group.slices or ()]
            involved = ",".join(partitions) if call.flag("show_involved_partition") else "*"
            yield instant.request_time, len(groups), instant.state.name, involved
