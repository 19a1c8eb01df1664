"""The metadata table is written, compacted, rolled back and read by both PyHudi and Apache Hudi."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.format.instants import Action
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from tests.interop.oracle import ApacheHudi
from tests.interop.pair import FILTERS, OPERATION, SCHEMA, Pair, make
from tests.support.needs import WIDE
from tests.support.paused_write import PausedWrite
from tests.support.rows import assert_same_rows

# With how many filters Apache Hudi reads on the way, where it reads with more of them at the end.
MORE = 2 if WIDE else 0


def test_both_compact_the_metadata_table_alternately(hudi: ApacheHudi, tmp_path: Path) -> None:
    due = "hoodie.metadata.compact.max.delta.commits"
    pair = Pair(hudi, tmp_path / "t", "cow", {due: 3})
    never: dict[str, Any] = {due: 100}
    pair.create()
    pair.ours("upsert", make(range(30), 1), **never)
    pair.theirs("upsert", make(range(20, 40), 2), **never)
    assert pair.metadata_compactions() == 0
    pair.ours("upsert", make(range(30, 50), 3))
    assert pair.metadata_compactions() == 1
    pair.theirs("upsert", make(range(48, 52), 4), filters=MORE, **never)
    pair.ours("delete", make(range(2), 5), **never)
    pair.ours("upsert", make(range(60, 65), 6), **never)
    assert pair.metadata_compactions() == 1
    # It compacts before it writes.
    pair.theirs("upsert", make(range(62, 70), 7))
    assert pair.metadata_compactions() == 2
    pair.ours("delete", make(range(60, 62), 8), **never)
    pair.theirs("upsert", make(range(3, 5), 9), filters=len(FILTERS) if WIDE else 4, **never)


def test_indexes_of_a_table_that_apache_hudi_built(hudi: ApacheHudi, tmp_path: Path) -> None:
    """A table without metadata table gets one by our next write, from files that both wrote; Apache Hudi goes on with it."""
    off = {"hoodie.metadata.enable": False}
    pair = Pair(hudi, tmp_path / "t", "mor")
    hudi.write(make(range(40), 1), pair.path, **{**pair.options, **off, OPERATION: "upsert"})
    hudi.write(make(range(30, 60), 2), pair.path, **{**pair.options, **off, OPERATION: "upsert"})
    pair.table.upsert(make(range(50, 70), 3), options=off)
    for data in (make(range(40), 1), make(range(30, 60), 2), make(range(50, 70), 3)):
        pair._apply("upsert", data)
    assert not pair.table.config.metadata_partitions
    pair.ours("upsert", make(range(60, 80), 4), filters=1)
    assert set(pair.metadata.partitions) == {"files", "column_stats", "partition_stats"}
    pair.theirs("upsert", make(range(70, 90), 5), filters=4)


# We roll back with either: later, what Apache Hudi wrote.
@pytest.mark.parametrize("roller", [pytest.param("ours", marks=pytest.mark.wide), "theirs"])
@pytest.mark.parametrize("kind", [pytest.param("cow", marks=pytest.mark.wide), "mor"])
def test_each_library_rolls_back_writes_of_the_other(hudi: ApacheHudi, tmp_path: Path, kind: str, roller: str) -> None:
    pair = Pair(hudi, tmp_path / "t", kind, {"hoodie.compact.inline": False})
    pair.create()
    pair.ours("upsert", make(range(40), 1))
    before = dict(pair.rows)
    pair.ours("upsert", make(range(30, 60), 2))
    newest = pair.table.timeline().last_completed_write()
    assert newest is not None
    if roller == "ours":
        pair.table.rollback(newest.request_time)
    else:
        hudi.register(pair.path, f"rolled_{kind}")
        hudi.call("rollback_to_instant", table=f"rolled_{kind}", instant_time=newest.request_time)
    pair.rows = dict(before)
    pair.check(1)
    pair.theirs("upsert", make(range(35, 45), 3))
    newest = pair.table.timeline().last_completed_write()
    assert newest is not None
    pair.table.rollback(newest.request_time)
    pair.rows = before
    pair.ours("upsert", make(range(38, 50), 4))
    pair.theirs("upsert", make(range(45, 55), 5), filters=2)


def test_restore_and_clean(hudi: ApacheHudi, tmp_path: Path) -> None:
    pair = Pair(hudi, tmp_path / "t", "cow", {"hoodie.clean.commits.retained": 2})
    pair.create()
    pair.ours("upsert", make(range(40), 1))
    saved = dict(pair.rows)
    point = pair.table.savepoint().instant
    for ts in range(2, 6):
        pair.ours("upsert", make(range(30, 40 + ts), ts))
    assert pair.table.timeline().completed(Action.CLEAN)
    pair.theirs("upsert", make(range(40, 60), 6))
    pair.table.restore(point)
    pair.rows = saved
    assert_same_rows(pair.table.scan().to_arrow(), pa.Table.from_pylist(list(saved.values()), SCHEMA), key=["id"])
    pair.theirs("upsert", make(range(35, 45), 7), filters=1)
    pair.ours("upsert", make(range(40, 50), 8), filters=2)


def test_ranges_of_a_partition_after_writes_whose_times_overlap(hudi: ApacheHudi, tmp_path: Path) -> None:
    """What we call not tight Apache Hudi widens; what it calls tight while we are under way we say again."""
    pair = Pair(hudi, tmp_path / "t", "cow")
    pair.create()
    for number in (0, 3, 6):
        pair.ours("bulk_insert", make([number], 1, fare=10.0))

    def begin(number: int, fare: float, ts: int) -> PausedWrite:
        data = make([number], ts, fare=fare)
        pair._apply("upsert", data)
        settings = WriteSettings.of(parse_options(pair.options), WriteOperation.UPSERT)
        return PausedWrite(pair.table.context, lambda context: run_write(context, LocalEngine(1), data, settings))

    first, second = begin(0, 60.0, 2), begin(3, 11.0, 2)
    second.finish()
    first.finish()
    pair.check(1)
    first = begin(6, 70.0, 3)
    together: dict[str, Any] = {
        "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
        "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider",
        "hoodie.clean.failed.writes.policy": "LAZY",
    }
    data = make([0], 3, fare=12.0)
    hudi.write(data, pair.path, **{**pair.options, OPERATION: "upsert", "hoodie.index.type": "SIMPLE", **together})
    pair._apply("upsert", data)
    first.finish()
    pair.check(1)
    found = pair.table.validate()
    assert found.ok, str(found)
    # Both go on from there.
    pair.theirs("upsert", make([3], 4, fare=13.0), filters=1)
    pair.ours("upsert", make([6], 5, fare=80.0), filters=1)
