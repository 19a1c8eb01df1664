"""Interface that every index of the metadata table implements, for writers, readers and `validate`.
Format: docs/formats/metadata-table.md.

An index type is a class, and an index of a table is an instance of it. A table has at most one index of most types, and
any number of those that are *defined*: an entry in the index definitions specifies their column.

    a write          what its tasks must collect           `requirements`, `requirements_met`
                     what is read before the lock          `prepare`, `is_still_valid`
    a commit         under the lock                        `begin`, then `updates_for_commit`
    a clean          under the lock                        `updates_for_clean`
    a rollback       deletes the log files of the instant with all its records. `survives_rollback` returns whether an
                     index that was built while the instant existed is still correct
    a restore        the metadata table has no earlier states: `survives_restore`
    a snapshot       building the index                    `group_count`, `build`
    validate         `check_columns`, `check`
    a filtered read  `pruned_partitions`, `matching_keys`, `locate_keys`, `pruned_files`, `prune_base_files`
    a lookup         of the keys of a write                `key_locations`, `key_ranges`, `key_filters`
    compaction       `merge`, the rule that merges several records of one key

A new index type consists of a module in this package, an entry in `INDEX_TYPES`, and the codec of its values in
`metadata_table.codecs`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import pyarrow as pa

from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.format.index_definitions import IndexDefinition
from pyhudi.metadata_table.codecs.metadata_partitions import IndexGroup, format_index_file_id
from pyhudi.metadata_table.file_group_merge import CellMergeRule
from pyhudi.metadata_table.file_tasks import KeyRecords, KeySource
from pyhudi.metadata_table.indexes.index_events import CommitPrepared, CommitPublishing, FilesCleaned, IndexBuild, WriteStarted
from pyhudi.metadata_table.indexes.index_pruning import BaseFilePruner, Filter, PrunedFiles
from pyhudi.metadata_table.indexes.index_validation import CheckedTable, IndexFindings
from pyhudi.metadata_table.metadata_records import MetadataRecords
from pyhudi.metadata_table.reader.file_group_reader import MetadataPartition
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.metadata_table.writer.metadata_settings import MetadataSettings
from pyhudi.metadata_table.writer.metadata_store import MetadataStore
from pyhudi.records.column_statistics import ColumnRange
from pyhudi.table.table_config import TableConfig
from pyhudi.table.table_context import TableContext
from pyhudi.tasks.file_stats import FileIndexing


@dataclass(frozen=True, slots=True)
class IndexUpdate:
    """The changes of one instant in one index.

    Attributes:
        records: None if there are none.
        keys: Side files of keys, which may exceed memory; the tasks that write file groups convert them to records.
        sections: As in `SpilledKeys`.
        partitions: Ranges of table partitions. They become records once the overlapping commits are known.
    """

    records: MetadataRecords | None = None
    keys: tuple[KeySource, ...] = ()
    sections: tuple[tuple[str, int], ...] = ()
    partitions: PartitionStatsUpdate | None = None


class Dependency(NamedTuple):
    """An index that another one requires.

    Attributes:
        partition: Its partition of the metadata table.
        reason: For messages, such as "a secondary index needs the record index".
        required_for: For messages, as in "create that first".
    """

    partition: str
    reason: str
    required_for: str


@dataclass(frozen=True, slots=True)
class Index(ABC):
    """One index of a table. partition: its name, which is also its partition of the metadata table."""

    partition: str

    partition_type: ClassVar[str]
    """The name of the type; for defined types, the prefix of their partition names."""

    is_defined: ClassVar[bool] = False
    """Each index of the type requires a definition."""

    layouts: ClassVar[tuple[int, ...]] = (1,)
    """The record layouts that are written. The codec and `check` know those that are read."""

    needs: ClassVar[Dependency | None] = None
    """The index that this type requires."""

    merge: ClassVar[CellMergeRule]
    """Merges several layers of one key when the metadata table is compacted."""

    typed_merge: ClassVar[CellMergeRule | None] = None
    """The same for layout 2 records, if it differs."""

    key_records: ClassVar[KeyRecords | None] = None
    """For types with side files of keys: converts the side files of one file group to records in a task."""

    @classmethod
    def matches_name(cls, partition: str) -> bool:
        """Return True if a partition of this name belongs to this type."""
        if cls.is_defined:
            return partition.startswith(cls.partition_type) and len(partition) > len(cls.partition_type)
        return partition == cls.partition_type

    @classmethod
    def open(cls, partition: str, definition: IndexDefinition | None) -> Self:
        """Open the index of a name.

        Args:
            partition: Its name.
            definition: None if there is none.

        Raises:
            InvalidRequest, Unsupported: PyHudi does not support the index.
        """
        return cls(partition)

    @classmethod
    def implicit_definition(cls, config: TableConfig) -> IndexDefinition | None:
        """Return the definition that a table with these properties stores for a type without user definitions; None if none."""
        return None

    @classmethod
    def has_definition(cls, config: TableConfig) -> bool:
        """Return True if an index of this type has a definition in a table with these properties."""
        return cls.is_defined

    @classmethod
    def check_writable(cls, definition: IndexDefinition) -> None:
        """Raise Unsupported for an index that PyHudi reads and does not write."""
        if definition.layout not in cls.layouts:
            raise Unsupported(f"PyHudi reads layout {definition.layout} of its records, but does not write it")

    @classmethod
    def refusal(cls, config: TableConfig) -> str | None:
        """Return the reason why a table with these properties cannot have an index of this type; None if it can."""
        return None

    @classmethod
    def file_ids(cls, partition: str, count: int) -> tuple[str, ...]:
        """Return the file ids of a new index."""
        return tuple(format_index_file_id(partition, index) for index in range(count))

    # -- A write, before the lock
    # ------------------------------------------------------------------------------------------

    def requirements(self, requirements: FileIndexing, write: WriteStarted) -> FileIndexing:
        """Add what this index needs from the written files to what the write tasks collect."""
        return requirements

    def requirements_met(self, commit: CommitPublishing) -> bool:
        """Return True if the commit's tasks collected everything this index needs."""
        return True

    @classmethod
    def prepare(cls, indexes: Sequence[Self], write: CommitPrepared) -> Mapping[str, Any]:
        """Read what the commit needs with tasks, for all indexes of the type together; by partition.

        Called before the commit acquires the lock, and again under it for an index created since.
        """
        return {}

    def is_still_valid(self, prepared: Any, store: MetadataStore) -> bool:
        """Return True if the result of `prepare` is still valid under the lock."""
        return True

    # -- Updates, under the lock
    # ---------------------------------------------------------------------------------------------

    def begin(self, commit: CommitPublishing) -> None:
        """Establish the preconditions of the commit's records, such as definitions. May drop indexes."""
        return

    @abstractmethod
    def updates_for_commit(self, commit: CommitPublishing) -> IndexUpdate:
        """Return the changes of a commit."""

    def updates_for_clean(self, clean: FilesCleaned) -> MetadataRecords | None:
        """Return the deletes for files that a clean removed; None if the index does not refer to files."""
        return None

    @classmethod
    def survives_rollback(cls, *, built_since: bool) -> bool:
        """Return True if the index is still correct after an instant and its records are removed.

        Args:
            built_since: The index was built while the instant existed, and reflects its state.
        """
        return not built_since

    @classmethod
    def survives_restore(cls) -> bool:
        """Return True if the index is still correct after the table is restored to an earlier state."""
        return False

    # -- Building it -------------------------------------------------------------------------------------------------------

    def group_count(self, settings: MetadataSettings, row_count: Callable[[], int]) -> int:
        """Return the number of file groups of a new index.

        Args:
            settings: The writer's metadata settings.
            row_count: Counts the rows of the table, lazily.
        """
        return settings.group_count(self.partition_type)

    def groups(self, settings: MetadataSettings, state: IndexBuild) -> tuple[IndexGroup, ...]:
        """Return the file groups of a new index."""
        count = self.group_count(settings, state.row_count)
        return tuple(IndexGroup(file_id, None, n, count) for n, file_id in enumerate(self.file_ids(self.partition, count)))

    @abstractmethod
    def build(self, state: IndexBuild, time: str, shards: int) -> IndexUpdate:
        """Return all entries for a snapshot of the table.

        Args:
            state: The snapshot.
            time: Instant of the metadata table.
            shards: Number of file groups of the index.
        """

    def describe(self, table: TableContext, columns: Sequence[str]) -> TableContext:
        """Store what readers need besides the index name, and return the updated table. The caller holds the lock.

        Args:
            columns: The columns with statistics.
        """
        return table

    # -- Lookups for a filter
    # ------------------------------------------------------------------------------------------------
    #
    # Class methods with the name of an index: an index that PyHudi cannot update may still be readable. None means no
    # result.

    @classmethod
    def step(cls, partition: str) -> str:
        """Return the name of this index in the plan of a read."""
        return partition

    @classmethod
    def pruned_partitions(cls, partition: str, metadata: MetadataTable, row_filter: Filter) -> frozenset[str] | None:
        """Return the table partitions in which no row matches in the latest state."""
        return None

    @classmethod
    def matching_keys(cls, partition: str, metadata: MetadataTable, row_filter: Filter) -> pa.StringArray | None:
        """Return the only record keys that matching rows have in the latest state."""
        return None

    @classmethod
    def locate_keys(cls, partition: str, metadata: MetadataTable) -> Callable[[pa.StringArray], pa.Table] | None:
        """Return a function that finds the latest locations of record keys: KEYED_LOCATION_SCHEMA, without unknown keys."""
        return None

    @classmethod
    def pruned_files(
        cls,
        partition: str,
        metadata: MetadataTable,
        row_filter: Filter,
        partitions: Sequence[str],
        indexed_files: Collection[str],
    ) -> PrunedFiles | None:
        """Return the files in which no row matches, in any snapshot.

        Args:
            partition: Name of the index.
            metadata: The opened metadata table.
            partitions: The table partitions of the read.
            indexed_files: Columns that another index has already covered.
        """
        return None

    @classmethod
    def prune_base_files(cls, partition: str, metadata: MetadataTable, row_filter: Filter) -> BaseFilePruner | None:
        """A function that finds the base files without matching rows, in any snapshot. It is called with few files at once."""
        return None

    # -- Lookups of the keys of a write
    # --------------------------------------------------------------------------------------

    @classmethod
    def key_locations(cls, partition: str, metadata: MetadataTable) -> MetadataPartition | None:
        """Return the partition in which tasks look up the locations of record keys."""
        return None

    @classmethod
    def key_ranges(
        cls, partition: str, metadata: MetadataTable, partitions: Sequence[str]
    ) -> Mapping[tuple[str, str], tuple[str, str]] | None:
        """Return (partition path, file name) -> minimum and maximum record key, for base files with both."""
        return None

    @classmethod
    def key_filters(cls, partition: str, metadata: MetadataTable) -> MetadataPartition | None:
        """Return the partition in which tasks look up which base files may contain record keys."""
        return None

    # -- Validation
    # ----------------------------------------------------------------------------------------------------------

    def check_columns(self, schema: pa.Schema) -> None:
        """Raise InvalidRequest or Unsupported if the index cannot be computed from the table's columns."""
        return

    def skip_check_reason(self, table: CheckedTable) -> str | None:
        """Return the reason to skip the check of an index that no reader uses; None to check it."""
        return None

    @abstractmethod
    def check(self, table: CheckedTable) -> IndexFindings:
        """Compare the index with the table. Raises the errors of reading the metadata table."""


class HasPartitionRanges(ABC):
    """An index with ranges of whole table partitions, which commits with overlapping times must reconcile."""

    __slots__ = ()
    partition: str

    @abstractmethod
    def partition_records(self, update: PartitionStatsUpdate, schema: pa.Schema, *, is_tight: bool) -> MetadataRecords:
        """Convert an update to records.

        Args:
            schema: The table's, with meta columns.
            is_tight: The records replace older ones.
        """

    @abstractmethod
    def partition_rows(self, reader: MetadataTable, columns: Sequence[str]) -> pa.Table:
        """Return the stored partition statistics (STATS_SCHEMA)."""

    @abstractmethod
    def partition_ranges(self, reader: MetadataTable, column: str, type_: pa.DataType) -> dict[str, ColumnRange]:
        """Return the stored range by partition path. `type_` is the type of the values."""


@dataclass(frozen=True, slots=True)
class PartitionStatsUpdate:
    """Changes of a commit to the partition ranges of one index.

    Attributes:
        index: The index.
        ranges: Partition path -> column -> range over all its files; None for a partition without files.
        types: Type of each column's values or, in an expression index, of the results.
        layout: Layout of the records.
    """

    index: HasPartitionRanges
    ranges: Mapping[str, Mapping[str, ColumnRange] | None]
    types: Mapping[str, pa.DataType]
    layout: int = 1

    def records(self, schema: pa.Schema, *, is_tight: bool) -> MetadataRecords:
        """Convert to records; see `HasPartitionRanges.partition_records`."""
        return self.index.partition_records(self, schema, is_tight=is_tight)


def single_column_definition(definition: IndexDefinition | None, description: str) -> tuple[IndexDefinition, str]:
    """The definition of a single-column index, and the column. Raises Unsupported without a definition or for several columns."""
    if definition is None:
        raise Unsupported("it has no definition")
    if len(definition.source_fields) != 1:
        raise Unsupported(f"{description} over {len(definition.source_fields)} columns is not supported; one column is required")
    return definition, definition.source_fields[0]


class reraise_as_unsupported:
    """Re-raise errors of an index as Unsupported with its name: PyHudi cannot update it, so it cannot write the table."""

    def __init__(self, partition: str) -> None:
        self._partition = partition

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (InvalidRequest, Unsupported)):
            raise Unsupported(
                f"the table has {self._partition} in its metadata table, which PyHudi cannot keep up to date: {error}; "
                f"drop it before writing: Table.index.drop({self._partition!r}), or DROP INDEX in Hudi"
            ) from error
