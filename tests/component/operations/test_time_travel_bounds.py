"""Time travel uses request times; a time before the first commit is an error."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import pyhudi as hp
from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
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
