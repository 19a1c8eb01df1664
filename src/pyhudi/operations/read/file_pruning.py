"""Planning a filtered read: which file slices remain after everything that can pass some over.

    1. partition paths against the filter
    2. statistics of partitions
    3. record keys that the filter names, directly, by all record key fields or by a secondary index: the record index tells the
       file groups.  Or, when the caller says how the table is bucketed: their buckets.
    4. statistics of files, and expression indexes of that kind, where the filter has the same function
    5. Bloom filters of record keys and of expression indexes, for the base files that are left

Statistics of partitions, the record index and secondary indexes speak of the table's newest state.  They are asked in snapshot
queries of now, and only while the metadata table is not ahead of the timeline that the query has loaded.  Statistics and Bloom
filters of files hold at any time, as files do not change.

What an index has to say of a filter says its kind (`metadata_table.indexes`); here is the order in which they are asked.

Whatever fails in here, the read goes on without skipping and says so in a warning, unless
`hoodie.fileIndex.dataSkippingFailureMode` is `strict`.

Source: docs/formats/reading.md, "Data skipping".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Annotated

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.format.paths import join_path
from pyhudi.metadata_table.indexes import readable
from pyhudi.metadata_table.indexes.index_pruning import BaseFilePruner, Filter
from pyhudi.metadata_table.indexes.metadata_index import Index
from pyhudi.metadata_table.reader.index_lookups import hashes_by_partition
from pyhudi.metadata_table.reader.metadata_listing import DAMAGE, MetadataListing, choose_listing, warn_metadata_unusable
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.metadata_table.writer.metadata_settings import METADATA_TABLE
from pyhudi.operations.commit.commit_settings import DELETE_FIELD, DELETE_MARKER, delete_marker_setting
from pyhudi.operations.write.index_lookup import LAYOUT_OPTIONS, read_layout
from pyhudi.options.declaration import Option, Options, read_settings
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
from pyhudi.tasks.base_file_writer import USE_POSITIONS
from pyhudi.tasks.read_slice import ReadSpec

MAX_FILTERED_FILES = 1024
"""Base files whose Bloom filters are asked; with more of them left, reading footers costs less than this."""

_FILTERS_AT_ONCE = 32


_FAILURE_MODE = Option(
    "hoodie.fileIndex.dataSkippingFailureMode",
    ("fallback", "strict"),
    "fallback",
    "a filtered read whose indexes are damaged reads everything, or fails",
)


INDEXED_IN_UTC = Option(
    "pyhudi.expression.index.utc",
    bool,
    "false",
    "all writers evaluated expression indexes in UTC, as filters are; else those that hang on the time zone are not asked",
)


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """How a read finds its files.  buckets: how the table is bucketed, when the caller says so.

    use_positions: whether logs and base files are merged by record positions where that can be done.  marker: what makes rows
    of log files deletes beside `_hoodie_is_deleted`.  indexed_in_utc: of expression indexes; no definition says in which zone.
    """

    use_metadata_table: Annotated[bool, METADATA_TABLE] = True
    skip_data: Annotated[
        bool,
        Option("hoodie.enable.data.skipping", bool, "true", "a filtered read asks indexes and statistics which files to read"),
    ] = True
    strict: Annotated[bool, _FAILURE_MODE] = False
    buckets: Annotated[BucketLayout | None, *LAYOUT_OPTIONS] = None
    use_positions: Annotated[bool, USE_POSITIONS] = True
    marker: Annotated[DeleteMarker | None, DELETE_FIELD, DELETE_MARKER] = None
    indexed_in_utc: Annotated[bool, INDEXED_IN_UTC] = False

    @classmethod
    def of(cls, options: Options) -> ReadSettings:
        """From checked options.  Raises InvalidRequest for a bucket count below 1."""
        return read_settings(
            cls,
            options,
            strict=options.value_or_default(_FAILURE_MODE) == "strict",
            buckets=read_layout(options),
            marker=delete_marker_setting(options, combines_with_flag=True),
        )

    @property
    def listing(self) -> ListingFactory:
        """How snapshots list files."""
        return choose_listing if self.use_metadata_table else directory_listing


def plan_filtered_read(
    snapshot: Snapshot, spec: ReadSpec, settings: ReadSettings, *, as_of: str | None = None, base_files_only: bool = False
) -> ReadPlan:
    """The slices that may hold rows of the condition, and what passed the others over.

    as_of: a request time; base_files_only: slices come without their logs, and those without a base file not at all.
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
            warn_metadata_unusable(f"data skipping failed, and everything is read instead: {error}")
    if plan is None:
        plan = plan_slices(snapshot.slices(partitions, as_of), None)
        if base_files_only:
            plan = replace(plan, slices=_base_files(plan.slices))
    return replace(plan, prunings=((pruning,) if pruning else ()) + plan.prunings)


@dataclass(slots=True)
class _Request:
    """One filtered read.  asked: whether an index was asked, so that what fails now may be its fault."""

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
        """Where merging makes new records, a slice with logs may hold what none of its files does."""
        return not self.spec.rule.selects_one_side

    @property
    def unusable(self) -> frozenset[str]:
        """Columns of which indexes say nothing by their names: their values come from paths, whatever the files hold, or files
        have them under other names or types.
        """
        all_told = path_valued_columns(self.spec.keys) if self.spec.values_from_path else ()
        moved = () if self.spec.ids is None else self.spec.ids.moved()
        return frozenset((*self.spec.path_columns, *all_told, *moved))

    @property
    def filter(self) -> Filter:
        """The condition as indexes are asked for it."""
        spec = self.spec
        return Filter(
            self.condition,
            spec.table_schema,
            spec.keys,
            self.unusable,
            spec.populate_meta_fields,
            self.settings.indexed_in_utc,
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
            found = None if by_keys else self._groups_with_candidates(indexes, listing, partitions)
            if found is not None:
                groups, excluded = found
        slices = self.snapshot.slices(partitions, self.as_of, groups)
        kept = [slice_ for partition in sorted(slices) for slice_ in slices[partition]]
        if self.base_files_only:
            kept = list(_base_files(kept))
        current = len(kept)
        if excluded:
            kept = [
                slice_
                for slice_ in kept
                if has_candidate(slice_, excluded, exclude_slices_with_logs=self.exclude_slices_with_logs)
            ]
        if len(kept) < current:
            # Files of older slices kept the group; those of the present one do not.
            self.prunings.append(PruningStep("statistics of present files", "file slices", len(kept), current))
        if not by_keys:
            kept = self._in_buckets(kept)
            if indexes is not None:
                kept = indexes.by_key_filters(kept)
        return ReadPlan(tuple(kept), tuple(self.prunings))

    def _groups_with_candidates(
        self, indexes: _Indexes, listing: MetadataListing, partitions: Sequence[str]
    ) -> tuple[dict[str, list[str]], frozenset[str]] | None:
        """The file groups with a file that may match, and the paths of their files that cannot; None when statistics say
        nothing.
        """
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
            # What the logs hold is not asked for.
            flags = flags | pc.starts_with(names_table.column("name"), ".").to_numpy()
        if not flags.any():
            count = count_groups(names_table)
            self.prunings.append(PruningStep(step, "file groups", count, count))
            return None
        groups = groups_with_candidates(
            names_table, flags, exclude_slices_with_logs=self.exclude_slices_with_logs and not self.base_files_only
        )
        kept = sum(map(len, groups.values()))
        self.prunings.append(PruningStep(step, "file groups", kept, count_groups(names_table)))
        # Of the groups that are left, only the files that are excluded matter from here on.
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
        kept = [slice_ for slice_ in slices if in_buckets(slice_.file_id, numbers[counts[slice_.partition]])]
        self.prunings.append(PruningStep("buckets", "file slices", len(kept), len(slices)))
        return kept

    def _layout(self) -> BucketLayout | None:
        """How the table is bucketed in the state that is read; None where nobody says."""
        layout = self.settings.buckets
        stored = None if layout is None else load_counts(self.snapshot.context, self.snapshot.timeline)
        if layout is None:
            return None
        if stored is None:
            return layout if layout.is_explicit else None
        if self.as_of is not None and self.as_of < stored.instant:
            # File groups of before other counts began do not go by them.
            return None
        return layout.from_table_counts(stored)


class _Indexes:
    """The indexes of a table, asked what a filter can pass over: each step by those kinds that have an answer to it.

    prunings: receives what the steps left over.
    """

    def __init__(self, metadata: MetadataTable, row_filter: Filter, prunings: list[PruningStep]) -> None:
        self._metadata = metadata
        self._filter = row_filter
        self._prunings = prunings

    @cached_property
    def _readable(self) -> tuple[tuple[type[Index], str], ...]:
        return tuple(readable(self._metadata))

    def prune_partitions(self, partitions: Sequence[str]) -> Sequence[str]:
        """Some partitions of the table without those in which no row matches."""
        for kind, index in self._readable:
            if not partitions or partitions == ("",):
                break
            gone = kind.pruned_partitions(index, self._metadata, self._filter)
            if gone is not None:
                kept = tuple(partition for partition in partitions if partition not in gone)
                self._prunings.append(PruningStep(kind.step(index), "partitions", len(kept), len(partitions)))
                partitions = kept
        return partitions

    def key_file_groups(self, partitions: Sequence[str]) -> dict[str, list[str]] | None:
        """The file groups that hold the record keys which the filter names; None when it names none, or no index knows."""
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
        wanted = frozenset(partitions)
        chosen = places.group_by(["partition", "file_id"]).aggregate([])
        groups: dict[str, list[str]] = {}
        for partition, file_id in zip(chosen["partition"].to_pylist(), chosen["file_id"].to_pylist(), strict=True):
            if partition in wanted:
                groups.setdefault(partition, []).append(file_id)
        return groups

    def pruned_files(self, partitions: Sequence[str]) -> tuple[str, pa.StringArray] | None:
        """The files in which no row matches, as `PrunedFiles.units` names them, and who says so; None when no index says
        anything.
        """
        known: set[str] = set()
        found: list[pa.StringArray] = []
        steps = dict.fromkeys(["statistics of files"])
        for kind, index in self._readable:
            answer = kind.pruned_files(index, self._metadata, self._filter, partitions, known)
            if answer is not None:
                known.update(answer.columns)
                found.append(answer.units)
                if kind.is_defined:
                    steps[kind.step(index)] = None
        return (", ".join(steps), pa.concat_arrays(found)) if found else None

    def by_key_filters(self, slices: list[FileSlice]) -> list[FileSlice]:
        """The slices without those whose only file is a base file in which no row matches."""
        for kind, index in self._readable:
            find = kind.prune_base_files(index, self._metadata, self._filter)
            if find is not None:
                slices = self._by_filters(kind.step(index), find, slices)
        return slices

    def _by_filters(self, step: str, find: BaseFilePruner, slices: list[FileSlice]) -> list[FileSlice]:
        single = [(slice_.partition, slice_.base) for slice_ in slices if slice_.base is not None and not slice_.logs]
        if not single or len(single) > MAX_FILTERED_FILES:
            return slices
        gone: set[str] = set()
        remaining = iter(single)
        while chunk := list(islice(remaining, _FILTERS_AT_ONCE)):
            gone |= find(chunk)
        kept = [slice_ for slice_ in slices if slice_.logs or slice_.base is None or slice_.base.path not in gone]
        self._prunings.append(PruningStep(step, "file slices", len(kept), len(slices)))
        return kept


def _base_files(slices: Sequence[FileSlice]) -> tuple[FileSlice, ...]:
    return tuple(replace(slice_, logs=()) for slice_ in slices if slice_.base is not None)
