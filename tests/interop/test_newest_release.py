"""Apache Hudi 1.2.0: plans that the other writer executes, and table properties."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.format.hudi_types import BLOB_TYPE
from pyhudi.format.instants import Action
from tests.interop.oracle import ApacheHudi
from tests.interop.pair import make
from tests.support.hudi_pair_of_version import PairOfVersion


@pytest.mark.parametrize("kind", ["mor", pytest.param("cow", marks=pytest.mark.wide)])
def test_plans_of_each_library_are_executed_by_the_other(newest_hudi: ApacheHudi, tmp_path: Path, kind: str) -> None:
    pair = PairOfVersion(newest_hudi, tmp_path / "t", kind)
    pair.theirs("insert", make(range(12), 1), check=False)
    pair.ours("upsert", make(range(6), 2), check=False)
    newest_hudi.call("run_clustering", path=str(pair.path), op="schedule")
    (theirs,) = pair.table.timeline().pending(Action.CLUSTERING)
    assert pair.table.cluster(theirs.request_time).instant == theirs.request_time
    pair.check()
    pair.theirs("upsert", make(range(9), 2), check=False)
    ours = pair.table.schedule_clustering().instant
    assert ours is not None
    newest_hudi.call("run_clustering", path=str(pair.path), op="execute", instants=ours)
    assert not pair.table.timeline().pending()
    pair.check()
    if kind == "mor":
        pair.theirs("upsert", make(range(3), 3), check=False)
        compaction = pair.table.schedule_compaction().planned
        newest_hudi.compact(pair.path, "run", compaction, metadata=True)
        pair.theirs("upsert", make(range(3), 4), check=False)
        newest_hudi.compact(pair.path, "schedule", metadata=True)
        assert pair.table.compact().runs
    pair.check(filters=1)
    pair.checked()


def test_properties_of_a_table_of_release_1_2_are_kept(newest_hudi: ApacheHudi, tmp_path: Path) -> None:
    """It notes how partition values are read from paths, as earlier releases do not."""
    pair = PairOfVersion(newest_hudi, tmp_path / "t", "cow")
    pair.theirs("insert", make(range(6), 1), check=False)
    before = newest_hudi.properties(pair.path)
    name = "hoodie.table.partition_extractor_class"
    assert before[name] == "org.apache.hudi.hive.SinglePartPartitionValueExtractor"
    pair.ours("upsert", make(range(3), 2), check=False)
    pair.table.set_properties({"owner": "us"})
    after = newest_hudi.properties(pair.path)
    assert {key: value for key, value in after.items() if key not in ("owner", "hoodie.table.checksum")} == {
        key: value for key, value in before.items() if key != "hoodie.table.checksum"
    }
    pair.check()


def test_vectors_and_blobs_of_pyhudi_are_read_by_release_1_2(newest_hudi: ApacheHudi, tmp_path: Path) -> None:
    reference = {"external_path": "/x", "offset": 1, "length": 2, "managed": False}
    blobs = [{"type": "INLINE", "data": b"a", "reference": None}, {"type": "OUT_OF_LINE", "data": None, "reference": reference}]
    columns = pa.schema(
        [
            pa.field("id", pa.int32()),
            pa.field("emb", pa.list_(pa.float32()), metadata={"hudi_type": "VECTOR(2)"}),
            pa.field("pic", BLOB_TYPE, metadata={"hudi_type": "BLOB"}),
        ]
    )
    rows = pa.table(
        [pa.array([1, 2], pa.int32()), pa.array([[0.5, -1.0], None], columns.field("emb").type), blobs], schema=columns
    )
    Table.create(tmp_path / "t", record_key="id", schema=columns).upsert(rows)
    assert newest_hudi.read(tmp_path / "t", columns=columns.names).sort_by("id").to_pylist() == rows.to_pylist()
