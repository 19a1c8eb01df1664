"""The lock of a table that stores another lock than the caller configured: reads work, and every write is refused."""

from __future__ import annotations

from collections.abc import Mapping

from pyhudi.errors import InvalidRequest
from pyhudi.options.lock_options import PROVIDER
from pyhudi.storage.locks.lock_provider import LockProvider


class RefusedLock(LockProvider):
    """A lock that cannot be acquired.

    uri: location of the table. stored: the stored lock options that the caller has neither passed nor accepted.
    """

    def __init__(self, uri: str, stored: Mapping[str, str]) -> None:
        self._uri = uri
        self._stored = dict(stored)

    def check_usable(self) -> None:
        values = ", ".join(f"{key}={value[:100]!r}" for key, value in self._stored.items())
        raise InvalidRequest(
            f"cannot write the table at {self._uri}: it stores the lock of its writers ({values}), which you did not configure. "
            "Pass these options if it is your lock, or open the table with trusted=True; pass another "
            f"{PROVIDER} only if no writer uses the stored lock"
        )

    def acquire(self, timeout_ms: int | None = None) -> None:
        self.check_usable()

    def release(self) -> None:
        return

    def check(self) -> None:
        self.check_usable()

    def renew(self) -> None:
        self.check_usable()
