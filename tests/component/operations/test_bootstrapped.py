"""METADATA_ONLY bootstrap: rows are read from the source files together with their meta columns."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyhudi import Table
from pyhudi.errors import CorruptData, TableState, Unsupported
from tests.support.bootstrapped import INDEX, point_at
from tests.support.golden_tables import open_golden

CITY = "city=chicago"


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(open_golden("cow_bootstrapped", tmp_path).path)


def source_of(table: Table) -> Path:
    return Path(table.uri.removeprefix("file:") + "-source") / CITY / "part-0.parquet"


def test_time_travel_and_incremental_queries(table: Table) -> None:
    first, second = table.timeline().completed_writes()
    assert first.request_time == "00000000000001"
    before = {row["id"]: row for row in table.scan(as_of=first.request_time).to_arrow().to_pylist()}
    assert set(before) == {f"t{n:03d}" for n in range(9)}
    assert {row["ts"] for row in before.values()} == {1}
    made = table.incremental(first.completion_time or "", first.completion_time).to_arrow()
    assert {row["id"]: row for row in made.to_pylist()} == before
    changed = table.incremental(second.completion_time or "", columns=["id", "fare"]).to_arrow()
    assert sorted(changed["id"].to_pylist()) == ["t000", "t010"]


def test_columns_and_filters(table: Table) -> None:
    """Of both sides, of one of them, and of neither."""
    chosen = table.scan(["_hoodie_record_key", "fare"], filter="city = 'chicago' AND id >= 't005'").to_arrow()
    assert sorted(chosen["_hoodie_record_key"].to_pylist()) == ["t005", "t008"]
    assert table.scan(["rider"], filter="_hoodie_record_key = 't008'").to_arrow().num_rows == 1
    assert table.scan(["_hoodie_record_key"]).to_arrow().num_rows == table.scan().count() == 10
    assert table.scan(["fare"]).to_arrow().num_rows == 10
    assert table.lookup(["t008"]).to_arrow()["city"].to_pylist() == ["chicago"]


def test_files_that_changed_are_found_out(table: Table) -> None:
    source = source_of(table)
    held = source.stat()
    rows = pq.read_table(source)
    os.utime(source, ns=(held.st_atime_ns, held.st_mtime_ns + 5_000_000))
    with pytest.raises(CorruptData, match="has changed since"):
        table.scan().to_arrow()
    os.utime(source, ns=(held.st_atime_ns, held.st_mtime_ns))
    assert table.scan().count() == table.scan().to_arrow().num_rows == 10

    pq.write_table(rows.slice(1), source)
    sources = {folder.name: folder / "part-0.parquet" for folder in source.parents[1].iterdir()}
    point_at(Path(table.uri.removeprefix("file:")), sources)
    with pytest.raises(CorruptData, match="the row counts of a base file"):
        table.scan().to_arrow()
    source.unlink()
    with pytest.raises(TableState, match=r"part-0\.parquet is missing"):
        table.scan().to_arrow()
    # The other partitions are as they were.
    assert table.scan(filter="city <> 'chicago'").to_arrow().num_rows == 7


def test_a_damaged_index_is_named(table: Table) -> None:
    (index,) = (Path(table.uri.removeprefix("file:")) / INDEX).glob("*.hfile")
    whole = index.read_bytes()
    for damaged in (whole[:-9], whole[: len(whole) // 2], b"", whole[:99] + bytes([whole[99] ^ 1]) + whole[100:]):
        index.write_bytes(damaged)
        with pytest.raises(CorruptData) as caught:
            table.scan().to_arrow()
        assert ".bootstrap" in str(caught.value)
    index.unlink()
    with pytest.raises(CorruptData, match="the bootstrap index lacks the source file"):
        table.scan().to_arrow()


def test_table_bootstrapped_by_hudi_is_written_and_serviced(table: Table) -> None:
    """File groups without their rows become whole ones; the source files stay."""
    sources = {path: path.read_bytes() for path in source_of(table).parents[1].rglob("*.parquet")}
    rows = {row["id"]: row for row in table.scan().to_arrow().to_pylist()}
    table.upsert(table.scan(filter="id = 't005'").to_arrow())
    table.delete(where="id = 't000'")
    assert {row["id"]: row for row in table.scan().to_arrow().to_pylist()} == {k: r for k, r in rows.items() if k != "t000"}
    table.cluster()
    versions = {"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": 1}
    table.clean(dry_run=False, options=versions)
    assert {row["id"]: row for row in table.scan().to_arrow().to_pylist()} == {k: r for k, r in rows.items() if k != "t000"}
    assert not list(Path(table.uri.removeprefix("file:")).rglob("*_00000000000001.parquet"))
    assert table.validate(keys=True).ok
    assert {path: path.read_bytes() for path in source_of(table).parents[1].rglob("*.parquet")} == sources
    for act in (table.upgrade, lambda: table.alter.drop("rider")):
        with pytest.raises(Unsupported, match="was bootstrapped"):
            act()


def test_columns_come_in_the_order_of_the_table(table: Table) -> None:
    assert table.schema().names == ["id", "ts", "rider", "fare", "city"]
    assert table.scan(["city", "_hoodie_commit_time", "id"]).to_arrow().schema.field("city").type == pa.string()
