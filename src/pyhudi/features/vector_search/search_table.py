"""Vector search in a table: filter, stream the vector column, then read the other columns of the rows found.

The filter prunes partitions, files and row groups first. The vector column is read file slice by file slice, a row
group at a time, and only the best rows of each slice are retained. Their other columns are read afterwards, from the
slices that hold some.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyhudi.engines.arrow.engine import LocalEngine
from pyhudi.errors import InvalidRequest
from pyhudi.features.vector_search.nearest import METRICS, Nearest
from pyhudi.format.hudi_types import hudi_type_name, is_vector
from pyhudi.operations.read.query import SnapshotQuery

if TYPE_CHECKING:
    from pyhudi.api.table import Table
    from pyhudi.records.filters.filter_parser import Filter

DISTANCE = "_hudi_distance"
QUERY = "query"

_SLICE_BITS = 40
"""A row's number is that of its slice, then this many bits for its position in the slice."""

_METRIC_NAMES: Mapping[str, str] = {**{name: name for name in METRICS}, "dot_product": "dot"}


def search(
    table: Table,
    column: str,
    vector: Any,
    k: int,
    metric: str = "cosine",
    *,
    filter: Filter | None = None,
    columns: Sequence[str] | None = None,
    options: Mapping[str, object] | None = None,
) -> pa.Table:
    """See `Table.search`."""
    type_ = _vector_type(table, column)
    metric_ = _METRIC_NAMES.get(str(metric).lower())
    if metric_ is None:
        raise InvalidRequest(f"search: unknown metric {metric!r}. Use {', '.join(METRICS)}")
    if type(k) is not int or k < 1:
        raise InvalidRequest(f"search: k must be a whole number of 1 or more, not {k!r}")
    queries, is_single = _queries(vector, type_, column)
    outputs = _outputs(table, column, columns)
    scan = table.scan([*outputs, *([] if column in outputs else [column])], filter=filter, options=options)
    query = scan.query
    assert isinstance(query, SnapshotQuery), "a scan is a snapshot query"
    vectors = query.narrowed([column], None)
    find = partial(_nearest_of_slice, vectors, queries, k, metric_)
    nearest = Nearest(queries, k, metric_)
    for candidates in LocalEngine(scan.threads).map(find, list(enumerate(vectors.tasks))):
        nearest.merge(candidates)
    found_rows = np.concatenate(nearest.rows)
    rows = _rows(query.narrowed(outputs, None), found_rows)
    distances = np.concatenate([nearest.distances(number) for number in range(len(queries))])
    rows = rows.append_column(pa.field(DISTANCE, pa.float64()), pa.array(distances))
    if is_single:
        return rows
    numbers = np.repeat(np.arange(len(queries)), [len(part) for part in nearest.rows])
    return rows.add_column(0, pa.field(QUERY, pa.int64(), nullable=False), pa.array(numbers, pa.int64()))


def search_function(table: Table, arguments: Sequence[Any]) -> pa.Table:
    """Rows of `hudi_vector_search(table, column, query, k[, metric])`, as in Hudi."""
    column, vector, k, *metric = arguments
    try:
        numbers = json.loads(vector)
    except (TypeError, ValueError) as error:
        raise InvalidRequest(
            "hudi_vector_search takes a table, the name of a column, ARRAY(...) of numbers, k and optionally a metric"
        ) from error
    return search(table, str(column), numbers, k, *metric, columns=["*"])


def _vector_type(table: Table, column: str) -> pa.DataType:
    schema = table.schema()
    position = schema.get_field_index(column)
    if position < 0 or not is_vector(schema.field(position).type):
        vectors = [f"{field.name} {hudi_type_name(field.type)}" for field in schema if is_vector(field.type)]
        raise InvalidRequest(
            f"search: {column!r} is not a vector column of {table.uri}. Its vector columns: {', '.join(vectors) or 'none'}"
        )
    return schema.field(position).type


def _queries(vector: Any, type_: pa.DataType, column: str) -> tuple[npt.NDArray[np.float64], bool]:
    """Return the query vectors, one in each row, and whether the caller passed one."""
    try:
        queries = np.array(vector, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"search: the query is not a vector of numbers, nor a list of vectors: {error}") from error
    is_single = queries.ndim == 1
    queries = queries.reshape(1, -1) if is_single else queries
    if queries.ndim != 2 or not len(queries) or queries.shape[1] != type_.list_size:
        raise InvalidRequest(
            f"search: the query has the shape {np.shape(vector)}, and column {column!r} is {hudi_type_name(type_)}. Pass "
            f"{type_.list_size} numbers, or several vectors of {type_.list_size} numbers"
        )
    if not np.isfinite(queries).all():
        raise InvalidRequest("search: the query contains a number that is not finite")
    return queries, is_single


def _outputs(table: Table, column: str, columns: Sequence[str] | None) -> list[str]:
    if columns is None:
        return [name for name in table.schema().names if name != column]
    names = [columns] if isinstance(columns, str) else list(columns)
    every = [name for name in table.schema(meta_columns=True).names if name != column]
    return list(dict.fromkeys(other for name in names for other in (every if name == "*" else (name,))))


def _nearest_of_slice(
    query: SnapshotQuery, queries: npt.NDArray[np.float64], k: int, metric: str, task: tuple[int, Any]
) -> Nearest:
    number, slice_ = task
    nearest = Nearest(queries, k, metric)
    first = number << _SLICE_BITS
    for rows in query.reader(slice_):
        for chunk in rows.column(0).chunks:
            positions = np.arange(first, first + len(chunk), dtype=np.int64)
            if chunk.null_count:
                positions = positions[np.asarray(chunk.is_valid(), dtype=np.bool_)]
            # Only the elements of rows that are not null.
            elements = chunk.flatten()
            nearest.add(elements.to_numpy().reshape(-1, chunk.type.list_size), positions)
            first += len(chunk)
    return nearest


def _rows(query: SnapshotQuery, row_numbers: npt.NDArray[np.int64]) -> pa.Table:
    """Read rows by their numbers, in that order."""
    needed = np.unique(row_numbers)
    tables = [query.schema.empty_table()]
    for number in np.unique(needed >> _SLICE_BITS).tolist():
        positions = needed[needed >> _SLICE_BITS == number] & ((1 << _SLICE_BITS) - 1)
        tables.extend(_at(query.reader(query.tasks[number]), positions))
    if not query.schema.names:
        return pa.table({DISTANCE: pa.nulls(len(row_numbers))}).select([])
    return pa.concat_tables(tables).take(pa.array(np.searchsorted(needed, row_numbers)))


def _at(tables: Iterator[pa.Table], positions: npt.NDArray[np.int64]) -> Iterator[pa.Table]:
    """Yield the rows at ascending positions of consecutive tables."""
    first = 0
    for table in tables:
        inside = positions[(positions >= first) & (positions < first + table.num_rows)]
        if len(inside):
            yield table.take(pa.array(inside - first))
        first += table.num_rows
        if first > positions[-1]:
            return
