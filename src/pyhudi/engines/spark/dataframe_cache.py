"""Disable compression of Spark's DataFrame cache during a write.

Spark chooses a compression for each cached column, which takes longer than all other processing of incoming rows before
they are written. The rows are read only two or three times.

Spark reads the setting when the first job over the cached rows begins, so it stays changed until the write releases
them. Concurrent writes of several threads share a session: the first one changes the setting, the last one restores it.
"""

from __future__ import annotations

import threading
from weakref import WeakKeyDictionary

from pyhudi.engines.spark.type_conversion import SparkSession

_SETTING = "spark.sql.inMemoryColumnarStorage.compressed"

_lock = threading.Lock()
_users: WeakKeyDictionary[SparkSession, tuple[int, str]] = WeakKeyDictionary()
"""For each session with a changed setting: the number of writes, and the original value."""


class CacheSettingGuard:
    """One write's reference to the changed setting of a session."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._held = False

    def enter(self) -> None:
        """Disable the compression of cached columns in the session."""
        with _lock:
            if self._held:
                return
            count, before = _users.get(self._session, (0, ""))
            if not count:
                before = str(self._session.conf.get(_SETTING))
                self._session.conf.set(_SETTING, "false")
            _users[self._session] = count + 1, before
            self._held = True

    def release(self) -> None:
        """Release the reference; the last one restores the setting."""
        with _lock:
            if not self._held:
                return
            self._held = False
            count, before = _users.pop(self._session)
            if count > 1:
                _users[self._session] = count - 1, before
            else:
                self._session.conf.set(_SETTING, before)
