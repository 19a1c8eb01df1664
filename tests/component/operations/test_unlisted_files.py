"""Rows in files that no listing shows, or that are not read, are an error and never an empty table."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pyhudi as hp
from pyhudi import Table
from pyhudi.errors import HudiError, TableState, Unsupported

INSTANT = "20240617083840000"
OFF = {"hoodie.metadata.enable": False}


def registered_by_xtable(path: Path, version: int, names: list[str]) -> Path:
    """A table whose base files keep the names of another format; its commit names them with an instant."""
    timeline = path / ".hoodie" / ("timeline" if version > 6 else "")
    timeline.mkdir(parents=True)
    stats = []
    for name in names:
        pq.write_table(pa.table({"col1": pa.array([123], pa.int32())}), path / name)
        size = (path / name).stat().st_size
        counts = {"numWrites": 1, "numInserts": 1, "fileSizeInBytes": size, "totalWriteBytes": size}
        stats.append({"fileId": name, "path": f"{name}_{INSTANT}_hudiext", "prevCommit": "null", "partitionPath": "", **counts})
    schema = {"type": "record", "name": "struct", "fields": [{"name": "col1", "type": ["null", "int"]}]}
    commit = {
        "partitionToWriteStats": {"": stats},
        "extraMetadata": {"schema": json.dumps(schema)},
        "operationType": "INSERT",
        "partitionToReplaceFileIds": {},
    }
    completed = f"{INSTANT}_{INSTANT}" if version > 6 else INSTANT
    for file, text in (
        (f"{INSTANT}.replacecommit.requested", ""),
        (f"{INSTANT}.replacecommit.inflight", ""),
        (f"{completed}.replacecommit", json.dumps(commit)),
    ):
        (timeline / file).write_text(text)
    (path / ".hoodie_partition_metadata").write_text(f"commitTime={INSTANT}\npartitionDepth=0\n")
    lines = [
        "hoodie.table.name=t",
        "hoodie.table.type=COPY_ON_WRITE",
        f"hoodie.table.version={version}",
        f"hoodie.timeline.layout.version={2 if version > 6 else 1}",
        "hoodie.populate.meta.fields=false",
        "hoodie.table.partition.fields=",
        "hoodie.table.keygenerator.class=org.apache.hudi.keygen.NonpartitionedKeyGenerator",
    ]
    (path / ".hoodie" / "hoodie.properties").write_text("\n".join([*lines, ""]))
    return path


@pytest.mark.parametrize("version", [6, 8])
def test_files_of_other_formats_are_refused(version: int, tmp_path: Path) -> None:
    table = Table(registered_by_xtable(tmp_path, version, ["part-0-596d8885.snappy.parquet"]), options=OFF)
    reads = (
        lambda: table.scan().to_arrow(),
        table.count,
        lambda: table.scan(as_of=INSTANT).to_arrow(),
        lambda: table.read_optimized().to_arrow(),
        lambda: hp.sql("SELECT * FROM t", tables={"t": table}),
        lambda: hp.scan_polars(table.uri).collect(),
        lambda: table.insert(pa.table({"col1": pa.array([1], pa.int32())})),
    )
    for read in reads:
        with pytest.raises(HudiError) as raised:
            read()
        assert isinstance(raised.value, Unsupported), raised.value


@pytest.mark.parametrize("version", [6, 8])
def test_commits_without_files_are_an_empty_table(version: int, tmp_path: Path) -> None:
    table = Table(registered_by_xtable(tmp_path, version, []), options=OFF)
    assert table.scan().to_arrow().num_rows == table.count() == 0


@pytest.mark.parametrize("lost", ["files", "partition metadata"])
def test_committed_files_that_no_listing_shows(lost: str, tmp_path: Path) -> None:
    table = Table.create(tmp_path, record_key="id", partition_by=["city"], options=OFF)
    table.insert(pa.table({"id": [1, 2], "city": ["x", "y"]}))
    pattern = "*/*.parquet" if lost == "files" else "*/.hoodie_partition_metadata"
    for file in tmp_path.glob(pattern):
        file.unlink()
    for read in (lambda: table.scan().to_arrow(), table.count, lambda: table.scan(filter="id > 1").to_arrow()):
        with pytest.raises(TableState, match=r"has no data files, but \d+ wrote [xy]/"):
            read()


def test_emptied_tables_stay_readable(tmp_path: Path) -> None:
    table = Table.create(tmp_path, record_key="id", partition_by=["city"], options=OFF)
    table.insert(pa.table({"id": [1, 2], "city": ["x", "y"]}))
    table.delete_partitions(["x", "y"])
    assert table.count() == 0 and table.scan(filter="city = 'x'").to_arrow().num_rows == 0
    assert table.scan(filter="id = 1").to_arrow().num_rows == 0


@pytest.mark.parametrize("sign", ["property", "file"])
def test_native_logs_are_refused(sign: str, tmp_path: Path) -> None:
    table = Table.create(
        tmp_path, record_key="id", table_type="MERGE_ON_READ", options={**OFF, "hoodie.write.table.version": "9"}
    )
    rows = pa.table({"id": [1, 2], "v": [1, 1]})
    table.upsert(rows)
    (base,) = tmp_path.glob("*.parquet")
    group, token, rest = base.name.split("_")
    if sign == "file":
        (tmp_path / f"{group}_{token}_{rest.removesuffix('.parquet')}_1.log.parquet").write_bytes(base.read_bytes())
    else:
        properties = tmp_path / ".hoodie" / "hoodie.properties"
        lines = [line for line in properties.read_text().splitlines() if not line.startswith("#")]
        properties.write_text("\n".join([*lines, "hoodie.table.storage.layout=lsm_tree", ""]))
    for action in (lambda: Table(tmp_path).scan().to_arrow(), lambda: Table(tmp_path).upsert(rows)):
        with pytest.raises(Unsupported, match=r"native log files \(release 1\.3"):
            action()
