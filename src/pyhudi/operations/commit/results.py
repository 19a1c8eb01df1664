"""Results of operations, as values that print as a short readable block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pyhudi.records.html_repr import HtmlRepr


@dataclass(frozen=True, slots=True)
class OperationResult(HtmlRepr):
    """Base of the results of operations."""

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class WriteResult(OperationResult):
    """The outcome of a write.

    Attributes:
        operation: Name of the operation.
        instant: Request time; None if there was nothing to commit.
        completion_time: Completion time; None if there was nothing to commit.
        rows_in: Rows given to the write.
        rows_combined: Rows of `rows_in` that were dropped because another row of the write has their key.
        rows_inserted: Rows inserted.
        rows_updated: Rows updated. In copy-on-write tables, rows that lost to newer records are not counted. Log files of
            merge-on-read tables are merged later, so updates that may lose are counted.
        rows_unchanged: The other rows of `rows_in`: they lost to newer records, or their key is missing (deletes and partial
            updates) or exists (inserts that skip existing keys). None if an upsert deleted records and the index is
            global: a record that moves to another partition is deleted there, and inserted.
        rows_deleted: Rows deleted. If file groups were replaced (overwrites, deleted partitions), the number of records
            in them, from the footers of their base files. None if that number is unknown without reading rows, because
            replaced file groups have log files or there are more than 1,000 of them.
        file_groups_new: File groups created.
        file_groups_rewritten: File groups rewritten.
        file_groups_replaced: File groups replaced.
        log_files: Log files written.
        bytes_written: Bytes of all written data files.
        bytes_rewritten: Bytes of rewritten file groups.
        index: Index that located the records, None if no lookup was needed.
        index_source: Data that the index lookup read.
        conflict_retries: Number of times the write was planned again after a conflict.
        rolled_back: Failed instants that this write rolled back.
        skipped: True if the write was committed earlier, so that nothing was done. See `once` of `Table.upsert`.
        grouped: Number of writes that the commit contains; 0 if writes were not grouped (`pyhudi.write.group`).
        schema_changes: Changes of the table's columns by this write.
        not_found: Partitions to delete that do not exist.
        services: `due`, `run`, `planned`, `not due` or `off` for each table service.
        callbacks: `delivered`, or the failure, for each commit callback, and for messages that earlier writes left.
        seconds: Seconds by phase of the write until its commit. Inline table services, which run afterwards, are not
            included.
        reason: Why `run_ttl` deleted no partition; '' for other results.
    """

    operation: str
    instant: str | None
    completion_time: str | None
    rows_in: int = 0
    rows_combined: int = 0
    rows_inserted: int = 0
    rows_updated: int = 0
    rows_unchanged: int | None = 0
    rows_deleted: int | None = 0
    file_groups_new: int = 0
    file_groups_rewritten: int = 0
    file_groups_replaced: int = 0
    log_files: int = 0
    bytes_written: int = 0
    bytes_rewritten: int = 0
    index: str | None = None
    index_source: str | None = None
    conflict_retries: int = 0
    rolled_back: tuple[str, ...] = ()
    skipped: bool = False
    grouped: int = 0
    schema_changes: tuple[str, ...] = ()
    not_found: tuple[str, ...] = ()
    services: Mapping[str, str] = field(default_factory=dict)
    callbacks: Mapping[str, str] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""

    def __str__(self) -> str:
        if self.skipped:
            return f"{self.operation} (skipped: committed earlier)"
        if self.reason:
            return f"{self.operation} (nothing to commit)\n  reason        {self.reason}"
        lines = [
            f"{self.operation} {self.instant or '(nothing to commit)'}",
            f"  rows          {self.rows_in:,} in, "
            + (f"{self.rows_combined:,} combined by key, " if self.rows_combined else "")
            + f"{self.rows_inserted:,} inserted, {self.rows_updated:,} updated, "
            + (f"{self.rows_unchanged:,} unchanged, " if self.rows_unchanged else "")
            + f"{'an unknown number' if self.rows_deleted is None else f'{self.rows_deleted:,}'} deleted",
            f"  file groups   {self.file_groups_new:,} new, {self.file_groups_rewritten:,} rewritten, "
            f"{self.file_groups_replaced:,} replaced",
            f"  bytes         {self.bytes_written:,} written, {self.bytes_rewritten:,} of them by rewriting",
            f"  index         {f'{self.index} ({self.index_source})' if self.index else 'not needed'}",
        ]
        if self.log_files:
            lines.insert(3, f"  log files     {self.log_files:,}")
        if self.conflict_retries:
            lines.append(f"  retries       {self.conflict_retries} after conflicts")
        if self.rolled_back:
            lines.append(f"  rolled back   {', '.join(self.rolled_back)}")
        if self.grouped > 1:
            lines.append(f"  grouped       {self.grouped} writes in one commit")
        if self.not_found:
            lines.append(f"  not found     {', '.join(self.not_found)}")
        lines += [f"  {'' if number else 'schema':<12}  {change}" for number, change in enumerate(self.schema_changes)]
        for number, (name, state) in enumerate(self.services.items()):
            lines.append(f"  {'' if number else 'services':<12}  {name}: {state}")
        for number, (name, state) in enumerate(self.callbacks.items()):
            lines.append(f"  {'' if number else 'callbacks':<12}  {name.rpartition('.')[2]}: {state}")
        if self.seconds:
            lines.append(f"  seconds       {', '.join(f'{name} {value:.2f}' for name, value in self.seconds.items())}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class BootstrapResult(OperationResult):
    """The outcome of a bootstrap.

    Attributes:
        instants: Instants of the metadata-only partitions and of the full-record partitions, where any exist.
        partitions: Number of partitions.
        files_metadata_only: Source files whose rows stay in place.
        files_full_record: Source files whose rows were rewritten.
        rows: Number of rows.
        bytes_written: Bytes of written data files.
    """

    instants: tuple[str, ...]
    partitions: int
    files_metadata_only: int
    files_full_record: int
    rows: int
    bytes_written: int

    def __str__(self) -> str:
        return "\n".join(
            [
                f"bootstrap {', '.join(self.instants)}",
                f"  rows          {self.rows:,} in {self.partitions:,} partitions",
                f"  source files  {self.files_metadata_only:,} stay, {self.files_full_record:,} rewritten",
                f"  bytes         {self.bytes_written:,} written",
            ]
        )


@dataclass(frozen=True, slots=True)
class CleanResult(OperationResult):
    """The outcome of a clean, or of planning one.

    Attributes:
        dry_run: True if nothing was deleted; the figures then describe the plan.
        instant: Request time; None in a dry run or if there was nothing to delete.
        completion_time: Completion time; None in a dry run or if there was nothing to delete.
        policy: Cleaning policy.
        reason: Why nothing was deleted, '' if something was.
        earliest_retained: Earliest instant from which everything is retained; None if the policy counts file versions.
        files: Deleted files by partition, as paths relative to the table.
        missing: Number of planned files that did not exist.
        size_bytes: Bytes of the files that existed.
        partitions_deleted: Partitions whose folders were deleted as well.
        finished: Unfinished cleans of dead processes that this call completed.
        rolled_back: Failed writes that were rolled back, and expired clusterings that were dropped, under the LAZY policy.
    """

    dry_run: bool
    instant: str | None
    completion_time: str | None
    policy: str
    reason: str = ""
    earliest_retained: str | None = None
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    missing: int = 0
    size_bytes: int = 0
    partitions_deleted: tuple[str, ...] = ()
    finished: tuple[str, ...] = ()
    rolled_back: tuple[str, ...] = ()

    @property
    def file_count(self) -> int:
        """Number of files that were, or would be, deleted."""
        return sum(len(paths) for paths in self.files.values()) - self.missing

    def __str__(self) -> str:
        head = "clean (dry run)" if self.dry_run else f"clean {self.instant or '(nothing to delete)'}"
        action = "would be deleted" if self.dry_run else "deleted"
        lines = [
            head,
            f"  policy        {self.policy}"
            + (f", everything from {self.earliest_retained} on is retained" if self.earliest_retained else ""),
            f"  files         {self.file_count:,} {action} in {len(self.files):,} partitions, {self.size_bytes:,} bytes",
        ]
        if self.reason:
            lines.append(f"  reason        {self.reason}")
        if self.missing:
            lines.append(f"  missing       {self.missing:,} files did not exist")
        if self.partitions_deleted:
            lines.append(f"  partitions    {', '.join(self.partitions_deleted)} {action}")
        if self.finished:
            lines.append(f"  finished      {', '.join(self.finished)}")
        if self.rolled_back:
            lines.append(f"  rolled back   {', '.join(self.rolled_back)}")
        if self.dry_run and self.file_count:
            lines.append("  run it with   dry_run=False")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class ArchiveResult(OperationResult):
    """The outcome of an archival.

    Attributes:
        instants: Request times of the archived instants, oldest first.
        start: Request time of the first write that remains on the active timeline.
        leftover_files: Number of files of failed attempts that were removed.
        history_merges: Number of merges of archived timeline files.
        reason: Why nothing was archived, '' if something was.
    """

    instants: tuple[str, ...] = ()
    start: str | None = None
    leftover_files: int = 0
    history_merges: int = 0
    reason: str = ""

    def __str__(self) -> str:
        if not self.instants:
            return f"archive (nothing to archive)\n  reason        {self.reason}"
        lines = [
            f"archive {self.instants[0]} to {self.instants[-1]}",
            f"  instants      {len(self.instants):,} moved to the history",
            f"  timeline      begins at {self.start}",
        ]
        if self.leftover_files:
            lines.append(f"  leftovers     {self.leftover_files:,} files of failed attempts removed")
        if self.history_merges:
            lines.append(f"  history       {self.history_merges} merges")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class IngestedBatch:
    """The outcome of one read of the source of an ingestion.

    Attributes:
        source: Kind of the source.
        batches: Number of commits: 0 if the source has no new rows.
        rows: Rows written.
        error_rows: Rows written to the error table.
        size: What the batch contains of the source, by unit: files, rows, bytes.
        remaining: What the source still has, by unit: files, rows, bytes, commits.
        lag_seconds: Age of the newest value that was read; None if it is not a time.
    """

    source: str
    batches: int = 0
    rows: int = 0
    error_rows: int = 0
    size: Mapping[str, int] = field(default_factory=dict)
    remaining: Mapping[str, int] = field(default_factory=dict)
    lag_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class SavepointResult(OperationResult):
    """A new savepoint.

    Attributes:
        instant: Request time of the savepointed write.
        completion_time: Completion time of the savepoint.
        user: Author of the savepoint.
        comments: Comment of the author.
        partitions: Number of retained partitions.
        files: Number of retained files.
        size_bytes: Bytes of the retained files.
    """

    instant: str
    completion_time: str
    user: str
    comments: str
    partitions: int
    files: int
    size_bytes: int

    def __str__(self) -> str:
        return "\n".join(
            [
                f"savepoint {self.instant}",
                f"  keeps         {self.files:,} files in {self.partitions:,} partitions, {self.size_bytes:,} bytes",
                f"  by            {self.user or '(no user)'}" + (f": {self.comments}" if self.comments else ""),
            ]
        )


@dataclass(frozen=True, slots=True)
class RestoreResult(OperationResult):
    """The outcome of a restore.

    Attributes:
        instant: Request time of the restore.
        completion_time: Completion time of the restore.
        restored_to: Request time of the newest remaining write.
        rolled_back: Request times of the removed instants, newest first.
        files_deleted: Number of deleted files.
        dropped_indexes: Indexes that this call dropped with the metadata table. The next write builds it and them again,
            except `indexes_to_create`. Empty if the call completed an interrupted restore that had dropped them.
        indexes_to_create: Dropped indexes that only `Table.index.create`, or their option, builds again.
    """

    instant: str
    completion_time: str
    restored_to: str
    rolled_back: tuple[str, ...]
    files_deleted: int
    dropped_indexes: tuple[str, ...] = ()
    indexes_to_create: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [
            f"restore {self.instant} to {self.restored_to}",
            f"  rolled back   {', '.join(self.rolled_back) or '(nothing was later)'}",
            f"  files         {self.files_deleted:,} deleted",
        ]
        rebuilt = [name for name in self.dropped_indexes if name not in self.indexes_to_create]
        if rebuilt:
            lines.append(f"  indexes       {', '.join(rebuilt)} dropped until the next write")
        if self.indexes_to_create:
            lines.append(f"  create again  {', '.join(self.indexes_to_create)}: dropped")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class CompactionRun:
    """One executed compaction plan.

    Attributes:
        instant: Request time.
        completion_time: Completion time.
        file_groups: File groups in the plan.
        log_files: Log files in the plan.
        files_written: Files written; fewer than file groups if some have no live records.
        rows_written: Rows written.
        rows_updated: Rows updated by log records.
        rows_deleted: Rows deleted by log records.
        bytes_read: Bytes of log files read.
        bytes_written: Bytes written.
        seconds: Duration.
    """

    instant: str
    completion_time: str
    file_groups: int
    log_files: int
    files_written: int
    rows_written: int
    rows_updated: int
    rows_deleted: int
    bytes_read: int
    bytes_written: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ClusteringResult(OperationResult):
    """The outcome of a clustering.

    Attributes:
        instant: Request time, None if there was nothing to cluster.
        completion_time: Completion time, None if it was not run.
        groups: Clustering groups.
        file_groups_read: File groups read.
        file_groups_written: File groups written.
        file_groups_copied: File groups written by copying row groups, without decoding rows.
        decoded_reasons: Why the others were not copied, without duplicates.
        rows: Rows written.
        bytes_read: Bytes read.
        bytes_written: Bytes written.
        order: Sort columns.
        seconds: Seconds by phase, if it was run.
        reason: Why there was nothing to cluster; empty for a plan.
    """

    instant: str | None
    completion_time: str | None
    groups: int = 0
    file_groups_read: int = 0
    file_groups_written: int = 0
    file_groups_copied: int = 0
    decoded_reasons: tuple[str, ...] = ()
    rows: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    order: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""

    def __str__(self) -> str:
        if self.instant is None:
            return f"clustering ({self.reason})"
        by = f", ordered by {', '.join(self.order)}" if self.order else ""
        state = "" if self.completion_time else " (planned, not run)"
        spent = ", ".join(f"{name} {value:.2f}" for name, value in self.seconds.items())
        return (
            f"clustering {self.instant}{state}\n"
            f"  groups        {self.groups:,}{by}\n"
            f"  file groups   {self.file_groups_read:,} read, {self.file_groups_written:,} written, "
            f"{self.file_groups_copied:,} of them copied\n"
            + "".join(f"  decoded       {reason}\n" for reason in self.decoded_reasons)
            + f"  rows          {self.rows:,}\n"
            f"  bytes         {self.bytes_read:,} read, {self.bytes_written:,} written"
            + (f"\n  seconds       {spent}" if spent else "")
        )


@dataclass(frozen=True, slots=True)
class CompactionResult(OperationResult):
    """The outcome of scheduling or running compactions (`compact`) or log compactions (`log_compact`).

    Attributes:
        operation: Name of the operation.
        planned: Instant of the plan that this call scheduled, None if it scheduled none.
        reason: Why no plan was scheduled.
        runs: Executed plans, in order.
        remaining: Pending plans that were not run, with the reason for each.
        seconds: Seconds by phase.
    """

    operation: str
    planned: str | None = None
    reason: str = ""
    runs: tuple[CompactionRun, ...] = ()
    remaining: Mapping[str, str] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def instant(self) -> str | None:
        """Request time of the last executed plan, None if none was executed."""
        return self.runs[-1].instant if self.runs else None

    @property
    def completion_time(self) -> str | None:
        """Completion time of the last executed plan, None if none was executed."""
        return self.runs[-1].completion_time if self.runs else None

    def __str__(self) -> str:
        lines = []
        for run in self.runs:
            lines += [
                f"{self.operation} {run.instant}",
                f"  file groups   {run.file_groups:,} with {run.log_files:,} log files, {run.bytes_read:,} bytes of logs",
                f"  written       {run.files_written:,} files, {run.bytes_written:,} bytes, {run.rows_written:,} rows",
                f"  logs changed  {run.rows_updated:,} rows updated, {run.rows_deleted:,} deleted",
                f"  seconds       {run.seconds:.2f}",
            ]
        if self.planned is not None and all(run.instant != self.planned for run in self.runs):
            lines.append(f"{self.operation} {self.planned} is planned")
        if not lines:
            lines.append(f"{self.operation} (nothing to do)")
        lines += [f"  left          {instant}: {why}" for instant, why in self.remaining.items()]
        if self.reason:
            lines.append(f"  reason        {self.reason}")
        return "\n".join(lines)
