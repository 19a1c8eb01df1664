"""A small lineitem table that needs no generator."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal

import pyarrow as pa

from benchmarks.data import SCHEMA


def lineitem(count: int) -> pa.Table:
    """`count` rows with distinct keys; every column has more than one value from two rows on."""
    rows = [
        {
            "l_orderkey": 1 + number // 4,
            "l_partkey": 7 * number % 11,
            "l_suppkey": 3 * number % 5,
            "l_linenumber": 1 + number % 4,
            "l_quantity": Decimal(number % 50 + 1),
            "l_extendedprice": Decimal(100 * number + 25) / 100,
            "l_discount": Decimal(number % 10) / 100,
            "l_tax": Decimal(number % 8) / 100,
            "l_returnflag": "RAN"[number % 3],
            "l_linestatus": "OF"[number % 2],
            "l_shipdate": date(1992, 1, 1) + timedelta(days=number * 37 % 2500),
            "l_commitdate": date(1992, 2, 1) + timedelta(days=number),
            "l_receiptdate": date(1992, 3, 1) + timedelta(days=2 * number),
            "l_shipinstruct": ["NONE", "COLLECT COD"][number % 2],
            "l_shipmode": ["AIR", "RAIL", "SHIP"][number % 3],
            "l_comment": f"{'abc'[number % 3] * (number % 7)} row {number}",
            "l_shipyear": str(1992 + number % 7),
            "ts": 0,
        }
        for number in range(count)
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)
