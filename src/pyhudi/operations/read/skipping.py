"""Planning a filtered read: which file slices remain after everything that can pass some over.

    1. partition paths against the filter
    2. statistics of partitions
    3. record keys that the filter names, directly, by all record key fields or by a secondary index: the record index tells the
       file groups.  Or, when the caller says how the table is bucketed: their buckets.
    4. statistics of files, and identity expression indexes of that kind
    5. Bloom filters of record keys, for the base files that are left

Statistics of partitions, the record index and secondary indexes speak of the table's newest state.  They are asked in snapshot
queries of now, and only while the metadata table is not ahead of the timeline that the query has loaded.  Statistics and Bloom
filters of files hold at any time, as files do not change.

Expression indexes answer for the expression that they are built on and no other.  Filters have no functions, so those of the
function `identity` alone are asked; the others never are.

Whatever fails in here, the read goes on without skipping and says so in a warning, unless
`hoodie.fileIndex.dataSkippingFailureMode` is `strict`.

Source: docs/formats/reading.md, "Data skipping".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Annotated

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest
from pyhudi.execute.base_file import USE_POSITIONS
from pyhudi.execute.read_slice import ReadSpec
from pyhudi.format.bloom import BloomFilter
from pyhudi.format.index_definitions import IndexDefinition
from pyhudi.format.metadata.partitions import (
    BLOOM_FILTERS,
    COLUMN_STATS,
    EXPRESSION_INDEX_PREFIX,
    PARTITION_STATS,
    RECORD_INDEX,
)
from pyhudi.format.paths import join_path
from pyhudi.operations.action.settings import DELETE_FIELD, DELETE_MARKER, delete_marker
from pyhudi.operations.metadata.settings import METADATA_TABLE
from pyhudi.operations.write.lookup import LAYOUT_OPTIONS, has_counts_by_partition, read_layout
from pyhudi.plan.buckets import BucketLayout, in_buckets
from pyhudi.plan.read import Pruning, ReadPlan, plan_slices, prune_partitions
from pyhudi.plan.skipping import (
    bucket_numbers,
    columns_with_statistics,
    count_groups,
    excluded_units,
    groups_with_candidates,
    has_candidate,
    has_reliable_partition_bounds,
    record_key_texts,
    secondary_texts,
    with_other_spelling,
)
from pyhudi.records.columns import field_at
from pyhudi.records.filters.tree import Expr
from pyhudi.records.keys.spec import path_valued_columns
from pyhudi.records.merge import DeleteMarker
from pyhudi.records.metadata_keys import bloom_filter_keys, file_hashes
from pyhudi.settings import Option, Options, read_settings
from pyhudi.table.metadata.indexes import (
    find_bloom_filters,
    find_column_stats,
    find_partition_stats,
    find_records,
    find_secondary_keys,
    hashes_of_partitions,
    layout_of,
    partition_hashes,
    secondary_indexes,
)
from pyhudi.table.metadata.listing import DAMAGE, MetadataListing, choose_listing, warn_of_damage
from pyhudi.table.metadata.records import MetadataTable
from pyhudi.table.slices import FileSlice
from pyhudi.table.snapshot import ListingFactory, Snapshot, directory_listing

MAX_FILTERED_FILES = 1024
"""Base files whose Bloom filters are asked; with more of them left, reading footers costs less than this."""

_FILTERS_AT_ONCE = 32
_IDENTITY = "identity"


_FAILURE_MODE = Option(
    "hoodie.fileIndex.dataSkippingFailureMode",
    ("fallback", "strict"),
    "fallback",
    "a filtered read whose indexes are damaged reads everything, or fails",
)


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """How a read finds its files.  buckets: how the table is bucketed, when the caller says so.

    use_positions: whether logs and base files are merged by record positions where that can be done.  marker: what makes rows
    of log files deletes beside `_hoodie_is_deleted`.
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

    @classmethod
    def of(cls, options: Options) -> ReadSettings:
        """From checked options.  Raises InvalidRequest for a bucket count below 1."""
        return read_settings(
            cls,
            options,
            strict=options.word(_FAILURE_MODE) == "strict",
            buckets=read_layout(options),
            marker=delete_marker(options, beside_flag=True),
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
            if settings.strict or not request.asked:
                raise
            warn_of_damage(f"data skipping failed, and everything is read instead: {error}")
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
    asked: bool = False
    prunings: list[Pruning] = field(default_factory=list)

    @property
    def keep_logs(self) -> bool:
        """Where merging makes new records, a slice with logs may hold what none of its files does."""
        return not self.spec.rule.picks

    @property
    def unusable(self) -> frozenset[str]:
        """Columns of which indexes say nothing by their names: their values come from paths, whatever the files hold, or files
        have them under other names or types.
        """
        all_told = path_valued_columns(self.spec.keys) if self.spec.values_from_path else ()
        moved = () if self.spec.ids is None else self.spec.ids.moved()
        return frozenset((*self.spec.path_columns, *all_told, *moved))

    def plan(self, partitions: Sequence[str]) -> ReadPlan | None:
        listing = self.snapshot.listing
        metadata = listing.metadata if isinstance(listing, MetadataListing) else None
        groups: dict[str, list[str]] | None = None
        by_keys = False
        if metadata is not None:
            self.asked = True
            if self.as_of is None and not self.base_files_only and not metadata.is_ahead:
                partitions = self._prune_partitions(metadata, partitions)
                groups = self._groups_of_keys(metadata, partitions)
                by_keys = groups is not None
        excluded: frozenset[str] = frozenset()
        if metadata is not None and isinstance(listing, MetadataListing) and not by_keys:
            found = self._groups_with_candidates(metadata, listing, partitions)
            if found is not None:
                groups, excluded = found
        slices = self.snapshot.slices(partitions, self.as_of, groups)
        kept = [slice_ for partition in sorted(slices) for slice_ in slices[partition]]
        if self.base_files_only:
            kept = list(_base_files(kept))
        current = len(kept)
        if excluded:
            kept = [slice_ for slice_ in kept if has_candidate(slice_, excluded, keep_logs=self.keep_logs)]
        if len(kept) < current:
            # Files of older slices kept the group; those of the present one do not.
            self.prunings.append(Pruning("statistics of present files", "file slices", len(kept), current))
        if not by_keys:
            kept = self._in_buckets(kept)
            if metadata is not None:
                kept = self._by_expression_filters(metadata, self._by_key_filters(metadata, kept))
        return ReadPlan(tuple(kept), tuple(self.prunings))

    def _prune_partitions(self, metadata: MetadataTable, partitions: Sequence[str]) -> Sequence[str]:
        definition = metadata.definitions.get(COLUMN_STATS)
        if PARTITION_STATS not in metadata.partitions or definition is None or not partitions or partitions == ("",):
            return partitions
        schema = self.spec.table_schema
        names = [
            name
            for name in columns_with_statistics(self.condition, schema, definition.source_fields, self.unusable)
            if has_reliable_partition_bounds(field_at(schema, name).type)
        ]
        if not names:
            return partitions
        stats = find_partition_stats(metadata, names)
        excluded = excluded_units(self.condition, schema, names, stats, stats.column("file_name"), of_partitions=True)
        gone = frozenset(excluded.to_pylist())
        kept = tuple(partition for partition in partitions if partition not in gone)
        self.prunings.append(Pruning("partition statistics", "partitions", len(kept), len(partitions)))
        return kept

    def _groups_of_keys(self, metadata: MetadataTable, partitions: Sequence[str]) -> dict[str, list[str]] | None:
        """The file groups that hold the record keys which the filter names; None when it names none, or no index knows."""
        if RECORD_INDEX not in metadata.partitions:
            return None
        keys = self._record_keys()
        step = "record index"
        if keys is None:
            for name, index in secondary_indexes(metadata).items():
                texts = None if name.split(".")[0] in self.unusable else self._secondary_texts(name, layout_of(metadata, index))
                if texts is not None:
                    keys = find_secondary_keys(metadata, index, texts) if len(texts) else texts
                    self.prunings.append(Pruning(f"secondary index {index}", "record keys", len(keys), len(keys)))
                    step = "record index of those keys"
                    break
        if keys is None:
            return None
        places = find_records(metadata, with_other_spelling(keys, self.spec.keys))
        self.prunings.append(Pruning(step, "record keys", places.num_rows, len(keys)))
        wanted = frozenset(partitions)
        chosen = places.group_by(["partition", "file_id"]).aggregate([])
        groups: dict[str, list[str]] = {}
        for partition, file_id in zip(chosen["partition"].to_pylist(), chosen["file_id"].to_pylist(), strict=True):
            if partition in wanted:
                groups.setdefault(partition, []).append(file_id)
        return groups

    def _record_keys(self) -> pa.StringArray | None:
        keys = self.spec.keys
        if not self.unusable.isdisjoint(keys.record_fields):
            keys = replace(keys, record_fields=())
        return record_key_texts(self.condition, keys, self.spec.table_schema, has_meta_columns=self.spec.populate_meta_fields)

    def _secondary_texts(self, name: str, layout: int) -> pa.StringArray | None:
        try:
            return secondary_texts(self.condition, self.spec.table_schema, name, layout)
        except InvalidRequest:
            # The index is over a column that the table no longer has; the filter cannot name it either.
            return None

    def _groups_with_candidates(
        self, metadata: MetadataTable, listing: MetadataListing, partitions: Sequence[str]
    ) -> tuple[dict[str, list[str]], frozenset[str]] | None:
        """The file groups with a file that may match, and the paths of their files that cannot; None when statistics say
        nothing.
        """
        excluded: list[pa.StringArray] = []
        for index, names in self._statistics(metadata):
            stats = find_column_stats(metadata, names, partitions, index=index)
            if index != COLUMN_STATS:
                # Expression indexes count values without nulls.
                at = stats.schema.get_field_index("value_count")
                stats = stats.set_column(at, stats.schema.field(at), pc.add(stats["value_count"], stats["null_count"]))
            units = pc.binary_join_element_wise(partition_hashes(stats), stats.column("file_name"), "/")
            excluded.append(excluded_units(self.condition, self.spec.table_schema, names, stats, units))
        if not excluded:
            return None
        names_table = listing.names(partitions)
        if names_table is None:
            return None
        hashes = hashes_of_partitions(partitions)
        column = names_table.column("partition").combine_chunks().dictionary_encode()
        hashed = pa.array([hashes[partition] for partition in column.dictionary.to_pylist()], pa.string()).take(column.indices)
        listed = pc.binary_join_element_wise(hashed, names_table.column("name").combine_chunks(), "/")
        flags = pc.is_in(listed, value_set=pa.concat_arrays(excluded)).to_numpy(zero_copy_only=False)
        if self.base_files_only:
            # What the logs hold is not asked for.
            flags = flags | pc.starts_with(names_table.column("name"), ".").to_numpy()
        if not flags.any():
            count = count_groups(names_table)
            self.prunings.append(Pruning("statistics of files", "file groups", count, count))
            return None
        groups = groups_with_candidates(names_table, flags, keep_logs=self.keep_logs and not self.base_files_only)
        kept = sum(map(len, groups.values()))
        self.prunings.append(Pruning("statistics of files", "file groups", kept, count_groups(names_table)))
        # Of the groups that are left, only the files that are excluded matter from here on.
        ids = pa.array([file_id for listed in groups.values() for file_id in listed], pa.string())
        out = names_table.filter(pc.and_(pa.array(flags), pc.is_in(names_table.column("file_id"), value_set=ids)))
        paths = frozenset(map(join_path, out["partition"].to_pylist(), out["name"].to_pylist()))
        return groups, paths

    def _statistics(self, metadata: MetadataTable) -> Iterator[tuple[str, list[str]]]:
        """Indexes with statistics of files, and the columns of the filter that each covers."""
        schema = self.spec.table_schema
        definition = metadata.definitions.get(COLUMN_STATS)
        covered: list[str] = []
        if COLUMN_STATS in metadata.partitions and definition is not None:
            covered = columns_with_statistics(self.condition, schema, definition.source_fields, self.unusable)
            if covered:
                yield COLUMN_STATS, covered
        for name, index in _identity_indexes(metadata, COLUMN_STATS).items():
            if name not in covered and columns_with_statistics(self.condition, schema, [name], self.unusable):
                yield index, [name]

    def _in_buckets(self, slices: list[FileSlice]) -> list[FileSlice]:
        if not self.unusable.isdisjoint(self.spec.keys.record_fields):
            return slices
        if self.settings.buckets is None or has_counts_by_partition(self.snapshot.context.storage):
            return slices
        numbers = bucket_numbers(self.condition, self.spec.keys, self.spec.table_schema, self.settings.buckets)
        if numbers is None:
            return slices
        kept = [slice_ for slice_ in slices if in_buckets(slice_.file_id, numbers)]
        self.prunings.append(Pruning("buckets", "file slices", len(kept), len(slices)))
        return kept

    def _by_key_filters(self, metadata: MetadataTable, slices: list[FileSlice]) -> list[FileSlice]:
        if BLOOM_FILTERS not in metadata.partitions:
            return slices
        keys = self._record_keys()
        return (
            slices
            if keys is None
            else self._by_filters(metadata, BLOOM_FILTERS, with_other_spelling(keys, self.spec.keys), slices)
        )

    def _by_expression_filters(self, metadata: MetadataTable, slices: list[FileSlice]) -> list[FileSlice]:
        for name, index in _identity_indexes(metadata, BLOOM_FILTERS).items():
            is_text = name in self.spec.table_schema.names and pa.types.is_string(self.spec.table_schema.field(name).type)
            texts = self._secondary_texts(name, 1) if is_text and name not in self.unusable else None
            if texts is not None:
                slices = self._by_filters(metadata, index, texts, slices)
        return slices

    def _by_filters(self, metadata: MetadataTable, index: str, texts: pa.StringArray, slices: list[FileSlice]) -> list[FileSlice]:
        """The slices without those whose only file is a base file with a filter that has none of the texts."""
        single = [slice_ for slice_ in slices if slice_.base is not None and not slice_.logs]
        if not single or len(single) > MAX_FILTERED_FILES:
            return slices
        gone: set[tuple[str, str]] = set()
        remaining = iter(single)
        while chunk := list(islice(remaining, _FILTERS_AT_ONCE)):
            gone.update(_without_texts(metadata, index, texts, chunk))
        kept = [slice_ for slice_ in slices if (slice_.partition, slice_.file_id) not in gone]
        step = "Bloom filters" if index == BLOOM_FILTERS else f"Bloom filters of {index}"
        self.prunings.append(Pruning(step, "file slices", len(kept), len(slices)))
        return kept


def _without_texts(
    metadata: MetadataTable, index: str, texts: pa.StringArray, slices: Sequence[FileSlice]
) -> Iterator[tuple[str, str]]:
    """(partition, file id) of the slices whose base file has a filter that has none of the texts."""
    names: dict[str, list[str]] = {}
    for slice_ in slices:
        assert slice_.base is not None, "slices without a base file have no filter"
        names.setdefault(slice_.partition, []).append(slice_.base.name.text)
    found = find_bloom_filters(metadata, names, index)
    filters = {
        key: (code, text)
        for key, code, text in zip(
            found["key"].to_pylist(), found["type_code"].to_pylist(), found["bloom_filter"].to_pylist(), strict=True
        )
    }
    for slice_ in slices:
        assert slice_.base is not None, "slices without a base file have no filter"
        key = bloom_filter_keys(slice_.partition, file_hashes([slice_.base.name.text]))[0].as_py()
        entry = filters.get(key)
        if entry is None:
            continue
        stored = BloomFilter.from_text(entry[1].decode("ascii", "replace"), entry[0])
        if not len(texts) or not np.asarray(stored.might_contain(texts), dtype=np.bool_).any():
            yield slice_.partition, slice_.file_id


def _identity_indexes(metadata: MetadataTable, kind: str) -> Mapping[str, str]:
    """Column -> expression index of a kind that holds the column's own values."""
    return {
        definition.source_fields[0]: name
        for name, definition in metadata.definitions.items()
        if name in metadata.partitions and definition.kind == kind and _is_identity(name, definition)
    }


def _is_identity(name: str, definition: IndexDefinition) -> bool:
    function = definition.option("expr") or definition.function
    return name.startswith(EXPRESSION_INDEX_PREFIX) and function == _IDENTITY and len(definition.source_fields) == 1


def _base_files(slices: Sequence[FileSlice]) -> tuple[FileSlice, ...]:
    return tuple(replace(slice_, logs=()) for slice_ in slices if slice_.base is not None)
