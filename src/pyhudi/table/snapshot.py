"""Table snapshot: settings, timeline, schema and file slices, loaded together and immutable.

Files are listed on demand.  A clean between loading the timeline and listing the files is detected
and raised as `SnapshotOutdated`, so no operation plans on an inconsistent snapshot.

Source: docs/formats/reading.md, "File groups and slices" and "Schema".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import wraps
from itertools import islice
from typing import Any, ParamSpec, TypeVar

import pyarrow as pa

from pyhudi.errors import CorruptData, SnapshotOutdated, TableState
from pyhudi.format.actions.archived_instants import COMMIT_LIKE, decode_completed
from pyhudi.format.actions.commit_metadata import SCHEMA_KEY, CommitMetadata, decode_lost_files
from pyhudi.format.actions.rollback_metadata import RollbackPlan
from pyhudi.format.arrow_to_avro import arrow_to_avro
from pyhudi.format.avro.nodes import NO_DEFAULT, Record
from pyhudi.format.avro.schema import parse_schema
from pyhudi.format.avro_to_arrow import avro_to_arrow, check_supported, without_meta_columns
from pyhudi.format.instants import Action, Instant, State
from pyhudi.format.meta_columns import with_meta_fields, without_meta_fields
from pyhudi.format.names import check_read, parse_data_file_instant
from pyhudi.format.paths import SCHEMA_FOLDER, file_name
from pyhudi.metadata_table.reader.metadata_listing import MetadataListing, choose_listing
from pyhudi.records.keys.key_spec import path_valued_columns
from pyhudi.records.schema_on_read.column_ids import ColumnIds
from pyhudi.storage.base import FileInfo
from pyhudi.table.bootstrap_sources import with_sources
from pyhudi.table.external_files import find_external_file, list_external_files
from pyhudi.table.feature_support import check_commit_open, check_open
from pyhudi.table.file_slices import (
    FileGroup,
    FileSlice,
    SlicingState,
    build_file_groups,
    visible_slices,
    visible_slices_from_rows,
)
from pyhudi.table.listing import DirectoryListing, FileListing
from pyhudi.table.pending_plans import load_clustering_plan, load_pending_compactions
from pyhudi.table.schema_on_read_history import ColumnHistory, CommitReader, load_column_history
from pyhudi.table.snapshot_staleness import find_stale_reason
from pyhudi.table.table_config import TableConfig
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.table.timeline.archived_timeline import Bounds
from pyhudi.table.timeline.double_writes import copies_among
from pyhudi.table.timeline.timeline_store import TimelineStore

P = ParamSpec("P")
R = TypeVar("R")

EMPTY_COMMIT = "the file of a completed commit has 0 bytes, so what it changed is unknown"

_RELOADS = 4
_COMMIT_WORDS = frozenset(action.value for action in COMMIT_LIKE)


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The columns of a table without meta columns, as Arrow and as the Avro JSON that commits store."""

    arrow: pa.Schema
    avro: str

    @property
    def defaults(self) -> tuple[tuple[str, Any], ...]:
        """Columns with their non-null defaults in the Avro schema."""
        root = parse_schema(self.avro).root
        assert isinstance(root, Record), "a table's schema is a record"
        return tuple((f.name, f.default) for f in root.fields if f.default is not NO_DEFAULT and f.default is not None)

    def stored_avro(self, table_name: str) -> str:
        """The Avro JSON of files: meta columns, then these, each as the table declares it.

        Raises:
            Unsupported: Values of a column cannot be encoded.
        """
        check_supported(self.arrow, f"the table {table_name} cannot be written")
        return arrow_to_avro(with_meta_fields(self.arrow), table_name, self.avro)

    @classmethod
    def from_avro(cls, text: str) -> TableSchema:
        """Parse the text that a commit stores, which may include the meta columns."""
        arrow = avro_to_arrow(text)
        data = without_meta_fields(arrow)
        return cls(arrow, text) if data is arrow else cls(data, without_meta_columns(text))

    @classmethod
    def stored(cls, text: str, config: TableConfig) -> TableSchema:
        """The columns that files hold, from the text in a commit or in the table's creation schema: both may include or
        lack the columns that writers omit.
        """
        schema, omitted = cls.from_avro(text), frozenset(config.omitted_columns)
        if not omitted.intersection(schema.arrow.names):
            return schema
        columns = pa.schema([field for field in schema.arrow if field.name not in omitted])
        return cls(columns, arrow_to_avro(columns, config.name, text))

    @classmethod
    def from_arrow(cls, schema: pa.Schema, table_name: str) -> TableSchema:
        """Create the schema of a table with that name."""
        return cls(schema, arrow_to_avro(schema, table_name))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A consistent state of a table.

    Attributes:
        schema: The columns that its files hold; None for a table without commits that was created without a schema.
        history: Schema history; None if columns are resolved by name.
        ids: Column ids of `schema`, by which files are read.
        commits: Commit metadata already read to find the schema; immutable once an instant completed.
    """

    context: TableContext
    timeline: Timeline
    schema: TableSchema | None
    history: ColumnHistory | None
    ids: ColumnIds | None
    slicing: SlicingState
    listing: FileListing
    pending_clusterings: frozenset[tuple[str, str]]
    commits: Mapping[Instant, CommitMetadata] = field(default_factory=dict, repr=False, compare=False)

    @property
    def defaults(self) -> tuple[tuple[str, Any], ...]:
        """Defaults of the columns, see `TableSchema`."""
        return () if self.schema is None else self.schema.defaults

    @property
    def copies(self) -> frozenset[str]:
        """Log files that completed writes duplicated for pending resizes: invisible to readers until those complete."""
        if not self.config.version.has_one_log_file_per_commit:
            return frozenset()
        return load_pending_double_writes(self.context.timeline, self.timeline)

    @property
    def config(self) -> TableConfig:
        """The table's settings."""
        return self.context.config

    @property
    def path_fields(self) -> pa.Schema:
        """The partition columns that files omit and that are read from paths, in order after the columns of files; see
        `load_path_fields`.
        """
        return load_path_fields(self.config, self.schema)

    def with_columns_as_of(self, time: str) -> Snapshot:
        """The same rows in the columns that were valid at a request time, for tables with column ids.

        The output of a service has the time of its plan, and is read by the columns of that time.
        """
        if self.ids is None:
            return self
        schema = load_schema_as_of(self.context.timeline, self.timeline, self.config, time, by_ids=True)
        return replace(self, schema=schema, ids=self.ids.at_time(time))

    def columns_under_current_names(self, path: str, columns: Sequence[str]) -> tuple[str, ...]:
        """Columns (dotted names) that a base file stores under their current names, or lacks: its footer describes them."""
        instant_time = parse_data_file_instant(file_name(path))
        if self.ids is None or instant_time is None:
            return tuple(columns)
        elsewhere = self.ids.relocated(instant_time, {name.split(".")[0] for name in columns})
        return tuple(name for name in columns if name.split(".")[0] not in elsewhere)

    def groups(self, partitions: Iterable[str]) -> dict[str, tuple[FileGroup, ...]]:
        """Return all file groups of the partitions. Raises SnapshotOutdated when files of the snapshot may have been deleted."""
        grouped = self._grouped(self.listing.files(partitions))
        self.check_not_stale()
        return grouped

    def slices(
        self,
        partitions: Collection[str] | None = None,
        as_of: str | None = None,
        file_ids: Mapping[str, Collection[str]] | None = None,
        *,
        after_lookup: bool = False,
    ) -> dict[str, tuple[FileSlice, ...]]:
        """Return the slices that a snapshot query reads, by partition; of all partitions when None.

        as_of: A request time. file_ids: partition -> the only file groups to list, instead of `partitions`. after_lookup: Keys
        were looked up since the files were listed, which takes time.

        Raises:
            SnapshotOutdated: Files of the snapshot may have been deleted.
        """
        slices = self._slices(partitions, as_of, file_ids)
        # A listing of exactly this state is complete, even if files were deleted later.
        is_complete = isinstance(self.listing, MetadataListing) and self.listing.is_state_of(self.timeline)
        if after_lookup or not is_complete:
            self.check_not_stale(as_of)
        return slices if self.config.bootstrap_base_path is None else self._with_sources(slices)

    def check_not_stale(self, as_of: str | None = None) -> None:
        """Raise SnapshotOutdated if files of the snapshot, or of its state as of a request time, may have been deleted.

        Call it after every listing of files.  A table without commits has nothing to lose.
        """
        if self.timeline.last_visible is None:
            return
        loss = find_stale_reason(self.context.timeline, self.timeline, as_of)
        if loss is not None:
            raise SnapshotOutdated(
                f"the snapshot of {self.context.storage.uri} is stale: {loss.reason}; load it again",
                instants=loss.instants,
            )

    def check_files_are_listed(self, as_of: str | None = None) -> None:
        """Check a snapshot whose listing has no slices at a request time; None for the latest state.

        Raises:
            TableState: Completed writes of the active timeline name files of that state whose loss was not accepted.
            Unsupported: They name files that are not read.
        """
        if any(self._slices(None, as_of, None).values()):
            return
        accepted, accepted_groups = set[str](), set[tuple[str, str]]()
        for instant in reversed(self.timeline.completed_writes()):
            time = instant.request_time
            if as_of is not None and time > as_of:
                continue
            metadata = self.commits.get(instant) or read_commit(self.context.timeline, instant)
            accepted |= decode_lost_files(metadata).keys()
            for stat in metadata.write_stats:
                group = (stat.partition_path or "", stat.file_id or "")
                if stat.path in accepted:
                    accepted_groups.add(group)
                replaced = self.slicing.replaced.get(group)
                if group in accepted_groups:
                    # The file took the place of the older ones.
                    continue
                if stat.path and stat.num_writes and (replaced is None or (as_of is not None and replaced > as_of)):
                    check_read(file_name(stat.path))
                    raise TableState(
                        f"{self.context.storage.uri} has no data files, but {time} wrote {stat.path}: restore the files from "
                        "a copy; `Table.validate()` lists what is missing"
                    )

    def _with_sources(self, by_partition: Mapping[str, tuple[FileSlice, ...]]) -> dict[str, tuple[FileSlice, ...]]:
        """Join slices with their bootstrap source files."""
        every = iter(with_sources(self.context, [slice_ for slices in by_partition.values() for slice_ in slices]))
        return {partition: tuple(islice(every, len(slices))) for partition, slices in by_partition.items()}

    def _slices(
        self, partitions: Collection[str] | None, as_of: str | None, file_ids: Mapping[str, Collection[str]] | None
    ) -> dict[str, tuple[FileSlice, ...]]:
        if isinstance(self.listing, MetadataListing):
            wanted = self.listing.partitions() if partitions is None else partitions
            rows = self.listing.rows(wanted if file_ids is None else list(file_ids), file_ids)
            if rows is not None:
                there = visible_slices_from_rows(rows, self.slicing, as_of)
                return {partition: there.get(partition, ()) for partition in (wanted if file_ids is None else file_ids)}
        if file_ids is not None:
            grouped = self._grouped(self.listing.group_files(file_ids))
        else:
            grouped = self._grouped(self.listing.files(self.listing.partitions() if partitions is None else partitions))
        return {partition: visible_slices(groups, self.slicing, as_of) for partition, groups in grouped.items()}

    def _grouped(self, files: Mapping[str, tuple[FileInfo, ...]]) -> dict[str, tuple[FileGroup, ...]]:
        return {partition: build_file_groups(partition, infos, self.slicing) for partition, infos in files.items()}


ListingFactory = Callable[[TableContext, Timeline], FileListing]


def directory_listing(context: TableContext, timeline: Timeline) -> FileListing:
    """Return the listing that lists directories of the storage."""
    return DirectoryListing(context.storage)


def load_snapshot(
    context: TableContext,
    listing: ListingFactory = choose_listing,
    as_of: str | None = None,
    timeline: Timeline | None = None,
    *,
    external_files: bool = False,
) -> Snapshot:
    """Load the current snapshot of a table; as_of restricts the schema to commits requested at or before that time.

    listing: By default the metadata table's if the table has one, else that of its directories. timeline: A previously
    loaded timeline, to load the snapshot that it describes. external_files: The caller reads base files of other table
    formats too, if directories are listed.

    Raises:
        Unsupported: PyHudi cannot read the table (`table.feature_support`).
        SnapshotOutdated: Instants of `timeline` were rolled back or dropped since; without `timeline`, when that
            happens repeatedly.
    """
    if timeline is not None:
        return _load_snapshot(context, listing, as_of, timeline, external_files=external_files)
    return retry_on_stale_files(
        lambda: _load_snapshot(context, listing, as_of, context.timeline.load(), external_files=external_files)
    )()


def _load_snapshot(
    context: TableContext, listing: ListingFactory, as_of: str | None, timeline: Timeline, *, external_files: bool
) -> Snapshot:
    store = context.timeline
    check_open(context)
    commits: dict[Instant, CommitMetadata] = {}

    def read(store: TimelineStore, instant: Instant) -> CommitMetadata:
        if instant not in commits:
            commits[instant] = read_commit(store, instant)
        return commits[instant]

    history = load_column_history(context, timeline, read)
    ids = None if history is None else history.ids
    by_ids = ids is not None
    if as_of is None:
        schema = load_schema(store, timeline, context.config, by_ids=by_ids, read=read)
    else:
        schema = load_schema_as_of(store, timeline, context.config, as_of, by_ids=by_ids)
    named = [find_external_file(metadata) for metadata in commits.values()]
    replaced = load_replaced_groups(store, timeline, lambda metadata: named.append(find_external_file(metadata)))
    external = next(filter(None, named), None)
    files = listing(context, timeline)
    if external is not None:
        if not (external_files and isinstance(files, DirectoryListing)):
            check_read(external)
        files = _external_listing(context, timeline)
    if ids is not None and schema is not None:
        ids = ids if as_of is None else ids.at_time(as_of)
        without = sorted(set(schema.arrow.names) - {column.name for column in ids.requested.columns})
        if without and as_of is None:
            raise CorruptData("the history of columns lacks columns of the table", found=", ".join(without)).with_path(
                context.storage.absolute(SCHEMA_FOLDER)
            )
    return Snapshot(
        context=context,
        timeline=timeline,
        schema=schema,
        history=history,
        ids=ids,
        slicing=SlicingState(
            timeline,
            replaced,
            load_pending_compactions(store, timeline),
            context.config.version.has_one_log_file_per_commit,
            external is not None,
        ),
        listing=files,
        pending_clusterings=load_pending_clusterings(store, timeline),
        commits=commits,
    )


def retry_on_stale_files(function: Callable[P, R]) -> Callable[P, R]:
    """Call a function again, a few times, when its snapshot became stale before it had read all of it.

    The function loads the snapshot itself, and either changes nothing or only what is idempotent. A table context
    passed by position is replaced by one with current properties for each retry.
    """

    @wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        for _ in range(_RELOADS):
            with suppress(SnapshotOutdated):
                return function(*args, **kwargs)
            # They name the metadata table, which may have been dropped.
            args = tuple(arg.reloaded() if isinstance(arg, TableContext) else arg for arg in args)  # type: ignore[assignment]
        return function(*args, **kwargs)

    return wrapped


def read_commit(store: TimelineStore, instant: Instant, *, needs_content: bool = False) -> CommitMetadata:
    """Read the metadata of a completed commit-like instant.

    Args:
        store: The timeline.
        instant: The instant.
        needs_content: Raise for a file of 0 bytes, which a power failure can leave: it does not list what it changed.

    Raises:
        CorruptData: The file is damaged; the error names it.
    """
    with store.errors_with_path(instant):
        data = store.read(instant)
        if needs_content and not data:
            raise CorruptData(EMPTY_COMMIT)
        return CommitMetadata.decode(data)


def double_written_logs(store: TimelineStore, timeline: Timeline, instant: Instant) -> frozenset[str]:
    """Return the log files that a completed write duplicated for a resize, whose names hold the resize's time.

    For tables with one commit per log file. Files of pending writes are not included.
    """
    if not instant.is_completed or not instant.action.is_write:
        return frozenset()
    return frozenset(copies_among(timeline, read_commit(store, instant), instant.request_time))


def load_pending_double_writes(store: TimelineStore, timeline: Timeline) -> frozenset[str]:
    """Return the log files that completed writes duplicated for pending resizes."""
    resizes = [instant.request_time for instant in timeline.pending(Action.CLUSTERING)]
    later = (i for i in timeline.completed_writes() if resizes and i.request_time > min(resizes))
    return frozenset(path for instant in later for path in double_written_logs(store, timeline, instant))


def load_schema(
    store: TimelineStore, timeline: Timeline, config: TableConfig, *, by_ids: bool = False, read: CommitReader | None = None
) -> TableSchema | None:
    """Load the table's schema: that of the newest write that stores one, else the one given at creation, else None.

    The archived timeline is read if the timeline holds only services.

    by_ids: The caller resolves columns by id; otherwise Unsupported is raised for a table with column ids. read: Reads
    the metadata of a completed write, for a caller that caches it.
    """
    read = read or read_commit
    commits = (read(store, instant) for instant in reversed(timeline.completed_writes()))
    text = newest_schema(commits, by_ids=by_ids)
    text = text or newest_schema(_archived_commits(store, None), by_ids=by_ids) or config.create_schema or ""
    return TableSchema.stored(text, config) if text else None


def load_path_fields(config: TableConfig, schema: TableSchema | None) -> pa.Schema:
    """Return the partition columns that files omit, as readers see them.

    A path holds text, so the column is text; it has the type declared at table creation if there is one and the path
    holds the value itself.  Source: docs/formats/reading.md, "Partitions and path filters".
    """
    declared = declared_path_fields(config)
    held = frozenset(() if schema is None else schema.arrow.names)
    return pa.schema(
        [
            declared.field(name) if name in declared.names else pa.field(name, pa.string())
            for name in config.path_columns
            if name not in held
        ]
    )


def declared_path_fields(config: TableConfig) -> pa.Schema:
    """Return the partition columns that files omit and whose type the table declares; the paths hold their values."""
    if not config.path_columns or not config.create_schema:
        return pa.schema([])
    declared, plain = TableSchema.from_avro(config.create_schema).arrow, path_valued_columns(config.keys)
    names = [name for name in config.path_columns if name in plain and name in declared.names]
    return pa.schema([declared.field(name).with_nullable(True) for name in names])


def load_schema_as_of(
    store: TimelineStore, timeline: Timeline, config: TableConfig, time: str, *, by_ids: bool = False
) -> TableSchema | None:
    """Load the schema of the newest write requested at or before a time, active or archived; before all of them, the current one.

    by_ids: as in `load_schema`.
    """
    commits = (read_commit(store, instant) for instant in reversed(timeline.up_to(time).completed_writes()))
    active = newest_schema(commits, by_ids=by_ids)
    if active:
        return TableSchema.stored(active, config)
    archived = newest_schema(_archived_commits(store, time), by_ids=by_ids)
    return TableSchema.stored(archived, config) if archived else load_schema(store, timeline, config, by_ids=by_ids)


def _external_listing(context: TableContext, timeline: Timeline) -> FileListing:
    store = context.timeline
    writes = timeline.completed_writes()
    # An instant that is being archived is in both.
    times = {instant.request_time for instant in writes}
    archived = load_archived_commits(store, Bounds())
    older = ((instant.request_time, metadata) for instant, metadata in archived if instant.request_time not in times)
    active = ((instant.request_time, read_commit(store, instant)) for instant in writes)
    return list_external_files(context.storage.uri, older, active)


def check_no_external_files(context: TableContext) -> None:
    """Raise Unsupported if commits of the active timeline name files of another table format, before a change."""
    store = context.timeline
    for instant in store.load().completed_writes():
        check_read(find_external_file(read_commit(store, instant)) or "")


def load_replaced_groups(
    store: TimelineStore, timeline: Timeline, on_commit: Callable[[CommitMetadata], None] = lambda metadata: None
) -> dict[tuple[str, str], str]:
    """Map (partition, file id) of each replaced file group to the request time of the newest replace commit that replaces it.

    on_commit: Called with the metadata of each replace commit.
    """
    replaced: dict[tuple[str, str], str] = {}
    for instant in timeline.completed(Action.REPLACECOMMIT):
        metadata = read_commit(store, instant, needs_content=True)
        on_commit(metadata)
        for partition, file_ids in (metadata.partition_to_replace_file_ids or {}).items():
            for file_id in file_ids:
                replaced[partition, file_id] = instant.request_time
    return replaced


def load_rollback_targets(store: TimelineStore, timeline: Timeline) -> dict[str, Instant]:
    """Map the request time of each write that a pending rollback will remove to that rollback.

    Unreadable plans are skipped: the service that completes rollbacks reports them.
    """
    targets: dict[str, Instant] = {}
    for instant in timeline.pending(Action.ROLLBACK):
        try:
            plan = RollbackPlan.decode(store.read_state(instant.request_time, Action.ROLLBACK, State.REQUESTED) or b"")
        except CorruptData:
            continue
        if plan.instant_to_rollback is not None:
            targets[plan.instant_to_rollback.commit_time] = instant
    return targets


def load_pending_clusterings(store: TimelineStore, timeline: Timeline) -> frozenset[tuple[str, str]]:
    """Return (partition, file id) of each file group that a pending clustering will replace."""
    groups: set[tuple[str, str]] = set()
    for instant in timeline.pending(Action.CLUSTERING, Action.REPLACECOMMIT):
        plan = load_clustering_plan(store, instant)
        for group in (plan.input_groups or ()) if plan else ():
            groups.update((piece.partition_path or "", piece.file_id or "") for piece in group.slices or ())
    return frozenset(groups)


def is_pending_clustering(store: TimelineStore, instant: Instant) -> bool:
    """Whether a pending instant is a clustering: by its action, or before table version 8 by its plan."""
    if instant.action is Action.CLUSTERING:
        return True
    return instant.action is Action.REPLACECOMMIT and load_clustering_plan(store, instant) is not None


def newest_schema(commits: Iterable[CommitMetadata], *, by_ids: bool = False) -> str:
    """Return the first schema that a write among the commits stores, '' when none does.  by_ids: as in `load_schema`."""
    for metadata in commits:
        if not by_ids:
            check_commit_open(metadata)
        text = metadata.extra_metadata.get(SCHEMA_KEY, "")
        if text and metadata.operation.sets_schema:
            return text
    return ""


def _archived_commits(store: TimelineStore, until: str | None) -> Iterator[CommitMetadata]:
    """The metadata of archived writes, optionally those requested at or before a time, newest first."""
    for instant in reversed(store.history.instants(Bounds(None, until))):
        if instant.action not in COMMIT_LIKE:
            continue
        row = store.history.find(instant.request_time, instant.action)
        metadata = decode_completed(instant.action, row.metadata or b"") if row else None
        if isinstance(metadata, CommitMetadata):
            yield metadata


def load_archived_commits(store: TimelineStore, completed: Bounds) -> tuple[tuple[Instant, CommitMetadata], ...]:
    """Load the archived writes whose completion times are within the bounds, each with its metadata, by request time."""
    commits = []
    for row in store.history.all_rows(completed=completed, documents=True):
        if row.action not in _COMMIT_WORDS:
            continue
        action = Action(row.action)
        metadata = decode_completed(action, row.metadata or b"")
        if isinstance(metadata, CommitMetadata):
            commits.append((Instant(row.instant_time, action, State.COMPLETED, row.completion_time), metadata))
    return tuple(sorted(commits, key=lambda pair: pair[0].sort_key))
