"""A table of version 9 that PyHudi and Apache Hudi 1.1.1 write in turn with one merge mode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from pyhudi import Table
from tests.interop.oracle import ApacheHudi
from tests.support.rows import assert_same_rows

MODEL = "org.apache.hudi.common.model."
PAYLOAD = "hoodie.datasource.write.payload.class"
ORDERING = "hoodie.datasource.write.precombine.field"
MODE = "hoodie.write.record.merge.mode"
UNAVAILABLE = "__debezium_unavailable_value"
TEXT = pa.string()
SCHEMA = pa.schema({"id": TEXT, "p": TEXT, "pos": TEXT, "ts": pa.int64(), "op": TEXT, "v": TEXT, "qty": pa.int32()})


@dataclass(frozen=True)
class MergeVariant:
    """How records are merged.  names: what columns are called where a payload class has names of its own."""

    options: Mapping[str, str]
    names: Mapping[str, str]


def _variant(names: Mapping[str, str] | None = None, **options: str) -> MergeVariant:
    keys = {"ordering": ORDERING, "mode": MODE, "payload": PAYLOAD}
    return MergeVariant({keys[name]: text for name, text in options.items()}, names or {})


POSTGRES = {"ts": "_event_lsn", "op": "_change_operation_type"}
MYSQL = {"pos": "_event_bin_file", "ts": "_event_pos", "op": "_change_operation_type"}
WAYS = {
    "commit_time": _variant(ordering="ts", mode="COMMIT_TIME_ORDERING"),
    "event_time": _variant(ordering="ts"),
    "two_fields": _variant(ordering="pos,ts"),
    "OverwriteWithLatest": _variant(ordering="ts", payload=MODEL + "OverwriteWithLatestAvroPayload"),
    "Default": _variant(ordering="ts", payload=MODEL + "DefaultHoodieRecordPayload"),
    "EventTime": _variant(ordering="ts", payload=MODEL + "EventTimeAvroPayload"),
    "PartialUpdate": _variant(ordering="ts", payload=MODEL + "PartialUpdateAvroPayload"),
    "OverwriteNonDefaults": _variant(ordering="ts", payload=MODEL + "OverwriteNonDefaultsWithLatestAvroPayload"),
    "AWSDms": _variant({"op": "Op"}, ordering="ts", payload=MODEL + "AWSDmsAvroPayload"),
    "Postgres": _variant(POSTGRES, payload=MODEL + "debezium.PostgresDebeziumAvroPayload"),
    "MySql": _variant(MYSQL, payload=MODEL + "debezium.MySqlDebeziumAvroPayload"),
}
READ: dict[str, Any] = {"hoodie.metadata.enable": True}


# Each file group of an index is a task of Apache Hudi in every write; keys are dealt out to two as to ten.
FEW_GROUPS: dict[str, Any] = {
    "hoodie.metadata.record.index.min.filegroup.count": 2,
    "hoodie.metadata.record.index.max.filegroup.count": 2,
    "hoodie.metadata.index.column.stats.file.group.count": 1,
}


@dataclass
class AlternatingWrites:
    """One table that PyHudi (`ours`) and Apache Hudi (`theirs`) write."""

    hudi: ApacheHudi
    path: Path
    way: MergeVariant
    kind: str

    @property
    def options(self) -> dict[str, Any]:
        return {
            "hoodie.table.name": "t",
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "p",
            "hoodie.datasource.write.table.type": {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}[self.kind],
            "hoodie.write.table.version": 9,
            "hoodie.metadata.record.index.enable": True,
            **FEW_GROUPS,
            **self.way.options,
        }

    @property
    def table(self) -> Table:
        return Table(self.path, options=self.options)

    def rows(self, *records: tuple[str, int, str, str | None, int | None]) -> pa.Table:
        """(key, position, operation, value, quantity): in partition by key, and the position in two columns."""
        made = [
            {"id": key, "p": "x" if key < "c" else "y", "pos": f"f{at // 10}", "ts": at % 10, "op": op, "v": v, "qty": qty}
            for key, at, op, v, qty in records
        ]
        return pa.Table.from_pylist(made, SCHEMA).rename_columns([self.way.names.get(name, name) for name in SCHEMA.names])

    def ours(self, *records: tuple[str, int, str, str | None, int | None], operation: str = "upsert") -> None:
        getattr(self.table, operation)(self.rows(*records))

    def theirs(
        self, *records: tuple[str, int, str, str | None, int | None], operation: str = "upsert", **services: object
    ) -> None:
        real = {
            "hoodie.datasource.write.operation": operation,
            "hoodie.compact.inline": False,
            "hoodie.embed.timeline.server": False,
            "hoodie.metadata.enable": True,
        }
        self.hudi.write(self.rows(*records), self.path, **{**self.options, **real, **services})

    def read_by_both(self) -> None:
        found = self.table.scan(["*"]).to_arrow()
        assert_same_rows(found, self.hudi.read(self.path, **READ))

    def checked(self) -> None:
        report = self.table.validate()
        assert report.ok, str(report)


COMPACT: dict[str, Any] = {"hoodie.compact.inline": True, "hoodie.compact.inline.max.delta.commits": 1}
KEPT: dict[str, Any] = {"hoodie.clean.commits.retained": 1, "hoodie.keep.min.commits": 3, "hoodie.keep.max.commits": 4}


# By other indexes Apache Hudi finds a deleted key in its base file, and the record index goes without the record.
BY_RECORD_INDEX: dict[str, Any] = {"hoodie.index.type": "RECORD_INDEX"}
CLUSTER: dict[str, Any] = {"hoodie.clustering.inline": True, "hoodie.clustering.inline.max.commits": 1}
