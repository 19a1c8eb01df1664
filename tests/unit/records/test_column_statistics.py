from __future__ import annotations

import math
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.errors import Internal
from pyhudi.records.column_statistics import (
    MAX_BOUND_BYTES,
    NO_VALUES,
    ColumnRange,
    RangeCollector,
    batch_ranges,
    covers,
    footer_ranges,
    has_range,
    merge_ranges,
    stored_value,
    with_short_bounds,
)

TIMESTAMP = pa.timestamp("us", "UTC")
COLUMNS: dict[str, tuple[pa.Array, Any, Any]] = {
    "b": (pa.array([True, None, False]), False, True),
    "i": (pa.array([3, None, -1], pa.int32()), -1, 3),
    "l": (pa.array([3, None, -(2**63)]), -(2**63), 3),
    "f": (pa.array([0.5, None, 2.5], pa.float32()), 0.5, 2.5),
    "d": (pa.array([0.5, None, -2.5]), -2.5, 0.5),
    "s": (pa.array(["b", None, "aé"]), "aé", "b"),
    "y": (pa.array([b"\xff", None, b"a"]), b"a", b"\xff"),
    "day": (pa.array([date(1970, 1, 2), None, date(1969, 12, 31)]), -1, 1),
    "t": (pa.array([5, None, -5]).cast(TIMESTAMP), -5, 5),
    "dec": (pa.array([Decimal("1.50"), None, Decimal("-2.25")], pa.decimal128(20, 2)), Decimal("-2.25"), Decimal("1.50")),
}
BATCH = pa.record_batch({name: column for name, (column, _, _) in COLUMNS.items()})


def footer(batch: pa.RecordBatch, **options: Any) -> Any:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_batches([batch]), sink, **options)
    return pq.ParquetFile(sink.getvalue()).metadata


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("integers", [False, True])
def test_ranges_of_a_footer(groups: int, integers: bool) -> None:
    metadata = footer(BATCH, row_group_size=3 if groups == 1 else 1, store_decimal_as_integer=integers)
    assert metadata.num_row_groups == groups
    found = footer_ranges(metadata, BATCH.schema, [*COLUMNS, "absent"])
    assert set(found) == set(COLUMNS)
    for name, (_, low, high) in COLUMNS.items():
        range_ = found[name]
        assert (range_.min, range_.max, range_.null_count, range_.value_count) == (low, high, 1, 3), name
        assert type(range_.min) is type(low)
        assert range_.total_size_bytes > 0 and range_.total_uncompressed_size_bytes > 0


def test_ranges_of_batches() -> None:
    collector = RangeCollector(tuple(COLUMNS))
    for row in range(3):
        collector.add(BATCH.slice(row, 1))
    assert collector.ranges() == batch_ranges(BATCH, tuple(COLUMNS))
    for name, (_, low, high) in COLUMNS.items():
        assert collector.ranges()[name] == ColumnRange(low, high, 1, 3), name
    assert RangeCollector(["i"]).ranges() == {"i": ColumnRange(null_count=0, value_count=0)}


def test_finer_and_coarser_timestamps_of_a_footer_become_microseconds() -> None:
    for unit, low, high in (("ms", 1000, 2000), ("ns", 0, 1)):
        batch = pa.record_batch({"t": pa.array([1, 2]).cast(pa.timestamp(unit, "UTC"))})
        found = footer_ranges(footer(batch), pa.schema([("t", TIMESTAMP)]), ["t"])["t"]
        assert (found.min, found.max) == (low, high), unit


def test_nested_and_listed_columns() -> None:
    batch = pa.record_batch({"s": pa.array([{"a": 1}, {"a": 5}, None]), "l": pa.array([[1], [2], [3]])})
    assert footer_ranges(footer(batch), batch.schema, ["s.a", "l", "s"])["s.a"].min == 1
    assert set(footer_ranges(footer(batch), batch.schema, ["s.a", "l", "s"])) == {"s.a"}
    assert batch_ranges(batch, ["s.a", "l"]) == {"s.a": ColumnRange(1, 5, 1, 3), "l": ColumnRange(null_count=0, value_count=3)}


def test_a_footer_widens_zeros_and_a_batch_does_not() -> None:
    def signs(range_: ColumnRange) -> tuple[float, float]:
        return math.copysign(1.0, range_.min), math.copysign(1.0, range_.max)  # type: ignore[arg-type]

    plus, minus = pa.record_batch({"d": [0.0, 1.0]}), pa.record_batch({"d": [-1.0, -0.0]})
    assert signs(footer_ranges(footer(plus), plus.schema, ["d"])["d"])[0] == -1.0
    assert signs(footer_ranges(footer(minus), minus.schema, ["d"])["d"])[1] == 1.0
    assert signs(batch_ranges(plus, ["d"])["d"])[0] == 1.0
    assert signs(batch_ranges(minus, ["d"])["d"])[1] == -1.0
    both = pa.record_batch({"d": [0.0, -0.0]})
    assert signs(batch_ranges(both, ["d"])["d"]) == (-1.0, 1.0)
    collector = RangeCollector(["d"])
    collector.add(pa.record_batch({"d": [0.0]}))
    collector.add(pa.record_batch({"d": [-0.0]}))
    assert signs(collector.ranges()["d"]) == (-1.0, 1.0)


def test_nan_is_above_everything() -> None:
    found = batch_ranges(pa.record_batch({"d": [1.0, math.nan, 5.0]}), ["d"])["d"]
    assert found.min == 1.0 and math.isnan(found.max)  # type: ignore[arg-type]
    alone = batch_ranges(pa.record_batch({"d": [math.nan]}), ["d"])["d"]
    assert math.isnan(alone.min) and math.isnan(alone.max)  # type: ignore[arg-type]
    merged = merge_ranges([alone, ColumnRange(1.0, 2.0, 0, 2)])
    assert merged.min == 1.0 and math.isnan(merged.max)  # type: ignore[arg-type]
    assert ColumnRange(1.0, 2.0, 0, 2).with_nan().min == 1.0


def test_without_statistics_nothing_is_claimed() -> None:
    found = footer_ranges(footer(BATCH, write_statistics=False), BATCH.schema, ["i"])["i"]
    assert (found.min, found.max, found.null_count, found.value_count) == (None, None, None, 3)
    nulls = pa.record_batch({"i": pa.array([None, None], pa.int32())})
    found = footer_ranges(footer(nulls), nulls.schema, ["i"])["i"]
    assert (found.min, found.null_count, found.is_all_null) == (None, 2, True)
    assert footer_ranges(footer(BATCH), pa.schema([("i", pa.string())]), ["i"])["i"].min is None
    assert footer_ranges(footer(BATCH), pa.schema([("s", pa.int32())]), ["s"])["s"].min is None


def test_merging() -> None:
    known, nulls, unknown = ColumnRange(1, 5, 0, 5, 10, 20), ColumnRange(None, None, 3, 3), ColumnRange(None, None, None, 4)
    assert merge_ranges([known, nulls]) == ColumnRange(1, 5, 3, 8, 10, 20)
    assert merge_ranges([known, unknown]) == ColumnRange(None, None, None, 9, 10, 20)
    assert merge_ranges([]) == ColumnRange(null_count=0, value_count=0)
    with pytest.raises(Internal):
        ColumnRange(1, None)


@given(st.lists(st.tuples(st.floats(), st.booleans()), min_size=1), st.data())
def test_a_range_covers_its_parts_and_nothing_wider(values: list[tuple[float, bool]], data: st.DataObject) -> None:
    ranges = [ColumnRange(value, value, int(null), 1 + int(null)) for value, null in values]
    whole = merge_ranges(ranges)
    assert all(covers(whole, part) for part in (*ranges, NO_VALUES, whole))
    assert not covers(NO_VALUES, data.draw(st.sampled_from(ranges)))


def test_column_range_covers_narrower_ranges() -> None:
    whole = ColumnRange(-0.0, 2.0, 0, 3)
    for part in (ColumnRange(-1.0, 1.0, 0, 1), ColumnRange(0.0, math.nan, 0, 1), ColumnRange(1.0, 1.0, 1, 2)):
        assert not covers(whole, part)
    assert covers(whole, ColumnRange(0.0, 2.0, 0, 1)) and not covers(ColumnRange(0.0, 2.0, 0, 1), whole)


def test_stored_values() -> None:
    assert stored_value(pa.scalar(None, pa.int32())) is None
    assert stored_value(pa.scalar(date(1970, 1, 3))) == 2
    assert stored_value(pa.scalar(1500, pa.timestamp("ns"))) == 1
    assert not has_range(pa.list_(pa.int32())) and has_range(pa.decimal128(5, 1))


@given(st.lists(st.lists(st.floats() | st.none(), max_size=4), max_size=4))
def test_ranges_of_partial_batches_equal_the_total_range(parts: list[list[float | None]]) -> None:
    collector = RangeCollector(["d"])
    for part in parts:
        collector.add(pa.record_batch({"d": pa.array(part, pa.float64())}))
    whole = batch_ranges(pa.record_batch({"d": pa.array([v for part in parts for v in part], pa.float64())}), ["d"])
    assert repr(collector.ranges()) == repr(whole)


BOUNDS = st.one_of(
    st.text(max_size=5),
    st.binary(max_size=5),
    st.builds(lambda text, count: text * count, st.text(min_size=1, max_size=3), st.integers(1, 400)),
    st.builds(
        lambda text, count, end: text * count + end,
        st.sampled_from(["a", "\u00e9", "\ud7ff", "\uffff", "\U0001f600", "\U0010ffff"]),
        st.integers(60, 300),
        st.text(max_size=300),
    ),
    st.builds(lambda data, count, end: data * count + end, st.sampled_from([b"a", b"\xff"]), st.integers(200, 300), st.binary()),
)


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else value


@given(BOUNDS, BOUNDS)
def test_short_bounds_contain_the_range_and_are_short(one: str | bytes, other: str | bytes) -> None:
    if type(one) is not type(other):
        other = one
    low, high = sorted((one, other), key=_bytes)
    short = with_short_bounds(ColumnRange(low, high, 0, 2))
    assert _bytes(short.min) <= _bytes(low) and _bytes(high) <= _bytes(short.max)
    assert len(_bytes(short.min)) <= MAX_BOUND_BYTES and _bytes(low).startswith(_bytes(short.min))
    greatest = {"\uffff", "\U0010ffff"} if isinstance(high, str) else {255}
    assert len(_bytes(short.max)) <= MAX_BOUND_BYTES or set(high[:63]) <= greatest
    assert with_short_bounds(short) == short
    # Shorter bounds keep the order, so that merged ranges of files are those of the partition.
    assert merge_ranges((short, with_short_bounds(ColumnRange(low, low, 0, 1)))) == replace(short, value_count=3)


@pytest.mark.parametrize(
    ("value", "upper"),
    [
        ("a" * 257, "a" * 251 + "b"),
        ("\ud7ff" * 100, "\ud7ff" * 83 + "\ue000"),
        ("a" + "\uffff" * 100, "b"),
        ("\uffff" * 100 + "a", "\uffff" * 100 + "a"),
        (b"\xff" * 300, b"\xff" * 300),
        ("a" * 256, "a" * 256),
    ],
)
def test_a_long_maximum_is_cut_and_incremented(value: str | bytes, upper: str | bytes) -> None:
    assert with_short_bounds(ColumnRange(value, value, 0, 1)).max == upper
