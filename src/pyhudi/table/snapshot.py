"""The state of a table at one moment: settings, timeline, schema and file slices, loaded together and not changed afterwards.

Source: storage format, "File slices" and "Table schema"; reading and merging, sections 1 and 7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa

from pyhudi.errors import CorruptData
from pyhudi.format.actions.commit import CommitMetadata
from pyhudi.format.actions.compaction import CompactionPlan
from pyhudi.format.actions.replace import RequestedReplaceMetadata
from pyhudi.format.actions.rollback import RollbackPlan
from pyhudi.format.instants import Action, Instant, State
from pyhudi.records.schema import arrow_to_avro, avro_to_arrow
from pyhudi.table.config import TableConfig
from pyhudi.table.context import TableContext
from pyhudi.table.listing import DirectoryListing, FileListing
from pyhudi.table.slices import FileGroup, FileSlice, SlicingState, build_file_groups, visible_slices
from pyhudi.timeline.store import TimelineStore
from pyhudi.timeline.timeline import Timeline

_NO_SCHEMA_OPERATIONS = frozenset({"CLUSTER", "COMPACT", "INDEX", "LOG_COMPACT"})


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The columns of a table without meta columns, as Arrow and as the Avro JSON that commits carry."""

    arrow: pa.Schema
    avro: str

    @classmethod
    def from_avro(cls, text: str) -> TableSchema:
        """From the text that a commit carries."""
        return cls(avro_to_arrow(text), text)

    @classmethod
    def from_arrow(cls, schema: pa.Schema, table_name: str) -> TableSchema:
        """For a table of that name."""
        return cls(schema, arrow_to_avro(schema, table_name))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A table at one moment.  schema: None for a table without commits that was created without a schema."""

    context: TableContext
    timeline: Timeline
    schema: TableSchema | None
    slicing: SlicingState
    listing: FileListing
    pending_clusterings: frozenset[tuple[str, str]]

    @property
    def config(self) -> TableConfig:
        """The table's settings."""
        return self.context.config

    def groups(self, partitions: Iterable[str]) -> dict[str, tuple[FileGroup, ...]]:
        """All file groups of the partitions."""
        files = self.listing.files(partitions)
        return {partition: build_file_groups(partition, infos, self.slicing) for partition, infos in files.items()}

    def slices(self, partitions: Iterable[str] | None = None, as_of: str | None = None) -> dict[str, tuple[FileSlice, ...]]:
        """The slices that a snapshot query sees, by partition; of all partitions when None.  as_of: a request time."""
        wanted = self.listing.partitions() if partitions is None else partitions
        return {partition: visible_slices(groups, self.slicing, as_of) for partition, groups in self.groups(wanted).items()}


ListingFactory = Callable[[TableContext, Timeline], FileListing]


def directory_listing(context: TableContext, timeline: Timeline) -> FileListing:
    """The listing that asks the storage."""
    return DirectoryListing(context.storage)


def load_snapshot(context: TableContext, listing: ListingFactory = directory_listing, as_of: str | None = None) -> Snapshot:
    """Load the state of a table now; as_of restricts the schema to commits requested at or before that time."""
    store = context.timeline
    timeline = store.load()
    return Snapshot(
        context=context,
        timeline=timeline,
        schema=load_schema(store, timeline if as_of is None else timeline.up_to(as_of), context.config),
        slicing=SlicingState(
            timeline,
            load_replaced_groups(store, timeline),
            load_pending_compactions(store, timeline),
            context.config.version.has_one_log_file_per_commit,
        ),
        listing=listing(context, timeline),
        pending_clusterings=load_pending_clusterings(store, timeline),
    )


def read_commit(store: TimelineStore, instant: Instant) -> CommitMetadata:
    """The metadata of a completed commit-like instant.  Raises CorruptData that names the file."""
    try:
        return CommitMetadata.decode(store.read(instant))
    except CorruptData as error:
        raise error.with_path(store.storage.absolute(store.path(instant))) from error


def load_schema(store: TimelineStore, timeline: Timeline, config: TableConfig) -> TableSchema | None:
    """The table's schema: that of the newest write that carries one, else the one given at creation, else None."""
    for instant in reversed(timeline.completed_writes()):
        metadata = read_commit(store, instant)
        text = dict(metadata.extra_metadata).get("schema", "")
        if text and metadata.operation_type not in _NO_SCHEMA_OPERATIONS:
            return TableSchema.from_avro(text)
    if config.create_schema:
        return TableSchema.from_avro(config.create_schema)
    return None


def load_replaced_groups(store: TimelineStore, timeline: Timeline) -> dict[tuple[str, str], str]:
    """(partition, file id) of each replaced file group -> request time of the newest replace commit that names it."""
    replaced: dict[tuple[str, str], str] = {}
    for instant in timeline.completed(Action.REPLACECOMMIT):
        for partition, file_ids in (read_commit(store, instant).partition_to_replace_file_ids or {}).items():
            for file_id in file_ids:
                replaced[partition, file_id] = instant.request_time
    return replaced


def load_rollback_targets(store: TimelineStore, timeline: Timeline) -> dict[str, Instant]:
    """Request time of each write that a pending rollback will remove -> that rollback.  Plans that cannot be read are left out:
    whoever finishes rollbacks finds them.
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


def load_pending_compactions(store: TimelineStore, timeline: Timeline) -> dict[tuple[str, str], str]:
    """(partition, file id) of each file group that a pending compaction will rewrite -> the compaction's instant."""
    pending: dict[tuple[str, str], str] = {}
    for instant in timeline.pending(Action.COMPACTION):
        for operation in load_compaction_plan(store, instant).operations or ():
            pending[operation.partition_path or "", operation.file_id or ""] = instant.request_time
    return pending


def load_compaction_plan(store: TimelineStore, instant: Instant) -> CompactionPlan:
    """The plan in the requested file of a compaction or log compaction.  Raises CorruptData when it is missing or damaged."""
    requested = Instant(instant.request_time, instant.action, State.REQUESTED)
    try:
        return CompactionPlan.decode(store.read(requested))
    except CorruptData as error:
        raise error.with_path(store.storage.absolute(store.path(requested))) from error


def load_pending_clusterings(store: TimelineStore, timeline: Timeline) -> frozenset[tuple[str, str]]:
    """(partition, file id) of each file group that a pending clustering will replace."""
    groups: set[tuple[str, str]] = set()
    for instant in timeline.pending(Action.CLUSTERING, Action.REPLACECOMMIT):
        data = store.read_state(instant.request_time, instant.action, State.REQUESTED)
        if not data:
            continue
        try:
            plan = RequestedReplaceMetadata.decode(data).clustering_plan
        except CorruptData as error:
            raise error.with_path(store.storage.absolute(store.path(instant))) from error
        if plan is None:
            continue
        for group in plan.input_groups or ():
            groups.update((piece.partition_path or "", piece.file_id or "") for piece in group.slices or ())
    return frozenset(groups)
