"""File groups and slices: the cases that were tried on Apache Hudi, and where its answer loses or invents rows, ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.format.instants import Action, Instant
from pyhudi.format.names import BaseFileName, LogFileName
from pyhudi.metadata_table.reader.metadata_listing import file_ids
from pyhudi.storage.base import FileInfo
from pyhudi.table.file_slices import (
    FileGroup,
    FileSlice,
    SlicingState,
    build_file_groups,
    logs_with_uncovered_keys,
    visible_slice,
    visible_slices,
    visible_slices_from_rows,
)
from pyhudi.table.timeline.active_timeline import Timeline
from tests.support.instants import done, inflight, requested

DELTA, COMPACT, REPLACE = Action.DELTACOMMIT, Action.COMPACTION, Action.REPLACECOMMIT


def base(instant: str, group: str = "g", token: str = "0-0-0") -> FileInfo:
    return FileInfo(f"p/{BaseFileName(group, token, instant, '.parquet')}", 100, 0)


def log(instant: str, version: int = 1, token: str = "0-0-0", group: str = "g", cdc: bool = False) -> FileInfo:
    return FileInfo(f"p/{LogFileName(group, instant, version, token, cdc)}", 10, 0)


def state(
    *instants: Instant,
    replaced: Mapping[str, str] | None = None,
    waiting: str | None = None,
    archived: Mapping[str, str] | None = None,
    version_6: bool = False,
) -> SlicingState:
    return SlicingState(
        Timeline.of(instants, archived),
        {("p", group): time for group, time in (replaced or {}).items()},
        {("p", "g"): waiting} if waiting else {},
        not version_6,
    )


def group_of(files: list[FileInfo], known: SlicingState) -> FileGroup:
    (group,) = build_file_groups("p", files, known)
    return group


def shown(slice_: FileSlice | None) -> tuple[str | None, list[str]] | None:
    """The base instant of the base file, and the instants of the logs."""
    if slice_ is None:
        return None
    return (slice_.base.name.instant_time if slice_.base else None), [each.name.instant_time for each in slice_.logs]


def seen(files: list[FileInfo], known: SlicingState, as_of: str | None = None) -> tuple[str | None, list[str]] | None:
    return shown(visible_slice(group_of(files, known), known, as_of))


# Which slice a log belongs to


@pytest.mark.parametrize("compacted", [True, False])
def test_a_write_that_outlasts_the_plan_of_a_compaction_is_there_as_of_its_own_time(compacted: bool) -> None:
    writes = done("010", "011", DELTA), done("020", "060", DELTA)
    known = state(*writes, done("050", "070")) if compacted else state(*writes, requested("050", COMPACT), waiting="050")
    files = [log("010"), log("020"), *([base("050")] if compacted else [])]
    assert seen(files, known, "010") == (None, ["010"])
    assert seen(files, known, "020") == seen(files, known, "049") == (None, ["010", "020"])
    assert seen(files, known) == (("050", ["020"]) if compacted else (None, ["010", "020"]))


@pytest.mark.parametrize(("completion", "slice_"), [("049", "010"), ("050", "050"), ("051", "050")])
def test_a_log_belongs_to_the_newest_slice_that_began_before_it_completed(completion: str, slice_: str) -> None:
    known = state(done("010", action=DELTA), done("020", completion, DELTA), done("050", "060"))
    group = group_of([base("010"), base("050"), log("020")], known)
    assert [(s.base_instant, [x.name.instant_time for x in s.logs]) for s in group.slices if s.logs] == [(slice_, ["020"])]


def test_groups_and_slices_come_in_order() -> None:
    known = state(done("010", action=DELTA), done("020", action=DELTA))
    files = [log("010", 10, group="b"), log("010", 2, group="b"), base("020", "c"), base("010", "c"), log("010", 2, "0-0-1", "b")]
    groups = build_file_groups("p", files, known)
    assert [group.file_id for group in groups] == ["b", "c"]
    assert [(x.name.version, x.name.write_token) for x in groups[0].slices[0].logs] == [(2, "0-0-0"), (2, "0-0-1"), (10, "0-0-0")]
    assert [s.base_instant for s in groups[1].slices] == ["020", "010"]
    assert groups[1].slices[0].size_bytes == 100


def test_unrelated_files_are_ignored() -> None:
    known = state(done("010"))
    others = [".hoodie_partition_metadata", "readme.txt", ".g_010.tmp", "g_010.parquet.crc", "part-00000.parquet"]
    files = [base("010"), *(FileInfo(f"p/{name}", 1, 0) for name in others), log("010", cdc=True)]
    assert shown(group_of(files, known).slices[0]) == ("010", [])
    (with_changes,) = build_file_groups("p", files, known, change_logs=True)
    assert len(with_changes.slices[0].logs) == 1


def test_file_group_of_only_logs_has_the_first_log_as_base_instant() -> None:
    known = state(done("010", action=DELTA), done("020", action=DELTA))
    group = group_of([log("020"), log("010")], known)
    assert [s.base_instant for s in group.slices] == ["010"]
    assert shown(visible_slice(group, known)) == (None, ["010", "020"])


def test_the_completion_of_an_archived_log_comes_from_the_history() -> None:
    known = state(done("040", "045"), done("050", "060"), archived={"020": "055"})
    assert seen([base("010"), base("050"), log("020")], known) == ("050", ["020"])
    # Without it the request time is the nearest bound.
    known = state(done("040", "045"), done("050", "060"))
    assert seen([base("010"), base("050"), log("020")], known) == ("050", [])


def test_of_two_attempts_one_file_counts() -> None:
    known = state(done("010"))
    (slice_,) = group_of([base("010", token="1-0-1"), base("010", token="1-0-0")], known).slices
    assert slice_.base is not None
    assert slice_.base.name.write_token == "1-0-1"


# What a query sees


def test_a_pending_log_is_not_read() -> None:
    known = state(done("010", action=DELTA), inflight("020", DELTA))
    group = group_of([base("010"), log("020")], known)
    assert shown(group.slices[0]) == ("010", ["020"])
    assert shown(visible_slice(group, known)) == ("010", [])


@pytest.mark.parametrize(("instant", "read"), [("090", False), ("025", False), ("005", True)])
def test_log_of_an_unknown_instant(instant: str, read: bool) -> None:
    """Newer than all, between two commits, and older than the timeline."""
    known = state(done("010", action=DELTA), done("020", action=DELTA), done("030", action=DELTA))
    files = [base("001"), log(instant)]
    assert seen(files, known) == ("001", [instant] if read else [])


def test_base_file_of_a_removed_commit() -> None:
    files = [base("010"), base("020"), base("030")]
    # The first one: older than the timeline, so it counts.
    assert seen(files[:1], state(done("020"), done("030"))) == ("010", [])
    # One in the middle does not.
    assert seen(files[:2], state(done("010"), done("030"))) == ("010", [])


def test_a_pending_base_file_is_invisible() -> None:
    assert seen([base("010"), base("020")], state(done("010"), inflight("020"), done("030"))) == ("010", [])
    # Apache Hudi shows uncommitted rows here: the oldest instant of the timeline counts there, pending or not.
    assert seen([base("010")], state(inflight("010"), done("020"))) is None
    assert seen([base("010")], state(inflight("010"))) is None
    assert seen([base("010")], state(done("010", action=Action.CLEAN))) is None


def test_logs_next_to_an_uncommitted_base_file_are_read() -> None:
    """Apache Hudi hands them to the newer base file and shows neither."""
    files = [base("010"), base("050"), log("020"), log("060")]
    committed = [done("010", action=DELTA), done("020", action=DELTA), done("060", action=DELTA)]
    # The compaction's timeline files are missing.
    assert seen(files, state(*committed)) == ("010", ["020", "060"])
    # A delta commit that rewrites the base file is under way.
    assert seen(files, state(*committed, inflight("050", DELTA))) == ("010", ["020", "060"])
    assert seen([base("050"), log("060")], state(*committed, inflight("050", DELTA))) == (None, ["060"])
    # It completes.
    assert seen(files, state(*committed, done("050", "070", DELTA))) == ("050", ["060"])


def test_committed_log_after_a_failed_one_is_read() -> None:
    known = state(done("005", action=DELTA), inflight("010", DELTA), done("020", action=DELTA))
    assert seen([log("010"), log("020")], known) == (None, ["020"])


def test_a_pending_compaction_reads_both_slices() -> None:
    known = state(done("010", action=DELTA), done("020", action=DELTA), requested("030", COMPACT), waiting="030")
    files = [base("010"), log("020")]
    assert seen(files, known) == ("010", ["020"])
    later = state(*known.timeline.instants, done("040", action=DELTA), waiting="030")
    files.append(log("040"))
    group = group_of(files, later)
    assert [s.base_instant for s in group.slices] == ["030", "010"]
    assert shown(visible_slice(group, later)) == ("010", ["020", "040"])
    # Its base file is there and it is not complete.
    assert seen([*files, base("030")], later) == ("010", ["020", "040"])
    # A group without a base file.
    assert seen([log("020"), log("040")], later) == (None, ["020", "040"])
    # It completes.
    finished = state(*known.timeline.instants[:2], done("040", action=DELTA), done("030", "050"))
    assert seen([*files, base("030")], finished) == ("030", ["040"])


@pytest.mark.parametrize(
    ("base_completion", "found"), [("055", []), ("060", ["060"]), ("075", ["060", "070"]), (None, ["060", "070", "080"])]
)
def test_logs_that_may_hold_keys_which_the_base_file_lacks(base_completion: str | None, found: list[str]) -> None:
    """Those requested before the compaction completed, also where they completed after it; all where that is not known."""
    logs = [done("060", "065", DELTA), done("070", "090", DELTA), done("080", "085", DELTA)]
    known = state(*([done("050", base_completion)] if base_completion else []), *logs)
    slice_ = visible_slice(group_of([base("050"), log("060"), log("070"), log("080")], known), known)
    assert slice_ is not None
    assert shown(slice_) == ("050", ["060", "070", "080"])
    assert [each.name.instant_time for each in logs_with_uncovered_keys(slice_, known.timeline)] == found
    assert logs_with_uncovered_keys(replace(slice_, base=None), known.timeline) == ()


def test_time_travel_before_a_pending_compaction() -> None:
    known = state(done("010"), requested("030", COMPACT), done("040", "045", DELTA), waiting="030")
    assert seen([base("010"), log("040")], known, "020") == ("010", [])
    assert seen([base("010"), log("040")], known, "030") == ("010", [])
    assert seen([base("010"), log("040")], known, "040") == ("010", ["040"])


def test_time_travel_compares_request_times() -> None:
    known = state(done("010", "012", DELTA), done("020", "090", DELTA), done("030", "040", DELTA))
    files = [base("010"), log("020"), log("030")]
    assert seen(files, known, "020") == ("010", ["020"])
    assert seen(files, known, "019") == ("010", [])
    assert seen(files, known, "009") is None
    assert seen(files, known, "999") == ("010", ["020", "030"])
    assert seen(files, known) == ("010", ["020", "030"])


def test_replaced_groups() -> None:
    known = state(done("010"), done("020", action=REPLACE), done("030"), replaced={"g": "020"})
    assert seen([base("010")], known) is None
    assert seen([base("010")], known, "020") is None
    assert seen([base("010")], known, "019") == ("010", [])
    groups = build_file_groups("p", [base("010"), base("020", "h")], known)
    assert [shown(s) for s in visible_slices(groups, known)] == [("020", [])]


def test_a_pending_clustering_shows_the_old_groups() -> None:
    known = state(done("010"), inflight("020", Action.CLUSTERING), done("030"))
    groups = build_file_groups("p", [base("010"), base("020", "h")], known)
    assert [shown(s) for s in visible_slices(groups, known)] == [("010", [])]


def test_version_6_names_its_slice() -> None:
    known = state(done("010", action=DELTA), done("020", action=DELTA), done("050", "060"), version_6=True)
    files = [base("010"), log("010", 1), log("010", 2), base("050"), log("050", 1)]
    group = group_of(files, known)
    assert [shown(s) for s in group.slices] == [("050", ["050"]), ("010", ["010", "010"])]
    # The blocks inside say which of them count.
    assert shown(visible_slice(group, known)) == ("050", ["050"])
    assert shown(visible_slice(group, known, "049")) == ("010", ["010", "010"])
    waiting = state(*known.timeline.instants[:2], requested("050", COMPACT), waiting="050", version_6=True)
    assert seen([files[0], files[1], files[4]], waiting) == ("010", ["010", "050"])


# Many files at once


@given(st.data())
def test_many_files_at_once_give_the_same_slices(draw: st.DataObject) -> None:
    times = ["001", "002", "003", "004", "005", "006"]
    chosen = draw.draw(st.lists(st.sampled_from(times), unique=True))
    instants = [done(time, action=DELTA) if draw.draw(st.booleans()) else inflight(time, DELTA) for time in sorted(chosen)]
    groups = st.sampled_from(["g", "h-1", "i"])
    infos = [base(*pair) for pair in draw.draw(st.lists(st.tuples(st.sampled_from(times), groups), max_size=6, unique=True))]
    infos += [
        log(time, group=group) for time, group in draw.draw(st.lists(st.tuples(st.sampled_from(times), groups), max_size=4))
    ]
    infos += draw.draw(st.lists(st.sampled_from([FileInfo("p/README", 1, 0), FileInfo("p/g_x", 1, 0)]), max_size=1))
    second_attempts = [FileInfo(f"p/{group}_9-9-9_{time}.parquet", 7, 0) for group in ("g", "i") for time in ("001", "003")]
    infos += draw.draw(st.lists(st.sampled_from(second_attempts), max_size=2))
    infos = list(dict.fromkeys(infos))
    replaced = {group: "004" for group in draw.draw(st.lists(groups, max_size=1))}
    known = state(*instants, replaced=replaced, waiting=draw.draw(st.none() | st.just("003")))
    as_of = draw.draw(st.none() | st.sampled_from(times))
    names = pa.array([info.name for info in infos], pa.string())
    rows = pa.table(
        {
            "partition": pa.array(["p"] * len(infos), pa.string()),
            "name": names,
            "file_id": file_ids(names),
            "size_bytes": pa.array([info.size_bytes for info in infos], pa.int64()),
        }
    )
    expected = visible_slices(build_file_groups("p", infos, known), known, as_of)
    assert visible_slices_from_rows(rows, known, as_of).get("p", ()) == expected
