"""Tables of metadata alone, for the cost of very many files: commits name data files that do not exist."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.peers.base import Measured
from pyhudi.api.table import Table
from pyhudi.format.actions.commit_metadata import Operation, WriteStat
from pyhudi.format.arrow_to_avro import arrow_to_avro
from pyhudi.format.instants import Action
from pyhudi.metadata_table.reader.index_lookups import find_records
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.metadata_table.writer.metadata_commit import MetadataCommit
from pyhudi.metadata_table.writer.metadata_store import MetadataStore
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.planned_commit import PlannedCommit, commit_metadata
from pyhudi.operations.commit.transaction import Transaction
from pyhudi.options.supported import parse_options
from pyhudi.records.column_statistics import ColumnRange
from pyhudi.tasks.file_stats import FileIndexing, IndexedFile
from pyhudi.tasks.write_tasks import WriteStatus

LOOKUPS = 200
FILES_OF_A_PARTITION = 100
TOUCHED = 10
FILE_ROWS = 1000
SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64()), ("fare", pa.float64()), ("city", pa.string())])


def partition_count(axis: str, size: int) -> int:
    """Partitions of the table of one size of an axis."""
    return max(TOUCHED, size // FILES_OF_A_PARTITION) if axis == "files" else TOUCHED


def build_axis(path: str, axis: str, size: int) -> None:
    """Create a table with so many files, or files in each of ten partitions (`neighbours`)."""
    partitions = partition_count(axis, size)
    build(Path(path), partitions, size // partitions if axis == "files" else size)


def build(folder: Path, partitions: int, files_each: int) -> None:
    """Create a table. Each file has 1,000 values of `n`, and keys in the same order, that no other file has."""
    # A commit without rows creates the metadata table.
    Table.create(folder, name="scale", record_key="id", partition_by="city", schema=SCHEMA).bulk_insert(SCHEMA.empty_table())
    commit(folder, [(f"p{number // files_each:04d}", number) for number in range(partitions * files_each)])


def commit(folder: Path, files: Sequence[tuple[str, int]]) -> None:
    """Commit files, (partition, number), with statistics of four columns, into the metadata table and publish them."""
    table = Table(folder)
    context = table.context
    shards = MetadataStore.open(context).groups.count("record_index")
    transaction = Transaction.begin(context, Action.COMMIT, CommitSettings.of(parse_options({})))
    transaction.start()
    statuses = []
    for partition, number in files:
        file_id = f"{number:08x}-1111-4222-8333-444444444444-0"
        path = f"{partition}/{file_id}_0-0-0_{transaction.instant_time}.parquet"
        low, high = number * FILE_ROWS, number * FILE_ROWS + FILE_ROWS - 1
        bounds: list[tuple[Any, Any]] = [
            (f"k{low:011}", f"k{high:011}"),
            (low, high),
            (low / 8, high / 8),
            (partition, partition),
        ]
        ranges = tuple((name, ColumnRange(*pair, 0, FILE_ROWS)) for name, pair in zip(SCHEMA.names, bounds, strict=True))
        stat = WriteStat(file_id=file_id, path=path, partition_path=partition, file_size_in_bytes=100_000_000)
        statuses.append(WriteStatus(stat, IndexedFile(ranges)))
    mirror = MetadataCommit(None, FileIndexing(tuple(SCHEMA.names), key_shards=shards), SCHEMA, statuses)
    metadata = commit_metadata(Operation.UPSERT, statuses, arrow_to_avro(SCHEMA, table.name), {})
    transaction.commit(PlannedCommit(metadata, metadata_commit=mirror))


def commit_files(path: str, axis: str, size: int, number: int) -> Measured:
    """A commit of ten files to ten partitions. number: that of the round, for file ids."""
    partitions = partition_count(axis, size)
    first = 0x8000_0000 + TOUCHED * number
    files = [(f"p{place * partitions // TOUCHED:04d}", first + place) for place in range(TOUCHED)]
    return Measured(lambda: commit(Path(path), files))


def lookup(path: str, key_count: int) -> Measured:
    """Lookups of single keys in one opened metadata table."""
    context = Table(path).context
    metadata = MetadataTable(context, context.timeline.load())
    keys = [f"key-{number:010}" for number in np.random.default_rng(7).integers(0, key_count, LOOKUPS).tolist()]

    def operation() -> None:
        found = sum(find_records(metadata, pa.array([key])).num_rows for key in keys)
        assert found == LOOKUPS, f"the record index has {found} of {LOOKUPS} keys"

    return Measured(operation, share=LOOKUPS)
