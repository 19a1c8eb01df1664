"""`in_threads`: results in order, errors, nested calls, and processes that can start no threads."""

from __future__ import annotations

import multiprocessing
import signal
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event, get_ident
from types import FrameType

import pytest

from pyhudi.storage import thread_pool
from pyhudi.storage.thread_pool import in_threads


def _squares(number: int) -> list[int]:
    return in_threads(lambda factor: factor * factor, range(number))


def test_results_are_in_the_order_of_the_tasks() -> None:
    assert in_threads(str, range(100)) == [str(number) for number in range(100)]
    assert in_threads(str, []) == []


def test_tasks_run_at_the_same_time() -> None:
    barrier = Barrier(4, timeout=60)
    in_threads(lambda _: barrier.wait(), range(4))


def test_at_most_the_given_number_of_threads_runs_tasks() -> None:
    assert set(in_threads(lambda _: get_ident(), range(100), 1)) == {get_ident()}


def test_calls_nested_deeper_than_the_pool_has_threads() -> None:
    def nested(depth: int) -> int:
        return 1 if depth == 0 else sum(in_threads(nested, [depth - 1] * 3))

    assert in_threads(nested, [5] * 50) == [243] * 50


def test_the_first_error_ends_the_call() -> None:
    started: list[int] = []
    others = Event()

    def run(number: int) -> None:
        started.append(number)
        if number == 0:
            others.set()
            raise KeyError("first")
        others.wait(60)
        raise KeyError(number)

    with pytest.raises(KeyError, match="first"):
        in_threads(run, range(1000), 4)
    assert len(started) < 1000


def test_an_interruption_reaches_the_caller() -> None:
    def run(number: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        in_threads(run, range(3))


def test_no_task_outlives_an_interrupted_call() -> None:
    """A rollback that follows must find the files of every task."""
    both, interrupted, returned = Barrier(2, timeout=60), Event(), Event()
    outlived: list[bool] = []
    caller = get_ident()

    def interrupt(number: int, frame: FrameType | None) -> None:
        interrupted.set()
        raise KeyboardInterrupt

    def run(number: int) -> None:
        both.wait()
        if get_ident() != caller:
            # A signal that comes just before the caller blocks is handled with the next one.
            for _ in range(1000):
                signal.pthread_kill(caller, signal.SIGINT)
                if interrupted.wait(0.05):
                    break
            outlived.append(returned.wait(0.2))

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            in_threads(run, range(2), of_engine=True)
        returned.set()
    finally:
        signal.signal(signal.SIGINT, before)
    assert outlived == [False]


def test_a_thread_that_cannot_start_leaves_no_task_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    class OneThread(ThreadPoolExecutor):
        """Queues a call for which it can start no thread, as the executor of Python does."""

        def _adjust_thread_count(self) -> None:
            if self._threads:
                raise RuntimeError("can't start new thread")
            super()._adjust_thread_count()

    with OneThread(8) as pool:
        monkeypatch.setattr(thread_pool, "_pool", pool)
        for _ in range(50):
            assert in_threads(lambda number: number, range(20), 8) == list(range(20))


def test_without_further_threads_the_caller_runs_all_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = ThreadPoolExecutor(1)
    ended.shutdown()
    monkeypatch.setattr(thread_pool, "_pool", ended)
    assert in_threads(lambda number: (number, get_ident()), range(3)) == [(number, get_ident()) for number in range(3)]


def test_a_forked_process_starts_its_own_threads() -> None:
    _squares(40)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(_squares, (40,)).get(60) == [number * number for number in range(40)]
