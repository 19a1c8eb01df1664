"""Systems on Spark: one MERGE adds one to the counters and inserts the row."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.peers.base import Settings
from benchmarks.peers.spark import SparkPeer
from benchmarks.writers.counters import Commit, Counters, Lost

_MERGE = (
    "MERGE INTO {table} t USING incoming s ON t.id = s.id AND t.part = s.part "
    "WHEN MATCHED THEN UPDATE SET v = t.v + 1 WHEN NOT MATCHED THEN INSERT (id, part, v) VALUES (s.id, s.part, s.v)"
)
_CORES = 1
_MEMORY = "1g"


class CountersOnSpark(Counters):
    """lost: words of errors that mean a conflict."""

    lost: tuple[str, ...] = ()

    def __init__(self, path: str, options: Mapping[str, object], jars: Sequence[str] = ()) -> None:
        super().__init__(path, options, jars)
        self.peer = self.new_peer()
        self.peer.start(Settings(_CORES, _MEMORY, tempfile.mkdtemp(), tuple(jars)))

    def new_peer(self) -> SparkPeer:
        """A peer that is not started yet."""
        raise NotImplementedError

    @property
    def table(self) -> str:
        """The table in SQL."""
        raise NotImplementedError

    def run(self, statement: str) -> None:
        """Execute a statement."""
        self.peer.spark.sql(statement).collect()

    def add(self, commit: Commit, lost: int = 0) -> Mapping[str, int] | None:
        rows = [*((key, commit.part, 0) for key in commit.keys), (commit.row, commit.part, len(commit.keys))]
        self._show(rows)
        self._write(_MERGE.format(table=self.table))
        return None

    def _write(self, statement: str) -> None:
        try:
            self.run(statement)
        except Exception as error:
            if any(word in str(error) for word in self.lost):
                raise Lost(str(error)) from error
            raise

    def rows(self) -> list[tuple[str, int]]:
        return [(row["id"], row["v"]) for row in self.peer.spark.sql(f"SELECT id, v FROM {self.table}").collect()]

    def _show(self, rows: Sequence[tuple[str, str, int]]) -> None:
        listed = ", ".join(f"('{key}', '{part}', {value}L)" for key, part, value in rows)
        self.peer.spark.sql(f"SELECT * FROM VALUES {listed} AS s(id, part, v)").createOrReplaceTempView("incoming")


class PyHudiOnSpark(CountersOnSpark):
    """Through `hs.sql`."""

    lost = ("changed meanwhile", "plan the write again", "under way")

    def new_peer(self) -> SparkPeer:
        from benchmarks.peers.pyhudi_spark import PyHudiSpark

        return PyHudiSpark()

    @property
    def table(self) -> str:
        return f"hudi.`{self.path}`"

    def run(self, statement: str) -> None:
        from pyhudi import spark as hs

        hs.sql(self.peer.spark, statement, options=self.options).collect()


class ApacheHudi(CountersOnSpark):
    """Through its SQL, with the lock of the options.

    Its MERGE INTO of merge on read refuses a value that names a column of the table, so there it reads counters of its own and
    writes whole rows.
    """

    lost = ("HoodieWriteConflictException", "ConcurrentModificationException", "HoodieClusteringUpdateException")

    def __init__(self, path: str, options: Mapping[str, object], jars: Sequence[str] = ()) -> None:
        super().__init__(path, options, jars)
        beside: dict[str, object] = {
            "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
            "hoodie.clean.failed.writes.policy": "LAZY",
            "hoodie.clustering.updates.strategy": "org.apache.hudi.client.clustering.update.strategy.SparkAllowUpdateStrategy",
            "hoodie.spark.sql.insert.into.operation": "upsert",
        }
        for key, value in {**options, **beside}.items():
            if key.startswith("hoodie."):
                self.peer.spark.conf.set(key, value if isinstance(value, str) else json.dumps(value))
        self.peer.spark.sql(f"CREATE TABLE counters USING hudi LOCATION '{path}'")

    def new_peer(self) -> SparkPeer:
        from benchmarks.peers.hudi import Hudi

        return Hudi()

    @property
    def table(self) -> str:
        return "counters"

    def add(self, commit: Commit, lost: int = 0) -> Mapping[str, int] | None:
        if not commit.is_own:
            return super().add(commit, lost)
        listed = ", ".join(f"'{key}'" for key in commit.keys)
        self.run("REFRESH TABLE counters")
        found = self.peer.spark.sql(f"SELECT id, v FROM counters WHERE part = '{commit.part}' AND id IN ({listed})").collect()
        values = {row["id"]: row["v"] + 1 for row in found}
        self._show([*((key, commit.part, value) for key, value in values.items()), (commit.row, commit.part, len(values))])
        self._write("INSERT INTO counters (id, part, v) SELECT id, part, v FROM incoming")
        return values


class DeltaOnSpark(CountersOnSpark):
    """Through its SQL."""

    lost = ("DELTA_CONCURRENT", "Concurrent")

    def new_peer(self) -> SparkPeer:
        from benchmarks.peers.delta_spark import DeltaSpark

        return DeltaSpark()

    @property
    def table(self) -> str:
        return f"delta.`{self.path}`"

    def create(self, kind: str, rows: Sequence[tuple[str, str]]) -> None:
        self._show([(key, part, 0) for part, key in rows])
        writer: Any = self.peer.spark.table("incoming").write.format("delta").partitionBy("part")
        if kind == "mor":
            writer = writer.option("delta.enableDeletionVectors", "true")
        writer.save(self.path)
