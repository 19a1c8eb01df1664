"""Instants: every file name of the timeline, and instant times."""

from __future__ import annotations

import itertools
from datetime import UTC, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.errors import Internal, InvalidRequest
from pyhudi.format.instants import (
    Action,
    Instant,
    State,
    comparable_action,
    completed_action,
    format_instant_time,
    parse_instant_file,
    parse_instant_time,
    shift_instant_time,
)
from pyhudi.format.table_versions import TimelineLayout

T, C = "20261121044645518", "20261121044652001"
REQUESTED, INFLIGHT, DONE = State.REQUESTED, State.INFLIGHT, State.COMPLETED
V1, V2 = TimelineLayout.V1, TimelineLayout.V2

# The table of the format's description: requested, inflight and completed name of each action.
FILES = {
    Action.COMMIT: (f"{T}.commit.requested", f"{T}.inflight", f"{T}_{C}.commit"),
    Action.DELTACOMMIT: (f"{T}.deltacommit.requested", f"{T}.deltacommit.inflight", f"{T}_{C}.deltacommit"),
    Action.COMPACTION: (f"{T}.compaction.requested", f"{T}.compaction.inflight", None),
    Action.LOGCOMPACTION: (f"{T}.logcompaction.requested", f"{T}.logcompaction.inflight", None),
    Action.CLUSTERING: (f"{T}.clustering.requested", f"{T}.clustering.inflight", None),
    Action.REPLACECOMMIT: (f"{T}.replacecommit.requested", f"{T}.replacecommit.inflight", f"{T}_{C}.replacecommit"),
    Action.CLEAN: (f"{T}.clean.requested", f"{T}.clean.inflight", f"{T}_{C}.clean"),
    Action.ROLLBACK: (f"{T}.rollback.requested", f"{T}.rollback.inflight", f"{T}_{C}.rollback"),
    Action.RESTORE: (f"{T}.restore.requested", f"{T}.restore.inflight", f"{T}_{C}.restore"),
    Action.SAVEPOINT: (None, f"{T}.savepoint.inflight", f"{T}_{C}.savepoint"),
    Action.INDEXING: (f"{T}.indexing.requested", f"{T}.indexing.inflight", f"{T}_{C}.indexing"),
    Action.SCHEMACOMMIT: (f"{T}.schemacommit.requested", f"{T}.schemacommit.inflight", f"{T}_{C}.schemacommit"),
}


@pytest.mark.parametrize(("action", "state"), list(itertools.product(Action, State)))
def test_every_file_of_layout_2(action: Action, state: State) -> None:
    name = FILES[action][state]
    instant = Instant(T, action, state, C if state is DONE else None)
    if name is None:
        with pytest.raises(Internal):
            instant.file_name(V2)
    else:
        assert instant.file_name(V2) == name
        assert parse_instant_file(name, V2) == instant


@pytest.mark.parametrize(("action", "state"), list(itertools.product(Action, State)))
def test_every_file_of_layout_1(action: Action, state: State) -> None:
    name = FILES[action][state]
    instant = Instant(T, action, state)
    if name is None or action is Action.CLUSTERING:
        with pytest.raises(Internal):
            instant.file_name(V1)
        assert name is None or parse_instant_file(name, V1) is None
    else:
        name = name.replace(f"_{C}", "")
        assert instant.file_name(V1) == name
        assert parse_instant_file(name, V1) == instant


def test_completed_without_completion_time_is_legacy_in_layout_2() -> None:
    instant = parse_instant_file(f"{T}.deltacommit", V2)
    assert instant == Instant(T, Action.DELTACOMMIT, DONE, None, is_legacy=True)
    assert instant is not None
    assert instant.file_name(V2) == f"{T}.deltacommit"
    with pytest.raises(Internal):
        Instant(T, Action.COMMIT, DONE).file_name(V2)


@pytest.mark.parametrize(
    "name",
    [
        f"{T}_{C}.compaction",
        f"{T}_{C}.logcompaction",
        f"{T}_{C}.clustering",
        f"{T}.compaction",
        f"{T}_{C}.commit.requested",
        f"{T}.commit.inflight",
        f"{T}.savepoint.requested",
        f"{T}.unknown",
        f"{T}",
        f"{T}_{C}",
        f".{T}_{C}.commit.crc",
        f"{T}_{C}.commit.6c1e7a62-0a1b-4a7a-9f0a-000000000000",
        f"{T}.commit.requested\n",
        f"{T}_.commit",
        "history",
        "hoodie.properties",
        "",
    ],
)
def test_names_that_are_no_instants(name: str) -> None:
    assert parse_instant_file(name, V2) is None
    assert parse_instant_file(name, V1) is None


def test_names_with_completion_time_are_no_instants_of_layout_1() -> None:
    assert parse_instant_file(f"{T}_{C}.commit", V1) is None


@given(st.from_regex(r"[0-9]{1,20}(_[0-9]{1,20})?\.[a-z]{1,13}(\.[a-z]{1,10})?", fullmatch=True))
def test_parsed_names_round_trip(name: str) -> None:
    for layout in (V1, V2):
        instant = parse_instant_file(name, layout)
        assert instant is None or instant.file_name(layout) == name


def test_actions_that_complete_under_another_name() -> None:
    renamed = {action: completed_action(action) for action in Action if completed_action(action) is not action}
    assert renamed == {
        Action.COMPACTION: Action.COMMIT,
        Action.LOGCOMPACTION: Action.DELTACOMMIT,
        Action.CLUSTERING: Action.REPLACECOMMIT,
    }
    assert all(comparable_action(action) is completed_action(action) for action in Action)
    assert Instant(T, Action.COMPACTION, INFLIGHT).step == Instant(T, Action.COMMIT, DONE, C).step


def test_order_is_request_time_then_action_then_state() -> None:
    instants = [
        Instant("1", Action.CLEAN, DONE, "9"),
        Instant("1", Action.COMPACTION, REQUESTED),
        Instant("1", Action.COMMIT, INFLIGHT),
        Instant("1", Action.COMMIT, DONE, "8"),
        Instant("2", Action.CLEAN, REQUESTED),
    ]
    assert sorted(reversed(instants), key=lambda instant: instant.sort_key) == instants


@pytest.mark.parametrize(
    "build",
    [
        lambda: Instant("2026-11-21", Action.COMMIT, REQUESTED),
        lambda: Instant("", Action.COMMIT, REQUESTED),
        lambda: Instant("٣", Action.COMMIT, REQUESTED),
        lambda: Instant(T, Action.COMMIT, REQUESTED, C),
        lambda: Instant(T, Action.COMMIT, INFLIGHT, is_legacy=True),
        lambda: Instant(T, Action.COMMIT, DONE, "later"),
    ],
)
def test_instants_that_cannot_be(build: object) -> None:
    assert callable(build)
    with pytest.raises(InvalidRequest):
        build()


@pytest.mark.parametrize("zone", [UTC, ZoneInfo("Asia/Kolkata"), ZoneInfo("America/New_York")])
@given(epoch_ms=st.integers(-60_000_000_000_000, 250_000_000_000_000))
def test_times_round_trip_outside_repeated_hours(zone: tzinfo, epoch_ms: int) -> None:
    text = format_instant_time(epoch_ms, zone)
    assert len(text) == 17
    back = parse_instant_time(text, zone)
    # An hour that a zone has twice is read as its first pass.
    assert epoch_ms - back in ((0,) if zone is UTC else (0, 3_600_000, 1_800_000, 1_200_000, 1_000))


def test_times_of_the_format() -> None:
    assert format_instant_time(1_795_236_405_518, UTC) == "20261121044645518"
    assert format_instant_time(1_795_236_405_518, ZoneInfo("Asia/Kolkata")) == "20261121101645518"
    assert parse_instant_time("20261121044645518", UTC) == 1_795_236_405_518
    assert parse_instant_time("20261121044645", UTC) == 1_795_236_405_999
    assert parse_instant_time("20261121044645518010", UTC) == 1_795_236_405_518


@pytest.mark.parametrize(
    "text", ["00000000000000", "00000000000000001", "20261321000000000", "2026", "", "abc", "2026112104464551x"]
)
def test_digits_that_are_no_date(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_instant_time(text, UTC)


def test_clock_changes() -> None:
    zone = ZoneInfo("America/New_York")
    # 02:30 does not exist on 2026-03-08: it is read as 03:30, as Java does.
    assert format_instant_time(parse_instant_time("20260308023000000", zone), zone) == "20260308033000000"
    # 01:30 occurs twice on 2026-11-01: it is read as the first.
    assert format_instant_time(parse_instant_time("20261101013000000", zone), UTC) == "20261101053000000"


def test_shifting() -> None:
    assert shift_instant_time("20261121044645518", 482, UTC) == "20261121044646000"
    assert shift_instant_time("00000000000000", 1, UTC) == "00000000000000001"
    assert shift_instant_time("00000000000000009", 1, UTC) == "00000000000000010"
    with pytest.raises(InvalidRequest):
        shift_instant_time("later", 1, UTC)


@pytest.mark.parametrize("epoch_ms", [1 << 62, -(1 << 62), 1 << 80])
def test_times_outside_the_calendar(epoch_ms: int) -> None:
    with pytest.raises(InvalidRequest):
        format_instant_time(epoch_ms, UTC)
