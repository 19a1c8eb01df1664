"""Timeline files of Apache Hudi are decoded and encoded to the same bytes."""

from __future__ import annotations

import io
import zipfile

import pytest

from pyhudi.format.actions.commit_metadata import CommitMetadata
from pyhudi.format.instants import parse_instant_file
from pyhudi.format.partition_metadata import PartitionMetadata
from pyhudi.format.paths import PARTITION_METADATA_FILE
from pyhudi.format.properties import format_properties, parse_properties, table_checksum
from pyhudi.format.table_versions import TimelineLayout, parse_table_version, parse_timeline_layout
from tests.support.vectors import vector

TABLES = ("cow_v8_nonpartitioned", "cow_v8_simplekeygen_nonhivestyle", "mor_parquet_v6_nonpartitioned")


def _files(table: str) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(vector(f"tables/{table}.zip"))) as archive:
        names = [name for name in archive.namelist() if not name.startswith("__MACOSX") and not name.endswith("/")]
        return {name.partition("/")[2]: archive.read(name) for name in names}


@pytest.mark.parametrize("table", TABLES)
def test_properties_of_real_tables(table: str) -> None:
    data = _files(table)[".hoodie/hoodie.properties"]
    values = parse_properties(data)
    comments = [line[1:] for line in data.decode("latin-1").splitlines() if line.startswith("#")]
    assert format_properties(values, comments) == data
    checksum = table_checksum(values.get("hoodie.database.name", ""), values["hoodie.table.name"])
    assert values["hoodie.table.checksum"] == str(checksum)
    version = parse_table_version(values["hoodie.table.version"])
    assert version.layout is parse_timeline_layout(values["hoodie.timeline.layout.version"])


@pytest.mark.parametrize("table", TABLES)
def test_timelines_of_real_tables(table: str) -> None:
    files = _files(table)
    layout = TimelineLayout.V1 if "_v6_" in table else TimelineLayout.V2
    folder = ".hoodie/" if layout is TimelineLayout.V1 else ".hoodie/timeline/"
    completed = []
    for path, data in files.items():
        name = path.rpartition("/")[2]
        if path != folder + name or (instant := parse_instant_file(name, layout)) is None:
            continue
        assert instant.file_name(layout) == name
        metadata = CommitMetadata.decode(data)
        if data[:1] == b"O":
            assert metadata.encode(data[-16:]) == data
        if instant.is_completed:
            completed.append(instant)
            assert metadata.write_stats
            assert {stat.path for stat in metadata.write_stats} <= set(files)
            sizes = {stat.path: stat.file_size_in_bytes for stat in metadata.write_stats}
            assert all(len(files[one]) == size for one, size in sizes.items() if one is not None)
    assert len(completed) == 2


@pytest.mark.parametrize("table", TABLES)
def test_partitions_of_real_tables(table: str) -> None:
    found = {path: data for path, data in _files(table).items() if path.endswith(PARTITION_METADATA_FILE)}
    assert found
    for path, data in found.items():
        metadata = PartitionMetadata.decode(data)
        assert metadata.depth == path.count("/")
        assert data.endswith(metadata.encode(0).partition(b"1970\n")[2])
