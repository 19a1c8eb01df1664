"""Tables that generate record keys: Apache Hudi and PyHudi change rows by their stored keys, one after the other."""

from __future__ import annotations

from pathlib import Path

import pytest

import pyhudi as hp
from pyhudi.format.meta_columns import RECORD_KEY
from tests.interop.oracle import ApacheHudi

pytestmark = pytest.mark.interop

UPSERT = """
from pyspark.sql import functions as F
rows = spark.read.format("hudi").load(path).where("id = 4").withColumn("v", F.lit("theirs"))
options = {"hoodie.table.name": name, "hoodie.datasource.write.partitionpath.field": "city",
           "hoodie.datasource.write.hive_style_partitioning": "true", "hoodie.datasource.write.operation": "upsert"}
rows.write.format("hudi").options(**options).mode("append").save(path)
"""


@pytest.mark.parametrize("table_type", [pytest.param("cow", marks=pytest.mark.wide), "mor"])
def test_both_update_rows_by_stored_keys(hudi: ApacheHudi, tmp_path: Path, table_type: str) -> None:
    path, name = tmp_path / "t", f"keyless_{table_type}"
    hudi.sql(
        f"CREATE TABLE {name} (id INT, v STRING, city STRING) USING hudi PARTITIONED BY (city) LOCATION '{path}' "
        f"TBLPROPERTIES (type = '{table_type}')"
    )
    try:
        hudi.sql(f"INSERT INTO {name} VALUES (1, 'a', 'x'), (2, 'b', 'x'), (3, 'c', 'y'), (4, 'd', 'y')")
        table = hp.Table(path)

        def rows(found: list[dict[str, object]]) -> list[tuple[object, ...]]:
            return sorted((row["id"], row["v"], row["city"], row[RECORD_KEY]) for row in found)

        def both() -> list[tuple[object, ...]]:
            ours = rows(table.scan(["*"]).to_arrow().to_pylist())
            assert rows(hudi.read(path).to_pylist()) == ours
            return ours

        before = both()
        read = table.scan(["*"], filter="id = 3").to_arrow()
        table.upsert(read.set_column(read.schema.get_field_index("v"), "v", [["ours"]]))
        hp.sql(f"UPDATE hudi.`{path}` SET v = concat(v, '!') WHERE id = 1")
        hp.sql(
            f"MERGE INTO hudi.`{path}` t USING (SELECT 2 AS id, 'm' AS v, 'x' AS city UNION ALL SELECT 7, 'n', 'x') s "
            "ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *"
        )
        both()
        hudi.run(UPSERT, path=str(path), name=name)
        hudi.sql(f"UPDATE {name} SET v = 'theirs too' WHERE id = 7")
        hudi.sql(f"DELETE FROM {name} WHERE id = 1")
        after = both()
        assert [row[:2] for row in after] == [(2, "m"), (3, "ours"), (4, "theirs"), (7, "theirs too")]
        assert [row[3] for row in after[:3]] == [row[3] for row in before[1:]]
    finally:
        hudi.sql(f"DROP TABLE IF EXISTS {name}")
