"""Row selection: find the rows of a row group that match a filter, reading as little of its columns as possible.

    candidate_rows   page pruning: the rows of pages whose bounds do not exclude the filter
    matching_rows       by value: of a dictionary-encoded text column the distinct values are tested, not the rows

Source: docs/formats/reading.md, "Data skipping".
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyhudi.format.parquet.pages import PAGE_ROWS
from pyhudi.format.parquet.parquet_file import CheckedParquetFile
from pyhudi.records.column_statistics import has_page_bounds, page_range
from pyhudi.records.dotted_columns import field_at
from pyhudi.records.filters.arrow_expressions import RowFilter
from pyhudi.records.filters.filter_ast import Expr
from pyhudi.records.filters.range_pruning import prune_ranges
from pyhudi.tasks.base_file_reader import OpenFile

LEAST_ROWS = 2 * PAGE_ROWS
"""Filter columns of row groups with fewer rows are read whole."""

_ROW_NUMBER = "\x00row"
"""Internal column: number of a row in its row group."""

RowNumbers = npt.NDArray[np.int64]


def candidate_rows(file: OpenFile, group: int, condition: Expr, schema: pa.Schema, names: Iterable[str]) -> RowNumbers | None:
    """Return the numbers of the rows of a row group whose pages may hold a match, in order; None for all.

    names: columns of the condition that the file stores under their own names and whose stored values are used.
    """
    count = file.metadata.row_group(group).num_rows
    if not isinstance(file, CheckedParquetFile) or count < LEAST_ROWS:
        return None
    wanted = np.ones(count, dtype=np.bool_)
    for name in names:
        field = field_at(schema, name)
        pages = file.pages(group, name) if has_page_bounds(field.type) else None
        if pages is None or pages.bounds is None:
            continue
        for number, bounds in enumerate(pages.bounds):
            range_ = page_range(bounds.least, bounds.greatest, pages.leaf, field)
            if range_ is not None and not prune_ranges(condition, {name: range_}):
                wanted[pages.first_rows[number] : pages.first_rows[number + 1]] = False
    return None if wanted.all() else np.flatnonzero(wanted)


def matching_rows(column_values: pa.Table, condition: RowFilter) -> RowNumbers:
    """Return the positions of the rows for which a filter is true, in order. column_values: its columns; a single
    column may be coded.
    """
    if column_values.num_columns == 1 and pa.types.is_dictionary(column_values.schema.field(0).type):
        return _of_codes(column_values, condition)
    numbered = column_values.append_column(_ROW_NUMBER, pa.array(np.arange(column_values.num_rows)))
    return np.asarray(condition.select(numbered).column(_ROW_NUMBER).to_numpy())


def _of_codes(column_values: pa.Table, condition: RowFilter) -> RowNumbers:
    field = column_values.schema.field(0)
    start, rows = 0, [np.zeros(0, dtype=np.int64)]
    for chunk in column_values.column(0).chunks:
        # The last is what rows without a value have.
        values = pa.concat_arrays([chunk.dictionary, pa.nulls(1, chunk.dictionary.type)])
        plain = pa.table([values], schema=pa.schema([field.with_type(values.type).with_nullable(True)]))
        flags = np.zeros(len(values), dtype=np.bool_)
        flags[matching_rows(plain, condition)] = True
        codes = chunk.indices.fill_null(len(values) - 1).to_numpy()
        rows.append(np.flatnonzero(flags[codes]) + start)
        start += len(chunk)
    return np.concatenate(rows)


def rows_at(file: OpenFile, group: int, names: list[str], rows: RowNumbers | None) -> pa.Table:
    """Return some rows of a row group in some columns, by the rows' numbers, which ascend; None for all."""
    if isinstance(file, CheckedParquetFile):
        return file.read_rows(group, names, rows)
    read = file.read_row_group(group, columns=names, use_threads=False)
    return read if rows is None else read.take(pa.array(rows))
