"""Time arguments: open ranges, datetimes, dates, text with zones; instant times differ from completion times."""

from __future__ import annotations

import itertools
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest

from pyhudi import Table, WriteResult
from pyhudi.errors import InstantNotFound, InvalidRequest
from pyhudi.format.instants import Instant, State
from pyhudi.storage.environment import ReplayEnvironment

_names = itertools.count()
EAST = timezone(timedelta(hours=9, minutes=30))
ZONES = [{}, {"hoodie.table.timeline.timezone": "UTC"}, {"hoodie.write.table.version": 9}]


def table_with_commits(**options: object) -> tuple[Table, list[WriteResult]]:
    """A table of three commits, each with one row of its own."""
    clock = ReplayEnvironment(seed=1)
    uri, settings = f"memory://moments-{next(_names)}", {"hoodie.index.bloom.num_entries": 100, **options}
    table = Table.create(uri, record_key="id", options=settings, environment=clock)
    results = []
    for key in "abc":
        results.append(table.upsert([{"id": key}]))
        # No request has the time at which the write before it completed.
        clock.advance_ms(5_000)
    return table, results


def incremental_ids(table: Table, **bounds: Any) -> str:
    return "".join(sorted(table.incremental(columns=["id"], **bounds).to_arrow()["id"].to_pylist()))


def time_of(table: Table, digits: str | None) -> datetime:
    """The time of the table's digits."""
    shown = datetime.strptime(str(digits)[:14], "%Y%m%d%H%M%S").replace(tzinfo=table.config.zone)
    return shown.astimezone(UTC) + timedelta(milliseconds=int(str(digits)[14:]))


@pytest.mark.parametrize("options", ZONES)
def test_after_leaves_out_what_was_read(options: dict[str, object]) -> None:
    table, (one, two, three) = table_with_commits(**options)
    assert incremental_ids(table, after="earliest") == "abc"
    assert incremental_ids(table, after=one.completion_time) == "bc"
    assert incremental_ids(table, after=one.completion_time, end=two.completion_time) == "b"
    assert incremental_ids(table, after=three.completion_time) == ""
    # A loop that goes on from where it came to reads each commit once.
    seen, upto = "", one.completion_time
    for key in "def":
        table.upsert([{"id": key}])
        last = table.timeline().last_completed_write()
        assert last is not None
        seen += incremental_ids(table, after=upto, end=last.completion_time)
        upto = last.completion_time
    assert seen == "bcdef"


@pytest.mark.parametrize("options", ZONES)
def test_time_arguments_of_each_type(options: dict[str, object]) -> None:
    table, (one, two, _) = table_with_commits(**options)
    time = time_of(table, two.completion_time)
    for given in (
        time,
        time.astimezone(EAST),
        time.astimezone(EAST).isoformat(),
        time.isoformat().replace("+00:00", "Z"),
    ):
        assert incremental_ids(table, after=given) == "c"
        assert incremental_ids(table, after=one.completion_time, end=given) == "b"
        assert "".join(sorted(table.scan(as_of=given).to_arrow()["id"].to_pylist())) == "ab"
    # Without a zone it is what the clocks of the table's zone show.
    shown = time.astimezone(table.config.zone).replace(tzinfo=None)
    for text in (shown, shown.isoformat(" ", "milliseconds"), shown.isoformat("T", "milliseconds")):
        assert incremental_ids(table, after=text) == "c"
        assert table.scan(as_of=text).count() == 2
    for text in (shown.isoformat(" ", "seconds"), time.isoformat(timespec="seconds")):
        assert incremental_ids(table, start=text, end=text) == "b", "all of that second"
        assert table.scan(as_of=text).count() == 2
    tomorrow = (time + timedelta(days=2)).date()
    assert incremental_ids(table, after=tomorrow) == incremental_ids(table, start=tomorrow) == ""
    assert incremental_ids(table, start=date(2000, 1, 1), end=tomorrow) == incremental_ids(table, start="2000-01-01") == "abc"
    assert table.scan(as_of=tomorrow).count() == 3


def test_ranges_that_do_not_begin_are_refused() -> None:
    table, (one, two, _) = table_with_commits()
    for bounds in ({}, {"start": "earliest", "after": one.completion_time}):
        with pytest.raises(InvalidRequest, match=r"either start=.* or after="):
            incremental_ids(table, **bounds)
    with pytest.raises(InvalidRequest, match="not a point in time"):
        incremental_ids(table, after=5)
    with pytest.raises(InvalidRequest, match="in digits"):
        incremental_ids(table, after="yesterday")
    with pytest.raises(InvalidRequest, match="ends before it begins"):
        incremental_ids(table, after=two.completion_time, end=one.completion_time)


def test_entries_of_the_timeline_name_instants() -> None:
    table, (*_, three) = table_with_commits()
    first, second, third = table.timeline().completed_writes()
    assert incremental_ids(table, after=first, end=second) == "b"
    assert table.scan(as_of=second).count() == 2
    row: Any = table.inspect.timeline().to_pylist()[1]
    with pytest.raises(InvalidRequest, match="pass its field 'request_time'"):
        table.scan(as_of=row)
    with pytest.raises(InvalidRequest, match="pass its field 'completion_time'"):
        incremental_ids(table, after=row)
    pending = Instant(third.request_time, third.action, State.INFLIGHT)
    with pytest.raises(InvalidRequest, match="has no completion time: it is INFLIGHT"):
        incremental_ids(table, after=pending)
    assert table.savepoint(second) is not None
    assert table.rollback(third).rolled_back == three.instant


def test_a_completion_time_names_the_instant_to_pass() -> None:
    table, (*_, three) = table_with_commits()
    for call in (table.rollback, table.restore, table.savepoint):
        with pytest.raises(InstantNotFound, match=f"the write that completed then was requested at {three.instant}: pass that"):
            call(three.completion_time or "")
    with pytest.raises(InstantNotFound, match=r"requested at 20200101000000000$"):
        table.rollback("20200101000000000")


@pytest.mark.parametrize("bound", ["start", "after", "end"])
def test_an_instant_is_not_taken_for_a_completion_time(bound: str) -> None:
    table, (one, two, _) = table_with_commits()
    bounds = {"start": one.completion_time, bound: two.instant} if bound == "end" else {bound: two.instant}
    with pytest.raises(InvalidRequest, match=f"{two.instant} is the instant of a write.*completed at {two.completion_time}"):
        incremental_ids(table, **bounds)


def test_changes_accept_instants_and_times() -> None:
    table, (one, two, three) = table_with_commits(**{"hoodie.table.cdc.enabled": True})
    assert table.changes().count() == 3
    assert table.changes(after=one.completion_time).count() == 2
    assert table.changes(after=time_of(table, two.completion_time), end=three.completion_time).count() == 1
    with pytest.raises(InvalidRequest, match="is the instant of a write"):
        table.changes(after=two.instant)
