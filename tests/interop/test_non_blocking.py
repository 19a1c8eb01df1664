"""Apache Hudi and PyHudi append to the same file groups at once under non-blocking concurrency control."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.format.actions.commit_metadata import Operation
from pyhudi.format.instants import Action, Instant, State
from pyhudi.format.names import is_shared_file_id
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.table.pending_plans import load_compaction_plan
from pyhudi.table.snapshot import read_commit
from tests.interop.oracle import ApacheHudi
from tests.support.non_blocking import ActingStorage

OURS: dict[str, Any] = {
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider",
    "hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL",
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.index.type": "BUCKET",
    "hoodie.bucket.index.num.buckets": 2,
    "hoodie.metadata.enable": False,
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.compact.inline": False,
}
THEIRS: dict[str, Any] = {
    **OURS,
    "hoodie.table.name": "t",
    "hoodie.table.type": "MERGE_ON_READ",
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.datasource.write.operation": "upsert",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.write.record.merge.mode": "EVENT_TIME_ORDERING",
    "hoodie.datasource.write.partitionpath.field": "",
    "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
    "hoodie.embed.timeline.server": False,
    "hoodie.write.lock.num_retries": 100,
    "hoodie.write.lock.wait_time_ms_between_retry": 50,
}
BEGIN = """
import os, threading, time

def held(rows):
    while not os.path.exists(go):
        time.sleep(0.05)
    yield from rows

def work():
    try:
        frame.write.format("hudi").options(**options).mode("append").save(path)
    except BaseException as error:
        errors.append(str(error))

plain = spark.createDataFrame([tuple(row) for row in rows], "id string, ts bigint, value bigint")
frame = spark.createDataFrame(plain.rdd.mapPartitions(held), plain.schema)
errors = []
thread = threading.Thread(target=work)
spark.held = thread, errors
thread.start()
result = None
"""
"""Begins a write whose rows come when there is a file `go`."""

END = """
open(go, "w").close()
thread, errors = spark.held
thread.join()
result = errors
"""

Rows = dict[str, int]


def rows(given: Rows) -> pa.Table:
    times = pa.array(list(given.values()), pa.int64())
    return pa.table({"id": list(given), "ts": times, "value": times})


def read(found: pa.Table) -> Rows:
    return dict(zip(found["id"].to_pylist(), found["value"].to_pylist(), strict=True))


def check(hudi: ApacheHudi, path: Path, expected: Rows) -> None:
    assert read(Table(str(path)).scan(["id", "value"]).to_arrow()) == expected
    assert read(hudi.read(path, columns=["id", "value"])) == expected


@pytest.mark.parametrize(("release", "version", "metadata"), [("hudi", 8, False), ("newer_hudi", 9, True)])
def test_both_write_the_same_buckets_concurrently_and_compact_for_each_other(
    request: pytest.FixtureRequest, tmp_path: Path, release: str, version: int, metadata: bool
) -> None:
    """release: the fixture of Apache Hudi, 1.0.2 or 1.1.1.  metadata: there is a metadata table, of files and statistics."""
    hudi: ApacheHudi = request.getfixturevalue(release)
    path = tmp_path / "t"
    more = {"hoodie.write.table.version": version, "hoodie.metadata.enable": metadata}
    ours, theirs_options = {**OURS, **more}, {**THEIRS, **more}
    table = Table.create(str(path), name="t", record_key="id", ordering="ts", table_type="mor", options=ours)
    table = Table(str(path), options=ours)

    def write_during(data: Rows, then: Callable[[], None]) -> WriteResult:
        """Ours is begun first and ends last."""
        settings = WriteSettings.of(parse_options(ours), WriteOperation.UPSERT)
        context = replace(table.context, storage=ActingStorage(table.context.storage, then))
        return run_write(context, LocalEngine(1), rows(data), settings)

    def write_and_look() -> None:
        hudi.write(rows({"k0": 5, "k2": 5}), path, **theirs_options)
        check(hudi, path, {"k0": 5, "k2": 5})

    done = write_during({"k0": 9, "k1": 9}, write_and_look)
    theirs = next(i for i in table.timeline().completed_writes() if i.request_time != done.instant)
    assert done.conflict_retries == 0 and str(done.instant) < theirs.request_time
    assert str(theirs.completion_time) < str(done.completion_time)
    names = [file.name for file in path.iterdir() if ".log." in file.name and not file.name.endswith(".crc")]
    assert names and all(is_shared_file_id(name[1:].split("_")[0]) for name in names)
    check(hudi, path, {"k0": 9, "k1": 9, "k2": 5})

    # A write of Apache Hudi is under way while we plan a compaction and carry it out.
    go = str(tmp_path / "go")
    late = [["k2", 7, 7], ["k3", 7, 7], ["k0", 2, 2]]
    hudi.run(BEGIN, rows=late, go=go, path=str(path), options={key: _text(value) for key, value in theirs_options.items()})
    while not table.timeline().pending_writes():
        time.sleep(0.05)
    (pending,) = table.timeline().pending_writes()
    table.upsert(rows({"k0": 11}))
    (compaction,) = table.compact().runs
    # Hudi runs one task at a time here, and its write occupies it.
    assert read(table.scan(["id", "value"]).to_arrow()) == {"k0": 11, "k1": 9, "k2": 5}
    assert hudi.run(END, go=go) == []
    plan = load_compaction_plan(table.context.timeline, Instant(compaction.instant, Action.COMPACTION, State.REQUESTED))
    assert pending.request_time < compaction.instant
    assert not any(pending.request_time in name for op in plan.operations or () for name in op.delta_file_paths or ())
    check(hudi, path, {"k0": 11, "k1": 9, "k2": 7, "k3": 7})
    assert read(table.scan(["id", "value"], as_of=pending.request_time).to_arrow()) == {"k0": 9, "k1": 9, "k2": 7, "k3": 7}

    # Hudi compacts what both wrote, during a write of PyHudi: its log belongs to the new base file.
    inline = {"hoodie.compact.inline": True, "hoodie.compact.inline.max.delta.commits": 1}
    compacted = {"k0": 11, "k1": 9, "k2": 7, "k3": 7, "k4": 1}

    def compact_and_look() -> None:
        hudi.write(rows({"k4": 1}), path, **{**theirs_options, **inline})
        newest = table.timeline().completed_writes()[-1]
        assert read_commit(table.context.timeline, newest).operation is Operation.COMPACT
        check(hudi, path, compacted)

    done = write_during({"k1": 8, "k3": 12, "k5": 3}, compact_and_look)
    newest = table.timeline().completed_writes()[-1]
    assert done.conflict_retries == 0 and str(done.instant) < newest.request_time
    check(hudi, path, compacted | {"k3": 12, "k5": 3})
    table.upsert(rows({"k2": 6, "k3": 8}))
    hudi.write(rows({"k3": 7, "k4": 2}), path, **theirs_options)
    check(hudi, path, {"k0": 11, "k1": 9, "k2": 7, "k3": 12, "k4": 2, "k5": 3})
    # Compactions and cleans of either lose nothing of the other's.
    table.compact()
    table.clean(dry_run=False)
    check(hudi, path, {"k0": 11, "k1": 9, "k2": 7, "k3": 12, "k4": 2, "k5": 3})
    assert table.validate().ok


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
