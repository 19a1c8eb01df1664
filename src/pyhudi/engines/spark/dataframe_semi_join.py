"""Semi join of a table with a DataFrame, whose values prune files.

Up to a limit its rows are collected by the driver and their values looked up in the indexes. Beyond it, the minimum and
maximum of each column prune files. Spark joins the remaining rows.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F

from pyhudi.engines.arrow.input_rows import arrow_reader
from pyhudi.engines.spark.jobs import translated_errors
from pyhudi.engines.spark.read_dataframe import plan_query, query_dataframe
from pyhudi.engines.spark.type_conversion import DataFrame, SparkSession, column, to_arrow_schema
from pyhudi.errors import InvalidRequest
from pyhudi.operations.read.query import SnapshotQuery
from pyhudi.operations.read.semi_join import MAX_JOIN_KEYS, matched_rows, narrowed_to_ranges, semi_join_filter
from pyhudi.options.declaration import Options
from pyhudi.options.read_options import COLUMNS
from pyhudi.records.filters.filter_parser import Filter
from pyhudi.table.table_context import TableContext

_SIDE = "_pyhudi_match_"


def matching_dataframe(
    session: SparkSession,
    context: TableContext,
    options: Options,
    columns: Sequence[str] | None,
    condition: Filter | None,
    keys: Any,
) -> DataFrame:
    """The rows of a query that equal a row of `keys` in all columns of `keys`.

    columns, condition, options: as in `plan_query`. keys: a DataFrame, or rows of this process. Raises InvalidRequest
    for columns that the table lacks, and for queries of changes.
    """
    rows = None if isinstance(keys, DataFrame) else arrow_reader(keys).read_all()
    names = rows.column_names if rows is not None else list(keys.columns)
    selected = list(columns if columns is not None else (options.names(COLUMNS) or ["*"]))
    more = [] if "*" in selected else [name for name in names if name not in selected]
    query = plan_query(context, options, [*selected, *more], condition)
    if not isinstance(query, SnapshotQuery):
        raise InvalidRequest("keys= applies to queries of rows, not to queries of changes")
    if rows is None:
        matched_rows(to_arrow_schema(keys.schema).empty_table(), query.spec.table_schema)
        with translated_errors():
            rows = keys.distinct().limit(MAX_JOIN_KEYS + 1).toArrow()
    if rows.num_rows <= MAX_JOIN_KEYS:
        matched_keys = matched_rows(rows, query.spec.table_schema)
        query = semi_join_filter(query, matched_keys)
        if len(names) == 1 or not matched_keys.num_rows:
            return _chosen(query_dataframe(session, query), query, more)
        side = session.createDataFrame(matched_keys)
    else:
        query = narrowed_to_ranges(query, _bounds(keys, names))
        side = keys.distinct()
    frame = query_dataframe(session, query)
    return _chosen(_joined(frame, side, names, "left_semi"), query, more)


def anti_join_table(context: TableContext, options: Options, frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """The rows of a DataFrame that equal no row of the table in some columns; a row with a null there equals none."""
    key_columns = frame.select(*[column(name) for name in names])
    known = matching_dataframe(frame.sparkSession, context, options, names, None, key_columns)
    return _joined(frame, known, names, "left_anti")


def _joined(frame: DataFrame, side: DataFrame, names: Sequence[str], join_type: str) -> DataFrame:
    """side: its columns are those of `names`, in order."""
    renamed = side.toDF(*[_SIDE + str(number) for number in range(len(names))])
    pairs = [column(name) == column(_SIDE + str(number)) for number, name in enumerate(names)]
    return frame.join(renamed, functools.reduce(operator.and_, pairs), join_type)


def _bounds(keys: DataFrame, names: Sequence[str]) -> dict[str, tuple[pa.Scalar, pa.Scalar]]:
    ends = [end(column(name)).alias(f"{end.__name__}{number}") for number, name in enumerate(names) for end in (F.min, F.max)]
    with translated_errors():
        bounds = keys.agg(*ends).toArrow()
    return {name: (bounds[f"min{number}"][0], bounds[f"max{number}"][0]) for number, name in enumerate(names)}


def _chosen(frame: DataFrame, query: SnapshotQuery, more: Sequence[str]) -> DataFrame:
    """The requested columns, without those that were read only for matching."""
    return frame.select(*[column(name) for name in query.schema.names if name not in more]) if more else frame
