"""The threads of this process: some for small storage requests and small tasks, others for the tasks of the embedded engine.

The calling thread runs tasks too, so a call makes progress while all threads of the pool are busy. Calls may therefore
be nested: a task that runs in the pool may call `in_threads` again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Condition, Lock
from typing import Generic, TypeVar

_POOL_THREADS = 32
_ENGINE_THREADS = 256
_THREADS_OF_CALL = 16

T = TypeVar("T")
R = TypeVar("R")

_pool = ThreadPoolExecutor(_POOL_THREADS, "pyhudi-io")
_engine_pool = ThreadPoolExecutor(_ENGINE_THREADS, "pyhudi-task")


def _after_fork() -> None:
    """Start with new threads in a child process: those of the parent do not exist there."""
    global _pool, _engine_pool
    _pool = ThreadPoolExecutor(_POOL_THREADS, "pyhudi-io")
    _engine_pool = ThreadPoolExecutor(_ENGINE_THREADS, "pyhudi-task")


os.register_at_fork(after_in_child=_after_fork)


def in_threads(
    function: Callable[[T], R], tasks: Iterable[T], threads: int = _THREADS_OF_CALL, *, of_engine: bool = False
) -> list[R]:
    """Run tasks in the calling thread and in threads of this process.

    Args:
        function: Called once for each task.
        tasks: Read completely before the first one runs.
        threads: Maximum number of tasks that run at once.
        of_engine: The tasks may take long. They use threads of their own, so that storage requests do not wait for them.

    Returns:
        The results, in the order of the tasks.

    Raises:
        BaseException: The error of the first task that failed, or an interruption of the caller. Further tasks do not
            start, and it is raised only after all running tasks have ended: a rollback may follow, which must find
            every file that a task writes.
    """
    todo = list(tasks)
    if len(todo) < 2:
        return [function(task) for task in todo]
    call = _Call(function, todo)
    helpers: list[Future[None]] = []
    try:
        _submit(_engine_pool if of_engine else _pool, call.help, min(threads, len(todo)) - 1, helpers)
        call.run()
    finally:
        interruption: BaseException | None = None
        while True:
            # No statement before `try`: an interruption must not skip the wait.
            try:
                call.end(helpers)
                break
            except BaseException as error:
                interruption = interruption or error
        if interruption is not None:
            raise interruption
    if call.errors:
        raise call.errors[min(call.errors)]
    return [call.results[number] for number in range(len(todo))]


def _submit(pool: ThreadPoolExecutor, run: Callable[[], None], number: int, submitted: list[Future[None]]) -> None:
    try:
        for _ in range(number):
            submitted.append(pool.submit(run))
    except RuntimeError:
        # The process can start no more threads, or is ending: the calling thread runs the tasks. What failed to start may
        # be queued, and finds no task left.
        pass


class _Call(Generic[T, R]):
    """The tasks of one call; each thread takes the next one until none is left, one failed, or the call ends."""

    def __init__(self, function: Callable[[T], R], tasks: list[T]) -> None:
        self.results: dict[int, R] = {}
        self.errors: dict[int, BaseException] = {}
        self._function = function
        self._tasks = tasks
        self._numbers = iter(range(len(tasks)))
        self._lock = Lock()
        self._idle = Condition(self._lock)
        self._helpers = 0
        self._ended = False

    def run(self) -> None:
        """Run tasks in this thread."""
        while (number := self._next()) is not None:
            try:
                self.results[number] = self._function(self._tasks[number])
            except BaseException as error:
                self.errors[number] = error

    def help(self) -> None:
        """Run tasks in a thread for which `end` waits."""
        with self._lock:
            self._helpers += 1
        try:
            self.run()
        finally:
            with self._lock:
                self._helpers -= 1
                self._idle.notify_all()

    def end(self, helpers: Iterable[Future[None]]) -> None:
        """Start no more tasks, and wait for those of the helpers."""
        with self._lock:
            self._ended = True
        for helper in helpers:
            helper.cancel()
        with self._lock:
            self._idle.wait_for(lambda: not self._helpers)

    def _next(self) -> int | None:
        with self._lock:
            return None if self._ended or self.errors else next(self._numbers, None)
