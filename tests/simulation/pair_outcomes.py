"""Expected outcome of every ordered pair of concurrent actions. docs/concurrency-control.md has the same tables.

A row is the first action, a column the second, in the order of `pairs.ACTIONS`. `both`: both land, one after the other. Otherwise
the words say what becomes of the first (1) and of the second (2): `retry` (planned again, and commits), `idle` (finds nothing to
do), `yields` (its plan is dropped, or left to the process that executes it), `refused`. Two outcomes, where it is not the same
after the plan of the first and before it publishes. `-`: there is no such pair.
"""

from __future__ import annotations

from collections.abc import Mapping

SAME: Mapping[str, str] = {
    "upsert": (
        "1-retry 1-retry 1-retry 1-retry 1-retry 1-retry 1-retry 2-idle 1-retry both both 2-refused 1-retry both both 2-idle "
        "1-retry+2-refused 1-retry+2-refused 1-retry+2-refused 2-yields"
    ),
    "insert": (
        "both both both both both both both 2-idle both both both 2-refused 1-retry both both 2-idle 2-refused 2-refused "
        "2-refused both"
    ),
    "delete": (
        "1-retry both 1-retry 1-retry 1-retry 1-retry 1-retry 2-idle 1-retry both both 2-refused 1-retry both both 2-idle "
        "1-retry+2-refused 1-retry+2-refused 1-retry+2-refused 2-yields"
    ),
    "insert_overwrite": (
        "1-retry 1-retry 1-retry 1-retry 1-retry 1-retry 1-retry 2-idle 1-retry both both 2-refused 1-retry both both 1-retry "
        "1-retry+2-refused 1-retry+2-refused 1-retry+2-refused 1-retry"
    ),
    "insert_overwrite_table": (
        "1-retry 1-retry 1-retry 1-retry 1-retry 1-retry 1-retry 2-idle 1-retry both both 2-refused 1-retry both both 1-retry "
        "1-retry+2-refused 1-retry+2-refused 1-retry+2-refused 1-retry"
    ),
    "delete_partitions": (
        "1-retry both 1-retry 1-retry 1-retry 1-retry 1-retry 2-idle 1-retry both both 2-refused 1-retry both 1-retry 1-retry "
        "1-retry+2-refused 1-retry+2-refused 1-retry+2-refused 1-retry"
    ),
    "compaction": (
        "both both both both both both 2-yields 2-idle 2-idle both both 2-refused 1-yields both both 2-idle 2-refused "
        "2-refused 2-refused both"
    ),
    "log compaction": (
        "both both both both/1-yields both/1-yields both/1-yields 1-yields 2-yields both/1-yields both both 2-refused "
        "1-yields both both 2-idle 2-refused 2-refused 2-refused both"
    ),
    "clustering": (
        "2-refused both 2-refused 2-refused 2-refused 2-refused 2-idle 2-idle 2-idle both both 2-refused 1-yields both "
        "1-yields 2-idle 2-refused 2-refused 2-refused 2-refused"
    ),
    "clean": (
        "both both both both both both both both both 2-idle both both 2-refused 2-refused both both 1-idle both both both"
    ),
    "archive": (
        "both both both both both both both both both both 1-idle both both both 1-idle both 1-idle 1-refused 1-refused both"
    ),
    "rollback": ("both both both both both both both 2-idle both both both both both both both both both both both both"),
    "restore": (
        "2-refused 2-refused 2-refused 2-refused 2-refused 2-refused 2-refused 2-refused 2-refused 2-refused 2-idle "
        "both/2-refused both 2-refused 2-refused 2-refused 2-refused 2-refused 2-refused 2-refused"
    ),
    "savepoint": (
        "both both both both both both both both both 1-refused both both both 1-refused both both 1-refused 1-refused "
        "1-refused both"
    ),
    "indexing": (
        "both both both both both both both both both both 2-idle both 1-refused both 2-refused both 2-refused 2-refused "
        "2-refused both"
    ),
    "resize": (
        "both both both 2-refused 2-refused 2-refused 2-idle 2-idle 2-idle both both 2-refused 1-yields both 1-yields "
        "2-idle 2-refused 2-refused 2-refused both"
    ),
    "downgrade to 6": (
        "both/1-refused both both/1-refused both both both 2-yields/2-idle 2-idle 2-idle/both both both 2-refused "
        "1-refused both both 2-idle/both 2-refused/1-refused 2-refused/1-refused 2-refused/2-idle both/1-refused"
    ),
    "upgrade to 9": (
        "both/1-refused both both/1-refused both both both 2-yields/2-idle 2-idle 2-idle/both both both 2-refused "
        "1-refused both both 2-idle/both 2-refused/1-refused 2-refused/1-refused 1-idle both/1-refused"
    ),
    "downgrade to 8": (
        "both/1-refused both both/1-refused both both both 2-yields/2-idle 2-idle 2-idle/both both both 2-refused "
        "1-refused both both 2-idle/both 2-refused/1-refused 2-idle 2-refused/1-refused both/1-refused"
    ),
    "early upsert": (
        "1-retry 1-retry 1-retry 1-retry 1-retry 1-retry 1-retry 2-idle 1-retry both both 2-refused 1-retry both both 2-idle "
        "1-retry+2-refused 1-retry+2-refused 1-retry+2-refused 2-yields"
    ),
}
"""On the same file groups, or on the whole table."""

DIFFERENT: Mapping[str, str] = {
    "upsert": ("both both both both - both both 2-idle both - - 2-refused - - - 2-idle - - - both"),
    "insert": ("both both both both - both both 2-idle both - - 2-refused - - - 2-idle - - - both"),
    "delete": ("both both both both - both both 2-idle both - - 2-refused - - - 2-idle - - - both"),
    "insert_overwrite": ("both both both both - both both 2-idle both - - 2-refused - - - both - - - both"),
    "delete_partitions": ("both both both both - both both 2-idle both - - 2-refused - - - both - - - both"),
    "compaction": ("both both both both - both both both both - - both - - - both - - - both"),
    "log compaction": ("both both both both - both both - both - - - - - - 2-idle - - - both"),
    "clustering": ("both both both both - both both both both - - both/1-yields - - - both - - - both"),
    "rollback": ("both both both both - both both - both - - - - - - both - - - both"),
    "resize": ("both both both both - both both both both - - both - - - both - - - both"),
    "early upsert": ("both both both both - both both 2-idle both - - 2-refused - - - 2-idle - - - both"),
}
"""On different file groups, for actions that can be limited to some."""


def table_of(outcomes: Mapping[str, str]) -> list[str]:
    """The lines of a table of the page."""
    names = list(SAME)
    shown = [number for number in range(len(names)) if any(row.split()[number] != "-" for row in outcomes.values())]
    lines = [f"| first \\ second | {' | '.join(names[number] for number in shown)} |", "| --- " * (len(shown) + 1) + "|"]
    for first, row in outcomes.items():
        words = row.split()
        lines.append(f"| **{first}** | {' | '.join(words[number] for number in shown)} |")
    return lines
