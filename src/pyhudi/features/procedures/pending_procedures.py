"""Procedures on the timeline as a whole, on pending and stale instants, and the restore to an instant."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from pyhudi.errors import CorruptData, InstantNotFound, InvalidRequest, TableState, Unsupported
from pyhudi.features.procedures.procedure import ProcedureCall, Rows, procedure
from pyhudi.features.procedures.timeline_procedures import archived_metadata
from pyhudi.format.actions.restore_metadata import RestoreMetadata
from pyhudi.format.actions.rollback_metadata import RollbackMetadata, RollbackPlan
from pyhudi.format.instants import Action, Instant, State, format_instant_time
from pyhudi.format.paths import file_name
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.rollback import rollback_failed_attempt
from pyhudi.operations.services.archive import ArchiveSettings, compact_history
from pyhudi.options.scope import TABLE_OPERATIONS

_MINUTE_MS = 60_000
_SERVICES = (Action.COMPACTION, Action.LOGCOMPACTION, Action.CLUSTERING)
_INGESTION = (Action.COMMIT, Action.DELTACOMMIT)
_STATES = (State.REQUESTED, State.INFLIGHT, State.COMPLETED)


@procedure("min_age_minutes int = 0", "instant_time string, action string, state string")
def show_inflight_commits(call: ProcedureCall) -> Rows:
    """Pending instants of all actions, oldest first; only those that are `min_age_minutes` old."""
    return ((i.request_time, str(i.action), i.state.name) for i in _pending_before(call, call.number("min_age_minutes")))


@procedure(
    "allowed_inflight_interval_minutes int = 180, include_ingestion_commits boolean = false, dry_run boolean = false",
    "instant_time string, action string, rollback_status boolean",
)
def cleanup_stale_inflight_commits(call: ProcedureCall) -> Rows:
    """Roll back pending writes and dead runs of table services that are older than the interval.

    Commits and delta commits are only rolled back with `include_ingestion_commits`. `rollback_status` is false if the
    writer is alive, and null with `dry_run`.
    """
    if not call.flag("dry_run"):
        call.writable_context()
    for instant in _pending_before(call, call.number("allowed_inflight_interval_minutes")):
        is_service = instant.action in _SERVICES
        if is_service and instant.state is not State.INFLIGHT:
            continue
        if not is_service and not instant.action.is_write:
            continue
        if instant.action in _INGESTION and not call.flag("include_ingestion_commits"):
            continue
        status = None if call.flag("dry_run") else _roll_back(call, instant)
        yield instant.request_time, str(instant.action), status


@procedure(
    "table, path, pending_instant string required, delete_request_instant_file boolean = false",
    "instant string, time_cost string",
)
def run_rollback_inflight_tableservice(call: ProcedureCall) -> Rows:
    """Roll back a dead run of a compaction or clustering; its plan stays, unless `delete_request_instant_file`."""
    env, time = call.table.context.env, call.text("pending_instant")
    started_ms = env.monotonic_ms()
    instant = next((i for i in call.table.timeline().pending(*_SERVICES) if i.request_time == time), None)
    if instant is None or instant.state is not State.INFLIGHT:
        raise InstantNotFound(
            f"{call.table.uri} has no run of a compaction or clustering {time}: show_inflight_commits lists them"
        )
    if not _roll_back(call, instant):
        raise TableState(f"the process that runs {instant.action} {time} of {call.table.uri} is alive: stop it first")
    if call.flag("delete_request_instant_file"):
        if instant.action is Action.CLUSTERING:
            call.table.unschedule_clustering(time)
        elif instant.action is Action.COMPACTION:
            call.table.unschedule_compaction(time)
    yield time, str(env.monotonic_ms() - started_ms)


@procedure(
    "instant_time string, enable_metadata boolean = true, rollback_parallelism int = 4, "
    "enable_consistency_guard boolean = false, audit_post_restore boolean = false, audit_only boolean = false, path, "
    "start_restore_time string, force boolean = false",
    "restore_result boolean, start_restore_time string, time_taken_in_millis bigint, instants_rolled_back bigint, "
    "audit_result string",
)
def restore_to_instant(call: ProcedureCall) -> Rows:
    """Restore the table to any completed write whose files all exist.

    `audit_post_restore` checks afterwards that the deleted files do not exist, and `audit_only` checks that of an
    earlier restore, named by `start_restore_time`. `audit_result` is PASSED or FAILED. force: although a process of Hudi
    writes to the table.
    """
    if call.flag("enable_consistency_guard"):
        raise Unsupported("enable_consistency_guard=true of restore_to_instant: object stores list files consistently; omit it")
    target, audited = call.text("instant_time"), call.text("start_restore_time")
    if call.flag("audit_only"):
        if target or not audited:
            raise InvalidRequest("restore_to_instant with audit_only=true takes start_restore_time, and no instant_time")
        yield None, None, None, None, _audit(call, audited)
        return
    if audited or not target:
        raise InvalidRequest("restore_to_instant takes instant_time; start_restore_time goes with audit_only=true")
    env = call.table.context.env
    started_ms = env.monotonic_ms()
    result = call.table.restore(target, force=call.flag("force"))
    duration_ms = env.monotonic_ms() - started_ms
    audit = _audit(call, result.instant) if call.flag("audit_post_restore") else None
    yield True, result.instant, duration_ms, len(result.rolled_back), audit


@procedure("", "start_compaction_time string, time_taken_in_millis bigint")
def run_timeline_compaction(call: ProcedureCall) -> Rows:
    """Merge files of the archived timeline, and delete those that were merged before."""
    context = call.writable_context()
    started_ms, now_ms = context.env.monotonic_ms(), context.env.now_ms()
    options = call.table._open.parse(TABLE_OPERATIONS["archive"], None)
    compact_history(context, ArchiveSettings.of(options))
    yield format_instant_time(now_ms, context.config.zone), context.env.monotonic_ms() - started_ms


@procedure(
    "table, path, limit int = 20, showArchived boolean = false, startTime string =, endTime string =",
    "instant_time string, action string, state string, requested_time string, inflight_time string, completed_time string, "
    "timeline_type string, rollback_info string",
)
def show_timeline(call: ProcedureCall) -> Rows:
    """Instants of the timeline, newest first, with the times of their files as `MM-dd HH:mm:ss`, and their rollbacks.

    `startTime` and `endTime` are inclusive instant times. With `showArchived`, archived instants follow the active ones.
    """
    store, zone = call.table.context.timeline, call.table.context.config.zone
    changed: dict[str, dict[State, int]] = defaultdict(dict)
    modified = {info.path: info.modified_ms for info in store.listed()}
    for instant in store.load_files():
        changed[instant.request_time][instant.state] = modified.get(store.path(instant), 0)
    rollbacks, undone = _rollbacks(call)
    for instant in sorted(_in_range(call, store.load().instants), key=lambda i: i.request_time, reverse=True):
        times = changed[instant.request_time]
        shown = (_short(format_instant_time(times[state], zone)) if times.get(state) else None for state in _STATES)
        yield *_columns(instant), *shown, "ACTIVE", _rollback_text(instant, rollbacks, undone)
    if call.flag("showArchived"):
        for instant in reversed(_in_range(call, store.history.instants())):
            times_text = (instant.request_time, instant.request_time, instant.completion_time or instant.request_time)
            yield *_columns(instant), *map(_short, times_text), "ARCHIVED", _rollback_text(instant, rollbacks, undone)


def _pending_before(call: ProcedureCall, minutes: int) -> list[Instant]:
    """Pending instants that were requested that long ago, oldest first. Raises InvalidRequest for a negative age."""
    if minutes < 0:
        raise InvalidRequest(f"an age of {minutes} minutes is negative: pass the age of instants in minutes")
    context = call.table.context
    limit = format_instant_time(context.env.now_ms() - minutes * _MINUTE_MS, context.config.zone)
    return [instant for instant in context.timeline.load().pending() if not minutes or instant.request_time < limit]


def _roll_back(call: ProcedureCall, instant: Instant) -> bool:
    """Roll back a pending write, or a dead run of a service, whose plan stays; return False if its process is alive."""
    if instant.action in _SERVICES:
        settings = CommitSettings.of(call.table._open.parse(TABLE_OPERATIONS["rollback"], None))
        return rollback_failed_attempt(call.writable_context(), instant.request_time, instant.action, settings) is not None
    try:
        call.table.rollback(instant.request_time)
    except (TableState, InstantNotFound):
        return False
    return True


def _audit(call: ProcedureCall, restore_time: str) -> str:
    """Whether the files that a restore deleted are missing: PASSED or FAILED. Raises InstantNotFound."""
    context = call.table.context.reloaded()
    instant = next((i for i in context.timeline.load().completed(Action.RESTORE) if i.request_time == restore_time), None)
    if instant is None:
        raise InstantNotFound(f"the active timeline of {call.table.uri} has no completed restore {restore_time}")
    document = RestoreMetadata.decode(context.timeline.read(instant))
    rollbacks = [rollback for group in (document.hoodie_restore_metadata or {}).values() for rollback in group]
    deleted: dict[str, set[str]] = defaultdict(set)
    for rollback in filter(None, rollbacks):
        for partition, files in rollback.partition_metadata.items():
            deleted[partition].update(file_name(path) for path in files.success_delete_files)
    present = (info.name in names for partition, names in deleted.items() for info in context.storage.list(partition).files)
    return "FAILED" if any(present) else "PASSED"


def _in_range(call: ProcedureCall, instants: tuple[Instant, ...] | list[Instant]) -> list[Instant]:
    start, end = call.text("startTime").strip(), call.text("endTime").strip()
    return [i for i in instants if (not start or i.request_time >= start) and (not end or i.request_time <= end)]


def _columns(instant: Instant) -> tuple[str, str, str]:
    return instant.request_time, str(instant.action), instant.state.name


def _short(time: str) -> str:
    """An instant time as `MM-dd HH:mm:ss`."""
    return f"{time[4:6]}-{time[6:8]} {time[8:10]}:{time[10:12]}:{time[12:14]}"


def _rollbacks(call: ProcedureCall) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """The instants that each rollback removes, and the rollbacks of each instant."""
    targets: dict[str, list[str]] = {}
    undone: dict[str, list[str]] = defaultdict(list)
    for time, instants in _rollback_targets(call):
        targets[time] = instants
        for instant in instants:
            undone[instant].append(time)
    return targets, undone


def _rollback_targets(call: ProcedureCall) -> Iterator[tuple[str, list[str]]]:
    store = call.table.context.timeline
    for instant in store.load().instants:
        if instant.action is not Action.ROLLBACK:
            continue
        try:
            if instant.state is State.COMPLETED:
                yield instant.request_time, list(RollbackMetadata.decode(store.read(instant)).commits_rollback)
            else:
                plan = RollbackPlan.decode(store.read(Instant(instant.request_time, Action.ROLLBACK, State.REQUESTED)))
                if plan.instant_to_rollback is not None:
                    yield instant.request_time, [plan.instant_to_rollback.commit_time]
        except CorruptData:
            continue
    if call.flag("showArchived"):
        for instant in store.history.instants():
            done = archived_metadata(store.history, instant) if instant.action is Action.ROLLBACK else None
            if isinstance(done, RollbackMetadata):
                yield instant.request_time, list(done.commits_rollback)


def _rollback_text(instant: Instant, rollbacks: dict[str, list[str]], undone: dict[str, list[str]]) -> str | None:
    if instant.action is Action.ROLLBACK:
        targets = rollbacks.get(instant.request_time)
        verb = "Rolled back:" if instant.state is State.COMPLETED else "Rolls back"
        return None if targets is None else f"{verb} {', '.join(targets)}"
    return f"Rolled back by: {', '.join(undone[instant.request_time])}" if instant.request_time in undone else None
