"""`doctor` recognizes what Apache Hudi writes next to PyHudi."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.api.doctor import diagnose
from tests.interop.oracle import ApacheHudi

QUIET = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false", "hoodie.compact.inline": "false"}


def rows(value: str) -> pa.Table:
    return pa.table({"id": ["a"], "v": [value]})


def create(path: Path, version: int) -> Table:
    Table.create(str(path), name="t", record_key="id", table_type="mor", options={"hoodie.write.table.version": version})
    table = Table(str(path), options=QUIET)
    table.upsert(rows("1"))
    return table


def write(hudi: ApacheHudi, path: Path, value: str, version: int, **options: Any) -> None:
    common = {
        **QUIET,
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
        "hoodie.datasource.write.operation": "upsert",
        "hoodie.write.table.version": str(version),
        "hoodie.write.auto.upgrade": "false",
    }
    hudi.write(rows(value), path, **{**common, **options})


def findings(path: Path) -> list[str]:
    return [one.finding for one in diagnose(Table(str(path))).findings if one.check == "writers"]


def test_compactions_of_both_libraries(hudi: ApacheHudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = create(path, 8)
    write(hudi, path, "2", 8)
    assert findings(path) == []
    assert table.compact().runs
    write(hudi, path, "3", 8, **{"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"})
    table.upsert(rows("4"))
    assert dict(diagnose(Table(str(path))).checks)["writers"] == "Hudi: 1 compactions, 2 writes; PyHudi: 1 compactions, 2 writes"
    assert [one.split(":")[0] for one in findings(path)] == ["PyHudi and Hudi both execute compaction"]


@pytest.mark.wide
@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("streams", ["true", "false"])
def test_streaming_writes_of_the_metadata_table(newer_hudi: ApacheHudi, tmp_path: Path, version: int, streams: str) -> None:
    path = tmp_path / "t"
    create(path, version)
    write(newer_hudi, path, "2", version, **{"hoodie.metadata.streaming.write.enabled": streams})
    found = findings(path)
    assert any("during its writes" in one for one in found) == (streams == "true")
    assert any("upgrades it by default" in one for one in found) == (streams == "true" and version == 8)
