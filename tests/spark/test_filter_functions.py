"""Functions in filters mean what Spark means in a UTC session, and conditions passed to Spark mean it in any session."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyhudi.records.filters.arrow_expressions import computed_column, row_filter
from pyhudi.records.filters.binding import bind
from pyhudi.records.filters.filter_ast import FunctionCall
from pyhudi.records.filters.filter_functions import bind_call
from pyhudi.records.filters.filter_parser import parse_filter
from pyhudi.records.filters.filter_visitor import calls
from pyhudi.records.filters.spark_sql import spark_expression, to_spark_sql
from tests.support.filter_functions import COMPARED, SCHEMA, TERMS, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


CONDITIONS = [
    "lower(s) IN ('a', 'ab ', NULL) or hour(t) < 3",
    "not (year(t) = 2024 and n < big)",
    "to_date(t) >= DATE '2024-02-29' and lower(s) LIKE 'a%'",
    "length(s) IS NULL or abs(fare) = 0.0",
    "date_format(t, 'yyyy-MM') <> '2024-03' and not (x > n)",
]


def call_of(term: str) -> FunctionCall:
    """The call of a term, bound; of a comparison with a literal, what is compared."""
    (found,) = calls(parse_filter(f"{term} is null" if term not in COMPARED else term)) or (None,)
    assert found is not None, term
    return bind_call(found, SCHEMA)


def answers(frame: DataFrame, expressions: list[str]) -> list[list[Any]]:
    from pyspark.sql import functions as F

    table = frame.select("place", *[F.expr(text).alias(f"c{n}") for n, text in enumerate(expressions)]).toArrow()
    table = table.sort_by("place")
    return [comparable(table.column(f"c{n}")) for n in range(len(expressions))]


def comparable(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_temporal(column.type):
        # Python has no dates beyond the year 9999.
        column = column.cast(pa.int32() if pa.types.is_date32(column.type) else pa.int64())
    # NaN equals itself here.
    return ["NaN" if isinstance(value, float) and math.isnan(value) else value for value in column.to_pylist()]


def test_functions_are_evaluated_as_spark_evaluates_them(spark: SparkSession) -> None:
    table = rows()
    frame = spark.createDataFrame(table.append_column("place", pa.array(range(table.num_rows)))).repartition(2)
    frame = frame.withColumn("local", frame["local"].cast("timestamp_ntz")).cache()
    terms = [*TERMS, *((term, None) for term in COMPARED if calls(bind(parse_filter(term), SCHEMA)))]
    bound = [call_of(term) for term, _ in terms]
    ours = [comparable(pa.chunked_array([computed_column(call, table)])) for call in bound]
    said = answers(frame, [other or term for term, other in terms])
    wrong = [(term, places(a, b, table)) for (term, _), a, b in zip(terms, ours, said, strict=True) if a != b]
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        handed = answers(frame, [spark_expression(call) for call in bound])
        conditions = [f"count_if({to_spark_sql(parse_filter(text), SCHEMA)})" for text in CONDITIONS]
        kept = list(frame.selectExpr(*conditions).collect()[0])
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        spark.conf.unset("spark.sql.ansi.enabled")
        frame.unpersist()
    wrong += [("handed: " + term, places(a, b, table)) for (term, _), a, b in zip(terms, ours, handed, strict=True) if a != b]
    assert kept == [row_filter(parse_filter(text), SCHEMA).select(table).num_rows for text in CONDITIONS]
    assert not wrong, "\n".join(f"{term}: {found}" for term, found in wrong)


def places(ours: list[Any], theirs: list[Any], table: pa.Table) -> list[Any]:
    """The first rows of which both say other things."""
    differ = [place for place, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b]
    return [(table.slice(place, 1).to_pylist()[0], ours[place], theirs[place]) for place in differ[:2]]
