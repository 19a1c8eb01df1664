"""`once=`: a write with an application id and version commits once."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import CommitUnknown, CorruptData, InvalidRequest
from pyhudi.operations.write import write_once
from pyhudi.operations.write.save_modes import Save
from pyhudi.operations.write.write_once import APPLICATIONS_KEY, AlreadyCommitted, ApplicationVersion
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.storage.base import put_if_absent_confirmed
from pyhudi.table.snapshot import read_commit

OPTIONS = {"hoodie.index.bloom.num_entries": "100", "hoodie.metadata.enable": "false"}
ARCHIVING = {"hoodie.keep.min.commits": "2", "hoodie.keep.max.commits": "3", "hoodie.clean.automatic": "false"}


def rows(*ids: str, value: int = 1) -> pa.Table:
    count = len(ids)
    return pa.table({"id": list(ids), "part": ["p"] * count, "value": pa.array([value] * count, pa.int64())})


def new_table(name: str, **options: str) -> hp.Table:
    uri = f"memory://once-{name}"
    return hp.Table.create(uri, record_key="id", partition_by="part", options={**OPTIONS, **options})


def ids(table: hp.Table) -> list[str]:
    return sorted(table.scan(["id"]).to_arrow()["id"].to_pylist())


def versions(table: hp.Table) -> Any:
    last = table.timeline().completed_writes()[-1]
    return json.loads(read_commit(table.context.timeline, last).extra_metadata[APPLICATIONS_KEY])


OPERATIONS: dict[str, Callable[[hp.Table, tuple[str, int]], hp.WriteResult]] = {
    "upsert": lambda table, once: table.upsert(rows("b"), once=once),
    "insert": lambda table, once: table.insert(rows("b"), once=once),
    "append": lambda table, once: table.append(rows("b"), once=once),
    "bulk_insert": lambda table, once: table.bulk_insert(rows("b"), once=once),
    "insert_overwrite": lambda table, once: table.insert_overwrite(rows("b"), once=once),
    "insert_overwrite_table": lambda table, once: table.insert_overwrite_table(rows("b"), once=once),
    "delete": lambda table, once: table.delete(["a"], once=once),
    "delete_where": lambda table, once: table.delete(where="id = 'a'", once=once),
    "update": lambda table, once: table.update({"value": 7}, where="id = 'a'", once=once),
    "merge": lambda table, once: table.merge(rows("a"), on="id", once=once).when_matched_update_all().execute(),
    "delete_partitions": lambda table, once: table.delete_partitions("p", once=once),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_repeated_write_is_skipped(operation: str) -> None:
    table = new_table(operation)
    table.upsert(rows("a"))
    done = OPERATIONS[operation](table, ("job", 17))
    assert not done.skipped
    assert versions(table) == {"versions": {"job": 17}, "complete": True}
    before = table.timeline().instants
    for version in (17, 16):
        repeated = OPERATIONS[operation](table, ("job", version))
        assert repeated.skipped
        assert repeated.instant is None
        assert "skipped" in str(repeated)
    assert table.timeline().instants == before
    assert not OPERATIONS[operation](table, ("other", 1)).skipped
    assert versions(table)["versions"] == {"job": 17, "other": 1}


def test_a_later_version_is_written_and_an_unmarked_write_is_never_skipped() -> None:
    table = new_table("later")
    table.upsert(rows("a"), once=("job", 1))
    assert not table.upsert(rows("b"), once=("job", 5)).skipped
    assert not table.upsert(rows("c")).skipped
    assert table.upsert(rows("d"), once=("job", 4)).skipped
    assert ids(table) == ["a", "b", "c"]


def test_versions_are_found_after_archival() -> None:
    table = new_table("archived", **ARCHIVING)
    table.upsert(rows("a"), once=("job", 7))
    table.upsert(rows("b"), once=("other", 1))
    for number in range(6):
        table.upsert(rows(f"x{number}"))
    commits = [read_commit(table.context.timeline, i) for i in table.timeline().completed_writes()]
    assert all(APPLICATIONS_KEY not in commit.extra_metadata for commit in commits)
    assert table.upsert(rows("c"), once=("job", 7)).skipped
    assert table.upsert(rows("c"), once=("other", 1)).skipped
    table.upsert(rows("d"), once=("third", 1))
    assert versions(table)["versions"] == {"job": 7, "other": 1, "third": 1}


def test_of_two_attempts_one_commits() -> None:
    table = new_table("race")
    table.upsert(rows("z"))
    settings = WriteSettings.of(parse_options(OPTIONS), WriteOperation.UPSERT)

    class Concurrent(LocalEngine):
        def map(self, function, tasks):  # type: ignore[no-untyped-def]
            done = super().map(function, tasks)
            table.bulk_insert(rows("a"), once=("job", 1))
            return done

    with pytest.raises(AlreadyCommitted, match="version 1 is committed"):
        run_write(table.context, Concurrent(1), rows("b"), replace(settings, once=ApplicationVersion("job", 1)))
    assert not table.timeline().pending()
    assert ids(table) == ["a", "z"]


def test_the_least_recent_applications_are_found_in_earlier_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_once, "_MAX_APPLICATIONS", 2)
    table = new_table("many", **ARCHIVING)
    for number in range(7):
        table.upsert(rows(f"a{number}"), once=(f"job{number}", number))
    assert versions(table) == {"versions": {"job5": 5, "job6": 6}, "complete": False}
    for number in range(7):
        assert table.upsert(rows("x"), once=(f"job{number}", number)).skipped
    assert not table.upsert(rows("x"), once=("job0", 1)).skipped
    assert versions(table)["versions"] == {"job6": 6, "job0": 1}


def test_a_restore_removes_the_version_with_its_rows() -> None:
    table = new_table("restore", **{"hoodie.clean.automatic": "false"})
    first = table.upsert(rows("a"), once=("job", 1)).instant
    assert first is not None
    table.savepoint(first)
    table.upsert(rows("b"), once=("job", 2))
    table.restore(first)
    assert table.upsert(rows("a"), once=("job", 1)).skipped
    assert not table.upsert(rows("b"), once=("job", 2)).skipped
    assert ids(table) == ["a", "b"]


def test_a_write_of_unknown_outcome_is_repeated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table("unknown")
    table.upsert(rows("a"))

    def stored_without_response(*arguments: Any) -> bool:
        put_if_absent_confirmed(*arguments)
        raise hp.errors.StorageUnavailable("no answer")

    def silent(*arguments: Any) -> None:
        raise hp.errors.StorageUnavailable("no answer")

    monkeypatch.setattr("pyhudi.operations.commit.transaction.put_if_absent_confirmed", stored_without_response)
    monkeypatch.setattr("pyhudi.operations.commit.late_commit._examine", silent)
    with pytest.raises(CommitUnknown):
        table.insert(rows("b"), once=("job", 1))
    monkeypatch.undo()
    assert table.insert(rows("b"), once=("job", 1)).skipped
    assert ids(table) == ["a", "b"]


def test_a_save_takes_the_option() -> None:
    uri = new_table("save").uri
    for expected in (False, True):
        options = parse_options({**OPTIONS, "pyhudi.write.once": "job:a:3"})
        save = Save.planned(uri, "append", options, None, rows("a").schema)
        assert not save.supports_detached
        assert save.run(LocalEngine(1), rows("a"), lambda keys: []).skipped is expected


@pytest.mark.parametrize("once", [("", 1), ("job", -1), ("job", True), ("job", 1 << 63), ("job",), "job", ("job", "1"), (1, 1)])
def test_an_invalid_mark_is_refused(once: Any) -> None:
    with pytest.raises(InvalidRequest, match="once="):
        new_table("invalid" + str(once).replace("/", "")).upsert(rows("a"), once=once)


def test_invalid_options_are_refused() -> None:
    table = new_table("options")
    for text in ("job", "job:", "job:-1", ":1", "job:1.5", "job:" + "9" * 30, "job:x"):
        with pytest.raises(InvalidRequest, match="once"):
            table.upsert(rows("a"), options={"pyhudi.write.once": text})
    with pytest.raises(InvalidRequest, match="contradicts"):
        table.upsert(rows("a"), once=("job", 1), options={"pyhudi.write.once": "job:2"})
    with pytest.raises(InvalidRequest, match="identifies one write"):
        hp.Table(table.uri, options={"pyhudi.write.once": "job:1"})
    with pytest.raises(InvalidRequest, match="no effect on run_services"):
        table.run_services(options={"pyhudi.write.once": "job:1"})


def test_damaged_versions_are_reported() -> None:
    table = new_table("damaged")
    table.upsert(rows("a"), options={"hoodie.datasource.write.commitmeta.key.prefix": "pyhudi.", APPLICATIONS_KEY: "torn {"})
    with pytest.raises(CorruptData, match="application versions"):
        table.upsert(rows("a"), once=("job", 1))


def test_the_mark_survives_pickling() -> None:
    mark = ApplicationVersion.parse("job:3")
    assert pickle.loads(pickle.dumps(mark)) == mark
