"""Memory and CPU time of a process and its descendants, from /proc (Linux only).

Resident memory is the sum over the tree, so a page of two processes counts twice; a fork that has not executed its program
yet does not count. A thread samples it, and the kernel's high-water mark of each process covers short peaks.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
INTERVAL_S = 0.02


@dataclass(frozen=True, slots=True)
class Usage:
    """Resident memory at the start and peak of a watch, and the tree's CPU time in between."""

    start_rss_bytes: int
    peak_rss_bytes: int
    cpu_seconds: float


class Watch:
    """Watches the tree below `process_id`; `usage` is set on exit."""

    usage: Usage

    def __init__(self, process_id: int) -> None:
        self._root = process_id
        self._done = threading.Event()
        self._peak = 0

    def __enter__(self) -> Watch:
        for process_id, _ in _tree(self._root):
            _reset_high_water_mark(process_id)
        self._start = self._peak = _tree_rss_bytes(self._root)
        self._cpu = tree_cpu_seconds(self._root)
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        single = max((_high_water_mark_bytes(process_id) for process_id, _ in _tree(self._root)), default=0)
        peak = max(self._peak, _tree_rss_bytes(self._root), single)
        self.usage = Usage(self._start, peak, max(0.0, tree_cpu_seconds(self._root) - self._cpu))

    def _sample(self) -> None:
        while not self._done.wait(INTERVAL_S):
            self._peak = max(self._peak, _tree_rss_bytes(self._root))


def tree_cpu_seconds(root: int) -> float:
    """User and system time of the living tree and of the children that its processes have waited for."""
    total = 0
    for process_id, _ in _tree(root):
        # utime, stime, cutime, cstime are fields 14 to 17 of proc(5); the name, field 2, may contain spaces.
        fields = _read(process_id, "stat").rpartition(")")[2].split()
        total += sum(int(ticks) for ticks in fields[11:15])
    return total / TICKS_PER_SECOND


def _tree(root: int) -> Iterator[tuple[int, int | None]]:
    """(process, its parent in the tree), parents before their children."""
    pending: list[tuple[int, int | None]] = [(root, None)]
    while pending:
        process_id, parent = pending.pop()
        yield process_id, parent
        try:
            for task in (PROC / str(process_id) / "task").iterdir():
                pending += [(int(child), process_id) for child in (task / "children").read_text().split()]
        except OSError:
            continue  # it ended meanwhile


@dataclass(frozen=True, slots=True)
class _Image:
    command: str
    size_pages: int
    rss_pages: int

    def is_copy_of(self, parent: _Image) -> bool:
        """Whether this is a fork that has not executed its program: a JVM forks itself for each `chmod`."""
        alike = abs(self.size_pages - parent.size_pages) <= parent.size_pages // 100
        return alike and self.command == parent.command and self.rss_pages >= parent.rss_pages // 2


def _tree_rss_bytes(root: int) -> int:
    images = {process_id: (_image(process_id), parent) for process_id, parent in _tree(root)}
    total = 0
    for image, parent in images.values():
        above = images[parent][0] if parent is not None else None
        total += 0 if above is not None and image.is_copy_of(above) else image.rss_pages
    return total * PAGE_SIZE


def _image(process_id: int) -> _Image:
    """All zero if the process is gone."""
    fields = _read(process_id, "statm").split()
    return _Image(_read(process_id, "cmdline"), int(fields[0]), int(fields[1])) if fields else _Image("", 0, 0)


def _read(process_id: int, name: str) -> str:
    try:
        return (PROC / str(process_id) / name).read_text(errors="replace")
    except OSError:
        return ""


def _reset_high_water_mark(process_id: int) -> None:
    try:
        (PROC / str(process_id) / "clear_refs").write_text("5")
    except OSError:
        pass  # not permitted on this kernel; _high_water_mark_bytes then returns 0


def _high_water_mark_bytes(process_id: int) -> int:
    # A mark that cannot be reset is that of an earlier step.
    if not os.access(PROC / str(process_id) / "clear_refs", os.W_OK):
        return 0
    lines = (line.split() for line in _read(process_id, "status").splitlines() if line.startswith("VmHWM:"))
    return next((int(fields[1]) * 1024 for fields in lines), 0)
