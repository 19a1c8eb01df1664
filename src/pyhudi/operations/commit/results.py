"""What a verb did, as a value that prints as a short readable block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pyhudi.records.html_repr import HtmlRepr


@dataclass(frozen=True, slots=True)
class WriteResult(HtmlRepr):
    """The outcome of a write.

    instant, completion_time: request and completion time; None when there was nothing to commit.  rows_in: incoming rows after
    combining duplicates; rows_inserted, _updated, _deleted: what they did (rows that lost to newer ones did nothing).  Where
    file groups are replaced (overwrites, deleted partitions), rows_deleted is the number of records that they held, by the
    footers of their base files; None where that is not known without reading rows, as file groups with log files or more than
    1,000 of them are replaced.
    file_groups_new / _rewritten: how many were created and rewritten.  bytes_written: all bytes of data files; bytes_rewritten:
    those of rewritten file groups.  index, index_source: which index found the file groups and from what, None when no lookup
    was needed.  conflict_retries: how often the write was planned again.  rolled_back: failed instants that this write cleaned
    up.  schema_changes: what the batch changed of the table's columns.  not_found: of the partitions to delete, those that are
    not there.  services: for each table service `due`, `run`, `planned`, `not due` or `off`.  seconds: by phase.
    """

    operation: str
    instant: str | None
    completion_time: str | None
    rows_in: int = 0
    rows_inserted: int = 0
    rows_updated: int = 0
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
    schema_changes: tuple[str, ...] = ()
    not_found: tuple[str, ...] = ()
    services: Mapping[str, str] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [
            f"{self.operation} {self.instant or '(nothing to commit)'}",
            f"  rows          {self.rows_in:,} in, {self.rows_inserted:,} inserted, {self.rows_updated:,} updated, "
            f"{'an unknown number' if self.rows_deleted is None else f'{self.rows_deleted:,}'} deleted",
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
        if self.not_found:
            lines.append(f"  not found     {', '.join(self.not_found)}")
        lines += [f"  {'' if number else 'schema':<12}  {change}" for number, change in enumerate(self.schema_changes)]
        for number, (name, state) in enumerate(self.services.items()):
            lines.append(f"  {'' if number else 'services':<12}  {name}: {state}")
        if self.seconds:
            lines.append(f"  seconds       {', '.join(f'{name} {value:.2f}' for name, value in self.seconds.items())}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class BootstrapResult(HtmlRepr):
    """The outcome of a bootstrap.

    instants: one for the partitions without their rows, one for those with them, of those that there are.  files_metadata_only,
    files_full_record: source files whose rows stay where they are, and whose rows were written.  bytes_written: of data files.
    """

    instants: tuple[str, ...]
    partitions: int
    files_metadata_only: int
    files_full_record: int
    rows: int
    bytes_written: int

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        return "\n".join(
            [
                f"bootstrap {', '.join(self.instants)}",
                f"  rows          {self.rows:,} in {self.partitions:,} partitions",
                f"  source files  {self.files_metadata_only:,} stay, {self.files_full_record:,} written anew",
                f"  bytes         {self.bytes_written:,} written",
            ]
        )


@dataclass(frozen=True, slots=True)
class CleanResult(HtmlRepr):
    """The outcome of a clean, or of planning one.

    dry_run: nothing was deleted; the figures are those of the plan.  instant, completion_time: None when there was nothing to
    delete, or in a dry run.  reason: why nothing was deleted, '' when something was.  earliest_retained: the instant from which
    on everything stays, None when the policy counts file versions.  files: partition -> paths relative to the table.
    missing: how many files of the plan were gone already.  size_bytes: of the files that were there.  partitions_deleted: whose
    folders went too.  finished: earlier cleans that had died and were carried out.  rolled_back: failed writes, under the LAZY
    policy.
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
        """How many files were, or would be, deleted."""
        return sum(len(paths) for paths in self.files.values()) - self.missing

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        head = "clean (dry run)" if self.dry_run else f"clean {self.instant or '(nothing to delete)'}"
        verb = "would be deleted" if self.dry_run else "deleted"
        lines = [
            head,
            f"  policy        {self.policy}"
            + (f", everything from {self.earliest_retained} on is kept" if self.earliest_retained else ""),
            f"  files         {self.file_count:,} {verb} in {len(self.files):,} partitions, {self.size_bytes:,} bytes",
        ]
        if self.reason:
            lines.append(f"  reason        {self.reason}")
        if self.missing:
            lines.append(f"  missing       {self.missing:,} files were gone already")
        if self.partitions_deleted:
            lines.append(f"  partitions    {', '.join(self.partitions_deleted)} {verb}")
        if self.finished:
            lines.append(f"  finished      {', '.join(self.finished)}")
        if self.rolled_back:
            lines.append(f"  rolled back   {', '.join(self.rolled_back)}")
        if self.dry_run and self.file_count:
            lines.append("  run it with   dry_run=False")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class ArchiveResult(HtmlRepr):
    """The outcome of an archival.

    instants: request times of what left the active timeline, oldest first.  start: request time of the first write that stayed.
    leftover_files: files of failed attempts that were removed.  history_merges: how often files of the history were merged.
    reason: why nothing left, '' when something did.
    """

    instants: tuple[str, ...] = ()
    start: str | None = None
    leftover_files: int = 0
    history_merges: int = 0
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values."""
        return asdict(self)

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
class SavepointResult(HtmlRepr):
    """A savepoint that was made.  instant: request time of the write that it keeps; files, size_bytes: what it keeps."""

    instant: str
    completion_time: str
    user: str
    comments: str
    partitions: int
    files: int
    size_bytes: int

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        return "\n".join(
            [
                f"savepoint {self.instant}",
                f"  keeps         {self.files:,} files in {self.partitions:,} partitions, {self.size_bytes:,} bytes",
                f"  by            {self.user or '(nobody named)'}" + (f": {self.comments}" if self.comments else ""),
            ]
        )


@dataclass(frozen=True, slots=True)
class RestoreResult(HtmlRepr):
    """A restore.  instant, completion_time: its own.  restored_to: request time of the newest write that is left.

    rolled_back: request times of what is gone, newest first.
    """

    instant: str
    completion_time: str
    restored_to: str
    rolled_back: tuple[str, ...]
    files_deleted: int

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        return "\n".join(
            [
                f"restore {self.instant} to {self.restored_to}",
                f"  rolled back   {', '.join(self.rolled_back) or '(nothing was later)'}",
                f"  files         {self.files_deleted:,} deleted",
            ]
        )


@dataclass(frozen=True, slots=True)
class CompactionRun:
    """One plan that was carried out.

    file_groups, log_files: of the plan.  files_written: fewer than file groups where no live record was left.  bytes_read: of
    log files.
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
class CompactionResult(HtmlRepr):
    """The outcome of planning or carrying out compactions (`compact`) or log compactions (`log_compact`).

    planned: the instant that this call put on the timeline, None for none, and `reason` says why.  runs: plans carried out, in
    order.  remaining: pending plans that were not -> why.  seconds: by phase.
    """

    operation: str
    planned: str | None = None
    reason: str = ""
    runs: tuple[CompactionRun, ...] = ()
    remaining: Mapping[str, str] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def instant(self) -> str | None:
        """The last plan carried out, None when there was none."""
        return self.runs[-1].instant if self.runs else None

    @property
    def completion_time(self) -> str | None:
        """When it completed."""
        return self.runs[-1].completion_time if self.runs else None

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values."""
        return asdict(self)

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
