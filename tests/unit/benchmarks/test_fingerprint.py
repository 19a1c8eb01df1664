from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import fingerprint
from benchmarks.data import SCHEMA
from tests.support.benchmark_rows import lineitem

ROWS = lineitem(40)


def of(table: pa.Table) -> fingerprint.Fingerprint:
    return fingerprint.of_batches(table.to_batches())


def test_columns_are_those_of_the_table() -> None:
    assert list(fingerprint.COLUMNS) == SCHEMA.names


@given(st.permutations(range(ROWS.num_rows)), st.integers(1, 40))
def test_neither_order_nor_batches_matter(order: list[int], batch_rows: int) -> None:
    assert fingerprint.of_batches(ROWS.take(order).to_batches(max_chunksize=batch_rows)) == of(ROWS)


@pytest.mark.parametrize("column", [name for name in SCHEMA.names if name not in ("l_orderkey", "l_linenumber", "ts")])
def test_a_value_that_moves_to_another_row_shows(column: str) -> None:
    """Rows 0 and 1 differ in every column, and so do their weights."""
    position = SCHEMA.get_field_index(column)
    swapped = ROWS.column(column).take([1, 0, *range(2, ROWS.num_rows)])
    changed = of(ROWS.set_column(position, column, swapped))
    group = fingerprint.COLUMNS[column][0]
    assert changed[group] != of(ROWS)[group]
    assert {name for name, value in changed.items() if value != of(ROWS)[name]} == {group}


def test_nulls_are_counted_and_add_nothing() -> None:
    gone = ROWS.set_column(SCHEMA.get_field_index("l_tax"), "l_tax", pa.nulls(ROWS.num_rows, SCHEMA.field("l_tax").type))
    assert of(gone)["nulls"] == ROWS.num_rows
    assert of(gone)["rows"] == ROWS.num_rows


def test_a_missing_row_and_a_row_twice_show() -> None:
    assert of(ROWS.slice(1))["rows"] == 39
    assert of(pa.concat_tables([ROWS, ROWS.slice(0, 1)]))["keys"] != of(ROWS)["keys"]


def test_string_views_and_slices_are_the_same_rows() -> None:
    views = pa.schema([pa.field(field.name, pa.string_view()) if field.type == pa.string() else field for field in SCHEMA])
    assert of(ROWS.cast(views)) == of(ROWS)
    assert of(ROWS.slice(7, 9)) == of(ROWS.slice(7, 9).combine_chunks().take(list(range(9))))


def test_no_rows() -> None:
    assert of(ROWS.slice(0, 0)) == dict.fromkeys(of(ROWS), 0)


def test_a_worked_example() -> None:
    """Row 0 has key (1, 1): weight 8. Its l_shipyear is `1992`: 31 * 4 letters, 7 * 49 for `1`, 50 for `2`."""
    first = of(ROWS.slice(0, 1))
    assert first["partition"] == 8 * (31 * 4 + 7 * 49 + 50)
    assert first["keys"] == 8 * (1 + 1)
    assert first["numbers"] == 8 * (0 + 0 + 100 + 25 + 0 + 0)


def test_one_sql_expression_per_group() -> None:
    names = [expression.rsplit(" as ", 1)[1] for expression in fingerprint.sql_expressions()]
    assert names == list(of(ROWS))
