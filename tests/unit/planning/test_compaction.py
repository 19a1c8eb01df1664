"""Triggers, candidates, strategies and plans of compactions, as values."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date
from typing import Any

import pytest

from pyhudi.errors import InvalidRequest
from pyhudi.format.actions.compaction_plan import LOG_COMPACTION_STRATEGY, CompactionOperation, CompactionPlan
from pyhudi.format.instants import Action, Instant, State
from pyhudi.format.names import BaseFileName, LogFileName
from pyhudi.options.supported import parse_options
from pyhudi.planning.compaction import (
    MB,
    CompactionRules,
    CompactionTrigger,
    Strategy,
    compactable_slices,
    compaction_due,
    compaction_operation,
    log_compaction_due,
    partition_day,
    partitions_to_plan,
    plan_compaction,
    plan_log_compaction,
    planned_groups,
    select_partitions,
)
from pyhudi.storage.base import FileInfo
from pyhudi.table.file_slices import BaseFile, FileSlice, LogFile, SlicingState, build_file_groups
from pyhudi.table.timeline.active_timeline import Timeline

DAY = "20261121"


def at(seconds: int, ms: int = 0) -> str:
    """An instant time so many seconds after ten o'clock."""
    return f"{DAY}{10 + seconds // 3600:02}{seconds // 60 % 60:02}{seconds % 60:02}{ms:03}"


def delta(seconds: int, state: State = State.COMPLETED, took: int = 1) -> Instant:
    return Instant(at(seconds), Action.DELTACOMMIT, state, at(seconds + took) if state is State.COMPLETED else None)


def compacted(seconds: int, took: int = 1) -> Instant:
    return Instant(at(seconds), Action.COMMIT, State.COMPLETED, at(seconds + took))


def planned(seconds: int) -> Instant:
    return Instant(at(seconds), Action.COMPACTION, State.REQUESTED)


def settings(trigger: str = "NUM_COMMITS", /, **more: Any) -> CompactionRules:
    base = CompactionRules(CompactionTrigger(trigger), max_delta_commits=3, max_delta_seconds=100)
    return replace(base, **more)


def due(instants: list[Instant], trigger: str, now: int) -> bool:
    return compaction_due(Timeline.of(instants), settings(trigger), at(now), UTC).is_due


@pytest.mark.parametrize("trigger", list(CompactionTrigger))
def test_nothing_is_due_without_a_delta_commit(trigger: CompactionTrigger) -> None:
    assert not due([], trigger, 9000)
    assert not due([compacted(0)], trigger, 9000)
    assert not due([delta(0), compacted(5)], trigger, 9000)


@pytest.mark.parametrize(
    ("instants", "expected"),
    [
        ([delta(0), delta(2)], False),
        ([delta(0), delta(2), delta(4)], True),
        ([delta(0), delta(2), delta(4, State.INFLIGHT)], False),
        ([delta(0), delta(2), compacted(10), delta(20), delta(22)], False),
        ([delta(0), delta(2), compacted(10), delta(20), delta(22), delta(24)], True),
        # Requested before the compaction and completed after it: the compaction did not merge it.
        ([delta(0, took=15), compacted(10), delta(20), delta(22)], True),
        # Counted from the request of the compaction, not from its completion.
        ([compacted(10, took=50), delta(20), delta(22), delta(24)], True),
        ([delta(0), delta(2), delta(4), planned(5)], True),
    ],
)
def test_by_number_of_commits(instants: list[Instant], expected: bool) -> None:
    assert due(instants, "NUM_COMMITS", 30) is expected


@pytest.mark.parametrize(
    ("instants", "expected"),
    [
        ([delta(0), delta(2), delta(4)], True),
        ([delta(0), delta(2), delta(4), planned(5)], False),
        ([delta(0), delta(2), delta(4), planned(5), delta(6), delta(8), delta(10, State.INFLIGHT)], True),
        ([planned(5), delta(6), delta(8), planned(9), delta(10)], False),
        ([delta(0), compacted(5), delta(6), delta(8), delta(10)], True),
        ([delta(0, took=20), compacted(5), delta(6), delta(8)], False),
    ],
)
def test_by_number_of_commits_after_the_last_request(instants: list[Instant], expected: bool) -> None:
    assert due(instants, "NUM_COMMITS_AFTER_LAST_REQUEST", 30) is expected


def test_by_time() -> None:
    assert not due([delta(0)], "TIME_ELAPSED", 99)
    assert due([delta(0)], "TIME_ELAPSED", 100)
    # Seconds are cut before they are subtracted.
    early = Timeline.of([replace(delta(0), request_time=at(0, 999))])
    assert compaction_due(early, settings("TIME_ELAPSED"), at(100), UTC).is_due
    # From the request of the last compaction, not from the first delta commit after it.
    assert due([delta(0), compacted(50), delta(140)], "TIME_ELAPSED", 150)
    assert not due([delta(0), compacted(50), delta(140)], "TIME_ELAPSED", 149)


def test_by_number_and_or_time() -> None:
    three, one = [delta(0), delta(2), delta(4)], [delta(0)]
    assert [due(three, "NUM_AND_TIME", 99), due(three, "NUM_AND_TIME", 100), due(one, "NUM_AND_TIME", 100)] == [
        False,
        True,
        False,
    ]
    assert [due(three, "NUM_OR_TIME", 9), due(one, "NUM_OR_TIME", 99), due(one, "NUM_OR_TIME", 100)] == [True, False, True]


def test_log_compaction_is_due_by_delta_commits_since_the_last_compaction_of_any_type() -> None:
    chosen = CompactionRules(log_block_threshold=3)
    timeline = Timeline.of([delta(0), delta(2), delta(4)])
    assert log_compaction_due(timeline, chosen, "").is_due
    assert not log_compaction_due(Timeline.of([*timeline.instants, compacted(6)]), chosen, "").is_due
    # The log compaction of 6 is one block, so two more delta commits make three.
    after = [*timeline.instants, delta(6), delta(8)]
    assert not log_compaction_due(Timeline.of(after), chosen, at(6)).is_due
    assert log_compaction_due(Timeline.of([*after, delta(10)]), chosen, at(6)).is_due


def slice_of(partition: str, number: int, base_mb: float | None = 1.0, *logs_mb: float) -> FileSlice:
    file_id = f"f{number}-0"
    base = None
    if base_mb is not None:
        name = BaseFileName(file_id, "0-0-0", at(0), ".parquet")
        base = BaseFile(f"{partition}/{name.text}", name, int(base_mb * MB))
    logs = []
    for count, size in enumerate(logs_mb):
        log = LogFileName(file_id, at(10 + count), 1, "0-0-0")
        logs.append(LogFile(f"{partition}/{log.text}", log, int(size * MB)))
    return FileSlice(partition, file_id, at(0) if base else at(10), base, tuple(logs))


def test_compaction_operation_lists_files_and_metrics() -> None:
    slice_ = slice_of("p", 1, 2.5, 0.75, 1.5)
    backwards = replace(slice_, logs=slice_.logs[::-1])
    assert compaction_operation(backwards, 100 * MB) == CompactionOperation(
        base_instant_time=at(0),
        delta_file_paths=(f".f1-0_{at(10)}.log.1_0-0-0", f".f1-0_{at(11)}.log.1_0-0-0"),
        data_file_path=f"f1-0_0-0-0_{at(0)}.parquet",
        file_id="f1-0",
        partition_path="p",
        metrics={
            "TOTAL_LOG_FILES": 2.0,
            "TOTAL_LOG_FILES_SIZE": 2.25 * MB,
            "TOTAL_IO_READ_MB": 4.0,
            "TOTAL_IO_WRITE_MB": 2.0,
            "TOTAL_IO_MB": 6.0,
        },
    )
    bare = compaction_operation(slice_of("p", 1, None, 1.0), 120 * MB)
    assert bare.data_file_path is None
    assert bare.base_instant_time == at(10)
    assert bare.metrics is not None
    assert (bare.metrics["TOTAL_IO_READ_MB"], bare.metrics["TOTAL_IO_WRITE_MB"]) == (1.0, 120.0)


def chosen_ids(slices: list[FileSlice], *strategies: Strategy, **more: object) -> list[str]:
    plan = plan_compaction(slices, settings(strategies=strategies, **more), f"{DAY}120000000")
    return [] if plan is None else [str(op.file_id)[1:-2] for op in plan.operations or ()]


SIZED = [slice_of("p", 1, 10, 1), slice_of("p", 2, 10, 5), slice_of("p", 3, 10, 2, 2), slice_of("p", 4, 10, 5)]


def test_strategies_by_logs_order_and_limit() -> None:
    assert chosen_ids(SIZED, Strategy.LOG_FILE_SIZE) == ["2", "4", "3", "1"]
    assert chosen_ids(SIZED, Strategy.LOG_FILE_SIZE, log_size_threshold_bytes=4 * MB) == ["2", "4", "3"]
    assert chosen_ids(SIZED, Strategy.LOG_FILE_NUM) == ["3", "1", "2", "4"]
    assert chosen_ids(SIZED, Strategy.LOG_FILE_NUM, log_count_threshold=2) == ["3"]
    assert chosen_ids(SIZED, Strategy.UNBOUNDED) == ["1", "2", "3", "4"]


def test_io_is_bounded_after_the_operation_that_reaches_the_bound() -> None:
    # 21, 25, 24 and 25 MB.
    assert chosen_ids(SIZED, Strategy.BOUNDED_IO, target_io_mb=21) == ["1"]
    assert chosen_ids(SIZED, Strategy.BOUNDED_IO, target_io_mb=22) == ["1", "2"]
    assert chosen_ids(SIZED, Strategy.LOG_FILE_SIZE, target_io_mb=50) == ["2", "4"]
    assert chosen_ids(SIZED, Strategy.UNBOUNDED, target_io_mb=1) == ["1", "2", "3", "4"]


DAYS = ("2026/11/09", "2026/11/10", "dt=2026/11/11", "year=2026/month=11/day=21", "2026/11/20")


def test_partitions_by_day() -> None:
    def selected_partitions(strategy: Strategy) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return select_partitions(DAYS, settings(strategies=(strategy,), day_partitions=2), f"{DAY}120000000")

    newest = ("year=2026/month=11/day=21", "2026/11/20")
    assert selected_partitions(Strategy.DAY) == (newest, DAYS[:3])
    # Not older than 21 - 2.
    assert selected_partitions(Strategy.BOUNDED_PARTITIONS) == (newest, DAYS[:3])
    assert selected_partitions(Strategy.UNBOUNDED_PARTITIONS) == (
        ("dt=2026/11/11", "2026/11/10", "2026/11/09"),
        (DAYS[4 - 1], DAYS[4]),
    )
    assert select_partitions(("2026/11/19",), settings(strategies=(Strategy.BOUNDED_PARTITIONS,), day_partitions=2), at(0))[0]
    assert selected_partitions(Strategy.LOG_FILE_SIZE) == (DAYS, ())
    assert partition_day("a=2026/b=01/c=02") == date(2026, 1, 2)
    for bad in ("", "2026", "2026/13/01", "city=sf", "2026/11/10/x"):
        with pytest.raises(InvalidRequest, match="not a day"):
            select_partitions((bad,), settings(strategies=(Strategy.DAY,)), at(0))


def test_partitions_by_pattern_find_it_anywhere() -> None:
    chosen = settings(strategies=(Strategy.PARTITION_REGEX,), partition_regex="a.$|^x")
    assert select_partitions(("ab", "cab", "abc", "xyz"), chosen, at(0)) == (("ab", "cab", "xyz"), ("abc",))


def test_strategies_in_a_chain_narrow_each_other() -> None:
    slices = [slice_of("2026/11/20", 1, 10, 1), slice_of("2026/11/20", 2, 10, 3), slice_of("2026/11/01", 3, 10, 9)]
    assert chosen_ids(slices, Strategy.DAY, Strategy.LOG_FILE_SIZE, day_partitions=1) == ["2", "1"]
    assert chosen_ids(slices, Strategy.DAY, Strategy.LOG_FILE_SIZE, day_partitions=1, target_io_mb=2) == ["2"]
    assert chosen_ids(slices, Strategy.LOG_FILE_SIZE, Strategy.DAY, day_partitions=1, target_io_mb=2) == ["3"]


def test_skipped_partitions_are_stored_in_the_plan() -> None:
    slices = [slice_of("a", 1, 10, 1), slice_of("b", 2, 10, 3), slice_of("c", 3, 10, 2)]
    plan = plan_compaction(slices, settings(strategies=(Strategy.LOG_FILE_SIZE,), target_io_mb=1), at(0), ["z", "c"])
    assert plan is not None
    assert (plan.version, plan.strategy, plan.preserve_hoodie_metadata) == (2, None, False)
    assert planned_groups(plan) == {("b", "f2-0")}
    assert plan.missing_schedule_partitions == ("a", "c", "z")
    assert CompactionPlan.decode(plan.encode()) == plan
    whole = plan_compaction(slices, settings(incremental=False, target_io_mb=1), at(0))
    assert whole is not None
    assert whole.missing_schedule_partitions is None
    assert plan_compaction([], settings(), at(0)) is None


def test_a_plan_of_a_log_compaction_takes_slices_with_enough_blocks() -> None:
    one, two = slice_of("a", 1, 10, 1, 1), slice_of("a", 2, 10, 1, 1, 1)
    plan = plan_log_compaction([(one, 2), (two, 3)], CompactionRules(log_block_threshold=3))
    assert plan is not None
    assert planned_groups(plan) == {("a", "f2-0")}
    assert plan.preserve_hoodie_metadata is True
    assert plan.strategy is not None
    assert plan.strategy.compactor_class_name == LOG_COMPACTION_STRATEGY
    assert plan_log_compaction([(one, 2)], CompactionRules(log_block_threshold=3)) is None


def test_candidates_have_completed_logs_and_no_pending_plan() -> None:
    timeline = Timeline.of([delta(0), delta(10), delta(20, took=30), delta(30, State.INFLIGHT)])

    def log(file_id: str, seconds: int) -> FileInfo:
        return FileInfo(f"p/.{file_id}_{at(seconds)}.log.1_0-0-0", 10, 0)

    def base(file_id: str) -> FileInfo:
        return FileInfo(f"p/{file_id}_0-0-0_{at(0)}.parquet", 100, 0)

    files = [base("a"), log("a", 10), log("a", 20), base("b"), base("c"), log("c", 30), base("d"), log("d", 10), log("e", 10)]
    state = SlicingState(timeline, {}, {})
    groups = build_file_groups("p", files, state)
    slices, more = compactable_slices(groups, state, at(40), frozenset())
    assert [(s.file_id, len(s.logs)) for s in slices] == [("a", 1), ("d", 1), ("e", 1)]
    assert more, "the log of 20 completes at 50, so somebody has to come back for it"
    slices, more = compactable_slices(groups, state, at(60), frozenset({("p", "d")}))
    assert [(s.file_id, len(s.logs)) for s in slices] == [("a", 2), ("e", 1)]
    assert more
    slices, more = compactable_slices(groups[1:2], state, at(60), frozenset())
    assert (slices, more) == ((), False)
    replaced = SlicingState(timeline, {("p", "a"): at(20)}, {})
    assert [s.file_id for s in compactable_slices(groups, replaced, at(60), frozenset())[0]] == ["d", "e"]


def test_partitions_that_changed_since_the_last_plan() -> None:
    assert partitions_to_plan([("a",), ("b", "gone")], ["c"], ["a", "b", "c", "d"]) == ("a", "b", "c")


def test_settings_from_options() -> None:
    assert CompactionRules.of(parse_options({})) == CompactionRules()
    chosen = CompactionRules.of(
        parse_options(
            {
                "hoodie.compaction.strategy": "org.apache.hudi.table.action.compact.strategy.DayBasedCompactionStrategy,"
                " BoundedIOCompactionStrategy",
                "hoodie.compaction.daybased.target": "3",
                "hoodie.compact.inline.trigger.strategy": "NUM_OR_TIME",
                "hoodie.table.services.incremental.enabled": "false",
            }
        )
    )
    assert chosen.strategies == (Strategy.DAY, Strategy.BOUNDED_IO)
    assert (chosen.day_partitions, chosen.trigger, chosen.incremental) == (3, CompactionTrigger.NUM_OR_TIME, False)


@pytest.mark.parametrize(
    "options",
    [
        {"hoodie.compaction.strategy": "com.acme.MyStrategy"},
        {"hoodie.compaction.strategy": "PartitionRegexBasedCompactionStrategy"},
        {"hoodie.compaction.partition.path.regex": "("},
        {"hoodie.compaction.target.io": "0"},
        {"hoodie.compact.inline.max.delta.commits": "0"},
    ],
)
def test_settings_that_mean_nothing_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest):
        CompactionRules.of(parse_options(options))
