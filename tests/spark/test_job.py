"""A job that is started as `venv/bin/python job.py`, with another `python3` first on PATH and no word about workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.needs import SMALL_JVM, java_home, unavailable


def started(
    tmp_path: Path, *arguments: str, program: str = "job_program.py", **environment: str
) -> subprocess.CompletedProcess[str]:
    home = java_home(17, 99)
    if home is None:
        unavailable("spark", "no Java >= 17; run `make setup` as root, or install one")
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho this Python has no PyHudi >&2\nexit 3\n")
    other.chmod(0o755)
    given = {
        **{key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))},
        "JAVA_HOME": str(home),
        "JDK_JAVA_OPTIONS": SMALL_JVM,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PATH": f"{other.parent}{os.pathsep}{os.environ['PATH']}",
        **environment,
    }
    path = Path(__file__).with_name(program)
    return subprocess.run(
        [sys.executable, path, tmp_path, *arguments], env=given, cwd=tmp_path, capture_output=True, text=True, timeout=1800
    )


@pytest.mark.parametrize("master", ["local-cluster[2,1,2048]", pytest.param("local[2,4]", marks=pytest.mark.wide)])
def test_the_first_write_of_a_job(tmp_path: Path, master: str) -> None:
    """On two worker processes of their own, as a cluster has them: neither memory nor files of the driver's process help."""
    pytest.importorskip("pyspark")
    done = started(tmp_path, master)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {"inserted": 10, "read": 10, "format": 3, "bulk": [True, 2, True], "base files": 2}


@pytest.mark.wide
def test_workers_that_cannot_run_pyhudi_are_told(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    done = started(tmp_path, "local[2]", PYSPARK_PYTHON="/nowhere/python3")
    assert "EngineFailed: the Python that Spark's workers run cannot run PyHudi" in done.stderr, done.stderr[-4000:]
    assert "export PYSPARK_PYTHON" in done.stderr
    assert not (tmp_path / "t" / ".hoodie" / "hoodie.properties").exists()
