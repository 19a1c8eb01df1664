"""Settings of early conflict detection, and what a running write checks (see `tasks.early_conflict_detection`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.operations.commit.commit_settings import CONCURRENCY
from pyhudi.operations.commit.transaction import Transaction
from pyhudi.options.declaration import Option, Options, read_settings
from pyhudi.storage import liveness
from pyhudi.tasks.early_conflict_detection import EarlyConflicts

ENABLE = Option(
    "hoodie.write.concurrency.early.conflict.detection.enable",
    bool,
    "false",
    "a write stops before it writes to a file group that an older pending write is writing to",
)
STRATEGY = Option(
    "hoodie.write.concurrency.early.conflict.detection.strategy",
    str,
    "SimpleDirectMarkerBasedDetectionStrategy",
    "class that detects conflicts early; PyHudi treats all of Hudi's classes alike: it checks markers before each file",
)
CHECK_COMMITS = Option(
    "hoodie.write.concurrency.early.conflict.check.commit.conflict",
    bool,
    "false",
    "with early conflict detection, concurrent commits stop a write before its first file too",
)
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

    enabled: Annotated[bool, ENABLE, STRATEGY, CONCURRENCY]
    checks_commits: Annotated[bool, CHECK_COMMITS]

    @classmethod
    def of(cls, options: Options) -> EarlySettings:
        """Build the settings from checked options. Raises InvalidRequest for a concurrency mode without early
        conflicts.
        """
        enabled, mode, strategy = options.flag(ENABLE), options.value_or_default(CONCURRENCY), options.value_or_default(STRATEGY)
        if strategy.rsplit(".", 1)[-1] not in _STRATEGIES:
            raise Unsupported(f"option {STRATEGY}={strategy} is not supported; use one of {', '.join(_STRATEGIES)}")
        if enabled and mode != _MODE:
            raise InvalidRequest(f"{ENABLE}=true requires {CONCURRENCY}={_MODE}, as in Hudi; found {mode}")
        return read_settings(cls, options, enabled=enabled)


def early_conflicts(transaction: Transaction, settings: EarlySettings, *, by_bucket: bool) -> EarlyConflicts | None:
    """Return the early conflict detection of a started attempt, or None if it is disabled. ``by_bucket``: file groups
    are buckets.
    """
    if not settings.enabled or transaction.requested_on is None:
        return None
    context, own_time, heartbeats = transaction.context, transaction.instant_time, transaction.settings.heartbeats
    older = [i.request_time for i in transaction.requested_on.pending_writes() if i.request_time < own_time]
    living = tuple(time for time in older if liveness.is_alive(context.storage, context.env, time, heartbeats))
    return EarlyConflicts(own_time, living, heartbeats, by_bucket)
