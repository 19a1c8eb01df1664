"""Parameters of statements: `?`, `$name` and `:name` (docs/sql.md, "Parameters")."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

from tests.scenarios.scenario import Refused, Scenario, Sql, TableSpec

_TABLE = TableSpec("id INT, note STRING, amount DECIMAL(10, 2), day DATE, x DOUBLE", rows="(1, 'a', 1.50, NULL, 0.5)")
_HUDI = {"hudi": "its session takes no parameters"}
_NOTE = "it's :one \\ ?"


def _rows(**changed: object) -> tuple[dict[str, object], ...]:
    return ({"id": 1, "note": "a", "amount": Decimal("1.50"), "day": None, "x": 0.5, **changed},)


SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        "parameters by name in an INSERT",
        _TABLE,
        (
            Sql(
                "INSERT INTO {table} VALUES (:id, $note, :amount, :day, :x) -- :more",
                {"id": 2, "note": _NOTE, "amount": Decimal("2.25"), "day": date(2024, 5, 6), "x": 1e-7},
            ),
        ),
        (*_rows(), {"id": 2, "note": _NOTE, "amount": Decimal("2.25"), "day": date(2024, 5, 6), "x": 1e-7}),
        skip=_HUDI,
    ),
    Scenario(
        "parameters by position in an UPDATE",
        _TABLE,
        (Sql("UPDATE {table} SET note = ?, x = x -? WHERE amount >= ? AND note <> '?'", ["b", -2, Decimal("1.5")]),),
        _rows(note="b", x=2.5),
        skip=_HUDI,
    ),
    Scenario(
        "parameters in a MERGE",
        _TABLE,
        (
            Sql(
                "MERGE INTO {table} t USING (SELECT :id AS id, :note AS note) s ON t.id = s.id "
                "WHEN MATCHED AND t.x < :most THEN UPDATE SET note = s.note",
                {"id": 1, "note": None, "most": 0.75},
            ),
        ),
        _rows(note=None),
        skip=_HUDI,
    ),
    Scenario(
        "a parameter without a value is refused",
        _TABLE,
        (Sql("DELETE FROM {table} WHERE id = :id", {"key": 1}),),
        Refused(word="parameter :id has no value"),
        skip=_HUDI,
    ),
)
