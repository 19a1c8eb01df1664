"""Facts about the machine and the checkout, for the results."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.environments import ROOT


def describe() -> dict[str, str | int]:
    """Processor, cores of this process, memory, kernel; unknown parts are left out."""
    kernel = ".".join(platform.release().split(".")[:2])
    facts: dict[str, str | int] = {"system": f"{platform.system()} {kernel}", "architecture": platform.machine()}
    processor, memory = _value("/proc/cpuinfo", "model name"), _value("/proc/meminfo", "MemTotal")
    if processor:
        facts["processor"] = processor
    facts["cores"] = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if memory:
        facts["memory"] = f"{int(memory.split()[0]) / 2**20:.0f} GiB"
    return facts


def commit() -> str:
    """The newest commit that changed the sources, with a plus sign if files differ from it; empty without git."""
    return _git("log", "-1", "--format=%h", "--", "src") + ("+" if _git("status", "--porcelain", "--", "src") else "")


def _git(*arguments: str) -> str:
    try:
        found = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return found.stdout.strip()


def load_average() -> float:
    """Processes that want a core, over the last minute."""
    return round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else 0.0


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def _value(path: str, name: str) -> str:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip() == name), "")
