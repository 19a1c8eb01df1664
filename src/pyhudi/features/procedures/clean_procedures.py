"""Procedures that show cleans: results, results by partition, and plans."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from pyhudi.errors import CorruptData
from pyhudi.features.procedures.procedure import Parameter, Procedure, ProcedureCall, Rows, schema
from pyhudi.format.actions.archived_instants import decode_completed
from pyhudi.format.actions.clean_metadata import CleanerPlan, CleanMetadata
from pyhudi.format.instants import Action, Instant, State

_ARGUMENTS = (Parameter("limit", int, 10), Parameter("showArchived", bool, False))


def show_cleans(call: ProcedureCall) -> Rows:
    """Completed cleans, newest first; those of the archived timeline after the active ones with `showArchived`."""
    rows = (
        {
            **_instant_columns(instant),
            "start_clean_time": clean.start_clean_time,
            "time_taken_in_millis": clean.time_taken_in_millis,
            "total_files_deleted": clean.total_files_deleted,
            "earliest_commit_to_retain": clean.earliest_commit_to_retain,
            "last_completed_commit_timestamp": clean.last_completed_commit_timestamp,
            "version": clean.version,
        }
        for instant, clean in _cleans(call)
    )
    return islice(rows, call.number("limit"))


def show_cleans_metadata(call: ProcedureCall) -> Rows:
    """Partitions of completed cleans, newest clean first; the limit counts partitions."""
    rows = (
        {
            **_instant_columns(instant),
            "start_clean_time": clean.start_clean_time,
            "partition_path": partition,
            "policy": found.policy,
            "delete_path_patterns": len(found.delete_path_patterns),
            "success_delete_files": len(found.success_delete_files),
            "failed_delete_files": len(found.failed_delete_files),
            "is_partition_deleted": bool(found.is_partition_deleted),
            "time_taken_in_millis": clean.time_taken_in_millis,
            "total_files_deleted": clean.total_files_deleted,
        }
        for instant, clean in _cleans(call)
        for partition, found in sorted(clean.partition_metadata.items())
    )
    return islice(rows, call.number("limit"))


def show_clean_plans(call: ProcedureCall) -> Rows:
    """Plans of cleans, pending and completed, newest first."""
    return islice(_plan_rows(call), call.number("limit"))


def _plan_rows(call: ProcedureCall) -> Rows:
    for instant, plan in _plans(call):
        earliest = plan.earliest_instant_to_retain
        yield {
            "plan_time": instant.request_time,
            "state": instant.state.name,
            "action": str(instant.action),
            "earliest_instant_to_retain": earliest.timestamp if earliest else None,
            "last_completed_commit_timestamp": plan.last_completed_commit_timestamp,
            "policy": plan.policy,
            "version": plan.version,
            "total_partitions_to_clean": len(plan.file_paths_to_be_deleted_per_partition or {}),
            "total_partitions_to_delete": len(plan.partitions_to_be_deleted or ()),
            "extra_metadata": ", ".join(f"{key}={value}" for key, value in sorted((plan.extra_metadata or {}).items())) or None,
        }


def _instant_columns(instant: Instant) -> dict[str, str | None]:
    return {
        "clean_time": instant.request_time,
        "state_transition_time": instant.completion_time,
        "action": str(instant.action),
    }


def _cleans(call: ProcedureCall) -> Iterator[tuple[Instant, CleanMetadata]]:
    store = call.table.context.timeline
    for instant in reversed(store.load().completed(Action.CLEAN)):
        yield instant, CleanMetadata.decode(store.read(instant))
    for instant in _archived(call):
        row = store.history.find(instant.request_time, Action.CLEAN)
        clean = decode_completed(Action.CLEAN, row.metadata or b"") if row else None
        if isinstance(clean, CleanMetadata):
            yield instant, clean


def _plans(call: ProcedureCall) -> Iterator[tuple[Instant, CleanerPlan]]:
    context = call.table.context
    store = context.timeline
    for instant in reversed(store.load().instants):
        data = store.read_state(instant.request_time, Action.CLEAN, State.REQUESTED) if instant.action is Action.CLEAN else None
        if data:
            try:
                yield instant, CleanerPlan.decode(data)
            except CorruptData as error:
                where = store.path(Instant(instant.request_time, Action.CLEAN, State.REQUESTED))
                raise error.with_path(context.storage.absolute(where)) from error
    for instant in _archived(call):
        row = store.history.find(instant.request_time, Action.CLEAN)
        if row and row.plan:
            yield instant, CleanerPlan.decode(row.plan)


def _archived(call: ProcedureCall) -> list[Instant]:
    """Archived cleans, newest first; none unless `showArchived`."""
    if not call.flag("showArchived"):
        return []
    return [one for one in reversed(call.table.context.timeline.history.instants()) if one.action is Action.CLEAN]


PROCEDURES = (
    Procedure(
        "show_cleans",
        _ARGUMENTS,
        schema(
            "clean_time string, state_transition_time string, action string, start_clean_time string, "
            "time_taken_in_millis bigint, total_files_deleted int, earliest_commit_to_retain string, "
            "last_completed_commit_timestamp string, version int"
        ),
        show_cleans,
        "Completed cleans, newest first.",
    ),
    Procedure(
        "show_cleans_metadata",
        _ARGUMENTS,
        schema(
            "clean_time string, state_transition_time string, action string, start_clean_time string, partition_path string, "
            "policy string, delete_path_patterns int, success_delete_files int, failed_delete_files int, "
            "is_partition_deleted boolean, time_taken_in_millis bigint, total_files_deleted int"
        ),
        show_cleans_metadata,
        "Completed cleans by partition.",
    ),
    Procedure(
        "show_clean_plans",
        _ARGUMENTS,
        schema(
            "plan_time string, state string, action string, earliest_instant_to_retain string, "
            "last_completed_commit_timestamp string, policy string, version int, total_partitions_to_clean int, "
            "total_partitions_to_delete int, extra_metadata string"
        ),
        show_clean_plans,
        "Plans of cleans, newest first.",
    ),
)
