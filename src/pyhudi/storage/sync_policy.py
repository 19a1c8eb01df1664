"""What the local file system storage syncs to disk."""

from __future__ import annotations

import re
from enum import StrEnum

from pyhudi.format.paths import (
    GROUP_FOLDER,
    HEARTBEAT_FOLDER,
    LOCK_FOLDER,
    MARKER_FOLDER,
    META_FOLDER,
    METADATA_FOLDER,
    STAGED_FOLDER,
)

_PROCESS_FOLDERS = (LOCK_FOLDER, HEARTBEAT_FOLDER)
_SCRATCH = re.compile(f"/(?:{'|'.join(map(re.escape, (*_PROCESS_FOLDERS, MARKER_FOLDER, GROUP_FOLDER, STAGED_FOLDER)))})(?:/|$)")


class Sync(StrEnum):
    """What is synced to disk before a call returns: the storage option `sync`.  NONE is for tests and scratch tables.

    ALL, the default, syncs every file, and deletions outside scratch folders. DOCUMENTS syncs the writes of `put`,
    `put_if_absent` and `put_if_matches`, and the merged files of the timeline's history: the whole timeline. After a power
    failure the timeline is complete, but data files of the last seconds may not be, as in Hudi, and deleted files may be back.
    """

    ALL = "all"
    DOCUMENTS = "documents"
    NONE = "none"


def is_of_process(folder: str) -> bool:
    """Return True for the folders of leases and heartbeats, which are not synced.

    After a power failure the processes that wrote them are dead, and any earlier content has the same effect. A lease
    without content expires (`storage.locks.storage_lease`); a heartbeat without content counts until it is too old.
    """
    return folder.endswith(_PROCESS_FOLDERS)


def is_document(full: str) -> bool:
    """Return True for files of the timeline that are written as data files: the merged files of its history."""
    table, _, path = full.rpartition(f"/{META_FOLDER}/")
    return bool(table) and not path.startswith((".", METADATA_FOLDER.removeprefix(f"{META_FOLDER}/") + "/"))


def is_scratch(folder: str) -> bool:
    """Return True for folders whose deleted files change no read if a power failure brings them back."""
    return _SCRATCH.search(folder) is not None
