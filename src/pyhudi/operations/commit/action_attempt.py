"""What every action that writes data files needs around its transaction: how long did what take, and what becomes of an attempt
that fails.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyhudi.errors import HudiError, InstantNotFound, WriteConflict
from pyhudi.format.instants import Action, Instant, State, completed_action
from pyhudi.format.names import parse_data_file_instant, parse_log_file
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.rollback import rollback_failed_attempt, rollback_instant, rollback_own_write, withdraw_write
from pyhudi.operations.commit.transaction import Transaction
from pyhudi.storage import liveness
from pyhudi.storage.environment import Environment
from pyhudi.storage.markers import Markers
from pyhudi.table.listing import DirectoryListing
from pyhudi.table.snapshot import read_commit
from pyhudi.table.table_context import TableContext


class Phases:
    """Seconds by phase of an operation, by the environment's clock."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._since = env.now_ms()
        self._seconds: dict[str, float] = {}

    def end(self, name: str) -> None:
        """The phase that ran since the last call ends."""
        now = self._env.now_ms()
        self._seconds[name] = self._seconds.get(name, 0.0) + (now - self._since) / 1000
        self._since = now

    @property
    def seconds(self) -> Mapping[str, float]:
        """Seconds by phase, in order."""
        return dict(self._seconds)


def backoff(context: TableContext, settings: CommitSettings, conflict: WriteConflict, attempt_ms: int, number: int) -> None:
    """Wait before a write that lost is attempted again: a random time, up to as long as its attempt took, twice that after the
    next one and so on.

    Writers that keep meeting would otherwise plan at the same moment each time, and all but one of them in vain.  A write under
    way that stopped this one would stop it again: it is waited for first, while it lives, and not without end.
    number: how many attempts lost before this one.
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
    """Roll a transaction back when its block raises one of our errors or an ordinary exception.

    Should that fail as well, or the process die, the instant is left without a heartbeat and the next writer rolls it back.
    After CommitUnknown nothing is touched: the commit may have landed, or may land yet.

    Where others took the writer for dead and rolled it back, what its block raised tells of files that they removed, whatever it
    is: that is raised as WriteConflict, and the write may be planned again.
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
        conflict = _overtaken(transaction, error)
        try:
            rollback_own_attempt(transaction)
        except Exception as failure:
            (conflict or error).add_note(
                f"taking instant {transaction.instant_time} back failed as well ({failure}); the next writer will do it"
            )
        if conflict is not None:
            raise conflict from error


def _overtaken(transaction: Transaction, error: BaseException) -> WriteConflict | None:
    """What a failure means where others have rolled the attempt back meanwhile; None where it speaks for itself."""
    if isinstance(error, WriteConflict) or not isinstance(error, Exception):
        return None
    # A service was begun with its transaction; a write stores its inflight file later.
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
    if transaction.action.is_service:
        if transaction.was_reclaimed():
            _remove_late_files(transaction)
            return
        # By now another process may carry the same plan out, or have completed it; then nothing here is ours to remove.
        time = transaction.instant_time
        rolled = rollback_failed_attempt(context, time, transaction.action, transaction.settings)
        is_gone = rolled is None and not any(i.request_time == time for i in context.timeline.load_files())
        if is_gone and context.timeline.history.find(time) is None:
            # A restore took the plan away, and looked for files before the last ones were written.
            _remove_written(context, time)
        return
    requested = Instant(transaction.instant_time, transaction.action, State.REQUESTED)
    has_only_begun = not transaction.started and transaction.action is not Action.REPLACECOMMIT
    if has_only_begun and withdraw_write(context, requested, transaction.settings):
        return
    pending = Instant(transaction.instant_time, transaction.action, State.INFLIGHT)
    # What may stand there as completed loses no file before the lock tells that it may go.
    undo = rollback_instant if transaction.publishing else rollback_own_write
    try:
        undo(context, pending, transaction.settings)
    except InstantNotFound:
        # Another writer took this one for dead and rolled it back; tasks may have written files after it had looked for them,
        # also where their markers stood before and went with the rollback.
        transaction.heartbeat.stop(delete=True)
        _remove_written(context, transaction.instant_time)
    transaction.heartbeat.stop(delete=True)


def _remove_late_files(transaction: Transaction) -> None:
    """Remove what this process wrote of a plan after another one had taken it over, under the time of an instant that completes.

    What the other one writes has its marker first, and stands in its commit at the end.
    """
    with transaction.context.locked(transaction.settings.lock_wait_ms) as held:
        time, action = transaction.instant_time, completed_action(transaction.action)
        instants = [i for i in held.timeline.load().instants if i.request_time == time]
        if not instants:
            # It completed and was archived meanwhile: its commit would have to be read to tell whose files these are.
            return
        # Beside a plan that stays, logs that bear its time are copies of other writes.
        written = _written_files(held, time, logs=not transaction.action.retains_plan)
        markers = Markers(held.storage, time)
        theirs: set[str | None] = {path for path, _ in markers.list()}
        done = [i for i in instants if i.action is action and i.is_completed]
        if done:
            theirs = {s.path for stats in read_commit(held.timeline, done[0]).partition_to_write_stats.values() for s in stats}
            markers.delete()
        held.storage.delete([path for path in written if path not in theirs])


def _remove_written(context: TableContext, instant_time: str) -> None:
    markers = Markers(context.storage, instant_time)
    context.storage.delete([*(path for path, _ in markers.list()), *_written_files(context, instant_time)])
    markers.delete()


def _written_files(context: TableContext, instant_time: str, *, logs: bool = True) -> list[str]:
    """The paths of data files that bear the time of an instant.  logs: False leaves log files out."""
    listing = DirectoryListing(context.storage)
    names = (info for files in listing.files(listing.partitions()).values() for info in files)
    own = (info for info in names if parse_data_file_instant(info.name) == instant_time)
    return [info.path for info in own if logs or parse_log_file(info.name) is None]


_LAST_DOUBLING = 6
_LONGEST_WAIT_MS = 10_000
_PAUSE_MS = 500
_LONGEST_WAIT_FOR_OLDER_MS = 300_000
