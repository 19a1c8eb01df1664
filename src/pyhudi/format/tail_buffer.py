"""Sink that buffers the end of a file, so that the footer written by Arrow can be changed before it is stored."""

from __future__ import annotations

import io
from typing import Any, Protocol


class Sink(Protocol):
    """Destination of bytes."""

    def write(self, data: bytes, /) -> object: ...


class TailBufferSink(io.RawIOBase):
    """Sink that passes bytes through until buffering starts."""

    def __init__(self, sink: Sink) -> None:
        super().__init__()
        self._sink = sink
        self._holds = False
        self._parts: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        piece = bytes(data)
        self._size += len(piece)
        if self._holds:
            self._parts.append(piece)
        else:
            self._sink.write(piece)
        return len(piece)

    def tell(self) -> int:
        return self._size

    @property
    def buffered(self) -> bytes:
        """Return the bytes written since `start_buffering`."""
        return b"".join(self._parts)

    def start_buffering(self) -> None:
        """Buffer all bytes from now on."""
        self._holds = True

    def release(self, data: bytes) -> None:
        """Write these bytes to the sink in place of the buffered ones."""
        self._sink.write(data)
        self._parts = []
