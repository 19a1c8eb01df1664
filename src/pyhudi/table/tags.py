"""Tags: names for savepoints.

A savepoint of Hudi has a user and comments, and no name.  So a tag is the first line of the comments, `tag:NAME`, which
Hudi shows and preserves like all comments; a savepoint that Hudi created with such a comment has a tag, too.

    tag:2026-Q3              the whole comment, or its first line

Wherever an API accepts a point in time, or the savepoint to restore or to delete, `tag:2026-Q3` resolves to its instant.

A tag cannot be moved to another instant.  Delete its savepoint, and create a new one.

Source: docs/formats/writing.md, "Savepoint and restore".
"""

from __future__ import annotations

import re

from pyhudi.errors import InstantNotFound, InvalidRequest, SnapshotOutdated
from pyhudi.format.actions.savepoint_metadata import SavepointMetadata
from pyhudi.format.instants import Action, Instant
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.table.timeline.timeline_store import TimelineStore

PREFIX = "tag:"

_NAME = re.compile(r"[^\s\x00-\x1f](?:[^\x00-\x1f]{0,198}[^\s\x00-\x1f])?")


def load_tags(context: TableContext, timeline: Timeline) -> dict[str, str]:
    """Return the request time of the write that each tag names, by name, oldest first; the newest if several savepoints
    share one.

    One small file is read for each savepoint.
    """
    tags: dict[str, str] = {}
    for instant in timeline.completed(Action.SAVEPOINT):
        try:
            first = read_savepoint(context.timeline, instant).comments.partition("\n")[0]
        except SnapshotOutdated:
            # It was deleted concurrently.
            continue
        if first.startswith(PREFIX):
            tags[first.removeprefix(PREFIX)] = instant.request_time
    return tags


def read_savepoint(store: TimelineStore, instant: Instant) -> SavepointMetadata:
    """Read a completed savepoint.  Raises SnapshotOutdated when it was deleted, CorruptData for a damaged file."""
    with store.errors_with_path(instant):
        return SavepointMetadata.decode(store.read(instant))


def with_tag(tag: str, comments: str) -> str:
    """Return the comments of a savepoint with a tag.

    Raises InvalidRequest for an invalid name: empty, longer than 200 characters, of several lines, or with a space at an end.
    """
    if not _NAME.fullmatch(tag):
        raise InvalidRequest(f"{tag!r:.220} is no tag: a name has 1 to 200 characters in one line, and no space at its ends")
    return PREFIX + tag + ("\n" + comments if comments else "")


def resolve_tag(context: TableContext, text: str) -> str:
    """Resolve `tag:NAME` to its instant; other text is returned unchanged.  Raises InstantNotFound for an unknown tag."""
    if not text.startswith(PREFIX):
        return text
    tags = load_tags(context, context.timeline.load())
    name = text.removeprefix(PREFIX)
    if name not in tags:
        known = ", ".join(list(tags)[-10:]) or "none"
        raise InstantNotFound(f"no savepoint of {context.storage.uri} has the tag {name!r}; there are: {known}")
    return tags[name]
