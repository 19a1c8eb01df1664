"""Identify log files that a write duplicated for a pending resize of consistent hashing buckets.

The name of such a log holds the time of the resize, which had not completed when the write was requested. Before table
version 8 the name of a log holds the time of its base file, and upgraded tables retain those commits: the times in
these names had completed before, or are planned compactions.

Source: docs/formats/writing.md, "Resizing consistent hashing buckets".
"""

from __future__ import annotations

from collections.abc import Iterable

from pyhudi.format.actions.commit_metadata import CommitMetadata
from pyhudi.format.instants import Action
from pyhudi.format.names import parse_log_file
from pyhudi.format.paths import file_name
from pyhudi.table.timeline.active_timeline import Timeline

_OF_RESIZES = (Action.CLUSTERING, Action.REPLACECOMMIT)


def is_double_written_log(timeline: Timeline, path: str, instant_time: str) -> bool:
    """Whether a file that the write of an instant made is such a log."""
    name = parse_log_file(file_name(path))
    if name is None or name.instant_time == instant_time:
        return False
    if any(i.request_time == name.instant_time and i.action not in _OF_RESIZES for i in timeline.instants):
        return False
    completed = timeline.completion_time(name.instant_time)
    return completed is None or completed > instant_time


def copies_among(timeline: Timeline, metadata: CommitMetadata, instant_time: str) -> Iterable[str]:
    """Return such logs of a commit."""
    paths = (stat.path for stats in metadata.partition_to_write_stats.values() for stat in stats)
    return (path for path in paths if path and is_double_written_log(timeline, path, instant_time))
