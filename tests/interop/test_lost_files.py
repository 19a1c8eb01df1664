"""A table whose repair accepted the loss of a file: Apache Hudi reads it as PyHudi does, and writes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyhudi as hp
from tests.interop.oracle import ApacheHudi

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_hudi_reads_and_writes_a_table_after_an_accepted_loss(hudi: ApacheHudi, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "t"
    table = hp.Table.create(path, name="t", record_key="id", partition_by="p", ordering="ts", table_type=kind)
    for ts in (1, 2):
        table.upsert(pa.table({"id": ["a", "b"], "p": ["x", "y"], "ts": [ts, ts]}))
    files = [file for file in (path / "x").iterdir() if file.suffix == ".parquet" or ".log." in file.name]
    max(files, key=lambda file: file.stat().st_mtime_ns).write_bytes(b"")
    hp.Table(path).repair(accept_loss=True)
    read: dict[str, Any] = {"hoodie.metadata.enable": True}
    assert sorted(hudi.read(path, **read)["ts"].to_pylist()) == [1, 2]
    options: dict[str, Any] = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "p",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.operation": "upsert",
    }
    hudi.write(pa.table({"id": ["a"], "p": ["x"], "ts": [3]}), path, **options)
    assert sorted(hudi.read(path, **read)["ts"].to_pylist()) == [2, 3]
    assert sorted(hp.Table(path).scan().to_arrow()["ts"].to_pylist()) == [2, 3]
    assert hp.Table(path).validate().ok
