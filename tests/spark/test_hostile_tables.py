"""Tables that an enemy has written, on Spark: a sample of the cases of `tests.simulation.attack.hostile`."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import pyhudi as hp
from pyhudi import spark as hs
from pyhudi.errors import HudiError
from tests.simulation.attack.hostile.guard import Watch
from tests.simulation.attack.hostile.run import Attacker, prepare
from tests.simulation.attack.hostile.subjects import BOOTSTRAPPED, SECRET, rows

CASES = 24


def _read(spark: SparkSession, path: str) -> object:
    return hs.read(spark, path, filter="v >= 3").collect()


def _write(spark: SparkSession, path: str) -> object:
    frame = spark.createDataFrame(rows(range(3, 6), 900, "inside").to_pandas())
    return hs.write(frame, path, options={"pyhudi.spark.driver.batch.bytes": 0})


def _compact(spark: SparkSession, path: str) -> object:
    return hp.Table(path).compact(spark=spark)


def _clean(spark: SparkSession, path: str) -> object:
    return hp.Table(path).clean(spark=spark, options={"hoodie.clean.commits.retained": 1})


OPERATIONS: tuple[Callable[[SparkSession, str], object], ...] = (_read, _write, _compact, _clean)


def test_hostile_tables_reach_nothing_outside(
    spark: SparkSession, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("hostile")
    prepare(folder)
    attacker = Attacker(folder, tmp_path / "work", 1)
    watch = Watch((attacker.outside, attacker.private))
    wrong = []
    results = []
    for number in range(CASES):
        change, has_link = attacker.change(random.Random(f"spark-{number}"))
        operation = OPERATIONS[number % len(OPERATIONS)]
        watch.read()
        found: object = ""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = operation(spark, str(attacker.table))
            results.append("done")
        except HudiError as error:
            results.append(type(error).__name__)
        # Reads follow links, and those of bootstrapped tables their sources.
        reads_outside = has_link or attacker.state == BOOTSTRAPPED
        events = [event for event in watch.read() if event.startswith("changed") or not reads_outside]
        if events or (SECRET in str(found) and not reads_outside):
            wrong.append((number, change, operation.__name__, events[:4]))
    assert wrong == []
    assert "done" in results and set(results) != {"done"}
