"""Smoke tests of merge modes: tables of version 9 that PyHudi and Apache Hudi 1.1.1 write in turn.

Both read the same rows before and after each compaction or rewrite.  Each services what the other wrote.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pyhudi import Table
from tests.interop.oracle import ApacheHudi
from tests.support.hudi_alternation import BY_RECORD_INDEX, CLUSTER, COMPACT, KEPT, UNAVAILABLE, WAYS, AlternatingWrites


def _ways(smoke: str, full: str) -> list[object]:
    """Every way: one in the smoke tier, one more in the full tier, the others in wide runs only."""
    marks = {smoke: [], full: [pytest.mark.full]}
    return [pytest.param(way, marks=marks.get(way, [pytest.mark.wide])) for way in WAYS]


# Both merge modes, columns that are left as they were, deletes by a column, and two ordering fields; values that a database left
# out are in Postgres, in turn with Spark.
@pytest.mark.parametrize("way", _ways("OverwriteNonDefaults", "AWSDms"))
def test_hudi_and_pyhudi_alternate_on_merge_on_read(newer_hudi: ApacheHudi, tmp_path: Path, way: str) -> None:
    """Ours makes the table, theirs compacts; then ours compacts what both wrote."""
    turns = AlternatingWrites(newer_hudi, tmp_path / "t", WAYS[way], "mor")
    Table.create(turns.path, options=turns.options)
    turns.ours(("a", 11, "c", "a11", 1), ("b", 11, "c", "b11", 2), ("c", 11, "c", "c11", 3), ("d", 11, "c", "d11", 4))
    turns.theirs(("a", 12, "u", UNAVAILABLE, None), ("b", 9, "u", "late", 9), ("e", 11, "c", "e11", 5))
    turns.ours(("c", 20, "u", None, 7), ("d", 9, "u", UNAVAILABLE, None), ("a", 13, "d", "gone", 0), ("e", 2, "d", "late", 0))
    turns.read_by_both()
    turns.theirs(("a", 12, "u", "after", 1), ("d", 30, "u", "d30", None), **COMPACT, **KEPT)
    turns.ours(("b", 0, "", None, None), operation="delete")
    turns.theirs(("b", 12, "u", "back", 1), ("c", 21, "d", "gone", 0), **BY_RECORD_INDEX)
    turns.ours(("c", 15, "u", "early", 2), ("d", 31, "u", None, 9))
    turns.read_by_both()
    turns.table.compact()
    turns.read_by_both()
    turns.checked()


@pytest.mark.parametrize("way", [pytest.param("two_fields", marks=pytest.mark.wide), "Postgres"])
def test_hudi_and_pyhudi_alternate_on_copy_on_write(newer_hudi: ApacheHudi, tmp_path: Path, way: str) -> None:
    """Theirs makes the table; each rewrites, clusters, cleans and archives what the other wrote."""
    turns = AlternatingWrites(newer_hudi, tmp_path / "t", WAYS[way], "cow")
    turns.theirs(("a", 11, "c", "a11", 1), ("b", 11, "c", "b11", 2), ("c", 11, "c", "c11", 3), ("d", 11, "c", "d11", 4))
    turns.ours(("a", 12, "u", UNAVAILABLE, None), ("b", 9, "u", "late", 9), ("c", 12, "d", "gone", 0), ("d", 9, "d", "late", 0))
    turns.read_by_both()
    turns.theirs(("c", 1, "u", "back", 1), ("a", 9, "u", None, 8), ("d", 25, "u", None, 4), **CLUSTER)
    turns.ours(("e", 11, "c", "e11", 5), ("f", 11, "c", "f11", 6), operation="insert")
    turns.read_by_both()
    turns.table.cluster()
    turns.table.clean(dry_run=False, options={"hoodie.clean.commits.retained": 1})
    turns.read_by_both()
    turns.theirs(("e", 12, "u", "e12", None), **KEPT)
    turns.table.archive(options={"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3})
    turns.ours(("f", 0, "", None, None), operation="delete")
    turns.read_by_both()
    turns.theirs(("g", 11, "c", "g11", 5), operation="insert_overwrite")
    turns.read_by_both()
    turns.checked()
