"""Clustering plans as values."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from pyhudi.errors import InvalidRequest
from pyhudi.format.instants import Action, Instant, State
from pyhudi.format.names import BaseFileName, LogFileName
from pyhudi.planning.clustering import (
    ClusteringRules,
    SliceRange,
    choose_partitions,
    clustering_due,
    eligible_slices,
    group_metrics,
    plan_groups,
)
from pyhudi.table.file_slices import BaseFile, FileSlice, LogFile
from pyhudi.table.timeline.active_timeline import Timeline

MB = 1 << 20
SETTINGS = ClusteringRules(
    small_file_limit_bytes=300 * MB,
    target_file_bytes=1024 * MB,
    max_group_bytes=2048 * MB,
    max_group_count=30,
    sort_columns=(),
    layout="LINEAR",
    grouping="size",
    single_groups=False,
    filter_mode="NONE",
    partition_pattern=None,
    selected_partitions=(),
    begin_partition=None,
    end_partition=None,
    recent_partitions=2,
    skipped_partitions=0,
)


def piece(name: str, size_mb: int, instant: str = "20260101000000000", logs: int = 0, partition: str = "p") -> FileSlice:
    base = BaseFile(f"{partition}/{name}", BaseFileName(name, "0-0-0", instant, ".parquet"), size_mb * MB)
    log_files = tuple(
        LogFile(f"{partition}/l{i}", LogFileName(name, f"2026010100000000{i}", 1, "0-0-0"), 10) for i in range(1, logs + 1)
    )
    return FileSlice(partition, name, instant, base, log_files)


def ids(groups: object) -> list[list[str]]:
    return [[s.file_id for s in group.slices] for group in groups]  # type: ignore[attr-defined]


def test_groups_by_size_are_closed_at_the_byte_cap_and_sized_by_the_target() -> None:
    slices = [piece(f"f{i}", size) for i, size in enumerate((200, 250, 150))]
    settings = replace(SETTINGS, max_group_bytes=460 * MB, target_file_bytes=200 * MB)
    groups = plan_groups({"p": slices}, {}, settings)
    assert ids(groups) == [["f1", "f0"]]
    assert groups[0].output_count == 3


def test_single_file_slice_is_clustered_only_when_sorted_or_enabled() -> None:
    alone = {"p": [piece("f0", 10)]}
    assert plan_groups(alone, {}, SETTINGS) == ()
    assert ids(plan_groups(alone, {}, replace(SETTINGS, single_groups=True))) == [["f0"]]
    assert ids(plan_groups(alone, {}, replace(SETTINGS, sort_columns=("a",)))) == [["f0"]]


def test_the_number_of_groups_is_capped_over_all_partitions() -> None:
    candidates = {f"p{i}": [piece("a", 10, partition=f"p{i}"), piece("b", 10, partition=f"p{i}")] for i in range(5)}
    assert len(plan_groups(candidates, {}, replace(SETTINGS, max_group_count=3))) == 3


def test_overlapping_slices_form_groups_and_a_slice_that_overlaps_none_stays() -> None:
    slices = [piece(name, 100) for name in ("a", "b", "c", "d", "e")]
    ranges = {
        ("p", "a"): SliceRange(((0, 10),)),
        ("p", "b"): SliceRange(((5, 15),)),
        ("p", "c"): SliceRange(((20, 30),)),
        ("p", "d"): SliceRange(((100, 200),)),
        ("p", "e"): SliceRange(((150, 160),)),
    }
    settings = replace(SETTINGS, grouping="overlap", sort_columns=("x",))
    assert ids(plan_groups({"p": slices}, ranges, settings)) == [["a", "b"], ["d", "e"]]


def test_slices_adjacent_by_record_key_or_commit_time_are_grouped() -> None:
    slices = [piece("a", 100, "20260103000000000"), piece("b", 100, "20260101000000000"), piece("c", 100, "20260102000000000")]
    ranges = {
        ("p", "a"): SliceRange((), ("k1", "k2")),
        ("p", "b"): SliceRange((), ("k5", "k6")),
        ("p", "c"): SliceRange((), ("k3", "k4")),
    }
    by_key = replace(SETTINGS, grouping="record_key", max_group_bytes=200 * MB, single_groups=True)
    assert ids(plan_groups({"p": slices}, ranges, by_key)) == [["a", "c"], ["b"]]
    by_time = replace(SETTINGS, grouping="commit_time")
    assert ids(plan_groups({"p": slices}, {}, by_time)) == [["b", "c", "a"]]


def test_random_grouping_is_a_function_of_its_seed() -> None:
    slices = [piece(f"f{i}", 10) for i in range(20)]
    settings = replace(SETTINGS, grouping="random", seed=3)
    first, second = (ids(plan_groups({"p": given}, {}, settings)) for given in (slices, list(reversed(slices))))
    assert first == second != [sorted(first[0])]


def test_eligibility_leaves_out_large_and_busy_slices() -> None:
    slices = [piece("small", 10), piece("large", 400), piece("busy", 10)]
    assert [s.file_id for s in eligible_slices(slices, frozenset({("p", "busy")}), SETTINGS)] == ["small"]


def test_partitions_by_mode() -> None:
    days = [f"2026-01-{day:02d}" for day in range(1, 6)]
    recent = replace(SETTINGS, filter_mode="RECENT_DAYS", recent_partitions=2, skipped_partitions=1)
    assert choose_partitions(days, recent, 0) == ("2026-01-03", "2026-01-04")
    between = replace(SETTINGS, filter_mode="SELECTED_PARTITIONS", begin_partition="2026-01-02", end_partition="2026-01-03")
    assert choose_partitions(days, between, 0) == ("2026-01-02", "2026-01-03")
    rolling = replace(SETTINGS, filter_mode="DAY_ROLLING")
    assert choose_partitions(days, rolling, 4) == ("2026-01-05",)
    assert choose_partitions(days, replace(SETTINGS, partition_pattern=".*-0[12]"), 0) == ("2026-01-01", "2026-01-02")
    assert choose_partitions(days, replace(SETTINGS, selected_partitions=("2026-01-05", "x")), 0) == ("2026-01-05",)


def test_metrics_count_logs_and_megabytes() -> None:
    groups = plan_groups({"p": [piece("a", 100, logs=2), piece("b", 50)]}, {}, SETTINGS)
    assert group_metrics(groups[0], SETTINGS) == {
        "TOTAL_LOG_FILES": 2.0,
        "TOTAL_LOG_FILES_SIZE": 20.0,
        "TOTAL_IO_READ_MB": 150.0,
        "TOTAL_IO_WRITE_MB": 150.0,
        "TOTAL_IO_MB": 300.0,
    }


def test_metrics_contain_known_numeric_bounds_of_sort_columns() -> None:
    slices = [piece("a", 100), piece("b", 50)]
    ranges = {
        ("p", "a"): SliceRange(((1, 10), ("x", "y"), None)),
        ("p", "b"): SliceRange(((Decimal("-2.5"), 4), ("x", "z"), (1, 2))),
    }
    settings = replace(SETTINGS, sort_columns=("n", "text", "half"), grouping="size")
    (group,) = plan_groups({"p": slices}, ranges, settings)
    told = {name: value for name, value in group_metrics(group, settings).items() if name.startswith("M")}
    assert told == {"MIN_n": -2.5, "MAX_n": 10.0}


@pytest.mark.parametrize("bad", [{"grouping": "best"}, {"layout": "SPIRAL"}, {"filter_mode": "SOME"}, {"grouping": "overlap"}])
def test_settings_that_mean_nothing_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        replace(SETTINGS, **bad)


def test_slices_that_overlap_come_first_and_the_others_are_packed_together() -> None:
    slices = [piece(name, 100) for name in ("a", "b", "c", "d", "e", "f")]
    ranges = {
        ("p", "a"): SliceRange(((0, 10),)),
        ("p", "b"): SliceRange(((20, 30),)),
        ("p", "c"): SliceRange(((9, 12),)),
        ("p", "d"): SliceRange(((100, 200),)),
        ("p", "e"): SliceRange((None,)),
        ("p", "f"): SliceRange(((12, 13),)),
    }
    settings = replace(SETTINGS, grouping="prefer_overlap", sort_columns=("x",))
    assert ids(plan_groups({"p": slices}, ranges, settings)) == [["a", "c", "f"], ["b", "d", "e"]]
    assert ids(plan_groups({"p": slices}, ranges, replace(settings, max_group_count=1))) == [["a", "c", "f"]]


def test_each_slice_by_itself() -> None:
    groups = plan_groups({"p": [piece("b", 10), piece("a", 10)]}, {}, replace(SETTINGS, grouping="single"))
    assert ids(groups) == [["a"], ["b"]] and {group.output_count for group in groups} == {1}


def test_a_clustering_is_due_by_the_writes_since_the_last_one() -> None:
    timeline = Timeline.of(
        Instant(f"2026010100000000{i}", Action.COMMIT, State.COMPLETED, f"2026010100000001{i}") for i in range(4)
    )
    assert clustering_due(timeline, "", 4).is_due
    after = clustering_due(timeline, "20260101000000001", 4)
    assert not after.is_due and after.reason == "2 of 4 commits since the last clustering"
