from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from pyhudi.errors import SnapshotOutdated, TableState
from pyhudi.format.instants import Action, Instant, State
from pyhudi.format.table_versions import TimelineLayout
from pyhudi.storage import Storage, open_storage
from pyhudi.storage.environment import ReplayEnvironment
from pyhudi.storage.memory import MemoryStorage
from pyhudi.table.timeline.archived_timeline import HistoryStore
from pyhudi.table.timeline.timeline_store import TimelineStore, next_instant_time

FOLDER = ".hoodie/timeline"
_names = itertools.count()


def store(storage: Storage | None = None, layout: TimelineLayout = TimelineLayout.V2, folder: str = FOLDER) -> TimelineStore:
    storage = storage or open_storage(f"memory://timeline-{next(_names)}")
    return TimelineStore(storage, folder, layout, UTC, HistoryStore(storage, f"{folder}/history"))


def names(timeline: TimelineStore) -> list[str]:
    return [info.name for info in timeline.storage.list(timeline.folder).files]


def test_from_requested_to_completed() -> None:
    timeline = store()
    instant = timeline.request("010", Action.COMMIT, b"asked")
    timeline.start(instant, b"begun")
    timeline.complete(instant, Action.COMMIT, "020", b"done")
    assert names(timeline) == ["010.commit.requested", "010.inflight", "010_020.commit"]
    (found,) = timeline.load().instants
    assert found == Instant("010", Action.COMMIT, State.COMPLETED, "020")
    assert timeline.read(found) == b"done"
    assert timeline.read_state("010", Action.COMMIT, State.INFLIGHT) == b"begun"
    assert timeline.read_state("011", Action.COMMIT, State.INFLIGHT) is None
    timeline.remove_completed(found)
    assert timeline.load().instants[0].state is State.INFLIGHT
    with pytest.raises(SnapshotOutdated, match="is missing"):
        timeline.read(found)


def test_nothing_is_done_twice() -> None:
    timeline = store()
    instant = timeline.request("010", Action.CLEAN, b"1")
    timeline.start(instant)
    timeline.complete(instant, Action.CLEAN, "020", b"1")
    second: tuple[Callable[[], object], ...] = (
        lambda: timeline.request("010", Action.CLEAN, b"2"),
        lambda: timeline.start(instant, b"2"),
        lambda: timeline.complete(instant, Action.CLEAN, "020", b"2"),
    )
    for again in second:
        with pytest.raises(TableState, match="exists already"):
            again()
    timeline.start_or_join(instant)
    assert timeline.read_state("010", Action.CLEAN, State.REQUESTED) == b"1"


def test_pending_states_go_inflight_first() -> None:
    timeline = store()
    instant = timeline.request("010", Action.COMPACTION, b"plan")
    timeline.start(instant)
    timeline.remove_pending("010", Action.COMPACTION, State.INFLIGHT)
    assert names(timeline) == ["010.compaction.requested"]
    timeline.remove_pending("010", Action.COMPACTION)
    timeline.remove_pending("010", Action.COMPACTION)
    assert names(timeline) == []


def test_other_files_are_no_instants() -> None:
    timeline = store()
    for name in ("history/manifest_1", "010.commit.crc", "readme.md", "x.commit", "010_020.commit.inflight"):
        timeline.storage.put(f"{FOLDER}/{name}", b"")
    assert timeline.load().instants == ()


def test_a_missing_folder_is_no_empty_timeline(tmp_path: Path) -> None:
    storage = open_storage(tmp_path)
    timeline = store(storage)
    with pytest.raises(TableState, match=r"folder .* is missing"):
        timeline.load()
    storage.make_folder(FOLDER)
    assert timeline.load().instants == ()


def test_before_layout_2_a_file_completes_when_it_was_written() -> None:
    env = ReplayEnvironment(1, 1_767_225_600_123)
    storage = MemoryStorage(f"memory://timeline-{next(_names)}", env)
    timeline = store(storage, TimelineLayout.V1, ".hoodie")
    storage.put(".hoodie/20251231000000000.commit", b"{}")
    storage.put(".hoodie/hoodie.properties", b"")
    (found,) = timeline.load().instants
    assert found.completion_time == "20260101000000123"
    # A table that was upgraded keeps such files.
    upgraded = store(storage)
    storage.put(f"{FOLDER}/20251231000000000.commit", b"{}")
    (found,) = upgraded.load().instants
    assert (found.completion_time, found.is_legacy) == ("20260101000000123", True)
    assert upgraded.read(found) == b"{}"


def test_copied_layout_1_files_have_no_completion_times() -> None:
    env = ReplayEnvironment(1, 1_767_225_600_123)
    storage = MemoryStorage(f"memory://timeline-{next(_names)}", env)
    timeline = store(storage, TimelineLayout.V1, ".hoodie")
    times = ["20251231000000000", "20251231000000001", "20251231000000002"]
    for time in times:
        storage.put(f".hoodie/{time}.commit", b"{}")
    assert [i.completion_time for i in timeline.load().instants] == times
    # Here the first was complete when the last was requested: these are the files that were written then.
    storage.put(".hoodie/20261231000000000.commit.requested", b"")
    assert {i.completion_time for i in timeline.load().completed()} == {"20260101000000123"}


def test_instant_times_grow() -> None:
    env = ReplayEnvironment(1, 1_767_225_600_000)
    assert next_instant_time(env, UTC, "") == "20260101000000000"
    assert next_instant_time(env, UTC, "20251231235959999") == "20260101000000000"
    assert next_instant_time(env, UTC, "20260101000000000") == "20260101000000001"
    # The clock of another machine goes ahead of ours.
    assert next_instant_time(env, UTC, "20261231235959999") == "20270101000000000"
    assert next_instant_time(env, UTC, "00000000000001") == "20260101000000000"
    # Instants of the metadata table carry three more digits.
    assert next_instant_time(env, UTC, "20260101000000000010") == "20260101000000001"


def test_instant_times_grow_when_the_clock_is_put_back() -> None:
    zone = ZoneInfo("Europe/Berlin")
    moment = datetime(2026, 10, 25, 2, 30, tzinfo=zone, fold=1)
    env = ReplayEnvironment(1, int(moment.timestamp() * 1000))
    assert next_instant_time(env, zone, "20261025022959999") == "20261025023000000"
    assert next_instant_time(env, zone, "20261025025959999") == "20261025030000000"
