"""Tables that the real Hudi bootstraps over Parquet files without their rows, updates and services: we read what it reads."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from pyhudi import Table
from tests.interop.oracle import RealHudi
from tests.rows import assert_same_rows

OPERATION = "hoodie.datasource.write.operation"
CITIES = ("oslo", "são paulo", "rome")
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("fare", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
        ("city", pa.string()),
    ]
)


def rows(numbers: Iterable[int], ts: int) -> pa.Table:
    made = [
        {
            "id": f"k{n:03d}",
            "ts": ts,
            "fare": n / 2 if n % 4 else None,
            "at": n * 1_000_000,
            "tags": ["x"] * (n % 3),
            "city": CITIES[n % 3],
        }
        for n in numbers
    ]
    return pa.Table.from_pylist(made, SCHEMA)


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_what_the_real_hudi_bootstrapped_is_read(hudi: RealHudi, tmp_path: Path, kind: str) -> None:
    source, path = tmp_path / "source", tmp_path / "t"
    held = rows(range(60), 1)
    for city in CITIES:
        folder = source / f"city={city}"
        folder.mkdir(parents=True)
        own = held.filter(pc.equal(held["city"], city)).drop_columns(["city"])
        pq.write_table(own.slice(0, 13), folder / "part-0.parquet", row_group_size=5)
        pq.write_table(own.slice(13), folder / "part-1.parquet")
    options: dict[str, Any] = {
        "hoodie.table.name": "bootstrapped",
        "hoodie.datasource.write.table.type": kind,
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "city",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.hive_style_partitioning": True,
        "hoodie.metadata.index.column.stats.enable": False,
    }

    def check() -> None:
        found = Table(path).scan(["*"]).to_arrow()
        assert_same_rows(hudi.read(path), found)
        for text in ("city = 'são paulo' AND fare > 3", "_hoodie_record_key = 'k007'", "ts = 2 OR fare IS NULL"):
            assert_same_rows(hudi.read(path, where=text), Table(path).scan(["*"], filter=text).to_arrow())

    hudi.write(
        rows((), 1), path, mode="overwrite", **{**options, OPERATION: "bootstrap", "hoodie.bootstrap.base.path": str(source)}
    )
    check()
    first = Table(path).timeline().completed_writes()[0]
    hudi.write(rows((0, 1, 61), 2), path, **{**options, OPERATION: "upsert"})
    hudi.write(rows((3, 4), 2), path, **{**options, OPERATION: "delete"})
    check()
    now = Table(path)
    assert_same_rows(now.scan(as_of=first.request_time).to_arrow(), held, key=["id"])
    assert now.incremental(first.completion_time or "", first.completion_time).count() > 0
    if kind == "MERGE_ON_READ":
        assert now.read_optimized().to_arrow().num_rows >= 60
        hudi.compact(path, "scheduleAndExecute")
        check()
