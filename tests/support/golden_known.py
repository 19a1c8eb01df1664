"""The one list of what PyHudi does not do with the golden tables as Apache Hudi did, and why.

NOT_READ: queries that cannot be answered yet.  Tests expect them to fail, and fail when they no longer do.
BETTER: queries whose answer is right where Apache Hudi is not, and what the real rows have to be changed to.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pyarrow as pa

NOT_READ: dict[tuple[str, str], str] = {}
"""(case, query) -> why it cannot be read."""


def _ts_as_number(rows: pa.Table) -> pa.Table:
    position = rows.schema.get_field_index("ts")
    return rows.set_column(position, "ts", rows.column(position).cast(pa.int64()))


_COLUMNS = ("id", "ts", "rider", "fare", "city")


def _image(text: str | None) -> str | None:
    """An image of Apache Hudi, which has three forms of text, in ours: data columns only, nulls too, in the table's order."""
    row = None if text is None else json.loads(text)
    return None if row is None else json.dumps({name: row.get(name) for name in _COLUMNS})


def _changes(**lost: object) -> Callable[[pa.Table], pa.Table]:
    """Change data with its images in one form, and the row that was lost.

    Hudi's iterator advances on each call of hasNext, so a program that calls it twice before the first row loses that row.
    """

    def changed(rows: pa.Table) -> pa.Table:
        found = [{**row, "before": _image(row["before"]), "after": _image(row["after"])} for row in rows.to_pylist()]
        if lost:
            first = min(row["ts_ms"] for row in found)
            found.append({"op": "i", "ts_ms": first, "before": None, "after": json.dumps(lost)})
        return pa.Table.from_pylist(found, rows.schema)

    return changed


BETTER: dict[tuple[str, str], Callable[[pa.Table], pa.Table]] = {
    # Apache Hudi shows the column of a timestamp key generator as text, although the table's schema and files have a number.
    ("cow_timestamp_keys", "snapshot"): _ts_as_number,
    ("cow_cdc", "changes_all"): _changes(id="t002", ts=1, rider="rider-2", fare=12.0, city="chicago"),
    ("cow_cdc", "changes_second"): _changes(),
    ("mor_cdc", "changes_all"): _changes(id="t000", ts=1, rider=None, fare=10.0, city="amsterdam"),
    ("mor_cdc", "changes_second"): _changes(),
    ("cow_v9_cdc", "changes_all"): _changes(),
    ("cow_v9_cdc", "changes_second"): _changes(),
    ("mor_v9_cdc", "changes_all"): _changes(),
    ("mor_v9_cdc", "changes_second"): _changes(),
}
"""(case, query) -> the rows as they should be."""
