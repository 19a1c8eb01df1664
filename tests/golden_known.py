"""The one list of what PyHudi does not do with the golden tables as the real Hudi did, and why.

NOT_READ: queries that cannot be answered yet.  Tests expect them to fail, and fail when they no longer do.
BETTER: queries whose answer is right where the real one is not, and what the real rows have to be changed to.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

_CHANGES = "change data capture is not read yet"

NOT_READ: dict[tuple[str, str], str] = {
    ("cow_cdc", "changes_all"): _CHANGES,
    ("cow_cdc", "changes_second"): _CHANGES,
    ("mor_cdc", "changes_all"): _CHANGES,
    ("mor_cdc", "changes_second"): _CHANGES,
}
"""(case, query) -> why it cannot be read."""


def _ts_as_number(rows: pa.Table) -> pa.Table:
    position = rows.schema.get_field_index("ts")
    return rows.set_column(position, "ts", rows.column(position).cast(pa.int64()))


BETTER: dict[tuple[str, str], Callable[[pa.Table], pa.Table]] = {
    # The real Hudi shows the column of a timestamp key generator as text, although the table's schema and files have a number.
    ("cow_timestamp_keys", "snapshot"): _ts_as_number,
}
"""(case, query) -> the rows as they should be."""
