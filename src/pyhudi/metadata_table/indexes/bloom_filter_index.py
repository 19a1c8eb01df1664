"""Bloom filter index: copies of the record key filters in base file footers."""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from pyhudi.format.names import is_log_file
from pyhudi.format.paths import file_name
from pyhudi.metadata_table.codecs.metadata_partitions import BLOOM_FILTERS
from pyhudi.metadata_table.file_group_merge import BLOOM_FILTERS_BY_FILE, CellMergeRule
from pyhudi.metadata_table.file_tasks import IndexFilesTask, run_index_files
from pyhudi.metadata_table.indexes.index_events import CommitPublishing, FilesCleaned, IndexBuild, WriteStarted
from pyhudi.metadata_table.indexes.index_pruning import BaseFilePruner, Filter, without_texts
from pyhudi.metadata_table.indexes.index_validation import CheckedTable, IndexFindings, compare_filters
from pyhudi.metadata_table.indexes.metadata_index import Index, IndexUpdate
from pyhudi.metadata_table.metadata_records import FileFilter, MetadataRecords, bloom_deletes, bloom_records
from pyhudi.metadata_table.reader.file_group_reader import MetadataPartition
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.planning.data_skipping import with_alternative_key_forms
from pyhudi.table.table_config import TableConfig
from pyhudi.tasks.file_stats import FileIndexing


@dataclass(frozen=True, slots=True)
class BloomFilterIndex(Index):
    """The partition `bloom_filters`. Files of tables without meta columns have no record key filters."""

    partition_type: ClassVar[str] = BLOOM_FILTERS
    merge: ClassVar[CellMergeRule] = BLOOM_FILTERS_BY_FILE

    @classmethod
    def refusal(cls, config: TableConfig) -> str | None:
        if config.populate_meta_fields:
            return None
        return "the table has no meta columns, so its files have no Bloom filters of record keys"

    def requirements(self, requirements: FileIndexing, write: WriteStarted) -> FileIndexing:
        return replace(requirements, bloom_filters=write.context.config.populate_meta_fields)

    def requirements_met(self, commit: CommitPublishing) -> bool:
        if not commit.metadata.partition_to_write_stats or not commit.context.config.populate_meta_fields:
            return True
        return commit.requirements is not None and commit.requirements.bloom_filters

    def updates_for_commit(self, commit: CommitPublishing) -> IndexUpdate:
        filters = [
            FileFilter(partition, name, *status.indexed.bloom)
            for partition, name, status in commit.reported
            if status.indexed is not None and status.indexed.bloom is not None
        ]
        return IndexUpdate(bloom_records(filters, commit.time))

    def updates_for_clean(self, clean: FilesCleaned) -> MetadataRecords:
        return bloom_deletes(clean.deleted_bases)

    def build(self, state: IndexBuild, time: str, shards: int) -> IndexUpdate:
        indexed_files = state.read_files(FileIndexing(bloom_filters=True), logs=False)
        filters = [FileFilter(f.partition, f.name, *f.indexed.bloom) for f in indexed_files if f.indexed.bloom is not None]
        return IndexUpdate(bloom_records(filters, time))

    @classmethod
    def step(cls, partition: str) -> str:
        return "Bloom filters"

    @classmethod
    def prune_base_files(cls, partition: str, metadata: MetadataTable, row_filter: Filter) -> BaseFilePruner | None:
        keys = row_filter.record_keys
        return (
            None
            if keys is None
            else partial(without_texts, metadata, partition, with_alternative_key_forms(keys, row_filter.keys))
        )

    @classmethod
    def key_filters(cls, partition: str, metadata: MetadataTable) -> MetadataPartition | None:
        return metadata.partition(partition)

    def check(self, table: CheckedTable) -> IndexFindings:
        """Compare the stored filters with those in the footers."""
        findings = IndexFindings()
        files = tuple(file for file in table.files if not is_log_file(file_name(file[1])))
        task = IndexFilesTask(table.context.storage.spec(), files, table.schema, FileIndexing(bloom_filters=True), table.validity)
        results = zip(files, run_index_files(task), strict=True)
        footer_filters = [(path, file.partition, file.indexed.bloom) for (_, path, _), file in results]
        compare_filters(findings, table.metadata, self.partition, footer_filters, operator.eq)
        findings.checked = f"{len(files):,} base files"
        return findings
