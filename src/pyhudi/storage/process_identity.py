"""Processes by a name that others can ask after: is the one that wrote this still there?

The name holds the machine, its boot, the namespace that process ids are counted in, the process id and the process's start, so
that a number which was given out again is not taken for the process that had it before.  Only a process of the same machine,
boot and namespace can be told to be dead; of every other one nothing is known.

What this does not do: machines without `/proc` tell no start times, and there no process is ever told to be dead.
"""

from __future__ import annotations

import getpass
import os
import socket
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_SEPARATOR = "~"


@dataclass(frozen=True, slots=True)
class Process:
    """One process.  boot, space: ids, '' when unknown; started: clock ticks from boot, 0 when unknown."""

    host: str
    boot: str
    space: str
    pid: int
    started: int

    @classmethod
    def current(cls) -> Process:
        """This process."""
        return _process(os.getpid())

    @classmethod
    def parse(cls, text: str) -> Process | None:
        """From `text`; None for anything else."""
        parts = text.split(_SEPARATOR)
        if len(parts) != 5 or not (parts[3].isdecimal() and parts[4].isdecimal()):
            return None
        return cls(parts[0], parts[1], parts[2], int(parts[3]), int(parts[4]))

    @property
    def text(self) -> str:
        """One word, fit for a file name."""
        host = "".join(c if c.isalnum() or c in ".-" else "-" for c in self.host)
        return _SEPARATOR.join((host, self.boot[:8], "".join(filter(str.isdigit, self.space)), str(self.pid), str(self.started)))

    def is_running(self) -> bool | None:
        """Whether it runs, be it suspended; None when nobody here can tell."""
        here = Process.parse(Process.current().text)
        assert here is not None, "a process has a name that parses"
        if not (self.boot and self.started) or (self.host, self.boot, self.space) != (here.host, here.boot, here.space):
            return None
        return start_time(self.pid) == self.started


@lru_cache(maxsize=1)
def _process(pid: int) -> Process:
    return Process(socket.gethostname(), boot_id() or "", pid_space() or "", pid, start_time(pid) or 0)


def boot_id() -> str | None:
    """The id of this machine's boot; None when there is no way to tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def pid_space() -> str | None:
    """The namespace that process ids are counted in; None when there is no way to tell."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return None


def start_time(pid: int) -> int | None:
    """Clock ticks from boot to the start of a process; None when no such process runs, or there is no way to tell."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    # A dead process that its parent has not asked about yet still has its entry.
    return None if fields[0] in ("Z", "X") else int(fields[19])


# Who runs this process, as servers are told.


def user_name() -> str:
    """The user's name; `unknown` in a container whose user has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
