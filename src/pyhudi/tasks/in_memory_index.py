"""Key columns of base files, held in the memory of this process: the index INMEMORY.

A base file never changes, so what is held of it stays true; files that a table no longer has are let go when it is asked next.
Another process begins with nothing and reads the columns once: the answers are those of the index SIMPLE.

The memory is that of all keys of the tables that this process writes with this index, and has no limit: it is meant for tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Lock

import pyarrow as pa

from pyhudi.format.paths import folder_of
from pyhudi.storage.base import Storage
from pyhudi.table.file_slices import BaseFile

_HELD: dict[str, dict[tuple[str, int], pa.Array]] = {}
_LOCK = Lock()


def held_keys(storage: Storage, file: BaseFile, read: Callable[[], pa.Array]) -> pa.Array:
    """The keys of a base file of a table, read when they are not held yet.  storage: the table's."""
    name = file.path, file.size_bytes
    with _LOCK:
        found = _HELD.setdefault(storage.uri, {}).get(name)
    if found is None:
        found = read()
        with _LOCK:
            _HELD.setdefault(storage.uri, {})[name] = found
    return found


def forget_keys(storage: Storage, partitions: Iterable[str], files: Iterable[BaseFile]) -> None:
    """Let go of what is held of a table's partitions, but for these files."""
    kept = {(file.path, file.size_bytes) for file in files}
    folders = frozenset(partitions)
    with _LOCK:
        held = _HELD.get(storage.uri, {})
        for name in [n for n in held if n not in kept and folder_of(n[0]) in folders]:
            del held[name]
