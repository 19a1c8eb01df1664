"""A commit that completes before the instant of an UPDATE or MERGE of Apache Hudi which reads the table."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from tests.interop.background_statements import BEGIN, END
from tests.interop.oracle import ApacheHudi, HudiFailure

OPTIONS: dict[str, Any] = {
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider",
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.metadata.enable": "false",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
}
# For as long as the slowest machine takes to our commit.
THEIRS = {**OPTIONS, "hoodie.write.lock.num_retries": "6000", "hoodie.write.lock.wait_time_ms_between_retry": "100"}
WAITS = """
thread, errors = spark.held
stacks = jvm.java.lang.Thread.getAllStackTraces()
frames = (str(frame) for found in stacks.keySet().toArray() for frame in stacks.get(found) or ())
result = not thread.is_alive() or any("TimeGeneratorBase.lock" in frame for frame in frames)
"""
"""Whether the statement waits for the lock, to have the time of its instant."""


def table_with_commits(hudi: ApacheHudi, path: Path, kind: str) -> None:
    """A table `counters` of two counters at 0."""
    table = Table.create(str(path), name="counters", record_key="id", table_type=kind, options=OPTIONS)
    table.upsert(rows(0))
    hudi.register(path, "counters")


def rows(value: int) -> pa.Table:
    return pa.table({"id": ["a", "b"], "v": pa.array([value, value], pa.int64())})


def read(found: pa.Table) -> dict[str, int]:
    return dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


@pytest.mark.parametrize(
    ("kind", "statement", "counted"),
    [
        ("mor", "UPDATE counters SET v = v + 1 WHERE id = 'a'", 1),
        pytest.param("cow", "UPDATE counters SET v = v + 1 WHERE id = 'a'", 1, marks=pytest.mark.wide),
        pytest.param(
            "cow",
            "MERGE INTO counters t USING (SELECT 'a' AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = t.v + 1",
            6,
            marks=pytest.mark.wide,
        ),
    ],
)
def test_update_of_hudi_overwrites_a_commit_it_did_not_read(
    hudi: ApacheHudi, tmp_path: Path, kind: str, statement: str, counted: int
) -> None:
    """Its conflict check begins at the instant, and what the statement reads was chosen before: it overwrites the commit unseen.
    A MERGE of copy on write computes its values while it merges files.

    counted: what the counter is after a commit that set it to 5, which 1 was to be added to.
    """
    table_with_commits(hudi, tmp_path, kind)
    lock = tmp_path / ".hoodie" / "lock"
    try:
        lock.write_bytes(b"held by the test")
        hudi.run(BEGIN, text=statement, options=THEIRS)
        while not hudi.run(WAITS):
            time.sleep(0.05)
        assert not Table(tmp_path).timeline().pending_writes()
        # The lock is the test's: this write is under it.
        Table(tmp_path).upsert(rows(5))
    finally:
        lock.unlink()
        errors = hudi.run(END)
    assert errors == []
    assert read(Table(tmp_path).scan(["id", "v"]).to_arrow()) == {"a": counted, "b": 5}


def test_a_merge_into_merge_on_read_cannot_name_a_column_of_the_table(hudi: ApacheHudi, tmp_path: Path) -> None:
    """It raises an assertion error, for a table of any writer, before it reads any file."""
    table_with_commits(hudi, tmp_path / "ours", "mor")
    hudi.sql("DROP TABLE IF EXISTS own_counters")
    columns, properties = "(id string, v bigint)", "TBLPROPERTIES (type = 'mor', primaryKey = 'id')"
    hudi.sql(f"CREATE TABLE own_counters {columns} USING hudi {properties} LOCATION '{tmp_path / 'theirs'}'")
    for name in ("counters", "own_counters"):
        merge = f"MERGE INTO {name} t USING (SELECT 'a' AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = t.v + 1"
        with pytest.raises(HudiFailure) as caught:
            hudi.sql(merge)
        assert caught.value.root[0] == "java.lang.AssertionError"
        assert caught.value.mentions("Target table's field(v) cannot be the right-value of the update clause for MOR table")
