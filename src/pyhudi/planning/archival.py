"""Archival planning: which instants move from the active timeline to the archived timeline (history), and which history
files are merged.

    1. nothing, unless the active timeline has more than `max` completed writes; then the oldest leave until `min` are
       left. If the cleaner retains more, both limits grow
    2. of those only the ones before every bound: pending instants, delta commits that trigger the next compaction,
       replace commits whose files are not cleaned yet, the metadata table's last compaction, savepoints
    3. completed cleans and rollbacks older than the last chosen write leave, too

Everything older than the active timeline counts as completed, and replaced file groups are known from the active
timeline only: each bound of step 2 prevents a deleted or uncommitted file from becoming visible again.

    history   once there are `batch` files of one level, the oldest are merged into one of the next level

Pure: reads and deletes nothing.

Source: docs/formats/timeline.md, "Which instants are archived" and "History".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from typing import Annotated

from pyhudi.errors import InvalidRequest
from pyhudi.format.instants import Action, Instant, State, parse_instant_time
from pyhudi.format.lsm_timeline import MAX_LEVEL, HistoryFileName, Manifest, ManifestEntry, parse_history_file
from pyhudi.options import service_options
from pyhudi.options.declaration import Options, read_settings
from pyhudi.options.service_options import COMPACTION_TRIGGER, MAX_DELTA_COMMITS
from pyhudi.planning.cleaning import CleaningRules, LastClean, earliest_instant_to_retain
from pyhudi.planning.compaction import CompactionTrigger
from pyhudi.table.timeline.active_timeline import SLICING_ACTIONS, Timeline

MERGE_LIMIT_BYTES = 1 << 30
"""Maximum input size of one history merge."""


@dataclass(frozen=True, slots=True)
class ArchivalRules:
    """How many completed writes the active timeline retains.

    Attributes:
        archives_past_savepoint: Skip savepointed commits instead of stopping before the first.
        delta_commits_counted: How many delta commits trigger a compaction, None when the trigger does not count them.
        merge_batch: Files of one history level that are merged.
    """

    min_commits: Annotated[int, service_options.KEEP_MIN_COMMITS]
    max_commits: Annotated[int, service_options.KEEP_MAX_COMMITS]
    archives_past_savepoint: Annotated[bool, service_options.ARCHIVE_BEYOND_SAVEPOINT]
    delta_commits_counted: Annotated[int | None, COMPACTION_TRIGGER, MAX_DELTA_COMMITS]
    merge_batch: Annotated[int, service_options.TIMELINE_COMPACTION_BATCH_SIZE]
    cleaning: CleaningRules

    def __post_init__(self) -> None:
        if self.min_commits < 1 or self.max_commits <= self.min_commits:
            raise InvalidRequest(
                f"{service_options.KEEP_MAX_COMMITS} ({self.max_commits}) has to be larger than "
                f"{service_options.KEEP_MIN_COMMITS} "
                f"({self.min_commits}), and that at least 1"
            )
        if self.merge_batch < 2:
            raise InvalidRequest(f"{service_options.TIMELINE_COMPACTION_BATCH_SIZE} has to be at least 2, not {self.merge_batch}")

    @classmethod
    def of(cls, options: Options) -> ArchivalRules:
        """Build from checked options."""
        counted = options.value_or_default(COMPACTION_TRIGGER) in (CompactionTrigger.NUM_COMMITS, CompactionTrigger.NUM_AND_TIME)
        delta_commits = options.integer(MAX_DELTA_COMMITS) if counted else None
        return read_settings(cls, options, delta_commits_counted=delta_commits)


@dataclass(frozen=True, slots=True)
class ArchivalBounds:
    """Bounds of archival that are not part of the timeline's names.

    Attributes:
        last_clean: The newest completed clean.
        has_metadata_table: Whether there is a metadata table.
        metadata_compaction: Request time of the metadata table's last completed compaction.
        data_table: For the timeline of a metadata table, that of its data table.
        without_ids: In a table with column ids, the first write by names whose columns the schema history lacks.
    """

    last_clean: LastClean | None
    has_metadata_table: bool = False
    metadata_compaction: str | None = None
    data_table: Timeline | None = None
    without_ids: str | None = None


@dataclass(frozen=True, slots=True)
class ArchivalPlan:
    """Which instants to archive.

    Attributes:
    instants: Completed instants that leave, by request time.
    start: Request time of the first write that stays, '' when nothing leaves.
    reason: Why nothing leaves, '' when something does.
    """

    instants: tuple[Instant, ...]
    start: str
    reason: str


@dataclass(frozen=True, slots=True)
class HistoryMerge:
    """inputs: the files to merge, in order of their rows.  output: the name of the merged file."""

    inputs: tuple[ManifestEntry, ...]
    output: HistoryFileName


def reason_not_to_archive(timeline: Timeline, settings: ArchivalRules) -> str | None:
    """Return why archival is not due, judged by the timeline alone."""
    count = len(timeline.completed_writes())
    if count <= settings.max_commits:
        return f"{count} completed writes, up to {settings.max_commits} are kept"
    return None


def plan_archival(
    timeline: Timeline, settings: ArchivalRules, bounds: ArchivalBounds, *, is_cow: bool, zone: tzinfo
) -> ArchivalPlan:
    """Choose the instants that leave.  zone: of the table's instant times."""
    completed = timeline.completed_writes()
    keep_min, keep_max = _counts(timeline, completed, settings, zone)
    if len(completed) <= keep_max:
        return _empty_plan(f"{len(completed)} completed writes, up to {keep_max} are kept")
    if bounds.has_metadata_table and bounds.metadata_compaction is None:
        return _empty_plan("the metadata table was not compacted yet")
    limits = [
        (_pending_bound(timeline, completed), "a write or service is pending"),
        (None if is_cow else _compaction_bound(timeline, settings), "delta commits are counted for compaction"),
        (_replace_bound(timeline, bounds.last_clean), "replaced file groups are not cleaned yet"),
        (_metadata_bound(completed, bounds), "the metadata table was not compacted since"),
        (_data_table_bound(bounds.data_table, settings), "the data table's timeline begins there"),
        (bounds.without_ids, "columns added by a write without column ids have no ids yet; the next write assigns them"),
    ]
    saved = {i.request_time for i in timeline.instants if i.action is Action.SAVEPOINT}
    if saved and not settings.archives_past_savepoint:
        limits.append((min(saved), "there is a savepoint"))
    limit, why = min(((limit, why) for limit, why in limits if limit is not None), default=(None, ""))
    free = [i for i in completed if i.request_time not in saved and (limit is None or i.request_time < limit)]
    writes = free[: len(completed) - keep_min]
    if not writes:
        return _empty_plan(f"{why} ({limit})")
    last = writes[-1].request_time
    along = [i for i in timeline.completed(Action.CLEAN, Action.ROLLBACK) if i.request_time < last]
    leaving = {i.request_time for i in writes}
    staying = [
        i.request_time
        for i in timeline.instants
        if i.action in SLICING_ACTIONS and i.request_time not in leaving and i.request_time not in saved
    ]
    instants = tuple(sorted((*writes, *along), key=lambda i: i.sort_key))
    return ArchivalPlan(instants, min(staying, default=last), "")


def plan_history_merge(manifest: Manifest, level: int, batch: int) -> HistoryMerge | None:
    """Return the merge that is due on a level of the history; None when none is."""
    if level >= MAX_LEVEL:
        return None
    on_level = [
        (name, entry) for entry in manifest.files if (name := parse_history_file(entry.file_name)) and name.level == level
    ]
    if len(on_level) < batch:
        return None
    chosen: list[tuple[HistoryFileName, ManifestEntry]] = []
    size_bytes = 0
    for name, entry in sorted(on_level, key=lambda pair: pair[1].file_name)[:batch]:
        chosen.append((name, entry))
        size_bytes += entry.size_bytes
        if size_bytes > MERGE_LIMIT_BYTES:
            break
    if len(chosen) < 2:
        return None
    output = HistoryFileName(min(name.min_time for name, _ in chosen), max(name.max_time for name, _ in chosen), level + 1)
    if any(entry.file_name == output.text for entry in manifest.files):
        return None
    return HistoryMerge(tuple(entry for _, entry in chosen), output)


def merged_manifest(manifest: Manifest, inputs: Sequence[ManifestEntry], output: ManifestEntry) -> Manifest:
    """Return the manifest after a merge."""
    gone = {entry.file_name for entry in inputs}
    return Manifest((*(entry for entry in manifest.files if entry.file_name not in gone), output))


def _empty_plan(reason: str) -> ArchivalPlan:
    return ArchivalPlan((), "", reason)


def _counts(timeline: Timeline, completed: tuple[Instant, ...], settings: ArchivalRules, zone: tzinfo) -> tuple[int, int]:
    """Minimum and maximum, raised to what the cleaner retains: hours are counted back from the newest write."""
    keep_min, keep_max = settings.min_commits, settings.max_commits
    if completed:
        writes = replace(timeline, instants=tuple(i for i in timeline.instants if i.action in SLICING_ACTIONS))
        try:
            now_ms = parse_instant_time(completed[-1].request_time, zone)
        except InvalidRequest:
            now_ms = 0
        earliest = earliest_instant_to_retain(writes, settings.cleaning, now_ms, zone)
        if earliest is not None:
            needed = sum(1 for i in completed if i.request_time > earliest.request_time) + 2
            if keep_min < needed:
                keep_max += needed - keep_min
                keep_min = needed
    return keep_min, keep_max


def _pending_bound(timeline: Timeline, completed: tuple[Instant, ...]) -> str | None:
    """The newest write that precedes everything pending.  Pending writes and plans may conflict with later completions."""
    first = timeline.earliest_unread_bound()
    if first is None:
        return None
    before = [i.request_time for i in completed if i.request_time < first]
    return before[-1] if before else first


def _compaction_bound(timeline: Timeline, settings: ArchivalRules) -> str | None:
    """The first delta commit that has to stay so that the next compaction's trigger count is correct."""
    needed = settings.delta_commits_counted
    if needed is None:
        return None
    deltas = timeline.completed(Action.DELTACOMMIT)
    compactions = timeline.completed(Action.COMMIT)
    if compactions:
        last = compactions[-1].request_time
        deltas = tuple(i for i in deltas if (i.completion_time or i.request_time) > last)
        fallback: str | None = last
    else:
        fallback = deltas[0].request_time if deltas else None
    if len(deltas) < needed:
        return fallback
    return deltas[len(deltas) - needed].request_time


def _replace_bound(timeline: Timeline, last_clean: LastClean | None) -> str | None:
    """The first replace commit or clustering whose replaced file groups may still exist."""
    replaces = [i for i in timeline.instants if i.action in (Action.REPLACECOMMIT, Action.CLUSTERING)]
    if not replaces or last_clean is None:
        return replaces[0].request_time if replaces else None
    earliest = last_clean.earliest_retained
    late: str | None = None
    if not earliest:
        # File versions: the clean deleted every group that was replaced when it was planned. The newest write that it
        # saw bounds what had completed by then.
        seen = timeline.completion_time(last_clean.last_completed) or last_clean.last_completed
        open_ = [i for i in replaces if i.state is not State.COMPLETED or (i.completion_time or i.request_time) > seen]
        late = _late_write(timeline, last_clean, seen)
    else:
        open_ = [i for i in replaces if i.request_time >= earliest]
    covered = [i for i in replaces if i not in open_]
    bounds = [open_[0].request_time] if open_ else []
    if late is not None and replaces[-1].request_time > late:
        bounds.append(late)
    # A savepoint that the clean saw retained files of groups that were replaced after it, also if the replacement was
    # requested before it; they are cleaned once the savepoint is deleted.
    for saved in sorted({*last_clean.savepoints, *(i.request_time for i in timeline.completed(Action.SAVEPOINT))}):
        held = [i for i in covered if (i.completion_time or i.request_time) > saved]
        if held:
            bounds.append(held[0].request_time)
            break
    return min(bounds, default=None)


def _late_write(timeline: Timeline, last_clean: LastClean, last_seen_time: str) -> str | None:
    """The first of the writes that were requested before the last clean and that it did not see; None without any."""
    # A compaction among them may have written to file groups that were replaced after it was planned. As long as it is on the
    # timeline, its output is known to be uncleaned. last_seen_time: the clean did not see later completions.
    completed = [i for i in timeline.completed_writes() if (i.completion_time or i.request_time) > last_seen_time]
    return min((i.request_time for i in completed if i.request_time < last_clean.request_time), default=None)


def _metadata_bound(completed: tuple[Instant, ...], bounds: ArchivalBounds) -> str | None:
    compacted = bounds.metadata_compaction
    if compacted is None:
        return None
    return next((i.request_time for i in completed if (i.completion_time or i.request_time) > compacted), None)


def _data_table_bound(data_table: Timeline | None, settings: ArchivalRules) -> str | None:
    if data_table is None:
        return None
    saved = {i.request_time for i in data_table.completed(Action.SAVEPOINT)} if settings.archives_past_savepoint else set()
    writes = [i.request_time for i in data_table.completed_writes() if i.request_time not in saved]
    pending = [i.request_time for i in data_table.pending()]
    return min((*writes, *pending), default=None)
