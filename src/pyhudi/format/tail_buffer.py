"""Sink that buffers the end of a file, so that the footer written by Arrow can be changed before it is stored."""

from __future__ import annotations

import io
from typing import Any, Protocol


class Sink(Protocol):
    """Destination of bytes."""

    def write(self, data: bytes, /) -> object: ...


_GATHERED_BYTES = 1 << 16


class TailBufferSink(io.RawIOBase):
    """Sink that passes bytes through until buffering starts; small pieces are gathered into fewer writes."""

    def __init__(self, sink: Sink) -> None:
        super().__init__()
        self._sink = sink
        self._holds = False
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
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
            self._gathered.append(piece)
            self._gathered_bytes += len(piece)
            if self._gathered_bytes >= _GATHERED_BYTES:
                self.flush_pieces()
        return len(piece)

    def flush_pieces(self) -> None:
        """Write gathered pieces to the sink."""
        if self._gathered:
            self._sink.write(self._gathered[0] if len(self._gathered) == 1 else b"".join(self._gathered))
            self._gathered, self._gathered_bytes = [], 0

    def tell(self) -> int:
        return self._size

    @property
    def buffered(self) -> bytes:
        """Return the bytes written since `start_buffering`."""
        return b"".join(self._parts)

    def start_buffering(self, *, discards: bool = False) -> None:
        """Buffer all bytes from now on, and drop gathered ones if the file is discarded."""
        if not discards:
            self.flush_pieces()
        self._holds = True

    def release(self, data: bytes) -> None:
        """Write these bytes to the sink in place of the buffered ones."""
        self._sink.write(data)
        self._parts = []
