"""Small batches on the driver: rows are collected once, as Arrow, and written by tasks that contain their rows.

    1. collect   one job computes the rows, caches them and returns a bounded number: possibly all (incoming.py)
    2. measure   otherwise their bytes are counted.  Above `driver_batch_bytes` they stay on the cluster, else one more
                 job collects them; Spark drops its cache
    3. look up, write   tasks of the embedded engine (`engines/arrow/incoming.py`): in threads of the driver while they
                 read and write at most `driver_work_bytes` of the table, else in one job on the cluster

Spark prepares, and if necessary refuses, rows before they are collected, as for larger batches.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TypeVar

from pyspark import TaskContext

from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.engines.arrow.tagged import GroupRows, TaskBundle, WriteGroup
from pyhudi.engines.spark.jobs import parallelism, run_tasks
from pyhudi.engines.spark.type_conversion import SparkSession
from pyhudi.engines.spark.worker_tasks import task_token
from pyhudi.format.names import WriteToken
from pyhudi.storage import open_storage
from pyhudi.tasks.task_attempts import remove_if_write_ended

A = TypeVar("A")
R = TypeVar("R")

_TASKS_A_CORE = 4
_MOST_THREADS = 4
"""Threads of the driver for one write; other work may share the driver."""


class DriverWorkers:
    """Executor of a batch on the driver. work_bytes: maximum bytes of the table to read and write in the driver's own threads."""

    def __init__(self, session: SparkSession, work_bytes: int) -> None:
        self._session = session
        self._work_bytes = work_bytes
        self._here = LocalEngine(min(_MOST_THREADS, os.cpu_count() or 1))
        self.threads = self._here.threads

    def map(self, function: Callable[[A], R], tasks: Iterable[A]) -> list[R]:
        """Run tasks in threads of the driver; results in order."""
        return self._here.map(function, tasks)

    def run_tasks(self, function: Callable[[A], R], tasks: Iterable[A], size_bytes: Sequence[int]) -> list[R]:
        """Run tasks in threads of the driver, or in one job, depending on their size; results in order."""
        todo = list(tasks)
        if fits_driver(size_bytes, self._work_bytes):
            return self.map(function, todo)
        bins = assign_to_bins(size_bytes, self.parallelism(sum(size_bytes)))
        answers = run_tasks(
            self._session, partial(_each, function), [_together([todo[at] for at in numbers]) for numbers in bins]
        )
        results = {
            at: result for numbers, part in zip(bins, answers, strict=True) for at, result in zip(numbers, part, strict=True)
        }
        return [results[at] for at in range(len(todo))]

    def parallelism(self, size_bytes: int) -> int:
        """Number of concurrent tasks for work of a size in bytes."""
        return self.threads if fits_driver([size_bytes], self._work_bytes) else _TASKS_A_CORE * parallelism(self._session)

    @property
    def token(self) -> Callable[[int], WriteToken]:
        """Function that creates the write token of a task, called in the task."""
        return _token


def fits_driver(size_bytes: Sequence[int], work_bytes: int) -> bool:
    """Whether tasks that read and write these sizes run on the driver."""
    return sum(size_bytes) <= work_bytes


def assign_to_bins(size_bytes: Sequence[int], most: int) -> list[list[int]]:
    """Distribute tasks over at most `most` bins of similar size: the largest first, each to the least loaded bin."""
    bins: list[list[int]] = [[] for _ in range(min(most, len(size_bytes)))]
    loads = [(0, number) for number in range(len(bins))]
    for at in sorted(range(len(size_bytes)), key=lambda at: -size_bytes[at]):
        load, number = heapq.heappop(loads)
        bins[number].append(at)
        # Each task has a fixed cost, however little it reads.
        heapq.heappush(loads, (load + size_bytes[at] + 1, number))
    return bins


def _together(tasks: list[A]) -> Iterable[A]:
    groups = tuple(task for task in tasks if isinstance(task, GroupRows))
    return TaskBundle(groups) if len(groups) == len(tasks) else tasks  # type: ignore[return-value]  # tasks of one kind


def _each(function: Callable[[A], R], tasks: Iterable[A]) -> list[R]:
    with _in_time(function):
        return [function(task) for task in tasks]


def _in_time(function: object) -> AbstractContextManager[None]:
    """Context of one attempt at tasks on the cluster: it deletes the files it wrote if the write has ended."""
    if not isinstance(function, WriteGroup):
        return nullcontext()
    spec = function.writer.spec
    return remove_if_write_ended(open_storage(spec.storage), spec.instant_time, task_token())


def _token(number: int) -> WriteToken:
    return WriteToken(number, 0, number) if TaskContext.get() is None else task_token()
