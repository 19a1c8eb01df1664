"""Smoke test of indexes: secondary and expression indexes of a merge-on-read table that PyHudi and Apache Hudi 1.0.2 write."""

from __future__ import annotations

from pathlib import Path

from tests.interop.oracle import ApacheHudi
from tests.interop.pair import Pair, make
from tests.support.hudi_indexes import VERSION_8


def test_indexes_of_merge_on_read(hudi: ApacheHudi, tmp_path: Path) -> None:
    pair = Pair(hudi, tmp_path / "t", "mor", {**VERSION_8.options, "hoodie.compact.inline": False})
    pair.create()
    pair.ours("upsert", make(range(30), 1))
    # Hudi cannot write log files to a table with bloom filters of an expression.
    VERSION_8.create_by_pyhudi(pair.table, bloom_filters=False)
    pair.ours("upsert", make(range(20, 30), 2, note="xx"))
    with VERSION_8.session_of(hudi):
        VERSION_8.check(pair, 1)
        pair.table.compact()
        pair.theirs("upsert", make(range(10, 15), 3, note="xx"), **VERSION_8.writes)
        VERSION_8.check(pair, 4)
