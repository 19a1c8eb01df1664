"""One table with a metadata table that PyHudi and Apache Hudi write in turn, and a dictionary that knows what must be in it.

Rows are compared four ways: what must be there, what we read, what Apache Hudi reads by listing directories, and what it reads
through the metadata table with filters that it prunes files and partitions by.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from pyhudi import Table
from pyhudi.format.instants import Action
from pyhudi.metadata_table.reader.index_lookups import find_partitions, find_records, scan_files
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from tests.interop.oracle import ApacheHudi
from tests.support.needs import WIDE
from tests.support.rows import assert_same_rows, without_meta

Row = dict[str, Any]
OPERATION = "hoodie.datasource.write.operation"
BY_METADATA: dict[str, Any] = {"hoodie.metadata.enable": True}
BY_LISTING: dict[str, Any] = {"hoodie.metadata.enable": False}
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

    hudi: ApacheHudi
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
            # Each file group of an index is a task of Hudi in every write; test_data_skipping.py has two of them.
            "hoodie.metadata.index.column.stats.file.group.count": 1,
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

    def ours(self, operation: str, data: pa.Table, *, filters: int = 0, check: bool = True, **options: Any) -> None:
        """check: whether all readers read after it; if more writes follow at once, a read after the last one suffices."""
        getattr(self.table, operation)(data, options=options)
        self._apply(operation, data)
        if check:
            self.check(filters)

    def theirs(self, operation: str, data: pa.Table, *, filters: int = 0, check: bool = True, **options: Any) -> None:
        """check: whether PyHudi reads after it. Hudi reads its own write if filters are requested; its next read is after the
        next write of PyHudi.
        """
        self.hudi.write(data, self.path, **{**self.options, OPERATION: operation, **options})
        self._apply(operation, data)
        if check:
            self.check(filters, by_hudi=WIDE or filters > 0)

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

    def check(self, filters: int = len(FILTERS), *, by_hudi: bool = True) -> None:
        """All readers return the expected rows, and the metadata table matches the files.

        filters: how many of FILTERS Apache Hudi reads with; each takes seconds. by_hudi: whether it reads at all.
        """
        expected = pa.Table.from_pylist(list(self.rows.values()), SCHEMA)
        found = self.table.scan().to_arrow()
        assert_same_rows(found, expected, key=["id"])
        self.check_listing()
        if by_hudi:
            self.check_filters([("true", lambda row: True), *FILTERS[:filters]])

    def check_filters(self, filters: Sequence[tuple[str, Callable[[Row], bool]]]) -> None:
        """One request: Apache Hudi, which prunes by the metadata table, finds for each filter the rows that it chooses."""
        found = self.hudi.read_each(self.path, [text for text, _ in filters], **BY_METADATA)
        for (text, keep), real in zip(filters, found, strict=True):
            wanted = pa.Table.from_pylist([row for row in self.rows.values() if keep(row)], SCHEMA)
            try:
                assert_same_rows(without_meta(real), wanted, key=["id"])
            except AssertionError as error:
                error.add_note(f"read with {text}")
                raise

    def check_by_listing(self) -> None:
        """Apache Hudi finds the same rows in directories."""
        expected = pa.Table.from_pylist(list(self.rows.values()), SCHEMA)
        assert_same_rows(without_meta(self.hudi.read(self.path, **BY_LISTING)), expected, key=["id"])

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
