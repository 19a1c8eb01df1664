"""A table whose times have the types that releases of Hudi before 1.1 wrote: values of another unit, or plain integers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.format.parquet.parquet_file import ParquetWriter
from pyhudi.format.properties import format_checksummed_properties, parse_properties
from pyhudi.tasks import base_file_writer
from tests.support.golden_tables import open_golden

COLUMNS = ["id", "seen", "clock"]
NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
KEYS = "abcd"
TIMES = {key: NOON + timedelta(days=number, milliseconds=number) for number, key in enumerate(KEYS)}


def rows(keys: str, hours: int = 0) -> pa.Table:
    times = [TIMES[key] + timedelta(hours=hours) for key in keys]
    local = [time.replace(tzinfo=None) for time in times]
    columns = {
        "id": pa.array(list(keys)),
        "ts": pa.array([1 << 42] * len(keys)),
        "colour": pa.array(["RED"] * len(keys)),
        "sure": pa.nulls(len(keys), pa.string()),
        "seen": pa.array(times, pa.timestamp("us", "UTC")),
        "clock": pa.array(local, pa.timestamp("us")),
    }
    return pa.table(columns)


class OldWriter(ParquetWriter):
    """Writes times as releases before 1.1 did."""

    micros = False

    def __init__(self, sink: Any, schema: pa.Schema, **settings: Any) -> None:
        types = {"seen": pa.timestamp("us", "UTC"), "clock": pa.int64()}
        self.schema = pa.schema([field.with_type(types.get(field.name, field.type)) for field in schema])
        super().__init__(sink, self.schema, **settings)

    def write_table(self, table: pa.Table, row_group_size: int | None = None) -> None:
        seen = table["seen"].cast(pa.timestamp("us", "UTC")) if self.micros else table["seen"]
        values = {"seen": seen.cast(pa.int64()).cast(self.schema.field("seen").type), "clock": table["clock"].cast(pa.int64())}
        super().write_table(pa.table([values.get(name, table[name]) for name in table.column_names], schema=self.schema), 2)


def old_table(path: Path, monkeypatch: pytest.MonkeyPatch, *, is_upgraded: bool = False) -> Path:
    """A table that declares milliseconds, with four rows in one base file whose times have wrong types."""
    golden = open_golden("mor_v9_avro_types", path)
    table = Table(golden.path)
    table.drop_metadata_table()
    options = {"hoodie.metadata.enable": False}
    table.delete(keys=table.scan(["id"]).to_arrow(), options=options)
    table.upsert(rows(KEYS), options=options)
    with monkeypatch.context() as patches:
        patches.setattr(base_file_writer, "ParquetWriter", OldWriter)
        table.compact(options=options)
    if is_upgraded:
        properties = golden.path / ".hoodie" / "hoodie.properties"
        stored = parse_properties(properties.read_bytes())
        properties.write_bytes(format_checksummed_properties({**stored, "hoodie.table.initial.version": "6"}, ()))
    return golden.path


def found(read: pa.Table) -> dict[str, tuple[datetime, datetime]]:
    return {row["id"]: (row["seen"].astimezone(UTC), row["clock"]) for row in read.to_pylist()}


def stored_times(keys: str = KEYS, hours: int = 0) -> dict[str, tuple[datetime, datetime]]:
    times = {key: TIMES[key] + timedelta(hours=hours) for key in keys}
    return {key: (time, time.replace(tzinfo=None)) for key, time in times.items()}
