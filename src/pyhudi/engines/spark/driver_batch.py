"""A small batch of rows on the driver: taken there once, as Arrow, and written by tasks that carry their rows.

    1. take      one job computes the rows, keeps them and brings as many as are bounded beforehand: maybe all (incoming.py)
    2. measure   where they are not, their bytes are counted; more than `driver_batch_bytes`, and they stay where they are, else
                 one more job brings them to the driver; Spark drops what it kept
    3. look up, write   tasks as those of the embedded engine make (`engines/arrow/incoming.py`): in threads of the driver while
                 what they read and write of the table is at most `driver_work_bytes`, in one job on the cluster where it is more

Rows are prepared, so also refused, before they are taken: as those of larger batches are, by Spark.
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
"""Threads of the driver that work for one write: it may serve others, too."""


class DriverWorkers:
    """The workers of a batch on the driver.  work_bytes: what they read and write of the table in the driver's own threads."""

    def __init__(self, session: SparkSession, work_bytes: int) -> None:
        self._session = session
        self._work_bytes = work_bytes
        self._here = LocalEngine(min(_MOST_THREADS, os.cpu_count() or 1))
        self.threads = self._here.threads

    def map(self, function: Callable[[A], R], tasks: Iterable[A]) -> list[R]:
        """Run tasks in threads of the driver; results in order."""
        return self._here.map(function, tasks)

    def run_tasks(self, function: Callable[[A], R], tasks: Iterable[A], size_bytes: Sequence[int]) -> list[R]:
        """Run tasks in threads of the driver, or in one job, by what they read and write; results in order."""
        todo = list(tasks)
        if fits_driver(size_bytes, self._work_bytes):
            return self.map(function, todo)
        bins = assign_to_bins(size_bytes, self.lanes(sum(size_bytes)))
        answers = run_tasks(
            self._session, partial(_each, function), [_together([todo[at] for at in numbers]) for numbers in bins]
        )
        found = {at: one for numbers, part in zip(bins, answers, strict=True) for at, one in zip(numbers, part, strict=True)}
        return [found[at] for at in range(len(todo))]

    def lanes(self, size_bytes: int) -> int:
        """How many tasks work of so many bytes is dealt out to."""
        return self.threads if fits_driver([size_bytes], self._work_bytes) else _TASKS_A_CORE * parallelism(self._session)

    @property
    def token(self) -> Callable[[int], WriteToken]:
        """What makes the write token of a task, where it runs."""
        return _token


def fits_driver(size_bytes: Sequence[int], work_bytes: int) -> bool:
    """Whether tasks that read and write so many bytes run in the driver."""
    return sum(size_bytes) <= work_bytes


def assign_to_bins(size_bytes: Sequence[int], most: int) -> list[list[int]]:
    """Numbers of tasks in at most so many bins of about equal sizes: the largest first, each to the bin that has least."""
    bins: list[list[int]] = [[] for _ in range(min(most, len(size_bytes)))]
    loads = [(0, number) for number in range(len(bins))]
    for at in sorted(range(len(size_bytes)), key=lambda at: -size_bytes[at]):
        load, number = heapq.heappop(loads)
        bins[number].append(at)
        # Each task costs something, however little it reads.
        heapq.heappush(loads, (load + size_bytes[at] + 1, number))
    return bins


def _together(tasks: list[A]) -> Iterable[A]:
    groups = tuple(task for task in tasks if isinstance(task, GroupRows))
    return TaskBundle(groups) if len(groups) == len(tasks) else tasks  # type: ignore[return-value]  # tasks of one kind


def _each(function: Callable[[A], R], tasks: Iterable[A]) -> list[R]:
    with _in_time(function):
        return [function(task) for task in tasks]


def _in_time(function: object) -> AbstractContextManager[None]:
    """For one attempt at tasks on the cluster: what writes files removes them where it ends when the write is over."""
    if not isinstance(function, WriteGroup):
        return nullcontext()
    spec = function.writer.spec
    return remove_if_write_ended(open_storage(spec.storage), spec.instant_time, task_token())


def _token(number: int) -> WriteToken:
    return WriteToken(number, 0, number) if TaskContext.get() is None else task_token()
