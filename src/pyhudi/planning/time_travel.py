"""Time travel: the accepted forms of a point in time, and whether the table is still readable as of it.

    2026-11-21 05:45:07.123   20261121054507123    that millisecond
    2026-11-21 05:45:07                            that second, its last millisecond included
    20261121054507                                 before that second: strings are compared, and a longer one is larger
    2026-11-21                                     midnight, so nothing of that day

The time is compared with request times, digit by digit, in the table's timeline time zone; nothing is converted. In a
table of zone LOCAL each writer used its own zone: see `classify_local_time`.

Source: docs/formats/reading.md, "Time travel".
"""

from __future__ import annotations

import re
from datetime import datetime, tzinfo
from enum import Enum, auto

from pyhudi.errors import InvalidRequest
from pyhudi.format.instants import BOOTSTRAP_INSTANT_TIMES, Action, format_instant_time
from pyhudi.planning.cleaning import LastClean
from pyhudi.table.timeline.active_timeline import WRITE_ACTIONS, Timeline

_FORMS = (
    (re.compile(r"[0-9]{17}"), ""),
    (re.compile(r"[0-9]{14}"), ""),
    (re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}"), ""),
    (re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}"), "999"),
    (re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}"), "000000000"),
)


def parse_as_of(text: str) -> str:
    """Return the digits, 17 or 14, with which request times are compared.

    Raises InvalidRequest for any other form, and for what is neither a date nor the instant of a bootstrap.
    """
    given = text.strip()
    if given in BOOTSTRAP_INSTANT_TIMES:
        return given
    for form, rest in _FORMS:
        if form.fullmatch(given):
            digits = re.sub(r"[^0-9]", "", given) + rest
            try:
                datetime.strptime(digits[:14], "%Y%m%d%H%M%S")
            except ValueError:
                break
            return digits
    raise InvalidRequest(
        f"{text!r} is not a time to travel to: write yyyyMMddHHmmssSSS, yyyyMMddHHmmss, 'yyyy-MM-dd HH:mm:ss.SSS', "
        "'yyyy-MM-dd HH:mm:ss' or 'yyyy-MM-dd'; a read as of a savepoint takes tag:NAME"
    )


class LocalTime(Enum):
    """What a time means in a table whose instants are in the local time of their writers."""

    UNAMBIGUOUS = auto()
    NOW = auto()
    OTHER_ZONE = auto()
    REPEATED_HOUR = auto()


def classify_local_time(timeline: Timeline, time: str, now_ms: int, zone: tzinfo) -> LocalTime:
    """Classify a time, in the form of `parse_as_of`, for a reader in the zone at `now_ms` (epoch milliseconds).

    NOW: it is now or later, or within `NOW_TOLERANCE_MS` before, where instants in the reader's future would be missing.
    OTHER_ZONE: it is earlier, and instants are in the reader's future, so other writers are in another zone.
    REPEATED_HOUR: clocks were set back over it, and over an instant, so their order is unknown. The request time of an
    instant is unambiguous.
    """
    if time in BOOTSTRAP_INSTANT_TIMES or any(instant.request_time == time for instant in timeline.instants):
        return LocalTime.UNAMBIGUOUS
    writes = [instant.request_time for instant in timeline.completed_writes()]
    now = format_instant_time(now_ms, zone)
    if time >= now:
        return LocalTime.NOW
    if writes and writes[-1] > now:
        is_recent = time >= format_instant_time(now_ms - NOW_TOLERANCE_MS, zone)
        is_current = is_recent and not any(time < write <= now for write in writes)
        return LocalTime.NOW if is_current else LocalTime.OTHER_ZONE
    if _is_repeated(time, zone) and any(write[:8] == time[:8] and _is_repeated(write, zone) for write in writes):
        return LocalTime.REPEATED_HOUR
    return LocalTime.UNAMBIGUOUS


NOW_TOLERANCE_MS = 60_000
"""A time that a caller determined just before a read still means now."""


def _is_repeated(time: str, zone: tzinfo) -> bool:
    try:
        moment = datetime.strptime(time[:14], "%Y%m%d%H%M%S")
    except ValueError:
        return False
    first, second = (moment.replace(tzinfo=zone, fold=fold).utcoffset() for fold in (0, 1))
    return first is not None and second is not None and second < first


def reason_not_to_travel(
    timeline: Timeline, time: str, last_clean: LastClean | None, pending_clusterings: frozenset[str] = frozenset()
) -> str | None:
    """Return why the table cannot be read as of a time, None when it can.

    pending_clusterings: request times of pending replace commits that are clusterings, which have no action of their
    own before table version 8. A savepoint keeps its own instant readable regardless of cleans.
    """
    pending = [i.request_time for i in timeline.pending(*WRITE_ACTIONS) if i.request_time not in pending_clusterings]
    if pending and time >= pending[0]:
        return f"time {time} must be earlier than the first incomplete commit, {pending[0]}, or what is read could change"
    if last_clean is None:
        return None
    writes = [i.request_time for i in timeline.completed_writes()]
    seen = max((write for write in writes if write <= time), default=None)
    if seen is not None and any(i.request_time == seen for i in timeline.completed(Action.SAVEPOINT)):
        return None
    if last_clean.earliest_retained:
        if time < last_clean.earliest_retained:
            return f"clean {last_clean.request_time} kept what is needed from {last_clean.earliest_retained} on, not {time}"
    elif writes and time < writes[0]:
        return f"file versions are cleaned, and {time} is older than the first active commit, {writes[0]}"
    return None
