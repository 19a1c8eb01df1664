"""Casts between decimals and floating point numbers are correctly rounded, as in Java."""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.format.hudi_types import parse_hudi_type
from pyhudi.records.arithmetic import compare, run_arithmetic
from pyhudi.records.decimal_casts import cast_number, decimal_text, decimals_to_floats
from pyhudi.records.store_assignment import stored

TENTHS = pa.decimal128(3, 1)


@given(st.integers(-(10**38) + 1, 10**38 - 1), st.integers(0, 38))
def test_decimals_become_the_nearest_numbers(unscaled: int, scale: int) -> None:
    with localcontext(prec=38):
        value = Decimal(unscaled).scaleb(-scale)
        values = pa.array([value, None], pa.decimal128(38, scale))
        assert decimals_to_floats(values, pa.float64()).to_pylist() == [float(value), None]
        single = decimals_to_floats(values, pa.float32())[0].as_py()
        neighbours = [np.nextafter(np.float32(single), np.float32(end)) for end in (-np.inf, np.inf)]
        with localcontext(prec=400):
            assert all(abs(Decimal(single) - value) <= abs(Decimal(float(other)) - value) for other in neighbours)


@pytest.mark.parametrize(("precision", "scale"), [(38, 10), (38, 38), (38, 37), (5, 0), (1, 0)])
def test_text_of_decimals_has_no_exponent(precision: int, scale: int) -> None:
    with localcontext(prec=50):
        values = [Decimal(n).scaleb(-scale) for n in (0, 1, -1, 9, -9)]
        assert decimal_text(pa.array([*values, None], pa.decimal128(precision, scale))).to_pylist() == [
            *(f"{value + 0:f}" for value in values),
            None,
        ]


def test_decimals_are_exact_wherever_they_meet_floating_point() -> None:
    tenths, doubles = pa.array([Decimal("12.1"), Decimal("0.3")], TENTHS), pa.array([12.1, 0.3])
    assert cast_number(tenths, pa.float64()).equals(doubles)
    assert compare("=", tenths, doubles).to_pylist() == [True, True]
    assert run_arithmetic("+", tenths, pa.array([0.0, 0.0]), pa.float64()).equals(doubles)


@pytest.mark.parametrize(
    ("values", "type_", "expected"),
    [
        ([Decimal("12.1"), None], pa.float64(), [12.1, None]),
        ([Decimal("24.3")], pa.float32(), [float(np.float32(24.3))]),
        ([[Decimal("12.1"), None], None, []], pa.list_(pa.float64()), [[12.1, None], None, []]),
        ([[("k", Decimal("0.3"))]], pa.map_(pa.string(), pa.float64()), [[("k", 0.3)]]),
        ([{"x": [Decimal("12.1")]}, None], pa.struct([("a", pa.list_(pa.float64()))]), [{"a": [12.1]}, None]),
        ([[Decimal("12.1"), Decimal("0.3")]], parse_hudi_type("VECTOR(2, DOUBLE)"), [[12.1, 0.3]]),
    ],
    ids=str,
)
def test_stored_decimals_are_exact(values: list[object], type_: pa.DataType, expected: list[object]) -> None:
    source = _with_decimals(type_)
    batch = pa.record_batch([pa.array(values, source)], names=["c"])
    assert stored(batch, pa.schema([("c", type_)])).column(0).to_pylist() == expected
    padded = pa.record_batch([pa.concat_arrays([pa.array(values, source)] * 2).slice(len(values))], names=["c"])
    assert stored(padded, pa.schema([("c", type_)])).column(0).to_pylist() == expected


def _with_decimals(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(type_):
        return pa.struct([("x", _with_decimals(type_.field(0).type))])
    if pa.types.is_map(type_):
        return pa.map_(type_.key_type, TENTHS)
    return TENTHS if pa.types.is_floating(type_) else pa.list_(TENTHS)
