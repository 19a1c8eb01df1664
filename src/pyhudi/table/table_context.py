"""What every operation on one table needs at hand: where it lies, its settings, the clock and the lock.

A context is a plain value; loading the state of the table at a moment is `table.snapshot.load_snapshot`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from pyhudi.format.index_definitions import IndexDefinition
from pyhudi.storage.base import Storage
from pyhudi.storage.environment import Environment
from pyhudi.storage.fenced import FencedStorage
from pyhudi.storage.locks import LockProvider, RetainedLock
from pyhudi.table.table_config import TableConfig, load_table_config
from pyhudi.table.timeline.archived_timeline import HistoryStore
from pyhudi.table.timeline.timeline_store import TimelineStore


@dataclass(frozen=True, slots=True)
class TableContext:
    """One open table.  lock: guards instant times and commits against all other writers of the table.

    index_definitions: the index definitions by the place that the properties name, once they were read: as old as `config`, and
    read again by every context that is made of this one (see `metadata_table.reader.stored_index_definitions`).
    """

    storage: Storage
    env: Environment
    config: TableConfig
    lock: LockProvider
    index_definitions: dict[str, dict[str, IndexDefinition]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def timeline(self) -> TimelineStore:
        """The table's timeline folder."""
        config = self.config
        layout = config.version.layout
        history = HistoryStore(self.storage, config.history_path if layout.has_lsm_history else "")
        return TimelineStore(self.storage, config.timeline_path, layout, config.zone, history)

    @contextmanager
    def locked(self, wait_ms: int | None = None) -> Iterator[TableContext]:
        """Hold the table's lock during a `with` block: the only way to it.

        Gives the table as it is to be written there: each change of its storage proves first that the lock is still held, and
        raises StorageUnavailable when it was lost.  Of no use after the block.  wait_ms: as in `LockProvider.acquire`.
        """
        with self.lock.held(wait_ms):
            yield replace(self, storage=FencedStorage(self.storage, self.lock))

    @contextmanager
    def exclusive(self, wait_ms: int | None, longest_ms: int) -> Iterator[TableContext]:
        """Hold the table's lock during a `with` block, for a writer that is to be overtaken by nobody from what it reads on.

        Gives the table with a lock that `locked` takes at once, as often as needed; in a turn that is on already, itself.
        wait_ms: as in `LockProvider.acquire`; longest_ms: how long others should expect the turn to be.
        """
        if self.holds_lock:
            yield self
            return
        lock = RetainedLock(self.lock, self.storage)
        lock.hold(wait_ms, self.env.uuid4(), longest_ms)
        try:
            yield replace(self, lock=lock)
        finally:
            lock.end()

    @property
    def holds_lock(self) -> bool:
        """Whether nobody else can publish anything before this writer's turn is over."""
        return isinstance(self.lock, RetainedLock) and self.lock.is_held

    def release_lock(self) -> None:
        """Let the others go on, where a turn is on; this table takes the lock like everybody from here on."""
        if isinstance(self.lock, RetainedLock):
            self.lock.end()

    def reloaded(self) -> TableContext:
        """The same table with `hoodie.properties` read again."""
        return replace(self, config=load_table_config(self.storage, self.env))
