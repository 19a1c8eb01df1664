"""Tables whose rows are deleted by a marker column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from pyhudi import Table

_FIELD, _MARKER = "hoodie.payload.delete.field", "hoodie.payload.delete.marker"
MARKED = {_FIELD: "op", _MARKER: "D"}
_PACKAGE = "org.apache.hudi.common.model."
_PAYLOADS = {
    "EVENT": {},
    "COMMIT": {"hoodie.write.record.merge.mode": "COMMIT_TIME_ORDERING"},
    "EventTime": {"hoodie.datasource.write.payload.class": _PACKAGE + "EventTimeAvroPayload"},
    "FirstValue": {"hoodie.datasource.write.payload.class": _PACKAGE + "FirstValueAvroPayload"},
    "PartialUpdate": {"hoodie.datasource.write.payload.class": _PACKAGE + "PartialUpdateAvroPayload"},
    "NonDefaults": {"hoodie.datasource.write.payload.class": _PACKAGE + "OverwriteNonDefaultsWithLatestAvroPayload"},
}
_QUIET = {"hoodie.parquet.small.file.limit": 0, "hoodie.compact.inline": False, "pyhudi.threads": 1}


def rows(*values: tuple[str, int, str], flagged: str = "") -> pa.Table:
    """Of key, ordering value and op; `_hoodie_is_deleted` is true for the keys in `flagged`."""
    return pa.table(
        {
            "id": [key for key, _, _ in values],
            "ts": pa.array([ts for _, ts, _ in values], pa.int64()),
            "op": [op for _, _, op in values],
            "_hoodie_is_deleted": [key in flagged for key, _, _ in values],
        }
    )


BASE = rows(*((key, 5, "I") for key in "abcde"))
CHANGES = rows(("a", 7, "D"), ("b", 3, "D"), ("c", 5, "D"), ("d", 7, "I"), ("new", 7, "D"))


def made(path: Path, table_type: str, merging: str = "EVENT") -> Table:
    options = {**_QUIET, **_PAYLOADS[merging]}
    table = Table.create(str(path), record_key="id", ordering="ts", table_type=table_type, options=options)
    table.upsert(BASE)
    return table


def seen(table: Table, **options: Any) -> dict[str, int]:
    found = table.scan(["id", "ts"], options=options or None).to_arrow()
    return dict(zip(found.column("id").to_pylist(), found.column("ts").to_pylist(), strict=True))
