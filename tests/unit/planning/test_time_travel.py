from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from pyhudi.errors import InvalidRequest
from pyhudi.format.instants import Action, Instant, State
from pyhudi.planning.cleaning import LastClean
from pyhudi.planning.time_travel import LocalTime, classify_local_time, parse_as_of, reason_not_to_travel
from pyhudi.table.timeline.active_timeline import Timeline


@pytest.mark.parametrize(
    ("text", "digits"),
    [
        ("20261121054507123", "20261121054507123"),
        ("20261121054507", "20261121054507"),
        ("2026-11-21 05:45:07.123", "20261121054507123"),
        ("2026-11-21 05:45:07", "20261121054507999"),
        ("2026-11-21", "20261121000000000"),
    ],
)
def test_forms(text: str, digits: str) -> None:
    assert parse_as_of(text) == digits


def test_timestamp_without_milliseconds_excludes_the_second() -> None:
    assert parse_as_of("20261121054507") < "20261121054507000"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-11-21T05:45:07",
        "2026-11-21T05:45:07.123",
        "2026-11-21 05:45",
        "2026-13-21",
        "20261121250000",
        "20261121054507123456",
        "202611210545",
        "yesterday",
        "2026/11/21",
        "٢٠٢٦-11-21",
    ],
)
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"not a time to travel to: .*; a read as of a savepoint takes tag:NAME$"):
        parse_as_of(text)


def commit(time: str, state: State = State.COMPLETED, action: Action = Action.COMMIT) -> Instant:
    return Instant(time, action, state, time + "5" if state is State.COMPLETED else None)


def test_a_pending_write_bounds_the_time_and_services_do_not() -> None:
    timeline = Timeline.of([commit("10"), commit("20", State.INFLIGHT), commit("15", State.REQUESTED, Action.COMPACTION)])
    assert reason_not_to_travel(timeline, "19", None) is None
    assert "20" in (reason_not_to_travel(timeline, "20", None) or "")
    assert reason_not_to_travel(timeline, "99", None) is not None
    clustering = Timeline.of([commit("10"), commit("20", State.INFLIGHT, Action.REPLACECOMMIT)])
    assert reason_not_to_travel(clustering, "25", None) is not None
    assert reason_not_to_travel(clustering, "25", None, frozenset({"20"})) is None


def test_cleaned_instants_are_readable_only_by_savepoint() -> None:
    instants = [commit("10"), commit("20"), commit("30")]
    last = LastClean("35", "20", "30", ())
    assert reason_not_to_travel(Timeline.of(instants), "20", last) is None
    assert "needed from 20" in (reason_not_to_travel(Timeline.of(instants), "19", last) or "")
    saved = Timeline.of([*instants, commit("10", action=Action.SAVEPOINT)])
    assert reason_not_to_travel(saved, "19", last) is None
    assert reason_not_to_travel(saved, "09", last) is not None
    versions = LastClean("35", "", "30", ())
    assert reason_not_to_travel(Timeline.of(instants), "10", versions) is None
    assert reason_not_to_travel(Timeline.of(instants), "09", versions) is not None


_BERLIN = ZoneInfo("Europe/Berlin")
_NOON = datetime(2026, 10, 25, 11, tzinfo=UTC)  # 12:00 in Berlin, on the day when 02:00 to 03:00 is repeated.


@pytest.mark.parametrize(
    ("writes", "time", "meaning"),
    [
        (["20261025110000000"], "20261025120000000", LocalTime.NOW),
        (["20261025110000000"], "20261025115900000", LocalTime.UNAMBIGUOUS),
        (["20261025110000000"], "20261025115959999", LocalTime.UNAMBIGUOUS),
        (["20261025110000000"], "20261025110000000", LocalTime.UNAMBIGUOUS),
        (["20261025110000000", "20261025190000000"], "20261025115959990", LocalTime.NOW),
        (["20261025115959995", "20261025190000000"], "20261025115959990", LocalTime.OTHER_ZONE),
        (["20261025110000000", "20261025190000000"], "20261025113000000", LocalTime.OTHER_ZONE),
        (["20261025110000000", "20261025190000000"], "20261025190000000", LocalTime.UNAMBIGUOUS),
        (["20261025110000000", "20261025190000000"], "20261025200000000", LocalTime.NOW),
        (["20261025025000000"], "20261025021000000", LocalTime.REPEATED_HOUR),
        (["20261025035000000"], "20261025021000000", LocalTime.UNAMBIGUOUS),
        (["20261024025000000"], "20261025021000000", LocalTime.UNAMBIGUOUS),
    ],
)
def test_local_times(writes: list[str], time: str, meaning: LocalTime) -> None:
    timeline = Timeline.of(Instant(write, Action.COMMIT, State.COMPLETED, write) for write in writes)
    assert classify_local_time(timeline, time, int(_NOON.timestamp() * 1000), _BERLIN) is meaning
