"""`hp.write`, overwrites with a predicate, counts, and tables opened as of a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi import Table
from pyhudi.errors import HudiError, InvalidRequest, TableExists, TableNotFound, Unsupported
from pyhudi.operations.admin.open_table import make_table, open_context

_numbers = itertools.count()


@pytest.fixture
def uri() -> str:
    return f"memory://write-{next(_numbers)}/t"


def rows(*keys: int, day: str = "2026-01-01", **more: Any) -> pa.Table:
    return pa.table({"id": list(keys), "ts": [1] * len(keys), "day": [day] * len(keys), **more})


def ids(uri: str) -> list[int]:
    return sorted(hp.Table(uri).scan(["id"]).to_arrow()["id"].to_pylist())


def test_a_write_creates_the_table_and_upserts(uri: str) -> None:
    first = hp.write(uri, rows(1, 2), record_key="id", partition_by="day", ordering="ts", table_type="mor", name="trips")
    assert (first.operation, first.rows_inserted) == ("upsert", 2)
    table = hp.Table(uri)
    assert (table.name, table.config.is_cow, table.config.keys.record_fields) == ("trips", False, ("id",))
    hp.write(uri, [{"id": 3, "ts": 1, "day": "2026-01-02"}])
    assert ids(uri) == [1, 2, 3]
    assert hp.write(uri, rows(2)).rows_updated == 1


def test_modes_that_contradict_the_operation_are_refused(uri: str) -> None:
    for mode, operation, where in (
        ("append", "upsert", None),
        ("upsert", "insert", None),
        ("overwrite", "upsert", "day = '2026-01-01'"),
    ):
        with pytest.raises(InvalidRequest, match=f"contradicts option hoodie.datasource.write.operation={operation}"):
            hp.write(uri, rows(1), mode, where=where, options={"hoodie.datasource.write.operation": operation})
    assert (
        hp.write(uri, rows(1), "append", options={"hoodie.datasource.write.operation": "bulk_insert"}).operation == "bulk_insert"
    )


def test_a_first_overwrite_with_a_predicate_creates_the_table(uri: str) -> None:
    more: dict[str, Any] = {"mode": "overwrite", "where": "day = '2026-01-01'", "record_key": "id", "partition_by": "day"}
    with pytest.raises(InvalidRequest, match="lie outside of the overwrite"):
        hp.write(uri, rows(1, day="2026-01-02"), **more)
    assert not hp.Table.exists(uri)
    assert hp.write(uri, rows(1), **more).rows_inserted == 1


def test_upsert_overwrite_ignore_and_error(uri: str) -> None:
    hp.write(uri, rows(1, 2), "upsert", record_key="id")
    assert hp.write(uri, rows(2, 3), mode="upsert").rows_updated == 1
    assert hp.write(uri, rows(9), mode="ignore").instant is None
    with pytest.raises(TableExists):
        hp.write(uri, rows(9), mode="error")
    hp.write(uri, rows(7, extra=["x"]), mode="overwrite")
    assert hp.Table(uri).scan(["id", "extra"]).to_arrow().to_pylist() == [{"id": 7, "extra": "x"}]
    with pytest.raises(InvalidRequest, match="mode 'replace' is unknown: choose from append, overwrite"):
        hp.write(uri, rows(9), mode="replace")
    with pytest.raises(InvalidRequest, match="contradict"):
        hp.write(uri, rows(9), record_key="day")


def test_a_first_write_that_fails_leaves_no_table(uri: str) -> None:
    with pytest.raises(InvalidRequest):
        hp.write(uri, rows(1), record_key="key")
    with pytest.raises(TableNotFound):
        hp.Table(uri)


def test_commit_metadata_is_shown_newest_first(uri: str) -> None:
    hp.write(uri, rows(1), record_key="id", commit_metadata={"job": "daily", "owner": "ada"})
    hp.write(uri, rows(2))
    hp.Table(uri).insert(rows(3), options={"_job": "hourly"})
    shown = hp.Table(uri).inspect.commits().to_pylist()
    assert [dict(row["metadata"]) for row in shown] == [{"_job": "hourly"}, {}, {"job": "daily", "owner": "ada"}]
    assert [row["request_time"] for row in shown] == sorted((row["request_time"] for row in shown), reverse=True)
    assert hp.Table(uri).inspect.timeline()["request_time"][0].as_py() == shown[0]["request_time"]
    with pytest.raises(InvalidRequest, match="reserved"):
        hp.write(uri, rows(4), commit_metadata={"schema": "x"})


def test_once_and_schema_modes(uri: str) -> None:
    hp.write(uri, rows(1), record_key="id", once=("load", 1))
    assert hp.write(uri, rows(2), once=("load", 1)).skipped
    with pytest.raises(InvalidRequest, match="schema mode strict"):
        hp.write(uri, rows(2, extra=[1]), schema_mode="strict")
    assert ids(uri) == [1]


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_overwrite_with_a_predicate(uri: str, table_type: str) -> None:
    table = hp.Table.create(uri, record_key="id", partition_by="day", table_type=table_type)
    for number, day in enumerate(("2026-01-01", "2026-01-02", "2026-01-03")):
        table.insert(rows(number, day=day))
    result = table.insert_overwrite(rows(10, day="2026-01-02"), where="day = '2026-01-02'")
    assert result.file_groups_replaced == 1
    assert ids(uri) == [0, 2, 10]
    with pytest.raises(InvalidRequest, match=r"rows of partition '2026-01-03' lie outside of the overwrite"):
        table.insert_overwrite(rows(11, day="2026-01-03"), where="day = '2026-01-02'")
    # Partitions that match and have no new rows become empty.
    table.insert_overwrite(rows(12, day="2026-01-02"), where="day >= '2026-01-02'")
    assert ids(uri) == [0, 12]
    with pytest.raises(InvalidRequest, match=r"id is no partition column\. Use the partition columns \(day\)"):
        table.insert_overwrite(rows(1), where="id = 1")
    assert ids(uri) == [0, 12]


def test_overwrite_where_partition_values_do_not_decide_is_refused(uri: str) -> None:
    table = hp.Table.create(
        uri,
        record_key="id",
        partition_by="at:TIMESTAMP",
        options={
            "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
            "hoodie.keygen.timebased.output.dateformat": "yyyy",
        },
    )
    table.insert({"id": [1], "at": [1_700_000_000_000]})
    with pytest.raises(Unsupported, match="the path of partition '2023' does not decide it"):
        table.insert_overwrite({"id": [2], "at": [1_700_000_000_001]}, where="at > 1600000000000")


def test_count(uri: str) -> None:
    table = hp.Table.create(uri, record_key="id")
    first = table.insert(rows(1, 2))
    table.insert(rows(3))
    assert (table.count(), table.count("id > 1"), table.count(as_of=first)) == (3, 2, 2)


def test_a_table_as_of_a_time_is_read_only(uri: str) -> None:
    table = hp.Table.create(uri, record_key="id")
    first = table.insert(rows(1, 2))
    table.insert(rows(3, extra=["x"]))
    past = hp.Table(uri, as_of=first)
    assert past.count() == 2
    assert "extra" not in past.schema().names
    assert "_hoodie_record_key" in past.schema(meta_columns=True).names
    assert past.lookup([3]).count() == 0
    assert table.count() == 3
    for act in (lambda: past.insert(rows(4)), lambda: past.delete([1]), lambda: past.incremental("earliest")):
        with pytest.raises(HudiError, match=r"as\.of\.instant"):
            act()
    with pytest.raises(InvalidRequest, match="contradicts"):
        past.scan(as_of="2020-01-01")


def test_argument_names_of_other_libraries_suggest_the_pyhudi_name(uri: str) -> None:
    table = hp.Table.create(uri, record_key="id")
    table.insert(rows(1))
    for owner, name, hint in (
        (table.alter, "add_columns", r"use \.add\(column, type\)"),
        (table, "vacuum", r"use \.clean\(\)"),
        (table, "services", r"use \.compact\(\)"),
        (table.scan(), "collect", r"use \.to_arrow\(\)"),
        (hp, "DeltaTable", r"use pyhudi\.Table\(uri\)"),
        (hp, "write_deltalake", r"use pyhudi\.write"),
    ):
        with pytest.raises(AttributeError, match=hint):
            getattr(owner, name)
    with pytest.raises(InvalidRequest, match=r"has no argument predicate=: pass where="):
        table.delete(predicate="id = 1")  # type: ignore[call-arg]


@pytest.mark.parametrize("mode", ["widen", "evolve"])
def test_a_first_write_without_nulls_leaves_columns_nullable(tmp_path: Path, mode: str) -> None:
    path = str(tmp_path / "t")
    hp.write(path, {"id": ["a"], "value": [1]}, record_key="id", schema_mode=mode)
    hp.write(path, {"id": ["b"], "value": [2]}, mode="upsert", schema_mode=mode)
    table = hp.Table(path)
    table.upsert({"id": ["c"], "value": [3]}, schema_mode=mode)
    assert table.schema().field("value").nullable
    table.upsert(pa.table({"id": ["d"], "value": pa.array([None], pa.int64())}))
    assert table.count() == 4


def create_before(monkeypatch: pytest.MonkeyPatch, other: Callable[[], object]) -> None:
    """Let another writer act after a write was planned for a table that does not exist, and before it creates it."""
    calls = [other]

    def make(*arguments: Any) -> None:
        if calls:
            calls.pop()()
        make_table(*arguments)

    monkeypatch.setattr("pyhudi.operations.write.save_modes.make_table", make)


@pytest.mark.parametrize(("mode", "expected"), [("append", [1, 2]), ("upsert", [1, 2]), ("overwrite", [2]), ("ignore", [1])])
def test_a_table_that_another_writer_has_just_created_is_used(
    uri: str, monkeypatch: pytest.MonkeyPatch, mode: str, expected: list[int]
) -> None:
    create_before(monkeypatch, lambda: Table.create(uri, record_key="id", partition_by="day").insert(rows(1)))
    result = hp.write(uri, rows(2), mode, record_key="id", partition_by="day", commit_metadata={"job": "x"})
    assert ids(uri) == expected
    assert (result.instant is None) == (mode == "ignore")
    assert mode == "ignore" or dict(hp.Table(uri).inspect.commits()["metadata"][0].as_py())["job"] == "x"


@pytest.mark.parametrize(
    ("mode", "arguments", "error"),
    [
        ("error", {"record_key": "id"}, TableExists),
        ("append", {"record_key": "ts"}, InvalidRequest),
        ("append", {"record_key": "id", "partition_by": "day"}, InvalidRequest),
    ],
)
def test_another_table_that_another_writer_has_just_created_is_refused(
    uri: str, monkeypatch: pytest.MonkeyPatch, mode: str, arguments: dict[str, Any], error: type[HudiError]
) -> None:
    create_before(monkeypatch, lambda: Table.create(uri, record_key="id").insert(rows(1)))
    with pytest.raises(error):
        hp.write(uri, rows(2), mode, **arguments)
    assert ids(uri) == [1]


def test_a_table_that_another_writer_has_just_removed_is_created(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Table.create(uri, record_key="id")

    def open_then_drop(*arguments: Any) -> Any:
        context = open_context(*arguments)
        monkeypatch.setattr(name, open_context)
        hp.Table(uri).drop()
        return context

    name = "pyhudi.operations.write.save_modes.open_context"
    monkeypatch.setattr(name, open_then_drop)
    hp.write(uri, rows(2), record_key="id")
    assert ids(uri) == [2]
