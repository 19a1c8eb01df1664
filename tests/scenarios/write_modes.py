"""Modes of a write: rows whose keys exist (docs/updates-and-merges.md, "Modes of a write")."""

from __future__ import annotations

from tests.scenarios.scenario import Refused, Scenario, TableSpec, Write

_TABLE = TableSpec("id INT, qty INT, day STRING", partition_by="day", rows="(1, 1, 'mon'), (2, 1, 'tue')")
_ROWS = ({"id": 1, "qty": 5, "day": "mon"}, {"id": 3, "qty": 5, "day": "mon"})
_SPARK_APPEND = {"spark python": "append is Spark's save mode, whose operation is upsert"}


def _after(*rows: tuple[int, int, str]) -> tuple[dict[str, object], ...]:
    return tuple({"id": id_, "qty": qty, "day": day} for id_, qty, day in rows)


_MERGED = _after((1, 5, "mon"), (2, 1, "tue"), (3, 5, "mon"))
_ADDED = _after((1, 1, "mon"), (1, 5, "mon"), (2, 1, "tue"), (3, 5, "mon"))
_NEW = _after((1, 5, "mon"), (3, 5, "mon"))

SCENARIOS: tuple[Scenario, ...] = (
    Scenario("a write of a table with record keys upserts by default", _TABLE, (Write(_ROWS, ""),), _MERGED),
    Scenario("mode upsert", _TABLE, (Write(_ROWS, "upsert"),), _MERGED),
    Scenario("mode append inserts", _TABLE, (Write(_ROWS, "append"),), _ADDED, skip=_SPARK_APPEND),
    Scenario("mode insert", _TABLE, (Write(_ROWS, "insert"),), _ADDED),
    Scenario("mode bulk_insert", _TABLE, (Write(_ROWS, "bulk_insert"),), _ADDED),
    Scenario(
        "mode insert_overwrite replaces the partitions of the rows",
        _TABLE,
        (Write(_ROWS, "insert_overwrite"),),
        (
            *_NEW,
            *_after((2, 1, "tue")),
        ),
    ),
    Scenario("mode overwrite replaces all rows", _TABLE, (Write(_ROWS, "overwrite"),), _NEW),
    Scenario(
        "mode overwrite replaces the partitions of a predicate",
        _TABLE,
        (Write(_ROWS, "overwrite", where="day IN ('mon', 'tue')"),),
        _NEW,
    ),
    Scenario(
        "mode overwrite refuses rows outside of its predicate",
        _TABLE,
        (Write(_ROWS, "overwrite", where="day = 'tue'"),),
        Refused(word="lie outside of the overwrite"),
    ),
    Scenario(
        "a predicate requires mode overwrite",
        _TABLE,
        (Write(_ROWS, "", where="day = 'mon'"),),
        Refused(word="requires mode overwrite"),
    ),
    Scenario(
        "a write of a table without record keys adds all rows",
        TableSpec("id INT, qty INT, day STRING", key="", rows="(1, 1, 'mon')"),
        (Write(_ROWS, ""),),
        _after((1, 1, "mon"), (1, 5, "mon"), (3, 5, "mon")),
    ),
)
