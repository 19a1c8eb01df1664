"""Index types of the metadata table: one module each, with the common interface `metadata_index.Index`.

files_index.py            partitions and files of the table
column_stats_index.py     column ranges per file
bloom_filter_index.py     Bloom filters of record keys in base files
record_index.py           location of each record key
partition_stats_index.py  column ranges per partition
secondary_index.py        record keys by the value of a column
expression_index.py       ranges or Bloom filters of a function's results

metadata_index.py         the interface: `Index`, `IndexUpdate`
index_events.py           its inputs: `WriteStarted`, `CommitPrepared`, `CommitPublishing`, `FilesCleaned`, `IndexBuild`
index_validation.py       input and findings of index checks
index_pruning.py          input and result of index lookups for a filtered read
stored_ranges.py          ranges loaded from the statistics indexes
partition_stats_delta.py  incremental update of partition ranges
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
"""All index types, in the order in which indexes are built and looked up."""


def index_for_partition(partition: str) -> type[Index] | None:
    """Return the index type of a metadata table partition; None for an unknown name."""
    return next((kind for kind in INDEX_TYPES if kind.matches_name(partition)), None)


def is_defined(partition: str) -> bool:
    """Return True if a metadata table partition requires an index definition."""
    kind = index_for_partition(partition)
    return kind is not None and kind.is_defined


def _has_definition(partition: str, config: TableConfig) -> bool:
    kind = index_for_partition(partition)
    return kind is not None and kind.has_definition(config)


def dependent_partitions(partition: str, partitions: Iterable[str]) -> tuple[str, ...]:
    """Return those of `partitions` that require `partition`."""
    kinds = ((other, index_for_partition(other)) for other in partitions)
    return tuple(o for o, kind in kinds if kind is not None and kind.needs is not None and kind.needs.partition == partition)


def in_build_order(partitions: Iterable[str]) -> tuple[str, ...]:
    """Sort partitions in build order: those with a definition come last, in their original order."""
    requested = list(partitions)
    single = [kind.partition_type for kind in INDEX_TYPES if not kind.is_defined and kind.partition_type in requested]
    return (*single, *(partition for partition in requested if partition not in single))


def maintained_partitions(config: TableConfig) -> tuple[str, ...]:
    """Return the partitions that every commit must update: those in use by readers and those being built.

    Raises:
        Unsupported: PyHudi cannot update one of them.
    """
    maintained = tuple(dict.fromkeys((*config.metadata_partitions, *config.metadata_partitions_inflight)))
    unknown = [partition for partition in maintained if index_for_partition(partition) is None]
    if unknown:
        raise Unsupported(
            f"cannot write a table with {', '.join(unknown)} in its metadata table: PyHudi can read but not update this index; "
            f"drop it before writing: Table.index.drop({unknown[0]!r}), or DROP INDEX in Hudi"
        )
    return maintained


def open_index(partition: str, definitions: Mapping[str, IndexDefinition]) -> Index:
    """Open the index of a partition. Raises Unsupported if PyHudi cannot update it."""
    kind = index_for_partition(partition)
    with reraise_as_unsupported(partition):
        if kind is None:
            raise Unsupported("unknown index type")
        return kind.open(partition, definitions.get(partition))


def open_indexes(context: TableContext, partitions: Sequence[str] | None = None) -> tuple[Index, ...]:
    """Open the indexes that every commit must update, or those of some partitions, in the order of INDEX_TYPES.

    Raises:
        Unsupported: PyHudi cannot update one of them.
    """
    names = maintained_partitions(context.config) if partitions is None else partitions
    definitions = load_index_definitions(context) if any(_has_definition(name, context.config) for name in names) else {}
    return tuple(open_index(name, definitions) for kind in INDEX_TYPES for name in names if kind.matches_name(name))


def check_writable_indexes(context: TableContext) -> None:
    """Raise Unsupported for an index that PyHudi cannot update: it reads some layouts that it does not write."""
    partitions = maintained_partitions(context.config)
    definitions = load_index_definitions(context)
    _check_sections(context.config, partitions, definitions)
    for name in partitions:
        kind = type(open_index(name, definitions))
        if name in definitions:
            with reraise_as_unsupported(name):
                kind.check_writable(definitions[name])


def _check_sections(config: TableConfig, partitions: Sequence[str], definitions: Mapping[str, IndexDefinition]) -> None:
    """Raise Unsupported for a partitioned index if other writers or other indexes of the table require table-wide unique keys."""
    partitioned = [name for name in partitions if name in definitions and definitions[name].by_partition]
    with reraise_as_unsupported(partitioned[0] if partitioned else ""):
        if partitioned and not config.version.has_index_versions:
            raise Unsupported(
                f"it is partitioned, and writers of table version {int(config.version)} do not support partitioned indexes"
            )
        dependent = dependent_partitions(partitioned[0], partitions) if partitioned else ()
        if dependent:
            raise Unsupported(f"it is partitioned, but {dependent[0]} requires record keys that are unique in the whole table")


def check_computable(indexes: Iterable[Index], schema: pa.Schema) -> None:
    """Raise Unsupported, with the name of the index, if one cannot be computed from the columns of a table."""
    for index in indexes:
        with reraise_as_unsupported(index.partition):
            index.check_columns(schema)


def readable(metadata: MetadataTable) -> Iterator[tuple[type[Index], str]]:
    """Yield the indexes that readers may use with their types, in the order of INDEX_TYPES, within a type in definition order.

    Unknown indexes are skipped.
    """
    for kind in INDEX_TYPES:
        names = [name for name in metadata.partitions if kind.matches_name(name)]
        if kind.is_defined and len(names) > 1:
            order = {name: position for position, name in enumerate(metadata.definitions)}
            names.sort(key=lambda name: order.get(name, len(order)))
        yield from ((kind, name) for name in names)


def first_result(metadata: MetadataTable, lookup: Callable[[type[Index], str], _Answer | None]) -> tuple[str, _Answer] | None:
    """Return the name and result of the first index whose lookup returns a result; None if none does."""
    results = ((name, lookup(kind, name)) for kind, name in readable(metadata))
    return next(((name, result) for name, result in results if result is not None), None)


def prepare_all(
    indexes: Sequence[Index], write: CommitPrepared, store: MetadataStore | None = None, current: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Load what the indexes need for a commit before the lock, by index.

    Args:
        indexes: The indexes to update.
        store: The metadata table under the lock, which decides whether earlier results are still valid.
        current: Earlier results; only outdated ones are loaded again.

    Raises:
        Unsupported: An index cannot be computed.
    """
    results = {
        index.partition: current[index.partition]
        for index in indexes
        if current is not None
        and index.partition in current
        and (store is None or index.is_still_valid(current[index.partition], store))
    }
    outdated = [index for index in indexes if index.partition not in results]
    if write.schema is not None:
        check_computable(outdated, write.schema)
    for kind in INDEX_TYPES:
        of_kind = [index for index in outdated if type(index) is kind]
        if of_kind:
            results.update(kind.prepare(of_kind, write))
    return results
