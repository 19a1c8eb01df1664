"""Timestamps that releases of Hudi before 1.1 stored in another type than the table declares."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pyhudi as hp
from pyhudi import Table
from tests.support.old_timestamps import COLUMNS, KEYS, NOON, TIMES, OldWriter, found, old_table, rows, stored_times


@pytest.fixture(params=[False, True], ids=["declared at creation", "of an older release"])
def table(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    return Table(old_table(tmp_path, monkeypatch, is_upgraded=request.param))


READERS: dict[str, Callable[[Table], pa.Table]] = {
    "scan": lambda table: table.scan(COLUMNS).to_arrow(),
    "batches": lambda table: pa.Table.from_batches(table.scan(COLUMNS).to_batches()),
    "dataset": lambda table: table.scan(COLUMNS).to_dataset().to_table(),
    "duckdb": lambda table: table.scan(COLUMNS).to_duckdb(duckdb.connect()).to_arrow_table(),
    "polars": lambda table: hp.scan_polars(table.uri).select(COLUMNS).collect().to_arrow(),
    "polars filter": lambda table: (
        hp.scan_polars(table.uri).select(COLUMNS).filter(pl.col("seen") > pl.lit(NOON - timedelta(days=1))).collect().to_arrow()
    ),
    "sql": lambda table: hp.sql("SELECT id, seen, clock FROM t WHERE seen IS NOT NULL", tables={"t": table}),
    "read optimized": lambda table: table.read_optimized(COLUMNS).to_arrow(),
}


@pytest.mark.parametrize("reader", sorted(READERS))
def test_every_reader_shows_times_in_the_declared_unit(reader: str, table: Table) -> None:
    assert found(READERS[reader](table)) == stored_times()


@pytest.mark.parametrize("name", ["seen", "clock"])
def test_filters_find_what_reads_show(name: str, table: Table) -> None:
    expected = stored_times()
    for key in KEYS:
        value = expected[key][name == "clock"]
        assert table.scan(["id"], filter=[(name, "=", value)]).to_arrow()["id"].to_pylist() == [key]
        after = table.scan(["id"], filter=[(name, ">", value)])
        assert sorted(after.to_arrow()["id"].to_pylist()) == [other for other in KEYS if other > key]


def test_merges_and_rewrites_keep_the_times(table: Table) -> None:
    table.upsert(rows("b", hours=1))
    assert found(table.scan(COLUMNS).to_arrow()) == {**stored_times(), **stored_times("b", 1)}
    table.upsert(rows("c", hours=2), options={"hoodie.logfile.data.block.format": "avro"})
    table.compact()
    assert found(table.scan(COLUMNS).to_arrow()) == {**stored_times(), **stored_times("b", 1), **stored_times("c", 2)}
    newest = max(Path(table.uri.removeprefix("file:")).glob("*.parquet"), key=lambda file: file.name.rpartition("_")[2])
    stored = pq.ParquetFile(newest).schema_arrow
    assert [stored.field(name).type for name in ("seen", "clock")] == [pa.timestamp("ms", "UTC"), pa.timestamp("ms")]
    table.index.rebuild()
    assert table.validate().ok, str(table.validate())


def test_statistics_are_built_in_microseconds(table: Table) -> None:
    """The footers of old files give the statistics of a new metadata table."""
    table.index.create("column_stats", ["seen", "clock"])
    assert table.validate().ok, str(table.validate())
    for key, (seen, clock) in stored_times().items():
        assert table.scan(["id"], filter=[("seen", "=", seen)]).to_arrow()["id"].to_pylist() == [key]
        assert table.scan(["id"], filter=[("clock", "=", clock)]).to_arrow()["id"].to_pylist() == [key]


def test_values_that_are_no_milliseconds_are_microseconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table whose declaration changed to milliseconds keeps files of microseconds."""
    monkeypatch.setattr(OldWriter, "micros", True)
    table = Table(old_table(tmp_path, monkeypatch))
    assert found(table.scan(COLUMNS).to_arrow()) == stored_times()
    assert table.scan(["id"], filter=[("seen", "=", TIMES["c"])]).to_arrow()["id"].to_pylist() == ["c"]
