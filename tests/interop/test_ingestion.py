"""Jobs exchanged with Hudi Streamer: checkpoints in commits of both, resolved by the classes of both.

Hudi's commits have the extra metadata of its streamer; Hudi's own CheckpointUtils, of which the streamer resolves a job's
checkpoint, reads those of PyHudi.  The streamer's bundle itself is not among the jars of the tests.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi import Table
from pyhudi.features.ingestion.checkpoints import KEY_V2
from tests.interop.oracle import ApacheHudi
from tests.support.ingestion import checkpoints, counted, write_lines

SOURCES = {
    "files": "org.apache.hudi.utilities.sources.JsonDFSSource",
    "table": "org.apache.hudi.utilities.sources.HoodieIncrSource",
    "sql": "org.apache.hudi.utilities.sources.JdbcSource",
    "kafka": "org.apache.hudi.utilities.sources.JsonKafkaSource",
}
RESOLVE = """
hudi = jvm.org.apache.hudi
conf = hudi.hadoop.fs.HadoopFSUtils.getStorageConf(spark._jsc.hadoopConfiguration())
client = hudi.common.table.HoodieTableMetaClient.builder().setConf(conf).setBasePath(path).build()
timeline = client.getActiveTimeline().getCommitsTimeline().filterCompletedInstants()
result = None
for instant in list(timeline.getReverseOrderedInstants().iterator()):
    metadata = hudi.common.table.timeline.TimelineUtils.getCommitMetadata(instant, timeline)
    if metadata.getMetadata("streamer.checkpoint.key.v2") or metadata.getMetadata("deltastreamer.checkpoint.key"):
        found = hudi.common.table.checkpoint.CheckpointUtils.getCheckpoint(metadata)
        result = [found.getClass().getSimpleName(), found.getCheckpointKey(), found.getCheckpointResetKey()]
        break
"""
VERSIONS = """
utils = jvm.org.apache.hudi.common.table.checkpoint.CheckpointUtils
result = [utils.shouldTargetCheckpointV2(version, name) for version in (6, 8, 9) for name in names]
"""
BASE: dict[str, Any] = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.operation": "upsert",
    "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
    "hoodie.clean.automatic": "false",
}


def rows(ts: int, *ids: int) -> pa.Table:
    return pa.table(
        {"id": pa.array(ids, pa.int64()), "ts": pa.array([ts] * len(ids), pa.int64()), "v": [f"{n}-{ts}" for n in ids]}
    )


def as_streamer(checkpoint: str) -> dict[str, Any]:
    """Options with which a commit of Hudi has the extra metadata of its streamer."""
    return {"hoodie.datasource.write.commitmeta.key.prefix": "streamer.checkpoint", KEY_V2: checkpoint}


def resolved(hudi: ApacheHudi, path: Path) -> Any:
    """The checkpoint from which Hudi Streamer would resume."""
    return hudi.run(RESOLVE, path=str(path))


@pytest.fixture(params=["1.0.2", "1.1.1"])
def release(request: pytest.FixtureRequest) -> ApacheHudi:
    found: ApacheHudi = request.getfixturevalue("hudi" if request.param == "1.0.2" else "newer_hudi")
    return found


def test_the_releases_choose_the_new_key_for_tables_of_version_8_and_above(release: ApacheHudi) -> None:
    count = len(SOURCES)
    expected = [False] * count + [True] * (2 * count)
    assert release.run(VERSIONS, names=list(SOURCES.values())) == expected


@pytest.mark.parametrize(("release", "kind"), [("1.0.2", "COPY_ON_WRITE"), ("1.1.1", "MERGE_ON_READ")], indirect=["release"])
def test_file_ingestion_continues_in_the_other_library(release: ApacheHudi, tmp_path: Path, kind: str) -> None:
    path, incoming, base_ms = tmp_path / "t", tmp_path / "in", 1_767_225_600_000
    for number in range(5):
        write_lines(incoming / f"{number}.json", rows(number, number, 9).to_pylist(), base_ms + number)
    options: dict[str, Any] = {**BASE, "hoodie.datasource.write.table.type": kind}
    # The streamer has read files 0 and 1, and another writer committed after it.
    release.write(pa.concat_tables([rows(0, 0), rows(1, 1, 9)]), path, **options, **as_streamer(str(base_ms + 1)))
    release.write(rows(7, 100), path, mode="append", **options)
    source = {"kind": "files", "path": str(incoming), "settle_seconds": 0, "pattern": "[0-3].json"}
    result = hp.Ingest({"path": path, "source": source, "max_bytes": 1}).run()[0]
    assert (result.batches, result.rows) == (2, 4)
    assert resolved(release, path) == ["StreamerCheckpointV2", str(base_ms + 3), None]
    # The streamer goes on with file 4, and PyHudi finds nothing new.
    release.write(rows(4, 4, 9), path, mode="append", **options, **as_streamer(str(base_ms + 4)))
    assert hp.Ingest({"path": path, "source": {**source, "pattern": "*"}}).run()[0].batches == 0
    expected = Counter({**{(n, n): 1 for n in range(5)}, (9, 4): 1, (100, 7): 1})
    assert counted(Table(path), "id", "ts") == expected
    read = release.read(path)
    assert Counter(zip(read["id"].to_pylist(), read["ts"].to_pylist(), strict=True)) == expected


def test_incremental_ingestion_continues_in_the_other_library(release: ApacheHudi, tmp_path: Path) -> None:
    source_path, path = tmp_path / "s", tmp_path / "t"
    release.write(rows(1, 1, 2), source_path, **BASE)
    release.write(rows(2, 2, 3), source_path, mode="append", **BASE)
    source = Table(source_path)
    times = [str(instant.completion_time) for instant in source.timeline().completed_writes()]
    # The streamer has read the first commit.
    release.write(rows(1, 1, 2), path, **BASE, **as_streamer(times[0]))
    job = {"path": path, "source": {"kind": "table", "path": str(source_path)}}
    assert hp.Ingest(job).run()[0].rows == 2
    assert resolved(release, path) == ["StreamerCheckpointV2", times[1], None]
    release.write(rows(3, 3, 4), source_path, mode="append", **BASE)
    last = str(source.timeline().completed_writes()[-1].completion_time)
    # What HoodieIncrSource reads from the checkpoint that PyHudi has stored: release 1.0.2 begins with the next commit.
    incremental: dict[str, Any] = {
        "hoodie.datasource.query.type": "incremental",
        "hoodie.datasource.read.incr.table.version": "8",
        "hoodie.datasource.read.begin.instanttime": last if release.release == "1.0.2" else times[1],
    }
    read = release.read(source_path, columns=["id", "ts", "v"], **incremental)
    assert sorted(read["id"].to_pylist()) == [3, 4]
    release.write(read, path, mode="append", **BASE, **as_streamer(last))
    assert hp.Ingest(job).run()[0].batches == 0
    assert checkpoints(Table(path)) == [times[0], times[1], last]
    assert counted(Table(path), "id", "ts") == counted(source, "id", "ts")


def test_a_prescribed_checkpoint_is_known_to_hudi(release: ApacheHudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_lines(tmp_path / "in/a.json", rows(1, 1).to_pylist(), 1_767_225_600_000)
    source = {"kind": "files", "path": str(tmp_path / "in"), "settle_seconds": 0}
    hp.Ingest({"path": path, "record_key": "id", "ordering": "ts", "source": source, "checkpoint": "5"}).run()
    assert resolved(release, path) == ["StreamerCheckpointV2", "1767225600000", "5"]
