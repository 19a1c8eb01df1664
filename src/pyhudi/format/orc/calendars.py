"""Dates that a writer counts by the hybrid calendar: the Julian one up to 1582-10-04, the Gregorian one from 1582-10-15 on.

A date means its year, month and day, so that the same day has another number by either calendar; a day that the Gregorian one
has not (1500-02-29) becomes the next one, as in Spark.

Source: ORC specification, version 1, "calendar"; docs/formats/base-file.md, "ORC".
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

FIRST_GREGORIAN_DAY: Final = -141_427
"""1582-10-15, in days since 1970-01-01."""

_EPOCH: Final = 2_440_588
"""The Julian day number of 1970-01-01."""


def gregorian(rows: pa.Table) -> pa.Table:
    """The rows with each date, at any depth, by the Gregorian calendar throughout."""
    columns = [
        pa.chunked_array([_rebased(chunk) for chunk in column.chunks], column.type) if _holds_days(column.type) else column
        for column in rows.columns
    ]
    return pa.table(columns, schema=rows.schema)


def _holds_days(type_: pa.DataType) -> bool:
    return pa.types.is_date32(type_) or any(_holds_days(type_.field(index).type) for index in range(type_.num_fields))


def _rebased(array: pa.Array) -> pa.Array:
    type_ = array.type
    if not _holds_days(type_):
        return array
    if pa.types.is_date32(type_):
        return _rebased_days(array)
    if pa.types.is_struct(type_):
        below = [_rebased(array.field(field.name)) for field in type_.fields]
        return pa.StructArray.from_arrays(below, fields=type_.fields, mask=array.is_null())
    if pa.types.is_map(type_):
        return pa.MapArray.from_arrays(array.offsets, _rebased(array.keys), _rebased(array.items), type_, mask=array.is_null())
    return pa.ListArray.from_arrays(array.offsets, _rebased(array.values), type_, mask=array.is_null())


def _rebased_days(array: pa.Array) -> pa.Array:
    days = array.cast(pa.int32())
    first = pc.min(days).as_py()
    if first is None or first >= FIRST_GREGORIAN_DAY:
        return array
    held = np.asarray(days.fill_null(0)).astype(np.int64)
    moved = np.where(held < FIRST_GREGORIAN_DAY, _gregorian_days(held), held).astype(np.int32)
    return pa.array(moved, pa.int32(), mask=np.asarray(array.is_null())).cast(array.type)


def _gregorian_days(days: Any) -> Any:
    """Numbers of days by the Julian calendar as those of the same dates by the Gregorian one.

    Years begin in March, so that the day of a leap year comes last.
    """
    since = days + _EPOCH + 32_082
    year = (4 * since + 3) // 1461
    of_year = since - 1461 * year // 4
    return of_year + 365 * year + year // 4 - year // 100 + year // 400 - 32_044 - _EPOCH
