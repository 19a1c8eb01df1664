"""Every index that finds records, on one engine, against a dict of rows.

A script of writes is the same for all; `data` turns an Arrow table into what the engine takes.  After each write the table holds
the dict's rows and keys are unique; under BUCKET each row is in the file group of its bucket.  At the end of each part of the
script the metadata table is right about every key (`Table.validate`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import xxhash

import pyhudi as hp
from pyhudi.features.consistent_hashing.hashing_store import load_hashing_metadata
from pyhudi.operations.commit.results import WriteResult
from pyhudi.records.hashing import bucket_ids
from tests.support.needs import WIDE

Values = dict[str, Any]
ToData = Callable[[pa.Table], Any]
SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64())])
BUCKETS = 3
BUCKETS_BY_PARTITION = {"p0": 4, "p1": 6, "p2": 6}
"""Of the index that has such; other partitions have the others' number."""
_FILTERS = {"hoodie.bloom.index.use.metadata": True, "hoodie.metadata.index.bloom.filter.enable": True}
_FEW = {"hoodie.metadata.record.index.min.filegroup.count": 2}


@dataclass(frozen=True)
class Index:
    """options: of the table.

    is_global: the key alone names a record; moves: it changes its partition. source: the data that it reads.
    """

    options: dict[str, Any]
    source: str
    is_global: bool = False
    moves: bool = False

    @property
    def kind(self) -> str:
        return str(self.options["hoodie.index.type"])


INDEXES = {
    "record index": Index({"hoodie.index.type": "RECORD_INDEX", **_FEW}, "record_index", is_global=True),
    "record index, moving": Index(
        {"hoodie.index.type": "RECORD_INDEX", "hoodie.record.index.update.partition.path": True, **_FEW},
        "record_index",
        is_global=True,
        moves=True,
    ),
    "record index of partitions": Index(
        {
            "hoodie.index.type": "RECORD_LEVEL_INDEX",
            "hoodie.metadata.record.level.index.enable": True,
            "hoodie.write.table.version": 9,
        },
        "record_index",
    ),
    "bucket": Index({"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": BUCKETS}, "hash of the key"),
    "bucket, counts by partition": Index(
        {
            "hoodie.index.type": "BUCKET",
            "hoodie.bucket.index.num.buckets": BUCKETS,
            "hoodie.bucket.index.partition.expressions": "0$,4;p[12],6",
        },
        "hash of the key",
    ),
    "in memory": Index({"hoodie.index.type": "INMEMORY"}, "key columns in memory"),
    "bloom": Index({"hoodie.index.type": "BLOOM", **_FILTERS}, "column_stats and bloom_filters"),
    "global bloom": Index(
        {"hoodie.index.type": "GLOBAL_BLOOM", **_FILTERS}, "column_stats and bloom_filters", is_global=True, moves=True
    ),
}

RINGS = Index(
    {
        "hoodie.index.type": "BUCKET",
        "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
        "hoodie.bucket.index.num.buckets": BUCKETS,
    },
    "hash of the key",
)
"""Consistent hashing, for tables that merge on read."""


FILE_INDEXES = {
    "simple": Index({"hoodie.index.type": "SIMPLE"}, "key columns"),
    "global simple, staying": Index(
        {"hoodie.index.type": "GLOBAL_SIMPLE", "hoodie.simple.index.update.partition.path": False}, "key columns", is_global=True
    ),
    "global simple": Index({"hoodie.index.type": "GLOBAL_SIMPLE"}, "key columns", is_global=True, moves=True),
    "bloom by footers": Index({"hoodie.index.type": "BLOOM"}, "footers"),
    "bloom": INDEXES["bloom"],
    "global bloom": INDEXES["global bloom"],
    "in memory": INDEXES["in memory"],
}
"""Those that read files."""


@dataclass
class Checked:
    """A table and what it must hold: (partition path, key) -> row."""

    table: hp.Table
    index: Index
    data: ToData
    rows: dict[tuple[str, str], Values] = field(default_factory=dict)

    @classmethod
    def create(cls, path: Path | str, table_type: str, index: Index, data: ToData, **options: Any) -> Checked:
        given = {"hoodie.index.bloom.num_entries": 100, **index.options, **options}
        table = hp.Table.create(
            str(path), name="t", record_key="id", partition_by="part", ordering="ts", table_type=table_type, options=given
        )
        return cls(table, index, data)

    def ground(self) -> Checked:
        """The same table and rows for what comes before that which is tested: Arrow tables will do, but in a wide run."""
        return self if WIDE else replace(self, data=lambda rows: rows)

    def upsert(self, *rows: Values, operation: str = "upsert") -> WriteResult:
        for row in rows:
            path = row["part"]
            homes = [home for home, key in self.rows if key == row["id"]] if self.index.is_global else []
            if homes and self.index.moves:
                del self.rows[homes[0], row["id"]]
            elif homes:
                path = homes[0]
            # A record that stays in its partition has the partition's value in reads.
            self.rows[path, row["id"]] = {**row, "part": path}
        return self._written(operation, table_of(rows))

    def delete(self, *names: tuple[str, str]) -> WriteResult:
        """By partition and key."""
        for name in names:
            self.rows.pop(name, None)
        keys = pa.table({"id": [key for _, key in names], "part": [path for path, _ in names]})
        return self._written("delete", keys)

    def delete_anywhere(self, *keys: str) -> WriteResult:
        """By key alone."""
        for name in [name for name in self.rows if name[1] in keys]:
            del self.rows[name]
        return self._written("delete", pa.table({"id": list(keys)}))

    def overwrite(self, *rows: Values) -> WriteResult:
        touched = {row["part"] for row in rows}
        self.rows = {name: row for name, row in self.rows.items() if name[0] not in touched}
        self.rows.update({(row["part"], row["id"]): row for row in rows})
        return self._written("insert_overwrite", table_of(rows))

    def _written(self, operation: str, rows: pa.Table) -> WriteResult:
        result: WriteResult = getattr(self.table, operation)(self.data(rows))
        assert result.instant is not None
        self.check()
        return result

    def check(self) -> None:
        found = self.table.scan(["_hoodie_partition_path", "_hoodie_file_name", *SCHEMA.names]).to_arrow().to_pylist()
        stored = [((row["_hoodie_partition_path"], row["id"]), {name: row[name] for name in SCHEMA.names}) for row in found]
        assert len(dict(stored)) == len(stored), "a key stands twice"
        assert dict(stored) == self.rows
        if self.index.kind == "BUCKET":
            self._check_buckets(found)

    def validate(self) -> None:
        report = self.table.validate()
        assert report.ok, str(report)

    def _check_buckets(self, found: list[Values]) -> None:
        if "hoodie.index.bucket.engine" in self.index.options:
            self._check_nodes(found)
            return
        own = BUCKETS_BY_PARTITION if "hoodie.bucket.index.partition.expressions" in self.index.options else {}
        for row in found:
            count = own.get(row["_hoodie_partition_path"], BUCKETS)
            assert [int(row["_hoodie_file_name"][:8])] == bucket_ids(pa.array([row["id"]]), count, ["id"]).tolist(), row
        slices = self.table.inspect.file_slices().select(["partition", "file_id"]).to_pylist()
        groups = {(row["partition"], row["file_id"]) for row in slices}
        assert all(file_id.endswith("-0") for _, file_id in groups)

    def _check_nodes(self, found: list[Values]) -> None:
        """Each row is in the group of its key's node, by the valid hashing metadata."""
        context = self.table.context
        rings = {}
        for part in {row["_hoodie_partition_path"] for row in found}:
            ring = load_hashing_metadata(context, context.timeline.load(), part, ())
            assert ring is not None
            rings[part] = ring
        for row in found:
            ring = rings[row["_hoodie_partition_path"]]
            place = xxhash.xxh32(row["id"].encode()).intdigest() & 0x7FFFFFFF
            node = next((node for node in ring.nodes if node.value >= place), ring.nodes[0])
            assert row["_hoodie_file_name"].startswith(node.file_id), (row, node)


def table_of(rows: tuple[Values, ...]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), SCHEMA)


def row(key: int, part: str, ts: int) -> Values:
    return {"id": f"k{key}", "part": part, "ts": ts}


def run_script(checked: Checked) -> None:
    """The writes of the suite."""
    index = checked.index
    first = checked.upsert(*(row(key, f"p{key % 2}", 1) for key in range(8)))
    assert (first.index, first.index_source) == (index.kind, index.source)
    # What a log file begins a group with counts as updated.
    assert first.rows_in == 8
    assert first.rows_inserted == (0 if index is RINGS else 8)
    # Updates, new keys, a key that came twice, and keys that changed their partition.
    checked.upsert(*(row(key, f"p{key % 2}", 2) for key in range(6, 10)), row(0, "p1", 2), row(1, "p2", 2))
    checked.upsert(row(20, "p0", 1), row(20, "p0", 3), row(7, "p1", 3))
    checked.delete(("p0", "k2"), ("p1", "k3"), ("p1", "nobody"))
    checked.delete_anywhere("k0", "k5", "nobody")
    checked.validate()
    # What was deleted comes back.
    checked.upsert(row(2, "p0", 9), row(5, "p0", 9))
    if index.kind == "BUCKET":
        assert checked.upsert(row(30, "p0", 1), row(31, "p3", 1), operation="bulk_insert").index == "BUCKET"
        assert checked.upsert(row(32, "p0", 1), operation="insert").index == "BUCKET"
    checked.overwrite(row(40, "p1", 1), row(41, "p1", 1))
    checked.upsert(row(41, "p1", 2), row(42, "p1", 2))
    checked.validate()


def run_during_compactions(checked: Checked) -> None:
    """Keys that were deleted come back between the plan of a compaction and its end; merge on read, an index that reads files.

    Their records are in logs alone then, outside the key range of the base file, and every later write finds them.
    """
    ground = checked.ground()
    ground.upsert(*(row(key, f"p{key % 2}", 1) for key in range(10)))
    ground.delete(("p0", "k0"), ("p0", "k4"), ("p1", "k9"), ("p1", "k5"))
    _compact_around(
        checked, lambda: (ground.upsert(row(0, "p0", 2), row(4, "p0", 2), row(9, "p1", 2)), ground.delete(("p0", "k4")))
    )
    again = checked.upsert(row(0, "p0", 3), row(9, "p1", 3), row(2, "p0", 3))
    assert (again.index_source, again.rows_inserted) == (checked.index.source, 0)
    # What the log deleted last is new, as is what no file has.
    assert checked.upsert(row(4, "p0", 3), row(5, "p1", 3)).rows_inserted == 2
    checked.upsert(row(4, "p0", 4), row(5, "p1", 4))
    if checked.index.is_global:
        checked.upsert(row(9, "p0", 5), row(0, "p1", 5))
        checked.upsert(row(9, "p1", 6), row(0, "p0", 6))
    checked.delete_anywhere("k9") if checked.index.is_global else checked.delete(("p1", "k9"))
    # The next compaction leaves the key out again.
    _compact_around(checked, lambda: ground.upsert(row(9, "p1", 7)))
    assert checked.upsert(row(9, "p1", 8), row(0, "p0", 8)).rows_inserted == 0
    checked.table.compact()
    assert checked.upsert(row(9, "p1", 9), row(0, "p0", 9)).rows_inserted == 0
    checked.validate()


def _compact_around(checked: Checked, write: Callable[[], object]) -> None:
    planned = checked.table.schedule_compaction().planned
    assert planned is not None
    write()
    checked.table.compact(planned)
    checked.check()
