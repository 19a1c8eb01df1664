"""Procedures for the audit of the storage lock. tests/interop compares them with Apache Hudi."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi import InvalidRequest, Table
from pyhudi.features import procedures

DAY_S = 86_400


@pytest.fixture
def path(tmp_path: Path) -> Path:
    Table.create(tmp_path / "t", record_key="id").insert({"id": [1]})
    return tmp_path / "t"


def called(name: str, path: Path, **arguments: Any) -> dict[str, Any]:
    [row] = procedures.call(name, path=path, **arguments).to_pylist()
    assert row.pop("table") == str(path)
    return dict(row)


def validation(path: Path) -> tuple[str, int, int]:
    row = called("validate_audit_lock", path)
    return row["validation_result"], row["transactions_validated"], row["issues_found"]


def store(path: Path, name: str, *records: tuple[str, int, int]) -> Path:
    """An audit file of records (state, timestamp, expiration)."""
    file = path / ".hoodie" / ".locks" / "audit" / name
    file.parent.mkdir(exist_ok=True)
    start, owner = int(name.split("_")[0]), name.split("_")[1].split(".")[0]
    documents = [
        {"ownerId": owner, "transactionStartTime": start, "timestamp": at, "state": state, "lockExpiration": expires}
        for state, at, expires in records
    ]
    file.write_text("".join(json.dumps(document) + "\n" for document in documents))
    return file


def test_switching_and_validating(path: Path) -> None:
    assert called("show_audit_lock_status", path)["audit_enabled"] is False
    assert validation(path) == ("PASSED", 0, 0)
    assert called("set_audit_lock", path, state="Enabled")["audit_state"] == "enabled"
    shown = called("show_audit_lock_status", path)
    assert shown == {
        "audit_enabled": True,
        "config_path": f"file:{path}/.hoodie/.locks/audit_enabled.json",
        "audit_folder_path": f"file:{path}/.hoodie/.locks/audit",
    }
    Table(path).insert({"id": [2]})
    result, count, issues = validation(path)
    assert (result, issues) == ("PASSED", 0) and count >= 2
    called("set_audit_lock", path, state="disabled")
    Table(path).insert({"id": [3]})
    assert validation(path) == (result, count, issues)


def test_periods_of_concurrent_writers_do_not_overlap(path: Path) -> None:
    called("set_audit_lock", path, state="enabled")
    failures: list[BaseException] = []

    def write(number: int) -> None:
        try:
            Table(path).upsert(pa.table({"id": [number % 2], "writer": [str(number)]}))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    result, count, issues = validation(path)
    assert (result, issues) == ("PASSED", 0) and count >= 8


def test_findings(path: Path) -> None:
    store(path, "100_a.jsonl", ("START", 100, 400), ("END", 200, 400))
    assert validation(path) == ("PASSED", 1, 0)
    store(path, "200_b.jsonl", ("START", 200, 500), ("RENEW", 300, 600))
    assert validation(path) == ("WARNING", 2, 1)
    store(path, "599_c.jsonl", ("START", 599, 900), ("END", 610, 900))
    store(path, "605_d.jsonl", ("START", 605, 900), ("END", 620, 900))
    assert validation(path) == ("FAILED", 4, 3)
    found = called("validate_audit_lock", path)["details"]
    assert "200_b.jsonl => overlaps with 599_c.jsonl" in found and "599_c.jsonl => overlaps with 605_d.jsonl" in found
    for file in (path / ".hoodie" / ".locks" / "audit").iterdir():
        file.write_text("{broken")
    assert called("validate_audit_lock", path) == {
        "validation_result": "FAILED",
        "transactions_validated": 0,
        "issues_found": 4,
        "details": "Failed to parse any audit files",
    }


def test_cleanup_deletes_old_files_only(path: Path) -> None:
    assert called("cleanup_audit_lock", path)["message"] == "No audit folder found - nothing to cleanup"
    old, new = (store(path, name, ("START", 1, 2)) for name in ("1_a.jsonl", "2_b.jsonl"))
    other = old.with_name("1_c.txt")
    other.touch()
    for file, days in ((old, 9), (new, 6), (other, 9)):
        os.utime(file, (time.time() - days * DAY_S,) * 2)
    assert called("cleanup_audit_lock", path, dry_run=True)["files_cleaned"] == 1 and old.exists()
    assert called("cleanup_audit_lock", path, age_days=10)["files_cleaned"] == 0
    assert called("cleanup_audit_lock", path) == {
        "files_cleaned": 1,
        "dry_run": False,
        "age_days": 7,
        "message": "Successfully deleted 1 audit files older than 7 days",
    }
    assert not old.exists() and new.exists() and other.exists()


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("set_audit_lock", {"state": "on"}, "neither enabled nor disabled"),
        ("set_audit_lock", {}, "requires the argument 'state'"),
        ("cleanup_audit_lock", {"age_days": 0}, "is not positive"),
    ],
)
def test_wrong_arguments(path: Path, name: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        procedures.call(name, path=path, **arguments)


def test_statements(path: Path) -> None:
    found = hp.sql(f"CALL set_audit_lock(path => '{path}', state => 'enabled')")
    assert pa.table(found).column("audit_state").to_pylist() == ["enabled"]
    assert called("show_audit_lock_status", path)["audit_enabled"] is True
