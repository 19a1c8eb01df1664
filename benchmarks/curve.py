"""How planning a filtered read grows with the number of files: tables of metadata alone, of several sizes.

`metadata_scale.py` makes such a table and measures one plan in a process of its own; this module runs it for each size.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.environments import ROOT
from benchmarks.metadata_scale import FILTERS, build

FILES_A_PARTITION = 100


def measure_curve(file_counts: Sequence[int], folder: Path) -> list[dict[str, Any]]:
    """One point for each size and condition: what `metadata_scale.measure` says, with `files` and `filter`."""
    points: list[dict[str, Any]] = []
    for count in file_counts:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            build(folder / "t", max(1, count // FILES_A_PARTITION), min(count, FILES_A_PARTITION))
            for condition in FILTERS:
                command = [sys.executable, "-m", "benchmarks.metadata_scale", "--measure", "plan", str(folder / "t"), condition]
                done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
                points.append({"files": count, "filter": condition, **json.loads(done.stdout)})
                print(f"planning  {count:>9,} files  {condition or '(none)':<34} {points[-1]['seconds']:8.3f} s", file=sys.stderr)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return points
