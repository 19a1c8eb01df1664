"""Record index: the location of each record key of the table.

Write tasks report added and removed keys of each file group in side files, sharded by the index's file groups. The keys
of replaced file groups are read before the write acquires the lock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Self

import pyarrow as pa

from pyhudi.errors import Unsupported
from pyhudi.format.index_definitions import IndexDefinition, record_index_definition
from pyhudi.format.instants import timestamp_from_instant
from pyhudi.format.meta_columns import with_meta_fields
from pyhudi.metadata_table.codecs.metadata_partitions import (
    RECORD_INDEX,
    IndexGroup,
    estimate_file_group_count,
    format_section,
    index_groups,
)
from pyhudi.metadata_table.file_group_merge import LOCATIONS, CellMergeRule
from pyhudi.metadata_table.file_tasks import KeyRecords, KeySource, SliceKeysTask, location_records, run_slice_keys
from pyhudi.metadata_table.indexes.index_events import CommitPrepared, CommitPublishing, IndexBuild, WriteStarted, key_reader
from pyhudi.metadata_table.indexes.index_validation import CheckedTable, IndexFindings
from pyhudi.metadata_table.indexes.metadata_index import Index, IndexUpdate
from pyhudi.metadata_table.indexes.record_index_check import check_record_index
from pyhudi.metadata_table.reader.file_group_reader import MetadataPartition
from pyhudi.metadata_table.reader.index_lookups import find_records
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.metadata_table.reader.stored_index_definitions import add_definition
from pyhudi.metadata_table.writer.metadata_settings import MetadataSettings
from pyhudi.metadata_table.writer.metadata_store import MetadataStore
from pyhudi.storage.thread_pool import in_threads
from pyhudi.table.file_slices import FileSlice
from pyhudi.table.table_config import TableConfig
from pyhudi.table.table_context import TableContext
from pyhudi.tasks.engine_protocol import Engine
from pyhudi.tasks.file_stats import FileIndexing
from pyhudi.tasks.read_slice import ReadSpec

_MOST_GROUPS_OF_A_SECTION = 10
"""The limit of Hudi 1.1."""


@dataclass(frozen=True, slots=True)
class RecordIndex(Index):
    """The partition `record_index`.

    by_partition: keys are unique per table partition, and the index has a section for each partition (see
    `metadata_table.codecs.metadata_partitions`).
    """

    by_partition: bool = False

    partition_type: ClassVar[str] = RECORD_INDEX
    merge: ClassVar[CellMergeRule] = LOCATIONS
    key_records: ClassVar[KeyRecords | None] = staticmethod(location_records)

    @classmethod
    def implicit_definition(cls, config: TableConfig) -> IndexDefinition | None:
        return record_index_definition() if config.version.has_index_versions else None

    @classmethod
    def has_definition(cls, config: TableConfig) -> bool:
        return config.version.has_index_versions

    @classmethod
    def open(cls, partition: str, definition: IndexDefinition | None) -> Self:
        return cls(partition, definition is not None and definition.by_partition)

    def describe(self, table: TableContext, columns: Sequence[str]) -> TableContext:
        if not self.has_definition(table.config):
            return table
        definition = record_index_definition(by_partition=self.by_partition)
        return add_definition(table, definition)

    def requirements(self, requirements: FileIndexing, write: WriteStarted) -> FileIndexing:
        return replace(requirements, key_shards=self._shards(write.store)) if write.moves_keys else requirements

    def requirements_met(self, commit: CommitPublishing) -> bool:
        metadata = commit.metadata
        if not commit.operation.moves_keys or not (metadata.partition_to_write_stats or metadata.partition_to_replace_file_ids):
            return True
        return commit.requirements is not None and commit.requirements.key_shards == self._shards(commit.store)

    def _shards(self, store: MetadataStore) -> int:
        """Number of shards into which tasks divide keys; keys of sections are divided later.

        Raises Unsupported if file groups are named after table partitions but the definition is not partitioned, or
        vice versa: keys of new partitions would be lost.
        """
        groups = store.groups.of(self.partition)
        other = next((group for group in groups if (group.section is not None) != self.by_partition), None)
        if other is not None:
            actual, defined = ("not partitioned", "partitioned") if self.by_partition else ("partitioned", "not partitioned")
            raise Unsupported(
                f"the record index is {actual} ({other.file_id}), but its definition is {defined}; drop it before writing: "
                f"Table.index.drop({self.partition!r})"
            )
        return 1 if self.by_partition else len(groups)

    @classmethod
    def prepare(cls, indexes: Sequence[Self], write: CommitPrepared) -> Mapping[str, tuple[KeySource, ...]]:
        """Collect the keys of replaced file groups; they are removed unless the write adds them again."""
        removed: tuple[KeySource, ...] = ()
        shards = write.requirements.key_shards if write.requirements is not None else 0
        if write.replaced and write.operation.changes_rows and shards and write.schema is not None:
            replaced_groups = {(partition, file_id) for partition, ids in write.replaced.items() for file_id in ids}
            slices_by_partition = write.snapshot.slices(list(write.replaced)).values()
            slices = [s for group in slices_by_partition for s in group if (s.partition, s.file_id) in replaced_groups]
            reader = key_reader(write.context, with_meta_fields(write.schema), write.validity, None)
            removed = _keys_of_slices(write.context, write.engine, reader, slices, write.time, shards, deleted=True)
        return dict.fromkeys((index.partition for index in indexes), removed)

    def updates_for_commit(self, commit: CommitPublishing) -> IndexUpdate:
        if commit.requirements is None or not commit.requirements.key_shards:
            return IndexUpdate()
        instant_ms = timestamp_from_instant(commit.time, commit.context.config.zone)
        added = [
            KeySource(status.indexed.keys, partition, status.stat.file_id or "", instant_ms)
            for partition, _, status in commit.reported
            if status.indexed is not None and status.indexed.keys is not None
        ]
        keys = (*sorted(added, key=lambda source: source.path), *commit.prepared.get(self.partition, ()))
        return IndexUpdate(keys=keys, sections=self._sections(commit, {source.partition for source in added}))

    def _sections(self, commit: CommitPublishing, partitions: Iterable[str]) -> tuple[tuple[str, int], ...]:
        if not self.by_partition:
            return ()
        rows: Counter[str] = Counter()
        for partition, _, status in commit.reported:
            rows[partition] += status.stat.num_writes
        return tuple((partition, _groups_of_section(rows[partition])) for partition in sorted(partitions))

    def group_count(self, settings: MetadataSettings, row_count: Callable[[], int]) -> int:
        return settings.key_group_count(row_count())

    def groups(self, settings: MetadataSettings, state: IndexBuild) -> tuple[IndexGroup, ...]:
        if not self.by_partition:
            return Index.groups(self, settings, state)
        count = _groups_of_section(state.row_count())
        partitions = sorted({slice_.partition for slice_ in state.slices})
        return tuple(group for path in partitions for group in index_groups(self.partition, count, format_section(path)))

    def build(self, state: IndexBuild, time: str, shards: int) -> IndexUpdate:
        shards = 1 if self.by_partition else shards
        reader = key_reader(state.table, state.schema, state.validity, state.snapshot.ids)
        return IndexUpdate(keys=_keys_of_slices(state.table, state.engine, reader, state.slices, time, shards, deleted=False))

    @classmethod
    def step(cls, partition: str) -> str:
        return "record index"

    @classmethod
    def locate_keys(cls, partition: str, metadata: MetadataTable) -> Callable[[pa.StringArray], pa.Table] | None:
        return partial(find_records, metadata)

    @classmethod
    def key_locations(cls, partition: str, metadata: MetadataTable) -> MetadataPartition | None:
        return metadata.partition(partition)

    def check(self, table: CheckedTable) -> IndexFindings:
        return check_record_index(table)


def _groups_of_section(row_count: int) -> int:
    return estimate_file_group_count(row_count, min_count=1, max_count=_MOST_GROUPS_OF_A_SECTION)


def _keys_of_slices(
    table: TableContext,
    engine: Engine | None,
    reader: ReadSpec,
    slices: Iterable[FileSlice],
    time: str,
    shard_count: int,
    *,
    deleted: bool,
) -> tuple[KeySource, ...]:
    """Write the keys of slices to side files of an instant."""
    tasks = [
        SliceKeysTask(reader, slice_, time, shard_count, deleted, f"{slice_.file_id}_{number}")
        for number, slice_ in enumerate(slices)
    ]
    sources = engine.map(run_slice_keys, tasks) if engine is not None else in_threads(run_slice_keys, tasks)
    zone = table.config.zone
    return tuple(
        replace(source, instant_ms=timestamp_from_instant(task.slice.base_instant, zone))
        for source, task in zip(sources, tasks, strict=True)
        if source is not None
    )
