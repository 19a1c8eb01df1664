"""Tables with ORC base files on Spark: writes, key lookups and reads equal the embedded engine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pyhudi as hp
from pyhudi import spark as hs
from pyhudi.engines.spark import distributed_lookup
from tests.support.rows import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.table.base.file.format": "ORC",
}
COLUMNS = "id string, city string, ts long, at timestamp, place struct<lat: double>"


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", pytest.param("MERGE_ON_READ", marks=pytest.mark.wide)])
@pytest.mark.parametrize("index", ["BLOOM", pytest.param("SIMPLE", marks=pytest.mark.wide)])
def test_written_and_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table_type: str, index: str
) -> None:
    options = {**OPTIONS, "hoodie.datasource.write.table.type": table_type, "hoodie.index.type": index}

    def write(numbers: range, ts: int, operation: str) -> None:
        rows = spark.range(numbers.start, numbers.stop, numbers.step).selectExpr(
            "concat('k', id) AS id",
            "if(id % 2 = 0, 'a', 'b') AS city",
            f"cast({ts} AS bigint) AS ts",
            "timestamp_micros(id * 1000000007) AS at",
            "if(id % 3 = 0, null, struct(nullif(cast(id AS double), -1D) AS lat)) AS place",
        )
        assert rows.schema.simpleString().startswith("struct<id:string,city:string,ts:bigint,at:timestamp")
        hs.write(rows, tmp_path / "t", options={**options, "hoodie.datasource.write.operation": operation})

    write(range(40), 1, "bulk_insert")
    write(range(0, 40, 4), 2, "upsert")
    # As keys that are many are looked up, by joins on the cluster.
    monkeypatch.setattr(distributed_lookup, "FEW_KEYS", 0)
    write(range(39, 45), 3, "upsert")
    table = hp.Table(str(tmp_path / "t"))
    embedded = table.scan().to_arrow()
    found = {row["id"]: (row["ts"], None if row["place"] is None else row["place"]["lat"]) for row in embedded.to_pylist()}
    expected_ts = {n: 1 for n in range(40)} | {n: 2 for n in range(0, 40, 4)} | {n: 3 for n in range(39, 45)}
    assert found == {f"k{n}": (ts, n if n % 3 else None) for n, ts in expected_ts.items()}
    read = hs.read(spark, tmp_path / "t").select(*embedded.column_names)
    assert_same_rows(read.toArrow(), embedded)
    assert hs.read(spark, tmp_path / "t").where("id = 'k44' and place.lat > 1").count() == 1
    assert not list((tmp_path / "t").glob("[ab]/*.parquet"))
