"""Procedures that run or show table services, savepoints and rollbacks."""

from __future__ import annotations

from itertools import islice
from typing import Any

from pyhudi.errors import CorruptData, InstantNotFound, InvalidRequest, SnapshotOutdated, TableState, Unsupported
from pyhudi.features.procedures.procedure import Parameter, Procedure, ProcedureCall, Rows, schema
from pyhudi.format.actions.clean_metadata import CleanMetadata
from pyhudi.format.actions.clustering_plan import ClusteringGroup, ClusteringPlan
from pyhudi.format.actions.requested_replace import RequestedReplaceMetadata
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
    CLUSTERING_PARTITION_SELECTED,
    CLUSTERING_SORT_COLUMNS,
    KEEP_MAX_COMMITS,
    KEEP_MIN_COMMITS,
    LAYOUT_OPTIMIZE_STRATEGY,
    PARTITION_TTL_STRATEGY_DAYS_RETAIN,
)
from pyhudi.table.pending_plans import load_compaction_plan
from pyhudi.table.snapshot import read_commit
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.timeline_store import TimelineStore

_CLEAN_ARGUMENTS = {
    "clean_policy": CLEAN_POLICY.key,
    "retain_commits": CLEAN_COMMITS_RETAINED.key,
    "hours_retained": CLEAN_HOURS_RETAINED.key,
    "file_versions_retained": CLEAN_FILEVERSIONS_RETAINED.key,
    "trigger_strategy": CLEAN_TRIGGER_STRATEGY.key,
    "trigger_max_commits": CLEAN_TRIGGER_MAX_COMMITS.key,
}


def show_compaction(call: ProcedureCall) -> Rows:
    """Compactions, newest first: pending ones, and completed ones whose plan still exists."""
    _check_merge_on_read(call)
    return islice(_compactions(call), call.number("limit"))


def run_compaction(call: ProcedureCall) -> Rows:
    """Schedule a compaction (`schedule`), execute pending ones (`run`), or both (`scheduleandexecute`)."""
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
    table, planned = call.table, None
    if operation.startswith("schedule"):
        planned = table.schedule_compaction(if_due=True, options=options).planned
        if planned is None:
            return
        wanted = (planned,)
    if operation != "schedule":
        pending = [i.request_time for i in table.timeline().pending(Action.COMPACTION)]
        unknown = sorted(set(wanted) - set(pending))
        if unknown:
            raise InstantNotFound(f"{table.uri} has no pending compaction {', '.join(unknown)}")
        chosen = [time for time in pending if not wanted or time in wanted]
        limit = call.arguments["limit"]
        for time in chosen if limit is None else chosen[: int(limit)]:
            table.compact(time, spark=call.spark, options=options)
            yield _compaction_row(call, time)
    elif planned is not None:
        yield _compaction_row(call, planned)


def show_clustering(call: ProcedureCall) -> Rows:
    """Clusterings, newest first. involved_partitions: `*` unless requested."""
    return islice(_clusterings(call), call.number("limit"))


def run_clustering(call: ProcedureCall) -> Rows:
    """Schedule a clustering (`schedule`), execute pending ones (`execute`), or both (`scheduleandexecute`, the
    default).
    """
    operation = (call.text("op") or "scheduleandexecute").strip().lower()
    if operation not in ("schedule", "execute", "scheduleandexecute"):
        raise InvalidRequest(f"op={call.text('op')!r} of run_clustering is none of schedule, execute, scheduleAndExecute")
    if call.text("predicate"):
        raise Unsupported("predicate= of run_clustering is not supported; name the partitions in selected_partitions=")
    options = call.options(
        order=CLUSTERING_SORT_COLUMNS.key,
        selected_partitions=CLUSTERING_PARTITION_SELECTED.key,
    )
    if call.text("order_strategy"):
        options[LAYOUT_OPTIMIZE_STRATEGY.key] = call.text("order_strategy")
    wanted = call.names("instants")
    if wanted and operation != "execute":
        raise InvalidRequest("instants of run_clustering name pending plans: they go with op=execute")
    table = call.table
    chosen = wanted
    if operation.startswith("schedule"):
        planned = table.schedule_clustering(options=options).instant
        if planned is None:
            return
        if operation == "schedule":
            yield from (row for row in _clusterings(call) if row["timestamp"] == planned)
            return
        chosen = (planned,)
    pending = [i.request_time for i in table.timeline().pending(Action.CLUSTERING)]
    unknown = sorted(set(chosen) - set(pending))
    if unknown:
        raise InstantNotFound(f"{table.uri} has no pending clustering {', '.join(unknown)}")
    todo = [time for time in pending if not chosen or time in chosen]
    limit = call.arguments["limit"]
    done = todo if limit is None else todo[: int(limit)]
    for time in done:
        table.cluster(time, spark=call.spark, options=options)
    yield from (row for row in _clusterings(call) if row["timestamp"] in done)


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
        yield {
            "start_clean_time": done.start_clean_time,
            "time_taken_in_millis": done.time_taken_in_millis,
            "total_files_deleted": done.total_files_deleted,
            "earliest_commit_to_retain": done.earliest_commit_to_retain,
            "bootstrap_part_metadata": "{}",
            "version": done.version,
        }


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
        yield {"deleted_partitions": partition}


def archive_commits(call: ProcedureCall) -> Rows:
    """Archive old instants. The result is 0, the success code of Hudi's command line."""
    if not call.flag("enable_metadata"):
        raise Unsupported("enable_metadata=false of archive_commits is refused: a table's metadata table stays in step")
    options = {
        KEEP_MIN_COMMITS.key: call.number("min_commits"),
        KEEP_MAX_COMMITS.key: call.number("max_commits"),
        CLEAN_COMMITS_RETAINED.key: call.number("retain_commits"),
    }
    call.table.archive(options=options)
    yield {"result": 0}


def create_savepoint(call: ProcedureCall) -> Rows:
    """Create a savepoint of the latest or the named write; returns false if it fails, for example because it exists."""
    try:
        call.table.savepoint(call.text("commit_time") or None, user=call.text("user"), comments=call.text("comments"))
    except InstantNotFound:
        raise
    except TableState:
        yield {"create_savepoint_result": False}
        return
    yield {"create_savepoint_result": True}


def delete_savepoint(call: ProcedureCall) -> Rows:
    """Delete a savepoint, by default the latest."""
    call.table.delete_savepoint(_savepoint(call))
    yield {"delete_savepoint_result": True}


def rollback_to_savepoint(call: ProcedureCall) -> Rows:
    """Restore the table to a savepoint, by default the latest."""
    call.table.restore(_savepoint(call))
    yield {"rollback_savepoint_result": True}


def rollback_to_instant(call: ProcedureCall) -> Rows:
    """Roll back the write of that instant only, despite the name given by Hudi."""
    call.table.rollback(call.text("instant_time"))
    yield {"rollback_result": True}


def upgrade_table(call: ProcedureCall) -> Rows:
    """Upgrade the table version."""
    call.table.upgrade(_version(call), spark=call.spark)
    yield {"result": True}


def downgrade_table(call: ProcedureCall) -> Rows:
    """Downgrade the table version."""
    call.table.downgrade(_version(call), spark=call.spark)
    yield {"result": True}


def _version(call: ProcedureCall) -> int:
    """`to_version`, a version name such as EIGHT."""
    name = call.text("to_version")
    if name not in TableVersion.__members__:
        raise InvalidRequest(f"to_version={name!r} is none of {', '.join(version.name for version in versions())}")
    return int(TableVersion[name])


def _savepoint(call: ProcedureCall) -> str:
    """Savepoint named in the call, or the latest. Raises InstantNotFound."""
    wanted = call.text("instant_time")
    found = [i.request_time for i in call.table.timeline().completed(Action.SAVEPOINT) if wanted in ("", i.request_time)]
    if not found:
        raise InstantNotFound(f"{call.table.uri} has no savepoint {wanted}".rstrip())
    return found[-1]


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
            yield {
                "timestamp": instant.request_time,
                "operation_size": len(plan.operations or ()),
                "state": instant.state.name,
            }


def _compaction_row(call: ProcedureCall, time: str) -> dict[str, Any]:
    return next(dict(row) for row in _compactions(call) if row["timestamp"] == time)


def _clusterings(call: ProcedureCall) -> Rows:
    context = call.table.context
    store = context.timeline
    for instant in reversed(store.load().instants):
        if instant.action not in (Action.CLUSTERING, Action.REPLACECOMMIT):
            continue
        plan = _clustering_plan(context, store, instant)
        if plan is None:
            continue
        groups = plan.input_groups or ()
        involved = ",".join(_partitions(groups)) if call.flag("show_involved_partition") else "*"
        yield {
            "timestamp": instant.request_time,
            "input_group_size": len(groups),
            "state": instant.state.name,
            "involved_partitions": involved,
        }


def _clustering_plan(context: TableContext, store: TimelineStore, instant: Instant) -> ClusteringPlan | None:
    """Clustering plan of an instant; None for a replace commit that is not a clustering."""
    for action in (Action.CLUSTERING, Action.REPLACECOMMIT):
        data = store.read_state(instant.request_time, action, State.REQUESTED)
        if data:
            try:
                return RequestedReplaceMetadata.decode(data).clustering_plan
            except CorruptData as error:
                where = store.path(Instant(instant.request_time, action, State.REQUESTED))
                raise error.with_path(context.storage.absolute(where)) from error
    return None


def _partitions(groups: tuple[ClusteringGroup, ...]) -> list[str]:
    """Partition of each slice, repeated per slice, as in Hudi."""
    return [piece.partition_path or "" for group in groups for piece in group.slices or ()]


_OPTIONS = Parameter("options")
_COMPACTION = schema("timestamp string, operation_size int, state string")
_CLUSTERING = schema("timestamp string, input_group_size int, state string, involved_partitions string")
_INVOLVED = Parameter("show_involved_partition", bool, False)

PROCEDURES = (
    Procedure("show_compaction", (Parameter("limit", int, 20),), _COMPACTION, show_compaction, "Compactions, newest first."),
    Procedure(
        "run_compaction",
        (
            Parameter("op", required=True),
            Parameter("timestamp", int),
            _OPTIONS,
            Parameter("instants"),
            Parameter("limit", int),
        ),
        _COMPACTION,
        run_compaction,
        "Plan or carry out compactions.",
    ),
    Procedure(
        "show_clustering",
        (Parameter("limit", int, 20), _INVOLVED),
        _CLUSTERING,
        show_clustering,
        "Clusterings, newest first.",
    ),
    Procedure(
        "run_clustering",
        (
            Parameter("predicate"),
            Parameter("order"),
            _INVOLVED,
            Parameter("op"),
            Parameter("order_strategy"),
            _OPTIONS,
            Parameter("instants"),
            Parameter("selected_partitions"),
            Parameter("limit", int),
        ),
        _CLUSTERING,
        run_clustering,
        "Plan or carry out clusterings.",
    ),
    Procedure(
        "run_clean",
        (
            Parameter("skip_locking", bool, False),
            Parameter("schedule_in_line", bool, True),
            Parameter("clean_policy"),
            Parameter("retain_commits", int),
            Parameter("hours_retained", int),
            Parameter("file_versions_retained", int),
            Parameter("trigger_strategy"),
            Parameter("trigger_max_commits", int),
            _OPTIONS,
        ),
        schema(
            "start_clean_time string, time_taken_in_millis bigint, total_files_deleted int, earliest_commit_to_retain string, "
            "bootstrap_part_metadata string, version int"
        ),
        run_clean,
        "Delete file slices that no query needs.",
    ),
    Procedure(
        "run_ttl",
        (Parameter("ttl_policy"), Parameter("retain_days", int), _OPTIONS),
        schema("deleted_partitions string"),
        run_ttl,
        "Delete partitions whose time to live is over.",
    ),
    Procedure(
        "archive_commits",
        (
            Parameter("min_commits", int, 20),
            Parameter("max_commits", int, 30),
            Parameter("retain_commits", int, 10),
            Parameter("enable_metadata", bool, True),
        ),
        schema("result int"),
        archive_commits,
        "Move old instants to the history.",
    ),
    Procedure(
        "create_savepoint",
        (Parameter("commit_time", default=""), Parameter("user", default=""), Parameter("comments", default="")),
        schema("create_savepoint_result boolean"),
        create_savepoint,
        "Keep a completed write from being cleaned.",
    ),
    Procedure(
        "delete_savepoint",
        (Parameter("instant_time", default=""),),
        schema("delete_savepoint_result boolean"),
        delete_savepoint,
        "Remove a savepoint.",
    ),
    Procedure(
        "rollback_to_savepoint",
        (Parameter("instant_time", default=""),),
        schema("rollback_savepoint_result boolean"),
        rollback_to_savepoint,
        "Take the table back to a savepoint.",
    ),
    Procedure(
        "rollback_to_instant",
        (Parameter("instant_time", required=True),),
        schema("rollback_result boolean"),
        rollback_to_instant,
        "Undo the write of an instant.",
    ),
    Procedure(
        "upgrade_table",
        (Parameter("to_version", required=True),),
        schema("result boolean"),
        upgrade_table,
        "Make the table one of a later version: EIGHT or NINE.",
    ),
    Procedure(
        "downgrade_table",
        (Parameter("to_version", required=True),),
        schema("result boolean"),
        downgrade_table,
        "Make the table one of an earlier version: EIGHT or SIX.",
    ),
)
