"""Rollbacks: each writer rolls back the other's failed writes and completes the other's rollbacks. test_crashes.py
covers crashes of PyHudi, test_metadata_table.py rollbacks of completed writes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.format.instants import Action, State
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.storage.environment import SystemEnvironment
from pyhudi.storage.fault_injection import Fault, FaultyStorage, SimulatedCrash, StorageCall
from pyhudi.storage.locks.in_process import InProcessLock
from tests.interop.oracle import ApacheHudi, HudiFailure
from tests.interop.pair import Pair, make
from tests.support.hudi_dead_writes import DYING, data_files
from tests.support.hudi_shared_table import BLOOMS, SharedTable, keyed_rows
from tests.support.needs import WIDE

OPTIONS: dict[str, Any] = {
    "hoodie.compact.inline": False,
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.parquet.small.file.limit": 0,
    # Dead writes leave the lists of markers that a timeline server keeps.
    "hoodie.embed.timeline.server": True,
}


Make = Callable[[Path, str], Pair]


@pytest.fixture(scope="module")
def table_with_commits(apache_hudi: ApacheHudi, tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Makes a table of a kind that both have written to; each kind is written once and then copied."""

    @cache
    def first(kind: str) -> Pair:
        pair = Pair(apache_hudi, tmp_path_factory.mktemp("rollbacks") / kind, kind, OPTIONS)
        pair.create()
        pair.ours("upsert", make(range(20), 1), check=False)
        pair.theirs("upsert", make(range(10, 30), 2))
        return pair

    return lambda path, kind: copied(first(kind), path)


@pytest.fixture(scope="module")
def with_dead_write(table_with_commits: Make, tmp_path_factory: pytest.TempPathFactory) -> Make:
    """As `table_with_commits`, after a write of Apache Hudi that ended before its commit."""

    @cache
    def first(kind: str) -> Pair:
        pair = table_with_commits(tmp_path_factory.mktemp("dead") / kind, kind)
        dead_write(pair)
        return pair

    return lambda path, kind: copied(first(kind), path)


def copied(pair: Pair, path: Path) -> Pair:
    shutil.copytree(pair.path, path)
    return Pair(pair.hudi, path, pair.kind, pair.more, dict(pair.rows))


def dead_write(pair: Pair) -> str:
    """A write of Apache Hudi that ends before its commit: its instant.  Files and markers of it are there."""
    before = data_files(pair.path)
    with pytest.raises(HudiFailure, match=r"no\.such\.Validator"):
        pair.hudi.write(make(range(5, 35), 3), pair.path, **pair.options, **DYING)
    pending = pair.table.timeline().pending_writes()
    assert [i.state for i in pending] == [State.INFLIGHT]
    assert data_files(pair.path) > before
    assert list((pair.path / ".hoodie" / ".temp" / pending[0].request_time).rglob("*.marker.*")) or list(
        (pair.path / ".hoodie" / ".temp" / pending[0].request_time).glob("MARKERS*")
    )
    # Its rows are not there, however one looks.
    assert {row["id"]: row for row in pair.table.scan().to_arrow().to_pylist()} == pair.rows
    pair.check_by_listing()
    return pending[0].request_time


@pytest.mark.wide
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_hudi_rolls_back_a_write_of_pyhudi_by_its_marker_lists(table_with_commits: Make, tmp_path: Path, kind: str) -> None:
    """A write that marked its files as a timeline server does, and died before its commit."""
    pair = table_with_commits(tmp_path / "t", kind)
    before = data_files(pair.path)

    def watch(_: int, call: StorageCall) -> Fault | None:
        last = call.path.endswith((".commit", ".deltacommit")) and "/.hoodie/metadata/" not in call.path
        return Fault(1) if last and call.writes else None

    options = {**pair.options, "hoodie.write.markers.type": "TIMELINE_SERVER_BASED"}
    settings = WriteSettings.of(parse_options(options), WriteOperation.UPSERT)
    context = pair.table.context
    dying = replace(
        context, storage=FaultyStorage(context.storage, listener=watch), lock=InProcessLock(str(pair.path), SystemEnvironment())
    )
    with pytest.raises(SimulatedCrash):
        run_write(dying, LocalEngine(1), make(range(5, 40), 3), settings)
    (dead,) = pair.table.timeline().pending_writes()
    left = {path.name for path in (pair.path / ".hoodie" / ".temp" / dead.request_time).rglob("*")}
    assert "MARKERS.type" in left and len(left) > 2 and all(name.startswith("MARKERS") for name in left)
    lost = data_files(pair.path) - before
    assert lost
    pair.theirs("upsert", make(range(3), 4))
    assert not lost & data_files(pair.path)
    assert not [i for i in pair.table.timeline().instants if i.request_time == dead.request_time]
    check_next_writers(pair, dead.request_time)


def twin(pair: Pair) -> Pair:
    """A copy whose path is as long as the table's: plans name files by full path."""
    return copied(pair, pair.path.with_name(pair.path.name[::-1]))


def copy_pending_rollback(other: Pair, pair: Pair, state: State) -> str:
    """Put the rollback that Apache Hudi executed on the copy on the table's timeline, as a pending one; returns its instant."""
    (done,) = other.table.timeline().completed(Action.ROLLBACK)
    name = f"{done.request_time}.rollback.requested"
    plan = (other.path / ".hoodie" / "timeline" / name).read_bytes()
    assert str(other.path).encode() in plan
    timeline = pair.path / ".hoodie" / "timeline"
    (timeline / name).write_bytes(plan.replace(str(other.path).encode(), str(pair.path).encode()))
    if state is State.INFLIGHT:
        (timeline / f"{done.request_time}.rollback.inflight").touch()
    # The process of Hudi that began it died long ago.
    for file in timeline.glob(f"{done.request_time}.rollback.*"):
        os.utime(file, (0, 0))
    return done.request_time


def check_next_writers(pair: Pair, instant: str) -> None:
    """The instant is removed, both read the rows and write on, and nothing is damaged."""
    assert not [i for i in pair.table.timeline().instants if i.request_time == instant]
    pair.check(0)
    pair.theirs("upsert", make(range(8, 25), 4), check=False)
    pair.ours("upsert", make(range(15, 40), 5))
    if pair.kind == "mor":
        pair.table.compact()
        pair.check(0)
    validated = pair.table.validate()
    assert validated.ok, str(validated)
    assert not pair.table.timeline().pending()


@pytest.mark.parametrize("kind", [pytest.param("mor", marks=pytest.mark.wide), "cow"])
def test_pyhudi_rolls_back_a_failed_write_of_hudi(
    table_with_commits: Make, with_dead_write: Make, tmp_path: Path, kind: str
) -> None:
    before = data_files(table_with_commits(tmp_path / "before", kind).path)
    pair = with_dead_write(tmp_path / "t", kind)
    (instant,) = (write.request_time for write in pair.table.timeline().pending_writes())
    assert pair.table.rollback(instant).rolled_back == instant
    assert data_files(pair.path) == before
    # The next one goes by itself, with the write that finds it.
    instant = dead_write(pair)
    data = make(range(3), 6)
    assert pair.table.upsert(data).rolled_back == (instant,)
    pair.rows |= {row["id"]: row for row in data.to_pylist()}
    check_next_writers(pair, instant)


@pytest.mark.parametrize(
    ("kind", "markers", "state"),
    [
        ("mor", True, State.INFLIGHT),
        ("mor", False, State.REQUESTED),
        pytest.param("cow", True, State.REQUESTED, marks=pytest.mark.wide),
        pytest.param("cow", False, State.INFLIGHT, marks=pytest.mark.wide),
    ],
)
def test_pyhudi_finishes_a_failed_write_rollback_of_hudi(
    table_with_commits: Make, with_dead_write: Make, tmp_path: Path, kind: str, markers: bool, state: State
) -> None:
    """By markers its plan names files by URI, by listing by their path alone."""
    before = data_files(table_with_commits(tmp_path / "before", kind).path)
    pair = with_dead_write(tmp_path / "table", kind)
    (instant,) = (write.request_time for write in pair.table.timeline().pending_writes())
    other = twin(pair)
    other.theirs("upsert", make(range(3), 6), check=WIDE, **{"hoodie.rollback.using.markers": markers})
    begun = copy_pending_rollback(other, pair, state)
    if state is State.INFLIGHT:
        for file in sorted(data_files(pair.path) - before)[::2]:
            (pair.path / file).unlink()
    data = make(range(3), 6)
    assert pair.table.upsert(data).rolled_back == (instant,)
    assert begun in [i.request_time for i in pair.table.timeline().completed(Action.ROLLBACK)]
    pair.rows |= {row["id"]: row for row in data.to_pylist()}
    check_next_writers(pair, instant)


@pytest.mark.parametrize("kind", ["mor", pytest.param("cow", marks=pytest.mark.wide)])
def test_pyhudi_finishes_a_completed_write_rollback_of_hudi(
    hudi: ApacheHudi, table_with_commits: Make, tmp_path: Path, kind: str
) -> None:
    pair = table_with_commits(tmp_path / "table", kind)
    before = data_files(pair.path)
    kept = dict(pair.rows)
    pair.theirs("upsert", make(range(5, 35), 3), check=WIDE)
    target = pair.table.timeline().last_completed_write()
    assert target is not None
    other = twin(pair)
    hudi.register(other.path, f"rollback_{kind}")
    hudi.call("rollback_to_instant", table=f"rollback_{kind}", instant_time=target.request_time)
    copy_pending_rollback(other, pair, State.INFLIGHT)
    # It takes the completed file away first.
    (completed,) = (pair.path / ".hoodie" / "timeline").glob(f"{target.request_time}_*")
    completed.unlink()
    for file in sorted(data_files(pair.path) - before)[::2]:
        (pair.path / file).unlink()
    pair.rows = kept
    pair.ours("upsert", make(range(3), 6), check=False)
    check_next_writers(pair, target.request_time)


@pytest.mark.parametrize("kind", ["mor", pytest.param("cow", marks=pytest.mark.wide)])
def test_pyhudi_rolls_back_a_failed_version_9_write_of_hudi(newer_hudi: ApacheHudi, tmp_path: Path, kind: str) -> None:
    shared = SharedTable(newer_hudi, tmp_path / "t", kind, BLOOMS)
    shared.create()
    shared.ours(keyed_rows(("a", 1, "a1", 1), ("c", 1, "c1", 3)))
    shared.theirs(keyed_rows(("a", 2, "a2", 1)))
    with pytest.raises(HudiFailure, match=r"no\.such\.Validator"):
        shared.theirs(keyed_rows(("a", 3, "dead", 1), ("d", 3, "dead", 1)), **DYING)
    (dead,) = shared.table.timeline().pending_writes()
    left = {file for file in data_files(shared.path) if dead.request_time in file.name}
    assert left
    assert shared.same() == {"a": "a2", "c": "c1"}
    shared.ours(keyed_rows(("c", 4, "c4", 1)))
    assert dead.request_time not in {i.request_time for i in shared.table.timeline().instants if i.action is not Action.ROLLBACK}
    assert not left & data_files(shared.path)
    assert shared.same() == {"a": "a2", "c": "c4"}
    shared.checked()
