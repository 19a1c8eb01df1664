"""Rolling entries of extra metadata are copied from the newest commit that has them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import pyhudi as hp
from pyhudi.format.instants import Action
from pyhudi.table.snapshot import read_commit

ROLL: dict[str, Any] = {"hoodie.write.rolling.metadata.keys": "_a,_b,_missing"}


def rows(number: int) -> pa.Table:
    return pa.table({"id": [str(number)], "ts": pa.array([number], pa.int64())})


def extra(table: hp.Table) -> dict[str, str]:
    instant = table.timeline().completed_writes()[-1]
    found = read_commit(table.context.timeline, instant).extra_metadata
    return {key: value for key, value in found.items() if key.startswith("_")}


def test_missing_entries_are_copied_by_writes_and_services() -> None:
    table = hp.Table.create("memory://rolling", record_key="id", ordering="ts", table_type="mor")
    off = {"hoodie.compact.inline": "false"}
    table.upsert(rows(0), options={**off, "_a": "1", "_b": "1", "_other": "1"})
    table.upsert(rows(0), options={**off, **ROLL, "_a": "2"})
    assert extra(table) == {"_a": "2", "_b": "1"}
    table.delete([{"id": "0"}], options={**off, **ROLL})
    assert extra(table) == {"_a": "2", "_b": "1"}
    table.upsert(rows(1), options=off)
    assert extra(table) == {}
    table.compact(options=ROLL)
    assert table.timeline().completed_writes()[-1].action is Action.COMMIT
    assert extra(table) == {"_a": "2", "_b": "1"}
    table.cluster(options=ROLL)
    assert table.timeline().completed_writes()[-1].action is Action.REPLACECOMMIT
    assert extra(table) == {"_a": "2", "_b": "1"}


def test_a_limited_number_of_commits_is_searched() -> None:
    table = hp.Table.create("memory://rolling-limit", record_key="id", ordering="ts")
    table.upsert(rows(0), options={"_a": "1"})
    for number in range(1, 4):
        table.upsert(rows(number))
    short = {**ROLL, "hoodie.write.rolling.metadata.timeline.lookback.commits": 3}
    table.upsert(rows(4), options=short)
    assert extra(table) == {}
    table.upsert(rows(5), options={**short, "hoodie.write.rolling.metadata.timeline.lookback.commits": 5})
    assert extra(table) == {"_a": "1"}
