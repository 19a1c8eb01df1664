"""Incremental queries of a table written in turn return the same rows for each range."""

from __future__ import annotations

import os
from datetime import UTC
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.format.instants import shift_instant_time
from tests.interop.oracle import ApacheHudi
from tests.support.rows import assert_same_rows

KIND, OPERATION = "hoodie.datasource.query.type", "hoodie.datasource.write.operation"
BEGIN, END = "hoodie.datasource.read.begin.instanttime", "hoodie.datasource.read.end.instanttime"
OLD = "hoodie.datasource.read.incr.table.version"


def rows(numbers: list[int], ts: int) -> pa.Table:
    made = [{"id": f"k{n}", "ts": ts, "fare": n + ts / 4, "city": "ab"[n % 2]} for n in numbers]
    types = [("id", pa.string()), ("ts", pa.int32()), ("fare", pa.float64()), ("city", pa.string())]
    return pa.Table.from_pylist(made, pa.schema(types))


def same(hudi: ApacheHudi, table: Table, begin: str, end: str | None = None, **options: Any) -> int:
    """The same rows of a range, meta columns included; how many."""
    real: dict[str, Any] = {KIND: "incremental", BEGIN: begin, **({} if end is None else {END: end}), **options}
    found = table.incremental(begin, end, ["*"], options=options).to_arrow()
    assert_same_rows(found, hudi.read(str(table.uri).removeprefix("file:"), **real))
    return int(found.num_rows)


@pytest.mark.parametrize("kind", [pytest.param("cow", marks=pytest.mark.wide), "mor"])
def test_ranges(hudi: ApacheHudi, tmp_path: Path, kind: str) -> None:
    options: dict[str, Any] = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.table.type": {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}[kind],
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.partitionpath.field": "city",
        "hoodie.clean.automatic": "false",
    }
    path = tmp_path / "t"
    table = Table.create(path, options=options)
    table.upsert(rows([0, 1, 2, 3], 1))
    hudi.write(rows([0, 1, 4], 2), path, **options)
    table.upsert(rows([1, 5], 3))
    table.delete(rows([2], 4))
    if kind == "mor":
        table.compact()
    hudi.write(rows([3, 6], 5), path, **options)
    table.insert_overwrite(rows([8, 10], 6))
    writes = table.timeline().completed_writes()
    times = [str(instant.completion_time) for instant in writes]
    assert same(hudi, table, "000") == 5
    assert table.incremental("earliest").count() == 5
    assert same(hudi, table, times[1], times[2]) == 4
    assert same(hudi, table, times[2]) > 0
    assert same(hudi, table, times[0], times[-2]) == 6, "what was replaced later was there then"
    # A start between request and completion: the completion counts.
    between = shift_instant_time(writes[1].request_time, 1, UTC)
    assert between < times[1]
    assert same(hudi, table, between, times[1]) == same(hudi, table, times[1], times[1])
    assert same(hudi, table, writes[1].request_time, writes[2].request_time, **{OLD: "6"}) == 2

    table.clean(dry_run=False, options={"hoodie.clean.commits.retained": 1})
    assert same(hudi, table, times[0], times[1]) < 5, "what was overwritten and cleaned is gone"
    if kind == "cow":
        assert same(hudi, table, "000") == 5
        return
    # Where it reads the latest state Apache Hudi leaves log files out: k3 was updated there.
    stale = hudi.read(path, where="id = 'k3'", **{KIND: "incremental", BEGIN: "000"})
    assert stale["ts"].to_pylist() == [1]
    assert table.incremental("000", filter="id = 'k3'").to_arrow()["ts"].to_pylist() == [5]


def test_late_rows_after_a_compaction_in_the_range(hudi: ApacheHudi, tmp_path: Path) -> None:
    """The newer row of the compacted base file is from before the range; one from the range hides a late row."""
    quiet: dict[str, Any] = {"hoodie.clean.automatic": False, "hoodie.compact.inline": False}
    table = Table.create(tmp_path / "t", record_key="id", ordering="ts", table_type="mor", options=quiet)
    first = str(table.upsert(rows([0, 1, 2], 5)).completion_time)
    table.upsert(rows([1], 6))
    table.compact()
    table.upsert(rows([0, 1], 1))
    assert same(hudi, table, shift_instant_time(first, 1, UTC)) == 2


@pytest.mark.parametrize("kind", [pytest.param("COPY_ON_WRITE", marks=pytest.mark.wide), "MERGE_ON_READ"])
def test_ranges_of_version_6_partitioned_by_time(hudi: ApacheHudi, tmp_path: Path, kind: str) -> None:
    """Request times, excluding the start, regardless of the times of the files; its writer does not store what the time's values
    are.
    """
    options: dict[str, Any] = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.table.type": kind,
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.partitionpath.field": "moment",
        "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.TimestampBasedKeyGenerator",
        "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
        "hoodie.keygen.timebased.output.dateformat": "yyyy/MM/dd",
        "hoodie.write.table.version": 6,
        "hoodie.write.auto.upgrade": "false",
        "hoodie.metadata.enable": "false",
    }
    path = tmp_path / "t"
    for ts, numbers in enumerate(([0, 1, 2, 3], [0, 1, 4], [1, 5]), 1):
        data = rows(numbers, ts)
        moment = pa.array([1_767_225_600_000 + 86_400_000 * (n % 2) for n in numbers], pa.int64())
        hudi.write(data.append_column("moment", moment), path, **options)
    for copied in (False, True):
        table = Table(path)
        times = [instant.request_time for instant in table.timeline().completed_writes()]
        assert table.scan(["id"], filter="ts >= 2").count() == 4
        for begin, end, count in (("000", None, 6), (times[0], None, 4), (times[0], times[1], 3), (times[2], None, 0)):
            found = table.incremental(begin, end, ["id", "ts", "_hoodie_commit_time"]).to_arrow()
            real: dict[str, Any] = {KIND: "incremental", BEGIN: begin, **({} if end is None else {END: end})}
            assert found.num_rows == count
            assert_same_rows(found, hudi.read(path, **real).select(found.column_names))
        if copied:
            break
        for file in (path / ".hoodie").iterdir():
            os.utime(file)
