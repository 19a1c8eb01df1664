"""FIFO queue of processes that wait for a lock, because polling alone would make the order random.

    .hoodie/.locks/waiting/<number>.<process>.<id>      one empty ticket file for each waiting process

1. A process that finds the lock taken creates a ticket with a number one above the greatest existing one. It does not
   try to acquire the lock while a smaller ticket exists or, without a ticket, while any exists. Numbers define the
   order, not clocks.
2. A ticket is rewritten periodically while its owner waits. A ticket that is unchanged for longer than its owner may
   sleep, or whose process is known to be dead, is ignored, and deleted by the next process that sees it.
3. A process that stops waiting deletes its ticket.

The queue only determines who tries first. The lock itself guarantees exclusion, so a lost ticket costs no more than the
place in the queue. Writers that do not use the queue (Hudi's) acquire the lock when they find it free.
"""

from __future__ import annotations

import re
from contextlib import suppress

from pyhudi.errors import HudiError
from pyhudi.format.paths import join_path
from pyhudi.storage.base import Storage
from pyhudi.storage.environment import Environment
from pyhudi.storage.process_identity import Process

_REFRESH_MS = 2_000
_DEAD_AFTER_MS = 10_000
_TICKET = re.compile(r"(\d{12})\.(.+)\.[0-9a-f]{8}")


class FifoQueue:
    """The queue of one lock, as seen by one waiting process.  folder: folder of the tickets."""

    def __init__(self, storage: Storage, env: Environment, folder: str) -> None:
        self._storage = storage
        self._env = env
        self._folder = folder
        self._ticket: str | None = None
        self._written_ms = 0
        # Ticket -> its modification time, and when this was first observed.
        self._seen: dict[str, tuple[int, int]] = {}

    def waiting_ahead(self, *, is_empty: bool) -> int:
        """Number of processes ahead: those with smaller tickets, or all if this process has none. Raises as `Storage.list`.

        is_empty: True if the caller knows that there is no folder of tickets.
        """
        now_ms = self._env.monotonic_ms()
        files = () if is_empty else self._storage.list(self._folder).files
        tickets = {info.name: info.modified_ms for info in files if _TICKET.fullmatch(info.name)}
        if self._ticket is not None and self._ticket not in tickets:
            # It was deleted because this process seemed dead, as after a long suspension: rejoin at the end of the
            # queue.
            self._ticket = None
        self._seen = {
            name: self._seen[name] if self._seen.get(name, (None, 0))[0] == modified_ms else (modified_ms, now_ms)
            for name, modified_ms in tickets.items()
        }
        others = [name for name in tickets if name != self._ticket and (self._ticket is None or name < self._ticket)]
        dead = [name for name in others if now_ms - self._seen[name][1] > _DEAD_AFTER_MS or _is_dead(name)]
        if dead:
            self._storage.delete([join_path(self._folder, name) for name in dead])
        return len(others) - len(dead)

    def wait(self) -> None:
        """Create a ticket, or refresh the existing one. Storage errors cost the place in the queue, and are not raised."""
        now_ms = self._env.monotonic_ms()
        if self._ticket is not None and now_ms - self._written_ms < _REFRESH_MS:
            return
        ticket = self._ticket
        if ticket is None:
            last = max((int(name.partition(".")[0]) for name in self._seen), default=0)
            ticket = f"{last + 1:012d}.{Process.current().text}.{self._env.uuid4()[:8]}"
        # Before the request, so that `leave` deletes the ticket of an interrupted one.
        self._ticket = ticket
        try:
            self._storage.put(join_path(self._folder, ticket), b"")
        except HudiError:
            return
        self._written_ms = now_ms

    def leave(self) -> None:
        """Delete the ticket."""
        if self._ticket is None:
            return
        # The ticket expires by itself.
        with suppress(HudiError):
            self._storage.delete([join_path(self._folder, self._ticket)])
        self._ticket = None


def _is_dead(ticket: str) -> bool:
    matched = _TICKET.fullmatch(ticket)
    process = Process.parse(matched[2]) if matched else None
    return process is not None and process.is_running() is False
