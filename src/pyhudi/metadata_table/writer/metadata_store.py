"""The metadata table as a writable table: delta commits, their rollback, creation and drop.
Format: docs/formats/metadata-table.md.

    a delta commit     `<t>.deltacommit.requested`, `.inflight`; one log file per touched file group; the completed file
    rollback           deletes its log files, its completed file, its pending files: in this order, so it can be
                       repeated
    drop               removes the partitions from the table's properties first, then deletes the folder

The instant of a delta commit is that of the table's own instant; readers ignore it while that one is pending.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, TypeVar

import pyarrow as pa

from pyhudi.errors import CorruptData, SnapshotOutdated, TableNotFound, TableState, Unsupported
from pyhudi.format.actions.commit_metadata import SCHEMA_KEY, CommitMetadata, WriteStat
from pyhudi.format.instants import INIT_INSTANT_TIME, Action, Instant
from pyhudi.format.names import LogFileName, WriteToken, parse_base_file, parse_data_file_instant, parse_log_file
from pyhudi.format.partition_metadata import PartitionMetadata
from pyhudi.format.paths import METADATA_FOLDER, PARTITION_METADATA_FILE, file_name, join_path, parent_folder
from pyhudi.format.table_versions import written_versions
from pyhudi.metadata_table.codecs.metadata_partitions import (
    FILES,
    IndexGroup,
    encode_first_log,
    format_section,
    grouped,
    index_groups,
)
from pyhudi.metadata_table.codecs.metadata_schema import COMMIT_SCHEMA
from pyhudi.metadata_table.file_tasks import (
    KeyRecords,
    KeySource,
    KeyTask,
    LogTask,
    MetadataFile,
    run_key_log,
    run_metadata_log,
)
from pyhudi.metadata_table.metadata_records import MetadataRecords, by_shard
from pyhudi.metadata_table.reader.cell_merge import Cells
from pyhudi.metadata_table.reader.metadata_listing import advance_listing
from pyhudi.metadata_table.reader.metadata_reader import (
    BlockValidity,
    MetadataTable,
    load_rolled_back,
    unchanged_instants,
)
from pyhudi.metadata_table.writer.sole_writer import SINCE_KEY
from pyhudi.options import table_options as props
from pyhudi.storage.base import FileInfo, Storage
from pyhudi.storage.thread_pool import in_threads
from pyhudi.table.cached_property import cached_property
from pyhudi.table.file_slices import LogFile
from pyhudi.table.table_config import create_table_files, load_table_config, store_table_config
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.table.timeline.timeline_store import next_instant_time
from pyhudi.tasks.engine_protocol import Engine
from pyhudi.tasks.file_stats import KeyShard

PARTITIONS_KEY = props.METADATA_PARTITIONS.stored_as
INFLIGHT_KEY = props.METADATA_INFLIGHT.stored_as
_GROUPS_CACHE_KEY = "file groups of the metadata table"
_NO_GROUPS: Mapping[str, tuple[IndexGroup, ...]] = {}
_NEVER_IN_NAMES = frozenset("./\\\n")

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class MetadataStore:
    """An existing metadata table.

    Attributes:
        table: The table, with freshly loaded properties.
        context: The metadata table as a table.
        earlier: The metadata table as opened before the lock; None if its properties were read again.
    """

    table: TableContext
    context: TableContext
    earlier: MetadataTable | None = None

    @classmethod
    def open(cls, table: TableContext, earlier: MetadataTable | None = None) -> MetadataStore:
        """Open the metadata table of a table.

        Args:
            table: The table, with freshly loaded properties.
            earlier: The metadata table as opened before. Its properties are read again only if those of the table
                have changed: a drop, a rebuild and a change of version replace both.

        Raises:
            SnapshotOutdated: The metadata table was dropped since the properties were read.
            TableState: The properties list a metadata table, but none exists.
            Unsupported: PyHudi cannot write its table version.
        """
        child = table.storage.child(METADATA_FOLDER)
        if earlier is not None and earlier.describes_same(table):
            config = replace(earlier.context.config, zone=table.config.zone)
            return cls(table, TableContext(child, table.env, config, table.lock), earlier)
        try:
            config = load_table_config(child)
        except TableNotFound as error:
            if not table.reloaded().config.has_metadata_table:
                raise SnapshotOutdated(f"the metadata table of {table.storage.uri} was dropped; load the table again") from error
            raise TableState(
                f"the metadata table at {child.uri} is missing, but the properties of {table.storage.uri} list it "
                f"({', '.join(table.config.metadata_partitions)}); "
                "Table.drop_metadata_table() makes the table writable again"
            ) from error
        if not config.version.is_writable:
            raise Unsupported(
                f"cannot write the metadata table at {child.uri}: it has table version {int(config.version)}, PyHudi writes "
                f"versions {written_versions()}"
            )
        return cls(table, TableContext(child, table.env, replace(config, zone=table.config.zone), table.lock))

    @property
    def storage(self) -> Storage:
        """The metadata table's own folder."""
        return self.context.storage

    def load(self) -> Timeline:
        """Load its current timeline."""
        return self.context.timeline.load()

    @cached_property
    def groups(self) -> _Groups:
        """File groups by partition, listed lazily."""
        return _Groups(self.storage)

    def next_time(self, *timelines: Timeline) -> str:
        """Return a time after all times of these timelines. The caller holds the lock."""
        latest = max((timeline.latest_time() for timeline in timelines), default="")
        return next_instant_time(self.table.env, self.table.config.zone, latest)

    def roll_back(self, request_time: str) -> tuple[str, ...]:
        """Roll back the delta commit of an instant in any state, and return the paths of the deleted files.

        Does nothing if it does not exist. Side files of the instant stay: they belong to the table's own write.
        """
        store = self.context.timeline
        delta_commit_files = [i for i in store.load_files() if i.step == (request_time, Action.DELTACOMMIT)]
        if not delta_commit_files:
            return ()
        deleted = self.files_of_instant(request_time)
        if request_time.startswith(INIT_INSTANT_TIME):
            # A partition that is being built needs its file groups: writers append to them until an indexer builds it.
            building = self.table.config.metadata_partitions_inflight
            deleted = tuple(path for path in deleted if parent_folder(path) not in building)
        self.storage.delete(deleted)
        self.storage.delete([store.path(i) for i in sorted(delta_commit_files, key=lambda i: -i.state)])
        return deleted

    def files_of_instant(self, request_time: str) -> tuple[str, ...]:
        """Return the data files of an instant (by their names) in all partitions."""
        folders = [folder for folder in self.storage.list("").folders if not folder.startswith(".")]
        listings = in_threads(self.storage.list, folders)
        return tuple(
            info.path for listing in listings for info in listing.files if parse_data_file_instant(info.name) == request_time
        )

    def sizes(self, partition: str) -> dict[str, int]:
        """Return the sizes in bytes of the files of a partition, by bare name."""
        return {info.name: info.size_bytes for info in self.storage.list(partition).files}

    def roll_back_pending(self) -> None:
        """Roll back failed delta commits; the caller holds the lock.

        A pending delta commit belongs to the instant of the table with its time. While that is pending, its writer may be
        running (Hudi 1.1 keeps the delta commit open during the write), and the rollback of one includes the other.
        """
        failed = self._failed(self.load())
        for request_time in failed:
            self.roll_back(request_time)

    def _failed(self, timeline: Timeline) -> tuple[str, ...]:
        """Return the pending delta commits without a pending instant of the table."""
        pending = tuple(i.request_time for i in timeline.pending(Action.DELTACOMMIT))
        if not pending:
            return ()
        running = {i.request_time for i in self.table.timeline.load().pending()}
        return tuple(time for time in pending if time not in running)

    def begin(self, request_time: str) -> DeltaCommit:
        """Start a delta commit of an instant.

        Rolls back its earlier attempts and failed delta commits first (see `roll_back_pending`), so that neither is part of
        the state before it.
        """
        timeline = self.load()
        if self.earlier is not None and not unchanged_instants(self.earlier.timeline, timeline):
            # It is another metadata table than before, or none.
            return MetadataStore.open(self.table).begin(request_time)
        own = tuple(i.request_time for i in timeline.instants if i.step == (request_time, Action.DELTACOMMIT))
        for failed in dict.fromkeys((*own, *self._failed(timeline))):
            self.roll_back(failed)
            timeline = self.load()
            self.groups.invalidate()
        return DeltaCommit(self, request_time, timeline)

    def complete(
        self, instant: Instant, metadata: CommitMetadata, current_timeline: Timeline, own_latest: str | None = None
    ) -> Instant:
        """Publish a delta commit or compaction, and return the completed instant.

        Args:
            instant: The inflight instant.
            metadata: Its commit metadata.
            current_timeline: The table's timeline.
            own_latest: The latest time on the metadata table's timeline with the instant; loaded if None.
        """
        store = self.context.timeline
        action = Action.COMMIT if instant.action is Action.COMPACTION else instant.action
        latest = self.load().latest_time() if own_latest is None else own_latest
        time = next_instant_time(self.table.env, self.table.config.zone, max(latest, current_timeline.latest_time()))
        return store.complete(instant, action, time, metadata.encode(self.table.env.token_bytes(16)))

    def file(self, partition: str, group: IndexGroup, request_time: str) -> MetadataFile:
        """Return the location of an instant's file of a file group."""
        # The instant may have created a section of a partitioned index itself, with a first log whose token is all
        # zeros.
        token = WriteToken(group.number if group.section is None else group.number + 1, 0, 0)
        return MetadataFile(self.storage.spec(), partition, group.file_id, request_time, str(token))

    def found(self, partition: str, groups: Iterable[IndexGroup], request_time: str) -> None:
        """Create file groups by writing a first log file for each."""
        first = str(WriteToken(0, 0, 0))
        for group in groups:
            name = LogFileName(group.file_id, request_time, 1, first)
            self.storage.put(join_path(partition, name.text), encode_first_log(request_time))

    def existing_groups(self, partition: str, request_time: str) -> tuple[IndexGroup, ...]:
        """Return the file groups of a partition, which never change until it is dropped. Raises as `ensure_partition`.

        Groups that a commit of this process found before are known if the table's properties are the same. A
        partitioned index, to which commits add groups, is always listed.
        """
        config, known = self.table.operation_cache.get(_GROUPS_CACHE_KEY) or (None, _NO_GROUPS)
        if config is not self.table.config:
            known = _NO_GROUPS
        if self.earlier is not None and partition in known:
            return known[partition]
        self.ensure_partition(partition, request_time)
        groups = self.groups.of(partition)
        if all(group.section is None for group in groups):
            self.table.operation_cache.put(_GROUPS_CACHE_KEY, (self.table.config, {**known, partition: groups}))
        return groups

    def ensure_partition(self, partition: str, request_time: str, *, is_empty: bool | None = None) -> None:
        """Check that a partition has file groups, and write its marker file if missing.

        Args:
            partition: Name of the partition.
            request_time: Instant for the marker file.
            is_empty: The partition has no file groups; None to use the listing.

        Raises:
            TableState: The partition has no file groups.
        """
        if not self.groups.of(partition) if is_empty is None else is_empty:
            raise TableState(
                f"partition {partition} of the metadata table of {self.table.storage.uri} has no file groups: an indexer is "
                "building it, or it is damaged; try again later, or rebuild it with Table.index.rebuild()"
            )
        if not self.groups.has_marker(partition):
            store_partition_marker(self.storage, partition, request_time, self.table.env.now_ms())


@dataclass(frozen=True, slots=True)
class DeltaCommit:
    """A delta commit to write. timeline: that of the metadata table, without it."""

    store: MetadataStore
    request_time: str
    timeline: Timeline

    def write(
        self,
        engine: Engine | None,
        current_timeline: Timeline,
        records: Mapping[str, MetadataRecords],
        keys: Sequence[SpilledKeys] = (),
        since: str | None = None,
    ) -> Timeline:
        """Write and complete the delta commit; return the metadata table's timeline with it.

        Args:
            engine: Runs tasks; None for threads of this process.
            current_timeline: The table's timeline.
            records: Records by partition.
            keys: Updates of indexes with spilled keys.
            since: Sole-writer time to store, see `sole_writer`.
        """
        store, time = self.store, self.request_time
        timeline = store.context.timeline
        requested = timeline.request(time, Action.DELTACOMMIT)
        timeline.start(requested)
        statistics: list[WriteStat] = []
        tasks: list[LogTask] = []
        for partition, partition_records in records.items():
            groups = store.existing_groups(partition, time)
            for shard, piece in by_shard(partition_records, len(groups)).items():
                tasks.append(LogTask(store.file(partition, groups[shard], time), piece))
        statistics.extend(in_threads(run_metadata_log, tasks))
        spec = store.table.storage.spec()
        key_tasks = []
        for spilled in keys:
            if spilled.sources:
                groups = self._with_sections(spilled, current_timeline)
                store.ensure_partition(spilled.partition, time, is_empty=not groups)
                shares = ((group, *spilled.share(group)) for group in groups)
                key_tasks += [
                    KeyTask(store.file(spilled.partition, group, time), spec, share, sources, spilled.load)
                    for group, share, sources in shares
                    if sources
                ]
        if key_tasks:
            written = engine.map(run_key_log, key_tasks) if engine is not None else in_threads(run_key_log, key_tasks)
            statistics.extend(stat for stat in written if stat is not None)
        metadata = build_commit_metadata(statistics, "UPSERT_PREPPED", since=since)
        completed = store.complete(requested, metadata, current_timeline, max(self.timeline.latest_time(), time))
        after = Timeline.of((*self.timeline.instants, completed), self.timeline.archived_completions)
        logs = {
            stat.partition_path or "": LogFile(stat.path or "", name, stat.file_size_in_bytes)
            for stat in statistics
            if (name := parse_log_file(file_name(stat.path or ""))) is not None
        }
        changed = records.get(FILES)
        files = None if changed is None else Cells(changed.keys.view(pa.binary()), changed.values, changed.schema)
        advance_listing(store.table, self.timeline, after, files, logs)
        return after

    def _with_sections(self, spilled_keys: SpilledKeys, current_timeline: Timeline) -> tuple[IndexGroup, ...]:
        """The file groups of an index, including new sections that this instant is the first to write to.

        A section created only by instants that may still be rolled back is created by this one too, with the same
        number of groups, so that it survives their rollback.
        """
        store, partition = self.store, spilled_keys.partition
        groups = store.groups.of(partition)
        if not spilled_keys.sections:
            return groups
        counts = BlockValidity(current_timeline, self.timeline, partial(load_rolled_back, store.table, current_timeline)).counts
        permanent = {group.file_id for group in groups if any(map(counts, store.groups.instants(partition, group.file_id)))}
        group_counts = {group.section: group.count for group in groups}
        revocable = {group.section for group in groups if group.file_id not in permanent}
        created: list[IndexGroup] = []
        for path, count in spilled_keys.sections:
            section = format_section(path)
            if not _NEVER_IN_NAMES.isdisjoint(section):
                raise Unsupported(
                    f"cannot write partition {path!r} of {store.table.storage.uri} with a partitioned record index, whose file "
                    "names cannot hold it (Hudi 1.1.1 fails there too); drop the index: "
                    f"Table.index.drop({partition!r})"
                )
            if section not in group_counts or section in revocable:
                created += index_groups(partition, group_counts.get(section, count), section)
        store.found(partition, created, self.request_time)
        return grouped({*(group.file_id for group in groups), *(group.file_id for group in created)})


@dataclass(frozen=True, slots=True)
class SpilledKeys:
    """Updates of an instant in a key index, spilled to side files.

    Attributes:
        partition: Partition of the metadata table.
        sources: The side files.
        load: Converts them to records.
        sections: For a partitioned index, the table partitions that receive keys, each with the number of file groups
            to create if it has none.
    """

    partition: str
    sources: tuple[KeySource, ...]
    load: KeyRecords
    sections: tuple[tuple[str, int], ...] = ()

    def share(self, group: IndexGroup) -> tuple[KeyShard, tuple[KeySource, ...]]:
        """Return the share of a file group in the side files, and the side files that may contain its keys."""
        if group.section is None:
            return KeyShard(group.number), self.sources
        section_sources = tuple(source for source in self.sources if format_section(source.partition) == group.section)
        return KeyShard(group.number, group.count), section_sources


def build_commit_metadata(
    statistics: Iterable[WriteStat], operation: str, *, compacted: bool = False, since: str | None = None
) -> CommitMetadata:
    """Build the commit metadata of a commit of the metadata table. `since` is the sole-writer time to store."""
    by_partition: dict[str, list[WriteStat]] = {}
    for stat in statistics:
        by_partition.setdefault(stat.partition_path or "", []).append(stat)
    return CommitMetadata(
        partition_to_write_stats={p: tuple(sorted(s, key=lambda stat: stat.path or "")) for p, s in sorted(by_partition.items())},
        compacted=compacted,
        extra_metadata={SCHEMA_KEY: COMMIT_SCHEMA, **({} if since is None else {SINCE_KEY: since})},
        operation_type=operation,
    )


def create_store(table: TableContext) -> MetadataStore:
    """Create an empty metadata table, replacing any existing one. The table's properties do not list it yet."""
    table.storage.delete_folder(METADATA_FOLDER)
    child = table.storage.child(METADATA_FOLDER)
    version = table.config.version
    values = {
        props.NAME.stored_as: f"{table.config.name}_metadata",
        props.TABLE_TYPE.stored_as: "MERGE_ON_READ",
        props.VERSION.stored_as: str(int(version)),
        props.INITIAL_VERSION.stored_as: str(int(version)),
        props.LAYOUT.stored_as: str(int(version.layout)),
        **props.FOLDERS,
        props.BASE_FORMAT.stored_as: "HFILE",
        props.RECORD_KEY_FIELDS.stored_as: "key",
        props.META_COLUMNS.stored_as: "false",
        props.GENERATOR_TYPE.stored_as: "HOODIE_TABLE_METADATA",
        props.PAYLOAD.stored_as: "org.apache.hudi.metadata.HoodieMetadataPayload",
        props.MERGE_MODE.stored_as: "CUSTOM",
        props.STRATEGY_ID.stored_as: "00000000-0000-0000-0000-000000000000",
        props.OMIT.stored_as: "false",
    }
    create_table_files(child, values, table.env)
    return MetadataStore.open(table)


def drop_store(table: TableContext) -> TableContext:
    """Drop the metadata table, and return the table with its new properties. The caller holds the lock."""
    config = store_table_config(table.storage, {PARTITIONS_KEY: "", INFLIGHT_KEY: ""}, table.env)
    table.storage.delete_folder(METADATA_FOLDER)
    return replace(table, config=config)


def drop_partitions(table: TableContext, partitions: Iterable[str]) -> TableContext:
    """Drop partitions of the metadata table; all of it if `files` is among them. The caller holds the lock."""
    dropped = set(partitions)
    if "files" in dropped:
        return drop_store(table)
    config = load_table_config(table.storage)
    table = set_partitions(
        replace(table, config=config),
        [p for p in config.metadata_partitions if p not in dropped],
        [p for p in config.metadata_partitions_inflight if p not in dropped],
    )
    for partition in sorted(dropped):
        table.storage.delete_folder(join_path(METADATA_FOLDER, partition))
    return table


def set_partitions(table: TableContext, partitions: Iterable[str], inflight: Iterable[str] | None = None) -> TableContext:
    """Store the partitions in the table's properties. The caller holds the lock."""
    building = table.config.metadata_partitions_inflight if inflight is None else inflight
    changes = {PARTITIONS_KEY: ",".join(sorted(set(partitions))), INFLIGHT_KEY: ",".join(sorted(set(building)))}
    return replace(table, config=store_table_config(table.storage, changes, table.env))


def store_partition_marker(storage: Storage, partition: str, request_time: str, now_ms: int) -> None:
    """Write the file that marks a folder as a partition: Hudi's compaction and clean skip folders without it."""
    document = PartitionMetadata(request_time, 1).encode(now_ms)
    storage.put_if_absent(join_path(partition, PARTITION_METADATA_FILE), document)


class _Groups:
    """The file groups of each partition, listed once."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._known: dict[str, _ListedGroups] = {}

    def of(self, partition: str) -> tuple[IndexGroup, ...]:
        """By section and number."""
        return self._listed(partition).groups

    def count(self, partition: str) -> int:
        return len(self.of(partition))

    def instants(self, partition: str, file_id: str) -> frozenset[str]:
        """Instants in the file names of a file group."""
        return frozenset(
            instant
            for info in self._listed(partition).files
            if _file_id_of(info) == file_id and (instant := parse_data_file_instant(info.name)) is not None
        )

    def invalidate(self) -> None:
        """Discard cached listings."""
        self._known.clear()

    def files(self, partition: str) -> tuple[FileInfo, ...]:
        """All files of a partition."""
        return self._listed(partition).files

    def has_marker(self, partition: str) -> bool:
        return any(info.name == PARTITION_METADATA_FILE for info in self._listed(partition).files)

    def _listed(self, partition: str) -> _ListedGroups:
        listed = self._known.get(partition)
        if listed is None:
            files = self._storage.list(partition).files
            try:
                groups = grouped({file_id for info in files if (file_id := _file_id_of(info)) is not None})
            except CorruptData as error:
                raise error.with_path(self._storage.absolute(partition)) from error
            listed = self._known[partition] = _ListedGroups(tuple(files), groups)
        return listed


class _ListedGroups(NamedTuple):
    """The files of a partition of the metadata table, and their file groups."""

    files: tuple[FileInfo, ...]
    groups: tuple[IndexGroup, ...]


def _file_id_of(info: FileInfo) -> str | None:
    log = parse_log_file(info.name)
    if log is not None:
        return log.file_id
    base = parse_base_file(info.name)
    return base.file_id if base is not None else None
