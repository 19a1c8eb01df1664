"""Procedures that read the timeline: commits, their files and statistics, rollbacks, savepoints, plans, properties."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from pyhudi.errors import InstantNotFound
from pyhudi.features.procedures.procedure import Parameter, Procedure, ProcedureCall, Rows, schema
from pyhudi.format.actions.archived_instants import COMMIT_LIKE, decode_completed
from pyhudi.format.actions.commit_metadata import NO_PREVIOUS_COMMIT, CommitMetadata, WriteStat
from pyhudi.format.actions.rollback_metadata import RollbackMetadata
from pyhudi.format.instants import Action, Instant, format_instant_time
from pyhudi.format.properties import redact_secret
from pyhudi.table.snapshot import read_commit
from pyhudi.table.timeline.archived_timeline import Bounds

DAY_MS = 86_400_000
_LARGEST = 2**63 - 1

_COMMITS = schema(
    "commit_time string, state_transition_time string, action string, total_bytes_written bigint, total_files_added bigint, "
    "total_files_updated bigint, total_partitions_written bigint, total_records_written bigint, "
    "total_update_records_written bigint, total_errors bigint"
)
# Hudi omits the action here.
_ARCHIVED = schema(
    "commit_time string, state_transition_time string, total_bytes_written bigint, total_files_added bigint, "
    "total_files_updated bigint, total_partitions_written bigint, total_records_written bigint, "
    "total_update_records_written bigint, total_errors bigint"
)
_STATS = schema(
    "commit_time string, state_transition_time string, action string, partition string, file_id string, previous_commit string, "
    "num_writes bigint, num_inserts bigint, num_deletes bigint, num_update_writes bigint, total_errors bigint, "
    "total_log_blocks bigint, total_corrupt_log_blocks bigint, total_rollback_blocks bigint, total_log_records bigint, "
    "total_updated_records_compacted bigint, total_bytes_written bigint"
)
_LIMIT = Parameter("limit", int, 10)
_INSTANT = Parameter("instant_time", required=True)


def show_commits(call: ProcedureCall) -> Rows:
    """Completed writes, newest first."""
    return islice((_summary(*found) for found in _active(call)), call.number("limit"))


def show_commits_metadata(call: ProcedureCall) -> Rows:
    """Files of completed writes, newest first; the limit counts files."""
    return islice(_file_rows(_active(call)), call.number("limit"))


def show_archived_commits(call: ProcedureCall) -> Rows:
    """Completed writes of the archived timeline, newest first; by default from ten days ago until yesterday."""
    return islice((_summary(*found) for found in _archived(call)), call.number("limit"))


def show_archived_commits_metadata(call: ProcedureCall) -> Rows:
    """Files of archived writes, newest first; the limit counts files."""
    return islice(_file_rows(_archived(call)), call.number("limit"))


def show_commit_files(call: ProcedureCall) -> Rows:
    """Files of one write."""
    instant, commit = _named_write(call)
    rows = (
        {
            "action": str(instant.action),
            "partition_path": partition,
            "file_id": stat.file_id,
            "previous_commit": stat.prev_commit,
            "total_records_updated": stat.num_update_writes,
            "total_records_written": stat.num_writes,
            "total_bytes_written": stat.total_write_bytes,
            "total_errors": stat.total_write_errors,
            "file_size": stat.file_size_in_bytes,
        }
        for partition, stat in _stats(commit)
    )
    return islice(rows, call.number("limit"))


def show_commit_partitions(call: ProcedureCall) -> Rows:
    """Partitions changed by one write."""
    instant, commit = _named_write(call)
    rows = (
        {
            "action": str(instant.action),
            "partition_path": partition,
            "total_files_added": sum(stat.prev_commit == NO_PREVIOUS_COMMIT for stat in stats),
            "total_files_updated": sum(stat.prev_commit != NO_PREVIOUS_COMMIT for stat in stats),
            "total_records_inserted": sum(stat.num_inserts for stat in stats),
            "total_records_updated": sum(stat.num_update_writes for stat in stats),
            "total_bytes_written": sum(stat.total_write_bytes for stat in stats),
            "total_errors": sum(stat.total_write_errors for stat in stats),
        }
        for partition, stats in commit.partition_to_write_stats.items()
    )
    return islice(rows, call.number("limit"))


def show_commit_write_stats(call: ProcedureCall) -> Rows:
    """Bytes and records of one write."""
    instant, commit = _named_write(call)
    written = sum(stat.total_write_bytes for _, stat in _stats(commit))
    records = sum(stat.num_writes for _, stat in _stats(commit))
    yield {
        "action": str(instant.action),
        "total_bytes_written": written,
        "total_records_written": records,
        # Hudi divides by zero, and shows the largest number, for bytes without records, such as a log of deletes.
        "avg_record_size": -(-written // records) if records else (_LARGEST if written else 0),
    }


def show_commit_extra_metadata(call: ProcedureCall) -> Rows:
    """Extra metadata of a write, by default of the latest."""
    instant, commit = _named_write(call)
    key = call.text("metadata_key")
    rows = (
        {
            "instant_time": instant.request_time,
            "action": str(instant.action),
            "metadata_key": name,
            "metadata_value": value,
        }
        for name, value in commit.extra_metadata.items()
        if not key or name == key
    )
    return islice(rows, call.number("limit"))


def show_rollbacks(call: ProcedureCall) -> Rows:
    """Rollbacks, newest first, one row per rolled-back instant."""
    return islice(_rollback_rows(call), call.number("limit"))


def show_rollback_detail(call: ProcedureCall) -> Rows:
    """Files that one rollback deleted, or failed to delete."""
    store = call.table.context.timeline
    instant = store.load().find(call.text("instant_time"), Action.ROLLBACK)
    done = RollbackMetadata.decode(store.read(instant))
    undone = f"[{', '.join(done.commits_rollback)}]"
    absolute = call.table.context.storage.absolute
    rows = (
        {
            "instant": done.start_rollback_time,
            "rollback_instant": undone,
            "partition": partition,
            "deleted_file": path if ":" in path else absolute(path),
            "succeeded": succeeded,
        }
        for partition, found in done.partition_metadata.items()
        for paths, succeeded in ((found.success_delete_files, True), (found.failed_delete_files, False))
        for path in paths
    )
    return islice(rows, call.number("limit"))


def show_savepoints(call: ProcedureCall) -> Rows:
    """Savepointed instants, newest first."""
    for instant in reversed(call.table.timeline().completed(Action.SAVEPOINT)):
        yield {"savepoint_time": instant.request_time}


def show_table_properties(call: ProcedureCall) -> Rows:
    """`hoodie.properties`, by key; secrets are redacted."""
    pairs = sorted(call.table.context.reloaded().config.properties)
    return islice(({"key": key, "value": redact_secret(key, value)} for key, value in pairs), call.number("limit"))


def stats_wa(call: ProcedureCall) -> Rows:
    """Write amplification: records written per upserted record, for each commit, oldest first, and in total.

    Hudi counts commits and replace commits: on a merge-on-read table its compactions, but no delta commits.
    """
    return islice(_amplification(call), call.number("limit"))


def _amplification(call: ProcedureCall) -> Rows:
    upserted = written = 0
    for instant, commit in _active(call, newest_first=False):
        if instant.action is Action.DELTACOMMIT:
            continue
        updates = sum(stat.num_update_writes for _, stat in _stats(commit))
        writes = sum(stat.num_writes for _, stat in _stats(commit))
        upserted, written = upserted + updates, written + writes
        yield _factor(instant.request_time, updates, writes)
    yield _factor("Total", upserted, written)


def _factor(time: str, upserted: int, written: int) -> dict[str, Any]:
    factor = f"{written / upserted:.2f}" if upserted else "0"
    return {
        "commit_time": time,
        "total_upserted": upserted,
        "total_written": written,
        "write_amplification_factor": factor,
    }


def _rollback_rows(call: ProcedureCall) -> Rows:
    store = call.table.context.timeline
    for instant in reversed(store.load().completed(Action.ROLLBACK)):
        done = RollbackMetadata.decode(store.read(instant))
        for undone in done.commits_rollback:
            yield {
                "instant": done.start_rollback_time,
                "rollback_instant": undone,
                "total_files_deleted": done.total_files_deleted,
                "time_taken_in_millis": done.time_taken_in_millis,
                "total_partitions": len(done.partition_metadata),
            }


def _active(call: ProcedureCall, *, newest_first: bool = True) -> Iterator[tuple[Instant, CommitMetadata]]:
    store = call.table.context.timeline
    writes = store.load().completed_writes()
    for instant in reversed(writes) if newest_first else writes:
        yield instant, read_commit(store, instant)


def _archived(call: ProcedureCall) -> Iterator[tuple[Instant, CommitMetadata]]:
    context = call.table.context
    now_ms, zone = context.env.now_ms(), context.config.zone
    start = call.text("start_ts") or format_instant_time(now_ms - 10 * DAY_MS, zone)
    end = call.text("end_ts") or format_instant_time(now_ms - DAY_MS, zone)
    history = context.timeline.history
    for instant in reversed(history.instants(Bounds(start, end))):
        if instant.action not in COMMIT_LIKE:
            continue
        row = history.find(instant.request_time, instant.action)
        commit = decode_completed(instant.action, row.metadata or b"") if row else None
        if isinstance(commit, CommitMetadata):
            yield instant, commit


def _named_write(call: ProcedureCall) -> tuple[Instant, CommitMetadata]:
    """Completed write named in the call, or the latest. Raises InstantNotFound."""
    store = call.table.context.timeline
    wanted = call.text("instant_time")
    found = [i for i in store.load().completed_writes() if not wanted or i.request_time == wanted]
    if not found:
        raise InstantNotFound(f"the active timeline of {call.table.uri} has no completed write {wanted}".rstrip())
    return found[-1], read_commit(store, found[-1])


def _stats(commit: CommitMetadata) -> Iterator[tuple[str, WriteStat]]:
    for partition, stats in commit.partition_to_write_stats.items():
        for stat in stats:
            yield partition, stat


def _summary(instant: Instant, commit: CommitMetadata) -> dict[str, Any]:
    stats = [stat for _, stat in _stats(commit)]
    return {
        "commit_time": instant.request_time,
        "state_transition_time": instant.completion_time,
        "action": str(instant.action),
        "total_bytes_written": sum(stat.total_write_bytes for stat in stats),
        "total_files_added": sum(stat.prev_commit == NO_PREVIOUS_COMMIT for stat in stats),
        "total_files_updated": sum(stat.prev_commit != NO_PREVIOUS_COMMIT for stat in stats),
        "total_partitions_written": len(commit.partition_to_write_stats),
        "total_records_written": sum(stat.num_writes for stat in stats),
        "total_update_records_written": sum(stat.num_update_writes for stat in stats),
        "total_errors": sum(stat.total_write_errors for stat in stats),
    }


def _file_rows(commits: Iterator[tuple[Instant, CommitMetadata]]) -> Rows:
    for instant, commit in commits:
        for partition, stat in _stats(commit):
            yield {
                "commit_time": instant.request_time,
                "state_transition_time": instant.completion_time,
                "action": str(instant.action),
                "partition": partition,
                "file_id": stat.file_id,
                "previous_commit": stat.prev_commit,
                "num_writes": stat.num_writes,
                "num_inserts": stat.num_inserts,
                "num_deletes": stat.num_deletes,
                "num_update_writes": stat.num_update_writes,
                "total_errors": stat.total_write_errors,
                "total_log_blocks": stat.total_log_blocks,
                "total_corrupt_log_blocks": stat.total_corrupt_log_block,
                "total_rollback_blocks": stat.total_rollback_blocks,
                "total_log_records": stat.total_log_records,
                "total_updated_records_compacted": stat.total_updated_records_compacted,
                "total_bytes_written": stat.total_write_bytes,
            }


_RANGE = (_LIMIT, Parameter("start_ts", default=""), Parameter("end_ts", default=""))

PROCEDURES = (
    Procedure("show_commits", (_LIMIT,), _COMMITS, show_commits, "Completed writes, newest first."),
    Procedure("show_commits_metadata", (_LIMIT,), _STATS, show_commits_metadata, "The files of completed writes."),
    Procedure("show_archived_commits", _RANGE, _ARCHIVED, show_archived_commits, "Completed writes of the history."),
    Procedure("show_archived_commits_metadata", _RANGE, _STATS, show_archived_commits_metadata, "The files of archived writes."),
    Procedure(
        "show_commit_files",
        (_LIMIT, _INSTANT),
        schema(
            "action string, partition_path string, file_id string, previous_commit string, total_records_updated bigint, "
            "total_records_written bigint, total_bytes_written bigint, total_errors bigint, file_size bigint"
        ),
        show_commit_files,
        "The files that one write made.",
    ),
    Procedure(
        "show_commit_partitions",
        (_LIMIT, _INSTANT),
        schema(
            "action string, partition_path string, total_files_added bigint, total_files_updated bigint, "
            "total_records_inserted bigint, total_records_updated bigint, total_bytes_written bigint, total_errors bigint"
        ),
        show_commit_partitions,
        "The partitions that one write touched.",
    ),
    Procedure(
        "show_commit_write_stats",
        (_LIMIT, _INSTANT),
        schema("action string, total_bytes_written bigint, total_records_written bigint, avg_record_size bigint"),
        show_commit_write_stats,
        "Bytes and records of one write.",
    ),
    Procedure(
        "show_commit_extra_metadata",
        (Parameter("limit", int, 100), Parameter("instant_time"), Parameter("metadata_key")),
        schema("instant_time string, action string, metadata_key string, metadata_value string"),
        show_commit_extra_metadata,
        "What a write noted with its commit.",
    ),
    Procedure(
        "show_rollbacks",
        (_LIMIT,),
        schema(
            "instant string, rollback_instant string, total_files_deleted int, time_taken_in_millis bigint, total_partitions int"
        ),
        show_rollbacks,
        "Rollbacks, newest first.",
    ),
    Procedure(
        "show_rollback_detail",
        (_LIMIT, _INSTANT),
        schema("instant string, rollback_instant string, partition string, deleted_file string, succeeded boolean"),
        show_rollback_detail,
        "The files that one rollback deleted.",
    ),
    Procedure("show_savepoints", (), schema("savepoint_time string"), show_savepoints, "The instants that have a savepoint."),
    Procedure(
        "show_table_properties",
        (_LIMIT,),
        schema("key string, value string"),
        show_table_properties,
        "The table's settings.",
    ),
    Procedure(
        "stats_wa",
        (_LIMIT,),
        schema("commit_time string, total_upserted bigint, total_written bigint, write_amplification_factor string"),
        stats_wa,
        "Records written for one updated, by commit.",
    ),
)
