"""Inputs of index updates: start, preparation and publication of a commit, a clean, and the snapshot an index is built from.

Shared data is loaded when the first index needs it, and once for all indexes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import pyarrow as pa

from pyhudi.errors import Internal
from pyhudi.format.actions.commit_metadata import CommitMetadata, Operation
from pyhudi.format.instants import Instant
from pyhudi.format.meta_columns import RECORD_KEY, with_meta_fields
from pyhudi.format.names import is_log_file, parse_data_file_instant, parse_log_file
from pyhudi.format.paths import file_name, join_path
from pyhudi.metadata_table.file_tasks import ExistingFile, IndexFilesTask, run_index_files
from pyhudi.metadata_table.reader.metadata_listing import find_files_since_retained
from pyhudi.metadata_table.reader.metadata_reader import MetadataCache, MetadataTable
from pyhudi.metadata_table.writer.metadata_settings import MetadataSettings
from pyhudi.metadata_table.writer.metadata_store import MetadataStore, drop_partitions
from pyhudi.metadata_table.writer.sole_writer import SoleWriter
from pyhudi.records.mergers import merge_rule
from pyhudi.records.schema_on_read.column_ids import ColumnIds
from pyhudi.records.update_modes import Defaults
from pyhudi.storage.base import FileInfo
from pyhudi.storage.markers import files_being_written
from pyhudi.table.bootstrap_sources import load_bootstrap_sources
from pyhudi.table.cached_property import cached_property
from pyhudi.table.file_slices import FileSlice, SlicingState, build_file_groups, visible_slices
from pyhudi.table.pending_plans import load_pending_compactions
from pyhudi.table.schema_on_read_history import CommitReader
from pyhudi.table.snapshot import Snapshot, load_replaced_groups, read_commit
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.tasks.engine_protocol import Engine
from pyhudi.tasks.file_stats import FileIndexing
from pyhudi.tasks.log_scan import InstantValidity
from pyhudi.tasks.read_slice import ReadSpec
from pyhudi.tasks.write_tasks import WriteStatus

FILES_PER_TASK = 16

S = TypeVar("S")


@dataclass(frozen=True)
class WriteStarted:
    """A write that is about to start.

    Attributes:
        context: The table.
        settings: The writer's metadata settings.
        data_schema: The table's columns after the write.
        before: The table's columns before the write.
        moves_keys: The write may change the location of record keys.
    """

    context: TableContext
    settings: MetadataSettings
    data_schema: pa.Schema
    before: pa.Schema | None
    moves_keys: bool

    @cached_property
    def store(self) -> MetadataStore:
        """The metadata table."""
        return MetadataStore.open(self.context)


@dataclass(frozen=True)
class CommitPrepared:
    """A commit whose files are written, before it acquires the lock.

    Attributes:
        context: The table.
        engine: Runs tasks; None for threads of this process.
        load: Loads the table before the commit.
        schema: The table's columns after the commit, without meta columns; None if the commit does not change rows.
        requirements: What the write tasks had to collect.
        statuses: Results of the write tasks.
        time: Instant of the commit.
        operation: Operation in the commit metadata.
        replaced: Replaced file groups by partition.
    """

    context: TableContext
    engine: Engine | None
    load: Callable[[], Snapshot]
    schema: pa.Schema | None
    requirements: FileIndexing | None
    statuses: Sequence[WriteStatus]
    time: str
    operation: Operation
    replaced: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @cached_property
    def store(self) -> MetadataStore:
        """The metadata table."""
        return MetadataStore.open(self.context)

    @cached_property
    def snapshot(self) -> Snapshot:
        """The table before the commit."""
        return self.load()

    @cached_property
    def validity(self) -> InstantValidity:
        """Valid log blocks before the commit."""
        return InstantValidity.of(self.snapshot.timeline)

    @property
    def files(self) -> tuple[tuple[str, str, int], ...]:
        """(partition path, path, bytes) of the added files."""
        return tuple((s.stat.partition_path or "", s.stat.path or "", s.stat.file_size_in_bytes) for s in self.statuses)


class CommitPublishing:
    """A commit that is about to be published, under the lock.

    Attributes:
        context: The table.
        read: Reads the metadata of a completed write.
        earlier: The metadata table as opened before the lock.
        sole_writer: The instant since which PyHudi is the only writer.
        store: The metadata table.
        partitions: The partitions of the metadata table to update.
        metadata: The commit metadata.
        timeline: The table's timeline without the commit.
        time: Instant of the commit.
        requirements: What the write tasks had to collect.
        data_schema: The table's columns after the commit; None if it does not change rows.
        statuses: Results of the write tasks.
        prepared: Results of `Index.prepare`, by index.
    """

    def __init__(
        self,
        store: MetadataStore,
        partitions: Sequence[str],
        metadata: CommitMetadata,
        current_timeline: Timeline,
        time: str,
        *,
        requirements: FileIndexing | None,
        data_schema: pa.Schema | None,
        statuses: Sequence[WriteStatus],
    ) -> None:
        self.context = store.table
        self.read: CommitReader = read_commit
        self.earlier: MetadataTable | None = None
        self.sole_writer = SoleWriter("", None)
        self.store = store
        self.partitions = tuple(partitions)
        self.metadata = metadata
        self.timeline = current_timeline
        self.time = time
        self.requirements = requirements
        self.data_schema = data_schema
        self.statuses = statuses
        self.prepared: Mapping[str, Any] = {}
        self._done: Instant | None = None
        self._begun: Timeline | None = None
        self._listed: tuple[frozenset[str], pa.RecordBatch] | None = None
        self._shared: dict[type, Any] = {}

    @property
    def operation(self) -> Operation:
        """Operation in the commit metadata."""
        return self.metadata.operation

    @property
    def schema(self) -> pa.Schema:
        """The table's columns after the commit, with meta columns. Raises Internal if it does not change rows."""
        if self.data_schema is None:
            raise Internal("column statistics require the columns of the table")
        return with_meta_fields(self.data_schema)

    @cached_property
    def reader(self) -> MetadataTable:
        """The metadata table before the commit."""
        begun, store = self._begun, self.store
        opened = None if begun is None else MetadataCache(store.context, begun, store.groups.files, self.earlier)
        return MetadataTable(self.context, self.timeline, opened)

    @property
    def completed_instant(self) -> Instant:
        """The commit as completed instant on the timeline."""
        if self._done is None:
            raise Internal("the commit has no completion time yet")
        return self._done

    def begins_on(self, timeline: Timeline) -> None:
        """Set the metadata table's timeline, after failed attempts have been removed from it."""
        self._begun = timeline

    def completes_as(self, completed_instant: Instant) -> None:
        """Set the completed instant of the commit."""
        self._done = completed_instant

    def drop(self, partitions: Iterable[str]) -> None:
        """Drop partitions of the metadata table; the next write rebuilds them."""
        dropped = set(partitions)
        self.context = drop_partitions(self.context, dropped)
        self.partitions = tuple(p for p in self.partitions if p not in dropped)
        self.store = MetadataStore.open(self.context)

    def shared(self, compute: Callable[[CommitPublishing], S]) -> S:
        """Return an object that several indexes share for this commit, created once.

        Args:
            compute: Its class.
        """
        assert isinstance(compute, type)
        if compute not in self._shared:
            self._shared[compute] = compute(self)
        instance: S = self._shared[compute]
        return instance

    @property
    def reported(self) -> Iterator[tuple[str, str, WriteStatus]]:
        """(partition path, bare name, status) of each file that a task wrote."""
        return ((s.stat.partition_path or "", file_name(s.stat.path or ""), s) for s in self.statuses)

    def added_files(self) -> dict[str, dict[str, int]]:
        """Return the files of the commit: partition -> bare name -> size in bytes."""
        added: dict[str, dict[str, int]] = {}
        for partition, stats in self.metadata.partition_to_write_stats.items():
            files = added.setdefault(partition, {})
            for stat in stats:
                files[file_name(stat.path or "")] = stat.file_size_in_bytes
                for path, size_bytes in (stat.cdc_stats or {}).items():
                    files[file_name(path)] = size_bytes
        return added

    def file_groups(self) -> dict[str, frozenset[str]]:
        """Return the written and replaced file groups: partition -> file ids."""
        touched: dict[str, set[str]] = {}
        for partition, stats in self.metadata.partition_to_write_stats.items():
            touched.setdefault(partition, set()).update(stat.file_id or "" for stat in stats)
        for partition, file_ids in (self.metadata.partition_to_replace_file_ids or {}).items():
            touched.setdefault(partition, set()).update(file_ids)
        return {partition: frozenset(file_ids) for partition, file_ids in touched.items()}

    def latest_files(self, partitions: Sequence[str]) -> dict[str, list[FileInfo]]:
        """Return the files of the newest slices of partitions after the commit."""
        listed: dict[str, dict[str, int]] = {partition: {} for partition in partitions}
        rows = self.listed(partitions)
        for partition, name, size_bytes in zip(*(rows.column(i).to_pylist() for i in range(3)), strict=True):
            if partition in listed:
                listed[partition][name] = size_bytes
        return self.select_latest(self.with_added(listed), exists=True)

    def listed(self, partitions: Sequence[str]) -> pa.RecordBatch:
        """Return the files of partitions before the commit (FILES_SCHEMA), possibly with other partitions requested earlier."""
        if self._listed is None or not self._listed[0].issuperset(partitions):
            self._listed = (frozenset(partitions), find_files_since_retained(self.reader, partitions))
        return self._listed[1]

    def with_added(self, listed: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
        """Add the commit's files to files of the same partitions (bare name -> size in bytes)."""
        added = self.added_files()
        return {partition: {**files, **added.get(partition, {})} for partition, files in listed.items()}

    def select_latest(self, listed: Mapping[str, Mapping[str, int]], *, exists: bool) -> dict[str, list[FileInfo]]:
        """Return those of some files (partition -> bare name -> size in bytes) that belong to newest slices.

        Args:
            listed: All files of their file groups.
            exists: True for the state after the commit, False for that before it.
        """
        state = self._slicing_after if exists else self._slicing_before
        latest: dict[str, list[FileInfo]] = {}
        for partition, sizes in listed.items():
            infos = [FileInfo(join_path(partition, name), size, 0) for name, size in sizes.items()]
            slices = visible_slices(build_file_groups(partition, infos, state), state)
            live = {file.path for s in slices for file in (*((s.base,) if s.base else ()), *s.logs)}
            latest[partition] = [info for info in infos if info.path in live]
        return latest

    @cached_property
    def _slicing_before(self) -> SlicingState:
        timeline = self.context.timeline
        return SlicingState(
            self.timeline, load_replaced_groups(timeline, self.timeline), load_pending_compactions(timeline, self.timeline)
        )

    @cached_property
    def _slicing_after(self) -> SlicingState:
        before = self._slicing_before
        after = Timeline.of((*self.timeline.instants, self.completed_instant), self.timeline.archived_completions)
        replaced = dict(before.replaced)
        for partition, file_ids in (self.metadata.partition_to_replace_file_ids or {}).items():
            replaced.update({(partition, file_id): self.time for file_id in file_ids})
        pending = {group: instant for group, instant in before.pending_compactions.items() if instant != self.time}
        return SlicingState(after, replaced, pending)


@dataclass(frozen=True, slots=True)
class FilesCleaned:
    """Result of a clean.

    Attributes:
        context: The table.
        deleted: Partition path -> bare names of deleted files.
        deleted_partitions: Partitions that no longer exist.
    """

    context: TableContext
    deleted: Mapping[str, Sequence[str]]
    deleted_partitions: Sequence[str]

    @property
    def deleted_bases(self) -> dict[str, list[str]]:
        """The deleted base files."""
        return {partition: [name for name in names if not is_log_file(name)] for partition, names in self.deleted.items()}


class IndexBuild:
    """Snapshot of a table that indexes are built from.

    Args:
        table: The table.
        engine: Runs tasks.
        snapshot: The snapshot.
        columns: The columns with statistics.
        schema: The table's, with meta columns.
    """

    def __init__(
        self, table: TableContext, engine: Engine, snapshot: Snapshot, columns: tuple[str, ...], schema: pa.Schema
    ) -> None:
        self.table = table
        self.engine = engine
        self.snapshot = snapshot
        self.columns = columns
        self.schema = schema
        self._found: dict[FileIndexing, tuple[ExistingFile, ...]] = {}

    def of(self, table: TableContext) -> IndexBuild:
        """Return the same snapshot with another handle of the table."""
        return IndexBuild(table, self.engine, replace(self.snapshot, context=table), self.columns, self.schema)

    @cached_property
    def slices(self) -> tuple[FileSlice, ...]:
        """The newest slices."""
        return tuple(s for partition_slices in self.snapshot.slices().values() for s in partition_slices)

    @cached_property
    def validity(self) -> InstantValidity:
        """Valid log blocks."""
        return InstantValidity.of(self.snapshot.timeline)

    def files(self, *, logs: bool = True) -> list[tuple[str, str, int]]:
        """Return (partition path, path, bytes) of the files of the newest slices."""
        return [
            (s.partition, file.path, file.size_bytes)
            for s in self.slices
            for file in (*((s.base,) if s.base else ()), *(s.logs if logs else ()))
        ]

    def listed(self) -> dict[str, dict[str, int]]:
        """The files of completed instants by partition, including copies that completed writes made for pending resizes.

        An empty file is of a failed attempt: `check_no_lost_files` refuses the build if a commit names one.
        """
        timeline = self.snapshot.timeline
        listing = self.snapshot.listing
        copies = self.snapshot.copies
        existing = listing.files(listing.partitions())
        unfinished = self._logs_under_way(existing)
        listed: dict[str, dict[str, int]] = {}
        for partition, infos in existing.items():
            files = listed.setdefault(partition, {})
            for info in infos:
                instant = parse_data_file_instant(info.name)
                counts = instant is not None and (timeline.is_completed(instant) or info.path in copies)
                if counts and info.size_bytes and info.path not in unfinished:
                    files[info.name] = info.size_bytes
        return listed

    def _logs_under_way(self, existing_logs: Mapping[str, Sequence[FileInfo]]) -> frozenset[str]:
        """Files of pending writes, if log files exist."""
        # A log file that a write copies for a resize carries the resize's instant in its name. The resize may complete while the
        # write is pending. The commit of the write adds the log, its rollback removes it.
        logs = any(parse_log_file(info.name) is not None for infos in existing_logs.values() for info in infos)
        pending = self.snapshot.timeline.pending_writes() if logs else ()
        return frozenset(files_being_written(self.snapshot.context.storage, (i.request_time for i in pending)))

    def read_files(self, indexing: FileIndexing, *, logs: bool) -> tuple[ExistingFile, ...]:
        """Read indexing data of the files of the newest slices from footers, and with `logs` from log blocks."""
        if indexing not in self._found:
            files, spec, ids = self.files(logs=logs), self.table.storage.spec(), self.snapshot.ids
            bootstrap_sources = load_bootstrap_sources(self.table, files)
            tasks = [
                IndexFilesTask(
                    spec,
                    tuple(files[start : start + FILES_PER_TASK]),
                    self.schema,
                    indexing,
                    self.validity,
                    ids,
                    bootstrap_sources,
                )
                for start in range(0, len(files), FILES_PER_TASK)
            ]
            self._found[indexing] = tuple(f for part in self.engine.map(run_index_files, tasks) for f in part)
        return self._found[indexing]

    def row_count(self) -> int:
        """Return the number of rows in the base files of the newest slices."""
        return sum(file.row_count for file in self.read_files(FileIndexing(), logs=False))


def slice_reader(
    context: TableContext,
    stored: pa.Schema,
    validity: InstantValidity,
    columns: Sequence[str] | None = None,
    defaults: Defaults = (),
    *,
    ids: ColumnIds | None,
) -> ReadSpec:
    """Return a reader of slices of the table.

    Args:
        context: The table.
        stored: Its columns with meta columns.
        validity: Valid log blocks.
        columns: The columns to read; None for all.
        defaults: Of `merge_rule`, required if values matter.
        ids: Column ids, see `ReadSpec`.
    """
    rule = merge_rule(context.config.merge, defaults)
    return ReadSpec.of(context.storage.spec(), context.config, stored, validity, rule=rule, ids=ids, columns=columns)


def key_reader(table: TableContext, stored: pa.Schema, validity: InstantValidity, ids: ColumnIds | None) -> ReadSpec:
    """Return a reader of record keys, or of the fields that form them.

    Args:
        table: The table.
        stored: Its columns with meta columns.
        validity: Valid log blocks.
        ids: Column ids, see `ReadSpec`.
    """
    columns = [RECORD_KEY]
    if not table.config.populate_meta_fields:
        columns += [name.split(".")[0] for name in table.config.keys.record_fields]
    return slice_reader(table, stored, validity, list(dict.fromkeys(columns)), ids=ids)
