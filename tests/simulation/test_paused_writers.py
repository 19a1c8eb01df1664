"""A writer paused at any step while others commit, clean and archive: its write counts as before or after theirs.

The others make enough commits that files and instants known to the paused writer are cleaned and archived.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.engines.arrow.incoming import LocalIncoming
from pyhudi.errors import TableState, WriteConflict
from pyhudi.operations.read.query import plan_snapshot_query
from pyhudi.operations.services import clean
from pyhudi.operations.services.clean import CleanSettings, run_clean
from pyhudi.operations.write.delete_partitions import run_delete_partitions
from pyhudi.operations.write.delete_where import run_delete_where
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.storage import Storage
from pyhudi.storage.base import FileInfo, Listing
from pyhudi.storage.locks import LockProvider
from pyhudi.table.table_context import TableContext
from pyhudi.tasks.engine_protocol import PrepareRequest
from tests.simulation.interleavings import meeting
from tests.simulation.tables import Rows, World, partition_of
from tests.support.write_index_suite import FILE_INDEXES, INDEXES

FORGETFUL = {
    "hoodie.clean.commits.retained": 1,
    "hoodie.keep.min.commits": 2,
    "hoodie.keep.max.commits": 3,
    "hoodie.archive.automatic": True,
    "hoodie.clean.automatic": True,
    "hoodie.compact.inline": False,
    "pyhudi.threads": 1,
}
"""Keeps hardly anything of the past, as a busy table does in the hours of a slow write."""


class WatchedLock(LockProvider):
    """Reports whether it is held: a writer that holds the lock keeps all others waiting, so nothing happens concurrently."""

    def __init__(self, inner: LockProvider) -> None:
        self._inner = inner
        self.is_held = False

    def acquire(self, timeout_ms: int | None = None) -> None:
        self._inner.acquire(timeout_ms)
        self.is_held = True

    def release(self) -> None:
        self.is_held = False
        self._inner.release()

    def check(self) -> None:
        self._inner.check()

    def renew(self) -> None:
        self._inner.renew()


class Paused:
    """A storage that calls `others` once: before its call number `number` that is made while the lock is free."""

    def __init__(self, inner: Storage, lock: WatchedLock, number: int, others: Callable[[], object]) -> None:
        self._inner = inner
        self._lock = lock
        self._left = number
        self._others = others
        self.paused_at: str | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def list(self, folder: str) -> Listing:
        self._step(f"list {folder}")
        return self._inner.list(folder)

    def names(self, folder: str) -> tuple[str, ...]:
        self._step(f"list {folder}")
        return self._inner.names(folder)

    def read(self, path: str) -> bytes | None:
        self._step(f"read {path}")
        return self._inner.read(path)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self._step(f"put_if_absent {path}")
        return self._inner.put_if_absent(path, data)

    def open_output(self, path: str) -> Any:
        self._step(f"open_output {path}")
        return self._inner.open_output(path)

    def open_input(self, path: str) -> Any:
        self._step(f"open_input {path}")
        return self._inner.open_input(path)

    def stat(self, path: str) -> FileInfo | None:
        self._step(f"stat {path}")
        return self._inner.stat(path)

    def delete(self, paths: Iterable[str]) -> None:
        given = tuple(paths)
        self._step(f"delete {given[:1]}")
        self._inner.delete(given)

    def _step(self, what: str) -> None:
        if self._lock.is_held or self.paused_at is not None or "/.heartbeat/" in what:
            return
        self._left -= 1
        if self._left == 0:
            self.paused_at = what
            self._others()


def rows(world: World, stamp: int, **values: int) -> pa.Table:
    keys = list(values)
    return pa.table(
        {
            "id": keys,
            "part": [partition_of(key) for key in keys],
            "ts": pa.array([stamp] * len(keys), pa.int64()),
            "value": pa.array(list(values.values()), pa.int64()),
        }
    )


def settings(world: World, operation: WriteOperation, **options: object) -> WriteSettings:
    return WriteSettings.of(parse_options({**world.options, **options}), operation)


LATE = 1 << 50
"""An ordering value above those of the others' rows."""

Act = Callable[[World, TableContext], object]


def upsert(world: World, context: TableContext) -> object:
    data = rows(world, LATE, k0=100, k4=104)
    return run_write(context, LocalEngine(1), data, settings(world, WriteOperation.UPSERT))


def insert_new(world: World, context: TableContext) -> object:
    data = rows(world, LATE, k0=100, k4=104)
    options = {"hoodie.datasource.insert.dup.policy": "drop"}
    return run_write(context, LocalEngine(1), data, settings(world, WriteOperation.INSERT, **options))


def delete(world: World, context: TableContext) -> object:
    data = rows(world, LATE, k0=0).select(["id", "part", "ts"])
    return run_write(context, LocalEngine(1), data, settings(world, WriteOperation.DELETE))


def delete_where(world: World, context: TableContext) -> object:
    return run_delete_where(context, LocalEngine(1), "id = 'k0'", settings(world, WriteOperation.DELETE))


def overwrite(world: World, context: TableContext) -> object:
    data = rows(world, LATE, k0=100, k4=104)
    return run_write(context, LocalEngine(1), data, settings(world, WriteOperation.INSERT_OVERWRITE))


def delete_partition(world: World, context: TableContext) -> object:
    return run_delete_partitions(context, ["a"], settings(world, WriteOperation.DELETE_PARTITION))


@dataclass(frozen=True)
class Write:
    """act: the write.  effect: what it does to the rows of a table."""

    act: Act
    effect: Callable[[Rows], Rows]


OPERATIONS = {
    "upsert": Write(upsert, lambda held: {**held, "k0": 100, "k4": 104}),
    "insert": Write(insert_new, lambda held: {"k0": 100, "k4": 104, **held}),
    "delete": Write(delete, lambda held: {key: value for key, value in held.items() if key != "k0"}),
    "delete by filter": Write(delete_where, lambda held: {key: value for key, value in held.items() if key != "k0"}),
    "insert_overwrite": Write(
        overwrite, lambda held: {**{k: v for k, v in held.items() if partition_of(k) != "a"}, "k0": 100, "k4": 104}
    ),
    "delete_partitions": Write(delete_partition, lambda held: {k: v for k, v in held.items() if partition_of(k) != "a"}),
}


def made(kind: str, **options: object) -> World:
    """k0 and k2 in partition a, k1 in b."""
    world = World(kind, {**FORGETFUL, **options})
    world.upsert({"k0": 0, "k1": 1, "k2": 2})
    return world


def busy(world: World) -> list[Rows]:
    """Others insert the new key k4 and change the rest again and again; the rows after each commit."""
    for turn in range(10, 15):
        world.upsert({"k0": turn, "k2": turn, "k4": turn} if turn < 14 else {"k2": turn, "k4": turn})
    return [dict(world.rows)]


def run_paused(world: World, method: Write, number: int, others: Callable[[World], list[Rows]]) -> str | None:
    """One run with the pause at a step; what that step was, None when the write has committed before it."""
    run = world.copy()
    before = dict(run.rows)
    context = run.table.context
    lock = WatchedLock(context.lock)
    after: list[Rows] = []

    def act_concurrently() -> None:
        if len(run.table.timeline().completed_writes()) == len(run.states):
            after.extend(others(run))

    storage = Paused(context.storage, lock, number, act_concurrently)
    try:
        method.act(run, replace(context, storage=storage, lock=lock))
    except WriteConflict:
        # It reports that, and has done nothing.
        assert run.scanned() == after[0]
        return storage.paused_at
    found = run.scanned()
    if not after:
        assert found == method.effect(before)
        return None
    first, last = rows_if_first(method, before, after[0]), method.effect(after[0])
    assert found in (first, last), f"paused at step {number}, {storage.paused_at}"
    assert not run.table.timeline().pending_writes()
    return storage.paused_at


def rows_if_first(method: Write, before: Rows, after: Rows) -> Rows:
    """The rows if the write came first: the others wrote k0, k2 and k4 of partition a afterwards."""
    held = method.effect(before)
    return {**held, **{key: value for key, value in after.items() if held.get(key, 0) < 100}}


# Each operation on a table of one type, and each type by every other operation.
TURNS = [
    pytest.param(method, kind, marks=() if (number + place) % 2 == 0 else pytest.mark.wide)
    for number, method in enumerate(OPERATIONS)
    for place, kind in enumerate(("cow", "mor"))
]


@pytest.mark.parametrize(("method", "kind"), TURNS)
def test_writer_paused_at_every_step(kind: str, method: str) -> None:
    world = made(kind)
    number = 1
    while run_paused(world, OPERATIONS[method], number, busy) is not None:
        number += 1
    assert number > 5


class Fetching(LocalEngine):
    """An engine that reads its input slowly: `others` act concurrently."""

    def __init__(self, others: Callable[[], object]) -> None:
        super().__init__(1)
        self._others: Callable[[], object] | None = others

    def prepare(self, data: Any, request: PrepareRequest) -> LocalIncoming:
        incoming = super().prepare(data, request)
        if self._others is not None:
            others, self._others = self._others, None
            others()
        return incoming


CLEANED = {"hoodie.archive.automatic": False}
ARCHIVED = {"hoodie.clean.commits.retained": 9, "hoodie.keep.min.commits": 10, "hoodie.keep.max.commits": 11}
"""Cleaned by hardly anything, so that only the timeline is short of what the writer knows."""
ALL_INDEXES = {**FILE_INDEXES, **INDEXES}


@pytest.mark.parametrize(
    ("kind", "index"), [*(("cow", index) for index in ALL_INDEXES), *(("mor", index) for index in ("simple", "bucket"))]
)
def test_files_are_cleaned_while_rows_are_fetched(kind: str, index: str) -> None:
    options = ALL_INDEXES[index].options
    has_metadata_table = any("metadata" in key or "record" in key for key in options)
    world = made(kind, **{**options, **CLEANED, "hoodie.metadata.enable": has_metadata_table})

    def others() -> None:
        for turn in range(3):
            world.upsert({"k0": turn, "k2": turn, "k4": turn})
            if kind == "mor":
                world.table.compact()

    data = rows(world, LATE, k0=100, k4=104)
    engine = Fetching(others)
    result = run_write(world.table.context, engine, data, settings(world, WriteOperation.UPSERT))
    assert world.scanned() == {"k0": 100, "k1": 1, "k2": 2, "k4": 104}
    assert result.conflict_retries == 0


@pytest.mark.parametrize("method", ["upsert", "delete", "insert_overwrite"])
def test_commits_are_archived_while_rows_are_fetched(method: str) -> None:
    """The files of the loaded state are all there; what was committed since has left the timeline."""
    world = made("cow", **ARCHIVED)
    seen = world.table.context
    operation = {
        "upsert": WriteOperation.UPSERT,
        "delete": WriteOperation.DELETE,
        "insert_overwrite": WriteOperation.INSERT_OVERWRITE,
    }[method]
    data = rows(world, LATE, k0=100, k4=104)

    def others() -> None:
        for turn in range(14):
            world.upsert({"k0": turn, "k2": turn, "k4": turn})

    run_write(seen, Fetching(others), data if method != "delete" else data.drop_columns(["value"]), settings(world, operation))
    expected = {
        "upsert": {"k0": 100, "k1": 1, "k2": 13, "k4": 104},
        "delete": {"k1": 1, "k2": 13},
        "insert_overwrite": {"k0": 100, "k1": 1, "k4": 104},
    }
    assert world.scanned() == expected[method]


def test_write_paused_during_eleven_commits_merges_with_default_options() -> None:
    world = World("cow", {"hoodie.metadata.enable": True})
    world.upsert({"k0": 0})

    def others() -> None:
        for turn in range(11):
            world.upsert({"k0": turn, "k2": turn})

    data = rows(world, LATE, k0=100, k2=102)
    run_write(world.table.context, Fetching(others), data, settings(world, WriteOperation.UPSERT))
    assert world.scanned() == {"k0": 100, "k2": 102}


@pytest.mark.parametrize(("kind", "has_metadata_table"), [("cow", False), ("mor", False), ("cow", True)])
def test_a_reader_at_every_step(kind: str, has_metadata_table: bool) -> None:
    """It returns the rows of before the others or after them, or an error about missing files; never fewer rows."""
    world = made(kind, **{"hoodie.metadata.enable": has_metadata_table})
    number = complete = 0
    paused: str | None = ""
    while paused is not None:
        number += 1
        run = world.copy()
        before = dict(run.rows)
        context = run.table.context
        storage = Paused(context.storage, WatchedLock(context.lock), number, partial(busy, run))
        query = plan_snapshot_query(replace(context, storage=storage), ["id", "value"])
        paused = storage.paused_at
        try:
            found = pa.concat_tables([query.schema.empty_table(), *(part for s in query.tasks for part in query.reader(s))])
        except TableState as error:
            assert "is missing" in str(error)
            continue
        complete += 1
        pairs = sorted(zip(found["id"].to_pylist(), found["value"].to_pylist(), strict=True))
        assert pairs in (sorted(before.items()), sorted(run.rows.items())), f"paused at step {number}, {paused}"
    assert complete > 2


def test_commits_a_pending_writer_must_check_are_not_archived() -> None:
    """Theirs begins before ours and completes after it has begun; by request time it is older than what ours builds on."""
    world = made("cow")
    began, may_continue = threading.Event(), threading.Event()

    def wait() -> None:
        began.set()
        assert may_continue.wait(600)

    def theirs() -> None:
        data = rows(world, 1, k4=50)
        run_write(meeting(world, wait), LocalEngine(1), data, settings(world, WriteOperation.UPSERT))

    other = threading.Thread(target=theirs)
    other.start()
    assert began.wait(600)
    world.upsert({"k1": 2})

    def act_concurrently() -> None:
        may_continue.set()
        other.join()
        for turn in range(5):
            world.upsert({"k1": turn})

    context = meeting(world, act_concurrently)
    ours = settings(world, WriteOperation.UPSERT, **{"hoodie.parquet.small.file.limit": 0})
    assert run_write(context, LocalEngine(1), rows(world, LATE, k4=104), ours).conflict_retries == 1
    assert world.scanned() == {"k0": 0, "k1": 4, "k2": 2, "k4": 104}


@pytest.mark.parametrize("first", ["the append", "the insert"])
def test_deleted_key_reinserted_during_a_compaction_is_stored_once(first: str) -> None:
    """One writer found the key in the base file and appends to its log; the compaction leaves the deleted key out, so another
    writer finds it nowhere and inserts it.
    """
    world = made("mor", **CLEANED)
    world.table.delete(rows(world, LATE, k0=0).select(["id", "part", "ts"]))
    assert world.table.schedule_compaction().planned is not None
    began, may_continue = threading.Event(), threading.Event()

    def wait() -> None:
        began.set()
        assert may_continue.wait(600)

    def append() -> None:
        data = rows(world, LATE + 1, k0=50)
        run_write(meeting(world, wait), LocalEngine(1), data, settings(world, WriteOperation.UPSERT))

    def finish() -> None:
        may_continue.set()
        other.join()

    other = threading.Thread(target=append)
    other.start()
    assert began.wait(600)
    world.table.compact()
    context = meeting(world, finish) if first == "the append" else world.table.context
    insert = settings(world, WriteOperation.UPSERT, **{"hoodie.parquet.small.file.limit": 0})
    result = run_write(context, LocalEngine(1), rows(world, LATE + 2, k0=100), insert)
    finish()
    assert result.conflict_retries == (1 if first == "the append" else 0)
    assert world.scanned() == {"k0": 100, "k1": 1, "k2": 2}


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_paused_writer_that_was_rolled_back_raises_a_conflict(kind: str) -> None:
    """Nothing protects the files that it reads any more, so it fails on a missing file first."""
    world = made(kind)

    def take_over() -> None:
        own = world.table.timeline().pending()[0].request_time
        world.environment.stall_ms(500_000)
        assert world.table.upsert(rows(world, 1, k1=1)).rolled_back == (own,)
        for turn in range(5):
            world.upsert({"k0": turn, "k2": turn})
            if kind == "mor":
                world.table.compact()
                world.table.clean(dry_run=True)

    context = meeting(world, take_over)
    data = rows(world, LATE, k0=100, k4=104)
    assert run_write(context, LocalEngine(1), data, settings(world, WriteOperation.UPSERT)).conflict_retries == 1
    assert world.scanned() == {"k0": 100, "k1": 1, "k2": 4, "k4": 104}
    assert not world.table.timeline().pending_writes()


@pytest.mark.parametrize("has_many_files", [False, True])
def test_a_clean_deletes_nothing_that_a_rollback_made_the_newest(has_many_files: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rollback that comes before the plan of the clean is done, and one that comes after it is refused."""
    if has_many_files:
        monkeypatch.setattr(clean, "_FILES_UNDER_LOCK", 0)
    options = {"hoodie.clean.automatic": False, "hoodie.archive.automatic": False}
    world = made(
        "cow", **{**options, "hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": 1}
    )
    last = world.upsert({"k0": 7})
    after, before = dict(world.rows), {**world.rows, "k0": 0}
    ends: list[bool] = []
    for number in itertools.count(1):
        run = world.copy()
        context = run.table.context
        lock = WatchedLock(context.lock)
        refused: list[TableState] = []

        def roll_back(table: Table = run.table, refused: list[TableState] = refused) -> None:
            try:
                table.rollback(last)
            except TableState as error:
                refused.append(error)

        storage = Paused(context.storage, lock, number, roll_back)
        run_clean(replace(context, storage=storage, lock=lock), CleanSettings.of(parse_options(run.options)))
        paused = storage.paused_at
        if paused is None:
            break
        assert run.scanned() == (after if refused else before), f"paused at step {number}, {paused}"
        ends.append(bool(refused))
    if has_many_files:
        assert ends.index(True) > 2
    else:
        # The lock is held from the plan to the end.
        assert len(ends) > 2 and not any(ends)
    assert ends == sorted(ends)
