from __future__ import annotations

import pyarrow as pa
import pytest

from pyhudi.format.meta_columns import constant, sequence_numbers


def test_sequence_numbers_count_on() -> None:
    found = sequence_numbers("20261121070000000", 3, 9, 3)
    assert found.type == pa.string()
    assert found.to_pylist() == ["20261121070000000_3_9", "20261121070000000_3_10", "20261121070000000_3_11"]
    assert sequence_numbers("1", 0, 0, 0).to_pylist() == []


@pytest.mark.parametrize(
    ("first", "count"), [(0, 10_000), (9_998, 5), (10_000, 3), (12_345, 30_000), (99_999, 2), (999_999_995, 10)]
)
def test_sequence_numbers_of_many_digits(first: int, count: int) -> None:
    found = sequence_numbers("20261121070000000", 3, first, count)
    found.validate(full=True)
    assert found.to_pylist() == [f"20261121070000000_3_{number}" for number in range(first, first + count)]


def test_constant() -> None:
    assert constant("x", 3).equals(pa.array(["x"] * 3))
    assert constant(None, 2).equals(pa.nulls(2, pa.string()))
    assert len(constant("x", 0)) == 0
