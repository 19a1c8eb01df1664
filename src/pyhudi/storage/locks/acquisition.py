"""One acquisition of a lock, and whether the call that made it still runs.

An exception may reach a thread between any two bytecodes: Ctrl-C, a signal handler that raises, the time limit of a
scheduler. Python has no `with` statement that is safe against it, because `__exit__` itself may be interrupted before its
first line. So locks do not rely on `finally` alone: each acquisition remembers the outermost function of PyHudi on its
thread's stack. When that function has ended, no code of PyHudi can still need the lock: the acquisition is abandoned.
The periodic task of the lock, or the next acquisition in this process, finds that and releases it.
"""

from __future__ import annotations

import inspect
import sys
import threading
from types import FrameType

_SUSPENDABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR

# Frames of storage are those of the lock itself; a command line may continue after an interrupted statement.
_NO_CALL = ("pyhudi.storage.", "pyhudi.cli.")


class Acquisition:
    """One acquisition, from before its first request until its release.

    Without a function of PyHudi above the lock (a caller of the lock itself), or with a generator there (a `with` block of
    the caller, which holds the lock between calls), it is abandoned only if its release was interrupted.
    """

    __slots__ = ("_call", "_has_ended", "_thread")

    def __init__(self) -> None:
        self._has_ended = False
        self._thread = threading.get_ident()
        self._call = _outermost_call()

    def end(self) -> None:
        """Record that the release has begun."""
        self._has_ended = True

    def forget_call(self) -> None:
        """Drop the reference to the call, whose variables it keeps in memory."""
        self._call = None

    @property
    def has_lost_call(self) -> bool:
        """Whether the call that needed the lock has ended, which no release preceded."""
        call = self._call
        return call is not None and not _is_running(call, self._thread)

    @property
    def is_abandoned(self) -> bool:
        """Whether that call has ended, or a release was begun and not completed."""
        return self._has_ended or self.has_lost_call


def _outermost_call() -> FrameType | None:
    frame: FrameType | None = sys._getframe(1)
    outermost: FrameType | None = None
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("pyhudi.") and not module.startswith(_NO_CALL):
            outermost = frame
        frame = frame.f_back
    if outermost is None or outermost.f_code.co_flags & _SUSPENDABLE or _is_greenlet():
        return None
    return outermost


def _is_running(call: FrameType, thread: int) -> bool:
    last = frame = sys._current_frames().get(thread)
    while frame is not None:
        if frame is call:
            return True
        last, frame = frame, frame.f_back
    # A generator that is suspended during this loop has lost its caller: the answer is unknown.
    return last is not None and bool(last.f_code.co_flags & _SUSPENDABLE)


def _is_greenlet() -> bool:
    """Whether this stack may be suspended as a whole, and is then none of its thread."""
    greenlet = sys.modules.get("greenlet")
    return greenlet is not None and greenlet.getcurrent().parent is not None
