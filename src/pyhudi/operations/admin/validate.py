"""Validate a table: compare all its metadata with the files in storage.

    timeline         committed files that are missing or have another size; orphaned files; deleted files that are
                     back; files of pending writes; clusterings that can never run
    files            base files that cannot be opened
    page checksums   pages of base files against their checksums, of a sample or of all: see `validate_data`
    buckets          bucket counts of partitions against file groups: see `validate_data` hashing metadata nodes of a
                     consistent hashing index against file groups
    logs, plans      contents of log files, inputs of pending compactions: see `validate_data`; duplicate keys too, if
                     requested
    metadata files   partitions and files in the metadata table against the directories
    column stats     its column ranges against the footers of base files: a range must cover the values of the file
    record index     its keys against the keys of the rows: each at its recorded location, and no others
    other indexes    partition statistics, bloom filters, secondary and expression indexes: see `validate_data`

Nothing is changed. Directories are listed regardless of the table's properties; every other check reads as queries do.
An error makes a reader miss rows, return too many or fail; a warning is something that the next writer resolves. What
exists and cannot be checked is reported as unchecked: no defect is known, and the table does not count as valid.
Concurrent changes of other processes are not reported as defects, see `stable_check`.

Memory: names and sizes of all files, and the keys of a range of the record index, of one file slice if there is a
secondary index, or of one partition if duplicate keys are checked. All keys of a table with a record index are stored
in temporary local files.

Source: docs/formats/metadata-table.md; docs/formats/timeline.md.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

import pyarrow as pa

from pyhudi.errors import CorruptData, InvalidRequest
from pyhudi.features.consistent_hashing.hashing_store import partitions_with_consistent_hashing
from pyhudi.features.consistent_hashing.validate_hashing import REWRITE, check_consistent_hashing
from pyhudi.format.actions.commit_metadata import CommitMetadata
from pyhudi.format.instants import Action, Instant
from pyhudi.format.meta_columns import RECORD_KEY
from pyhudi.format.names import parse_base_file, parse_log_file
from pyhudi.metadata_table.codecs.metadata_partitions import COLUMN_STATS, FILES, RECORD_INDEX
from pyhudi.metadata_table.indexes.index_validation import (
    MISSING_ROWS,
    WRONG_PRUNING,
    Check,
    CheckedTable,
    DirectoryFile,
    FooterTask,
    run_footer,
)
from pyhudi.metadata_table.lost_files import find_undone
from pyhudi.metadata_table.reader.metadata_listing import DAMAGE
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.operations.admin.stable_check import repeat_until_stable
from pyhudi.operations.admin.validate_data import (
    ChecksumScope,
    check_bucket_counts,
    check_keys,
    check_logs,
    check_pages,
    check_plans,
    index_checks,
)
from pyhudi.operations.commit.events import observed
from pyhudi.operations.read.query import read_spec, table_schema
from pyhudi.operations.services.clustering_plans import never_runnable_reason
from pyhudi.planning.hidden_writes import find_hidden_writes
from pyhudi.records.column_statistics import ColumnRange
from pyhudi.records.html_repr import HtmlRepr
from pyhudi.storage.base import FileInfo
from pyhudi.storage.markers import files_being_written
from pyhudi.table.committed_files import find_lost_files, names_of_pending_cleans
from pyhudi.table.snapshot import EMPTY_COMMIT, Snapshot, directory_listing, load_snapshot, read_commit
from pyhudi.table.table_context import TableContext
from pyhudi.tasks.engine_protocol import Engine

FINDINGS_SCHEMA = pa.schema(
    [
        pa.field("severity", pa.string(), nullable=False),
        pa.field("check", pa.string(), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("detail", pa.string(), nullable=False),
    ]
)
"""One row for each finding. severity: error, unchecked or warning; path: a file or partition of the table, '' for the
whole table.
"""

_SAMPLE_SEED = 20

_EMPTY_COMMIT_ADVICE = "incremental and change data queries of it fail; restore the file from a backup"
_UNDONE_MESSAGE = (
    "deleted files that are back: a repair deletes them; until then readers without metadata table may return replaced rows"
)
_HIDDEN_MESSAGE = (
    "files of completed writes that no query reads, because writers did not detect their conflict: read their rows and "
    "write them again before a clean deletes the files; see docs/known-hudi-issues.md"
)
_ORPHANED_FILES_MESSAGE = "orphaned files: no query reads them; a repair deletes them"


class ValidationSeverity(StrEnum):
    """Severity of a finding.

    error: a reader misses rows, returns too many, or fails. unchecked: the check was not possible. warning: the next
    writer resolves it.
    """

    ERROR = "error"
    UNCHECKED = "unchecked"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class ValidationFinding:
    """One defect; ``remedy`` is the action to take, '' if the next writer resolves it."""

    severity: ValidationSeverity
    check: str
    path: str
    detail: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class ValidationResult(HtmlRepr):
    """The outcome of a validation.

    Attributes:
        uri: Location of the table.
        findings: The findings.
        checks: Executed checks, with the amount of checked data.
        skipped: Checks that do not apply to the table.
        unverified_bytes: Bytes of base files whose pages were not compared with their checksums.
    """

    uri: str
    findings: tuple[ValidationFinding, ...]
    checks: tuple[tuple[str, str], ...]
    skipped: tuple[str, ...] = ()
    unverified_bytes: int = 0

    @property
    def ok(self) -> bool:
        """True if everything was checked and there are no errors; there may be warnings."""
        return all(finding.severity is ValidationSeverity.WARNING for finding in self.findings)

    @property
    def remedies(self) -> tuple[str, ...]:
        """Actions against the errors, each once, most urgent first."""
        named = {finding.remedy for finding in self.findings}
        return tuple(
            remedy
            for remedy in (MISSING_ROWS, _HIDDEN_MESSAGE, _UNDONE_MESSAGE, _ORPHANED_FILES_MESSAGE, REWRITE, WRONG_PRUNING)
            if remedy in named
        )

    @property
    def counts(self) -> Counter[ValidationSeverity]:
        """Number of findings by severity."""
        return Counter(finding.severity for finding in self.findings)

    def to_arrow(self) -> pa.Table:
        """Return the findings as a table with FINDINGS_SCHEMA, in the order of detection."""
        rows = [{"severity": f.severity.value, "check": f.check, "path": f.path, "detail": f.detail} for f in self.findings]
        return pa.Table.from_pylist(rows, schema=FINDINGS_SCHEMA)

    def __str__(self) -> str:
        counts = self.counts
        lines = [
            f"{self.uri}: {'ok' if self.ok else 'NOT OK'}, {counts[ValidationSeverity.ERROR]} errors, "
            f"{counts[ValidationSeverity.WARNING]} warnings"
        ]
        if counts[ValidationSeverity.UNCHECKED]:
            lines[0] += f", {counts[ValidationSeverity.UNCHECKED]} not checked"
        amounts = (*self.checks, *((name, "none") for name in self.skipped))
        width = max((len(name) for name, _ in amounts), default=0) + 2
        lines += [f"  {name:<{width}}{amount}" for name, amount in amounts]
        if self.unverified_bytes:
            lines.append(
                f"  not compared: page checksums of {self.unverified_bytes / (1 << 20):,.0f} MiB of base files; "
                "checksums='all' (--checksums all) compares them"
            )
        lines += [f"  {f.severity.value:<10}{f.check}: {f.path or 'table'}: {f.detail}" for f in self.findings]
        lines += [f"  remedy  {remedy}" for remedy in self.remedies]
        return "\n".join(lines)


@observed("validate")
def run_validate(
    context: TableContext,
    engine: Engine,
    *,
    sample: int | None = None,
    keys: bool = False,
    checksums: ChecksumScope = ChecksumScope.SAMPLE,
) -> ValidationResult:
    """Run every check that applies to the table.

    Args:
        sample: Number of base files to open, sampled uniformly; None for all.
        keys: Check for duplicate keys in a partition, which reads the keys of all rows.
        checksums: Which base files, of those that are opened, have their pages compared with the checksums.

    Raises:
        InvalidRequest: ``sample`` is below 0.
    """
    if sample is not None and sample < 0:
        raise InvalidRequest(f"a sample of {sample} files")
    look = partial(_validated, engine=engine, sample=sample, keys=keys, checksums=checksums)
    result, lasting = repeat_until_stable(context, look, _more_than_warnings)
    return replace(
        result,
        findings=tuple(
            finding for finding in result.findings if finding.severity is ValidationSeverity.WARNING or finding in lasting
        ),
    )


def _more_than_warnings(result: ValidationResult) -> frozenset[ValidationFinding]:
    return frozenset(finding for finding in result.findings if finding.severity is not ValidationSeverity.WARNING)


def _validated(
    context: TableContext, *, engine: Engine, sample: int | None, keys: bool, checksums: ChecksumScope
) -> ValidationResult:
    """Run all checks once; the findings may include side effects of concurrent changes."""
    snapshot = load_snapshot(context, directory_listing)
    work = _Validation(context, engine, snapshot, sample)
    work.check_timeline()
    work.check_base_files()
    work.check_pages(checksums)
    work.check_logs_and_plans()
    work.check_buckets()
    if keys:
        work.check_keys()
    if context.config.has_metadata_table and not context.config.version.has_one_log_file_per_commit:
        work.checks.append((FILES, "not read before table version 8; files are listed in their folders"))
    elif context.config.has_metadata_table:
        work.check_indexes(MetadataTable(context, snapshot.timeline))
    absent = tuple(name for name in (FILES, COLUMN_STATS, RECORD_INDEX) if name not in context.config.metadata_partitions)
    return ValidationResult(context.storage.uri, tuple(work.findings), tuple(work.checks), absent, work.unverified_bytes)


@dataclass(slots=True)
class _DataFile:
    """A data file of the table in a directory.

    Attributes:
        info: The file.
        partition: Partition, by its path.
        file_id: File id, by its name.
        instant_time: Instant time, by its name; for a file marked by a pending write, that of the write, since files
            that it double-writes for a resize carry the time of the resize.
        is_base: True for a base file.
    """

    info: FileInfo
    partition: str
    file_id: str
    instant_time: str
    is_base: bool


class _Validation:
    """The checks of one table, and their findings."""

    def __init__(self, context: TableContext, engine: Engine, snapshot: Snapshot, sample: int | None) -> None:
        self.findings: list[ValidationFinding] = []
        self.checks: list[tuple[str, str]] = []
        self.unverified_bytes = 0
        self._context = context
        self._engine = engine
        self._snapshot = snapshot
        self._timeline = snapshot.timeline
        self._sample = sample
        self._partitions = snapshot.listing.partitions()
        self._files = list(self._data_files())
        self._slices = [slice_ for group in snapshot.slices(self._partitions).values() for slice_ in group]

    def guarded(self, check: str, run: Callable[[], None]) -> None:
        """Run a check of the metadata table; a read error is a finding."""
        try:
            run()
        except DAMAGE as error:
            self._error(check, "", f"the metadata table cannot be read: {error}")

    def skip(self, check: str, reason: str) -> None:
        """Record that something exists and cannot be checked."""
        self.findings.append(ValidationFinding(ValidationSeverity.UNCHECKED, check, "", f"not checked: {reason}"))

    def check_timeline(self) -> None:
        """Check for committed files that are missing or have another size, and files that no completed instant wrote."""
        pending = {instant.request_time for instant in self._timeline.pending()}
        copies = self._snapshot.copies
        files_by_path = {file.info.path: file for file in self._files}
        for file in self._files:
            if self._timeline.is_completed(file.instant_time) or file.info.path in copies:
                continue
            if file.instant_time in pending:
                self._warn("timeline", file.info.path, f"written by {file.instant_time}, which has not completed")
            else:
                self._error(
                    "timeline",
                    file.info.path,
                    f"no instant {file.instant_time} is on the timeline to remove it",
                    _ORPHANED_FILES_MESSAGE,
                )
        commits = {i.request_time: read_commit(self._context.timeline, i) for i in self._timeline.completed_writes()}
        sizes = {path: file.info.size_bytes for path, file in files_by_path.items()}
        for lost in find_lost_files(self._snapshot, sizes, commits=commits, on_damage=self._clean_error):
            self._error("timeline", lost.file.path, lost.finding, MISSING_ROWS)
        self._check_hidden_writes({i: commits[i.request_time] for i in self._timeline.completed_writes()}, files_by_path)
        try:
            for path, clean in sorted(find_undone(self._snapshot, files_by_path).items()):
                self._error("timeline", path, f"clean {clean} has deleted it, and it is back", _UNDONE_MESSAGE)
        except DAMAGE as error:
            self.skip("timeline", f"cleans of the archived timeline cannot be read: {error}")
        for plan in self._timeline.pending(Action.CLUSTERING):
            never = never_runnable_reason(self._context, self._timeline, plan)
            if never is not None:
                path = self._context.timeline.path(plan)
                self._warn("timeline", path, f"a clustering that can never run, and that the next writer drops: {never}")
        store, empty = self._context.timeline, CommitMetadata.decode(b"")
        for write in self._timeline.completed_writes():
            if commits[write.request_time] == empty and not store.read(write):
                self._error("timeline", store.path(write), EMPTY_COMMIT, _EMPTY_COMMIT_ADVICE)
        self.checks.append(("timeline", f"{len(self._files):,} files, {len(commits):,} commits"))

    def _check_hidden_writes(self, commits: Mapping[Instant, CommitMetadata], files: Collection[str]) -> None:
        """Check for writes that no reader sees, while their files exist."""
        for hidden in find_hidden_writes(commits, partitions_with_consistent_hashing(self._context)):
            if hidden.path in files:
                write, by = hidden.write.request_time, f"{hidden.by.action} {hidden.by.request_time}"
                detail = f"no query reads the rows that {write} wrote: {by} replaces them, and has not read them"
                self._error("timeline", hidden.path, detail, _HIDDEN_MESSAGE)

    def check_base_files(self) -> None:
        """Check for current base files that cannot be opened."""
        chosen = self._sampled([slice_.base.path for slice_ in self._slices if slice_.base is not None])
        for path, footer in zip(chosen, self._footers(chosen, ()), strict=True):
            if isinstance(footer, str):
                self._error("base files", path, footer, MISSING_ROWS)
        self.checks.append(("base files", f"{len(chosen):,} opened"))

    def check_pages(self, scope: ChecksumScope) -> None:
        """Check the pages of current base files against their checksums."""
        bases = [slice_.base for slice_ in self._slices if slice_.base is not None]
        chosen = set(self._sampled([base.path for base in bases])) if scope is not ChecksumScope.NONE else set()
        damaged = {finding.path for finding in self.findings if finding.check == "base files"}
        files = [base for base in bases if base.path in chosen and base.path not in damaged]
        self.unverified_bytes = sum(base.size_bytes for base in bases if base.path not in chosen)
        if files:
            findings, skipped_bytes = check_pages(self._context, self._engine, files, scope)
            self.unverified_bytes += skipped_bytes
            self._run_check("page checksums", lambda: findings, MISSING_ROWS)

    def check_logs_and_plans(self) -> None:
        """Check log files against their commits, and pending compactions: see `validate_data`."""
        if any(slice_.logs for slice_ in self._slices):
            commits = {i.request_time: read_commit(self._context.timeline, i) for i in self._timeline.completed_writes()}
            logs = partial(check_logs, self._context, self._engine, self._timeline, self._slices, commits)
            self._run_check("logs", logs, MISSING_ROWS)
        if self._timeline.pending(Action.COMPACTION, Action.LOGCOMPACTION):
            paths = frozenset(file.info.path for file in self._files)
            self._run_check("plans", partial(check_plans, self._snapshot, paths), "")

    def check_buckets(self) -> None:
        """Check bucket counts and consistent-hashing metadata of partitions against file groups."""
        self._run_check("buckets", partial(check_bucket_counts, self._context, self._snapshot, self._slices))
        self._run_check("rings", partial(check_consistent_hashing, self._context, self._snapshot, self._slices))

    def check_keys(self) -> None:
        """Check for duplicate keys in a partition."""
        if self._snapshot.schema is not None:
            spec = read_spec(self._snapshot, self._key_columns())
            try:
                self._run_check("keys", partial(check_keys, self._engine, spec, self._slices), "")
            except DAMAGE as error:
                self.skip("keys", f"a data file cannot be read: {error}")

    def check_indexes(self, metadata: MetadataTable) -> None:
        """Check the entries of each index of the metadata table, see `validate_data`."""
        schema = self._schema() if self._snapshot.schema is not None else None
        table = CheckedTable(
            self._context,
            self._engine,
            self._snapshot,
            metadata,
            schema,
            self._slices,
            self._sampled([slice_.base.path for slice_ in self._slices if slice_.base is not None]),
            self._partitions,
            [DirectoryFile(file.info, file.instant_time) for file in self._files],
            self._names_of_pending_cleans,
            lambda: read_spec(self._snapshot, self._key_columns()),
        )
        for name, check in index_checks(table, self.skip):
            self.guarded(name, partial(self._run_check, name, check))

    def _run_check(self, name: str, check: Check, remedy: str = WRONG_PRUNING) -> None:
        findings = check()
        for path, detail, own_remedy in findings.errors:
            self._error(name, path, detail, remedy if own_remedy is None else own_remedy)
        for path, detail in findings.warnings:
            self._warn(name, path, detail)
        if findings.checked:
            self.checks.append((name, findings.checked))

    def _data_files(self) -> Iterator[_DataFile]:
        listed = self._snapshot.listing.files(self._partitions)
        pending = (instant.request_time for instant in self._timeline.pending_writes())
        try:
            under_way = files_being_written(self._context.storage, pending)
        except CorruptData as error:
            under_way = {}
            self._error("timeline", "", f"the markers of a pending write cannot be read: {error}", "")
        for partition, infos in listed.items():
            for info in infos:
                log = parse_log_file(info.name)
                if log is not None:
                    yield _DataFile(info, partition, log.file_id, under_way.get(info.path, log.instant_time), False)
                    continue
                base = parse_base_file(info.name)
                if base is not None:
                    yield _DataFile(info, partition, base.file_id, base.instant_time, True)

    def _names_of_pending_cleans(self) -> dict[str, str]:
        """As `names_of_pending_cleans`; an unreadable plan is a finding."""
        return names_of_pending_cleans(self._context.timeline, self._timeline, self._clean_error)

    def _clean_error(self, path: str, error: CorruptData) -> None:
        self._error("timeline", path, str(error), "")

    def _schema(self) -> pa.Schema:
        return table_schema(self._snapshot, meta_columns=True)

    def _key_columns(self) -> list[str]:
        if self._context.config.populate_meta_fields:
            return [RECORD_KEY]
        return list(dict.fromkeys(name.split(".")[0] for name in self._context.config.keys.record_fields))

    def _sampled(self, paths: Sequence[str]) -> list[str]:
        ordered = sorted(paths)
        if self._sample is None or self._sample >= len(ordered):
            return ordered
        # A fixed seed selects the same files each time, so that findings are reproducible.
        return sorted(random.Random(_SAMPLE_SEED).sample(ordered, self._sample))

    def _footers(self, paths: Sequence[str], columns: tuple[str, ...]) -> list[dict[str, ColumnRange] | str]:
        schema = self._schema() if columns else pa.schema([])
        spec = self._context.storage.spec()
        return self._engine.map(run_footer, [FooterTask(spec, path, schema, columns) for path in paths])

    def _error(self, check: str, path: str, detail: str, remedy: str = WRONG_PRUNING) -> None:
        self.findings.append(ValidationFinding(ValidationSeverity.ERROR, check, path, detail, remedy))

    def _warn(self, check: str, path: str, detail: str) -> None:
        self.findings.append(ValidationFinding(ValidationSeverity.WARNING, check, path, detail))
