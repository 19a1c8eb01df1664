"""One table of a job: read a batch, transform and check its rows, and commit them with the checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyhudi.api.table import Table
from pyhudi.engines.arrow.input_rows import arrow_reader
from pyhudi.errors import HudiError, InvalidRequest, ServiceFailed, StorageUnavailable, TableExists, TableState, get_logger
from pyhudi.features.ingestion.checkpoints import CheckpointMark, StoredCheckpoint, find_checkpoint
from pyhudi.features.ingestion.error_rows import ErrorRows
from pyhudi.features.ingestion.job_config import TableJob
from pyhudi.features.ingestion.row_checks import RowRules
from pyhudi.features.ingestion.source_protocol import Batch, ReadContext, Source, TextRules, as_batch
from pyhudi.features.ingestion.sql_source import SqlSource
from pyhudi.operations.admin.stored_settings import table_constraints
from pyhudi.operations.commit.events import OperationEvent, notify_listeners
from pyhudi.operations.commit.results import IngestedBatch, WriteResult
from pyhudi.operations.write.save_modes import mode_operation
from pyhudi.operations.write.write_once import CommitSearch
from pyhudi.operations.write.write_schemas import fixed_columns
from pyhudi.operations.write.write_settings import WriteOperation, with_arguments
from pyhudi.options.service_options import SERVICES_SWITCH
from pyhudi.options.table_options import WITHOUT_ZONE
from pyhudi.records.java_strings import is_string_like
from pyhudi.records.schema_evolution import SchemaMode
from pyhudi.records.timestamp_coercion import ZonelessTimestamps
from pyhudi.storage.environment import Environment

if TYPE_CHECKING:
    from pyhudi.engines.spark.type_conversion import SparkSession

_LOG = get_logger("pyhudi.ingestion")


@dataclass(frozen=True, slots=True)
class IngestResult:
    """What a job has done for one table.

    Attributes:
        table: Location of the table.
        batches: Number of commits.
        rows: Number of rows written.
        bad_rows: Number of rows in the error table.
        checkpoint: The checkpoint after the last batch; None if there is none.
        remaining: What the source still has, by unit.
        error: The error that ended the ingestion into this table; None if it ended as intended.
    """

    table: str
    batches: int = 0
    rows: int = 0
    bad_rows: int = 0
    checkpoint: str | None = None
    remaining: Mapping[str, int] = field(default_factory=dict)
    error: Exception | None = None

    def __str__(self) -> str:
        state = f"failed: {self.error}" if self.error is not None else f"checkpoint {self.checkpoint}"
        return f"{self.table}: {self.rows:,} rows in {self.batches:,} commits, {self.bad_rows:,} bad rows, {state}"


class TableIngestion:
    """Ingests into one table, a batch at a time. State is in the table alone."""

    def __init__(self, job: TableJob, environment: Environment, spark: SparkSession | None = None) -> None:
        self._job = job
        self._environment = environment
        self._spark = spark
        self._source: Source | None = None
        self._table: Table | None = None
        self._stop_services: Callable[[], object] | None = None
        self._remaining: Mapping[str, int] = {}
        self.result = IngestResult(job.path)

    def step(self) -> bool:
        """Ingest the next batch. Returns False if the source has no new rows.

        Raises:
            HudiError: The batch is not committed, and a repeated step reads it again. After ServiceFailed it is
                committed.
        """
        table, source = self._open()
        started_ms = self._environment.monotonic_ms()
        try:
            batch = self._ingest(table, source, started_ms)
        except Exception as error:
            self._notify(table, started_ms, error=type(error).__name__)
            raise
        if batch is None:
            return True
        self._notify(table, started_ms, batch)
        return batch.batches > 0

    def _notify(self, table: Table, started_ms: int, batch: IngestedBatch | None = None, *, error: str | None = None) -> None:
        seconds = (self._environment.monotonic_ms() - started_ms) / 1000
        notify_listeners(table.context, OperationEvent("ingest", table.uri, table.config.name, seconds, error, batch))

    def _ingest(self, table: Table, source: Source, started_ms: int) -> IngestedBatch | None:
        """Ingest the next batch. Returns None if another instance of the job has committed it."""
        search = CommitSearch()
        stored = self._stored(table, search)
        checkpoint = self._start(stored, source)
        batch = as_batch(self._read(source, checkpoint), self._job.source_kind)
        if batch is None or (stored is not None and checkpoint == batch.checkpoint == stored.value):
            self.result = replace(self.result, checkpoint=checkpoint, remaining={})
            self._remaining = dict.fromkeys(self._remaining, 0)
            lag = self._lag_seconds(source, checkpoint)
            return IngestedBatch(self._job.source_kind, remaining=self._remaining, lag_seconds=lag)
        mark = CheckpointMark(
            None if stored is None else stored.instant,
            batch.checkpoint,
            self._job.source_kind,
            self._job.checkpoint,
            self._job.ignore_checkpoint,
            search,
        )
        errors = ErrorRows(table.uri, checkpoint, self._error_table if self._job.error_table is not None else None)
        written = self._write(table, batch, mark, errors)
        if written.skipped:
            _LOG.info("%s: another instance of the job has committed the batch; continuing at its checkpoint", table.uri)
            return None
        rows_written = written.rows_in - written.rows_combined
        self.result = replace(
            self.result,
            batches=self.result.batches + 1,
            rows=self.result.rows + rows_written,
            bad_rows=self.result.bad_rows + errors.count,
            checkpoint=batch.checkpoint,
            remaining=batch.remaining,
        )
        _LOG.info(
            "%s: %d rows, %d bad rows in commit %s, %d ms; checkpoint %s; remaining: %s",
            table.uri,
            rows_written,
            errors.count,
            written.instant,
            self._environment.monotonic_ms() - started_ms,
            batch.checkpoint,
            ", ".join(f"{count:,} {unit}" for unit, count in batch.remaining.items()) or "nothing known",
        )
        self._remaining = batch.remaining
        lag = self._lag_seconds(source, batch.checkpoint)
        return IngestedBatch(self._job.source_kind, 1, rows_written, errors.count, batch.size, batch.remaining, lag_seconds=lag)

    def _lag_seconds(self, source: Source, checkpoint: str | None) -> float | None:
        """Age of the checkpoint of a database."""
        if checkpoint is None or not isinstance(source, SqlSource):
            return None
        return source.lag_seconds(checkpoint, self._environment.now_ms())

    def close(self) -> None:
        """Finish the background services, if they run."""
        if self._stop_services is not None:
            self._stop_services()
            self._stop_services = None

    def _open(self) -> tuple[Table, Source]:
        if self._table is None or self._source is None:
            job = self._job
            self._source = job.open_source(self._environment)
            self._table = self._open_or_create()
            if job.services == "background":
                self._stop_services = self._table.background_services(spark=self._spark).stop
        return self._table, self._source

    def _open_or_create(self) -> Table:
        job = self._job
        create = partial(
            Table._create,
            job.path,
            name=job.name,
            partition_by=job.partition_by,
            ordering=job.ordering,
            table_type=job.table_type,
            storage_options=job.storage_options or None,
            options=job.options or None,
            environment=self._environment,
            exist_ok=True,
        )
        key = job.record_key or self._existing_key()
        try:
            return create(record_key=key)
        except TableExists:
            if key is not None:
                raise
            # Another writer has created the table since.
            return create(record_key=self._existing_key())

    def _existing_key(self) -> tuple[str, ...] | None:
        """The record key of the table if it exists: a job need not repeat it."""
        storage_options = self._job.storage_options or None
        if not Table.exists(self._job.path, storage_options):
            return None
        return Table(self._job.path, storage_options, stored_options=False).config.keys.record_fields or None

    def _error_table(self) -> Table:
        path = self._job.error_table
        assert path is not None, "the caller has checked it"
        return Table._create(
            path,
            record_key="id",
            storage_options=self._job.storage_options or None,
            environment=self._environment,
            exist_ok=True,
        )

    def _read(self, source: Source, checkpoint: str | None) -> object:
        """The next batch. Errors that are not PyHudi's are those of a Python source."""
        try:
            return source.read(checkpoint, self._job.limit)
        except HudiError:
            raise
        except Exception as error:
            failure = StorageUnavailable if isinstance(error, OSError) else InvalidRequest
            raise failure(
                f"source {self._job.source_kind} of {self._job.path} failed: {type(error).__name__}: {error}"
            ) from error

    def _stored(self, table: Table, search: CommitSearch) -> StoredCheckpoint | None:
        context = table.context.reloaded()
        stored = find_checkpoint(context, context.timeline.load(), search)
        if stored is not None and stored.source not in (None, self._job.source_kind):
            raise TableState(
                f"the checkpoint of {table.uri} was written by a source of kind {stored.source}, and the job has kind "
                f"{self._job.source_kind}: a table stores the checkpoint of one source"
            )
        return stored

    def _start(self, stored: StoredCheckpoint | None, source: Source) -> str | None:
        """The checkpoint from which to read: the stored one, unless the job prescribes another for the first time."""
        job = self._job
        if job.ignore_checkpoint is not None and (stored is None or job.ignore_checkpoint != stored.ignored):
            return None
        if job.checkpoint is not None and (stored is None or job.checkpoint != stored.reset):
            return job.checkpoint
        if stored is None:
            return None
        if stored.value is None:
            raise TableState(
                f"commit {stored.instant} of {job.path} has a reset key and no checkpoint: "
                "set checkpoint or ignore_checkpoint in the job"
            )
        convert = getattr(source, "completion_time", None)
        return str(convert(stored.value)) if stored.version == 1 and convert is not None else stored.value

    def _write(self, table: Table, batch: Batch, mark: CheckpointMark, errors: ErrorRows) -> WriteResult:
        options = dict(
            with_arguments(
                None,
                schema_mode=self._job.schema_mode,
                missing_columns=self._job.missing_columns,
                commit_metadata=self._job.commit_metadata,
            )
            or {}
        )
        if self._job.services == "none":
            options[SERVICES_SWITCH.key] = False
        has_keys = bool(table.config.keys.record_fields)
        default = WriteOperation.UPSERT if has_keys else WriteOperation.INSERT
        operation = default if self._job.mode is None else mode_operation(self._job.mode) or WriteOperation.INSERT
        try:
            with ExitStack() as resources:
                rows = (
                    self._rows(table, batch, errors)
                    if self._spark is None
                    else self._frame(self._spark, table, batch, errors, resources)
                )
                return table.write_batch(rows, operation, mark, options=options)
        except ServiceFailed as error:
            _LOG.warning("%s: the batch is committed; %s", table.uri, error)
            return WriteResult(str(operation), error.instant, None)

    def _rows(self, table: Table, batch: Batch, errors: ErrorRows) -> pa.RecordBatchReader:
        """The rows of a batch as they are written. Bad rows are in the error table when the stream ends."""
        known, is_complete = self._known_columns(table)
        if callable(batch.rows) and not hasattr(batch.rows, "__arrow_c_stream__"):
            reader = batch.rows(ReadContext(known, is_complete, errors.add, self._texts(table)))
        else:
            reader = arrow_reader(batch.rows)
        for transform in self._job.transforms:
            reader = transform(reader)
        rules = self._rules(table)
        schema = rules.output_schema(reader.schema)
        if not schema.names:
            if rules.schema is None:
                raise InvalidRequest(
                    f"neither table {table.uri} nor the first batch of its source has a column: set schema in the job, "
                    "or create the table with its columns"
                )
            schema = rules.schema

        def checked() -> Iterator[pa.RecordBatch]:
            for rows in reader:
                if not rows.num_rows:
                    continue
                good, records, reasons = rules.split(rows, schema)
                errors.add(records, reasons, self._job.source_kind)
                yield good
            errors.flush()

        return pa.RecordBatchReader.from_batches(schema, checked())

    def _frame(self, spark: SparkSession, table: Table, batch: Batch, errors: ErrorRows, resources: ExitStack) -> Any:
        """The rows of a batch as a Spark DataFrame. Bad rows are in the error table."""
        from pyhudi.features.ingestion.spark_batches import SparkBatch

        known, is_complete = self._known_columns(table)
        spark_batch = SparkBatch(spark, self._job.source_kind, resources)
        spark_batch, frame = spark_batch.read(batch.rows, known, self._texts(table), is_complete=is_complete)
        frame = spark_batch.transformed(frame, self._job.transforms)
        spark_batch, frame = spark_batch.checked(frame, self._rules(table))
        spark_batch.store_bad(errors)
        return frame

    def _known_columns(self, table: Table) -> tuple[pa.Schema | None, bool]:
        """The columns of the source that are known, and whether they are all."""
        provided = self._job.source_schema(table)
        if provided is not None:
            return provided, True
        # Without a transform the columns of the source are those of the table.
        return None if self._job.transforms else _schema(table), False

    def _texts(self, table: Table) -> TextRules:
        texts = frozenset(field.name for field in _schema(table) or () if is_string_like(field.type))
        is_utc = table._open.options.text(WITHOUT_ZONE) == ZonelessTimestamps.UTC
        fixed = frozenset(fixed_columns(table.context.config))
        return TextRules(texts, is_utc, fixed, widens_fractions=bool(self._job.schema_mode))

    def _rules(self, table: Table) -> RowRules:
        present = _schema(table)
        config = table.context.reloaded().config
        mode = SchemaMode(self._job.schema_mode or SchemaMode.MERGE)
        required = {field.name for field in present or () if not field.nullable and mode is not SchemaMode.WIDEN}
        return RowRules(
            present,
            config.keys.record_fields,
            tuple(dict.fromkeys([*config.ordering_fields, *sorted(required)])),
            table_constraints(config),
            mode,
            tuple(fixed_columns(config).items()),
        )


def _schema(table: Table) -> pa.Schema | None:
    try:
        return table.schema()
    except TableState:
        return None
