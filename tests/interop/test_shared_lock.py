"""Apache Hudi and PyHudi write the same keys at once under Hudi's file system lock."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa

from pyhudi import Table
from pyhudi.errors import WriteConflict
from pyhudi.format.actions.commit_metadata import CommitMetadata
from tests.interop.oracle import ApacheHudi, HudiFailure

LOCK = {
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider",
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.clean.failed.writes.policy": "LAZY",
}
OURS: dict[str, object] = {
    **LOCK,
    "hoodie.metadata.enable": False,
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
}
THEIRS: dict[str, Any] = {
    **OURS,
    "hoodie.table.name": "t",
    "hoodie.embed.timeline.server": False,
    "hoodie.datasource.write.operation": "upsert",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.partitionpath.field": "",
    "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
    "hoodie.write.lock.num_retries": 100,
    "hoodie.write.lock.wait_time_ms_between_retry": 50,
}
KEYS = ["a", "b"]
LANDINGS = 1
TRIES = 40
"""Apache Hudi does not plan a write again that lost; who wants it written tries again."""


def rows(ts: int, writer: str) -> pa.Table:
    return pa.table({"id": KEYS, "ts": pa.array([ts] * len(KEYS), pa.int64()), "writer": [writer] * len(KEYS)})


def test_hudi_commits_among_busy_pyhudi_writers_without_lost_updates(hudi: ApacheHudi, tmp_path: Path) -> None:
    """Every commit replaces the newest file that was committed before it: an update that overwrote another one unseen would
    name an older one.

    Newest is what has the greatest time, and Apache Hudi takes its time long before it plans.  What Hudi 1.0.2 built on a
    commit of ours that is younger by time was below that, for every reader, and was not to be seen.
    """
    path = tmp_path / "t"
    table = Table.create(str(path), name="t", record_key="id", ordering="ts", options=OURS)
    table.upsert(rows(0, "ours"))
    over = threading.Event()
    numbers = iter(range(1, 1_000_000))
    failures: list[BaseException] = []
    ours: list[str] = []

    def write() -> None:
        own = Table(str(path), options=OURS)
        while not over.is_set():
            try:
                ours.append(str(own.upsert(rows(next(numbers), "ours")).instant))
            except WriteConflict:
                continue
            except BaseException as error:
                failures.append(error)
                return

    writers = [threading.Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    landed = tries = 0
    try:
        while landed < LANDINGS and tries < TRIES and not failures:
            tries += 1
            try:
                hudi.write(rows(next(numbers), "theirs"), path, **THEIRS)
                landed += 1
            except HudiFailure as failure:
                assert failure.mentions("WriteConflict") or failure.mentions("ConcurrentModification"), failure
    finally:
        over.set()
        for writer in writers:
            writer.join()
    assert failures == []
    assert landed == LANDINGS, f"{landed} of {tries} tries of Apache Hudi landed beside {len(ours)} of ours"
    opened = Table(str(path))
    timeline = opened.timeline()
    done = sorted(timeline.completed_writes(), key=lambda instant: str(instant.completion_time))
    assert len(done) == 1 + len(ours) + landed, "what was acknowledged is on the timeline, and nothing else"
    newest = ""
    for instant in done:
        metadata = CommitMetadata.decode(opened.context.timeline.read(instant))
        (stat,) = [stat for stats in metadata.partition_to_write_stats.values() for stat in stats]
        who = "ours" if instant.request_time in ours else "theirs"
        assert not newest or stat.prev_commit == newest, f"{who} {instant} was planned on {stat.prev_commit}, beside {newest}"
        newest = max(newest, instant.request_time)
    found = opened.scan().to_arrow()
    assert sorted(found["id"].to_pylist()) == KEYS
    assert opened.validate().ok
