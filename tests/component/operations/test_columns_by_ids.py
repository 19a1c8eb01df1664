"""Tables with schema on read, altered by Apache Hudi: `rider` renamed to `driver`; `fare` dropped and added."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import CorruptData, TableState, Unsupported
from pyhudi.format.actions.commit_metadata import LATEST_SCHEMA_KEY, SCHEMA_KEY, CommitMetadata, Operation
from pyhudi.format.instants import Instant, format_instant_time, parse_instant_time
from pyhudi.format.paths import SCHEMA_FOLDER
from pyhudi.format.schema_history import decode_schema, decode_schema_history, encode_schema, encode_schema_history
from pyhudi.operations.commit.transaction import Transaction
from pyhudi.operations.services import async_indexing
from pyhudi.operations.write.delete_partitions import run_delete_partitions
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.storage.base import Listing
from pyhudi.storage.local import LocalStorage
from pyhudi.storage.uris import parse_uri
from pyhudi.table.snapshot import read_commit
from tests.support.golden_tables import open_golden

CASES = ["cow_schema_on_read", "mor_schema_on_read"]


def history_file(path: Path) -> Path:
    (file,) = (path / ".hoodie" / ".schema").glob("*.schemacommit")
    return file


def times(table: Table) -> list[str]:
    return [instant.request_time for instant in table.timeline().completed_writes()]


@pytest.mark.parametrize("name", CASES)
def test_the_columns_of_each_time(name: str, tmp_path: Path) -> None:
    table = Table(open_golden(name, tmp_path).path)
    inserted, renamed, dropped, added, *_ = times(table)
    before = table.scan(as_of=inserted).to_arrow()
    assert before.column_names == ["id", "ts", "rider", "fare", "city"]
    assert None not in before["fare"].to_pylist()
    then = table.scan(as_of=renamed).to_arrow()
    assert then.column_names == ["id", "ts", "driver", "fare", "city"]
    assert then.rename_columns(before.column_names).sort_by("id").equals(before.sort_by("id"))
    assert table.scan(as_of=dropped).to_arrow().column_names == ["id", "ts", "driver", "city"]
    assert set(table.scan(as_of=added).to_arrow()["fare"].to_pylist()) == {None}
    assert table.read_optimized(["driver"]).to_arrow().num_rows == len(before) + name.startswith("cow")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("wanted", ["driver = 'rider-3'", "fare IS NULL", "fare > 0", "fare IS NOT NULL AND driver IS NULL"])
def test_filters_go_by_ids(name: str, wanted: str, tmp_path: Path) -> None:
    table = Table(open_golden(name, tmp_path).path)
    rows = table.scan().to_arrow().to_pylist()
    chosen: dict[str, Callable[[dict[str, Any]], bool]] = {
        "driver = 'rider-3'": lambda row: row["driver"] == "rider-3",
        "fare IS NULL": lambda row: row["fare"] is None,
        "fare > 0": lambda row: row["fare"] is not None,
        "fare IS NOT NULL AND driver IS NULL": lambda row: row["fare"] is not None and row["driver"] is None,
    }
    found = table.scan(filter=wanted).to_arrow().to_pylist()
    key = lambda row: row["id"]  # noqa: E731
    assert sorted(found, key=key) == sorted(filter(chosen[wanted], rows), key=key)
    assert [row["id"] for row in table.lookup(["t003"]).to_arrow().to_pylist()] == ["t003"]


def test_incremental_queries_have_the_columns_of_now(tmp_path: Path) -> None:
    table = Table(open_golden("cow_schema_on_read", tmp_path).path)
    first = table.timeline().completed_writes()[0].completion_time
    assert first is not None
    rows = table.incremental("000", first).to_arrow()
    assert rows.column_names == ["id", "ts", "driver", "city", "fare"] and set(rows["fare"].to_pylist()) == {None}
    assert "rider-3" in rows["driver"].to_pylist()


def test_a_history_that_is_torn_or_damaged_gives_no_other_rows(tmp_path: Path) -> None:
    path = open_golden("cow_schema_on_read", tmp_path).path
    table = Table(path)
    expected = table.scan().to_arrow()
    file = history_file(path)
    whole = file.read_bytes()
    for end in range(0, len(whole), 199):
        file.write_bytes(whole[:end])
        with pytest.raises(CorruptData, match="schemacommit"):
            table.scan()
    for damage in (
        (b'"id":7', b'"id":8'),
        (b'"type":"string"', b'"type":"strong"'),
        (b'"max_column_id":9', b'"max_column_id":8'),
    ):
        file.write_bytes(whole.replace(*damage))
        with pytest.raises(CorruptData):
            table.scan()
    document = json.loads(whole)
    file.write_text(json.dumps({"schemas": document["schemas"][:-1]}))
    with pytest.raises(CorruptData, match="before the first change"):
        table.scan()
    file.write_bytes(whole)
    assert table.scan().to_arrow().equals(expected)


def rewritten(path: Path, instant: str, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
    """The commit of an instant with other extra metadata."""
    (file,) = (path / ".hoodie" / "timeline").glob(f"{instant}_*")
    metadata = CommitMetadata.decode(file.read_bytes())
    object.__setattr__(metadata, "extra_metadata", change(dict(metadata.extra_metadata)))
    file.write_bytes(metadata.encode())


def test_columns_written_without_ids_keep_their_ids(tmp_path: Path) -> None:
    """The last write of a writer that knows nothing of ids, which brought a column of its own."""
    path = open_golden("cow_schema_on_read", tmp_path).path
    table = Table(path)
    expected = table.scan().to_arrow()

    def by_names(extra: dict[str, str]) -> dict[str, str]:
        schema = json.loads(extra[SCHEMA_KEY])
        schema["fields"] = [*schema["fields"][5:], {"name": "more", "type": ["null", "int"], "default": None}]
        return {SCHEMA_KEY: json.dumps(schema)}

    rewritten(path, times(table)[-1], by_names)
    found = table.scan().to_arrow()
    assert found.drop_columns(["more"]).equals(expected) and set(found["more"].to_pylist()) == {None}


def test_a_change_after_a_write_by_names(tmp_path: Path) -> None:
    """If it numbered the columns again, an id may be that of another column than before; without ids, nothing is lost."""
    path = open_golden("cow_schema_on_read", tmp_path).path
    table = Table(path)
    expected = table.scan().to_arrow()
    rewritten(path, times(table)[1], lambda extra: {SCHEMA_KEY: extra[SCHEMA_KEY]})
    assert table.scan().to_arrow().equals(expected)

    def renumbered(extra: dict[str, str]) -> dict[str, str]:
        schema = json.loads(extra[LATEST_SCHEMA_KEY])
        for number, column in enumerate(schema["fields"]):
            column["id"] = number
        return {**extra, LATEST_SCHEMA_KEY: json.dumps({**schema, "max_column_id": len(schema["fields"]) - 1})}

    changes = [time for time in times(table) if _is_change(table, time)]
    rewritten(path, times(table)[times(table).index(changes[-1]) - 1], lambda extra: {SCHEMA_KEY: extra[SCHEMA_KEY]})
    rewritten(path, changes[-1], renumbered)
    with pytest.raises(Unsupported, match="reassigned the column ids"):
        table.scan()


def _is_change(table: Table, time: str) -> bool:
    instant = next(one for one in writes(table) if one.request_time == time)
    return read_commit(table.context.timeline, instant).operation is Operation.ALTER_SCHEMA


def test_columns_that_the_history_lacks_are_named(tmp_path: Path) -> None:
    path = open_golden("cow_schema_on_read", tmp_path).path
    table = Table(path)

    def with_another_column(extra: dict[str, str]) -> dict[str, str]:
        schema = json.loads(extra[SCHEMA_KEY])
        schema["fields"].append({"name": "more", "type": ["null", "int"], "default": None})
        return {**extra, SCHEMA_KEY: json.dumps(schema)}

    rewritten(path, times(table)[-1], with_another_column)
    with pytest.raises(CorruptData, match="more"):
        table.scan()


def test_schema_of_a_failed_schema_change_is_ignored(tmp_path: Path) -> None:
    path = open_golden("mor_schema_on_read", tmp_path).path
    table = Table(path)
    expected = table.scan().to_arrow()
    file = history_file(path)
    document = json.loads(file.read_bytes())
    newest = json.loads(json.dumps(document["schemas"][0]).replace("driver", "pilot"))
    newest["version_id"] = 29990101000000000
    later = file.with_name("29990101000000000_29990101000000001.schemacommit")
    later.write_text(json.dumps({"schemas": [newest, *document["schemas"]]}))
    # As Apache Hudi leaves it: the history before it is missing.
    file.unlink()
    assert table.scan().to_arrow().equals(expected)


def new_rows(**columns: list[Any]) -> pa.Table:
    return pa.table({"ts": [9] * len(columns["id"]), **columns})


def by_id(table: Table) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in table.scan().to_arrow().to_pylist()}


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", CASES)
def test_writes_and_services_keep_the_ids(name: str, tmp_path: Path) -> None:
    """Old rows are rewritten by upserts, compaction, log compaction and clustering: no value comes from another column."""
    options = {"hoodie.compact.inline": "false"} if name.startswith("mor") else {}
    table = Table(open_golden(name, tmp_path).path, options=options)
    expected = by_id(table)
    inserted = times(table)[0]
    before = table.scan(as_of=inserted).to_arrow().sort_by("id")
    table.upsert(new_rows(id=["t001"], driver=["new"], city=["berlin"], fare=[1.5]))
    expected["t001"] = {"id": "t001", "driver": "new", "city": "berlin", "fare": 1.5, "ts": 9}
    assert by_id(table) == expected
    more = new_rows(id=["t002"], driver=["other"], city=["chicago"], fare=[2.5], rider=["brought again"])
    table.upsert(more)
    expected = {key: {**row, "rider": None} for key, row in expected.items()}
    expected["t002"] = {"id": "t002", "driver": "other", "city": "chicago", "fare": 2.5, "ts": 9, "rider": "brought again"}
    assert by_id(table) == expected
    table.delete(pa.table({"id": ["t003"], "ts": [9], "city": ["amsterdam"]}))
    del expected["t003"]
    if name.startswith("mor"):
        table.upsert(new_rows(id=["t002"], driver=["third"], city=["chicago"], fare=[2.5], rider=["again"]))
        expected["t002"].update(driver="third", rider="again")
        assert table.log_compact(options={"hoodie.log.compaction.blocks.threshold": "1"}).runs
        assert by_id(table) == expected
        assert table.compact(options={"hoodie.compact.inline.max.delta.commits": "1"}).runs
    assert by_id(table) == expected
    table.cluster()
    assert by_id(table) == expected
    assert table.validate().ok
    assert table.scan(as_of=inserted).to_arrow().sort_by("id").equals(before)
    schema = json.loads(newest(table).extra_metadata[LATEST_SCHEMA_KEY])
    ids = {column["name"]: column["id"] for column in schema["fields"]}
    assert (ids["driver"], ids["fare"], ids["rider"], schema["max_column_id"]) == (7, 10, 11, 11)


def newest(table: Table) -> CommitMetadata:
    """The columns in the newest commit."""
    return read_commit(table.context.timeline, table.timeline().completed_writes()[-1])


def test_every_commit_carries_the_schema_and_the_history(tmp_path: Path) -> None:
    path = open_golden("cow_schema_on_read", tmp_path).path
    table = Table(path)
    text, entries = newest(table).extra_metadata[LATEST_SCHEMA_KEY], json.loads(history_file(path).read_bytes())["schemas"]
    table.upsert(new_rows(id=["t001"], driver=["new"], city=["berlin"], fare=[1.5]))
    assert newest(table).extra_metadata[LATEST_SCHEMA_KEY] == text
    done = table.timeline().completed_writes()[-1]
    (file,) = (path / ".hoodie" / ".schema").glob(f"{done.request_time}_*")
    assert json.loads(file.read_bytes())["schemas"] == entries
    assert done.completion_time is not None and file.name.partition("_")[2].partition(".")[0] < done.completion_time
    table.delete_partitions("berlin")
    assert newest(table).extra_metadata[LATEST_SCHEMA_KEY] == text


def test_rolled_back_write_removes_its_schema(tmp_path: Path) -> None:
    table = Table(open_golden("cow_schema_on_read", tmp_path).path)
    expected = by_id(table)
    table.upsert(new_rows(id=["t001"], driver=["new"], city=["berlin"], fare=[1.5], more=[1]))
    table.rollback(times(table)[-1])
    assert by_id(table) == expected
    table.upsert(new_rows(id=["t001"], driver=["new"], city=["berlin"], fare=[1.5], other=["one"]))
    assert by_id(table)["t001"]["other"] == "one"


def test_schema_change_commits_during_a_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was requested before the write, which is planned again with the columns of now."""
    path = open_golden("mor_schema_on_read", tmp_path).path
    table = Table(path)
    (file,) = (path / ".hoodie" / "timeline").glob(f"{times(table)[-1]}_*")
    held = file.read_bytes()
    file.unlink()
    original = Transaction.begin

    def begun(*arguments: Any, **named: Any) -> Transaction:
        made = original(*arguments, **named)
        file.write_bytes(held)
        return made

    monkeypatch.setattr(Transaction, "begin", begun)
    rows = new_rows(id=["t001"], driver=["new"], city=["berlin"])
    result = table.upsert(rows, options={"hoodie.write.set.null.for.missing.columns": "true"})
    assert result.conflict_retries == 1
    assert by_id(table)["t001"] == {"id": "t001", "ts": 9, "driver": "new", "city": "berlin", "fare": None}


def test_first_schema_change_commits_during_a_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write had seen a table without a history of columns; it is planned again by ids."""
    path = open_golden("cow_schema_on_read", tmp_path).path
    first = min(schema.version_id for schema in decode_schema_history(history_file(path).read_bytes()) if schema.version_id)
    timeline = (path / ".hoodie" / "timeline").iterdir()
    held = [history_file(path), *(file for file in timeline if file.is_file() and file.name[:17] >= str(first))]
    content = {file: file.read_bytes() for file in held}
    for file in held:
        file.unlink()
    original = Transaction.begin

    def begun(*arguments: Any, **named: Any) -> Transaction:
        made = original(*arguments, **named)
        for file, data in content.items():
            file.write_bytes(data)
        return made

    monkeypatch.setattr(Transaction, "begin", begun)
    table = Table(path, options={"hoodie.metadata.enable": "false"})
    rows = new_rows(id=["t009"], city=["bern"])
    result = table.upsert(rows, options={"hoodie.write.set.null.for.missing.columns": "true"})
    assert result.conflict_retries == 1
    assert LATEST_SCHEMA_KEY in read_commit(table.context.timeline, writes(table)[-1]).extra_metadata
    assert by_id(table)["t009"]["driver"] is None


class Recording(LocalStorage):
    """Records the folders that are listed once an inflight file exists."""

    def __init__(self, uri: str, listed: list[str]) -> None:
        super().__init__(parse_uri(uri))
        self.listed = listed
        self.started = False

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self.started = self.started or path.endswith(".inflight")
        return super().put_if_absent(path, data)

    def list(self, folder: str) -> Listing:
        if self.started:
            self.listed.append(folder)
        return super().list(folder)

    def names(self, folder: str) -> tuple[str, ...]:
        if self.started:
            self.listed.append(folder)
        return super().names(folder)


@pytest.mark.parametrize("operation", ["upsert", "delete_partitions"])
def test_commit_lists_no_schema_history_for_a_table_without_one(tmp_path: Path, operation: str) -> None:
    table = Table.create(tmp_path, record_key="id", partition_by="city", options={"hoodie.metadata.enable": "false"})
    rows = pa.table({"id": ["a"], "city": ["oslo"]})
    table.upsert(rows)
    listed: list[str] = []
    context = replace(table.context, storage=Recording(table.uri, listed))
    options = parse_options({"hoodie.metadata.enable": "false"})
    if operation == "upsert":
        run_write(context, LocalEngine(1), rows, WriteSettings.of(options, WriteOperation.UPSERT))
    else:
        run_delete_partitions(context, ["oslo"], WriteSettings.of(options, WriteOperation.UPSERT))
    assert table.scan().to_arrow().num_rows == (operation == "upsert")
    assert listed and SCHEMA_FOLDER not in listed


def altered(table: Table, after: str, old: str, new: str) -> None:
    """A column is renamed as ALTER TABLE of Apache Hudi does it, a millisecond after another instant was requested."""
    zone, folder = table.config.zone, Path(table.uri.removeprefix("file:")) / ".hoodie"
    time = format_instant_time(parse_instant_time(after, zone) + 1, zone)
    done = format_instant_time(parse_instant_time(max(after, time), zone) + 1, zone)
    stated = next(
        m for m in map(partial(read_commit, table.context.timeline), reversed(writes(table))) if m.operation.sets_schema
    )
    extra = {key: text.replace(f'"name":"{old}"', f'"name":"{new}"') for key, text in stated.extra_metadata.items()}
    schema = replace(decode_schema(extra[LATEST_SCHEMA_KEY]), version_id=int(time))
    extra[LATEST_SCHEMA_KEY] = encode_schema(schema)
    files = sorted((folder / ".schema").glob("*.schemacommit"))
    entries = decode_schema_history(files[-1].read_bytes())
    (folder / ".schema" / f"{time}_{done}.schemacommit").write_bytes(encode_schema_history((schema, *entries)))
    commit = CommitMetadata(extra_metadata=extra, operation_type=Operation.ALTER_SCHEMA.value)
    for state in ("requested", "inflight"):
        (folder / "timeline" / f"{time}.deltacommit.{state}").write_bytes(b"")
    (folder / "timeline" / f"{time}_{done}.deltacommit").write_bytes(commit.encode())


def writes(table: Table) -> tuple[Instant, ...]:
    return table.timeline().completed_writes()


def test_a_service_that_was_planned_before_a_change_of_columns(tmp_path: Path) -> None:
    """What it writes has the time of its plan, and is read by the columns of that time."""
    table = Table(open_golden("mor_schema_on_read", tmp_path).path, options={"hoodie.compact.inline": "false"})
    table.upsert(new_rows(id=["t001", "t002"], driver=["new", "other"], city=["berlin", "chicago"], fare=[1.5, 2.5]))
    expected = by_id(table)
    planned = table.schedule_compaction().planned
    assert planned is not None
    altered(table, planned, "driver", "pilot")
    expected = {key: {"pilot" if name == "driver" else name: row[name] for name in row} for key, row in expected.items()}
    assert by_id(table) == expected
    table.compact(planned)
    assert by_id(table) == expected
    table.upsert(new_rows(id=["t001"], pilot=["third"], city=["berlin"], fare=[1.5]))
    expected["t001"]["pilot"] = "third"
    table.compact()
    assert by_id(table) == expected


def test_a_write_that_began_before_a_change_of_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lands as it is, with the columns of its time; the change holds."""
    table = Table(open_golden("mor_schema_on_read", tmp_path).path, options={"hoodie.metadata.enable": "false"})
    original = Transaction.begin

    def begun(*arguments: Any, **named: Any) -> Transaction:
        made = original(*arguments, **named)
        altered(table, made.instant_time, "driver", "pilot")
        return made

    with monkeypatch.context() as patched:
        patched.setattr(Transaction, "begin", begun)
        result = table.upsert(new_rows(id=["t001"], driver=["new"], city=["berlin"], fare=[1.5]))
    assert result.conflict_retries == 0
    assert by_id(table)["t001"] == {"id": "t001", "ts": 9, "pilot": "new", "city": "berlin", "fare": 1.5}


ARCHIVING = {
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.clean.commits.retained": "1",
    "hoodie.metadata.enable": "false",
}


def archived_beyond(table: Table, row: pa.Table, time: str) -> None:
    """Writes a row again until the timeline begins behind a time."""
    for _ in range(6):
        if writes(table)[0].request_time > time:
            return
        table.upsert(row, options=ARCHIVING)
    raise AssertionError(f"nothing was archived up to {time}")


@pytest.mark.parametrize("name", CASES)
def test_restored_schema_change_is_not_read_from_archived_history(name: str, tmp_path: Path) -> None:
    """Its history remains next to the timeline; an older instant is not completed for that reason."""
    table = Table(open_golden(name, tmp_path).path)
    inserted, changed, *_ = times(table)
    table.savepoint(inserted)
    table.restore(inserted)
    table.delete_savepoint(inserted)
    expected = by_id(table)
    archived_beyond(table, new_rows(id=["new"], rider=["new"], city=["berlin"], fare=[1.5]), changed)
    assert by_id(table) == {**expected, "new": {"id": "new", "ts": 9, "rider": "new", "city": "berlin", "fare": 1.5}}
    assert LATEST_SCHEMA_KEY not in newest(table).extra_metadata


def test_rolled_back_schema_change_does_not_apply_to_later_service_files(tmp_path: Path) -> None:
    table = Table(open_golden("mor_schema_on_read", tmp_path).path, options={"hoodie.compact.inline": "false"})
    table.upsert(new_rows(id=["t001"], driver=["new"], city=["berlin"], fare=[1.5]))
    expected = by_id(table)
    altered(table, times(table)[-1], "driver", "pilot")
    changed = times(table)[-1]
    table.rollback(changed)
    assert table.compact(options={"hoodie.compact.inline.max.delta.commits": "1"}).runs
    archived_beyond(table, new_rows(id=["new"], driver=["new"], city=["elsewhere"], fare=[1.5]), changed)
    expected["new"] = {"id": "new", "ts": 9, "driver": "new", "city": "elsewhere", "fare": 1.5}
    assert by_id(table) == expected


def test_archived_schema_change_applies_after_table_services(tmp_path: Path) -> None:
    """No history next to an instant of the timeline names it any more."""
    table = Table(open_golden("cow_schema_on_read", tmp_path).path, options=ARCHIVING)
    table.upsert(new_rows(id=["t001"], driver=["new"], city=["berlin"], fare=[1.5]))
    expected = by_id(table)
    for _ in range(4):
        table.cluster()
    table.archive(options={name: ARCHIVING[name] for name in ("hoodie.keep.min.commits", "hoodie.keep.max.commits")})
    assert writes(table)[0].request_time > str(decode_schema(newest(table).extra_metadata[LATEST_SCHEMA_KEY]).version_id)
    assert by_id(table) == expected


def test_index_by_name_is_rejected_and_can_be_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While such an index exists, every write is rejected."""
    table = Table(open_golden("cow_schema_on_read", tmp_path).path)
    table.index.create("record_index")
    for attempt in (
        partial(table.index.create, "secondary_index", "driver"),
        partial(table.index.schedule, "column_stats", "ts", function="from_unixtime", function_options={"format": "yyyy"}),
    ):
        with pytest.raises(Unsupported, match="resolves columns by name"):
            attempt()
    assert [info.name for info in table.index.list()] == ["record_index"]
    with monkeypatch.context() as patched:
        patched.setattr(async_indexing, "is_defined", lambda name: False)
        made = table.index.create("secondary_index", "driver").name
    row = new_rows(id=["t001"], driver=["new"], city=["berlin"], fare=[1.5])
    with pytest.raises(Unsupported, match=made):
        table.upsert(row)
    table.index.drop(made)
    table.upsert(row)
    assert by_id(table)["t001"]["driver"] == "new"


def test_table_with_column_ids_cannot_change_version(tmp_path: Path) -> None:
    """The history's files are named as in version 8, and releases of version 6 would go by names; from there is no way back."""
    table = Table(open_golden("cow_schema_on_read", tmp_path).path)
    for change in (table.downgrade, partial(table.upgrade, to=9)):
        with pytest.raises(Unsupported, match="cannot change the version"):
            change()
    assert int(Table(table.uri).config.version) == 8


def test_histories_that_go_while_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writers delete those of instants that left the timeline when a newer one exists."""
    path = open_golden("cow_schema_on_read", tmp_path).path
    table = Table(path)
    expected, older = by_id(table), history_file(path)
    kept = older.read_bytes()
    table.upsert(new_rows(id=["new"], driver=["new"], city=["berlin"], fare=[1.5]))
    original = LocalStorage.read

    def read(storage: LocalStorage, name: str) -> bytes | None:
        if name.endswith(older.name):
            older.unlink(missing_ok=True)
        return original(storage, name)

    monkeypatch.setattr(LocalStorage, "read", read)
    assert by_id(table).keys() == {*expected, "new"}
    assert not older.exists()

    def lost(storage: LocalStorage, name: str) -> bytes | None:
        return None if name.endswith(".schemacommit") else original(storage, name)

    older.write_bytes(kept)
    monkeypatch.setattr(LocalStorage, "read", lost)
    with pytest.raises(TableState, match="try again"):
        table.scan()


def test_a_partial_update_is_refused(tmp_path: Path) -> None:
    table = Table(open_golden("mor_schema_on_read", tmp_path).path)
    with pytest.raises(Unsupported, match="partial update"):
        table.upsert(new_rows(id=["t001"], driver=["new"], city=["berlin"]), partial=True)
