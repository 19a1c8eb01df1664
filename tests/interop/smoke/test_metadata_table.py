"""Smoke tests of the metadata table: PyHudi and Apache Hudi 1.0.2 write tables with one in turn, and both read by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.interop.oracle import ApacheHudi
from tests.interop.pair import FILTERS, Pair, make
from tests.support.needs import WIDE

# With how many filters Apache Hudi reads on the way, where it reads with more of them at the end.
MORE = 2 if WIDE else 0


# Who makes the table and of which kind it is have no rule together.
@pytest.mark.parametrize(
    ("kind", "first"),
    [
        # Of copies on write the smoke tier has turns with the newer release, in test_merge_modes.py.
        pytest.param("cow", "theirs", marks=pytest.mark.full),
        ("mor", "ours"),
        pytest.param("cow", "ours", marks=pytest.mark.wide),
        pytest.param("mor", "theirs", marks=pytest.mark.wide),
    ],
)
def test_hudi_and_pyhudi_alternate(hudi: ApacheHudi, tmp_path: Path, kind: str, first: str) -> None:
    pair = Pair(hudi, tmp_path / "t", kind)
    if first == "ours":
        pair.create()
        pair.ours("upsert", make(range(60), 1))
    else:
        pair.theirs("upsert", make(range(60), 1))
    assert set(pair.metadata.partitions) == {"files", "column_stats", "partition_stats"}
    pair.ours("upsert", make(range(40, 80), 2), filters=MORE)
    pair.theirs("upsert", make(range(70, 90), 3))
    pair.ours("delete", make(range(5), 4))
    pair.theirs("delete", make(range(85, 90), 4))
    pair.ours("insert_overwrite", make([1, 61, 301], 5, city="rome"), filters=MORE)
    pair.theirs("insert_overwrite", make([2, 62, 302], 6, city="são paulo"))
    pair.ours("upsert", make(range(50, 70), 7, seats=-1))
    if kind == "mor":
        pair.table.compact()
    pair.theirs("upsert", make(range(60, 65), 8, note=None))
    pair.ours("upsert", make(range(63, 100), 9))
    pair.check(len(FILTERS) if WIDE or kind == "mor" else 3)
    pair.check_by_listing()


# Copies on write are in test_write_indexes.py and test_indexes.py too.
@pytest.mark.parametrize("kind", [pytest.param("cow", marks=pytest.mark.wide), "mor"])
def test_record_index_and_bloom_filters(hudi: ApacheHudi, tmp_path: Path, kind: str) -> None:
    on = {
        "hoodie.metadata.record.index.enable": True,
        "hoodie.metadata.index.bloom.filter.enable": True,
        "hoodie.metadata.record.index.min.filegroup.count": 3,
    }
    theirs: dict[str, Any] = {"hoodie.index.type": "RECORD_INDEX"}
    pair = Pair(hudi, tmp_path / "t", kind, on)
    pair.create()
    pair.ours("upsert", make(range(40), 1))
    assert {"record_index", "bloom_filters"} < set(pair.metadata.partitions)
    pair.theirs("upsert", make(range(30, 50), 2), **theirs)
    pair.ours("delete", make(range(3), 3))
    pair.ours("upsert", make(range(2, 60), 4))
    pair.theirs("delete", make(range(50, 55), 5), **theirs)
    pair.ours("insert_overwrite", make([1, 61, 301], 6, city="rome"))
    pair.theirs("upsert", make(range(0, 90, 2), 7), **theirs)
    if kind == "mor":
        pair.table.compact()
    pair.table.cluster()
    pair.theirs("upsert", make(range(1, 90, 3), 8), **theirs)
    pair.check(4)
    pair.check_by_listing()
