"""Early conflict detection: the younger of two writes to one file group stops before it writes data.

First with files of an unknown writer, then with two writers of PyHudi.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import InvalidRequest, Unsupported, WriteConflict
from pyhudi.format.instants import Action
from pyhudi.format.names import MarkerType
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.storage.fault_injection import FaultyStorage, StorageCall
from pyhudi.storage.heartbeats import heartbeat_path
from pyhudi.storage.markers import Markers
from pyhudi.table.table_context import TableContext
from tests.simulation.interleavings import meeting
from tests.simulation.tables import World, partition_of

ENABLE = "hoodie.write.concurrency.early.conflict.detection.enable"
STRATEGY = "hoodie.write.concurrency.early.conflict.detection.strategy"
RETRIES = "hoodie.write.num.retries.on.conflict.failures"
OCC = {"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}
OPTIONS: dict[str, object] = {
    **OCC,
    ENABLE: True,
    RETRIES: 0,
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.compact.inline": False,
    "pyhudi.threads": 1,
}
BUCKETS = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 2}
KINDS = ("cow", "mor")
GROUP = "0f3cf4c8-2b5b-4f21-9f3c-000000000001-0"


def made(kind: str, **options: object) -> World:
    """k0 and k2 in partition a, k1 in b."""
    world = World(kind, {**OPTIONS, **options})
    world.upsert({"k0": 0, "k1": 1, "k2": 2})
    world.environment.advance_ms(1000)
    return world


def rows(world: World, **values: int) -> pa.Table:
    stamp = world.environment.now_ms() + 5000
    parts = [partition_of(key) for key in values]
    return pa.table({"id": [*values], "part": parts, "ts": [stamp] * len(values), "value": [*values.values()]})


def write(world: World, context: TableContext, data: pa.Table, operation: str = "upsert", /, **options: object) -> WriteResult:
    settings = WriteSettings.of(parse_options({**world.options, **options}), WriteOperation(operation))
    if operation == "delete":
        data = data.drop_columns(["value"])
    return run_write(context, LocalEngine(1), data, settings)


def group_of(world: World, partition: str) -> str:
    (stored,) = [path for path in world.files() if path.startswith(f"{partition}/") and path.endswith(".parquet")]
    return stored.removeprefix(f"{partition}/").split("_")[0]


class Other:
    """A write of another writer to the table, requested a second after its last commit."""

    def __init__(self, world: World, heartbeat: bytes | None = b"") -> None:
        self.world = world
        self.storage = world.table.context.storage
        self.time = f"{int(world.table.timeline().latest_time()) + 1}"
        self.action = Action.COMMIT if world.table.context.config.is_cow else Action.DELTACOMMIT
        timeline = world.table.context.timeline
        timeline.start(timeline.request(self.time, self.action))
        if heartbeat is not None:
            self.storage.put(heartbeat_path(self.time), heartbeat)

    def path(self, partition: str, file_id: str) -> str:
        name = f"{file_id}_9-9-9_{self.time}.parquet" if self.action is Action.COMMIT else f".{file_id}_{self.time}.log.1_9-9-9"
        return f"{partition}/{name}"

    def mark(self, partition: str, file_id: str) -> None:
        Markers(self.storage, self.time).create(self.path(partition, file_id), MarkerType.CREATE)

    def list_marks(self, text: str) -> None:
        """As a timeline server does."""
        folder = Markers(self.storage, self.time).folder
        self.storage.put(f"{folder}/MARKERS.type", b"TIMELINE_SERVER_BASED")
        self.storage.put(f"{folder}/MARKERS7", text.encode())

    def ends_in(self, wait_ms: int) -> None:
        """It lives for so long, and is rolled back then."""
        env = self.world.environment
        beats = env.every_ms(10_000, lambda: self.storage.put(heartbeat_path(self.time), b""))

        def end() -> None:
            beats.stop()
            ends.stop()
            self.end()

        ends = env.every_ms(wait_ms, end)

    def end(self) -> None:
        """It is rolled back."""
        Markers(self.storage, self.time).delete()
        self.storage.delete([heartbeat_path(self.time)])
        self.world.table.context.timeline.remove_pending(self.time, self.action)


def writes_of(context: TableContext) -> tuple[TableContext, FaultyStorage]:
    """A context whose calls are noted."""
    storage = FaultyStorage(context.storage)
    return replace(context, storage=storage), storage


def no_data_written(storage: FaultyStorage) -> bool:
    return not any(call.operation == "open_output" and "/.hoodie/" not in call.path for call in storage.calls)


@pytest.mark.parametrize("operation", ["upsert", "delete", "insert_overwrite"])
@pytest.mark.parametrize("kind", KINDS)
def test_conflict_is_detected_before_data_is_written(kind: str, operation: str) -> None:
    world = made(kind)
    other, group = Other(world), group_of(world, "a")
    other.mark("a", group)
    context, storage = writes_of(world.table.context)
    with pytest.raises(WriteConflict) as caught:
        write(world, context, rows(world, k0=10), operation)
    assert no_data_written(storage)
    assert caught.value.in_progress == (other.time,)
    assert caught.value.instants[0] == other.time
    assert all(text in str(caught.value) for text in (*caught.value.instants, group, "partition 'a'"))
    # It left nothing, and the other one is untouched.
    assert {i.request_time for i in world.table.timeline().pending()} == {other.time}
    assert not list(storage.walk(f".hoodie/.temp/{caught.value.instants[1]}"))
    assert world.scanned() == world.rows


@pytest.mark.parametrize("kind", KINDS)
def test_marker_lists_of_a_timeline_server_are_read(kind: str) -> None:
    world = made(kind)
    other, group = Other(world), group_of(world, "a")
    line = f"{other.path('a', group)}.marker.CREATE\n"
    # A file that its server is writing is truncated at any byte.
    other.list_marks(f"{line}{other.path('b', group)[:20]}")
    with pytest.raises(WriteConflict, match=group):
        write(world, world.table.context, rows(world, k0=10))
    other.list_marks(line.replace("a/", "b/", 1))
    assert write(world, world.table.context, rows(world, k0=10)).instant is not None


@pytest.mark.parametrize("kind", KINDS)
def test_marker_created_after_the_first_check_is_found_at_the_file(kind: str) -> None:
    world = made(kind)
    other, group = Other(world), group_of(world, "a")
    context, storage = writes_of(meeting(world, lambda: other.mark("a", group)))
    with pytest.raises(WriteConflict, match=group) as caught:
        write(world, context, rows(world, k0=10))
    assert no_data_written(storage)
    assert caught.value.in_progress == (other.time,)
    assert world.scanned() == world.rows
    assert {i.request_time for i in world.table.timeline().pending()} == {other.time}


def untouched(world: World, other: Other) -> None:
    other.mark("b", group_of(world, "a"))
    other.mark("a", GROUP)
    other.mark("a", f"{group_of(world, 'a')}0")


def dead(world: World, other: Other) -> None:
    other.mark("a", group_of(world, "a"))
    world.environment.advance_ms(120_001)


def complete(world: World, other: Other) -> None:
    """And dead before it had removed its markers and heartbeat."""
    other.mark("a", group_of(world, "a"))
    empty = WriteSettings.of(parse_options({**world.options, ENABLE: False}), WriteOperation.UPSERT)
    other.end()
    done = run_write(world.table.context, LocalEngine(1), rows(world, k0=5), empty)
    other.time = str(done.instant)
    other.mark("a", group_of_newest(world))
    other.storage.put(heartbeat_path(other.time), b"")


def group_of_newest(world: World) -> str:
    stored = sorted(path for path in world.files() if path.startswith("a/") and path.endswith(".parquet"))
    return stored[0].removeprefix("a/").split("_")[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", [untouched, dead, complete])
def test_other_pending_instants_are_no_early_conflict(kind: str, what: Callable[[World, Other], None]) -> None:
    world = made(kind)
    what(world, Other(world))
    assert write(world, world.table.context, rows(world, k0=10)).instant is not None
    assert world.scanned() == {**world.rows, "k0": 10}


@pytest.mark.parametrize("kind", KINDS)
def test_writers_without_heartbeat_or_with_later_time_are_no_early_conflict(kind: str) -> None:
    world = made(kind)
    Other(world, None).mark("a", group_of(world, "a"))
    world.environment.advance_ms(1000)

    def younger() -> None:
        world.environment.advance_ms(1000)
        Other(world).mark("a", group_of(world, "a"))

    assert write(world, meeting(world, younger), rows(world, k0=10)).instant is not None


def test_early_conflict_detection_is_off_by_default() -> None:
    world = made("cow", **{ENABLE: False})
    Other(world).mark("a", group_of(world, "a"))
    assert write(world, world.table.context, rows(world, k0=10)).instant is not None


@pytest.mark.parametrize("kind", KINDS)
def test_write_is_planned_again_after_the_other_ended(kind: str) -> None:
    world = made(kind)
    other = Other(world)
    other.mark("a", group_of(world, "a"))
    begun_ms, env = world.environment.monotonic_ms(), world.environment
    other.ends_in(60_000)
    assert write(world, world.table.context, rows(world, k0=10), **{RETRIES: 1}).conflict_retries == 1
    assert 60_000 <= env.monotonic_ms() - begun_ms < 62_000
    assert world.scanned() == {**world.rows, "k0": 10}


def test_a_delete_by_filter_waits_as_well() -> None:
    world = made("cow", **{RETRIES: 1})
    other = Other(world)
    other.mark("a", group_of(world, "a"))
    other.ends_in(20_000)
    assert world.table.delete(where="id = 'k0'").conflict_retries == 1
    assert world.scanned() == {"k1": 1, "k2": 2}


def test_wait_ends_when_the_other_fails_or_at_the_limit() -> None:
    world = made("cow")
    env, other = world.environment, Other(world)
    other.mark("a", group_of(world, "a"))
    begun_ms = env.monotonic_ms()
    assert write(world, world.table.context, rows(world, k0=10), **{RETRIES: 1}).conflict_retries == 1
    assert 120_000 < env.monotonic_ms() - begun_ms < 122_000
    other.storage.put(heartbeat_path(other.time), b"")
    Markers(other.storage, other.time).delete()
    other.mark("a", group_of_newest(world))
    env.every_ms(10_000, lambda: other.storage.put(heartbeat_path(other.time), b""))
    begun_ms = env.monotonic_ms()
    with pytest.raises(WriteConflict, match=other.time):
        write(world, world.table.context, rows(world, k0=11), **{RETRIES: 1})
    assert 300_000 <= env.monotonic_ms() - begun_ms < 302_000


def paused_at_data(world: World, then: Callable[[], object]) -> TableContext:
    """The table for a write that has marked its first file and not written it when `then` happens."""
    context = world.table.context
    left = [then]

    def watch(number: int, call: StorageCall) -> None:
        if left and call.operation == "open_output" and "/.hoodie/" not in call.path:
            left.pop()()

    return replace(context, storage=FaultyStorage(context.storage, listener=watch))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("index", ["simple", "bucket", "new bucket"])
def test_later_of_two_pyhudi_writers_stops_and_the_earlier_commits(kind: str, index: str) -> None:
    world = World(kind, {**OPTIONS, **(BUCKETS if "bucket" in index else {})})
    if index == "new bucket":
        world.upsert({"k1": 1})
    else:
        world.upsert({f"k{number}": number for number in range(0, 8)})
    world.environment.advance_ms(1000)
    stopped: list[WriteConflict] = []

    def younger() -> None:
        context, storage = writes_of(world.table.context)
        with pytest.raises(WriteConflict) as caught:
            write(world, context, rows(world, **{f"k{number}": 30 for number in range(0, 8, 2)}))
        assert no_data_written(storage)
        stopped.append(caught.value)

    older = write(world, paused_at_data(world, younger), rows(world, **{f"k{number}": 20 for number in range(0, 8, 2)}))
    assert [error.in_progress for error in stopped] == [(older.instant,)]
    assert {world.scanned()[f"k{number}"] for number in range(0, 8, 2)} == {20}
    assert world.table.validate().ok
    assert not world.table.timeline().pending()


def test_commit_conflict_check_stops_before_the_first_file_when_enabled() -> None:
    checks = "hoodie.write.concurrency.early.conflict.check.commit.conflict"
    for asked in (False, True):
        world = made("cow")
        left = [world]

        def watch(number: int, call: StorageCall, left: list[World] = left) -> None:
            # It reads its keys after its instant was requested and before its first file.
            if left and call.operation == "open_input" and call.path.endswith(".parquet"):
                left.pop().upsert({"k2": 7})

        context = world.table.context
        storage = FaultyStorage(context.storage, listener=watch)
        with pytest.raises(WriteConflict, match="changed concurrently"):
            write(world, replace(context, storage=storage), rows(world, k0=10), **{checks: asked})
        assert no_data_written(storage) == asked


def test_early_conflict_options_are_validated() -> None:
    def settings(**options: object) -> WriteSettings:
        return WriteSettings.of(parse_options(options), WriteOperation.UPSERT)

    with pytest.raises(InvalidRequest, match=r"requires .*OPTIMISTIC_CONCURRENCY_CONTROL.*found SINGLE_WRITER"):
        settings(**{ENABLE: True})
    with pytest.raises(Unsupported, match="Mine is not supported"):
        settings(**OCC, **{STRATEGY: "com.example.Mine"})
    assert not settings(**OCC).early.enabled
    for name in (
        "org.apache.hudi.table.marker.SimpleDirectMarkerBasedDetectionStrategy",
        "org.apache.hudi.table.marker.SimpleTransactionDirectMarkerBasedDetectionStrategy",
        "org.apache.hudi.timeline.service.handlers.marker.AsyncTimelineServerBasedDetectionStrategy",
    ):
        assert settings(**OCC, **{ENABLE: True, STRATEGY: name}).early.enabled
