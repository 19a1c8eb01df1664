"""Pipelines of dlt write Hudi tables: each write disposition, hints, and a load package that is loaded twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dlt
import pytest
from pyhudi_dlt import hudi

import pyhudi as hp


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dlt.Pipeline:
    monkeypatch.setenv("DLT_DATA_DIR", str(tmp_path / "dlt"))
    return dlt.pipeline("trips", pipelines_dir=str(tmp_path / "pipelines"), destination=hudi(bucket_url=str(tmp_path / "lake")))


def rows_of(tmp_path: Path, name: str = "trips") -> list[dict[str, Any]]:
    found = hp.Table(tmp_path / "lake" / name).scan().to_arrow().to_pylist()
    return sorted(({k: v for k, v in row.items() if not k.startswith("_")} for row in found), key=lambda row: row["id"])


def test_merge_updates_and_deletes_by_primary_key(pipeline: dlt.Pipeline, tmp_path: Path) -> None:
    hints: dict[str, Any] = {"table_name": "trips", "write_disposition": "merge", "primary_key": "id"}
    gone = {"gone": {"data_type": "bool", "hard_delete": True}}
    pipeline.run([{"id": 1, "fare": 1.5, "gone": False}, {"id": 2, "fare": 2.5, "gone": False}], columns=gone, **hints)
    pipeline.run([{"id": 1, "fare": 9.5, "gone": False}, {"id": 2, "fare": 0.0, "gone": True}], columns=gone, **hints)
    assert [(row["id"], row["fare"]) for row in rows_of(tmp_path)] == [(1, 9.5)]


def test_append_adds_and_replace_replaces(pipeline: dlt.Pipeline, tmp_path: Path) -> None:
    pipeline.run([{"id": 1}, {"id": 2}], table_name="trips", write_disposition="append")
    pipeline.run([{"id": 3}], table_name="trips", write_disposition="append")
    assert [row["id"] for row in rows_of(tmp_path)] == [1, 2, 3]
    pipeline.run([{"id": 7, "city": "sf"}], table_name="trips", write_disposition="replace")
    assert rows_of(tmp_path) == [{"id": 7, "city": "sf"}]


def test_replace_keeps_all_files_of_a_load(pipeline: dlt.Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA_WRITER__FILE_MAX_ITEMS", "10")
    pipeline.run([{"id": 100}], table_name="trips", write_disposition="replace")
    pipeline.run([{"id": number} for number in range(35)], table_name="trips", write_disposition="replace")
    assert [row["id"] for row in rows_of(tmp_path)] == list(range(35))


def test_a_file_that_is_loaded_twice_is_written_once(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path / "1700000000.5" / "started_jobs"
    folder.mkdir(parents=True)
    path = folder / "trips.0a1b2c3d4e.0.parquet"
    pq.write_table(pa.table({"id": [1, 2]}), path)
    write = hudi(bucket_url=str(tmp_path / "lake")).config_params["destination_callable"]
    for _ in range(2):
        write(str(path), {"name": "trips", "columns": {}, "write_disposition": "append"}, bucket_url=str(tmp_path / "lake"))
    assert [row["id"] for row in rows_of(tmp_path)] == [1, 2]


def test_partition_and_ordering_hints_configure_the_table(pipeline: dlt.Pipeline, tmp_path: Path) -> None:
    columns: Any = {"city": {"partition": True}, "ts": {"dedup_sort": "desc"}}
    hints: dict[str, Any] = {"table_name": "trips", "write_disposition": "merge", "primary_key": "id", "columns": columns}
    pipeline.run([{"id": 1, "city": "sf", "ts": 5, "fare": 1.0}], **hints)
    pipeline.run([{"id": 1, "city": "sf", "ts": 4, "fare": 2.0}], **hints)
    assert [row["fare"] for row in rows_of(tmp_path)] == [1.0]
    assert (tmp_path / "lake" / "trips" / "sf").is_dir()


def test_merge_without_a_key_is_refused(pipeline: dlt.Pipeline) -> None:
    with pytest.raises(Exception, match="needs primary_key or merge_key"):
        pipeline.run([{"id": 1}], table_name="trips", write_disposition="merge")
