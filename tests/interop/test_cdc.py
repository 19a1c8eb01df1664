"""Change data of a table written in turn is the same for PyHudi and Apache Hudi, in each mode and table type."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from tests.interop.oracle import ApacheHudi
from tests.support.golden_tables import open_golden
from tests.support.replay import GLOBAL, SCHEMA, apply_changes
from tests.support.rows import META_COLUMNS

OPERATION = "hoodie.datasource.write.operation"
BEGIN, END = "hoodie.datasource.read.begin.instanttime", "hoodie.datasource.read.end.instanttime"
KIND, FORMAT = "hoodie.datasource.query.type", "hoodie.datasource.query.incremental.format"
MODES = ("OP_KEY_ONLY", "DATA_BEFORE", "DATA_BEFORE_AFTER")

# Hudi's iterator advances on each call of hasNext: a job that writes its result calls it twice, and loses a row.
COLLECT = """
frame = spark.read.format("hudi").options(**options).load(path)
result = [[row["op"], row["ts_ms"], row["before"], row["after"]] for row in frame.collect()]
"""

WRITE = """
spark.read.format("hudi").options(**options).load(path).write.parquet(out)
result = spark.read.parquet(out).count()
"""

MOVES = (
    ("upsert", {"a": "x", "b": "x", "c": "y", "d": "y"}),
    ("upsert", {"a": "y", "c": "x", "b": "x", "e": "y"}),
    ("insert_overwrite", {"a": "y", "e": "y"}),
)
"""Operations, and the partition of each of their records."""

Change = tuple[str, str, str | None, str | None]


def rows(numbers: Iterable[int], ts: int, note: str | None = "n", **more: Any) -> pa.Table:
    # An ordering value of int: Apache Hudi cannot read deletes of another type that are followed by an upsert.  No nested
    # columns: of base files it prints their bytes in memory.
    made = [{"id": f"k{n}", "ts": ts, "fare": n + ts / 4, "note": note, "day": n, "city": "ab"[n % 2], **more} for n in numbers]
    types: list[tuple[str, pa.DataType]] = [
        ("id", pa.string()),
        ("ts", pa.int32()),
        ("fare", pa.float64()),
        ("note", pa.string()),
    ]
    types += [("day", pa.date32()), ("city", pa.string())]
    return pa.Table.from_pylist(made, pa.schema(types + [(name, pa.string()) for name in more]))


def image(text: str | None) -> str | None:
    """The non-null data columns of an image; Apache Hudi omits nulls, or the whole image, or writes `null`."""
    row = None if text is None else json.loads(text)
    if row is None:
        return None
    return json.dumps({k: v for k, v in row.items() if k not in META_COLUMNS and v is not None}, sort_keys=True)


def theirs(hudi: ApacheHudi, path: Path, begin: str = "000", end: str | None = None) -> list[Change]:
    options = {KIND: "incremental", FORMAT: "cdc", BEGIN: begin, **({} if end is None else {END: end})}
    found = hudi.run(COLLECT, path=str(path), options=options)
    return sorted(((op, ts, image(before), image(after)) for op, ts, before, after in found), key=str)


def ours(path: Path, begin: str = "000", end: str | None = None) -> list[Change]:
    found = Table(path).incremental(begin, end, options={FORMAT: "cdc"}).to_arrow().to_pylist()
    return sorted(((row["op"], row["ts_ms"], image(row["before"]), image(row["after"])) for row in found), key=str)


def replay(changes: list[Change]) -> dict[str, str]:
    """The records that are there after all changes; each has to fit the state before it."""
    state: dict[str, str] = {}
    for op, _, before, after in sorted(changes, key=lambda change: (change[1], change[0])):
        key = json.loads(before or after or "")["id"]
        assert state.pop(key, None) == before, (op, key)
        if op != "d":
            assert after is not None and (op == "i") == (before is None)
            state[key] = after
    return state


# Each mode and both types; the other modes on logs are in test_update_modes_of_alternating_writers.
WRITTEN = [("cow", "OP_KEY_ONLY"), ("mor", "DATA_BEFORE")]


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        case if case in WRITTEN else pytest.param(*case, marks=pytest.mark.wide)
        for case in itertools.product(("cow", "mor"), MODES)
    ],
)
def test_change_data_of_alternating_writers(hudi: ApacheHudi, tmp_path: Path, kind: str, mode: str) -> None:
    path = tmp_path / "t"
    shape: dict[str, Any] = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.table.type": {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}[kind],
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.partitionpath.field": "city",
        "hoodie.table.cdc.enabled": "true",
        "hoodie.table.cdc.supplemental.logging.mode": mode,
    }
    options = {**shape, "hoodie.compact.inline.max.delta.commits": "100", "hoodie.clean.automatic": "false"}
    if mode == "DATA_BEFORE":
        hudi.write(rows(range(6), 1), path, **options)
    else:
        Table.create(path, options=options).insert(rows(range(6), 1))
    table = Table(path, options={"hoodie.clean.automatic": False})
    table.upsert(rows([0, 1, 6, 7], 2, "ours"))
    hudi.write(rows([1, 6, 8, 9], 3, None), path, **options)
    table.upsert(rows([0, 3], 1, "late"))
    table.delete(rows([2, 3], 4))
    hudi.write(rows([4, 7], 4), path, **{**options, OPERATION: "delete"})
    if kind == "mor":
        table.compact()
    table.upsert(rows([2, 5], 5, 'a "quoted" \\ text\n', added="more"))
    hudi.write(rows([2, 10], 6, added="real"), path, **options)

    changes = ours(path)
    assert changes == theirs(hudi, path)
    state = replay(changes)
    assert sorted(state.values()) == sorted(
        image(json.dumps(row, default=_days)) or "" for row in table.scan().to_arrow().to_pylist()
    )

    times = [instant.request_time for instant in table.timeline().completed_writes()]
    assert ours(path, times[1], times[-2]) == theirs(hudi, path, times[1], times[-2])
    assert not ours(path, times[-1])
    assert ours(path, "earliest") == changes

    table.insert_overwrite(rows([20, 22], 7, added="x"))
    hudi.write(rows([21], 8, added="x"), path, **{**options, OPERATION: "insert_overwrite"})
    last = times[-1]
    found, known = ours(path, last), theirs(hudi, path, last)
    # Apache Hudi repeats one row of a replaced file group in place of all its rows.
    assert len(found) == len(known) and set(known) <= set(found)
    assert [change for change in found if change[0] == "i"] == [change for change in known if change[0] == "i"]
    assert set(replay(changes + found)) == {"k20", "k21", "k22"}


@pytest.mark.parametrize(
    ("release", "version", "kind", "limit"),
    [
        ("hudi", 8, "COPY_ON_WRITE", 100 << 20),
        ("hudi", 8, "MERGE_ON_READ", 0),
        pytest.param("newer_hudi", 9, "MERGE_ON_READ", 0, marks=pytest.mark.wide),
        ("newest_hudi", 9, "MERGE_ON_READ", 0),
        pytest.param("newest_hudi", 9, "COPY_ON_WRITE", 100 << 20, marks=pytest.mark.wide),
    ],
)
def test_the_order_of_changes_that_hudi_wrote(
    tmp_path: Path, request: pytest.FixtureRequest, release: str, version: int, kind: str, limit: int
) -> None:
    """Records move in both directions in one commit, and are overwritten; Hudi reads file group by file group."""
    hudi, path = request.getfixturevalue(release), tmp_path / "t"
    options: dict[str, Any] = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "part",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.table.type": kind,
        "hoodie.table.cdc.enabled": True,
        "hoodie.index.type": "GLOBAL_SIMPLE",
        "hoodie.write.table.version": version,
        "hoodie.metadata.enable": False,
        "hoodie.compact.inline": False,
        "hoodie.parquet.small.file.limit": limit,
        **GLOBAL,
    }
    for ts, (operation, parts) in enumerate(MOVES, 1):
        made = [
            {"id": key, "ts": ts, "part": part, "v": f"{key}{ts}", "_hoodie_is_deleted": False} for key, part in parts.items()
        ]
        hudi.write(pa.Table.from_pylist(made, SCHEMA), path, **options, **{OPERATION: operation})
    found = Table(path).changes("000", columns=["*", "completion_time"]).to_arrow().to_pylist()
    state = apply_changes({}, found)
    assert {key: json.loads(text)["v"] for key, text in state.items()} == {"a": "a3", "b": "b2", "c": "c2", "e": "e3"}
    assert apply_changes({}, sorted(found[::-1], key=lambda row: (row["completion_time"], row["op"]))) == state
    real = hudi.run(COLLECT, path=str(path), options={KIND: "incremental", FORMAT: "cdc", BEGIN: "000"})
    times = [row[1] for row in real]
    assert len(times) == len(found) and times != sorted(times)


def test_rows_that_apache_hudi_loses(hudi: ApacheHudi, tmp_path: Path) -> None:
    """In a job that writes what it reads the first row of each task."""
    golden = open_golden("cow_cdc", tmp_path)
    options: dict[str, Any] = {KIND: "incremental", FORMAT: "cdc", BEGIN: "000"}
    assert ours(golden.path) == theirs(hudi, golden.path)
    written = hudi.run(WRITE, path=str(golden.path), options=options, out=str(tmp_path / "out"))
    assert written < len(ours(golden.path)) == 11


def _days(value: Any) -> int:
    return int((value - type(value)(1970, 1, 1)).days)


MODEL = "org.apache.hudi.common.model."
UNAVAILABLE = "__debezium_unavailable_value"
MODE_OPTIONS: dict[str, Any] = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.write.table.version": 9,
    "hoodie.table.cdc.enabled": True,
    "hoodie.clean.automatic": False,
    "hoodie.compact.inline": False,
}
COMPACT: dict[str, Any] = {"hoodie.compact.inline": True, "hoodie.compact.inline.max.delta.commits": 1}
UPDATE_MODES: dict[str, dict[str, Any]] = {
    "IGNORE_DEFAULTS": {
        "hoodie.datasource.write.payload.class": f"{MODEL}PartialUpdateAvroPayload",
        "hoodie.datasource.write.precombine.field": "_event_lsn",
    },
    "FILL_UNAVAILABLE": {"hoodie.datasource.write.payload.class": f"{MODEL}debezium.PostgresDebeziumAvroPayload"},
}


def lsn_rows(*given: tuple[str, int, str, str | None, int | None]) -> pa.Table:
    """(key, position, operation, value, quantity)."""
    types = {
        "id": pa.string(),
        "_event_lsn": pa.int64(),
        "_change_operation_type": pa.string(),
        "v": pa.string(),
        "qty": pa.int32(),
    }
    return pa.Table.from_pylist([dict(zip(types, row, strict=True)) for row in given], pa.schema(types))


def filled(changes: list[Change], op: str, at: str, text: str | None) -> str | None:
    """An image, or in place of one that holds the placeholder ours of the same key and change."""
    if text is None or UNAVAILABLE not in text:
        return text
    images = (image for o, t, *both in changes if (o, t) == (op, at) for image in both if image is not None)
    return next(image for image in images if {**json.loads(image), "v": UNAVAILABLE} == json.loads(text))


@pytest.mark.parametrize(("way", "logging"), [("IGNORE_DEFAULTS", "DATA_BEFORE_AFTER"), ("FILL_UNAVAILABLE", "OP_KEY_ONLY")])
def test_update_modes_of_alternating_writers(newer_hudi: ApacheHudi, tmp_path: Path, way: str, logging: str) -> None:
    path = tmp_path / "t"
    options = {**MODE_OPTIONS, **UPDATE_MODES[way], "hoodie.table.cdc.supplemental.logging.mode": logging}
    table = Table.create(path, options=options)
    table.insert(lsn_rows(("a", 1, "c", "a1", 1), ("b", 1, "c", "b1", 2), ("c", 1, "c", "c1", None), ("d", 1, "c", "d1", 4)))
    newer_hudi.write(
        lsn_rows(("a", 2, "u", UNAVAILABLE, None), ("b", 0, "u", "late", 9), ("e", 1, "c", "e1", 5)), path, **options
    )
    table.upsert(
        lsn_rows(("a", 3, "u", None, 7), ("c", 0, "u", "late", 3), ("d", 2, "d", "gone", 0), ("e", 2, "u", UNAVAILABLE, None))
    )
    newer_hudi.write(lsn_rows(("a", 4, "u", "a4", None), ("f", 1, "c", "f1", 6)), path, **{**options, **COMPACT})
    table.upsert(lsn_rows(("a", 5, "u", UNAVAILABLE, None), ("f", 2, "u", None, 1)))
    table.compact()
    newer_hudi.write(lsn_rows(("f", 3, "u", "f3", None), ("b", 2, "u", None, 8)), path, **options)
    changes = ours(path)
    known = theirs(newer_hudi, path)
    if way == "FILL_UNAVAILABLE":
        # Hudi returns the placeholder itself when it derives changes from log files, as its reader of changes does not know the
        # table's merge properties.
        assert changes != known
        known = [(op, at, filled(changes, op, at, old), filled(changes, op, at, new)) for op, at, old, new in known]
    assert changes == sorted(known, key=str)
    assert sorted(replay(changes)) == sorted(table.scan(["id"]).to_arrow()["id"].to_pylist())
    assert table.validate().ok
