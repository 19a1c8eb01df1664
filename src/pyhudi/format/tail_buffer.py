"""A sink that holds back the end of a file, for writers of Arrow whose last bytes are changed before they are stored."""

from __future__ import annotations

import io
from typing import Any, Protocol


class Sink(Protocol):
    """Where bytes go."""

    def write(self, data: bytes, /) -> object: ...


class TailBufferSink(io.RawIOBase):
    """A sink that lets bytes through until it is told to hold them."""

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
        """What came since `start_buffering`."""
        return b"".join(self._parts)

    def start_buffering(self) -> None:
        """From now on nothing gets through."""
        self._holds = True

    def release(self, data: bytes) -> None:
        """Let these bytes through in the place of those that are held."""
        self._sink.write(data)
        self._parts = []
