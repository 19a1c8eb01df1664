"""Secondary index: the record keys of each value of a column. Format: docs/formats/metadata-table.md.

A record is a pair of value and record key. Each file group that a commit writes or replaces is read before and after
it, to find added and removed pairs. Compactions and clusterings change none.
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
from pyhudi.metadata_table.writer.metadata_store import MetadataStore
from pyhudi.records.dotted_columns import field_at
from pyhudi.records.java_strings import has_text, is_binary_like
from pyhudi.storage.thread_pool import in_threads
from pyhudi.table.file_slices import BaseFile, FileSlice, LogFile


@dataclass(frozen=True, slots=True)
class _SecondaryKeyChanges:
    """Changes of a commit in one index. sources: side files; shards: the number of file groups that shard them."""

    sources: tuple[KeySource, ...]
    shards: int


@dataclass(frozen=True, slots=True)
class SecondaryKeyIndex(Index):
    """A partition `secondary_index_<name>`. column: dotted name; layout: of its records."""

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
                f"cannot create a secondary index over {self.column}: values of type {type_} have no unambiguous text form"
            )

    def routed(self, shards: int) -> SecondaryIndex:
        """Return what tasks need of the index. `shards` is its number of file groups."""
        return SecondaryIndex(self.partition, self.column, shards, self.layout)

    @classmethod
    def prepare(cls, indexes: Sequence[Self], write: CommitPrepared) -> Mapping[str, _SecondaryKeyChanges]:
        routed = tuple(index.routed(write.store.groups.count(index.partition)) for index in indexes)
        sources: Mapping[str, tuple[KeySource, ...]] = {}
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
            sources = _key_sources(path for part in run for path in part)
        return {index.partition: _SecondaryKeyChanges(sources.get(index.partition, ()), index.shards) for index in routed}

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
        sources = _key_sources(path for part in state.engine.map(run_secondary, tasks) for path in part)
        return IndexUpdate(keys=sources.get(self.partition, ()))

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
        return "Hudi 1.1 and 1.2 do not update it if another secondary index is defined before it, and no read uses it"

    def check(self, table: CheckedTable) -> IndexFindings:
        """Check that every pair of value and record key of the rows exists in the index, and no other."""
        findings = IndexFindings()
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
            indexed = pa.concat_arrays([pa.array([], pa.binary()), *cells]).cast(pa.string())
            missing = keys.filter(pc.invert(pc.is_in(keys, value_set=indexed)))
            if len(missing):
                message = f"{slice_.file_id}: {len(missing)} pairs of value and record key are missing: {some_keys(missing)}"
                findings.add_error(slice_.partition, message)
        stored = sum(len(keys) for _, keys in find_secondary_values(table.metadata, self.partition))
        if stored > total:
            findings.add_warning("", f"has {stored} pairs, but the rows have {total}: lookups read more than necessary")
        findings.checked = f"{stored:,} pairs, {total:,} values"
        return findings


def _key_sources(paths: Iterable[tuple[str, str]]) -> dict[str, tuple[KeySource, ...]]:
    """Side files by partition of the metadata table. paths: (partition, path)."""
    sources_by_partition: dict[str, list[KeySource]] = {}
    for partition, path in paths:
        sources_by_partition.setdefault(partition, []).append(KeySource(path, "", "", 0))
    return {partition: tuple(sources) for partition, sources in sources_by_partition.items()}


def _changed_slices(write: CommitPrepared) -> list[tuple[str, FileSlice | None, FileSlice | None]]:
    """(file id, slice before, slice after) of each file group that a commit writes or replaces."""
    snapshot = write.snapshot
    replaced = {(partition, file_id) for partition, ids in write.replaced.items() for file_id in ids}
    written = {(s.stat.partition_path or "", s.stat.file_id or "") for s in write.statuses}
    groups: dict[str, set[str]] = {}
    for partition, file_id in replaced | written:
        groups.setdefault(partition, set()).add(file_id)
    existing = set(snapshot.listing.partitions())
    existing_groups = {partition: ids for partition, ids in groups.items() if partition in existing}
    before = {
        (s.partition, s.file_id): s
        for partition_slices in snapshot.slices(file_ids=existing_groups).values()
        for s in partition_slices
    }
    after: dict[tuple[str, str], FileSlice] = {}
    for status in write.statuses:
        group = (status.stat.partition_path or "", status.stat.file_id or "")
        path = status.stat.path or ""
        log, base = parse_log_file(file_name(path)), parse_base_file(file_name(path))
        if log is not None:
            current = after.get(group) or before.get(group) or FileSlice(*group, write.time, None)
            after[group] = replace(current, logs=(*current.logs, LogFile(path, log, status.stat.file_size_in_bytes)))
        elif base is not None:
            after[group] = FileSlice(*group, write.time, BaseFile(path, base, status.stat.file_size_in_bytes))
    return [(group[1], before.get(group), after.get(group)) for group in sorted(replaced | written)]
