from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.tasks.spill import SPILL_BUCKETS, RowBuffer, load_part, map_rows, store_parts, store_rows

SCHEMA = pa.schema([("key", pa.string()), ("n", pa.int64())])


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    yield
    assert not os.listdir(tmp_path), "something was left on disk"


def table(start: int, count: int) -> pa.Table:
    numbers = range(start, start + count)
    return pa.table({"key": [f"k{n % 7}-{n}" for n in numbers], "n": numbers}, schema=SCHEMA)


def filled(budget: int, tables: int = 20, rows: int = 100) -> RowBuffer:
    buffer = RowBuffer(SCHEMA, "key", budget)
    for number in range(tables):
        buffer.append(table(number * rows, rows))
    return buffer


def test_within_the_budget_rows_stay_in_memory_and_in_order() -> None:
    buffer = filled(1 << 30)
    (rows,) = buffer.finish()
    assert not buffer.spilled
    assert rows.column("n").to_pylist() == list(range(2000))
    assert buffer.store(rows) is rows
    buffer.release()


def test_nothing_at_all() -> None:
    buffer = RowBuffer(SCHEMA, "key", 1)
    buffer.append(SCHEMA.empty_table())
    (rows,) = buffer.finish()
    assert rows.schema == SCHEMA
    assert rows.num_rows == 0
    buffer.release()


@pytest.mark.parametrize("budget", [1, 2000, 20000])
def test_beyond_the_budget_each_key_is_in_one_bucket_in_order_of_arrival(budget: int) -> None:
    buffer = filled(budget)
    buffer.append(pa.table({"key": ["k0-0"], "n": [-1]}, schema=SCHEMA))
    buckets = buffer.finish()
    assert buffer.spilled
    assert len(buckets) == SPILL_BUCKETS
    # No bucket takes more than a few times its share.
    assert max(bucket.num_rows for bucket in buckets) < 2001 / SPILL_BUCKETS * 4
    home: dict[str, int] = {}
    for number, bucket in enumerate(buckets):
        for key in bucket.column("key").to_pylist():
            assert home.setdefault(key, number) == number
    rows = buckets[home["k0-0"]].to_pylist()
    assert [row["n"] for row in rows if row["key"] == "k0-0"] == [0, -1]
    assert sorted(n for bucket in buckets for n in bucket.column("n").to_pylist()) == list(range(-1, 2000))
    stored = buffer.store(buckets[3])
    assert stored is not buckets[3]
    assert stored.equals(buckets[3])
    del rows, buckets, stored
    buffer.release()


@given(st.lists(st.text(max_size=4), max_size=200), st.integers(1, 4000), st.integers(1, 50))
def test_sorting_beyond_the_budget(keys: list[str], budget: int, chunk: int) -> None:
    given_rows = pa.table({"key": pa.array(keys, pa.string()), "n": range(len(keys))}, schema=SCHEMA)
    buffer = RowBuffer(SCHEMA, "key", budget)
    for start in range(0, len(keys), chunk):
        buffer.append(given_rows.slice(start, chunk))
    rows = pa.concat_tables(buffer.finish())
    parts = list(buffer.sorted_by_key(rows))
    found = [key for part in parts for key in part.column("key").to_pylist()]
    assert found == sorted(keys, key=str.encode)
    assert sorted(n for part in parts for n in part.column("n").to_pylist()) == list(range(len(keys)))
    del rows, parts
    buffer.release()


def test_release_before_the_end() -> None:
    filled(1000).release()
    filled(1 << 30).release()
    buffer = filled(1000)
    buffer.release()
    buffer.release()


def test_files_of_rows(tmp_path: Path) -> None:
    path = str(tmp_path / "rows.arrow")
    stored = store_rows(path, SCHEMA, [table(0, 3), table(3, 2)])
    assert stored.column("n").to_pylist() == [0, 1, 2, 3, 4]
    assert map_rows(path).equals(stored)
    assert store_rows(path + "2", SCHEMA, []).num_rows == 0
    before = pa.total_allocated_bytes()
    mapped = map_rows(path)
    assert pa.total_allocated_bytes() - before < 1000
    assert mapped.num_rows == 5
    for name in ("rows.arrow", "rows.arrow2"):
        (tmp_path / name).unlink()


def test_parts_are_read_one_at_a_time_in_the_order_of_their_rows(tmp_path: Path) -> None:
    path = str(tmp_path / "parts.arrow")
    pieces = [table(0, 100).to_batches()[0], table(100, 50).to_batches()[0]]
    parts = store_parts(path, SCHEMA, ((piece, 10 * (np.asarray(piece.column("n")) % 3)) for piece in pieces))
    assert parts.tolist() == [0, 10, 20] * 2
    read = [[n for batch in load_part(path, parts, part) for n in batch.column("n").to_pylist()] for part in (0, 5, 10, 20)]
    assert read == [list(range(0, 150, 3)), [], list(range(1, 150, 3)), list(range(2, 150, 3))]
    Path(path).unlink()


def test_a_file_of_parts_without_rows(tmp_path: Path) -> None:
    path = str(tmp_path / "parts.arrow")
    assert load_part(path, store_parts(path, SCHEMA, []), 0) == []
    Path(path).unlink()
