"""Reading objects by ranges and writing them by multipart uploads, for Arrow."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import obstore
import pyarrow as pa
from obstore.exceptions import BaseError, NotFoundError

from pyhudi.errors import StorageUnavailable
from pyhudi.storage.object_store.object_errors import store_error
from pyhudi.storage.range_file import TAIL_BYTES, UploadSink

_PART_BYTES = 8 * 1024 * 1024
_PARTS_AT_ONCE = 4


class ObjectRanges:
    """The bytes of one object, for a `RangeReader`."""

    def __init__(self, store: Any, key: str, uri: str) -> None:
        self._store = store
        self._key = key
        self._uri = uri

    def open(self) -> tuple[int, bytes]:
        try:
            try:
                response = obstore.get(self._store, self._key, options={"range": {"suffix": TAIL_BYTES}})
                return response.meta["size"], bytes(response.bytes())
            except (FileNotFoundError, NotFoundError):
                raise
            except (BaseError, OSError, ValueError):
                # An empty object has no suffix range, and Azure does not support one.  A real failure occurs again.
                return obstore.head(self._store, self._key)["size"], b""
        except (BaseError, OSError, ValueError) as error:
            raise store_error(error, "read", self._uri) from error

    def fetch(self, start: int, length: int) -> bytes:
        starts = list(range(start, start + length, _PART_BYTES))
        ends = [min(begin + _PART_BYTES, start + length) for begin in starts]
        try:
            # No coalescing: the parts were split from one range to be fetched concurrently.
            parts = obstore.get_ranges(self._store, self._key, starts=starts, ends=ends, coalesce=0)
        except (BaseError, OSError, ValueError) as error:
            raise store_error(error, "read", self._uri) from error
        data = b"".join(parts) if len(parts) > 1 else bytes(parts[0])
        if len(data) != length:
            raise StorageUnavailable(f"{self._uri}: requested {length} bytes at {start}, received {len(data)}")
        return data


class ObjectOutput:
    """The context manager of `open_output`: a multipart upload that is completed only if the block ends without an error."""

    def __init__(self, store: Any, key: str, uri: str) -> None:
        self._store = store
        self._key = key
        self._uri = uri
        self._upload: Any = None
        self._sink: pa.NativeFile | None = None

    def __enter__(self) -> pa.NativeFile:
        self._upload = obstore.open_writer(self._store, self._key, buffer_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE)
        self._sink = pa.PythonFile(UploadSink(self._send), mode="w")
        return self._sink

    def _send(self, block: memoryview) -> None:
        try:
            self._upload.write(block)
        except (BaseError, OSError, ValueError) as error:
            raise store_error(error, "write", self._uri) from error

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._sink is not None
        upload, self._upload = self._upload, None
        self._sink.close()
        if kind is None:
            try:
                upload.close()
            except (BaseError, OSError, ValueError) as failure:
                raise store_error(failure, "write", self._uri) from failure
