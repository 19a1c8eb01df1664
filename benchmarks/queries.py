"""Questions of the read steps as SQL and as Arrow, and the JSON values in which answers are compared.

An answer is independent of the order of rows: integers and texts, decimals unscaled. It is computed outside the timed part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from benchmarks import fingerprint

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

Condition = tuple[tuple[str, str, Any], ...]
"""Comparisons that all hold: column, `=` or `<=`, value."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Columns of a table: record key, partition and ordering value, and all of them where a read names them."""

    keys: tuple[str, ...]
    partition: str
    ordering: str
    columns: tuple[str, ...] | None = None


LAYOUTS = {
    "lineitem": Layout(("l_orderkey", "l_linenumber"), "l_shipyear", "ts", tuple(fingerprint.COLUMNS)),
    "rows": Layout(("id",), "part", "ts"),
}
LINEITEM = LAYOUTS["lineitem"]
COLUMNS = list(fingerprint.COLUMNS)
DELETE_COLUMNS = [*LINEITEM.keys, LINEITEM.partition, LINEITEM.ordering]

# The grouping of TPC-H query 1 over all rows.
AGGREGATE_COLUMNS = ["l_returnflag", "l_linestatus", "l_quantity", "l_extendedprice", "ts"]
AGGREGATE_SQL = (
    "select l_returnflag, l_linestatus, count(*) as row_count, sum(l_quantity) as quantity, sum(l_extendedprice) as price,"
    " max(ts) as newest from {table} group by l_returnflag, l_linestatus"
)
# One partition and a fifth of its rows, all columns.
FILTER: Condition = ((LINEITEM.partition, "=", "1995"), ("l_quantity", "<=", Decimal("10.00")))
LOOKUP_COUNT = 5
LOOKUP_COLUMNS = ["l_orderkey", "l_linenumber", "l_comment", "ts"]
CLUSTER_COLUMN = "l_shipdate"


def key_condition(key: Sequence[int]) -> Condition:
    """Condition of one lineitem key."""
    return tuple((column, "=", value) for column, value in zip(LINEITEM.keys, key, strict=True))


def to_sql(condition: Condition) -> str:
    """The condition as SQL."""
    return " and ".join(
        f"{column} {operator} " + (f"'{value}'" if isinstance(value, str) else str(value))
        for column, operator, value in condition
    )


def to_arrow(condition: Condition) -> pc.Expression:
    """The condition as an Arrow expression."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = pc.scalar(True)
    for column, operator, value in condition:
        scalar = pa.scalar(value, pa.decimal128(15, 2)) if isinstance(value, Decimal) else pa.scalar(value)
        found &= pc.field(column) == scalar if operator == "=" else pc.field(column) <= scalar
    return found


def aggregate_answer(rows: Iterable[Sequence[Any]]) -> list[list[Any]]:
    """Rows of AGGREGATE_SQL, decimals as Decimal, as JSON."""
    return sorted(
        [flag, status, int(count), int(quantity * 100), int(price * 100), int(newest)]
        for flag, status, count, quantity, price, newest in rows
    )


def aggregate(table: pa.Table) -> pa.Table:
    """AGGREGATE_SQL over an Arrow table."""
    grouped = table.group_by(["l_returnflag", "l_linestatus"]).aggregate(
        [([], "count_all"), ("l_quantity", "sum"), ("l_extendedprice", "sum"), ("ts", "max")]
    )
    return grouped.select(["l_returnflag", "l_linestatus", "count_all", "l_quantity_sum", "l_extendedprice_sum", "ts_max"])


def to_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    """Rows of a small Arrow table."""
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def lookup_answer(rows: Iterable[Sequence[Any]]) -> list[list[Any]]:
    """Rows of LOOKUP_COLUMNS of all lookups as JSON."""
    return sorted([int(order), int(line), str(comment), int(ts)] for order, line, comment, ts in rows)


def expected_answers(table: pa.Table, lookups: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Answer of each read of a table with these rows."""
    found = [row for key in lookups for row in to_rows(table.filter(to_arrow(key_condition(key))).select(LOOKUP_COLUMNS))]
    return {
        "full-read": fingerprint.of_batches(table.to_batches()),
        "aggregate": aggregate_answer(to_rows(aggregate(table))),
        "filtered-read": fingerprint.of_batches(table.filter(to_arrow(FILTER)).to_batches()),
        "point-lookup": lookup_answer(found),
    }
