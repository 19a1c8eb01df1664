"""Notice of a writer that retains the lock for an exclusive write, read by writers that wait for it (see `retained_lock`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyhudi.errors import HudiError
from pyhudi.format.paths import LOCK_FOLDER
from pyhudi.storage.base import Storage
from pyhudi.storage.process_identity import Process

# JSON objects in the files of locks.


def json_fields(data: bytes) -> Mapping[str, Any]:
    """The fields of a JSON object; empty if the bytes are not one."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


HOLD_NOTICE_PATH = f"{LOCK_FOLDER}/turn.json"

MAX_HOLD_MS = 24 * 3_600_000
"""Upper limit of a hold; a notice with a larger value is invalid."""


@dataclass(frozen=True, slots=True)
class HoldNotice:
    """A notice.

    Attributes:
        owner: Identity of the process.
        hold_id: Unique id.
        longest_ms: How long the lock may be held, from the start of the hold.
    """

    owner: str
    hold_id: str
    longest_ms: int

    @classmethod
    def for_this_process(cls, hold_id: str, longest_ms: int) -> HoldNotice:
        """Create a notice of this process."""
        return cls(Process.current().text, hold_id, longest_ms)

    def encode(self) -> bytes:
        document = {"owner": self.owner, "turn": self.hold_id, "longest_ms": self.longest_ms}
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> HoldNotice | None:
        """Decode a notice; None if the bytes are malformed."""
        document = json_fields(data)
        owner, hold_id, longest_ms = (document.get(name) for name in ("owner", "turn", "longest_ms"))
        if not isinstance(owner, str) or not isinstance(hold_id, str) or type(longest_ms) is not int:
            return None
        return cls(owner, hold_id, longest_ms) if 0 < longest_ms <= MAX_HOLD_MS else None


def longer_for(storage: Storage) -> HoldNotice | None:
    """The notice of the current hold; None if there is none, its process is dead, or the store does not answer."""
    try:
        data = storage.read(HOLD_NOTICE_PATH)
    except HudiError:
        return None
    notice = None if data is None else HoldNotice.decode(data)
    if notice is None:
        return None
    process = Process.parse(notice.owner)
    return None if process is not None and process.is_running() is False else notice
