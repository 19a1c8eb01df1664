"""The five `_hoodie_` columns that stand before the data columns of every record.

    _hoodie_commit_time      instant that last changed the record
    _hoodie_commit_seqno     <instant>_<task partition>_<row number>, unique within a commit
    _hoodie_record_key       the record key
    _hoodie_partition_path   the partition path, '' in a table without partitions
    _hoodie_file_name        the file that holds the row (in log records: the file id)

Source: docs/formats/base-file.md.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

COMMIT_TIME = "_hoodie_commit_time"
COMMIT_SEQNO = "_hoodie_commit_seqno"
RECORD_KEY = "_hoodie_record_key"
PARTITION_PATH = "_hoodie_partition_path"
FILE_NAME = "_hoodie_file_name"

META_COLUMNS = (COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY, PARTITION_PATH, FILE_NAME)


def constant(value: str | None, row_count: int) -> pa.Array:
    """A string column that repeats one value."""
    if value is None:
        return pa.nulls(row_count, pa.string())
    return pa.repeat(pa.scalar(value, pa.string()), row_count)


def sequence_numbers(instant_time: str, task_partition: int, first: int, row_count: int) -> pa.Array:
    """`<instant>_<task partition>_<n>` for n from `first`.  Strings, no nulls."""
    counter = pc.cast(pa.array(np.arange(first, first + row_count, dtype=np.int64)), pa.string())
    return pc.binary_join_element_wise(f"{instant_time}_{task_partition}", counter, "_")
