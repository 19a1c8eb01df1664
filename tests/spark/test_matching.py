"""A DataFrame of keys prunes files before the scan: pruned files need not exist."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi import spark as hs
from pyhudi.engines.spark import dataframe_semi_join
from pyhudi.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTIONS = {
    "hoodie.metadata.enable": True,
    "hoodie.metadata.index.column.stats.enable": True,
    "hoodie.metadata.record.index.min.filegroup.count": 1,
    "hoodie.metadata.index.column.stats.column.list": "n",
}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Three partitions of one file; those of a and c are deleted from the disk."""
    table = Table.create(tmp_path / "t", record_key="id", partition_by="part", ordering="n", options=OPTIONS)
    ids = [f"{part}{number}" for part in "abc" for number in range(3)]
    table.upsert(pa.table({"id": ids, "part": [text[0] for text in ids], "n": pa.array(range(9), pa.int64())}))
    table.index.create("record_index")
    for part in "ac":
        for file in (tmp_path / "t" / part).glob("*.parquet"):
            file.unlink()
    return table


def test_keys_of_a_frame_choose_the_files(spark: SparkSession, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = spark.createDataFrame([("b0",), ("b0",), ("b2",), ("nobody",), (None,)], "id string")
    assert sorted(row["n"] for row in hs.read(spark, table.uri, ["n"], keys=keys).collect()) == [3, 5]
    assert sorted(table.lookup(keys.where("id IS NOT NULL"), ["n"]).to_arrow()["n"].to_pylist()) == [3, 5]
    pairs = keys.selectExpr("id", "CAST(3 AS INT) AS n")
    assert [row["id"] for row in hs.read(spark, table.uri, ["id"], "n < 9", keys=pairs).collect()] == ["b0"]
    assert [row["id"] for row in hs.read(spark, table.uri, keys={"n": [4, 4]}).select("id").collect()] == ["b1"]
    new = spark.createDataFrame([("b1", 1), ("b9", 2), (None, 3)], "id string, x int")
    assert sorted(row["x"] for row in table.filter_exists(new).collect()) == [2, 3]
    monkeypatch.setattr(dataframe_semi_join, "MAX_JOIN_KEYS", 1)
    numbers = spark.createDataFrame([(3, "b0"), (5, "b2"), (4, None), (4, "b0")], "n long, id string")
    assert sorted(row["n"] for row in hs.read(spark, table.uri, ["n"], keys=numbers).collect()) == [3, 5]
    nulls = numbers.selectExpr("n", "CAST(NULL AS STRING) AS id")
    assert hs.read(spark, table.uri, keys=nulls).count() == 0
    for wrong in (keys.selectExpr("id AS nowhere"), keys.selectExpr("1 AS id")):
        with pytest.raises(InvalidRequest, match=r"nowhere|cast them"):
            hs.read(spark, table.uri, keys=wrong)
