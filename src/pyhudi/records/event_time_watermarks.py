"""When the events of rows happened, as commits tell it: milliseconds since 1970 of the earliest and the latest row of a file.

    timestamp                          the time
    whole number or text of 13 digits  milliseconds
    whole number or text of 10 digits  seconds
    anything else, null                says nothing: such a row does not count

Source: docs/formats/writing.md, "Files of a write".
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.records.dotted_columns import field_at
from pyhudi.records.ordering import ordering_values

_SECONDS = (10**9, 10**10)
_MILLISECONDS = (10**12, 10**13)


class EventTimes:
    """Takes rows and keeps the bounds of their event times.  field: a column, or a field inside of structs by its dotted name;
    None keeps nothing.
    """

    def __init__(self, field: str | None) -> None:
        self._field = field
        self.least: int | None = None
        self.greatest: int | None = None

    def add(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Take rows into account; those of a partial update may lack the column."""
        if self._field is None or self._field.split(".")[0] not in rows.schema.names:
            return
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
        bounds = pc.min_max(event_milliseconds(ordering_values(table, self._field))).as_py()
        if bounds["min"] is None:
            return
        self.least = bounds["min"] if self.least is None else min(self.least, bounds["min"])
        self.greatest = bounds["max"] if self.greatest is None else max(self.greatest, bounds["max"])


def check_event_time(field: str, schema: pa.Schema) -> None:
    """Raises InvalidRequest where the schema has no such column, Unsupported where its type tells no time."""
    if field.split(".")[0] not in schema.names:
        raise InvalidRequest(
            f"hoodie.payload.event.time.field={field} is not a column of the files; columns: {', '.join(schema.names)}"
        )
    kind = field_at(schema, field).type
    if not (pa.types.is_timestamp(kind) or pa.types.is_integer(kind) or pa.types.is_string(kind)):
        raise Unsupported(
            f"hoodie.payload.event.time.field={field} is a column of type {kind}; event times are taken from timestamps, "
            "and from whole numbers and text of 10 digits (seconds since 1970) or 13 (milliseconds)"
        )


def event_milliseconds(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values of a column as milliseconds since 1970, null where they say no time."""
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
