"""Audit of the storage lease, in the layout of Hudi 1.1 and later: when the lock was acquired, renewed and released.

    .hoodie/.locks/audit_enabled.json               {"STORAGE_LOCK_AUDIT_SERVICE_ENABLED":true}
    .hoodie/.locks/audit/<start ms>_<id>.jsonl      one file per acquisition, one JSON record per line

A record has `ownerId`, `transactionStartTime`, `timestamp`, `state` (START, RENEW, END), `lockExpiration` (times in epoch
milliseconds) and `lockHeld`. The file is written again with each record. A write that fails is logged, and the lock stays
held. A write that hangs delays the next renewal, and can cost the lease, as a slow renewal can.

START is taken after the lock was seen to be free, and END before it is released, so that the periods of two holders do
not overlap by the time that the requests take. A holder without END is considered to hold the lock until the
`lockExpiration` of its last record.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum

from pyhudi.errors import HudiError, get_logger
from pyhudi.format.paths import LOCK_FOLDER, join_path
from pyhudi.format.stored_numbers import parse_digits
from pyhudi.storage.base import Listing, Storage
from pyhudi.storage.locks.hold_notices import json_fields

AUDIT_SWITCH_PATH = f"{LOCK_FOLDER}/audit_enabled.json"
AUDIT_FOLDER = f"{LOCK_FOLDER}/audit"
AUDIT_SUFFIX = ".jsonl"

_ENABLED = "STORAGE_LOCK_AUDIT_SERVICE_ENABLED"

# The number of records of a long hold that are kept besides its START.
_MAX_RENEWALS = 100

_LOG = get_logger("pyhudi.storage.locks")


class AuditState(StrEnum):
    """What a record is about."""

    START = "START"
    RENEW = "RENEW"
    END = "END"


@dataclass(frozen=True, slots=True)
class AuditedHold:
    """One acquisition of the lock, as its file describes it.  Times in epoch milliseconds.

    Attributes:
        name: Name of the file.
        started_ms: When the lock was acquired.
        ended_ms: When it was released; None if there is no record of it.
        expires_ms: End of the lease by the last record.
    """

    name: str
    started_ms: int
    ended_ms: int | None
    expires_ms: int

    @property
    def end_ms(self) -> int:
        """Until when the lock was held."""
        return self.expires_ms if self.ended_ms is None else self.ended_ms

    @classmethod
    def decode(cls, name: str, data: bytes) -> AuditedHold | None:
        """Decode a file; None if a record is malformed, or there is none."""
        records = [json_fields(line) for line in data.split(b"\n") if line.strip()]
        for record in records:
            numbers = (record.get(key) for key in ("transactionStartTime", "timestamp", "lockExpiration"))
            texts = (record.get(key) for key in ("ownerId", "state"))
            if any(type(number) is not int for number in numbers) or any(type(text) is not str for text in texts):
                return None
        if not records:
            return None
        started = [record["timestamp"] for record in records if record["state"] == AuditState.START]
        ended = [record["timestamp"] for record in records if record["state"] == AuditState.END]
        return cls(
            name,
            started[0] if started else records[0]["transactionStartTime"],
            ended[-1] if ended else None,
            records[-1]["lockExpiration"],
        )


@dataclass(slots=True)
class LockAudit:
    """The audit of one acquisition.  Used by one thread at a time.

    Attributes:
        storage: Storage of the table.
        owner: Owner in the lock object.
        started_ms: When the lock was acquired, in epoch milliseconds.
    """

    storage: Storage
    owner: str
    started_ms: int
    _records: list[bytes] = field(default_factory=list)

    @property
    def path(self) -> str:
        """Path of the file."""
        return join_path(AUDIT_FOLDER, f"{self.started_ms}{_name_end(self.owner)}")

    def record(self, state: AuditState, timestamp_ms: int, expires_ms: int) -> None:
        """Write a record.  Storage errors are logged.

        Args:
            state: What happened.
            timestamp_ms: When, in epoch milliseconds.
            expires_ms: End of the lease, in epoch milliseconds.
        """
        self._records.append(_encode(self.owner, self.started_ms, state, timestamp_ms, expires_ms))
        del self._records[1:-_MAX_RENEWALS]
        try:
            self.storage.put(self.path, b"".join(self._records))
        except HudiError as error:
            _LOG.warning("%s: the audit of the table's lock lacks a record: %s", self.storage.absolute(self.path), error)


def is_audit_enabled(storage: Storage) -> bool:
    """Whether the lock of the table is audited.  Raises as `Storage.read`."""
    data = storage.read(AUDIT_SWITCH_PATH)
    return data is not None and json_fields(data).get(_ENABLED) in (True, "true")


def set_audit_enabled(storage: Storage, *, enabled: bool) -> None:
    """Switch the audit on or off for all writers, from their next acquisition on.  Raises as `Storage.put`."""
    storage.put(AUDIT_SWITCH_PATH, json.dumps({_ENABLED: enabled}, separators=(",", ":")).encode())


def start_audit(storage: Storage, listing: Listing, owner: str, timestamp_ms: int, expires_ms: int) -> LockAudit | None:
    """Record an acquisition if the audit is on.

    Args:
        storage: Storage of the table.
        listing: The folder of the locks; the switch is read only if it exists.
        owner: Owner in the lock object.
        timestamp_ms: When the lock was acquired, in epoch milliseconds.
        expires_ms: End of the lease, in epoch milliseconds.

    Returns:
        The audit of this acquisition; None if the audit is off, or its switch cannot be read.
    """
    if all(file.path != AUDIT_SWITCH_PATH for file in listing.files):
        return None
    try:
        if not is_audit_enabled(storage):
            return None
    except HudiError as error:
        _LOG.warning("%s: the table's lock is not audited: %s", storage.absolute(AUDIT_SWITCH_PATH), error)
        return None
    audit = LockAudit(storage, owner, timestamp_ms)
    audit.record(AuditState.START, timestamp_ms, expires_ms)
    return audit


def end_audit_of_dead(storage: Storage, owner: str, timestamp_ms: int, expires_ms: int) -> None:
    """Record the end of a hold whose process has ended before its lease.  Storage errors are logged."""
    try:
        for file in storage.list(AUDIT_FOLDER).files:
            start = parse_digits(file.name.partition("_")[0])
            if file.name.endswith(_name_end(owner)) and start is not None:
                record = _encode(owner, start, AuditState.END, timestamp_ms, expires_ms)
                storage.put(file.path, (storage.read(file.path) or b"") + record)
    except HudiError as error:
        _LOG.warning("%s: the audit of the table's lock lacks a record: %s", storage.absolute(AUDIT_FOLDER), error)


def _name_end(owner: str) -> str:
    # Only the id: the process before it has colons, which Hadoop does not accept in names.
    return f"_{owner.rpartition(':')[2]}{AUDIT_SUFFIX}"


def _encode(owner: str, started_ms: int, state: AuditState, timestamp_ms: int, expires_ms: int) -> bytes:
    document = {
        "ownerId": owner,
        "transactionStartTime": started_ms,
        "timestamp": timestamp_ms,
        "state": state,
        "lockExpiration": expires_ms,
        # Hudi writes the last record before it forgets the lock.
        "lockHeld": True,
    }
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"
