"""What PyHudi leaves behind when its process dies, read and taken up by Apache Hudi.

The simulations kill a writer at every call of every operation and read with PyHudi (tests/simulation). Here one death represents
each kind of file that an operation writes: right after the last one of that kind, and for data files within it. An ordinary run
takes each kind with one operation, a wide one with every operation. Apache Hudi must read what we read, through the metadata
table; then one of the two writes on, with what it does about dead writes, and in the end both read the same rows and nothing is
damaged.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.format.instants import Action
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.rollback import rollback_instant
from pyhudi.operations.services.compact import CompactSettings, run_compaction, run_log_compaction
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.storage.environment import SystemEnvironment
from pyhudi.storage.fault_injection import Fault, FaultPoint, FaultyStorage, SimulatedCrash, StorageCall
from pyhudi.storage.locks import InProcessLock
from pyhudi.table.table_context import TableContext
from tests.interop.oracle import ApacheHudi
from tests.interop.pair import Pair, make
from tests.support.needs import WIDE
from tests.support.rows import without_meta

ENGINE = LocalEngine(1)
OPTIONS: dict[str, Any] = {
    "hoodie.compact.inline": False,
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.parquet.small.file.limit": 0,
    "hoodie.log.compaction.blocks.threshold": 2,
}
Act = Callable[[Pair, TableContext], object]
UPSERTED, DELETED = make(range(10, 25), 9), make(range(5), 9)


def upsert(pair: Pair, context: TableContext) -> object:
    return run_write(context, ENGINE, UPSERTED, WriteSettings.of(parse_options(pair.options), WriteOperation.UPSERT))


def delete(pair: Pair, context: TableContext) -> object:
    return run_write(context, ENGINE, DELETED, WriteSettings.of(parse_options(pair.options), WriteOperation.DELETE))


def compact(pair: Pair, context: TableContext) -> object:
    return run_compaction(context, ENGINE, CompactSettings.of(parse_options(pair.options)))


def log_compact(pair: Pair, context: TableContext) -> object:
    return run_log_compaction(context, ENGINE, CompactSettings.of(parse_options(pair.options)))


def roll_back(pair: Pair, context: TableContext) -> object:
    last = context.timeline.load().last_completed_write()
    assert last is not None
    return rollback_instant(context, last, CommitSettings.of(parse_options(pair.options)))


ACTS: dict[str, Act] = {f.__name__: f for f in (upsert, delete, compact, log_compact, roll_back)}


@pytest.fixture(scope="module")
def table_with_commits(apache_hudi: ApacheHudi, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A table with base files and logs of both, whose last write is ours.  Not to be changed."""
    return _grown(Pair(apache_hudi, tmp_path_factory.mktemp("crashes") / "grown", "mor", OPTIONS))


@pytest.fixture(scope="module")
def version_9_table_with_commits(real_newer_hudi: ApacheHudi, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """The same of version 9, with release 1.1.1."""
    options = {**OPTIONS, "hoodie.write.table.version": 9, "hoodie.metadata.index.column.stats.file.group.count": 1}
    return _grown(Pair(real_newer_hudi, tmp_path_factory.mktemp("crashes-9") / "grown_9", "mor", options))


def _grown(pair: Pair) -> Pair:
    pair.create()
    pair.table.upsert(make(range(20), 1))
    for data, ours in ((make(range(15), 2), False), (make(range(4, 20), 3), True)):
        if ours:
            before_last = pair.table.scan().to_arrow()
            pair.table.upsert(data)
        else:
            pair.hudi.write(data, pair.path, **pair.options)
    pair.rows = rows_of(pair.table.scan().to_arrow())
    pair.earlier = rows_of(before_last)  # type: ignore[attr-defined]
    return pair


def rows_of(table: pa.Table) -> dict[str, Any]:
    rows = {row["id"]: row for row in without_meta(table).to_pylist()}
    assert len(rows) == table.num_rows, "a key stands there twice"
    return rows


def outcomes(pair: Pair, act: str) -> list[dict[str, Any]]:
    """What may be in the table after a death: what was there, or what the operation makes."""
    after = dict(pair.rows)
    if act == "upsert":
        after |= rows_of(UPSERTED)
    elif act == "delete":
        after = {key: row for key, row in after.items() if key not in rows_of(DELETED)}
    elif act == "roll_back":
        after = pair.earlier  # type: ignore[attr-defined]
    return [pair.rows, after]


def copied(pair: Pair, path: Path) -> Pair:
    shutil.copytree(pair.path, path)
    return Pair(pair.hudi, path, pair.kind, pair.more, dict(pair.rows))


def faulty(pair: Pair, fault: Fault | None) -> tuple[TableContext, FaultyStorage]:
    """The table behind a storage that fails as planned, under a lock that a dead process does not keep."""
    context = pair.table.context
    storage = FaultyStorage(context.storage, fault)
    return replace(context, storage=storage, lock=InProcessLock(str(pair.path), SystemEnvironment())), storage


def kind_of(call: StorageCall) -> str:
    """What a call that writes is about: words that are the same in every run."""
    name = call.path.rsplit("/", 1)[-1]
    metadata = "metadata " if "/.hoodie/metadata/" in call.path else ""
    if "/timeline/" in call.path:
        what = name.split(".", 1)[1]
    elif "/.temp/" in call.path or "/.heartbeat" in call.path:
        what = "marker" if "/.temp/" in call.path else "heartbeat"
    else:
        what = "log" if ".log." in name else "base file" if name.endswith(".parquet") else "other"
    return f"{metadata}{what} {call.operation}"


# Types whose deaths have the same consequences as those of another type.
ALIKE = ("heartbeat", "other", "metadata marker", "metadata deltacommit.requested", "metadata rollback.requested")


def crash_points(storage: FaultyStorage) -> dict[str, Fault]:
    """Where to die: after the last call of each kind, and within the last that writes or deletes data files."""
    last = {kind_of(call): number for number, call in enumerate((c for c in storage.calls if c.writes), 1)}
    last = {kind: number for kind, number in last.items() if not kind.startswith(ALIKE)}
    halves = ("base file open_output", "log open_output", "log delete")
    return {f"after {kind}": Fault(number, FaultPoint.AFTER) for kind, number in last.items()} | {
        f"within {kind}": Fault(last[kind], FaultPoint.DURING) for kind in halves if kind in last
    }


# Where each operation dies in an ordinary run: together every kind, and each operation before, within and after its commit.
SAMPLE: dict[str, tuple[str, ...]] = {
    "upsert": (
        "after metadata deltacommit put_if_absent",
        "after marker put_if_absent",
        "after base file open_output",
        "within log open_output",
        "after deltacommit.inflight put_if_absent",
        "within base file open_output",
        "after marker delete_folder",
    ),
    "delete": (
        "after log open_output",
        "after deltacommit.requested put_if_absent",
        "after deltacommit put_if_absent",
        "after metadata log open_output",
    ),
    "compact": (
        "after metadata deltacommit put_if_absent",
        "after compaction.requested put_if_absent",
        "after commit put_if_absent",
        "within base file open_output",
        "after compaction.inflight put_if_absent",
    ),
    "log_compact": (
        "after logcompaction.inflight put_if_absent",
        "after logcompaction.requested put_if_absent",
        "after deltacommit put_if_absent",
        "after metadata deltacommit.inflight put_if_absent",
    ),
    "roll_back": (
        "after rollback.requested put_if_absent",
        "after rollback.inflight put_if_absent",
        "after metadata rollback.inflight put_if_absent",
        "within log delete",
        "after log delete",
        "after deltacommit delete",
        "after metadata deltacommit delete",
        "after metadata log delete",
        "after metadata rollback put_if_absent",
        "after deltacommit.requested delete",
        "after deltacommit.inflight delete",
        "after logcompaction.inflight delete",
        "after rollback put_if_absent",
        "after logcompaction.requested delete",
    ),
}
# Of how many deaths Apache Hudi takes up one; it writes for seconds.
TURNS = 2 if WIDE else 3


@pytest.mark.parametrize("act", ACTS)
def test_hudi_continues_after_a_crash_of_pyhudi(table_with_commits: Pair, tmp_path: Path, act: str) -> None:
    whole = copied(table_with_commits, tmp_path / "whole")
    context, storage = faulty(whole, None)
    ACTS[act](whole, context)
    assert rows_of(whole.table.scan().to_arrow()) == outcomes(table_with_commits, act)[1]
    faults = crash_points(storage)
    assert len(faults) >= 8, faults
    unknown = faults.keys() - {what for sample in SAMPLE.values() for what in sample}
    assert not unknown, f"no ordinary run dies there: {unknown}"
    for number, what in enumerate(faults if WIDE else SAMPLE[act]):
        pair = copied(table_with_commits, tmp_path / f"{act}_{number}")
        context, storage = faulty(pair, faults[what])
        with pytest.raises(SimulatedCrash):
            ACTS[act](pair, context)
        try:
            check_continued(
                pair, outcomes(table_with_commits, act), by_them=number % TURNS == 0, markers=number % (2 * TURNS) == 0
            )
        except BaseException as error:
            error.add_note(f"died {what}, table {pair.path}")
            raise
        shutil.rmtree(pair.path)


SAMPLE_9 = {
    "upsert": ("within log open_output",),
    "delete": ("after metadata log open_output",),
    "compact": ("within base file open_output", "after commit put_if_absent"),
    "log_compact": ("after logcompaction.inflight put_if_absent",),
    "roll_back": ("within log delete", "after deltacommit delete"),
}


@pytest.mark.wide
@pytest.mark.parametrize("act", ACTS)
def test_release_1_1_continues_after_a_crash_of_pyhudi(version_9_table_with_commits: Pair, tmp_path: Path, act: str) -> None:
    """On a table of version 9, with either next writer."""
    whole = copied(version_9_table_with_commits, tmp_path / "whole")
    context, storage = faulty(whole, None)
    ACTS[act](whole, context)
    faults = crash_points(storage)
    for what in SAMPLE_9[act]:
        for by_them in (True, False):
            pair = copied(version_9_table_with_commits, tmp_path / f"nine_{act}_{len(list(tmp_path.iterdir()))}")
            context, storage = faulty(pair, faults[what])
            with pytest.raises(SimulatedCrash):
                ACTS[act](pair, context)
            check_continued(pair, outcomes(version_9_table_with_commits, act), by_them, markers=True)
            assert int(pair.table.config.version) == 9


def check_continued(pair: Pair, possible: list[dict[str, Any]], by_them: bool, markers: bool) -> None:
    """by_them: who writes on; markers: whether Apache Hudi looks for markers or lists, to roll back what is dead."""
    found = rows_of(pair.table.scan().to_arrow())
    assert found in possible
    through: dict[str, Any] = {"hoodie.metadata.enable": True}
    assert rows_of(pair.hudi.read(pair.path, **through)) == found
    # A started rollback is completed by the next writer.
    pair.rows = possible[1] if pair.table.timeline().pending(Action.ROLLBACK) else found
    data = make(range(12, 22), 20)
    if by_them:
        for plan in pair.table.timeline().pending(Action.COMPACTION):
            pair.hudi.compact(pair.path, "run", plan.request_time, metadata=True)
        pair.hudi.write(data, pair.path, **{**pair.options, "hoodie.rollback.using.markers": markers})
    else:
        pair.table.upsert(data)
    pair.rows = pair.rows | rows_of(data)
    # What a service left behind goes when the next one runs.
    pair.table.log_compact()
    pair.table.compact()
    pair.check(0)
    validated = pair.table.validate()
    assert validated.ok, str(validated)
    assert not pair.table.timeline().pending()
