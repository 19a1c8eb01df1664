"""A network that is cut and mended: a relay on this machine between a client and its server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit


class Relay:
    """Passes bytes between those who connect to `port` and the server at host and port, until it is cut."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._mutex = threading.Lock()
        self._open: set[socket.socket] = set()
        self._is_cut = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Existing connections are closed, and new ones are closed at once."""
        with self._mutex:
            self._is_cut = True
            torn, self._open = self._open, set()
        for each in torn:
            _tear(each)

    def mend(self) -> None:
        """New connections are forwarded from now on."""
        with self._mutex:
            self._is_cut = False

    def close(self) -> None:
        self.cut()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._mutex:
                if self._is_cut:
                    _tear(client)
                    continue
                server = socket.create_connection(self._server)
                self._open |= {client, server}
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=self._pass_on, args=(one, other), daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65_536):
                other.sendall(data)
        with self._mutex:
            self._open -= {one, other}
        _tear(one)
        _tear(other)


def _tear(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


@contextmanager
def relay_to(endpoint: str) -> Iterator[Relay]:
    """A relay to a server, given by its URL."""
    parts = urlsplit(endpoint)
    assert parts.hostname is not None and parts.port is not None
    relay = Relay(parts.hostname, parts.port)
    try:
        yield relay
    finally:
        relay.close()
