"""Histories of 100,000 instants, intact and damaged: cost and errors of opening, reading and writing."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import CorruptData, TableState
from pyhudi.format.lsm_timeline import HistoryRow, Manifest, ManifestEntry
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.storage.environment import ReplayEnvironment
from pyhudi.storage.fault_injection import FaultyStorage
from pyhudi.storage.memory import forget_memory
from pyhudi.table.table_context import TableContext

OPTIONS = {
    "hoodie.index.bloom.num_entries": "100",
    "hoodie.metadata.enable": "false",
    "hoodie.parquet.small.file.limit": "0",
}
FEW = {"hoodie.keep.min.commits": "3", "hoodie.keep.max.commits": "4", "hoodie.clean.commits.retained": "1"}
HISTORY = ".hoodie/timeline/history"


def rows(batch: int) -> pa.Table:
    return pa.table({"id": ["a", "b"], "ts": pa.array([batch] * 2, pa.int64())})


def table_with_commits(name: str, writes: int, table_type: str = "cow", **options: str) -> tuple[Table, ReplayEnvironment]:
    forget_memory(name)
    environment = ReplayEnvironment(5)
    table = Table.create(
        f"memory://{name}",
        record_key="id",
        ordering="ts",
        table_type=table_type,
        environment=environment,
        options={**OPTIONS, **options},
    )
    for batch in range(writes):
        environment.advance_ms(1000)
        table.upsert(rows(batch))
    return table, environment


def watched(table: Table) -> tuple[TableContext, FaultyStorage]:
    storage = FaultyStorage(table.context.storage)
    return replace(table.context, storage=storage), storage


def in_history(storage: FaultyStorage) -> list[str]:
    return [call.path for call in storage.calls if "/history/" in call.path]


@pytest.mark.sample(1)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_long_history_costs_nothing(table_type: str) -> None:
    table, environment = table_with_commits(f"long-{table_type}", 3, table_type)
    history = table.context.timeline.history
    days = [f"20{year:02d}{month:02d}{day:02d}" for year in range(10, 22) for month in range(1, 13) for day in range(1, 29)]
    times = (f"{day}{hour:02d}" for day in days for hour in range(24))
    every = [HistoryRow(f"{time}0000000", f"{time}0000001", "commit", b"") for time in times][:100_000]
    assert len(every) > 95_000
    for start in range(0, len(every), 10_000):
        history.append(every[start : start + 10_000], "snappy")
    context, storage = watched(table)
    write = WriteSettings.of(parse_options({**OPTIONS, "hoodie.archive.automatic": "false"}), WriteOperation.UPSERT)
    environment.advance_ms(1000)
    result = run_write(context, LocalEngine(1), rows(9), write)
    assert result.rows_updated == 2
    assert set(table.scan(["ts"]).to_arrow()["ts"].to_pylist()) == {9}
    assert in_history(storage) == []
    # One of 100,000 is looked up in one file of ten.
    found = context.timeline.history.find(every[55_555].instant_time)
    assert found is not None
    opened = [call.path for call in storage.calls if call.operation == "open_input" and "/history/" in call.path]
    assert len(opened) == 1


def damaged(name: str) -> Table:
    table, _ = table_with_commits(name, 12, **FEW)
    assert not table.context.timeline.history.is_empty()
    return table


def test_a_manifest_that_names_a_missing_file() -> None:
    table = damaged("missing-file")
    history = table.context.timeline.history
    manifest = history.load_manifest().manifest
    storage = table.context.storage
    victim = manifest.files[0].file_name
    storage.delete([f"{HISTORY}/{victim}"])
    # Operations that do not need the past continue; others name the missing file.
    assert set(table.scan(["ts"]).to_arrow()["ts"].to_pylist()) == {11}
    table.upsert(rows(20), options={"hoodie.archive.automatic": "false"})
    with pytest.raises((CorruptData, TableState), match=victim):
        list(history.rows())
    with pytest.raises((CorruptData, TableState), match=victim):
        table.incremental("earliest").to_arrow()
    before = {info.path for info in storage.walk(HISTORY)}
    with pytest.raises((CorruptData, TableState), match=victim):
        table.archive(options={"hoodie.timeline.compaction.batch.size": "2"})
    assert before <= {info.path for info in storage.walk(HISTORY)}
    assert set(table.scan(["ts"]).to_arrow()["ts"].to_pylist()) == {20}


@pytest.mark.parametrize("keep", [0, 3, 100, -8])
def test_a_torn_history_file(keep: int) -> None:
    table = damaged(f"torn-{keep}")
    storage = table.context.storage
    victim = table.context.timeline.history.load_manifest().manifest.files[0].file_name
    data = storage.read(f"{HISTORY}/{victim}")
    assert data is not None
    storage.put(f"{HISTORY}/{victim}", data[:keep])
    assert set(table.scan(["ts"]).to_arrow()["ts"].to_pylist()) == {11}
    with pytest.raises(CorruptData, match=victim):
        table.incremental("earliest").to_arrow()
    table.upsert(rows(20), options={"hoodie.archive.automatic": "false"})
    assert set(table.scan(["ts"]).to_arrow()["ts"].to_pylist()) == {20}


@pytest.mark.sample(2)
@pytest.mark.parametrize("content", [None, b"", b"0", b"behind", b"999", b"-3", b"\xff\xfe"])
def test_a_version_file_behind_ahead_or_unreadable(content: bytes | None) -> None:
    table = damaged(f"version-{content!r}")
    storage = table.context.storage
    known = {(row.instant_time, row.action) for row in table.context.timeline.history.rows()}
    newest = table.context.timeline.history.load_manifest().number
    if content is None:
        storage.delete([f"{HISTORY}/_version_"])
    else:
        storage.put(f"{HISTORY}/_version_", str(newest - 1).encode() if content == b"behind" else content)
    assert set(table.scan(["ts"]).to_arrow()["ts"].to_pylist()) == {11}
    if content == b"behind":
        # The manifest that it names is there; archiving on from it would lose what newer ones name.
        with pytest.raises(
            TableState, match=r"names manifest \d+, but manifest \d+ contains instants that are stored nowhere else"
        ):
            table.archive(options={"hoodie.keep.min.commits": "2", "hoodie.keep.max.commits": "3"})
        storage.put(f"{HISTORY}/_version_", str(newest).encode())
    for batch in range(20, 26):
        table.upsert(rows(batch))
    assert set(table.scan(["ts"]).to_arrow()["ts"].to_pylist()) == {25}
    assert known <= {(row.instant_time, row.action) for row in table.context.timeline.history.rows()}


def test_manifest_entry_with_a_wrong_size_or_a_duplicate() -> None:
    table = damaged("lies")
    history = table.context.timeline.history
    loaded = history.load_manifest()
    known = {row.instant_time for row in history.rows()}
    first = loaded.manifest.files[0]
    history.store_manifest(Manifest((ManifestEntry(first.file_name, 1), *loaded.manifest.files)), loaded.number)
    assert {row.instant_time for row in history.rows()} == known
    assert len(list(history.rows())) == len(known)
