"""The metadata table between PyHudi and the real Hudi: written, compacted and rolled back by either, and believed by both.

After each step the rows are compared four ways: what must be there, what we read, what the real Hudi reads by listing
directories, and what it reads through the metadata table with filters that it prunes files and partitions by.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.format.instants import Action
from pyhudi.table.metadata.indexes import find_partitions, find_records, scan_files
from pyhudi.table.metadata.records import MetadataTable
from tests.interop.oracle import RealHudi
from tests.rows import assert_same_rows, without_meta

Row = dict[str, Any]
OPERATION = "hoodie.datasource.write.operation"
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        ("fare", pa.float64()),
        ("seats", pa.int32()),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(12, 2)),
        ("note", pa.string()),
    ]
)
CITIES = ("oslo", "rome", "são paulo")
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)

FILTERS: tuple[tuple[str, Callable[[Row], bool]], ...] = (
    ("fare > 50", lambda row: row["fare"] is not None and row["fare"] > 50),
    ("fare < 3.5 AND seats >= 0", lambda row: row["fare"] is not None and row["fare"] < 3.5 and row["seats"] >= 0),
    ("id = 'k0005'", lambda row: row["id"] == "k0005"),
    ("id IN ('k0001', 'k0070') AND city = 'rome'", lambda row: row["id"] in ("k0001", "k0070") and row["city"] == "rome"),
    ("day > DATE'2026-02-01'", lambda row: row["day"] > datetime.date(2026, 2, 1)),
    ("moment <= TIMESTAMP'2026-01-20 00:00:00'", lambda row: row["moment"] <= START + datetime.timedelta(days=19)),
    ("price >= 60.25", lambda row: row["price"] is not None and row["price"] >= Decimal("60.25")),
    ("note IS NOT NULL AND ts > 1", lambda row: row["note"] is not None and row["ts"] > 1),
    ("seats = -1", lambda row: row["seats"] == -1),
)


def make(keys: Iterable[int], ts: int, **fixed: object) -> pa.Table:
    rows = []
    for number in keys:
        rows.append(
            {
                "id": f"k{number:04d}",
                "city": CITIES[number % 3],
                "ts": ts,
                "fare": None if number % 11 == 4 else float(number) + ts / 10,
                "seats": number % 7,
                "day": (START + datetime.timedelta(days=number)).date(),
                "moment": START + datetime.timedelta(days=number, microseconds=ts),
                "price": Decimal(number * 100 + ts) / 100 if number % 5 else None,
                "note": "x" * (number % 4) if number % 6 else None,
                **fixed,
            }
        )
    return pa.Table.from_pylist(rows, SCHEMA)


@dataclass
class Pair:
    """One table, its two writers, and the rows that it must have."""

    hudi: RealHudi
    path: Path
    kind: str
    more: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, Row] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, Any]:
        return {
            "hoodie.table.name": "pair",
            "hoodie.datasource.write.table.type": "COPY_ON_WRITE" if self.kind == "cow" else "MERGE_ON_READ",
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "city",
            "hoodie.datasource.write.precombine.field": "ts",
            "hoodie.metadata.enable": True,
            "hoodie.index.bloom.num_entries": 100,
            "hoodie.compact.inline.max.delta.commits": 3,
            **self.more,
        }

    @property
    def table(self) -> Table:
        return Table(self.path, options=self.options)

    @property
    def metadata(self) -> MetadataTable:
        context = self.table.context.reloaded()
        return MetadataTable(context, context.timeline.load())

    def ours(self, operation: str, data: pa.Table, *, filters: int = 0, **options: Any) -> None:
        getattr(self.table, operation)(data, options=options)
        self._apply(operation, data)
        self.check(filters)

    def theirs(self, operation: str, data: pa.Table, *, filters: int = 0, **options: Any) -> None:
        self.hudi.write(data, self.path, **{**self.options, OPERATION: operation, **options})
        self._apply(operation, data)
        self.check(filters)

    def create(self) -> None:
        Table.create(self.path, options=self.options)

    def _apply(self, operation: str, data: pa.Table) -> None:
        incoming = {row["id"]: row for row in data.to_pylist()}
        if operation == "insert_overwrite":
            touched = {row["city"] for row in incoming.values()}
            self.rows = {key: row for key, row in self.rows.items() if row["city"] not in touched}
        if operation == "delete":
            self.rows = {key: row for key, row in self.rows.items() if key not in incoming}
        else:
            self.rows.update(incoming)

    def check(self, filters: int = len(FILTERS)) -> None:
        """Everybody reads what must be there, and the metadata table says what is.

        filters: how many of FILTERS the real Hudi reads with; each takes seconds.
        """
        expected = pa.Table.from_pylist(list(self.rows.values()), SCHEMA)
        found = self.table.scan().to_arrow()
        assert_same_rows(found, expected, key=["id"])
        self.check_listing()
        assert_same_rows(without_meta(self.hudi.read(self.path, **{"hoodie.metadata.enable": True})), expected, key=["id"])
        for text, keep in FILTERS[:filters]:
            wanted = pa.Table.from_pylist([row for row in self.rows.values() if keep(row)], SCHEMA)
            real = without_meta(self.hudi.read(self.path, where=text, **{"hoodie.metadata.enable": True}))
            try:
                assert_same_rows(real, wanted, key=["id"])
            except AssertionError as error:
                error.add_note(f"read with {text}")
                raise

    def check_by_listing(self) -> None:
        """The real Hudi finds the same rows in directories."""
        expected = pa.Table.from_pylist(list(self.rows.values()), SCHEMA)
        assert_same_rows(without_meta(self.hudi.read(self.path, **{"hoodie.metadata.enable": False})), expected, key=["id"])

    def check_listing(self) -> None:
        """The files that the metadata table lists are those that are there."""
        there = {
            (str(path.parent.relative_to(self.path)), path.name, path.stat().st_size)
            for city in {*CITIES}
            for path in (self.path / city).glob("*")
            if path.suffix == ".parquet"
        } | {
            (str(path.parent.relative_to(self.path)), path.name, path.stat().st_size)
            for city in {*CITIES}
            for path in (self.path / city).glob(".*.log.*")
            if not path.name.endswith(".crc")
        }
        files = scan_files(self.metadata)
        listed = set(zip(*(files.column(i).to_pylist() for i in range(3)), strict=True))
        assert listed == there
        assert set(find_partitions(self.metadata)) == {partition for partition, _, _ in there}
        if "record_index" in self.metadata.partitions:
            every = pa.array([f"k{number:04d}" for number in range(400)])
            assert set(find_records(self.metadata, every).column("key").to_pylist()) == set(self.rows)

    def metadata_compactions(self) -> int:
        return len(self.metadata.timeline.completed(Action.COMMIT))


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_writers_take_turns(hudi: RealHudi, tmp_path: Path, kind: str, first: str) -> None:
    pair = Pair(hudi, tmp_path / "t", kind)
    if first == "ours":
        pair.create()
        pair.ours("upsert", make(range(60), 1))
    else:
        pair.theirs("upsert", make(range(60), 1))
    assert set(pair.metadata.partitions) == {"files", "column_stats", "partition_stats"}
    pair.ours("upsert", make(range(40, 80), 2), filters=2)
    pair.theirs("upsert", make(range(70, 90), 3))
    pair.ours("delete", make(range(5), 4))
    pair.theirs("delete", make(range(85, 90), 4))
    pair.ours("insert_overwrite", make([1, 61, 301], 5, city="rome"), filters=2)
    pair.theirs("insert_overwrite", make([2, 62, 302], 6, city="são paulo"))
    pair.ours("upsert", make(range(50, 70), 7, seats=-1))
    if kind == "mor":
        pair.table.compact()
    pair.theirs("upsert", make(range(60, 65), 8, note=None))
    pair.ours("upsert", make(range(63, 100), 9))
    pair.check()
    pair.check_by_listing()


@pytest.mark.parametrize("compactor", ["ours", "theirs"])
def test_either_compacts_the_metadata_table(hudi: RealHudi, tmp_path: Path, compactor: str) -> None:
    other = "hoodie.metadata.compact.max.delta.commits"
    pair = Pair(hudi, tmp_path / "t", "cow", {other: 3})
    never = {other: 100}
    pair.create()
    pair.ours("upsert", make(range(30), 1), **never)
    pair.theirs("upsert", make(range(20, 40), 2), **never)
    assert pair.metadata_compactions() == 0
    if compactor == "ours":
        pair.ours("upsert", make(range(30, 50), 3))
    else:
        # It compacts before it writes.
        pair.theirs("upsert", make(range(30, 50), 3))
    assert pair.metadata_compactions() == 1
    pair.ours("delete", make(range(2), 4), **never)
    pair.theirs("upsert", make(range(48, 52), 5), **never)
    pair.check()


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_record_index_and_bloom_filters(hudi: RealHudi, tmp_path: Path, kind: str) -> None:
    on = {
        "hoodie.metadata.record.index.enable": True,
        "hoodie.metadata.index.bloom.filter.enable": True,
        "hoodie.metadata.record.index.min.filegroup.count": 3,
    }
    theirs = {"hoodie.index.type": "RECORD_INDEX"}
    pair = Pair(hudi, tmp_path / "t", kind, on)
    pair.create()
    pair.ours("upsert", make(range(40), 1))
    assert {"record_index", "bloom_filters"} < set(pair.metadata.partitions)
    pair.theirs("upsert", make(range(30, 50), 2), **theirs)
    pair.ours("delete", make(range(3), 3))
    pair.ours("upsert", make(range(2, 60), 4))
    pair.theirs("delete", make(range(50, 55), 5), **theirs)
    pair.ours("insert_overwrite", make([1, 61, 301], 6, city="rome"))
    pair.theirs("upsert", make(range(0, 90, 2), 7), **theirs)
    if kind == "mor":
        pair.table.compact()
    pair.table.cluster()
    pair.theirs("upsert", make(range(1, 90, 3), 8), **theirs)
    pair.check(4)
    pair.check_by_listing()


def test_indexes_of_a_table_that_the_real_hudi_built(hudi: RealHudi, tmp_path: Path) -> None:
    """A table without metadata table gets one by our next write, from files that both wrote; the real Hudi goes on with it."""
    off = {"hoodie.metadata.enable": False}
    pair = Pair(hudi, tmp_path / "t", "mor")
    hudi.write(make(range(40), 1), pair.path, **{**pair.options, **off, OPERATION: "upsert"})
    hudi.write(make(range(30, 60), 2), pair.path, **{**pair.options, **off, OPERATION: "upsert"})
    pair.table.upsert(make(range(50, 70), 3), options=off)
    for data in (make(range(40), 1), make(range(30, 60), 2), make(range(50, 70), 3)):
        pair._apply("upsert", data)
    assert not pair.table.config.metadata_partitions
    pair.ours("upsert", make(range(60, 80), 4), filters=3)
    assert set(pair.metadata.partitions) == {"files", "column_stats", "partition_stats"}
    pair.theirs("upsert", make(range(70, 90), 5))
    pair.check()


@pytest.mark.parametrize("roller", ["ours", "theirs"])
def test_either_rolls_back(hudi: RealHudi, tmp_path: Path, roller: str) -> None:
    pair = Pair(hudi, tmp_path / "t", "mor", {"hoodie.compact.inline": False})
    pair.create()
    pair.ours("upsert", make(range(40), 1))
    before = dict(pair.rows)
    pair.ours("upsert", make(range(30, 60), 2))
    newest = pair.table.timeline().last_completed_write()
    assert newest is not None
    if roller == "ours":
        pair.table.rollback(newest.request_time)
    else:
        hudi.register(pair.path, "rolled")
        hudi.call("rollback_to_instant", table="rolled", instant_time=newest.request_time)
    pair.rows = dict(before)
    pair.check(2)
    pair.theirs("upsert", make(range(35, 45), 3))
    newest = pair.table.timeline().last_completed_write()
    assert newest is not None
    pair.table.rollback(newest.request_time)
    pair.rows = before
    pair.ours("upsert", make(range(38, 50), 4), filters=2)
    pair.theirs("upsert", make(range(45, 55), 5))


def test_restore_and_clean(hudi: RealHudi, tmp_path: Path) -> None:
    pair = Pair(hudi, tmp_path / "t", "cow", {"hoodie.clean.commits.retained": 2})
    pair.create()
    pair.ours("upsert", make(range(40), 1))
    saved = dict(pair.rows)
    point = pair.table.savepoint().instant
    for ts in range(2, 6):
        pair.ours("upsert", make(range(30, 40 + ts), ts))
    assert pair.table.timeline().completed(Action.CLEAN)
    pair.theirs("upsert", make(range(40, 60), 6))
    pair.table.restore(point)
    pair.rows = saved
    assert_same_rows(pair.table.scan().to_arrow(), pa.Table.from_pylist(list(saved.values()), SCHEMA), key=["id"])
    pair.theirs("upsert", make(range(35, 45), 7), filters=2)
    pair.ours("upsert", make(range(40, 50), 8), filters=2)
