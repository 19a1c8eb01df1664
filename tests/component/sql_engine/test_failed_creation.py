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
