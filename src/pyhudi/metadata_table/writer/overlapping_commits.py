"""What commits whose times overlap say in indexes, so that together they never say less than the files.

Records of one key are merged by the request times of the commits that wrote them, and commits complete in any order.

Partitions.  The ranges of a partition are made under the lock from all files that are there; still, those of the instant that was
requested last win, and it may have completed before another one whose files it could not know:

    begun first, ended last    its own record is complete, and comes before that of the instant that overtook it
    begun last, ended first    its record is the last word, and does not know what comes

So whoever completes while an earlier instant is pending does not call its ranges tight: the two records are then merged, by
widening.  Other writers of Hudi call theirs tight in any case.  Whoever finds itself overtaken by such a record says its ranges
again, not tight, in a delta commit of the metadata table that comes after all others; ranges that are too wide for a moment, or
for ever when the write dies, pass nothing over that should be read.

Bounds of two types cannot be merged by the real Hudi, whose queries fail on them.  Where a column has changed its type between
two such commits the index is dropped, and the next write builds it anew.

Source: docs/formats/metadata-table.md, "Which record counts".
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import WriteConflict
from pyhudi.format.avro_wrappers import Wrapper
from pyhudi.format.instants import Action, Instant
from pyhudi.metadata_table.codecs.metadata_partitions import grouped
from pyhudi.metadata_table.codecs.value_wrappers import wrappers_for_bounds
from pyhudi.metadata_table.file_tasks import ConcurrentKeys, run_concurrent_keys
from pyhudi.metadata_table.indexes.metadata_index import PartitionStatsUpdate
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.metadata_table.writer.metadata_store import MetadataStore, SpilledKeys, drop_partitions, in_threads
from pyhudi.records.column_statistics import NO_VALUES, covers
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import SLICING_ACTIONS, Timeline
from pyhudi.tasks.engine_protocol import Engine

_LOG = logging.getLogger("pyhudi.metadata_table.writer")


@dataclass(frozen=True, slots=True)
class ConcurrentCommits:
    """How an instant that is about to complete meets others.  Made under the lock, before its delta commit is written.

    has_older_pending: an instant requested earlier may still complete.  has_newer_completed: one requested later has completed.
    """

    has_older_pending: bool
    has_newer_completed: bool

    @classmethod
    def of(cls, request_time: str, current_timeline: Timeline, metadata: Timeline) -> ConcurrentCommits:
        """now: the table's timeline; metadata: that of its metadata table."""
        return cls(
            any(i.request_time < request_time for i in current_timeline.pending(*SLICING_ACTIONS)),
            any(i.request_time > request_time for i in metadata.completed(Action.DELTACOMMIT)),
        )

    def drop_clashes(
        self, context: TableContext, reader: MetadataTable, updates: Sequence[PartitionStatsUpdate]
    ) -> frozenset[str]:
        """Drop the indexes whose records could not be merged with what is said; their names.  reader: as it stood before."""
        if not (self.has_older_pending or self.has_newer_completed):
            return frozenset()
        clashing = frozenset(
            one.index.partition for one in updates if one.index.partition in reader.partitions and _changes_type(reader, one)
        )
        if clashing:
            _LOG.warning(
                "%s of %s: a column has changed its type while other writes were under way; dropped from the metadata table, "
                "to be built anew by the next write",
                ", ".join(sorted(clashing)),
                context.storage.uri,
            )
            drop_partitions(context, clashing)
        return clashing

    def rewrite_overtaken_stats(
        self,
        context: TableContext,
        store: MetadataStore,
        current_timeline: Timeline,
        completed_instant: Instant,
        updates: Sequence[PartitionStatsUpdate],
        schema: pa.Schema,
    ) -> None:
        """Overrule the records that came first and are merged last, where they say less.  The delta commit of `completed_instant`
        stands.

        current_timeline: the table's timeline without `completed_instant`.
        """
        if not self.has_newer_completed:
            return
        reader = MetadataTable(
            context, Timeline.of((*current_timeline.instants, completed_instant), current_timeline.archived_completions)
        )
        narrow = [one for one in updates if one.ranges and not _is_covered(reader, one)]
        if not narrow:
            return
        time = _free_time(current_timeline, store.load())
        if time is None:
            drop_partitions(context, [one.index.partition for one in narrow])
        else:
            again = {one.index.partition: one.records(schema, is_tight=False) for one in narrow}
            store.begin(time).write(None, current_timeline, again)

    def check_keys(
        self,
        engine: Engine | None,
        context: TableContext,
        reader: MetadataTable,
        completed_instant: Instant,
        keys: Sequence[SpilledKeys],
    ) -> None:
        """Raises WriteConflict when an instant that overtook this one speaks of its keys.

        reader: as the metadata table stood before.
        """
        tasks = []
        for one in keys if self.has_newer_completed else ():
            others = reader.logs_after(one.partition, completed_instant.request_time) if one.sources else None
            if others is not None:
                alone = {slice_.file_id: replace(others, slices=(slice_,)) for slice_ in others.slices if slice_.logs}
                shares = ((group.file_id, *one.share(group)) for group in grouped(slice_.file_id for slice_ in others.slices))
                spec = context.storage.spec()
                tasks += [
                    ConcurrentKeys(alone[file_id], spec, share, sources)
                    for file_id, share, sources in shares
                    if sources and file_id in alone
                ]
        met = engine.map(run_concurrent_keys, tasks) if engine is not None else in_threads(run_concurrent_keys, tasks)
        for task, named in zip(tasks, met, strict=True):
            if named:
                instants = sorted({log.name.instant_time for slice_ in task.concurrent_groups.slices for log in slice_.logs})
                raise WriteConflict(
                    f"{completed_instant.action} {completed_instant.request_time} of {context.storage.uri} brings records of "
                    "which later instants speak "
                    f"that have completed, such as {', '.join(map(repr, named))} in {task.concurrent_groups.name}; "
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
        # Nobody reads an index that is being built, to see what it says.
        return False
    for column, type_ in update.types.items():
        stored = update.index.partition_ranges(reader, column, type_)
        for partition, ranges in update.ranges.items():
            wanted = NO_VALUES if ranges is None else ranges[column]
            found = stored.get(partition)
            if wanted != NO_VALUES and (found is None or not covers(found, wanted)):
                return False
    return True


def _free_time(current_timeline: Timeline, metadata: Timeline) -> str | None:
    """A time after all delta commits of the metadata table that no instant has or will get; None when there is none.

    It is the newest completion time of the table: whatever is requested from now on is later.
    """
    completions = [instant.completion_time or "" for instant in current_timeline.completed()]
    latest = max(completions, default="")
    taken = max((i.request_time for i in metadata.instants), default="")
    return latest if latest > taken else None
