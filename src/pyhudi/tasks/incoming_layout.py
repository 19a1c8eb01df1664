"""Names of the columns that PyHudi adds to rows on their way, and tables seen as batches.

Each of them, here and in the engines, has a character that the name of a table's column may not have (`check_name`), so that no
column of a user's is taken for one: `#` in front, or a null character where only Arrow in this process sees it.
"""

from __future__ import annotations

import pyarrow as pa

DELETE_COLUMN = "#delete"
"""True in incoming rows that only delete their key."""


def as_batch(rows: pa.Table) -> pa.RecordBatch:
    """The whole table as one record batch."""
    batches = rows.combine_chunks().to_batches()
    if not batches:
        return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in rows.schema], schema=rows.schema)
    return batches[0]


def rows_without_columns(count: int) -> pa.Table:
    """A table of `count` rows and no columns."""
    return pa.table({"": pa.nulls(count)}).select([])
