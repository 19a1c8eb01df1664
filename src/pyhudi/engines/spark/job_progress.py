"""Progress of Spark jobs on the driver's terminal: completed tasks of the running stages.

On Spark Connect the server's reports arrive through a progress handler; on a classic session a thread polls the status
tracker. If no progress is shown, nothing is polled.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyhudi.engines.spark.type_conversion import SparkSession
from pyhudi.tasks.progress import show_stage

POLL_S = 0.5


@contextmanager
def spark_stage(session: SparkSession, name: str) -> Iterator[None]:
    """Show the Spark stages that run within the block as one stage of this name."""
    with show_stage(name) as show:
        if show is None:
            yield
            return
        with _reported(session, show) if _is_connect(session) else _polled(session, show):
            yield


def _is_connect(session: SparkSession) -> bool:
    return type(session).__module__.startswith("pyspark.sql.connect")


@contextmanager
def _reported(session: SparkSession, reporter: Callable[[int, int], None]) -> Iterator[None]:
    def handle(stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        known = list(stages or ())
        reporter(sum(stage_info.num_completed_tasks for stage_info in known), sum(stage_info.num_tasks for stage_info in known))

    handler: Any = handle
    session.registerProgressHandler(handler)
    try:
        yield
    finally:
        session.removeProgressHandler(handler)


@contextmanager
def _polled(session: SparkSession, reporter: Callable[[int, int], None]) -> Iterator[None]:
    tracker = session.sparkContext.statusTracker()
    over = threading.Event()

    def poll() -> None:
        while not over.wait(POLL_S):
            try:
                stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
            except Exception:
                # The session has ended: the job itself reports it.
                return
            reporter(
                sum(stage_info.numCompletedTasks for stage_info in stages if stage_info),
                sum(stage_info.numTasks for stage_info in stages if stage_info),
            )

    thread = threading.Thread(target=poll, name="pyhudi-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
