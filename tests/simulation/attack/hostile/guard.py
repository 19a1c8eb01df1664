"""Watches one process: what it opens, changes, starts and connects to outside of the table.

Python reports its own calls (audit hooks). Files that libraries open without Python are seen by inotify, in the folders that no
operation has a reason to touch.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

WORK_LIMIT = 50_000
"""Calls that open, list or change a file, in one case."""

_IN_ACCESS, _IN_MODIFY, _IN_ATTRIB, _IN_OPEN = 0x1, 0x2, 0x4, 0x20
_IN_CHANGES = 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800
_IN_NONBLOCK = 0o4000
_IN_ISDIR = 0x40000000
_EVENT_BYTES = 16

_READS = ("os.listdir", "os.scandir", "os.chdir")
# Places of the paths in the arguments, each with that of the descriptor of its folder.
_CHANGES: Mapping[str, tuple[tuple[int, int | None], ...]] = {
    "os.remove": ((0, 1),),
    "os.rename": ((0, 2), (1, 3)),
    "os.rmdir": ((0, 1),),
    "os.mkdir": ((0, 2),),
    "os.link": ((1, 3),),
    "os.symlink": ((1, 2),),
    "os.truncate": ((0, None),),
    "os.utime": ((0, 3),),
    "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),),
    "os.setxattr": ((0, None),),
}
_FORBIDDEN = (
    "socket.connect",
    "socket.getaddrinfo",
    "socket.gethostbyname",
    "socket.sendto",
    "socket.bind",
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "os.forkpty",
    "pty.spawn",
    "webbrowser.open",
    "ctypes.dlopen",
)


class EndlessWork(BaseException):
    """The case visits more than WORK_LIMIT files. It is no Exception, so that nothing retries."""


class Guard:
    """Records what a case does outside of its folders.

    Args:
        inside: Folders that the case may read and change.
        outside: Folders that it must not even read.
    """

    def __init__(self, inside: tuple[Path, ...], outside: tuple[Path, ...]) -> None:
        self._inside = tuple(str(folder) for folder in inside)
        self._outside = tuple(str(folder) for folder in outside)
        self._is_active = False
        self._may_follow_links = True
        self._may_start: tuple[str, ...] = ()
        self.work = 0
        self.violations: list[str] = []
        self._watch = Watch(outside)
        sys.addaudithook(self._hook)

    def run(self, act: Callable[[], None], *, follows_links: bool) -> None:
        """Run a case. follows_links: its reads may follow links that lead outside."""
        self.violations, self.work = [], 0
        self._may_follow_links = follows_links
        self._watch.read()
        self._is_active = True
        try:
            act()
        finally:
            self._is_active = False
        opened = self._watch.read()
        changes = [event for event in opened if event.startswith("changed")]
        self.violations += changes if follows_links else opened

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._is_active:
            return
        if event == "open":
            self._check_open(*arguments)
        elif event in _READS:
            self._count()
            self._check(event, arguments[0], is_change=False)
        elif event in _CHANGES:
            self._count()
            for place, folder in _CHANGES[event]:
                path, descriptor = arguments[place], -1 if folder is None else arguments[folder]
                if descriptor >= 0:
                    path = os.path.join(f"/proc/self/fd/{descriptor}", os.fsdecode(path))
                self._check(event, path, is_change=True)
        elif event in _FORBIDDEN:
            self._is_active = False
            self.violations.append(f"{event}{arguments!r}"[:300])
            self._is_active = True
            raise PermissionError(f"{event} in a test of hostile tables")
        elif event == "import" and str(arguments[0]).startswith("hostile"):
            self.violations.append(f"import of {arguments[0]}")

    def _count(self) -> None:
        self.work += 1
        if self.work > WORK_LIMIT:
            self._is_active = False
            raise EndlessWork(f"more than {WORK_LIMIT} calls")

    def _check_open(self, path: Any, mode: Any, flags: Any) -> None:
        if isinstance(path, int):
            return
        self._count()
        writes = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        is_change = any(letter in mode for letter in "wax+") if isinstance(mode, str) else bool(flags & writes)
        self._check("open", path, is_change=is_change)

    def _check(self, event: str, path: Any, *, is_change: bool) -> None:
        if isinstance(path, int) or path is None:
            return
        self._is_active = False
        try:
            # What is changed is an entry of a folder: a link itself may be removed.
            full = os.path.abspath(os.fsdecode(path))
            if is_change and event != "open":
                real = os.path.join(os.path.realpath(os.path.dirname(full)), os.path.basename(full))
            else:
                real = os.path.realpath(full)
        finally:
            self._is_active = True
        if is_change:
            if not _is_below(real, self._inside) and real != os.devnull:
                self.violations.append(f"{event} changes {path!r}")
        elif _is_below(real, self._outside) and not self._may_follow_links:
            self.violations.append(f"{event} reads {path!r}")


def _is_below(path: str, folders: tuple[str, ...]) -> bool:
    return any(path == folder or path.startswith(folder + os.sep) for folder in folders)


class Watch:
    """Events of the files below some folders, as texts. Folders themselves are watched, since they are the ones that are made."""

    def __init__(self, folders: tuple[Path, ...]) -> None:
        self._names: dict[int, str] = {}
        self._descriptor = -1
        if sys.platform != "linux":
            return
        libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = libc.inotify_init1(_IN_NONBLOCK)
        assert self._descriptor >= 0, os.strerror(ctypes.get_errno())
        mask = _IN_ACCESS | _IN_MODIFY | _IN_ATTRIB | _IN_OPEN | _IN_CHANGES
        for top in folders:
            for folder in [top, *(path for path in top.rglob("*") if path.is_dir())]:
                number = libc.inotify_add_watch(self._descriptor, os.fsencode(folder), mask)
                assert number >= 0, os.strerror(ctypes.get_errno())
                self._names[number] = str(folder)

    def read(self) -> list[str]:
        """The events since the last call."""
        events: dict[str, None] = {}
        while self._descriptor >= 0:
            try:
                data = os.read(self._descriptor, 1 << 16)
            except BlockingIOError:
                break
            at = 0
            while at < len(data):
                number, mask, _, size = (
                    int.from_bytes(data[at + 4 * place : at + 4 * place + 4], "little") for place in range(4)
                )
                name = data[at + _EVENT_BYTES : at + _EVENT_BYTES + size].rstrip(b"\0").decode(errors="replace")
                word = "changed" if mask & (_IN_MODIFY | _IN_ATTRIB | _IN_CHANGES) else "opened"
                events[f"{word} {self._names.get(number, '')}/{name}"] = None
                at += _EVENT_BYTES + size
        return list(events)


def environment_of_child(home: Path) -> Mapping[str, str]:
    """Environment variables of a process that runs cases."""
    kept = {key: value for key, value in os.environ.items() if key in ("PATH", "LANG", "LC_ALL", "TZ", "PYTHONPATH")}
    return {
        **kept,
        "HOME": str(home),
        "TMPDIR": str(home / "temp"),
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "MALLOC_ARENA_MAX": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "120",
    }
