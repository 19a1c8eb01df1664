"""Table context: location, settings, clock and lock, shared by every operation on one table.

A context is a plain value; `table.snapshot.load_snapshot` loads the state of the table.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from pyhudi.format.index_definitions import IndexDefinition
from pyhudi.storage.base import Storage
from pyhudi.storage.environment import Environment
from pyhudi.storage.fenced_storage import FencedStorage
from pyhudi.storage.locks import LockHold, LockLost, LockProvider, RetainedLock
from pyhudi.table.table_config import TableConfig, load_table_config
from pyhudi.table.timeline.archived_timeline import HistoryStore
from pyhudi.table.timeline.timeline_store import TimelineStore


class OperationCache:
    """State that an operation leaves for later operations on the same open table, so that they read less.

    Each user proves that the state is current before it uses it. A forked child and a worker start with an empty one,
    because locks inside the values may be held by threads that do not exist there.
    """

    __slots__ = ("_process", "_values")

    def __init__(self) -> None:
        self._process = os.getpid()
        self._values: dict[str, Any] = {}

    def __reduce__(self) -> tuple[type[OperationCache], tuple[()]]:
        return OperationCache, ()

    def get(self, name: str) -> Any:
        """Return the value with a name, or None."""
        return self._values.get(name) if self._process == os.getpid() else None

    def put(self, name: str, value: Any) -> None:
        """Replace the value with a name."""
        if self._process != os.getpid():
            self._process, self._values = os.getpid(), {}
        self._values[name] = value


class OperationObserver(Protocol):
    """Observes the operations on one table, in the threads that run them."""

    def ended(self, event: Any, context: TableContext) -> object:
        """An operation ended; the event is an `OperationEvent`."""
        ...

    def locked(self, waited_ms: int, *, is_held: bool) -> object:
        """The table lock was requested, and acquired or not."""
        ...


@dataclass(frozen=True, slots=True)
class TableContext:
    """One open table.

    Attributes:
        operation_cache: State for the next operation, shared by every context derived from this one.
        lock: Guards instant times and commits against all other writers of the table.
        index_definitions: Index definitions by the location that the properties name, once read: as old as `config`,
            and read again by every context derived from this one (see
            `metadata_table.reader.stored_index_definitions`).
        observer: Observes the operations on the table, None for none.
    """

    storage: Storage
    env: Environment
    config: TableConfig
    lock: LockProvider
    index_definitions: dict[str, dict[str, IndexDefinition]] = field(default_factory=dict, init=False, repr=False, compare=False)
    operation_cache: OperationCache = field(default_factory=OperationCache, repr=False, compare=False)
    observer: OperationObserver | None = field(default=None, repr=False, compare=False)

    @property
    def timeline(self) -> TimelineStore:
        """The table's timeline folder."""
        config = self.config
        layout = config.version.layout
        history = HistoryStore(self.storage, config.history_path if layout.has_lsm_history else "")
        return TimelineStore(self.storage, config.timeline_path, layout, config.zone, history)

    @contextmanager
    def locked(self, wait_ms: int | None = None) -> Iterator[TableContext]:
        """Hold the table's lock during a `with` block; `exclusive` holds it for several such blocks.

        Yields the table for writing: each change of its storage verifies first that the lock is still held (fencing),
        and raises StorageUnavailable when it was lost. Not usable after the block. wait_ms: as in
        `LockProvider.acquire`.

        Raises:
            LockLost: After the block, if it changed the table and the lock was not provably held until its end. The
                changes may have taken effect after those of other writers.
        """
        fenced = FencedStorage(self.storage, self.lock)
        with self.lock.held(wait_ms) if self.observer is None else self._observed_lock(wait_ms, self.observer) as hold:
            yield replace(self, storage=fenced)
        if fenced.has_changed and not hold.is_proven:
            raise LockLost(
                f"the lock of {self.storage.uri} was lost before the end of this step, and another writer may have changed "
                "the table since; load the table and look before repeating the step"
            )

    @contextmanager
    def _observed_lock(self, wait_ms: int | None, observer: OperationObserver) -> Iterator[LockHold]:
        begun_ms, is_held = self.env.monotonic_ms(), False
        try:
            with self.lock.held(wait_ms) as hold:
                is_held = True
                observer.locked(self.env.monotonic_ms() - begun_ms, is_held=True)
                yield hold
        finally:
            if not is_held:
                observer.locked(self.env.monotonic_ms() - begun_ms, is_held=False)

    @contextmanager
    def exclusive(self, wait_ms: int | None, longest_ms: int) -> Iterator[TableContext]:
        """Hold the table's lock during a `with` block, for a writer that must not be overtaken between reading and publishing.

        Yields the table with a lock that `locked` acquires at once, as often as needed; within an exclusive write, itself.

        Args:
            wait_ms: As in `LockProvider.acquire`.
            longest_ms: Expected maximum duration, for other writers.
        """
        if self.holds_lock:
            yield self
            return
        lock = RetainedLock(self.lock, self.storage)
        try:
            lock.hold(wait_ms, self.env.uuid4(), longest_ms)
            yield replace(self, lock=lock)
        finally:
            try:
                lock.end()
            except BaseException:
                lock.end()
                raise

    @property
    def holds_lock(self) -> bool:
        """Whether other writers are blocked until this writer's exclusive write ends."""
        return isinstance(self.lock, RetainedLock) and self.lock.is_held

    def release_lock(self) -> None:
        """End an exclusive write early: other writers can proceed, and this table acquires the lock for each later change."""
        if isinstance(self.lock, RetainedLock):
            self.lock.end()

    def reloaded(self) -> TableContext:
        """The same table with `hoodie.properties` read again."""
        return replace(self, config=load_table_config(self.storage, self.env))
