"""`Table.update` and `Table.merge`: what becomes of rows, by a model of dictionaries, and what is refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import date
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyhudi import Table
from pyhudi.api import Merge
from pyhudi.errors import InvalidRequest, TableState, Unsupported
from pyhudi.execute.layout import DELETE_COLUMN

OPTIONS = {"hoodie.metadata.enable": False, "hoodie.table.services.enabled": False, "pyhudi.threads": 1}
_names = itertools.count()


def rows(*records: tuple[Any, ...]) -> pa.Table:
    """Columns id, city, ts, fare."""
    columns = [list(column) for column in zip(*records, strict=True)] if records else [[], [], [], []]
    kinds = (pa.string(), pa.string(), pa.int64(), pa.float64())
    return pa.table(
        [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)], names=["id", "city", "ts", "fare"]
    )


def new_table(kind: str = "cow", data: pa.Table | None = None, **settings: Any) -> Table:
    named = {"record_key": "id", "partition_by": "city", "ordering": "ts", "table_type": kind, "options": OPTIONS, **settings}
    table = Table.create(f"memory://changes-{next(_names)}/t", **named)
    table.upsert(rows(("a", "x", 1, 1.0), ("b", "y", 2, 2.0), ("c", "x", 3, None)) if data is None else data)
    return table


@pytest.fixture(params=["cow", "mor"])
def table(request: pytest.FixtureRequest) -> Table:
    """Of three rows a and c are in one partition, b in another; c has no fare."""
    return new_table(request.param)


def held(table: Table, *columns: str) -> dict[str, Any]:
    found = table.scan(["id", *columns]).to_arrow().to_pylist()
    return {row["id"]: tuple(row[name] for name in columns) if len(columns) > 1 else row[columns[0]] for row in found}


# Updates


def test_an_update_changes_the_rows_of_its_filter(table: Table) -> None:
    result = table.update({"fare": 9}, where="ts >= 2")
    assert (result.rows_updated, result.rows_inserted, result.rows_deleted) == (2, 0, 0)
    assert held(table, "city", "ts", "fare") == {"a": ("x", 1, 1.0), "b": ("y", 2, 9.0), "c": ("x", 3, 9.0)}
    table.update({"fare": "NULL"})
    assert held(table, "fare") == {"a": None, "b": None, "c": None}


def test_a_null_in_a_condition_is_unknown(table: Table) -> None:
    table.update({"fare": 5}, where="NOT fare > 1.5")
    assert held(table, "fare") == {"a": 5.0, "b": 2.0, "c": None}


def test_a_column_is_copied(table: Table) -> None:
    table.update({"fare": "ts"}, where="fare IS NULL")
    assert held(table, "fare") == {"a": 1.0, "b": 2.0, "c": 3.0}


def test_an_earlier_ordering_value_loses_as_in_any_upsert(table: Table) -> None:
    table.update({"ts": 0, "fare": 7})
    assert held(table, "ts", "fare") == {"a": (1, 1.0), "b": (2, 2.0), "c": (3, None)}
    table.update({"ts": 9, "fare": 7}, where="id = 'a'")
    assert held(table, "ts", "fare")["a"] == (9, 7.0)


def test_an_update_of_nothing_is_as_a_delete_of_nothing(table: Table) -> None:
    before = held(table, "city", "ts", "fare")
    deleted, updated = table.delete(where="ts > 50"), table.update({"fare": 0}, where="ts > 50")
    assert (updated.instant is None) == (deleted.instant is None)
    assert not updated.rows_updated and held(table, "city", "ts", "fare") == before
    quiet = {"hoodie.allow.empty.commit": False}
    assert table.update({"fare": 0}, where="ts > 50", options=quiet).instant is None


def test_literals_become_values_of_their_columns_or_are_refused() -> None:
    data = pa.table({"id": ["a"], "n": pa.array([1], pa.int32()), "d": [date(2024, 1, 1)], "x": [1.5], "t": ["t"], "l": [[1]]})
    table = new_table(data=data, partition_by=None, ordering=None)
    table.update({"n": "7", "d": "'2024-05-06'", "x": 3, "t": "'it''s'", "l": None})
    (row,) = table.scan().to_arrow().to_pylist()
    assert row == {"id": "a", "n": 7, "d": date(2024, 5, 6), "x": 3.0, "t": "it's", "l": None}
    for values in (
        {"n": 1.5},
        {"n": 2**31},
        {"x": 2**53 + 1},
        {"d": "'soon'"},
        {"t": 5},
        {"x": True},
        {"x": "1" + "0" * 400},
        {"l": 3},
    ):
        with pytest.raises(InvalidRequest, match="cannot hold"):
            table.update(values)
    assert table.scan().to_arrow().to_pylist() == [row]


@pytest.mark.parametrize(
    ("values", "error", "said"),
    [
        ({"id": "'z'"}, InvalidRequest, "record key"),
        ({"city": "'z'"}, InvalidRequest, "partition"),
        ({"nothing": 1}, InvalidRequest, "nothing"),
        ({"fare": "done"}, InvalidRequest, "single quotes"),
        ({"fare": "fare + 1"}, Unsupported, "'\\+' follows"),
        ({"fare": "abs(fare)"}, Unsupported, "abs"),
        ({}, InvalidRequest, "mapping"),
    ],
)
def test_what_cannot_be_assigned(values: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        new_table().update(values)


def test_tables_that_cannot_be_updated() -> None:
    keyless = Table.create(f"memory://changes-{next(_names)}/t", options=OPTIONS)
    keyless.insert(rows(("a", "x", 1, 1.0)))
    with pytest.raises(Unsupported, match="generates its record keys"):
        keyless.update({"fare": 1})
    twice = new_table()
    twice.insert(rows(("a", "x", 5, 5.0)))
    with pytest.raises(InvalidRequest, match="two rows of record 'a'"):
        twice.update({"fare": 1})


def test_a_table_without_meta_columns() -> None:
    plain = new_table(options={**OPTIONS, "hoodie.populate.meta.fields": False})
    plain.update({"fare": 8}, where="id = 'b'")
    plain.merge(rows(("c", "x", 9, 4.0)), on="id").when_matched_update_all().execute()
    assert held(plain, "fare") == {"a": 1.0, "b": 8.0, "c": 4.0}


# Merges

SOURCE = rows(("a", "x", 5, 10.0), ("b", "y", 6, None), ("z", "w", 7, 30.0))


def test_the_first_clause_whose_condition_holds_counts(table: Table) -> None:
    merge = table.merge(SOURCE, on="id").when_matched_delete("target.fare = 2 AND source.ts > 5").when_matched_update_all()
    result = merge.when_not_matched_insert_all().execute()
    assert (result.rows_inserted, result.rows_updated, result.rows_deleted) == (1, 1, 1)
    assert held(table, "city", "ts", "fare") == {"a": ("x", 5, 10.0), "c": ("x", 3, None), "z": ("w", 7, 30.0)}
    assert len(table.timeline().completed_writes()) == 2


def test_a_null_in_the_condition_of_a_clause_is_unknown(table: Table) -> None:
    merge = table.merge(SOURCE, on="id").when_matched_update({"fare": "source.fare"}, where="NOT source.fare = 3")
    merge.when_not_matched_insert_all(where="source.fare < 30").execute()
    assert held(table, "fare") == {"a": 10.0, "b": 2.0, "c": None}


def test_values_come_from_both_sides(table: Table) -> None:
    merge = table.merge(SOURCE, on=["id", "city"]).when_matched_update({"fare": "target.ts", "ts": "source.ts"})
    merge.when_not_matched_insert({"id": "source.id", "city": "source.city", "ts": 1}).execute()
    assert held(table, "ts", "fare") == {"a": (5, 1.0), "b": (6, 2.0), "c": (3, None), "z": (1, None)}


def test_a_delete_counts_whatever_its_ordering_value(table: Table) -> None:
    table.merge(pa.table({"id": ["a", "c", "z"]}), on="id").when_matched_delete().execute()
    assert set(held(table, "ts")) == {"b"}
    table.upsert(rows(("a", "x", 1, 4.0)))
    assert held(table, "fare") == {"a": 4.0, "b": 2.0}


def test_rows_are_found_by_other_columns_too(table: Table) -> None:
    source = pa.table({"city": ["x", None], "rate": [4.0, 5.0]})
    table.merge(source, on="city").when_matched_update({"fare": "source.rate"}).execute()
    assert held(table, "fare") == {"a": 4.0, "b": 2.0, "c": 4.0}
    with pytest.raises(Unsupported, match="record key"):
        table.merge(source, on="city").when_not_matched_insert_all().execute()


def test_a_source_that_is_too_large_to_be_looked_up(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyhudi.operations.write.change._LOOKED_UP", 0)
    table.merge(SOURCE, on="id").when_matched_update_all().when_not_matched_insert_all().execute()
    assert held(table, "fare") == {"a": 10.0, "b": None, "c": None, "z": 30.0}


def test_columns_of_the_source_that_the_table_lacks_or_has_narrower() -> None:
    table = new_table(data=rows(("a", "x", 1, 1.0)).append_column("n", pa.array([1], pa.int32())))
    source = SOURCE.append_column("n", pa.array([2**40, 2, 3])).append_column("extra", pa.array(["e", "f", "g"]))
    table.merge(source, on="id").when_matched_update({"fare": "source.fare"}).execute()
    assert table.schema().names == ["id", "city", "ts", "fare", "n"]
    with pytest.raises(InvalidRequest, match="extra"):
        table.merge(source, on="id", schema_mode="strict").when_matched_update_all().execute()
    result = table.merge(source, on="id").when_matched_update_all().execute()
    assert result.schema_changes == ("n was int32 and is int64", "extra string is new")
    assert held(table, "n", "extra") == {"a": (2**40, "e")}


def test_a_source_without_rows_or_without_a_match(table: Table) -> None:
    before = held(table, "city", "ts", "fare")
    quiet = {"hoodie.allow.empty.commit": False}
    for source in (SOURCE.slice(0, 0), SOURCE.slice(2)):
        assert table.merge(source, on="id", options=quiet).when_matched_update_all().execute().instant is None
    assert held(table, "city", "ts", "fare") == before


@pytest.mark.parametrize(
    ("merge", "said"),
    [
        (lambda t: t.merge(rows(("a", "x", 5, 1.0), ("a", "x", 6, 2.0)), on="id").when_matched_update_all(), "several rows"),
        (lambda t: t.merge(rows(("q", "x", 5, 1.0), ("q", "w", 6, 2.0)), on="id").when_not_matched_insert_all(), "two rows of"),
        (lambda t: t.merge(rows(("a", "w", 5, 1.0)), on="id").when_matched_update_all(), "keeps its key and its partition"),
        (lambda t: t.merge(SOURCE, on="id").when_matched_update({"city": "source.city"}), "partition field"),
        (lambda t: t.merge(SOURCE, on="id").when_not_matched_insert({"id": "'q'", "city": "'x'"}), "assign it 'source.id'"),
        (lambda t: t.merge(SOURCE, on="id").when_matched_update({"fare": "source.nothing"}), "source.nothing"),
        (lambda t: t.merge(SOURCE, on="id").when_not_matched_insert_all(where="target.fare = 1"), "target.fare"),
        (lambda t: t.merge(SOURCE, on="nothing").when_matched_delete(), "on= names nothing"),
        (lambda t: t.merge(SOURCE, on="id"), "without clauses"),
    ],
)  # fmt: skip
def test_merges_that_are_refused(merge: Callable[[Table], Any], said: str) -> None:
    table = new_table()
    before = held(table, "city", "ts", "fare")
    with pytest.raises(InvalidRequest, match=said):
        merge(table).execute()
    assert held(table, "city", "ts", "fare") == before
    assert len(table.timeline().completed_writes()) == 1


def test_clauses_of_rows_that_the_source_does_not_match_are_refused_embedded() -> None:
    for clause in (Merge.when_not_matched_by_source_delete, lambda m: m.when_not_matched_by_source_update({"fare": 1})):
        with pytest.raises(Unsupported, match="no row of the source matches"):
            clause(new_table().merge(SOURCE, on="id")).execute()


def test_one_of_two_rows_may_be_of_no_clause(table: Table) -> None:
    source = rows(("a", "x", 5, 1.0), ("a", "x", 6, 2.0))
    table.merge(source, on="id").when_matched_update_all(where="source.ts = 6").execute()
    assert held(table, "fare")["a"] == 2.0


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
        "pyhudi.operations.write.change.record_keys", lambda keys, batch: pa.array([f"id:{key}" for key in batch.column("id")])
    )
    with pytest.raises(TableState, match="id:a"):
        table.update({"fare": 1}, where="id = 'a'")


# Names of columns


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_no_column_of_a_users_is_taken_for_one_of_our_own(kind: str) -> None:
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
def test_the_columns_of_our_own_are_named_as_no_column_of_a_table_may_be(name: str) -> None:
    table = new_table()
    with pytest.raises(InvalidRequest, match="a name may hold letters, digits and underscores"):
        table.upsert(rows(("a", "x", 4, 4.0)).append_column(name, pa.array([True])))
