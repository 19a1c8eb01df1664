"""Storage calls of a small commit, by type.

Counts do not depend on the machine's load. File systems and object stores make the same calls, apart from directories.
Calls under the lock delay other writers.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.storage.environment import ReplayEnvironment
from pyhudi.storage.fault_injection import FaultyStorage, StorageCall
from pyhudi.storage.locks import LockSettings, open_lock
from pyhudi.storage.memory import forget_memory

OPTIONS = {"hoodie.parquet.small.file.limit": "0"}
# The timeline of the metadata table is archived once it holds more than the twenty that its cleaning keeps.
SHORT = {
    "hoodie.clean.commits.retained": "2",
    "hoodie.keep.min.commits": "4",
    "hoodie.keep.max.commits": "6",
    "hoodie.metadata.compact.max.delta.commits": "4",
    "hoodie.compact.inline.max.delta.commits": "4",
}

# A commit to one file of a table that was bulk inserted and upserted once, of either table type.  Raise a number with a
# reason, or not at all.
CALLS = {
    "delete": 1,
    "delete_folder": 1,
    "list": 11,
    "open_input": 2,
    "open_output": 5,
    "put": 1,
    "put_if_absent": 7,
    "put_if_matches": 4,
    # One of them reads what the last commit recorded of the metadata table, before the lock.
    "read": 6,
    "read_versioned": 2,
    "walk": 1,
    "under the lock": 16,
}

_TIMES = re.compile(r"\d{17}(_\d{17})?")
_BEGIN = [
    "list .hoodie/timeline",
    "read .hoodie/hoodie.properties",
    "put .hoodie/.heartbeat/T",
    "put_if_absent .hoodie/timeline/T.{action}.requested",
]
_COMMIT = [
    "list .hoodie/timeline",
    "read .hoodie/hoodie.properties",
    "list .hoodie/metadata/.hoodie/timeline",
    "read .hoodie/.index_defs/index.json",
    "put_if_absent .hoodie/metadata/.hoodie/timeline/T.deltacommit.requested",
    "put_if_absent .hoodie/metadata/.hoodie/timeline/T.deltacommit.inflight",
    "open_output .hoodie/metadata/column_stats/.col-stats-0000-0_T.log.1_0-0-0",
    "open_output .hoodie/metadata/column_stats/.col-stats-0001-0_T.log.1_1-0-0",
    "open_output .hoodie/metadata/files/.files-0000-0_T.log.1_0-0-0",
    "open_output .hoodie/metadata/partition_stats/.partition-stats-0000-0_T.log.1_0-0-0",
    "put_if_absent .hoodie/metadata/.hoodie/timeline/T.deltacommit",
    "put_if_absent .hoodie/timeline/T.{action}",
]


# Without the log files of the metadata table: their number depends on the name of the deleted file.
_CLEAN = [
    "list .hoodie/timeline",
    "read .hoodie/hoodie.properties",
    "put .hoodie/.heartbeat/T",
    "put_if_absent .hoodie/timeline/T.clean.requested",
    "put_if_absent .hoodie/timeline/T.clean.inflight",
    "stat .hoodie/timeline/T.clean.inflight",
    "list p000",
    "delete p000/FILE",
    "read .hoodie/.index_defs/index.json",
    "list .hoodie/metadata/.hoodie/timeline",
    "put_if_absent .hoodie/metadata/.hoodie/timeline/T.deltacommit.requested",
    "put_if_absent .hoodie/metadata/.hoodie/timeline/T.deltacommit.inflight",
    "put_if_absent .hoodie/metadata/.hoodie/timeline/T.deltacommit",
    "put_if_absent .hoodie/timeline/T.clean",
]


@dataclass(frozen=True, slots=True)
class Made:
    """A table, its clock and the options of its writes."""

    table: Table
    environment: ReplayEnvironment
    options: dict[str, str]


@dataclass(frozen=True, slots=True)
class QueryForm:
    """The calls of one commit; locked: those between taking the lock and giving it back, without the lock's own."""

    calls: Counter[str]
    locked: list[str]


@pytest.fixture(params=["file system", "object store"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file system":
        return str(tmp_path / "t")
    forget_memory("storage-calls")
    return "memory://storage-calls"


def rows(partitions: Sequence[int], stamp: int = 0) -> pa.Table:
    ids = [f"k{partition:03}{number}" for partition in partitions for number in range(5)]
    columns = {"id": ids, "part": [f"p{key[1:4]}" for key in ids], "ts": pa.array([stamp] * len(ids), pa.int64())}
    return pa.table({**columns, "value": pa.array(range(len(ids)), pa.int64())})


def made(
    uri: str,
    table_type: str,
    partitions: int = 2,
    more: Mapping[str, str] | None = None,
    storage: Mapping[str, str] | None = None,
) -> Made:
    environment, options = ReplayEnvironment(5), {**OPTIONS, **(more or {})}
    table = Table.create(
        uri,
        record_key="id",
        partition_by="part",
        ordering="ts",
        table_type=table_type,
        environment=environment,
        options=options,
        storage_options=storage,
    )
    table.bulk_insert(rows(range(partitions)))
    return Made(table, environment, options)


def upserted(made: Made, stamp: int, partition: int = 0) -> QueryForm:
    """One upsert of five rows of one partition, through a storage that counts; the lock's object is stored there too."""
    made.environment.advance_ms(1000)
    context, options = made.table.context, parse_options(made.options)
    storage = FaultyStorage(context.storage)
    lock = open_lock(LockSettings.of(options, context.config.name), storage, context.env)
    context = replace(context.reloaded(), storage=storage, lock=lock)
    run_write(context, LocalEngine(), rows([partition], stamp), WriteSettings.of(options, WriteOperation.UPSERT))
    return QueryForm(Counter(call.operation for call in storage.calls), _under_lock(storage.calls, f"{storage.uri}/"))


def _under_lock(calls: Sequence[StorageCall], root: str) -> list[str]:
    turns = [n for n, call in enumerate(calls) if call.writes and call.path.endswith("table_lock.json")]
    held = [call for begin, end in zip(turns[::2], turns[1::2], strict=True) for call in calls[begin + 1 : end]]
    return _sorted_logs([f"{call.operation} {_TIMES.sub('T', call.path.removeprefix(root))}" for call in held])


def _sorted_logs(calls: Sequence[str]) -> list[str]:
    """The log files of the metadata table, which threads write, in order of their names."""
    logs = iter(sorted(call for call in calls if call.startswith("open_output")))
    return [next(logs) if call.startswith("open_output") else call for call in calls]


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_storage_calls_of_a_small_commit(uri: str, table_type: str) -> None:
    asked = _second_upsert(uri, table_type, 2)
    # The first lookup in a file group with logs lists the consistent hashing metadata, which the table does not have.
    expected = CALLS if table_type == "cow" else {**CALLS, "list": CALLS["list"] + 1}
    assert {**asked.calls, "under the lock": len(asked.locked)} == expected


@pytest.mark.sample(2)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_calls_do_not_grow_with_partitions_that_are_not_touched(uri: str, table_type: str) -> None:
    few, many = (_second_upsert(f"{uri}-{count}", table_type, count) for count in (2, 40))
    assert many == few


def _second_upsert(uri: str, table_type: str, partitions: int) -> QueryForm:
    forget_memory(uri.removeprefix("memory://"))
    table = made(uri, table_type, partitions)
    upserted(table, 1)
    return upserted(table, 2)


def table_with_commits(
    uri: str, table_type: str, points: Sequence[int], window: int, more: Mapping[str, str] | None = None
) -> list[Counter[str]]:
    """The calls of so many commits up to each point, services and archival with them."""
    table = made(uri, table_type, more=more)
    found: list[Counter[str]] = []
    done = 0
    for point in points:
        asked: Counter[str] = Counter()
        while done < point:
            done += 1
            if done > point - window:
                asked += upserted(table, done).calls
            else:
                table.environment.advance_ms(1000)
                table.table.upsert(rows([0], done))
        found.append(asked)
    return found


@pytest.mark.full
@pytest.mark.parametrize("table_type", [pytest.param("cow", marks=pytest.mark.wide), "mor"])
def test_calls_do_not_grow_with_the_history(table_type: str) -> None:
    forget_memory("storage-calls")
    early, late = table_with_commits("memory://storage-calls", table_type, (36, 60), 12, SHORT)
    # Services run in another order; a call for each earlier commit would be twelve times the difference.
    assert late.total() <= early.total() + 24


@pytest.mark.wide
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_calls_of_10_100_and_300_commits(table_type: str) -> None:
    forget_memory("storage-calls")
    ten, hundred, most = table_with_commits("memory://storage-calls", table_type, (10, 100, 300), 10)
    # The first ten have nothing to clean; until a hundred the timelines grow to the length that archival keeps.
    assert most.total() <= 1.05 * hundred.total() and hundred.total() <= 2.5 * ten.total()


@pytest.mark.parametrize(("table_type", "action"), [("cow", "commit"), ("mor", "deltacommit")])
def test_calls_under_the_lock(uri: str, table_type: str, action: str) -> None:
    table = made(uri, table_type)
    for stamp in (1, 2):
        calls = upserted(table, stamp).locked
    assert calls == [call.format(action=action) for call in (*_BEGIN, *_sorted_logs(_COMMIT))]


def test_a_clean_of_few_files_takes_the_lock_once(uri: str) -> None:
    more = {"hoodie.clean.commits.retained": "1", "hoodie.metadata.compact.max.delta.commits": "100"}
    table = made(uri, "cow", more=more)
    calls = [upserted(table, stamp).locked for stamp in range(1, 5)][-1]
    named = [re.sub(r"p000/.*parquet", "p000/FILE", call) for call in calls if not call.startswith("open_output")]
    assert named[-len(_CLEAN) :] == _CLEAN


def test_clean_without_files_inspects_each_commit_once(uri: str) -> None:
    # No write replaces a file, so no clean is recorded, and each one could inspect all commits again.
    table = made(uri, "cow", more={"hoodie.metadata.enable": "false", "hoodie.clean.commits.retained": "2"})
    calls = [upserted(table, 0, partition).calls for partition in range(2, 14)]
    assert calls[4] == calls[-1]
    cleaned = upserted(table, 1, 13)
    last = [upserted(table, 2 + n, 13) for n in range(3)][-1]
    assert cleaned.calls["delete"] < last.calls["delete"]


@pytest.mark.parametrize("sync", ["all", "documents"])
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_commit_syncs_files_to_disk(tmp_path: Path, table_type: str, sync: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(str(tmp_path / "t"), table_type, storage={"sync": sync})
    upserted(table, 1)
    synced: list[str] = []

    def fsync(descriptor: int) -> None:
        path = os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), tmp_path / "t")
        synced.append(_TIMES.sub("T", re.sub(r"\.pyhudi-.*tmp", "file", path)))

    monkeypatch.setattr(os, "fsync", fsync)
    upserted(table, 2)
    # Data files and the files of the metadata table, each with its folder.
    data = [
        path
        for path in synced
        if path.startswith(
            ("p000", ".hoodie/metadata/files", ".hoodie/metadata/column_stats", ".hoodie/metadata/partition_stats")
        )
    ]
    assert len(data) == (10 if sync == "all" else 0)
    assert [path for path in synced if path not in data] == [
        # The inflight file has the workload profile; its folder holds the requested file too.
        *(".hoodie/timeline/file", ".hoodie/timeline"),
        # New folders of the marker, and the marker.
        *(".hoodie/.temp", ".hoodie/.temp/T", ".hoodie/.temp/T/p000"),
        # The inflight and completed file of the metadata table, then the completed file.
        *(".hoodie/metadata/.hoodie/timeline", ".hoodie/metadata/.hoodie/timeline/file", ".hoodie/metadata/.hoodie/timeline"),
        *(".hoodie/timeline/file", ".hoodie/timeline"),
    ]
