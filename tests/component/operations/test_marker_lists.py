"""Batched markers (`hoodie.write.markers.type=TIMELINE_SERVER_BASED`) during and after a write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.operations.services.compact import CompactSettings, run_compaction
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.storage.environment import SystemEnvironment
from pyhudi.storage.fault_injection import Fault, FaultyStorage, SimulatedCrash, StorageCall
from pyhudi.storage.locks.in_process import InProcessLock
from pyhudi.storage.markers import Markers
from pyhudi.table.table_context import TableContext

LISTS = {"hoodie.write.markers.type": "TIMELINE_SERVER_BASED", "hoodie.compact.inline": False}
Act = Callable[[TableContext], object]


def rows(*keys: str, ts: int = 1, part: str = "p_0") -> pa.Table:
    return pa.table({"id": list(keys), "part": [part] * len(keys), "ts": pa.array([ts] * len(keys), pa.int64())})


def begun(path: Path, kind: str, **options: Any) -> hp.Table:
    table = hp.Table.create(
        str(path), record_key="id", partition_by="part", ordering="ts", table_type=kind, options={**LISTS, **options}
    )
    table.upsert(rows("a", "b"))
    table.upsert(rows("a", ts=2))
    return table


def _upsert(table: hp.Table, data: pa.Table) -> Act:
    settings = WriteSettings.of(parse_options({**LISTS}), WriteOperation.UPSERT)
    return lambda context: run_write(context, LocalEngine(1), data, settings)


def _compact(context: TableContext) -> object:
    return run_compaction(context, LocalEngine(1), CompactSettings.of(parse_options(LISTS)))


def _dies(table: hp.Table, act: Act, *, at: str) -> list[str]:
    """Crash before the first call whose path ends so; the paths of what was written by then."""
    written: list[str] = []

    def watch(_: int, call: StorageCall) -> Fault | None:
        if call.writes and "/.hoodie/metadata/" not in call.path:
            if call.path.endswith(at):
                return Fault(1)
            written.append(call.path)
        return None

    storage = FaultyStorage(table.context.storage, listener=watch)
    lock = InProcessLock(table.uri, SystemEnvironment())
    with pytest.raises(SimulatedCrash):
        act(replace(table.context.reloaded(), storage=storage, lock=lock))
    return written


@pytest.mark.parametrize(("kind", "action"), [("cow", "commit"), ("mor", "deltacommit")])
def test_a_dead_write_is_undone_by_its_lists(tmp_path: Path, kind: str, action: str) -> None:
    table = begun(tmp_path / "t", kind)
    two = pa.concat_tables([rows("a", "c", ts=3), rows("d", part="p_1")])
    written = _dies(table, _upsert(table, two), at=f".{action}")
    (dead,) = table.timeline().pending_writes()
    folder = tmp_path / "t" / ".hoodie" / ".temp" / dead.request_time
    names = sorted(path.name for path in folder.rglob("*"))
    assert names[0] == "MARKERS.type" and all(name.startswith("MARKERS") and name[7:].isdigit() for name in names[1:])
    assert (folder / "MARKERS.type").read_text() == "TIMELINE_SERVER_BASED"
    lines = sorted((folder / name).read_text() for name in names[1:])
    data = {path.removeprefix(f"{table.uri}/") for path in written if "/p_" in path and ".hoodie" not in path}
    assert {line.rpartition(".marker.")[0] for line in lines} == data and len(data) >= 2
    # Every marker came before its file, and the type before them all.
    places = {path.rpartition("/")[2]: number for number, path in reversed(list(enumerate(written)))}
    assert places["MARKERS.type"] < min(places[name] for name in names[1:])
    files = [number for number, path in enumerate(written) if path.removeprefix(f"{table.uri}/") in data]
    assert places["MARKERS.type"] < files[0]
    table.upsert(rows("e"))
    assert not [path for path in data if (tmp_path / "t" / path).exists()]
    assert not folder.exists()
    found = {row["id"]: row["ts"] for row in table.scan(["id", "ts"]).to_arrow().to_pylist()}
    assert found == {"a": 2, "b": 1, "e": 1}
    assert table.validate().ok


def test_all_actions_that_write_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None creates a marker of another type next to the lists, where no process would read it."""
    table = begun(tmp_path / "t", "mor", **{"hoodie.table.cdc.enabled": False})
    made: set[bool] = set()
    create = Markers.create

    def noted(markers: Markers, *arguments: Any) -> None:
        made.add(markers._in_lists)
        create(markers, *arguments)

    monkeypatch.setattr(Markers, "create", noted)
    table.upsert(pa.concat_tables([rows("a", "c", ts=4), rows("d", part="p_1")]))
    table.delete(where="id = 'b'")
    table.compact()
    table.upsert(rows("a", ts=5))
    table.upsert(rows("a", ts=6))
    table.log_compact()
    table.cluster()
    table.bulk_insert(rows("x", part="p_2"))
    table.insert_overwrite(rows("y", part="p_2"))
    logged = begun(tmp_path / "cdc", "cow", **{"hoodie.table.cdc.enabled": True})
    logged.upsert(rows("a", "c", ts=3))
    assert made == {True}
    assert table.validate().ok and logged.validate().ok
    assert not list((tmp_path / "t" / ".hoodie" / ".temp").glob("*"))


def test_a_dead_compaction_runs_again(tmp_path: Path) -> None:
    table = begun(tmp_path / "t", "mor")
    _dies(table, _compact, at=".commit")
    table.compact()
    assert {row["id"]: row["ts"] for row in table.scan(["id", "ts"]).to_arrow().to_pylist()} == {"a": 2, "b": 1}
    assert table.validate().ok


def test_others_see_the_lists_early(tmp_path: Path) -> None:
    table = begun(tmp_path / "t", "cow")
    _dies(table, _upsert(table, rows("a", ts=3)), at=".commit")
    (dead,) = table.timeline().pending_writes()
    storage = table.context.storage
    assert len(Markers(storage, dead.request_time).marked_in("p_0")) == 1
    assert Markers(storage, dead.request_time).marked_in("p_1") == frozenset()
