from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyhudi.errors import InvalidRequest
from pyhudi.records.java_strings import float_text, timestamp_micros, value_text, widen_floats_as_text

# Printed by java.lang.Double.toString.
DOUBLES = [
    (1.0, "1.0"),
    (0.1, "0.1"),
    (-0.0, "-0.0"),
    (0.0, "0.0"),
    (1e-3, "0.001"),
    (9.999e-4, "9.999E-4"),
    (9999999.0, "9999999.0"),
    (1e7, "1.0E7"),
    (-12345678.9, "-1.23456789E7"),
    (1e20, "1.0E20"),
    (1.7976931348623157e308, "1.7976931348623157E308"),
    (5e-324, "4.9E-324"),
    (2.2250738585072014e-308, "2.2250738585072014E-308"),
    (float("nan"), "NaN"),
    (float("inf"), "Infinity"),
    (float("-inf"), "-Infinity"),
]


@pytest.mark.parametrize(("value", "text"), DOUBLES)
def test_doubles_print_as_java_prints_them(value: float, text: str) -> None:
    assert float_text(pa.array([value, None, 2.5])).to_pylist() == [text, None, "2.5"]


def test_floats_print_as_java_prints_them() -> None:
    values = pa.array([0.1, 3.4e38, 1e-45, 16777216, None, 2e-5], pa.float32())
    assert float_text(values).to_pylist() == ["0.1", "3.4E38", "1.4E-45", "1.6777216E7", None, "2.0E-5"]


@given(st.lists(st.floats()))
def test_a_printed_double_reads_back(values: list[float]) -> None:
    texts = float_text(pa.array(values, pa.float64())).to_pylist()
    assert [repr(float(text.replace("Infinity", "inf"))) for text in texts] == [repr(value) for value in values]


def test_float_becomes_double_by_way_of_its_text() -> None:
    assert widen_floats_as_text(pa.array([0.1, None, float("inf")], pa.float32())).to_pylist() == [0.1, None, float("inf")]


def test_values_of_every_type_have_the_text_of_the_upsert_path() -> None:
    cases = [
        (pa.array([True, None]), ["true", None]),
        (pa.array([-7], pa.int32()), ["-7"]),
        (pa.array([19849], pa.int32()).cast(pa.date32()), ["2024-05-06"]),
        (pa.array([1714979289123456]).cast(pa.timestamp("us", "UTC")), ["1714979289123456"]),
        (pa.array([Decimal("1.50")], pa.decimal128(10, 2)), ["1.50"]),
        (pa.array([Decimal("1E-8"), Decimal("0E-8")], pa.decimal128(10, 8)), ["1E-8", "0E-8"]),
        (pa.array(["a", ""]), ["a", ""]),
        (pa.array(["a"], pa.large_string()), ["a"]),
        (pa.array([b"ab", None, b"\xff\x00"]).slice(1), [None, "ff00"]),
    ]
    for array, expected in cases:
        assert value_text(array).to_pylist() == expected
        assert value_text(array).type == pa.string()


def test_a_finer_timestamp_is_rounded_down() -> None:
    assert timestamp_micros(pa.array([-1, 1999, None], pa.timestamp("ns"))).to_pylist() == [-1, 1, None]


def test_values_without_a_java_string_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="cannot be converted to strings"):
        value_text(pa.array([[1]]))
    with pytest.raises(InvalidRequest, match="microseconds"):
        timestamp_micros(pa.array([2**62], pa.timestamp("s")))
