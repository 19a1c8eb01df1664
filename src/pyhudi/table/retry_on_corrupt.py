"""Documents that another writer may be writing anew in their place at the moment they are read.

Hudi opens `hoodie.properties` and the definitions of indexes for writing where they stand, so whoever reads them meanwhile may
find nothing in them, or their first half.  What stays damaged for as long as it takes to write a few kilobytes is damaged.

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
    """What `read` gives, called again after a pause while it raises CorruptData; that of the last call where none succeeds."""
    clock = env or SystemEnvironment()
    for pause_ms in PAUSES_MS:
        try:
            return read()
        except CorruptData:
            clock.sleep_ms(pause_ms)
    return read()
