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
_CLUSTERING = "org.apache.hudi.client.clustering"
_RECORD_INDEX = {"hoodie.metadata.record.index.enable": True, "hoodie.index.type": "RECORD_INDEX"}
INDEXES: Mapping[str, Mapping[str, Any]] = {
    "bloom": {"hoodie.index.type": "BLOOM", "hoodie.metadata.record.index.enable": False},
    "record": _RECORD_INDEX,
    # Record and secondary index, which are there from the beginning.
    "secondary": _RECORD_INDEX,
    # The record index is created and dropped during the run. Hudi drops it itself where a writer disables it.
    "builds": {"hoodie.index.type": "BLOOM"},
    # Merge on read only.
    "hashing": {
        "hoodie.index.type": "BUCKET",
        "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
        # Hudi's default for buckets cannot read the file ids of this engine.
        "hoodie.write.lock.conflict.resolution.strategy": "org.apache.hudi.client.transaction."
        "SimpleConcurrentFileWritesConflictResolutionStrategy",
        "hoodie.bucket.index.num.buckets": 2,
        "hoodie.bucket.index.min.num.buckets": 1,
        "hoodie.bucket.index.max.num.buckets": 4,
        "hoodie.parquet.max.file.size": 4_000,
        "hoodie.clustering.plan.strategy.class": f"{_CLUSTERING}.plan.strategy.SparkConsistentBucketClusteringPlanStrategy",
        "hoodie.clustering.execution.strategy.class": f"{_CLUSTERING}.run.strategy."
        "SparkConsistentBucketClusteringExecutionStrategy",
        "hoodie.clustering.updates.strategy": f"{_CLUSTERING}.update.strategy.SparkConsistentBucketDuplicateUpdateStrategy",
    },
}
"""Options of both libraries, by the index of a case."""
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
        lock: `file`, `zookeeper`, or `storage`, which Hudi 1.1 has on object stores.
        index: How both locate keys, a name of INDEXES.
        writers: Engine of each process of PyHudi: `embedded` or `spark`.
        seed: Chooses the steps of each process, the options below, and the calls at which processes are killed or suspended.
        steps: Of Hudi; the processes of PyHudi continue until it has ended.
        kills_hudi: Whether the JVM is killed once.
    """

    release: str
    kind: str
    lock: str
    index: str
    writers: tuple[str, ...] = ("embedded", "embedded")
    seed: int = 1
    steps: int = 8
    kills_hudi: bool = False

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
            "hoodie.index.bloom.num_entries": 100,
            "hoodie.metadata.compact.max.delta.commits": 5,
            "hoodie.compact.inline.max.delta.commits": 2,
            "hoodie.clustering.inline.max.commits": 3,
            "hoodie.clean.commits.retained": 4,
            "hoodie.keep.min.commits": 8,
            "hoodie.keep.max.commits": 12,
            **_ONE_GROUP,
        }
        if self.updates_clustered and self.index != "hashing":
            strategy = "org.apache.hudi.client.clustering.update.strategy.SparkAllowUpdateStrategy"
            options["hoodie.clustering.updates.strategy"] = strategy
        if self.lock == "zookeeper":
            options |= {
                "hoodie.write.lock.provider": f"{_LOCKS}ZookeeperBasedLockProvider",
                "hoodie.write.lock.zookeeper.url": address,
                "hoodie.write.lock.zookeeper.base_path": "/concurrent",
                "hoodie.write.lock.zookeeper.connection_timeout_ms": 60_000,
            }
        if self.lock == "storage":
            options |= {
                "hoodie.write.lock.provider": f"{_LOCKS}StorageBasedLockProvider",
                "hoodie.write.lock.storage.validity.timeout.secs": 30,
                "hoodie.write.lock.storage.renew.interval.secs": 3,
            }
        return {**options, **INDEXES[self.index]}

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
            # How long an index build waits for writes in progress, which may be suspended.
            "hoodie.metadata.index.check.timeout.seconds": 15,
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
            self.index,
            *self.writers,
        ]
        words += [f"seed {self.seed}, inline services: {self.inline}, clustered groups updated: {self.updates_clustered}"]
        return " ".join(words)
