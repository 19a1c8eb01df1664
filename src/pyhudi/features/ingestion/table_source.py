"""A Hudi table as a source: its rows, then what each later commit changed.

The checkpoint is the completion time of the last commit that was read, as that of Hudi's HoodieIncrSource for tables of
version 8 and above.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.api.scan import Scan
from pyhudi.api.table import Table
from pyhudi.errors import InvalidRequest, TableState, Unsupported
from pyhudi.features.ingestion.source_protocol import Batch, Limit, ReadContext
from pyhudi.operations.read.query import SnapshotQuery
from pyhudi.operations.read.stream_queries import latest_position, next_position
from pyhudi.planning.incremental_query import CompletionRange, select_instants
from pyhudi.planning.stream_batches import BEGINNING, BatchLimits
from pyhudi.records.record_merge import IS_DELETED
from pyhudi.storage.environment import Environment, SystemEnvironment

_STARTS = ("snapshot", "earliest", "latest")
_EARLIEST = "0"


@dataclass(frozen=True, slots=True)
class TableSource:
    """Rows of a Hudi table.

    Attributes:
        path: Location of the table.
        start: Where a job without a checkpoint begins: snapshot (all rows, then changes), earliest (the oldest commit) or
            latest (only later commits).
        changes: Read change data, so that deletes are applied too; the table must have been created with it.
        columns: Columns to read; None reads all.
        filter: Predicate of the rows to read.
        max_commits: Maximum number of commits in a batch.
        storage_options: Credentials and settings of the store.
        options: `hoodie.*` options of reads.
        environment: Clock.
    """

    path: str
    start: str = "snapshot"
    changes: bool = False
    columns: tuple[str, ...] | None = None
    filter: str | None = None
    max_commits: int | None = None
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    options: Mapping[str, object] = field(default_factory=dict)
    environment: Environment = field(default_factory=SystemEnvironment)

    def __post_init__(self) -> None:
        if self.start not in _STARTS:
            raise InvalidRequest(f"source table has start={self.start!r}: choose from {', '.join(_STARTS)}")
        if self.changes and (self.columns is not None or self.filter is not None):
            raise Unsupported("source table with changes=true reads whole records: select columns and rows in a transform")

    def read(self, checkpoint: str | None, limit: Limit) -> Batch | None:
        """Return the rows of the commits after a checkpoint; None if there are none."""
        if limit.rows is not None:
            raise Unsupported("source table reads whole commits: set max_bytes or max_commits of the source, not max_rows")
        table = Table(self.path, self.storage_options or None, self.options or None, environment=self.environment)
        if not table.config.version.layout.has_completion_time_in_names:
            raise Unsupported(f"source table {table.uri} has version {int(table.config.version)}: upgrade it to version 8 first")
        if checkpoint is None and self.start == "snapshot":
            return self._snapshot(table)
        if checkpoint is None and self.start == "latest":
            # The checkpoint is committed, so that the next read begins at it.
            return Batch(table.schema().empty_table(), latest_position(table.context))
        start = BEGINNING if checkpoint is None or not checkpoint.strip(_EARLIEST) else checkpoint
        if not start.isdigit():
            raise InvalidRequest(
                f"checkpoint {checkpoint!r} is no completion time of a commit: another source type wrote it; set checkpoint "
                "in the job to begin elsewhere"
            )
        limits = BatchLimits(instants=self.max_commits, size_bytes=limit.size_bytes)
        end = next_position(table.context, start, limits)
        if end == start:
            return None
        rest = select_instants(table.timeline(), CompletionRange(end, open_start=True))
        return Batch(
            _Changes(table, start, end) if self.changes else self._changed(table, start, end), end, {"commits": len(rest)}
        )

    def completion_time(self, request_time: str) -> str:
        """Return the checkpoint for one that Hudi Streamer stored as a request time.

        Raises:
            TableState: The table has no such commit.
        """
        table = Table(self.path, self.storage_options or None, self.options or None, environment=self.environment)
        if not request_time.strip(_EARLIEST):
            return request_time
        store = table.context.timeline
        for instant in (*table.timeline().completed_writes(), *store.history.instants()):
            if instant.request_time == request_time and instant.completion_time is not None:
                return instant.completion_time
        raise TableState(
            f"checkpoint {request_time} is the request time of a commit that {table.uri} lacks: set checkpoint in the job"
        )

    def _snapshot(self, table: Table) -> Batch | None:
        scan = self._scan(table)
        assert isinstance(scan.query, SnapshotQuery), "a scan without as_of is a snapshot query"
        times = [i.completion_time or i.request_time for i in scan.query.snapshot.timeline.completed_writes()]
        return Batch(scan, max(times)) if times else None

    def _scan(self, table: Table) -> Scan:
        return table.scan(None if self.columns is None else list(self.columns), self.filter)

    def _changed(self, table: Table, start: str, end: str) -> Scan:
        columns = None if self.columns is None else list(self.columns)
        return table.incremental(after=start, end=end, columns=columns, filter=self.filter)


@dataclass(frozen=True, slots=True)
class _Changes:
    """Change data as rows to upsert: a delete has the marker `_hoodie_is_deleted`."""

    table: Table
    after: str
    end: str

    def __call__(self, _: ReadContext) -> pa.RecordBatchReader:
        scan = self.table.changes(after=self.after, end=self.end, columns=["op", "before", "after"], typed=True)
        record = scan.schema.field("after").type
        marker = pa.field(IS_DELETED, pa.bool_())
        fields = [child.with_nullable(True) for child in record if child.name != IS_DELETED]
        schema = pa.schema([*fields, marker])

        def rows() -> Iterator[pa.RecordBatch]:
            for batch in scan.to_batches():
                deleted = pc.equal(batch.column(batch.schema.get_field_index("op")), "d")
                before, after = (batch.column(batch.schema.get_field_index(name)) for name in ("before", "after"))
                columns = [
                    pc.if_else(deleted, pc.struct_field(before, field.name), pc.struct_field(after, field.name))
                    for field in fields
                ]
                yield pa.RecordBatch.from_arrays([*columns, deleted], schema=schema)

        return pa.RecordBatchReader.from_batches(schema, rows())
