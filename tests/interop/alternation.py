"""One table that PyHudi and Apache Hudi write in turn, and a dictionary that knows what must be in it.

After each write both read all rows, meta columns included: they must give the same, and the data columns and the commit time of
each row must be the values of the dictionary.  File names must be those of files in their partition's folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from pyhudi import Table
from tests.interop.oracle import ApacheHudi
from tests.support.rows import META_COLUMNS, assert_same_rows, without_meta

OPERATION = "hoodie.datasource.write.operation"
COMMON: dict[str, Any] = {
    "hoodie.table.name": "matrix",
    "hoodie.metadata.enable": False,
    "hoodie.index.bloom.num_entries": 100,
}
# What Apache Hudi reads tables with that have no metadata table.
READ: dict[str, Any] = {"hoodie.metadata.enable": False}
Row = dict[str, Any]


@dataclass
class Alternation:
    """options: one mapping that both writers get.  partition: what of a row decides its partition.

    ordering: the column by which an older row loses; None when the last write wins.  fix: brings Apache Hudi's rows to the
    types that the table has, where it is known not to show them.
    """

    hudi: ApacheHudi
    path: Path
    options: Mapping[str, Any]
    partition: Callable[[Row], object]
    ordering: str | None = None
    meta: bool = True
    fix: Callable[[pa.Table], pa.Table] = lambda rows: rows
    rows: dict[str, Row] = field(default_factory=dict)
    times: dict[str, str] = field(default_factory=dict)
    places: dict[str, tuple[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.options = {**COMMON, **self.options}

    def create(self, schema: pa.Schema | None = None) -> None:
        """Ours; a table of Apache Hudi comes with its first write."""
        Table.create(self.path, schema=schema, options=self.options)

    @property
    def table(self) -> Table:
        return Table(self.path, options=self.options)

    # -- writes ---------------------------------------------------------------------------------------------------------

    def ours(self, operation: str, data: pa.Table, **options: Any) -> None:
        """upsert, insert, bulk_insert, insert_overwrite, insert_overwrite_table or delete (by key)."""
        result = getattr(self.table, operation)(data, options=options)
        self._apply(operation, data, result.instant)

    def ours_where(self, condition: str, chosen: Callable[[Row], bool]) -> None:
        """Delete by a filter."""
        gone = [key for key, row in self.rows.items() if chosen(row)]
        assert self.table.delete(where=condition).rows_deleted == len(gone) > 0
        self._forget(gone)

    def theirs(self, operation: str, data: pa.Table, **options: Any) -> None:
        """The same by Apache Hudi."""
        self.hudi.write(data, self.path, **{**self.options, OPERATION: operation, **options})
        newest = self.table.timeline().last_completed_write()
        assert newest is not None
        self._apply(operation, data, newest.request_time)

    def _apply(self, operation: str, data: pa.Table, instant: str | None) -> None:
        assert instant is not None
        incoming = {row["id"]: row for row in data.to_pylist()}
        if operation == "delete":
            self._forget(incoming)
            return
        if operation == "insert_overwrite":
            touched = {self.partition(row) for row in incoming.values()}
            self._forget([key for key, row in self.rows.items() if self.partition(row) in touched])
        elif operation == "insert_overwrite_table":
            self._forget(list(self.rows))
        for key, row in incoming.items():
            held = self.rows.get(key)
            if operation == "upsert" and held is not None and self.ordering and row[self.ordering] < held[self.ordering]:
                continue
            if held is not None and self.partition(held) != self.partition(row):
                self.places.pop(key, None)
            self.rows[key] = row
            self.times[key] = instant

    def _forget(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.rows.pop(key, None)
            self.times.pop(key, None)
            self.places.pop(key, None)

    # -- reads ----------------------------------------------------------------------------------------------------------

    def read_by_us(self) -> pa.Table:
        """What we read is what must be there."""
        found = self.table.scan(["*"]).to_arrow()
        data = without_meta(found)
        expected = pa.Table.from_pylist([{**dict.fromkeys(data.column_names), **row} for row in self.rows.values()], data.schema)
        assert_same_rows(data, expected, key=["id"])
        if self.meta:
            for row in found.select(["id", *META_COLUMNS]).to_pylist():
                self._check_meta(row)
        return found

    def read_by_both(self) -> None:
        """Both read what must be there."""
        found = self.read_by_us()
        real = self.fix(self.hudi.read(self.path, **{name: self.options[name] for name in READ}))
        assert_same_rows(real, found if self.meta else without_meta(found))

    def _check_meta(self, row: Row) -> None:
        key, folder, name = row["id"], row["_hoodie_partition_path"], row["_hoodie_file_name"]
        assert row["_hoodie_commit_time"] == self.times[key], key
        assert (self.path / folder / name).exists(), name
        assert row["_hoodie_commit_seqno"].startswith(f"{self.times[key]}_")
        # The key and the folder of a row do not depend on its writer, as long as its partition is the same.
        place = (row["_hoodie_record_key"], folder)
        assert self.places.setdefault(key, place) == place
