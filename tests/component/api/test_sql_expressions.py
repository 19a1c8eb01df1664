"""`Table.update` and `Table.merge` with SQL expressions on the embedded engine."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

import pyhudi as hp

ROWS = {"id": [1, 2, 3], "v": [10, 20, None], "name": ["a", "b\\n", "c"], "day": [date(2024, 1, 1)] * 3}


@pytest.fixture
def table(tmp_path: Path) -> hp.Table:
    table = hp.Table.create(tmp_path, record_key="id")
    table.upsert(ROWS)
    return table


def values(table: hp.Table, *columns: str) -> list[tuple[Any, ...]]:
    rows = table.scan(["id", *columns]).to_arrow().to_pylist()
    return sorted(tuple(row.values()) for row in rows)


def test_update_computes_values(table: hp.Table) -> None:
    result = table.update({"v": "v * 2 + id", "name": "concat(upper(name), '!')", "day": date(2024, 5, 6)}, where="v % 20 = 0")
    assert result.rows_updated == 1
    assert values(table, "v", "name") == [(1, 10, "a"), (2, 42, "B\\N!"), (3, None, "c")]
    table.update({"v": "coalesce(v, 0) + 1"}, where=[("id", "=", 3)])
    assert values(table, "v") == [(1, 10), (2, 42), (3, 1)]
    # The condition is a filter, where a backslash is an ordinary character.
    table.update({"v": "v + 1"}, where="name = 'B\\N!'")
    assert values(table, "v") == [(1, 10), (2, 43), (3, 1)]
    table.update({"name": "'it''s'"}, where="upper(name) = 'A' AND v + 1 > 2")
    assert values(table, "name")[0] == (1, "it's")


@pytest.mark.parametrize(
    ("set", "where", "text"),
    [
        ({"v": "v +"}, None, "expected an expression"),
        ({"v": "nope * 2"}, None, "column nope does not exist"),
        ({"nope": "v * 2"}, None, "cannot assign 'nope'"),
        ({"v": "upper(name)"}, None, "cannot hold"),
        ({"v": "(SELECT max(v) FROM other)"}, None, "a query within"),
        ({"v": 1}, "v * 2 > (SELECT 1 FROM other)", "a query within"),
    ],
)
def test_updates_that_are_refused(table: hp.Table, set: dict[str, Any], where: str | None, text: str) -> None:
    before = table.scan().to_arrow()
    with pytest.raises((hp.InvalidRequest, hp.Unsupported), match=text):
        table.update(set, where)
    assert table.scan().to_arrow() == before


def test_merge_with_aliases_and_a_condition(table: hp.Table) -> None:
    source = {"id": [1, 2, 9], "v": [1, 2, 3], "name": ["x", "y", "z"]}
    merge = table.merge(source, on="t.id = s.id AND t.v > s.v", source_alias="s", target_alias="t")
    merge.when_matched_delete("s.name = 'y'").when_matched_update({"v": "t.v + s.v", "name": "'new'"})
    result = merge.when_not_matched_insert_all("s.v > 2").execute()
    assert (result.rows_updated, result.rows_deleted, result.rows_inserted) == (1, 1, 1)
    assert values(table, "v", "name") == [(1, 11, "new"), (3, None, "c"), (9, 3, "z")]


def test_merge_by_name_computes_values(table: hp.Table) -> None:
    merge = table.merge({"id": [2, 8], "v": [5, 6]}, on="id").when_matched_update({"v": "target.v * source.v"})
    merge.when_not_matched_insert({"v": "source.v * 100"}).execute()
    assert values(table, "v") == [(1, 10), (2, 100), (3, None), (8, 600)]
    with pytest.raises(hp.InvalidRequest, match="record 1 would be added"):
        table.merge({"id": [1]}, on="target.id = source.id AND false").when_not_matched_insert_all().execute()
