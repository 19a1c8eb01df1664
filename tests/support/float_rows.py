"""Rows with special floating-point values."""

from __future__ import annotations

import pyarrow as pa

from tests.support.float_filters import VALUES


def rows() -> pa.Table:
    places = range(len(VALUES))
    return pa.table(
        {"id": [f"k{n}" for n in places], "p": [f"p{n // 3}" for n in places], "x": pa.array(VALUES, pa.float64()), "ts": places}
    )
