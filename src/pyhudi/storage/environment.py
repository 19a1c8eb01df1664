"""Clock, sleep, random numbers and ids of a run as one injected object, so that a whole run is a function of a seed.

`SystemEnvironment` uses the system's clock. `ReplayEnvironment` is a simulation: its time advances only by sleeping or
explicit calls, and randomness comes from a seed. Repeated tasks run inside the sleep that reaches their due time, on
the sleeping thread. So leases expire, heartbeats stop and timeouts pass in a test that takes no time.

No time zones (see format/instants.py) and no calendar.
"""

from __future__ import annotations

import contextlib
import os
import queue
import random
import secrets
import threading
import time
import uuid
from collections.abc import Callable
from typing import Protocol

from pyhudi.errors import InvalidRequest


class Repetition(Protocol):
    """A periodic task that runs until it is stopped."""

    def stop(self) -> None:
        """No run starts after this returns.  A run on another thread may still be in progress."""
        ...


class Environment(Protocol):
    """Clock, sleep, randomness and periodic tasks."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch.  Two calls may return the same value, and a system clock may step back."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since an arbitrary origin, for durations. Never affected by clock changes; includes time while
        the process or the machine is suspended.
        """
        ...

    def sleep_ms(self, duration_ms: int) -> None:
        """Return after `duration_ms` (0 or more)."""
        ...

    def uuid4(self) -> str:
        """A random UUID of version 4, in 36 lower-case characters."""
        ...

    def token_bytes(self, length: int) -> bytes:
        """`length` random bytes."""
        ...

    def every_ms(self, interval_ms: int, task: Callable[[], bool | None]) -> Repetition:
        """Run `task` every `interval_ms` (1 or more), first after one interval, until stopped or it returns False.

        The task must not raise, because no caller receives the error.  It does not keep the process from exiting.
        """
        ...


# Linux has a clock that continues while the machine is suspended; elsewhere the monotonic clock is the best available.
_STEADY_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemEnvironment:
    """The system's clock and randomness.  Stateless, so it can be pickled to workers."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.clock_gettime_ns(_STEADY_CLOCK) // 1_000_000

    def sleep_ms(self, duration_ms: int) -> None:
        time.sleep(duration_ms / 1000)

    def uuid4(self) -> str:
        return str(uuid.uuid4())

    def token_bytes(self, length: int) -> bytes:
        return secrets.token_bytes(length)

    def every_ms(self, interval_ms: int, task: Callable[[], bool | None]) -> Repetition:
        _check_interval(interval_ms)
        return _ThreadRepetition(interval_ms, task)


class ReplayEnvironment:
    """A virtual clock that starts at `start_ms`, and randomness from `seed`. Thread-safe; replayable with a single thread."""

    def __init__(self, seed: int, start_ms: int = 1_767_225_600_000) -> None:
        self.seed = seed
        self._random = random.Random(seed)
        self._now_ms = start_ms
        self._step_ms = 0
        self._mutex = threading.RLock()
        self._repetitions: list[_VirtualRepetition] = []

    def now_ms(self) -> int:
        with self._mutex:
            return self._now_ms + self._step_ms

    def monotonic_ms(self) -> int:
        with self._mutex:
            return self._now_ms

    def step_ms(self, difference_ms: int) -> None:
        """Simulate a change of the system clock: `now_ms` jumps forward or back, and no time passes."""
        with self._mutex:
            self._step_ms += difference_ms

    def sleep_ms(self, duration_ms: int) -> None:
        self.advance_ms(duration_ms)
        # Threads that share this clock and wait for each other need real time to be scheduled.
        time.sleep(0)

    def uuid4(self) -> str:
        return str(uuid.UUID(bytes=self.token_bytes(16), version=4))

    def token_bytes(self, length: int) -> bytes:
        with self._mutex:
            return self._random.randbytes(length)

    def every_ms(self, interval_ms: int, task: Callable[[], bool | None]) -> Repetition:
        _check_interval(interval_ms)
        with self._mutex:
            repetition = _VirtualRepetition(self._now_ms + interval_ms, interval_ms, task)
            self._repetitions.append(repetition)
            return repetition

    def advance_ms(self, duration_ms: int) -> None:
        """Move the clock forward.  Due periodic tasks run in order of their due times, each at its due time."""
        if duration_ms < 0:
            raise InvalidRequest(f"time moves forward only, found {duration_ms} ms")
        with self._mutex:
            end_ms = self._now_ms + duration_ms
        while (due := self._pop_due(end_ms)) is not None:
            # Outside the mutex: the task may acquire a lock whose holder on another thread reads the clock.
            if due.task() is False:
                due.stop()
        with self._mutex:
            self._now_ms = max(self._now_ms, end_ms)

    def stall_ms(self, duration_ms: int) -> None:
        """Move the clock forward without running periodic tasks, as for a process that was suspended and resumes late."""
        if duration_ms < 0:
            raise InvalidRequest(f"time moves forward only, found {duration_ms} ms")
        with self._mutex:
            self._now_ms += duration_ms
            for repetition in self._repetitions:
                repetition.next_ms = max(repetition.next_ms, self._now_ms + 1)

    def _pop_due(self, end_ms: int) -> _VirtualRepetition | None:
        with self._mutex:
            self._repetitions = [repetition for repetition in self._repetitions if not repetition.stopped]
            due = min(self._repetitions, key=lambda repetition: repetition.next_ms, default=None)
            if due is None or due.next_ms > end_ms:
                return None
            self._now_ms = max(self._now_ms, due.next_ms)
            due.next_ms += due.interval_ms
            return due


class _ThreadRepetition:
    """A daemon thread that can be woken, so that stopping it does not wait for the interval.

    It starts when the task is first due: most repetitions are stopped earlier. Its states are single assignments, and
    no lock is held by Python code: an interruption (Ctrl-C) of the caller leaves nothing locked.
    """

    def __init__(self, interval_ms: int, task: Callable[[], bool | None]) -> None:
        self.due_s = time.monotonic() + interval_ms / 1000
        self.stopped = False
        # Held until the repetition is stopped.
        self._stop_signal = threading.Lock()
        self._stop_signal.acquire()
        self._interval_s = interval_ms / 1000
        self._task = task
        _starter.add(self)

    def stop(self) -> None:
        self.stopped = True
        with contextlib.suppress(RuntimeError):
            self._stop_signal.release()

    def start(self) -> None:
        """Run the task, and then after each interval, in a thread."""
        threading.Thread(target=self._run, name="pyhudi-repeat", daemon=True).start()

    def _run(self) -> None:
        while not self.stopped and self._task() is not False:
            if self._stop_signal.acquire(timeout=self._interval_s):
                return


_START_AGAIN_S = 0.1


class _Starter:
    """One daemon thread of the process that starts each repetition when it is first due."""

    def __init__(self) -> None:
        # Unlike a condition, `put` cannot be interrupted halfway.
        self._added: queue.SimpleQueue[_ThreadRepetition] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def add(self, repetition: _ThreadRepetition) -> None:
        # Two threads at once may both start one; they share the queue.
        if self._thread is None:
            thread = threading.Thread(target=self._run, args=([],), name="pyhudi-timer", daemon=True)
            thread.start()
            self._thread = thread
        self._added.put(repetition)

    def _run(self, waiting: list[_ThreadRepetition]) -> None:
        while True:
            next_s = min((repetition.due_s for repetition in waiting), default=None)
            with contextlib.suppress(queue.Empty):
                waiting.append(self._added.get(timeout=None if next_s is None else max(0, next_s - time.monotonic())))
            waiting = [repetition for repetition in waiting if not repetition.stopped]
            now_s = time.monotonic()
            for repetition in [repetition for repetition in waiting if repetition.due_s <= now_s]:
                try:
                    repetition.start()
                    waiting.remove(repetition)
                except RuntimeError:
                    # The process can start no more threads at the moment.
                    repetition.due_s = time.monotonic() + _START_AGAIN_S


_starter = _Starter()


def _after_fork() -> None:
    """Forget the repetitions of the parent: its threads do not exist in the child."""
    global _starter
    _starter = _Starter()


os.register_at_fork(after_in_child=_after_fork)


class _VirtualRepetition:
    def __init__(self, next_ms: int, interval_ms: int, task: Callable[[], bool | None]) -> None:
        self.next_ms = next_ms
        self.interval_ms = interval_ms
        self.task = task
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True


def _check_interval(interval_ms: int) -> None:
    if interval_ms < 1:
        raise InvalidRequest(f"interval must be at least 1 ms, found {interval_ms}")
