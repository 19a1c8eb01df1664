"""Time travel: the accepted forms of a point in time, and whether the table is still readable as of it.

    2026-11-21 05:45:07.123   20261121054507123    that millisecond
    2026-11-21 05:45:07                            that second, its last millisecond included
    20261121054507                                 before that second: strings are compared, and a longer one is larger
    2026-11-21                                     midnight, so nothing of that day

The time is compared with request times, digit by digit, in the table's timeline time zone; nothing is converted.

Source: docs/formats/reading.md, "Time travel".
"""

from __future__ import annotations

import re
from datetime import datetime

from pyhudi.errors import InvalidRequest
from pyhudi.format.instants import BOOTSTRAP_INSTANT_TIMES, Action
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
