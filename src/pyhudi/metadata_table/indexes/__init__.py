"""The kinds of indexes that the metadata table holds, one file each, behind one interface (`base`).

files.py             which files and partitions there are
column_stats.py      ranges of columns in files
bloom.py             Bloom filters of record keys in base files
record.py            where each record key lives
partition_stats.py   ranges of columns in partitions
secondary.py         which record keys have a value in a column
expression.py        ranges of a function's results, or Bloom filters of them

base.py       what an index is: `Index`, `Said`
inputs.py     what it is told: `Asking`, `CommitPrepared`, `Commit`, `Cleaned`, `IndexBuild`
checking.py   what a check looks at, what it finds
filtering.py  what a filtered read asks
ranges.py     stored ranges, read back
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from pyhudi.errors import Unsupported
from pyhudi.format.index_definitions import IndexDefinition
from pyhudi.metadata_table.indexes.bloom_filter_index import BloomFilterIndex
from pyhudi.metadata_table.indexes.column_stats_index import ColumnStatsIndex
from pyhudi.metadata_table.indexes.expression_index import ExpressionStatsIndex
from pyhudi.metadata_table.indexes.files_index import FilesIndex
from pyhudi.metadata_table.indexes.index_events import CommitPrepared
from pyhudi.metadata_table.indexes.metadata_index import Index, reraise_as_unsupported
from pyhudi.metadata_table.indexes.partition_stats_index import PartitionStatsIndex
from pyhudi.metadata_table.indexes.record_index import RecordIndex
from pyhudi.metadata_table.indexes.secondary_index import SecondaryKeyIndex
from pyhudi.metadata_table.reader.metadata_reader import MetadataTable
from pyhudi.metadata_table.reader.stored_index_definitions import load_index_definitions
from pyhudi.metadata_table.writer.metadata_store import MetadataStore
from pyhudi.table.table_config import TableConfig
from pyhudi.table.table_context import TableContext

_Answer = TypeVar("_Answer")

INDEX_TYPES: list[type[Index]] = [
    FilesIndex,
    ColumnStatsIndex,
    BloomFilterIndex,
    RecordIndex,
    PartitionStatsIndex,
    SecondaryKeyIndex,
    ExpressionStatsIndex,
]
"""All kinds, in the order in which indexes are built, and asked by everyone who asks them all."""


def index_for_partition(partition: str) -> type[Index] | None:
    """The kind of a partition of the metadata table; None for a name that no kind knows."""
    return next((kind for kind in INDEX_TYPES if kind.matches_name(partition)), None)


def is_defined(partition: str) -> bool:
    """Whether a partition of the metadata table is one that a definition tells of."""
    kind = index_for_partition(partition)
    return kind is not None and kind.is_defined


def _has_definition(partition: str, config: TableConfig) -> bool:
    kind = index_for_partition(partition)
    return kind is not None and kind.has_definition(config)


def dependent_partitions(partition: str, others: Iterable[str]) -> tuple[str, ...]:
    """Those of some partitions that cannot do without a partition."""
    kinds = ((other, index_for_partition(other)) for other in others)
    return tuple(o for o, kind in kinds if kind is not None and kind.needs is not None and kind.needs.partition == partition)


def in_build_order(partitions: Iterable[str]) -> tuple[str, ...]:
    """Partitions in the order in which they are built: those with a definition come last, in the order given."""
    wanted = list(partitions)
    single = [kind.partition_type for kind in INDEX_TYPES if not kind.is_defined and kind.partition_type in wanted]
    return (*single, *(partition for partition in wanted if partition not in single))


def maintained_partitions(config: TableConfig) -> tuple[str, ...]:
    """The partitions that every commit has to keep true: those that readers use, and those that are being built.

    Raises Unsupported for one that PyHudi does not keep.
    """
    every = tuple(dict.fromkeys((*config.metadata_partitions, *config.metadata_partitions_inflight)))
    strange = [partition for partition in every if index_for_partition(partition) is None]
    if strange:
        raise Unsupported(
            f"the table has {', '.join(strange)} in its metadata table, which PyHudi reads and does not keep up to date yet; "
            f"drop it before writing: Table.index.drop({strange[0]!r}), or DROP INDEX in real Hudi"
        )
    return every


def open_index(partition: str, definitions: Mapping[str, IndexDefinition]) -> Index:
    """The index of a partition.  Raises Unsupported for one that PyHudi cannot keep up to date."""
    kind = index_for_partition(partition)
    with reraise_as_unsupported(partition):
        if kind is None:
            raise Unsupported("no such index is known")
        return kind.open(partition, definitions.get(partition))


def open_indexes(context: TableContext, partitions: Sequence[str] | None = None) -> tuple[Index, ...]:
    """The indexes that every commit has to keep true, or those of some partitions, in the order of the kinds.

    Raises Unsupported for one that PyHudi cannot keep up to date.
    """
    names = maintained_partitions(context.config) if partitions is None else partitions
    definitions = load_index_definitions(context) if any(_has_definition(name, context.config) for name in names) else {}
    return tuple(open_index(name, definitions) for kind in INDEX_TYPES for name in names if kind.matches_name(name))


def check_writable_indexes(context: TableContext) -> None:
    """Raises Unsupported for an index that PyHudi cannot keep up to date: it reads layouts that it does not write."""
    partitions = maintained_partitions(context.config)
    definitions = load_index_definitions(context)
    _check_sections(context.config, partitions, definitions)
    for name in partitions:
        kind = type(open_index(name, definitions))
        if name in definitions:
            with reraise_as_unsupported(name):
                kind.check_writable(definitions[name])


def _check_sections(config: TableConfig, partitions: Sequence[str], definitions: Mapping[str, IndexDefinition]) -> None:
    """Raises Unsupported for a partitioned index in a table whose other writers, or whose other indexes, know keys of the whole
    table alone.
    """
    parted = [name for name in partitions if name in definitions and definitions[name].by_partition]
    with reraise_as_unsupported(parted[0] if parted else ""):
        if parted and not config.version.has_index_versions:
            raise Unsupported(f"it is partitioned, and writers of table version {int(config.version)} know no such index")
        dependent = dependent_partitions(parted[0], partitions) if parted else ()
        if dependent:
            raise Unsupported(f"it is partitioned, and {dependent[0]} names records by keys of the whole table")


def check_computable(indexes: Iterable[Index], schema: pa.Schema) -> None:
    """Raises Unsupported, naming the index, when one cannot be computed from the columns of a table."""
    for index in indexes:
        with reraise_as_unsupported(index.partition):
            index.check_columns(schema)


def readable(metadata: MetadataTable) -> Iterator[tuple[type[Index], str]]:
    """The indexes that readers may use, each with its kind, in the order of the kinds; those of one kind as they are defined.

    An index that no kind knows answers nothing.
    """
    for kind in INDEX_TYPES:
        names = [name for name in metadata.partitions if kind.matches_name(name)]
        if kind.is_defined and len(names) > 1:
            places = {name: place for place, name in enumerate(metadata.definitions)}
            names.sort(key=lambda name: places.get(name, len(places)))
        yield from ((kind, name) for name in names)


def first_result(metadata: MetadataTable, lookup: Callable[[type[Index], str], _Answer | None]) -> tuple[str, _Answer] | None:
    """The first index that has an answer, and the answer; None when none has."""
    answers = ((name, lookup(kind, name)) for kind, name in readable(metadata))
    return next(((name, answer) for name, answer in answers if answer is not None), None)


def prepare_all(
    indexes: Sequence[Index], write: CommitPrepared, store: MetadataStore | None = None, current: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What has to be read for a commit, by index.

    known: what was found out earlier, of which only that is asked again which does not hold any more; store: the metadata table
    under the lock, which says so.  Raises Unsupported for an index that cannot be computed.
    """
    held = {
        index.partition: current[index.partition]
        for index in indexes
        if current is not None
        and index.partition in current
        and (store is None or index.is_still_valid(current[index.partition], store))
    }
    late = [index for index in indexes if index.partition not in held]
    if write.schema is not None:
        check_computable(late, write.schema)
    for kind in INDEX_TYPES:
        of_kind = [index for index in late if type(index) is kind]
        if of_kind:
            held.update(kind.prepare(of_kind, write))
    return held
