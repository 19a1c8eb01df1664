"""Event times: values that are times, and minimum and maximum of rows."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.records.event_time_watermarks import EventTimes, check_event_time

MOMENT = datetime.datetime(2026, 1, 1, 12, 30, 15, 123456, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("values", "bounds"),
    [
        (pa.array([1_700_000_001_000, 1_700_000_000_000]), (1_700_000_000_000, 1_700_000_001_000)),
        (pa.array([1_700_000_001, None, 1_700_000_000], pa.int64()), (1_700_000_000_000, 1_700_000_001_000)),
        # Neither seconds nor milliseconds: Apache Hudi ignores these, too.
        (pa.array([1, -1_700_000_000_000, 1_700_000_000_000_000]), (None, None)),
        (pa.array([1_700_000_000], pa.int32()), (1_700_000_000_000, 1_700_000_000_000)),
        (pa.array(["1700000000", "1700000001000", "2023-01-01", "", None]), (1_700_000_000_000, 1_700_000_001_000)),
        (pa.array(["1700000000"]).dictionary_encode(), (1_700_000_000_000, 1_700_000_000_000)),
        (pa.array([MOMENT, None], pa.timestamp("us", "UTC")), (1_767_270_615_123, 1_767_270_615_123)),
        (pa.array([MOMENT.replace(tzinfo=None)], pa.timestamp("ns")), (1_767_270_615_123, 1_767_270_615_123)),
        (pa.array([], pa.int64()), (None, None)),
    ],
)
def test_bounds(values: pa.Array, bounds: tuple[int | None, int | None]) -> None:
    times = EventTimes("at")
    times.add(pa.table({"at": values}))
    assert (times.least, times.greatest) == bounds
    inside = EventTimes("event.at")
    if not pa.types.is_dictionary(values.type):
        inside.add(pa.record_batch({"event": pa.StructArray.from_arrays([values], ["at"])}))
        assert (inside.least, inside.greatest) == bounds


def test_bounds_grow_over_tables_and_rows_without_the_column_change_nothing() -> None:
    times = EventTimes("at")
    for rows in ({"at": [1_700_000_005]}, {"other": [1]}, {"at": [1_700_000_001]}, {"at": [1_700_000_009]}):
        times.add(pa.table(rows))
    assert (times.least, times.greatest) == (1_700_000_001_000, 1_700_000_009_000)


def test_columns_without_a_time_are_refused() -> None:
    schema = pa.schema([("day", pa.date32()), ("event", pa.struct([("at", pa.int64())])), ("price", pa.float64())])
    check_event_time("event.at", schema)
    with pytest.raises(InvalidRequest, match=r"event.time.field=when is not a column .* day, event, price"):
        check_event_time("when", schema)
    for name in ("day", "price", "event"):
        with pytest.raises(Unsupported, match=f"event.time.field={name} is a column of type"):
            check_event_time(name, schema)
