"""`spark.readStream.format("pyhudi")`: a table as a source of Structured Streaming.

Offset     {"completion_time": "20261121054507123"}: all instants completed up to then were read
Batch      the instants that completed after its start, up to its end: their records in the latest state at the end, or
           with `hoodie.datasource.query.incremental.format=cdc` every single change
Limits     pyhudi.stream.max.instants, .max.files, .max.bytes: whole instants, at least one; they apply to each batch
           unless the trigger requests all available data. Trigger.AvailableNow stops at the instants completed when the
           query started
Restart    an interrupted batch is planned again between the same two offsets, so nothing is lost or read twice

The driver's Python worker plans; a partition includes its reader, and executors read it into Arrow.

Source: docs/formats/reading.md, "Streaming source".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.operations.read.stream_queries import (
    check_stream_options,
    initial_position,
    latest_position,
    next_position,
    plan_batch,
)
from pyhudi.options.declaration import Options
from pyhudi.options.read_options import FILTER
from pyhudi.planning.stream_batches import BatchLimits
from pyhudi.records.schema_cast import relabel_array, same_type
from pyhudi.records.vectors import in_spark_layout, list_layout, spark_layout
from pyhudi.table.table_context import TableContext

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxFiles,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # PySpark 4.1 has only the latest offset, without limits.
    HAS_LIMITS = False
else:
    HAS_LIMITS = True

_POSITION = "completion_time"
_MANY_FILES = (1 << 31) - 1

OpenTable = Callable[[], tuple[TableContext, Options]]
"""Opens the table with its current state; picklable."""


@dataclass(frozen=True)
class BatchPartition(InputPartition):
    """Tasks of one batch, and their reader."""

    tasks: tuple[Any, ...]
    read: Callable[[Any], Iterator[pa.Table]]

    def __init__(self, tasks: tuple[Any, ...], read: Callable[[Any], Iterator[pa.Table]]) -> None:
        object.__setattr__(self, "tasks", tasks)
        object.__setattr__(self, "read", read)
        object.__setattr__(self, "value", None)


class _StreamReader(DataSourceStreamReader):
    """Base class of the readers for all releases of PySpark."""

    def __init__(
        self,
        open_table: OpenTable,
        expected_schema: pa.Schema,
        pack: Callable[[Sequence[Any]], Sequence[tuple[Any, ...]]],
    ) -> None:
        """open_table: see `OpenTable`. expected_schema: the columns as Spark expects them. pack: groups tasks by Spark task."""
        # No validation here: Spark hides the exceptions of a constructor behind its own error.
        self._open_table = open_table
        self._wanted = expected_schema
        self._pack = pack
        self._until: str | None = None

    def initialOffset(self) -> dict[str, str]:
        """The offset at which a new stream starts."""
        return {_POSITION: initial_position(*self._open())}

    def reportLatestOffset(self) -> dict[str, str]:
        """The latest completed offset, for the progress of the query."""
        context, _ = self._open()
        return {_POSITION: latest_position(context)}

    def _open(self) -> tuple[TableContext, Options]:
        context, options = self._open_table()
        check_stream_options(options)
        return context, options

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch."""
        first, last = _position(start), _position(end)
        if first == last:
            return []
        context, options = self._open()
        condition = options.text(FILTER)
        query = plan_batch(context, options, first, last, self._wanted.names, condition)
        for field, stored in zip(self._wanted, list_layout(query.schema), strict=True):
            if not same_type(field.type, stored.type):
                raise InvalidRequest(
                    f"column {field.name!r} is {stored.type}, but the stream started with {field.type}; restart the query"
                )
        return [BatchPartition(tasks, query.reader) for tasks in self._pack(query.tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition."""
        assert isinstance(partition, BatchPartition)
        for task in partition.tasks:
            yield from arrow_batches(partition.read(task), self._wanted)


def arrow_batches(tables: Iterator[pa.Table], expected_schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows in exactly the types that Spark expects."""
    expected_schema = spark_layout(expected_schema)
    for rows in tables:
        for batch in map(in_spark_layout, rows.to_batches()):
            if batch.num_rows:
                yield pa.RecordBatch.from_arrays(
                    [relabel_array(c, f) for c, f in zip(batch.columns, expected_schema, strict=True)], schema=expected_schema
                )


def _position(offset: Mapping[str, Any]) -> str:
    position = offset.get(_POSITION)
    if not isinstance(position, str) or not position.isdigit():
        raise InvalidRequest(f"the checkpoint contains an offset of another source: {dict(offset)!r}")
    return position


if HAS_LIMITS:

    class HudiStreamReader(_StreamReader, SupportsTriggerAvailableNow):
        """The reader for PySpark 4.2 and newer, with limits."""

        def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, str]:
            """End of the next batch; `start` if nothing completed."""
            context, options = self._open()
            limits = BatchLimits() if isinstance(limit, ReadAllAvailable) else BatchLimits.of(options)
            return {_POSITION: next_position(context, _position(start), limits, self._until)}

        def getDefaultReadLimit(self) -> ReadLimit:
            """The Spark limit that represents PyHudi's limits, which Spark has no type for."""
            limits = BatchLimits.of(self._open()[1])
            if not limits.any:
                return ReadAllAvailable()
            if limits.size_bytes is not None:
                return ReadMaxBytes(limits.size_bytes)
            return ReadMaxFiles(_MANY_FILES if limits.files is None else limits.files)

        def prepareForTriggerAvailableNow(self) -> None:
            """Leave instants that complete later to the next run."""
            context, _ = self._open()
            self._until = latest_position(context)

else:

    class HudiStreamReader(_StreamReader):  # type: ignore[no-redef]
        """The reader for PySpark 4.1, without limits."""

        def latestOffset(self) -> dict[str, str]:  # type: ignore[override]
            """What has completed by now."""
            if BatchLimits.of(self._open()[1]).any:
                raise Unsupported("limits of a batch (pyhudi.stream.max...) need PySpark 4.2 or newer")
            return self.reportLatestOffset()
