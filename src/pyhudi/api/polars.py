"""A table as a Polars LazyFrame: `pyhudi.scan_polars`.

Polars pushes the required columns, the predicate and the row limit down to its source. The translatable part of the
predicate prunes file slices. Polars itself scans the plain ones (`polars_scan`), and evaluates the predicate while it
reads them; PyHudi's reader supplies the others.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyhudi.api.optional_imports import imported_polars
from pyhudi.api.polars_scan import frame_schema, native_frames, native_rows
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

    Returns:
        A lazy frame, which reads the table when it is collected.

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
    frame = register_io_source(_Source(scan.query), schema=frame_schema(scan.schema))
    return frame if scan.limit is None else frame.head(scan.limit)


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
            native = native_rows(query, self._query.spec.condition, merges_logs=n_rows is None)
            if native is not None:
                rows = native.rows if predicate is None else native.rows.filter(predicate)
                height = yield from native_frames(query, native, rows if n_rows is None else rows.head(n_rows), names)
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
