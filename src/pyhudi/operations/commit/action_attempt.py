"""Phase timing, backoff after conflicts and rollback on error for one attempt at an action."""

from __future__ import annotations

from collections.abc import Mapping

from pyhudi.errors import HudiError, InstantNotFound, WriteConflict, get_logger
from pyhudi.features.consistent_hashing.hashing_store import remove_hashing_metadata
from pyhudi.format.actions.commit_metadata import Operation
from pyhudi.format.instants import Action, Instant, State, completed_action
from pyhudi.format.names import parse_data_file_instant, parse_log_file
from pyhudi.metadata_table.writer.metadata_commit import MetadataCommit
from pyhudi.operations.commit.begin_checks import is_removed_by_hudi
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.foreign_index_builds import foreign_index_builds
from pyhudi.operations.commit.hbase_hooks import sync_rollback
from pyhudi.operations.commit.planned_commit import PlannedCommit, commit_metadata
from pyhudi.operations.commit.rollback import rollback_failed_attempt, rollback_instant, rollback_own_write
from pyhudi.operations.commit.transaction import Transaction
from pyhudi.planning.conflicts import WriteStart
from pyhudi.storage import liveness
from pyhudi.storage.environment import Environment
from pyhudi.storage.liveness import WriterHeartbeat
from pyhudi.storage.markers import Markers
from pyhudi.table.listing import DirectoryListing
from pyhudi.table.partition_buckets import remove_counts
from pyhudi.table.snapshot import load_snapshot, read_commit
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline

_LOG = get_logger("pyhudi.operations.commit")


class Phases:
    """Seconds by phase of an operation, measured with the clock of the environment."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._since = env.now_ms()
        self._seconds: dict[str, float] = {}

    def end(self, name: str) -> None:
        """End the phase that began with the previous call, and record its duration under ``name``."""
        now = self._env.now_ms()
        self._seconds[name] = self._seconds.get(name, 0.0) + (now - self._since) / 1000
        self._since = now

    @property
    def seconds(self) -> Mapping[str, float]:
        """Seconds by phase, in order of execution."""
        return dict(self._seconds)


def backoff(context: TableContext, settings: CommitSettings, conflict: WriteConflict, attempt_ms: int, number: int) -> None:
    """Wait after a conflict before the write is attempted again (randomized exponential backoff).

    The wait is random, with an upper bound of the duration of the failed attempt; the bound doubles with each further
    attempt. Without it, writers that conflict repeatedly would plan at the same time, and all but one of them would
    fail again. If a pending write caused the conflict, the function first waits for that write while its heartbeat is
    alive, up to a limit.

    Args:
        conflict: The conflict that ended the last attempt.
        attempt_ms: Duration of the last attempt.
        number: Number of attempts that failed before the last one.
    """
    env = context.env
    deadline_ms = env.monotonic_ms() + _LONGEST_WAIT_FOR_OLDER_MS
    while conflict.in_progress and env.monotonic_ms() < deadline_ms:
        pending = {i.request_time for i in context.timeline.load().pending_writes()}.intersection(conflict.in_progress)
        if not any(liveness.is_alive(context.storage, env, time, settings.heartbeats) for time in pending):
            break
        env.sleep_ms(_PAUSE_MS)
    longest_ms = min(max(attempt_ms, 1) << min(number, _LAST_DOUBLING), _LONGEST_WAIT_MS)
    env.sleep_ms(int.from_bytes(env.token_bytes(4), "big") % longest_ms)


class rollback_on_error:
    """Roll back the transaction if the block raises a PyHudi error or an ordinary exception.

    If the rollback fails too, or the process dies, the instant remains without a heartbeat and the next writer rolls it
    back. After CommitUnknown nothing is deleted: the commit may have landed, or may still land.

    If another writer has already rolled the transaction back (heartbeat expired), any error is raised as WriteConflict,
    because it may be caused by files which that writer removed. The write may then be planned again.
    """

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def __enter__(self) -> Transaction:
        return self._transaction

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        transaction = self._transaction
        transaction.stop_heartbeat(error)
        if not transaction.can_roll_back(error):
            return
        conflict = _conflict_if_rolled_back(transaction, error)
        try:
            rollback_own_attempt(transaction)
        except Exception as failure:
            (conflict or error).add_note(
                f"rollback of instant {transaction.instant_time} failed as well ({failure}); the next writer will repeat it"
            )
        if conflict is not None:
            raise conflict from error


def _conflict_if_rolled_back(transaction: Transaction, error: BaseException) -> WriteConflict | None:
    """Return a WriteConflict if another writer has rolled the attempt back, else None."""
    if isinstance(error, WriteConflict) or not isinstance(error, Exception):
        return None
    # A service requests its instant together with its transaction; a write stores its inflight file later.
    begun = State.INFLIGHT if transaction.action.is_service else State.REQUESTED
    try:
        transaction.check_ownership(transaction.context.timeline.load_files(), begun)
    except WriteConflict as conflict:
        return conflict
    except HudiError:
        return None
    return None


def rollback_own_attempt(transaction: Transaction) -> None:
    """Roll back a transaction of this process that did not commit."""
    context = transaction.context
    if context.holds_lock:
        try:
            context.lock.check()
        except HudiError:
            # The rollback of an exclusive write that lost its lock waits for it like any writer.
            context.release_lock()
    if transaction.action.is_service:
        if transaction.was_reclaimed():
            _remove_late_files(transaction)
            return
        # Another process may run the same plan by now, or have completed it; this process then owns none of its files.
        time = transaction.instant_time
        rolled = rollback_failed_attempt(context, time, transaction.action, transaction.settings)
        is_gone = rolled is None and not any(i.request_time == time for i in context.timeline.load_files())
        if is_gone and context.timeline.history.find(time) is None:
            # A restore removed the plan, and listed files before the last ones were written.
            _remove_written(context, time)
        return
    timeline = context.timeline.load()
    if is_removed_by_hudi(context, timeline, transaction.instant_time):
        transaction.heartbeat.stop(delete=True)
        return
    if _completed_without_rows(transaction, timeline):
        return
    pending = Instant(transaction.instant_time, transaction.action, State.INFLIGHT)
    # If the completed file may exist, delete no file before the instant has been checked under the lock.
    undo = rollback_instant if transaction.publishing else rollback_own_write
    try:
        undo(context, pending, transaction.settings)
    except InstantNotFound:
        # Another writer considered this one dead and rolled the instant back. Tasks may have written files after that
        # writer listed them, even files whose markers the rollback removed.
        transaction.heartbeat.stop(delete=True)
        _remove_written(context, transaction.instant_time)
    transaction.heartbeat.stop(delete=True)


def _completed_without_rows(transaction: Transaction, timeline: Timeline) -> bool:
    """Complete a write without its rows if Hudi is building an index and may be waiting for the instant.

    Returns:
        False if the write has to be rolled back: no index is built, or the instant cannot be completed.
    """
    context, time, action = transaction.context, transaction.instant_time, transaction.action
    if transaction.publishing or not foreign_index_builds(context, transaction.settings, timeline):
        return False
    sync_rollback(context, transaction.settings, [time])
    heartbeat = WriterHeartbeat(context.storage, context.env, time, transaction.settings.heartbeats)
    heartbeat.start()
    completion = Transaction(context, transaction.settings, time, action, heartbeat, transaction.requested_on)
    completion.may_have_late_attempts = transaction.may_have_late_attempts
    try:
        snapshot = load_snapshot(context.reloaded())
        if snapshot.schema is None:
            return False
        with context.locked(transaction.settings.lock_wait_ms) as locked:
            completion.check_ownership(locked.timeline.load_files(), State.REQUESTED)
            if action is Action.REPLACECOMMIT:
                remove_hashing_metadata(locked, (time,))
                remove_counts(locked, (time,))
            if not any(i.request_time == time and i.state is State.INFLIGHT for i in locked.timeline.load().instants):
                completion.start()
        metadata = commit_metadata(Operation.UNKNOWN, (), snapshot.schema.stored_avro(context.config.name), {})
        start = WriteStart.of(snapshot.timeline, snapshot.schema.avro)
        hook = MetadataCommit(None, None, snapshot.schema.arrow, ())
        completion.commit(PlannedCommit(metadata, start, metadata_commit=hook, shares_groups=True))
    except HudiError as error:
        transaction.publishing = completion.publishing
        _LOG.warning("%s %s could not be completed without rows, and is rolled back: %s", action, time, error)
        return False
    finally:
        # The next writer rolls back what remains of it.
        heartbeat.stop(delete=completion.completed is not None)
    return True


def _remove_late_files(transaction: Transaction) -> None:
    """Delete files that this process wrote for a plan after another process took the plan over.

    The other process creates a marker before each of its files, and reports each file in its commit.
    """
    with transaction.context.locked(transaction.settings.lock_wait_ms) as locked:
        time, action = transaction.instant_time, completed_action(transaction.action)
        instants = [i for i in locked.timeline.load().instants if i.request_time == time]
        if not instants:
            # The instant completed and was archived: only its commit metadata could show which process owns these
            # files.
            return
        # If the plan stays on the timeline, log files with its instant time are double writes of other commits.
        written = _written_files(locked, time, logs=not transaction.action.retains_plan)
        markers = Markers(locked.storage, time)
        theirs: set[str | None] = {path for path, _ in markers.list()}
        done = [i for i in instants if i.action is action and i.is_completed]
        if done:
            theirs = {s.path for stats in read_commit(locked.timeline, done[0]).partition_to_write_stats.values() for s in stats}
            markers.delete()
        locked.storage.delete([path for path in written if path not in theirs])


def _remove_written(context: TableContext, instant_time: str) -> None:
    markers = Markers(context.storage, instant_time)
    context.storage.delete([*(path for path, _ in markers.list()), *_written_files(context, instant_time)])
    markers.delete()


def _written_files(context: TableContext, instant_time: str, *, logs: bool = True) -> list[str]:
    """Return the paths of data files that carry ``instant_time`` in their names, without log files if ``logs`` is False."""
    listing = DirectoryListing(context.storage)
    names = (info for files in listing.files(listing.partitions()).values() for info in files)
    files_of_instant = (info for info in names if parse_data_file_instant(info.name) == instant_time)
    return [info.path for info in files_of_instant if logs or parse_log_file(info.name) is None]


_LAST_DOUBLING = 6
_LONGEST_WAIT_MS = 10_000
_PAUSE_MS = 500
_LONGEST_WAIT_FOR_OLDER_MS = 300_000
