"""What the benchmark ran on, for the report."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

from benchmarks.environments import ROOT


def describe() -> dict[str, str | int]:
    """Processor, cores this process may use, memory, kernel; unknown parts are left out."""
    kernel = ".".join(platform.release().split(".")[:2])
    said: dict[str, str | int] = {"system": f"{platform.system()} {kernel}", "architecture": platform.machine()}
    processor = _value(Path("/proc/cpuinfo"), "model name")
    if processor:
        said["processor"] = processor
    said["cores"] = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = _value(Path("/proc/meminfo"), "MemTotal")
    if memory:
        said["memory"] = f"{int(memory.split()[0]) / 2**20:.0f} GiB"
    return said


def commit() -> str:
    """The commit of the checkout, with a plus sign when files differ from it; empty without git."""
    try:
        said = subprocess.run(["git", "describe", "--always", "--dirty=+"], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return said.stdout.strip() if said.returncode == 0 else ""


def load_average() -> float:
    """Processes that want a core, over the last minute; 0 where the system does not say."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def _value(path: Path, name: str) -> str:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip() == name), "")
