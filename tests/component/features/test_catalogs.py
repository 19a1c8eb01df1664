"""Configuration of catalogs, and names in `hp.open`, SQL and the command line. Stores: tests/conformance/catalog_suite.py."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import pyhudi as hp
from pyhudi.cli.app import app

CONFIG = """
[catalog.lake]
uri = "sqlite:///{folder}/catalog.db"
warehouse = "{folder}/warehouse"
profile = "disk"

[profile.disk]
sync = {{ env = "SYNC_OF_DISK" }}
"""


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> hp.Catalog:
    (tmp_path / "pyhudi.toml").write_text(CONFIG.format(folder=tmp_path))
    monkeypatch.setenv("PYHUDI_CONFIG", str(tmp_path / "pyhudi.toml"))
    monkeypatch.setenv("SYNC_OF_DISK", "documents")
    lake = hp.Catalog("LAKE")
    lake.create_namespace("sales")
    return lake


def options_of(table: hp.Table) -> dict[str, str]:
    return dict(table.context.storage.spec().options)


def test_a_configured_catalog(configured: hp.Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert repr(configured) == f"Catalog('lake', uri='sqlite:///{tmp_path}/catalog.db')"
    configured.create_table("sales.trips", record_key="id").insert({"id": [1]})
    trips = hp.open("Lake.sales.trips")
    assert (trips.uri, trips.count(), options_of(trips)) == (f"file:{tmp_path}/warehouse/sales/trips", 1, {"sync": "documents"})
    assert options_of(hp.open("lake.sales.trips", storage_options={"sync": "none"})) == {"sync": "none"}
    assert hp.open(trips.uri).count() == hp.open(tmp_path / "warehouse/sales/trips").count() == 1
    monkeypatch.setenv("PYHUDI_CATALOG__LAKE__WAREHOUSE", str(tmp_path / "other"))
    monkeypatch.setenv("PYHUDI_CATALOG__FRESH__URI", f"sqlite:///{tmp_path}/fresh.db")
    assert hp.Catalog("lake").create_table("sales.rides").uri == f"file:{tmp_path}/other/sales/rides"
    assert hp.Catalog("fresh").list_namespaces() == []
    with pytest.raises(hp.InvalidRequest, match="no warehouse"):
        configured_fresh = hp.Catalog("fresh")
        configured_fresh.create_namespace("n")
        configured_fresh.create_table("n.t")


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The user's own configuration file, and that of the working directory."""
    monkeypatch.delenv("PYHUDI_CONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("home", "here"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "home" / ".pyhudi.toml", tmp_path / "here" / ".pyhudi.toml"


def test_files_of_catalogs_and_sources_of_bootstraps_may_begin_with_a_tilde(places: tuple[Path, Path]) -> None:
    home = places[0].parent
    (home / "source").mkdir()
    pq.write_table(pa.table({"id": [1]}), home / "source" / "a.parquet")
    hp.Catalog("lake", uri="sqlite:///~/lake.db", warehouse="~/tables").create_namespace("sales")
    by_path = hp.Catalog("lake", uri=home / "lake.db", warehouse=home / "tables")
    assert by_path.list_namespaces() == ["sales"]
    assert by_path.create_table("sales.rides").uri == f"file:{home}/tables/sales/rides"
    hp.bootstrap("~/source", "~/t", record_key="id")
    assert hp.Table(home / "t").count() == 1
    assert list(places[1].parent.iterdir()) == []


def test_the_working_directory_does_not_shadow_the_users_catalogs(places: tuple[Path, Path], tmp_path: Path) -> None:
    own, here = places
    with pytest.raises(hp.InvalidRequest, match=r"no catalog lake in the configuration, which has none: add \[catalog\.lake\]"):
        hp.Catalog("lake")
    here.write_text("[catalog.lake]\nuri = 'sqlite:///here.db'\nwarehouse = 'tables'\n[catalog.more]\nuri = 'sqlite:///m.db'\n")
    assert "here.db" in repr(hp.Catalog("lake"))
    own.write_text("[catalog.LAKE]\nuri = 'sqlite:///home.db'\n")
    assert "home.db" in repr(hp.Catalog("lake")) and "m.db" in repr(hp.Catalog("more"))


def test_an_environment_variable_replaces_a_catalog_of_the_working_directory(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    places[1].write_text("[catalog.lake]\nuri = 'sqlite:///here.db'\n")
    monkeypatch.setenv("PYHUDI_CATALOG__LAKE__PASSWORD", "hunter-two")
    with pytest.raises(hp.InvalidRequest, match="catalog lake has no uri"):
        hp.Catalog("lake")


LAKE = "[catalog.lake]\nuri = 'sqlite:///x.db'\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (LAKE + "profile = 'p'\n[profile.p]\nendpoint = 'http://h'", "section 'profile'"),
        (LAKE + "[trust]\ntables = ['/']", "section 'trust'"),
        (LAKE + "password = { env = 'HOME' }", "sets 'password'"),
        (LAKE + "warehouse = { file = '/etc/hostname' }", "sets 'warehouse'"),
        (LAKE + "warehouse = 's3://bucket/x'", "warehouse .* not located below"),
        (LAKE + "warehouse = '../x'", "warehouse .* not located below"),
        (LAKE + "warehouse = 'link/x'", "warehouse .* not located below"),
        ("[catalog.lake]\nuri = 'postgresql://h/d'", "no SQLite file"),
        ("[catalog.lake]\nuri = 'sqlite:////etc/x.db'", "uri .* not located below"),
        ("[catalog.lake]\nuri = 'thrift://h:1'", "no SQLite file"),
        ("[catalog", "no valid TOML"),
        ("catalog = 1", "must be sections"),
    ],
)
def test_a_file_of_the_working_directory_that_names_something_else_is_not_used(
    text: str, reason: str, places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    (places[1].parent / "link").symlink_to("/tmp")
    places[1].write_text(text)
    with (
        pytest.warns(UserWarning, match=rf"\.pyhudi\.toml is not used: .*{reason}.*set PYHUDI_CONFIG"),
        pytest.raises(hp.HudiError),
    ):
        hp.Catalog("lake")
    if text.startswith(LAKE):
        monkeypatch.setenv("PYHUDI_CONFIG", ".pyhudi.toml")
        assert "x.db" in repr(hp.Catalog("lake"))


def test_tables_of_a_catalog_of_the_working_directory_are_local(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "hunter-two")
    writer = hp.Catalog("lake", uri="sqlite:///x.db")
    writer.create_namespace("n")
    writer.create_table("n.plain", "plain")
    for name, options in (("a", {"sync": {"env": "SECRET"}}), ("b", {"sync": "documents"}), ("c", None)):
        location = f"memory://working-directory/{name}" if name == "c" else name
        writer.create_table(f"n.{name}", location, storage_options=None if name == "a" else options)
    with sqlite3.connect("x.db") as database:
        database.execute("""UPDATE pyhudi_tables SET storage_options = '{"sync": {"env": "SECRET"}}' WHERE table_key = 'a'""")
        database.execute("UPDATE pyhudi_tables SET profile = 'p' WHERE table_key = 'b'")
    places[0].write_text("[profile.p]\nsync = 'documents'\n")
    places[1].write_text(LAKE)
    lake = hp.Catalog("lake")
    assert lake.load_table("n.plain").uri == f"file:{places[1].parent}/plain"
    for name in "abc":
        with pytest.raises(hp.InvalidRequest, match="the working directory defines catalog lake, so its tables must be local"):
            hp.open(f"lake.n.{name}")


def test_the_name_of_a_table_is_not_a_path(configured: hp.Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    hp.Table.create("./lake.sales.trips").insert({"id": [1]})
    calls: list[Callable[[str], object]] = [hp.open, hp.Table, hp.Table.create, hp.restore_properties]
    calls.append(lambda name: hp.write(name, {"id": [1]}))
    for call in calls:
        with pytest.raises(hp.TableNotFound, match=r"catalog lake has no table sales\.trips"):
            call("lake.sales.trips")
    assert not hp.Table.exists("lake.sales.trips")
    assert hp.open("./lake.sales.trips").count() == 1
    hp.Table.create("other.sales.trips").insert({"id": [1, 2]})
    assert hp.open("other.sales.trips").count() == 2
    for name, message in (
        ("laek.sales.trips", "no catalog laek in the configuration.* did you mean lake"),
        ("none.parquet", r"no Hudi table at .*none\.parquet"),
        ("a.b.c/d", "no Hudi table at"),
    ):
        with pytest.raises(hp.TableNotFound, match=message):
            hp.open(name)


def test_every_function_resolves_names(configured: hp.Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    configured.create_table("sales.trips", record_key="id").upsert({"id": [1], "fare": [7.5]})
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "rows.json").write_text('{"id": 4, "fare": 2.0}\n')
    name, files = "lake.sales.trips", sorted(tmp_path.iterdir())
    assert options_of(hp.Table(name)) == {"sync": "documents"}
    hp.write(name, {"id": [2], "fare": [9.0]}, storage_options={"sync": "none"})
    hp.write(name, {"id": [2], "fare": [9.5]}, mode="upsert")
    hp.Table.create(name, record_key="id", exist_ok=True).upsert({"id": [3], "fare": [1.0]})
    source = {"kind": "files", "path": str(tmp_path / "files"), "settle_seconds": 0}
    hp.Ingest({"path": name, "source": source}).run()
    assert hp.Table.exists(name) and hp.Table(name).count() == 4
    assert hp.scan_polars(name).select("fare").collect()["fare"].sort().to_list() == [1.0, 2.0, 7.5, 9.5]
    calls: list[Callable[[str], object]] = [hp.Table.create, hp.restore_properties]
    calls.append(lambda name: hp.write(name, {"id": [1]}, mode="error"))
    for call in calls:
        with pytest.raises(hp.TableExists):
            call(name)
    assert sorted(tmp_path.iterdir()) == files


def refused_texts() -> list[tuple[str, str]]:
    uri = "uri = 'sqlite:///x.db'"
    return [
        ("[catalog.lake]\nuri = 'mysql://h/d'", "begin with sqlite:"),
        ("[catalog.lake]\nwarehouse = '/x'", "has no uri"),
        (f"[catalog.lake]\n{uri}\nwarehuose = '/x'", "did you mean warehouse"),
        (f"[catalog.lake]\n{uri}\npassword = 'hunter-two'", "password may hold a secret"),
        ("[catalog.lake]\nuri = 'postgresql://me:hunter-two@h/d'", "uri may hold a secret"),
        ("[catalog.lake]\nuri = 'postgresql://h/d?password=hunter-two'", "uri may hold a secret"),
        (f"[catalog.lake]\n{uri}\npassword = {{ env = 'NOT_SET' }}", "NOT_SET"),
        (f"[catalog.lake]\n{uri}\npassword = {{ value = 'hunter-two' }}", "password is no reference"),
        ("[trust]\ntables = '/data'", "a list of location prefixes"),
        ("[trust]\ntable = ['/data']", "the one key tables"),
        (f"[catalog.lake]\n{uri}\nprofile = 'disk'\n[profile.disc]\nsync = 'documents'", "did you mean disc"),
        (f"[catalog.lake]\n{uri}\nprofile = 'disk'\n[profile.disk]\nsecret_key = 'hunter-two'", "secret_key may hold a secret"),
        ("[catalogs.lake]\nuri = 'x'", "unknown section 'catalogs'; did you mean catalog"),
        ("catalog = 1", r"must be sections \[catalog"),
        ("[catalog", "no valid TOML"),
        ("[catalog.lake]\nuri = 'thrift:x'", "thrift"),
        ("[catalog.lake]\nuri = 'glue:'\n[catalog.lake.options]\n'hoodie.aws.secret.key' = 'hunter-two'", "may hold a secret"),
        ("[catalog.lake]\nuri = 'glue:'\n[catalog.lake.options]\n'hoodie.aws.glue.regoin' = 'x'", "is refused"),
    ]


@pytest.mark.parametrize(("text", "message"), refused_texts())
def test_configurations_that_are_refused(text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYHUDI_CONFIG", str(tmp_path / "pyhudi.toml"))
    (tmp_path / "pyhudi.toml").write_text(text)
    with pytest.raises(hp.InvalidRequest, match=message) as caught:
        lake = hp.Catalog("lake")
        lake.create_namespace("n")
        lake.create_table("n.t", tmp_path / "t")
    assert "hunter-two" not in str(caught.value)


def test_catalogs_that_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYHUDI_CATALOG__LAKE__URI", "sqlite:///x.db")
    calls: tuple[tuple[Callable[[], object], str], ...] = (
        (lambda: hp.Catalog(uri="sqlite:///x.db"), "needs a name"),
        (lambda: hp.Catalog("a.b", uri="sqlite:///x.db"), "is not a name"),
        (lambda: hp.Catalog("lake", warehouse="/x"), "lake is configured: pass uri= too, or remove warehouse"),
        (lambda: hp.Catalog("x", uri="sqlite:///x.db", password="hunter-two"), "password may hold a secret"),
        (lambda: hp.Catalog().create_namespace("n"), "holds names in memory"),
        (lambda: hp.Catalog(warehouse="/x").list_namespaces(), "holds names in memory"),
    )
    for call, message in calls:
        with pytest.raises(hp.InvalidRequest, match=message) as caught:
            call()
        assert "hunter-two" not in str(caught.value)
    monkeypatch.setenv("PYHUDI_CONFIG", str(tmp_path / "none.toml"))
    with pytest.raises(hp.InvalidRequest, match="no configuration file"):
        hp.Catalog("lake")


def test_sql_without_a_catalog(configured: hp.Catalog) -> None:
    hp.sql("CREATE TABLE lake.sales.trips (id BIGINT, v STRING) USING hudi TBLPROPERTIES (primaryKey = 'id')")
    with pytest.raises(hp.InvalidRequest, match="sync"):
        # The profile of the catalog applies to the creation, and options of the call replace it.
        hp.sql("CREATE TABLE lake.sales.t (id BIGINT) USING hudi", storage_options={"sync": "some"})
    assert configured.list_tables("sales") == ["sales.trips"]
    hp.sql("INSERT INTO lake.sales.trips VALUES (1, 'a'), (2, 'b')")
    updates = {"id": [2, 3], "v": ["c", "d"]}
    hp.sql(
        "MERGE INTO lake.sales.trips t USING u ON t.id = u.id "
        "WHEN MATCHED THEN UPDATE SET v = u.v WHEN NOT MATCHED THEN INSERT *",
        tables={"u": updates},
    )
    assert hp.sql("SELECT id, v FROM lake.sales.trips ORDER BY id").to_pylist() == [
        {"id": 1, "v": "a"},
        {"id": 2, "v": "c"},
        {"id": 3, "v": "d"},
    ]
    assert len(hp.sql("CALL show_commits(table => 'lake.sales.trips')")) == 2
    hp.sql("USE lake.sales")
    try:
        assert hp.sql("SELECT count(*) AS n FROM trips").to_pylist() == [{"n": 3}]
    finally:
        hp.sql("USE default")
    for text in ("ALTER TABLE lake.sales.trips RENAME TO trips", "ALTER TABLE lake.sales.trips RENAME TO other.sales.trips"):
        with pytest.raises(hp.InvalidRequest, match="cannot move to another catalog"):
            hp.sql(text)
    hp.register("lake.sales.near", configured.load_table("sales.trips"))
    assert hp.sql("SELECT count(*) AS n FROM lake.sales.near").to_pylist() == [{"n": 3}]
    hp.sql("DROP TABLE lake.sales.near")
    assert configured.list_tables("sales") == ["sales.trips"]


def test_the_command_line(configured: hp.Catalog, tmp_path: Path) -> None:
    def call(*arguments: str) -> str:
        result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    (tmp_path / "rows.csv").write_text("id,v\n1,a\n2,b\n")
    assert "warehouse/sales/trips" in call("create", "lake.sales.trips", "--record-key", "id")
    call("load", "lake.sales.trips", str(tmp_path / "rows.csv"))
    assert call("count", "lake.sales.trips").strip() == "2"
    assert '"n": 2' in call("sql", "SELECT count(*) AS n FROM lake.sales.trips", "--output", "json")
    with pytest.raises(hp.TableExists):
        call("create", "lake.sales.trips", "--record-key", "id")
    with pytest.raises(hp.InvalidRequest, match="profile"):
        call("create", "lake.sales.t", "--storage", "sync=documents")
    call("drop", "lake.sales.trips", "--yes")
    assert configured.list_tables("sales") == []
    assert not hp.Table.exists(tmp_path / "warehouse/sales/trips")


def test_a_new_database_is_readable_by_its_owner_only(configured: hp.Catalog, tmp_path: Path) -> None:
    database = tmp_path / "catalog.db"
    assert database.stat().st_mode & 0o777 == 0o600
    # A team that shares its catalog keeps the mode that it has chosen.
    database.chmod(0o660)
    configured.create_namespace("more")
    assert database.stat().st_mode & 0o777 == 0o660
