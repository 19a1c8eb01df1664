"""What secondary and expression indexes have to be told of a commit, found out before it takes the lock.

    secondary index     each file group that the commit writes or replaces, before it and after it: which pairs of value and
                        record key came, and which left.  Compactions and clusterings change none
    expression index    each file that the commit adds: the range of the results, or a filter of them

An index that came while the commit was under way is caught up with by the commit itself, under the lock.

Source: storage format, "Metadata table", secondary_index and expression index.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from pyhudi.execute.engine import Engine
from pyhudi.execute.index_values import (
    ExpressionTask,
    FoundExpression,
    SecondaryIndex,
    SecondaryTask,
    run_expressions,
    run_secondary,
    secondary_reader,
)
from pyhudi.execute.log_scan import InstantValidity
from pyhudi.execute.metadata_records import KeySource
from pyhudi.execute.read_slice import ReadSpec
from pyhudi.execute.write_base import WriteStatus
from pyhudi.format.actions.commit import Operation
from pyhudi.format.meta_columns import with_meta_fields
from pyhudi.format.names import parse_base_file, parse_log_file
from pyhudi.format.paths import file_name_of
from pyhudi.operations.metadata.defined import DefinedIndexes
from pyhudi.operations.metadata.store import MetadataStore, in_threads
from pyhudi.records.mergers import merge_rule
from pyhudi.table.context import TableContext
from pyhudi.table.slices import BaseFile, FileSlice, LogFile
from pyhudi.table.snapshot import Snapshot

FILES_PER_TASK = 16


@dataclass(frozen=True, slots=True)
class PreparedIndexes:
    """What was found out.

    names: for which indexes; secondary: by partition of the metadata table; expressions: of all; shards: the numbers of file
    groups of secondary indexes, for which their side files are.
    """

    names: frozenset[str] = frozenset()
    secondary: Mapping[str, tuple[KeySource, ...]] = field(default_factory=dict)
    expressions: tuple[FoundExpression, ...] = ()
    shards: Mapping[str, int] = field(default_factory=dict)

    def joined(self, other: PreparedIndexes) -> PreparedIndexes:
        """Both together; of an index of both, what the other says."""
        return PreparedIndexes(
            self.names | other.names,
            {**self.secondary, **other.secondary},
            (*(one for one in self.expressions if one.index not in other.names), *other.expressions),
            {**self.shards, **other.shards},
        )


def prepare_indexes(
    context: TableContext,
    engine: Engine | None,
    indexes: DefinedIndexes,
    snapshot: Snapshot,
    schema: pa.Schema | None,
    statuses: Sequence[WriteStatus],
    time: str,
    operation: Operation,
    replaced: Mapping[str, Iterable[str]] | None = None,
) -> PreparedIndexes:
    """Find out for some indexes what a commit changes.

    snapshot: the table before it; schema: its columns after it, without meta columns; time: its instant; operation: as its
    metadata says; replaced: partition -> file groups that it replaces.  Raises Unsupported for an index that cannot be computed.
    """
    if not indexes.names:
        return PreparedIndexes()
    wanted = with_shards(MetadataStore.open(context), indexes.secondary)
    shards = {index.partition: index.shards for index in wanted}
    if schema is None:
        return PreparedIndexes(indexes.names, shards=shards)
    indexes.check(schema)
    stored = with_meta_fields(schema)
    validity = InstantValidity.of(snapshot.timeline)
    after = validity.including(time)
    secondary: dict[str, tuple[KeySource, ...]] = {}
    if indexes.secondary and operation.changes_rows:
        reader = secondary_reader(index_reader(context, stored, validity), indexes.secondary)
        tasks = [
            SecondaryTask(reader, after, old, new, wanted, time, f"{file_id}_{number}")
            for number, (file_id, old, new) in enumerate(_changed_slices(snapshot, statuses, time, replaced))
        ]
        found = engine.map(run_secondary, tasks) if engine is not None else in_threads(run_secondary, tasks)
        secondary = key_sources(path for part in found for path in part)
    files = tuple((s.stat.partition_path or "", s.stat.path or "", s.stat.file_size_in_bytes) for s in statuses)
    expressions: tuple[FoundExpression, ...] = ()
    if indexes.expressions and files:
        expressions = find_expressions(context, engine, indexes, files, stored, after)
    return PreparedIndexes(indexes.names, secondary, expressions, shards)


def find_expressions(
    context: TableContext,
    engine: Engine | None,
    indexes: DefinedIndexes,
    files: Sequence[tuple[str, str, int]],
    stored: pa.Schema,
    validity: InstantValidity,
) -> tuple[FoundExpression, ...]:
    """What expression indexes are to say of files.

    files: (partition path, path, bytes); stored: the columns with meta columns.
    """
    spec = context.storage.spec()
    tasks = [
        ExpressionTask(spec, tuple(files[start : start + FILES_PER_TASK]), stored, indexes.expressions, validity)
        for start in range(0, len(files), FILES_PER_TASK)
    ]
    found = engine.map(run_expressions, tasks) if engine is not None else in_threads(run_expressions, tasks)
    return tuple(one for part in found for one in part)


def index_reader(context: TableContext, stored: pa.Schema, validity: InstantValidity) -> ReadSpec:
    """Reads slices of the table; what of them is for the caller to say.  stored: the columns with meta columns."""
    return ReadSpec(
        storage=context.storage.spec(),
        table_schema=stored,
        output=stored,
        condition=None,
        keys=context.config.keys,
        rule=merge_rule(context.config.merge),
        validity=validity,
        populate_meta_fields=context.config.populate_meta_fields,
    )


def with_shards(store: MetadataStore, indexes: Iterable[SecondaryIndex]) -> tuple[SecondaryIndex, ...]:
    """The indexes with the numbers of their file groups."""
    return tuple(replace(index, shards=store.groups.count(index.partition)) for index in indexes)


def key_sources(paths: Iterable[tuple[str, str]]) -> dict[str, tuple[KeySource, ...]]:
    """Side files by partition of the metadata table.  paths: (partition, path)."""
    found: dict[str, list[KeySource]] = {}
    for partition, path in paths:
        found.setdefault(partition, []).append(KeySource(path, "", "", 0))
    return {partition: tuple(sources) for partition, sources in found.items()}


def _changed_slices(
    snapshot: Snapshot, statuses: Sequence[WriteStatus], time: str, replaced: Mapping[str, Iterable[str]] | None
) -> list[tuple[str, FileSlice | None, FileSlice | None]]:
    """(file id, slice before, slice after) of each file group that a commit writes or replaces."""
    gone = {(partition, file_id) for partition, ids in (replaced or {}).items() for file_id in ids}
    written = {(s.stat.partition_path or "", s.stat.file_id or "") for s in statuses}
    groups: dict[str, set[str]] = {}
    for partition, file_id in gone | written:
        groups.setdefault(partition, set()).add(file_id)
    there = set(snapshot.listing.partitions())
    known = {partition: ids for partition, ids in groups.items() if partition in there}
    before = {(s.partition, s.file_id): s for found in snapshot.slices(file_ids=known).values() for s in found}
    after: dict[tuple[str, str], FileSlice] = {}
    for status in statuses:
        group = (status.stat.partition_path or "", status.stat.file_id or "")
        path = status.stat.path or ""
        name = file_name_of(path)
        log, base = parse_log_file(name), parse_base_file(name)
        if log is not None:
            held = after.get(group) or before.get(group) or FileSlice(*group, time, None)
            after[group] = replace(held, logs=(*held.logs, LogFile(path, log, status.stat.file_size_in_bytes)))
        elif base is not None:
            after[group] = FileSlice(*group, time, BaseFile(path, base, status.stat.file_size_in_bytes))
    return [(group[1], before.get(group), after.get(group)) for group in sorted(gone | written)]
