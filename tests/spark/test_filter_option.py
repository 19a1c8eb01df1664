"""The option `pyhudi.filter` of `format("pyhudi")` uses every index: pruned files need not exist."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from pyhudi import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = datetime(2024, 3, 10, tzinfo=UTC)
OPTIONS = {
    "hoodie.metadata.enable": True,
    "hoodie.metadata.index.column.stats.enable": True,
    "hoodie.metadata.record.index.min.filegroup.count": 1,
    "hoodie.metadata.index.column.stats.column.list": "at,deep",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four partitions of one base file each, which the record key, `note` and `at` distinguish."""
    table = Table.create(tmp_path / "t", record_key="id", partition_by="part", ordering="ts", options=OPTIONS)
    ids = [f"{part}{number}" for part in "abcd" for number in range(3)]
    table.upsert(
        pa.table(
            {
                "id": ids,
                "part": [text[0] for text in ids],
                "ts": pa.array([1] * 12, pa.int64()),
                "note": [None if text.endswith("2") else f"of {text}" for text in ids],
                "at": pa.array([START + timedelta(days="abcd".index(text[0])) for text in ids], pa.timestamp("us", "UTC")),
                "deep": [{"n": 100 * "abcd".index(text[0])} for text in ids],
            }
        )
    )
    table.index.create("record_index")
    table.index.create("secondary_index", "note")
    return tmp_path / "t"


def test_filter_option_uses_the_indexes(spark: SparkSession, folder: Path) -> None:
    for part in "acd":
        for file in (folder / part).glob("*.parquet"):
            file.unlink()

    def ids(condition: str) -> list[str]:
        frame = spark.read.format("pyhudi").option("pyhudi.filter", condition).load(str(folder))
        return sorted(row["id"] for row in frame.select("id").collect())

    assert ids("id = 'b1'") == ["b1"]
    assert ids("id IN ('b0', 'b2', 'x') AND length(note) > 0") == ["b0"]
    assert ids("note = 'of b1' AND NOT (ts = 2)") == ["b1"]
    assert ids("at = TIMESTAMP '2024-03-11 00:00:00'") == ["b0", "b1", "b2"]
    assert ids("part LIKE 'b%' AND note IS NULL") == ["b2"]
    with pytest.raises(Exception, match=r"\.parquet"):
        ids("length(note) > 0")
