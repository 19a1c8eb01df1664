"""Find which libraries write to a table, and pairs of writers that lose rows or fail together.

The timeline shows who wrote an instant: PyHudi adds a checksum to the files of the timeline (docs/formats/timeline.md).
All other writers count as Hudi. Archived instants and older table versions do not show it. Options of other writers are
visible only by their effects:

    both libraries execute a service        each may execute a plan that the other has started
    write in progress without heartbeat     EAGER policy: writers roll back each other's pending writes
    metadata table written before the data  streaming writes of Hudi 1.1 or newer, which older PyHudi rolls back
    the same, in version 8                  such a release upgrades the table by default while other writers run
    hidden writes                           conflicts that were not detected, see `planning.hidden_writes`
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyhudi.errors import CorruptData, HudiError
from pyhudi.features.consistent_hashing.hashing_store import partitions_with_consistent_hashing
from pyhudi.format.actions.commit_metadata import CommitMetadata, Operation
from pyhudi.format.avro.container import is_sealed
from pyhudi.format.instants import Action, Instant, State, timestamp_from_instant
from pyhudi.metadata_table.reader.metadata_reader import metadata_context
from pyhudi.operations.commit.action_liveness import is_written_without_heartbeat
from pyhudi.operations.commit.commit_settings import CommitSettings
from pyhudi.options.declaration import Option
from pyhudi.options.no_effect_options import METADATA_STREAMING
from pyhudi.options.refused_options import AUTO_UPGRADE
from pyhudi.options.service_options import CLUSTERING_INLINE, COMPACT_INLINE, LOG_COMPACT_INLINE
from pyhudi.options.write_options import CONCURRENCY, FAILED_WRITES
from pyhudi.planning.hidden_writes import HiddenWrite, find_hidden_writes, find_late_appends
from pyhudi.records.merge_mode import MergeMode
from pyhudi.table.snapshot import read_commit
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline

PYHUDI = "PyHudi"
HUDI = "Hudi"

_SERVICES: Mapping[Operation, tuple[str, Option]] = {
    Operation.COMPACT: ("compaction", COMPACT_INLINE),
    Operation.LOG_COMPACT: ("log compaction", LOG_COMPACT_INLINE),
    Operation.CLUSTER: ("clustering", CLUSTERING_INLINE),
}

_CLOCK_TOLERANCE_MS = 10_000
"""Difference between a completion time and the time of its file, from which on the file counts as copied."""

_FILES_TO_COMPARE = 8


@dataclass(frozen=True, slots=True)
class WriterFinding:
    """A risk, or a loss that has happened.

    Attributes:
        finding: What the files show.
        remedy: What avoids it.
        is_loss: Rows were lost.
    """

    finding: str
    remedy: str
    is_loss: bool = False


@dataclass(frozen=True, slots=True)
class TableWriters:
    """Completed writes and services of the active timeline, by library.

    Attributes:
        commits: Their metadata.
        libraries: PyHudi or Hudi for each of them.
    """

    commits: Mapping[Instant, CommitMetadata]
    libraries: Mapping[Instant, str]

    def __str__(self) -> str:
        counts = Counter((self.libraries[i], self._kind(i)) for i in self.commits)
        by_library = {
            library: [f"{count:,} {kind}" for (name, kind), count in sorted(counts.items()) if name == library]
            for library in sorted(set(self.libraries.values()))
        }
        return "; ".join(f"{library}: {', '.join(kinds)}" for library, kinds in by_library.items()) or "no commits"

    def _kind(self, instant: Instant) -> str:
        service = _SERVICES.get(self.commits[instant].operation)
        return "writes" if service is None else f"{service[0]}s"

    def of(self, library: str, *operations: Operation) -> list[Instant]:
        """Return the commits of a library: all writes, or those of operations."""
        return [
            i
            for i, metadata in self.commits.items()
            if self.libraries[i] == library
            and (metadata.operation in operations if operations else not metadata.operation.is_service)
        ]


def load_writers(context: TableContext, timeline: Timeline) -> TableWriters:
    """Read the completed writes and services of the active timeline. Raises CorruptData if one is damaged."""
    commits = {i: read_commit(context.timeline, i) for i in timeline.completed_writes()}
    return TableWriters(commits, {i: _library(context, i) for i in commits})


def find_writer_risks(
    context: TableContext, timeline: Timeline, writers: TableWriters, settings: CommitSettings
) -> Iterator[WriterFinding]:
    """Yield what the files of a table show about writers that do not go together."""
    for operation, (name, option) in _SERVICES.items():
        if writers.of(PYHUDI, operation) and writers.of(HUDI, operation):
            finding = f"PyHudi and Hudi both execute {name}: each may execute a plan that the other has started"
            yield WriterFinding(finding, f"execute it in one of them: {option}=false in the other")
    hudi, meet = writers.of(HUDI), bool(writers.of(PYHUDI))
    if meet:
        for write in timeline.pending_writes():
            if is_written_without_heartbeat(context, write, settings):
                finding = (
                    f"{_name(write)} is written without heartbeat, or has just failed: a writer without one assumes that it is "
                    "alone, rolls back pending writes of others, and others roll back its writes"
                )
                remedy = f"if it is running, {FAILED_WRITES}=LAZY and {CONCURRENCY}=OPTIMISTIC_CONCURRENCY_CONTROL in its writer"
                yield WriterFinding(finding, remedy)
    if meet and hudi and _streams_metadata(context, hudi[-1], writers.commits[hudi[-1]]):
        finding = "Hudi 1.1 or newer writes the metadata table during its writes, and an older PyHudi rolls such commits back"
        yield WriterFinding(finding, f"{METADATA_STREAMING}=false in Hudi while an older PyHudi writes")
        if context.config.version.is_upgraded_by_default:
            finding = (
                "Hudi 1.1 or newer writes to a table of version 8, and upgrades it by default; that deletes a commit which "
                "another writer completes at the same time"
            )
            yield WriterFinding(finding, f"{AUTO_UPGRADE}=false in Hudi")
    yield from _losses(context, writers)


def _losses(context: TableContext, writers: TableWriters) -> Iterator[WriterFinding]:
    """Yield the writes whose rows no reader sees, or some of whose rows lost to an earlier commit."""
    hidden: dict[tuple[Instant, Instant], list[HiddenWrite]] = {}
    for found in find_hidden_writes(writers.commits, partitions_with_consistent_hashing(context)):
        hidden.setdefault((found.write, found.by), []).append(found)
    for (write, by), files in hidden.items():
        finding = (
            f"{_name(write)} of {writers.libraries[write]} wrote {len(files):,} files that no query reads, such as "
            f"{files[0].path}: {_name(by)} of {writers.libraries[by]} replaces them, and has not read them"
        )
        remedy = (
            "write the rows of these files again before a clean deletes them; use one lock provider in all writers, and let "
            "one writer of Hudi at a time change a file group"
        )
        yield WriterFinding(finding, remedy, is_loss=True)
    if context.config.merge.mode is not MergeMode.COMMIT_TIME_ORDERING or not context.config.version.has_one_log_file_per_commit:
        return
    late = {(a.write, a.by) for a in find_late_appends(writers.commits) if writers.libraries[a.write] == HUDI}
    for write, by in sorted(late, key=lambda pair: pair[0].request_time):
        finding = (
            f"{_name(write)} of Hudi completed after {_name(by)}, whose request time is later: where both changed a record, "
            f"{by.request_time} wins"
        )
        remedy = "write the records again that both changed; let one writer of Hudi at a time change a file group"
        yield WriterFinding(finding, remedy)


def _name(instant: Instant) -> str:
    return f"{instant.action} {instant.request_time}"


def _library(context: TableContext, instant: Instant) -> str:
    try:
        return PYHUDI if is_sealed(context.timeline.read(instant)) else HUDI
    except CorruptData:
        # JSON of older table versions has no checksum, whichever library wrote it; it counts as written by Hudi.
        return HUDI


def _streams_metadata(context: TableContext, write: Instant, metadata: CommitMetadata) -> bool:
    """Return True if the delta commit of a write was requested in the metadata table before its data files were complete."""
    completed = context.storage.stat(context.timeline.path(write))
    if not context.config.has_metadata_table or completed is None or write.completion_time is None:
        return False
    completion_ms = timestamp_from_instant(write.completion_time, context.config.zone)
    if abs(completed.modified_ms - completion_ms) > _CLOCK_TOLERANCE_MS:
        # The files of a copy have other times.
        return False
    try:
        inner = metadata_context(context)
        requested = inner.storage.stat(inner.timeline.path(Instant(write.request_time, Action.DELTACOMMIT, State.REQUESTED)))
    except HudiError:
        return False
    paths = [stat.path for stats in metadata.partition_to_write_stats.values() for stat in stats if stat.path]
    infos = [context.storage.stat(path) for path in paths[:_FILES_TO_COMPARE]]
    return requested is not None and any(info is not None and info.modified_ms > requested.modified_ms for info in infos)
