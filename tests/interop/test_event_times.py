"""Event times in commits (`hoodie.payload.event.time.field`) equal those of Apache Hudi 1.1.1."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.table.snapshot import read_commit
from tests.interop.alternation import OPERATION
from tests.interop.oracle import ApacheHudi

START = 1_700_000_000_000
Told = dict[str, tuple[int | None, int | None]]


def rows(**seconds: int) -> pa.Table:
    return pa.table(
        {
            "id": list(seconds),
            "part": [key[0] for key in seconds],
            "ts": pa.array([1] * len(seconds), pa.int64()),
            "at": pa.array([START + 1000 * s for s in seconds.values()], pa.int64()),
        }
    )


def watermarks(path: Path) -> Told:
    table = Table(path)
    commit = read_commit(table.context.timeline, table.timeline().completed_writes()[-1])
    return {str(stat.partition_path): (stat.min_event_time, stat.max_event_time) for stat in commit.write_stats}


@pytest.mark.wide
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_commits_record_the_event_times_of_hudi(newer_hudi: ApacheHudi, tmp_path: Path, kind: str) -> None:
    options: dict[str, Any] = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.table.type": kind,
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "part",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.write.table.version": 9,
        "hoodie.metadata.enable": False,
        "hoodie.compact.inline": False,
        "hoodie.parquet.small.file.limit": 0,
        "hoodie.payload.event.time.field": "at",
        "hoodie.write.track.event.time.watermark": True,
    }
    mine, real = tmp_path / "mine", tmp_path / "real"
    table = Table.create(mine, options=options)
    for operation, data in (("insert", rows(a1=1, a2=9, b1=5)), ("upsert", rows(a1=4, b1=6)), ("upsert", rows(a2=7))):
        getattr(table, operation)(data)
        newer_hudi.write(data, real, **{**options, OPERATION: operation})
        assert watermarks(mine) == watermarks(real), operation
    assert watermarks(mine) == {"a": (START + 4000, START + 7000) if kind == "COPY_ON_WRITE" else (START + 7000, START + 7000)}
    # Both continue in a table whose commits record such times.
    newer_hudi.write(rows(a1=8), mine, **{**options, OPERATION: "upsert"})
    Table(real, options=options).upsert(rows(a1=8))
    assert watermarks(mine) == watermarks(real)
