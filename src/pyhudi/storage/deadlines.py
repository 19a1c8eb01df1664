"""Deadlines and repetition of storage calls: one rule for object stores, HDFS and local disks.

A call has one deadline: `CallLimits.call_s`, and more for the bytes that it transfers. Within it, requests that get no
answer, an incomplete one, or that of a busy store are repeated after growing pauses. Each request has a shorter limit of
its own, so that a hanging connection leaves time for another one. At the deadline the call raises StorageUnavailable.

A change made under a lock (`within_lease`) ends earlier: no request is sent or awaited beyond the time that is left of
the lease. The store may still execute a request that its client stopped waiting for (`operations.commit.late_commit`).
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

from pyhudi.errors import InvalidRequest, StorageFull, StorageUnavailable

T = TypeVar("T")

_MIB = 1024 * 1024
_FIRST_PAUSE_S = 0.05
_LAST_PAUSE_S = 2.0

# The part of a call's time that one of its requests may take.
_REQUEST_SHARE = 0.25

# Milliseconds that are left of the leases under which the current change is made; empty without a lock.
_leases: ContextVar[tuple[Callable[[], int], ...]] = ContextVar("pyhudi_leases", default=())


class NotRepeatable(Exception):
    """Ends the repetition of a call with the error that is its cause."""


@contextmanager
def within_lease(left_ms: Callable[[], int]) -> Iterator[None]:
    """Limit the storage calls of the block to the time that is left of a lease, in milliseconds."""
    token = _leases.set((*_leases.get(), left_ms))
    try:
        yield
    finally:
        _leases.reset(token)


def lease_left_s() -> float:
    """Seconds that are left of the leases of the current change; infinite without one."""
    return min((left_ms() / 1000 for left_ms in _leases.get()), default=float("inf"))


def check_lease_left(where: str) -> None:
    """Raise StorageUnavailable if no time is left of the lease under which the current change is made.

    Called by storages whose calls cannot be interrupted, just before their effect.
    """
    if lease_left_s() <= 0:
        raise StorageUnavailable(f"cannot write {where}: the table's lock expired before it took effect; nothing was written")


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Time limits of the calls of one storage.

    Attributes:
        call_s: Seconds for a call, repetitions included.
        mib_s: Further seconds for each MiB that the call transfers.
        request_s: Seconds for one request without those of its bytes; None for a quarter of `call_s`.
        repetitions: Maximum number of repetitions; None for no other limit than the time.
    """

    call_s: float = 60.0
    mib_s: float = 5.0
    request_s: float | None = None
    repetitions: int | None = None

    def of_call(self, size_bytes: int = 0) -> float:
        """Seconds for a call that transfers so many bytes."""
        return self.call_s + self.mib_s * size_bytes / _MIB

    def of_request(self, size_bytes: int = 0) -> float:
        """Seconds for one request that transfers so many bytes."""
        request_s = self.call_s * _REQUEST_SHARE if self.request_s is None else self.request_s
        return min(request_s + self.mib_s * size_bytes / _MIB, self.of_call(size_bytes))


LIMIT_OPTIONS = ("call_timeout", "call_timeout_per_mib", "timeout")
"""Storage options from which `call_limits` makes the limits of a storage."""


def call_limits(options: Mapping[str, str], repetitions: int | None = None) -> CallLimits:
    """The limits of storage options, of which others are ignored.

    A `timeout` of one request that is longer than the default of a call makes the call as long.

    Raises:
        InvalidRequest: An option is no time, or `timeout` is longer than `call_timeout`.
    """
    default = CallLimits()
    request_s = None if "timeout" not in options else parse_seconds("timeout", options["timeout"])
    call_s = max(default.call_s, request_s or 0)
    if "call_timeout" in options:
        call_s = parse_seconds("call_timeout", options["call_timeout"])
        if request_s is not None and request_s > call_s:
            raise InvalidRequest(
                f"storage option timeout={options['timeout']!r} is longer than call_timeout={options['call_timeout']!r}: "
                "one request cannot take longer than the call with all its requests"
            )
    mib_s = default.mib_s
    if "call_timeout_per_mib" in options:
        mib_s = parse_seconds("call_timeout_per_mib", options["call_timeout_per_mib"])
    return CallLimits(call_s, mib_s, request_s, repetitions)


_UNITS: dict[str, float] = {"": 1, "s": 1, "ms": 0.001, "m": 60}


def parse_seconds(name: str, value: str) -> float:
    """Parse a duration such as 30, 30s, 500ms or 2m.  Raises InvalidRequest for other values, and for zero."""
    duration = re.fullmatch(r"(\d+(?:\.\d+)?)(s|ms|m)?", value)
    if duration is None or not float(duration[1]):
        raise InvalidRequest(f"storage option {name}={value!r}: write a time, such as 30s")
    return float(duration[1]) * _UNITS[duration[2] or ""]


class Deadline:
    """The deadline of one call, and the pauses between its requests. Only a call that `changes` the store ends with the lease."""

    def __init__(self, limits: CallLimits, size_bytes: int = 0, *, changes: bool = False) -> None:
        self._limits = limits
        self._size_bytes = size_bytes
        self._changes = changes
        self._end_s = time.monotonic() + limits.of_call(size_bytes)
        self._repetitions = 0

    def request_s(self) -> float:
        """Seconds for the next request.

        Raises:
            StorageUnavailable: The lease of the current change has expired.
        """
        left_s = self._lease_left_s()
        if left_s <= 0:
            raise StorageUnavailable("the table's lock expired before the request was sent")
        return max(0.001, min(left_s, self._end_s - time.monotonic(), self._limits.of_request(self._size_bytes)))

    def pause(self) -> bool:
        """Sleep before a repetition; return False, without sleeping, if no time or no repetition is left."""
        pause_s = min(_FIRST_PAUSE_S * 2.0 ** min(self._repetitions, 10), _LAST_PAUSE_S) * random.uniform(0.5, 1.0)
        left_s = min(self._end_s - time.monotonic(), self._lease_left_s())
        if pause_s >= left_s or self._repetitions == self._limits.repetitions:
            return False
        self._repetitions += 1
        time.sleep(pause_s)
        return True

    def _lease_left_s(self) -> float:
        return lease_left_s() if self._changes else float("inf")


def repeated(limits: CallLimits, request: Callable[[float], T], size_bytes: int = 0, *, changes: bool = False) -> T:
    """Send a request until it succeeds or the deadline of the call has passed.

    Args:
        limits: The time limits of the storage.
        request: Sends one request, within the given number of seconds. It raises StorageUnavailable for a failure that
            a repetition may mend, and NotRepeatable with a cause for any other.
        size_bytes: Bytes that the call transfers.
        changes: The call changes the store.

    Raises:
        StorageUnavailable: The failure of the last request.
    """
    deadline = Deadline(limits, size_bytes, changes=changes)
    while True:
        try:
            return request(deadline.request_s())
        except NotRepeatable as error:
            assert error.__cause__ is not None, "a failure that ends the repetition has a cause"
            raise error.__cause__ from error.__cause__.__cause__
        except StorageFull:
            raise
        except StorageUnavailable:
            if not deadline.pause():
                raise
