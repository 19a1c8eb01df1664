"""Memory and CPU time of a process and all its descendants, from /proc (Linux only).

Resident memory is the sum over the tree, so a page that two processes share counts twice; only a
fork that has not yet become another program does not count. A thread looks every few milliseconds;
the kernel's own high-water mark of each single process is used as well, so that a short peak inside one does not escape.
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
    """Of one watch: resident memory at its start and at its peak, and the CPU time that passed in the tree."""

    start_rss_bytes: int
    peak_rss_bytes: int
    cpu_seconds: float


class Watch:
    """Watches the tree below `process_id` between `__enter__` and `__exit__`; `usage` is there afterwards."""

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
    """User and system time of the living tree, and of the children that its processes have waited for."""
    total = 0
    for process_id, _ in _tree(root):
        fields = _stat(process_id)
        if fields:
            # utime, stime, cutime, cstime: fields 14 to 17 of proc(5); `fields` starts with the third.
            total += sum(int(ticks) for ticks in fields[11:15])
    return total / TICKS_PER_SECOND


def _tree(root: int) -> Iterator[tuple[int, int | None]]:
    """(process, its parent in the tree): parents before their children."""
    pending: list[tuple[int, int | None]] = [(root, None)]
    while pending:
        process_id, parent = pending.pop()
        yield process_id, parent
        try:
            for task in (PROC / str(process_id) / "task").iterdir():
                pending += [(int(child), process_id) for child in (task / "children").read_text().split()]
        except OSError:
            continue  # it ended while we looked


def _tree_rss_bytes(root: int) -> int:
    images = {process_id: (_image(process_id), parent) for process_id, parent in _tree(root)}
    total = 0
    for image, parent in images.values():
        above = images[parent][0] if parent is not None else None
        copied = above is not None and image.is_copy_of(above)
        total += 0 if copied else image.rss_pages
    return total * PAGE_SIZE


@dataclass(frozen=True, slots=True)
class _Image:
    command: bytes
    size_pages: int
    rss_pages: int

    def is_copy_of(self, parent: _Image) -> bool:
        """Whether this is a fork that has not become a program of its own: what it holds, its parent holds.

        A JVM on a local disk runs `chmod` and the like for many files; while each starts, the whole JVM seems to be there twice.
        """
        alike = abs(self.size_pages - parent.size_pages) <= parent.size_pages // 100
        return alike and self.command == parent.command and self.rss_pages >= parent.rss_pages // 2


def _image(process_id: int) -> _Image:
    """All zero when the process is gone."""
    folder = PROC / str(process_id)
    try:
        size, resident = (folder / "statm").read_text().split()[:2]
        return _Image((folder / "cmdline").read_bytes(), int(size), int(resident))
    except (OSError, ValueError):
        return _Image(b"", 0, 0)


def _stat(process_id: int) -> list[str]:
    """The fields of /proc/<id>/stat after the name, which may hold spaces and brackets; empty when the process is gone."""
    try:
        return (PROC / str(process_id) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _reset_high_water_mark(process_id: int) -> None:
    try:
        (PROC / str(process_id) / "clear_refs").write_text("5")
    except OSError:
        pass  # not ours to reset on this kernel; _high_water_mark_bytes then says nothing


def _high_water_mark_bytes(process_id: int) -> int:
    try:
        # Where the mark cannot be reset it tells of earlier steps, so it is not used.
        if not os.access(PROC / str(process_id) / "clear_refs", os.W_OK):
            return 0
        for line in (PROC / str(process_id) / "status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0
