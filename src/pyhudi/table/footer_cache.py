"""Footer cache of base files, reused across the reads of an open table.

A footer locates a file's columns and holds its key filter; it is fetched, verified by checksum and parsed before
anything else of the file is read. A cached footer is reused for a file of the same path, size and modification time.
Callers stat the file first, so a deleted or replaced file is detected independently of the timeline. Bit rot, which
changes neither size nor time, is detected in a footer when it is read from storage again, and in pages by their
checksums, which a file of the same path, size and modification time has verified once (`ChecksumMode`).
"""

from __future__ import annotations

from pyhudi.format.parquet.page_checks import ChecksumMode, PageChecks
from pyhudi.format.parquet.parquet_file import SplitFooter
from pyhudi.metadata_table.reader.metadata_file_cache import LruCache
from pyhudi.storage.base import FileInfo

MAX_FOOTER_BYTES = 32 << 20
"""Upper limit for the cached footers of one table, including the key filters that key lookups use."""

_MAX_CHECKED_FILES = 1 << 14


class FooterCache:
    """LRU cache of footers, and of the page checksums that were verified, by file.

    Thread-safe.  Pickled, it is empty.
    """

    def __init__(self) -> None:
        self._held: LruCache[FileInfo, SplitFooter] = LruCache(MAX_FOOTER_BYTES)
        self._checks: LruCache[FileInfo, PageChecks] = LruCache(_MAX_CHECKED_FILES)

    def __reduce__(self) -> tuple[type[FooterCache], tuple[()]]:
        return FooterCache, ()

    def get(self, file: FileInfo) -> SplitFooter | None:
        """Return the footer of a file with its current size and time; None if it is not cached."""
        return self._held.get(file)

    def put(self, file: FileInfo, footer: SplitFooter) -> None:
        """Cache a footer.  file: size and time of the file from before its footer was read."""
        if footer.memory_bytes <= MAX_FOOTER_BYTES:
            self._held.put(file, footer, footer.memory_bytes)

    def checks(self, file: FileInfo) -> PageChecks:
        """Return which pages of a file with its current size and time are still to be verified once."""
        checks = self._checks.get(file)
        if checks is None:
            checks = PageChecks(ChecksumMode.ONCE)
            self._checks.put(file, checks)
        return checks
