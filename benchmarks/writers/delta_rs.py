"""delta-rs: a merge on the version that was read; the commit finds out whether others were first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from benchmarks.writers.counters import Commit, Counters, Lost


class DeltaRs(Counters):
    """Through `DeltaTable.merge`."""

    def create(self, kind: str, rows: Sequence[tuple[str, str]]) -> None:
        data = _rows_of([(part, key, 0) for part, key in rows])
        write_deltalake(self.path, data, partition_by=["part"])

    def add(self, commit: Commit, lost: int = 0) -> Mapping[str, int]:
        table = DeltaTable(self.path)
        listed = ", ".join(f"'{key}'" for key in commit.keys)
        found = pa.table(table.scan(columns=["id", "v"], predicate=f"part = '{commit.part}' and id in ({listed})"))
        values = {key: value + 1 for key, value in zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True)}
        new = [(commit.part, key, value) for key, value in values.items()]
        source = _rows_of([*new, (commit.part, commit.row, len(new))])
        match = f"t.part = '{commit.part}' and t.id = s.id"
        try:
            merge = table.merge(source, match, source_alias="s", target_alias="t")
            merge.when_matched_update_all().when_not_matched_insert_all().execute()
        except DeltaError as error:
            # Its conflicts have no class of their own in Python.
            if "conflict" in str(error).lower() or "concurrent" in str(error).lower():
                raise Lost(str(error)) from error
            raise
        return values

    def rows(self) -> list[tuple[str, int]]:
        found = pa.table(DeltaTable(self.path).scan(columns=["id", "v"]))
        return list(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


def _rows_of(rows: Sequence[tuple[str, str, int]]) -> pa.Table:
    parts, keys, values = zip(*rows, strict=True)
    return pa.table({"id": pa.array(keys, pa.string()), "part": pa.array(parts, pa.string()), "v": pa.array(values, pa.int64())})
