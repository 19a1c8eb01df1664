"""One size of one axis with rows, by Delta on Spark, in a process of its own interpreter: a line of JSON for each step.

.venv-bench-delta-spark/bin/python -m benchmarks.curves.delta_spark_process AXIS KIND SIZE FOLDER
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa

from benchmarks.curves.steps import measured
from benchmarks.environments import java_home, prepare_jars
from benchmarks.memory import Watch, tree_cpu_seconds
from benchmarks.peers.base import Settings
from benchmarks.peers.delta_spark import DeltaSpark

CORES = 2
WARMING = 2


class DeltaOnSpark:
    """Rows come as Arrow tables of this process.  Its `mor` has deletion vectors."""

    def __init__(self, scratch: str) -> None:
        self._peer = DeltaSpark()
        jars = tuple(str(jar) for jar in prepare_jars("delta-spark"))
        self._peer.start(Settings(core_count=CORES, driver_memory="3g", scratch=scratch, jars=jars))
        self.spark = self._peer.spark

    def processor(self) -> float:
        return tree_cpu_seconds(os.getpid())

    def create(self, folder: Path, kind: str, rows: pa.RecordBatchReader) -> None:
        writer = self.spark.createDataFrame(rows.read_all()).write.format("delta").partitionBy("part")
        writer.option("delta.enableDeletionVectors", str(kind == "mor").lower()).save(str(folder))

    def upsert(self, folder: Path, rows: pa.Table) -> None:
        self.spark.createDataFrame(rows).createOrReplaceTempView("incoming")
        clauses = "when matched then update set * when not matched then insert *"
        condition = "t.id = s.id and t.part = s.part"
        self.spark.sql(f"merge into delta.`{folder}` t using incoming s on {condition} {clauses}").collect()

    def read(self, folder: Path, part: str | None) -> int:
        rows = self.spark.read.format("delta").load(str(folder))
        # Every column is computed, as Delta 4.0 cannot write a table that has deletion vectors into the noop sink.
        return int((rows if part is None else rows.where(f"part = '{part}'"))._jdf.queryExecution().toRdd().count())


def main() -> None:
    axis, kind, size, folder = sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])
    os.environ["JAVA_HOME"] = str(java_home())
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        system = DeltaOnSpark(scratch)
        # The first writes of a session pay for much that the later ones do not.
        for number in range(WARMING):
            list(measured(system, "commits", kind, 4, Path(scratch) / f"warm{number}"))
        with Watch(os.getpid()) as watch:
            steps = list(measured(system, axis, kind, size, folder))
        for step in steps:
            print(json.dumps({**asdict(step), "peak_mib": watch.usage.peak_rss_bytes / 2**20}), flush=True)
        system.spark.stop()


if __name__ == "__main__":
    main()
