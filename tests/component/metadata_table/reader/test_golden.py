"""Metadata tables of Apache Hudi list the same files as the directories, and their indexes agree with the rows."""

from __future__ import annotations

import warnings
from pathlib import Path

import pyarrow as pa
import pytest

from pyhudi.api.table import Table
from pyhudi.errors import CorruptData, TableState
from pyhudi.format.paths import PARTITION_METADATA_FILE
from pyhudi.metadata_table.codecs.files_codec import ALL_PARTITIONS
from pyhudi.metadata_table.reader import index_lookups
from pyhudi.metadata_table.reader.metadata_listing import MetadataListing, choose_listing
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.table.listing import DirectoryListing
from pyhudi.table.table_context import TableContext
from tests.support.golden_tables import golden_cases, open_golden
from tests.support.metadata_truth import scan_records
from tests.support.rows import assert_same_rows

WITH_METADATA = golden_cases(with_traits={"mdt"})


def opened(path: Path) -> tuple[TableContext, MetadataTable]:
    context = Table(path).context
    return context, MetadataTable(context, context.timeline.load())


# A downgrade leaves no statistics of the second form behind.
WITH_STATISTICS = [name for name in golden_cases(with_traits={"mdt"}) if name != "mor_v8_downgraded"]


@pytest.mark.parametrize("name", WITH_METADATA)
def test_the_listing_is_that_of_the_directories(name: str, tmp_path: Path) -> None:
    context, metadata = opened(open_golden(name, tmp_path).path)
    ours, directories = MetadataListing(metadata), DirectoryListing(context.storage)
    partitions = directories.partitions()
    assert ours.partitions() == partitions
    found = ours.files([*partitions, "nowhere"])
    assert found.pop("nowhere") == ()
    for partition, infos in directories.files(partitions).items():
        expected = {(i.path, i.size_bytes) for i in infos if not i.name.startswith(PARTITION_METADATA_FILE)}
        assert {(i.path, i.size_bytes) for i in found[partition]} == expected
        ids = {i.name.lstrip(".").split("_")[0] for i in found[partition]}
        one = sorted(ids)[:1]
        assert ours.group_files({partition: one}) == {
            partition: tuple(i for i in found[partition] if i.name.lstrip(".").startswith(f"{one[0]}_"))
        }
        assert {i.path for i in directories.group_files({partition: one})[partition]} == {
            i.path for i in ours.group_files({partition: one})[partition]
        }
    names = ours.names(partitions)
    assert names is not None and names.num_rows == sum(map(len, found.values()))
    scanned = index_lookups.scan_files(metadata)
    assert scanned.num_rows == names.num_rows and ALL_PARTITIONS not in scanned.column("partition").to_pylist()


@pytest.mark.parametrize("name", WITH_METADATA)
def test_a_table_is_read_through_it_without_listing(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    golden = open_golden(name, tmp_path)
    monkeypatch.setattr(DirectoryListing, "files", None)
    monkeypatch.setattr(DirectoryListing, "partitions", None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same_rows(Table(golden.path).scan(["*"]).to_arrow(), golden.expected("snapshot"))


@pytest.mark.parametrize("name", golden_cases(with_traits={"record_index"}))
def test_the_record_index_has_the_keys_of_the_table(name: str, tmp_path: Path) -> None:
    golden = open_golden(name, tmp_path)
    _, metadata = opened(golden.path)
    rows = golden.expected("snapshot")
    keys = rows["_hoodie_record_key"].combine_chunks()
    scanned = pa.Table.from_batches(scan_records(metadata))
    assert sorted(scanned["key"].to_pylist()) == sorted(keys.to_pylist())
    asked = pa.concat_arrays([keys, keys, pa.array(["nobody", "😀"])])
    found = index_lookups.find_records(metadata, asked)
    assert sorted(found.to_pylist(), key=str) == sorted(scanned.to_pylist(), key=str)
    where = dict(zip(keys.to_pylist(), rows["_hoodie_partition_path"].to_pylist(), strict=True))
    assert {row["key"]: row["partition"] for row in found.to_pylist()} == where
    assert not metadata.is_ahead


@pytest.mark.parametrize("name", WITH_STATISTICS)
def test_statistics_by_prefix_are_those_of_a_scan(name: str, tmp_path: Path) -> None:
    _, metadata = opened(open_golden(name, tmp_path).path)
    everything = pa.Table.from_batches(index_lookups.scan_column_stats(metadata))
    columns = metadata.definitions["column_stats"].source_fields
    assert set(everything["column_name"].to_pylist()) == set(columns)
    assert index_lookups.find_column_stats(metadata, columns).num_rows == everything.num_rows
    one = index_lookups.find_column_stats(metadata, ["id"])
    assert set(one["column_name"].to_pylist()) == {"id"}
    hashes = index_lookups.hashes_by_partition(index_lookups.find_partitions(metadata))
    assert set(index_lookups.partition_hashes(one).to_pylist()) == set(hashes.values())
    few = index_lookups.find_column_stats(metadata, ["id"], sorted(hashes)[:1])
    assert set(index_lookups.partition_hashes(few).to_pylist()) == {hashes[sorted(hashes)[0]]}
    if "partition_stats" in metadata.partitions:
        assert sorted(index_lookups.find_partition_stats(metadata, ["id"])["file_name"].to_pylist()) == sorted(hashes)


def damaged(path: Path, how: str) -> None:
    metadata = path / ".hoodie" / "metadata"
    if how == "missing":
        metadata.rename(path / ".hoodie" / "elsewhere")
    elif how == "no files":
        (metadata / "files").rename(metadata / "gone")
    elif how == "properties":
        (metadata / ".hoodie" / "hoodie.properties").write_text("nothing=1\n")
    elif how == "torn log":
        log = max((metadata / "files").glob(".files-0000*"))
        log.write_bytes(log.read_bytes()[:-40])
    else:
        for file in (metadata / "files").glob("*files-0000*"):
            data = bytearray(file.read_bytes())
            if how == "cut":
                del data[len(data) // 2 :]
            else:
                data[:8] = b"########"
            file.write_bytes(data)


@pytest.mark.parametrize("how", ["missing", "no files", "properties", "cut", "torn log", "overwritten"])
def test_damaged_metadata_table_warns_and_the_read_is_correct(how: str, tmp_path: Path) -> None:
    golden = open_golden("mor_record_index", tmp_path)
    damaged(golden.path, how)
    with pytest.warns(RuntimeWarning, match=r"metadata") as caught:
        rows = Table(golden.path).scan(["*"]).to_arrow()
    assert_same_rows(rows, golden.expected("snapshot"))
    assert len(caught) == 1
    assert str(golden.path) in str(caught[0].message)
    _, metadata = opened(golden.path)
    with pytest.raises((CorruptData, TableState)):
        index_lookups.find_files(metadata, ["amsterdam"])


def test_a_table_of_version_6_lists_directories(tmp_path: Path) -> None:
    for name in golden_cases(with_traits={"v6"}):
        context = Table(open_golden(name, tmp_path).path).context
        assert isinstance(choose_listing(context, context.timeline.load()), DirectoryListing)


def test_newer_metadata_table_is_not_used_for_older_snapshots(tmp_path: Path) -> None:
    golden = open_golden("mor_record_index", tmp_path)
    timeline = golden.path / ".hoodie" / "timeline"
    newest = max(file.name.split("_")[0] for file in timeline.glob("*_*"))
    for file in timeline.glob(f"{newest}*"):
        # As a reader sees it that loaded the timeline before this commit and the metadata table after it.
        file.unlink()
    _, metadata = opened(golden.path)
    assert metadata.is_ahead
    scan = Table(golden.path).scan(["*"], "id = 't004'")
    assert not {"record index", "partition statistics"} & {step.step for step in scan.explain().prunings}
    assert scan.to_arrow()["ts"].to_pylist() == [1]


def test_a_pending_write_that_the_metadata_table_knows_is_not_seen(tmp_path: Path) -> None:
    golden = open_golden("mor_record_index", tmp_path)
    timeline = golden.path / ".hoodie" / "timeline"
    newest = max(timeline.glob("*_*"), key=lambda file: file.name)
    newest.unlink()
    context, metadata = opened(golden.path)
    instant = newest.name.split("_")[0]
    files = index_lookups.scan_files(metadata)
    assert not any(instant in name for name in files.column("name").to_pylist())
    assert any(instant in info.name for info in context.storage.list("berlin").files)
    assert not metadata.is_ahead
    assert Table(golden.path).scan(["ts"], "id = 't004'").to_arrow()["ts"].to_pylist() == [1]
