"""NOT NULL columns with a default on Spark: older files are read with the default."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pyhudi import spark as hs
from tests.support.old_columns import EXPECTED, table_with_commits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_reads_and_writes(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    path = str(tmp_path / "t")
    table_with_commits(path, kind)

    def rows(chosen: str | None = None) -> list[tuple[object, ...]]:
        return sorted(tuple(row) for row in hs.read(spark, path, filter=chosen).select("id", "a", "d", "s").collect())

    assert rows() == EXPECTED
    assert rows("d = 7") == EXPECTED[1:]
    assert [tuple(row) for row in hs.read(spark, path).where("d > 7").select("s").collect()] == [("given",)]
    frame = spark.createDataFrame([("y1", "y", 2, "new", 1, "new")], "id string, part string, ts long, a string, d int, s string")
    hs.write(frame, path, options={"hoodie.datasource.write.operation": "upsert"})
    assert rows() == [*EXPECTED[:2], ("y1", "new", 1, "new"), EXPECTED[3]]
