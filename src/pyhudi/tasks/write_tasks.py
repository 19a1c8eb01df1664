"""Settings of writing tasks, and the statistics that they return for written files.

Source: docs/formats/writing.md, "Files of a write".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from pyhudi.format.actions.commit_metadata import WriteStat
from pyhudi.format.bootstrap_index import SourceFile
from pyhudi.format.meta_columns import with_meta_fields
from pyhudi.format.names import PARQUET_EXTENSION, WriteToken
from pyhudi.records.keys.key_spec import KeySpec
from pyhudi.records.record_merge import RecordMergeRule
from pyhudi.records.schema_on_read.column_ids import ColumnIds, ColumnOrigin
from pyhudi.storage.base import StorageSpec
from pyhudi.tasks.base_file_writer import FileSettings
from pyhudi.tasks.cdc_writer import ChangeLogSpec
from pyhudi.tasks.early_conflict_detection import EarlyConflicts
from pyhudi.tasks.file_stats import FileIndexing, IndexedFile
from pyhudi.tasks.log_scan import InstantValidity
from pyhudi.tasks.read_slice import ReadSpec


@dataclass(frozen=True, slots=True)
class PartialUpdateSpec:
    """Incoming rows that hold some columns; the others keep their values, and keys that do not exist are ignored.

    data_schema: the columns that they hold, in the table's order; avro_schema: with meta columns, for log blocks.
    """

    data_schema: pa.Schema
    avro_schema: str


@dataclass(frozen=True, slots=True)
class WriterSpec:
    """Settings shared by all writing tasks of one commit.

    Attributes:
        data_schema: The table's columns without meta columns.
        avro_schema: The table's columns with meta columns.
        indexing: Statistics to collect for the metadata table, None without one.
        changes: How change logs are written, None for a table without them.
        partial: None for whole rows.
        early: Early conflict detection, None if it is off.
        ids: Column ids, see `ReadSpec`.
        extension: Of the base files, which decides their format.
        event_time: The column with event times, None if they are not recorded.
    """

    storage: StorageSpec
    instant_time: str
    data_schema: pa.Schema
    avro_schema: str
    files: FileSettings
    keys: KeySpec
    populate_meta_fields: bool
    rule: RecordMergeRule
    indexing: FileIndexing | None = None
    changes: ChangeLogSpec | None = None
    partial: PartialUpdateSpec | None = None
    early: EarlyConflicts | None = None
    ids: ColumnIds | None = None
    extension: str = PARQUET_EXTENSION
    event_time: str | None = None

    @property
    def stored_schema(self) -> pa.Schema:
        """The stored layout: meta columns, then data columns."""
        return with_meta_fields(self.data_schema)

    def reader(
        self,
        validity: InstantValidity,
        *,
        columns: Iterable[str] | None = None,
        rule: RecordMergeRule | None = None,
    ) -> ReadSpec:
        """Return the spec by which the tasks read stored rows.

        columns: of the stored layout, in order; None for all.  rule: how logs are merged, by default that of the
        commit.
        """
        rule = self.rule if rule is None else rule
        return ReadSpec.of(
            self.storage,
            self,
            self.stored_schema,
            validity,
            rule=rule,
            ids=self.ids,
            columns=columns,
            use_positions=self.files.use_positions,
        )

    def origins(self, instant_time: str) -> Mapping[str, ColumnOrigin] | None:
        """Return the locations of columns in files of an instant, see `ColumnIds.origins`."""
        return None if self.ids is None else self.ids.origins(instant_time)

    @property
    def key_shards(self) -> int:
        """How many file groups the record index has, 0 without one."""
        return self.indexing.key_shards if self.indexing else 0


@dataclass(frozen=True, slots=True)
class MergeTask:
    """Rewrite one file group.  base_path: relative to the table.

    match_keys: False appends the incoming rows without looking up their keys (inserts that may duplicate keys).
    source: the bootstrap source file of a metadata-only base file.
    """

    partition: str
    file_id: str
    base_path: str
    token: WriteToken
    match_keys: bool = True
    source: SourceFile | None = None


@dataclass(frozen=True, slots=True)
class CreateTask:
    """Write new file groups of one partition. file_id_prefix: their ids are `<prefix>-0`, `<prefix>-1`, ... as files fill up."""

    partition: str
    file_id_prefix: str
    token: WriteToken


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Statistics of one file that a writing task reports.

    Attributes:
        stat: Statistics for the commit metadata.
        indexed: Statistics for the metadata table, None without one.
        is_copied: The file consists of copied row groups.
        decoded_reason: Why a clustering decoded rows instead of copying row groups.
    """

    stat: WriteStat
    indexed: IndexedFile | None = None
    is_copied: bool = False
    decoded_reason: str = ""
