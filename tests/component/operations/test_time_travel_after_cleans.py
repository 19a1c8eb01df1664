"""Time travel fails where a clean removed needed files, and works where all files exist."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from pyhudi import Table
from pyhudi.errors import TableState
from pyhudi.format.instants import Action
from pyhudi.storage.environment import ReplayEnvironment
from pyhudi.storage.fault_injection import Fault, FaultPoint, FaultyStorage, SimulatedCrash
from pyhudi.storage.memory import forget_memory

OPTIONS: dict[str, Any] = {
    "hoodie.clean.automatic": False,
    "hoodie.parquet.small.file.limit": 0,
    "hoodie.compact.inline": False,
    "pyhudi.threads": 1,
}
ONE_VERSION = {"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": 1}


class Written:
    """A table whose record k is written each time, and another record once.  states: instant -> what it held."""

    def __init__(self, kind: str, metadata: bool) -> None:
        self.env = ReplayEnvironment(3)
        self.options = {**OPTIONS, "hoodie.metadata.enable": metadata}
        Table.create("memory://travel", record_key="id", table_type=kind, options=self.options, environment=self.env)
        self.states: dict[str, dict[str, int]] = {}
        self.rows: dict[str, int] = {}

    @property
    def table(self) -> Table:
        self.env.advance_ms(1000)
        return Table("memory://travel", options=self.options, environment=self.env)

    def write(self, **rows: int) -> str:
        done = self.table.upsert({"id": list(rows), "v": list(rows.values())}).instant
        assert done is not None
        self.rows = {**self.rows, **rows}
        self.states[done] = dict(self.rows)
        return done

    def read(self, instant: str) -> dict[str, int]:
        found = self.table.scan(as_of=instant).to_arrow().to_pylist()
        return {row["id"]: row["v"] for row in found}

    def check(self, *, gone: set[str]) -> None:
        for instant, rows in self.states.items():
            if instant in gone:
                with pytest.raises(TableState, match="cannot be read as of"):
                    self.read(instant)
            else:
                assert self.read(instant) == rows


@pytest.fixture(params=[("cow", False), ("cow", True), ("mor", False)], ids=["cow", "cow metadata", "mor"])
def written(request: pytest.FixtureRequest) -> Iterator[Written]:
    yield Written(*request.param)
    forget_memory("travel")


def test_file_versions(written: Written) -> None:
    first, second, third = written.write(k=1), written.write(k=2), written.write(k=3)
    if written.table.config.is_cow:
        written.table.clean(dry_run=False, options=ONE_VERSION)
        written.check(gone={first, second})
        other = written.write(x=1)
        written.table.clean(dry_run=False, options=ONE_VERSION)
        assert other in written.states
        written.check(gone={first, second})
        return
    written.table.compact()
    written.table.clean(dry_run=False, options=ONE_VERSION)
    written.check(gone={first, second, third})
    written.write(k=4)
    written.check(gone={first, second, third})


def test_savepointed_files_do_not_serve_later_instants(written: Written) -> None:
    first, second, third = written.write(k=1), written.write(k=2), written.write(k=3)
    if not written.table.config.is_cow:
        return
    written.table.savepoint(first)
    written.table.clean(dry_run=False, options=ONE_VERSION)
    assert third in written.states
    written.check(gone={second})


def test_higher_retention_does_not_make_cleaned_instants_readable(written: Written) -> None:
    first, second = written.write(k=1), written.write(k=2)
    written.table.compact() if not written.table.config.is_cow else None
    third = written.write(k=3)
    written.table.clean(dry_run=False, options={"hoodie.clean.commits.retained": 1})
    # Another file group of two versions, so that the next clean finds something, and keeps from the second write on.
    four, five, six = written.write(k=4), written.write(k=5), written.write(k=6)
    count = len(written.table.timeline().completed_writes())
    written.table.clean(dry_run=False, options={"hoodie.clean.commits.retained": count - 1})
    assert {third, four, five, six} <= set(written.states)
    if written.table.config.is_cow:
        written.check(gone={first, second})
    else:
        for instant, rows in written.states.items():
            try:
                assert written.read(instant) == rows
            except TableState:
                assert instant in (first, second)


def test_a_replaced_file_group(written: Written) -> None:
    first = written.write(k=1)
    written.env.advance_ms(1000)
    replaced = written.table.insert_overwrite_table({"id": ["z"], "v": [9]}).instant
    assert replaced is not None
    written.rows = {"z": 9}
    written.states[replaced] = {"z": 9}
    written.table.clean(dry_run=False, options=ONE_VERSION)
    last = written.write(z=10)
    assert last in written.states
    written.check(gone={first})


@pytest.mark.parametrize("call", [2, 3, 4])
def test_instant_during_a_failed_clean_is_refused(written: Written, call: int) -> None:
    first, second, third = written.write(k=1), written.write(k=2), written.write(k=3)
    table = written.table
    table._open.context = replace(table.context, storage=FaultyStorage(table.context.storage, Fault(call)))
    with pytest.raises(SimulatedCrash):
        table.clean(dry_run=False, options=ONE_VERSION)
        raise SimulatedCrash
    for instant in (first, second, third):
        try:
            assert written.read(instant) == written.states[instant]
        except TableState:
            assert instant != third


def test_a_clean_that_was_archived(written: Written) -> None:
    early = [written.write(k=number) for number in range(3)]
    if not written.table.config.is_cow:
        written.table.compact()
    written.table.clean(dry_run=False, options={"hoodie.clean.commits.retained": 1})
    late = [written.write(**{f"x{number}": number}) for number in range(8)]
    if not written.table.config.is_cow:
        written.table.compact(options={"hoodie.compact.inline.max.delta.commits": 1})
    written.table.archive(
        options={"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3, "hoodie.clean.commits.retained": 1}
    )
    assert written.table.timeline().completed(Action.CLEAN) == ()
    written.check(gone=set(early[:2]) if written.table.config.is_cow else set())
    assert written.read(late[-1]) == written.rows


@pytest.mark.sample(11)
@pytest.mark.parametrize("replaces", [False, True])
@pytest.mark.parametrize("call", [3, 5, 7, 9])
def test_instant_during_a_clean_finished_by_another_is_refused(written: Written, call: int, replaces: bool) -> None:
    """Its metadata names as deleted what the second attempt deleted, and the rest as files that it did not find."""
    written.write(k=1)
    written.write(k=2)
    if replaces:
        written.env.advance_ms(1000)
        replaced = written.table.insert_overwrite_table({"id": ["z"], "v": [9]}).instant
        assert replaced is not None
        written.rows = {"z": 9}
        written.states[replaced] = {"z": 9}
    elif not written.table.config.is_cow:
        written.table.compact()
    table = written.table
    table._open.context = replace(table.context, storage=FaultyStorage(table.context.storage, Fault(call, FaultPoint.AFTER)))
    try:
        table.clean(dry_run=False, options=ONE_VERSION)
    except SimulatedCrash:
        written.env.advance_ms(1_000_000)
    last = written.write(x=3)
    written.table.clean(dry_run=False, options=ONE_VERSION)
    gone = set()
    for instant, rows in written.states.items():
        try:
            assert written.read(instant) == rows
        except TableState:
            gone.add(instant)
    assert last not in gone and gone
