"""Indexes: created, updated by every operation, dropped, rebuilt, and built during concurrent writes."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.errors import InvalidRequest, TableState, Unsupported, WriteConflict
from pyhudi.format.actions.index_plan import IndexCommitMetadata
from pyhudi.format.instants import Action, State
from pyhudi.format.paths import INDEX_DEFINITIONS_FILE, PROPERTIES_FILE
from pyhudi.format.properties import format_properties, parse_properties
from pyhudi.metadata_table.reader import stored_index_definitions
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.metadata_table.reader.stored_index_definitions import load_index_definitions
from pyhudi.metadata_table.writer.initialize_partitions import PartitionBuilder
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.write.write_rows import Write
from pyhudi.storage import open_storage
from tests.support.metadata_truth import assert_metadata_is_true

OPTIONS = {
    "hoodie.metadata.record.index.min.filegroup.count": 2,
    "hoodie.index.bloom.num_entries": 100,
    "hoodie.metadata.compact.max.delta.commits": 4,
}
SMALL_FILTER = {"numentries": "100", "fpp": "0.01"}


@pytest.fixture(autouse=True)
def no_damage() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


def rows(keys: Sequence[int], ts: int = 1, note: str = "n") -> pa.Table:
    return pa.table(
        {
            "id": [f"k{key:03d}" for key in keys],
            "part": ["ab"[key % 2] for key in keys],
            "ts": pa.array([ts * 86_400 + key for key in keys], pa.int64()),
            "note": [None if key % 5 == 4 else f"{note}${key % 3}\\" for key in keys],
            "moment": pa.array([ts * 86_400_000_000 + key for key in keys], pa.timestamp("us", "UTC")),
        }
    )


def create(path: Path, kind: str = "cow", /, **options: Any) -> Table:
    merged = {**OPTIONS, **options}
    return Table.create(path, record_key="id", partition_by="part", ordering="ts", table_type=kind, options=merged)


def indexed(path: Path, kind: str = "cow") -> Table:
    table = create(path, kind)
    table.upsert(rows(range(12)))
    table.index.create("record_index")
    table.index.create("secondary_index", "note")
    table.index.create("column_stats", "moment", function="to_date", name="day")
    table.index.create("bloom_filters", "note", function="upper", function_options=SMALL_FILTER)
    return table


@pytest.fixture(scope="module")
def table_with_commits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """To be copied."""
    path = tmp_path_factory.mktemp("grown")
    indexed(path)
    return path


@pytest.fixture
def table(table_with_commits: Path, tmp_path: Path) -> Table:
    """With every kind of index, copy on write, at `tmp_path`."""
    return Table(shutil.copytree(table_with_commits, tmp_path, dirs_exist_ok=True), options=OPTIONS)


def true(table: Table) -> MetadataTable:
    found = assert_metadata_is_true(table)
    assert found is not None
    return found


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_every_operation_maintains_all_indexes(tmp_path: Path, kind: str) -> None:
    table = indexed(tmp_path, kind)
    names = {"record_index", "secondary_index_note", "expr_index_day", "expr_index_upper_note"}
    assert names < set(true(table).partitions)
    table.upsert(rows(range(6, 18), 2, "m"))
    true(table)
    table.delete(keys=rows(range(2)))
    true(table)
    table.upsert(rows([0, 20], 3, "q"))
    true(table)
    if kind == "mor":
        table.compact()
        true(table)
    table.cluster(order_by="ts")
    true(table)
    table.insert_overwrite(rows([3, 31], 4))
    true(table)
    last = table.timeline().last_completed_write()
    assert last is not None
    table.delete_partitions("a")
    true(table)
    last = table.timeline().last_completed_write()
    assert last is not None
    table.rollback(last.request_time)
    metadata = true(table)
    assert names < set(metadata.partitions)
    assert metadata.timeline.completed(Action.COMMIT), "the metadata table was never compacted"
    plan = table.scan(filter="note = 'n$0\\\\'").explain()
    assert "secondary index secondary_index_note" in str(plan)


def test_keys_that_move_between_partitions(tmp_path: Path) -> None:
    table = create(tmp_path, **{"hoodie.index.type": "GLOBAL_SIMPLE"})
    table.upsert(rows(range(6)))
    table.index.create("record_index")
    table.index.create("secondary_index", "note")
    moved = rows(range(6), 2)
    table.upsert(moved.set_column(1, "part", pa.array(["c"] * 6)))
    true(table)


def test_definitions_as_hudi_writes_them(table: Table, tmp_path: Path) -> None:
    document = json.loads((tmp_path / ".hoodie/.index_defs/index.json").read_text())["indexDefinitions"]
    assert document["secondary_index_note"] == {
        "indexName": "secondary_index_note",
        "indexType": "secondary_index",
        "indexFunction": "identity",
        "sourceFields": ["note"],
        "indexOptions": {},
    }
    assert document["expr_index_day"]["indexOptions"] == {"expr": "to_date"}
    assert document["expr_index_day"]["indexType"] == "column_stats"
    assert document["expr_index_upper_note"]["indexOptions"] == {"expr": "upper", **SMALL_FILTER}
    indexings = table.timeline().completed(Action.INDEXING)
    assert len(indexings) == 4 and all(instant.completion_time for instant in indexings)
    assert {info.name: (info.columns, info.state) for info in table.index.list()}["expr_index_day"] == (("moment",), "ready")


def test_dropping(table: Table, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="secondary_index_note depends on the record index"):
        table.index.drop("record_index")
    with pytest.raises(InvalidRequest, match="secondary_index_note requires it"):
        table.upsert(rows([1]), options={"hoodie.metadata.record.index.enable": False})
    for name in ("secondary_index_note", "record_index", "expr_index_upper_note"):
        table.index.drop(name)
        assert name not in true(table).partitions
        assert not (tmp_path / ".hoodie/metadata" / name).exists()
    table.upsert(rows(range(3), 2))
    assert {info.name for info in table.index.list()} == {"column_stats", "partition_stats", "expr_index_day"}
    assert "secondary_index_note" not in (tmp_path / ".hoodie/.index_defs/index.json").read_text()


def test_rebuilt_metadata_table_contains_all_defined_indexes(table: Table) -> None:
    table.drop_metadata_table()
    table.upsert(rows(range(3), 2))
    assert {"record_index", "secondary_index_note", "expr_index_day", "expr_index_upper_note"} < set(true(table).partitions)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "name", ["record_index", "secondary_index_note", "expr_index_day", "expr_index_upper_note", "column_stats", "files", None]
)
def test_rebuilding_mends(table: Table, tmp_path: Path, name: str | None) -> None:
    for path in (tmp_path / ".hoodie/metadata" / (name or "files")).iterdir():
        if path.suffix == ".hfile" and not path.name.endswith(".crc"):
            path.write_bytes(b"nothing")
    table.index.rebuild(name)
    true(table)
    table.upsert(rows(range(3), 2, "z"))
    true(table)


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("secondary_index", "note"), {}, "needs the record index"),
        (("record_index", "note"), {}, "does not accept columns"),
        (("nonsense",), {}, "index kind 'nonsense' does not exist"),
        (("secondary_index", ["note", "id"]), {}, "takes one column, not 2"),
        (("column_stats",), {}, "has the index column_stats already"),
        (("column_stats", "note"), {"function": "nonsense"}, "is not supported in expression indexes"),
        (("column_stats", "note"), {"function": "minute"}, "is not supported in expression indexes"),
        (("column_stats", "note"), {"function": "year"}, "requires a column of dates"),
        (("column_stats", "absent"), {"function": "upper"}, "absent"),
        (("column_stats", "note"), {"function": "upper", "name": "a b"}, "is invalid"),
        (
            ("column_stats", "note"),
            {"function": "upper", "function_options": {"format": "x"}},
            "function upper has the options none",
        ),
    ],
)
def test_requests_that_are_wrong(tmp_path: Path, arguments: tuple[Any, ...], options: dict[str, Any], message: str) -> None:
    table = create(tmp_path)
    table.upsert(rows(range(3)))
    with pytest.raises(InvalidRequest, match=message):
        table.index.create(*arguments, **options)
    assert not table.timeline().pending(Action.INDEXING)
    table.upsert(rows(range(3), 2))
    true(table)


def test_dropping_an_indexed_column_is_refused(table: Table) -> None:
    options = {"hoodie.datasource.write.schema.allow.auto.evolution.column.drop": True}
    with pytest.raises(Unsupported, match=r"secondary_index_note.*note.*index\.drop"):
        table.upsert(rows(range(3), 2).drop_columns(["note"]), options=options)
    true(table)
    table.index.drop("secondary_index_note")
    table.index.drop("expr_index_upper_note")
    table.upsert(rows(range(3), 2).drop_columns(["note"]), options=options)
    assert table.scan(filter="moment >= TIMESTAMP'1970-01-03 00:00:00'").count() == 3


def test_index_plan_is_executed_or_unscheduled(tmp_path: Path) -> None:
    table = create(tmp_path)
    table.upsert(rows(range(6)))
    first = table.index.schedule("record_index")
    second = table.index.schedule("column_stats", "note", function="lower")
    assert {(info.name, info.state) for info in table.index.list() if info.instant} == {
        ("record_index", "planned"),
        ("expr_index_lower_note", "planned"),
    }
    with pytest.raises(InvalidRequest, match="already"):
        table.index.schedule("record_index")
    table.upsert(rows(range(3, 9), 2))
    assert "record_index" not in true(table).partitions
    assert table.index.run(first).state is State.COMPLETED
    assert "record_index" in true(table).partitions
    table.index.abort(second)
    with pytest.raises(TableState):
        table.index.abort(second)
    table.upsert(rows(range(3, 9), 3))
    assert "expr_index_lower_note" not in true(table).partitions
    assert not table.timeline().pending(Action.INDEXING)


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_several_indexes_in_one_plan(tmp_path: Path, kind: str) -> None:
    table = create(tmp_path, kind)
    table.upsert(rows(range(6)))
    for name in ("partition_stats", "column_stats"):
        if name in true(table).partitions:
            table.index.drop(name)
    kinds = ["partition_stats", "record_index", "column_stats", "bloom_filters"]
    instant = table.index.schedule(kinds)
    assert {(info.name, info.state, info.instant) for info in table.index.list()} == {(one, "planned", instant) for one in kinds}
    with pytest.raises(InvalidRequest, match="column_stats already"):
        table.index.schedule("column_stats")
    table.upsert(rows(range(3, 9), 2))
    done = table.index.run(instant)
    table.upsert(rows(range(6, 12), 3))
    assert set(kinds) <= set(true(table).partitions)
    built = IndexCommitMetadata.decode(table.context.timeline.read(done))
    assert sorted(info.metadata_partition_path or "" for info in built.index_partition_infos or ()) == sorted(kinds)
    assert table.scan(filter="id = 'k004'").explain().prunings[-1].remaining == 1


def interrupted(*_: Any) -> list[Any]:
    raise KeyboardInterrupt


def test_several_indexes_of_one_plan_are_unscheduled_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create(tmp_path)
    table.upsert(rows(range(6)))
    before = true(table).partitions
    instant = table.index.schedule(["record_index", "bloom_filters"])
    table.index.abort(instant)
    assert true(table).partitions == before and not table.timeline().pending(Action.INDEXING)
    instant = table.index.schedule(["record_index", "bloom_filters"])
    with monkeypatch.context() as patched:
        patched.setattr(PartitionBuilder, "fill", interrupted)
        with pytest.raises(KeyboardInterrupt):
            table.index.run(instant)
    with pytest.raises(InvalidRequest, match="together with bloom_filters"):
        table.index.drop("record_index")
    table.index.abort(instant)
    assert true(table).partitions == before
    wrongs: tuple[dict[str, Any], ...] = (
        {"index_type": []},
        {"index_type": ["record_index", "bloom_filters"], "columns": "note"},
    )
    for wrong in wrongs:
        with pytest.raises(InvalidRequest, match="named by type alone"):
            table.index.schedule(**wrong)


def test_writers_commit_while_indexes_are_built(tmp_path: Path) -> None:
    options = {
        "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
        "hoodie.write.num.retries.on.conflict.failures": 9,
    }
    table = create(tmp_path, **options)
    table.upsert(rows(range(40)))

    def write(first: int) -> None:
        own = Table(tmp_path, options={**OPTIONS, **options})
        for ts in range(2, 7):
            own.upsert(rows(range(first, first + 20, 2), ts, f"t{ts}"))

    def build() -> None:
        own = Table(tmp_path, options={**OPTIONS, **options})
        own.index.create("record_index")
        own.index.create("secondary_index", "note")
        own.index.create("column_stats", "moment", function="to_date")

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(write, 0), pool.submit(write, 21), pool.submit(build)]:
            done.result()
    assert {"record_index", "secondary_index_note", "expr_index_to_date_moment"} < set(true(table).partitions)
    assert table.validate().ok


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("kind", "operation"),
    [
        ("cow", "based_on"),
        ("mor", "upsert"),
        ("mor", "merge"),
        *(
            pytest.param(kind, operation, marks=pytest.mark.wide)
            for kind, operation in [("cow", "insert"), ("mor", "delete"), ("cow", "update"), ("cow", "insert_overwrite")]
        ),
    ],
)
def test_no_write_fails_because_an_index_is_begun(
    tmp_path: Path, kind: str, operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Begun and complete within the write, which may not lose to anybody: it is planned again, on the same rows."""
    table = create(tmp_path, kind, **{"hoodie.write.num.retries.on.conflict.failures": 0})
    table.upsert(rows(range(12)))
    seen = table.scan()
    begun: list[bool] = []
    attempt = Write._attempt

    def with_an_index(self: Write, *args: Any, **kwargs: Any) -> WriteResult:
        if not begun:
            begun.append(True)
            own = Table(tmp_path, options=OPTIONS)
            own.index.create("record_index")
            own.index.create("bloom_filters")
            own.index.create("secondary_index", "note")
        return attempt(self, *args, **kwargs)

    monkeypatch.setattr(Write, "_attempt", with_an_index)
    if operation == "based_on":
        result = table.upsert(rows([2, 20], ts=2), based_on=seen)
    elif operation == "delete":
        result = table.delete(["k002"])
    elif operation == "update":
        result = table.update({"note": "'changed'"}, "id = 'k002'")
    elif operation == "merge":
        result = table.merge(rows([2, 20], ts=2), "id").when_matched_update_all().execute()
    else:
        result = getattr(table, operation)(rows([2, 20] if operation != "insert" else [20], ts=2))
    assert begun and result.conflict_retries == 0 and result.instant is not None
    monkeypatch.undo()
    now = true(table)
    assert {"record_index", "bloom_filters", "secondary_index_note"} <= set(now.partitions)
    assert table.validate(keys=True).ok
    found = {row["id"] for row in table.scan().to_arrow().to_pylist()}
    expected = {f"k{key:03d}" for key in range(12)}
    if operation == "insert_overwrite":
        expected = {key for key in expected if int(key[1:]) % 2} | {"k002", "k020"}
    assert found == {
        "delete": expected - {"k002"}, "update": expected, "merge": expected
    }.get(operation, expected | {"k020"})  # fmt: skip


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "place", ["defs/mine.json", "{table}/.hoodie/mine.json", "file:{table}/mine.json", "{table}-beside/index.json"]
)
def test_index_definitions_are_stored_at_the_configured_path(tmp_path: Path, place: str) -> None:
    """A change puts them back there, outside of the table too."""
    path = tmp_path / "t"
    table = create(path)
    table.upsert(rows(range(4)))
    table.index.create("record_index")
    table.index.create("secondary_index", "note")
    named = place.format(table=path)
    file = path / named if place.startswith("defs") else Path(named.removeprefix("file:"))
    file.parent.mkdir(exist_ok=True)
    (path / INDEX_DEFINITIONS_FILE).rename(file)
    values = parse_properties((path / PROPERTIES_FILE).read_bytes())
    (path / PROPERTIES_FILE).write_bytes(format_properties({**values, "hoodie.table.index.defs.path": named}))
    table = Table(path, {"link_roots": f"{path}-beside"}, options=OPTIONS)
    table.upsert(rows(range(2, 6), ts=2, note="m"))
    assert table.lookup(["k003"]).to_arrow().num_rows == 1
    assert_metadata_is_true(table)
    table.index.drop("secondary_index_note")
    table.index.create("secondary_index", "part")
    assert list(json.loads(file.read_text())["indexDefinitions"]) == ["column_stats", "secondary_index_part"]
    assert not (path / INDEX_DEFINITIONS_FILE).exists()
    table.upsert(rows(range(6, 8)))
    assert_metadata_is_true(table)


def _elsewhere(path: Path, uri: str) -> Table:
    """A table whose definitions lie in another storage."""
    table = create(path)
    table.upsert(rows(range(4)))
    table.index.create("record_index")
    table.index.create("secondary_index", "note")
    storage = open_storage(uri.rpartition("/")[0])
    storage.put("index.json", (path / INDEX_DEFINITIONS_FILE).read_bytes())
    (path / INDEX_DEFINITIONS_FILE).unlink()
    values = parse_properties((path / PROPERTIES_FILE).read_bytes())
    (path / PROPERTIES_FILE).write_bytes(format_properties({**values, "hoodie.table.index.defs.path": uri}))
    return Table(path, {"link_roots": str(path.parent / "defs")}, options=OPTIONS)


def test_definitions_in_a_local_folder_that_the_caller_names(tmp_path: Path) -> None:
    table = _elsewhere(tmp_path / "t", f"{tmp_path}/defs/index.json")
    table.index.create("column_stats", "moment", function="to_date")
    table.index.drop("secondary_index_note")
    names = list(json.loads((tmp_path / "defs" / "index.json").read_bytes())["indexDefinitions"])
    assert names == ["column_stats", "expr_index_to_date_moment"]
    table.upsert(rows(range(2, 6), ts=2, note="m"))
    assert_metadata_is_true(table)


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("memory://definitions/of/index.json", "in another store"),
        ("s3://bucket/index.json", "in another store"),
        ("{}/other/index.json", "outside of the table.*link_roots="),
    ],
)
def test_definitions_elsewhere_are_not_opened(tmp_path: Path, uri: str, message: str) -> None:
    table = _elsewhere(tmp_path / "t", f"{tmp_path}/defs/index.json")
    path = tmp_path / "t" / PROPERTIES_FILE
    values = parse_properties(path.read_bytes())
    path.write_bytes(format_properties({**values, "hoodie.table.index.defs.path": uri.format(tmp_path)}))
    with pytest.raises(Unsupported, match=f"hoodie.table.index.defs.path of the table .*{message}"):
        Table(table.uri, options=OPTIONS).index.create("column_stats", "moment")
    with pytest.raises(Unsupported, match=f"hoodie.table.index.defs.path of the table .*{message}"):
        Table(table.uri, options=OPTIONS).upsert(rows(range(3)))
    assert not (tmp_path / "other").exists()


def test_index_definitions_changed_by_another_table_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock of this table does not protect a file outside of it."""
    table = _elsewhere(tmp_path / "t", f"{tmp_path}/defs/index.json")
    file = tmp_path / "defs" / "index.json"
    before = json.loads(file.read_text())
    other = {**before, "indexDefinitions": {**before["indexDefinitions"]}}
    other["indexDefinitions"].pop("column_stats")
    put = stored_index_definitions._put_outside

    def late(*arguments: Any) -> None:
        load_index_definitions(arguments[0])
        file.write_text(json.dumps(other))
        put(*arguments)

    monkeypatch.setattr(stored_index_definitions, "_put_outside", late)
    with pytest.raises(WriteConflict, match="were changed concurrently by a writer without the table's lock"):
        table.index.drop("secondary_index_note")
    assert json.loads(file.read_text()) == other
    monkeypatch.undo()
    table = Table(tmp_path / "t", {"link_roots": str(tmp_path)}, options=OPTIONS)
    table.upsert(rows(range(6, 8)))
    table.index.drop("secondary_index_note")
    assert "secondary_index_note" not in file.read_text()


@pytest.mark.parametrize(
    ("kind", "meant"), [("secondary", "secondary_index"), ("bloom", "bloom_filters"), ("record", "record_index"), ("x", None)]
)
def test_unknown_kind_is_refused_with_the_nearest_one(tmp_path: Path, kind: str, meant: str | None) -> None:
    table = Table.create(str(tmp_path / "t"), record_key="id")
    for arguments in ((), ("note",)):
        with pytest.raises(InvalidRequest, match=f"index kind '{kind}' does not exist; .*secondary_index") as refused:
            table.index.create(kind, *arguments)
        assert (f"did you mean '{meant}'?" in str(refused.value)) == (meant is not None)
