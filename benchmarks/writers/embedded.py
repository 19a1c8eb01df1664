"""PyHudi in one process: `based_on` makes the reading and the writing one step, and who has lost a few times takes its turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from benchmarks.writers.counters import Commit, Counters, Lost
from pyhudi import Table
from pyhudi.errors import WriteConflict

OPTIONS: Mapping[str, object] = {
    "pyhudi.threads": 1,
    "hoodie.clustering.updates.strategy": "SparkAllowUpdateStrategy",
    "hoodie.write.lock.wait_time_ms": 600_000,
    # Services run in processes of their own.
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.compact.inline": False,
    "hoodie.compact.inline.max.delta.commits": 5,
    "hoodie.clustering.async.max.commits": 5,
    "hoodie.clean.commits.retained": 10,
    "hoodie.keep.min.commits": 20,
    "hoodie.keep.max.commits": 30,
}
TURN_AFTER = "pyhudi.write.exclusive.after.conflicts"
"""What the verbs that read and write by themselves go by; a caller that does so goes by it too."""


class Embedded(Counters):
    """Through `Table`."""

    def create(self, kind: str, rows: Sequence[tuple[str, str]]) -> None:
        table = Table.create(
            self.path,
            name="counters",
            record_key="id",
            partition_by="part",
            table_type=kind,
            options=self.options,
        )
        table.upsert(rows_of([(part, key, 0) for part, key in rows]))

    def add(self, commit: Commit, lost: int = 0) -> Mapping[str, int]:
        table = Table(self.path, options=self.options)
        if lost < int(str(self.options.get(TURN_AFTER, 3))):
            return self._added(table, commit)
        with table.exclusive() as mine:
            return self._added(mine, commit)

    def _added(self, table: Table, commit: Commit) -> Mapping[str, int]:
        listed = ", ".join(f"'{key}'" for key in commit.keys)
        scan = table.scan(["id", "v"], f"part = '{commit.part}' and id in ({listed})")
        try:
            found = scan.to_arrow()
            values = {key: value + 1 for key, value in zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True)}
            new = [(commit.part, key, value) for key, value in values.items()]
            table.upsert(rows_of([*new, (commit.part, commit.row, len(new))]), based_on=scan)
        except WriteConflict as conflict:
            raise Lost(str(conflict)) from conflict
        return values

    def rows(self) -> list[tuple[str, int]]:
        found = Table(self.path, options=self.options).scan(["id", "v"]).to_arrow()
        return list(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))

    def wrong(self) -> list[str]:
        report = Table(self.path, options=self.options).validate(keys=True)
        return [] if report.ok else [str(report)]


def rows_of(rows: Sequence[tuple[str, str, int]]) -> pa.Table:
    """Rows of a partition, a key and a value, as Arrow."""
    parts, keys, values = zip(*rows, strict=True)
    return pa.table({"id": pa.array(keys, pa.string()), "part": pa.array(parts, pa.string()), "v": pa.array(values, pa.int64())})
