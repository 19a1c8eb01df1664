"""How long planning a filtered read takes on a table of very many files: `python -m benchmarks.metadata_scale`.

A table is made of metadata alone: one commit, and a metadata table that lists its files and holds statistics of four columns in
each. Data files are never opened by planning, so there are none.  Each plan is made in a process of its own and once more in the
same process; printed are seconds of both, those of the processor in the first, and the peak of memory that planning added to
what importing takes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.api import Table
from pyhudi.format.actions.commit import SCHEMA_KEY, CommitMetadata
from pyhudi.format.hfile import encode_hfile
from pyhudi.format.index_definitions import column_stats_definition, format_index_definitions
from pyhudi.format.instants import Action, Instant, State
from pyhudi.format.metadata.column_stats import COLUMN_STATS_SCHEMA, encode_column_stats
from pyhudi.format.metadata.files import ALL_PARTITIONS, FILES_SCHEMA, encode_files
from pyhudi.format.metadata.partitions import format_file_id
from pyhudi.format.metadata.schema import COMMIT_SCHEMA, RECORD_SCHEMA, RecordType
from pyhudi.format.metadata.wrapped import wrap
from pyhudi.operations.metadata.store import create_store
from pyhudi.records.hashing import shard_of_keys
from pyhudi.records.metadata_keys import column_stats_keys, file_hashes, partition_stats_key
from pyhudi.records.schema import arrow_to_avro
from pyhudi.storage.base import Storage
from pyhudi.table.config import store_table_config

INSTANT, COMPLETED = "20260101000000000", "20260101000001000"
INITIAL = "00000000000000000"
STATS_GROUPS = 2
SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64()), ("fare", pa.float64()), ("city", pa.string())])

# What is planned: a filter by partition, by a number that one file in a thousand has, by one that all have, by text, by nothing.
FILTERS = (
    "city = 'p0500'",
    "n = 31415926",
    "city = 'p0500' and n < 50000500",
    "id = 'k00031415'",
    "n >= 0",
    "",
)


def build(folder: Path, partition_count: int, files_each: int) -> None:
    """The table's metadata: each file has 1000 numbers that no other file has, and keys in the same order."""
    table = Table.create(folder, name="scale", record_key="id", partition_by="city", schema=SCHEMA)
    context = table.context
    store = context.timeline
    commit = CommitMetadata(
        partition_to_write_stats={},
        compacted=False,
        extra_metadata={SCHEMA_KEY: arrow_to_avro(SCHEMA, table.name)},
        operation_type="BULK_INSERT",
    )
    instant = store.request(INSTANT, Action.COMMIT)
    store.start(instant)
    store.complete(instant, Action.COMMIT, COMPLETED, commit.encode(bytes(16)))

    metadata = create_store(context).storage
    partitions = [f"p{number:04d}" for number in range(partition_count)]
    names = {
        partition: [_file_name(number * files_each + place) for place in range(files_each)]
        for number, partition in enumerate(partitions)
    }
    _store_files(metadata, names)
    _store_stats(metadata, names)
    _complete(metadata)
    context.storage.put(
        ".hoodie/.index_defs/index.json", format_index_definitions([column_stats_definition(["id", "n", "fare", "city"])])
    )
    properties = {
        "hoodie.table.metadata.partitions": "column_stats,files,partition_stats",
        "hoodie.table.index.defs.path": ".hoodie/.index_defs/index.json",
    }
    store_table_config(context.storage, properties, context.env)


def measure(folder: Path, condition: str) -> dict[str, float]:
    """One plan in a fresh process."""
    before = peak_rss_bytes()
    started, cpu_started = time.perf_counter(), time.process_time()
    plan = Table(folder).scan(filter=condition or None).explain()
    first, cpu = time.perf_counter() - started, time.process_time() - cpu_started
    added = peak_rss_bytes() - before
    started = time.perf_counter()
    Table(folder).scan(filter=condition or None).explain()
    return {
        "seconds": first,
        "cpu_seconds": cpu,
        "again_seconds": time.perf_counter() - started,
        "added_mib": added / 2**20,
        "peak_mib": peak_rss_bytes() / 2**20,
        "file_slices": len(plan.slices),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--files", type=int, default=100, help="in each partition")
    parser.add_argument("--measure", nargs=2, metavar=("FOLDER", "FILTER"), help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.measure:
        print(json.dumps(measure(Path(chosen.measure[0]), chosen.measure[1])))
        return
    folder = Path(tempfile.mkdtemp(prefix="metadata-scale-"))
    try:
        started = time.perf_counter()
        build(folder / "t", chosen.partitions, chosen.files)
        print(f"{chosen.partitions * chosen.files:,} files, made in {time.perf_counter() - started:.1f} s")
        print(f"{'filter':<36}{'slices':>8}{'seconds':>9}{'cpu':>8}{'again':>8}{'added MiB':>11}{'peak MiB':>10}")
        for condition in FILTERS:
            command = [sys.executable, "-m", "benchmarks.metadata_scale", "--measure", str(folder / "t"), condition]
            found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            print(
                f"{condition or '(none)':<36}{found['file_slices']:>8.0f}{found['seconds']:>9.2f}{found['cpu_seconds']:>8.2f}"
                f"{found['again_seconds']:>8.2f}{found['added_mib']:>11.0f}{found['peak_mib']:>10.0f}"
            )
    finally:
        shutil.rmtree(folder)


def peak_rss_bytes() -> int:
    """The most memory that this process has had."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def _file_name(number: int) -> str:
    return f"{number:08x}-1111-4222-8333-444444444444-0_{number}-0-1_{INSTANT}.parquet"


def _store_files(metadata: Storage, names: dict[str, list[str]]) -> None:
    partitions = pa.array([partition for partition, files in names.items() for _ in files] + [ALL_PARTITIONS] * len(names))
    files = pa.array([name for listed in names.values() for name in listed] + list(names))
    count = len(files) - len(names)
    sizes = pa.array(np.r_[np.full(count, 100_000_000), np.zeros(len(names))], pa.int64())
    batch = pa.RecordBatch.from_arrays([partitions, files, sizes, pa.array([False] * len(files))], schema=FILES_SCHEMA)
    keys, values = encode_files(batch)
    _store_group(metadata, "files", 0, [(keys, values)])


def _store_stats(metadata: Storage, names: dict[str, list[str]]) -> None:
    keys: list[pa.Array] = []
    rows: list[pa.RecordBatch] = []
    tight_keys: list[str] = []
    tight_rows: list[pa.RecordBatch] = []
    number = 0
    for partition, listed in names.items():
        hashes = file_hashes(listed)
        low = np.arange(number, number + len(listed), dtype=np.int64) * 1000
        number += len(listed)
        high = low + 999
        for column, least, greatest in _bounds(partition, low, high):
            keys.append(column_stats_keys(column, partition, hashes))
            rows.append(_stats(listed, column, least, greatest, False))
            tight_keys.append(partition_stats_key(column, partition))
            tight_rows.append(_stats([partition], column, least[:1], greatest[-1:], True))
    all_keys = pa.concat_arrays(keys)
    values = encode_column_stats(_together(rows), RecordType.COLUMN_STATS)
    shards = shard_of_keys(all_keys, STATS_GROUPS)
    for shard in range(STATS_GROUPS):
        mine = pa.array(shards == shard)
        _store_group(metadata, "column_stats", shard, [_sorted(all_keys.filter(mine), values.filter(mine))])
    tight = encode_column_stats(_together(tight_rows), RecordType.PARTITION_STATS)
    _store_group(metadata, "partition_stats", 0, [_sorted(pa.array(tight_keys), tight)])


def _bounds(partition: str, low: np.ndarray, high: np.ndarray) -> Iterator[tuple[str, pa.Array, pa.Array]]:
    def texts(numbers: np.ndarray) -> pa.Array:
        return pa.array([f"k{value:08d}" for value in numbers.tolist()])

    yield "id", texts(low), texts(high)
    yield "n", pa.array(low), pa.array(high)
    yield "fare", pa.array(low / 8 + 1), pa.array(high / 8 + 1)
    yield "city", pa.array([partition] * len(low)), pa.array([partition] * len(low))


def _stats(names: list[str], column: str, low: pa.Array, high: pa.Array, tight: bool) -> pa.RecordBatch:
    count = len(names)
    numbers = [pa.array([value] * count, pa.int64()) for value in (1000, 0, 8000, 16000)]
    flags = [pa.array([False] * count), pa.array([tight] * count)]
    columns = [pa.array(names), pa.array([column] * count), wrap(low), wrap(high), *numbers, *flags]
    return pa.RecordBatch.from_arrays(columns, schema=COLUMN_STATS_SCHEMA)


def _together(rows: list[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.Table.from_batches(rows).combine_chunks().to_batches()[0]


def _sorted(keys: pa.StringArray, values: pa.BinaryArray) -> tuple[pa.StringArray, pa.BinaryArray]:
    order = pc.sort_indices(keys)
    return keys.take(order), values.take(order)


def _store_group(metadata: Storage, partition: str, index: int, batches: list[tuple[pa.Array, pa.Array]]) -> None:
    name = f"{partition}/{format_file_id(partition, index)}_0-0-0_{INITIAL}.hfile"
    metadata.put(name, encode_hfile(batches, file_info={"schema": RECORD_SCHEMA.encode()}))


def _complete(metadata: Storage) -> None:
    document = CommitMetadata(
        partition_to_write_stats={}, compacted=False, extra_metadata={SCHEMA_KEY: COMMIT_SCHEMA}, operation_type="BULK_INSERT"
    )
    for state, time_, data in (
        (State.REQUESTED, None, b""),
        (State.INFLIGHT, None, b""),
        (State.COMPLETED, COMPLETED, document.encode(bytes(16))),
    ):
        name = Instant(INITIAL, Action.DELTACOMMIT, state, time_).file_name()
        metadata.put(f".hoodie/timeline/{name}", data)


if __name__ == "__main__":
    main()
