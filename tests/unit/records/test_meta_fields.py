from __future__ import annotations

import pyarrow as pa

from pyhudi.records.meta_fields import META_COLUMNS, constant, drop_meta_columns, sequence_numbers


def test_sequence_numbers_count_on() -> None:
    found = sequence_numbers("20261121070000000", 3, 9, 3)
    assert found.type == pa.string()
    assert found.to_pylist() == ["20261121070000000_3_9", "20261121070000000_3_10", "20261121070000000_3_11"]
    assert sequence_numbers("1", 0, 0, 0).to_pylist() == []


def test_constant() -> None:
    assert constant("x", 3).equals(pa.array(["x"] * 3))
    assert constant(None, 2).equals(pa.nulls(2, pa.string()))
    assert len(constant("x", 0)) == 0


def test_meta_columns_are_dropped_and_soft_deletes_are_data() -> None:
    names = [*META_COLUMNS, "_hoodie_operation", "id", "_hoodie_is_deleted"]
    rows = pa.table({name: ["x"] for name in names})
    assert drop_meta_columns(rows).column_names == ["id", "_hoodie_is_deleted"]
    plain = pa.table({"id": ["x"]})
    assert drop_meta_columns(plain) is plain
