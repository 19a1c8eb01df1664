"""A table as a LazyFrame of Polars: `pyhudi.scan_polars`.

Polars tells its source which columns it needs, which rows, and how many.  What filters of the project can say of the predicate
passes over file slices and row groups; Polars then tests every row by the whole of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyhudi.api.optional_imports import imported_polars
from pyhudi.api.scan import Scan
from pyhudi.api.splits import first_rows, read_batches
from pyhudi.api.table import Table
from pyhudi.errors import InvalidRequest, Unsupported
from pyhudi.operations.read.change_queries import ChangeQuery
from pyhudi.operations.read.query import SnapshotQuery
from pyhudi.planning.instant_arguments import InstantArgument
from pyhudi.records.filters.filter_parser import Filter
from pyhudi.records.filters.pushdown import pushed_down

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
    """A table's rows as a LazyFrame: Polars hands down the columns and the predicate of a query, and only what they need is read.

    The table's state is that of this call, however often the frame is collected.

    Args:
        source: A table, where it lies, or a scan of it (of a time, of changes, incremental), which takes no further arguments.
        columns: As of `Table.scan`.
        filter: As of `Table.scan`.
        as_of: As of `Table.scan`.
        storage_options: As of `Table`, where `source` says where the table lies.
        options: `hoodie.*` options of the scan.

    Raises:
        InvalidRequest: Polars is not installed, or arguments do not fit together.
        Unsupported: Polars is older than its plugins for sources.
    """
    given = any(argument is not None for argument in (columns, filter, as_of, options))
    if storage_options is not None and isinstance(source, (Table, Scan)):
        raise InvalidRequest("storage_options open a table by its place; an open table has its own")
    if isinstance(source, Scan):
        if given:
            raise InvalidRequest("a scan has its columns, filter and time already: give them where it is made")
        return lazy_frame(source)
    table = source if isinstance(source, Table) else Table(source, storage_options)
    return lazy_frame(table.scan(columns, filter, as_of, options=options))


def lazy_frame(scan: Scan) -> polars.LazyFrame:
    """The rows of a scan as a LazyFrame.  Raises as `scan_polars`."""
    polars = imported_polars()
    try:
        from polars.io.plugins import register_io_source
    except ImportError:
        raise Unsupported(
            f"lazy frames need Polars 1.24 or later, and this is {polars.__version__}: pip install --upgrade polars"
        ) from None
    empty = polars.from_arrow(scan.schema.empty_table())
    frame = register_io_source(_Source(scan.query), schema=empty.schema)
    return frame if scan.limit is None else frame.head(scan.limit)


class _Source:
    """What Polars calls for each collection of the frame."""

    def __init__(self, query: SnapshotQuery | ChangeQuery) -> None:
        self._query = query

    def __call__(
        self, with_columns: list[str] | None, predicate: Any, n_rows: int | None, batch_size: int | None
    ) -> Iterator[polars.DataFrame]:
        """The rows.  n_rows: of the source, before the predicate."""
        polars = imported_polars()
        schema = self._query.schema
        names = schema.names if with_columns is None else with_columns
        tested = () if predicate is None else predicate.meta.root_names()
        needed = [name for name in schema.names if name in names or name in tested]
        said = None if predicate is None or n_rows is not None else pushed_down(predicate, schema)
        query = self._query.narrowed(needed, said)
        batches = read_batches(query.reader, query.tasks)
        # Some releases of Polars end in a panic where a source gives no frame at all.
        yield polars.from_arrow(query.schema.empty_table()).select(names)
        for batch in batches if n_rows is None else first_rows(batches, n_rows):
            for start in range(0, batch.num_rows, batch_size or max(1, batch.num_rows)):
                part = batch.slice(start, batch_size)
                if not needed:
                    yield polars.DataFrame(height=part.num_rows)
                    continue
                frame = polars.from_arrow(pa.Table.from_batches([part]))
                yield (frame if predicate is None else frame.filter(predicate)).select(names)
