"""Do partition statistics, Bloom filters, secondary and expression indexes say what is so?  A part of `validate`.

    partition_stats    a range of every column in every partition, which covers what column_stats says of its files, and the
                       files themselves where such ranges can be believed
    bloom_filters      the filters of base files against those in their footers
    secondary index    every pair of value and record key of the rows is there; none besides
    expression index   ranges and filters of files against the functions computed anew, those of partitions against their files

Each check takes what the snapshot sees and gives what it found; it raises what reading the metadata table raises.

Source: storage format, "Metadata table", partitions.
"""

from __future__ import annotations

import base64
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.execute.engine import Engine
from pyhudi.execute.index_values import ExpressionIndex, FoundExpression, SecondaryIndex, secondary_keys, secondary_reader
from pyhudi.execute.indexing import FileIndexing
from pyhudi.execute.log_scan import InstantValidity
from pyhudi.execute.metadata_records import FilesToIndex, run_index_files
from pyhudi.format.metadata.partitions import BLOOM_FILTERS, COLUMN_STATS
from pyhudi.format.metadata.secondary_index import routes_of_keys
from pyhudi.format.paths import file_name_of
from pyhudi.operations.metadata.defined import DefinedIndexes, result_type
from pyhudi.operations.metadata.mirror import stored_ranges
from pyhudi.operations.metadata.prepare import find_expressions, index_reader
from pyhudi.plan.skipping import has_reliable_partition_bounds
from pyhudi.records.columns import field_at
from pyhudi.records.metadata_keys import bloom_filter_keys, file_hashes
from pyhudi.records.stats import ColumnRange, covers, merge_ranges
from pyhudi.table.context import TableContext
from pyhudi.table.metadata.indexes import find_bloom_filters, find_partition_ranges, find_secondary_values
from pyhudi.table.metadata.merge import concat_cells
from pyhudi.table.metadata.records import MetadataTable
from pyhudi.table.slices import FileSlice
from pyhudi.timeline.timeline import Timeline

_FILTERS_AT_ONCE = 32
_FILTER_HEAD_BYTES = 25
"""Sizes and counts at the beginning of a filter."""


@dataclass(slots=True)
class IndexFindings:
    """What one check found.  errors, warnings: (path, what); looked_at: how much of what there is, for the report."""

    errors: list[tuple[str, str]] = field(default_factory=list)
    warnings: list[tuple[str, str]] = field(default_factory=list)
    looked_at: str = ""


@dataclass(frozen=True, slots=True)
class CheckedTable:
    """What checks look at.  schema: with meta columns; slices: of the present state; chosen: paths of the base files to open."""

    context: TableContext
    engine: Engine
    timeline: Timeline
    metadata: MetadataTable
    schema: pa.Schema
    slices: Sequence[FileSlice]
    chosen: Sequence[str]

    @property
    def files(self) -> list[tuple[str, str, int]]:
        """(partition path, path, bytes) of the chosen base files and of all log files."""
        chosen = set(self.chosen)
        return [
            (s.partition, file.path, file.size_bytes)
            for s in self.slices
            for file in (*((s.base,) if s.base is not None and s.base.path in chosen else ()), *s.logs)
        ]


def check_partition_stats(table: CheckedTable, columns: Sequence[str]) -> IndexFindings:
    """Partition statistics against column statistics, and against the chosen base files and all log files."""
    found = IndexFindings()
    kinds = {name: field_at(table.schema, name).type for name in columns}
    partitions = sorted({slice_.partition for slice_ in table.slices})
    of_files = _ranges_of_files(table, kinds, COLUMN_STATS)
    inside = _ranges_inside(table, [name for name, kind in kinds.items() if has_reliable_partition_bounds(kind)])
    for name, kind in kinds.items():
        said = find_partition_ranges(table.metadata, name, kind)
        for partition in partitions:
            for known in (of_files, inside):
                parts = [ranges[name] for ranges in known.get(partition, ()) if name in ranges]
                if parts and not _compare_partition(found, partition, name, said.get(partition), parts):
                    break
    found.looked_at = f"{len(columns)} columns of {len(partitions):,} partitions"
    return found


def check_bloom_filters(table: CheckedTable) -> IndexFindings:
    """Stored filters against those in footers."""
    found = IndexFindings()
    files = tuple(file for file in table.files if not _name(file[1]).startswith("."))
    task = FilesToIndex(
        table.context.storage.spec(), files, table.schema, FileIndexing(bloom_filters=True), InstantValidity.of(table.timeline)
    )
    there = [(path, file.partition, file.indexed.bloom) for (_, path, _), file in zip(files, run_index_files(task), strict=True)]
    _compare_filters(found, table.metadata, BLOOM_FILTERS, there)
    found.looked_at = f"{len(files):,} base files"
    return found


def check_secondary(table: CheckedTable, index: SecondaryIndex) -> IndexFindings:
    """A secondary index against the rows."""
    found = IndexFindings()
    validity = InstantValidity.of(table.timeline)
    reader = secondary_reader(index_reader(table.context, table.schema, validity), (index,))
    total = 0
    for slice_ in table.slices:
        keys = secondary_keys(reader, slice_, (index,))[index.partition]
        total += len(keys)
        if not len(keys):
            continue
        routes = routes_of_keys(keys) if index.layout > 1 else None
        cells = [part.keys for part in concat_cells(table.metadata.lookup(index.partition, keys, routes))]
        known = pa.concat_arrays([pa.array([], pa.binary()), *cells]).cast(pa.string())
        missing = keys.filter(pc.invert(pc.is_in(keys, value_set=known)))
        if len(missing):
            what = f"{slice_.file_id}: {len(missing)} pairs of value and record key are missing: {_some(missing)}"
            found.errors.append((slice_.partition, what))
    stored = sum(len(keys) for _, keys in find_secondary_values(table.metadata, index.partition))
    if stored > total:
        found.warnings.append(("", f"has {stored} pairs, and the rows {total}: lookups read more than they need"))
    found.looked_at = f"{stored:,} pairs, {total:,} values"
    return found


def check_expression(table: CheckedTable, index: ExpressionIndex) -> IndexFindings:
    """An expression index against its function computed anew."""
    found = IndexFindings()
    files = table.files
    indexes = DefinedIndexes(expressions=(index,))
    computed = find_expressions(table.context, table.engine, indexes, files, table.schema, InstantValidity.of(table.timeline))
    found.looked_at = f"{len(files):,} files"
    if index.filters is not None:
        there = [(path, partition, one.bloom) for (partition, path, _), one in zip(files, computed, strict=True)]
        _compare_filters(found, table.metadata, index.partition, there)
        return found
    kind = result_type(index, table.schema)
    stored = stored_ranges(table.metadata, sorted({one.partition for one in computed}), {index.column: kind}, index.partition)
    bare = 0
    by_partition: dict[str, list[ColumnRange]] = {}
    for (_, path, _), one in zip(files, computed, strict=True):
        if one.range is None:
            continue
        by_partition.setdefault(one.partition, []).append(one.range)
        known = stored.get((one.partition, one.name), {}).get(index.column)
        if known is None:
            bare += 1
        elif not covers(known, one.range):
            found.errors.append((path, _differs(index, one, known)))
    if bare:
        found.warnings.append(("", f"{index.partition} says nothing of {bare} files, which are never passed over"))
    if table.context.config.keys.partition_fields:
        said = find_partition_ranges(table.metadata, index.column, kind, index.partition)
        for partition, parts in sorted(by_partition.items()):
            _compare_partition(found, partition, index.partition, said.get(partition), parts)
    return found


def _ranges_of_files(
    table: CheckedTable, kinds: Mapping[str, pa.DataType], index: str
) -> dict[str, list[Mapping[str, ColumnRange]]]:
    """The stored ranges of the present state's files, by partition."""
    partitions = sorted({slice_.partition for slice_ in table.slices})
    stored = stored_ranges(table.metadata, partitions, kinds, index)
    result: dict[str, list[Mapping[str, ColumnRange]]] = {}
    for slice_ in table.slices:
        for file in (*((slice_.base,) if slice_.base is not None else ()), *slice_.logs):
            ranges = stored.get((slice_.partition, _name(file.path)))
            if ranges:
                result.setdefault(slice_.partition, []).append(ranges)
    return result


def _ranges_inside(table: CheckedTable, columns: Sequence[str]) -> dict[str, list[Mapping[str, ColumnRange]]]:
    """The bounds of columns in the files themselves, by partition.  Nulls are left to the statistics of files: the real Hudi's
    leave those out that a file from before a column was added stands for.
    """
    task = FilesToIndex(
        table.context.storage.spec(),
        tuple(table.files),
        table.schema,
        FileIndexing(tuple(columns)),
        InstantValidity.of(table.timeline),
    )
    result: dict[str, list[Mapping[str, ColumnRange]]] = {}
    for file in run_index_files(task) if columns else ():
        bounds = {name: ColumnRange(range_.min, range_.max) for name, range_ in file.indexed.ranges if range_.min is not None}
        result.setdefault(file.partition, []).append(bounds)
    return result


def _compare_partition(
    found: IndexFindings, partition: str, what: str, said: ColumnRange | None, parts: Sequence[ColumnRange]
) -> bool:
    """Whether the range of a partition covers those of its files; notes it where it does not."""
    if said is None:
        found.errors.append((partition, f"no range of {what}: real readers pass the partition over"))
        return False
    together = merge_ranges(parts)
    if covers(said, together):
        return True
    detail = f"{what} is {together.min!r} to {together.max!r} in its files, and the index says {said.min!r} to {said.max!r}"
    found.errors.append((partition, detail))
    return False


def _differs(index: ExpressionIndex, one: FoundExpression, known: ColumnRange) -> str:
    assert one.range is not None, "only ranges are compared"
    return (
        f"{index.expression.function}({index.column}) is {one.range.min!r} to {one.range.max!r}, "
        f"and {index.partition} says {known.min!r} to {known.max!r}"
    )


def _compare_filters(
    found: IndexFindings,
    metadata: MetadataTable,
    index: str,
    files: Sequence[tuple[str, str, tuple[str, str] | None]],
) -> None:
    # What stands in a footer is copied; filters of expressions are made by either writer.
    same = operator.eq if index == BLOOM_FILTERS else filter_covers
    bare = 0
    for start in range(0, len(files), _FILTERS_AT_ONCE):
        part = files[start : start + _FILTERS_AT_ONCE]
        names: dict[str, list[str]] = {}
        for path, partition, _ in part:
            names.setdefault(partition, []).append(_name(path))
        rows = find_bloom_filters(metadata, names, index)
        stored = dict(zip(rows["key"].to_pylist(), rows["bloom_filter"].to_pylist(), strict=True))
        for path, partition, bloom in part:
            key = bloom_filter_keys(partition, file_hashes([_name(path)]))[0].as_py()
            if bloom is None:
                continue
            if key not in stored:
                bare += 1
            elif not same(stored[key].decode("ascii", "replace"), bloom[1]):
                found.errors.append((path, f"its Bloom filter in {index} is another one than that of the file"))
    if bare:
        found.warnings.append(("", f"{bare} of {len(files)} files have no Bloom filter in {index}, and are never passed over"))


def filter_covers(stored: str, wanted: str) -> bool:
    """Whether a stored Bloom filter holds what another of the same size does.

    The real Hudi counts a value as often as it comes, so filters of the same values differ in their counts.  Filters of other
    sizes cannot be compared, and count as covering.
    """
    if stored == wanted:
        return True
    try:
        first, second = (np.frombuffer(base64.b64decode(text, validate=True), dtype=np.uint8) for text in (stored, wanted))
    except ValueError:
        return False
    if len(first) != len(second):
        return len(first) > _FILTER_HEAD_BYTES
    return not bool((second[_FILTER_HEAD_BYTES:] & ~first[_FILTER_HEAD_BYTES:]).any())


def _name(path: str) -> str:
    return file_name_of(path)


def _some(keys: pa.StringArray) -> str:
    return ", ".join(repr(key) for key in keys.slice(0, 5).to_pylist()) + (", ..." if len(keys) > 5 else "")


Check = Callable[[], IndexFindings]
"""A check that is ready to be made."""
