"""Batches of a stream, each committed once: its number stands in the metadata of the commit that holds it.

    `_hudi_streaming_sink_checkpoint` = {"<identifier>": "<batch number>"}

A batch whose number a commit of the same identifier has reached is not written again.  That is looked up before the write, in the
active timeline and then the history, and once more under the lock of the commit, so that of two attempts at one batch one lands.

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
from pyhudi.options.declaration import Option, Options, read_settings
from pyhudi.storage.environment import Environment
from pyhudi.table.snapshot import read_commit
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline

_LOG = logging.getLogger("pyhudi.api.spark_streaming")

SINK_CHECKPOINT_KEY = "_hudi_streaming_sink_checkpoint"

IDENTIFIER = Option(
    "hoodie.datasource.write.streaming.checkpoint.identifier",
    str,
    None,
    "the stream's name in commits; unset: the id of the query in its checkpoint",
)


@dataclass(frozen=True, slots=True)
class StreamBatch:
    """One batch.  identifier: of the stream, of its own in the table.  number: from 0, larger with each batch."""

    identifier: str
    number: int

    @property
    def metadata(self) -> tuple[str, str]:
        """What its commit carries: key and value."""
        return SINK_CHECKPOINT_KEY, json.dumps({self.identifier: str(self.number)})


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """What a stream does with its batches beside writing them.  identifier: None for the query's own."""

    identifier: Annotated[str | None, IDENTIFIER]
    retries: Annotated[
        int,
        Option("hoodie.datasource.write.streaming.retry.count", int, "3", "times that a failed batch is tried again", at_least=0),
    ]
    retry_wait_ms: Annotated[
        int,
        Option(
            "hoodie.datasource.write.streaming.retry.interval.ms",
            int,
            "2000",
            "milliseconds before a failed batch is tried again, twice as many each time",
        ),
    ]
    drops_failed: Annotated[
        bool,
        Option(
            "hoodie.datasource.write.streaming.ignore.failed.batch",
            bool,
            "false",
            "a batch that failed to the end is dropped, and the stream goes on",
        ),
    ]
    skips_compaction: Annotated[
        bool,
        Option("hoodie.datasource.write.streaming.disable.compaction", bool, "false", "nothing is compacted beside the stream"),
    ]

    @classmethod
    def of(cls, options: Options) -> SinkSettings:
        """From checked options."""
        return read_settings(cls, options)


class BatchAlreadyCommitted(TableState):
    """The batch is in the table already.  Nothing was written."""


def find_last_batch(context: TableContext, timeline: Timeline, identifier: str) -> int | None:
    """The number of the newest batch of a stream that is committed; None when there is none."""
    for document in _documents(context, timeline):
        number = _number_in(document, identifier)
        if number is not None:
            return number
    return None


def check_not_committed(context: TableContext, batch: StreamBatch, current_timeline: Timeline) -> None:
    """Raises BatchAlreadyCommitted when the batch, or one after it, is committed."""
    last = find_last_batch(context, current_timeline, batch.identifier)
    if last is not None and last >= batch.number:
        raise BatchAlreadyCommitted(f"batch {batch.number} of stream {batch.identifier} is in {context.storage.uri} already")


def retried(write: Callable[[], object], settings: SinkSettings, env: Environment, number: int, uri: str) -> None:
    """Write a batch; one that fails is tried again, after longer and longer waits.  Raises what the last try ended with."""
    wait_ms = settings.retry_wait_ms
    for left in reversed(range(settings.retries + 1)):
        try:
            write()
            return
        except ServiceFailed as error:
            _LOG.warning("batch %d is in %s; %s", number, uri, error)
            return
        except (InvalidRequest, CommitUnknown):
            # The one would fail again; the other may still land, so that only a restart may look again.
            raise
        except HudiError as error:
            if left:
                _LOG.warning("batch %d for %s failed, %d tries are left: %s", number, uri, left, error)
                env.sleep_ms(wait_ms)
                wait_ms *= 2
            elif settings.drops_failed:
                _LOG.error("batch %d for %s is dropped, as the options say: %s", number, uri, error)
            else:
                raise


def _documents(context: TableContext, timeline: Timeline) -> Iterator[CommitMetadata]:
    """Commit metadata, newest first."""
    for instant in reversed(timeline.completed_writes()):
        yield read_commit(context.timeline, instant)
    history = context.timeline.history
    for found in sorted(history.instants(), key=lambda i: i.request_time, reverse=True):
        if not found.action.is_write:
            continue
        row = history.find(found.request_time, found.action)
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
        raise CorruptData(f"the batch number of a stream cannot be read: {text[:200]!r}") from error
