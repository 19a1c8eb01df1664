"""Seekable file over ranged requests, for Arrow's readers, and a sink that passes blocks to an upload."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, Protocol

TAIL_BYTES = 64 * 1024
"""Bytes at the end of a file that opening it fetches: Parquet and HFile readers begin there."""

_READ_AHEAD_BYTES = 128 * 1024


class Ranges(Protocol):
    """Ranged access to the bytes of one file."""

    def open(self) -> tuple[int, bytes]:
        """The file's size and the last bytes that were fetched with it.  Raises TableState if there is no such file."""
        ...

    def fetch(self, start: int, length: int) -> bytes:
        """`length` bytes (at least 1) within the file.  Raises StorageUnavailable if the store returns fewer."""
        ...


class RangeReader(io.RawIOBase):
    """A seekable file over ranged reads.  Arrow wraps it and never calls it from two threads at once.

    It caches the file's tail and one read-ahead window; a read outside of both costs one request.
    """

    def __init__(self, ranges: Ranges) -> None:
        super().__init__()
        self._ranges = ranges
        self._position = 0
        self._size_bytes, self._tail = ranges.open()
        self._tail_start = self._size_bytes - len(self._tail)
        self._window = memoryview(b"")
        self._window_start = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def size(self) -> int:
        return self._size_bytes

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}[whence]
        self._position = max(0, base + offset)
        return self._position

    def read(self, length: int | None = -1) -> bytes:
        remaining = max(0, self._size_bytes - self._position)
        length = remaining if length is None or length < 0 else min(length, remaining)
        if not length:
            return b""
        data = self._range(self._position, length)
        self._position += length
        return data

    def readall(self) -> bytes:
        return self.read(-1)

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _range(self, start: int, length: int) -> bytes:
        if start >= self._tail_start:
            return self._tail[start - self._tail_start :][:length]
        offset = start - self._window_start
        if not (offset >= 0 and offset + length <= len(self._window)):
            if length >= _READ_AHEAD_BYTES:
                return self._ranges.fetch(start, length)
            self._window = memoryview(self._ranges.fetch(start, min(_READ_AHEAD_BYTES, self._size_bytes - start)))
            self._window_start, offset = start, 0
        return bytes(self._window[offset : offset + length])


# Output files of Arrow's writers, uploaded block by block.


class UploadSink(io.RawIOBase):
    """Sink for Arrow's writers that passes each block to an upload; the creator completes the upload.

    send: receives each block, and raises PyHudi's errors.
    """

    def __init__(self, send: Callable[[memoryview], object]) -> None:
        super().__init__()
        self._send = send
        self._position = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: Any) -> int:
        # Arrow's buffers have signed bytes, which uploads do not accept.
        block = memoryview(data).cast("B")
        self._send(block)
        self._position += block.nbytes
        return block.nbytes
