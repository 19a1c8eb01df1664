"""The history in its files: what is opened, what is found, and what is left at each step of adding to it."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable

import pyarrow.parquet as pq
import pytest

from pyhudi.errors import CorruptData
from pyhudi.format.instants import Action
from pyhudi.format.lsm_timeline import HistoryRow, Manifest, ManifestEntry, encode_history
from pyhudi.storage.fault_injection import FaultyStorage, StorageCall
from pyhudi.storage.memory import MemoryStorage
from pyhudi.table.timeline.archived_timeline import ArchivedCompletions, Bounds, HistoryStore

_names = itertools.count()
FOLDER = ".hoodie/timeline/history"


def row(time: int, action: str = "commit", lag: int = 5) -> HistoryRow:
    return HistoryRow(f"{time:03d}", f"{time + lag:03d}", action, f"done {time}".encode(), None)


def store() -> tuple[HistoryStore, FaultyStorage]:
    storage = FaultyStorage(MemoryStorage(f"memory://history-{next(_names)}"))
    return HistoryStore(storage, FOLDER), storage


def filled() -> tuple[HistoryStore, FaultyStorage]:
    history, storage = store()
    for first in (100, 200, 300):
        history.append([row(first), row(first + 10, "clean"), row(first + 20)], "snappy")
    return history, storage


def opened(storage: FaultyStorage, since: int) -> list[str]:
    return [call.path.rsplit("/", 1)[-1] for call in storage.calls[since:] if call.operation == "open_input"]


def test_an_empty_history() -> None:
    history, storage = store()
    assert history.is_empty() and list(history.rows()) == [] and history.find("100") is None
    assert len(ArchivedCompletions(history)) == 0
    none = HistoryStore(storage, "")
    calls = len(storage.calls)
    assert none.is_empty() and list(none.rows()) == [] and len(storage.calls) == calls


def test_a_lookup_opens_only_the_file_that_can_hold_it() -> None:
    history, storage = filled()
    since = len(storage.calls)
    found = history.find("220")
    assert found is not None and found.metadata == b"done 220"
    assert opened(storage, since) == ["200_220_0.parquet"]
    since = len(storage.calls)
    assert history.find("150") is None and history.find("210", Action.COMMIT) is None
    assert opened(storage, since) == ["200_220_0.parquet"]


def test_a_range_opens_files_that_span_it() -> None:
    # Apache Hudi looks at the ends of a file alone and passes one over that begins before the range and ends after it.
    history, _ = store()
    history.append([row(100), row(150), row(400)], "snappy")
    assert [r.instant_time for r in history.rows(Bounds("140", "160"))] == ["150"]


def test_documents_are_read_only_on_request() -> None:
    history, _ = filled()
    assert {r.metadata for r in history.rows()} == {None}
    assert [r.metadata for r in history.rows(Bounds("300", "300"), documents=True)] == [b"done 300"]
    assert [(i.request_time, i.action, i.completion_time) for i in history.instants(Bounds("290", "315"))] == [
        ("300", Action.COMMIT, "305"),
        ("310", Action.CLEAN, "315"),
    ]
    assert [i.request_time for i in history.instants(completed=Bounds("125", "206"))] == ["120", "200"]


def test_completions_are_lazy_and_contain_only_writes() -> None:
    history, storage = filled()
    completions = ArchivedCompletions(history)
    since = len(storage.calls)
    assert not storage.calls[since:]
    assert completions["100"] == "105" and completions["120"] == "125" and completions.get("110") is None
    assert opened(storage, since) == ["100_120_0.parquet"]
    assert completions.get("999") is None
    assert opened(storage, since) == ["100_120_0.parquet"]
    assert sorted(completions) == ["100", "120", "200", "220", "300", "320"] and len(completions) == 6


def test_the_first_of_two_rows_wins() -> None:
    history, _ = store()
    history.append([row(100), row(120)], "snappy")
    history.append([row(100, lag=9), row(130)], "snappy")
    assert {r.instant_time: r.completion_time for r in history.rows()} == {"100": "105", "120": "125", "130": "135"}
    assert ArchivedCompletions(history)["100"] == "105"


def test_equal_instants_are_archived_once_and_different_ones_of_equal_name_both() -> None:
    history, storage = store()
    history.append([row(100), row(120)], "snappy")
    writes = storage.write_count
    history.append([row(100), row(120)], "snappy")
    assert storage.write_count == writes
    history.append([row(100), row(110), row(120)], "snappy")
    assert sorted(r.instant_time for r in history.rows()) == ["100", "110", "120"]


def test_version_file_missing_unreadable_or_pointing_nowhere() -> None:
    history, storage = filled()
    for content in (None, b"", b"x", b"77"):
        storage.delete([f"{FOLDER}/_version_"])
        if content is not None:
            storage.put(f"{FOLDER}/_version_", content)
        assert history.load_manifest().number == 3
        assert len(list(history.rows())) == 9
    # Files that no manifest names are not read, and a manifest above the version file's is what a dead writer left.
    storage.put(f"{FOLDER}/_version_", b"2")
    assert len(list(history.rows())) == 6
    history.append([row(400)], "snappy")
    assert history.load_manifest().number == 4
    assert sorted({r.instant_time[0] for r in history.rows()}) == ["1", "2", "4"]


def test_merge_and_clean() -> None:
    history, storage = filled()
    before = sorted(history.rows(documents=True), key=lambda r: r.instant_time)
    loaded = history.load_manifest()
    merged = history.merge(loaded.manifest.files[:2], "100_220_1.parquet", "zstd")
    assert merged.size_bytes == storage.stat(f"{FOLDER}/100_220_1.parquet").size_bytes  # type: ignore[union-attr]
    history.store_manifest(Manifest((loaded.manifest.files[2], merged)), loaded.number)
    assert sorted(history.rows(documents=True), key=lambda r: r.instant_time) == before
    history.clean()
    names = {info.name for info in storage.list(FOLDER).files}
    # Three manifests are kept, and with them the files that the older two name.
    assert {"manifest_2", "manifest_3", "manifest_4", "_version_", "100_120_0.parquet", "100_220_1.parquet"} <= names
    assert "manifest_1" not in names
    for first in (400, 500, 600):
        history.append([row(first)], "snappy")
    storage.put(f"{FOLDER}/900_910_0.parquet", b"left by a writer that died")
    history.clean()
    names = {info.name for info in storage.list(FOLDER).files}
    assert not {"100_120_0.parquet", "200_220_0.parquet", "900_910_0.parquet", "manifest_3"} & names
    assert len(list(history.rows())) == 12


READS: dict[str, Callable[[HistoryStore], object]] = {
    "one completion": lambda history: ArchivedCompletions(history)["220"],
    "all completions": lambda history: sorted(ArchivedCompletions(history)),
    "instants": lambda history: history.instants(),
    "documents": lambda history: history.find("220"),
    "emptiness": lambda history: history.is_empty(),
}


@pytest.mark.parametrize("read", READS)
def test_files_that_are_merged_and_deleted_between_two_calls_of_a_reader(read: str) -> None:
    def merge_all(history: HistoryStore) -> None:
        loaded = history.load_manifest()
        inputs = loaded.manifest.files
        merged = history.merge(inputs, "100_320_1.parquet", "zstd")
        history.store_manifest(Manifest((merged,)), loaded.number)
        for name in ("manifest_1", "manifest_2", "manifest_3", *(entry.file_name for entry in inputs)):
            history.storage.delete([f"{FOLDER}/{name}"])

    history, storage = filled()
    since = len(storage.calls)
    expected = READS[read](history)
    for at in range(1, len(storage.calls) - since + 1):
        history, inner = filled()

        def watch(number: int, call: StorageCall, at: int = at, history: HistoryStore = history) -> None:
            if number == at:
                merge_all(history)

        watched = HistoryStore(FaultyStorage(inner, listener=watch), FOLDER)
        assert READS[read](watched) == expected, at


def test_files_of_another_writer() -> None:
    history, storage = store()
    table = pq.read_table(io.BytesIO(encode_history([row(100), row(120)]))).drop_columns(["version", "plan"])
    sink = io.BytesIO()
    pq.write_table(table, sink)
    data = sink.getvalue()
    storage.put(f"{FOLDER}/120_100_0.parquet", data)
    storage.put(f"{FOLDER}/manifest_1", Manifest((ManifestEntry("120_100_0.parquet", len(data)),)).encode())
    found = history.find("110")
    assert found is None
    found = history.find("120")
    assert found is not None and found.version == 1 and found.metadata == b"done 120"
    merged = history.merge(history.load_manifest().manifest.files, "100_120_1.parquet", "snappy")
    assert merged.size_bytes > 0


def test_damage_names_the_file() -> None:
    history, storage = filled()
    storage.put(f"{FOLDER}/200_220_0.parquet", b"PAR1 not really PAR1")
    with pytest.raises(CorruptData, match="200_220_0"):
        history.find("220")
    assert history.find("100") is not None
    storage.put(f"{FOLDER}/manifest_3", b"[")
    with pytest.raises(CorruptData, match="manifest_3"):
        history.load_manifest()
