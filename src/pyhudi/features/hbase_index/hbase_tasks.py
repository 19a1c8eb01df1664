"""Index HBASE: which of its entries are valid, and the tasks that update it with a commit.

An entry records the file group of a record, and the write that brought it there. It is valid when that write is
committed, when the table has that file group, and when no later write has begun to delete the record. An entry that
holds only the deleting write is valid when that write is committed. Keys of invalid entries are looked up in the files:
the entry may hide an older valid one (a write that moved the record failed, or was rolled back), its file group may
have been clustered by a writer without this index, or a write failed between its commit and the end of a deletion.
Apache Hudi treats such a key as new, and inserts it a second time, or fails.

    before a commit     keys added to a file group are put, `deleting` empty; removed keys are marked `deleting`
    after it            entries that are still marked, and that no write has put since, are reduced to the mark
    a rollback          with `hoodie.index.hbase.rollback.sync` removes both; otherwise they remain, and are invalid

So a failure at any point leaves entries that are correct or invalid.  Keys come from the side files of
`tasks.file_stats`.

Source: docs/formats/writing.md, "Indexes used for writing"; docs/decisions/0019-index-hbase.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.features.hbase_index.hbase_client import COMMIT, DELETING, FILE, PARTITION, open_hbase
from pyhudi.storage import open_storage
from pyhudi.storage.base import StorageSpec
from pyhudi.tasks.file_stats import KEY_CHANGES, open_side_file
from pyhudi.tasks.hbase_lookup import HbaseSettings, LookupInHbaseIndex

Ints = npt.NDArray[np.int64]

KEYS_PER_LOOKUP = 100_000
"""Keys whose entries are in memory at once."""

LOOKUP_SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("partition", pa.string()),
        pa.field("file_id", pa.string()),
    ]
)
"""Index entries of known keys; partition and file_id are null if an entry is invalid."""


def lookup_in_hbase(lookup: LookupInHbaseIndex, keys: pa.StringArray) -> Iterator[pa.RecordBatch]:
    """Look up distinct keys in the index, in batches of LOOKUP_SCHEMA.  Raises as `open_hbase`."""
    known: dict[str, bool] = {}

    def counts(instant_time: str) -> bool:
        if instant_time not in known:
            known[instant_time] = lookup.commits.counts(instant_time)
        return known[instant_time]

    if not len(keys):
        return
    with open_hbase(lookup.index) as table:
        for start in range(0, len(keys), KEYS_PER_LOOKUP):
            chunk = keys.slice(start, KEYS_PER_LOOKUP)
            rows: list[int] = []
            partitions: list[str | None] = []
            file_ids: list[str | None] = []
            for number, entry in enumerate(table.get(chunk.to_pylist())):
                if entry is None:
                    continue
                if not entry.commit and counts(entry.deleting):
                    continue
                is_valid = counts(entry.commit) and entry.deleting <= entry.commit
                rows.append(number)
                partitions.append(entry.partition if is_valid else None)
                file_ids.append(entry.file_id if is_valid else None)
            indexed = chunk.take(pa.array(rows, pa.int64()))
            yield pa.record_batch(
                [indexed, pa.array(partitions, pa.string()), pa.array(file_ids, pa.string())], schema=LOOKUP_SCHEMA
            )


def find_in_hbase(
    lookup: LookupInHbaseIndex, keys: pa.StringArray, groups: Mapping[tuple[str, str], int]
) -> tuple[Ints, Ints, Ints]:
    """Locate record keys by the index.

    Args:
        keys: Distinct, no nulls.
        groups: Number of each file group of the table, by partition and file id.

    Returns:
        Pairs of a key (its position) and a file group (its number), then the positions of keys to look up in files.
    """
    rows, numbers = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for entries in lookup_in_hbase(lookup, keys):
        rows.append(np.asarray(pc.index_in(entries.column("key"), value_set=keys), dtype=np.int64))
        pairs = zip(entries.column("partition").to_pylist(), entries.column("file_id").to_pylist(), strict=True)
        numbers.append(np.array([groups.get(pair, -1) for pair in pairs], dtype=np.int64))
    row, number = np.concatenate(rows), np.concatenate(numbers)
    is_located = number >= 0
    return row[is_located], number[is_located], row[~is_located]


@dataclass(frozen=True, slots=True)
class HbaseChange:
    """Index changes of one data file.  keys: its side file; partition, file_id: of the data file."""

    storage: StorageSpec
    index: HbaseSettings
    instant_time: str
    keys: str
    partition: str
    file_id: str


def run_prepare_hbase(change: HbaseChange) -> int:
    """Before the commit: put added keys, mark removed ones.  Returns the number of keys."""
    count = 0
    came = {COMMIT: change.instant_time, FILE: change.file_id, PARTITION: change.partition, DELETING: ""}
    left = {DELETING: change.instant_time}
    with open_hbase(change.index) as table:
        for batch in _key_changes(change):
            entries = zip(batch.column("key").to_pylist(), batch.column("is_deleted").to_pylist(), strict=True)
            table.put((key, left if is_deleted else came) for key, is_deleted in entries)
            count += batch.num_rows
    return count


def run_finish_hbase(change: HbaseChange) -> int:
    """After the commit: reduce entries that `run_prepare_hbase` marked to the mark, unless they were put since.

    The result is the number of keys.
    """
    count = 0
    with open_hbase(change.index) as table:
        for batch in _key_changes(change):
            left = batch.column("key").filter(batch.column("is_deleted")).to_pylist()
            entries = zip(left, table.get(left), strict=True)
            marked = [
                (key, entry.deleting_ms)
                for key, entry in entries
                if entry is not None and entry.deleting == change.instant_time and entry.commit not in ("", change.instant_time)
            ]
            table.delete_locations(marked)
            count += len(marked)
    return count


def roll_back_hbase(index: HbaseSettings, instant_time: str, since_ms: int) -> int:
    """Remove the puts and marks of a rolled back write from the index.  Returns the number of keys.

    since_ms: when the write began, by the clocks of the region servers, or earlier: the table is scanned for later
    puts. If HBase retains several versions of a cell, the previous one reappears. Otherwise it is unknown whether the
    key was new: it keeps a mark of an uncommitted write, which is invalid.
    """
    count = 0
    with open_hbase(index) as table:
        changed = table.changed_since(since_ms)
        while rows := list(islice(changed, KEYS_PER_LOOKUP)):
            put = [(key, cells[COMMIT][1]) for key, cells in rows if cells.get(COMMIT, _NOTHING)[0] == instant_time]
            table.delete_written(put)
            keys = [key for key, _ in put]
            table.put((key, {DELETING: instant_time}) for key, entry in zip(keys, table.get(keys), strict=True) if entry is None)
            marked = [key for key, cells in rows if cells.get(DELETING, _NOTHING)[0] == instant_time]
            entries = zip(marked, table.get(marked), strict=True)
            # A mark without an entry means that the record existed before.
            table.delete_written((key, e.deleting_ms) for key, e in entries if e and e.commit and e.deleting == instant_time)
            count += len(put) + len(marked)
    return count


_NOTHING = ("", 0)


def _key_changes(change: HbaseChange) -> Iterator[pa.RecordBatch]:
    """The keys of a side file, in batches that may be in memory as Python's objects."""
    with open_side_file(open_storage(change.storage), change.keys) as source:
        reader = pa.ipc.open_file(source)
        assert reader.schema == KEY_CHANGES, "side files are written by `tasks.file_stats` alone"
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            for start in range(0, batch.num_rows, KEYS_PER_LOOKUP):
                yield batch.slice(start, KEYS_PER_LOOKUP)
