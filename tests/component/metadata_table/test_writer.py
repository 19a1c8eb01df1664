"""The metadata table is built, updated by every operation, changed and dropped."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import InvalidRequest, TableState, Unsupported, WriteConflict
from pyhudi.format.instants import Action
from pyhudi.format.paths import INDEX_DEFINITIONS_FILE
from pyhudi.metadata_table.reader.index_lookups import find_column_stats, find_partition_stats
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.metadata_table.writer.initialize_partitions import ensure_metadata_table
from pyhudi.metadata_table.writer.metadata_settings import MetadataSettings
from pyhudi.options.supported import parse_options
from pyhudi.storage.local import LocalStorage
from pyhudi.table.table_config import store_table_config
from tests.support.metadata_truth import assert_metadata_is_true
from tests.support.needs import WIDE

ALL = {
    "hoodie.metadata.record.index.enable": True,
    "hoodie.metadata.index.bloom.filter.enable": True,
    "hoodie.metadata.record.index.min.filegroup.count": 3,
    "hoodie.index.bloom.num_entries": 100,
}
DEFAULTS = {"files", "column_stats", "partition_stats"}


@pytest.fixture(autouse=True)
def no_damage() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


def rows(keys: Sequence[int], ts: int = 1, city: str | None = None, **more: Any) -> pa.Table:
    columns: dict[str, Any] = {
        "id": [f"k{key:03d}" for key in keys],
        "city": [city or ("oslo", "rome")[key % 2] for key in keys],
        "ts": pa.array([ts] * len(keys), pa.int64()),
        "fare": pa.array([None if key % 5 == 4 else key / 4 for key in keys], pa.float64()),
    }
    return pa.table({**columns, **more})


def create(path: Path, kind: str = "cow", /, **options: Any) -> Table:
    merged = {**ALL, **{key.replace("__", "."): value for key, value in options.items()}}
    partition = merged.pop("partition_by", "city")
    return Table.create(path, record_key="id", partition_by=partition, ordering="ts", table_type=kind, options=merged)


def true(table: Table) -> MetadataTable:
    found = assert_metadata_is_true(table)
    assert found is not None, "there is no metadata table"
    return found


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_every_operation_updates_the_metadata_table(tmp_path: Path, kind: str) -> None:
    table = create(tmp_path, kind)
    table.bulk_insert(rows(range(20)))
    assert set(true(table).partitions) == DEFAULTS | {"record_index", "bloom_filters"}
    table.upsert(rows(range(10, 30), 2))
    true(table)
    table.insert(rows(range(40, 45), 2))
    true(table)
    table.delete(keys=rows(range(3)))
    table.delete(where="fare > 10")
    true(table)
    table.upsert(rows(range(0, 50, 7), 3))
    true(table)
    if kind == "mor":
        table.compact()
        true(table)
        table.upsert(rows(range(5), 4))
        table.upsert(rows(range(3, 9), 5))
        table.log_compact()
        true(table)
    table.cluster(order_by="fare")
    true(table)
    table.insert_overwrite(rows([1, 91], 6))
    true(table)
    table.delete_partitions("rome")
    true(table)
    table.insert_overwrite_table(rows([5, 6], 7))
    true(table)
    last = table.timeline().last_completed_write()
    assert last is not None
    table.rollback(last.request_time)
    true(table)
    table.upsert(rows(range(6), 8))
    true(table)


def test_a_table_without_partitions_has_no_partition_stats(tmp_path: Path) -> None:
    table = create(tmp_path, partition_by=None)
    table.upsert(rows(range(5)))
    table.upsert(rows(range(3, 8), 2))
    assert set(true(table).partitions) == {"files", "column_stats", "record_index", "bloom_filters"}


def test_a_record_that_moves_is_known_at_its_new_place(tmp_path: Path) -> None:
    table = create(tmp_path, hoodie__index__type="GLOBAL_SIMPLE")
    table.upsert(rows(range(6)))
    table.upsert(rows(range(6), 2, city="rome"))
    true(table)
    assert set(table.scan(["city"]).to_arrow()["city"].to_pylist()) == {"rome"}


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_deletes_that_lose_keep_their_keys(tmp_path: Path, kind: str) -> None:
    table = create(tmp_path, kind)
    table.upsert(rows(range(6), 5, _hoodie_is_deleted=pa.array([False] * 6)))
    older = rows(range(3), 1, _hoodie_is_deleted=pa.array([True] * 3))
    newer = rows(range(3, 6), 9, _hoodie_is_deleted=pa.array([True] * 3))
    table.upsert(older)
    true(table)
    table.upsert(newer)
    true(table)
    assert table.scan().count() == 3
    table.upsert(rows(range(3, 6), 10, _hoodie_is_deleted=pa.array([False] * 3)))
    true(table)
    assert table.scan().count() == 6


def test_write_creates_a_missing_metadata_table(tmp_path: Path) -> None:
    table = create(tmp_path, "mor", hoodie__metadata__enable=False)
    for ts in range(1, 4):
        table.upsert(rows(range(ts, ts + 10), ts))
    assert not table.config.metadata_partitions and not (tmp_path / ".hoodie" / "metadata").exists()
    table = Table(tmp_path, options={**ALL, "hoodie.metadata.enable": True})
    table.upsert(rows(range(20, 25), 4))
    assert set(true(table).partitions) == DEFAULTS | {"record_index", "bloom_filters"}


def test_options_build_and_drop(tmp_path: Path) -> None:
    table = create(tmp_path)
    table.upsert(rows(range(5)))
    without = {"hoodie.metadata.record.index.enable": False}
    table.upsert(rows(range(5), 2), options=without)
    assert "record_index" not in true(table).partitions
    table.upsert(rows(range(5, 9), 3))
    assert "record_index" in true(table).partitions
    plain = Table(tmp_path)
    plain.upsert(rows(range(5, 9), 4))
    assert {"record_index", "bloom_filters"} < set(true(plain).partitions), "a writer that says nothing of them keeps them"
    table.upsert(rows(range(5), 5), options={"hoodie.metadata.enable": False})
    assert not table.context.reloaded().config.metadata_partitions
    assert not (tmp_path / ".hoodie" / "metadata").exists()


def test_dropping(tmp_path: Path) -> None:
    table = create(tmp_path)
    table.upsert(rows(range(5)))
    table.index.drop("column_stats")
    assert set(true(table).partitions) == {"files", "record_index", "bloom_filters"}
    with pytest.raises(InvalidRequest, match="no index 'nonsense'"):
        table.index.drop("nonsense")
    table.upsert(rows(range(5), 2))
    assert set(true(table).partitions) > DEFAULTS
    table.drop_metadata_table()
    assert assert_metadata_is_true(table) is None
    assert table.scan().count() == 5


def test_unsupported_index_forbids_writes_until_it_is_dropped(tmp_path: Path) -> None:
    table = create(tmp_path)
    table.upsert(rows(range(5)))
    context = table.context.reloaded()
    partitions = ",".join((*context.config.metadata_partitions, "secondary_index_x"))
    store_table_config(context.storage, {"hoodie.table.metadata.partitions": partitions}, context.env)
    for write in (lambda: table.upsert(rows(range(5), 2)), table.cluster, lambda: table.delete_partitions("*")):
        with pytest.raises(Unsupported, match=r"secondary_index_x.*index.drop"):
            write()
    table.index.drop("secondary_index_x")
    table.upsert(rows(range(5), 2))
    true(table)


def test_missing_metadata_table_is_reported(tmp_path: Path) -> None:
    table = create(tmp_path)
    table.upsert(rows(range(5)))
    table.context.storage.delete_folder(".hoodie/metadata")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(TableState, match="drop_metadata_table"):
            table.upsert(rows(range(5), 2))
    table.drop_metadata_table()
    table.upsert(rows(range(5), 2))
    true(table)


def test_columns_that_come_later(tmp_path: Path) -> None:
    """Files that are older than a column get their statistics of it when their partition is touched."""
    table = create(tmp_path, hoodie__parquet__small__file__limit=0)
    table.upsert(rows(range(6)))
    table.upsert(rows(range(10, 14), 2, note=pa.array(["a", None, "b", "c"])))
    metadata = true(table)
    assert metadata.definitions["column_stats"].source_fields[-1] == "note"
    notes = find_column_stats(metadata, ["note"]).to_pylist()
    assert sorted((row["value_count"], row["null_count"]) for row in notes) == [(2, 0), (2, 1), (3, 3), (3, 3)]


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_column_dropped_and_added_again_has_statistics(tmp_path: Path, kind: str) -> None:
    """A write with it was planned when the metadata table was built, and one without it landed first."""
    without = create(tmp_path, kind, hoodie__metadata__enable=False)
    without.upsert(rows(range(4)))
    schema = without.schema()
    planned = pa.schema([*schema, pa.field("note", pa.string())])
    settings = MetadataSettings.of(parse_options({"hoodie.metadata.enable": True}))
    ensure_metadata_table(without.context, LocalEngine(1), settings, 1000, planned, schema)
    table = Table(tmp_path, options={"hoodie.metadata.enable": True})
    table.upsert(rows([0], 2))
    assert not find_partition_stats(true(table), ["note"]).num_rows
    assert find_column_stats(true(table), ["note"]).num_rows
    table.upsert(rows([0], 3, note=["a"]))
    assert set(find_partition_stats(true(table), ["note"])["file_name"].to_pylist()) == {"oslo", "rome"}
    assert not table.validate().findings


def test_configured_statistics_columns_are_kept(tmp_path: Path) -> None:
    chosen = {"hoodie.metadata.index.column.stats.column.list": "fare"}
    table = create(tmp_path, **chosen)
    table.upsert(rows(range(6)))
    Table(tmp_path).upsert(rows(range(3, 9), 2, note=pa.array(["a"] * 6)))
    assert true(table).definitions["column_stats"].source_fields[3:] == ("fare",)
    both = {"hoodie.metadata.index.column.stats.column.list": "fare,note"}
    Table(tmp_path, options=both).upsert(rows(range(3, 9), 3, note=pa.array(["a"] * 6)))
    assert true(table).definitions["column_stats"].source_fields[3:] == ("fare", "note")


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_bounds_missing_from_footers_are_computed(tmp_path: Path, kind: str) -> None:
    long = "x" * 5000
    table = create(tmp_path, kind)
    odd = pa.table(
        {
            "id": ["k1", "k2"],
            "city": ["oslo", "oslo"],
            "ts": pa.array([1, 1], pa.int64()),
            "fare": [math.nan, 2.0],
            "note": [long, "a"],
        }
    )
    table.upsert(odd)
    table.upsert(odd.set_column(2, "ts", pa.array([2, 2], pa.int64())))
    metadata = true(table)
    for row in find_partition_stats(metadata, ["note"]).to_pylist():
        assert row["max"]["value"].endswith(b"x" * 251 + b"y")
    assert table.scan(filter=f"note = '{long}'").count() == 1


@pytest.mark.full
def test_services_of_the_metadata_table(tmp_path: Path) -> None:
    options = {
        "hoodie.clean.commits.retained": 2,
        "hoodie.keep.min.commits": 4,
        "hoodie.keep.max.commits": 5,
        "hoodie.metadata.compact.max.delta.commits": 4,
    }
    table = create(tmp_path, **options)
    said = []
    # Ten are enough for everything to happen once.
    writes = 24 if WIDE else 18
    for ts in range(writes):
        said.append(table.upsert(rows(range(ts, ts + 5), ts)).services)
        # After each service of either table, and at the end.
        if WIDE or ts == writes - 1 or "run" in said[-1]["metadata"] + said[-1]["archive"]:
            true(table)
    assert any("compaction" in one["metadata"] for one in said)
    assert any("files cleaned" in one["metadata"] for one in said)
    assert any("instants archived" in one["metadata"] for one in said)
    assert any("instants archived" in one["archive"] for one in said)
    metadata = true(table)
    assert len(metadata.timeline.completed(Action.COMMIT)) < writes
    # Older commits are in its base files for good, so rolling them back costs the metadata table.
    last = table.timeline().last_completed_write()
    assert last is not None
    table.rollback(last.request_time)
    assert_metadata_is_true(table)
    table.upsert(rows(range(5), 99))
    true(table)


def test_two_writers_at_once(tmp_path: Path) -> None:
    options = {
        "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
        "hoodie.write.num.retries.on.conflict.failures": 9,
    }
    table = create(tmp_path, **options)
    table.upsert(rows(range(4)))

    def write(city: str) -> None:
        # The record index knows one place for each key, so writers share none.
        first = {"north": 100, "south": 200}[city]
        for ts in range(2, 6):
            keys = range(first + ts * 10, first + ts * 10 + 6)
            try:
                Table(tmp_path, options={**ALL, **options}).upsert(rows(keys, ts, city=city))
            except WriteConflict:
                pytest.fail("writers of different partitions do not conflict")

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(write, city) for city in ("north", "south")]:
            done.result()
    true(table)


def test_a_write_reads_the_definitions_of_indexes_once_before_its_commit_and_once_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(tmp_path / "t")
    table.upsert(rows(range(3)))
    paths: list[str] = []
    read = LocalStorage.read

    def noted(storage: LocalStorage, path: str) -> bytes | None:
        paths.append(path)
        return read(storage, path)

    monkeypatch.setattr(LocalStorage, "read", noted)
    table.upsert(rows(range(3), 2))
    assert paths.count(INDEX_DEFINITIONS_FILE) == 2
