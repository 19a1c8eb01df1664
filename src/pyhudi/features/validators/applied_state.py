"""The states that validators compare: the table as it is, and with a commit applied that is not published yet.

The files of the commit exist. A snapshot that contains them is the current one with the instant completed, the files of its
statistics listed, and the file groups that it replaces hidden. Indexes of the metadata table do not know these files, so they
are not used.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from pyhudi.format.actions.commit_metadata import SCHEMA_KEY, CommitMetadata
from pyhudi.format.instants import Instant, State, completed_action
from pyhudi.operations.commit.transaction import Transaction
from pyhudi.operations.read.query import SnapshotQuery, read_spec
from pyhudi.planning.partition_pruning import plan_slices
from pyhudi.records.schema_evolution import SchemaMode, continues
from pyhudi.storage.base import FileInfo
from pyhudi.table.bootstrap_sources import with_sources
from pyhudi.table.file_slices import build_file_groups, visible_slices
from pyhudi.table.listing import FileListing
from pyhudi.table.snapshot import Snapshot, TableSchema, load_snapshot
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.table.timeline.double_writes import copies_among
from pyhudi.table.timeline.timeline_store import next_instant_time


@dataclass(frozen=True, slots=True)
class AppliedListing:
    """A listing with the files of one more commit."""

    listing: FileListing
    written: Mapping[str, tuple[FileInfo, ...]]

    def partitions(self) -> tuple[str, ...]:
        return tuple(sorted({*self.listing.partitions(), *self.written}))

    def files(self, partitions: Iterable[str]) -> dict[str, tuple[FileInfo, ...]]:
        return self._with_written(self.listing.files(partitions))

    def group_files(self, groups: Mapping[str, Collection[str]]) -> dict[str, tuple[FileInfo, ...]]:
        files = self._with_written(self.listing.group_files(groups))
        return {
            partition: tuple(info for info in infos if info.name.lstrip(".").partition("_")[0] in groups[partition])
            for partition, infos in files.items()
        }

    def _with_written(self, files: Mapping[str, tuple[FileInfo, ...]]) -> dict[str, tuple[FileInfo, ...]]:
        result = {}
        for partition, listed in files.items():
            written = self.written.get(partition, ())
            paths = {info.path for info in written}
            result[partition] = (*(info for info in listed if info.path not in paths), *written)
        return result


def states_around(transaction: Transaction, metadata: CommitMetadata, timeline: Timeline) -> tuple[Snapshot, Snapshot]:
    """Return the snapshots before and after a commit, in the same columns unless the commit changes them incompatibly.

    Args:
        transaction: The transaction of the commit.
        metadata: What it will publish.
        timeline: The current timeline.
    """
    before = load_snapshot(transaction.context, timeline=timeline)
    schema = _schema_after(before, metadata)
    after = _applied(before, transaction, metadata, schema)
    reads_new_columns = before.schema is None or (
        schema is not None and before.ids is None and continues(before.schema.arrow, schema.arrow, SchemaMode.EVOLVE)
    )
    return replace(before, schema=schema) if reads_new_columns else before, after


def changed_partitions(metadata: CommitMetadata) -> frozenset[str]:
    """The partitions in which a commit writes or replaces files."""
    return frozenset({*metadata.partition_to_write_stats, *(metadata.partition_to_replace_file_ids or {})})


def state_query(snapshot: Snapshot, partitions: frozenset[str] | None) -> SnapshotQuery:
    """Return the query for all rows of a snapshot, or of some partitions of it, with the meta columns."""
    listed = snapshot.listing.partitions()
    files = snapshot.listing.files([partition for partition in listed if partitions is None or partition in partitions])
    state = snapshot.slicing
    slices = {partition: visible_slices(build_file_groups(partition, infos, state), state) for partition, infos in files.items()}
    plan = plan_slices(slices, None)
    if snapshot.config.bootstrap_base_path is not None:
        plan = replace(plan, slices=tuple(with_sources(snapshot.context, plan.slices)))
    return SnapshotQuery(snapshot, read_spec(snapshot, ["*"]), plan)


def _schema_after(before: Snapshot, metadata: CommitMetadata) -> TableSchema | None:
    text = metadata.extra_metadata.get(SCHEMA_KEY, "")
    if not text or not metadata.operation.sets_schema:
        return before.schema
    return TableSchema.stored(text, before.config)


def _applied(before: Snapshot, transaction: Transaction, metadata: CommitMetadata, schema: TableSchema | None) -> Snapshot:
    context, time, timeline = before.context, transaction.instant_time, before.timeline
    completion = next_instant_time(context.env, context.config.zone, timeline.latest_time())
    done = Instant(time, completed_action(transaction.action), State.COMPLETED, completion)
    others = (instant for instant in timeline.instants if instant.request_time != time)
    applied = Timeline.of((*others, done), timeline.archived_completions)
    replaced = {
        (partition, file_id): time
        for partition, file_ids in (metadata.partition_to_replace_file_ids or {}).items()
        for file_id in file_ids
    }
    columns = transaction.columns
    return replace(
        before,
        timeline=applied,
        schema=schema,
        ids=before.ids if columns is None else columns.ids,
        slicing=replace(before.slicing, timeline=applied, replaced={**before.slicing.replaced, **replaced}),
        listing=AppliedListing(before.listing, _written_files(metadata, applied, time)),
        commits={**before.commits, done: metadata},
    )


def _written_files(metadata: CommitMetadata, timeline: Timeline, time: str) -> dict[str, tuple[FileInfo, ...]]:
    copies = frozenset(copies_among(timeline, metadata, time))
    return {
        partition: tuple(
            FileInfo(stat.path, stat.file_size_in_bytes, 0) for stat in stats if stat.path and stat.path not in copies
        )
        for partition, stats in metadata.partition_to_write_stats.items()
    }
