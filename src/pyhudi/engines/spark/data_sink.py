"""`df.write.format("pyhudi")` and `writeStream.format("pyhudi")`: writes through Spark's Python data source API.

A bulk insert that writes its rows as they arrive:

    plan      a helper process of the driver, without a session, starts the write: its instant, its inflight file
    tasks     write the table's base files, with markers and write tokens of their attempts, as those of
              `pyhudi.spark.write` do
    commit    another helper process commits the output of the attempts that Spark accepted; files of others are deleted
    abort     rolls the write back

Every other operation, a bulk insert that is sorted or combined, and each batch of a stream:

    tasks     stage their rows (`pyhudi.tasks.staged_writes`): Spark lets a source neither shuffle nor sort
    commit    a helper process of the driver, which has no session, writes them with the embedded engine: the ordinary
              write, with its instants, conflicts and services.  A batch of a stream is committed once, identified by its
              number in the commit.  More than `pyhudi.spark.staged.bytes` are refused
    abort     drops the staged rows; the table was not changed

With `pyhudi.spark.write` the tasks write the table's files for every operation; use it for many rows.

The stream's name in commits is `hoodie.datasource.write.streaming.checkpoint.identifier`, else the query's id in its
checkpoint with the operation, which `pyhudi.spark.write_stream` uses too.

Source: docs/formats/writing.md, "Streaming sink", "Bulk inserts of a data source".
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.engines.spark.incoming import task_budget
from pyhudi.engines.spark.worker_tasks import WritePartitions, decode_statuses, task_token, wire_schema
from pyhudi.errors import InvalidRequest
from pyhudi.format.paths import STAGED_FOLDER, join_path
from pyhudi.operations.commit.results import WriteResult
from pyhudi.operations.write.micro_batches import (
    SinkSettings,
    StreamBatch,
    digest_source_offsets,
    retried,
    stream_identifier,
)
from pyhudi.operations.write.save_modes import Save, stream_operation
from pyhudi.operations.write.write_settings import WriteOperation
from pyhudi.options.declaration import Options
from pyhudi.options.service_options import COMPACT_INLINE
from pyhudi.options.write_options import (
    OPERATION,
    PARTITIONS_TO_DELETE,
    STAGED_BYTES,
    STREAMING_CHECKPOINT_IDENTIFIER,
    THREADS,
)
from pyhudi.records.keys.key_spec import KeySpec
from pyhudi.records.schema_cast import conform_table
from pyhudi.storage import open_storage
from pyhudi.storage.environment import SystemEnvironment
from pyhudi.tasks.incoming_rows import incoming_schema
from pyhudi.tasks.staged_writes import StagedRows, check_staged_size, drop_staged, stage_rows, staged_rows, sweep_staged

M = TypeVar("M", bound=WriterCommitMessage)

_METADATA_OF_CHECKPOINT = "metadata"

_DECIDED = "decided"
"""A file in the folder of a write."""


@dataclass(frozen=True, slots=True)
class SinkTarget:
    """Target and options of a write; each attempt is planned again in the process that executes it.

    Attributes:
        path: Path of the table.
        mode: Save mode.
        options: Options of Hudi and PyHudi.
        storage_options: Storage options.
        columns: Schema of the rows.
    """

    path: str
    mode: str
    options: Options
    storage_options: Mapping[str, str] = field(repr=False)
    columns: pa.Schema

    def planned(self) -> Save:
        """Plan the write.  Raises every error that can be detected before rows are written."""
        if self.path.startswith("memory:"):
            raise InvalidRequest(
                f"{self.path} is in the memory of one process, which Spark's workers cannot access: use a path or an object store"
            )
        save = Save.planned(self.path, self.mode, self.options, self.storage_options, self.columns)
        deletes = save.settings.operation is WriteOperation.DELETE_PARTITION
        if deletes and not save.options.names(PARTITIONS_TO_DELETE):
            raise InvalidRequest(f"delete_partition through a format requires the option {PARTITIONS_TO_DELETE}")
        return save

    def cast_rows(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of a task cast to the exact types of the columns."""
        return (part for batch in rows for part in conform_table(pa.Table.from_batches([batch]), self.columns).to_batches())

    def stage(self, write: str, rows: Iterator[pa.RecordBatch]) -> StagedRows:
        """Stage the rows of this task."""
        context = TaskContext.get()
        assert context is not None, "rows come within a Spark task"
        attempt = f"{context.partitionId()}-{context.taskAttemptId()}"
        storage = open_storage(self.path, self.storage_options)
        return stage_rows(storage, write, attempt, self.columns, self.cast_rows(rows), self.options.integer(STAGED_BYTES))

    def write_staged(self, parts: Sequence[StagedRows], batch: StreamBatch | None = None) -> WriteResult:
        """Write the rows that the tasks have staged.  Raises Unsupported if they are too large for one process."""
        save = self.planned()
        check_staged_size(parts, save.settings.staged_bytes)
        storage = open_storage(self.path, self.storage_options)
        rows = pa.RecordBatchReader.from_batches(self.columns, staged_rows(storage, parts))
        return save.run(self.engine, rows, _no_paths, batch)

    @property
    def engine(self) -> LocalEngine:
        """The engine of the driver's helper processes."""
        return LocalEngine(self.options.integer(THREADS))

    def decide(self, write: str) -> None:
        """Record that a process is about to commit the write, so that a later abort does not roll it back."""
        open_storage(self.path, self.storage_options).put(join_path(STAGED_FOLDER, write, _DECIDED), b"")

    def is_decided(self, write: str) -> bool:
        """Whether `decide` was called."""
        return open_storage(self.path, self.storage_options).stat(join_path(STAGED_FOLDER, write, _DECIDED)) is not None

    def drop(self, writes: set[str]) -> None:
        """Delete staged rows."""
        storage = open_storage(self.path, self.storage_options)
        for write in writes:
            drop_staged(storage, write)
        sweep_staged(storage, SystemEnvironment().now_ms())


@dataclass
class StagedTaskCommit(WriterCommitMessage):
    """Commit message of a task that staged rows.  write: id of its write."""

    write: str
    rows: StagedRows


@dataclass
class TaskCommit(WriterCommitMessage):
    """Commit message of a task that wrote base files.  statuses: of the files, pickled."""

    statuses: bytes


class HudiWriter(DataSourceArrowWriter):
    """Writes a DataFrame.  Spark creates it after computing all stages of the rows except the last."""

    def __init__(self, target: SinkTarget) -> None:
        save = target.planned()
        self._target = target
        self._write = uuid4().hex
        self._begun = save.begin(target.engine, target.columns) if save.supports_detached else None

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedTaskCommit | TaskCommit:  # type: ignore[override]  # as the arrow writers of PySpark
        """Process the rows of a task."""
        if self._begun is None:
            return StagedTaskCommit(self._write, self._target.stage(self._write, iterator))
        begun = self._begun.write
        request = begun.request
        job = WritePartitions(
            begun.spec,
            wire_schema(incoming_schema(request)),
            self._write,
            False,
            False,
            request.rule,
            task_budget(request),
            request,
        )
        with begun.attempt(task_token()):
            answers = list(job(self._target.cast_rows(iterator)))
        statuses = [status for batch in answers for status in decode_statuses(pa.Table.from_batches([batch]))]
        return TaskCommit(pickle.dumps(statuses, protocol=5))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the files of all tasks, or write their staged rows in the order of the tasks."""
        if self._begun is None:
            try:
                self._target.write_staged([message.rows for message in _answers(messages, StagedTaskCommit)])
            finally:
                self._target.drop({self._write})
            return
        statuses = [status for message in _answers(messages, TaskCommit) for status in pickle.loads(message.statuses)]
        # Spark calls `abort` if this fails, although the commit may have succeeded.
        self._target.decide(self._write)
        self._begun.complete(self._target.engine, statuses)
        self._target.drop({self._write})

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Called after a task failed permanently, or the commit failed."""
        try:
            if self._begun is not None and not self._target.is_decided(self._write):
                self._begun.roll_back(self._target.engine)
        finally:
            self._target.drop({self._write})


class HudiStreamWriter(DataSourceStreamArrowWriter):
    """Writes each batch of a stream once.  Spark creates one for the tasks and another one for each commit."""

    def __init__(self, target: SinkTarget, checkpoint: str | None, *, complete: bool) -> None:
        """complete: each batch replaces the table.  checkpoint: location of the query's state."""
        self._settings = SinkSettings.of(target.options)
        operation = stream_operation(target.options, "complete" if complete else "append")
        fixed = {} if operation is None else {OPERATION.key: str(operation)}
        if self._settings.skips_compaction:
            fixed[COMPACT_INLINE.key] = "false"
        target = replace(target, options=target.options.merged(fixed))
        if self._settings.identifier is None and checkpoint is None:
            raise InvalidRequest(
                "a stream needs a name in the commits of its batches: set the option checkpointLocation, or "
                f"{STREAMING_CHECKPOINT_IDENTIFIER}"
            )
        self._operation = target.planned().settings.operation
        self._target = target
        self._checkpoint = checkpoint
        self._write = uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedTaskCommit:  # type: ignore[override]  # as the arrow writers of PySpark
        """Stage the rows of a task."""
        return StagedTaskCommit(self._write, self._target.stage(self._write, iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Write a batch, unless the table contains it already."""
        parts = [message.rows for message in _answers(messages, StagedTaskCommit)]
        batch = self._batch(batchId)
        retried(lambda: self._target.write_staged(parts, batch), self._settings, SystemEnvironment(), batchId, self._target.path)
        self.abort(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Delete the staged rows of a batch."""
        self._target.drop({message.write for message in messages if isinstance(message, StagedTaskCommit)})

    def _batch(self, number: int) -> StreamBatch:
        query_id, offsets = "", None
        if self._checkpoint is not None:
            offsets = digest_source_offsets(self._checkpoint, number)
            query_id = "" if self._settings.identifier else self._query_id(self._checkpoint)
        return StreamBatch(stream_identifier(self._settings, query_id, self._operation), number, offsets)

    def _query_id(self, checkpoint: str) -> str:
        text = open_storage(checkpoint).read(_METADATA_OF_CHECKPOINT)
        try:
            return str(json.loads(text or b"")["id"])
        except (ValueError, KeyError, TypeError):
            raise InvalidRequest(
                f"the checkpoint {checkpoint} lacks the id of its query: "
                f"set {STREAMING_CHECKPOINT_IDENTIFIER} to a name that is unique to the stream"
            ) from None


def _answers(messages: Sequence[WriterCommitMessage | None], kind: type[M]) -> list[M]:
    matching = [message for message in messages if isinstance(message, kind)]
    assert len(matching) == len(messages), "Spark commits when all tasks have answered"
    return matching


def _no_paths(keys: KeySpec) -> list[str]:
    raise AssertionError("planned with the partitions that it deletes")
