"""Writers that count as alive, because they may still complete their instant."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pyhudi.storage import Storage
from pyhudi.storage.environment import ReplayEnvironment
from pyhudi.storage.fault_injection import Fault, FaultyStorage, SimulatedCrash
from pyhudi.storage.heartbeats import HeartbeatSettings, heartbeat_path
from pyhudi.storage.liveness import WriterHeartbeat, is_alive, remove_heartbeat
from pyhudi.storage.memory import MemoryStorage

SETTINGS = HeartbeatSettings(1000, 2)
TIME = "20260101000000000"
_names = itertools.count()


@pytest.fixture
def env() -> ReplayEnvironment:
    return ReplayEnvironment(1)


@pytest.fixture
def storage(env: ReplayEnvironment) -> Storage:
    return MemoryStorage(f"memory://liveness-{next(_names)}", env)


def content(storage: Storage) -> dict[str, object]:
    document = json.loads(storage.read(heartbeat_path(TIME)) or b"")
    assert isinstance(document, dict)
    return document


def alive_as(storage: Storage, env: ReplayEnvironment, **changes: object) -> bool:
    """Whether the writer counts as alive if its heartbeat has other content."""
    changed = {**content(storage), "load": "another", **changes}
    storage.put(heartbeat_path(TIME), json.dumps({k: v for k, v in changed.items() if v != "absent"}).encode())
    return is_alive(storage, env, TIME, SETTINGS)


def test_running_write_is_alive(storage: Storage, env: ReplayEnvironment) -> None:
    write = WriterHeartbeat(storage, env, TIME, SETTINGS)
    assert not is_alive(storage, env, TIME, SETTINGS)
    write.start()
    assert is_alive(storage, env, TIME, SETTINGS)
    env.advance_ms(60_000)
    assert is_alive(storage, env, TIME, SETTINGS)
    write.check()
    write.stop(delete=True)
    assert not is_alive(storage, env, TIME, SETTINGS)
    assert storage.read(heartbeat_path(TIME)) is None


def test_write_released_by_this_process_is_not_alive(storage: Storage, env: ReplayEnvironment) -> None:
    write = WriterHeartbeat(storage, env, TIME, SETTINGS)
    write.start()
    write.stop(delete=False)
    assert storage.read(heartbeat_path(TIME)) is not None
    assert not is_alive(storage, env, TIME, SETTINGS)
    remove_heartbeat(storage, TIME)
    assert storage.read(heartbeat_path(TIME)) is None
    remove_heartbeat(storage, TIME)


def test_writers_of_different_tables_are_distinguished(env: ReplayEnvironment) -> None:
    one, other = (MemoryStorage(f"memory://liveness-{next(_names)}", env) for _ in range(2))
    write = WriterHeartbeat(one, env, TIME, SETTINGS)
    write.start()
    other.put(heartbeat_path(TIME), one.read(heartbeat_path(TIME)) or b"")
    assert not is_alive(other, env, TIME, SETTINGS)
    write.stop(delete=True)


def test_a_first_beat_that_fails(storage: Storage, env: ReplayEnvironment) -> None:
    write = WriterHeartbeat(FaultyStorage(storage, Fault(1)), env, TIME, SETTINGS)
    with pytest.raises(SimulatedCrash):
        write.start()
    WriterHeartbeat(storage, env, "2", SETTINGS).start()
    storage.put(heartbeat_path(TIME), storage.read(heartbeat_path("2")) or b"")
    assert not is_alive(storage, env, TIME, SETTINGS)


def test_expired_heartbeat_on_any_host_is_not_alive(storage: Storage, env: ReplayEnvironment) -> None:
    WriterHeartbeat(storage, env, TIME, SETTINGS).start()
    assert alive_as(storage, env, host="elsewhere")
    env.stall_ms(2001)
    assert not is_alive(storage, env, TIME, SETTINGS)


def test_heartbeats_of_others(storage: Storage, env: ReplayEnvironment) -> None:
    # Apache Hudi's are empty; what cannot be read is left to time.
    for data in (b"", b"x", b"[]", b'"x"', b"{}", b"\xff"):
        storage.put(heartbeat_path(TIME), data)
        assert is_alive(storage, env, TIME, SETTINGS), data


def test_another_process_of_this_machine(storage: Storage, env: ReplayEnvironment) -> None:
    WriterHeartbeat(storage, env, TIME, SETTINGS).start()
    me = content(storage)
    assert me["host"] == socket.gethostname()
    assert me["pid"] == os.getpid()
    # It runs, as the number and the start time say; another load of this module does not matter.
    assert alive_as(storage, env)
    # The number was given to another process since, or to none.
    assert not alive_as(storage, env, started=1)
    assert not alive_as(storage, env, pid=_dead_pid(), started=me["started"])
    # Unknown: another boot, another container, another machine, no start time.
    assert alive_as(storage, env, started=1, boot="other")
    assert alive_as(storage, env, started=1, boot=None)
    assert alive_as(storage, env, started=1, boot=me["boot"], space="pid:[1]")
    assert alive_as(storage, env, started=1, space=me["space"], host="elsewhere")
    assert alive_as(storage, env, started=None, host=me["host"])
    # Written by a version with fewer fields.
    assert alive_as(storage, env, started=1, space="absent")


def _dead_pid() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_zombie_child_process_is_not_alive(storage: Storage, env: ReplayEnvironment) -> None:
    WriterHeartbeat(storage, env, TIME, SETTINGS).start()
    ready, held = os.pipe()
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=ready)
    started = int(Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19])
    assert alive_as(storage, env, pid=child.pid, started=started)
    child.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not alive_as(storage, env, pid=child.pid, started=started)
    child.wait()
    os.close(ready)
    os.close(held)


def _forked(storage: Storage, answers: multiprocessing.Queue[bool]) -> None:
    answers.put(is_alive(storage, ReplayEnvironment(1), TIME, SETTINGS))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_forked_process_is_not_the_writer(storage: Storage, env: ReplayEnvironment) -> None:
    """The child has a copy of what its parent runs; the parent's write lives as long as the parent does."""
    write = WriterHeartbeat(storage, env, TIME, SETTINGS)
    write.start()
    context = multiprocessing.get_context("fork")
    answers: multiprocessing.Queue[bool] = context.Queue()
    child = context.Process(target=_forked, args=(storage, answers))
    child.start()
    assert answers.get(timeout=600)
    child.join()
    write.stop(delete=True)
