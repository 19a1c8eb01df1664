"""Exactly-once micro-batches of a stream: the batch number is stored in the metadata of the commit that contains the batch.

    `_hudi_streaming_sink_checkpoint` = {"<identifier>": "<batch number>"}

A batch is skipped if a commit of the same identifier has reached its number. See `write_once` for when this is checked.

Source: docs/formats/writing.md, "Streaming sink".
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pyhudi.errors import CommitUnknown, CorruptData, HudiError, InvalidRequest, ServiceFailed
from pyhudi.operations.write.write_once import AlreadyCommitted, CommitMark, CommitSearch
from pyhudi.options import write_options
from pyhudi.options.declaration import OptionSettings
from pyhudi.storage.environment import Environment
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline

_LOG = logging.getLogger("pyhudi.api.spark_streaming")

SINK_CHECKPOINT_KEY = "_hudi_streaming_sink_checkpoint"


@dataclass(frozen=True, slots=True)
class StreamBatch(CommitMark):
    """One micro-batch.

    Attributes:
        identifier: Identifier of the stream, unique in the table.
        number: Batch number, from 0, increasing.
        search: The commits that were read for it.
    """

    identifier: str
    number: int
    search: CommitSearch = field(default_factory=CommitSearch, compare=False, repr=False)

    def check(self, context: TableContext, timeline: Timeline) -> Mapping[str, str]:
        """Return the entry for the commit of the batch. Raises AlreadyCommitted if the batch or a later one is committed."""
        last = find_last_batch(context, timeline, self.identifier, self.search)
        if last is not None and last >= self.number:
            raise AlreadyCommitted(
                f"batch {self.number} of stream {self.identifier} is already committed in {context.storage.uri}"
            )
        return {SINK_CHECKPOINT_KEY: json.dumps({self.identifier: str(self.number)})}


@dataclass(frozen=True, slots=True)
class SinkSettings(OptionSettings):
    """Settings of a streaming sink besides those of its writes.

    Attributes:
        identifier: Identifier of the stream; None uses that of the query.
        retries: Number of retries of a failed batch.
        retry_wait_ms: Wait before the first retry; doubles with each retry.
        drops_failed: Drop a batch whose last retry failed, and continue the stream.
        skips_compaction: Run no compaction in the stream.
    """

    identifier: Annotated[str | None, write_options.STREAMING_CHECKPOINT_IDENTIFIER]
    retries: Annotated[int, write_options.STREAMING_RETRY_COUNT]
    retry_wait_ms: Annotated[int, write_options.STREAMING_RETRY_INTERVAL_MS]
    drops_failed: Annotated[bool, write_options.STREAMING_IGNORE_FAILED_BATCH]
    skips_compaction: Annotated[bool, write_options.STREAMING_DISABLE_COMPACTION]


def find_last_batch(context: TableContext, timeline: Timeline, identifier: str, search: CommitSearch) -> int | None:
    """Return the number of the newest committed batch of a stream, or None."""
    for _, extra in search.newest_first(context.timeline, timeline):
        number = _number_in(extra, identifier)
        if number is not None:
            return number
    return None


def retried(write: Callable[[], object], settings: SinkSettings, env: Environment, number: int, uri: str) -> None:
    """Write a batch with retries and growing waits. Raises the error of the last attempt."""
    wait_ms = settings.retry_wait_ms
    for retries_left in reversed(range(settings.retries + 1)):
        try:
            write()
            return
        except ServiceFailed as error:
            _LOG.warning("batch %d is committed in %s; %s", number, uri, error)
            return
        except (InvalidRequest, CommitUnknown):
            # The first would fail again. After the second the batch may still land, so only a restart may check again.
            raise
        except HudiError as error:
            if retries_left:
                _LOG.warning("batch %d for %s failed, %d retries remain: %s", number, uri, retries_left, error)
                env.sleep_ms(wait_ms)
                wait_ms *= 2
            elif settings.drops_failed:
                _LOG.error("batch %d for %s is dropped, as configured: %s", number, uri, error)
            else:
                raise


def _number_in(extra: Mapping[str, str], identifier: str) -> int | None:
    text = extra.get(SINK_CHECKPOINT_KEY)
    if not text:
        return None
    try:
        numbers = json.loads(text)
        return int(numbers[identifier]) if identifier in numbers else None
    except (ValueError, TypeError) as error:
        raise CorruptData(f"the batch number of a stream in commit metadata is unreadable: {text[:200]!r}") from error
