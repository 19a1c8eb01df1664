"""Event time watermarks of commits: milliseconds since 1970 of the earliest and the latest row of a file.

    timestamp                            the time
    whole number or string of 13 digits  milliseconds
    whole number or string of 10 digits  seconds
    anything else, null                  ignored

Source: docs/formats/writing.md, "Files of a write".
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.options import write_options
from pyhudi.records.dotted_columns import field_at
from pyhudi.records.ordering import ordering_values

_SECONDS = (10**9, 10**10)
_MILLISECONDS = (10**12, 10**13)


class EventTimes:
    """Collects the minimum and maximum event time of rows.

    Args:
        field: Column, or a field of structs by its dotted name; None collects nothing.
    """

    def __init__(self, field: str | None) -> None:
        self._field = field
        self.least: int | None = None
        self.greatest: int | None = None

    def add(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Add rows; those of a partial update may lack the column."""
        if self._field is None or self._field.split(".")[0] not in rows.schema.names:
            return
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
        bounds = pc.min_max(event_milliseconds(ordering_values(table, self._field))).as_py()
        if bounds["min"] is None:
            return
        self.least = bounds["min"] if self.least is None else min(self.least, bounds["min"])
        self.greatest = bounds["max"] if self.greatest is None else max(self.greatest, bounds["max"])


def check_event_time(field: str, schema: pa.Schema) -> None:
    """Check that the event time column exists and has a supported type.

    Raises:
        InvalidRequest: The schema has no such column.
        Unsupported: The column's type is not a time.
    """
    if field.split(".")[0] not in schema.names:
        raise InvalidRequest(
            f"{write_options.PAYLOAD_EVENT_TIME_FIELD}={field} is not a column of the files; columns: {', '.join(schema.names)}"
        )
    type_ = field_at(schema, field).type
    if not (pa.types.is_timestamp(type_) or pa.types.is_integer(type_) or pa.types.is_string(type_)):
        raise Unsupported(
            f"{write_options.PAYLOAD_EVENT_TIME_FIELD}={field} is a column of type {type_}; event times must be timestamps, or "
            "whole numbers or strings of 10 digits (seconds since 1970) or 13 digits (milliseconds)"
        )


def event_milliseconds(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert values of a column to milliseconds since 1970; null if a value is not a time."""
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if pa.types.is_timestamp(values.type):
        return values.cast(pa.timestamp("ms", values.type.tz), safe=False).cast(pa.int64())
    if pa.types.is_string(values.type):
        digits = pc.match_substring_regex(values, r"^[0-9]{10}([0-9]{3})?$")
        values = pc.if_else(digits, values, pa.scalar(None, pa.string()))
    numbers = values.cast(pa.int64())
    return pc.if_else(_within(numbers, _MILLISECONDS), numbers, _from_seconds(numbers))


def _from_seconds(numbers: pa.ChunkedArray) -> pa.ChunkedArray:
    seconds = pc.if_else(_within(numbers, _SECONDS), numbers, pa.scalar(None, pa.int64()))
    return pc.multiply(seconds, 1000)


def _within(numbers: pa.ChunkedArray, bounds: tuple[int, int]) -> pa.ChunkedArray:
    return pc.and_(pc.greater_equal(numbers, bounds[0]), pc.less(numbers, bounds[1]))
