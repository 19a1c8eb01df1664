"""What test_cluster.py runs: `python kills_program.py FOLDER cow|mor STAGE...`, one line of JSON for each stage.

Executors are processes of their own, and in each stage the first attempt of a task ends its executor once it has done its work:
its files exist, and no process knows of them.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import pyhudi as hp
from pyhudi import spark as hs
from pyhudi.engines.spark import distributed_lookup, driver_batch, engine, jobs, routing
from pyhudi.engines.spark.worker_tasks import WriteGroups
from tests.support.spark_key_lookup import go

COUNT = 120
OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "part",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.compact.inline": "false",
    "hoodie.clean.automatic": "false",
}


def end_executor_once(flag: str) -> None:
    """End the executor of the task that comes here first."""
    try:
        os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    process = os.getppid()
    while b"CoarseGrainedExecutorBackend" not in Path(f"/proc/{process}/cmdline").read_bytes():
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(process, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


class KillingTask:
    """A function whose first call that has come to its end is the end of its executor."""

    def __init__(self, function: Callable[..., Any], flag: str) -> None:
        self.function = function
        self.flag = flag

    def __call__(self, task: Any) -> Any:
        """The function's result."""
        result = self.function(task)
        end_executor_once(self.flag)
        return result


class KillingBatchTask(KillingTask):
    """The same of a function of batches."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The function's batches."""
        yield from list(self.function(batches))
        end_executor_once(self.flag)


def main(folder: Path, table_type: str, stages: list[str]) -> None:
    """Run each stage on a table of its own kind; print what was found."""
    spark = (
        SparkSession.builder.master("local-cluster[2,1,1024]")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.executor.memory", "700m")
        .config("spark.speculation", "true")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    path = str(folder / "t")
    options = {**OPTIONS, "hoodie.datasource.write.table.type": "COPY_ON_WRITE" if table_type == "cow" else "MERGE_ON_READ"}
    table = hp.Table.create(path, options=options)
    table.insert(batch(range(COUNT), 0), options=options)
    expected = dict.fromkeys(range(COUNT), 0)
    for turn, stage in enumerate(stages, 1):
        flag = str(folder / f"ended-{turn}")
        run_with_kills(spark, path, options, stage, flag, turn, expected)
        print(json.dumps({"stage": stage, "ended": os.path.exists(flag), **found(spark, path, expected)}), flush=True)
    spark.stop()


def batch(numbers: range, ts: int) -> pa.Table:
    """Rows of some keys."""
    return pa.table({"id": [f"k{n}" for n in numbers], "part": [f"p{n % 3}" for n in numbers], "ts": [ts for _ in numbers]})


def run_with_kills(
    spark: SparkSession, path: str, options: dict[str, str], stage: str, flag: str, turn: int, expected: dict[int, int]
) -> None:
    """One write or service, in which an executor ends."""
    way, _, part = stage.partition(":")
    patch = pytest.MonkeyPatch()
    run = jobs.run_tasks

    def killing(session: SparkSession, function: Any, tasks: Any) -> Any:
        inner = function
        if isinstance(function, partial):
            inner = function.args[0] if function.func is driver_batch._each else function.func
        name = getattr(inner, "__name__", type(inner).__name__)
        chosen = {"look up": "look", "write": "WriteGroup", "compact": "compact", "cluster": ""}[part]
        return run(session, KillingTask(function, flag) if chosen in name else function, tasks)

    if part != "prepare":
        for module in (engine, distributed_lookup, driver_batch):
            patch.setattr(module, "run_tasks", killing)
    go(patch, "tasks" if way == "driver" else "few keys")
    if (way, part) == ("cluster", "write"):
        patch.setattr(routing, "WriteGroups", lambda *given: KillingBatchTask(WriteGroups(*given), flag))
    try:
        table = hp.Table(path)
        if part == "compact":
            table.compact(spark=spark)
        elif part == "cluster":
            table.cluster(spark=spark)
        else:
            numbers = range(turn, COUNT + turn, 2)
            frame = spark.createDataFrame(batch(numbers, turn)).repartition(2)
            if part == "prepare":
                frame = frame.mapInArrow(KillingBatchTask(iter, flag), frame.schema)
            hs.write(frame, path, options=options)
            expected.update(dict.fromkeys(numbers, turn))
    finally:
        patch.undo()


def found(spark: SparkSession, path: str, expected: dict[int, int]) -> dict[str, object]:
    """Whether rows are right, the findings of validation, and data files that no completed action names."""
    rows = sorted((row["id"], row["ts"]) for row in hs.read(spark, path).select("id", "ts").collect())
    table = hp.Table(path)
    known = {row["path"] for row in table.inspect.files().to_pylist()}
    lie = {row["path"] for row in table.inspect.files(on_storage=True).to_pylist()}
    return {
        "rows": rows == sorted((f"k{n}", ts) for n, ts in expected.items()),
        "problems": [str(one) for one in table.validate(keys=True).findings],
        "stray": sorted(lie - known),
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
