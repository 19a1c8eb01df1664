"""Stream reader: checkpoints and limits, before any job runs."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

# PySpark 4.1 knows no limits.
pytest.importorskip("pyspark.sql.streaming.datasource")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxFiles

from pyhudi import Table
from pyhudi.engines.spark.data_source import HudiSource, _open_table, _packed_tasks
from pyhudi.engines.spark.stream_source import HudiStreamReader
from pyhudi.errors import InvalidRequest


def rows(keys: str, ts: int) -> pa.Table:
    return pa.table({"id": list(keys), "ts": pa.array([ts] * len(keys), pa.int32())})


def reader(path: Path, **options: str) -> Any:
    given = {"path": str(path), **{key.replace("_", "."): value for key, value in options.items()}}
    return HudiStreamReader(partial(_open_table, given), rows("a", 1).schema, _packed_tasks)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    table = Table.create(tmp_path / "t", name="t", record_key="id", ordering="ts")
    for ts, keys in enumerate(["ab", "bc", "d"]):
        table.upsert(rows(keys, ts))
    return tmp_path / "t"


def test_admission_limits_map_to_spark_read_limits(path: Path) -> None:
    assert isinstance(reader(path).getDefaultReadLimit(), ReadAllAvailable)
    assert reader(path, pyhudi_stream_max_bytes="7").getDefaultReadLimit() == ReadMaxBytes(7)
    assert reader(path, pyhudi_stream_max_files="3").getDefaultReadLimit() == ReadMaxFiles(3)
    one = reader(path, pyhudi_stream_max_instants="1")
    limit = one.getDefaultReadLimit()
    assert isinstance(limit, ReadMaxFiles)
    first = one.latestOffset(one.initialOffset(), limit)
    assert first != one.latestOffset(first, limit)
    # A trigger that requests everything gets everything.
    assert one.latestOffset(one.initialOffset(), ReadAllAvailable()) == one.reportLatestOffset()


def test_stream_batch_read_again_returns_the_same_rows(path: Path) -> None:
    one = pickle.loads(pickle.dumps(reader(path, pyhudi_stream_max_instants="1")))
    start = one.initialOffset()
    end = one.latestOffset(start, one.getDefaultReadLimit())

    def read() -> list[dict[str, Any]]:
        parts = [pickle.loads(pickle.dumps(part)) for part in one.partitions(start, end)]
        return [row for part in parts for batch in one.read(part) for row in batch.to_pylist()]

    before = read()
    assert sorted(row["id"] for row in before) == ["a", "b"]
    Table(path).upsert(rows("az", 9))
    assert read() == before
    assert one.partitions(end, end) == []
    one.prepareForTriggerAvailableNow()
    Table(path).upsert(rows("y", 9))
    assert one.latestOffset(end, ReadAllAvailable()) != one.reportLatestOffset()


def test_offsets_of_another_source(path: Path) -> None:
    for offset in ({"offsetCommitTime": "1"}, {"completion_time": 5}, {"completion_time": "now"}, {}):
        with pytest.raises(InvalidRequest, match="checkpoint"):
            reader(path).partitions(offset, {"completion_time": "3"})


def test_a_column_that_changed_its_type(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", name="t", record_key="id")
    table.upsert(rows("ab", 1))
    one = reader(tmp_path / "t")
    start = one.initialOffset()
    table.upsert(pa.table({"id": ["a"], "ts": pa.array([50], pa.int64())}))
    with pytest.raises(InvalidRequest, match="restart the query"):
        one.partitions(start, one.reportLatestOffset())


def test_the_columns_of_a_stream(path: Path) -> None:
    given = {"path": str(path), "hoodie.datasource.query.type": "incremental"}
    names = HudiSource(given).schema().fieldNames()
    assert names[0] == "_hoodie_commit_time" and names[-2:] == ["id", "ts"]
    assert HudiSource({**given, "pyhudi.columns": "ts"}).schema().fieldNames() == ["ts"]
    with pytest.raises(InvalidRequest, match="begin"):
        HudiSource(given).reader(HudiSource(given).schema())
