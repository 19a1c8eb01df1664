"""Audit of the storage lock: Apache Hudi 1.2.0 and PyHudi switch it, write it and validate it in turn."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from pyhudi import Table
from pyhudi.features import procedures
from tests.interop.oracle import ApacheHudi

JAVA = Path(__file__).with_name("java")
PROCEDURES = ("show_audit_lock_status", "validate_audit_lock", "cleanup_audit_lock")

HOLD = """
lock = jvm.org.apache.hudi.client.transaction.lock.LocalStorageLock(path, 60, 5)
acquired = lock.tryLock()
result = [acquired, acquired and lock.renew()]
if release:
    lock.unlock()
    lock.close()
else:
    jvm.java.lang.System.getProperties().put("held", lock)
"""

RELEASE = """
lock = jvm.java.lang.System.getProperties().remove("held")
lock.unlock()
lock.close()
"""


def same(hudi: ApacheHudi, path: Path, name: str, **arguments: Any) -> pa.Table:
    """Both return the same rows, whose `table` is the argument."""
    theirs = hudi.call(name, table="audited", **arguments)
    ours = procedures.call(name, path=path, **arguments)
    assert ours.schema == theirs.schema
    assert ours.drop_columns(["table"]).to_pylist() == theirs.drop_columns(["table"]).to_pylist()
    return ours


def files(path: Path) -> dict[str, list[dict[str, object]]]:
    folder = path / ".hoodie" / ".locks" / "audit"
    found = sorted(folder.glob("*.jsonl"))
    return {file.name: [json.loads(line) for line in file.read_text().splitlines()] for file in found}


def test_both_libraries_audit_one_lock(newest_hudi: ApacheHudi, tmp_path: Path) -> None:
    path = tmp_path / "audited"
    table = Table.create(path, record_key="id")
    table.insert({"id": [1]})
    newest_hudi.register(path, "audited")
    newest_hudi.add_class(JAVA / "LocalStorageLock.java")
    for name in PROCEDURES:
        same(newest_hudi, path, name)

    # Hudi switches it on, both write, and each reads the files of both.
    same(newest_hudi, path, "set_audit_lock", state="enabled")
    newest_hudi.call("set_audit_lock", table="audited", state="enabled")
    table.insert({"id": [2]})
    ours = files(path)
    assert newest_hudi.run(HOLD, path=str(path), release=True) == [True, True]
    table.insert({"id": [3]})
    [theirs] = [records for records in files(path).values() if ":" not in str(records[0]["ownerId"])]
    assert [record["state"] for record in theirs] == ["START", "RENEW", "END"]
    for records in ours.values():
        assert [{key: type(value) for key, value in sorted(record.items())} for record in records] == [
            {key: type(value) for key, value in sorted(record.items())} for record in (theirs[0], theirs[2])
        ]
    [row] = same(newest_hudi, path, "validate_audit_lock").to_pylist()
    assert (row["validation_result"], row["transactions_validated"]) == ("PASSED", len(files(path)))

    # Old files, also those of the other one.
    for file in (path / ".hoodie" / ".locks" / "audit").glob("*.jsonl"):
        os.utime(file, (time.time() - 9 * 86_400,) * 2)
    [row] = same(newest_hudi, path, "cleanup_audit_lock", dry_run=True).to_pylist()
    assert row["files_cleaned"] == len(files(path))
    same(newest_hudi, path, "cleanup_audit_lock", dry_run=True, age_days=20)
    assert procedures.call("cleanup_audit_lock", path=path)["files_cleaned"].to_pylist() == [row["files_cleaned"]]
    assert not files(path)

    # PyHudi switches it off for Hudi, and on again.
    procedures.call("set_audit_lock", path=path, state="disabled")
    assert newest_hudi.run(HOLD, path=str(path), release=True) == [True, True] and not files(path)
    procedures.call("set_audit_lock", path=path, state="enabled")
    same(newest_hudi, path, "show_audit_lock_status")
    assert newest_hudi.run(HOLD, path=str(path), release=False) == [True, True] and len(files(path)) == 1
    [row] = same(newest_hudi, path, "validate_audit_lock").to_pylist()
    assert row["validation_result"] == "WARNING"
    begun = next(iter(files(path).values()))
    (path / ".hoodie" / ".locks" / "audit" / "1_overlapping.jsonl").write_text(
        "".join(json.dumps({**record, "timestamp": 1}) + "\n" for record in begun)
    )
    [row] = same(newest_hudi, path, "validate_audit_lock").to_pylist()
    assert (row["validation_result"], row["issues_found"]) == ("FAILED", 3)

    # A heartbeat that misses its lock file interrupts the thread that took the lock, in whatever it does then.
    newest_hudi.run(RELEASE)
