"""Convert between the layout of incoming rows and the layout of base files.

Incoming rows have the columns `_hoodie_record_key`, `_hoodie_partition_path`, the table's data columns in order, and
last, when there are deletes without a row, `#delete` (boolean, true for such a delete, whose data columns are null).

Source: docs/formats/base-file.md.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.format.meta_columns import (
    COMMIT_SEQNO,
    COMMIT_TIME,
    FILE_NAME,
    PARTITION_PATH,
    RECORD_KEY,
    constant,
    sequence_numbers,
)
from pyhudi.records.keys.record_keys import record_keys
from pyhudi.records.ordering import BoolMask
from pyhudi.records.record_merge import RecordMergeRule
from pyhudi.tasks.incoming_layout import DELETE_COLUMN, as_batch
from pyhudi.tasks.write_tasks import WriterSpec


def stored_rows(
    spec: WriterSpec,
    incoming: pa.Table,
    task_partition: int,
    first_row: int,
) -> pa.Table:
    """Convert incoming rows to the stored layout, with this commit's meta columns. first_row: number of rows stamped by
    the task so far.
    """
    count = incoming.num_rows
    schema = spec.stored_schema
    if spec.populate_meta_fields:
        meta: dict[str, pa.Array | pa.ChunkedArray] = {
            COMMIT_TIME: constant(spec.instant_time, count),
            COMMIT_SEQNO: sequence_numbers(spec.instant_time, task_partition, first_row, count),
            RECORD_KEY: incoming.column(RECORD_KEY),
            PARTITION_PATH: incoming.column(PARTITION_PATH),
            FILE_NAME: pa.nulls(count, pa.string()),
        }
    else:
        meta = {name: pa.nulls(count, pa.string()) for name in (COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY, PARTITION_PATH, FILE_NAME)}
    return pa.table([meta[field.name] if field.name in meta else incoming.column(field.name) for field in schema], schema=schema)


def stored_keys(spec: WriterSpec, rows: pa.Table) -> pa.ChunkedArray:
    """Return the record keys of rows in the stored layout."""
    if spec.populate_meta_fields:
        return rows.column(RECORD_KEY)
    return pa.chunked_array([record_keys(spec.keys, as_batch(rows))])


def live_rows(rows: pa.Table, rule: RecordMergeRule) -> pa.Table:
    """Return incoming rows without deletes of either type, and without the column that marks them."""
    soft = rule.deletes(rows)
    plain = key_only_deletes(rows)
    flags = [mask for mask in (soft, plain) if mask is not None]
    return rows.filter(pa.array(~np.logical_or.reduce(flags))) if flags else rows


def completed_rows(spec: WriterSpec, partial: pa.Table, stored: pa.Table) -> pa.Table:
    """Complete partial incoming rows: missing columns come from the aligned stored rows."""
    names = [RECORD_KEY, PARTITION_PATH, *spec.data_schema.names]
    return pa.table({name: (partial if name in partial.column_names else stored).column(name) for name in names})


def key_only_deletes(rows: pa.Table) -> BoolMask | None:
    """Return a mask of incoming rows that only delete their key; None when no row does."""
    if DELETE_COLUMN not in rows.column_names:
        return None
    flags = np.asarray(pc.fill_null(rows.column(DELETE_COLUMN), False).combine_chunks(), dtype=np.bool_)
    return flags if flags.any() else None
