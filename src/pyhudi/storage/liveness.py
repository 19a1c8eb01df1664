"""Is the writer of a pending instant alive?

Every writer of ours keeps a heartbeat, under every policy, and writes into it where it runs.  So a writer that died on this
machine is known to be dead at once, without waiting for the heartbeat to expire; one on another machine is dead when its
heartbeat has expired.  A writer without a heartbeat (real Hudi under the EAGER policy) counts as dead, as real Hudi counts it.

The content is one line of JSON: host, boot id, the namespace that process ids are counted in, process id, the process's start
time, an id of this module's load.  Real Hudi reads only the file's time.

A write whose tasks run while no process carries it tells that instead, and its heartbeat counts until it expires, as that of real
Hudi does.  An empty one is real Hudi's, for whose writers ours wait (`operations.commit.hudi_writers`).

Source: docs/formats/timeline.md, "Heartbeats and failed writes".  The content is PyHudi's own.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import uuid

from pyhudi.errors import HudiError, WriteConflict
from pyhudi.storage.base import Storage
from pyhudi.storage.environment import Environment, Repetition
from pyhudi.storage.heartbeats import (
    Heartbeat,
    HeartbeatSettings,
    delete_heartbeat,
    heartbeat_expired,
    heartbeat_path,
    last_heartbeat_ms,
)
from pyhudi.storage.process_identity import boot_id, pid_space, start_time

_LOG = logging.getLogger("pyhudi.storage.liveness")
_OF_TASKS = b'{"tasks": true}'
_LOAD_ID = uuid.uuid4().hex
_running: set[tuple[str, str]] = set()
_running_mutex = threading.Lock()


def _after_fork() -> None:
    # Another thread may have held it at that moment, and is not in the child.
    global _running_mutex
    _running_mutex = threading.Lock()
    _running.clear()


os.register_at_fork(after_in_child=_after_fork)


class WriterHeartbeat:
    """The sign of life of one write of this process, from `start` until `stop`."""

    def __init__(self, storage: Storage, env: Environment, request_time: str, settings: HeartbeatSettings) -> None:
        self._key = (storage.uri, request_time)
        self._heartbeat = Heartbeat(storage, env, request_time, settings, _describe_process())

    def start(self) -> None:
        """Beat from now on.  Raises when the first beat cannot be written."""
        with _running_mutex:
            _running.add(self._key)
        try:
            self._heartbeat.start()
        except BaseException:
            self._forget()
            raise

    def check(self) -> None:
        """Raises WriteConflict when others may have taken this write for dead."""
        self._heartbeat.check()

    def stop(self, *, delete: bool) -> None:
        """Beat no more; from now on the write counts as dead.  delete: remove the heartbeat too, because nothing is left to roll
        back.
        """
        self._forget()
        self._heartbeat.stop(delete=delete)

    def suspend(self) -> None:
        """Beat no more, and count as alive until the heartbeat expires: what was sent to the store may still land."""
        self._heartbeat.stop(delete=False)

    def _forget(self) -> None:
        with _running_mutex:
            _running.discard(self._key)


class TaskHeartbeat:
    """The sign of life that a task gives for a write which no process of its own carries (`delegate_to_tasks`), in a `with`
    block.

    Tasks do not know of each other: one beats where the last beat, whoever's, is a while ago.  Where the heartbeat is gone the
    write is over, and no task brings it back.
    """

    def __init__(self, storage: Storage, env: Environment, request_time: str, settings: HeartbeatSettings) -> None:
        self._storage = storage
        self._env = env
        self._request_time = request_time
        self._every_ms = max(1, settings.interval_ms // 2)
        self._repetition: Repetition | None = None

    def __enter__(self) -> None:
        """Raises WriteConflict where the write is over: others took it for dead, or it was taken back."""
        if not self._beat():
            raise WriteConflict(
                f"instant {self._request_time} of {self._storage.uri} has no heartbeat any more: it was rolled back, or its job "
                "failed; write again",
                instants=(self._request_time,),
            )
        self._repetition = self._env.every_ms(self._every_ms, self._beat_quietly)

    def __exit__(self, *_: object) -> None:
        if self._repetition is not None:
            self._repetition.stop()

    def _beat(self) -> bool:
        """Whether the write is still under way."""
        beaten_ms = last_heartbeat_ms(self._storage, self._request_time)
        if beaten_ms is None:
            return False
        # The store's clock may be ahead of this one, and then the age is negative: that is no reason to be silent.
        if not 0 <= self._env.now_ms() - beaten_ms < self._every_ms // 2:
            self._storage.put(heartbeat_path(self._request_time), _OF_TASKS)
        return True

    def _beat_quietly(self) -> None:
        try:
            self._beat()
        except HudiError as error:
            _LOG.warning("instant %s: no heartbeat: %s", self._request_time, error)


def delegate_to_tasks(storage: Storage, request_time: str, write: WriterHeartbeat) -> None:
    """A write of this process goes on in tasks of others: its heartbeat tells of no process, and counts until it expires."""
    write.suspend()
    storage.put(heartbeat_path(request_time), _OF_TASKS)
    write.stop(delete=False)


def is_alive(storage: Storage, env: Environment, request_time: str, settings: HeartbeatSettings) -> bool:
    """Whether the writer of an instant may still complete it."""
    return _lives_at(storage, request_time, env.now_ms(), settings)


def is_alive_for_task(storage: Storage, own_time: str, request_time: str, settings: HeartbeatSettings) -> bool:
    """The same for a task of the write `own_time`, which has no clock: the last heartbeat of its write is hardly older than
    now.
    """
    beaten_ms = last_heartbeat_ms(storage, own_time)
    return _lives_at(storage, request_time, 0 if beaten_ms is None else beaten_ms, settings)


def _lives_at(storage: Storage, request_time: str, now_ms: int, settings: HeartbeatSettings) -> bool:
    if heartbeat_expired(storage, request_time, now_ms, settings):
        return False
    content = storage.read(heartbeat_path(request_time))
    if not content:
        return content is not None
    return _process_lives(content, (storage.uri, request_time))


def remove_heartbeat(storage: Storage, request_time: str) -> None:
    """Remove the heartbeat of an instant that was rolled back."""
    delete_heartbeat(storage, request_time)


def _describe_process() -> bytes:
    pid = os.getpid()
    return json.dumps(
        {
            "host": socket.gethostname(),
            "boot": boot_id(),
            "space": pid_space(),
            "pid": pid,
            "started": start_time(pid),
            "load": _LOAD_ID,
        }
    ).encode()


def _process_lives(content: bytes, key: tuple[str, str]) -> bool:
    try:
        owner = json.loads(content)
        host, boot, space, pid, started, load = (owner[name] for name in ("host", "boot", "space", "pid", "started", "load"))
    except (ValueError, KeyError, TypeError):
        return True
    if load == _LOAD_ID and pid == os.getpid():
        with _running_mutex:
            return key in _running
    # Containers of one machine may share its name; the number of a process means something in its own namespace alone.
    if host != socket.gethostname() or not boot or boot != boot_id() or space != pid_space():
        return True
    return started is None or start_time(pid) == started
