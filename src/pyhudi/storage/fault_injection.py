"""Fault-injecting storage, so that tests can crash a writer at each of its storage calls.

`FaultyStorage(inner, plan)` numbers its calls and those of all its children from 1, and injects the planned fault at one of them:

    FaultOutcome.CRASH          raises SimulatedCrash, and so does every later call, because the process is dead:
                                `except` and `finally` blocks of the code under test have no effect, exactly as after
                                `kill -9`
    FaultOutcome.LOST_RESPONSE  raises StorageUnavailable at that call alone
    FaultOutcome.LATE_RESPONSE  the call succeeds, but takes so long that `meanwhile` happens before it or after its effect
    FaultOutcome.LATE_REQUEST   raises StorageUnavailable, and takes effect later: before the third further call of the
                                process, or at `deliver`, and after `meanwhile`
    FaultOutcome.REPEATED       the call succeeds, and takes effect once more before the second further call

    FaultPoint.BEFORE           the call has no effect
    FaultPoint.DURING           `open_output` has written a part and shows nothing; `delete` and `delete_folder` have
                                removed the first half; other calls are atomic, and this equals BEFORE
    FaultPoint.AFTER            the call has had its effect

Without a plan the storage only counts, so that a test can find the number of calls to iterate over. A `CallListener`
runs before each call. It can advance time, run other writers (as if this process were suspended), and inject faults
dynamically. The spec of a faulty storage shares its count when it is opened in the same process, so calls of tasks are
counted too.

Every guarantee of `Storage` holds: stores that lose confirmed data are not simulated.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import TypeVar

import pyarrow as pa

from pyhudi.errors import HudiError, InvalidRequest, StorageUnavailable
from pyhudi.storage.base import FileInfo, Listing, Storage, StorageSpec

# Storage option that passes the shared count through a spec.
FAULT_OPTION = "pyhudi.faults"

_T = TypeVar("_T")


class SimulatedCrash(BaseException):
    """The process "died" here.  A BaseException, so that handlers of the code under test do not catch it."""


class FaultPoint(StrEnum):
    """When the fault occurs within a call."""

    BEFORE = "before"
    DURING = "during"
    AFTER = "after"


class FaultOutcome(StrEnum):
    """The failure that the caller observes."""

    CRASH = "crash"
    LOST_RESPONSE = "lost answer"
    LATE_RESPONSE = "late answer"
    LATE_REQUEST = "late request"
    REPEATED = "repeated request"


class CountedCalls(StrEnum):
    """Which calls are numbered for the plan."""

    WRITES = "writes"
    READS = "reads"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Fault:
    """One planned fault.

    Attributes:
        call: Number of the call, from 1, among the calls selected by `counted`.
        point: When the fault occurs within the call.
        outcome: The failure that the caller observes.
        counted: Which calls are numbered.
    """

    call: int
    point: FaultPoint = FaultPoint.BEFORE
    outcome: FaultOutcome = FaultOutcome.CRASH
    counted: CountedCalls = CountedCalls.WRITES

    def __post_init__(self) -> None:
        if self.call < 1:
            raise InvalidRequest(f"calls are numbered from 1, found {self.call}")


@dataclass(frozen=True, slots=True)
class StorageCall:
    """A storage call.

    Attributes:
        operation: Name of the method.
        path: Absolute URI, or the first of several.
        writes: Whether the call may change the store.
    """

    operation: str
    path: str
    writes: bool


CallListener = Callable[[int, StorageCall], Fault | None]
"""Called with the number of a call (reads and writes counted together) and the call, on its thread, just before it takes effect.

A returned fault is injected at this call, regardless of its own number; a raised exception reaches the caller.
"""


class FaultyStorage:
    """`inner` with fault injection; without a plan it only counts.  The guarantees of `Storage` hold until the fault."""

    def __init__(
        self,
        inner: Storage,
        plan: Fault | None = None,
        *,
        listener: CallListener | None = None,
        meanwhile: Callable[[], object] = lambda: None,
        _fault_state: _FaultState | None = None,
    ) -> None:
        self._inner = inner
        self._fault_state = _fault_state if _fault_state is not None else _FaultState(plan, listener, meanwhile)

    def __repr__(self) -> str:
        return f"FaultyStorage({self._inner!r})"

    @property
    def calls(self) -> tuple[StorageCall, ...]:
        """All calls so far on this storage, its children and those opened from its specs, in order."""
        return self._fault_state.calls()

    @property
    def write_count(self) -> int:
        """Number of calls that may change the store."""
        return sum(call.writes for call in self.calls)

    @property
    def triggered(self) -> bool:
        """Whether the planned fault has occurred."""
        return self._fault_state.triggered

    def deliver(self) -> None:
        """Let a request that is still under way take effect."""
        self._fault_state.deliver()

    @property
    def uri(self) -> str:
        return self._inner.uri

    @property
    def has_folders(self) -> bool:
        return self._inner.has_folders

    def spec(self) -> StorageSpec:
        spec = self._inner.spec()
        return StorageSpec(spec.uri, (*spec.options, (FAULT_OPTION, self._fault_state.token)))

    def child(self, path: str) -> FaultyStorage:
        return FaultyStorage(self._inner.child(path), _fault_state=self._fault_state)

    def absolute(self, path: str) -> str:
        return self._inner.absolute(path)

    def read(self, path: str) -> bytes | None:
        return self._read("read", path, lambda: self._inner.read(path))

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        return self._read("read_range", path, lambda: self._inner.read_range(path, offset, length))

    def stat(self, path: str) -> FileInfo | None:
        return self._read("stat", path, lambda: self._inner.stat(path))

    def list(self, folder: str) -> Listing:
        return self._read("list", folder, lambda: self._inner.list(folder))

    def names(self, folder: str) -> tuple[str, ...]:
        return self._read("list", folder, lambda: self._inner.names(folder))

    def walk(self, folder: str) -> Iterator[FileInfo]:
        return iter(self._read("walk", folder, lambda: tuple(self._inner.walk(folder))))

    def is_duplicate_symlink(self, folder: str, marker: str) -> bool:
        return self._inner.is_duplicate_symlink(folder, marker)

    def put(self, path: str, data: bytes) -> None:
        self._write("put", path, lambda: self._inner.put(path, data))

    def put_if_absent(self, path: str, data: bytes) -> bool:
        return self._write("put_if_absent", path, lambda: self._inner.put_if_absent(path, data))

    def read_versioned(self, path: str) -> tuple[bytes, str] | None:
        return self._read("read_versioned", path, lambda: self._inner.read_versioned(path))

    def put_if_matches(self, path: str, data: bytes, tag: str) -> str | None:
        return self._write("put_if_matches", path, lambda: self._inner.put_if_matches(path, data, tag))

    def delete(self, paths: Iterable[str]) -> None:
        path_list = tuple(paths)
        self._write(
            "delete",
            path_list[0] if path_list else "",
            lambda: self._inner.delete(path_list),
            lambda: self._inner.delete(path_list[: len(path_list) // 2]),
        )

    def delete_folder(self, path: str) -> None:
        def delete_half() -> None:
            file_paths = sorted(info.path for info in self._inner.walk(path))
            self._inner.delete(file_paths[: len(file_paths) // 2])

        self._write("delete_folder", path, lambda: self._inner.delete_folder(path), delete_half)

    def make_folder(self, path: str) -> None:
        self._write("make_folder", path, lambda: self._inner.make_folder(path))

    def open_input(self, path: str) -> pa.NativeFile:
        return self._read("open_input", path, lambda: self._inner.open_input(path))

    def open_output(self, path: str) -> _FaultyOutput:
        return _FaultyOutput(self._inner, path, self._fault_state)

    def set_modified(self, path: str, modified_ms: int) -> bool:
        return self._write("set_modified", path, lambda: self._inner.set_modified(path, modified_ms))

    def sweep_unfinished(self, folder: str, before_ms: int) -> int:
        return self._write("sweep_unfinished", folder, lambda: self._inner.sweep_unfinished(folder, before_ms))

    def _read(self, operation: str, path: str, effect: Callable[[], _T]) -> _T:
        return self._run(StorageCall(operation, self._inner.absolute(path), False), effect, None)

    def _write(
        self, operation: str, path: str, effect: Callable[[], _T], partial_bytes: Callable[[], object] | None = None
    ) -> _T:
        return self._run(StorageCall(operation, self._inner.absolute(path), True), effect, partial_bytes)

    def _run(self, call: StorageCall, effect: Callable[[], _T], partial_bytes: Callable[[], object] | None) -> _T:
        return self._fault_state.run(call, effect, partial_bytes)


class _FaultyOutput:
    """The context manager of `open_output`.  The call is counted at the end of the block, where it takes effect."""

    def __init__(self, inner: Storage, path: str, state: _FaultState) -> None:
        self._call = StorageCall("open_output", inner.absolute(path), True)
        self._output = inner.open_output(path)
        self._fault_state = state

    def __enter__(self) -> pa.NativeFile:
        self._fault_state.check_not_crashed()
        return self._output.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            # A dead process does not clean up: its unfinished file remains.
            if not issubclass(kind, SimulatedCrash):
                self._fault_state.check_not_crashed()
                self._output.__exit__(kind, error, trace)
            return
        ended = False

        def complete() -> None:
            nonlocal ended
            # A repeated request has no effect: a stream is complete once.
            if not ended:
                ended = True
                self._output.__exit__(None, None, None)

        try:
            self._fault_state.run(self._call, complete, None)
        except StorageUnavailable as failure:
            if not ended and not self._fault_state.has_under_way:
                ended = True
                self._output.__exit__(type(failure), failure, None)
            raise


class _FaultState:
    """Call count and fault state, shared by all storages of one test."""

    def __init__(self, plan: Fault | None, listener: CallListener | None, meanwhile: Callable[[], object]) -> None:
        self.token = uuid.uuid4().hex
        self.meanwhile = meanwhile
        # Requests under way, each with the number of the call before which it takes effect.
        self._under_way: list[tuple[int, Callable[[], object]]] = []
        self.triggered = False
        self._plan = plan
        self._watch = listener
        self._calls: list[StorageCall] = []
        self._counts = dict.fromkeys(CountedCalls, 0)
        self._dead = False
        self._mutex = threading.Lock()
        _states[self.token] = self

    def calls(self) -> tuple[StorageCall, ...]:
        with self._mutex:
            return tuple(self._calls)

    def check_not_crashed(self) -> None:
        with self._mutex:
            if self._dead:
                raise SimulatedCrash("the process died earlier")

    @property
    def has_under_way(self) -> bool:
        """Whether a request is under way."""
        return bool(self._under_way)

    def run(self, call: StorageCall, effect: Callable[[], _T], partial_effect: Callable[[], object] | None) -> _T:
        """Count a call and let it take effect, with the planned fault."""
        fault = self.enter(call)
        if fault is None:
            return effect()
        if fault.outcome is FaultOutcome.LATE_RESPONSE:
            if fault.point is not FaultPoint.AFTER:
                self.meanwhile()
                return effect()
            result = effect()
            self.meanwhile()
            return result
        if fault.outcome is FaultOutcome.REPEATED:
            result = effect()
            self.send_later(effect, calls=2)
            return result
        if fault.outcome is FaultOutcome.LATE_REQUEST:

            def arrive() -> None:
                self.meanwhile()
                effect()

            self.send_later(arrive, calls=3)
        elif fault.point is FaultPoint.DURING and partial_effect is not None:
            partial_effect()
        elif fault.point is FaultPoint.AFTER:
            effect()
        raise self.trigger(fault, call)

    def send_later(self, effect: Callable[[], object], calls: int) -> None:
        """Let a request take effect before the call that follows so many calls from now."""
        self._under_way.append((len(self._calls) + calls, effect))

    def deliver(self, number: int | None = None) -> None:
        """Let the requests take effect that are due at a call, or all of them.  Their errors reach no caller."""
        due = [(at, effect) for at, effect in self._under_way if number is None or at <= number]
        self._under_way = [request for request in self._under_way if request not in due]
        for _, effect in due:
            with contextlib.suppress(HudiError):
                effect()

    def enter(self, call: StorageCall) -> Fault | None:
        """Count a call and return the fault to inject, if any."""
        planned = self._count(call)
        self.deliver(len(self._calls))
        if self._watch is None:
            return planned
        # Outside the mutex, because other threads (such as a lease renewal) may use this storage concurrently.
        return self._watch(len(self._calls), call) or planned

    def _count(self, call: StorageCall) -> Fault | None:
        with self._mutex:
            if self._dead:
                raise SimulatedCrash("the process died earlier")
            self._calls.append(call)
            self._counts[CountedCalls.ALL] += 1
            self._counts[CountedCalls.WRITES if call.writes else CountedCalls.READS] += 1
            plan = self._plan
            if plan is None or self.triggered or self._counts[plan.counted] != plan.call:
                return None
            if plan.counted is not CountedCalls.ALL and (plan.counted is CountedCalls.WRITES) is not call.writes:
                return None
            self.triggered = True
            return plan

    def trigger(self, fault: Fault, call: StorageCall) -> BaseException:
        location = f"{fault.point} call {fault.call} ({call.operation} {call.path})"
        if fault.outcome in (FaultOutcome.LOST_RESPONSE, FaultOutcome.LATE_REQUEST):
            return StorageUnavailable(f"the answer was lost {location}")
        with self._mutex:
            self._dead = True
        return SimulatedCrash(f"the process died {location}")


_states: weakref.WeakValueDictionary[str, _FaultState] = weakref.WeakValueDictionary()


def rejoin(inner: Storage, token: str) -> FaultyStorage:
    """Wrap `inner` with the shared count of the faulty storage that `token` identifies.

    Raises:
        InvalidRequest: That storage no longer exists in this process.
    """
    fault_state = _states.get(token)
    if fault_state is None:
        raise InvalidRequest(
            f"{inner.uri}: the spec of a faulty storage opens only in its own process and while that storage exists"
        )
    return FaultyStorage(inner, _fault_state=fault_state)
