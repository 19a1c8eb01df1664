"""The only door to the outside: files, clock, locks.  base.py has the contract."""

from __future__ import annotations

from pyhudi.storage.base import FileInfo, Listing, Storage, StorageSpec
from pyhudi.storage.factory import open_storage

__all__ = ["FileInfo", "Listing", "Storage", "StorageSpec", "open_storage"]
