"""Reconciliation of index updates of commits whose times overlap, so that pruning never skips matching files.
Format: docs/formats/metadata-table.md, "Which record counts".

Records of one key are merged in order of the request times of their commits, but commits complete in any order.

Partition ranges are computed under the lock from all existing files. Still, the latest-requested instant wins, and it
may have completed before another one whose files it could not include:

    requested first, completed last    its record is complete, but precedes the record of the instant that overtook it
    requested last, completed first    its record wins, but lacks files of the earlier instant

A commit that completes while an earlier instant is pending therefore writes ranges that are not tight: the two records
are merged by widening. Other Hudi writers always write tight ranges. A commit that such a record overtook writes its
ranges again, not tight, in a later delta commit of the metadata table. Ranges that are temporarily too wide, or
permanently if the write dies, never skip a file that a read needs.

Hudi cannot merge bounds of two types, and its queries fail on them. If a column has changed its type between two such
commits, the index is dropped, and the next write rebuilds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import WriteConflict, get_logger
from pyhudi.format.avro_wrappers import Wrapper
from pyhudi.format.instants import Action, Instant
from pyhudi.metadata_table.codecs.metadata_partitions import grouped
from pyhudi.metadata_table.codecs.value_wrappers import wrappers_for_bounds
from pyhudi.metadata_table.file_tasks import ConcurrentKeys, run_concurrent_keys
from pyhudi.metadata_table.indexes.metadata_index import PartitionStatsUpdate
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.metadata_table.writer.metadata_store import MetadataStore, SpilledKeys, drop_partitions
from pyhudi.records.column_statistics import NO_VALUES, covers
from pyhudi.storage.thread_pool import in_threads
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import SLICING_ACTIONS, Timeline
from pyhudi.tasks.engine_protocol import Engine

_LOG = get_logger("pyhudi.metadata_table.writer")


@dataclass(frozen=True, slots=True)
class ConcurrentCommits:
    """Overlaps of an instant that is about to complete. Created under the lock, before its delta commit is written.

    Attributes:
        has_older_pending: An instant requested earlier may still complete.
        has_newer_completed: An instant requested later has completed.
    """

    has_older_pending: bool
    has_newer_completed: bool

    @classmethod
    def of(cls, request_time: str, current_timeline: Timeline, metadata: Timeline) -> ConcurrentCommits:
        """Detect the overlaps of an instant.

        Args:
            request_time: Request time of the instant.
            current_timeline: The table's timeline.
            metadata: The metadata table's timeline.
        """
        return cls(
            any(i.request_time < request_time for i in current_timeline.pending(*SLICING_ACTIONS)),
            any(i.request_time > request_time for i in metadata.completed(Action.DELTACOMMIT)),
        )

    def drop_clashes(
        self, context: TableContext, reader: MetadataTable, updates: Sequence[PartitionStatsUpdate]
    ) -> frozenset[str]:
        """Drop the indexes whose records cannot be merged with the updates, and return their names. `reader` shows the
        state before.
        """
        if not (self.has_older_pending or self.has_newer_completed):
            return frozenset()
        clashing = frozenset(
            update.index.partition
            for update in updates
            if update.index.partition in reader.partitions and _changes_type(reader, update)
        )
        if clashing:
            _LOG.warning(
                "dropped %s of %s from the metadata table: a column changed its type during concurrent writes; the next write "
                "rebuilds it",
                ", ".join(sorted(clashing)),
                context.storage.uri,
            )
            drop_partitions(context, clashing)
        return clashing

    def rewrite_overwritten_stats(
        self,
        context: TableContext,
        store: MetadataStore,
        current_timeline: Timeline,
        completed_instant: Instant,
        updates: Sequence[PartitionStatsUpdate],
        schema: pa.Schema,
    ) -> None:
        """Override records that were written first but merge last, where they are narrower. The delta commit of
        `completed_instant` exists.

        Args:
            store: The metadata table.
            current_timeline: The table's timeline without `completed_instant`.
            completed_instant: The instant that was overtaken.
            updates: Its partition ranges.
            schema: The table's columns, with meta columns.
        """
        if not self.has_newer_completed:
            return
        reader = MetadataTable(
            context, Timeline.of((*current_timeline.instants, completed_instant), current_timeline.archived_completions)
        )
        overridden = [update for update in updates if update.ranges and not _is_covered(reader, update)]
        if not overridden:
            return
        time = _free_time(current_timeline, store.load())
        if time is None:
            drop_partitions(context, [update.index.partition for update in overridden])
        else:
            rewritten = {update.index.partition: update.records(schema, is_tight=False) for update in overridden}
            store.begin(time).write(None, current_timeline, rewritten)

    def check_keys(
        self,
        engine: Engine | None,
        context: TableContext,
        reader: MetadataTable,
        completed_instant: Instant,
        keys: Sequence[SpilledKeys],
    ) -> None:
        """Check that no instant that overtook this one changes the same keys.

        Args:
            engine: Runs tasks; None for threads of this process.
            reader: The metadata table before the commit.
            completed_instant: The instant to complete.
            keys: Its keys.

        Raises:
            WriteConflict: A later-requested completed instant changes one of the keys.
        """
        tasks = []
        for spilled in keys if self.has_newer_completed else ():
            others = reader.logs_after(spilled.partition, completed_instant.request_time) if spilled.sources else None
            if others is not None:
                single_groups = {slice_.file_id: replace(others, slices=(slice_,)) for slice_ in others.slices if slice_.logs}
                shares = ((group.file_id, *spilled.share(group)) for group in grouped(slice_.file_id for slice_ in others.slices))
                spec = context.storage.spec()
                tasks += [
                    ConcurrentKeys(single_groups[file_id], spec, share, sources)
                    for file_id, share, sources in shares
                    if sources and file_id in single_groups
                ]
        results = engine.map(run_concurrent_keys, tasks) if engine is not None else in_threads(run_concurrent_keys, tasks)
        for task, common_keys in zip(tasks, results, strict=True):
            if common_keys:
                instants = sorted({log.name.instant_time for slice_ in task.concurrent_groups.slices for log in slice_.logs})
                raise WriteConflict(
                    f"{completed_instant.action} {completed_instant.request_time} of {context.storage.uri} writes keys that "
                    f"later-requested, completed instants also changed, such as {', '.join(map(repr, common_keys))} in "
                    f"{task.concurrent_groups.name}; "
                    "plan the write again",
                    instants=tuple(instants),
                )


def _changes_type(reader: MetadataTable, update: PartitionStatsUpdate) -> bool:
    rows = update.index.partition_rows(reader, tuple(update.types)) if update.types else None
    if rows is None:
        return False
    rows = rows.filter(pc.is_in(rows.column("file_name"), value_set=pa.array(list(update.ranges), pa.string()))).combine_chunks()
    for column, type_ in update.types.items() if rows.num_rows else ():
        allowed = pa.array([int(Wrapper.NULL), *wrappers_for_bounds(type_, typed=update.layout > 1)], pa.uint8())
        of_column = rows.filter(pc.equal(rows.column("column_name"), column))
        for bound in ("min", "max"):
            kinds = pc.struct_field(of_column.column(bound), "kind")
            if not pc.all(pc.is_in(kinds, value_set=allowed)).as_py():
                return True
    return False


def _is_covered(reader: MetadataTable, update: PartitionStatsUpdate) -> bool:
    if update.index.partition not in reader.partitions:
        # No reader uses an index that is being built, so it always needs the rewrite.
        return False
    for column, type_ in update.types.items():
        stored = update.index.partition_ranges(reader, column, type_)
        for partition, ranges in update.ranges.items():
            required = NO_VALUES if ranges is None else ranges[column]
            stored_range = stored.get(partition)
            if required != NO_VALUES and (stored_range is None or not covers(stored_range, required)):
                return False
    return True


def _free_time(current_timeline: Timeline, metadata: Timeline) -> str | None:
    """An instant after all delta commits of the metadata table that no other instant uses; None if there is none.

    It is the newest completion time of the table: later requests get later times.
    """
    completions = [instant.completion_time or "" for instant in current_timeline.completed()]
    latest = max(completions, default="")
    newest_request = max((i.request_time for i in metadata.instants), default="")
    return latest if latest > newest_request else None
