"""Files in HDFS as Arrow writes them."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from pyhudi.storage.hdfs_http import Upload


class UploadWriter(io.RawIOBase):
    """What Arrow writes into; the end of the upload is left to whoever began it."""

    def __init__(self, upload: Upload, translated: Callable[[], AbstractContextManager[None]]) -> None:
        super().__init__()
        self._upload = upload
        self._translated = translated
        self._position = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: Any) -> int:
        # Arrow's buffers say that they hold signed bytes.
        block = memoryview(data).cast("B")
        with self._translated():
            self._upload.write(block)
        self._position += block.nbytes
        return block.nbytes
