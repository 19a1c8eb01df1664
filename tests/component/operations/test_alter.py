"""`Table.alter` adds, drops, renames, retypes, reorders and comments columns by id without rewriting files."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import InvalidRequest, TableState, Unsupported
from pyhudi.format.actions.commit_metadata import LATEST_SCHEMA_KEY, SCHEMA_KEY, Operation
from pyhudi.format.actions.requested_replace import RequestedReplaceMetadata
from pyhudi.format.instants import Action, State
from pyhudi.operations.admin import alter_columns
from pyhudi.operations.commit.transaction import Transaction
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.table.snapshot import read_commit
from tests.support.golden_tables import open_golden
from tests.support.paused_write import PausedWrite

NO_SERVICES = {"hoodie.compact.inline": "false", "hoodie.clean.automatic": "false"}
STATISTICS = {"hoodie.metadata.enable": "true", "hoodie.metadata.index.column.stats.enable": "true"}
VERSION_9 = {"hoodie.write.table.version": "9"}
Change = Callable[[Table], Any]


def new_table(path: Path, kind: str = "cow", **options: str) -> Table:
    options = {"hoodie.metadata.enable": "false", **(NO_SERVICES if kind == "mor" else {}), **options}
    return Table.create(path / "t", record_key="id", ordering="ts", partition_by="city", table_type=kind, options=options)


def rows(*keys: str, ts: int = 1) -> pa.Table:
    count = len(keys)
    stops = pa.array([[{"k": n, "l": f"l{n}"}] for n in range(count)], pa.list_(pa.struct({"k": pa.int32(), "l": pa.string()})))
    prices = pa.map_(pa.string(), pa.struct({"m": pa.int32()}))
    return pa.table(
        {
            "id": list(keys),
            "ts": [ts] * count,
            "city": ["oslo" if n % 2 else "rome" for n in range(count)],
            "rider": [f"r{n}" for n in range(count)],
            "fare": [n + 0.5 for n in range(count)],
            "n": pa.array(range(count), pa.int32()),
            "st": pa.array([{"x": n, "y": f"y{n}"} for n in range(count)], pa.struct({"x": pa.int32(), "y": pa.string()})),
            "ar": stops,
            "mp": pa.array([[("p", {"m": n})] for n in range(count)], prices),
            "li": pa.array([[n, None] if n else None for n in range(count)], pa.list_(pa.int32())),
            "mi": pa.array([[("p", n)] for n in range(count)], pa.map_(pa.string(), pa.int32())),
        }
    )


def by_id(table: Table, **query: Any) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in table.scan(**query).to_arrow().to_pylist()}


def newest_schema(table: Table) -> dict[str, Any]:
    commit = read_commit(table.context.timeline, table.timeline().completed_writes()[-1])
    found: dict[str, Any] = json.loads(commit.extra_metadata[LATEST_SCHEMA_KEY])
    return found


# What each method does


def changed(row: dict[str, Any], **values: Any) -> dict[str, Any]:
    return {**row, **values}


def renamed(row: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    return {new if name == old else name: value for name, value in row.items()}


def added_again(table: Table) -> None:
    table.alter.drop("fare")
    table.alter.add("fare", pa.float64())


def swapped(table: Table) -> None:
    for old, new in (("rider", "other"), ("fare", "rider"), ("other", "fare")):
        table.alter.rename(old, new)


CHANGES: dict[str, tuple[Change, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "add": (lambda t: t.alter.add("tip", pa.float32(), after="fare"), lambda row: changed(row, tip=None)),
    "add a struct": (lambda t: t.alter.add("more", pa.struct({"a": pa.list_(pa.int8())})), lambda row: changed(row, more=None)),
    "add below": (lambda t: t.alter.add("st.z", pa.string()), lambda row: changed(row, st={**row["st"], "z": None})),
    "add first in a struct": (
        lambda t: t.alter.add("st.z", pa.string(), first=True),
        lambda row: changed(row, st={"z": None, **row["st"]}),
    ),
    "add below a list": (
        lambda t: t.alter.add("ar.element.m", pa.string(), after="k"),
        lambda row: changed(row, ar=[{**entry, "m": None} for entry in row["ar"]]),
    ),
    "add below a map": (
        lambda t: t.alter.add("mp.value.o", pa.string()),
        lambda row: changed(row, mp=[(key, {**value, "o": None}) for key, value in row["mp"]]),
    ),
    "drop": (lambda t: t.alter.drop("rider"), lambda row: {name: row[name] for name in row if name != "rider"}),
    "drop below": (lambda t: t.alter.drop("st.x"), lambda row: changed(row, st={"y": row["st"]["y"]})),
    "drop and add again": (added_again, lambda row: changed(row, fare=None)),
    "rename": (lambda t: t.alter.rename("rider", "driver"), lambda row: renamed(row, "rider", "driver")),
    "swap names": (swapped, lambda row: changed(row, rider=row["fare"], fare=row["rider"])),
    "rename a struct": (lambda t: t.alter.rename("st", "su"), lambda row: renamed(row, "st", "su")),
    "rename below": (
        lambda t: t.alter.rename("ar.element.k", "kk"),
        lambda row: changed(row, ar=[{"kk": entry["k"], "l": entry["l"]} for entry in row["ar"]]),
    ),
    "retype": (lambda t: t.alter.retype("n", pa.int64()), lambda row: row),
    "retype to text": (lambda t: t.alter.retype("n", pa.string()), lambda row: changed(row, n=str(row["n"]))),
    "retype below": (
        lambda t: t.alter.retype("mp.value.m", pa.string()),
        lambda row: changed(row, mp=[(key, {"m": str(value["m"])}) for key, value in row["mp"]]),
    ),
    "retype the entries of a list": (
        lambda t: t.alter.retype("li.element", pa.string()),
        lambda row: changed(row, li=row["li"] and [str(row["li"][0]), None]),
    ),
    "retype the values of a map": (
        lambda t: t.alter.retype("mi.value", pa.float64()),
        lambda row: changed(row, mi=[(key, float(n)) for key, n in row["mi"]]),
    ),
    "reorder": (lambda t: t.alter.reorder("fare", after="id"), lambda row: row),
    "reorder below": (lambda t: t.alter.reorder("st.y", after=None), lambda row: row),
    "comment": (lambda t: t.alter.comment("rider", "who rides"), lambda row: row),
}


@pytest.mark.sample(9)
@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("name", CHANGES)
def test_rows_before_and_after_a_change(name: str, kind: str, tmp_path: Path) -> None:
    change, expect = CHANGES[name]
    table = new_table(tmp_path, kind)
    table.upsert(rows("a", "b"))
    if kind == "mor":
        table.upsert(rows("a", ts=2))
    before, then = by_id(table), table.timeline().completed_writes()[-1].request_time
    data = {info.path for info in table.context.storage.walk("") if not info.path.startswith(".hoodie/")}
    change(table)
    expected = {key: expect(row) for key, row in before.items()}
    assert by_id(table) == expected
    assert table.read_optimized().to_arrow().column_names == table.schema().names
    assert by_id(table, as_of=then) == before
    assert {info.path for info in table.context.storage.walk("") if not info.path.startswith(".hoodie/")} == data


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_rows_are_changed_after_many_changes_of_columns(kind: str, tmp_path: Path) -> None:
    """A field of a struct that is dropped and comes back with another type, its struct renamed, a number that becomes text."""
    table = new_table(tmp_path, kind)
    table.upsert(rows("a", "b", "c"))
    table.alter.drop("st.x")
    table.alter.add("st.x", pa.string())
    table.alter.rename("st", "su")
    table.alter.rename("su.y", "z")
    table.alter.retype("n", pa.int64())
    table.alter.retype("n", pa.string())
    before = by_id(table)
    assert (before["b"]["su"], before["b"]["n"]) == ({"z": "y1", "x": None}, "1")
    table.update({"fare": 9.5, "ts": 2}, "n = '1'")
    table.upsert(pa.Table.from_pylist([{**before["c"], "ts": 2, "su": {"z": "new", "x": "text"}}], table.schema()))
    table.delete(where="n = '0'")
    expected = {"b": {**before["b"], "fare": 9.5, "ts": 2}, "c": {**before["c"], "ts": 2, "su": {"z": "new", "x": "text"}}}
    assert by_id(table) == expected
    if kind == "mor":
        table.compact(options={"hoodie.compact.inline.max.delta.commits": "1"})
    table.cluster()
    assert by_id(table) == expected and table.validate().ok


@pytest.mark.sample(1)
@pytest.mark.parametrize(("kind", "more"), [("cow", {}), ("mor", {}), ("mor", VERSION_9)], ids=["cow", "mor", "mor of version 9"])
def test_files_of_before_are_rewritten_after_all_changes(kind: str, more: dict[str, str], tmp_path: Path) -> None:
    """By an upsert, a compaction and a clustering; a write that brings the columns as they are changes none."""
    table = new_table(tmp_path, kind, **STATISTICS, **more)
    table.upsert(rows("a", "b"))
    before, then = by_id(table), table.timeline().completed_writes()[-1].request_time
    expected = before
    names = [
        "drop and add again",
        "rename",
        "retype",
        "retype the entries of a list",
        "add below a map",
        "rename below",
        "reorder",
        "reorder below",
        "add",
    ]
    for name in names:
        change, expect = CHANGES[name]
        change(table) if name != "add" else table.alter.add("tip", pa.float32(), comment="what is given")
        expected = {key: expect(row) for key, row in expected.items()}
        if name == "rename":
            table.alter.comment("driver", "who drives")
    changed_at = newest_schema(table)["version_id"]
    table.upsert(table.scan().to_arrow().filter(pa.array([True, False])))
    assert by_id(table) == expected
    assert newest_schema(table)["version_id"] == changed_at
    assert table.validate().ok
    if kind == "mor":
        table.compact(options={"hoodie.compact.inline.max.delta.commits": "1"})
    table.cluster()
    assert by_id(table) == expected
    assert by_id(table, as_of=then) == before
    assert table.validate().ok


def test_ids_of_the_first_change(tmp_path: Path) -> None:
    """Those that Apache Hudi gives: a record's fields first, then what is below each; meta columns come before the others."""
    table = new_table(tmp_path)
    table.upsert(rows("a").drop_columns(["li", "mi"]))
    result = table.alter.add("tip", pa.struct({"a": pa.int32(), "b": pa.list_(pa.int32())}))
    schema = newest_schema(table)
    ids = {column["name"]: column["id"] for column in schema["fields"]}
    assert list(ids.values())[:14] == list(range(14)) and ids["mp"] == 13
    fields = {column["name"]: column["type"] for column in schema["fields"]}
    assert [column["id"] for column in fields["st"]["fields"]] == [14, 15]
    assert (fields["ar"]["element_id"], [column["id"] for column in fields["ar"]["element"]["fields"]]) == (16, [17, 18])
    assert (fields["mp"]["key_id"], fields["mp"]["value_id"], fields["mp"]["value"]["fields"][0]["id"]) == (19, 20, 21)
    assert ids["tip"] == 22 and [column["id"] for column in fields["tip"]["fields"]] == [23, 24]
    assert (fields["tip"]["fields"][1]["type"]["element_id"], schema["max_column_id"]) == (25, 25)
    assert str(schema["version_id"]) == result.instant
    (file,) = (tmp_path / "t" / ".hoodie" / ".schema").glob("*.schemacommit")
    history = json.loads(file.read_bytes())["schemas"]
    assert [entry["version_id"] for entry in history] == [schema["version_id"], 0] and history[1]["max_column_id"] == 21
    done = table.timeline().completed_writes()[-1]
    assert done.completion_time is not None and file.name.partition("_")[2].partition(".")[0] < done.completion_time
    commit = read_commit(table.context.timeline, done)
    assert commit.operation is Operation.ALTER_SCHEMA and not commit.partition_to_write_stats
    assert json.loads(commit.extra_metadata[SCHEMA_KEY])["fields"][0]["name"] == "_hoodie_commit_time"


def test_an_id_is_not_given_twice(tmp_path: Path) -> None:
    """Apache Hudi counts from the columns that are left, so what was dropped last lends its id to what is added next."""
    table = new_table(tmp_path)
    table.upsert(rows("a").drop_columns(["li", "mi"]))
    table.alter.add("last", pa.string())
    table.upsert(table.scan().to_arrow().set_column(9, "last", pa.array(["old"])))
    table.alter.drop("last")
    table.alter.rename("rider", "driver")
    table.alter.add("new", pa.string())
    assert by_id(table)["a"]["new"] is None
    assert newest_schema(table)["max_column_id"] == 23


def test_a_table_that_apache_hudi_has_altered_is_altered_further(tmp_path: Path) -> None:
    table = Table(open_golden("mor_schema_on_read", tmp_path).path, options={"hoodie.compact.inline": "false"})
    before = by_id(table)
    highest = newest_schema(table)["max_column_id"]
    table.alter.rename("driver", "pilot")
    table.alter.add("rider", pa.string())
    expected = {key: {**renamed(row, "driver", "pilot"), "rider": None} for key, row in before.items()}
    assert by_id(table) == expected
    assert newest_schema(table)["max_column_id"] == highest + 1
    assert table.incremental("earliest").to_arrow().column_names == ["id", "ts", "pilot", "city", "fare", "rider"]


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_statistics_of_a_reused_column_name_are_not_used(kind: str, tmp_path: Path) -> None:
    table = new_table(tmp_path, kind, **STATISTICS)
    table.upsert(rows("a", "b", "c"))
    table.alter.rename("fare", "price")
    table.alter.rename("n", "fare")
    table.alter.retype("fare", pa.string())
    asked = {"price > 2.0": ["c"], "price < 1.0": ["a"], "fare = '2'": ["c"], "fare IS NULL": []}
    for condition, found in asked.items():
        assert sorted(by_id(table, filter=condition)) == found, condition
    table.upsert(table.scan().to_arrow().slice(0, 1))
    table.alter.drop("fare")
    table.alter.add("fare", pa.int32())
    for condition, found in {**asked, "fare = '2'": [], "fare IS NULL": ["a", "b", "c"]}.items():
        condition = condition.replace("'2'", "2")
        assert sorted(by_id(table, filter=condition)) == found, condition
    assert table.validate().ok


def test_statistics_of_chosen_columns(tmp_path: Path) -> None:
    """A column that was selected for statistics is dropped; the other selected columns keep theirs."""
    chosen = {"hoodie.metadata.index.column.stats.column.list": "fare,n"}
    table = new_table(tmp_path, **STATISTICS)
    table.upsert(rows("a", "b"), options=chosen)
    table.alter.rename("fare", "price")
    table.alter.drop("n")
    table.upsert(table.scan().to_arrow())
    assert sorted(by_id(table, filter="price > 1.0")) == ["b"]
    assert table.validate().ok


def test_a_change_that_is_rolled_back_or_restored_away(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(rows("a", "b"))
    saved = table.timeline().completed_writes()[-1].request_time
    before = by_id(table)
    done = table.alter.rename("rider", "driver")
    assert done.instant is not None
    table.rollback(done.instant)
    assert by_id(table) == before
    table.savepoint(saved)
    table.alter.rename("fare", "price")
    table.alter.drop("rider")
    table.restore(saved)
    assert by_id(table) == before
    table.alter.rename("rider", "pilot")
    assert by_id(table) == {key: renamed(row, "rider", "pilot") for key, row in before.items()}


# What is refused


REFUSED: dict[str, tuple[Change, type[Exception], str]] = {
    "drop a key": (lambda t: t.alter.drop("id"), InvalidRequest, "record key"),
    "rename a partition column": (lambda t: t.alter.rename("city", "town"), InvalidRequest, "partition field"),
    "retype the ordering field": (lambda t: t.alter.retype("ts", pa.string()), InvalidRequest, "ordering field"),
    "drop a meta column": (lambda t: t.alter.drop("_hoodie_commit_time"), InvalidRequest, "is a meta column"),
    "rename to a meta column": (lambda t: t.alter.rename("n", "_hoodie_file_name"), InvalidRequest, "already"),
    "add behind a meta column": (
        lambda t: t.alter.add("x", pa.int32(), after="_hoodie_commit_time"),
        InvalidRequest,
        "a meta column",
    ),
    "add a name that is there": (lambda t: t.alter.add("Fare", pa.int32()), InvalidRequest, "'fare' already"),
    "rename to a name that is there": (lambda t: t.alter.rename("st.x", "Y"), InvalidRequest, "'y' already"),
    "rename to no name": (lambda t: t.alter.rename("n", "1st"), InvalidRequest, "letters, digits"),
    "rename to a path": (lambda t: t.alter.rename("n", "st.n"), InvalidRequest, "letters, digits"),
    "drop what is not there": (lambda t: t.alter.drop("riders"), InvalidRequest, "did you mean 'rider'"),
    "drop the last field": (lambda t: t.alter.drop("mp.value.m"), InvalidRequest, "last column of its parent"),
    "change a map's keys": (lambda t: t.alter.drop("mp.key"), InvalidRequest, "keys of a map"),
    "retype entries that are structs": (lambda t: t.alter.retype("ar.element", pa.string()), InvalidRequest, "type of a struct"),
    "rename entries": (lambda t: t.alter.rename("ar.element", "item"), Unsupported, "entries of lists"),
    "drop entries": (lambda t: t.alter.drop("li.element"), Unsupported, "only the type can be changed"),
    "drop values": (lambda t: t.alter.drop("mi.value"), Unsupported, "only the type can be changed"),
    "comment entries": (lambda t: t.alter.comment("mp.value", "text"), Unsupported, "entries of lists"),
    "add first in the table": (lambda t: t.alter.add("x", pa.int32(), first=True), Unsupported, "first position"),
    "add first and after": (lambda t: t.alter.add("st.z", pa.int32(), first=True, after="x"), InvalidRequest, "either"),
    "allow nulls again": (lambda t: t.alter.allow_nulls("fare"), InvalidRequest, "nothing would change"),
    "look for entries by another name": (lambda t: t.alter.drop("ar.item.k"), InvalidRequest, "named 'element'"),
    "go below a plain column": (lambda t: t.alter.drop("n.x"), InvalidRequest, "has no fields"),
    "narrow": (lambda t: t.alter.retype("fare", pa.float32()), InvalidRequest, "double cannot be changed to float"),
    "retype a struct": (lambda t: t.alter.retype("st", pa.string()), InvalidRequest, "type of a struct"),
    "retype to what it is": (lambda t: t.alter.retype("n", pa.int32()), InvalidRequest, "nothing would change"),
    "add what Hudi cannot hold": (lambda t: t.alter.add("x", pa.uint64()), InvalidRequest, "cannot store"),
    "move to the first place": (lambda t: t.alter.reorder("fare", after=None), Unsupported, "first position"),
    "what says which rows are deletes": (lambda t: t.alter.add("_hoodie_is_deleted", pa.bool_()), Unsupported, "deletes"),
}


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_column_may_be_null_after_the_change(kind: str, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), pa.field("v", pa.int32(), False)])
    options = {"hoodie.metadata.enable": "false"}
    table = Table.create(tmp_path, record_key="id", schema=schema, table_type=kind, options=options)
    table.upsert(pa.table({"id": ["a"], "v": pa.array([1], pa.int32())}))
    nulls = pa.table({"id": ["a", "b"], "v": pa.array([None, 2], pa.int32())})
    with pytest.raises(InvalidRequest, match="'v'"):
        table.upsert(nulls)
    table.alter.allow_nulls("v")
    assert by_id(table) == {"a": {"id": "a", "v": 1}} and table.schema().field("v").nullable
    table.upsert(nulls)
    assert by_id(table) == {"a": {"id": "a", "v": None}, "b": {"id": "b", "v": 2}} and table.validate().ok


def test_comments_of_nested_columns_are_stored_in_the_table_schema(tmp_path: Path) -> None:
    """As in Hudi, the schema of the change and of later commits has them, not only the schema with column ids."""
    table = new_table(tmp_path)
    table.upsert(rows("a"))
    for path in ("st.x", "ar.element.k", "mp.value.m"):
        table.alter.comment(path, f"about {path}")
    for step in (lambda: None, lambda: table.upsert(rows("a", "b", ts=2))):
        step()
        schema = table.schema()
        structs = schema.field("st").type, schema.field("ar").type.value_type, schema.field("mp").type.item_type
        comments = [kind.field(name).metadata for kind, name in zip(structs, ("x", "k", "m"), strict=True)]
        assert comments == [{b"comment": f"about {path}".encode()} for path in ("st.x", "ar.element.k", "mp.value.m")]


def test_columns_change_before_the_first_commit(tmp_path: Path) -> None:
    table = Table.create(tmp_path, record_key="id", schema=pa.schema([("id", pa.int64()), ("v", pa.int32()), ("w", pa.string())]))
    table.alter.add("more", pa.string(), after="id", comment="later")
    table.alter.retype("v", pa.int64())
    table.alter.rename("w", "x")
    with pytest.raises(InvalidRequest, match="'id' cannot be dropped"):
        table.alter.drop("id")
    assert table.schema().names == ["id", "more", "v", "x"]
    assert table.schema().field("v").type == pa.int64()
    assert not table.inspect.commits().num_rows
    table.upsert({"id": [1], "more": ["m"], "v": [2], "x": ["y"]})
    assert table.scan().to_arrow().to_pylist() == [{"id": 1, "more": "m", "v": 2, "x": "y"}]


def test_a_first_write_is_repeated_after_a_change_of_columns(tmp_path: Path) -> None:
    table = Table.create(tmp_path, record_key="id", schema=pa.schema([("id", pa.int64())]))
    other = Table(tmp_path)
    begin = Transaction.begin
    changed: list[object] = []

    def begin_and_alter(context: Any, *args: Any) -> Transaction:
        transaction = begin(context, *args)
        if not changed:
            changed.append(other.alter.add("more", pa.string()))
        return transaction

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Transaction, "begin", begin_and_alter)
        table.upsert({"id": [1]}, options={"hoodie.write.set.null.for.missing.columns": "true"})
    assert Table(tmp_path).schema().names == ["id", "more"]
    assert Table(tmp_path).scan().to_arrow().to_pylist() == [{"id": 1, "more": None}]


def test_a_change_that_is_refused_leaves_nothing(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    with pytest.raises(TableState, match="none before its first write"):
        table.alter.drop("fare")
    table.upsert(rows("a"))
    before = {info.path for info in table.context.storage.walk("")}
    for name, (change, error, text) in REFUSED.items():
        with pytest.raises(error, match=text):
            change(table)
        assert {info.path for info in table.context.storage.walk("")} == before, name


def test_tables_whose_columns_cannot_go_by_ids(tmp_path: Path) -> None:
    made = {
        "meta columns": new_table(tmp_path / "a", **{"hoodie.populate.meta.fields": "false"}),
        "change data": new_table(tmp_path / "c", **{"hoodie.table.cdc.enabled": "true"}),
        "access columns by name": new_table(
            tmp_path / "d",
            **{"hoodie.datasource.write.payload.class": "org.apache.hudi.common.model.PartialUpdateAvroPayload"},
        ),
    }
    for text, table in made.items():
        table.upsert(rows("a"))
        with pytest.raises(Unsupported, match=text):
            table.alter.drop("fare")
        assert "fare" in table.schema().names
    local = new_table(tmp_path / "e")
    local.upsert(
        rows("a").append_column("t", pa.array([0], pa.timestamp("us"))), options={"pyhudi.timestamps.without.zone": "local"}
    )
    with pytest.raises(Unsupported, match="column 't' of type"):
        local.alter.drop("fare")


@pytest.mark.parametrize("change", [lambda t: t.alter.drop("rider"), lambda t: t.alter.rename("rider", "driver")])
def test_the_delete_field_of_version_9_stays(tmp_path: Path, change: Change) -> None:
    marked = {"hoodie.payload.delete.field": "rider", "hoodie.payload.delete.marker": "r1"}
    payload = {"hoodie.datasource.write.payload.class": "org.apache.hudi.common.model.DefaultHoodieRecordPayload"}
    table = new_table(tmp_path, "mor", **VERSION_9, **marked, **payload)
    table.upsert(rows("a", "b"))
    table.upsert(rows("a", "c", ts=2))
    assert by_id(table).keys() == {"a"}
    with pytest.raises(InvalidRequest, match="rider is the delete field"):
        change(table)
    table.alter.rename("fare", "cost")
    assert {key: (row["ts"], row["cost"]) for key, row in by_id(table).items()} == {"a": (2, 0.5)}


def test_a_clustering_orders_by_a_column_that_another_one_had_the_name_of(tmp_path: Path) -> None:
    """Its ranges in files of before are those of the other one: nothing is known of them, as of a column that was renamed."""
    grouping = {"pyhudi.clustering.grouping": "prefer_overlap", "hoodie.clustering.plan.strategy.sort.columns": "fare,cost"}
    table = new_table(tmp_path, **{"hoodie.parquet.small.file.limit": "0", **grouping})
    table.upsert(rows("a", "b", "c", "d"))
    added_again(table)
    table.alter.rename("n", "cost")
    planned = table.schedule_clustering()
    assert planned is not None
    pending = table.timeline().pending(Action.CLUSTERING)[0]
    text = table.context.timeline.read_state(pending.request_time, Action.CLUSTERING, State.REQUESTED) or b""
    plan = RequestedReplaceMetadata.decode(text).clustering_plan
    assert plan is not None
    assert not [name for group in plan.input_groups or () for name in group.metrics or {} if name.startswith(("MIN_", "MAX_"))]
    expected = by_id(table)
    table.cluster()
    assert by_id(table) == expected


def test_rename_is_refused_with_a_secondary_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the index is created during the change."""
    table = new_table(tmp_path, **{"hoodie.metadata.enable": "true", "hoodie.metadata.record.index.enable": "true"})
    table.upsert(rows("a", "b"))
    original = alter_columns._planned
    made: list[str] = []

    def planned(*arguments: Any) -> Any:
        if not made:
            made.append(table.index.create("secondary_index", "rider").name)
        return original(*arguments)

    monkeypatch.setattr(alter_columns, "_planned", planned)
    for _ in range(2):
        with pytest.raises(Unsupported, match=r"resolves columns by name \(Table.index.drop"):
            table.alter.rename("rider", "driver")
    assert not table.timeline().pending()
    table.index.drop(made[0])
    table.alter.rename("rider", "driver")
    assert by_id(table)["b"]["driver"] == "r1"
    assert table.lookup(["b"]).to_arrow().num_rows == 1


@pytest.mark.parametrize("expression", [False, True])
def test_index_by_name_planned_before_a_rename_fails_to_build(tmp_path: Path, expression: bool) -> None:
    """The failed build rolls its plan back; later writes and index builds succeed."""
    table = new_table(tmp_path, **{"hoodie.metadata.enable": "true", "hoodie.metadata.record.index.enable": "true"})
    table.upsert(rows("a", "b"))
    planned = (
        table.index.schedule("column_stats", "ts", function="from_unixtime", function_options={"format": "yyyy"})
        if expression
        else table.index.schedule("secondary_index", "rider")
    )
    table.alter.rename("rider", "driver")
    with pytest.raises(Unsupported, match="resolves columns by name"):
        table.index.run(planned)
    assert not table.timeline().pending()
    table.upsert(table.scan().to_arrow().slice(0, 1))
    table.index.create("bloom_filters")
    assert table.validate().ok


def by_names(path: Path, instant: str | None = None) -> str:
    """Make a write, the newest, one of a writer that knows nothing of ids; the history that it wrote was not written."""
    table = Table(path)
    written = table.timeline().completed_writes()
    instant = instant or written[-1].request_time
    commit = read_commit(table.context.timeline, next(one for one in written if one.request_time == instant))
    extra = {key: text for key, text in commit.extra_metadata.items() if key != LATEST_SCHEMA_KEY}
    object.__setattr__(commit, "extra_metadata", extra)
    (file,) = (path / ".hoodie" / "timeline").glob(f"{instant}_*")
    file.write_bytes(commit.encode())
    folder = path / ".hoodie" / ".schema"
    if any(not file.name.startswith(instant) for file in folder.glob("*.schemacommit")):
        for file in folder.glob(f"{instant}*"):
            file.unlink()
    return instant


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", ["add", "add below", "drop", "drop below", "rename", "rename below", "retype", "reorder"])
def test_write_by_column_names_commits_after_a_schema_change_it_did_not_see(tmp_path: Path, name: str) -> None:
    """It was requested before.  The change gave the columns their ids by what they were called before it, as the write did."""
    table = new_table(tmp_path)
    table.upsert(rows("a", "b"))
    table.alter.add("more", pa.string())
    settings = WriteSettings.of(parse_options(), WriteOperation.UPSERT)
    data = rows("c").append_column("more", pa.array(["c"]))
    write = PausedWrite(table.context, lambda context: run_write(context, LocalEngine(1), data, settings))
    change, expected = CHANGES[name]
    before = {row["id"]: {**row, "more": None} for row in rows("a", "b").to_pylist()} | {"c": data.to_pylist()[0]}
    change(table)
    write.finish()
    by_names(tmp_path / "t", table.timeline().completed_writes()[-2].request_time)
    assert by_id(table) == {key: expected(row) for key, row in before.items()}
    table.upsert(table.scan().to_arrow().slice(0, 1))
    table.alter.rename("more", "less")
    assert by_id(table) == {key: renamed(expected(row), "more", "less") for key, row in before.items()}


@pytest.mark.parametrize("change", ["renames", "drops"])
def test_schema_history_keeps_columns_of_archived_writes(tmp_path: Path, change: str) -> None:
    """Commits are archived only after a later write stored the columns of their files in the schema history."""
    keep = {"hoodie.keep.min.commits": "2", "hoodie.keep.max.commits": "3", "hoodie.clean.commits.retained": "1"}
    table = new_table(tmp_path, **{"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"})
    evolve = {"pyhudi.schema.mode": "evolve", "hoodie.write.set.null.for.missing.columns": "true"}
    table.upsert(rows("a"))
    table.alter.rename("rider", "driver")
    brought = table.scan().to_arrow().append_column("b", pa.array([1])).append_column("st_too", pa.array([{"x": 1}]))
    table.upsert(brought, options=evolve)
    first = by_names(tmp_path / "t")
    for number in range(2, 5):
        data = brought.drop_columns(["b"] if number == 3 else []).set_column(0, "id", pa.array([f"k{number}"]))
        table.upsert(data, options=evolve)
        by_names(tmp_path / "t")
    expected = by_id(table)
    assert "st_too" in expected["a"] and (expected["a"]["b"], expected["k3"]["b"]) == (1, None)
    table.archive(options=keep)
    assert table.timeline().completed_writes()[0].request_time == first
    for _ in range(4):
        table.upsert(table.scan().to_arrow().slice(0, 1))
    table.archive(options=keep)
    assert table.timeline().completed_writes()[0].request_time > first
    assert by_id(table) == expected
    if change == "renames":
        table.alter.rename("b", "d")
        assert by_id(table) == {key: renamed(row, "b", "d") for key, row in expected.items()}
    else:
        table.alter.drop("b")
        table.alter.add("b", pa.int64())
        assert by_id(table) == {key: {**row, "b": None} for key, row in expected.items()}
    assert table.validate().ok


def test_a_write_by_names_comes_before_a_change(tmp_path: Path) -> None:
    """The columns of such a write have no ids of their own, until the next write gives them."""
    path = open_golden("cow_schema_on_read", tmp_path).path
    table = Table(path)
    by_names(path)
    before = by_id(table)
    with pytest.raises(Unsupported, match="write anything first"):
        table.alter.rename("driver", "pilot")
    table.upsert(table.scan().to_arrow().slice(0, 1))
    table.alter.rename("driver", "pilot")
    assert by_id(table) == {key: renamed(row, "driver", "pilot") for key, row in before.items()}


def test_versions_do_not_change_after(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(rows("a"))
    table.alter.drop("fare")
    for change in (table.downgrade, partial(table.upgrade, to=9)):
        with pytest.raises(Unsupported, match="cannot change the version"):
            change()
