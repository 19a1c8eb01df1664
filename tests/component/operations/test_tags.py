"""Named savepoints: read, restore and delete by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi.errors import CorruptData, InstantNotFound, InvalidRequest, TableState
from pyhudi.format.instants import Action
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.table.timeline.timeline_store import TimelineStore

OPTIONS = {
    "hoodie.clean.commits.retained": 1,
    "hoodie.keep.min.commits": 2,
    "hoodie.keep.max.commits": 3,
    "hoodie.archive.beyond.savepoint": True,
}


def rows(number: int) -> pa.Table:
    return pa.table({"id": ["a", "b"], "n": [number, number]})


def ids_of(scan: hp.Scan) -> set[int]:
    return set(scan.to_arrow()["n"].to_pylist())


@pytest.fixture(params=["cow", "mor"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> hp.Table:
    made = hp.Table.create(tmp_path / "t", record_key="id", table_type=request.param, options=OPTIONS)
    made.upsert(rows(1), options=OPTIONS)
    return made


@pytest.mark.sample(1)
def test_tagged_snapshot_is_read_after_cleaning_and_archival(table: hp.Table) -> None:
    kept = table.savepoint(tag="2026 Q3", comments="closed\nby hand", user="me")
    assert kept.comments == "tag:2026 Q3\nclosed\nby hand" and table.tags() == {"2026 Q3": kept.instant}
    for number in range(2, 9):
        table.upsert(rows(number), options=OPTIONS)
        table.run_services(options=OPTIONS)
    table.savepoint()
    table.archive(options=OPTIONS)
    assert ids_of(table.scan()) == {8}
    assert ids_of(table.scan(as_of="tag:2026 Q3")) == {1}
    assert ids_of(table.scan(options={"as.of.instant": "tag:2026 Q3"})) == {1}
    assert ids_of(table.lookup(["a"], options={"as.of.instant": "tag:2026 Q3"})) == {1}
    assert ids_of(table.lookup(pa.table({"id": ["a"]}), options={"as.of.instant": "tag:2026 Q3"})) == {1}
    assert ids_of(hp.Table(table.uri).scan(as_of=kept.instant)) == {1}


def test_duplicate_tag_is_refused_and_unknown_tag_lists_known_ones(table: hp.Table) -> None:
    first = table.savepoint(tag="one").instant
    table.upsert(rows(2))
    with pytest.raises(TableState, match=f"{first} .* has the tag 'one'"):
        table.savepoint(tag="one")
    second = table.savepoint(tag="two").instant
    assert table.tags() == {"one": first, "two": second} and list(table.tags()) == ["one", "two"]
    unknown: list[Callable[[], object]] = [
        lambda: table.scan(as_of="tag:three"),
        lambda: table.restore("tag:three"),
        lambda: table.delete_savepoint("tag:"),
    ]
    for operation in unknown:
        with pytest.raises(InstantNotFound, match="there are: one, two"):
            operation()
    with pytest.raises(InvalidRequest, match="not a time to travel to"):
        table.scan(as_of="one")
    table.delete_savepoint("tag:one")
    assert table.tags() == {"two": second}
    assert table.timeline().completed_writes()[0].request_time == first


@pytest.mark.sample(7)
@pytest.mark.parametrize("name", ["", " ", " x", "x ", "a\nb", "a\tb", "x" * 201])
def test_invalid_tag_names_are_refused(table: hp.Table, name: str) -> None:
    with pytest.raises(InvalidRequest, match="is no tag"):
        table.savepoint(tag=name)
    assert table.tags() == {} and not table.timeline().pending()


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", ["x", "x" * 200, "tag:x", "v1.0/β", "2026-01-01"])
def test_valid_tag_names(table: hp.Table, name: str) -> None:
    table.savepoint(tag=name)
    table.upsert(rows(2))
    assert ids_of(table.scan(as_of=f"tag:{name}")) == {1}


def test_table_is_restored_to_a_tag(table: hp.Table) -> None:
    table.savepoint(tag="before")
    table.upsert(rows(2))
    table.restore("tag:before")
    assert ids_of(table.scan()) == {1} and table.validate().ok and list(table.tags()) == ["before"]


def test_a_savepoint_that_another_writer_commented_has_a_tag(table: hp.Table) -> None:
    """As CALL create_savepoint of Apache Hudi leaves it."""
    instant = table.savepoint(comments="tag:theirs").instant
    assert table.tags() == {"theirs": instant}
    table.delete_savepoint(instant)
    table.savepoint(comments="no tag:at all")
    assert table.tags() == {}


def test_a_savepoint_that_is_deleted_while_tags_are_read(table: hp.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    first = table.savepoint(tag="one").instant
    table.upsert(rows(2))
    second = table.savepoint(tag="two").instant
    load = TimelineStore.load

    def loaded(store: TimelineStore) -> Timeline:
        found = load(store)
        monkeypatch.undo()
        table.delete_savepoint(first)
        return found

    monkeypatch.setattr(TimelineStore, "load", loaded)
    assert table.tags() == {"two": second}


def test_a_damaged_savepoint_is_named(table: hp.Table) -> None:
    table.savepoint(tag="one")
    (instant,) = table.timeline().completed(Action.SAVEPOINT)
    path = table.context.timeline.path(instant)
    table.context.storage.put(path, b"damage")
    with pytest.raises(CorruptData, match=path.rsplit("/", 1)[-1]):
        table.tags()


def test_sql_reads_by_a_name(table: hp.Table) -> None:
    table.savepoint(tag="before")
    table.upsert(rows(2))
    for words in ("VERSION AS OF", "TIMESTAMP AS OF"):
        found = hp.sql(f"SELECT DISTINCT n FROM `{table.uri.removeprefix('file:')}` {words} 'tag:before'")
        assert found.to_pydict() == {"n": [1]}
