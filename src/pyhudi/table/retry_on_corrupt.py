"""Retry reads of documents that another writer may be overwriting in place.

Hudi overwrites `hoodie.properties` and index definitions in place, so a concurrent reader may see an empty file or its
first half.  A file that stays damaged for longer than it takes to write a few kilobytes is corrupt.

Source: docs/formats/timeline.md, "Other files of a table".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pyhudi.errors import CorruptData
from pyhudi.storage.environment import Environment, SystemEnvironment

T = TypeVar("T")

PAUSES_MS = (10, 40, 150)


def retry_while_corrupt(read: Callable[[], T], env: Environment | None = None) -> T:
    """Return the result of `read`, retried after a pause while it raises CorruptData; the last error is raised."""
    clock = env or SystemEnvironment()
    for pause_ms in PAUSES_MS:
        try:
            return read()
        except CorruptData:
            clock.sleep_ms(pause_ms)
    return read()
