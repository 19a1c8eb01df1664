"""An S3 server on the loopback interface for the length of a test session."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

# Requests are answered one at a time: moto looks whether an object is there and stores it in two steps, S3 in one.
_PROGRAM = """
import threading
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

answer, turn = DomainDispatcherApplication(create_backend_app), threading.Lock()

def one_at_a_time(environ, start_response):
    with turn:
        return list(answer(environ, start_response))

server = make_server("127.0.0.1", 0, one_at_a_time, threaded=True)
print(server.port, flush=True)
server.serve_forever()
"""


@contextmanager
def running_s3_server() -> Iterator[str]:
    """Start it as a process of its own, give its endpoint, and end it.  Skips the test where moto is not installed."""
    pytest.importorskip("moto.server")
    process = subprocess.Popen([sys.executable, "-c", _PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        assert port, "the S3 server ended at once"
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def make_bucket(endpoint: str, name: str) -> None:
    """Create a bucket; the server requires no credentials."""
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{name}", method="PUT"), timeout=600).close()


def s3_options(endpoint: str) -> dict[str, str]:
    """Storage options that reach the server."""
    return {
        "endpoint": endpoint,
        "aws_access_key_id": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "region": "us-east-1",
        "allow_http": "true",
    }
