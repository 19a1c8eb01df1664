"""Columns that the rows of a write lack (docs/schema-evolution.md, "Missing columns")."""

from __future__ import annotations

import pyarrow as pa

from tests.scenarios.scenario import Refused, Scenario, TableSpec, Write

_TABLE = TableSpec("id INT, qty INT, day STRING", partition_by="day", rows="(1, 1, 'mon'), (2, 2, 'mon')")
_UNPARTITIONED = TableSpec("id INT, qty INT, note STRING", rows="(1, 1, 'a'), (2, 2, 'b')")
_MOR = TableSpec("id INT, ts INT, qty INT", ordering="ts", properties={"type": "mor"}, rows="(1, 5, 1), (2, 5, 2)")
_ROWS = ({"id": 2, "day": "mon"}, {"id": 3, "day": "mon"})
_TYPED = pa.table({"id": pa.array([2, 3], pa.int32()), "note": ["c", "d"]})


def _days(*rows: tuple[int, int | None]) -> tuple[dict[str, object], ...]:
    return tuple({"id": id_, "qty": qty, "day": "mon"} for id_, qty in rows)


_NULLS = _days((1, 1), (2, None), (3, None))
_ADDED = _days((1, 1), (2, 2), (2, None), (3, None))
_WORD = 'missing_columns="null"'

SCENARIOS: tuple[Scenario, ...] = (
    Scenario("an upsert refuses rows that lack a column", _TABLE, (Write(_ROWS),), Refused(word=_WORD)),
    Scenario("missing_columns=error", _TABLE, (Write(_ROWS, missing_columns="error"),), Refused(word=_WORD)),
    Scenario("missing_columns=null in an upsert", _TABLE, (Write(_ROWS, missing_columns="null"),), _NULLS),
    Scenario("missing_columns=null in an insert", _TABLE, (Write(_ROWS, "insert", missing_columns="null"),), _ADDED),
    Scenario("missing_columns=keep", _TABLE, (Write(_ROWS, missing_columns="keep"),), _days((1, 1), (2, 2), (3, None))),
    Scenario(
        "missing_columns=keep with typed rows",
        _UNPARTITIONED,
        (Write(_TYPED, missing_columns="keep"),),
        (
            {"id": 1, "qty": 1, "note": "a"},
            {"id": 2, "qty": 2, "note": "c"},
            {"id": 3, "qty": None, "note": "d"},
        ),
    ),
    Scenario(
        "missing_columns=keep: a late row changes nothing",
        _MOR,
        (Write(({"id": 1, "ts": 4}, {"id": 2, "ts": 6}), missing_columns="keep"),),
        ({"id": 1, "ts": 5, "qty": 1}, {"id": 2, "ts": 6, "qty": 2}),
    ),
    Scenario(
        "missing_columns=keep requires an upsert",
        _TABLE,
        (Write(_ROWS, "insert", missing_columns="keep"),),
        Refused(word="requires an upsert"),
    ),
    Scenario("an insert with schema_mode=merge writes nulls", _TABLE, (Write(_ROWS, "insert", "merge"),), _ADDED),
    Scenario(
        "an insert with schema_mode=merge and missing_columns=error",
        _TABLE,
        (Write(_ROWS, "insert", "merge", missing_columns="error"),),
        Refused(word=_WORD),
    ),
    Scenario("an upsert with schema_mode=merge refuses", _TABLE, (Write(_ROWS, "upsert", "merge"),), Refused(word=_WORD)),
)
