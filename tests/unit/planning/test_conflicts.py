"""Instants that a completing write is compared with, and overlapping changes."""

from __future__ import annotations

import pytest

from pyhudi.format.instants import Action, Instant, State
from pyhudi.planning.conflicts import (
    NEW_KEYS_IN_ANY_GROUP,
    Conflict,
    WriteStart,
    describe_conflicts,
    find_conflicts,
    instants_to_check,
    new_keys,
    schema_to_commit,
)
from pyhudi.table.timeline.active_timeline import Timeline


def done(time: str, action: Action = Action.COMMIT) -> Instant:
    return Instant(time, action, State.COMPLETED, str(int(time) + 500))


def pending(time: str, action: Action = Action.COMMIT, state: State = State.INFLIGHT) -> Instant:
    return Instant(time, action, state)


def checked(own: str, before: list[Instant], now: list[Instant]) -> list[str]:
    start = WriteStart.of(Timeline.of(before))
    return [instant.request_time for instant in instants_to_check(own, start, Timeline.of(now))]


def test_conflict_check_lists_instants_completed_since_the_start() -> None:
    before = [done("100"), pending("110"), pending("120", Action.CLUSTERING, State.REQUESTED)]
    now = [done("100"), done("110"), done("120", Action.REPLACECOMMIT), done("140"), pending("150"), pending("130")]
    assert checked("130", before, now) == ["110", "120", "140"]


def test_an_older_write_that_was_not_there() -> None:
    # It was pending when the write began, or it could not have a smaller time; nothing else is compared.
    assert checked("130", [done("100"), done("120")], [done("100"), done("110"), done("120"), pending("130")]) == []


def test_an_older_write_that_showed_itself_late_and_completed_since() -> None:
    """Apache Hudi takes its time first, and puts its instant on the timeline a while after."""
    before = [done("100"), done("120")]
    late = Instant("110", Action.COMMIT, State.COMPLETED, "700")
    assert checked("130", before, [*before, late, pending("130")]) == ["110"]


def test_services_requested_after_the_write() -> None:
    now = [
        pending("110", Action.COMPACTION, State.REQUESTED),
        pending("130"),
        pending("140", Action.COMPACTION, State.REQUESTED),
        pending("150", Action.CLUSTERING),
        pending("160", Action.LOGCOMPACTION),
        pending("170", Action.CLEAN),
        pending("180", Action.DELTACOMMIT),
        done("190", Action.CLEAN),
        done("195", Action.ROLLBACK),
    ]
    assert checked("130", [now[0]], now) == ["140", "150"]


def test_older_services_planned_since_the_start() -> None:
    """Apache Hudi takes the time of a plan before the lock under which it plans."""
    known = pending("110", Action.CLUSTERING, State.REQUESTED)
    late = pending("120", Action.CLUSTERING, State.REQUESTED)
    assert checked("130", [done("100"), known], [done("100"), known, late, pending("130")]) == ["120"]


def test_the_first_write_of_a_table() -> None:
    start = WriteStart.of(Timeline.of([]), "schema")
    assert (start.last_completed, start.pending, start.schema) == ("", frozenset(), "schema")
    assert checked("130", [], [done("120"), pending("130")]) == ["120"]


def test_the_start_is_the_newest_by_request_time() -> None:
    start = WriteStart.of(Timeline.of([Instant("100", Action.COMMIT, State.COMPLETED, "900"), done("200"), pending("050")]))
    assert start.last_completed == "200"
    assert start.pending == {"050"}


def test_shared_groups() -> None:
    others = {done("140"): {("p", "a"), ("p", "b")}, done("150"): {("q", "a")}, done("160"): {("p", "c")}}
    found = find_conflicts("130", [("p", "b"), ("p", "c")], others, frozenset())
    assert found == (Conflict(done("140"), (("p", "b"),)), Conflict(done("160"), (("p", "c"),)))
    text = describe_conflicts(found)
    assert "140" in text
    assert "160" in text
    assert "file groups, such as b" in text


def test_a_compaction_from_before_is_no_conflict() -> None:
    others = {done("120"): {("p", "a")}, done("140"): {("p", "a")}}
    assert [c.instant.request_time for c in find_conflicts("130", [("p", "a")], others, frozenset({"120", "140"}))] == ["140"]
    assert len(find_conflicts("130", [("p", "a")], others, frozenset())) == 2


def test_new_keys_are_compared_by_partition() -> None:
    others = {done("140"): {("p", "x"), new_keys("p"), NEW_KEYS_IN_ANY_GROUP}}
    assert find_conflicts("130", [new_keys("q"), ("q", "y")], others, frozenset()) == ()
    found = find_conflicts("130", [new_keys("p")], others, frozenset())
    assert "records new to p" in describe_conflicts(found)
    assert "records new to the table" in describe_conflicts(find_conflicts("1", [NEW_KEYS_IN_ANY_GROUP], others, frozenset()))


@pytest.mark.parametrize(
    ("own", "start", "now", "expected"),
    [
        ("a", "a", "a", "a"),
        ("b", "a", "a", "b"),
        ("a", "a", "b", "b"),
        ("b", "a", "b", "b"),
        ("b", "a", "c", None),
        ("a", "", "", "a"),
        ("a", "", "b", None),
    ],
)
def test_schema_to_commit(own: str, start: str, now: str, expected: str | None) -> None:
    assert schema_to_commit(own, start, now) == expected
