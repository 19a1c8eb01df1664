"""`Table.update` and `Table.merge` against a dictionary model, and refusals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhudi import Table
from pyhudi.api.table import Merge
from pyhudi.errors import InvalidRequest, TableState, Unsupported
from pyhudi.operations.commit.results import WriteResult
from pyhudi.tasks.incoming_layout import DELETE_COLUMN
from tests.conformance.changes_suite import OPTIONS, SOURCE, ChangesSuite, PlainChangesSuite, held, new_table, rows


class TestEmbedded(ChangesSuite, PlainChangesSuite):
    def update(self, table: Table, values: Mapping[str, Any], where: Any = None, **settings: Any) -> WriteResult:
        return table.update(values, where, **settings)

    def merge(self, table: Table, source: pa.Table, on: Any, **settings: Any) -> Merge:
        return table.merge(source, on, **settings)


class TestExpressions(ChangesSuite, PlainChangesSuite):
    """Conditions of SQL, which DuckDB evaluates, change nothing else."""

    def update(self, table: Table, values: Mapping[str, Any], where: Any = None, **settings: Any) -> WriteResult:
        return table.update(values, f"({where or 'TRUE'}) AND coalesce(1, 1) = 1", **settings)

    def merge(self, table: Table, source: pa.Table, on: Any, **settings: Any) -> Merge:
        names = [on] if isinstance(on, str) else on
        return table.merge(source, " AND ".join(f"target.{name} = source.{name}" for name in names), **settings)


@pytest.fixture(params=["cow", "mor"])
def table(request: pytest.FixtureRequest) -> Table:
    """Of three rows a and c are in one partition, b in another; c has no fare."""
    return new_table(request.param)


# Updates


def test_a_long_negative_decimal_keeps_its_digits() -> None:
    numbers = [Decimal("-9999999999999999999999999999.9999999999"), Decimal(1)]
    table = new_table(
        data=pa.table({"id": ["a", "b"], "x": pa.array(numbers, pa.decimal128(38, 10))}), partition_by=None, ordering=None
    )
    assert table.scan(["id"], filter=f"x = {numbers[0]}").to_arrow()["id"].to_pylist() == ["a"]
    table.update({"x": str(numbers[0])}, where="id = 'b'")
    assert table.scan(["x"]).to_arrow()["x"].to_pylist() == [numbers[0]] * 2


def test_a_zero_keeps_its_sign() -> None:
    table = new_table(data=pa.table({"id": ["a"], "x": [1.5]}), partition_by=None, ordering=None)
    table.update({"x": -0.0})
    assert str(table.scan(["x"], filter="x = 0").to_arrow()["x"][0].as_py()) == "-0.0"


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"nothing": 1}, InvalidRequest, "nothing"),
        ({"fare": "done"}, InvalidRequest, "single quotes"),
        ({"fare": "fare + nothing"}, InvalidRequest, "column nothing does not exist"),
        ({"fare": "rand()"}, Unsupported, "rand"),
        ({}, InvalidRequest, "assigns no column"),
    ],
)
def test_update_with_invalid_values_is_rejected(values: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        new_table().update(values)


def test_tables_that_cannot_be_updated() -> None:
    keyless = Table.create("memory://changes-keyless/t", options=OPTIONS)
    keyless.insert(rows(("a", "x", 1, 1.0)))
    assert keyless.update({"fare": 1}).rows_updated == 1
    twice = new_table()
    twice.insert(rows(("a", "x", 5, 5.0)))
    with pytest.raises(InvalidRequest, match="several rows of record 'a'"):
        twice.update({"fare": 1})


# Merges


def test_merge_matches_rows_by_other_columns(table: Table) -> None:
    source = pa.table({"city": ["x", None], "rate": [4.0, 5.0]})
    table.merge(source, on="city").when_matched_update({"fare": "source.rate"}).execute()
    assert held(table, "fare") == {"a": 4.0, "b": 2.0, "c": 4.0}


def test_merge_source_too_large_for_key_lookup(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyhudi.operations.changes.arrow_changes._MAX_KEYS_LOOKED_UP", 0)
    table.merge(SOURCE, on="id").when_matched_update_all().when_not_matched_insert_all().execute()
    assert held(table, "fare") == {"a": 10.0, "b": None, "c": None, "z": 30.0}


@pytest.mark.parametrize(
    ("merge", "message"),
    [
        (lambda t: t.merge(SOURCE, on="id").when_matched_update({"fare": "source.nothing"}), "no column 'nothing'"),
        (lambda t: t.merge(SOURCE, on="id").when_not_matched_insert_all(where="target.fare = 1"), "target.fare"),
        (lambda t: t.merge(SOURCE, on="nothing").when_matched_delete(), "on= names nothing"),
        (lambda t: t.merge(SOURCE, on="id"), "without clauses"),
    ],
)  # fmt: skip
def test_merges_that_are_refused(merge: Callable[[Table], Any], message: str) -> None:
    table = new_table()
    before = held(table, "city", "ts", "fare")
    with pytest.raises(InvalidRequest, match=message):
        merge(table).execute()
    assert held(table, "city", "ts", "fare") == before
    assert len(table.timeline().completed_writes()) == 1


def test_options_that_make_other_writes_of_upserts_are_refused() -> None:
    table = new_table()
    for key in (
        "pyhudi.partial.update",
        "hoodie.datasource.write.insert.drop.duplicates",
        "hoodie.write.set.null.for.missing.columns",
    ):
        with pytest.raises(InvalidRequest, match=key):
            table.update({"fare": 1}, options={key: True})
        with pytest.raises(InvalidRequest, match=key):
            table.merge(SOURCE, on="id", options={key: True})


# A model

_keys = st.sampled_from("abcdef")
_fares = st.one_of(st.none(), st.integers(0, 4).map(float))


@settings(max_examples=8, deadline=None)
@given(
    start=st.dictionaries(_keys, _fares, min_size=1),
    source=st.dictionaries(_keys, _fares, min_size=1),
    least=st.integers(0, 4),
    kind=st.sampled_from(["cow", "mor"]),
)
def test_merges_are_as_those_of_dictionaries(start: dict[str, Any], source: dict[str, Any], least: int, kind: str) -> None:
    table = new_table(kind, rows(*((key, "x", 1, fare) for key, fare in start.items())))
    merge = table.merge(rows(*((key, "x", 2, fare) for key, fare in source.items())), on="id")
    merge = merge.when_matched_delete(f"source.fare < {least}").when_matched_update_all("target.fare IS NOT NULL")
    merge.when_not_matched_insert_all(f"source.fare >= {least}").execute()
    expected = dict(start)
    for key, fare in source.items():
        if key not in start:
            expected |= {key: fare} if fare is not None and fare >= least else {}
        elif fare is not None and fare < least:
            del expected[key]
        elif start[key] is not None:
            expected[key] = fare
    assert held(table, "fare") == expected


def test_a_row_that_is_stored_under_another_key_is_not_written_back(monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table()
    monkeypatch.setattr(
        "pyhudi.operations.changes.changed_rows.record_keys",
        lambda keys, batch: pa.array([f"id:{key}" for key in batch.column("id")]),
    )
    with pytest.raises(TableState, match="id:a"):
        table.update({"fare": 1}, where="id = 'a'")


# Numbers that floating point has not


@pytest.mark.parametrize("value", ["1e999", "-1e999", 10**400, Decimal("1e400")], ids=["text", "negative", "whole", "decimal"])
def test_no_number_becomes_infinity(table: Table, value: Any) -> None:
    with pytest.raises(InvalidRequest, match="'fare' of type double cannot hold"):
        table.update({"fare": value})
    table.update({"fare": float("inf")}, where="fare < 1e999")
    assert held(table, "fare") == {"a": float("inf"), "b": float("inf"), "c": None}
    assert table.scan(filter="fare >= 1e999").count() == 2
    assert table.scan(filter="fare = 1e999").count() == 0


# Names of columns


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_user_columns_are_not_confused_with_internal_columns(kind: str) -> None:
    names = ["_pyhudi_delete", "delete", "place", "source", "target", "key", "row"]

    def flagged(*records: tuple[Any, ...]) -> pa.Table:
        data = rows(*records)
        for name in names:
            data = data.append_column(name, pa.array([True] * len(records)))
        return data

    first = flagged(("a", "x", 1, 1.0), ("b", "y", 2, 2.0), ("c", "x", 3, 3.0))
    table = new_table(kind, first, options={**OPTIONS, "hoodie.index.type": "GLOBAL_SIMPLE"})
    table.upsert(flagged(("a", "x", 4, 4.0), ("b", "x", 5, 5.0), ("d", "x", 6, 6.0)))
    table.update({"fare": 9.0}, where="id = 'a'")
    table.merge(flagged(("c", "x", 7, 7.0)), ["id"]).when_matched_delete(where="source.place").execute()
    expected = {"a": ("x", 9.0, True), "b": ("x", 5.0, True), "d": ("x", 6.0, True)}
    assert held(table, "city", "fare", "_pyhudi_delete") == expected


@pytest.mark.parametrize("name", [DELETE_COLUMN, "\x00target"])
def test_internal_column_names_are_refused_in_tables(name: str) -> None:
    table = new_table()
    with pytest.raises(InvalidRequest, match="a name may contain letters, digits and underscores"):
        table.upsert(rows(("a", "x", 4, 4.0)).append_column(name, pa.array([True])))
