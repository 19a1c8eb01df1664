"""Requirements of every store of catalogs.

A test class inherits `CatalogSuite` and supplies `uri`, the URI of an empty database, and `login`, further arguments of
`Catalog`.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyhudi as hp

Login = dict[str, Any]


def create_in_process(uri: str, login: Login, location: str, start: Any, outcomes: Any) -> None:
    """Create lake.sales.trips at a location of its own, at the same time as other processes."""
    lake = hp.Catalog("lake", uri=uri, **login)
    start.wait(60)
    try:
        lake.create_table("sales.trips", location, record_key="id")
        outcomes.put((location, "created"))
    except hp.HudiError as error:
        outcomes.put((location, type(error).__name__))


def die_while_creating(uri: str, login: Login, location: str) -> None:
    """End the process after the table is created, and before the catalog has its name."""
    create = hp.Table.create

    def create_and_die(*arguments: Any, **settings: Any) -> None:
        create(*arguments, **settings)
        os._exit(9)

    hp.Table.create = create_and_die  # type: ignore[method-assign, assignment]
    hp.Catalog("lake", uri=uri, **login).create_table("sales.trips", location, record_key="id")


def refusals(*calls: Callable[[], object]) -> list[str]:
    """Errors of calls that run at the same time."""
    barrier, errors = threading.Barrier(len(calls)), []

    def run(call: Callable[[], object]) -> None:
        barrier.wait(60)
        try:
            call()
        except hp.HudiError as error:
            errors.append(type(error).__name__)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


class CatalogSuite:
    @pytest.fixture
    def login(self) -> Login:
        return {}

    @pytest.fixture
    def lake(self, uri: str, login: Login, tmp_path: Path) -> hp.Catalog:
        lake = hp.Catalog("lake", uri=uri, warehouse=tmp_path / "warehouse", **login)
        lake.create_namespace("sales", {"owner": "ann"})
        return lake

    def test_namespaces_and_tables(self, lake: hp.Catalog, tmp_path: Path) -> None:
        lake.create_namespace("Archive")
        assert lake.list_namespaces() == ["Archive", "sales"]
        assert lake.load_namespace_properties("SALES") == {"owner": "ann"}
        trips = lake.create_table("sales.Trips", record_key="id", ordering="ts", table_type="mor", properties={"team": "data"})
        trips.upsert({"id": [1, 2], "ts": [1, 1]})
        assert (trips.name, trips.uri) == ("Trips", f"file:{tmp_path}/warehouse/sales/Trips")
        assert lake.load_table("lake.sales.trips").count() == lake.load_table(("SALES", "TRIPS")).count() == 2
        entry = lake.load_entry("sales.trips")
        assert (str(entry), entry.properties, entry.profile) == ("sales.Trips", {"team": "data"}, None)

        hp.Table.create(tmp_path / "old", record_key="id")
        lake.register_table("archive.old", tmp_path / "old", storage_options={"sync": "documents"})
        assert lake.load_entry("archive.old").storage_options == {"sync": "documents"}
        assert (lake.list_tables("sales"), lake.list_tables("archive")) == (["sales.Trips"], ["archive.old"])

        assert lake.rename_table("sales.trips", "archive.rides").uri == trips.uri
        assert (lake.list_tables("sales"), lake.list_tables("archive")) == ([], ["archive.old", "archive.rides"])
        assert (lake.load_table("archive.rides").name, lake.table_exists("sales.trips")) == ("rides", False)
        lake.rename_table("archive.rides", "archive.RIDES")
        assert lake.list_tables("archive") == ["archive.old", "archive.RIDES"]

        lake.drop_table("archive.old")
        assert hp.Table.exists(tmp_path / "old")
        lake.drop_table("archive.rides", purge=True)
        assert not hp.Table.exists(trips.uri)
        assert [lake.drop_namespace(name) for name in ("ARCHIVE", "archive")] == [True, False]
        assert lake.list_namespaces() == ["sales"]

    def test_catalogs_of_one_database_are_separate(self, lake: hp.Catalog, uri: str, login: Login, tmp_path: Path) -> None:
        other = hp.Catalog("other", uri=uri, warehouse=tmp_path / "other", **login)
        other.create_namespace("sales")
        other.create_table("sales.trips", record_key="id")
        lake.create_table("sales.trips", record_key="id")
        other.drop_table("sales.trips")
        assert (lake.list_tables("sales"), other.list_tables("sales")) == (["sales.trips"], [])

    def test_invalid_catalog_requests_are_refused(self, lake: hp.Catalog, tmp_path: Path) -> None:
        lake.create_table("sales.trips", record_key="id")
        lake.create_table("sales.rides", record_key="id")
        for call, kind, message in (
            (lambda: lake.create_namespace("Sales"), hp.TableExists, "namespace Sales exists"),
            (lambda: lake.create_namespace("a.b"), hp.InvalidRequest, "is not a name"),
            (lambda: lake.create_namespace("hudi"), hp.InvalidRequest, "is not a name"),
            (lambda: lake.create_table("sales.TRIPS"), hp.TableExists, r"table sales\.TRIPS exists"),
            (lambda: lake.create_table("nowhere.t"), hp.InvalidRequest, "no namespace nowhere"),
            (lambda: lake.create_table("t"), hp.InvalidRequest, r"write namespace\.table"),
            (lambda: lake.create_table("sales.t", storage_option={}), hp.InvalidRequest, "no argument storage_option"),
            (lambda: lake.create_table("sales.t", table_type="x"), hp.InvalidRequest, "x"),
            (lambda: lake.register_table("sales.t", tmp_path / "none"), hp.TableNotFound, "none"),
            (lambda: lake.load_table("sales.t"), hp.TableNotFound, r"no table sales\.t; the namespace has rides, trips"),
            (lambda: lake.list_tables("nowhere"), hp.InvalidRequest, "no namespace nowhere; it has sales"),
            (lambda: lake.rename_table("sales.trips", "sales.rides"), hp.TableExists, r"sales\.rides exists"),
            (lambda: lake.rename_table("sales.trips", "nowhere.t"), hp.InvalidRequest, "no namespace nowhere"),
            (lambda: lake.drop_table("sales.t"), hp.TableNotFound, r"sales\.t"),
            (lambda: lake.drop_namespace("sales"), hp.InvalidRequest, "namespace sales has tables"),
        ):
            with pytest.raises(kind, match=message):
                call()
        assert lake.list_tables("sales") == ["sales.rides", "sales.trips"]
        assert {lake.load_table(name).name for name in ("sales.trips", "sales.rides")} == {"trips", "rides"}
        # A refused creation leaves no table either.
        assert not hp.Table.exists(tmp_path / "warehouse" / "nowhere" / "t")

    def test_secrets_are_references(self, lake: hp.Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        hp.Table.create(tmp_path / "t", record_key="id")
        for options in (
            {"secret_access_key": "hunter-two"},
            {"master_key": "hunter-two"},
            {"endpoint": "http://me:hunter-two@host"},
            {"client_kwargs": '{"aws_secret_access_key": "hunter-two"}'},
            {"token": {"file": "/etc/passwd"}},
        ):
            with pytest.raises(hp.InvalidRequest, match=next(iter(options))) as caught:
                lake.register_table("sales.t", tmp_path / "t", storage_options=options)
            assert "hunter-two" not in str(caught.value)
        with pytest.raises(hp.InvalidRequest, match="password"):
            lake.create_namespace("n", {"password": "hunter-two"})
        monkeypatch.setenv("SYNC_OF_T", "documents")
        lake.register_table("sales.t", tmp_path / "t", storage_options={"sync": {"env": "SYNC_OF_T"}})
        assert dict(lake.load_table("sales.t").context.storage.spec().options) == {"sync": "documents"}
        monkeypatch.delenv("SYNC_OF_T")
        with pytest.raises(hp.InvalidRequest, match="SYNC_OF_T"):
            lake.load_table("sales.t")

    @pytest.mark.full
    def test_one_of_several_processes_creates_a_name(self, lake: hp.Catalog, uri: str, login: Login, tmp_path: Path) -> None:
        context = multiprocessing.get_context("spawn")
        start, outcomes = context.Barrier(3), context.Queue()
        places = [str(tmp_path / f"t{number}") for number in range(3)]
        processes = [context.Process(target=create_in_process, args=(uri, login, place, start, outcomes)) for place in places]
        for process in processes:
            process.start()
        found = dict(outcomes.get(timeout=120) for _ in processes)
        for process in processes:
            process.join()
        assert sorted(found.values()) == ["TableExists", "TableExists", "created"]
        # The others have created no table.
        assert [place for place in places if hp.Table.exists(place)] == [p for p in places if found[p] == "created"]
        assert lake.load_table("sales.trips").uri == f"file:{next(p for p in places if found[p] == 'created')}"

    def test_changes_at_the_same_time(self, lake: hp.Catalog, tmp_path: Path) -> None:
        assert refusals(*[lambda: lake.create_namespace("n")] * 4) == ["TableExists"] * 3
        for name in ("a", "b"):
            lake.create_table(f"sales.{name}", record_key="id")
        errors = refusals(lambda: lake.rename_table("sales.a", "n.t"), lambda: lake.rename_table("sales.b", "n.t"))
        assert errors == ["TableExists"]
        assert len(lake.list_tables("sales")) == len(lake.list_tables("n")) == 1
        # A namespace is dropped, or has its new table.
        lake.create_namespace("m")
        errors = refusals(lambda: lake.drop_namespace("m"), lambda: lake.create_table("m.t", record_key="id"))
        assert errors == ["InvalidRequest"]
        exists = hp.Table.exists(tmp_path / "warehouse" / "m" / "t")
        assert ("m" in lake.list_namespaces()) == lake.table_exists("m.t") == exists

    @pytest.mark.full
    def test_crash_before_the_catalog_has_the_name(self, lake: hp.Catalog, uri: str, login: Login, tmp_path: Path) -> None:
        place = str(tmp_path / "t")
        process = multiprocessing.get_context("spawn").Process(target=die_while_creating, args=(uri, login, place))
        process.start()
        process.join(120)
        assert process.exitcode == 9
        assert hp.Table.exists(place)
        assert lake.list_tables("sales") == []
        with pytest.raises(hp.TableExists, match="register_table"):
            lake.create_table("sales.trips", place, record_key="id")
        lake.register_table("sales.trips", place)
        assert lake.load_table("sales.trips").uri == f"file:{place}"

    def test_table_whose_files_are_missing(self, lake: hp.Catalog) -> None:
        lake.create_table("sales.trips", record_key="id").drop()
        with pytest.raises(hp.TableNotFound, match="drop_table removes the name"):
            lake.load_table("sales.trips")
        lake.drop_table("sales.trips", purge=True)
        assert lake.list_tables("sales") == []
        lake.create_table("sales.trips", record_key="id")

    def test_a_failed_rename_keeps_the_old_name(self, lake: hp.Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
        lake.create_table("sales.trips", record_key="id")

        def refuse(*_: object, **__: object) -> None:
            raise hp.TableState("a write is in progress")

        monkeypatch.setattr(hp.Table, "set_properties", refuse)
        with pytest.raises(hp.TableState):
            lake.rename_table("sales.trips", "sales.rides")
        assert lake.list_tables("sales") == ["sales.trips"]

    def test_sql(self, lake: hp.Catalog, tmp_path: Path) -> None:
        def sql(text: str) -> list[dict[str, Any]]:
            return hp.sql(text, catalog=lake).to_pylist()

        sql("CREATE DATABASE hr")
        sql("CREATE TABLE hr.people (id BIGINT, city STRING, ts BIGINT) USING hudi TBLPROPERTIES (primaryKey = 'id')")
        sql("INSERT INTO lake.hr.people VALUES (1, 'sf', 1), (2, 'ny', 1)")
        sql("CREATE TABLE IF NOT EXISTS hr.people (id BIGINT) USING hudi")
        sql("CREATE TABLE sales.cities USING hudi AS SELECT city, count(*) AS n FROM hr.people GROUP BY city")
        assert sql("SELECT p.id, n FROM hr.people p JOIN lake.sales.cities USING (city) WHERE p.id = 2") == [{"id": 2, "n": 1}]
        sql("USE hr")
        sql("UPDATE people SET city = 'la' WHERE id = 1")
        assert [row["tableName"] for row in sql("SHOW TABLES")] == ["people"]
        assert [row["tableName"] for row in sql("SHOW TABLES IN sales")] == ["cities"]
        assert sql("DESCRIBE people")[-1]["col_name"] == "ts"
        sql("USE default")
        assert [row["namespace"] for row in sql("SHOW DATABASES")] == ["default", "hr", "sales"]
        sql("ALTER TABLE hr.people RENAME TO sales.folk")
        assert lake.list_tables("sales") == ["sales.cities", "sales.folk"]
        assert hp.Table(tmp_path / "warehouse" / "hr" / "people").name == "folk"
        sql("DROP TABLE sales.folk")
        assert hp.Table.exists(tmp_path / "warehouse" / "hr" / "people")
        sql(f"CREATE TABLE hr.again USING hudi LOCATION '{tmp_path}/warehouse/hr/people'")
        assert sql("SELECT city FROM hr.again WHERE id = 1") == [{"city": "la"}]
        sql("DROP TABLE hr.again PURGE")
        assert not hp.Table.exists(tmp_path / "warehouse" / "hr" / "people")
        sql("DROP TABLE IF EXISTS hr.again")
        sql("DROP DATABASE sales CASCADE")
        sql("DROP DATABASE IF EXISTS sales CASCADE")
        assert (lake.list_namespaces(), hp.Table.exists(tmp_path / "warehouse" / "sales" / "cities")) == (["hr"], True)
        for text, kind in (
            ("SELECT * FROM lake.hr.nothing", hp.TableNotFound),
            ("DROP TABLE hr.nothing", hp.InvalidRequest),
            ("CREATE TABLE loose (id BIGINT) USING hudi", hp.InvalidRequest),
            ("CREATE TABLE nowhere.t (id BIGINT) USING hudi", hp.InvalidRequest),
            ("CREATE DATABASE hr", hp.TableExists),
            ("USE nowhere", hp.InvalidRequest),
            ("DROP DATABASE nowhere", hp.InvalidRequest),
        ):
            with pytest.raises(kind):
                sql(text)
        lake.register("rows", pa.table({"id": [7]}))
        assert sql("SELECT id FROM rows") == [{"id": 7}]
