"""Help, drops, deletes by key, and previews of commands."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from typer.testing import CliRunner

import pyhudi as hp
from pyhudi.cli import app as command_line
from pyhudi.cli.app import app, run
from pyhudi.errors import InvalidRequest


def call(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def table(tmp_path: Path) -> hp.Table:
    table = hp.Table.create(tmp_path / "t", record_key="id")
    table.insert({"id": [1, 2, 3], "v": ["a", "b", "c"]})
    return table


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help(option: str) -> None:
    assert "Inspect and maintain Apache Hudi tables" in call(option)
    assert "--keys" in call("delete", option)


def test_delete_by_key(table: hp.Table) -> None:
    assert "would delete 2 rows" in call("delete", table.uri, "--keys", "1,3")
    assert table.count() == 3
    call("delete", table.uri, "--keys", "1,3", "--yes")
    assert table.scan(["id"]).to_arrow()["id"].to_pylist() == [2]
    for arguments, message in (
        (("--keys", "x"), "record key field id is int64"),
        (("--keys", "1", "--where", "id = 1"), "either --where or --keys"),
        ((), "either --where or --keys"),
    ):
        with pytest.raises(InvalidRequest, match=message):
            call("delete", table.uri, *arguments)


def test_drop(table: hp.Table) -> None:
    assert "would delete" in call("drop", table.uri)
    assert hp.Table.exists(table.uri)
    call("drop", table.uri, "--yes")
    assert not hp.Table.exists(table.uri)


def test_upgrades_are_previewed(table: hp.Table) -> None:
    assert "would upgrade" in call("upgrade", table.uri, "--to", "9")
    assert int(hp.Table(table.uri).config.version) == 8
    call("upgrade", table.uri, "--to", "9", "--yes")
    assert int(hp.Table(table.uri).config.version) == 9


def test_logs_of_clients_are_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_line, "app", lambda: None)
    run()
    assert logging.getLogger("kazoo").handlers


def test_python_methods_act_without_confirmation(table: hp.Table) -> None:
    table.upsert({"id": [1], "v": ["z"]})
    cleaned = table.clean(options={"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": 1})
    assert not cleaned.dry_run
    assert cleaned.file_count == 1
    assert not table.repair().dry_run
