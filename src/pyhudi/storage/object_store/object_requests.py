"""Requests to an object store, each with a time limit, repeated until the deadline of the call.

The client's asynchronous functions run in one event loop of the process, in a thread of its own, because only they can
be cancelled: the client's own time limit is the same for all requests.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from obstore.exceptions import BaseError

from pyhudi.errors import StorageUnavailable, Unsupported
from pyhudi.storage.deadlines import CallLimits, NotRepeatable, repeated
from pyhudi.storage.object_store.object_errors import is_transient, store_error

T = TypeVar("T")

CLIENT_ERRORS = (BaseError, OSError, ValueError)
"""Exceptions of the client. A request that exceeds its time limit raises TimeoutError, which is an OSError."""


@dataclass(frozen=True, slots=True)
class ObjectClients:
    """Two clients of one bucket: `single` sends each request once, `uploads` repeats the parts of an upload by itself.

    Raises Unsupported in a forked child whose parent had sent requests: the client would wait for the parent's threads
    forever.

    Attributes:
        limits: Time limits of calls.
        endpoint: Key of the bucket among those of this process.
    """

    _single: Any
    _uploads: Any
    limits: CallLimits
    endpoint: tuple[str, ...]

    @property
    def uploads(self) -> Any:
        """The client for `obstore.open_writer`."""
        _check_client()
        return self._uploads

    def request(self, start: Callable[[Any], Awaitable[T]], timeout_s: float) -> T:
        """Send one request; raises the exceptions of the client.

        Args:
            start: Calls an asynchronous function of the client.
            timeout_s: Time limit in seconds.
        """
        _check_client()

        async def run() -> T:
            return await asyncio.wait_for(start(self._single), timeout_s)

        future = asyncio.run_coroutine_threadsafe(run(), _event_loop())
        try:
            return future.result()
        except TimeoutError:
            raise TimeoutError(f"no answer within {timeout_s:.3g} s") from None
        except BaseException:
            # An interruption (Ctrl-C) of this thread.
            future.cancel()
            raise

    def call(self, operation: str, uri: str, start: Callable[[Any], Awaitable[T]], size_bytes: int = 0) -> T:
        """Send a request until it succeeds, for requests that may take effect twice.

        Args:
            operation: "write" and "delete" for changes; for others any name, for messages.
            uri: URI of the object or prefix.
            start: As in `request`. It raises StorageUnavailable for an incomplete answer.
            size_bytes: Bytes that are transferred.

        Raises:
            TableState: There is no such object.
            StorageUnavailable: No answer until the deadline.
        """

        def send(timeout_s: float) -> T:
            try:
                return self.request(start, timeout_s)
            except CLIENT_ERRORS as error:
                failure = store_error(error, operation, uri)
                failure.__cause__ = error
                if isinstance(failure, StorageUnavailable) and is_transient(error):
                    raise failure from error
                raise NotRepeatable from failure

        return repeated(self.limits, send, size_bytes, changes=operation in ("write", "delete"))

    def with_short_deadline(self) -> ObjectClients:
        """The clients with the time limit of one request for a call, to look for the effect of a call whose deadline passed."""
        return replace(self, limits=replace(self.limits, call_s=self.limits.of_request(), request_s=None))


# The process in which the object store client was first used.
_client_process: int | None = None
_loops: dict[str, asyncio.AbstractEventLoop] = {}


def _check_client() -> None:
    global _client_process
    if _client_process is None:
        _client_process = os.getpid()
    elif _client_process != os.getpid():
        raise Unsupported(
            f"object stores cannot be used in this process: it was forked from process {_client_process}, which had used them, "
            'and their client does not survive a fork. Start processes with the method "spawn" or "forkserver"'
        )


def _event_loop() -> asyncio.AbstractEventLoop:
    """The event loop of this process.

    Without a mutex, which an interruption could leave locked. Of two loops created at once, one is used; the other idles.
    """
    loop = _loops.get("")
    if loop is None:
        created = asyncio.new_event_loop()
        threading.Thread(target=created.run_forever, name="pyhudi-object-store", daemon=True).start()
        loop = _loops.setdefault("", created)
    return loop
