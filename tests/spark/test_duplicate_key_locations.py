"""Lookups on Spark of keys that are in several file groups, some of which delete them in logs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import pyhudi as hp
from tests.support.spark_key_lookup import go

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rows(v: int, *ids: str) -> pa.Table:
    return pa.table({"id": list(ids), "part": ["x"] * len(ids), "v": pa.array([v] * len(ids), pa.int32())})


@pytest.mark.parametrize(
    ("way", "index"),
    [
        ("many keys", "SIMPLE"),
        ("few keys", "GLOBAL_BLOOM"),
        *(
            pytest.param(way, index, marks=pytest.mark.wide)
            for way, index in [("driver", "SIMPLE"), ("tasks", "BLOOM"), ("many keys", "GLOBAL_SIMPLE"), ("many keys", "BLOOM")]
        ),
    ],
)
def test_upsert_changes_only_the_live_row(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, index: str
) -> None:
    """Key k was deleted in one place and exists in another, l is deleted in two places, m has two copies, n exists in one."""
    go(monkeypatch, way)
    options = {
        "hoodie.index.type": index,
        "hoodie.parquet.small.file.limit": 0,
        "hoodie.write.record.merge.mode": "COMMIT_TIME_ORDERING",
    }
    table = hp.Table.create(tmp_path / "t", name="t", record_key="id", partition_by="part", table_type="mor", options=options)
    table.insert(rows(1, "k", "l", "m", "n"))
    table.delete(rows(0, "k", "l"))
    table.insert(rows(2, "k", "l", "m"))
    table.delete(rows(0, "l"))
    table.upsert(spark.createDataFrame(rows(3, "k", "l", "m", "n", "o")))
    seen = sorted((row["id"], row["v"]) for row in table.scan().to_arrow().to_pylist())
    assert seen == [("k", 3), ("l", 3), ("m", 3), ("m", 3), ("n", 3), ("o", 3)]
