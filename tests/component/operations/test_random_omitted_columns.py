"""Random operations on tables whose files lack the partition columns, against a dictionary."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyhudi import Table
from pyhudi.storage.environment import ReplayEnvironment
from tests.support.needs import WIDE

REGIONS = ("north/east", "a=b c", "ü", None)
SCHEMA = pa.schema(
    [("id", pa.string()), ("level", pa.int32()), ("region", pa.string()), ("ts", pa.int64()), ("note", pa.string())]
)
NAMES = tuple(SCHEMA.names)
Row = tuple[Any, ...]
Rows = dict[tuple[str, int, str | None], Row]


class Run:
    """A table and the rows that it must have, by key and partition."""

    def __init__(self, path: Path, seed: int, *, typed: bool, metadata: bool, hive: bool) -> None:
        self.draw = random.Random(seed)
        self.path, self.typed = path, typed
        options = {
            "hoodie.datasource.write.drop.partition.columns": True,
            "hoodie.datasource.write.hive_style_partitioning": hive,
            "hoodie.datasource.write.partitionpath.urlencode": True,
            "hoodie.metadata.enable": metadata,
            "hoodie.index.bloom.num_entries": 100,
            "hoodie.clean.automatic": False,
        }
        self.table = Table.create(
            path,
            record_key="id",
            partition_by=["region", "level"],
            ordering="ts",
            schema=SCHEMA if typed else None,
            options=options,
            environment=ReplayEnvironment(seed),
        )
        self.rows: Rows = {}
        self.past: list[tuple[str, str, Rows]] = []
        self.saved: tuple[str, Rows] | None = None
        self.clock = 0

    def made(self, count: int) -> list[Row]:
        self.clock += 1
        keys = self.draw.sample([(f"k{n}", level, region) for n in range(6) for level in (0, 1) for region in REGIONS], count)
        return [(key, level, region, self.clock, f"note {self.clock}") for key, level, region in keys]

    def step(self) -> str:
        verbs = [Run.upsert] * 4 + [Run.insert, Run.delete, Run.delete_where, Run.overwrite, Run.drop, Run.cluster, Run.clean]
        verb = self.draw.choice([*verbs, Run.save, Run.restore, Run.roll_back] if self.past else [Run.upsert])
        verb(self)
        return verb.__name__

    def upsert(self) -> None:
        rows = self.made(5)
        self.done(self.table.upsert(arrow(rows)), {**self.rows, **{row[:3]: row for row in rows}})

    def insert(self) -> None:
        rows = [row for row in self.made(6) if row[:3] not in self.rows]
        if rows:
            self.done(self.table.bulk_insert(arrow(rows)), {**self.rows, **{row[:3]: row for row in rows}})

    def delete(self) -> None:
        gone = self.draw.sample(sorted(self.rows, key=str), min(3, len(self.rows)))
        if gone:
            keys = arrow([self.rows[key] for key in gone]).select(["id", "level", "region"])
            self.done(self.table.delete(keys=keys), {key: row for key, row in self.rows.items() if key not in gone})

    def delete_where(self) -> None:
        number = self.draw.randrange(6)
        text, keep = self.question(number)
        left = {key: row for key, row in self.rows.items() if not keep(row)}
        if len(left) < len(self.rows):
            self.done(self.table.delete(where=text), left)

    def overwrite(self) -> None:
        rows = self.made(2)
        replaced = {row[1:3] for row in rows}
        left = {key: row for key, row in self.rows.items() if row[1:3] not in replaced}
        self.done(self.table.insert_overwrite(arrow(rows)), {**left, **{row[:3]: row for row in rows}})

    def drop(self) -> None:
        paths = sorted(self.table.inspect.partitions()["partition"].to_pylist())
        path = self.draw.choice(paths)
        # A row of the partition shows which one it is.
        told = self.table.scan(["_hoodie_partition_path", "level", "region"]).to_arrow().to_pylist()
        places = {(int(row["level"]), row["region"]) for row in told if row["_hoodie_partition_path"] == path}
        self.done(self.table.delete_partitions([path]), {key: row for key, row in self.rows.items() if row[1:3] not in places})

    def cluster(self) -> None:
        before = dict(self.rows)
        self.table.cluster()
        assert self.rows == before

    def clean(self) -> None:
        self.table.clean(dry_run=True)
        # What was cleaned is no state to travel to.
        self.past = self.past[-1:]

    def save(self) -> None:
        if self.saved is None:
            # That of the newest write, which may be a clustering.
            self.saved = (self.table.savepoint().instant, dict(self.rows))

    def restore(self) -> None:
        if self.saved is not None:
            instant, rows = self.saved
            self.table.restore(instant)
            self.saved, self.rows, self.past = None, rows, []

    def roll_back(self) -> None:
        last = self.table.timeline().completed_writes()[-1].request_time
        if len(self.past) >= 2 and last == self.past[-1][0] and (self.saved is None or self.saved[0] < last):
            self.table.rollback(last)
            self.past.pop()
            self.rows = dict(self.past[-1][2])

    def done(self, result: Any, rows: Rows) -> None:
        self.rows = rows
        if result.instant is not None:
            self.past.append((result.instant, result.completion_time, dict(rows)))

    def question(self, number: int) -> tuple[str, Any]:
        """A filter, and what it chooses."""
        level = "1" if self.typed else "'1'"
        return [
            (f"level = {level}", lambda row: row[1] == 1),
            ("region = 'a=b c'", lambda row: row[2] == "a=b c"),
            ("region is null", lambda row: row[2] is None),
            (f"id = 'k3' and level = {level}", lambda row: row[0] == "k3" and row[1] == 1),
            ("region in ('ü', 'north/east') and ts > 2", lambda row: row[2] in ("ü", "north/east") and row[3] > 2),
            ("id > 'k4'", lambda row: row[0] > "k4"),
        ][number]

    def check(self) -> None:
        expected = set(self.rows.values())
        assert self.read() == expected
        for number in range(6):
            text, keep = self.question(number)
            assert self.read(filter=text) == {row for row in expected if keep(row)}, text
        assert self.plain(self.table.scan(list(NAMES)).to_dataset().to_table()) == expected
        assert {row[2] for row in expected} == {row["region"] for row in self.table.scan(["region"]).to_arrow().to_pylist()}
        if self.past:
            instant, completed, rows = self.draw.choice(self.past)
            assert self.read(as_of=instant) == set(rows.values())
            changed = self.plain(self.table.incremental(completed).to_arrow().select(NAMES))
            assert changed <= expected
        for file in self.path.rglob("*.parquet"):
            if ".hoodie" not in str(file.relative_to(self.path)):
                assert not {"level", "region"}.intersection(pq.read_schema(file).names), file
        assert self.table.validate().ok

    def read(self, **question: Any) -> set[Row]:
        return self.plain(self.table.scan(list(NAMES), **question).to_arrow())

    def plain(self, found: pa.Table) -> set[Row]:
        rows = [(row["id"], int(row["level"]), row["region"], row["ts"], row["note"]) for row in found.to_pylist()]
        assert len(rows) == len(set(rows))
        return set(rows)


def arrow(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(NAMES, row, strict=True)) for row in rows], SCHEMA)


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", range(12 if WIDE else 2))
def test_any_order_of_writes_services_and_reads(tmp_path: Path, seed: int) -> None:
    run = Run(tmp_path / "t", seed, typed=bool(seed % 2), metadata=seed % 3 != 1, hive=seed % 4 < 2)
    steps = []
    for _ in range(30 if WIDE else 12):
        steps.append(run.step())
        try:
            run.check()
        except Exception as error:
            error.add_note(f"seed {seed}, steps {steps}")
            raise
