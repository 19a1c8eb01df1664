"""UPDATE and MERGE: which rows change, and what becomes of keys, partitions and duplicates (docs/updates-and-merges.md)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tests.scenarios.scenario import Merge, Refused, Scenario, Sql, TableSpec, Update

_COLUMNS = "id INT, ts INT, note STRING, city STRING"
_SIMPLE = TableSpec(_COLUMNS, ordering="ts", partition_by="city", rows="(1, 5, 'old', 'x'), (2, 5, 'old', 'y')")
_GLOBAL = TableSpec(
    _COLUMNS,
    ordering="ts",
    partition_by="city",
    properties={"hoodie.index.type": "GLOBAL_SIMPLE", "hoodie.simple.index.update.partition.path": "true"},
    rows="(1, 5, 'old', 'x'), (2, 5, 'old', 'y')",
)
_STAYING = TableSpec(
    _COLUMNS,
    ordering="ts",
    partition_by="city",
    properties={"hoodie.index.type": "GLOBAL_SIMPLE", "hoodie.simple.index.update.partition.path": "false"},
    rows="(1, 5, 'old', 'x')",
)
_UNORDERED = TableSpec("id INT, ts INT, note STRING, city STRING", partition_by="city", rows="(1, 5, 'old', 'x')")
_UNPARTITIONED = TableSpec("id INT, ts INT, note STRING", ordering="ts", rows="(1, 5, 'old')")


def _row(id: int, ts: int, note: str | None, city: str) -> dict[str, Any]:
    return {"id": id, "ts": ts, "note": note, "city": city}


def _rows(*records: tuple[Any, ...]) -> pa.Table:
    """Source rows: id, ts, note, city."""
    types = {"id": pa.int32(), "ts": pa.int32(), "note": pa.string(), "city": pa.string()}
    columns = zip(*records, strict=True)
    return pa.table({name: pa.array(list(values), type_) for (name, type_), values in zip(types.items(), columns, strict=True)})


_ONE, _TWO = _row(1, 5, "old", "x"), _row(2, 5, "old", "y")
_SPLITS = {"hudi": "a row with another partition is another record in Hudi, which leaves the stored one where it is"}
_STAYS = {"hudi": "Hudi changes the other columns, and drops the value of the partition column without a word"}
_TAKES_LAST = {"hudi": "Hudi takes the last of the source rows"}
_KEEPS_KEYS = {"hudi": "Hudi stores the record under the other key in MERGE, and refuses any assignment of a key in UPDATE"}

_DUPLICATES = (
    Scenario(
        "merge: of two source rows the one with the larger ordering value wins",
        _SIMPLE,
        (Merge(_rows((1, 8, "late", "x"), (1, 7, "early", "x"), (3, 6, "a", "x"), (3, 9, "b", "x"))),),
        (_row(1, 8, "late", "x"), _TWO, _row(3, 9, "b", "x")),
    ),
    Scenario(
        "merge: the ordering value of the source row decides if the clause does not assign it",
        _SIMPLE,
        (Merge(_rows((1, 8, "late", "x"), (1, 7, "early", "x")), matched={"note": "source.note"}, clauses=("update",)),),
        (_row(1, 5, "late", "x"), _TWO),
    ),
    Scenario(
        "merge: of three source rows two may have an equal ordering value",
        _SIMPLE,
        (Merge(_rows((1, 7, "a", "x"), (1, 7, "b", "x"), (1, 8, "late", "x"))),),
        (_row(1, 8, "late", "x"), _TWO),
    ),
    Scenario(
        "merge: two source rows with an equal ordering value are refused",
        _SIMPLE,
        (Merge(_rows((1, 8, "first", "x"), (1, 8, "second", "x"))),),
        Refused(word="several rows of the source"),
        skip=_TAKES_LAST,
    ),
    Scenario(
        "merge: two source rows are refused in a table without ordering field",
        _UNORDERED,
        (Merge(_rows((1, 8, "first", "x"), (1, 9, "second", "x"))),),
        Refused(word="several rows of the source"),
        skip=_TAKES_LAST,
    ),
    Scenario(
        "merge: a delete by an earlier source row loses against an update by a later one",
        _SIMPLE,
        (
            Sql(
                "MERGE INTO {table} t USING (SELECT 1 AS id, 7 AS ts, 'delete' AS note, 'x' AS city UNION ALL "
                "SELECT 1, 8, 'update', 'x' UNION ALL SELECT 2, 8, 'delete', 'y' UNION ALL SELECT 2, 7, 'update', 'y') s "
                "ON t.id = s.id WHEN MATCHED AND s.note = 'delete' THEN DELETE "
                "WHEN MATCHED AND s.note = 'update' THEN UPDATE SET *"
            ),
        ),
        (_row(1, 8, "update", "x"),),
    ),
    Scenario(
        "merge: one of two source rows may be of no clause",
        _SIMPLE,
        (
            Sql(
                "MERGE INTO {table} t USING (SELECT 1 AS id, 7 AS ts, 'a' AS note, 'x' AS city UNION ALL SELECT 1, 8, 'b', 'x') "
                "s ON t.id = s.id WHEN MATCHED AND s.note = 'a' THEN UPDATE SET *"
            ),
        ),
        (_row(1, 7, "a", "x"), _TWO),
        skip={"hudi": "Hudi drops the source row with the smaller ordering value before it looks at conditions"},
    ),
)

_INSERT_ONE_KEY_TWICE = (Merge(_rows((3, 6, "a", "x"), (3, 7, "b", "y"))),)
_PLACES = (
    Scenario(
        "merge: one new key in two partitions makes two records",
        _SIMPLE,
        _INSERT_ONE_KEY_TWICE,
        (_ONE, _TWO, _row(3, 6, "a", "x"), _row(3, 7, "b", "y")),
    ),
    Scenario(
        "merge: one new key in two partitions makes one record under a global index",
        _GLOBAL,
        _INSERT_ONE_KEY_TWICE,
        (_ONE, _TWO, _row(3, 7, "b", "y")),
    ),
    Scenario(
        "merge: a changed partition column moves the record under a global index",
        _GLOBAL,
        (Merge(_rows((1, 8, "new", "y"))),),
        (_row(1, 8, "new", "y"), _TWO),
    ),
    Scenario(
        "merge: the source row with the larger ordering value decides where the record moves",
        _GLOBAL,
        (Merge(_rows((1, 7, "a", "y"), (1, 8, "b", "z"))),),
        (_row(1, 8, "b", "z"), _TWO),
    ),
    Scenario(
        "merge: a source row with an earlier ordering value does not move the record",
        _GLOBAL,
        (Merge(_rows((1, 4, "late", "y"))),),
        (_ONE, _TWO),
    ),
    Scenario(
        "merge: a changed partition column moves the record",
        _SIMPLE,
        (Merge(_rows((1, 8, "new", "y"), (2, 8, "new", "y"))),),
        (_row(1, 8, "new", "y"), _row(2, 8, "new", "y")),
        skip=_SPLITS,
    ),
    Scenario(
        "merge: of two source rows of other partitions one moves the record",
        _SIMPLE,
        (Merge(_rows((1, 7, "a", "y"), (1, 8, "b", "z"))),),
        (_row(1, 8, "b", "z"), _TWO),
        skip=_SPLITS,
    ),
    Scenario(
        "update: a changed partition column moves the record",
        _SIMPLE,
        (Update({"city": "concat(city, 'z')"}, "id = 1"),),
        (_row(1, 5, "old", "xz"), _TWO),
        skip={"hudi": "Hudi refuses an UPDATE of partition fields"},
    ),
    Scenario(
        "update: a record does not move onto another one of its key",
        TableSpec(_COLUMNS, ordering="ts", partition_by="city", rows="(1, 5, 'old', 'x'), (1, 5, 'old', 'y')"),
        (Update({"city": "'y'"}, "city = 'x'"),),
        Refused(word="would be added to partition 'city=y'"),
    ),
    Scenario(
        "update: a record does not move if its index leaves it where it is",
        _STAYING,
        (Update({"city": "'y'"}),),
        Refused(word="update.partition.path"),
    ),
    Scenario(
        "merge: a record does not move if its index leaves it where it is",
        _STAYING,
        (Merge(_rows((1, 8, "new", "y"))),),
        Refused(word="update.partition.path"),
        skip=_STAYS,
    ),
)

_KEYS = (
    Scenario(
        "merge: a key may be assigned its own value",
        _SIMPLE,
        (
            Merge(
                _rows((1, 8, "new", "x")),
                matched={"id": "source.id", "ts": "source.ts", "note": "source.note"},
                clauses=("update",),
            ),
        ),
        (_row(1, 8, "new", "x"), _TWO),
    ),
    Scenario(
        "update: a key may be assigned its own value",
        _SIMPLE,
        (Update({"id": "abs(id)", "note": "'new'"}, "id = 1"),),
        (_row(1, 5, "new", "x"), _TWO),
        skip=_KEEPS_KEYS,
    ),
    Scenario(
        "update: a record keeps its key", _SIMPLE, (Update({"id": "id + 2"}, "id = 1"),), Refused(word="record 1 would get 3")
    ),
    Scenario(
        "merge: a record keeps its key",
        _SIMPLE,
        (Merge(_rows((1, 8, "new", "x")), matched={"id": "source.ts", "ts": "source.ts"}, clauses=("update",)),),
        Refused(word="record 1 would get 8"),
        skip=_KEEPS_KEYS,
    ),
    Scenario(
        "merge: an inserted row may have another key than the source row",
        _UNPARTITIONED,
        (
            Sql(
                "MERGE INTO {table} t USING (SELECT 6 AS id, 8 AS ts, 'new' AS note) s ON t.id = s.id "
                "WHEN NOT MATCHED THEN INSERT (id, ts, note) VALUES (s.id + 1, s.ts, s.note)"
            ),
        ),
        ({"id": 1, "ts": 5, "note": "old"}, {"id": 7, "ts": 8, "note": "new"}),
    ),
    Scenario(
        "merge: an inserted row must not have the key of a record that it was not compared with",
        _UNPARTITIONED,
        (
            Sql(
                "MERGE INTO {table} t USING (SELECT 6 AS id, 8 AS ts, 'new' AS note) s ON t.id = s.id "
                "WHEN NOT MATCHED THEN INSERT (id, ts, note) VALUES (s.id - 5, s.ts, s.note)"
            ),
        ),
        Refused(word="record 1 would be added"),
        skip={"hudi": "Hudi updates the record"},
    ),
    Scenario(
        "merge: rows match by another column than the key",
        _UNPARTITIONED,
        (
            Merge(
                pa.table({"id": pa.array([1, 7], pa.int32()), "ts": pa.array([8, 8], pa.int32()), "note": ["old", "new"]}),
                on="note",
                matched={"ts": "source.ts"},
            ),
        ),
        ({"id": 1, "ts": 8, "note": "old"}, {"id": 7, "ts": 8, "note": "new"}),
    ),
    Scenario(
        "merge: an insert that matches by another column must not have the key of a record",
        _UNPARTITIONED,
        (
            Merge(
                pa.table({"id": pa.array([1], pa.int32()), "ts": pa.array([8], pa.int32()), "note": ["new"]}),
                on="note",
                clauses=("insert",),
            ),
        ),
        Refused(word="record 1 would be added"),
        skip={"hudi": "Hudi looks the key up, and inserts nothing"},
    ),
)

_STRUCT = TableSpec("id INT, size STRUCT<width: INT, height: INT>", rows="(1, named_struct('width', 1, 'height', 1))")


def _size(width: int, height: int) -> tuple[dict[str, Any], ...]:
    return ({"id": 1, "size": {"width": width, "height": height}},)


_COLUMNS_OF_CLAUSES = (
    Scenario(
        "merge: `*` takes the columns that the table has",
        _UNPARTITIONED,
        (
            Sql(
                "MERGE INTO {table} t USING (SELECT 1 AS id, 8 AS ts, 'new' AS note, 'u' AS what UNION ALL "
                "SELECT 2, 8, 'new', 'i') s ON t.id = s.id WHEN MATCHED AND s.what = 'u' THEN UPDATE SET * "
                "WHEN NOT MATCHED AND s.what = 'i' THEN INSERT *"
            ),
        ),
        ({"id": 1, "ts": 8, "note": "new"}, {"id": 2, "ts": 8, "note": "new"}),
    ),
    Scenario(
        "merge: fields of a struct are matched by position in SQL",
        _STRUCT,
        (
            Sql(
                "MERGE INTO {table} t USING (SELECT 1 AS id, named_struct('height', 2, 'width', 3) AS size) s ON t.id = s.id "
                "WHEN MATCHED THEN UPDATE SET *"
            ),
        ),
        _size(2, 3),
    ),
    Scenario(
        "merge: fields of a struct are matched by name in Python",
        _STRUCT,
        (
            Merge(
                pa.table({"id": pa.array([1], pa.int32()), "size": [{"height": 2, "width": 3}]}).cast(
                    pa.schema([("id", pa.int32()), ("size", pa.struct({"height": pa.int32(), "width": pa.int32()}))])
                ),
                clauses=("update",),
            ),
        ),
        _size(3, 2),
        skip=dict.fromkeys(("sql", "spark sql", "hudi"), "SQL matches them by position"),
    ),
    Scenario(
        "insert: names of the elements of VALUES have no effect",
        TableSpec("id INT, item STRING, pieces INT"),
        (Sql("INSERT INTO {table} (pieces, id, item) VALUES (12 AS id, 4 AS pieces, 'nail' AS item)"),),
        ({"id": 4, "item": "nail", "pieces": 12},),
    ),
    Scenario(
        "insert: named elements of VALUES without a list of columns are matched by position",
        TableSpec("id INT, pieces INT"),
        (Sql("INSERT INTO {table} VALUES (12 AS pieces, 4 AS id), (13, 5)"),),
        ({"id": 12, "pieces": 4}, {"id": 13, "pieces": 5}),
    ),
)

_BY_PYTHON = dict.fromkeys(("sql", "spark sql", "hudi"), "in SQL the value becomes text")
_NOTES = TableSpec("id INT, note STRING", rows="(1, 'a')")
_TEXTS = (
    *(
        Scenario(
            f"update: {sql} for a column of text is refused in Python", _NOTES, (Update({"note": sql}),), refused, skip=_BY_PYTHON
        )
        for sql in ("2025-01-01", "555 - 1234", "007", "id > 3", "DATE '2025-01-01'")
        for refused in (Refused(word="values={'note'"),)
    ),
    Scenario(
        "update: a text among the values is stored as it is",
        _NOTES,
        (Update(values={"note": "2025-01-01"}),),
        ({"id": 1, "note": "2025-01-01"},),
    ),
    Scenario(
        "merge: a computed number for a column of text is refused in Python",
        _NOTES,
        (Merge(pa.table({"id": pa.array([1], pa.int32())}), matched={"note": "source.id + 1"}, clauses=("update",)),),
        Refused(word="values={'note'"),
        skip=_BY_PYTHON,
    ),
)

SCENARIOS: tuple[Scenario, ...] = (*_DUPLICATES, *_PLACES, *_KEYS, *_COLUMNS_OF_CLAUSES, *_TEXTS)
