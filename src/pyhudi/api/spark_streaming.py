"""Streaming sink: each micro-batch of a Structured Streaming query becomes one commit, exactly once.

    batch        written like `hs.write`; its number is stored in the commit metadata, and a committed batch is skipped
    retry        a failed batch is retried with increasing backoff; then the query fails or drops it
    services     a background thread executes the compactions and clusterings that batches schedule

Spark records a batch as done after the function returns. After a failure in between, Spark passes the same rows again
under the same number, and the commit metadata shows that they are committed: no row is lost or duplicated. A query may
write to one table through several sinks: the operation of a sink is part of its identifier, and two sinks with equal
identifiers are refused.

Source: docs/formats/writing.md, "Streaming sink".
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from uuid import uuid4

from pyhudi.api.argument_types import checked_class
from pyhudi.api.table import Table
from pyhudi.engines.spark.engine import SparkEngine
from pyhudi.engines.spark.type_conversion import DataFrame, StreamingQuery
from pyhudi.errors import InvalidRequest, ServiceFailed, TableExists, get_logger
from pyhudi.operations.admin.open_table import resolve_location
from pyhudi.operations.services.background_services import BackgroundServices
from pyhudi.operations.write.micro_batches import (
    SinkSettings,
    StreamBatch,
    digest_source_offsets,
    retried,
    stream_identifier,
)
from pyhudi.operations.write.save_modes import stream_operation
from pyhudi.operations.write.write_settings import WriteOperation, WriteSettings, check_first_write
from pyhudi.options.scope import check_table_options, spark_write_operation
from pyhudi.options.service_options import COMPACT_ASYNC, COMPACT_INLINE
from pyhudi.options.supported import parse_options
from pyhudi.options.write_options import STREAMING_CHECKPOINT_IDENTIFIER
from pyhudi.storage.environment import Environment, SystemEnvironment

_LOG = get_logger("pyhudi.api.spark_streaming")
_QUERY_ID = "sql.streaming.queryId"
_RUN_ID = "spark.jobGroup.id"
"""Local properties that Spark sets in the thread of a streaming query."""

_commits: dict[tuple[str, str], tuple[str, int, str]] = {}
"""Last commit by table and identifier of a stream: run of the query, batch number, id of the sink."""
_commits_lock = threading.Lock()
_SERVICES = ("compact", "cluster")


@checked_class
class StreamSink:
    """A function for `foreachBatch`: `df.writeStream.foreachBatch(StreamSink(path, options)).start()`.

    Creates the table from the options if it does not exist. It can be pickled; the background thread starts with the first batch.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        options: Mapping[str, object] | None = None,
        storage_options: Mapping[str, str] | None = None,
        *,
        output_mode: str = "append",
        checkpoint: str | os.PathLike[str] | None = None,
        environment: Environment | None = None,
    ) -> None:
        """Create the sink.

        Args:
            path: Location of the table.
            options: `hoodie.*` options of the table and its writes. The identifier of the sink in commits is
                `hoodie.datasource.write.streaming.checkpoint.identifier`, by default the query's id with the operation.
            storage_options: Credentials and settings of the object store, see `docs/object-stores.md`.
            output_mode: append or update write each batch with the operation in the options; complete replaces the
                table with it.
            checkpoint: Checkpoint location of the query. With it, a batch number that comes again with other source
                offsets (the checkpoint was restored from an older copy) is an error instead of a committed batch.
            environment: Clock, id generator and sleep function; the system's by default.

        Raises:
            InvalidRequest: An option cannot be used with a stream.
        """
        uri, storage_options = resolve_location(path, storage_options)
        self._path = os.fspath(uri)
        self._given = dict(options or {})
        self._storage_options = dict(storage_options or {})
        self._checkpoint = None if checkpoint is None else os.fspath(checkpoint)
        self._id = uuid4().hex
        self._environment = environment
        self._options = parse_options(self._given)
        self._operation = stream_operation(self._options, output_mode)
        check_table_options(spark_write_operation(self._operation or WriteOperation.UPSERT), self._options)
        # Reject settings that every batch would fail with before the table is created.
        self._write_settings = WriteSettings.of(self._options, self._operation or WriteOperation.UPSERT)
        self._settings = SinkSettings.of(self._options)
        self._table: Table | None = None
        self._background: BackgroundServices | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_table": None, "_background": None}

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Write one micro-batch, unless it is committed. Raises the error of the last retry."""
        env = self._environment or SystemEnvironment()
        retried(lambda: self._write(batch, number), self._settings, env, number, self._path)

    def close(self) -> None:
        """Stop the background thread after all scheduled plans are executed. Raises the error that ended it earlier."""
        background, self._background = self._background, None
        if background is not None:
            background.stop()

    def _write(self, batch: DataFrame, number: int) -> None:
        table = self._open(batch)
        operation = self._operation
        if operation is None:
            operation = WriteOperation.BULK_INSERT if table.config.keys.generates_keys else WriteOperation.UPSERT
        background = self._background
        if background is None and not self._settings.skips_compaction:
            background = self._background = table.background_services(_SERVICES, plan=False, spark=batch.sparkSession)
        query_id, run_id = self._query(batch)
        identifier = stream_identifier(self._settings, query_id, operation)
        offsets = None if self._checkpoint is None else digest_source_offsets(self._checkpoint, number, self._storage_options)
        mark = StreamBatch(identifier, number, offsets)
        try:
            skipped = table.write_batch(batch, operation, mark, options=self._services(table)).skipped
        except ServiceFailed:
            # The batch is committed.
            self._check_only_sink(run_id, identifier, number, skipped=False)
            raise
        self._check_only_sink(run_id, identifier, number, skipped=skipped)

    def _services(self, table: Table) -> dict[str, object]:
        """Options by which batches schedule and the background thread executes."""
        if self._options.explicit(COMPACT_INLINE) is not None or table.config.is_cow:
            return {}
        if self._settings.skips_compaction:
            return {COMPACT_INLINE.key: "false"}
        if self._options.explicit(COMPACT_ASYNC) is None:
            return {COMPACT_ASYNC.key: "true"}
        return {}

    def _open(self, batch: DataFrame) -> Table:
        if self._table is None:
            if not Table.exists(self._path, self._storage_options):
                columns = SparkEngine(batch.sparkSession).input_schema(batch)
                check_first_write(self._path, self._options, self._write_settings, columns)
                with suppress(TableExists):
                    Table._create(
                        self._path, storage_options=self._storage_options, options=self._given, environment=self._environment
                    )
            self._table = Table(self._path, self._storage_options, self._given, environment=self._environment)
        return self._table

    def _query(self, batch: DataFrame) -> tuple[str, str | None]:
        """Id of the query, which Spark stores in the checkpoint, and of its run; empty and None if the option identifies it."""
        query_id = run_id = None
        with suppress(Exception):
            context = batch.sparkSession.sparkContext
            query_id, run_id = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_RUN_ID)
        if not query_id and self._settings.identifier is None:
            raise InvalidRequest(
                "the session does not provide the id of its query (Spark Connect does not): set "
                f"{STREAMING_CHECKPOINT_IDENTIFIER} to a name "
                "that is unique to the stream"
            )
        return query_id or "", run_id or None

    def _check_only_sink(self, run_id: str | None, identifier: str, number: int, *, skipped: bool) -> None:
        """Raise InvalidRequest if another sink of this run has committed the batch under the same identifier."""
        if run_id is None:
            return
        with _commits_lock:
            if not skipped:
                _commits[self._path, identifier] = (run_id, number, self._id)
                return
            last = _commits.get((self._path, identifier), (run_id, number, self._id))
        if last != (run_id, number, self._id) and last[:2] == (run_id, number):
            raise InvalidRequest(
                f"two sinks of one query write to {self._path} with the identifier {identifier}, so the second one would skip "
                f"its rows of batch {number}: set {STREAMING_CHECKPOINT_IDENTIFIER} of each sink to a name of its own"
            )


def start(
    sink: StreamSink,
    df: DataFrame,
    *,
    output_mode: str,
    checkpoint: str | os.PathLike[str] | None,
    trigger: Mapping[str, Any] | None,
    query_name: str | None,
) -> StreamingQuery:
    """Start a query that writes to a sink; the sink is closed when the query ends."""
    writer = df.writeStream.outputMode(output_mode)
    if checkpoint is not None:
        writer = writer.option("checkpointLocation", os.fspath(checkpoint))
    if trigger is not None:
        writer = writer.trigger(**trigger)
    if query_name is not None:
        writer = writer.queryName(query_name)
    function: Callable[[Any, int], None] = sink
    query = writer.foreachBatch(function).start()
    threading.Thread(target=_close_after, args=(query, sink), name="pyhudi-stream", daemon=True).start()
    return query


def _close_after(query: StreamingQuery, sink: StreamSink) -> None:
    with suppress(Exception):
        # Callers of awaitTermination receive the error of the query.
        query.awaitTermination()
    try:
        sink.close()
    except Exception as error:
        _LOG.warning("background services of a stream ended with an error: %s", error)
