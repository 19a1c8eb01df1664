"""The rows of a query as a lazy scan of Polars, for the slices that Polars reads itself.

`operations.read.native_scan` selects the slices; PyHudi's reader supplies the others. If Polars fails to read a file,
PyHudi's reader reads the slices and reports the error.
"""

from __future__ import annotations

import operator
import os
import sys
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pyhudi.api.optional_imports import imported_polars
from pyhudi.errors import Unsupported
from pyhudi.format.hudi_types import without_extension
from pyhudi.operations.read.native_scan import divide_query
from pyhudi.operations.read.query import SnapshotQuery
from pyhudi.planning.native_scan import NativeScan
from pyhudi.records.filters.engine_expressions import to_engine
from pyhudi.records.filters.filter_ast import Expr
from pyhudi.records.filters.filter_visitor import join_in_pairs
from pyhudi.records.filters.from_polars import COMPARISONS
from pyhudi.table.file_slices import FileSlice

if TYPE_CHECKING:
    import polars


_ROW_INDEX = "\x00row"
"""Name of the column of row numbers; no table has it."""


_SMALL_BYTES = 1 << 20
"""Base files of a scan for which PyHudi's reader takes as long as Polars, if Polars is loaded."""

_UNLOADED_BYTES = 16 << 20
"""Base files of a scan for which Polars is not loaded, however many scans there are."""

_LARGE_BYTES = 128 << 20
"""Base files on which PyHudi's reader loses as much time as loading Polars takes (0.3 seconds)."""


class _Process:
    """State of this process.

    Attributes:
        inherits_polars: It was forked from one that had loaded Polars, whose threads the fork lacks.
        read_bytes: Size of the base files that were read without Polars.
    """

    inherits_polars = False
    read_bytes = 0

    @classmethod
    def check_fork(cls) -> None:
        cls.inherits_polars = "polars" in sys.modules


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Process.check_fork)


@dataclass(frozen=True, slots=True)
class NativeRows:
    """Rows that Polars reads.

    Attributes:
        rows: They, as a lazy frame of the columns of the query; of one column if it has none.
        plain: Their slices.
        rest: Slices that PyHudi's reader reads.
    """

    rows: polars.LazyFrame
    plain: tuple[FileSlice, ...]
    rest: tuple[FileSlice, ...]


def native_rows(query: SnapshotQuery, condition: Expr | None, *, merges_logs: bool = True) -> NativeRows | None:
    """Scan the plain slices of a query with Polars; None if there are none.

    Args:
        query: The query.
        condition: Which rows the scan returns.
        merges_logs: As for `divide_query`.
    """
    polars = imported_polars()
    query = replace(query, spec=replace(query.spec, condition=condition))
    divided = divide_query(query, merges_logs=merges_logs)
    if not divided.scans:
        return None
    try:
        test = None if condition is None else to_engine(condition, _PolarsExpressions())
    except Unsupported:
        return None
    # Without columns Polars would lose the number of rows.
    schema = query.schema if query.schema.names else pa.schema([("", pa.bool_())])
    frames = []
    with suppress_polars_errors():
        for scan in divided.scans:
            frame = _scanned(scan)
            frame = frame if test is None else frame.filter(test)
            frame = frame if query.schema.names else frame.with_columns(polars.lit(value=True).alias(""))
            frames.append(frame.select(schema.names))
        if (rows := divided.merged) is not None:
            ones = polars.repeat(value=True, n=rows.num_rows).alias("")
            frames.append((to_frame(rows) if query.schema.names else polars.select(ones)).lazy())
        expected = frame_schema(schema)
        if all(frame.collect_schema() == expected for frame in frames):
            return NativeRows(polars.concat(frames), divided.plain, divided.rest)
    return None


def _scanned(scan: NativeScan) -> polars.LazyFrame:
    pl = imported_polars()
    row_index = _ROW_INDEX if scan.has_hidden_rows else None
    frame: polars.LazyFrame = pl.scan_parquet(list(scan.paths), glob=False, hive_partitioning=False, row_index_name=row_index)
    if row_index is not None:
        # The index counts the rows of all files.
        starts = np.cumsum([0, *(file.row_count for file in scan.files)])
        hidden = [start + file.hidden for start, file in zip(starts, scan.files, strict=False) if file.hidden is not None]
        numbers = pl.Series(np.concatenate(hidden), dtype=pl.get_index_type())
        frame = frame.filter(~pl.col(row_index).is_in(numbers.implode()))
    changed = []
    for column in scan.columns:
        type_ = polars_type(column.field.type)
        if column.stored_name is None:
            value = None if column.value is None else column.value.as_py()
            changed.append(pl.lit(value, dtype=type_).alias(column.field.name))
        elif column.is_cast or column.stored_name != column.field.name:
            stored = pl.col(column.stored_name)
            changed.append((stored.cast(type_) if column.is_cast else stored).alias(column.field.name))
    return frame.with_columns(changed) if changed else frame


def native_frames(
    query: SnapshotQuery, native: NativeRows, rows: polars.LazyFrame, names: Sequence[str]
) -> Generator[polars.DataFrame, None, int | None]:
    """Yield the named columns of the rows, and return their number; None if Polars failed before the first frame."""
    polars = imported_polars()
    height = 0
    has_rows = False
    try:
        if not names:
            height = int(rows.select(polars.len()).collect().item())
            yield polars.DataFrame(height=height)
            return height
        selected = rows.select(names)
        # Since Polars 1.33.
        for frame in selected.collect_batches() if hasattr(selected, "collect_batches") else [selected.collect()]:
            has_rows = True
            height += frame.height
            yield frame
    except BaseException as error:
        if not isinstance(error, _polars_errors()):
            raise
        if not has_rows:
            return None
        for slice_ in native.plain:
            for _ in query.reader(slice_):
                pass
        uri = query.snapshot.context.storage.uri
        raise Unsupported(f"Polars cannot read a base file of {uri}: {error}. Read the scan with to_arrow().") from error
    return height


def _polars_errors() -> tuple[type[BaseException], ...]:
    """Errors of Polars' Parquet reader; a file that is missing is an OSError, a damaged one may be a panic."""
    exceptions = imported_polars().exceptions
    return (exceptions.PolarsError, exceptions.PanicException, OSError)


@contextmanager
def suppress_polars_errors() -> Iterator[None]:
    """Suppress errors of Polars' Parquet reader."""
    with suppress(*_polars_errors()):
        yield


def to_frame(rows: pa.Table) -> polars.DataFrame:
    """Convert rows to a DataFrame."""
    frame: polars.DataFrame = imported_polars().from_arrow(without_extension(rows))
    return frame


def from_frame(frame: polars.DataFrame, schema: pa.Schema) -> pa.Table:
    """Convert a DataFrame to an Arrow table with the same columns in the types of a schema."""
    return with_types(frame.to_arrow(compat_level=imported_polars().CompatLevel.newest()), schema)


def with_types(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Cast the columns of a table to the types of a schema."""
    columns = [rows[name] for name in schema.names]
    del rows
    for number, type_ in enumerate(schema.types):
        if columns[number].type != type_:
            # One column at a time, so that the values of at most one are in memory twice.
            columns[number] = columns[number].cast(type_)
    return pa.Table.from_arrays(columns, schema=schema)


def is_worth_loading(slices: Iterable[object]) -> bool:
    """Whether `to_arrow` reads these slices with Polars.

    Polars must be installed. A process loads it once it has read so much that Polars would have saved the time.
    """
    bases = (slice_.base for slice_ in slices if isinstance(slice_, FileSlice))
    size_bytes = sum(base.size_bytes for base in bases if base is not None)
    if size_bytes < _SMALL_BYTES or _Process.inherits_polars:
        return False
    if "polars" in sys.modules:
        return True
    if size_bytes < _UNLOADED_BYTES or find_spec("polars") is None:
        return False
    _Process.read_bytes += size_bytes
    return _Process.read_bytes >= _LARGE_BYTES


@lru_cache(maxsize=256)
def frame_schema(schema: pa.Schema) -> polars.Schema:
    """Convert an Arrow schema to the schema of a DataFrame."""
    return to_frame(schema.empty_table()).schema


def polars_type(type_: pa.DataType) -> polars.DataType:
    """Return the type of Polars for an Arrow type."""
    return frame_schema(pa.schema([("c", type_)]))["c"]


class _PolarsExpressions:
    """`ExpressionBuilder` of Polars."""

    def compare(self, column: str, sign: str, value: pa.Scalar) -> Any:
        return COMPARISONS[sign](imported_polars().col(column), self._literal(value))

    def is_in(self, column: str, values: list[pa.Scalar]) -> Any:
        polars = imported_polars()
        return polars.col(column).is_in(polars.from_arrow(pa.array(values, values[0].type)).implode())

    def is_null(self, column: str) -> Any:
        return imported_polars().col(column).is_null()

    def starts_with(self, column: str, prefix: str) -> Any:
        return imported_polars().col(column).str.starts_with(prefix)

    def constant(self, value: bool) -> Any:  # noqa: FBT001
        return imported_polars().lit(value)

    def negated(self, part: Any) -> Any:
        return ~part

    def joined(self, parts: Iterable[Any], *, is_any: bool) -> Any:
        return join_in_pairs(list(parts), operator.or_ if is_any else operator.and_)

    def _literal(self, value: pa.Scalar) -> Any:
        return imported_polars().lit(value.as_py(), dtype=polars_type(value.type))
