"""HTTP transport of WebHDFS: connection pool, responses, redirects, chunked uploads."""

from __future__ import annotations

import http.client
import json
import os
import socket
import threading
from dataclasses import dataclass
from urllib.parse import urlsplit

_IDLE_AT_MOST = 8
_CHUNK_BYTES = 1024 * 1024
_BYTES = {"Content-Type": "application/octet-stream"}


class RemoteError(Exception):
    """Error response of HDFS.  kind: simple name of its Java exception, '' if there is none."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message or f"HTTP status {status}")
        self.status = status
        self.kind = kind


class NoResponse(Exception):
    """No server answered; whether the request was executed is unknown."""


class NotSent(NoResponse):
    """Like NoResponse, and the request was certainly not executed."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An HTTP response.

    Attributes:
        status: Status code.
        data: Body.
        location: (address, target) of a redirect.
    """

    status: int
    data: bytes
    location: tuple[str, str] | None = None


class Upload:
    """Chunked upload of a file to a DataNode.  Used by one thread."""

    def __init__(self, connection: http.client.HTTPConnection, target: str) -> None:
        self._connection = connection
        self._pending = bytearray()
        try:
            connection.putrequest("PUT", target)
            for name, value in (*_BYTES.items(), ("Transfer-Encoding", "chunked")):
                connection.putheader(name, value)
            connection.endheaders()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise NoResponse(_text(error)) from error

    def write(self, data: memoryview) -> None:
        """Send a block.  Raises RemoteError or NoResponse if the DataNode rejects it."""
        self._pending += data
        if len(self._pending) >= _CHUNK_BYTES:
            self._flush()

    def close(self) -> None:
        """Send the remaining data; on return the file is complete."""
        try:
            self._flush()
            self._send(b"0\r\n\r\n")
            answer = _answer_of(self._connection)
        finally:
            self._connection.close()
        if answer.status >= 300:
            raise remote_error(answer)

    def discard(self) -> None:
        """Abort the upload, leaving an incomplete file."""
        self._connection.close()

    def _flush(self) -> None:
        if self._pending:
            self._send(b"%x\r\n" % len(self._pending) + self._pending + b"\r\n")
            self._pending = bytearray()

    def _send(self, data: bytes | bytearray) -> None:
        try:
            self._connection.send(data)
        except (OSError, http.client.HTTPException) as error:
            # A DataNode that refuses sends the reason before it closes the connection.
            try:
                refused = _answer_of(self._connection)
            except NoResponse:
                raise NoResponse(_text(error)) from error
            raise remote_error(refused) from error


class Connections:
    """Pool of idle connections.  Per process: a forked child starts with an empty pool."""

    def __init__(self, connect_timeout_s: float) -> None:
        self._connect_timeout_s = connect_timeout_s
        self._mutex = threading.Lock()
        self._process = os.getpid()
        self._idle: dict[str, list[http.client.HTTPConnection]] = {}

    def exchange(self, address: str, target: str, method: str, data: bytes | None = None, *, timeout_s: float) -> HttpResponse:
        """Send one request and return its complete response.  Raises NoResponse."""
        connection = self._pop_idle(address, timeout_s) or self.open_new(address, timeout_s)
        try:
            connection.request(method, target, body=data, headers={} if data is None else _BYTES)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise NoResponse(f"{address}: {_text(error)}") from error
        try:
            answer = _answer_of(connection)
        except NoResponse as error:
            connection.close()
            raise NoResponse(f"{address}: {error}") from error
        if connection.sock is not None:
            self._keep(address, connection)
        return answer

    def open_new(self, address: str, timeout_s: float) -> http.client.HTTPConnection:
        """Open an exclusive connection, with a time limit for each answer.  Raises NotSent."""
        connection = http.client.HTTPConnection(address, timeout=min(self._connect_timeout_s, timeout_s))
        try:
            connection.connect()
        except (OSError, http.client.HTTPException) as error:
            raise NotSent(f"{address}: {_text(error)}") from error
        assert isinstance(connection.sock, socket.socket)
        connection.sock.settimeout(timeout_s)
        return connection

    def _pop_idle(self, address: str, timeout_s: float) -> http.client.HTTPConnection | None:
        while True:
            with self._mutex:
                if self._process != os.getpid():
                    # The parent's connections, which the parent continues to use.
                    self._process, self._idle = os.getpid(), {}
                waiting = self._idle.get(address)
                if not waiting:
                    return None
                connection = waiting.pop()
            if _is_open(connection, timeout_s):
                return connection
            connection.close()

    def _keep(self, address: str, connection: http.client.HTTPConnection) -> None:
        with self._mutex:
            waiting = self._idle.setdefault(address, [])
            if len(waiting) < _IDLE_AT_MOST:
                waiting.append(connection)
                return
        connection.close()


def _is_open(connection: http.client.HTTPConnection, timeout_s: float) -> bool:
    """Return True if an idle connection is open, and set its time limit: it has no data to read, so readable means closed."""
    waiting = connection.sock
    if waiting is None:
        return False
    waiting.settimeout(0)
    try:
        waiting.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        waiting.settimeout(timeout_s)
        return True
    except OSError:
        pass
    return False


def _answer_of(connection: http.client.HTTPConnection) -> HttpResponse:
    try:
        response = connection.getresponse()
        data = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise NoResponse(_text(error)) from error
    location = response.getheader("Location") if response.status in (301, 302, 303, 307, 308) else None
    if location is None:
        return HttpResponse(response.status, data)
    parts = urlsplit(location)
    if parts.scheme != "http":
        raise RemoteError(
            response.status,
            f"the NameNode redirects to {parts.scheme}://{parts.netloc}, and TLS is not supported",
            f"the NameNode sends to {parts.scheme}://{parts.netloc}, and TLS is not built",
        )
    return HttpResponse(response.status, data, (parts.netloc, f"{parts.path}?{parts.query}"))


def remote_error(response: HttpResponse) -> RemoteError:
    """Parse a response with status 400 or above."""
    try:
        exception = json.loads(response.data)["RemoteException"]
        return RemoteError(response.status, str(exception["exception"]), str(exception["message"]).partition("\n")[0])
    except (ValueError, KeyError, TypeError):
        return RemoteError(response.status, "", "")


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__
