"""Settings of the session and types of the caller's rows have no effect on what a write stores."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pyhudi as hp
from pyhudi import spark as hs
from pyhudi.engines.spark import incoming, tagged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.index.type": "SIMPLE",
    "hoodie.parquet.small.file.limit": "0",
}
ON_CLUSTER = {**OPTIONS, "pyhudi.spark.driver.batch.bytes": "0"}
"""Rows stay on the cluster, as those of a large write."""


@contextmanager
def settings(spark: SparkSession, values: dict[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)


def rows(spark: SparkSession, low: int, high: int, v: int) -> DataFrame:
    return spark.range(low, high, 1, 1).selectExpr("concat('k', id) AS id", f"{v} AS v", f"{v}L AS ts")


def values(path: Path) -> dict[str, int]:
    stored = hp.Table(path).scan(["id", "v"]).to_arrow().to_pylist()
    assert len({row["id"] for row in stored}) == len(stored)
    return {row["id"]: row["v"] for row in stored}


@pytest.mark.parametrize("damage", ["corrupt", "missing"])
def test_unreadable_file_fails_a_lookup_of_many_keys(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    """With these settings Spark skips such files, whose keys would count as new."""
    monkeypatch.setattr(incoming, "FEW_KEYS", -1)
    path = tmp_path / "t"
    hs.write(rows(spark, 0, 20, 1), path, options=ON_CLUSTER)
    (file,) = path.glob("*.parquet")
    good = file.read_bytes()
    ignored = {"spark.sql.files.ignoreCorruptFiles": "true", "spark.sql.files.ignoreMissingFiles": "true"}
    file.unlink()
    if damage == "corrupt":
        file.write_bytes(good[:4] + b"\x7f" * (len(good) - 12) + good[-8:])
    with settings(spark, ignored), pytest.raises(hp.HudiError):
        hs.write(rows(spark, 10, 30, 2), path, options=ON_CLUSTER)
    file.write_bytes(good)
    assert values(path) == {f"k{n}": 1 for n in range(20)}


def test_dates_are_stored_as_they_are_under_a_legacy_calendar(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    hs.write(spark.sql("SELECT 'a' AS id, date'1500-01-01' AS d, 1L AS ts, 0 AS v"), path, options=OPTIONS)
    with settings(spark, {"spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY"}):
        hs.update(spark, path, {"v": "v + 1"})
    assert str(hp.Table(path).scan(["d"]).to_arrow()["d"][0].as_py()) == "1500-01-01"


@pytest.mark.parametrize("options", [OPTIONS, ON_CLUSTER], ids=["driver", "cluster"])
def test_upsert_of_any_string_type(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str]
) -> None:
    monkeypatch.setattr(incoming, "FEW_KEYS", -1)
    path = tmp_path / "t"
    kept = {"spark.sql.preserveCharVarcharTypeInfo": "true", "spark.sql.sources.useV1SourceList": ""}
    with settings(spark, kept):
        for v in (1, 2):
            frame = rows(spark, 0, 3, v).selectExpr(
                "id COLLATE UTF8_LCASE AS id", "v", "ts", "CAST('ab' AS CHAR(5)) c", "array(CAST('cd' AS VARCHAR(5))) w"
            )
            hs.write(frame, path, options=options)
    assert values(path) == {"k0": 2, "k1": 2, "k2": 2}
    hs.merge(
        spark, path, frame.selectExpr("id", "9 v", "9L ts"), on="s.id = t.id", source_alias="s", target_alias="t"
    ).when_matched_update({"v": "s.v", "ts": "s.ts"}).execute()
    assert values(path) == {"k0": 9, "k1": 9, "k2": 9}


@pytest.mark.parametrize("many", [False, True])
def test_input_that_is_computed_again_with_other_keys_is_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: bool
) -> None:
    """As after the loss of the executors that cached the rows, between the lookup of keys and the write."""
    from pyspark.sql import functions as F

    if many:
        monkeypatch.setattr(incoming, "FEW_KEYS", -1)
    kind = tagged.DistributedTagged if many else tagged.DriverTagged
    write = kind.write
    counter = tmp_path / "computed"

    def after_loss(self, plan):  # type: ignore[no-untyped-def]
        spark.catalog.clearCache()
        counter.touch()
        return write(self, plan)

    path = tmp_path / "t"
    hs.write(rows(spark, 0, 5, 1), path, options=ON_CLUSTER)
    monkeypatch.setattr(kind, "write", after_loss)
    flag = str(counter)
    key = F.udf(lambda n: f"{'x' if os.path.exists(flag) else 'k'}{n}", "string").asNondeterministic()
    changing = spark.range(0, 10, 1, 1).select(key("id").alias("id"), F.lit(2).alias("v"), F.lit(2).cast("long").alias("ts"))
    with pytest.raises(hp.EngineFailed, match="computed the input again"):
        hs.write(changing, path, options=ON_CLUSTER)
    assert values(path) == {f"k{n}": 1 for n in range(5)} and not hp.Table(path).timeline().pending()
