"""Column statistics: minimum, maximum, null count and sizes of a column, from Parquet footers or Arrow batches.

Bounds are in stored form, which Hudi's column statistics use and filters are compared with:

    boolean bool | int, long int | float, double float | string str | bytes bytes | decimal Decimal at the column's scale
    date int, days since 1970-01-01 | timestamp int, microseconds since the epoch

The two sources follow different rules (metadata table, column_stats):
- Statistics of a base file come from its footer. Parquet widens zeros: a minimum of +0.0 is written as -0.0, a maximum
  of -0.0 as +0.0, and this module does the same. The bounds of Arrow's footers ignore NaN, so a writer that has seen
  NaN adds it with `with_nan`.
- Statistics of a log file are collected while it is written and are exact: -0.0 is below +0.0, and NaN above
  everything, as in Java.
Indexes store NaN as +Infinity (`stated`), and readers treat +Infinity as a possible NaN (`nan_safe_upper`). They store
long strings and bytes as shorter bounds that contain all values (`with_short_bounds`).

The metadata table decides which columns an index covers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyhudi.errors import CorruptData, Internal
from pyhudi.format.timestamp_units import declared_bounds, has_wrong_unit
from pyhudi.records.dotted_columns import column_at, field_at
from pyhudi.records.java_strings import is_binary_like, is_string_like, timestamp_micros

NAN_KEY, NAN_HAS_NO_BOUNDS = "pyhudi.nan", "no bounds"
"""Footer entry of a base file: columns with NaN have no bounds in the footer."""

Value = bool | int | float | str | bytes | Decimal
"""Value in stored form."""


@dataclass(frozen=True, slots=True)
class ColumnRange:
    """Statistics of a column in one file or partition.

    Attributes:
        min: Lower bound in stored form; None if every value is null or the bound is unknown.
        max: Upper bound; None exactly if `min` is None.
        null_count: Number of nulls in rows; None if unknown.
        value_count: Number of values in rows, nulls included; None if unknown.
        total_size_bytes: Size of the column chunks; 0 for log files.
        total_uncompressed_size_bytes: Uncompressed size of the column chunks; 0 for log files.
    """

    min: Value | None = None
    max: Value | None = None
    null_count: int | None = None
    value_count: int | None = None
    total_size_bytes: int = 0
    total_uncompressed_size_bytes: int = 0

    def __post_init__(self) -> None:
        if (self.min is None) != (self.max is None):
            raise Internal(f"a column range with one bound: {self.min!r} to {self.max!r}")

    @property
    def is_all_null(self) -> bool:
        """True if all values are known to be null (also if there are none)."""
        return self.null_count is not None and self.null_count == self.value_count

    def with_nan(self) -> ColumnRange:
        """Return the range of the same floating point column with NaN, which Java and Spark order above every number."""
        return replace(self, min=math.nan if self.min is None else self.min, max=math.nan)


NO_VALUES = ColumnRange(null_count=0, value_count=0)
"""Statistics of a column without values."""


def merge_ranges(ranges: Iterable[ColumnRange]) -> ColumnRange:
    """Merge the statistics of several files: bounds widened, counts and sizes summed.

    A range without bounds adds nothing if it is all null, and makes the bounds unknown otherwise. An unknown count
    makes the sum unknown. Without ranges, the result is that of an empty column.
    """
    parts = list(ranges)
    bounded = [part for part in parts if part.min is not None]
    bounds_known = all(part.min is not None or part.is_all_null for part in parts) and bool(bounded)
    return ColumnRange(
        min=_least([part.min for part in bounded]) if bounds_known else None,
        max=_greatest([part.max for part in bounded]) if bounds_known else None,
        null_count=_sum_of([part.null_count for part in parts]),
        value_count=_sum_of([part.value_count for part in parts]),
        total_size_bytes=sum(part.total_size_bytes for part in parts),
        total_uncompressed_size_bytes=sum(part.total_uncompressed_size_bytes for part in parts),
    )


def exchanged_range(
    full_range: ColumnRange, removed_ranges: Sequence[ColumnRange | None], added_ranges: Sequence[ColumnRange | None]
) -> ColumnRange | None:
    """Update the merged statistics of several files when some files are replaced by others.

    Args:
        full_range: Exact statistics of all files before.
        removed_ranges: Statistics of the removed files; None for an unknown one.
        added_ranges: Statistics of the added files; None for an unknown one.

    Returns:
        The new statistics. None if they cannot be computed: something is unknown, or a removed file had a bound that no
        added file has.
    """
    removed = [part for part in removed_ranges if part is not None]
    added = [part for part in added_ranges if part is not None]
    if (
        len(removed) < len(removed_ranges)
        or len(added) < len(added_ranges)
        or not all(_is_complete(part) for part in (full_range, *removed, *added))
    ):
        return None
    nulls, values, compressed_size, uncompressed_size = (
        (getattr(full_range, name) or 0) + sum(getattr(p, name) for p in added) - sum(getattr(p, name) for p in removed)
        for name in ("null_count", "value_count", "total_size_bytes", "total_uncompressed_size_bytes")
    )
    if not 0 <= nulls <= values:
        return None
    removed_bounded = [part for part in removed if part.min is not None]
    if full_range.min is None:
        if removed_bounded:
            return None
        bounds = merge_ranges(added)
        return ColumnRange(bounds.min, bounds.max, nulls, values, max(0, compressed_size), max(0, uncompressed_size))
    added_bounded = [part for part in added if part.min is not None]
    low, high = (
        _least([part.min for part in (full_range, *added_bounded)]),
        _greatest([part.max for part in (full_range, *added_bounded)]),
    )
    keeps_low = all(_order(low) < _order(part.min) for part in removed_bounded) or any(
        _order(part.min) == _order(low) for part in added_bounded
    )
    keeps_high = all(_order(part.max) < _order(high) for part in removed_bounded) or any(
        _order(part.max) == _order(high) for part in added_bounded
    )
    if not (keeps_low and keeps_high):
        return None
    return ColumnRange(low, high, nulls, values, max(0, compressed_size), max(0, uncompressed_size))


def _is_complete(part: ColumnRange) -> bool:
    """Return True if counts and bounds are known."""
    return part.null_count is not None and part.value_count is not None and (part.min is not None or part.is_all_null)


def covers(wide: ColumnRange, narrow: ColumnRange) -> bool:
    """Return True if every value that `narrow` allows, nulls included, is within `wide`; both are of one column."""
    if narrow.null_count and wide.null_count == 0:
        return False
    if narrow.min is None or narrow.max is None:
        return True
    if wide.min is None or wide.max is None:
        return False
    return _order(wide.min) <= _order(narrow.min) and _order(narrow.max) <= _order(wide.max)


def stated(bound: Value | None) -> Value | None:
    """Return a bound as indexes store it: +Infinity for NaN.

    Hudi orders NaN above every number and writes NaN bounds, but with a filter it prunes every file or partition with
    such a bound.
    """
    return math.inf if isinstance(bound, float) and math.isnan(bound) else bound


def nan_safe_upper(bounds: pa.Array) -> pa.Array:
    """Return upper bounds of an index for comparison: a stored +Infinity may be NaN, which is larger."""
    if not pa.types.is_floating(bounds.type):
        return bounds
    return pc.if_else(pc.equal(bounds, math.inf), pa.scalar(math.nan, bounds.type), bounds)


MAX_BOUND_BYTES = 256
"""Longest bound of strings and bytes in an index."""

_CUT_BYTES = MAX_BOUND_BYTES - 4
"""Length of a cut bound, so that it is not cut again: its last character may take more bytes once it is incremented."""

_FIRST_SURROGATE, _AFTER_SURROGATES = 0xD800, 0xE000
_GREATEST_CHARACTERS = (0xFFFF, 0x10FFFF)
"""Characters that are not incremented: above the first one, the orders of UTF-8 and of Java's strings differ."""


def with_short_bounds(range_: ColumnRange) -> ColumnRange:
    """Return a range whose bounds have at most MAX_BOUND_BYTES: a prefix of the minimum, and an incremented one of the maximum.

    Parquet's column indexes cut bounds in the same way. The range contains the original one. A maximum that begins with
    only the greatest characters (or bytes) has no shorter bound, and stays.
    """
    low, high = range_.min, range_.max
    if not isinstance(low, (str, bytes)) or not isinstance(high, (str, bytes)):
        return range_
    short_low, short_high = _cut(low), _cut(high)
    if short_high is not high:
        incremented = _increment(short_high)
        short_high = high if incremented is None else incremented
    return range_ if short_low is low and short_high is high else replace(range_, min=short_low, max=short_high)


def _cut(bound: str | bytes) -> str | bytes:
    """Return a prefix of whole characters of a long bound; the bound itself if it is short."""
    if isinstance(bound, bytes):
        return bound if len(bound) <= MAX_BOUND_BYTES else bound[:_CUT_BYTES]
    if 4 * len(bound) <= MAX_BOUND_BYTES:
        return bound
    data = bound[: MAX_BOUND_BYTES + 1].encode("utf-8", "surrogatepass")
    return bound if len(data) <= MAX_BOUND_BYTES else data[:_CUT_BYTES].decode("utf-8", "ignore")


def _increment(bound: str | bytes) -> str | bytes | None:
    """Return the bound up to its last character or byte that can be incremented, with that incremented; None without one."""
    if isinstance(bound, bytes):
        kept = bound.rstrip(b"\xff")
        return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
    kept_text = bound.rstrip("".join(map(chr, _GREATEST_CHARACTERS)))
    if not kept_text:
        return None
    successor = ord(kept_text[-1]) + 1
    return kept_text[:-1] + chr(_AFTER_SURROGATES if successor == _FIRST_SURROGATE else successor)


def has_range(type_: pa.DataType) -> bool:
    """Return True if columns of this canonical type have a minimum and a maximum."""
    types = pa.types
    return bool(
        types.is_boolean(type_)
        or types.is_integer(type_)
        or types.is_floating(type_)
        or types.is_date(type_)
        or types.is_timestamp(type_)
        or types.is_decimal(type_)
        or is_string_like(type_)
        or is_binary_like(type_)
    )


def stored_value(scalar: pa.Scalar) -> Value | None:
    """Convert an Arrow scalar to stored form; None for null.

    Raises:
        Internal: A type without a range.
    """
    if not scalar.is_valid:
        return None
    type_ = scalar.type
    if pa.types.is_timestamp(type_):
        micros: int = timestamp_micros(pa.array([scalar.value], pa.int64()).cast(type_))[0].as_py()
        return micros
    if pa.types.is_date32(type_):
        days: int = scalar.cast(pa.int32()).as_py()
        return days
    if not has_range(type_):
        raise Internal(f"a value of type {type_} has no stored form")
    value: Value = scalar.as_py()
    return value


def batch_ranges(batch: pa.RecordBatch, columns: Sequence[str]) -> dict[str, ColumnRange]:
    """Compute the exact statistics of columns (dotted names) of a batch in canonical types; sizes are 0.

    Columns of a type without a range only have counts.

    Raises:
        InvalidRequest: The batch lacks a column.
    """
    return {name: _array_range(column_at(batch, name)) for name in columns}


class RangeCollector:
    """Collects column statistics over a stream of batches, in constant memory per column."""

    __slots__ = ("_columns", "_ranges")

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = tuple(columns)
        self._ranges: dict[str, ColumnRange] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Add a batch; errors as in `batch_ranges`. Columns that it lacks (partial updates) are skipped."""
        names = set(batch.schema.names)
        collected = [name for name in self._columns if name.split(".")[0] in names]
        for name, batch_range in batch_ranges(batch, collected).items():
            previous = self._ranges.get(name)
            self._ranges[name] = batch_range if previous is None else merge_ranges((previous, batch_range))

    def ranges(self) -> dict[str, ColumnRange]:
        """Return the statistics of each column over all batches."""
        return {name: self._ranges.get(name, NO_VALUES) for name in self._columns}


def footer_ranges(
    metadata: Any, schema: pa.Schema, columns: Sequence[str], *, row_groups: Sequence[int] | None = None
) -> dict[str, ColumnRange]:
    """Read the statistics of columns (dotted names) of a Parquet file, or of some row groups, from its footer alone.

    Columns that the file lacks are omitted. Columns of a type without a range, or stored under another type family than
    the schema's, only have counts. Bounds are unknown if a row group with values has none.

    Args:
        metadata: A pyarrow.parquet.FileMetaData.
        schema: Canonical schema of the table.
        columns: Dotted column names.
        row_groups: Row groups to merge; None for all.

    Raises:
        CorruptData: A bound of impossible length.
    """
    leaves = {metadata.schema.column(index).path: index for index in range(metadata.num_columns)}
    result: dict[str, ColumnRange] = {}
    for name in columns:
        index = leaves.get(name)
        if index is None:
            continue
        field = field_at(schema, name)
        leaf = metadata.schema.column(index)
        groups = range(metadata.num_row_groups) if row_groups is None else row_groups
        chunks = [metadata.row_group(group).column(index) for group in groups]
        result[name] = widen_zeros(merge_ranges(_chunk_range(chunk, leaf, field) for chunk in chunks))
        if not chunks:
            result[name] = NO_VALUES
    return result


def has_page_bounds(type_: pa.DataType) -> bool:
    """Return True if `page_range` supports columns of a type: integers, dates, timestamps and strings."""
    types = pa.types
    return types.is_signed_integer(type_) or types.is_date(type_) or types.is_timestamp(type_) or types.is_string(type_)


def page_range(least: Any, greatest: Any, leaf: Any, field: pa.Field) -> ColumnRange | None:
    """Convert the bounds of a page; its null count is unknown.

    Args:
        least: Lower bound as the footer stores it.
        greatest: Upper bound as the footer stores it.
        leaf: The column in the schema of a pyarrow.parquet.FileMetaData.
        field: The table's column.

    Returns:
        The range; None if the bounds do not match the type.
    """
    low, high = (_footer_value(raw, leaf, field.type) for raw in (least, greatest))
    if low is None or high is None:
        return None
    low, high = _in_microseconds(low, high, leaf, field)
    return None if low is None else ColumnRange(min=low, max=high)


def may_omit_nan(metadata: Any) -> bool:
    """Return True if the bounds in a Parquet footer may ignore a NaN.

    parquet-mr writes no bounds for a chunk with NaN. Arrow writes those of the other values; files with NAN_KEY have none.

    Args:
        metadata: A pyarrow.parquet.FileMetaData.
    """
    of_java = (metadata.created_by or "").startswith("parquet-mr")
    return not of_java and (metadata.metadata or {}).get(NAN_KEY.encode()) != NAN_HAS_NO_BOUNDS.encode()


def widen_zeros(found: ColumnRange) -> ColumnRange:
    """Return the range as footers store it: floating point zeros with the sign that widens the range."""
    if not isinstance(found.min, float) or not isinstance(found.max, float):
        return found
    return replace(found, min=found.min if found.min else -0.0, max=found.max if found.max else 0.0)


# ---------------------------------------------------------------------------------------------------------------------


def _sum_of(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _order(value: Any) -> tuple[int, Any, int]:
    """Return a sort key in Java's order of doubles: -0.0 below 0.0, NaN above all; other values unchanged."""
    if isinstance(value, float):
        if math.isnan(value):
            return 1, 0.0, 0
        return 0, value, 0 if value or math.copysign(1.0, value) > 0 else -1
    return 0, value, 0


def _least(values: Sequence[Any]) -> Any:
    return min(values, key=_order)


def _greatest(values: Sequence[Any]) -> Any:
    return max(values, key=_order)


def _array_range(array: pa.Array) -> ColumnRange:
    counts = ColumnRange(null_count=array.null_count, value_count=len(array))
    if array.null_count == len(array) or not has_range(array.type):
        return counts
    if pa.types.is_floating(array.type):
        return _float_range(array, counts)
    bounds = pc.min_max(array)
    try:
        return replace(counts, min=stored_value(bounds["min"]), max=stored_value(bounds["max"]))
    except UnicodeDecodeError:
        # Files of Hudi can hold other bytes as text.
        low, high = (bounds[end].cast(pa.binary()).as_py() for end in ("min", "max"))
        return replace(counts, min=_valid_start(low), max=_LAST_TEXT if _valid_start(high).encode() != high else high.decode())


_LAST_TEXT = "\U0010ffff"
"""Upper bound of text with bytes that are not UTF-8: no text of one character is larger."""


def _valid_start(text: bytes) -> str:
    """Return the start of a text before the first byte that is not UTF-8, which is not larger than the text."""
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        return text[: error.start].decode()


def _float_range(array: pa.Array, counts: ColumnRange) -> ColumnRange:
    values: np.ndarray = pc.drop_null(array).to_numpy(zero_copy_only=False)
    numbers = values[~np.isnan(values)]
    if not len(numbers):
        return counts.with_nan()
    low, high = float(numbers.min()), float(numbers.max())
    if low == 0.0 or high == 0.0:
        negative = np.signbit(numbers[numbers == 0.0])
        low = low if low else (-0.0 if negative.any() else 0.0)
        high = high if high else (-0.0 if negative.all() else 0.0)
    finite_range = replace(counts, min=low, max=high)
    return finite_range.with_nan() if len(numbers) < len(values) else finite_range


def _chunk_range(chunk: Any, leaf: Any, field: pa.Field) -> ColumnRange:
    statistics = chunk.statistics
    counts = ColumnRange(
        value_count=chunk.num_values,
        total_size_bytes=chunk.total_compressed_size,
        total_uncompressed_size_bytes=chunk.total_uncompressed_size,
    )
    if statistics is None:
        return counts
    if statistics.has_null_count:
        counts = replace(counts, null_count=statistics.null_count)
    if not statistics.has_min_max:
        return counts
    low, high = (_footer_value(raw, leaf, field.type) for raw in (statistics.min_raw, statistics.max_raw))
    if low is None or high is None:
        return counts
    low, high = _in_microseconds(low, high, leaf, field)
    return replace(counts, min=low, max=high)


def _footer_value(raw: Any, leaf: Any, type_: pa.DataType) -> Any:
    """Return a footer's bound in stored form; None if the file's type is of another family than the column's."""
    types = pa.types
    if types.is_boolean(type_):
        return raw if isinstance(raw, bool) else None
    if types.is_floating(type_):
        return float(raw) if isinstance(raw, float) and not math.isnan(raw) else None
    if types.is_integer(type_) or types.is_date(type_) or types.is_timestamp(type_):
        plain = isinstance(raw, int) and not isinstance(raw, bool) and leaf.logical_type.type != "DECIMAL"
        return raw if plain else None
    if types.is_decimal(type_):
        return _footer_decimal(raw, leaf)
    if not isinstance(raw, (bytes, str)):
        return None
    data = raw.encode() if isinstance(raw, str) else raw
    if is_binary_like(type_):
        return data
    try:
        # A bound that was truncated within a character is no bound of the string.
        return data.decode()
    except UnicodeDecodeError:
        return None


def _footer_decimal(raw: Any, leaf: Any) -> Decimal | None:
    if leaf.logical_type.type != "DECIMAL":
        return None
    if isinstance(raw, bytes):
        if len(raw) > 16:
            raise CorruptData("a decimal bound of a Parquet footer is too long", expected="16 bytes", found=len(raw))
        raw = int.from_bytes(raw, "big", signed=True)
    return decimal_from_unscaled(raw, leaf.scale) if isinstance(raw, int) else None


def decimal_from_unscaled(unscaled: int, scale: int) -> Decimal:
    """Return the decimal `unscaled` / 10**scale, exactly, independent of the context's precision."""
    return Decimal((1 if unscaled < 0 else 0, tuple(int(digit) for digit in str(abs(unscaled))), -scale))


_UNITS: Mapping[str, tuple[int, int]] = {"milliseconds": (1000, 1), "microseconds": (1, 1), "nanoseconds": (1, 1000)}


def _in_microseconds(low: Any, high: Any, leaf: Any, field: pa.Field) -> tuple[Any, Any]:
    """Return bounds of timestamps in microseconds, and others unchanged; None twice if their unit is ambiguous."""
    if not pa.types.is_timestamp(field.type):
        return low, high
    text = str(leaf.logical_type)
    unit = next((unit for unit in _UNITS if unit in text), None)
    if has_wrong_unit(_leaf_field(field, unit), field):
        return declared_bounds(low, high, field) or (None, None)
    factor, divisor = _UNITS[unit or "microseconds"]
    return low * factor // divisor, -(-high * factor // divisor)


def _leaf_field(field: pa.Field, unit: str | None) -> pa.Field:
    """Return a column of timestamps as a Parquet file stores it. unit: of its annotation, None without one."""
    if unit is None:
        return pa.field(field.name, pa.int64())
    return pa.field(field.name, pa.timestamp("us" if unit == "microseconds" else "ms", field.type.tz))
