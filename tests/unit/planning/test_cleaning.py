"""Clean plans: retained and deleted files. Times are short texts, because plans only compare them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC
from functools import partial

import pytest

from pyhudi.errors import InvalidRequest
from pyhudi.format.actions.commit_metadata import CommitMetadata, WriteStat
from pyhudi.format.instants import Action, Instant, State, format_instant_time
from pyhudi.options.supported import parse_options
from pyhudi.planning.cleaning import (
    HOUR_MS,
    CleaningPolicy,
    CleaningRules,
    LastClean,
    PartitionClean,
    commits_to_inspect,
    earliest_instant_to_retain,
    partitions_with_garbage,
    plan_partition,
    reason_not_to_clean,
)
from pyhudi.storage.base import FileInfo
from pyhudi.table.file_slices import SlicingState, build_file_groups
from pyhudi.table.timeline.active_timeline import Timeline

SETTINGS = CleaningRules.of(parse_options({"hoodie.clean.commits.retained": 2}))
VERSIONS = CleaningRules.of(parse_options({"hoodie.clean.fileversions.retained": 2}))
HOURS = CleaningRules.of(parse_options({"hoodie.clean.hours.retained": 5}))


def done(time: int, action: Action = Action.COMMIT, completed: int | None = None) -> Instant:
    return Instant(str(time), action, State.COMPLETED, str(completed if completed is not None else time + 1))


def pending(time: int, action: Action = Action.COMMIT) -> Instant:
    return Instant(f"{time:02d}", action, State.REQUESTED)


def test_policy_is_that_of_the_one_option_given() -> None:
    assert SETTINGS.policy is CleaningPolicy.KEEP_LATEST_COMMITS
    assert VERSIONS.policy is CleaningPolicy.KEEP_LATEST_FILE_VERSIONS
    assert HOURS.policy is CleaningPolicy.KEEP_LATEST_BY_HOURS
    both = parse_options({"hoodie.cleaner.hours.retained": 5, "hoodie.cleaner.fileversions.retained": 1})
    assert CleaningRules.of(both).policy is CleaningPolicy.KEEP_LATEST_COMMITS
    named = parse_options({"hoodie.cleaner.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.commits.retained": 3})
    assert CleaningRules.of(named).policy is CleaningPolicy.KEEP_LATEST_FILE_VERSIONS
    with pytest.raises(InvalidRequest, match="at least one"):
        CleaningRules.of(parse_options({"hoodie.clean.commits.retained": 0}))


@pytest.mark.parametrize(
    ("instants", "expected"),
    [
        ([done(10), done(20)], None),
        ([done(10), done(20), done(30)], "20"),
        ([done(10), done(20), done(30), done(40)], "30"),
        # A write under way before it pulls it back to what completed before that write.
        ([done(10), done(20), done(30), done(40), pending(25)], "20"),
        ([done(10), done(20), done(30), done(40), pending(35)], "30"),
        ([done(10), done(20), done(30), done(40), pending(5)], None),
        ([done(10), done(20), done(30), done(40), pending(25, Action.COMPACTION)], "20"),
        # The pending write began while 15 was: it read the state before that.
        ([done(10), done(15, completed=28), done(20), done(30), done(40), pending(25)], "10"),
        # Cleans and rollbacks are no writes.
        ([done(10), done(20), done(25, Action.CLEAN), done(30), pending(15, Action.CLEAN)], "20"),
    ],
)
def test_earliest_instant_by_commits(instants: list[Instant], expected: str | None) -> None:
    found = earliest_instant_to_retain(Timeline.of(instants), SETTINGS, 0, UTC)
    assert (found.request_time if found else None) == expected


def test_earliest_instant_by_hours() -> None:
    now_ms = 1_800_000_000_000
    times = [format_instant_time(now_ms - hours * HOUR_MS, UTC) for hours in (9, 7, 5, 1)]
    timeline = Timeline.of([Instant(time, Action.COMMIT, State.COMPLETED, time) for time in times])
    found = earliest_instant_to_retain(timeline, HOURS, now_ms, UTC)
    assert found is not None and found.request_time == times[2]
    assert earliest_instant_to_retain(timeline, HOURS, now_ms + 10 * HOUR_MS, UTC) is None
    assert earliest_instant_to_retain(timeline, VERSIONS, now_ms, UTC) is None


def test_when_a_clean_is_due() -> None:
    timeline = Timeline.of([done(10), done(20), done(30)])
    assert reason_not_to_clean(timeline, SETTINGS, None) is None
    assert reason_not_to_clean(Timeline.of([done(10)]), SETTINGS, None) == "1 commits, 2 are retained"
    assert reason_not_to_clean(Timeline.of([]), SETTINGS, None) == "no completed write"
    assert reason_not_to_clean(timeline, SETTINGS, LastClean("35", "20", "30", ())) == "0 of 1 commits since the last clean"
    assert reason_not_to_clean(timeline, replace(SETTINGS, trigger_commits=4), None) is not None
    waiting = Timeline.of([*timeline.instants, pending(35, Action.CLEAN)])
    assert reason_not_to_clean(waiting, SETTINGS, None) == "a clean is pending"
    assert reason_not_to_clean(waiting, replace(SETTINGS, several_pending=True), None) is None


def test_which_commits_are_inspected() -> None:
    timeline = Timeline.of([done(10), done(20), done(30), done(40), done(50)])
    earliest = timeline.find("40")

    def inspected(last: LastClean | None, history_is_empty: bool = False, settings: CleaningRules = SETTINGS) -> object:
        found = commits_to_inspect(timeline, settings, last, earliest, history_is_empty=history_is_empty)
        return None if found is None else [i.request_time for i in found]

    assert inspected(LastClean("35", "20", "30", ())) == ["20", "30"]
    assert inspected(None) is None
    assert inspected(None, True) == ["10", "20", "30"]
    assert inspected(LastClean("35", "", "30", ())) is None
    # Before the start of the timeline: later changes are unknown.
    assert inspected(LastClean("09", "05", "06", ())) is None
    # A deleted savepoint has left files anywhere.
    assert inspected(LastClean("35", "20", "30", ("10",))) is None
    assert inspected(LastClean("35", "20", "30", ()), settings=replace(SETTINGS, incremental=False)) is None


def test_partitions_in_which_a_commit_left_something_behind() -> None:
    metadata = CommitMetadata(
        partition_to_write_stats={
            "new": (WriteStat(file_id="f", prev_commit="null"),),
            "mixed": (WriteStat(file_id="f", prev_commit="null"), WriteStat(file_id="g", prev_commit="10", prev_base_file="g_x")),
            "logs": (WriteStat(file_id="h", prev_commit="null", log_files=(".h.log",)),),
        },
        partition_to_replace_file_ids={"replaced": ("r",), "none": ()},
    )
    assert partitions_with_garbage(metadata) == {"mixed", "logs", "replaced"}
    assert partitions_with_garbage(replace(metadata, compacted=True)) == {"new", "mixed", "logs", "replaced"}


def base(file_id: str, time: int) -> FileInfo:
    return FileInfo(f"p/{file_id}-0_0-1-1_{time}.parquet", 1, 0)


def log(file_id: str, time: int, cdc: bool = False) -> FileInfo:
    return FileInfo(f"p/.{file_id}-0_{time}.log.1_0-1-1{'.cdc' if cdc else ''}", 1, 0)


def planned(
    files: Iterable[FileInfo],
    *,
    settings: CleaningRules = SETTINGS,
    earliest: int | None = 30,
    instants: Iterable[Instant] = (),
    replaced: Mapping[str, str] | None = None,
    saved: Iterable[str] = (),
    compaction: tuple[str, str] | None = None,
    named: Iterable[FileInfo] = (),
    partition: str = "p",
) -> PartitionClean:
    """compaction: base instant that it reads, and its own request time.  named: files in plans of pending services."""
    timeline = Timeline.of(tuple(instants) or [done(time) for time in (10, 20, 30, 40, 50)])
    state = SlicingState(
        timeline,
        {(partition, f"{file_id}-0"): time for file_id, time in (replaced or {}).items()},
        {(partition, "f-0"): compaction[1]} if compaction else {},
    )
    groups = build_file_groups(partition, list(files), state, change_logs=True)
    needed = {(partition, "f-0"): compaction[0]} if compaction else {}
    found = Instant(str(earliest), Action.COMMIT, State.COMPLETED, str(earliest)) if earliest is not None else None
    return plan_partition(
        partition,
        groups,
        state,
        settings,
        earliest=found,
        savepointed=frozenset(saved),
        planned=frozenset(info.path for info in named),
        needed_from=needed,
    )


def names(clean: PartitionClean) -> list[str]:
    return sorted(path.split("_")[-1].removesuffix(".parquet") for path in clean.files)


def test_by_commits_the_newest_slice_before_the_earliest_stays() -> None:
    assert names(planned([base("f", t) for t in (10, 20, 30, 40)])) == ["10"]
    assert names(planned([base("f", t) for t in (10, 20, 40)])) == ["10"]
    assert names(planned([base("f", t) for t in (10, 40)])) == []
    assert names(planned([base("f", t) for t in (10, 20)])) == ["10"]
    assert names(planned([base("f", 10)])) == []
    assert planned([base("f", 10)], earliest=None).files == ()


def test_logs_go_with_their_slice_and_change_logs_too() -> None:
    files = [base("f", 10), log("f", 12), base("f", 20), base("f", 40), log("f", 12, cdc=True)]
    instants = [done(10), done(12, Action.DELTACOMMIT), done(20), done(30), done(40)]
    assert sorted(planned(files, instants=instants).files) == sorted(info.path for info in files[:2] + files[4:])


def test_uncommitted_files_are_never_touched() -> None:
    instants = [done(10), done(20), pending(25), done(30), done(40)]
    assert names(planned([base("f", t) for t in (10, 20, 25, 40)], instants=instants)) == ["10"]


def test_savepoints_keep_their_slices() -> None:
    assert names(planned([base("f", t) for t in (10, 15, 20, 40)], saved=["f-0_0-1-1_10.parquet"], instants=_all())) == ["15"]


def test_pending_compactions_keep_what_they_read() -> None:
    files = [base("f", t) for t in (10, 15, 20, 22)]
    assert names(planned(files, instants=_all())) == ["10", "15", "20"]
    waiting = [*_all(), pending(60, Action.COMPACTION)]
    assert names(planned(files, compaction=("15", "60"), instants=waiting)) == ["10"]
    assert names(planned(files, compaction=("15", "60"), settings=VERSIONS, earliest=None, instants=waiting)) == []
    assert names(planned(files, compaction=("22", "60"), settings=VERSIONS, earliest=None, instants=waiting)) == ["10", "15"]


@pytest.mark.parametrize("settings", [SETTINGS, VERSIONS])
def test_files_in_plans_stay_with_their_slice(settings: CleaningRules) -> None:
    earliest = 30 if settings is SETTINGS else None
    files = [base("f", 10), log("f", 12), base("f", 15), base("f", 40), base("f", 50)]
    instants = [*_all(), done(12, Action.DELTACOMMIT)]
    clean = partial(planned, files, settings=settings, earliest=earliest, instants=instants)
    without = names(clean())
    assert "10" in without
    assert names(clean(named=[files[1]])) == [name for name in without if name == "15"]
    assert names(clean(named=[files[1]], replaced={"f": "20"})) == ["15", "40", "50"]
    assert not clean(named=[files[1]], replaced={"f": "20"}).delete_partition


def test_file_named_by_a_plan_is_retained_in_addition() -> None:
    files = [base("f", t) for t in (10, 20, 30, 40)]
    one = replace(VERSIONS, versions_retained=1)
    assert names(planned(files, settings=one, earliest=None, named=files[:1])) == ["20", "30"]
    assert names(planned(files, settings=one, earliest=None, named=files[3:])) == ["10", "20", "30"]
    assert names(planned(files, settings=one, earliest=None, compaction=("45", "60"))) == ["10", "20", "30"]


def test_clean_keeps_file_slices_of_pending_writes() -> None:
    """It began when 30 and 40 were requested and had not completed, so it reads the slice of 20."""
    late = [done(30, completed=61), done(40, completed=62)]
    instants = [done(10), done(20), *late, done(45), pending(50), done(70), done(80)]
    files = [base("f", t) for t in (10, 20, 30, 40, 70, 80)]
    earliest = earliest_instant_to_retain(Timeline.of(instants), SETTINGS, 0, UTC)
    assert earliest is not None
    assert names(planned(files, instants=instants, earliest=int(earliest.request_time))) == []
    assert names(planned(files, instants=instants, settings=VERSIONS, earliest=None)) == ["10"]


def test_by_file_versions() -> None:
    assert names(planned([base("f", t) for t in (10, 20, 30, 40)], settings=VERSIONS, earliest=None)) == ["10", "20"]
    assert names(planned([base("f", t) for t in (10, 20)], settings=VERSIONS, earliest=None)) == []


def test_replaced_groups() -> None:
    files = [base("f", 10), base("f", 20)]
    assert names(planned(files, replaced={"f": "25"})) == ["10", "20"]
    assert names(planned(files, replaced={"f": "30"})) == []
    assert names(planned(files, replaced={"f": "50"}, settings=VERSIONS, earliest=None)) == ["10", "20"]
    assert names(planned(files, replaced={"f": "25"}, saved=["f-0_0-1-1_20.parquet"])) == ["10"]


def test_a_replaced_group_of_which_a_compaction_is_pending_leaves_the_file_of_that_compaction() -> None:
    waiting = [*_all(), pending(60, Action.COMPACTION), done(62, Action.DELTACOMMIT), done(65, Action.REPLACECOMMIT)]
    files = [base("f", 50), log("f", 62), base("f", 60)]
    clean = planned(files, replaced={"f": "65"}, compaction=("50", "60"), instants=waiting, settings=VERSIONS, earliest=None)
    assert sorted(clean.files) == sorted(info.path for info in files[:2])
    assert not clean.delete_partition


def test_a_partition_goes_when_only_replaced_groups_were_left() -> None:
    files = [base("f", 10)]
    assert planned(files, replaced={"f": "25"}).delete_partition
    assert not planned(files, replaced={"f": "30"}).delete_partition
    assert not planned([*files, base("g", 10)], replaced={"f": "25"}).delete_partition
    assert not planned(files, replaced={"f": "25"}, saved=["f-0_0-1-1_10.parquet"]).delete_partition
    under_way = [*_all(), pending(60)]
    assert not planned([*files, base("g", 60)], replaced={"f": "25"}, instants=under_way).delete_partition
    assert not planned(files, replaced={"f": "25"}, partition="").delete_partition


def _all() -> list[Instant]:
    return [done(time) for time in (10, 15, 20, 22, 30, 40, 50)]
