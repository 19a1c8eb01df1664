"""Checks of values whose type is a record of Hudi 1.2."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest
from pyhudi.format.hudi_types import INLINE, OUT_OF_LINE, record_type, stated_hudi_type


def check_record_values(rows: pa.RecordBatch) -> None:
    """Check the values of BLOB columns, which are canonical.

    Raises:
        InvalidRequest: A value is neither INLINE nor OUT_OF_LINE; names the column and the row.
    """
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if record_type(field) == field.type and stated_hudi_type(field) == "BLOB":
            _check_blobs(column, field.name)


def _check_blobs(blobs: pa.StructArray, path: str) -> None:
    kinds = pc.struct_field(blobs, "type")
    row = pc.index(pc.is_in(kinds, pa.array([INLINE, OUT_OF_LINE, None])), value=False).as_py()
    if row >= 0:
        raise InvalidRequest(
            f"column {path!r}: row {row} (counted from 0) has the type {kinds[row].as_py()!r}. Use {INLINE} or {OUT_OF_LINE}"
        )
