"""Compaction planning for merge-on-read tables: when compactions and log compactions are due, and which slices they cover.

    1. due?         by delta commits or time since the last compaction (`hoodie.compact.inline.trigger.strategy`)
    2. partitions   those that the strategies select; the others are recorded in the plan for the next one
    3. slices       with committed log files, not under another compaction or clustering; of their logs those that
                    completed before the compaction's own time, as later ones join the slice that it creates
    4. operations   one for each slice, with its cost; the strategies order and limit them, one after the other

A log compaction merges the blocks of a slice's log files into one log file; it covers the slices with enough blocks.

Everything here is pure: listing files, reading logs and executing plans happen elsewhere.

Source: docs/formats/writing.md, "Compaction"; docs/formats/timeline.md, "Paths in documents".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta, tzinfo
from enum import StrEnum
from typing import Annotated, Protocol

from pyhudi.errors import InvalidRequest
from pyhudi.format.actions.compaction_plan import CompactionOperation, CompactionPlan, CompactionStrategy
from pyhudi.format.instants import Action, Instant, timestamp_from_instant
from pyhudi.format.paths import split_path
from pyhudi.options import service_options
from pyhudi.options.declaration import Options, read_settings
from pyhudi.options.plugins import Registry
from pyhudi.options.service_options import COMPACTION_TRIGGER, MAX_DELTA_COMMITS
from pyhudi.options.write_options import MAX_FILE_SIZE
from pyhudi.table.file_slices import FileGroup, FileSlice, LogFile, SlicingState, visible_slice
from pyhudi.table.timeline.active_timeline import Timeline

MB = 1 << 20

TOTAL_LOG_FILES = "TOTAL_LOG_FILES"
TOTAL_LOG_FILES_SIZE = "TOTAL_LOG_FILES_SIZE"
TOTAL_IO_READ_MB = "TOTAL_IO_READ_MB"
TOTAL_IO_WRITE_MB = "TOTAL_IO_WRITE_MB"
TOTAL_IO_MB = "TOTAL_IO_MB"

Operations = tuple[CompactionOperation, ...]
FileGroupId = tuple[str, str]


class CompactionTrigger(StrEnum):
    """`hoodie.compact.inline.trigger.strategy`."""

    NUM_COMMITS = "NUM_COMMITS"
    NUM_COMMITS_AFTER_LAST_REQUEST = "NUM_COMMITS_AFTER_LAST_REQUEST"
    TIME_ELAPSED = "TIME_ELAPSED"
    NUM_AND_TIME = "NUM_AND_TIME"
    NUM_OR_TIME = "NUM_OR_TIME"


class Strategy(StrEnum):
    """`hoodie.compaction.strategy`: the last part of the class names of Hudi's strategies."""

    LOG_FILE_SIZE = "LogFileSizeBasedCompactionStrategy"
    LOG_FILE_NUM = "LogFileNumBasedCompactionStrategy"
    BOUNDED_IO = "BoundedIOCompactionStrategy"
    DAY = "DayBasedCompactionStrategy"
    BOUNDED_PARTITIONS = "BoundedPartitionAwareCompactionStrategy"
    UNBOUNDED_PARTITIONS = "UnBoundedPartitionAwareCompactionStrategy"
    UNBOUNDED = "UnBoundedCompactionStrategy"
    PARTITION_REGEX = "PartitionRegexBasedCompactionStrategy"

    @classmethod
    def parse(cls, name: str) -> Strategy | str:
        """Parse a class name, with or without its package; a registered name is returned unchanged.

        Raises InvalidRequest for another class.
        """
        try:
            return cls(name.strip().rsplit(".", 1)[-1])
        except ValueError:
            if _registered.find(name.strip()) is not None:
                return name.strip()
            known = ", ".join(cls)
            raise InvalidRequest(
                f"{service_options.COMPACTION_STRATEGY}={name} is not a strategy of Hudi ({known}), and none was registered by "
                "pyhudi.register_compaction_strategy under that name"
            ) from None


class CompactionStrategyRule(Protocol):
    """User-defined compaction strategy: operations in, those to execute out, in order of priority.

    `metrics` of an operation has its sizes in megabytes and its number of log files.  Operations left out wait for a
    later plan.
    """

    def __call__(self, operations: Sequence[CompactionOperation]) -> Sequence[CompactionOperation]: ...


_registered: Registry[CompactionStrategyRule] = Registry("compaction strategy")


def register_compaction_strategy(class_name: str, strategy: CompactionStrategyRule) -> None:
    """Register a strategy in this process; a later one of the same name replaces it.

    Args:
        class_name: Value of `hoodie.compaction.strategy` that selects the strategy.
        strategy: Function that chooses operations, see `CompactionStrategyRule`.

    Raises:
        InvalidRequest: The name is empty.
    """
    _registered.register(class_name, strategy)


def _by_registered(name: str, operations: Operations) -> Operations:
    """The choice of a registered strategy.  Raises InvalidRequest unless it is a subset of the operations offered."""
    strategy = _registered.find(name)
    if strategy is None:
        raise InvalidRequest(f"compaction strategy {name} is not registered in this process")
    taken = tuple(strategy(operations))
    if len(set(map(id, taken))) < len(taken) or not set(map(id, taken)) <= set(map(id, operations)):
        raise InvalidRequest(f"compaction strategy {name} returned duplicate operations, or operations that were not offered")
    return taken


@dataclass(frozen=True, slots=True)
class CompactionRules:
    """When to compact, and in which order.

    Attributes:
        max_delta_commits: Since the last compaction, for the trigger.
        max_delta_seconds: Since the last compaction, for the trigger.
        strategies: Applied one after the other, user-defined ones by name.
        target_io_mb: Limit for reads and writes of one compaction.
        day_partitions: Number of partitions (days) of the day-based strategies.
        incremental: Inspect only partitions that changed since the last compaction.
        log_block_threshold: Number of blocks from which on a slice is log-compacted.
        max_file_size_bytes: Assumed size of a base file that does not exist yet.
    """

    trigger: Annotated[CompactionTrigger, COMPACTION_TRIGGER] = CompactionTrigger.NUM_COMMITS
    max_delta_commits: Annotated[int, MAX_DELTA_COMMITS] = 5
    max_delta_seconds: Annotated[int, service_options.COMPACT_INLINE_MAX_DELTA_SECONDS] = 3600
    strategies: Annotated[tuple[Strategy | str, ...], service_options.COMPACTION_STRATEGY] = (Strategy.LOG_FILE_SIZE,)
    target_io_mb: Annotated[int, service_options.COMPACTION_TARGET_IO] = 512_000
    log_size_threshold_bytes: Annotated[int, service_options.COMPACTION_LOGFILE_SIZE_THRESHOLD] = 0
    log_count_threshold: Annotated[int, service_options.COMPACTION_LOGFILE_NUM_THRESHOLD] = 0
    day_partitions: Annotated[int, service_options.COMPACTION_DAYBASED_TARGET_PARTITIONS] = 10
    partition_regex: Annotated[str, service_options.COMPACTION_PARTITION_PATH_REGEX] = ""
    incremental: Annotated[bool, service_options.TABLE_SERVICES_INCREMENTAL_ENABLED] = True
    log_block_threshold: Annotated[int, service_options.LOG_COMPACTION_BLOCKS_THRESHOLD] = 5
    max_file_size_bytes: Annotated[int, MAX_FILE_SIZE] = 125_829_120

    def __post_init__(self) -> None:
        if self.max_delta_commits < 1 or self.target_io_mb < 1 or self.day_partitions < 1 or self.log_block_threshold < 1:
            raise InvalidRequest(
                f"{service_options.MAX_DELTA_COMMITS}, {service_options.COMPACTION_TARGET_IO}, "
                f"{service_options.COMPACTION_DAYBASED_TARGET_PARTITIONS} and "
                f"{service_options.LOG_COMPACTION_BLOCKS_THRESHOLD} have to be positive"
            )
        if Strategy.PARTITION_REGEX in self.strategies and not self.partition_regex:
            raise InvalidRequest(f"{Strategy.PARTITION_REGEX} needs {service_options.COMPACTION_PARTITION_PATH_REGEX}")
        try:
            re.compile(self.partition_regex)
        except re.error as error:
            raise InvalidRequest(
                f"{service_options.COMPACTION_PARTITION_PATH_REGEX}={self.partition_regex!r} is not a pattern: {error}"
            ) from None

    @classmethod
    def of(cls, options: Options) -> CompactionRules:
        """Build from checked options."""
        strategies = tuple(Strategy.parse(name) for name in options.names(service_options.COMPACTION_STRATEGY))
        return read_settings(
            cls,
            options,
            strategies=strategies,
            partition_regex=options.text(service_options.COMPACTION_PARTITION_PATH_REGEX) or "",
        )


@dataclass(frozen=True, slots=True)
class TriggerState:
    """Whether a service should be planned, and the figures that decide it."""

    is_due: bool
    reason: str


def compaction_due(timeline: Timeline, settings: CompactionRules, time: str, zone: tzinfo) -> TriggerState:
    """Return whether the trigger fires at `time`, an instant time in `zone`."""
    last = last_compaction(timeline)
    deltas = delta_commits_since(timeline, last)
    if settings.trigger is CompactionTrigger.NUM_COMMITS_AFTER_LAST_REQUEST:
        delta_commits = _deltas_after_last_request(timeline, last)
        return TriggerState(
            delta_commits >= settings.max_delta_commits,
            f"{delta_commits} of {settings.max_delta_commits} delta commits since the last compaction was requested",
        )
    if not deltas:
        return TriggerState(False, "no delta commit since the last compaction")
    count = len(deltas)
    by_count = count >= settings.max_delta_commits
    counted = f"{count} of {settings.max_delta_commits} delta commits since the last compaction"
    if settings.trigger is CompactionTrigger.NUM_COMMITS:
        return TriggerState(by_count, counted)
    seconds = _seconds(time, zone) - _seconds((last or deltas[0]).request_time, zone)
    by_time = seconds >= settings.max_delta_seconds
    waited = f"{seconds} of {settings.max_delta_seconds} seconds"
    if settings.trigger is CompactionTrigger.TIME_ELAPSED:
        return TriggerState(by_time, waited)
    if settings.trigger is CompactionTrigger.NUM_AND_TIME:
        return TriggerState(by_count and by_time, f"{counted} and {waited}")
    return TriggerState(by_count or by_time, f"{counted} or {waited}")


def log_compaction_due(timeline: Timeline, settings: CompactionRules, last_log_compaction: str) -> TriggerState:
    """Return whether enough delta commits completed since the last compaction or log compaction that a slice may have
    enough blocks.

    last_log_compaction: request time of the last completed one, '' without any; on the timeline it appears as a delta commit.
    """
    compaction = last_compaction(timeline)
    since = max(last_log_compaction, compaction.request_time if compaction else "")
    deltas = timeline.completed(Action.DELTACOMMIT)
    count = sum(1 for i in deltas if (i.completion_time or "") > since and i.request_time != last_log_compaction)
    # The output of an earlier log compaction counts as one more block.
    wanted = settings.log_block_threshold - (last_log_compaction == since != "")
    return TriggerState(count >= wanted, f"{count} of {wanted} delta commits since the last compaction or log compaction")


def last_compaction(timeline: Timeline) -> Instant | None:
    """Return the last completed commit: on a merge-on-read table only compactions create those."""
    commits = timeline.completed(Action.COMMIT)
    return commits[-1] if commits else None


def delta_commits_since(timeline: Timeline, last: Instant | None) -> tuple[Instant, ...]:
    """Return the delta commits that completed after a compaction was requested; all when there is none."""
    deltas = timeline.completed(Action.DELTACOMMIT)
    if last is None:
        return deltas
    return tuple(i for i in deltas if (i.completion_time or i.request_time) > last.request_time)


def select_partitions(partitions: Iterable[str], settings: CompactionRules, time: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the partitions that the strategies select, and those that they skip.  time: the compaction's own.

    Raises InvalidRequest when a day-based strategy finds a partition that is not a day.
    """
    every = tuple(partitions)
    selected = every
    for strategy in settings.strategies:
        if isinstance(strategy, Strategy):
            selected = _PARTITION_RULES.get(strategy, _all_partitions)(selected, settings, time)
    chosen = frozenset(selected)
    return selected, tuple(partition for partition in every if partition not in chosen)


def compactable_slices(
    groups: Iterable[FileGroup], state: SlicingState, time: str, excluded: frozenset[FileGroupId]
) -> tuple[tuple[FileSlice, ...], bool]:
    """Return the slices with log files to merge, in the order of the groups; and whether an excluded group has some as well.

    time: of the planned instant; only logs that completed before are included. excluded: (partition, file id) of the
    groups under another pending service.
    """
    compactable = []
    passed_over = False
    for group in groups:
        slice_ = visible_slice(group, state)
        if slice_ is None or not slice_.logs:
            continue
        logs = tuple(log for log in slice_.logs if (state.timeline.completion_time(log.name.instant_time) or "") < time)
        if (group.partition, group.file_id) in excluded:
            passed_over = True
        elif logs:
            compactable.append(replace(slice_, logs=logs))
            passed_over = passed_over or len(logs) < len(slice_.logs)
    return tuple(compactable), passed_over


def plan_compaction(
    slices: Iterable[FileSlice], settings: CompactionRules, time: str, skipped: Iterable[str] = ()
) -> CompactionPlan | None:
    """Return the plan that compacts the slices that the strategies choose; None when that is none.

    skipped: partitions with pending logs that could not be inspected; slices that a strategy skips add theirs.
    """
    offered = tuple(compaction_operation(slice_, settings.max_file_size_bytes) for slice_ in slices)
    chosen = offered
    for strategy in settings.strategies:
        if isinstance(strategy, Strategy):
            chosen = _OPERATION_RULES.get(strategy, _all_operations)(chosen, settings, time)
        else:
            chosen = _by_registered(strategy, chosen)
    if not chosen:
        return None
    taken = {(op.partition_path, op.file_id) for op in chosen}
    left = {op.partition_path or "" for op in offered if (op.partition_path, op.file_id) not in taken}
    missing = tuple(sorted(left.union(skipped))) if settings.incremental else None
    return CompactionPlan(operations=chosen, missing_schedule_partitions=missing)


def plan_log_compaction(
    slices: Iterable[tuple[FileSlice, int]], settings: CompactionRules, skipped: Iterable[str] = ()
) -> CompactionPlan | None:
    """Return the plan that merges the logs of the slices with enough blocks; None when there is none.

    slices: each with the number of its valid blocks that no earlier log compaction covers.
    """
    chosen = tuple(
        compaction_operation(slice_, settings.max_file_size_bytes)
        for slice_, blocks in slices
        if blocks >= settings.log_block_threshold
    )
    if not chosen:
        return None
    return CompactionPlan(
        operations=chosen,
        strategy=CompactionStrategy(),
        preserve_hoodie_metadata=True,
        missing_schedule_partitions=tuple(sorted(set(skipped))) if settings.incremental else None,
    )


def compaction_operation(slice_: FileSlice, max_file_size_bytes: int) -> CompactionOperation:
    """Return the operation for one slice, with its cost.  Megabytes are rounded down."""
    log_bytes = sum(log.size_bytes for log in slice_.logs)
    base_bytes = slice_.size_bytes - log_bytes
    read_mb = (base_bytes + log_bytes) // MB
    write_mb = (base_bytes if slice_.base else max_file_size_bytes) // MB
    return CompactionOperation(
        base_instant_time=slice_.base_instant,
        delta_file_paths=tuple(log.name.text for log in sorted(slice_.logs, key=_log_order)),
        data_file_path=slice_.base.name.text if slice_.base else None,
        file_id=slice_.file_id,
        partition_path=slice_.partition,
        bootstrap_file_path=None if slice_.source is None else slice_.source.uri,
        metrics={
            TOTAL_LOG_FILES: float(len(slice_.logs)),
            TOTAL_LOG_FILES_SIZE: float(log_bytes),
            TOTAL_IO_READ_MB: float(read_mb),
            TOTAL_IO_WRITE_MB: float(write_mb),
            TOTAL_IO_MB: float(read_mb + write_mb),
        },
    )


def planned_groups(plan: CompactionPlan) -> frozenset[FileGroupId]:
    """(partition, file id) of each operation."""
    return frozenset((op.partition_path or "", op.file_id or "") for op in plan.operations or ())


def without_groups(plan: CompactionPlan, groups: Container[FileGroupId]) -> CompactionPlan:
    """Return the plan without its operations on some file groups."""
    remaining = (op for op in plan.operations or () if (op.partition_path or "", op.file_id or "") not in groups)
    return replace(plan, operations=tuple(remaining))


def _log_order(log: LogFile) -> tuple[str, int, str, bool]:
    return log.name.sort_key


def _deltas_after_last_request(timeline: Timeline, last: Instant | None) -> int:
    pending = timeline.pending(Action.COMPACTION)
    after = pending[-1].request_time if pending else (last.request_time if last else "")
    return sum(1 for i in timeline.instants if i.action is Action.DELTACOMMIT and i.request_time > after)


def _seconds(time: str, zone: tzinfo) -> int:
    return timestamp_from_instant(time, zone) // 1000


# Partition rules


def _all_partitions(partitions: tuple[str, ...], settings: CompactionRules, time: str) -> tuple[str, ...]:
    return partitions


def _newest_days(partitions: tuple[str, ...], settings: CompactionRules, time: str) -> tuple[str, ...]:
    return tuple(sorted(partitions, key=partition_day, reverse=True)[: settings.day_partitions])


def _recent_days(partitions: tuple[str, ...], settings: CompactionRules, time: str) -> tuple[str, ...]:
    first = _today(time) - timedelta(days=settings.day_partitions)
    return tuple(p for p in sorted(partitions, key=partition_day, reverse=True) if partition_day(p) >= first)


def _older_days(partitions: tuple[str, ...], settings: CompactionRules, time: str) -> tuple[str, ...]:
    first = _today(time) - timedelta(days=settings.day_partitions)
    return tuple(p for p in sorted(partitions, key=partition_day, reverse=True) if partition_day(p) < first)


def _matching_partitions(partitions: tuple[str, ...], settings: CompactionRules, time: str) -> tuple[str, ...]:
    pattern = re.compile(settings.partition_regex)
    return tuple(p for p in partitions if pattern.search(p))


_PartitionRule = Callable[[tuple[str, ...], CompactionRules, str], tuple[str, ...]]

_PARTITION_RULES: Mapping[Strategy, _PartitionRule] = {
    Strategy.DAY: _newest_days,
    Strategy.BOUNDED_PARTITIONS: _recent_days,
    Strategy.UNBOUNDED_PARTITIONS: _older_days,
    Strategy.PARTITION_REGEX: _matching_partitions,
}


def partition_day(partition: str) -> date:
    """The day of a partition path `yyyy/MM/dd`, with or without `name=` in each part. Raises InvalidRequest for another path."""
    text = "/".join(part.rsplit("=", 1)[-1] for part in split_path(partition))
    try:
        return datetime.strptime(text, "%Y/%m/%d").date()
    except ValueError:
        raise InvalidRequest(
            f"partition {partition!r} is not a day (yyyy/MM/dd), which the compaction strategy requires"
        ) from None


def _today(time: str) -> date:
    return datetime.strptime(time[:8], "%Y%m%d").date()


# Operation rules


def _all_operations(operations: Operations, settings: CompactionRules, time: str) -> Operations:
    return operations


def _within_io(operations: Operations, settings: CompactionRules, time: str) -> Operations:
    chosen = []
    remaining = settings.target_io_mb
    for operation in operations:
        if remaining <= 0:
            break
        chosen.append(operation)
        remaining -= int(_metric(operation, TOTAL_IO_MB))
    return tuple(chosen)


def _largest_logs(operations: Operations, settings: CompactionRules, time: str) -> Operations:
    return _within_io(_descending(operations, TOTAL_LOG_FILES_SIZE, settings.log_size_threshold_bytes), settings, time)


def _most_logs(operations: Operations, settings: CompactionRules, time: str) -> Operations:
    return _within_io(_descending(operations, TOTAL_LOG_FILES, settings.log_count_threshold), settings, time)


def _descending(operations: Operations, metric: str, threshold: int) -> Operations:
    selected = [operation for operation in operations if _metric(operation, metric) >= threshold]
    return tuple(sorted(selected, key=lambda operation: -_metric(operation, metric)))


def _by_partition_rule(rule: _PartitionRule) -> Callable[[Operations, CompactionRules, str], Operations]:
    def choose(operations: Operations, settings: CompactionRules, time: str) -> Operations:
        by_partition: dict[str, list[CompactionOperation]] = {}
        for operation in operations:
            by_partition.setdefault(operation.partition_path or "", []).append(operation)
        return tuple(op for partition in rule(tuple(by_partition), settings, time) for op in by_partition[partition])

    return choose


def _metric(operation: CompactionOperation, name: str) -> float:
    return (operation.metrics or {}).get(name, 0.0)


_OPERATION_RULES: Mapping[Strategy, Callable[[Operations, CompactionRules, str], Operations]] = {
    Strategy.LOG_FILE_SIZE: _largest_logs,
    Strategy.LOG_FILE_NUM: _most_logs,
    Strategy.BOUNDED_IO: _within_io,
    Strategy.DAY: _by_partition_rule(_newest_days),
    Strategy.BOUNDED_PARTITIONS: _by_partition_rule(_recent_days),
    Strategy.UNBOUNDED_PARTITIONS: _by_partition_rule(_older_days),
    Strategy.PARTITION_REGEX: _by_partition_rule(_matching_partitions),
}


def partitions_to_plan(written: Iterable[Sequence[str]], missing: Iterable[str], existing: Iterable[str]) -> tuple[str, ...]:
    """Return the partitions that changed since the last plan of a service was made, or that it did not complete.

    written: the partitions of each commit that completed since the last plan was made. missing: partitions skipped by
    that plan. existing: current partitions; others are dropped.
    """
    changed = set(missing)
    for partitions in written:
        changed.update(partitions)
    return tuple(partition for partition in existing if partition in changed)
