"""PyHudi waits for older writes of other writers to the same file groups, for a limited time."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi.format.actions.commit_metadata import CommitMetadata, WriteStat
from pyhudi.format.instants import Action, Instant, State
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.hudi_writers import wait_for_foreign_writers
from pyhudi.options.supported import parse_options
from pyhudi.storage import open_storage
from pyhudi.storage.environment import ReplayEnvironment
from pyhudi.storage.fault_injection import FaultyStorage, StorageCall
from pyhudi.storage.heartbeats import heartbeat_path
from tests.simulation.tables import World

OLDER, OWN = "20260101000000500", "20260101000000600"
SETTINGS = CommitSettings.of(parse_options({}))


def workload(partition: str, file_id: str) -> bytes:
    stats = {partition: (WriteStat(file_id=file_id, num_update_writes=1),)}
    return CommitMetadata(partition_to_write_stats=stats, operation_type="UPSERT").encode()


def waited_ms(world: World, inflight: bytes | None, heartbeat: bytes | None, then: Callable[[], None] | None = None) -> int:
    """How long a write to group f of partition p waits for an older one. then: runs after two seconds."""
    context, env = world.table.context, world.environment
    requested = context.timeline.request(OLDER, Action.COMMIT)
    if inflight is not None:
        context.timeline.start(requested, inflight)
    if heartbeat is not None:
        context.storage.put(heartbeat_path(OLDER), heartbeat)
    begun_on = context.timeline.load()
    if then is not None:
        env.every_ms(2_000, then)
    begun_ms = env.monotonic_ms()
    wait_for_foreign_writers(context, SETTINGS, begun_on, OWN, {("p", "f")})
    return env.monotonic_ms() - begun_ms


def test_older_hudi_write_to_the_same_file_group_is_waited_for() -> None:
    world = World("cow", {})
    path = world.table.context.timeline.path(Instant(OLDER, Action.COMMIT, State.COMPLETED, OWN))
    waited = waited_ms(world, workload("p", "f"), b"", lambda: world.table.context.storage.put(path, b""))
    assert 2_000 <= waited < 2_500


def test_older_hudi_write_without_workload_is_waited_for_until_it_records_it() -> None:
    world = World("cow", {})
    path = world.table.context.timeline.path(Instant(OLDER, Action.COMMIT, State.INFLIGHT))
    waited = waited_ms(world, None, b"", lambda: world.table.context.storage.put(path, workload("p", "g")))
    assert 2_000 <= waited < 2_500


@pytest.mark.parametrize(
    ("inflight", "heartbeat"),
    [
        (workload("p", "g"), b""),
        (workload("q", "f"), b""),
        (workload("p", "f"), b'{"host":"ours"}'),
        (workload("p", "f"), None),
    ],
    ids=["another group", "another partition", "our own", "dead"],
)
def test_other_pending_writes_are_not_waited_for(inflight: bytes, heartbeat: bytes | None) -> None:
    assert waited_ms(World("cow", {}), inflight, heartbeat) == 0


def test_wait_for_a_hudi_write_is_bounded() -> None:
    assert 15_000 <= waited_ms(World("cow", {}), workload("p", "f"), b"") < 15_500


def test_upsert_waits_for_the_hudi_write_and_commits() -> None:
    env = ReplayEnvironment(3)
    table = hp.Table.create("memory://foreign", record_key="id", environment=env, options={"hoodie.metadata.enable": False})
    table.upsert(pa.table({"id": [1], "v": [1]}))
    hudi_write = f"{int(table.timeline().latest_time()) + 1}"
    table.context.timeline.request(hudi_write, Action.COMMIT)
    table.context.storage.put(heartbeat_path(hudi_write), b"")
    begun_ms = env.monotonic_ms()
    env.advance_ms(1_000)
    table.upsert(pa.table({"id": [1], "v": [2]}))
    assert env.monotonic_ms() - begun_ms >= 15_000
    assert table.scan(["v"]).to_arrow()["v"].to_pylist() == [2]
    assert [i.request_time for i in table.timeline().pending()] == [hudi_write]


@pytest.mark.parametrize("changes", ["by ids", "by a write"])
def test_schema_change_waits_for_any_pending_hudi_write(changes: str) -> None:
    """What that one writes has the columns of before."""
    world = World("cow", {"pyhudi.schema.mode": "evolve", "hoodie.write.set.null.for.missing.columns": True})
    world.upsert({"k0": 0, "k1": 1})
    table, env = world.table, world.environment
    table.alter.add("more", pa.string())
    store, hudi_write = table.context.timeline, f"{int(table.timeline().latest_time()) + 1}"
    store.start(store.request(hudi_write, Action.COMMIT), workload("elsewhere", "f"))
    table.context.storage.put(heartbeat_path(hudi_write), b"")
    env.advance_ms(1_000)
    begun_ms = env.monotonic_ms()
    world.upsert({"k0": 2})
    assert env.monotonic_ms() - begun_ms < 15_000
    begun_ms = env.monotonic_ms()
    if changes == "by ids":
        table.alter.rename("value", "worth")
    else:
        table.upsert(table.scan().to_arrow().append_column("worth", pa.array([1, 1])))
    assert env.monotonic_ms() - begun_ms >= 15_000
    assert "worth" in table.schema().names


def test_older_hudi_write_that_appears_late_is_waited_for() -> None:
    """Apache Hudi takes the time of its instant first and shows it later; what it builds on ours would lie below ours."""
    env = ReplayEnvironment(3)
    uri, options = "memory://foreign-late", {"hoodie.metadata.enable": False}
    table = hp.Table.create(uri, record_key="id", environment=env, options=options)
    table.upsert(pa.table({"id": [1], "v": [1]}))
    store, hudi_write = table.context.timeline, f"{int(table.timeline().latest_time()) + 1}"
    env.advance_ms(1_000)

    def show(number: int, call: StorageCall) -> None:
        # Its inflight file lists other changes, once the write has waited for it.
        if call.operation == "put_if_absent" and call.path.endswith(".inflight") and not store.load().pending_writes()[1:]:
            store.request(hudi_write, Action.COMMIT)
            table.context.storage.put(heartbeat_path(hudi_write), b"")

    storage = FaultyStorage(open_storage(uri), listener=show)
    begun_ms = env.monotonic_ms()
    hp.Table(uri, dict(storage.spec().options), options, environment=env).upsert(pa.table({"id": [1], "v": [2]}))
    assert env.monotonic_ms() - begun_ms >= 15_000, "it was planned anew, and waited for the other"
    assert table.scan(["v"]).to_arrow()["v"].to_pylist() == [2]
