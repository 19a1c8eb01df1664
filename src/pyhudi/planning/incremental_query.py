"""Incremental queries: which instants are between two times, and which files they wrote.

    CompletionRange   completion times, both ends included, or the start excluded: nothing that completes later is
                      missed
    RequestRange      request times, the start excluded: the range of Apache Hudi's CDC queries

`earliest` means the beginning of history.  (Hudi's Spark reader finds nothing for it.)

Source: docs/formats/reading.md, "Incremental queries".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyhudi.errors import InvalidRequest
from pyhudi.format.actions.commit_metadata import CommitMetadata
from pyhudi.format.instants import Action, Instant
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.table.timeline.double_writes import copies_among

EARLIEST = "earliest"
_FIRST = "000"


@dataclass(frozen=True, slots=True)
class CompletionRange:
    """start, end: completion times as digits, both included; end None: up to now.  open_start: the start is excluded."""

    start: str
    end: str | None = None
    open_start: bool = False

    @classmethod
    def parse(cls, start: str, end: str | None = None) -> CompletionRange:
        """Parse the caller's arguments: digits, or `earliest` as the start.  Raises InvalidRequest for anything else."""
        return cls(*_parse_ends(start, end))

    def contains(self, completion_time: str) -> bool:
        """Whether a completion time is in the range."""
        begun = self.start < completion_time if self.open_start else self.start <= completion_time
        return begun and (self.end is None or completion_time <= self.end)

    def contains_instant(self, instant: Instant) -> bool:
        """Whether a completed instant is in the range."""
        return self.contains(instant.completion_time or instant.request_time)


@dataclass(frozen=True, slots=True)
class RequestRange:
    """start, end: request times as digits, the start excluded, the end included; end None: up to now."""

    start: str
    end: str | None = None

    @classmethod
    def parse(cls, start: str, end: str | None = None) -> RequestRange:
        """As `CompletionRange.parse`."""
        return cls(*_parse_ends(start, end))

    def contains_instant(self, instant: Instant) -> bool:
        """Whether an instant is in the range."""
        return self.start < instant.request_time and (self.end is None or instant.request_time <= self.end)


def select_instants(timeline: Timeline, range_: CompletionRange | RequestRange) -> tuple[Instant, ...]:
    """Return the completed writes of the active timeline in the range, by request time."""
    return tuple(i for i in timeline.completed_writes() if range_.contains_instant(i))


def changed_files(
    commits: Mapping[Instant, CommitMetadata], timeline: Timeline, *, one_log_per_commit: bool
) -> dict[str, set[str]]:
    """Return the data files that commits wrote, by partition; paths relative to the table.

    timeline: complete; one_log_per_commit: as in the table's version.  Of rows written twice for a resize, only the
    original files.
    """
    files: dict[str, set[str]] = {}
    for instant, metadata in commits.items():
        copies = frozenset(copies_among(timeline, metadata, instant.request_time) if one_log_per_commit else ())
        for partition, stats in metadata.partition_to_write_stats.items():
            paths = {stat.path for stat in stats if stat.path and stat.path not in copies}
            if paths:
                files.setdefault(partition, set()).update(paths)
    return files


def restricted_timeline(timeline: Timeline, instants: Iterable[Instant]) -> Timeline:
    """Return the timeline restricted to the range: its own instants and pending compactions."""
    chosen = [*instants, *timeline.pending(Action.COMPACTION)]
    return Timeline(tuple(sorted(chosen, key=lambda i: i.sort_key)), timeline.archived_completions)


def _parse_ends(start: str, end: str | None) -> tuple[str, str | None]:
    first = _FIRST if start.strip().lower() == EARLIEST else _digits(start, "start")
    last = None if end is None else _digits(end, "end")
    if last is not None and last < first:
        raise InvalidRequest(f"the range ends before it begins: start {start}, end {end}")
    return first, last


def _digits(text: str, role: str) -> str:
    stripped = text.strip()
    if not (stripped.isascii() and stripped.isdigit()):
        raise InvalidRequest(
            f"the {role} of an incremental query is a datetime, a date, ISO text or a time in digits (yyyyMMddHHmmssSSS), not "
            f"{text!r}"
        )
    return stripped
