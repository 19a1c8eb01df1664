"""Clustering plans: which file slices are rewritten together, and into how many file groups.

    1. partitions     all, or recent days, a range of names, one in 24 by the hour, chosen by name or pattern
    2. eligibility    slices below the small file limit; none under pending compaction or clustering
    3. grouping       by size as in Hudi; with sort columns, slices whose ranges of them overlap first; or those slices
                      alone; or neighbours by record key range or by commit time; or in random order; or each slice by
                      itself
    4. groups         closed when the next slice would exceed the group's byte limit; their number is limited too
    5. output         as many file groups as the target size requires; of buckets, one for each

The trigger of inline clustering is here too: the number of writes since the last one.

Pure: slices, ranges and settings in, a plan out.

Source: docs/formats/writing.md, "Clustering".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from hashlib import md5
from typing import Annotated, Any, Protocol

from pyhudi.errors import InvalidRequest, TableState
from pyhudi.features.consistent_hashing.plan_resizes import NodeChange
from pyhudi.format.names import parse_bucket
from pyhudi.options import service_options
from pyhudi.options.plugins import Registry
from pyhudi.planning.bucket_routing import are_buckets
from pyhudi.table.file_slices import FileSlice
from pyhudi.table.timeline.active_timeline import Timeline

GROUPINGS = ("size", "prefer_overlap", "overlap", "record_key", "commit_time", "random", "single")
FILTER_MODES = ("NONE", "RECENT_DAYS", "SELECTED_PARTITIONS", "DAY_ROLLING")
LAYOUTS = ("LINEAR", "ZORDER", "HILBERT")


class Grouping(Protocol):
    """User-defined grouping of file slices for clustering: the eligible slices of a partition in, groups out.

    Slices in no group are not rewritten.  A group that exceeds the read limit of one clustering is divided.
    """

    def __call__(self, partition: str, slices: Sequence[FileSlice]) -> Sequence[Sequence[FileSlice]]: ...


_registered: Registry[Grouping] = Registry("clustering strategy")


def register_clustering_strategy(class_name: str, grouping: Grouping) -> None:
    """Register a plan strategy in this process; a later one of the same name replaces it.

    Args:
        class_name: Value of `hoodie.clustering.plan.strategy.class` that selects the strategy.
        grouping: Function that groups file slices, see `Grouping`.

    Raises:
        InvalidRequest: The name is empty.
    """
    _registered.register(class_name, grouping)


def is_registered_strategy(class_name: str) -> bool:
    """Whether `register_clustering_strategy` was called with a name, possibly by a plug-in."""
    return _registered.find(class_name) is not None


@dataclass(frozen=True, slots=True)
class ClusteringRules:
    """How to choose and group slices.  Sizes in bytes.

    sort_columns: the order of rows in the output, () for none.  seed: for the random grouping.  after_commit: only file
    groups that commits requested after this instant wrote, of any size; None for all.
    """

    small_file_limit_bytes: Annotated[int, service_options.CLUSTERING_SMALL_FILE_LIMIT]
    target_file_bytes: Annotated[int, service_options.CLUSTERING_TARGET_FILE_MAX_BYTES]
    max_group_bytes: Annotated[int, service_options.CLUSTERING_MAX_BYTES_PER_GROUP]
    max_group_count: Annotated[int, service_options.CLUSTERING_MAX_NUM_GROUPS]
    sort_columns: Annotated[tuple[str, ...], service_options.CLUSTERING_SORT_COLUMNS]
    layout: Annotated[str, service_options.LAYOUT_OPTIMIZE_STRATEGY]
    grouping: Annotated[str, service_options.CLUSTERING_GROUPING, service_options.CLUSTERING_PLAN_CLASS]
    single_groups: Annotated[bool, service_options.CLUSTERING_SINGLE_GROUP_CLUSTERING_ENABLED]
    filter_mode: Annotated[str, service_options.CLUSTERING_PLAN_PARTITION_FILTER_MODE, service_options.CLUSTERING_PLAN_CLASS]
    partition_pattern: Annotated[str | None, service_options.CLUSTERING_PARTITION_REGEX_PATTERN]
    selected_partitions: Annotated[tuple[str, ...], service_options.CLUSTERING_PARTITION_SELECTED]
    begin_partition: Annotated[str | None, service_options.CLUSTERING_CLUSTER_BEGIN_PARTITION]
    end_partition: Annotated[str | None, service_options.CLUSTERING_CLUSTER_END_PARTITION]
    recent_partitions: Annotated[int, service_options.CLUSTERING_DAYBASED_LOOKBACK_PARTITIONS]
    skipped_partitions: Annotated[int, service_options.CLUSTERING_DAYBASED_SKIPFROMLATEST_PARTITIONS]
    incremental: Annotated[bool, service_options.TABLE_SERVICES_INCREMENTAL_ENABLED] = True
    seed: int = 0
    after_commit: Annotated[str | None, service_options.CLUSTERING_EARLIEST_COMMIT, service_options.CLUSTERING_PLAN_CLASS] = None

    def __post_init__(self) -> None:
        # Names of Hudi's strategies need no plug-in lookup.
        own = () if self.grouping in GROUPINGS or not is_registered_strategy(self.grouping) else (self.grouping,)
        for value, legal, name in (
            (self.grouping, (*GROUPINGS, *own), "grouping"),
            (self.filter_mode, FILTER_MODES, "partition filter mode"),
            (self.layout, LAYOUTS, "layout"),
        ):
            if value not in legal:
                raise InvalidRequest(f"clustering {name} {value!r} is none of {', '.join(legal)}")
        if self.grouping in ("prefer_overlap", "overlap") and not self.sort_columns:
            raise InvalidRequest("clustering by overlap needs sort columns: their ranges are what overlaps")
        if self.target_file_bytes <= 0 or self.max_group_bytes <= 0:
            raise InvalidRequest(
                f"{service_options.CLUSTERING_TARGET_FILE_MAX_BYTES} and "
                f"{service_options.CLUSTERING_MAX_BYTES_PER_GROUP} "
                "have to be positive"
            )

    @property
    def needs_ranges(self) -> bool:
        """Whether the grouping uses ranges of values."""
        return self.grouping in ("prefer_overlap", "overlap", "record_key")


@dataclass(frozen=True, slots=True)
class SliceRange:
    """Known value ranges of a slice: of the sort columns and of the record key, as (smallest, largest), None if unknown."""

    columns: tuple[tuple[Any, Any] | None, ...] = ()
    record_key: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class ClusterGroup:
    """Slices of one partition that are rewritten together.

    Attributes:
        change: How consistent-hashing nodes change, in a resize.
        bounds: Smallest and largest number of each sort column over all slices, if both are known.
    """

    partition: str
    slices: tuple[FileSlice, ...]
    output_count: int
    change: NodeChange | None = None
    bounds: tuple[tuple[str, float, float], ...] = ()

    @property
    def size_bytes(self) -> int:
        """Bytes of all files that are read."""
        return sum(slice_.size_bytes for slice_ in self.slices)


@dataclass(frozen=True, slots=True)
class ClusteringDue:
    """Whether a clustering should be planned, and the figures that decide it."""

    is_due: bool
    reason: str


def clustering_due(timeline: Timeline, last: str, max_commits: int) -> ClusteringDue:
    """Return whether enough writes completed since the last clustering.

    last: request time of the newest clustering, '' for none.  max_commits: how many writes make one due.
    """
    count = sum(1 for instant in timeline.completed_writes() if instant.request_time > last)
    return ClusteringDue(count >= max_commits, f"{count} of {max_commits} commits since the last clustering")


def choose_partitions(partitions: Iterable[str], settings: ClusteringRules, hour: int) -> tuple[str, ...]:
    """Return the partitions to inspect, sorted.  hour: of the day, for DAY_ROLLING."""
    every = sorted(partitions)
    if settings.selected_partitions:
        wanted = set(settings.selected_partitions)
        every = [partition for partition in every if partition in wanted]
    elif settings.partition_pattern:
        pattern = _pattern(settings.partition_pattern)
        every = [partition for partition in every if pattern.fullmatch(partition)]
    if settings.filter_mode == "RECENT_DAYS":
        newest = sorted(every, reverse=True)[settings.skipped_partitions :][: settings.recent_partitions]
        return tuple(sorted(newest))
    if settings.filter_mode == "SELECTED_PARTITIONS":
        begin, end = settings.begin_partition or "", settings.end_partition
        return tuple(p for p in every if p >= begin and (end is None or p <= end))
    if settings.filter_mode == "DAY_ROLLING":
        return tuple(partition for index, partition in enumerate(every) if index % 24 == hour)
    return tuple(every)


def eligible_slices(
    slices: Iterable[FileSlice], pending_groups: frozenset[tuple[str, str]], settings: ClusteringRules
) -> tuple[FileSlice, ...]:
    """Return the slices that may be clustered.  pending_groups: file groups under pending compaction or clustering."""
    return tuple(
        slice_
        for slice_ in slices
        if (slice_.partition, slice_.file_id) not in pending_groups
        and (settings.after_commit is not None or _base_bytes(slice_, settings) < settings.small_file_limit_bytes)
    )


def plan_groups(
    candidates: Mapping[str, Sequence[FileSlice]], ranges: Mapping[tuple[str, str], SliceRange], settings: ClusteringRules
) -> tuple[ClusterGroup, ...]:
    """Return the groups to cluster, by partition. ranges: known ranges of slices, by (partition, file id); only some
    groupings use them.
    """
    groups: list[ClusterGroup] = []
    for partition in sorted(candidates):
        in_partition: list[ClusterGroup] = []
        own = _registered_runs(partition, candidates[partition], settings)
        for run in _runs(candidates[partition], ranges, settings) if own is None else own:
            in_partition.extend(_closed_groups(partition, run, settings))
        groups.extend(in_partition[: settings.max_group_count])
    return tuple(replace(group, bounds=_bounds(group, ranges, settings)) for group in groups[: settings.max_group_count])


def requires_bucket_preservation(groups: Iterable[ClusterGroup], *, is_bucketed: bool) -> bool:
    """Whether the file groups of a plan are buckets, whose records must stay in their bucket.  is_bucketed: the caller
    declares it.

    Without a declaration, file ids decide.  Raises TableState if the table is declared bucketed and a file group is no
    bucket.
    """
    slices = [slice_ for group in groups for slice_ in group.slices]
    stray = next((slice_ for slice_ in slices if parse_bucket(slice_.file_id) is None), None)
    if is_bucketed and stray is not None:
        raise TableState(
            f"file group {stray.file_id} in {stray.partition or 'the table'} was not written with a bucket index: its id names "
            "no bucket"
        )
    return is_bucketed or are_buckets(slice_.file_id for slice_ in slices)


def bucket_by_bucket(groups: Iterable[ClusterGroup]) -> tuple[ClusterGroup, ...]:
    """Split the groups of a plan over buckets for the rewrite: each slice by itself."""
    return tuple(ClusterGroup(group.partition, (slice_,), 1) for group in groups for slice_ in group.slices)


def group_metrics(group: ClusterGroup, settings: ClusteringRules) -> dict[str, float]:
    """Return the metrics that a plan records for a group, for information only: megabytes read and written, log files
    and their bytes, and bounds of sort columns as `MIN_<column>` and `MAX_<column>`.
    """
    read_mb = sum(file.size_bytes for s in group.slices for file in (*((s.base,) if s.base else ()), *s.logs)) >> 20
    write_mb = sum(_base_bytes(s, settings) for s in group.slices) >> 20
    return {
        "TOTAL_LOG_FILES": float(sum(len(s.logs) for s in group.slices)),
        "TOTAL_LOG_FILES_SIZE": float(sum(log.size_bytes for s in group.slices for log in s.logs)),
        "TOTAL_IO_READ_MB": float(read_mb),
        "TOTAL_IO_WRITE_MB": float(write_mb),
        "TOTAL_IO_MB": float(read_mb + write_mb),
        **{f"{word}_{name}": bound for name, *both in group.bounds for word, bound in zip(("MIN", "MAX"), both, strict=True)},
    }


def _bounds(
    group: ClusterGroup, ranges: Mapping[tuple[str, str], SliceRange], settings: ClusteringRules
) -> tuple[tuple[str, float, float], ...]:
    result: list[tuple[str, float, float]] = []
    known = [_range_of(slice_, ranges).columns for slice_ in group.slices]
    for index, name in enumerate(settings.sort_columns):
        column = [bounds for columns in known if index < len(columns) and (bounds := columns[index]) is not None]
        if len(column) == len(known) and all(isinstance(bound, (int, float, Decimal)) for both in column for bound in both):
            result.append((name, float(min(low for low, _ in column)), float(max(high for _, high in column))))
    return tuple(result)


def _registered_runs(partition: str, slices: Sequence[FileSlice], settings: ClusteringRules) -> list[list[FileSlice]] | None:
    """As `_runs`, by a user-defined strategy; None if there is none.

    Raises InvalidRequest unless its groups consist of the offered slices, each in at most one group.
    """
    grouping = None if settings.grouping in GROUPINGS else _registered.find(settings.grouping)
    if grouping is None:
        return None
    runs = [list(group) for group in grouping(partition, tuple(slices)) if group]
    taken = [slice_.file_id for run in runs for slice_ in run]
    if len(set(taken)) < len(taken) or not set(taken) <= {slice_.file_id for slice_ in slices}:
        raise InvalidRequest(
            f"clustering strategy {settings.grouping} returned duplicate slices, or slices that were not offered"
        )
    return runs


def _runs(
    slices: Sequence[FileSlice], ranges: Mapping[tuple[str, str], SliceRange], settings: ClusteringRules
) -> list[list[FileSlice]]:
    """Slices in grouping order; a new list where a group must end."""
    if settings.grouping == "single":
        return [[slice_] for slice_ in sorted(slices, key=lambda s: s.file_id)]
    if settings.grouping == "overlap":
        runs, _, unknown = _overlapping(slices, ranges)
        return [*runs, unknown] if unknown else runs
    if settings.grouping == "prefer_overlap":
        # Overlapping slices come first, because the number of groups is limited; the others gain nothing from being
        # clustered.
        runs, alone, unknown = _overlapping(slices, ranges)
        rest = sorted([*alone, *unknown], key=lambda s: (-_base_bytes(s, settings), s.file_id))
        return [*runs, rest] if rest else runs
    if settings.grouping == "record_key":
        known = [s for s in slices if _range_of(s, ranges).record_key is not None]
        unknown = [s for s in slices if _range_of(s, ranges).record_key is None]
        return [sorted(known, key=lambda s: (_range_of(s, ranges).record_key or ("", ""), s.file_id)) + unknown]
    if settings.grouping == "commit_time":
        return [sorted(slices, key=lambda s: (s.base_instant, s.file_id))]
    if settings.grouping == "random":
        # The order of digests is as good as random, and a function of the seed and the file ids alone.
        return [sorted(slices, key=lambda s: md5(f"{settings.seed}:{s.file_id}".encode()).digest())]
    return [sorted(slices, key=lambda s: (-_base_bytes(s, settings), s.file_id))]


def _overlapping(
    slices: Sequence[FileSlice], ranges: Mapping[tuple[str, str], SliceRange]
) -> tuple[list[list[FileSlice]], list[FileSlice], list[FileSlice]]:
    """Runs of slices with overlapping ranges of the first sort column; slices without overlap; those of unknown range."""
    known: list[tuple[Any, Any, FileSlice]] = []
    unknown: list[FileSlice] = []
    for slice_ in slices:
        columns = _range_of(slice_, ranges).columns
        if columns and columns[0] is not None:
            known.append((columns[0][0], columns[0][1], slice_))
        else:
            unknown.append(slice_)
    known.sort(key=lambda entry: (entry[0], entry[2].file_id))
    runs: list[list[FileSlice]] = []
    reach: Any = None
    for low, high, slice_ in known:
        if runs and low <= reach:
            runs[-1].append(slice_)
            reach = max(reach, high)
        else:
            runs.append([slice_])
            reach = high
    return [run for run in runs if len(run) > 1], [run[0] for run in runs if len(run) == 1], unknown


def _closed_groups(partition: str, slices: Sequence[FileSlice], settings: ClusteringRules) -> list[ClusterGroup]:
    groups: list[ClusterGroup] = []
    current: list[FileSlice] = []
    total = 0
    for slice_ in slices:
        size = _base_bytes(slice_, settings)
        if current and total + size > settings.max_group_bytes:
            groups.append(_group(partition, current, total, settings))
            current, total = [], 0
        current.append(slice_)
        total += size
    if current and (len(current) > 1 or settings.sort_columns or settings.single_groups or settings.grouping == "single"):
        groups.append(_group(partition, current, total, settings))
    return groups


def _group(partition: str, slices: Sequence[FileSlice], total: int, settings: ClusteringRules) -> ClusterGroup:
    return ClusterGroup(partition, tuple(slices), max(1, -(-total // settings.target_file_bytes)))


def _base_bytes(slice_: FileSlice, settings: ClusteringRules) -> int:
    # A slice of log files alone may grow into a file of any size; the usual maximum size is assumed.
    return slice_.base.size_bytes if slice_.base is not None else _UNKNOWN_BASE_BYTES


def _range_of(slice_: FileSlice, ranges: Mapping[tuple[str, str], SliceRange]) -> SliceRange:
    return ranges.get((slice_.partition, slice_.file_id), SliceRange())


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise InvalidRequest(f"partition pattern {text!r} is not a regular expression: {error}") from error


_UNKNOWN_BASE_BYTES = 125829120
