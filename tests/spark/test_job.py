"""A job started as `venv/bin/python job.py`, with another `python3` first on PATH and no worker settings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.spark_jobs import started


@pytest.mark.parametrize("master", ["local-cluster[2,1,2048]", pytest.param("local[2,4]", marks=pytest.mark.wide)])
def test_the_first_write_of_a_job(tmp_path: Path, master: str) -> None:
    """On two worker processes of their own, as a cluster has them: neither memory nor files of the driver's process help."""
    pytest.importorskip("pyspark")
    done = started(tmp_path, master)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {"inserted": 10, "read": 10, "format": 3, "bulk": [True, 2, True], "base files": 2}


@pytest.mark.wide
def test_workers_without_pyhudi_raise_a_clear_error(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    by_tasks = "pyhudi.spark.driver.batch.bytes=0"
    done = started(tmp_path, "local[2]", by_tasks, PYSPARK_PYTHON="/nowhere/python3")
    assert "EngineFailed: the Python of Spark's workers cannot run PyHudi" in done.stderr, done.stderr[-4000:]
    assert "export PYSPARK_PYTHON" in done.stderr
    assert not (tmp_path / "t" / ".hoodie" / "hoodie.properties").exists()
