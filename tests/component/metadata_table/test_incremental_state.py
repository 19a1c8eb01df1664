"""Commits of an open table update its cached metadata table state; changes by other writers invalidate it."""

from __future__ import annotations

import os
import pickle
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.errors import HudiError
from pyhudi.metadata_table.reader import metadata_listing
from pyhudi.metadata_table.reader.index_lookups import find_files
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from tests.support.metadata_truth import assert_metadata_is_true

OPTIONS = {
    "hoodie.metadata.index.partition.stats.enable": False,
    "hoodie.parquet.small.file.limit": 0,
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
}


@pytest.fixture(autouse=True)
def no_damage() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


@pytest.fixture
def full_lookups(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The partitions whose files were looked up in full."""
    calls: list[tuple[str, ...]] = []

    def find(metadata: MetadataTable, partitions: list[str]) -> pa.RecordBatch:
        calls.append(tuple(partitions))
        return find_files(metadata, partitions)

    monkeypatch.setattr(metadata_listing, "find_files", find)
    return calls


def rows(first: int, last: int, ts: int) -> pa.Table:
    ids, stamps = range(first, last), [ts] * (last - first)
    return pa.table({"id": [f"k{n:03}" for n in ids], "p": [f"p{n % 2}" for n in ids], "ts": stamps, "v": stamps})


def create(path: Path, kind: str = "cow", **options: object) -> Table:
    table = Table.create(
        path / "t", record_key="id", partition_by="p", ordering="ts", table_type=kind, options={**OPTIONS, **options}
    )
    table.upsert(rows(0, 20, 1))
    table.upsert(rows(5, 10, 2))
    return table


def state(table: Table) -> dict[str, int]:
    found = table.scan().to_arrow()
    return dict(zip(found.column("id").to_pylist(), found.column("v").to_pylist(), strict=True))


def is_true(table: Table, expected: dict[str, int]) -> None:
    assert state(Table(table.uri)) == expected
    assert_metadata_is_true(Table(table.uri))


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_the_next_commit_reads_only_what_was_added(tmp_path: Path, kind: str, full_lookups: list[tuple[str, ...]]) -> None:
    table = create(tmp_path, kind)
    expected = state(table)
    full_lookups.clear()
    for ts in range(3, 6):
        table.upsert(rows(ts, ts + 8, ts))
        expected.update({f"k{n:03}": ts for n in range(ts, ts + 8)})
    assert not full_lookups
    is_true(table, expected)


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_incremental_state_after_commits_and_cleans_equals_a_full_lookup(
    tmp_path: Path, kind: str, full_lookups: list[tuple[str, ...]]
) -> None:
    services = {
        "hoodie.clean.automatic": True,
        "hoodie.clean.commits.retained": 1,
        "hoodie.compact.inline": kind == "mor",
        "hoodie.metadata.compact.max.delta.commits": 100,
    }
    table = create(tmp_path, kind, **services)
    full_lookups.clear()
    cleaned = 0
    for ts in range(3, 12):
        cleaned += table.upsert(rows(ts, ts + 8, ts)).services["clean"].startswith("run")
        operation_cache = table.context.operation_cache.get("metadata listing")
        fresh = Table(table.uri).context
        expected = find_files(MetadataTable(fresh, fresh.timeline.load()), ["p0", "p1"])
        assert pa.concat_batches([operation_cache._files["p0"], operation_cache._files["p1"]]).equals(expected)
    assert cleaned > 1
    assert not full_lookups
    is_true(table, {**state(table), **{f"k{n:03}": 11 for n in range(11, 19)}})


def test_commits_without_lookups_are_merged_when_the_listing_is_used(tmp_path: Path, full_lookups: list[tuple[str, ...]]) -> None:
    options: dict[str, object] = {"hoodie.metadata.compact.max.delta.commits": 100}
    table = create(tmp_path, "cow", **options)
    expected = state(table)
    full_lookups.clear()
    for number in range(2 * metadata_listing.MAX_UNMERGED):
        table.bulk_insert(rows(100 + number, 101 + number, 3))
        expected[f"k{100 + number}"] = 3
    listing = table.context.operation_cache.get("metadata listing")
    assert 0 < len(listing._unmerged) <= metadata_listing.MAX_UNMERGED
    fresh = Table(table.uri).context
    found = find_files(MetadataTable(fresh, fresh.timeline.load()), ["p0", "p1"])
    assert pa.concat_batches([listing._files["p0"], listing._files["p1"]]).equals(found)
    assert not listing._unmerged and not full_lookups
    is_true(table, expected)


def another_writer(table: Table) -> None:
    Table(table.uri, options=OPTIONS).upsert(rows(0, 20, 7))


def another_writer_overwrites(table: Table) -> None:
    Table(table.uri, options=OPTIONS).insert_overwrite(rows(0, 10, 7))


def rollback(table: Table) -> None:
    other = Table(table.uri, options=OPTIONS)
    instant = other.upsert(rows(0, 20, 7)).instant
    assert instant is not None
    other.rollback(instant)


def restore(table: Table) -> None:
    other = Table(table.uri, options=OPTIONS)
    instant = other.upsert(rows(0, 20, 6)).instant
    assert instant is not None
    other.savepoint(instant)
    other.upsert(rows(0, 20, 7))
    other.restore(instant)


def services(table: Table) -> None:
    other = Table(table.uri, options={**OPTIONS, "hoodie.metadata.compact.max.delta.commits": 1})
    for ts in range(7, 13):
        other.upsert(rows(0, 20, ts))
    other.clean(options={"hoodie.clean.commits.retained": 1})
    other.upsert(rows(0, 20, 13))


def rebuilt(table: Table) -> None:
    other = Table(table.uri, options=OPTIONS)
    other.drop_metadata_table()
    other.upsert(rows(0, 20, 7))


def dropped(table: Table) -> None:
    Table(table.uri, options=OPTIONS).drop_metadata_table()


EVENTS: list[Callable[[Table], None]] = [
    another_writer,
    another_writer_overwrites,
    rollback,
    restore,
    services,
    rebuilt,
    dropped,
]


@pytest.mark.sample(5)
@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
def test_changes_by_other_writers_between_commits_are_read(tmp_path: Path, kind: str, event: Callable[[Table], None]) -> None:
    table = create(tmp_path, kind)
    event(table)
    expected = state(Table(table.uri))
    for ts in (20, 21):
        table.upsert(rows(3, 12, ts))
        expected.update({f"k{n:03}": ts for n in range(3, 12)})
        is_true(table, expected)


def test_a_table_that_was_recreated(tmp_path: Path) -> None:
    table = create(tmp_path)
    shutil.rmtree(tmp_path / "t")
    create(tmp_path)
    table.upsert(rows(3, 12, 9))
    is_true(table, {**state(Table(table.uri)), **{f"k{n:03}": 9 for n in range(3, 12)}})


def test_a_metadata_table_that_was_removed_by_hand_fails_the_commit(tmp_path: Path) -> None:
    """Otherwise the commit would create a metadata table of a single log file."""
    table = create(tmp_path)
    shutil.rmtree(tmp_path / "t" / ".hoodie" / "metadata")
    with pytest.raises(HudiError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table.upsert(rows(3, 12, 9))


def test_forked_and_unpickled_tables_start_without_cached_listing(tmp_path: Path) -> None:
    table = create(tmp_path)
    assert pickle.loads(pickle.dumps(table.context)).operation_cache.get("metadata listing") is None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        os._exit(0 if table.context.operation_cache.get("metadata listing") is None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert table.context.operation_cache.get("metadata listing") is not None
