"""Archival plans: which instants leave the active timeline, for each bound."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC

import pytest

from pyhudi.errors import InvalidRequest
from pyhudi.format.instants import Action, Instant, State
from pyhudi.format.lsm_timeline import Manifest, ManifestEntry
from pyhudi.options.supported import parse_options
from pyhudi.planning.archival import (
    MERGE_LIMIT_BYTES,
    ArchivalBounds,
    ArchivalPlan,
    ArchivalRules,
    plan_archival,
    plan_history_merge,
    reason_not_to_archive,
)
from pyhudi.planning.cleaning import CleaningRules, LastClean
from pyhudi.table.timeline.active_timeline import Timeline

SETTINGS = ArchivalRules.of(
    parse_options({"hoodie.keep.min.commits": 4, "hoodie.keep.max.commits": 6, "hoodie.clean.commits.retained": 2})
)
BY_VERSIONS = replace(SETTINGS, cleaning=CleaningRules.of(parse_options({"hoodie.clean.fileversions.retained": 3})))
NOTHING = ArchivalBounds(None)


def done(time: int, action: Action = Action.COMMIT) -> Instant:
    return Instant(f"{time:03d}", action, State.COMPLETED, f"{time + 1:03d}")


def pending(time: int, action: Action = Action.COMMIT) -> Instant:
    return Instant(f"{time:03d}", action, State.INFLIGHT)


COMMITS = tuple(done(time) for time in range(10, 90, 10))


def plan(
    *more: Instant,
    bounds: ArchivalBounds = NOTHING,
    settings: ArchivalRules = SETTINGS,
    commits: tuple[Instant, ...] = COMMITS,
    is_cow: bool = True,
) -> ArchivalPlan:
    return plan_archival(Timeline.of([*commits, *more]), settings, bounds, is_cow=is_cow, zone=UTC)


def times(found: ArchivalPlan) -> list[int]:
    return [int(i.request_time) for i in found.instants]


def test_nothing_until_there_are_more_than_the_maximum_then_down_to_the_minimum() -> None:
    assert times(plan(commits=COMMITS[:6])) == []
    assert reason_not_to_archive(Timeline.of(COMMITS[:6]), SETTINGS) == "6 completed writes, up to 6 are kept"
    assert reason_not_to_archive(Timeline.of(COMMITS[:7]), SETTINGS) is None
    found = plan(commits=COMMITS[:7])
    assert (times(found), found.start, found.reason) == ([10, 20, 30], "040", "")


def test_both_limits_grow_with_what_the_cleaner_retains() -> None:
    def raised(retained: int) -> ArchivalRules:
        return replace(SETTINGS, cleaning=replace(SETTINGS.cleaning, commits_retained=retained))

    # The earliest of 4 retained commits has 3 after it: 5 are kept at least, and nothing happens up to 7.
    assert times(plan(settings=raised(4))) == [10, 20, 30]
    assert times(plan(settings=raised(4), commits=COMMITS[:7])) == []
    assert times(plan(settings=raised(7))) == []


def test_limits_have_to_fit() -> None:
    with pytest.raises(InvalidRequest, match="larger"):
        ArchivalRules.of(parse_options({"hoodie.keep.min.commits": 6, "hoodie.keep.max.commits": 6}))


@pytest.mark.parametrize("action", [Action.COMMIT, Action.COMPACTION, Action.CLUSTERING, Action.LOGCOMPACTION])
def test_pending_writes_and_services_hold_the_completed_one_before_them(action: Action) -> None:
    assert times(plan(pending(35, action), settings=BY_VERSIONS)) == [10, 20]
    assert times(plan(pending(15, action), settings=BY_VERSIONS)) == []
    assert times(plan(pending(5, action), settings=BY_VERSIONS)) == []
    assert times(plan(pending(35, Action.CLEAN), settings=BY_VERSIONS)) == [10, 20, 30, 40]
    # A cleaner that counts commits retains everything from 030 on then, and the limits grow by that.
    assert "up to 9 are kept" in plan(pending(35, action)).reason


def test_commits_a_pending_write_must_check_are_kept() -> None:
    """30 completed when the pending write had begun, so the write has not seen it, though newer ones it has."""
    late = Instant("030", Action.COMMIT, State.COMPLETED, "057")
    commits = tuple(late if i.request_time == "030" else i for i in COMMITS)
    assert times(plan(pending(55), commits=commits, settings=BY_VERSIONS)) == [10]


def test_delta_commits_that_compaction_counts_stay() -> None:
    deltas = tuple(done(time, Action.DELTACOMMIT) for time in range(10, 90, 10))
    assert times(plan(commits=deltas, is_cow=False)) == [10, 20, 30]
    wider = replace(SETTINGS, delta_commits_counted=7)
    assert times(plan(commits=deltas, is_cow=False, settings=wider)) == [10]
    assert times(plan(commits=deltas, is_cow=False, settings=replace(SETTINGS, delta_commits_counted=None))) == [10, 20, 30, 40]
    # Fewer than are counted since the last compaction: that compaction stays.
    compacted = (*deltas[:2], done(30), *deltas[3:])
    assert times(plan(commits=compacted, is_cow=False, settings=wider)) == [10, 20]


def test_replace_commits_stay_until_a_clean_has_seen_them() -> None:
    replaced = (*COMMITS[:2], done(30, Action.REPLACECOMMIT), *COMMITS[3:])
    assert times(plan(commits=replaced)) == [10, 20]

    def after(clean: LastClean) -> list[int]:
        return times(plan(commits=replaced, bounds=ArchivalBounds(clean)))

    assert after(LastClean("085", "030", "080", ())) == [10, 20]
    assert after(LastClean("085", "031", "080", ())) == [10, 20, 30, 40]
    # It kept files for a savepoint, so groups replaced after that savepoint still lie there.
    assert after(LastClean("085", "060", "080", ("020",))) == [10, 20]
    assert after(LastClean("085", "060", "080", ("040",))) == [10, 20, 30, 40]
    late = replace(done(30, Action.REPLACECOMMIT), completion_time="045")
    held = plan(commits=(*COMMITS[:2], late, *COMMITS[3:]), bounds=ArchivalBounds(LastClean("085", "060", "080", ("040",))))
    assert times(held) == [10, 20], "what it replaced stood there when the savepoint was made"
    # File versions: what had completed when the clean was planned is covered.
    assert after(LastClean("085", "", "080", ())) == [10, 20, 30, 40]
    assert after(LastClean("025", "", "020", ())) == [10, 20]
    assert times(plan(pending(15, Action.CLUSTERING), commits=COMMITS)) == []


def test_a_compaction_that_completed_after_a_clean_keeps_what_replaced_its_file_groups() -> None:
    """It was planned before, and wrote to the groups again; it stays too, as the sign of that."""
    compaction = replace(done(20), completion_time="072")
    commits = (COMMITS[0], compaction, done(30, Action.REPLACECOMMIT), *COMMITS[3:])

    def after(request: int, seen: int, *savepoints: str) -> list[int]:
        clean = LastClean(f"{request:03d}", "", f"{seen:03d}", savepoints)
        return times(plan(commits=commits, bounds=ArchivalBounds(clean)))

    assert after(65, 60) == [10]
    assert after(85, 80) == [10, 20, 30, 40]
    assert after(65, 60, "005") == [10], "the smaller of two bounds"
    # It completed while the clean was planned.
    assert after(75, 60) == [10]
    unrelated = (*COMMITS[:2], done(30, Action.REPLACECOMMIT), replace(done(40), completion_time="072"), *COMMITS[4:])
    clean = LastClean("065", "", "060", ())
    assert times(plan(commits=unrelated, bounds=ArchivalBounds(clean))) == [10, 20, 30, 40], "it was planned afterwards"


def test_savepoints_stop_archival_unless_archived_past() -> None:
    saved = done(30, Action.SAVEPOINT)
    assert times(plan(saved)) == [10, 20]
    beyond = plan(saved, settings=replace(SETTINGS, archives_past_savepoint=True))
    assert times(beyond) == [10, 20, 40, 50]
    assert beyond.start == "060"
    assert times(plan(done(10, Action.SAVEPOINT))) == []
    assert "savepoint" in plan(done(10, Action.SAVEPOINT)).reason


def test_the_metadata_table_bounds_archival_by_its_compaction() -> None:
    assert times(plan(bounds=ArchivalBounds(None, True, None))) == []
    # Commit 020 completed at 021, the first after the compaction.
    assert times(plan(bounds=ArchivalBounds(None, True, "020"))) == [10]
    assert times(plan(bounds=ArchivalBounds(None, True, "999"))) == [10, 20, 30, 40]


def test_a_metadata_table_keeps_what_its_data_table_has() -> None:
    data = Timeline.of([done(30), done(5, Action.CLEAN), done(40)])
    assert times(plan(bounds=ArchivalBounds(None, data_table=data))) == [10, 20]
    waiting = Timeline.of([done(30), pending(15, Action.CLEAN)])
    assert times(plan(bounds=ArchivalBounds(None, data_table=waiting))) == [10]


def test_only_cleans_and_rollbacks_are_archived_with_commits() -> None:
    others = [done(15, Action.CLEAN), done(25, Action.ROLLBACK), done(26, Action.RESTORE), done(27, Action.INDEXING)]
    assert times(plan(*others, done(45, Action.CLEAN), pending(16, Action.CLEAN))) == [10, 15, 20, 25, 30, 40]


def entry(first: int, last: int, level: int = 0, size_bytes: int = 10) -> ManifestEntry:
    return ManifestEntry(f"{first:03d}_{last:03d}_{level}.parquet", size_bytes)


def test_history_files_of_one_level_are_merged_oldest_first() -> None:
    files = (entry(30, 40), entry(10, 20), entry(50, 60), entry(1, 5, 1))
    assert plan_history_merge(Manifest(files), 0, 4) is None
    merge = plan_history_merge(Manifest(files), 0, 2)
    assert merge is not None
    assert merge.inputs == (files[1], files[0])
    assert merge.output.text == "010_040_1.parquet"
    assert plan_history_merge(Manifest(files), 1, 2) is None


def test_unordered_names_and_large_files() -> None:
    # After an upgrade the first row may be the later one.
    merge = plan_history_merge(Manifest((entry(40, 10), entry(50, 60))), 0, 2)
    assert merge is not None and merge.output.text == "040_060_1.parquet"
    big = (entry(10, 20, size_bytes=MERGE_LIMIT_BYTES), entry(30, 40, size_bytes=1), entry(50, 60))
    merge = plan_history_merge(Manifest(big), 0, 3)
    assert merge is not None and merge.inputs == big[:2]
    assert plan_history_merge(Manifest((entry(1, 2, 0, MERGE_LIMIT_BYTES + 1), entry(3, 4))), 0, 2) is None
