"""Jobs that a user starts as `venv/bin/python job.py`, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.needs import SMALL_JVM, java_home, unavailable

PROGRAMS = Path(__file__).resolve().parents[1] / "spark"


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
    path = PROGRAMS / program
    return subprocess.run(
        [sys.executable, path, tmp_path, *arguments], env=given, cwd=tmp_path, capture_output=True, text=True, timeout=1800
    )
