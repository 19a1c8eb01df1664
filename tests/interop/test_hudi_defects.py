"""Defects of Apache Hudi 1.0.2: PyHudi reads its tables correctly.

Each test also shows the defect, so it fails when a later release fixes it.
"""

from __future__ import annotations

import datetime
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import InvalidRequest, Table
from tests.interop.alternation import COMMON, OPERATION, READ
from tests.interop.oracle import ApacheHudi, HudiFailure
from tests.support.needs import WIDE
from tests.support.other_folder import with_other_values

KEY, ORDERING = "hoodie.datasource.write.recordkey.field", "hoodie.datasource.write.precombine.field"
PARTITION, TYPE = "hoodie.datasource.write.partitionpath.field", "hoodie.datasource.write.table.type"
OPTIONS: dict[str, Any] = {**COMMON, KEY: "id", ORDERING: "ts"}
# Without small files to fill, inserts make new files and updates go to logs.
MOR: dict[str, Any] = {**OPTIONS, TYPE: "MERGE_ON_READ", "hoodie.compact.inline": False, "hoodie.parquet.small.file.limit": 0}
NOON = datetime.datetime(2026, 11, 21, 12, 30, tzinfo=datetime.UTC)


def made(ids: str, ts: Any, **columns: Any) -> pa.Table:
    """A row for each letter.  columns: the same value in each row, or an array."""
    values = {
        name: value if isinstance(value, pa.Array) else pa.array([value] * len(ids))
        for name, value in {"ts": ts, **columns}.items()
    }
    return pa.table({"id": list(ids), **values})


def seen(path: Path, *columns: str) -> dict[str, Any]:
    """What we read: a value, or a tuple of them, of each id."""
    found = Table(path).scan(["id", *columns]).to_arrow().to_pylist()
    return {row["id"]: row[columns[0]] if len(columns) == 1 else tuple(row[name] for name in columns) for row in found}


@pytest.mark.parametrize("order", [("words", "price"), ("price", "words")])
def test_lists_with_short_decimals_of_a_bulk_insert(hudi: ApacheHudi, tmp_path: Path, order: tuple[str, str]) -> None:
    """The row writer then lays out lists as Hive did, and what copies rows in an upsert does not understand that: it fails where
    the list comes last, and loses the lists of all rows that it copies where another column follows.
    """
    columns: dict[str, pa.Array] = {
        "words": pa.array([["x", "y"], ["z"], None], pa.list_(pa.string())),
        "price": pa.array([Decimal("1.25"), Decimal("-9999999.99"), None], pa.decimal128(9, 2)),
    }
    data = made("abc", 1, **{name: columns[name] for name in order})
    hudi.write(data, tmp_path / "theirs", **(OPTIONS | {OPERATION: "bulk_insert"}))
    hudi.write(data, tmp_path / "ours", **(OPTIONS | {OPERATION: "bulk_insert"}))
    if order[-1] == "words":
        with pytest.raises(HudiFailure, match="unable to read next record from parquet file"):
            hudi.write(data.slice(0, 1), tmp_path / "theirs", **OPTIONS)
    else:
        hudi.write(data.slice(0, 1), tmp_path / "theirs", **OPTIONS)
        lost = {row["id"]: row["words"] for row in hudi.read(tmp_path / "theirs", **READ).to_pylist()}
        assert lost == {"a": ["x", "y"], "b": None, "c": None}

    Table(tmp_path / "ours").upsert(data.slice(0, 1))
    expected = {row["id"]: row["words"] for row in data.to_pylist()}
    assert seen(tmp_path / "ours", "words") == expected
    # Once PyHudi has rewritten the file, Apache Hudi can copy its rows.
    hudi.write(data.slice(2), tmp_path / "ours", **OPTIONS)
    assert {row["id"]: row["words"] for row in hudi.read(tmp_path / "ours", **READ).to_pylist()} == expected


def test_bytes_and_shorts_of_a_bulk_insert(hudi: ApacheHudi, tmp_path: Path) -> None:
    """The row writer annotates such columns, and its own reader cannot take them for the integers that the schema names."""
    data = made("abc", 1, tiny=pa.array([-128, 0, None], pa.int8()), small=pa.array([-32768, None, 7], pa.int16()))
    hudi.write(data, tmp_path, **(OPTIONS | {OPERATION: "bulk_insert"}))
    with pytest.raises(HudiFailure, match="NullPointerException"):
        hudi.read(tmp_path, **READ)
    assert seen(tmp_path, "tiny", "small") == {"a": (-128, -32768), "b": (0, None), "c": (None, 7)}
    Table(tmp_path).upsert(made("ad", 2, tiny=pa.array([1, 2], pa.int8()), small=pa.array([3, 4], pa.int16())))
    expected = {"a": (1, 3), "b": (0, None), "c": (None, 7), "d": (2, 4)}
    assert seen(tmp_path, "tiny", "small") == expected
    # Our rewriting of the file has repaired it.
    assert {row["id"]: (row["tiny"], row["small"]) for row in hudi.read(tmp_path, **READ).to_pylist()} == expected


def test_a_row_that_returns_after_a_delete(hudi: ApacheHudi, tmp_path: Path) -> None:
    """The delete has the ordering value Integer 0, which is then compared with a Long."""
    hudi.write(made("abc", 1, note="old"), tmp_path, **MOR)
    hudi.write(made("ab", 5, note="gone"), tmp_path, **(MOR | {OPERATION: "delete"}))
    hudi.write(made("ac", 6, note="back"), tmp_path, **MOR)
    with pytest.raises(HudiFailure, match="ClassCastException"):
        hudi.read(tmp_path, **READ)
    assert seen(tmp_path, "note") == {"a": "back", "c": "back"}
    Table(tmp_path).compact()
    assert seen(tmp_path, "note") == {"a": "back", "c": "back"}
    assert {row["id"] for row in hudi.read(tmp_path, **READ).to_pylist()} == {"a", "c"}


def test_deletes_with_decimals_as_ordering_values(hudi: ApacheHudi, tmp_path: Path) -> None:
    def rows(ids: str, ts: str, note: str, *deleted: bool) -> pa.Table:
        columns = {"note": note, "_hoodie_is_deleted": pa.array(deleted)}
        return made(ids, pa.array([Decimal(ts)] * 2, pa.decimal128(9, 2)), **columns)

    hudi.write(rows("ab", "1.50", "first", False, False), tmp_path, **MOR)
    hudi.write(rows("ac", "2.25", "newer", False, False), tmp_path, **MOR)
    hudi.write(rows("ab", "1.75", "late", True, True), tmp_path, **MOR)
    with pytest.raises(HudiFailure, match="ClassCastException"):
        hudi.read(tmp_path, **READ)
    assert seen(tmp_path, "note") == {"a": "newer", "c": "newer"}


def test_a_compaction_by_path_does_not_know_the_ordering_field(hudi: ApacheHudi, tmp_path: Path) -> None:
    """`CALL run_compaction(path => ...)` merges as if all ordering values were the Integer 0: late rows win, and deletes that
    have a value end it.  With the field among its options, or by the name of the table, it is right.
    """
    due = "hoodie.metadata.enable=false,hoodie.compact.inline.max.delta.commits=1"
    known = f"{due},{ORDERING}=ts"

    def rows(ids: str, ts: int, note: str, *, gone: bool = False) -> pa.Table:
        return made(ids, ts, note=note, _hoodie_is_deleted=pa.array([gone] * len(ids)))

    late = [rows("ab", 1, "old"), rows("ab", 5, "new"), rows("a", 3, "late")]
    deleted = [*late, rows("b", 7, "gone", gone=True), rows("c", 7, "new")]
    # Who wrote the logs makes no difference to it.
    for name in ("theirs", "ours") if WIDE else ("ours",):
        kept, ended = tmp_path / name / "late", tmp_path / name / "deleted"
        for path, batches in ((kept, late), (ended, deleted)):
            if name == "ours":
                table = Table.create(path, options=MOR)
                for batch in batches:
                    table.upsert(batch)
            else:
                for batch in batches:
                    hudi.write(batch, path, **MOR)
        hudi.call("run_compaction", op="scheduleAndExecute", path=str(kept), options=due)
        assert seen(kept, "note") == {"a": "late", "b": "new"}
        with pytest.raises(HudiFailure, match="ClassCastException"):
            hudi.call("run_compaction", op="scheduleAndExecute", path=str(ended), options=due)
        assert seen(ended, "note") == {"a": "new", "c": "new"}
        hudi.call("run_compaction", op="run", path=str(ended), options=known)
        assert Table(ended).timeline().pending() == ()
        assert {row["id"]: row["note"] for row in hudi.read(ended, **READ).to_pylist()} == {"a": "new", "c": "new"}
        assert seen(ended, "note") == {"a": "new", "c": "new"}


def test_logs_without_meta_columns(hudi: ApacheHudi, tmp_path: Path) -> None:
    options = MOR | {"hoodie.populate.meta.fields": False}
    hudi.write(made("abc", 1, note="old"), tmp_path, **options)
    hudi.write(made("ad", 2, note="new"), tmp_path, **options)
    assert list(tmp_path.glob(".*.log.*"))
    with pytest.raises(HudiFailure, match="NullPointerException"):
        hudi.read(tmp_path, **READ)
    assert seen(tmp_path, "note") == {"a": "new", "b": "old", "c": "old", "d": "new"}


def test_partial_rows_where_the_last_write_wins(hudi: ApacheHudi, tmp_path: Path) -> None:
    """MERGE INTO writes them, and the reader of such a table does not know them."""
    path = tmp_path / "t"
    hudi.sql("DROP TABLE IF EXISTS defect_partial")
    hudi.sql("SET hoodie.metadata.enable=false")
    hudi.sql(
        f"CREATE TABLE defect_partial (id STRING, ts BIGINT, note STRING, fare DOUBLE) USING hudi "
        f"TBLPROPERTIES (type = 'mor', primaryKey = 'id') LOCATION '{path}'"
    )
    hudi.sql("INSERT INTO defect_partial VALUES ('a', 1, 'old', 1.5), ('b', 1, 'old', 2.5)")
    hudi.view("defect_news", pa.table({"id": ["a"], "ts": [2], "fare": [9.5]}))
    hudi.sql(
        "MERGE INTO defect_partial t USING defect_news s ON t.id = s.id WHEN MATCHED THEN UPDATE SET t.ts = s.ts, t.fare = s.fare"
    )
    with pytest.raises(HudiFailure):
        hudi.read(path, **READ)
    assert seen(path, "ts", "note", "fare") == {"a": (2, "old", 9.5), "b": (1, "old", 2.5)}


def test_incremental_read_from_the_earliest_commit(hudi: ApacheHudi, tmp_path: Path) -> None:
    hudi.write(made("ab", 1), tmp_path, **OPTIONS)
    hudi.write(made("bc", 2), tmp_path, **OPTIONS)
    query: dict[str, Any] = {
        "hoodie.datasource.query.type": "incremental",
        "hoodie.datasource.read.begin.instanttime": "earliest",
        **READ,
    }
    assert hudi.read(tmp_path, **query).num_rows == 0
    found = Table(tmp_path).incremental("earliest", columns=["id", "ts"]).to_arrow()
    assert {row["id"]: row["ts"] for row in found.to_pylist()} == {"a": 1, "b": 2, "c": 2}


def test_partition_values_not_recoverable_from_the_path(hudi: ApacheHudi, tmp_path: Path) -> None:
    """The real reader takes them from the path: `a=b` becomes `b`, empty becomes null.  The files have them as they are."""
    data = pa.table({"id": ["a", "b", "c"], "ts": [1, 1, 1], "place": ["x=y", "", "plain"]})
    hudi.write(data, tmp_path, **(OPTIONS | {PARTITION: "place"}))
    real = {row["id"]: row["place"] for row in hudi.read(tmp_path, **READ).to_pylist()}
    assert real == {"a": "y", "b": None, "c": "plain"}
    assert seen(tmp_path, "place") == {"a": "x=y", "b": "", "c": "plain"}
    assert Table(tmp_path).scan(["id"], filter="place = 'x=y'").to_arrow()["id"].to_pylist() == ["a"]
    assert Table(tmp_path).scan(["id"], filter="place = ''").to_arrow()["id"].to_pylist() == ["b"]
    # And by us: found again, not written twice.
    Table(tmp_path).upsert(data.set_column(1, "ts", pa.array([2, 2, 2])))
    assert seen(tmp_path, "ts") == {"a": 2, "b": 2, "c": 2}


def test_timestamps_as_partition_values(hudi: ApacheHudi, tmp_path: Path) -> None:
    moments = [NOON, NOON + datetime.timedelta(microseconds=1), None]
    data = pa.table({"id": ["a", "b", "c"], "ts": [1, 1, 1], "at": pa.array(moments, pa.timestamp("us", "UTC"))})
    hudi.write(data, tmp_path, **(OPTIONS | {PARTITION: "at"}))
    assert {row["at"] for row in hudi.read(tmp_path, **READ).to_pylist()} == {None}
    assert seen(tmp_path, "at") == dict(zip("abc", moments, strict=True))
    assert Table(tmp_path).scan(["id"], filter="at = '2026-11-21 12:30:00'").to_arrow()["id"].to_pylist() == ["a"]
    Table(tmp_path).upsert(data.set_column(1, "ts", pa.array([2, 2, 2])))
    assert seen(tmp_path, "ts") == {"a": 2, "b": 2, "c": 2}


@pytest.mark.parametrize(("release", "version"), [("hudi", 8), ("newer_hudi", 9)])
def test_partition_column_as_ordering_field(release: str, version: int, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """The file stores another value than its folder: real rows show the file's, real filters use the folder's."""
    real: ApacheHudi = request.getfixturevalue(release)
    options = COMMON | {"hoodie.write.table.version": version}
    with with_other_values("place", 50):
        table = Table.create(tmp_path, record_key="id", partition_by=["place"], ordering="place", options=options)
        table.insert(pa.table({"id": ["a", "b"], "place": [1, 2]}))
    assert [row["place"] for row in real.read(tmp_path, **READ).to_pylist()] == [50, 50]
    assert [row["id"] for row in real.read(tmp_path, where="place = 1", **READ).to_pylist()] == ["a"]
    assert real.read(tmp_path, where="place = 50", **READ).num_rows == 0
    assert seen(tmp_path, "place") == {"a": 1, "b": 2}
    assert Table(tmp_path).scan(["id"], filter="place = 1").to_arrow()["id"].to_pylist() == ["a"]


def test_nulls_in_arrays(hudi: ApacheHudi, tmp_path: Path) -> None:
    """Apache Hudi reads them and cannot copy them."""
    words = pa.array([["x", None], [None]], pa.list_(pa.string()))
    Table.create(tmp_path / "t", options=OPTIONS).insert(made("ab", 1, words=words))
    assert {row["id"]: row["words"] for row in hudi.read(tmp_path / "t", **READ).to_pylist()} == {"a": ["x", None], "b": [None]}
    more = made("bc", 2, words=pa.array([["y"], []], pa.list_(pa.string())))
    with pytest.raises(HudiFailure, match="null element"):
        hudi.write(more, tmp_path / "t", **OPTIONS)
    # What it left behind is rolled back, and the rows are where they should be.
    result = Table(tmp_path / "t").upsert(more)
    assert len(result.rolled_back) == 1
    assert seen(tmp_path / "t", "words") == {"a": ["x", None], "b": ["y"], "c": []}


def test_hfile_blocks_in_logs_without_meta_columns(hudi: ApacheHudi, tmp_path: Path) -> None:
    """Its old reader takes ours as we take its, and its compaction too."""
    options = MOR | {"hoodie.logfile.data.block.format": "hfile", "hoodie.populate.meta.fields": False}
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    hudi.write(made("abc", 1, note="old"), theirs, **options)
    hudi.write(made("da", 2, note="new"), theirs, **options)
    table = Table.create(ours, options=options)
    table.insert(made("abc", 1, note="old"))
    table.upsert(made("da", 2, note="new"))
    wanted = dict(zip("abcd", ("new", "old", "old", "new"), strict=True))
    old_reader = READ | {"hoodie.file.group.reader.enabled": False}
    for path in (theirs, ours):
        assert seen(path, "note") == wanted
        assert {row["id"]: row["note"] for row in hudi.read(path, **old_reader).to_pylist()} == wanted
    hudi.register(ours, "hfile_virtual_keys")
    compact = "hoodie.metadata.enable=false,hoodie.compact.inline.max.delta.commits=1"
    hudi.call("run_compaction", op="scheduleAndExecute", table="hfile_virtual_keys", options=compact)
    assert {row["id"]: row["note"] for row in hudi.read(ours, **READ).to_pylist()} == seen(ours, "note") == wanted


def test_hfile_blocks_in_logs(hudi: ApacheHudi, tmp_path: Path) -> None:
    """Apache Hudi writes them and reads them with its old reader alone; we read its blocks, and it reads ours with that one."""
    options = MOR | {"hoodie.logfile.data.block.format": "hfile"}
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    hudi.write(made("abc", 1, note="old"), theirs, **options)
    hudi.write(made("ad", 2, note="new"), theirs, **options)
    table = Table.create(ours, options=options)
    table.insert(made("abc", 1, note="old"))
    table.upsert(made("ad", 2, note="new"))
    for path in (theirs, ours):
        with pytest.raises(HudiFailure, match="ClassCastException"):
            hudi.read(path, **READ)
        assert seen(path, "note", "_hoodie_record_key") == {
            key: (note, key) for key, note in zip("abcd", ("new", "old", "old", "new"), strict=True)
        }
    old_reader = READ | {"hoodie.file.group.reader.enabled": False}
    assert {row["id"]: row["note"] for row in hudi.read(ours, **old_reader).to_pylist()} == seen(ours, "note")
    table.compact()
    assert {row["id"]: row["note"] for row in hudi.read(ours, **READ).to_pylist()} == seen(ours, "note")


def test_nan_in_columns_with_statistics(hudi: ApacheHudi, tmp_path: Path) -> None:
    """A bound that is NaN makes its data skipping prune the file, although it sorts NaN above every number.

    PyHudi writes +Infinity for NaN, which affects only filters for still larger values.
    """
    nan = float("nan")
    data = made("abcde", 1, city=pa.array(["x", "x", "y", "y", "z"]), fare=pa.array([1.0, 20.0, 20.0, nan, nan]))
    options: dict[str, Any] = {**OPTIONS, PARTITION: "city", "hoodie.metadata.enable": True}
    statistics: dict[str, Any] = {"hoodie.metadata.index.column.stats.enable": True}
    hudi.write(data, tmp_path / "theirs", **options, **statistics)
    Table.create(tmp_path / "ours", record_key="id", ordering="ts", partition_by="city", options=options)
    Table(tmp_path / "ours").upsert(data, options=statistics)

    def found(name: str, *conditions: str) -> list[str]:
        skipping: dict[str, Any] = {"hoodie.metadata.enable": True, "hoodie.enable.data.skipping": True}
        return ["".join(sorted(rows["id"].to_pylist())) for rows in hudi.read_each(tmp_path / name, conditions, **skipping)]

    wholes = {"fare > 13.5": "bcde", "fare in (20, 21)": "bc", "fare < 2": "a", "not (fare <= 2)": "bcde"}
    for condition, whole in wholes.items():
        assert "".join(sorted(Table(tmp_path / "theirs").scan(["id"], condition).to_arrow()["id"].to_pylist())) == whole
    beyond = "fare > double('Infinity')"
    assert found("ours", *wholes, beyond) == [*wholes.values(), ""]
    assert found("theirs", "fare > 13.5", beyond) == ["b", ""]
    assert Table(tmp_path / "ours").validate().ok


def test_a_column_that_came_after_a_partition_was_written(hudi: ApacheHudi, tmp_path: Path) -> None:
    """Statistics of that partition do not name the column, so it is pruned under a second condition."""
    path = tmp_path / "t"
    options = {**OPTIONS, PARTITION: "part", "hoodie.metadata.enable": True, "hoodie.write.set.null.for.missing.columns": True}
    hudi.write(made("ab", 1, part=pa.array(["x", "y"])), path, **options)
    hudi.write(made("a", 2, part="x", more="m"), path, **options)
    skipping: dict[str, Any] = {"hoodie.metadata.enable": True, "hoodie.enable.data.skipping": True}
    assert hudi.read(path, where="more is null", **skipping).num_rows == 1
    assert hudi.read(path, where="more is null and ts = 1", **skipping).num_rows == 0
    assert hudi.read(path, where="more is null and ts = 1", **READ).num_rows == 1
    for where in ("more is null", "more is null and ts = 1", "more is null and id = 'b'"):
        assert Table(path).scan(["id"], filter=where).to_arrow()["id"].to_pylist() == ["b"]


def test_key_reinserted_in_another_partition(hudi: ApacheHudi, tmp_path: Path) -> None:
    """Its upsert goes to the base file whose log deleted the key, too; ours, on a copy of the same table, to the row alone."""
    path, copy = tmp_path / "t", tmp_path / "copy"
    options: dict[str, Any] = {
        **MOR,
        "hoodie.write.record.merge.mode": "COMMIT_TIME_ORDERING",
        "hoodie.index.type": "SIMPLE",
    }
    hudi.write(made("ab", 1), path, **(options | {OPERATION: "insert"}))
    hudi.write(made("a", 1), path, **(options | {OPERATION: "delete"}))
    hudi.write(made("a", 2), path, **(options | {OPERATION: "bulk_insert"}))
    shutil.copytree(path, copy)
    hudi.write(made("a", 3), path, **(options | {OPERATION: "upsert"}))
    assert sorted(hudi.read(path, **READ)["id"].to_pylist()) == ["a", "a", "b"]
    Table(copy, options=options).upsert(made("a", 3))
    for found in (hudi.read(copy, **READ), Table(copy).scan().to_arrow()):
        assert sorted(zip(found["id"].to_pylist(), found["ts"].to_pylist(), strict=True)) == [("a", 3), ("b", 1)]


def test_decimals_of_a_smaller_scale_become_others(hudi: ApacheHudi, tmp_path: Path) -> None:
    """A copied 1.25 becomes 12.5; PyHudi refuses the upsert that causes it."""
    rows = made("ab", 1, d=pa.array([Decimal("1.25"), Decimal("2.50")], pa.decimal128(3, 2)))
    update = made("b", 2, d=pa.array([Decimal("12.5")], pa.decimal128(3, 1)))
    for name in ("theirs", "ours"):
        hudi.write(rows, tmp_path / name, **(OPTIONS | {OPERATION: "bulk_insert"}))
    hudi.write(update, tmp_path / "theirs", **OPTIONS)
    assert {row["d"] for row in hudi.read(tmp_path / "theirs", **READ).to_pylist()} == {Decimal("12.5")}
    with pytest.raises(InvalidRequest):
        Table(tmp_path / "ours").upsert(update)
    assert seen(tmp_path / "ours", "d") == {"a": Decimal("1.25"), "b": Decimal("2.50")}


def test_upserts_with_the_operation_column_are_lost(hudi: ApacheHudi, tmp_path: Path) -> None:
    path, options = tmp_path / "t", {**MOR, "hoodie.allow.operation.metadata.field": True}
    for v in (1, 2):
        hudi.write(made("a", v, v=v), path, **options)
    assert [row["v"] for row in hudi.read(path, **READ).to_pylist()] == [1]
    Table(path).upsert(made("a", 3, v=3))
    assert [row["v"] for row in hudi.read(path, **READ).to_pylist()] == [3] == list(seen(path, "v").values())


def test_filters_do_not_find_long_texts(hudi: ApacheHudi, tmp_path: Path) -> None:
    """Parquet stores no statistics for them, and their file counts as one without rows."""
    path = tmp_path / "t"
    text = "x" * (8 << 10)
    indexed = {"hoodie.metadata.enable": True, "hoodie.metadata.index.column.stats.enable": True}
    hudi.write(made("a", 1, text=text), path, **OPTIONS | indexed | {OPERATION: "bulk_insert"})
    skipping = {"hoodie.metadata.enable": True, "hoodie.enable.data.skipping": True}
    assert hudi.read(path, where=f"text = '{text}'", columns=["id"], **skipping).num_rows == 0
    assert Table(path).scan(["id"], filter=[("text", "=", text)]).to_arrow()["id"].to_pylist() == ["a"]
