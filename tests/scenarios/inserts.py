"""INSERT: which column of the query goes into which column of the table (docs/sql.md)."""

from __future__ import annotations

from tests.scenarios.scenario import Refused, Scenario, Sql, TableSpec

_TABLE = TableSpec("id INT, amount INT, visits INT, shop STRING", partition_by="shop")
_NESTED = TableSpec("id INT, amount INT, size STRUCT<width: INT, height: INT>")


def _row(**changed: object) -> tuple[dict[str, object], ...]:
    return ({"id": 7, "amount": 500, "visits": 3, "shop": "north", **changed},)


def _size(width: int, height: int) -> tuple[dict[str, object], ...]:
    return ({"id": 7, "amount": 500, "size": {"width": width, "height": height}},)


SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        "insert by name: the query has all columns in another order",
        _TABLE,
        (Sql("INSERT INTO {table} SELECT 7 AS id, 3 AS visits, 'north' AS shop, 500 AS AMOUNT"),),
        _row(),
    ),
    Scenario(
        "insert by name: a partition has a value in the statement",
        _TABLE,
        (Sql("INSERT INTO {table} PARTITION (shop = 'north') SELECT 3 AS visits, 7 AS id, 500 AS amount"),),
        _row(),
    ),
    Scenario(
        "insert by position: a name is not the table's",
        _TABLE,
        (Sql("INSERT INTO {table} SELECT 7 AS id, 3 AS visits, 500 AS total, 'north' AS shop"),),
        _row(amount=3, visits=500),
    ),
    Scenario(
        "insert by position: names in another order and too few columns",
        _TABLE,
        (Sql("INSERT INTO {table} SELECT 7 AS id, 3 AS visits, 'north' AS shop"),),
        Refused(word="takes 4 columns"),
    ),
    Scenario(
        "insert by name: fields of a struct in another order",
        _NESTED,
        (Sql("INSERT INTO {table} SELECT named_struct('height', 2, 'width', 1) AS size, 7 AS id, 500 AS amount"),),
        _size(1, 2),
    ),
    Scenario(
        "insert by position: fields of a struct in another order",
        _NESTED,
        (Sql("INSERT INTO {table} SELECT 7 AS key, 500 AS amount, named_struct('height', 2, 'width', 1) AS size"),),
        _size(2, 1),
    ),
)
