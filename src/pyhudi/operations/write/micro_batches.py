"""Exactly-once micro-batches of a stream: the batch number is stored in the metadata of the commit that contains the
batch.

    `_hudi_streaming_sink_checkpoint` = {"<identifier>": "<batch number>"}

A batch is skipped if a commit of the same identifier has reached its number. This is checked before the write, on the
active and archived timeline, and again under the lock of the commit, so that only one of two attempts at a batch
commits.

Source: docs/formats/writing.md, "Streaming sink".
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated

from pyhudi.errors import CommitUnknown, CorruptData, HudiError, InvalidRequest, ServiceFailed, TableState
from pyhudi.format.actions.commit_metadata import CommitMetadata
from pyhudi.options import write_options
from pyhudi.options.declaration import Options, read_settings
from pyhudi.storage.environment import Environment
from pyhudi.table.snapshot import read_commit
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline

_LOG = logging.getLogger("pyhudi.api.spark_streaming")

SINK_CHECKPOINT_KEY = "_hudi_streaming_sink_checkpoint"


@dataclass(frozen=True, slots=True)
class StreamBatch:
    """One micro-batch.

    Attributes:
        identifier: Identifier of the stream, unique in the table.
        number: Batch number, from 0, increasing.
    """

    identifier: str
    number: int

    @property
    def metadata(self) -> tuple[str, str]:
        """Key and value for the commit metadata."""
        return SINK_CHECKPOINT_KEY, json.dumps({self.identifier: str(self.number)})


@dataclass(frozen=True, slots=True)
class SinkSettings:
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

    @classmethod
    def of(cls, options: Options) -> SinkSettings:
        """Build the settings from checked options."""
        return read_settings(cls, options)


class BatchAlreadyCommitted(TableState):
    """The batch is already committed. Nothing was written."""


def find_last_batch(context: TableContext, timeline: Timeline, identifier: str) -> int | None:
    """Return the number of the newest committed batch of a stream, or None."""
    for document in _documents(context, timeline):
        number = _number_in(document, identifier)
        if number is not None:
            return number
    return None


def check_not_committed(context: TableContext, batch: StreamBatch, current_timeline: Timeline) -> None:
    """Raise BatchAlreadyCommitted if the batch or a later one is committed."""
    last = find_last_batch(context, current_timeline, batch.identifier)
    if last is not None and last >= batch.number:
        raise BatchAlreadyCommitted(
            f"batch {batch.number} of stream {batch.identifier} is already committed in {context.storage.uri}"
        )


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


def _documents(context: TableContext, timeline: Timeline) -> Iterator[CommitMetadata]:
    """Return commit metadata, newest first."""
    for instant in reversed(timeline.completed_writes()):
        yield read_commit(context.timeline, instant)
    history = context.timeline.history
    for archived in sorted(history.instants(), key=lambda i: i.request_time, reverse=True):
        if not archived.action.is_write:
            continue
        row = history.find(archived.request_time, archived.action)
        if row is not None and row.metadata:
            yield CommitMetadata.decode(row.metadata)


def _number_in(document: CommitMetadata, identifier: str) -> int | None:
    text = document.extra_metadata.get(SINK_CHECKPOINT_KEY)
    if not text:
        return None
    try:
        found = json.loads(text)
        return int(found[identifier]) if identifier in found else None
    except (ValueError, TypeError) as error:
        raise CorruptData(f"the batch number of a stream in commit metadata is unreadable: {text[:200]!r}") from error
