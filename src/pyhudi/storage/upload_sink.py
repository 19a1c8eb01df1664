"""Files as Arrow writes them where they go to an upload, block by block."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any


class UploadSink(io.RawIOBase):
    """What Arrow writes into; the end of the upload is left to whoever began it.

    send: takes each block, and raises errors of ours.
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
        # Arrow's buffers say that they hold signed bytes, which uploads do not take.
        block = memoryview(data).cast("B")
        self._send(block)
        self._position += block.nbytes
        return block.nbytes
