"""The clock, sleep, random numbers and ids of a run, as one object, so that a whole run is a function of a seed.

`SystemEnvironment` is the real world.  `ReplayEnvironment` is virtual: time stands still until somebody sleeps or
advances it, randomness comes from a seed, and repeated tasks run inside the sleep that reaches their moment, on the thread
that sleeps.  So leases expire, heartbeats stop and timeouts pass in a test that takes no time.

What this does not do: no time zones (see format/instants.py) and no calendar.
"""

from __future__ import annotations

import random
import secrets
import threading
import time
import uuid
from collections.abc import Callable
from typing import Protocol

from pyhudi.errors import InvalidRequest


class Repetition(Protocol):
    """A task that is run again and again until it is stopped."""

    def stop(self) -> None:
        """No run starts after this returns.  One that is under way on another thread may still be ending."""
        ...


class Environment(Protocol):
    """What a run takes from the world around it."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch.  May stand still between two calls, and a real clock may step back."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since some moment, for what lasts: it never steps, whatever people do to the clock, and counts the time
        that the process or the machine sleeps.
        """
        ...

    def sleep_ms(self, duration_ms: int) -> None:
        """Return when `duration_ms` (0 or more) have passed."""
        ...

    def uuid4(self) -> str:
        """A random UUID of version 4, in 36 lower-case characters."""
        ...

    def token_bytes(self, length: int) -> bytes:
        """`length` random bytes."""
        ...

    def every_ms(self, interval_ms: int, task: Callable[[], None]) -> Repetition:
        """Run `task` each `interval_ms` (1 or more), first after one interval, until stopped.

        The task must not raise: nobody would hear it.  It never keeps the process from ending.
        """
        ...


# Linux has a clock that goes on while the machine is suspended; elsewhere the monotonic one is the best there is.
_STEADY_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemEnvironment:
    """The real clock and the system's randomness.  Has no state, so it may be pickled to workers."""

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

    def every_ms(self, interval_ms: int, task: Callable[[], None]) -> Repetition:
        _check_interval(interval_ms)
        return _ThreadRepetition(interval_ms, task)


class ReplayEnvironment:
    """A virtual clock that starts at `start_ms`, and randomness from `seed`.  Thread-safe; one thread makes it replayable."""

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
        """Somebody sets the clock: `now_ms` jumps ahead or back, and no time passes."""
        with self._mutex:
            self._step_ms += difference_ms

    def sleep_ms(self, duration_ms: int) -> None:
        self.advance_ms(duration_ms)
        # Threads that share this clock and wait for one another need a moment of real time to do it in.
        time.sleep(0)

    def uuid4(self) -> str:
        return str(uuid.UUID(bytes=self.token_bytes(16), version=4))

    def token_bytes(self, length: int) -> bytes:
        with self._mutex:
            return self._random.randbytes(length)

    def every_ms(self, interval_ms: int, task: Callable[[], None]) -> Repetition:
        _check_interval(interval_ms)
        with self._mutex:
            repetition = _VirtualRepetition(self._now_ms + interval_ms, interval_ms, task)
            self._repetitions.append(repetition)
            return repetition

    def advance_ms(self, duration_ms: int) -> None:
        """Move the clock forward; repeated tasks that fall due run in order of their moment, each at its moment."""
        if duration_ms < 0:
            raise InvalidRequest(f"time moves forward only, found {duration_ms} ms")
        with self._mutex:
            end_ms = self._now_ms + duration_ms
        while (due := self._take_due(end_ms)) is not None:
            # Outside the mutex: a task may take a lock that another thread holds while it asks for the time.
            due.task()
        with self._mutex:
            self._now_ms = max(self._now_ms, end_ms)

    def stall_ms(self, duration_ms: int) -> None:
        """Move the clock forward while no repeated task runs, as for a process that was suspended and wakes up late."""
        if duration_ms < 0:
            raise InvalidRequest(f"time moves forward only, found {duration_ms} ms")
        with self._mutex:
            self._now_ms += duration_ms
            for repetition in self._repetitions:
                repetition.next_ms = max(repetition.next_ms, self._now_ms + 1)

    def _take_due(self, end_ms: int) -> _VirtualRepetition | None:
        with self._mutex:
            self._repetitions = [repetition for repetition in self._repetitions if not repetition.stopped]
            due = min(self._repetitions, key=lambda repetition: repetition.next_ms, default=None)
            if due is None or due.next_ms > end_ms:
                return None
            self._now_ms = max(self._now_ms, due.next_ms)
            due.next_ms += due.interval_ms
            return due


class _ThreadRepetition:
    """A daemon thread that waits on an event, so that stopping it does not wait for the interval to pass."""

    def __init__(self, interval_ms: int, task: Callable[[], None]) -> None:
        self._stopped = threading.Event()
        self._interval_s = interval_ms / 1000
        self._task = task
        threading.Thread(target=self._run, name="pyhudi-repeat", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(self._interval_s):
            self._task()


class _VirtualRepetition:
    def __init__(self, next_ms: int, interval_ms: int, task: Callable[[], None]) -> None:
        self.next_ms = next_ms
        self.interval_ms = interval_ms
        self.task = task
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True


def _check_interval(interval_ms: int) -> None:
    if interval_ms < 1:
        raise InvalidRequest(f"an interval is at least 1 ms, found {interval_ms}")
