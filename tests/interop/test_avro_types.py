"""Avro types that Spark rows lack, written in turn by PyHudi and Apache Hudi 1.1.1.

Hudi follows the table's Avro schema and reads timestamps in its unit.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from scripts.golden.version_9 import AVRO_TYPES, avro_rows
from tests.interop.oracle import ApacheHudi
from tests.support.rows import assert_same_rows

SKIPPING: dict[str, Any] = {"hoodie.metadata.enable": True, "hoodie.enable.data.skipping": True}
OPTIONS: dict[str, Any] = {
    "hoodie.metadata.enable": True,
    "hoodie.metadata.index.column.stats.enable": True,
    "hoodie.index.bloom.num_entries": 100,
    "hoodie.compact.inline": False,
}
SCHEMA = pa.schema(
    [
        *(("id", pa.string()), ("ts", pa.int64()), ("colour", pa.string()), ("sure", pa.string())),
        *(("seen", pa.timestamp("us", "UTC")), ("clock", pa.timestamp("us"))),
    ]
)


def own_rows(*values: tuple[str, int, str, str | None, int | None]) -> pa.Table:
    """As `avro_rows`, with the time in microseconds."""
    made = []
    for key, ts, colour, sure, micros in values:
        seen = None if micros is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
        clock = None if seen is None else seen.replace(tzinfo=None)
        made.append({"id": key, "ts": (1 << 40) + ts, "colour": colour, "sure": sure, "seen": seen, "clock": clock})
    return pa.Table.from_pylist(made, SCHEMA)


def check(hudi: ApacheHudi, path: Path) -> None:
    """Both read the same, all rows and by filters that go by statistics."""
    table = Table(path)
    filters = ["TRUE", "seen >= TIMESTAMP'2026-01-01 00:00:00'", "seen < TIMESTAMP'1970-01-01 00:00:00'", "colour = 'GREEN'"]
    for text, real in zip(filters, hudi.read_each(path, filters, **SKIPPING), strict=True):
        own = None if text == "TRUE" else text.replace("TIMESTAMP", "")
        assert_same_rows(real, table.scan(["*"], filter=own).to_arrow())
    assert table.validate().ok, str(table.validate())


@pytest.mark.parametrize(
    ("kind", "block"), [pytest.param("COPY_ON_WRITE", "", marks=pytest.mark.wide), ("MERGE_ON_READ", "parquet")]
)
def test_hudi_and_pyhudi_alternate_on_avro_types(newer_hudi: ApacheHudi, tmp_path: Path, kind: str, block: str) -> None:
    path = tmp_path / "t"
    options = {**OPTIONS, "hoodie.datasource.write.table.type": kind}
    if block:
        options["hoodie.logfile.data.block.format"] = block
    now = 1_767_323_045_678
    theirs = avro_rows(("a", 1, "RED", "YES", now), ("b", 1, "GREEN", None, -1), ("c", 1, "RED", "NO", None))
    newer_hudi.write_avro(path, AVRO_TYPES, theirs, **options)
    table = Table(path, options=options)
    table.upsert(own_rows(("a", 2, "BLUE", None, now * 1000), ("d", 1, "RED", "NO", -1000), ("c", 0, "GREEN", None, 5000)))
    if kind == "COPY_ON_WRITE":
        # The file is ours now, and the next write replaces it; logs are there until they are compacted.
        check(newer_hudi, path)
    theirs = avro_rows(("b", 2, "BLUE", "YES", now + 1), ("d", 0, "GREEN", None, 8), ("e", 1, "GREEN", "NO", 0))
    newer_hudi.write_avro(path, AVRO_TYPES, theirs, **options)
    if kind == "MERGE_ON_READ":
        check(newer_hudi, path)
        table.compact()
    table.upsert(own_rows(("e", 3, "RED", "YES", None), ("f", 1, "BLUE", "NO", now * 1000)))
    newer_hudi.write_avro(path, AVRO_TYPES, avro_rows(("f", 2, "GREEN", None, now)), **options)
    check(newer_hudi, path)
