"""Instant times of a registered time generator."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi.errors import InvalidRequest, StorageUnavailable, TableState, Unsupported
from pyhudi.options import plugins
from pyhudi.storage.environment import ReplayEnvironment
from pyhudi.testing import check_time_generator

FIRST_MS = 4_102_444_800_000
"""The year 2100, which no clock says."""
TYPE = {"hoodie.time.generator.type": "counter"}


class Counter:
    """The times that it counts, and the tables that requested them."""

    def __init__(self, first_ms: int = FIRST_MS) -> None:
        self._times: Iterator[int] = itertools.count(first_ms)
        self.asked: list[str] = []

    def now_ms(self, uri: str) -> int:
        self.asked.append(uri)
        return next(self._times)


@pytest.fixture
def counter() -> Counter:
    made = Counter()
    hp.register_time_generator("counter", made)
    return made


def rows(key: str) -> pa.Table:
    return pa.table({"id": [key], "ts": [1]})


def times_of(table: hp.Table) -> list[str]:
    return sorted({time for i in table.timeline().instants for time in (i.request_time, i.completion_time) if time})


def test_times_come_from_the_generator(tmp_path: Path, counter: Counter) -> None:
    table = hp.Table.create(str(tmp_path / "t"), record_key="id", ordering="ts", table_type="mor", options=TYPE)
    table.upsert(rows("a"))
    table.upsert(rows("a"))
    table.compact()
    table.savepoint()
    table.clean(dry_run=False)
    undone = table.upsert(rows("b")).instant
    assert undone is not None
    table.rollback(undone)
    found = times_of(table)
    assert all(time.startswith("210001010000") for time in found), found
    assert set(counter.asked) == {table.uri} and len(counter.asked) >= len(found)
    assert table.scan(["id"]).to_arrow().column("id").to_pylist() == ["a"]
    assert table.validate().ok


def test_schema_changes_by_id_use_the_time_generator(tmp_path: Path, counter: Counter) -> None:
    table = hp.Table.create(str(tmp_path / "t"), record_key="id", ordering="ts", options=TYPE)
    table.upsert(rows("a"))
    table.alter.add("note", pa.string())
    table.upsert(pa.table({"id": ["b"], "ts": [1], "note": ["x"]}))
    assert all(time.startswith("2100") for time in times_of(table))


def test_a_generator_that_is_behind_is_refused(tmp_path: Path, counter: Counter) -> None:
    table = hp.Table.create(str(tmp_path / "t"), record_key="id", ordering="ts", options=TYPE)
    table.upsert(rows("a"))
    hp.register_time_generator("counter", Counter(FIRST_MS - 1000))
    with pytest.raises(TableState, match=r"generator counter returned 2099\d+ for .*other writers use another time source"):
        table.upsert(rows("b"))
    # The clock goes on from the timeline, as where another machine's is ahead.
    hp.Table(table.uri, stored_options=False).upsert(rows("c"))
    assert sorted(table.scan(["id"]).to_arrow().column("id").to_pylist()) == ["a", "c"]


def test_commit_without_a_completion_time_is_rolled_back(
    tmp_path: Path, counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = hp.Table.create(str(tmp_path / "t"), record_key="id", ordering="ts", options=TYPE)
    table.upsert(rows("a"))
    asked, calls = counter.now_ms, itertools.count(1)

    def second_fails(uri: str) -> int:
        if next(calls) == 2:
            raise StorageUnavailable("nobody answers")
        return asked(uri)

    monkeypatch.setattr(counter, "now_ms", second_fails)
    with pytest.raises(StorageUnavailable, match="nobody answers"):
        table.upsert(rows("b"))
    assert table.scan(["id"]).to_arrow().column("id").to_pylist() == ["a"]
    table.upsert(rows("c"))
    assert table.validate().ok


def test_time_generator_waits_for_the_clock_skew(tmp_path: Path, counter: Counter) -> None:
    env = ReplayEnvironment(1)
    options = {**TYPE, "hoodie.time.generator.max_expected_clock_skew_ms": 250, "_hoodie.time.generator.reuse.enable": True}
    table = hp.Table.create(str(tmp_path / "t"), record_key="id", ordering="ts")
    before, asked = env.monotonic_ms(), len(counter.asked)
    hp.Table(table.uri, options=options, environment=env).upsert(rows("a"))
    assert env.monotonic_ms() - before >= 250 * (len(counter.asked) - asked) > 0


def test_unregistered_time_generator_is_refused(tmp_path: Path) -> None:
    table = hp.Table.create(str(tmp_path / "t"), record_key="id", ordering="ts")
    with pytest.raises(Unsupported, match=r"hoodie\.time\.generator\.type=no_such is refused: it is neither WAIT_TO_ADJUST_SKEW"):
        table.upsert(rows("a"), options={"hoodie.time.generator.type": "no_such"})
    assert not table.timeline().instants
    table.upsert(rows("a"), options={"hoodie.time.generator.type": "WAIT_TO_ADJUST_SKEW"})


def test_time_generator_of_an_installed_plugin_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Entry:
        value = "of_this_test:register"

        def load(self) -> object:
            return lambda: hp.register_time_generator("installed", Counter())

    monkeypatch.setattr(plugins, "entry_points", lambda group: [Entry()] if group == plugins.GROUP else [])
    table = hp.Table.create(str(tmp_path / "t"), record_key="id", ordering="ts")
    table.upsert(rows("a"), options={"hoodie.time.generator.type": "installed"})
    assert all(time.startswith("2100") for time in times_of(table))


def test_conformance() -> None:
    check_time_generator(Counter(), "memory://t")

    class BackwardClock(Counter):
        def now_ms(self, uri: str) -> int:
            return -super().now_ms(uri)

    class ConstantClock:
        def now_ms(self, uri: str) -> int:
            return FIRST_MS

    with pytest.raises(InvalidRequest, match="is not monotonic"):
        check_time_generator(BackwardClock(), "memory://t")
    with pytest.raises(InvalidRequest, match="twice"):
        check_time_generator(ConstantClock(), "memory://t", times=4, threads=4)
    with pytest.raises(InvalidRequest, match="at least one time"):
        check_time_generator(Counter(), "memory://t", times=0)
