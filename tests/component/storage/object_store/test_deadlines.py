"""Repetition of requests until the deadline of their call, against a server that answers by a script."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from pyhudi.errors import StorageUnavailable
from pyhudi.storage import Storage, open_storage
from pyhudi.storage.deadlines import within_lease
from pyhudi.storage.object_store.object_files import ObjectOutput

LISTING = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"
UPLOAD = b"<InitiateMultipartUploadResult><UploadId>7</UploadId></InitiateMultipartUploadResult>"
UNKNOWN = b"<Error><Code>NoSuchUpload</Code></Error>"


class Server(BaseHTTPRequestHandler):
    """A bucket with one object.

    faults: for the next requests, a status, "short", "reset" or "hang". mark: of the object. requests: methods and paths.
    """

    faults: ClassVar[list[int | str]] = []
    requests: ClassVar[list[str]] = []
    data: ClassVar[dict[str, bytes]] = {}
    mark: ClassVar[list[str]] = []
    stored_parts: ClassVar[list[bytes]] = []
    over = threading.Event()
    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.requests.append(f"{self.command} {self.path}")
        if "list-type" in self.path:
            return self.reply(200, LISTING)
        if self.command == "POST" and "?uploads" in self.path:
            self.mark[:] = [self.headers.get("x-amz-meta-pyhudiput") or ""]
            return self.reply(200, UPLOAD)
        if self.command == "POST" and "uploadId" in self.path:
            if self.stored_parts:
                self.data["f"] = b"".join(self.stored_parts)
                self.stored_parts.clear()
                return self.reply(200, b"<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>")
            return self.reply(404, UNKNOWN)
        if self.command == "PUT":
            (self.stored_parts.append if "uploadId" in self.path else lambda data: self.data.update(f=data))(body)
            return self.reply(200, b"")
        return self.reply(200, self.data["f"])

    def reply(self, status: int, body: bytes) -> None:
        is_upload = "uploads" in self.path or "partNumber" in self.path
        fault = None if is_upload or not self.faults else self.faults.pop(0)
        if fault == "hang":
            self.over.wait(60)
        if fault in ("reset", "hang"):
            self.close_connection = True
            return
        if isinstance(fault, int):
            status, body = fault, b""
        first, _, last = (self.headers.get("Range") or "").removeprefix("bytes=").partition("-")
        begin = 0
        if status == 200 and (first or last):
            size = len(body)
            begin = int(first) if first else max(0, size - int(last))
            body = body[begin : int(last) + 1 if first else size]
            status = 206
        self.send_response(status)
        if status == 206:
            self.send_header("Content-Range", f"bytes {begin}-{begin + len(body) - 1}/{len(self.data['f'])}")
        self.send_header("ETag", '"x"')
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        if self.mark and self.command in ("GET", "HEAD"):
            self.send_header("x-amz-meta-pyhudiput", self.mark[0])
        sent = body[:-1] if fault == "short" else body
        # A whole object that ends short breaks its announced length, a range only its range: the bytes that a proxy has.
        self.send_header("Content-Length", str(len(sent if status == 206 else body)))
        self.close_connection = sent != body
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(sent)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = answer

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def server() -> Iterator[tuple[Storage, type[Server]]]:
    lists: dict[str, Any] = {"faults": [], "requests": [], "mark": [], "stored_parts": []}
    state: dict[str, Any] = {**lists, "data": {"f": b"content"}, "over": threading.Event()}
    handler = type("Scripted", (Server,), state)
    listener = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    listener.daemon_threads = True
    threading.Thread(target=listener.serve_forever, args=(0.01,), daemon=True).start()
    options = {
        "endpoint": f"http://127.0.0.1:{listener.server_address[1]}",
        "access_key_id": "a",
        "secret_access_key": "b",
        "timeout": "200ms",
        "call_timeout": "20s",
    }
    yield open_storage("s3://bucket/t", options), handler
    state["over"].set()
    listener.shutdown()
    listener.server_close()


def put(storage: Storage) -> bool:
    storage.put("f", b"content")
    return storage.read("f") == b"content"


CALLS: dict[str, Callable[[Storage], object]] = {
    "read": lambda storage: storage.read("f") == b"content",
    "read_range": lambda storage: storage.read_range("f", 1, 3) == b"ont",
    "read_versioned": lambda storage: (storage.read_versioned("f") or (b"", ""))[0] == b"content",
    "open_input": lambda storage: storage.open_input("f").read() == b"content",
    "stat": lambda storage: storage.stat("f"),
    "list": lambda storage: storage.list("") is not None,
    "put": put,
}


@pytest.mark.parametrize("fault", [503, 429, "reset", "hang", "short"])
@pytest.mark.parametrize("name", CALLS)
def test_requests_are_repeated(server: tuple[Storage, type[Server]], name: str, fault: int | str) -> None:
    storage, handler = server
    if fault == "short" and name in ("stat", "put"):
        # Answers without a body.
        return
    handler.faults[:] = [fault, fault]
    assert CALLS[name](storage)
    assert len(handler.requests) == 3 + (name == "put")


def test_a_call_ends_at_its_deadline(server: tuple[Storage, type[Server]]) -> None:
    storage, handler = server
    hasty = open_storage("s3://bucket/t", {**dict(storage.spec().options), "timeout": "100ms", "call_timeout": "400ms"})
    handler.faults[:] = ["hang"] * 100
    with pytest.raises(StorageUnavailable, match=r"no answer within|f"):
        hasty.read("f")
    assert 2 <= len(handler.requests) <= 10


def test_a_body_that_stays_short_is_no_content(server: tuple[Storage, type[Server]]) -> None:
    storage, handler = server
    once = open_storage("s3://bucket/t", {**dict(storage.spec().options), "max_retries": "1"})
    handler.faults[:] = ["short"] * 9
    with pytest.raises(StorageUnavailable):
        once.read_range("f", 0, 4)


def test_lost_answer_of_a_complete_upload_is_no_error(server: tuple[Storage, type[Server]]) -> None:
    storage, handler = server
    content = bytes(9 << 20)
    handler.faults[:] = ["reset"]
    with storage.open_output("f") as sink:
        sink.write(pa.py_buffer(content))
    assert len(handler.data["f"]) == len(content)
    assert sum("uploadId" in line and line.startswith("POST") for line in handler.requests) >= 2


def test_an_upload_that_another_writer_overtook_is_unavailable(server: tuple[Storage, type[Server]]) -> None:
    """The object there has another mark."""
    storage, handler = server
    output = storage.open_output("f")
    assert isinstance(output, ObjectOutput)
    with pytest.raises(StorageUnavailable, match="does not know the upload"), output as sink:
        sink.write(pa.py_buffer(bytes(9 << 20)))
        sink.flush()
        handler.faults[:] = ["reset"]
        output._mark = "another"


def test_no_change_is_sent_after_the_lease(server: tuple[Storage, type[Server]]) -> None:
    storage, handler = server
    with within_lease(lambda: 0):
        with pytest.raises(StorageUnavailable, match="lock expired"):
            storage.put("f", b"1")
        assert storage.read("f") == b"content"
    assert not any(line.startswith("PUT") for line in handler.requests)


def test_a_change_is_not_awaited_beyond_the_lease(server: tuple[Storage, type[Server]]) -> None:
    storage, handler = server
    left_ms = iter([200, 200])
    handler.faults[:] = ["hang"] * 9
    with within_lease(lambda: next(left_ms, 0)), pytest.raises(StorageUnavailable):
        storage.put("f", b"1")
    assert len(handler.requests) <= 2
