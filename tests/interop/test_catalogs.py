"""Catalog sync registers in a Hive metastore what Apache Hudi registers, and each continues after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.storage.catalogs.hive_catalog import HiveCatalog
from tests.conformance.servers import Server, running_metastore
from tests.interop.oracle import RELEASE, ROOT, ApacheHudi, missing
from tests.support.needs import unavailable


@pytest.fixture(scope="module")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    pytest.importorskip("thriftpy2")
    with running_metastore(tmp_path_factory.mktemp("metastore")) as server:
        yield server


@pytest.fixture
def catalog(metastore: Server) -> Iterator[HiveCatalog]:
    found = HiveCatalog([f"thrift://{metastore.address}"], "uris")
    yield found
    found.close()


ITEM = pa.field("element", pa.string())


def rows(ids: list[int], city: str) -> pa.Table:
    count = len(ids)
    return pa.table(
        {
            "Id": pa.array(ids, pa.int64()),
            "ts": pa.array([1] * count, pa.int64()),
            "flag": [True] * count,
            "small": pa.array([1] * count, pa.int32()),
            "Ratio": pa.array([0.5] * count, pa.float32()),
            "fare": [1.5] * count,
            "data": [b"x"] * count,
            "price": pa.array([Decimal("1.234")] * count, pa.decimal128(9, 3)),
            "day": [date(2024, 1, 5)] * count,
            "at": pa.array([datetime(2024, 1, 5, tzinfo=UTC)] * count, pa.timestamp("us", "UTC")),
            "tags": pa.array([["a"]] * count, pa.list_(ITEM)),
            "sums": pa.array([[("a", 0.5)]] * count, pa.map_(pa.string(), pa.float64())),
            "place": pa.array([{"X": 1, "ys": [2]}] * count, pa.struct({"X": pa.int32(), "ys": pa.list_(pa.int64())})),
            "city": [city] * count,
            "hour": pa.array([7] * count, pa.int32()),
        }
    )


def options(kind: str, server: Server, database: str) -> dict[str, Any]:
    return {
        "hoodie.table.name": "Trips",
        "hoodie.datasource.write.table.type": kind,
        "hoodie.datasource.write.recordkey.field": "Id",
        "hoodie.datasource.write.partitionpath.field": "city,hour",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.ComplexKeyGenerator",
        "hoodie.datasource.hive_sync.enable": "true",
        "hoodie.datasource.hive_sync.mode": "hms",
        "hoodie.datasource.hive_sync.metastore.uris": f"thrift://{server.address}",
        "hoodie.datasource.hive_sync.database": database,
    }


OF_THE_SERVER = ("transient_lastDdlTime", "numFiles", "totalSize", "spark.sql.create.version")


def registered(catalog: HiveCatalog, database: str, name: str) -> dict[str, object]:
    """An entry with its partitions, without place and time of its registration."""
    found = catalog.table(database, name)
    assert found is not None
    parameters = {key: value for key, value in found.parameters.items() if key not in OF_THE_SERVER}
    partitions = {partition.values: partition.location for partition in catalog.partitions(found)}
    return asdict(found) | {"database": "", "parameters": parameters, "partitions": partitions}


def check_same(ours: dict[str, object], theirs: dict[str, object]) -> None:
    for key, value in theirs.items():
        assert ours[key] == value, key
    assert ours.keys() == theirs.keys()


@pytest.mark.parametrize("kind", ["MERGE_ON_READ", pytest.param("COPY_ON_WRITE", marks=pytest.mark.wide)])
def test_both_register_the_same(hudi: ApacheHudi, metastore: Server, catalog: HiveCatalog, tmp_path: Path, kind: str) -> None:
    path, suffix = tmp_path / "trips", kind[0].lower()
    theirs, ours = f"theirs_{suffix}", f"ours_{suffix}"
    names = ["trips", "trips_ro", "trips_rt"] if suffix == "m" else ["trips"]
    hudi.write(rows([1, 2], "oslo"), path, **options(kind, metastore, theirs))
    table = Table(path)
    result = table.sync(metastore=f"thrift://{metastore.address}", database=ours)
    assert sorted(each.name for each in result.tables) == [f"{ours}.{name}" for name in names]
    for name in names:
        check_same(registered(catalog, ours, name), registered(catalog, theirs, name))

    # Each goes on with what the other registered.
    hudi.write(rows([3], "rome"), path, **options(kind, metastore, ours))
    result = table.sync(metastore=f"thrift://{metastore.address}", database=theirs)
    assert {(each.action, each.added, each.dropped) for each in result.tables} == {("unchanged", 1, 0)}
    for name in names:
        check_same(registered(catalog, ours, name), registered(catalog, theirs, name))
        assert registered(catalog, ours, name)["partitions"] == {
            values: f"file:{path}/{'/'.join(values)}" for values in [("oslo", "7"), ("rome", "7")]
        }


@pytest.fixture(scope="module")
def hudi_with_catalog(metastore: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheHudi]:
    """Apache Hudi on a Spark whose catalog is the metastore: that is settled when a session starts."""
    lack = missing(RELEASE)
    if lack is not None:
        unavailable("interop", lack)
    settings = {
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.hive.metastore.uris": f"thrift://{metastore.address}",
    }
    log = ROOT / "artifacts" / "interop" / "hudi-with-catalog.log"
    real = ApacheHudi(tmp_path_factory.mktemp("hudi-with-catalog"), log, RELEASE, settings)
    yield real
    real.close()


def trips(ids: list[int], city: str, **more: Any) -> pa.Table:
    count = len(ids)
    data = {
        "Id": pa.array(ids, pa.int64()),
        "ts": pa.array([1] * count, pa.int64()),
        "fare": [1.5] * count,
        "city": [city] * count,
    }
    return pa.table(data | {name: [value] * count for name, value in more.items()})


@pytest.mark.wide
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_hudi_reads_by_name_what_pyhudi_registered(
    hudi_with_catalog: ApacheHudi, metastore: Server, tmp_path: Path, kind: str
) -> None:
    database = f"named_{kind}"
    table = Table.create(tmp_path / "trips", name="trips", record_key="Id", partition_by="city", ordering="ts", table_type=kind)
    snapshots = ["trips", "trips_rt"] if kind == "mor" else ["trips"]

    def sync_table() -> None:
        table.sync(metastore=f"thrift://{metastore.address}", database=database)

    def read(name: str, columns: str = "Id, city, fare") -> list[tuple[object, ...]]:
        hudi_with_catalog.run("spark.catalog.refreshTable(name)", name=f"{database}.{name}")
        found = hudi_with_catalog.sql(f"SELECT {columns} FROM {database}.{name} ORDER BY Id")
        return [tuple(row.values()) for row in found.to_pylist()]

    table.insert(trips([1, 2], "oslo"))
    table.upsert(
        trips(
            [2],
            "oslo",
        ).set_column(2, "fare", pa.array([9.0]))
    )
    sync_table()
    for name in snapshots:
        assert read(name) == [(1, "oslo", 1.5), (2, "oslo", 9.0)]
    if kind == "mor":
        assert read("trips_ro") == [(1, "oslo", 1.5), (2, "oslo", 1.5)]
    # A column that came, a partition that came, one that went.
    table.insert(trips([3], "rome", tip=0.5))
    sync_table()
    for name in snapshots:
        assert read(name, "Id, city, tip") == [(1, "oslo", None), (2, "oslo", None), (3, "rome", 0.5)]
        assert read(name, "Id, _hoodie_partition_path") == [(1, "oslo"), (2, "oslo"), (3, "rome")]
    table.delete_partitions(["oslo"])
    sync_table()
    for name in (*snapshots, *(["trips_ro"] if kind == "mor" else [])):
        assert read(name, "Id, city, tip") == [(3, "rome", 0.5)]
    shown = hudi_with_catalog.sql(f"SHOW PARTITIONS {database}.trips").to_pylist()
    assert shown == [{"partition": "rome"}]
    # What Apache Hudi writes by the name is the table's.
    hudi_with_catalog.sql(f"INSERT INTO {database}.trips (Id, ts, fare, tip, city) VALUES (4, 2, 3.5, 1.5, 'rome')")
    assert sorted(table.scan(columns=["Id"]).to_arrow()["Id"].to_pylist()) == [3, 4]
