"""Rows in files that no listing shows, or that are not read, are an error and never an empty table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.errors import TableState, Unsupported

OFF = {"hoodie.metadata.enable": False}


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
