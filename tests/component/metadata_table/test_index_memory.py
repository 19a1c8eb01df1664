"""Indexes are built and compacted in ranges of keys: with bounded memory, and with the records of one range."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.metadata_table import file_group_merge, file_tasks, index_tasks
from pyhudi.metadata_table.file_group_merge import merged_group
from pyhudi.metadata_table.file_tasks import MergeGroupTask, run_metadata_merge
from pyhudi.metadata_table.reader.index_lookups import find_secondary_values
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.metadata_table.writer import metadata_services
from pyhudi.storage import open_storage

_names = itertools.count()
GROUPS = {
    "hoodie.metadata.record.index.min.filegroup.count": 2,
    "hoodie.metadata.record.index.max.filegroup.count": 2,
    "hoodie.parquet.small.file.limit": 0,
    "hoodie.compact.inline": False,
    "hoodie.index.bloom.num_entries": 100,
    "pyhudi.threads": 1,
}
NOTES = ("", "a", "b$c", "\\", "é", "\U0001f600", "z" * 40, None)


def written(table_type: str, version: int) -> Table:
    rng = random.Random(3)
    options: Mapping[str, object] = {**GROUPS, "hoodie.write.table.version": version}
    table = Table.create(
        f"memory://ranges-{next(_names)}/t",
        record_key="id",
        partition_by="part",
        ordering="ts",
        table_type=table_type,
        options=options,
    )
    for turn in range(3):
        keys = rng.sample([f"k{number}é" if number % 9 == 0 else f"k{number}" for number in range(400)], 200)
        columns = {"id": keys, "part": [f"p{len(key) % 2}" for key in keys], "ts": [turn] * len(keys)}
        table.upsert(pa.table({**columns, "note": pa.array([rng.choice(NOTES) for _ in keys], pa.string())}))
    return table


def pairs(table: Table) -> list[str]:
    context = table.context.reloaded()
    parts = find_secondary_values(MetadataTable(context, context.timeline.load()), "secondary_index_note")
    return sorted(key for _, keys in parts for key in keys.to_pylist())


@pytest.mark.sample(2)
@pytest.mark.parametrize(("table_type", "version"), [("cow", 8), ("cow", 9), ("mor", 8), ("mor", 9)])
def test_indexes_built_in_ranges_are_equal(table_type: str, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, divided = written(table_type, version), written(table_type, version)
    ranges: list[int] = []
    original = file_tasks._between

    def between(changes: pa.RecordBatch, low: pa.Scalar | None, high: pa.Scalar | None) -> pa.RecordBatch:
        part = original(changes, low, high)
        ranges.append(part.num_rows)
        return part

    whole.index.create("record_index")
    whole.index.create("secondary_index", "note")
    assert not ranges
    monkeypatch.setattr(file_tasks, "_between", between)
    monkeypatch.setattr(file_tasks, "RANGE_BYTES", 1000)
    monkeypatch.setattr(file_tasks, "_SAMPLE_STEP", 3)
    monkeypatch.setattr(index_tasks, "SIDE_FILE_BYTES", 500)
    divided.index.create("record_index")
    in_record_index = len(ranges)
    divided.index.create("secondary_index", "note")
    assert in_record_index > 8 and len(ranges) > in_record_index + 8 and max(ranges) < 200
    assert pairs(whole) == pairs(divided)
    for table in (whole, divided):
        report = table.validate()
        assert report.ok, str(report)
        table.delete(["k1", "k2"], options=GROUPS)
        assert table.validate().ok
    assert pairs(whole) == pairs(divided)


def merged(task: MergeGroupTask) -> list[tuple[bytes, bytes]]:
    """Keys and values of the next base file of a file group."""
    parts = merged_group(open_storage(task.file.storage), task.rule, task.slice)
    return [pair for keys, values in parts for pair in zip(keys.to_pylist(), values.to_pylist(), strict=True)]


@pytest.mark.sample(2)
@pytest.mark.parametrize(("table_type", "version"), [("cow", 8), ("cow", 9), ("mor", 8), ("mor", 9)])
def test_compaction_in_ranges_is_equal(table_type: str, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    table = written(table_type, version)
    table.index.create("record_index")
    table.index.create("secondary_index", "note")
    for turn in range(3):
        keys = [f"k{number}" for number in range(turn * 50, 500, 3)]
        columns = {"id": keys, "part": [f"p{len(key) % 2}" for key in keys], "ts": [turn + 9] * len(keys), "note": keys}
        table.upsert(pa.table(columns))
        table.delete(keys[turn::4])
    tasks: list[MergeGroupTask] = []

    def recorded(task: MergeGroupTask) -> object:
        tasks.append(task)
        return run_metadata_merge(task)

    ranges: list[int] = []
    original = file_group_merge._interleaved

    def interleaved(*arguments: Any) -> Iterator[Any]:
        ranges.append(1)
        return original(*arguments)

    monkeypatch.setattr(metadata_services, "run_metadata_merge", recorded)
    table.run_services(["metadata"], options={"hoodie.metadata.compact.max.delta.commits": 1})
    assert {task.file.partition for task in tasks} >= {"files", "column_stats", "record_index", "secondary_index_note"}
    monkeypatch.setattr(file_group_merge, "_interleaved", interleaved)
    whole = [merged(task) for task in tasks]
    assert len(ranges) == len(tasks)
    monkeypatch.setattr(file_group_merge, "RANGE_BYTES", 1)
    assert [merged(task) for task in tasks] == whole
    assert len(ranges) > 2.5 * len(tasks)
    report = table.validate()
    assert report.ok, str(report)


_PROGRAM = """
import sys
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyhudi import Table
from pyhudi.metadata_table import file_group_merge, file_tasks, index_tasks
from pyhudi.metadata_table.file_group_merge import merged_group
from pyhudi.metadata_table.file_tasks import MergeGroupTask, run_metadata_merge

step, path, batches = sys.argv[1], sys.argv[2], int(sys.argv[3])
groups = {"hoodie.metadata.record.index.min.filegroup.count": 1, "hoodie.metadata.record.index.max.filegroup.count": 1}
options = {**groups, "pyhudi.threads": 1, "hoodie.parquet.max.file.size": 4000000, "hoodie.clean.automatic": False,
    "hoodie.copyonwrite.record.size.estimate": 400, "hoodie.index.bloom.num_entries": 1000}

def stream():
    for number in range(batches):
        numbers = pa.array((np.arange(number * 5000, (number + 1) * 5000) * 7919) % 1000003)
        ids = pc.binary_join_element_wise("key", pc.utf8_lpad(numbers.cast(pa.string()), 30, "0"), "-")
        yield pa.record_batch([ids, ids], names=["id", "note"])

if step == "write":
    table = Table.create(path, record_key="id", options=options)
    for batch in stream():
        table.bulk_insert(batch)
    table.index.create("record_index")
elif step == "write logs":
    options |= {"hoodie.metadata.record.index.enable": True, "hoodie.metadata.compact.max.delta.commits": 100}
    table = Table.create(path, record_key="id", options=options)
    rows = list(stream())
    for place in range(5):
        table.bulk_insert(pa.Table.from_batches(rows[place::5]))
elif step == "compact":
    file_group_merge.RANGE_BYTES = 1 << 20
    before = pa.total_allocated_bytes()
    Table(path).run_services(["metadata"], options={"hoodie.metadata.compact.max.delta.commits": 1})
    print(pa.default_memory_pool().max_memory() - before)
else:
    file_tasks.RANGE_BYTES = index_tasks.SIDE_FILE_BYTES = 1 << 20
    table = Table(path, options=options)
    before = pa.total_allocated_bytes()
    table.index.create("secondary_index", "note")
    print(pa.default_memory_pool().max_memory() - before)
"""


def peak_of(steps: tuple[str, str], path: Path, batches: int) -> int:
    """Peak of Arrow's memory in the second step, with 5,000 keys a batch; each step is another process."""
    for step in steps:
        command = [sys.executable, "-c", _PROGRAM, step, str(path), str(batches)]
        answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=1200).stdout
    return int(answer)


@pytest.mark.full
@pytest.mark.parametrize("steps", [("write", "build"), ("write logs", "compact")])
def test_memory_does_not_grow_with_the_keys(steps: tuple[str, str], tmp_path: Path) -> None:
    some, more = (peak_of(steps, tmp_path / str(batches), batches) for batches in (10, 40))
    # The 200,000 pairs of the larger one have 14 MB.
    assert more < some * 1.3, (some, more)
    assert more < 12 << 20, (some, more)
