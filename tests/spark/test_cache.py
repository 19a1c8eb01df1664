"""The session setting that a write changes while it caches rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyhudi import spark as hs
from pyhudi.engines.spark.dataframe_cache import CacheSettingGuard
from pyhudi.errors import InvalidRequest

SETTING = "spark.sql.inMemoryColumnarStorage.compressed"
OPTIONS = {
    "hoodie.table.name": "kept",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
}

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("before", ["true", "false"])
def test_the_last_write_puts_the_setting_back(spark: SparkSession, before: str) -> None:
    set_before = spark.conf.get(SETTING)
    assert set_before is not None
    spark.conf.set(SETTING, before)
    try:
        first, second = CacheSettingGuard(spark), CacheSettingGuard(spark)
        first.enter()
        first.enter()
        second.enter()
        assert spark.conf.get(SETTING) == "false"
        first.release()
        first.release()
        assert spark.conf.get(SETTING) == "false"
        second.release()
        assert spark.conf.get(SETTING) == before
    finally:
        spark.conf.set(SETTING, set_before)


def test_a_write_leaves_the_session_as_it_was_also_when_it_fails(spark: SparkSession, tmp_path: Path) -> None:
    before = spark.conf.get(SETTING)
    rows = spark.createDataFrame([("a", 1), ("b", 2)], "id string, ts long")
    hs.write(rows, str(tmp_path / "t"), options=OPTIONS)
    assert spark.conf.get(SETTING) == before
    with pytest.raises(InvalidRequest, match="ordering field 'ts' is null"):
        hs.write(spark.createDataFrame([("a", None)], "id string, ts long"), str(tmp_path / "t"), options=OPTIONS)
    assert spark.conf.get(SETTING) == before
