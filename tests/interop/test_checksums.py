"""Apache Hudi reads, updates and compacts files with PyHudi's page checksums."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from tests.interop.oracle import ApacheHudi

WRITE: dict[str, Any] = {
    "hoodie.table.name": "checked",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "p",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.datasource.write.operation": "upsert",
    "hoodie.compact.inline": "true",
    "hoodie.compact.inline.max.delta.commits": "1",
}


def rows(numbers: range, ts: int) -> pa.Table:
    return pa.table(
        {
            "id": [f"k{n:03}" for n in numbers],
            "p": ["a" if n % 2 else "b" for n in numbers],
            "ts": [ts] * len(numbers),
            "v": [1000 * ts + n for n in numbers],
        }
    )


def ids_and_values(table: pa.Table) -> list[tuple[object, ...]]:
    return sorted(zip(table.column("id").to_pylist(), table.column("v").to_pylist(), strict=True))


@pytest.mark.parametrize(
    ("kind", "metadata"),
    [
        ("avro", True),
        ("parquet", False),
        pytest.param("avro", False, marks=pytest.mark.wide),
        pytest.param("parquet", True, marks=pytest.mark.wide),
    ],
)
def test_hudi_ignores_page_checksums(hudi: ApacheHudi, kind: str, metadata: bool, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    table = Table.create(
        path,
        name="checked",
        record_key="id",
        partition_by="p",
        ordering="ts",
        table_type="mor",
        options={
            "hoodie.logfile.data.block.format": kind,
            "hoodie.compact.inline": False,
            "hoodie.metadata.enable": metadata,
        },
    )
    table.insert(rows(range(40), 1))
    table.upsert(rows(range(20), 2))
    table.delete(pa.table({"id": ["k003", "k004"], "p": ["a", "b"]}))
    table.upsert(rows(range(10, 30), 3))
    files = [file for file in (tmp_path / "t").rglob("*") if file.is_file()]
    for mark, name in ((b"pyhudi crc32", ".log."), (b"pyhudi.footer.crc32", ".parquet")):
        assert any(mark in file.read_bytes() for file in files if name in file.name), name
    ours = ids_and_values(table.scan().to_arrow())
    assert len(ours) == 38
    assert ids_and_values(hudi.read(path)) == ours
    hudi.write(rows(range(35, 45), 4), path, **{**WRITE, "hoodie.metadata.enable": str(metadata).lower()})
    # Its compaction read our logs and our base files.
    after = ids_and_values(Table(path).scan().to_arrow())
    assert len(after) == 43
    assert ids_and_values(hudi.read(path)) == after
    assert any(instant.action == "commit" for instant in Table(path).timeline().completed_writes())
