"""The operators run in a DAG of Airflow: a write with a retry, services, and the sensor."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp()
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "false"
os.environ["AIRFLOW_CONN_LAKE"] = '{"conn_type": "generic", "extra": {"sync": "documents"}}'

import pytest
from airflow.sdk import DAG
from pyhudi_airflow import HudiServiceOperator, HudiWriteOperator, NewCommitSensor

import pyhudi as hp


def run(operator: Any, run_id: str = "hourly__1") -> Any:
    return operator.execute({"run_id": run_id})


def test_a_write_is_applied_once_for_each_run(tmp_path: Path) -> None:
    with DAG("trips"):
        write = HudiWriteOperator(
            task_id="write",
            path=str(tmp_path / "trips"),
            rows=lambda context: [{"id": context["run_id"], "fare": 9.5}],
            arguments={"record_key": "id"},
        )
    instants = [run(write), run(write), run(write, "hourly__2")]
    assert instants[1] is None and instants[0] is not None and instants[2] is not None
    assert hp.Table(tmp_path / "trips").count() == 2


def test_services_run_and_unknown_ones_are_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "trips")
    hp.write(path, [{"id": 1}], record_key="id", table_type="mor")
    hp.write(path, [{"id": 1}], "upsert")
    for service in ("compact", "clean", "archive", "cluster", "validate"):
        run(HudiServiceOperator(task_id=service, path=path, service=service))
    assert hp.Table(path).count() == 1
    with pytest.raises(hp.InvalidRequest, match="none of compact"):
        HudiServiceOperator(task_id="x", path=path, service="vacuum")


def test_validate_fails_the_task_for_a_damaged_table(tmp_path: Path) -> None:
    hp.write(tmp_path / "trips", [{"id": 1}], record_key="id")
    next((tmp_path / "trips").glob("*.parquet")).unlink()
    with pytest.raises(hp.CorruptData):
        run(HudiServiceOperator(task_id="validate", path=str(tmp_path / "trips"), service="validate"))


def test_the_sensor_sees_a_new_commit(tmp_path: Path) -> None:
    path = str(tmp_path / "trips")
    sensor = NewCommitSensor(task_id="wait", path=path, after="")
    assert not sensor.poke({})
    first = hp.write(path, [{"id": 1}], record_key="id")
    assert sensor.poke({})
    sensor.after = first.completion_time
    assert not sensor.poke({})
    hp.write(path, [{"id": 2}])
    assert sensor.poke({})


def test_storage_options_come_from_the_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = SimpleNamespace(extra_dejson={"region": 5})
    monkeypatch.setattr("pyhudi_airflow.BaseHook.get_connection", lambda name: connection)
    with pytest.raises(hp.HudiError, match="region"):
        NewCommitSensor(task_id="wait", path=str(tmp_path), after="", connection="lake").poke({})
