"""Virtual time that many threads share, one of which runs at a moment, and a store in it whose answers take their time."""

from __future__ import annotations

import heapq
import random
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from pyhudi.storage.base import Storage

_STACK_BYTES = 512 * 1024
_CALLS_OF_A_PAGE = 1000
"""What a store lists in one answer."""


class Ended(BaseException):
    """The time of the simulation is over; raised in writers that are still at work."""


class VirtualTime:
    """A clock that stands while somebody computes and jumps to the next moment at which somebody wakes.

    Threads are run one at a time in the order of their moments, so a run is a function of its seed.
    """

    def __init__(self, start_ms: int, end_ms: int) -> None:
        self.now_ms = float(start_ms)
        self._end_ms = end_ms
        self._waiting: list[tuple[float, int, threading.Lock]] = []
        self._count = 0
        self._over = threading.Event()
        self._left = 0
        self.failures: list[BaseException] = []

    def run(self, works: Iterable[Callable[[], None]]) -> None:
        """Run all, each on a thread of its own, until they end or the time is over."""
        gates = [(work, self._place(self.now_ms)) for work in works]
        self._left = len(gates)
        before = threading.stack_size(_STACK_BYTES)
        try:
            for pair in gates:
                threading.Thread(target=self._thread, args=pair, daemon=True).start()
        finally:
            threading.stack_size(before)
        self._wake_next()
        self._over.wait()
        if self.failures:
            raise self.failures[0]

    def sleep_until(self, moment_ms: float) -> None:
        """Let others run until then.  Raises Ended when the time is over first."""
        gate = self._place(moment_ms)
        self._wake_next()
        gate.acquire()
        if self.now_ms >= self._end_ms:
            raise Ended

    def _place(self, moment_ms: float) -> threading.Lock:
        gate = threading.Lock()
        gate.acquire()
        self._count += 1
        heapq.heappush(self._waiting, (max(moment_ms, self.now_ms), self._count, gate))
        return gate

    def _wake_next(self) -> None:
        moment_ms, _, gate = heapq.heappop(self._waiting)
        self.now_ms = min(moment_ms, self._end_ms)
        gate.release()

    def _thread(self, work: Callable[[], None], gate: threading.Lock) -> None:
        gate.acquire()
        try:
            work()
        except Ended:
            pass
        except BaseException as failure:
            self.failures.append(failure)
        self._left -= 1
        if self._left:
            self._wake_next()
        else:
            self._over.set()


class WriterEnvironment:
    """The world as one writer has it: what it repeats runs inside the sleep that reaches its moment."""

    def __init__(self, time: VirtualTime, seed: str) -> None:
        self._time = time
        self._random = random.Random(seed)
        self._repetitions: list[_Repeated] = []

    def now_ms(self) -> int:
        return int(self._time.now_ms)

    def monotonic_ms(self) -> int:
        return int(self._time.now_ms)

    def sleep_ms(self, duration_ms: float) -> None:
        end_ms = self._time.now_ms + duration_ms
        while True:
            self._repetitions = [each for each in self._repetitions if not each.stopped]
            due = min((each for each in self._repetitions if not each.busy), key=lambda each: each.due_ms, default=None)
            if due is None or due.due_ms > end_ms:
                break
            if due.due_ms > self._time.now_ms:
                self._time.sleep_until(due.due_ms)
            due.busy, due.due_ms = True, due.due_ms + due.interval_ms
            due.task()
            due.busy = False
        if end_ms > self._time.now_ms:
            self._time.sleep_until(end_ms)

    def uuid4(self) -> str:
        return str(uuid.UUID(bytes=self.token_bytes(16), version=4))

    def token_bytes(self, length: int) -> bytes:
        return self._random.randbytes(length)

    def every_ms(self, interval_ms: int, task: Callable[[], bool | None]) -> _Repeated:
        repeated = _Repeated(self._time.now_ms + interval_ms, interval_ms, task)
        self._repetitions.append(repeated)
        return repeated


@dataclass(slots=True, eq=False)
class _Repeated:
    due_ms: float
    interval_ms: int
    task: Callable[[], bool | None]
    stopped: bool = False
    busy: bool = False

    def stop(self) -> None:
        self.stopped = True


@dataclass(slots=True)
class Store:
    """What all requests of a run share.

    latency_ms: of a request.  requests_per_second: the most that the store answers; those above wait, as those of a client wait
    that is told to slow down.  object_writes_per_second: the most for one object.  requests: by kind, those made so far.
    """

    time: VirtualTime
    latency_ms: float
    requests_per_second: float
    object_writes_per_second: float
    requests: Counter[str] = field(default_factory=Counter)
    _free_ms: float = 0.0
    _object_free_ms: dict[str, float] = field(default_factory=dict)

    def delay_ms(self, call: str, path: str, *, writes: bool) -> float:
        """How long the request that is made now waits for its turn and its answer."""
        self.requests[call] += 1
        now_ms = self.time.now_ms
        begins_ms = max(now_ms, self._free_ms)
        self._free_ms = begins_ms + 1000 / self.requests_per_second
        if writes:
            begins_ms = max(begins_ms, self._object_free_ms.get(path, 0.0))
            self._object_free_ms[path] = begins_ms + 1000 / self.object_writes_per_second
        return begins_ms - now_ms + self.latency_ms


_READS = frozenset({"read", "read_range", "stat", "list", "names", "read_versioned"})
_WRITES = frozenset({"put", "put_if_absent", "put_if_matches", "delete", "delete_folder"})


class LateStorage:
    """A storage whose requests take effect half-way through the time that they take."""

    def __init__(self, inner: Storage, store: Store, env: WriterEnvironment) -> None:
        self._inner, self._store, self._env = inner, store, env

    def child(self, path: str) -> LateStorage:
        return LateStorage(self._inner.child(path), self._store, self._env)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in _READS | _WRITES:
            return found

        def call(path: Any, *rest: Any) -> Any:
            if name == "delete":
                path = list(path)
            where = self._inner.absolute(path) if isinstance(path, str) else ""
            delay_ms = self._store.delay_ms(name, where, writes=name.startswith("put"))
            self._env.sleep_ms(delay_ms - self._store.latency_ms / 2)
            answer = found(path, *rest)
            listed = answer.files if name == "list" else answer if name == "names" else ()
            pages = len(listed) // _CALLS_OF_A_PAGE
            for _ in range(pages):
                delay_ms += self._store.delay_ms(name, where, writes=False)
            self._env.sleep_ms(self._store.latency_ms / 2 + pages * self._store.latency_ms)
            return answer

        return call
