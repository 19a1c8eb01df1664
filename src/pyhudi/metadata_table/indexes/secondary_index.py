"""Secondary indexes: which record keys have a value in a column.

A record is a pair of value and record key; which pairs came and which left is found out by reading each file group that a commit
writes or replaces, before it and after it.  Compactions and clusterings change none.

Source: docs/formats/metadata-table.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest
from pyhudi.format.index_definitions import IndexDefinition
from pyhudi.format.meta_columns import with_meta_fields
from pyhudi.format.names import parse_base_file, parse_log_file
from pyhudi.format.paths import file_name
from pyhudi.metadata_table.codecs.metadata_partitions import RECORD_INDEX, SECONDARY_INDEX_PREFIX
from pyhudi.metadata_table.codecs.secondary_index_codec import routing_prefixes
from pyhudi.metadata_table.file_group_merge import BARE_KEYS, CellMergeRule
from pyhudi.metadata_table.file_tasks import KeyRecords, KeySource, bare_records
from pyhudi.metadata_table.index_tasks import SecondaryIndex, SecondaryTask, run_secondary, secondary_keys, secondary_reader
from pyhudi.metadata_table.indexes.index_events import CommitPrepared, CommitPublishing, IndexBuild, slice_reader
from pyhudi.metadata_table.indexes.index_pruning import Filter
from pyhudi.metadata_table.indexes.index_validation import CheckedTable, IndexFindings, some_keys
from pyhudi.metadata_table.indexes.metadata_index import Dependency, Index, IndexUpdate, single_column_definition
from pyhudi.metadata_table.reader.cell_merge import concat_cells
from pyhudi.metadata_table.reader.index_lookups import (
    find_secondary_keys,
    find_secondary_values,
    index_layout,
    secondary_indexes,
    stale_secondary_indexes,
)
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.metadata_table.writer.metadata_settings import MetadataSettings
from pyhudi.metadata_table.writer.metadata_store import MetadataStore, in_threads
from pyhudi.records.dotted_columns import field_at
from pyhudi.records.java_strings import has_text, is_binary_like
from pyhudi.table.file_slices import BaseFile, FileSlice, LogFile


@dataclass(frozen=True, slots=True)
class _SecondaryKeyChanges:
    """What a commit changes in one index.  sources: side files; shards: the number of file groups that they are routed by."""

    sources: tuple[KeySource, ...]
    shards: int


@dataclass(frozen=True, slots=True)
class SecondaryKeyIndex(Index):
    """A partition `secondary_index_<name>`.  column: dotted name; layout: of its records."""

    column: str
    layout: int = 1

    layouts: ClassVar[tuple[int, ...]] = (1, 2)
    partition_type: ClassVar[str] = SECONDARY_INDEX_PREFIX
    is_defined: ClassVar[bool] = True
    needs: ClassVar[Dependency | None] = Dependency(RECORD_INDEX, "a secondary index needs the record index", "that")
    merge: ClassVar[CellMergeRule] = BARE_KEYS
    key_records: ClassVar[KeyRecords | None] = staticmethod(bare_records)

    @classmethod
    def open(cls, partition: str, definition: IndexDefinition | None) -> Self:
        definition, column = single_column_definition(definition, "a secondary index")
        return cls(partition, column, definition.layout)

    def check_columns(self, schema: pa.Schema) -> None:
        type_ = field_at(schema, self.column).type
        if not has_text(type_) or pa.types.is_floating(type_) or is_binary_like(type_):
            raise InvalidRequest(
                f"a secondary index cannot be over {self.column}: values of type {type_} have no text beyond doubt"
            )

    def routed(self, shards: int) -> SecondaryIndex:
        """What tasks need of it.  shards: its file groups."""
        return SecondaryIndex(self.partition, self.column, shards, self.layout)

    @classmethod
    def prepare(cls, indexes: Sequence[Self], write: CommitPrepared) -> Mapping[str, _SecondaryKeyChanges]:
        routed = tuple(index.routed(write.store.groups.count(index.partition)) for index in indexes)
        found: Mapping[str, tuple[KeySource, ...]] = {}
        if write.schema is not None and write.operation.changes_rows:
            stored, defaults = with_meta_fields(write.schema), write.snapshot.defaults
            reader = slice_reader(write.context, stored, write.validity, defaults=defaults, ids=None)
            reader = secondary_reader(reader, routed)
            after = write.validity.including(write.time)
            tasks = [
                SecondaryTask(reader, after, old, new, routed, write.time, f"{file_id}_{number}")
                for number, (file_id, old, new) in enumerate(_changed_slices(write))
            ]
            run = write.engine.map(run_secondary, tasks) if write.engine is not None else in_threads(run_secondary, tasks)
            found = _key_sources(path for part in run for path in part)
        return {index.partition: _SecondaryKeyChanges(found.get(index.partition, ()), index.shards) for index in routed}

    def is_still_valid(self, prepared: Any, store: MetadataStore) -> bool:
        return bool(prepared.shards == store.groups.count(self.partition))

    def updates_for_commit(self, commit: CommitPublishing) -> IndexUpdate:
        return IndexUpdate(keys=commit.prepared[self.partition].sources)

    def group_count(self, settings: MetadataSettings, row_count: Callable[[], int]) -> int:
        return settings.key_group_count(row_count())

    def build(self, state: IndexBuild, time: str, shards: int) -> IndexUpdate:
        index = self.routed(shards)
        reader = secondary_reader(
            slice_reader(state.table, state.schema, state.validity, defaults=state.snapshot.defaults, ids=state.snapshot.ids),
            (index,),
        )
        tasks = [
            SecondaryTask(reader, state.validity, None, slice_, (index,), time, f"{slice_.file_id}_{number}")
            for number, slice_ in enumerate(state.slices)
        ]
        found = _key_sources(path for part in state.engine.map(run_secondary, tasks) for path in part)
        return IndexUpdate(keys=found.get(self.partition, ()))

    @classmethod
    def step(cls, partition: str) -> str:
        return f"secondary index {partition}"

    @classmethod
    def matching_keys(cls, partition: str, metadata: MetadataTable, row_filter: Filter) -> pa.StringArray | None:
        column = next((column for column, index in secondary_indexes(metadata).items() if index == partition), None)
        texts = None if column is None else row_filter.matching_texts(column, index_layout(metadata, partition))
        if texts is None:
            return None
        return find_secondary_keys(metadata, partition, texts) if len(texts) else texts

    def skip_check_reason(self, table: CheckedTable) -> str | None:
        if self.partition not in stale_secondary_indexes(table.metadata):
            return None
        return "releases 1.1 and 1.2 do not keep it up to date behind another one, and no read asks it"

    def check(self, table: CheckedTable) -> IndexFindings:
        """Every pair of value and record key of the rows is there; none besides."""
        found = IndexFindings()
        index = self.routed(0)
        reader = secondary_reader(
            slice_reader(table.context, table.schema, table.validity, defaults=table.snapshot.defaults, ids=table.snapshot.ids),
            (index,),
        )
        total = 0
        for slice_ in table.slices:
            keys = secondary_keys(reader, slice_, (index,))[self.partition]
            total += len(keys)
            if not len(keys):
                continue
            routes = routing_prefixes(keys) if self.layout > 1 else None
            cells = [part.keys for part in concat_cells(table.metadata.lookup(self.partition, keys, routes))]
            known = pa.concat_arrays([pa.array([], pa.binary()), *cells]).cast(pa.string())
            missing = keys.filter(pc.invert(pc.is_in(keys, value_set=known)))
            if len(missing):
                what = f"{slice_.file_id}: {len(missing)} pairs of value and record key are missing: {some_keys(missing)}"
                found.add_error(slice_.partition, what)
        stored = sum(len(keys) for _, keys in find_secondary_values(table.metadata, self.partition))
        if stored > total:
            found.add_warning("", f"has {stored} pairs, and the rows {total}: lookups read more than they need")
        found.checked = f"{stored:,} pairs, {total:,} values"
        return found


def _key_sources(paths: Iterable[tuple[str, str]]) -> dict[str, tuple[KeySource, ...]]:
    """Side files by partition of the metadata table.  paths: (partition, path)."""
    found: dict[str, list[KeySource]] = {}
    for partition, path in paths:
        found.setdefault(partition, []).append(KeySource(path, "", "", 0))
    return {partition: tuple(sources) for partition, sources in found.items()}


def _changed_slices(write: CommitPrepared) -> list[tuple[str, FileSlice | None, FileSlice | None]]:
    """(file id, slice before, slice after) of each file group that a commit writes or replaces."""
    snapshot = write.snapshot
    gone = {(partition, file_id) for partition, ids in write.replaced.items() for file_id in ids}
    written = {(s.stat.partition_path or "", s.stat.file_id or "") for s in write.statuses}
    groups: dict[str, set[str]] = {}
    for partition, file_id in gone | written:
        groups.setdefault(partition, set()).add(file_id)
    there = set(snapshot.listing.partitions())
    known = {partition: ids for partition, ids in groups.items() if partition in there}
    before = {(s.partition, s.file_id): s for found in snapshot.slices(file_ids=known).values() for s in found}
    after: dict[tuple[str, str], FileSlice] = {}
    for status in write.statuses:
        group = (status.stat.partition_path or "", status.stat.file_id or "")
        path = status.stat.path or ""
        log, base = parse_log_file(file_name(path)), parse_base_file(file_name(path))
        if log is not None:
            held = after.get(group) or before.get(group) or FileSlice(*group, write.time, None)
            after[group] = replace(held, logs=(*held.logs, LogFile(path, log, status.stat.file_size_in_bytes)))
        elif base is not None:
            after[group] = FileSlice(*group, write.time, BaseFile(path, base, status.stat.file_size_in_bytes))
    return [(group[1], before.get(group), after.get(group)) for group in sorted(gone | written)]
