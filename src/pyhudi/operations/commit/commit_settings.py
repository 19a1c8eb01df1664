"""Settings of commits, parsed once from options: failed writes, locks, heartbeats and clock skew."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.format.actions.commit_metadata import LATEST_SCHEMA_KEY, SCHEMA_KEY
from pyhudi.options import write_options
from pyhudi.options.declaration import Options, read_settings
from pyhudi.options.lock_options import LOCK_WAIT
from pyhudi.options.write_options import (
    CLOCK_SKEW,
    COMMIT_METADATA,
    CONCURRENCY,
    DELETE_FIELD,
    DELETE_MARKER,
    FAILED_WRITES,
    INDEX_TYPE,
    METADATA_PREFIX,
    TIME_GENERATOR,
)
from pyhudi.records.record_merge import DeleteMarker
from pyhudi.storage.heartbeats import HeartbeatSettings
from pyhudi.storage.time_generators import BUILT_IN, find_time_generator
from pyhudi.tasks.hbase_lookup import HbaseSettings

_PREFER_WRITER = "PreferWriterConflictResolutionStrategy"
_RESOLUTIONS = ("SimpleConcurrentFileWritesConflictResolutionStrategy", _PREFER_WRITER)
_RESOLUTION_PACKAGE = "org.apache.hudi.client.transaction."

_SCHEMA_KEYS = (SCHEMA_KEY, LATEST_SCHEMA_KEY)
_RESERVED = ("hoodie", "_hoodie", "_hudi", "pyhudi", "_pyhudi", "deltastreamer", "streamer")

NON_BLOCKING = "NON_BLOCKING_CONCURRENCY_CONTROL"


@dataclass(frozen=True, slots=True)
class CommitSettings:
    """Settings of commits.

    Attributes:
        failed_writes: Failed-writes cleaning policy: EAGER (the next writer rolls a failed write back), LAZY (a clean
            rolls it back) or NEVER.
        is_non_blocking: Non-blocking concurrency control: several writers append to the same file groups concurrently.
        lock_wait_ms: How long to wait for the table lock.
        conflict_retries: Maximum number of times a write is planned again after a conflict.
        exclusive_after: Number of conflicts after which a write keeps the table lock from planning to commit.
        heartbeats: Interval and expiry of heartbeats.
        service_expiry_ms: Time without activity after which a table service without a heartbeat counts as dead.
        clock_skew_ms: Wait under the lock after reading the clock. Each instant time is larger than every time on the
            timeline, so only writers that do not read the timeline need this wait; 0 unless the option is set.
        extra_metadata: Entries for the commit metadata besides the schema.
        time_generator: Name of the time generator that supplies instant times.
        hbase: Settings of the HBase index, None unless the index type is HBASE.
        marker_lists: Use marker lists instead of one marker file per data file, see `storage.markers`.
        prefers_writers: A clustering backs off from writes of its file groups, even if they are pending.
        rolling_keys: Keys of extra metadata that are copied from earlier commits.
        rolling_lookback: Number of earlier commits that are searched for them.
        clustering_expiry_ms: Age from which a pending clustering that no live process runs is dropped, although none
            has started it; None if it waits without limit.
    """

    failed_writes: Annotated[str, FAILED_WRITES, CONCURRENCY]
    is_non_blocking: Annotated[bool, CONCURRENCY]
    lock_wait_ms: Annotated[int, LOCK_WAIT]
    conflict_retries: Annotated[int, write_options.NUM_RETRIES_ON_CONFLICT_FAILURES]
    exclusive_after: Annotated[int, write_options.EXCLUSIVE_AFTER_CONFLICTS]
    heartbeats: HeartbeatSettings
    clock_skew_ms: Annotated[int, CLOCK_SKEW]
    extra_metadata: Annotated[tuple[tuple[str, str], ...], METADATA_PREFIX, COMMIT_METADATA]
    time_generator: Annotated[str, TIME_GENERATOR] = BUILT_IN
    hbase: Annotated[HbaseSettings | None, INDEX_TYPE] = None
    marker_lists: Annotated[bool, write_options.MARKERS_TYPE] = False
    prefers_writers: Annotated[bool, write_options.CONFLICT_RESOLUTION] = False
    rolling_keys: Annotated[tuple[str, ...], write_options.ROLLING_METADATA_KEYS] = ()
    service_expiry_ms: Annotated[int, write_options.SERVICE_EXPIRY_MS] = 20 * 60_000
    rolling_lookback: Annotated[int, write_options.ROLLING_METADATA_LOOKBACK] = 10
    clustering_expiry_ms: Annotated[
        int | None, write_options.CLUSTERING_EXPIRATIONS, write_options.CLUSTERING_EXPIRATION_THRESHOLD
    ] = None

    @classmethod
    def of(cls, options: Options) -> CommitSettings:
        """Build the settings from checked options.

        Raises:
            InvalidRequest: The failed-writes policy is incompatible with the concurrency mode, or with expirations.
            Unsupported: The time generator is not registered, or the conflict resolution strategy is another class.
        """
        strategy = options.value_or_default(write_options.CONFLICT_RESOLUTION).removeprefix(_RESOLUTION_PACKAGE)
        if strategy not in _RESOLUTIONS:
            raise Unsupported(
                f"option {write_options.CONFLICT_RESOLUTION}={strategy} is not supported. Use one of {', '.join(_RESOLUTIONS)}."
            )
        find_time_generator(options.value_or_default(TIME_GENERATOR))
        mode, policy = options.value_or_default(CONCURRENCY), options.text(FAILED_WRITES)
        if mode == NON_BLOCKING and policy not in (None, "LAZY"):
            raise InvalidRequest(
                f"{CONCURRENCY}={mode} requires {FAILED_WRITES}=LAZY, not {policy}: writers must not roll back each "
                "other's pending "
                "writes, so a clean has to roll back those of failed writers"
            )
        policy = policy or ("EAGER" if mode == "SINGLE_WRITER" else "LAZY")
        expires = options.flag(write_options.CLUSTERING_EXPIRATIONS)
        if expires and policy != "LAZY":
            raise InvalidRequest(
                f"{write_options.CLUSTERING_EXPIRATIONS} requires {FAILED_WRITES}=LAZY, not {policy}: set both options"
            )
        expiry_minutes = int(options.value_or_default(write_options.CLUSTERING_EXPIRATION_THRESHOLD))
        return read_settings(
            cls,
            options,
            failed_writes=policy,
            clustering_expiry_ms=expiry_minutes * 60_000 if expires else None,
            is_non_blocking=mode == NON_BLOCKING,
            clock_skew_ms=int(options.text(CLOCK_SKEW) or 0),
            extra_metadata=_extra_metadata(options),
            prefers_writers=strategy == _PREFER_WRITER,
            marker_lists=options.value_or_default(write_options.MARKERS_TYPE) != "DIRECT",
            hbase=HbaseSettings.of(options) if options.value_or_default(INDEX_TYPE) == "HBASE" else None,
        )

    def for_services(self) -> CommitSettings:
        """Return the settings of the table services that follow a write: their commits have no entries of the caller."""
        return replace(self, extra_metadata=())


def with_commit_metadata(options: Mapping[str, object] | None, entries: Mapping[str, str] | None) -> Mapping[str, object] | None:
    """Return the options of a call with the entries of its argument.

    Raises:
        InvalidRequest: A key is reserved, or the option has other entries.
    """
    if not entries:
        return options
    _check_reserved(entries)
    text = json.dumps(dict(entries))
    if (options or {}).get(COMMIT_METADATA.key, text) != text:
        raise InvalidRequest(f"commit_metadata= and option {COMMIT_METADATA} have different entries: pass one of them")
    return {**(options or {}), COMMIT_METADATA.key: text}


def _extra_metadata(options: Options) -> tuple[tuple[str, str], ...]:
    """Entries of the option, and the options with the prefix."""
    prefix = options.value_or_default(METADATA_PREFIX)
    named = tuple((key, value) for key, value in options.extra if prefix and key.startswith(prefix))
    text = options.text(COMMIT_METADATA)
    if text is None:
        return named
    try:
        entries = json.loads(text)
    except ValueError as error:
        raise InvalidRequest(f"option {COMMIT_METADATA}={text} is no JSON: {error}") from error
    if not isinstance(entries, dict) or not all(isinstance(value, str) for value in entries.values()):
        raise InvalidRequest(f"option {COMMIT_METADATA}={text} must be a JSON object whose values are texts")
    _check_reserved(entries)
    return (*named, *entries.items())


def _check_reserved(entries: Mapping[str, str]) -> None:
    reserved = next((key for key in entries if key in _SCHEMA_KEYS or key.startswith(_RESERVED)), None)
    if reserved is not None:
        raise InvalidRequest(f"commit_metadata has the key {reserved!r}, which is reserved: use another name")


def delete_marker_setting(options: Options, *, combines_with_flag: bool) -> DeleteMarker | None:
    """Return the delete marker that the checked options declare, or None if they declare none.

    Args:
        options: Checked options.
        combines_with_flag: True if `_hoodie_is_deleted` marks deletes as well.

    Raises:
        InvalidRequest: Only one of the two options is set.
    """
    field, text = options.text(DELETE_FIELD), options.text(DELETE_MARKER)
    if field is None and text is None:
        return None
    if field is None or text is None:
        raise InvalidRequest(
            f"{DELETE_FIELD}={field or ''} and {DELETE_MARKER}={text or ''}: a delete marker requires "
            "both the column and its value. Set both options."
        )
    return DeleteMarker(field, text, combines_with_flag)
