"""PyHudi embedded: `based_on` joins read and write; a writer that lost a few times writes exclusively."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.writers.counters import Commit, Counters, Lost, added, condition, to_pairs, to_rows
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
"""Applied by operations that read and write in one call, and by this caller too."""


class Embedded(Counters):
    """Through `Table`."""

    _opened: Table | None = None

    def create(self, kind: str, rows: Sequence[tuple[str, str]]) -> None:
        table = Table.create(
            self.path, name="counters", record_key="id", partition_by="part", table_type=kind, options=self.options
        )
        table.upsert(to_rows([(part, key, 0) for part, key in rows]))

    def add(self, commit: Commit, lost: int = 0) -> Mapping[str, int]:
        table = Table(self.path, options=self.options)
        if lost < int(str(self.options.get(TURN_AFTER, 3))):
            return self._added(table, commit)
        with table.exclusive() as mine:
            return self._added(mine, commit)

    def _added(self, table: Table, commit: Commit) -> Mapping[str, int]:
        scan = table.scan(["id", "v"], condition(commit))
        try:
            values = added(scan.to_arrow())
            new = [(commit.part, key, value) for key, value in values.items()]
            table.upsert(to_rows([*new, (commit.part, commit.row, len(new))]), based_on=scan)
        except WriteConflict as conflict:
            raise Lost(str(conflict)) from conflict
        return values

    def write(self, commit: Commit) -> int:
        if self._opened is None:
            self._opened = Table(self.path, options=self.options)
        return self._opened.upsert(to_rows([(commit.part, key, 1) for key in (*commit.keys, commit.row)])).grouped

    def rows(self) -> list[tuple[str, int]]:
        return to_pairs(Table(self.path, options=self.options).scan(["id", "v"]).to_arrow())

    def wrong(self) -> list[str]:
        report = Table(self.path, options=self.options).validate(keys=True)
        return [] if report.ok else [str(report)]
