"""The next writer or service distinguishes files of crashed processes from those of running ones."""

from __future__ import annotations

import os
import uuid
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.format.instants import INIT_INSTANT_TIME, Action
from pyhudi.metadata_table.writer.metadata_store import MetadataStore
from pyhudi.operations.commit.orphan_cleanup import sweep_side_files
from pyhudi.operations.services.archive import ArchiveSettings, run_archive
from pyhudi.operations.services.clean import CleanSettings, run_clean
from pyhudi.options.supported import parse_options
from pyhudi.storage import open_storage
from pyhudi.storage.fault_injection import Fault, FaultPoint, FaultyStorage, StorageCall
from pyhudi.storage.heartbeats import delete_heartbeat
from pyhudi.storage.markers import marked_instants
from pyhudi.storage.process_identity import Process
from pyhudi.table.table_context import TableContext
from tests.simulation.tables import World, killed

OPTIONS = {
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
    "hoodie.compact.inline": False,
    "hoodie.clean.commits.retained": 1,
}


def clean(run: World, context: TableContext) -> object:
    return run_clean(context, CleanSettings.of(parse_options(run.options)))


def world_with_commits(**options: object) -> World:
    world = World("cow", {**OPTIONS, **options})
    for number in range(3):
        world.upsert({f"k{key}": number * 100 + key for key in range(4)})
    return world


def deletion(world: World) -> int:
    """The number of the call at which a clean begins to delete data files."""
    context, storage = world.copy().context()
    clean(world, context)
    writes = [call for call in storage.calls if call.writes]
    return next(n for n, call in enumerate(writes, 1) if call.operation == "delete" and call.path.endswith(".parquet"))


def test_failed_clean_of_pyhudi_is_finished_at_once() -> None:
    world = world_with_commits()
    run = killed(world, clean, Fault(deletion(world), FaultPoint.DURING))
    assert len(run.table.clean(dry_run=False).finished) == 1
    assert run.scanned() == run.rows


def test_clean_that_may_be_running_is_not_finished_by_another() -> None:
    """Apache Hudi's cleans give no sign of life; after a long time they are taken for dead."""
    world = world_with_commits()
    run = killed(world, clean, Fault(deletion(world), FaultPoint.DURING))
    pending = run.table.timeline().pending(Action.CLEAN)[0]
    delete_heartbeat(open_storage(run.uri), pending.request_time)
    run.environment.advance_ms(600_000)
    found = run.table.clean(dry_run=False)
    assert (found.finished, found.instant) == ((), None)
    run.upsert({"k1": 1001})
    assert run.scanned() == run.rows
    run.environment.advance_ms(3_600_000)
    assert run.table.clean(dry_run=False).finished == (pending.request_time,)
    assert run.scanned() == run.rows


def test_running_clean_of_pyhudi_is_not_finished_by_another() -> None:
    world = world_with_commits()
    at = deletion(world)
    others: list[tuple[str, ...]] = []

    def watch(_: int, call: StorageCall) -> None:
        if storage.write_count == at and call.writes:
            others.append(world.table.clean(dry_run=False).finished)

    context = world.table.context
    storage = FaultyStorage(context.storage, listener=watch)
    clean(world, replace(context, storage=storage))
    assert others == [()]
    assert not world.table.timeline().pending()
    assert world.scanned() == world.rows


def test_spilled_files_of_a_failed_write_do_not_block_metadata_table_services() -> None:
    world = world_with_commits(**{"hoodie.metadata.enable": True})
    for number in range(4):
        world.upsert({"k1": number})
    context = world.table.context
    dead = int(world.table.timeline().completed_writes()[0].request_time) - 1
    left = f".hoodie/metadata/.hoodie/.temp/{dead}/x.keys.arrow"
    context.storage.put(left, b"keys")
    store = MetadataStore.open(context)
    small = {"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3, "hoodie.clean.commits.retained": 1}
    settings = ArchiveSettings.of(parse_options(small))
    assert run_archive(store.context, settings, data_table=context.timeline).instants
    assert context.storage.read(left) is None
    world.upsert({"k1": 7})
    assert world.scanned() == world.rows


def test_spilled_files_of_active_writers_are_kept() -> None:
    world = world_with_commits(**{"hoodie.metadata.enable": True})
    table = world.table.context
    metadata = MetadataStore.open(table).context
    completed, dead = world.table.timeline().completed_writes()[0].request_time, "20200101000000000"
    building, begun, compacting = f"{INIT_INSTANT_TIME}007", "20990101000000001", "20990101000000002"
    metadata.timeline.request(compacting, Action.COMPACTION)

    def spill_keys(instant_time: str) -> None:
        metadata.storage.put(f".hoodie/.temp/{instant_time}/x.keys.arrow", b"keys")

    def begin_a_write(_: int, call: StorageCall) -> None:
        if call.operation == "list" and call.path.endswith("/.temp"):
            table.timeline.request(begun, Action.COMMIT)
            spill_keys(begun)

    def left() -> set[str]:
        return set(marked_instants(metadata.storage))

    for instant_time in (completed, dead, building, compacting):
        spill_keys(instant_time)
    indexing = table.timeline.request("20990101000000000", Action.INDEXING)
    watched = replace(metadata, storage=FaultyStorage(metadata.storage, listener=begin_a_write))
    assert sweep_side_files(watched, table.timeline) == 1
    assert left() == {completed, building, begun, compacting}
    table.timeline.remove_pending(indexing.request_time, Action.INDEXING)
    assert sweep_side_files(metadata, table.timeline) == 1
    assert left() == {completed, begun, compacting}


@pytest.mark.parametrize("left_beside", ["heartbeat", "markers"])
def test_temporary_files_of_killed_writers_are_deleted(tmp_path: Path, left_beside: str) -> None:
    table = Table.create(str(tmp_path), record_key="id")
    table.upsert(pa.table({"id": [1]}))
    dead, alive = replace(Process.current(), started=1), Process.current()
    kept = []
    for place in (".hoodie", ".hoodie/timeline", ".hoodie/.locks", ".hoodie/.heartbeat", ".hoodie/metadata/files"):
        for process in (dead, alive):
            path = tmp_path / place / f".pyhudi-{process.text}-{uuid.uuid4()}.tmp"
            path.parent.mkdir(exist_ok=True)
            path.touch()
            if process is alive:
                kept.append(path)
    folder = tmp_path / ".hoodie" / (".heartbeat" if left_beside == "heartbeat" else ".temp/20260101000000000")
    folder.mkdir(exist_ok=True, parents=True)
    if left_beside == "heartbeat":
        (folder / "20260101000000000").touch()
        os.utime(folder / "20260101000000000", (0, 0))
    table.upsert(pa.table({"id": [2]}))
    assert sorted(tmp_path.rglob(".pyhudi-*.tmp")) == sorted(kept)
