"""One run: so many writers for so long, and what came of it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.many_writers.world import LateStorage, Store, VirtualTime, WriterEnvironment
from pyhudi import Table
from pyhudi.errors import StorageUnavailable
from pyhudi.format.actions.commit_metadata import Operation, WriteStat
from pyhudi.format.instants import Action
from pyhudi.operations.commit.action_attempt import rollback_on_error
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.operations.commit.planned_commit import LockedCommit, PlannedCommit, commit_metadata
from pyhudi.operations.commit.transaction import Transaction
from pyhudi.options.supported import parse_options
from pyhudi.planning.conflicts import WriteStart
from pyhudi.storage.locks import StorageLock
from pyhudi.storage.memory import MemoryStorage
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.tasks.write_tasks import WriteStatus

_START_MS = 1_767_225_600_000
_SCHEMA = '{"type":"record","name":"r","fields":[{"name":"id","type":"string"}]}'
_names = itertools.count()


@dataclass(frozen=True, slots=True)
class Setting:
    """latency_ms, requests_per_second, object_writes_per_second: of the store.  work_ms: what the data files of a commit take.
    held_ms: what else is done under the lock, such as the metadata table.  wait_ms: for the lock.  seconds: of virtual time.
    """

    writers: int
    seconds: float = 60.0
    latency_ms: float = 30.0
    requests_per_second: float = 3500.0
    object_writes_per_second: float = 1000.0
    work_ms: int = 5_000
    held_ms: int = 200
    wait_ms: int = 60_000
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """commits: those that landed.  gave_up: times that the lock was not free in time.  waits_ms: of one commit without its work,
    ascending.  requests: all that the store answered, by kind.
    """

    setting: Setting
    commits: int
    gave_up: int
    waits_ms: tuple[float, ...]
    requests: Mapping[str, int]

    @property
    def per_second(self) -> float:
        """Commits in a second, of all writers together."""
        return self.commits / self.setting.seconds

    @property
    def requests_per_commit(self) -> float:
        return sum(self.requests.values()) / max(self.commits, 1)


def simulate(setting: Setting) -> Outcome:
    """Run the writers of a setting until its time is over."""
    time = VirtualTime(_START_MS, _START_MS + int(setting.seconds * 1000))
    store = Store(time, setting.latency_ms, setting.requests_per_second, setting.object_writes_per_second)
    uri = f"memory://many-writers-{next(_names):06}"
    world = WriterEnvironment(time, f"{setting.seed}")
    # Files get their time from the first who opens the store.
    MemoryStorage(uri, world)
    options: dict[str, object] = {
        "hoodie.metadata.enable": False,
        "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
        "hoodie.write.lock.wait_time_ms": setting.wait_ms,
    }
    Table.create(uri, record_key="id", options=options, environment=world)
    waits: list[float] = []
    refused: list[str] = []

    def writer(number: int) -> Callable[[], None]:
        env = WriterEnvironment(time, f"{setting.seed}/{number}")
        late: Any = LateStorage(MemoryStorage(uri), store, env)
        lock = StorageLock(late, env, validity_ms=30_000, renew_ms=5_000, wait_ms=setting.wait_ms)
        context = replace(Table(uri, options=options, environment=env).context, storage=late, lock=lock)
        settings = CommitSettings.of(parse_options(options))
        rng = random.Random(f"{setting.seed}/{number}")

        def hold(commit: LockedCommit) -> None:
            env.sleep_ms(setting.held_ms)

        def write() -> None:
            env.sleep_ms(rng.uniform(0, setting.work_ms))
            while True:
                begun_ms = time.now_ms
                try:
                    transaction = Transaction.begin(context, Action.COMMIT, settings)
                    with rollback_on_error(transaction):
                        transaction.start()
                        env.sleep_ms(setting.work_ms)
                        name = f"{number:032}-0"
                        stat = WriteStat(name, f"{name}.parquet", "0", num_writes=1, num_update_writes=1, partition_path="")
                        start = WriteStart.of(transaction.requested_on or Timeline(()), "")
                        metadata = commit_metadata(Operation.UPSERT, [WriteStatus(stat)], _SCHEMA, {})
                        transaction.commit(PlannedCommit(metadata, start, (), hold))
                except StorageUnavailable as error:
                    refused.append(str(error))
                    continue
                waits.append(time.now_ms - begun_ms - setting.work_ms)

        return write

    time.run([writer(number) for number in range(setting.writers)])
    return Outcome(setting, len(waits), len(refused), tuple(sorted(waits)), dict(store.requests))
