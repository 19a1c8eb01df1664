"""Storage layer: files, clock, locks, heartbeats and markers.  `base` defines the contract of every storage."""

from __future__ import annotations

from pyhudi.storage.base import FileInfo, Listing, Storage, StorageSpec
from pyhudi.storage.factory import open_storage

__all__ = ["FileInfo", "Listing", "Storage", "StorageSpec", "open_storage"]
