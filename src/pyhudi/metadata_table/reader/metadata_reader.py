"""`MetadataTable`: the metadata table of one snapshot of a table, opened for lookups.

    1. Its timeline is loaded with the table's at hand, which says which of its log blocks count (`validity`).
    2. A partition's files are listed once; its file groups are the newest merged slices, as in any table of version 8.
    3. A key belongs to the file group that its hash names, so a lookup of keys reads one group for each key, by the blocks that
       can hold it.  A prefix is looked up in all groups.
    4. The base file and the log blocks of a group come back as layers of cells; `merge` and `indexes` say what they mean.

The table's timeline must be loaded first.  What is committed to the metadata table afterwards may be seen: for the list of files
that does no harm, since the table's timeline decides what counts; answers about the table's newest state are then ahead of the
timeline, which `is_ahead` says.

Source: docs/formats/metadata-table.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
from pyhudi.metadata_table.reader.metadata_file_cache import LruCache, MetadataFiles
from pyhudi.metadata_table.reader.stored_index_definitions import load_index_definitions
from pyhudi.records.hashing import key_shards
from pyhudi.storage.base import FileInfo, Storage
from pyhudi.table.cached_property import cached_property
from pyhudi.table.file_slices import FileSlice, SlicingState, build_file_groups, visible_slices
from pyhudi.table.pending_plans import load_pending_compactions
from pyhudi.table.snapshot_staleness import find_stale_reason
from pyhudi.table.table_config import load_table_config
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.table.timeline.timeline_store import TimelineStore

# Which log blocks of the metadata table count.  Source: docs/formats/metadata-table.md, when MDT data counts.
#
# The metadata table is committed before the table is, so its timeline alone does not say what is visible.  A block of instant T
# counts when all of these hold:
#
#     1. T is completed on the metadata timeline, or lies before its start
#     2. T is not later than the metadata table's last completed instant
#     3. T is one of
#        a. the completed instants of the table's active timeline
#        b. the completed delta commits of the metadata table that are not pending on the table's timeline
#        c. the instants that completed rollbacks and restores of the table have taken back
#        d. the completed rollbacks and restores of the metadata table
#        e. the initialisations of partitions, whose instants begin with fourteen zeros (they are among b)
#
# So what a writer did that died between its two commits stays out of sight.  Base files are not asked: a compaction of the
# metadata table takes up committed instants alone.

# Every write of the metadata table completes under one of these.


class BlockValidity:
    """The rule for one state of both timelines.

    load_rolled_back: the instants that the table's completed rollbacks and restores have taken back.  Their documents are read
    at the first instant that nothing else decides: hardly ever.
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
        """Whether blocks of that instant are seen."""
        if instant_time > self._last:
            return False
        if instant_time not in self._completed and not self._metadata.is_before_start(instant_time):
            return False
        if instant_time in self._known or instant_time in self._data_completed:
            return True
        if self._rolled_back is None:
            self._rolled_back = self._load_rolled_back()
        return instant_time in self._rolled_back


_REMEMBERED_BYTES = 16 << 20
# What an answer takes beside its buffers, so that many small ones are bounded, too.
_ANSWER_BYTES = 4 << 10


class CachedResult(Protocol):
    """What can be remembered."""

    @property
    def nbytes(self) -> int:
        """What it takes in memory."""
        ...


A = TypeVar("A", bound=CachedResult)


@dataclass(frozen=True, slots=True)
class MetadataCache:
    """What a caller knows of a metadata table: the holder of the table's lock, whom nobody else disturbs, or who keeps a state.

    context: the metadata table as a table of its own; timeline: its active timeline; listed: the files of one of its partitions,
    looked at after that timeline was loaded.
    earlier: the metadata table as it was opened before the lock was taken, whose files need not be fetched again.
    """

    context: TableContext
    timeline: Timeline
    listed: Callable[[str], Sequence[FileInfo]]
    earlier: MetadataTable | None = None


class MetadataTable:
    """The metadata table that belongs to a loaded timeline of a table.  Nothing is read before it is asked for.

    Every method raises TableState when the metadata table or one of its files is missing, CorruptData naming the file when one is
    damaged, Unsupported when it holds what is not read, SnapshotOutdated when a file is missing because the metadata table was
    cleaned, rolled back, dropped or built again since it was opened.
    """

    def __init__(self, context: TableContext, data_timeline: Timeline, opened: MetadataCache | None = None) -> None:
        """opened: for a caller that has the metadata table open."""
        self._data = context
        self._data_timeline = data_timeline
        self._opened = opened
        self._slices: dict[str, tuple[tuple[FileSlice, ...], ...]] = {}
        self._answers: LruCache[tuple[object, ...], Any] = LruCache(_REMEMBERED_BYTES)
        self._files = MetadataFiles(self.storage, self.check_not_stale)
        if opened is not None and opened.earlier is not None:
            self._files = opened.earlier.files_as_of(opened.timeline, self.check_not_stale)

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
        """The metadata table as a table of its own."""
        if self._opened is not None:
            return self._opened.context
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
        """The table's index definitions by name; none when its properties name no document, or it does not exist."""
        return load_index_definitions(self._data)

    @cached_property
    def is_ahead(self) -> bool:
        """True when it holds commits that the table's timeline, loaded before, does not know.

        Then what it says about the table's newest state (record and secondary indexes, statistics of partitions) may not be true
        of the state that the timeline describes.  Its own compactions say nothing new.
        """
        latest = self._data_timeline.latest_time()
        return any(instant.request_time > latest for instant in self.timeline.completed(Action.DELTACOMMIT))

    def warm(self, partition: str) -> None:
        """Fetch the small files of a partition that will be asked for, where that can be done in peace."""
        with suppress(SnapshotOutdated, CorruptData, TableState, Unsupported):
            slices = self.slices(partition)
            self._files.fetch(file for s in slices for file in (*((s.base,) if s.base else ()), *s.logs))

    def files_as_of(self, current_timeline: Timeline, check_not_stale: Callable[[], None]) -> MetadataFiles:
        """What was fetched by now of files whose instants stand on a later timeline of the metadata table as they did on its own.

        Files are fetched after its timeline was loaded.  A file is written before its instant completes and never afterwards:
        a partition that is dropped and built anew has files of the same names, and instants that completed at another time.
        """
        stood = {(instant.request_time, instant.completion_time) for instant in self.timeline.completed()}
        now_there = {(instant.request_time, instant.completion_time) for instant in current_timeline.completed()}
        stands = {time for time, completion in stood & now_there if completion is not None}
        return self._files.of_instants(stands, check_not_stale)

    def slices(self, partition: str) -> tuple[FileSlice, ...]:
        """The newest merged slice of each file group of a partition, by section and number; none for a partition that is not
        there.  Raises as `sections`.
        """
        return tuple(slice_ for section in self.sections(partition) for slice_ in section)

    def sections(self, partition: str) -> tuple[tuple[FileSlice, ...], ...]:
        """As `slices`: one section, but of a partitioned record index one for each partition of the table, in each of which a key
        has a file group.

        Raises CorruptData when group numbers are missing: keys could not be found then; SnapshotOutdated when files were cleaned
        between the loading of the timeline and the listing.
        """
        found = self._slices.get(partition)
        if found is None:
            # Files that go after the timeline is loaded are noticed; a listing from before it would name them unnoticed.
            state = self._slicing
            files = self.storage.list(partition).files if self._opened is None else self._opened.listed(partition)
            # A clean leaves the newest slice of a file group.  Where every base file counts, so does what a clean left.
            bases = (parse_base_file(info.name) for info in files)
            if not all(base is None or self.timeline.is_completed(base.instant_time) for base in bases):
                self.check_not_stale()
            groups = build_file_groups(partition, files, state)
            try:
                found = by_section(visible_slices(groups, state))
            except CorruptData as error:
                raise error.with_path(self.storage.absolute(partition)) from error
            self._slices[partition] = found
        return found

    def is_sectioned(self, partition: str) -> bool:
        """Whether the same key may stand in several sections."""
        return any(parse_file_group(section[0].file_id)[0] is not None for section in self.sections(partition))

    def cached(self, request: tuple[object, ...], find: Callable[[], A]) -> A:
        """The answer to a question, found once: while this object lives it stays the same.  Those asked last are held, up to some
        MiB.
        """
        known: A | None = self._answers.get(request)
        if known is None:
            known = find()
            self._answers.put(request, known, known.nbytes + _ANSWER_BYTES)
        return known

    def lookup(self, partition: str, keys: pa.StringArray, routes: pa.StringArray | None = None) -> list[GroupCells]:
        """The cells of some keys.  keys: string, no nulls, in any order; a key is looked up once.  One result for each group
        read.  routes: as of `lookup_tasks`.
        """
        tasks = [task for section in self._require(partition) for task in lookup_tasks(section, keys, routes)]
        return self._reader.read_all(tasks)

    def lookup_prefixes(self, partition: str, prefixes: Sequence[str], *, routed: bool = False) -> list[GroupCells]:
        """The cells whose key begins with one of the prefixes.  One result for each group that is read.

        routed: the prefix of a key, not the whole key, names its file group, so that one group is read for each.
        """
        if not prefixes:
            return []
        wanted = KeyRequest(prefixes=tuple(sorted({prefix.encode() for prefix in prefixes})))
        groups = [slice_ for section in self._require(partition) for slice_ in section]
        if routed:
            chosen = key_shards(pa.array(prefixes, pa.string()), len(groups))
            groups = [groups[number] for number in np.unique(chosen).tolist()]
        return self._reader.read_all([(slice_, wanted) for slice_ in groups])

    def scan(self, partition: str) -> Iterator[GroupCells]:
        """Everything in a partition, group by group; a group's base file is read while its cells are asked for."""
        for slice_ in (slice_ for section in self._require(partition) for slice_ in section):
            yield self._reader.read(slice_, KeyRequest())

    def partition(self, name: str) -> MetadataPartition:
        """A partition as it stands, for tasks that look keys up in it."""
        self._require(name)
        slices = self.slices(name)
        instants = {log.name.instant_time for slice_ in slices for log in slice_.logs}
        return MetadataPartition(self.storage.spec(), name, slices, frozenset(filter(self._validity.counts, instants)))

    def logs_after(self, name: str, request_time: str) -> MetadataPartition | None:
        """A partition, also one that is being built, with nothing in it but the log files of instants requested later; None where
        there are none.
        """
        slices = tuple(
            replace(slice_, base=None, logs=tuple(log for log in slice_.logs if log.name.instant_time > request_time))
            for slice_ in self.slices(name)
        )
        instants = {log.name.instant_time for slice_ in slices for log in slice_.logs}
        counted = frozenset(filter(self._validity.counts, instants))
        return MetadataPartition(self.storage.spec(), name, slices, counted) if counted else None

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
        """Raise SnapshotOutdated if files may be gone that its timeline counts: cleaned, rolled back, dropped or built again.

        Called when something is missing.  What is missing for another reason is the error of the caller.
        """
        self._check_not_dropped()
        loss = None
        with suppress(TableState):
            loss = find_stale_reason(self.context.timeline, self.timeline)
        if loss is not None:
            raise SnapshotOutdated(
                f"the state of {self.storage.uri} that was loaded is no longer whole: {loss.reason}; load the table again",
                instants=loss.instants,
            )

    def _check_not_dropped(self) -> None:
        present = load_table_config(self._data.storage, self._data.env).metadata_partitions
        if present != self.partitions:
            raise SnapshotOutdated(
                f"the metadata table of {self._data.storage.uri} was changed since the table was loaded: it had "
                f"{', '.join(self.partitions)} and has {', '.join(present) or 'nothing'}; load the table again"
            )

    def _require(self, partition: str) -> tuple[tuple[FileSlice, ...], ...]:
        if partition not in self.partitions:
            raise InvalidRequest(f"the metadata table has no partition {partition!r}; it has {', '.join(self.partitions)}")
        sections = self.sections(partition)
        # A partitioned index of a table without rows has no section yet.
        if not sections and not (partition in self.definitions and self.definitions[partition].by_partition):
            self.check_not_stale()
            raise TableState(f"the metadata table has no file group at {self.storage.absolute(partition)}")
        return sections


def metadata_context(data: TableContext) -> TableContext:
    """The metadata table of a table as a table of its own.  Raises as the methods of `MetadataTable`."""
    storage = data.storage.child(METADATA_FOLDER)
    config = load_table_config(storage)
    if not config.version.has_one_log_file_per_commit:
        raise Unsupported(f"the metadata table at {storage.uri} has table version {int(config.version)}")
    return TableContext(storage, data.env, config, data.lock)


def load_rolled_back(context: TableContext, timeline: Timeline) -> frozenset[str]:
    """The instants that the completed rollbacks and restores of a timeline have taken back."""
    store = context.timeline
    return frozenset(
        time for instant in timeline.completed(Action.ROLLBACK, Action.RESTORE) for time in rolled_back_instants(store, instant)
    )


def rolled_back_instants(store: TimelineStore, instant: Instant) -> tuple[str, ...]:
    """The instants that a completed rollback or restore has taken back.  Raises CorruptData that names the file."""
    try:
        data = store.read(instant)
        if instant.action is Action.ROLLBACK:
            return RollbackMetadata.decode(data).commits_rollback
        return RestoreMetadata.decode(data).instants_to_rollback
    except CorruptData as error:
        raise error.with_path(store.storage.absolute(store.path(instant))) from error
