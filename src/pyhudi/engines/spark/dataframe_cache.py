"""How Spark keeps rows for the length of one write: as plain columns.

Spark looks for a compression of each column that it keeps, which takes longer than all else that is done to a batch of incoming
rows before they are written.  They are needed twice or three times and then never again.

Spark reads the setting when the first job over the kept rows begins, so it stands from there until the write releases them.
Writes of several threads share a session: the first one changes the setting, the last one puts it back.
"""

from __future__ import annotations

import threading
from weakref import WeakKeyDictionary

from pyhudi.engines.spark.type_conversion import SparkSession

_SETTING = "spark.sql.inMemoryColumnarStorage.compressed"

_lock = threading.Lock()
_users: WeakKeyDictionary[SparkSession, tuple[int, str]] = WeakKeyDictionary()
"""For each session whose setting is changed: by how many writes, and what it was before."""


class CacheSettingGuard:
    """One write's hold on the setting of a session."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._held = False

    def enter(self) -> None:
        """From here on the session keeps columns as they are."""
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
        """This write needs it no more."""
        with _lock:
            if not self._held:
                return
            self._held = False
            count, before = _users.pop(self._session)
            if count > 1:
                _users[self._session] = count - 1, before
            else:
                self._session.conf.set(_SETTING, before)
