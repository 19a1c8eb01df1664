"""Data skipping: prune file groups by a filter and index statistics.  Pure: results of index lookups come in as Arrow
tables.

A file is pruned only when its statistics prove that no row of it can match; a file without statistics is retained, and
so is one that lacks them for any indexed column of the filter. A file slice is pruned when all its files are: a merge
that selects one whole record per key yields rows that exist in one of its files. If merging creates new records, slices
with log files are retained.

    statistics of files        column ranges against the filter; of floating point only what `_may_hide_nan` leaves
    statistics of partitions   the same, for types whose bounds every Parquet writer stores. Bounds of text and floating
                               point are left out of footers when they are long or NaN, and Apache Hudi's statistics of
                               a partition then cover only the other files; its null counts omit files from before a
                               column was added
    record keys                literals for all record key fields, of types with an unambiguous text form, as record
                               keys
    buckets                    the bucket of such literals, when the caller provides the bucket layout

Source: docs/formats/reading.md, "Data skipping".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import InvalidRequest
from pyhudi.format.meta_columns import RECORD_KEY
from pyhudi.format.names import are_log_files
from pyhudi.metadata_table.codecs.value_wrappers import unwrap, wrapper_for_type
from pyhudi.planning.bucket_routing import BucketLayout
from pyhudi.records.column_ranges import RangeColumn, may_match
from pyhudi.records.column_statistics import nan_safe_upper
from pyhudi.records.dotted_columns import field_at
from pyhudi.records.filters.filter_ast import ColumnRef, Expr, FunctionCall, Operand
from pyhudi.records.filters.filter_visitor import key_literals, operands
from pyhudi.records.filters.monotonic_functions import derived_column
from pyhudi.records.hashing import bucket_hashes
from pyhudi.records.keys.key_spec import KeySpec
from pyhudi.records.keys.record_keys import record_keys
from pyhudi.table.file_slices import FileSlice
from pyhudi.table.key_form import has_two_forms

MAX_KEYS = 100_000
"""Maximum number of record keys in a filter for which a lookup pays off."""

_OTHER_VALUE = "0"
"""Value of record key fields that do not matter, in keys that are built for their hash."""

_EPOCH_DAY = date(1970, 1, 1).toordinal()


def columns_with_statistics(condition: Expr, schema: pa.Schema, indexed: Collection[str], unusable: Collection[str]) -> list[str]:
    """Return the columns of a bound filter whose statistics can prune, directly or by expressions over them.

    indexed: the columns that the index covers; unusable: those that queries do not read from files. Timestamps in
    another unit than microseconds are excluded: the index does not record the unit of its numbers.
    """
    names = []
    for name in _columns_with_ranges(condition):
        if name not in indexed or name.split(".")[0] in unusable:
            continue
        type_ = field_at(schema, name).type
        # Decimals too large for the first layout of statistics have some in the second.
        has_bounds = wrapper_for_type(type_) is not None or pa.types.is_decimal128(type_)
        if has_bounds and not (pa.types.is_timestamp(type_) and type_.unit != "us"):
            names.append(name)
    return names


def _columns_with_ranges(condition: Expr) -> tuple[str, ...]:
    """The columns of a bound filter whose ranges can prune."""
    columns = (one if isinstance(one, str) else derived_column(one) for one in operands(condition))
    return tuple(dict.fromkeys(one.name if isinstance(one, ColumnRef) else one for one in columns if one is not None))


def has_reliable_partition_bounds(type_: pa.DataType) -> bool:
    """Whether partition statistics are reliable for this type; see the module docstring."""
    types = pa.types
    return bool(
        types.is_boolean(type_)
        or types.is_integer(type_)
        or types.is_date(type_)
        or types.is_timestamp(type_)
        or types.is_decimal(type_)
    )


@dataclass(frozen=True, slots=True)
class UnitRanges:
    """Statistics of units (files or partitions), in the types of their columns.

    Attributes:
        names: Of the units, each once.
        complete: Whether a unit has statistics of all the columns.
        ranges: Of operands of a filter, in the order of the units.
    """

    names: pa.StringArray
    complete: npt.NDArray[np.bool_]
    ranges: Mapping[Operand, RangeColumn]

    @property
    def nbytes(self) -> int:
        """Approximate memory size."""
        return int(self.names.nbytes + self.complete.nbytes + sum(column.nbytes for column in self.ranges.values()))

    def excluded(self, condition: Expr) -> pa.StringArray:
        """Return the complete units in which no row can match."""
        if not len(self.names) or not self.ranges:
            return pa.array([], pa.string())
        return self.names.filter(pa.array(self.complete & ~may_match(condition, self.ranges, len(self.names))))


def unit_ranges(
    schema: pa.Schema,
    names: Sequence[str],
    stats: pa.Table,
    units: pa.Array | pa.ChunkedArray,
    *,
    of_partitions: bool = False,
) -> UnitRanges:
    """Build the ranges of some columns, for any filter.

    names: from `columns_with_statistics`. stats: COLUMN_STATS_SCHEMA's columns, optionally with others; units: string,
    the unit of each row. of_partitions: null counts are ignored.
    """
    types = {name: (name, field_at(schema, name).type) for name in names}
    return _unit_ranges(types, stats, units, of_partitions=of_partitions)


def excluded_by_results(
    condition: Expr,
    call: FunctionCall,
    column: str,
    stats: pa.Table,
    units: pa.Array | pa.ChunkedArray,
    *,
    of_partitions: bool = False,
) -> pa.StringArray:
    """The units in which no row can match, from statistics of the results of a bound call, stored under its column's name."""
    ranges = _unit_ranges({call: (column, call.result_type)}, stats, units, of_partitions=of_partitions)
    return ranges.excluded(condition)


def _unit_ranges(
    types: Mapping[Any, tuple[str, Any]], stats: pa.Table, units: pa.Array | pa.ChunkedArray, *, of_partitions: bool
) -> UnitRanges:
    """types: operands of the filter, each with the column's name in the statistics and its type."""
    units = units.combine_chunks() if isinstance(units, pa.ChunkedArray) else units
    encoded = units.dictionary_encode()
    distinct: pa.StringArray = encoded.dictionary
    count = len(distinct)
    places = encoded.indices.to_numpy()
    complete = np.ones(count, dtype=np.bool_)
    ranges: dict[Operand, RangeColumn] = {}
    column_names = stats.column("column_name")
    for operand, (name, type_) in types.items() if count else ():
        rows = np.flatnonzero(pc.equal(column_names, name).to_numpy())
        at = np.full(count, -1, dtype=np.int64)
        at[places[rows]] = rows
        complete &= at >= 0
        ranges[operand] = _range_column(stats, pa.array(at, mask=at < 0), type_, of_partitions=of_partitions)
    return UnitRanges(distinct, complete, ranges)


def record_key_texts(condition: Expr, keys: KeySpec, schema: pa.Schema, *, has_meta_columns: bool) -> pa.StringArray | None:
    """Return the only record keys that matching rows can have; None when the filter does not determine them, or names too many.

    Literals count for `_hoodie_record_key` itself, and for the record key fields when each of them has some and is
    text, a whole number or a boolean.
    """
    if has_meta_columns:
        named = key_literals(condition, RECORD_KEY)
        if named is not None:
            return pa.array(named, pa.string()) if len(named) <= MAX_KEYS else None
    return None if keys.generates_keys else _texts_of_fields(condition, keys, keys.record_fields, schema)


def with_alternative_key_forms(texts: pa.StringArray, keys: KeySpec) -> pa.StringArray:
    """Return record keys together with the forms that other versions of Hudi write: single-field keys with or without
    the field's name, which no table property records.
    """
    if len(keys.record_fields) != 1:
        return texts
    named = f"{keys.record_fields[0]}:"
    bare = pc.utf8_slice_codeunits(texts.filter(pc.starts_with(texts, named)), len(named))
    return pa.concat_arrays([texts, pc.binary_join_element_wise(keys.record_fields[0], texts, ":"), bare])


def key_hashes(condition: Expr, keys: KeySpec, schema: pa.Schema, layout: BucketLayout) -> tuple[int, ...] | None:
    """Return the only key hashes that matching rows can have; a bucket is their remainder. None when the filter does
    not determine them.

    Raises InvalidRequest for a layout that does not fit the table.
    """
    fields = layout.validated_fields(keys)
    for name in fields:
        # Such characters also separate the fields of a key, which would then be split in the wrong place.
        if any(isinstance(value, str) and not {":", ","}.isdisjoint(value) for value in key_literals(condition, name) or ()):
            return None
    texts = _texts_of_fields(condition, keys, fields, schema)
    if texts is None:
        return None
    if len(texts) and has_two_forms(keys):
        texts = with_alternative_key_forms(texts, keys)
    return tuple(bucket_hashes(texts, keys.record_fields, fields).tolist()) if len(texts) else ()


def secondary_texts(condition: Expr, schema: pa.Schema, name: str, layout: int = 1) -> pa.StringArray | None:
    """Return the values that matching rows can have in a column, in the encoding of a secondary index layout; None when
    the filter does not determine them, or the column's type has no unambiguous text form.
    """
    return _stored_texts(key_literals(condition, name), field_at(schema, name).type, layout)


def result_texts(condition: Expr, call: FunctionCall) -> pa.StringArray | None:
    """Return the results that a bound call can have for matching rows, as a Bloom filter of an expression index stores
    them; None when the filter does not determine them, or there are no such filters.
    """
    type_ = call.result_type
    return None if pa.types.is_timestamp(type_) else _stored_texts(key_literals(condition, call), type_, 1)


def _stored_texts(values: Sequence[Any] | None, type_: pa.DataType, layout: int) -> pa.StringArray | None:
    if values is None or len(values) > MAX_KEYS:
        return None
    types = pa.types
    if types.is_string(type_):
        return pa.array(values, pa.string())
    if types.is_boolean(type_):
        return pa.array(["true" if value else "false" for value in values], pa.string())
    if types.is_integer(type_) or (types.is_timestamp(type_) and type_.unit == "us"):
        return pa.array([str(value) for value in values], pa.string())
    if types.is_decimal(type_):
        return pa.array([f"{value:f}" for value in values], pa.string())
    if types.is_date32(type_):
        if any(not 1 <= _EPOCH_DAY + value <= date.max.toordinal() for value in values):
            return None
        if layout > 1:
            return pa.array([str(value) for value in values], pa.string())
        return pa.array([date.fromordinal(_EPOCH_DAY + value).isoformat() for value in values], pa.string())
    return None


def groups_with_candidates(
    names: pa.Table, excluded: npt.NDArray[np.bool_], *, exclude_slices_with_logs: bool
) -> dict[str, list[str]]:
    """Map each partition to the file groups with a file that is not excluded, or, with exclude_slices_with_logs, a log file.

    names: partition, name and file_id, as returned by `MetadataListing.names`; excluded: a flag for each.
    """
    remaining = ~excluded
    if exclude_slices_with_logs:
        remaining |= are_log_files(names.column("name").combine_chunks()).to_numpy(zero_copy_only=False)
    remaining &= pc.not_equal(names.column("file_id"), "").to_numpy()
    chosen = names.filter(pa.array(remaining)).group_by(["partition", "file_id"], use_threads=False).aggregate([])
    result: dict[str, list[str]] = {}
    for partition, file_id in zip(chosen["partition"].to_pylist(), chosen["file_id"].to_pylist(), strict=True):
        result.setdefault(partition, []).append(file_id)
    return result


def count_groups(names: pa.Table) -> int:
    """Return the number of file groups that the files belong to."""
    data = names.filter(pc.not_equal(names.column("file_id"), ""))
    return int(data.group_by(["partition", "file_id"], use_threads=False).aggregate([]).num_rows)


def has_candidate(slice_: FileSlice, excluded: Collection[str], *, exclude_slices_with_logs: bool) -> bool:
    """Return whether a slice has a file that is not excluded. excluded: paths; exclude_slices_with_logs: a slice with
    log files always has one.
    """
    if slice_.logs and exclude_slices_with_logs:
        return True
    files = (*((slice_.base,) if slice_.base is not None else ()), *slice_.logs)
    return any(file.path not in excluded for file in files)


def _range_column(stats: pa.Table, rows: pa.Int64Array, type_: pa.DataType, *, of_partitions: bool) -> RangeColumn:
    part = stats.select(["min", "max", "value_count", "null_count", "file_name"]).take(rows.drop_null()).combine_chunks()
    places = np.full(len(rows), -1, dtype=np.int64)
    there = rows.is_valid().to_numpy(zero_copy_only=False)
    places[there] = np.arange(int(there.sum()))
    spread = pa.array(places, mask=~there)
    if not part.num_rows:
        nothing = pa.nulls(len(rows), pa.int64())
        return RangeColumn(pa.nulls(len(rows), type_), pa.nulls(len(rows), type_), nothing, nothing)
    low, high = (unwrap(part.column(name).chunk(0), type_)[0] for name in ("min", "max"))
    if pa.types.is_floating(type_):
        doubtful = _may_hide_nan(low, high, part.column("file_name").chunk(0))
        low, high = (pc.if_else(doubtful, pa.scalar(None, type_), bound) for bound in (low, nan_safe_upper(high)))
    bounds = [bound.take(spread) for bound in (low, high)]
    counts = [part.column(name).chunk(0).take(spread) for name in ("null_count", "value_count")]
    if of_partitions:
        counts = [pa.nulls(len(rows), pa.int64())] * 2
    return RangeColumn(bounds[0], bounds[1], counts[0], counts[1])


def _may_hide_nan(low: pa.Array, high: pa.Array, file_names: pa.StringArray) -> pa.BooleanArray:
    """Whether bounds of floating point may omit a row group."""
    # When a row group of a base file holds NaN, Hudi records the range 0 to 0 for it, regardless of its other values. So bounds
    # that do not contain zero are sound, and others may not be. Log files have NaN as their upper bound, or its encoding.
    zero = pa.scalar(0.0, low.type)
    spans = pc.and_(pc.less_equal(low, zero), pc.greater_equal(high, zero))
    return pc.fill_null(pc.and_not(spans, are_log_files(file_names)), False)


def _texts_of_fields(condition: Expr, keys: KeySpec, fields: Sequence[str], schema: pa.Schema) -> pa.StringArray | None:
    """The record keys of matching rows, from literals of some key fields; the other fields have `_OTHER_VALUE`."""
    if keys.is_user_provided:
        return None
    literals: list[list[Any]] = []
    total = 1
    for name in fields:
        type_ = field_at(schema, name).type
        if not (pa.types.is_string(type_) or pa.types.is_integer(type_) or pa.types.is_boolean(type_)):
            return None
        field_literals = key_literals(condition, name)
        if field_literals is None:
            return None
        literals.append(field_literals)
        total *= len(field_literals)
    if total > MAX_KEYS:
        return None
    if not total:
        return pa.array([], pa.string())
    rows = list(product(*literals))
    if any("." in name for name in keys.record_fields):
        return None
    columns = {name: pa.array([row[place] for row in rows], field_at(schema, name).type) for place, name in enumerate(fields)}
    others = pa.repeat(pa.scalar(_OTHER_VALUE), len(rows))
    batch = pa.RecordBatch.from_pydict({name: columns.get(name, others) for name in keys.record_fields})
    try:
        return record_keys(keys, batch)
    except InvalidRequest:
        # An empty text is not a key by itself; rows are found by a scan then.
        return None
