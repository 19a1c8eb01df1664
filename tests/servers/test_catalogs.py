"""Catalog sync against real servers: a Hive metastore, and AWS Glue as moto serves it."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import pyhudi as hp
from pyhudi import ServiceFailed, StorageUnavailable, Table, TableState
from pyhudi.cli.app import app
from pyhudi.features import procedures
from pyhudi.storage.catalogs import CatalogColumn, CatalogPartition, CatalogTable, MetastoreCatalog
from pyhudi.storage.catalogs.glue_catalog import GlueCatalog
from pyhudi.storage.catalogs.hive_catalog import HiveCatalog
from tests.conformance.catalog_suite import CatalogSuite, Login
from tests.conformance.kafka_server import running_postgresql
from tests.conformance.servers import Server

UNREACHABLE_METASTORE = "thrift://127.0.0.1:1"
AWS = {"hoodie.aws.access.key": "a", "hoodie.aws.secret.key": "b", "hoodie.aws.glue.region": "us-east-1"}
# What services would do changes nothing here, and takes time.
QUIET = {"hoodie.table.services.enabled": False, "hoodie.metadata.enable": False}
KEYED: dict[str, Any] = {"record_key": "id", "ordering": "ts", "options": QUIET}


@dataclass(frozen=True, slots=True)
class Place:
    """A catalog, and the options by which a sync reaches a database of its own there."""

    catalog: MetastoreCatalog
    database: str
    options: dict[str, object]

    def table(self, name: str) -> CatalogTable:
        found = self.catalog.table(self.database, name)
        assert found is not None, name
        return found

    def partitions(self, name: str) -> dict[tuple[str, ...], str]:
        return {each.values: each.location for each in self.catalog.partitions(self.table(name))}


_numbers = itertools.count()


def hive(server: Server) -> Place:
    uri, database = f"thrift://{server.address}", f"d{next(_numbers)}"
    reached: dict[str, object] = {
        "hoodie.datasource.hive_sync.metastore.uris": uri,
        "hoodie.datasource.hive_sync.database": database,
    }
    return Place(HiveCatalog([uri], "uris"), database, reached)


def glue(endpoint: str) -> Place:
    catalog = GlueCatalog(
        region="us-east-1",
        endpoint=endpoint,
        catalog_id=None,
        credentials=("a", "b", None),
        skip_archive=True,
        lists_by_metadata=False,
    )
    database = f"d{uuid.uuid4().hex}"
    reached = {"hoodie.datasource.hive_sync.mode": "glue", "hoodie.datasource.hive_sync.database": database}
    return Place(catalog, database, {**reached, **AWS, "hoodie.aws.glue.endpoint": endpoint})


@pytest.fixture(params=["hive", "glue"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    if request.param == "hive":
        found = hive(request.getfixturevalue("metastore"))
    else:
        found = glue(request.getfixturevalue("aws_endpoint"))
    yield found
    found.catalog.close()


@pytest.fixture
def metastore_place(metastore: Server) -> Iterator[Place]:
    found = hive(metastore)
    yield found
    found.catalog.close()


@cache
def rows(*cities: str, ts: int = 1) -> pa.Table:
    count = len(cities)
    return pa.table({"id": [f"{city}{ts}" for city in cities], "ts": [ts] * count, "city": list(cities), "Fare": [1.5] * count})


# Catalogs by themselves


def entry(place: Place, **changes: Any) -> CatalogTable:
    columns = (CatalogColumn("id", "string"), CatalogColumn("n", "int", "said of it"))
    values: dict[str, Any] = {
        "database": place.database,
        "name": "t",
        "location": f"file:/tmp/none/{place.database}",
        "columns": columns,
        "partition_columns": (CatalogColumn("city", "string"), CatalogColumn("hour", "int")),
        "input_format": "org.apache.hudi.hadoop.HoodieParquetInputFormat",
        "output_format": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat",
        "serde": "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe",
        "owner": "somebody",
        "serde_parameters": {"serialization.format": "1", "path": "/tmp/none"},
        "parameters": {"EXTERNAL": "TRUE", "spark.sql.sources.provider": "hudi", "theirs": "kept"},
    }
    return CatalogTable(**(values | changes))


def test_catalog_stores_databases_tables_and_properties(place: Place) -> None:
    catalog, database = place.catalog, place.database
    assert not catalog.has_database(database)
    for _ in range(2):
        catalog.create_database(database, "made by a test")
    assert catalog.has_database(database)
    assert catalog.table(database, "t") is None

    made = entry(place)
    catalog.create_table(made)
    found = place.table("t")
    assert {**found.parameters, **made.parameters} == dict(found.parameters)
    assert (found.columns, found.partition_columns) == (made.columns, made.partition_columns)
    assert (found.location, found.owner, found.is_external) == (made.location, "somebody", True)
    assert (found.input_format, found.output_format, found.serde) == (made.input_format, made.output_format, made.serde)
    assert dict(found.serde_parameters) == dict(made.serde_parameters)

    changed = entry(place, columns=(*made.columns, CatalogColumn("more", "double")), parameters={**found.parameters, "x": "1"})
    catalog.change_table(changed)
    assert [column.name for column in place.table("t").columns] == ["id", "n", "more"]
    assert place.table("t").parameters["x"] == "1"
    with pytest.raises(TableState, match="was dropped concurrently"):
        catalog.change_table(entry(place, name="other"))

    for _ in range(2):
        catalog.drop_table(database, "t")
    assert catalog.table(database, "t") is None


def test_a_catalog_keeps_partitions_in_as_many_requests_as_it_takes(place: Place) -> None:
    catalog = place.catalog
    catalog.create_database(place.database, "")
    table = entry(place)
    catalog.create_table(table)
    # Glue takes 100 in a request, and 25 to delete; the metastore makes a folder for each.
    count, at_once = (130, 1000) if isinstance(catalog, GlueCatalog) else (12, 5)
    every = [CatalogPartition((f"c%2F {number}", "7"), f"{table.location}/{number}") for number in range(count)]
    for _ in range(2):
        catalog.add_partitions(table, every, batch_size=at_once)
    assert place.partitions("t") == {each.values: each.location for each in every}
    catalog.move_partitions(table, [CatalogPartition(every[0].values, f"{table.location}/moved")], batch_size=10)
    assert place.partitions("t")[every[0].values] == f"{table.location}/moved"
    for _ in range(2):
        catalog.drop_partitions(table, [each.values for each in every[: count // 2]], batch_size=at_once)
    assert set(place.partitions("t")) == {each.values for each in every[count // 2 :]}


# Tables


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_table_lifecycle_is_synced_to_the_catalog(place: Place, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "Trips"
    table = Table.create(path, table_type=kind, partition_by="city", **KEYED)
    names = ["trips"] if kind == "cow" else ["trips_ro", "trips_rt", "trips"]
    first = table.upsert(rows("oslo", "rome"))
    result = table.sync(options=place.options)
    assert [(each.name, each.action, each.added) for each in result.tables] == [
        (f"{place.database}.{name}", "created", 2) for name in names
    ]
    assert f"{place.database}.trips created, partitions 2 added, in " in str(result)
    for name in names:
        found = place.table(name)
        assert [column.name for column in found.columns][5:] == ["id", "ts", "fare"]
        assert found.partition_columns == (CatalogColumn("city", "string"),)
        assert found.parameters["last_commit_time_sync"] == first.instant
        assert found.parameters["last_commit_completion_time_sync"] == first.completion_time
        assert found.serde_parameters["hoodie.query.as.ro.table"] == ("true" if name.endswith("_ro") else "false")
        assert ("realtime" in found.input_format) == (kind == "mor" and not name.endswith("_ro"))
        location = found.location.removeprefix("file:")
        assert location == str(path)
        assert {values: there.removeprefix("file:") for values, there in place.partitions(name).items()} == {
            (city,): f"{path}/{city}" for city in ("oslo", "rome")
        }

    # Nothing new, then a new partition and a new column, then a removed partition.
    assert {(each.action, each.added, each.dropped) for each in table.sync(options=place.options).tables} == {("unchanged", 0, 0)}
    more = rows("bern", "oslo", ts=2)
    table.upsert(more.append_column("note", pa.array(["a", "b"])))
    assert {(each.action, each.added, each.dropped) for each in table.sync(options=place.options).tables} == {("changed", 1, 0)}
    table.delete_partitions("rome")
    last = table.upsert(rows("oslo", ts=3).append_column("note", pa.array(["c"])))
    assert {(each.action, each.added, each.dropped) for each in table.sync(options=place.options).tables} == {("unchanged", 0, 1)}
    for name in names:
        assert [column.name for column in place.table(name).columns][5:] == ["id", "ts", "fare", "note"]
        assert set(place.partitions(name)) == {("bern",), ("oslo",)}
        assert place.table(name).parameters["last_commit_time_sync"] == last.instant

    # What was lost in the catalog comes back by comparing everything, and what was deleted does not.
    place.catalog.drop_partitions(place.table("trips"), [("bern",)], batch_size=10)
    every = {**place.options, "hoodie.meta.sync.incremental": False}
    assert table.sync(options=every).tables[-1].added == 1
    assert set(place.partitions("trips")) == {("bern",), ("oslo",)}


def test_write_registers_the_table_when_sync_is_enabled(place: Place, tmp_path: Path) -> None:
    switch = {"hoodie.datasource.hive_sync.enable": True, **place.options}
    table = Table.create(tmp_path / "t", partition_by="city", **KEYED)
    told = table.upsert(rows("oslo"), options=switch)
    assert told.services["sync"] == f"run: {place.database}.t created, partitions 1 added"
    told = table.delete_partitions("oslo", options=switch)
    assert told.services["sync"] == f"run: {place.database}.t unchanged, partitions 1 dropped"
    assert place.partitions("t") == {}
    again = Table(tmp_path / "t", options=switch)
    assert again.upsert(rows("rome")).services["sync"].endswith("partitions 1 added")
    assert "sync" not in table.upsert(rows("bern")).services


def test_a_sync_that_fails_leaves_the_commit(tmp_path: Path, metastore_place: Place) -> None:
    switch = {"hoodie.datasource.meta.sync.enable": True, "hoodie.datasource.hive_sync.metastore.uris": UNREACHABLE_METASTORE}
    table = Table.create(tmp_path / "t", partition_by="city", **KEYED)
    with pytest.raises(ServiceFailed, match="is committed; the catalog sync") as caught:
        table.upsert(rows("oslo"), options=switch)
    assert (caught.value.service, caught.value.instant) == ("sync", table.timeline().completed_writes()[-1].request_time)
    assert isinstance(caught.value.__cause__, StorageUnavailable)
    quiet = {**switch, "hoodie.datasource.hive_sync.ignore_exceptions": True}
    assert table.upsert(rows("rome"), options=quiet).services["sync"].startswith("failed: ")
    assert table.scan().to_arrow().num_rows == 2
    assert table.sync(options=metastore_place.options).tables[0].added == 2


def test_catalog_entry_of_another_path_is_recreated_and_of_another_format_refused(place: Place, tmp_path: Path) -> None:
    one = Table.create(tmp_path / "one" / "t", partition_by="city", **KEYED)
    other = Table.create(tmp_path / "other" / "t", partition_by="city", **KEYED)
    one.upsert(rows("oslo", "rome"))
    other.upsert(rows("bern"))
    one.sync(options=place.options)
    (moved,) = other.sync(options=place.options).tables
    assert (moved.action, moved.added) == ("recreated", 1)
    assert set(place.partitions("t")) == {("bern",)}

    foreign = entry(
        place, name="theirs", input_format="org.apache.hadoop.mapred.TextInputFormat", parameters={"EXTERNAL": "TRUE"}
    )
    place.catalog.create_table(foreign)
    with pytest.raises(TableState, match=r"theirs is not a Hudi table, so it was not changed"):
        one.sync(table="theirs", options=place.options)
    assert place.table("theirs").input_format == foreign.input_format


def test_after_a_restore_everything_is_compared(place: Place, tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", partition_by="city", **KEYED)
    kept = table.upsert(rows("oslo"))
    table.savepoint()
    table.upsert(rows("rome"))
    table.sync(options=place.options)
    assert kept.instant is not None
    table.restore(kept.instant)
    assert table.sync(options=place.options).tables[0].dropped == 1
    assert set(place.partitions("t")) == {("oslo",)}


def test_concurrent_syncs_are_compared_by_the_next_sync(place: Place, tmp_path: Path) -> None:
    """One that knows less ends last: the next sync begins where that one left off."""
    table = Table.create(tmp_path / "t", partition_by="city", **KEYED)
    first = table.upsert(rows("oslo"))
    table.sync(options=place.options)
    found = place.table("t")
    second = table.upsert(rows("rome"))
    table.sync(options=place.options)
    assert place.table("t").parameters["last_commit_time_sync"] == second.instant
    place.catalog.drop_partitions(found, [("rome",)], batch_size=1)
    place.catalog.change_table(found)
    assert place.table("t").parameters["last_commit_time_sync"] == first.instant
    assert table.sync(options=place.options).tables[0].added == 1


def test_columns_that_cannot_become_others(metastore_place: Place, tmp_path: Path) -> None:
    """The metastore refuses an incompatible type change; only an option re-creates the entry."""
    one = Table.create(tmp_path / "t", partition_by="city", **KEYED)
    one.upsert(rows("oslo"))
    one.sync(options=metastore_place.options)
    found = metastore_place.table("t")
    texts = tuple(CatalogColumn(c.name, "array<string>" if c.name == "fare" else c.type) for c in found.columns)
    recreate = {**metastore_place.options, "hoodie.datasource.hive_sync.recreate_table_on_error": True}
    metastore_place.catalog.drop_table(found.database, "t")
    metastore_place.catalog.create_table(
        entry(metastore_place, columns=texts, location=found.location, partition_columns=found.partition_columns)
    )
    with pytest.raises(TableState, match=r"refuses it: .*incompatible"):
        one.sync(options=metastore_place.options)
    (made,) = one.sync(options=recreate).tables
    assert (made.action, made.added) == ("recreated", 1)
    assert metastore_place.table("t").columns == found.columns
    with pytest.raises(TableState, match="is partitioned there by city, and the table by id"):
        one.sync(options={**metastore_place.options, "hoodie.datasource.hive_sync.partition_fields": "id"})


def test_names_strategies_and_what_the_entry_carries(metastore_place: Place, tmp_path: Path) -> None:
    place, prefix = metastore_place, "hoodie.datasource.hive_sync."
    table = Table.create(tmp_path / "t", table_type="mor", partition_by="city", **KEYED)
    table.upsert(rows("oslo"))

    def names(**options: object) -> list[str]:
        return [each.name.partition(".")[2] for each in table.sync(options={**place.options, **options}).tables]

    assert names(**{f"{prefix}table": "A", f"{prefix}table.strategy": "RO"}) == ["a"]
    assert "realtime" not in place.table("a").input_format
    assert names(**{f"{prefix}table": "b", f"{prefix}table.strategy": "RT"}) == ["b"]
    assert "realtime" in place.table("b").input_format
    assert names(**{f"{prefix}table": "c", f"{prefix}skip_ro_suffix": True}) == ["c", "c_rt"]
    assert names(**{f"{prefix}table": "d", "hoodie.meta.sync.sync_snapshot_with_table_name": False}) == ["d_ro", "d_rt"]

    carried = {
        f"{prefix}table": "e",
        f"{prefix}table.strategy": "RT",
        f"{prefix}table_properties": "a=1\nb=2",
        f"{prefix}serde_properties": "c=3",
        f"{prefix}omit_metadata_fields": True,
        f"{prefix}schema_string_length_thresh": 50,
        f"{prefix}create_managed_table": True,
        "hoodie.meta_sync.spark.version": "4.1.0",
        "hoodie.meta.sync.no_partition_metadata": True,
    }
    assert names(**carried) == ["e"]
    found = place.table("e")
    assert [column.name for column in found.columns] == ["id", "ts", "fare"]
    assert (found.parameters["a"], found.parameters["b"], found.serde_parameters["c"]) == ("1", "2", "3")
    assert found.parameters["spark.sql.create.version"] == "4.1.0"
    parts = int(found.parameters["spark.sql.sources.schema.numParts"])
    assert parts > 2 and all(len(found.parameters[f"spark.sql.sources.schema.part.{n}"]) <= 50 for n in range(parts))
    assert not found.is_external and place.partitions("e") == {}
    plain = {f"{prefix}table": "f", f"{prefix}table.strategy": "RT", f"{prefix}sync_as_datasource": False}
    assert names(**plain) == ["f"]
    assert not any(key.startswith("spark.") for key in place.table("f").parameters)

    missing = {**place.options, f"{prefix}database": "nowhere", f"{prefix}auto_create_database": False}
    with pytest.raises(TableState, match="has no database nowhere"):
        table.sync(options=missing)


def test_the_command_and_the_procedure(metastore_place: Place, tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", partition_by="city", **KEYED)
    table.upsert(rows("oslo"))
    uri = str(metastore_place.options["hoodie.datasource.hive_sync.metastore.uris"])
    words = ["sync", str(tmp_path / "t"), "--metastore", uri, "--database", metastore_place.database, "--name", "by_command"]
    answer = CliRunner().invoke(app, words)
    assert answer.exit_code == 0 and f"{metastore_place.database}.by_command created, partitions 1 added" in answer.output
    done = procedures.call("hive_sync", path=tmp_path / "t", metastore_uri=uri, mode="hms", sync_incremental="true")
    assert done.to_pylist() == [{"result": "hive sync success."}]
    assert metastore_place.catalog.table("default", "t") is not None


# Names of other catalogs, and catalogs in PostgreSQL


def test_a_catalog_lists_and_loads_what_a_sync_registered(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table.create(tmp_path / "t", name="trips", table_type="mor", **KEYED)
    table.upsert(rows("sf", "ny"), options=QUIET)
    table.sync(options=place.options)
    place.catalog.create_table(entry(place, name="other", input_format="org.apache.hadoop.mapred.TextInputFormat", parameters={}))
    at = place.options
    uri = str(at.get("hoodie.datasource.hive_sync.metastore.uris", "glue:"))
    options = {key: value for key, value in at.items() if key.startswith("hoodie.aws.")}
    monkeypatch.setenv("SECRET_OF_GLUE", "b")
    secret = {"env": "SECRET_OF_GLUE"}
    found = hp.Catalog("lake", uri=uri, options={key: secret if "key" in key else value for key, value in options.items()})
    assert place.database in found.list_namespaces()
    assert found.list_tables(place.database) == [f"{place.database}.{name}" for name in ("trips", "trips_rt")]
    for name in ("trips", "TRIPS_rt"):
        assert found.load_table((place.database, name)).count() == 2
    assert hp.sql(f"SELECT count(*) AS n FROM lake.{place.database}.trips", catalog=found).to_pylist() == [{"n": 2}]
    for call, kind in (
        (lambda: found.load_table((place.database, "trips_ro")), hp.Unsupported),
        (lambda: found.load_table((place.database, "other")), hp.TableNotFound),
        (lambda: found.load_table((place.database, "nothing")), hp.TableNotFound),
        (lambda: found.list_tables("nowhere"), hp.InvalidRequest),
        (lambda: found.create_namespace("n"), hp.Unsupported),
        (lambda: found.drop_namespace(place.database), hp.Unsupported),
        (lambda: found.register_table((place.database, "x"), table.uri), hp.Unsupported),
        (lambda: found.rename_table((place.database, "trips"), (place.database, "x")), hp.Unsupported),
        (lambda: found.drop_table((place.database, "trips")), hp.Unsupported),
    ):
        with pytest.raises(kind):
            call()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("psycopg")
    with running_postgresql(tmp_path_factory.mktemp("postgresql")) as uri:
        yield uri


@pytest.mark.wide
class TestPostgres(CatalogSuite):
    """The catalog suite on PostgreSQL."""

    @pytest.fixture
    def uri(self, server: str) -> str:
        """A database of its own."""
        import psycopg

        name = f"d{uuid.uuid4().hex}"
        with psycopg.connect(server, user="reader", password="hunter-two", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return server.replace("/postgres", f"/{name}")

    @pytest.fixture
    def login(self, monkeypatch: pytest.MonkeyPatch) -> Login:
        monkeypatch.setenv("PASSWORD_OF_CATALOG", "hunter-two")
        return {"user": "reader", "password": {"env": "PASSWORD_OF_CATALOG"}}

    def test_a_wrong_password_and_a_missing_server(self, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PASSWORD_OF_CATALOG", "hunter-three")
        login: Login = {"user": "reader", "password": {"env": "PASSWORD_OF_CATALOG"}}
        with pytest.raises(hp.InvalidRequest, match="authentication failed") as caught:
            hp.Catalog("lake", uri=uri, **login).list_namespaces()
        assert "hunter-three" not in str(caught.value) + repr(hp.Catalog("lake", uri=uri, **login))
        with pytest.raises(StorageUnavailable):
            hp.Catalog("lake", uri="postgresql://127.0.0.1:1/none", user="reader").list_namespaces()
