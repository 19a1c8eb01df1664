"""Simple bucket index with bucket counts per partition, written in turn by PyHudi and Apache Hudi 1.1.1.

Each key is stored once, in the bucket of its partition's count.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.errors import TableState
from pyhudi.features import procedures
from pyhudi.format.instants import Action
from pyhudi.format.partition_bucket_config import BucketCounts, counts_path
from pyhudi.format.paths import BUCKET_COUNTS_FOLDER
from pyhudi.records.hashing import bucket_ids
from tests.interop.oracle import ApacheHudi
from tests.support.rows import assert_same_rows, without_meta

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("day", pa.string())])
DAYS = ("d1", "d2", "e1")
INDEX: dict[str, Any] = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 2}
LATER = "d2,1;e,4"
RULES = {"hoodie.bucket.index.partition.expressions": "d[0-9],3;1$,5"}
COUNTS = {"d1": 3, "d2": 3, "e1": 5}

# Its tasks fill an unguarded map when they first meet rules, and fail where two of them do at once.
_MEET = "jvm.org.apache.hudi.index.bucket.partition.PartitionBucketIndexCalculator.getInstance(rules, 'regex', 2)"


def rows(numbers: Iterable[int], ts: int, days: tuple[str, ...] = DAYS) -> pa.Table:
    return pa.Table.from_pylist(
        [{"id": f"{day}-{n}", "ts": ts, "day": day} for n in numbers for day in [days[n % len(days)]]], SCHEMA
    )


@dataclass
class AlternatingWrites:
    """A table, who writes it, and what it must hold."""

    hudi: ApacheHudi
    path: Path
    kind: str
    version: int = 9
    counts: dict[str, int] = field(default_factory=lambda: dict(COUNTS))
    held: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, Any]:
        return {
            "hoodie.table.name": "counts",
            "hoodie.datasource.write.table.type": self.kind,
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "day",
            "hoodie.datasource.write.precombine.field": "ts",
            "hoodie.write.table.version": self.version,
            "hoodie.compact.inline": False,
            **INDEX,
        }

    @property
    def table(self) -> Table:
        return Table(self.path, options=self.options)

    def ours(self, operation: str, data: pa.Table, **options: Any) -> None:
        getattr(self.table, operation)(data, options=options)
        self._applied(operation, data)

    def theirs(self, operation: str, data: pa.Table, **options: Any) -> None:
        self.hudi.write(data, self.path, **{**self.options, "hoodie.datasource.write.operation": operation, **options})
        self._applied(operation, data)

    def _applied(self, operation: str, data: pa.Table) -> None:
        incoming = {row["id"]: row for row in data.to_pylist()}
        if operation == "insert_overwrite":
            gone = {row["day"] for row in incoming.values()}
            self.held = {key: row for key, row in self.held.items() if row["day"] not in gone}
        if operation == "delete":
            self.held = {key: row for key, row in self.held.items() if key not in incoming}
        else:
            self.held.update(incoming)

    def check(self) -> None:
        expected = pa.Table.from_pylist(list(self.held.values()), SCHEMA)
        found = self.table.scan(["_hoodie_file_name", *SCHEMA.names]).to_arrow()
        assert_same_rows(found.select(SCHEMA.names), expected, key=["id"])
        for row in found.to_pylist():
            bucket = bucket_ids(pa.array([row["id"]]), self.counts[row["day"]], ["id"])[0]
            assert int(row["_hoodie_file_name"].lstrip(".")[:8]) == bucket, row
        assert_same_rows(without_meta(self.hudi.read(self.path)), expected, key=["id"])
        key = min(self.held)
        by_bucket: dict[str, Any] = {**INDEX, "hoodie.metadata.enable": True}
        asked = self.hudi.read(self.path, where=f"id = '{key}'", **by_bucket)
        assert without_meta(asked).to_pylist() == [self.held[key]]
        assert self.table.validate().ok


@pytest.mark.wide
@pytest.mark.parametrize("kind", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_bucket_counts_equal_those_of_hudi(newer_hudi: ApacheHudi, tmp_path: Path, kind: str) -> None:
    writes = AlternatingWrites(newer_hudi, tmp_path / "t", kind)
    for known in (*RULES.values(), LATER, "d1,3;e,4", "e1,5;d1,3;e,4", "d2,3;d1,3;e,4"):
        newer_hudi.run(f"{_MEET}; result = None", rules=known)
    Table.create(writes.path, options=writes.options)
    writes.ours("upsert", rows(range(24), 1), **RULES)
    writes.theirs("upsert", rows(range(18, 36), 2))
    writes.ours("upsert", rows(range(6, 40, 2), 3))
    writes.theirs("insert_overwrite", rows(range(0, 12), 4, ("d1",)))
    writes.ours("delete", rows([0, 30, 20], 5, ("d1", "d2", "e1")))
    if kind == "MERGE_ON_READ":
        writes.table.compact()
    writes.ours("upsert", rows(range(9), 6, ("d1",)))
    writes.check()
    # It gives partitions other counts, and everybody goes on by those.
    newer_hudi.register(writes.path, "bucket_counts")
    newer_hudi.call(
        "partition_bucket_index_manager",
        table="bucket_counts",
        overwrite=LATER,
        bucket_number=2,
        rule="regex",
        dry_run=False,
    )
    stored = sorted((writes.path / BUCKET_COUNTS_FOLDER).glob("*.hashing_config"))
    newest = stored[-1].read_bytes()
    assert BucketCounts.decode(newest).encode() == newest, newest
    assert (writes.path / counts_path(json.loads(newest)["instant"])) == stored[-1]
    writes.counts = {"d1": 2, "d2": 1, "e1": 4}
    writes.ours("upsert", rows(range(5, 25), 7))
    writes.theirs("upsert", rows(range(15, 35), 8))
    writes.check()
    # PyHudi changes them too, and Apache Hudi writes by those and changes them again.
    manage: dict[str, Any] = {"bucket_number": 2, "dry_run": False}
    procedures.call("partition_bucket_index_manager", path=str(writes.path), overwrite="d1,3;e,4", **manage)
    writes.counts = {"d1": 3, "d2": 2, "e1": 4}
    writes.theirs("upsert", rows(range(10, 30), 9))
    writes.ours("upsert", rows(range(3, 20), 10))
    writes.check()
    hudi_details = newer_hudi.call("partition_bucket_index_manager", table="bucket_counts", add="e1,5")["details"][0].as_py()
    assert hudi_details.split() == ["e1", "=>", "5"]
    without_services = "hoodie.compact.inline=false"
    newer_hudi.call("partition_bucket_index_manager", table="bucket_counts", add="e1,5", dry_run=False, options=without_services)
    writes.counts["e1"] = 5
    writes.check()
    # Each rolls back what the other one did.
    instant = writes.table.timeline().completed(Action.REPLACECOMMIT)[-1].request_time
    procedures.call("partition_bucket_index_manager", path=str(writes.path), rollback=instant)
    writes.counts["e1"] = 4
    writes.check()
    procedures.call("partition_bucket_index_manager", path=str(writes.path), add="d2,3", dry_run=False, options=without_services)
    instant = writes.table.timeline().completed(Action.REPLACECOMMIT)[-1].request_time
    assert (
        newer_hudi.call("partition_bucket_index_manager", table="bucket_counts", rollback=instant)["result"][0].as_py()
        == "SUCCESS"
    )
    writes.theirs("upsert", rows(range(12), 11))
    writes.check()


@pytest.mark.wide
def test_bucket_rules_only_in_options_of_hudi(newer_hudi: ApacheHudi, tmp_path: Path) -> None:
    """It keeps none of them, so each writer has to name them; without them it writes records a second time."""
    newer_hudi.run(f"{_MEET}; result = None", rules=next(iter(RULES.values())))
    writes = AlternatingWrites(newer_hudi, tmp_path / "t", "MERGE_ON_READ")
    writes.theirs("upsert", rows(range(24), 1), **RULES)
    assert not (writes.path / BUCKET_COUNTS_FOLDER).exists()
    writes.ours("upsert", rows(range(12, 30), 2), **RULES)
    writes.theirs("upsert", rows(range(20, 34), 3), **RULES)
    writes.check()
    with pytest.raises(TableState, match="has no such bucket"):
        writes.table.upsert(rows(range(24), 4))
    newer_hudi.write(rows(range(24), 4), writes.path, **{**writes.options, "hoodie.datasource.write.operation": "upsert"})
    assert newer_hudi.read(writes.path).num_rows > len(writes.held)


@pytest.mark.wide
def test_release_1_0_ignores_bucket_counts(hudi: ApacheHudi, tmp_path: Path) -> None:
    """It knows neither the option nor the files: records exist twice, which is detected."""
    writes = AlternatingWrites(hudi, tmp_path / "t", "MERGE_ON_READ", version=8)
    Table.create(writes.path, options=writes.options)
    writes.ours("upsert", rows(range(24), 1), **RULES)
    writes.check()
    writes.theirs("upsert", rows(range(24), 2), **RULES)
    assert hudi.read(writes.path).num_rows == writes.table.scan().to_arrow().num_rows > len(writes.held)
    report = writes.table.validate(keys=True)
    assert {found.check for found in report.findings} == {"keys"} and not report.ok, str(report)
    with pytest.raises(TableState, match="is stored in bucket"):
        writes.table.upsert(rows(range(24), 3))
