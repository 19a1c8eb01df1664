"""What an index of the metadata table is to its writers and to `validate`: the one interface of all kinds.

A kind is a class, an index of a table is an instance of it.  `Table` has one of most kinds, and any number of those that are
*defined*: by an entry in the index definitions that names a column.

    a write          what its tasks have to find out       `requirements`, `requirements_met`
                     what has to be read before the lock   `prepare`, `is_still_valid`
    a commit         under the lock                        `begin`, then `updates_for_commit`
    a clean          under the lock                        `updates_for_clean`
    a rollback       log files of the instant are deleted, and every record of it with them; whether what was built while the
                     instant was there is still so says `survives_rollback`
    a restore        nothing of the metadata table says what was so at an earlier time: `survives_restore`
    a snapshot       building it                           `group_count`, `build`
    validate         `check_columns`, `check`
    a filtered read  `pruned_partitions`, `matching_keys`, `locate_keys`, `pruned_files`, `prune_base_files`
    a lookup         of the keys that are written: `key_locations`, `key_ranges`, `key_filters`
    compaction       `merge`, the rule by which what several commits say of one key is merged

A new kind is a file in this folder, its name in `KINDS`, and the codec of its values in `metadata_table.codecs`.

Source: docs/formats/metadata-table.md.
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
    """What one instant says in one index.

    records: None where there is nothing to say.  keys: side files of keys, too many to be held here; the tasks that write file
    groups make records of them by the index's rule.  sections: as of `SpilledKeys`.  partitions: ranges of partitions of the
    table, which become records when it is known whose times overlap with the commit's.
    """

    records: MetadataRecords | None = None
    keys: tuple[KeySource, ...] = ()
    sections: tuple[tuple[str, int], ...] = ()
    partitions: PartitionStatsUpdate | None = None


class Dependency(NamedTuple):
    """An index that another one cannot do without.  why, what: for messages, as in "a secondary index needs the record index"
    and "create that first".
    """

    partition: str
    reason: str
    required_for: str


@dataclass(frozen=True, slots=True)
class Index(ABC):
    """One index of a table.  partition: its name, that of its partition of the metadata table."""

    partition: str

    partition_type: ClassVar[str]
    """The kind's name; of kinds that are defined, what the names of their partitions begin with."""

    is_defined: ClassVar[bool] = False
    """Whether a definition tells of each index of the kind."""

    layouts: ClassVar[tuple[int, ...]] = (1,)
    """The layouts of records that are written.  Those that are read are for the kind's codec and for `check` to know."""

    needs: ClassVar[Dependency | None] = None
    """The index without which there is none of this kind."""

    merge: ClassVar[CellMergeRule]
    """How what several layers say of one key comes together when the metadata table is compacted."""

    typed_merge: ClassVar[CellMergeRule | None] = None
    """The same for records of the second layout, where it is another."""

    key_records: ClassVar[KeyRecords | None] = None
    """For kinds that say keys: what a task makes of the side files of one file group."""

    @classmethod
    def matches_name(cls, partition: str) -> bool:
        """Whether a partition of this name is of this kind."""
        if cls.is_defined:
            return partition.startswith(cls.partition_type) and len(partition) > len(cls.partition_type)
        return partition == cls.partition_type

    @classmethod
    def open(cls, partition: str, definition: IndexDefinition | None) -> Self:
        """The index of a name.  definition: None without one.

        Raises InvalidRequest and Unsupported for an index that PyHudi does not know.
        """
        return cls(partition)

    @classmethod
    def implicit_definition(cls, config: TableConfig) -> IndexDefinition | None:
        """What a table with these properties says of an index of a kind that nobody defines; None: nothing."""
        return None

    @classmethod
    def has_definition(cls, config: TableConfig) -> bool:
        """Whether a definition says what an index of the kind is, in a table with these properties."""
        return cls.is_defined

    @classmethod
    def check_writable(cls, definition: IndexDefinition) -> None:
        """Raises Unsupported for an index that PyHudi reads and does not write."""
        if definition.layout not in cls.layouts:
            raise Unsupported(f"layout {definition.layout} of its records is read, and not written")

    @classmethod
    def refusal(cls, config: TableConfig) -> str | None:
        """Why a table with these properties cannot have an index of this kind; None when it can."""
        return None

    @classmethod
    def file_ids(cls, partition: str, count: int) -> tuple[str, ...]:
        """The file ids of a new index."""
        return tuple(format_index_file_id(partition, index) for index in range(count))

    # -- A write, before the lock ------------------------------------------------------------------------------------------

    def requirements(self, requirements: FileIndexing, write: WriteStarted) -> FileIndexing:
        """What tasks are asked for, with what this index wants to know of the files that they write."""
        return requirements

    def requirements_met(self, commit: CommitPublishing) -> bool:
        """Whether the tasks of a commit were asked for what this index has to be told now."""
        return True

    @classmethod
    def prepare(cls, indexes: Sequence[Self], write: CommitPrepared) -> Mapping[str, Any]:
        """What has to be read for the commit, found out by tasks, for all indexes of the kind together: by partition.

        Asked before the commit takes the lock; and under it, for an index that has come meanwhile.
        """
        return {}

    def is_still_valid(self, prepared: Any, store: MetadataStore) -> bool:
        """Whether what `prepare` found is still of use under the lock."""
        return True

    # -- What is said, under the lock --------------------------------------------------------------------------------------

    def begin(self, commit: CommitPublishing) -> None:
        """Make true what the records of the commit take for granted: definitions; it may drop indexes."""
        return

    @abstractmethod
    def updates_for_commit(self, commit: CommitPublishing) -> IndexUpdate:
        """What a commit makes the index say."""

    def updates_for_clean(self, clean: FilesCleaned) -> MetadataRecords | None:
        """What is removed with files that a clean deletes; None when the index does not speak of files."""
        return None

    @classmethod
    def survives_rollback(cls, *, built_since: bool) -> bool:
        """Whether the index is still right when an instant and its records are gone.

        built_since: its first files were made when the instant was there, and say what was so then.
        """
        return not built_since

    @classmethod
    def survives_restore(cls) -> bool:
        """Whether the index is still right when the table is as it was once."""
        return False

    # -- Building it -------------------------------------------------------------------------------------------------------

    def group_count(self, settings: MetadataSettings, row_count: Callable[[], int]) -> int:
        """How many file groups it gets.  row_count: of the table, which is counted when it is asked for."""
        return settings.group_count(self.partition_type)

    def groups(self, settings: MetadataSettings, state: IndexBuild) -> tuple[IndexGroup, ...]:
        """The file groups that it is built with."""
        count = self.group_count(settings, state.row_count)
        return tuple(IndexGroup(file_id, None, n, count) for n, file_id in enumerate(self.file_ids(self.partition, count)))

    @abstractmethod
    def build(self, state: IndexBuild, time: str, shards: int) -> IndexUpdate:
        """All that it has to say of a state of the table.  time: of the metadata table's instant; shards: its file groups."""

    def describe(self, table: TableContext, columns: Sequence[str]) -> TableContext:
        """Say in the table what readers have to know of the index beside its name; the table as it is then.

        columns: those with statistics.  The caller holds the lock.
        """
        return table

    # -- Answering a filter ------------------------------------------------------------------------------------------------
    #
    # Asked of the kind, with the name of an index: what cannot be kept up to date may be read.  None: it has nothing to say.

    @classmethod
    def step(cls, partition: str) -> str:
        """What the plan of a read calls its answer."""
        return partition

    @classmethod
    def pruned_partitions(cls, partition: str, metadata: MetadataTable, row_filter: Filter) -> frozenset[str] | None:
        """The partitions of the table in which no row matches now."""
        return None

    @classmethod
    def matching_keys(cls, partition: str, metadata: MetadataTable, row_filter: Filter) -> pa.StringArray | None:
        """The only record keys that matching rows have now."""
        return None

    @classmethod
    def locate_keys(cls, partition: str, metadata: MetadataTable) -> Callable[[pa.StringArray], pa.Table] | None:
        """How to find out where record keys live now: KEYED_LOCATION_SCHEMA, without those that the table does not have."""
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
        """The files in which no row matches, at any time.  partitions: of the table, which are looked at; indexed_files: columns
        of which another index has spoken already.
        """
        return None

    @classmethod
    def prune_base_files(cls, partition: str, metadata: MetadataTable, row_filter: Filter) -> BaseFilePruner | None:
        """How to find out in which of some base files no row matches, at any time: their paths.  It is asked of few at once."""
        return None

    # -- Answering a lookup of the keys that a write brings ----------------------------------------------------------------

    @classmethod
    def key_locations(cls, partition: str, metadata: MetadataTable) -> MetadataPartition | None:
        """What tells tasks where record keys live."""
        return None

    @classmethod
    def key_ranges(
        cls, partition: str, metadata: MetadataTable, partitions: Sequence[str]
    ) -> Mapping[tuple[str, str], tuple[str, str]] | None:
        """(partition path, file name) -> least and greatest record key, for the base files of which it knows both."""
        return None

    @classmethod
    def key_filters(cls, partition: str, metadata: MetadataTable) -> MetadataPartition | None:
        """What tells tasks which base files may have record keys."""
        return None

    # -- Checking it -------------------------------------------------------------------------------------------------------

    def check_columns(self, schema: pa.Schema) -> None:
        """Raises InvalidRequest or Unsupported when it cannot be computed from the table's columns."""
        return

    def skip_check_reason(self, table: CheckedTable) -> str | None:
        """Why it cannot be checked, for nobody believes it; None when it can."""
        return None

    @abstractmethod
    def check(self, table: CheckedTable) -> IndexFindings:
        """Does it say what is so?  Raises what reading the metadata table raises."""


class HasPartitionRanges(ABC):
    """An index that says ranges of whole partitions of the table, which commits have to agree on whose times overlap."""

    __slots__ = ()
    partition: str

    @abstractmethod
    def partition_records(self, update: PartitionStatsUpdate, schema: pa.Schema, *, is_tight: bool) -> MetadataRecords:
        """The records that say it.  schema: the table's, with meta columns; is_tight: they make older ones void."""

    @abstractmethod
    def partition_rows(self, reader: MetadataTable, columns: Sequence[str]) -> pa.Table:
        """STATS_SCHEMA: what is stored of partitions."""

    @abstractmethod
    def partition_ranges(self, reader: MetadataTable, column: str, type_: pa.DataType) -> dict[str, ColumnRange]:
        """Partition path -> stored range.  type_: of the values."""


@dataclass(frozen=True, slots=True)
class PartitionStatsUpdate:
    """What a commit says of partitions of the table in one index.

    ranges: partition path -> column -> range over all its files, None for a partition in which nothing is left.  types: of each
    column's values or, in an expression index, of the results; layout: of the records that say it.
    """

    index: HasPartitionRanges
    ranges: Mapping[str, Mapping[str, ColumnRange] | None]
    types: Mapping[str, pa.DataType]
    layout: int = 1

    def records(self, schema: pa.Schema, *, is_tight: bool) -> MetadataRecords:
        """The records that say it; see `HasPartitionRanges.partition_records`."""
        return self.index.partition_records(self, schema, is_tight=is_tight)


def single_column_definition(definition: IndexDefinition | None, description: str) -> tuple[IndexDefinition, str]:
    """The definition of an index over one column, and the column.  Raises Unsupported for another one, and for none."""
    if definition is None:
        raise Unsupported("it has no definition")
    if len(definition.source_fields) != 1:
        raise Unsupported(f"{description} over {len(definition.source_fields)} columns")
    return definition, definition.source_fields[0]


class reraise_as_unsupported:
    """Names the index in what goes wrong inside: it cannot be kept up to date, so the table cannot be written with it."""

    def __init__(self, partition: str) -> None:
        self._partition = partition

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (InvalidRequest, Unsupported)):
            raise Unsupported(
                f"the table has {self._partition} in its metadata table, which PyHudi cannot keep up to date: {error}; "
                f"drop it before writing: Table.index.drop({self._partition!r}), or DROP INDEX in real Hudi"
            ) from error
