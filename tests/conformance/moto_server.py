"""An S3 server on the loopback interface for the length of a test session."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def running_s3_server() -> Iterator[str]:
    """Start it as a process of its own, give its endpoint, and end it.  Skips the test where moto is not installed."""
    pytest.importorskip("moto.server")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    endpoint = f"http://127.0.0.1:{port}"
    try:
        for _ in range(150):
            try:
                with urllib.request.urlopen(f"{endpoint}/moto-api/", timeout=2):
                    break
            except OSError:
                assert process.poll() is None, "the S3 server ended at once"
                time.sleep(0.1)
        else:
            pytest.fail("the S3 server did not start within 15 seconds")
        yield endpoint
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def make_bucket(endpoint: str, name: str) -> None:
    """Create a bucket; the server asks for no credentials."""
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{name}", method="PUT"), timeout=10).close()


def s3_options(endpoint: str) -> dict[str, str]:
    """Storage options that reach the server."""
    return {
        "endpoint": endpoint,
        "aws_access_key_id": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "region": "us-east-1",
        "allow_http": "true",
    }
