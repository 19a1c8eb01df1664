"""Use an installed PyHudi as a new user would: `python -I scripts/dist_trial.py EXTRA TABLE`.

TABLE is a folder that does not exist yet.  EXTRA is the extra PyHudi was installed with, or `none`.  The trial creates, changes
and reads a table, then uses what the extra adds.  With `-I` only the installed package is found.
"""

from __future__ import annotations

import importlib
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

import pyhudi as hp

ROW = {"id": "b", "fare": 3.0}


def create(folder: str) -> hp.Table:
    """A merge-on-read table with two rows, one of them above a fare of 2."""
    table = hp.Table.create(folder, record_key="id", partition_by="city", ordering="ts", table_type="mor")
    table.upsert(pa.table({"id": ["a", "b"], "city": ["sf", "ny"], "ts": [1, 1], "fare": [1.0, 2.0]}))
    table.upsert(pa.table({"id": ["b"], "city": ["ny"], "ts": [2], "fare": [3.0]}))
    table.compact()
    assert table.scan(["id", "fare"], filter="fare > 2").to_arrow().to_pylist() == [ROW]
    assert table.validate().ok
    return table


def use_cli(table: hp.Table) -> None:
    """The command beside this interpreter."""
    command = str(Path(sys.executable).with_name("pyhudi"))
    version = subprocess.run([command, "--version"], check=True, capture_output=True, text=True).stdout
    assert hp.__version__ in version, version
    subprocess.run([command, "show", table.uri], check=True, stdout=subprocess.DEVNULL)


def use_sql(table: hp.Table) -> None:
    rows = hp.sql("SELECT id, fare FROM trips WHERE fare > 2", tables={"trips": table})
    assert rows.to_pylist() == [ROW]


def use_spark(table: hp.Table) -> None:
    """A local session, where there is a Java."""
    from pyhudi import spark as hs

    if shutil.which("java") is None:
        print("dist: no Java is installed here; the extra `spark` is imported only", file=sys.stderr)
        return
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        rows = hs.read(spark, table.uri, filter="fare > 2").select("id", "fare").collect()
        assert [row.asDict() for row in rows] == [ROW]
    finally:
        spark.stop()


def imports(*modules: str) -> Callable[[hp.Table], object]:
    """A trial that imports what a server would be needed for to use."""

    def import_all(table: hp.Table) -> None:
        for module in modules:
            importlib.import_module(module)

    return import_all


# What each extra of pyproject.toml adds.
TRIALS: dict[str, Callable[[hp.Table], object]] = {
    "none": lambda table: None,
    "aws": imports("boto3", "pyhudi.storage.catalogs.glue_catalog", "pyhudi.storage.locks.dynamodb"),
    "cli": use_cli,
    "connect": imports("pyspark.sql.connect.session", "pyhudi.spark"),
    "hbase": imports("thriftpy2", "pyhudi.features.hbase_index.hbase_client"),
    "hive": imports("thriftpy2", "pyhudi.storage.catalogs.hive_catalog"),
    "opentelemetry": imports("opentelemetry.metrics", "pyhudi.features.metrics.open_telemetry"),
    "adbc": imports("adbc_driver_sqlite", "adbc_driver_postgresql"),
    "kafka": imports("confluent_kafka"),
    "pandas": lambda table: sum(table.scan().to_pandas()["fare"]),
    "postgres": imports("psycopg", "pyhudi.features.catalogs.sql_store"),
    "plot": lambda table: table.plot.sizes(),
    "polars": lambda table: hp.scan_polars(table.scan()).collect(),
    "spark": use_spark,
    "sql": use_sql,
    "zookeeper": imports("kazoo.client", "pyhudi.storage.locks.zookeeper"),
}


def main(extra: str, folder: str) -> None:
    """Raises where something is not as it should be."""
    assert "site-packages" in Path(hp.__file__).parts, f"pyhudi comes from {hp.__file__}"
    TRIALS[extra](create(folder))
    print(f"Python {platform.python_version()}, extra {extra}: a table was created, compacted, validated and read")


if __name__ == "__main__":
    main(*sys.argv[1:])
