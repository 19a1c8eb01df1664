"""The embedded engine: Arrow tables and threads of one process.

Incoming batches are cast and keyed as they arrive and buffered in a `RowBuffer`, which spills to local disk beyond the
memory budget. Lookups and writing tasks run on a thread pool; Arrow releases the interpreter lock in all of them.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import chain, islice
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyhudi.engines.arrow.incoming import LocalIncoming, by_partition
from pyhudi.engines.arrow.input_rows import arrow_reader
from pyhudi.errors import InvalidRequest
from pyhudi.format.names import WriteToken
from pyhudi.storage.arrow_memory import release_unused_memory
from pyhudi.storage.thread_pool import in_threads
from pyhudi.tasks.engine_protocol import PrepareRequest
from pyhudi.tasks.incoming_rows import incoming_rows
from pyhudi.tasks.progress import stage, stage_name

T = TypeVar("T")
R = TypeVar("R")
Ints = npt.NDArray[np.int64]


class LocalEngine:
    """Runs tasks in threads.  threads: 0 for one per processor."""

    name = "embedded"
    may_leave_attempts = False

    def __init__(self, threads: int = 0) -> None:
        if threads < 0:
            raise InvalidRequest(f"option pyhudi.threads={threads} is negative: set 0 (one per processor) or more")
        self.threads = threads or os.cpu_count() or 1
        self._opened: tuple[Any, pa.RecordBatchReader] | None = None

    def input_schema(self, data: Any) -> pa.Schema:
        """The Arrow schema of the input data."""
        self._opened = data, arrow_reader(data)
        return self._opened[1].schema

    def prepare(self, data: Any, request: PrepareRequest) -> LocalIncoming:
        """Read the input data, cast and key it, and combine duplicates."""
        # Some streams can be read only once: reuse the one that was opened to get its schema.
        opened, self._opened = self._opened, None
        reader = opened[1] if opened and opened[0] is data else arrow_reader(data)
        incoming = LocalIncoming(self, reader.schema, self.pipelined(partial(_prepared, request), _numbered(reader)), request)
        release_unused_memory()
        return incoming

    def map(self, function: Callable[[T], R], tasks: Iterable[T]) -> list[R]:
        """Run tasks on the pool; results in order. The first error cancels the tasks that have not started, and is raised."""
        todo = list(tasks)
        with stage(stage_name(getattr(function, "func", function)), len(todo)) as advance:

            def run(task: T) -> R:
                result = function(task)
                release_unused_memory()
                advance()
                return result

            return in_threads(run, todo, self.threads, of_engine=True)

    def run_tasks(self, function: Callable[[T], R], tasks: Iterable[T], size_bytes: Sequence[int]) -> list[R]:
        """Like `map`: this process executes all tasks, regardless of their size."""
        return self.map(function, tasks)

    def parallelism(self, size_bytes: int) -> int:
        """The number of threads, regardless of the size."""
        return self.threads

    def token(self, number: int) -> WriteToken:
        """The write token of a task number."""
        return WriteToken(number, 0, number)

    def pipelined(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Results in order while items still arrive; the pool prefetches a few items ahead of the consumer."""
        remaining = iter(items)
        first = list(islice(remaining, 2))
        if self.threads == 1 or len(first) < 2:
            yield from map(function, chain(first, remaining))
            return
        ahead: deque[Future[R]] = deque()
        with ThreadPoolExecutor(self.threads, thread_name_prefix="pyhudi") as pool:
            for item in chain(first, remaining):
                ahead.append(pool.submit(function, item))
                if len(ahead) > self.threads:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()


def _numbered(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Each non-empty batch, with the number of its first row in the stream."""
    first_row = 0
    for batch in batches:
        if batch.num_rows:
            yield first_row, batch
            first_row += batch.num_rows


def _prepared(request: PrepareRequest, numbered: tuple[int, pa.RecordBatch]) -> pa.Table:
    first_row, batch = numbered
    rows = incoming_rows(request, batch, first_row=first_row)
    return by_partition(rows) if request.by_partition else rows
