"""Partition paths deeper than Python's recursion limit."""

from __future__ import annotations

from pathlib import Path

import pyhudi as hp


def test_a_table_with_a_deep_partition_stays_writable(tmp_path: Path) -> None:
    table = hp.Table.create(tmp_path / "t", record_key="id", partition_by="p")
    table.upsert([{"id": 1, "p": "a/" * 1000 + "b"}])
    hp.Table(table.uri).upsert([{"id": 2, "p": "x"}])
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2]
    table.rollback(table.timeline().completed_writes()[-1].request_time)
    assert table.validate().ok
    table.drop()
    assert not (tmp_path / "t").exists()
