"""CREATE TABLE ... AS that fails leaves no table, so that the corrected statement succeeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pyhudi as hp
from pyhudi.operations.commit.transaction import Transaction


def create_as(path: Path, query: str) -> None:
    hp.sql(f"CREATE TABLE hudi.`{path}` USING hudi TBLPROPERTIES (primaryKey = 'id') AS {query}")


@pytest.mark.parametrize(
    "query", ["SELECT CAST('x' AS INT) AS id", "SELECT 1 AS id, NULL AS n", "SELECT CAST(NULL AS INT) AS id"]
)
def test_a_failed_create_as_leaves_no_table(tmp_path: Path, query: str) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "notes.txt").write_text("mine")
    with pytest.raises(hp.InvalidRequest):
        create_as(tmp_path / "t", query)
    assert not hp.Table.exists(tmp_path / "t")
    assert (tmp_path / "t" / "notes.txt").read_text() == "mine"
    create_as(tmp_path / "t", "SELECT 1 AS id, 'a' AS name")
    assert hp.Table(tmp_path / "t").scan().to_arrow().to_pylist() == [{"id": 1, "name": "a"}]


def test_a_failed_commit_leaves_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise hp.StorageUnavailable("the store does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(Transaction, "commit", fail)
        with pytest.raises(hp.StorageUnavailable) as raised:
            create_as(tmp_path / "t", "SELECT 1 AS id")
    assert not hp.Table.exists(tmp_path / "t")
    assert not getattr(raised.value, "__notes__", [])
    create_as(tmp_path / "t", "SELECT 'x' AS id")
    assert hp.Table(tmp_path / "t").validate().ok


def test_failed_create_as_keeps_a_table_used_by_another_writer_and_reports_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, real = str(tmp_path / "t"), Transaction.commit

    def fail_after_another_write(*args: Any, **kwargs: Any) -> None:
        monkeypatch.setattr(Transaction, "commit", real)
        hp.Table(uri).upsert([{"id": 7}])
        raise hp.StorageUnavailable("the store does not answer")

    monkeypatch.setattr(Transaction, "commit", fail_after_another_write)
    with pytest.raises(hp.StorageUnavailable) as raised:
        create_as(tmp_path / "t", "SELECT 1 AS id")
    assert any("another writer has begun to use it" in note for note in raised.value.__notes__)
    assert hp.Table(uri).scan(["id"]).to_arrow().to_pydict() == {"id": [7]}


def test_an_empty_table_of_a_stopped_process_is_named(tmp_path: Path) -> None:
    hp.Table.create(tmp_path / "t", record_key="id")
    with pytest.raises(hp.TableExists, match=r"without any commit.*delete its folder and"):
        create_as(tmp_path / "t", "SELECT 1 AS id")
    hp.Table(tmp_path / "t").upsert([{"id": 1}])
    with pytest.raises(hp.TableExists, match="already; INSERT INTO adds to it"):
        create_as(tmp_path / "t", "SELECT 1 AS id")


@pytest.mark.parametrize("query", ["", " AS SELECT 2 AS id, 'b' AS day"])
@pytest.mark.parametrize("named", [True, False])
def test_if_not_exists_takes_a_table_of_the_same_key_and_partitioning(tmp_path: Path, query: str, named: bool) -> None:
    hp.Table.create(tmp_path / "t", record_key="id", partition_by="day").insert({"id": [1], "day": ["a"]})
    catalog = hp.Catalog()
    name, place = ("t", f"LOCATION '{tmp_path}/t'") if named else (f"hudi.`{tmp_path}/t`", "")
    create = f"CREATE TABLE IF NOT EXISTS {name} {'' if query else '(id BIGINT, day STRING)'} USING hudi "

    def run(key: str, by: str) -> None:
        hp.sql(f"{create} PARTITIONED BY ({by}) {place} TBLPROPERTIES (primaryKey = '{key}'){query}", catalog=catalog)

    for key, by in (("day", "day"), ("id", "id")):
        with pytest.raises(hp.TableExists, match="contradicts the table"):
            run(key, by)
    assert not list(catalog)
    run("id", "day")
    assert hp.Table(tmp_path / "t").scan(["id"]).to_arrow().to_pylist() == [{"id": 1}]
    assert list(catalog) == (["t"] if named else [])


def test_two_sessions_create_a_table_of_one_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = hp.Catalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path))
    lake.create_namespace("n")
    create = "CREATE TABLE {} lake.n.t (id INT) USING hudi TBLPROPERTIES (primaryKey = 'id')"
    hp.sql(create.format(""), catalog=lake)
    # Neither session has seen the table of the other one.
    monkeypatch.setattr("pyhudi.sql_engine.duckdb_session.EmbeddedStatementSession.is_registered", lambda *_: False)
    hp.sql(create.format("IF NOT EXISTS"), catalog=lake)
    with pytest.raises(hp.TableExists):
        hp.sql(create.format(""), catalog=lake)
    assert lake.list_tables("n") == ["n.t"]
