"""Early conflict detection on Spark: a task of the younger write stops at a marker of the older one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from pyhudi import Table
from pyhudi.engines.spark.engine import SparkEngine
from pyhudi.errors import WriteConflict
from pyhudi.format.instants import Action
from pyhudi.format.names import MarkerType
from pyhudi.operations.write.write_rows import run_write
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings
from pyhudi.options.supported import parse_options
from pyhudi.storage.heartbeats import heartbeat_path
from pyhudi.storage.markers import Markers
from tests.support.paused_write import PausedWrite

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTIONS = {
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "hoodie.write.concurrency.early.conflict.detection.enable": "true",
    "hoodie.write.num.retries.on.conflict.failures": "0",
    "hoodie.clean.automatic": "false",
}


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_task_stops_at_the_marker_of_an_older_write(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    table = Table.create(tmp_path / "t", record_key="id", ordering="ts", table_type=kind, options=OPTIONS)
    table.insert(pa.table({"id": ["a", "b"], "ts": [1, 1]}))
    (stored,) = (path.name for path in (tmp_path / "t").glob("*.parquet"))
    timeline, storage = table.context.timeline, table.context.storage
    older = f"{int(table.timeline().latest_time()) + 1}"
    timeline.start(timeline.request(older, Action.COMMIT if kind == "cow" else Action.DELTACOMMIT))
    storage.put(heartbeat_path(older), b"")
    rows = spark.createDataFrame([("a", 2)], "id string, ts long")
    settings = WriteSettings.of(parse_options(OPTIONS), WriteOperation.UPSERT)
    write = PausedWrite(table.context, lambda context: run_write(context, SparkEngine(spark), rows, settings))
    # The driver has looked by now; its tasks look again.
    Markers(storage, older).create(f"{stored.split('_')[0]}_9-9-9_{older}.parquet", MarkerType.MERGE)
    before = {path.name for path in (tmp_path / "t").iterdir()}
    with pytest.raises(WriteConflict, match="failed before it wrote file group") as caught:
        write.finish()
    assert caught.value.in_progress == (older,)
    assert {path.name for path in (tmp_path / "t").iterdir()} == before
    assert {i.request_time for i in table.timeline().pending()} == {older}
