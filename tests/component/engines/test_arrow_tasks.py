"""Tasks that carry the rows of a small batch: what is serialized, and how rows are distributed."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyhudi import Table
from pyhudi.engines.arrow import tagged
from pyhudi.engines.arrow.tagged import GroupRows, Selection, TaskBundle
from pyhudi.engines.spark.driver_batch import assign_to_bins
from pyhudi.table.file_slices import FileSlice
from pyhudi.table.snapshot import load_snapshot
from pyhudi.tasks.write_file_group import GroupTarget


@pytest.fixture(scope="module")
def slice_of_a_table(tmp_path_factory: pytest.TempPathFactory) -> FileSlice:
    table = Table.create(tmp_path_factory.mktemp("t") / "t", record_key="id")
    table.insert(pa.table({"id": ["a"], "v": [1]}))
    ((found,),) = load_snapshot(table.context).slices().values()
    return found


def test_pickled_task_contains_only_its_own_rows(slice_of_a_table: FileSlice) -> None:
    rows = pa.table({"id": [f"k{n:08d}" for n in range(100_000)], "v": pa.array(range(100_000))})
    target = GroupTarget("", slice_of_a_table.file_id, slice_of_a_table)
    task = GroupRows(3, target, (Selection(rows, np.arange(50_000, 50_010)),), 200)
    travelled = pickle.dumps(task, protocol=5)
    assert len(travelled) < 4_000
    again = pickle.loads(travelled)
    assert (again.number, again.target, again.load_rows()) == (3, target, rows.slice(50_000, 10))


def test_a_selection_copies_its_rows_from_several_batches() -> None:
    whole = pa.table({"id": [f"k{n}" for n in range(10)], "tags": [[n, None] for n in range(10)]})
    batches = pa.concat_tables([whole.slice(0, 3), whole.slice(3, 0), whole.slice(3, 4), whole.slice(7)])
    for numbers in ([0, 2, 3, 6, 7, 9], [4, 5], [9], []):
        loaded = Selection(batches, np.array(numbers, dtype=np.int64)).load()
        assert loaded.equals(whole.take(pa.array(numbers, pa.int64())))
        assert loaded.column("id").num_chunks <= 1
    assert Selection(batches, np.arange(10)).load() is batches


@pytest.mark.parametrize("most", [0, 1 << 12])
def test_rows_of_few_and_many_file_groups_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """With many groups, the rows are sorted once instead of selected for each group."""
    monkeypatch.setattr(tagged, "_MAX_SELECTIONS", most)
    table = Table.create(tmp_path / "t", record_key="id", partition_by="p")
    old = pa.table({"id": [f"k{n}" for n in range(300)], "p": [f"p{n % 7}" for n in range(300)], "v": list(range(300))})
    table.insert(old)
    new = pa.table({"id": [f"k{n}" for n in range(200, 500)], "p": [f"p{n % 7}" for n in range(200, 500)], "v": [-1] * 300})
    table.upsert(pa.concat_tables([new.slice(0, 100), new.slice(100, 0), new.slice(100)]))
    expected = pa.concat_tables([old.slice(0, 200), new]).sort_by("id")
    assert table.scan(["id", "p", "v"]).to_arrow().sort_by("id").equals(expected)


def test_pickled_size_of_many_file_group_tasks_is_bounded(slice_of_a_table: FileSlice) -> None:
    """For 100,000 file groups with a row each: the rows, and what a task reports about a group."""
    schema = pa.schema([("id", pa.string()), *((f"a_column_of_a_long_name_{n}", pa.int64()) for n in range(30))])
    rows = pa.table([["a-key"], *[[1]] * 30], schema=schema)
    count, bins = 100_000, 8
    tasks = []
    for number in range(count // bins // 10):
        file_id = f"{number:08d}-0000-0000-0000-000000000000-0"
        target = GroupTarget("", file_id, replace(slice_of_a_table, file_id=file_id))
        tasks.append(GroupRows(number, target, (Selection(rows),), rows.nbytes))
    travelled = pickle.dumps(TaskBundle(tuple(tasks)), protocol=5)
    # 100,000 file groups: 70 MB, of which the rows are 25 MB.
    assert len(travelled) / len(tasks) < 700
    assert [(one.number, one.target, one.load_rows()) for one in pickle.loads(travelled)] == [
        (one.number, one.target, rows) for one in tasks
    ]


def test_tasks_are_dealt_out_by_their_size() -> None:
    bins = assign_to_bins([100, *[10] * 10, 1, 1], 4)
    assert sorted(at for part in bins for at in part) == list(range(13))
    assert bins[0] == [0]
    assert max(sum(10 for at in part if 0 < at < 11) for part in bins) == 40
    assert assign_to_bins([], 4) == []
    assert [len(part) for part in assign_to_bins([0] * 100_000, 8)] == [12_500] * 8


def test_one_group_that_takes_half_of_the_rows_is_one_task() -> None:
    """A file group is written by one task, as its file is one; the others share what is left of the workers."""
    bins = assign_to_bins([1000, *[100] * 10], 4)
    assert bins[0] == [0]
    assert sorted(map(len, bins[1:])) == [3, 3, 4]
