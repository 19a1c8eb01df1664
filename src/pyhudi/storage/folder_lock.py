"""Advisory lock (flock) on a folder of the local file system, with a time limit: it reduces contention, and excludes no call."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

from pyhudi.errors import Unsupported
from pyhudi.storage.environment import SystemEnvironment

if sys.platform != "win32":
    import fcntl

_CLOCK = SystemEnvironment()

# How long a call waits for the advisory lock of a folder, and how long after the last call of this process timed out.
_FLOCK_WAIT_MS = 500
_FLOCK_WAIT_STUCK_MS = 20
_FLOCK_PAUSES_MS = (1, 20)
_stuck_folders: set[str] = set()


@contextlib.contextmanager
def locked_folder(folder: str) -> Iterator[None]:
    """Hold the folder's advisory lock, unless its holder keeps it longer than the time limit."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _wait_for_flock(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def _wait_for_flock(descriptor: int, folder: str) -> None:
    end_ms = _CLOCK.monotonic_ms() + (_FLOCK_WAIT_STUCK_MS if folder in _stuck_folders else _FLOCK_WAIT_MS)
    pause_ms, longest_ms = _FLOCK_PAUSES_MS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if _CLOCK.monotonic_ms() >= end_ms:
                _stuck_folders.add(folder)
                return
        except OSError as error:
            raise Unsupported(
                f"{folder}: the file system does not support flock ({error}): choose another lock provider"
            ) from error
        else:
            _stuck_folders.discard(folder)
            return
        _CLOCK.sleep_ms(pause_ms)
        pause_ms = min(2 * pause_ms, longest_ms)
