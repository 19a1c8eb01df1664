"""First come, first served: who waits for a lock that polling would give to whoever is luckiest.

    .hoodie/.locks/waiting/<number>.<process>.<id>      one ticket for each that waits; no content

1. Who finds the lock taken draws a ticket, one above the greatest that stands there.  Nobody tries for the lock while a smaller
   ticket stands, or, without a ticket, while any does.  Order goes by numbers, so no clock is asked.
2. A ticket is written anew while its owner waits.  One that stays as it is for longer than its owner may sleep, or whose process
   is known to have died, counts no more, and whoever notices removes it.
3. Whoever stops waiting removes its own.

The queue decides nothing but who tries first: the lock itself keeps holders apart, so a lost ticket costs a place and no more.
Writers that do not know the queue (real Hudi's) take the lock when they find it free.
"""

from __future__ import annotations

import re

from pyhudi.errors import HudiError
from pyhudi.format.paths import join_path
from pyhudi.storage.base import Storage
from pyhudi.storage.environment import Environment
from pyhudi.storage.process_identity import Process

_REFRESH_MS = 2_000
_DEAD_AFTER_MS = 10_000
_TICKET = re.compile(r"(\d{12})\.(.+)\.[0-9a-f]{8}")


class FifoQueue:
    """The queue before one lock, as one that waits sees it.  folder: of the tickets."""

    def __init__(self, storage: Storage, env: Environment, folder: str) -> None:
        self._storage = storage
        self._env = env
        self._folder = folder
        self._ticket: str | None = None
        self._written_ms = 0
        # Ticket -> its modification time, and since when this has been seen.
        self._seen: dict[str, tuple[int, int]] = {}

    def waiting_ahead(self) -> int:
        """How many come before: those with smaller tickets, or all while there is no own one.  Raises as `Storage.list`."""
        now_ms = self._env.monotonic_ms()
        found = {info.name: info.modified_ms for info in self._storage.list(self._folder).files if _TICKET.fullmatch(info.name)}
        if self._ticket is not None and self._ticket not in found:
            # It was taken for that of a dead one, as after a long sleep: to the end of the queue.
            self._ticket = None
        self._seen = {
            name: self._seen[name] if self._seen.get(name, (None, 0))[0] == modified_ms else (modified_ms, now_ms)
            for name, modified_ms in found.items()
        }
        others = [name for name in found if name != self._ticket and (self._ticket is None or name < self._ticket)]
        dead = [name for name in others if now_ms - self._seen[name][1] > _DEAD_AFTER_MS or _is_dead(name)]
        if dead:
            self._storage.delete([join_path(self._folder, name) for name in dead])
        return len(others) - len(dead)

    def wait(self) -> None:
        """Draw a ticket, or keep the own one fresh.  A store that does not answer costs the place, and raises nothing."""
        now_ms = self._env.monotonic_ms()
        if self._ticket is not None and now_ms - self._written_ms < _REFRESH_MS:
            return
        ticket = self._ticket
        if ticket is None:
            last = max((int(name.partition(".")[0]) for name in self._seen), default=0)
            ticket = f"{last + 1:012d}.{Process.current().text}.{self._env.uuid4()[:8]}"
        try:
            self._storage.put(join_path(self._folder, ticket), b"")
        except HudiError:
            return
        self._ticket, self._written_ms = ticket, now_ms

    def leave(self) -> None:
        """Wait no longer."""
        ticket, self._ticket = self._ticket, None
        if ticket is None:
            return
        try:
            self._storage.delete([join_path(self._folder, ticket)])
        except HudiError:
            # It counts no more in a while.
            return


def _is_dead(ticket: str) -> bool:
    found = _TICKET.fullmatch(ticket)
    process = Process.parse(found[2]) if found else None
    return process is not None and process.is_running() is False
