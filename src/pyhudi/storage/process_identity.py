"""Process identities: detect whether the process that wrote a name is still running.

The name contains host, boot id, PID namespace, process id and start time, so that a reused process id is not mistaken
for the original process. Only a process of the same host, boot and namespace can be known to be dead; any other has
unknown state.

Without `/proc` there are no start times, and no process is ever known to be dead.
"""

from __future__ import annotations

import getpass
import os
import socket
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pyhudi.format.stored_numbers import parse_digits

_SEPARATOR = "~"


@dataclass(frozen=True, slots=True)
class Process:
    """Identity of a process.

    Attributes:
        host: Host name.
        boot: Boot id, '' when unknown.
        space: PID namespace, '' when unknown.
        pid: Process id.
        started: Start time in clock ticks since boot, 0 when unknown.
    """

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
        """Parse the text form; None if it is malformed."""
        parts = text.split(_SEPARATOR)
        numbers = [parse_digits(part, 20) for part in parts[3:]]
        if len(numbers) != 2 or numbers[0] is None or numbers[1] is None:
            return None
        return cls(parts[0], parts[1], parts[2], numbers[0], numbers[1])

    @property
    def text(self) -> str:
        """The identity as one word, usable in a file name."""
        host = "".join(c if c.isalnum() or c in ".-" else "-" for c in self.host)
        return _SEPARATOR.join((host, self.boot[:8], "".join(filter(str.isdigit, self.space)), str(self.pid), str(self.started)))

    def is_running(self) -> bool | None:
        """Whether the process exists, even suspended; None if this process cannot determine it."""
        current_process = Process.parse(Process.current().text)
        assert current_process is not None, "a process has a name that parses"
        if not (self.boot and self.started) or (self.host, self.boot, self.space) != (
            current_process.host,
            current_process.boot,
            current_process.space,
        ):
            return None
        return start_time(self.pid) == self.started


@lru_cache(maxsize=1)
def _process(pid: int) -> Process:
    return Process(socket.gethostname(), boot_id() or "", pid_space() or "", pid, start_time(pid) or 0)


@lru_cache(maxsize=1)
def boot_id() -> str | None:
    """The id of this machine's boot; None if unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def pid_space() -> str | None:
    """The PID namespace; None if unknown."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return None


def start_time(pid: int) -> int | None:
    """Clock ticks from boot to the start of a process; None if it does not exist or the time is unknown."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    # A zombie process still has an entry.
    return None if fields[0] in ("Z", "X") else int(fields[19])


# Identity of the user for requests to servers.


def user_name() -> str:
    """The user's name; `unknown` in a container whose user has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
