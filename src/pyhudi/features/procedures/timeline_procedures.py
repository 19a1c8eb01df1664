"""Procedures that read the timeline: commits, their files and statistics, cleans, rollbacks, savepoints, properties."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import attrgetter

from pyhudi.errors import InstantNotFound
from pyhudi.features.procedures.procedure import ProcedureCall, Rows, procedure
from pyhudi.format.actions.archived_instants import COMMIT_LIKE, decode_completed
from pyhudi.format.actions.clean_metadata import CleanerPlan, CleanMetadata
from pyhudi.format.actions.commit_metadata import NO_PREVIOUS_COMMIT, CommitMetadata, WriteStat
from pyhudi.format.actions.rollback_metadata import RollbackMetadata
from pyhudi.format.instants import Action, Instant, State, format_instant_time
from pyhudi.format.properties import redact_secret
from pyhudi.table.snapshot import read_commit
from pyhudi.table.timeline.archived_timeline import Bounds, HistoryStore

DAY_MS = 86_400_000
_LARGEST = 2**63 - 1

_LIMIT = "limit int = 10"
_RANGE = f"{_LIMIT}, start_ts string =, end_ts string ="
_INSTANT = f"{_LIMIT}, instant_time string required"
_CLEANS = f"{_LIMIT}, showArchived boolean = false"
_TOTALS = (
    "total_bytes_written bigint, total_files_added bigint, total_files_updated bigint, total_partitions_written bigint, "
    "total_records_written bigint, total_update_records_written bigint, total_errors bigint"
)
_FILES = (
    "commit_time string, state_transition_time string, action string, partition string, file_id string, previous_commit string, "
    "num_writes bigint, num_inserts bigint, num_deletes bigint, num_update_writes bigint, total_errors bigint, "
    "total_log_blocks bigint, total_corrupt_log_blocks bigint, total_rollback_blocks bigint, total_log_records bigint, "
    "total_updated_records_compacted bigint, total_bytes_written bigint"
)
_PLAN = attrgetter("last_completed_commit_timestamp", "policy", "version")


@procedure(_LIMIT, f"commit_time string, state_transition_time string, action string, {_TOTALS}")
def show_commits(call: ProcedureCall) -> Rows:
    """Completed writes, newest first."""
    for instant, commit in _active(call):
        yield *_instant(instant), *_totals(commit)


@procedure(_LIMIT, _FILES)
def show_commits_metadata(call: ProcedureCall) -> Rows:
    """Files of completed writes, newest first; the limit counts files."""
    return _file_rows(_active(call))


# Hudi omits the action here.
@procedure(_RANGE, f"commit_time string, state_transition_time string, {_TOTALS}")
def show_archived_commits(call: ProcedureCall) -> Rows:
    """Completed writes of the archived timeline, newest first; by default from ten days ago until yesterday."""
    for instant, commit in _archived(call):
        yield *_instant(instant)[:2], *_totals(commit)


@procedure(_RANGE, _FILES)
def show_archived_commits_metadata(call: ProcedureCall) -> Rows:
    """Files of archived writes, newest first; the limit counts files."""
    return _file_rows(_archived(call))


@procedure(
    _INSTANT,
    "action string, partition_path string, file_id string, previous_commit string, total_records_updated bigint, "
    "total_records_written bigint, total_bytes_written bigint, total_errors bigint, file_size bigint",
)
def show_commit_files(call: ProcedureCall) -> Rows:
    """Files of one write."""
    instant, commit = _named_write(call)
    sizes = attrgetter("num_update_writes", "num_writes", "total_write_bytes", "total_write_errors", "file_size_in_bytes")
    for partition, stat in _stats(commit):
        yield str(instant.action), partition, stat.file_id, stat.prev_commit, *sizes(stat)


@procedure(
    _INSTANT,
    "action string, partition_path string, total_files_added bigint, total_files_updated bigint, total_records_inserted bigint, "
    "total_records_updated bigint, total_bytes_written bigint, total_errors bigint",
)
def show_commit_partitions(call: ProcedureCall) -> Rows:
    """Partitions changed by one write."""
    instant, commit = _named_write(call)
    for partition, stats in commit.partition_to_write_stats.items():
        sums = _sums(stats, "num_inserts", "num_update_writes", "total_write_bytes", "total_write_errors")
        yield str(instant.action), partition, *_added_and_updated(stats), *sums


@procedure(_INSTANT, "action string, total_bytes_written bigint, total_records_written bigint, avg_record_size bigint")
def show_commit_write_stats(call: ProcedureCall) -> Rows:
    """Bytes and records of one write."""
    instant, commit = _named_write(call)
    written, records = _sums(commit.write_stats, "total_write_bytes", "num_writes")
    # Hudi divides by zero, and shows the largest number, for bytes without records, such as a log of deletes.
    average = -(-written // records) if records else (_LARGEST if written else 0)
    yield str(instant.action), written, records, average


@procedure(
    "limit int = 100, instant_time string, metadata_key string",
    "instant_time string, action string, metadata_key string, metadata_value string",
)
def show_commit_extra_metadata(call: ProcedureCall) -> Rows:
    """Extra metadata of a write, by default of the latest."""
    instant, commit = _named_write(call)
    for name, value in commit.extra_metadata.items():
        if call.text("metadata_key") in ("", name):
            yield instant.request_time, str(instant.action), name, value


@procedure(
    f"{_LIMIT}, instant_time string =",
    "instant string, rollback_instant string, total_files_deleted int, time_taken_in_millis bigint, total_partitions int",
)
def show_rollbacks(call: ProcedureCall) -> Rows:
    """Rollbacks, newest first, one row per rolled-back instant. instant_time: of a rollback, or of what it rolled back."""
    store, wanted = call.table.context.timeline, call.text("instant_time")
    for instant in reversed(store.load().completed(Action.ROLLBACK)):
        done = RollbackMetadata.decode(store.read(instant))
        for undone in done.commits_rollback:
            if wanted not in ("", undone, done.start_rollback_time):
                continue
            counts = done.total_files_deleted, done.time_taken_in_millis, len(done.partition_metadata)
            yield done.start_rollback_time, undone, *counts


@procedure(_INSTANT, "instant string, rollback_instant string, partition string, deleted_file string, succeeded boolean")
def show_rollback_detail(call: ProcedureCall) -> Rows:
    """Files that one rollback deleted, or failed to delete."""
    store = call.table.context.timeline
    done = RollbackMetadata.decode(store.read(store.load().find(call.text("instant_time"), Action.ROLLBACK)))
    undone = f"[{', '.join(done.commits_rollback)}]"
    for partition, deletes in done.partition_metadata.items():
        for paths, succeeded in ((deletes.success_delete_files, True), (deletes.failed_delete_files, False)):
            for path in paths:
                deleted = path if ":" in path else call.table.context.storage.absolute(path)
                yield done.start_rollback_time, undone, partition, deleted, succeeded


@procedure("", "savepoint_time string")
def show_savepoints(call: ProcedureCall) -> Rows:
    """Savepointed instants, newest first."""
    return ((instant.request_time,) for instant in reversed(call.table.timeline().completed(Action.SAVEPOINT)))


@procedure(f"table, path, {_LIMIT}", "key string, value string")
def show_table_properties(call: ProcedureCall) -> Rows:
    """Properties in `hoodie.properties`, by key; secrets are redacted."""
    return ((key, redact_secret(key, value)) for key, value in sorted(call.table.context.reloaded().config.properties))


@procedure(_LIMIT, "commit_time string, total_upserted bigint, total_written bigint, write_amplification_factor string")
def stats_wa(call: ProcedureCall) -> Rows:
    """Write amplification: records written per upserted record, for each commit, oldest first, and in total.

    Hudi counts commits and replace commits: on a merge-on-read table its compactions, but no delta commits.
    """
    total_upserted = total_written = 0
    for instant, commit in _active(call, newest_first=False):
        if instant.action is not Action.DELTACOMMIT:
            upserted, written = _sums(commit.write_stats, "num_update_writes", "num_writes")
            total_upserted, total_written = total_upserted + upserted, total_written + written
            yield instant.request_time, upserted, written, _factor(upserted, written)
    yield "Total", total_upserted, total_written, _factor(total_upserted, total_written)


@procedure(
    _CLEANS,
    "clean_time string, state_transition_time string, action string, start_clean_time string, time_taken_in_millis bigint, "
    "total_files_deleted int, earliest_commit_to_retain string, last_completed_commit_timestamp string, version int",
)
def show_cleans(call: ProcedureCall) -> Rows:
    """Completed cleans, newest first; those of the archived timeline after the active ones with `showArchived`."""
    totals = attrgetter("start_clean_time", "time_taken_in_millis", "total_files_deleted")
    commits = attrgetter("earliest_commit_to_retain", "last_completed_commit_timestamp", "version")
    for instant, clean in _cleans(call):
        yield *_instant(instant), *totals(clean), *commits(clean)


@procedure(
    _CLEANS,
    "clean_time string, state_transition_time string, action string, start_clean_time string, partition_path string, "
    "policy string, delete_path_patterns int, success_delete_files int, failed_delete_files int, is_partition_deleted boolean, "
    "time_taken_in_millis bigint, total_files_deleted int",
)
def show_cleans_metadata(call: ProcedureCall) -> Rows:
    """Partitions of completed cleans, newest clean first; the limit counts partitions."""
    lists = attrgetter("delete_path_patterns", "success_delete_files", "failed_delete_files")
    for instant, clean in _cleans(call):
        totals = clean.time_taken_in_millis, clean.total_files_deleted
        for partition, cleaned in sorted(clean.partition_metadata.items()):
            columns = partition, cleaned.policy, *map(len, lists(cleaned)), bool(cleaned.is_partition_deleted)
            yield *_instant(instant), clean.start_clean_time, *columns, *totals


@procedure(
    _CLEANS,
    "plan_time string, state string, action string, earliest_instant_to_retain string, last_completed_commit_timestamp string, "
    "policy string, version int, total_partitions_to_clean int, total_partitions_to_delete int, extra_metadata string",
)
def show_clean_plans(call: ProcedureCall) -> Rows:
    """Plans of cleans, pending and completed, newest first."""
    for instant, plan in _clean_plans(call):
        earliest = plan.earliest_instant_to_retain.timestamp if plan.earliest_instant_to_retain else None
        counts = map(len, (plan.file_paths_to_be_deleted_per_partition or {}, plan.partitions_to_be_deleted or ()))
        extra = ", ".join(f"{key}={value}" for key, value in sorted((plan.extra_metadata or {}).items())) or None
        yield instant.request_time, instant.state.name, str(instant.action), earliest, *_PLAN(plan), *counts, extra


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
        commit = archived_metadata(history, instant)
        if isinstance(commit, CommitMetadata):
            yield instant, commit


def archived_metadata(history: HistoryStore, instant: Instant) -> object:
    """Return the completed document of an instant of the archived timeline; None if there is no such row."""
    row = history.find(instant.request_time, instant.action)
    return decode_completed(instant.action, row.metadata or b"") if row else None


def _named_write(call: ProcedureCall) -> tuple[Instant, CommitMetadata]:
    """Completed write named in the call, or the latest. Raises InstantNotFound."""
    store = call.table.context.timeline
    named = call.text("instant_time")
    writes = [i for i in store.load().completed_writes() if not named or i.request_time == named]
    if not writes:
        raise InstantNotFound(f"the active timeline of {call.table.uri} has no completed write {named}".rstrip())
    return writes[-1], read_commit(store, writes[-1])


def _stats(commit: CommitMetadata) -> Iterator[tuple[str, WriteStat]]:
    for partition, stats in commit.partition_to_write_stats.items():
        for stat in stats:
            yield partition, stat


def _instant(instant: Instant) -> tuple[str, str | None, str]:
    return instant.request_time, instant.completion_time, str(instant.action)


def _sums(stats: Iterable[WriteStat], *names: str) -> list[int]:
    return [sum(getattr(stat, name) for stat in stats) for name in names]


def _added_and_updated(stats: Iterable[WriteStat]) -> list[int]:
    """Numbers of new file groups and of changed ones."""
    is_new = [stat.prev_commit == NO_PREVIOUS_COMMIT for stat in stats]
    return [is_new.count(True), is_new.count(False)]


def _totals(commit: CommitMetadata) -> list[int]:
    stats = commit.write_stats
    written, *records = _sums(stats, "total_write_bytes", "num_writes", "num_update_writes", "total_write_errors")
    return [written, *_added_and_updated(stats), len(commit.partition_to_write_stats), *records]


def _factor(upserted: int, written: int) -> str:
    return f"{written / upserted:.2f}" if upserted else "0"


def _file_rows(commits: Iterable[tuple[Instant, CommitMetadata]]) -> Rows:
    records = attrgetter("file_id", "prev_commit", "num_writes", "num_inserts", "num_deletes", "num_update_writes")
    blocks = attrgetter("total_write_errors", "total_log_blocks", "total_corrupt_log_block", "total_rollback_blocks")
    totals = attrgetter("total_log_records", "total_updated_records_compacted", "total_write_bytes")
    for instant, commit in commits:
        for partition, stat in _stats(commit):
            yield *_instant(instant), partition, *records(stat), *blocks(stat), *totals(stat)


def _cleans(call: ProcedureCall) -> Iterator[tuple[Instant, CleanMetadata]]:
    store = call.table.context.timeline
    for instant in reversed(store.load().completed(Action.CLEAN)):
        yield instant, CleanMetadata.decode(store.read(instant))
    for instant in _archived_cleans(call):
        clean = archived_metadata(store.history, instant)
        if isinstance(clean, CleanMetadata):
            yield instant, clean


def _clean_plans(call: ProcedureCall) -> Iterator[tuple[Instant, CleanerPlan]]:
    store = call.table.context.timeline
    for instant in reversed(store.load().instants):
        requested = Instant(instant.request_time, Action.CLEAN, State.REQUESTED)
        data = store.storage.read(store.path(requested)) if instant.action is Action.CLEAN else None
        if data:
            with store.errors_with_path(requested):
                plan = CleanerPlan.decode(data)
            yield instant, plan
    for instant in _archived_cleans(call):
        row = store.history.find(instant.request_time, Action.CLEAN)
        if row and row.plan:
            yield instant, CleanerPlan.decode(row.plan)


def _archived_cleans(call: ProcedureCall) -> list[Instant]:
    """Archived cleans, newest first; none unless `showArchived`."""
    if not call.flag("showArchived"):
        return []
    return [instant for instant in reversed(call.table.context.timeline.history.instants()) if instant.action is Action.CLEAN]
