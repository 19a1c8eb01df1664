"""Reading objects by ranges and writing them by multipart uploads, for Arrow."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import obstore
import pyarrow as pa
from obstore.exceptions import NotFoundError

from pyhudi.errors import StorageUnavailable, TableState, Unsupported
from pyhudi.storage.object_store.object_errors import is_lost_answer, store_error
from pyhudi.storage.object_store.object_options import PART_BYTES
from pyhudi.storage.object_store.object_requests import CLIENT_ERRORS, ObjectClients
from pyhudi.storage.range_file import TAIL_BYTES, UploadSink

MARK = "pyhudiput"
"""Name of the user metadata by which a call recognizes the object that it wrote."""

_PARTS_AT_ONCE = 4


def check_length(uri: str, found: int, expected: int) -> None:
    """Raise StorageUnavailable for an answer that ends short: it is read again."""
    if found != expected:
        raise StorageUnavailable(f"cannot read {uri}: the answer ended after {found} of {expected} bytes")


def find_marked(clients: ObjectClients, key: str, uri: str, mark: str) -> Mapping[str, Any] | None:
    """Return the metadata of an object if it has the mark, for a call whose answer was lost; else None."""

    async def get(client: Any) -> Mapping[str, Any] | None:
        stored = await obstore.get_async(client, key, options={"head": True})
        return stored.meta if stored.attributes.get(MARK) == mark else None

    try:
        return clients.with_short_deadline().call("get the status of", uri, get)
    except TableState:
        return None


class ObjectRanges:
    """The bytes of one object, for a `RangeReader`."""

    def __init__(self, clients: ObjectClients, key: str, uri: str) -> None:
        self._clients = clients
        self._key = key
        self._uri = uri

    def open(self) -> tuple[int, bytes]:
        try:
            return self._get({"suffix": TAIL_BYTES}, TAIL_BYTES)
        except (StorageUnavailable, Unsupported) as failure:
            if is_lost_answer(failure):
                raise
            # An empty object has no suffix range, and Azure does not support one.  A real failure occurs again.
            meta = self._clients.call("read", self._uri, lambda client: obstore.head_async(client, self._key))
            return meta["size"], b""

    def read(self, start: int, length: int) -> tuple[int, bytes]:
        """The size of the object, and at most `length` bytes from `start`.

        Raises:
            StorageUnavailable: Also if the object ends before `start`.
        """
        return self._get((start, start + length), length)

    def fetch(self, start: int, length: int) -> bytes:
        starts = list(range(start, start + length, PART_BYTES))
        ends = [min(begin + PART_BYTES, start + length) for begin in starts]

        async def get(client: Any) -> bytes:
            # No coalescing: the parts were split from one range to be fetched concurrently.
            parts = await obstore.get_ranges_async(client, self._key, starts=starts, ends=ends, coalesce=0)
            data = b"".join(parts) if len(parts) > 1 else bytes(parts[0])
            check_length(self._uri, len(data), length)
            return data

        return self._clients.call("read", self._uri, get, length)

    def _get(self, range_: Any, length: int) -> tuple[int, bytes]:
        async def get(client: Any) -> tuple[int, bytes]:
            response = await obstore.get_async(client, self._key, options={"range": range_})
            data = bytes(await response.bytes_async())
            begin, end = response.range
            check_length(self._uri, len(data), end - begin)
            return response.meta["size"], data

        return self._clients.call("read", self._uri, get, length)


class ObjectOutput:
    """The context manager of `open_output`: a multipart upload that is completed only if the block ends without an error."""

    def __init__(self, clients: ObjectClients, key: str, uri: str) -> None:
        self._clients = clients
        self._key = key
        self._uri = uri
        self._mark = uuid.uuid4().hex
        self._upload: Any = None
        self._sink: pa.NativeFile | None = None

    def __enter__(self) -> pa.NativeFile:
        self._upload = obstore.open_writer(
            self._clients.uploads,
            self._key,
            buffer_size=PART_BYTES,
            max_concurrency=_PARTS_AT_ONCE,
            attributes={MARK: self._mark},
        )
        self._sink = pa.PythonFile(UploadSink(self._send), mode="w")
        return self._sink

    def _send(self, block: memoryview) -> None:
        try:
            self._upload.write(block)
        except CLIENT_ERRORS as error:
            raise self._failure(error) from error

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._sink is not None
        upload, self._upload = self._upload, None
        self._sink.close()
        if kind is not None:
            return
        try:
            upload.close()
        except CLIENT_ERRORS as failure:
            # The answer to the request that completes the upload may be lost. Repeated, it fails: the upload is over.
            if find_marked(self._clients, self._key, self._uri, self._mark) is None:
                raise self._failure(failure) from failure

    def _failure(self, error: BaseException) -> Exception:
        failure = store_error(error, "write", self._uri)
        if isinstance(failure, TableState) or isinstance(error, NotFoundError):
            return StorageUnavailable(f"cannot write {self._uri}: the store does not know the upload. Write the file again")
        return failure
