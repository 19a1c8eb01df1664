"""What a writer that keeps the lock for a whole turn tells those who wait for it (see `turn`)."""

from __future__ import annotations

import json
from dataclasses import dataclass

from pyhudi.errors import HudiError
from pyhudi.format.paths import LOCK_FOLDER
from pyhudi.storage.base import Storage
from pyhudi.storage.locks.lock_documents import fields_of
from pyhudi.storage.process_identity import Process

TURN_PATH = f"{LOCK_FOLDER}/turn.json"

LONGEST_TURN_MS = 24 * 3_600_000
"""Of a turn; a notice that says more is none."""


@dataclass(frozen=True, slots=True)
class TurnNotice:
    """owner: the process.  turn: an id.  longest_ms: how long the lock may be held from when the turn began."""

    owner: str
    turn: str
    longest_ms: int

    @classmethod
    def own(cls, turn: str, longest_ms: int) -> TurnNotice:
        """That of this process."""
        return cls(Process.current().text, turn, longest_ms)

    def encode(self) -> bytes:
        document = {"owner": self.owner, "turn": self.turn, "longest_ms": self.longest_ms}
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> TurnNotice | None:
        """The notice; None when the bytes are none."""
        document = fields_of(data)
        owner, turn, longest_ms = (document.get(name) for name in ("owner", "turn", "longest_ms"))
        if not isinstance(owner, str) or not isinstance(turn, str) or type(longest_ms) is not int:
            return None
        return cls(owner, turn, longest_ms) if 0 < longest_ms <= LONGEST_TURN_MS else None


def longer_for(storage: Storage) -> TurnNotice | None:
    """The turn that is on, as far as its notice tells; None where there is none, its process has died, or nobody says."""
    try:
        data = storage.read(TURN_PATH)
    except HudiError:
        return None
    notice = None if data is None else TurnNotice.decode(data)
    if notice is None:
        return None
    process = Process.parse(notice.owner)
    return None if process is not None and process.lives() is False else notice
