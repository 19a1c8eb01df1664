"""Names of the columns that PyHudi adds to rows internally, tables as record batches, and replacement of a column.

Each of them, here and in the engines, contains a character that is invalid in the name of a table's column
(`check_name`), so they cannot collide with a user's column: a leading `#`, or a null character if only Arrow in this
process sees it.
"""

from __future__ import annotations

import pyarrow as pa

DELETE_COLUMN = "#delete"
"""True in incoming rows that only delete their key."""


def as_batch(rows: pa.Table) -> pa.RecordBatch:
    """Return the whole table as one record batch."""
    batches = rows.combine_chunks().to_batches()
    if not batches:
        return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in rows.schema], schema=rows.schema)
    return batches[0]


def with_column(rows: pa.Table, name: str, column: pa.Array) -> pa.Table:
    """Return the rows with one column replaced."""
    position = rows.schema.get_field_index(name)
    return rows.set_column(position, rows.schema.field(position), column)


def rows_without_columns(count: int) -> pa.Table:
    """Return a table of `count` rows and no columns."""
    return pa.table({"": pa.nulls(count)}).select([])
