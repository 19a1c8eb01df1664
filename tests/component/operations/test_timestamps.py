"""Timestamps without zone and in nanoseconds are stored exactly or refused; conversion is explicit."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi import Table
from pyhudi.errors import HudiError, InvalidRequest

ZONE, NANOSECONDS = "pyhudi.timestamps.without.zone", "pyhudi.timestamps.nanoseconds"
NOON = datetime(2026, 7, 1, 12)
MOMENT = NOON.replace(tzinfo=UTC)
OPERATIONS = ("upsert", "insert", "bulk_insert", "insert_overwrite", "insert_overwrite_table")
_names = itertools.count()


def made(*, at: Any = None, table_type: str = "cow", **options: object) -> Table:
    """A table whose column `at` has the type of a value; without a value, no column yet."""
    table = Table.create(
        f"memory://times-{next(_names)}",
        record_key="id",
        ordering="ts",
        table_type=table_type,
        options={"hoodie.index.bloom.num_entries": 100, "hoodie.compact.inline": False, **options},
    )
    if at is not None:
        table.upsert(rows(at), options={ZONE: "local"})
    return table


def rows(at: Any, ts: int = 1) -> pa.Table:
    return pa.table({"id": ["a"], "ts": [ts], "at": at if isinstance(at, pa.Array) else pa.array([at])})


def read(table: Table) -> list[Any]:
    return list(table.scan(["at"]).to_arrow().column("at").to_pylist())


@pytest.mark.parametrize("operation", OPERATIONS)
def test_new_columns_without_a_zone_are_refused(operation: str) -> None:
    table = made()
    times = pa.array([NOON], pa.timestamp("us"))
    for at, path in (
        (times, "at"),
        (times.cast(pa.timestamp("ns")), "at"),
        (times.dictionary_encode(), "at"),
        (pa.array([[NOON]], pa.large_list(pa.timestamp("ms"))), r"at\[\]"),
        (pa.array([{"x": [NOON]}]), r"at\.x\[\]"),
        (pa.array([[("k", NOON)]], pa.map_(pa.string(), pa.timestamp("us"))), r"at\{\}"),
    ):
        with pytest.raises(InvalidRequest, match=rf"(?s)are ambiguous.*\n  {path}: timestamp.*{ZONE}=utc"):
            getattr(table, operation)(rows(at))
    with pytest.raises(InvalidRequest, match="are ambiguous"):
        Table.create(f"memory://times-{next(_names)}", record_key="id", schema=rows(times).schema)
    assert not table.timeline().completed_writes()


@pytest.mark.parametrize("frame", [pl.DataFrame({"id": ["a"], "at": [NOON]}), pd.DataFrame({"id": ["a"], "at": [NOON]})])
def test_frames_without_a_zone_are_refused(frame: Any) -> None:
    table = Table.create(f"memory://times-{next(_names)}", record_key="id")
    with pytest.raises(InvalidRequest, match=r"\.dt\.tz_localize"):
        table.insert(frame)
    table.insert(frame, options={ZONE: "utc"})
    assert read(table) == [MOMENT]


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_utc_on_request(table_type: str) -> None:
    table = made(table_type=table_type)
    for ts in (1, 2):
        table.upsert(rows(NOON, ts), options={ZONE: "utc"})
        assert table.schema().field("at").type == pa.timestamp("us", "UTC")
        assert read(table) == [MOMENT]
    # What has a zone needs no option afterwards, and what has none needs it again.
    table.upsert(rows(MOMENT, 3))
    for mode in ({}, {ZONE: "local"}):
        with pytest.raises(InvalidRequest, match="the table's column is timestamp"):
            table.upsert(rows(NOON, 4), options=mode)


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_columns_without_a_zone_stay_such(table_type: str) -> None:
    """Columns of any writer: no option is needed to write to existing ones."""
    table = made(at=NOON, table_type=table_type)
    for ts, unit in enumerate(("us", "ms", "s", "ns"), 2):
        table.upsert(rows(pa.array([NOON], pa.timestamp(unit)), ts))
        assert table.schema().field("at").type == pa.timestamp("us")
        assert read(table) == [NOON]
    for text, found in (("at = TIMESTAMP '2026-07-01 12:00:00'", 1), ("at > TIMESTAMP '2026-07-01 12:00:00'", 0)):
        assert table.scan(filter=text).count() == found
    with pytest.raises(InvalidRequest, match="cannot mix timestamps"):
        table.upsert(rows(MOMENT, 9))
    if table_type == "mor":
        table.compact()
    assert read(table) == [NOON]


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_tables_of_version_9_have_columns_without_a_zone(table_type: str) -> None:
    table = made(table_type=table_type, **{"hoodie.write.table.version": 9})
    for ts in (1, 2):
        table.upsert(rows(NOON, ts))
        assert read(table) == [NOON]
    # Statistics of the second layout have them too.
    assert table.scan(filter="at = TIMESTAMP '2026-07-01 12:00:00'").count() == 1
    assert table.scan(filter="at < TIMESTAMP '2026-07-01 12:00:00'").count() == 0
    assert table.validate().ok


def test_deletes_by_a_key_that_is_a_time() -> None:
    table = Table.create(f"memory://times-{next(_names)}", record_key="at")
    table.insert(pa.table({"at": pa.array([MOMENT])}))
    with pytest.raises(InvalidRequest, match="are ambiguous"):
        table.delete(pa.table({"at": pa.array([NOON])}))
    # Floored, it would delete another record.
    finer = pa.array([int(MOMENT.timestamp()) * 10**9 + 1], pa.timestamp("ns", "UTC"))
    with pytest.raises(InvalidRequest, match="nanoseconds"):
        table.delete(pa.table({"at": finer}))
    assert table.scan().count() == 1
    assert table.delete(pa.table({"at": pa.array([NOON])}), options={ZONE: "utc"}).rows_deleted == 1


@pytest.mark.parametrize("operation", OPERATIONS)
def test_nanoseconds_are_truncated_only_on_request(operation: str) -> None:
    table = made()
    whole = pa.array([5_000, None], pa.timestamp("ns", "UTC"))
    fine = pa.array([None, 5_999], pa.timestamp("ns", "UTC"))
    data = pa.table({"id": ["a", "b"], "ts": [1, 2]})
    getattr(table, operation)(data.append_column("at", whole))
    nested = pa.StructArray.from_arrays([pa.ListArray.from_arrays([0, 1, 2], fine)], ["x"])
    for column, path in ((fine, "at"), (fine.dictionary_encode(), "at"), (nested, r"at\.x\[\]")):
        target = table if column.type == fine.type else made()
        with pytest.raises(InvalidRequest, match=rf"'{path}': 5999 nanoseconds .*{NANOSECONDS}=cut"):
            getattr(target, operation)(data.append_column("at", column))
    getattr(table, operation)(data.append_column("at", fine), options={NANOSECONDS: "cut"})
    assert datetime(1970, 1, 1, microsecond=5, tzinfo=UTC) in read(table)


FINE = pa.scalar(5_999, pa.timestamp("ns", "UTC"))
FINE_ROWS = pa.table({"id": ["a"], "ts": [1], "at": pa.array([5_999], pa.timestamp("ns", "UTC"))})


def _sql(table: Table, text: str, options: dict[str, object]) -> object:
    return hp.sql(text, tables={"t": table, "s": FINE_ROWS}, options=options)


STATEMENTS: dict[str, Callable[[Table, dict[str, object]], object]] = {
    "update": lambda table, options: table.update({"at": FINE}, options=options),
    "update with pandas": lambda table, options: table.update({"at": pd.Timestamp(5_999, tz="UTC")}, options=options),
    "computed update": lambda table, options: table.update({"at": FINE, "ts": "ts + 1"}, options=options),
    "merge": lambda table, options: table.merge(FINE_ROWS, on="id", options=options).when_matched_update_all().execute(),
    "merge of a value": lambda table, options: (
        table.merge(FINE_ROWS.select(["id"]), on="id", options=options).when_matched_update({"at": FINE}).execute()
    ),
    "INSERT": lambda table, options: _sql(table, "INSERT INTO t SELECT * FROM s", options),
    "MERGE INTO": lambda table, options: _sql(
        table, "MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET at = s.at", options
    ),
    "CREATE TABLE AS": lambda table, options: hp.sql(
        f"CREATE TABLE hudi.`memory://times-{next(_names)}` USING hudi TBLPROPERTIES (primaryKey = 'id') AS SELECT * FROM s",
        tables={"s": FINE_ROWS},
        options=options,
    ),
}


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS)
def test_statements_truncate_nanoseconds_only_on_request(statement: Callable[[Table, dict[str, object]], object]) -> None:
    table = made()
    table.upsert(rows(MOMENT, 1))
    with pytest.raises(InvalidRequest, match=f"microseconds.*{NANOSECONDS}=cut"):
        statement(table, {})
    assert read(table) == [MOMENT]
    statement(table, {NANOSECONDS: "cut"})
    assert read(table) in ([datetime(1970, 1, 1, microsecond=5, tzinfo=UTC)], [MOMENT])


def test_an_option_and_an_argument_that_differ_are_refused() -> None:
    with pytest.raises(HudiError, match="contradicts"):
        made().upsert(rows(MOMENT), schema_mode="strict", options={"pyhudi.schema.mode": "widen"})
