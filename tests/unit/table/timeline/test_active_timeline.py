from __future__ import annotations

import pytest

from pyhudi.errors import InstantNotFound
from pyhudi.format.instants import Action, Instant, State
from pyhudi.table.timeline.active_timeline import Timeline
from tests.support.instants import done, inflight, requested

DELTA, REPLACE, COMPACT, CLUSTER = Action.DELTACOMMIT, Action.REPLACECOMMIT, Action.COMPACTION, Action.CLUSTERING


def times(instants: tuple[Instant, ...]) -> list[str]:
    return [instant.request_time for instant in instants]


def test_the_highest_state_of_each_step_counts() -> None:
    timeline = Timeline.of(
        [
            requested("030", COMPACT),
            inflight("030", COMPACT),
            done("030"),
            inflight("020", CLUSTER),
            requested("020", CLUSTER),
            requested("010", DELTA),
            done("010", action=DELTA),
            # Another step of the same time: a clean is no commit.
            done("010", action=Action.CLEAN),
        ]
    )
    assert [(i.request_time, i.action, i.state) for i in timeline.instants] == [
        ("010", Action.CLEAN, State.COMPLETED),
        ("010", DELTA, State.COMPLETED),
        ("020", CLUSTER, State.INFLIGHT),
        ("030", Action.COMMIT, State.COMPLETED),
    ]


def test_of_two_completions_the_later_counts() -> None:
    assert Timeline.of([done("010", "030"), done("010", "020")]).completion_time("010") == "030"


def test_timeline_queries() -> None:
    timeline = Timeline.of(
        [
            done("010"),
            done("020", action=DELTA),
            requested("025", COMPACT),
            done("030", action=REPLACE),
            inflight("040", DELTA),
            inflight("045", CLUSTER),
            requested("050"),
            done("060", action=Action.CLEAN),
            inflight("070", Action.ROLLBACK),
        ]
    )
    assert times(timeline.completed_writes()) == ["010", "020", "030"]
    last = timeline.last_completed_write()
    assert last is not None
    assert last.request_time == "030"
    assert times(timeline.pending_writes()) == ["040", "050"]
    assert times(timeline.pending()) == ["025", "040", "045", "050", "070"]
    assert times(timeline.pending(COMPACT, CLUSTER)) == ["025", "045"]
    assert times(timeline.completed(Action.CLEAN)) == ["060"]
    assert timeline.completion_time("020") == "025"
    assert timeline.completion_time("040") is None
    assert timeline.completion_time("060") is None
    assert timeline.latest_time() == "070"
    # A pending compaction keys slices; a pending delta commit or clustering does not.
    assert timeline.last_visible == "030"
    assert Timeline.of([done("010"), requested("020", COMPACT)]).last_visible == "020"
    assert timeline.find("025", COMPACT).state is State.REQUESTED
    for time, action in (("026", COMPACT), ("025", DELTA)):
        with pytest.raises(InstantNotFound, match=time):
            timeline.find(time, action)


def test_latest_time_counts_completions() -> None:
    assert Timeline.of([done("010", "090"), inflight("050")]).latest_time() == "090"
    assert Timeline.of([]).latest_time() == ""


def test_an_empty_timeline() -> None:
    timeline = Timeline.of([done("010", action=Action.CLEAN)])
    assert timeline.start is None
    assert timeline.last_visible is None
    assert timeline.last_completed_write() is None
    assert not timeline.is_completed("005")


def test_instant_before_the_timeline_is_completed() -> None:
    timeline = Timeline.of([inflight("020"), done("030")])
    assert timeline.start == "020"
    assert timeline.is_completed("010")
    # Apache Hudi would take the oldest instant for complete, pending as it is: uncommitted rows.
    assert not timeline.is_completed("020")
    assert timeline.is_completed("030")
    assert not timeline.is_completed("025")
    assert not timeline.is_completed("040")


def test_savepointed_commits_do_not_begin_the_timeline() -> None:
    saved = done("010", action=Action.SAVEPOINT)
    timeline = Timeline.of([done("010"), saved, done("030"), done("040")])
    assert timeline.start == "030"
    assert timeline.is_completed("010")
    assert timeline.is_completed("020")
    assert not timeline.is_completed("035")


def test_times_are_compared_as_text() -> None:
    timeline = Timeline.of([done("20260101000000000", "20260101000000001")])
    assert timeline.is_before_start("00000000000001")
    assert timeline.is_before_start("20260101000000")
    assert not timeline.is_before_start("20260101000000000")


def test_archived_completions() -> None:
    timeline = Timeline.of([done("030")], {"010": "012"})
    assert timeline.completion_time("010") == "012"
    assert timeline.completion_time("020") is None
    assert timeline.up_to("020").completion_time("010") == "012"


def test_up_to() -> None:
    timeline = Timeline.of([done("010", "090"), done("020"), inflight("030")])
    assert times(timeline.up_to("020").instants) == ["010", "020"]
    assert timeline.up_to("005").instants == ()
