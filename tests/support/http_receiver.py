"""An HTTP server of a test, which keeps the requests that it gets and answers with the status codes that the test chose."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class HttpRequest:
    """One request."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass
class HttpReceiver:
    """The server.  statuses: codes of the next answers, 200 after them."""

    url: str
    requests: list[HttpRequest] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


@contextmanager
def http_receiver() -> Iterator[HttpReceiver]:
    """Run a server on the loopback interface."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            receiver.requests.append(HttpRequest(self.command, self.path, dict(self.headers), body))
            status = receiver.statuses.pop(0) if receiver.statuses else 200
            self.send_response(status)
            if status in (301, 302, 307):
                self.send_header("Location", f"{receiver.url}/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST = do_PUT = do_DELETE = _answer

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver = HttpReceiver(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
