"""Cases of concurrent runs: the table, its lock and its writers."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

OWN_KEYS, SHARED_KEYS = 6, 6
_LOCKS = "org.apache.hudi.client.transaction.lock."
_ONE_GROUP: Mapping[str, Any] = {
    "hoodie.metadata.index.column.stats.file.group.count": 1,
    "hoodie.metadata.index.bloom.filter.file.group.count": 1,
    "hoodie.metadata.record.index.min.filegroup.count": 1,
    "hoodie.metadata.record.index.max.filegroup.count": 1,
}
_HUDI_LOCK_WAIT_MS, _PYHUDI_LOCK_WAIT_MS = 15_000, 20_000


def keys_of(writer: str) -> list[str]:
    """The keys that this writer alone changes."""
    return [f"{writer}{number}" for number in range(OWN_KEYS)]


def shared_keys() -> list[str]:
    """Keys of every writer. They exist from the first commit on, as Hudi does not detect two inserts of one key."""
    return [f"shared{number}" for number in range(SHARED_KEYS)]


def rows(values: Mapping[str, str | None]) -> pa.Table:
    """Rows of these keys and values; the last character of a key determines its partition."""
    parts = [f"p{int(key[-1]) % 2}" for key in values]
    return pa.table({"id": list(values), "part": parts, "v": pa.array(list(values.values()), pa.string())})


@dataclass(frozen=True)
class Case:
    """A concurrent run.

    Attributes:
        release: Of Apache Hudi.
        kind: `cow` or `mor`.
        lock: `file` or `zookeeper`.
        has_record_index: Whether the table has a record index, by which both locate keys.
        writers: Engine of each process of PyHudi: `embedded` or `spark`.
        seed: Chooses the steps of each process, the options below, and the calls at which processes are killed or suspended.
        steps: Of Hudi; the processes of PyHudi continue until it has ended.
        builds_indexes: Whether the record index is created and dropped during the run.
        kills_hudi: Whether the JVM is killed once.
        more: Further options of all writers.
    """

    release: str
    kind: str
    lock: str
    has_record_index: bool
    writers: tuple[str, ...] = ("embedded", "embedded")
    seed: int = 1
    steps: int = 8
    builds_indexes: bool = False
    kills_hudi: bool = False
    more: Mapping[str, Any] | None = None

    @property
    def inline(self) -> str:
        """The library whose writes run services: `pyhudi`, `hudi` or `none`."""
        return random.Random(f"{self.seed} inline").choice(("pyhudi", "hudi", "none"))

    @property
    def updates_clustered(self) -> bool:
        """Whether writes into file groups with a pending clustering are allowed."""
        return random.Random(f"{self.seed} clustering").random() < 0.5

    def names(self) -> list[str]:
        """The processes of PyHudi."""
        return [f"{engine[0]}{number}_" for number, engine in enumerate(self.writers)]

    def table_options(self, address: str | None) -> dict[str, Any]:
        """Options of all writers. address: of the ZooKeeper server."""
        options: dict[str, Any] = {
            "hoodie.table.name": "t",
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "part",
            "hoodie.datasource.write.table.type": "COPY_ON_WRITE" if self.kind == "cow" else "MERGE_ON_READ",
            "hoodie.write.table.version": 8 if self.release == "1.0.2" else 9,
            "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
            "hoodie.clean.failed.writes.policy": "LAZY",
            "hoodie.write.lock.provider": f"{_LOCKS}FileSystemBasedLockProvider",
            "hoodie.client.heartbeat.interval_in_ms": 1_000,
            "hoodie.client.heartbeat.tolerable.misses": 10,
            "hoodie.metadata.enable": True,
            "hoodie.index.type": "RECORD_INDEX" if self.has_record_index else "BLOOM",
            "hoodie.index.bloom.num_entries": 100,
            "hoodie.metadata.compact.max.delta.commits": 5,
            "hoodie.compact.inline.max.delta.commits": 2,
            "hoodie.clustering.inline.max.commits": 3,
            "hoodie.clean.commits.retained": 4,
            "hoodie.keep.min.commits": 8,
            "hoodie.keep.max.commits": 12,
            **_ONE_GROUP,
        }
        if not self.builds_indexes:
            # Hudi drops the index of a table whose writers disable it.
            options["hoodie.metadata.record.index.enable"] = self.has_record_index
        if self.updates_clustered:
            strategy = "org.apache.hudi.client.clustering.update.strategy.SparkAllowUpdateStrategy"
            options["hoodie.clustering.updates.strategy"] = strategy
        if self.lock == "zookeeper":
            options |= {
                "hoodie.write.lock.provider": f"{_LOCKS}ZookeeperBasedLockProvider",
                "hoodie.write.lock.zookeeper.url": address,
                "hoodie.write.lock.zookeeper.base_path": "/concurrent",
                "hoodie.write.lock.zookeeper.connection_timeout_ms": 60_000,
            }
        return {**options, **(self.more or {})}

    def pyhudi_options(self, address: str | None) -> dict[str, Any]:
        """Options of a process of PyHudi."""
        inline = self.inline == "pyhudi"
        options = {
            **self.table_options(address),
            "pyhudi.threads": 1,
            "hoodie.write.lock.wait_time_ms": _PYHUDI_LOCK_WAIT_MS,
            "hoodie.clean.automatic": inline,
            "hoodie.archive.automatic": inline,
            "hoodie.compact.inline": inline and self.kind == "mor",
            "hoodie.clustering.inline": inline,
            # A service of a JVM that was killed is taken over during the run.
            "pyhudi.service.expiry.ms": 20_000,
        }
        if self.lock == "zookeeper":
            # Shorter than many suspensions.
            options["hoodie.write.lock.zookeeper.session_timeout_ms"] = 3_000
        return options

    def hudi_options(self, address: str | None) -> dict[str, Any]:
        """Options of Apache Hudi."""
        inline = self.inline == "hudi"
        options = {
            **self.table_options(address),
            "hoodie.write.auto.upgrade": False,
            "hoodie.write.lock.wait_time_ms": _HUDI_LOCK_WAIT_MS,
            "hoodie.write.lock.wait_time_ms_between_retry": 100,
            "hoodie.write.lock.num_retries": _HUDI_LOCK_WAIT_MS // 100,
            "hoodie.write.lock.client.num_retries": 2,
            "hoodie.write.lock.client.wait_time_ms_between_retry": 100,
            "hoodie.clean.automatic": inline,
            "hoodie.archive.automatic": inline,
            "hoodie.compact.inline": inline and self.kind == "mor",
            "hoodie.clustering.inline": inline,
        }
        if self.lock == "zookeeper":
            # Hudi does not detect that its session has ended: no machine may be so slow.
            options["hoodie.write.lock.zookeeper.session_timeout_ms"] = 30_000
        return options

    def __str__(self) -> str:
        words = [
            self.release,
            self.kind,
            self.lock,
            *(["record index"] if self.has_record_index else []),
            *(["index builds"] if self.builds_indexes else []),
            *self.writers,
        ]
        words += [f"seed {self.seed}, inline services: {self.inline}, clustered groups updated: {self.updates_clustered}"]
        return " ".join(words)
