"""Time travel uses request times; a time before the first commit is an error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.storage.environment import ReplayEnvironment
from tests.support.paused_write import PausedWrite


def test_a_time_before_the_first_commit_is_refused(tmp_path: Path) -> None:
    table = hp.Table.create(tmp_path / "t", record_key="id", schema=pa.schema([("id", pa.int64())]))
    with pytest.raises(hp.InvalidRequest, match="it has no commits"):
        table.scan(as_of="2020-01-01").to_arrow()
    first = table.upsert(pa.table({"id": [1]})).instant
    table.upsert(pa.table({"id": [2]}))
    with pytest.raises(hp.InvalidRequest, match=f"its first commit is {first}"):
        table.scan(as_of="2020-01-01").to_arrow()
    with pytest.raises(hp.InvalidRequest, match=f"its first commit is {first}"):
        hp.sql(f"SELECT * FROM hudi.`{table.uri}` TIMESTAMP AS OF '2020-01-01'")
    assert table.scan(as_of=first).count() == 1


def test_the_first_commit_may_be_archived(tmp_path: Path) -> None:
    table = hp.Table.create(tmp_path / "t", record_key="id")
    options = {
        "hoodie.keep.min.commits": 2,
        "hoodie.keep.max.commits": 3,
        "hoodie.clean.automatic": False,
        "hoodie.metadata.enable": False,
    }
    instants = [table.upsert(pa.table({"id": [number]}), options=options).instant for number in range(8)]
    table.archive(options={"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3})
    assert table.timeline().start != instants[0]
    with pytest.raises(hp.InvalidRequest, match=f"its first commit is {instants[0]}"):
        table.scan(as_of="2020-01-01").to_arrow()
    assert table.scan(as_of=instants[1]).count() == 2


def test_a_write_counts_from_its_request_time(tmp_path: Path) -> None:
    table = hp.Table.create(tmp_path / "t", record_key="id")
    table.upsert(pa.table({"id": [1]}))
    settings = WriteSettings.of(parse_options({}), WriteOperation.UPSERT)
    slow = PausedWrite(table.context, lambda context: run_write(context, LocalEngine(1), pa.table({"id": [2]}), settings))
    requested = table.timeline().pending_writes()[0].request_time
    with pytest.raises(hp.TableState, match="first incomplete commit"):
        table.scan(as_of=requested)
    slow.finish()
    done = table.timeline().find(requested)
    assert done.completion_time is not None and done.completion_time > requested
    # The write completed after this time, and is seen as of it.
    assert sorted(table.scan(as_of=requested).to_arrow()["id"].to_pylist()) == [1, 2]


@pytest.fixture
def set_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Set the time zone of this process."""

    def change(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield change
    monkeypatch.undo()
    time.tzset()


def test_now_means_the_latest_state_though_a_writer_was_in_another_zone(tmp_path: Path, set_zone: Callable[[str], None]) -> None:
    set_zone("UTC")
    env = ReplayEnvironment(9)
    hp.Table.create(tmp_path / "t", record_key="id")
    table = hp.Table(tmp_path / "t", environment=env)
    first = table.upsert([{"id": 1}])
    env.advance_ms(600_000)
    set_zone("Asia/Tokyo")
    second = table.upsert([{"id": 2}])
    set_zone("UTC")
    now = datetime.fromtimestamp(env.now_ms() / 1000, UTC)
    env.advance_ms(1_000)
    for as_of in (now, now + timedelta(hours=1), f"{now:%Y-%m-%d %H:%M:%S}"):
        assert table.scan(as_of=as_of).count() == 2
    assert table.scan(as_of=first).count() == 1
    assert table.scan(as_of=second).count() == 2
    with pytest.warns(RuntimeWarning, match=r"time zone UTC\): it was written in a time zone of at least UTC\+09:00"):
        assert table.scan(as_of=now - timedelta(minutes=5)).count() == 1
