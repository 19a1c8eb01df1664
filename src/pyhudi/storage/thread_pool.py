"""The threads of this process: some for small storage requests and small tasks, others for the tasks of the embedded engine.

The calling thread runs tasks too, so a call makes progress while all threads of the pool are busy. Calls may therefore
be nested: a task that runs in the pool may call `in_threads` again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
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
        BaseException: The error of the first task that failed, after the running tasks ended. Further tasks do not
            start.
    """
    todo = list(tasks)
    if len(todo) < 2:
        return [function(task) for task in todo]
    call = _Call(function, todo)
    helpers = _submitted(_engine_pool if of_engine else _pool, call.run, min(threads, len(todo)) - 1)
    try:
        call.run()
    finally:
        for helper in helpers:
            if not helper.cancel():
                helper.result()
    if call.errors:
        raise call.errors[min(call.errors)]
    return [call.results[number] for number in range(len(todo))]


def _submitted(pool: ThreadPoolExecutor, run: Callable[[], None], number: int) -> list[Future[None]]:
    submitted: list[Future[None]] = []
    try:
        for _ in range(number):
            submitted.append(pool.submit(run))
    except RuntimeError:
        # The process can start no more threads, or is ending: the calling thread runs the tasks.
        pass
    return submitted


class _Call(Generic[T, R]):
    """The tasks of one call; each thread takes the next one until none is left or one failed."""

    def __init__(self, function: Callable[[T], R], tasks: list[T]) -> None:
        self.results: dict[int, R] = {}
        self.errors: dict[int, BaseException] = {}
        self._function = function
        self._tasks = tasks
        self._numbers = iter(range(len(tasks)))
        self._lock = Lock()

    def run(self) -> None:
        while (number := self._next()) is not None:
            try:
                self.results[number] = self._function(self._tasks[number])
            except BaseException as error:
                self.errors[number] = error

    def _next(self) -> int | None:
        with self._lock:
            return None if self.errors else next(self._numbers, None)
