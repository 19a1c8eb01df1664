"""Columns with a known range of values."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from pyhudi.records.column_ranges import RangeColumn
from pyhudi.records.column_statistics import ColumnRange
from pyhudi.records.filters.arrow_expressions import arrow_scalar


def range_column(ranges: list[ColumnRange], kind: pa.DataType) -> RangeColumn:
    def bounds(values: list[Any]) -> pa.Array:
        return pa.array([None if value is None else arrow_scalar(value, kind) for value in values], kind)

    return RangeColumn(
        bounds([r.min for r in ranges]),
        bounds([r.max for r in ranges]),
        pa.array([r.null_count for r in ranges], pa.int64()),
        pa.array([r.value_count for r in ranges], pa.int64()),
    )
