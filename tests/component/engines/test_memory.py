"""Streams larger than the memory budget give the same table as in memory, with bounded Arrow memory."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pyhudi import Table
from pyhudi.engines.arrow import engine
from pyhudi.engines.arrow.incoming import LocalIncoming
from pyhudi.tasks import base_file_writer, write_base_files
from tests.support.needs import WIDE
from tests.support.rows import assert_same_rows

_names = itertools.count()
SMALL = {"hoodie.index.bloom.num_entries": 1000, "hoodie.clean.automatic": False, "pyhudi.threads": 2}
SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
SPILLED = {"pyhudi.memory.budget.bytes": 20_000}


def stream(count: int, *, step: int = 500, shift: int = 0, every: int = 1) -> pa.RecordBatchReader:
    """Rows of `count` keys, each twice, the newer one earlier."""

    def batches() -> Iterator[pa.RecordBatch]:
        for turn in (2, 1):
            for start in range(0, count, step):
                numbers = range(start, min(count, start + step))
                yield pa.record_batch(
                    {
                        "id": [f"k{(n * 7919) % count * every:06d}" for n in numbers],
                        "part": [f"p{(n * 7919) % count * every % 3}" for n in numbers],
                        "ts": [turn + shift for _ in numbers],
                        "v": [f"{n}-{turn}-{shift}" for n in numbers],
                    },
                    schema=SCHEMA,
                )

    return pa.RecordBatchReader.from_batches(SCHEMA, batches())


def table_of(partitioned: bool, options: Mapping[str, object]) -> Table:
    return Table.create(
        f"memory://spill-{next(_names)}/t",
        record_key="id",
        partition_by="part" if partitioned else None,
        ordering="ts",
        options={**SMALL, **options},
    )


@pytest.fixture
def spills(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each write whether its rows were spilled."""
    noted: list[bool] = []
    original = LocalIncoming.release

    def release(self: LocalIncoming) -> None:
        noted.append(self.spilled)
        original(self)

    monkeypatch.setattr(LocalIncoming, "release", release)
    return noted


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("partitioned", "index"),
    [
        (True, "SIMPLE"),
        (False, "BLOOM"),
        # Keys are looked for in other partitions.
        (True, "GLOBAL_SIMPLE"),
        *(pytest.param(*rest, marks=pytest.mark.wide) for rest in ((False, "SIMPLE"), (True, "BLOOM"), (False, "GLOBAL_SIMPLE"))),
    ],
)
def test_upsert(partitioned: bool, index: str, spills: list[bool]) -> None:
    found = []
    for options in ({}, SPILLED):
        table = table_of(partitioned, {"hoodie.index.type": index, **options})
        table.upsert(stream(3000))
        # Two thirds of the keys are there, and the rest is new.
        result = table.upsert(stream(2000, shift=5, every=2))
        assert (result.rows_updated, result.rows_inserted) == (1500, 500)
        found.append(table.scan().to_arrow())
    assert spills == [False, False, True, True]
    assert found[0].num_rows == 3500
    assert_same_rows(found[1], found[0])


def test_partitions_change_under_a_global_index(spills: list[bool]) -> None:
    found = []
    for options in ({}, SPILLED):
        table = table_of(True, {"hoodie.index.type": "GLOBAL_SIMPLE", **options})
        table.upsert(stream(3000))
        moved = table.scan().to_arrow()
        # Some move, some stay, some are older than what is stored.
        parts = [f"p{int(key[1:]) % 2}" for key in moved["id"].to_pylist()]
        stamps = [1 if int(key[1:]) % 5 == 0 else 9 for key in moved["id"].to_pylist()]
        moved = moved.set_column(1, "part", pa.array(parts)).set_column(2, "ts", pa.array(stamps))
        table.upsert(moved.to_reader(max_chunksize=300))
        found.append(table.scan().to_arrow())
    assert spills == [False, False, True, True]
    assert found[0].num_rows == 3000
    assert_same_rows(found[1], found[0])


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("partitioned", "sort"),
    [
        (True, "NONE"),
        (True, "PARTITION_SORT"),
        pytest.param(False, "NONE", marks=pytest.mark.wide),
        (False, "PARTITION_SORT"),
    ],
)
def test_bulk_insert(partitioned: bool, sort: str, spills: list[bool]) -> None:
    found = []
    for options in ({}, SPILLED):
        table = table_of(partitioned, {"hoodie.bulkinsert.sort.mode": sort, "hoodie.parquet.max.file.size": 50_000, **options})
        assert table.bulk_insert(stream(5000)).rows_inserted == 10_000
        found.append(table.scan("*").to_arrow())
    assert spills == [False, True]
    data = [rows.select(SCHEMA.names) for rows in found]
    assert_same_rows(data[1], data[0])
    if sort != "NONE":
        for rows in found:
            for name in set(rows.column("_hoodie_file_name").to_pylist()):
                keys = rows.filter(pc.equal(rows["_hoodie_file_name"], name))["id"].to_pylist()
                assert keys == sorted(keys)


def test_insert_and_delete(spills: list[bool]) -> None:
    found = []
    for options in ({}, SPILLED):
        table = table_of(True, options)
        table.insert(stream(2000), options={"hoodie.combine.before.insert": True})
        keys = pa.RecordBatchReader.from_batches(
            pa.schema([SCHEMA.field("id")]),
            (batch.select(["id"]) for batch in stream(1000, every=2)),
        )
        assert table.delete(keys).rows_deleted == 1000
        found.append(table.scan().to_arrow())
    assert spills == [False, False, True, True]
    assert_same_rows(found[1], found[0])


def test_spilled_files_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    table = table_of(True, SPILLED)
    table.upsert(stream(2000))

    def broken() -> Iterator[pa.RecordBatch]:
        yield from stream(2000)
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="the source broke"):
        table.upsert(pa.RecordBatchReader.from_batches(SCHEMA, broken()))
    assert list(tmp_path.iterdir()) == []
    assert table.scan().to_arrow().num_rows == 2000


def test_freed_memory_is_released_by_the_thread_that_freed_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the input is read, after each task, merged batch and row group; Arrow's allocator retains memory per thread."""
    releases: list[tuple[str, int]] = []
    for module in (engine, base_file_writer, write_base_files):
        name = module.__name__.rpartition(".")[2]
        monkeypatch.setattr(module, "release_unused_memory", lambda name=name: releases.append((name, threading.get_ident())))
    table = table_of(True, {"pyhudi.threads": 1})
    table.upsert(stream(900))
    releases.clear()
    table.upsert(stream(900, shift=5))
    counts = Counter(name for name, _ in releases)
    # One row group and one batch of each of the three files; the input, and the tasks of lookup and writing.
    assert counts["base_file_writer"] >= 3
    assert counts["write_base_files"] == 3
    assert counts["engine"] >= 1 + 3

    workers: list[int] = []
    releases.clear()
    gate = threading.Barrier(2)

    def task(_: int) -> None:
        gate.wait(timeout=60)
        workers.append(threading.get_ident())

    engine.LocalEngine(2).map(task, range(2))
    assert len(set(workers)) == 2
    assert sorted(releases) == sorted(("engine", worker) for worker in workers)


_PROGRAM = """
import sys
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyhudi import Table

path, operation, sort, budget, batches = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
schema = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("v", pa.string())])

def stream(turn):
    for number in range(batches):
        numbers = pa.array((np.arange(number * 5000, (number + 1) * 5000) * 7919) % 1000003)
        ids = pc.binary_join_element_wise("key", pc.utf8_lpad(numbers.cast(pa.string()), 30, "0"), "-")
        parts = pc.binary_join_element_wise("p", pc.utf8_slice_codeunits(ids, -1), "")
        values = pc.binary_join_element_wise(ids, ids, ids, ids, ids, ids, "")
        yield pa.record_batch([ids, parts, pa.repeat(pa.scalar(turn), 5000), values], schema=schema)

options = {"pyhudi.memory.budget.bytes": budget, "hoodie.bulkinsert.sort.mode": sort, "pyhudi.threads": 1,
    "hoodie.clean.automatic": False, "hoodie.parquet.max.file.size": 4000000, "hoodie.copyonwrite.record.size.estimate": 400}
table = Table.create(path, record_key="id", partition_by="part", ordering="ts", options=options)
for turn in range(1 if operation == "bulk_insert" else 2):
    getattr(table, operation)(pa.RecordBatchReader.from_batches(schema, stream(turn)))
print(pa.default_memory_pool().max_memory(), table.scan().count())
"""


def peak_bytes(path: Path, operation: str, sort: str, budget: int, batches: int) -> int:
    command = [sys.executable, "-c", _PROGRAM, str(path), operation, sort, str(budget), str(batches)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=1200).stdout.split()
    assert int(answer[1]) == batches * 5000
    return int(answer[0])


@pytest.mark.full
@pytest.mark.parametrize(("operation", "sort"), [("upsert", "NONE"), ("bulk_insert", "NONE"), ("bulk_insert", "PARTITION_SORT")])
def test_memory_stays_bounded(tmp_path: Path, operation: str, sort: str) -> None:
    """Fifty times the budget, or eighty, is written with a few times the budget, however much it is."""
    budget = 2 << 20
    some = peak_bytes(tmp_path / "some", operation, sort, budget, 15)
    more = peak_bytes(tmp_path / "more", operation, sort, budget, 45 if WIDE else 30)
    # The upsert keeps 24 bytes for each row in addition to the budget, and a filter of each open file.
    assert more < 16 * budget
    assert more < some + 4 * budget
