"""Overwrites and deleted partitions while a compaction, log compaction or clustering is pending.

Either writer plans, replaces rows and executes. Both read the same rows before and after, and after cleans and
archivals. Hudi refuses to delete partitions then; PyHudi deletes them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.errors import TableState
from pyhudi.format.instants import Action
from pyhudi.table.snapshot import load_snapshot
from tests.interop.oracle import ApacheHudi, HudiFailure
from tests.support.hudi_dead_writes import SERVICES_ARE_DEAD
from tests.support.rows import assert_same_rows

SCHEMA = pa.schema({"id": pa.string(), "city": pa.string(), "ts": pa.int64(), "v": pa.string()})
OPERATION = "hoodie.datasource.write.operation"
FEW_GROUPS: dict[str, Any] = {
    "hoodie.metadata.record.index.min.filegroup.count": 1,
    "hoodie.metadata.record.index.max.filegroup.count": 1,
    "hoodie.metadata.index.column.stats.file.group.count": 1,
}
BY_RECORD_INDEX: dict[str, Any] = {"hoodie.index.type": "RECORD_INDEX"}
VERSIONS: dict[str, Any] = {
    "hoodie.clean.automatic": True,
    "hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS",
    "hoodie.clean.fileversions.retained": 1,
}
KEPT: dict[str, Any] = {"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3, "hoodie.clean.commits.retained": 1}
TIDY: dict[str, Any] = {"hoodie.clean.automatic": True, "hoodie.archive.automatic": True, **KEPT}


def rows(*keys: str, ts: int, city: str = "") -> pa.Table:
    """Keys before `c` are in partition x, the others in y."""
    made = [{"id": key, "city": city or ("x" if key < "c" else "y"), "ts": ts, "v": f"{key}{ts}"} for key in keys]
    return pa.Table.from_pylist(made, SCHEMA)


@dataclass
class Planned:
    """A merge-on-read table with a record index and logs in both partitions."""

    hudi: ApacheHudi
    path: Path
    version: int
    rows: dict[str, str] = field(default_factory=dict)
    clock: int = 0

    @property
    def options(self) -> dict[str, Any]:
        return {
            "hoodie.table.name": "t",
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "city",
            "hoodie.datasource.write.precombine.field": "ts",
            "hoodie.datasource.write.table.type": "MERGE_ON_READ",
            "hoodie.write.table.version": self.version,
            "hoodie.write.auto.upgrade": False,
            "hoodie.metadata.enable": True,
            "hoodie.metadata.record.index.enable": True,
            # Release 1.2.0 cannot overwrite in tables with a record index and statistics of columns.
            "hoodie.metadata.index.column.stats.enable": False,
            "hoodie.metadata.index.partition.stats.enable": False,
            "hoodie.compact.inline": False,
            "hoodie.clean.automatic": False,
            "hoodie.archive.automatic": False,
            "hoodie.parquet.small.file.limit": 0,
            "hoodie.index.type": "SIMPLE",
            "hoodie.index.bloom.num_entries": 100,
            "hoodie.log.compaction.blocks.threshold": 1,
            "hoodie.embed.timeline.server": False,
            **FEW_GROUPS,
        }

    @property
    def table(self) -> Table:
        known = {key: value for key, value in self.options.items() if key != "hoodie.write.auto.upgrade"}
        return Table(self.path, options=known)

    def grow(self) -> None:
        for keys, operation in (("abcd", "insert"), ("ac", "upsert"), ("ad", "upsert")):
            self.theirs(operation, *keys)

    def theirs(self, operation: str, *keys: str, city: str = "", **more: Any) -> None:
        self.clock += 1
        data = rows(*keys, ts=self.clock, city=city)
        self.hudi.write(data, self.path, **{**self.options, OPERATION: operation, **more})
        self._apply(operation, keys)

    def ours(self, operation: str, *keys: str, city: str = "", **more: Any) -> None:
        self.clock += 1
        getattr(self.table, operation)(rows(*keys, ts=self.clock, city=city), options=more or None)
        self._apply(operation, keys)

    def _apply(self, operation: str, keys: tuple[str, ...]) -> None:
        if operation == "insert_overwrite":
            self.drop_partition_rows("x")
        elif operation == "insert_overwrite_table":
            self.rows = {}
        self.rows.update({key: f"{key}{self.clock}" for key in keys})

    def drop_partition_rows(self, partition: str) -> None:
        """That partition x or y is missing."""
        self.rows = {key: v for key, v in self.rows.items() if (key < "c") != (partition == "x")}

    def replace(self, by: str, operation: str) -> None:
        """Partition x, or the whole table, by two rows of x or by nothing."""
        if operation == "delete_partitions":
            self.table.delete_partitions("x")
            self.drop_partition_rows("x")
        else:
            getattr(self, by)(operation, "a", "aa")

    def plan(self, by: str) -> str:
        if by == "theirs":
            self.hudi.compact(self.path, "schedule", metadata=True)
            (pending,) = self.table.timeline().pending(Action.COMPACTION)
            planned = pending.request_time
        else:
            planned = str(self.table.schedule_compaction().planned)
        # A log that belongs to the slice which the compaction makes.
        self.theirs("upsert", "b")
        return planned

    def run(self, by: str, planned: str) -> None:
        if by == "theirs":
            self.hudi.compact(self.path, "run", planned, metadata=True)
        else:
            self.table.compact(planned, options=SERVICES_ARE_DEAD)
        assert not self.table.timeline().pending(Action.COMPACTION)

    def check(self) -> None:
        """Both read the rows that must be there, by listings and by the metadata table."""
        found = self.table.scan(["id", "v"]).to_arrow()
        assert dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True)) == self.rows
        assert found.num_rows == len(self.rows)
        for metadata in (False, True):
            given: dict[str, Any] = {"hoodie.metadata.enable": metadata}
            real = self.hudi.read(self.path, columns=["id", "v"], **given)
            assert_same_rows(real, found, key=["id"])
        report = self.table.validate()
        assert report.ok, str(report)

    def write_clean_archive(self) -> None:
        """Each writes keys that were replaced, cleans and archives."""
        for number in range(2):
            self.theirs("upsert", f"n{number}", **TIDY)
            self.ours("upsert", f"m{number}", **TIDY)
        self.theirs("upsert", "b", "d", **BY_RECORD_INDEX)
        self.ours("upsert", "b", "d", **BY_RECORD_INDEX)
        self.check()


CASES = [
    ("hudi", 8, "theirs", "ours", "insert_overwrite", "theirs"),
    ("hudi", 8, "ours", "theirs", "insert_overwrite_table", "ours"),
    ("hudi", 8, "theirs", "ours", "delete_partitions", "theirs"),
    ("newest_hudi", 9, "ours", "ours", "insert_overwrite", "theirs"),
    ("newer_hudi", 9, "theirs", "theirs", "insert_overwrite", "ours"),
    ("newer_hudi", 9, "ours", "ours", "delete_partitions", "theirs"),
    ("newest_hudi", 9, "theirs", "ours", "insert_overwrite_table", "theirs"),
    ("newest_hudi", 8, "theirs", "theirs", "insert_overwrite", "ours"),
    ("newest_hudi", 9, "theirs", "ours", "delete_partitions", "theirs"),
]


@pytest.mark.parametrize(
    ("release", "version", "planner", "writer", "operation", "runner"),
    [pytest.param(*case, marks=() if number < 4 else pytest.mark.wide) for number, case in enumerate(CASES)],
)
def test_overwrite_with_a_planned_compaction(
    tmp_path: Path,
    request: pytest.FixtureRequest,
    release: str,
    version: int,
    planner: str,
    writer: str,
    operation: str,
    runner: str,
) -> None:
    planned = Planned(request.getfixturevalue(release), tmp_path / "t", version)
    planned.grow()
    instant = planned.plan(planner)
    planned.replace(writer, operation)
    planned.check()
    planned.run(runner, instant)
    planned.check()
    planned.write_clean_archive()


def test_overwrite_and_clean_before_a_planned_compaction_runs(hudi: ApacheHudi, tmp_path: Path) -> None:
    """A clean by file versions of either deletes what was replaced. Hudi cannot execute its plan then; PyHudi can."""
    planned = Planned(hudi, tmp_path / "t", 8)
    planned.grow()
    instant = planned.plan("theirs")
    planned.theirs("insert_overwrite", "a", "aa")
    planned.theirs("upsert", "n", **VERSIONS)
    with pytest.raises(HudiFailure, match="does not exist"):
        planned.run("theirs", instant)
    planned.check()
    planned.run("ours", instant)
    planned.check()
    planned.write_clean_archive()


@pytest.mark.parametrize("release", ["hudi", pytest.param("newest_hudi", marks=pytest.mark.wide)])
def test_hudi_refuses_to_delete_partitions_of_which_a_plan_is_pending(
    tmp_path: Path, request: pytest.FixtureRequest, release: str
) -> None:
    planned = Planned(request.getfixturevalue(release), tmp_path / "t", 8)
    planned.grow()
    planned.plan("theirs")
    with pytest.raises(HudiFailure, match="HoodieDeletePartitionPendingTableServiceException"):
        planned.theirs("delete_partition", "a", **{"hoodie.datasource.write.partitions.to.delete": "x"})


@pytest.mark.parametrize("runner", ["theirs", pytest.param("ours", marks=pytest.mark.wide)])
def test_overwrite_with_a_planned_log_compaction(hudi: ApacheHudi, tmp_path: Path, runner: str) -> None:
    planned = Planned(hudi, tmp_path / "t", 8)
    planned.grow()
    schema = load_snapshot(planned.table.context).schema
    assert schema is not None
    instant = hudi.log_compact(planned.path, schema.avro, **planned.options)
    assert instant is not None
    planned.ours("insert_overwrite", "a", "aa")
    planned.check()
    if runner == "theirs":
        hudi.log_compact(planned.path, schema.avro, instant, **planned.options)
    else:
        planned.table.log_compact(instant)
    planned.check()
    planned.write_clean_archive()


@pytest.mark.parametrize("release", ["hudi", pytest.param("newest_hudi", marks=pytest.mark.wide)])
def test_a_clustering_of_hudi_brings_replaced_rows_back(tmp_path: Path, request: pytest.FixtureRequest, release: str) -> None:
    """Hudi lets the overwrite pass.  PyHudi refuses it until the clustering has run or is dropped."""
    planned = Planned(request.getfixturevalue(release), tmp_path / "t", 8)
    planned.grow()
    planned.hudi.call("run_clustering", path=str(planned.path), op="schedule")
    (pending,) = planned.table.timeline().pending(Action.CLUSTERING)
    with pytest.raises(TableState, match=f"pending clustering {pending.request_time} is about to replace"):
        planned.ours("insert_overwrite", "a", "aa")
    planned.theirs("insert_overwrite", "a", "aa")
    planned.check()
    planned.hudi.call("run_clustering", path=str(planned.path), op="execute")
    found = planned.table.scan(["id"]).to_arrow()["id"].to_pylist()
    assert sorted(found) == ["a", "a", "aa", "b", "c", "d"], "a and b are those of before"
