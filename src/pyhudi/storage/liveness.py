"""Detect whether the writer of a pending instant is alive.

Every PyHudi writer maintains a heartbeat, under every policy, and stores its process identity in it. A writer that died
on the same machine is therefore detected at once, without waiting for the heartbeat to expire. A writer on another
machine is dead when its heartbeat has expired. A writer without a heartbeat (Hudi with the EAGER policy) counts as
dead, as in Hudi.

The content is one line of JSON: host, boot id, PID namespace, process id, start time of the process, an id of this
module's load. Hudi reads only the file's modification time.

A write that runs in tasks without a driver process stores `{"tasks": true}` instead, and its heartbeat counts until it
expires, as that of Hudi does. An empty heartbeat belongs to a Hudi writer, for which PyHudi waits
(`operations.commit.hudi_writers`).

Source: docs/formats/timeline.md, "Heartbeats and failed writes".  The content is an extension of PyHudi.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import uuid

from pyhudi.errors import HudiError, WriteConflict, get_logger
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

_LOG = get_logger("pyhudi.storage.liveness")
_OF_TASKS = b'{"tasks": true}'
_LOAD_ID = uuid.uuid4().hex
_running: set[tuple[str, str]] = set()
_running_mutex = threading.Lock()


def _after_fork() -> None:
    # Another thread may have held the mutex at the fork, and does not exist in the child.
    global _running_mutex
    _running_mutex = threading.Lock()
    _running.clear()


os.register_at_fork(after_in_child=_after_fork)


class WriterHeartbeat:
    """The heartbeat of one write of this process, from `start` until `stop`."""

    def __init__(self, storage: Storage, env: Environment, request_time: str, settings: HeartbeatSettings) -> None:
        self._key = (storage.uri, request_time)
        self._heartbeat = Heartbeat(storage, env, request_time, settings, _describe_process())

    def start(self) -> None:
        """Start the heartbeat.  Raises if the first one cannot be written."""
        with _running_mutex:
            _running.add(self._key)
        try:
            self._heartbeat.start()
        except BaseException:
            self._unregister()
            raise

    def check(self) -> None:
        """Raise WriteConflict if another writer may have considered this write dead."""
        self._heartbeat.check()

    def stop(self, *, delete: bool) -> None:
        """Stop the heartbeat; from then on the write counts as dead.

        Args:
            delete: Delete the heartbeat file too, because nothing needs to be rolled back.
        """
        self._unregister()
        self._heartbeat.stop(delete=delete)

    def suspend(self) -> None:
        """Stop the heartbeat but count as alive until it expires, because requests in flight may still reach the store."""
        self._heartbeat.stop(delete=False)

    def _unregister(self) -> None:
        with _running_mutex:
            _running.discard(self._key)


class TaskHeartbeat:
    """Heartbeat that tasks maintain for a write without a driver process (`delegate_to_tasks`), as a `with` block.

    Tasks do not coordinate: a task refreshes the heartbeat if the last one, of any task, is old enough. A missing
    heartbeat file means that the write has ended, and no task re-creates it.
    """

    def __init__(self, storage: Storage, env: Environment, request_time: str, settings: HeartbeatSettings) -> None:
        self._storage = storage
        self._env = env
        self._request_time = request_time
        self._every_ms = max(1, settings.interval_ms // 2)
        self._repetition: Repetition | None = None

    def __enter__(self) -> None:
        """Start the heartbeat.  Raises WriteConflict if the write has ended: it was considered dead or rolled back."""
        if not self._beat():
            raise WriteConflict(
                f"instant {self._request_time} of {self._storage.uri} has no heartbeat file: it was rolled back, or its job "
                "failed. Retry the write",
                instants=(self._request_time,),
            )
        self._repetition = self._env.every_ms(self._every_ms, self._beat_quietly)

    def __exit__(self, *_: object) -> None:
        if self._repetition is not None:
            self._repetition.stop()

    def _beat(self) -> bool:
        """Refresh the heartbeat if it is old; return whether the write is still running."""
        beaten_ms = last_heartbeat_ms(self._storage, self._request_time)
        if beaten_ms is None:
            return False
        # The store's clock may be ahead of the local one; a negative age must not suppress the heartbeat.
        if not 0 <= self._env.now_ms() - beaten_ms < self._every_ms // 2:
            self._storage.put(heartbeat_path(self._request_time), _OF_TASKS)
        return True

    def _beat_quietly(self) -> None:
        try:
            self._beat()
        except HudiError as error:
            _LOG.warning("instant %s: no heartbeat: %s", self._request_time, error)


def delegate_to_tasks(storage: Storage, request_time: str, write: WriterHeartbeat) -> None:
    """Hand a write of this process over to tasks: its heartbeat identifies no process and counts until it expires."""
    write.suspend()
    storage.put(heartbeat_path(request_time), _OF_TASKS)
    write.stop(delete=False)


def is_alive(storage: Storage, env: Environment, request_time: str, settings: HeartbeatSettings) -> bool:
    """Return True if the writer of an instant may still complete it."""
    return _is_alive_at(storage, request_time, env.now_ms(), settings)


def is_alive_for_task(storage: Storage, own_time: str, request_time: str, settings: HeartbeatSettings) -> bool:
    """Like `is_alive`, for a task of the write `own_time`, which has no clock: the last heartbeat of its own write
    serves as the current time.
    """
    beaten_ms = last_heartbeat_ms(storage, own_time)
    return _is_alive_at(storage, request_time, 0 if beaten_ms is None else beaten_ms, settings)


def _is_alive_at(storage: Storage, request_time: str, now_ms: int, settings: HeartbeatSettings) -> bool:
    if heartbeat_expired(storage, request_time, now_ms, settings):
        return False
    content = storage.read(heartbeat_path(request_time))
    if not content:
        return content is not None
    return _is_process_alive(content, (storage.uri, request_time))


def remove_heartbeat(storage: Storage, request_time: str) -> None:
    """Delete the heartbeat of an instant that was rolled back."""
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


def _is_process_alive(content: bytes, key: tuple[str, str]) -> bool:
    try:
        owner = json.loads(content)
        host, boot, space, pid, started, load = (owner[name] for name in ("host", "boot", "space", "pid", "started", "load"))
    except (ValueError, KeyError, TypeError):
        return True
    if load == _LOAD_ID and pid == os.getpid():
        with _running_mutex:
            return key in _running
    # Containers of one machine may share its host name; a process id is meaningful only in its own namespace.
    if host != socket.gethostname() or not boot or boot != boot_id() or space != pid_space():
        return True
    return started is None or start_time(pid) == started
