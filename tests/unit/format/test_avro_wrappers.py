"""Avro value wrappers: branches of the union, and ordering values of deletes."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.errors import CorruptData, InvalidRequest, Unsupported
from pyhudi.format.avro_columns import PAD_BYTES, RowCursors, Source, binary_parts, join
from pyhudi.format.avro_wrappers import (
    DELETE_BRANCHES,
    STATISTICS_BRANCHES,
    WRAPPED,
    WrappedNode,
    Wrapper,
    mixed_values,
    no_ordering,
    unwrap_ordering,
    unwrap_tuples,
    wrap_ordering,
    wrap_ordering_values,
)

UTC = datetime.UTC


def encoded(values: pa.Array, branches: tuple[Wrapper, ...] = STATISTICS_BRANCHES) -> list[bytes]:
    rows: list[bytes] = join(WrappedNode(branches).encode(values), len(values)).to_pylist()
    return rows


def decoded(values: list[bytes], branches: tuple[Wrapper, ...] = STATISTICS_BRANCHES) -> pa.Array:
    offsets, data = binary_parts(pa.array(values, pa.binary()))
    rows = RowCursors(Source(data.data, 0), offsets[:-1] + PAD_BYTES, offsets[1:] + PAD_BYTES)
    array = WrappedNode(branches).decode(rows)
    rows.expect_ends()
    return array


@pytest.mark.parametrize(
    ("wrapper", "value", "expected"),
    [
        (Wrapper.NULL, None, "00"),
        (Wrapper.BOOLEAN, True, "0201"),
        (Wrapper.INT, 0, "0400"),
        (Wrapper.INT, 7, "040e"),
        (Wrapper.LONG, 7, "060e"),
        (Wrapper.LONG, 10**12, "0680c0a8ca9a3a"),
        (Wrapper.FLOAT, 1.0, "080000803f"),
        (Wrapper.DOUBLE, 7.0, "0a0000000000001c40"),
        (Wrapper.BYTES, b"ab", "0c046162"),
        (Wrapper.STRING, "s7", "0e047337"),
        (Wrapper.DATE, datetime.date(1970, 1, 2), "1002"),
        (Wrapper.DECIMAL, decimal.Decimal("2.125").quantize(decimal.Decimal("1e-15")), "120e078cad1e25d000"),
        (Wrapper.TIME_MICROS, datetime.time(0, 0, 0, 1), "1402"),
        (Wrapper.TIMESTAMP_MICROS, datetime.datetime(1970, 1, 1, microsecond=1, tzinfo=UTC), "1602"),
        (Wrapper.LOCAL_DATE, datetime.date(1970, 1, 2), "1802"),
    ],
)
def test_bytes_of_each_branch(wrapper: Wrapper, value: Any, expected: str) -> None:
    values = mixed_values(np.array([wrapper], np.int8), [value])
    assert values.type == WRAPPED
    assert [row.hex() for row in encoded(values)] == [expected]
    assert decoded([bytes.fromhex(expected)]).equals(values)


VALUES: dict[Wrapper, st.SearchStrategy[Any]] = {
    Wrapper.NULL: st.none(),
    Wrapper.BOOLEAN: st.booleans(),
    Wrapper.INT: st.integers(-(2**31), 2**31 - 1),
    Wrapper.LONG: st.integers(-(2**63), 2**63 - 1),
    Wrapper.FLOAT: st.floats(width=32, allow_nan=False),
    Wrapper.DOUBLE: st.floats(allow_nan=False),
    Wrapper.BYTES: st.binary(max_size=5),
    Wrapper.STRING: st.text(max_size=5),
    Wrapper.DATE: st.dates(),
    Wrapper.DECIMAL: st.integers(-(10**30) + 1, 10**30 - 1).map(
        lambda n: decimal.Decimal(n).scaleb(-15, decimal.Context(prec=40))
    ),
    Wrapper.TIME_MICROS: st.times(),
    Wrapper.TIMESTAMP_MICROS: st.datetimes(timezones=st.just(UTC)),
    Wrapper.LOCAL_DATE: st.dates(),
}


@given(
    st.lists(st.sampled_from(STATISTICS_BRANCHES).flatmap(lambda wrapper: VALUES[wrapper].map(lambda value: (wrapper, value))))
)
def test_mixed_columns_round_trip(rows: list[tuple[Wrapper, Any]]) -> None:
    values = mixed_values(np.array([wrapper for wrapper, _ in rows], np.int8), [value for _, value in rows])
    values.validate(full=True)
    assert decoded(encoded(values)).equals(values)
    assert encoded(values.slice(1)) == encoded(values)[1:]
    assert values.to_pylist() == [value for _, value in rows]


@pytest.mark.parametrize(
    ("values", "wrapper"),
    [
        (pa.array([5, None, 0], pa.int32()), Wrapper.INT),
        (pa.array([5, None, 0], pa.int16()), Wrapper.INT),
        (pa.array([5, None, 0], pa.int64()), Wrapper.LONG),
        (pa.array([5, None, 0], pa.timestamp("us", "UTC")), Wrapper.LONG),
        (pa.array([5, None, 0], pa.timestamp("us")), Wrapper.LONG),
        (pa.array([5, None, 0], pa.date32()), Wrapper.INT),
        (pa.array([5, None, 0], pa.float32()), Wrapper.FLOAT),
        (pa.array([5, None, 0], pa.float64()), Wrapper.DOUBLE),
        (pa.array(["5", None, ""]), Wrapper.STRING),
        (pa.array([True, None, False]), Wrapper.BOOLEAN),
    ],
)
def test_ordering_values_of_deletes(values: pa.Array, wrapper: Wrapper) -> None:
    wrapped = wrap_ordering(values)
    assert wrapped.type_codes.to_pylist() == [wrapper, Wrapper.INT, wrapper]
    assert wrapped.field(int(Wrapper.NULL)).to_pylist() == []
    back, absent = unwrap_ordering(wrapped, values.type)
    # In a column of ints a stored 0 cannot be distinguished from no value; Apache Hudi cannot either.
    zero_is_absent = wrapper is Wrapper.INT
    assert absent.to_pylist() == [False, True, zero_is_absent]
    assert back.to_pylist() == [values[0].as_py(), None, None if zero_is_absent else values[2].as_py()]


def test_every_delete_may_be_without_ordering() -> None:
    for wrapped in (
        no_ordering(3),
        wrap_ordering(pa.nulls(3, pa.int64())),
        wrap_ordering_values(pa.nulls(3, pa.int64()), Wrapper.LONG),
    ):
        values, absent = unwrap_ordering(wrapped, pa.int64())
        assert (values.to_pylist(), absent.to_pylist()) == ([None] * 3, [True] * 3)
    values, absent = unwrap_ordering(no_ordering(0), pa.string())
    assert (len(values), len(absent)) == (0, 0)


def test_mixed_branches_of_one_column() -> None:
    rows = [(Wrapper.LONG, 9), (Wrapper.INT, 0), (Wrapper.INT, 4), (Wrapper.NULL, None), (Wrapper.LONG, 0)]
    wrapped = mixed_values(np.array([wrapper for wrapper, _ in rows], np.int8), [value for _, value in rows])
    values, absent = unwrap_ordering(wrapped.slice(0), pa.int64())
    assert values.to_pylist() == [9, None, 4, None, 0]
    assert absent.to_pylist() == [False, True, False, True, False]
    values, absent = unwrap_ordering(wrapped.slice(2, 2), pa.int64())
    assert (values.to_pylist(), absent.to_pylist()) == ([4, None], [False, True])


def test_invalid_ordering_value_is_rejected() -> None:
    with pytest.raises(Unsupported, match="decimal"):
        wrap_ordering(pa.array([decimal.Decimal(1)], pa.decimal128(5, 0)))
    with pytest.raises(Unsupported, match="STRING"):
        unwrap_ordering(wrap_ordering(pa.array(["a"])), pa.int64())
    with pytest.raises(InvalidRequest):
        wrap_ordering_values(pa.array([1], pa.int64()), Wrapper.INT)
    with pytest.raises(InvalidRequest):
        encoded(wrap_ordering_values(pa.array([1], pa.date32()), Wrapper.LOCAL_DATE), DELETE_BRANCHES)


# Tuples of release 1.1.1: ("mysql-bin.000010", 1), and values of as many branches as its writer uses.
TWO = "18020" + "40e206d7973716c2d62696e2e303030303130060200"
MANY = "180214040406040" + "80000c03f0a00000000000004400e06747874" + "18d8b40206808b91d7ca9c880612" + "0e2bd72a248740000406040800"


def test_tuples_written_by_hudi() -> None:
    values, absent = unwrap_tuples(decoded([bytes.fromhex(TWO)], DELETE_BRANCHES), [pa.string(), pa.int64()])
    assert (values.to_pylist(), absent.to_pylist()) == ([{"0": "mysql-bin.000010", "1": 1}], [False])
    kinds = [pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.date32(), pa.timestamp("us", "UTC")]
    kinds += [pa.decimal128(10, 2), pa.int8(), pa.int16()]
    wrapped = decoded([bytes.fromhex(MANY)] * 40, DELETE_BRANCHES)
    values, _ = unwrap_tuples(wrapped, kinds)
    moment = datetime.datetime(2024, 2, 3, 12, tzinfo=UTC)
    found = list(values[39].as_py().values())
    assert found[:6] + found[7:] == [2, 2, 1.5, 2.5, "txt", datetime.date(2024, 2, 3), decimal.Decimal("12.34"), 3, 4]
    assert isinstance(found[6], type(moment))
    assert [row.hex() for row in encoded(wrapped, DELETE_BRANCHES)] == [MANY] * 40


def test_deletes_without_an_ordering_value_among_tuples() -> None:
    rows = [bytes.fromhex(TWO), bytes.fromhex("0400"), bytes.fromhex("00")]
    values, absent = unwrap_tuples(decoded(rows, DELETE_BRANCHES), [pa.string(), pa.int64()])
    assert absent.to_pylist() == [False, True, True]
    assert values.is_null().to_pylist() == [False, True, True]


@pytest.mark.parametrize(
    ("row", "kinds", "what"),
    [
        (TWO, [pa.string()], "is a tuple, but the table has one"),
        (TWO, [pa.string(), pa.int64(), pa.int64()], "differ in number"),
        ("0602", [pa.string(), pa.int64()], "is not a tuple"),
    ],
)
def test_tuples_of_another_length_are_damage(row: str, kinds: list[pa.DataType], what: str) -> None:
    wrapped = decoded([bytes.fromhex(row)], DELETE_BRANCHES)
    with pytest.raises(CorruptData, match=what):
        unwrap_ordering(wrapped, kinds[0]) if len(kinds) == 1 else unwrap_tuples(wrapped, kinds)


def test_a_tuple_of_null_is_damage() -> None:
    with pytest.raises(CorruptData, match="ArrayWrapper"):
        decoded([bytes.fromhex("1800")], DELETE_BRANCHES)


def test_tuples_are_written_as_by_hudi() -> None:
    kinds = [pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.date32(), pa.timestamp("us", "UTC")]
    kinds += [pa.decimal128(10, 2), pa.int8(), pa.int16()]
    for row, types in ((TWO, [pa.string(), pa.int64()]), (MANY, kinds)):
        values, _ = unwrap_tuples(decoded([bytes.fromhex(row)] * 3, DELETE_BRANCHES), types)
        assert [one.hex() for one in encoded(wrap_ordering(values), DELETE_BRANCHES)] == [row] * 3


def test_a_place_of_a_tuple_without_a_value_is_zero() -> None:
    columns = [pa.array(["x", None, None]), pa.array([None, 3, None], pa.int64())]
    tuples = pa.StructArray.from_arrays(columns, names=["0", "1"], mask=pa.array([False, False, True]))
    written = [row.hex() for row in encoded(wrap_ordering(tuples), DELETE_BRANCHES)]
    assert written == ["180204" + "0e0278" + "0400" + "00", "180204" + "0400" + "0606" + "00", "0400"]
    values, absent = unwrap_tuples(wrap_ordering(tuples), [pa.string(), pa.int64()])
    assert values.to_pylist() == [{"0": "x", "1": None}, {"0": None, "1": 3}, None]
    assert absent.to_pylist() == [False, False, True]


def test_only_decimals_that_read_back_are_written() -> None:
    values = pa.array([decimal.Decimal("12.34"), None], pa.decimal128(10, 2))
    assert [row.hex() for row in encoded(wrap_ordering(values, decimals=True))] == ["120e2bd72a24874000", "0400"]
    with pytest.raises(Unsupported, match="decimal"):
        wrap_ordering(values)
