"""The meta columns that Hudi puts in front of a table's own.  Source: docs/formats/base-file.md."""

from __future__ import annotations

from typing import TypeVar

import pyarrow as pa

META_FIELDS: tuple[str, ...] = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)
"""The meta columns that open every data file, in file order; each a nullable string."""

OPERATION_FIELD = "_hoodie_operation"
"""The sixth meta column, present only with `hoodie.allow.operation.metadata.field`; a nullable string."""
_Data = TypeVar("_Data", pa.Schema, pa.RecordBatch, pa.Table)


def is_meta_field(name: str) -> bool:
    """Whether the column is one of Hudi's own."""
    return name in META_FIELDS or name == OPERATION_FIELD


def with_meta_fields(schema: pa.Schema, *, operation_field: bool = False) -> pa.Schema:
    """The schema of a data file: the meta columns as nullable strings, then the data columns in their order.

    Meta columns that the schema holds already move to the front.  operation_field: also `_hoodie_operation`, the sixth.
    """
    names = (*META_FIELDS, OPERATION_FIELD) if operation_field else META_FIELDS
    meta = [pa.field(name, pa.string()) for name in names]
    return pa.schema([*meta, *(field for field in schema if not is_meta_field(field.name))])


def without_meta_fields(data: _Data) -> _Data:
    """The schema, batch or table without Hudi's own columns, which a user's data holds when it was read from a table."""
    names = (data if isinstance(data, pa.Schema) else data.schema).names  # type: ignore[redundant-expr]
    kept = [index for index, name in enumerate(names) if not is_meta_field(name)]
    if len(kept) == len(names):
        return data
    if isinstance(data, pa.Schema):
        return pa.schema([data.field(index) for index in kept], metadata=data.metadata)
    return data.select(kept)
