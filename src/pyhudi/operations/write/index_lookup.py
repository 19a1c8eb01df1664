"""The index by which a write finds records: what the options ask for, and how it looks keys up in the table as it stands.

    SIMPLE, GLOBAL_SIMPLE    key columns of base files
    BLOOM, GLOBAL_BLOOM      key ranges and key filters first: of footers, or with `hoodie.bloom.index.use.metadata` those that
                             the metadata table has
    RECORD_INDEX             the record index of the metadata table, which the write builds when it is missing; global; in
                             release 1.1 GLOBAL_RECORD_LEVEL_INDEX is another name of it
    RECORD_LEVEL_INDEX       a partitioned record index, within the partition
    BUCKET                   the hash of the key; no lookup: buckets by number (SIMPLE), or nodes of rings (CONSISTENT_HASHING)
    INMEMORY                 key columns, held in this process
    HBASE                    a table of HBase; global

An index that cannot answer is an error, never another index.  Keys that stand in log files alone are seen by RECORD_INDEX and
BUCKET only, so the others refuse file groups without a base file.  One kind of such keys comes about under every index, and all
look for them: a key that was deleted before a compaction was planned, and written again before it was carried out, stands in a
log alone after it.  (The real Hudi does not find it, and inserts it a second time.)

Source: docs/formats/writing.md, "Indexes used for writing".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated

import numpy as np
import pyarrow as pa

from pyhudi.errors import InvalidRequest, SnapshotOutdated, TableState, WriteConflict
from pyhudi.features.consistent_hashing.ring_routing import ConsistentHashingLayout, ConsistentHashingSettings, check_ring_groups
from pyhudi.format.instants import Action
from pyhudi.format.meta_columns import RECORD_KEY, with_meta_fields
from pyhudi.format.partition_bucket_config import BucketCounts
from pyhudi.metadata_table.indexes import first_result
from pyhudi.metadata_table.indexes.index_events import key_reader
from pyhudi.metadata_table.reader.file_group_reader import MetadataPartition
from pyhudi.metadata_table.reader.metadata_listing import MetadataListing
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.metadata_table.writer.metadata_settings import METADATA_TABLE, PARTITIONED_SWITCH, RECORD_INDEX_SWITCH
from pyhudi.operations.commit.commit_settings import INDEX_TYPE
from pyhudi.options.declaration import Option, Options, read_settings
from pyhudi.planning.bucket_routing import (
    BUCKET_COUNT,
    BUCKET_ENGINE,
    COUNT_RULES,
    HASH_FIELDS,
    BucketLayout,
    Placement,
    bucket_groups,
)
from pyhudi.table.file_slices import BaseFile, FileSlice, logs_with_uncovered_keys
from pyhudi.table.partition_buckets import load_counts, store_first
from pyhudi.table.snapshot import Snapshot
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
"""How many files of a bucketed table a write asks whether their keys lie in their buckets."""

_PROBED_ROWS = 10_000
"""Rows up to which all keys of such a file are read."""

_BUCKET_PRUNING = Option("hoodie.bucket.index.query.pruning", bool, "true", "filters on keys choose the buckets to read")

LAYOUT_OPTIONS = (INDEX_TYPE, BUCKET_ENGINE, _BUCKET_PRUNING)
"""What `read_layout` reads beside the layout itself."""


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
        """True when the record key alone names a record."""
        return self in (IndexType.GLOBAL_SIMPLE, IndexType.GLOBAL_BLOOM, IndexType.RECORD_INDEX, IndexType.HBASE)


_MOVES = {
    IndexType.RECORD_INDEX: Option(
        "hoodie.record.index.update.partition.path",
        bool,
        "false",
        "under index RECORD_INDEX a record whose partition changed moves there",
    ),
    IndexType.HBASE: Option(
        "hoodie.hbase.index.update.partition.path",
        bool,
        "false",
        "under index HBASE a record whose partition changed moves there",
    ),
    IndexType.GLOBAL_BLOOM: Option(
        "hoodie.bloom.index.update.partition.path",
        bool,
        "true",
        "under index GLOBAL_BLOOM a record whose partition changed moves there",
    ),
}
_MOVES_OF_OTHERS = Option(
    "hoodie.simple.index.update.partition.path",
    bool,
    "true",
    "under index GLOBAL_SIMPLE a record whose partition changed moves there",
)


@dataclass(frozen=True, slots=True)
class LookupSettings:
    """The index of one write.

    update_partition_path: under a global index a record whose partition changed moves.  prune_by_ranges, use_metadata: of BLOOM.
    buckets: of BUCKET, by its engine, else None.  hbase: of HBASE, else None.
    """

    index_type: Annotated[IndexType, INDEX_TYPE, METADATA_TABLE, RECORD_INDEX_SWITCH, PARTITIONED_SWITCH]
    update_partition_path: Annotated[bool, *_MOVES.values(), _MOVES_OF_OTHERS] = True
    prune_by_ranges: Annotated[
        bool, Option("hoodie.bloom.index.prune.by.ranges", bool, "true", "index BLOOM passes over files by their key ranges")
    ] = True
    use_metadata: Annotated[
        bool,
        Option("hoodie.bloom.index.use.metadata", bool, "false", "index BLOOM takes filters and ranges from the metadata table"),
    ] = False
    buckets: Annotated[BucketLayout | ConsistentHashingSettings | None, INDEX_TYPE, BUCKET_ENGINE] = None
    hbase: HbaseSettings | None = None

    @classmethod
    def of(cls, options: Options) -> LookupSettings:
        """From checked options.  Raises InvalidRequest for options that forbid the index."""
        word = options.value_or_default(INDEX_TYPE)
        kind = IndexType.RECORD_INDEX if word == "GLOBAL_RECORD_LEVEL_INDEX" else IndexType(word)
        if kind in (IndexType.RECORD_INDEX, IndexType.RECORD_LEVEL_INDEX):
            for switch in (METADATA_TABLE, RECORD_INDEX_SWITCH if kind is IndexType.RECORD_INDEX else PARTITIONED_SWITCH):
                if options.explicit(switch) == "false":
                    raise InvalidRequest(f"{INDEX_TYPE}={word} needs the record index, and {switch}=false forbids it")
        return read_settings(
            cls,
            options,
            index_type=kind,
            update_partition_path=options.flag(_MOVES.get(kind, _MOVES_OF_OTHERS)),
            buckets=_buckets(options) if kind is IndexType.BUCKET else None,
            hbase=HbaseSettings.of(options) if kind is IndexType.HBASE else None,
        )


@dataclass(frozen=True, slots=True)
class PlannedLookup:
    """Where keys are looked up, and how.  source: what is asked, for the result of the write."""

    candidates: tuple[FileGroupCandidate, ...]
    lookup: Lookup
    source: str


def plan_write_lookup(
    settings: LookupSettings,
    context: TableContext,
    snapshot: Snapshot,
    slices: Iterable[FileSlice],
    new_file_id: Callable[[str, int], str] | None,
    rings: ConsistentHashingLayout | None = None,
    *,
    is_checked: bool = False,
) -> PlannedLookup:
    """How an index looks keys up in some file slices.

    context: the table, with its properties as they are now.  new_file_id: names the new file group of a partition's bucket; None
    when the write makes none.  rings: of the partitions that the write touches, under CONSISTENT_HASHING.  is_checked: these
    slices went through `check_lookup`.
    Raises TableState when the index cannot answer for the table.
    """
    found = tuple(slices)
    if settings.buckets is not None:
        return _plan_buckets(context, snapshot, found, settings.buckets, rings, new_file_id, is_checked=is_checked)
    if settings.index_type in (IndexType.RECORD_INDEX, IndexType.RECORD_LEVEL_INDEX):
        name, index, by_partition = _record_index(settings, context, snapshot)
        places = tuple(FileGroupCandidate(s.partition, s.file_id, s) for s in found)
        return PlannedLookup(places, LookupByRecordIndex(index, by_partition), name)
    if settings.hbase is not None:
        return PlannedLookup(tuple(_place(snapshot, s) for s in found), by_hbase(settings.hbase, snapshot.timeline), "hbase")
    _refuse_groups_of_logs(settings.index_type, found)
    if settings.index_type in (IndexType.BLOOM, IndexType.GLOBAL_BLOOM):
        return _plan_filters(settings, context, snapshot, found)
    places = tuple(_place(snapshot, s) for s in found)
    if settings.index_type is IndexType.INMEMORY:
        evict_keys(context.storage, {s.partition for s in found}, (place.base for place in places))
        return PlannedLookup(places, LookupByKeyColumns(use_cache=True), "key columns in memory")
    return PlannedLookup(places, LookupByKeyColumns(), "key columns")


def depends_on_groups(settings: LookupSettings, *, is_cow: bool) -> bool:
    """Whether it is the file groups of a table that tell whether an index can answer for it."""
    asks_record_index = settings.index_type in (IndexType.RECORD_INDEX, IndexType.RECORD_LEVEL_INDEX)
    if settings.buckets is not None:
        return isinstance(settings.buckets, BucketLayout)
    return not (asks_record_index or is_cow or settings.hbase is not None)


def check_lookup(settings: LookupSettings, context: TableContext, snapshot: Snapshot, slices: Iterable[FileSlice]) -> None:
    """Raises InvalidRequest or TableState as `plan_write_lookup` would, before anything is begun, and stores nothing.

    slices: those that the write may touch, where the answer depends on groups; what rings refuse is found by who loads them.
    """
    if isinstance(settings.buckets, BucketLayout):
        stored = load_counts(context, snapshot.timeline)
        layout = settings.buckets if stored is None else settings.buckets.from_table_counts(stored)
        named = tuple(bucket_groups(slices, layout).values())
        _check_layout(context, snapshot, named, layout, _said_of_counts(layout))
    elif settings.buckets is None and settings.index_type in (IndexType.RECORD_INDEX, IndexType.RECORD_LEVEL_INDEX):
        _record_index(settings, context, snapshot)
    elif settings.buckets is None and settings.hbase is None:
        _refuse_groups_of_logs(settings.index_type, slices)


def _metadata_of(context: TableContext, snapshot: Snapshot) -> MetadataTable:
    """The metadata table of a state: the one that lists its files, which is open, unless the properties changed since."""
    known = snapshot.listing.metadata if isinstance(snapshot.listing, MetadataListing) else None
    if known is not None and known.data_context.config == context.config:
        return known
    return MetadataTable(context, snapshot.timeline)


def _said_of_counts(layout: BucketLayout) -> str:
    return f"{BUCKET_COUNT}={layout.count}" if layout.rules is None else f"{COUNT_RULES}={layout.rules}"


def _record_index(settings: LookupSettings, context: TableContext, snapshot: Snapshot) -> tuple[str, MetadataPartition, bool]:
    """Name and place of the record index that the settings ask, and whether it is partitioned."""
    metadata = _metadata_of(context, snapshot)
    answer = first_result(metadata, lambda kind, name: kind.key_locations(name, metadata))
    if answer is None:
        _check_not_dropped(context, snapshot)
        raise TableState(
            f"the table at {context.storage.uri} has no record index that is ready, which index {settings.index_type} asks"
        )
    name, index = answer
    by_partition = name in metadata.definitions and metadata.definitions[name].by_partition
    if by_partition is not (settings.index_type is IndexType.RECORD_LEVEL_INDEX):
        raise TableState(
            f"the record index of the table at {context.storage.uri} is {'' if by_partition else 'not '}partitioned, and "
            f"{INDEX_TYPE}={settings.index_type} asks one that is{' not' if by_partition else ''}"
        )
    return name, index, by_partition


def _check_not_dropped(context: TableContext, snapshot: Snapshot) -> None:
    """Raises SnapshotOutdated where the table has lost indexes since a state was loaded."""
    lost = set(snapshot.config.metadata_partitions) - set(context.reloaded().config.metadata_partitions)
    if lost:
        raise SnapshotOutdated(
            f"{', '.join(sorted(lost))} of {context.storage.uri} was dropped by another process since the table was loaded; load "
            "it again"
        )


def read_layout(options: Options) -> BucketLayout | None:
    """How a reader says that the table is bucketed; None when it does not, or does not want filters to go by it.

    Without a count it says so of a table that keeps counts by itself.
    """
    if options.value_or_default(INDEX_TYPE) != "BUCKET":
        return None
    # Buckets of a consistent hashing index are not fixed; such a table is read without skipping by bucket.
    if options.value_or_default(BUCKET_ENGINE) != "SIMPLE" or not options.flag(_BUCKET_PRUNING):
        return None
    return BucketLayout.of(options)


def _buckets(options: Options) -> BucketLayout | ConsistentHashingSettings:
    if options.value_or_default(BUCKET_ENGINE) == "SIMPLE":
        return BucketLayout.of(options)
    if options.text(COUNT_RULES):
        raise InvalidRequest(f"{COUNT_RULES} goes with {BUCKET_ENGINE}=SIMPLE; rings of partitions are resized by cluster()")
    return ConsistentHashingSettings.of(options)


def _plan_buckets(
    context: TableContext,
    snapshot: Snapshot,
    slices: tuple[FileSlice, ...],
    buckets: BucketLayout | ConsistentHashingSettings,
    rings: ConsistentHashingLayout | None,
    new_file_id: Callable[[str, int], str] | None,
    *,
    is_checked: bool,
) -> PlannedLookup:
    layout: Placement
    if isinstance(buckets, BucketLayout):
        layout = by_number = _with_counts(context, snapshot, buckets)
        named = tuple(bucket_groups(slices, by_number).values())
        said = _said_of_counts(by_number)
    else:
        assert rings is not None, "whoever writes by rings has loaded them"
        check_ring_groups(slices, rings)
        layout, named = rings, slices
        said = f"{HASH_FIELDS}={','.join(rings.hash_fields) or 'all key fields'}"
    if not (is_checked and isinstance(buckets, BucketLayout)):
        _check_layout(context, snapshot, named, layout, said)
    places = tuple(FileGroupCandidate(s.partition, s.file_id, s) for s in named)
    return PlannedLookup(places, LookupByBuckets(layout, new_file_id), "hash of the key")


def _with_counts(context: TableContext, snapshot: Snapshot, layout: BucketLayout) -> BucketLayout:
    """The layout by the counts that the table keeps; rules that come with its first write are kept from then on.

    A table that other writers began by rules, and that keeps none, goes on by those of its writers' options, as in Hudi.
    Raises InvalidRequest for options that say otherwise than the table.
    """
    stored = load_counts(context, snapshot.timeline)
    if stored is None and layout.rules is not None and snapshot.timeline.last_visible is None:
        store_first(context, BucketCounts(layout.rules, layout.count))
        stored = load_counts(context, snapshot.timeline)
    return layout if stored is None else layout.from_table_counts(stored)


def check_bucket_counts_unchanged(context: TableContext, planned: Timeline, current_timeline: Timeline, lookup: Lookup) -> None:
    """Raises WriteConflict where the table has other bucket counts than those by which a write has placed its rows.

    planned: the timeline that the write was planned on.
    """
    layout = lookup.layout if isinstance(lookup, LookupByBuckets) else None
    # Nothing else changes counts.
    if not isinstance(layout, BucketLayout) or set(current_timeline.completed(Action.REPLACECOMMIT)) <= set(
        planned.completed(Action.REPLACECOMMIT)
    ):
        return
    stored = load_counts(context, current_timeline)
    if stored is not None and (stored.expressions, stored.default) != (layout.rules, layout.count):
        raise WriteConflict(
            f"partitions of {context.storage.uri} were given other bucket counts meanwhile ({stored.expressions}, else "
            f"{stored.default}); plan the write again"
        )


def _check_layout(
    context: TableContext, snapshot: Snapshot, groups: Sequence[FileSlice], layout: Placement, recorded: str
) -> None:
    """Keys of some files lie in the buckets of their files, or the table was bucketed in another way.

    With another number of buckets about half of the keys lie elsewhere, so few keys of few files are asked: all of a small base
    file, of a larger one those that its footer tells; where there is none, those of the smallest log files.  recorded: the option
    that would be wrong.
    """
    with_base = [(slice_, slice_.base) for slice_ in groups if slice_.base is not None]
    for slice_, base in with_base[:_PROBED_FILES]:
        _check_bucket(context, layout, slice_, base.path, _some_keys(context, base), recorded)
    if with_base or snapshot.schema is None:
        return
    logs = [(log.size_bytes, log.path, slice_) for slice_ in groups for log in slice_.logs]
    reader = key_reader(context, with_meta_fields(snapshot.schema.arrow), InstantValidity.of(snapshot.timeline), snapshot.ids)
    for _, path, slice_ in sorted(logs, key=lambda found: found[:2])[:_PROBED_FILES]:
        alone = replace(slice_, logs=tuple(log for log in slice_.logs if log.path == path))
        for keys in read_live_keys(reader, alone):
            _check_bucket(context, layout, slice_, path, keys, recorded)


def _some_keys(context: TableContext, base: BaseFile) -> pa.StringArray:
    with open_base_file(context.storage, base.path) as file:
        if context.config.populate_meta_fields and file.metadata.num_rows <= _PROBED_ROWS:
            return file.read(columns=[RECORD_KEY], use_threads=False).column(0).cast(pa.string()).combine_chunks()
        return pa.array([k for name in (MIN_KEY, MAX_KEY) if (k := footer_text(file.metadata, name))], pa.string())


def _check_bucket(
    context: TableContext, layout: Placement, slice_: FileSlice, path: str, keys: pa.StringArray, recorded: str
) -> None:
    """Raises TableState for a key in a file of a bucket that is not its own."""
    bucket = layout.bucket_from_file_id(slice_.partition, slice_.file_id)
    paths = pa.repeat(pa.scalar(slice_.partition, pa.string()), len(keys))
    cells, rows = np.unique(layout.cells_for_keys(context.config.keys, keys, paths), return_index=True)
    for cell, row in zip(cells.tolist(), rows.tolist(), strict=True):
        told = layout.bucket_at(slice_.partition, cell)
        if told != bucket:
            raise TableState(
                f"record {keys[row].as_py()!r} stands in bucket {bucket} ({context.storage.absolute(path)}), and with "
                f"{recorded} its place is bucket {told}; every write has to give the "
                "number and the hash fields with which the table was begun"
            )


def _refuse_groups_of_logs(kind: IndexType, slices: Iterable[FileSlice]) -> None:
    lost = [slice_ for slice_ in slices if slice_.base is None]
    if lost:
        raise TableState(
            f"index {kind} looks keys up in base files, and {len(lost)} file groups have log files alone (such as "
            f"{lost[0].file_id} in {lost[0].partition or 'the table'}); compact the table first, or write with the index that it "
            "was written with"
        )


def _place(snapshot: Snapshot, slice_: FileSlice, key_range: tuple[str, str] | None = None) -> FileGroupCandidate:
    """A slice whose keys are read."""
    logs = slice_.logs if slice_.base is None else logs_with_uncovered_keys(slice_, snapshot.timeline)
    return FileGroupCandidate(slice_.partition, slice_.file_id, slice_, key_range, logs)


def _plan_filters(
    settings: LookupSettings, context: TableContext, snapshot: Snapshot, slices: tuple[FileSlice, ...]
) -> PlannedLookup:
    metadata = _metadata_of(context, snapshot)
    asked = settings.use_metadata and context.config.populate_meta_fields
    ranges = filters = None
    sources = []
    if settings.prune_by_ranges:
        partitions = sorted({slice_.partition for slice_ in slices})
        ranges = first_result(metadata, lambda kind, name: kind.key_ranges(name, metadata, partitions)) if asked else None
        sources.append("footers" if ranges is None else ranges[0])
    if asked:
        filters = first_result(metadata, lambda kind, name: kind.key_filters(name, metadata))
    sources.append("footers" if filters is None else filters[0])
    known = {} if ranges is None else ranges[1]
    places = tuple(_place(snapshot, s, known.get((s.partition, s.base.name.text)) if s.base else None) for s in slices)
    lookup = LookupByKeyFilters(settings.prune_by_ranges, ranges is not None, None if filters is None else filters[1])
    return PlannedLookup(places, lookup, " and ".join(dict.fromkeys(sources)))
