"""CDC blocks: change data capture of the rows that a commit inserted, updated and deleted.

They are stored in separate files (`.cdc`) and have the layout of AVRO blocks (data_blocks.py). The columns of a row
depend on `hoodie.table.cdc.supplemental.logging.mode`:

    OP_KEY_ONLY          op, record_key
    DATA_BEFORE          op, record_key, before
    DATA_BEFORE_AFTER    op, ts_ms, before, after

`op` is `i`, `u` or `d`. `ts_ms` is the request time of the commit. `before` and `after` are rows of the table without
its meta columns; `before` is null for `i`, `after` for `d`.

Specification: docs/formats/log-file.md, CDC block.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa

from pyhudi.errors import CorruptData, InvalidRequest
from pyhudi.format.avro_columns import avro_records
from pyhudi.format.avro_resolve import resolve_avro
from pyhudi.format.avro_to_arrow import avro_to_arrow


class CdcMode(StrEnum):
    """Values of `hoodie.table.cdc.supplemental.logging.mode`, as stored."""

    OP_KEY_ONLY = "OP_KEY_ONLY"
    DATA_BEFORE = "DATA_BEFORE"
    DATA_BEFORE_AFTER = "DATA_BEFORE_AFTER"


INSERT: Final = "i"
UPDATE: Final = "u"
DELETE: Final = "d"


def cdc_schema(mode: CdcMode, table_schema: str) -> str:
    """Return the Avro schema of a table's CDC blocks.

    Args:
        mode: The supplemental logging mode.
        table_schema: The table's Avro schema without meta columns.

    Raises:
        CorruptData: `table_schema` is not a record.
    """
    fields: list[dict[str, Any]]
    if mode is CdcMode.OP_KEY_ONLY:
        # This schema differs from the others: no namespace, no defaults, and null is the second branch.
        fields = [{"name": name, "type": ["string", "null"]} for name in ("op", "record_key")]
        return _json({"type": "record", "name": "Record", "fields": fields})
    table = json.loads(table_schema)
    namespace = resolve_avro(table_schema)["namespace"]
    name = f"{namespace}.{table['name']}" if namespace and "." not in table["name"] else table["name"]
    images: list[tuple[str, Any]] = [("before", table)]
    if mode is CdcMode.DATA_BEFORE_AFTER:
        images.append(("after", name))
    second = "record_key" if mode is CdcMode.DATA_BEFORE else "ts_ms"
    types: list[tuple[str, Any]] = [("op", "string"), (second, "string"), *images]
    fields = [{"name": field, "type": ["null", kind], "doc": "", "default": None} for field, kind in types]
    return _json({"type": "record", "name": "CDC", "namespace": namespace, "fields": fields})


def cdc_mode(schema: str) -> CdcMode:
    """Return the mode in which a CDC block with this Avro schema was written. Raises CorruptData for any other schema."""
    names = tuple(avro_to_arrow(schema).names)
    for mode, expected in _COLUMNS.items():
        if names == expected:
            return mode
    raise CorruptData("the schema of a CDC block has other columns", expected=tuple(_COLUMNS.values()), found=names)


def cdc_batch(
    mode: CdcMode,
    table_schema: str,
    operations: pa.Array,
    record_keys: pa.Array,
    instant_time: str,
    *,
    before: pa.StructArray,
    after: pa.StructArray,
) -> pa.RecordBatch:
    """Return the rows of a CDC block, for `encode_avro(cdc_schema(mode, table_schema), ...)`, in their order.

    Args:
        mode: The supplemental logging mode.
        table_schema: The table's Avro schema without meta columns.
        operations: `i`, `u` or `d` per row.
        record_keys: Strings.
        instant_time: Request time of the commit.
        before: The table's rows as structs, null where there is none; ignored if the mode omits the column.
        after: As `before`.
    """
    schema = avro_records(cdc_schema(mode, table_schema)).schema
    columns = {
        "op": operations,
        "record_key": record_keys,
        "ts_ms": pa.repeat(pa.scalar(instant_time, pa.string()), len(operations)),
        "before": before,
        "after": after,
    }
    try:
        return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidRequest(f"rows do not match the schema of a CDC block: {error}") from error


_COLUMNS: Final = {
    CdcMode.OP_KEY_ONLY: ("op", "record_key"),
    CdcMode.DATA_BEFORE: ("op", "record_key", "before"),
    CdcMode.DATA_BEFORE_AFTER: ("op", "ts_ms", "before", "after"),
}


def _json(document: dict[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)
