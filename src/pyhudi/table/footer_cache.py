"""Footers of base files, kept by an open table for its next reads.

A footer tells where a file's columns lie, and holds its key filter; it is fetched, compared with its checksum and parsed before
anything else of the file is read.  A footer that was read is used again for a file of the same path, size and time.  Whoever asks
looks at the file first, so one that is gone, or was replaced, is noticed whatever the timeline says.  Bytes that rot on the disk,
which changes neither size nor time, are noticed in pages, as ever, and in a footer once it is read again; what was parsed before
is what was written.
"""

from __future__ import annotations

from pyhudi.format.parquet.parquet_file import SplitFooter
from pyhudi.metadata_table.reader.metadata_file_cache import LruCache
from pyhudi.storage.base import FileInfo

MAX_FOOTER_BYTES = 32 << 20
"""What footers of one table take at most, their key filters included, which lookups by key ask."""


class FooterCache:
    """Footers by the files that they are of; those asked for last stay.

    Several threads may ask at once.  Pickled, it is empty.
    """

    def __init__(self) -> None:
        self._held: LruCache[FileInfo, SplitFooter] = LruCache(MAX_FOOTER_BYTES)

    def __reduce__(self) -> tuple[type[FooterCache], tuple[()]]:
        return FooterCache, ()

    def get(self, file: FileInfo) -> SplitFooter | None:
        """The footer of a file as it was just looked at; None where it is not held."""
        return self._held.get(file)

    def put(self, file: FileInfo, footer: SplitFooter) -> None:
        """Hold a footer.  file: as it was looked at before the footer was read."""
        if footer.memory_bytes <= MAX_FOOTER_BYTES:
            self._held.put(file, footer, footer.memory_bytes)
