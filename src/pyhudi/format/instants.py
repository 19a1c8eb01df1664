"""Timeline instants: actions, states, file names and instant times.

    requested    t.<action>.requested
    inflight     t.<action>.inflight        a commit's is t.inflight
    completed    t_c.<action>               layout 2; t is the request time, c the completion time
                 t.<action>                 layout 1, and legacy instants of layout 2: c is the file's modification time

Three actions complete under another name: a compaction as a commit, a log compaction as a deltacommit, a clustering as
a replacecommit. In layout 1 a pending clustering is named a replacecommit as well. The instants of one action at one
request time are states of the same step; the highest state counts. Files of earlier states remain until the instant is
archived.

An instant time is a string of digits, normally yyyyMMddHHmmssSSS in the table's time zone, and is compared as a string.

Not done here: ordering a whole timeline, or choosing a state transition.
Specification: docs/formats/timeline.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from enum import IntEnum, StrEnum
from functools import lru_cache

from pyhudi.errors import CorruptData, Internal, InvalidRequest
from pyhudi.format.table_versions import TimelineLayout

INIT_INSTANT_TIME = "00000000000000"
METADATA_BOOTSTRAP_INSTANT_TIME = "00000000000001"
FULL_BOOTSTRAP_INSTANT_TIME = "00000000000002"
BOOTSTRAP_INSTANT_TIMES = (METADATA_BOOTSTRAP_INSTANT_TIME, FULL_BOOTSTRAP_INSTANT_TIME)
INSTANT_TIME_LENGTH = 17


class Action(StrEnum):
    """Timeline action; the value is the word in file names."""

    COMMIT = "commit"
    DELTACOMMIT = "deltacommit"
    COMPACTION = "compaction"
    LOGCOMPACTION = "logcompaction"
    CLUSTERING = "clustering"
    REPLACECOMMIT = "replacecommit"
    CLEAN = "clean"
    ROLLBACK = "rollback"
    RESTORE = "restore"
    SAVEPOINT = "savepoint"
    INDEXING = "indexing"
    SCHEMACOMMIT = "schemacommit"

    @property
    def is_write(self) -> bool:
        """True if its completed form adds data, and its pending form is an ordinary write."""
        return self in (Action.COMMIT, Action.DELTACOMMIT, Action.REPLACECOMMIT)

    @property
    def is_service(self) -> bool:
        """True for the pending form of a table service that writes data files from a plan, and completes as a write."""
        return self in (Action.COMPACTION, Action.LOGCOMPACTION, Action.CLUSTERING)

    @property
    def retains_plan(self) -> bool:
        """True if a failed attempt keeps the plan, so that it can be executed again."""
        return self in (Action.COMPACTION, Action.CLUSTERING)


def parse_action(name: str) -> Action:
    """Return the action with this name. Raises CorruptData for an unknown one."""
    try:
        return Action(name)
    except ValueError:
        raise CorruptData("unknown action of an instant", found=name) from None


class State(IntEnum):
    """State of an instant; states compare by progress."""

    REQUESTED = 0
    INFLIGHT = 1
    COMPLETED = 2


COMPLETED_AS: dict[Action, Action] = {
    **{action: action for action in Action},
    Action.COMPACTION: Action.COMMIT,
    Action.LOGCOMPACTION: Action.DELTACOMMIT,
    Action.CLUSTERING: Action.REPLACECOMMIT,
}
"""The action under which each action completes."""


@dataclass(frozen=True, slots=True)
class Instant:
    """One state of one timeline step.

    Attributes:
        request_time: Instant time at which the action was requested.
        action: The action in the file name.
        state: The state.
        completion_time: Only if completed; None for a completed instant whose file name does not include it.
        is_legacy: Completed by an older writer: in layout 2 its name lacks the completion time and its content is of
            layout 1.
    """

    request_time: str
    action: Action
    state: State
    completion_time: str | None = None
    is_legacy: bool = False

    def __post_init__(self) -> None:
        if not _is_digits(self.request_time) or not (self.completion_time is None or _is_digits(self.completion_time)):
            raise InvalidRequest(f"invalid instant time, which must be digits: {self.request_time!r}, {self.completion_time!r}")
        if self.state is not State.COMPLETED and (self.completion_time is not None or self.is_legacy):
            raise InvalidRequest(f"Only a completed instant has a completion time: {self.request_time} {self.action.value}")

    @property
    def instant(self) -> str:
        """The request time: an entry of the timeline names an instant as the result of a write does."""
        return self.request_time

    @property
    def is_completed(self) -> bool:
        return self.state is State.COMPLETED

    @property
    def is_pending(self) -> bool:
        """Requested or inflight."""
        return self.state is not State.COMPLETED

    @property
    def step(self) -> tuple[str, Action]:
        """What all states of one step share: the request time and the comparable action."""
        return (self.request_time, comparable_action(self.action))

    @property
    def sort_key(self) -> tuple[str, str, int]:
        """Sort key of the timeline: request time, comparable action, state."""
        return (self.request_time, comparable_action(self.action).value, self.state.value)

    def file_name(self, layout: TimelineLayout = TimelineLayout.V2) -> str:
        """Return the file name of the instant. Raises Internal for a state or action without a file in this layout."""
        names = _NAMES.get((self.action, self.state))
        if names is None or (self.action is Action.CLUSTERING and not layout.has_clustering_action):
            raise Internal(f"No file exists for {self.action.value} {self.state.name} in timeline layout {layout.value}.")
        if self.state is not State.COMPLETED or not layout.has_completion_time_in_names or self.is_legacy:
            return self.request_time + names
        if self.completion_time is None:
            raise Internal(f"The completion time of {self.request_time} {self.action.value} is unknown.")
        return f"{self.request_time}_{self.completion_time}{names}"

    def __str__(self) -> str:
        done = f"..{self.completion_time}" if self.completion_time else ""
        return f"{self.request_time}{done} {self.action.value} {self.state.name}"


def completed_action(action: Action) -> Action:
    """Return the action under which an action completes: a compaction as a commit, and so on."""
    return COMPLETED_AS[action]


def comparable_action(action: Action) -> Action:
    """Return the action that all states of one step share: the one under which it completes."""
    return COMPLETED_AS[action]


# A timeline is listed repeatedly, and most of its file names do not change.
@lru_cache(maxsize=1 << 14)
def parse_instant_file(name: str, layout: TimelineLayout = TimelineLayout.V2) -> Instant | None:
    """Return the instant of a file in the timeline folder; None for other files, which the folder may contain."""
    match = _FILE.fullmatch(name)
    if match is None:
        return None
    request_time, completion_time, suffix = match[1], match[2], match[3]
    action_and_state = _BY_SUFFIX.get(suffix)
    if action_and_state is None:
        return None
    action, state = action_and_state
    if action is Action.CLUSTERING and not layout.has_clustering_action:
        return None
    if completion_time is not None:
        if state is not State.COMPLETED or not layout.has_completion_time_in_names:
            return None
        return Instant(request_time, action, state, completion_time)
    legacy = state is State.COMPLETED and layout.has_completion_time_in_names
    return Instant(request_time, action, state, None, legacy)


def format_instant_time(epoch_ms: int, zone: tzinfo) -> str:
    """Return the 17-digit instant time of a timestamp.

    Args:
        epoch_ms: Milliseconds since 1970 UTC.
        zone: The table's time zone.

    Raises:
        InvalidRequest: A timestamp outside the years 1 to 9999.
    """
    try:
        moment = (_EPOCH + timedelta(milliseconds=epoch_ms)).astimezone(zone)
    except OverflowError:
        raise InvalidRequest(f"{epoch_ms} ms since 1970 cannot be represented as an instant time.") from None
    # strftime pads the year on some platforms only.
    return (
        f"{moment.year:04d}{moment.month:02d}{moment.day:02d}{moment.hour:02d}{moment.minute:02d}{moment.second:02d}"
        f"{moment.microsecond // 1000:03d}"
    )


def parse_instant_time(text: str, zone: tzinfo) -> int:
    """Return the timestamp of an instant time, in milliseconds since 1970 UTC.

    14 digits denote the last millisecond of that second; digits after the 17th are ignored. An ambiguous local time
    (end of daylight saving) is the first of the two.

    Raises:
        InvalidRequest: Digits that are not a date (such as bootstrap and counter instants), or other text.
    """
    moment = _parse_datetime(text, zone)
    if moment is None:
        raise InvalidRequest(f"This instant time is not a date: {text!r}")
    return moment


def timestamp_from_instant(text: str, zone: tzinfo) -> int:
    """Return the timestamp of an instant time as `parse_instant_time`, and a bootstrap instant as its plain number.

    That number is older than every date, as in Hudi.
    """
    return int(text) if text in BOOTSTRAP_INSTANT_TIMES else parse_instant_time(text, zone)


def shift_instant_time(text: str, delta_ms: int, zone: tzinfo) -> str:
    """Return the instant time `delta_ms` later; digits that are not a date are shifted as an integer, in 17 digits."""
    moment = _parse_datetime(text, zone)
    if moment is not None:
        return format_instant_time(moment + delta_ms, zone)
    if not _is_digits(text):
        raise InvalidRequest(f"This is not an instant time: {text!r}")
    return f"{int(text) + delta_ms:017d}"


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FILE = re.compile(r"([0-9]{1,40})(?:_([0-9]{1,40}))?(\.[a-z]+(?:\.[a-z]+)?)")


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _parse_datetime(text: str, zone: tzinfo) -> int | None:
    if not _is_digits(text) or len(text) > 40:
        return None
    if len(text) == 14:
        text += "999"
    if len(text) < INSTANT_TIME_LENGTH:
        return None
    year, month, day, hour, minute, second = (int(text[a:b]) for a, b in ((0, 4), (4, 6), (6, 8), (8, 10), (10, 12), (12, 14)))
    try:
        moment = datetime(year, month, day, hour, minute, second, int(text[14:17]) * 1000, tzinfo=zone)
        return (moment - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        return None


def _suffix(action: Action, state: State) -> str | None:
    if state is State.COMPLETED:
        return None if action.is_service else f".{action.value}"
    if action is Action.COMMIT and state is State.INFLIGHT:
        return ".inflight"
    if action is Action.SAVEPOINT and state is State.REQUESTED:
        return None
    return f".{action.value}.{state.name.lower()}"


_NAMES = {(action, state): suffix for action in Action for state in State if (suffix := _suffix(action, state)) is not None}
_BY_SUFFIX = {suffix: key for key, suffix in _NAMES.items()}
