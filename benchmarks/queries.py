"""The questions that the read steps ask, as text for SQL and as Arrow, and the shape in which an answer is compared.

An answer is a JSON value that does not depend on the order of rows: integers and texts only, decimals unscaled. It is made
outside the timed part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from benchmarks import fingerprint

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

KEY_COLUMNS = ("l_orderkey", "l_linenumber")
PARTITION_COLUMN = "l_shipyear"
ORDERING_COLUMN = "ts"
COLUMNS = tuple(fingerprint.COLUMNS)
# What a delete batch holds: Hudi asks for all four, the others for the key alone.
DELETE_COLUMNS = (*KEY_COLUMNS, PARTITION_COLUMN, ORDERING_COLUMN)

# The snapshot aggregate: the grouping of TPC-H query 1, over all rows.
AGGREGATE_COLUMNS = ("l_returnflag", "l_linestatus", "l_quantity", "l_extendedprice", "ts")
AGGREGATE_SQL = (
    "select l_returnflag, l_linestatus, count(*) as row_count, sum(l_quantity) as quantity, sum(l_extendedprice) as price,"
    " max(ts) as newest from {table} group by l_returnflag, l_linestatus"
)

# The filtered read: one partition, and about a fifth of its rows, all columns.
FILTER_YEAR = "1995"
FILTER_QUANTITY = 10
FILTER_SQL = f"l_shipyear = '{FILTER_YEAR}' and l_quantity <= {FILTER_QUANTITY}"

# Point lookups: this many keys, one read each; the step reports the mean.
LOOKUP_COUNT = 5

# Clustering sorts by this column within each partition.
CLUSTER_COLUMN = "l_shipdate"


def lookup_sql(key: Sequence[int]) -> str:
    return f"l_orderkey = {key[0]} and l_linenumber = {key[1]}"


def aggregate_answer(rows: Iterable[Sequence[Any]]) -> list[list[Any]]:
    """rows: as AGGREGATE_SQL gives them, decimals as Decimal."""
    return sorted(
        [flag, status, int(count), _unscaled(quantity), _unscaled(price), int(newest)]
        for flag, status, count, quantity, price, newest in rows
    )


def arrow_aggregate(table: pa.Table) -> pa.Table:
    """AGGREGATE_SQL over an Arrow table that holds AGGREGATE_COLUMNS; its columns come in the order of the SQL."""
    grouped = table.group_by(["l_returnflag", "l_linestatus"]).aggregate(
        [([], "count_all"), ("l_quantity", "sum"), ("l_extendedprice", "sum"), ("ts", "max")]
    )
    return grouped.select(["l_returnflag", "l_linestatus", "count_all", "l_quantity_sum", "l_extendedprice_sum", "ts_max"])


def arrow_filter() -> pc.Expression:
    import pyarrow as pa
    import pyarrow.compute as pc

    quantity = pa.scalar(Decimal(FILTER_QUANTITY), pa.decimal128(15, 2))
    return (pc.field(PARTITION_COLUMN) == FILTER_YEAR) & (pc.field("l_quantity") <= quantity)


def arrow_lookup(key: Sequence[int]) -> pc.Expression:
    import pyarrow.compute as pc

    return (pc.field("l_orderkey") == key[0]) & (pc.field("l_linenumber") == key[1])


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """The rows of a small Arrow table."""
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def lookup_answer(rows: Iterable[Sequence[Any]]) -> list[list[Any]]:
    """rows: (l_orderkey, l_linenumber, l_comment, ts) of all lookups together."""
    return sorted([int(order), int(line), str(comment), int(order_value)] for order, line, comment, order_value in rows)


LOOKUP_COLUMNS = ("l_orderkey", "l_linenumber", "l_comment", "ts")


def expected_answers(table: pa.Table, lookups: Sequence[Sequence[int]]) -> dict[str, Any]:
    """What each read must answer when the table holds these rows."""
    found = [row for key in lookups for row in rows_of(table.filter(arrow_lookup(key)).select(LOOKUP_COLUMNS))]
    return {
        "full-read": fingerprint.of_batches(table.to_batches()),
        "aggregate": aggregate_answer(rows_of(arrow_aggregate(table))),
        "filtered-read": fingerprint.of_batches(table.filter(arrow_filter()).to_batches()),
        "point-lookup": lookup_answer(found),
    }


def _unscaled(value: Any) -> int:
    return int(value * 100)
