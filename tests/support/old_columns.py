"""A table with files older than a NOT NULL column with default, as Avro writers leave it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from pyhudi import Table
from pyhudi.format.instants import Instant
from pyhudi.table.snapshot import read_commit

OLD = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("a", pa.string())])
NEW = OLD.append(pa.field("d", pa.int32())).append(pa.field("s", pa.string()))


def table_with_commits(uri: Any, kind: str, **options: object) -> Table:
    """Rows without the columns `d` (default 7) and `s` (default "none"), one of `x` with d 8 and s "given"; merge on read: a row
    of `y` in a log without them, too.
    """
    given: dict[str, Any] = {
        "hoodie.compact.inline": False,
        "hoodie.parquet.small.file.limit": 0,
        "hoodie.index.bloom.num_entries": 100,
        **options,
    }
    table = Table.create(
        uri,
        record_key="id",
        partition_by="part",
        ordering="ts",
        table_type=kind,
        options=given,
    )
    table.insert(pa.Table.from_pylist([old(key) for key in ("x1", "x2", "y1", "y2")], OLD))
    table.upsert(pa.Table.from_pylist([old("y2", a="later")], OLD))
    # A commit that states columns has files with them: this one leaves none.
    table.upsert(pa.Table.from_pylist([old("z1")], OLD))
    _require(table)
    table = Table(uri, options=given)
    table.delete_partitions(["z"])
    table.upsert(pa.Table.from_pylist([{**old("x1"), "d": 8, "s": "given"}], NEW))
    return table


def table_with_nested_defaults(uri: Any) -> Table:
    """Rows of a merge on read table without the fields `st.d` and `li.element.d` (default 7), one of them in a log."""
    without = pa.struct([("q", pa.int32())])
    schema = pa.schema([("id", pa.string()), ("st", without), ("li", pa.list_(without))])
    options = {"hoodie.compact.inline": False}
    table = Table.create(uri, record_key="id", table_type="mor", options=options)
    table.insert(pa.Table.from_pylist([{"id": key, "st": {"q": 1}, "li": [{"q": 1}]} for key in "ab"], schema))
    table.upsert(pa.Table.from_pylist([{"id": "b", "st": {"q": 2}, "li": [{"q": 2}]}], schema))

    def require(columns: dict[str, Any]) -> None:
        field = {"name": "d", "type": "int", "default": 7}
        types = {column["name"]: column["type"][1] for column in columns["fields"]}
        types["st"]["fields"].append(field)
        types["li"]["items"][1]["fields"].append(field)

    _change_columns(table, require)
    return Table(uri, options=options)


def old(key: str, **more: object) -> dict[str, Any]:
    return {"id": key, "part": key[0], "ts": 1, "a": "first", **more}


EXPECTED = [
    ("x1", "first", 8, "given"),
    ("x2", "first", 7, "none"),
    ("y1", "first", 7, "none"),
    ("y2", "later", 7, "none"),
]


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[name] for name in ("id", "a", "d", "s")) for row in table.to_pylist())


def _require(table: Table) -> None:
    """Makes the last commit state both columns, as required and with their defaults: no writer of rows states such columns."""
    added = [{"name": "d", "type": "int", "default": 7}, {"name": "s", "type": "string", "default": "none"}]
    _change_columns(table, lambda schema: schema["fields"].extend(added))


def _change_columns(table: Table, change: Callable[[dict[str, Any]], None]) -> None:
    last = table.timeline().completed_writes()[-1]
    metadata = read_commit(table.context.timeline, last)
    schema = json.loads(metadata.extra_metadata["schema"])
    change(schema)
    changed = replace(metadata, extra_metadata={**metadata.extra_metadata, "schema": json.dumps(schema)})
    _overwrite(table, last, changed.encode(b"\0" * 16))


def _overwrite(table: Table, instant: Instant, data: bytes) -> None:
    storage, path = table.context.storage, table.context.timeline.path(instant)
    storage.delete([path])
    storage.put(path, data)
