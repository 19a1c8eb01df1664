"""`MetadataTable`: the metadata table of one table snapshot, opened for lookups. Format:
docs/formats/metadata-table.md.

    1. Its timeline and the table's timeline determine which log blocks are valid (`BlockValidity`).
    2. A partition's files are listed once. Its file groups are the newest merged slices, as in any table of version 8.
    3. The hash of a key determines its file group. A lookup reads one group per key, and in it only blocks that may
    hold the key. A prefix is looked up in all groups.
    4. The base file and the log blocks of a group become layers of cells; `cell_merge` and `index_lookups` interpret
    them.

The table's timeline must be loaded first. Later commits of the metadata table may be visible. For the file listing this
is harmless, because the table's timeline decides which files are valid. Results about the table's newest state are then
ahead of the timeline, which `is_ahead` reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from pyhudi.errors import CorruptData, InvalidRequest, SnapshotOutdated, TableNotFound, TableState, Unsupported
from pyhudi.format.actions.restore_metadata import RestoreMetadata
from pyhudi.format.actions.rollback_metadata import RollbackMetadata
from pyhudi.format.index_definitions import IndexDefinition
from pyhudi.format.instants import INIT_INSTANT_TIME, Action, Instant
from pyhudi.format.names import parse_base_file
from pyhudi.format.paths import METADATA_FOLDER
from pyhudi.metadata_table.codecs.metadata_partitions import parse_file_group
from pyhudi.metadata_table.reader.cell_merge import GroupCells
from pyhudi.metadata_table.reader.file_group_reader import GroupReader, KeyRequest, MetadataPartition, by_section, lookup_tasks
from pyhudi.metadata_table.reader.key_ranges import RangedGroup, open_group
from pyhudi.metadata_table.reader.metadata_file_cache import LruCache, MetadataFiles
from pyhudi.metadata_table.reader.stored_index_definitions import load_index_definitions
from pyhudi.records.hashing import key_shards
from pyhudi.storage.base import FileInfo, Storage
from pyhudi.table.cached_property import cached_property
from pyhudi.table.file_slices import FileSlice, LogFile, SlicingState, build_file_groups, visible_slices
from pyhudi.table.pending_plans import load_pending_compactions
from pyhudi.table.snapshot_staleness import find_stale_reason
from pyhudi.table.table_config import load_table_config
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.table.timeline.timeline_store import TimelineStore

# Validity of log blocks of the metadata table. Format: docs/formats/metadata-table.md, when MDT data counts.
#
# The metadata table is committed before the table, so its own timeline does not determine what is visible. A block of
# instant T is valid if all of these hold:
#
#     1. T is completed on the metadata timeline, or precedes its start
#     2. T is not later than the metadata table's last completed instant
#     3. T is one of
#        a. the completed instants of the table's active timeline
#        b. the completed delta commits of the metadata table that are not pending on the table's timeline
#        c. the instants that completed rollbacks and restores of the table rolled back
#        d. the completed rollbacks and restores of the metadata table
#        e. the initializations of partitions, whose instants begin with fourteen zeros (a subset of b)
#
# This hides the changes of a writer that died between its two commits. Base files need no check: a compaction of the
# metadata table merges only committed instants.


class BlockValidity:
    """Validity rule of log blocks for one state of both timelines.

    Args:
        load_rolled_back: Loads the instants that the table's completed rollbacks and restores rolled back. Called at
            the first instant that no other rule decides, which is rare.
    """

    __slots__ = ("_completed", "_data_completed", "_known", "_last", "_load_rolled_back", "_metadata", "_rolled_back")

    def __init__(self, data: Timeline, metadata: Timeline, load_rolled_back: Callable[[], frozenset[str]]) -> None:
        pending = {instant.request_time for instant in data.pending()} - {i.request_time for i in data.completed()}
        completed = metadata.completed()
        self._metadata = metadata
        self._completed = frozenset(instant.request_time for instant in completed)
        self._last = max(self._completed, default="")
        self._known = frozenset(
            instant.request_time
            for instant in completed
            if (instant.action.is_write and instant.request_time not in pending)
            or instant.action in (Action.ROLLBACK, Action.RESTORE)
            or instant.request_time.startswith(INIT_INSTANT_TIME)
        )
        self._data_completed = frozenset(instant.request_time for instant in data.completed())
        self._load_rolled_back = load_rolled_back
        self._rolled_back: frozenset[str] | None = None

    def counts(self, instant_time: str) -> bool:
        """Return True if blocks of that instant are valid."""
        if instant_time > self._last:
            return False
        if instant_time not in self._completed and not self._metadata.is_before_start(instant_time):
            return False
        if instant_time in self._known or instant_time in self._data_completed:
            return True
        if self._rolled_back is None:
            self._rolled_back = self._load_rolled_back()
        return instant_time in self._rolled_back


_MAX_CACHED_LOOKUP_BYTES = 16 << 20
# Overhead of a cached result in addition to its buffers; bounds the number of small results.
_ANSWER_BYTES = 4 << 10


class CachedResult(Protocol):
    """Result with a known size in memory."""

    @property
    def nbytes(self) -> int:
        """Size in memory, in bytes."""
        ...


A = TypeVar("A", bound=CachedResult)


@dataclass(frozen=True, slots=True)
class MetadataCache:
    """State of a metadata table that the caller has loaded, while holding the table's lock or for a cached snapshot.

    Attributes:
        context: The metadata table as a table.
        timeline: Its active timeline.
        listed: Lists the files of one of its partitions, after `timeline` was loaded.
        earlier: The metadata table as opened before the lock was acquired; its fetched files are reused.
    """

    context: TableContext
    timeline: Timeline
    listed: Callable[[str], Sequence[FileInfo]]
    earlier: MetadataTable | None = None


class MetadataTable:
    """The metadata table that belongs to a loaded timeline of a table. It is read lazily.

    Every method may raise:

    Raises:
        TableState: The metadata table or one of its files is missing.
        CorruptData: A file is damaged; the error contains its path.
        Unsupported: It contains something this reader does not support.
        SnapshotOutdated: A file is missing because the metadata table was cleaned, rolled back, dropped or rebuilt
            since it was opened.
    """

    def __init__(
        self,
        context: TableContext,
        data_timeline: Timeline,
        opened: MetadataCache | None = None,
        earlier: MetadataTable | None = None,
    ) -> None:
        """opened: state that the caller has already loaded. earlier: the same metadata table as opened for an earlier
        state; its fetched files are reused.
        """
        self._data = context
        self._data_timeline = data_timeline
        self._opened = opened
        self._slices: dict[str, tuple[tuple[FileSlice, ...], ...]] = {}
        self._cached_lookups: LruCache[tuple[object, ...], Any] = LruCache(_MAX_CACHED_LOOKUP_BYTES)
        self._earlier = earlier if opened is None else opened.earlier

    @property
    def storage(self) -> Storage:
        """The metadata table's own folder."""
        return self._data.storage.child(METADATA_FOLDER)

    @property
    def data_context(self) -> TableContext:
        """The table that it describes."""
        return self._data

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions that readers may use."""
        return self._data.config.metadata_partitions

    @cached_property
    def context(self) -> TableContext:
        """The metadata table as a table."""
        if self._opened is not None:
            return self._opened.context
        earlier = self._earlier
        if earlier is not None and earlier.describes_same(self._data):
            return TableContext(self.storage, self._data.env, earlier.context.config, self._data.lock)
        try:
            return metadata_context(self._data)
        except TableNotFound:
            self._check_not_dropped()
            raise

    @cached_property
    def timeline(self) -> Timeline:
        """Its active timeline."""
        return self.context.timeline.load() if self._opened is None else self._opened.timeline

    @cached_property
    def definitions(self) -> dict[str, IndexDefinition]:
        """The table's index definitions by name; empty if its properties refer to no document, or the document does not exist."""
        return load_index_definitions(self._data)

    @cached_property
    def is_ahead(self) -> bool:
        """True if it holds commits that are missing in the table's timeline, which was loaded earlier.

        Results about the table's newest state (record and secondary indexes, partition statistics) may then differ from
        the state of that timeline. Compactions of the metadata table do not count: they change no content.
        """
        latest = self._data_timeline.latest_time()
        return any(instant.request_time > latest for instant in self.timeline.completed(Action.DELTACOMMIT))

    def warm(self, partition: str) -> None:
        """Prefetch the small files of a partition; errors are ignored."""
        with suppress(SnapshotOutdated, CorruptData, TableState, Unsupported):
            slices = self.slices(partition)
            self._files.fetch(file for s in slices for file in (*((s.base,) if s.base else ()), *s.logs))

    def files_as_of(self, later: MetadataTable) -> MetadataFiles:
        """Return a cache for a later state of the metadata table, with the fetched files of instants that its timeline
        contains unchanged.

        A file is written before its instant completes and never afterwards. A partition that is dropped and rebuilt has
        files of the same names, but its instants have other completion times.
        """
        return self._files.of_instants(unchanged_instants(self.timeline, later.timeline), later.storage, later.check_not_stale)

    def slices(self, partition: str) -> tuple[FileSlice, ...]:
        """Return the newest merged slice of each file group of a partition, by section and number; empty for a missing
        partition. Raises as `sections`.
        """
        return tuple(slice_ for section in self.sections(partition) for slice_ in section)

    def sections(self, partition: str) -> tuple[tuple[FileSlice, ...], ...]:
        """Return the slices of a partition by section. A partitioned record index has one section per table partition,
        and a key has a file group in each.

        Raises:
            CorruptData: A group number is missing; its keys would not be found.
            SnapshotOutdated: Files were cleaned between the loading of the timeline and the listing.
        """
        sections_ = self._slices.get(partition, self._reused[1].get(partition))
        if sections_ is None:
            # Load the timeline before listing: files removed afterwards are then detected. An earlier listing would
            # contain them.
            state = self._slicing
            files = self.storage.list(partition).files if self._opened is None else self._opened.listed(partition)
            # A clean retains the newest slice of each file group. If every base file is valid, no clean removed a
            # needed file.
            bases = (parse_base_file(info.name) for info in files)
            if not all(base is None or self.timeline.is_completed(base.instant_time) for base in bases):
                self.check_not_stale()
            groups = build_file_groups(partition, files, state)
            try:
                sections_ = by_section(visible_slices(groups, state))
            except CorruptData as error:
                raise error.with_path(self.storage.absolute(partition)) from error
        self._slices[partition] = sections_
        return sections_

    def is_sectioned(self, partition: str) -> bool:
        """Return True if the same key may occur in several sections."""
        return any(parse_file_group(section[0].file_id)[0] is not None for section in self.sections(partition))

    def cached(self, request: tuple[object, ...], find: Callable[[], A]) -> A:
        """Return the result of a request, computed once. An LRU cache of 16 MiB holds recent results."""
        result: A | None = self._cached_lookups.get(request)
        if result is None:
            result = find()
            self._cached_lookups.put(request, result, result.nbytes + _ANSWER_BYTES)
        return result

    def lookup(self, partition: str, keys: pa.StringArray, routes: pa.StringArray | None = None) -> list[GroupCells]:
        """Return the cells of some keys, one result for each group read.

        Args:
            partition: Name of the metadata table partition.
            keys: String, no nulls, in any order; duplicates are looked up once.
            routes: As in `lookup_tasks`.
        """
        tasks = [task for section in self._require(partition) for task in lookup_tasks(section, keys, routes)]
        return self._reader.read_all(tasks)

    def lookup_prefixes(self, partition: str, prefixes: Sequence[str], *, routed: bool = False) -> list[GroupCells]:
        """Return the cells whose key begins with one of the prefixes, one result for each group read.

        Args:
            partition: Name of the metadata table partition.
            prefixes: Beginnings of keys.
            routed: The prefix, not the whole key, determines the file group, so one group is read per prefix.
        """
        if not prefixes:
            return []
        request = KeyRequest(prefixes=tuple(sorted({prefix.encode() for prefix in prefixes})))
        groups = [slice_ for section in self._require(partition) for slice_ in section]
        if routed:
            shards = key_shards(pa.array(prefixes, pa.string()), len(groups))
            groups = [groups[number] for number in np.unique(shards).tolist()]
        return self._reader.read_all([(slice_, request) for slice_ in groups])

    def read(self, partition: str) -> list[GroupCells]:
        """Return all cells of a partition, one result for each group."""
        return self._reader.read_all([(slice_, KeyRequest()) for section in self._require(partition) for slice_ in section])

    def scan(self, partition: str) -> Iterator[GroupCells]:
        """Yield the cells of all groups of a partition; a group's base file is read lazily."""
        for slice_ in (slice_ for section in self._require(partition) for slice_ in section):
            yield self._reader.read(slice_, KeyRequest())

    def open_group(self, slice_: FileSlice) -> RangedGroup:
        """Open a file group of this metadata table, to read it in ranges of keys. Raises as `reader.key_ranges.open_group`."""
        return open_group(self._files, slice_, self._validity.counts)

    def partition(self, name: str) -> MetadataPartition:
        """Return the current state of a partition, for tasks that look up keys in it."""
        self._require(name)
        slices = self.slices(name)
        instants = {log.name.instant_time for slice_ in slices for log in slice_.logs}
        return MetadataPartition(self.storage.spec(), name, slices, frozenset(filter(self._validity.counts, instants)))

    def logs_after(self, name: str, request_time: str) -> MetadataPartition | None:
        """Return a partition (even one that is being built) reduced to the log files of instants requested later; None
        if there are none.
        """
        slices = tuple(
            replace(slice_, base=None, logs=tuple(log for log in slice_.logs if log.name.instant_time > request_time))
            for slice_ in self.slices(name)
        )
        instants = {log.name.instant_time for slice_ in slices for log in slice_.logs}
        counted = frozenset(filter(self._validity.counts, instants))
        return MetadataPartition(self.storage.spec(), name, slices, counted) if counted else None

    def describes_same(self, context: TableContext) -> bool:
        """Whether a table's properties are unchanged since this object was created: `drop`, `rebuild` and a change of
        version replace them, with a new time in the first lines.
        """
        return self._data.config is context.config and self._data.storage.uri == context.storage.uri

    @property
    def _files(self) -> MetadataFiles:
        return self._reused[0]

    @cached_property
    def _reused(self) -> tuple[MetadataFiles, Mapping[str, tuple[tuple[FileSlice, ...], ...]]]:
        """The fetched files of the earlier state, and its slices if no instant was added since."""
        earlier = self._earlier
        if earlier is None:
            return MetadataFiles(self.storage, self.check_not_stale), {}
        is_same = earlier.describes_same(self._data) and earlier.timeline.instants == self.timeline.instants
        reused = earlier.files_as_of(self), {**earlier._reused[1], **earlier._slices} if is_same else {}
        # Otherwise each state would keep all states before it in memory.
        self._earlier = None
        return reused

    def after_commit(self, timeline: Timeline, logs: Mapping[str, LogFile]) -> MetadataTable:
        """Return the state right after a delta commit that was made on this state.

        Args:
            timeline: The timeline with the delta commit.
            logs: The log file that it added to each partition with one file group; without those that have several.
        """
        later = MetadataTable(self._data, self._data_timeline, earlier=self)
        later.context, later.timeline = self.context, timeline
        for partition, log in logs.items():
            sections_ = self._slices.get(partition, self._reused[1].get(partition, ()))
            if [len(section) for section in sections_] == [1]:
                slice_ = sections_[0][0]
                later._slices[partition] = ((replace(slice_, logs=(*slice_.logs, log)),),)
        # Ends the reference to this state.
        assert later._reused is not None
        return later

    def is_same_state(self, earlier: MetadataTable) -> bool:
        """Whether no instant was added since an earlier state, and the same blocks count."""
        if not earlier.describes_same(self._data) or earlier.timeline.instants != self.timeline.instants:
            return False
        counts, counted = self._validity.counts, earlier._validity.counts
        return all(counts(i.request_time) == counted(i.request_time) for i in self.timeline.completed())

    def newer_cells(self, partition: str, keys: pa.StringArray, earlier: MetadataTable) -> list[GroupCells] | None:
        """Return the cells that log files add to an earlier state of a partition; None if it has changed otherwise.

        The groups may differ only by log files after those of the earlier state, all with valid data blocks. A cached
        result of the earlier state, merged with these cells, is the current result.

        Args:
            partition: Name of the metadata table partition.
            keys: As for `lookup`.
            earlier: The metadata table as opened for the earlier state.
        """
        groups, before = self._require(partition), earlier._slices.get(partition, ())
        if len(groups) != 1 or len(before) != 1 or len(groups[0]) != len(before[0]):
            return None
        unchanged = unchanged_instants(earlier.timeline, self.timeline)
        added = [self._added_logs(slice_, old, earlier, unchanged) for slice_, old in zip(groups[0], before[0], strict=True)]
        if None in added:
            return None
        slices = [replace(slice_, base=None, logs=logs or ()) for slice_, logs in zip(groups[0], added, strict=True)]
        if not all(self._reader.has_only_data(slice_) for slice_ in slices):
            return None
        return self._reader.read_all([task for task in lookup_tasks(slices, keys) if task[0].logs])

    def _added_logs(
        self, slice_: FileSlice, old: FileSlice, earlier: MetadataTable, unchanged: frozenset[str]
    ) -> tuple[LogFile, ...] | None:
        """Return the valid logs after those of an earlier state of a group; None if the group has changed otherwise."""
        count = len(old.logs)
        files = (*((old.base,) if old.base else ()), *old.logs)
        if slice_.file_id != old.file_id or slice_.base != old.base or slice_.logs[:count] != old.logs:
            return None
        if not all(file.name.instant_time in unchanged for file in files):
            return None
        counts, counted = self._validity.counts, earlier._validity.counts
        if any(counts(log.name.instant_time) != counted(log.name.instant_time) for log in old.logs):
            return None
        added = slice_.logs[count:]
        return added if all(counts(log.name.instant_time) for log in added) else None

    @cached_property
    def _reader(self) -> GroupReader:
        return GroupReader(self._files, self._validity.counts)

    @cached_property
    def _slicing(self) -> SlicingState:
        store = self.context.timeline
        return SlicingState(self.timeline, {}, load_pending_compactions(store, self.timeline))

    @cached_property
    def _validity(self) -> BlockValidity:
        return BlockValidity(self._data_timeline, self.timeline, partial(load_rolled_back, self._data, self._data_timeline))

    def check_not_stale(self) -> None:
        """Raise SnapshotOutdated if files that its timeline refers to may be removed: cleaned, rolled back, dropped or rebuilt.

        Called when a file is missing. If it is missing for another reason, the caller raises its own error.
        """
        self._check_not_dropped()
        stale_reason = None
        with suppress(TableState):
            stale_reason = find_stale_reason(self.context.timeline, self.timeline)
        if stale_reason is not None:
            raise SnapshotOutdated(
                f"the loaded state of {self.storage.uri} is outdated: {stale_reason.reason}; load the table again",
                instants=stale_reason.instants,
            )

    def _check_not_dropped(self) -> None:
        current_partitions = load_table_config(self._data.storage, self._data.env).metadata_partitions
        if current_partitions != self.partitions:
            raise SnapshotOutdated(
                f"the metadata table of {self._data.storage.uri} was changed since the table was loaded: its partitions were "
                f"{', '.join(self.partitions)} and are {', '.join(current_partitions) or 'none'}; load the table again"
            )

    def _require(self, partition: str) -> tuple[tuple[FileSlice, ...], ...]:
        if partition not in self.partitions:
            raise InvalidRequest(
                f"the metadata table has no partition {partition!r}; existing partitions: {', '.join(self.partitions)}"
            )
        sections = self.sections(partition)
        # A partitioned index of a table without rows has no section.
        if not sections and not (partition in self.definitions and self.definitions[partition].by_partition):
            self.check_not_stale()
            raise TableState(
                f"the metadata table has no file group at {self.storage.absolute(partition)}; Table.index.rebuild() rebuilds it"
            )
        return sections


def unchanged_instants(earlier: Timeline, current: Timeline) -> frozenset[str]:
    """Return the instants that are completed in both timelines of a metadata table, at the same time."""
    before = {(instant.request_time, instant.completion_time) for instant in earlier.completed()}
    now = {(instant.request_time, instant.completion_time) for instant in current.completed()}
    return frozenset(time for time, completion in before & now if completion is not None)


def metadata_context(data: TableContext) -> TableContext:
    """Open the metadata table of a table as a table. Raises as the methods of `MetadataTable`."""
    storage = data.storage.child(METADATA_FOLDER)
    config = load_table_config(storage)
    if not config.version.has_one_log_file_per_commit:
        raise Unsupported(
            f"cannot read the metadata table at {storage.uri}: table version {int(config.version)} is not supported"
        )
    return TableContext(storage, data.env, config, data.lock)


def load_rolled_back(context: TableContext, timeline: Timeline) -> frozenset[str]:
    """Return the instants that the completed rollbacks and restores of a timeline rolled back."""
    store = context.timeline
    return frozenset(
        time for instant in timeline.completed(Action.ROLLBACK, Action.RESTORE) for time in rolled_back_instants(store, instant)
    )


def rolled_back_instants(store: TimelineStore, instant: Instant) -> tuple[str, ...]:
    """Return the instants that a completed rollback or restore rolled back.

    Raises:
        CorruptData: The instant's file is damaged; the error contains its path.
    """
    with store.errors_with_path(instant):
        data = store.read(instant)
        if instant.action is Action.ROLLBACK:
            return RollbackMetadata.decode(data).commits_rollback
        return RestoreMetadata.decode(data).instants_to_rollback
