"""Requests find the active NameNode, also when it changes between two requests."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from pyhudi.errors import StorageUnavailable
from pyhudi.storage.deadlines import CallLimits, within_lease
from pyhudi.storage.hdfs.webhdfs_client import HdfsClient
from pyhudi.storage.hdfs.webhdfs_http import NoResponse, RemoteError

STATUS = {"FileStatus": {"pathSuffix": "", "type": "FILE", "length": 3, "modificationTime": 7, "fileId": 1}}


class NameNode:
    """The HTTP server of a NameNode: `says` is its response, the name of an exception, or None for a closed connection."""

    def __init__(self, response: str | None = "") -> None:
        self.response = response
        self.asked: list[str] = []
        # For the next requests: a status without a body, or "short" for a body that ends early.
        self.faults: list[int | str] = []
        node = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                node.asked.append(self.path)
                fault = node.faults.pop(0) if node.faults else None
                if isinstance(fault, int):
                    self.send_response(fault)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                if "op=OPEN" in self.path:
                    content = b"conten" if fault == "short" else b"content"
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)
                    return
                if node.response is None:
                    self.close_connection = True
                    return
                failure: dict[str, Any] = {"RemoteException": {"exception": node.response, "message": "not now"}}
                body = json.dumps(failure if node.response else STATUS).encode()
                self.send_response(403 if node.response else 200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_PUT = do_GET

            def log_message(self, *_: object) -> None:
                """Nothing is printed."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture
def nodes() -> Iterator[tuple[NameNode, NameNode]]:
    both = NameNode("StandbyException"), NameNode()
    yield both
    for node in both:
        node.server.shutdown()
        node.server.server_close()


def client(*addresses: str) -> HdfsClient:
    return HdfsClient(addresses, "me", {}, limits=CallLimits(call_s=20, repetitions=2), connect_timeout_s=5)


def test_active_name_node_is_found_and_remembered(nodes: tuple[NameNode, NameNode]) -> None:
    standby, active = nodes
    asking = client(standby.address, active.address)
    for _ in range(2):
        found = asking.status("/a")
        assert found is not None and found.size_bytes == 3
    assert (len(standby.asked), len(active.asked)) == (1, 2)


def test_a_failover_between_two_requests(nodes: tuple[NameNode, NameNode]) -> None:
    first, second = nodes
    asking = client(first.address, second.address)
    assert asking.status("/a") is not None
    first.response, second.response = "", "StandbyException"
    asking.rename("/a", "/b", replace=False)
    assert len(first.asked) == 2 and "op=RENAME" in first.asked[-1]
    # What did nothing is sent again, a rename too; what may have been done is not.
    first.response, second.response = None, ""
    with pytest.raises(NoResponse):
        asking.rename("/a", "/b", replace=False)
    assert asking.status("/a") is not None


def test_unreachable_name_node_is_skipped(nodes: tuple[NameNode, NameNode]) -> None:
    gone, active = nodes
    gone.server.shutdown()
    gone.server.server_close()
    asking = client(gone.address, active.address)
    asking.rename("/a", "/b", replace=True)
    assert len(active.asked) == 1


def test_no_active_name_node_is_an_error(nodes: tuple[NameNode, NameNode]) -> None:
    nodes[1].response = "StandbyException"
    with pytest.raises(RemoteError, match="not now"):
        client(*(node.address for node in nodes)).status("/a")
    assert len(nodes[0].asked) > 1


def test_idempotent_requests_are_repeated_while_a_gateway_is_busy(nodes: tuple[NameNode, NameNode]) -> None:
    node = nodes[1]
    node.faults[:] = [503, 502]
    assert client(node.address).status("/a") is not None
    assert len(node.asked) == 3
    node.faults[:] = [503]
    with pytest.raises(RemoteError):
        client(node.address).rename("/a", "/b", replace=False)
    assert len(node.asked) == 4


def test_a_body_that_ends_short_is_read_again(nodes: tuple[NameNode, NameNode]) -> None:
    node = nodes[1]
    node.faults[:] = ["short", "short"]
    assert client(node.address).read("/a", 0, 7) == b"content"
    node.faults[:] = ["short"] * 9
    with pytest.raises(NoResponse, match="6 of 7 bytes"):
        client(node.address).read("/a", 0, 7)


def test_no_change_is_sent_after_the_lease(nodes: tuple[NameNode, NameNode]) -> None:
    node = nodes[1]
    with within_lease(lambda: 0):
        with pytest.raises(StorageUnavailable, match="lock expired"):
            client(node.address).rename("/a", "/b", replace=True)
        assert node.asked == []
        assert client(node.address).status("/a") is not None
