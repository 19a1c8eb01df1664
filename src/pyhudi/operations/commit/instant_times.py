"""New instant times: larger than every time on the timeline, from the clock or the configured time generator.

Source: docs/formats/timeline.md, "Writing a state".
"""

from __future__ import annotations

from pyhudi.errors import TableState
from pyhudi.format.instants import format_instant_time
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.storage.time_generators import find_time_generator
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.table.timeline.timeline_store import next_instant_time


def new_instant_time(context: TableContext, timeline: Timeline, settings: CommitSettings) -> str:
    """Return a new instant time, larger than every time on the timeline.

    The caller holds the table lock and has just loaded the timeline.

    Raises:
        TableState: The time generator is behind the timeline.
    """
    time = time_after(context, timeline.latest_time(), settings)
    if settings.clock_skew_ms:
        context.env.sleep_ms(settings.clock_skew_ms)
    return time


def time_after(context: TableContext, after: str, settings: CommitSettings) -> str:
    """Return the time of the clock or the configured time generator, larger than ``after`` ('' for no lower bound)."""
    zone, generator = context.config.zone, find_time_generator(settings.time_generator)
    if generator is None:
        return next_instant_time(context.env, zone, after)
    time = format_instant_time(generator.now_ms(context.storage.uri), zone)
    if time <= after[:17]:
        # Incrementing ``after`` could yield a time that the generator assigns to another writer.
        raise TableState(
            f"time generator {settings.time_generator} returned {time} for {context.storage.uri}, which is not "
            f"after {after} on its "
            "timeline: other writers use another time source, or the generator went backwards. Configure the "
            "same one for all writers."
        )
    return time
