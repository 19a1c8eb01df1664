from __future__ import annotations

import pyarrow as pa

from pyhudi.format.meta_columns import constant, sequence_numbers


def test_sequence_numbers_count_on() -> None:
    found = sequence_numbers("20261121070000000", 3, 9, 3)
    assert found.type == pa.string()
    assert found.to_pylist() == ["20261121070000000_3_9", "20261121070000000_3_10", "20261121070000000_3_11"]
    assert sequence_numbers("1", 0, 0, 0).to_pylist() == []


def test_constant() -> None:
    assert constant("x", 3).equals(pa.array(["x"] * 3))
    assert constant(None, 2).equals(pa.nulls(2, pa.string()))
    assert len(constant("x", 0)) == 0
