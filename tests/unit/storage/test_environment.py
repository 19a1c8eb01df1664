from __future__ import annotations

import os
import pickle
import threading
import uuid
import warnings

import pytest

from pyhudi.errors import InvalidRequest
from pyhudi.storage.environment import Environment, ReplayEnvironment, SystemEnvironment


def test_a_seed_decides_everything() -> None:
    def draw(env: ReplayEnvironment) -> list[object]:
        return [env.uuid4(), env.token_bytes(16), env.now_ms()]

    assert draw(ReplayEnvironment(7)) == draw(ReplayEnvironment(7)) != draw(ReplayEnvironment(8))


@pytest.mark.parametrize("env", [SystemEnvironment(), ReplayEnvironment(1)])
def test_ids_are_uuids_of_version_4(env: Environment) -> None:
    text = env.uuid4()
    assert uuid.UUID(text).version == 4
    assert str(uuid.UUID(text)) == text
    assert len(env.token_bytes(16)) == 16


def test_replay_time_advances_only_by_sleep() -> None:
    env = ReplayEnvironment(1, 1_000)
    assert env.now_ms() == env.now_ms() == 1_000
    env.sleep_ms(250)
    assert env.now_ms() == 1_250


def test_repeated_tasks_run_at_their_times_during_sleep() -> None:
    env = ReplayEnvironment(1, 0)
    seen: list[tuple[str, int]] = []
    every_30 = env.every_ms(30, lambda: seen.append(("a", env.now_ms())))
    env.every_ms(50, lambda: seen.append(("b", env.now_ms())))
    env.sleep_ms(100)
    assert seen == [("a", 30), ("b", 50), ("a", 60), ("a", 90), ("b", 100)]
    every_30.stop()
    env.sleep_ms(50)
    assert seen[5:] == [("b", 150)]


def test_suspended_process_runs_no_repeated_tasks() -> None:
    env = ReplayEnvironment(1, 0)
    seen: list[int] = []
    env.every_ms(10, lambda: seen.append(env.now_ms()))
    env.stall_ms(1_000)
    assert (seen, env.now_ms()) == ([], 1_000)
    env.sleep_ms(1)
    assert seen == [1_001]


@pytest.mark.parametrize("env", [SystemEnvironment(), ReplayEnvironment(1)])
def test_an_interval_is_at_least_a_millisecond(env: Environment) -> None:
    with pytest.raises(InvalidRequest):
        env.every_ms(0, lambda: None)


def test_system_environment_repeats_until_stopped() -> None:
    env = SystemEnvironment()
    ran = threading.Semaphore(0)
    repetition = env.every_ms(1, ran.release)
    for _ in range(3):
        assert ran.acquire(timeout=600)
    repetition.stop()
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "pyhudi-repeat")


def test_stopping_does_not_wait_for_the_interval() -> None:
    before = set(threading.enumerate())
    ran = threading.Event()
    repetition = SystemEnvironment().every_ms(1, ran.set)
    assert ran.wait(600)
    started = [found for found in set(threading.enumerate()) - before if found.name == "pyhudi-repeat"]
    repetition.stop()
    for thread in started:
        thread.join(600)
        assert not thread.is_alive()


def test_a_repetition_that_is_not_due_has_no_thread() -> None:
    before = {thread for thread in threading.enumerate() if thread.name == "pyhudi-repeat"}
    repetitions = [SystemEnvironment().every_ms(3_600_000, lambda: None) for _ in range(5)]
    assert {thread for thread in threading.enumerate() if thread.name == "pyhudi-repeat"} <= before
    for repetition in repetitions:
        repetition.stop()


def test_a_later_repetition_may_be_due_first() -> None:
    ran = threading.Event()
    late, soon = SystemEnvironment().every_ms(3_600_000, lambda: None), SystemEnvironment().every_ms(1, ran.set)
    assert ran.wait(600)
    late.stop()
    soon.stop()


def test_a_child_of_fork_repeats_its_own_tasks() -> None:
    repetition = SystemEnvironment().every_ms(3_600_000, lambda: None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        ran = threading.Event()
        SystemEnvironment().every_ms(1, ran.set)
        os._exit(0 if ran.wait(600) else 1)
    repetition.stop()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_system_environment_is_pickled_to_workers() -> None:
    env = pickle.loads(pickle.dumps(SystemEnvironment()))
    before_ms = env.now_ms()
    env.sleep_ms(2)
    assert env.now_ms() > before_ms > 1_700_000_000_000
