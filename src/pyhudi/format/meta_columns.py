"""Hudi's meta columns, which precede the data columns of every record. Specification: docs/formats/base-file.md."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

META_FIELDS: tuple[str, ...] = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)
"""The meta columns at the start of every data file, in file order; each a nullable string."""

OPERATION_FIELD = "_hoodie_operation"
"""The sixth meta column, present only with `hoodie.allow.operation.metadata.field`; a nullable string."""
_Data = TypeVar("_Data", pa.Schema, pa.RecordBatch, pa.Table)


def is_meta_field(name: str) -> bool:
    """Return whether the column is a meta column."""
    return name in META_FIELDS or name == OPERATION_FIELD


def with_meta_fields(schema: pa.Schema, *, operation_field: bool = False) -> pa.Schema:
    """Return the schema of a data file: the meta columns as nullable strings, then the data columns in their order.

    Args:
        schema: Data columns. Meta columns among them move to the front.
        operation_field: Also add `_hoodie_operation`, the sixth meta column.
    """
    names = (*META_FIELDS, OPERATION_FIELD) if operation_field else META_FIELDS
    meta = [pa.field(name, pa.string()) for name in names]
    return pa.schema([*meta, *(field for field in schema if not is_meta_field(field.name))])


def without_meta_fields(data: _Data) -> _Data:
    """Return the schema, batch or table without meta columns (user data contains them if it was read from a table)."""
    names = (data if isinstance(data, pa.Schema) else data.schema).names  # type: ignore[redundant-expr]
    data_indices = [index for index, name in enumerate(names) if not is_meta_field(name)]
    if len(data_indices) == len(names):
        return data
    if isinstance(data, pa.Schema):
        return pa.schema([data.field(index) for index in data_indices], metadata=data.metadata)
    return data.select(data_indices)


# The five `_hoodie_` columns that precede the data columns of every record.
#
#     _hoodie_commit_time      instant that last changed the record
#     _hoodie_commit_seqno     <instant>_<task partition>_<row number>, unique within a commit
#     _hoodie_record_key       the record key
#     _hoodie_partition_path   the partition path, '' in a non-partitioned table
#     _hoodie_file_name        the file that holds the row (in log records: the file id)
#
# Specification: docs/formats/base-file.md.

COMMIT_TIME = "_hoodie_commit_time"
COMMIT_SEQNO = "_hoodie_commit_seqno"
RECORD_KEY = "_hoodie_record_key"
PARTITION_PATH = "_hoodie_partition_path"
FILE_NAME = "_hoodie_file_name"

META_COLUMNS = (COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY, PARTITION_PATH, FILE_NAME)


def constant(value: str | None, row_count: int) -> pa.Array:
    """Return a string column that repeats one value."""
    if value is None:
        return pa.nulls(row_count, pa.string())
    return pa.repeat(pa.scalar(value, pa.string()), row_count)


def sequence_numbers(instant_time: str, task_partition: int, first: int, row_count: int) -> pa.Array:
    """Return `<instant>_<task partition>_<n>` for n from `first`, as strings without nulls."""
    prefix, number, end = f"{instant_time}_{task_partition}_", first, first + row_count
    parts: list[pa.Array] = []
    if number < min(end, _RUN):
        counter = pa.array(np.arange(number, min(end, _RUN), dtype=np.int64))
        parts.append(pc.binary_join_element_wise(prefix, pc.cast(counter, pa.string()), ""))
        number += len(counter)
    # Numbers that differ only in their last digits follow the same bytes.
    while number < end:
        high, low = divmod(number, _RUN)
        count = min(_RUN - low, end - number)
        head = np.frombuffer(f"{prefix}{high}".encode(), np.uint8)
        text = np.empty((count, len(head) + _LAST_DIGITS.shape[1]), np.uint8)
        text[:, : len(head)] = head
        text[:, len(head) :] = _LAST_DIGITS[low : low + count]
        offsets = np.arange(0, text.size + 1, text.shape[1], dtype=np.int32)
        parts.append(pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(text)))
        number += count
    return pa.concat_arrays(parts) if parts else pa.array([], pa.string())


_RUN = 10_000
_LAST_DIGITS = (np.arange(_RUN)[:, None] // [1000, 100, 10, 1] % 10 + ord("0")).astype(np.uint8)
