"""Deliver the message of a commit, with retries, and the messages that earlier writes left.

A notice of another write is taken over when its process is dead, or when it is older than any delivery takes. Two writes may
then deliver one message: receivers get each commit at least once.
"""

from __future__ import annotations

from pyhudi.errors import HudiError, StorageUnavailable, get_logger
from pyhudi.features.commit_callbacks.commit_message import CommitMessage, stats_of
from pyhudi.features.commit_callbacks.notices import Notice, delete_notice, load_notices, owner_is_dead
from pyhudi.features.commit_callbacks.receivers import Receiver, Rejected, find_receiver
from pyhudi.format.actions.archived_instants import decode_completed
from pyhudi.format.actions.commit_metadata import SCHEMA_KEY, CommitMetadata
from pyhudi.format.instants import parse_action
from pyhudi.operations.commit.commit_callbacks import CallbackSettings
from pyhudi.table.snapshot import read_commit
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import WRITE_ACTIONS, Timeline

_LOG = get_logger("pyhudi.features.commit_callbacks")

_FIRST_PAUSE_MS = 200
_OLD_MESSAGES = 10
"""Maximum number of earlier messages that one write delivers."""

DELIVERED = "delivered"


def deliver(context: TableContext, settings: CallbackSettings, instant: str) -> dict[str, str]:
    """Deliver the message of a commit and older ones.

    Args:
        context: The table.
        settings: The receivers.
        instant: Request time of the commit.

    Returns:
        Outcome by name of the receiver: `delivered`, or the failure; further entries for older messages.

    Raises:
        HudiError: The store did not answer.
    """
    timeline = context.timeline.load()
    receivers = {name: find_receiver(settings, name) for name in settings.names}
    message = _message(context, timeline, instant)
    outcomes = {} if message is None else {name: _send(context, settings, receivers[name], message) for name in receivers}
    for name, outcome in outcomes.items():
        if outcome != DELIVERED:
            _LOG.warning("commit callback %s of %s in %s failed: %s", name, instant, context.storage.uri, outcome)
    reachable = all(not outcome.startswith(_UNREACHABLE) for outcome in outcomes.values())
    if reachable:
        delete_notice(context, instant)
        return {**outcomes, **_deliver_old(context, settings, timeline, receivers, instant)}
    return outcomes


_UNREACHABLE = "left to the next write: "


def _deliver_old(
    context: TableContext, settings: CallbackSettings, timeline: Timeline, receivers: dict[str, Receiver], own: str
) -> dict[str, str]:
    """Deliver messages that earlier writes left, oldest first, until a receiver fails."""
    outcomes: dict[str, str] = {}
    notices = [notice for notice in load_notices(context) if notice.instant != own]
    for notice in notices[:_OLD_MESSAGES]:
        if not _is_abandoned(context, settings, notice):
            continue
        message = _message(context, timeline, notice.instant)
        if message is None:
            if not any(i.request_time == notice.instant for i in timeline.instants):
                delete_notice(context, notice.instant)
            continue
        sent = [_send(context, settings, receiver, message, retries=0) for receiver in receivers.values()]
        failures = [outcome for outcome in sent if outcome != DELIVERED]
        outcomes[f"of {notice.instant}"] = failures[0] if failures else DELIVERED
        if any(outcome.startswith(_UNREACHABLE) for outcome in failures):
            break
        delete_notice(context, notice.instant)
    return outcomes


def _is_abandoned(context: TableContext, settings: CallbackSettings, notice: Notice) -> bool:
    longest_ms = (settings.retries + 1) * settings.timeout_s * 1000 * len(settings.names) + (_FIRST_PAUSE_MS << settings.retries)
    if context.env.now_ms() - notice.modified_ms > 2 * longest_ms:
        return True
    return owner_is_dead(context, notice)


def _send(
    context: TableContext, settings: CallbackSettings, receiver: Receiver, message: CommitMessage, retries: int | None = None
) -> str:
    """Deliver a message with retries. Returns the outcome."""
    left, pause_ms = settings.retries if retries is None else retries, _FIRST_PAUSE_MS
    while True:
        try:
            receiver(message)
        except Rejected as error:
            return f"rejected: {error}"
        except StorageUnavailable as error:
            problem = str(error)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        else:
            return DELIVERED
        if left <= 0:
            return f"{_UNREACHABLE}{problem}"
        left -= 1
        context.env.sleep_ms(pause_ms)
        pause_ms *= 2


def _message(context: TableContext, timeline: Timeline, instant_time: str) -> CommitMessage | None:
    """Return the message of a completed write, active or archived; None if there is none."""
    completed = _completed(context, timeline, instant_time)
    if completed is None:
        return None
    action, metadata = completed
    extra = {key: value for key, value in metadata.extra_metadata.items() if key != SCHEMA_KEY}
    return CommitMessage(
        instant=instant_time,
        table=context.config.name,
        uri=context.storage.uri,
        action=str(action),
        operation=metadata.operation_type or "",
        write_stats=stats_of(metadata),
        extra_metadata=extra,
    )


def _completed(context: TableContext, timeline: Timeline, instant_time: str) -> tuple[str, CommitMetadata] | None:
    """Return the action and the metadata of a completed write, active or archived; None if there is none."""
    for instant in timeline.completed_writes():
        if instant.request_time == instant_time:
            return instant.action, read_commit(context.timeline, instant)
    if not timeline.is_before_start(instant_time):
        return None
    try:
        row = context.timeline.history.find(instant_time, *WRITE_ACTIONS)
        metadata = None if row is None else decode_completed(parse_action(row.action), row.metadata or b"")
        return (row.action, metadata) if row is not None and isinstance(metadata, CommitMetadata) else None
    except HudiError as error:
        _LOG.warning("the message of %s in %s cannot be read: %s", instant_time, context.storage.uri, error)
    return None
