"""Damaged log files of completed commits are reported by every reader and service."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.errors import CorruptData, HudiError
from pyhudi.format.instants import Action
from pyhudi.format.log.framing import LogBlock, encode_block
from pyhudi.format.names import parse_log_file
from pyhudi.storage import Storage, open_storage
from pyhudi.storage.environment import ReplayEnvironment
from pyhudi.table.file_slices import LogFile
from pyhudi.tasks.log_scan import read_headers

SMALL = {
    "hoodie.index.bloom.num_entries": 100,
    "hoodie.bloom.index.filter.type": "SIMPLE",
    "hoodie.parquet.small.file.limit": 0,
    "hoodie.compact.inline": False,
    "hoodie.clean.automatic": False,
    "hoodie.log.compaction.blocks.threshold": 2,
    "pyhudi.threads": 1,
}
_names = itertools.count()


def rows(numbers: range, value: int) -> pa.Table:
    return pa.table({"id": [f"k{n:02}" for n in numbers], "ts": [value] * len(numbers), "v": [value + n for n in numbers]})


def create(uri: str, **options: object) -> Table:
    """A table whose one slice has three logs; that in the middle holds rows and deletes."""
    table = Table.create(
        uri, record_key="id", ordering="ts", table_type="mor", options={**SMALL, **options}, environment=ReplayEnvironment(5)
    )
    flagged = {"_hoodie_is_deleted": pa.array([False] * 20)}
    table.insert(with_columns(rows(range(20), 1), flagged))
    table.upsert(with_columns(rows(range(0, 12), 2), {"_hoodie_is_deleted": pa.array([False] * 12)}))
    table.upsert(with_columns(rows(range(8), 3), {"_hoodie_is_deleted": pa.array([n == 3 for n in range(8)])}))
    table.upsert(with_columns(rows(range(2), 4), {"_hoodie_is_deleted": pa.array([False] * 2)}))
    return table


def with_columns(table: pa.Table, columns: Mapping[str, pa.Array]) -> pa.Table:
    for name, values in columns.items():
        table = table.append_column(name, values)
    return table


def log_paths(storage: Storage) -> list[str]:
    found = [info.path for info in storage.walk("") if ".log." in info.path and not info.path.startswith(".hoodie")]
    return sorted(found, key=instant_of)


def instant_of(path: str) -> str:
    name = parse_log_file(path.rsplit("/", 1)[-1])
    assert name is not None
    return name.instant_time


def blocks_of(storage: Storage, path: str) -> list[LogBlock]:
    name, info = parse_log_file(path.rsplit("/", 1)[-1]), storage.stat(path)
    assert name is not None
    assert info is not None
    return [b for b in read_headers(storage, LogFile(path, name, info.size_bytes)) if isinstance(b, LogBlock)]


def in_half(storage: Storage, path: str, data: bytes) -> bytes:
    return data[: len(data) // 2]


def between_blocks(storage: Storage, path: str, data: bytes) -> bytes:
    return data[: blocks_of(storage, path)[0].end]


def to_nothing(storage: Storage, path: str, data: bytes) -> bytes:
    return b""


def zeros(storage: Storage, path: str, data: bytes) -> bytes:
    return data[:-200] + bytes(200)


def a_length(storage: Storage, path: str, data: bytes) -> bytes:
    return data[:13] + bytes([data[13] ^ 1]) + data[14:]


def a_value(storage: Storage, path: str, data: bytes) -> bytes:
    block = blocks_of(storage, path)[0]
    at = block.content_offset + block.content_size_bytes - 2
    return data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]


def its_instant(storage: Storage, path: str, data: bytes) -> bytes:
    return data.replace(instant_of(path).encode(), b"2" * 17, 1)


DAMAGE: dict[str, Callable[[Storage, str, bytes], bytes]] = {
    "cut in half": in_half,
    "cut between blocks": between_blocks,
    "cut to nothing": to_nothing,
    "zeros at the end": zeros,
    "a bit of a length": a_length,
    "a bit of a value": a_value,
    "the instant of a block": its_instant,
}
OPERATIONS: dict[str, Callable[[Table], object]] = {
    "snapshot": lambda table: table.scan().to_arrow(),
    "time travel": lambda table: table.scan(as_of=table.timeline().completed_writes()[-1].request_time).to_arrow(),
    "incremental": lambda table: table.incremental(table.timeline().completed_writes()[1].completion_time or "").to_arrow(),
    "changes": lambda table: table.changes().to_arrow(),
    "compaction": lambda table: table.compact(),
    "log compaction": lambda table: table.log_compact(),
    "clustering": lambda table: table.cluster(),
    "delete by filter": lambda table: table.delete(where="v >= 0"),
}


@pytest.mark.sample(5)
@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("place", ["local", "memory"])
@pytest.mark.parametrize("metadata", [True, False], ids=["metadata table", "directories"])
def test_every_reader_and_service_reports_damaged_logs(damage: str, place: str, metadata: bool, tmp_path: Path) -> None:
    uri = str(tmp_path / "t") if place == "local" else f"memory://damage-{next(_names)}/t"
    table = create(uri, **{"hoodie.metadata.enable": metadata, "hoodie.table.cdc.enabled": True})
    storage = open_storage(uri)
    path = log_paths(storage)[1]
    whole = storage.read(path) or b""
    assert len(blocks_of(storage, path)) == 2
    storage.put(path, DAMAGE[damage](storage, path, whole))
    before = {i for i in table.timeline().instants if i.action in (Action.COMMIT, Action.DELTACOMMIT, Action.REPLACECOMMIT)}
    for operation, act in OPERATIONS.items():
        try:
            act(table)
        except CorruptData as error:
            assert path.rsplit("/", 1)[-1] in str(error), operation
        else:
            raise AssertionError(f"{operation} passed the damage over")
        # A plan that could not be executed excludes other services from the slice.
        for pending in table.timeline().pending(Action.COMPACTION):
            table.unschedule_compaction(pending.request_time)
        for pending in table.timeline().pending(Action.CLUSTERING):
            table.unschedule_clustering(pending.request_time)
    # Base files alone do not need the logs.
    assert table.read_optimized().to_arrow().num_rows == 20
    after = {i for i in table.timeline().completed(Action.COMMIT, Action.DELTACOMMIT, Action.REPLACECOMMIT)}
    assert after <= before


@pytest.mark.parametrize("operation", ["incremental", "changes", "compaction", "clustering"])
def test_a_log_of_another_writer_that_was_cut_between_blocks(operation: str, tmp_path: Path) -> None:
    """Blocks without a checksum do not show it; a reader with the commit detects it by the size."""
    table = create(str(tmp_path / "t"), **{"hoodie.metadata.enable": False, "hoodie.table.cdc.enabled": True})
    storage = open_storage(str(tmp_path / "t"))
    path = log_paths(storage)[1]
    data = b""
    for block in blocks_of(storage, path):
        data += encode_block(
            block.kind, dict(block.headers), block.read_content(lambda offset, size: storage.read_range(path, offset, size))
        )
        storage.put(path, data)
        break
    with pytest.raises(CorruptData, match=r"shorter than its commit records|differs from the size in its commit"):
        OPERATIONS[operation](table)


def test_automatic_compaction_reports_damaged_logs() -> None:
    number = next(_names)
    table = create(f"memory://damage-{number}/t")
    storage = open_storage(f"memory://damage-{number}/t")
    path = log_paths(storage)[1]
    storage.put(path, in_half(storage, path, storage.read(path) or b""))
    compacting = {"hoodie.compact.inline": True, "hoodie.compact.inline.max.delta.commits": 1}
    data = with_columns(rows(range(50, 51), 9), {"_hoodie_is_deleted": pa.array([False])})
    with pytest.raises(HudiError) as caught:
        table.insert(data, options=compacting)
    assert isinstance(caught.value, CorruptData) or isinstance(caught.value.__cause__, CorruptData)
    assert not table.timeline().completed(Action.COMMIT)


def test_torn_logs_of_uncommitted_instants_are_skipped(tmp_path: Path) -> None:
    """The torn log of a writer that died next to whole ones: no timeline has its instant."""
    table = create(str(tmp_path / "t"), **{"hoodie.metadata.enable": False})
    storage = open_storage(str(tmp_path / "t"))
    seen = table.scan().to_arrow().sort_by("id")
    path = log_paths(storage)[1]
    torn = (storage.read(path) or b"")[:300]
    storage.put(path.replace(instant_of(path), "20991231235959999"), torn)
    assert table.scan().to_arrow().sort_by("id") == seen
    table.compact()
    assert table.scan().to_arrow().sort_by("id") == seen


def test_a_completed_commit_without_content_is_reported(tmp_path: Path) -> None:
    options = {"hoodie.metadata.enable": False, "hoodie.table.cdc.enabled": True}
    table = Table.create(tmp_path / "t", record_key="id", options=options)
    results = [table.upsert(rows(range(number, number + 1), number)) for number in range(3)]
    timeline = tmp_path / "t" / table.config.timeline_path
    next(timeline.glob(f"{results[1].instant}*.commit")).write_bytes(b"")
    table = Table(tmp_path / "t")
    assert table.count() == 3
    reads: list[Callable[[], object]] = [
        lambda: table.incremental(after="0").to_arrow(),
        lambda: table.changes(after="0").to_arrow(),
    ]
    for read in reads:
        with pytest.raises(CorruptData, match=rf"completed commit has 0 bytes.*{results[1].instant}"):
            read()
    assert table.incremental(after=results[1]).count() == 1
    report = table.validate()
    assert [(finding.severity.value, str(results[1].instant) in (finding.path or "")) for finding in report.findings] == [
        ("error", True)
    ]
    overwritten = table.insert_overwrite(rows(range(5, 6), 5))
    next(timeline.glob(f"{overwritten.instant}*.replacecommit")).write_bytes(b"")
    # Which file groups it replaced is unknown.
    with pytest.raises(CorruptData, match="completed commit has 0 bytes"):
        Table(tmp_path / "t").count()
