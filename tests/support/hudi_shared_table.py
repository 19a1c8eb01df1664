"""A table of version 9 that PyHudi and Apache Hudi 1.1.1 write and service in turn, with a metadata table."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from pyhudi import Table
from tests.interop.oracle import ApacheHudi
from tests.support.rows import assert_same_rows

SCHEMA = pa.schema({"id": pa.string(), "city": pa.string(), "ts": pa.int64(), "v": pa.string(), "qty": pa.int32()})
TYPES = {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}
FEW_GROUPS: dict[str, Any] = {
    "hoodie.metadata.index.column.stats.file.group.count": 1,
    "hoodie.metadata.index.bloom.filter.file.group.count": 1,
    "hoodie.metadata.record.index.min.filegroup.count": 1,
    "hoodie.metadata.record.index.max.filegroup.count": 1,
}
BY_METADATA: dict[str, Any] = {"hoodie.metadata.enable": True}


Keyed = tuple[str, int, str | None, int | None]


def keyed_rows(*values: Keyed) -> pa.Table:
    """(key, ordering value, text, number); the partition by the key."""
    made = [{"id": key, "city": "x" if key < "c" else "y", "ts": ts, "v": v, "qty": qty} for key, ts, v, qty in values]
    return pa.Table.from_pylist(made, SCHEMA)


@dataclass
class SharedTable:
    """One table that PyHudi and Apache Hudi work on; of version 9 unless `more` sets another one."""

    hudi: ApacheHudi
    path: Path
    kind: str
    more: dict[str, Any] = field(default_factory=dict)
    without: tuple[str, ...] = ()

    @property
    def options(self) -> dict[str, Any]:
        given = {
            "hoodie.table.name": "t",
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "city",
            "hoodie.datasource.write.precombine.field": "ts",
            "hoodie.datasource.write.table.type": TYPES[self.kind],
            "hoodie.write.table.version": 9,
            "hoodie.metadata.enable": True,
            "hoodie.compact.inline": False,
            "hoodie.index.bloom.num_entries": 100,
            **FEW_GROUPS,
            **self.more,
        }
        return {key: value for key, value in given.items() if not any(f".{name}." in key for name in self.without)}

    @property
    def table(self) -> Table:
        return Table(self.path, options=self.options)

    @property
    def name(self) -> str:
        return f"{self.path.name}_{self.path.parent.name}".replace("-", "_")

    def create(self) -> None:
        Table.create(self.path, options=self.options)

    def ours(self, data: pa.Table, operation: str = "upsert", **more: Any) -> str:
        instant = getattr(self.table, operation)(data, options=more or None).instant
        assert instant is not None
        return str(instant)

    def theirs(self, data: pa.Table, operation: str = "upsert", **more: Any) -> str:
        given = {"hoodie.datasource.write.operation": operation, "hoodie.embed.timeline.server": False}
        self.hudi.write(data, self.path, **{**self.options, **given, **more})
        return self.last()

    def last(self) -> str:
        instant = self.table.timeline().last_completed_write()
        assert instant is not None
        return instant.request_time

    def call(self, procedure: str, **arguments: object) -> pa.Table:
        self.hudi.register(self.path, self.name)
        return self.hudi.call(procedure, table=self.name, **arguments)

    def same(self, left_out: tuple[str, ...] = ()) -> dict[str, Any]:
        """Both read the same rows: key -> value.  left_out: columns that are not compared."""
        table = self.table
        found = table.scan(["*"] if table.config.populate_meta_fields else None).to_arrow()
        real = self.hudi.read(self.path, **BY_METADATA)
        assert_same_rows(
            found.drop_columns(left_out), real.drop_columns(left_out).select(found.drop_columns(left_out).column_names)
        )
        return dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))

    def checked(self) -> None:
        report = self.table.validate()
        assert report.ok, str(report)
        assert not self.table.timeline().pending()


BLOOMS: dict[str, Any] = {"hoodie.metadata.index.bloom.filter.enable": True, "hoodie.metadata.index.column.stats.enable": True}
