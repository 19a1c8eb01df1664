"""Executors that are lost in each stage of writes and services do not change the result."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.support.spark_jobs import started

WRITES = [f"{way}:{part}" for way in ("driver", "cluster") for part in ("prepare", "look up", "write")]


@pytest.mark.parametrize(
    ("table_type", "stages"),
    [
        pytest.param("cow", [*WRITES, "driver:cluster"], marks=pytest.mark.wide),
        pytest.param("mor", [*WRITES, "driver:compact", "driver:cluster"], marks=pytest.mark.wide),
        ("mor", ["driver:write", "driver:compact"]),
    ],
)
def test_executors_that_end_leave_right_tables(tmp_path: Path, table_type: str, stages: list[str]) -> None:
    pytest.importorskip("pyspark")
    done = started(tmp_path, table_type, *stages, program="kills_program.py", PYSPARK_PYTHON=sys.executable)
    assert done.returncode == 0, done.stderr[-4000:]
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert said == [{"stage": stage, "ended": True, "rows": True, "problems": [], "stray": []} for stage in stages]
