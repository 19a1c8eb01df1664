"""`df.write.format("pyhudi")` and `writeStream.format("pyhudi")`: rows that Spark hands to a data source.

    tasks     put their rows aside (`pyhudi.execute.staged`): Spark lets a source neither shuffle nor sort
    commit    a process beside the driver, without a session, takes them in with the embedded engine: the ordinary write, with its
              instants, conflicts and services.  A batch of a stream lands once, by its number in the commit
    abort     drops what was put aside; the table was not touched

Every operation goes this way.  `pyhudi.spark.write` has the tasks write the table's files and is the way for many rows.

The stream's name in commits is `hoodie.datasource.write.streaming.checkpoint.identifier`, else the query's id in its checkpoint,
which `pyhudi.spark.write_stream` takes too.

Source: docs/formats/writing.md, "Streaming sink".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from pyhudi.engines.local import LocalEngine
from pyhudi.errors import InvalidRequest
from pyhudi.execute.staged import StagedRows, drop_staged, stage_rows, staged_rows, sweep_staged
from pyhudi.operations.action.results import WriteResult
from pyhudi.operations.action.settings import THREADS
from pyhudi.operations.services.settings import COMPACT_INLINE
from pyhudi.operations.write.batches import IDENTIFIER, SinkSettings, StreamBatch, retried
from pyhudi.operations.write.save import Save, stream_operation
from pyhudi.operations.write.settings import OPERATION, PARTITIONS_TO_DELETE, WriteOperation
from pyhudi.records.conform import conform_table
from pyhudi.records.keys.spec import KeySpec
from pyhudi.settings import Options
from pyhudi.storage import open_storage
from pyhudi.storage.clock import SystemEnvironment

_METADATA_OF_CHECKPOINT = "metadata"


@dataclass(frozen=True, slots=True)
class Target:
    """Where rows go, and how.  path: of the table; mode: a save mode; options: Hudi's and PyHudi's.

    Each attempt at a write is planned anew, in the process that makes it.
    """

    path: str
    mode: str
    options: Options
    storage_options: Mapping[str, str] = field(repr=False)
    columns: pa.Schema

    def planned(self) -> Save:
        """The write.  Raises what can be refused before a row is written."""
        if self.path.startswith("memory:"):
            raise InvalidRequest(f"{self.path} lives in the memory of one process, which Spark's workers cannot reach")
        save = Save.planned(self.path, self.mode, self.options, self.storage_options, self.columns)
        deletes = save.settings.operation is WriteOperation.DELETE_PARTITION
        if deletes and not save.options.names(PARTITIONS_TO_DELETE):
            raise InvalidRequest(f"delete_partition through a format needs option {PARTITIONS_TO_DELETE}")
        return save

    def stage(self, write: str, rows: Iterator[pa.RecordBatch]) -> StagedRows:
        """Put the rows of this task aside."""
        context = TaskContext.get()
        assert context is not None, "rows come within a Spark task"
        fitting = (part for batch in rows for part in conform_table(pa.Table.from_batches([batch]), self.columns).to_batches())
        attempt = f"{context.partitionId()}-{context.taskAttemptId()}"
        return stage_rows(open_storage(self.path, self.storage_options), write, attempt, self.columns, fitting)

    def take_in(self, parts: Sequence[StagedRows], batch: StreamBatch | None = None) -> WriteResult:
        """Write what the tasks have put aside."""
        storage = open_storage(self.path, self.storage_options)
        save = self.planned()
        rows = pa.RecordBatchReader.from_batches(self.columns, staged_rows(storage, parts))
        return save.run(LocalEngine(save.options.integer(THREADS)), rows, _no_paths, batch)

    def drop(self, writes: set[str]) -> None:
        """Remove what tasks have put aside."""
        storage = open_storage(self.path, self.storage_options)
        for write in writes:
            drop_staged(storage, write)
        sweep_staged(storage, SystemEnvironment().now_ms())


@dataclass
class Staged(WriterCommitMessage):
    """The answer of a task.  write: the name of the write that it belongs to."""

    write: str
    rows: StagedRows


class HudiWriter(DataSourceArrowWriter):
    """Writes a DataFrame."""

    def __init__(self, target: Target) -> None:
        target.planned()
        self._target = target
        self._write = uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:  # type: ignore[override]  # as the arrow writers of PySpark
        """What a task does with its rows."""
        return Staged(self._write, self._target.stage(self._write, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Write what all tasks have put aside, in the order of the tasks."""
        try:
            self._target.take_in([one.rows for one in _answers(messages)])
        finally:
            self._target.drop({self._write})

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A task has failed to the end, or the commit."""
        self._target.drop({self._write})


class HudiStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream, each once.  Spark makes one for the tasks and another one for each commit."""

    def __init__(self, target: Target, checkpoint: str | None, *, complete: bool) -> None:
        """complete: each batch replaces the table.  checkpoint: where Spark keeps the state of the query."""
        self._settings = SinkSettings.of(target.options)
        operation = stream_operation(target.options, "complete" if complete else "append")
        fixed = {} if operation is None else {OPERATION.key: str(operation)}
        if self._settings.compacts_nothing:
            fixed[COMPACT_INLINE.key] = "false"
        target = replace(target, options=target.options.merged(fixed))
        if self._settings.identifier is None and checkpoint is None:
            raise InvalidRequest(
                f"a stream needs a name in the commits of its batches: give it option checkpointLocation, or {IDENTIFIER}"
            )
        target.planned()
        self._target = target
        self._checkpoint = checkpoint
        self._write = uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:  # type: ignore[override]  # as the arrow writers of PySpark
        """What a task does with its rows."""
        return Staged(self._write, self._target.stage(self._write, iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Write a batch, unless it is in the table already."""
        parts = [one.rows for one in _answers(messages)]
        batch = StreamBatch(self._identifier(), batchId)
        retried(lambda: self._target.take_in(parts, batch), self._settings, SystemEnvironment(), batchId, self._target.path)
        self.abort(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Remove what the tasks of a batch have put aside."""
        self._target.drop({one.write for one in messages if isinstance(one, Staged)})

    def _identifier(self) -> str:
        if self._settings.identifier is not None:
            return self._settings.identifier
        assert self._checkpoint is not None, "the constructor has seen to it"
        text = open_storage(self._checkpoint).read(_METADATA_OF_CHECKPOINT)
        try:
            return str(json.loads(text or b"")["id"])
        except (ValueError, KeyError, TypeError):
            raise InvalidRequest(
                f"the checkpoint {self._checkpoint} does not tell the id of its query: give {IDENTIFIER} a name that is the "
                "stream's own"
            ) from None


def _answers(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    found = [one for one in messages if isinstance(one, Staged)]
    assert len(found) == len(messages), "Spark commits when all tasks have answered"
    return found


def _no_paths(keys: KeySpec) -> list[str]:
    raise AssertionError("planned with the partitions that it deletes")
