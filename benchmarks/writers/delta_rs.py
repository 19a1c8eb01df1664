"""delta-rs: a merge on the version that was read; its commit detects conflicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from benchmarks.writers.counters import Commit, Counters, Lost, added, condition, to_pairs, to_rows


class DeltaRs(Counters):
    """Through `DeltaTable.merge`."""

    def create(self, kind: str, rows: Sequence[tuple[str, str]]) -> None:
        write_deltalake(self.path, to_rows([(part, key, 0) for part, key in rows]), partition_by=["part"])

    def add(self, commit: Commit, lost: int = 0) -> Mapping[str, int]:
        table = DeltaTable(self.path)
        values = added(pa.table(table.scan(columns=["id", "v"], predicate=condition(commit))))
        self._merge(table, commit, values)
        return values

    def write(self, commit: Commit) -> int:
        self._merge(DeltaTable(self.path), commit, dict.fromkeys(commit.keys, 1))
        return 1

    def _merge(self, table: DeltaTable, commit: Commit, values: Mapping[str, int]) -> None:
        new = [(commit.part, key, value) for key, value in values.items()]
        source = to_rows([*new, (commit.part, commit.row, len(new))])
        try:
            merge = table.merge(source, f"t.part = '{commit.part}' and t.id = s.id", source_alias="s", target_alias="t")
            merge.when_matched_update_all().when_not_matched_insert_all().execute()
        except DeltaError as error:
            # Its conflicts have no class of their own in Python.
            if "conflict" in str(error).lower() or "concurrent" in str(error).lower():
                raise Lost(str(error)) from error
            raise

    def rows(self) -> list[tuple[str, int]]:
        return to_pairs(pa.table(DeltaTable(self.path).scan(columns=["id", "v"])))
