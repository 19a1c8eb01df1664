"""Data skipping: prune file slices of a filtered read with partition paths, statistics and indexes.

    1. partition paths against the filter
    2. partition statistics
    3. record keys in the filter, given directly, by all record key fields or through a secondary index: the record
       index returns the file groups. Or, if the caller declares the bucket layout: their buckets
    4. column statistics of files, and expression indexes with column statistics, if the filter uses the same function
    5. bloom filters of record keys and of expression indexes, for the remaining base files

Partition statistics, the record index and secondary indexes describe the table's newest state. They are used for
snapshot queries of the latest state only, while the metadata table is not ahead of the timeline that the query has
loaded. Statistics and bloom filters of files are valid at any time, since files are immutable.

Each index type (`metadata_table.indexes`) defines how it prunes; this module defines the order.

If data skipping fails, the query logs a warning and reads all files, unless `hoodie.fileIndex.dataSkippingFailureMode`
is `strict`.

Source: docs/formats/reading.md, "Data skipping".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Annotated

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.format.names import are_log_files
from pyhudi.format.parquet.page_checks import ChecksumMode
from pyhudi.format.paths import join_path
from pyhudi.metadata_table.indexes import readable
from pyhudi.metadata_table.indexes.index_pruning import BaseFilePruner, Filter
from pyhudi.metadata_table.indexes.metadata_index import Index
from pyhudi.metadata_table.reader.index_lookups import hashes_by_partition
from pyhudi.metadata_table.reader.metadata_listing import DAMAGE, MetadataListing, choose_listing, warn_metadata_unusable
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.operations.commit.commit_settings import delete_marker_setting
from pyhudi.operations.write.index_lookup import LAYOUT_OPTIONS, read_layout
from pyhudi.options import read_options
from pyhudi.options.declaration import Options, read_settings
from pyhudi.options.file_options import MERGE_USE_RECORD_POSITIONS
from pyhudi.options.index_options import METADATA_TABLE
from pyhudi.options.read_options import INDEXED_IN_UTC, READ_CHECKSUMS
from pyhudi.options.write_options import DELETE_FIELD, DELETE_MARKER
from pyhudi.planning.bucket_routing import BucketLayout, in_buckets
from pyhudi.planning.data_skipping import (
    count_groups,
    groups_with_candidates,
    has_candidate,
    key_hashes,
    with_alternative_key_forms,
)
from pyhudi.planning.partition_pruning import PruningStep, ReadPlan, plan_slices, prune_partitions
from pyhudi.records.filters.filter_ast import Expr
from pyhudi.records.keys.key_spec import path_valued_columns
from pyhudi.records.record_merge import DeleteMarker
from pyhudi.table.cached_property import cached_property
from pyhudi.table.file_slices import FileSlice
from pyhudi.table.partition_buckets import load_counts
from pyhudi.table.snapshot import ListingFactory, Snapshot, directory_listing
from pyhudi.tasks.read_slice import ReadSpec

MAX_FILTERED_FILES = 1024
"""Maximum number of base files for which bloom filters are read; with more files, reading footers is cheaper."""

_FILTERS_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """How a read finds its files.

    Attributes:
        use_metadata_table: List files with the metadata table.
        skip_data: Data skipping is enabled.
        strict: A failure of data skipping fails the query.
        buckets: Bucket layout, if the caller declares it.
        use_positions: Merge log records by row position where possible.
        marker: Marks log records as deletes, in addition to `_hoodie_is_deleted`.
        indexed_in_utc: Expression indexes were evaluated in UTC; their definitions record no time zone.
        checksums: When page checksums of base files are verified.
        external_files: Base files of other table formats are read. False for reads of an operation that changes the table.
    """

    use_metadata_table: Annotated[bool, METADATA_TABLE] = True
    skip_data: Annotated[bool, read_options.ENABLE_DATA_SKIPPING] = True
    strict: Annotated[bool, read_options.FILE_INDEX_DATA_SKIPPING_FAILURE_MODE] = False
    buckets: Annotated[BucketLayout | None, *LAYOUT_OPTIONS] = None
    use_positions: Annotated[bool, MERGE_USE_RECORD_POSITIONS] = True
    marker: Annotated[DeleteMarker | None, DELETE_FIELD, DELETE_MARKER] = None
    indexed_in_utc: Annotated[bool, INDEXED_IN_UTC] = False
    checksums: Annotated[ChecksumMode, READ_CHECKSUMS] = ChecksumMode.ONCE
    external_files: bool = False

    @classmethod
    def of(cls, options: Options) -> ReadSettings:
        """Build the settings of a reader from checked options. Raises InvalidRequest for a bucket count below 1."""
        return read_settings(
            cls,
            options,
            strict=options.value_or_default(read_options.FILE_INDEX_DATA_SKIPPING_FAILURE_MODE) == "strict",
            buckets=read_layout(options),
            marker=delete_marker_setting(options, combines_with_flag=True),
            external_files=True,
        )

    @property
    def listing(self) -> ListingFactory:
        """Return how snapshots list files."""
        return choose_listing if self.use_metadata_table else directory_listing


def plan_filtered_read(
    snapshot: Snapshot, spec: ReadSpec, settings: ReadSettings, *, as_of: str | None = None, base_files_only: bool = False
) -> ReadPlan:
    """Return the file slices that may have matching rows, and the pruning steps.

    Args:
        spec: Columns and condition.
        settings: How files are found.
        as_of: Request time of a time travel query.
        base_files_only: Return slices without log files, and omit slices without a base file.
    """
    every, schema = snapshot.listing.partitions(), spec.table_schema
    partitions, pruning = prune_partitions(every, spec.keys, schema, spec.condition, spec.path_columns)
    plan = None
    if spec.condition is not None and settings.skip_data and partitions:
        request = _Request(snapshot, spec, spec.condition, settings, as_of, base_files_only)
        try:
            plan = request.plan(partitions)
        except DAMAGE as error:
            if settings.strict or not request.used_index:
                raise
            warn_metadata_unusable(f"data skipping failed, and all files are read: {error}")
    if plan is None:
        plan = plan_slices(snapshot.slices(partitions, as_of), None)
        if base_files_only:
            plan = replace(plan, slices=_base_files(plan.slices))
    if not plan.slices and not base_files_only:
        snapshot.check_files_are_listed(as_of)
    return replace(plan, prunings=((pruning,) if pruning else ()) + plan.prunings)


@dataclass(slots=True)
class _Request:
    """One filtered read; ``used_index`` is True once an index was used, which may then be the cause of an error."""

    snapshot: Snapshot
    spec: ReadSpec
    condition: Expr
    settings: ReadSettings
    as_of: str | None
    base_files_only: bool
    used_index: bool = False
    prunings: list[PruningStep] = field(default_factory=list)

    @property
    def exclude_slices_with_logs(self) -> bool:
        """True if merging computes new values, which none of the files of a slice with log files may contain."""
        return not self.spec.rule.selects_one_side

    @property
    def unusable(self) -> frozenset[str]:
        """Columns that cannot be pruned by name: their values come from paths, files store them under other names or types,
        or indexes store them in an unknown unit.
        """
        path_valued = path_valued_columns(self.spec.keys) if self.spec.values_from_path else ()
        moved = () if self.spec.ids is None else self.spec.ids.moved()
        ambiguous = self.snapshot.config.columns_of_unknown_unit(self.spec.table_schema)
        return frozenset((*self.spec.path_columns, *path_valued, *moved, *ambiguous))

    @property
    def filter(self) -> Filter:
        """The condition, as passed to indexes."""
        spec = self.spec
        return Filter(
            self.condition,
            spec.table_schema,
            spec.keys,
            self.unusable,
            spec.populate_meta_fields,
            self.settings.indexed_in_utc,
            frozenset(path_valued_columns(spec.keys)) if spec.folder_values else frozenset(),
        )

    def plan(self, partitions: Sequence[str]) -> ReadPlan | None:
        listing = self.snapshot.listing
        indexes: _Indexes | None = None
        groups: dict[str, list[str]] | None = None
        by_keys = False
        excluded: frozenset[str] = frozenset()
        if isinstance(listing, MetadataListing) and (metadata := listing.metadata) is not None:
            self.used_index = True
            indexes = _Indexes(metadata, self.filter, self.prunings)
            if self.as_of is None and not self.base_files_only and not metadata.is_ahead:
                partitions = indexes.prune_partitions(partitions)
                groups = indexes.key_file_groups(partitions)
                by_keys = groups is not None
            candidates = None if by_keys else self._groups_with_candidates(indexes, listing, partitions)
            if candidates is not None:
                groups, excluded = candidates
        slices = self.snapshot.slices(partitions, self.as_of, groups, after_lookup=by_keys)
        remaining = [slice_ for partition in sorted(slices) for slice_ in slices[partition]]
        if self.base_files_only:
            remaining = list(_base_files(remaining))
        current = len(remaining)
        if excluded:
            remaining = [
                slice_
                for slice_ in remaining
                if has_candidate(slice_, excluded, exclude_slices_with_logs=self.exclude_slices_with_logs)
            ]
        if len(remaining) < current:
            # Files of older slices retained the group; those of the current slice do not match.
            self.prunings.append(PruningStep("statistics of current files", "file slices", len(remaining), current))
        if not by_keys:
            remaining = self._in_buckets(remaining)
            if indexes is not None:
                remaining = indexes.by_key_filters(remaining)
        return ReadPlan(tuple(remaining), tuple(self.prunings))

    def _groups_with_candidates(
        self, indexes: _Indexes, listing: MetadataListing, partitions: Sequence[str]
    ) -> tuple[dict[str, list[str]], frozenset[str]] | None:
        """Return the file groups with a file that may match, and the paths of their pruned files; None without statistics."""
        answers = indexes.pruned_files(partitions)
        if answers is None:
            return None
        step, excluded = answers
        names_table = listing.names(partitions)
        if names_table is None:
            return None
        hashes = hashes_by_partition(partitions)
        column = names_table.column("partition").combine_chunks().dictionary_encode()
        hashed = pa.array([hashes[partition] for partition in column.dictionary.to_pylist()], pa.string()).take(column.indices)
        listed = pc.binary_join_element_wise(hashed, names_table.column("name").combine_chunks(), "/")
        flags = pc.is_in(listed, value_set=excluded).to_numpy(zero_copy_only=False)
        if self.base_files_only:
            # Contents of log files do not matter here.
            flags = flags | are_log_files(names_table.column("name").combine_chunks()).to_numpy(zero_copy_only=False)
        if not flags.any():
            count = count_groups(names_table)
            self.prunings.append(PruningStep(step, "file groups", count, count))
            return None
        groups = groups_with_candidates(
            names_table, flags, exclude_slices_with_logs=self.exclude_slices_with_logs and not self.base_files_only
        )
        group_count = sum(map(len, groups.values()))
        self.prunings.append(PruningStep(step, "file groups", group_count, count_groups(names_table)))
        # Of the remaining groups, only pruned files matter from here on.
        ids = pa.array([file_id for listed in groups.values() for file_id in listed], pa.string())
        out = names_table.filter(pc.and_(pa.array(flags), pc.is_in(names_table.column("file_id"), value_set=ids)))
        paths = frozenset(map(join_path, out["partition"].to_pylist(), out["name"].to_pylist()))
        return groups, paths

    def _in_buckets(self, slices: list[FileSlice]) -> list[FileSlice]:
        if not self.unusable.isdisjoint(self.spec.keys.record_fields):
            return slices
        layout = self._layout()
        hashes = None if layout is None else key_hashes(self.condition, self.spec.keys, self.spec.table_schema, layout)
        if layout is None or hashes is None:
            return slices
        counts = {slice_.partition: layout.bucket_count(slice_.partition) for slice_ in slices}
        numbers = {count: frozenset(number % count for number in hashes) for count in set(counts.values())}
        remaining = [slice_ for slice_ in slices if in_buckets(slice_.file_id, numbers[counts[slice_.partition]])]
        self.prunings.append(PruningStep("buckets", "file slices", len(remaining), len(slices)))
        return remaining

    def _layout(self) -> BucketLayout | None:
        """Return the bucket layout of the snapshot; None if it is unknown."""
        layout = self.settings.buckets
        stored = None if layout is None else load_counts(self.snapshot.context, self.snapshot.timeline)
        if layout is None:
            return None
        if stored is None:
            return layout if layout.is_explicit else None
        if self.as_of is not None and self.as_of < stored.instant:
            # File groups from before a change of bucket counts do not follow the new counts.
            return None
        return layout.from_table_counts(stored)


class _Indexes:
    """The indexes of a table, applied to a filter; ``prunings`` records the steps."""

    def __init__(self, metadata: MetadataTable, row_filter: Filter, prunings: list[PruningStep]) -> None:
        self._metadata = metadata
        self._filter = row_filter
        self._prunings = prunings

    @cached_property
    def _readable(self) -> tuple[tuple[type[Index], str], ...]:
        return tuple(readable(self._metadata))

    def prune_partitions(self, partitions: Sequence[str]) -> Sequence[str]:
        """Return the partitions in which rows may match."""
        for index_class, index in self._readable:
            if len(partitions) < 2:
                # The statistics of its files prune what those of a single partition do.
                break
            pruned = index_class.pruned_partitions(index, self._metadata, self._filter)
            if pruned is not None:
                remaining = tuple(partition for partition in partitions if partition not in pruned)
                self._prunings.append(PruningStep(index_class.step(index), "partitions", len(remaining), len(partitions)))
                partitions = remaining
        return partitions

    def key_file_groups(self, partitions: Sequence[str]) -> dict[str, list[str]] | None:
        """Return the file groups with the record keys in the filter; None if it has none, or no index knows them."""
        metadata = self._metadata
        asking = ((kind, index, kind.locate_keys(index, metadata)) for kind, index in self._readable)
        finder = next(((kind.step(index), find) for kind, index, find in asking if find is not None), None)
        if finder is None:
            return None
        step, find = finder
        keys = self._filter.record_keys
        if keys is None:
            answers = ((kind.step(index), kind.matching_keys(index, metadata, self._filter)) for kind, index in self._readable)
            source, keys = next((answer for answer in answers if answer[1] is not None), ("", None))
            if keys is None:
                return None
            self._prunings.append(PruningStep(source, "record keys", len(keys), len(keys)))
            step = f"{step} of those keys"
        places = find(with_alternative_key_forms(keys, self._filter.keys))
        self._prunings.append(PruningStep(step, "record keys", places.num_rows, len(keys)))
        partition_set = frozenset(partitions)
        chosen = places.group_by(["partition", "file_id"]).aggregate([])
        groups: dict[str, list[str]] = {}
        for partition, file_id in zip(chosen["partition"].to_pylist(), chosen["file_id"].to_pylist(), strict=True):
            if partition in partition_set:
                groups.setdefault(partition, []).append(file_id)
        return groups

    def pruned_files(self, partitions: Sequence[str]) -> tuple[str, pa.StringArray] | None:
        """The files without matching rows, named as in `PrunedFiles.units`, and the index that pruned them; None if none did."""
        known: set[str] = set()
        pruned: list[pa.StringArray] = []
        steps = dict.fromkeys(["statistics of files"])
        for index_class, index in self._readable:
            answer = index_class.pruned_files(index, self._metadata, self._filter, partitions, known)
            if answer is not None:
                known.update(answer.columns)
                pruned.append(answer.units)
                if index_class.is_defined:
                    steps[index_class.step(index)] = None
        return (", ".join(steps), pa.concat_arrays(pruned)) if pruned else None

    def by_key_filters(self, slices: list[FileSlice]) -> list[FileSlice]:
        """Remove slices whose only file is a base file without matching rows."""
        for index_class, index in self._readable:
            find = index_class.prune_base_files(index, self._metadata, self._filter)
            if find is not None:
                slices = self._by_filters(index_class.step(index), find, slices)
        return slices

    def _by_filters(self, step: str, find: BaseFilePruner, slices: list[FileSlice]) -> list[FileSlice]:
        single = [(slice_.partition, slice_.base) for slice_ in slices if slice_.base is not None and not slice_.logs]
        if not single or len(single) > MAX_FILTERED_FILES:
            return slices
        pruned: set[str] = set()
        remaining = iter(single)
        while chunk := list(islice(remaining, _FILTERS_AT_ONCE)):
            pruned |= find(chunk)
        unpruned = [slice_ for slice_ in slices if slice_.logs or slice_.base is None or slice_.base.path not in pruned]
        self._prunings.append(PruningStep(step, "file slices", len(unpruned), len(slices)))
        return unpruned


def _base_files(slices: Sequence[FileSlice]) -> tuple[FileSlice, ...]:
    return tuple(replace(slice_, logs=()) for slice_ in slices if slice_.base is not None)
