"""The snapshot cache of an open table is never stale.

A reader reads before and after every possible change and must see what a newly opened table sees. Without changes it
reads only properties and listings.
"""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.format.paths import PARTITION_METADATA_FILE
from pyhudi.metadata_table.codecs.value_wrappers import unwrap
from pyhudi.metadata_table.reader.metadata_listing import MetadataListing
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.operations.services.index_admin import drop_metadata_table
from pyhudi.planning import data_skipping
from pyhudi.storage.environment import ReplayEnvironment
from pyhudi.storage.fault_injection import FaultyStorage
from pyhudi.table import snapshot_cache as kept_module
from pyhudi.table.snapshot_cache import SnapshotCache, _CachedSnapshot

COLUMNS = ["id", "part", "value", "ts"]
OPTIONS = {"hoodie.parquet.small.file.limit": "0", "hoodie.metadata.compact.max.delta.commits": "3"}


def rows(keys: range, stamp: int = 0) -> pa.Table:
    return pa.table(
        {
            "id": [f"k{key:03}" for key in keys],
            "part": [f"p{key % 3}" for key in keys],
            "value": pa.array([key + 1000 * stamp for key in keys], pa.int64()),
            "ts": pa.array([stamp] * len(keys), pa.int64()),
        }
    )


def made(path: Path, kind: str = "cow", **more: Any) -> Table:
    table = Table.create(path, record_key="id", partition_by="part", ordering="ts", table_type=kind, options=OPTIONS, **more)
    table.bulk_insert(rows(range(30)))
    return table


def seen(table: Table) -> dict[str, object]:
    """The results of every type of read, with statistics of several columns."""
    reads = {
        "all": table.scan(["*"]),
        "filtered": table.scan(filter="value >= 1000 and part = 'p1'"),
        "keys": table.lookup(["k001", "k002", "k500"]),
        "incremental": table.incremental("earliest"),
    }
    found: dict[str, object] = {name: sorted(map(repr, scan.to_arrow().to_pylist())) for name, scan in reads.items()}
    return {**found, "partitions": table.partitions(), "schema": table.schema()}


def check(reader: Table, uri: str) -> None:
    assert seen(reader) == seen(Table(uri))


def _cleaned(table: Table) -> None:
    table.upsert(rows(range(10), 3))
    table.clean(
        dry_run=True, options={"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": "1"}
    )


def _archived(table: Table) -> None:
    for stamp in range(3, 7):
        table.upsert(rows(range(3), stamp))
    _cleaned(table)
    limits = {"hoodie.keep.min.commits": "2", "hoodie.keep.max.commits": "3", "hoodie.clean.commits.retained": "1"}
    table.archive(options=limits)


def _restored(table: Table) -> None:
    table.savepoint()
    table.upsert(rows(range(12), 4))
    table.restore(table.inspect.timeline().filter(pa.compute.field("action") == "savepoint")["request_time"][0].as_py())


def _by_another_process(table: Table) -> None:
    said = "import sys, pyarrow as pa; from pyhudi import Table; Table(sys.argv[1]).delete(['k001', 'k004'])"
    subprocess.run([sys.executable, "-c", said, table.uri.removeprefix("file:")], check=True)


def _rebuilt_metadata(table: Table) -> None:
    drop_metadata_table(table.context.reloaded(), 10_000)
    table.upsert(rows(range(5), 5))


def _without_metadata(table: Table) -> None:
    table.upsert(rows(range(6), 5), options={"hoodie.metadata.enable": "false"})


def _another_schema(table: Table) -> None:
    more = rows(range(4), 6)
    table.upsert(more.append_column("extra", pa.array(["x"] * more.num_rows)))


def _indexed(table: Table) -> None:
    table.index.create("record_index")
    table.upsert(rows(range(3), 5))


def _index_dropped(table: Table) -> None:
    table.index.drop("column_stats")
    table.upsert(rows(range(3), 5))


def _recreate_index(table: Table) -> None:
    table.index.drop("column_stats")
    table.index.create("column_stats")


CHANGES: dict[str, Callable[[Table], Any]] = {
    "upsert": lambda table: table.upsert(rows(range(25, 40), 2)),
    "delete": lambda table: table.delete(["k002"]),
    "new partition": lambda table: table.insert(pa.table({**dict(zip(COLUMNS, [["n"], ["p9"], [7], [1]], strict=True))})),
    "drop partition": lambda table: table.delete_partitions(["p1"]),
    "overwrite": lambda table: table.insert_overwrite_table(rows(range(4), 9)),
    "clustering": lambda table: table.cluster(order_by=["value"]),
    "clean": _cleaned,
    "archival": _archived,
    "restore": _restored,
    "another process": _by_another_process,
    "metadata table rebuilt": _rebuilt_metadata,
    "metadata table off": _without_metadata,
    "index made": _indexed,
    "index dropped": _index_dropped,
    "index recreated": _recreate_index,
    "schema": _another_schema,
    "downgrade": lambda table: table.downgrade(6),
}


@pytest.mark.full
@pytest.mark.parametrize("kind", ["cow", pytest.param("mor", marks=pytest.mark.wide)])
def test_reader_sees_every_change_of_the_table(kind: str, tmp_path: Path) -> None:
    table = made(tmp_path / "t", kind)
    reader = Table(table.uri)
    check(reader, table.uri)
    with warnings.catch_warnings():
        # A reader that relies on missing files warns, and lists directories.
        warnings.simplefilter("error", RuntimeWarning)
        for change, carry_out in CHANGES.items():
            carry_out(Table(table.uri, options=OPTIONS))
            assert seen(reader) == seen(Table(table.uri)), change


def test_reader_that_ignores_the_listing_misses_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail: a reader that uses its state regardless of the listing is detected."""
    table = made(tmp_path / "t")
    reader = Table(table.uri)
    before = seen(reader)
    monkeypatch.setattr(_CachedSnapshot, "is_current", lambda self, context: True)
    CHANGES["overwrite"](table)
    now = seen(Table(table.uri))
    assert now != before
    assert seen(reader) != now


def test_partition_metadata_is_checked_by_each_read(tmp_path: Path) -> None:
    """No instant shows that a partition's metadata file was removed or restored."""
    table = made(tmp_path / "t")
    table.drop_metadata_table()
    reader = Table(table.uri)
    before = seen(reader)
    storage = table.context.storage
    path = f"p1/{PARTITION_METADATA_FILE}"
    document = storage.read(path) or b""
    storage.delete([path])
    assert seen(reader) == seen(Table(table.uri)) != before
    storage.put(path, document)
    assert seen(reader) == before


def test_a_pending_write_and_its_rollback_are_seen(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    reader = Table(table.uri)
    check(reader, table.uri)
    newest = table.timeline().completed_writes()[-1]
    table.upsert(rows(range(5), 8))
    check(reader, table.uri)
    undone = table.timeline().completed_writes()[-1]
    assert undone != newest
    os.remove(tmp_path / "t" / ".hoodie" / "timeline" / undone.file_name(table.context.timeline.layout))
    table.rollback(undone.request_time)
    check(reader, table.uri)
    assert reader.scan(filter="ts = 8").count() == 0


def test_table_recreated_with_equal_instant_times_is_noticed(tmp_path: Path) -> None:
    """Names of its instants are the same; the times of the files are not."""
    first = made(tmp_path / "t", environment=ReplayEnvironment(5))
    names = [instant.request_time for instant in first.timeline().instants]
    reader = Table(first.uri)
    assert reader.scan().to_arrow().num_rows == 30
    shutil.rmtree(tmp_path / "t")
    second = Table.create(
        tmp_path / "t", record_key="id", partition_by="part", ordering="ts", options=OPTIONS, environment=ReplayEnvironment(5)
    )
    second.bulk_insert(rows(range(30), 1))
    assert [instant.request_time for instant in second.timeline().instants] == names
    assert set(reader.scan().to_arrow()["ts"].to_pylist()) == {1}
    check(reader, second.uri)


def test_properties_that_were_replaced_are_seen(tmp_path: Path) -> None:
    """The timeline has no instant for what another program writes into them."""
    table = made(tmp_path / "t")
    reader = Table(table.uri)
    check(reader, table.uri)
    context = table.context.reloaded()
    state = SnapshotCache()
    first = state.snapshot(context)
    other = replace(context, config=replace(context.config, metadata_partitions=("files",)))
    assert state.snapshot(other).config.metadata_partitions == ("files",)
    assert first.config.metadata_partitions != ("files",)


def test_definitions_that_were_replaced_are_seen(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    reader = Table(table.uri)
    check(reader, table.uri)
    document = next((tmp_path / "t" / ".hoodie" / ".index_defs").glob("*.json"))
    text = document.read_text()
    assert '"value"' in text
    document.write_text(text.replace('"value"', '"other"'))
    steps = str(reader.scan(filter="value >= 5000").explain())
    assert steps == str(Table(table.uri).scan(filter="value >= 5000").explain())
    document.write_text(text)
    assert str(reader.scan(filter="value >= 5000").explain()) != steps


def test_metadata_files_removed_by_its_services_are_not_read(tmp_path: Path) -> None:
    """Its compaction and cleaning come after the commit, and change nothing on the table's own timeline."""
    table = made(tmp_path / "t")
    reader = Table(table.uri)
    context = reader.context.reloaded()
    assert reader.scan(filter="ts >= 1").count() == 0
    snapshot = reader._open.snapshot_cache.snapshot(context)
    assert isinstance(snapshot.listing, MetadataListing) and snapshot.listing.metadata is not None
    timeline = tmp_path / "t" / ".hoodie" / "metadata" / ".hoodie" / "timeline"
    newest = max(timeline.glob("*.deltacommit"))
    os.utime(newest, (1, 1))
    again = reader._open.snapshot_cache.snapshot(context)
    assert again.listing is not snapshot.listing
    assert reader._open.snapshot_cache.snapshot(context).listing is again.listing


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_read_of_an_unchanged_table_requests_only_properties_and_listings(kind: str, tmp_path: Path) -> None:
    table = made(tmp_path / "t", kind)
    table.upsert(rows(range(5), 1))
    storage = FaultyStorage(table.context.storage)
    reader = Table(table.uri)
    reader._open.context = replace(reader.context, storage=storage)
    condition = "value >= 1000 and ts = 1"
    first = reader.scan(filter=condition)
    cold = Counter(call.operation for call in storage.calls)
    again = reader.scan(filter=condition)
    asked = Counter(call.operation for call in storage.calls) - cold
    assert asked == {"read": 2, "list": 2}
    assert cold.total() > 2 * asked.total()
    assert again.explain() == first.explain()


def test_snapshot_with_large_listings_is_not_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(tmp_path / "t")
    context = table.context.reloaded()
    state = SnapshotCache()
    monkeypatch.setattr(kept_module, "MAX_LISTING_BYTES", 0)
    first = state.snapshot(context)
    first.slices()
    assert state.snapshot(context).listing is not first.listing
    monkeypatch.setattr(kept_module, "MAX_REPLACED", -1)
    state = SnapshotCache()
    state.snapshot(context)
    assert state._cached is None


def test_cached_metadata_lookups_are_bounded(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    metadata = MetadataTable(table.context.reloaded(), table.timeline())
    answer = pa.table({"bytes": [bytes(1 << 20)]})
    found = [0]

    def find() -> pa.Table:
        found[0] += 1
        return answer

    for number in range(40):
        metadata.cached((number,), find)
    metadata.cached((39,), find)
    assert found == [40]
    metadata.cached((0,), find)
    assert found == [41]


def test_snapshot_with_a_failed_metadata_table_is_not_cached(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    reader = Table(table.uri)
    for file in (tmp_path / "t" / ".hoodie" / "metadata" / "files").iterdir():
        file.write_bytes(b"")
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match="listing directories"):
            assert reader.scan(filter="ts >= 0").count() == 30


def test_pickled_table_has_an_empty_cache(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.scan(filter="value > 3")
    assert table._open.snapshot_cache._cached is not None
    arrived = pickle.loads(pickle.dumps(table))
    assert arrived._open.snapshot_cache._cached is None
    check(arrived, table.uri)


def test_forked_process_loads_its_own_snapshot(tmp_path: Path) -> None:
    """Locks of the state may be held by a thread that the child does not have."""
    table = made(tmp_path / "t")
    table.scan(filter="value > 3")
    state = table._open.snapshot_cache._cached
    assert state is not None and isinstance(state.snapshot.listing, MetadataListing)
    metadata = state.snapshot.listing.metadata
    assert metadata is not None
    with metadata._cached_lookups._lock, metadata._files._contents._lock, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            os._exit(0 if table.scan(filter="value > 3").count() == 26 else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.full
def test_concurrent_readers_see_every_acknowledged_commit(tmp_path: Path) -> None:
    table = made(tmp_path / "t", "mor")
    reader, acknowledged, wrong = Table(table.uri), [0], list[str]()
    done = threading.Event()

    def read() -> None:
        try:
            while not done.is_set():
                least = acknowledged[0]
                found = reader.scan(["ts"], filter="id = 'k003'").to_arrow()["ts"].to_pylist()
                if len(found) != 1 or found[0] < least:
                    wrong.append(f"{found} after {least}")
        except Exception as error:
            wrong.append(repr(error))

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for stamp in range(1, 7):
        table.upsert(rows(range(3, 5), stamp))
        acknowledged[0] = stamp
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong


def test_bounds_are_unwrapped_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(tmp_path / "t")
    reader = Table(table.uri)
    asked: list[int] = []

    def noting(bounds: pa.StructArray, column: pa.DataType) -> Any:
        asked.append(len(bounds))
        return unwrap(bounds, column)

    monkeypatch.setattr(data_skipping, "unwrap", noting)
    for stamp, limits in enumerate(((3, 5000, 12), (3, 1002))):
        table.upsert(rows(range(5), stamp))
        asked.clear()
        for limit in limits:
            condition = f"value >= {limit} and ts >= 0"
            found = reader.scan(filter=condition).to_arrow()
            # Two columns with two bounds each, of files and of partitions.
            assert len(asked) == 8
            everything = reader.scan(filter=condition, options={"hoodie.enable.data.skipping": "false"}).to_arrow()
            assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, everything.to_pylist()))
