"""What every operation on one table needs at hand: where it lies, its settings, the clock and the lock.

A context is a plain value; loading the state of the table at a moment is `table.snapshot.load_snapshot`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyhudi.storage.base import Storage
from pyhudi.storage.clock import Environment
from pyhudi.storage.locks import LockProvider
from pyhudi.table.config import TableConfig, load_table_config
from pyhudi.timeline.history import HistoryStore
from pyhudi.timeline.store import TimelineStore


@dataclass(frozen=True, slots=True)
class TableContext:
    """One open table.  lock: guards instant times and commits against all other writers of the table."""

    storage: Storage
    env: Environment
    config: TableConfig
    lock: LockProvider

    @property
    def timeline(self) -> TimelineStore:
        """The table's timeline folder."""
        config = self.config
        layout = config.version.layout
        history = HistoryStore(self.storage, config.history_path if layout.has_lsm_history else "")
        return TimelineStore(self.storage, config.timeline_path, layout, config.zone, history)

    def reloaded(self) -> TableContext:
        """The same table with `hoodie.properties` read again."""
        return replace(self, config=load_table_config(self.storage))
