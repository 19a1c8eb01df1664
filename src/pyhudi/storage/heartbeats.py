"""Heartbeats: how a writer says that it is alive, so that others do not roll its instant back.

The file `.hoodie/.heartbeat/<request time>` holds what `storage.liveness` puts there (real Hudi's is empty and never read); its
modification time is the heartbeat.  The writer replaces it each interval and deletes it when its instant is complete or rolled
back.  A writer counts as dead when the file is older than `interval * tolerable misses`, or absent; one that was silent for
so long beats no more, and gives up.  Real Hudi uses it with the LAZY policy for failed writes only.

What this does not do: it decides no rollback, and compares the store's clock with ours without correcting either.
"""

from __future__ import annotations

import logging
import math
import os
import threading
from dataclasses import dataclass
from typing import Annotated

from pyhudi.errors import HudiError, WriteConflict
from pyhudi.format.paths import HEARTBEAT_FOLDER
from pyhudi.options.declaration import Option, Options, read_settings
from pyhudi.storage.base import Storage
from pyhudi.storage.environment import Environment, Repetition

_LOG = logging.getLogger("pyhudi.storage.heartbeats")


@dataclass(frozen=True, slots=True)
class HeartbeatSettings:
    """interval_ms: between two beats; tolerable_misses: how many may fail before the writer counts as dead."""

    interval_ms: Annotated[
        int, Option("hoodie.client.heartbeat.interval_in_ms", int, "60000", "milliseconds between two heartbeats of a writer")
    ] = 60_000
    tolerable_misses: Annotated[
        int,
        Option("hoodie.client.heartbeat.tolerable.misses", int, "2", "heartbeats that may fail before a writer counts as dead"),
    ] = 2

    @classmethod
    def of(cls, options: Options) -> HeartbeatSettings:
        """From checked options."""
        return read_settings(cls, options)

    @property
    def expiry_ms(self) -> int:
        """The age at which a heartbeat has expired."""
        return self.interval_ms * self.tolerable_misses


class Heartbeat:
    """The heartbeat of one instant of ours.  In a child of fork it is the parent's: nothing there beats or removes it."""

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
        # No beat may follow the deletion at the end, or the instant would look alive for ever.
        self._mutex = threading.Lock()

    def start(self) -> None:
        """Beat once, now, and from then on each interval.  Raises when the first beat cannot be written."""
        self._beat()
        self._repetition = self._env.every_ms(self._settings.interval_ms, self._beat_quietly)

    def check(self) -> None:
        """Call it before publishing: raises WriteConflict when others may have taken this writer for dead."""
        if self._process != os.getpid():
            raise WriteConflict(
                f"instant {self._request_time} is written by process {self._process}, from which this one was forked; "
                "leave it to that one",
                instants=(self._request_time,),
            )
        silent_ms = self._silent_ms()
        if silent_ms > self._settings.expiry_ms:
            how_long = "yet" if self._beaten_ms is None else f"for {silent_ms} ms"
            raise WriteConflict(
                f"instant {self._request_time} has had no heartbeat {how_long}: "
                "another writer may have rolled it back; write again",
                instants=(self._request_time,),
            )

    def stop(self, *, delete: bool = True) -> None:
        """Beat no more.  delete: also remove the file, as after a commit or a rollback."""
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
        # Nobody stands above this to hear an error; `check` sees that the last beat is too long ago.
        with self._mutex:
            repetition = self._repetition
            if repetition is None:
                return
            if self._silent_ms() > self._settings.expiry_ms:
                # Others may have taken over what this writer did, and another beat would be taken for one of theirs.
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
    """When the writer of an instant was last heard of, epoch milliseconds by the store's clock; None when there is no file."""
    found = storage.stat(heartbeat_path(request_time))
    return None if found is None else found.modified_ms


def heartbeat_expired(
    storage: Storage, request_time: str, now_ms: int, settings: HeartbeatSettings = HeartbeatSettings()
) -> bool:
    """Whether the writer of an instant counts as dead.  Without a heartbeat file it does."""
    beaten_ms = last_heartbeat_ms(storage, request_time)
    return beaten_ms is None or now_ms - beaten_ms > settings.expiry_ms


def list_heartbeats(storage: Storage) -> tuple[str, ...]:
    """The request times that have a heartbeat file, ascending, expired or not."""
    return tuple(info.name for info in storage.list(HEARTBEAT_FOLDER).files)


def delete_heartbeat(storage: Storage, request_time: str) -> None:
    """Remove an instant's heartbeat file, as after its rollback; one that is absent is not an error."""
    storage.delete([heartbeat_path(request_time)])
