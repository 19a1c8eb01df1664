"""How commits behave: failed writes, locks, heartbeats, clock skew.  Parsed once from options."""

from __future__ import annotations

from dataclasses import dataclass

from pyhudi.errors import InvalidRequest
from pyhudi.options import Options
from pyhudi.records.merge import DeleteMarker
from pyhudi.storage.heartbeats import HeartbeatSettings
from pyhudi.storage.locks import LockSettings


@dataclass(frozen=True, slots=True)
class CommitSettings:
    """failed_writes: EAGER (the next writer rolls a failed write back), LAZY (a clean does) or NEVER.

    clock_skew_ms: waited out after reading the clock, under the lock.  Instant times are always made larger than every time on
    the timeline, so
    the wait is only for writers that do not look there; it is 0 unless the option asks for it.
    """

    failed_writes: str
    lock_wait_ms: int
    conflict_retries: int
    heartbeats: HeartbeatSettings
    clock_skew_ms: int
    commit_metadata_prefix: str

    @classmethod
    def of(cls, options: Options) -> CommitSettings:
        """From checked options.  Raises InvalidRequest for a negative number of retries."""
        multi = options.word("hoodie.write.concurrency.mode") != "SINGLE_WRITER"
        skew = options.text("hoodie.time.generator.max_expected_clock_skew_ms")
        retries = options.integer("hoodie.write.num.retries.on.conflict.failures")
        if retries < 0:
            raise InvalidRequest(f"option hoodie.write.num.retries.on.conflict.failures={retries} has to be 0 or more")
        return cls(
            failed_writes=options.text("hoodie.clean.failed.writes.policy") or ("LAZY" if multi else "EAGER"),
            lock_wait_ms=options.integer("hoodie.write.lock.wait_time_ms"),
            conflict_retries=retries,
            heartbeats=HeartbeatSettings(
                options.integer("hoodie.client.heartbeat.interval_in_ms"),
                options.integer("hoodie.client.heartbeat.tolerable.misses"),
            ),
            clock_skew_ms=int(skew) if skew else 0,
            commit_metadata_prefix=options.word("hoodie.datasource.write.commitmeta.key.prefix"),
        )


def delete_marker(options: Options, *, beside_flag: bool) -> DeleteMarker | None:
    """What marks a row as a delete, from checked options; None when they name nothing.

    beside_flag: `_hoodie_is_deleted` counts as well.  Raises InvalidRequest when only one of the two options is set.
    """
    field, text = options.text("hoodie.payload.delete.field"), options.text("hoodie.payload.delete.marker")
    if field is None and text is None:
        return None
    if field is None or text is None:
        raise InvalidRequest(
            f"hoodie.payload.delete.field={field or ''} and hoodie.payload.delete.marker={text or ''}: a delete marker takes "
            "both, the column and the text in it"
        )
    return DeleteMarker(field, text, beside_flag)


def lock_settings(options: Options) -> LockSettings:
    """How the table lock is taken, from checked options."""
    return LockSettings(
        provider=options.text("hoodie.write.lock.provider"),
        wait_ms=options.integer("hoodie.write.lock.wait_time_ms"),
        file_system_path=options.text("hoodie.write.lock.filesystem.path"),
        file_system_expire_ms=options.integer("hoodie.write.lock.filesystem.expire") * 60_000,
        validity_ms=options.integer("hoodie.write.lock.storage.validity.timeout.secs") * 1000,
        renew_ms=options.integer("hoodie.write.lock.storage.heartbeat.poll.secs") * 1000,
    )
