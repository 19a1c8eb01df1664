"""Spark Connect: the same operations in a session without a JVM in its process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.needs import SMALL_JVM, java_home, unavailable
from tests.support.spark_glue import glue_options, registered

EXPECTED = {"inserted": [40, 20], "updated": 10}
PARTS: dict[str, dict[str, object]] = {
    "short": {"ts": {"1": 30, "2": 28}},
    "whole": {
        "merged": [5, 5, 1],
        "moved": [["2", 98.5]],
        "ts": {"1": 29, "2": 25, "3": 10},
        "sql": [58, [[-1.0, 2]]],
    },
}
REGISTERED = {"COPY_ON_WRITE": ("trips",), "MERGE_ON_READ": ("trips", "trips_ro", "trips_rt")}


# The session is what is new here; the operations do the same on both types in a classic one.
@pytest.mark.parametrize(
    ("kind", "part"),
    [
        ("MERGE_ON_READ", "short"),
        pytest.param("MERGE_ON_READ", "whole", marks=pytest.mark.full),
        pytest.param("COPY_ON_WRITE", "whole", marks=pytest.mark.wide),
    ],
)
def test_a_connect_session(request: pytest.FixtureRequest, tmp_path: Path, kind: str, part: str) -> None:
    pytest.importorskip("grpc", reason="the extra `connect` is not installed")
    home = java_home(17, 99)
    if home is None:
        unavailable("spark", "no Java >= 17; run `make setup` as root, or install one")
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))},
        "JAVA_HOME": str(home),
        "JDK_JAVA_OPTIONS": SMALL_JVM,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "TZ": "UTC",
    }
    program = Path(__file__).with_name("connect_program.py")
    database = f"connected_{kind.lower()}"
    endpoint = request.getfixturevalue("aws_endpoint") if part == "whole" else None
    more = glue_options(endpoint, database) if endpoint else {}
    # The server of a local Connect session is a process of its own, which ends with its client.
    done = subprocess.run(
        [sys.executable, program, tmp_path, kind, json.dumps(more), part],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found.pop("session").startswith("pyspark.sql.connect")
    if endpoint:
        assert registered(endpoint, database) == {name: ["0", "1"] for name in REGISTERED[kind]}
    assert found == EXPECTED | PARTS[part]
