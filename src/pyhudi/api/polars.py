"""A table as a Polars LazyFrame, `pyhudi.scan_polars`, or as a DataFrame, `Scan.to_polars`.

Polars pushes the required columns, the predicate and the row limit down to its source. The translatable part of the
predicate prunes file slices. Base files that `operations.read.native_scan` selects are then scanned by Polars, which
evaluates the predicate while it reads them; PyHudi's reader supplies the other slices. If Polars fails to read a file,
PyHudi's reader reads the slices again and reports the error.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyhudi.api.optional_imports import imported_polars
from pyhudi.api.scan import Scan
from pyhudi.api.splits import first_rows, read_batches
from pyhudi.api.table import Table
from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.operations.read.change_queries import ChangeQuery
from pyhudi.operations.read.native_scan import divide_query
from pyhudi.operations.read.query import SnapshotQuery
from pyhudi.planning.instant_arguments import InstantArgument
from pyhudi.planning.native_scan import NativeScan
from pyhudi.records.filters.engine_expressions import to_engine
from pyhudi.records.filters.filter_ast import Expr
from pyhudi.records.filters.filter_parser import Filter
from pyhudi.records.filters.filter_visitor import join_in_pairs
from pyhudi.records.filters.from_polars import COMPARISONS
from pyhudi.records.filters.pushdown import pushed_down
from pyhudi.table.file_slices import FileSlice

if TYPE_CHECKING:
    import polars


def scan_polars(
    source: str | os.PathLike[str] | Table | Scan,
    columns: Sequence[str] | None = None,
    filter: Filter | None = None,
    as_of: InstantArgument | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
    options: Mapping[str, object] | None = None,
) -> polars.LazyFrame:
    """Scan a table as a Polars LazyFrame, with projection and predicate pushdown.

    The snapshot is that of this call, however often the frame is collected.

    Args:
        source: A table, its URI, or a scan of it (time travel, incremental or change data), which takes no further
            arguments.
        columns: As in `Table.scan`.
        filter: As in `Table.scan`.
        as_of: As in `Table.scan`.
        storage_options: As in `Table`, if `source` is a URI.
        options: `hoodie.*` options of the scan.

    Raises:
        InvalidRequest: Polars is not installed, or arguments contradict one another.
        Unsupported: The Polars release has no IO source plugins.

    Example:
        >>> frame = hp.scan_polars("/data/trips").filter(pl.col("fare") > 10).select("id").collect()
    """
    has_scan_arguments = any(argument is not None for argument in (columns, filter, as_of, options))
    if storage_options is not None and isinstance(source, (Table, Scan)):
        raise InvalidRequest("storage_options apply to a URI only: an open table has its own; pass them to Table(...)")
    if isinstance(source, Scan):
        if has_scan_arguments:
            raise InvalidRequest("a scan has its columns, filter and time already: pass them to Table.scan")
        return lazy_frame(source)
    table = source if isinstance(source, Table) else Table(source, storage_options)
    return lazy_frame(table.scan(columns, filter, as_of, options=options))


def lazy_frame(scan: Scan) -> polars.LazyFrame:
    """Return the rows of a scan as a LazyFrame. Raises as `scan_polars`."""
    polars = imported_polars()
    try:
        from polars.io.plugins import register_io_source
    except ImportError:
        raise Unsupported(
            f"lazy frames need Polars 1.24 or later, and this is {polars.__version__}: pip install --upgrade polars"
        ) from None
    frame = register_io_source(_Source(scan.query), schema=_frame_schema(scan.schema))
    return frame if scan.limit is None else frame.head(scan.limit)


def read_frame(scan: Scan) -> polars.DataFrame:
    """Read the rows of a scan into a DataFrame."""
    polars = imported_polars()
    query = scan.query
    if scan.limit is None and isinstance(query, SnapshotQuery):
        native = _native_rows(query, query.spec.condition)
        if native is not None:
            frames: list[polars.DataFrame] = []
            with _suppress_polars_errors():
                frames.append(native.rows.collect())
            if frames:
                if native.rest:
                    frames.append(polars.from_arrow(scan.of_slices(native.rest).to_arrow()))
                return polars.concat(frames)
    rows: polars.DataFrame = polars.from_arrow(scan.to_arrow())
    return rows


class _Source:
    """IO source that Polars calls for each collection of the frame."""

    def __init__(self, query: SnapshotQuery | ChangeQuery) -> None:
        self._query = query

    def __call__(
        self, with_columns: list[str] | None, predicate: Any, n_rows: int | None, batch_size: int | None
    ) -> Iterator[polars.DataFrame]:
        """Read the rows. n_rows: row limit of the source, applied before the predicate."""
        polars = imported_polars()
        schema = self._query.schema
        names = schema.names if with_columns is None else with_columns
        tested = () if predicate is None else predicate.meta.root_names()
        needed = [name for name in schema.names if name in names or name in tested]
        pushed_predicate = None if predicate is None or n_rows is not None else pushed_down(predicate, schema)
        query = self._query.narrowed(needed, pushed_predicate)
        # Some Polars releases panic if a source yields no frame.
        yield polars.from_arrow(query.schema.empty_table()).select(names)
        tasks: Sequence[Any] = query.tasks
        remaining = n_rows
        # PyHudi's reader counts the rows of a limit before the predicate.
        if isinstance(query, SnapshotQuery) and (predicate is None or n_rows is None):
            # The predicate is evaluated by Polars, so that only the condition of the scan is left.
            native = _native_rows(query, self._query.spec.condition)
            if native is not None:
                rows = native.rows if predicate is None else native.rows.filter(predicate)
                height = yield from _native_frames(query, native, rows if n_rows is None else rows.head(n_rows), names)
                if height is not None:
                    tasks = native.rest
                    remaining = None if n_rows is None else n_rows - height
        batches = read_batches(query.reader, tasks)
        for batch in batches if remaining is None else first_rows(batches, remaining):
            for start in range(0, batch.num_rows, batch_size or max(1, batch.num_rows)):
                part = batch.slice(start, batch_size)
                if not needed:
                    yield polars.DataFrame(height=part.num_rows)
                    continue
                frame = polars.from_arrow(pa.Table.from_batches([part]))
                yield (frame if predicate is None else frame.filter(predicate)).select(names)


@dataclass(frozen=True, slots=True)
class _NativeRows:
    """Rows that Polars reads.

    Attributes:
        rows: They, as a lazy frame of the columns of the query.
        plain: Their slices.
        rest: Slices that PyHudi's reader reads.
    """

    rows: polars.LazyFrame
    plain: tuple[FileSlice, ...]
    rest: tuple[FileSlice, ...]


def _native_rows(query: SnapshotQuery, condition: Expr | None) -> _NativeRows | None:
    """Scan the plain slices of a query with Polars; None if there are none. condition: which rows the scan returns."""
    polars = imported_polars()
    query = replace(query, spec=replace(query.spec, condition=condition))
    divided = divide_query(query)
    if not divided.scans:
        return None
    try:
        test = None if condition is None else to_engine(condition, _PolarsExpressions())
    except Unsupported:
        return None
    names, frames = query.schema.names, []
    with _suppress_polars_errors():
        for scan in divided.scans:
            frame = _scanned(scan)
            frames.append((frame if test is None else frame.filter(test)).select(names))
        expected = _frame_schema(query.schema)
        if all(frame.collect_schema() == expected for frame in frames):
            return _NativeRows(polars.concat(frames), divided.plain, divided.rest)
    return None


def _scanned(scan: NativeScan) -> polars.LazyFrame:
    polars = imported_polars()
    frame = polars.scan_parquet(list(scan.paths), glob=False, hive_partitioning=False)
    changed = []
    for column in scan.columns:
        type_ = polars_type(column.field.type)
        if column.stored_name is None:
            value = None if column.value is None else column.value.as_py()
            changed.append(polars.lit(value, dtype=type_).alias(column.field.name))
        elif column.is_cast or column.stored_name != column.field.name:
            stored = polars.col(column.stored_name)
            changed.append((stored.cast(type_) if column.is_cast else stored).alias(column.field.name))
    return frame.with_columns(changed) if changed else frame


def _native_frames(
    query: SnapshotQuery, native: _NativeRows, rows: polars.LazyFrame, names: Sequence[str]
) -> Generator[polars.DataFrame, None, int | None]:
    """Yield the named columns of the rows, and return their number; None if Polars failed before the first frame."""
    polars = imported_polars()
    height = 0
    has_rows = False
    try:
        if not names:
            height = rows.select(polars.len()).collect().item()
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
def _suppress_polars_errors() -> Iterator[None]:
    with suppress(*_polars_errors()):
        yield


def _frame_schema(schema: pa.Schema) -> polars.Schema:
    frame: polars.DataFrame = imported_polars().from_arrow(schema.empty_table())
    return frame.schema


def polars_type(type_: pa.DataType) -> polars.DataType:
    """Return the type of Polars for an Arrow type."""
    return _frame_schema(pa.schema([("c", type_)]))["c"]


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
