"""Heartbeats of writers, which keep other writers from rolling back a live instant.

The file `.hoodie/.heartbeat/<request time>` contains the process identity written by `storage.liveness` (Hudi's file is
empty and never read). Its modification time is the heartbeat. The writer replaces it each interval, and deletes it when
its instant is complete or rolled back. A writer counts as dead if the file is missing or older than `interval *
tolerable misses`. A writer that missed that deadline stops its heartbeat and fails. Hudi uses heartbeats only with the
LAZY policy for failed writes.

This module decides no rollback.  It compares the store's clock with the local one without correcting either.
"""

from __future__ import annotations

import math
import os
import threading
from dataclasses import dataclass
from typing import Annotated

from pyhudi.errors import HudiError, WriteConflict, get_logger
from pyhudi.format.paths import HEARTBEAT_FOLDER
from pyhudi.options import write_options
from pyhudi.options.declaration import OptionSettings
from pyhudi.storage.base import Storage
from pyhudi.storage.environment import Environment, Repetition

_LOG = get_logger("pyhudi.storage.heartbeats")


@dataclass(frozen=True, slots=True)
class HeartbeatSettings(OptionSettings):
    """Heartbeat options.

    Attributes:
        interval_ms: Milliseconds between two heartbeats.
        tolerable_misses: Missed heartbeats before the writer counts as dead.
    """

    interval_ms: Annotated[int, write_options.CLIENT_HEARTBEAT_INTERVAL_IN_MS] = 60_000
    tolerable_misses: Annotated[int, write_options.CLIENT_HEARTBEAT_TOLERABLE_MISSES] = 2

    @property
    def expiry_ms(self) -> int:
        """The age at which a heartbeat has expired."""
        return self.interval_ms * self.tolerable_misses


class Heartbeat:
    """The heartbeat of one instant of this process. A forked child neither refreshes nor deletes its parent's heartbeat."""

    def __init__(
        self,
        storage: Storage,
        env: Environment,
        request_time: str,
        settings: HeartbeatSettings = HeartbeatSettings(),
        content: bytes = b"",
    ) -> None:
        self._storage = storage
        self._env = env
        self._request_time = request_time
        self._settings = settings
        self._path = heartbeat_path(request_time)
        self._content = content
        self._beaten_ms: int | None = None
        self._repetition: Repetition | None = None
        self._process = os.getpid()
        # No heartbeat may follow the deletion at the end, or the instant would appear alive forever.
        self._mutex = threading.Lock()

    def start(self) -> None:
        """Write the first heartbeat and repeat it each interval.  Raises if the first one cannot be written."""
        self._beat()
        self._repetition = self._env.every_ms(self._settings.interval_ms, self._beat_quietly)

    def check(self) -> None:
        """Verify before publishing that no other writer may have considered this writer dead.

        Raises:
            WriteConflict: The heartbeat expired, or this is a forked child of the writer.
        """
        if self._process != os.getpid():
            raise WriteConflict(
                f"instant {self._request_time} belongs to process {self._process}, the parent of this forked process: "
                "complete it in the parent",
                instants=(self._request_time,),
            )
        silent_ms = self._silent_ms()
        if silent_ms > self._settings.expiry_ms:
            how_long = "yet" if self._beaten_ms is None else f"for {silent_ms} ms"
            raise WriteConflict(
                f"instant {self._request_time} has had no heartbeat {how_long}: "
                "another writer may have rolled it back. Retry the write",
                instants=(self._request_time,),
            )

    def stop(self, *, delete: bool = True) -> None:
        """Stop the heartbeat.  delete: also delete its file, as after a commit or a rollback."""
        if self._process != os.getpid():
            return
        with self._mutex:
            if self._repetition is not None:
                self._repetition.stop()
                self._repetition = None
            if delete:
                self._storage.delete([self._path])

    def _silent_ms(self) -> float:
        return math.inf if self._beaten_ms is None else self._env.monotonic_ms() - self._beaten_ms

    def _beat(self) -> None:
        begun_ms = self._env.monotonic_ms()
        self._storage.put(self._path, self._content)
        self._beaten_ms = begun_ms

    def _beat_quietly(self) -> None:
        # Errors in this thread have no caller to receive them; `check` detects that the last heartbeat is too old.
        with self._mutex:
            repetition = self._repetition
            if repetition is None:
                return
            if self._silent_ms() > self._settings.expiry_ms:
                # Another writer may have taken over this instant, and would mistake another heartbeat for its own.
                _LOG.warning("instant %s: heartbeats end: the last one was too long ago", self._request_time)
                repetition.stop()
                return
            try:
                self._beat()
            except HudiError as error:
                _LOG.warning("instant %s: no heartbeat: %s", self._request_time, error)
            except BaseException as error:
                _LOG.warning("instant %s: heartbeats end: %r", self._request_time, error)
                repetition.stop()


def heartbeat_path(request_time: str) -> str:
    """The path of an instant's heartbeat file, relative to the table."""
    return f"{HEARTBEAT_FOLDER}/{request_time}"


def last_heartbeat_ms(storage: Storage, request_time: str) -> int | None:
    """Time of the last heartbeat of an instant, in epoch milliseconds by the store's clock; None if there is no file."""
    info = storage.stat(heartbeat_path(request_time))
    return None if info is None else info.modified_ms


def heartbeat_expired(
    storage: Storage, request_time: str, now_ms: int, settings: HeartbeatSettings = HeartbeatSettings()
) -> bool:
    """Return True if the writer of an instant counts as dead, which includes a missing heartbeat file."""
    beaten_ms = last_heartbeat_ms(storage, request_time)
    return beaten_ms is None or now_ms - beaten_ms > settings.expiry_ms


def list_heartbeats(storage: Storage) -> tuple[str, ...]:
    """The request times that have a heartbeat file, ascending, expired or not."""
    return storage.names(HEARTBEAT_FOLDER)


def delete_heartbeat(storage: Storage, request_time: str) -> None:
    """Delete an instant's heartbeat file, as after its rollback; a missing one is ignored."""
    storage.delete([heartbeat_path(request_time)])
