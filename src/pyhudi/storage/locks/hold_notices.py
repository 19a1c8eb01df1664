"""What a writer that keeps the lock for a whole turn tells those who wait for it (see `hold_id`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyhudi.errors import HudiError
from pyhudi.format.paths import LOCK_FOLDER
from pyhudi.storage.base import Storage
from pyhudi.storage.process_identity import Process

# The JSON objects that stand in files of locks.


def json_fields(data: bytes) -> Mapping[str, Any]:
    """The fields of a JSON object; none where the bytes are no such thing."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


HOLD_NOTICE_PATH = f"{LOCK_FOLDER}/turn.json"

MAX_HOLD_MS = 24 * 3_600_000
"""Of a turn; a notice that says more is none."""


@dataclass(frozen=True, slots=True)
class HoldNotice:
    """owner: the process.  hold_id: an id.  longest_ms: how long the lock may be held from when the turn began."""

    owner: str
    hold_id: str
    longest_ms: int

    @classmethod
    def for_this_process(cls, hold_id: str, longest_ms: int) -> HoldNotice:
        """That of this process."""
        return cls(Process.current().text, hold_id, longest_ms)

    def encode(self) -> bytes:
        document = {"owner": self.owner, "turn": self.hold_id, "longest_ms": self.longest_ms}
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> HoldNotice | None:
        """The notice; None when the bytes are none."""
        document = json_fields(data)
        owner, turn, longest_ms = (document.get(name) for name in ("owner", "turn", "longest_ms"))
        if not isinstance(owner, str) or not isinstance(turn, str) or type(longest_ms) is not int:
            return None
        return cls(owner, turn, longest_ms) if 0 < longest_ms <= MAX_HOLD_MS else None


def longer_for(storage: Storage) -> HoldNotice | None:
    """The turn that is on, as far as its notice tells; None where there is none, its process has died, or nobody says."""
    try:
        data = storage.read(HOLD_NOTICE_PATH)
    except HudiError:
        return None
    notice = None if data is None else HoldNotice.decode(data)
    if notice is None:
        return None
    process = Process.parse(notice.owner)
    return None if process is not None and process.is_running() is False else notice
