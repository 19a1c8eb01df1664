"""Convert points in time that a caller passes to the digits of the table's instant times.

    datetime with a zone, ISO text with one (2026-11-21T05:45:07Z)    converted to the table's timeline time zone
    datetime without a zone                                            local time in that zone
    date                                                               midnight in that zone

    result of a write, entry of the timeline                           its request time, or its completion time in ranges

Other text is returned unchanged: digits are an instant or a completion time, and Hudi has formats of its own. Times on
the timeline have milliseconds; finer fractions are truncated. Text without fractional seconds means all of that second,
with a zone or without: time travel to it, or a range up to it, includes its last millisecond.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Protocol

from pyhudi.errors import InvalidRequest
from pyhudi.format.instants import Instant, format_instant_time
from pyhudi.planning.incremental_query import CompletionRange, RequestRange
from pyhudi.planning.time_travel import parse_as_of
from pyhudi.records.plain_values import plain_value
from pyhudi.table.timeline.active_timeline import Timeline


class CommittedInstant(Protocol):
    """The result of a write or table service, or an entry of the timeline."""

    @property
    def instant(self) -> str | None:
        """Request time; None if nothing was committed."""
        ...

    @property
    def completion_time(self) -> str | None:
        """Completion time; None if nothing was committed."""
        ...


InstantArgument = str | date | datetime | CommittedInstant

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_ISO = re.compile(rf"{_DAY}[T ][0-9]{{2}}:[0-9]{{2}}(:[0-9]{{2}}(\.[0-9]{{1,9}})?)?\s?(Z|[+-][0-9]{{2}}:?[0-9]{{2}})?")
_WRITTEN = re.compile(rf"{_DAY}([T ].*)?")


def format_as_of(instant_argument: InstantArgument, zone: tzinfo) -> str:
    """Convert a point in time to the text that `planning.time_travel` parses.  zone: the table's timeline time zone.

    Raises InvalidRequest for an unknown form.
    """
    instant_argument = plain_value(instant_argument, "the point in time")
    if isinstance(instant_argument, str):
        if _zoned(instant_argument) is not None:
            return range_text(instant_argument, zone, end=True)
        return instant_argument.replace("T", " ") if _WRITTEN.fullmatch(instant_argument.strip()) else instant_argument
    if not isinstance(instant_argument, date):
        return request_time_text(instant_argument)
    return _digits(instant_argument, zone)


def request_time_text(instant_argument: str | CommittedInstant) -> str:
    """Return the request time that a caller passes, as text or as the result of a write.

    Raises InvalidRequest for a result without commit.
    """
    return instant_argument if isinstance(instant_argument, str) else _committed(instant_argument, "instant")


def _committed(result: CommittedInstant, attribute: str) -> str:
    """A time of a result. Raises InvalidRequest if nothing was committed, or for a value that is no result."""
    if isinstance(result, Mapping) and "request_time" in result and "completion_time" in result:
        field = "request_time" if attribute == "instant" else attribute
        raise InvalidRequest(f"a row of the timeline is not a point in time: pass its field {field!r}")
    if not hasattr(type(result), "instant") or not hasattr(type(result), "completion_time"):
        raise InvalidRequest(
            f"{result!r:.80} is not a point in time: use a datetime, a date, ISO text with a zone, an instant, a completion "
            "time, the result of a write, or an entry of the timeline"
        )
    time: str | None = getattr(result, attribute)
    if time is None and isinstance(result, Instant):
        raise InvalidRequest(f"instant {result.request_time} ({result.action}) has no completion time: it is {result.state.name}")
    if time is None:
        raise InvalidRequest(f"{type(result).__name__} names no instant: nothing was committed. Pass an instant of the timeline")
    return time


def range_text(instant_argument: InstantArgument, zone: tzinfo, *, end: bool = False) -> str:
    """Convert a point in time to a bound of a range. end: a whole second means its last millisecond, and not its first."""
    if isinstance(instant_argument, date):
        return _digits(instant_argument, zone)
    if not isinstance(instant_argument, str):
        return _committed(instant_argument, "completion_time")
    if (zoned := _zoned(instant_argument)) is not None:
        digits = _digits(datetime.fromisoformat(instant_argument.strip()), zone)
        return digits[:14] + "999" if end and zoned[2] is None else digits
    if not _WRITTEN.fullmatch(instant_argument.strip()):
        return instant_argument
    digits = parse_as_of(instant_argument.replace("T", " "))
    return digits if end or "." in instant_argument else digits[:14] + "000"


def check_not_request_time(
    range_: CompletionRange | RequestRange, arguments: Sequence[InstantArgument | None], timeline: Timeline
) -> None:
    """Raise InvalidRequest if an end of a range of completion times is the request time of a commit.

    A commit completes after it was requested, so the range would not begin or end where the caller means.

    arguments: the ends as the caller passed them; only instants in digits are checked, not datetimes or text with hours.
    """
    if not isinstance(range_, CompletionRange):
        return
    completed = timeline.completed_writes()
    known = {instant.completion_time for instant in completed}
    for time in {range_.start, range_.end}.intersection(argument for argument in arguments if isinstance(argument, str)) - known:
        for instant in completed:
            if time is not None and instant.request_time == time:
                raise InvalidRequest(
                    f"{time} is the instant of a write, the time at which it was requested; incremental queries use completion "
                    f"times, and that write completed at {instant.completion_time} (`completion_time` of its result)"
                )


def completion_time_hint(timeline: Timeline, time: str) -> str:
    """Return what to pass for a time at which no write was requested but one completed, to end an error; else nothing."""
    write = next((instant for instant in timeline.completed_writes() if instant.completion_time == time), None)
    return "" if write is None else f"; the write that completed then was requested at {write.request_time}: pass that time"


def _zoned(text: str) -> re.Match[str] | None:
    """The parts of ISO text with a zone (2: the fraction of a second), None for other text."""
    match = _ISO.fullmatch(text.strip())
    return match if match is not None and match[3] is not None else None


def _digits(instant_argument: date | datetime, zone: tzinfo) -> str:
    if not isinstance(instant_argument, datetime):
        instant_argument = datetime(instant_argument.year, instant_argument.month, instant_argument.day)
    if instant_argument.tzinfo is None:
        instant_argument = instant_argument.replace(tzinfo=zone)
    return format_instant_time((instant_argument - _EPOCH) // timedelta(milliseconds=1), zone)
