"""Cleaning: which files a clean deletes, i.e. old slices outside of the retention.

    1. E, the earliest instant to retain, by policy; never after a pending write or service, so that concurrent writes
       keep the files that they read
    2. the partitions to inspect: those that commits between the last clean's E and this one changed, or all
    3. in each partition, by file group, newest slice first:
           KEEP_LATEST_COMMITS, KEEP_LATEST_BY_HOURS   retain the newest slice, the newest one before E, and all from E on
           KEEP_LATEST_FILE_VERSIONS                   retain the newest n slices, and those that a pending write reads
       a slice with a file that a savepoint or the plan of a pending compaction, log compaction or clustering names is
       retained under every policy; groups that were replaced before E (under KEEP_LATEST_FILE_VERSIONS: at all) are
       deleted otherwise
    4. a partition is deleted when only replaced groups were left in it

Everything here is pure: the caller lists and deletes files.

Source: docs/formats/writing.md, "Cleaning".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import tzinfo
from enum import StrEnum
from typing import Annotated

from pyhudi.errors import InvalidRequest
from pyhudi.format.actions.clean_metadata import PARTITIONS_KEY, SAVEPOINTED_TIMESTAMPS_KEY, CleanMetadata
from pyhudi.format.actions.commit_metadata import NO_PREVIOUS_COMMIT, CommitMetadata
from pyhudi.format.instants import Action, Instant, format_instant_time
from pyhudi.format.paths import file_name
from pyhudi.options import service_options
from pyhudi.options.declaration import Options, read_settings
from pyhudi.records.java_patterns import is_found
from pyhudi.table.file_slices import FileGroup, FileSlice, SlicingState
from pyhudi.table.timeline.active_timeline import Timeline

HOUR_MS = 3_600_000


class CleaningPolicy(StrEnum):
    """`hoodie.clean.policy`."""

    KEEP_LATEST_COMMITS = "KEEP_LATEST_COMMITS"
    KEEP_LATEST_FILE_VERSIONS = "KEEP_LATEST_FILE_VERSIONS"
    KEEP_LATEST_BY_HOURS = "KEEP_LATEST_BY_HOURS"

    @property
    def has_earliest_instant(self) -> bool:
        """True when an instant bounds the retention; file versions are counted in each group."""
        return self is not CleaningPolicy.KEEP_LATEST_FILE_VERSIONS


_RETAINED = {
    service_options.CLEAN_COMMITS_RETAINED: CleaningPolicy.KEEP_LATEST_COMMITS,
    service_options.CLEAN_FILEVERSIONS_RETAINED: CleaningPolicy.KEEP_LATEST_FILE_VERSIONS,
    service_options.CLEAN_HOURS_RETAINED: CleaningPolicy.KEEP_LATEST_BY_HOURS,
}


@dataclass(frozen=True, slots=True)
class CleaningRules:
    """What is retained, and when a clean is due.

    Attributes:
        trigger_commits: Completed writes since the last clean that make the next one due.
        incremental: Inspect only partitions that changed.
        several_pending: A clean may be planned while another one is pending.
        max_commits: Commits by which one clean moves the earliest instant to retain.
        selected_partitions: Partitions to clean, () for all.
        partition_pattern: Java regular expression of partitions to clean, if none are selected; None for all.
        empty_interval_hours: Hours since the last clean after which a clean without files is recorded; -1 for never.
    """

    policy: Annotated[
        CleaningPolicy,
        service_options.CLEAN_POLICY,
        service_options.CLEAN_COMMITS_RETAINED,
        service_options.CLEAN_FILEVERSIONS_RETAINED,
        service_options.CLEAN_HOURS_RETAINED,
    ]
    commits_retained: Annotated[int, service_options.CLEAN_COMMITS_RETAINED]
    hours_retained: Annotated[int, service_options.CLEAN_HOURS_RETAINED]
    versions_retained: Annotated[int, service_options.CLEAN_FILEVERSIONS_RETAINED]
    trigger_commits: Annotated[int, service_options.CLEAN_TRIGGER_MAX_COMMITS, service_options.CLEAN_TRIGGER_STRATEGY]
    incremental: Annotated[bool, service_options.CLEAN_INCREMENTAL_ENABLED]
    several_pending: Annotated[bool, service_options.CLEAN_MULTIPLE_ENABLED]
    max_commits: Annotated[int, service_options.CLEAN_MAX_COMMITS]
    selected_partitions: Annotated[tuple[str, ...], service_options.CLEAN_PARTITION_SELECTED]
    partition_pattern: Annotated[str | None, service_options.CLEAN_PARTITION_REGEX]
    empty_interval_hours: Annotated[int, service_options.EMPTY_CLEAN_INTERVAL]

    def __post_init__(self) -> None:
        if self.empty_interval_hours < 1 and self.empty_interval_hours != -1:
            raise InvalidRequest(
                f"{service_options.EMPTY_CLEAN_INTERVAL}={self.empty_interval_hours} must be -1 (disabled) or at least 1"
            )
        if self.partition_filter and self.incremental:
            raise InvalidRequest(
                f"a filter of the partitions to clean requires {service_options.CLEAN_INCREMENTAL_ENABLED}=false: incremental "
                "cleaning selects partitions by their commits"
            )
        for name, value in (("commits", self.commits_retained), ("versions", self.versions_retained)):
            if value < 1:
                raise InvalidRequest(f"a clean has to retain at least one of its file {name}, not {value}")
        if self.hours_retained < 0 or self.trigger_commits < 0:
            raise InvalidRequest(
                f"{service_options.CLEAN_HOURS_RETAINED} and {service_options.CLEAN_TRIGGER_MAX_COMMITS} cannot be negative"
            )

    @property
    def partition_filter(self) -> str:
        """The filter of partitions as text, '' if all are cleaned."""
        return ",".join(self.selected_partitions) or self.partition_pattern or ""

    def partitions_to_clean(self, partitions: Iterable[str]) -> tuple[str, ...]:
        """Return the partitions that the filter selects."""
        if self.selected_partitions:
            return tuple(partition for partition in partitions if partition in self.selected_partitions)
        pattern = self.partition_pattern
        return tuple(p for p in partitions if not pattern or is_found(f"^(?:{pattern})$", p))

    @classmethod
    def of(cls, options: Options) -> CleaningRules:
        """Build from checked options. Without a policy option, the `...retained` option that is set decides the policy."""
        named = options.text(service_options.CLEAN_POLICY)
        given = [policy for option, policy in _RETAINED.items() if options.explicit(option) is not None]
        if named is not None:
            policy = CleaningPolicy(named)
        else:
            policy = given[0] if len(given) == 1 else CleaningPolicy.KEEP_LATEST_COMMITS
        return read_settings(cls, options, policy=policy)


@dataclass(frozen=True, slots=True)
class LastClean:
    """Metadata of the last completed clean.

    Attributes:
        earliest_retained: '' under KEEP_LATEST_FILE_VERSIONS.
        last_completed: The newest completed write that it had seen.
        savepoints: Those that it had seen.
        is_partial: It cleaned selected partitions only, so the next clean inspects all.
    """

    request_time: str
    earliest_retained: str
    last_completed: str
    savepoints: tuple[str, ...]
    is_partial: bool = False

    @classmethod
    def of(cls, instant: Instant, metadata: CleanMetadata) -> LastClean:
        """Build from the completed file."""
        extra = metadata.extra_metadata or {}
        savepoints = extra.get(SAVEPOINTED_TIMESTAMPS_KEY, "")
        return cls(
            instant.request_time,
            metadata.earliest_commit_to_retain.strip(),
            metadata.last_completed_commit_timestamp,
            tuple(time for time in savepoints.split(",") if time),
            PARTITIONS_KEY in extra,
        )


@dataclass(frozen=True, slots=True)
class PartitionClean:
    """Files to delete in one partition. files: paths relative to the table. delete_partition: delete its folder as well."""

    files: tuple[str, ...]
    delete_partition: bool


def earliest_instant_to_retain(timeline: Timeline, settings: CleaningRules, now_ms: int, zone: tzinfo) -> Instant | None:
    """Return the instant from which on everything is retained; None when no instant qualifies, or the policy has none.

    now_ms: epoch milliseconds, against which hours are counted.  zone: that of the table's instant times.
    """
    completed = timeline.completed_writes()
    if settings.policy is CleaningPolicy.KEEP_LATEST_COMMITS:
        if len(completed) <= settings.commits_retained:
            return None
        earliest = completed[len(completed) - settings.commits_retained]
    elif settings.policy is CleaningPolicy.KEEP_LATEST_BY_HOURS:
        limit = format_instant_time(now_ms - settings.hours_retained * HOUR_MS, zone)
        first = next((i for i in completed if i.request_time >= limit), None)
        if first is None:
            return None
        earliest = first
    else:
        return None
    # A pending write may still read what existed when it began, under every policy.  Of two concurrent writes, the
    # one that completes first is not part of that state, regardless of its request time.
    unsettled = timeline.earliest_unread_bound()
    if unsettled is not None and earliest.request_time > unsettled:
        before = [i for i in completed if i.request_time < unsettled]
        return before[-1] if before else None
    return earliest


def limit_commits(timeline: Timeline, settings: CleaningRules, last: LastClean | None, earliest: Instant) -> Instant:
    """Return the earliest instant to retain, moved by at most `max_commits` since the last clean."""
    if last is None or not last.earliest_retained:
        return earliest
    passed = [i for i in timeline.completed_writes() if last.earliest_retained <= i.request_time < earliest.request_time]
    return passed[settings.max_commits] if len(passed) > settings.max_commits else earliest


def empty_clean_instant(
    timeline: Timeline, settings: CleaningRules, last: LastClean | None, earliest: Instant | None, now_ms: int, zone: tzinfo
) -> Instant | None:
    """Return the earliest instant to retain of a clean without files; None if none is to be recorded."""
    if settings.empty_interval_hours < 1 or not settings.incremental or earliest is None:
        return None
    if last is None:
        return earliest
    limit = format_instant_time(now_ms - settings.empty_interval_hours * HOUR_MS, zone)
    if last.request_time >= limit:
        return None
    if earliest.request_time >= last.earliest_retained:
        return earliest
    return next((i for i in timeline.completed_writes() if i.request_time == last.earliest_retained), None)


def reason_not_to_clean(timeline: Timeline, settings: CleaningRules, last: LastClean | None) -> str | None:
    """Return why no clean is due, judged by the timeline; None when one has to be planned."""
    completed = timeline.completed_writes()
    if not completed:
        return "no completed write"
    if timeline.pending(Action.CLEAN) and not settings.several_pending:
        return "a clean is pending"
    since = sum(1 for i in completed if last is None or i.request_time > last.last_completed)
    if since < settings.trigger_commits:
        return f"{since} of {settings.trigger_commits} commits since the last clean"
    if settings.policy is CleaningPolicy.KEEP_LATEST_COMMITS and len(completed) <= settings.commits_retained:
        return f"{len(completed)} commits, {settings.commits_retained} are retained"
    return None


def commits_to_inspect(
    timeline: Timeline,
    settings: CleaningRules,
    last: LastClean | None,
    earliest: Instant | None,
    *,
    history_is_empty: bool,
) -> tuple[Instant, ...] | None:
    """Return the commits whose partitions have to be inspected; None for all partitions of the table.

    history_is_empty: nothing was archived, so the active timeline holds every commit of the table.
    """
    if earliest is None or not settings.incremental:
        return None
    if last is None:
        first = "" if history_is_empty else None
    elif last.is_partial or not last.earliest_retained or timeline.is_before_start(last.earliest_retained):
        first = None
    elif not set(last.savepoints) <= {i.request_time for i in timeline.completed(Action.SAVEPOINT)}:
        # Files that a deleted savepoint retained may be in any partition.
        first = None
    else:
        first = last.earliest_retained
    if first is None:
        return None
    return tuple(i for i in timeline.completed_writes() if first <= i.request_time < earliest.request_time)


def partitions_with_garbage(metadata: CommitMetadata) -> frozenset[str]:
    """Return the partitions in which a commit left an older slice, or a replaced group.

    A partition to which it only added new file groups needs no cleaning because of it.
    """
    partitions = {partition for partition, ids in (metadata.partition_to_replace_file_ids or {}).items() if ids}
    for partition, stats in metadata.partition_to_write_stats.items():
        new_groups = not metadata.compacted and all(
            stat.prev_commit in (NO_PREVIOUS_COMMIT, None) and stat.prev_base_file is None and stat.log_files is None
            for stat in stats
        )
        if not new_groups:
            partitions.add(partition)
    return frozenset(partitions)


def plan_partition(
    partition: str,
    groups: Iterable[FileGroup],
    state: SlicingState,
    settings: CleaningRules,
    *,
    earliest: Instant | None,
    savepointed: frozenset[str],
    planned: frozenset[str],
    needed_from: Mapping[tuple[str, str], str],
) -> PartitionClean:
    """Return the files to delete in one partition.

    groups: all its file groups, with their change logs. savepointed: names of files that savepoints retain. planned:
    paths of files that plans of pending services read. needed_from: (partition, file id) -> base instant of the slice
    that a pending compaction or log compaction of the group reads; as in Hudi, later slices are retained with it.
    """
    files: list[str] = []
    emptied = True
    unsettled = state.timeline.earliest_unread_bound()
    for group in groups:
        slices = _completed_slices(group, state)
        if len(slices) < len(group.slices) or (partition, group.file_id) in state.pending_compactions:
            emptied = False
        replaced = state.replaced.get((partition, group.file_id))
        if replaced is not None:
            gone = earliest is None or replaced < earliest.request_time
            going = [s for s in slices if not _is_saved(s, savepointed) and planned.isdisjoint(_files(s))] if gone else []
            emptied = emptied and len(going) == len(slices)
        else:
            emptied = False
            needed = needed_from.get((partition, group.file_id))
            free = [s for s in slices if (needed is None or s.base_instant < needed) and planned.isdisjoint(_files(s))]
            if settings.policy.has_earliest_instant:
                going = _before_earliest(slices, free, earliest)
            else:
                # Files that plans retain count as one version, unless there is a newer one.
                newest = next((s for s in slices if _files(s)), None)
                kept_by_plans = newest is not None and newest not in free
                going = _not_read(slices, free[settings.versions_retained - kept_by_plans :], unsettled)
            going = [s for s in going if not _is_saved(s, savepointed)]
        for slice_ in going:
            files.extend(_files(slice_))
    return PartitionClean(tuple(files), emptied and partition != "")


def savepointed_times(timeline: Timeline) -> tuple[str, ...]:
    """Return the instants that have a completed savepoint, ascending."""
    return tuple(i.request_time for i in timeline.completed(Action.SAVEPOINT))


def _completed_slices(group: FileGroup, state: SlicingState) -> list[FileSlice]:
    """Newest first. The slice of a pending compaction counts because of its logs; files of pending writes, and the base
    file of that compaction, do not count, and are retained.
    """
    waiting = state.pending_compactions.get((group.partition, group.file_id))
    there = (replace(s, base=None) if s.base_instant == waiting else s for s in group.slices)
    return [s for s in there if s.base_instant == waiting or state.timeline.is_completed(s.base_instant)]


def _before_earliest(slices: list[FileSlice], free: list[FileSlice], earliest: Instant | None) -> list[FileSlice]:
    if earliest is None:
        return []
    older = [s.base_instant for s in slices if s.base_instant < earliest.request_time]
    retained = {slices[0].base_instant if slices else "", older[0] if older else ""}
    return [s for s in free if s.base_instant < earliest.request_time and s.base_instant not in retained]


def _not_read(slices: list[FileSlice], old: list[FileSlice], unsettled: str | None) -> list[FileSlice]:
    """The old slices that no pending write reads: it reads the newest one before the instants it saw pending."""
    if unsettled is None:
        return old
    read = max((s.base_instant for s in slices if s.base_instant < unsettled), default="")
    return [s for s in old if s.base_instant < read]


def _is_saved(slice_: FileSlice, savepointed: frozenset[str]) -> bool:
    return any(file_name(path) in savepointed for path in _files(slice_))


def _files(slice_: FileSlice) -> list[str]:
    return [*([slice_.base.path] if slice_.base else []), *(log.path for log in slice_.logs)]
