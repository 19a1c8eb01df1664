"""Column statistics and their bounds of any type."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.errors import CorruptData, InvalidRequest
from pyhudi.metadata_table.codecs.column_stats_codec import (
    COLUMN_STATS_SCHEMA,
    decode_column_stats,
    encode_column_stats,
)
from pyhudi.metadata_table.codecs.metadata_schema import RECORD_SCHEMA, MetadataRecordType
from pyhudi.metadata_table.codecs.payload_codec import WRAPPED
from pyhudi.metadata_table.codecs.value_wrappers import unwrap, wrap_stored, wrap_values, wrapper_for_type
from tests.support.merged_metadata import ColumnStatsRecord, merge_column_stats

BOUNDS: list[tuple[pa.DataType, Any, int, str | None]] = [
    (pa.bool_(), True, 1, "01"),
    (pa.int8(), -1, 2, "01"),
    (pa.int32(), 300, 2, "d804"),
    (pa.int64(), -(2**63), 3, "ffffffffffffffffff01"),
    (pa.float32(), -0.0, 4, "00000080"),
    (pa.float64(), 1.5, 5, "000000000000f83f"),
    (pa.binary(), b"\x00\xff", 6, "0400ff"),
    (pa.binary(2), b"ab", 6, "046162"),
    (pa.string(), "é", 7, "04c3a9"),
    (pa.date32(), date(1970, 1, 2), 8, "02"),
    (pa.decimal128(10, 2), Decimal("-1.25"), 9, None),
    (pa.decimal128(30, 15), Decimal("0.000000000000001"), 9, "0201"),
    (pa.timestamp("us", "UTC"), datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), 3, "80897a"),
    (pa.timestamp("us"), datetime(1970, 1, 1, 0, 0, 1), 3, "80897a"),
    (pa.time64("us"), time(0, 0, 0, 1), 3, "02"),
]


def wrapped(kind: int, value: bytes) -> pa.StructArray:
    return pa.array([{"kind": kind, "value": value}], WRAPPED)


@pytest.mark.parametrize(("column", "value", "kind", "octets"), BOUNDS)
def test_bounds_of_each_type(column: pa.DataType, value: Any, kind: int, octets: str | None) -> None:
    bounds = pa.array([value, None, value], column)
    found = wrap_values(bounds)
    assert [row["kind"] for row in found.to_pylist()] == [kind, 0, kind]
    if octets is not None:
        assert found[0].as_py()["value"].hex() == octets
    back, known = unwrap(found, column)
    assert back.equals(bounds)
    assert known.all()
    assert str(back[0].as_py()) == str(value)


def test_decimals_are_stored_at_fifteen_decimals() -> None:
    octets = wrap_values(pa.array([Decimal("-1.25")], pa.decimal128(10, 2)))[0].as_py()["value"]
    assert int.from_bytes(octets[1:], "big", signed=True) == -1_250_000_000_000_000
    assert octets[0] == 2 * len(octets[1:])


@pytest.mark.parametrize(
    "column",
    [pa.struct([("a", pa.int32())]), pa.list_(pa.int32()), pa.decimal128(20, 4), pa.decimal128(20, 16), pa.timestamp("ms")],
)
def test_types_without_statistics(column: pa.DataType) -> None:
    with pytest.raises(InvalidRequest):
        wrap_values(pa.nulls(1, column))


def test_stored_form() -> None:
    assert wrap_stored([1, None], pa.date32()).equals(wrap_values(pa.array([date(1970, 1, 2), None], pa.date32())))
    assert wrap_stored([1_000_000], pa.timestamp("us", "UTC"))[0].as_py() == {"kind": 3, "value": bytes.fromhex("80897a")}
    assert wrap_stored([Decimal("2.5")], pa.decimal128(4, 1)).equals(wrap_values(pa.array([Decimal("2.5")], pa.decimal128(4, 1))))
    assert wrap_stored([None], pa.string()).to_pylist() == [{"kind": 0, "value": b""}]
    for value, column in (
        ("x", pa.int32()),
        (2**40, pa.int32()),
        (Decimal("0.123"), pa.decimal128(4, 1)),
        (1, pa.list_(pa.int8())),
    ):
        with pytest.raises(InvalidRequest):
            wrap_stored([value], column)


def test_columns_that_have_changed_their_type() -> None:
    mixed = pa.concat_arrays(
        [wrap_values(pa.array([1], pa.int32())), wrap_values(pa.array([2**40])), wrap_values(pa.array(["x", None]))]
    )
    values, known = unwrap(mixed, pa.int64())
    assert values.to_pylist() == [1, 2**40, None, None]
    assert known.tolist() == [True, True, False, True]
    values, known = unwrap(mixed, pa.string())
    assert values.to_pylist() == [None, None, "x", None]
    assert known.tolist() == [False, False, True, True]
    # A long is not always a double, an int is.
    assert unwrap(mixed, pa.float64())[1].tolist() == [True, False, False, True]
    assert unwrap(wrap_values(pa.array([Decimal("123.45")])), pa.decimal128(4, 2))[1].tolist() == [False]


def test_types_that_are_read_only() -> None:
    assert unwrap(wrapped(12, b"\x02"), pa.date32())[0].to_pylist() == [date(1970, 1, 2)]
    assert unwrap(wrapped(11, b"\x02"), pa.timestamp("us"))[0].cast(pa.int64()).to_pylist() == [1]
    assert unwrap(wrapped(10, b"\x02"), pa.time64("us"))[0].to_pylist() == [time(0, 0, 0, 1)]
    values, known = unwrap(wrapped(255, b"\x02"), pa.int32())
    assert (values.to_pylist(), known.tolist()) == ([None], [False])


@pytest.mark.parametrize(
    ("kind", "octets"), [(2, b""), (2, b"\x80"), (2, b"\x02\x02"), (7, b"\x04a"), (7, b"\x02\xff"), (1, b"\x02")]
)
def test_bytes_that_are_no_value_of_their_kind(kind: int, octets: bytes) -> None:
    column = {1: pa.bool_(), 2: pa.int32(), 7: pa.string()}[kind]
    with pytest.raises(CorruptData):
        unwrap(wrapped(kind, octets), column)


def stats(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    base = {
        "file_name": "f",
        "column_name": "c",
        "min": {"kind": 0, "value": b""},
        "max": {"kind": 0, "value": b""},
        "is_deleted": False,
        "is_tight": False,
    }
    return pa.RecordBatch.from_pylist([base | row for row in rows], schema=COLUMN_STATS_SCHEMA)


one = {"kind": 2, "value": b"\x02"}
many = {"kind": 7, "value": b"\x02a"}
counts = st.none() | st.integers(0, 2**62)
stat_rows = st.fixed_dictionaries(
    {
        "file_name": st.text(max_size=5),
        "value_count": counts,
        "null_count": counts,
        "total_size_bytes": counts,
        "is_deleted": st.booleans(),
        "is_tight": st.booleans(),
    }
) | st.builds(lambda low, high: {"min": low, "max": high}, st.sampled_from([one, many]), st.sampled_from([one, many]))


@given(st.lists(stat_rows, max_size=8), st.sampled_from([MetadataRecordType.COLUMN_STATS, MetadataRecordType.PARTITION_STATS]))
def test_round_trip(rows: list[dict[str, Any]], kind: MetadataRecordType) -> None:
    batch = stats(rows)
    values = encode_column_stats(batch, kind)
    found, types = decode_column_stats(values, RECORD_SCHEMA)
    assert found.equals(batch)
    assert types.to_pylist() == [kind] * len(rows)
    assert encode_column_stats(batch.slice(1), kind).equals(values[1:])


def test_single_bound_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        encode_column_stats(stats([{"min": one}]), MetadataRecordType.COLUMN_STATS)
    with pytest.raises(InvalidRequest):
        encode_column_stats(stats([]), MetadataRecordType.FILE_LIST)


def test_merge() -> None:
    older = ColumnStatsRecord("f", "c", 1, 5, 10, 1, 100, 200)
    newer = ColumnStatsRecord("f", "c", 3, 9, 20, None, 50, 70)
    assert merge_column_stats(older, newer) == ColumnStatsRecord("f", "c", 1, 9, 30, 1, 150, 270)
    nulls = ColumnStatsRecord("f", "c", None, None, 4, 4, 0, 0)
    assert merge_column_stats(nulls, newer).min == 3
    assert merge_column_stats(newer, nulls).max == 9
    assert merge_column_stats(nulls, nulls).min is None
    for last in (replace(newer, is_tight=True), replace(newer, is_deleted=True)):
        assert merge_column_stats(older, last) == last
    assert merge_column_stats(replace(older, is_deleted=True), newer) == newer
    assert merge_column_stats(replace(older, is_tight=True), newer).max == 9
    with pytest.raises(CorruptData):
        merge_column_stats(older, replace(newer, column_name="d"))


def test_kind_of_unknown_types() -> None:
    assert wrapper_for_type(pa.map_(pa.string(), pa.int32())) is None
    assert wrapper_for_type(pa.uint64()) is None
