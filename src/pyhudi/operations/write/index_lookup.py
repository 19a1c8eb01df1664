"""Write index: which index locates the records of a write, and how it looks up keys in the current snapshot.

    SIMPLE, GLOBAL_SIMPLE    key columns of base files
    BLOOM, GLOBAL_BLOOM      key ranges and bloom filters first: from footers, or with `hoodie.bloom.index.use.metadata`
                             from the metadata table
    RECORD_INDEX             the record index of the metadata table, which the write builds if it is missing; global;
                             release 1.1 also calls it GLOBAL_RECORD_LEVEL_INDEX
    RECORD_LEVEL_INDEX       a partitioned record index, within the partition
    BUCKET                   the hash of the key, without a lookup: buckets by number (SIMPLE), or hash nodes
                             (CONSISTENT_HASHING)
    INMEMORY                 key columns, cached in this process
    HBASE                    an HBase table; global

If an index cannot serve the table, the write fails; it never falls back to another index. The indexes other than
RECORD_INDEX, BUCKET and HBASE refuse file groups without a base file; in other file groups they also find the keys that
only log files hold (`keys_in_logs`).

Source: docs/formats/writing.md, "Indexes used for writing".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated

import numpy as np
import pyarrow as pa

from pyhudi.errors import InvalidRequest, SnapshotOutdated, TableState, WriteConflict
from pyhudi.features.consistent_hashing.hashing_routing import (
    ConsistentHashingLayout,
    ConsistentHashingSettings,
    check_hashing_groups,
)
from pyhudi.format.actions.commit_metadata import Operation
from pyhudi.format.instants import Action
from pyhudi.format.meta_columns import RECORD_KEY, with_meta_fields
from pyhudi.format.partition_bucket_config import BucketCounts, counts_path
from pyhudi.metadata_table.indexes import first_result
from pyhudi.metadata_table.indexes.index_events import key_reader
from pyhudi.metadata_table.reader.file_group_reader import MetadataPartition
from pyhudi.metadata_table.reader.metadata_listing import MetadataListing
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.operations.write.keys_in_logs import LogsToSearch
from pyhudi.options import index_options
from pyhudi.options.declaration import Options, read_settings
from pyhudi.options.index_options import (
    BUCKET_COUNT,
    BUCKET_ENGINE,
    BUCKET_INDEX_HASH_FIELD,
    BUCKET_INDEX_PARTITION_EXPRESSIONS,
    METADATA_TABLE,
    PARTITIONED_SWITCH,
    RECORD_INDEX_SWITCH,
)
from pyhudi.options.write_options import INDEX_TYPE
from pyhudi.planning.bucket_routing import BucketLayout, Placement, bucket_groups
from pyhudi.table.file_slices import BaseFile, FileSlice
from pyhudi.table.partition_buckets import load_counts, store_first
from pyhudi.table.snapshot import Snapshot, load_snapshot
from pyhudi.table.table_context import TableContext
from pyhudi.table.timeline.active_timeline import Timeline
from pyhudi.tasks.base_file_reader import MAX_KEY, MIN_KEY, footer_text, open_base_file
from pyhudi.tasks.hbase_lookup import HbaseSettings, by_hbase
from pyhudi.tasks.log_scan import InstantValidity
from pyhudi.tasks.read_slice import read_live_keys
from pyhudi.tasks.tag_location import (
    FileGroupCandidate,
    Lookup,
    LookupByBuckets,
    LookupByKeyColumns,
    LookupByKeyFilters,
    LookupByRecordIndex,
    evict_keys,
)

_PROBED_FILES = 4
"""Number of files of a bucketed table whose keys a write checks against their buckets."""

_PROBED_ROWS = 10_000
"""Number of rows up to which all keys of such a file are read."""


LAYOUT_OPTIONS = (INDEX_TYPE, BUCKET_ENGINE, index_options.BUCKET_INDEX_QUERY_PRUNING)
"""Options that `read_layout` reads besides the layout itself."""


class IndexType(StrEnum):
    """`hoodie.index.type`."""

    SIMPLE = "SIMPLE"
    GLOBAL_SIMPLE = "GLOBAL_SIMPLE"
    BLOOM = "BLOOM"
    GLOBAL_BLOOM = "GLOBAL_BLOOM"
    RECORD_INDEX = "RECORD_INDEX"
    RECORD_LEVEL_INDEX = "RECORD_LEVEL_INDEX"
    BUCKET = "BUCKET"
    INMEMORY = "INMEMORY"
    HBASE = "HBASE"

    @property
    def is_global(self) -> bool:
        """True if the record key alone identifies a record, across partitions."""
        return self in (IndexType.GLOBAL_SIMPLE, IndexType.GLOBAL_BLOOM, IndexType.RECORD_INDEX, IndexType.HBASE)


_MOVES = {
    IndexType.RECORD_INDEX: index_options.RECORD_INDEX_UPDATE_PARTITION_PATH,
    IndexType.HBASE: index_options.HBASE_INDEX_UPDATE_PARTITION_PATH,
    IndexType.GLOBAL_BLOOM: index_options.BLOOM_INDEX_UPDATE_PARTITION_PATH,
}


@dataclass(frozen=True, slots=True)
class BucketRescale:
    """New bucket counts of partitions, with which an overwrite rewrites the partitions whose count changes.

    Attributes:
        before: Layout by the current counts.
        after: Layout by the new counts.
        partitions: Partitions whose count changes.
        operation: Operation type in the commit metadata.
    """

    before: BucketLayout
    after: BucketLayout
    partitions: tuple[str, ...]
    operation: Operation

    @classmethod
    def plan(cls, context: TableContext, snapshot: Snapshot, before: BucketLayout, after: BucketLayout) -> BucketRescale:
        """Compare two layouts. Raises TableState if the records of the table are not stored by the first one."""
        slices = [s for partition_slices in snapshot.slices(None).values() for s in partition_slices]
        _check_layout(context, snapshot, tuple(bucket_groups(slices, before).values()), before, _describe_counts(before))
        partitions = sorted(snapshot.listing.partitions())
        return cls(
            before,
            replace(after, is_new=True),
            tuple(p for p in partitions if before.bucket_count(p) != after.bucket_count(p)),
            Operation.BUCKET_RESCALE if context.config.version.has_bucket_rescale else Operation.INSERT_OVERWRITE,
        )

    def store_counts(self, context: TableContext, instant: str) -> None:
        """Store the new counts; they are valid once the instant completes."""
        assert self.after.rules is not None, "a rescale has rules"
        context.storage.put(counts_path(instant), BucketCounts(self.after.rules, self.after.count, instant).encode())

    def check_unchanged(self, context: TableContext, now: Timeline, replaced: Mapping[str, Collection[str]]) -> None:
        """Check under the lock that the rescale replaces all file groups that the new counts do not fit.

        Raises:
            WriteConflict: Other writers changed the counts, or added file groups by the old ones.
        """
        stored = load_counts(context, now)
        counts = (None, self.before.count) if stored is None else (stored.expressions, stored.default)
        current = load_snapshot(context, timeline=now)
        changed = [p for p in current.listing.partitions() if self.before.bucket_count(p) != self.after.bucket_count(p)]
        added = [s for group in current.slices(changed).values() for s in group if s.file_id not in replaced.get(s.partition, ())]
        if counts != (self.before.rules, self.before.count) or added:
            what = f"file group {added[0].file_id} was added to {added[0].partition}" if added else "bucket counts were changed"
            raise WriteConflict(f"{what} during the rescale of buckets of {context.storage.uri}; plan the rescale again")


@dataclass(frozen=True, slots=True)
class LookupSettings:
    """The index of one write.

    Attributes:
        index_type: The index.
        update_partition_path: With a global index, a record whose partition changes moves to the new partition.
        prune_by_ranges: BLOOM prunes files by their key ranges.
        use_metadata: BLOOM reads filters and ranges from the metadata table.
        buckets: Bucket layout by engine, None for other indexes.
        hbase: Settings of HBASE, None for other indexes.
        rescale: The write gives partitions new bucket counts; its layout is that of ``buckets``.
    """

    index_type: Annotated[IndexType, INDEX_TYPE, METADATA_TABLE, RECORD_INDEX_SWITCH, PARTITIONED_SWITCH]
    update_partition_path: Annotated[bool, *_MOVES.values(), index_options.SIMPLE_INDEX_UPDATE_PARTITION_PATH] = True
    prune_by_ranges: Annotated[bool, index_options.BLOOM_INDEX_PRUNE_BY_RANGES] = True
    use_metadata: Annotated[bool, index_options.BLOOM_INDEX_USE_METADATA] = False
    buckets: Annotated[BucketLayout | ConsistentHashingSettings | None, INDEX_TYPE, BUCKET_ENGINE] = None
    hbase: HbaseSettings | None = None
    rescale: BucketRescale | None = None

    @classmethod
    def of(cls, options: Options) -> LookupSettings:
        """Build the settings from checked options. Raises InvalidRequest for options that exclude the index."""
        index_name = options.value_or_default(INDEX_TYPE)
        kind = IndexType.RECORD_INDEX if index_name == "GLOBAL_RECORD_LEVEL_INDEX" else IndexType(index_name)
        if kind in (IndexType.RECORD_INDEX, IndexType.RECORD_LEVEL_INDEX):
            for switch in (METADATA_TABLE, RECORD_INDEX_SWITCH if kind is IndexType.RECORD_INDEX else PARTITIONED_SWITCH):
                if options.explicit(switch) == "false":
                    raise InvalidRequest(f"{INDEX_TYPE}={index_name} requires the record index, which {switch}=false disables")
        return read_settings(
            cls,
            options,
            index_type=kind,
            update_partition_path=options.flag(_MOVES.get(kind, index_options.SIMPLE_INDEX_UPDATE_PARTITION_PATH)),
            buckets=_buckets(options) if kind is IndexType.BUCKET else None,
            hbase=HbaseSettings.of(options) if kind is IndexType.HBASE else None,
        )


@dataclass(frozen=True, slots=True)
class PlannedLookup:
    """A planned index lookup.

    Attributes:
        candidates: File groups in which keys are looked up.
        lookup: The lookup.
        source: Data that the lookup reads, for the result of the write.
    """

    candidates: tuple[FileGroupCandidate, ...]
    lookup: Lookup
    source: str


def plan_write_lookup(
    settings: LookupSettings,
    context: TableContext,
    snapshot: Snapshot,
    slices: Iterable[FileSlice],
    new_file_id: Callable[[str, int], str] | None,
    hashing: ConsistentHashingLayout | None = None,
    *,
    is_checked: bool = False,
) -> PlannedLookup:
    """Plan the index lookup in some file slices.

    Args:
        settings: The index.
        context: The table, with its current properties.
        new_file_id: Names the new file group of a partition's bucket; None if the write creates none.
        hashing: Consistent hashing metadata of the partitions that the write touches.
        is_checked: True if `check_lookup` has accepted these slices.

    Raises:
        TableState: The index cannot serve the table.
    """
    file_slices = tuple(slices)
    if settings.buckets is not None:
        return _plan_buckets(context, snapshot, file_slices, settings.buckets, hashing, new_file_id, is_checked=is_checked)
    if settings.index_type in (IndexType.RECORD_INDEX, IndexType.RECORD_LEVEL_INDEX):
        name, index, by_partition = _record_index(settings, context, snapshot)
        places = tuple(FileGroupCandidate(s.partition, s.file_id, s) for s in file_slices)
        return PlannedLookup(places, LookupByRecordIndex(index, by_partition), name)
    if settings.hbase is not None:
        logs = LogsToSearch(snapshot, file_slices)
        return PlannedLookup(
            tuple(_candidate(logs, s) for s in file_slices), by_hbase(settings.hbase, snapshot.timeline), "hbase"
        )
    _refuse_groups_of_logs(settings.index_type, file_slices)
    if settings.index_type in (IndexType.BLOOM, IndexType.GLOBAL_BLOOM):
        return _plan_filters(settings, context, snapshot, file_slices)
    logs = LogsToSearch(snapshot, file_slices)
    places = tuple(_candidate(logs, s) for s in file_slices)
    if settings.index_type is IndexType.INMEMORY:
        evict_keys(context.storage, {s.partition for s in file_slices}, (place.base for place in places))
        return PlannedLookup(places, LookupByKeyColumns(use_cache=True), "key columns in memory")
    return PlannedLookup(places, LookupByKeyColumns(), "key columns")


def depends_on_groups(settings: LookupSettings, *, is_cow: bool) -> bool:
    """Return True if the table's file groups decide whether the index can serve it."""
    asks_record_index = settings.index_type in (IndexType.RECORD_INDEX, IndexType.RECORD_LEVEL_INDEX)
    if settings.buckets is not None:
        return isinstance(settings.buckets, BucketLayout)
    return not (asks_record_index or is_cow or settings.hbase is not None)


def check_lookup(settings: LookupSettings, context: TableContext, snapshot: Snapshot, slices: Iterable[FileSlice]) -> None:
    """Raise the InvalidRequest or TableState of `plan_write_lookup` before the write begins, without storing anything.

    Args:
        settings: The index.
        slices: File slices that the write may touch, if `depends_on_groups`. Consistent hashing metadata is checked when
            it is loaded.
    """
    if isinstance(settings.buckets, BucketLayout):
        stored = load_counts(context, snapshot.timeline)
        layout = settings.buckets if stored is None else settings.buckets.from_table_counts(stored)
        named = tuple(bucket_groups(slices, layout).values())
        _check_layout(context, snapshot, named, layout, _describe_counts(layout))
    elif settings.buckets is None and settings.index_type in (IndexType.RECORD_INDEX, IndexType.RECORD_LEVEL_INDEX):
        _record_index(settings, context, snapshot)
    elif settings.buckets is None and settings.hbase is None:
        _refuse_groups_of_logs(settings.index_type, slices)


def _metadata_of(context: TableContext, snapshot: Snapshot) -> MetadataTable:
    """Return the open metadata table of a snapshot, or open it again if the table properties changed since."""
    known = snapshot.listing.metadata if isinstance(snapshot.listing, MetadataListing) else None
    if known is not None and known.data_context.config == context.config:
        return known
    return MetadataTable(context, snapshot.timeline)


def _describe_counts(layout: BucketLayout) -> str:
    return f"{BUCKET_COUNT}={layout.count}" if layout.rules is None else f"{BUCKET_INDEX_PARTITION_EXPRESSIONS}={layout.rules}"


def _record_index(settings: LookupSettings, context: TableContext, snapshot: Snapshot) -> tuple[str, MetadataPartition, bool]:
    """Return name and metadata partition of the requested record index, and whether it is partitioned."""
    metadata = _metadata_of(context, snapshot)
    answer = first_result(metadata, lambda kind, name: kind.key_locations(name, metadata))
    if answer is None:
        _check_not_dropped(context, snapshot)
        raise TableState(
            f"the table at {context.storage.uri} has no completely built record index, which index {settings.index_type} requires"
        )
    name, index = answer
    by_partition = name in metadata.definitions and metadata.definitions[name].by_partition
    if by_partition is not (settings.index_type is IndexType.RECORD_LEVEL_INDEX):
        raise TableState(
            f"the record index of the table at {context.storage.uri} is "
            f"{'' if by_partition else 'not '}partitioned, and {INDEX_TYPE}={settings.index_type} requires one "
            f"that is{' not' if by_partition else ''}"
        )
    return name, index, by_partition


def _check_not_dropped(context: TableContext, snapshot: Snapshot) -> None:
    """Raise SnapshotOutdated if indexes of the table were dropped since the snapshot was loaded."""
    lost = set(snapshot.config.metadata_partitions) - set(context.reloaded().config.metadata_partitions)
    if lost:
        raise SnapshotOutdated(
            f"{', '.join(sorted(lost))} of {context.storage.uri} was dropped by another process since the table was loaded; load "
            "it again"
        )


def read_layout(options: Options) -> BucketLayout | None:
    """Return the bucket layout that read options declare; None if they declare none, or disable bucket pruning.

    Without a bucket count the layout refers to the counts that the table stores.
    """
    if options.value_or_default(INDEX_TYPE) != "BUCKET":
        return None
    # Buckets of a consistent hashing index are not fixed; such a table is read without bucket pruning.
    if options.value_or_default(BUCKET_ENGINE) != "SIMPLE" or not options.flag(index_options.BUCKET_INDEX_QUERY_PRUNING):
        return None
    return BucketLayout.of(options)


def _buckets(options: Options) -> BucketLayout | ConsistentHashingSettings:
    if options.value_or_default(BUCKET_ENGINE) == "SIMPLE":
        return BucketLayout.of(options)
    if options.text(BUCKET_INDEX_PARTITION_EXPRESSIONS):
        raise InvalidRequest(
            f"{BUCKET_INDEX_PARTITION_EXPRESSIONS} requires {BUCKET_ENGINE}=SIMPLE; cluster() resizes consistent hashing buckets"
        )
    return ConsistentHashingSettings.of(options)


def _plan_buckets(
    context: TableContext,
    snapshot: Snapshot,
    slices: tuple[FileSlice, ...],
    buckets: BucketLayout | ConsistentHashingSettings,
    hashing_layout: ConsistentHashingLayout | None,
    new_file_id: Callable[[str, int], str] | None,
    *,
    is_checked: bool,
) -> PlannedLookup:
    layout: Placement
    if isinstance(buckets, BucketLayout):
        layout = by_number = _with_counts(context, snapshot, buckets)
        named = tuple(bucket_groups(slices, by_number).values())
        bucket_options = _describe_counts(by_number)
    else:
        assert hashing_layout is not None, "a write with consistent hashing has loaded its metadata"
        check_hashing_groups(slices, hashing_layout)
        layout, named = hashing_layout, slices
        bucket_options = f"{BUCKET_INDEX_HASH_FIELD}={','.join(hashing_layout.hash_fields) or 'all key fields'}"
    if not (is_checked and isinstance(buckets, BucketLayout)):
        _check_layout(context, snapshot, named, layout, bucket_options)
    places = tuple(FileGroupCandidate(s.partition, s.file_id, s) for s in named)
    return PlannedLookup(places, LookupByBuckets(layout, new_file_id), "hash of the key")


def _with_counts(context: TableContext, snapshot: Snapshot, layout: BucketLayout) -> BucketLayout:
    """Return the layout with the bucket counts that the table stores; rules of its first write are stored permanently."""
    # A table that other writers created with rules, and that stores none, uses the rules of the writer's options, as in Hudi.
    # Raises InvalidRequest for options that contradict the table.
    stored = load_counts(context, snapshot.timeline)
    if stored is None and layout.rules is not None and snapshot.timeline.last_visible is None:
        store_first(context, BucketCounts(layout.rules, layout.count))
        stored = load_counts(context, snapshot.timeline)
    return layout if stored is None else layout.from_table_counts(stored)


def check_bucket_counts_unchanged(context: TableContext, planned: Timeline, current_timeline: Timeline, lookup: Lookup) -> None:
    """Check that the table still has the bucket counts with which the write assigned its rows.

    Args:
        planned: The timeline that the write was planned on.
        current_timeline: The timeline under the lock.
        lookup: The lookup of the write.

    Raises:
        WriteConflict: The bucket counts changed.
    """
    layout = lookup.layout if isinstance(lookup, LookupByBuckets) else None
    # Only replacecommits change bucket counts.
    if not isinstance(layout, BucketLayout) or set(current_timeline.completed(Action.REPLACECOMMIT)) <= set(
        planned.completed(Action.REPLACECOMMIT)
    ):
        return
    stored = load_counts(context, current_timeline)
    if stored is not None and (stored.expressions, stored.default) != (layout.rules, layout.count):
        raise WriteConflict(
            f"bucket counts of partitions of {context.storage.uri} were changed concurrently "
            f"({stored.expressions}, else {stored.default}); plan the write again"
        )


def _check_layout(
    context: TableContext, snapshot: Snapshot, groups: Sequence[FileSlice], layout: Placement, recorded: str
) -> None:
    """Check that a sample of keys is stored in the right buckets; otherwise the table was bucketed in another way."""
    # With another bucket count about half of the keys are in other buckets, so a small sample is enough: all keys of a small base
    # file, the keys in the footer of a larger one, or the keys of the smallest log files if there is no base file. ``recorded``
    # is the option that would be wrong.
    with_base = [(slice_, slice_.base) for slice_ in groups if slice_.base is not None]
    for slice_, base in with_base[:_PROBED_FILES]:
        _check_bucket(context, layout, slice_, base.path, _sample_keys(context, base), recorded)
    if with_base or snapshot.schema is None:
        return
    logs = [(log.size_bytes, log.path, slice_) for slice_ in groups for log in slice_.logs]
    reader = key_reader(context, with_meta_fields(snapshot.schema.arrow), InstantValidity.of(snapshot.timeline), snapshot.ids)
    for _, path, slice_ in sorted(logs, key=lambda found: found[:2])[:_PROBED_FILES]:
        alone = replace(slice_, logs=tuple(log for log in slice_.logs if log.path == path))
        for keys in read_live_keys(reader, alone):
            _check_bucket(context, layout, slice_, path, keys, recorded)


def _sample_keys(context: TableContext, base: BaseFile) -> pa.StringArray:
    with open_base_file(context.storage, base.path) as file:
        if context.config.populate_meta_fields and file.metadata.num_rows <= _PROBED_ROWS:
            return file.read(columns=[RECORD_KEY], use_threads=False).column(0).cast(pa.string()).combine_chunks()
        return pa.array([k for name in (MIN_KEY, MAX_KEY) if (k := footer_text(file.metadata, name))], pa.string())


def _check_bucket(
    context: TableContext, layout: Placement, slice_: FileSlice, path: str, keys: pa.StringArray, recorded: str
) -> None:
    """Raise TableState for a key that is stored in the wrong bucket."""
    bucket = layout.bucket_from_file_id(slice_.partition, slice_.file_id)
    paths = pa.repeat(pa.scalar(slice_.partition, pa.string()), len(keys))
    cells, rows = np.unique(layout.cells_for_keys(context.config.keys, keys, paths), return_index=True)
    for cell, row in zip(cells.tolist(), rows.tolist(), strict=True):
        expected_bucket = layout.bucket_at(slice_.partition, cell)
        if expected_bucket != bucket:
            raise TableState(
                f"record {keys[row].as_py()!r} is stored in bucket {bucket} ({context.storage.absolute(path)}), and "
                f"with {recorded} it belongs to bucket {expected_bucket}; use the bucket count and the hash fields that the "
                "table was created with"
            )


def _refuse_groups_of_logs(kind: IndexType, slices: Iterable[FileSlice]) -> None:
    lost = [slice_ for slice_ in slices if slice_.base is None]
    if lost:
        raise TableState(
            f"index {kind} looks up keys in base files, and {len(lost)} file groups have only log files (such as "
            f"{lost[0].file_id} in {lost[0].partition or 'the table'}); compact the table first, or use the index "
            "that it was written with"
        )


def _candidate(logs: LogsToSearch, slice_: FileSlice, key_range: tuple[str, str] | None = None) -> FileGroupCandidate:
    """Return a file slice as candidate of the lookup."""
    return FileGroupCandidate(slice_.partition, slice_.file_id, slice_, key_range, logs.of(slice_))


def _plan_filters(
    settings: LookupSettings, context: TableContext, snapshot: Snapshot, slices: tuple[FileSlice, ...]
) -> PlannedLookup:
    metadata = _metadata_of(context, snapshot)
    use_metadata = settings.use_metadata and context.config.populate_meta_fields
    ranges = filters = None
    sources = []
    if settings.prune_by_ranges:
        partitions = sorted({slice_.partition for slice_ in slices})
        ranges = first_result(metadata, lambda kind, name: kind.key_ranges(name, metadata, partitions)) if use_metadata else None
        sources.append("footers" if ranges is None else ranges[0])
    if use_metadata:
        filters = first_result(metadata, lambda kind, name: kind.key_filters(name, metadata))
    sources.append("footers" if filters is None else filters[0])
    known = {} if ranges is None else ranges[1]
    logs = LogsToSearch(snapshot, slices)
    places = tuple(_candidate(logs, s, known.get((s.partition, s.base.name.text)) if s.base else None) for s in slices)
    lookup = LookupByKeyFilters(settings.prune_by_ranges, ranges is not None, None if filters is None else filters[1])
    return PlannedLookup(places, lookup, " and ".join(dict.fromkeys(sources)))
