"""A merger that adds values."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


class Sums:
    """Adds up `b`, keeps the longer `a`, takes the newer of the others; a record whose sum is above 100 is dropped."""

    strategy_id = "6f6c2b1e-94e4-4b0a-8d52-0f6d6a5d7c11"

    def merge(self, older: pa.Table, newer: pa.Table) -> tuple[pa.Table, pa.Array | None]:
        assert older.column_names == newer.column_names
        return self.partial_merge(older, newer)

    def partial_merge(self, older: pa.Table, newer: pa.Table) -> tuple[pa.Table, pa.Array | None]:
        columns = {
            name: (newer if name in newer.column_names else older)[name] for name in (*newer.column_names, *older.column_names)
        }
        both = set(older.column_names) & set(newer.column_names)
        if "b" in both:
            columns["b"] = pc.add(older["b"], newer["b"])
        if "a" in both:
            longer = pc.greater(pc.utf8_length(older["a"]), pc.utf8_length(newer["a"]))
            columns["a"] = pc.if_else(longer, older["a"], newer["a"])
        left = pc.less_equal(columns["b"], 100).combine_chunks() if "b" in columns else None
        return pa.table(columns), left
