"""Writes that overlap in an order that a test chooses."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pyhudi.storage import Storage
from pyhudi.table.table_context import TableContext


class _Gate:
    """A storage that waits, once, before the inflight file is written, or another file of the timeline."""

    def __init__(self, inner: Storage, wait: Callable[[], None], before: str) -> None:
        self._inner = inner
        self._before = before
        self._wait: Callable[[], None] | None = wait

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        if self._wait is not None and path.endswith(self._before) and "metadata" not in path:
            wait, self._wait = self._wait, None
            wait()
        return self._inner.put_if_absent(path, data)


class PausedWrite:
    """A write that has begun, and waits before its inflight file for `finish`.  Of the test and its writes one runs at a time.

    before: the ending of the file before which it waits: with `commit`, the completed one, all is written and the lock held.
    """

    def __init__(self, context: TableContext, act: Callable[[TableContext], object], *, before: str = ".inflight") -> None:
        self._turn = threading.Semaphore(0)
        self._ours = threading.Semaphore(0)
        self._error: BaseException | None = None
        storage = _Gate(context.storage, self._pause, before)
        self._thread = threading.Thread(target=self._run, args=(act, replace(context, storage=storage)), daemon=True)
        self._thread.start()
        self._ours.acquire()

    def finish(self) -> None:
        """Let it go on to its end.  Raises what it raises."""
        self._turn.release()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _pause(self) -> None:
        self._ours.release()
        self._turn.acquire()

    def _run(self, act: Callable[[TableContext], object], context: TableContext) -> None:
        try:
            act(context)
        except BaseException as error:
            self._error = error
        finally:
            self._ours.release()
