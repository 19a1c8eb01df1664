"""Settings of early conflict detection, and what a running write checks (see `tasks.early_conflict_detection`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.operations.commit.transaction import Transaction
from pyhudi.options import write_options
from pyhudi.options.declaration import Options, read_settings
from pyhudi.options.write_options import CONCURRENCY
from pyhudi.storage import liveness
from pyhudi.tasks.early_conflict_detection import EarlyConflicts

_MODE = "OPTIMISTIC_CONCURRENCY_CONTROL"
_STRATEGIES = (
    "SimpleDirectMarkerBasedDetectionStrategy",
    "SimpleTransactionDirectMarkerBasedDetectionStrategy",
    "AsyncTimelineServerBasedDetectionStrategy",
)


@dataclass(frozen=True, slots=True)
class EarlySettings:
    """Settings of early conflict detection.

    Attributes:
        enabled: Older pending writes stop this one.
        checks_commits: Concurrent commits stop it too, before its first file.
    """

    enabled: Annotated[
        bool,
        write_options.CONCURRENCY_EARLY_CONFLICT_DETECTION_ENABLE,
        write_options.CONCURRENCY_EARLY_CONFLICT_DETECTION_STRATEGY,
        CONCURRENCY,
    ]
    checks_commits: Annotated[bool, write_options.CONCURRENCY_EARLY_CONFLICT_CHECK_COMMIT_CONFLICT]

    @classmethod
    def of(cls, options: Options) -> EarlySettings:
        """Build the settings from checked options. Raises InvalidRequest for a concurrency mode without early conflicts."""
        enabled, mode, strategy = (
            options.flag(write_options.CONCURRENCY_EARLY_CONFLICT_DETECTION_ENABLE),
            options.value_or_default(CONCURRENCY),
            options.value_or_default(write_options.CONCURRENCY_EARLY_CONFLICT_DETECTION_STRATEGY),
        )
        if strategy.rsplit(".", 1)[-1] not in _STRATEGIES:
            raise Unsupported(
                f"option {write_options.CONCURRENCY_EARLY_CONFLICT_DETECTION_STRATEGY}={strategy} is not supported; "
                f"use one of {', '.join(_STRATEGIES)}"
            )
        if enabled and mode != _MODE:
            raise InvalidRequest(
                f"{write_options.CONCURRENCY_EARLY_CONFLICT_DETECTION_ENABLE}=true requires {CONCURRENCY}={_MODE}, as "
                f"in Hudi; found {mode}"
            )
        return read_settings(cls, options, enabled=enabled)


def early_conflicts(transaction: Transaction, settings: EarlySettings, *, by_bucket: bool) -> EarlyConflicts | None:
    """The early conflict detection of a started attempt, or None if it is disabled. ``by_bucket``: file groups are buckets."""
    if not settings.enabled or transaction.requested_on is None:
        return None
    context, own_time, heartbeats = transaction.context, transaction.instant_time, transaction.settings.heartbeats
    older = [i.request_time for i in transaction.requested_on.pending_writes() if i.request_time < own_time]
    living = tuple(time for time in older if liveness.is_alive(context.storage, context.env, time, heartbeats))
    return EarlyConflicts(own_time, living, heartbeats, by_bucket)
