"""Exactly-once micro-batches of a stream: the batch number is stored in the metadata of the commit that contains the batch.

    `_hudi_streaming_sink_checkpoint` = {"<identifier>": "<batch number>"}
    `pyhudi.stream.offsets` = {"<identifier>": "<digest of the source offsets>"}

A batch is skipped if a commit of the same identifier has reached its number, and refused if that commit has other source
offsets. See `write_once` for when this is checked.

Source: docs/formats/writing.md, "Streaming sink".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pyhudi.errors import CommitUnknown, CorruptData, HudiError, InvalidRequest, ServiceFailed, get_logger
from pyhudi.format.paths import join_path
from pyhudi.operations.write.write_once import AlreadyCommitted, CommitMark, CommitSearch
from pyhudi.operations.write.write_settings import WriteOperation
from pyhudi.options import write_options
from pyhudi.options.declaration import OptionSettings
from pyhudi.storage import open_storage
from pyhudi.storage.base import Storage
from pyhudi.storage.environment import Environment
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline

_LOG = get_logger("pyhudi.api.spark_streaming")

SINK_CHECKPOINT_KEY = "_hudi_streaming_sink_checkpoint"
SOURCE_OFFSETS_KEY = "pyhudi.stream.offsets"

_OFFSETS_FOLDER = "offsets"
_SOURCES_FOLDER = "sources"
_OFFSETS_HEADER_LINES = 2
"""Version, and settings and times of the batch; they differ when Spark plans the same offsets again."""


@dataclass(frozen=True, slots=True)
class StreamBatch(CommitMark):
    """One micro-batch.

    Attributes:
        identifier: Identifier of the stream, unique in the table.
        number: Batch number, from 0, increasing.
        offsets: Digest of the source offsets (see `digest_source_offsets`); None if they are unknown.
        search: The commits that were read for it.
    """

    identifier: str
    number: int
    offsets: str | None = None
    search: CommitSearch = field(default_factory=CommitSearch, compare=False, repr=False)

    def check(self, context: TableContext, timeline: Timeline) -> Mapping[str, str]:
        """Return the entries for the commit of the batch.

        Raises:
            AlreadyCommitted: The batch or a later one is committed.
            InvalidRequest: The batch was committed with other source offsets.
        """
        last = find_last_batch(context, timeline, self.identifier, self.search)
        if last is not None and last >= self.number:
            self._check_offsets(context, timeline)
            raise AlreadyCommitted(
                f"batch {self.number} of stream {self.identifier} is already committed in {context.storage.uri}"
            )
        entries = {SINK_CHECKPOINT_KEY: json.dumps({self.identifier: str(self.number)})}
        if self.offsets is not None:
            entries[SOURCE_OFFSETS_KEY] = json.dumps({self.identifier: self.offsets})
        return entries

    def _check_offsets(self, context: TableContext, timeline: Timeline) -> None:
        """Raise InvalidRequest if the commit of this batch number has other source offsets."""
        if self.offsets is None:
            return
        for instant, extra in self.search.newest_first(context.timeline, timeline):
            number = _number_in(extra, self.identifier)
            if number is None or number > self.number:
                continue
            stored = _entry(extra, SOURCE_OFFSETS_KEY, self.identifier) if number == self.number else None
            if stored not in (None, self.offsets):
                raise InvalidRequest(
                    f"batch {number} of stream {self.identifier} was committed to {context.storage.uri} as "
                    f"{instant.request_time} with other source offsets: the checkpoint is older than the table. Continue "
                    f"from the newest checkpoint, or set {write_options.STREAMING_CHECKPOINT_IDENTIFIER} to a new name, "
                    "which writes the rows after this checkpoint again"
                )
            return


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


def digest_source_offsets(checkpoint: str, number: int, storage_options: Mapping[str, str] | None = None) -> str | None:
    """Return a digest of the source offsets of a micro-batch; None if the checkpoint has no such batch, or is unreadable.

    Args:
        checkpoint: Spark's checkpoint location of the query.
        number: Number of the batch. Spark stores its offsets before it runs.
        storage_options: Credentials and settings for the location.
    """
    try:
        storage = open_storage(checkpoint, storage_options)
        text = storage.read(join_path(_OFFSETS_FOLDER, str(number)))
        if text is None:
            return None
        digest = hashlib.sha256()
        for source, line in enumerate(text.splitlines()[_OFFSETS_HEADER_LINES:]):
            digest.update(line + b"\n")
            for file in _files_of_source(storage, source, line):
                digest.update(file)
        return digest.hexdigest()
    except HudiError as error:
        _LOG.warning("source offsets of batch %d are not compared, checkpoint %s: %s", number, checkpoint, error)
        return None


def _files_of_source(storage: Storage, source: int, offset: bytes) -> list[bytes]:
    """Return the files of a batch of Spark's file source, whose offset is a counter: entries of its log, sorted."""
    try:
        counter = json.loads(offset)["logOffset"]
    except (ValueError, TypeError, KeyError):
        return []
    for name in (f"{counter}", f"{counter}.compact"):
        text = storage.read(join_path(_SOURCES_FOLDER, str(source), name))
        if text is not None:
            entry = b'"batchId":%d}' % counter
            return sorted(line for line in text.splitlines() if line.endswith(entry))
    return []


def stream_identifier(settings: SinkSettings, query_id: str, operation: WriteOperation) -> str:
    """Return the identifier of a stream: from its option, else the id of its query with the operation.

    One query may write to a table with several operations, such as the upserts and deletes of a change feed.
    """
    return f"{query_id}/{operation}" if settings.identifier is None else settings.identifier


def _number_in(extra: Mapping[str, str], identifier: str) -> int | None:
    text = _entry(extra, SINK_CHECKPOINT_KEY, identifier)
    try:
        return None if text is None else int(text)
    except ValueError as error:
        raise CorruptData(f"{SINK_CHECKPOINT_KEY} in commit metadata is unreadable: {text!r}") from error


def _entry(extra: Mapping[str, str], key: str, identifier: str) -> str | None:
    text = extra.get(key)
    if not text:
        return None
    try:
        entries = json.loads(text)
        return str(entries[identifier]) if identifier in entries else None
    except (ValueError, TypeError) as error:
        raise CorruptData(f"{key} in commit metadata is unreadable: {text[:200]!r}") from error
