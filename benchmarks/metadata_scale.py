"""What very many files and keys cost: `python -m benchmarks.metadata_scale`.

A table is made of metadata alone: one commit, and a metadata table that lists its files, holds statistics of four columns in
each, and knows where each of millions of record keys lives.  Data files are never opened by what is measured, so there are none.

    plans      a filtered read planned in a process of its own, and once more in the same process: seconds of both, those of the
               processor in the first, and the peak of memory that planning added to what importing takes
    lookups    one record key at a time in the opened record index: the median of many
    commits    ten files of ten partitions written into the metadata table and published: the median of some, and once more for a
               table of a hundredth of the partitions
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

from pyhudi.api.table import Table
from pyhudi.format.actions.commit_metadata import SCHEMA_KEY, CommitMetadata, Operation, WriteStat
from pyhudi.format.arrow_to_avro import arrow_to_avro
from pyhudi.format.hfile import encode_hfile
from pyhudi.format.index_definitions import column_stats_definition, format_index_definitions
from pyhudi.format.instants import Action, Instant, State
from pyhudi.metadata_table.codecs.column_stats_codec import COLUMN_STATS_SCHEMA, encode_column_stats
from pyhudi.metadata_table.codecs.files_codec import ALL_PARTITIONS, FILES_SCHEMA, encode_files
from pyhudi.metadata_table.codecs.metadata_partitions import format_index_file_id
from pyhudi.metadata_table.codecs.metadata_schema import COMMIT_SCHEMA, RECORD_SCHEMA, MetadataRecordType
from pyhudi.metadata_table.codecs.record_index_codec import LOCATION_SCHEMA, encode_locations
from pyhudi.metadata_table.codecs.value_wrappers import wrap_values
from pyhudi.metadata_table.metadata_keys import column_stats_keys, file_hashes, partition_stats_key
from pyhudi.metadata_table.reader.index_lookups import find_records
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.metadata_table.writer.metadata_commit import MetadataCommit
from pyhudi.metadata_table.writer.metadata_store import MetadataStore, create_store
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.planned_commit import PlannedCommit, commit_metadata
from pyhudi.operations.commit.transaction import Transaction
from pyhudi.options.supported import parse_options
from pyhudi.records.column_statistics import ColumnRange
from pyhudi.records.hashing import key_shards
from pyhudi.storage.base import Storage
from pyhudi.table.table_config import store_table_config
from pyhudi.tasks.file_stats import FileIndexing, IndexedFile
from pyhudi.tasks.write_tasks import WriteStatus

INSTANT, COMPLETED = "20260101000000000", "20260101000001000"
INITIAL = "00000000000000000"
STATS_GROUPS = 2
KEY_GROUPS = 10
KEYS_AT_ONCE = 500_000
LOOKUPS = 200
COMMITS = 5
COMMITTED = (("id", "a", "b"), ("n", 1, 2), ("fare", 1.0, 2.0), ("city", "p", "q"))
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


def build(folder: Path, partition_count: int, files_each: int, key_count: int = 0) -> None:
    """The table's metadata: each file has 1000 numbers that no other file has, and keys in the same order.

    key_count: of the record index; 0 for none.
    """
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
    if key_count:
        _store_keys(metadata, names, key_count)
    _complete(metadata)
    context.storage.put(
        ".hoodie/.index_defs/index.json", format_index_definitions([column_stats_definition(["id", "n", "fare", "city"])])
    )
    properties = {
        "hoodie.table.metadata.partitions": "column_stats,files,partition_stats" + (",record_index" if key_count else ""),
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


def measure_lookups(folder: Path, key_count: int) -> dict[str, float]:
    """One key at a time, in one opened metadata table."""
    context = Table(folder).context
    metadata = MetadataTable(context, context.timeline.load())
    random = np.random.default_rng(7)
    seconds, cpu = [], []
    for number in random.integers(0, key_count, LOOKUPS).tolist():
        started, cpu_started = time.perf_counter(), time.process_time()
        found = find_records(metadata, pa.array([_key(number)]))
        seconds.append(time.perf_counter() - started)
        cpu.append(time.process_time() - cpu_started)
        assert found.num_rows == 1, f"the record index does not know {_key(number)}"
    late = slice(LOOKUPS // 2, None)
    return {
        "first_ms": seconds[0] * 1000,
        "median_ms": float(np.median(seconds[late])) * 1000,
        "median_cpu_ms": float(np.median(cpu[late])) * 1000,
    }


def measure_commits(folder: Path, partition_count: int) -> dict[str, float]:
    """Ten new files in ten partitions, several times; seconds of the processor and of the clock."""
    wall, cpu, columns = [], [], tuple(SCHEMA.names)
    ranges = tuple((name, ColumnRange(low, high, 0, 1000)) for name, low, high in COMMITTED)
    for attempt in range(COMMITS):
        table = Table(folder)
        context = table.context
        shards = MetadataStore.open(context).groups.count("record_index")
        started, cpu_started = time.perf_counter(), time.process_time()
        transaction = Transaction.begin(context, Action.COMMIT, CommitSettings.of(parse_options({})))
        transaction.start()
        statuses = []
        for place in range(10):
            partition = f"p{place * partition_count // 10:04d}"
            file_id = f"{attempt:04x}{place:04x}-9999-4222-8333-444444444444-0"
            path = f"{partition}/{file_id}_0-0-0_{transaction.instant_time}.parquet"
            stat = WriteStat(file_id=file_id, path=path, partition_path=partition, file_size_in_bytes=100_000_000)
            statuses.append(WriteStatus(stat, IndexedFile(ranges)))
        mirror = MetadataCommit(None, FileIndexing(columns, key_shards=shards), SCHEMA, statuses)
        metadata = commit_metadata(Operation.UPSERT, statuses, arrow_to_avro(SCHEMA, table.name), {})
        transaction.commit(PlannedCommit(metadata, metadata_commit=mirror))
        wall.append(time.perf_counter() - started)
        cpu.append(time.process_time() - cpu_started)
    return {"seconds": float(np.median(wall)), "cpu_seconds": float(np.median(cpu))}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--files", type=int, default=100, help="in each partition")
    parser.add_argument("--keys", type=int, default=10_000_000, help="of the record index")
    parser.add_argument("--measure", nargs=3, metavar=("WHAT", "FOLDER", "OF"), help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.measure:
        what, place, of = chosen.measure
        measured = {
            "plan": lambda: measure(Path(place), of),
            "lookups": lambda: measure_lookups(Path(place), int(of)),
            "commits": lambda: measure_commits(Path(place), int(of)),
        }
        print(json.dumps(measured[what]()))
        return
    folder = Path(tempfile.mkdtemp(prefix="metadata-scale-"))
    try:
        started = time.perf_counter()
        build(folder / "t", chosen.partitions, chosen.files, chosen.keys)
        print(f"{chosen.partitions * chosen.files:,} files, {chosen.keys:,} keys, made in {time.perf_counter() - started:.1f} s")
        print(f"{'filter':<36}{'slices':>8}{'seconds':>9}{'cpu':>8}{'again':>8}{'added MiB':>11}{'peak MiB':>10}")
        for condition in FILTERS:
            found = _in_a_process("plan", folder / "t", condition)
            print(
                f"{condition or '(none)':<36}{found['file_slices']:>8.0f}{found['seconds']:>9.2f}{found['cpu_seconds']:>8.2f}"
                f"{found['again_seconds']:>8.2f}{found['added_mib']:>11.0f}{found['peak_mib']:>10.0f}"
            )
        if chosen.keys:
            found = _in_a_process("lookups", folder / "t", str(chosen.keys))
            print(f"a key among {chosen.keys:,}: {found['median_ms']:.1f} ms, the first {found['first_ms']:.1f} ms")
        few = max(10, chosen.partitions // 100)
        build(folder / "few", few, chosen.files, min(chosen.keys, 1000))
        for name, count in (("few", few), ("t", chosen.partitions)):
            found = _in_a_process("commits", folder / name, str(count))
            seconds = f"{found['seconds']:.2f} s, processor {found['cpu_seconds']:.2f} s"
            print(f"commit of 10 files to {count * chosen.files:,}: {seconds}")
    finally:
        shutil.rmtree(folder)


def _in_a_process(what: str, folder: Path, of: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.metadata_scale", "--measure", what, str(folder), of]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


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
    values = encode_column_stats(_together(rows), MetadataRecordType.COLUMN_STATS)
    shards = key_shards(all_keys, STATS_GROUPS)
    for shard in range(STATS_GROUPS):
        mine = pa.array(shards == shard)
        _store_group(metadata, "column_stats", shard, [_sorted(all_keys.filter(mine), values.filter(mine))])
    tight = encode_column_stats(_together(tight_rows), MetadataRecordType.PARTITION_STATS)
    _store_group(metadata, "partition_stats", 0, [_sorted(pa.array(tight_keys), tight)])


def _bounds(partition: str, low: np.ndarray, high: np.ndarray) -> Iterator[tuple[str, pa.Array, pa.Array]]:
    def texts(numbers: np.ndarray) -> pa.Array:
        return pa.array([f"k{value:08d}" for value in numbers.tolist()])

    yield "id", texts(low), texts(high)
    yield "n", pa.array(low), pa.array(high)
    yield "fare", pa.array(low / 8 + 1), pa.array(high / 8 + 1)
    yield "city", pa.array([partition] * len(low)), pa.array([partition] * len(low))


def _key(number: int) -> str:
    return f"key-{number:010d}"


def _store_keys(metadata: Storage, names: dict[str, list[str]], key_count: int) -> None:
    """Keys 0, 1, ... lie in the files in turn."""
    file_ids = pa.array([name.partition("_")[0] for listed in names.values() for name in listed])
    partitions = pa.array([partition for partition, listed in names.items() for _ in listed])
    held: list[list[tuple[pa.Array, pa.Array]]] = [[] for _ in range(KEY_GROUPS)]
    for start in range(0, key_count, KEYS_AT_ONCE):
        numbers = np.arange(start, min(start + KEYS_AT_ONCE, key_count))
        digits = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 10, "0")
        keys = pc.binary_join_element_wise("key-", digits, "")
        places = pa.array(numbers % len(file_ids))
        times = pa.array(np.full(len(numbers), 1_767_225_600_000))
        columns = [partitions.take(places), file_ids.take(places), times]
        values = encode_locations(pa.RecordBatch.from_arrays(columns, schema=LOCATION_SCHEMA))
        shards = key_shards(keys, KEY_GROUPS)
        for shard, parts in enumerate(held):
            mine = pa.array(shards == shard)
            # Numbers of one width ascend as their texts do.
            parts.append((keys.filter(mine), values.filter(mine)))
    for shard, parts in enumerate(held):
        _store_group(metadata, "record_index", shard, parts)


def _stats(names: list[str], column: str, low: pa.Array, high: pa.Array, tight: bool) -> pa.RecordBatch:
    count = len(names)
    numbers = [pa.array([value] * count, pa.int64()) for value in (1000, 0, 8000, 16000)]
    flags = [pa.array([False] * count), pa.array([tight] * count)]
    types = [pa.nulls(count, pa.int32()), pa.nulls(count, pa.string())]
    columns = [pa.array(names), pa.array([column] * count), wrap_values(low), wrap_values(high), *numbers, *flags, *types]
    return pa.RecordBatch.from_arrays(columns, schema=COLUMN_STATS_SCHEMA)


def _together(rows: list[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.Table.from_batches(rows).combine_chunks().to_batches()[0]


def _sorted(keys: pa.StringArray, values: pa.BinaryArray) -> tuple[pa.StringArray, pa.BinaryArray]:
    order = pc.sort_indices(keys)
    return keys.take(order), values.take(order)


def _store_group(metadata: Storage, partition: str, index: int, batches: list[tuple[pa.Array, pa.Array]]) -> None:
    name = f"{partition}/{format_index_file_id(partition, index)}_0-0-0_{INITIAL}.hfile"
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
